/* bench-conv [ROUNDS]: convolutions and their two gradients against the products that they are, replayed on
 * operands that are gathered already, by Zug's own dot on one thread. In rounds, one after the other, the
 * fastest of each. Layers of ResNet-50 and of the U-Net of examples/unet.zug; pictures lie channel by
 * channel, and with channels last. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "graph/conv.h"
#include "kernels/kernels.h"

typedef struct {
  const char *name;
  int64_t batch, in, out, size, window, stride;
} Layer;
static const Layer layers[] = {
    {"resnet first", 2, 3, 64, 224, 7, 2},     {"resnet 1, 3x3", 2, 64, 64, 56, 3, 1},
    {"resnet 1, 1x1", 2, 64, 256, 56, 1, 1},   {"resnet 2, 3x3 by 2", 2, 128, 128, 56, 3, 2},
    {"resnet 3, 3x3", 4, 256, 256, 14, 3, 1},  {"resnet 4, 3x3", 8, 512, 512, 7, 3, 1},
    {"resnet 4, 1x1", 8, 512, 2048, 7, 1, 1},  {"unet, 3x3 at 32", 4, 128, 128, 32, 3, 1},
    {"unet, 3x3 at 4", 16, 256, 256, 4, 3, 1},
};
enum { LAYERS = sizeof layers / sizeof *layers, OPS = 3, MOST = 1 << 24 };
static const int ops[OPS] = {ZG_OP_CONV, ZG_OP_CONV_TRANSPOSE, ZG_OP_CONV_GRAD};

static double now(void) { /* of this thread: others may have the processor meanwhile */
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static ZkView view(const int64_t *size, const char *axes, int elem, void *data) {
  ZkView v = {.data = data, .elem = (uint8_t)elem, .rank = (uint8_t)strlen(axes)};
  int64_t n = 1;
  for (int i = v.rank - 1; i >= 0; i--) {
    v.axis[i] = (uint16_t)axes[i];
    v.size[i] = v.whole[i] = size[(int)axes[i]];
    v.stride[i] = n;
    n *= v.size[i];
  }
  ZB_ASSERT(n <= MOST);
  return v;
}

/* Axes: n samples, i and o channels, h w and p q positions, k l of the window; m = n p q, j = i k l. */
static ZkCall call_of(const Layer *l, int op, bool product, bool last, int elem, void *const *data) {
  int64_t size[128] = {['n'] = l->batch, ['i'] = l->in,     ['o'] = l->out,   ['h'] = l->size,
                       ['w'] = l->size,  ['k'] = l->window, ['l'] = l->window};
  size['p'] = size['q'] = zg_conv_size(l->size, l->window, l->stride, 1, ZG_CONV_SAME);
  size['m'] = l->batch * size['p'] * size['q'], size['j'] = l->in * l->window * l->window;
  const char *const views[3] = {product ? "mj"
                                : last  ? "nhwi"
                                        : "nihw",
                                product ? "jo" : "oikl",
                                product ? "mo"
                                : last  ? "npqo"
                                        : "nopq"};
  ZkCall c = {
      .op = (uint16_t)ops[op], .nin = 2, .nout = 1, .nax = 6, .num = {1}, .opt = {l->stride, ZG_CONV_SAME}};
  memcpy(c.ax, (uint16_t[]){'h', 'k', 'p', 'w', 'l', 'q'}, 6 * sizeof *c.ax);
  if (product) c = (ZkCall){.op = ZG_OP_DOT, .nin = 2, .nout = 1, .nax = 1, .ax = {(uint16_t) "jom"[op]}};
  for (int i = 0; i < 3; i++) {
    ZgConvTensor t = zg_conv_tensor(ops[op], i);
    *(i < 2 ? &c.in[i] : &c.out[0]) = view(size, views[t], i == 2 && op == 2 ? ZK_F32 : elem, data[t]);
  }
  return c;
}

static void fill(void *const *data, bool half) {
  for (int t = 0; t < 3; t++)
    for (int64_t i = 0; i < MOST; i++) {
      float x = (float)(zb_mix64((uint64_t)i) % 1000) * 1e-3f - 0.5f;
      if (half) ((uint16_t *)data[t])[i] = zb_f32_to_bf16(x);
      else ((float *)data[t])[i] = x;
    }
}

/* Of the convolution and of its product, the fastest. */
static void run(const Layer *l, int op, bool last, bool half, int rounds, void *const *data, void *scratch,
                double best[2]) {
  best[0] = best[1] = 1e9;
  for (int r = 0; r < rounds * 2; r++) {
    ZkEnv env = {0};
    ZkCall c = call_of(l, op, r % 2, last, half ? ZK_BF16 : ZK_F32, data);
    c.scratch = scratch;
    ZB_ASSERT(zk_cpu_scratch(&c, 1) <= MOST * 4);
    double t = now();
    zk_cpu_kernel(c.op)(&env, &c);
    t = now() - t;
    if (t < best[r % 2]) best[r % 2] = t;
  }
}

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 5;
  void *data[3], *scratch = aligned_alloc(64, MOST * 4);
  for (int t = 0; t < 3; t++) data[t] = aligned_alloc(64, MOST * 4);
  printf("convolutions on one thread, GFLOP/s and share of the same products'; the fastest of %d rounds\n",
         rounds);
  printf("%-20s %-5s %-14s %16s %16s %16s\n", "", "", "", "conv", "conv_transpose", "conv_grad");
  for (int half = 0; half < 2; half++) {
    fill(data, half);
    for (int n = 0; n < LAYERS * 2; n++) {
      const Layer *l = &layers[n / 2];
      int64_t p = zg_conv_size(l->size, l->window, l->stride, 1, ZG_CONV_SAME);
      double best[2], work = 2e-9 * (double)(l->batch * p * p * l->in * l->out * l->window * l->window);
      printf("%-20s %-5s %-14s", l->name, half ? "bf16" : "f32", n % 2 ? "channels last" : "");
      for (int op = 0; op < OPS; op++) {
        run(l, op, n % 2, half, rounds, data, scratch, best);
        printf(" %10.1f %5.2f", work / best[0], best[1] / best[0]);
        fflush(stdout);
      }
      printf("\n");
    }
  }
  return 0;
}

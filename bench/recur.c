/* bench-recur [ROUNDS]: what recurrences cost along sequences of several lengths, on one thread: the fastest
 * of so many rounds. A scan against the bytes that it must move, at the rate of y += a x over as many;
 * linear_attend and its gradient in nanoseconds a token and head, which the length should not change, and in
 * products against the machine's peak. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "graph/linear.h"
#include "kernels/kernels.h"

enum { MOST = 16384, CHANNELS = 512, HEADS = 2, KEYS = 64, VALUES = 64, TENSORS = 16 };
static const int64_t lengths[] = {512, 2048, 8192, MOST};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

typedef struct {
  const char *name;
  int64_t more;
  bool each; /* a decay for each feature */
} Family;
static const Family families[] = {
    {"one decay (Mamba-2)", ZG_LINEAR_DECAY, false},
    {"a decay each (GLA)", ZG_LINEAR_DECAY, true},
    {"feedback (gated DeltaNet)", ZG_LINEAR_DECAY | ZG_LINEAR_FEED, false},
    {"all (RWKV-7)", ZG_LINEAR_DECAY | ZG_LINEAR_FEED | ZG_LINEAR_PAIR, true},
};
enum { FAMILIES = sizeof families / sizeof *families };

typedef struct {
  ZkEnv env;
  float *tensor[TENSORS]; /* of the largest call */
  double flops;           /* the peak of products */
} Bench;

static double now(void) { /* of this thread: others may have the processor meanwhile */
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static ZkView view(const char *axes, int64_t seq, void *data) {
  const int64_t size[128] = {['s'] = seq, ['c'] = CHANNELS, ['h'] = HEADS, ['k'] = KEYS, ['v'] = VALUES};
  ZkView v = {.data = data, .elem = ZK_F32, .rank = (uint8_t)strlen(axes)};
  int64_t n = 1;
  for (int i = v.rank - 1; i >= 0; i--) {
    v.axis[i] = (uint16_t)axes[i];
    v.size[i] = v.whole[i] = size[(int)axes[i]];
    v.stride[i] = n;
    n *= v.size[i];
  }
  return v;
}

static double seconds(const Bench *b, ZkCall *c, int rounds) {
  double best = 1e9;
  c->scratch = aligned_alloc(64, zb_round_up(zk_cpu_scratch(c, 1) + 64, 64));
  for (int i = 0; i <= rounds; i++) { /* the first warms up */
    double t = now();
    zk_cpu_kernel(c->op)(&b->env, c);
    t = now() - t;
    if (i && t < best) best = t;
  }
  free(c->scratch);
  return best;
}

static ZkCall linear_call(const Bench *b, const Family *f, int64_t seq, bool grad) {
  ZkCall c = {.op = grad ? ZG_OP_LINEAR_ATTEND_GRAD : ZG_OP_LINEAR_ATTEND,
              .nax = 3,
              .ax = {'s', 'k', 'v'},
              .opt = {f->more, zg_linear_chunk(f->more, seq)}};
  const char *axes[] = {"hsk", "hsk", "hsv", f->each ? "hsk" : "hs", "hsk", "hsk", "hsv"};
  int t = 0;
  if (grad) c.in[c.nin++] = view("hsv", seq, b->tensor[t++]);
  for (int i = 0; i < 7; i++) {
    int bit = i == 3 ? ZG_LINEAR_DECAY : i == 4 ? ZG_LINEAR_FEED : i > 4 ? ZG_LINEAR_PAIR : 0;
    if (bit && !(f->more & bit)) continue;
    float *x = b->tensor[t++];
    for (int64_t j = 0; j < HEADS * seq * 64; j++) { /* keys of length about 1, decays near 0 */
      double u = zb_random_unit(1, (uint64_t)i, (uint64_t)j) - 0.5;
      x[j] = (float)(i == 3 ? 0.1 * (u - 0.5) : i == 2 || i == 6 ? u : i == 4 ? -0.3 * u : 0.4 * u);
    }
    c.in[c.nin++] = view(axes[i], seq, x);
  }
  for (int i = grad; grad && i < c.nin; i++) c.out[c.nout] = c.in[i], c.out[c.nout++].data = b->tensor[t++];
  if (!grad) c.out[c.nout++] = view("hsv", seq, b->tensor[t++]);
  ZB_ASSERT(t <= TENSORS);
  return c;
}

static void bench_scans(const Bench *b, int rounds) {
  printf("%-28s %8s %12s %12s\n", "", "length", "ns a token", "of its bytes");
  for (int i = 0; i < LENGTHS; i++) {
    int64_t seq = lengths[i], n = seq * CHANNELS;
    ZkCall c = {.op = ZG_OP_SCAN, .nin = 2, .nout = 1, .nax = 1, .ax = {'s'}};
    c.in[0] = view("sc", seq, b->tensor[0]), c.in[1] = view("sc", seq, b->tensor[1]);
    c.out[0] = view("sc", seq, b->tensor[2]);
    for (int64_t j = 0; j < n; j++) b->tensor[0][j] = 0.9f, b->tensor[1][j] = 1;
    double t = seconds(b, &c, rounds), move = 1e9; /* both read two tensors and write one */
    for (int k = 0; k <= rounds; k++) {
      double at = now();
      zk_cpu_axpy(&b->env, n, 0.5f, b->tensor[1], b->tensor[2]);
      at = now() - at;
      if (k && at < move) move = at;
    }
    printf("%-28s %8lld %12.1f %11.0f%%\n", "scan of 512 channels", (long long)seq, t / (double)seq * 1e9,
           100 * move / t);
  }
}

static void bench_linear(const Bench *b, int rounds) {
  printf("\n%-28s %8s %12s %12s %15s %9s\n", "heads of 64 by 64", "length", "forward, ns", "backward, ns",
         "forward, FLOPs", "backward");
  for (int f = 0; f < FAMILIES; f++)
    for (int i = 0; i < LENGTHS; i++) {
      int64_t seq = lengths[i];
      double t[2], work[2], tokens = (double)(seq * HEADS);
      for (int grad = 0; grad < 2; grad++) {
        ZkCall c = linear_call(b, &families[f], seq, grad);
        t[grad] = seconds(b, &c, rounds);
        work[grad] =
            (grad ? 2 : 1) * tokens * zg_linear_flops(families[f].more, (double)c.opt[1], KEYS, VALUES);
      }
      printf("%-28s %8lld %12.1f %12.1f %14.0f%% %8.0f%%\n", families[f].name, (long long)seq,
             t[0] / tokens * 1e9, t[1] / tokens * 1e9, 100 * work[0] / t[0] / b->flops,
             100 * work[1] / t[1] / b->flops);
    }
}

/* Of one product of matrices, by the same clock. */
static double peak(const Bench *b, int rounds) {
  ZkCall c = {.op = ZG_OP_DOT, .nin = 2, .nout = 1, .nax = 1, .ax = {'k'}};
  for (int i = 0; i < 3; i++) {
    ZkView v = {.data = b->tensor[i], .elem = ZK_F32, .rank = 2, .size = {512, 512}, .whole = {512, 512}};
    v.stride[0] = 512, v.stride[1] = 1;
    v.axis[0] = i == 1 ? 'k' : 's', v.axis[1] = i ? 'v' : 'k';
    *(i < 2 ? &c.in[i] : &c.out[0]) = v;
  }
  return 2.0 * 512 * 512 * 512 / seconds(b, &c, 4 * rounds);
}

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 5;
  if (rounds < 1) {
    fprintf(stderr, "usage: bench-recur [ROUNDS]\n");
    return 2;
  }
  Bench b = {.env = {.pool = zk_pool_new(1), .seed = 1, .step = 1}};
  for (int i = 0; i < TENSORS; i++) {
    size_t bytes = (size_t)MOST * CHANNELS * 4;
    b.tensor[i] = memset(aligned_alloc(64, bytes), 0, bytes);
  }
  b.flops = peak(&b, rounds);
  printf("%s; one thread, products %.1f GF/s\n\n", zk_cpu_describe(), b.flops * 1e-9);
  bench_scans(&b, rounds);
  bench_linear(&b, rounds);
  for (int i = 0; i < TENSORS; i++) free(b.tensor[i]);
  zk_pool_free(b.env.pool);
  return 0;
}

/* Does cuDNN make plans for the graphs of attend_cudnn.c? For GPUs that are described in h100.json and
 * others; no device and no driver are needed, but a stand-in for the driver's library. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/attend.h"
#include "tests/unit/breadth.h"

#ifdef HAVE_CUDNN
#include <cudnn.h>
#endif

#ifndef HAVE_CUDNN
Test(cudnn, plans) { cr_skip_test("cuDNN is not in this build"); }
#else

static const char *device(const char *name) {
  static char text[4096], path[4096];
  snprintf(path, sizeof path, ZUG_SRC "/tests/unit/kernels/cuda/%s.json", name);
  FILE *f = fopen(path, "r");
  cr_assert(f != NULL, "%s", path);
  text[fread(text, 1, sizeof text - 1, f)] = 0;
  fclose(f);
  return text;
}

/* cuDNN looks for libcuda.so.1: that is then here. */
static void stand_in(void) {
  cr_assert(dlopen(ZUG_BUILD "/tests/unit/kernels/cuda/standin_cuda.so", RTLD_NOW | RTLD_GLOBAL) != NULL,
            "%s", dlerror());
}

typedef struct {
  int64_t b, s, k, g, d;
  const char *q, *kv, *l; /* the axes, slowest first */
  int mask;
} Shape;

static ZkView view(const Shape *s, const char *axes, ZkElem elem) {
  ZkView v = {.elem = elem, .rank = (uint8_t)strlen(axes)};
  int64_t stride = 1;
  for (int i = v.rank - 1; i >= 0; i--) {
    char a = axes[i];
    v.axis[i] = (uint16_t)a;
    v.size[i] = v.whole[i] = a == 'b' ? s->b : a == 's' ? s->s : a == 'k' ? s->k : a == 'g' ? s->g : s->d;
    v.stride[i] = stride;
    stride *= v.size[i];
  }
  return v;
}

static ZkCall call_of(const Shape *s, bool grad, ZkElem elem) {
  ZkView q = view(s, s->q, elem), k = view(s, s->kv, elem), l = view(s, s->l, ZK_F32);
  if (grad)
    return (ZkCall){.op = ZG_OP_ATTEND_GRAD,
                    .nin = 6,
                    .nout = 3,
                    .nax = 2,
                    .ax = {'s', 'd'},
                    .num = {0.125},
                    .opt = {s->mask},
                    .in = {q, q, l, q, k, k},
                    .out = {q, k, k}};
  return (ZkCall){.op = ZG_OP_ATTEND,
                  .nin = 3,
                  .nout = 2,
                  .nax = 2,
                  .ax = {'s', 'd'},
                  .num = {0.125},
                  .opt = {s->mask},
                  .in = {q, k, k},
                  .out = {q, l}};
}

static size_t scratch_of(const ZkCall *c) {
  ZkcAttend a;
  zkc_attend_of(c, &a);
  return zk_attend_dnn_scratch(&a);
}

/* The gradient in so many pieces, and with the same bits in every run; 0: it is not left to cuDNN. */
static void plans(const char *name, const Shape *s, int any, int repeatable) {
  for (int kind = 0; kind < 3; kind++) {
    bool grad = kind > 0;
    int pieces = kind == 2 ? repeatable : any;
    ZkCall c = call_of(s, grad, ZK_BF16);
    c.repeatable = kind == 2;
    int64_t workspace;
    int n;
    bool found = zk_attend_dnn_plan(&c, device(name), &workspace, &n), wanted = !grad || pieces > 0;
    cr_assert(found == wanted, "%s plan for %s of %s, s=%d d=%d on %s", found ? "a" : "no",
              grad ? "the gradient" : "attention", s->q, (int)s->s, (int)s->d, name);
    if (!found) continue;
    cr_assert(n == (grad ? pieces : 1), "%d pieces", n);
    cr_assert(workspace >= (c.repeatable ? s->s * s->s * 2 : 0) && (size_t)workspace <= scratch_of(&c));
  }
}

/* Rows that are no whole tiles: only forward. */
Test(cudnn, plans) {
  stand_in();
  plans("h100", &(Shape){4, 1024, 12, 1, 64, "bskd", "bskd", "bsk", 1}, 1, 1);
  if (!at_night()) return; /* seconds each */
  plans("h100", &(Shape){8, 2048, 8, 4, 64, "bskgd", "bskd", "bskg", 1}, 1, 4);
  plans("h100", &(Shape){2, 128, 3, 1, 40, "bksd", "bksd", "bks", 0}, 1, 1);
  plans("h100", &(Shape){3, 256, 1, 4, 256, "bsgd", "bsd", "bsg", 1}, 1, 1);
  plans("h100", &(Shape){2, 100, 3, 1, 40, "bksd", "bksd", "bks", 0}, 0, 0);
  plans("h100", &(Shape){3, 192, 1, 4, 256, "bsgd", "bsd", "bsg", 1}, 0, 0);
}

/* Gradients of heads of up to 128; in one order from cuDNN 9.18 on. cuDNN's own sums take half of the scratch. */
Test(cudnn, plans_before_hopper) {
  static const char *const names[] = {"a100", "rtx4090"};
  bool gradients = cudnnGetVersion() >= 91800;
  if (!at_night()) cr_skip_test("at night");
  stand_in();
  for (int i = 0; i < 2; i++) {
    plans(names[i], &(Shape){4, 1024, 12, 1, 64, "bskd", "bskd", "bsk", 1}, 2, gradients);
    plans(names[i], &(Shape){2, 128, 2, 3, 128, "bskgd", "bskd", "bskg", 0}, 2, gradients);
    plans(names[i], &(Shape){2, 128, 2, 1, 256, "bskd", "bskd", "bsk", 1}, 0, 0);
  }
}

/* Each piece of a gradient is at least four tiles of 64 keys for each of 132 multiprocessors, where so many heads
 * fit into 1 GiB; and what fits into that is one piece. */
Test(cudnn, pieces_fill_a_gpu) {
  static const int64_t batch[] = {1, 3, 8, 13, 16, 31}, keys[] = {1, 7, 8, 12, 25},
                       length[] = {128, 1024, 2048, 8192};
  for (int i = 0; i < 6 * 5 * 4 * 2 * 2; i++) {
    int64_t b = batch[i % 6], k = keys[i / 6 % 5], s = length[i / 30 % 4], g = i / 120 % 2 ? 4 : 1;
    Shape x = {b, s, k, g, 64, "bskgd", "bskd", "bskg", 1};
    ZkCall c = call_of(&x, true, ZK_BF16);
    ZkTiling t;
    c.repeatable = i / 240;
    cr_assert(zk_cuda_tiles(&c, 132, &t));
    double each = (double)g * ((c.repeatable ? 2.0 * s * s : 4.0 * s * 64) + (g > 1 ? 4.0 * s * 64 : 0));
    double room = 1 << 30, all = each * (double)(b * k);
    int64_t heads = (4 * 132 + g * s / 64 - 1) / (g * s / 64); /* of keys, for four waves */
    if (heads > k) heads = (heads + k - 1) / k * k;            /* whole batch elements */
    bool fits = (double)heads * each <= room;
    cr_expect(all > room || t.launches == 1, "%d: %d pieces of what fits", i, (int)t.launches);
    cr_expect(t.launches == 1 || !fits || t.tiles >= 4 * 132, "%d: pieces of %d tiles", i, (int)t.tiles);
    cr_expect(t.launches * t.tiles >= b * k * g * s / 64, "%d: something is left out", i);
    cr_expect(scratch_of(&c) <= 1.2 * room, "%d: %zu bytes", i, scratch_of(&c));
  }
}

/* What is known not to fit is not tried: heads that are not evenly spaced, of odd sizes, in f32, too large; a
 * single position. */
Test(cudnn, declined) {
  static const Shape shape[] = {{2, 128, 2, 2, 64, "bksgd", "bksd", "bskg", 0},
                                {2, 128, 2, 1, 12, "bskd", "bskd", "bsk", 0},
                                {1, 128, 1, 1, 512, "sd", "sd", "s", 0},
                                {2, 128, 2, 1, 64, "bskd", "bskd", "bsk", 0},
                                {2, 1, 2, 1, 64, "bskd", "bskd", "bsk", 1}};
  for (int i = 0; i < 5; i++)
    for (int grad = 0; grad < 2; grad++) {
      ZkCall c = call_of(&shape[i], grad, i == 3 ? ZK_F32 : ZK_BF16);
      int64_t workspace;
      int n;
      cr_assert(!zk_attend_dnn_plan(&c, device("h100"), &workspace, &n) && scratch_of(&c) == 0, "shape %d",
                i);
    }
  for (int grad = 0; grad < 2; grad++) { /* rows or heads at odd addresses */
    ZkCall c = call_of(&(Shape){2, 128, 2, 1, 64, "bskd", "bskd", "bsk", 0}, grad, ZK_BF16);
    int64_t workspace;
    int n;
    c.in[0].stride[0] += 4;
    cr_assert(!zk_attend_dnn_plan(&c, device("h100"), &workspace, &n) && scratch_of(&c) == 0);
  }
}
#endif

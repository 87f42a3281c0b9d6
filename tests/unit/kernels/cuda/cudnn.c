/* Does cuDNN make plans for the graphs of attend_cudnn.c? For GPUs that are described in h100.json and
 * others; no device and no driver are needed, but a stand-in for the driver's library. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/attend.h"

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

/* The gradient in so many pieces; 0: it is not left to cuDNN. */
static void plans(const char *name, const Shape *s, int pieces) {
  for (int grad = 0; grad < 2; grad++) {
    ZkCall c = call_of(s, grad, ZK_BF16);
    int64_t workspace;
    int n;
    bool found = zk_attend_dnn_plan(&c, device(name), &workspace, &n), wanted = !grad || pieces > 0;
    cr_assert(found == wanted, "%s plan for %s of %s, s=%d d=%d on %s", found ? "a" : "no",
              grad ? "the gradient" : "attention", s->q, (int)s->s, (int)s->d, name);
    if (!found) continue;
    cr_assert(n == (grad ? pieces : 1), "%d pieces", n);
    cr_assert(workspace >= (grad ? s->s * s->s * 2 : 0) && (size_t)workspace <= scratch_of(&c));
  }
}

/* Rows that are no whole tiles: only forward. */
Test(cudnn, plans) {
  stand_in();
  plans("h100", &(Shape){4, 1024, 12, 1, 64, "bskd", "bskd", "bsk", 1}, 1);
  plans("h100", &(Shape){2, 2048, 8, 4, 128, "bskgd", "bskd", "bskg", 1}, 4);
  plans("h100", &(Shape){2, 128, 3, 1, 40, "bksd", "bksd", "bks", 0}, 1);
  plans("h100", &(Shape){3, 256, 1, 4, 256, "bsgd", "bsd", "bsg", 1}, 1);
  plans("h100", &(Shape){2, 100, 3, 1, 40, "bksd", "bksd", "bks", 0}, 0);
  plans("h100", &(Shape){3, 192, 1, 4, 256, "bsgd", "bsd", "bsg", 1}, 0);
}

/* Gradients of heads of up to 128, from cuDNN 9.18 on. */
Test(cudnn, plans_before_hopper) {
  static const char *const names[] = {"a100", "rtx4090"};
  bool gradients = cudnnGetVersion() >= 91800;
  stand_in();
  for (int i = 0; i < 2; i++) {
    plans(names[i], &(Shape){4, 1024, 12, 1, 64, "bskd", "bskd", "bsk", 1}, gradients);
    plans(names[i], &(Shape){2, 128, 2, 3, 128, "bskgd", "bskd", "bskg", 0}, gradients);
    plans(names[i], &(Shape){2, 128, 2, 1, 256, "bskd", "bskd", "bsk", 1}, 0);
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

/* Cross-entropy's sums that find the peak themselves, and make the gradient. (Those that are given it,
 * and the gradient alone: tests/unit/kernels/select.c.) */
#include <math.h>

#include "tests/unit/kernels/conform.h"

/* Sums of up to 9000 exponentials, all positive, each off by some roundings of its exponent, which is at most
 * 16; one more for each time that a thread meets a larger logit. */
#define TOL 6e-6

static const struct {
  const char *dims;
  int64_t valid;
  double ids;
} vocab[] = {{"b=3 s=17 v=33", 0, 33},        {"b=3 s=5 v=64", 61, 61},       {"b=1 s=1 v=1", 0, 1},
             {"b=5 s=3 v=32@96/128", 80, 80}, {"b=1 s=3 v=2100", 2099, 2099}, {"b=1 s=2 v=9000", 8990, 8990}};

Test(xent_cuda, with_max) {
  for (size_t i = 0; i < sizeof vocab / sizeof *vocab; i++)
    for (int wide = 0; wide < 2; wide++) { /* normal logits, and ones between which exponentials vanish */
      double most = wide ? 60 : 0;
      CONFORM(.op = ZG_OP_XENT_MAX_SUMS, .dims = vocab[i].dims, .ax = "v", .opt = {0, vocab[i].valid},
              .in = {{"bsv", REAL, -most, most, NULL}, {"bs", ID, -1, vocab[i].ids - 1, NULL}},
              .out = {{"bs", EXACT}, {"bs", EXACT}, {"bs"}}, .tol = TOL);
    }
}

/* Descending, ascending, one above all others, and logits that are masked out. */
Test(xent_cuda, with_max_where) {
  enum { N = 2100 };
  static double z[4][N];
  for (int v = 0; v < N; v++) {
    z[0][v] = -0.01 * v;
    z[1][v] = 0.01 * v;
    z[2][v] = v == 1234 ? 80 : -80;
    z[3][v] = v % 3 ? -INFINITY : 0.5 * (v % 7);
  }
  for (int i = 0; i < 4; i++)
    CONFORM(.op = ZG_OP_XENT_MAX_SUMS, .dims = "b=1 v=2100", .ax = "v",
            .in = {{"bv", REAL, 0, 0, z[i]}, {"b", ID, 3, 3, NULL}},
            .out = {{"b", EXACT}, {"b", EXACT}, {"b"}}, .tol = TOL);
}

/* ---- with the gradient ---- */
/* s, p, m as above; of a gradient, g by the share that an exponential has of such a sum, and a rounding
 * more. */
#define GRAD_TOL (TOL + 1e-6)
#define GRAD(...)                                                                                            \
  CONFORM(.op = ZG_OP_XENT_SUMS_GRAD, .ax = "v", .out = {{"bsv"}, {"bs", EXACT}, {"bs", EXACT}, {"bs"}},     \
          .tol = GRAD_TOL, __VA_ARGS__)

/* Of every length, those that threads share by warps and those that are a block's; wide ones and others. */
Test(xent_cuda, with_gradient) {
  static const struct {
    const char *dims;
    int64_t valid;
  } more[] = {{"b=3 s=5 v=64", 0},      {"b=1 s=3 v=1024", 1017}, {"b=2 s=2 v=1032", 0},
              {"b=1 s=5 v=8192", 8191}, {"b=1 s=2 v=8200", 0},    {"b=1 s=2 v=16385", 0}};
  for (size_t i = 0; i < sizeof vocab / sizeof *vocab; i++)
    for (int wide = 0; wide < 2; wide++) {
      double most = wide ? 60 : 0;
      GRAD(.dims = vocab[i].dims, .opt = {0, vocab[i].valid},
           .in = {{"bsv", REAL, -most, most, NULL}, {"bs", ID, -1, vocab[i].ids - 1, NULL}, {"bs", EXACT}});
    }
  for (size_t i = 0; i < sizeof more / sizeof *more; i++)
    GRAD(.dims = more[i].dims, .opt = {0, more[i].valid},
         .in = {{"bsv"}, {"bs", ID, -1, 50, NULL}, {"bs", EXACT}});
}

/* The gradient in the logits' memory is the same, and so is the target's logit, whoever comes there first. */
static void in_place(const ZkCall *call, void *arg) {
  ZkCall c = *call;
  const ZkView *z = &c.in[0], *dz = &c.out[0], *p = &c.out[2];
  if (z->elem != dz->elem || memcmp(z->axis, dz->axis, z->rank * sizeof *z->axis) != 0) return;
  size_t bytes = zk_plain_bytes((ZkElem)z->elem), some = zk_plain_bytes((ZkElem)p->elem);
  for (int i = 0; i < z->rank; i++) bytes *= (size_t)z->size[i];
  for (int i = 0; i < p->rank; i++) some *= (size_t)p->size[i];
  run_call(&c, 0);
  char *picked = malloc(some + 1);
  memcpy(picked, p->data, some);
  c.out[0].data = c.in[0].data;
  run_call(&c, 0);
  cr_assert(!memcmp(c.in[0].data, call->out[0].data, bytes) && !memcmp(picked, p->data, some));
  free(picked);
  ++*(int *)arg;
}

Test(xent_cuda, with_gradient_in_place) {
  static const char *const dims[] = {"b=3 s=5 v=33", "b=2 s=4 v=1024", "b=1 s=5 v=2104", "b=1 s=2 v=9001"};
  for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
    int made = 0;
    each_call(&(Case){.op = ZG_OP_XENT_SUMS_GRAD,
                      .dims = dims[i],
                      .ax = "v",
                      .in = {{"bsv"}, {"bs", ID, 0, 32, NULL}, {"bs", EXACT}},
                      .out = {{"bsv"}, {"bs", EXACT}, {"bs", EXACT}, {"bs"}}},
              in_place, &made);
    cr_assert_geq(made, 2); /* in f32 and in bf16 */
  }
}

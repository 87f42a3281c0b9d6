/* linear_attend and its gradient, in chunks, against the token loop in f64; and what recurrences are known to
 * get wrong. */
#include <math.h>
#include <stdlib.h>

#include "graph/linear.h"
#include "tests/unit/kernels/conform.h"

#define TOL 1e-5 /* sums of up to 100 tokens and features, cancelling with feedback */
/* The gradient of a decay is what is left of x dx - y dy of all later tokens of a chunk, each about 1. */
#define FLOOR(tokens) (1e-7 * (double)(tokens))

/* The shapes of operands: all of them have rows; or some lack a part. h: heads, g: groups of them. */
typedef struct {
  const char *dims, *q, *k, *v, *g, *a, *y, *w, *o;
} Shape;
static const Shape shapes[] = {
    {"b=2 s=37 k=5 v=7", "bsk", "bsk", "bsv", "bs", "bsk", "bsk", "bsv", "bsv"},
    {"b=2 s=37 k=5 v=7", "bsk", "bsk", "bsv", "bsk", "bsk", "bsk", "bsv", "bsv"},
    {"b=1 s=1 k=1 v=1", "bsk", "bsk", "bsv", "bs", "bsk", "bsk", "bsv", "bsv"},
    {"b=1 s=70 k=17 v=18 h=2", "bshk", "bshk", "bshv", "bsh", "bshk", "bshk", "bshv", "bshv"},
    {"b=2 s=33 k=4 v=3 h=3", "bsk", "bsk", "bshv", "bsh", "bsk", "bshk", "bsv", "bshv"},
    {"b=2 s=21 k=4 v=3 h=2 g=3", "bshgk", "bshk", "bshv", "h", "bsk", "bsk", "bshgv", "bshgv"},
    {"b=9 s=5 k=4 v=3 h=2", "bsk", "bshk", "bshv", "bsh", "bsk", "bsk", "bsv",
     "bshv"}, /* a task for each of b */
    {"b=2 s=19 k=4 v=3", "skb", "bks", "vbs", "k", "bsk", "skb", "sbv", "bvs"},
};

static void both(const Shape *x, int more, int chunk, double low, double high, double tol) {
  Case c = {.op = ZG_OP_LINEAR_ATTEND,
            .dims = x->dims,
            .ax = "skv",
            .opt = {more, chunk},
            .tol = tol,
            .floor = FLOOR(70)};
  int n = 0;
  /* Keys of length about 1, as models have them: a feedback multiplies by up to 1 - |k|^2. */
  double size = 0.5;
  c.in[n++] = (Tensor){x->q, REAL, -1, 1, NULL};
  c.in[n++] = (Tensor){x->k, REAL, -size, size, NULL};
  c.in[n++] = (Tensor){x->v, REAL, -1, 1, NULL};
  if (more & ZG_LINEAR_DECAY) c.in[n++] = (Tensor){x->g, EXACT, low, high, NULL};
  if (more & ZG_LINEAR_FEED) c.in[n++] = (Tensor){x->a, REAL, -size, size, NULL};
  if (more & ZG_LINEAR_PAIR) {
    c.in[n++] = (Tensor){x->y, REAL, -size, size, NULL};
    c.in[n++] = (Tensor){x->w, REAL, -1, 1, NULL};
  }
  c.out[0] = (Tensor){x->o, REAL, 0, 0, NULL};
  conform(__FILE__, __LINE__, &c);
  Case d = c;
  d.op = ZG_OP_LINEAR_ATTEND_GRAD;
  d.in[0] = (Tensor){x->o, REAL, -1, 1, NULL};
  for (int i = 0; i < n; i++) d.in[i + 1] = c.in[i], d.out[i] = c.in[i];
  conform(__FILE__, __LINE__, &d);
}

Test(linear, every_operand) {
  for (int more = 0; more < 8; more++)
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
      if (breadth_tries((size_t)more + i, 6) &&
          (i != 1 || more & ZG_LINEAR_DECAY)) /* in all else it is the first */
        both(&shapes[i], more, 0, -2, 0, TOL);
}

Test(linear, chunks) {
  static const int chunk[] = {1, 4, 16, 37, 64};
  for (size_t i = 0; i < sizeof chunk / sizeof *chunk; i++)
    for (int s = 0; s < 2; s++)
      if (breadth_tries(i + (size_t)s, 4)) both(&shapes[s], 7, chunk[i], -2, 0, TOL);
}

/* Decays down to exp(-30) a token, of each feature: factored once a chunk, they would overflow. */
Test(linear, strong_decays) {
  for (int s = 0; s < 2; s++) both(&shapes[s], 3, 0, -30, 0, TOL);
}

/* ---- numbers of one's own ---- */
typedef struct {
  int64_t s, k, v;
  double *q, *key, *value, *g, *a;
} Row;

static double *filled(int64_t n, double x) {
  double *to = malloc((size_t)n * sizeof *to);
  for (int64_t i = 0; i < n; i++) to[i] = x;
  return to;
}
static double *drawn(int64_t n, uint64_t stream) {
  double *to = filled(n, 0);
  for (int64_t i = 0; i < n; i++) to[i] = zb_random_normal(5, stream, (uint64_t)i);
  return to;
}

static void run(const Row *r, bool f32_only, double tol, double floor) {
  char dims[64];
  snprintf(dims, sizeof dims, "s=%d k=%d v=%d", (int)r->s, (int)r->k, (int)r->v);
  Case c = {
      .op = ZG_OP_LINEAR_ATTEND, .dims = dims, .ax = "skv", .tol = tol, .f32_only = f32_only, .floor = floor};
  c.opt[0] = ZG_LINEAR_DECAY | (r->a ? ZG_LINEAR_FEED : 0);
  c.in[0] = (Tensor){"sk", REAL, 0, 0, r->q};
  c.in[1] = (Tensor){"sk", REAL, 0, 0, r->key};
  c.in[2] = (Tensor){"sv", REAL, 0, 0, r->value};
  c.in[3] = (Tensor){"s", EXACT, 0, 0, r->g};
  if (r->a) c.in[4] = (Tensor){"sk", REAL, 0, 0, r->a};
  c.out[0] = (Tensor){"sv", REAL, 0, 0, NULL};
  conform(__FILE__, __LINE__, &c);
  Case d = c;
  d.op = ZG_OP_LINEAR_ATTEND_GRAD;
  d.in[0] = (Tensor){"sv", REAL, -1, 1, NULL};
  for (int i = 0; i < 4 + (r->a != NULL); i++) d.in[i + 1] = c.in[i], d.out[i] = c.in[i];
  conform(__FILE__, __LINE__, &d);
}

static void drop(Row *r) { free(r->q), free(r->key), free(r->value), free(r->g), free(r->a); }

/* 64 equal keys of length 1, each written over the last: (I - L)^-1 by powers of L is off by 5e10 there. */
Test(linear, equal_keys) {
  Row r = {.s = 128, .k = 4, .v = 3};
  r.q = drawn(r.s * r.k, 1), r.value = drawn(r.s * r.v, 2), r.g = filled(r.s, 0);
  r.key = filled(r.s * r.k, 0.5), r.a = filled(r.s * r.k, -0.5 * 0.99);
  run(&r, true, TOL, 4 * FLOOR(r.s)); /* the decays' terms are up to 20 here */
  drop(&r);
}

/* A document begins with log decay -100, or with -infinity: nothing of what was before is seen. A part after
 * a reset is what it is alone. */
Test(linear, resets) {
  for (int infinite = 0; infinite < 2; infinite++) {
    Row r = {.s = 90, .k = 4, .v = 3};
    r.q = drawn(r.s * r.k, 1), r.key = drawn(r.s * r.k, 2), r.value = drawn(r.s * r.v, 3);
    r.g = filled(r.s, -0.01);
    for (int64_t t = 0; t < r.s; t += 10) r.g[t] = infinite ? -INFINITY : -100;
    run(&r, true, TOL, FLOOR(r.s));
    drop(&r);
  }
}

/* 4096 tokens that forget a thousandth each: a factor of bf16 would be 1, and a carry in bf16 would stand
 * still. */
Test(linear, long_memory) {
  Row r = {.s = 4096, .k = 2, .v = 2};
  r.q = filled(r.s * r.k, 1), r.key = filled(r.s * r.k, 1), r.value = filled(r.s * r.v, 0.001);
  r.g = filled(r.s, log(0.999));
  run(&r, false, 2e-5, FLOOR(r.s));
  drop(&r);
}

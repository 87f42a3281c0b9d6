/* Products of few rows, as steps of generation make them: which these are, and that they are right; with what follows
 * them; and that a row's bits do not depend on how many others there are. */
#include <string.h>

#include "base/base.h"
#include "kernels/cuda/dot.h"
#include "tests/unit/kernels/cuda/fused.h"

#define DOT_TOL 3e-6 /* as in reduce.c */
#define DOT(DIMS, A, B, C)                                                                                   \
  { .op = ZG_OP_DOT, .dims = DIMS, .ax = "k", .in = {{A}, {B}}, .out = {{C}}, .tol = DOT_TOL }

static void count_few(const ZkCall *call, void *n) {
  ((int *)n)[0] += zk_dot_is_few(call);
  ((int *)n)[1]++;
}

/* Plays a case as a step's; returns how many of its calls are products of few rows, in thousandths. */
static int play(const char *what, const Case *c) {
  int n[2] = {0};
  conform_invariant = true;
  conform(what, 0, c);
  each_call(c, count_few, n);
  conform_invariant = false;
  return n[1] ? 1000 * n[0] / n[1] : 0;
}

/* Rows from one to two passes; weights along k and across; sums that are long, or end within a chunk; more columns than a
 * block has; the second operand's rows; products of one operand. */
static const Case cases[] = {
    DOT("m=1 n=40 k=64", "mk", "nk", "mn"),
    DOT("m=2 n=24 k=2056", "mk", "nk", "mn"),
    DOT("m=5 n=67 k=72", "mk", "nk", "mn"),
    DOT("m=16 n=33 k=1032", "mk", "nk", "mn"),
    DOT("m=1 n=40 k=65", "mk", "kn", "mn"),
    DOT("m=2 n=72 k=2051", "mk", "kn", "mn"),
    DOT("m=4 n=16 k=7", "mk", "kn", "mn"),
    DOT("m=11 n=136 k=300", "mk", "kn", "mn"),
    DOT("m=7 n=48 k=40", "nk", "mk", "mn"),
    DOT("q=3 m=3 n=24 k=16", "mk", "qkn", "qmn"),
    DOT("q=2 m=3 n=24 k=16", "mk", "qnk", "qmn"),
    {.op = ZG_OP_DOT,
     .dims = "m=3 h=2 k=24 n=32",
     .ax = "hk",
     .in = {{"mhk"}, {"hkn"}},
     .out = {{"mn"}},
     .tol = DOT_TOL},
    {.op = ZG_OP_DOT,
     .dims = "m=3 n=32 k=24",
     .ax = "k",
     .in = {{"mk"}, {"kn"}},
     .out = {{"mn"}},
     .accumulate = true,
     .tol = DOT_TOL},
};

Test(few, rows) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int few = play("few rows", &cases[i]);
    cr_expect(few >= 300, "case %zu: %d in 1000 are of few rows", i,
              few); /* other orders of axes are not wide */
  }
}

/* Not of training, whose choices stay as they are, nor of many rows, of few columns, of odd rows of weights. */
Test(few, others) {
  static const Case no[] = {DOT("m=17 n=40 k=64", "mk", "nk", "mn"), DOT("m=3 n=8 k=64", "mk", "nk", "mn"),
                            DOT("m=3 n=33 k=63", "mk", "nk", "mn"), DOT("m=3 n=33 k=63", "mk", "kn", "mn")};
  for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
    int n[2] = {0};
    conform_invariant = true;
    each_call(&no[i], count_few, n);
    conform_invariant = false;
    cr_expect_eq(n[0], 0, "case %zu", i);
  }
  int n[2] = {0};
  each_call(&cases[0], count_few, n);
  cr_expect_eq(n[0], 0);
}

Test(few, fused) {
  int few = 0;
  for (size_t i = 0; i < nfused; i++) few += play(fused_cases[i].what, &fused_cases[i].c) > 0;
  cr_expect(few > 8, "%d", few);
}

/* ---- company ------------------------------------------------------------------------------------------- */
typedef struct {
  float *x, *w, *y;
} Product;

static void multiply(const Product *p, int64_t m, int64_t n, int64_t k, bool along) {
  ZkCall c = {.op = ZG_OP_DOT, .nin = 2, .nout = 1, .nax = 1, .ax = {'k'}, .invariant = true};
  c.in[0] =
      (ZkView){.data = p->x, .elem = ZK_F32, .rank = 2, .axis = {'m', 'k'}, .size = {m, k}, .stride = {k, 1}};
  c.in[1] = along ? (ZkView){.data = p->w,
                             .elem = ZK_F32,
                             .rank = 2,
                             .axis = {'n', 'k'},
                             .size = {n, k},
                             .stride = {k, 1}}
                  : (ZkView){.data = p->w,
                             .elem = ZK_F32,
                             .rank = 2,
                             .axis = {'k', 'n'},
                             .size = {k, n},
                             .stride = {n, 1}};
  c.out[0] =
      (ZkView){.data = p->y, .elem = ZK_F32, .rank = 2, .axis = {'m', 'n'}, .size = {m, n}, .stride = {n, 1}};
  cr_assert(zk_dot_is_few(&c));
  run_call(&c, 0);
}

Test(few, a_row_has_the_same_bits_in_any_company) {
  enum { M = 16, N = 72, K = 1040 };
  Product p = {memory_new(M * K * 4), memory_new(N * K * 4), memory_new(M * N * 4)};
  float *all = malloc(M * N * 4);
  for (int i = 0; i < M * K; i++) p.x[i] = (float)zb_random_normal(1, 2, (uint64_t)i);
  for (int i = 0; i < N * K; i++) p.w[i] = (float)zb_random_normal(1, 3, (uint64_t)i);
  for (int along = 0; along < 2; along++) {
    multiply(&p, M, N, K, along);
    memcpy(all, p.y, M * N * 4);
    for (int m = 1; m < M; m = 2 * m + 1) {
      multiply(&p, m, N, K, along);
      cr_expect(!memcmp(all, p.y, (size_t)m * N * 4), "%d rows, %s", m, along ? "along" : "across");
    }
  }
  free(all), memory_free(p.x), memory_free(p.w), memory_free(p.y);
}

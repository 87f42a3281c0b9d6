/* Cross-entropy's sums that find the peak themselves. (Those that are given it:
 * tests/unit/kernels/select.c.) */
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

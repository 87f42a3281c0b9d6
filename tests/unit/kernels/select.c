/* Ops that select: lookup, topk and onehot, cross-entropy. */
#include <math.h>

#include "tests/unit/kernels/conform.h"

Test(lookup, forward) { /* exact; ids from -1 on, tables whole and in parts */
  CONFORM(.op = ZG_OP_LOOKUP, .dims = "v=33 e=17 b=3 s=5", .ax = "v",
          .in = {{"ve"}, {"bs", ID, -1, 32, NULL}}, .out = {{"bse"}});
  CONFORM(.op = ZG_OP_LOOKUP, .dims = "v=16@16/64 e=17 b=3 s=33", .ax = "v",
          .in = {{"ve"}, {"bs", ID, -1, 63, NULL}}, .out = {{"bse"}});
  CONFORM(.op = ZG_OP_LOOKUP, .dims = "v=1 e=1 s=1", .ax = "v", .in = {{"ve"}, {"s", ID, 0, 0, NULL}},
          .out = {{"se"}});
  CONFORM(.op = ZG_OP_LOOKUP, .dims = "v=5 s=65", .ax = "v", .in = {{"v"}, {"s", ID, -1, 4, NULL}},
          .out = {{"s"}});
  CONFORM(.op = ZG_OP_LOOKUP, .dims = "v=9 h=3 d=5 s=17", .ax = "v", .in = {{"vhd"}, {"s", ID, 0, 8, NULL}},
          .out = {{"shd"}});
  CONFORM(.op = ZG_OP_LOOKUP, .dims = "v=9 e=33", .ax = "v", .in = {{"ve"}, {"", ID, 4, 4, NULL}},
          .out = {{"e"}});
  CONFORM(.op = ZG_OP_LOOKUP, .dims = "v=9 h=3 e=16 b=2 s=7", .ax = "v",
          .in = {{"vhe"}, {"bs", ID, -1, 8, NULL}}, .out = {{"bshe"}}); /* whole vectors */
  CONFORM(.op = ZG_OP_LOOKUP, .dims = "v=9 e=16 s=5", .ax = "v", .in = {{"ev"}, {"s", ID, -1, 8, NULL}},
          .out = {{"se"}});
  CONFORM(.op = ZG_OP_LOOKUP, .dims = "v=4@4/8 e=2100 s=3", .ax = "v", .in = {{"ve"}, {"s", ID, 3, 5, NULL}},
          .out = {{"se"}});
}

/* Sums of as many terms as an id occurs. */
#define SUM_TOL 2e-6

Test(lookup, gradient) {
  for (int add = 0; add < 2; add++) {
    CONFORM(.op = ZG_OP_LOOKUP_GRAD, .dims = "v=33 e=17 b=3 s=5", .ax = "v",
            .in = {{"bse"}, {"bs", ID, -1, 32, NULL}}, .out = {{"ve"}}, .accumulate = add, .tol = SUM_TOL);
    CONFORM(.op = ZG_OP_LOOKUP_GRAD, .dims = "v=16@16/64 e=65 b=3 s=33", .ax = "v",
            .in = {{"bse"}, {"bs", ID, -1, 63, NULL}}, .out = {{"ve", EXACT}}, .accumulate = add,
            .tol = SUM_TOL);
    CONFORM(.op = ZG_OP_LOOKUP_GRAD, .dims = "v=5 h=3 d=5 s=130", .ax = "v",
            .in = {{"shd"}, {"s", ID, -1, 4, NULL}}, .out = {{"vhd"}}, .accumulate = add, .tol = SUM_TOL);
    CONFORM(.op = ZG_OP_LOOKUP_GRAD, .dims = "v=3 s=65", .ax = "v", .in = {{"s"}, {"s", ID, -1, 2, NULL}},
            .out = {{"v"}}, .accumulate = add, .tol = SUM_TOL);
    CONFORM(.op = ZG_OP_LOOKUP_GRAD, .dims = "v=5 h=3 e=16 s=300", .ax = "v",
            .in = {{"she"}, {"s", ID, -1, 4, NULL}}, .out = {{"vhe"}}, .accumulate = add, .tol = SUM_TOL);
    CONFORM(.op = ZG_OP_LOOKUP_GRAD, .dims = "v=3 h=2 e=1030 s=4", .ax = "v",
            .in = {{"hse"}, {"s", ID, 0, 2, NULL}}, .out = {{"vhe"}}, .accumulate = add, .tol = SUM_TOL);
    CONFORM(.op = ZG_OP_LOOKUP_GRAD, .dims = "v=3 e=1030 s=9", .ax = "v",
            .in = {{"se"}, {"s", ID, 0, 2, NULL}}, .out = {{"ve"}}, .accumulate = add, .tol = SUM_TOL);
  }
}

/* Exact. Random numbers have few ties; the sixths below have nothing else but them. */
Test(topk, chosen) {
  static const char *const dims[] = {"b=3 s=5 e=33 c=4", "b=1 s=1 e=1 c=1", "b=2 s=9 e=256 c=8",
                                     "b=2 s=3 e=5 c=5"};
  for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
    CONFORM(.op = ZG_OP_TOPK, .dims = dims[i], .ax = "ec", .in = {{"bse"}}, .out = {{"bsc"}, {"bsc", ID}});
    CONFORM(.op = ZG_OP_TOPK, .dims = dims[i], .ax = "ec", .in = {{"bse"}, {"sbe"}},
            .out = {{"bsc"}, {"bsc", ID}});
  }
  CONFORM(.op = ZG_OP_TOPK, .dims = "e=40 c=3", .ax = "ec", .in = {{"e"}}, .out = {{"c"}, {"c", ID}});
  CONFORM(.op = ZG_OP_TOPK, .dims = "b=0 e=4 c=2", .ax = "ec", .in = {{"be"}}, .out = {{"bc"}, {"bc", ID}});
}

Test(topk, of_the_best_groups) {
  CONFORM(.op = ZG_OP_TOPK, .dims = "b=3 s=5 e=256 c=8", .ax = "ec", .opt = {8, 4}, .in = {{"bse"}, {"bse"}},
          .out = {{"bsc"}, {"bsc", ID}});
  CONFORM(.op = ZG_OP_TOPK, .dims = "s=7 e=64 c=3", .ax = "ec", .opt = {64, 5}, .in = {{"se"}},
          .out = {{"sc"}, {"sc", ID}}); /* groups of one */
  CONFORM(.op = ZG_OP_TOPK, .dims = "s=7 e=80 c=6", .ax = "ec", .opt = {40, 3}, .in = {{"se"}},
          .out = {{"sc"}, {"sc", ID}});
  CONFORM(.op = ZG_OP_TOPK, .dims = "s=7 e=12 c=3", .ax = "ec", .opt = {1, 1}, .in = {{"se"}},
          .out = {{"sc"}, {"sc", ID}});
}

/* Ties, infinities and what is not a number: still different entries. */
Test(topk, of_equal_ones) {
  double x[] = {1, 2, 2, 0, 2, 1, NAN, NAN, NAN, NAN, NAN, NAN, -INFINITY, NAN, -1, -INFINITY, NAN, INFINITY};
  for (int64_t groups = 0; groups < 4; groups += 3)
    CONFORM(.op = ZG_OP_TOPK, .dims = "s=3 e=6 c=4", .ax = "ec", .opt = {groups, groups ? 2 : 0},
            .in = {{"es", EXACT, 0, 0, NULL}, {"se", REAL, 0, 0, x}}, .out = {{"sc", EXACT}, {"sc", ID}});
}

Test(onehot, entries) {
  CONFORM(.op = ZG_OP_ONEHOT, .dims = "v=33 b=3 s=5", .ax = "v", .in = {{"bs", ID, -1, 32, NULL}},
          .out = {{"bsv", EXACT}});
  CONFORM(.op = ZG_OP_ONEHOT, .dims = "v=16@16/64 b=3 c=4", .ax = "vc", .in = {{"bc", ID, -1, 63, NULL}},
          .out = {{"bv", EXACT}});
  CONFORM(.op = ZG_OP_ONEHOT, .dims = "v=5 b=3 s=70 c=2", .ax = "vsc", .in = {{"bsc", ID, 0, 4, NULL}},
          .out = {{"vb", EXACT}});
  CONFORM(.op = ZG_OP_ONEHOT, .dims = "v=5 c=3", .ax = "vc", .in = {{"c", ID, 0, 4, NULL}},
          .out = {{"v", EXACT}});
  for (int whole = 0; whole < 2; whole++)
    CONFORM(.op = ZG_OP_ONEHOT, .dims = whole ? "v=64 b=3 s=5 c=6" : "v=16@32/64 b=3 s=5 c=6", .ax = "vc",
            .in = {{"bsc", ID, -1, 63, NULL}, {"bsc"}}, .out = {{"bsv"}}, .tol = SUM_TOL);
}

/* Sums of up to 2100 exponentials, all positive. */
#define XENT_TOL 2e-6

static const struct {
  const char *dims;
  int64_t valid;
  double ids;
} vocab[] = {{"b=3 s=17 v=33", 0, 33},          {"b=3 s=5 v=64", 61, 61},
             {"b=3 s=5 v=32@96/128", 97, 97},   {"b=1 s=1 v=1", 0, 1},
             {"b=3 s=5 v=32@32/128", 97, 97},   {"b=5 s=3 v=32@96/128", 80, 80},
             {"b=5 s=3 v=32@96/128", 110, 128}, {"b=1 s=3 v=2100", 2099, 2099}};
#define VOCABS (sizeof vocab / sizeof *vocab)

Test(xent, sums) {
  for (size_t i = 0; i < VOCABS; i++)
    CONFORM(.op = ZG_OP_XENT_SUMS, .dims = vocab[i].dims, .ax = "v", .opt = {0, vocab[i].valid},
            .in = {{"bsv"}, {"bs", REAL, 1, 4, NULL}, {"bs", ID, -1, vocab[i].ids - 1, NULL}},
            .out = {{"bs", EXACT}, {"bs", EXACT}}, .tol = XENT_TOL);
}

Test(xent, gradient) {
  for (size_t i = 0; i < VOCABS; i++)
    CONFORM(.op = ZG_OP_XENT_GRAD, .dims = vocab[i].dims, .ax = "v", .opt = {0, vocab[i].valid},
            .in = {{"bsv"},
                   {"bs", REAL, 1, 4, NULL},
                   {"bs", ID, -1, vocab[i].ids - 1, NULL},
                   {"bs", EXACT},
                   {"bs", EXACT}},
            .out = {{"bsv"}}, .tol = XENT_TOL);
}

/* Reductions and products. Tolerances are relative to the largest result; sums of n random terms in f32 are
 * off by about sqrt(n) roundings (6e-8) of the terms' size, and their size relative to the result shrinks as
 * sqrt(n) too. */
#include "tests/unit/kernels/conform.h"

#define SUM_TOL 2e-6

Test(reduce, sum) {
  CONFORM(.op = ZG_OP_SUM, .dims = "b=3 s=17 e=33", .ax = "e", .in = {{"bse"}}, .out = {{"bs"}},
          .tol = SUM_TOL);
  CONFORM(.op = ZG_OP_SUM, .dims = "b=3 s=17 e=33", .ax = "bs", .in = {{"bse"}}, .out = {{"e"}},
          .tol = SUM_TOL);
  CONFORM(.op = ZG_OP_SUM, .dims = "b=5 s=17 e=65", .ax = "s", .in = {{"bse"}}, .out = {{"be"}},
          .tol = SUM_TOL);
  CONFORM(.op = ZG_OP_SUM, .dims = "b=3 s=17 e=5", .ax = "bse", .in = {{"bse"}}, .out = {{""}},
          .tol = SUM_TOL);
  CONFORM(.op = ZG_OP_SUM, .dims = "b=3 s=70 e=32", .ax = "bs", .in = {{"bse"}}, .out = {{"e"}},
          .tol = SUM_TOL);
  CONFORM(.op = ZG_OP_SUM, .dims = "b=3 s=4 e=64", .ax = "e", .in = {{"bse"}}, .out = {{"bs"}},
          .tol = SUM_TOL);
  CONFORM(.op = ZG_OP_SUM, .dims = "s=2 e=20480", .ax = "e", .in = {{"se"}}, .out = {{"s"}}, .tol = 1e-5);
  CONFORM(.op = ZG_OP_SUM, .dims = "b=1 s=1", .ax = "s", .in = {{"bs"}}, .out = {{"b"}}, .tol = SUM_TOL);
  CONFORM(.op = ZG_OP_SUM, .dims = "s=10007", .ax = "s", .in = {{"s"}}, .out = {{""}}, .tol = 2e-5);
  CONFORM(.op = ZG_OP_SUM, .dims = "s=3001 e=3", .ax = "s", .in = {{"se"}}, .out = {{"e"}}, .tol = 1e-5);
  CONFORM(.op = ZG_OP_SUM, .dims = "b=3 s=2 e=1100", .ax = "s", .in = {{"bse"}}, .out = {{"be"}},
          .tol = SUM_TOL);
  CONFORM(.op = ZG_OP_SUM, .dims = "b=3 s=2 e=1100 c=2", .ax = "se", .in = {{"sbce"}}, .out = {{"bc"}},
          .tol = SUM_TOL);
  CONFORM(.op = ZG_OP_SUM, .dims = "a=4 b=3 c=5 d=7 e=3 f=2", .ax = "fbd", .in = {{"abcdef"}},
          .out = {{"ace"}}, .tol = SUM_TOL);
}

Test(reduce, sum_accumulate) {
  CONFORM(.op = ZG_OP_SUM, .dims = "b=3 s=17 e=33", .ax = "bs", .in = {{"bse"}}, .out = {{"e", EXACT}},
          .accumulate = true, .tol = SUM_TOL);
  CONFORM(.op = ZG_OP_SUM, .dims = "b=700 s=17 e=3", .ax = "bs", .in = {{"bse"}}, .out = {{"e", EXACT}},
          .accumulate = true, .tol = 1e-5);
  CONFORM(.op = ZG_OP_SUM, .dims = "b=3 s=5", .ax = "s", .in = {{"bs"}}, .out = {{"b"}}, .accumulate = true,
          .tol = SUM_TOL);
}

Test(reduce, peak) { /* exact */
  CONFORM(.op = ZG_OP_PEAK, .dims = "b=3 s=17 v=65", .ax = "v", .in = {{"bsv"}}, .out = {{"bs"}});
  CONFORM(.op = ZG_OP_PEAK, .dims = "b=3 s=17 v=33", .ax = "sb", .in = {{"bsv"}}, .out = {{"v"}});
  CONFORM(.op = ZG_OP_PEAK, .dims = "b=3 v=5000", .ax = "vb", .in = {{"bv"}}, .out = {{""}});
  /* negative everywhere: a start value of 0 would show */
  CONFORM(.op = ZG_OP_PEAK, .dims = "b=3 v=33", .ax = "v", .in = {{"bv", REAL, -9, -8, NULL}},
          .out = {{"b"}});
}

/* Only entries below opt[1] of the whole axis count; the second half of an axis of 66 with 50, the fourth
 * quarter of
 * 128 with 97, a part that is all padding. */
Test(reduce, peak_valid) {
  CONFORM(.op = ZG_OP_PEAK, .dims = "b=5 v=64", .ax = "v", .opt = {0, 61}, .in = {{"bv"}}, .out = {{"b"}});
  CONFORM(.op = ZG_OP_PEAK, .dims = "b=5 v=33@33/66", .ax = "v", .opt = {0, 50}, .in = {{"bv"}},
          .out = {{"b"}});
  CONFORM(.op = ZG_OP_PEAK, .dims = "b=5 s=3 v=32@96/128", .ax = "v", .opt = {0, 97}, .in = {{"bsv"}},
          .out = {{"bs"}});
  CONFORM(.op = ZG_OP_PEAK, .dims = "b=5 v=32@0/128", .ax = "v", .opt = {0, 97}, .in = {{"bv"}},
          .out = {{"b"}});
  CONFORM(.op = ZG_OP_PEAK, .dims = "b=5 v=32@96/128", .ax = "v", .opt = {0, 80}, .in = {{"bv"}},
          .out = {{"b"}});
}

#define DOT_TOL 3e-6

Test(dot, linear) {
  CONFORM(.op = ZG_OP_DOT, .dims = "b=3 s=17 e=33 f=5", .ax = "e", .in = {{"bse"}, {"ef"}}, .out = {{"bsf"}},
          .tol = DOT_TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "b=1 s=1 e=64 f=65", .ax = "e", .in = {{"bse"}, {"fe"}}, .out = {{"bsf"}},
          .tol = DOT_TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "b=3 s=5 e=17 h=3 d=8", .ax = "e", .in = {{"bse"}, {"ehd"}},
          .out = {{"bshd"}}, .tol = DOT_TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "b=3 s=5 e=17 h=3 d=8", .ax = "hd", .in = {{"bshd"}, {"hde"}},
          .out = {{"bse"}}, .tol = DOT_TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "b=3 s=5 e=16 k=2 g=3 d=4", .ax = "kgd", .in = {{"bskgd"}, {"kgde"}},
          .out = {{"bse"}}, .tol = DOT_TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "b=1 e=1 f=1", .ax = "e", .in = {{"be"}, {"ef"}}, .out = {{"bf"}},
          .tol = DOT_TOL);
}

Test(dot, weight_gradient) {
  CONFORM(.op = ZG_OP_DOT, .dims = "b=3 s=17 e=33 f=5", .ax = "bs", .in = {{"bse"}, {"bsf"}},
          .out = {{"ef", EXACT}}, .accumulate = true, .tol = DOT_TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "b=3 s=17 e=5 f=33", .ax = "bs", .in = {{"bse"}, {"bsf"}},
          .out = {{"fe", EXACT}}, .accumulate = true, .tol = DOT_TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "b=3 s=17 e=17 h=3 d=5", .ax = "bs", .in = {{"bshd"}, {"bse"}},
          .out = {{"ehd", EXACT}}, .accumulate = true, .tol = DOT_TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "b=2 s=5 e=3 f=3", .ax = "bs", .in = {{"bse"}, {"bsf"}}, .out = {{"ef"}},
          .accumulate = true, .tol = DOT_TOL);
}

Test(dot, batched) {
  CONFORM(.op = ZG_OP_DOT, .dims = "b=3 h=5 s=17 t=3 d=8", .ax = "d", .in = {{"bhsd"}, {"bhtd"}},
          .out = {{"bhst"}}, .tol = DOT_TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "b=3 h=5 s=17 t=3 d=8", .ax = "d", .in = {{"bshd"}, {"bthd"}},
          .out = {{"sbth"}}, .tol = DOT_TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "b=3 s=17 e=33", .ax = "e", .in = {{"bse"}, {"bse"}}, .out = {{"bs"}},
          .tol = DOT_TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "b=3 s=17 e=33", .ax = "bs", .in = {{"bse"}, {"bse"}},
          .out = {{"e", EXACT}}, .accumulate = true, .tol = DOT_TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "b=3 s=17", .ax = "bs", .in = {{"bs"}, {"sb"}}, .out = {{""}},
          .tol = DOT_TOL);
}

Test(dot, vectors_and_outer) {
  CONFORM(.op = ZG_OP_DOT, .dims = "e=65 f=33", .ax = "e", .in = {{"e"}, {"ef"}}, .out = {{"f"}},
          .tol = DOT_TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "e=65 f=33", .ax = "e", .in = {{"fe"}, {"e"}}, .out = {{"f"}},
          .tol = DOT_TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "a=5 b=33", .in = {{"a"}, {"b"}}, .out = {{"ab"}}, .tol = DOT_TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "a=3 b=17 c=5", .in = {{"ab"}, {"bc"}}, .out = {{"abc"}}, .tol = DOT_TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "a=3", .in = {{"a"}, {""}}, .out = {{"a"}}, .tol = DOT_TOL);
}

/* Past the edges of the tiles of a blocked product, and of long sums. */
Test(dot, beyond_tiles) {
  CONFORM(.op = ZG_OP_DOT, .dims = "m=259 n=3 k=5", .ax = "k", .in = {{"mk"}, {"kn"}}, .out = {{"mn"}},
          .tol = DOT_TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "m=3 n=261 k=7", .ax = "k", .in = {{"mk"}, {"kn"}}, .out = {{"mn"}},
          .tol = DOT_TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "m=5 n=3 k=1037", .ax = "k", .in = {{"mk"}, {"kn"}}, .out = {{"mn"}},
          .tol = 2e-5);
  CONFORM(.op = ZG_OP_DOT, .dims = "m=5 n=9 j=43 k=29", .ax = "kj", .in = {{"jmk"}, {"kjn"}},
          .out = {{"mn", EXACT}}, .accumulate = true, .tol = 2e-5);
  CONFORM(.op = ZG_OP_DOT, .dims = "m=19 p=17 n=5 k=7", .ax = "k", .in = {{"mpk"}, {"kn"}},
          .out = {{"pmn", EXACT}}, .accumulate = true, .tol = DOT_TOL); /* by panels */
  CONFORM(.op = ZG_OP_DOT, .dims = "m=5 n=19 q=17 k=7", .ax = "k", .in = {{"mk"}, {"knq"}},
          .out = {{"mqn", EXACT}}, .accumulate = true, .tol = DOT_TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "m=50 n=40 k=33", .ax = "k", .in = {{"mk"}, {"kn"}}, .out = {{"mn"}},
          .tol = DOT_TOL);
}

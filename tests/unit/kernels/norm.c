/* Ops along one axis: cumsum, softmax, normalize, rope. */
#include "tests/unit/kernels/conform.h"

#define TOL 2e-6 /* one pass of exp or of a mean over at most 1104 terms, some roundings */

static const char *const dims[] = {"b=3 s=17 e=33", "b=1 s=1 e=1",    "b=5 s=3 e=64",  "b=2 s=3 e=130",
                                   "b=64 s=1 e=5",  "b=2 s=1 e=1104", "b=1 s=2 e=1051"};
#define EACH_DIMS for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)

/* Relative to the largest sum. The axis is the fastest, the slowest and one between; starts at an offset of
 * the whole. */
Test(norm, cumsum) {
  for (int reverse = 0; reverse < 2; reverse++) {
    static const char *const ax[] = {"b", "s", "e"};
    for (int a = 0; a < 3; a++)
      EACH_DIMS CONFORM(.op = ZG_OP_CUMSUM, .dims = dims[i], .ax = ax[a], .opt = {reverse}, .in = {{"bse"}},
                        .out = {{"bse"}}, .tol = TOL);
    CONFORM(.op = ZG_OP_CUMSUM, .dims = "s=7@14/28 e=70", .ax = "e", .opt = {reverse}, .in = {{"se"}},
            .out = {{"es"}}, .tol = TOL);
    CONFORM(.op = ZG_OP_CUMSUM, .dims = "e=1051", .ax = "e", .opt = {reverse},
            .in = {{"e", REAL, 1, 2, NULL}}, .out = {{"e"}}, .tol = TOL);
    CONFORM(.op = ZG_OP_CUMSUM, .dims = "b=2 e=0", .ax = "e", .opt = {reverse}, .in = {{"be"}},
            .out = {{"be"}}, .tol = TOL);
  }
}

Test(norm, softmax) {
  EACH_DIMS CONFORM(.op = ZG_OP_SOFTMAX, .dims = dims[i], .ax = "e", .in = {{"bse"}}, .out = {{"bse"}},
                    .tol = TOL);
  CONFORM(.op = ZG_OP_SOFTMAX, .dims = "b=5 e=33", .ax = "e", .in = {{"be", REAL, 80, 120, NULL}},
          .out = {{"be"}}, .tol = 1e-5);
  CONFORM(.op = ZG_OP_SOFTMAX, .dims = "b=5 e=33", .ax = "e", .in = {{"be", REAL, -400, 400, NULL}},
          .out = {{"be"}}, .tol = 1e-5);
  CONFORM(.op = ZG_OP_SOFTMAX, .dims = "b=5 e=9 c=7", .ax = "e", .in = {{"bec"}}, .out = {{"bec"}},
          .tol = TOL);
}

Test(norm, softmax_grad) {
  EACH_DIMS CONFORM(.op = ZG_OP_SOFTMAX_GRAD, .dims = dims[i], .ax = "e",
                    .in = {{"bse"}, {"bse", REAL, 0, 1, NULL}}, .out = {{"bse"}}, .tol = TOL);
}

Test(norm, normalize) {
  for (int mode = 0; mode < 2; mode++) {
    EACH_DIMS CONFORM(.op = ZG_OP_NORMALIZE, .dims = dims[i], .ax = "e", .opt = {mode}, .num = {1e-5},
                      .in = {{"bse"}}, .out = {{"bse"}, {"bs", EXACT}}, .tol = TOL);
    /* a large eps must count; small inputs too */
    CONFORM(.op = ZG_OP_NORMALIZE, .dims = "b=3 e=17", .ax = "e", .opt = {mode}, .num = {0.5},
            .in = {{"be", REAL, -0.1, 0.1, NULL}}, .out = {{"be"}, {"b", EXACT}}, .tol = TOL);
  }
  /* a mean of ten deviations: the squares must be taken about the mean. The inputs' own rounding in f32 sums
   * counts. */
  CONFORM(.op = ZG_OP_NORMALIZE, .dims = "b=5 e=65", .ax = "e", .opt = {1}, .num = {1e-5},
          .in = {{"be", REAL, 9, 11, NULL}}, .out = {{"be"}, {"b", EXACT}}, .tol = 2e-5);
}

Test(norm, normalize_grad) {
  for (int mode = 0; mode < 2; mode++)
    EACH_DIMS CONFORM(.op = ZG_OP_NORMALIZE_GRAD, .dims = dims[i], .ax = "e", .opt = {mode}, .num = {1e-5},
                      .in = {{"bse"}, {"bse"}, {"bs", EXACT, 0.5, 2, NULL}}, .out = {{"bse"}}, .tol = TOL);
}

/* Angles are positions in f32: at position 4000 and frequency 1 the angle's own rounding would be 2e-4, so
 * the kernel must reduce it in more than f32 to stay within this. */
#define ROPE_TOL 1e-6

Test(norm, rope) {
  for (int inverse = 0; inverse < 2; inverse++) {
    CONFORM(.op = ZG_OP_ROPE, .dims = "b=3 s=17 h=2 d=8", .ax = "sd", .num = {10000}, .opt = {inverse},
            .in = {{"bshd"}}, .out = {{"bshd"}}, .tol = ROPE_TOL);
    CONFORM(.op = ZG_OP_ROPE, .dims = "s=1 d=2", .ax = "sd", .num = {10000}, .opt = {inverse}, .in = {{"sd"}},
            .out = {{"sd"}}, .tol = ROPE_TOL);
    CONFORM(.op = ZG_OP_ROPE, .dims = "b=1 s=64@4000/8192 k=2 g=3 d=6", .ax = "sd", .num = {500000},
            .opt = {inverse}, .in = {{"bskgd"}}, .out = {{"bskgd"}}, .tol = ROPE_TOL);
    CONFORM(.op = ZG_OP_ROPE, .dims = "b=2 s=5 h=3 d=32", .ax = "sd", .num = {10000}, .opt = {inverse},
            .in = {{"bshd"}}, .out = {{"bhsd"}}, .tol = ROPE_TOL);
    CONFORM(.op = ZG_OP_ROPE, .dims = "s=5@3/8 d=66", .ax = "sd", .num = {10000}, .opt = {inverse},
            .in = {{"sd"}}, .out = {{"sd"}}, .tol = ROPE_TOL);
  }
}

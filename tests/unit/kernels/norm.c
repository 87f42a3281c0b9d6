/* Ops along one axis: cumsum, softmax, normalize, rope, rotate. */
#include <math.h>

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
    CONFORM(.op = ZG_OP_CUMSUM, .dims = "b=3 s=5 e=300", .ax = "s", .opt = {reverse}, .in = {{"bse"}},
            .out = {{"bse"}}, .tol = TOL); /* bundles of several rows of b */
    CONFORM(.op = ZG_OP_CUMSUM, .dims = "e=1051", .ax = "e", .opt = {reverse},
            .in = {{"e", REAL, 1, 2, NULL}}, .out = {{"e"}}, .tol = TOL);
    CONFORM(.op = ZG_OP_CUMSUM, .dims = "b=2 e=0", .ax = "e", .opt = {reverse}, .in = {{"be"}},
            .out = {{"be"}}, .tol = TOL);
  }
}

/* Factors up to 1.2: rows of 1104 elements would grow. Some lack axes of the terms. */
Test(norm, scan) {
  static const struct {
    const char *dims, *a, *b;
  } cases[] = {
      {"b=3 s=17 e=33", "bse", "bse"}, {"b=1 s=1 e=1", "bse", "bse"}, {"b=2 s=70 e=300", "be", "bse"},
      {"b=2 s=1104 e=1", "bs", "bse"}, {"b=5 s=40 e=7", "e", "bse"},  {"b=3 s=70 e=5", "", "bes"},
      {"b=3 s=33 e=40", "bs", "bes"},  {"b=2 s=0 e=3", "bse", "bse"}, {"b=2 s=7@14/28 e=9", "se", "bse"}};
  for (int kind = 0; kind < 4; kind++)
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
      CONFORM(.op = ZG_OP_SCAN, .dims = cases[i].dims, .ax = "s", .opt = {kind & 1, kind >> 1},
              .in = {{cases[i].a, REAL, -1, i ? 1 : 1.2, NULL}, {cases[i].b}}, .out = {{cases[i].b}},
              .tol = TOL);
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

/* Entries from opt[1] on were added to the axis: they count as nothing, and are 0. */
Test(norm, softmax_of_a_padded_axis) {
  static const int valid[] = {1, 8, 23, 32, 33};
  for (int i = 0; i < 5; i++) {
    CONFORM(.op = ZG_OP_SOFTMAX, .dims = "b=5 e=33", .ax = "e", .opt = {0, valid[i]}, .in = {{"be"}},
            .out = {{"be"}}, .tol = TOL);
    CONFORM(.op = ZG_OP_SOFTMAX, .dims = "b=3 e=40 c=7", .ax = "e", .opt = {0, valid[i]}, .in = {{"bec"}},
            .out = {{"bec"}}, .tol = TOL);
  }
  CONFORM(.op = ZG_OP_SOFTMAX, .dims = "b=2 e=2048", .ax = "e", .opt = {0, 2001}, .in = {{"be"}},
          .out = {{"be"}}, .tol = TOL);
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

/* Positions and speeds as tensors, in all forms: pairs of halves and of neighbours, all features or the
 * first, back. */
Test(norm, rotate) {
  for (int form = 0; form < 4; form++) {
    CONFORM(.op = ZG_OP_ROTATE, .dims = "b=3 s=17 h=2 d=8", .ax = "d", .num = {1}, .opt = {form, 8},
            .in = {{"bshd"}, {"s", EXACT, 0, 5000, NULL}, {"d", EXACT, 0, 1, NULL}}, .out = {{"bshd"}},
            .tol = ROPE_TOL);
    CONFORM(.op = ZG_OP_ROTATE, .dims = "b=3 s=9 h=2 d=10", .ax = "d", .num = {1.25}, .opt = {form, 6},
            .in = {{"bshd"}, {"bs", EXACT, -90, 90, NULL}, {"d", EXACT, 0, 1, NULL}}, .out = {{"bhsd"}},
            .tol = ROPE_TOL);
    CONFORM(.op = ZG_OP_ROTATE, .dims = "b=2 s=5 h=3 d=48", .ax = "d", .num = {1}, .opt = {form, 32},
            .in = {{"bshd"}, {"sb", EXACT, 0, 100, NULL}, {"d", EXACT, 0, 1, NULL}}, .out = {{"bshd"}},
            .tol = ROPE_TOL);
    CONFORM(.op = ZG_OP_ROTATE, .dims = "s=5 d=2", .ax = "d", .num = {0.5}, .opt = {form, 2},
            .in = {{"sd"}, {"", EXACT, 3, 4, NULL}, {"d", EXACT, 0, 1, NULL}}, .out = {{"sd"}},
            .tol = ROPE_TOL);
  }
}

/* The positions of rope, given as a tensor, are those of rope. */
Test(norm, rotate_is_rope) {
  double at[7], speed[6] = {0}, *rope[ZK_MAX_OUT], *turned[ZK_MAX_OUT];
  for (int i = 0; i < 7; i++) at[i] = i + 4;
  for (int p = 0; p < 3; p++) speed[p] = pow(0.25, p); /* 64^(-2p/6), which f32 holds */
  Case a = {
      .op = ZG_OP_ROPE, .dims = "s=7@4/11 d=6", .ax = "sd", .num = {64}, .in = {{"sd"}}, .out = {{"sd"}}};
  Case b = {
      .op = ZG_OP_ROTATE, .dims = "s=7@4/11 d=6", .ax = "d", .num = {1}, .opt = {0, 6}, .out = {{"sd"}}};
  b.in[0] = a.in[0];
  b.in[1] = (Tensor){"s", EXACT, 0, 0, at};
  b.in[2] = (Tensor){"d", EXACT, 0, 0, speed};
  reference(&a, rope);
  reference(&b, turned);
  for (int i = 0; i < 42; i++)
    EACH_ASSERT(fabs(rope[0][i] - turned[0][i]) <= 1e-12, "element %d: %.17g, %.17g", i, rope[0][i],
                turned[0][i]);
  free(rope[0]);
  free(turned[0]);
}

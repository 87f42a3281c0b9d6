/* Pointwise calls, and values made from positions. */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "tests/unit/kernels/conform.h"

#define POINTWISE(n_out, outs, ...)                                                                          \
  &(ZkPointwise) {                                                                                           \
    .nops = sizeof((ZkPointwiseOp[]){__VA_ARGS__}) / sizeof(ZkPointwiseOp), .nout = n_out, .out = outs,      \
    .ops = (ZkPointwiseOp[]) {                                                                               \
      __VA_ARGS__                                                                                            \
    }                                                                                                        \
  }
#define OUT(...)                                                                                             \
  { __VA_ARGS__ }

/* ---- functions of one operand over their range, relative to each result -----------------------------------
 * f32 has 24 bits: 6e-8 is one rounding. The vectorised functions promise a few units in the last place;
 * `floor` is what cancellation may leave where a result is nearly 0. */
static void sweep(int op, double lo, double hi, double tol, double floor) {
  enum { N = 4099 };
  float *x = memory_new(N * sizeof *x), *y = memory_new(N * sizeof *y);
  ZkPointwise pointwise = {.nops = 1, .nout = 1, .out = {1}, .ops = (ZkPointwiseOp[]){{.op = (uint16_t)op}}};
  ZkCall call = {.op = ZG_OP_POINTWISE, .nin = 1, .nout = 1, .pointwise = &pointwise};
  ZkView v = {.data = x, .elem = ZK_F32, .rank = 1, .axis = {1}, .size = {N}, .stride = {1}, .whole = {N}};
  for (int i = 0; i < N; i++) x[i] = (float)(lo + (hi - lo) * i / (N - 1));
  call.in[0] = call.out[0] = v;
  call.out[0].data = y;
  run_call(&call, 0);
  for (int i = 0; i < N; i++) {
    double in = x[i], want;
    ZkCall one = {.op = (uint16_t)op,
                  .nin = 1,
                  .nout = 1,
                  .in = {{.data = &in, .elem = ZK_F64}},
                  .out = {{.data = &want, .elem = ZK_F64}}};
    zk_ref_run(&(ZkEnv){0}, &one);
    EACH_ASSERT(y[i] == (float)want || fabs(y[i] - want) <= tol * fabs(want) + floor,
                "%s(%.9g) = %.9g, not %.9g", zg_op_info[op].text, in, (double)y[i], want);
  }
  memory_free(x), memory_free(y);
}

Test(ew, exp) {
  sweep(ZG_OP_EXP, -87, 88, 3e-7, 0);
  sweep(ZG_OP_EXP, -1, 1, 2e-7, 0);
  sweep(ZG_OP_EXP, -300, -88, 1e-6, 1.2e-38); /* below the normal numbers: may be 0 */
  sweep(ZG_OP_EXP, 89, 200, 0, 0);            /* infinity */
}
Test(ew, log) {
  sweep(ZG_OP_LOG, 1e-3, 100, 3e-7, 0);
  sweep(ZG_OP_LOG, 0.9, 1.1, 3e-7, 0);
  sweep(ZG_OP_LOG, 1e-38, 1e-36, 3e-7, 0);
  sweep(ZG_OP_LOG, 0, 0, 0, 0);
}
Test(ew, roots) {
  sweep(ZG_OP_SQRT, 0, 1000, 1.2e-7, 0);
  sweep(ZG_OP_RSQRT, 1e-6, 1000, 2.4e-7, 0); /* two roundings */
}
Test(ew, tanh) {
  sweep(ZG_OP_TANH, -1e-3, 1e-3, 3e-7, 0);
  sweep(ZG_OP_TANH, -12, 12, 3e-7, 0);
  sweep(ZG_OP_TANH, -1000, 1000, 3e-7, 0);
}
Test(ew, erf) {
  sweep(ZG_OP_ERF, -1e-3, 1e-3, 3e-7, 0);
  sweep(ZG_OP_ERF, -5, 5, 3e-7, 0);
  sweep(ZG_OP_ERF, -1000, 1000, 3e-7, 0);
}
Test(ew, sines) {
  sweep(ZG_OP_SIN, -10, 10, 2e-7, 1e-7);
  sweep(ZG_OP_COS, -10, 10, 2e-7, 1e-7);
  sweep(ZG_OP_SIN, 1e4, 2e6, 2e-7, 1e-7);
  sweep(ZG_OP_COS, 1e4, 2e6, 2e-7, 1e-7);
}

Test(ew, sign) {
  sweep(ZG_OP_SIGN, -2, 2, 0, 0);
  sweep(ZG_OP_SIGN, 0, 0, 0, 0);
}

Test(ew, abs) {
  sweep(ZG_OP_ABS, -3, 3, 0, 0);
  sweep(ZG_OP_ABS, 0, 0, 0, 0);
}

Test(ew, floor) {
  sweep(ZG_OP_FLOOR, -5, 5, 0, 0);
  sweep(ZG_OP_FLOOR, -2049, 2049, 0, 0); /* whole numbers */
  sweep(ZG_OP_FLOOR, -1e9, 1e9, 0, 0);   /* beyond those that have halves */
}

Test(ew, sigmoid) {
  sweep(ZG_OP_SIGMOID, -20, 20, 3e-7, 0);
  sweep(ZG_OP_SIGMOID, -200, -86, 3e-7, 1.2e-38); /* where e^-x overflows, 0 */
  sweep(ZG_OP_SIGMOID, 20, 1000, 3e-7, 0);
}

Test(ew, log1p) {
  sweep(ZG_OP_LOG1P, -0.99, 100, 4e-7, 0);
  sweep(ZG_OP_LOG1P, -1e-3, 1e-3, 4e-7, 0);
  sweep(ZG_OP_LOG1P, 1e-30, 1e-8, 4e-7, 0);
  sweep(ZG_OP_LOG1P, 1e6, 1e38, 4e-7, 0);
  sweep(ZG_OP_LOG1P, -1, -1, 0, 0);
  sweep(ZG_OP_LOG1P, 1e39, 1e40, 0, 0); /* infinity */
}

/* ---- single ops with broadcasting; tolerance: a rounding or two ---------------------------------------- */
#define EW_TOL 3e-7

Test(ew, binary) {
  static const int ops[] = {ZG_OP_ADD, ZG_OP_SUB, ZG_OP_MUL, ZG_OP_DIV, ZG_OP_MAX, ZG_OP_MIN};
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
    ZkPointwise pointwise = {
        .nops = 1, .nout = 1, .out = {2}, .ops = (ZkPointwiseOp[]){{.op = (uint16_t)ops[i], .a = 0, .b = 1}}};
    Tensor b = {"bse", REAL, 0.5, 2, NULL};
    CONFORM(.op = ZG_OP_POINTWISE, .dims = "b=3 s=17 e=33", .in = {{"bse"}, b}, .out = {{"bse"}},
            .pointwise = &pointwise, .tol = EW_TOL);
    b.axes = "e";
    CONFORM(.op = ZG_OP_POINTWISE, .dims = "b=3 s=17 e=33", .in = {{"bse"}, b}, .out = {{"bse"}},
            .pointwise = &pointwise, .tol = EW_TOL);
    b.axes = "b";
    CONFORM(.op = ZG_OP_POINTWISE, .dims = "b=64 s=5 e=1", .in = {{"bse"}, b}, .out = {{"bse"}},
            .pointwise = &pointwise, .tol = EW_TOL);
    b.axes = "";
    CONFORM(.op = ZG_OP_POINTWISE, .dims = "b=2 s=1031", .in = {{"bs"}, b}, .out = {{"bs"}},
            .pointwise = &pointwise, .tol = EW_TOL);
    b.axes = "be";
    CONFORM(.op = ZG_OP_POINTWISE, .dims = "b=5 s=3 e=5 f=7", .in = {{"sef"}, b}, .out = {{"bsef"}},
            .pointwise = &pointwise, .tol = EW_TOL);
    b.axes = "";
    CONFORM(.op = ZG_OP_POINTWISE, .dims = "", .in = {{""}, b}, .out = {{""}}, .pointwise = &pointwise,
            .tol = EW_TOL);
  }
}

Test(ew, pow) {
  const ZkPointwise pointwise = {
      .nops = 1, .nout = 1, .out = {2}, .ops = (ZkPointwiseOp[]){{.op = ZG_OP_POW, .a = 0, .b = 1}}};
  Tensor a = {"bse", REAL, 0.25, 4, NULL}, b = {"bse", REAL, -3, 3, NULL};
  CONFORM(.op = ZG_OP_POINTWISE, .dims = "b=3 s=17 e=33", .in = {a, b}, .out = {{"bse"}},
          .pointwise = &pointwise, .tol = EW_TOL);
  b.axes = "e";
  CONFORM(.op = ZG_OP_POINTWISE, .dims = "b=3 s=17 e=33", .in = {a, b}, .out = {{"bse"}},
          .pointwise = &pointwise, .tol = EW_TOL);
  a.axes = "";
  CONFORM(.op = ZG_OP_POINTWISE, .dims = "s=5 e=33", .in = {a, {"se"}}, .out = {{"se"}},
          .pointwise = &pointwise, .tol = EW_TOL);
  CONFORM(.op = ZG_OP_POINTWISE, .dims = "b=3 s=65", .in = {{"bs", REAL, -4, 4}, {"s", ID, 0, 5}},
          .out = {{"bs"}}, .pointwise = &pointwise, .tol = EW_TOL);
}

/* Values on a coarse grid, so that equality happens and no comparison hangs on a rounding. */
Test(ew, comparisons) {
  double grid[3 * 65];
  for (int i = 0; i < 3 * 65; i++) grid[i] = (double)(zb_random_u64(1, 2, (uint64_t)i) % 5) - 2;
  CONFORM(.op = ZG_OP_POINTWISE, .dims = "b=3 s=65", .in = {{"bs", .value = grid}, {"s", ID, -2, 2}},
          .out = {{"bs"}, {"bs"}},
          .pointwise = POINTWISE(2, OUT(2, 3), {.op = ZG_OP_LESS, .a = 0, .b = 1},
                                 {.op = ZG_OP_EQUAL, .a = 0, .b = 1}));
  CONFORM(.op = ZG_OP_POINTWISE, .dims = "b=3 s=65", .in = {{"bs", .value = grid}, {"s"}, {"b"}},
          .out = {{"bs"}}, .pointwise = POINTWISE(1, OUT(3), {.op = ZG_OP_SELECT, .a = 0, .b = 1, .c = 2}));
  CONFORM(.op = ZG_OP_POINTWISE, .dims = "b=3 s=65", .in = {{"bs", ID, -1, 2}, {"bs"}},
          .out = {{"bs"}, {"bs"}},
          .pointwise =
              POINTWISE(2, OUT(2, 3), {.op = ZG_OP_KNOWN, .a = 0}, {.op = ZG_OP_MUL, .a = 1, .b = 2}));
}

Test(ew, casts) { /* of an operand: rounding what is already rounded differently would be off by one place */
  CONFORM(.op = ZG_OP_POINTWISE, .dims = "b=3 s=65", .in = {{"bs", EXACT}},
          .out = {{"bs", EXACT}, {"bs", EXACT}, {"bs", EXACT}},
          .pointwise = POINTWISE(3, OUT(1, 2, 3), {.op = ZG_OP_CAST, .a = 0, .elem = ZK_BF16},
                                 {.op = ZG_OP_CAST, .a = 0, .elem = ZK_F32}, {.op = ZG_OP_STOP, .a = 0}));
  CONFORM(.op = ZG_OP_POINTWISE, .dims = "s=65", .in = {{"s", EXACT, -9, 9}}, .out = {{"s", ID}},
          .pointwise = POINTWISE(1, OUT(1), {.op = ZG_OP_CAST, .a = 0, .elem = ZK_I32}));
}

/* ---- real pointwise functions; tolerance: some roundings ----------------------------------------------- */
#define POINTWISE_TOL 2e-6

/* 0.5 x (1 + tanh(k (x + 0.044715 x^3))) + bias, and the sum under the tanh */
Test(ew, gelu) {
  CONFORM(.op = ZG_OP_POINTWISE, .dims = "b=2 s=17 f=65", .in = {{"bsf"}, {"f"}}, .out = {{"bsf"}, {"bsf"}},
          .tol = POINTWISE_TOL,
          .pointwise = POINTWISE(2, OUT(14, 8), {.op = ZG_OP_MUL, .a = 0, .b = 0},
                                 {.op = ZG_OP_MUL, .a = 2, .b = 0}, {.op = ZG_OP_FILL, .num = 0.044715f},
                                 {.op = ZG_OP_MUL, .a = 3, .b = 4}, {.op = ZG_OP_ADD, .a = 0, .b = 5},
                                 {.op = ZG_OP_FILL, .num = 0.79788456f}, {.op = ZG_OP_MUL, .a = 6, .b = 7},
                                 {.op = ZG_OP_TANH, .a = 8}, {.op = ZG_OP_FILL, .num = 1},
                                 {.op = ZG_OP_ADD, .a = 9, .b = 10}, {.op = ZG_OP_MUL, .a = 11, .b = 0},
                                 {.op = ZG_OP_FILL, .num = 0.5f}, {.op = ZG_OP_MUL, .a = 12, .b = 13}));
}

/* The gradient of silu times up: four operands, three results, one of them an intermediate */
Test(ew, swiglu_grad) {
  CONFORM(.op = ZG_OP_POINTWISE, .dims = "b=3 s=5 f=130", .in = {{"bsf"}, {"bsf"}, {"bsf"}, {"bs"}},
          .out = {{"bsf"}, {"bsf"}, {"bsf"}}, .tol = POINTWISE_TOL,
          .pointwise = POINTWISE(3, OUT(15, 9, 8), {.op = ZG_OP_NEG, .a = 0}, {.op = ZG_OP_EXP, .a = 4},
                                 {.op = ZG_OP_FILL, .num = 1}, {.op = ZG_OP_ADD, .a = 5, .b = 6},
                                 {.op = ZG_OP_DIV, .a = 6, .b = 7}, /* sigmoid */
                                 {.op = ZG_OP_MUL, .a = 0, .b = 8}, {.op = ZG_OP_MUL, .a = 2, .b = 3},
                                 {.op = ZG_OP_SUB, .a = 6, .b = 8}, {.op = ZG_OP_MUL, .a = 9, .b = 11},
                                 {.op = ZG_OP_ADD, .a = 12, .b = 8}, {.op = ZG_OP_MUL, .a = 10, .b = 1},
                                 {.op = ZG_OP_MUL, .a = 13, .b = 14}));
}

Test(ew, edges) {
  /* no operands; the same register twice; an operand as a result; a register nobody reads */
  CONFORM(.op = ZG_OP_POINTWISE, .dims = "b=3 s=33", .out = {{"bs"}, {"bs"}},
          .pointwise =
              POINTWISE(2, OUT(0, 1), {.op = ZG_OP_FILL, .num = 2.5f}, {.op = ZG_OP_AXSIZE, .num = 33}));
  CONFORM(.op = ZG_OP_POINTWISE, .dims = "b=3 s=700", .in = {{"bs"}, {"b"}},
          .out = {{"bs"}, {"bs"}, {"bs"}, {"bs"}}, .tol = EW_TOL,
          .pointwise =
              POINTWISE(4, OUT(3, 3, 0, 1), {.op = ZG_OP_EXP, .a = 0}, {.op = ZG_OP_ADD, .a = 0, .b = 1}));
  CONFORM(.op = ZG_OP_POINTWISE, .dims = "b=3 s=65 e=5", .in = {{"b"}, {"e"}, {""}},
          .out = {{"bse"}, {"bse"}}, .tol = EW_TOL,
          .pointwise =
              POINTWISE(2, OUT(6, 5), {.op = ZG_OP_BROADCAST, .a = 0}, {.op = ZG_OP_MUL, .a = 2, .b = 2},
                        {.op = ZG_OP_MUL, .a = 0, .b = 1}, {.op = ZG_OP_ADD, .a = 5, .b = 4}));
  /* casts of constants, which are made once */
  CONFORM(.op = ZG_OP_POINTWISE, .dims = "b=3 s=33", .out = {{"bs"}, {"bs"}, {"bs"}},
          .pointwise = POINTWISE(
              3, OUT(2, 3, 4), {.op = ZG_OP_FILL, .num = 1.1f}, {.op = ZG_OP_FILL, .num = -2.7f},
              {.op = ZG_OP_CAST, .a = 0, .elem = ZK_BF16}, {.op = ZG_OP_CAST, .a = 1, .elem = ZK_I32},
              {.op = ZG_OP_CAST, .a = 0, .elem = ZK_F32}));
  CONFORM(.op = ZG_OP_POINTWISE, .dims = "s=0 b=3", .in = {{"bs"}}, .out = {{"bs"}},
          .pointwise = POINTWISE(1, OUT(1), {.op = ZG_OP_NEG, .a = 0}));
}

/* Twelve operands with every subset of three axes, and as many ops as fit. */
Test(ew, long_pointwise) {
  ZkPointwiseOp ops[ZK_POINTWISE_MAX_OPS];
  ZkPointwise pointwise = {.nops = ZK_POINTWISE_MAX_OPS, .nout = 4, .out = {75, 40, 12, 60}, .ops = ops};
  for (int i = 0; i < ZK_POINTWISE_MAX_OPS;
       i++) { /* averages of the register before and another: stay moderate */
    uint16_t other = (uint16_t)(zb_random_u64(5, 5, (uint64_t)i) % (uint64_t)(12 + i));
    ops[i] = i % 4 == 3 ? (ZkPointwiseOp){.op = ZG_OP_TANH, .a = (uint16_t)(11 + i)}
                        : (ZkPointwiseOp){.op = (uint16_t)(i % 4 == 1 ? ZG_OP_SUB : ZG_OP_ADD),
                                          .a = (uint16_t)(11 + i),
                                          .b = other};
  }
  CONFORM(.op = ZG_OP_POINTWISE, .dims = "b=3 s=17 e=33",
          .in = {{"bse"},
                 {"bs"},
                 {"be"},
                 {"se"},
                 {"b"},
                 {"s"},
                 {"e"},
                 {""},
                 {"bse", ID, -3, 3},
                 {"es"},
                 {"seb"},
                 {"b", ID, 0, 4}},
          .out = {{"bse"}, {"bse"}, {"bse"}, {"bse"}}, .pointwise = &pointwise,
          .tol = 1e-5); /* 64 roundings */
}

/* An output may share memory with an operand that lies alike, even if it is made before the operand is last
 * read. */
Test(ew, in_place) {
  enum { N = 1500 };
  static float old[N];
  float *x = memory_new(sizeof old), *y = memory_new(sizeof old);
  for (int i = 0; i < N; i++) x[i] = old[i] = (float)zb_random_normal(1, 1, (uint64_t)i);
  ZkView v = {.data = x, .elem = ZK_F32, .rank = 1, .axis = {1}, .size = {N}, .stride = {1}, .whole = {N}};
  ZkView w = v;
  w.data = y;
  ZkCall call = {.op = ZG_OP_POINTWISE,
                 .nin = 1,
                 .nout = 2,
                 .in = {v},
                 .out = {v, w},
                 .pointwise = POINTWISE(2, OUT(1, 2), {.op = ZG_OP_MUL, .a = 0, .b = 0},
                                        {.op = ZG_OP_ADD, .a = 1, .b = 0})};
  run_call(&call, backend.ways - 1);
  for (int i = 0; i < N; i++) {
    double square = (double)old[i] * (double)old[i];
    EACH_ASSERT(fabs((double)x[i] - square) <= 1e-6 && fabs((double)y[i] - square - (double)old[i]) <= 1e-6,
                "%.9g became %.9g and %.9g", (double)old[i], (double)x[i], (double)y[i]);
  }
  memory_free(x), memory_free(y);
}

/* ---- values made from positions: exact ----------------------------------------------------------------- */
Test(ew, position) {
  CONFORM(.op = ZG_OP_POSITION, .dims = "s=17", .ax = "sp", .out = {{"s", ID}});
  CONFORM(.op = ZG_OP_POSITION, .dims = "s=32@64/128", .ax = "sp", .out = {{"s", ID}});
  CONFORM(.op = ZG_OP_POSITION, .dims = "s=32@64/128", .ax = "s", .out = {{"s", ID}});
}

Test(ew, random) {
  CONFORM(.op = ZG_OP_RANDOM, .dims = "b=3 s=65 e=33", .num = {0.9}, .opt = {7}, .out = {{"bse"}});
  CONFORM(.op = ZG_OP_RANDOM, .dims = "b=2@4/8 s=16@16/32 e=33", .num = {0.25}, .opt = {8}, .out = {{"bse"}});
  CONFORM(.op = ZG_OP_RANDOM, .dims = "b=5000", .num = {0}, .out = {{"b"}});
  CONFORM(.op = ZG_OP_RANDOM, .dims = "b=5000", .num = {1}, .out = {{"b"}});
}

/* Numbers of f32, whatever the compute type: exact, and for the normal ones within a rounding of f64's. */
Test(ew, noise) {
  for (int kind = ZG_UNIFORM; kind <= ZG_NORMAL; kind++) {
    double tol = kind == ZG_NORMAL ? 1e-7 : 0;
    CONFORM(.op = ZG_OP_RANDOM, .dims = "b=3 s=65 e=33", .opt = {7, kind}, .out = {{"bse", EXACT}},
            .tol = tol);
    CONFORM(.op = ZG_OP_RANDOM, .dims = "b=2@4/8 s=16@16/32 e=33", .opt = {8, kind}, .out = {{"bse", EXACT}},
            .tol = tol);
    CONFORM(.op = ZG_OP_RANDOM, .dims = "b=5000", .opt = {9, kind}, .out = {{"b", EXACT}}, .tol = tol);
  }
}

/* Mean and variance of 20000 numbers within five standard deviations, and where they may lie. */
Test(ew, noise_is_distributed) {
  for (int kind = ZG_UNIFORM; kind <= ZG_NORMAL; kind++) {
    double *y[ZK_MAX_OUT], sum = 0, square = 0, least = 1, most = 0;
    enum { N = 20000 };
    Case c = {.op = ZG_OP_RANDOM, .dims = "b=20000", .opt = {11, kind}, .out = {{"b", EXACT}}};
    reference(&c, y);
    for (int i = 0; i < N; i++) {
      sum += y[0][i], square += y[0][i] * y[0][i];
      least = fmin(least, y[0][i]), most = fmax(most, y[0][i]);
    }
    double mean = sum / N, var = square / N - mean * mean;
    bool normal = kind == ZG_NORMAL;
    cr_expect_float_eq(mean, normal ? 0 : 0.5, 5 * sqrt((normal ? 1 : 1.0 / 12) / N));
    cr_expect_float_eq(var, normal ? 1 : 1.0 / 12, 5 * sqrt((normal ? 2 : 1.0 / 180) / N));
    if (!normal) cr_expect(least > 0 && most < 1 && least < 1e-3 && most > 0.999);
    free(y[0]);
  }
}

/* A split draws what the whole would: the second half of axis s. */
Test(ew, random_split) {
  double *whole[ZK_MAX_OUT], *part[ZK_MAX_OUT];
  Case all = {.op = ZG_OP_RANDOM, .dims = "b=3 s=16", .num = {0.5}, .opt = {3}, .out = {{"bs"}}};
  Case half = all;
  half.dims = "b=3 s=8@8/16";
  reference(&all, whole);
  reference(&half, part);
  double ones = 0;
  for (int b = 0; b < 3; b++)
    for (int s = 0; s < 8; s++) {
      cr_assert(part[0][b * 8 + s] == whole[0][b * 16 + 8 + s]);
      ones += part[0][b * 8 + s];
    }
  cr_assert(ones > 3 && ones < 21);
  free(whole[0]);
  free(part[0]);
}

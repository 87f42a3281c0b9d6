/* normalize and its gradient with prologues and epilogues: that they compute what the three do one by one. In
 * the emulator they are these three calls, as in builds without NVRTC; norm_text.c runs the programs
 * there. */
#include "tests/unit/breadth.h"
#include "tests/unit/kernels/cuda/norm_fused.h"

#include "kernels/cuda/cuda.h"

#include <math.h>

#define OPS(...)                                                                                             \
  .nops = sizeof((ZkPointwiseOp[]){__VA_ARGS__}) / sizeof(ZkPointwiseOp), .ops = (ZkPointwiseOp[]) {         \
    __VA_ARGS__                                                                                              \
  }

/* y w, y, r: registers 0 and 1 are y and r */
static const ZkPointwise scaled = {.nout = 3, .out = {3, 0, 1}, OPS({.op = ZG_OP_MUL, .a = 0, .b = 2})};
/* y w + b, nobody wants y */
static const ZkPointwise affine = {
    .nout = 2, .out = {5, 1}, OPS({.op = ZG_OP_MUL, .a = 0, .b = 2}, {.op = ZG_OP_ADD, .a = 4, .b = 3})};
/* (y + a) c r and its tanh; a along rows, c for each row, and one value for all, below which y counts as
 * that */
static const ZkPointwise mixed = {.nout = 4,
                                  .out = {8, 9, 0, 1},
                                  OPS({.op = ZG_OP_MAX, .a = 0, .b = 4}, {.op = ZG_OP_ADD, .a = 5, .b = 2},
                                      {.op = ZG_OP_MUL, .a = 6, .b = 3}, {.op = ZG_OP_MUL, .a = 7, .b = 1},
                                      {.op = ZG_OP_TANH, .a = 8})};
/* dx + d: register 0 is dx */
static const ZkPointwise sum = {.nout = 1, .out = {2}, OPS({.op = ZG_OP_ADD, .a = 0, .b = 1})};
/* dx w + d in bf16, and dx */
static const ZkPointwise weighted = {.nout = 2,
                                     .out = {5, 0},
                                     OPS({.op = ZG_OP_MUL, .a = 0, .b = 2}, {.op = ZG_OP_ADD, .a = 3, .b = 1},
                                         {.op = ZG_OP_CAST, .a = 4, .elem = ZK_F32})};

/* a + b is normalized, and kept; y w */
static const ZkPointwise residual = {
    .nout = 4,
    .out = {6, 0, 1, 5},
    .prologue = 1,
    .operand = 5,
    OPS({.op = ZG_OP_ADD, .a = 2, .b = 3}, {.op = ZG_OP_MUL, .a = 0, .b = 4})};
/* a w + 3, which is not 0 where there is nothing; with nothing after it */
static const ZkPointwise shifted = {
    .nout = 2,
    .out = {0, 1},
    .prologue = 3,
    .operand = 6,
    OPS({.op = ZG_OP_FILL, .num = 3}, {.op = ZG_OP_MUL, .a = 2, .b = 3}, {.op = ZG_OP_ADD, .a = 5, .b = 4})};
/* h w is the gradient; h y, kept, and dx + d. Registers: dx, h, w, d, y */
static const ZkPointwise around = {.nout = 2,
                                   .out = {7, 6},
                                   .prologue = 2,
                                   .operand = 5,
                                   OPS({.op = ZG_OP_MUL, .a = 1, .b = 2}, {.op = ZG_OP_MUL, .a = 1, .b = 4},
                                       {.op = ZG_OP_ADD, .a = 0, .b = 3})};
/* The same, but what comes after wants h w + 1 again, and nothing else is kept. */
static const ZkPointwise twice = {.nout = 1,
                                  .out = {8},
                                  .prologue = 3,
                                  .operand = 6,
                                  OPS({.op = ZG_OP_MUL, .a = 1, .b = 2}, {.op = ZG_OP_FILL, .num = 1},
                                      {.op = ZG_OP_ADD, .a = 4, .b = 5}, {.op = ZG_OP_MUL, .a = 6, .b = 3},
                                      {.op = ZG_OP_ADD, .a = 0, .b = 7})};

/* h w is the gradient, h y is summed, and h; dx + d. Registers: dx, h, w, y, d */
static const ZkPointwise both_sums = {.nout = 3,
                                      .out = {7, 6, 1},
                                      .prologue = 2,
                                      .operand = 5,
                                      OPS({.op = ZG_OP_MUL, .a = 1, .b = 2},
                                          {.op = ZG_OP_MUL, .a = 1, .b = 3},
                                          {.op = ZG_OP_ADD, .a = 0, .b = 4})};
/* h + d is the gradient's other part; it is kept, and (h + d) y is summed. Registers: dx, h, w, y, d */
static const ZkPointwise one_sum = {.nout = 3,
                                    .out = {0, 5, 7},
                                    .prologue = 3,
                                    .operand = 6,
                                    OPS({.op = ZG_OP_ADD, .a = 1, .b = 4}, {.op = ZG_OP_MUL, .a = 5, .b = 2},
                                        {.op = ZG_OP_MUL, .a = 5, .b = 3})};
/* d, which is not a part of the gradient, is summed; dx + d. Registers: dx, d */
static const ZkPointwise plain_sum = {.nout = 2, .out = {2, 1}, OPS({.op = ZG_OP_ADD, .a = 0, .b = 1})};

/* Rows of a lane, odd ones, of some lanes, of a warp, of small and large blocks, and too long for registers.
 * Tolerances are those of norm.c, and a product or two; sums are longer here. */
#define TOL 4e-6
#define NORMALIZE(std, size, ...)                                                                            \
  { .op = ZG_OP_NORMALIZE, .dims = size, .ax = "e", .num = {1e-5}, .opt = {std}, .tol = TOL, __VA_ARGS__ }
#define GRAD(std, size, ...)                                                                                 \
  { .op = ZG_OP_NORMALIZE_GRAD, .dims = size, .ax = "e", .opt = {std}, .tol = TOL, __VA_ARGS__ }
#define SCALED .in = {{"bse"}, {"e", EXACT}}, .out = {{"bse"}, {"bse"}, {"bs", EXACT}}, .pointwise = &scaled
#define AFFINE .in = {{"bse"}, {"e"}, {"e"}}, .out = {{"bse"}, {"bs", EXACT}}, .pointwise = &affine
#define MIXED                                                                                                \
  .in = {{"bse"}, {"bse"}, {"bs"}, {""}}, .out = {{"bse"}, {"bse"}, {"bse", EXACT}, {"bs", EXACT}},          \
  .pointwise = &mixed
#define SUM                                                                                                  \
  .in = {{"bse"}, {"bse"}, {"bs", EXACT, 0.5, 2, NULL}, {"bse"}}, .out = {{"bse"}}, .pointwise = &sum
#define WEIGHTED                                                                                             \
  .in = {{"bse"}, {"bse"}, {"bs", EXACT, 0.5, 2, NULL}, {"bse"}, {"e"}}, .out = {{"bse"}, {"bse"}},          \
  .pointwise = &weighted
#define RESIDUAL                                                                                             \
  .in = {{"bse"}, {"bse"}, {"e"}}, .out = {{"bse"}, {"bse"}, {"bs", EXACT}, {"bse"}}, .pointwise = &residual
#define SHIFTED .in = {{"bse"}, {"e"}}, .out = {{"bse"}, {"bs", EXACT}}, .pointwise = &shifted
#define AROUND                                                                                               \
  .in = {{"bse"}, {"bs", EXACT, 0.5, 2, NULL}, {"bse"}, {"e"}, {"bse"}, {"bse"}}, .out = {{"bse"}, {"bse"}}, \
  .pointwise = &around
#define TWICE                                                                                                \
  .in = {{"bse"}, {"bs", EXACT, 0.5, 2, NULL}, {"bse"}, {"e"}, {"bse"}}, .out = {{"bse"}}, .pointwise = &twice
#define SUMS(std, size, adds, ...)                                                                           \
  {                                                                                                          \
    .op = ZG_OP_NORMALIZE_GRAD_SUMS, .dims = size, .ax = "e", .opt = {std}, .accumulate = adds, .tol = TOL,  \
    __VA_ARGS__                                                                                              \
  }
#define BOTH_SUMS                                                                                            \
  .in = {{"bse"}, {"bs", EXACT, 0.5, 2, NULL}, {"bse"}, {"e"}, {"bse"}, {"bse"}},                            \
  .out = {{"bse"}, {"e", EXACT}, {"e", EXACT}}, .pointwise = &both_sums
#define ONE_SUM                                                                                              \
  .in = {{"bse"}, {"bs", EXACT, 0.5, 2, NULL}, {"bse"}, {"e"}, {"bse"}, {"bse"}},                            \
  .out = {{"bse"}, {"bse"}, {"e", EXACT}}, .pointwise = &one_sum
#define PLAIN_SUM                                                                                            \
  .in = {{"bse"}, {"bse"}, {"bs", EXACT, 0.5, 2, NULL}, {"bse"}}, .out = {{"bse"}, {"e", EXACT}},            \
  .pointwise = &plain_sum
const Case norm_fused[] = {
    NORMALIZE(0, "b=5 s=3 e=768", SCALED),
    NORMALIZE(0, "b=3 s=17 e=33", SCALED),
    NORMALIZE(0, "b=1 s=1 e=1", SCALED),
    NORMALIZE(0, "b=1 s=2 e=4096", SCALED),
    NORMALIZE(0, "b=1 s=3 e=1051", SCALED),
    NORMALIZE(1, "b=5 s=3 e=768", AFFINE),
    NORMALIZE(1, "b=3 s=17 e=33", AFFINE),
    NORMALIZE(1, "b=1 s=1 e=1", AFFINE),
    NORMALIZE(1, "b=1 s=2 e=1288", AFFINE),
    NORMALIZE(1, "b=1 s=2 e=16384", AFFINE),
    NORMALIZE(1, "b=1 s=2 e=16392", AFFINE),
    NORMALIZE(0, "b=1 s=2 e=16391", AFFINE),
    NORMALIZE(1, "b=9 s=2 e=40", MIXED),
    NORMALIZE(0, "b=2 s=3 e=1104", MIXED),
    NORMALIZE(1, "b=0 s=3 e=40", MIXED),
    GRAD(0, "b=5 s=3 e=768", SUM),
    GRAD(0, "b=1 s=1 e=1", SUM),
    GRAD(1, "b=3 s=17 e=33", SUM),
    GRAD(1, "b=1 s=2 e=4096", SUM),
    GRAD(1, "b=1 s=2 e=8200", SUM),
    GRAD(1, "b=5 s=3 e=64", WEIGHTED),
    GRAD(0, "b=2 s=2 e=1280", WEIGHTED),
    NORMALIZE(0, "b=5 s=3 e=768", RESIDUAL),
    NORMALIZE(1, "b=3 s=17 e=33", RESIDUAL),
    NORMALIZE(1, "b=1 s=2 e=16392", RESIDUAL),
    NORMALIZE(1, "b=3 s=17 e=33", SHIFTED),
    NORMALIZE(0, "b=5 s=3 e=72", SHIFTED),
    NORMALIZE(1, "b=1 s=2 e=16391", SHIFTED),
    NORMALIZE(1, "b=1 s=1 e=1", SHIFTED),
    GRAD(1, "b=5 s=3 e=768", AROUND),
    GRAD(0, "b=3 s=17 e=33", AROUND),
    GRAD(1, "b=1 s=2 e=8200", AROUND),
    GRAD(1, "b=3 s=17 e=33", TWICE),
    GRAD(1, "b=5 s=3 e=64", TWICE),
    GRAD(0, "b=0 s=3 e=40", TWICE),
    SUMS(1, "b=5 s=3 e=768", true, BOTH_SUMS),
    SUMS(1, "b=5 s=3 e=768", false, BOTH_SUMS),
    SUMS(0, "b=3 s=17 e=33", true, BOTH_SUMS),
    SUMS(1, "b=1 s=1 e=1", false, BOTH_SUMS),
    SUMS(1, "b=2 s=9 e=1288", true, BOTH_SUMS), /* rows of a block */
    SUMS(0, "b=3 s=2 e=4096", false, BOTH_SUMS),
    SUMS(0, "b=3 s=2 e=2047", true, BOTH_SUMS),
    SUMS(1, "b=0 s=3 e=40", true, BOTH_SUMS), /* no rows: 0, or what is there */
    SUMS(1, "b=0 s=3 e=40", false, BOTH_SUMS),
    SUMS(0, "b=31 s=37 e=24", true, BOTH_SUMS), /* many blocks */
    SUMS(0, "b=90 s=92 e=8", false, ONE_SUM),   /* more than there may be */
    SUMS(0, "b=5 s=3 e=768", true, ONE_SUM),
    SUMS(1, "b=3 s=3 e=8192", false, ONE_SUM), /* large blocks */
    SUMS(1, "b=1 s=3 e=5003", true, ONE_SUM),
    SUMS(1, "b=5 s=3 e=40", true, PLAIN_SUM),
    SUMS(0, "b=3 s=17 e=33", false, PLAIN_SUM),
};
const size_t nnorm_joined = sizeof norm_fused / sizeof *norm_fused;

/* What comes out of the op is rounded to bf16 on the way: 2^-9 of it, tripled by the largest weights; and
 * what goes into it, which is up to 8 here, or 2^-6 off. */
Test(norm_fused, cases) {
  for (size_t i = 0; i < nnorm_joined; i++) {
    if (!breadth_tries(i, 2)) continue;
    Case c = norm_fused[i];
    c.f32_only = true;
    conform(__FILE__, (int)i, &c);
    c.f32_only = false;
    c.half_tol = 0x1p-7;
    c.floor = c.pointwise->prologue ? 0x1p-6 : 0;
    /* What is summed is rounded on its way: two of the largest products, of up to 16, in one column; of many
     * rows, six deviations of products of about 1. */
    if (c.op == ZG_OP_NORMALIZE_GRAD_SUMS)
      c.floor = fmax(0x1p-4, 6 * 0x1p-9 / sqrt(3) * sqrt((double)count_of(&c, "bs")));
    conform(__FILE__, (int)i, &c);
  }
}

/* Which calls with sums the device has: those whose sums fit a block's shared memory, and are of one row. */
static void note_support(const ZkCall *call, void *arg) { *(bool *)arg &= zk_cuda_supports(call); }
static bool supported(Case c) {
  bool all = true;
  each_call(&c, note_support, &all);
  return all;
}
Test(norm_fused, sums_that_fit) {
  cr_expect(supported((Case)SUMS(1, "b=1 s=1 e=4096", true, BOTH_SUMS)));
  cr_expect(!supported((Case)SUMS(1, "b=1 s=1 e=4097", true, BOTH_SUMS)));
  cr_expect(supported((Case)SUMS(1, "b=1 s=1 e=8192", true, ONE_SUM)));
  cr_expect(!supported((Case)SUMS(1, "b=1 s=1 e=8193", true, ONE_SUM)));
  Case rows = SUMS(1, "b=2 s=2 e=8", true, PLAIN_SUM), parts = rows;
  rows.out[1] = (Tensor){"b", EXACT, 0, 0, NULL}, parts.out[1] = (Tensor){"se", EXACT, 0, 0, NULL};
  cr_expect(supported((Case)SUMS(1, "b=2 s=2 e=8", true, PLAIN_SUM)) && !supported(rows) &&
            !supported(parts));
}

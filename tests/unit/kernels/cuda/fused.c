/* Products with epilogues, with column sums, and batched: which calls the device supports, and that they
 * compute what their parts do one by one. (With another cuBLASLt: fused_lt.c.) */
#include "tests/unit/kernels/cuda/fused.h"

#include "kernels/cuda/cuda.h"

#define DOT_TOL 3e-6 /* as in reduce.c */
#define HALF_TOL                                                                                             \
  6e-3 /* the product is rounded to bf16 before the epilogue: 2^-9 of it, and 2^-9 of sums on the way */
#define OPS(...)                                                                                             \
  .nops = sizeof((ZkPointwiseOp[]){__VA_ARGS__}) / sizeof(ZkPointwiseOp), .ops = (ZkPointwiseOp[]) {         \
    __VA_ARGS__                                                                                              \
  }
#define F(NAME, x)                                                                                           \
  { .op = ZG_OP_##NAME, .a = x }
#define EW(NAME, x, y)                                                                                       \
  { .op = ZG_OP_##NAME, .a = x, .b = y }
#define NUM(x)                                                                                               \
  { .op = ZG_OP_FILL, .num = (float)(x) }

/* Registers: 0 the product, then the other operands, then the ops. */
static const ZkPointwise bias = {.nout = 1, .out = {2}, OPS(EW(ADD, 1, 0))};
static const ZkPointwise residual = {.nout = 1, .out = {2}, OPS(EW(ADD, 0, 1))};
static const ZkPointwise both = {.nout = 1, .out = {4}, OPS(EW(ADD, 0, 1), EW(ADD, 2, 3))};
static const ZkPointwise scaled = {
    .nout = 1, .out = {6}, OPS(NUM(0.25), EW(MUL, 0, 2), NUM(-2), EW(MUL, 4, 1), EW(ADD, 3, 5))};
static const ZkPointwise only_scaled = {.nout = 1, .out = {2}, OPS(NUM(8), EW(DIV, 0, 1))};
/* 0.5 x (1 + tanh(0.79788 (x + 0.044715 x x x))) of register x, from register r on, which is 0.5 */
#define GELU(x, r)                                                                                           \
  NUM(0.5), EW(MUL, r, x), NUM(1), NUM(0.7978845608028654), NUM(0.044715), EW(MUL, r + 4, x),                \
      EW(MUL, r + 5, x), EW(MUL, r + 6, x), EW(ADD, x, r + 7), EW(MUL, r + 3, r + 8), F(TANH, r + 9),        \
      EW(ADD, r + 2, r + 10), EW(MUL, r + 1, r + 11)
#define GELU_OPS 13
static const ZkPointwise gelu = {.nout = 1, .out = {1 + GELU_OPS - 1}, OPS(GELU(0, 1))};
static const ZkPointwise gelu_bias = {.nout = 1, .out = {3 + GELU_OPS - 1}, OPS(EW(ADD, 0, 1), GELU(2, 3))};
static const ZkPointwise gelu_kept = {
    .nout = 2, .out = {2, 3 + GELU_OPS - 1}, OPS(EW(ADD, 0, 1), GELU(2, 3))};
static const ZkPointwise gelu_product_kept = {.nout = 2, .out = {1 + GELU_OPS - 1, 0}, OPS(GELU(0, 1))};
static const ZkPointwise relu_bias = {.nout = 1, .out = {4}, OPS(EW(ADD, 0, 1), NUM(0), EW(MAX, 2, 3))};
/* tanh'd product with a factor; the product too */
static const ZkPointwise other = {.nout = 2, .out = {3, 0}, OPS(F(TANH, 0), EW(MUL, 2, 1))};
/* erf instead */
static const ZkPointwise exact_gelu = {.nout = 1,
                                       .out = {8},
                                       OPS(NUM(0.5), EW(MUL, 0, 1), NUM(0.70710678), EW(MUL, 0, 3), F(ERF, 4),
                                           NUM(1), EW(ADD, 5, 6), EW(MUL, 2, 7))};

/* 0 g, 1 x: g (0.5 (1 + t) + 0.5 x (1 - t t) 0.79788 (1 + 0.134145 x x)), t as above */
static const ZkPointwise gelu_slope = {
    .nout = 1,
    .out = {26},
    OPS(NUM(0.5), NUM(1), NUM(0.7978845608028654), NUM(0.044715), NUM(0.134145),                 /* 2..6 */
        EW(MUL, 1, 1), EW(MUL, 7, 1), EW(MUL, 8, 5), EW(ADD, 9, 1), EW(MUL, 10, 4), F(TANH, 11), /* 7..12 */
        EW(ADD, 3, 12), EW(MUL, 13, 2), EW(MUL, 12, 12), EW(SUB, 3, 15), EW(MUL, 16, 4),         /* 13..17 */
        EW(MUL, 7, 6), EW(ADD, 18, 3), EW(MUL, 17, 19), EW(MUL, 20, 1), EW(MUL, 21, 2),          /* 18..22 */
        EW(ADD, 14, 22), F(STOP, 23), F(BROADCAST, 24), EW(MUL, 25, 0))};                        /* 23..26 */

#define LINEAR .op = ZG_OP_DOT, .dims = "b=2 s=5 e=16 f=24", .ax = "e"
#define HEADS .op = ZG_OP_DOT, .dims = "b=2 s=5 e=16 h=3 d=8", .ax = "e"
#define HEADS_OF_THREE .op = ZG_OP_DOT, .dims = "q=3 b=2 s=5 e=16 h=3 d=8", .ax = "e"
#define ODD_SIZES .op = ZG_OP_DOT, .dims = "b=3 s=7 e=11 f=13", .ax = "e"
#define TOL .tol = DOT_TOL, .half_tol = HALF_TOL
#define BSE_EF                                                                                               \
  {"bse"}, { "ef" }

const Fused fused_cases[] = {
    {"bias", {LINEAR, .in = {BSE_EF, {"f"}}, .out = {{"bsf"}}, .pointwise = &bias, TOL}, true, true, false},
    {"bias of heads",
     {HEADS, .in = {{"bse"}, {"ehd"}, {"hd"}}, .out = {{"bshd"}}, .pointwise = &bias, TOL},
     true,
     true,
     false},
    {"bias of odd sizes",
     {ODD_SIZES, .in = {BSE_EF, {"f"}}, .out = {{"bsf"}}, .pointwise = &bias, TOL},
     true,
     true,
     false},
    {"bias along m",
     {.op = ZG_OP_DOT,
      .dims = "m=24 n=7 k=9",
      .ax = "k",
      .in = {{"mk"}, {"kn"}, {"m"}},
      .out = {{"nm"}},
      .pointwise = &bias,
      TOL},
     true,
     true,
     false},
    {"bias of a column", /* in cuBLASLt's eyes the column is a row */
     {.op = ZG_OP_DOT,
      .dims = "m=24 n=1 k=9",
      .ax = "k",
      .in = {{"mk"}, {"kn"}, {"m"}},
      .out = {{"mn"}},
      .pointwise = &bias,
      TOL},
     true,
     true,
     true},
    {"bias of a batch",
     {.op = ZG_OP_DOT,
      .dims = "b=3 m=4 n=8 k=9",
      .ax = "k",
      .in = {{"bmk"}, {"bkn"}, {"n"}},
      .out = {{"bmn"}},
      .pointwise = &bias,
      TOL},
     true,
     true,
     false},
    {"biases of q, k and v",
     {HEADS_OF_THREE, .in = {{"bse"}, {"qehd"}, {"qhd"}}, .out = {{"qbshd"}}, .pointwise = &bias, TOL},
     true,
     true,
     false},
    {"one bias of q, k and v",
     {HEADS_OF_THREE, .in = {{"bse"}, {"qehd"}, {"hd"}}, .out = {{"qbshd"}}, .pointwise = &bias, TOL},
     true,
     true,
     false},
    {"biases and residuals of q, k and v",
     {HEADS_OF_THREE, .in = {{"bse"}, {"qehd"}, {"qhd"}, {"qbshd"}}, .out = {{"qbshd"}}, .pointwise = &both,
      TOL},
     true,
     true,
     false},
    {"GELU of gate and up",
     {HEADS_OF_THREE, .in = {{"bse"}, {"qehd"}, {"qhd"}}, .out = {{"qbshd"}}, .pointwise = &gelu_bias, TOL},
     false,
     false,
     true},
    {"residual",
     {LINEAR, .in = {BSE_EF, {"bsf"}}, .out = {{"bsf"}}, .pointwise = &residual, TOL},
     true,
     true,
     false},
    {"bias and residual",
     {LINEAR, .in = {BSE_EF, {"f"}, {"bsf"}}, .out = {{"bsf"}}, .pointwise = &both, TOL},
     true,
     true,
     false},
    {"residual and bias",
     {ODD_SIZES, .in = {BSE_EF, {"bsf"}, {"f"}}, .out = {{"bsf"}}, .pointwise = &both, TOL},
     true,
     true,
     false},
    {"scaled sum",
     {LINEAR, .in = {BSE_EF, {"bsf"}}, .out = {{"bsf"}}, .pointwise = &scaled, TOL},
     true,
     true,
     false},
    {"scaled", {LINEAR, .in = {BSE_EF}, .out = {{"bsf"}}, .pointwise = &only_scaled, TOL}, true, true, false},
    {"GELU", {LINEAR, .in = {BSE_EF}, .out = {{"bsf"}}, .pointwise = &gelu, TOL}, false, true, false},
    {"GELU and bias",
     {LINEAR, .in = {BSE_EF, {"f"}}, .out = {{"bsf"}}, .pointwise = &gelu_bias, TOL},
     false,
     true,
     false},
    {"GELU, what it is of kept",
     {LINEAR, .in = {BSE_EF, {"f"}}, .out = {{"bsf"}, {"bsf"}}, .pointwise = &gelu_kept, TOL},
     false,
     true,
     false},
    {"GELU of odd sizes, what it is of kept",
     {ODD_SIZES, .in = {BSE_EF, {"f"}}, .out = {{"bsf"}, {"bsf"}}, .pointwise = &gelu_kept, TOL},
     false,
     true,
     true}, /* rows of 13 */
    {"GELU, the product kept",
     {LINEAR, .in = {BSE_EF}, .out = {{"bsf"}, {"bsf"}}, .pointwise = &gelu_product_kept, TOL},
     false,
     true,
     false},
    {"ReLU and bias",
     {LINEAR, .in = {BSE_EF, {"f"}}, .out = {{"bsf"}}, .pointwise = &relu_bias, TOL},
     true,
     true,
     false},
    {"GELU's slope",
     {LINEAR, .in = {BSE_EF, {"bsf"}}, .out = {{"bsf"}}, .pointwise = &gelu_slope, TOL},
     false,
     true,
     false},
    /* none of cuBLASLt's */
    {"exact GELU",
     {LINEAR, .in = {BSE_EF}, .out = {{"bsf"}}, .pointwise = &exact_gelu, TOL},
     false,
     false,
     false},
    {"tanh",
     {LINEAR, .in = {BSE_EF, {"bsf"}}, .out = {{"bsf"}, {"bsf"}}, .pointwise = &other, TOL},
     false,
     false,
     false},
    {"bias along the slower axis",
     {LINEAR, .in = {BSE_EF, {"bs"}}, .out = {{"bsf"}}, .pointwise = &bias, TOL},
     false,
     false,
     false},
    {"bias along a part",
     {HEADS, .in = {{"bse"}, {"ehd"}, {"d"}}, .out = {{"bshd"}}, .pointwise = &bias, TOL},
     false,
     false,
     false},
    {"bias turned",
     {HEADS, .in = {{"bse"}, {"ehd"}, {"dh"}}, .out = {{"bshd"}}, .pointwise = &bias, TOL},
     false,
     false,
     false},
    {"residual turned",
     {LINEAR, .in = {BSE_EF, {"sbf"}}, .out = {{"bsf"}}, .pointwise = &residual, TOL},
     false,
     false,
     false},
    {"two residuals",
     {LINEAR, .in = {BSE_EF, {"bsf"}, {"bsf"}}, .out = {{"bsf"}}, .pointwise = &both, TOL},
     false,
     false,
     false},
    {"a sum and its product",
     {LINEAR, .in = {BSE_EF, {"f"}}, .out = {{"bsf"}, {"bsf"}},
      .pointwise = &(ZkPointwise){.nout = 2, .out = {2, 0}, OPS(EW(ADD, 1, 0))}, TOL},
     false,
     false,
     false},
    {"one number each",
     {.op = ZG_OP_DOT,
      .dims = "b=6 k=9",
      .ax = "k",
      .in = {{"bk"}, {"bk"}, {"b"}},
      .out = {{"b"}},
      .pointwise = &residual,
      TOL},
     false,
     false,
     false},
};
const size_t nfused = sizeof fused_cases / sizeof *fused_cases;

typedef struct {
  int calls;
  bool supports[9];
} Asked;
static void ask(const ZkCall *call, void *arg) {
  Asked *a = arg;
  ZkCall c = *call;
  for (int k = 0; k < c.nin; k++) c.in[k].data = NULL;
  for (int k = 0; k < c.nout; k++) c.out[k].data = NULL;
  a->supports[a->calls++] = zk_cuda_supports(&c);
}

Test(fused, which) {
  for (size_t i = 0; i < nfused; i++) {
    Asked a = {0};
    each_call(&fused_cases[i].c, ask,
              &a); /* f32, bf16, bf16 into f32; three orders of axes each, the first as written */
    cr_expect_eq(a.supports[0], fused_cases[i].f32, "%s in f32", fused_cases[i].what);
    cr_expect_eq(a.supports[3], fused_cases[i].bf16, "%s in bf16", fused_cases[i].what);
  }
}

Test(fused, as_in_two) {
  for (size_t i = 0; i < nfused; i++) conform(fused_cases[i].what, 0, &fused_cases[i].c);
}

/* ---- gradients of weights and biases ---- */
/* As a linear layer's: results fastest along what is summed, or along the other; of bf16 operands alone. */
const Case bias_grad_cases[] = {
    {BIAS_GRAD, .dims = "b=2 s=9 e=8 f=24", .ax = "bs", .in = {{"bse"}, {"bsf"}},
     .out = {{"ef", EXACT}, {"f", EXACT}}},
    {BIAS_GRAD, .dims = "b=2 s=9 e=8 f=24", .ax = "bs", .in = {{"bse"}, {"bsf"}},
     .out = {{"fe", EXACT}, {"f", EXACT}}},
    {BIAS_GRAD, .dims = "b=2 s=9 e=8 h=2 d=8", .ax = "bs", .in = {{"bse"}, {"bshd"}},
     .out = {{"ehd", EXACT}, {"hd", EXACT}}},
    {BIAS_GRAD, .dims = "b=2 s=9 e=8 h=2 d=8", .ax = "bs", .in = {{"bshd"}, {"bse"}},
     .out = {{"hde", EXACT}, {"e", EXACT}}},
    /* of q, k and v together */
    {BIAS_GRAD, .dims = "q=3 b=2 s=9 e=8 h=2 d=8", .ax = "bs", .in = {{"bse"}, {"qbshd"}},
     .out = {{"qehd", EXACT}, {"qhd", EXACT}}},
    {BIAS_GRAD, .dims = "m=17 n=19 k=23", .ax = "k", .in = {{"km"}, {"kn"}},
     .out = {{"mn", EXACT}, {"n", EXACT}}},
};
const size_t nbias_grad = sizeof bias_grad_cases / sizeof *bias_grad_cases;

Test(bias_grad, as_in_two) {
  for (size_t i = 0; i < nbias_grad; i++) {
    Case set = bias_grad_cases[i];
    set.accumulate = false;
    conform("added", (int)i, &bias_grad_cases[i]);
    conform("set", (int)i, &set);
  }
}

/* ---- batched ---- */
/* Forward, where the results lie turned, of the other operand, a gradient, and with a packed operand in
 * common. */
const Case batched_cases[] = {
    {.op = ZG_OP_DOT,
     .dims = "q=3 b=2 s=5 e=16 f=8",
     .ax = "e",
     .in = {{"bse"}, {"qef"}},
     .out = {{"qbsf"}},
     .tol = DOT_TOL},
    {.op = ZG_OP_DOT,
     .dims = "q=3 b=2 s=5 e=16 f=8",
     .ax = "e",
     .in = {{"bse"}, {"qef"}},
     .out = {{"qfbs"}},
     .tol = DOT_TOL},
    {.op = ZG_OP_DOT,
     .dims = "q=3 b=2 s=5 e=16 f=8",
     .ax = "e",
     .in = {{"qef"}, {"bse"}},
     .out = {{"qbsf"}},
     .tol = DOT_TOL},
    {.op = ZG_OP_DOT,
     .dims = "q=2 b=2 s=5 e=8 f=24",
     .ax = "bs",
     .in = {{"bse"}, {"qbsf"}},
     .out = {{"qef", EXACT}},
     .accumulate = true,
     .tol = DOT_TOL},
    {.op = ZG_OP_DOT,
     .dims = "q=2 b=2 s=5 e=8 f=24",
     .ax = "bs",
     .in = {{"sbe"}, {"qbsf"}},
     .out = {{"qef"}},
     .tol = DOT_TOL},
};
const size_t nbatched = sizeof batched_cases / sizeof *batched_cases;

Test(batched, as_one_by_one) {
  for (size_t i = 0; i < nbatched; i++) conform("batched", (int)i, &batched_cases[i]);
}

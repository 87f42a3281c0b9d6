/* Pointwise functions that become programs where they can be compiled: on a GPU, and in the emulator in
 * pointwise.c. Here they run by whatever there is. */
#include "tests/unit/kernels/cuda/pointwise_cases.h"

#define OPS(...)                                                                                             \
  .nops = sizeof((ZkPointwiseOp[]){__VA_ARGS__}) / sizeof(ZkPointwiseOp), .ops = (ZkPointwiseOp[]) {         \
    __VA_ARGS__                                                                                              \
  }

/* x * gain + bias, gain along the run, bias over it, rounded; and less(x, 0.5) */
static const ZkPointwise affine = {.nout = 2,
                                   .out = {5, 7},
                                   OPS({.op = ZG_OP_MUL, .a = 0, .b = 1}, {.op = ZG_OP_ADD, .a = 3, .b = 2},
                                       {.op = ZG_OP_CAST, .a = 4, .elem = ZK_BF16},
                                       {.op = ZG_OP_FILL, .num = 0.5f}, {.op = ZG_OP_LESS, .a = 0, .b = 6})};
static const ZkPointwise functions = {.nout = 1,
                                      .out = {8},
                                      OPS({.op = ZG_OP_TANH, .a = 0}, {.op = ZG_OP_EXP, .a = 1},
                                          {.op = ZG_OP_ERF, .a = 2}, {.op = ZG_OP_SUB, .a = 3, .b = 1},
                                          {.op = ZG_OP_KNOWN, .a = 0},
                                          {.op = ZG_OP_SELECT, .a = 5, .b = 4, .c = 2},
                                          {.op = ZG_OP_COS, .a = 6}, {.op = ZG_OP_DIV, .a = 7, .b = 3})};
static const ZkPointwise constants = {
    .nout = 2, .out = {0, 1}, OPS({.op = ZG_OP_FILL, .num = 2.5f}, {.op = ZG_OP_AXSIZE, .num = 33})};
static const ZkPointwise to_ids = {.nout = 1, .out = {1}, OPS({.op = ZG_OP_CAST, .a = 0, .elem = ZK_I32})};

/* Tolerances: some roundings of results of size 1, as in ew.c. */
const Case pointwise_cases[] = {
    {.op = ZG_OP_POINTWISE,
     .dims = "b=3 s=5 e=16",
     .in = {{"bse"}, {"e"}, {"bs"}},
     .out = {{"bse", EXACT}, {"bse"}},
     .pointwise = &affine,
     .tol = 4e-3},
    {.op = ZG_OP_POINTWISE,
     .dims = "b=40 s=3 e=7",
     .in = {{"bse"}, {"e"}, {""}},
     .out = {{"bse", EXACT}, {"bse"}},
     .pointwise = &affine,
     .tol = 4e-3},
    {.op = ZG_OP_POINTWISE,
     .dims = "s=8 e=24",
     .in = {{"se"}},
     .out = {{"se"}},
     .pointwise = &functions,
     .tol = 2e-6},
    {.op = ZG_OP_POINTWISE,
     .dims = "s=5 e=3",
     .in = {{"se"}},
     .out = {{"se"}},
     .pointwise = &functions,
     .tol = 2e-6},
    {.op = ZG_OP_POINTWISE, .dims = "s=3 e=11", .out = {{"se"}, {"se"}}, .pointwise = &constants},
    {.op = ZG_OP_POINTWISE,
     .dims = "s=16",
     .in = {{"s", EXACT, -9, 9}},
     .out = {{"s", ID}},
     .pointwise = &to_ids},
    {.op = ZG_OP_POINTWISE,
     .dims = "s=0 e=8",
     .in = {{"se"}, {"e"}, {"s"}},
     .out = {{"se"}, {"se"}},
     .pointwise = &affine},
};
const size_t npointwise = sizeof pointwise_cases / sizeof *pointwise_cases;

Test(pointwise, cases) {
  for (size_t i = 0; i < npointwise; i++) conform(__FILE__, (int)i, &pointwise_cases[i]);
}

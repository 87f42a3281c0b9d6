/* The programs that pointwise functions become: their text, that NVRTC compiles them for GPUs that are not
 * here, and what they compute, compiled by the C++ compiler for the emulator. */
#include "base/base.h"
#include "graph/graph.h"

#define ZUG_KERNELS_CPU_H /* graph.h has the numbers of ops */
#include "kernels/cuda/pointwise.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/kernels/cuda/programs.h"

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
static const Case cases[] = {
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
#define CASES (sizeof cases / sizeof *cases)

static char *text_of(const ZkCall *call) {
  ZbText t = {0};
  ZkPointwiseShape shape = zk_pointwise_shape(call, true);
  zk_pointwise_text(&t, call, &shape);
  return t.s;
}

static void first_text(const ZkCall *call, void *arg) {
  char **text = arg;
  if (!*text) *text = text_of(call);
}

Test(pointwise, text) {
  char *text = NULL;
  each_call(&cases[0], first_text, &text);
  programs_expect(text, "pointwise.txt");
  free(text);
}

static void collect(const ZkCall *call, void *arg) {
  (void)arg;
  programs_add(text_of(call));
}

static void collect_all(void) {
  for (size_t i = 0; i < CASES; i++) each_made(&cases[i], collect, NULL);
  cr_assert(programs_count() >= 10);
}

#ifdef HAVE_NVRTC
Test(pointwise, nvrtc) {
  collect_all();
  programs_compile();
  programs_drop();
  void *cubin;
  size_t bytes;
  ZbErr err;
  cr_assert(!zk_cuda_compile("int f( {", 90, &cubin, &bytes, &err) && strstr(err.text, "error"), "%s",
            err.text);
}
#endif

Test(pointwise, emulated) {
  collect_all();
  programs_build("ZkcPointwise");
  for (size_t i = 0; i < CASES; i++) conform(__FILE__, (int)i, &cases[i]);
  cr_assert(programs_launched() >= (int)CASES, "not by programs");
  programs_drop();
}

/* Attention: what the CPU's cases do not reach, and the way through cuDNN, with another one behind it
 * (fake_dnn.h). */
#include "tests/unit/kernels/attend.h"
#include "tests/unit/kernels/cuda/emu.h"
#include "tests/unit/kernels/cuda/fake_dnn.h"
#ifdef HAVE_CUDNN
#include <cudnn.h>
#endif

/* A head of any size, over more keys than a block has threads. Tolerance as in attend.c. */
Test(attend_cuda, long_head) {
  for (int mask = 0; mask < 2; mask++)
    CONFORM(.op = ZG_OP_ATTEND, .dims = "s=130 d=257", .ax = "sd", .num = {0.05}, .opt = {mask},
            .f32_only = true, .in = {{"sd"}, {"sd"}, {"sd"}}, .out = {{"sd"}, {"s", EXACT}}, .tol = 5e-6);
}

Test(attend_cuda, nothing) {
  for (int mask = 0; mask < 2; mask++)
    CONFORM(.op = ZG_OP_ATTEND, .dims = "b=3 s=0 d=8", .ax = "sd", .num = {1}, .opt = {mask},
            .in = {{"bsd"}, {"bsd"}, {"bsd"}}, .out = {{"bsd"}, {"bs", EXACT}});
}

/* ---- gradients on tensor cores ---- */
/* More rows and columns than a tile, of heads of both sizes and of some between; groups, windows, documents, a
 * prefix, another sequence of keys; in f32, too, which has other kernels. */
static const struct {
  AttendShape shape;
  AttendKind kind;
} large[] = {
    {{"b=1 s=130 h=2 d=64", "bshd", "bshd", 0.12}, {.causal = 1}},
    {{"b=1 s=97 k=1 g=3 d=128", "bskgd", "bskd", 0.08}, {.causal = 1}},
    {{"b=2 s=65 h=1 d=72", "bhsd", "bhsd", 0.11}, {0}},
    {{"b=1 s=200 k=1 g=2 d=16", "bskgd", "bskd", 0.3}, {.causal = 1, .window = 70}},
    {{"b=2 s=150 k=1 g=2 d=24", "bskgd", "bskd", 0.2}, {.causal = 1, .docs = {"bs"}, .run = 37}},
    {{"b=1 s=70 t=140 h=1 d=40 w=56", "bshd", "bthd", 0.15}, {.ax = "sdtw", .v = "bthw", .cap = 2}},
    {{"b=2 s=100 g=2 d=8", "bsgd", "bsd", 0.4}, {.causal = 2, .prefix = "b", .most = 90, .sinks = "g"}},
};

Test(attend_mma, gradient) {
  for (size_t i = 0; i < sizeof large / sizeof *large; i++)
    if (breadth_tries(i, 4)) attend_gradient_of(&large[i].shape, &large[i].kind);
}

/* ---- what is said of it ---- */
static ZkCall gradient_call(int64_t s, int64_t d, ZkElem elem, int64_t stride) {
  ZkView x = {.elem = elem, .rank = 2, .axis = {'s', 'd'}, .size = {s, d}, .stride = {stride, 1}};
  ZkView l = {.elem = ZK_F32, .rank = 1, .axis = {'s'}, .size = {s}, .stride = {1}};
  ZkCall c = {.op = ZG_OP_ATTEND_GRAD, .nin = 6, .nout = 3, .nax = 2, .ax = {'s', 'd'}, .num = {0.1}};
  memcpy(x.whole, x.size, sizeof x.whole), memcpy(l.whole, l.size, sizeof l.whole);
  c.in[0] = c.in[1] = c.in[3] = c.in[4] = c.in[5] = x, c.in[2] = l;
  c.out[0] = c.out[1] = c.out[2] = x;
  for (int i = 0; i < 9; i++) (i < 6 ? &c.in[i] : &c.out[i - 6])->data = (void *)(uintptr_t)4096;
  return c;
}

static ZkFallback fallback_of(const ZkCall *c, struct cudnnContext *dnn, int arch) {
  ZkCuda *cu = zk_cuda_new(0, NULL);
  ZkEnv env = {.device = cu};
  ZkFallback how = {.what = ""};
  cu->dnn = dnn, cu->arch = arch;
  if (!zk_cuda_fallback(&env, c, &how)) how.what = "";
  zk_cuda_free(cu);
  return how;
}

Test(attend_mma, which) {
  static const struct {
    int64_t d, stride;
    ZkElem elem;
    bool tensor;
  } known[] = {{64, 64, ZK_BF16, true},    {128, 128, ZK_BF16, true}, {8, 8, ZK_BF16, true},
               {136, 136, ZK_BF16, false}, {64, 64, ZK_F32, false},   {60, 64, ZK_BF16, false},
               {64, 68, ZK_BF16, false}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (!breadth_tries(i, 5)) continue;
    ZkCall c = gradient_call(200, known[i].d, known[i].elem, known[i].stride);
    ZkFallback how = fallback_of(&c, NULL, 90);
    cr_expect(how.scalar == !known[i].tensor && strstr(how.why, "no cuDNN"), "%zu: %s: %s", i, how.what,
              how.why);
  }
}

#ifdef HAVE_CUDNN
/* Heads in a batch and alone, shared by groups of queries, of one batch element only; l beside o and apart.
 * In bf16 and the first order of axes they go to cuDNN, and often in the others. */
static const AttendShape shapes[] = {
    {"b=2 s=8 h=3 d=8", "bshd", "bshd", 0.4},      {"b=2 s=4 h=3 d=16", "bhsd", "bhsd", 0.4},
    {"b=2 s=8 k=3 g=2 d=8", "bskgd", "bskd", 0.4}, {"b=3 s=4 g=2 d=8", "bsgd", "bsd", 0.4},
    {"s=7 h=2 d=24", "shd", "shd", 0.2},
};

/* Pieces of l begin at 16 bytes, as whole tiles do: not those of the last shape. */
enum { ALL = sizeof shapes / sizeof *shapes, EVEN = ALL - 1 };

static void check(void (*one)(const AttendShape *shape, int mask), size_t n, bool repeatable) {
  emu_use_dnn(fake_dnn_handle());
  conform_repeatable = repeatable;
  for (size_t i = 0; i < n; i++)
    for (int mask = 0; mask < 2; mask++) {
      if (!breadth_tries(i + (size_t)mask, 3)) continue;
      int64_t before = fake_dnn.runs;
      one(&shapes[i], mask);
      cr_assert(fake_dnn.runs > before, "%s did not go to cuDNN", shapes[i].dims);
      cr_assert(fake_dnn.alive == 0, "%lld descriptors were not freed", (long long)fake_dnn.alive);
      cr_assert(fake_dnn.misuses == 0, "%s: %lld calls are not as they should be", shapes[i].dims,
                (long long)fake_dnn.misuses);
    }
}

Test(attend_cudnn, forward) { check(attend_forward, ALL, false); }
Test(attend_cudnn, gradient_in_one_order) {
  check(attend_gradient, ALL, true);
  int64_t before = fake_dnn.runs;
  attend_gradient(&shapes[2],
                  1); /* a piece is one head of keys with its two of queries: 2 * 128 * 128 * 2 bytes */
  cr_assert(fake_dnn.runs - before >= 6, "%lld", (long long)(fake_dnn.runs - before));
}

/* What dq is added to is ours. Older versions find zeros there or are wrong; GPUs before Hopper have such a sum
 * in their workspace, too. */
Test(attend_cudnn, gradient_by_sums) { check(attend_gradient, ALL, false); }
Test(attend_cudnn, gradient_by_sums_of_older_versions) {
  fake_dnn.version = 90500;
  check(attend_gradient, ALL, false);
}
Test(attend_cudnn, gradient_by_sums_before_hopper) {
  fake_dnn.own_sum = true;
  emu_use_arch(80);
  check(attend_gradient, EVEN, false);
}

/* Graphs that cuDNN computes, of attention and its gradient. */
static bool goes_there(bool grad, bool repeatable) {
  int64_t before = fake_dnn.runs;
  conform_repeatable = repeatable;
  (grad ? attend_gradient : attend_forward)(&shapes[3], 1);
  cr_assert(fake_dnn.alive == 0 && fake_dnn.misuses == 0);
  return fake_dnn.runs > before;
}

/* Versions and devices of which it is known that they go wrong or cannot. */
Test(attend_cudnn, trusted) {
  static const struct {
    int arch;
    size_t version;
    bool forward, gradient, repeatable;
  } known[] = {
      {90, 91900, true, true, true},    {90, 90000, true, true, true},   {90, 91000, false, false, false},
      {90, 91001, false, false, false}, {90, 91002, true, true, true},   {90, 8907, false, false, false},
      {80, 91800, true, true, true},    {89, 91701, true, true, false},  {86, 90800, true, true, false},
      {100, 91900, true, false, false}, {120, 91900, true, false, false}};
  emu_use_dnn(fake_dnn_handle());
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (!breadth_tries(i, 5)) continue;
    fake_dnn.version = known[i].version;
    emu_use_arch(known[i].arch);
    cr_expect_eq(goes_there(false, false), known[i].forward, "attention, %zu on %d", known[i].version,
                 known[i].arch);
    cr_expect_eq(goes_there(true, false), known[i].gradient, "its gradient, %zu on %d", known[i].version,
                 known[i].arch);
    cr_expect_eq(goes_there(true, true), known[i].repeatable, "the same in every run, %zu on %d",
                 known[i].version, known[i].arch);
  }
}

/* Wherever it says that it does not support this, our own kernels compute it. */
Test(attend_cudnn, refuses) {
  static const int at[] = {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                           CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
                           CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR};
  emu_use_dnn(fake_dnn_handle());
  for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
    if (!breadth_tries(i, 4)) continue;
    fake_dnn.refuses = at[i];
    cr_assert(!goes_there(false, false) && !goes_there(true, false) && !goes_there(true, true), "%d", at[i]);
  }
}

/* Where it has a plan and then fails, also at a later piece: the run goes on, by our own kernels. */
Test(attend_cudnn, fails_in_a_step) {
  emu_use_dnn(fake_dnn_handle());
  for (int grad = 0; grad < 2; grad++) {
    fake_dnn.runs = 0, fake_dnn.fails_from = 1;
    (grad ? attend_gradient : attend_forward)(&shapes[2], 1);
    cr_assert(fake_dnn.runs == 1 && fake_dnn.alive == 0 && fake_dnn.misuses == 0);
  }
}

/* Why it is not cuDNN that computes a call; nothing where it does. */
Test(attend_cudnn, fallbacks) {
  ZkCall c = gradient_call(128, 64, ZK_BF16, 64);
  cr_expect(!*fallback_of(&c, fake_dnn_handle(), 90).what);
  cr_expect(strstr(fallback_of(&c, fake_dnn_handle(), 100).why, "after Hopper"));
  fake_dnn.version = 91000;
  cr_expect(strstr(fallback_of(&c, fake_dnn_handle(), 90).why, "9.10.0"));
  fake_dnn.version = 0, fake_dnn.refuses = CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR;
  cr_expect(strstr(fallback_of(&c, fake_dnn_handle(), 90).why, "no plan"));
  fake_dnn.refuses = 0, c.opt[1] = 7;
  cr_expect(strstr(fallback_of(&c, fake_dnn_handle(), 90).why, "window"));
  c = gradient_call(128, 64, ZK_F32, 64);
  cr_expect(strstr(fallback_of(&c, fake_dnn_handle(), 90).why, "f32"));
}

/* How many pieces a gradient of so many heads takes. Of 16 positions and 8 features a head has 32 KiB for ds, or
 * 512 bytes of sums of dq, and all have room for 64 KiB (in tests), or what the call or a setting leaves. */
static int64_t pieces(int heads, bool repeatable, size_t setting, uint64_t room) {
  static uint16_t x[9][40 * 16 * 8];
  static float l[40 * 16];
  static _Alignas(256) char scratch[4 << 20];
  ZkCall c = gradient_call(16, 8, ZK_BF16, 8);
  ZkCuda *cu = zk_cuda_new(0, NULL);
  ZkEnv env = {.device = cu};
  for (int i = 0; i < 9; i++) {
    ZkView *v = i < 6 ? &c.in[i] : &c.out[i - 6];
    memmove(&v->axis[1], v->axis, 2 * sizeof v->axis[0]),
        memmove(&v->size[1], v->size, 2 * sizeof v->size[0]);
    memmove(&v->stride[1], v->stride, 2 * sizeof v->stride[0]);
    v->axis[0] = 'h', v->size[0] = heads, v->stride[0] = i == 2 ? 16 : 128, v->rank++;
    memcpy(v->whole, v->size, sizeof v->whole);
    v->data = i == 2 ? (void *)l : x[i];
  }
  c.scratch = scratch, c.repeatable = repeatable, c.room = room;
  cr_assert(zk_cuda_scratch(&c, 1) <= sizeof scratch);
  cu->dnn = fake_dnn_handle(), cu->attend_piece = setting;
  int64_t before = fake_dnn.runs;
  zk_cuda_kernel(ZG_OP_ATTEND_GRAD)(&env, &c);
  cr_assert(zk_cuda_error(cu) == NULL && fake_dnn.misuses == 0);
  zk_cuda_free(cu);
  return fake_dnn.runs - before;
}

Test(attend_cudnn, pieces) {
  cr_expect_eq(pieces(6, true, 0, 0), 3);
  cr_expect_eq(pieces(6, true, 1 << 30, 0), 3);
  cr_expect_eq(pieces(6, true, 32 << 10, 0), 6);
  cr_expect_eq(pieces(6, true, 0, 32 << 10), 6);
  cr_expect_eq(pieces(6, true, 0, 1), 6); /* one is done in any case */
  cr_expect_eq(pieces(7, true, 0, 0), 4); /* of two each: not seven of one */
  cr_expect_eq(pieces(6, false, 0, 0), 1);
  cr_expect_eq(pieces(6, false, 0, 1 << 10), 3);
  cr_expect_eq(pieces(40, false, 0, 8 << 10), 4); /* of ten, though sixteen would fit */
}
#endif

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

#ifdef HAVE_CUDNN
/* Heads in a batch and alone, shared by groups of queries, of one batch element only; l beside o and apart.
 * In bf16 and the first order of axes they go to cuDNN, and often in the others. */
static const AttendShape shapes[] = {
    {"b=2 s=8 h=3 d=8", "bshd", "bshd", 0.4},      {"b=2 s=4 h=3 d=16", "bhsd", "bhsd", 0.4},
    {"b=2 s=8 k=3 g=2 d=8", "bskgd", "bskd", 0.4}, {"b=3 s=4 g=2 d=8", "bsgd", "bsd", 0.4},
    {"s=7 h=2 d=24", "shd", "shd", 0.2},
};

static void check(void (*one)(const AttendShape *shape, int mask)) {
  emu_use_dnn(fake_dnn_handle());
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int mask = 0; mask < 2; mask++) {
      int64_t before = fake_dnn.runs;
      one(&shapes[i], mask);
      cr_assert(fake_dnn.runs > before, "%s did not go to cuDNN", shapes[i].dims);
      cr_assert(fake_dnn.alive == 0, "%lld descriptors were not freed", (long long)fake_dnn.alive);
      cr_assert(fake_dnn.misuses == 0, "%s: %lld calls are not as they should be", shapes[i].dims,
                (long long)fake_dnn.misuses);
    }
}

Test(attend_cudnn, forward) { check(attend_forward); }
Test(attend_cudnn, gradient) {
  check(attend_gradient);
  int64_t before = fake_dnn.runs;
  attend_gradient(&shapes[2],
                  1); /* a piece is one head of keys with its two of queries: 2 * 128 * 128 * 2 bytes */
  cr_assert(fake_dnn.runs - before >= 6, "%lld", (long long)(fake_dnn.runs - before));
}

/* Graphs that cuDNN computes, of attention and its gradient. */
static bool goes_there(bool grad) {
  int64_t before = fake_dnn.runs;
  (grad ? attend_gradient : attend_forward)(&shapes[3], 1);
  cr_assert(fake_dnn.alive == 0 && fake_dnn.misuses == 0);
  return fake_dnn.runs > before;
}

/* Versions and devices of which it is known that they go wrong or cannot. */
Test(attend_cudnn, trusted) {
  static const struct {
    int arch;
    size_t version;
    bool forward, gradient;
  } known[] = {{90, 91900, true, true},   {90, 90000, true, true},  {90, 91000, false, false},
               {90, 91001, false, false}, {90, 91002, true, true},  {90, 8907, false, false},
               {80, 91800, true, true},   {89, 91701, true, false}, {86, 90800, true, false},
               {100, 91900, true, false}, {120, 91900, true, false}};
  emu_use_dnn(fake_dnn_handle());
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    fake_dnn.version = known[i].version;
    emu_use_arch(known[i].arch);
    cr_expect_eq(goes_there(false), known[i].forward, "attention, %zu on %d", known[i].version,
                 known[i].arch);
    cr_expect_eq(goes_there(true), known[i].gradient, "its gradient, %zu on %d", known[i].version,
                 known[i].arch);
  }
}

/* Wherever it says that it does not support this, our own kernels compute it. */
Test(attend_cudnn, refuses) {
  static const int at[] = {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                           CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
                           CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR};
  emu_use_dnn(fake_dnn_handle());
  for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
    fake_dnn.refuses = at[i];
    cr_assert(!goes_there(false) && !goes_there(true), "%d", at[i]);
  }
}
#endif

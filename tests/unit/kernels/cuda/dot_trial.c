/* Trials of cuBLASLt's algorithms: each is tried as a step makes the call, with another cuBLASLt behind them
 * (fake_lt.h). */
#ifdef HAVE_CUBLASLT
#include <cublasLt.h>
#include <string.h>

#include "tests/unit/kernels/cuda/emu.h"
#include "tests/unit/kernels/cuda/fake_lt.h"
#include "tests/unit/kernels/cuda/fused.h"

enum { SIDE = 24 };
static float a[SIDE * SIDE], b[SIDE * SIDE], c[SIDE * SIDE];

static ZkCuda *context(ZkEnv *env) {
  ZkCuda *cu = zk_cuda_new(0, NULL);
  fake_lt_open(cu);
  *env = (ZkEnv){.device = cu};
  for (int i = 0; i < SIDE * SIDE; i++) a[i] = (float)(i % 5), b[i] = (float)(i % 3), c[i] = 1;
  return cu;
}

/* c[m n] = a[m k] b[k n], or added to it. */
static ZkCall product(bool add) {
  ZkView v = {.elem = ZK_F32, .rank = 2, .axis = {'m', 'k'}, .size = {SIDE, SIDE}, .stride = {SIDE, 1}};
  memcpy(v.whole, v.size, sizeof v.whole);
  ZkCall call = {.op = ZG_OP_DOT, .nin = 2, .nout = 1, .nax = 1, .ax = {'k'}, .in = {v, v}, .out = {v}};
  call.in[1].axis[0] = 'k', call.in[1].axis[1] = call.out[0].axis[1] = 'n';
  call.in[0].data = a, call.in[1].data = b, call.out[0].data = c;
  call.accumulate = add;
  return call;
}

static double wanted(int m, int n, bool add) {
  double sum = add;
  for (int k = 0; k < SIDE; k++) sum += (double)a[m * SIDE + k] * b[k * SIDE + n];
  return sum;
}

/* Small whole numbers: every order of sums gives them. */
static void run(const ZkEnv *env, const ZkCall *call) {
  for (int i = 0; i < SIDE * SIDE; i++) c[i] = 1;
  zk_cuda_kernel(call->op)(env, call);
  for (int m = 0; m < SIDE; m++)
    for (int n = 0; n < SIDE; n++)
      cr_assert(c[m * SIDE + n] == wanted(m, n, call->accumulate), "[%d %d]: %g", m, n, c[m * SIDE + n]);
}

/* An algorithm that does not add is not taken for a call that adds; where nothing does, that is known before
 * the first step. The call that sets is not concerned. */
Test(dot_trial, adds) {
  ZkEnv env;
  ZkCuda *cu = context(&env);
  ZkCall set = product(false), add = product(true);
  ZkFallback how;
  fake_lt.adds_not = 1 << 2; /* the fastest */
  zk_cuda_prepare(&env, &set), zk_cuda_prepare(&env, &add);
  run(&env, &set);
  cr_assert_eq(fake_lt.last, 2);
  run(&env, &add);
  cr_assert_eq(fake_lt.last, 1);
  zk_cuda_free(cu), cu = context(&env);
  fake_lt.adds_not = ~0u;
  zk_cuda_prepare(&env, &set), zk_cuda_prepare(&env, &add);
  cr_assert(!zk_cuda_fallback(&env, &set, &how));
  cr_assert(zk_cuda_fallback(&env, &add, &how) && how.scalar, "and nobody was told");
  int64_t before = fake_lt.products;
  run(&env, &add);
  cr_assert(fake_lt.products == before && zk_cuda_late(cu) == NULL && fake_lt.misuses == 0);
  zk_cuda_free(cu);
}

/* The same of gradients of weights and biases: they are in two where the product with its sums does not add.
 */
Test(dot_trial, adds_with_sums) {
  emu_use_blas(fake_lt_handle());
  fake_lt.adds_not = ~0u;
  for (size_t i = 0; i < nbias_grad; i++) {
    int64_t before = fake_lt.with[CUBLASLT_EPILOGUE_BGRADA] + fake_lt.with[CUBLASLT_EPILOGUE_BGRADB];
    conform("added", (int)i, &bias_grad_cases[i]);
    cr_expect_eq(fake_lt.with[CUBLASLT_EPILOGUE_BGRADA] + fake_lt.with[CUBLASLT_EPILOGUE_BGRADB], before);
  }
  cr_assert_eq(fake_lt.misuses, 0);
}

/* Operands are tried at addresses that are as odd as the step's. */
Test(dot_trial, odd_addresses) {
  ZkEnv env;
  for (int i = 0; i < 3; i++) {
    ZkCuda *cu = context(&env);
    ZkCall call = product(true);
    int64_t before = fake_lt.products, odd = fake_lt.odd;
    ZkView *v = i < 2 ? &call.in[i] : &call.out[0];
    zk_cuda_prepare(&env, &call);
    cr_assert(fake_lt.products > before && fake_lt.odd == odd);
    v->data = (float *)v->data + 1;
    before = fake_lt.products;
    zk_cuda_prepare(&env, &call);
    cr_assert(fake_lt.products > before && fake_lt.odd - odd == fake_lt.products - before, "operand %d", i);
    zk_cuda_free(cu);
  }
  cr_assert_eq(fake_lt.misuses, 0);
}

/* Timed as where a step has come by: the cache has other things. An algorithm that is fast only with its
 * operands in the cache is not taken, and is soon given up. */
Test(dot_trial, cold) {
  ZkEnv env;
  ZkCuda *cu = context(&env);
  ZkCall call = product(false);
  zk_cuda_prepare(&env, &call);
  int64_t all = fake_lt.products; /* what is right, and of three that run one looked at and five timed */
  cr_assert_eq(all, 1 + 3 * 6, "%lld", (long long)all);
  run(&env, &call);
  cr_assert_eq(fake_lt.last, 2);
  zk_cuda_free(cu), cu = context(&env);
  fake_lt.last_is_slow_cold = true, fake_lt.products = 0;
  zk_cuda_prepare(&env, &call);
  cr_assert_eq(fake_lt.products, all - 4, "%lld", (long long)fake_lt.products);
  run(&env, &call);
  cr_assert_eq(fake_lt.last, 1);
  zk_cuda_free(cu);
}

/* A call that is refused though it was tried is done otherwise, and said, once; a step that is captured then
 * fails and says why, and is right when it is queued anew. */
Test(dot_trial, refused_late) {
  ZkEnv env;
  ZkCuda *cu = context(&env);
  ZkCall call = product(true);
  ZkFallback how;
  zk_cuda_prepare(&env, &call);
  run(&env, &call);
  cr_assert(zk_cuda_late(cu) == NULL);
  fake_lt.refuses_from = 1;
  run(&env, &call);
  const char *late = zk_cuda_late(cu);
  cr_assert(late && strstr(late, "`dot` f32[24 24], f32[24 24] -> f32[24 24]: cuBLASLt refused it in a step"),
            "%s", late);
  cr_assert(zk_cuda_late(cu) == NULL && zk_cuda_fallback(&env, &call, &how) && how.scalar);
  zk_cuda_free(cu), cu = context(&env);
  fake_lt.refuses_from = 0;
  zk_cuda_prepare(&env, &call);
  fake_lt.refuses_from = 1, cu->capturing = true;
  zk_cuda_kernel(call.op)(&env, &call);
  cr_assert(strstr(zk_cuda_error(cu), "cuBLASLt refused it while the step was captured: not supported"), "%s",
            zk_cuda_error(cu));
  cu->capturing = cu->failed = false;
  run(&env, &call);
  zk_cuda_free(cu);
}

/* Trials take at most half of what the GPU has left, and those of a fused call not beside those of its parts.
 */
static void ask(const ZkCall *call, void *arg) {
  ZkCuda *cu = zk_cuda_new(0, NULL);
  ZkEnv env = {.device = cu};
  ZkFallback how;
  int64_t *said = arg;
  fake_lt_open(cu);
  zk_cuda_prepare(&env, call);
  if (zk_cuda_fallback(&env, call, &how) && strstr(how.why, "to try it takes ")) ++*said;
  zk_cuda_free(cu);
}

Test(dot_trial, memory) {
  ZkEnv env;
  ZkCuda *cu = context(&env);
  ZkCall call = product(false);
  ZkFallback how;
  int64_t said = 0, calls = 0;
  fake_lt.memory = 30000; /* the operands, two results and two caches are 17 kB */
  zk_cuda_prepare(&env, &call);
  cr_assert(fake_lt.most_taken == 0 && zk_cuda_fallback(&env, &call, &how) && !how.scalar);
  cr_assert(strstr(how.what, "first algorithm") && strstr(how.why, "30.0 kB") && strstr(how.why, "half"),
            "%s: %s", how.what, how.why);
  run(&env, &call);
  cr_assert_eq(fake_lt.last, 0);
  zk_cuda_free(cu);
  emu_use_blas(fake_lt_handle());
  for (size_t i = 0; i < nfused; i++) each_call(&fused_cases[i].c, ask, &said), calls++;
  cr_assert(said > 0 && fake_lt.most_taken <= fake_lt.memory / 2, "%lld of %lld, %zu", (long long)said,
            (long long)calls, fake_lt.most_taken);
  for (size_t i = 0; i < nfused; i++) conform(fused_cases[i].what, 0, &fused_cases[i].c);
  cr_assert_eq(fake_lt.misuses, 0);
}
#endif

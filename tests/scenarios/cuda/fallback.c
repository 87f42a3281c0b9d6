/* Kernels that kernels/cuda does not have are the CPU's, run on the GPU's thread; linked with --wrap.
 * ZUG_TEST_CPU=1: all of them are, for tests of streams and communicators: emulated products take their
 * time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "graph/graph.h"
#include "kernels/cuda/dot.h"
#include "kernels/cuda/host.h"
#include "tests/scenarios/cuda/gpu.h"
#include "tests/unit/kernels/cuda/fake_lt.h"

#include <cuda_runtime_api.h>

ZkKernel *__real_zk_cuda_kernel(int op), *__wrap_zk_cuda_kernel(int op);
size_t __real_zk_cuda_scratch(const ZkCall *call, int threads),
    __wrap_zk_cuda_scratch(const ZkCall *call, int threads);
void __real_zk_cuda_prepare(const ZkEnv *env, const ZkCall *call),
    __wrap_zk_cuda_prepare(const ZkEnv *env, const ZkCall *call);
bool __real_zk_cuda_fallback(const ZkEnv *env, const ZkCall *call, ZkFallback *how),
    __wrap_zk_cuda_fallback(const ZkEnv *env, const ZkCall *call, ZkFallback *how);
void *__real_zk_cuda_memo(ZkCuda *cu, const ZkCall *call, size_t bytes, ZkCudaMake *make,
                          void (*drop)(void *)),
    *__wrap_zk_cuda_memo(ZkCuda *cu, const ZkCall *call, size_t bytes, ZkCudaMake *make,
                         void (*drop)(void *));

typedef struct {
  ZkEnv env;
  ZkCall call;
} Call;

static int preparing;

/* What the CUDA kernels do in one call, the CPU's do in several. */
static bool run(void *arg) {
  Call *c = arg;
  ZkUnfused u;
  if (c->env.step_state) c->env.step = c->env.step_state->step;
  zk_unfuse(&c->call, &u);
  for (int i = 0; i < u.n; i++) zk_cpu_kernel(u.call[i].op)(&c->env, &u.call[i]);
  return true;
}

static void on_cpu(const ZkEnv *env, const ZkCall *call) {
  Call *c = malloc(sizeof *c);
  ZB_ASSERT(c != NULL);
  *c = (Call){{.seed = env->seed, .step = env->step, .step_state = env->step_state}, *call};
  gpu_push(((ZkCuda *)env->device)->stream, run, free, c);
}

/* ZUG_TEST_LACKS=OP: that op is not there, nor here. */
static bool emulated(int op) { return !gpu_setting("ZUG_TEST_CPU", 0) && __real_zk_cuda_kernel(op); }

ZkKernel *__wrap_zk_cuda_kernel(int op) {
  const char *lacks = getenv("ZUG_TEST_LACKS");
  if (lacks && !strcmp(lacks, zg_op_info[op].text)) return NULL;
  if (emulated(op)) return __real_zk_cuda_kernel(op);
  bool known = zk_cpu_kernel(op) || __real_zk_cuda_kernel(op); /* what the CPU lacks it does in several */
  return known ? on_cpu : NULL;
}

size_t __wrap_zk_cuda_scratch(const ZkCall *call, int threads) {
  ZkUnfused u;
  size_t most = 0;
  if (emulated(call->op)) return __real_zk_cuda_scratch(call, threads);
  zk_unfuse(call, &u);
  for (int i = 0; i < u.n; i++) {
    size_t bytes = zk_cpu_scratch(&u.call[i], 1);
    most = bytes > most ? bytes : most;
  }
  return u.room + most;
}

/* ZUG_TEST_SAY_FUSED=1: says which fused and batched calls there are; "fused" with a prologue or an
 * epilogue. */
static void say_fused(const ZkCall *c) {
  ZkUnfused u;
  bool batched = false, fused = c->pointwise && c->op != ZG_OP_POINTWISE;
  zk_unfuse(c, &u);
  if (u.call[0].op == ZG_OP_DOT) {
    ZkDot d = zk_dot_of(&u.call[0]);
    batched = zk_dot_shares_operand(&d);
  }
  if (u.n > 1 || fused || batched)
    fprintf(stderr, "%s%s%s: %d operands, %d ops, %d results\n", batched ? "batched " : "",
            fused ? "fused " : "", zg_op_info[c->op].text, c->nin, c->pointwise ? c->pointwise->nops : 0,
            c->nout);
}

void __wrap_zk_cuda_prepare(const ZkEnv *env, const ZkCall *call) {
  if (gpu_setting("ZUG_TEST_SAY_FUSED", 0)) say_fused(call);
  preparing++;
  if (emulated(call->op)) __real_zk_cuda_prepare(env, call);
  preparing--;
}

/* ---- cuBLASLt ---- */
ZkCuda *__real_zk_cuda_new(int device, ZbErr *err), *__wrap_zk_cuda_new(int device, ZbErr *err);

/* ZUG_TEST_LT=1: there is a cuBLASLt (fake_lt.h), which does what it did in trials. 2: it does nothing in a
 * step; 3: it does nothing in one that is captured. */
ZkCuda *__wrap_zk_cuda_new(int device, ZbErr *err) {
  ZkCuda *cu = __real_zk_cuda_new(device, err);
  long how = gpu_setting("ZUG_TEST_LT", 0);
  if (!cu || !how) return cu;
  fake_lt_open(cu);
  fake_lt.refuses_captured = how == 3;
  if (cudaMalloc(&cu->workspace, cu->workspace_bytes) != cudaSuccess) ZB_BUG("no memory for a workspace");
  return cu;
}

/* Whoever asks how a call is done may be the first. */
bool __wrap_zk_cuda_fallback(const ZkEnv *env, const ZkCall *call, ZkFallback *how) {
  preparing++;
  bool slow = __real_zk_cuda_fallback(env, call, how);
  preparing--;
  return slow;
}

/* A call's memo is made when it is prepared: a step that is captured could not. */
static ZkCudaMake *make_it;
static void make_prepared(ZkCuda *cu, const ZkCall *call, void *memo) {
  bool late = fake_lt.refuses_from || fake_lt.refuses_captured; /* and then others do it */
  if (!preparing && !late) ZB_BUG("`%s` was not prepared", zg_op_info[call->op].text);
  make_it(cu, call, memo);
}

void *__wrap_zk_cuda_memo(ZkCuda *cu, const ZkCall *call, size_t bytes, ZkCudaMake *make,
                          void (*drop)(void *)) {
  if (gpu_setting("ZUG_TEST_LT", 0) == 2 && !preparing) fake_lt.refuses_from = 1; /* all calls are prepared */
  ZkCudaMake *before = make_it; /* what it makes may want others */
  make_it = make;
  void *memo = __real_zk_cuda_memo(cu, call, bytes, make_prepared, drop);
  make_it = before;
  return memo;
}

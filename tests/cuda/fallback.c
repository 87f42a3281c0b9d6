/* Kernels that kernels/cuda does not have are the CPU's, run on the GPU's thread; linked with --wrap. ZUG_TEST_CPU=1: all of
 * them are, for tests of streams and communicators: emulated products take their time. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "graph/graph.h"
#include "kernels/cuda/cuda.h"
#include "tests/cuda/gpu.h"

ZkKernel *__real_zk_cuda_kernel(int op), *__wrap_zk_cuda_kernel(int op);
size_t __real_zk_cuda_scratch(const ZkCall *call, int threads), __wrap_zk_cuda_scratch(const ZkCall *call, int threads);
void __real_zk_cuda_prepare(const ZkEnv *env, const ZkCall *call), __wrap_zk_cuda_prepare(const ZkEnv *env, const ZkCall *call);

typedef struct {
  ZkEnv env;
  ZkCall call;
} Call;

static bool run(void *arg) {
  Call *c = arg;
  if (c->env.now) c->env.step = c->env.now->step;
  zk_cpu_kernel(c->call.op)(&c->env, &c->call);
  return true;
}

static void on_cpu(const ZkEnv *env, const ZkCall *call) {
  Call *c = malloc(sizeof *c);
  ZB_ASSERT(c != NULL);
  *c = (Call){{.seed = env->seed, .step = env->step, .now = env->now}, *call};
  gpu_push(((ZkCuda *)env->device)->stream, run, free, c);
}

/* ZUG_TEST_LACKS=OP: that op is not there, nor here. */
static bool emulated(int op) { return !gpu_setting("ZUG_TEST_CPU", 0) && __real_zk_cuda_kernel(op); }

ZkKernel *__wrap_zk_cuda_kernel(int op) {
  const char *lacks = getenv("ZUG_TEST_LACKS");
  if (lacks && !strcmp(lacks, zg_op_info[op].text)) return NULL;
  return emulated(op) ? __real_zk_cuda_kernel(op) : zk_cpu_kernel(op) ? on_cpu : NULL;
}

size_t __wrap_zk_cuda_scratch(const ZkCall *call, int threads) {
  return emulated(call->op) ? __real_zk_cuda_scratch(call, threads) : zk_cpu_scratch(call, 1);
}

void __wrap_zk_cuda_prepare(const ZkEnv *env, const ZkCall *call) {
  if (emulated(call->op)) __real_zk_cuda_prepare(env, call);
}

/* Kernels that kernels/cuda does not have are the CPU's, run on the GPU's thread; linked with --wrap. ZUG_TEST_CPU=1: all of
 * them are, for tests of streams and communicators: emulated products take their time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "graph/graph.h"
#include "kernels/cuda/dot.h"
#include "tests/cuda/gpu.h"

ZkKernel *__real_zk_cuda_kernel(int op), *__wrap_zk_cuda_kernel(int op);
size_t __real_zk_cuda_scratch(const ZkCall *call, int threads), __wrap_zk_cuda_scratch(const ZkCall *call, int threads);
void __real_zk_cuda_prepare(const ZkEnv *env, const ZkCall *call), __wrap_zk_cuda_prepare(const ZkEnv *env, const ZkCall *call);

typedef struct {
  ZkEnv env;
  ZkCall call;
} Call;

/* What the CUDA kernels do in one call, the CPU's do in several. */
static bool run(void *arg) {
  Call *c = arg;
  ZkParts parts;
  if (c->env.now) c->env.step = c->env.now->step;
  zk_parts(&c->call, &parts);
  for (int i = 0; i < parts.n; i++) zk_cpu_kernel(parts.call[i].op)(&c->env, &parts.call[i]);
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
  ZkParts parts;
  size_t most = 0;
  if (emulated(call->op)) return __real_zk_cuda_scratch(call, threads);
  zk_parts(call, &parts);
  for (int i = 0; i < parts.n; i++) {
    size_t bytes = zk_cpu_scratch(&parts.call[i], 1);
    most = bytes > most ? bytes : most;
  }
  return most;
}

static const char *kind_of(const ZkCall *c, const ZkParts *parts) {
  if (c->op == ZG_OP_XENT_SUMS) return parts->n > 1 ? "peaked " : "";
  if (c->chain || c->op != ZG_OP_DOT) return c->chain && c->op != ZG_OP_CHAIN ? "joined " : "";
  return parts->n > 1 ? "summed " : "";
}

/* ZUG_TEST_SAY_JOINED=1: says which joined, summed, peaked and stacked calls there are. */
static void say_joined(const ZkCall *c) {
  ZkParts parts;
  bool stacked = false;
  zk_parts(c, &parts);
  if (parts.call[0].op == ZG_OP_DOT) {
    ZkDot d = zk_dot_of(&parts.call[0]);
    stacked = zk_dot_stacked(&d);
  }
  const char *kind = kind_of(c, &parts);
  if (*kind || stacked)
    fprintf(stderr, "%s%s%s: %d operands, %d ops, %d results\n", stacked ? "stacked " : "", kind, zg_op_info[c->op].text, c->nin,
            c->chain ? c->chain->nops : 0, c->nout);
}

void __wrap_zk_cuda_prepare(const ZkEnv *env, const ZkCall *call) {
  if (gpu_setting("ZUG_TEST_SAY_JOINED", 0)) say_joined(call);
  if (emulated(call->op)) __real_zk_cuda_prepare(env, call);
}

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

/* What the CUDA kernels do in one call, the CPU's do in two. */
static void run_joined(const ZkEnv *env, const ZkCall *joined) {
  ZkCall op, chain;
  ZkChain rest;
  if (zk_unjoin_first(joined, &chain, &rest)) zk_cpu_kernel(ZG_OP_CHAIN)(env, &chain);
  zk_unjoin(joined, &op, &chain, &rest);
  zk_cpu_kernel(op.op)(env, &op);
  if (chain.nout > 0) zk_cpu_kernel(ZG_OP_CHAIN)(env, &chain);
}

static bool summed(const ZkCall *c) { return c->op == ZG_OP_DOT && !c->chain && c->nout == 2; }

static void run_summed(const ZkEnv *env, const ZkCall *summed) {
  ZkCall dot, sum;
  zk_unsum(summed, &dot, &sum);
  zk_cpu_kernel(dot.op)(env, &dot);
  zk_cpu_kernel(sum.op)(env, &sum);
}

static bool run(void *arg) {
  Call *c = arg;
  if (c->env.now) c->env.step = c->env.now->step;
  if (summed(&c->call)) run_summed(&c->env, &c->call);
  else if (c->call.chain && c->call.op != ZG_OP_CHAIN) run_joined(&c->env, &c->call);
  else zk_cpu_kernel(c->call.op)(&c->env, &c->call);
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
  ZkCall op, chain;
  ZkChain rest;
  if (emulated(call->op)) return __real_zk_cuda_scratch(call, threads);
  if (summed(call)) {
    zk_unsum(call, &op, &chain);
    size_t dot = zk_cpu_scratch(&op, 1), sum = zk_cpu_scratch(&chain, 1);
    return dot > sum ? dot : sum;
  }
  if (!call->chain || call->op == ZG_OP_CHAIN) return zk_cpu_scratch(call, 1);
  zk_unjoin(call, &op, &chain, &rest);
  return zk_cpu_scratch(&op, 1);
}

static bool stacked(const ZkCall *c) {
  ZkCall op = *c, chain;
  ZkChain rest;
  if (c->op != ZG_OP_DOT) return false;
  if (c->chain) zk_unjoin(c, &op, &chain, &rest);
  op.nout = 1;
  ZkDot d = zk_dot_of(&op);
  return zk_dot_stacked(&d);
}

/* ZUG_TEST_SAY_JOINED=1: says which joined, summed and stacked calls there are. */
static void say_joined(const ZkCall *c) {
  const char *op = zg_op_info[c->op].text, *what = stacked(c) ? "stacked " : "";
  if (c->chain && c->op != ZG_OP_CHAIN)
    fprintf(stderr, "%sjoined %s: %d operands, %d ops, %d results\n", what, op, c->nin, c->chain->nops, c->nout);
  else if (*what || summed(c)) fprintf(stderr, "%s%s%s: %d results\n", what, summed(c) ? "summed " : "", op, c->nout);
}

void __wrap_zk_cuda_prepare(const ZkEnv *env, const ZkCall *call) {
  if (gpu_setting("ZUG_TEST_SAY_JOINED", 0)) say_joined(call);
  if (emulated(call->op)) __real_zk_cuda_prepare(env, call);
}

/* Fused calls of normalize and its gradient. Where programs can be compiled at run time, each is one kernel;
 * else the prologue, the op and the epilogue are one each. */
#include "kernels/cuda/pointwise.h"

typedef struct {
  ZkNormShape shape;
  struct CUfunc_st *kernel; /* NULL: in parts */
} Plan;

static void make_plan(ZkCuda *cu, const ZkCall *call, void *memo) {
  Plan *p = memo;
  ZbText text = {0};
  p->shape = zk_norm_shape(call);
  zk_norm_text(&text, call, &p->shape);
  p->kernel = zk_cuda_program(cu, call, text.s);
  zb_text_free(&text);
}

/* All of them but one whose results only lack the rows' axis: prologues and epilogues work along rows. */
bool zk_cuda_norm_supports(const ZkCall *call) {
  for (int a = 0; a < call->out[0].rank; a++)
    if (call->out[0].axis[a] == call->ax[0]) return true;
  return false;
}

/* Whose sums fit a block's shared memory: what is wider, and more of them, are sums of their own. */
bool zk_cuda_norm_sums_supports(const ZkCall *call) {
  int sums = zk_sums(call);
  if (!call->pointwise || sums == 0 || sums > ZK_MOST_SUMS || !zk_cuda_norm_supports(call)) return false;
  for (int k = call->nout - sums; k < call->nout; k++)
    if (call->out[k].rank != 1 || call->out[k].axis[0] != call->ax[0] || call->out[k].elem != ZK_F32)
      return false;
  return zk_norm_sums_fit(zkc_size(&call->out[0], call->ax[0]), sums);
}

/* For the partial sums; in parts, for those of their own. */
size_t zk_cuda_norm_sums_scratch(const ZkCall *call) {
  ZkNormShape s = zk_norm_shape(call);
  size_t most = (size_t)zk_norm_blocks(&s, 0) * (size_t)(s.sums * s.args.n) * sizeof(float);
  ZkUnfused u;
  zk_unfuse(call, &u);
  for (int i = 0; i < u.n; i++) {
    size_t bytes = u.call[i].op == ZG_OP_SUM ? zk_cuda_reduce_scratch(&u.call[i]) : 0;
    most = bytes > most ? bytes : most;
  }
  return most;
}

bool zk_cuda_norm_joined(const ZkEnv *env, const ZkCall *call) {
  return ((const Plan *)zk_cuda_memo(env->device, call, sizeof(Plan), make_plan, NULL))->kernel;
}

void zk_cuda_norm_prepare(const ZkEnv *env, const ZkCall *call) {
  if (!call->pointwise) return;
  const Plan *p = zk_cuda_memo(env->device, call, sizeof *p, make_plan, NULL);
  if (!p->kernel) zk_cuda_prepare_unfused(env, call);
}

void zk_cuda_norm_fused(const ZkEnv *env, const ZkCall *call) {
  ZkCuda *cu = env->device;
  const Plan *p = zk_cuda_memo(cu, call, sizeof *p, make_plan, NULL);
  if (!p->kernel) {
    zk_cuda_run_unfused(env, call);
    return;
  }
  ZkcRows c = p->shape.args;
  void *args[] = {&c};
  for (int k = 0; k < call->nin; k++) c.in[k] = call->in[k].data;
  for (int k = 0; k < call->nout; k++) c.out[k] = call->out[k].data;
  c.partial = call->scratch;
  unsigned blocks = zk_norm_blocks(&p->shape, cu->most_blocks);
  zk_cuda_program_launch(cu, call, p->kernel, blocks, (unsigned)zk_norm_block(&p->shape), args);
  if (p->shape.sums) zk_cuda_norm_join(cu, call, p->shape.sums, blocks);
}

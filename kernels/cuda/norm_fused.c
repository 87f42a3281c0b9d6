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
  zk_cuda_program_launch(cu, call, p->kernel, zk_norm_blocks(&p->shape, cu->most_blocks),
                         (unsigned)zk_norm_block(&p->shape), args);
}

/* attend and attend_grad: how heads lie, and who computes them. */
#include "kernels/cuda/attend.h"

static bool has(const ZkView *v, uint16_t axis) {
  for (int i = 0; i < v->rank; i++)
    if (v->axis[i] == axis) return true;
  return false;
}

/* The axes of q but s and h that k has (shared) or lacks. */
static ZkcNest nest_of(const ZkcAttend *a, const ZkCall *c, bool shared) {
  const ZkView *views[ZKA_VIEWS];
  uint16_t ax[ZK_MAX_AXES];
  int n = 0, nviews = a->grad ? ZKA_VIEWS : ZKA_L + 1;
  for (int i = 0; i < nviews; i++) views[i] = a->v[i];
  for (int i = 0; i < a->v[ZKA_Q]->rank; i++) {
    uint16_t axis = a->v[ZKA_Q]->axis[i];
    if (axis != c->ax[0] && axis != c->ax[1] && has(a->v[ZKA_K], axis) == shared) ax[n++] = axis;
  }
  return zkc_nest(views, nviews, ax, n, true);
}

ZkcAttend zkc_attend_of(const ZkCall *c) {
  static const uint8_t forward[] = {ZKA_Q, ZKA_K, ZKA_V, ZKA_O, ZKA_L};
  static const uint8_t grad[] = {ZKA_G, ZKA_O, ZKA_L, ZKA_Q, ZKA_K, ZKA_V, ZKA_DQ, ZKA_DK, ZKA_DV};
  ZkcAttend a = {
      .grad = c->op == ZG_OP_ATTEND_GRAD, .causal = c->opt[0] == 1, .scale = (float)c->num[0], .s = c->ax[0]};
  for (int i = 0; i < c->nin + c->nout; i++)
    a.v[a.grad ? grad[i] : forward[i]] = i < c->nin ? &c->in[i] : &c->out[i - c->nin];
  for (int i = 0; i < ZKA_VIEWS; i++) {
    a.ss[i] = a.v[i] ? zkc_stride(a.v[i], c->ax[0]) : 0;
    a.hs[i] = a.v[i] ? zkc_stride(a.v[i], c->ax[1]) : 0;
  }
  a.S = zkc_size(a.v[ZKA_Q], c->ax[0]);
  a.H = zkc_size(a.v[ZKA_Q], c->ax[1]);
  ZB_ASSERT(zkc_size(a.v[ZKA_K], c->ax[0]) == a.S && zkc_size(a.v[ZKA_K], c->ax[1]) == a.H);
  a.heads = nest_of(&a, c, true);
  a.groups = nest_of(&a, c, false);
  return a;
}

void zk_cuda_attend(const ZkEnv *env, const ZkCall *c) {
  ZkcAttend a = zkc_attend_of(c);
  if (zkc_attend_rows(&a) && !zk_attend_dnn(env, c, &a)) zk_attend_own(env->device, c, &a);
}

void zk_cuda_attend_grad(const ZkEnv *env, const ZkCall *c) { zk_cuda_attend(env, c); }

void zk_cuda_attend_prepare(const ZkEnv *env, const ZkCall *c) {
  ZkcAttend a = zkc_attend_of(c);
  if (zkc_attend_rows(&a)) zk_attend_dnn_prepare(env->device, c);
}

size_t zk_cuda_attend_scratch(const ZkCall *c) {
  ZkcAttend a = zkc_attend_of(c);
  if (zkc_attend_rows(&a) == 0) return 0;
  size_t own = a.grad ? (size_t)zkc_attend_rows(&a) * sizeof(float) : 0, dnn = zk_attend_dnn_scratch(&a);
  return own > dnn ? own : dnn; /* which of them it is may depend on pointers */
}

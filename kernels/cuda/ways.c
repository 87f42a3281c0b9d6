/* What is done in a slower way than it might be, and why. Whoever prepares a call knows; here it is asked. */
#include "kernels/cuda/pointwise.h"

static double bytes_of(const ZkCall *c) {
  double bytes = 0;
  for (int i = 0; i < c->nin + c->nout; i++) {
    const ZkView *v = i < c->nin ? &c->in[i] : &c->out[i - c->nin];
    bytes += (double)zk_bytes((ZkElem)v->elem, (uint64_t)zkc_count(v));
  }
  return bytes;
}

double zk_cuda_parts_bytes(const ZkCall *call) {
  ZkUnfused u;
  double bytes = -bytes_of(call);
  zk_unfuse(call, &u);
  for (int i = 0; i < u.n; i++) bytes += bytes_of(&u.call[i]);
  return bytes > 0 ? bytes : 0;
}

static const char *no_programs(const ZkCuda *cu) {
  return *cu->no_programs ? cu->no_programs : "this build has no NVRTC";
}

bool zk_cuda_norm_way(const ZkEnv *env, const ZkCall *call, ZkWay *way) {
  if (!call->pointwise || zk_cuda_norm_joined(env, call)) return false;
  *way = (ZkWay){.what = "apart from what is joined to them",
                 .why = no_programs(env->device),
                 .bytes = zk_cuda_parts_bytes(call),
                 .unknown = true};
  return true;
}

bool zk_cuda_pointwise_way(const ZkEnv *env, const ZkCall *call, ZkWay *way) {
  if (zk_cuda_pointwise_compiled(env, call)) return false;
  *way = (ZkWay){.what = "by an interpreter", .why = no_programs(env->device), .unknown = true};
  return true;
}

bool zk_cuda_way(const ZkEnv *env, const ZkCall *call, ZkWay *way) {
  static const char no_library[] = "there are no others for it in this version";
  switch (call->op) {
  case ZG_OP_ATTEND:
  case ZG_OP_ATTEND_GRAD:
  case ZG_OP_ATTEND_BIAS_GRAD: return zk_cuda_attend_way(env, call, way);
  case ZG_OP_DOT:
  case ZG_OP_DOT_BIAS_GRAD: return zk_cuda_dot_way(env, call, way);
  case ZG_OP_NORMALIZE:
  case ZG_OP_NORMALIZE_GRAD:
  case ZG_OP_NORMALIZE_GRAD_SUMS: return zk_cuda_norm_way(env, call, way);
  case ZG_OP_POINTWISE: return zk_cuda_pointwise_way(env, call, way);
  case ZG_OP_CONV:
  case ZG_OP_CONV_GRAD:
  case ZG_OP_GROUPED_DOT:
  case ZG_OP_GROUPED_OUTER:
  case ZG_OP_LINEAR_ATTEND:
  case ZG_OP_LINEAR_ATTEND_GRAD:
    *way = (ZkWay){.what = "by our own kernels on units for f32", .why = no_library, .scalar = true};
    return true;
  default: return false;
  }
}

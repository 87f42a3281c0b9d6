/* Which calls are not done in the fastest way, and why. Whoever prepares a call knows; here it is asked. */
#include "kernels/cuda/pointwise.h"

static const char *no_programs(const ZkCuda *cu) {
  return *cu->no_programs ? cu->no_programs : "this build has no NVRTC";
}

bool zk_cuda_norm_fallback(const ZkEnv *env, const ZkCall *call, ZkFallback *how) {
  if (!call->pointwise || zk_cuda_norm_joined(env, call)) return false;
  *how = (ZkFallback){.what = "apart from what is joined to them",
                      .why = no_programs(env->device),
                      .parts = true,
                      .unknown = true};
  return true;
}

bool zk_cuda_pointwise_fallback(const ZkEnv *env, const ZkCall *call, ZkFallback *how) {
  if (zk_cuda_pointwise_compiled(env, call)) return false;
  *how = (ZkFallback){.what = "by an interpreter", .why = no_programs(env->device), .unknown = true};
  return true;
}

bool zk_cuda_fallback(const ZkEnv *env, const ZkCall *call, ZkFallback *how) {
  static const char no_library[] = "there are no others for it in this version";
  switch (call->op) {
  case ZG_OP_ATTEND:
  case ZG_OP_ATTEND_GRAD:
  case ZG_OP_ATTEND_BIAS_GRAD: return zk_cuda_attend_fallback(env, call, how);
  case ZG_OP_DOT:
  case ZG_OP_DOT_BIAS_GRAD: return zk_cuda_dot_fallback(env, call, how);
  case ZG_OP_NORMALIZE:
  case ZG_OP_NORMALIZE_GRAD:
  case ZG_OP_NORMALIZE_GRAD_SUMS: return zk_cuda_norm_fallback(env, call, how);
  case ZG_OP_POINTWISE: return zk_cuda_pointwise_fallback(env, call, how);
  case ZG_OP_CONV:
  case ZG_OP_CONV_GRAD:
  case ZG_OP_GROUPED_DOT:
  case ZG_OP_GROUPED_OUTER:
  case ZG_OP_LINEAR_ATTEND:
  case ZG_OP_LINEAR_ATTEND_GRAD:
    *how = (ZkFallback){.what = "by our own kernels on units for f32", .why = no_library, .scalar = true};
    return true;
  default: return false;
  }
}

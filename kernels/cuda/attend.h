/* What the files of `attend` and `attend_grad` share. attend.c looks at a call and decides who computes it.
 * */
#ifndef ZUG_KERNELS_CUDA_ATTEND_H
#define ZUG_KERNELS_CUDA_ATTEND_H

#include "kernels/cuda/host.h"

/* The views, in this order; attend has the first five. G is the cotangent of O. */
enum { ZKA_Q, ZKA_K, ZKA_V, ZKA_O, ZKA_L, ZKA_G, ZKA_DQ, ZKA_DK, ZKA_DV, ZKA_VIEWS };

typedef struct {
  const ZkView *v[ZKA_VIEWS]; /* NULL: not in this call */
  bool grad, causal;
  float scale;
  uint16_t s;                           /* the axis of positions */
  int64_t S, H;                         /* positions, and elements of a head */
  ZkcNest heads, groups;                /* axes of q that k has; that k lacks */
  int64_t ss[ZKA_VIEWS], hs[ZKA_VIEWS]; /* strides along positions and along h */
} ZkcAttend;

/* ---- attend.c ------------------------------------------------------------------------------------------ */
ZkcAttend zkc_attend_of(const ZkCall *call);
static inline int64_t zkc_attend_rows(const ZkcAttend *a) {
  return (int64_t)a->heads.count * a->groups.count * a->S;
}

/* ---- attend_cudnn.c ------------------------------------------------------------------------------------ */
/* False if there is no cuDNN, or if it does not support the call: then nothing was done. */
bool zk_attend_dnn(const ZkEnv *env, const ZkCall *call, const ZkcAttend *a);
void zk_attend_dnn_prepare(ZkCuda *cu, const ZkCall *call);
size_t zk_attend_dnn_scratch(const ZkcAttend *a);
/* Only where cuDNN is: does it support the call on the device that the text (JSON) describes, which need not
 * be here? Also the workspace that its plan wants, and into how many pieces the heads are cut. */
bool zk_attend_dnn_plan(const ZkCall *call, const char *device, int64_t *workspace, int *pieces);

/* ---- attend.cu: any call. Scratch: a float for each row of q, where there are gradients. --------------- */
void zk_attend_own(ZkCuda *cu, const ZkCall *call, const ZkcAttend *a);

#endif

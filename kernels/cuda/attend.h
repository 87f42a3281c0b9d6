/* What the files of `attend` and `attend_grad` share. attend.c looks at a call and decides who computes
 * it. */
#ifndef ZUG_KERNELS_CUDA_ATTEND_H
#define ZUG_KERNELS_CUDA_ATTEND_H

#include "kernels/attend.h"
#include "kernels/cuda/host.h"

/* The views, in this order; attend has the first five and the last five. G is the cotangent of O. Bias and
 * its gradient; documents of queries and of keys; sinks; prefix; DELTA is in scratch: sum_w g o of each
 * query. */
enum {
  ZKA_Q,
  ZKA_K,
  ZKA_V,
  ZKA_O,
  ZKA_L,
  ZKA_G,
  ZKA_DQ,
  ZKA_DK,
  ZKA_DV,
  ZKA_DELTA,
  ZKA_DBIAS,
  ZKA_BIAS,
  ZKA_DOCS_Q,
  ZKA_DOCS_K,
  ZKA_SINKS,
  ZKA_PREFIX,
  ZKA_VIEWS
};
/* Macros, since the host and the device ask. */
#define ZKA_OF_KEYS(v) ((v) == ZKA_K || (v) == ZKA_V || (v) == ZKA_DK || (v) == ZKA_DV || (v) == ZKA_DOCS_K)
#define ZKA_OF_VALUES(v) ((v) == ZKA_V || (v) == ZKA_O || (v) == ZKA_G || (v) == ZKA_DV)
#define ZKA_IS_BIAS(v) ((v) == ZKA_BIAS || (v) == ZKA_DBIAS)

typedef struct {
  const ZkView *v[ZKA_VIEWS]; /* NULL: not in this call */
  bool grad, bias_grad, causal;
  float scale, cap;     /* cap 0: none */
  int64_t window;       /* 0: none */
  int64_t first, ahead; /* as ZkAttention's */
  bool on;              /* results go on from what they are */
  bool more;            /* scores are more than scale q.k, or seen otherwise than all or causally */
  bool one;             /* one sequence, and values as wide as keys */
  bool repeatable;      /* as ZkCall's, as `room` is */
  int64_t room;
  ZgAttendAxes ax;
  int64_t S, K, H, W;                   /* queries, keys; features of them, and of values */
  ZkcNest heads, groups;                /* axes of q that k has; that k lacks */
  ZkcNest own, shared;                  /* the same axes otherwise: those that a bias has; that it lacks */
  int64_t ss[ZKA_VIEWS], hs[ZKA_VIEWS]; /* strides along positions and features (of a bias: queries, keys) */
  int64_t skip[ZKA_VIEWS];              /* elements before the first key's, or query's */
  ZkView delta;                         /* DELTA, without its memory */
} ZkcAttend;

/* ---- attend.c ------------------------------------------------------------------------------------------ */
void zkc_attend_of(const ZkCall *call, ZkcAttend *a);
static inline int64_t zkc_attend_rows(const ZkcAttend *a) {
  return (int64_t)a->heads.count * a->groups.count * a->S;
}

/* Whether rows of view v can be moved 16 bytes a time. */
bool zkc_attend_wide(const ZkcAttend *a, int v);
/* Whether it is a gradient for which attend_mma.cu has kernels. */
bool zkc_attend_mma(const ZkcAttend *a);

/* ---- attend_cudnn.c ------------------------------------------------------------------------------------ */
/* False if there is no cuDNN, or if it does not support the call: then nothing was done. */
/* Why cuDNN does not compute the call; NULL: it does. */
const char *zk_attend_dnn_why(ZkCuda *cu, const ZkCall *call);
bool zk_attend_dnn(const ZkEnv *env, const ZkCall *call, const ZkcAttend *a);
void zk_attend_dnn_prepare(ZkCuda *cu, const ZkCall *call);
size_t zk_attend_dnn_scratch(const ZkcAttend *a);
/* How heads are cut into pieces on a GPU that cuDNN is trusted with, and what is moved besides operands and
 * results. False: it does not do the call. */
typedef struct {
  int64_t heads, pieces; /* of queries in a piece */
  double bytes;          /* of all pieces */
} ZkcPieces;
bool zk_attend_dnn_pieces(const ZkcAttend *a, ZkcPieces *p);
/* Only where cuDNN is: does it support the call on the device that the text (JSON) describes, which need not
 * be here? Also the workspace that its plan wants, and into how many pieces the heads are cut. */
bool zk_attend_dnn_plan(const ZkCall *call, const char *device, int64_t *workspace, int *pieces);

/* ---- attend.cu: any call. Scratch: a float for each row of q, where there are gradients. --------------- */
void zk_attend_own(ZkCuda *cu, const ZkCall *call, const ZkcAttend *a);

#endif

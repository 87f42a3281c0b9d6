/* What the files that know CUDA share: cuda.c, cuda_peak.c, nccl.c. */
#ifndef ZUG_EXEC_CUDA_H
#define ZUG_EXEC_CUDA_H

#include <cuda_runtime_api.h>

#include "kernels/cuda/optimize.h"
#include "runtime/exec/device/device.h"
#include "runtime/plan/plan.h" /* queues */

typedef struct {
  ZkCuda *cu; /* ZkEnv's device; its `owner` is this */
  int device, current;
  bool shared; /* with a rank of a lower number, or each rank sees one of its own only */
  cudaStream_t stream[ZP_QUEUES];
  cudaEvent_t *event;
  uint32_t nevents;
  cudaEvent_t fork[ZP_QUEUES];      /* how streams come into a captured step, and out of it */
  cudaGraphExec_t graph[ZX_GRAPHS]; /* captured steps */
  uint32_t at;                      /* the one in use */
  uint64_t nodes;                   /* of the last that was captured */
  char text[512];
  bool failed;
  char failure[512]; /* the first call that failed, and why */
} ZxCuda;

static inline ZxCuda *zx_cuda(const ZkEnv *env) { return ((ZkCuda *)env->device)->owner; }
static inline cudaStream_t zx_cuda_stream(const ZkEnv *env) {
  return zx_cuda(env)->stream[zx_cuda(env)->current];
}

/* cuda_peak.c */
double zx_cuda_measure_flops(const ZkEnv *env, ZkElem elem, int ms);
double zx_cuda_measure_copy(const ZkEnv *env, int ms);

#ifdef HAVE_NCCL
/* nccl.c, as ZxDeviceTable's `comm`. */
ZxComm *zx_comm_nccl(ZxComm *world, ZkEnv *env, const char **why);
const char *zx_nccl_version(void); /* "2.28.9" */
#endif

#endif

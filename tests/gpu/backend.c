/* The CUDA kernels as a back end, on the GPU: buffers are memory that both sides see. One context for all
 * calls of a test:
 * every test is a process. */
#include <cuda_runtime_api.h>
#include <unistd.h>

#include "kernels/cuda/cuda.h"
#include "tests/gpu/backend.h"
#include "tests/unit/kernels/conform.h"

static bool lacks(int op) { return zk_cuda_kernel(op) == NULL; }

ZkCuda *gpu_context(void) {
  static ZkCuda *cu;
  static pid_t owner; /* Criterion forks */
  if (cu && owner == getpid()) return cu;
  ZbErr err = {0};
  cu = zk_cuda_new(0, &err);
  cr_assert(cu != NULL, "%s", err.text);
  owner = getpid();
  return cu;
}

static void *get(size_t bytes) {
  void *p = NULL;
  gpu_context();
  cudaError_t e = cudaMallocManaged(&p, bytes, cudaMemAttachGlobal);
  cr_assert(e == cudaSuccess, "%s", cudaGetErrorString(e));
  return p;
}

static void give_back(void *p) { cudaFree(p); }

static int open_device(ZkEnv *env, int way) {
  (void)way;
  env->device = gpu_context();
  return 1;
}

static void close_device(ZkEnv *env) {
  ZkCuda *cu = env->device;
  cudaError_t e = cudaStreamSynchronize(cu->stream);
  const char *error = zk_cuda_error(cu);
  cr_assert(e == cudaSuccess && !error, "%s", error ? error : cudaGetErrorString(e));
}

const Backend backend = {.name = "cuda",
                         .kernel = zk_cuda_kernel,
                         .scratch = zk_cuda_scratch,
                         .lacks = lacks,
                         .ways = 1,
                         .open = open_device,
                         .close = close_device,
                         .get = get,
                         .give_back = give_back,
                         .odd = true};

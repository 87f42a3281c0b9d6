/* Kernels of programs that are compiled while a run starts, one for each text. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/chain.h"

#ifdef HAVE_NVRTC
#include <cuda_runtime_api.h>

typedef struct ZkCudaProgram ZkCudaProgram;
struct ZkCudaProgram {
  ZkCudaProgram *next;
  char *text;
  void *cubin;
  cudaLibrary_t library;
  cudaKernel_t kernel;
};

static bool build(ZkCuda *cu, const ZkCall *call, ZkCudaProgram *p) {
  ZbErr err;
  size_t bytes;
  if (!zk_cuda_compile(p->text, cu->arch, &p->cubin, &bytes, &err)) {
    zk_cuda_fail(cu, call, "its program", err.text);
    return false;
  }
  cudaError_t status = cudaLibraryLoadData(&p->library, p->cubin, NULL, NULL, 0, NULL, NULL, 0);
  if (status == cudaSuccess) status = cudaLibraryGetKernel(&p->kernel, p->library, ZK_CHAIN_NAME);
  if (status != cudaSuccess) zk_cuda_fail(cu, call, "loading its program", cudaGetErrorString(status));
  return status == cudaSuccess;
}

struct CUkern_st *zk_cuda_program(ZkCuda *cu, const ZkCall *call, const char *text) {
  for (ZkCudaProgram *p = cu->programs; p; p = p->next)
    if (strcmp(p->text, text) == 0) return p->kernel;
  ZkCudaProgram *p = calloc(1, sizeof *p);
  ZB_ASSERT(p != NULL);
  p->text = strdup(text);
  ZB_ASSERT(p->text != NULL);
  p->next = cu->programs;
  cu->programs = p;
  if (!build(cu, call, p)) p->kernel = NULL;
  return p->kernel;
}

void zk_cuda_program_launch(ZkCuda *cu, const ZkCall *call, struct CUkern_st *kernel, unsigned blocks,
                            unsigned threads, void **args) {
  if (cu->failed || blocks == 0) return;
  dim3 grid = {blocks, 1, 1}, block = {threads, 1, 1};
  cudaError_t status = cudaLaunchKernel((const void *)kernel, grid, block, args, 0, cu->stream);
  if (status != cudaSuccess) zk_cuda_fail(cu, call, "its program", cudaGetErrorString(status));
}

void zk_cuda_program_forget(ZkCuda *cu) {
  for (ZkCudaProgram *p = cu->programs, *next; p; p = next) {
    next = p->next;
    if (p->library) cudaLibraryUnload(p->library);
    free(p->cubin);
    free(p->text);
    free(p);
  }
  cu->programs = NULL;
}

#else
struct CUkern_st *zk_cuda_program(ZkCuda *cu, const ZkCall *call, const char *text) {
  (void)cu, (void)call, (void)text;
  return NULL;
}
void zk_cuda_program_launch(ZkCuda *cu, const ZkCall *call, struct CUkern_st *kernel, unsigned blocks,
                            unsigned threads, void **args) {
  (void)kernel, (void)blocks, (void)threads, (void)args;
  zk_cuda_fail(cu, call, "its program", "programs cannot be compiled in this build");
}
void zk_cuda_program_forget(ZkCuda *cu) { (void)cu; }
#endif

/* Kernels of programs that are compiled while a run starts, one for each text. Where NVRTC or the driver
 * cannot, as without NVRTC's library of built-in functions, which it looks for only when it compiles, others
 * take over and a line says so. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/pointwise.h"

#ifdef HAVE_NVRTC
#include <cuda_runtime_api.h>

typedef struct ZkCudaProgram ZkCudaProgram;
struct ZkCudaProgram {
  ZkCudaProgram *next;
  char *text;
  void *code;
  cudaLibrary_t library;
  cudaKernel_t kernel;
};

/* Asking for its attributes loads the kernel, which is otherwise left until it is first launched (lazy
 * loading): by then a step may be being captured, and what cannot be loaded should be known here. */
static cudaError_t load(ZkCudaProgram *p) {
  struct cudaFuncAttributes a;
  cudaError_t status = cudaLibraryLoadData(&p->library, p->code, NULL, NULL, 0, NULL, NULL, 0);
  if (status == cudaSuccess) status = cudaLibraryGetKernel(&p->kernel, p->library, ZK_POINTWISE_NAME);
  if (status == cudaSuccess) status = cudaFuncGetAttributes(&a, (const void *)p->kernel);
  return status;
}

static bool build(ZkCuda *cu, ZkCudaProgram *p) {
  static const char without[] = "elementwise operations are interpreted, which is slower";
  ZbErr err;
  size_t bytes;
  if (!zk_cuda_compile(p->text, cu->arch, &p->code, &bytes, &err)) {
    zk_cuda_note(cu, without, err.text);
    return false;
  }
  cudaError_t status = load(p);
  if (status == cudaSuccess) return true;
  (void)cudaGetLastError(); /* it is no error of the run */
  zk_cuda_note(cu, without, cudaGetErrorString(status));
  return false;
}

struct CUkern_st *zk_cuda_program(ZkCuda *cu, const ZkCall *call, const char *text) {
  (void)call;
  for (ZkCudaProgram *p = cu->programs; p; p = p->next)
    if (strcmp(p->text, text) == 0) return p->kernel;
  ZkCudaProgram *p = calloc(1, sizeof *p);
  ZB_ASSERT(p != NULL);
  p->text = strdup(text);
  ZB_ASSERT(p->text != NULL);
  p->next = cu->programs;
  cu->programs = p;
  if (!build(cu, p)) p->kernel = NULL;
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
    free(p->code);
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

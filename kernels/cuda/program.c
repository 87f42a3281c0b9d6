/* Kernels of programs that are compiled while a run starts, one for each text. Where NVRTC or the driver
 * cannot, as without NVRTC's library of built-in functions, which it looks for only when it compiles, others
 * take over, and the context keeps why (zk_cuda_fallback).
 *
 * The runtime loads such code itself since CUDA 12.8 only. The driver always did: its functions are asked for
 * by name through the runtime, so that nothing here is linked with libcuda, which machines without a GPU
 * lack. Their modules are of the device's primary context, which is the runtime's own and current since
 * cudaSetDevice. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/pointwise.h"

#ifdef HAVE_NVRTC
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

typedef struct ZkCudaProgram ZkCudaProgram;
struct ZkCudaProgram {
  ZkCudaProgram *next;
  char *text;
  void *code;
  CUmodule module;
  CUfunction kernel; /* NULL: there is none */
};

/* ---- the driver ---------------------------------------------------------------------------------------- */
typedef struct {
  PFN_cuModuleLoadData_v2000 load;
  PFN_cuModuleGetFunction_v2000 find;
  PFN_cuFuncGetAttribute_v2020 look;
  PFN_cuLaunchKernel_v4000 launch;
  PFN_cuModuleUnload_v2000 unload;
  PFN_cuGetErrorString_v6000 say;
} Driver;

/* As the driver of CUDA 12.0 has the function, whatever came later. */
static bool entry(const char *name, void **to) {
  enum cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
  cudaError_t status = cudaGetDriverEntryPointByVersion(name, to, 12000, cudaEnableLegacyStream, &found);
#else
  cudaError_t status = cudaGetDriverEntryPoint(name, to, cudaEnableLegacyStream, &found);
#endif
  if (status != cudaSuccess) (void)cudaGetLastError(); /* it is no error of the run */
  return status == cudaSuccess && found == cudaDriverEntryPointSuccess && *to;
}

/* NULL: the driver lacks one of them. The same for all devices. */
static const Driver *driver(void) {
  static Driver d;
  static int state; /* -1: it lacks some; 1: found */
  if (state == 0)
    state = entry("cuModuleLoadData", (void **)&d.load) && entry("cuModuleGetFunction", (void **)&d.find) &&
                    entry("cuFuncGetAttribute", (void **)&d.look) &&
                    entry("cuLaunchKernel", (void **)&d.launch) &&
                    entry("cuModuleUnload", (void **)&d.unload) && entry("cuGetErrorString", (void **)&d.say)
                ? 1
                : -1;
  return state > 0 ? &d : NULL;
}

static const char *words(CUresult status) {
  const char *text = NULL;
  return driver()->say(status, &text) == CUDA_SUCCESS && text ? text : "an unknown error";
}

/* ---- programs ------------------------------------------------------------------------------------------ */
/* The first reason is kept. Returns false. */
__attribute__((format(printf, 2, 3))) static bool keep_why(ZkCuda *cu, const char *fmt, ...) {
  va_list list;
  va_start(list, fmt);
  if (!*cu->no_programs) vsnprintf(cu->no_programs, sizeof cu->no_programs, fmt, list);
  va_end(list);
  return false;
}

/* Asking for an attribute loads the kernel, which is otherwise left until it is first launched (lazy
 * loading): by then a step may be being captured, and what cannot be loaded should be known here. */
static bool load(ZkCuda *cu, ZkCudaProgram *p) {
  const Driver *d = driver();
  int threads;
  if (!d) return keep_why(cu, "the driver does not say how programs are loaded");
  CUresult status = d->load(&p->module, p->code);
  if (status != CUDA_SUCCESS) p->module = NULL;
  else status = d->find(&p->kernel, p->module, ZK_POINTWISE_NAME);
  if (status == CUDA_SUCCESS) status = d->look(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, p->kernel);
  return status == CUDA_SUCCESS || keep_why(cu, "a program does not load: %s", words(status));
}

/* Where there is no device one program stands for all. */
static bool build(ZkCuda *cu, ZkCudaProgram *p) {
  ZbErr err;
  size_t bytes;
  if (cu->pretend && p->next) return p->next->kernel;
  if (!zk_cuda_compile(p->text, cu->arch, &p->code, &bytes, &err)) return keep_why(cu, "%s", err.text);
  return cu->pretend || load(cu, p);
}

struct CUfunc_st *zk_cuda_program(ZkCuda *cu, const ZkCall *call, const char *text) {
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
  else if (cu->pretend) p->kernel = (struct CUfunc_st *)(void *)p; /* none that can be launched */
  return p->kernel;
}

void zk_cuda_program_launch(ZkCuda *cu, const ZkCall *call, struct CUfunc_st *kernel, unsigned blocks,
                            unsigned threads, void **args) {
  if (cu->failed || blocks == 0) return;
  CUresult status = driver()->launch(kernel, blocks, 1, 1, threads, 1, 1, 0, cu->stream, args, NULL);
  if (status != CUDA_SUCCESS) zk_cuda_fail(cu, call, "its program", words(status));
}

void zk_cuda_program_forget(ZkCuda *cu) {
  for (ZkCudaProgram *p = cu->programs, *next; p; p = next) {
    next = p->next;
    if (p->module) driver()->unload(p->module);
    free(p->code);
    free(p->text);
    free(p);
  }
  cu->programs = NULL;
}

#else
struct CUfunc_st *zk_cuda_program(ZkCuda *cu, const ZkCall *call, const char *text) {
  (void)cu, (void)call, (void)text;
  return NULL;
}
void zk_cuda_program_launch(ZkCuda *cu, const ZkCall *call, struct CUfunc_st *kernel, unsigned blocks,
                            unsigned threads, void **args) {
  (void)kernel, (void)blocks, (void)threads, (void)args;
  zk_cuda_fail(cu, call, "its program", "programs cannot be compiled in this build");
}
void zk_cuda_program_forget(ZkCuda *cu) { (void)cu; }
#endif

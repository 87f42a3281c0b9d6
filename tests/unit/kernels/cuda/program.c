/* program.c, and what it does where NVRTC or the driver cannot. The driver's part is this file's. */
#include <criterion/criterion.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cuda/pointwise.h"

static int loaded, unloaded, launched;
static cudaError_t loads, gets, looks; /* what it says to each */

cudaError_t cudaLibraryLoadData(cudaLibrary_t *to, const void *code, enum cudaJitOption *jit,
                                void **jit_values, unsigned njit, enum cudaLibraryOption *options,
                                void **values, unsigned n) {
  (void)jit, (void)jit_values, (void)options, (void)values;
  cr_assert(code != NULL && njit == 0 && n == 0);
  return loads ? loads : (loaded++, *to = (cudaLibrary_t)(void *)&loaded, cudaSuccess);
}
cudaError_t cudaLibraryUnload(cudaLibrary_t l) { return (void)l, unloaded++, cudaSuccess; }
cudaError_t cudaLibraryGetKernel(cudaKernel_t *to, cudaLibrary_t l, const char *name) {
  cr_assert((void *)l == &loaded && strcmp(name, ZK_POINTWISE_NAME) == 0);
  return gets ? gets : (*to = (cudaKernel_t)(void *)&launched, cudaSuccess);
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *kernel) {
  cr_assert(kernel == &launched);
  return memset(a, 0, sizeof *a), looks;
}
cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                             cudaStream_t s) {
  (void)args, (void)s;
  cr_assert(kernel == &launched && grid.x == 7 && block.x == 32 && shared == 0);
  return launched++, cudaSuccess;
}
const char *cudaGetErrorString(cudaError_t e) { return e ? "that does not load here" : "fine"; }
#ifndef HAVE_CUBLASLT /* else fake_lt.c has it */
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
#endif

/* The linker has put the emulator's in their place. */
struct CUkern_st *__real_zk_cuda_program(ZkCuda *cu, const ZkCall *call, const char *text);
void __real_zk_cuda_program_launch(ZkCuda *cu, const ZkCall *call, struct CUkern_st *kernel, unsigned blocks,
                                   unsigned threads, void **args);

static const char text[] = "extern \"C\" __global__ void zk_pointwise(float *x) { *x = 1; }";

/* What is said meanwhile, in lines. */
static FILE *said;
static void listen(void) {
  said = tmpfile();
  cr_assert(said != NULL && dup2(fileno(said), 2) == 2);
}
static int lines(void) {
  int n = 0, c;
  fflush(stderr), rewind(said);
  while ((c = getc(said)) != EOF) n += c == '\n';
  return n;
}

Test(program, kernel) {
  ZkCuda cu = {.arch = 90, .name = "a GPU"};
  listen();
  struct CUkern_st *k = __real_zk_cuda_program(&cu, NULL, text);
  cr_assert(k != NULL && __real_zk_cuda_program(&cu, NULL, text) == k && loaded == 1);
  __real_zk_cuda_program_launch(&cu, NULL, k, 0, 32, NULL);
  __real_zk_cuda_program_launch(&cu, NULL, k, 7, 32, NULL);
  cr_assert(launched == 1 && !cu.failed && lines() == 0);
  zk_cuda_program_forget(&cu);
  cr_assert(unloaded == 1 && cu.programs == NULL);
}

/* No run fails for it; it is said once, however many programs there are. */
Test(program, without) {
  listen();
  static cudaError_t *const fails[] = {&loads, &gets, &looks};
  for (int i = 0; i < 4; i++) {
    ZkCuda cu = {.arch = i < 3 ? 90 : 70, .name = "a GPU"}; /* NVRTC compiles for nothing as old */
    char other[200];
    if (i < 3) *fails[i] = cudaErrorNoKernelImageForDevice;
    snprintf(other, sizeof other, "%s\n", text);
    cr_assert(__real_zk_cuda_program(&cu, NULL, text) == NULL &&
              __real_zk_cuda_program(&cu, NULL, other) == NULL);
    cr_assert(__real_zk_cuda_program(&cu, NULL, text) == NULL && !cu.failed);
    cr_assert(lines() == i + 1, "%d lines", lines());
    zk_cuda_program_forget(&cu);
    if (i < 3) *fails[i] = cudaSuccess;
  }
  cr_assert(unloaded == loaded);
}

/* For a generation that NVRTC knows, machine code; for a later one, the driver's to compile. */
Test(program, generations) {
  static const int archs[] = {80, 86, 89, 90, 999};
  ZbErr err;
  for (int i = 0; i < 5; i++) {
    void *code;
    size_t bytes;
    cr_assert(zk_cuda_compile(text, archs[i], &code, &bytes, &err), "%s", err.text);
    const char *t = code;
    if (archs[i] < 999) cr_assert(memcmp(t, "\177ELF", 4) == 0);
    else
      cr_assert(t[bytes - 1] == 0 && strstr(t, ".target sm_") && strstr(t, ".entry zk_pointwise"), "%s", t);
    free(code);
  }
  void *code;
  size_t bytes;
  cr_assert(!zk_cuda_compile(text, 50, &code, &bytes, &err) && code == NULL);
}

/* program.c, and what it does where NVRTC or the driver cannot. The driver is this file. */
#include <criterion/criterion.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/pointwise.h"

static int loaded, unloaded, launched;
static CUresult loads, gets, looks; /* what it says to each */
static const char *lacks;           /* an entry point */

static CUresult load(CUmodule *to, const void *code) {
  cr_assert(code != NULL);
  return loads ? loads : (loaded++, *to = (CUmodule)(void *)&loaded, CUDA_SUCCESS);
}
static CUresult unload(CUmodule m) { return (void)m, unloaded++, CUDA_SUCCESS; }
static CUresult find(CUfunction *to, CUmodule m, const char *name) {
  cr_assert((void *)m == &loaded && strcmp(name, ZK_POINTWISE_NAME) == 0);
  return gets ? gets : (*to = (CUfunction)(void *)&launched, CUDA_SUCCESS);
}
static CUresult look(int *to, CUfunction_attribute what, CUfunction kernel) {
  (void)what;
  cr_assert((void *)kernel == &launched);
  return *to = 1024, looks;
}
static CUresult launch(CUfunction kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                       unsigned bz, unsigned shared, CUstream s, void **args, void **extra) {
  (void)s, (void)args;
  cr_assert((void *)kernel == &launched && gx == 7 && gy * gz == 1 && bx == 32 && by * bz == 1);
  cr_assert(shared == 0 && extra == NULL);
  return launched++, CUDA_SUCCESS;
}
static CUresult say(CUresult e, const char **text) {
  return *text = e ? "that does not load here" : "fine", CUDA_SUCCESS;
}

static cudaError_t entry(const char *name, void **to, enum cudaDriverEntryPointQueryResult *found) {
  const struct {
    const char *name;
    void *at;
  } known[] = {{"cuModuleLoadData", (void *)load},    {"cuModuleUnload", (void *)unload},
               {"cuModuleGetFunction", (void *)find}, {"cuFuncGetAttribute", (void *)look},
               {"cuLaunchKernel", (void *)launch},    {"cuGetErrorString", (void *)say}};
  *to = NULL, *found = cudaDriverEntryPointSymbolNotFound;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(known[i].name, name) == 0 && !(lacks && strcmp(lacks, name) == 0))
      *to = known[i].at, *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **to, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found) {
  cr_assert(version == 12000 && flags == cudaEnableLegacyStream);
  return entry(name, to, found);
}
#else
cudaError_t cudaGetDriverEntryPoint(const char *name, void **to, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *found) {
  cr_assert(flags == cudaEnableLegacyStream);
  return entry(name, to, found);
}
#endif
#ifndef HAVE_CUBLASLT /* else fake_lt.c has it */
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
#endif

/* The linker has put the emulator's in their place. */
struct CUfunc_st *__real_zk_cuda_program(ZkCuda *cu, const ZkCall *call, const char *text);
void __real_zk_cuda_program_launch(ZkCuda *cu, const ZkCall *call, struct CUfunc_st *kernel, unsigned blocks,
                                   unsigned threads, void **args);

static const char text[] = "extern \"C\" __global__ void zk_pointwise(float *x) { *x = 1; }";

Test(program, kernel) {
  ZkCuda cu = {.arch = 90, .name = "a GPU"};
  struct CUfunc_st *k = __real_zk_cuda_program(&cu, NULL, text);
  cr_assert(k != NULL && __real_zk_cuda_program(&cu, NULL, text) == k && loaded == 1);
  __real_zk_cuda_program_launch(&cu, NULL, k, 0, 32, NULL);
  __real_zk_cuda_program_launch(&cu, NULL, k, 7, 32, NULL);
  cr_assert(launched == 1 && !cu.failed && !*cu.no_programs);
  zk_cuda_program_forget(&cu);
  cr_assert(unloaded == 1 && cu.programs == NULL);
}

/* No run fails for it; why is kept, the first time. */
Test(program, without) {
  static CUresult *const fails[] = {&loads, &gets, &looks};
  for (int i = 0; i < 4; i++) {
    ZkCuda cu = {.arch = i < 3 ? 90 : 70, .name = "a GPU"}; /* NVRTC compiles for nothing as old */
    char other[200];
    if (i < 3) *fails[i] = CUDA_ERROR_NO_BINARY_FOR_GPU;
    snprintf(other, sizeof other, "%s\n", text);
    cr_assert(__real_zk_cuda_program(&cu, NULL, text) == NULL &&
              __real_zk_cuda_program(&cu, NULL, other) == NULL);
    cr_assert(__real_zk_cuda_program(&cu, NULL, text) == NULL && !cu.failed);
    cr_assert(strstr(cu.no_programs, i < 3 ? "a program does not load: that does not load here" : "NVRTC:"),
              "%s", cu.no_programs);
    zk_cuda_program_forget(&cu);
    if (i < 3) *fails[i] = CUDA_SUCCESS;
  }
  cr_assert(unloaded == loaded);
}

/* A driver without one of the functions; and no device at all, where one program stands for all. */
Test(program, driver) {
  ZkCuda cu = {.arch = 90, .pretend = true};
  cr_assert(__real_zk_cuda_program(&cu, NULL, text) != NULL && loaded == 0 && !*cu.no_programs);
  cr_assert(__real_zk_cuda_program(&cu, NULL, "what is compiled nowhere") != NULL);
  zk_cuda_program_forget(&cu);
  cu.pretend = false, lacks = "cuFuncGetAttribute";
  cr_assert(__real_zk_cuda_program(&cu, NULL, text) == NULL && strstr(cu.no_programs, "the driver"));
  zk_cuda_program_forget(&cu);
  cr_assert(loaded == 0 && unloaded == 0);
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

/* Preloaded, it gives every process a GPU of another name, so that NCCL is tried even where they share one. */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

/* The function itself is in the CUDA runtime that the module has loaded, which RTLD_NEXT does not see. (CUDA 12 makes
 * its name a macro for another.) */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
  char file[32];
  snprintf(file, sizeof file, "libcudart.so.%d", CUDART_VERSION / 1000);
  void *runtime = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
  cudaError_t (*real)(struct cudaDeviceProp *, int) = NULL;
  if (runtime) *(void **)&real = dlsym(runtime, TEXT(cudaGetDeviceProperties));
  if (!real) return cudaErrorSharedObjectSymbolNotFound;
  cudaError_t e = real(p, device);
  int me = (int)getpid();
  memcpy(&p->uuid, &me, sizeof me);
  return e;
}

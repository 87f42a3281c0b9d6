/* Gives every process a GPU with a name of its own, so that NCCL is tried even where they share one. */
#include <cuda_runtime_api.h>
#include <string.h>
#include <unistd.h>

/* cudaGetDeviceProperties is a macro for the other name in CUDA 12. */
cudaError_t __real_cudaGetDeviceProperties(struct cudaDeviceProp *p, int device);
cudaError_t __wrap_cudaGetDeviceProperties(struct cudaDeviceProp *p, int device);
cudaError_t __real_cudaGetDeviceProperties_v2(struct cudaDeviceProp *p, int device);
cudaError_t __wrap_cudaGetDeviceProperties_v2(struct cudaDeviceProp *p, int device);

static cudaError_t rename_to_process(cudaError_t e, struct cudaDeviceProp *p) {
  int me = (int)getpid();
  memcpy(&p->uuid, &me, sizeof me);
  return e;
}

#if CUDART_VERSION >= 13000
cudaError_t __wrap_cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
  return rename_to_process(__real_cudaGetDeviceProperties(p, device), p);
}
#else
cudaError_t __wrap_cudaGetDeviceProperties_v2(struct cudaDeviceProp *p, int device) {
  return rename_to_process(__real_cudaGetDeviceProperties_v2(p, device), p);
}
#endif

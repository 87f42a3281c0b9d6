/* The CUDA runtime beside fake_lt.c, as much of it as kernels/cuda/dot_trial.c calls. Time passes only while
 * products are computed. */
#ifdef HAVE_CUBLASLT
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/kernels/cuda/fake_lt.h"

static size_t taken;

cudaError_t cudaMemGetInfo(size_t *left, size_t *total) {
  *total = fake_lt.memory ? fake_lt.memory : (size_t)1 << 34;
  return *left = *total - taken, cudaSuccess;
}
/* Sizes are kept before blocks. */
cudaError_t cudaMalloc(void **p, size_t bytes) {
  char *block = fake_lt.no_memory ? NULL : aligned_alloc(256, 256 + (bytes + 255) / 256 * 256);
  *p = block ? block + 256 : NULL;
  if (!block) return cudaErrorMemoryAllocation;
  memcpy(block, &bytes, sizeof bytes);
  taken += bytes;
  if (taken > fake_lt.most_taken) fake_lt.most_taken = taken;
  return cudaSuccess;
}
cudaError_t cudaFree(void *p) {
  size_t bytes = 0;
  if (!p) return cudaSuccess;
  memcpy(&bytes, (char *)p - 256, sizeof bytes);
  taken -= bytes;
  return free((char *)p - 256), cudaSuccess;
}
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
cudaError_t cudaMemsetAsync(void *p, int byte, size_t n, cudaStream_t s) {
  fake_lt.cold |= n > FAKE_LT_CACHE;
  return (void)s, memset(p, byte, n), cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind kind, cudaStream_t s) {
  return (void)s, (void)kind, memcpy(to, from, n), cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) { return (void)s, cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t *e) { return *e = malloc(sizeof fake_lt.now), cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t e) { return free(e), cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  return (void)s, *(int64_t *)e = fake_lt.now, cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) { return (void)e, cudaSuccess; }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
  return *ms = (float)(*(int64_t *)to - *(int64_t *)from), cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status) {
  return (void)s, *status = cudaStreamCaptureStatusNone, cudaSuccess;
}
#endif

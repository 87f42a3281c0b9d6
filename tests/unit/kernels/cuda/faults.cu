/* Kernels with planted mistakes, and right ones beside them, for the test of the emulator. */
#include "kernels/cuda/common.cuh"

/* y[i] = x[n - 1 - i] through shared memory. */
static __global__ void reverse(const float *x, float *y, int n, bool wait) {
  ZK_SHARED(float, s, [64]);
  int i = (int)threadIdx.x;
  s[i] = x[i];
  if (wait) __syncthreads();
  y[i] = s[n - 1 - i];
}
/* Twice through the same shared memory: each warp's first number to all, then that times 10. */
static __global__ void broadcast_twice(float *y, bool wait) {
  ZK_SHARED(float, s, [2]);
  int i = (int)threadIdx.x;
  if (i % 32 == 0) s[i / 32] = (float)i;
  __syncthreads();
  float sum = s[0] + s[1];
  if (wait) __syncthreads();
  if (i % 32 == 0) s[i / 32] = 10 * (float)i;
  __syncthreads();
  y[i] = sum + s[0] + s[1];
}
static __global__ void some_wait(float *y) {
  if (threadIdx.x < 40) __syncthreads();
  y[threadIdx.x] = 1;
}
static __global__ void two_barriers(float *y) {
  if (threadIdx.x < 32) __syncthreads();
  else __syncthreads();
  y[threadIdx.x] = 1;
}
static __global__ void lanes_missing(float *y) {
  if (threadIdx.x % 32 != 5) y[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
}
static __global__ void odd_vector(float *y) { zk_store16(y + 1 + threadIdx.x, make_uint4(0, 0, 0, 0)); }
static __global__ void not_written(float *y) {
  ZK_SHARED(float, s, [64]);
  if (blockIdx.x == 0) s[threadIdx.x] = 1; /* and the next block reads what this one left */
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = s[threadIdx.x];
}
static __global__ void sums(
    float *y) { /* of the thread's number over its warp, over the block, and over half a warp */
  ZK_SHARED(float, part, [4]);
  unsigned t = threadIdx.x, half = t % 32 < 16 ? 0xffffu : 0xffff0000u;
  float x = (float)t, h = x;
  for (int d = 8; d > 0; d >>= 1) h += __shfl_xor_sync(half, h, d);
  y[3 * t] = zk_warp(x, ZkSum());
  y[3 * t + 1] = zk_block<128>(x, ZkSum(), part);
  y[3 * t + 2] = h;
}

extern "C" {
unsigned emu_row(const ZkcUnits *units, long long u, long long *at);
void emu_reverse(ZkCuda *cu, const float *x, float *y, bool wait);
void emu_twice(ZkCuda *cu, float *y, bool wait);
void emu_fault(ZkCuda *cu, int which, float *y);
void emu_sums(ZkCuda *cu, float *y);
}

void emu_reverse(ZkCuda *cu, const float *x, float *y, bool wait) {
  ZK_LAUNCH(cu, NULL, reverse, 1, 64, 0, x, y, 64, wait);
}
void emu_twice(ZkCuda *cu, float *y, bool wait) { ZK_LAUNCH(cu, NULL, broadcast_twice, 1, 64, 0, y, wait); }
void emu_fault(ZkCuda *cu, int which, float *y) {
  if (which == 0) ZK_LAUNCH(cu, NULL, some_wait, 1, 64, 0, y);
  if (which == 1) ZK_LAUNCH(cu, NULL, two_barriers, 1, 64, 0, y);
  if (which == 2) ZK_LAUNCH(cu, NULL, lanes_missing, 1, 64, 0, y);
  if (which == 3) ZK_LAUNCH(cu, NULL, odd_vector, 1, 1, 0, y);
  if (which == 4) ZK_LAUNCH(cu, NULL, not_written, 2, 64, 0, y);
}
void emu_sums(ZkCuda *cu, float *y) { ZK_LAUNCH(cu, NULL, sums, 1, 128, 0, y); }
unsigned emu_row(const ZkcUnits *units, long long u, long long *at) { return zkc_row(*units, u, *at); }

/* Passes over flat buffers: pieces of 16 bytes, and whether a step updates anything. Shared by flat.cu and
 * optimize.cu. */
#ifndef ZUG_KERNELS_CUDA_FLAT_CUH
#define ZUG_KERNELS_CUDA_FLAT_CUH

#include "kernels/cuda/common.cuh"
#include "kernels/halves.h"
extern "C" {
#include "kernels/optimize.h"
}

#define THREADS 256

static inline bool aligned(std::initializer_list<const void *> all) {
  uintptr_t bits = 0;
  for (const void *p : all) bits |= (uintptr_t)p;
  return bits % 16 == 0;
}

/* ---- pieces of four ------------------------------------------------------------------------------------ */
typedef struct {
  float x[4];
} Four;
ZK_DEVICE Four load4(const float *p) {
  uint4 u = zk_load16(p);
  return {{__uint_as_float(u.x), __uint_as_float(u.y), __uint_as_float(u.z), __uint_as_float(u.w)}};
}
ZK_DEVICE void store4(float *p, const Four &f) {
  zk_store16(p, make_uint4(__float_as_uint(f.x[0]), __float_as_uint(f.x[1]), __float_as_uint(f.x[2]),
                           __float_as_uint(f.x[3])));
}

/* ---- parameters ---------------------------------------------------------------------------------------- */
ZK_DEVICE float load(const ZkMaster &w, int64_t i) {
  return w.f32 ? w.f32[i] : __uint_as_float(zk_join_halves(w.high[i], w.low[i]));
}
ZK_DEVICE void store(const ZkMaster &w, int64_t i, float x) {
  if (w.f32) w.f32[i] = x;
  else w.high[i] = zk_high_half(__float_as_uint(x)), w.low[i] = zk_low_half(__float_as_uint(x));
}

/* Four 16-bit numbers as they lie. */
ZK_DEVICE void load4(const void *p, uint16_t *x) {
  uint2 u = *(const uint2 *)p;
  x[0] = (uint16_t)u.x, x[1] = (uint16_t)(u.x >> 16), x[2] = (uint16_t)u.y, x[3] = (uint16_t)(u.y >> 16);
}
ZK_DEVICE Four load4_bf16(const uint16_t *p) {
  uint16_t x[4];
  load4(p, x);
  return {{zk_from_bf16(x[0]), zk_from_bf16(x[1]), zk_from_bf16(x[2]), zk_from_bf16(x[3])}};
}
ZK_DEVICE void store4(void *p, const uint16_t *x) {
  uint2 u;
  u.x = x[0] | (unsigned)x[1] << 16, u.y = x[2] | (unsigned)x[3] << 16;
  *(uint2 *)p = u;
}
ZK_DEVICE Four load4(const ZkMaster &w, int64_t i) {
  if (w.f32) return load4(w.f32 + i);
  uint16_t high[4], low[4];
  Four f;
  load4(w.high + i, high), load4(w.low + i, low);
#pragma unroll
  for (int j = 0; j < 4; j++) f.x[j] = __uint_as_float(zk_join_halves(high[j], (int16_t)low[j]));
  return f;
}
ZK_DEVICE void store4(const ZkMaster &w, int64_t i, const Four &f) {
  if (w.f32) {
    store4(w.f32 + i, f);
    return;
  }
  uint16_t high[4], low[4];
#pragma unroll
  for (int j = 0; j < 4; j++) {
    high[j] = zk_high_half(__float_as_uint(f.x[j]));
    low[j] = (uint16_t)zk_low_half(__float_as_uint(f.x[j]));
  }
  store4(w.high + i, high), store4(w.low + i, low);
}

/* Runs `some(i)` for the pieces of W of [0, n) and `one(i)` for what is left; all by `one` if not `wide`. */
template <int W, class A, class B> ZK_DEVICE void each(int64_t n, bool wide, A some, B one) {
  int64_t me = (int64_t)blockIdx.x * THREADS + threadIdx.x, all = (int64_t)gridDim.x * THREADS;
  int64_t whole = wide ? n / W : 0;
  for (int64_t i = me; i < whole; i += all) some(W * i);
#pragma unroll 1
  for (int64_t i = W * whole + me; i < n; i += all) one(i);
}
static unsigned blocks_for(const ZkCuda *cu, int64_t n, int w) {
  return zk_blocks(cu, zk_ceil_of(n, w * THREADS));
}

/* ---- what updates have to do with a step's sums -------------------------------------------------------- */
typedef struct {
  const double *squares; /* NULL: not clipped */
  float most, scale;
} Scale;
/* The smaller of 1 and what clips the norm, times `scale`; a norm that is no number gives none. */
ZK_DEVICE float scale_of(const Scale &s) {
  if (!s.squares) return s.scale;
  double clip = (double)s.most / (sqrt(*s.squares) + 1e-6);
  return clip >= 1 ? s.scale : (float)clip * s.scale;
}

/* Becomes 1 if something is not finite; threads that find it write the same. */
ZK_DEVICE bool is_lost(float x) { return !(fabsf(x) <= 3.4028234663852886e38f); }
ZK_DEVICE void tell(double *lost, bool found) {
  if (found && lost) *lost = 1;
}

ZK_DEVICE bool is_sound(const ZkIfSound &s) {
  for (int i = 0; i < s.n; i++)
    if (!(fabs(s.x[i]) <= 1.7976931348623157e308)) return false;
  bool any = !s.ndivisors;
  for (int i = 0; i < s.ndivisors; i++) {
    if (s.divisor[i] < 0) return false;
    any |= s.divisor[i] > 0;
  }
  return any;
}

#endif

/* Passes over flat buffers: pieces of 16 bytes, and whether a step updates anything. Shared by flat.cu and
 * optimize.cu. */
#ifndef ZUG_KERNELS_CUDA_FLAT_CUH
#define ZUG_KERNELS_CUDA_FLAT_CUH

#include "kernels/cuda/common.cuh"

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
ZK_DEVICE void store4_bf16(uint16_t *p, const Four &f) {
  uint2 u;
  u.x = zk_to_bf16x2(f.x[0], f.x[1]);
  u.y = zk_to_bf16x2(f.x[2], f.x[3]);
  *(uint2 *)(void *)p = u;
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

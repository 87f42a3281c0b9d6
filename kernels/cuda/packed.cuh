/* Packed weights (kernels/packed.h) as kernels read them. */
#ifndef ZUG_KERNELS_CUDA_PACKED_CUH
#define ZUG_KERNELS_CUDA_PACKED_CUH

#include "kernels/cuda/common.cuh"
extern "C" {
#include "kernels/cuda/packed.h"
}

typedef struct {
  const unsigned char *codes, *zeros; /* zeros NULL: groups have none of their own */
  const unsigned short *scales;
  long long k;
  int bits, group;
  bool table; /* codes stand for these values, not for integers */
  float value[16];
} Packed;

static inline Packed packed_of(const ZkView *v) {
  ZkPacked m = zk_packed_of(v);
  Packed p = {};
  p.codes = zk_packed_codes(&m, 0), p.scales = zk_packed_scales(&m, 0), p.k = m.k;
  p.bits = zk_elem_info[v->elem].bits, p.group = zk_elem_info[v->elem].block;
  if (zk_elem_info[v->elem].zero == ZK_ZERO_POINT) p.zeros = zk_packed_zeros(&m, 0);
  const float *values = zk_code_values((ZkElem)v->elem);
  p.table = values;
  if (values) memcpy(p.value, values, sizeof p.value);
  return p;
}

ZK_DEVICE float half_of(unsigned h) {
#ifndef ZK_EMU
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"((unsigned short)h));
  return y;
#else
  return zb_f16_to_f32((uint16_t)h);
#endif
}

/* Where a panel's scales of the group of element k begin, and its zeros. */
ZK_DEVICE long long group_at(const Packed &p, long long panel, long long k) {
  return (panel * (p.k / p.group) + k / p.group) * ZK_COLUMNS;
}

/* Returns the element at the offset that it would have if columns lay one behind the other. */
ZK_DEVICE float packed_at(const Packed &p, long long at) {
  long long column = at / p.k, k = at - column * p.k, panel = column / ZK_COLUMNS;
  int c = (int)(column - panel * ZK_COLUMNS), step = 32 / p.bits;
  long long group = group_at(p, panel, k) + c;
  int code = p.codes[(panel * (p.k / step) + k / step) * 64 + c * 4 + k % 4];
  code = code >> (k % step < 4 ? 0 : 4) & ((1 << p.bits) - 1);
  int zero = p.zeros ? p.zeros[group] : 1 << (p.bits - 1);
  return (p.table ? p.value[code] : (float)(code - zero)) * half_of(p.scales[group]);
}

/* ---- four columns by eight elements, as a thread reads them -------------------------------------------- */
/* Of columns 4 q .. 4 q + 3 of a panel, elements k .. k + 7: k is a multiple of 8. A word of codes is a
 * column's. */
template <int BITS> struct Quad { uint4 codes[BITS / 4]; };
template <int BITS> ZK_DEVICE Quad<BITS> quad_at(const Packed &p, long long panel, long long k, int q) {
  const unsigned char *at = p.codes + (panel * p.k + k) * (ZK_COLUMNS * BITS / 8) + q * 16;
  Quad<BITS> x;
#pragma unroll
  for (int i = 0; i < BITS / 4; i++) x.codes[i] = zk_load16_here(at + i * 64);
  return x;
}
template <int BITS> ZK_DEVICE unsigned word_of(const Quad<BITS> &x, int i, int column) {
  const uint4 u = x.codes[i];
  const unsigned w[4] = {u.x, u.y, u.z, u.w};
  return w[column];
}

/* What the four columns' group counts by. */
typedef struct {
  float scale[4];
  int zero[4];
} QuadGroup;
ZK_DEVICE QuadGroup quad_group(const Packed &p, long long panel, long long k, int q) {
  long long at = group_at(p, panel, k) + 4 * q;
  const uint2 s = *(const uint2 *)(p.scales + at);
  unsigned z = p.zeros ? *(const unsigned *)(p.zeros + at) : 0x01010101u << (p.bits - 1);
  const unsigned h[2] = {s.x, s.y};
  QuadGroup g;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    g.scale[i] = half_of(h[i / 2] >> 16 * (i % 2) & 0xffff);
    g.zero[i] = z >> 8 * i & 255;
  }
  return g;
}

/* Puts the values of codes into shared memory, where threads that look up different ones find them in different
 * banks. */
ZK_DEVICE void load_values(const Packed &p, float *value) {
  if (threadIdx.x < 16) value[threadIdx.x] = p.value[threadIdx.x];
  __syncthreads();
}

/* Decodes the eight elements of one of the columns. */
template <int BITS>
ZK_DEVICE void decode(const Packed &p, const float *value, const Quad<BITS> &x, const QuadGroup &g,
                      int column, float (&to)[8]) {
#pragma unroll
  for (int i = 0; i < 8; i++) {
    unsigned w = word_of(x, BITS == 8 ? i / 4 : 0, column);
    int code = (int)(w >> (8 * (i % 4) + (BITS == 4 ? i / 4 * 4 : 0)) & ((1u << BITS) - 1));
    float y = BITS == 4 && p.table ? value[code & 15] : (float)(code - g.zero[column]);
    to[i] = y * g.scale[column];
  }
}

#endif

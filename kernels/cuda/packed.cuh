/* Packed weights (kernels/packed.h) as kernels read them: at the offsets that elements would have if columns lay
 * one behind the other. */
#ifndef ZUG_KERNELS_CUDA_PACKED_CUH
#define ZUG_KERNELS_CUDA_PACKED_CUH

#include "kernels/cuda/common.cuh"
extern "C" {
#include "kernels/cuda/plain.h"
#include "kernels/packed.h"
}

typedef struct {
  const unsigned char *codes, *zeros; /* zeros NULL: groups have none of their own */
  const unsigned short *scales;
  long long k;
  int bits, group;
  bool normal;
  float quantile[16];
} Packed;

static inline Packed packed_of(const ZkView *v) {
  ZkPacked m = zk_packed_of(v);
  Packed p = {};
  p.codes = zk_packed_codes(&m, 0), p.scales = zk_packed_scales(&m, 0), p.k = m.k;
  p.bits = zk_elem_info[v->elem].bits, p.group = zk_elem_info[v->elem].block;
  if (zk_elem_info[v->elem].zero == ZK_ZERO_POINT) p.zeros = zk_packed_zeros(&m, 0);
  p.normal = zk_elem_info[v->elem].codes == ZK_CODES_NORMAL;
  memcpy(p.quantile, zk_normal_quantile, sizeof p.quantile);
  return p;
}

ZK_DEVICE float half_of(unsigned h) {
  unsigned sign = (h & 0x8000) << 16, rest = h & 0x7fff;
  if (rest >= 0x7c00) return __uint_as_float(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  if (rest >= 0x0400) return __uint_as_float(sign | ((rest << 13) + ((127 - 15) << 23)));
  float x = (float)rest * 0x1p-24f;
  return sign ? -x : x;
}

/* Reads 4 neighbours along k, from a multiple of 4 on. */
ZK_DEVICE void packed_four(const Packed &p, long long at, float (&x)[4]) {
  long long column = at / p.k, k = at - column * p.k, panel = column / ZK_COLUMNS;
  int c = (int)(column - panel * ZK_COLUMNS);
  long long group = (panel * (p.k / p.group) + k / p.group) * ZK_COLUMNS + c;
  float scale = half_of(p.scales[group]);
  int zero = p.zeros ? p.zeros[group] : 1 << (p.bits - 1), step = 32 / p.bits;
  const unsigned char *codes = p.codes + (panel * (p.k / step) + k / step) * 64 + c * 4;
  int shift = k % step < 4 ? 0 : 4, mask = (1 << p.bits) - 1;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    int code = codes[i] >> shift & mask;
    x[i] = (p.normal ? p.quantile[code & 15] : (float)(code - zero)) * scale;
  }
}
ZK_DEVICE float packed_at(const Packed &p, long long at) {
  float x[4];
  packed_four(p, at / 4 * 4, x);
  return x[at % 4];
}

#endif

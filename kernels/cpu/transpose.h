/* Transposes words in vectors of AVX-512 and AVX2. Private to kernels/cpu; included where ZK_BGEMM_X86 is
 * defined. */
#ifndef ZUG_KERNELS_TRANSPOSE_H
#define ZUG_KERNELS_TRANSPOSE_H

#include <immintrin.h>

#include "kernels/cpu/bgemm.h"

/* Row i of r, as 16 words of 32 bits, becomes column i. */
__attribute__((target("avx512f"))) ZK_INLINE void transpose16(__m512i r[16]) {
  __m512i t[16];
  ZK_UNROLL
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  ZK_UNROLL
  for (int i = 0; i < 16; i += 4) { /* words j, j + 4, ..: columns j of four rows */
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  ZK_UNROLL
  for (int i = 0; i < 4; i++) { /* lanes: 4 x 4 of them are transposed */
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  ZK_UNROLL
  for (int i = 0; i < 4; i++) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

/* The same of 8 by 8. */
__attribute__((target("avx2"))) ZK_INLINE void transpose8(__m256 r[8]) {
  __m256 t[8];
  ZK_UNROLL
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  ZK_UNROLL
  for (int i = 0; i < 8; i += 4) { /* words j and j + 4: columns j of four rows */
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  ZK_UNROLL
  for (int i = 0; i < 4; i++) {
    t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
    t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
  }
  memcpy(r, t, sizeof t);
}

#endif

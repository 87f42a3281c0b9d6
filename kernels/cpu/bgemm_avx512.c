/* Blocks of bf16 products by vdpbf16ps: each of 16 lanes adds the products of a pair of neighbours in k. A
 * step is a pair of k: two vectors of b, and for each of 12 rows a pair of a broadcast, 24 sums in registers.
 * The strip of a stays in the nearest cache while b streams from the next one.
 *
 * Sums are f32, rounded to nearest; the instruction takes denormals as zeros. */
#include "kernels/cpu/bgemm.h"

#define ROWS 12

#ifdef ZK_BGEMM_X86
#include <immintrin.h>

ZK_AVX512 ZK_INLINE __mmask16 mask16(int64_t n) {
  return (__mmask16)(n >= 16 ? 0xffff : n <= 0 ? 0 : (1 << n) - 1);
}

/* 16 sums to row i, columns j.. of the block, as many as it has there. */
ZK_AVX512 ZK_INLINE void put16(const ZkBlock *x, int64_t i, int64_t j, __m512 sum) {
  __mmask16 mask = mask16(x->n - j);
  if (x->more) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, x->more + i * x->ldmore + j), sum);
  int64_t at = i * x->ldc + j;
  if (x->c_elem == ZK_F32) {
    float *c = (float *)x->c + at;
    if (x->add) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, c), sum);
    _mm512_mask_storeu_ps(c, mask, sum);
  } else {
    uint16_t *c = (uint16_t *)x->c + at;
    if (x->add) {
      __m512i old = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, c));
      sum = _mm512_add_ps(_mm512_castsi512_ps(_mm512_slli_epi32(old, 16)), sum);
    }
    _mm256_mask_storeu_epi16(c, mask, (__m256i)_mm512_cvtneps_pbh(sum));
  }
}

ZK_AVX512 void zk_bgemm_put(const ZkBlock *x, int64_t i, int64_t j, const float *sums, int64_t rows) {
  for (int64_t end = zk_min(x->m, i + rows); i < end; i++, sums += ZK_PANEL) {
    put16(x, i, j, _mm512_loadu_ps(sums));
    if (j + 16 < x->n) put16(x, i, j + 16, _mm512_loadu_ps(sums + 16));
  }
}

/* The strip of `rows` rows from i on, a constant where this is expanded, by the panel from column j on. */
ZK_AVX512 ZK_INLINE void strip(const ZkBlock *x, int64_t i0, int64_t j0, const int rows) {
  const uint16_t *a = x->a + i0 / ROWS * x->a_strip, *b = x->b + j0 / ZK_PANEL * x->b_panel;
  int64_t a_row = x->a_row, a_block = x->a_block;
  __m512 sum[ROWS][2];
  ZK_UNROLL
  for (int i = 0; i < rows; i++) sum[i][0] = sum[i][1] = _mm512_setzero_ps();
  for (int64_t k = x->k; k > 0; k -= ZK_KUNIT, a += a_block) {
    const uint16_t *pair = a;
    int pairs = (int)zk_min(k, ZK_KUNIT) / 2;
#pragma GCC unroll 1
    for (int j = 0; j < pairs; j++, pair += 2, b += 2 * ZK_PANEL) {
      __m512bh b0 = (__m512bh)_mm512_loadu_si512(b), b1 = (__m512bh)_mm512_loadu_si512(b + ZK_PANEL);
      ZK_UNROLL
      for (int i = 0; i < rows; i++) {
        int32_t both;
        memcpy(&both, pair + i * a_row, sizeof both);
        __m512bh w = (__m512bh)_mm512_set1_epi32(both);
        sum[i][0] = _mm512_dpbf16_ps(sum[i][0], w, b0);
        sum[i][1] = _mm512_dpbf16_ps(sum[i][1], w, b1);
      }
    }
  }
  ZK_UNROLL
  for (int i = 0; i < rows; i++) {
    put16(x, i0 + i, j0, sum[i][0]);
    if (j0 + 16 < x->n) put16(x, i0 + i, j0 + 16, sum[i][1]);
  }
}

typedef void Strip(const ZkBlock *x, int64_t i, int64_t j);
#define STRIP(n)                                                                                             \
  ZK_AVX512 static void strip##n(const ZkBlock *x, int64_t i, int64_t j) { strip(x, i, j, n); }
STRIP(1)
STRIP(2)
STRIP(3)
STRIP(4)
STRIP(5)
STRIP(6)
STRIP(7)
STRIP(8)
STRIP(9)
STRIP(10)
STRIP(11)
STRIP(12)

static void block(const ZkBlock *x) {
  static Strip *const strips[ROWS + 1] = {NULL,   strip1, strip2, strip3,  strip4,  strip5, strip6,
                                          strip7, strip8, strip9, strip10, strip11, strip12};
  for (int64_t i = 0; i < x->m; i += ROWS)
    for (int64_t j = 0; j < x->n; j += ZK_PANEL) strips[zk_min(ROWS, x->m - i)](x, i, j);
}

static bool here(void) { return zk_cpu_has(ZK_X86_V4) && __builtin_cpu_supports("avx512bf16"); }

/* AMD's do a product a lane and cycle, twice the rate of f32; Intel's are slower than f32 products. */
static bool fast(void) { return __builtin_cpu_is("amd"); }

#else /* another machine */
void zk_bgemm_put(const ZkBlock *x, int64_t i, int64_t j, const float *sums, int64_t rows) {
  (void)x, (void)i, (void)j, (void)sums, (void)rows;
  ZB_ASSERT(!"no path");
}
static void block(const ZkBlock *x) {
  (void)x;
  ZB_ASSERT(!"no path");
}
static bool here(void) { return false; }
static bool fast(void) { return false; }
#endif

const ZkBgemmPath zk_bgemm_avx512 = {"vdpbf16ps", ROWS, 2, 1 << 18, here, fast, block};

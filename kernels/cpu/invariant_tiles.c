/* Few rows by weights that are read where they lie, with the bits of AMX's tiles (bgemm_amx.c).
 *
 * Tiles must be packed, which takes longer than reading weights, so few rows are multiplied by vectors. tdpbf16ps
 * adds the products of a tile's 32 elements of k as two sums, of even and of odd ones, each in order by fused
 * multiply-adds from 0 on, and then sum = sum + (even + odd); all of that rounds to nearest, and takes numbers below
 * 2^-126 as 0 (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, TDPBF16PS). */
#include "kernels/cpu/invariant.h"
#include "kernels/cpu/invariant_ahead.h"

#ifdef ZK_BGEMM_X86
#include "kernels/cpu/transpose.h"

enum { TILE = ZK_KUNIT, PAIRS = TILE / 2, TOGETHER = 4 /* rows of x that share what is read */ };

ZK_AVX512 ZK_INLINE __m512 even(__m512i pairs) { return (__m512)_mm512_slli_epi32(pairs, 16); }
ZK_AVX512 ZK_INLINE __m512 odd(__m512i pairs) {
  return (__m512)_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000));
}

/* Takes tiny numbers as 0, and returns how it was. */
static unsigned flush_tiny(void) {
  unsigned was = _mm_getcsr();
  _mm_setcsr(was | 0x8040);
  return was;
}

/* ---- columns side by side ---- */
/* Reads 32 columns of a row as two vectors of f32; n: so many are there. */
ZK_AVX512 ZK_INLINE void load_row(const uint16_t *w, int64_t n, __m512 to[2]) {
  __mmask32 there = n >= 32 ? 0xffffffffu : (1u << n) - 1;
  __m512i v = n >= 32 ? _mm512_loadu_si512(w) : _mm512_maskz_loadu_epi16(there, w);
  to[0] = (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(v)), 16);
  to[1] = (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(v, 1)), 16);
}

/* Adds a tile of k, of which `k` elements are there, to the sums of 32 columns. `rows` is a constant where this is
 * expanded. */
ZK_AVX512 ZK_INLINE void tile_across(const uint16_t *w, int64_t ldw, int64_t n, int64_t k, const int32_t *x,
                                     int64_t ldx, float *sum, int64_t ldsum, const int rows, bool add) {
  __m512 s[2][TOGETHER][2];
  ZK_UNROLL
  for (int i = 0; i < rows; i++) s[0][i][0] = s[0][i][1] = s[1][i][0] = s[1][i][1] = _mm512_setzero_ps();
  for (int64_t d = 0; 2 * d < k; d++) {
    __m512 b[2][2] = {{_mm512_setzero_ps(), _mm512_setzero_ps()}, {_mm512_setzero_ps(), _mm512_setzero_ps()}};
    load_row(w + 2 * d * ldw, n, b[0]);
    if (2 * d + 1 < k) load_row(w + (2 * d + 1) * ldw, n, b[1]);
    ZK_UNROLL
    for (int i = 0; i < rows; i++) {
      __m512i pair = _mm512_set1_epi32(x[i * ldx + d]);
      __m512 a[2] = {even(pair), odd(pair)};
      ZK_UNROLL
      for (int h = 0; h < 2; h++) {
        s[0][i][h] = _mm512_fmadd_ps(a[0], b[0][h], s[0][i][h]);
        s[1][i][h] = _mm512_fmadd_ps(a[1], b[1][h], s[1][i][h]);
      }
    }
  }
  ZK_UNROLL
  for (int i = 0; i < rows; i++) ZK_UNROLL
  for (int h = 0; h < 2; h++) {
    float *to = sum + i * ldsum + 16 * h;
    __m512 before = add ? _mm512_loadu_ps(to) : _mm512_setzero_ps();
    _mm512_storeu_ps(to, _mm512_add_ps(before, _mm512_add_ps(s[0][i][h], s[1][i][h])));
  }
}

ZK_AVX512 ZK_INLINE void across(const ZkFewRows *x, const int rows) {
  unsigned was = flush_tiny();
  Ahead ahead = rows_ahead(x, 2, TILE);
  for (int64_t k = 0; k < x->k; k += TILE) {
    const uint16_t *w = (const uint16_t *)x->w + k * x->ldw;
    const int32_t *a = (const int32_t *)x->x + k / 2;
    int64_t left = zk_min(TILE, x->k - k);
    bool add = x->add || k > 0;
    for (int64_t j = 0; j < x->n; j += 32) {
      int64_t n = zk_min(32, x->n - j);
      ask_rows(x, &ahead, 2, TILE * 32 * 2 / LINE);
      ZK_UNROLL
      for (int i = 0; i < rows; i += TOGETHER)
        tile_across(w + j, x->ldw, n, left, a + i * x->ldx, x->ldx, x->sum + i * x->ldsum + j, x->ldsum,
                    rows - i < TOGETHER ? rows - i : TOGETHER, add);
    }
  }
  _mm_setcsr(was);
}

/* ---- columns along k ---- */
/* Reads a tile of k of 16 columns as 16 pairs of all columns. */
ZK_AVX512 ZK_INLINE void load_columns(const ZkFewColumns *x, int64_t k, __m512i w[PAIRS]) {
  const uint16_t *from = (const uint16_t *)x->w + k;
  int64_t left = zk_min(TILE, x->k - k);
  __mmask32 there = left >= 32 ? 0xffffffffu : (1u << left) - 1;
  ZK_UNROLL
  for (int j = 0; j < 16; j++)
    w[j] = j < x->n ? _mm512_maskz_loadu_epi16(there, from + j * x->ldw) : _mm512_setzero_si512();
  transpose16(w);
}

ZK_AVX512 ZK_INLINE void along(ZkFewColumns *x, const int rows) {
  unsigned was = flush_tiny();
  __m512 sum[ZK_FEW];
  ZK_UNROLL
  for (int i = 0; i < rows; i++)
    sum[i] = x->add ? _mm512_loadu_ps(x->sum + i * x->ldsum) : _mm512_setzero_ps();
  Ahead ahead = columns_ahead(x, 2);
  for (int64_t k = 0; k < x->k; k += TILE) {
    const int32_t *a = (const int32_t *)x->x + k / 2;
    __m512i w[PAIRS];
    ask_columns(x, &ahead, 2, 16);
    load_columns(x, k, w);
    ZK_UNROLL
    for (int i = 0; i < rows; i++) {
      __m512 s[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
      ZK_UNROLL
      for (int d = 0; d < PAIRS; d++) {
        __m512i pair = _mm512_set1_epi32(a[i * x->ldx + d]);
        s[0] = _mm512_fmadd_ps(even(pair), even(w[d]), s[0]);
        s[1] = _mm512_fmadd_ps(odd(pair), odd(w[d]), s[1]);
      }
      sum[i] = _mm512_add_ps(sum[i], _mm512_add_ps(s[0], s[1]));
    }
  }
  x->ahead = ahead.at, x->ahead_end = ahead.end;
  ZK_UNROLL
  for (int i = 0; i < rows; i++) _mm512_storeu_ps(x->sum + i * x->ldsum, sum[i]);
  _mm_setcsr(was);
}

#define FEW(n)                                                                                               \
  ZK_AVX512 static void across##n(const ZkFewRows *x) { across(x, n); }                                      \
  ZK_AVX512 static void along##n(ZkFewColumns *x) { along(x, n); }
ZK_EACH_FEW(FEW)
#undef FEW

void zk_few_rows_tiles(const ZkFewRows *x) {
#define FEW(n) across##n,
  static void (*const fns[ZK_FEW])(const ZkFewRows *) = {ZK_EACH_FEW(FEW)};
#undef FEW
  ZB_ASSERT(x->m >= 1 && x->m <= ZK_FEW);
  fns[x->m - 1](x);
}

void zk_few_columns_tiles(ZkFewColumns *x) {
#define FEW(n) along##n,
  static void (*const fns[ZK_FEW])(ZkFewColumns *) = {ZK_EACH_FEW(FEW)};
#undef FEW
  ZB_ASSERT(x->m >= 1 && x->m <= ZK_FEW && x->n >= 1 && x->n <= 16);
  fns[x->m - 1](x);
}
#else
void zk_few_rows_tiles(const ZkFewRows *x) {
  (void)x;
  ZB_ASSERT(!"no path");
}
void zk_few_columns_tiles(ZkFewColumns *x) {
  (void)x;
  ZB_ASSERT(!"no path");
}
#endif

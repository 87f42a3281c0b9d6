/* Few rows by weights that are read where they lie, as fast as memory gives them. A sum has the terms of a
 * block of fgemm.h, or of bgemm.h's vdpbf16ps, in the same order, so it has the same bits. */
#include "kernels/cpu/invariant.h"
#include "kernels/cpu/invariant_ahead.h"

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors wider than the machine's are not passed between files */

#define DEEP 8 /* rows of weights that are read side by side */

typedef void FewFn(const ZkFewRows *x);
typedef void AlongFn(ZkFewColumns *x);

#ifdef ZK_BGEMM_X86
#include "kernels/cpu/transpose.h"
#endif

/* ---- the instruction sets ---- */
/* FMA: where there is such an instruction it is said so. Compilers make it of a product and a sum, but not
 * always. */
#define LANES 4
#define NAME(x) x##_any
#define FMA(x, b, s) ((x) * (b) + (s))
#include "kernels/cpu/invariant_rows_set.h"
#undef LANES
#undef NAME
#undef FMA

#if defined(ZK_BGEMM_X86) && !defined(__clang__)
#define WIDE
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#define LANES 8
#define NAME(x) x##_v3
#define TRANSPOSE(t) transpose8((__m256 *)(t))
#define FMA(x, b, s) (V_v3) _mm256_fmadd_ps(_mm256_set1_ps(x), (__m256)(b), (__m256)(s))
#include "kernels/cpu/invariant_rows_set.h"
#undef LANES
#undef NAME
#undef FMA
#undef TRANSPOSE
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#define LANES 16
#define NAME(x) x##_v4
#define TRANSPOSE(t) transpose16((__m512i *)(t))
#define FMA(x, b, s) (V_v4) _mm512_fmadd_ps(_mm512_set1_ps(x), (__m512)(b), (__m512)(s))
#include "kernels/cpu/invariant_rows_set.h"
#pragma GCC pop_options
#endif

typedef FewFn *const Set[ZK_FEW][2];
static Set *const sets[] = {
    &fns_any,
#ifdef WIDE
    &fns_v3,
    &fns_v4,
#endif
};
enum { SETS = sizeof sets / sizeof *sets };

static Set *used;

bool zk_few_rows_use(int set) {
  if (set < 0 || set >= SETS || (set > 0 && !zk_cpu_has(set == 1 ? ZK_X86_V3 : ZK_X86_V4))) return false;
  __atomic_store_n(&used, sets[set], __ATOMIC_RELAXED);
  return true;
}

static Set *set_in_use(void) {
  Set *set = __atomic_load_n(&used, __ATOMIC_RELAXED);
  if (set) return set;
  for (int i = SETS; !zk_few_rows_use(--i);) continue;
  return __atomic_load_n(&used, __ATOMIC_RELAXED);
}

void zk_few_rows(const ZkFewRows *x, ZkElem w) {
  Set *set = set_in_use();
  ZB_ASSERT(x->m >= 1 && x->m <= ZK_FEW && (w == ZK_F32 || w == ZK_BF16));
  (*set)[x->m - 1][w == ZK_BF16](x);
}

/* Returns the functions of the set in use for columns along k, or NULL. */
typedef AlongFn *const AlongSet[ZK_FEW][2];
static AlongSet *along_in_use(void) {
#ifdef WIDE
  Set *set = set_in_use();
  return set == &fns_v4 ? &along_fns_v4 : set == &fns_v3 ? &along_fns_v3 : NULL;
#else
  return NULL;
#endif
}

bool zk_few_columns_here(void) { return along_in_use() != NULL; }
void zk_few_columns(ZkFewColumns *x, ZkElem w) {
  AlongSet *set = along_in_use();
  ZB_ASSERT(set && x->m >= 1 && x->m <= ZK_FEW && x->n >= 1 && x->n <= 16);
  (*set)[x->m - 1][w == ZK_BF16](x);
}

/* ---- by vdpbf16ps ---- */
#ifdef ZK_BGEMM_X86
#define PAIRS (DEEP / 2)

ZK_AVX512 ZK_INLINE __mmask32 mask32(int64_t n) { return n >= 32 ? 0xffffffffu : (1u << n) - 1; }
ZK_AVX512 ZK_INLINE __m512i load32(const uint16_t *from, int64_t n) {
  return n >= 32 ? _mm512_loadu_si512(from) : _mm512_maskz_loadu_epi16(mask32(n), from);
}

/* Adds `deep` pairs of k to the sums of 32 columns, of which n are there. `odd`: the second of the last pair
 * is behind the end. Constants where this is expanded: rows, deep. While a product is made, sums lie as
 * interleaving leaves them: columns 0 to 3, 8 to 11, 16 to 19, 24 to 27, then the others. */
ZK_AVX512 ZK_INLINE void columns32(const uint16_t *w, int64_t ldw, int64_t n, const int32_t *x, int64_t ldx,
                                   float *sum, int64_t ldsum, const int rows, const int deep, bool odd,
                                   bool add) {
  __m512bh b[PAIRS][2];
  ZK_UNROLL
  for (int d = 0; d < deep; d++) {
    __m512i v0 = load32(w + 2 * d * ldw, n);
    __m512i v1 = odd ? _mm512_setzero_si512() : load32(w + (2 * d + 1) * ldw, n);
    b[d][0] = (__m512bh)_mm512_unpacklo_epi16(v0, v1);
    b[d][1] = (__m512bh)_mm512_unpackhi_epi16(v0, v1);
  }
  ZK_UNROLL
  for (int i = 0; i < rows; i++) {
    float *to = sum + i * ldsum;
    __m512 s0 = _mm512_setzero_ps(), s1 = s0;
    if (add) s0 = _mm512_loadu_ps(to), s1 = _mm512_loadu_ps(to + 16);
    ZK_UNROLL
    for (int d = 0; d < deep; d++) {
      __m512bh a = (__m512bh)_mm512_set1_epi32(x[i * ldx + d]);
      s0 = _mm512_dpbf16_ps(s0, a, b[d][0]);
      s1 = _mm512_dpbf16_ps(s1, a, b[d][1]);
    }
    _mm512_storeu_ps(to, s0);
    _mm512_storeu_ps(to + 16, s1);
  }
}

/* Brings sums of columns into the order in which products are made, or back. */
ZK_AVX512 static void order_sums(const ZkFewRows *x, bool back) {
  for (int64_t i = 0; i < x->m; i++)
    for (int64_t j = 0; j < x->n; j += 32) {
      float *sum = x->sum + i * x->ldsum + j;
      __m512 s0 = _mm512_loadu_ps(sum), s1 = _mm512_loadu_ps(sum + 16);
      __m512 t0, t1;
      if (back) {
        t0 = _mm512_shuffle_f32x4(s0, s1, 0x44), t1 = _mm512_shuffle_f32x4(s0, s1, 0xee);
        t0 = _mm512_shuffle_f32x4(t0, t0, 0xd8), t1 = _mm512_shuffle_f32x4(t1, t1, 0xd8);
      } else t0 = _mm512_shuffle_f32x4(s0, s1, 0x88), t1 = _mm512_shuffle_f32x4(s0, s1, 0xdd);
      _mm512_storeu_ps(sum, t0);
      _mm512_storeu_ps(sum + 16, t1);
    }
}

ZK_AVX512 ZK_INLINE void deep_pairs(const ZkFewRows *x, int64_t p, Ahead *ahead, const int rows,
                                    const int deep, bool odd) {
  const uint16_t *w = (const uint16_t *)x->w + p * x->ldw;
  const int32_t *a = (const int32_t *)x->x + p / 2;
  int64_t j = 0, ldw = x->ldw, ldx = x->ldx, ldsum = x->ldsum;
  bool add = x->add || p > 0;
  for (; j + 32 <= x->n; j += 32) {
    ask_rows(x, ahead, 2, 2 * deep);
    columns32(w + j, ldw, 32, a, ldx, x->sum + j, ldsum, rows, deep, odd, add);
  }
  if (j < x->n) columns32(w + j, ldw, x->n - j, a, ldx, x->sum + j, ldsum, rows, deep, odd, add);
}

ZK_AVX512 ZK_INLINE void few_pairs(const ZkFewRows *x, const int rows) {
  int64_t p = 0;
  Ahead ahead = rows_ahead(x, 2, DEEP), none = {0};
  if (x->add) order_sums(x, false);
  for (; p + DEEP <= x->k; p += DEEP) deep_pairs(x, p, &ahead, rows, PAIRS, false);
  for (; p < x->k; p += 2) deep_pairs(x, p, &none, rows, 1, p + 1 == x->k);
  order_sums(x, true);
}

#define FEW(n)                                                                                               \
  ZK_AVX512 static void pairs##n(const ZkFewRows *x) { few_pairs(x, n); }
ZK_EACH_FEW(FEW)
#undef FEW

void zk_few_rows_pairs(const ZkFewRows *x) {
#define FEW(n) pairs##n,
  static FewFn *const fns[ZK_FEW] = {ZK_EACH_FEW(FEW)};
#undef FEW
  ZB_ASSERT(x->m >= 1 && x->m <= ZK_FEW);
  fns[x->m - 1](x);
}

/* Columns that run along k: 16 of them, 16 pairs of each at a time, are transposed in registers. */
ZK_AVX512 ZK_INLINE void along_pairs(ZkFewColumns *x, const int rows) {
  __m512 sum[ZK_FEW];
  ZK_UNROLL
  for (int i = 0; i < rows; i++)
    sum[i] = x->add ? _mm512_loadu_ps(x->sum + i * x->ldsum) : _mm512_setzero_ps();
  Ahead ahead = columns_ahead(x, 2);
  for (int64_t k = 0; k < x->k; k += 32) {
    const uint16_t *from = (const uint16_t *)x->w + k;
    const int32_t *a = (const int32_t *)x->x + k / 2;
    int64_t left = zk_min(32, x->k - k);
    __m512i w[16];
    ask_columns(x, &ahead, 2, 16);
    if (left == 32 && x->n == 16) {
      ZK_UNROLL
      for (int j = 0; j < 16; j++) w[j] = _mm512_loadu_si512(from + j * x->ldw);
    } else {
      for (int j = 0; j < 16; j++)
        w[j] = j < x->n ? _mm512_maskz_loadu_epi16(mask32(left), from + j * x->ldw) : _mm512_setzero_si512();
    }
    transpose16(w);
    if (left == 32) {
      ZK_UNROLL
      for (int d = 0; d < 16; d++) ZK_UNROLL
      for (int i = 0; i < rows; i++)
        sum[i] = _mm512_dpbf16_ps(sum[i], (__m512bh)_mm512_set1_epi32(a[i * x->ldx + d]), (__m512bh)w[d]);
    } else {
      for (int d = 0; d < (left + 1) / 2; d++) ZK_UNROLL
      for (int i = 0; i < rows; i++)
        sum[i] = _mm512_dpbf16_ps(sum[i], (__m512bh)_mm512_set1_epi32(a[i * x->ldx + d]), (__m512bh)w[d]);
    }
  }
  x->ahead = ahead.at, x->ahead_end = ahead.end;
  ZK_UNROLL
  for (int i = 0; i < rows; i++) _mm512_storeu_ps(x->sum + i * x->ldsum, sum[i]);
}

#define FEW(n)                                                                                               \
  ZK_AVX512 static void along_pairs##n(ZkFewColumns *x) { along_pairs(x, n); }
ZK_EACH_FEW(FEW)
#undef FEW

void zk_few_columns_pairs(ZkFewColumns *x) {
#define FEW(n) along_pairs##n,
  static AlongFn *const fns[ZK_FEW] = {ZK_EACH_FEW(FEW)};
#undef FEW
  ZB_ASSERT(x->m >= 1 && x->m <= ZK_FEW && x->n >= 1 && x->n <= 16);
  fns[x->m - 1](x);
}
#else
void zk_few_rows_pairs(const ZkFewRows *x) {
  (void)x;
  ZB_ASSERT(!"no path");
}
void zk_few_columns_pairs(ZkFewColumns *x) {
  (void)x;
  ZB_ASSERT(!"no path");
}
#endif

/* Rows in 8 bits by a panel of packed weights. Sums within a group are integers, so all instruction sets make
 * the same bits; groups are added by one fused multiply-add each. */
#include "kernels/cpu/packed.h"

#include <math.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define X86
#define AVX2 __attribute__((target("avx2,fma,f16c")))
#define VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
#endif
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

/* A panel from its first group on. */
typedef struct {
  const uint8_t *code;
  const uint16_t *scale;
  const uint8_t *zero;  /* NULL: groups have none of their own */
  int64_t group, bytes; /* bytes: of codes of a group */
} Panel;

static Panel panel_of(const ZkPacked *w, int64_t panel, int64_t group) {
  const ZkElemInfo *e = &zk_elem_info[w->elem];
  Panel p = {.group = e->block, .bytes = (int64_t)e->block * e->bits / 8 * ZK_COLUMNS};
  p.code = zk_packed_codes(w, panel) + group * p.bytes;
  p.scale = zk_packed_scales(w, panel) + group * ZK_COLUMNS;
  if (e->zero == ZK_ZERO_POINT) p.zero = zk_packed_zeros(w, panel) + group * ZK_COLUMNS;
  return p;
}

typedef float Sums[][ZK_COLUMNS];
typedef void RowsFn(const Panel *p, const ZkRoundedRows *x, int64_t from, int64_t to, Sums sums);

/* ---- any CPU ------------------------------------------------------------------------------------------- */
ZK_INLINE void rows_any(const Panel *p, const ZkRoundedRows *x, int64_t from, int64_t to, Sums sums,
                        const int rows, const int bits) {
  for (int i = 0; i < rows; i++)
    for (int c = 0; c < ZK_COLUMNS; c++) sums[i][c] = 0;
  for (int64_t g = 0; g < to - from; g++)
    for (int i = 0; i < rows; i++) {
      const int8_t *a = x->code + i * x->k + (from + g) * p->group;
      const uint8_t *w = p->code + g * p->bytes;
      int32_t s[ZK_COLUMNS] = {0};
      for (int64_t k = 0; k < p->group; k += 32 / bits, w += 4 * ZK_COLUMNS)
        for (int c = 0; c < 4 * ZK_COLUMNS; c++) {
          s[c / 4] += (bits == 8 ? w[c] : w[c] & 15) * a[k + c % 4];
          if (bits == 4) s[c / 4] += (w[c] >> 4) * a[k + 4 + c % 4];
        }
      for (int c = 0; c < ZK_COLUMNS; c++) {
        int zero = p->zero ? p->zero[g * ZK_COLUMNS + c] : 1;
        float scale = x->scale[i * x->groups + from + g] * zb_f16_to_f32(p->scale[g * ZK_COLUMNS + c]);
        sums[i][c] = fmaf((float)(s[c] - zero * x->sum[i * x->groups + from + g]), scale, sums[i][c]);
      }
    }
}

/* ---- AVX2: 8 columns at a time ------------------------------------------------------------------------- */
#ifdef X86
/* Returns 4 codes of a row for every column. */
AVX2 ZK_INLINE __m256i four(const int8_t *a) {
  int32_t v;
  memcpy(&v, a, sizeof v);
  return _mm256_set1_epi32(v);
}

/* Returns the sums of a group of 8 bits: products of 16 bits are added in pairs, columns 0 1 4 5 and 2 3 6
 * 7. */
AVX2 ZK_INLINE __m256i group8_avx2(const uint8_t *w, const int8_t *a, int64_t n) {
  const __m256i none = _mm256_setzero_si256();
  __m256i lo = none, hi = none;
  for (int64_t k = 0; k < n; k += 4, w += 4 * ZK_COLUMNS) {
    __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)w);
    __m256i b = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(four(a + k)));
    lo = _mm256_add_epi32(lo, _mm256_madd_epi16(_mm256_unpacklo_epi8(v, none), b));
    hi = _mm256_add_epi32(hi, _mm256_madd_epi16(_mm256_unpackhi_epi8(v, none), b));
  }
  return _mm256_hadd_epi32(lo, hi);
}

/* The same of 4 bits: 8 sums of two products each fit 16 bits. */
AVX2 ZK_INLINE __m256i group4_avx2(const uint8_t *w, const int8_t *a, int64_t n) {
  const __m256i low = _mm256_set1_epi8(15), one = _mm256_set1_epi16(1);
  __m256i all = _mm256_setzero_si256();
  for (int64_t k = 0; k < n; k += 32) {
    __m256i s = _mm256_setzero_si256();
    UNROLL
    for (int i = 0; i < 4; i++, w += 4 * ZK_COLUMNS) {
      __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)w);
      __m256i b = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
      s = _mm256_add_epi16(s, _mm256_maddubs_epi16(_mm256_and_si256(v, low), four(a + k + 8 * i)));
      s = _mm256_add_epi16(s, _mm256_maddubs_epi16(b, four(a + k + 8 * i + 4)));
    }
    all = _mm256_add_epi32(all, _mm256_madd_epi16(s, one));
  }
  return all;
}

AVX2 ZK_INLINE void rows_avx2(const Panel *p, const ZkRoundedRows *x, int64_t from, int64_t to, Sums sums,
                              const int rows, const int bits) {
  for (int half = 0; half < 2; half++) {
    __m256 all[ZK_PACKED_ROWS];
    UNROLL
    for (int i = 0; i < rows; i++) all[i] = _mm256_setzero_ps();
    for (int64_t g = 0; g < to - from; g++) {
      const uint8_t *w = p->code + g * p->bytes + 32 * half;
      int64_t at = g * ZK_COLUMNS + 8 * half;
      __m256 scale = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p->scale + at)));
      __m256i zero = _mm256_set1_epi32(1);
      if (p->zero)
        zero = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p->zero + at)));
      UNROLL
      for (int i = 0; i < rows; i++) {
        const int8_t *a = x->code + i * x->k + (from + g) * p->group;
        int64_t r = i * x->groups + from + g;
        __m256i s = bits == 8 ? group8_avx2(w, a, p->group) : group4_avx2(w, a, p->group);
        __m256i less = _mm256_set1_epi32(x->sum[r]);
        s = _mm256_sub_epi32(s, p->zero ? _mm256_mullo_epi32(zero, less) : less);
        __m256 by = _mm256_mul_ps(_mm256_set1_ps(x->scale[r]), scale);
        all[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s), by, all[i]);
      }
    }
    for (int i = 0; i < rows; i++) _mm256_storeu_ps(sums[i] + 8 * half, all[i]);
  }
}

/* ---- AVX-512 VNNI: a panel at a time ------------------------------------------------------------------- */
VNNI ZK_INLINE __m512i four512(const int8_t *a) {
  int32_t v;
  memcpy(&v, a, sizeof v);
  return _mm512_set1_epi32(v);
}

enum { FAR = 4096 }; /* bytes that are asked for ahead */

VNNI ZK_INLINE void rows_vnni(const Panel *p, const ZkRoundedRows *x, int64_t from, int64_t to, Sums sums,
                              const int rows, const int bits) {
  const __m512i low = _mm512_set1_epi8(15);
  __m512 all[ZK_PACKED_ROWS];
  UNROLL
  for (int i = 0; i < rows; i++) all[i] = _mm512_setzero_ps();
  for (int64_t g = 0; g < to - from; g++) {
    const uint8_t *w = p->code + g * p->bytes;
    const int8_t *a = x->code + (from + g) * p->group;
    __m512i s[ZK_PACKED_ROWS], t[ZK_PACKED_ROWS];
    UNROLL
    for (int i = 0; i < rows; i++) s[i] = t[i] = _mm512_setzero_si512();
    for (int64_t k = 0; k < p->group; k += 8) {
      __m512i v0, v1;
      if (bits == 8) {
        _mm_prefetch((const char *)w + FAR, _MM_HINT_T0);
        _mm_prefetch((const char *)w + FAR + 64, _MM_HINT_T0);
        v0 = _mm512_loadu_si512(w), v1 = _mm512_loadu_si512(w + 64), w += 128;
      } else {
        _mm_prefetch((const char *)w + FAR, _MM_HINT_T0);
        __m512i v = _mm512_loadu_si512(w);
        v0 = _mm512_and_si512(v, low), v1 = _mm512_and_si512(_mm512_srli_epi16(v, 4), low), w += 64;
      }
      UNROLL
      for (int i = 0; i < rows; i++) {
        s[i] = _mm512_dpbusd_epi32(s[i], v0, four512(a + i * x->k + k));
        t[i] = _mm512_dpbusd_epi32(t[i], v1, four512(a + i * x->k + k + 4));
      }
    }
    int64_t at = g * ZK_COLUMNS;
    __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p->scale + at)));
    __m512i zero = _mm512_set1_epi32(1);
    if (p->zero) zero = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p->zero + at)));
    UNROLL
    for (int i = 0; i < rows; i++) {
      int64_t r = i * x->groups + from + g;
      __m512i less = _mm512_set1_epi32(x->sum[r]);
      if (p->zero) less = _mm512_mullo_epi32(zero, less);
      __m512i sum = _mm512_sub_epi32(_mm512_add_epi32(s[i], t[i]), less);
      __m512 by = _mm512_mul_ps(_mm512_set1_ps(x->scale[r]), scale);
      all[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), by, all[i]);
    }
  }
  UNROLL
  for (int i = 0; i < rows; i++) _mm512_storeu_ps(sums[i], all[i]);
}
#endif

/* ---- rows ---------------------------------------------------------------------------------------------- */
#ifdef X86
VNNI static void round_vnni(const float *x, int64_t k, int64_t group, int8_t *code, float *scale,
                            int32_t *sum) {
  for (int64_t g = 0; g < k / group; g++, x += group, code += group) {
    const __m512i bits = _mm512_set1_epi32(0x7fffffff);
    __m512i most = _mm512_setzero_si512(), all = most;
    for (int64_t i = 0; i < group; i += 16)
      most = _mm512_max_epu32(most, _mm512_and_si512(_mm512_loadu_si512(x + i), bits));
    uint32_t far_bits = _mm512_reduce_max_epu32(most);
    float far;
    memcpy(&far, &far_bits, sizeof far);
    float inverse = far_bits && far_bits < 0x7f800000 ? 127 / far : 0;
    if (inverse == 0 || !isfinite(inverse)) {
      zk_round_row(x, group, group, code, scale + g, sum + g);
      continue;
    }
    for (int64_t i = 0; i < group; i += 16) {
      __m512i c = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(inverse)));
      _mm_storeu_si128((__m128i *)(void *)(code + i), _mm512_cvtepi32_epi8(c));
      all = _mm512_add_epi32(all, c);
    }
    scale[g] = far / 127;
    sum[g] = _mm512_reduce_add_epi32(all);
  }
}
#endif

/* ---- the instruction sets ------------------------------------------------------------------------------ */
#define EACH(X, set, how)                                                                                    \
  X(1, set, how)                                                                                             \
  X(2, set, how) X(3, set, how) X(4, set, how) X(5, set, how) X(6, set, how) X(7, set, how) X(8, set, how)
#define DEFINE(n, set, how)                                                                                  \
  how static void set##8_##n(const Panel *p, const ZkRoundedRows *x, int64_t f, int64_t t, Sums s) {         \
    rows_##set(p, x, f, t, s, n, 8);                                                                         \
  }                                                                                                          \
  how static void set##4_##n(const Panel *p, const ZkRoundedRows *x, int64_t f, int64_t t, Sums s) {         \
    rows_##set(p, x, f, t, s, n, 4);                                                                         \
  }
#define NAMES(n, set, how) {set##4_##n, set##8_##n},
typedef struct {
  RowsFn *fn[ZK_PACKED_ROWS][2]; /* by rows and by whether they are 8 bits */
} Set;

EACH(DEFINE, any, )
static const Set any = {{EACH(NAMES, any, )}};
#ifdef X86
EACH(DEFINE, avx2, AVX2)
EACH(DEFINE, vnni, VNNI)
static const Set avx2 = {{EACH(NAMES, avx2, )}}, vnni = {{EACH(NAMES, vnni, )}};
static const Set amx = {{EACH(NAMES, vnni, )}};
static const Set *const sets[] = {&any, &avx2, &vnni, &amx};
#else
static const Set *const sets[] = {&any};
#endif
enum { SETS = sizeof sets / sizeof *sets };

static const Set *used;

static bool is_here(int set) {
#ifdef X86
  __builtin_cpu_init();
  if (set == 1)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  if (set == 3) return zk_packed_tiles_here();
  if (set == 2) return zk_cpu_has(ZK_X86_V4) && __builtin_cpu_supports("avx512vnni");
#endif
  return set == 0;
}

bool zk_packed_rows_use(int set) {
  if (set < 0 || set >= SETS || !is_here(set)) return false;
  __atomic_store_n(&used, sets[set], __ATOMIC_RELAXED);
  return true;
}

static const Set *set_in_use(void) {
  const Set *set = __atomic_load_n(&used, __ATOMIC_RELAXED);
  if (set) return set;
  for (int i = SETS; !zk_packed_rows_use(--i);) continue;
  return __atomic_load_n(&used, __ATOMIC_RELAXED);
}

bool zk_packed_by_tiles(void) {
#ifdef X86
  return set_in_use() == &amx;
#else
  return false;
#endif
}

void zk_packed_round(const float *x, int64_t k, int64_t group, int8_t *code, float *scale, int32_t *sum) {
#ifdef X86
  const Set *set = set_in_use();
  if (set == &vnni || set == &amx) {
    round_vnni(x, k, group, code, scale, sum);
    return;
  }
#endif
  zk_round_row(x, k, group, code, scale, sum);
}

void zk_packed_rows(const ZkPacked *w, int64_t panel, const ZkRoundedRows *x, int64_t from, int64_t to,
                    float sums[][ZK_COLUMNS]) {
  Panel p = panel_of(w, panel, from);
  ZB_ASSERT(x->m >= 1 && x->m <= ZK_PACKED_ROWS && zk_elem_info[w->elem].codes == ZK_CODES_INTEGER);
  set_in_use()->fn[x->m - 1][zk_elem_info[w->elem].bits == 8](&p, x, from, to, sums);
}

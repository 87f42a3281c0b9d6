/* Operands of bf16 products into the order in which blocks read them: in both, neighbours in k lie side by
 * side, since the instructions add products of such pairs. So an operand that runs along k is copied or
 * transposed by pairs, and of one that runs across, two rows are interleaved. */
#include "kernels/cpu/bgemm.h"

#ifdef ZK_BGEMM_X86
#include "kernels/cpu/transpose.h"

ZK_AVX512 ZK_INLINE __mmask32 mask32(int64_t n) { return n >= 32 ? 0xffffffffu : n <= 0 ? 0 : (1u << n) - 1; }

/* Elements 0, 1, .. of two rows in turn: of the first 16, or of the others. */
ZK_AVX512 ZK_INLINE __m512i interleave(__m512i a, __m512i b, bool others) {
  __m512i i = _mm512_cvtepu16_epi32(_mm256_set_epi16(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
  i = _mm512_or_si512(i, _mm512_slli_epi32(_mm512_add_epi32(i, _mm512_set1_epi32(32)), 16));
  if (others) i = _mm512_add_epi16(i, _mm512_set1_epi16(16));
  return _mm512_permutex2var_epi16(a, i, b);
}

/* Asks for a line of row i: operands come from far away, and no CPU foresees steps across rows. */
ZK_INLINE void ask(const uint16_t *data, const int64_t *off, int64_t rows, int64_t i) {
  __builtin_prefetch(data + off[zk_min(i, rows - 1)]);
}
#define AHEAD 16 /* rows */

ZK_AVX512 static void b_across(const ZkPiece *p, uint16_t *to, int64_t panel) {
  for (int64_t k = 0; k < zk_ceil_div(p->nk, ZK_KUNIT) * ZK_KUNIT; k += 2) {
    const uint16_t *r0 = p->data + p->x[0] + p->k[zk_min(k, p->nk - 1)];
    const uint16_t *r1 = p->data + p->x[0] + p->k[zk_min(k + 1, p->nk - 1)];
    for (int64_t x = 0; x < p->nx; x += ZK_PANEL) {
      ask(p->data + p->x[0] + x, p->k, p->nk, k + AHEAD);
      ask(p->data + p->x[0] + x, p->k, p->nk, k + AHEAD + 1);
      __m512i v0 = _mm512_maskz_loadu_epi16(k < p->nk ? mask32(p->nx - x) : 0, r0 + x);
      __m512i v1 = _mm512_maskz_loadu_epi16(k + 1 < p->nk ? mask32(p->nx - x) : 0, r1 + x);
      uint16_t *pair = to + x / ZK_PANEL * panel + k * ZK_PANEL;
      _mm512_storeu_si512(pair, interleave(v0, v1, false));
      _mm512_storeu_si512(pair + ZK_PANEL, interleave(v0, v1, true));
    }
  }
}

ZK_AVX512 static void b_along(const ZkPiece *p, uint16_t *to, int64_t panel) {
  for (int64_t x = 0; x < zk_ceil_div(p->nx, ZK_PANEL) * ZK_PANEL; x += 16)
    for (int64_t k = 0; k < p->nk; k += ZK_KUNIT) {
      __m512i r[16];
      ZK_UNROLL
      for (int i = 0; i < 16; i++) {
        ask(p->data + p->k[0] + k, p->x, p->nx, x + 16 + i);
        r[i] = x + i < p->nx
                   ? _mm512_maskz_loadu_epi16(mask32(p->nk - k), p->data + p->x[x + i] + p->k[0] + k)
                   : _mm512_setzero_si512();
      }
      transpose16(r);
      uint16_t *pair = to + x / ZK_PANEL * panel + k * ZK_PANEL + x % ZK_PANEL * 2;
      ZK_UNROLL
      for (int i = 0; i < 16; i++) _mm512_storeu_si512(pair + i * 2 * ZK_PANEL, r[i]);
    }
}

static void b_scattered(const ZkPiece *p, uint16_t *to, int64_t panel) {
  for (int64_t k = 0; k < zk_ceil_div(p->nk, ZK_KUNIT) * ZK_KUNIT; k++)
    for (int64_t x = 0; x < zk_ceil_div(p->nx, ZK_PANEL) * ZK_PANEL; x++)
      to[x / ZK_PANEL * panel + k / 2 * 2 * ZK_PANEL + x % ZK_PANEL * 2 + k % 2] =
          k < p->nk && x < p->nx ? p->data[p->x[x] + p->k[k]] : 0;
}

void zk_bgemm_pack_b(const ZkPiece *p, uint16_t *to, int64_t panel) {
  (p->x_runs ? b_across : p->k_runs ? b_along : b_scattered)(p, to, panel);
}

ZK_AVX512 static void a_along(const ZkPiece *p, uint16_t *to, int strip, int64_t strip_size) {
  for (int64_t x = 0; x < p->nx; x++) {
    const uint16_t *row = p->data + p->x[x] + p->k[0];
    uint16_t *out = to + x / strip * strip_size + x % strip * ZK_KUNIT;
    for (int64_t k = 0; k < p->nk; k += ZK_KUNIT)
      _mm512_storeu_si512(out + k * strip, _mm512_maskz_loadu_epi16(mask32(p->nk - k), row + k));
  }
}

ZK_AVX512 static void a_across(const ZkPiece *p, uint16_t *to, int strip, int64_t strip_size) {
  for (int64_t k = 0; k < p->nk; k += ZK_KUNIT)
    for (int64_t x = 0; x < p->nx; x += 16) {
      __m512i r[16];
      __mmask32 mask = mask32(zk_min(16, p->nx - x));
      ZK_UNROLL
      for (int i = 0; i < 16; i++) {
        int64_t k0 = k + 2 * i, k1 = k0 + 1, last = p->nk - 1;
        const uint16_t *from = p->data + p->x[0] + x;
        __m512i v0 = _mm512_maskz_loadu_epi16(k0 > last ? 0 : mask, from + p->k[zk_min(k0, last)]);
        __m512i v1 = _mm512_maskz_loadu_epi16(k1 > last ? 0 : mask, from + p->k[zk_min(k1, last)]);
        ask(from, p->k, p->nk, k0 + ZK_KUNIT);
        ask(from, p->k, p->nk, k1 + ZK_KUNIT);
        r[i] = interleave(v0, v1, false);
      }
      transpose16(r);
      for (int64_t i = 0; i < zk_min(16, p->nx - x); i++)
        _mm512_storeu_si512(to + (x + i) / strip * strip_size + k * strip + (x + i) % strip * ZK_KUNIT, r[i]);
    }
}

static void a_scattered(const ZkPiece *p, uint16_t *to, int strip, int64_t strip_size) {
  for (int64_t x = 0; x < p->nx; x++)
    for (int64_t k = 0; k < zk_ceil_div(p->nk, ZK_KUNIT) * ZK_KUNIT; k++)
      to[x / strip * strip_size + k / ZK_KUNIT * ZK_KUNIT * strip + x % strip * ZK_KUNIT + k % ZK_KUNIT] =
          k < p->nk ? p->data[p->x[x] + p->k[k]] : 0;
}

void zk_bgemm_pack_a(const ZkPiece *p, uint16_t *to, int strip, int64_t strip_size) {
  (p->k_runs ? a_along : p->x_runs ? a_across : a_scattered)(p, to, strip, strip_size);
}

#else
void zk_bgemm_pack_b(const ZkPiece *p, uint16_t *to, int64_t panel) {
  (void)p, (void)to, (void)panel;
  ZB_ASSERT(!"no path");
}
void zk_bgemm_pack_a(const ZkPiece *p, uint16_t *to, int strip, int64_t strip_size) {
  (void)p, (void)to, (void)strip, (void)strip_size;
  ZB_ASSERT(!"no path");
}
#endif

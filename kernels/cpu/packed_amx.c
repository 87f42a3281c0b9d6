/* Sixteen rows in 8 bits, or twice as many, by a panel of packed weights, by AMX: a group of the panel is one
 * tile of weights, or several, and the sums of a group are a tile of integers. The bits are those of
 * packed_rows.c.
 *
 * Weights of 4 bits are unpacked to bytes before, a whole panel that all rows then go by. */
#include "kernels/cpu/bgemm.h"
#include "kernels/cpu/packed.h"

#ifdef ZK_BGEMM_X86
#include "kernels/cpu/amx.h"

#include <cpuid.h>
#include <immintrin.h>

#define VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))

enum { C0, C1, C2, C3, A0, A1, B }; /* tile registers: sums, rows, weights */

/* Signed bytes of a by unsigned ones of b. */
#define TILE_DOT(c, a, b)                                                                                    \
  __asm__ volatile(BEFORE_AMX "tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b))

void zk_packed_tiles_begin(ZkElem e) {
  int64_t k = zk_min(zk_packed_group(e), 64);
  TileConfig t = {.palette = 1};
  for (int c = C0; c <= C3; c++) t.bytes[c] = 64, t.rows[c] = ZK_TILE_ROWS;
  for (int a = A0; a <= A1; a++) t.bytes[a] = (uint16_t)k, t.rows[a] = ZK_TILE_ROWS;
  t.bytes[B] = 64, t.rows[B] = (uint8_t)(k / 4);
  TILE_CONFIGURE(t);
}

void zk_packed_tiles_end(void) { TILE_RELEASE(); }

VNNI static void unpack4(const uint8_t *from, int64_t bytes, uint8_t *to) {
  const __m512i low = _mm512_set1_epi8(15);
  for (int64_t i = 0; i < bytes; i += 64, to += 128) {
    __m512i v = _mm512_loadu_si512(from + i);
    _mm512_storeu_si512(to, _mm512_and_si512(v, low));
    _mm512_storeu_si512(to + 64, _mm512_and_si512(_mm512_srli_epi16(v, 4), low));
  }
}

const uint8_t *zk_packed_tiles_of(const ZkPacked *w, int64_t panel, uint8_t *room) {
  const uint8_t *codes = zk_packed_codes(w, panel);
  int64_t bytes = zk_panel_bytes(w->elem, w->k);
  if (zk_elem_info[w->elem].bits == 8)
    memcpy(room, codes, (size_t)bytes); /* loads of tiles foresee nothing */
  else unpack4(codes, bytes, room);
  return room;
}

/* Products of a group: a tile of each row block. Two groups are under way, since sums are in memory only
 * some time after they were multiplied. */
typedef int32_t Products[2][ZK_COLUMNS][ZK_COLUMNS];

typedef struct {
  const ZkRoundedRows *x;
  const uint8_t *codes, *zeros;
  const uint16_t *scales;
  int64_t group, step;
  int blocks;
} Tiles;

/* Numbers of tiles are in the instruction, hence a macro: c is of the first block, d of the second. */
#define MULTIPLY(c, d)                                                                                       \
  do {                                                                                                       \
    const int8_t *rows = s->x->code + at, *more = rows + ZK_TILE_ROWS * s->x->k;                             \
    TILE_ZERO(c);                                                                                            \
    if (both) TILE_ZERO(d);                                                                                  \
    for (int64_t k = 0; k < s->group; k += s->step) {                                                        \
      TILE_LOAD(B, s->codes + (at + k) * ZK_COLUMNS, 64);                                                    \
      TILE_LOAD(A0, rows + k, s->x->k);                                                                      \
      TILE_DOT(c, A0, B);                                                                                    \
      if (both) TILE_LOAD(A1, more + k, s->x->k);                                                            \
      if (both) TILE_DOT(d, A1, B);                                                                          \
    }                                                                                                        \
    TILE_STORE(c, to[0], 64);                                                                                \
    if (both) TILE_STORE(d, to[1], 64);                                                                      \
  } while (0)

ZK_INLINE void multiply(const Tiles *s, int64_t g, Products to, const bool both) {
  int64_t at = g * s->group;
  if (g % 2) MULTIPLY(C2, C3);
  else MULTIPLY(C0, C1);
}

/* Adds the products of group g to sums of rows, or begins with them. */
VNNI static void add_group(const Tiles *s, int64_t g, Products from, bool begins, float sums[][ZK_COLUMNS]) {
  const int64_t at = g * ZK_COLUMNS;
  __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(s->scales + at)));
  __m512i zero = _mm512_set1_epi32(1); /* sums of rows count by it already */
  if (s->zeros) zero = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(s->zeros + at)));
  for (int b = 0; b < s->blocks; b++) {
    const int64_t r = b * ZK_TILE_ROWS * s->x->groups + g;
    ZK_UNROLL
    for (int i = 0; i < ZK_TILE_ROWS; i++) {
      __m512i less = _mm512_set1_epi32(s->x->sum[r + i * s->x->groups]);
      if (s->zeros) less = _mm512_mullo_epi32(zero, less);
      __m512 sum = _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_load_si512(from[b][i]), less));
      __m512 by = _mm512_mul_ps(_mm512_set1_ps(s->x->scale[r + i * s->x->groups]), scale);
      float *to = sums[b * ZK_TILE_ROWS + i];
      _mm512_storeu_ps(to, _mm512_fmadd_ps(sum, by, begins ? _mm512_setzero_ps() : _mm512_loadu_ps(to)));
    }
  }
}

VNNI ZK_INLINE void all_groups(const Tiles *s, const int64_t *bound, int chunks, ZkPackedSums sums,
                               const bool both) {
  Products products[2] __attribute__((aligned(64)));
  if (bound[0] < bound[chunks]) multiply(s, bound[0], products[bound[0] % 2], both);
  for (int c = 0; c < chunks; c++)
    for (int64_t g = bound[c]; g < bound[c + 1]; g++) {
      if (g + 1 < bound[chunks]) multiply(s, g + 1, products[(g + 1) % 2], both);
      add_group(s, g, products[g % 2], g == bound[c], sums[c]);
    }
}

VNNI void zk_packed_tiles(const ZkPacked *w, int64_t panel, const uint8_t *codes, const ZkRoundedRows *x,
                          const int64_t *bound, int chunks, ZkPackedSums sums) {
  Tiles s = {.x = x, .codes = codes, .scales = zk_packed_scales(w, panel)};
  s.group = zk_packed_group(w->elem), s.step = zk_min(s.group, 64), s.blocks = (int)(x->m / ZK_TILE_ROWS);
  if (zk_elem_info[w->elem].zero == ZK_ZERO_POINT) s.zeros = zk_packed_zeros(w, panel);
  if (s.blocks > 1) all_groups(&s, bound, chunks, sums, true);
  else all_groups(&s, bound, chunks, sums, false);
}

bool zk_packed_tiles_here(void) {
  static int here; /* 0: not asked yet; 1: no; 2: yes */
  int now = __atomic_load_n(&here, __ATOMIC_RELAXED);
  if (!now) {
    unsigned a, b, c, d;
    bool is = zk_bgemm_amx.here() && __builtin_cpu_supports("avx512vnni") &&
              __get_cpuid_count(7, 0, &a, &b, &c, &d) && d >> 25 & 1;
    __atomic_store_n(&here, now = is ? 2 : 1, __ATOMIC_RELAXED);
  }
  return now == 2;
}

#else
bool zk_packed_tiles_here(void) { return false; }
void zk_packed_tiles_begin(ZkElem e) { (void)e; }
void zk_packed_tiles_end(void) { TILE_RELEASE(); }
const uint8_t *zk_packed_tiles_of(const ZkPacked *w, int64_t panel, uint8_t *room) {
  (void)w, (void)panel;
  return room;
}
void zk_packed_tiles(const ZkPacked *w, int64_t panel, const uint8_t *codes, const ZkRoundedRows *x,
                     const int64_t *bound, int chunks, ZkPackedSums sums) {
  (void)w, (void)panel, (void)codes, (void)x, (void)bound, (void)chunks, (void)sums;
  ZB_ASSERT(!"no path");
}
#endif

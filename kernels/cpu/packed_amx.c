/* Sixteen rows in 8 bits by a panel of packed weights, by AMX: a group of the panel is one tile of weights, or
 * several, and the sums of a group are a tile of integers. The bits are those of packed_rows.c.
 *
 * Weights of 4 bits are unpacked to bytes before, a whole panel that all rows then go by. */
#include "kernels/cpu/bgemm.h"
#include "kernels/cpu/packed.h"

#ifdef ZK_BGEMM_X86
#include <cpuid.h>
#include <immintrin.h>

#define VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))

/* What ldtilecfg reads. */
typedef struct {
  uint8_t palette, start_row, zero[14];
  uint16_t bytes[16]; /* of a row of each tile */
  uint8_t rows[16];
} TileConfig;
_Static_assert(sizeof(TileConfig) == 64, "the layout is the CPU's");

enum { C, A, B }; /* tile registers: sums, rows, weights */

#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm%c0" : : "i"(t))
#define TILE_LOAD(t, from, stride)                                                                           \
  __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(t), "r"(from), "r"((int64_t)(stride)) : "memory")
#define TILE_STORE(t, to, stride)                                                                            \
  __asm__ volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(t), "r"(to), "r"((int64_t)(stride)) : "memory")
/* Signed bytes of a by unsigned ones of b. */
#define TILE_DOT(c, a, b) __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b))

void zk_packed_tiles_begin(ZkElem e) {
  int64_t k = zk_min(zk_packed_group(e), 64);
  TileConfig t = {.palette = 1};
  t.bytes[C] = t.bytes[B] = 64, t.rows[C] = t.rows[A] = ZK_COLUMNS;
  t.bytes[A] = (uint16_t)k, t.rows[B] = (uint8_t)(k / 4);
  __asm__ volatile("ldtilecfg %0" : : "m"(t));
}

void zk_packed_tiles_end(void) { __asm__ volatile("tilerelease"); /* an idle thread has no tiles to save */ }

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
  if (zk_elem_info[w->elem].bits == 8) return codes;
  unpack4(codes, zk_panel_bytes(w->elem, w->k), room);
  return room;
}

VNNI void zk_packed_tiles(const ZkPacked *w, int64_t panel, const uint8_t *codes, const ZkRoundedRows *x,
                          int64_t from, int64_t to, float sums[][ZK_COLUMNS]) {
  const int64_t group = zk_packed_group(w->elem), step = zk_min(group, 64);
  const uint16_t *scales = zk_packed_scales(w, panel);
  const uint8_t *zeros = zk_elem_info[w->elem].zero == ZK_ZERO_POINT ? zk_packed_zeros(w, panel) : NULL;
  int32_t products[ZK_COLUMNS][ZK_COLUMNS] __attribute__((aligned(64)));
  __m512 all[ZK_COLUMNS];
  ZK_UNROLL
  for (int i = 0; i < ZK_COLUMNS; i++) all[i] = _mm512_setzero_ps();
  for (int64_t g = from; g < to; g++) {
    TILE_ZERO(C);
    for (int64_t k = g * group; k < (g + 1) * group; k += step) {
      TILE_LOAD(A, x->code + k, x->k);
      TILE_LOAD(B, codes + k * ZK_COLUMNS, 64);
      TILE_DOT(C, A, B);
    }
    TILE_STORE(C, products, 64);
    int64_t at = g * ZK_COLUMNS;
    __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(scales + at)));
    __m512i zero = _mm512_set1_epi32(zk_packed_zero(w->elem));
    if (zeros) zero = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(zeros + at)));
    ZK_UNROLL
    for (int i = 0; i < ZK_COLUMNS; i++) {
      int64_t r = i * x->groups + g;
      __m512i sum = _mm512_sub_epi32(_mm512_load_si512(products[i]),
                                     _mm512_mullo_epi32(zero, _mm512_set1_epi32(x->sum[r])));
      all[i] =
          _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(_mm512_set1_ps(x->scale[r]), scale), all[i]);
    }
  }
  ZK_UNROLL
  for (int i = 0; i < ZK_COLUMNS; i++) _mm512_storeu_ps(sums[i], all[i]);
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
void zk_packed_tiles_end(void) {}
const uint8_t *zk_packed_tiles_of(const ZkPacked *w, int64_t panel, uint8_t *room) {
  (void)w, (void)panel;
  return room;
}
void zk_packed_tiles(const ZkPacked *w, int64_t panel, const uint8_t *codes, const ZkRoundedRows *x,
                     int64_t from, int64_t to, float sums[][ZK_COLUMNS]) {
  (void)w, (void)panel, (void)codes, (void)x, (void)from, (void)to, (void)sums;
  ZB_ASSERT(!"no path");
}
#endif

/* Blocks of bf16 products by AMX: tiles of 16 rows of 64 bytes. A step is 32 of k: two tiles of a (16 rows by
 * 32 of k each), two of b (16 pairs of k by 16 columns), four tiles of sums, so that each tile that is read
 * is used twice.
 *
 * Compiled for any x86-64: the instructions are assembly and run only where cpuid has them and Linux grants
 * the state of the tiles, which a process must ask for. */
#include "kernels/cpu/bgemm.h"

#define TILE 16
#define ROWS 32 /* of a strip */

#ifdef ZK_BGEMM_X86
#include "kernels/cpu/amx.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { C00, C01, C10, C11, A0, A1, B0, B1, TILES }; /* tile registers */

#define TILE_DOT(c, a, b)                                                                                    \
  __asm__ volatile(BEFORE_AMX "tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b))

/* Tiles for strips of `rows` rows. */
static void configure(int64_t rows) {
  TileConfig t = {.palette = 1};
  for (int i = 0; i < TILES; i++) {
    t.bytes[i] = 64;
    t.rows[i] = TILE;
  }
  t.rows[C00] = t.rows[C01] = t.rows[A0] = (uint8_t)zk_min(rows, TILE);
  if (rows > TILE) t.rows[C10] = t.rows[C11] = t.rows[A1] = (uint8_t)(rows - TILE);
  TILE_CONFIGURE(t);
}

/* One strip by one panel; only the upper tiles if it has no more rows. */
ZK_INLINE void strip(const ZkBlock *x, const uint16_t *a, const uint16_t *b, float *sums, const bool both) {
  int64_t a_bytes = 2 * x->a_row, b_bytes = 4 * ZK_PANEL;
  TILE_ZERO(C00);
  TILE_ZERO(C01);
  if (both) {
    TILE_ZERO(C10);
    TILE_ZERO(C11);
  }
  for (int64_t k = x->k; k > 0; k -= ZK_KUNIT, a += x->a_block, b += ZK_KUNIT * ZK_PANEL) {
    TILE_LOAD(B0, b, b_bytes);
    TILE_LOAD(A0, a, a_bytes);
    TILE_LOAD(B1, b + ZK_PANEL, b_bytes);
    TILE_DOT(C00, A0, B0);
    if (both) TILE_LOAD(A1, a + TILE * x->a_row, a_bytes);
    TILE_DOT(C01, A0, B1);
    if (both) {
      TILE_DOT(C10, A1, B0);
      TILE_DOT(C11, A1, B1);
    }
  }
  TILE_STORE(C00, sums, 4 * ZK_PANEL);
  TILE_STORE(C01, sums + TILE, 4 * ZK_PANEL);
  if (both) {
    TILE_STORE(C10, sums + TILE * ZK_PANEL, 4 * ZK_PANEL);
    TILE_STORE(C11, sums + TILE * ZK_PANEL + TILE, 4 * ZK_PANEL);
  }
}

static void block(const ZkBlock *x) {
  float sums[ROWS * ZK_PANEL] __attribute__((aligned(64)));
  int64_t configured = 0;
  for (int64_t i = 0; i < x->m; i += ROWS) {
    const uint16_t *a = x->a + i / ROWS * x->a_strip;
    int64_t rows = zk_min(ROWS, x->m - i);
    if (rows != configured) configure(configured = rows);
    for (int64_t j = 0; j < x->n; j += ZK_PANEL) {
      const uint16_t *b = x->b + j / ZK_PANEL * x->b_panel;
      if (rows > TILE) strip(x, a, b, sums, true);
      else strip(x, a, b, sums, false);
      zk_bgemm_put(x, i, j, sums, rows);
    }
  }
  TILE_RELEASE();
}

static uint64_t enabled_state(void) {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

#define TILE_STATE 18 /* XFEATURE_XTILE_DATA */
#define ARCH_REQ_XCOMP_PERM 0x1023

static bool here(void) {
  unsigned a, b, c, d;
  if (!zk_bgemm_avx512.here()) return false; /* packing and sums */
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & 1u << 22) || !(d & 1u << 24)) return false;
  if ((enabled_state() >> 17 & 3) != 3) return false;
  return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_STATE) == 0; /* for all threads, later ones too */
}

#else
static void block(const ZkBlock *x) {
  (void)x;
  ZB_ASSERT(!"no path");
}
static bool here(void) { return false; }
#endif

static bool fast(void) { return true; }

const ZkBgemmPath zk_bgemm_amx = {"AMX", ROWS, ZK_KUNIT, 1 << 19, here, fast, block};

/* Blocks of f32 products, each sum made in order, for each instruction set. */
#include "kernels/cpu/fgemm.h"

#define CACHED (1 << 17) /* elements of b that stay in the second cache: 512 KB */

/* What some rows by two vectors are made of; a_step: between rows of a, or from one k to the next, whichever is
 * not 1. */
typedef struct {
  const float *a, *b;
  float *c;
  int64_t a_step, b_step, ldc, k;
  bool add;
} Strip;
typedef void StripFn(const Strip *x);

/* ---- the instruction sets: registers hold ROWS x COLUMNS sums ---- */
#define LANES 4
#define ROWS 4
#define NAME(x) x##_any
#include "kernels/cpu/fgemm_strip.h"
#undef LANES
#undef ROWS
#undef NAME

/* Other compilers have no such pragma. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#define LANES 8
#define ROWS 6
#define NAME(x) x##_v3
#include "kernels/cpu/fgemm_strip.h"
#undef LANES
#undef ROWS
#undef NAME
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#define LANES 16
#define ROWS 12
#define NAME(x) x##_v4
#include "kernels/cpu/fgemm_strip.h"
#pragma GCC pop_options
#endif

typedef void Block(const ZkFblock *x);
static Block *const sets[] = {
    block_any,
#ifdef WIDE
    block_v3,
    block_v4,
#endif
};
enum { SETS = sizeof sets / sizeof *sets };

static bool here(int set) { return set == 0 || zk_cpu_has(set == 1 ? ZK_X86_V3 : ZK_X86_V4); }

static Block *used;

bool zk_fgemm_use(int set) {
  if (set < 0 || set >= SETS || !here(set)) return false;
  __atomic_store_n(&used, sets[set], __ATOMIC_RELAXED);
  return true;
}

void zk_fgemm_block(const ZkFblock *x) {
  Block *block = __atomic_load_n(&used, __ATOMIC_RELAXED);
  if (!block) {
    for (int set = SETS; !zk_fgemm_use(--set);) continue;
    block = __atomic_load_n(&used, __ATOMIC_RELAXED);
  }
  block(x);
}

void zk_fgemm(bool ta, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
              int64_t ldb, bool add, float *c, int64_t ldc) {
  ZkFblock x = {
      .a = a, .b = b, .c = c, .b_panel = ZK_FPANEL, .b_step = ldb, .ldc = ldc, .m = m, .n = n, .k = k};
  x.a_row = ta ? 1 : lda, x.a_step = ta ? lda : 1, x.a_strip = ZK_FSTRIP * x.a_row;
  x.add = add;
  zk_fgemm_block(&x);
}

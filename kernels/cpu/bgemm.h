/* Products of bf16 matrices with f32 sums. Private to kernels/cpu.
 *
 * bgemm.c         how a product is cut, and by which thread
 * bgemm_path.c    which instructions
 * bgemm_pack.c    operands into the order in which they are read
 * bgemm_avx512.c  blocks by vdpbf16ps          bgemm_amx.c  blocks by AMX tiles */
#ifndef ZUG_KERNELS_BGEMM_H
#define ZUG_KERNELS_BGEMM_H

#include "kernels/cpu/cpu.h"

/* Compilers that know the instructions; whether the CPU does is asked when the program runs. */
#if defined(__x86_64__) && defined(__linux__) &&                                                             \
    ((defined(__clang__) && __clang_major__ >= 12) || (!defined(__clang__) && __GNUC__ >= 11))
#define ZK_BGEMM_X86
#define ZK_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#endif

/* Before a loop of constant length: wholly unrolled, so that arrays of vectors become registers. */
#ifdef __clang__ /* a number would mean later, when arrays have got their memory */
#define ZK_UNROLL _Pragma("unroll")
#else
#define ZK_UNROLL _Pragma("GCC unroll 16")
#endif

/* ---- a product ------------------------------------------------------------------------------- */

/* c[batch, m, n] (+)= a[batch, m, k] b[batch, k, n]; a and b are bf16, c is bf16 or f32; K > 0. The views are
 * a, b, c, here and in all nests; any strides, fastest if n runs along c. */
typedef struct {
  ZkView v[3];
  ZkNest batch, m, n, k;
  int64_t nbatch, M, N, K;
  bool add;
  int64_t first_b; /* of invariant.h: offset of the first element of b */
} ZkBgemm;
enum { ZK_GA, ZK_GB, ZK_GC };

/* Gives the same bits with any number of threads. Only if zk_bgemm_here(). */
void zk_bgemm(const ZkEnv *env, const ZkBgemm *g, void *scratch);
/* Bytes; the same on every machine, since a plan counts them. */
size_t zk_bgemm_scratch(const ZkBgemm *g, int threads);

/* Element (i, j) at data[i ld + j], or if transposed at data[j ld + i]. */
typedef struct {
  void *data;
  int64_t ld;
  bool trans;
} ZkPlain;
/* The product of plain matrices, for those who multiply outside of dot. */
ZkBgemm zk_bgemm_plain(int64_t m, int64_t n, int64_t k, ZkPlain a, ZkPlain b, ZkPlain c, ZkElem c_elem,
                       bool add);

/* ---- by which instructions ------------------------------------------------------------------- */

/* c = a b, plus `more` unless NULL, plus c if `add`: in f32, rounded once.
 *
 * Element (i, j) of a at a[i / strip * a_strip + i % strip * a_row + j / 32 * a_block + j % 32]. b is packed:
 * panels of 32 columns, b_panel apart, each [k / 2][32][2]. k is a multiple of 32, or of the path's step,
 * with zeros beyond what the product has. Of rows beyond m nothing is read, of columns beyond n nothing is
 * written. */
typedef struct {
  const uint16_t *a, *b;
  int64_t a_strip, a_row, a_block, b_panel;
  int64_t m, n, k;
  const float *more;
  void *c;
  int64_t ldmore, ldc;
  ZkElem c_elem;
  bool add;
} ZkBlock;

#define ZK_PANEL 32 /* columns of a panel */
#define ZK_KUNIT 32 /* k is padded to it */
#define ZK_MUNIT 96 /* a multiple of every path's strip */

typedef struct {
  const char *text;   /* in descriptions */
  int strip;          /* rows of a that are read together */
  int step;           /* k of a block may be any multiple of it */
  int64_t cached;     /* elements of b in half of a second cache */
  bool (*here)(void); /* compiler, CPU and kernel allow it */
  bool (*fast)(void); /* known to be faster here than f32 products */
  void (*block)(const ZkBlock *block);
} ZkBgemmPath;

extern const ZkBgemmPath zk_bgemm_amx, zk_bgemm_avx512;

/* The path of this process; NULL: bf16 products are f32 products of converted operands. */
const ZkBgemmPath *zk_bgemm_path(void);
static inline bool zk_bgemm_here(void) { return zk_bgemm_path() != NULL; }
void zk_bgemm_use(const ZkBgemmPath *path); /* for tests and measurements: from now on, asking nothing */
const char *zk_bgemm_text(void);            /* "vdpbf16ps": for descriptions */

/* ---- packing --------------------------------------------------------------------------------- */

/* Where elements of an operand lie: those of index x (a row of a, a column of b) and k at x_off + k_off. */
typedef struct {
  const uint16_t *data;
  const int64_t *x, *k; /* offsets of the nx indices and the nk indices to pack */
  int64_t nx, nk;
  bool x_runs, k_runs; /* neighbours in x, in k lie side by side */
} ZkPiece;
/* Columns x of b into panels from `to` on, panel apart; k from a multiple of 2 on, padded to 32. */
void zk_bgemm_pack_b(const ZkPiece *p, uint16_t *to, int64_t panel);
/* Rows x of a into strips of `strip` rows, each k / 32 blocks of [strip][32]; k from a multiple of 32 on. */
void zk_bgemm_pack_a(const ZkPiece *p, uint16_t *to, int strip, int64_t strip_size);

/* Sums of a strip and a panel, in rows of 32, to rows and columns i, j on of where the block wants them. */
void zk_bgemm_put(const ZkBlock *block, int64_t i, int64_t j, const float *sums, int64_t rows);

#endif

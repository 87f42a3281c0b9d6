/* Batch-invariant products: the bits of a result depend on its row and its column alone, not on how many rows
 * and columns a call has, on the number of threads or on how a call is cut. Private to kernels/cpu.
 *
 *   invariant.c        who computes what, chunks, and their tree
 *   invariant_pack.c   weights of a block into panels
 *   invariant_rows.c   few rows by weights that are read where they lie
 *   invariant_tiles.c  the same with the bits of AMX
 *
 * The order of summation. The contracted axes are gone through in the order in which they lie in the call's
 * second operand, slowest first: k = 0 .. K-1. K is cut into ZK_SUM_CHUNKS = 8 chunks by halving it three times, where
 * the first half of an odd number is the smaller one. A chunk is summed in the order of k, from 0 on, in f32:
 *
 *   f32, mixed    one fused multiply-add for each k; a CPU without that instruction rounds twice
 *   bf16 x bf16   the same of converted operands; or where bgemm.h has a path for this CPU, by its
 *                 instruction, whose operands are pairs (vdpbf16ps) or 32 (AMX) of k, zeros behind the end of
 *                 the chunk
 *
 * Sums of chunks are added as a binary tree, ((0+1)+(2+3))+((4+5)+(6+7)), in f32. Empty chunks (of short
 * sums) are left out. Then comes what is accumulated to, then the one rounding to the type of the result.
 *
 * If k is split over 2, 4 or 8 ranks, each has neighbouring chunks, which make a subtree: a view says so by
 * an axis that is smaller than the whole one. Ranks that add their parts as a tree in f32 (exec/comm/combine.c) get the
 * bits of one rank, if the axis that is split is the slowest of those that are summed: a rank that has half of k has the
 * chunks that halving made of it.
 *
 * Bits may differ between machines with other instructions. */
#ifndef ZUG_KERNELS_INVARIANT_H
#define ZUG_KERNELS_INVARIANT_H

#include "kernels/cpu/bgemm.h"
#include "kernels/cpu/fgemm.h"

#define ZK_SUM_CHUNKS 8
#define ZK_SUM_UNIT 16
#define ZK_SUM_LEVELS 4 /* sums that wait for others: of 1, 2 and 4 chunks, and one that is being made */

/* ---- products ------------------------------------------------------------------------------------------ */

/* Returns how many chunks this rank's part of a sum over those axes of an operand is, of a product the second: 8,
 * 4, 2 or 1. */
int zk_sum_chunks(const ZkView *v, const uint16_t *ax, int nax);
/* Returns where chunk c of a sum of k terms in `chunks` chunks begins; where c is `chunks`, its end. */
int64_t zk_sum_chunk(int64_t k, int c, int chunks);

/* Computes a product whose operands are of any type. scratch: as many bytes as zk_invariant_scratch says,
 * which are enough for every product with fewer rows, too. */
void zk_invariant(const ZkEnv *env, const ZkBgemm *g, int chunks, void *scratch);
size_t zk_invariant_scratch(const ZkBgemm *g, int chunks, int threads);

/* Computes the rows from `first` on alone, `rows` of them. */
void zk_invariant_rows(const ZkEnv *env, const ZkBgemm *g, int chunks, int64_t first, int64_t rows,
                       void *scratch);

/* ---- few rows by weights that are read where they lie: invariant_rows.c -------------------------------- */
#define ZK_FEW 8 /* most rows */
#define ZK_EACH_FEW(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)

/* sum[i, j] (+)= sum over p of x[i, p] w[p, j] in the order of p, for n columns that lie side by side in w,
 * whose rows are ldw apart. Element (i, p) of x at x[i * ldx + p]; if `pairs` these are pairs of bf16. sum
 * has room for columns up to a multiple of ZK_PANEL.
 *
 * Weights are asked for some rows before they are read; `next` rows come behind these k, and the first have
 * not been asked for yet if `cold`. */
typedef struct {
  const void *w, *x;
  float *sum;
  int64_t ldw, ldx, ldsum, m, n, k, next;
  bool cold;
  bool add; /* to what is in sum; else to 0 */
} ZkFewRows;
void zk_few_rows(const ZkFewRows *x, ZkElem w);
void zk_few_rows_pairs(const ZkFewRows *x); /* by vdpbf16ps: bf16, x in pairs */
void zk_few_rows_tiles(const ZkFewRows *x); /* the same with the bits of AMX's tiles */

/* The same of columns that run along k: up to 16 of them, ldw apart. The sum is of elements from .. from + k
 * of `whole`, of which w is the first. Rows of x in bf16 have zeros up to a multiple of 32 elements. Sums
 * have room for 16 columns. If `next`, 16 more columns come behind these: they are asked for as these are
 * read, by one call after the other. */
typedef struct {
  const void *w, *x;
  float *sum;
  int64_t ldw, ldx, ldsum, m, n, k, from, whole;
  const char *ahead, *ahead_end; /* what is asked for next: the caller leaves it alone */
  bool next;
  bool add;
} ZkFewColumns;
bool zk_few_columns_here(void); /* the set in use has it */
void zk_few_columns(ZkFewColumns *x, ZkElem w);
void zk_few_columns_pairs(ZkFewColumns *x);
void zk_few_columns_tiles(ZkFewColumns *x);

/* For tests: by instruction set 0, 1, 2 as zk_fgemm_use. */
bool zk_few_rows_use(int set);

/* ---- weights into panels of f32: invariant_pack.c ------------------------------------------------------ */
typedef struct {
  const ZkView *v;
  int64_t base;
  const int64_t *k, *n; /* offsets of nk elements and of nn columns from base */
  int64_t nk, nn;
  bool k_runs, n_runs; /* neighbours lie side by side */
} ZkWeights;
/* Packs columns into panels of ZK_FPANEL, each [nk][ZK_FPANEL] and `panel` apart, zeros where there are no
 * more columns. There is room for nk rounded up to ZK_SUM_UNIT. */
void zk_pack_weights(const ZkWeights *w, float *to, int64_t panel);

#endif

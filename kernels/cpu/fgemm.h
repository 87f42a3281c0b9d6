/* Blocks of f32 products whose bits depend on no size, for products of ragged rows. On one thread. Private to
 * kernels/cpu. */
#ifndef ZUG_KERNELS_FGEMM_H
#define ZUG_KERNELS_FGEMM_H

#include "kernels/cpu/cpu.h"

/* c[i, j] = sum over p of a[i, p] b[p, j], plus c if `add`. A sum begins with c or 0. Its terms are added by
 * fused multiply-adds in the order of p. So its bits depend neither on m, n, i and j, nor on how p is cut into
 * calls. A CPU without that instruction rounds twice.
 *
 * Element (i, p) of a at a[i / 12 * a_strip + i % 12 * a_row + p * a_step], of which steps one is 1; (p, j)
 * of b at b[j / 32 * b_panel + p * b_step + j % 32]; (i, j) of c at c[i * ldc + j]. */
typedef struct {
  const float *a, *b;
  float *c;
  int64_t a_strip, a_row, a_step, b_panel, b_step, ldc;
  int64_t m, n, k;
  bool add;
} ZkFblock;
#define ZK_FSTRIP 12 /* a multiple of the rows that any set holds in registers */
#define ZK_FPANEL 32 /* the same of columns */

void zk_fgemm_block(const ZkFblock *x);

/* The product of plain matrices of rows, that of a transposed if `ta`: for those that fit the second cache,
 * since nothing is packed. */
void zk_fgemm(bool ta, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
              int64_t ldb, bool add, float *c, int64_t ldc);

/* For tests and measurements: from now on by instruction set 0 (any CPU), 1 (AVX2), 2 (AVX-512). False if it
 * is not here, and nothing changes. Without it the last that is here. */
bool zk_fgemm_use(int set);

#endif

/* Weights of 8 and 4 bits: a matrix as codes, in panels of 16 columns, with a scale for each group of
 * neighbouring elements of a column. Columns are what comes out of a product, their elements what it sums
 * over.
 *
 *   element = (code - zero) scale              INTEGER: zero is 8, 128, or the group's own
 *   element = value[code] scale                any other: NORMAL has the quantiles of Dettmers et al. (2023),
 *                                              appendix E
 *
 * One behind the other lie the codes of all panels, all scales (f16) and, where groups have zeros, all of
 * these (a byte each):
 *
 *   codes[panel][k / 4][16 columns][4]               of 8 bits, unsigned: a load of 64 bytes is what vpdpbusd
 *                                                    takes, and 16 of them are a tile of AMX
 *   codes[panel][k / 8][16 columns][4]               of 4 bits: k .. k+3 in the low halves of bytes,
 *                                                    k+4 .. k+7 in the high ones
 *   scales[panel][k / group][16 columns]             zeros are in the same order
 *
 * Example: w[k = 64, n = 20] as int4 group 32: two panels of 512 bytes, the second with 12 columns of zeros;
 * behind them 64 scales.
 *
 * A matrix takes whole units of elements, so that the next one begins at a multiple of 64 bytes. */
#ifndef ZUG_KERNELS_PACKED_H
#define ZUG_KERNELS_PACKED_H

#include "kernels/kernels.h"

typedef struct {
  ZkElem elem;
  int64_t columns, k; /* k: elements of a column, whole groups */
  void *at;
} ZkPacked;

/* ---- where things lie ---------------------------------------------------------------------------------- */
static inline int64_t zk_panel_bytes(ZkElem e, int64_t k) {
  return ZK_COLUMNS * k * zk_elem_info[e].bits / 8;
}
static inline uint8_t *zk_packed_codes(const ZkPacked *p, int64_t panel) {
  return (uint8_t *)p->at + panel * zk_panel_bytes(p->elem, p->k);
}
/* Return the scales and zeros of a panel's first group: those of the next group are ZK_COLUMNS farther on. */
static inline uint16_t *zk_packed_scales(const ZkPacked *p, int64_t panel) {
  uint64_t codes = zk_packed_elems(p->elem, p->columns, p->k) * zk_elem_info[p->elem].bits / 8;
  return (uint16_t *)(void *)((uint8_t *)p->at + codes) +
         panel * (p->k / zk_packed_group(p->elem)) * ZK_COLUMNS;
}
static inline uint8_t *zk_packed_zeros(const ZkPacked *p, int64_t panel) {
  uint64_t elems = zk_packed_elems(p->elem, p->columns, p->k);
  uint64_t groups = elems / (uint64_t)zk_packed_group(p->elem),
           codes = elems * zk_elem_info[p->elem].bits / 8;
  ZB_ASSERT(zk_elem_info[p->elem].zero == ZK_ZERO_POINT);
  return (uint8_t *)p->at + codes + 2 * groups + panel * (p->k / zk_packed_group(p->elem)) * ZK_COLUMNS;
}

/* Returns a packed view as a matrix. */
static inline ZkPacked zk_packed_of(const ZkView *v) {
  ZkPacked p = {(ZkElem)v->elem, 1, 1, v->data};
  for (int i = 0; i < v->rank; i++) *(i < v->rank - v->summed ? &p.columns : &p.k) *= v->size[i];
  return p;
}

/* Returns the zero of groups that have none of their own. */
static inline int zk_packed_zero(ZkElem e) { return 1 << (zk_elem_info[e].bits - 1); }

static inline int zk_packed_code(const ZkPacked *p, int64_t column, int64_t k) {
  const uint8_t *codes = zk_packed_codes(p, column / ZK_COLUMNS);
  int64_t c = column % ZK_COLUMNS;
  if (zk_elem_info[p->elem].bits == 8) return codes[(k / 4 * ZK_COLUMNS + c) * 4 + k % 4];
  return codes[(k / 8 * ZK_COLUMNS + c) * 4 + k % 4] >> (k % 8 < 4 ? 0 : 4) & 15;
}
/* ---- packed.c ------------------------------------------------------------------------------------------ */
/* Returns the 16 values of a format's codes, ascending, the largest 1 or -1; NULL: codes are integers. */
const float *zk_code_values(ZkElem e);

/* Unpacks elements k .. k + n of a column. */
void zk_packed_decode(const ZkPacked *p, int64_t column, int64_t k, int64_t n, float *x);
/* Unpacks element k of n columns. */
void zk_packed_decode_row(const ZkPacked *p, int64_t k, int64_t column, int64_t n, float *x);

/* ---- packed_round.c ------------------------------------------------------------------------------------ */
/* Packs a group of all columns of a panel, x[group][ZK_COLUMNS]: chooses their scales, and zeros, and rounds.
 * Columns that fill the last panel are zeros. Panels may be packed by different threads. What is not finite
 * makes a scale that is not. */
void zk_packed_encode(const ZkPacked *p, int64_t panel, int64_t group, const float *x);

/* ---- ref/packed.c -------------------------------------------------------------------------------------- */
/* Multiplies a row of w->k elements by the weights: y[w->columns], in so many chunks of groups. */
void zk_ref_packed_row(const ZkPacked *w, const float *x, int chunks, float *y);

/* ---- rows in 8 bits ------------------------------------------------------------------------------------ */
/* Rounds `k` elements of a row to codes from -127 to 127, with a scale for each group, which is its largest
 * element's share of 127, and the sum of a group's codes. The scale of a group with something that is not
 * finite is NaN. */
void zk_round_row(const float *x, int64_t k, int64_t group, int8_t *code, float *scale, int32_t *sum);

#endif

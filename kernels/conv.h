/* conv: which elements meet in a convolution, for kernels of every device.
 *
 * Each of the three operations is a product of A, whose windows are gathered, with B or C:
 *
 *   conv            C = y[m, n]  =  A = x's windows [m, k]  B = w[k, n]
 *   conv_transpose  C = x[m, n]  =  A = y's windows [m, k]  B = w[k, n]
 *   conv_grad       B = w[k, n]  =  A = x's windows [k, m]  C = y[m, n]
 *
 * once for each point of the axes that all three have (groups). m goes over samples and positions in C, n
 * over what only w gives C, k over the window and what is summed.
 *
 * Which position of A belongs to position o of C, in a window at k? In conv, o stride + k dilate - before. In
 * its transpose position r of x is in the windows of those o for which o stride = r + before - k dilate: that
 * is k's only of the right remainder. So positions of x are taken *phase* by phase, those of one remainder
 * together; for them and their windows
 *
 *   position in A = step i + shift of window j,    position in C = first + jump i,    i = 0, 1, ..
 *
 * which holds of conv, too, where the one phase has all positions and windows. Nothing is multiplied by zeros
 * between elements, whatever the stride. */
#ifndef ZUG_KERNELS_CONV_H
#define ZUG_KERNELS_CONV_H

#include "graph/conv.h"
#include "kernels/kernels.h"

typedef struct {      /* a spatial axis; the second half is of a phase */
  int64_t sa, sb, sc; /* strides of positions in A, of the window in B, of positions in C */
  int64_t asize, csize, window, before;
  int64_t n, step, first, jump;             /* positions i */
  int64_t windows, k, kstep, shift, kshift; /* window j is at k + j kstep, and shifts by shift + j kshift */
} ZkConvDim;

static inline void zk_conv_along(const ZkView *v, uint16_t axis, int64_t *stride, int64_t *size) {
  for (int i = 0; i < v->rank; i++)
    if (v->axis[i] == axis) *stride = v->stride[i], *size = v->size[i];
}
static inline const ZkView *zk_conv_b(const ZkCall *c) {
  return c->op == ZG_OP_CONV_GRAD ? &c->out[0] : &c->in[1];
}
static inline const ZkView *zk_conv_c(const ZkCall *c) {
  return c->op == ZG_OP_CONV_GRAD ? &c->in[1] : &c->out[0];
}

/* Fills in what does not depend on the phase; returns how many spatial axes there are. */
static inline int zk_conv_dims(const ZkCall *c, ZkConvDim *dim) {
  bool transpose = c->op == ZG_OP_CONV_TRANSPOSE;
  for (int d = 0; d < c->nax / 3; d++) {
    ZkConvDim *q = &dim[d];
    zk_conv_along(&c->in[0], zg_conv_axis(c->ax, d, transpose ? ZG_CONV_Y : ZG_CONV_X), &q->sa, &q->asize);
    zk_conv_along(zk_conv_b(c), zg_conv_axis(c->ax, d, ZG_CONV_W), &q->sb, &q->window);
    zk_conv_along(zk_conv_c(c), zg_conv_axis(c->ax, d, transpose ? ZG_CONV_X : ZG_CONV_Y), &q->sc, &q->csize);
    q->before = zg_conv_before(c->opt[1], q->window, (int64_t)c->num[0]);
  }
  return c->nax / 3;
}

static inline int64_t zk_conv_phases_along(const ZkCall *c, const ZkConvDim *q) {
  if (c->op != ZG_OP_CONV_TRANSPOSE) return 1;
  return c->opt[0] < q->csize ? c->opt[0] : q->csize;
}
static inline int64_t zk_conv_phases(const ZkCall *c, const ZkConvDim *dim) {
  int64_t n = 1;
  for (int d = 0; d < c->nax / 3; d++) n *= zk_conv_phases_along(c, &dim[d]);
  return n;
}

/* Positions `first`, `first` + stride, .. of x. */
static inline void zk_conv_some(const ZkCall *c, ZkConvDim *q, int64_t first) {
  int64_t stride = c->opt[0], dilate = (int64_t)c->num[0], rest = first + q->before;
  q->n = first < q->csize ? (q->csize - first - 1) / stride + 1 : 0;
  q->step = 1, q->first = first, q->jump = stride;
  q->windows = q->k = q->shift = q->kshift = 0, q->kstep = 1;
  while (q->k < q->window && (rest - q->k * dilate) % stride) q->k++;
  if (q->k >= q->window) return;
  while (q->kstep * dilate % stride) q->kstep++;
  q->windows = (q->window - 1 - q->k) / q->kstep + 1;
  q->shift = (rest - q->k * dilate) / stride;
  q->kshift = -(q->kstep * dilate / stride);
}

static inline void zk_conv_phase(const ZkCall *c, ZkConvDim *dim, int64_t phase) {
  for (int d = 0; d < c->nax / 3; d++) {
    ZkConvDim *q = &dim[d];
    int64_t phases = zk_conv_phases_along(c, q);
    if (c->op == ZG_OP_CONV_TRANSPOSE) {
      zk_conv_some(c, q, phase % phases);
      phase /= phases;
      continue;
    }
    q->n = q->csize, q->step = c->opt[0], q->first = 0, q->jump = 1;
    q->windows = q->window, q->k = 0, q->kstep = 1, q->shift = -q->before, q->kshift = (int64_t)c->num[0];
  }
}

#endif

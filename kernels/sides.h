/* Rows or columns of a matrix that is optimised whole, by one number each: what they are multiplied by, made
 * of their sums of squares and, of some kinds, of second moments that are kept of them. For hosts and
 * devices.
 *
 * EVEN        each by one of its own, so that all have the same norm and that of the matrix stays (MuonEq, arXiv
 *             2603.28254: rows before they are orthogonalised)
 * SNAPPED     all by one, so that the norm of the matrix is `norm` (Muon+, arXiv 2602.21545)
 * NORMALIZED  each by the inverse root of its second moment, and all by one that restores the norm (NorMuon, arXiv
 *             2510.05491); if `norm` is above 0 they are SNAPPED first
 * FACTOR      each by the inverse root of its second moment over the mean of these
 * PLAIN       each by the inverse root of its second moment (with FACTOR of the other side: Adafactor, Shazeer, Stern 2018)
 * CLIPPED     all by one, so that the root of the mean square is at most `norm`; times that of the parameter, of `elements`
 *             and no less than `least`, if `size` is not NULL */
#ifndef ZUG_KERNELS_SIDES_H
#define ZUG_KERNELS_SIDES_H

#include "kernels/everywhere.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum { ZK_EVEN, ZK_SNAPPED, ZK_NORMALIZED, ZK_FACTOR, ZK_PLAIN, ZK_CLIPPED } ZkFactorKind;
typedef struct {
  ZkFactorKind kind;
  int64_t n;            /* rows, or columns: with padding, which is 0; */
  double count, length; /* without it; and elements of each */
  double norm, eps;     /* eps: added to mean squares before they go into second moments */
  const double *size;   /* the parameter's sum of squares, where the numbers are; or NULL */
  double elements, least;
  uint32_t group; /* whose scalars say whether the step acts, and the decay of second moments: */
  const float *s; /* these, unless a device has them */
} ZkSides;

/* Three sweeps over all of them: s is a sum of squares, *v its second moment, total and second what the
 * sweeps before have added up. */
ZK_EVERYWHERE double zk_side_first(const ZkSides *p, float decay, float s, float *v) {
  if (p->kind != ZK_FACTOR && p->kind != ZK_PLAIN) return (double)s;
  *v = (float)((double)decay * (double)*v + (1 - (double)decay) * ((double)s / p->length + p->eps));
  return (double)*v;
}
ZK_EVERYWHERE double zk_side_snap(const ZkSides *p, double total) {
  return p->norm > 0 ? p->norm / fmax(sqrt(total), 1e-6) : 1;
}
ZK_EVERYWHERE double zk_side_second(const ZkSides *p, float decay, double total, float s, float *v) {
  if (p->kind != ZK_NORMALIZED) return 0;
  double snap = zk_side_snap(p, total), squares = (double)s * snap * snap;
  *v = (float)((double)decay * (double)*v + (1 - (double)decay) * squares / p->length);
  return squares / fmax((double)*v, 1e-10);
}
ZK_EVERYWHERE double zk_side_factor(const ZkSides *p, double total, double second, float s, float v) {
  double snap = zk_side_snap(p, total);
  switch (p->kind) {
  case ZK_EVEN: return sqrt(total / p->count) / fmax(sqrt((double)s), 1e-6);
  case ZK_SNAPPED: return snap;
  case ZK_NORMALIZED:
    return snap / sqrt(fmax((double)v, 1e-10)) * (snap * sqrt(total) / fmax(sqrt(second), 1e-10));
  case ZK_FACTOR: return v > 0 ? sqrt(total / p->count / (double)v) : 0;
  case ZK_PLAIN: return v > 0 ? 1 / sqrt((double)v) : 0;
  case ZK_CLIPPED:
    return (p->size ? fmax(p->least, sqrt(*p->size / p->elements)) : 1) /
           fmax(1.0, sqrt(total / (p->count * p->length)) / p->norm);
  }
  return 0;
}

#endif

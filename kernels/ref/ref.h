/* kernels/ref: what each operation means, as loops over index tuples. Slow on purpose: nothing here may be
 * clever, because the CPU and device kernels and the derivative rules are judged against it. Its numbers are
 * those of num.h: doubles, or residues for proofs.
 *
 * An index is a table from axes to positions. Reading a view at an index looks at the axes that the view has
 * and ignores the others: that is all there is to broadcasting, to batching and to memory orders.
 *
 *   RefIndex i = {0};
 *   RefAxes rest = ref_axes(&i, x, c->ax, 1);      all axes of x but one
 *   RefAxes a = ref_only(&i, x, c->ax, 1);         that one
 *   REF_EACH(&i, rest) {
 *     Num sum = NUM_0;
 *     REF_EACH(&i, a) sum = num_add(sum, ref_get(x, &i));
 *     ref_put(y, &i, sum);
 *   }
 *
 * Kernels see axes that ref.c has numbered from 0 on, in their order, so that an index is a small array. */
#ifndef ZUG_KERNELS_REF_H
#define ZUG_KERNELS_REF_H

#include "graph/ops.h"
#include "kernels/kernels.h"
#include "kernels/ref/num.h"

#define REF_MAX_AXES 32

typedef struct {
  uint32_t has; /* bit a: it has a position on axis a */
  int32_t at[REF_MAX_AXES];
} RefIndex;

typedef struct { /* axes that a loop goes over, the last one fastest */
  int n;
  uint16_t axis[REF_MAX_AXES];
  int32_t size[REF_MAX_AXES];
} RefAxes;

static inline int ref_find(const uint16_t *axes, int n, uint16_t axis) {
  for (int k = 0; k < n; k++)
    if (axes[k] == axis) return k;
  return -1;
}

/* ---- positions ---- */
/* The position on `axis`; the index goes to `at` there (and has the axis then), or a copy does. */
static inline int64_t ref_at(const RefIndex *i, uint16_t axis) {
  ZB_ASSERT(i->has >> axis & 1);
  return i->at[axis];
}
static inline void ref_move(RefIndex *i, uint16_t axis, int64_t at) {
  i->has |= 1u << axis;
  i->at[axis] = (int32_t)at;
}
static inline RefIndex ref_with(const RefIndex *i, uint16_t axis, int64_t at) {
  RefIndex j = *i;
  ref_move(&j, axis, at);
  return j;
}

/* Extent and start of an axis that the view must have. */
static inline int64_t ref_size(const ZkView *v, uint16_t axis) {
  int k = ref_find(v->axis, v->rank, axis);
  ZB_ASSERT(k >= 0);
  return v->size[k];
}
static inline int64_t ref_start(const ZkView *v, uint16_t axis) {
  int k = ref_find(v->axis, v->rank, axis);
  ZB_ASSERT(k >= 0);
  return v->start[k];
}

/* ---- loops ---- */
/* Puts at the end of a loop, and into the index, the axes of `v` that this lacks, without the `n` axes
 * `but`. */
static inline void ref_add_axes(RefAxes *r, RefIndex *i, const ZkView *v, const uint16_t *but, int n) {
  for (int k = 0; k < v->rank; k++) {
    if (i->has >> v->axis[k] & 1 || ref_find(but, n, v->axis[k]) >= 0) continue;
    ZB_ASSERT(v->size[k] <= INT32_MAX);
    r->axis[r->n] = v->axis[k];
    r->size[r->n++] = (int32_t)v->size[k];
    ref_move(i, v->axis[k], 0);
  }
}
static inline RefAxes ref_axes(RefIndex *i, const ZkView *v, const uint16_t *but, int n) {
  RefAxes r = {0};
  ref_add_axes(&r, i, v, but, n);
  return r;
}
/* Puts the `n` axes `which` of `v` into the index. */
static inline RefAxes ref_only(RefIndex *i, const ZkView *v, const uint16_t *which, int n) {
  RefAxes r = {.n = n};
  for (int k = 0; k < n; k++) {
    r.axis[k] = which[k];
    r.size[k] = (int32_t)ref_size(v, which[k]);
    ref_move(i, which[k], 0);
  }
  return r;
}

/* Goes to position 0; returns false if there is none. */
static inline bool ref_first(RefIndex *i, const RefAxes *axes) {
  bool any = true;
  for (int k = 0; k < axes->n; k++) {
    i->at[axes->axis[k]] = 0;
    any = any && axes->size[k] > 0;
  }
  return any;
}
/* Goes one on; returns false after the last. */
static inline bool ref_next(RefIndex *i, const RefAxes *axes) {
  for (int k = axes->n - 1; k >= 0; k--) {
    if (++i->at[axes->axis[k]] < axes->size[k]) return true;
    i->at[axes->axis[k]] = 0;
  }
  return false;
}
#define REF_EACH(i, axes) for (bool go_ = ref_first(i, &(axes)); go_; go_ = ref_next(i, &(axes)))

/* ---- elements ---- */
static inline int64_t ref_offset(const ZkView *v, const RefIndex *i) {
  int64_t at = 0;
  for (int k = 0; k < v->rank; k++) {
    int64_t x = ref_at(i, v->axis[k]);
    ZB_ASSERT(x >= 0 && x < v->size[k]);
    at += x * v->stride[k];
  }
  return at;
}
static inline Num ref_get(const ZkView *v, const RefIndex *i) {
  int64_t at = ref_offset(v, i);
  if (v->elem == ZK_I32) return num_of_int(((const int32_t *)v->data)[at]);
  ZB_ASSERT(v->elem == ZK_F64);
  return ((const Num *)v->data)[at];
}
/* Returns an element that is a position. */
static inline int64_t ref_id(const ZkView *v, const RefIndex *i) {
  return v->elem == ZK_I32 ? ((const int32_t *)v->data)[ref_offset(v, i)] : num_int(ref_get(v, i));
}
static inline void ref_put(const ZkView *v, const RefIndex *i, Num x) {
  int64_t at = ref_offset(v, i);
  ZB_ASSERT(v->elem == ZK_I32 || v->elem == ZK_F64);
  if (v->elem == ZK_I32) ((int32_t *)v->data)[at] = (int32_t)num_int(x);
  else ((Num *)v->data)[at] = x;
}
static inline void ref_add(const ZkView *v, const RefIndex *i, Num x) {
  ref_put(v, i, num_add(ref_get(v, i), x));
}
static inline void ref_zero(const ZkView *v) {
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, v, NULL, 0);
  REF_EACH(&i, all) ref_put(v, &i, NUM_0);
}

/* What ew.c has for all elementwise operations; kernels of the others, by name; and of the planner's. */
ZkKernel REF(ew);
#define KERNEL(NAME, name) ZkKernel REF(name);
#include "kernels/kernels.def"
ZkKernel REF(pointwise), REF(copy), REF(grouped_dot), REF(grouped_outer), REF(slots), REF(round);
ZkKernel REF(put_pages), REF(attend_pages), REF(attend_own), REF(resume_scan), REF(resume_linear),
    REF(recent), REF(rope_at), REF(rows);

#endif

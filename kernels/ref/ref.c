/* Index tuples, element access, and the table of reference kernels. See ref.h. */
#include "kernels/ref/ref.h"

#include <math.h>

#include "base/base.h"

static int find_axis(const uint16_t *axes, int n, uint16_t axis) {
  for (int k = 0; k < n; k++)
    if (axes[k] == axis) return k;
  return -1;
}

static void append(RefIndex *i, uint16_t axis, int64_t size) {
  ZB_ASSERT(i->n < REF_MAX_AXES);
  i->axis[i->n] = axis;
  i->size[i->n] = size;
  i->at[i->n++] = 0;
}

RefAxes ref_axes(RefIndex *i, const ZkView *v, const uint16_t *but, int n) {
  RefAxes r = {i->n, i->n};
  for (int k = 0; k < v->rank; k++) {
    int have = find_axis(i->axis, i->n, v->axis[k]);
    if (have >= 0) ZB_ASSERT(i->size[have] == v->size[k]);
    if (have < 0 && find_axis(but, n, v->axis[k]) < 0) append(i, v->axis[k], v->size[k]);
  }
  r.hi = i->n;
  return r;
}

RefAxes ref_only(RefIndex *i, const ZkView *v, const uint16_t *which, int n) {
  RefAxes r = {i->n, i->n + n};
  for (int k = 0; k < n; k++) append(i, which[k], ref_size(v, which[k]));
  return r;
}

bool ref_first(RefIndex *i, RefAxes axes) {
  bool any = true;
  for (int k = axes.lo; k < axes.hi; k++) {
    i->at[k] = 0;
    any = any && i->size[k] > 0;
  }
  return any;
}

bool ref_next(RefIndex *i, RefAxes axes) {
  for (int k = axes.hi - 1; k >= axes.lo; k--) {
    if (++i->at[k] < i->size[k]) return true;
    i->at[k] = 0;
  }
  return false;
}

int64_t ref_at(const RefIndex *i, uint16_t axis) {
  int k = find_axis(i->axis, i->n, axis);
  ZB_ASSERT(k >= 0);
  return i->at[k];
}

void ref_move(RefIndex *i, uint16_t axis, int64_t at) {
  int k = find_axis(i->axis, i->n, axis);
  if (k < 0) append(i, axis, 0), k = i->n - 1;
  i->at[k] = at;
}

RefIndex ref_with(const RefIndex *i, uint16_t axis, int64_t at) {
  RefIndex j = *i;
  ref_move(&j, axis, at);
  return j;
}

/* ---- elements ---- */
static int64_t offset(const ZkView *v, const RefIndex *i) {
  int64_t at = 0;
  for (int k = 0; k < v->rank; k++) {
    int64_t x = ref_at(i, v->axis[k]);
    ZB_ASSERT(x >= 0 && x < v->size[k]);
    at += x * v->stride[k];
  }
  return at;
}

double ref_get(const ZkView *v, const RefIndex *i) {
  int64_t at = offset(v, i);
  if (v->elem == ZK_I32) return ((const int32_t *)v->data)[at];
  ZB_ASSERT(v->elem == ZK_F64);
  return ((const double *)v->data)[at];
}

double ref_round(double x, ZkElem e) {
  switch (e) {
  case ZK_F64: return x;
  case ZK_F32: return (float)x;
  case ZK_I32: return trunc(x);
  case ZK_BF16: { /* 8 bits of significand, ties to even; the exponent range is f32's */
    if (!isfinite(x) || x == 0) return x;
    int e2;
    frexp(x, &e2);
    if (e2 < -125) e2 = -125; /* subnormal: a fixed grid */
    return (float)ldexp(nearbyint(ldexp(x, 8 - e2)), e2 - 8);
  }
  default: ZB_BUG("element format %d", e);
  }
}

void ref_put(const ZkView *v, const RefIndex *i, double x) {
  int64_t at = offset(v, i);
  ZB_ASSERT(v->elem == ZK_I32 || v->elem == ZK_F64);
  if (v->elem == ZK_I32) ((int32_t *)v->data)[at] = (int32_t)x;
  else ((double *)v->data)[at] = x;
}

void ref_add(const ZkView *v, const RefIndex *i, double x) { ref_put(v, i, ref_get(v, i) + x); }

void ref_zero(const ZkView *v) {
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, v, NULL, 0);
  REF_EACH(&i, all) ref_put(v, &i, 0);
}

int64_t ref_size(const ZkView *v, uint16_t axis) {
  int k = find_axis(v->axis, v->rank, axis);
  ZB_ASSERT(k >= 0);
  return v->size[k];
}

int64_t ref_start(const ZkView *v, uint16_t axis) {
  int k = find_axis(v->axis, v->rank, axis);
  ZB_ASSERT(k >= 0);
  return v->start[k];
}

/* ---- the table ---- */
ZkKernel *zk_ref_kernel(int op) {
  static ZkKernel *const kernels[ZG_OP_COUNT] = {
#define KERNEL(NAME, name) [ZG_OP_##NAME] = zk_ref_##name,
#include "kernels/kernels.def"
      [ZG_OP_POINTWISE] = zk_ref_pointwise,
      [ZG_OP_COPY] = zk_ref_copy,
      [ZG_OP_GROUPED_DOT] = zk_ref_grouped_dot,
      [ZG_OP_GROUPED_OUTER] = zk_ref_grouped_outer,
      [ZG_OP_SLOTS] = zk_ref_slots,
      [ZG_OP_ROUND] = zk_ref_round,
  };
  if (op < 0 || op >= ZG_OP_COUNT) return NULL;
  return zg_op_info[op].kind == ZG_EW ? zk_ref_ew : kernels[op];
}

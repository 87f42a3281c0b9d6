/* kernels/ref: what each operation means, as loops over index tuples in f64. Slow on purpose: nothing here
 * may be clever, because the CPU and device kernels and the derivative rules are judged against it.
 *
 * An index is a table from axes to positions. Reading a view at an index looks at the axes that the view has
 * and ignores the others: that is all there is to broadcasting, to batching and to memory orders.
 *
 *   RefIndex i = {0};
 *   RefAxes rest = ref_axes(&i, x, c->ax, 1);      all axes of x but one
 *   RefAxes a = ref_only(&i, x, c->ax, 1);         that one
 *   REF_EACH(&i, rest) {
 *     double sum = 0;
 *     REF_EACH(&i, a) sum += ref_get(x, &i);
 *     ref_put(y, &i, sum);
 *   }
 */
#ifndef ZUG_KERNELS_REF_H
#define ZUG_KERNELS_REF_H

#include "graph/ops.h"
#include "kernels/kernels.h"

#define REF_MAX_AXES 32

typedef struct {
  int n;
  uint16_t axis[REF_MAX_AXES];
  int64_t size[REF_MAX_AXES];
  int64_t at[REF_MAX_AXES];
} RefIndex;

typedef struct { /* a run of axes of an index, which a loop moves */
  int lo, hi;
} RefAxes;

/* Appends to the index the axes of `v` that it lacks, without the `n` axes `but`. */
RefAxes ref_axes(RefIndex *i, const ZkView *v, const uint16_t *but, int n);
/* Appends the `n` axes `which` of `v`. */
RefAxes ref_only(RefIndex *i, const ZkView *v, const uint16_t *which, int n);

bool ref_first(RefIndex *i, RefAxes axes); /* to position 0; false if there is none */
bool ref_next(RefIndex *i, RefAxes axes);  /* one on, last axis fastest; false after the last */
#define REF_EACH(i, axes) for (bool go_ = ref_first(i, axes); go_; go_ = ref_next(i, axes))

/* The position on `axis`; the index goes to `at` there (appended if it lacks the axis), or a copy does,
 * which takes longer than what most loops do with it. */
int64_t ref_at(const RefIndex *i, uint16_t axis);
void ref_move(RefIndex *i, uint16_t axis, int64_t at);
RefIndex ref_with(const RefIndex *i, uint16_t axis, int64_t at);

double ref_get(const ZkView *v, const RefIndex *i);
void ref_put(const ZkView *v, const RefIndex *i, double x);
void ref_add(const ZkView *v, const RefIndex *i, double x);
void ref_zero(const ZkView *v);
double ref_round(double x, ZkElem e); /* to the nearest number of an element type */

/* Extent and start of an axis that the view must have. */
int64_t ref_size(const ZkView *v, uint16_t axis);
int64_t ref_start(const ZkView *v, uint16_t axis);

/* What ew.c has for all elementwise operations; kernels of the others, by name; and of the planner's. */
ZkKernel zk_ref_ew;
#define KERNEL(NAME, name) ZkKernel zk_ref_##name;
#include "kernels/kernels.def"
ZkKernel zk_ref_pointwise, zk_ref_copy, zk_ref_grouped_dot, zk_ref_grouped_outer, zk_ref_slots, zk_ref_round;

#endif

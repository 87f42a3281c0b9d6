/* What the passes of runtime/plan pass to each other; nobody outside this room reads it. */
#ifndef ZUG_PLAN_IMPL_H
#define ZUG_PLAN_IMPL_H

#include <string.h>

#include "runtime/plan/plan.h"

/* What binding a recipe to a graph decides, beside what a ZpPlan holds. */
typedef struct {
  ZpPlan *p;
  ZlDiags *d;
  const ZpOptions *o;
  bool *recompute;      /* per region: its forward runs again in backward */
  ZpDims *grad_partial; /* per parameter: dims along which its gradient may stay partial within a step */
  ZpDims shard;         /* dims of `shard .. over` */
  int level;            /* ZeRO stage of those */
  bool keep;
} ZpBuild;

/* bind.c: false with reports if the recipe does not fit. */
bool zp_bind(ZpBuild *b);
/* pad.c: false with a report if the entries that `pad` adds to `axis` could change the result. */
bool zp_check_pad(ZpBuild *b, const ZlBind *pad, uint16_t axis);
/* remat.c: the segment with every forward value that backward can make again made again there. again[i]: node i
 * of the result is such a copy. Dead nodes are gone. */
ZgSegment *zp_remat(const ZpBuild *b, const ZgSegment *s, bool **again);
/* The sub-list that computes the loss denominator, as a segment of its own; nnodes 0 if it has none. */
ZgSegment *zp_count_segment(const ZpBuild *b, const ZgSegment *s);
/* shard.c: local program of graph segment `index` into p->segments[index] (values, nodes; nothing placed).
 * partial[param] is narrowed to the dims along which every contribution so far is partial. False with reports. */
bool zp_shard(ZpBuild *b, uint32_t index, const ZgSegment *s, const bool *again, const ZgSegment *count, ZpDims *partial);
/* The layout of a set of axes: a pure function of (axis set, recipe). */
void zp_layout(const ZpPlan *p, const ZgType *t, ZpState *state); /* state[ZP_MAX_DIMS] */
/* Local size of an axis in the given states. */
int64_t zp_local_size(const ZpPlan *p, uint16_t axis, const ZpState *state);
ZkElem zp_store_elem(const ZpPlan *p, const ZgType *t);
/* For those who fuse nodes. Which output of the node the value is, or -1; whether it is an input; whether two values have
 * the same axes; whether they lie alike. */
static inline int zp_output_of(const ZpNode *n, uint32_t value) {
  for (int k = 0; k < n->call.nout; k++)
    if (n->out[k] == value) return k;
  return -1;
}
static inline bool zp_reads(const ZpNode *n, uint32_t value) {
  for (int k = 0; k < n->call.nin; k++)
    if (n->in[k] == value) return true;
  return false;
}
static inline bool zp_same_space(const ZgType *a, const ZgType *b) {
  return a->naxes == b->naxes && !memcmp(a->axis, b->axis, a->naxes * sizeof *a->axis);
}
static inline bool zp_same_layout(const ZpValue *x, const ZpValue *y) {
  size_t n = x->type.naxes;
  return x->elem == y->elem && n == y->type.naxes && !memcmp(x->axis, y->axis, n * sizeof *x->axis) &&
         !memcmp(x->size, y->size, n * sizeof *x->size);
}
/* memory.c: a value as a kernel sees it, without pointer; all those of a node's call. */
ZkView zp_view(const ZpPlan *p, const ZpValue *v);
void zp_views(const ZpPlan *p, const ZpSegment *s, ZpNode *n);
/* buckets.c: templates; every slice gets its place. */
void zp_buckets(ZpBuild *b);
/* memory.c: offsets of all values, kernel calls, temp sizes. */
void zp_place(ZpBuild *b, uint32_t index);
/* stages.c: instances to stages. False with reports. */
bool zp_stages(ZpBuild *b);
/* ledger.c: arena offsets of everything; checks `limit memory`. False with reports. */
bool zp_ledger(ZpBuild *b);

#endif

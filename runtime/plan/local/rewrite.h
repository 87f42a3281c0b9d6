/* Rewriting the node list of a phase: what every fusing pass needs, written once.
 *
 * A pass looks for nodes that one call can do, asks the device whether it has that call, writes the fused
 * node over one of them and drops the others:
 *
 *   uint32_t m = r->maker[r->nodes[i].in[0]];
 *   ...
 *   if (zp_supported(r, &fused)) zp_replace(r, i, &fused), zp_drop(r, m);
 *   ...
 *   zp_compact(r);
 *
 * Only gradients are placed while passes go over a list; `needed_later` tells which other values must
 * exist. */
#ifndef ZUG_PLAN_REWRITE_H
#define ZUG_PLAN_REWRITE_H

#include "runtime/plan/local/local.h"

typedef struct {
  ZpBuild *b;
  ZpSegment *s;
  ZpPhase phase;
  ZpNode *nodes;
  uint32_t n;
  const bool *needed_later; /* by value: another phase reads it */
  uint32_t *maker, nvalues; /* by value: the node of this list that makes it, or ZP_NONE */
  bool *dropped;            /* by node; gone with the next zp_compact */
  ZpNode **behind;          /* by node: one that zp_compact puts behind it, or NULL */
  ZbArena *tmp;             /* until zp_rewrite_end */
} ZpRewrite;

void zp_rewrite_begin(ZpRewrite *r, ZpBuild *b, ZpSegment *s, ZpPhase phase, const bool *needed_later);
void zp_rewrite_end(ZpRewrite *r); /* the segment has the list as it is now */
/* The pass has made another list. */
void zp_set_nodes(ZpRewrite *r, ZpNode *nodes, uint32_t n);
/* By value, for lists without a rewrite: the node that makes it; others stay as they are. */
void zp_find_makers(const ZpNode *nodes, uint32_t n, uint32_t *maker);

/* ---- changes ------------------------------------------------------------------------------------------- */
void zp_replace(ZpRewrite *r, uint32_t i, const ZpNode *by);
static inline void zp_drop(ZpRewrite *r, uint32_t i) { r->dropped[i] = true; }
/* `rest` will stand behind node i. A node before i must have been dropped for it. */
void zp_put_behind(ZpRewrite *r, uint32_t i, const ZpNode *rest);
void zp_compact(ZpRewrite *r);

/* ---- questions ----------------------------------------------------------------------------------------- */
static inline const ZpValue *zp_value(const ZpRewrite *r, uint32_t v) { return &r->s->values[v]; }
/* Returns whether no place is prescribed for the value. */
static inline bool zp_unplaced(const ZpRewrite *r, uint32_t v) {
  return zp_value(r, v)->at.space == ZP_AT_NOWHERE;
}
/* Returns whether every result of the node may come from another kind of call: it is of real numbers and
 * unplaced. */
bool zp_results_free(const ZpRewrite *r, const ZpNode *n);
/* Returns whether a node strictly between two reads the value, or moves data between ranks. */
bool zp_read_between(const ZpRewrite *r, uint32_t from, uint32_t to, uint32_t value);
bool zp_collective_between(const ZpRewrite *r, uint32_t from, uint32_t to);
/* Returns whether any node behind `from` but `reader`, or another phase, reads the value. */
bool zp_read_elsewhere(const ZpRewrite *r, uint32_t from, uint32_t reader, uint32_t value);
/* Returns whether the value exists before node i is done. Sources are always there. */
bool zp_made_before(const ZpRewrite *r, uint32_t value, uint32_t i);
/* Returns whether the node, of this op, does nothing but add to a gradient. */
bool zp_adds_to_gradient(const ZpRewrite *r, const ZpNode *n, ZgOp op);
/* Returns whether of two gradients either both begin with this micro-batch or neither does: those of one unit
 * that are staged alike. */
bool zp_begin_together(const ZpRewrite *r, uint32_t x, uint32_t y);
/* Fills the node's views; whether the device does it in one call. */
bool zp_supported(const ZpRewrite *r, ZpNode *n);

/* ---- the passes, in their order ------------------------------------------------------------------------ */
/* delay_grads.c: gradients of weights behind those of norms, whose results they take. Of backward lists, for
 * devices that support fused calls. */
void zp_delay_grads(ZpRewrite *r);
/* fuse_pointwise.c: elementwise nodes into pointwise ones. */
void zp_fuse_pointwise(ZpRewrite *r);
/* The others make calls that the device supports; they are for devices that support any.
 * fuse_epilogue.c: an op and the pointwise node that follows it. */
void zp_fuse_epilogue(ZpRewrite *r);
/* fuse_prologue.c: a pointwise node and the op along rows that follows it. */
void zp_fuse_prologue(ZpRewrite *r);
/* fuse_xent_max.c: the maximum of logits and the sums of cross-entropy. */
void zp_fuse_xent_max(ZpRewrite *r);
/* fuse_bias_grad.c: the gradients of a weight and of its bias. Of backward lists. */
void zp_fuse_bias_grad(ZpRewrite *r);
/* fuse_norm_sums.c: normalize's gradient and those of its scale and shift. Of backward lists. */
void zp_fuse_norm_sums(ZpRewrite *r);

#endif

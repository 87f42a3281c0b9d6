/* Between local.c, which lists the passes that lower a sharded segment, and those passes. */
#ifndef ZUG_PLAN_LOCAL_LOWER_H
#define ZUG_PLAN_LOCAL_LOWER_H

#include "runtime/plan/local/batch_gemms.h"

typedef struct {
  ZpBuild *b;
  ZpPlan *p;
  const ZgSegment *gs;
  ZpSegment *s; /* being lowered, p->programs.segments[index] */
  uint32_t index;
  bool *later[ZP_PHASES]; /* per value, by the phase that makes it: another phase reads it */
  bool *read;             /* per value: some node reads it */
  ZpGemmGroups groups;
} ZpLocal;

/* Everything begins at a multiple of 64 bytes. */
static inline uint64_t zp_lines(uint64_t bytes) { return zb_round_up(bytes, 64); }
static inline bool zp_is_kind(const ZpNode *n, ZgOpKind k) { return zg_op_info[n->call.op].kind == k; }

/* rounds.c: nodes between dispatch and combine become neighbours, with the number of their region. */
void zp_make_rounds(ZpLocal *c, ZpPhase phase);
/* param_grads.c: sinks of gradients become additions to where gradients are stored. */
void zp_lower_param_grads(ZpLocal *c);
/* fuse_xent_grad.c: sums of cross-entropy, of forward, and the gradient, of backward, as one call, for
 * devices that have it. The other passes that fuse go over one list at a time: rewrite.h. */
void zp_fuse_xent_grad(ZpLocal *c);
/* ... marks the first node that adds to a gradient, if it makes all of it. */
void zp_mark_setters(ZpLocal *c);

/* overlap.c: nodes that follow each other and are one unit, from i on: the number behind the last. */
uint32_t zp_unit_end(const ZpLocal *c, const ZpNode *nodes, uint32_t i);
/* ... an order in which async collectives overlap with calls, before zp_make_calls */
void zp_overlap(ZpLocal *c, ZpPhase phase);
/* ... the node before which the one with number i, which is async, is to be complete: the first that
 * needs it, or would be one too many; their number: none */
uint32_t zp_join(const ZpLocal *c, const ZpList *l, uint32_t i);
/* ... what nodes say of it, once lists are as they stay */
void zp_mark_joins(ZpLocal *c, ZpPhase phase);

/* memory.c, in this order: what backward reads of forward, in order of making */
void zp_place_saved(ZpLocal *c);
/* ... parameters, inputs, what is carried in; sources that nothing reads go */
void zp_place_sources(ZpLocal *c, ZpPhase phase);
/* ... what is carried out: made where it must end up, or copied there */
void zp_place_carried(ZpLocal *c);
/* ... and temporaries and scratch, after zp_make_calls. */
void zp_place_temps(ZpLocal *c, ZpPhase phase);

/* calls.c: views and scratch of every call; FLOPs and cost of the segment. */
void zp_make_calls(ZpLocal *c, ZpPhase phase);
void zp_count_work(ZpLocal *c, ZpPhase phase);

#endif

/* Between shard.c and reshard.c: the local program under construction. */
#ifndef ZUG_PLAN_LOCAL_SHARD_H
#define ZUG_PLAN_LOCAL_SHARD_H

#include "runtime/plan/local/local.h"

/* A graph value as it exists locally: one version per state it was needed in. */
typedef struct ZpVersion {
  uint32_t value; /* of the ZpSegment */
  ZpPhase phase;
  struct ZpVersion *next;
} ZpVersion;

/* Where rows go that are dispatched by some ids: values that SLOTS and ROUND make in a phase. */
typedef struct {
  uint32_t e; /* the ids' */
  ZpPhase phase;
  uint32_t place, ends, now;
} ZpRoute;

typedef struct {
  ZpBuild *b;
  ZpPlan *p;
  const ZgSegment *s;
  ZpSegment *out;
  ZpPhase phase;
  ZpVersion **versions; /* per graph value, in order of creation */
  ZpRoute *routes;
  uint32_t nroutes;
  const ZgNode *node; /* being sharded: whose place and region inserted nodes bear */
  bool narrow;        /* some values are made again: narrow.c */
} ZpShard;

uint32_t zp_new_value(ZpShard *h, const ZgType *t, const ZpState *state);
ZpNode *zp_emit(ZpShard *h, uint16_t op); /* appends a node to the current phase */
void zp_version_add(ZpShard *h, uint32_t v, uint32_t value);
/* The version of graph value v that conversions start from: of this phase or kept from forward; one without
 * partial states if there is one, so that nothing is reduced twice. */
uint32_t zp_base(const ZpShard *h, uint32_t v);
/* Local value of graph value v in state `want` (P where it stays partial): found or made. */
uint32_t zp_convert(ZpShard *h, uint32_t v, const ZpState *want);
/* attend.c: X of every dim (shard.c), as the axis or ZG_NONE, of attend or one of its gradients:
 * ZgAttendAxes.q where queries are split and keys are not. Returns the dims over which these are split all
 * the same, and go round. */
ZpDims zp_choose_attend(const ZpShard *h, const ZgNode *n, uint32_t *x);
/* Of its operand or result i, of type t: whether it has all keys, along an axis that is that of split
 * queries, too. */
bool zp_attend_of_keys(const ZgNode *n, bool result, int i, const ZgType *t, bool ring);
/* The steps of a node that goes round. */
void zp_ring_steps(const ZpShard *h, ZpNode *n);
/* narrow.c: whether graph value v, which is split by `axis` and wanted whole along dims, is better made again of
 * what is narrower; bytes that a rank then gathers of it over dim d; and leaves out what nobody reads since. */
bool zp_made_of_less(const ZpShard *h, uint32_t v, ZpDims dims, uint16_t axis);
double zp_narrow_bytes(const ZpShard *h, uint32_t v, int d, uint16_t axis);
void zp_drop_idle(ZpShard *h);
bool zp_state_eq(const ZpShard *h, const ZpState *a, const ZpState *b);

/* ---- halo.c -------------------------------------------------------------------------------------------- */
/* Whether the node is a shift along `axis`, which d splits, and takes no more of it than its neighbours'
 * borders. */
bool zp_takes_halo(const ZpShard *h, const ZgNode *n, int d, uint16_t axis);
/* Over which ranks the shift `m` goes, split by x. */
void zp_make_halo(ZpShard *h, const ZgNode *n, ZpNode *m, const uint32_t *x);

/* ---- experts.c ----------------------------------------------------------------------------------------- */
/* A dispatch or combine, with the slots of its ids. */
void zp_shard_experts(ZpShard *h, const ZgNode *n);
/* Makes a product of rows and their experts' weights, or the gradient of such weights, of the DOT `m`. */
void zp_make_grouped(ZpShard *h, const ZgNode *n, ZpNode *m);
/* Whether ranks along d have rows of their own and the node does something with them: then these are split,
 * whatever the dim lists before, and *x is the slots' axis. */
bool zp_splits_rows(const ZpShard *h, const ZgNode *n, int d, uint32_t *x);
/* Bits of the operands that may stay a part of a sum along d, so that the result is one. */
uint8_t zp_rows_stay_partial(const ZpShard *h, const ZgNode *n, int d);

#endif

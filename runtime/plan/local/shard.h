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

/* Destinations of the rows dispatched by some ids: values that SLOTS and ROUND make in a phase. */
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
  const ZgNode *node; /* being sharded: inserted nodes take its location and region */
  bool narrow;        /* some values are made again: narrow.c */
} ZpShard;

uint32_t zp_new_value(ZpShard *h, const ZgType *t, const ZpState *state);
ZpNode *zp_emit(ZpShard *h, uint16_t op); /* appends a node to the current phase */
void zp_version_add(ZpShard *h, uint32_t v, uint32_t value);
/* Returns the version of graph value v from which conversions start: of this phase or kept from forward, and
 * without partial states if there is one, so that nothing is reduced twice. */
uint32_t zp_base(const ZpShard *h, uint32_t v);
/* Returns the local value of graph value v in state `want` (P where it stays partial), found or made. */
uint32_t zp_convert(ZpShard *h, uint32_t v, const ZpState *want);
/* attend.c: finds X of every dim (shard.c) for attend or one of its gradients, an axis or ZG_NONE;
 * ZgAttendAxes.q where queries are split and keys are not. Returns the dims that split keys nevertheless, so
 * that they go round a ring. */
ZpDims zp_choose_attend(const ZpShard *h, const ZgNode *n, uint32_t *x);
/* Returns whether operand or result i, of type t, has all keys along an axis that is also the split queries'
 * axis. */
bool zp_attend_of_keys(const ZgNode *n, bool result, int i, const ZgType *t, bool ring);
/* Fills the ring steps of a node. */
void zp_ring_steps(const ZpShard *h, ZpNode *n);
/* narrow.c: returns whether graph value v, split by `axis` and wanted whole along dims, is better recomputed
 * from narrower values; returns the bytes that a rank then gathers for it over dim d; removes values that
 * nobody reads any more. */
bool zp_made_of_less(const ZpShard *h, uint32_t v, ZpDims dims, uint16_t axis);
double zp_narrow_bytes(const ZpShard *h, uint32_t v, int d, uint16_t axis);
void zp_drop_idle(ZpShard *h);
bool zp_state_eq(const ZpShard *h, const ZpState *a, const ZpState *b);

/* ---- halo.c -------------------------------------------------------------------------------------------- */
/* Returns whether the node is a shift along `axis`, which d splits, by no more than its neighbours'
 * borders. */
bool zp_takes_halo(const ZpShard *h, const ZgNode *n, int d, uint16_t axis);
/* Fills the ranks over which the shift `m` goes, split by x. */
void zp_make_halo(ZpShard *h, const ZgNode *n, ZpNode *m, const uint32_t *x);

/* ---- experts.c ----------------------------------------------------------------------------------------- */
/* Shards a dispatch or combine, with the slots of its ids. */
void zp_shard_experts(ZpShard *h, const ZgNode *n);
/* Turns the DOT `m` into a product of rows with their experts' weights, or into the gradient of such
 * weights. */
void zp_make_grouped(ZpShard *h, const ZgNode *n, ZpNode *m);
/* Returns whether ranks along d have rows of their own that the node uses. If so these are split, whatever
 * the dim lists earlier, and *x is the slots' axis. */
bool zp_splits_rows(const ZpShard *h, const ZgNode *n, int d, uint32_t *x);
/* Returns a bit for each operand that may stay one term of a sum along d, so that the result is partial
 * too. */
uint8_t zp_rows_stay_partial(const ZpShard *h, const ZgNode *n, int d);

#endif

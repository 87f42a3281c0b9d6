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

typedef struct {
  ZpBuild *b;
  ZpPlan *p;
  const ZgSegment *s;
  ZpSegment *out;
  ZpPhase phase;
  ZpVersion **versions; /* per graph value, in order of creation */
  const ZgNode *node;   /* being sharded: whose place and region inserted nodes bear */
} ZpShard;

uint32_t zp_new_value(ZpShard *h, const ZgType *t, const ZpState *state);
ZpNode *zp_emit(ZpShard *h, uint16_t op); /* appends a node to the current phase */
void zp_version_add(ZpShard *h, uint32_t v, uint32_t value);
/* The version of graph value v that conversions start from: of this phase or kept from forward; one without
 * partial states if there is one, so that nothing is reduced twice. */
uint32_t zp_base(const ZpShard *h, uint32_t v);
/* Local value of graph value v in state `want` (P where it stays partial): found or made. */
uint32_t zp_convert(ZpShard *h, uint32_t v, const ZpState *want);
bool zp_state_eq(const ZpShard *h, const ZpState *a, const ZpState *b);

#endif

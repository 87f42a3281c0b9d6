/* The groups of GEMMs that batch_gemms.c asks for when values are placed and calls are made. */
#ifndef ZUG_PLAN_BATCH_GEMMS_H
#define ZUG_PLAN_BATCH_GEMMS_H

#include "runtime/plan/local/rewrite.h"

/* A node is known by its first result, since its number changes until all is placed. */
typedef struct {
  uint8_t *group;   /* by value: nodes of the group that begins with the node that makes it; 0: none does */
  bool *contiguous; /* by value: the results of the node that makes it should be contiguous */
  uint32_t nvalues; /* values that were there when groups were made */
} ZpGemmGroups;

/* For all phases of a segment. */
ZpGemmGroups zp_no_groups(ZbArena *a, const ZpSegment *s);
/* Nodes of the group that begins with n, or 0. */
static inline uint32_t zp_group_of(const ZpGemmGroups *g, const ZpNode *n) {
  return n->call.nout && n->out[0] < g->nvalues ? g->group[n->out[0]] : 0;
}
/* Returns whether the results of n should be contiguous. */
static inline bool zp_wants_contiguous(const ZpGemmGroups *g, const ZpNode *n) {
  return n->call.nout && n->out[0] < g->nvalues && g->contiguous[n->out[0]];
}

/* Before anything is placed: moves GEMMs that may be one beside each other and notes them as groups. */
void zp_group_gemms(ZpRewrite *r, ZpGemmGroups *g);
/* Returns the call that n such nodes would be. */
ZkCall zp_batched_call(const ZpPlan *p, const ZpSegment *s, const ZpNode *group, uint32_t n);
/* After all is placed: every group whose tensors are contiguous becomes one node. */
void zp_batch_gemms(ZpRewrite *r, const ZpGemmGroups *g);

#endif

/* What batch_gemms.c asks of those who place values and make calls. */
#ifndef ZUG_PLAN_BATCH_GEMMS_H
#define ZUG_PLAN_BATCH_GEMMS_H

#include "runtime/plan/local/rewrite.h"

/* Nodes are known by their first result, since their numbers change until all is placed. */
typedef struct {
  uint8_t *
      group; /* by value: the node that makes it and those behind it, so many in all, are a group; 0: it begins none */
  bool *contiguous; /* by value: the results of the node that makes it should lie one behind the other */
  uint32_t nvalues; /* values that were there when groups were made */
} ZpGemmGroups;

ZpGemmGroups zp_no_groups(ZbArena *a, const ZpSegment *s);
/* Nodes of the group that begins with n, or 0. */
static inline uint32_t zp_group_of(const ZpGemmGroups *g, const ZpNode *n) {
  return n->call.nout && n->out[0] < g->nvalues ? g->group[n->out[0]] : 0;
}
static inline bool zp_wants_contiguous(const ZpGemmGroups *g, const ZpNode *n) {
  return n->call.nout && n->out[0] < g->nvalues && g->contiguous[n->out[0]];
}

/* Before anything is placed: moves GEMMs that may be one beside each other and notes them as groups. */
void zp_group_gemms(ZpRewrite *r, ZpGemmGroups *g);
/* The call that n such nodes would be. */
ZkCall zp_batched_call(const ZpPlan *p, const ZpSegment *s, const ZpNode *group, uint32_t n);
/* After all is placed: every group whose tensors do lie contiguous becomes one node. */
void zp_batch_gemms(ZpRewrite *r, const ZpGemmGroups *g);

#endif

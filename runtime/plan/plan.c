/* From a recipe to a proved plan: the passes in order. */
#include "runtime/plan/local/local.h"
#include "runtime/plan/schedule/schedule.h"

ZpPlan *zp_plan(ZbArena *a, const ZgGraph *g, const ZlRecipe *r, ZlDiags *d, const ZpOptions *o) {
  ZpPlan *p = ZB_NEW(a, ZpPlan);
  ZpBuild b = {.p = p, .d = d, .o = o};
  *p = (ZpPlan){.arena = a,
                .graph = g,
                .recipe = r,
                .forward_only = o->forward_only,
                .beside = o->beside,
                .outputs = o->forward_only && o->outputs};
  if (!zp_bind(&b)) return NULL;
  if (!zp_shard(&b)) return NULL;
  zp_buckets(&b);
  zp_lower(&b);
  if (!zp_stages(&b)) return NULL;
  zp_program(p);
  if (!zp_ledger(&b)) return NULL;
  return zp_prove(p, d) ? p : NULL;
}

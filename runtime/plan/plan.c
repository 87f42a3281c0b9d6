/* From a recipe to a proved plan: the passes in order. */
#include "graph/ragged.h"
#include "runtime/plan/local/local.h"
#include "runtime/plan/schedule/schedule.h"

static ZpPlan *begin(ZbArena *a, const ZgGraph *g, const ZlRecipe *r, const ZpOptions *o) {
  ZpPlan *p = ZB_NEW(a, ZpPlan);
  *p = (ZpPlan){.arena = a,
                .model = g,
                .graph = g,
                .recipe = r,
                .chunk = {ZG_NO_AXIS, ZG_NO_AXIS, ZG_NO_AXIS},
                .forward_only = o->forward_only,
                .beside = o->beside,
                .outputs = o->forward_only && o->outputs};
  return p;
}

static bool local(ZpBuild *b) {
  if (!zp_bind(b)) return false;
  zp_cut_sequences(b);
  if (!zp_shard(b)) return false;
  zp_buckets(b);
  zp_lower(b);
  return true;
}

static bool schedule(ZpBuild *b) {
  if (!zp_stages(b)) return false;
  zp_program(b->p);
  return zp_ledger(b);
}

ZpPlan *zp_plan(ZbArena *a, const ZgGraph *g, const ZlRecipe *r, ZlDiags *d, const ZpOptions *o) {
  ZpPlan *p = zp_plan_unproved(a, g, r, d, o);
  return p && zp_prove(p, d) ? p : NULL;
}

ZpPlan *zp_plan_unproved(ZbArena *a, const ZgGraph *g, const ZlRecipe *r, ZlDiags *d, const ZpOptions *o) {
  ZpBuild b = {.p = begin(a, g, r, o), .d = d, .o = o};
  return local(&b) && schedule(&b) ? b.p : NULL;
}

ZpPlan *zp_plan_local(ZbArena *a, const ZgGraph *g, const ZlRecipe *r, ZlDiags *d, const ZpOptions *o) {
  ZpBuild b = {.p = begin(a, g, r, o), .d = d, .o = o};
  return local(&b) ? b.p : NULL;
}

/* From a recipe to a proved plan: the passes in order. */
#include "graph/ragged.h"
#include "runtime/plan/local/local.h"
#include "runtime/plan/schedule/schedule.h"

static ZpBuild begin(ZbArena *a, const ZgGraph *g, const ZlRecipe *r, ZlDiags *d, const ZpOptions *o) {
  ZpBuild b = {.g = g, .p = ZB_NEW(a, ZpPlan), .d = d, .o = o};
  const ZpPlan *as = o->lowers_as;
  *b.p = (ZpPlan){.arena = a,
                  .given = g,
                  .model = g,
                  .graph = g,
                  .asked.recipe = r,
                  .layout.chunk = {ZG_NO_AXIS, ZG_NO_AXIS, ZG_NO_AXIS},
                  .asked.forward_only = o->forward_only,
                  .asked.eval_of = o->beside,
                  .asked.outputs = o->forward_only && o->outputs};
  b.cuts = as ? as : o->beside;
  if (!as) return b;
  b.variant = (ZpVariant){.stash = as->programs.stashed,
                          .nstash = as->programs.nstashed,
                          .room = b.p->layout.room = as->layout.room,
                          .awaits = as->notes.async_bytes > 0};
  b.p->notes.async_bytes = as->notes.async_bytes;
  return b;
}

static bool local(ZpBuild *b) {
  if (!zp_bind(b)) return false;
  zp_cut_sequences(b);
  if (!zp_shard(b)) return false;
  zp_buckets(b);
  zp_lower(b);
  return true;
}

ZpPlan *zp_plan_local(ZbArena *a, const ZgGraph *g, const ZlRecipe *r, ZlDiags *d, const ZpOptions *o) {
  ZpBuild b = begin(a, g, r, d, o);
  return local(&b) ? b.p : NULL;
}

ZpPlan *zp_plan_unproved(ZbArena *a, const ZgGraph *g, const ZlRecipe *r, ZlDiags *d, const ZpOptions *o) {
  ZpBuild b = begin(a, g, r, d, o);
  if (!local(&b) || !zp_fit(&b)) return NULL;
  zp_stash(&b);
  return b.p;
}

ZpPlan *zp_plan(ZbArena *a, const ZgGraph *g, const ZlRecipe *r, ZlDiags *d, const ZpOptions *o) {
  ZpBuild b = begin(a, g, r, d, o);
  if (!local(&b) || !zp_fit(&b)) return NULL;
  zp_drop_recompute(&b);
  zp_stash(&b);
  return zp_prove(b.p, d) ? b.p : NULL;
}

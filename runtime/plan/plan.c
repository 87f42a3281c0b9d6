/* From a recipe to a proved plan: the passes in order. */
#include "graph/ragged.h"
#include "runtime/plan/local/local.h"
#include "runtime/plan/schedule/schedule.h"

static ZpPlan *begin(ZbArena *a, const ZgGraph *g, const ZlRecipe *r, const ZpOptions *o) {
  ZpPlan *p = ZB_NEW(a, ZpPlan);
  *p = (ZpPlan){.arena = a,
                .model = g,
                .graph = g,
                .asked.recipe = r,
                .layout.chunk = {ZG_NO_AXIS, ZG_NO_AXIS, ZG_NO_AXIS},
                .asked.forward_only = o->forward_only,
                .asked.eval_of = o->beside,
                .asked.outputs = o->forward_only && o->outputs};
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

/* False with reports, or without if it does not fit. */
static bool schedule(ZpBuild *b) {
  if (!zp_stages(b)) return false;
  zp_program(b->p);
  return zp_ledger(b);
}

/* The build once more, in this arena, with values kept. What there is to report has been reported. */
static ZpPlan *make(const ZpBuild *b, ZbArena *a, const ZpKeep *keep, uint32_t n, ZpMakeTo to) {
  ZpBuild c = {.g = b->g,
               .p = begin(a, b->g, b->p->asked.recipe, b->o),
               .d = zl_diags_new(a, zl_sources_new(a)),
               .o = b->o,
               .keep = keep,
               .nkeep = n,
               .like = b->p,
               .recomputes_none = b->recomputes_none};
  c.p->notes.async_bytes = b->p->notes.async_bytes;
  c.p->layout.room = b->p->layout.room;
  bool ok = local(&c);
  if (to == ZP_TO_STAGES) ok = ok && zp_stages(&c);
  if (to == ZP_TO_LEDGER) ok = ok && schedule(&c);
  return ok ? c.p : NULL;
}

/* ---- what does not fit, with less ---------------------------------------------------------------------- */
static bool any_beside(const ZpPlan *p) {
  for (uint32_t s = 0; s < p->graph->nsegments; s++)
    for (int k = 0; k < ZP_PHASES; k++)
      for (uint32_t i = 0; i < p->programs.segments[s].list[k].n; i++)
        if (p->programs.segments[s].list[k].nodes[i].until > i + 1) return true;
  return false;
}

/* Whether some call makes do with less scratch than it has. */
static bool any_shrinks(const ZpPlan *p, uint64_t room) {
  for (uint32_t s = 0; p->asked.scratch && s < p->graph->nsegments; s++)
    for (int k = 0; k < ZP_PHASES; k++)
      for (uint32_t i = 0; i < p->programs.segments[s].list[k].n; i++) {
        const ZpNode *n = &p->programs.segments[s].list[k].nodes[i];
        ZkCall less = n->call;
        if (n->dims || n->scratch_bytes <= room) continue;
        less.room = room;
        if (zb_round_up(p->asked.scratch(&less, p->asked.threads), 64) < n->scratch_bytes) return true;
      }
  return false;
}

/* The build, which does not fit, once more, with less memory. What there is to report has been reported. */
static bool again(ZpBuild *b, uint64_t room, uint64_t beside_bytes) {
  ZlDiags *d = b->d;
  ZpBuild c = {.g = b->g,
               .o = b->o,
               .keep = b->keep,
               .nkeep = b->nkeep,
               .like = b->like,
               .recomputes_none = b->recomputes_none};
  c.p = begin(b->p->arena, b->g, b->p->asked.recipe, b->o);
  c.d = zl_diags_new(b->p->arena, zl_sources_new(b->p->arena));
  c.p->layout.room = room;
  c.p->notes.async_bytes = beside_bytes;
  bool fits = local(&c) && schedule(&c);
  *b = c;
  b->d = d;
  return fits;
}

/* Less scratch first, which costs little time; then a collective keeps nothing while calls go on. */
static bool with_less(ZpBuild *b) {
  static const uint64_t rooms[] = {(uint64_t)256 << 20, (uint64_t)64 << 20};
  bool fits = false;
  for (int i = 0; i < 2 && !fits; i++)
    if (any_shrinks(b->p, rooms[i])) fits = again(b, rooms[i], 0);
  if (!fits && any_beside(b->p))
    fits = again(b, b->p->layout.room, zp_fullest(b->p)->ledger.total[ZP_DEVICE]);
  return fits;
}

ZpPlan *zp_plan_unproved(ZbArena *a, const ZgGraph *g, const ZlRecipe *r, ZlDiags *d, const ZpOptions *o) {
  ZpBuild b = {.g = g, .p = begin(a, g, r, o), .d = d, .o = o};
  if (o->keeps_as) b.like = o->keeps_as, b.keep = b.like->programs.kept, b.nkeep = b.like->programs.nkept;
  if (o->keeps_as) b.p->notes.async_bytes = b.like->notes.async_bytes, b.p->layout.room = b.like->layout.room;
  if (!local(&b)) return NULL;
  bool ok = schedule(&b);
  if (!ok && !zl_errors(d)) ok = with_less(&b);
  if (!ok && !zl_errors(d)) zp_report_limit(&b);
  if (!ok) return NULL;
  return o->keeps_as ? b.p : zp_keep(&b, make);
}

/* ---- recompute that costs memory ------------------------------------------------------------------------------ */
/* The plan, or, where that takes less memory, one that makes nothing again: what is kept to make a part again may be more than
 * what the part has. */
static ZpPlan *unless_it_costs(ZpPlan *p, ZbArena *a, const ZgGraph *g, const ZlRecipe *r, ZlDiags *d,
                               const ZpOptions *o) {
  ZpBuild b = {.g = g, .o = o, .recomputes_none = true};
  if (!r->nrecompute || o->forward_only || o->keeps_as) return p;
  b.p = begin(a, g, r, o);
  b.d = zl_diags_new(a, zl_sources_new(a));
  if (!local(&b) || !schedule(&b)) return p;
  uint64_t without = zp_fullest(b.p)->ledger.total[ZP_DEVICE];
  char with_text[24], without_text[24];
  if (p->notes.least <= without) return p;
  ZlDiag *e = zl_report(d, ZL_Z0809, r->recompute[0].span,
                        "`recompute` has no effect: with it a rank would need %s, without it needs %s",
                        zb_bytes(with_text, p->notes.least), zb_bytes(without_text, without));
  zl_help(e, "name parts that have more inside than enters them, such as a whole layer");
  return zp_keep(&b, make);
}

ZpPlan *zp_plan(ZbArena *a, const ZgGraph *g, const ZlRecipe *r, ZlDiags *d, const ZpOptions *o) {
  ZpPlan *p = zp_plan_unproved(a, g, r, d, o);
  if (p) p = unless_it_costs(p, a, g, r, d, o);
  return p && zp_prove(p, d) ? p : NULL;
}

ZpPlan *zp_plan_local(ZbArena *a, const ZgGraph *g, const ZlRecipe *r, ZlDiags *d, const ZpOptions *o) {
  ZpBuild b = {.g = g, .p = begin(a, g, r, o), .d = d, .o = o};
  return local(&b) ? b.p : NULL;
}

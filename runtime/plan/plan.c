/* From a recipe to a proved plan: the passes in order. */
#include "graph/ragged.h"
#include "runtime/plan/local/local.h"
#include "runtime/plan/schedule/schedule.h"
#include "runtime/plan/stream/stream.h"

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
                  .admits = o->admits,
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

/* Derives the graph of a step, which takes the model's place. False with a report: the model cannot be made
 * token by token. */
static bool derive_step(ZpBuild *b) {
  ZpPlan *p = b->p;
  const ZpGenerating *asked = b->o->generates;
  ZpStream *s = ZB_NEW(p->arena, ZpStream);
  ZbErr err = {0};
  if (!zp_stream(p->given, p->arena, asked->output, asked->tokens, s, &err)) {
    zl_help(zl_report(b->d, ZL_Z0815, p->asked.recipe->span, "%s", err.text), "%s", err.help);
    return false;
  }
  p->stream = s;
  p->generating = *asked;
  p->asked.forward_only = p->asked.outputs = true;
  b->g = p->model = p->graph = s->step;
  return true;
}

static bool local(ZpBuild *b) {
  if (b->o->generates && !derive_step(b)) return false;
  if (!zp_bind(b)) return false;
  zp_cut_sequences(b);
  if (!zp_shard(b)) return false;
  if (!zp_buckets(b)) return false;
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

/* Binds the source, and what else is as long: other names of it, by which attention has keys. */
static void bind_source(ZlRecipe *r, const ZpStream *s, ZbArena *a, int64_t length) {
  const ZgGraph *g = s->admit;
  bool *seen = ZB_NEWN(a, bool, g->naxes);
  r->binds = NULL, r->nbinds = 0;
  for (uint32_t k = 0; k < g->nsegments; k++)
    for (uint32_t v = 0; v < g->segments[k].nvalues; v++)
      for (int i = 0; i < g->segments[k].values[v].type.naxes; i++) {
        uint16_t axis = g->segments[k].values[v].type.axis[i];
        ZlBind bind = {.axis = {.s = g->axes[axis].name, .span = r->span},
                       .size = axis == s->along.batch ? 1 : length,
                       .span = r->span};
        if (!seen[axis] && !g->axes[axis].size) ZB_PUSH(a, r->binds, r->nbinds, bind);
        seen[axis] = true;
      }
}

ZpPlan *zp_plan_admission(ZbArena *a, const ZpPlan *steps, int64_t length, ZlDiags *d, const ZpOptions *o,
                          const ZpPlan *beside) {
  const ZpStream *s = steps->stream;
  ZpOptions own = *o;
  ZlRecipe *r = ZB_NEW(a, ZlRecipe);
  own.generates = NULL;
  own.forward_only = own.outputs = true;
  own.checkpoints = false;
  own.admits = steps;
  own.beside = beside;
  *r = *steps->asked.recipe;
  r->micro = 0, r->micro_span.file = -1;
  bind_source(r, s, a, length);
  return zp_plan(a, beside ? beside->given : zp_admission_graph(s, a), r, d, &own);
}

/* Returns the share of the pages of a plan that fits a rank of the stage within the limit. */
static double share_of(const ZpPlan *p, uint32_t stage, uint64_t limit) {
  double all = 0, total = (double)p->programs.stages[stage].ledger.total[ZP_DEVICE];
  for (uint32_t i = 0; i < p->stream->ngroups; i++)
    all += (double)zp_stage_cache_bytes(p, stage, ZP_CACHE_PAGES, i);
  return all > 0 && total > (double)limit ? ((double)limit - (total - all)) / all : 1;
}

/* Returns how many pages of each group a step's plan has room for within the limit: what all sequences can have, or if
 * that is more than is left, as large a share of each. NULL: there is no limit, or no plan at all. */
static int64_t *pages_that_fit(ZbArena *a, const ZgGraph *g, const ZlRecipe *r, ZlDiags *d,
                               const ZpOptions *o, const ZpPlan **admission) {
  ZpBuild b = begin(a, g, r, d, o);
  *admission = NULL;
  if (!local(&b)) return NULL;
  const ZpStream *x = b.p->stream;
  if (x->admit && x->source != ZG_NONE) {
    *admission = b.p->admission = zp_plan_admission(a, b.p, b.p->layout.axis_size[x->length], d, o, NULL);
    if (!*admission) return NULL;
  }
  uint64_t limit = zp_limit(&b);
  ZpOptions free = *o;
  free.cluster = NULL;
  b.o = &free, b.limit = 0;
  if (!limit || !zp_fit(&b)) return NULL;
  const ZpPlan *p = b.p;
  double share = 1;
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    double own = share_of(p, s, limit);
    if (own < share) share = own;
  }
  for (uint32_t i = 0; i < p->stream->ngroups; i++) {
    int64_t one = zp_pages_of(&p->generating, p->stream->groups[i].window);
    p->pages[i] = (int64_t)(share * (double)p->pages[i]);
    if (p->pages[i] < one) p->pages[i] = one; /* else no sequence fits; what is too large then says so */
  }
  return p->pages;
}

ZpPlan *zp_plan(ZbArena *a, const ZgGraph *g, const ZlRecipe *r, ZlDiags *d, const ZpOptions *o) {
  const ZpPlan *admission = NULL;
  int64_t *pages = o->generates ? pages_that_fit(a, g, r, d, o, &admission) : NULL;
  if (zl_errors(d)) return NULL;
  ZpBuild b = begin(a, g, r, d, o);
  b.p->pages = pages;
  b.p->admission = admission;
  if (!local(&b) || !zp_fit(&b)) return NULL;
  zp_drop_recompute(&b);
  zp_stash(&b);
  return zp_prove(b.p, d) ? b.p : NULL;
}

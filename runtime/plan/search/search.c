/* The best by the formula are planned and simulated. */
#include "runtime/plan/search/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- a candidate, planned ------------------------------------------------------------------------------- */
static void fullest(const ZpPlan *p, ZpFound *f) {
  const ZpStage *st = zp_fullest(p);
  f->bytes = st->ledger.total[ZP_DEVICE];
  f->stage = (uint32_t)(st - p->programs.stages);
  f->ledger = st->ledger;
  f->live = st->prog.live;
}

static void take_time(const ZpTime *t, ZpFound *f) {
  f->seconds = t->seconds;
  f->tokens = t->tokens > 0 ? t->tokens : t->samples;
  f->utilization = t->utilization;
  memcpy(f->part, t->mean, sizeof f->part);
}

static const int64_t *stages_of(const Space *x, Layouts *all, const Candidate *c) {
  bool by_cost = !x->free_stages && x->base->stages.by_cost;
  if (c->size[DIM_PIPE] < 2 || by_cost) return NULL;
  const Layout *l = layout_of(all, c);
  return layout_stages(x, l, c->size[DIM_PIPE])->items;
}

/* The same recipe with so many micro-batches in a step. */
static const ZlRecipe *with_micro_batches(const ZlRecipe *r, int64_t n, int64_t of, ZbArena *a) {
  ZlRecipe *less = ZB_NEW(a, ZlRecipe);
  *less = *r;
  less->binds = ZB_NEWN(a, ZlBind, r->nbinds + 1);
  for (uint32_t i = 0; i < r->nbinds; i++) {
    less->binds[i] = r->binds[i];
    if (!strcmp(r->binds[i].axis.s, "batch"))
      less->binds[i].number = (double)(less->binds[i].size = r->binds[i].size / of * n);
  }
  return less;
}

/* As it will be written, with the limit, up to which values are kept; or, if it needs more, without. */
static const ZpPlan *plan_within(const Space *x, const ZlRecipe *r, ZbArena *a, const ZpPlan *lowers_as) {
  ZlRecipe *limited = ZB_NEW(a, ZlRecipe);
  ZpOptions o = *x->plan;
  *limited = *r;
  limited->limit.memory = x->limit;
  o.lowers_as = lowers_as;
  const ZpPlan *p = zp_plan_unproved(a, x->g, limited, zl_diags_new(a, zl_sources_new(a)), &o);
  return p ? p : zp_plan_unproved(a, x->g, r, zl_diags_new(a, zl_sources_new(a)), x->plan);
}

/* Plays a plan; false: it cannot be. */
static bool play(const Space *x, ZpFound *f, ZbArena *a, const ZpPlan *p) {
  const ZpTime *t = p ? zp_time(a, p, x->c, false, zl_diags_new(a, zl_sources_new(a))) : NULL;
  if (t) take_time(t, f);
  return t != NULL;
}

/* Once a pipeline is full, each micro-batch takes as long as the one before: many are extended from few. What
 * a rank holds is the same from then on. */
static bool extend(const Space *x, ZpFound *f, int64_t few, int64_t more) {
  ZbArena *a = zb_arena_new();
  ZpFound less = *f;
  const ZpPlan *p = plan_within(x, with_micro_batches(f->recipe, few, f->nmicro, a), a, NULL);
  const ZpPlan *q = p ? plan_within(x, with_micro_batches(f->recipe, more, f->nmicro, a), a, p) : NULL;
  bool ok = play(x, &less, a, p) && play(x, f, a, q);
  if (ok) fullest(q, f), f->least = p->notes.least;
  zb_arena_free(a);
  if (!ok) return false;
  double times = (double)(f->nmicro - more) / (double)(more - few), seconds = f->seconds;
  f->seconds += times * (f->seconds - less.seconds);
  for (int k = 0; k < ZP_T_PARTS; k++) f->part[k] += times * (f->part[k] - less.part[k]);
  double faster = (double)f->nmicro / (double)more * seconds / f->seconds;
  f->tokens *= faster;
  f->utilization *= faster;
  return true;
}

/* Plans it with all its micro-batches, and plays it; false: it cannot be planned. */
static bool whole(const Space *x, ZpFound *f, bool simulate) {
  ZbArena *a = zb_arena_new();
  const ZpPlan *p = plan_within(x, f->recipe, a, NULL);
  bool ok = p && (!simulate || play(x, f, a, p));
  if (p) fullest(p, f), f->least = p->notes.least;
  zb_arena_free(a);
  return ok;
}

/* Returns whether stages hold as many micro-batches of the whole step as of one with so few. */
static bool holds_no_more(const ZpFound *f, int64_t pipe, int64_t few) {
  ZbArena *a = zb_arena_new();
  const char *schedule = zl_schedule(pipe > 1 ? f->recipe->schedule : (ZlName){0});
  ZpRehearsal some = zp_rehearse(a, schedule, (uint32_t)pipe, (uint32_t)few, true),
              all = zp_rehearse(a, schedule, (uint32_t)pipe, (uint32_t)f->nmicro, true);
  bool same = !memcmp(some.rings, all.rings, all.nrings * sizeof *all.rings);
  zb_arena_free(a);
  return same;
}

static uint32_t vstages_of(const ZlRecipe *r) { return zl_schedule_info(zl_schedule(r->schedule))->vstages; }

/* Plans a recipe of a candidate; NULL: it cannot be planned after all. */
static ZpFound *find(const Space *x, const Candidate *c, const ZlRecipe *r, bool simulate) {
  ZpFound *f = ZB_NEW(x->a, ZpFound);
  int64_t pipe = c->size[DIM_PIPE], few = pipe + 4, more = few + 8;
  *f = (ZpFound){.recipe = r, .closed = c->seconds, .estimate = c->bytes, .nmicro = nmicro_of(x, c)};
  bool turns = vstages_of(r) > 1; /* of as many micro-batches as there are ranks */
  if (turns) few = 2 * pipe, more = 3 * pipe;
  bool extends = f->nmicro > 2 * more && (!turns || f->nmicro % pipe == 0);
  if (simulate && extends && holds_no_more(f, pipe, few)) return extend(x, f, few, more) ? f : NULL;
  return whole(x, f, simulate) ? f : NULL;
}

static const ZlRecipe *recipe_of(const Space *x, Layouts *all, const Candidate *c) {
  return space_recipe(x, c, stages_of(x, all, c), x->a);
}

/* Returns the recipe of a candidate with several parts of the model on each rank of its pipeline: formulas weigh 1f1b.
 * NULL: it has no pipeline, its schedule or its stages are given, layers are too few, or the schedule has no such parts. */
static const ZlRecipe *in_parts(const Space *x, Layouts *all, const Candidate *c, const char *schedule) {
  uint32_t parts = zl_schedule_info(schedule)->vstages;
  int64_t pipe = c->size[DIM_PIPE], n = parts * pipe;
  if (parts < 2 || pipe < 2 || n > x->items || !x->free_stages || x->base->schedule.s) return NULL;
  ZlRecipe *r = ZB_NEW(x->a, ZlRecipe);
  const int64_t *items = layout_stages(x, layout_of(all, c), n)->items;
  *r = *space_recipe(x, c, NULL, x->a);
  r->schedule = (ZlName){schedule, r->span};
  r->stages.by_cost = false;
  for (int64_t i = 0; i < n; i++) ZB_PUSH(x->a, r->stages.counts, r->stages.n, items[i]);
  return r;
}

/* ---- the best ------------------------------------------------------------------------------------------- */
static int by_seconds(const void *a, const void *b) {
  const ZpFound *x = a, *y = b;
  return x->seconds < y->seconds ? -1 : x->seconds > y->seconds;
}

/* So many of the best by the formula are simulated, or twice as many as are listed: it errs. */
enum { SIMULATED = 20 };

static void add_found(const Space *x, const Candidate *c, const ZlRecipe *r, ZpSearch *s) {
  const ZpFound *f = r ? find(x, c, r, true) : NULL;
  s->simulated += r != NULL;
  if (f && f->bytes <= x->limit) ZB_PUSH(x->a, s->best, s->nbest, *f);
}

static void find_best(const Space *x, Layouts *all, const Weighed *w, uint32_t keep, ZpSearch *s) {
  for (uint32_t i = 0; i < w->nbest; i++) {
    const Candidate *c = &w->best[i];
    add_found(x, c, recipe_of(x, all, c), s);
    for (uint32_t k = 0; zl_schedules[k]; k++) add_found(x, c, in_parts(x, all, c, zl_schedules[k]), s);
  }
  if (s->nbest) qsort(s->best, s->nbest, sizeof *s->best, by_seconds);
  if (s->nbest > keep) s->nbest = keep;
  if (s->nbest && !whole(x, &s->best[0], true)) ZB_BUG("the best recipe cannot be planned");
}

/* Returns what is wrong with the plan of a candidate that was weighed; NULL: nothing. */
static const char *why_unplanned(const Space *x, Layouts *all, const Candidate *c) {
  ZbArena *a = zb_arena_new();
  ZlDiags *d = zl_diags_new(a, zl_sources_new(a));
  const ZpPlan *p = zp_plan_unproved(a, x->g, recipe_of(x, all, c), d, x->plan);
  const char *why = p || !zl_first_error(d) ? NULL : zb_strdup(x->a, zl_first_error(d));
  zb_arena_free(a);
  return why;
}

/* ---- all of it ------------------------------------------------------------------------------------------- */
ZpSearch *zp_search(ZbArena *a, const ZgGraph *g, const ZlRecipe *base, const ZpSearchOptions *o,
                    const ZpOptions *plan, ZlDiags *d) {
  ZpOptions po = *plan;
  po.cluster = NULL;
  Space x = {.a = a, .g = g, .base = base, .c = o->cluster, .plan = &po, .whole = o->whole};
  if (!space_make(&x, o, d)) return NULL;
  Layouts *all = layouts_new(&x);
  if (!layouts_begin(all, x.ranks, d)) return NULL;
  Weighed w = {.most = 2 * o->keep > SIMULATED ? 2 * o->keep : SIMULATED};
  w.best = ZB_NEWN(a, Candidate, w.most + SETS_OF_DIMS);
  weigh(&x, all, &w);
  ZpSearch *s = ZB_NEW(a, ZpSearch);
  *s = (ZpSearch){.graph = g,
                  .cluster = o->cluster,
                  .ranks = x.ranks,
                  .limit = x.limit,
                  .limit_given = base->limit.memory > 0,
                  .meshes = w.meshes,
                  .recipes = w.recipes,
                  .weighed = w.weighed,
                  .fit = w.fit};
  find_best(&x, all, &w, o->keep, s);
  if (s->nbest) return s;
  if (w.nearest.size[0]) s->nearest = find(&x, &w.nearest, recipe_of(&x, all, &w.nearest), false);
  if (!s->nearest) s->refused = w.nearest.size[0] ? why_unplanned(&x, all, &w.nearest) : w.refused;
  return s;
}

/* The best by the formula are planned and simulated; then it is said what is not among them, and why. */
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
static const ZpPlan *plan_within(const Space *x, const ZlRecipe *r, ZbArena *a, const ZpPlan *keeps_as) {
  ZlRecipe *limited = ZB_NEW(a, ZlRecipe);
  ZpOptions o = *x->plan;
  *limited = *r;
  limited->limit.memory = x->limit;
  o.keeps_as = keeps_as;
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
static bool holds_no_more(const Space *x, const Candidate *c, int64_t few) {
  uint32_t stages = (uint32_t)c->size[DIM_PIPE];
  const char *schedule = zl_schedule(x->base->schedule);
  const ZpRehearsal *all = rehearsal(x, c, true),
                    some = zp_rehearse(x->a, schedule, stages, (uint32_t)few, true);
  return !memcmp(all->rings, some.rings, stages * sizeof *some.rings);
}

/* NULL: it cannot be planned after all. */
static ZpFound *find(const Space *x, Layouts *all, const Candidate *c, bool simulate) {
  ZpFound *f = ZB_NEW(x->a, ZpFound);
  f->recipe = space_recipe(x, c, stages_of(x, all, c), x->a);
  f->closed = c->seconds;
  f->estimate = c->bytes;
  f->nmicro = nmicro_of(x, c);
  int64_t few = c->size[DIM_PIPE] + 4, more = few + 8;
  if (simulate && f->nmicro > 2 * more && holds_no_more(x, c, few)) return extend(x, f, few, more) ? f : NULL;
  return whole(x, f, simulate) ? f : NULL;
}

/* ---- the best ------------------------------------------------------------------------------------------- */
static int by_seconds(const void *a, const void *b) {
  const ZpFound *x = a, *y = b;
  return x->seconds < y->seconds ? -1 : x->seconds > y->seconds;
}

/* Whether `by cost` cuts the stages as the winner's list does: then the recipe may say so. */
static bool cuts_by_cost(const Space *x, const ZlRecipe *r) {
  if (!r->stages.n) return false;
  ZbArena *a = zb_arena_new();
  ZlRecipe other = *r;
  other.stages.by_cost = true;
  other.stages.n = 0;
  const ZpPlan *p = zp_plan_unproved(a, x->g, &other, zl_diags_new(a, zl_sources_new(a)), x->plan);
  const ZpPlan *q = zp_plan_unproved(a, x->g, r, zl_diags_new(a, zl_sources_new(a)), x->plan);
  bool same = p && q;
  for (uint32_t s = 0; same && s < p->programs.nstages; s++)
    same = p->programs.stages[s].ninsts == q->programs.stages[s].ninsts;
  zb_arena_free(a);
  return same;
}

/* Of the best by the formula so many times as are listed are kept; */
#define MORE 4
/* Passes of a layer through the event loop: what simulating a recipe costs. Twice as many as are listed are
 * simulated; of small models more. */
#define CHEAP 100000
static double passes(const Space *x, const Candidate *c) {
  double n = (double)nmicro_of(x, c), full = (double)(2 * c->size[DIM_PIPE] + 16);
  return (n < full ? n : full) * (double)(x->items + c->size[DIM_PIPE]);
}

static void find_best(const Space *x, Layouts *all, const Weighed *w, uint32_t keep, ZpSearch *s) {
  double spent = 0;
  s->best = ZB_NEWN(x->a, ZpFound, w->nbest + nkinds + 1);
  for (uint32_t i = 0; i < w->nbest && (i < 2 * keep || spent < CHEAP); i++) {
    spent += passes(x, &w->best[i]);
    const ZpFound *f = find(x, all, &w->best[i], true);
    s->simulated++;
    if (f && f->bytes <= x->limit) s->best[s->nbest++] = *f;
  }
}

/* ---- what is not among them ------------------------------------------------------------------------------ */
static bool same_recipe(const ZlRecipe *a, const ZlRecipe *b) {
  bool same = a->nmesh == b->nmesh && a->micro == b->micro && a->nshards == b->nshards &&
              a->nrecompute == b->nrecompute && a->nsplits == b->nsplits && a->nattention == b->nattention;
  for (uint32_t i = 0; same && i < a->nmesh; i++)
    same = a->mesh[i].size == b->mesh[i].size && !strcmp(a->mesh[i].name.s, b->mesh[i].name.s);
  for (uint32_t i = 0; same && i < a->nshards; i++)
    same = a->shards[i].what == b->shards[i].what && a->shards[i].keep == b->shards[i].keep;
  for (uint32_t i = 0; same && i < a->nattention; i++) same = a->attention[i].way == b->attention[i].way;
  for (uint32_t i = 0; same && i < a->nsplits; i++)
    same = a->splits[i].otherwise.n == b->splits[i].otherwise.n;
  return same && (!a->nrecompute || a->recompute == b->recompute);
}

static const char *ledger_text(ZbArena *a, const ZpLedger *l) {
  const char *s = "";
  char bytes[24];
  bool said[ZP_LEDGER_LINES] = {false};
  for (int n = 0; n < 4; n++) { /* the longest lines */
    int most = -1;
    for (int i = 0; i < ZP_LEDGER_LINES; i++)
      if (!said[i] && zp_ledger_info[i].memory == ZP_DEVICE && l->bytes[i] &&
          (most < 0 || l->bytes[i] > l->bytes[most]))
        most = i;
    if (most < 0) break;
    said[most] = true;
    s = zb_printf(a, "%s%s%s %s", s, n ? ", " : "", zp_ledger_info[most].text,
                  zb_bytes(bytes, l->bytes[most]));
  }
  return s;
}

/* Why no recipe is of that kind. */
static const char *why_none(const Space *x, const Kind *k) {
  int64_t tensor = k->dims >> DIM_TENSOR & 1 ? 2 : 1;
  const char *why = tensor > 1 ? space_indivisible(x, 2) : NULL;
  if (why) return why;
  if (tensor > 1 && x->c->nlevels && x->c->levels[0].size < 2)
    return "no two devices share the fastest links";
  if (k->dims >> DIM_PIPE & 1 && x->items < 2) return "the model has no repeat to be cut into stages";
  if (k->dims == 1u << DIM_DATA && x->batch && x->batch % x->ranks == 0)
    return "not with the mesh and the micro-batch that the recipe gives";
  if (k->dims == 1u << DIM_DATA)
    return zb_printf(x->a, "%lld samples do not divide over %lld ranks", (long long)x->batch,
                     (long long)x->ranks);
  return zb_printf(x->a, "no mesh of %lld ranks of this kind divides %lld samples", (long long)x->ranks,
                   (long long)x->batch);
}

static bool is_listed(const ZpSearch *s, const ZpFound *f) {
  for (uint32_t i = 0; i < s->nbest; i++)
    if (same_recipe(s->best[i].recipe, f->recipe)) return true;
  return false;
}

static ZpKnown known_of(const Space *x, Layouts *all, const Weighed *w, uint32_t k) {
  ZpKnown n = {.name = kinds[k].name};
  const Candidate *fast = &w->fastest[k], *small = &w->smallest[k];
  if (!small->size[0]) {
    n.why = why_none(x, &kinds[k]);
    return n;
  }
  n.fits = fast->size[0] > 0;
  n.best = find(x, all, n.fits ? fast : small, n.fits);
  if (!n.best) {
    n.why = "it cannot be planned";
    return n;
  }
  n.fits &= n.best->bytes <= x->limit;
  if (n.fits) return n;
  char need[24], have[24];
  n.why = zb_printf(x->a, "needs %s of %s at least: %s", zb_bytes(need, n.best->bytes),
                    zb_bytes(have, x->limit), ledger_text(x->a, &n.best->ledger));
  return n;
}

static void find_known(const Space *x, Layouts *all, const Weighed *w, ZpSearch *s) {
  s->known = ZB_NEWN(x->a, ZpKnown, nkinds);
  if (x->ranks < 2) return;
  for (uint32_t k = 0; k < nkinds; k++) {
    bool asked = true; /* not what the recipe has settled otherwise */
    for (int d = 0; d < DIMS; d++) asked &= x->given[d] == 0 || (x->given[d] > 1) == (kinds[k].dims >> d & 1);
    asked &= x->free_shard || w->smallest[k].size[0];
    if (asked) s->known[s->nknown++] = known_of(x, all, w, k);
  }
}

static int64_t ranks_over(const ZlRecipe *r, const char *dim) {
  for (uint32_t i = 0; dim && i < r->nmesh; i++)
    if (!strcmp(r->mesh[i].name.s, dim)) return r->mesh[i].size;
  return 1;
}

static int way_of(const ZlRecipe *r, const char *dim) {
  for (uint32_t i = 0; i < r->nattention; i++)
    if (r->attention[i].dim.s && !strcmp(r->attention[i].dim.s, dim)) return (int)r->attention[i].way;
  return -1;
}

/* What the best has of experts and of sequences that are split, against the fastest that do not have it. */
static void find_choices(const Space *x, ZpSearch *s) {
  static const Dim dims[] = {DIM_EP, DIM_CONTEXT};
  const ZlRecipe *best = s->best[0].recipe;
  for (int k = 0; k < 2; k++) {
    ZpChoice c = {.dim = x->name[dims[k]], .experts = dims[k] == DIM_EP};
    if (ranks_over(best, c.dim) < 2) continue;
    for (uint32_t i = s->nbest; i-- > 1;) {
      const ZlRecipe *r = s->best[i].recipe;
      bool has = ranks_over(r, c.dim) > 1;
      if (!has) c.less = &s->best[i];
      else if (way_of(r, c.dim) != way_of(best, c.dim)) c.way = &s->best[i];
    }
    s->choice[s->nchoices++] = c;
  }
}

/* By the time that they were played to take: the formula that chose whom to play errs, so that a layout that
 * people know may be faster than all of those. */
static void rank(const Space *x, uint32_t keep, ZpSearch *s) {
  for (uint32_t k = 0; k < s->nknown; k++)
    if (s->known[k].fits && !is_listed(s, s->known[k].best)) s->best[s->nbest++] = *s->known[k].best;
  qsort(s->best, s->nbest, sizeof *s->best, by_seconds);
  if (s->nbest) find_choices(x, s);
  if (s->nbest > keep) s->nbest = keep;
  for (uint32_t k = 0; k < s->nknown; k++)
    s->known[k].listed = s->known[k].best && is_listed(s, s->known[k].best);
  if (!s->nbest) return;
  if (!whole(x, &s->best[0], true)) ZB_BUG("the best recipe cannot be planned");
  s->best[0].by_cost = cuts_by_cost(x, s->best[0].recipe);
}

/* ---- nothing fits ---------------------------------------------------------------------------------------- */
/* Twice as many devices, and half as many more, until something fits. */
static int64_t fewest(const Space *like, Layouts *all) {
  bool open = false;
  for (int k = 0; k < DIMS; k++) open |= like->given[k] == 0;
  if (!open) return 0;
  for (int64_t n = like->ranks; n < 1 << 20; n *= 2)
    for (int half = 1; half >= 0; half--) {
      Space x = *like;
      Weighed w = {0};
      if (half && n % 2) continue;
      x.ranks = half ? n + n / 2 : 2 * n;
      weigh(&x, all, &w, true);
      if (w.fit) return x.ranks;
    }
  return 0;
}

/* The most ranks below those asked for of which there is a mesh. */
static int64_t fewer(const Space *like, Layouts *all) {
  for (int64_t n = like->ranks - 1; n > 1 && n > like->ranks - 512; n--) {
    Space x = *like;
    Weighed w = {0};
    x.ranks = n;
    weigh(&x, all, &w, true);
    if (w.meshes) return n;
  }
  return 0;
}

/* What is wrong with the plan of a candidate that was weighed; NULL: nothing. */
static const char *why_unplanned(const Space *x, Layouts *all, const Candidate *c) {
  ZbArena *a = zb_arena_new();
  ZlDiags *d = zl_diags_new(a, zl_sources_new(a));
  const ZpPlan *p = zp_plan_unproved(a, x->g, space_recipe(x, c, stages_of(x, all, c), a), d, x->plan);
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
  Weighed w = {.most = MORE * o->keep,
               .best = ZB_NEWN(a, Candidate, MORE * o->keep),
               .fastest = ZB_NEWN(a, Candidate, nkinds),
               .smallest = ZB_NEWN(a, Candidate, nkinds)};
  weigh(&x, all, &w, false);
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
  find_known(&x, all, &w, s);
  rank(&x, o->keep, s);
  if (s->nbest) return s;
  if (w.nearest.size[0]) s->nearest = find(&x, all, &w.nearest, false);
  if (!s->nearest) s->refused = w.nearest.size[0] ? why_unplanned(&x, all, &w.nearest) : w.refused;
  if (w.meshes) s->fewest = fewest(&x, all);
  if (w.meshes) return s;
  s->fewer = fewer(&x, all);
  bool divides = x.batch && x.given[DIM_DATA] == 0;
  s->samples = divides ? (int64_t)zb_round_up((uint64_t)x.batch, (uint64_t)x.ranks) : 0;
  return s;
}

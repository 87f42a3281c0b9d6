/* Recipes that generate. There are few of them: a mesh says all, so each is planned, by its exact ledger, and
 * timed step by step.
 *
 * Ranks of `data` are replicas, engines of their own, each with its share of the sequences (bind/steps.c).
 *
 * A step of more sequences takes longer, and writes more. So where a latency is asked for, the most sequences
 * are sought that fit and that keep it.
 *
 * A mesh is looked at once for each format of weights that is allowed. */
#include "graph/ragged.h"
#include "runtime/plan/search/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  Space x;
  const ZpStepsAsked *o;
  const ZpOptions *plan;
  ZgStream along;
  ZlPacking *packing[ZP_MOST_WEIGHTS]; /* what a recipe says of each format; NULL: nothing */
  uint32_t weights;                    /* the one that is looked at */
  ZpStepsSearch *to;
} Steps;

/* ---- a recipe of nothing but `?` ------------------------------------------------------------------------ */
static bool has_experts(const ZgGraph *g) {
  for (uint32_t s = 0; s < g->nsegments; s++)
    for (uint32_t i = 0; i < g->segments[s].nforward; i++)
      if (g->segments[s].nodes[i].op == ZG_OP_DISPATCH) return true;
  return false;
}

/* Returns the axis that numbers experts. */
static const char *experts_of(const ZgGraph *g, ZbArena *a) {
  ZbErr err;
  const uint16_t *slots = zg_slot_axes(g, a, &err);
  for (uint32_t i = 0; slots && i < g->naxes; i++)
    if (slots[i] != ZG_NO_AXIS) return g->axes[slots[i]].name;
  return NULL;
}

/* Reads the recipe with one of the formats. */
static const ZlRecipe *open_recipe(const Steps *s, int64_t sequences, const char *weights, ZlDiags *d) {
  const Space *x = &s->x;
  const ZgAxis *axes = x->g->axes;
  const char *expert = has_experts(x->g) ? experts_of(x->g, x->a) : NULL;
  ZbText t = {0};
  zb_text_add(&t, "recipe generate { mesh pipe = ?, data = ?, %stensor = ? bind %s = %lld",
              expert ? "ep = ?, " : "", axes[s->along.batch].name, (long long)sequences);
  if (!axes[s->along.time].size)
    zb_text_add(&t, ", %s = %lld", axes[s->along.time].name, (long long)(s->o->prompt + s->o->answer));
  for (uint32_t i = 0; i < s->o->nbind; i++)
    zb_text_add(&t, ", %s = %lld", s->o->bind[i].axis, (long long)s->o->bind[i].size);
  zb_text_add(&t, " split %s over data ", axes[s->along.batch].name);
  if (expert) zb_text_add(&t, "split %s, %s over ep ", axes[s->along.batch].name, expert);
  bool packs = strcmp(weights, "none") != 0;
  zb_text_add(&t, "split ? over tensor stages over pipe = ? precision compute %s%s%s }",
              s->o->bf16 ? "bf16" : "f32", packs ? ", weights " : "", packs ? weights : "");
  const char *text = zb_strndup(x->a, t.s, t.len);
  ZlProgram *p = zl_load_text(x->a, zl_sources_new(x->a), d, "search", text, strlen(text), NULL);
  zb_text_free(&t);
  return p && !zl_errors(d) ? zl_recipe_open(p, d, NULL) : NULL;
}

static int64_t ceil_of(int64_t n, int64_t by) { return (n + by - 1) / by; }

/* ---- a plan --------------------------------------------------------------------------------------------- */
static const ZlRecipe *recipe_of(const Steps *s, const Candidate *c, int64_t sequences, const int64_t *stages,
                                 ZbArena *a) {
  ZlRecipe *r = ZB_NEW(a, ZlRecipe);
  *r = *space_recipe(&s->x, c, stages, a);
  ZlBind *binds = ZB_NEWN(a, ZlBind, r->nbinds + 1);
  for (uint32_t i = 0; i < r->nbinds; i++) {
    binds[i] = r->binds[i];
    if (!strcmp(binds[i].axis.s, s->x.g->axes[s->along.batch].name))
      binds[i].number = (double)(binds[i].size = sequences);
  }
  r->binds = binds;
  r->micro = 0;
  r->packed = s->packing[s->weights];
  r->npacked = r->packed ? 1 : 0;
  return r;
}

/* Returns the plan of a mesh, with so many sequences of each replica; NULL with *why. */
static const ZpPlan *plan_of(const Steps *s, const Candidate *c, int64_t each, const int64_t *stages,
                             bool local, ZbArena *a, const char **why) {
  ZpGenerating g = {.step = s->o->step > each ? s->o->step : each, .page = s->o->page};
  ZpOptions o = *s->plan;
  o.cluster = NULL;
  o.generates = &g;
  ZlDiags *d = zl_diags_new(a, zl_sources_new(a));
  const ZlRecipe *r = recipe_of(s, c, each * c->size[DIM_DATA], stages, a);
  const ZpPlan *p = (local ? zp_plan_local : zp_plan_unproved)(a, s->x.g, r, d, &o);
  if (!p && why) *why = zb_strdup(s->x.a, zl_first_error(d) ? zl_first_error(d) : "it cannot be planned");
  return p;
}

static uint64_t bytes_of(const ZpPlan *p) { return zp_fullest(p)->ledger.total[ZP_DEVICE]; }

/* Cuts the layers between stages such that the slowest has least, where a token of each sequence is written. */
static const int64_t *cut(const Steps *s, const Candidate *c, int64_t sequences, const char **why) {
  const Space *x = &s->x;
  Candidate one = *c;
  one.size[DIM_PIPE] = 1;
  if (c->size[DIM_PIPE] < 2) return NULL;
  ZbArena *a = zb_arena_new();
  int64_t *items = NULL;
  const ZpPlan *p = plan_of(s, &one, sequences, NULL, true, a, why);
  if (p) {
    ZpStepLoad load = {.writes = {sequences, sequences, (double)s->o->prompt + (double)s->o->answer / 2}};
    double *seconds = ZB_NEWN(a, double, p->graph->nsegments);
    for (uint32_t i = 0; i < p->graph->nsegments; i++) seconds[i] = zp_step_pass_seconds(p, x->c, &load, i);
    ZpStageItem *item;
    uint32_t n = zp_stage_items(p->graph, a, seconds, &item);
    items = ZB_NEWN(x->a, int64_t, c->size[DIM_PIPE]);
    zp_cut_stages(item, n, (uint32_t)c->size[DIM_PIPE], NULL, false, items);
  }
  zb_arena_free(a);
  return items;
}

/* ---- how many sequences --------------------------------------------------------------------------------- */
enum { MOST_SEQUENCES = 4096 /* of a replica: more are no longer in one step */ };

static bool predict(const Steps *s, const ZpPlan *p, int64_t sequences, ZbArena *a, ZpGenerationTime *t) {
  ZpWriting w = {sequences, s->o->prompt, s->o->answer};
  const ZpGenerationTime *is = zp_predict(a, p, s->x.c, &w, zl_diags_new(a, zl_sources_new(a)));
  if (is) *t = *is;
  return is != NULL;
}

/* Returns how many sequences of a replica fit; 0: not one. From what some and some more take it goes on to the
 * most, which a plan then must confirm: steps of more sequences need more scratch, too. */
static int64_t most_that_fit(const Steps *s, const Candidate *c, const int64_t *stages, ZpFoundSteps *f) {
  int64_t some = 0, n = 1, tries = 12;
  double had = 0;
  for (const char *why = NULL; n > some && tries--; f->refused = why) {
    ZbArena *a = zb_arena_new();
    const ZpPlan *p = plan_of(s, c, n, stages, false, a, &why);
    double bytes = p ? (double)bytes_of(p) : 0, limit = (double)s->x.limit;
    zb_arena_free(a);
    if (!p || (bytes > limit && n == 1)) continue;
    double each = some && n != some ? (bytes - had) / (double)(n - some) : 0;
    if (bytes <= limit) some = n, had = bytes;
    double most = !some ? 1 : each > 0 ? (double)some + (limit - had) / each : (double)some + 8;
    n = most < MOST_SEQUENCES ? (int64_t)most : MOST_SEQUENCES;
  }
  return some;
}

/* Returns the most sequences of a replica, up to `most`, that are written within the latency; 0: not one is. */
static int64_t most_in_time(const Steps *s, const Candidate *c, const int64_t *stages, int64_t most) {
  ZbArena *a = zb_arena_new();
  ZpGenerationTime t;
  const ZpPlan *p = plan_of(s, c, most, stages, false, a, NULL);
  int64_t least = 0;
  while (p && least < most) {
    int64_t n = least + (most - least + 1) / 2;
    if (predict(s, p, n * c->size[DIM_DATA], a, &t) && t.between <= s->o->latency) least = n;
    else most = n - 1;
  }
  zb_arena_free(a);
  return least;
}

/* ---- a mesh --------------------------------------------------------------------------------------------- */
static const char *too_large(const Steps *s, const ZpFoundSteps *f) {
  char need[24], have[24];
  ZbText t = {0};
  add_ledger(&f->ledger, &t);
  const char *why = zb_printf(s->x.a, "does not fit: %s of %s,%s", zb_bytes(need, f->bytes),
                              zb_bytes(have, s->x.limit), t.s ? t.s : "");
  zb_text_free(&t);
  return why;
}

/* Plans a mesh with so many sequences of each replica, and takes its bytes and times. */
static void take(const Steps *s, const Candidate *c, const int64_t *stages, int64_t each, ZpFoundSteps *f) {
  ZbArena *a = zb_arena_new();
  const ZpPlan *p = plan_of(s, c, each, stages, false, a, &f->refused);
  if (p) {
    const ZpStage *st = zp_fullest(p);
    f->bytes = st->ledger.total[ZP_DEVICE];
    f->stage = (uint32_t)(st - p->programs.stages);
    f->ledger = st->ledger;
    if (!predict(s, p, f->sequences, a, &f->time)) f->refused = "it cannot be timed";
    else if (f->bytes > s->x.limit) f->refused = too_large(s, f);
  }
  zb_arena_free(a);
}

/* Chooses how many sequences a mesh writes where that is not asked for, and says if not even one is written in time. */
static void choose_sequences(const Steps *s, const Candidate *c, const int64_t *stages, ZpFoundSteps *f) {
  int64_t fit = most_that_fit(s, c, stages, f), each = fit ? most_in_time(s, c, stages, fit) : 0;
  f->sequences = (each ? each : 1) * f->replicas;
  f->full = each == fit;
}

static const char *too_slow(const Steps *s, const ZpFoundSteps *f) {
  char is[24], most[24];
  return zb_printf(s->x.a, "%s from a token to the next, more than %s%s",
                   zb_seconds_text(is, f->time.between), zb_seconds_text(most, s->o->latency),
                   f->sequences <= f->replicas ? ", even of one text" : "");
}

static void look_at(Steps *s, const Candidate *c) {
  const ZpStepsAsked *o = s->o;
  ZpStepsSearch *to = s->to;
  ZpFoundSteps f = {.weights = s->weights, .replicas = c->size[DIM_DATA], .sequences = o->sequences};
  const int64_t *stages = cut(s, c, o->sequences ? ceil_of(o->sequences, f.replicas) : 8, &f.refused);
  if (!f.refused && !f.sequences) choose_sequences(s, c, stages, &f);
  if (!f.refused) take(s, c, stages, ceil_of(f.sequences, f.replicas), &f);
  if (!f.refused && o->latency > 0 && f.time.between > o->latency) f.refused = too_slow(s, &f);
  f.recipe = recipe_of(s, c, f.sequences ? f.sequences : 1, stages, s->x.a);
  if (f.refused) ZB_PUSH(s->x.a, to->lost, to->nlost, f);
  else ZB_PUSH(s->x.a, to->best, to->nbest, f);
}

/* Returns why so many ranks have no mesh at all. */
static const char *no_mesh(const Space *x) {
  const char *why = space_indivisible(x, x->ranks);
  return zb_printf(x->a, "%lld ranks of pipe are more than the model's %u layers%s%s", (long long)x->ranks,
                   x->items, why ? ", and " : "", why ? why : "");
}

static void look_at_all(Steps *s) {
  const Space *x = &s->x;
  uint32_t n;
  int64_t *size = space_divisors(x->a, x->ranks, &n);
  for (uint32_t t = 0; t < n; t++)
    for (uint32_t e = 0; e < n; e++)
      for (uint32_t p = 0; p < n && size[p] <= x->items; p++) {
        Candidate c = ONE_RANK;
        c.size[DIM_TENSOR] = size[t], c.size[DIM_EP] = size[e], c.size[DIM_PIPE] = size[p];
        int64_t ranks = x->ranks / size[t];
        if (space_indivisible(x, size[t]) || ranks % size[e] || ranks / size[e] % size[p]) continue;
        if (size[e] > 1 && (!x->name[DIM_EP] || !space_divides_over(x, DIM_EP, size[e]))) continue;
        c.size[DIM_DATA] = ranks / size[e] / size[p];
        s->to->meshes++;
        for (s->weights = 0; s->weights < s->o->nweights; s->weights++) look_at(s, &c);
      }
  if (!s->to->meshes) s->to->none = no_mesh(x);
}

/* ---- the best ------------------------------------------------------------------------------------------- */
/* Answers sooner; of the same time, with more tokens a second, with less memory. */
static int sooner(const void *a, const void *b) {
  const ZpFoundSteps *x = a, *y = b;
  if (x->time.answer != y->time.answer) return x->time.answer < y->time.answer ? -1 : 1;
  if (x->time.written != y->time.written) return x->time.written > y->time.written ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
  return (x->weights > y->weights) - (x->weights < y->weights);
}

static int more(const void *a, const void *b) {
  const ZpFoundSteps *x = a, *y = b;
  if (x->time.mixed != y->time.mixed) return x->time.mixed > y->time.mixed ? -1 : 1;
  return sooner(a, b);
}

/* Those that need least memory first, and last those that cannot be planned. */
static int nearer(const void *a, const void *b) {
  const ZpFoundSteps *x = a, *y = b;
  uint64_t p = x->bytes ? x->bytes : UINT64_MAX, q = y->bytes ? y->bytes : UINT64_MAX;
  return p < q ? -1 : p > q;
}

/* Finds what the model writes along, and the recipe that leaves its mesh open. */
static bool begins(Steps *s, ZlDiags *d) {
  ZbErr err = {0};
  if (!zg_stream(s->x.g, s->x.a, NULL, NULL, &s->along, &err)) {
    zl_help(zl_report(d, ZL_Z0815, ZL_NOWHERE, "%s", err.text), "%s", err.help);
    return false;
  }
  for (uint32_t i = 0; i < s->o->nweights; i++) {
    const ZlRecipe *r = open_recipe(s, s->o->sequences ? s->o->sequences : 1, s->o->weights[i], d);
    if (!r) return false;
    s->packing[i] = r->npacked ? r->packed : NULL;
    if (!i) s->x.base = r;
  }
  return true;
}

/* Returns whether a plan of one rank can be made and timed at all, with the first format; else reports why not. */
static bool suffices(const Steps *s, ZlDiags *d) {
  ZbArena *a = zb_arena_new();
  Candidate one = ONE_RANK;
  ZpGenerating g = {.step = s->o->step, .page = s->o->page};
  ZpOptions o = *s->plan;
  o.cluster = NULL;
  o.generates = &g;
  ZlRecipe r = *recipe_of(s, &one, 1, NULL, a);
  r.span = ZL_NOWHERE; /* nobody wrote it */
  const ZpPlan *p = zp_plan_local(a, s->x.g, &r, d, &o);
  bool ok = p && zp_cluster_suffices(p, s->x.ranks, s->x.c, d);
  zb_arena_free(a);
  return ok;
}

ZpStepsSearch *zp_search_steps(ZbArena *a, const ZgGraph *g, const ZpStepsAsked *o, const ZpOptions *plan,
                               ZlDiags *d) {
  ZpOptions forward = *plan; /* by which axes are chosen: as an evaluation splits them */
  forward.cluster = NULL;
  forward.generates = NULL;
  forward.forward_only = true;
  static const char *const none[] = {"none"};
  ZpStepsAsked *asked = ZB_NEW(a, ZpStepsAsked);
  *asked = *o;
  if (!asked->nweights) asked->weights = none, asked->nweights = 1;
  ZB_ASSERT(asked->nweights <= ZP_MOST_WEIGHTS);
  if (!asked->sequences && !(asked->latency > 0)) asked->sequences = 1;
  Steps s = {
      .x = {.a = a, .g = g, .c = o->cluster, .plan = &forward, .whole = true}, .o = asked, .plan = plan};
  ZpSearchOptions so = {.cluster = o->cluster, .ranks = o->ranks};
  if (!begins(&s, d) || !space_make(&s.x, &so, d) || !suffices(&s, d)) return NULL;
  s.to = ZB_NEW(a, ZpStepsSearch);
  *s.to = (ZpStepsSearch){.graph = g, .asked = *asked, .ranks = s.x.ranks, .limit = s.x.limit};
  look_at_all(&s);
  if (s.to->nbest) qsort(s.to->best, s.to->nbest, sizeof *s.to->best, asked->latency > 0 ? more : sooner);
  if (s.to->nlost) qsort(s.to->lost, s.to->nlost, sizeof *s.to->lost, nearer);
  return s.to;
}

/* Segment instances to virtual stages, and these to the pipeline stages that own them. Every instance lands
 * on exactly one virtual stage. */
#include "runtime/plan/schedule/schedule.h"

#include <string.h>

static uint32_t all_instances(ZpPlan *p, ZpInst **out) {
  ZpInst *list = NULL;
  uint32_t n = 0;
  for (uint32_t s = 0; s < p->graph->nsegments; s++)
    for (uint32_t i = 0; i < p->graph->segments[s].trip; i++) {
      ZpInst x = {.segment = s, .iter = i};
      ZB_PUSH(p->arena, list, n, x);
    }
  *out = list;
  return n;
}

/* Cuts by cost, such that the rank that has most has least. */
static double by_cost(const ZpPlan *p, const ZpStageItem *items, uint32_t n, int64_t *counts) {
  uint32_t nvstages = p->programs.nvstages, *owner = ZB_NEWN(p->arena, uint32_t, nvstages);
  for (uint32_t v = 0; v < nvstages; v++) owner[v] = zp_owner(p, v);
  return zp_cut_stages(items, n, nvstages, owner, false, counts);
}

static bool explicit_counts(ZpBuild *b, const ZpStageItem *items, uint32_t n, uint32_t stages,
                            int64_t *counts) {
  const ZlRecipe *r = b->p->asked.recipe;
  int64_t total = 0;
  for (uint32_t i = 0; i < stages; i++) total += b->stage_items[i];
  if (total != n) {
    ZlDiag *e =
        zl_report(b->d, ZL_Z0402, r->stages.span, "stages over %s places %lld layers; model %s repeats %u",
                  r->stages.dim.s, (long long)total, b->p->graph->model, n);
    zl_help(e, "`stages over %s by cost` chooses them", r->stages.dim.s);
    return false;
  }
  memcpy(counts, b->stage_items, stages * sizeof *counts);
  double sum = 0, max = 0;
  uint32_t at = 0;
  for (uint32_t s = 0; s < stages; s++) {
    double c = 0;
    for (int64_t i = 0; i < counts[s]; i++) c += items[at++].cost;
    sum += c;
    if (c > max) max = c;
  }
  int64_t *better = ZB_NEWN(b->p->arena, int64_t, stages);
  double least = by_cost(b->p, items, n, better);
  if (max > 1.1 * least) {
    const char *list = "";
    for (uint32_t s = 0; s < stages; s++)
      list = zb_printf(b->p->arena, "%s%s%lld", list, s ? ", " : "", (long long)better[s]);
    ZlDiag *e = zl_report(b->d, ZL_Z0401, r->stages.span,
                          "pipeline stages are unbalanced: the slowest is %.0f %% above the mean",
                          100 * (max * stages / sum - 1));
    zl_help(e, "stages over %s = [%s] would be %.0f %% faster", r->stages.dim.s, list,
            100 * (1 - least / max));
  }
  return true;
}

/* As in another plan, or as they are. */
static void as_in(const ZpPlan *p, const ZpPrograms *like, const ZpStageItem *items, uint32_t nitems,
                  int64_t *counts) {
  uint32_t item = 0, end = 0;
  for (uint32_t v = 0; v < p->programs.nvstages; v++) {
    uint32_t first = item;
    end += like->vstages[v].ninsts;
    while (item < nitems && items[item].first < end) item++;
    counts[v] = item - first;
  }
}

static void hold_buckets(ZpPlan *p, ZpStage *st) {
  for (uint32_t i = 0; i < st->ninsts; i++) {
    ZpInst *x = &st->insts[i];
    const ZpSegment *s = &p->programs.segments[x->segment];
    x->held = ZB_NEWN(p->arena, uint32_t, s->nbuckets + 1);
    for (uint32_t k = 0; k < s->nbuckets; k++) {
      const ZpBucket *bk = &p->programs.buckets[s->buckets[k]];
      ZpStageBucket h = {.bucket = s->buckets[k],
                         .iter = bk->segment == ZP_NONE ? 0 : x->iter,
                         .tied = ZP_NONE,
                         .norm_owner = true};
      uint32_t at = st->nheld;
      /* per-iteration buckets are new with every instance; single ones may be held already */
      for (uint32_t q = 0; bk->segment == ZP_NONE && q < st->nheld; q++)
        if (st->held[q].bucket == h.bucket) at = q;
      if (at == st->nheld) ZB_PUSH(p->arena, st->held, st->nheld, h);
      x->held[x->nheld++] = at;
    }
  }
}

/* Single buckets held by more than one stage: copies whose gradients are summed; the first stage's counts. */
static void tie(ZpPlan *p) {
  for (uint32_t k = 0; k < p->programs.nbuckets; k++) {
    if (p->programs.buckets[k].segment != ZP_NONE) continue;
    ZpTied t = {.bucket = k};
    for (uint32_t s = 0; s < p->programs.nstages; s++)
      for (uint32_t h = 0; h < p->programs.stages[s].nheld; h++)
        if (p->programs.stages[s].held[h].bucket == k) ZB_PUSH(p->arena, t.stages, t.nstages, s);
    if (t.nstages < 2) continue;
    for (uint32_t i = 0; i < t.nstages; i++)
      for (uint32_t h = 0; h < p->programs.stages[t.stages[i]].nheld; h++) {
        ZpStageBucket *held = &p->programs.stages[t.stages[i]].held[h];
        if (held->bucket != k) continue;
        held->tied = p->programs.ntied;
        held->norm_owner = i == 0;
      }
    ZB_PUSH(p->arena, p->programs.tied, p->programs.ntied, t);
  }
}

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

static bool reads_inputs(const ZpSegment *s) {
  for (uint32_t v = 0; v < s->nvalues; v++)
    if (s->values[v].at.space == ZP_AT_INPUT) return true;
  return false;
}

/* Measures what a virtual stage passes on and what it needs beside buckets: its activation slot, which has
 * inputs, then instance by instance the saved values and after them the carried tuple, if backward reads it;
 * boundaries between instances. */
static void measure_vstage(const ZpPlan *p, ZpStage *st, ZpVirtualStage *v) {
  const ZpSegment *segments = p->programs.segments;
  bool inputs = false;
  for (uint32_t i = v->first; i < v->first + v->ninsts; i++)
    inputs |= reads_inputs(&segments[st->insts[i].segment]);
  if (inputs) {
    const ZpInputUse *u = &p->programs.inputs[p->programs.ninputs - 1];
    v->input_bytes = u->at + zb_round_up(segments[u->value_segment].values[u->value].bytes, 64);
  }
  v->slot_bytes = v->input_bytes;
  for (uint32_t i = v->first; i < v->first + v->ninsts; i++) {
    const ZpSegment *s = &segments[st->insts[i].segment];
    bool first = i == v->first;
    st->saved_at[i] = v->slot_bytes;
    v->slot_bytes += s->saved_bytes + (!first && s->saves_carry ? s->carry_bytes : 0);
    if (!first) st->boundary_bytes = larger(st->boundary_bytes, larger(s->carry_bytes, s->dcarry_bytes));
  }
  const ZpSegment *first = &segments[st->insts[v->first].segment],
                  *last = &segments[st->insts[v->first + v->ninsts - 1].segment];
  v->carry_bytes = first->carry_bytes, v->carry_out_bytes = last->carry_out_bytes;
  v->dcarry_bytes = first->dcarry_bytes, v->dcarry_out_bytes = last->dcarry_out_bytes;
}

void zp_measure_stage(const ZpPlan *p, ZpStage *st) {
  st->saved_at = ZB_NEWN(p->arena, uint64_t, st->ninsts);
  st->cache_at = ZB_NEWN(p->arena, uint64_t, st->ninsts);
  for (uint32_t k = 0; k < st->nvstages; k++) measure_vstage(p, st, &p->programs.vstages[st->vstages[k]]);
  for (uint32_t i = 0; i < st->ninsts; i++) {
    const ZpSegment *s = &p->programs.segments[st->insts[i].segment];
    st->cache_at[i] = st->cache_bytes;
    st->cache_bytes += s->cache_bytes;
    for (int k = 0; k < ZP_PHASES; k++) st->scratch_bytes = larger(st->scratch_bytes, s->list[k].temp);
    st->cost += s->cost;
  }
  for (uint32_t h = 0; h < st->nheld; h++) {
    const ZpBucket *k = &p->programs.buckets[st->held[h].bucket];
    if (zp_updates_whole(p, k)) st->scratch_bytes = larger(st->scratch_bytes, zp_orthogonal_scratch(p, k));
  }
}

static void report_too_many(ZpBuild *b, uint32_t nitems) {
  const ZpPlan *p = b->p;
  const char *dim = p->asked.recipe->stages.dim.s;
  ZlSpan at = p->asked.recipe->stages.span;
  bool repeats = p->graph->nsegments > 1; /* straight segments and repeats alternate */
  uint32_t each = p->programs.nvstages / p->programs.nstages;
  const char *kind = each > 1 ? "virtual" : "pipeline";
  ZlDiag *e = repeats ? zl_report(b->d, ZL_Z0404, at,
                                  "%u %s stages, but the outermost repeats of model %s have %u iteration%s",
                                  p->programs.nvstages, kind, p->graph->model, nitems, nitems == 1 ? "" : "s")
                      : zl_report(b->d, ZL_Z0404, at, "%u %s stages, but model %s has no `repeat`",
                                  p->programs.nvstages, kind, p->graph->model);
  zl_note(e, "stages are cut between the iterations of the model's outermost `repeat`");
  if (nitems / each > 1) zl_help(e, "use at most %s = %u", dim, nitems / each);
  else if (each > 1) zl_help(e, "use another schedule than `%s`", p->asked.schedule);
  else if (repeats) zl_help(e, "use %s = 1, or compile the model with more layers", dim);
  else zl_help(e, "use %s = 1, or write the model's layers as a `repeat`", dim);
}

/* Says how many items each virtual stage has. False with reports. */
static bool cut(ZpBuild *b, const ZpPrograms *like, const ZpStageItem *items, uint32_t nitems,
                int64_t *counts) {
  ZpPlan *p = b->p;
  uint32_t n = p->programs.nvstages;
  if (n > nitems) {
    report_too_many(b, nitems);
    return false;
  }
  if (like) as_in(p, like, items, nitems, counts);
  else if (n > 1 && b->stage_items) return explicit_counts(b, items, nitems, n, counts);
  else by_cost(p, items, nitems, counts);
  return true;
}

/* Gives each virtual stage its instances, and each stage those of the virtual stages that it owns. */
static void own(ZpPlan *p, const ZpInst *inst, uint32_t ninst, const ZpStageItem *items, uint32_t nitems,
                const int64_t *counts) {
  uint32_t item = 0;
  for (uint32_t v = 0; v < p->programs.nvstages; v++) {
    ZpVirtualStage *x = &p->programs.vstages[v];
    ZpStage *st = &p->programs.stages[x->stage];
    uint32_t from = items[item].first;
    item += (uint32_t)counts[v];
    uint32_t end = item < nitems ? items[item].first : ninst;
    x->first = st->ninsts;
    x->ninsts = end - from;
    ZB_PUSH(p->arena, st->vstages, st->nvstages, v);
    for (uint32_t i = from; i < end; i++) ZB_PUSH(p->arena, st->insts, st->ninsts, inst[i]);
  }
}

bool zp_stages(ZpBuild *b) {
  ZpPlan *p = b->p;
  const ZpPrograms like = b->cuts ? b->cuts->programs : (ZpPrograms){0}; /* perhaps what p had before */
  ZpInst *inst;
  ZpStageItem *items;
  double *cost = ZB_NEWN(p->arena, double, p->graph->nsegments);
  for (uint32_t i = 0; i < p->graph->nsegments; i++) cost[i] = p->programs.segments[i].cost;
  uint32_t ninst = all_instances(p, &inst), nitems = zp_stage_items(p->graph, p->arena, cost, &items);
  uint32_t ranks = p->layout.mesh.pipe < 0 ? 1 : (uint32_t)p->layout.mesh.dim[p->layout.mesh.pipe].size;
  p->programs.nstages = ranks;
  p->programs.vstages = zp_place_vstages(p->arena, p->asked.schedule, ranks, &p->programs.nvstages);
  int64_t *counts = ZB_NEWN(p->arena, int64_t, p->programs.nvstages);
  if (!cut(b, b->cuts ? &like : NULL, items, nitems, counts)) return false;
  p->programs.stages = ZB_NEWN(p->arena, ZpStage, ranks);
  own(p, inst, ninst, items, nitems, counts);
  for (uint32_t s = 0; s < ranks; s++) {
    hold_buckets(p, &p->programs.stages[s]);
    zp_measure_stage(p, &p->programs.stages[s]);
  }
  p->programs.tied = NULL;
  p->programs.ntied = 0;
  tie(p);
  p->notes.model_flops = 0;
  for (uint32_t i = 0; i < ninst; i++)
    p->notes.model_flops += p->programs.segments[inst[i].segment].model_flops * (double)p->asked.nmicro;
  return true;
}

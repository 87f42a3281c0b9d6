/* Segment instances to pipeline stages: each lands on exactly one. */
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
  double least = zp_cut_stages(items, n, stages, NULL, false, better);
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

/* As in the plan that has the parameters, or in the one that keeps nothing. */
static void as_in(const ZpPlan *p, const ZpPlan *like, const ZpStageItem *items, uint32_t nitems,
                  int64_t *counts) {
  uint32_t item = 0, end = 0;
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    uint32_t first = item;
    end += like->programs.stages[s].ninsts;
    while (item < nitems && items[item].first < end) item++;
    counts[s] = item - first;
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

/* What a stage needs beside its buckets: its activation slot (inputs, then instance by
 * instance the saved values and after them the carried tuple, if backward reads it), scratch,
 * and boundaries between instances. */
static void measure(const ZpPlan *p, ZpStage *st) {
  bool inputs = false;
  for (uint32_t i = 0; i < st->ninsts; i++)
    inputs |= reads_inputs(&p->programs.segments[st->insts[i].segment]);
  if (inputs) {
    const ZpInputUse *u = &p->programs.inputs[p->programs.ninputs - 1];
    st->input_bytes = u->at + zb_round_up(p->programs.segments[u->value_segment].values[u->value].bytes, 64);
  }
  uint64_t at = st->input_bytes;
  st->saved_at = ZB_NEWN(p->arena, uint64_t, st->ninsts);
  for (uint32_t i = 0; i < st->ninsts; i++) {
    const ZpSegment *s = &p->programs.segments[st->insts[i].segment];
    st->saved_at[i] = at;
    at += s->saved_bytes + (i > 0 && s->saves_carry ? s->carry_bytes : 0);
    for (int k = 0; k < ZP_PHASES; k++) st->scratch_bytes = larger(st->scratch_bytes, s->list[k].temp);
    if (i > 0) st->boundary_bytes = larger(st->boundary_bytes, larger(s->carry_bytes, s->dcarry_bytes));
    st->cost += s->cost;
  }
  for (uint32_t h = 0; h < st->nheld; h++) {
    const ZpBucket *k = &p->programs.buckets[st->held[h].bucket];
    if (zp_is_muon(p, k)) st->scratch_bytes = larger(st->scratch_bytes, zp_orthogonal_scratch(p, k));
  }
  st->slot_bytes = at;
}

static void report_too_many(ZpBuild *b, uint32_t nitems) {
  const ZpPlan *p = b->p;
  const char *dim = p->asked.recipe->stages.dim.s;
  ZlSpan at = p->asked.recipe->stages.span;
  bool repeats = p->graph->nsegments > 1; /* straight segments and repeats alternate */
  ZlDiag *e = repeats
                  ? zl_report(b->d, ZL_Z0404, at,
                              "%u pipeline stages, but the outermost repeats of model %s have %u iteration%s",
                              p->programs.nstages, p->graph->model, nitems, nitems == 1 ? "" : "s")
                  : zl_report(b->d, ZL_Z0404, at, "%u pipeline stages, but model %s has no `repeat`",
                              p->programs.nstages, p->graph->model);
  zl_note(e, "stages are cut between the iterations of the model's outermost `repeat`");
  if (nitems > 1) zl_help(e, "use at most %s = %u", dim, nitems);
  else if (repeats) zl_help(e, "use %s = 1, or compile the model with more layers", dim);
  else zl_help(e, "use %s = 1, or write the model's layers as a `repeat`", dim);
}

bool zp_stages(ZpBuild *b) {
  ZpPlan *p = b->p;
  ZpInst *inst;
  ZpStageItem *items;
  double *cost = ZB_NEWN(p->arena, double, p->graph->nsegments);
  for (uint32_t i = 0; i < p->graph->nsegments; i++) cost[i] = p->programs.segments[i].cost;
  uint32_t ninst = all_instances(p, &inst), nitems = zp_stage_items(p->graph, p->arena, cost, &items);
  p->programs.nstages = p->layout.mesh.pipe < 0 ? 1 : (uint32_t)p->layout.mesh.dim[p->layout.mesh.pipe].size;
  if (p->programs.nstages > nitems) {
    report_too_many(b, nitems);
    return false;
  }
  int64_t *counts = ZB_NEWN(p->arena, int64_t, p->programs.nstages);
  if (p->asked.eval_of || b->like) {
    as_in(p, b->like ? b->like : p->asked.eval_of, items, nitems, counts);
  } else if (p->programs.nstages > 1 && b->stage_items) {
    if (!explicit_counts(b, items, nitems, p->programs.nstages, counts)) return false;
  } else {
    zp_cut_stages(items, nitems, p->programs.nstages, NULL, false, counts);
  }
  p->programs.stages = ZB_NEWN(p->arena, ZpStage, p->programs.nstages);
  uint32_t item = 0;
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    ZpStage *st = &p->programs.stages[s];
    uint32_t first = items[item].first;
    item += (uint32_t)counts[s];
    uint32_t end = item < nitems ? items[item].first : ninst;
    st->insts = inst + first;
    st->ninsts = end - first;
    hold_buckets(p, st);
    measure(p, st);
  }
  tie(p);
  for (uint32_t s = 0; s < p->programs.nstages; s++)
    for (uint32_t i = 0; i < p->programs.stages[s].ninsts; i++)
      p->notes.model_flops +=
          p->programs.segments[p->programs.stages[s].insts[i].segment].model_flops * (double)p->asked.nmicro;
  return true;
}

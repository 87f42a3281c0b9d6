/* The road from a recipe to a proved plan, in order. */
#include "runtime/plan/impl.h"

#include <string.h>

const char *zp_loc_text(const ZpPlan *p, uint32_t loc) {
  const ZgLoc *l = &p->graph->locs[loc < p->graph->nlocs ? loc : 0];
  return l->line ? zb_printf(p->arena, "%s:%u", l->file, l->line) : "the model";
}

/* Shards all segments. A parameter used in several places may have a gradient that is partial along a dim in one
 * and complete in another; then the common dims are what may stay partial, and everything is sharded again. */
static bool shard_all(ZpBuild *b) {
  ZpPlan *p = b->p;
  const ZgGraph *g = p->graph;
  ZgSegment **local = ZB_NEWN(p->arena, ZgSegment *, g->nsegments), **count = ZB_NEWN(p->arena, ZgSegment *, g->nsegments);
  bool **again = ZB_NEWN(p->arena, bool *, g->nsegments);
  for (uint32_t i = 0; i < g->nsegments; i++) {
    local[i] = zp_remat(b, &g->segments[i], &again[i]);
    count[i] = zp_count_segment(b, &g->segments[i]);
  }
  ZpDims *partial = ZB_NEWN(p->arena, ZpDims, g->nparams + 1);
  for (int round = 0; round < 2 + p->mesh.ndims; round++) {
    memset(partial, 0xff, g->nparams * sizeof *partial);
    for (uint32_t i = 0; i < g->nsegments; i++)
      if (!zp_shard(b, i, local[i], again[i], count[i], partial)) return false;
    bool stable = true;
    for (uint32_t i = 0; i < g->nparams; i++) {
      ZpDims now = b->grad_partial[i] & partial[i];
      stable &= now == b->grad_partial[i] || round > 0;
      b->grad_partial[i] = now;
    }
    if (stable) return true;
  }
  ZB_BUG("gradient states do not settle");
}

/* Sizes have 31 bits, their products more than 64. What adds up bytes below must stay far from overflow. */
static bool check_amount(ZpBuild *b) {
  const ZpPlan *p = b->p;
  double total = 0;
  for (uint32_t i = 0; i < p->graph->nsegments; i++)
    for (uint32_t v = 0; v < p->segments[i].nvalues; v++) {
      const ZpValue *x = &p->segments[i].values[v];
      double bytes = (double)zk_elem_bytes(x->elem) * p->graph->segments[i].trip * (double)p->nmicro;
      for (int a = 0; a < x->type.naxes; a++) bytes *= (double)x->size[a];
      total += bytes;
    }
  if (total < 0x1p60) return true;
  zl_help(zl_report(b->d, ZL_Z0501, p->recipe->span, "a rank would need some %.3g PB", total / 1e15), "`bind` or `pad` smaller sizes");
  return false;
}

static void count_params(ZpPlan *p) {
  for (uint32_t i = 0; i < p->nbuckets; i++)
    for (uint32_t k = 0; k < p->buckets[i].nslices; k++) {
      double n = 1;
      for (int a = 0; a < p->buckets[i].slices[k].naxes; a++) n *= (double)p->buckets[i].slices[k].valid[a];
      p->params += p->buckets[i].segment == ZP_NONE ? n : n * p->graph->segments[p->buckets[i].segment].trip;
    }
}

ZpPlan *zp_plan(ZbArena *a, const ZgGraph *g, const ZlRecipe *r, ZlDiags *d, const ZpOptions *o) {
  ZpPlan *p = ZB_NEW(a, ZpPlan);
  ZpBuild b = {.p = p, .d = d, .o = o};
  p->arena = a;
  p->graph = g;
  p->recipe = r;
  p->segments = ZB_NEWN(a, ZpSegment, g->nsegments);
  if (!zp_bind(&b) || !shard_all(&b) || !check_amount(&b)) return NULL;
  zp_buckets(&b);
  for (uint32_t i = 0; i < g->nsegments; i++) zp_place(&b, i);
  count_params(p);
  if (!zp_stages(&b)) return NULL;
  zp_program(p);
  if (!zp_ledger(&b)) return NULL;
  ZbErr err = {0};
  if (!zp_check(p, &err) || !zp_check_segments(p, &err)) {
    ZlDiag *e = zl_report(d, ZL_Z0999, r->span, "the plan of recipe %s failed its proof (please report)", r->name);
    zl_note(e, "%s", err.text);
    return NULL;
  }
  return p;
}

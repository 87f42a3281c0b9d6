/* The passes of this room in their order: see local.h. */
#include "runtime/plan/local/lower.h"
#include "runtime/plan/local/shard.h"
#include "runtime/plan/text.h"

#include <string.h>

/* ---- sharding ------------------------------------------------------------------------------------------ */
/* A graph segment as it is sharded. */
typedef struct {
  ZpRemat remat;
  const ZgSegment *count;
} Parts;

static Parts parts_of(const ZpBuild *b, uint32_t index) {
  return (Parts){zp_remat(b, index), zp_count_segment(b, &b->p->graph->segments[index])};
}

static bool shard(ZpBuild *b, uint32_t index, const Parts *x, ZpDims *partial) {
  if (!zp_shard_segment(b, index, x->remat.s, x->remat.recomputed, x->count, partial)) return false;
  ZpSegment *s = &b->p->programs.segments[index];
  s->stashable = x->remat.stashable;
  s->nstashable = x->remat.nstashable;
  return true;
}

/* Shards all segments. A parameter used in several places may have a gradient that is partial along a dim in
 * one and complete in another; then the common dims are what may stay partial, and everything is sharded
 * again. */
static bool shard_all(ZpBuild *b) {
  ZpPlan *p = b->p;
  const ZgGraph *g = p->graph;
  p->programs.segments = ZB_NEWN(p->arena, ZpSegment, g->nsegments);
  Parts *parts = ZB_NEWN(p->arena, Parts, g->nsegments);
  zp_find_cotangents(p);
  for (uint32_t i = 0; i < g->nsegments; i++) parts[i] = parts_of(b, i);
  ZpDims *partial = ZB_NEWN(p->arena, ZpDims, g->nparams + 1);
  for (int round = 0; round < 2 + p->layout.mesh.ndims; round++) {
    memset(partial, 0xff, g->nparams * sizeof *partial);
    for (uint32_t i = 0; i < g->nsegments; i++)
      if (!shard(b, i, &parts[i], partial)) return false;
    bool stable = true;
    for (uint32_t i = 0; i < g->nparams; i++) {
      ZpDims now = b->grad_partial[i] & partial[i];
      stable &= now == b->grad_partial[i];
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
    for (uint32_t v = 0; v < p->programs.segments[i].nvalues; v++) {
      const ZpValue *x = &p->programs.segments[i].values[v];
      double bytes = zk_mean_bytes((ZkElem)x->elem) * p->graph->segments[i].trip * (double)p->asked.nmicro;
      for (int a = 0; a < x->type.naxes; a++) bytes *= (double)x->size[a];
      total += bytes;
    }
  if (total < 0x1p60) return true;
  zl_help(zl_report(b->d, ZL_Z0501, p->asked.recipe->span, "a rank would need some %.3g PB", total / 1e15),
          "`bind` or `pad` smaller sizes");
  return false;
}

/* Reports an `attention` of the recipe over a dim that splits no sequence. */
static void check_attended(ZpBuild *b) {
  const ZlRecipe *r = b->p->asked.recipe;
  for (uint32_t i = 0; i < r->nattention; i++) {
    const ZlAttention *a = &r->attention[i];
    bool used = !a->dim.s && a->way == ZL_ATTENTION_AUTO;
    for (int d = 0; d < b->p->layout.mesh.ndims; d++)
      used |= zp_attention(b->p, &b->p->layout.mesh.dim[d]) == a &&
              (b->attended >> d & 1 || b->p->layout.mesh.dim[d].size == 1);
    if (used) continue;
    const char *splits =
        a->dim.s ? zb_printf(b->p->arena, "`%s` splits no", a->dim.s) : "no dimension that it is for splits";
    zl_help(zl_report(b->d, ZL_Z0809, a->span, "`attention %s` has no effect: %s positions of an attend",
                      zl_attention_ways[a->way], splits),
            "add `split seq over %s`, with the axis of positions", a->dim.s ? a->dim.s : "DIM");
  }
}

/* Reports packed weights that something else than a product or a lookup reads: a rank may need another part of them than
 * it has. */
static void check_packed(ZpBuild *b) {
  for (uint32_t i = 0; b->p->asked.packed && i < b->p->graph->nsegments; i++) {
    const ZpSegment *s = &b->p->programs.segments[i];
    for (int phase = 0; phase < (b->p->asked.forward_only ? ZP_BWD : ZP_PHASES); phase++)
      for (uint32_t k = 0; k < s->list[phase].n; k++) {
        const ZpNode *n = &s->list[phase].nodes[k];
        for (int j = 0; j < n->call.nin; j++) {
          const ZpValue *v = &s->values[n->in[j]];
          uint16_t op = n->call.op;
          if (!zk_is_packed((ZkElem)v->elem) || op == ZG_OP_DOT || op == ZG_OP_GROUPED_DOT ||
              op == ZG_OP_LOOKUP)
            continue;
          const char *path = b->p->graph->params[v->param].path;
          ZlDiag *e =
              zl_report(b->d, ZL_Z0808, b->p->asked.recipe->packed[0].span,
                        "`%s` in %s is needed by %s at %s, which takes f32 or bf16 in this version", path,
                        zk_elem_info[v->elem].text, zg_op_info[op].text, zp_loc_text(b->p, n->loc));
          zl_help(e, "leave it out: `except %s`", path);
          return;
        }
      }
  }
}

bool zp_shard(ZpBuild *b) {
  if (!shard_all(b)) return false;
  check_attended(b);
  check_packed(b);
  if (zl_errors(b->d)) return false;
  return check_amount(b);
}

/* ---- lowering ------------------------------------------------------------------------------------------ */
static void mark_read(const ZpList *l, bool *read) {
  for (uint32_t i = 0; i < l->n; i++)
    for (int k = 0; k < l->nodes[i].call.nin; k++) read[l->nodes[i].in[k]] = true;
}

static void find_readers(ZpLocal *c) {
  uint32_t n = c->s->nvalues;
  c->read = ZB_NEWN(c->p->arena, bool, n);
  for (int k = 0; k < ZP_PHASES; k++) c->later[k] = ZB_NEWN(c->p->arena, bool, n);
  mark_read(&c->s->list[ZP_BWD], c->later[ZP_FWD]);
}

/* One call does what several nodes did, as far as the device has such calls. */
static void fuse(ZpLocal *c, ZpPhase phase) {
  ZpRewrite r;
  zp_rewrite_begin(&r, c->b, c->s, phase, c->later[phase]);
  if (c->b->o->supports && phase == ZP_BWD) zp_delay_grads(&r);
  zp_fuse_pointwise(&r);
  if (c->b->o->supports) {
    zp_fuse_epilogue(&r);
    zp_fuse_prologue(&r);
    zp_fuse_xent_max(&r);
    if (phase == ZP_BWD) zp_fuse_bias_grad(&r), zp_fuse_norm_sums(&r);
    zp_group_gemms(&r, &c->groups);
  }
  zp_rewrite_end(&r);
  mark_read(&c->s->list[phase], c->read);
}

static void batch(ZpLocal *c, ZpPhase phase) {
  ZpRewrite r;
  zp_rewrite_begin(&r, c->b, c->s, phase, NULL);
  zp_batch_gemms(&r, &c->groups);
  zp_rewrite_end(&r);
}

static void lower(ZpBuild *b, uint32_t index) {
  ZpPlan *p = b->p;
  ZpLocal c = {
      .b = b, .p = p, .gs = &p->graph->segments[index], .s = &p->programs.segments[index], .index = index};
  /* Sharded all the same: what backward does with parameters decides which of them share a bucket. */
  if (p->asked.forward_only) c.s->list[ZP_BWD].n = 0;
  zp_lower_param_grads(&c);
  for (ZpPhase k = 0; k < ZP_PHASES; k++) zp_make_rounds(&c, k);
  zp_fuse_xent_grad(&c);
  c.groups = zp_no_groups(p->arena, c.s);
  find_readers(&c);
  for (ZpPhase k = 0; k < ZP_PHASES; k++) fuse(&c, k);
  zp_place_saved(&c);
  for (ZpPhase k = 0; k < ZP_PHASES; k++) zp_place_sources(&c, k);
  zp_place_carried(&c);
  for (ZpPhase k = 0; k < ZP_PHASES; k++) zp_overlap(&c, k);
  for (ZpPhase k = 0; k < ZP_PHASES; k++) zp_make_calls(&c, k);
  for (ZpPhase k = 0; k < ZP_PHASES; k++) zp_place_temps(&c, k);
  for (ZpPhase k = 0; k < ZP_PHASES; k++) zp_count_work(&c, k);
  zp_mark_setters(&c);
  for (ZpPhase k = 0; k < ZP_PHASES; k++) batch(&c, k);
  for (ZpPhase k = 0; k < ZP_PHASES; k++) zp_mark_joins(&c, k);
}

void zp_lower(ZpBuild *b) {
  for (uint32_t i = 0; i < b->p->graph->nsegments; i++) lower(b, i);
  zp_place_inputs(b->p);
}

/* ---- one segment once more ----------------------------------------------------------------------------- */
/* A plan's buckets are cut and reduced as all segments together have settled it (shard_all). A variant that
 * leaves a gradient partial along fewer dims does not fit these. */
static bool suits_buckets(const ZpBuild *b, const ZpDims *partial) {
  for (uint32_t i = 0; i < b->p->graph->nparams; i++)
    if (b->grad_partial[i] & ~partial[i]) return false;
  return true;
}

bool zp_lower_segment(const ZpBuild *b, uint32_t index, const ZpVariant *v, ZbArena *a, ZpSegment *to) {
  ZpPlan p = *b->p;
  ZpBuild c = *b;
  const ZpSegment *was = &b->p->programs.segments[index];
  ZpDims *partial = ZB_NEWN(a, ZpDims, p.graph->nparams + 1);
  memset(partial, 0xff, p.graph->nparams * sizeof *partial);
  p.arena = a;
  p.programs.segments = ZB_NEWN(a, ZpSegment, p.graph->nsegments); /* passes look at that one alone */
  c.p = &p;
  c.variant = *v;
  const Parts parts = parts_of(&c, index);
  if (!shard(&c, index, &parts, partial)) ZB_BUG("a variant of a segment cannot be sharded");
  if (!suits_buckets(b, partial)) return false;
  p.programs.segments[index].buckets = was->buckets;
  p.programs.segments[index].nbuckets = was->nbuckets;
  lower(&c, index);
  *to = p.programs.segments[index];
  return true;
}

/* Slots: how many rows of experts a round has, along which mesh dims they are split, and how many rounds
 * there are. */
#include "graph/ragged.h"
#include "runtime/plan/bind/bind.h"
#include "runtime/plan/text.h"

#include <math.h>
#include <string.h>

/* The tokens that are dispatched to slots of `slot`. */
typedef struct {
  ZgType tokens;
  int64_t choices;
  double rows; /* of tokens and choices */
  const ZgNode *at;
} Sent;

static Sent sent_to(const ZpPlan *p, uint16_t slot) {
  const ZgGraph *g = p->graph;
  Sent most = {0};
  for (uint32_t i = 0; i < g->nsegments; i++)
    for (uint32_t k = 0; k < g->segments[i].nnodes; k++) {
      const ZgNode *n = &g->segments[i].nodes[k];
      if (n->op != ZG_OP_DISPATCH || n->ax[1] != slot) continue;
      Sent s = {zg_type_minus(&g->segments[i].values[n->in[1]].type, &n->ax[2], 1),
                p->layout.axis_size[n->ax[2]], 0, n};
      s.rows = (double)s.choices;
      for (int a = 0; a < s.tokens.naxes; a++) s.rows *= (double)p->layout.axis_size[s.tokens.axis[a]];
      if (s.rows > most.rows) most = s;
    }
  return most;
}

/* Returns whether ranks along the dim have rows of their own, because it splits tokens and nothing of their
 * experts' work. Where it lists the batch, what it lists beside comes first, as everywhere. */
static bool splits_slots(const ZpPlan *p, const ZpDim *d, const Sent *s, uint16_t expert) {
  bool batch = false, tokens = d->naxes > 0;
  if (zp_dim_splits(d, expert)) return false;
  for (uint32_t i = 0; i < d->naxes; i++) {
    batch |= d->axes[i] == p->asked.batch && zg_type_has(&s->tokens, d->axes[i]);
    tokens &= zg_type_has(&s->tokens, d->axes[i]);
  }
  return batch || tokens;
}

/* Tokens go to whoever has an expert's weights from ranks that have other tokens; where all have the same
 * ones there is nothing to send. */
static bool check_experts(ZpBuild *b, const Sent *s, uint16_t expert) {
  ZpPlan *p = b->p;
  for (int d = 0; d < p->layout.mesh.ndims; d++) {
    const ZpDim *dim = &p->layout.mesh.dim[d];
    bool tokens = false;
    for (uint32_t i = 0; i < dim->naxes; i++) tokens |= zg_type_has(&s->tokens, dim->axes[i]);
    if (d == p->layout.mesh.pipe || dim->size == 1 || tokens || !zp_dim_splits(dim, expert)) continue;
    ZlDiag *e = zl_report(b->d, ZL_Z0302, zp_split_span(p, dim),
                          "`%s` cannot be split over `%s`: its ranks have the same tokens to dispatch (%s)",
                          p->graph->axes[expert].name, dim->name, zp_loc_text(p, s->at->loc));
    zl_help(e, "`split batch, %s over %s`, or split an axis of each expert's weights",
            p->graph->axes[expert].name, dim->name);
    return false;
  }
  return true;
}

/* Finds an axis that the dim lists before the experts and that their weights have too, so that it would split
 * them instead. ZG_NO_AXIS: none. */
static uint16_t before_experts(const ZpPlan *p, const ZpDim *d, uint16_t expert) {
  for (uint32_t i = 0; i < d->naxes && d->axes[i] != expert; i++)
    for (uint32_t k = 0; k < p->graph->nparams; k++) {
      const ZgType *t = &p->graph->params[k].type;
      if (zg_type_has(t, expert) && zg_type_has(t, d->axes[i])) return d->axes[i];
    }
  return ZG_NO_AXIS;
}

/* Rows are split as tokens and experts are: no dim may say otherwise. */
static bool check_dims(ZpBuild *b, uint16_t slot, uint16_t expert) {
  ZpPlan *p = b->p;
  const ZgAxis *axes = p->graph->axes;
  for (int d = 0; d < p->layout.mesh.ndims; d++) {
    const ZpDim *dim = &p->layout.mesh.dim[d];
    if (d == p->layout.mesh.pipe) continue;
    if (zp_dim_splits(dim, slot)) {
      ZlDiag *e =
          zl_report(b->d, ZL_Z0302, zp_split_span(p, dim),
                    "`%s` cannot be split over `%s`: it counts rows of experts", axes[slot].name, dim->name);
      zl_help(e, "rows are split as tokens are, and by `split batch, %s over %s`", axes[expert].name,
              dim->name);
      return false;
    }
    if (dim->size == 1 || !zp_dim_splits(dim, expert)) continue;
    uint16_t other = before_experts(p, dim, expert);
    if (other == ZG_NO_AXIS) continue;
    ZlDiag *e = zl_report(b->d, ZL_Z0302, zp_split_span(p, dim),
                          "over `%s` weights of experts would be split by `%s`, not by `%s`", dim->name,
                          axes[other].name, axes[expert].name);
    zl_help(e, "name `%s` before `%s`", axes[expert].name, axes[other].name);
    return false;
  }
  return true;
}

/* Rows that a round has room for, over the average. Where a rank has all experts it knows how many rows there
 * will be, and nothing is to spare. */
static double factor_of(const ZpPlan *p, uint16_t slot) {
  const ZlRecipe *r = p->asked.recipe;
  bool split = false;
  for (uint32_t i = 0; i < r->nbinds; i++)
    if (!strcmp(r->binds[i].axis.s, p->graph->axes[slot].name)) return r->binds[i].number;
  for (int d = 0; d < p->layout.mesh.ndims; d++)
    split |= p->layout.mesh.dim[d].size > 1 && zp_dim_splits(&p->layout.mesh.dim[d], p->layout.experts[slot]);
  return split ? ZP_SLOT_FACTOR : 1;
}

/* Returns how many ranks share the experts: of a step of generation each has room for all rows, since how many go to
 * another round would be part of a token's bits. */
static double owners_of(const ZpPlan *p, uint16_t expert) {
  double owners = 1;
  for (int d = 0; d < p->layout.mesh.ndims; d++)
    if (d != p->layout.mesh.pipe && zp_dim_splits(&p->layout.mesh.dim[d], expert))
      owners *= (double)p->layout.mesh.dim[d].size;
  return owners;
}

static void bind_slot(ZpBuild *b, uint16_t slot) {
  ZpPlan *p = b->p;
  uint16_t expert = p->layout.experts[slot];
  Sent s = sent_to(p, slot);
  int64_t ranks = 1;
  if (!s.at) return; /* a combine without a dispatch: nothing reads it */
  if (!check_dims(b, slot, expert) || (!p->stream && !check_experts(b, &s, expert))) return;
  for (int d = 0; d < p->layout.mesh.ndims; d++) {
    if (d == p->layout.mesh.pipe || !splits_slots(p, &p->layout.mesh.dim[d], &s, expert)) continue;
    ZB_PUSH(p->arena, p->layout.mesh.dim[d].axes, p->layout.mesh.dim[d].naxes, slot);
    ranks *= p->layout.mesh.dim[d].size;
  }
  double factor = p->stream ? owners_of(p, expert) : factor_of(p, slot);
  double each = ceil(factor * s.rows / (double)ranks / (double)p->layout.axis_size[expert]);
  if (!(each * (double)ranks <= INT32_MAX)) {
    zl_help(zl_report(b->d, ZL_Z0805, zp_bind_span(p->asked.recipe, p->graph->axes[slot].name),
                      "a round of `%s` would have %.3g rows of each expert", p->graph->axes[slot].name, each),
            "bind %s = 1.5", p->graph->axes[slot].name);
    return;
  }
  if (each < 1) each = 1;
  p->layout.load[slot] = s.rows / (double)ranks / (double)p->layout.axis_size[expert] / each;
  p->layout.axis_size[slot] = p->layout.axis_valid[slot] = (int64_t)each * ranks;
}

void zp_bind_slots(ZpBuild *b) {
  const ZgGraph *g = b->p->graph;
  for (uint32_t a = 0; a < g->naxes && !zl_errors(b->d); a++)
    if (b->p->layout.experts[a] != ZG_NO_AXIS) bind_slot(b, (uint16_t)a);
}

ZpRounds zp_rounds(const ZpPlan *p, const ZpSegment *s, const ZpList *l, uint32_t node) {
  uint32_t region = l->nodes[node].rounds, first = node, i;
  if (!region) return (ZpRounds){1, 1};
  while (first > 0 && l->nodes[first - 1].rounds == region) first--;
  for (i = first; l->nodes[i].call.op != ZG_OP_DISPATCH && l->nodes[i].call.op != ZG_OP_COMBINE; i++) {}
  uint64_t rows = s->values[l->nodes[i].in[1]].bytes / sizeof(int32_t); /* of a rank's tokens and choices */
  uint64_t owners = (uint64_t)zp_group_size(&p->layout.mesh, l->nodes[first].dims);
  uint64_t each = (uint64_t)l->nodes[first].call.opt[1]; /* of a round, of a rank's experts */
  if (p->stream) return (ZpRounds){1, 1};
  return (ZpRounds){(rows + each - 1) / each, (rows * owners + each - 1) / each};
}

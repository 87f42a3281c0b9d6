/* Reverse mode on whole tensors: appends to each segment the nodes that turn cotangents of what leaves it
 * into cotangents of what enters it, and into gradients of its parameters. The derivative of each operation
 * is in grad_rules.c; here is which values need one.
 *
 * Needs: forward nodes only. Provides: a graph with backward nodes, which refer to any forward value of their
 * segment (what to save and what to recompute is the planner's business), and carry the region and place of
 * the forward node they stem from. Sharding comes later: these are ordinary operations on whole tensors.
 *
 * A value's cotangent is built if the value is *varied* (depends on a parameter) and *useful* (the loss or an
 * aux term depends on it). Between segments the same holds for carried positions, as a fixed point around
 * repeats. The positions with cotangents are one set per boundary, and the same set before, inside and after
 * a repeat:
 * dcarry k and dcarry_in k have the same k as the carried value, other positions have neither. Where an
 * iteration has nothing to say about a position of that set, it passes back zeros. */
#include "compiler/grad.h"
#include "compiler/compiler.h"

#include <string.h>

/* Facts about values, one flag per forward value, and about positions carried in and out. */
typedef struct {
  bool *varied, *useful;        /* by value */
  bool *varied_in, *useful_out; /* by position */
  bool *varied_out, *useful_in; /* by position */
  bool *active_in, *active_out; /* by position: has a cotangent */
} Facts;

static bool is_float(const ZgType *t) {
  return t->elem == ZG_REAL || t->elem == ZG_F32 || t->elem == ZG_BF16 || t->elem == ZG_F16;
}

/* ---- which values depend on parameters, and on which the loss depends ---------------------------------- */
static void find_varied(const ZgGraph *g, const ZgSegment *s, Facts *f) {
  for (uint32_t i = 0; i < s->nforward; i++) {
    const ZgNode *n = &s->nodes[i];
    bool v = (n->op == ZG_OP_PARAM && !g->params[n->opt[0]].state) ||
             (n->op == ZG_OP_CARRY && f->varied_in[n->opt[0]]);
    for (int k = 0; k < n->nin; k++) v |= f->varied[n->in[k]];
    if (n->op == ZG_OP_CARRY_OUT) f->varied_out[n->opt[0]] = v;
    for (int k = 0; k < n->nout; k++)
      f->varied[n->out + k] = v && !zg_op_info[n->op].flat && is_float(&s->values[n->out + k].type);
  }
}

static void find_useful(const ZgSegment *s, Facts *f) {
  for (uint32_t i = s->nforward; i-- > 0;) {
    const ZgNode *n = &s->nodes[i];
    bool u = n->op == ZG_OP_LOSS_NUM || n->op == ZG_OP_AUX ||
             (n->op == ZG_OP_CARRY_OUT && f->useful_out[n->opt[0]]);
    for (int k = 0; k < n->nout; k++) u |= f->useful[n->out + k] && is_float(&s->values[n->out + k].type);
    if (n->op == ZG_OP_CARRY) f->useful_in[n->opt[0]] = u;
    for (int k = 0; k < n->nin; k++) f->useful[n->in[k]] |= u && !zg_op_info[n->op].flat;
  }
}

/* into |= from; true if that changed anything. */
static bool merge(bool *into, const bool *from, uint32_t n) {
  bool changed = false;
  for (uint32_t k = 0; k < n; k++)
    if (from[k] && !into[k]) into[k] = changed = true;
  return changed;
}

static Facts *find_facts(const ZgGraph *g, ZbArena *tmp) {
  Facts *facts = ZB_NEWN(tmp, Facts, g->nsegments);
  for (uint32_t i = 0; i < g->nsegments; i++) {
    const ZgSegment *s = &g->segments[i];
    bool **by_value[] = {&facts[i].varied, &facts[i].useful};
    bool **by_in[] = {&facts[i].varied_in, &facts[i].useful_in, &facts[i].active_in};
    bool **by_out[] = {&facts[i].varied_out, &facts[i].useful_out, &facts[i].active_out};
    for (int k = 0; k < 2; k++) *by_value[k] = ZB_NEWN(tmp, bool, s->nvalues + 1);
    for (int k = 0; k < 3; k++) *by_in[k] = ZB_NEWN(tmp, bool, s->ncarry_in + 1);
    for (int k = 0; k < 3; k++) *by_out[k] = ZB_NEWN(tmp, bool, s->ncarry_out + 1);
  }
  for (uint32_t i = 0; i < g->nsegments; i++) {
    const ZgSegment *s = &g->segments[i];
    Facts *f = &facts[i];
    if (i) merge(f->varied_in, f[-1].varied_out, s->ncarry_in);
    do find_varied(g, s, f);
    while (s->repeat && merge(f->varied_in, f->varied_out, s->ncarry_in));
  }
  for (uint32_t i = g->nsegments; i-- > 0;) {
    const ZgSegment *s = &g->segments[i];
    Facts *f = &facts[i];
    if (i + 1 < g->nsegments) merge(f->useful_out, f[1].useful_in, s->ncarry_out);
    do find_useful(s, f);
    while (s->repeat && merge(f->useful_out, f->useful_in, s->ncarry_out));
  }
  return facts;
}

/* The positions with cotangents: a fixed point, since a repeat joins the boundaries on both of its sides. */
static void find_active(const ZgGraph *g, Facts *facts) {
  for (uint32_t i = 0; i < g->nsegments; i++) {
    Facts *f = &facts[i];
    for (uint32_t k = 0; k < g->segments[i].ncarry_in; k++)
      f->active_in[k] = f->varied_in[k] && f->useful_in[k];
    for (uint32_t k = 0; k < g->segments[i].ncarry_out; k++)
      f->active_out[k] = f->varied_out[k] && f->useful_out[k];
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t i = 0; i < g->nsegments; i++) {
      const ZgSegment *s = &g->segments[i];
      Facts *f = &facts[i];
      if (s->repeat) {
        changed |= merge(f->active_in, f->active_out, s->ncarry_in);
        changed |= merge(f->active_out, f->active_in, s->ncarry_in);
      }
      if (i + 1 == g->nsegments) continue;
      changed |= merge(f->active_out, f[1].active_in, s->ncarry_out);
      changed |= merge(f[1].active_in, f->active_out, s->ncarry_out);
    }
  }
}

/* ---- nodes and cotangents ------------------------------------------------------------------------------ */
uint32_t zc_grad_node(ZcGrad *b, ZgNode n, int nin, const uint32_t *in, const ZgType *hint) {
  n.nin = (uint8_t)nin;
  for (int i = 0; i < nin; i++) n.in[i] = in[i];
  n.region = b->region;
  n.loc = b->loc;
  return zg_node_add(b->g, b->s, n, hint);
}

uint32_t zc_grad_fit(ZcGrad *b, uint32_t v, const ZgType *t) {
  ZgType have = b->s->values[v].type;
  ZgNode sum = {.op = ZG_OP_SUM};
  for (int i = 0; i < have.naxes; i++)
    if (!zg_type_has(t, have.axis[i])) sum.ax[sum.nax++] = have.axis[i];
  if (sum.nax) v = zc_grad_node(b, sum, 1, &v, NULL);
  have = b->s->values[v].type;
  if (have.elem != t->elem) {
    have.elem = t->elem;
    v = zc_grad_node(b, (ZgNode){.op = ZG_OP_CAST}, 1, &v, &have);
  }
  return have.naxes == t->naxes ? v : zc_grad_node(b, (ZgNode){.op = ZG_OP_BROADCAST}, 1, &v, t);
}

uint32_t zc_grad_fill(ZcGrad *b, double num, const ZgType *t) {
  ZgType scalar = zg_type(t->elem, NULL, 0);
  uint32_t v = zc_grad_node(b, (ZgNode){.op = ZG_OP_FILL, .num = {num}}, 0, NULL, &scalar);
  return t->naxes ? zc_grad_node(b, (ZgNode){.op = ZG_OP_BROADCAST}, 1, &v, t) : v;
}

void zc_grad_give(ZcGrad *b, uint32_t of, uint32_t v) {
  if (!b->varied[of]) return;
  ZgType t = b->s->values[of].type;
  v = zc_grad_fit(b, v, &t);
  if (b->cot[of] != ZG_NONE)
    v = zc_grad_node(b, (ZgNode){.op = ZG_OP_ADD}, 2, (uint32_t[]){b->cot[of], v}, NULL);
  b->cot[of] = v;
}

/* ---- one segment --------------------------------------------------------------------------------------- */
typedef struct {
  ZcGrad b;
  const Facts *f;
  uint32_t *first; /* by parameter: its first value in the segment, which collects the cotangents of all */
  uint32_t *left;  /* by value: how many uses are still to be differentiated */
  uint32_t seed[1 + ZG_MAX_LOSSES]; /* of aux terms; of each loss */
} Pass;

static void at(Pass *p, const ZgNode *n) {
  p->b.region = n->region;
  p->b.loc = n->loc;
}

/* The cotangent of what this sink takes out. */
static uint32_t seed(Pass *p, const ZgNode *sink) {
  bool aux = sink->op == ZG_OP_AUX;
  uint32_t *s = &p->seed[aux ? 0 : 1 + sink->opt[0]];
  ZgNode n = {.op = ZG_OP_SEED, .opt = {aux, aux ? 0 : sink->opt[0]}};
  if (*s == ZG_NONE) *s = zc_grad_node(&p->b, n, 0, NULL, NULL);
  return *s;
}

/* A value whose uses are all differentiated: if it came from outside, its cotangent can go there. As
 * early as that, rather than when its own node is reached, because parameters may be listed at the
 * top of a segment. */
static void finish_gradient(Pass *p, uint32_t v) {
  ZcGrad *b = &p->b;
  ZgNode n = b->s->nodes[b->s->values[v].node];
  int64_t k = n.opt[0];
  if (n.op == ZG_OP_PARAM && b->cot[v] != ZG_NONE) {
    at(p, &n);
    zc_grad_node(b, (ZgNode){.op = ZG_OP_PARAM_GRAD, .opt = {k}}, 1, &b->cot[v], NULL);
  } else if (n.op == ZG_OP_CARRY && p->f->active_in[k]) {
    at(p, &n);
    uint32_t g = b->cot[v];
    if (g == ZG_NONE) g = zc_grad_fill(b, 0, &b->s->carry_in[k]);
    zc_grad_node(b, (ZgNode){.op = ZG_OP_DCARRY_IN, .opt = {k}}, 1, &g, NULL);
    p->f->active_in[k] = false; /* said */
  }
}

/* All uses of a parameter count as uses of its first value. */
static uint32_t representative(const Pass *p, uint32_t v) {
  const ZgNode *n = &p->b.s->nodes[p->b.s->values[v].node];
  return n->op == ZG_OP_PARAM ? p->first[n->opt[0]] : v;
}

static void count_uses(Pass *p) {
  const ZgSegment *s = p->b.s;
  for (uint32_t i = 0; i < s->nforward; i++) {
    ZgNode *n = &s->nodes[i];
    if (n->op == ZG_OP_PARAM && p->first[n->opt[0]] == ZG_NONE) p->first[n->opt[0]] = n->out;
    for (int k = 0; k < n->nin; k++) p->left[representative(p, n->in[k])]++;
  }
}

/* What a state is updated by is added up as gradients are. */
static void measure(Pass *p, const ZgNode *n) {
  ZcGrad *b = &p->b;
  ZgType t = b->g->params[n->opt[0]].type, own = b->s->values[n->in[0]].type;
  if (n->opt[1] == ZG_MEASURE_NONE) return;
  t.elem = own.elem = ZG_F32;
  uint32_t v = zc_grad_fit(b, n->in[0], &own);
  if (n->opt[1] == ZG_MEASURE_MEAN) {
    uint32_t *share = &p->seed[0];
    if (*share == ZG_NONE) *share = zc_grad_node(b, (ZgNode){.op = ZG_OP_SEED, .opt = {1}}, 0, NULL, NULL);
    v = zc_grad_node(b, (ZgNode){.op = ZG_OP_MUL}, 2, (uint32_t[]){v, *share}, NULL);
  }
  v = zc_grad_fit(b, v, &t);
  zc_grad_node(b, (ZgNode){.op = ZG_OP_PARAM_GRAD, .opt = {n->opt[0]}}, 1, &v, NULL);
}

/* Sinks are where cotangents begin; other nodes pass them on by their rule. */
static bool differentiate_node(Pass *p, const ZgNode *n) {
  ZcGrad *b = &p->b;
  bool reached = false;
  for (int k = 0; k < n->nout; k++) reached |= b->cot[n->out + k] != ZG_NONE;
  switch (n->op) {
  case ZG_OP_LOSS_NUM:
  case ZG_OP_AUX:
    if (b->varied[n->in[0]]) zc_grad_give(b, n->in[0], seed(p, n));
    return true;
  case ZG_OP_CARRY_OUT:
    if (p->f->active_out[n->opt[0]])
      zc_grad_give(b, n->in[0],
                   zc_grad_node(b, (ZgNode){.op = ZG_OP_DCARRY, .opt = {n->opt[0]}}, 0, NULL, NULL));
    return true;
  case ZG_OP_MEASURE: measure(p, n); return true;
  case ZG_OP_PARAM:
  case ZG_OP_CARRY: return true;
  default: return !reached || zc_grad_rule(b, n);
  }
}

static bool differentiate_segment(Pass *p) {
  ZgSegment *s = p->b.s;
  count_uses(p);
  s->backward = true;
  for (uint32_t i = s->nforward; i-- > 0;) {
    ZgNode n = s->nodes[i]; /* a copy: the array grows meanwhile */
    at(p, &n);
    if (!differentiate_node(p, &n)) return false;
    for (int k = 0; k < n.nin; k++) {
      uint32_t v = representative(p, n.in[k]);
      if (n.in[k] != v && p->b.cot[n.in[k]] != ZG_NONE) {
        zc_grad_give(&p->b, v, p->b.cot[n.in[k]]);
        p->b.cot[n.in[k]] = ZG_NONE;
      }
      if (--p->left[v] == 0) finish_gradient(p, v);
    }
  }
  p->b.region = s->region;
  p->b.loc = 0;
  for (uint32_t k = 0; k < s->ncarry_in; k++) { /* positions that nothing here reads */
    if (!p->f->active_in[k]) continue;
    uint32_t zero = zc_grad_fill(&p->b, 0, &s->carry_in[k]);
    zc_grad_node(&p->b, (ZgNode){.op = ZG_OP_DCARRY_IN, .opt = {(int64_t)k}}, 1, &zero, NULL);
  }
  return true;
}

static uint32_t *nones(ZbArena *a, uint32_t n) {
  uint32_t *p = ZB_NEWN(a, uint32_t, n + 1);
  memset(p, 0xff, (n + 1) * sizeof *p);
  return p;
}

bool zc_differentiate(ZgGraph *g, ZbErr *err) {
  ZbArena *tmp = zb_arena_new();
  for (uint32_t i = 0; i < g->nsegments; i++) ZB_ASSERT(g->segments[i].nforward == g->segments[i].nnodes);
  Facts *facts = find_facts(g, tmp);
  find_active(g, facts);
  bool ok = true;
  uint32_t *first = nones(tmp, g->nparams); /* one table for all segments: few of many have a parameter */
  for (uint32_t i = g->nsegments; ok && i-- > 0;) {
    ZgSegment *s = &g->segments[i];
    Pass p = {.b = {.g = g, .s = s, .varied = facts[i].varied, .cot = nones(tmp, s->nvalues), .err = err},
              .f = &facts[i],
              .first = first,
              .left = ZB_NEWN(tmp, uint32_t, s->nvalues + 1)};
    memset(p.seed, 0xff, sizeof p.seed); /* ZG_NONE */
    ok = differentiate_segment(&p);
    for (uint32_t k = 0; k < s->nforward; k++)
      if (s->nodes[k].op == ZG_OP_PARAM) first[s->nodes[k].opt[0]] = ZG_NONE;
  }
  zb_arena_free(tmp);
  return ok;
}

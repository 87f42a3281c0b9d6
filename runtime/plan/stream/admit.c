/* Makes the graph of a sequence's own values: the model's nodes, as they are, from what is kept back. */
#include "runtime/plan/stream/derive.h"

#include <string.h>

typedef struct {
  ZpStream *to;
  ZbArena *a;
  bool **need;  /* by segment and value */
  bool **carry; /* by segment and position carried in */
} Admit;

/* Marks what node n takes; `leaves`: what the segment carries out. */
static void mark(Admit *x, uint32_t k, const ZgNode *n, const bool *leaves) {
  bool live = n->op == ZG_OP_CARRY_OUT && leaves && leaves[n->opt[0]];
  for (uint32_t i = 0; i < n->nout; i++) live |= x->need[k][n->out + i];
  for (int i = 0; live && i < n->nin; i++) x->need[k][n->in[i]] = true;
  if (live && n->op == ZG_OP_CARRY) x->carry[k][n->opt[0]] = true;
}

static uint32_t count(const bool *of, uint32_t n) {
  uint32_t c = 0;
  for (uint32_t i = 0; i < n; i++) c += of[i];
  return c;
}

static const bool *leaves_of(const Admit *x, uint32_t k) {
  return k + 1 < x->to->model->nsegments ? x->carry[k + 1] : NULL;
}

/* Adds what is carried at one boundary to what is at another; says whether that is more. */
static bool carry_too(bool *to, const bool *from, uint32_t n) {
  uint32_t before = count(to, n);
  for (uint32_t i = 0; i < n; i++) to[i] |= from[i];
  return count(to, n) > before;
}

/* From the last segment to the first; a repeat carries the same before, around and behind it. */
static void mark_all(Admit *x) {
  const ZgGraph *m = x->to->model;
  bool more;
  for (uint32_t k = 0; k < m->nsegments; k++) {
    x->need[k] = ZB_NEWN(x->a, bool, m->segments[k].nvalues + 1);
    x->carry[k] = ZB_NEWN(x->a, bool, m->segments[k].ncarry_in + 1);
  }
  for (uint32_t i = 0; i < x->to->ncaches; i++) {
    const ZpCache *c = &x->to->caches[i];
    if (c->kind == ZP_CACHE_OWN) x->need[c->segment][c->value] = true;
  }
  do {
    more = false;
    for (uint32_t k = m->nsegments; k-- > 0;) {
      const ZgSegment *s = &m->segments[k];
      if (s->repeat) carry_too(x->carry[k], x->carry[k + 1], s->ncarry_in);
      for (uint32_t i = s->nforward; i-- > 0;) mark(x, k, &s->nodes[i], leaves_of(x, k));
      if (s->repeat) more |= carry_too(x->carry[k + 1], x->carry[k], s->ncarry_in);
    }
  } while (more);
}

static ZgType *types_of(const Admit *x, const ZgType *of, const bool *which, uint32_t n, uint32_t *count) {
  ZgType *types = NULL;
  *count = 0;
  for (uint32_t i = 0; which && i < n; i++)
    if (which[i]) ZB_PUSH(x->a, types, *count, of[i]);
  return types;
}

/* Copies a node; a coin is its mean. `now` has the values' numbers here, by those of the model. */
static void copy_node(Admit *x, ZgGraph *g, uint32_t k, const ZgNode *n, uint32_t *now) {
  const ZgSegment *from = &x->to->model->segments[k];
  ZgNode c = *n;
  ZgType hint = n->nout ? from->values[n->out].type : (ZgType){0};
  for (int i = 0; i < n->nin; i++) c.in[i] = now[n->in[i]];
  if (n->op == ZG_OP_CARRY) c.opt[0] = count(x->carry[k], (uint32_t)n->opt[0]);
  if (n->op == ZG_OP_CARRY_OUT) c.opt[0] = count(leaves_of(x, k), (uint32_t)n->opt[0]);
  if (n->op == ZG_OP_RANDOM) {
    ZgType one = zg_type((ZgElem)hint.elem, NULL, 0);
    ZgNode mean = {.op = ZG_OP_FILL, .num = {n->num[0]}, .region = n->region, .loc = n->loc};
    uint32_t p = zg_node_add(g, &g->segments[k], mean, &one);
    c = (ZgNode){.op = ZG_OP_BROADCAST, .nin = 1, .in = {p}, .region = n->region, .loc = n->loc};
  }
  uint32_t out = zg_node_add(g, &g->segments[k], c, n->nout ? &hint : NULL);
  for (uint32_t i = 0; i < n->nout; i++) now[n->out + i] = out + i;
}

static void keep(Admit *x, ZgSegment *s, uint32_t cache, uint32_t value) {
  ZgNode n = {.op = ZG_OP_KEEP, .nin = 1, .in = {value}, .opt = {cache}, .out = s->nvalues};
  n.region = s->region;
  n.loc = x->to->caches[cache].loc;
  ZB_PUSH(x->a, s->nodes, s->nnodes, n);
  s->nforward = s->nnodes;
}

static void copy_segment(Admit *x, ZgGraph *g, uint32_t k) {
  const ZgSegment *s = &x->to->model->segments[k];
  ZgSegment *out = &g->segments[k];
  const bool *leaves = leaves_of(x, k);
  uint32_t *now = ZB_NEWN(x->a, uint32_t, s->nvalues + 1);
  *out = (ZgSegment){.label = s->label, .region = s->region, .trip = s->trip, .repeat = s->repeat};
  out->carry_in = types_of(x, s->carry_in, x->carry[k], s->ncarry_in, &out->ncarry_in);
  out->carry_out = types_of(x, s->carry_out, leaves, s->ncarry_out, &out->ncarry_out);
  for (uint32_t i = 0; i < s->nforward; i++) {
    const ZgNode *n = &s->nodes[i];
    bool live = n->op == ZG_OP_CARRY_OUT && leaves && leaves[n->opt[0]];
    for (uint32_t j = 0; j < n->nout; j++) live |= x->need[k][n->out + j];
    if (live) copy_node(x, g, k, n, now);
  }
  for (uint32_t i = 0; i < x->to->ncaches; i++) {
    const ZpCache *c = &x->to->caches[i];
    if (c->kind == ZP_CACHE_OWN && c->segment == k) keep(x, out, i, now[c->value]);
  }
}

/* Finds the one text of which they are, in words of the output's. */
static void find_source(ZpStream *to) {
  const ZgGraph *m = to->model;
  const ZgType *tokens = &m->inputs[to->along.tokens].type;
  bool others = false;
  to->source = ZG_NONE;
  for (uint32_t k = 0; k < m->nsegments; k++)
    for (uint32_t i = 0; i < to->admit->segments[k].nnodes; i++) {
      const ZgNode *n = &to->admit->segments[k].nodes[i];
      if (n->op != ZG_OP_INPUT || n->opt[0] == to->source) continue;
      const ZgType *t = &m->inputs[n->opt[0]].type;
      bool text =
          t->elem == ZG_INDEX && t->of == tokens->of && t->naxes == 2 && zg_type_has(t, to->along.batch);
      others |= !text || to->source != ZG_NONE;
      to->source = (uint32_t)n->opt[0];
      if (text) to->length = t->axis[t->axis[0] == to->along.batch];
    }
  if (others) to->source = ZG_NONE;
}

void zp_derive_admit(ZpStream *to, ZbArena *a) {
  const ZgGraph *m = to->model;
  Admit x = {to, a, ZB_NEWN(a, bool *, m->nsegments), ZB_NEWN(a, bool *, m->nsegments)};
  bool any = false;
  for (uint32_t i = 0; i < to->ncaches; i++) any |= to->caches[i].kind == ZP_CACHE_OWN;
  if (!any) return;
  ZgGraph *g = to->admit = ZB_NEW(a, ZgGraph);
  *g = *m;
  g->arena = a;
  g->outputs = NULL, g->noutputs = 0;
  g->losses = NULL, g->nlosses = 0;
  g->segments = ZB_NEWN(a, ZgSegment, m->nsegments);
  mark_all(&x);
  for (uint32_t k = 0; k < m->nsegments; k++) copy_segment(&x, g, k);
  find_source(to);
}

const ZgGraph *zp_admission_graph(const ZpStream *s, ZbArena *a) {
  ZgGraph *g = ZB_NEW(a, ZgGraph);
  *g = *s->admit;
  g->arena = a;
  g->inputs = &s->model->inputs[s->source], g->ninputs = 1;
  g->segments = ZB_NEWN(a, ZgSegment, g->nsegments);
  memcpy(g->segments, s->admit->segments, g->nsegments * sizeof *g->segments);
  for (uint32_t k = 0; k < g->nsegments; k++) {
    ZgSegment *to = &g->segments[k];
    to->nodes = ZB_NEWN(a, ZgNode, to->nnodes + 1);
    memcpy(to->nodes, s->admit->segments[k].nodes, to->nnodes * sizeof *to->nodes);
    for (uint32_t i = 0; i < to->nnodes; i++)
      if (to->nodes[i].op == ZG_OP_INPUT) to->nodes[i].opt[0] = 0; /* the source, its only input */
  }
  for (uint32_t c = 0; c < s->ncaches; c++) {
    const ZpCache *of = &s->caches[c];
    if (of->kind != ZP_CACHE_OWN) continue;
    ZgIo io = {.name = zb_printf(a, "own.%u", c),
               .type = s->model->segments[of->segment].values[of->value].type};
    for (uint32_t i = 0; i < g->segments[of->segment].nnodes; i++) {
      ZgNode *n = &g->segments[of->segment].nodes[i];
      if (n->op == ZG_OP_KEEP && n->opt[0] == c) n->op = ZG_OP_OUTPUT, n->opt[0] = g->noutputs;
    }
    ZB_PUSH(a, g->outputs, g->noutputs, io);
  }
  return g;
}

/* Updates of states: `update bias = bias + 0.001 * sign(1 / experts - load)`.
 *
 * What stands on the right is computed in two places. Up to where it is a mean or a sum over `batch` it is
 * the state's measure: every micro-batch has its own, on every rank, and they are added up as gradients are.
 * The rest is elementwise in the state and that, and happens once, at the end of the step. So the measure is
 * the largest part that is a mean or a sum and not elementwise in the state (on which it may depend: what
 * bias chooses is counted):
 *
 *   load = mean[batch, seq](...)             the mean over all samples of the step
 *   bias + 0.001 * sign(1 / experts - load)  %2 = 1 / experts - load is the measure; %3 = sign %1; ...
 *
 * What is made of parameters is the same for all samples, so it is its own mean:
 *
 *   0.99 * slow + 0.01 * w                   0.01 * w is the measure; %2 = 0.99; %3 = %2 * %0; %4 = %3 + %1
 *
 * Which values are means is known when all of the model is (sep.c); until then a sink holds what was written. */
#include "compiler/elab.h"

#include <string.h>

void update_place(Elab *e, const ZlStmt *s) {
  Bind *b = name_find(e, s->update.name.s);
  Val v = expr_eval(e, s->update.value);
  v = val_tensor(e, s->update.value->span, v, ZG_F32);
  if (!b || b->param == ZG_NONE || !e->g->params[b->param].state) {
    ZlDiag *d = complain(e, ZL_Z0202, s->update.name.span, "`%s` is not a state", s->update.name.s);
    if (b) zl_also(d, b->name.span, "`%s` is made here", s->update.name.s);
    zl_help(d, "declare it: `state %s[...] = 0`", s->update.name.s);
    return;
  }
  const ZgParam *p = &e->g->params[b->param];
  if (e->updated[b->param].file >= 0) {
    zl_also(complain(e, ZL_Z0202, s->span, "a second update of `%s`", s->update.name.s), e->updated[b->param],
            "the first");
    return;
  }
  e->updated[b->param] = s->span;
  if (p->segment != (e->in_repeat ? e->seg : ZG_NONE)) {
    ZlDiag *d =
        complain(e, ZL_Z0202, s->span, "`%s` is a state of outside of this `repeat`", s->update.name.s);
    zl_also(d, b->name.span, "declared here");
    zl_help(d, "declare it inside: every iteration has one");
    return;
  }
  if (v.kind == VAL_POISON) return;
  if (!is_float(&v.type) || !zg_type_contains(&p->type, &v.type)) {
    ZlDiag *d = complain(e, ZL_Z0202, s->update.value->span, "`%s` cannot become this", s->update.name.s);
    zl_label(d, "%s", type_text(e, &v.type));
    zl_also(d, b->name.span, "%s", type_text(e, &p->type));
    return;
  }
  ZgNode n = {.op = ZG_OP_MEASURE, .nin = 1, .opt = {b->param, ZG_MEASURE_NONE}};
  ZgUpdate *u = ZB_NEW(e->g->arena, ZgUpdate); /* to be filled */
  u->steps = ZB_NEWN(e->g->arena, ZgUpdateStep, ZG_MAX_UPDATE);
  e->g->params[b->param].update = u;
  place_node(e, s->span, n, &v, NULL);
}

/* ---- splitting ----------------------------------------------------------------------------------------- */
/* Of a segment, by value. It is made once, since a segment may have thousands of updates of few values each. */
typedef struct {
  uint32_t *root; /* what it is up to casts, stops and broadcasts, but for those of an index */
  uint32_t *own;  /* the state in which it is elementwise, NO_STATE, or SEVERAL_STATES */
  uint32_t *seen; /* by which search, from 1 */
  uint32_t *stack;
  uint32_t searches;
} Table;
#define NO_STATE ZG_NONE
#define SEVERAL_STATES (ZG_NONE - 1)

typedef struct {
  Elab *e;
  const ZgSegment *s;
  Table *t;
  ZgNode *sink;
  ZgUpdate *u;
  UpdateKind (*kind)(void *arg, uint32_t value);
  void *arg;
  uint32_t made[ZG_MAX_UPDATE]; /* by step: the value */
  uint32_t begun;               /* steps whose operands are being made */
  uint32_t measure;             /* the value, or ZG_NONE */
  bool failed;
} Split;
enum { STATE, MEASURE, FIRST };

static const ZgNode *maker(const ZgSegment *s, uint32_t v) { return &s->nodes[s->values[v].node]; }

static bool goes_through(ZgOp op) { return op == ZG_OP_CAST || op == ZG_OP_BROADCAST || op == ZG_OP_STOP; }

static Table make_table(Elab *e, const ZgSegment *s) {
  uint32_t n = s->nvalues + 1;
  Table t = {.root = ZB_NEWN(e->arena, uint32_t, n),
             .own = ZB_NEWN(e->arena, uint32_t, n),
             .seen = ZB_NEWN(e->arena, uint32_t, n),
             .stack = ZB_NEWN(e->arena, uint32_t, n)};
  for (uint32_t v = 0; v < s->nvalues; v++) {
    const ZgNode *m = maker(s, v);
    bool index = s->values[v].type.elem == ZG_INDEX;
    t.root[v] = goes_through(m->op) && !index ? t.root[m->in[0]] : v;
    t.own[v] = m->op == ZG_OP_PARAM && e->g->params[m->opt[0]].state ? (uint32_t)m->opt[0] : NO_STATE;
    for (int k = 0; k < m->nin && zg_op_info[m->op].kind == ZG_EW; k++) {
      uint32_t o = t.own[m->in[k]];
      if (t.own[v] == NO_STATE) t.own[v] = o;
      else if (o != NO_STATE && o != t.own[v]) t.own[v] = SEVERAL_STATES;
    }
  }
  return t;
}

/* Is `v` elementwise in the state? Among several it is searched, through values of several alone. */
static bool is_own(Split *x, uint32_t v) {
  Table *t = x->t;
  uint32_t state = (uint32_t)x->sink->opt[0], search = ++t->searches, n = 0;
  t->stack[n++] = v;
  while (n) {
    uint32_t w = t->stack[--n];
    if (t->own[w] == state) return true;
    if (t->own[w] != SEVERAL_STATES) continue;
    const ZgNode *m = maker(x->s, w);
    for (int k = 0; k < m->nin; k++)
      if (t->seen[m->in[k]] != search) t->seen[m->in[k]] = search, t->stack[n++] = m->in[k];
  }
  return false;
}

static ZlDiag *refuse(Split *x, uint32_t v, const char *what) {
  const ZgNode *n = maker(x->s, v);
  ZlSpan at = place_span(x->e, n->loc), whole = place_span(x->e, x->sink->loc);
  x->failed = true;
  ZlDiag *d = zl_report(x->e->diags, ZL_Z0706, at.file < 0 ? whole : at, "%s", what);
  zl_also(d, whole, "in this update");
  return d;
}

/* Is `v` made of parameters or other states, and not of the state itself? Then it is the same for all samples, and so its own mean. */
static bool is_of_parameters(Split *x, uint32_t v) {
  Table *t = x->t;
  uint32_t search = ++t->searches, n = 0;
  bool found = false;
  if (x->kind(x->arg, v) != UPDATE_CONST) return false;
  t->stack[n++] = v;
  t->seen[v] = search;
  while (n) {
    const ZgNode *m = maker(x->s, t->stack[--n]);
    if (m->op == ZG_OP_PARAM && m->opt[0] == x->sink->opt[0]) return false;
    found |= m->op == ZG_OP_PARAM || m->op == ZG_OP_CARRY;
    for (int k = 0; k < m->nin; k++)
      if (t->seen[m->in[k]] != search) t->seen[m->in[k]] = search, t->stack[n++] = m->in[k];
  }
  return found;
}

/* Is `v` the state's measure? Reports a second one. */
static bool is_measure(Split *x, uint32_t v) {
  UpdateKind kind = x->kind(x->arg, v);
  bool over_samples = (kind == UPDATE_MEAN || kind == UPDATE_SUM) && !is_own(x, v);
  if (!over_samples && !is_of_parameters(x, v)) return false;
  if (x->measure != ZG_NONE && x->measure != v)
    zl_help(refuse(x, v, "a second mean, sum over `batch` or value of parameters: an update has one"),
            "another state can keep this one; or make one expression of both");
  x->measure = v;
  x->sink->opt[1] = kind == UPDATE_SUM ? ZG_MEASURE_SUM : ZG_MEASURE_MEAN;
  return true;
}

/* Can the root `v` be a step of the update? Reports why not. */
static bool is_step(Split *x, uint32_t v) {
  const ZgNode *n = maker(x->s, v);
  bool index = goes_through(n->op); /* others are no roots */
  if (zg_op_info[n->op].kind != ZG_EW || n->op == ZG_OP_AXSIZE || n->op == ZG_OP_KNOWN || index) {
    ZlDiag *d = refuse(x, v,
                       is_own(x, v) ? "an update is elementwise in its state"
                       : x->kind(x->arg, v) == UPDATE_OTHER
                           ? "an update takes means and sums over all samples of a step; this is none"
                           : "an update is elementwise in what it takes");
    zl_note(d,
            "it is computed once, at the end of the step, from the state and one mean or sum over `batch`");
  } else if (x->u->n + x->begun == ZG_MAX_UPDATE)
    zl_help(refuse(x, v, "an update of more operations than 32"), "make it of fewer");
  return !x->failed;
}

/* The register of a value at the end of the step. Calls are no deeper than an update has operations. */
static uint32_t reg_of(Split *x, uint32_t v) {
  if (x->failed) return STATE;
  if (is_measure(x, v)) return MEASURE;
  v = x->t->root[v]; /* of the same kind: the way to it broadcasts over no `batch` */
  const ZgNode *n = maker(x->s, v);
  if (n->op == ZG_OP_PARAM && n->opt[0] == x->sink->opt[0]) return STATE;
  for (uint32_t i = 0; i < x->u->n; i++)
    if (x->made[i] == v) return FIRST + i;
  if (!is_step(x, v)) return STATE;
  uint16_t reg[3] = {0};
  x->begun++;
  for (int k = 0; k < n->nin; k++) reg[k] = (uint16_t)reg_of(x, n->in[k]);
  x->begun--;
  x->made[x->u->n] = v;
  x->u->steps[x->u->n++] = (ZgUpdateStep){n->op, reg[0], reg[1], reg[2], n->op == ZG_OP_FILL ? n->num[0] : 0};
  return FIRST + x->u->n - 1;
}

static void split(Split *x) {
  x->u->steps = ZB_NEWN(x->e->g->arena, ZgUpdateStep, ZG_MAX_UPDATE);
  uint32_t last = reg_of(x, x->sink->in[0]);
  if (!x->failed && last < FIRST) /* the state itself, or its measure */
    x->u->steps[x->u->n++] = (ZgUpdateStep){.op = ZG_OP_STOP, .a = (uint16_t)last};
  if (x->measure != ZG_NONE) x->sink->in[0] = x->measure;
  x->e->g->params[x->sink->opt[0]].update = x->u;
}

void update_split(Elab *e, uint32_t seg, UpdateKind (*kind)(void *arg, uint32_t value), void *arg) {
  const ZgSegment *s = &e->g->segments[seg];
  Table t = {0};
  for (uint32_t i = 0; i < s->nnodes; i++) {
    if (s->nodes[i].op != ZG_OP_MEASURE) continue;
    if (!t.root) t = make_table(e, s);
    split(&(Split){.e = e,
                   .s = s,
                   .t = &t,
                   .sink = &s->nodes[i],
                   .u = ZB_NEW(e->g->arena, ZgUpdate),
                   .kind = kind,
                   .arg = arg,
                   .measure = ZG_NONE});
  }
}

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
 * Which values are means is known when all of the model is (sep.c); until then a sink holds what was written. */
#include "compiler/elab.h"

#include <string.h>

void update_place(Elab *e, const ZlStmt *s) {
  Bind *b = name_find(e, s->update.name.s);
  Val v = expr_eval(e, s->update.value);
  v = val_tensor(e, s->update.value->span, v, ZG_F32);
  if (!b || b->param == ZG_NONE || !e->g->params[b->param].state) {
    ZlDiag *d = complain(e, ZL_Z0202, s->update.name.span, "`%s` is no state", s->update.name.s);
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
typedef struct {
  Elab *e;
  const ZgSegment *s;
  ZgNode *sink;
  ZgUpdate *u;
  UpdateKind (*kind)(void *arg, uint32_t value);
  void *arg;
  bool *own;        /* by value: elementwise in the state */
  uint32_t *reg;    /* by value: 1 + its register, 0: none yet */
  uint32_t measure; /* the value, or ZG_NONE */
  bool failed;
} Split;
enum { STATE, MEASURE, FIRST };

static void find_own(Split *x) {
  for (uint32_t i = 0; i < x->s->nnodes; i++) {
    const ZgNode *n = &x->s->nodes[i];
    bool own = n->op == ZG_OP_PARAM && n->opt[0] == x->sink->opt[0];
    for (int k = 0; k < n->nin && zg_op_info[n->op].kind == ZG_EW; k++) own |= x->own[n->in[k]];
    for (int k = 0; k < n->nout; k++) x->own[n->out + (uint32_t)k] = own;
  }
}

static ZlDiag *refuse(Split *x, uint32_t v, const char *what) {
  const ZgNode *n = &x->s->nodes[x->s->values[v].node];
  ZlSpan at = place_span(x->e, n->loc), whole = place_span(x->e, x->sink->loc);
  x->failed = true;
  ZlDiag *d = zl_report(x->e->diags, ZL_Z0706, at.file < 0 ? whole : at, "%s", what);
  zl_also(d, whole, "in this update");
  return d;
}

static uint32_t step_of(Split *x, uint32_t v, ZgUpdateStep s) {
  if (x->u->n == ZG_MAX_UPDATE) {
    if (!x->failed) zl_help(refuse(x, v, "an update of more operations than 32"), "make it of fewer");
    return STATE;
  }
  x->u->steps[x->u->n++] = s;
  return FIRST + x->u->n - 1;
}

/* The register of a value at the end of the step. */
static uint32_t reg_of(Split *x, uint32_t v) {
  const ZgNode *n = &x->s->nodes[x->s->values[v].node];
  UpdateKind kind = x->kind(x->arg, v);
  if (x->reg[v]) return x->reg[v] - 1;
  if (x->failed) return STATE;
  if (n->op == ZG_OP_PARAM && x->own[v]) return STATE;
  bool through = n->op == ZG_OP_CAST || n->op == ZG_OP_BROADCAST || n->op == ZG_OP_STOP;
  bool counted = !x->own[v] && (kind == UPDATE_MEAN || kind == UPDATE_SUM);
  if (counted && x->measure != ZG_NONE && x->measure != v) {
    zl_help(refuse(x, v, "a second mean or sum over `batch`: an update has one"),
            "another state can keep this one; or make one expression of both");
    return STATE;
  }
  uint32_t reg[3] = {0};
  if (counted) {
    x->measure = v;
    x->sink->opt[1] = kind == UPDATE_SUM ? ZG_MEASURE_SUM : ZG_MEASURE_MEAN;
    return MEASURE;
  }
  const ZgOpInfo *o = &zg_op_info[n->op];
  if (o->kind != ZG_EW || n->op == ZG_OP_AXSIZE || n->op == ZG_OP_KNOWN ||
      (through && x->s->values[v].type.elem == ZG_INDEX)) {
    ZlDiag *d = refuse(x, v,
                       x->own[v] ? "an update is elementwise in its state"
                       : kind == UPDATE_OTHER
                           ? "an update takes means and sums over all samples of a step; this is none"
                           : "an update is elementwise in what it takes");
    zl_note(d,
            "it is computed once, at the end of the step, from the state and one mean or sum over `batch`");
    return STATE;
  }
  for (int k = 0; k < n->nin; k++) reg[k] = reg_of(x, n->in[k]);
  uint32_t r = through ? reg[0]
                       : step_of(x, v,
                                 (ZgUpdateStep){n->op, (uint16_t)reg[0], (uint16_t)reg[1], (uint16_t)reg[2],
                                                n->op == ZG_OP_FILL ? n->num[0] : 0});
  x->reg[v] = 1 + r;
  return r;
}

void update_split(Elab *e, uint32_t seg, ZgNode *n, UpdateKind (*kind)(void *arg, uint32_t value),
                  void *arg) {
  const ZgSegment *s = &e->g->segments[seg];
  Split x = {.e = e,
             .s = s,
             .sink = n,
             .u = ZB_NEW(e->g->arena, ZgUpdate),
             .kind = kind,
             .arg = arg,
             .own = ZB_NEWN(e->arena, bool, s->nvalues + 1),
             .reg = ZB_NEWN(e->arena, uint32_t, s->nvalues + 1),
             .measure = ZG_NONE};
  x.u->steps = ZB_NEWN(e->g->arena, ZgUpdateStep, ZG_MAX_UPDATE);
  find_own(&x);
  uint32_t last = reg_of(&x, n->in[0]);
  if (!x.failed && last < FIRST) /* the state itself, or its measure */
    step_of(&x, n->in[0], (ZgUpdateStep){.op = ZG_OP_STOP, .a = (uint16_t)last});
  if (x.measure != ZG_NONE) n->in[0] = x.measure;
  e->g->params[n->opt[0]].update = x.u;
}

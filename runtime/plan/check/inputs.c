/* Inputs: each lies in the input block where the loader puts it, and whoever reads there reads what the model
 * reads. A value says which input it is; where that lies, and as what parts, the plan's list of inputs says,
 * by which the loader goes (engine/feed.c). */
#include "runtime/plan/check/layout.h"

/* Does the model's segment read this input? */
static bool brings(const ZgSegment *g, uint32_t input) {
  for (uint32_t i = 0; i < g->nnodes; i++)
    if (g->nodes[i].op == ZG_OP_INPUT && g->nodes[i].opt[0] == input) return true;
  return false;
}

bool zp_input_fits(const Local *l, const ZpValue *v) {
  const ZpPlan *p = l->c->p;
  if (!brings(l->gs, v->at.index)) return false;
  for (uint32_t i = 0; i < p->programs.ninputs; i++) {
    const ZpInputUse *u = &p->programs.inputs[i];
    const ZpValue *w = &p->programs.segments[u->value_segment].values[u->value];
    bool same = u->input == v->at.index && u->at == v->at.offset && w->elem == v->elem &&
                w->type.naxes == v->type.naxes;
    for (int a = 0; same && a < v->type.naxes; a++)
      same = v->axis[a] == w->axis[a] && v->size[a] == w->size[a];
    for (int d = 0; same && d < p->layout.mesh.ndims; d++)
      same = v->state[d].kind == w->state[d].kind &&
             (v->state[d].kind != 'S' || v->state[d].axis == w->state[d].axis);
    if (same) return true;
  }
  return false;
}

/* The objects that an index selects: rows of a table, or the target among classes. */
typedef enum { OTHER, ROWS, TARGET } Selects;
static Selects selects(uint16_t op) {
  switch (op) {
  case ZG_OP_LOOKUP:
  case ZG_OP_LOOKUP_GRAD: return ROWS;
  case ZG_OP_XENT_SUMS:
  case ZG_OP_XENT_GRAD:
  case ZG_OP_XENT_MAX_SUMS:
  case ZG_OP_XENT_SUMS_GRAD: return TARGET;
  default: return OTHER;
  }
}

bool zp_selects_as_the_model(const Local *l, const ZpNode *n, int operand) {
  const ZpValue *v = &l->s->values[n->in[operand]];
  Selects what = selects(n->call.op);
  if (v->at.space != ZP_AT_INPUT || v->type.elem != ZG_INDEX || what == OTHER) return true;
  for (uint32_t i = 0; i < l->gs->nnodes; i++) {
    const ZgNode *m = &l->gs->nodes[i];
    for (int k = 0; selects(m->op) == what && k < m->nin; k++) {
      const ZgNode *maker = &l->gs->nodes[l->gs->values[m->in[k]].node];
      if (maker->op == ZG_OP_INPUT && maker->opt[0] == v->at.index) return true;
    }
  }
  return false;
}

/* ---- the list ------------------------------------------------------------------------------------------ */
bool zp_inputs_fit(const Check *c) {
  const ZpPlan *p = c->p;
  uint64_t end = 0;
  for (uint32_t i = 0; i < p->programs.ninputs; i++) {
    const ZpInputUse *u = &p->programs.inputs[i];
    if (u->input >= p->graph->ninputs || u->value_segment >= p->graph->nsegments ||
        u->value >= p->programs.segments[u->value_segment].nvalues)
      return zb_fail(c->err, NULL, "input %u does not exist", i);
    const ZpValue *v = &p->programs.segments[u->value_segment].values[u->value];
    if (u->at < end || u->at % 64) return zb_fail(c->err, NULL, "input %u lies over the one before", i);
    if (v->at.space != ZP_AT_INPUT || v->at.index != u->input || v->at.offset != u->at)
      return zb_fail(c->err, NULL, "input %u is not where its value is said to lie", i);
    const ZgType *t = &p->graph->inputs[u->input].type;
    bool same = t->elem == v->type.elem && t->naxes == v->type.naxes;
    for (int a = 0; same && a < t->naxes; a++) same = t->axis[a] == v->type.axis[a];
    if (!same) return zb_fail(c->err, NULL, "input %u is of another type than the data", i);
    end = u->at + v->bytes;
  }
  for (uint32_t k = 0; k < p->programs.nvstages; k++) {
    const ZpVirtualStage *x = &p->programs.vstages[k];
    for (uint32_t i = x->first; i < x->first + x->ninsts; i++) {
      const ZpSegment *g = &p->programs.segments[p->programs.stages[x->stage].insts[i].segment];
      for (uint32_t v = 0; v < g->nvalues; v++)
        if (g->values[v].at.space == ZP_AT_INPUT && x->input_bytes < end)
          return zb_fail(c->err, NULL, "stage %u has %llu bytes for inputs of %llu", x->stage,
                         (unsigned long long)x->input_bytes, (unsigned long long)end);
    }
  }
  return true;
}

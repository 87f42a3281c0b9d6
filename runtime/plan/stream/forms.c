/* The step's graph and its axes; types of values in the forms that a step has them in; nodes. See
 * stream.h. */
#include "graph/ragged.h"
#include "runtime/plan/stream/derive.h"

#include <string.h>

/* ---- axes and inputs ----------------------------------------------------------------------------------- */
uint16_t zp_step_axis(ZpDerive *d, const char *name, int64_t size) {
  uint32_t at = zg_axis_find(d->g, name);
  if (at != ZG_NONE) return (uint16_t)at;
  ZB_ASSERT(d->g->naxes < ZG_MAX_GRAPH_AXES);
  ZgAxis axis = {zb_strdup(d->a, name), size};
  ZB_PUSH(d->a, d->g->axes, d->g->naxes, axis);
  return (uint16_t)(d->g->naxes - 1);
}

static uint16_t bound_axis(ZpDerive *d, const char *name, int64_t size) {
  uint16_t axis = zp_step_axis(d, name, size);
  d->bound[axis] = true;
  return axis;
}

uint32_t zp_step_input(ZpDerive *d, const char *name, ZgType t) {
  for (uint32_t i = 0; i < d->g->ninputs; i++)
    if (!strcmp(d->g->inputs[i].name, name)) return i;
  ZgIo io = {.name = zb_strdup(d->a, name), .type = t};
  ZB_PUSH(d->a, d->g->inputs, d->g->ninputs, io);
  return d->g->ninputs - 1;
}

/* Copies the model's tables: names and numbers of axes, parameters and regions are the model's. */
static void copy_tables(ZpDerive *d) {
  const ZgGraph *m = d->to->model;
  ZgGraph *g = d->g = ZB_NEW(d->a, ZgGraph);
  *g = *m;
  g->arena = d->a;
  g->axes = NULL, g->naxes = 0;
  for (uint32_t i = 0; i < m->naxes; i++) ZB_PUSH(d->a, g->axes, g->naxes, m->axes[i]);
  g->inputs = NULL, g->ninputs = 0;
  g->outputs = ZB_NEW(d->a, ZgIo), g->noutputs = 1;
  g->losses = NULL, g->nlosses = 0;
  g->segments = ZB_NEWN(d->a, ZgSegment, m->nsegments);
  for (uint32_t k = 0; k < m->nsegments; k++) {
    const ZgSegment *s = &m->segments[k];
    g->segments[k] =
        (ZgSegment){.label = s->label, .region = s->region, .trip = s->trip, .repeat = s->repeat};
  }
}

void zp_begin_step(ZpDerive *d) {
  ZpStream *to = d->to;
  copy_tables(d);
  d->bound = ZB_NEWN(d->a, bool, ZG_MAX_GRAPH_AXES);
  const uint16_t *experts = zg_slot_axes(to->model, d->a, NULL);
  for (uint32_t i = 0; i < to->model->naxes; i++) d->bound[i] = experts[i] != ZG_NO_AXIS;
  to->axis = (ZpStreamAxes){.token = bound_axis(d, "step.token", 0),
                            .row = bound_axis(d, "step.row", 0),
                            .sequence = bound_axis(d, "step.sequence", 0),
                            .position = bound_axis(d, "step.position", to->model->axes[to->along.time].size),
                            .entry = bound_axis(d, "step.entry", 0),
                            .within = bound_axis(d, "step.within", 0)};
  ZgType position = zg_type(ZG_I32, &to->axis.token, 1), sequence = zg_type(ZG_INDEX, &to->axis.token, 1);
  ZgType row = zg_type(ZG_INDEX, &to->axis.row, 1);
  sequence.of = to->axis.sequence;
  row.of = to->axis.token;
  to->position = zp_step_input(d, "step.position", position);
  to->sequence = zp_step_input(d, "step.sequence", sequence);
  to->row = zp_step_input(d, "step.row", row);
  d->g->outputs[0] = to->model->outputs[to->along.output];
  d->g->outputs[0].type = zp_form_type(d, &d->g->outputs[0].type, ZP_AS_ROWS);
  d->g->outputs[0].order = NULL;
}

/* ---- types --------------------------------------------------------------------------------------------- */
uint16_t zp_form_axis(const ZpDerive *d, ZpForm form) {
  const ZpStreamAxes *x = &d->to->axis;
  return form == ZP_AS_ROWS ? x->row : form == ZP_AS_TABLE ? x->position : x->token;
}

ZgType zp_form_type(const ZpDerive *d, const ZgType *t, ZpForm form) {
  const ZgStream *along = &d->to->along;
  uint16_t axis[ZG_MAX_AXES + 1];
  int n = 0;
  if (form == ZP_AS_OWN) axis[n++] = d->to->axis.sequence;
  for (int i = 0; i < t->naxes; i++) {
    uint16_t a = t->axis[i];
    bool time = along->names[a], here = form == ZP_AS_TOKENS || form == ZP_AS_ROWS || form == ZP_AS_PAIRS;
    if (a == along->batch && !here) continue; /* the same of all samples, or in the place of sequences */
    if (a == along->batch) a = zp_form_axis(d, form);
    else if (time && form == ZP_AS_PAIRS && a != along->time) a = d->to->axis.position;
    else if (time) a = zp_form_axis(d, form);
    axis[n++] = a;
  }
  ZgType to = zg_type((ZgElem)t->elem, axis, n);
  to.of = t->of;
  return to;
}

const ZgType *zp_step_type(const ZpDerive *d, uint32_t v) { return &d->out->values[v].type; }

/* ---- nodes --------------------------------------------------------------------------------------------- */
void zp_derive_fail(ZpDerive *d, const char *why) {
  const ZgLoc *l = &d->g->locs[d->from->loc];
  if (!d->failed)
    zb_fail(d->err, NULL, "%s cannot be made token by token along `%s`: %s (%s:%u:%u)", d->g->model,
            d->g->axes[d->to->along.time].name, why, l->file, l->line, l->col);
  d->failed = true;
}

/* A length that differs from sequence to sequence is none of a step's: only attention sees it whole. */
static void check_axes(ZpDerive *d, const ZgType *t) {
  for (int i = 0; i < t->naxes; i++) {
    const ZgAxis *a = &d->g->axes[t->axis[i]];
    if (!a->size && !d->bound[t->axis[i]])
      zp_derive_fail(
          d, zb_printf(d->a, "%s has all of `%s` beside tokens", zg_op_info[d->from->op].text, a->name));
  }
}

static void check_types(ZpDerive *d, const ZgNode *n, const ZgType *types, int ntypes) {
  ZgType in[ZG_MAX_IN], got[ZG_MAX_OUT];
  ZbErr err = {0};
  for (int i = 0; i < n->nin; i++) in[i] = *zp_step_type(d, n->in[i]);
  if (!zg_infer(d->g, n, in, ntypes ? types : NULL, got, &err)) {
    zp_derive_fail(d, zb_strdup(d->a, err.text));
    return;
  }
  for (int i = 0; i < ntypes; i++)
    if (!zg_type_eq(&got[i], &types[i]))
      zp_derive_fail(d, zb_printf(d->a, "%s has a result of %s, not %s", zg_op_info[n->op].text,
                                  zg_type_text(d->g, d->a, &got[i]), zg_type_text(d->g, d->a, &types[i])));
}

uint32_t zp_step_node(ZpDerive *d, ZgNode n, const uint32_t *in, int nin, const ZgType *types, int ntypes) {
  ZgSegment *s = d->out;
  n.nin = (uint8_t)nin;
  n.nout = (uint8_t)ntypes;
  n.out = s->nvalues;
  n.region = d->from->region;
  n.loc = d->from->loc;
  ZB_ASSERT(nin <= ZG_MAX_IN);
  memset(n.in, 0, sizeof n.in);
  for (int i = 0; i < nin; i++) n.in[i] = in[i];
  if (!d->failed && zg_op_info[n.op].kind != ZG_PLANNED) check_types(d, &n, types, ntypes);
  for (int i = 0; i < ntypes; i++) {
    ZgValue v = {types[i], s->nnodes};
    if (n.op != ZG_OP_KEPT) check_axes(d, &types[i]);
    ZB_PUSH(d->a, s->values, s->nvalues, v);
  }
  ZB_PUSH(d->a, s->nodes, s->nnodes, n);
  s->nforward = s->nnodes;
  return n.out;
}

uint32_t zp_spread(ZpDerive *d, uint32_t v, ZgType to) {
  const ZgType *t = zp_step_type(d, v);
  if (t->naxes == to.naxes && zg_type_contains(t, &to)) return v;
  to.elem = t->elem;
  to.of = t->of;
  return zp_step_node(d, (ZgNode){.op = ZG_OP_BROADCAST}, &v, 1, &to, 1);
}

/* zc --apart: documents that share a sample are kept apart, whatever the model says of them. It gets an input `doc`, the number of
 * each position's document within the sample, and attention along the sequence compares them (`same`); positions are
 * counted from a document's beginning, by an input `place`. Rotary positions need nothing: only their differences count.
 * Data files have both (runtime/exec/data/DATA.md). */
#include "compiler/builtin.h"
#include "compiler/compose.h"

#include <string.h>

static Val add_input(Elab *e, ZlSpan span, const char *name, const ZgType *t) {
  ZgNode n = {.op = ZG_OP_INPUT, .opt = {e->g->ninputs}};
  ZB_PUSH(e->g->arena, e->g->inputs, e->g->ninputs,
          ((ZgIo){.name = zb_strdup(e->g->arena, name), .type = *t}));
  Val v = place_node(e, span, n, NULL, NULL);
  e->g->inputs[e->g->ninputs - 1].loc = place_at(e, span);
  return v;
}

void apart_begin(Elab *e, ZlSpan span, const char *input, const ZgType *t) {
  uint16_t batch;
  if (!e->opt || !e->opt->apart || strcmp(input, "tokens") || !axis_find(e, "batch", &batch)) return;
  if (t->naxes != 2 || !zg_type_has(t, batch)) return;
  for (uint32_t i = 0; e->model && i < e->model->nbody; i++)
    if (e->model->body[i]->kind == ZL_S_INPUT && !strcmp(e->model->body[i]->input.name.s, "doc"))
      e->apart.used = true;
  if (e->apart.used) return; /* the model does it itself */
  ZgType doc = *t;
  doc.elem = ZG_I32;
  doc.of = 0;
  e->apart.along = t->axis[t->axis[0] == batch];
  e->apart.doc = add_input(e, span, "doc", &doc);
  e->apart.on = true;
}

bool apart_same(Call *c, const ZgAttendAxes *ax, Val *out) {
  Elab *e = c->e;
  if (!e->apart.on || ax->q != e->apart.along || ax->k != ax->q) return false;
  e->apart.used = true;
  *out = e->apart.doc;
  return true;
}

/* The input of places, which selects from the first table that asks for it, so that data are checked against that. */
static Val place_of(Call *c, const uint16_t *table) {
  Elab *e = c->e;
  ZgType t = e->apart.doc.type;
  if (table) {
    t.elem = ZG_INDEX;
    t.of = *table;
  }
  if (e->apart.place.kind != VAL_TENSOR) e->apart.place = add_input(e, c->x->span, "place", &t);
  return e->apart.place;
}

bool apart_position(Call *c, Val *out) {
  if (!c->e->apart.on || c->ax[0] != c->e->apart.along) return false;
  *out = place_of(c, &c->ax[1]);
  if (out->type.elem != ZG_INDEX || out->type.of != c->ax[1])
    *out = compose_index(c->e, c->x->span, *out, c->ax[1]);
  return true;
}

bool apart_place(Call *c, Val *out) {
  if (!c->e->apart.on || c->ax[0] != c->e->apart.along) return false;
  *out = val_cast(c->e, c->x->span, place_of(c, NULL), ZG_F32);
  return true;
}

bool apart_allows(Call *c) {
  static const char *const others[] = {"conv",  "conv_transpose", "cumsum", "scan", "linear_attend",
                                       "shift", "softmax",        "lse",    "peak"};
  bool over = false;
  for (int i = 0; c->e->apart.on && i < c->nax; i++) over |= c->ax[i] == c->e->apart.along;
  for (size_t i = 0; over && i < sizeof others / sizeof *others; i++) {
    if (strcmp(c->op->name, others[i])) continue;
    ZlDiag *d = complain(c->e, ZL_Z0707, c->x->span, "`%s` along `%s` mixes documents that share a sample",
                         c->op->name, axis_name(c, c->e->apart.along));
    zl_help(d, "compile without --apart, and train with one document a sample");
    return false;
  }
  return true;
}

void apart_end(Elab *e) {
  if (!e->opt->apart || e->apart.used || e->errors < zl_errors(e->diags)) return;
  ZlDiag *d = complain(e, ZL_Z0707, e->model->name.span, "nothing of `%s` can keep documents apart",
                       e->model->name.s);
  zl_note(
      d,
      "--apart is for attention along the sequence of an input `tokens`, in a model without an input `doc`");
}

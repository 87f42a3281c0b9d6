/* dispatch and combine: tokens to the experts that were chosen for them, and back. In between, what each
 * expert has of a bias, or of a scale, comes to its rows. */
#include "compiler/builtin.h"
#include "graph/ragged.h"

#include <string.h>

/* e must choose among the experts. What chooses tokens instead is refused. */
static bool want_experts(Call *c, int i) {
  if (!want_index(c, i)) return false;
  uint16_t of = c->arg[i].type.of;
  if (of == c->ax[0]) return true;
  ZlDiag *d = complain(c->e, ZL_Z0204, c->span[i], "`%s`: the ids must be index(%s)", head(c),
                       axis_name(c, c->ax[0]));
  zl_label(d, "%s", type_text(c->e, &c->arg[i].type));
  also_declared(c, d, i);
  if (axis_size(c, of)) return false;
  zl_note(
      d,
      "experts that choose their tokens are not in the language: which ones an expert takes would depend on "
      "all others of the micro-batch, so on the layout, and on tokens that come later");
  zl_help(d, "let tokens choose: `topk[%s, choice](p)`", axis_name(c, c->ax[0]));
  return false;
}

/* The one axis of e that x lacks: a token's choices. */
static bool find_choice(Call *c, uint16_t *choice) {
  const ZgType *x = &c->arg[0].type, *e = &c->arg[1].type;
  int n = 0;
  for (int i = 0; i < e->naxes; i++)
    if (!zg_type_has(x, e->axis[i])) *choice = e->axis[i], n++;
  if (n == 1) return true;
  ZlDiag *d = complain(c->e, ZL_Z0201, c->span[1],
                       "`%s`: the ids have one axis more than the tokens, their choices", head(c));
  zl_label(d, "%s", axes_text(c->e, e));
  zl_also(d, c->span[0], "%s", axes_text(c->e, x));
  return false;
}

Val dispatch_op(Call *c) {
  if (!want_float(c, 0) || !want_experts(c, 1)) return poison();
  ZgNode n = with_axes(c, ZG_OP_DISPATCH, 2);
  n.nax = 3;
  if (!find_choice(c, &n.ax[2])) return poison();
  return place_node(c->e, c->x->span, n, c->arg, NULL);
}

/* Rows are weighted where they are, so that the gradient of a weight needs no row to come back:
 * combine(cast(y * dispatch(w))), whose sum is in f32. */
Val combine_op(Call *c) {
  Elab *e = c->e;
  ZlSpan at = c->x->span;
  if (!want_float(c, 0) || !want_experts(c, 1) || !want_float(c, 2)) return poison();
  if (!want_axis(c, 0, c->ax[0]) || !want_axis(c, 0, c->ax[1]) || !want_axis(c, 1, c->ax[2])) return poison();
  Val y = c->arg[0], ids = c->arg[1], w = c->arg[2];
  if (w.type.naxes != ids.type.naxes || !zg_type_contains(&ids.type, &w.type)) {
    ZlDiag *d = complain(e, ZL_Z0201, c->span[2], "`%s`: there is a weight for each of the ids", head(c));
    zl_label(d, "%s", axes_text(e, &w.type));
    zl_also(d, c->span[1], "%s", axes_text(e, &ids.type));
    return poison();
  }
  Val both[2] = {w, ids};
  both[0] = place_node(e, at, with_axes(c, ZG_OP_DISPATCH, 2), both, NULL);
  Val product[2] = {y, both[0]};
  Val rows = place_node(e, at, (ZgNode){.op = ZG_OP_MUL, .nin = 2}, product, NULL);
  both[0] = val_cast(e, at, rows, (ZgElem)y.type.elem);
  Val sum = place_node(e, at, with_axes(c, ZG_OP_COMBINE, 2), both, NULL);
  return val_cast(e, at, sum, (ZgElem)y.type.elem);
}

/* ---- weights that meet rows element by element --------------------------------------------------------- */
static bool is_rows(const Elab *e, const Val *v) { return zg_slot_axis(e->experts, &v->type) != ZG_NO_AXIS; }

/* A 1 in every row that `by` dispatches: what it dispatches of ones, one a token. */
static Val ones_of(Elab *e, ZlSpan at, const ZgNode *by, ZgElem elem) {
  const ZgType ids = e->g->segments[e->seg].values[by->in[1]].type;
  ZgType tokens = zg_type_minus(&ids, &by->ax[2], 1);
  tokens.elem = (uint8_t)elem, tokens.of = 0;
  Val one = val_tensor(e, at, (Val){.kind = VAL_NUM, .num = num_int(1)}, elem);
  Val in[2] = {place_node(e, at, (ZgNode){.op = ZG_OP_BROADCAST, .nin = 1}, &one, &tokens),
               {.kind = VAL_TENSOR, .type = ids, .seg = e->seg, .id = by->in[1]}};
  ZgNode n = {.op = ZG_OP_DISPATCH, .nin = 2, .nax = by->nax};
  memcpy(n.ax, by->ax, sizeof n.ax);
  return place_node(e, at, n, in, NULL);
}

/* v[expert, ffn] as [expert, slot, ffn], in each row the part of its expert: a product with a 1 in every row,
 * of which nothing is summed. So its gradient is the sum over the expert's rows, and no others. */
static Val in_rows(Elab *e, ZlSpan at, ZgNode by, Val v) {
  if (v.type.elem == ZG_BOOL) { /* is it 1, as a number? */
    Val truth[2] = {in_rows(e, at, by, val_cast(e, at, v, ZG_F32)),
                    val_tensor(e, at, (Val){.kind = VAL_NUM, .num = num_int(1)}, ZG_F32)};
    return place_node(e, at, (ZgNode){.op = ZG_OP_EQUAL, .nin = 2}, truth, NULL);
  }
  ZgType expert = zg_type((ZgElem)v.type.elem, by.ax, 1), each = zg_type_union(&v.type, &expert);
  each.elem = v.type.elem;
  if (each.naxes > v.type.naxes) v = place_node(e, at, (ZgNode){.op = ZG_OP_BROADCAST, .nin = 1}, &v, &each);
  Val in[2] = {ones_of(e, at, &by, (ZgElem)each.elem), v};
  return place_node(e, at, (ZgNode){.op = ZG_OP_DOT, .nin = 2}, in, NULL);
}

/* A divisor is 1 in rows that are nobody's: 0 / 0 there is read by none, but reported where a NaN is looked
 * for. */
static Val divisor(Elab *e, ZlSpan at, const ZgNode *by, Val v) {
  Val one = val_tensor(e, at, (Val){.kind = VAL_NUM, .num = num_int(1)}, (ZgElem)v.type.elem);
  Val missing[2] = {one, ones_of(e, at, by, (ZgElem)v.type.elem)};
  Val sum[2] = {v, place_node(e, at, (ZgNode){.op = ZG_OP_SUB, .nin = 2}, missing, NULL)};
  return place_node(e, at, (ZgNode){.op = ZG_OP_ADD, .nin = 2}, sum, NULL);
}

void weights_in_rows(Elab *e, ZlSpan at, const ZgNode *n, Val *in) {
  const Val *rows = NULL;
  if (zg_op_info[n->op].kind != ZG_EW || n->nin < 2) return;
  for (int i = 0; i < n->nin; i++)
    if (is_rows(e, &in[i])) rows = &in[i];
  if (!rows) return;
  const ZgNode *by = zg_dispatched_by(&e->g->segments[e->seg], e->experts, rows->id);
  if (!by) return;
  ZgNode copy = *by; /* what is made below moves it */
  for (int i = 0; i < n->nin; i++) {
    bool number = zg_is_number(&e->g->segments[e->seg], in[i].id);
    bool may = is_float(&in[i].type) || in[i].type.elem == ZG_BOOL;
    if (!may || number || is_rows(e, &in[i]) || !zg_type_contains(&rows->type, &in[i].type)) continue;
    in[i] = in_rows(e, at, copy, in[i]);
    if (n->op == ZG_OP_DIV && i == 1) in[i] = divisor(e, at, &copy, in[i]);
  }
}

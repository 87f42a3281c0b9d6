/* dispatch and combine: tokens to the experts that were chosen for them, and back. */
#include "compiler/builtin.h"

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

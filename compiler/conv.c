/* conv and conv_transpose. A call names axes, and what each is follows from who has it:
 *
 *   both operands   is summed, as in dot
 *   x alone         a spatial axis
 *   w alone         the window along the spatial axis before it
 *   neither         what the spatial axis before it is called in the result, if it gets another size
 *
 * Axes that are not named are batched where both have them, and go into the result. Example, a 3x3
 * convolution that halves a picture:
 *
 *   conv[in, row, kr, row2, col, kc, col2](image[batch, in, row, col], w[in, out, kr, kc], stride = 2)
 *
 * is an image[batch, out, row2, col2]. */
#include "compiler/builtin.h"

#include <string.h>

typedef struct {
  uint16_t from, window, to;
  bool has_window, has_to;
} Spatial;

typedef struct {
  Spatial dim[ZG_MAX_AXARG];
  int ndims, nsummed;
  uint16_t summed[ZG_MAX_AXARG];
} Roles;

static bool wrong(Call *c, const char *text) {
  ZlDiag *d = complain(c->e, ZL_Z0205, c->x->call.ax_span, "`%s`: %s", head(c), text);
  zl_note(d, "after each axis of x along which the windows go comes their axis of w, and then that of the "
             "result, unless it is the same");
  zl_help(d, "`%s[in, row, kr, row2, col, kc, col2](x, w, stride = 2)`", c->op->name);
  return false;
}

static bool find_roles(Call *c, Roles *r) {
  const ZgType *x = &c->arg[0].type, *w = &c->arg[1].type;
  for (int i = 0; i < c->nax; i++) {
    uint16_t a = c->ax[i];
    bool in_x = zg_type_has(x, a), in_w = zg_type_has(w, a);
    Spatial *last = r->ndims ? &r->dim[r->ndims - 1] : NULL;
    const char *name = axis_name(c, a);
    for (int k = 0; k < i; k++)
      if (c->ax[k] == a && !(last && last->from == a && last->has_window))
        return wrong(c, zb_printf(c->e->arena, "the axis `%s` is named twice", name));
    if (in_x && in_w) {
      r->summed[r->nsummed++] = a;
    } else if (in_x && !(last && last->from == a)) {
      if (last && !last->has_window) break;
      r->dim[r->ndims++] = (Spatial){.from = a, .to = a};
    } else if (in_w && (!last || last->has_window)) {
      return wrong(c, zb_printf(c->e->arena, "`%s` is not a window of an axis before it", name));
    } else if (!in_w && last && last->has_to) {
      return wrong(c, zb_printf(c->e->arena, "`%s` is called `%s` in the result already",
                                axis_name(c, last->from), axis_name(c, last->to)));
    } else if (!in_w && (!last || !last->has_window)) {
      return wrong(c, zb_printf(c->e->arena, "neither operand has `%s`, and no window is before it", name));
    } else if (in_w) {
      last->window = a, last->has_window = true;
    } else {
      last->to = a, last->has_to = true;
    }
  }
  if (!r->ndims) return wrong(c, "no axis of x alone is named, along which windows could go");
  for (int d = 0; d < r->ndims; d++)
    if (!r->dim[d].has_window)
      return wrong(c,
                   zb_printf(c->e->arena, "no window of w is named for `%s`", axis_name(c, r->dim[d].from)));
  return r->ndims <= ZG_CONV_DIMS || wrong(c, "windows go along three axes at most");
}

/* `same`, `causal` or a number of zeros; a stride and a dilation. */
static bool find_numbers(Call *c, ZgNode *n) {
  const ZlExpr *stride = keyword(c, "stride"), *pad = keyword(c, "pad"), *dilate = keyword(c, "dilate");
  int64_t by = 1;
  n->opt[0] = 1, n->opt[1] = ZG_CONV_SAME;
  if (stride && !static_int(c->e, stride, 1, ZG_CONV_MOST, "stride", &n->opt[0])) return false;
  if (dilate && !static_int(c->e, dilate, 1, ZG_CONV_MOST, "dilate", &by)) return false;
  n->num[0] = (double)by;
  bool word =
      pad && pad->kind == ZL_E_NAME && (!strcmp(pad->name.s, "same") || !strcmp(pad->name.s, "causal"));
  if (word) n->opt[1] = pad->name.s[0] == 's' ? ZG_CONV_SAME : ZG_CONV_CAUSAL;
  else if (pad) return static_int(c->e, pad, 0, ZG_CONV_MOST, "pad", &n->opt[1]);
  return true;
}

Val conv_op(Call *c) {
  Roles r = {0};
  bool a = want_float(c, 0), b = want_float(c, 1); /* both complain */
  if (!a || !b || !find_roles(c, &r)) return poison();
  ZgNode n = {.op = c->op->op, .nin = 2};
  if (!find_numbers(c, &n)) return poison();
  bool transpose = n.op == ZG_OP_CONV_TRANSPOSE;
  ZgType x = zg_type_minus(&c->arg[0].type, r.summed, r.nsummed);
  ZgType w = zg_type_minus(&c->arg[1].type, r.summed, r.nsummed);
  uint16_t to[ZG_CONV_DIMS];
  for (int d = 0; d < r.ndims; d++) {
    const Spatial *s = &r.dim[d];
    uint16_t three[] = {transpose ? s->to : s->from, s->window, transpose ? s->from : s->to};
    memcpy(n.ax + n.nax, three, sizeof three);
    n.nax += 3;
    x = zg_type_minus(&x, &s->from, 1);
    w = zg_type_minus(&w, &s->window, 1);
    to[d] = s->to;
  }
  ZgType out = zg_type_union(&x, &w), more = zg_type(ZG_REAL, to, r.ndims);
  if (out.naxes + more.naxes > ZG_MAX_AXES) { /* told by the type rule */
    complain(c->e, ZL_Z0208, c->x->span, "`%s`: the result would have more than %d axes", head(c),
             ZG_MAX_AXES);
    return poison();
  }
  out = zg_type_union(&out, &more);
  return place_node(c->e, c->x->span, n, c->arg, &out);
}

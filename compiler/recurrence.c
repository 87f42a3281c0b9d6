/* Recurrences: how `scan` and `linear_attend` are lowered. */
#include "compiler/builtin.h"

/* Factors that are a number stay f32: 0.999 would be 1 in bf16. With 1 it is a running sum. */
Val scan_op(Call *c) {
  ZgNode n = with_axes(c, ZG_OP_SCAN, 2);
  const Val *a = &c->arg[0];
  if (keyword(c, "order") && !word_keyword(c, "order", "forward", "reverse", &n.opt[0])) return poison();
  bool sums = a->kind == VAL_NUM && !a->num.assumed && a->num.v == 1;
  if (a->kind == VAL_NUM) c->arg[0] = val_tensor(c->e, c->span[0], *a, ZG_F32);
  if (!want_float(c, 0) || !want_float(c, 1) || !want_axis(c, 1, c->ax[0])) return poison();
  if (sums) {
    n.op = ZG_OP_CUMSUM, n.nin = 1;
    return place_node(c->e, c->x->span, n, &c->arg[1], NULL);
  }
  if (zg_type_contains(&c->arg[1].type, &a->type)) return place_node(c->e, c->x->span, n, c->arg, NULL);
  ZlDiag *d =
      complain(c->e, ZL_Z0201, c->span[0], "`%s`: the factors have axes that the terms lack", head(c));
  zl_label(d, "%s", axes_text(c->e, &a->type));
  zl_also(d, c->span[1], "%s", axes_text(c->e, &c->arg[1].type));
  zl_help(d, "`spread[..](b)` repeats the terms along them");
  return poison();
}

/* One more operand, with the tokens and features `h`. */
static bool linear_more(Call *c, const char *name, uint16_t h) {
  int before = c->nargs;
  if (!tensor_keyword(c, name, false)) return false;
  return c->nargs == before || (want_axis(c, before, c->ax[0]) && want_axis(c, before, h));
}

/* Decays are logs, and where they are a number, f32. */
static bool linear_decay(Call *c) {
  const ZlExpr *x = keyword(c, "decay");
  if (!x) return true;
  Val v = expr_eval(c->e, x);
  if (v.kind == VAL_NUM && !v.num.assumed && v.num.v > 0) {
    ZlDiag *d =
        complain(c->e, ZL_Z0107, x->span,
                 "`decay` of `linear_attend` is the logarithm of a factor up to 1, not above 0: %g", v.num.v);
    zl_help(d, "write `log(%g)`", v.num.v <= 1 ? v.num.v : 0.9);
    return false;
  }
  if (v.kind == VAL_NUM) v = val_tensor(c->e, x->span, v, ZG_F32);
  c->span[c->nargs] = x->span;
  c->name[c->nargs] = "decay";
  c->arg[c->nargs++] = v;
  return want_float(c, c->nargs - 1);
}

Val linear_attend_op(Call *c) {
  ZgNode n = with_axes(c, ZG_OP_LINEAR_ATTEND, 3);
  const uint16_t s = c->ax[0], k = c->ax[1], v = c->ax[2];
  bool ok = true;
  for (int i = 0; i < 3; i++) ok = want_float(c, i) && ok;
  for (int i = 0; ok && i < 3; i++) ok = want_axis(c, i, s) && want_axis(c, i, i < 2 ? k : v);
  const ZlExpr *keys = keyword(c, "keys"), *values = keyword(c, "values");
  if (!ok || !linear_decay(c) || !linear_more(c, "feed", k)) return poison();
  if (!keys != !values) {
    ZlDiag *d = complain(c->e, ZL_Z0205, keys ? keys->span : values->span, "`%s` needs `%s`",
                         keys ? "keys" : "values", keys ? "values" : "keys");
    zl_help(d, "a second pair is both: `keys = k2, values = v2`");
    return poison();
  }
  if (!linear_more(c, "keys", k) || !linear_more(c, "values", v)) return poison();
  n.opt[0] = (keyword(c, "decay") ? ZG_LINEAR_DECAY : 0) | (keyword(c, "feed") ? ZG_LINEAR_FEED : 0) |
             (keys ? ZG_LINEAR_PAIR : 0);
  n.nin = (uint8_t)c->nargs;
  return place_node(c->e, c->x->span, n, c->arg, NULL);
}

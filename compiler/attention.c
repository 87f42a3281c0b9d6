/* Attention and rotary positions: how `attend` and `rope` are lowered. */
#include "compiler/builtin.h"

#include <math.h>

/* Positions of rope as a tensor: numbers that are not rounded to bf16. */
static bool rope_at(Call *c, Val *out) {
  const ZlExpr *x = keyword(c, "at");
  if (!x) return true;
  Val v = expr_eval(c->e, x);
  ZgType rest = zg_type_minus(&c->arg[0].type, &c->ax[1], 1);
  if (v.kind == VAL_POISON) return false;
  if (v.kind != VAL_TENSOR || (v.type.elem != ZG_F32 && v.type.elem != ZG_I32 && v.type.elem != ZG_INDEX)) {
    ZlDiag *d =
        complain(c->e, ZL_Z0202, x->span, "`at` of `rope` is a tensor of positions: f32, i32 or an index");
    if (v.kind == VAL_TENSOR) zl_label(d, "%s", type_text(c->e, &v.type));
    if (v.kind == VAL_TENSOR && v.type.elem == ZG_REAL)
      zl_note(d, "`real` may be bf16, which rounds positions beyond 256");
    return false;
  }
  *out = v;
  if (zg_type_contains(&rest, &v.type)) return true;
  ZlDiag *d = complain(c->e, ZL_Z0201, x->span, "`rope`: the positions have axes that the operand lacks");
  zl_label(d, "%s", axes_text(c->e, &v.type));
  zl_also(d, c->span[0], "%s without `%s`", axes_text(c->e, &c->arg[0].type), axis_name(c, c->ax[1]));
  return false;
}

/* A table of one's own: f32 along the features. */
static bool rope_speeds(Call *c, Val *out) {
  const ZlExpr *x = keyword(c, "speeds");
  if (!x) return true;
  Val v = expr_eval(c->e, x);
  ZgType want = zg_type(ZG_F32, &c->ax[1], 1);
  if (v.kind == VAL_POISON) return false;
  *out = v;
  if (v.kind == VAL_TENSOR && zg_type_eq(&v.type, &want) && !keyword(c, "base")) return true;
  if (v.kind == VAL_TENSOR && zg_type_eq(&v.type, &want)) {
    complain(c->e, ZL_Z0205, keyword(c, "base")->span, "`rope`: `speeds` are in the place of a `base`");
    return false;
  }
  ZlDiag *d = complain(c->e, ZL_Z0202, x->span, "`speeds` of `rope` must be %s", type_text(c->e, &want));
  if (v.kind == VAL_TENSOR) zl_label(d, "%s", type_text(c->e, &v.type));
  return false;
}

/* Plain positions along s are an op of their own; others `rotate`, by tables. */
Val rope_op(Call *c) {
  static const char *const pairs[] = {"halves", "neighbours"};
  ZgNode n = with_axes(c, ZG_OP_ROPE, 1);
  RopeCall r = {.at = {.kind = VAL_NUM}, .speeds = {.kind = VAL_NUM}};
  int rule = -1, beside = 0;
  if (!want_float(c, 0) || !want_axes(c, 0) || !number_keyword(c, "base", 10000, &r.base)) return poison();
  int64_t h = axis_size(c, c->ax[1]), most = h && c->ax[1] < c->e->assumed ? h : INT32_MAX;
  const ZlExpr *features = keyword(c, "features");
  bool ok = choice_keyword(c, "rule", rope_rules, 3, &rule) &&
            choice_keyword(c, "pairs", pairs, 2, &beside) && number_or_none(c, "factor", 2, &r.factor) &&
            number_or_none(c, "context", 8192, &r.context) && number_or_none(c, "low", 1, &r.low) &&
            number_or_none(c, "high", 4, &r.high) && number_or_none(c, "attention", 1, &r.attention) &&
            rope_at(c, &r.at) && rope_speeds(c, &r.speeds) &&
            (!features || static_int(c->e, features, 2, most, "features", &r.features));
  if (!ok) return poison();
  r.rule = (RopeRule)(rule + 1);
  r.beside = beside;
  bool plain = rule < 0 && !beside && !features && !keyword(c, "attention") && r.at.kind != VAL_TENSOR &&
               r.speeds.kind != VAL_TENSOR;
  n.num[0] = r.base;
  if (!rope_check(c->e, c->x->call.path.span, &r, h)) return poison();
  if (plain || !h) return place_node(c->e, c->x->span, n, c->arg, NULL); /* !h: which says what is wrong */
  return compose_rope(c->e, c->x->span, c->arg[0], c->ax[0], c->ax[1], &r);
}

/* Axes of attend as the language has them: [positions, features], or [queries, keys, features]. */
static ZgAttendAxes attend_axes(const Call *c) {
  uint16_t h = c->ax[c->nax - 1];
  return (ZgAttendAxes){c->ax[0], h, c->ax[c->nax == 3], h};
}

/* Values have the axis of keys, and features that may be others than those of queries and keys: then the one
 * axis that the keys lack. */
static bool attend_values(Call *c, ZgAttendAxes *ax) {
  const ZgType *k = &c->arg[1].type, *v = &c->arg[2].type;
  int others = 0;
  for (int i = 0; i < v->naxes; i++)
    if (!zg_type_has(k, v->axis[i])) {
      ax->w = v->axis[i];
      others++;
    }
  if (zg_type_has(v, ax->h) || others != 1) ax->w = ax->h;
  return want_axis(c, 2, ax->k) && want_axis(c, 2, ax->w);
}

/* A number that is not negative; 0 if it is not given. */
static bool size_keyword(Call *c, const char *name, double *out) {
  if (!number_keyword(c, name, 0, out)) return false;
  if (*out >= 0) return true;
  complain(c->e, ZL_Z0107, keyword(c, name)->span, "`%s` of `%s` cannot be negative: %g", name, c->op->name,
           *out);
  return false;
}

bool tensor_keyword(Call *c, const char *name, bool id) {
  const ZlExpr *x = keyword(c, name);
  if (!x) return true;
  Val v = expr_eval(c->e, x);
  if (v.kind == VAL_POISON) return false;
  bool is_id = v.kind == VAL_TENSOR && (v.type.elem == ZG_INDEX || v.type.elem == ZG_I32);
  if (!id) v = val_tensor(c->e, x->span, v, ZG_REAL);
  if (v.kind != VAL_TENSOR || (id ? !is_id : !is_float(&v.type))) {
    ZlDiag *d = complain(c->e, ZL_Z0202, x->span, "`%s` of `%s` must be %s", name, c->op->name,
                         id ? "an index or i32" : "real");
    if (v.kind == VAL_TENSOR) zl_label(d, "%s", type_text(c->e, &v.type));
    return false;
  }
  c->span[c->nargs] = x->span;
  c->name[c->nargs] = name;
  c->arg[c->nargs++] = v;
  return true;
}

/* A keyword whose tensor needs the axis of keys, without which it would be taken for another one. */
static bool tensor_of_keys(Call *c, const char *name, bool id, const ZgAttendAxes *ax) {
  int before = c->nargs;
  if (!tensor_keyword(c, name, id)) return false;
  return c->nargs == before || want_axis(c, before, ax->k);
}

/* Behind q, k and v in the order of graph/OPS.md. */
static bool attend_more(Call *c, const ZgAttendAxes *ax) {
  bool two = ax->q != ax->k;
  if (!tensor_of_keys(c, "bias", false, ax)) return false;
  if (!two && keyword(c, "same_keys")) {
    ZlDiag *d = complain(c->e, ZL_Z0205, keyword(c, "same_keys")->span,
                         "`same_keys` is of keys that are another sequence than the queries");
    zl_help(d, "`attend[queries, keys, features](..)`, or `same` for both");
    return false;
  }
  int before = c->nargs;
  if (!tensor_keyword(c, "same", true)) return false;
  if (c->nargs > before && (!want_axis(c, before, ax->q) || (two && !keyword(c, "same_keys")))) {
    if (zg_type_has(&c->arg[before].type, ax->q))
      zl_help(complain(c->e, ZL_Z0205, c->span[before], "the keys have no documents for `same` to compare"),
              "add `same_keys = ` the documents of the keys, along `%s`", axis_name(c, ax->k));
    return false;
  }
  if (c->nargs == before && apart_same(c, ax, &c->arg[before])) c->span[c->nargs++] = c->x->span;
  if (!tensor_of_keys(c, "same_keys", true, ax)) return false;
  before = c->nargs;
  if (!tensor_keyword(c, "prefix", true)) return false;
  if (c->nargs > before &&
      (zg_type_has(&c->arg[before].type, ax->q) || zg_type_has(&c->arg[before].type, ax->k))) {
    complain(c->e, ZL_Z0202, c->span[before],
             "`prefix` of `attend` is a number of keys, without an axis of positions");
    return false;
  }
  before = c->nargs;
  if (!tensor_keyword(c, "sinks", false)) return false;
  if (c->nargs == before || !zg_type_has(&c->arg[before].type, ax->k)) return true;
  complain(c->e, ZL_Z0202, c->span[before], "`sinks` of `attend` are of heads, without an axis of positions");
  return false;
}

/* `mask`, which has no default, since the wrong one would be silent. */
static bool attend_mask(Call *c, int64_t *out) {
  static const char *const words[] = {"none", "causal", "prefix"};
  const ZlExpr *prefix = keyword(c, "prefix");
  int mask = -1;
  if (!keyword(c, "mask")) return word_keyword(c, "mask", "none", "causal", out);
  if (!choice_keyword(c, "mask", words, 3, &mask)) return false;
  *out = mask;
  if ((mask == 2) == (prefix != NULL)) return true;
  ZlDiag *d = complain(c->e, ZL_Z0205, prefix ? prefix->span : keyword(c, "mask")->span,
                       prefix ? "only `mask = prefix` has a `prefix`" : "`mask = prefix` needs a `prefix`");
  zl_help(d, prefix ? "write `mask = prefix`"
                    : "add `prefix = ` how many keys all see, for example along the batch");
  return false;
}

static bool attend_numbers(Call *c, ZgNode *n) {
  const ZlExpr *window = keyword(c, "window");
  if (!attend_mask(c, &n->opt[0]) || !size_keyword(c, "cap", &n->num[1])) return false;
  if (window && !static_int(c->e, window, 0, INT32_MAX, "window", &n->opt[1])) return false;
  int64_t h = axis_size(c, n->ax[1]);
  if (h) return number_keyword(c, "scale", 1 / sqrt((double)h), &n->num[0]);
  ZlDiag *d = complain(c->e, ZL_Z0209, c->x->call.axes.at[c->nax - 1].span,
                       "`attend` needs the size of `%s`, a data axis, which gets it from the recipe",
                       axis_name(c, n->ax[1]));
  zl_help(d, c->nax == 2 ? "name the axis of the features second: `attend[positions, features](q, k, v)`"
                         : "name the axis of the features last: `attend[queries, keys, features](q, k, v)`");
  return false;
}

Val attend_op(Call *c) {
  ZgAttendAxes ax = attend_axes(c);
  bool ok = true;
  for (int i = 0; i < 3; i++) ok = want_float(c, i) && ok;
  for (int i = 0; ok && i < 2; i++) ok = want_axis(c, i, i ? ax.k : ax.q) && want_axis(c, i, ax.h);
  ok = ok && attend_values(c, &ax);
  ZgNode n = {.op = ZG_OP_ATTEND, .nax = 2, .ax = {ax.q, ax.h}};
  if (ax.k != ax.q || ax.w != ax.h)
    n = (ZgNode){.op = ZG_OP_ATTEND, .nax = 4, .ax = {ax.q, ax.h, ax.k, ax.w}};
  ok = attend_numbers(c, &n) && ok;
  if (!ok || !attend_more(c, &ax)) return poison();
  n.nin = (uint8_t)c->nargs;
  return place_node(c->e, c->x->span, n, c->arg, NULL);
}

/* What a call of an operation gives, checked: operands, axes, keywords. See builtin.h. */
#include "compiler/builtin.h"

#include <math.h>
#include <string.h>

ZgNode with_axes(const Call *c, ZgOp op, int nin) {
  ZgNode n = {.op = (uint16_t)op, .nin = (uint8_t)nin, .nax = (uint8_t)c->nax};
  memcpy(n.ax, c->ax, sizeof n.ax);
  return n;
}

/* ---- pieces of messages -------------------------------------------------------------------------------- */
const char *head(const Call *c) {
  const char *s = c->op->name;
  for (int i = 0; i < c->nax; i++)
    s = zb_printf(c->e->arena, "%s%s%s", s, i ? ", " : "[", axis_name(c, c->ax[i]));
  return c->nax ? zb_printf(c->e->arena, "%s]", s) : s;
}

const char *operand(const Call *c, int i) {
  static const char *const ordinal[] = {"first", "second",  "third",  "fourth", "fifth",
                                        "sixth", "seventh", "eighth", "ninth"};
  if (c->name[i]) return zb_printf(c->e->arena, "`%s`", c->name[i]);
  if (c->nargs == 1) return "the operand";
  if (c->nargs == 2) return i ? "the right operand" : "the left operand";
  return zb_printf(c->e->arena, "the %s operand", ordinal[i]);
}

void also_declared(const Call *c, ZlDiag *d, int i) {
  int k = 0;
  for (uint32_t j = 0; j < c->x->call.nargs; j++) {
    const ZlArg *a = &c->x->call.args[j];
    if (a->name.s || k++ != i || a->value->kind != ZL_E_NAME) continue;
    Bind *b = name_find(c->e, a->value->name.s);
    if (b) zl_also(d, b->name.span, "`%s` is made here", b->name.s);
  }
}

/* ---- checks -------------------------------------------------------------------------------------------- */
bool want_axis(Call *c, int i, uint16_t axis) {
  if (zg_type_has(&c->arg[i].type, axis)) return true;
  ZlDiag *d = complain(c->e, ZL_Z0203, c->span[i], "`%s`: %s has no axis `%s`", head(c), operand(c, i),
                       axis_name(c, axis));
  zl_label(d, "%s", type_text(c->e, &c->arg[i].type));
  also_declared(c, d, i);
  return false;
}

bool want_axes(Call *c, int i) {
  for (int k = 0; k < c->nax; k++)
    if (!want_axis(c, i, c->ax[k])) return false;
  return true;
}

bool want_float(Call *c, int i) {
  c->arg[i] = val_tensor(c->e, c->span[i], c->arg[i], ZG_REAL);
  if (c->arg[i].kind == VAL_POISON) return false;
  if (is_float(&c->arg[i].type)) return true;
  ZlDiag *d = complain(c->e, ZL_Z0202, c->span[i], "`%s`: %s must be real", head(c), operand(c, i));
  zl_label(d, "%s", type_text(c->e, &c->arg[i].type));
  also_declared(c, d, i);
  return false;
}

bool want_index(Call *c, int i) {
  if (c->arg[i].kind == VAL_TENSOR && c->arg[i].type.elem == ZG_INDEX) return true;
  ZlDiag *d = complain(c->e, ZL_Z0202, c->span[i], "`%s`: %s must be an index", head(c), operand(c, i));
  if (c->arg[i].kind == VAL_TENSOR) zl_label(d, "%s", type_text(c->e, &c->arg[i].type));
  also_declared(c, d, i);
  return false;
}

/* ---- keywords ------------------------------------------------------------------------------------------ */
const ZlExpr *keyword(const Call *c, const char *name) {
  for (uint32_t i = 0; i < c->x->call.nargs; i++)
    if (c->x->call.args[i].name.s && !strcmp(c->x->call.args[i].name.s, name))
      return c->x->call.args[i].value;
  return NULL;
}

bool number_keyword(Call *c, const char *name, double otherwise, double *out) {
  const ZlExpr *x = keyword(c, name);
  Num v;
  *out = otherwise;
  if (!x) return true;
  if (!static_eval(c->e, x, &v) || !static_fits(c->e, x->span, v)) return false;
  if (!v.assumed) *out = v.v;
  return true;
}

bool word_keyword(Call *c, const char *name, const char *zero, const char *one, int64_t *out) {
  const ZlExpr *x = keyword(c, name);
  if (!x) {
    ZlDiag *d = complain(c->e, ZL_Z0205, c->x->call.path.span, "`%s` needs `%s = %s` or `%s = %s`",
                         c->op->name, name, one, name, zero);
    zl_help(d, "add `%s = %s`", name, one);
    return false;
  }
  if (x->kind == ZL_E_NAME && (!strcmp(x->name.s, zero) || !strcmp(x->name.s, one))) {
    *out = !strcmp(x->name.s, one);
    return true;
  }
  const char *words[] = {zero, one};
  const char *near = x->kind == ZL_E_NAME ? zb_nearest(x->name.s, words, 2) : NULL;
  ZlDiag *d = complain(c->e, ZL_Z0205, x->span, "`%s` of `%s` is `%s` or `%s`", name, c->op->name, one, zero);
  if (near) zl_help(d, "did you mean `%s`?", near);
  return false;
}

bool choice_keyword(Call *c, const char *name, const char *const *words, int n, int *out) {
  const ZlExpr *x = keyword(c, name);
  for (int i = 0; x && i < n; i++) {
    if (x->kind != ZL_E_NAME || strcmp(x->name.s, words[i])) continue;
    *out = i;
    return true;
  }
  if (!x) return true;
  const char *all = zb_printf(c->e->arena, "`%s`", words[0]);
  for (int i = 1; i < n; i++)
    all = zb_printf(c->e->arena, "%s%s `%s`", all, i + 1 < n ? "," : " or", words[i]);
  const char *near = x->kind == ZL_E_NAME ? zb_nearest(x->name.s, words, (size_t)n) : NULL;
  ZlDiag *d = complain(c->e, ZL_Z0205, x->span, "`%s` of `%s` is %s", name, c->op->name, all);
  if (near) zl_help(d, "did you mean `%s`?", near);
  return false;
}

bool number_or_none(Call *c, const char *name, double any, double *out) {
  *out = NAN;
  return !keyword(c, name) || number_keyword(c, name, any, out);
}

/* "`a`, `b` and `c`" */
static const char *listed(const Call *c, const char *const *names, size_t n) {
  const char *s = zb_printf(c->e->arena, "`%s`", names[0]);
  for (size_t i = 1; i < n; i++)
    s = zb_printf(c->e->arena, "%s%s `%s`", s, i + 1 < n ? "," : " and", names[i]);
  return s;
}

/* With the operation's name where `format` has `%s`. */
static const char *filled(const Call *c, const char *format) {
  const char *at = strstr(format, "%s");
  if (!at) return format;
  return zb_printf(c->e->arena, "%.*s%s%s", (int)(at - format), format, c->op->name, at + 2);
}

bool known_keywords(Call *c) {
  const char *names[16];
  size_t n = 0;
  for (const char *p = c->op->keywords; p && *p;) {
    const char *comma = strchr(p, ',');
    size_t len = comma ? (size_t)(comma - p) : strlen(p);
    names[n++] = zb_strndup(c->e->arena, p, len);
    p += len + (comma != NULL);
  }
  bool ok = true;
  for (uint32_t i = 0; i < c->x->call.nargs; i++) {
    ZlName k = c->x->call.args[i].name;
    bool known = !k.s;
    for (size_t j = 0; j < n && k.s; j++) known |= !strcmp(names[j], k.s);
    if (known) continue;
    ZlDiag *d = complain(c->e, ZL_Z0205, k.span, "`%s` has no keyword `%s`", c->op->name, k.s);
    const char *near = zb_nearest(k.s, names, n), *torch = near ? NULL : zl_torch_keyword(k.s);
    if (near) zl_help(d, "did you mean `%s`?", near);
    else if (torch) zl_help(d, "%s", filled(c, torch));
    else if (n == 1) zl_help(d, "its keyword is `%s`", names[0]);
    else if (n) zl_help(d, "its keywords are %s", listed(c, names, n));
    ok = false;
  }
  return ok;
}

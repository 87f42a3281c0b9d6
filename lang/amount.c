/* Numbers of recipes: arithmetic on numbers and sizes of axes, and numbers that change from step to step. */
#include "lang/ast.h"
#include "lang/words.h"

#include <math.h>
#include <string.h>

/* ---- arithmetic ---- */
static const struct {
  const char *name;
  double (*of)(double);
} functions[] = {{"sqrt", sqrt}, {"exp", exp}, {"log", log}, {"floor", floor}, {"ceil", ceil}, {"abs", fabs}};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

static bool value_of(const ZlSizes *s, const ZlExpr *x, double *out);

static bool call_value(const ZlSizes *s, const ZlExpr *x, double *out) {
  const char *name = x->call.path.part[0].s, *names[FUNCTIONS];
  double arg;
  for (int i = 0; i < FUNCTIONS; i++) {
    names[i] = functions[i].name;
    if (strcmp(name, names[i])) continue;
    if (x->call.nargs != 1) {
      zl_report(s->d, ZL_Z0805, x->span, "`%s` takes one number, found %u", name, x->call.nargs);
      return false;
    }
    if (!value_of(s, x->call.args[0].value, &arg)) return false;
    *out = functions[i].of(arg);
    return true;
  }
  ZlDiag *g = zl_report(s->d, ZL_Z0805, x->span, "recipes have no function `%s`", name);
  zl_note(g, "there are `sqrt`, `exp`, `log`, `floor`, `ceil` and `abs`");
  zl_help_nearest(g, name, names, FUNCTIONS);
  return false;
}

static bool binary_value(const ZlSizes *s, const ZlExpr *x, double *out) {
  double a, b;
  if (!value_of(s, x->bin.a, &a) || !value_of(s, x->bin.b, &b)) return false;
  switch (x->bin.op) {
  case '+': *out = a + b; return true;
  case '-': *out = a - b; return true;
  case '*': *out = a * b; return true;
  case '/': *out = a / b; return true;
  default:
    zl_report(s->d, ZL_Z0805, x->span, "a number is needed here, and `%s` makes none",
              zl_operator_text(x->bin.op));
    return false;
  }
}

static bool value_of(const ZlSizes *s, const ZlExpr *x, double *out) {
  switch (x->kind) {
  case ZL_E_NUM: *out = x->num.value; return true;
  case ZL_E_NAME: return s->size(s, x->name, out);
  case ZL_E_NEG:
    if (!value_of(s, x->bin.a, out)) return false;
    *out = -*out;
    return true;
  case ZL_E_BIN: return binary_value(s, x, out);
  case ZL_E_CALL: return call_value(s, x, out);
  default: zl_report(s->d, ZL_Z0805, x->span, "a number is needed here"); return false;
  }
}

bool zl_value(const ZlSizes *s, const ZlExpr *x, double *out) {
  if (zl_too_deep(s->d, x) || !value_of(s, x, out)) return false;
  if (isfinite(*out)) return true;
  zl_report(s->d, ZL_Z0805, x->span, "this has no value");
  return false;
}

/* Says whether sizes of a model are in it, without which it has no number. */
static bool has_names(const ZlExpr *x) {
  switch (x->kind) {
  case ZL_E_NAME: return true;
  case ZL_E_NEG:
  case ZL_E_NOT: return has_names(x->bin.a);
  case ZL_E_BIN: return has_names(x->bin.a) || has_names(x->bin.b);
  case ZL_E_CALL:
    for (uint32_t i = 0; i < x->call.nargs; i++)
      if (has_names(x->call.args[i].value)) return true;
    return false;
  default: return false;
  }
}

/* ---- amounts ---- */
static bool no_sizes(const ZlSizes *s, ZlName name, double *out) {
  (void)out;
  zl_help(zl_report(s->d, ZL_Z0805, name.span, "`%s` stands where only numbers may", name.s),
          "sizes of axes may stand in the first number, `lr = 0.02 / sqrt(embed / 768)`");
  return false;
}

static bool phases(ZlDiags *d, ZbArena *a, const ZlAmountAst *x, ZlAmount *out) {
  const ZlSizes none = {d, no_sizes, NULL};
  for (uint32_t i = 0; i < x->n; i++) {
    ZlPhase p;
    if (!zl_value(&none, x->to[i], &p.to) || !zl_value(&none, x->over[i], &p.over)) return false;
    if (!(p.over >= 1 && p.over <= INT32_MAX && p.over == floor(p.over))) {
      zl_help(zl_report(d, ZL_Z0805, x->over[i]->span, "a number changes over a whole number of steps"),
              "write, say, `0.85 to 0.95 over 300`");
      return false;
    }
    ZB_PUSH(a, out->then, out->nthen, p);
  }
  return true;
}

bool zl_amount(ZlDiags *d, ZbArena *a, const ZlAmountAst *x, ZlAmount *out) {
  const ZlSizes none = {d, no_sizes, NULL};
  *out = (ZlAmount){0};
  if (x->first->depth <= ZL_MAX_NESTING && has_names(x->first)) out->of = x->first;
  else if (!zl_value(&none, x->first, &out->num)) return false;
  return phases(d, a, x, out);
}

double zl_amount_at(const ZlAmount *x, int64_t step) {
  double from = x->num, at = (double)(step - 1);
  for (uint32_t i = 0; i < x->nthen; i++) {
    const ZlPhase *p = &x->then[i];
    if (at < p->over) return from + (p->to - from) * (at / p->over);
    at -= p->over;
    from = p->to;
  }
  return from;
}

double zl_amount_most(const ZlAmount *x) {
  double most = x->num;
  for (uint32_t i = 0; i < x->nthen; i++) most = fmax(most, x->then[i].to);
  return most;
}

double zl_amount_least(const ZlAmount *x) {
  double least = x->num;
  for (uint32_t i = 0; i < x->nthen; i++) least = fmin(least, x->then[i].to);
  return least;
}

bool zl_amount_same(const ZlAmount *x, const ZlAmount *y) {
  bool same = x->num == y->num && x->nthen == y->nthen;
  for (uint32_t i = 0; same && i < x->nthen; i++)
    same = x->then[i].to == y->then[i].to && x->then[i].over == y->then[i].over;
  return same;
}

void zl_amount_put(ZbText *out, const ZlAmount *x, bool whole) {
  if (x->of) {
    ZbText of = {0};
    zl_put_expr(&of, x->of);
    bool has = *of.s == '('; /* that of an operator has its own */
    if (has && whole) zb_text_put(out, of.s + 1, of.len - 2);
    else zb_text_add(out, has || whole ? "%s" : "(%s)", of.s);
    zb_text_free(&of);
  } else {
    zb_text_number(out, x->num);
  }
  for (uint32_t i = 0; i < x->nthen; i++) {
    zb_text_add(out, " to ");
    zb_text_number(out, x->then[i].to);
    zb_text_add(out, " over ");
    zb_text_number(out, x->then[i].over);
  }
}

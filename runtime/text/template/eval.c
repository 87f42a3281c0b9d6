/* Expressions of a template are evaluated, as Jinja's sandbox does it in Python. */
#include "runtime/text/template/inside.h"

#include <math.h>

/* ---- names, attributes, items ---------------------------------------------------------------- */
static const char *shown_name(const char *s) { return s ? zb_show(s) : "?"; }

static ZtValue name_of(ZtRun *r, const ZtNode *x) {
  ZtValue v;
  const char *s = r->t->names.name[x->name];
  if (zt_lookup(r, x->name, &v)) return v;
  const ZtBuiltin *f = zt_function(s);
  return f ? (ZtValue){.kind = ZT_FUNCTION, .function = f} : zt_undefined(s);
}

static ZtValue of_loop(const ZtLoop *l, const char *name) {
  size_t n = l->list->n, at = l->at;
  const struct {
    const char *name;
    ZtValue v;
  } known[] = {{"index", zt_int((int64_t)at + 1)},
               {"index0", zt_int((int64_t)at)},
               {"revindex", zt_int((int64_t)(n - at))},
               {"revindex0", zt_int((int64_t)(n - at) - 1)},
               {"first", zt_bool(!at)},
               {"last", zt_bool(at + 1 == n)},
               {"length", zt_int((int64_t)n)},
               {"depth", zt_int(1)}, /* of loops that call themselves */
               {"depth0", zt_int(0)},
               {"previtem", at ? l->list->item[at - 1] : zt_undefined("previtem")},
               {"nextitem", at + 1 < n ? l->list->item[at + 1] : zt_undefined("nextitem")}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(name, known[i].name)) return known[i].v;
  return zt_undefined(name);
}

static ZtValue undefined_has(ZtRun *r, ZtValue v) {
  return zt_wrong(r, "`%s` is undefined", shown_name(v.name));
}

ZtValue zt_get_attribute(ZtRun *r, ZtValue of, const char *name) {
  ZtValue v;
  const ZtValue *item = NULL;
  if (r->failed) return zt_undefined(NULL);
  if (of.kind == ZT_UNDEFINED) return undefined_has(r, of);
  if (of.kind == ZT_NAMESPACE) item = zt_dict_named(of.d, name);
  else if (of.kind == ZT_LOOP) {
    v = of_loop(of.loop, name);
    if (v.kind != ZT_UNDEFINED) return v;
  }
  if (item) return *item;
  if (zt_method(r, of, name, &v)) return v; /* before a key of the same name, as Jinja has it */
  if (of.kind == ZT_DICT) item = zt_dict_named(of.d, name);
  return item ? *item : zt_undefined(name);
}

/* The place of an index; false: there is none. */
static bool place(int64_t i, size_t n, size_t *at) {
  if (i < 0) i += (int64_t)n;
  *at = (size_t)i;
  return i >= 0 && (uint64_t)i < n;
}

ZtValue zt_get_item(ZtRun *r, ZtValue of, ZtValue key) {
  size_t at, n;
  ZtValue v;
  bool whole = key.kind == ZT_INT || key.kind == ZT_BOOL;
  if (r->failed) return zt_undefined(NULL);
  if (of.kind == ZT_UNDEFINED) return undefined_has(r, of);
  if (of.kind == ZT_DICT) {
    const ZtValue *item = zt_dict_find(r, of.d, key);
    if (item) return *item;
  } else if ((of.kind == ZT_LIST || of.kind == ZT_TUPLE) && whole) {
    if (place(zt_as_int(key), of.l->n, &at)) return of.l->item[at];
  } else if (of.kind == ZT_STRING && whole && zt_step(r, of.s->n)) {
    if (!place(zt_as_int(key), n = zt_chars(of.s), &at)) return zt_undefined(NULL);
    at = zt_char_at(of.s, at);
    return zt_part(r, of.s, at, at + zt_char_bytes((uint8_t)of.s->s[at]));
  }
  if (key.kind != ZT_STRING) return zt_undefined(NULL);
  if (zt_method(r, of, key.s->s, &v)) return v; /* Jinja looks for an attribute then */
  return of.kind == ZT_NAMESPACE || of.kind == ZT_LOOP ? zt_get_attribute(r, of, key.s->s)
                                                       : zt_undefined(key.s->s);
}

ZtValue zt_get_path(ZtRun *r, ZtValue of, ZtValue path) {
  if (path.kind != ZT_STRING) return zt_get_item(r, of, path);
  const char *s = path.s->s, *end = s + path.s->n;
  for (bool more = true; more && !r->failed;) {
    const char *dot = memchr(s, '.', (size_t)(end - s));
    size_t n = (size_t)((dot ? dot : end) - s), digits = 0;
    int64_t i = 0;
    while (digits < n && s[digits] >= '0' && s[digits] <= '9' && digits < 10)
      i = i * 10 + (s[digits++] - '0');
    ZtValue key = n && digits == n ? zt_int(i) : zt_text_n(r, s, n, 0);
    of = zt_get_item(r, of, key);
    more = dot;
    s = dot ? dot + 1 : end;
  }
  return of;
}

/* ---- slices ---------------------------------------------------------------------------------- */
static int64_t clip(int64_t i, int64_t least, int64_t most) {
  return i < least ? least : i > most ? most : i;
}

static bool bound(ZtRun *r, const ZtNode *x, int64_t *out, bool *there) {
  ZtValue v = x ? zt_eval(r, x) : zt_none();
  *there = v.kind != ZT_NULL;
  if (v.kind == ZT_INT || v.kind == ZT_BOOL) *out = zt_as_int(v);
  else if (*there) zt_wrong(r, "%s in a slice; expected a whole number", zt_kind(v));
  return !r->failed;
}

/* Items begin, begin + step ... of n, `count` of them, as Python has it. */
static bool bounds(ZtRun *r, const ZtNode *x, int64_t n, int64_t *begin, int64_t *step, size_t *count) {
  int64_t end;
  bool has_begin, has_end, has_step;
  if (!bound(r, x->list[0], begin, &has_begin) || !bound(r, x->list[1], &end, &has_end) ||
      !bound(r, x->list[2], step, &has_step))
    return false;
  if (!has_step) *step = 1;
  if (!*step) {
    zt_wrong(r, "a slice with a step of 0");
    return false;
  }
  bool down = *step < 0;
  int64_t least = down ? -1 : 0, most = down ? n - 1 : n;
  *begin = !has_begin ? (down ? most : 0) : clip(*begin < 0 ? *begin + n : *begin, least, most);
  end = !has_end ? (down ? -1 : n) : clip(end < 0 ? end + n : end, least, most);
  uint64_t span =
      down ? (*begin > end ? (uint64_t)(*begin - end) : 0) : (end > *begin ? (uint64_t)(end - *begin) : 0);
  uint64_t stride = down ? 0 - (uint64_t)*step : (uint64_t)*step;
  *count = (size_t)(span / stride + (span % stride != 0));
  return true;
}

static ZtValue slice_text(ZtRun *r, const ZtNode *x, const ZtString *s) {
  int64_t begin, step;
  size_t n;
  ZtList chars;
  ZtMade m = {0};
  if (!zt_step(r, 2 * s->n) || !bounds(r, x, (int64_t)zt_chars(s), &begin, &step, &n))
    return zt_undefined(NULL);
  if (step == 1) {
    size_t from = zt_char_at(s, (size_t)begin);
    ZtString rest = {.s = s->s + from, .n = s->n - from};
    return zt_part(r, s, from, from + zt_char_at(&rest, n));
  }
  if (!zt_items(r, (ZtValue){.kind = ZT_STRING, .s = s}, &chars)) return zt_undefined(NULL);
  for (size_t i = 0; i < n && !r->failed; i++, begin += step) zt_put_string(r, &m, chars.item[begin].s);
  return zt_made(r, &m);
}

static ZtValue slice(ZtRun *r, const ZtNode *x) {
  ZtValue v = zt_eval(r, x->a);
  int64_t begin, step;
  size_t n;
  if (r->failed) return v;
  if (v.kind == ZT_UNDEFINED) return undefined_has(r, v);
  if (v.kind == ZT_STRING) return slice_text(r, x, v.s);
  if (v.kind != ZT_LIST && v.kind != ZT_TUPLE) return zt_undefined(NULL);
  if (!bounds(r, x, (int64_t)v.l->n, &begin, &step, &n)) return zt_undefined(NULL);
  if (step == 1) return zt_list(r, v.kind, v.l->item + begin, n);
  ZtValue *item = zt_take(r, n, sizeof *item);
  for (size_t i = 0; item && i < n; i++, begin += step) item[i] = v.l->item[begin];
  return zt_list(r, v.kind, item, n);
}

/* ---- arithmetic ------------------------------------------------------------------------------ */
static ZtValue no_arithmetic(ZtRun *r, ZtOp op, ZtValue a, ZtValue b) {
  static const char *const signs[] = {"?", "+", "-", "*", "/", "//", "%", "**"};
  if (a.kind == ZT_UNDEFINED) return undefined_has(r, a);
  if (b.kind == ZT_UNDEFINED) return undefined_has(r, b);
  return zt_wrong(r, "%s %s %s has no value", zt_kind(a), signs[op], zt_kind(b));
}

static ZtValue power(ZtRun *r, int64_t a, int64_t n) {
  int64_t x = 1;
  for (bool over = false; n > 0 && !over; n >>= 1) {
    if (n & 1) over = __builtin_mul_overflow(x, a, &x);
    if (n > 1) over |= __builtin_mul_overflow(a, a, &a);
    if (over) return zt_wrong(r, "a number above 2^63");
  }
  return zt_int(x);
}

static ZtValue whole(ZtRun *r, ZtOp op, int64_t a, int64_t b) {
  int64_t x = 0;
  bool over = false;
  if ((op == ZT_DIV || op == ZT_FLOOR || op == ZT_MOD) && !b) return zt_wrong(r, "a division by 0");
  if (b == -1 && (op == ZT_FLOOR || op == ZT_MOD)) {
    if (op == ZT_MOD) return zt_int(0);
    over = __builtin_sub_overflow(0, a, &x);
  } else {
    switch (op) {
    case ZT_ADD: over = __builtin_add_overflow(a, b, &x); break;
    case ZT_SUB: over = __builtin_sub_overflow(a, b, &x); break;
    case ZT_MUL: over = __builtin_mul_overflow(a, b, &x); break;
    case ZT_DIV: return zt_float((double)a / (double)b);
    case ZT_FLOOR: x = a / b - (a % b && (a % b < 0) != (b < 0)); break;
    case ZT_MOD: x = a % b + (a % b && (a % b < 0) != (b < 0) ? b : 0); break;
    default: return b < 0 ? zt_float(pow((double)a, (double)b)) : power(r, a, b);
    }
  }
  return over ? zt_wrong(r, "a number above 2^63") : zt_int(x);
}

static ZtValue real(ZtRun *r, ZtOp op, double a, double b) {
  if ((op == ZT_DIV || op == ZT_FLOOR || op == ZT_MOD) && b == 0) return zt_wrong(r, "a division by 0");
  double rest = op == ZT_MOD ? fmod(a, b) : 0;
  switch (op) {
  case ZT_ADD: return zt_float(a + b);
  case ZT_SUB: return zt_float(a - b);
  case ZT_MUL: return zt_float(a * b);
  case ZT_DIV: return zt_float(a / b);
  case ZT_FLOOR: return zt_float(floor(a / b));
  case ZT_MOD: return zt_float(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
  default: return zt_float(pow(a, b));
  }
}

static ZtValue repeat(ZtRun *r, ZtValue v, int64_t times) {
  if (times < 0) times = 0;
  if (v.kind == ZT_STRING) {
    ZtMade m = {0};
    if (v.s->n)
      for (int64_t i = 0; i < times && !r->failed; i++) zt_put_string(r, &m, v.s);
    return zt_made(r, &m);
  }
  uint64_t n;
  if (!zb_mul_u64(v.l->n, (uint64_t)times, &n)) n = UINT64_MAX;
  ZtValue *item = zt_take(r, n, sizeof *item);
  for (uint64_t i = 0; item && i < n; i++) item[i] = v.l->item[i % v.l->n];
  return zt_list(r, v.kind, item, item ? n : 0);
}

static ZtValue join_two(ZtRun *r, ZtValue a, ZtValue b) {
  if (a.kind == ZT_STRING) {
    ZtMade m = {0};
    zt_put_string(r, &m, a.s);
    zt_put_string(r, &m, b.s);
    return zt_made(r, &m);
  }
  ZtValue *item = zt_take(r, a.l->n + b.l->n, sizeof *item);
  if (!item) return zt_undefined(NULL);
  if (a.l->n) memcpy(item, a.l->item, a.l->n * sizeof *item);
  if (b.l->n) memcpy(item + a.l->n, b.l->item, b.l->n * sizeof *item);
  return zt_list(r, a.kind, item, a.l->n + b.l->n);
}

ZtValue zt_arithmetic(ZtRun *r, ZtOp op, ZtValue a, ZtValue b) {
  if (r->failed) return zt_undefined(NULL);
  bool texts = a.kind == ZT_STRING || a.kind == ZT_LIST || a.kind == ZT_TUPLE;
  if (zt_is_number(a) && zt_is_number(b))
    return a.kind == ZT_FLOAT || b.kind == ZT_FLOAT ? real(r, op, zt_as_double(a), zt_as_double(b))
                                                    : whole(r, op, zt_as_int(a), zt_as_int(b));
  if (op == ZT_ADD && texts && a.kind == b.kind) return join_two(r, a, b);
  if (op == ZT_MUL && texts && (b.kind == ZT_INT || b.kind == ZT_BOOL)) return repeat(r, a, zt_as_int(b));
  if (op == ZT_MUL && (b.kind == ZT_STRING || b.kind == ZT_LIST || b.kind == ZT_TUPLE) &&
      (a.kind == ZT_INT || a.kind == ZT_BOOL))
    return repeat(r, b, zt_as_int(a));
  if (op == ZT_MOD && a.kind == ZT_STRING) return zt_format_percent(r, a.s, b);
  return no_arithmetic(r, op, a, b);
}

/* ---- comparisons ----------------------------------------------------------------------------- */
static bool contains(ZtRun *r, ZtValue in, ZtValue x) {
  if (in.kind == ZT_STRING) {
    if (x.kind != ZT_STRING) {
      zt_wrong(r, "%s is sought in a string; expected a string", zt_kind(x));
      return false;
    }
    return zt_step(r, in.s->n) && zt_find(in.s, x.s, 0) != SIZE_MAX;
  }
  if (in.kind == ZT_DICT) return zt_dict_find(r, in.d, x) != NULL;
  ZtList l;
  if (!zt_items(r, in, &l)) return false;
  for (size_t i = 0; i < l.n && zt_step(r, 0); i++)
    if (zt_equal(r, l.item[i], x)) return true;
  return false;
}

bool zt_compare(ZtRun *r, ZtOp op, ZtValue a, ZtValue b) {
  if (r->failed) return false;
  switch (op) {
  case ZT_EQ: return zt_equal(r, a, b);
  case ZT_NE: return !zt_equal(r, a, b);
  case ZT_LT: return zt_order(r, a, b) < 0;
  case ZT_LE: return zt_order(r, a, b) <= 0;
  case ZT_GT: return zt_order(r, a, b) > 0;
  case ZT_GE: return zt_order(r, a, b) >= 0;
  case ZT_IN: return contains(r, b, a);
  case ZT_NOT_IN: return !contains(r, b, a);
  default: ZB_BUG("comparison %d", op);
  }
}

static ZtValue compare(ZtRun *r, const ZtNode *x) {
  ZtValue a = zt_eval(r, x->list[0]);
  for (uint32_t i = 1; i < x->n && !r->failed; i++) {
    ZtValue b = zt_eval(r, x->list[i]);
    if (!zt_compare(r, (ZtOp)x->ops[i - 1], a, b)) return zt_bool(false);
    a = b;
  }
  return zt_bool(true);
}

/* ---- calls ----------------------------------------------------------------------------------- */
ZtGiven zt_eval_given(ZtRun *r, const ZtNode *x) {
  ZtValue *v = x->n ? zt_take(r, x->n, sizeof *v) : NULL;
  for (uint32_t i = 0; v && i < x->n; i++) v[i] = zt_eval(r, x->list[i]);
  return (ZtGiven){v, x->names, v ? x->n : 0};
}

ZtValue zt_call(ZtRun *r, ZtValue f, const ZtGiven *given, ZtValue caller) {
  if (r->failed) return zt_undefined(NULL);
  switch (f.kind) {
  case ZT_MACRO: return zt_call_macro(r, f.macro, given, caller);
  case ZT_FUNCTION: return zt_invoke(r, f.function, zt_undefined(NULL), given);
  case ZT_METHOD:
    if (f.method->of) return zt_invoke(r, f.method->of, f.method->self, given);
    return zt_wrong(r, "the method .%s() of %s is not supported", f.method->name, zt_kind(f.method->self));
  case ZT_UNDEFINED: return undefined_has(r, f);
  default: return zt_wrong(r, "%s is called; it is not a function", zt_kind(f));
  }
}

ZtValue zt_invoke(ZtRun *r, const ZtBuiltin *of, ZtValue self, const ZtGiven *given) {
  enum { MOST = sizeof of->parameters / sizeof *of->parameters };
  ZtValue arg[MOST];
  uint32_t n = 0;
  if (r->failed || !zt_step(r, 0)) return zt_undefined(NULL);
  if (of->parameters[0] && !strcmp(of->parameters[0], "*")) return of->code(r, of, self, NULL, given);
  while (n < MOST && of->parameters[n]) arg[n++].kind = ZT_ABSENT;
  for (uint32_t i = 0; given && i < given->n; i++) {
    uint32_t at = i;
    const char *name = given->names[i] == ZB_NO_NAME ? NULL : r->t->names.name[given->names[i]];
    if (name)
      for (at = 0; at < n && strcmp(of->parameters[at], name);) at++;
    if (at >= n && name) return zt_wrong(r, "%s has no argument `%s`", of->name, zb_show(name));
    if (at >= n) return zt_wrong(r, "%s is given more than its %u arguments", of->name, n);
    if (arg[at].kind != ZT_ABSENT) return zt_wrong(r, "%s is given `%s` twice", of->name, of->parameters[at]);
    arg[at] = given->v[i];
  }
  for (uint32_t i = 0; i < of->must; i++)
    if (arg[i].kind == ZT_ABSENT)
      return zt_wrong(r, "%s is not given its argument `%s`", of->name, of->parameters[i]);
  return of->code(r, of, self, arg, given);
}

/* ---- all kinds ------------------------------------------------------------------------------- */
static ZtValue make(ZtRun *r, const ZtNode *x) {
  ZtValue *item = zt_take(r, x->n, sizeof *item);
  for (uint32_t i = 0; item && i < x->n; i++) item[i] = zt_eval(r, x->list[i]);
  return zt_list(r, x->kind == ZT_MAKE_LIST ? ZT_LIST : ZT_TUPLE, item, item ? x->n : 0);
}

static ZtValue make_dict(ZtRun *r, const ZtNode *x) {
  ZtDict *d = zt_dict_new(r, x->n / 2);
  for (uint32_t i = 0; d && i + 1 < x->n && !r->failed; i += 2) {
    ZtValue key = zt_eval(r, x->list[i]);
    if (key.kind == ZT_LIST || key.kind == ZT_DICT) return zt_wrong(r, "%s as a key of a dict", zt_kind(key));
    zt_dict_put(r, d, key, zt_eval(r, x->list[i + 1]));
  }
  return d ? (ZtValue){.kind = ZT_DICT, .d = d} : zt_undefined(NULL);
}

static ZtValue concat(ZtRun *r, const ZtNode *x) {
  ZtMade m = {0};
  for (uint32_t i = 0; i < x->n && !r->failed; i++) zt_put_str(r, &m, zt_eval(r, x->list[i]));
  return zt_made(r, &m);
}

static ZtValue choose(ZtRun *r, const ZtNode *x) {
  if (zt_truth(zt_eval(r, x->list[0]))) return r->failed ? zt_undefined(NULL) : zt_eval(r, x->list[1]);
  return x->list[2] && !r->failed ? zt_eval(r, x->list[2]) : zt_undefined(NULL);
}

static ZtValue negative(ZtRun *r, const ZtNode *x) {
  ZtValue v = zt_eval(r, x->a);
  if (v.kind == ZT_FLOAT) return x->kind == ZT_NEGATIVE ? zt_float(-v.f) : v;
  if (zt_is_number(v))
    return x->kind == ZT_NEGATIVE ? whole(r, ZT_SUB, 0, zt_as_int(v)) : zt_int(zt_as_int(v));
  if (v.kind == ZT_UNDEFINED) return r->failed ? v : undefined_has(r, v);
  return zt_wrong(r, "a sign before %s", zt_kind(v));
}

static ZtValue logic(ZtRun *r, const ZtNode *x) {
  ZtValue a = zt_eval(r, x->a);
  if (r->failed) return a;
  if (x->kind == ZT_NOT) return zt_bool(!zt_truth(a));
  return zt_truth(a) == (x->kind == ZT_AND) ? zt_eval(r, x->b) : a;
}

static ZtValue any(ZtRun *r, const ZtNode *x) {
  ZtValue v;
  ZtGiven given;
  switch (x->kind) {
  case ZT_CONST: return x->value;
  case ZT_NAME: return name_of(r, x);
  case ZT_CAUGHT: return r->caught;
  case ZT_MAKE_LIST:
  case ZT_MAKE_TUPLE: return make(r, x);
  case ZT_MAKE_DICT: return make_dict(r, x);
  case ZT_ATTRIBUTE: return zt_get_attribute(r, zt_eval(r, x->a), x->value.s->s);
  case ZT_ITEM: v = zt_eval(r, x->a); return zt_get_item(r, v, zt_eval(r, x->b));
  case ZT_SLICE: return slice(r, x);
  case ZT_CALL:
    v = zt_eval(r, x->a);
    given = zt_eval_given(r, x);
    return zt_call(r, v, &given, zt_undefined("caller"));
  case ZT_FILTER:
    v = zt_eval(r, x->a);
    given = zt_eval_given(r, x);
    return zt_invoke(r, x->of, v, &given);
  case ZT_TEST:
    v = zt_eval(r, x->a);
    given = zt_eval_given(r, x);
    return zt_bool(zt_holds(r, x->of, v, &given));
  case ZT_AND:
  case ZT_OR:
  case ZT_NOT: return logic(r, x);
  case ZT_NEGATIVE:
  case ZT_POSITIVE: return negative(r, x);
  case ZT_ARITHMETIC: v = zt_eval(r, x->a); return zt_arithmetic(r, (ZtOp)x->op, v, zt_eval(r, x->b));
  case ZT_COMPARE: return compare(r, x);
  case ZT_CONCAT: return concat(r, x);
  case ZT_CHOOSE: return choose(r, x);
  default: ZB_BUG("an expression of kind %d", x->kind);
  }
}

ZtValue zt_eval(ZtRun *r, const ZtNode *x) {
  if (!zt_step(r, 0) || !zt_deeper(r)) return zt_undefined(NULL);
  uint32_t line = r->line;
  r->line = x->line;
  ZtValue v = any(r, x);
  if (!r->failed) r->line = line;
  r->depth--;
  return v;
}

/* Tests (`x is string`) and functions that templates may call. */
#include "runtime/text/template/inside.h"

#include <time.h>

/* ---- tests ----------------------------------------------------------------------------------- */
#define TEST(name)                                                                                           \
  static ZtValue name(ZtRun *r, const ZtBuiltin *of, ZtValue x, const ZtValue *arg, const ZtGiven *given)
#define IS(condition) return (void)r, (void)of, (void)x, (void)arg, (void)given, zt_bool(condition)

static bool listed(ZtValue v) {
  return v.kind == ZT_STRING || v.kind == ZT_LIST || v.kind == ZT_TUPLE || v.kind == ZT_DICT ||
         v.kind == ZT_UNDEFINED;
}
static bool called(ZtValue v) { return v.kind == ZT_MACRO || v.kind == ZT_FUNCTION || v.kind == ZT_METHOD; }

TEST(t_defined) { IS(x.kind != ZT_UNDEFINED); }
TEST(t_undefined) { IS(x.kind == ZT_UNDEFINED); }
TEST(t_none) { IS(x.kind == ZT_NULL); }
TEST(t_boolean) { IS(x.kind == ZT_BOOL); }
TEST(t_true) { IS(x.kind == ZT_BOOL && x.b); }
TEST(t_false) { IS(x.kind == ZT_BOOL && !x.b); }
TEST(t_integer) { IS(x.kind == ZT_INT); }
TEST(t_float) { IS(x.kind == ZT_FLOAT); }
TEST(t_number) { IS(zt_is_number(x)); }
TEST(t_string) { IS(x.kind == ZT_STRING); }
TEST(t_mapping) { IS(x.kind == ZT_DICT); }
TEST(t_iterable) { IS(listed(x) || x.kind == ZT_LOOP); }
TEST(t_sequence) { IS(listed(x)); }
TEST(t_callable) { IS(called(x) || x.kind == ZT_UNDEFINED); }
TEST(t_escaped) { IS(false); }
TEST(t_lower) {
  IS(x.kind == ZT_STRING && x.s->n && zt_equal(r, x, zt_recase(r, x.s, ZT_LOWER)) &&
     !zt_equal(r, x, zt_recase(r, x.s, ZT_UPPER)));
}
TEST(t_upper) {
  IS(x.kind == ZT_STRING && x.s->n && zt_equal(r, x, zt_recase(r, x.s, ZT_UPPER)) &&
     !zt_equal(r, x, zt_recase(r, x.s, ZT_LOWER)));
}
TEST(t_filter) { IS(x.kind == ZT_STRING && zt_filter(x.s->s)); }
TEST(t_test) { IS(x.kind == ZT_STRING && zt_test(x.s->s)); }
TEST(t_sameas) { IS(x.kind == arg[0].kind && x.kind != ZT_UNDEFINED && zt_equal(r, x, arg[0])); }

static ZtValue rest(ZtRun *r, ZtValue x, ZtValue by) { return zt_arithmetic(r, ZT_MOD, x, by); }
TEST(t_odd) { IS(zt_equal(r, rest(r, x, zt_int(2)), zt_int(1))); }
TEST(t_even) { IS(zt_equal(r, rest(r, x, zt_int(2)), zt_int(0))); }
TEST(t_divisible) { IS(zt_equal(r, rest(r, x, arg[0]), zt_int(0))); }
TEST(t_eq) { IS(zt_compare(r, ZT_EQ, x, arg[0])); }
TEST(t_ne) { IS(zt_compare(r, ZT_NE, x, arg[0])); }
TEST(t_lt) { IS(zt_compare(r, ZT_LT, x, arg[0])); }
TEST(t_le) { IS(zt_compare(r, ZT_LE, x, arg[0])); }
TEST(t_gt) { IS(zt_compare(r, ZT_GT, x, arg[0])); }
TEST(t_ge) { IS(zt_compare(r, ZT_GE, x, arg[0])); }
TEST(t_in) { IS(zt_compare(r, ZT_IN, x, arg[0])); }

/* clang-format off */
static const ZtBuiltin tests[] = {
    {"boolean", {0}, t_boolean, 0}, {"callable", {0}, t_callable, 0}, {"defined", {0}, t_defined, 0},
    {"divisibleby", {"num"}, t_divisible, 1}, {"eq", {"b"}, t_eq, 1}, {"equalto", {"b"}, t_eq, 1},
    {"escaped", {0}, t_escaped, 0}, {"even", {0}, t_even, 0}, {"false", {0}, t_false, 0},
    {"filter", {0}, t_filter, 0}, {"float", {0}, t_float, 0}, {"ge", {"b"}, t_ge, 1},
    {"greaterthan", {"b"}, t_gt, 1}, {"gt", {"b"}, t_gt, 1}, {"in", {"seq"}, t_in, 1},
    {"integer", {0}, t_integer, 0}, {"iterable", {0}, t_iterable, 0}, {"le", {"b"}, t_le, 1},
    {"lessthan", {"b"}, t_lt, 1}, {"lower", {0}, t_lower, 0}, {"lt", {"b"}, t_lt, 1},
    {"mapping", {0}, t_mapping, 0}, {"ne", {"b"}, t_ne, 1}, {"none", {0}, t_none, 0},
    {"number", {0}, t_number, 0}, {"odd", {0}, t_odd, 0}, {"sameas", {"other"}, t_sameas, 1},
    {"sequence", {0}, t_sequence, 0}, {"string", {0}, t_string, 0}, {"test", {0}, t_test, 0},
    {"true", {0}, t_true, 0}, {"undefined", {0}, t_undefined, 0}, {"upper", {0}, t_upper, 0},
    {"==", {"b"}, t_eq, 1}, {"!=", {"b"}, t_ne, 1}, {"<", {"b"}, t_lt, 1}, {"<=", {"b"}, t_le, 1},
    {">", {"b"}, t_gt, 1}, {">=", {"b"}, t_ge, 1},
};
/* clang-format on */

const ZtBuiltin *zt_test(const char *name) {
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
    if (!strcmp(tests[i].name, name)) return &tests[i];
  return NULL;
}

bool zt_holds(ZtRun *r, const ZtBuiltin *test, ZtValue x, const ZtGiven *given) {
  return zt_truth(zt_invoke(r, test, x, given));
}

/* ---- functions ------------------------------------------------------------------------------- */
TEST(raise_exception) {
  (void)of, (void)x, (void)given;
  const ZtString *s = zt_str(r, arg[0]);
  if (r->failed) return zt_undefined(NULL);
  r->failed = true;
  zb_fail(r->err, NULL, "the chat template refuses the conversation: %s", zb_show_n(s->s, s->n));
  return zt_undefined(NULL);
}

TEST(strftime_now) {
  (void)of, (void)x, (void)given;
  char text[512];
  struct tm tm;
  time_t now = r->chat->now ? (time_t)r->chat->now : time(NULL);
  const ZtString *s = zt_str(r, arg[0]);
  char *format = zt_take(r, s->n + 1, 1);
  if (!format || !localtime_r(&now, &tm)) return zt_undefined(NULL);
  memcpy(format, s->s, s->n);
  if (!s->n) return zt_text(r, "");
  size_t n = strftime(text, sizeof text, format, &tm);
  if (!n) return zt_wrong(r, "a date of the format '%s' is too long", zb_show(format));
  return zt_text_n(r, text, n, 0);
}

TEST(range) {
  (void)of, (void)x;
  int64_t v[3] = {0, 0, 1};
  if (!given->n || given->n > 3) return zt_wrong(r, "range has one to three arguments");
  for (uint32_t i = 0; i < given->n; i++) {
    if (given->v[i].kind != ZT_INT && given->v[i].kind != ZT_BOOL)
      return zt_wrong(r, "range of %s; expected a whole number", zt_kind(given->v[i]));
    v[given->n == 1 ? 1 : i] = zt_as_int(given->v[i]);
  }
  (void)arg;
  if (!v[2]) return zt_wrong(r, "range with a step of 0");
  enum { MOST = 100000 }; /* as in Jinja's sandbox */
  uint64_t span = v[2] > 0      ? (v[1] > v[0] ? (uint64_t)v[1] - (uint64_t)v[0] : 0)
                  : v[0] > v[1] ? (uint64_t)v[0] - (uint64_t)v[1]
                                : 0,
           step = v[2] > 0 ? (uint64_t)v[2] : 0 - (uint64_t)v[2], n = span / step + (span % step != 0);
  if (n > MOST) return zt_wrong(r, "range of more than %d numbers", MOST);
  ZtValue *item = zt_take(r, n, sizeof *item);
  for (uint64_t i = 0; item && i < n; i++) item[i] = zt_int((int64_t)((uint64_t)v[0] + i * (uint64_t)v[2]));
  return zt_list(r, ZT_LIST, item, item ? n : 0);
}

/* dict(a, b = 1) and namespace: a dict's members, then those with names. */
static ZtDict *members(ZtRun *r, const ZtGiven *given) {
  ZtDict *d = zt_dict_new(r, given->n);
  for (uint32_t i = 0; d && i < given->n && !r->failed; i++) {
    ZtValue v = given->v[i];
    if (given->names[i] != ZB_NO_NAME) zt_dict_put(r, d, zt_text(r, r->t->names.name[given->names[i]]), v);
    else if (v.kind != ZT_DICT) zt_wrong(r, "dict and namespace of %s; expected a dict", zt_kind(v));
    else
      for (size_t k = 0; k < v.d->n; k++) zt_dict_put(r, d, v.d->key[k], v.d->value[k]);
  }
  return r->failed ? NULL : d;
}

TEST(dict) {
  (void)of, (void)x, (void)arg;
  ZtDict *d = members(r, given);
  return d ? (ZtValue){.kind = ZT_DICT, .d = d} : zt_undefined(NULL);
}

TEST(namespace) {
  (void)of, (void)x, (void)arg;
  ZtDict *d = members(r, given);
  return d ? (ZtValue){.kind = ZT_NAMESPACE, .d = d} : zt_undefined(NULL);
}

static const ZtBuiltin functions[] = {
    {"raise_exception", {"message"}, raise_exception, 1},
    {"strftime_now", {"format"}, strftime_now, 1},
    {"range", {"*"}, range, 0},
    {"dict", {"*"}, dict, 0},
    {"namespace", {"*"}, namespace, 0},
};

const ZtBuiltin *zt_function(const char *name) {
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (!strcmp(functions[i].name, name)) return &functions[i];
  return NULL;
}

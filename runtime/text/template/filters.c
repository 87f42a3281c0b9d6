/* Filters that templates may use, as Jinja 3.1 has them, and transformers' tojson. */
#include "runtime/text/template/inside.h"

#include <math.h>
#include <stdlib.h>

#define FILTER(name)                                                                                         \
  static ZtValue name(ZtRun *r, const ZtBuiltin *of, ZtValue x, const ZtValue *arg, const ZtGiven *given)
#define UNUSED (void)r, (void)of, (void)x, (void)arg, (void)given

static bool absent(ZtValue v) { return v.kind == ZT_ABSENT; }
static bool yes(ZtValue v) { return v.kind != ZT_ABSENT && zt_truth(v); }

/* ---- texts ----------------------------------------------------------------------------------- */
FILTER(f_upper) {
  UNUSED;
  return zt_recase(r, zt_str(r, x), ZT_UPPER);
}
FILTER(f_lower) {
  UNUSED;
  return zt_recase(r, zt_str(r, x), ZT_LOWER);
}
FILTER(f_title) {
  UNUSED;
  return zt_recase(r, zt_str(r, x), ZT_TITLE_FILTER);
}
FILTER(f_capitalize) {
  UNUSED;
  return zt_recase(r, zt_str(r, x), ZT_CAPITALIZE);
}
FILTER(f_trim) {
  UNUSED;
  return zt_strip(r, zt_str(r, x), arg[0], true, true);
}
FILTER(f_string) {
  UNUSED;
  return (ZtValue){.kind = ZT_STRING, .s = zt_str(r, x)};
}
FILTER(f_safe) {
  UNUSED;
  return x;
}

FILTER(f_replace) {
  UNUSED;
  int64_t most = absent(arg[2]) || arg[2].kind == ZT_NULL ? -1 : zt_as_int(arg[2]);
  return zt_replace(r, zt_str(r, x), zt_str(r, arg[0]), zt_str(r, arg[1]), most);
}

FILTER(f_escape) {
  UNUSED;
  const ZtString *s = zt_str(r, x);
  ZtMade m = {0};
  for (size_t at = 0; at < s->n && zt_step(r, 0); at++) {
    static const char marks[] = "&<>'\"";
    static const char *const written[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const char *known = s->s[at] ? strchr(marks, s->s[at]) : NULL;
    if (known) zt_put(r, &m, written[known - marks], strlen(written[known - marks]), NULL, zt_mark_at(s, at));
    else zt_put_part(r, &m, s, at, at + 1);
  }
  return zt_made(r, &m);
}

/* The end of a line that begins at `from`, and where the next begins. */
static size_t line_end(const ZtString *s, size_t from, size_t *next) {
  size_t bytes;
  for (size_t at = from; at < s->n; at += bytes) {
    uint32_t c = zt_char(s->s + at, &bytes);
    if (!((c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029)) continue;
    *next = at + bytes;
    if (c == '\r' && *next < s->n && s->s[*next] == '\n') ++*next;
    return at;
  }
  *next = s->n;
  return s->n;
}

FILTER(f_indent) {
  UNUSED;
  const ZtString *s = zt_str(r, x);
  ZtMade m = {0}, by = {0};
  int64_t width = absent(arg[0]) ? 4 : zt_as_int(arg[0]);
  if (arg[0].kind == ZT_STRING) zt_put_string(r, &by, arg[0].s);
  else
    for (int64_t i = 0; i < width && !r->failed; i++) zt_put_text(r, &by, " ");
  ZtValue blanks = zt_made(r, &by);
  if (r->failed || !zt_step(r, s->n)) return zt_undefined(NULL);
  for (size_t from = 0, next, nth = 0; zt_step(r, 0); from = next, nth++) {
    size_t end = line_end(s, from, &next);
    if (nth) zt_put_text(r, &m, "\n");
    if (nth ? end > from || yes(arg[2]) : yes(arg[1])) zt_put_string(r, &m, blanks.s);
    zt_put_part(r, &m, s, from, end);
    if (end == s->n) break; /* the text with a line end behind has a last line, perhaps an empty one */
  }
  return zt_made(r, &m);
}

FILTER(f_format) {
  UNUSED;
  ZtValue *item = zt_take(r, given->n, sizeof *item);
  for (uint32_t i = 0; item && i < given->n; i++) {
    if (given->names[i] != ZB_NO_NAME) return zt_wrong(r, "the filter format with names is not supported");
    item[i] = given->v[i];
  }
  return zt_format_percent(r, zt_str(r, x), zt_list(r, ZT_TUPLE, item, item ? given->n : 0));
}

FILTER(f_join) {
  UNUSED;
  ZtMade m = {0};
  ZtList l;
  if (!zt_items(r, x, &l)) return zt_undefined(NULL);
  for (size_t i = 0; i < l.n && zt_step(r, 0); i++) {
    if (i && !absent(arg[0])) zt_put_str(r, &m, arg[0]);
    zt_put_str(r, &m, absent(arg[1]) ? l.item[i] : zt_get_path(r, l.item[i], arg[1]));
  }
  return zt_made(r, &m);
}

FILTER(f_tojson) {
  UNUSED;
  ZtMade m = {0};
  zt_put_json(r, &m, x, arg);
  return zt_made(r, &m);
}

FILTER(f_from_json) {
  UNUSED;
  bool is = false;
  const ZtString *s = zt_str(r, x);
  ZtValue v = r->failed ? zt_undefined(NULL) : zt_parse_json(r, s, &is);
  return is || r->failed ? v : zt_wrong(r, "from_json of a text that is not JSON");
}

FILTER(f_wordcount) {
  UNUSED;
  const ZtString *s = zt_str(r, x);
  int64_t n = 0;
  bool in = false;
  size_t bytes;
  for (size_t at = 0; at < s->n; at += bytes) {
    uint32_t c = zt_char(s->s + at, &bytes);
    bool word =
        (c >= '0' && c <= '9') || c == '_' || (c < 128 ? (c | 32) >= 'a' && (c | 32) <= 'z' : !zt_blank(c));
    n += word && !in;
    in = word;
  }
  return zt_int(n);
}

/* ---- numbers --------------------------------------------------------------------------------- */
/* Reads a whole text as a number. */
static bool number_in(const ZtString *s, int base, bool real, ZtValue *out) {
  char text[64], *end;
  size_t from = 0, to = s->n;
  while (from < to && zt_blank((uint8_t)s->s[from])) from++;
  while (to > from && zt_blank((uint8_t)s->s[to - 1])) to--;
  if (to == from || to - from >= sizeof text) return false;
  memcpy(text, s->s + from, to - from);
  text[to - from] = 0;
  if (strspn(text, "+-0123456789.eEabcdfxABCDFX_infatyINFATY") != strlen(text)) return false;
  if (real) {
    if (strpbrk(text, "xX")) return false;
    *out = zt_float(strtod(text, &end));
  } else *out = zt_int(strtoll(text, &end, base));
  return !*end;
}

FILTER(f_int) {
  UNUSED;
  ZtValue other = absent(arg[0]) ? zt_int(0) : arg[0], v;
  int base = absent(arg[1]) ? 10 : (int)zt_as_int(arg[1]);
  if (x.kind == ZT_FLOAT) return fabs(x.f) < 9e18 ? zt_int((int64_t)x.f) : other;
  if (zt_is_number(x)) return zt_int(zt_as_int(x));
  if (x.kind != ZT_STRING || base < 2 || base > 36) return other;
  if (number_in(x.s, base, false, &v)) return v;
  return number_in(x.s, 10, true, &v) && fabs(v.f) < 9e18 ? zt_int((int64_t)v.f) : other;
}

FILTER(f_float) {
  UNUSED;
  ZtValue v;
  if (zt_is_number(x)) return zt_float(zt_as_double(x));
  if (x.kind == ZT_STRING && number_in(x.s, 10, true, &v)) return v;
  return absent(arg[0]) ? zt_float(0) : arg[0];
}

FILTER(f_abs) {
  UNUSED;
  if (x.kind == ZT_FLOAT) return zt_float(fabs(x.f));
  if (!zt_is_number(x)) return zt_wrong(r, "abs of %s; expected a number", zt_kind(x));
  return zt_as_int(x) < 0 ? zt_arithmetic(r, ZT_SUB, zt_int(0), x) : zt_int(zt_as_int(x));
}

FILTER(f_round) {
  UNUSED;
  int64_t digits = absent(arg[0]) ? 0 : zt_as_int(arg[0]);
  if (!zt_is_number(x)) return zt_wrong(r, "round of %s; expected a number", zt_kind(x));
  if (digits < 0 || digits > 15)
    return zt_wrong(r, "round to %lld digits; expected 0 to 15", (long long)digits);
  double scale = pow(10, (double)digits), v = zt_as_double(x);
  const char *how = arg[1].kind == ZT_STRING ? arg[1].s->s : "common";
  if (zt_starts(how, strlen(how), "ceil", 4)) return zt_float(ceil(v * scale) / scale);
  if (zt_starts(how, strlen(how), "floor", 5)) return zt_float(floor(v * scale) / scale);
  if (x.kind != ZT_FLOAT) return zt_int(zt_as_int(x));
  char text[400]; /* Python's round looks at the digits, half to even */
  snprintf(text, sizeof text, "%.*f", (int)digits, v);
  return zt_float(strtod(text, NULL));
}

/* ---- lists ----------------------------------------------------------------------------------- */
FILTER(f_default) {
  UNUSED;
  bool keep = x.kind != ZT_UNDEFINED && (!yes(arg[1]) || zt_truth(x));
  return keep ? x : absent(arg[0]) ? zt_text(r, "") : arg[0];
}

FILTER(f_length) {
  UNUSED;
  size_t n;
  return zt_length(x, &n) ? zt_int((int64_t)n) : zt_wrong(r, "%s has no length", zt_kind(x));
}

static ZtValue end_of(ZtRun *r, ZtValue x, bool last) {
  ZtList l;
  if (!zt_items(r, x, &l)) return zt_undefined(NULL);
  return l.n ? l.item[last ? l.n - 1 : 0] : zt_undefined(last ? "last" : "first");
}
FILTER(f_first) {
  UNUSED;
  return end_of(r, x, false);
}
FILTER(f_last) {
  UNUSED;
  return end_of(r, x, true);
}

FILTER(f_list) {
  UNUSED;
  ZtList l;
  return zt_items(r, x, &l) ? zt_list(r, ZT_LIST, l.item, l.n) : zt_undefined(NULL);
}

FILTER(f_reverse) {
  UNUSED;
  ZtList l;
  ZtMade m = {0};
  if (!zt_items(r, x, &l)) return zt_undefined(NULL);
  ZtValue *item = zt_take(r, l.n, sizeof *item);
  for (size_t i = 0; item && i < l.n; i++) item[i] = l.item[l.n - 1 - i];
  if (x.kind != ZT_STRING || !item) return zt_list(r, ZT_LIST, item, item ? l.n : 0);
  for (size_t i = 0; i < l.n && !r->failed; i++) zt_put_string(r, &m, item[i].s);
  return zt_made(r, &m);
}

FILTER(f_attr) {
  UNUSED;
  return arg[0].kind == ZT_STRING && x.kind != ZT_DICT ? zt_get_attribute(r, x, arg[0].s->s)
                                                       : zt_undefined("attr");
}

/* Pairs of a dict. */
static ZtValue pairs(ZtRun *r, const ZtDict *d) {
  ZtValue *item = zt_take(r, d->n, sizeof *item);
  for (size_t i = 0; item && i < d->n; i++) {
    ZtValue *pair = zt_take(r, 2, sizeof *pair);
    if (!pair) break;
    pair[0] = d->key[i];
    pair[1] = d->value[i];
    item[i] = zt_list(r, ZT_TUPLE, pair, 2);
  }
  return zt_list(r, ZT_LIST, item, r->failed ? 0 : d->n);
}

FILTER(f_items) {
  UNUSED;
  if (x.kind == ZT_UNDEFINED) return zt_list(r, ZT_LIST, NULL, 0);
  return x.kind == ZT_DICT ? pairs(r, x.d) : zt_wrong(r, "items of %s; expected a dict", zt_kind(x));
}

/* What items are compared by: texts without case, unless it is asked for. */
static ZtValue compared(ZtRun *r, ZtValue v, bool with_case) {
  return v.kind == ZT_STRING && !with_case ? zt_recase(r, v.s, ZT_LOWER) : v;
}

/* By an attribute, or several with commas. */
static ZtValue key_of(ZtRun *r, ZtValue v, ZtValue path, bool with_case) {
  if (absent(path) || path.kind == ZT_NULL) return compared(r, v, with_case);
  if (path.kind != ZT_STRING || !memchr(path.s->s, ',', path.s->n))
    return compared(r, zt_get_path(r, v, path), with_case);
  ZtValue *key = zt_take(r, path.s->n + 1, sizeof *key);
  size_t n = 0;
  for (size_t at = 0; key && at <= path.s->n; n++) {
    const char *comma = memchr(path.s->s + at, ',', path.s->n - at);
    size_t end = comma ? (size_t)(comma - path.s->s) : path.s->n;
    ZtValue one = zt_part(r, path.s, at, end);
    if (r->failed) break;
    key[n] = compared(r, zt_get_path(r, v, one), with_case);
    at = end + 1;
  }
  return zt_list(r, ZT_TUPLE, key, key ? n : 0);
}

/* Sorts items by their keys, equal ones in their order: merges runs. */
static void sort(ZtRun *r, ZtValue *item, ZtValue *key, size_t n, bool down) {
  ZtValue *to = zt_take(r, n, sizeof *to), *tokey = zt_take(r, n, sizeof *tokey);
  for (size_t run = 1; to && tokey && run < n && !r->failed; run *= 2) {
    for (size_t begin = 0; begin < n && !r->failed; begin += 2 * run) {
      size_t a = begin, mid = begin + run < n ? begin + run : n, b = mid, end = mid + run < n ? mid + run : n;
      for (size_t k = begin; k < end && zt_step(r, 0); k++) {
        bool second = a == mid ||
                      (b < end && (down ? zt_order(r, key[b], key[a]) > 0 : zt_order(r, key[b], key[a]) < 0));
        size_t from = second ? b++ : a++;
        to[k] = item[from];
        tokey[k] = key[from];
      }
    }
    memcpy(item, to, n * sizeof *item);
    memcpy(key, tokey, n * sizeof *key);
  }
}

static ZtValue sorted(ZtRun *r, ZtList l, ZtValue path, bool with_case, bool down) {
  ZtValue *item = zt_take(r, l.n, sizeof *item), *key = zt_take(r, l.n, sizeof *key);
  if (!item || !key) return zt_undefined(NULL);
  if (l.n) memcpy(item, l.item, l.n * sizeof *item);
  for (size_t i = 0; i < l.n && zt_step(r, 0); i++) key[i] = key_of(r, item[i], path, with_case);
  sort(r, item, key, l.n, down);
  return zt_list(r, ZT_LIST, item, l.n);
}

FILTER(f_sort) {
  UNUSED;
  ZtList l;
  return zt_items(r, x, &l) ? sorted(r, l, arg[2], yes(arg[1]), yes(arg[0])) : zt_undefined(NULL);
}

FILTER(f_dictsort) {
  UNUSED;
  if (x.kind != ZT_DICT) return zt_wrong(r, "dictsort of %s; expected a dict", zt_kind(x));
  ZtValue all = pairs(r, x.d);
  bool by_value = arg[1].kind == ZT_STRING && !strcmp(arg[1].s->s, "value");
  return r->failed ? all : sorted(r, *all.l, zt_int(by_value), yes(arg[0]), yes(arg[2]));
}

FILTER(f_unique) {
  UNUSED;
  ZtList l;
  if (!zt_items(r, x, &l)) return zt_undefined(NULL);
  ZtValue *item = zt_take(r, l.n, sizeof *item), *key = zt_take(r, l.n, sizeof *key);
  size_t n = 0;
  for (size_t i = 0; item && key && i < l.n && !r->failed; i++) {
    ZtValue k = key_of(r, l.item[i], arg[1], yes(arg[0]));
    bool known = false;
    for (size_t j = 0; j < n && !known && zt_step(r, 0); j++) known = zt_equal(r, key[j], k);
    if (known) continue;
    item[n] = l.item[i];
    key[n++] = k;
  }
  return zt_list(r, ZT_LIST, item, n);
}

static ZtValue extreme(ZtRun *r, ZtValue x, const ZtValue *arg, bool most) {
  ZtList l;
  if (!zt_items(r, x, &l)) return zt_undefined(NULL);
  if (!l.n) return zt_undefined("an item of an empty list");
  ZtValue best = l.item[0], key = key_of(r, best, arg[1], yes(arg[0]));
  for (size_t i = 1; i < l.n && zt_step(r, 0); i++) {
    ZtValue k = key_of(r, l.item[i], arg[1], yes(arg[0]));
    int order = zt_order(r, k, key);
    if (!(most ? order > 0 : order < 0)) continue;
    best = l.item[i];
    key = k;
  }
  return best;
}
FILTER(f_min) {
  UNUSED;
  return extreme(r, x, arg, false);
}
FILTER(f_max) {
  UNUSED;
  return extreme(r, x, arg, true);
}

FILTER(f_sum) {
  UNUSED;
  ZtList l;
  ZtValue v = absent(arg[1]) ? zt_int(0) : arg[1];
  if (!zt_items(r, x, &l)) return zt_undefined(NULL);
  for (size_t i = 0; i < l.n && zt_step(r, 0); i++)
    v = zt_arithmetic(r, ZT_ADD, v,
                      absent(arg[0]) || arg[0].kind == ZT_NULL ? l.item[i]
                                                               : zt_get_path(r, l.item[i], arg[0]));
  return v;
}

FILTER(f_batch) {
  UNUSED;
  ZtList l;
  int64_t size = zt_as_int(arg[0]);
  if (size < 1) return zt_wrong(r, "batch of %lld items", (long long)size);
  if (!zt_items(r, x, &l)) return zt_undefined(NULL);
  size_t n = l.n / (size_t)size + (l.n % (size_t)size != 0);
  ZtValue *out = zt_take(r, n, sizeof *out);
  for (size_t i = 0; out && i < n && !r->failed; i++) {
    size_t from = i * (size_t)size, has = l.n - from < (size_t)size ? l.n - from : (size_t)size;
    size_t all = absent(arg[1]) || arg[1].kind == ZT_NULL ? has : (size_t)size;
    ZtValue *item = zt_take(r, all, sizeof *item);
    for (size_t k = 0; item && k < all; k++) item[k] = k < has ? l.item[from + k] : arg[1];
    out[i] = zt_list(r, ZT_LIST, item, item ? all : 0);
  }
  return zt_list(r, ZT_LIST, out, out ? n : 0);
}

/* ---- filters that take filters and tests ----------------------------------------------------- */
/* Arguments from number k on. */
static ZtGiven rest(const ZtGiven *given, uint32_t k) {
  return k < given->n ? (ZtGiven){given->v + k, given->names + k, given->n - k} : (ZtGiven){0};
}

/* The value of a named argument; ZT_ABSENT: it is not given. */
static ZtValue named(const ZtRun *r, const ZtGiven *given, const char *name) {
  for (uint32_t i = 0; i < given->n; i++)
    if (given->names[i] != ZB_NO_NAME && !strcmp(r->t->names.name[given->names[i]], name)) return given->v[i];
  return (ZtValue){.kind = ZT_ABSENT};
}

FILTER(f_map) {
  UNUSED;
  ZtList l;
  ZtValue path = named(r, given, "attribute"), other = named(r, given, "default");
  const ZtBuiltin *filter = NULL;
  if (absent(path)) {
    if (!given->n || given->v[0].kind != ZT_STRING)
      return zt_wrong(r, "map without a filter or an attribute");
    filter = zt_filter(given->v[0].s->s);
    if (!filter) return zt_wrong(r, "the filter `%s` is not supported", zb_show(given->v[0].s->s));
  }
  if (!zt_items(r, x, &l)) return zt_undefined(NULL);
  ZtValue *item = zt_take(r, l.n, sizeof *item);
  ZtGiven more = rest(given, 1);
  if (!zt_deeper(r)) return zt_undefined(NULL);
  for (size_t i = 0; item && i < l.n && zt_step(r, 0); i++) {
    item[i] = filter ? zt_invoke(r, filter, l.item[i], &more) : zt_get_path(r, l.item[i], path);
    if (!filter && item[i].kind == ZT_UNDEFINED && !absent(other)) item[i] = other;
  }
  r->depth--;
  return zt_list(r, ZT_LIST, item, item ? l.n : 0);
}

/* select, reject, selectattr, rejectattr: the items of which a test holds, or does not. */
static ZtValue chosen(ZtRun *r, ZtValue x, const ZtGiven *given, bool attribute, bool want) {
  ZtList l;
  uint32_t at = attribute;
  const ZtBuiltin *test = NULL;
  if (attribute && !given->n) return zt_wrong(r, "selectattr and rejectattr without an attribute");
  if (given->n > at) {
    const char *name = given->v[at].kind == ZT_STRING ? given->v[at].s->s : "?";
    test = zt_test(name);
    if (!test) return zt_wrong(r, "the test `%s` is not supported", zb_show(name));
  }
  if (!zt_items(r, x, &l)) return zt_undefined(NULL);
  ZtValue *item = zt_take(r, l.n, sizeof *item);
  ZtGiven more = rest(given, at + 1);
  size_t n = 0;
  for (size_t i = 0; item && i < l.n && zt_step(r, 0); i++) {
    ZtValue v = attribute ? zt_get_path(r, l.item[i], given->v[0]) : l.item[i];
    if ((test ? zt_holds(r, test, v, &more) : zt_truth(v)) == want) item[n++] = l.item[i];
  }
  return zt_list(r, ZT_LIST, item, n);
}
FILTER(f_select) {
  UNUSED;
  return chosen(r, x, given, false, true);
}
FILTER(f_reject) {
  UNUSED;
  return chosen(r, x, given, false, false);
}
FILTER(f_selectattr) {
  UNUSED;
  return chosen(r, x, given, true, true);
}
FILTER(f_rejectattr) {
  UNUSED;
  return chosen(r, x, given, true, false);
}

/* ---- by name --------------------------------------------------------------------------------- */
/* clang-format off */
static const ZtBuiltin filters[] = {
    {"abs", {0}, f_abs, 0},
    {"attr", {"name"}, f_attr, 1},
    {"batch", {"linecount", "fill_with"}, f_batch, 1},
    {"capitalize", {0}, f_capitalize, 0},
    {"count", {0}, f_length, 0},
    {"d", {"default_value", "boolean"}, f_default, 0},
    {"default", {"default_value", "boolean"}, f_default, 0},
    {"dictsort", {"case_sensitive", "by", "reverse"}, f_dictsort, 0},
    {"e", {0}, f_escape, 0},
    {"escape", {0}, f_escape, 0},
    {"first", {0}, f_first, 0},
    {"float", {"default"}, f_float, 0},
    {"format", {"*"}, f_format, 0},
    {"from_json", {0}, f_from_json, 0},
    {"indent", {"width", "first", "blank"}, f_indent, 0},
    {"int", {"default", "base"}, f_int, 0},
    {"items", {0}, f_items, 0},
    {"join", {"d", "attribute"}, f_join, 0},
    {"last", {0}, f_last, 0},
    {"length", {0}, f_length, 0},
    {"list", {0}, f_list, 0},
    {"lower", {0}, f_lower, 0},
    {"map", {"*"}, f_map, 0},
    {"max", {"case_sensitive", "attribute"}, f_max, 0},
    {"min", {"case_sensitive", "attribute"}, f_min, 0},
    {"reject", {"*"}, f_reject, 0},
    {"rejectattr", {"*"}, f_rejectattr, 0},
    {"replace", {"old", "new", "count"}, f_replace, 2},
    {"reverse", {0}, f_reverse, 0},
    {"round", {"precision", "method"}, f_round, 0},
    {"safe", {0}, f_safe, 0},
    {"select", {"*"}, f_select, 0},
    {"selectattr", {"*"}, f_selectattr, 0},
    {"sort", {"reverse", "case_sensitive", "attribute"}, f_sort, 0},
    {"string", {0}, f_string, 0},
    {"sum", {"attribute", "start"}, f_sum, 0},
    {"title", {0}, f_title, 0},
    {"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, f_tojson, 0},
    {"trim", {"chars"}, f_trim, 0},
    {"unique", {"case_sensitive", "attribute"}, f_unique, 0},
    {"upper", {0}, f_upper, 0},
    {"wordcount", {0}, f_wordcount, 0},
};
/* clang-format on */

const ZtBuiltin *zt_filter(const char *name) {
  for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
    if (!strcmp(filters[i].name, name)) return &filters[i];
  return NULL;
}

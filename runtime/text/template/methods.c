/* Methods of texts, lists, dicts and loops. */
#include "runtime/text/template/inside.h"

#define METHOD(name)                                                                                         \
  static ZtValue name(ZtRun *r, const ZtBuiltin *of, ZtValue x, const ZtValue *arg, const ZtGiven *given)
#define UNUSED (void)r, (void)of, (void)x, (void)arg, (void)given

static bool absent(ZtValue v) { return v.kind == ZT_ABSENT; }
static const ZtString *text_of(ZtRun *r, const ZtBuiltin *of, ZtValue v) {
  static const ZtString empty = {.s = ""};
  if (v.kind == ZT_STRING) return v.s;
  zt_wrong(r, "%s of %s; expected a string", of->name, zt_kind(v));
  return &empty;
}

/* ---- of texts -------------------------------------------------------------------------------- */
METHOD(m_upper) {
  UNUSED;
  return zt_recase(r, x.s, ZT_UPPER);
}
METHOD(m_lower) {
  UNUSED;
  return zt_recase(r, x.s, ZT_LOWER);
}
METHOD(m_title) {
  UNUSED;
  return zt_recase(r, x.s, ZT_TITLE);
}
METHOD(m_capitalize) {
  UNUSED;
  return zt_recase(r, x.s, ZT_CAPITALIZE);
}
METHOD(m_strip) {
  UNUSED;
  return zt_strip(r, x.s, arg[0], true, true);
}
METHOD(m_lstrip) {
  UNUSED;
  return zt_strip(r, x.s, arg[0], true, false);
}
METHOD(m_rstrip) {
  UNUSED;
  return zt_strip(r, x.s, arg[0], false, true);
}
METHOD(m_replace) {
  UNUSED;
  return zt_replace(r, x.s, text_of(r, of, arg[0]), text_of(r, of, arg[1]),
                    absent(arg[2]) ? -1 : zt_as_int(arg[2]));
}

/* ---- split ---- */
typedef struct {
  ZtValue *item;
  size_t n, cap;
} Items;
static void push(ZtRun *r, Items *l, ZtValue v) {
  if (l->n == l->cap) {
    size_t cap = l->cap ? 2 * l->cap : 8;
    ZtValue *item = zt_take(r, cap, sizeof *item);
    if (!item) return;
    if (l->n) memcpy(item, l->item, l->n * sizeof *item);
    l->item = item;
    l->cap = cap;
  }
  if (!r->failed) l->item[l->n++] = v;
}

static size_t find_last(const ZtString *s, const ZtString *what, size_t end) {
  for (size_t at = end >= what->n ? end - what->n + 1 : 0; at-- > 0;)
    if (!memcmp(s->s + at, what->s, what->n)) return at;
  return SIZE_MAX;
}

static void split_at(ZtRun *r, Items *l, const ZtString *s, const ZtString *by, int64_t most) {
  size_t from = 0, at;
  while ((most < 0 || (int64_t)l->n < most) && zt_step(r, 0) && (at = zt_find(s, by, from)) != SIZE_MAX) {
    push(r, l, zt_part(r, s, from, at));
    from = at + by->n;
  }
  push(r, l, zt_part(r, s, from, s->n));
}

/* Pieces from the end, in reverse. */
static void split_last(ZtRun *r, Items *l, const ZtString *s, const ZtString *by, int64_t most) {
  size_t end = s->n, at;
  while ((most < 0 || (int64_t)l->n < most) && zt_step(r, s->n) && (at = find_last(s, by, end)) != SIZE_MAX) {
    push(r, l, zt_part(r, s, at + by->n, end));
    end = at;
  }
  push(r, l, zt_part(r, s, 0, end));
}

/* At white space, of which as much as there is. */
static void split_words(ZtRun *r, Items *l, const ZtString *s, int64_t most) {
  size_t at = 0, bytes;
  while (zt_step(r, 0)) {
    while (at < s->n && zt_blank(zt_char(s->s + at, &bytes))) at += bytes;
    if (at >= s->n) return;
    size_t from = at;
    bool last = most >= 0 && (int64_t)l->n == most;
    while (at < s->n && (last || !zt_blank(zt_char(s->s + at, &bytes))))
      at += zt_char_bytes((uint8_t)s->s[at]);
    push(r, l, zt_part(r, s, from, at));
  }
}

/* The same from the end, in reverse. */
static void split_last_words(ZtRun *r, Items *l, const ZtString *s, int64_t most) {
  size_t end = s->n, bytes;
  while (zt_step(r, 0)) {
    while (end && zt_blank(zt_char(s->s + zt_char_before(s->s, end), &bytes)))
      end = zt_char_before(s->s, end);
    if (!end) return;
    size_t to = end;
    bool last = most >= 0 && (int64_t)l->n == most;
    while (end && (last || !zt_blank(zt_char(s->s + zt_char_before(s->s, end), &bytes))))
      end = zt_char_before(s->s, end);
    push(r, l, zt_part(r, s, end, to));
  }
}

static ZtValue split(ZtRun *r, const ZtBuiltin *of, ZtValue x, const ZtValue *arg, bool last) {
  Items l = {0};
  int64_t most = absent(arg[1]) ? -1 : zt_as_int(arg[1]);
  bool words = absent(arg[0]) || arg[0].kind == ZT_NULL;
  const ZtString *by = words ? NULL : text_of(r, of, arg[0]);
  if (r->failed || !zt_step(r, x.s->n)) return zt_undefined(NULL);
  if (by && !by->n) return zt_wrong(r, "a text is split at an empty one");
  if (by && last) split_last(r, &l, x.s, by, most);
  else if (by) split_at(r, &l, x.s, by, most);
  else if (last) split_last_words(r, &l, x.s, most);
  else split_words(r, &l, x.s, most);
  for (size_t i = 0; last && i < l.n / 2; i++) {
    ZtValue v = l.item[i];
    l.item[i] = l.item[l.n - 1 - i];
    l.item[l.n - 1 - i] = v;
  }
  return zt_list(r, ZT_LIST, l.item, l.n);
}
METHOD(m_split) {
  UNUSED;
  return split(r, of, x, arg, false);
}
METHOD(m_rsplit) {
  UNUSED;
  return split(r, of, x, arg, true);
}

static bool ends_line(uint32_t c) {
  return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

METHOD(m_splitlines) {
  UNUSED;
  Items l = {0};
  bool keep = !absent(arg[0]) && zt_truth(arg[0]);
  const ZtString *s = x.s;
  for (size_t at = 0, from = 0, bytes; at < s->n && zt_step(r, 0); from = at) {
    while (at < s->n && !ends_line(zt_char(s->s + at, &bytes))) at += bytes;
    size_t end = at;
    if (at < s->n)
      at += s->s[at] == '\r' && at + 1 < s->n && s->s[at + 1] == '\n' ? 2 : zt_char_bytes((uint8_t)s->s[at]);
    push(r, &l, zt_part(r, s, from, keep ? at : end));
  }
  return zt_list(r, ZT_LIST, l.item, l.n);
}

static ZtValue partition(ZtRun *r, const ZtBuiltin *of, ZtValue x, const ZtValue *arg, bool last) {
  const ZtString *s = x.s, *by = text_of(r, of, arg[0]);
  if (r->failed || !zt_step(r, s->n)) return zt_undefined(NULL);
  if (!by->n) return zt_wrong(r, "a text is split at an empty one");
  size_t at = last ? find_last(s, by, s->n) : zt_find(s, by, 0);
  ZtValue *item = zt_take(r, 3, sizeof *item);
  if (!item) return zt_undefined(NULL);
  if (at == SIZE_MAX) {
    item[0] = item[1] = item[2] = zt_text(r, "");
    item[last ? 2 : 0] = x;
  } else {
    item[0] = zt_part(r, s, 0, at);
    item[1] = zt_part(r, s, at, at + by->n);
    item[2] = zt_part(r, s, at + by->n, s->n);
  }
  return zt_list(r, ZT_TUPLE, item, 3);
}
METHOD(m_partition) {
  UNUSED;
  return partition(r, of, x, arg, false);
}
METHOD(m_rpartition) {
  UNUSED;
  return partition(r, of, x, arg, true);
}

/* ---- what is in a text ---- */
/* The part of a text that optional arguments [1] and [2] say; false: none. */
static bool part_of(ZtRun *r, const ZtString *s, const ZtValue *arg, size_t *begin, size_t *end) {
  int64_t n = (int64_t)zt_chars(s), from = 0, to = n;
  if (!zt_step(r, s->n)) return false;
  if (arg[1].kind == ZT_INT) from = arg[1].i < 0 ? arg[1].i + n : arg[1].i;
  if (arg[2].kind == ZT_INT) to = arg[2].i < 0 ? arg[2].i + n : arg[2].i;
  if (from < 0) from = 0;
  if (to > n) to = n;
  if (from > to || to < 0) return false;
  *begin = zt_char_at(s, (size_t)from);
  *end = zt_char_at(s, (size_t)to);
  return true;
}

static bool meets(ZtRun *r, const ZtBuiltin *of, ZtValue x, const ZtValue *arg, bool at_end) {
  size_t begin, end;
  ZtList one = {(ZtValue *)&arg[0], 1}, l = arg[0].kind == ZT_TUPLE ? *arg[0].l : one;
  if (!part_of(r, x.s, arg, &begin, &end)) return false;
  for (size_t i = 0; i < l.n && !r->failed; i++) {
    const ZtString *with = text_of(r, of, l.item[i]);
    if (with->n > end - begin || !zt_step(r, with->n)) continue;
    if (!memcmp(x.s->s + (at_end ? end - with->n : begin), with->s, with->n)) return true;
  }
  return false;
}
METHOD(m_startswith) {
  UNUSED;
  return zt_bool(meets(r, of, x, arg, false));
}
METHOD(m_endswith) {
  UNUSED;
  return zt_bool(meets(r, of, x, arg, true));
}

static ZtValue find(ZtRun *r, const ZtBuiltin *of, ZtValue x, const ZtValue *arg, bool last, bool must) {
  size_t begin, end, at = SIZE_MAX;
  const ZtString *what = text_of(r, of, arg[0]);
  if (!r->failed && part_of(r, x.s, arg, &begin, &end)) {
    ZtString part = {.s = x.s->s + begin, .n = end - begin};
    at = last ? find_last(&part, what, part.n) : zt_find(&part, what, 0);
    if (at != SIZE_MAX) at += begin;
  }
  if (at == SIZE_MAX) return must ? zt_wrong(r, "%s of a text that is not there", of->name) : zt_int(-1);
  ZtString before = {.s = x.s->s, .n = at};
  return zt_int((int64_t)zt_chars(&before));
}
METHOD(m_find) {
  UNUSED;
  return find(r, of, x, arg, false, false);
}
METHOD(m_rfind) {
  UNUSED;
  return find(r, of, x, arg, true, false);
}
METHOD(m_index) {
  UNUSED;
  return find(r, of, x, arg, false, true);
}

METHOD(m_count) {
  UNUSED;
  const ZtString *what = text_of(r, of, arg[0]);
  size_t begin, end;
  int64_t n = 0;
  if (r->failed || !part_of(r, x.s, arg, &begin, &end)) return zt_int(0);
  ZtString part = {.s = x.s->s + begin, .n = end - begin};
  if (!what->n) return zt_int((int64_t)zt_chars(&part) + 1);
  for (size_t at = 0; zt_step(r, 0) && (at = zt_find(&part, what, at)) != SIZE_MAX; at += what->n) n++;
  return zt_int(n);
}

METHOD(m_removeprefix) {
  UNUSED;
  const ZtString *with = text_of(r, of, arg[0]);
  return zt_starts(x.s->s, x.s->n, with->s, with->n) ? zt_part(r, x.s, with->n, x.s->n) : x;
}

METHOD(m_removesuffix) {
  UNUSED;
  const ZtString *with = text_of(r, of, arg[0]);
  bool is = with->n <= x.s->n && !memcmp(x.s->s + x.s->n - with->n, with->s, with->n);
  return is ? zt_part(r, x.s, 0, x.s->n - with->n) : x;
}

METHOD(m_join) {
  UNUSED;
  ZtMade m = {0};
  ZtList l;
  if (!zt_items(r, arg[0], &l)) return zt_undefined(NULL);
  for (size_t i = 0; i < l.n && zt_step(r, 0); i++) {
    if (i) zt_put_string(r, &m, x.s);
    zt_put_string(r, &m, text_of(r, of, l.item[i]));
  }
  return zt_made(r, &m);
}

/* Says if a text is not empty, and all its characters are of a set. */
static bool all_are(ZtRun *r, const ZtString *s, bool letters, bool digits, bool blanks) {
  size_t bytes;
  for (size_t at = 0; at < s->n && zt_step(r, 0); at += bytes) {
    uint32_t c = zt_char(s->s + at, &bytes);
    bool digit = c >= '0' && c <= '9', letter = !digit && c != '_' && zt_in(ZT_SET_word, c);
    if (!((letters && letter) || (digits && digit) || (blanks && zt_blank(c)))) return false;
  }
  return s->n;
}
METHOD(m_isdigit) {
  UNUSED;
  return zt_bool(all_are(r, x.s, false, true, false));
}
METHOD(m_isalpha) {
  UNUSED;
  return zt_bool(all_are(r, x.s, true, false, false));
}
METHOD(m_isalnum) {
  UNUSED;
  return zt_bool(all_are(r, x.s, true, true, false));
}
METHOD(m_isspace) {
  UNUSED;
  return zt_bool(all_are(r, x.s, false, false, true));
}
static bool all_in(ZtRun *r, ZtValue x, ZtCase to, ZtCase other) {
  return zt_equal(r, x, zt_recase(r, x.s, to)) && !zt_equal(r, x, zt_recase(r, x.s, other));
}
METHOD(m_isupper) {
  UNUSED;
  return zt_bool(all_in(r, x, ZT_UPPER, ZT_LOWER));
}
METHOD(m_islower) {
  UNUSED;
  return zt_bool(all_in(r, x, ZT_LOWER, ZT_UPPER));
}

/* ---- "{} {0} {name}".format(..) ---- */
static ZtValue field(ZtRun *r, const ZtString *s, size_t begin, size_t end, const ZtGiven *given,
                     uint32_t *next) {
  size_t digits = 0, at = 0;
  while (begin + digits < end && digits < 4 && s->s[begin + digits] >= '0' && s->s[begin + digits] <= '9')
    at = at * 10 + (size_t)(s->s[begin + digits++] - '0');
  bool place = begin == end || (digits && begin + digits == end);
  if (begin == end) at = (*next)++;
  if (place && at < given->n && given->names[at] == ZB_NO_NAME) return given->v[at];
  for (uint32_t i = 0; !place && i < given->n; i++) {
    const char *name = given->names[i] == ZB_NO_NAME ? "" : r->t->names.name[given->names[i]];
    if (*name && strlen(name) == end - begin && !memcmp(name, s->s + begin, end - begin)) return given->v[i];
  }
  return zt_wrong(r, "format: the field {%s} is not supported, or not given",
                  zb_show_n(s->s + begin, end - begin));
}

METHOD(m_format) {
  UNUSED;
  const ZtString *s = x.s;
  ZtMade m = {0};
  uint32_t next = 0;
  for (size_t at = 0; at < s->n && zt_step(r, 0);) {
    char c = s->s[at];
    if (c != '{' && c != '}') {
      zt_put_part(r, &m, s, at, at + 1);
      at++;
    } else if (at + 1 < s->n && s->s[at + 1] == c) {
      zt_put_part(r, &m, s, at, at + 1);
      at += 2;
    } else {
      const char *close = c == '{' ? memchr(s->s + at, '}', s->n - at) : NULL;
      if (!close) return zt_wrong(r, "format: a brace that stands alone");
      size_t end = (size_t)(close - s->s);
      zt_put_str(r, &m, field(r, s, at + 1, end, given, &next));
      at = end + 1;
    }
  }
  return zt_made(r, &m);
}

/* ---- of dicts -------------------------------------------------------------------------------- */
METHOD(m_items) {
  UNUSED;
  return zt_invoke(r, zt_filter("items"), x, &(ZtGiven){0});
}
METHOD(m_keys) {
  UNUSED;
  return zt_list(r, ZT_LIST, x.d->key, x.d->n);
}
METHOD(m_values) {
  UNUSED;
  return zt_list(r, ZT_LIST, x.d->value, x.d->n);
}
METHOD(m_get) {
  UNUSED;
  const ZtValue *v = zt_dict_find(r, x.d, arg[0]);
  return v ? *v : absent(arg[1]) ? zt_none() : arg[1];
}
METHOD(m_copy) {
  UNUSED;
  return x;
} /* nothing changes it */

/* ---- of lists -------------------------------------------------------------------------------- */
METHOD(m_list_index) {
  UNUSED;
  for (size_t i = 0; i < x.l->n && zt_step(r, 0); i++)
    if (zt_equal(r, x.l->item[i], arg[0])) return zt_int((int64_t)i);
  return zt_wrong(r, "index of what is not in the list");
}
METHOD(m_list_count) {
  UNUSED;
  int64_t n = 0;
  for (size_t i = 0; i < x.l->n && zt_step(r, 0); i++) n += zt_equal(r, x.l->item[i], arg[0]);
  return zt_int(n);
}

/* ---- of loops -------------------------------------------------------------------------------- */
METHOD(m_cycle) {
  UNUSED;
  return given->n ? given->v[x.loop->at % given->n] : zt_wrong(r, "cycle without values");
}
METHOD(m_changed) {
  UNUSED;
  ZtValue *item = zt_take(r, given->n, sizeof *item);
  if (!item) return zt_undefined(NULL);
  if (given->n) memcpy(item, given->v, given->n * sizeof *item);
  ZtValue now = zt_list(r, ZT_TUPLE, item, given->n);
  bool same = !absent(x.loop->changed) && zt_equal(r, x.loop->changed, now);
  x.loop->changed = now;
  return zt_bool(!same);
}

/* ---- by name --------------------------------------------------------------------------------- */
/* clang-format off */
static const ZtBuiltin of_texts[] = {
    {"capitalize", {0}, m_capitalize, 0}, {"count", {"sub", "start", "end"}, m_count, 1},
    {"endswith", {"suffix", "start", "end"}, m_endswith, 1}, {"find", {"sub", "start", "end"}, m_find, 1},
    {"format", {"*"}, m_format, 0}, {"index", {"sub", "start", "end"}, m_index, 1},
    {"isalnum", {0}, m_isalnum, 0}, {"isalpha", {0}, m_isalpha, 0}, {"isdigit", {0}, m_isdigit, 0},
    {"isdecimal", {0}, m_isdigit, 0}, {"isnumeric", {0}, m_isdigit, 0}, {"islower", {0}, m_islower, 0},
    {"isspace", {0}, m_isspace, 0}, {"isupper", {0}, m_isupper, 0}, {"join", {"iterable"}, m_join, 1},
    {"lower", {0}, m_lower, 0}, {"lstrip", {"chars"}, m_lstrip, 0}, {"partition", {"sep"}, m_partition, 1},
    {"removeprefix", {"prefix"}, m_removeprefix, 1}, {"removesuffix", {"suffix"}, m_removesuffix, 1},
    {"replace", {"old", "new", "count"}, m_replace, 2}, {"rfind", {"sub", "start", "end"}, m_rfind, 1},
    {"rpartition", {"sep"}, m_rpartition, 1}, {"rsplit", {"sep", "maxsplit"}, m_rsplit, 0},
    {"rstrip", {"chars"}, m_rstrip, 0}, {"split", {"sep", "maxsplit"}, m_split, 0},
    {"splitlines", {"keepends"}, m_splitlines, 0},
    {"startswith", {"prefix", "start", "end"}, m_startswith, 1},
    {"strip", {"chars"}, m_strip, 0}, {"title", {0}, m_title, 0}, {"upper", {0}, m_upper, 0}, {0}};
static const ZtBuiltin of_dicts[] = {
    {"copy", {0}, m_copy, 0}, {"get", {"key", "default"}, m_get, 1}, {"items", {0}, m_items, 0},
    {"keys", {0}, m_keys, 0}, {"values", {0}, m_values, 0}, {0}};
static const ZtBuiltin of_lists[] = {
    {"copy", {0}, m_copy, 0}, {"count", {"value"}, m_list_count, 1}, {"index", {"value"}, m_list_index, 1},
    {0}};
static const ZtBuiltin of_loops[] = {{"changed", {"*"}, m_changed, 0}, {"cycle", {"*"}, m_cycle, 0}, {0}};
/* What Python has beside. A template may ask if it is there, which a dict's key of that name is not. */
static const char *const not_of_texts[] = {
    "casefold", "center", "encode", "expandtabs", "format_map", "isascii", "isidentifier", "isprintable",
    "istitle", "ljust", "maketrans", "rindex", "rjust", "swapcase", "translate", "zfill", NULL};
static const char *const not_of_dicts[] = {"clear", "fromkeys", "pop", "popitem", "setdefault", "update",
                                          NULL};
static const char *const not_of_lists[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse",
                                          "sort",   NULL};
/* clang-format on */
static const struct {
  ZtKind kind;
  const ZtBuiltin *has;
  const char *const * not ;
} kinds[] = {{ZT_STRING, of_texts, not_of_texts},
             {ZT_DICT, of_dicts, not_of_dicts},
             {ZT_LIST, of_lists, not_of_lists},
             {ZT_TUPLE, of_lists, NULL},
             {ZT_LOOP, of_loops, NULL}};

static const ZtBuiltin *in(const ZtBuiltin *list, const char *name) {
  for (; list->name; list++)
    if (!strcmp(list->name, name)) return list;
  return NULL;
}

bool zt_method_known(const char *name) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (in(kinds[i].has, name)) return true;
    /* Jinja's sandbox refuses what changes its arguments when it is called, and so may a template that
     * never does. */
    for (const char *const *s = kinds[i].kind == ZT_STRING ? NULL : kinds[i].not ; s && *s; s++)
      if (!strcmp(*s, name)) return true;
  }
  return false;
}

bool zt_method(ZtRun *r, ZtValue of, const char *name, ZtValue *out) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (kinds[i].kind != of.kind) continue;
    const ZtBuiltin *b = in(kinds[i].has, name);
    const char *other = NULL;
    for (const char *const *s = kinds[i].not ; !b && s && *s && !other; s++)
      if (!strcmp(*s, name)) other = *s;
    if (!b && !other) return false;
    ZtMethod *m = zt_take(r, 1, sizeof *m);
    if (!m) return false;
    *m = (ZtMethod){b, other, of};
    *out = (ZtValue){.kind = ZT_METHOD, .method = m};
    return true;
  }
  return false;
}

/* Texts of a template's run: each byte knows where it came from. */
#define _GNU_SOURCE
#include "runtime/text/template/inside.h"
#include "runtime/text/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* ---- text that is made ----------------------------------------------------------------------- */
static bool make_room(ZtRun *r, ZtMade *m, size_t n, bool marked) {
  if (r->failed) return false;
  if (n > ZT_TEMPLATE_BYTES || m->n + n > ZT_TEMPLATE_OUTPUT) {
    zt_wrong(r, "it makes a text of more than %d bytes", ZT_TEMPLATE_OUTPUT);
    return false;
  }
  if (m->cap - m->n < n) {
    size_t cap = m->n + n > 2 * m->cap ? m->n + n : 2 * m->cap;
    if (cap < 48) cap = 48;
    char *s = zt_take(r, cap, 1);
    uint8_t *mark = m->mark ? zt_take(r, cap, 1) : NULL;
    if (!s || (m->mark && !mark)) return false;
    if (m->n) memcpy(s, m->s, m->n);
    if (m->n && mark) memcpy(mark, m->mark, m->n);
    m->s = s;
    m->mark = mark;
    m->cap = cap;
  }
  if (marked && !m->mark && !(m->mark = zt_take(r, m->cap, 1))) return false;
  return true;
}

void zt_put(ZtRun *r, ZtMade *m, const char *s, size_t n, const uint8_t *mark, uint8_t all) {
  if (!n || !zt_step(r, n) || !make_room(r, m, n, mark || all)) return;
  memcpy(m->s + m->n, s, n);
  if (mark) memcpy(m->mark + m->n, mark, n);
  else if (m->mark) memset(m->mark + m->n, all, n);
  m->n += n;
}

void zt_put_part(ZtRun *r, ZtMade *m, const ZtString *s, size_t begin, size_t end) {
  zt_put(r, m, s->s + begin, end - begin, s->mark ? s->mark + begin : NULL, s->all);
}
void zt_put_string(ZtRun *r, ZtMade *m, const ZtString *s) { zt_put(r, m, s->s, s->n, s->mark, s->all); }
void zt_put_text(ZtRun *r, ZtMade *m, const char *s) { zt_put(r, m, s, strlen(s), NULL, 0); }
void zt_put_char(ZtRun *r, ZtMade *m, uint32_t c, uint8_t mark) {
  char s[4];
  zt_put(r, m, s, zb_utf8(s, c), NULL, mark);
}

static ZtValue string_of(ZtRun *r, ZtString s) {
  ZtString *out = zt_take(r, 1, sizeof *out);
  if (!out) return zt_undefined(NULL);
  *out = s;
  return (ZtValue){.kind = ZT_STRING, .s = out};
}

ZtValue zt_made(ZtRun *r, const ZtMade *m) {
  if (r->failed) return zt_undefined(NULL);
  return string_of(r, (ZtString){.s = m->n ? m->s : "", .n = m->n, .mark = m->n ? m->mark : NULL});
}

ZtValue zt_text(ZtRun *r, const char *s) { return string_of(r, (ZtString){.s = s, .n = strlen(s)}); }

ZtValue zt_text_n(ZtRun *r, const char *s, size_t n, uint8_t mark) {
  char *copy = zt_take(r, n + 1, 1);
  if (!copy) return zt_undefined(NULL);
  memcpy(copy, s, n);
  return string_of(r, (ZtString){.s = copy, .n = n, .all = mark});
}

ZtValue zt_part(ZtRun *r, const ZtString *s, size_t begin, size_t end) {
  return string_of(r, (ZtString){s->s + begin, end - begin, s->mark ? s->mark + begin : NULL, s->all});
}

uint8_t zt_mark_at(const ZtString *s, size_t at) { return s->mark ? s->mark[at] : s->all; }

size_t zt_chars(const ZtString *s) {
  size_t n = 0;
  for (size_t i = 0; i < s->n; i++) n += ((uint8_t)s->s[i] & 0xc0) != 0x80;
  return n;
}

size_t zt_char_at(const ZtString *s, size_t nth) {
  size_t at = 0;
  while (nth-- && at < s->n) at += zt_char_bytes((uint8_t)s->s[at]);
  return at;
}

size_t zt_find(const ZtString *s, const ZtString *what, size_t from) {
  if (from > s->n || s->n - from < what->n) return SIZE_MAX;
  if (!what->n) return from;
  const char *at = memmem(s->s + from, s->n - from, what->s, what->n);
  return at ? (size_t)(at - s->s) : SIZE_MAX;
}

/* ---- as Python writes values ----------------------------------------------------------------- */
/* The shortest digits that read as the same number, with an exponent below 1e-4 and from 1e16 on. */
void zt_put_float(ZtRun *r, ZtMade *m, double f) {
  char text[64], digits[32];
  if (isnan(f) || isinf(f)) {
    zt_put_text(r, m, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
    return;
  }
  int precision = 1;
  do snprintf(digits, sizeof digits, "%.*e", precision - 1, f);
  while (precision++ < 17 && strtod(digits, NULL) != f);
  int exponent = atoi(strchr(digits, 'e') + 1), n = precision - 2;
  if (f == 0) snprintf(text, sizeof text, signbit(f) ? "-0.0" : "0.0");
  else if (exponent < -4 || exponent >= 16) {
    char *e = strchr(digits, 'e');
    snprintf(text, sizeof text, "%.*se%c%02d", (int)(e - digits), digits, exponent < 0 ? '-' : '+',
             abs(exponent));
  } else snprintf(text, sizeof text, "%.*f", n - exponent > 1 ? n - exponent : 1, f);
  zt_put(r, m, text, strlen(text), NULL, 0);
}

static void repr_string(ZtRun *r, ZtMade *m, const ZtString *s) {
  char quote = memchr(s->s, '\'', s->n) && !memchr(s->s, '"', s->n) ? '"' : '\'';
  zt_put(r, m, &quote, 1, NULL, 0);
  size_t bytes;
  for (size_t at = 0; at < s->n && !r->failed; at += bytes) {
    uint32_t c = zt_char(s->s + at, &bytes);
    char text[16];
    static const char names[] = "\n\t\r\\", written[] = "ntr\\";
    const char *known = c < 128 && c ? strchr(names, (int)c) : NULL;
    if (known) snprintf(text, sizeof text, "\\%c", written[known - names]);
    else if (c == (uint32_t)quote) snprintf(text, sizeof text, "\\%c", quote);
    else if (c < 32 || (c >= 127 && c <= 160) || c == 0xad) snprintf(text, sizeof text, "\\x%02x", c);
    else if (c != ' ' && zt_blank(c)) snprintf(text, sizeof text, "\\u%04x", c);
    else {
      zt_put_part(r, m, s, at, at + bytes);
      continue;
    }
    zt_put(r, m, text, strlen(text), NULL, zt_mark_at(s, at));
  }
  zt_put(r, m, &quote, 1, NULL, 0);
}

static void repr_items(ZtRun *r, ZtMade *m, ZtValue v) {
  bool tuple = v.kind == ZT_TUPLE, dict = v.kind == ZT_DICT;
  zt_put_text(r, m, tuple ? "(" : dict ? "{" : "[");
  for (size_t i = 0, n = dict ? v.d->n : v.l->n; i < n && !r->failed; i++) {
    if (i) zt_put_text(r, m, ", ");
    zt_put_repr(r, m, dict ? v.d->key[i] : v.l->item[i]);
    if (dict) zt_put_text(r, m, ": ");
    if (dict) zt_put_repr(r, m, v.d->value[i]);
  }
  zt_put_text(r, m, tuple ? v.l->n == 1 ? ",)" : ")" : dict ? "}" : "]");
}

void zt_put_repr(ZtRun *r, ZtMade *m, ZtValue v) {
  char text[64] = "";
  if (!zt_step(r, 0) || !zt_deeper(r)) return;
  switch (v.kind) {
  case ZT_UNDEFINED: zt_put_text(r, m, "Undefined"); break;
  case ZT_NULL: zt_put_text(r, m, "None"); break;
  case ZT_BOOL: zt_put_text(r, m, v.b ? "True" : "False"); break;
  case ZT_INT:
    snprintf(text, sizeof text, "%" PRId64, v.i);
    zt_put(r, m, text, strlen(text), NULL, 0);
    break;
  case ZT_FLOAT: zt_put_float(r, m, v.f); break;
  case ZT_STRING: repr_string(r, m, v.s); break;
  case ZT_LIST:
  case ZT_TUPLE:
  case ZT_DICT: repr_items(r, m, v); break;
  default: zt_wrong(r, "%s has no text", zt_kind(v));
  }
  r->depth--;
}

void zt_put_str(ZtRun *r, ZtMade *m, ZtValue v) {
  if (v.kind == ZT_STRING) zt_put_string(r, m, v.s);
  else if (v.kind != ZT_UNDEFINED) zt_put_repr(r, m, v);
}

const ZtString *zt_str(ZtRun *r, ZtValue v) {
  static const ZtString empty = {.s = ""};
  if (v.kind == ZT_STRING) return v.s;
  ZtMade m = {0};
  zt_put_str(r, &m, v);
  v = zt_made(r, &m);
  return v.kind == ZT_STRING ? v.s : &empty;
}

/* ---- upper and lower case -------------------------------------------------------------------- */
static size_t lower_of(uint32_t c, uint32_t out[3]) {
  out[0] = c;
  if (c < 128) {
    out[0] = c >= 'A' && c <= 'Z' ? c + 32 : c;
    return 1;
  }
  for (uint32_t lo = 0, hi = zt_nlower; lo < hi;) {
    uint32_t mid = (lo + hi) / 2;
    if (zt_lower_table[mid].c == c) {
      out[0] = zt_lower_table[mid].lower[0];
      out[1] = zt_lower_table[mid].lower[1];
      return out[1] ? 2 : 1;
    }
    if (zt_lower_table[mid].c < c) lo = mid + 1;
    else hi = mid;
  }
  return 1;
}

/* The table goes from upper to lower case: back from there, and what is not in it. */
static size_t upper_of(uint32_t c, uint32_t out[3]) {
  static const uint32_t more[][3] = {{0xdf, 'S', 'S'},   {0xb5, 0x39c, 0},  {0x131, 'I', 0},
                                     {0x17f, 'S', 0},    {0x3c2, 0x3a3, 0}, {0x149, 0x2bc, 'N'},
                                     {0xfb01, 'F', 'I'}, {0xfb02, 'F', 'L'}};
  out[0] = c;
  if (c < 128) {
    out[0] = c >= 'a' && c <= 'z' ? c - 32 : c;
    return 1;
  }
  for (size_t i = 0; i < sizeof more / sizeof *more; i++)
    if (more[i][0] == c) {
      out[0] = more[i][1];
      out[1] = more[i][2];
      return out[1] ? 2 : 1;
    }
  for (uint32_t i = 0; i < zt_nlower; i++)
    if (zt_lower_table[i].lower[0] == c && !zt_lower_table[i].lower[1]) {
      out[0] = zt_lower_table[i].c;
      return 1;
    }
  return 1;
}

/* Says if a character has case; then a word has begun. */
static bool cased(uint32_t c) {
  uint32_t a[3], b[3];
  return (lower_of(c, a), a[0] != c) || (upper_of(c, b), b[0] != c);
}

/* The filter `title` begins words behind these, the method behind all that has no case. */
static bool word_ends(uint32_t c) { return (c < 128 && strchr("-({[<", (int)c) && c) || zt_blank(c); }

ZtValue zt_recase(ZtRun *r, const ZtString *s, ZtCase to) {
  ZtMade m = {0};
  bool begins = true;
  size_t bytes;
  for (size_t at = 0; at < s->n && zt_step(r, 16); at += bytes) {
    uint32_t c = zt_char(s->s + at, &bytes), out[3];
    bool up = to == ZT_UPPER || (to != ZT_LOWER && begins);
    if (c >= 128) zt_step(r, 4096);
    size_t n = up ? upper_of(c, out) : lower_of(c, out);
    if (up && to != ZT_UPPER && n == 2 && out[1] < 128) out[1] += 32; /* "Ss" */
    for (size_t i = 0; i < n; i++) zt_put_char(r, &m, out[i], zt_mark_at(s, at));
    if (to == ZT_CAPITALIZE) begins = false;
    else begins = to == ZT_TITLE ? !cased(c) : word_ends(c);
  }
  return zt_made(r, &m);
}

/* ---- parts of texts -------------------------------------------------------------------------- */
static bool stripped(const ZtString *chars, uint32_t c) {
  if (!chars) return zt_blank(c);
  size_t bytes;
  for (size_t at = 0; at < chars->n; at += bytes)
    if (zt_char(chars->s + at, &bytes) == c) return true;
  return false;
}

ZtValue zt_strip(ZtRun *r, const ZtString *s, ZtValue chars, bool left, bool right) {
  size_t begin = 0, end = s->n, bytes;
  if (chars.kind != ZT_ABSENT && chars.kind != ZT_NULL && chars.kind != ZT_STRING)
    return zt_wrong(r, "%s is stripped; expected a string of characters", zt_kind(chars));
  const ZtString *of = chars.kind == ZT_STRING ? chars.s : NULL;
  while (left && begin < end && stripped(of, zt_char(s->s + begin, &bytes)) && zt_step(r, of ? of->n : 1))
    begin += bytes;
  while (right && end > begin) {
    size_t before = zt_char_before(s->s, end);
    if (!stripped(of, zt_char(s->s + before, &bytes)) || !zt_step(r, of ? of->n : 1)) break;
    end = before;
  }
  return zt_part(r, s, begin, end);
}

ZtValue zt_replace(ZtRun *r, const ZtString *s, const ZtString *old, const ZtString *by, int64_t most) {
  ZtMade m = {0};
  size_t at = 0;
  if (!old->n) { /* between all characters */
    for (int64_t k = 0; !r->failed; k++) {
      if (most < 0 || k < most) zt_put_string(r, &m, by);
      if (at >= s->n || !zt_step(r, 0)) break;
      size_t bytes = zt_char_bytes((uint8_t)s->s[at]);
      zt_put_part(r, &m, s, at, at + bytes);
      at += bytes;
    }
    return zt_made(r, &m);
  }
  for (int64_t k = 0; (most < 0 || k < most) && zt_step(r, 0); k++) {
    size_t found = zt_find(s, old, at);
    if (found == SIZE_MAX) break;
    zt_put_part(r, &m, s, at, found);
    zt_put_string(r, &m, by);
    at = found + old->n;
  }
  zt_put_part(r, &m, s, at, s->n);
  return zt_made(r, &m);
}

/* ---- "%s" % x -------------------------------------------------------------------------------- */
static void percent_number(ZtRun *r, ZtMade *m, const char *spec, char kind, ZtValue v) {
  char form[40], text[400];
  if (!zt_is_number(v)) {
    zt_wrong(r, "%%%c of %s; expected a number", kind, zt_kind(v));
    return;
  }
  bool real = strchr("fFeEgG", kind);
  if (!real && v.kind == ZT_FLOAT && (!(fabs(v.f) < 9e18) || !strchr("di", kind))) {
    zt_wrong(r, "%%%c of a number that is not whole", kind);
    return;
  }
  snprintf(form, sizeof form, "%%%s%s%c", spec, real ? "" : "j", kind);
  if (real) snprintf(text, sizeof text, form, zt_as_double(v));
  else snprintf(text, sizeof text, form, (intmax_t)(v.kind == ZT_FLOAT ? (int64_t)v.f : zt_as_int(v)));
  zt_put(r, m, text, strlen(text), NULL, 0);
}

static void percent_text(ZtRun *r, ZtMade *m, const char *spec, char kind, ZtValue v) {
  ZtMade made = {0};
  bool left = strchr(spec, '-');
  const char *dot = strchr(spec, '.'), *digits = spec + strspn(spec, "-+ #0");
  if (kind == 's') zt_put_str(r, &made, v);
  else zt_put_repr(r, &made, v);
  ZtValue t = zt_made(r, &made);
  if (t.kind != ZT_STRING) return;
  if (dot) t = zt_part(r, t.s, 0, zt_char_at(t.s, (size_t)atoi(dot + 1)));
  if (t.kind != ZT_STRING) return;
  int width = atoi(digits), pad = width - (int)zt_chars(t.s);
  for (int i = 0; !left && i < pad; i++) zt_put_text(r, m, " ");
  zt_put_string(r, m, t.s);
  for (int i = 0; left && i < pad; i++) zt_put_text(r, m, " ");
}

/* Takes a field behind its '%'; returns where it ends, 0 where it is wrong. */
static size_t percent(ZtRun *r, ZtMade *m, const ZtString *s, size_t at, const ZtList *given, size_t *next) {
  char spec[16] = "";
  size_t n = 0;
  while (at < s->n && s->s[at] && strchr("-+ #0123456789.", s->s[at]) && n < 6) spec[n++] = s->s[at++];
  size_t known = strspn(spec, "-+ #0");
  known += strspn(spec + known, "0123456789");
  if (spec[known] == '.') known += 1 + strspn(spec + known + 1, "0123456789");
  char kind = at < s->n ? s->s[at] : 0;
  if (kind == '%') zt_put_text(r, m, "%");
  else if (!kind || spec[known] || !strchr("srdifFeEgGxXo", kind))
    zt_wrong(r, "a format %%%s%c, which is not supported", spec, kind ? kind : ' ');
  else if (*next == given->n) zt_wrong(r, "a format of more values than there are");
  else if (kind == 's' || kind == 'r') percent_text(r, m, spec, kind, given->item[(*next)++]);
  else percent_number(r, m, spec, kind, given->item[(*next)++]);
  return at + 1;
}

ZtValue zt_format_percent(ZtRun *r, const ZtString *s, ZtValue args) {
  ZtMade m = {0};
  ZtList one = {&args, 1}, given = args.kind == ZT_TUPLE ? *args.l : one;
  size_t next = 0;
  for (size_t at = 0; at < s->n && !r->failed;) {
    const char *field = memchr(s->s + at, '%', s->n - at);
    size_t end = field ? (size_t)(field - s->s) : s->n;
    zt_put_part(r, &m, s, at, end);
    at = field ? percent(r, &m, s, end + 1, &given, &next) : s->n;
  }
  if (!r->failed && next < given.n && args.kind != ZT_DICT)
    return zt_wrong(r, "a format of fewer values than there are");
  return zt_made(r, &m);
}

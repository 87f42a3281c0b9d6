/* JSON of a template: `tojson` as Python's json.dumps writes it, and values that came as JSON. */
#include "runtime/text/template/inside.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* ---- written --------------------------------------------------------------------------------- */
typedef struct {
  ZtRun *r;
  ZtMade *m;
  bool ascii, sorted;
  const ZtString *indent; /* NULL: all on one line */
  const ZtString *comma, *colon;
  int depth;
} Writer;

static void put_text(Writer *w, const ZtString *s) {
  zt_put_text(w->r, w->m, "\"");
  size_t bytes, plain = 0;
  for (size_t at = 0; at < s->n && zt_step(w->r, 0); at += bytes) {
    static const char marks[] = "\"\\\n\r\t\b\f", written[] = "\"\\nrtbf";
    uint32_t c = zt_char(s->s + at, &bytes);
    const char *known = c && c < 128 ? strchr(marks, (int)c) : NULL;
    char text[16] = "";
    if (known) snprintf(text, sizeof text, "\\%c", written[known - marks]);
    else if (c >= 0x10000 && w->ascii)
      snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
               0xdc00 + ((c - 0x10000) & 0x3ff));
    else if (c < 32 || (c >= 127 && w->ascii && c != 127)) snprintf(text, sizeof text, "\\u%04x", c);
    if (!*text) continue;
    zt_put_part(w->r, w->m, s, plain, at);
    zt_put(w->r, w->m, text, strlen(text), NULL, zt_mark_at(s, at));
    plain = at + bytes;
  }
  if (plain < s->n) zt_put_part(w->r, w->m, s, plain, s->n);
  zt_put_text(w->r, w->m, "\"");
}

static void new_line(Writer *w) {
  if (!w->indent) return;
  zt_put_text(w->r, w->m, "\n");
  for (int i = 0; i < w->depth; i++) zt_put_string(w->r, w->m, w->indent);
}

static void put(Writer *w, ZtValue v);

static void put_key(Writer *w, ZtValue k) {
  if (k.kind == ZT_STRING) {
    put_text(w, k.s);
    return;
  }
  zt_put_text(w->r, w->m, "\"");
  if (k.kind == ZT_BOOL || k.kind == ZT_NULL || k.kind == ZT_INT || k.kind == ZT_FLOAT) put(w, k);
  else zt_wrong(w->r, "tojson of a dict with %s as a key", zt_kind(k));
  zt_put_text(w->r, w->m, "\"");
}

/* The members of a dict in the order of their keys. */
static ZtList members(Writer *w, ZtValue v) {
  ZtValue arg = zt_bool(true);
  uint32_t name = ZB_NO_NAME;
  ZtValue list = zt_invoke(w->r, zt_filter("dictsort"), v, &(ZtGiven){&arg, &name, 1});
  return list.kind == ZT_LIST ? *list.l : (ZtList){0};
}

static void put_members(Writer *w, ZtValue v) {
  bool dict = v.kind == ZT_DICT;
  ZtList l = dict && w->sorted ? members(w, v) : (ZtList){0};
  size_t n = dict ? v.d->n : v.l->n;
  zt_put_text(w->r, w->m, dict ? "{" : "[");
  w->depth++;
  for (size_t i = 0; i < n && zt_step(w->r, 0); i++) {
    if (i) zt_put_string(w->r, w->m, w->comma);
    new_line(w);
    if (dict) {
      put_key(w, w->sorted ? l.item[i].l->item[0] : v.d->key[i]);
      zt_put_string(w->r, w->m, w->colon);
      put(w, w->sorted ? l.item[i].l->item[1] : v.d->value[i]);
    } else put(w, v.l->item[i]);
  }
  w->depth--;
  if (n) new_line(w);
  zt_put_text(w->r, w->m, dict ? "}" : "]");
}

static void put(Writer *w, ZtValue v) {
  if (!zt_deeper(w->r)) return;
  switch (v.kind) {
  case ZT_NULL: zt_put_text(w->r, w->m, "null"); break;
  case ZT_BOOL: zt_put_text(w->r, w->m, v.b ? "true" : "false"); break;
  case ZT_INT: zt_put_repr(w->r, w->m, v); break;
  case ZT_FLOAT:
    if (isfinite(v.f)) zt_put_float(w->r, w->m, v.f);
    else zt_put_text(w->r, w->m, isnan(v.f) ? "NaN" : v.f < 0 ? "-Infinity" : "Infinity");
    break;
  case ZT_STRING: put_text(w, v.s); break;
  case ZT_LIST:
  case ZT_TUPLE:
  case ZT_DICT: put_members(w, v); break;
  default: zt_wrong(w->r, "tojson of %s", zt_kind(v));
  }
  w->r->depth--;
}

/* ", " and ": ", unless the template says others. */
static bool separators(Writer *w, ZtValue given) {
  static const ZtString comma = {.s = ", ", .n = 2}, bare = {.s = ",", .n = 1}, colon = {.s = ": ", .n = 2};
  w->comma = w->indent ? &bare : &comma;
  w->colon = &colon;
  if (given.kind == ZT_ABSENT || given.kind == ZT_NULL) return true;
  if ((given.kind != ZT_TUPLE && given.kind != ZT_LIST) || given.l->n != 2 ||
      given.l->item[0].kind != ZT_STRING || given.l->item[1].kind != ZT_STRING) {
    zt_wrong(w->r, "tojson: separators are two strings");
    return false;
  }
  w->comma = given.l->item[0].s;
  w->colon = given.l->item[1].s;
  return true;
}

void zt_put_json(ZtRun *r, ZtMade *m, ZtValue v, const ZtValue *arg) {
  Writer w = {.r = r,
              .m = m,
              .ascii = arg[0].kind != ZT_ABSENT && zt_truth(arg[0]),
              .sorted = arg[3].kind != ZT_ABSENT && zt_truth(arg[3])};
  ZtMade blanks = {0};
  ZtValue indent = arg[1];
  if (indent.kind == ZT_INT || indent.kind == ZT_BOOL) {
    for (int64_t i = 0; i < zt_as_int(arg[1]) && !r->failed; i++) zt_put_text(r, &blanks, " ");
    indent = zt_made(r, &blanks);
  }
  if (indent.kind == ZT_STRING) w.indent = indent.s;
  if (!r->failed && separators(&w, arg[2])) put(&w, v);
}

/* ---- read ------------------------------------------------------------------------------------ */
static ZtValue number(const cJSON *x) {
  const char *s = x->valuestring; /* its digits, where the caller has kept them */
  char *end;
  if (s && !strpbrk(s, ".eE")) {
    errno = 0;
    int64_t i = strtoll(s, &end, 10);
    if (!errno && end != s && !*end) return zt_int(i);
  }
  double f = x->valuedouble;
  return !s && f == floor(f) && fabs(f) < 0x1p63 ? zt_int((int64_t)f) : zt_float(f);
}

ZtValue zt_text_given(ZtRun *r, const char *s, uint8_t mark) {
  size_t n = strlen(s);
  if (zt_utf8_valid(s, n) == n) return zt_text_n(r, s, n, mark);
  return zt_wrong(r, "a text of the conversation is not UTF-8");
}

ZtValue zt_from_json(ZtRun *r, const cJSON *x, uint8_t mark) {
  if (!x || cJSON_IsNull(x)) return zt_none();
  if (cJSON_IsBool(x)) return zt_bool(cJSON_IsTrue(x));
  if (cJSON_IsNumber(x)) return number(x);
  if (cJSON_IsString(x)) return zt_text_given(r, x->valuestring, mark);
  if (!zt_deeper(r)) return zt_undefined(NULL);
  size_t n = (size_t)cJSON_GetArraySize(x), i = 0;
  ZtValue v = zt_none();
  if (cJSON_IsObject(x)) {
    ZtDict *d = zt_dict_new(r, n);
    for (const cJSON *c = x->child; c && d && zt_step(r, 0); c = c->next)
      zt_dict_put(r, d, zt_text_given(r, c->string, mark), zt_from_json(r, c, mark));
    if (d) v = (ZtValue){.kind = ZT_DICT, .d = d};
  } else {
    ZtValue *item = zt_take(r, n, sizeof *item);
    for (const cJSON *c = x->child; c && item && zt_step(r, 0); c = c->next)
      item[i++] = zt_from_json(r, c, mark);
    v = zt_list(r, ZT_LIST, item, i);
  }
  r->depth--;
  return r->failed ? zt_undefined(NULL) : v;
}

ZtValue zt_parse_json(ZtRun *r, const ZtString *s, bool *is) {
  uint8_t mark = 0;
  ZbErr why;
  for (size_t i = 0; i < s->n; i++) mark |= zt_mark_at(s, i);
  char *copy = zt_take(r, s->n + 1, 1); /* which ends with a NUL, for the digits */
  *is = false;
  if (!copy) return zt_undefined(NULL);
  memcpy(copy, s->s, s->n);
  cJSON *x = zb_json_parse(copy, s->n, ZB_JSON_ANY, &why);
  if (!x) return zt_undefined(NULL);
  zb_json_digits(x, copy);
  ZtValue v = zt_from_json(r, x, mark);
  cJSON_Delete(x);
  *is = !r->failed;
  return v;
}

/* Values as Python has them: truth, equality, order, items. */
#include "runtime/text/template/inside.h"

ZtValue zt_none(void) { return (ZtValue){.kind = ZT_NULL}; }
ZtValue zt_bool(bool b) { return (ZtValue){.kind = ZT_BOOL, .b = b}; }
ZtValue zt_int(int64_t i) { return (ZtValue){.kind = ZT_INT, .i = i}; }
ZtValue zt_float(double f) { return (ZtValue){.kind = ZT_FLOAT, .f = f}; }
ZtValue zt_undefined(const char *name) { return (ZtValue){.kind = ZT_UNDEFINED, .name = name}; }

ZtValue zt_list(ZtRun *r, ZtKind kind, ZtValue *item, size_t n) {
  ZtList *l = zt_take(r, 1, sizeof *l);
  if (!l) return zt_undefined(NULL);
  *l = (ZtList){item, n};
  return (ZtValue){.kind = kind, .l = l};
}

const char *zt_kind(ZtValue v) {
  switch (v.kind) {
  case ZT_UNDEFINED:
  case ZT_ABSENT: return "undefined";
  case ZT_NULL: return "none";
  case ZT_BOOL: return "a boolean";
  case ZT_INT: return "a whole number";
  case ZT_FLOAT: return "a number";
  case ZT_STRING: return "a string";
  case ZT_LIST: return "a list";
  case ZT_TUPLE: return "a tuple";
  case ZT_DICT: return "a dict";
  case ZT_NAMESPACE: return "a namespace";
  case ZT_LOOP: return "a loop";
  case ZT_MACRO: return "a macro";
  case ZT_FUNCTION: return "a function";
  case ZT_METHOD: return "a method";
  }
  return "?";
}

bool zt_is_number(ZtValue v) { return v.kind == ZT_BOOL || v.kind == ZT_INT || v.kind == ZT_FLOAT; }
double zt_as_double(ZtValue v) {
  return v.kind == ZT_FLOAT ? v.f : v.kind == ZT_INT ? (double)v.i : v.kind == ZT_BOOL ? v.b : 0;
}
int64_t zt_as_int(ZtValue v) { return v.kind == ZT_INT ? v.i : v.kind == ZT_BOOL ? v.b : 0; }

bool zt_length(ZtValue v, size_t *n) {
  switch (v.kind) {
  case ZT_UNDEFINED: *n = 0; return true;
  case ZT_STRING: *n = zt_chars(v.s); return true;
  case ZT_LIST:
  case ZT_TUPLE: *n = v.l->n; return true;
  case ZT_DICT: *n = v.d->n; return true;
  case ZT_LOOP: *n = v.loop->list->n; return true;
  default: return false;
  }
}

bool zt_truth(ZtValue v) {
  switch (v.kind) {
  case ZT_UNDEFINED:
  case ZT_ABSENT:
  case ZT_NULL: return false;
  case ZT_BOOL: return v.b;
  case ZT_INT: return v.i != 0;
  case ZT_FLOAT: return v.f != 0;
  case ZT_STRING: return v.s->n != 0;
  case ZT_LIST:
  case ZT_TUPLE: return v.l->n != 0;
  case ZT_DICT: return v.d->n != 0;
  default: return true;
  }
}

/* ---- equality and order ---------------------------------------------------------------------- */
static bool equal_lists(ZtRun *r, const ZtList *a, const ZtList *b) {
  if (a->n != b->n || !zt_deeper(r)) return false;
  bool same = true;
  for (size_t i = 0; same && i < a->n && zt_step(r, 0); i++) same = zt_equal(r, a->item[i], b->item[i]);
  r->depth--;
  return same;
}

static bool equal_dicts(ZtRun *r, const ZtDict *a, const ZtDict *b) {
  if (a->n != b->n || !zt_deeper(r)) return false;
  bool same = true;
  for (size_t i = 0; same && i < a->n && zt_step(r, 0); i++) {
    const ZtValue *other = zt_dict_find(r, b, a->key[i]);
    same = other && zt_equal(r, a->value[i], *other);
  }
  r->depth--;
  return same;
}

bool zt_equal(ZtRun *r, ZtValue a, ZtValue b) {
  if (zt_is_number(a) && zt_is_number(b))
    return a.kind != ZT_FLOAT && b.kind != ZT_FLOAT ? zt_as_int(a) == zt_as_int(b)
                                                    : zt_as_double(a) == zt_as_double(b);
  if (a.kind != b.kind) return false;
  switch (a.kind) {
  case ZT_UNDEFINED:
  case ZT_NULL: return true;
  case ZT_STRING: return a.s->n == b.s->n && zt_step(r, a.s->n) && !memcmp(a.s->s, b.s->s, a.s->n);
  case ZT_LIST:
  case ZT_TUPLE: return a.l == b.l || equal_lists(r, a.l, b.l);
  case ZT_DICT: return a.d == b.d || equal_dicts(r, a.d, b.d);
  case ZT_NAMESPACE: return a.d == b.d;
  case ZT_LOOP: return a.loop == b.loop;
  case ZT_MACRO: return a.macro == b.macro;
  case ZT_FUNCTION: return a.function == b.function;
  default: return false;
  }
}

int zt_order(ZtRun *r, ZtValue a, ZtValue b) {
  if (zt_is_number(a) && zt_is_number(b)) {
    if (a.kind != ZT_FLOAT && b.kind != ZT_FLOAT)
      return (zt_as_int(a) > zt_as_int(b)) - (zt_as_int(a) < zt_as_int(b));
    return (zt_as_double(a) > zt_as_double(b)) - (zt_as_double(a) < zt_as_double(b));
  }
  if (a.kind == ZT_STRING && b.kind == ZT_STRING) {
    size_t n = a.s->n < b.s->n ? a.s->n : b.s->n;
    zt_step(r, n);
    int c = memcmp(a.s->s, b.s->s, n);
    return c ? (c > 0) - (c < 0) : (a.s->n > b.s->n) - (a.s->n < b.s->n);
  }
  if (a.kind == b.kind && (a.kind == ZT_LIST || a.kind == ZT_TUPLE) && zt_deeper(r)) {
    int order = 0;
    size_t i = 0;
    for (; !order && i < a.l->n && i < b.l->n && zt_step(r, 0); i++)
      if (!zt_equal(r, a.l->item[i], b.l->item[i])) order = zt_order(r, a.l->item[i], b.l->item[i]);
    r->depth--;
    return order ? order : (a.l->n > b.l->n) - (a.l->n < b.l->n);
  }
  zt_wrong(r, "%s and %s have no order", zt_kind(a), zt_kind(b));
  return 0;
}

/* ---- items ----------------------------------------------------------------------------------- */
static bool characters(ZtRun *r, const ZtString *s, ZtList *out) {
  size_t n = zt_chars(s), at = 0;
  ZtValue *item = zt_take(r, n, sizeof *item);
  if (!item || !zt_step(r, 64 * n)) return false;
  for (size_t i = 0; i < n; i++) {
    size_t bytes = zt_char_bytes((uint8_t)s->s[at]);
    item[i] = zt_part(r, s, at, at + bytes);
    at += bytes;
  }
  *out = (ZtList){item, n};
  return !r->failed;
}

bool zt_items(ZtRun *r, ZtValue v, ZtList *out) {
  *out = (ZtList){NULL, 0};
  switch (v.kind) {
  case ZT_UNDEFINED: return true;
  case ZT_STRING: return characters(r, v.s, out);
  case ZT_LIST:
  case ZT_TUPLE: *out = *v.l; return true;
  case ZT_DICT: *out = (ZtList){v.d->key, v.d->n}; return true;
  case ZT_LOOP: *out = *v.loop->list; return true;
  default: zt_wrong(r, "%s has no items to go through", zt_kind(v)); return false;
  }
}

ZtDict *zt_dict_new(ZtRun *r, size_t cap) {
  ZtDict *d = zt_take(r, 1, sizeof *d);
  if (!d) return NULL;
  d->key = zt_take(r, cap, sizeof *d->key);
  d->value = zt_take(r, cap, sizeof *d->value);
  d->cap = cap;
  return d->key && d->value ? d : NULL;
}

const ZtValue *zt_dict_find(ZtRun *r, const ZtDict *d, ZtValue key) {
  if (!zt_step(r, 2 * d->n)) return NULL;
  for (size_t i = 0; i < d->n; i++) {
    if (key.kind == ZT_STRING) { /* the usual one, without steps for each */
      const ZtValue *k = &d->key[i];
      if (k->kind == ZT_STRING && k->s->n == key.s->n && !memcmp(k->s->s, key.s->s, key.s->n))
        return &d->value[i];
    } else if (zt_equal(r, d->key[i], key)) return &d->value[i];
  }
  return NULL;
}

const ZtValue *zt_dict_named(const ZtDict *d, const char *key) {
  size_t n = strlen(key);
  for (size_t i = 0; i < d->n; i++)
    if (d->key[i].kind == ZT_STRING && d->key[i].s->n == n && !memcmp(d->key[i].s->s, key, n))
      return &d->value[i];
  return NULL;
}

void zt_dict_put(ZtRun *r, ZtDict *d, ZtValue key, ZtValue v) {
  const ZtValue *there = zt_dict_find(r, d, key);
  if (r->failed) return;
  if (there) {
    d->value[there - d->value] = v;
    return;
  }
  if (d->n == d->cap) {
    size_t cap = d->cap ? 2 * d->cap : 8;
    ZtValue *k = zt_take(r, cap, sizeof *k), *x = zt_take(r, cap, sizeof *x);
    if (!k || !x) return;
    if (d->n) memcpy(k, d->key, d->n * sizeof *k);
    if (d->n) memcpy(x, d->value, d->n * sizeof *x);
    d->key = k;
    d->value = x;
    d->cap = cap;
  }
  d->key[d->n] = key;
  d->value[d->n++] = v;
}

/* Spans of a text, where they lie once it is normalized. */
#include "runtime/text/room.h"

enum { MOST_WORK = 1 << 28 /* bytes that are normalized to find out */ };

/* Says if s[0..n) has an added token that may depend on spans. */
static bool in_question(const ZtCoder *c, const char *s, size_t n) {
  const ZtAllowed all = {.special = true};
  size_t done = 0, from = 0, begin, end;
  return zt_added_next(c->t, &c->t->normal, &all, s, n, done, &from, &begin, &end) != NULL;
}

/* Normalizes without counting it as growth. */
static bool normalize(ZtCoder *c, const char *s, size_t n, const char **out, size_t *out_n) {
  size_t room = c->room;
  bool ok = zt_normalize(c, s, n, out, out_n);
  c->room = room;
  return ok;
}

static size_t alike(const char *a, size_t na, const char *b, size_t nb) {
  size_t n = 0;
  while (n < na && n < nb && a[n] == b[n]) n++;
  return n;
}

static size_t alike_behind(const char *a, size_t na, const char *b, size_t nb) {
  size_t n = 0;
  while (n < na && n < nb && a[na - 1 - n] == b[nb - 1 - n]) n++;
  return n;
}

/* A span of the raw text, as a part of what was made of it: not less. It begins where what was made of
 * all before it differs from the whole, and ends where what is made of all behind it does not. */
static bool follow(ZtCoder *c, const char *raw, size_t n, size_t begin, size_t end, ZtSpan *out) {
  const char *s;
  size_t ns;
  if (!normalize(c, raw, begin, &s, &ns)) return false;
  out->begin = alike(s, ns, c->whole.s, c->whole.len);
  if (!normalize(c, raw + end, n - end, &s, &ns)) return false;
  out->end = c->whole.len - alike_behind(s, ns, c->whole.s, c->whole.len);
  if (out->end < out->begin) out->end = out->begin;
  return true;
}

bool zt_marks_follow(ZtCoder *c, const char *raw, size_t nraw, const char **s, size_t *n, ZtAllowed *may) {
  size_t count = 0, work = 0, base = may->base;
  if (!may->marked || !c->t->nnorm || !c->t->normal.count || !in_question(c, *s, *n)) return true;
  c->whole.len = 0;
  zb_text_put(&c->whole, *s, *n);
  for (size_t i = 0; i < may->nspans; i++) {
    const ZtSpan *x = &may->span[i];
    if (x->end <= base || x->begin >= base + nraw) continue;
    size_t begin = x->begin > base ? x->begin - base : 0, end = x->end < base + nraw ? x->end - base : nraw;
    if ((work += nraw) > MOST_WORK)
      return zb_fail(c->err, NULL,
                     "a conversation that is too long for a tokenizer whose special tokens are normalized");
    c->span = zt_room(c->span, count, 1, sizeof *c->span, &c->span_cap);
    c->span[count].of = x->of;
    if (!follow(c, raw, nraw, begin, end, &c->span[count])) return false;
    if (count && c->span[count].begin < c->span[count - 1].end) c->span[count].begin = c->span[count - 1].end;
    if (c->span[count].end < c->span[count].begin) c->span[count].end = c->span[count].begin;
    count++;
  }
  may->span = c->span;
  may->nspans = count;
  may->base = 0;
  *s = c->whole.s;
  *n = c->whole.len;
  return true;
}

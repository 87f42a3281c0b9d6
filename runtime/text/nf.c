/* The normal forms NFC, NFD, NFKC and NFKD, with the tables of the version of Unicode that the library has.
 *
 * Most text is in all forms already. A character is "plain" if it stands by itself in all forms: it is a
 * starter, has no decomposition, and composes with nothing before it; and of 256 neighbours all or none are.
 * A stretch is a character and all that are not plain after it: only stretches are looked at, and each by
 * itself, since nothing composes over the place before a plain character. */
#include "runtime/text/unicode.h"

#include <stdlib.h>

enum {
  PAGES = 0x110000 >> 8,
  S = 0xac00, /* Hangul syllables are computed: Unicode 3.12 */
  L = 0x1100,
  V = 0x1161,
  T = 0x11a7,
  NL = 19,
  NV = 21,
  NT = 28
};

struct ZtForms {
  uint8_t busy[PAGES]; /* bit 0: in NFC and NFD, bit 1: in NFKC and NFKD */
  uint32_t first[2];   /* the first character that is not plain, canonically and compatibly */
  uint64_t *pair;      /* compositions by open addressing: both characters; the result */
  uint32_t *composed, mask;
};

static uint32_t pair_slot(const ZtForms *f, uint64_t pair) {
  uint32_t i = (uint32_t)(pair * 0x9e3779b97f4a7c15ull >> 40) & f->mask;
  while (f->pair[i] && f->pair[i] != pair) i = (i + 1) & f->mask;
  return i;
}

static bool stays_apart(uint32_t c) {
  for (uint32_t i = 0; i < zt_nnot_composed; i++)
    if (zt_not_composed[i] == c) return true;
  return false;
}

ZtForms *zt_forms_new(ZbArena *a) {
  ZtForms *f = ZB_NEW(a, ZtForms);
  uint32_t size = 64;
  while (size < 2 * zt_ncanonical) size *= 2;
  f->pair = ZB_NEWN(a, uint64_t, size);
  f->composed = ZB_NEWN(a, uint32_t, size);
  f->mask = size - 1;
  f->first[0] = 0xc0;
  f->first[1] = 0xa0;
  for (uint32_t i = 0; i < zt_nclass; i++)
    for (uint32_t c = zt_class_table[i].first; c <= zt_class_table[i].last; c++) f->busy[c >> 8] = 3;
  for (uint32_t i = 0; i < zt_ncompatible; i++) f->busy[zt_compatible_table[i].c >> 8] |= 2;
  for (uint32_t i = 0; i < zt_ncanonical; i++) {
    const ZtDecomposition *d = &zt_canonical_table[i];
    f->busy[d->c >> 8] = 3;
    if (d->n != 2 || stays_apart(d->c)) continue;
    uint64_t pair = (uint64_t)zt_decomposed[d->at] << 32 | zt_decomposed[d->at + 1];
    uint32_t slot = pair_slot(f, pair);
    f->pair[slot] = pair;
    f->composed[slot] = d->c;
    f->busy[zt_decomposed[d->at + 1] >> 8] = 3; /* it may compose with what is before it */
  }
  f->busy[L >> 8] = 3;
  for (uint32_t page = S >> 8; page <= (S + NL * NV * NT - 1) >> 8; page++) f->busy[page] = 3;
  return f;
}

static bool plain(const ZtForms *f, bool compatible, uint32_t c) {
  return c < f->first[compatible] || !(f->busy[c >> 8] & (compatible ? 2 : 1));
}

static uint8_t class_of(uint32_t c) {
  uint32_t low = 0, high = zt_nclass;
  while (low < high) {
    uint32_t mid = (low + high) / 2;
    if (c < zt_class_table[mid].first) high = mid;
    else if (c > zt_class_table[mid].last) low = mid + 1;
    else return (uint8_t)zt_class_table[mid].class;
  }
  return 0;
}

static const ZtDecomposition *find(const ZtDecomposition *table, uint32_t n, uint32_t c) {
  uint32_t low = 0, high = n;
  while (low < high) {
    uint32_t mid = (low + high) / 2;
    if (c < table[mid].c) high = mid;
    else if (c > table[mid].c) low = mid + 1;
    else return &table[mid];
  }
  return NULL;
}

static void add(ZtStretch *s, uint32_t c) {
  if (s->n == s->cap) {
    size_t cap[4] = {s->cap, s->cap, s->cap, s->cap};
    s->c = zt_room(s->c, s->n, 1, sizeof *s->c, &cap[0]);
    s->spare = zt_room(s->spare, s->n, 1, sizeof *s->spare, &cap[1]);
    s->class = zt_room(s->class, s->n, 1, 1, &cap[2]);
    s->spare_class = zt_room(s->spare_class, s->n, 1, 1, &cap[3]);
    s->cap = cap[0];
  }
  s->c[s->n] = c;
  s->class[s->n++] = class_of(c);
}

static void decompose(ZtStretch *s, uint32_t c, bool compatible) {
  if (c >= S && c < S + NL * NV * NT) {
    c -= S;
    add(s, L + c / (NV * NT));
    add(s, V + c / NT % NV);
    if (c % NT) add(s, T + c % NT);
    return;
  }
  const ZtDecomposition *d = c < 0xa0 ? NULL : find(zt_canonical_table, zt_ncanonical, c);
  if (!d && compatible && c >= 0xa0) d = find(zt_compatible_table, zt_ncompatible, c);
  if (!d) add(s, c);
  else
    for (uint32_t i = 0; i < d->n; i++) decompose(s, zt_decomposed[d->at + i], compatible);
}

/* Orders each run of characters that are no starters by class, those of one class as they came. */
static void reorder(ZtStretch *s) {
  for (size_t i = 0, end; i < s->n; i = end + 1) {
    for (end = i; end < s->n && s->class[end]; end++) {}
    if (end - i < 2) continue;
    size_t at[256] = {0}, sum = i;
    for (size_t k = i; k < end; k++) at[s->class[k]]++;
    for (int k = 0; k < 256; k++) {
      size_t count = at[k];
      at[k] = sum;
      sum += count;
    }
    for (size_t k = i; k < end; k++) {
      size_t to = at[s->class[k]]++;
      s->spare[to] = s->c[k];
      s->spare_class[to] = s->class[k];
    }
    memcpy(s->c + i, s->spare + i, (end - i) * sizeof *s->c);
    memcpy(s->class + i, s->spare_class + i, end - i);
  }
}

/* What two characters compose to, or 0. */
static uint32_t compose_two(const ZtForms *f, uint32_t a, uint32_t b) {
  if (a >= L && a < L + NL && b >= V && b < V + NV) return S + ((a - L) * NV + (b - V)) * NT;
  if (a >= S && a < S + NL * NV * NT && (a - S) % NT == 0 && b > T && b < T + NT) return a + (b - T);
  uint64_t pair = (uint64_t)a << 32 | b;
  uint32_t slot = pair_slot(f, pair);
  return f->pair[slot] ? f->composed[slot] : 0;
}

static void compose(const ZtForms *f, ZtStretch *s) {
  size_t out = 0, starter = SIZE_MAX;
  int last = -1; /* class of what was put last after the starter; -1: nothing */
  for (size_t i = 0; i < s->n; i++) {
    uint32_t c = s->c[i], both = 0;
    uint8_t class = s->class[i];
    if (starter != SIZE_MAX && last < (int)class) both = compose_two(f, s->c[starter], c);
    if (both) {
      s->c[starter] = both;
      continue;
    }
    if (!class) {
      starter = out;
      last = -1;
    } else last = class;
    s->c[out] = c;
    s->class[out++] = class;
  }
  s->n = out;
}

void zt_form(const ZtForms *f, ZtForm form, ZtStretch *scratch, const char *s, size_t n, ZbText *out) {
  bool compatible = form == ZT_NFKC || form == ZT_NFKD, composes = form == ZT_NFC || form == ZT_NFKC;
  size_t copied = 0, last = 0, bytes; /* last: where the character before `at` begins */
  for (size_t at = 0; at < n; at += bytes) {
    uint32_t c = zt_char(s + at, &bytes);
    if (plain(f, compatible, c)) {
      last = at;
      continue;
    }
    zb_text_put(out, s + copied, last - copied); /* before the stretch */
    scratch->n = 0;
    for (at = last; at < n; at += bytes) {
      c = zt_char(s + at, &bytes);
      if (scratch->n && plain(f, compatible, c) && at > last) break;
      decompose(scratch, c, compatible);
    }
    reorder(scratch);
    if (composes) compose(f, scratch);
    for (size_t i = 0; i < scratch->n; i++) zt_text_char(out, scratch->c[i]);
    copied = last = at;
    bytes = 0;
  }
  zb_text_put(out, s + copied, n - copied);
}

void zt_stretch_free(ZtStretch *s) {
  free(s->c);
  free(s->spare);
  free(s->class);
  free(s->spare_class);
}

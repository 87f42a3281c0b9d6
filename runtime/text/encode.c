/* A text becomes ids: the parts of the tokenizer in their order, and what a thread remembers. */
#include "runtime/text/room.h"

#include <stdlib.h>

enum { SEEN = 1 << 15 }; /* words that are remembered: 2 MB a thread */

ZtCoder *zt_coder_new(const ZtTokenizer *t) {
  ZtCoder *c = calloc(1, sizeof *c);
  if (!c) zb_out_of_memory(sizeof *c);
  c->t = t;
  c->matcher = zt_matcher_new();
  c->pre = calloc(t->npre + 1, sizeof *c->pre);
  c->seen = calloc(SEEN, sizeof *c->seen);
  if (!c->pre || !c->seen) zb_out_of_memory(SEEN * sizeof *c->seen);
  return c;
}

void zt_coder_free(ZtCoder *c) {
  if (!c) return;
  zt_matcher_free(c->matcher);
  zt_stretch_free(&c->stretch);
  zb_text_free(&c->repaired);
  for (int i = 0; i < 2; i++) zb_text_free(&c->norm[i]);
  zt_decoding_free(&c->decoding);
  for (uint32_t i = 0; i < c->t->npre; i++) zb_text_free(&c->pre[i]);
  free(c->pre);
  free(c->seen);
  free(c->symbol);
  free(c->heap);
  free(c->step);
  free(c->span);
  zb_text_free(&c->whole);
  free(c);
}

/* ---- words ---- */
static bool run_model(ZtCoder *c, const char *s, size_t n) {
  switch (c->t->model.kind) {
  case ZT_BPE: zt_bpe(c, s, n); return true;
  case ZT_UNIGRAM: return zt_unigram(c, s, n);
  case ZT_WORDPIECE: zt_wordpiece(c, s, n); return true;
  }
  ZB_BUG("model %d", c->t->model.kind);
}

/* Each word has one place among those that are remembered, where the latest one stays. */
static bool remembered(ZtCoder *c, const char *s, size_t n) {
  if (n > sizeof c->seen->text) return run_model(c, s, n);
  ZtSeen *seen = &c->seen[zt_hash(s, n) >> 20 & (SEEN - 1)];
  if (seen->n == n && !memcmp(seen->text, s, n)) {
    for (int i = 0; i < seen->nids; i++) zt_push(c->out, seen->id[i]);
    return true;
  }
  size_t before = c->out->n;
  if (!run_model(c, s, n)) return false;
  size_t ids = c->out->n - before;
  if (ids > sizeof seen->id / sizeof *seen->id) return true;
  seen->n = (uint8_t)n;
  seen->nids = (uint8_t)ids;
  memcpy(seen->text, s, n);
  if (ids) memcpy(seen->id, c->out->id + before, ids * sizeof *seen->id);
  return true;
}

bool zt_word(ZtCoder *c, const char *s, size_t n) {
  if (!n) return true;
  if (!c->t->model.cut_at_blank) return remembered(c, s, n);
  static const char blank[] = "\xe2\x96\x81";
  for (size_t at = 0; at < n;) {
    size_t end = at;
    while (zt_starts(s + end, n - end, blank, 3)) end += 3;
    while (end < n && !zt_starts(s + end, n - end, blank, 3)) end++;
    if (!remembered(c, s + at, end - at)) return false;
    at = end;
  }
  return true;
}

/* ---- how far a text may grow ---- */
void zt_grow_from(ZtCoder *c, size_t n) {
  c->given = n;
  zt_matcher_begin(c->matcher, ZT_SECONDS + 1e-6 * ZT_SECONDS_A_MB * (double)n);
  c->room = ZT_GROWTH * n + ZT_GROWTH_MORE;
}

bool zt_may_grow(ZtCoder *c, size_t n) {
  static const size_t at_once = UINT32_MAX / 2;
  size_t all = ZT_GROWTH * c->given + ZT_GROWTH_MORE;
  if (n <= c->room && n <= at_once) return true;
  return zb_fail(c->err, "is it a tokenizer for this text?",
                 "a text of %zu bytes grows beyond %zu bytes in the tokenizer; %d times as many, and %d "
                 "more, are the limit",
                 c->given, n <= c->room ? at_once : all, ZT_GROWTH, ZT_GROWTH_MORE);
}

bool zt_grow(ZtCoder *c, size_t n) {
  if (!zt_may_grow(c, n)) return false;
  c->room -= n;
  return true;
}

/* ---- the text ---- */
static ZtAllowed allowed(const ZtCoder *c) {
  ZtAllowed may = {.special = !(c->flags & ZT_SPECIAL_AS_TEXT), .marked = c->marked};
  if (c->marked) may.span = c->marked->span;
  if (c->marked) may.nspans = c->marked->nspans;
  return may;
}

/* A piece between added tokens of the raw text, which it is in from byte `at` on. */
static bool piece(ZtCoder *c, const char *s, size_t n, size_t at) {
  size_t done = 0, from = 0, begin, end, raw = n;
  const ZtAdded *a;
  const char *given = s;
  ZtAllowed may = allowed(c);
  may.base = at;
  if (!zt_normalize(c, s, n, &s, &n) || !zt_marks_follow(c, given, raw, &s, &n, &may)) return false;
  while ((a = zt_added_next(c->t, &c->t->normal, &may, s, n, done, &from, &begin, &end))) {
    if (begin > done && !zt_pretokenize(c, 0, s + done, begin - done, !at && !done)) return false;
    zt_push(c->out, a->id);
    done = end;
  }
  return done >= n || zt_pretokenize(c, 0, s + done, n - done, !at && !done);
}

/* ---- places between tokens ---- */
/* Counts by the bytes of a piece's tokens, the first of which is c->out->id[first]. Returns false where they are not
 * those of its text: a normalizer changed it, or a blank was put before. */
static bool count_by_bytes(ZtCoder *c, const char *s, size_t n, size_t first, ZtCut *cut, size_t base) {
  ZbText *bytes = &c->repaired;
  size_t given = c->given, room = c->room, at = 0, before = 0, begun = 0;
  ZbErr none;
  bool same = true;
  for (size_t i = first; same && i < c->out->n; i++, at += bytes->len) {
    bytes->len = 0;
    same = zt_bytes(c, c->out->id[i], bytes, &none) && bytes->len <= n - at &&
           !memcmp(bytes->len ? bytes->s : "", s + at, bytes->len);
    begun += base + at < cut->at;
    before += base + at + bytes->len <= cut->at;
  }
  c->given = given;
  c->room = room;
  *cut = (ZtCut){cut->at, first + before, first + begun};
  return same && at == n;
}

/* Counts the tokens that the piece up to the place has alone, too. */
static bool count_alike(ZtCoder *c, const char *s, size_t first, ZtCut *cut, size_t base) {
  ZtIds alone = {0}, *out = c->out;
  size_t room = c->room, same = 0;
  c->out = &alone;
  bool ok = piece(c, s, cut->at - base, base);
  c->out = out;
  c->room = room;
  while (same < alone.n && first + same < out->n && alone.id[same] == out->id[first + same]) same++;
  *cut = (ZtCut){cut->at, first + same, first + same + (same < alone.n)};
  zt_ids_free(&alone);
  return ok;
}

/* Counts for all places before the end of a piece, or of an added token, which begins at byte `at`; its tokens are from
 * number `first` on. */
static bool count_cuts(ZtCoder *c, const char *s, size_t n, size_t at, size_t first, bool added) {
  const ZtCuts *cuts = c->marked ? c->marked->cuts : NULL;
  for (; cuts && c->cut < cuts->n && cuts->cut[c->cut].at < at + n; c->cut++) {
    ZtCut *cut = &cuts->cut[c->cut];
    bool inside = cut->at > at;
    if (!inside || added) *cut = (ZtCut){cut->at, first, first + inside};
    else if (!count_by_bytes(c, s, n, first, cut, at) && !count_alike(c, s, first, cut, at)) return false;
  }
  return true;
}

static bool counted_piece(ZtCoder *c, const char *s, size_t n, size_t at) {
  size_t first = c->out->n;
  return piece(c, s, n, at) && count_cuts(c, s, n, at, first, false);
}

static bool body(ZtCoder *c, const char *s, size_t n) {
  size_t done = 0, from = 0, begin, end;
  const ZtAdded *a;
  ZtAllowed may = allowed(c);
  c->cut = 0;
  while ((a = zt_added_next(c->t, &c->t->raw, &may, s, n, done, &from, &begin, &end))) {
    if (begin > done && !counted_piece(c, s + done, begin - done, done)) return false;
    zt_push(c->out, a->id);
    if (!count_cuts(c, s + begin, end - begin, begin, c->out->n - 1, true)) return false;
    done = end;
  }
  return (done >= n || counted_piece(c, s + done, n - done, done)) &&
         count_cuts(c, s + n, 1, n, c->out->n, true);
}

static bool begin(ZtCoder *c, size_t n, unsigned flags, const ZtMarked *marked, ZtIds *out, ZbErr *err) {
  if (n > ZT_TEXT_LIMIT)
    return zb_fail(err, "cut it into documents", "a text of %zu bytes; a tokenizer takes at most %d at once",
                   n, ZT_TEXT_LIMIT);
  c->out = out;
  c->err = err;
  c->flags = flags;
  c->marked = marked;
  zt_grow_from(c, n);
  return true;
}

bool zt_encode(ZtCoder *c, const char *text, size_t n, unsigned flags, ZtIds *out, ZbErr *err) {
  const ZtTokenizer *t = c->t;
  if (!begin(c, n, flags, NULL, out, err)) return false;
  if (zt_utf8_valid(text, n) < n) {
    c->repaired.len = 0;
    zt_utf8_repair(text, n, &c->repaired);
    text = c->repaired.s;
    n = c->repaired.len;
  }
  for (uint32_t i = 0; flags & ZT_AROUND && i < t->nbefore; i++) zt_push(out, t->before[i]);
  if (!body(c, text, n)) return false;
  for (uint32_t i = 0; flags & ZT_AROUND && i < t->nafter; i++) zt_push(out, t->after[i]);
  return true;
}

bool zt_encode_marked(ZtCoder *c, const char *text, size_t n, const ZtMarked *marked, ZtIds *out,
                      ZbErr *err) {
  if (!begin(c, n, 0, marked, out, err)) return false;
  if (zt_utf8_valid(text, n) < n) return zb_fail(err, NULL, "a text with marks that is not UTF-8");
  bool ok = body(c, text, n);
  c->marked = NULL;
  return ok;
}

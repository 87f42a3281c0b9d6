/* A vocabulary as trees of bytes, in which tokens that begin alike are looked at together. */
#include "runtime/exec/shape/grammar.h"

#include <stdlib.h>

/* ---- bytes of tokens ---- */
static bool read_tokens(ZxVocabulary *v, const ZtTokenizer *t, ZbErr *err) {
  ZtCoder *c = zt_coder_new(t);
  ZbText text = {0};
  bool ok = true;
  for (uint32_t id = 0; ok && id < v->vocabulary && id < zt_size(t); id++) {
    text.len = 0;
    ok = zt_bytes(c, id, &text, err);
    if (!ok || !text.len || text.len > UINT16_MAX) continue;
    v->text[id] = zb_strndup(v->a, text.s, text.len);
    v->length[id] = (uint16_t)text.len;
  }
  zb_text_free(&text);
  zt_coder_free(c);
  return ok;
}

/* Leaves out tokens that begin or end within a character, where not every byte is a token: it might be that none goes
 * on. */
static void find_bytes(ZxVocabulary *v) {
  bool is[256] = {0};
  for (uint32_t id = 0; id < v->vocabulary; id++)
    if (v->length[id] == 1) is[(uint8_t)*v->text[id]] = true;
  v->all_bytes = true;
  for (int b = 0; b < 256; b++) v->all_bytes &= is[b];
  for (uint32_t id = 0; id < v->vocabulary && !v->all_bytes; id++)
    if (v->text[id] && zt_utf8_valid(v->text[id], v->length[id]) < v->length[id]) v->text[id] = NULL;
}

static bool is_plain(const char *s, size_t n) {
  for (size_t i = 0; i < n; i++)
    if ((uint8_t)s[i] < ' ' || s[i] == '"' || s[i] == '\\') return false;
  return zt_utf8_valid(s, n) == n;
}

/* ---- trees ---- */
typedef struct {
  const char *s;
  uint32_t n, id;
} Token;

static int compare(const void *a, const void *b) {
  const Token *x = a, *y = b;
  int c = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
  return c ? c : x->n != y->n ? (x->n > y->n) - (x->n < y->n) : (x->id > y->id) - (x->id < y->id);
}

/* Makes a tree of tokens in the order of their bytes, each of which goes on from those it begins with. */
static void plant(ZxVocabulary *v, ZxTrie *t, const Token *token, uint32_t n) {
  size_t most = 0;
  for (uint32_t i = 0; i < n; i++) most += token[i].n;
  uint32_t *open = ZB_NEWN(v->a, uint32_t, v->longest + 1), depth = 0; /* nodes of the latest token */
  t->byte = ZB_NEWN(v->a, uint8_t, most);
  t->depth = ZB_NEWN(v->a, uint16_t, most);
  t->past = ZB_NEWN(v->a, uint32_t, most);
  t->id = ZB_NEWN(v->a, uint32_t, most);
  for (uint32_t i = 0; i < n; i++) {
    const Token *x = &token[i];
    uint32_t same = 0;
    while (same < depth && same < x->n && t->byte[open[same]] == (uint8_t)x->s[same]) same++;
    while (depth > same) t->past[open[--depth]] = t->nodes;
    for (; depth < x->n; depth++) {
      open[depth] = t->nodes;
      t->byte[t->nodes] = (uint8_t)x->s[depth];
      t->depth[t->nodes] = (uint16_t)depth;
      t->id[t->nodes++] = ZT_NONE;
    }
    uint32_t *first = &t->id[open[depth - 1]];
    v->same[x->id] = *first;
    *first = x->id;
  }
  while (depth) t->past[open[--depth]] = t->nodes;
}

ZxVocabulary *zx_vocabulary_new(const ZtTokenizer *tokenizer, uint32_t vocabulary, ZbErr *err) {
  ZbArena *a = zb_arena_new();
  ZxVocabulary *v = ZB_NEW(a, ZxVocabulary);
  *v = (ZxVocabulary){.a = a, .vocabulary = vocabulary, .words = (vocabulary + 63) / 64};
  v->text = ZB_NEWN(a, const char *, vocabulary);
  v->length = ZB_NEWN(a, uint16_t, vocabulary);
  v->same = ZB_NEWN(a, uint32_t, vocabulary);
  v->plain_bits = ZB_NEWN(a, uint64_t, v->words);
  if (!read_tokens(v, tokenizer, err)) {
    zb_arena_free(a);
    return NULL;
  }
  find_bytes(v);
  Token *token = ZB_NEWN(a, Token, vocabulary), *other = ZB_NEWN(a, Token, vocabulary);
  uint32_t n = 0, nother = 0;
  for (uint32_t id = 0; id < vocabulary; id++) {
    if (!v->text[id]) continue;
    Token x = {v->text[id], v->length[id], id};
    if (x.n > v->longest) v->longest = x.n;
    if (is_plain(x.s, x.n)) {
      token[n++] = x;
      v->plain_bits[id / 64] |= 1ull << id % 64;
    } else other[nother++] = x;
  }
  if (n) qsort(token, n, sizeof *token, compare);
  if (nother) qsort(other, nother, sizeof *other, compare);
  plant(v, &v->plain, token, n);
  plant(v, &v->other, other, nother);
  return v;
}

/* ---- what it can write ---- */
static bool has(const ZxTrie *t, const char *s, size_t n) {
  uint32_t i = 0;
  for (size_t k = 0; k < n; k++, i++) {
    while (i < t->nodes && t->depth[i] == k && t->byte[i] != (uint8_t)s[k]) i = t->past[i];
    if (i >= t->nodes || t->depth[i] != k) return false;
    if (k + 1 == n) return t->id[i] != ZT_NONE;
  }
  return false;
}

bool zx_vocabulary_writes(const ZxVocabulary *v, const uint64_t *needs, ZbErr *err) {
  for (uint32_t c = 0; c < 0x110000 && !v->all_bytes; c++) {
    char s[5] = {0};
    if (!(needs[c / 64] >> c % 64 & 1)) continue;
    size_t n = zb_utf8(s, c);
    if (!has(&v->plain, s, n) && !has(&v->other, s, n))
      return zb_fail(err, "use another tokenizer, or a schema without it",
                     "the tokenizer has no token for the character %s, which the schema needs", zb_show(s));
  }
  return true;
}

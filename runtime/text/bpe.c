/* Byte pair encoding: a word is a row of symbols, a character or a byte each, and the pair of neighbours of
 * the lowest rank becomes one symbol, the leftmost of equals first, until no pair has a rank.
 *
 *   l o w e r     ranks: er 0, lo 1, low 2     ->  l o w er  ->  lo w er  ->  low er
 *
 * A short word is searched for its lowest pair each time. A long one, which may be a whole text, has a heap
 * of (rank, place) in which pairs that are gone stay until they come up. */
#include "runtime/text/json.h"

enum { SHORT = 48 };

/* ---- merges ---- */
static ZtMerge *merge_slot(const ZtModel *m, uint64_t pair) {
  uint32_t i = (uint32_t)(pair * 0x9e3779b97f4a7c15ull >> 32) & m->merge_mask;
  while (m->merge[i].rank != ZT_NONE && m->merge[i].pair != pair) i = (i + 1) & m->merge_mask;
  return &m->merge[i];
}

static const ZtMerge *find(const ZtModel *m, uint32_t left, uint32_t right) {
  return merge_slot(m, (uint64_t)left << 32 | right);
}

/* ["a", "b"] or "a b" */
static bool parts_of(const cJSON *x, const char *part[2], size_t n[2]) {
  if (cJSON_IsArray(x)) {
    const cJSON *a = x->child, *b = a ? a->next : NULL;
    if (!cJSON_IsString(a) || !cJSON_IsString(b) || b->next) return false;
    part[0] = a->valuestring;
    part[1] = b->valuestring;
    n[0] = strlen(part[0]);
    n[1] = strlen(part[1]);
    return true;
  }
  const char *space = cJSON_IsString(x) ? strchr(x->valuestring, ' ') : NULL;
  if (!space || strchr(space + 1, ' ')) return false;
  part[0] = x->valuestring;
  n[0] = (size_t)(space - x->valuestring);
  part[1] = space + 1;
  n[1] = strlen(part[1]);
  return true;
}

static bool add_merge(ZtModel *m, const cJSON *x, uint32_t rank, ZbText *both, ZbErr *err) {
  const char *part[2];
  size_t n[2];
  uint32_t id[2];
  if (!parts_of(x, part, n)) return zb_fail(err, NULL, "model: merge %u is not two tokens", rank);
  for (int i = 0; i < 2; i++)
    if ((id[i] = zt_table_find(&m->vocab, part[i], n[i])) == ZT_NONE)
      return zb_fail(err, NULL, "model: merge %u has the token %s, which is not in `vocab`", rank,
                     zb_show_n(part[i], n[i]));
  size_t skip = m->prefix_n < n[1] ? m->prefix_n : n[1];
  both->len = 0;
  zb_text_put(both, part[0], n[0]);
  zb_text_put(both, part[1] + skip, n[1] - skip);
  uint32_t product = zt_table_find(&m->vocab, both->s, both->len);
  if (product == ZT_NONE)
    return zb_fail(err, NULL, "model: merge %u makes the token %s, which is not in `vocab`", rank,
                   zb_show(both->s));
  uint64_t pair = (uint64_t)id[0] << 32 | id[1];
  *merge_slot(m, pair) = (ZtMerge){pair, rank, product};
  return true;
}

bool zt_merges_read(ZtTokenizer *t, const cJSON *model, ZbErr *err) {
  ZtModel *m = &t->model;
  const cJSON *merges = zt_json(model, "merges"), *x;
  if (!cJSON_IsArray(merges)) return zb_fail(err, NULL, "model: `merges` is not a list");
  uint32_t count = (uint32_t)cJSON_GetArraySize(merges), size = 16, rank = 0;
  while (size < 2 * (uint64_t)count) size *= 2;
  m->merge = ZB_NEWN(t->arena, ZtMerge, size);
  for (uint32_t i = 0; i < size; i++) m->merge[i].rank = ZT_NONE;
  m->merge_mask = size - 1;
  m->merges = count;
  ZbText both = {0};
  bool ok = true;
  cJSON_ArrayForEach(x, merges) {
    ok = add_merge(m, x, rank++, &both, err);
    if (!ok) break;
  }
  zb_text_free(&both);
  return ok;
}

/* ---- what is looked up ---- */
static const char blank[] = "\xe2\x96\x81"; /* U+2581, which stands for a space */

/* Whether no merge makes a token in which a blank follows another character: then a word falls apart there,
 * and its parts come again more often than the whole. */
static bool cuts_at_blank(const ZtTokenizer *t) {
  const ZtModel *m = &t->model;
  if (m->bytes || m->ignore_merges || m->prefix_n || m->suffix_n ||
      zt_table_find(&m->vocab, blank, 3) == ZT_NONE)
    return false;
  for (uint32_t i = 0; i <= m->merge_mask; i++) {
    if (m->merge[i].rank == ZT_NONE) continue;
    const ZtToken *token = &t->token[m->merge[i].id];
    bool other = false;
    for (uint32_t at = 0; at < token->n; at += (uint32_t)zt_char_bytes((uint8_t)token->s[at])) {
      bool is = zt_starts(token->s + at, token->n - at, blank, 3);
      if (is && other) return false;
      other |= !is;
    }
  }
  return true;
}

/* The bytes that a token of characters for bytes stands for; false: it has others. */
static bool raw_of(const ZtToken *token, char *out, size_t *n) {
  size_t bytes;
  *n = 0;
  for (uint32_t at = 0; at < token->n; at += (uint32_t)bytes) {
    int byte = zt_char_byte(zt_char(token->s + at, &bytes));
    if (byte < 0) return false;
    out[(*n)++] = (char)byte;
  }
  return true;
}

void zt_bpe_init(ZtTokenizer *t) {
  ZtModel *m = &t->model;
  uint32_t levels = 0;
  for (uint32_t i = 0; i < t->npre; i++) levels += t->pre[i].kind == ZT_PRE_BYTES;
  if (levels == 1 && t->pre[t->npre - 1].kind == ZT_PRE_BYTES && !m->prefix_n && !m->suffix_n) {
    t->pre[t->npre - 1].map = false;
    m->bytes = true;
    for (int b = 0; b < 256; b++) {
      char s[4];
      m->byte[b] = zt_table_find(&m->vocab, s, zb_utf8(s, zt_byte_char((uint8_t)b)));
    }
    if (m->ignore_merges) {
      zt_table_init(t->arena, &m->raw, m->count);
      for (uint32_t id = 0; id < t->size; id++) {
        char *raw = t->token[id].s ? zb_alloc(t->arena, t->token[id].n + 1) : NULL;
        size_t n;
        if (raw && raw_of(&t->token[id], raw, &n)) zt_table_add(&m->raw, raw, n, id);
      }
    }
  }
  m->cut_at_blank = cuts_at_blank(t);
}

/* ---- a word ---- */
static void symbol(ZtCoder *c, uint32_t id) {
  if (c->nsymbol == c->symbol_cap)
    c->symbol = zt_room(c->symbol, c->nsymbol, 1, sizeof *c->symbol, &c->symbol_cap);
  c->symbol[c->nsymbol++].id = id;
}

/* A token for what is unknown waits, since its neighbours may join it. */
static void settle(ZtCoder *c) {
  if (c->pending != ZT_NONE) symbol(c, c->pending);
  c->pending = ZT_NONE;
}

static void known(ZtCoder *c, uint32_t id) {
  settle(c);
  symbol(c, id);
}

/* A character that is no token. Its bytes overtake an unknown one that waits, as they do in the library. */
static void unknown(ZtCoder *c, const char *s, size_t n) {
  const ZtModel *m = &c->t->model;
  if (m->byte_fallback) {
    size_t i = 0;
    while (i < n && m->fallback[(uint8_t)s[i]] != ZT_NONE) i++;
    if (i == n) {
      for (i = 0; i < n; i++) symbol(c, m->fallback[(uint8_t)s[i]]);
      return;
    }
  }
  if (m->unk == ZT_NONE) return;
  if (!m->fuse_unk) settle(c);
  c->pending = m->unk;
}

static void add_bytes(ZtCoder *c, const char *s, size_t n) {
  const ZtModel *m = &c->t->model;
  for (size_t i = 0; i < n; i++) {
    uint32_t id = m->byte[(uint8_t)s[i]];
    char mapped[4];
    if (id != ZT_NONE) known(c, id);
    else unknown(c, mapped, zb_utf8(mapped, zt_byte_char((uint8_t)s[i])));
  }
}

static void add_chars(ZtCoder *c, const char *s, size_t n) {
  const ZtModel *m = &c->t->model;
  ZbText with = {0}; /* the character between prefix and suffix */
  size_t bytes;
  for (size_t at = 0; at < n; at += bytes) {
    const char *key = s + at;
    size_t len = bytes = zt_char_bytes((uint8_t)s[at]);
    if (m->prefix_n || m->suffix_n) {
      with.len = 0;
      if (at) zb_text_put(&with, m->prefix, m->prefix_n);
      zb_text_put(&with, s + at, bytes);
      if (at + bytes == n) zb_text_put(&with, m->suffix, m->suffix_n);
      key = with.s;
      len = with.len;
    }
    uint32_t id = zt_table_find(&m->vocab, key, len);
    if (id != ZT_NONE) known(c, id);
    else unknown(c, key, len);
  }
  zb_text_free(&with);
}

static void merge_short(ZtCoder *c) {
  const ZtModel *m = &c->t->model;
  uint32_t id[SHORT], rank[SHORT], to[SHORT], n = (uint32_t)c->nsymbol;
  for (uint32_t i = 0; i < n; i++) id[i] = c->symbol[i].id;
  for (uint32_t i = 0; i + 1 < n; i++) {
    const ZtMerge *x = find(m, id[i], id[i + 1]);
    rank[i] = x->rank;
    to[i] = x->id;
  }
  while (n > 1) {
    uint32_t at = 0;
    for (uint32_t i = 1; i + 1 < n; i++)
      if (rank[i] < rank[at]) at = i;
    if (rank[at] == ZT_NONE) break;
    id[at] = to[at];
    n--;
    memmove(id + at + 1, id + at + 2, (n - at - 1) * sizeof *id);
    if (at + 1 < n) {
      memmove(rank + at, rank + at + 1, (n - at - 1) * sizeof *rank);
      memmove(to + at, to + at + 1, (n - at - 1) * sizeof *to);
    }
    for (uint32_t i = at ? at - 1 : 0; i <= at && i + 1 < n; i++) {
      const ZtMerge *x = find(m, id[i], id[i + 1]);
      rank[i] = x->rank;
      to[i] = x->id;
    }
  }
  for (uint32_t i = 0; i < n; i++) zt_push(c->out, id[i]);
}

/* ---- the heap ---- */
static void heap_push(ZtCoder *c, uint64_t x) {
  if (c->nheap == c->heap_cap) c->heap = zt_room(c->heap, c->nheap, 1, sizeof *c->heap, &c->heap_cap);
  size_t i = c->nheap++;
  for (; i && c->heap[(i - 1) / 2] > x; i = (i - 1) / 2) c->heap[i] = c->heap[(i - 1) / 2];
  c->heap[i] = x;
}

static uint64_t heap_pop(ZtCoder *c) {
  uint64_t top = c->heap[0], x = c->heap[--c->nheap];
  size_t i = 0, child;
  for (; (child = 2 * i + 1) < c->nheap; i = child) {
    if (child + 1 < c->nheap && c->heap[child + 1] < c->heap[child]) child++;
    if (c->heap[child] >= x) break;
    c->heap[i] = c->heap[child];
  }
  c->heap[i] = x;
  return top;
}

static void push_pair(ZtCoder *c, uint32_t at) {
  if (at == ZT_NONE || c->symbol[at].next == ZT_NONE) return;
  uint32_t rank = find(&c->t->model, c->symbol[at].id, c->symbol[c->symbol[at].next].id)->rank;
  if (rank != ZT_NONE) heap_push(c, (uint64_t)rank << 32 | at);
}

static void merge_long(ZtCoder *c) {
  uint32_t n = (uint32_t)c->nsymbol;
  ZtSymbol *s = c->symbol;
  for (uint32_t i = 0; i < n; i++) {
    s[i].prev = i ? i - 1 : ZT_NONE;
    s[i].next = i + 1 < n ? i + 1 : ZT_NONE;
  }
  c->nheap = 0;
  for (uint32_t i = 0; i + 1 < n; i++) push_pair(c, i);
  while (c->nheap) {
    uint64_t top = heap_pop(c);
    uint32_t at = (uint32_t)top, right = s[at].next;
    if (s[at].id == ZT_NONE || right == ZT_NONE) continue;
    const ZtMerge *x = find(&c->t->model, s[at].id, s[right].id);
    if (x->rank != (uint32_t)(top >> 32)) continue; /* another pair is there now */
    s[at].id = x->id;
    s[at].next = s[right].next;
    if (s[at].next != ZT_NONE) s[s[at].next].prev = at;
    s[right].id = ZT_NONE;
    push_pair(c, s[at].prev);
    push_pair(c, at);
  }
  for (uint32_t i = 0; i < n; i++)
    if (s[i].id != ZT_NONE) zt_push(c->out, s[i].id);
}

void zt_bpe(ZtCoder *c, const char *s, size_t n) {
  const ZtModel *m = &c->t->model;
  if (m->ignore_merges) {
    uint32_t id = zt_table_find(m->bytes ? &m->raw : &m->vocab, s, n);
    if (id != ZT_NONE) {
      zt_push(c->out, id);
      return;
    }
  }
  c->nsymbol = 0;
  c->pending = ZT_NONE;
  if (m->bytes) add_bytes(c, s, n);
  else add_chars(c, s, n);
  settle(c);
  if (c->nsymbol <= SHORT) merge_short(c);
  else merge_long(c);
}

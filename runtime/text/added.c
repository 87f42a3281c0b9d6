/* Added tokens: cut out of a text whole, before the model sees it. */
#define _GNU_SOURCE
#include "runtime/text/json.h"

/* ---- reading ---- */
static bool read_one(ZtTokenizer *t, const cJSON *x, uint32_t *next, ZbErr *err) {
  static const char part[] = "added_tokens";
  ZtAdded a = {0};
  uint32_t id;
  if (!zt_json_text(t, part, x, "content", ZT_MUST, &a.s, err) ||
      !zt_json_count(part, x, "id", ZT_MUST, INT32_MAX, &id, err) ||
      !zt_json_bool(part, x, "single_word", ZT_MUST, &a.single_word, err) ||
      !zt_json_bool(part, x, "lstrip", ZT_MUST, &a.left, err) ||
      !zt_json_bool(part, x, "rstrip", ZT_MUST, &a.right, err) ||
      !zt_json_bool(part, x, "normalized", ZT_MUST, &a.normalized, err) ||
      !zt_json_bool(part, x, "special", ZT_MUST, &a.special, err))
    return false;
  a.n = (uint32_t)strlen(a.s);
  if (!a.n || a.n > ZT_ADDED_LIMIT)
    return zb_fail(err, NULL, "%s: the one with id %u has %u bytes; it has 1 to %d", part, id, a.n,
                   ZT_ADDED_LIMIT);
  a.id = zt_table_find(&t->model.vocab, a.s, a.n);
  if (a.id == ZT_NONE) a.id = zt_table_find(&t->added_ids, a.s, a.n);
  if (a.id == ZT_NONE) a.id = (*next)++;
  if (a.id != id)
    return zb_fail(err, "give it that id, or write the file anew with the tokenizers library",
                   "%s: %s has id %u, but programs that read this file count it as %u", part, zb_show(a.s),
                   id, a.id);
  zt_table_add(&t->added_ids, a.s, a.n, a.id);
  t->added[t->nadded++] = a;
  return true;
}

bool zt_added_read(ZtTokenizer *t, const cJSON *root, ZbErr *err) {
  const cJSON *list = zt_json(root, "added_tokens"), *x;
  if (!list) return true;
  if (!cJSON_IsArray(list)) return zb_fail(err, NULL, "`added_tokens` is not a list");
  uint32_t next = t->model.count;
  uint32_t count = (uint32_t)cJSON_GetArraySize(list);
  t->added = ZB_NEWN(t->arena, ZtAdded, count + 1);
  zt_table_init(t->arena, &t->added_ids, count);
  cJSON_ArrayForEach(x, list) if (!read_one(t, x, &next, err)) return false;
  return true;
}

bool zt_sought_init(ZtTokenizer *t, bool normalized, ZbErr *err) {
  ZtSought *in = normalized ? &t->normal : &t->raw;
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < t->nadded; i++)
    if (t->added[i].normalized == normalized) bytes += t->added[i].matched_n;
  if (!bytes) return true;
  if (!zt_trie_init(t->arena, &in->trie, bytes, err)) return false;
  for (uint32_t i = 0; i < t->nadded; i++) {
    const ZtAdded *a = &t->added[i];
    if (a->normalized != normalized || !a->matched_n) continue;
    zt_trie_add(&in->trie, a->matched, a->matched_n, i);
    in->first[(uint8_t)a->matched[0]] = true;
    in->count++;
  }
  return true;
}

/* ---- looking ---- */
/* What the spans that have a byte of [begin, end) are of; 0: none has. */
static uint8_t given(const ZtAllowed *may, size_t begin, size_t end) {
  size_t lo = 0, hi = may->nspans;
  uint8_t of = 0;
  begin += may->base;
  end += may->base;
  while (lo < hi) { /* the first that ends behind `begin` */
    size_t mid = (lo + hi) / 2;
    if (may->span[mid].end > begin) hi = mid;
    else lo = mid + 1;
  }
  for (; lo < may->nspans && may->span[lo].begin < end; lo++) of |= may->span[lo].of;
  return of;
}

/* Says if a token that is not special is one of the author's markers: <tool_call>, [INST]. */
static bool marker(const ZtMarked *m, const ZtAdded *a) {
  char last = a->s[a->n - 1];
  return ((*a->s == '<' && last == '>') || (*a->s == '[' && last == ']')) &&
         memmem(m->written, m->nwritten, a->s, a->n);
}

static bool allowed(const ZtAllowed *may, const ZtAdded *a, size_t begin) {
  uint8_t of = may->marked ? given(may, begin, begin + a->matched_n) : 0;
  return !of || (!a->special && !(of & ZT_SPAN_OTHERS && marker(may->marked, a)));
}

/* The longest that begins at s[at]; NULL: none. */
static const ZtAdded *longest(const ZtTokenizer *t, const ZtSought *in, const ZtAllowed *may, const char *s,
                              size_t n, size_t at) {
  uint32_t node = 0, best = ZT_NONE;
  for (size_t i = at; i < n && (node = zt_trie_step(&in->trie, node, (uint8_t)s[i])); i++) {
    uint32_t k = in->trie.value[node];
    if (k != ZT_NONE && allowed(may, &t->added[k], at)) best = k;
  }
  return best == ZT_NONE ? NULL : &t->added[best];
}

static bool is(ZtSet set, const char *s, size_t at) {
  size_t bytes;
  return zt_in(set, zt_char(s + at, &bytes));
}

const ZtAdded *zt_added_next(const ZtTokenizer *t, const ZtSought *in, const ZtAllowed *may, const char *s,
                             size_t n, size_t done, size_t *from, size_t *begin, size_t *end) {
  if (!in->count) return NULL;
  for (size_t i = *from; i < n;) {
    const ZtAdded *a = in->first[(uint8_t)s[i]] ? longest(t, in, may, s, n, i) : NULL;
    if (!a) {
      i++;
      continue;
    }
    size_t b = i, e = i + a->matched_n;
    i = e;
    if (a->special && !may->special) continue;
    if (a->single_word &&
        ((b && is(ZT_SET_word, s, zt_char_before(s, b))) || (e < n && is(ZT_SET_word, s, e))))
      continue;                        /* and what it covers is text, with all shorter ones inside */
    if (a->left && b < done) b = done; /* the one before has taken it */
    if (a->left)
      while (b > done && is(ZT_SET_white_space, s, zt_char_before(s, b))) b = zt_char_before(s, b);
    if (a->right && e < done)
      e = done; /* it lies in white space that the one before has taken, and knows the end of */
    if (a->right)
      while (e < n && is(ZT_SET_white_space, s, e)) e += zt_char_bytes((uint8_t)s[e]);
    if (b >= e) continue;
    *from = i;
    *begin = b;
    *end = e;
    return a;
  }
  *from = n;
  return NULL;
}

/* Training: byte pair encoding from texts, as GPT-2 has it.
 *
 * Texts are cut into words, and words are counted. Then, again and again, the pair of neighbours that is
 * there most often becomes a token, of equals the one with the smaller ids:
 *
 *   5 x l o w, 2 x l o w e r     l o: 7, o w: 7, w e: 2, e r: 2     ->  lo: 5 x lo w, 2 x lo w e r   -> low ...
 *
 * Counts are kept, not made anew: each pair knows the words that it was seen in, and only those change. A
 * heap has the largest count first; its entries may be larger than what is true now, and are put right when
 * they come up. */
#include "runtime/text/room.h"

#include <stdlib.h>

enum {
  WORD_LIMIT = 256, /* bytes: what is longer is counted in pieces, so that a merge costs little */
  VOCAB_LIMIT = 1 << 20,
  LEAST_COUNT = 2 /* a pair that is there once makes no token */
};

typedef struct {
  uint64_t at; /* its symbols begin there */
  uint32_t n;  /* of them; those of the word's bytes at first */
  uint64_t count;
} Word;
typedef struct {
  uint64_t key; /* left << 32 | right, + 1; 0: free */
  int64_t count;
  uint32_t *word; /* where it was seen, some twice */
  uint32_t n, cap;
} Pair;
typedef struct {
  int64_t count;
  uint64_t key;
} Candidate;

struct ZtTrainer {
  ZbArena *arena;
  ZtTokenizer *t; /* for its pattern */
  const ZtPattern *pattern;
  ZtMatcher *matcher;
  ZbText repaired, bytes; /* bytes: of all words */
  Word *word;
  size_t nword, word_cap;
  uint32_t *slot, mask; /* words by their bytes: number + 1 */
  /* while it is trained */
  uint32_t *symbol;
  Pair *pair;
  uint32_t npair, pair_mask;
  Candidate *heap;
  size_t nheap, heap_cap;
  uint64_t *grown; /* pairs that a merge made */
  size_t ngrown, grown_cap;
};

/* ---- counting words ---- */
ZtTrainer *zt_trainer_new(void) {
  ZbArena *a = zb_arena_new();
  ZtTrainer *x = ZB_NEW(a, ZtTrainer);
  ZbErr err;
  x->arena = a;
  x->t = ZB_NEW(a, ZtTokenizer);
  x->t->arena = a;
  x->pattern = zt_pattern(x->t, zt_gpt2_pattern, false, &err);
  if (!x->pattern) ZB_BUG("%s", err.text);
  x->matcher = zt_matcher_new();
  return x;
}

void zt_trainer_free(ZtTrainer *x) {
  if (!x) return;
  for (uint32_t i = 0; x->pair && i <= x->pair_mask; i++) free(x->pair[i].word);
  free(x->pair);
  free(x->heap);
  free(x->grown);
  free(x->symbol);
  free(x->word);
  free(x->slot);
  zb_text_free(&x->repaired);
  zb_text_free(&x->bytes);
  zt_matcher_free(x->matcher);
  zt_patterns_close(x->t);
  zb_arena_free(x->arena);
}

static void *zeroed(size_t n, size_t size) {
  void *p = calloc(n, size);
  if (!p) zb_out_of_memory(n * size);
  return p;
}

static uint32_t *word_slot(const ZtTrainer *x, const char *s, size_t n) {
  uint32_t i = (uint32_t)zt_hash(s, n) & x->mask;
  for (; x->slot[i]; i = (i + 1) & x->mask) {
    const Word *w = &x->word[x->slot[i] - 1];
    if (w->n == n && !memcmp(x->bytes.s + w->at, s, n)) break;
  }
  return &x->slot[i];
}

static void more_slots(ZtTrainer *x) {
  uint32_t size = x->slot ? 2 * (x->mask + 1) : 1 << 12;
  free(x->slot);
  x->slot = zeroed(size, sizeof *x->slot);
  x->mask = size - 1;
  for (size_t i = 0; i < x->nword; i++)
    *word_slot(x, x->bytes.s + x->word[i].at, x->word[i].n) = (uint32_t)i + 1;
}

static bool count_word(ZtTrainer *x, const char *s, size_t n, ZbErr *err) {
  if (x->nword > INT32_MAX / 2)
    return zb_fail(err, "give less text", "more than %d different words", INT32_MAX / 2);
  if (!x->slot || 2 * x->nword > x->mask) more_slots(x);
  uint32_t *slot = word_slot(x, s, n);
  if (!*slot) {
    if (x->nword == x->word_cap) x->word = zt_room(x->word, x->nword, 1, sizeof *x->word, &x->word_cap);
    x->word[x->nword++] = (Word){.at = x->bytes.len, .n = (uint32_t)n};
    zb_text_put(&x->bytes, s, n);
    *slot = (uint32_t)x->nword;
  }
  x->word[*slot - 1].count++;
  return true;
}

bool zt_trainer_add(ZtTrainer *x, const char *text, size_t n, ZbErr *err) {
  if (n > ZT_TEXT_LIMIT)
    return zb_fail(err, "cut it", "a text of %zu bytes; at most %d at once", n, ZT_TEXT_LIMIT);
  if (zt_utf8_valid(text, n) < n) {
    x->repaired.len = 0;
    zt_utf8_repair(text, n, &x->repaired);
    text = x->repaired.s;
    n = x->repaired.len;
  }
  size_t begin = 0, end;
  int found;
  for (size_t at = 0; (found = zt_match(x->pattern, x->matcher, text, n, at, at, &begin, &end, err)) > 0;
       at = end)
    for (size_t piece = begin; piece < end; piece += WORD_LIMIT)
      if (!count_word(x, text + piece, end - piece < WORD_LIMIT ? end - piece : WORD_LIMIT, err))
        return false;
  return !found;
}

/* ---- counting pairs ---- */
static Pair *pair_slot(const ZtTrainer *x, uint64_t key) {
  uint32_t i = (uint32_t)(key * 0x9e3779b97f4a7c15ull >> 32) & x->pair_mask;
  while (x->pair[i].key && x->pair[i].key != key) i = (i + 1) & x->pair_mask;
  return &x->pair[i];
}

static void more_pairs(ZtTrainer *x) {
  Pair *old = x->pair;
  uint32_t size = old ? x->pair_mask + 1 : 0;
  x->pair_mask = size ? 2 * size - 1 : (1 << 12) - 1;
  x->pair = zeroed((size_t)x->pair_mask + 1, sizeof *x->pair);
  for (uint32_t i = 0; i < size; i++)
    if (old[i].key) *pair_slot(x, old[i].key) = old[i];
  free(old);
}

static Pair *pair_of(ZtTrainer *x, uint32_t left, uint32_t right) {
  if (2 * (uint64_t)x->npair >= x->pair_mask) more_pairs(x);
  uint64_t key = ((uint64_t)left << 32 | right) + 1;
  Pair *p = pair_slot(x, key);
  if (!p->key) {
    p->key = key;
    x->npair++;
  }
  return p;
}

static void seen_in(Pair *p, uint32_t word) {
  if (p->n && p->word[p->n - 1] == word) return;
  size_t cap = p->cap;
  if (p->n == p->cap) p->word = zt_room(p->word, p->n, p->n + 2, sizeof *p->word, &cap);
  p->cap = (uint32_t)cap;
  p->word[p->n++] = word;
}

static void push(ZtTrainer *x, const Pair *p) {
  if (p->count < LEAST_COUNT) return;
  if (x->nheap == x->heap_cap) x->heap = zt_room(x->heap, x->nheap, 1, sizeof *x->heap, &x->heap_cap);
  Candidate c = {p->count, p->key};
  size_t i = x->nheap++;
  for (size_t up; i; i = up) {
    const Candidate *above = &x->heap[up = (i - 1) / 2];
    if (above->count > c.count || (above->count == c.count && above->key <= c.key)) break;
    x->heap[i] = *above;
  }
  x->heap[i] = c;
}

static bool before(const Candidate *a, const Candidate *b) {
  return a->count > b->count || (a->count == b->count && a->key < b->key);
}

static Candidate pop(ZtTrainer *x) {
  Candidate top = x->heap[0], c = x->heap[--x->nheap];
  size_t i = 0, child;
  for (; (child = 2 * i + 1) < x->nheap; i = child) {
    if (child + 1 < x->nheap && before(&x->heap[child + 1], &x->heap[child])) child++;
    if (!before(&x->heap[child], &c)) break;
    x->heap[i] = x->heap[child];
  }
  x->heap[i] = c;
  return top;
}

/* The pair that is there most often; NULL: none is there often enough. */
static Pair *most_frequent(ZtTrainer *x) {
  while (x->nheap) {
    Candidate c = pop(x);
    Pair *p = pair_slot(x, c.key);
    if (p->count == c.count) return p;
    push(x, p); /* it has become fewer; an entry with what is true may be there twice, which does no harm */
  }
  return NULL;
}

/* Adds `sign` times a word's count to each of its pairs. Those with the token `made` are new in this word. */
static void count_pairs(ZtTrainer *x, uint32_t word, int sign, uint32_t made) {
  const Word *w = &x->word[word];
  const uint32_t *s = x->symbol + w->at;
  for (uint32_t i = 0; i + 1 < w->n; i++) {
    Pair *p = pair_of(x, s[i], s[i + 1]);
    p->count += sign * (int64_t)w->count;
    if (sign < 0 || (s[i] != made && s[i + 1] != made && made != ZT_NONE)) continue;
    seen_in(p, word);
    if (x->ngrown == x->grown_cap)
      x->grown = zt_room(x->grown, x->ngrown, 1, sizeof *x->grown, &x->grown_cap);
    if (made != ZT_NONE) x->grown[x->ngrown++] = p->key;
  }
}

static bool merge_in(ZtTrainer *x, uint32_t word, uint32_t left, uint32_t right, uint32_t made) {
  Word *w = &x->word[word];
  uint32_t *s = x->symbol + w->at, n = 0, i = 0;
  while (i + 1 < w->n && !(s[i] == left && s[i + 1] == right)) i++;
  if (i + 1 >= w->n) return false; /* it is there no longer */
  count_pairs(x, word, -1, made);
  for (i = 0; i < w->n; n++) {
    bool both = i + 1 < w->n && s[i] == left && s[i + 1] == right;
    s[n] = both ? made : s[i];
    i += both ? 2 : 1;
  }
  w->n = n;
  count_pairs(x, word, 1, made);
  return true;
}

static int by_key(const void *a, const void *b) {
  uint64_t p = *(const uint64_t *)a, q = *(const uint64_t *)b;
  return (p > q) - (p < q);
}

static void merge_everywhere(ZtTrainer *x, Pair *p, uint32_t left, uint32_t right, uint32_t made) {
  uint32_t *word = p->word, n = p->n; /* p may move */
  p->word = NULL;
  p->n = p->cap = 0;
  x->ngrown = 0;
  for (uint32_t i = 0; i < n; i++) merge_in(x, word[i], left, right, made);
  free(word);
  qsort(x->grown, x->ngrown, sizeof *x->grown, by_key);
  for (size_t i = 0; i < x->ngrown; i++)
    if (!i || x->grown[i] != x->grown[i - 1]) push(x, pair_slot(x, x->grown[i]));
}

/* ---- tokens and merges ---- */
typedef struct {
  ZtTable table;
  ZtToken *token;
  uint32_t n;
  uint32_t (*merge)[2];
  uint32_t nmerge;
} Learned;

/* The number of the token that two make: another pair may have made it before. */
static uint32_t made_of(ZtTrainer *x, Learned *l, uint32_t left, uint32_t right) {
  const ZtToken *a = &l->token[left], *b = &l->token[right];
  char *s = zb_alloc(x->arena, a->n + b->n + 1);
  memcpy(s, a->s, a->n);
  memcpy(s + a->n, b->s, b->n);
  uint32_t id = zt_table_find(&l->table, s, a->n + b->n);
  if (id != ZT_NONE) return id;
  l->token[l->n] = (ZtToken){s, a->n + b->n};
  zt_table_add(&l->table, s, a->n + b->n, l->n);
  return l->n++;
}

/* Tokens of a byte, in the order of the characters that stand for them, as GPT-2 has them. */
static void begin_with_bytes(ZtTrainer *x, Learned *l, uint32_t id_of[256]) {
  for (uint32_t c = 0; c < 512; c++) {
    int byte = zt_char_byte(c);
    if (byte < 0) continue;
    char *s = zb_alloc(x->arena, 2);
    s[0] = (char)byte;
    id_of[byte] = l->n;
    zt_table_add(&l->table, s, 1, l->n);
    l->token[l->n++] = (ZtToken){s, 1};
  }
}

static void count_all(ZtTrainer *x, const uint32_t id_of[256]) {
  x->symbol = zeroed(x->bytes.len + 1, sizeof *x->symbol);
  for (size_t i = 0; i < x->bytes.len; i++) x->symbol[i] = id_of[(uint8_t)x->bytes.s[i]];
  for (size_t i = 0; i < x->nword; i++) count_pairs(x, (uint32_t)i, 1, ZT_NONE);
  for (uint32_t i = 0; x->pair && i <= x->pair_mask; i++)
    if (x->pair[i].key) push(x, &x->pair[i]);
}

/* ---- the file ---- */
/* Returns a token's characters, one for each byte; they stay until the next call. */
static const char *token_text(ZbText *t, const ZtToken *token) {
  t->len = 0;
  zb_text_put(t, "", 0);
  for (uint32_t i = 0; i < token->n; i++) {
    char c[4];
    zb_text_put(t, c, zb_utf8(c, zt_byte_char((uint8_t)token->s[i])));
  }
  return t->s;
}

static void put_special(ZbJson *j, const char *token, uint32_t id) {
  static const char *const flags[] = {"single_word", "lstrip", "rstrip", "normalized"};
  zb_json_line(j, 0);
  zb_json_object(j, NULL);
  zb_json_count(j, "id", id);
  zb_json_string(j, "content", token);
  for (int i = 0; i < 4; i++) zb_json_bool(j, flags[i], false);
  zb_json_bool(j, "special", true);
  zb_json_end(j);
}

static void put_bytes(ZbJson *j, const char *key) {
  zb_json_line(j, 0);
  zb_json_object(j, key);
  zb_json_string(j, "type", "ByteLevel");
  zb_json_bool(j, "add_prefix_space", false);
  zb_json_bool(j, "trim_offsets", true);
  zb_json_bool(j, "use_regex", true);
  zb_json_end(j);
}

static void put_model(ZbJson *j, const Learned *l) {
  static const char *const none[] = {"dropout", "unk_token", "continuing_subword_prefix",
                                     "end_of_word_suffix"};
  static const char *const flags[] = {"fuse_unk", "byte_fallback", "ignore_merges"};
  ZbText text = {0};
  zb_json_line(j, 0);
  zb_json_object(j, "model");
  zb_json_string(j, "type", "BPE");
  for (int i = 0; i < 4; i++) zb_json_null(j, none[i]);
  for (int i = 0; i < 3; i++) zb_json_bool(j, flags[i], false);
  zb_json_line(j, 0);
  zb_json_object(j, "vocab");
  for (uint32_t i = 0; i < l->n; i++) {
    if (i) zb_json_line(j, 0);
    zb_json_count(j, token_text(&text, &l->token[i]), i);
  }
  zb_json_end(j);
  zb_json_line(j, 0);
  zb_json_list(j, "merges");
  for (uint32_t i = 0; i < l->nmerge; i++) {
    if (i) zb_json_line(j, 0);
    zb_json_list(j, NULL);
    for (int k = 0; k < 2; k++) zb_json_string(j, NULL, token_text(&text, &l->token[l->merge[i][k]]));
    zb_json_end(j);
  }
  zb_json_end(j);
  zb_json_end(j);
  zb_text_free(&text);
}

static void write_file(const Learned *l, const char *const *special, uint32_t nspecial, ZbText *out) {
  ZbJson j = {.text = out};
  zb_json_object(&j, NULL);
  zb_json_string(&j, "version", "1.0");
  zb_json_null(&j, "truncation");
  zb_json_null(&j, "padding");
  zb_json_list(&j, "added_tokens");
  for (uint32_t i = 0; i < nspecial; i++) put_special(&j, special[i], l->n + i);
  zb_json_end(&j);
  zb_json_line(&j, 0);
  zb_json_null(&j, "normalizer");
  put_bytes(&j, "pre_tokenizer");
  put_bytes(&j, "post_processor");
  put_bytes(&j, "decoder");
  put_model(&j, l);
  zb_json_end(&j);
  zb_text_add(out, "\n");
}

bool zt_trainer_finish(ZtTrainer *x, uint32_t vocab, const char *const *special, uint32_t nspecial,
                       ZbText *json, ZbErr *err) {
  if (x->symbol) ZB_BUG("a trainer finishes once");
  if (vocab < 256 + nspecial || vocab > VOCAB_LIMIT)
    return zb_fail(err, NULL,
                   "a vocabulary of %u tokens; it has 256 bytes, %u special tokens, and at most %d in all",
                   vocab, nspecial, VOCAB_LIMIT);
  for (uint32_t i = 0; i < nspecial; i++)
    if (!*special[i] || zt_utf8_valid(special[i], strlen(special[i])) < strlen(special[i]))
      return zb_fail(err, NULL, "the special token %s is empty, or no UTF-8", zb_show(special[i]));
  uint32_t most = vocab - nspecial, id_of[256];
  Learned l = {.token = ZB_NEWN(x->arena, ZtToken, most)};
  zt_table_init(x->arena, &l.table, most);
  begin_with_bytes(x, &l, id_of);
  count_all(x, id_of);
  Pair *p;
  while (l.n < most && (p = most_frequent(x))) {
    uint32_t pair[2] = {(uint32_t)((p->key - 1) >> 32), (uint32_t)(p->key - 1)};
    l.merge = zb_grow(x->arena, l.merge, l.nmerge, sizeof *l.merge);
    memcpy(l.merge[l.nmerge++], pair, sizeof pair);
    merge_everywhere(x, p, pair[0], pair[1], made_of(x, &l, pair[0], pair[1]));
  }
  if (l.n < most)
    return zb_fail(err, "give more text, or a smaller vocabulary",
                   "the text is too short for %u tokens: it has %u", vocab, l.n + nspecial);
  write_file(&l, special, nspecial, json);
  return true;
}

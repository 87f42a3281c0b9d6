/* A tokenizer.json becomes a tokenizer. */
#include "runtime/text/json.h"

#include <unistd.h>

/* How to come to one, of transformers, which reads what other programs have. */
static const char convert[] = "give tokenizer.json instead, which lies beside it or is made by transformers: "
                              "AutoTokenizer.from_pretrained(DIR, use_fast=True).save_pretrained(OUT)";

/* Ids of added tokens, and what their texts are looked for as. */
static bool index_added(ZtTokenizer *t, ZbErr *err) {
  uint32_t size = t->size;
  for (uint32_t i = 0; i < t->nadded; i++)
    if (size <= t->added[i].id) size = t->added[i].id + 1;
  ZtToken *token = ZB_NEWN(t->arena, ZtToken, size + 1);
  if (t->size) memcpy(token, t->token, t->size * sizeof *token);
  t->token = token;
  t->size = size;
  t->added_at = ZB_NEWN(t->arena, uint32_t, size + 1);
  ZtCoder *c = zt_coder_new(t);
  c->err = err;
  bool ok = true;
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < t->nadded; i++) bytes += t->added[i].n;
  zt_grow_from(c, bytes);
  for (uint32_t i = 0; i < t->nadded && ok; i++) {
    ZtAdded *a = &t->added[i];
    const char *s = a->s;
    size_t n = a->n;
    if (a->normalized) ok = zt_normalize(c, a->s, a->n, &s, &n);
    if (!ok) break;
    if (n > ZT_ADDED_LIMIT)
      ok = zb_fail(err, NULL,
                   "added_tokens: the one with id %u has %zu bytes when it is normalized; it has %d at most",
                   a->id, n, ZT_ADDED_LIMIT);
    if (!ok) break;
    a->matched = zb_strndup(t->arena, s, n);
    a->matched_n = (uint32_t)n;
    t->token[a->id] = (ZtToken){a->s, a->n};
    t->added_at[a->id] = i + 1;
  }
  zt_coder_free(c);
  return ok && zt_sought_init(t, false, err) && zt_sought_init(t, true, err);
}

static bool read_all(ZtTokenizer *t, const cJSON *root, ZbErr *err) {
  if (!cJSON_IsObject(root)) return zb_fail(err, NULL, "it is not a JSON object");
  if (!cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(root, "model")))
    return zb_fail(err, convert, "it has no `model`"); /* vocab.json, tokenizer_config.json, ... */
  if (!zt_model_read(t, root, err) || !zt_normalizers_read(t, root, err) ||
      !zt_pretokenizers_read(t, root, err) || !zt_decoders_read(t, root, err) || !zt_added_read(t, root, err))
    return false;
  ZtModel *m = &t->model;
  if (m->kind == ZT_BPE) zt_bpe_init(t);
  else if (!(m->kind == ZT_UNIGRAM ? zt_unigram_init(t, err) : zt_wordpiece_init(t, err))) return false;
  return index_added(t, err) && zt_post_read(t, root, err);
}

/* The parser ends a text at the character U+0000. */
static bool has_nul(const char *json, size_t n) {
  for (const char *p = json, *end = json + n; (p = memchr(p, '\\', (size_t)(end - p))); p += 2) {
    if (end - p < 2) return false;
    if (end - p >= 6 && !memcmp(p, "\\u0000", 6)) return true;
    if (end - p == 2) return false;
  }
  return memchr(json, 0, n) != NULL;
}

/* The head of a SentencePiece model: its first piece (field 1), of that the text (1) and the score (2). */
static bool is_sentencepiece(const char *s, size_t n) {
  size_t at = 1;
  if (n < 8 || s[0] != 10) return false;
  while (at < n && at < 6 && (uint8_t)s[at] & 0x80) at++; /* the piece's length */
  if (++at + 2 > n || s[at] != 10) return false;
  size_t text = (uint8_t)s[at + 1];
  return text < 0x80 && at + 2 + text < n && s[at + 2 + text] == 0x15;
}

/* The head of a file of ranks, as Llama 3's tokenizer.model is one: bytes in base64, a blank, 0. */
static bool is_ranks(const char *s, size_t n) {
  static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
  size_t word = 0;
  while (word < n && s[word] && strchr(base64, s[word])) word++;
  return word && word % 4 == 0 && word + 3 <= n &&
         (!memcmp(s + word, " 0\n", 3) || !memcmp(s + word, " 0\r", 3));
}

/* Tokenizers of other formats, which are taken for one of this where both are called alike. */
static const char *other_format(const char *s, size_t n) {
  return is_sentencepiece(s, n) ? "a SentencePiece model"
         : is_ranks(s, n)       ? "a list of tiktoken's ranks"
                                : NULL;
}

static cJSON *parse(const char *json, size_t n, ZbErr *err) {
  if (n > ZT_FILE_LIMIT) {
    zb_fail(err, NULL, "it has %zu bytes; at most %d are read", n, ZT_FILE_LIMIT);
    return NULL;
  }
  if (other_format(json, n)) {
    zb_fail(err, convert, "it is %s; a tokenizer.json is read", other_format(json, n));
    return NULL;
  }
  if (has_nul(json, n)) {
    zb_fail(err, NULL, "it has the character U+0000, which is not supported");
    return NULL;
  }
  cJSON *root = zb_json_parse(json, n, ZB_JSON_TOKENS, err);
  bool scores = cJSON_IsArray(zt_json(zt_json(root, "model"), "vocab"));
  if (scores)
    zb_json_digits(root, json); /* of scores every digit counts; the text ends with a brace, not with a NUL */
  return root;
}

static ZtTokenizer *refuse(const char *name, ZbErr *err) {
  char text[sizeof err->text];
  if (!err) return NULL;
  memcpy(text, err->text, sizeof text);
  snprintf(err->text, sizeof err->text, "%s as a tokenizer: ", zb_show(name));
  size_t n = strlen(err->text);
  snprintf(err->text + n, sizeof err->text - n, "%s", text);
  return NULL;
}

ZtTokenizer *zt_read(const char *json, size_t n, const char *name, ZbErr *err) {
  cJSON *root = parse(json, n, err);
  if (!root) return refuse(name, err);
  ZbArena *a = zb_arena_new();
  ZtTokenizer *t = ZB_NEW(a, ZtTokenizer);
  t->arena = a;
  t->name = zb_strdup(a, name);
  bool ok = read_all(t, root, err);
  cJSON_Delete(root);
  if (ok) return t;
  zt_free(t);
  return refuse(name, err);
}

ZtTokenizer *zt_load(const char *path, ZbErr *err) {
  ZbArena *a = zb_arena_new();
  size_t n;
  const char *given = path;
  path = zb_file_of(a, path, "tokenizer.json");
  char *json = zb_read_file(a, path, ZT_FILE_LIMIT, &n, err);
  if (!json && path != given && access(path, F_OK) != 0) snprintf(err->help, sizeof err->help, "%s", convert);
  ZtTokenizer *t = json ? zt_read(json, n, path, err) : NULL;
  zb_arena_free(a);
  return t;
}

void zt_free(ZtTokenizer *t) {
  if (!t) return;
  zt_patterns_close(t);
  zb_arena_free(t->arena);
}

/* ---- tokens by name and by id ---- */
uint32_t zt_size(const ZtTokenizer *t) { return t->size; }

uint32_t zt_id(const ZtTokenizer *t, const char *token) {
  uint32_t id = zt_table_find(&t->added_ids, token, strlen(token));
  return id != ZT_NONE ? id : zt_table_find(&t->model.vocab, token, strlen(token));
}

const char *zt_token(const ZtTokenizer *t, uint32_t id, size_t *n) {
  if (id >= t->size || !t->token[id].s) return NULL;
  *n = t->token[id].n;
  return t->token[id].s;
}

bool zt_special(const ZtTokenizer *t, uint32_t id) {
  return id < t->size && t->added_at[id] && t->added[t->added_at[id] - 1].special;
}

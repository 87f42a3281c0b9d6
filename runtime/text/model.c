/* The model's part of a tokenizer.json: its vocabulary, and what tells models apart. */
#include "runtime/text/json.h"

#include <stdlib.h>

enum { ID_LIMIT = 1 << 24, TOKEN_LIMIT = 1 << 16 };

/* ---- the vocabulary ---- */
static bool add_token(ZtTokenizer *t, const char *token, uint32_t id, ZbErr *err) {
  size_t n = strlen(token);
  if (n > TOKEN_LIMIT) return zb_fail(err, NULL, "model: the token with id %u has %zu bytes", id, n);
  if (zt_utf8_valid(token, n) < n) return zb_fail(err, NULL, "model: the token with id %u is not UTF-8", id);
  if (t->token[id].s)
    return zb_fail(err, NULL, "model: the tokens %s and %s both have id %u", zb_show(t->token[id].s),
                   zb_show(token), id);
  const char *s = zb_strdup(t->arena, token);
  t->token[id] = (ZtToken){s, (uint32_t)n};
  if (!zt_table_add(&t->model.vocab, s, n, id))
    return zb_fail(err, NULL, "model: the token %s is there twice", zb_show(token));
  if (t->size <= id) t->size = id + 1;
  return true;
}

static bool begin_vocab(ZtTokenizer *t, uint32_t count, uint32_t ids) {
  t->model.count = count;
  zt_table_init(t->arena, &t->model.vocab, count);
  t->token = ZB_NEWN(t->arena, ZtToken, ids);
  return true;
}

/* {"token": id, ...} */
static bool read_object(ZtTokenizer *t, const cJSON *vocab, ZbErr *err) {
  if (!cJSON_IsObject(vocab)) return zb_fail(err, NULL, "model: `vocab` is not an object of tokens and ids");
  const cJSON *x;
  uint32_t count = 0, top = 0;
  cJSON_ArrayForEach(x, vocab) {
    if (!cJSON_IsNumber(x) || !(x->valuedouble >= 0 && x->valuedouble < ID_LIMIT) ||
        x->valuedouble != (double)x->valueint)
      return zb_fail(err, NULL, "model: the id of the token %s is not a whole number below %d",
                     zb_show(x->string), ID_LIMIT);
    if (top < (uint32_t)x->valueint) top = (uint32_t)x->valueint;
    count++;
  }
  begin_vocab(t, count, top + 1);
  cJSON_ArrayForEach(x, vocab) if (!add_token(t, x->string, (uint32_t)x->valueint, err)) return false;
  return true;
}

/* Returns the number that the library makes of digits: it reads JSON by serde_json, whose quick way takes the digits as one whole
 * number and multiplies or divides by a power of ten, each rounded. Ties of scores are decided by the last bit. */
static double score_of(const char *s) {
  bool negative = *s == '-', point = false, full = false;
  uint64_t digits = 0;
  long exponent = 0;
  for (s += negative; (*s >= '0' && *s <= '9') || *s == '.'; s++) {
    if (*s == '.') point = true;
    else if (full || digits > (UINT64_MAX - (uint64_t)(*s - '0')) / 10) {
      full = true; /* more digits than fit are dropped */
      exponent += !point;
    } else {
      digits = digits * 10 + (uint64_t)(*s - '0');
      exponent -= point;
    }
  }
  if (*s == 'e' || *s == 'E') exponent += strtol(s + 1, NULL, 10);
  double x = (double)digits;
  for (; exponent < -308 && x != 0; exponent += 308) x /= 1e308;
  char power[16]; /* of ten, rounded once, as the library's table has them */
  snprintf(power, sizeof power, "1e%ld", labs(exponent) <= 308 ? labs(exponent) : 308);
  if (x != 0) x = exponent < 0 ? x / strtod(power, NULL) : x * strtod(power, NULL);
  return negative ? -x : x;
}

/* [["token", score], ...] */
static bool read_scores(ZtTokenizer *t, const cJSON *vocab, ZbErr *err) {
  if (!cJSON_IsArray(vocab)) return zb_fail(err, NULL, "model: `vocab` is not a list of tokens and scores");
  uint32_t count = (uint32_t)cJSON_GetArraySize(vocab), id = 0;
  if (count > ID_LIMIT) return zb_fail(err, NULL, "model: %u tokens", count);
  begin_vocab(t, count, count + 1);
  t->model.score = ZB_NEWN(t->arena, double, count + 1);
  const cJSON *x;
  cJSON_ArrayForEach(x, vocab) {
    const cJSON *token = cJSON_IsArray(x) ? x->child : NULL, *score = token ? token->next : NULL;
    if (!cJSON_IsString(token) || !cJSON_IsNumber(score) || score->next)
      return zb_fail(err, NULL, "model: entry %u of `vocab` is not a token and its score", id);
    t->model.score[id] = score->valuestring ? score_of(score->valuestring) : score->valuedouble;
    if (!add_token(t, token->valuestring, id++, err)) return false;
  }
  return true;
}

bool zt_model_trie(ZtTokenizer *t, ZbErr *err) {
  uint64_t bytes = 0;
  for (uint32_t id = 0; id < t->size; id++) {
    bytes += t->token[id].n;
    if (t->token[id].n > ZT_TOKEN_LIMIT)
      return zb_fail(err, NULL, "model: the token with id %u has %u bytes; one of %s has %d at most", id,
                     t->token[id].n, t->model.kind == ZT_UNIGRAM ? "Unigram" : "WordPiece", ZT_TOKEN_LIMIT);
  }
  if (!zt_trie_init(t->arena, &t->model.trie, bytes, err)) return false;
  for (uint32_t id = 0; id < t->size; id++) zt_trie_add(&t->model.trie, t->token[id].s, t->token[id].n, id);
  return true;
}

/* ---- models ---- */
static bool read_unk(ZtTokenizer *t, const cJSON *model, bool must, ZbErr *err) {
  const char *unk = NULL;
  if (!zt_json_text(t, "model", model, "unk_token", must, &unk, err)) return false;
  if (!unk) return true;
  t->model.unk = zt_table_find(&t->model.vocab, unk, strlen(unk));
  return t->model.unk != ZT_NONE ||
         zb_fail(err, NULL, "model: the unk_token %s is not in `vocab`", zb_show(unk));
}

/* Merges left out at random, which some train with: the same text would be other tokens each time. */
static bool refuse_dropout(const cJSON *model, ZbErr *err) {
  const cJSON *dropout = zt_json(model, "dropout");
  if (!dropout || (cJSON_IsNumber(dropout) && dropout->valuedouble == 0)) return true;
  return zb_fail(err, NULL, "model: `dropout` is not supported; set it to null");
}

static bool read_bpe(ZtTokenizer *t, const cJSON *model, ZbErr *err) {
  ZtModel *m = &t->model;
  if (!refuse_dropout(model, err)) return false;
  if (!read_object(t, zt_json(model, "vocab"), err) || !read_unk(t, model, ZT_MAY, err) ||
      !zt_json_text(t, "model", model, "continuing_subword_prefix", ZT_MAY, &m->prefix, err) ||
      !zt_json_text(t, "model", model, "end_of_word_suffix", ZT_MAY, &m->suffix, err) ||
      !zt_json_bool("model", model, "fuse_unk", ZT_MAY, &m->fuse_unk, err) ||
      !zt_json_bool("model", model, "byte_fallback", ZT_MAY, &m->byte_fallback, err) ||
      !zt_json_bool("model", model, "ignore_merges", ZT_MAY, &m->ignore_merges, err))
    return false;
  m->prefix_n = (uint32_t)strlen(m->prefix);
  m->suffix_n = (uint32_t)strlen(m->suffix);
  return zt_merges_read(t, model, err);
}

static bool read_unigram(ZtTokenizer *t, const cJSON *model, ZbErr *err) {
  ZtModel *m = &t->model;
  if (!read_scores(t, zt_json(model, "vocab"), err) ||
      !zt_json_bool("model", model, "byte_fallback", ZT_MAY, &m->byte_fallback, err))
    return false;
  if (!zt_json(model, "unk_id")) return true;
  if (!m->count) return zb_fail(err, NULL, "model: `vocab` is empty");
  return zt_json_count("model", model, "unk_id", ZT_MUST, m->count - 1, &m->unk, err);
}

static bool read_wordpiece(ZtTokenizer *t, const cJSON *model, ZbErr *err) {
  ZtModel *m = &t->model;
  m->prefix = "##";
  m->max_chars = 100;
  if (!read_object(t, zt_json(model, "vocab"), err) || !read_unk(t, model, ZT_MUST, err) ||
      !zt_json_text(t, "model", model, "continuing_subword_prefix", ZT_MUST, &m->prefix, err) ||
      !zt_json_count("model", model, "max_input_chars_per_word", ZT_MUST, INT32_MAX, &m->max_chars, err))
    return false;
  m->prefix_n = (uint32_t)strlen(m->prefix);
  return true;
}

bool zt_model_read(ZtTokenizer *t, const cJSON *root, ZbErr *err) {
  const cJSON *model = zt_json(root, "model");
  const char *type = NULL;
  ZtModel *m = &t->model;
  if (!zt_json_text(t, "model", model, "type", ZT_MAY, &type, err)) return false;
  if (!type) /* old files do not say */
    type = zt_json(model, "merges")                 ? "BPE"
           : cJSON_IsArray(zt_json(model, "vocab")) ? "Unigram"
                                                    : "WordPiece";
  *m = (ZtModel){.unk = ZT_NONE, .prefix = "", .suffix = ""};
  bool ok;
  if (!strcmp(type, "BPE")) ok = read_bpe(t, model, err);
  else if (!strcmp(type, "Unigram")) {
    m->kind = ZT_UNIGRAM;
    ok = read_unigram(t, model, err);
  } else if (!strcmp(type, "WordPiece")) {
    m->kind = ZT_WORDPIECE;
    ok = read_wordpiece(t, model, err);
  } else return zb_fail(err, NULL, "the model %s is not supported", zb_show(type));
  for (int i = 0; ok && i < 256; i++) {
    char name[8];
    m->fallback[i] = zt_table_find(&m->vocab, name, (size_t)snprintf(name, sizeof name, "<0x%02X>", i));
  }
  return ok;
}

/* Ids of texts, by a tokenizer or one for each byte; which ids end a text; a query as the scheduler takes it. */
#define _GNU_SOURCE /* getrandom */
#include "runtime/exec/answer/answer.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

enum { BYTES = 256 };

/* ---- opening ----------------------------------------------------------------------------------------------- */
/* Makes a tokenizer whose ids are bytes, so that there is one way for texts. Byte-level tokenizers write a byte
 * as a character: itself where that can be seen, else one from U+0100 on. */
static ZtTokenizer *of_bytes(ZbErr *err) {
  ZbText t = {0};
  ZbJson j = {.text = &t};
  uint32_t others = 0;
  zb_json_object(&j, NULL);
  zb_json_object(&j, "pre_tokenizer");
  zb_json_string(&j, "type", "ByteLevel");
  zb_json_bool(&j, "add_prefix_space", false);
  zb_json_bool(&j, "use_regex", false);
  zb_json_end(&j);
  zb_json_object(&j, "decoder");
  zb_json_string(&j, "type", "ByteLevel");
  zb_json_end(&j);
  zb_json_object(&j, "model");
  zb_json_string(&j, "type", "BPE");
  zb_json_object(&j, "vocab");
  for (uint32_t b = 0; b < BYTES; b++) {
    bool seen = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    char c[4], key[5] = {0};
    memcpy(key, c, zb_utf8(c, seen ? b : 256 + others++));
    zb_json_count(&j, key, b);
  }
  zb_json_end(&j);
  zb_json_list(&j, "merges");
  zb_json_end(&j);
  zb_json_end(&j);
  zb_json_end(&j);
  ZtTokenizer *x = zt_read(t.s, t.len, "bytes", err);
  zb_text_free(&t);
  return x;
}

/* Takes the ends that the model has; ids beyond it never come. */
static void take_ends(ZxWords *w, ZbArena *a, const ZxFolder *f) {
  for (uint32_t i = 0; i < f->nend; i++)
    if (f->end[i] < w->vocabulary) ZB_PUSH(a, w->end, w->nend, f->end[i]);
  if (f->begin < w->vocabulary) w->begin = f->begin;
}

/* Finds the token that usually ends a document, as `zdata pack` puts it: special, or else any text could spell
 * it. */
static uint32_t usual_end(const ZtTokenizer *t) {
  static const char *const usual[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>",
                                      "<\uff5cend\u2581of\u2581sentence\uff5c>"};
  for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
    uint32_t id = zt_id(t, usual[i]);
    if (id != ZT_NONE && zt_special(t, id)) return id;
  }
  return ZX_NONE;
}

static bool open_file(ZxWords *w, ZbArena *a, const char *path, const ZxFolder *f, ZbErr *err) {
  ZxFolder own;
  size_t n;
  const char *text = NULL;
  bool one = zx_is_gguf(path);
  w->name = one ? path : zb_file_of(a, path, "tokenizer.json");
  if (one && !(text = zx_gguf_text(a, path, "tokenizer.json", &n, err))) return false;
  w->t = one ? zt_read(text, n, w->name, err) : zt_load(w->name, err);
  if (!w->t) return false;
  w->words = zt_size(w->t);
  if (w->words > w->vocabulary)
    return zb_fail(err, "give the tokenizer of this model",
                   "%s has ids below %u, the model has them below %u: it is another model's",
                   zb_show(w->name), w->words, w->vocabulary);
  if (!f && !zx_folder_read(&own, a, zx_folder_of(a, path), err)) return false;
  take_ends(w, a, f ? f : &own);
  uint32_t usual = usual_end(w->t);
  if (!w->nend && usual < w->vocabulary) ZB_PUSH(a, w->end, w->nend, usual);
  return true;
}

/* Takes bytes as tokens. An id behind them is the end of documents (zdata pack --end 256); but a folder without a
 * tokenizer has words whose texts are not known. */
static bool open_bytes(ZxWords *w, ZbArena *a, const ZxFolder *f, ZbErr *err) {
  w->t = of_bytes(err);
  if (!w->t) return false;
  w->words = f || w->vocabulary <= BYTES + 1 ? w->vocabulary : BYTES;
  if (f) take_ends(w, a, f);
  else if (w->words > BYTES) ZB_PUSH(a, w->end, w->nend, (uint32_t)BYTES);
  return true;
}

bool zx_words_open(ZxWords *w, ZbArena *a, const char *path, const ZxFolder *f, uint32_t vocabulary,
                   ZbErr *err) {
  *w = (ZxWords){.vocabulary = vocabulary, .begin = ZX_NONE};
  bool ok = path ? open_file(w, a, path, f, err) : open_bytes(w, a, f, err);
  if (ok) w->coder = zt_coder_new(w->t);
  if (ok) w->shapes = zx_shapes_new(w->t, vocabulary);
  else zx_words_close(w);
  return ok;
}

void zx_words_close(ZxWords *w) {
  zx_shapes_free(w->shapes);
  zt_chats_close(&w->chats);
  zt_coder_free(w->coder);
  zt_free(w->t);
  w->shapes = NULL;
  w->coder = NULL;
  w->t = NULL;
}

/* ---- prompts ----------------------------------------------------------------------------------------------- */
/* Returns room for n ids more. */
static uint32_t *append(ZtIds *out, size_t n) {
  uint32_t *p = realloc(out->id, (out->n + n + 1) * sizeof *p);
  if (!p) zb_out_of_memory((out->n + n + 1) * sizeof *p);
  *out = (ZtIds){p, out->n + n, out->n + n + 1};
  return p + out->n - n;
}

static bool encode(ZxWords *w, const ZxQuery *q, ZtIds *out, ZbErr *err) {
  size_t valid = zt_utf8_valid(q->prompt, q->length), before = out->n;
  if (valid < q->length && w->name)
    return zb_fail(err, "write it in UTF-8", "byte %zu of the prompt is not UTF-8", valid + 1);
  if (!w->name) { /* bytes are what they are */
    if (q->length > ZT_TEXT_LIMIT) return zb_fail(err, NULL, "a prompt of %zu bytes", q->length);
    uint32_t *id = append(out, q->length);
    for (size_t i = 0; i < q->length; i++) id[i] = (uint8_t)q->prompt[i];
  } else if (!zt_encode(w->coder, q->prompt, q->length, q->plain ? 0 : ZT_AROUND, out, err)) return false;
  if (out->n > before) return true;
  if (w->begin == ZX_NONE)
    return zb_fail(err, "write something", "the prompt is empty, and no token begins texts");
  *append(out, 1) = w->begin;
  return true;
}

static bool encode_chat(ZxWords *w, const ZxQuery *q, ZtIds *out, ZbErr *err) {
  cJSON *chat = zx_query_parse(q->chat, q->nchat, NULL, err);
  bool ok = chat && zx_chat_ids(&w->chats, w->coder, chat, q->now, out, err);
  cJSON_Delete(chat);
  return ok;
}

bool zx_words_of(ZxWords *w, const ZxQuery *q, ZtIds *out, ZbErr *err) {
  size_t before = out->n;
  if (q->chat && !encode_chat(w, q, out, err)) return false;
  if (q->prompt && !encode(w, q, out, err)) return false;
  bool ids = !q->prompt && !q->chat;
  if (ids && !q->ntokens) return zb_fail(err, "give at least one id", "`tokens` is empty");
  if (ids) memcpy(append(out, q->ntokens), q->token, q->ntokens * sizeof *q->token);
  for (size_t i = before; i < out->n; i++)
    if (out->id[i] >= w->vocabulary)
      return w->name || ids ? zb_fail(err, "give ids of this model's tokenizer",
                                      "token %zu of the prompt is %u; the model has ids below %u",
                                      i - before + 1, out->id[i], w->vocabulary)
                            : zb_fail(err, "give --tokenizer, if the model was trained with one",
                                      "byte %zu of the prompt is %u; the model has ids below %u",
                                      i - before + 1, out->id[i], w->vocabulary);
  return true;
}

/* ---- requests ---------------------------------------------------------------------------------------------- */
uint64_t zx_new_seed(void) {
  uint64_t seed;
  if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) == (ssize_t)sizeof seed) return seed >> 1;
  static uint64_t nth;
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return zb_random_u64((uint64_t)t.tv_sec, (uint64_t)t.tv_nsec, nth++) >> 1;
}

static ZxSampling sampling_of(const ZxQuery *q) {
  return (ZxSampling){.temperature = q->temperature,
                      .top_k = q->top_k > 0 ? (uint32_t)q->top_k : 0,
                      .top_p = q->top_p,
                      .min_p = q->min_p,
                      .repetition = q->repetition,
                      .presence = q->presence,
                      .frequency = q->frequency,
                      .bias = q->bias,
                      .nbias = q->nbias,
                      .seed = q->seed == ZX_UNSAID ? zx_new_seed() : (uint64_t)q->seed,
                      .logprobs = q->logprobs == ZX_UNSAID ? ZX_NONE : (uint32_t)q->logprobs};
}

ZxShape *zx_words_shape(const ZxWords *w, const ZxQuery *q, ZbErr *err) {
  if (q->format == ZX_ANY_TEXT) return NULL;
  return zx_shapes_get(w->shapes, q->format == ZX_JSON_SCHEMA ? q->schema : NULL, q->nschema, q->strict, err);
}

/* Checks a prompt that is the source of what is written. */
static bool check_source(const ZxWords *w, const ZxQuery *q, const ZtIds *id, ZbErr *err) {
  if (q->echo)
    return zb_fail(
        err, "leave it out",
        "`echo` is for prompts that the text goes on with; this model reads the prompt apart from it");
  return id->n <= w->source ||
         zb_fail(err, "shorten it, or give a recipe that binds more",
                 "the prompt has %zu tokens; the model reads at most %u", id->n, w->source);
}

bool zx_words_request(const ZxWords *w, const ZxQuery *q, const ZtIds *id, uint32_t positions,
                      ZxGenRequest *out, ZbErr *err) {
  *out = (ZxGenRequest){0};
  const ZtIds start = {(uint32_t *)(uintptr_t)&w->start, 1, 1}, *source = w->source ? id : NULL;
  if (source && !check_source(w, q, source, err)) return false;
  if (source) id = &start;
  int64_t left = (int64_t)positions - (int64_t)id->n, most = q->max_tokens;
  if (most == ZX_ALL_LEFT || (most == ZX_UNSAID && left < ZX_ANSWER_TOKENS)) most = left;
  else if (most == ZX_UNSAID) most = ZX_ANSWER_TOKENS;
  if (left < (q->max_tokens < 0))
    return zb_fail(err, "shorten it, or raise --length if the model can more",
                   "the prompt has %zu tokens; a sequence has at most %u, prompt and answer", id->n,
                   positions);
  if (most > left)
    return zb_fail(
        err, "shorten the prompt, ask for fewer tokens, or raise --length if the model can more",
        "a prompt of %zu tokens and an answer of up to %lld are too long; a sequence has at most %u", id->n,
        (long long)most, positions);
  for (uint32_t i = 0; i < q->nend; i++)
    if (q->end[i] >= w->vocabulary)
      return zb_fail(err, NULL, "`stop_token_ids` has %u; the model has ids below %u", q->end[i],
                     w->vocabulary);
  *out = (ZxGenRequest){.prompt = id->id,
                        .nprompt = (uint32_t)id->n,
                        .source = source ? source->id : NULL,
                        .nsource = source ? (uint32_t)source->n : 0,
                        .max_tokens = (uint32_t)most,
                        .min_tokens = (uint32_t)(q->min_tokens < most ? q->min_tokens : most),
                        .choices = (uint32_t)q->choices,
                        .stop = q->end,
                        .nstop = q->nend,
                        .ignore_end = q->ignore_end,
                        .adapter = q->adapter,
                        .prompt_logprobs = q->echo && q->logprobs != ZX_UNSAID,
                        .sampling = sampling_of(q)};
  if (!zx_sampling_check(&out->sampling, w->vocabulary, err)) return false;
  out->shape = zx_words_shape(w, q, err);
  return out->shape || q->format == ZX_ANY_TEXT;
}

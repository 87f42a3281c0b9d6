/* Endpoints that need no step. */
#include "runtime/exec/serve/room.h"

#include <string.h>

extern const char *const zx_serve_page[]; /* page.embed.c */
void zx_tell_page(ZxServer *s, const char *body, size_t n, ZbText *out, ZxRefusal *r) {
  (void)s, (void)body, (void)n, (void)r;
  zb_text_put(out, zx_serve_page[1], strlen(zx_serve_page[1]));
}

static void list_model(const ZxServer *s, ZbJson *j, const char *name) {
  zb_json_object(j, NULL);
  zb_json_string(j, "id", name);
  zb_json_string(j, "object", "model");
  zb_json_int(j, "created", s->opened);
  zb_json_string(j, "owned_by", "zug");
  zb_json_count(j, "max_model_len", s->how->length);
  zb_json_end(j);
}

void zx_list_models(ZxServer *s, const char *body, size_t n, ZbText *out, ZxRefusal *r) {
  ZbJson j = {.text = out};
  (void)body, (void)n, (void)r;
  zb_json_object(&j, NULL);
  zb_json_string(&j, "object", "list");
  zb_json_list(&j, "data");
  list_model(s, &j, s->how->name);
  for (uint32_t i = 0; i < s->how->adapters.n; i++) list_model(s, &j, s->how->adapters.s[i]);
  zb_json_end(&j);
  zb_json_end(&j);
}

void zx_count_tokens(ZxServer *s, const char *body, size_t n, ZbText *out, ZxRefusal *r) {
  ZxJob *job = zx_request_read(s, ZX_MESSAGE, body, n, r);
  if (!job) return;
  zb_text_add(out, "{\"input_tokens\":%u}", job->part[0].query.ntokens);
  zx_job_release(s, job);
}

/* Returns the member, which must have that type. NULL: it is refused. */
static const cJSON *member(const cJSON *o, const char *name, cJSON_bool (*is)(const cJSON *),
                           const char *wanted, ZxRefusal *r) {
  const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, name);
  if (!v) zx_refuse(r, 400, name, NULL, "`%s` is missing; it is %s", name, wanted);
  else if (!is(v)) {
    zx_query_wrong(name, v, wanted, &r->err);
    zx_refuse_field(r, name);
    v = NULL;
  }
  return v;
}

/* Encodes with a coder of its own. */
static bool encode(ZxServer *s, const cJSON *o, ZtIds *id, ZxRefusal *r) {
  const cJSON *text = member(o, "prompt", cJSON_IsString, "a text", r),
              *around = cJSON_GetObjectItemCaseSensitive(o, "add_special_tokens");
  ZxWords words = *s->how->words;
  if (!text) return false;
  ZxQuery q = {
      .prompt = text->valuestring, .length = strlen(text->valuestring), .plain = cJSON_IsFalse(around)};
  if (around && !cJSON_IsBool(around))
    return zx_refuse(r, 400, around->string, NULL, "`add_special_tokens` is true or false");
  if (!q.length) return true; /* no tokens */
  words.coder = zx_coder(s);
  bool ok = zx_words_of(&words, &q, id, &r->err);
  zx_coder_back(s, words.coder);
  return ok || zx_refuse_field(r, "prompt");
}

void zx_tokenize(ZxServer *s, const char *body, size_t n, ZbText *out, ZxRefusal *r) {
  cJSON *o = zx_request_parse(body, n, r);
  ZtIds id = {0};
  if (o && encode(s, o, &id, r)) {
    ZbJson j = {.text = out};
    zb_json_object(&j, NULL);
    zb_json_count(&j, "count", id.n);
    zb_json_count(&j, "max_model_len", s->how->length);
    zb_json_list(&j, "tokens");
    for (size_t i = 0; i < id.n; i++) zb_json_count(&j, NULL, id.id[i]);
    zb_json_end(&j);
    zb_json_end(&j);
  }
  zt_ids_free(&id);
  cJSON_Delete(o);
}

static bool decode(ZxServer *s, const cJSON *o, ZbArena *a, ZbText *text, ZxRefusal *r) {
  const cJSON *v = member(o, "tokens", cJSON_IsArray, "a list of ids", r);
  const uint32_t *id;
  uint32_t n;
  if (!v) return false;
  if (!zx_query_ids("tokens", v, a, &id, &n, &r->err)) return zx_refuse_field(r, "tokens");
  for (uint32_t i = 0; i < n; i++)
    if (id[i] >= s->how->words->vocabulary)
      return zx_refuse(r, 400, "tokens", NULL, "`tokens` has %u; the model has ids below %u", id[i],
                       s->how->words->vocabulary);
  ZtCoder *c = zx_coder(s);
  bool ok = zt_decode(c, id, n, 0, text, &r->err);
  zx_coder_back(s, c);
  return ok || zx_refuse_field(r, "tokens");
}

void zx_detokenize(ZxServer *s, const char *body, size_t n, ZbText *out, ZxRefusal *r) {
  cJSON *o = zx_request_parse(body, n, r);
  ZbArena *a = zb_arena_new();
  ZbText text = {0};
  if (o && decode(s, o, a, &text, r)) {
    ZbJson j = {.text = out};
    zb_json_object(&j, NULL);
    zb_json_string_n(&j, "prompt", text.s ? text.s : "", text.len);
    zb_json_end(&j);
  }
  zb_text_free(&text);
  zb_arena_free(a);
  cJSON_Delete(o);
}

/* Writes a token as the tokenizer's file has it. */
static void put_token(const ZxWords *w, ZbJson *j, const char *key, uint32_t id) {
  size_t n = 0;
  const char *text = id == ZX_NONE ? NULL : zt_token(w->t, id, &n);
  if (text) zb_json_string_n(j, key, text, n);
  else zb_json_null(j, key);
}

/* Writes what a client that cuts texts itself needs to know, as lm-eval's RemoteTokenizer asks for it. */
void zx_tokenizer_info(ZxServer *s, const char *body, size_t n, ZbText *out, ZxRefusal *r) {
  const ZxWords *w = s->how->words;
  ZbJson j = {.text = out};
  (void)body, (void)n, (void)r;
  zb_json_object(&j, NULL);
  zb_json_count(&j, "vocab_size", w->vocabulary);
  zb_json_count(&j, "max_model_len", s->how->length);
  if (w->begin == ZX_NONE) zb_json_null(&j, "bos_token_id");
  else zb_json_count(&j, "bos_token_id", w->begin);
  put_token(w, &j, "bos_token", w->begin);
  put_token(w, &j, "eos_token", w->nend ? w->end[0] : ZX_NONE);
  zb_json_list(&j, "eos_token_ids");
  for (uint32_t i = 0; i < w->nend; i++) zb_json_count(&j, NULL, w->end[i]);
  zb_json_end(&j);
  zb_json_end(&j);
}

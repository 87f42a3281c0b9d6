/* Requests: bodies of JSON become jobs. Fields of queries are read where lines of files are, answer/query.c; here are
 * those that only the API has, and what is different there. */
#include "runtime/exec/serve/room.h"

#include <string.h>

enum { COMPLETION_TOKENS = 16 /* without max_tokens, as OpenAI has it */ };

typedef struct {
  ZxServer *s;
  ZxJob *j;
  ZxQuery q;
  ZxRefusal *r;
  const cJSON *prompt, *messages;
  bool logprobs; /* of a chat */
  int64_t top;   /* of a chat; ZX_UNSAID */
} Reading;

static bool wrong(Reading *x, const cJSON *v, const char *wanted) {
  zx_query_wrong(v->string, v, wanted, &x->r->err);
  return zx_refuse_field(x->r, v->string);
}

static bool take_bool(Reading *x, const cJSON *v, bool *out) {
  if (!cJSON_IsBool(v)) return wrong(x, v, "true or false");
  *out = cJSON_IsTrue(v);
  return true;
}

static bool take_whole(Reading *x, const cJSON *v, double least, double most, int64_t *out) {
  return zx_query_whole(v, least, most, out, &x->r->err) || zx_refuse_field(x->r, v->string);
}

/* ---- fields of the API alone ---------------------------------------------------------------------------------- */
static bool take_model(Reading *x, const cJSON *v) {
  if (!cJSON_IsString(v)) return wrong(x, v, "the name of a model");
  return !strcmp(v->valuestring, x->s->how->name) ||
         zx_refuse(x->r, 404, "model", "GET /v1/models lists what there is",
                   "there is no model '%s'; this is '%s'", zb_show(v->valuestring), x->s->how->name);
}

static bool take_prompt(Reading *x, const cJSON *v) {
  x->prompt = v;
  return true;
}

static bool take_messages(Reading *x, const cJSON *v) {
  x->messages = v;
  return true;
}

static bool take_stream(Reading *x, const cJSON *v) { return take_bool(x, v, &x->j->stream); }

static bool take_stream_options(Reading *x, const cJSON *v) {
  if (!cJSON_IsObject(v)) return wrong(x, v, "an object");
  for (const cJSON *o = v->child; o; o = o->next)
    if (strcmp(o->string, "include_usage"))
      return zx_refuse(x->r, 400, "stream_options", "it has `include_usage`", "`stream_options` has `%s`",
                       zb_show(o->string));
    else if (!take_bool(x, o, &x->j->usage)) return false;
  return true;
}

static bool take_most(Reading *x, const cJSON *v) { return take_whole(x, v, 0, INT32_MAX, &x->q.max_tokens); }

static bool take_best(Reading *x, const cJSON *v) {
  int64_t n;
  if (!take_whole(x, v, 1, INT32_MAX, &n)) return false;
  return n == 1 || zx_refuse(x->r, 400, v->string, "ask for `n` texts with `logprobs`, and choose",
                             "`best_of` is %lld; only 1 is possible", (long long)n);
}

static bool take_suffix(Reading *x, const cJSON *v) {
  if (cJSON_IsString(v) && !*v->valuestring) return true;
  return zx_refuse(x->r, 400, v->string,
                   "write what comes behind into the prompt, as the model was trained for it",
                   "`suffix` is not supported");
}

static bool take_tools(Reading *x, const cJSON *v) {
  if (!cJSON_IsArray(v)) return wrong(x, v, "a list");
  return !v->child || zx_refuse(x->r, 400, v->string, "leave it out", "`tools` are not supported");
}

static bool take_chat_logprobs(Reading *x, const cJSON *v) { return take_bool(x, v, &x->logprobs); }

static bool take_top(Reading *x, const cJSON *v) { return take_whole(x, v, 0, ZX_TOP_LOGPROBS, &x->top); }

static bool take_special(Reading *x, const cJSON *v) {
  bool skip = true;
  bool ok = take_bool(x, v, &skip);
  x->q.keep_special = !skip;
  return ok;
}

static bool take_around(Reading *x, const cJSON *v) {
  bool around = true;
  bool ok = take_bool(x, v, &around);
  x->q.plain = !around;
  return ok;
}

static bool take_ids(Reading *x, const cJSON *v) { return take_bool(x, v, &x->j->ids); }

static bool ignore(Reading *x, const cJSON *v) {
  (void)x, (void)v;
  return true;
}

enum { TEXT = 1 << ZX_COMPLETION, CHAT = 1 << ZX_CHAT, BOTH = TEXT | CHAT };
static const struct {
  const char *name;
  int forms;
  bool (*take)(Reading *x, const cJSON *v);
} fields[] = {
    {"model", BOTH, take_model},
    {"prompt", TEXT, take_prompt},
    {"messages", CHAT, take_messages},
    {"stream", BOTH, take_stream},
    {"stream_options", BOTH, take_stream_options},
    {"max_completion_tokens", CHAT, take_most},
    {"best_of", TEXT, take_best},
    {"suffix", TEXT, take_suffix},
    {"tools", CHAT, take_tools},
    {"logprobs", CHAT, take_chat_logprobs},
    {"top_logprobs", CHAT, take_top},
    {"skip_special_tokens", BOTH, take_special},
    {"add_special_tokens", TEXT, take_around},
    {"return_token_ids", BOTH, take_ids},
    /* Clients send these, and they change nothing here. */
    {"user", BOTH, ignore},
    {"store", BOTH, ignore},
    {"metadata", BOTH, ignore},
    {"service_tier", BOTH, ignore},
    {"safety_identifier", BOTH, ignore},
    {"prompt_cache_key", BOTH, ignore},
};
enum { FIELDS = sizeof fields / sizeof *fields };

static bool unknown(Reading *x, const char *name) {
  const char *names[FIELDS];
  uint32_t n = 0;
  for (int i = 0; i < FIELDS; i++)
    if (fields[i].forms >> x->j->form & 1) names[n++] = fields[i].name;
  zx_query_no_field(name, names, n, &x->r->err);
  return zx_refuse_field(x->r, name);
}

static bool take(Reading *x, const cJSON *v) {
  for (int i = 0; i < FIELDS; i++)
    if (fields[i].forms >> x->j->form & 1 && !strcmp(fields[i].name, v->string))
      return cJSON_IsNull(v) || fields[i].take(x, v);
  if (x->j->form == ZX_CHAT && !strcmp(v->string, "echo")) return unknown(x, v->string);
  switch (zx_query_take(&x->q, x->j->a, v, &x->r->err)) {
  case ZX_FIELD_TAKEN: return true;
  case ZX_FIELD_WRONG: return zx_refuse_field(x->r, v->string);
  case ZX_FIELD_UNKNOWN: break;
  }
  return unknown(x, v->string);
}

/* Looks into the schema that an answer must fit; it is remembered until the answer is begun. */
static bool check_format(Reading *x) {
  if (x->q.format == ZX_ANY_TEXT) return true;
  ZxShape *s = zx_words_shape(x->s->how->words, &x->q, &x->r->err);
  zx_shape_release(s);
  return s || zx_refuse_field(x->r, "response_format");
}

static bool take_all(Reading *x, const cJSON *o) {
  if (!cJSON_IsObject(o))
    return zx_refuse(x->r, 400, NULL, "send an object", "the body is not a JSON object");
  for (const cJSON *v = o->child; v; v = v->next) {
    for (const cJSON *w = o->child; w != v; w = w->next)
      if (!strcmp(w->string, v->string))
        return zx_refuse(x->r, 400, v->string, NULL, "`%s` is there twice", zb_show(v->string));
    if (!take(x, v)) return false;
  }
  if (!x->logprobs && x->top > 0)
    return zx_refuse(x->r, 400, "top_logprobs", "set `logprobs` to true",
                     "`top_logprobs` is given without `logprobs`");
  if (x->logprobs) x->q.logprobs = x->top == ZX_UNSAID ? 0 : x->top;
  return (zx_query_check(&x->q, &x->r->err) || zx_refuse_field(x->r, NULL)) && check_format(x);
}

/* ---- prompts --------------------------------------------------------------------------------------------------- */
/* Makes a part of the ids that a query has, or of its text. */
static bool add_part(Reading *x, const ZxQuery *q) {
  ZxWords words = *x->s->how->words;
  ZxPart *p = &x->j->part[x->j->nparts];
  ZtIds id = {0};
  ZxGenRequest g;
  words.coder = zx_coder(x->s);
  bool ok = zx_words_of(&words, q, &id, &x->r->err) &&
            zx_words_request(&words, q, &id, x->s->how->length, &g, &x->r->err);
  zx_coder_back(x->s, words.coder);
  if (ok) zx_shape_release(g.shape);
  if (ok) {
    uint32_t *own = ZB_NEWN(x->j->a, uint32_t, id.n + 1);
    memcpy(own, id.id, id.n * sizeof *own);
    *p = (ZxPart){.job = x->j, .index = x->j->nparts++, .query = *q};
    p->query.prompt = NULL;
    p->query.token = own;
    p->query.ntokens = (uint32_t)id.n;
  }
  zt_ids_free(&id);
  return ok || zx_refuse_field(x->r, "prompt");
}

static bool add_text(Reading *x, const char *text) {
  ZxQuery q = x->q;
  q.prompt = text;
  q.length = strlen(text);
  return add_part(x, &q);
}

static bool add_ids(Reading *x, const cJSON *ids) {
  ZxQuery q = x->q;
  if (!zx_query_ids("prompt", ids, x->j->a, &q.token, &q.ntokens, &x->r->err))
    return zx_refuse_field(x->r, "prompt");
  return add_part(x, &q);
}

/* Reads a text, a list of texts, a list of ids, or a list of these. */
static bool read_prompts(Reading *x) {
  const cJSON *v = x->prompt, *one = v ? v->child : NULL;
  if (!v || cJSON_IsNull(v))
    return zx_refuse(x->r, 400, "prompt", "write {\"prompt\": \"...\"}", "`prompt` is missing");
  bool list = cJSON_IsArray(v) && (cJSON_IsString(one) || cJSON_IsArray(one));
  int n = list ? cJSON_GetArraySize(v) : 1;
  if (n > ZX_PROMPTS)
    return zx_refuse(x->r, 400, "prompt", "send several requests",
                     "`prompt` has %d texts; at most %d are possible", n, ZX_PROMPTS);
  x->j->part = ZB_NEWN(x->j->a, ZxPart, (size_t)n);
  if (cJSON_IsString(v)) return add_text(x, v->valuestring);
  if (cJSON_IsArray(v) && !list) return add_ids(x, v);
  if (!list) return wrong(x, v, "a text, a list of ids, or a list of one of these");
  for (const cJSON *c = one; c; c = c->next) {
    if (c->type != one->type) return wrong(x, v, "a text, a list of ids, or a list of one of these");
    if (!(cJSON_IsString(c) ? add_text(x, c->valuestring) : add_ids(x, c))) return false;
  }
  return true;
}

static bool read_messages(Reading *x) {
  return zx_refuse(x->r, 400, "messages", "use /v1/completions", "this model's folder has no chat template");
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */
cJSON *zx_request_parse(const char *body, size_t n, ZxRefusal *r) {
  ZbErr why = {0};
  cJSON *o = zx_query_parse(body, n, "send a JSON object", &why);
  if (!o) zx_refuse(r, 400, NULL, why.help, "the body cannot be read: %s", why.text);
  return o;
}

static ZxQuery usual(ZxForm form) {
  return (ZxQuery){.max_tokens = form == ZX_CHAT ? ZX_ALL_LEFT : COMPLETION_TOKENS,
                   .choices = 1,
                   .logprobs = ZX_UNSAID,
                   .seed = ZX_UNSAID,
                   .temperature = 1,
                   .top_p = 1,
                   .repetition = 1,
                   .plain = form == ZX_CHAT};
}

ZxJob *zx_request_read(ZxServer *s, ZxForm form, const char *body, size_t n, ZxRefusal *r) {
  cJSON *o = zx_request_parse(body, n, r);
  if (!o) return NULL;
  ZxJob *j = zx_job_new(form);
  Reading x = {.s = s, .j = j, .q = usual(form), .r = r, .top = ZX_UNSAID};
  bool ok = take_all(&x, o) && (form == ZX_CHAT ? read_messages(&x) : read_prompts(&x));
  cJSON_Delete(o);
  if (ok) return j;
  zx_job_release(s, j);
  return NULL;
}

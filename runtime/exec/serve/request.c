/* Requests: bodies of JSON become jobs. Fields of queries are read where lines of files are, answer/query.c; here are
 * those that only the API has, and what is different there. */
#include "runtime/exec/serve/room.h"

#include <string.h>

enum { COMPLETION_TOKENS = 16 /* without max_tokens, as OpenAI has it */ };

typedef ZxReading Reading;

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
  const ZbTexts *others = &x->s->how->adapters;
  for (uint32_t i = 0; i < others->n; i++)
    if (!strcmp(v->valuestring, others->s[i])) return x->q.adapter = i, true;
  if (others->n) x->q.adapter = ZX_NONE;
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

static bool take_system(Reading *x, const cJSON *v) {
  x->system = v;
  return true;
}

/* Leaves a field to what renders conversations: zx_chat_ids. */
static bool leave(Reading *x, const cJSON *v) {
  (void)x, (void)v;
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
  x->tools = v->child ? v : NULL;
  return cJSON_IsArray(v) || wrong(x, v, "a list");
}

/* Takes the name of the tool that must be called: of a `function` in chats, beside the type in messages. */
static bool take_forced(Reading *x, const cJSON *v) {
  const cJSON *function = cJSON_GetObjectItemCaseSensitive(v, "function");
  const cJSON *name = cJSON_GetObjectItemCaseSensitive(function ? function : v, "name");
  if (!cJSON_IsString(name))
    return zx_refuse(x->r, 400, v->string, NULL, "`tool_choice` has no `name` of a tool");
  x->forced_name = name->valuestring;
  return true;
}

/* Takes which tools may or must be called: a word, by itself or as the `type` of an object. */
static bool take_tool_choice(Reading *x, const cJSON *v) {
  const cJSON *type = cJSON_IsObject(v) ? cJSON_GetObjectItemCaseSensitive(v, "type") : v,
              *one = cJSON_GetObjectItemCaseSensitive(v, "disable_parallel_tool_use");
  const char *word = cJSON_IsString(type) ? type->valuestring : "";
  bool talks = x->j->form == ZX_MESSAGE;
  x->j->one_call |= cJSON_IsTrue(one);
  x->no_tools = !strcmp(word, "none");
  x->forced = !strcmp(word, talks ? "any" : "required");
  if (x->no_tools || x->forced || !strcmp(word, "auto")) return true;
  x->forced = !strcmp(word, talks ? "tool" : "function");
  return x->forced ? take_forced(x, v)
                   : wrong(x, v,
                           talks ? "auto, any, none or tool as its type"
                                 : "auto, required, none, or an object of the type function");
}

static bool take_parallel(Reading *x, const cJSON *v) {
  bool parallel = true;
  bool ok = take_bool(x, v, &parallel);
  x->j->one_call |= !parallel;
  return ok;
}

static bool take_thinking(Reading *x, const cJSON *v) {
  const cJSON *type = cJSON_GetObjectItemCaseSensitive(v, "type");
  return (cJSON_IsString(type) && !strcmp(type->valuestring, "disabled")) ||
         zx_refuse(x->r, 400, v->string, "leave it out", "`thinking` can only be disabled");
}

/* Takes stop strings under their other name. */
static bool take_stops(Reading *x, const cJSON *v) {
  cJSON *stop = cJSON_Duplicate(v, true), *o = cJSON_CreateObject();
  cJSON_AddItemToObject(o, "stop", stop);
  bool ok = zx_query_take(&x->q, x->j->a, stop, &x->r->err) == ZX_FIELD_TAKEN;
  cJSON_Delete(o);
  return ok || zx_refuse_field(x->r, v->string);
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

enum {
  TEXT = 1 << ZX_COMPLETION,
  CHAT = 1 << ZX_CHAT,
  MESSAGE = 1 << ZX_MESSAGE,
  TALKS = CHAT | MESSAGE,
  ALL = TEXT | TALKS
};
static const struct {
  const char *name;
  int forms;
  bool (*take)(Reading *x, const cJSON *v);
} fields[] = {
    {"model", ALL, take_model},
    {"prompt", TEXT, take_prompt},
    {"messages", TALKS, take_messages},
    {"system", MESSAGE, take_system},
    {"stream", ALL, take_stream},
    {"stream_options", TEXT | CHAT, take_stream_options},
    {"stop_sequences", MESSAGE, take_stops},
    {"max_completion_tokens", CHAT, take_most},
    {"best_of", TEXT, take_best},
    {"suffix", TEXT, take_suffix},
    {"tools", TALKS, take_tools},
    {"tool_choice", TALKS, take_tool_choice},
    {"parallel_tool_calls", CHAT, take_parallel},
    {"thinking", MESSAGE, take_thinking},
    {"documents", CHAT, leave},
    {"chat_template_kwargs", CHAT, leave},
    {"add_generation_prompt", CHAT, leave},
    {"continue_final_message", CHAT, leave},
    {"logprobs", CHAT, take_chat_logprobs},
    {"top_logprobs", CHAT, take_top},
    {"skip_special_tokens", TEXT | CHAT, take_special},
    {"add_special_tokens", TEXT, take_around},
    {"return_token_ids", TEXT | CHAT, take_ids},
    /* Clients send these, and they change nothing here. */
    {"user", TEXT | CHAT, ignore},
    {"store", TEXT | CHAT, ignore},
    {"metadata", ALL, ignore},
    {"service_tier", ALL, ignore},
    {"safety_identifier", TEXT | CHAT, ignore},
    {"prompt_cache_key", TEXT | CHAT, ignore},
};
/* Fields of queries that an API has not. */
static const struct {
  const char *name;
  int forms;
} foreign[] = {{"echo", TALKS},          {"response_format", MESSAGE},
               {"json_schema", MESSAGE}, {"logprobs", MESSAGE},
               {"n", MESSAGE},           {"stop", MESSAGE}};
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
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
    if (foreign[i].forms >> x->j->form & 1 && !strcmp(foreign[i].name, v->string))
      return unknown(x, v->string);
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
static bool add_text(Reading *x, const char *text) {
  ZxQuery q = x->q;
  q.prompt = text;
  q.length = strlen(text);
  return zx_request_part(x, &q);
}

static bool add_ids(Reading *x, const cJSON *ids) {
  ZxQuery q = x->q;
  if (!zx_query_ids("prompt", ids, x->j->a, &q.token, &q.ntokens, &x->r->err))
    return zx_refuse_field(x->r, "prompt");
  return zx_request_part(x, &q);
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

/* ---- all of it --------------------------------------------------------------------------------------------------- */
cJSON *zx_request_parse(const char *body, size_t n, ZxRefusal *r) {
  ZbErr why = {0};
  cJSON *o = zx_query_parse(body, n, "send a JSON object", &why);
  if (!o) zx_refuse(r, 400, NULL, why.help, "the body cannot be read: %s", why.text);
  return o;
}

static ZxQuery usual(ZxForm form) {
  return (ZxQuery){.max_tokens = form == ZX_COMPLETION ? COMPLETION_TOKENS : ZX_ALL_LEFT,
                   .choices = 1,
                   .logprobs = ZX_UNSAID,
                   .seed = ZX_UNSAID,
                   .temperature = 1,
                   .top_p = 1,
                   .repetition = 1,
                   .plain = form != ZX_COMPLETION};
}

ZxJob *zx_request_read(ZxServer *s, ZxForm form, const char *body, size_t n, ZxRefusal *r) {
  cJSON *o = zx_request_parse(body, n, r);
  if (!o) return NULL;
  ZxJob *j = zx_job_new(form);
  Reading x = {.s = s, .j = j, .q = usual(form), .r = r, .body = o, .top = ZX_UNSAID};
  bool ok = take_all(&x, o) && (form == ZX_COMPLETION ? read_prompts(&x) : zx_request_chat(&x));
  cJSON_Delete(o);
  if (ok) return j;
  zx_job_release(s, j);
  return NULL;
}

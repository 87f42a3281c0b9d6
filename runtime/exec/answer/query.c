/* Queries from lines of JSON and from options: fields, their types, their ranges. */
#include "runtime/exec/answer/query.h"
#include "runtime/text/text.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

typedef enum { PROMPT, TOKENS, CHAT, WHOLE, REAL, SWITCH, STOPS, ENDS, BIASES, FORMAT, SCHEMA } Kind;
#define AT(f) offsetof(ZxQuery, f)
static const struct {
  const char *name;
  Kind kind;
  size_t at;
  double least, most;
} fields[] = {
    {"prompt", PROMPT, 0, 0, 0},
    {"tokens", TOKENS, 0, 0, 0},
    {"messages", CHAT, 0, 0, 0},
    {"tools", CHAT, 0, 0, 0},
    {"documents", CHAT, 0, 0, 0},
    {"chat_template_kwargs", CHAT, 0, 0, 0},
    {"add_generation_prompt", CHAT, 0, 0, 0},
    {"continue_final_message", CHAT, 0, 0, 0},
    {"max_tokens", WHOLE, AT(max_tokens), 0, INT32_MAX},
    {"min_tokens", WHOLE, AT(min_tokens), 0, INT32_MAX},
    {"temperature", REAL, AT(temperature), 0, 1e6},
    {"top_k", WHOLE, AT(top_k), -1, INT32_MAX},
    {"top_p", REAL, AT(top_p), 0, 1},
    {"min_p", REAL, AT(min_p), 0, 1},
    {"repetition_penalty", REAL, AT(repetition), 0, 1e6},
    {"presence_penalty", REAL, AT(presence), -2, 2},
    {"frequency_penalty", REAL, AT(frequency), -2, 2},
    {"logit_bias", BIASES, 0, -100, 100},
    {"seed", WHOLE, AT(seed), 0, 9.2e18},
    {"n", WHOLE, AT(choices), 1, ZX_CHOICES},
    {"logprobs", WHOLE, AT(logprobs), 0, ZX_TOP_LOGPROBS},
    {"echo", SWITCH, AT(echo), 0, 0},
    {"stop", STOPS, 0, 0, 0},
    {"stop_token_ids", ENDS, 0, 0, 0},
    {"ignore_eos", SWITCH, AT(ignore_end), 0, 0},
    {"response_format", FORMAT, 0, 0, 0},
    {"json_schema", SCHEMA, 0, 0, 0},
};
enum { FIELDS = sizeof fields / sizeof *fields };

/* ---- values ------------------------------------------------------------------------------------------------ */
static const char *shown(const cJSON *v) {
  static _Thread_local char text[64];
  char *s = v ? cJSON_PrintUnformatted(v) : NULL;
  snprintf(text, sizeof text, "%s", s ? s : "not there");
  if (s && strlen(s) >= sizeof text) memcpy(text + sizeof text - 4, "...", 4);
  zb_show_all(text, sizeof text);
  cJSON_free(s);
  return text;
}

bool zx_query_wrong(const char *field, const cJSON *v, const char *wanted, ZbErr *err) {
  return zb_fail(err, NULL, "`%s` is %s; it is %s", field, shown(v), wanted);
}

/* Reads a whole number by its digits: a double has only 53 bits of them. */
static bool whole(const char *digits, int64_t *out) {
  char *end;
  if (!digits) return false;
  errno = 0;
  *out = strtoll(digits, &end, 10);
  if (end != digits && !*end && !errno) return true;
  double x = strtod(digits, &end);
  if (end == digits || *end || x != floor(x) || fabs(x) > 0x1p53) return false;
  *out = (int64_t)x;
  return true;
}

bool zx_query_whole(const cJSON *v, double least, double most, int64_t *out, ZbErr *err) {
  char wanted[96];
  int64_t n = 0;
  if (cJSON_IsNumber(v) && whole(v->valuestring, &n) && (double)n >= least && (double)n <= most) {
    *out = n;
    return true;
  }
  snprintf(wanted, sizeof wanted, "a whole number from %.0f to %.0f", least, most);
  if (most > 1e18) snprintf(wanted, sizeof wanted, "a whole number from %.0f to 2^63 - 1", least);
  return zx_query_wrong(v->string, v, wanted, err);
}

static bool take_real(const char *name, const cJSON *v, double least, double most, double *out, ZbErr *err) {
  char wanted[96];
  snprintf(wanted, sizeof wanted, "a number from %g to %g", least, most);
  if (!cJSON_IsNumber(v) || !(v->valuedouble >= least && v->valuedouble <= most))
    return zx_query_wrong(name, v, wanted, err);
  *out = v->valuedouble;
  return true;
}

bool zx_query_ids(const char *name, const cJSON *v, ZbArena *a, const uint32_t **out, uint32_t *n,
                  ZbErr *err) {
  uint32_t *id = NULL;
  int64_t one;
  if (!cJSON_IsArray(v)) return zx_query_wrong(name, v, "a list of ids", err);
  id = ZB_NEWN(a, uint32_t, (uint32_t)cJSON_GetArraySize(v) + 1);
  *n = 0;
  for (const cJSON *x = v->child; x; x = x->next) {
    if (!cJSON_IsNumber(x) || !whole(x->valuestring, &one) || one < 0 || one >= ZX_NONE)
      return zb_fail(err, NULL, "`%s` has %s, which is not the id of a token", name, shown(x));
    id[(*n)++] = (uint32_t)one;
  }
  *out = id;
  return true;
}

static bool take_stops(const cJSON *v, ZbArena *a, ZbTexts *out, ZbErr *err) {
  *out = (ZbTexts){0};
  if (!cJSON_IsString(v) && !cJSON_IsArray(v))
    return zx_query_wrong("stop", v, "a text, or a list of texts", err);
  for (const cJSON *x = cJSON_IsArray(v) ? v->child : v; x; x = cJSON_IsArray(v) ? x->next : NULL) {
    if (!cJSON_IsString(x))
      return zb_fail(err, "ids belong into `stop_token_ids`", "`stop` has %s, which is not a text", shown(x));
    const char *text = zb_strdup(a, x->valuestring);
    ZB_PUSH(a, out->s, out->n, text);
  }
  return true;
}

static bool take_bias(ZxQuery *q, const cJSON *v, ZbArena *a, ZbErr *err) {
  ZxBias *bias = NULL;
  uint32_t n = 0;
  int64_t id;
  double by = 0;
  if (!cJSON_IsObject(v)) return zx_query_wrong("logit_bias", v, "an object: {\"ID\": NUMBER}", err);
  for (const cJSON *x = v->child; x; x = x->next) {
    if (!whole(x->string, &id) || id < 0 || id >= ZX_NONE)
      return zb_fail(err, NULL, "`logit_bias` has '%s', which is not the id of a token", zb_show(x->string));
    if (!take_real("a value of logit_bias", x, -100, 100, &by, err)) return false;
    ZxBias one = {(uint32_t)id, (float)by};
    ZB_PUSH(a, bias, n, one);
  }
  q->bias = bias;
  q->nbias = n;
  return true;
}

/* ---- what an answer must be ---------------------------------------------------------------------------------- */
/* Writes a value as it was, its numbers with all their digits. */
static void write_value(ZbJson *j, const char *key, const cJSON *v) {
  if (cJSON_IsNull(v)) zb_json_null(j, key);
  else if (cJSON_IsBool(v)) zb_json_bool(j, key, cJSON_IsTrue(v));
  else if (cJSON_IsString(v)) zb_json_string(j, key, v->valuestring);
  else if (cJSON_IsNumber(v) && v->valuestring) zb_json_raw(j, key, "%s", v->valuestring);
  else if (cJSON_IsNumber(v)) zb_json_number(j, key, v->valuedouble);
  else {
    if (cJSON_IsObject(v)) zb_json_object(j, key);
    else zb_json_list(j, key);
    for (const cJSON *x = v->child; x; x = x->next) write_value(j, cJSON_IsObject(v) ? x->string : NULL, x);
    zb_json_end(j);
  }
}

static bool take_schema(ZxQuery *q, ZbArena *a, const cJSON *v, ZbErr *err) {
  if (!cJSON_IsObject(v) && !cJSON_IsBool(v))
    return zx_query_wrong("json_schema", v, "a JSON schema, an object", err);
  ZbText t = {0};
  ZbJson j = {.text = &t};
  write_value(&j, NULL, v);
  q->format = ZX_JSON_SCHEMA;
  q->schema = zb_strndup(a, t.s, t.len);
  q->nschema = t.len;
  zb_text_free(&t);
  return true;
}

static bool take_format(ZxQuery *q, ZbArena *a, const cJSON *v, ZbErr *err) {
  static const char *const types[] = {"text", "json_object", "json_schema"};
  const cJSON *type = cJSON_GetObjectItemCaseSensitive(v, "type"),
              *form = cJSON_GetObjectItemCaseSensitive(v, "json_schema"),
              *schema = cJSON_GetObjectItemCaseSensitive(form, "schema"),
              *strict = cJSON_GetObjectItemCaseSensitive(form, "strict");
  int i = 0;
  if (!cJSON_IsObject(v)) return zx_query_wrong("response_format", v, "an object: {\"type\": ...}", err);
  while (i < 3 && !(cJSON_IsString(type) && !strcmp(type->valuestring, types[i]))) i++;
  if (i == 3)
    return zx_query_wrong("type` of `response_format", type, "\"text\", \"json_object\" or \"json_schema\"",
                          err);
  q->format = (ZxFormat)i;
  if (q->format != ZX_JSON_SCHEMA) return true;
  if (!schema)
    return zb_fail(err,
                   "write {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"x\", \"schema\": {...}}}",
                   "`response_format` has no `json_schema` with a `schema`");
  if (strict && !cJSON_IsBool(strict) && !cJSON_IsNull(strict))
    return zx_query_wrong("strict` of `json_schema", strict, "true or false", err);
  q->strict = cJSON_IsTrue(strict);
  return take_schema(q, a, schema, err);
}

static bool take(ZxQuery *q, ZbArena *a, int i, const cJSON *v, ZbErr *err) {
  void *field = (char *)q + fields[i].at;
  const char *name = fields[i].name;
  if (cJSON_IsNull(v) && fields[i].kind != PROMPT && fields[i].kind != TOKENS) return true; /* unsaid */
  switch (fields[i].kind) {
  case PROMPT:
    if (!cJSON_IsString(v)) return zx_query_wrong(name, v, "a text (ids belong into `tokens`)", err);
    q->prompt = zb_strdup(a, v->valuestring);
    q->length = strlen(q->prompt);
    return true;
  case TOKENS: return zx_query_ids(name, v, a, &q->token, &q->ntokens, err);
  case CHAT: return true; /* see zx_chat_ids */
  case WHOLE: return zx_query_whole(v, fields[i].least, fields[i].most, field, err);
  case REAL: return take_real(name, v, fields[i].least, fields[i].most, field, err);
  case SWITCH:
    if (!cJSON_IsBool(v)) return zx_query_wrong(name, v, "true or false", err);
    *(bool *)field = cJSON_IsTrue(v);
    return true;
  case STOPS: return take_stops(v, a, &q->stop, err);
  case ENDS: return zx_query_ids(name, v, a, &q->end, &q->nend, err);
  case BIASES: return take_bias(q, v, a, err);
  case FORMAT: return take_format(q, a, v, err);
  case SCHEMA: return take_schema(q, a, v, err);
  }
  return false;
}

/* ---- a line ------------------------------------------------------------------------------------------------ */
static int field_named(const char *name) {
  for (int i = 0; i < FIELDS; i++)
    if (!strcmp(fields[i].name, name)) return i;
  return -1;
}

ZxFieldTaken zx_query_take(ZxQuery *q, ZbArena *a, const cJSON *field, ZbErr *err) {
  int i = field_named(field->string);
  if (i < 0 || fields[i].kind <= CHAT) return ZX_FIELD_UNKNOWN;
  return take(q, a, i, field, err) ? ZX_FIELD_TAKEN : ZX_FIELD_WRONG;
}

bool zx_query_no_field(const char *name, const char *const *others, uint32_t n, ZbErr *err) {
  enum { MOST = 128 };
  const char *names[MOST];
  char help[96] = "";
  uint32_t all = 0;
  for (int i = 0; i < FIELDS; i++) names[all++] = fields[i].name;
  for (uint32_t i = 0; i < n && all < MOST; i++) names[all++] = others[i];
  const char *near = zb_nearest(name, names, (int)all);
  if (near) snprintf(help, sizeof help, "did you mean `%s`?", near);
  return zb_fail(err, help, "there is no field `%s`", zb_show(name));
}

static bool take_all(ZxQuery *q, ZbArena *a, const cJSON *o, ZbErr *err) {
  bool given[FIELDS] = {0};
  if (!cJSON_IsObject(o)) return zb_fail(err, "write {\"prompt\": \"...\"}", "it is not a JSON object");
  for (const cJSON *v = o->child; v; v = v->next) {
    int i = field_named(v->string);
    if (i < 0) return zx_query_no_field(v->string, NULL, 0, err);
    if (given[i]) return zb_fail(err, NULL, "`%s` is there twice", fields[i].name);
    given[i] = true;
    if (!take(q, a, i, v, err)) return false;
  }
  bool chat = cJSON_GetObjectItemCaseSensitive(o, "messages");
  if (!!q->prompt + !!q->token + chat != 1)
    return zb_fail(err, "give one of them",
                   q->prompt || q->token || chat ? "it has two of `prompt`, `tokens` and `messages`"
                                                 : "it has neither a `prompt` nor `tokens` nor `messages`");
  for (int i = 0; i < FIELDS; i++)
    if (given[i] && fields[i].kind == CHAT && !chat)
      return zb_fail(err, NULL, "`%s` belongs to `messages`, which is not there", fields[i].name);
  return true;
}

cJSON *zx_query_parse(const char *text, size_t n, const char *help, ZbErr *err) {
  ZbErr why;
  size_t valid = zt_utf8_valid(text, n), blank = 0;
  while (blank < n && memchr(" \t\r\n", text[blank], 4)) blank++;
  if (blank == n) return zb_fail(err, help, "it is empty"), NULL;
  if (valid < n) return zb_fail(err, "write it in UTF-8", "byte %zu of it is not UTF-8", valid + 1), NULL;
  if (zb_json_has_nul(text, n))
    return zb_fail(err, "give ids of tokens", "it has a text with the character U+0000"), NULL;
  cJSON *o = zb_json_parse(text, n, ZB_JSON_ANY, &why);
  if (!o) return zb_fail(err, help, "%s", why.text), NULL;
  zb_json_digits(o, text);
  return o;
}

bool zx_query_read(ZxQuery *q, ZbArena *a, const char *text, size_t n, ZbErr *err) {
  cJSON *o = zx_query_parse(zb_strndup(a, text, n), n, "write {\"prompt\": \"...\"}", err);
  bool ok = o && take_all(q, a, o, err) && zx_query_check(q, err);
  if (ok && !q->prompt && !q->token) {
    q->chat = zb_strndup(a, text, n);
    q->nchat = n;
  }
  cJSON_Delete(o);
  return ok;
}

/* ---- options ----------------------------------------------------------------------------------------------- */
bool zx_query_add_end(ZxQuery *q, ZbArena *a, const char *text) {
  int64_t id;
  uint32_t *end = (uint32_t *)q->end;
  if (!whole(text, &id) || id < 0 || id >= ZX_NONE) return false;
  ZB_PUSH(a, end, q->nend, (uint32_t)id);
  q->end = end;
  return true;
}

bool zx_query_add_bias(ZxQuery *q, ZbArena *a, const char *text) {
  const char *equals = strchr(text, '=');
  char *rest;
  int64_t id;
  ZxBias *bias = (ZxBias *)q->bias;
  if (!equals || !whole(zb_strndup(a, text, (size_t)(equals - text)), &id) || id < 0 || id >= ZX_NONE)
    return false;
  double by = strtod(equals + 1, &rest);
  if (rest == equals + 1 || *rest || !(by >= -100 && by <= 100)) return false;
  ZxBias one = {(uint32_t)id, (float)by};
  ZB_PUSH(a, bias, q->nbias, one);
  q->bias = bias;
  return true;
}

bool zx_query_check(const ZxQuery *q, ZbErr *err) {
  if (q->max_tokens >= 0 && q->min_tokens > q->max_tokens)
    return zb_fail(err, "ask for more tokens, or let it end sooner",
                   "`min_tokens` is %lld, and `max_tokens` %lld", (long long)q->min_tokens,
                   (long long)q->max_tokens);
  if (!(q->repetition > 0)) return zb_fail(err, "1 is none", "`repetition_penalty` is 0; it is above 0");
  if (q->stop.n > ZT_STOPS)
    return zb_fail(err, NULL, "`stop` has %u texts; at most %d are possible", q->stop.n, ZT_STOPS);
  for (uint32_t i = 0; i < q->stop.n; i++) {
    size_t n = strlen(q->stop.s[i]);
    if (!n) return zb_fail(err, "leave it out", "`stop` has an empty text");
    if (n > ZT_STOP_LIMIT)
      return zb_fail(err, NULL, "a text of `stop` has %zu bytes; at most %d are possible", n, ZT_STOP_LIMIT);
    if (zt_utf8_valid(q->stop.s[i], n) < n)
      return zb_fail(err, "write it in UTF-8", "'%s' of `stop` is not UTF-8", zb_show(q->stop.s[i]));
  }
  return true;
}

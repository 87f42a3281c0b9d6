/* Anthropic's API: /v1/messages. Its requests become those of chats, and answers are blocks of text and of calls. */
#include "runtime/exec/serve/room.h"

#include <string.h>

/* ---- messages ------------------------------------------------------------------------------------------------------ */
static const char *text_in(const cJSON *o, const char *name) {
  const cJSON *v = zb_json_member(o, name);
  return cJSON_IsString(v) ? v->valuestring : NULL;
}

static bool wrong(ZxRefusal *r, int message, const char *what) {
  return zx_refuse(r, 400, "messages", NULL, "`messages[%d]` %s", message, what);
}

static cJSON *say(cJSON *list, const char *role) {
  cJSON *m = cJSON_CreateObject();
  cJSON_AddStringToObject(m, "role", role);
  cJSON_AddItemToArray(list, m);
  return m;
}

/* Adds a text to a list of parts. */
static void add_part(cJSON *parts, const char *text) {
  cJSON *part = cJSON_CreateObject();
  cJSON_AddStringToObject(part, "type", "text");
  cJSON_AddStringToObject(part, "text", text);
  cJSON_AddItemToArray(parts, part);
}

/* Copies blocks that are all text into parts. */
static bool add_parts(cJSON *parts, const cJSON *blocks) {
  const cJSON *b;
  if (cJSON_IsString(blocks)) add_part(parts, blocks->valuestring);
  else if (!cJSON_IsArray(blocks)) return false;
  cJSON_ArrayForEach(b, blocks) {
    const char *type = text_in(b, "type"), *text = text_in(b, "text");
    if (!type || strcmp(type, "text") || !text) return false;
    add_part(parts, text);
  }
  return true;
}

/* Adds the result of a tool as a message of its own. */
static bool add_result(cJSON *out, const cJSON *b, int at, ZxRefusal *r) {
  const char *id = text_in(b, "tool_use_id");
  const cJSON *content = zb_json_member(b, "content");
  cJSON *m = say(out, "tool");
  cJSON *parts = cJSON_AddArrayToObject(m, "content");
  if (!id) return wrong(r, at, "has a tool_result without its `tool_use_id`");
  cJSON_AddStringToObject(m, "tool_call_id", id);
  return !content || cJSON_IsNull(content) || add_parts(parts, content) ||
         wrong(r, at, "has a tool_result that is neither a text nor blocks of text");
}

static bool add_call(cJSON *calls, const cJSON *b, int at, ZxRefusal *r) {
  const char *id = text_in(b, "id"), *name = text_in(b, "name");
  const cJSON *input = zb_json_member(b, "input");
  if (!id || !name || !cJSON_IsObject(input))
    return wrong(r, at, "has a tool_use without `id`, `name` or `input`");
  cJSON *call = cJSON_CreateObject();
  cJSON_AddStringToObject(call, "id", id);
  cJSON_AddStringToObject(call, "type", "function");
  cJSON *function = cJSON_AddObjectToObject(call, "function");
  cJSON_AddStringToObject(function, "name", name);
  cJSON_AddItemToObject(function, "arguments", cJSON_Duplicate(input, true));
  cJSON_AddItemToArray(calls, call);
  return true;
}

/* Sorts the blocks of a message: results of tools go before it, texts and calls into it. */
static bool add_blocks(cJSON *out, const char *role, const cJSON *blocks, int at, ZxRefusal *r) {
  bool assistant = !strcmp(role, "assistant"), ok = true;
  cJSON *parts = cJSON_CreateArray(), *calls = cJSON_CreateArray();
  for (const cJSON *b = blocks->child; b && ok; b = b->next) {
    const char *type = text_in(b, "type"), *text = text_in(b, "text");
    if (!type) ok = wrong(r, at, "has a block without a `type`");
    else if (!strcmp(type, "text") && text) add_part(parts, text);
    else if (!strcmp(type, "tool_result") && !assistant) ok = add_result(out, b, at, r);
    else if (!strcmp(type, "tool_use") && assistant) ok = add_call(calls, b, at, r);
    else if (strcmp(type, "thinking") && strcmp(type, "redacted_thinking"))
      ok = zx_refuse(r, 400, "messages", "send text, tool_use and tool_result",
                     "`messages[%d]` has a block of the type '%s'", at, zb_show(type));
  }
  cJSON *m = ok && (parts->child || calls->child) ? say(out, role) : NULL;
  if (m && parts->child) cJSON_AddItemToObject(m, "content", parts);
  else cJSON_Delete(parts);
  if (m && calls->child) cJSON_AddItemToObject(m, "tool_calls", calls);
  else cJSON_Delete(calls);
  return ok;
}

static bool add_message(cJSON *out, const cJSON *m, int at, ZxRefusal *r) {
  const char *role = text_in(m, "role");
  const cJSON *content = zb_json_member(m, "content");
  if (!role || (strcmp(role, "user") && strcmp(role, "assistant")))
    return wrong(r, at, "has another `role` than user or assistant");
  if (cJSON_IsArray(content)) return add_blocks(out, role, content, at, r);
  if (!cJSON_IsString(content))
    return wrong(r, at, "has a `content` that is neither a text nor a list of blocks");
  cJSON_AddStringToObject(say(out, role), "content", content->valuestring);
  return true;
}

cJSON *zx_messages_open(const cJSON *messages, const cJSON *system, ZxRefusal *r) {
  cJSON *out = cJSON_CreateArray();
  int at = 0;
  bool ok = cJSON_IsArray(messages) && messages->child;
  if (!ok) zx_refuse(r, 400, "messages", NULL, "`messages` is not a list, or empty");
  if (ok && system && !cJSON_IsNull(system)) {
    cJSON *parts = cJSON_AddArrayToObject(say(out, "system"), "content");
    if (!add_parts(parts, system))
      ok = zx_refuse(r, 400, "system", NULL, "`system` is neither a text nor a list of blocks of text");
  }
  for (const cJSON *m = ok ? messages->child : NULL; m && ok; m = m->next) ok = add_message(out, m, at++, r);
  if (ok) return out;
  cJSON_Delete(out);
  return NULL;
}

cJSON *zx_messages_tools(const cJSON *tools, ZxRefusal *r) {
  cJSON *out = cJSON_CreateArray();
  const cJSON *t;
  cJSON_ArrayForEach(t, tools) {
    const char *name = text_in(t, "name"), *type = text_in(t, "type"), *what = text_in(t, "description");
    const cJSON *schema = zb_json_member(t, "input_schema");
    if (!name || !cJSON_IsObject(schema) || (type && strcmp(type, "custom"))) {
      zx_refuse(r, 400, "tools", "give each a `name` and an `input_schema`",
                "`tools` has one that is not a client's own");
      cJSON_Delete(out);
      return NULL;
    }
    cJSON *tool = cJSON_CreateObject();
    cJSON_AddStringToObject(tool, "type", "function");
    cJSON *function = cJSON_AddObjectToObject(tool, "function");
    cJSON_AddStringToObject(function, "name", name);
    if (what) cJSON_AddStringToObject(function, "description", what);
    cJSON_AddItemToObject(function, "parameters", cJSON_Duplicate(schema, true));
    cJSON_AddItemToArray(out, tool);
  }
  return out;
}

/* ---- replies --------------------------------------------------------------------------------------------------------- */
static void error(ZbText *out, const ZxRefusal *r) {
  ZbJson j = {.text = out};
  ZbText t = zx_refusal_text(r);
  zb_json_object(&j, NULL);
  zb_json_string(&j, "type", "error");
  zb_json_object(&j, "error");
  zb_json_string(&j, "type",
                 r->status == 401   ? "authentication_error"
                 : r->status == 404 ? "not_found_error"
                 : r->status == 413 ? "request_too_large"
                 : r->status == 429 ? "rate_limit_error"
                 : r->status == 503 ? "overloaded_error"
                 : r->status >= 500 ? "api_error"
                                    : "invalid_request_error");
  zb_json_string(&j, "message", t.s);
  zb_json_end(&j);
  zb_json_end(&j);
  zb_text_free(&t);
}

static void put_reason(ZbJson *j, const ZxPart *p, const ZxNew *new) {
  int stop = new->answer->stop;
  const char *finish = new->finish;
  zb_json_string(j, "stop_reason",
                 !strcmp(finish, "tool_calls") ? "tool_use"
                 : !strcmp(finish, "length")   ? "max_tokens"
                 : stop >= 0                   ? "stop_sequence"
                                               : "end_turn");
  if (stop >= 0 && !strcmp(finish, "stop")) zb_json_string(j, "stop_sequence", p->query.stop.s[stop]);
  else zb_json_null(j, "stop_sequence");
}

/* Begins a message; its content and the rest are still to be written. */
static void put_head(const ZxServer *s, ZbJson *j, const char *key, const ZxJob *job) {
  zb_json_object(j, key);
  zb_json_string(j, "id", job->id);
  zb_json_string(j, "type", "message");
  zb_json_string(j, "role", "assistant");
  zb_json_string(j, "model", zx_model_name(s, job));
  zb_json_list(j, "content");
}

static void put_usage(ZbJson *j, uint64_t in, uint64_t out) {
  zb_json_object(j, "usage");
  zb_json_count(j, "input_tokens", in);
  zb_json_count(j, "output_tokens", out);
  zb_json_end(j);
}

/* ---- events: a name, and an object with its type ------------------------------------------------------------------------ */
static void begin_event(ZbText *out, ZbJson *j, const char *type) {
  zb_text_add(out, "event: %s\ndata: ", type);
  *j = (ZbJson){.text = out};
  zb_json_object(j, NULL);
  zb_json_string(j, "type", type);
}

static void end_event(ZbJson *j) {
  zb_json_end(j);
  zb_text_put(j->text, "\n\n", 2);
}

static void begin_message(ZxServer *s, ZbText *out, ZxPart *p, const ZxNew *new) {
  ZbJson j;
  p->sent[0].begun = true;
  begin_event(out, &j, "message_start");
  put_head(s, &j, "message", p->job);
  zb_json_end(&j);
  zb_json_null(&j, "stop_reason");
  zb_json_null(&j, "stop_sequence");
  put_usage(&j, new->answer->nprompt, 0);
  zb_json_end(&j);
  end_event(&j);
}

static void end_block(ZbText *out, ZxSent *sent) {
  ZbJson j;
  begin_event(out, &j, "content_block_stop");
  zb_json_count(&j, "index", sent->blocks - 1);
  end_event(&j);
  sent->open = false;
}

static void put_delta(ZbText *out, const ZxSent *sent, const char *type, const char *key, const char *text,
                      size_t n) {
  ZbJson j;
  begin_event(out, &j, "content_block_delta");
  zb_json_count(&j, "index", sent->blocks - 1);
  zb_json_object(&j, "delta");
  zb_json_string(&j, "type", type);
  zb_json_string_n(&j, key, text, n);
  zb_json_end(&j);
  end_event(&j);
}

static void begin_text(ZbText *out, ZxSent *sent) {
  ZbJson j;
  begin_event(out, &j, "content_block_start");
  zb_json_count(&j, "index", sent->blocks++);
  zb_json_object(&j, "content_block");
  zb_json_string(&j, "type", "text");
  zb_json_string(&j, "text", "");
  zb_json_end(&j);
  end_event(&j);
  sent->open = true;
}

/* Writes the head of a call as an object of its own. */
static void put_call(ZbJson *j, const char *key, const ZxPart *p, const ZxNew *new, uint32_t i) {
  char id[64];
  zb_json_object(j, key);
  zb_json_string(j, "type", "tool_use");
  zb_json_string(j, "id", zx_call_id(p, new, i, id));
  zb_json_string_n(j, "name", new->all + new->call[i].name, new->call[i].nname);
}

static void call_events(ZbText *out, const ZxPart *p, const ZxNew *new, uint32_t i, ZxSent *sent) {
  ZbJson j;
  begin_event(out, &j, "content_block_start");
  zb_json_count(&j, "index", sent->blocks++);
  put_call(&j, "content_block", p, new, i);
  zb_json_object(&j, "input");
  zb_json_end(&j);
  zb_json_end(&j);
  end_event(&j);
  put_delta(out, sent, "input_json_delta", "partial_json", new->all + new->call[i].arguments,
            new->call[i].narguments);
  end_block(out, sent);
}

static void event(ZxServer *s, ZbText *out, ZxPart *p, const ZxNew *new) {
  ZxSent *sent = &p->sent[0];
  ZbJson j;
  if (!sent->begun) begin_message(s, out, p, new);
  if (new->n) {
    if (!sent->open) begin_text(out, sent);
    put_delta(out, sent, "text_delta", "text", new->text, new->n);
  }
  if (sent->open && (new->ncalls || new->finish)) end_block(out, sent);
  for (uint32_t i = 0; i < new->ncalls; i++) call_events(out, p, new, i, sent);
  if (!new->finish) return;
  begin_event(out, &j, "message_delta");
  zb_json_object(&j, "delta");
  put_reason(&j, p, new);
  zb_json_end(&j);
  put_usage(&j, new->answer->nprompt, new->answer->n - new->answer->nprompt);
  end_event(&j);
}

static void last(ZxServer *s, ZbText *out, ZxJob *job) {
  ZbJson j;
  (void)s, (void)job;
  begin_event(out, &j, "message_stop");
  end_event(&j);
}

static void broken(ZbText *out, const ZxRefusal *r) {
  zb_text_add(out, "event: error\ndata: ");
  error(out, r);
  zb_text_put(out, "\n\n", 2);
}

/* ---- whole: the only choice is the message ------------------------------------------------------------------------------- */
static void choice(ZxServer *s, ZbJson *j, ZxPart *p, const ZxNew *new) {
  put_head(s, j, NULL, p->job);
  if (new->n) {
    zb_json_object(j, NULL);
    zb_json_string(j, "type", "text");
    zb_json_string_n(j, "text", new->text, new->n);
    zb_json_end(j);
  }
  for (uint32_t i = 0; i < new->ncalls; i++) {
    put_call(j, NULL, p, new, i);
    zb_json_raw(j, "input", "%.*s", (int)new->call[i].narguments, new->all + new->call[i].arguments);
    zb_json_end(j);
  }
  zb_json_end(j);
  put_reason(j, p, new);
  put_usage(j, new->answer->nprompt, new->answer->n - new->answer->nprompt);
  zb_json_end(j);
}

static void whole(ZxServer *s, ZbText *out, ZxJob *job) {
  (void)s;
  zb_text_put(out, job->part[0].choices.s, job->part[0].choices.len);
}

const ZxApi zx_api_messages = {event, last, broken, choice, whole, error};

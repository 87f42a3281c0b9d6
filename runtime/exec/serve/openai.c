/* OpenAI's API: /v1/completions and /v1/chat/completions as JSON. */
#include "runtime/exec/serve/room.h"

#include <string.h>

/* ---- errors ------------------------------------------------------------------------------------------------- */
static const char *type_of(int status) {
  return status == 401   ? "authentication_error"
         : status == 404 ? "not_found_error"
         : status == 429 ? "rate_limit_error"
         : status >= 500 ? "server_error"
                         : "invalid_request_error";
}

static void put_error(ZbJson *j, const ZxRefusal *r) {
  ZbText t = zx_refusal_text(r);
  zb_json_object(j, "error");
  zb_json_string(j, "message", t.s);
  zb_json_string(j, "type", type_of(r->status));
  if (*r->param) zb_json_string(j, "param", r->param);
  else zb_json_null(j, "param");
  zb_json_int(j, "code", r->status);
  zb_json_end(j);
  zb_text_free(&t);
}

static void error(ZbText *out, const ZxRefusal *r) {
  ZbJson j = {.text = out};
  zb_json_object(&j, NULL);
  put_error(&j, r);
  zb_json_end(&j);
}

/* ---- what all replies have --------------------------------------------------------------------------------------- */
static void put_ids(ZbJson *j, const char *key, const uint32_t *id, uint32_t n) {
  zb_json_list(j, key);
  for (uint32_t i = 0; i < n; i++) zb_json_count(j, NULL, id[i]);
  zb_json_end(j);
}

static void put_head(const ZxServer *s, ZbJson *j, const ZxJob *job) {
  static const char *const object[][2] = {[ZX_COMPLETION] = {"text_completion", "text_completion"},
                                          [ZX_CHAT] = {"chat.completion", "chat.completion.chunk"}};
  zb_json_object(j, NULL);
  zb_json_string(j, "id", job->id);
  zb_json_string(j, "object", object[job->form][job->stream]);
  zb_json_int(j, "created", job->created);
  zb_json_string(j, "model", zx_model_name(s, job));
}

static void put_usage(ZbJson *j, const ZxJob *job) {
  zb_json_object(j, "usage");
  zb_json_count(j, "prompt_tokens", job->prompt_tokens);
  zb_json_count(j, "completion_tokens", job->answer_tokens);
  zb_json_count(j, "total_tokens", job->prompt_tokens + job->answer_tokens);
  zb_json_object(j, "prompt_tokens_details");
  zb_json_count(j, "cached_tokens", job->cached_tokens);
  zb_json_end(j);
  zb_json_end(j);
}

static uint32_t index_of(const ZxPart *p, uint32_t choice) {
  return p->index * (uint32_t)p->query.choices + choice;
}

/* Writes the log-probabilities of the tokens that were not sent yet. */
static void put_logprobs(const ZxServer *s, ZbJson *j, ZxPart *p, const ZxAnswer *x) {
  ZxSent *sent = &p->sent[x->choice];
  if (p->query.logprobs == ZX_UNSAID) {
    zb_json_null(j, "logprobs");
    return;
  }
  if (!sent->begun) sent->tokens = p->query.echo ? 0 : x->nprompt;
  if (p->job->form == ZX_CHAT) zx_put_chat_logprobs(s->how->words, j, x, sent->tokens);
  else sent->offset = zx_put_logprobs(s->how->words, j, x, sent->tokens, sent->offset);
  sent->tokens = x->n;
}

static void put_calls(ZbJson *j, const ZxPart *p, const ZxNew *new) {
  zb_json_list(j, "tool_calls");
  for (uint32_t i = 0; i < new->ncalls; i++) {
    const ZxCall *c = &new->call[i];
    char id[64];
    zb_json_object(j, NULL);
    if (p->job->stream) zb_json_count(j, "index", new->first_call + i);
    zb_json_string(j, "id", zx_call_id(p, new, i, id));
    zb_json_string(j, "type", "function");
    zb_json_object(j, "function");
    zb_json_string_n(j, "name", new->all + c->name, c->nname);
    zb_json_string_n(j, "arguments", new->all + c->arguments, c->narguments);
    zb_json_end(j);
    zb_json_end(j);
  }
  zb_json_end(j);
}

/* ---- events --------------------------------------------------------------------------------------------------- */
static void put_event(ZbText *out, const ZbText *json) {
  zb_text_put(out, "data: ", 6);
  zb_text_put(out, json->s, json->len);
  zb_text_put(out, "\n\n", 2);
}

static void event(ZxServer *s, ZbText *out, ZxPart *p, const ZxNew *new) {
  ZbText t = {0};
  ZbJson j = {.text = &t};
  ZxSent *sent = &p->sent[new->answer->choice];
  put_head(s, &j, p->job);
  zb_json_list(&j, "choices");
  zb_json_object(&j, NULL);
  zb_json_count(&j, "index", index_of(p, new->answer->choice));
  if (p->job->form == ZX_CHAT) {
    zb_json_object(&j, "delta");
    if (!sent->begun) zb_json_string(&j, "role", "assistant");
    if (new->n || !sent->begun) zb_json_string_n(&j, "content", new->text, new->n);
    if (new->ncalls) put_calls(&j, p, new);
    zb_json_end(&j);
  } else zb_json_string_n(&j, "text", new->text, new->n);
  put_logprobs(s, &j, p, new->answer);
  if (p->job->ids && !sent->begun) put_ids(&j, "prompt_token_ids", new->answer->id, new->answer->nprompt);
  if (new->finish) zb_json_string(&j, "finish_reason", new->finish);
  else zb_json_null(&j, "finish_reason");
  zb_json_end(&j);
  zb_json_end(&j);
  zb_json_end(&j);
  sent->begun = true;
  put_event(out, &t);
  zb_text_free(&t);
}

static void last(ZxServer *s, ZbText *out, ZxJob *job) {
  ZbText t = {0};
  ZbJson j = {.text = &t};
  if (job->usage) {
    put_head(s, &j, job);
    zb_json_list(&j, "choices");
    zb_json_end(&j);
    put_usage(&j, job);
    zb_json_end(&j);
    put_event(out, &t);
  }
  zb_text_add(out, "data: [DONE]\n\n");
  zb_text_free(&t);
}

static void broken(ZbText *out, const ZxRefusal *r) {
  ZbText t = {0};
  error(&t, r);
  put_event(out, &t);
  zb_text_add(out, "data: [DONE]\n\n");
  zb_text_free(&t);
}

/* ---- whole answers ---------------------------------------------------------------------------------------------- */
static void choice(ZxServer *s, ZbJson *j, ZxPart *p, const ZxNew *new) {
  const ZxAnswer *x = new->answer;
  zb_json_object(j, NULL);
  zb_json_count(j, "index", index_of(p, x->choice));
  if (p->job->form == ZX_CHAT) {
    zb_json_object(j, "message");
    zb_json_string(j, "role", "assistant");
    if (!new->n &&new->ncalls) zb_json_null(j, "content");
    else zb_json_string_n(j, "content", new->text, new->n);
    if (new->ncalls) put_calls(j, p, new);
    zb_json_end(j);
  } else zb_json_string_n(j, "text", new->text, new->n);
  put_logprobs(s, j, p, x);
  zb_json_string(j, "finish_reason", new->finish);
  if (p->job->ids) {
    put_ids(j, "prompt_token_ids", x->id, x->nprompt);
    put_ids(j, "token_ids", x->id + x->nprompt, x->n - x->nprompt);
  }
  zb_json_end(j);
}

/* Joins the choices of all parts, in their order. */
static void whole(ZxServer *s, ZbText *out, ZxJob *job) {
  ZbJson j = {.text = out};
  ZbText all = {0};
  put_head(s, &j, job);
  for (uint32_t i = 0; i < job->nparts; i++) zb_text_add(&all, "%s%s", i ? "," : "", job->part[i].choices.s);
  zb_json_raw(&j, "choices", "[%s]", all.s);
  zb_text_free(&all);
  put_usage(&j, job);
  zb_json_end(&j);
}

const ZxApi zx_api_completions = {event, last, broken, choice, whole, error};
const ZxApi zx_api_chat = {event, last, broken, choice, whole, error};

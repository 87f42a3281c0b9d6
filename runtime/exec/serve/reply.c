/* Replies: texts and answers as the JSON of OpenAI's API, whole or in events. */
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
  ZbText t = {0};
  zb_text_add(&t, "%s%s%s", r->err.text, *r->err.help ? "; " : "", r->err.help);
  zb_json_object(j, "error");
  zb_json_string(j, "message", t.s);
  zb_json_string(j, "type", type_of(r->status));
  if (*r->param) zb_json_string(j, "param", r->param);
  else zb_json_null(j, "param");
  zb_json_int(j, "code", r->status);
  zb_json_end(j);
  zb_text_free(&t);
}

void zx_reply_error(ZbText *out, const ZxRefusal *r) {
  ZbJson j = {.text = out};
  zb_json_object(&j, NULL);
  put_error(&j, r);
  zb_json_end(&j);
}

/* ---- tokens ------------------------------------------------------------------------------------------------- */
/* Appends the bytes that a token stands for. */
static void bytes_of(const ZxWords *w, uint32_t id, ZbText *out) {
  zb_text_put(out, "", 0);
  zt_decode(w->coder, &id, 1, 0, out, NULL);
}

/* Appends a name by which clients tell tokens apart: the text; where that is not UTF-8 its bytes, `bytes:\xf0\x9f`. */
static void name_of(const ZxWords *w, uint32_t id, ZbText *out) {
  ZbText b = {0};
  bytes_of(w, id, &b);
  if (zt_utf8_valid(b.s, b.len) == b.len && !memchr(b.s, 0, b.len)) zb_text_put(out, b.s, b.len);
  else {
    zb_text_add(out, "bytes:");
    for (size_t i = 0; i < b.len; i++) zb_text_add(out, "\\x%02x", (uint8_t)b.s[i]);
  }
  zb_text_free(&b);
}

static uint64_t characters(const char *s, size_t n) {
  uint64_t all = 0;
  for (size_t i = 0; i < n; i++) all += ((uint8_t)s[i] & 0xc0) != 0x80;
  return all;
}

/* ---- log-probabilities ---------------------------------------------------------------------------------------- */
/* Returns what is known of a token; NULL: it is the first of a prompt. */
static const ZxChoice *known(const ZxAnswer *x, uint32_t i) {
  return i >= x->first ? &x->logprob[i - x->first] : NULL;
}

/* Writes the most likely tokens as an object. Of two with one name the second is named by its id: none is lost. */
static void put_top(const ZxWords *w, ZbJson *j, const ZxChoice *c) {
  ZbText names = {0}, name = {0};
  zb_json_object(j, NULL);
  for (uint32_t k = 0; k < c->ntop; k++) {
    name.len = 0;
    name_of(w, c->top[k].id, &name);
    bool twice = false;
    for (size_t at = 0; at < names.len; at += strlen(names.s + at) + 1)
      twice |= !strcmp(names.s + at, name.s ? name.s : "");
    if (twice) {
      name.len = 0;
      zb_text_add(&name, "token_id:%u", c->top[k].id);
    }
    zb_text_put(&names, name.s ? name.s : "", name.len + 1);
    zb_json_key(j, "%s", name.s ? name.s : "");
    zb_json_number(j, NULL, c->top[k].logprob);
  }
  zb_json_end(j);
  zb_text_free(&names);
  zb_text_free(&name);
}

/* Writes the log-probabilities of tokens from .. to - 1 as /v1/completions has them; `offset`: the characters before
 * them. Returns those behind them. */
static uint64_t put_lists(const ZxWords *w, ZbJson *j, const ZxAnswer *x, uint32_t from, uint32_t to,
                          uint64_t offset) {
  ZbText t = {0};
  zb_json_object(j, "logprobs");
  zb_json_list(j, "tokens");
  for (uint32_t i = from; i < to; i++) {
    t.len = 0;
    name_of(w, x->id[i], &t);
    zb_json_string(j, NULL, t.s ? t.s : "");
  }
  zb_json_end(j);
  zb_json_list(j, "token_logprobs");
  for (uint32_t i = from; i < to; i++)
    if (known(x, i)) zb_json_number(j, NULL, known(x, i)->logprob);
    else zb_json_null(j, NULL);
  zb_json_end(j);
  zb_json_list(j, "top_logprobs");
  for (uint32_t i = from; i < to; i++)
    if (known(x, i)) put_top(w, j, known(x, i));
    else zb_json_null(j, NULL);
  zb_json_end(j);
  zb_json_list(j, "text_offset");
  for (uint32_t i = from; i < to; i++) {
    zb_json_count(j, NULL, offset);
    t.len = 0;
    bytes_of(w, x->id[i], &t);
    offset += characters(t.s, t.len);
  }
  zb_json_end(j);
  zb_json_end(j);
  zb_text_free(&t);
  return offset;
}

static void put_token(const ZxWords *w, ZbJson *j, uint32_t id, double logprob) {
  ZbText t = {0};
  zb_json_object(j, NULL);
  name_of(w, id, &t);
  zb_json_string(j, "token", t.s ? t.s : "");
  zb_json_number(j, "logprob", logprob);
  t.len = 0;
  bytes_of(w, id, &t);
  zb_json_list(j, "bytes");
  for (size_t i = 0; i < t.len; i++) zb_json_count(j, NULL, (uint8_t)t.s[i]);
  zb_json_end(j);
  zb_text_free(&t);
}

/* Writes the same as a chat has them. */
static void put_content(const ZxWords *w, ZbJson *j, const ZxAnswer *x, uint32_t from, uint32_t to) {
  zb_json_object(j, "logprobs");
  zb_json_list(j, "content");
  for (uint32_t i = from; i < to; i++) {
    const ZxChoice *c = known(x, i);
    if (!c) continue;
    put_token(w, j, x->id[i], c->logprob);
    zb_json_list(j, "top_logprobs");
    for (uint32_t k = 0; k < c->ntop; k++) {
      put_token(w, j, c->top[k].id, c->top[k].logprob);
      zb_json_end(j);
    }
    zb_json_end(j);
    zb_json_end(j);
  }
  zb_json_end(j);
  zb_json_end(j);
}

static void put_logprobs(const ZxServer *s, ZbJson *j, ZxPart *p, const ZxAnswer *x, uint32_t to) {
  ZxSent *sent = &p->sent[x->choice];
  if (p->query.logprobs == ZX_UNSAID) {
    zb_json_null(j, "logprobs");
    return;
  }
  if (!sent->begun) sent->tokens = p->query.echo ? 0 : x->nprompt;
  if (p->job->form == ZX_CHAT) put_content(s->how->words, j, x, sent->tokens, to);
  else sent->offset = put_lists(s->how->words, j, x, sent->tokens, to, sent->offset);
  sent->tokens = to;
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
  zb_json_string(j, "model", s->how->name);
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

static const char *finish_of(const ZxAnswer *x) {
  return strcmp(x->finish, "cancelled") ? x->finish : "abort";
}

/* ---- events --------------------------------------------------------------------------------------------------- */
static void send_event(ZxServer *s, ZxJob *job, ZbText *t, bool done) {
  ZbText all = {0};
  if (t->len) {
    zb_text_put(&all, "data: ", 6);
    zb_text_put(&all, t->s, t->len);
    zb_text_put(&all, "\n\n", 2);
  }
  if (done) zb_text_add(&all, "data: [DONE]\n\n");
  zx_job_send(s, job, all.s ? all.s : "", all.len, done);
  zb_text_free(&all);
  zb_text_free(t);
}

/* Writes an event of a choice, with its text[0..n); `x` has its tokens so far, and as the last one why it ended. */
static void choice_event(ZxServer *s, ZxPart *p, const ZxAnswer *x, const char *text, size_t n, bool ends) {
  ZbText t = {0};
  ZbJson j = {.text = &t};
  ZxSent *sent = &p->sent[x->choice];
  put_head(s, &j, p->job);
  zb_json_list(&j, "choices");
  zb_json_object(&j, NULL);
  zb_json_count(&j, "index", index_of(p, x->choice));
  if (p->job->form == ZX_CHAT) {
    zb_json_object(&j, "delta");
    if (!sent->begun) zb_json_string(&j, "role", "assistant");
    if (n || !sent->begun) zb_json_string_n(&j, "content", text, n);
    zb_json_end(&j);
  } else zb_json_string_n(&j, "text", text, n);
  put_logprobs(s, &j, p, x, x->n);
  if (p->job->ids && !sent->begun) put_ids(&j, "prompt_token_ids", x->id, x->nprompt);
  if (ends) zb_json_string(&j, "finish_reason", finish_of(x));
  else zb_json_null(&j, "finish_reason");
  zb_json_end(&j);
  zb_json_end(&j);
  zb_json_end(&j);
  sent->begun = true;
  send_event(s, p->job, &t, false);
}

void zx_reply_piece(ZxServer *s, const ZxAnswers *x, ZxPart *p, uint32_t choice, const char *text, size_t n) {
  ZxAnswer so_far;
  if (p->job->stream && zx_answers_so_far(x, (uintptr_t)p, choice, &so_far))
    choice_event(s, p, &so_far, text, n, false);
}

static void end_events(ZxServer *s, ZxJob *job) {
  ZbText t = {0};
  ZbJson j = {.text = &t};
  if (job->usage) {
    put_head(s, &j, job);
    zb_json_list(&j, "choices");
    zb_json_end(&j);
    put_usage(&j, job);
    zb_json_end(&j);
  }
  send_event(s, job, &t, true);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */
static void put_choice(ZxServer *s, ZbJson *j, ZxPart *p, const ZxAnswer *x) {
  zb_json_object(j, NULL);
  zb_json_count(j, "index", index_of(p, x->choice));
  if (p->job->form == ZX_CHAT) {
    zb_json_object(j, "message");
    zb_json_string(j, "role", "assistant");
    zb_json_string_n(j, "content", x->text, x->length);
    zb_json_end(j);
  } else zb_json_string_n(j, "text", x->text, x->length);
  put_logprobs(s, j, p, x, x->n);
  zb_json_string(j, "finish_reason", finish_of(x));
  if (p->job->ids) {
    put_ids(j, "prompt_token_ids", x->id, x->nprompt);
    put_ids(j, "token_ids", x->id + x->nprompt, x->n - x->nprompt);
  }
  zb_json_end(j);
}

/* Joins the choices of all parts, in their order. */
static void whole(ZxServer *s, ZxJob *job) {
  ZbText t = {0};
  ZbJson j = {.text = &t};
  put_head(s, &j, job);
  zb_json_key(&j, "choices");
  for (uint32_t i = 0; i < job->nparts; i++) zb_text_add(&t, "%c%s", i ? ',' : '[', job->part[i].choices.s);
  zb_text_add(&t, "]");
  j.keyed = false, j.more = true;
  put_usage(&j, job);
  zb_json_end(&j);
  zx_job_answer(s, job, 200, &t);
  zb_text_free(&t);
}

void zx_reply_answered(ZxServer *s, ZxPart *p, const ZxAnswered *q) {
  ZxJob *job = p->job;
  ZbText t = {0};
  ZbJson j = {.text = &t};
  p->answered = true;
  job->answered++;
  job->prompt_tokens += q->prompt_tokens;
  job->cached_tokens += q->cached;
  for (uint32_t c = 0; c < (uint32_t)p->query.choices; c++)
    job->answer_tokens += q->answer[c].n - q->answer[c].nprompt;
  if (job->done) return; /* only the main thread sets it */
  if (q->broken) {
    ZxRefusal r = {.status = 500, .err = *q->broken};
    zx_reply_broken(s, job, &r);
    return;
  }
  for (uint32_t c = 0; c < (uint32_t)p->query.choices; c++) {
    if (job->stream) choice_event(s, p, &q->answer[c], "", 0, true);
    else {
      if (c) zb_text_put(&t, ",", 1);
      j = (ZbJson){.text = &t};
      put_choice(s, &j, p, &q->answer[c]);
    }
  }
  p->choices = t;
  if (job->answered < job->nparts) return;
  if (job->stream) end_events(s, job);
  else whole(s, job);
}

void zx_reply_broken(ZxServer *s, ZxJob *job, const ZxRefusal *r) {
  ZbText t = {0};
  zx_reply_error(&t, r);
  if (job->stream) send_event(s, job, &t, true);
  else {
    zx_job_answer(s, job, r->status, &t);
    zb_text_free(&t);
  }
}

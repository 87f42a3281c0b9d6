/* Replies: what becomes of pieces of text and of answers, in events and whole. How they look as JSON is the API's:
 * openai.c, messages.c. */
#include "runtime/exec/serve/room.h"

#include <string.h>

static const ZxApi *const apis[] = {
    [ZX_COMPLETION] = &zx_api_completions, [ZX_CHAT] = &zx_api_chat, [ZX_MESSAGE] = &zx_api_messages};

void zx_reply_error(ZbText *out, ZxForm form, const ZxRefusal *r) { apis[form]->error(out, r); }

/* ---- what is new -------------------------------------------------------------------------------------------------- */
static const char *finish_of(const ZxPart *p, const ZxAnswer *x) {
  uint32_t calls = p->sent[x->choice].calls;
  if (p->job->called) return "tool_calls";
  if (!x->finish || !strcmp(x->finish, "cancelled")) return "abort";
  return calls && !strcmp(x->finish, "stop") ? "tool_calls" : x->finish;
}

/* Finds what of a choice was not sent yet: its piece text[0..n), or with tools what of its whole text is content and
 * calls. `ends`: no more comes. What is found is counted as sent. */
static void find_new(ZxPart *p, const ZxAnswer *x, const char *text, size_t n, bool ends, ZxCalls *calls,
                     ZxNew *to) {
  ZxSent *sent = &p->sent[x->choice];
  *to = (ZxNew){.answer = x, .text = text, .n = n, .all = x->text};
  if (p->job->tools) {
    zx_calls_read(x->text, x->length, ends, p->job->one_call ? 1 : ZX_CALLS, calls);
    to->text = (calls->content.s ? calls->content.s : "") + sent->content;
    to->n = calls->content.len - sent->content;
    to->call = calls->call + sent->calls;
    to->first_call = sent->calls;
    to->ncalls = calls->ncalls - sent->calls;
    sent->content = calls->content.len;
    sent->calls = calls->ncalls;
  }
  if (ends) to->finish = finish_of(p, x);
}

/* ---- pieces -------------------------------------------------------------------------------------------------------- */
static void send_new(ZxServer *s, ZxPart *p, const ZxAnswer *x, const char *text, size_t n, bool ends) {
  ZxCalls calls = {0};
  ZxNew new;
  ZbText t = {0};
  find_new(p, x, text, n, ends, &calls, &new);
  if (ends || new.n || new.ncalls) apis[p->job->form]->event(s, &t, p, &new);
  if (t.len) zx_job_send(s, p->job, t.s, t.len, false);
  zb_text_free(&t);
  zb_text_free(&calls.content);
}

static bool has_call(const ZxAnswer *x) {
  ZxCalls calls;
  zx_calls_read(x->text, x->length, false, 1, &calls);
  zb_text_free(&calls.content);
  return calls.ncalls > 0;
}

void zx_reply_piece(ZxServer *s, ZxPart *p, uint32_t choice, const char *text, size_t n) {
  const ZxAnswer *x = &p->copy[choice].is;
  ZxJob *job = p->job;
  if (job->stream) send_new(s, p, x, text, n, false);
  if (job->one_call && p->query.choices == 1) job->called = has_call(x);
}

/* ---- answers ------------------------------------------------------------------------------------------------------- */
static void add_choice(ZxServer *s, ZxPart *p, const ZxAnswer *x) {
  ZxCalls calls = {0};
  ZxNew new;
  ZbJson j = {.text = &p->choices};
  find_new(p, x, x->text, x->length, true, &calls, &new);
  if (x->choice) zb_text_put(&p->choices, ",", 1);
  apis[p->job->form]->choice(s, &j, p, &new);
  zb_text_free(&calls.content);
}

static void end_job(ZxServer *s, ZxJob *job) {
  ZbText t = {0};
  if (job->stream) {
    apis[job->form]->last(s, &t, job);
    zx_job_send(s, job, t.s ? t.s : "", t.len, true);
  } else {
    apis[job->form]->whole(s, &t, job);
    zx_job_answer(s, job, 200, &t);
  }
  zb_text_free(&t);
}

void zx_reply_answered(ZxServer *s, ZxPart *p) {
  ZxJob *job = p->job;
  uint32_t n = (uint32_t)p->query.choices;
  for (uint32_t c = 0; c < n; c++) job->answer_tokens += p->copy[c].is.n - p->copy[c].is.nprompt;
  if (job->done) return; /* only the main thread sets it */
  for (uint32_t c = 0; c < n; c++)
    if (job->stream) send_new(s, p, &p->copy[c].is, "", 0, true);
    else add_choice(s, p, &p->copy[c].is);
  if (job->answered == job->nparts) end_job(s, job);
}

void zx_reply_ended(ZbText *out, const ZxJob *job, const ZxRefusal *r) {
  (job->stream ? apis[job->form]->broken : apis[job->form]->error)(out, r);
}

void zx_reply_broken(ZxServer *s, ZxJob *job, const ZxRefusal *r) {
  ZbText t = {0};
  zx_reply_ended(&t, job, r);
  zx_job_answer(s, job, job->stream ? 200 : r->status, &t);
  zb_text_free(&t);
}

/* Jobs: requests on their way from a thread of the HTTP library to the main thread, and what is sent back. */
#include "runtime/exec/serve/room.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

bool zx_refuse(ZxRefusal *r, int status, const char *param, const char *help, const char *fmt, ...) {
  char text[sizeof r->err.text];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  zb_fail(&r->err, help, "%s", text);
  r->status = status;
  snprintf(r->param, sizeof r->param, "%s", param ? param : "");
  return false;
}

ZbText zx_refusal_text(const ZxRefusal *r) {
  ZbText t = {0};
  zb_text_add(&t, "%s%s%s", r->err.text, *r->err.help ? "; " : "", r->err.help);
  return t;
}

bool zx_refuse_field(ZxRefusal *r, const char *param) {
  r->status = 400;
  snprintf(r->param, sizeof r->param, "%s", param ? param : "");
  return false;
}

/* ---- coders ------------------------------------------------------------------------------------------------- */
ZtCoder *zx_coder(ZxServer *s) {
  pthread_mutex_lock(&s->lock);
  ZtCoder *c = s->nspare ? s->spare[--s->nspare] : NULL;
  pthread_mutex_unlock(&s->lock);
  return c ? c : zt_coder_new(s->how->words->t);
}

void zx_coder_back(ZxServer *s, ZtCoder *c) {
  pthread_mutex_lock(&s->lock);
  bool kept = s->nspare < sizeof s->spare / sizeof *s->spare;
  if (kept) s->spare[s->nspare++] = c;
  pthread_mutex_unlock(&s->lock);
  if (!kept) zt_coder_free(c);
}

/* ---- jobs --------------------------------------------------------------------------------------------------- */
ZxJob *zx_job_new(ZxForm form) {
  static const char *const begin[] = {
      [ZX_COMPLETION] = "cmpl-", [ZX_CHAT] = "chatcmpl-", [ZX_MESSAGE] = "msg_"};
  uint64_t random[2] = {0};
  ZbArena *a = zb_arena_new();
  ZxJob *j = ZB_NEW(a, ZxJob);
  if (getrandom(random, sizeof random, GRND_NONBLOCK) < 0) random[0] = (uint64_t)(zb_now() * 1e9);
  *j = (ZxJob){.a = a,
               .form = form,
               .created = time(NULL),
               .came = zb_now(),
               .status = 200,
               .socket = -1,
               .holders = 1};
  snprintf(j->id, sizeof j->id, "%s%016llx%08llx", begin[form], (unsigned long long)random[0],
           (unsigned long long)(random[1] & 0xffffffff));
  return j;
}

void zx_job_release(ZxServer *s, ZxJob *j) {
  pthread_mutex_lock(&s->lock);
  bool last = --j->holders == 0;
  pthread_mutex_unlock(&s->lock);
  if (!last) return;
  for (uint32_t i = 0; i < j->nparts; i++) {
    ZxPart *p = &j->part[i];
    zb_text_free(&p->choices);
    for (uint32_t c = 0; p->copy && c < (uint32_t)p->query.choices; c++) zx_copy_free(&p->copy[c]);
  }
  zb_text_free(&j->out);
  zb_arena_free(j->a);
}

const char *zx_call_id(const ZxPart *p, const ZxNew *new, uint32_t nth, char out[64]) {
  const char *id = p->job->id + strcspn(p->job->id, "-_");
  snprintf(out, 64, "call_%.24s_%u_%u", id + 1, new->answer->choice, new->first_call + nth);
  return out;
}

bool zx_job_submit(ZxServer *s, ZxJob *j, ZxRefusal *r) {
  pthread_mutex_lock(&s->lock);
  bool serves = s->state == ZX_SERVES, room = s->njobs < s->how->queue;
  uint32_t n = s->njobs;
  if (serves && room) {
    *s->inbox_end = j;
    s->inbox_end = &j->next;
    s->njobs++;
    j->open_next = s->open;
    if (s->open) s->open->open_at = &j->open_next;
    s->open = j;
    j->open_at = &s->open;
    j->holders++;
    pthread_cond_signal(&s->came);
  } else s->metrics.requests[1]++;
  pthread_mutex_unlock(&s->lock);
  if (!serves) return zx_refuse(r, 503, NULL, "try again later", "the server does not take requests now");
  return room || zx_refuse(r, 429, NULL, "try again later", "%u requests are under way", n);
}

void zx_job_forget(ZxJob *j) {
  j->gone = true;
  zx_connection_wake(j);
}

void zx_job_send(ZxServer *s, ZxJob *j, const char *text, size_t n, bool done) {
  pthread_mutex_lock(&s->lock);
  if (!j->gone && !j->done) {
    zb_text_put(&j->out, text, n);
    j->done = done;
    zx_connection_wake(j);
  }
  pthread_mutex_unlock(&s->lock);
}

void zx_server_fail(ZxServer *s, const char *why) {
  pthread_mutex_lock(&s->lock);
  s->failed = why;
  s->state = ZX_DRAINS;
  for (ZxJob *j = s->open; j; j = j->open_next) zx_connection_wake(j);
  pthread_mutex_unlock(&s->lock);
}

void zx_job_answer(ZxServer *s, ZxJob *j, int status, const ZbText *body) {
  pthread_mutex_lock(&s->lock);
  j->status = status;
  pthread_mutex_unlock(&s->lock);
  zx_job_send(s, j, body->s ? body->s : "", body->len, true);
}

const char *zx_model_name(const ZxServer *s, const ZxJob *job) {
  uint32_t adapter = job->nparts ? job->part->query.adapter : 0;
  return adapter < s->how->adapters.n ? s->how->adapters.s[adapter] : s->how->name;
}

/* What the main thread does between two steps. */
#include "runtime/exec/serve/room.h"

#include <errno.h>
#include <sys/socket.h>
#include <time.h>

#define LOOK_EVERY 0.02 /* seconds between looks at who has left */

static ZxPart *part_of(uint64_t number) { return (ZxPart *)(uintptr_t)number; }

void zx_server_piece(void *ctx, uint64_t number, uint32_t choice, const char *text, size_t n) {
  ZxServer *s = ctx;
  ZxPart *p = part_of(number);
  double now = zb_now();
  pthread_mutex_lock(&s->lock);
  if (!p->job->first) zx_histogram_add(&s->metrics.first, now - p->job->came);
  else zx_histogram_add(&s->metrics.between, now - p->job->last);
  pthread_mutex_unlock(&s->lock);
  if (!p->job->first) p->job->first = now;
  p->job->last = now;
  zx_reply_piece(s, s->answers, p, choice, text, n);
}

/* ---- coming and going ------------------------------------------------------------------------------------------ */
/* Takes what came, in its order. */
static void take_inbox(ZxServer *s) {
  pthread_mutex_lock(&s->lock);
  if (s->inbox) {
    *s->last = s->inbox;
    s->last = s->inbox_end;
    s->inbox = NULL;
    s->inbox_end = &s->inbox;
  }
  pthread_mutex_unlock(&s->lock);
}

/* Says whether a client that waits has closed its connection. The library does not look at it. Under the lock. */
static bool has_left(const ZxJob *j) {
  char byte;
  if (!j->waits || j->socket < 0) return false;
  ssize_t n = recv(j->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

static void look_who_left(ZxServer *s) {
  double now = zb_now();
  if (now - s->looked < LOOK_EVERY) return;
  s->looked = now;
  pthread_mutex_lock(&s->lock);
  for (ZxJob *j = s->first; j; j = j->next)
    if (!j->done && !j->gone && has_left(j)) zx_job_forget(j);
  pthread_mutex_unlock(&s->lock);
}

static bool is_gone(ZxServer *s, ZxJob *j) {
  pthread_mutex_lock(&s->lock);
  bool gone = j->gone;
  pthread_mutex_unlock(&s->lock);
  return gone;
}

/* Takes a job off the list. */
static void take_out(ZxServer *s, ZxJob **at, int outcome) {
  ZxJob *j = *at;
  *at = j->next;
  if (!j->next) s->last = at;
  pthread_mutex_lock(&s->lock);
  s->njobs--;
  s->metrics.requests[outcome]++;
  if (outcome == 0) zx_histogram_add(&s->metrics.whole, zb_now() - j->came);
  pthread_mutex_unlock(&s->lock);
  zx_job_release(s, j);
}

/* Ends a part that is under way, on all ranks. */
static bool end_part(ZxServer *s, ZxPart *p, ZxAnswers *x, ZbErr *err) {
  if (!zx_answers_end(x, (uintptr_t)p, err)) return false;
  if (s->together) s->together->ended(s->together->ctx, (uintptr_t)p);
  return true;
}

/* Ends the parts of a job that are under way. */
static bool end_parts(ZxServer *s, ZxJob *j, ZxAnswers *x, ZbErr *err) {
  for (uint32_t i = 0; i < j->asked; i++)
    if (!j->part[i].answered && !end_part(s, &j->part[i], x, err)) return false;
  j->nparts = j->asked; /* the others are never asked */
  return true;
}

static bool too_long(const ZxServer *s, const ZxJob *j) {
  return s->how->limit > 0 && zb_now() - j->came > s->how->limit;
}

static bool end_some(ZxServer *s, ZxAnswers *x, ZbErr *err) {
  for (ZxJob *j = s->first; j; j = j->next) {
    if (!j->done && too_long(s, j)) {
      ZxRefusal r = {0};
      zx_refuse(&r, 504, NULL, "ask for less", "the request took longer than %g s", s->how->limit);
      zx_reply_broken(s, j, &r);
      if (!end_parts(s, j, x, err)) return false;
    } else if ((j->called || is_gone(s, j)) && !end_parts(s, j, x, err)) return false;
  }
  return true;
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */
/* Asks what there is room for, the oldest request first. */
static bool ask(ZxServer *s, ZxAnswers *x, ZbErr *err) {
  for (ZxJob *j = s->first; j; j = j->next)
    while (j->asked < j->nparts && !j->done && !is_gone(s, j)) {
      ZxPart *p = &j->part[j->asked];
      ZxRefusal r = {.status = 400};
      if (zx_answers_ask(x, &p->query, (uintptr_t)p, &r.err)) {
        j->asked++;
        if (s->together) s->together->asked(s->together->ctx, &p->query, (uintptr_t)p);
        continue;
      }
      if (r.err.passing) return true;
      zx_reply_broken(s, j, &r);
      if (!end_parts(s, j, x, err)) return false;
    }
  return true;
}

/* Hands out what is answered, and takes jobs off the list that are done. */
static void hand_out(ZxServer *s, ZxAnswers *x) {
  for (const ZxAnswered *q; (q = zx_answers_next(x));) zx_reply_answered(s, part_of(q->number), q);
  for (ZxJob **at = &s->first; *at;) {
    ZxJob *j = *at;
    if (j->answered < j->nparts) at = &j->next;
    else take_out(s, at, is_gone(s, j) ? 2 : j->status == 200 ? 0 : 1);
  }
}

/* Waits until something comes, a fifth of a second at most. */
static void wait_for_work(ZxServer *s) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += 200000000;
  if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
  pthread_mutex_lock(&s->lock);
  if (!s->inbox) pthread_cond_timedwait(&s->came, &s->lock, &until);
  pthread_mutex_unlock(&s->lock);
}

/* Tells other ranks what was asked, and that a step comes; now and then that none does. */
static void meet(ZxServer *s, bool step) {
  double now = zb_now();
  if (!s->together || (!step && now - s->met < 1)) return;
  s->met = now;
  s->together->meet(s->together->ctx, step);
}

static void tell_state(ZxServer *s, const ZxAnswers *x) {
  pthread_mutex_lock(&s->lock);
  s->served.of = zx_answers_counts(x);
  pthread_mutex_unlock(&s->lock);
}

bool zx_server_turn(ZxServer *s, ZxAnswers *x, ZbErr *err) {
  s->answers = x;
  take_inbox(s);
  look_who_left(s);
  if (!end_some(s, x, err) || !ask(s, x, err)) return false;
  bool idle = zx_answers_idle(x);
  meet(s, !idle);
  if (!idle && !(s->together ? s->together->step(s->together->ctx, x, err) : zx_answers_step(x, err)))
    return false;
  hand_out(s, x);
  tell_state(s, x);
  if (idle && !s->first) wait_for_work(s);
  return true;
}

void zx_server_abort(ZxServer *s, ZxAnswers *x, const char *why) {
  ZbErr err;
  take_inbox(s);
  for (ZxJob *j = s->first; j; j = j->next) {
    ZxRefusal r = {0};
    zx_refuse(&r, 503, NULL, "try again later", "%s", why);
    if (!j->done) zx_reply_broken(s, j, &r);
    if (x) end_parts(s, j, x, &err);
    else j->nparts = j->answered;
  }
  if (x) hand_out(s, x);
}

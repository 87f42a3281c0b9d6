/* What the main thread does between two steps. */
#include "runtime/exec/serve/room.h"

#include <errno.h>
#include <sys/socket.h>
#include <time.h>

#define LOOK_EVERY 0.02 /* seconds between looks at who has left */

static ZxPart *part_of(uint64_t number) { return (ZxPart *)(uintptr_t)number; }

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

/* Has the parts of a job ended that are under way. */
static void end_parts(ZxJob *j) {
  j->nparts = j->asked; /* the others are never asked */
  j->ends = true;
}

static bool too_long(const ZxServer *s, const ZxJob *j) {
  return s->how->limit > 0 && zb_now() - j->came > s->how->limit;
}

static void end_some(ZxServer *s) {
  for (ZxJob *j = s->first; j; j = j->next) {
    if (j->ends) continue;
    if (!j->done && too_long(s, j)) {
      ZxRefusal r = {0};
      zx_refuse(&r, 504, NULL, "ask for less", "the request took longer than %g s", s->how->limit);
      zx_reply_broken(s, j, &r);
      end_parts(j);
    } else if (j->called || is_gone(s, j)) end_parts(j);
  }
}

/* Takes jobs off the list that are done. */
static void sweep(ZxServer *s) {
  for (ZxJob **at = &s->first; *at;) {
    ZxJob *j = *at;
    if (j->answered < j->nparts) at = &j->next;
    else take_out(s, at, is_gone(s, j) ? 2 : j->status == 200 ? 0 : 1);
  }
}

void zx_server_look(ZxServer *s, const ZxCounts *counts) {
  pthread_mutex_lock(&s->lock);
  s->served.of = *counts;
  pthread_mutex_unlock(&s->lock);
  take_inbox(s);
  look_who_left(s);
  end_some(s);
  sweep(s);
}

void zx_server_wait(ZxServer *s) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += 200000000;
  if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
  pthread_mutex_lock(&s->lock);
  if (!s->inbox) pthread_cond_timedwait(&s->came, &s->lock, &until);
  pthread_mutex_unlock(&s->lock);
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */
/* Returns the next part that is to be asked, of the oldest request; NULL: there is none. */
static ZxPart *next_part(const ZxServer *s) {
  for (ZxJob *j = s->first; j; j = j->next)
    if (j->asked < j->nparts && !j->done) return &j->part[j->asked];
  return NULL;
}

const ZxQuery *zx_server_next(const ZxServer *s, uint64_t *number) {
  const ZxPart *p = next_part(s);
  *number = (uintptr_t)p;
  return p ? &p->query : NULL;
}

void zx_server_asked(ZxServer *s, uint32_t lane) {
  ZxPart *p = next_part(s);
  p->lane = lane;
  p->copy = ZB_NEWN(p->job->a, ZxCopy, p->query.choices);
  p->job->asked++;
}

bool zx_server_leaves(ZxServer *s, uint64_t *number, uint32_t *lane) {
  for (ZxJob *j = s->first; j; j = j->next)
    while (j->ends && j->ended < j->asked) {
      const ZxPart *p = &j->part[j->ended++];
      if (p->answered) continue;
      *number = (uintptr_t)p;
      *lane = p->lane;
      return true;
    }
  return false;
}

/* ---- what is written --------------------------------------------------------------------------------------------- */
static void count_piece(ZxServer *s, ZxJob *j) {
  double now = zb_now();
  pthread_mutex_lock(&s->lock);
  if (!j->first) zx_histogram_add(&s->metrics.first, now - j->came);
  else zx_histogram_add(&s->metrics.between, now - j->last);
  pthread_mutex_unlock(&s->lock);
  if (!j->first) j->first = now;
  j->last = now;
}

void zx_server_news(ZxServer *s, uint64_t number, uint32_t choice, const char *news, size_t n) {
  ZxPart *p = part_of(number);
  if (p->job->called) return; /* what follows the call is not of the answer */
  const char *text = zx_copy_take(&p->copy[choice], news, n, &n);
  if (!n) return;
  count_piece(s, p->job);
  zx_reply_piece(s, p, choice, text, n);
}

static void end_part(ZxPart *p) {
  p->answered = true;
  p->job->answered++;
}

static void free_copies(ZxPart *p) {
  for (uint32_t c = 0; c < (uint32_t)p->query.choices; c++) zx_copy_free(&p->copy[c]);
}

void zx_server_answered(ZxServer *s, uint64_t number, uint32_t prompt_tokens, uint32_t cached) {
  ZxPart *p = part_of(number);
  p->job->prompt_tokens += prompt_tokens;
  p->job->cached_tokens += cached;
  end_part(p);
  zx_reply_answered(s, p);
  free_copies(p);
}

void zx_server_refused(ZxServer *s, uint64_t number, int status, const ZbErr *err) {
  ZxPart *p = part_of(number);
  ZxRefusal r = {.status = status, .err = *err};
  end_part(p);
  if (!p->job->done) zx_reply_broken(s, p->job, &r);
  end_parts(p->job);
  free_copies(p);
}

void zx_server_abort(ZxServer *s, const char *why) {
  take_inbox(s);
  for (ZxJob *j = s->first; j; j = j->next) {
    ZxRefusal r = {0};
    zx_refuse(&r, 503, NULL, "try again later", "%s", why);
    if (!j->done) zx_reply_broken(s, j, &r);
    end_parts(j);
  }
  sweep(s);
}

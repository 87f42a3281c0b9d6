/* The watchdog's thread, and what it looks at. */
#define _GNU_SOURCE /* pthread_cond_clockwait */
#include "runtime/exec/comm/watch.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Seconds. Rank 0 ends when it has collected, the others later: mpirun's code is that of the first, and it
 * ends ranks that stand still. All is over 10 s after the limit at the latest. */
enum { COLLECT = 3, OTHERS = 4, ABORT = 5, LAUNCHER = 8 };
#define EARLY                                                                                                \
  0.9 /* of the limit: from then on rank 0 is told, so that it has heard of those that are a bit later */

enum { OFF, READY, WATCHING };
static struct {
  atomic_int state, aborting; /* aborting: 1 + the code */
  atomic_ulong moves;
  atomic_llong step;
  atomic_uint instr;
  int rank, code;
  double limit;
  ZxPostbox *post;
  ZxReaper reaper;
  pthread_t thread;
  pthread_mutex_t mutex; /* of: */
  ZxWhere *where;
  const void *of;
  char waits[ZX_POST_TEXT];
  pthread_cond_t closes;    /* `state` became OFF: a run that is done does not wait for the next look */
  atomic_bool told, pauses; /* `waits` is not empty; it is in some wait */
} watch = {.mutex = PTHREAD_MUTEX_INITIALIZER, .closes = PTHREAD_COND_INITIALIZER};

/* ---- the rank's thread ---- */
void zx_watch_moved(void) {
  unsigned long moves = atomic_load_explicit(&watch.moves, memory_order_relaxed);
  atomic_store_explicit(&watch.moves, moves + 1, memory_order_relaxed);
  atomic_store_explicit(&watch.pauses, false, memory_order_relaxed);
  if (!atomic_load_explicit(&watch.told, memory_order_relaxed)) return;
  pthread_mutex_lock(&watch.mutex);
  *watch.waits = 0;
  watch.told = false;
  pthread_mutex_unlock(&watch.mutex);
}

void zx_watch_pauses(void) { atomic_store_explicit(&watch.pauses, true, memory_order_relaxed); }

void zx_watch_step(int64_t step) { atomic_store_explicit(&watch.step, step, memory_order_relaxed); }

void zx_watch_instr(uint32_t instr) {
  atomic_store_explicit(&watch.instr, instr, memory_order_relaxed);
  zx_watch_moved();
}

void zx_watch_where(ZxWhere *where, const void *of) {
  pthread_mutex_lock(&watch.mutex);
  watch.where = where;
  watch.of = of;
  pthread_mutex_unlock(&watch.mutex);
}

void zx_watch_waits(const char *what) {
  pthread_mutex_lock(&watch.mutex);
  snprintf(watch.waits, sizeof watch.waits, "%s", what);
  watch.told = true;
  pthread_mutex_unlock(&watch.mutex);
}

void zx_watch_abort(int code) { watch.aborting = 1 + code; }

ZB_REPLACEABLE double zx_patience(void) { return 30; }

double zx_stall_after(void) {
  double limit = watch.state == WATCHING ? watch.limit / 2 : 0, patience = zx_patience();
  return limit > 0 && limit < patience ? limit : patience;
}

/* ---- the watchdog's ---- */
static void nap(double s) {
  struct timespec t = {(time_t)s, (long)(1e9 * (s - (double)(time_t)s))};
  nanosleep(&t, NULL);
}

/* "step 12: FWD(mb 3)": of a rank that has not said itself what it waits for. */
static bool add_where(ZbText *out) {
  long long step = watch.step;
  uint32_t instr = watch.instr;
  pthread_mutex_lock(&watch.mutex);
  bool waits = *watch.waits || watch.pauses;
  if (*watch.waits) zb_text_add(out, "waits in %s", watch.waits);
  else {
    zb_text_add(out, "%s", waits ? "waits" : "stands still");
    if (step) zb_text_add(out, " in step %lld", step);
    if (step && instr != UINT32_MAX && watch.where) {
      zb_text_add(out, ": ");
      watch.where(watch.of, instr, out);
    }
  }
  pthread_mutex_unlock(&watch.mutex);
  return waits;
}

static ZxPost post_now(bool hangs) {
  ZxPost p = {.rank = watch.rank, .hangs = hangs};
  ZbText t = {0};
  p.stands = !add_where(&t);
  snprintf(p.text, sizeof p.text, "%s", t.s);
  zb_text_free(&t);
  return p;
}

static _Noreturn void end(int code, int after) {
  zx_reap(&watch.reaper, 1, LAUNCHER - after > 1 ? LAUNCHER - after : 1);
  zb_out_discard_all();
  _exit(code);
}

/* A pipe that nobody reads any more must not hold up the end. */
static void write_without_waiting(int fd) {
  struct stat st;
  if (fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode)) fcntl(fd, F_SETFL, O_NONBLOCK | O_WRONLY);
}

/* The limit is over here, or rank 0 hears that it is over elsewhere. */
static _Noreturn void give_up(double since) {
  double now = zb_now();
  ZxPost p = post_now(true);
  char when[16], lasted[24];
  time_t t = time(NULL) - (time_t)(now - since);
  struct tm tm;
  write_without_waiting(STDERR_FILENO);
  strftime(when, sizeof when, "%H:%M:%S", localtime_r(&t, &tm));
  zx_say(watch.rank, "error: %s; since %s, for %s: the run ends (--hang-after)", p.text, when,
         zb_duration_text(lasted, now - since));
  int last = watch.rank ? OTHERS : COLLECT;
  for (double until = now + last; zb_now() < until; nap(0.1)) {
    zx_post_send(watch.post, &p);
    p = post_now(true); /* it may have come to say more */
    if (watch.rank) continue;
    zx_post_receive(watch.post);
    if (zx_post_complete(watch.post)) break;
  }
  if (watch.rank == 0) zx_post_report(watch.post);
  end(watch.code, last);
}

/* Until the next look, or until there is nothing to look at any more. */
static void nap_while_open(double s) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  double ns = (double)until.tv_nsec + 1e9 * s;
  until.tv_sec += (time_t)(ns / 1e9);
  until.tv_nsec = (long)fmod(ns, 1e9);
  pthread_mutex_lock(&watch.mutex);
  while (watch.state != OFF &&
         pthread_cond_clockwait(&watch.closes, &watch.mutex, CLOCK_MONOTONIC, &until) == 0)
    continue;
  pthread_mutex_unlock(&watch.mutex);
}

static void *look_on(void *unused) {
  (void)unused;
  double tick = watch.limit / 20 < 0.5 ? watch.limit / 20 : 0.5, seen = zb_now(), since = seen, posted = 0;
  unsigned long moves = 0;
  while (watch.state != OFF) {
    nap_while_open(tick);
    double now = zb_now();
    if (watch.aborting) {
      nap(ABORT);
      end(watch.aborting - 1, ABORT);
    }
    unsigned long m = watch.moves;
    if (watch.state != WATCHING || m != moves) moves = m, since = now;
    else if (now - seen > 2 * tick + 1) since += now - seen; /* it was this process that stood still */
    seen = now;
    bool others = watch.rank == 0 && zx_post_receive(watch.post);
    if (watch.state == WATCHING && (now - since > watch.limit || others)) give_up(since);
    if (now - since < EARLY * watch.limit || now - posted < 1) continue;
    ZxPost p = post_now(false);
    zx_post_send(watch.post, &p);
    posted = now;
  }
  return NULL;
}

/* Signals are the rank's thread's. */
static bool start(ZbErr *err) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int rc = pthread_create(&watch.thread, NULL, look_on, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return !rc || zb_fail(err, "raise the limit (ulimit -u), or give --hang-after 0s",
                        "the watchdog's thread cannot be started: %s", strerror(rc));
}

bool zx_watch_open(ZxComm *c, double limit, int code, ZbErr *err) {
  if (limit <= 0) return true;
  watch.rank = c->t->rank(c);
  watch.code = code;
  watch.limit = limit;
  watch.instr = UINT32_MAX;
  watch.post = zx_postbox_new(c);
  watch.reaper = zx_reaper_new();
  watch.state = READY;
  if (start(err)) return true;
  watch.state = OFF;
  return false;
}

void zx_watch_begin(void) {
  zx_watch_moved();
  if (watch.state == READY) watch.state = WATCHING;
}

void zx_watch_close(void) {
  if (watch.state == OFF) return;
  pthread_mutex_lock(&watch.mutex);
  watch.state = OFF;
  pthread_cond_signal(&watch.closes);
  pthread_mutex_unlock(&watch.mutex);
  pthread_join(watch.thread, NULL);
  zx_postbox_free(watch.post);
  watch.post = NULL;
}

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
 * ends ranks that stand still. All is over 10 s after the limit at the latest. BEAT: at most, between two posts
 * of a rank that gets on. */
enum { COLLECT = 3, OTHERS = 4, ABORT = 5, LAUNCHER = 8, BEAT = 10 };
static struct {
  atomic_bool on;
  atomic_int rank, aborting; /* aborting: 1 + the code */
  _Atomic(const char *) phase;
  atomic_ulong moves;
  atomic_llong step;
  atomic_uint instr;
  int code;
  double limit;
  ZxReaper reaper;
  pthread_t thread;
  pthread_mutex_t mutex; /* of: */
  ZxWhere *where;
  const void *of;
  char waits[ZX_POST_TEXT];
  pthread_cond_t closes;    /* it is on no more: a run that is done does not wait for the next look */
  atomic_bool told, pauses; /* `waits` is not empty; it is in some wait */
  pthread_mutex_t posts;    /* of: */
  ZxPostbox *post;          /* NULL: ranks have not met */
} watch = {.mutex = PTHREAD_MUTEX_INITIALIZER,
           .posts = PTHREAD_MUTEX_INITIALIZER,
           .closes = PTHREAD_COND_INITIALIZER};

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

void zx_watch_phase(const char *name) {
  watch.phase = name;
  zx_watch_moved();
}

void zx_watch_abort(int code) { watch.aborting = 1 + code; }

ZB_REPLACEABLE double zx_patience(void) { return 30; }

double zx_stall_after(void) {
  ZxVigil v = {.limit = watch.on ? watch.limit : 0};
  double limit = zx_vigil_limit(&v, watch.phase) / 2, patience = zx_patience();
  return limit > 0 && limit < patience ? limit : patience;
}

/* ---- the watchdog's ---- */
static void nap(double s) {
  struct timespec t = {(time_t)s, (long)(1e9 * (s - (double)(time_t)s))};
  nanosleep(&t, NULL);
}

/* "step 12: FWD(mb 3)", "planning": of a rank that has not said itself what it waits for. */
static void add_place(const char *phase, ZbText *out) {
  long long step = watch.step;
  uint32_t instr = watch.instr;
  if (phase && *phase) zb_text_add(out, " in %s", phase);
  else if (step) zb_text_add(out, " in step %lld", step);
  if ((phase && *phase) || !step || instr == UINT32_MAX || !watch.where) return;
  zb_text_add(out, ": ");
  watch.where(watch.of, instr, out);
}

/* Adds where the rank is; true if it waits. */
static bool add_where(ZbText *out) {
  const char *phase = watch.phase;
  pthread_mutex_lock(&watch.mutex);
  bool waits = *watch.waits || watch.pauses;
  zb_text_add(out, "%s", waits ? "waits" : "stands still");
  if (!*watch.waits) add_place(phase, out);
  else zb_text_add(out, " in %s%s%s", phase ? phase : "", phase && *phase ? ": " : "", watch.waits);
  pthread_mutex_unlock(&watch.mutex);
  return waits;
}

static ZxPost post_now(bool hangs) {
  ZxPost p = {.rank = watch.rank, .hangs = hangs, .speaks = true, .age = INFINITY};
  ZbText t = {0};
  p.stands = !add_where(&t);
  snprintf(p.text, sizeof p.text, "%s", t.s);
  zb_text_free(&t);
  return p;
}

static void send(const ZxPost *p) {
  pthread_mutex_lock(&watch.posts);
  if (watch.post) zx_post_send(watch.post, p);
  pthread_mutex_unlock(&watch.posts);
}

static ZxNews receive(double age) {
  ZxNews news = {false, INFINITY};
  pthread_mutex_lock(&watch.posts);
  if (watch.post) news = zx_post_receive(watch.post, age);
  pthread_mutex_unlock(&watch.posts);
  return news;
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

/* Waits until rank 0 has heard of all, `s` seconds at most, and says where they are. */
static void collect(ZxPost *p, double s) {
  for (double until = zb_now() + s; zb_now() < until; nap(0.1)) {
    zx_post_send(watch.post, p);
    *p = post_now(true); /* it may have come to say more */
    if (watch.rank) continue;
    zx_post_receive(watch.post, INFINITY);
    if (zx_post_complete(watch.post)) break;
  }
  if (watch.rank == 0) zx_post_report(watch.post);
}

/* The limit is over here, or rank 0 hears that it is over elsewhere. Where ranks have not met, they say the
 * same of each other: rank 0 comes first, and mpirun ends those that come later. */
static _Noreturn void give_up(double since) {
  double now = zb_now();
  pthread_mutex_lock(&watch.posts); /* for ever: nothing is to change any more */
  if (!watch.post && watch.rank) nap(OTHERS - COLLECT);
  ZxPost p = post_now(true);
  char when[16], lasted[24];
  time_t t = time(NULL) - (time_t)(zb_now() - since);
  struct tm tm;
  write_without_waiting(STDERR_FILENO);
  strftime(when, sizeof when, "%H:%M:%S", localtime_r(&t, &tm));
  zx_say(watch.rank, "error: %s; since %s, for %s: the run ends (--hang-after)", p.text, when,
         zb_duration_text(lasted, now - since));
  int last = watch.rank ? OTHERS : COLLECT;
  if (watch.post) collect(&p, last);
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
  while (watch.on && pthread_cond_clockwait(&watch.closes, &watch.mutex, CLOCK_MONOTONIC, &until) == 0)
    continue;
  pthread_mutex_unlock(&watch.mutex);
}

/* Tells rank 0 now and then how it gets on, and every second where it is once its limit is near. */
static void tell(const ZxVigil *v, ZxVerdict verdict, double now, double *posted) {
  double beat = v->limit / 8 < BEAT ? v->limit / 8 : BEAT;
  if (now - *posted < (verdict == ZX_FINE || beat < 1 ? beat : 1)) return;
  ZxPost p = verdict == ZX_FINE ? (ZxPost){.rank = watch.rank} : post_now(false);
  p.age = now - v->works;
  send(&p);
  *posted = now;
}

static void *look_on(void *unused) {
  (void)unused;
  double posted = 0;
  ZxVigil v = zx_vigil_new(watch.limit, zb_now());
  while (watch.on) {
    nap_while_open(zx_vigil_tick(&v));
    if (!watch.on) break;
    if (watch.aborting) {
      nap(ABORT);
      end(watch.aborting - 1, ABORT);
    }
    double now = zb_now();
    ZxSigns s = {.waits = watch.pauses || watch.told, .slow = watch.phase, .moves = watch.moves};
    ZxNews news = receive(now - zx_vigil_since(&v));
    zx_vigil_hear(&v, news.age, now);
    ZxVerdict verdict = zx_vigil_look(&v, &s, now);
    if (verdict == ZX_OVER || news.hangs) give_up(zx_vigil_since(&v));
    tell(&v, verdict, now, &posted);
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

bool zx_watch_start(int rank, double limit, int code, ZbErr *err) {
  watch.rank = rank;
  watch.phase = "";
  watch.instr = UINT32_MAX;
  if (limit <= 0) return true;
  watch.code = code;
  watch.limit = limit;
  watch.reaper = zx_reaper_new();
  watch.on = true;
  if (start(err)) return true;
  watch.on = false;
  return false;
}

/* Ranks may have been given other limits, which is compared later. */
void zx_watch_meet(ZxComm *c) {
  ZxPostbox *now = zx_postbox_new(c), *before;
  pthread_mutex_lock(&watch.posts);
  before = watch.post;
  watch.post = now;
  watch.rank = c->t->rank(c);
  pthread_mutex_unlock(&watch.posts);
  zx_postbox_free(before);
}

void zx_watch_close(void) {
  if (watch.on) {
    pthread_mutex_lock(&watch.mutex);
    watch.on = false;
    pthread_cond_signal(&watch.closes);
    pthread_mutex_unlock(&watch.mutex);
    pthread_join(watch.thread, NULL);
  }
  zx_postbox_free(watch.post);
  watch.post = NULL;
}

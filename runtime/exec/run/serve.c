/* A server: what comes by HTTP is answered between steps, until somebody ends it. */
#include "runtime/exec/comm/watch.h"
#include "runtime/exec/exit.h"
#include "runtime/exec/run/run.h"
#include "runtime/exec/serve/serve.h"
#include "runtime/exec/stepper.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- the address ------------------------------------------------------------------------------------------------- */
/* Returns what clients call the model: the name of its folder, or of its file; with one adapter, its name. */
static const char *name_of(ZxRun *r) {
  char *path = r->o.name ? NULL : realpath(r->o.graph, NULL);
  if (!r->o.name && r->adapters.n == 1) return free(path), r->adapter_names.s[0];
  const char *name = r->o.name ? r->o.name : path ? path : r->o.graph, *slash = strrchr(name, '/');
  if (!r->o.name && slash && slash[1]) name = slash + 1;
  size_t n = strlen(name), end = zb_ends(name, ".zsg") ? n - 4 : n;
  name = zb_strndup(r->a, name, end);
  free(path);
  return name;
}

bool zx_run_open_server(ZxRun *r) {
  ZbErr err = {0};
  if (r->rank) return true;
  r->serving = (ZxServing){.host = r->o.host,
                           .port = (int)r->o.port,
                           .key_file = r->o.key_file,
                           .name = name_of(r),
                           .adapters = r->adapters.n > 1 ? r->adapter_names : (ZbTexts){0},
                           .words = &r->prompts.words,
                           .length = (uint32_t)r->plan->generating.length,
                           .queue = (uint32_t)r->o.queue,
                           .limit = r->o.request_limit};
  for (uint32_t i = 0; i < r->serving.adapters.n; i++)
    if (!strcmp(r->serving.adapters.s[i], r->serving.name)) {
      zb_fail(&err, "give it as NAME=DIR, or the model a --name",
              "--adapter %s: the model without it is called so", zb_show(r->serving.name));
      return zx_run_refuse(r, &err);
    }
  r->server = zx_server_open(&r->serving, &err);
  return r->server || (err.passing ? zx_run_fail : zx_run_refuse)(r, &err);
}

/* ---- ranks that play the same steps --------------------------------------------------------------------------- */
typedef struct {
  ZxRun *r;
  ZxAnswers *x;
  ZbText events; /* since they met */
  bool over;     /* the server ends */
} Together;
/* What they are told when they meet; then what was asked and ended. */
typedef struct {
  uint64_t digest;
  int32_t step, over;
} Said;

static void note_ask(void *ctx, const ZxQuery *q, uint64_t number) {
  zx_event_ask(&((Together *)ctx)->events, q, number);
}
static void note_end(void *ctx, uint64_t number) { zx_event_end(&((Together *)ctx)->events, number); }

static void meet(void *ctx, bool step) {
  Together *t = ctx;
  Said said = {zx_answers_digest(t->x), step, t->over};
  zx_run_tell_all(t->r, &said, sizeof said);
  zx_run_share_text(t->r, &t->events);
  t->events.len = 0;
}

static bool step_together(void *ctx, ZxAnswers *x, ZbErr *err) {
  return zx_run_step(((Together *)ctx)->r, x, err);
}

/* Does what rank 0 says, until it ends. */
static bool follow(ZxRun *r, ZxAnswers *x) {
  ZbErr err = {0};
  ZbText events = {0};
  bool ok = true;
  for (Said said = {0}; ok && !said.over;) {
    zx_watch_moved();
    zx_run_tell_all(r, &said, sizeof said);
    events.len = 0;
    zx_run_share_text(r, &events);
    ok = zx_events_play(x, events.s, events.len, &err);
    if (ok && said.digest != zx_answers_digest(x))
      ZB_BUG("rank %d has come to other steps or tokens than rank 0", r->rank);
    ok = ok && (!said.step || zx_run_step(r, x, &err));
    for (const ZxAnswered *q; (q = zx_answers_next(x));) zx_events_forget(q);
  }
  zb_text_free(&events);
  if (!ok) zx_die(r->c, "%s", err.text); /* others wait for it */
  return ok;
}

/* ---- a rank that has failed ------------------------------------------------------------------------------------------ */
/* The launcher ends the others then, by SIGTERM and soon after for good, and this one may wait for the lost rank in the
 * middle of a step: another thread tells the clients. */
typedef struct {
  ZxRun *r;
  pthread_t thread;
  bool runs;
  atomic_bool over;
} Mourner;

static void *mourn(void *ctx) {
  Mourner *m = ctx;
  struct timespec nap = {0, 50000000};
  while (!atomic_load(&m->over)) {
    const char *why = zx_stop_why(zx_stop_wanted(&m->r->stop));
    if (why && !strcmp(why, "SIGTERM")) {
      zx_server_fail(m->r->server, "the server has failed, or was ended");
      break;
    }
    nanosleep(&nap, NULL);
  }
  return NULL;
}

static void begin_mourner(Mourner *m, ZxRun *r) {
  *m = (Mourner){.r = r};
  if (r->replica.size > 1) m->runs = pthread_create(&m->thread, NULL, mourn, m) == 0;
}

static void end_mourner(Mourner *m) {
  atomic_store(&m->over, true);
  if (m->runs) pthread_join(m->thread, NULL);
}

/* ---- serving ------------------------------------------------------------------------------------------------------ */
/* Answers what is under way, for as long as it was given. */
static bool drain(ZxRun *r, ZxAnswers *x, ZbErr *err) {
  double until = zb_now() + r->o.grace;
  zx_server_drain(r->server);
  while (zx_server_busy(r->server) && zb_now() < until)
    if (!zx_server_turn(r->server, x, err)) return false;
  zx_server_abort(r->server, x, "the server is ending");
  return true;
}

static bool serve(ZxRun *r, ZxAnswers *x, ZbErr *err) {
  while (!zx_stop_wanted(&r->stop)) {
    zx_watch_moved();
    if (!zx_server_turn(r->server, x, err)) return false;
  }
  if (!r->o.quiet)
    fprintf(stderr, "stopped by %s: ending what is under way\n", zx_stop_why(zx_stop_wanted(&r->stop)));
  return drain(r, x, err);
}

/* Serves on rank 0. If a step fails there, others wait for it. */
static bool lead(ZxRun *r, ZxAnswers *x, uint32_t slots) {
  ZbErr err = {0};
  Together t = {.r = r, .x = x};
  ZxTogether hooks = {note_ask, note_end, meet, step_together, &t};
  bool alone = r->replica.size == 1;
  Mourner m;
  zx_server_ready(r->server, slots, alone ? NULL : &hooks);
  if (!r->o.quiet)
    fprintf(stderr, "model '%s' at %s; SIGTERM or Ctrl-C ends it\n", r->serving.name,
            zx_server_address(r->server));
  begin_mourner(&m, r);
  bool ok = serve(r, x, &err);
  end_mourner(&m);
  if (!ok) zx_server_abort(r->server, alone ? x : NULL, "the server has failed");
  if (!ok && !alone) zx_die(r->c, "%s", err.text);
  t.over = true;
  if (!alone) meet(&t, false);
  zb_text_free(&t.events);
  return ok || zx_run_fail(r, &err);
}

bool zx_run_serve(ZxRun *r) {
  ZbErr err = {0};
  ZxAnswering how;
  if (!zx_run_answering_together(r, &how)) return false;
  if (!r->rank) how.piece = zx_server_piece;
  how.ctx = r->server;
  ZxAnswers *x = zx_answers_new(&how, &err);
  if (!x) return zx_run_refuse(r, &err);
  zx_watch_phase(NULL);
  bool ok = r->rank ? follow(r, x) : lead(r, x, how.sizes.slots);
  zx_answers_free(x);
  if (ok) zx_run_tell_used(r, &how, 1);
  return ok;
}

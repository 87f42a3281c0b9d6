/* A server: what comes by HTTP is answered between steps, until somebody ends it. */
#include "runtime/exec/comm/watch.h"
#include "runtime/exec/exit.h"
#include "runtime/exec/run/lanes.h"

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
  if (r->c->t->size(r->c) > 1) m->runs = pthread_create(&m->thread, NULL, mourn, m) == 0;
}

static void end_mourner(Mourner *m) {
  atomic_store(&m->over, true);
  if (m->runs) pthread_join(m->thread, NULL);
}

/* ---- the desk ----------------------------------------------------------------------------------------------------- */
typedef struct {
  ZxRun *r;
  Mourner mourner;
  double until; /* when what is under way is cut off; 0: nobody wants the run to end */
} Counter;

static ZxServer *server_of(void *ctx) { return ((Counter *)ctx)->r->server; }

static bool next_query(void *ctx, ZxNext *next) {
  next->query = zx_server_next(server_of(ctx), &next->number);
  if (next->query) next->choices = (uint32_t)next->query->choices;
  return next->query;
}

static void took_query(void *ctx, uint32_t lane) { zx_server_asked(server_of(ctx), lane); }

static bool take(void *ctx, ZxToldKind kind, uint64_t number, uint32_t choice, const char *text, size_t n) {
  ZxServer *s = server_of(ctx);
  ZxSummary is;
  ZbErr err = {0};
  switch (kind) {
  case ZX_TOLD_NEWS: zx_server_news(s, number, choice, text, n); break;
  case ZX_TOLD_RESULT:
    memcpy(&is, text, sizeof is);
    zx_server_answered(s, number, is.prompt_tokens, is.cached);
    break;
  default:
    zb_fail(&err, text + strlen(text) + 1, "%s", text);
    zx_server_refused(s, number, kind == ZX_TOLD_REFUSED ? 400 : 500, &err);
  }
  return true;
}

/* Ends in order when that is wanted: what is under way is answered, for as long as it was given. */
static bool is_over(void *ctx) {
  Counter *d = ctx;
  ZxRun *r = d->r;
  int wanted = zx_stop_wanted(&r->stop);
  if (!wanted) return false;
  if (!d->until) {
    if (!r->o.quiet) fprintf(stderr, "stopped by %s: ending what is under way\n", zx_stop_why(wanted));
    d->until = zb_now() + r->o.grace;
    zx_server_drain(r->server);
  }
  if (!zx_server_busy(r->server)) return true;
  if (zb_now() < d->until) return false;
  zx_server_abort(r->server, "the server is ending");
  r->stopping = wanted;
  return true;
}

static const ZxQuery *unpack(void *ctx, uint64_t number, const char *bytes, size_t n) {
  (void)ctx, (void)number;
  return zx_unpack_query(bytes, n);
}

static void forget(void *ctx, uint64_t number, const ZxQuery *q) {
  (void)ctx, (void)number;
  free((void *)q);
}

static void opened(void *ctx, uint32_t slots) {
  Counter *d = ctx;
  ZxRun *r = d->r;
  zx_server_ready(r->server, slots);
  if (!r->o.quiet)
    fprintf(stderr, "model '%s' at %s; SIGTERM or Ctrl-C ends it\n", r->serving.name,
            zx_server_address(r->server));
  begin_mourner(&d->mourner, r);
}

static void see_clients(void *ctx, const ZxCounts *counts) { zx_server_look(server_of(ctx), counts); }
static bool leaves(void *ctx, uint64_t *number, uint32_t *lane) {
  return zx_server_leaves(server_of(ctx), number, lane);
}
static void wait_for_query(void *ctx) { zx_server_wait(server_of(ctx)); }
static void tell_clients(void *ctx) { zx_server_abort(server_of(ctx), "the server has failed"); }

bool zx_run_serve(ZxRun *r) {
  static const ZxOpenDesk open = {opened, see_clients, leaves, wait_for_query, tell_clients};
  Counter d = {.r = r};
  ZxDesk desk = {.ctx = &d,
                 .wants_news = true,
                 .next = next_query,
                 .took = took_query,
                 .take = take,
                 .done = is_over,
                 .query = unpack,
                 .forget = forget,
                 .open = &open};
  ZxCounts counts;
  zx_watch_phase(NULL);
  bool ok = zx_run_lanes(r, &desk, &counts);
  end_mourner(&d.mourner);
  r->stopping = 0; /* it was ended in order, and there is nothing to go on with */
  return ok;
}

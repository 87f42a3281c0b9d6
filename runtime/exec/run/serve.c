/* A server: what comes by HTTP is answered between steps, until somebody ends it. */
#include "runtime/exec/comm/watch.h"
#include "runtime/exec/exit.h"
#include "runtime/exec/run/run.h"
#include "runtime/exec/serve/serve.h"
#include "runtime/exec/stepper.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- the address ------------------------------------------------------------------------------------------------- */
/* Returns what clients call the model: the name of its folder, or of its file. */
static const char *name_of(ZxRun *r) {
  char *path = r->o.name ? NULL : realpath(r->o.graph, NULL);
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
                           .words = &r->prompts.words,
                           .length = (uint32_t)r->plan->generating.length,
                           .queue = (uint32_t)r->o.queue,
                           .limit = r->o.request_limit};
  r->server = zx_server_open(&r->serving, &err);
  return r->server || (err.passing ? zx_run_fail : zx_run_refuse)(r, &err);
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

bool zx_run_serve(ZxRun *r) {
  ZbErr err = {0};
  ZxAnswering how;
  if (!zx_run_answering(r, (ZxWave){0, 1}, &how)) return false;
  how.piece = zx_server_piece;
  how.ctx = r->server;
  ZxAnswers *x = zx_answers_new(&how, &err);
  if (!x) return zx_run_refuse(r, &err);
  zx_server_ready(r->server, how.sizes.slots);
  if (!r->o.quiet)
    fprintf(stderr, "model '%s' at %s; SIGTERM or Ctrl-C ends it\n", r->serving.name,
            zx_server_address(r->server));
  zx_watch_phase(NULL);
  bool ok = serve(r, x, &err);
  if (!ok) zx_server_abort(r->server, x, "the server has failed");
  zx_answers_free(x);
  return ok || zx_run_fail(r, &err);
}

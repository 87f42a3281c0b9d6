/* Parameters to a weights file: every rank writes what it owns. */
#include "runtime/exec/comm/watch.h"
#include "runtime/exec/state/slices.h"
#include "runtime/exec/state/state.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

static bool open_tensor(ZxWalk *w) {
  ZxTensorInfo t = {.path = w->path, .nshape = w->s->naxes};
  memcpy(t.shape, w->s->valid, sizeof t.shape);
  w->tensor = zx_weights_find(w->file, &t, w->err);
  return w->tensor >= 0;
}

static bool write_run(void *ctx, uint64_t global, uint64_t n, float *at) {
  ZxWalk *w = ctx;
  zx_watch_moved();
  return zx_weights_write(w->file, w->tensor, global, n, at, w->err);
}

static ZbOut *create_file(ZxEngine *e, const char *path, ZbErr *err) {
  ZxTensorInfo *t = NULL;
  size_t n = 0;
  for (uint32_t i = 0; i < e->p->graph->nparams; i++)
    for (uint32_t k = 0; k < zx_iterations(e, i); k++) {
      ZxTensorInfo x = zx_tensor_info(e, i, k);
      ZB_PUSH(e->a, t, n, x);
    }
  return zx_weights_create(path, t, n, err);
}

/* Each rank tries whether it can write to it. */
static bool share_out(ZxEngine *e, ZbOut **out, const char *option, ZbErr *err) {
  char tmp[PATH_MAX] = "", help[80];
  if (*out) snprintf(tmp, sizeof tmp, "%s", zb_out_tmp(*out));
  e->world->t->wait(e->world, e->world->t->broadcast(e->world, 0, tmp, sizeof tmp, 0));
  if (e->rank) *out = zb_out_share(tmp);
  ZbErr why;
  uint64_t size;
  int fd = zb_open_file(tmp, true, &size, &why);
  snprintf(help, sizeof help, "%s wants a folder that all nodes share", option);
  if (fd < 0) {
    zb_fail(err, help, "%s", why.text);
    err->passing = why.passing;
    return false;
  }
  close(fd);
  return true;
}

bool zx_share_out(ZxEngine *e, ZbOut **out, const char *option, ZbErr *err) {
  return zx_agree(e->world, e->rank || *out) && zx_agree(e->world, share_out(e, out, option, err));
}

bool zx_engine_reserve(ZxEngine *e, const char *path, ZbErr *err) {
  if (e->rank == 0) e->save = create_file(e, path, err);
  return zx_share_out(e, &e->save, "--save", err);
}

/* Collective. */
static bool write_own(ZxEngine *e, ZbErr *err) {
  ZxWeights *file = zx_weights_open(zb_out_tmp(e->save), true, err);
  ZxWalk w = {.open = open_tensor, .each = write_run, .fetch = true, .file = file, .err = err};
  bool ok = zx_agree(e->world, file) && zx_walk(e, &w);
  if (file) ok = zx_weights_close(file, ok ? err : NULL) && ok;
  return ok;
}

bool zx_engine_save(ZxEngine *e, ZbErr *err) {
  if (!zx_agree(e->world, zx_trade_averages(e, err) && write_own(e, err) && zx_trade_averages(e, err)))
    return false;
  ZbOut *save = e->save;
  e->save = NULL;
  return zx_agree(e->world, zb_out_commit(save, err));
}

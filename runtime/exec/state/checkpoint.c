/* Parameters from a weights file and to one: every rank reads and writes what it owns. */
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

/* ---- reading ---- */
/* Training goes on from finite values only: what else there is came out of a run that had failed, or out of
 * another program. */
static bool read_run(void *ctx, uint64_t global, uint64_t n, float *at) {
  ZxWalk *w = ctx;
  if (!zx_weights_read(w->file, w->tensor, global, n, at, w->err)) return false;
  int64_t i = zb_not_finite(at, n);
  return i < 0 || zb_fail(w->err, "take a file of an earlier state", "%s: %s is %g", w->name,
                          zx_element(w, global + (uint64_t)i), zb_plain_nan((double)at[i]));
}

static bool load_own(ZxEngine *e, const char *path, ZbErr *err) {
  ZxWeights *file = zx_weights_open(path, false, err);
  if (!file) return false;
  uint64_t want = 0;
  for (uint32_t i = 0; i < e->p->graph->nparams; i++) want += zx_iterations(e, i);
  bool ok = zx_weights_count(file) == want ||
            zb_fail(err, "a weights file must hold exactly the model's parameters",
                    "%s holds %llu tensors; model %s has %llu", zb_show(path),
                    (unsigned long long)zx_weights_count(file), e->p->graph->model, (unsigned long long)want);
  ZxWalk w = {.open = open_tensor, .each = read_run, .file = file, .name = path, .err = err};
  ok = ok && zx_walk(e, &w);
  zx_weights_close(file, NULL);
  return ok;
}

bool zx_engine_load(ZxEngine *e, const char *path, ZbErr *err) {
  return zx_agree(e->world, load_own(e, path, err)) && zx_publish_initial(e, err);
}

/* ---- writing ---- */
static bool write_run(void *ctx, uint64_t global, uint64_t n, float *at) {
  ZxWalk *w = ctx;
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

/* Rank 0's temporary becomes known to all ranks; each tries whether it can write to it. */
static bool share_file(ZxEngine *e, ZbErr *err) {
  char tmp[PATH_MAX] = "";
  if (e->save) snprintf(tmp, sizeof tmp, "%s", zb_out_tmp(e->save));
  e->world->t->wait(e->world, e->world->t->broadcast(e->world, 0, tmp, sizeof tmp, 0));
  if (e->rank) e->save = zb_out_share(tmp);
  ZbErr why;
  uint64_t size;
  int fd = zb_open_file(tmp, true, &size, &why);
  if (fd < 0) return zb_fail(err, "--save wants a folder that all nodes share", "%s", why.text);
  close(fd);
  return true;
}

bool zx_engine_reserve(ZxEngine *e, const char *path, ZbErr *err) {
  if (e->rank == 0) e->save = create_file(e, path, err);
  return zx_agree(e->world, e->rank || e->save) && zx_agree(e->world, share_file(e, err));
}

static bool write_own(ZxEngine *e, ZbErr *err) {
  ZxWeights *file = zx_weights_open(zb_out_tmp(e->save), true, err);
  bool ok = file != NULL;
  ZxWalk w = {.open = open_tensor, .each = write_run, .fetch = true, .file = file, .err = err};
  ok = ok && zx_walk(e, &w);
  if (file) ok = zx_weights_close(file, ok ? err : NULL) && ok;
  return ok;
}

bool zx_engine_save(ZxEngine *e, ZbErr *err) {
  if (!zx_agree(e->world, write_own(e, err))) return false;
  ZbOut *save = e->save;
  e->save = NULL;
  return zx_agree(e->world, zb_out_commit(save, err));
}

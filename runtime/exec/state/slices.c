/* Parameter values: drawn from the seed, read from a file, written to one. All three walk the same *runs*: stretches of a
 * rank's part of a bucket that are also contiguous in the whole parameter, in declared order and without padding. A value
 * is a pure function of (seed, parameter path, index in the whole parameter), so any sharding draws the same. */
#include "runtime/exec/engine/internal.h"
#include "runtime/exec/state/state.h"
#include "runtime/exec/state/weights.h"

#include <limits.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

typedef struct {
  ZxEngine *e;
  const ZpSlice *s;
  const char *path;
  uint64_t stream;
  uint32_t iter;
  ZxWeights *file; /* load, save */
  const char *name; /* of the file */
  int64_t tensor;
  bool grads; /* not values */
  ZxVisit *visit;
  void *ctx;
  bool (*run)(void *ctx, uint64_t global, uint64_t n, float *at);
  bool draws;      /* `run` does not fail and may run on all threads */
  float *values;   /* room on the host for one own range of a device that is not the host */
  float *base;     /* f32 values; element `first` of the slice is base[0] */
  uint64_t first;
  ZbErr *err;
} Walk;

/* Path of iteration `iter`: the `*` becomes its number. */
const char *zx_path(ZxEngine *e, uint32_t param, uint32_t iter) {
  const char *t = e->p->graph->params[param].path, *star = strchr(t, '*');
  return star ? zb_printf(e->a, "%.*s%u%s", (int)(star - t), t, iter, star + 1) : t;
}

/* Calls w->run for every run within local elements from..to of the slice. Padding is skipped (it holds zeros). */
static bool walk_runs(Walk *w, uint64_t from, uint64_t to) {
  const ZpSlice *s = w->s;
  ZpValue v = {.type.naxes = (uint8_t)s->naxes};
  memcpy(v.state, s->state, sizeof v.state);
  int last = s->naxes - 1;
  uint64_t row = s->naxes ? (uint64_t)s->size[last] : 1;
  int64_t start[ZG_MAX_AXES];
  for (int a = 0; a <= last; a++) start[a] = zp_view_start(&w->e->p->mesh, &v, w->e->rank, s->axis[a], s->size[a]);
  for (uint64_t at = from; at < to;) {
    uint64_t n = row - at % row, left = at / row;
    if (n > to - at) n = to - at;
    uint64_t global = 0, scale = 1;
    bool padding = false;
    for (int a = last; a >= 0; a--) {
      uint64_t i = a == last ? at % row : left % (uint64_t)s->size[a];
      if (a != last) left /= (uint64_t)s->size[a];
      uint64_t whole = (uint64_t)start[a] + i;
      padding |= whole >= (uint64_t)s->valid[a];
      global += whole * scale;
      scale *= (uint64_t)s->valid[a];
    }
    uint64_t keep = n;
    if (last >= 0 && !padding) { /* a row may run into padding */
      uint64_t column = (uint64_t)start[last] + at % row, room = (uint64_t)s->valid[last] - column;
      if (keep > room) keep = room;
    }
    if (!padding && !w->run(w, global, keep, w->base + (at - w->first))) return false;
    at += n;
  }
  return true;
}

typedef struct {
  Walk *w;
  uint64_t from, to;
} Parts;

static void walk_part(void *arg, int part, int parts) {
  const Parts *p = arg;
  uint64_t n = (p->to - p->from) / (uint64_t)parts + 1, lo = p->from + n * (uint64_t)part, hi = lo + n;
  if (lo < p->to) walk_runs(p->w, lo, hi < p->to ? hi : p->to);
}

/* Runs of the part [from, to) of held bucket h, whose f32 values start at `values`. */
static bool walk_held(ZxEngine *e, const ZpHeld *h, uint64_t from, uint64_t to, float *values, Walk *w,
                      bool (*open)(Walk *)) {
  const ZpBucket *k = &e->p->buckets[h->bucket];
  for (uint32_t i = 0; i < k->nslices; i++) {
    const ZpSlice *s = &k->slices[i];
    uint64_t lo = from > s->at ? from : s->at, hi = to < s->at + s->n ? to : s->at + s->n;
    if (lo >= hi) continue;
    w->e = e;
    w->s = s;
    w->iter = h->iter;
    w->path = zx_path(e, s->param, h->iter);
    w->stream = zb_stream(w->path);
    w->base = values + (lo - from);
    w->first = lo - s->at;
    if (!open(w)) return false;
    if (w->draws) zk_pool_run(e->env->pool, walk_part, &(Parts){w, w->first, hi - s->at});
    else if (!walk_runs(w, w->first, hi - s->at)) return false;
  }
  return true;
}

/* ---- initial values ---- */
/* Drawn again until within two sigma; 4.6 % need more than one draw. */
static double truncated(double x, uint64_t seed, uint64_t stream, uint64_t i) {
  for (uint64_t salt = 1; !(fabs(x) <= 2); salt++) x = zb_random_normal(seed, stream + zb_mix64(salt), i);
  return x;
}

static void draw_normals(const Walk *w, const ZgParam *q, uint64_t global, uint64_t n, float *at) {
  uint64_t seed = w->e->o.seed;
  double x[256];
  for (uint64_t i = 0, m; i < n; i += m) {
    m = n - i < 256 ? n - i : 256;
    zb_random_normals(seed, w->stream, global + i, m, x);
    for (uint64_t k = 0; k < m && q->init == ZG_INIT_TRUNC_NORMAL; k++) x[k] = truncated(x[k], seed, w->stream, global + i + k);
    for (uint64_t k = 0; k < m; k++) at[i + k] = (float)(q->num[0] * x[k]);
  }
}

static bool draw_run(void *ctx, uint64_t global, uint64_t n, float *at) {
  const Walk *w = ctx;
  const ZgParam *q = &w->e->p->graph->params[w->s->param];
  if (q->init == ZG_INIT_NORMAL || q->init == ZG_INIT_TRUNC_NORMAL) {
    draw_normals(w, q, global, n, at);
    return true;
  }
  for (uint64_t i = 0; i < n; i++)
    at[i] = q->init == ZG_INIT_UNIFORM
                ? (float)(q->num[0] + (q->num[1] - q->num[0]) * zb_random_unit(w->e->o.seed, w->stream, global + i))
                : (float)q->num[0];
  return true;
}

static bool open_nothing(Walk *w) {
  (void)w;
  return true;
}

/* Compute-precision parameters from the f32 values of the own range, and to the other owners of a full copy. */
static void spread(ZxEngine *e, const ZpHeld *h) {
  const ZpBucket *k = &e->p->buckets[h->bucket];
  uint64_t from, to;
  zx_own_range(e, h, &from, &to);
  size_t w = zk_elem_bytes(e->p->compute);
  char *all = e->arena + h->param_at, *own = k->level >= 3 ? all : all + from * w;
  if (h->master_at != UINT64_MAX) e->dev->to_bf16(e->env, (int64_t)(to - from), zx_master(e, h), (uint16_t *)(void *)own);
  if (k->level == 1 || k->level == 2) zx_await(e, e->c->t->all_gather(e->c, e->group[k->shard], own, (to - from) * w, all));
}

/* Walks the f32 values of the own range, on the host; those of another device are fetched before, or brought there after. */
static bool walk_own(ZxEngine *e, const ZpHeld *h, Walk *w, bool (*open)(Walk *), bool fetch) {
  uint64_t from, to;
  zx_own_range(e, h, &from, &to);
  float *own = w->grads ? zx_grads(e, h) : zx_master(e, h), *values = e->dev->host ? own : w->values;
  size_t bytes = (to - from) * sizeof *own;
  if (!e->dev->host && fetch) {
    e->dev->download(e->env, values, own, bytes);
    if (!zx_finish(e, w->err)) return false;
  } else if (!e->dev->host) {
    memset(values, 0, bytes); /* padding */
  }
  if (!walk_held(e, h, from, to, values, w, open)) return false;
  if (e->dev->host || fetch) return true;
  e->dev->upload(e->env, own, values, bytes);
  return zx_finish(e, w->err);
}

static bool walk_all(ZxEngine *e, Walk *w, bool (*open)(Walk *), bool fetch) {
  uint64_t most = 1;
  for (uint32_t i = 0; i < e->st->nheld; i++) {
    uint64_t from, to;
    zx_own_range(e, &e->st->held[i], &from, &to);
    if (to - from > most) most = to - from;
  }
  if (!e->dev->host && !(w->values = e->dev->pinned(e->env, most * sizeof(float), w->err))) return false;
  bool ok = true;
  for (uint32_t i = 0; ok && i < e->st->nheld; i++)
    if (!fetch || zx_counts(e, &e->st->held[i])) ok = walk_own(e, &e->st->held[i], w, open, fetch);
  if (w->values) e->dev->unpin(e->env, w->values);
  return ok;
}

/* The first step's other streams do not wait for this one. */
static bool spread_all(ZxEngine *e, ZbErr *err) {
  for (uint32_t i = 0; i < e->st->nheld; i++) spread(e, &e->st->held[i]);
  return zx_agree(e->world, zx_finish(e, err));
}

/* ---- files ---- */
static ZxTensorInfo info_of(ZxEngine *e, uint32_t param, uint32_t iter) {
  const ZgParam *q = &e->p->graph->params[param];
  ZxTensorInfo t = {.path = zx_path(e, param, iter), .nshape = q->type.naxes};
  for (int i = 0; i < q->type.naxes; i++) t.shape[i] = e->p->axis_valid[q->type.axis[q->order[i]]];
  return t;
}

static bool open_tensor(Walk *w) {
  ZxTensorInfo t = {.path = w->path, .nshape = w->s->naxes};
  memcpy(t.shape, w->s->valid, sizeof t.shape);
  w->tensor = zx_weights_find(w->file, &t, w->err);
  return w->tensor >= 0;
}

/* "layer.0.w1[3, 17]": one element of the whole parameter. */
static const char *element(const Walk *w, uint64_t global) {
  const char *text = "]";
  for (int a = w->s->naxes; a-- > 0; global /= (uint64_t)w->s->valid[a])
    text = zb_printf(w->e->a, "%s%llu%s", a ? ", " : "[", (unsigned long long)(global % (uint64_t)w->s->valid[a]), text);
  return zb_printf(w->e->a, "%s%s", w->path, w->s->naxes ? text : "");
}

/* Training goes on from finite values only: what else there is came out of a run that had failed, or out of another program. */
static bool read_run(void *ctx, uint64_t global, uint64_t n, float *at) {
  Walk *w = ctx;
  if (!zx_weights_read(w->file, w->tensor, global, n, at, w->err)) return false;
  int64_t i = zb_not_finite(at, n);
  return i < 0 || zb_fail(w->err, "take a file of an earlier state", "%s: %s is %g", w->name, element(w, global + (uint64_t)i),
                          zb_plain_nan((double)at[i]));
}

static bool check_run(void *ctx, uint64_t global, uint64_t n, float *at) {
  const Walk *w = ctx;
  int64_t i = zb_not_finite(at, n);
  return i < 0 || zb_fail(w->err, "its values must fit f32, below 3.4e38", "the initial value of %s is %g (parameter at %s)",
                          element(w, global + (uint64_t)i), zb_plain_nan((double)at[i]),
                          zp_loc_text(w->e->p, w->e->p->graph->params[w->s->param].loc));
}

static bool write_run(void *ctx, uint64_t global, uint64_t n, float *at) {
  Walk *w = ctx;
  return zx_weights_write(w->file, w->tensor, global, n, at, w->err);
}

uint32_t zx_iterations(const ZxEngine *e, uint32_t param) {
  uint32_t s = e->p->graph->params[param].segment;
  return s == ZG_NONE ? 1 : e->p->graph->segments[s].trip;
}

bool zx_engine_init(ZxEngine *e, ZbErr *err) {
  Walk w = {.run = draw_run, .draws = true, .err = err}, look = {.run = check_run, .err = err};
  if (!zx_agree(e->world, walk_all(e, &w, open_nothing, false) && walk_all(e, &look, open_nothing, true))) return false;
  return spread_all(e, err);
}

static bool visit_run(void *ctx, uint64_t global, uint64_t n, float *at) {
  const Walk *w = ctx;
  (void)global;
  return w->visit(w->ctx, w->s->param, w->iter, n, at);
}

bool zx_visit(ZxEngine *e, bool grads, ZxVisit *fn, void *ctx, ZbErr *err) {
  Walk w = {.run = visit_run, .grads = grads, .visit = fn, .ctx = ctx, .err = err};
  return walk_all(e, &w, open_nothing, true);
}

static bool load_own(ZxEngine *e, const char *path, ZbErr *err) {
  ZxWeights *file = zx_weights_open(path, false, err);
  if (!file) return false;
  uint64_t want = 0;
  for (uint32_t i = 0; i < e->p->graph->nparams; i++) want += zx_iterations(e, i);
  bool ok = zx_weights_count(file) == want ||
            zb_fail(err, "a weights file must hold exactly the model's parameters", "%s holds %llu tensors; model %s has %llu",
                    zb_show(path), (unsigned long long)zx_weights_count(file), e->p->graph->model, (unsigned long long)want);
  Walk w = {.run = read_run, .file = file, .name = path, .err = err};
  ok = ok && walk_all(e, &w, open_tensor, false);
  zx_weights_close(file, NULL);
  return ok;
}

bool zx_engine_load(ZxEngine *e, const char *path, ZbErr *err) {
  if (!zx_agree(e->world, load_own(e, path, err))) return false;
  return spread_all(e, err);
}

static ZbOut *create_file(ZxEngine *e, const char *path, ZbErr *err) {
  ZxTensorInfo *t = NULL;
  size_t n = 0;
  for (uint32_t i = 0; i < e->p->graph->nparams; i++)
    for (uint32_t k = 0; k < zx_iterations(e, i); k++) {
      ZxTensorInfo x = info_of(e, i, k);
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
  Walk w = {.run = write_run, .file = file, .err = err};
  ok = ok && walk_all(e, &w, open_tensor, true);
  if (file) ok = zx_weights_close(file, ok ? err : NULL) && ok;
  return ok;
}

bool zx_engine_save(ZxEngine *e, ZbErr *err) {
  if (!zx_agree(e->world, write_own(e, err))) return false;
  ZbOut *save = e->save;
  e->save = NULL;
  return zx_agree(e->world, zb_out_commit(save, err));
}

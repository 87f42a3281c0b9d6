/* Parameters and optimizer states from a checkpoint, into whatever layout this run has. A rank reads what it
 * owns. Of what several ranks own each digests the part that it would write, so that together they have
 * digested everything once, and what was altered is known before the first step. */
#include "runtime/exec/state/checkpoints.h"
#include "runtime/exec/state/snapshot.h"
#include "runtime/exec/state/state.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- whether it is this model's ---- */
static bool same_shape(const ZxTensorInfo *a, const ZxTensorInfo *b) {
  return a->nshape == b->nshape && !memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->nshape);
}

static bool lacks(ZxEngine *e, const char *path, const ZxContents *found, const char *name, ZbErr *err) {
  const char **names = ZB_NEWN(e->a, const char *, found->nparams + 1);
  for (uint32_t i = 0; i < found->nparams; i++) names[i] = found->tensors[i].info.path;
  const char *near = zb_nearest(name, names, found->nparams);
  return zb_fail(
      err, near ? zb_printf(e->a, "the nearest name in it is '%.150s'", near) : "is it another model's?",
      "%s has no parameter '%s'; it has %" PRIu32, zb_show(path), name, found->nparams);
}

static bool has(const ZxContents *c, const char *name) {
  for (uint32_t i = 0; i < c->nparams; i++)
    if (!strcmp(c->tensors[i].info.path, name)) return true;
  return false;
}

/* It has `found` where the model has `wanted`, which it may have elsewhere. */
static bool other_param(ZxEngine *e, const char *path, const ZxContents *c, const ZxContents *want,
                        const char *found, const char *wanted, ZbErr *err) {
  if (!has(c, wanted)) return lacks(e, path, c, wanted, err);
  if (has(want, found))
    return zb_fail(err, "declare them in that order", "%s has parameter '%s' where model %s has '%s'",
                   zb_show(path), found, e->p->graph->model, wanted);
  return zb_fail(err, "was it made with other sizes (-D)?",
                 "%s has parameter '%s', and %" PRIu32 " others; model %s has %" PRIu32 ", and not this",
                 zb_show(path), found, c->nparams - 1, e->p->graph->model, want->nparams);
}

static bool same_params(ZxEngine *e, const char *path, const ZxContents *found, const ZxContents *want,
                        ZbErr *err) {
  for (uint32_t i = 0; i < want->nparams; i++) {
    const ZxTensorInfo *w = &want->tensors[i].info, *f = i < found->nparams ? &found->tensors[i].info : NULL;
    if (!f) return lacks(e, path, found, w->path, err);
    if (strcmp(f->path, w->path)) return other_param(e, path, found, want, f->path, w->path, err);
    if (!same_shape(f, w))
      return zb_fail(err, "was it made with other sizes (-D)?",
                     "%s: parameter '%s' has shape %s; the model wants %s", zb_show(path), w->path,
                     zx_shape_text(e->a, f), zx_shape_text(e->a, w));
  }
  if (found->nparams > want->nparams)
    return zb_fail(err, "is it another model's?", "%s has %" PRIu32 " parameters; model %s has %" PRIu32,
                   zb_show(path), found->nparams, e->p->graph->model, want->nparams);
  return true;
}

static bool same_states(const char *path, const ZxContents *found, const ZxContents *want, ZbErr *err) {
  for (uint32_t s = 0; s < want->nstates; s++)
    if (s >= found->nstates || strcmp(found->state[s], want->state[s]))
      return zb_fail(err, "keep the optimizer, or begin anew from its parameters: `zckpt weights`, --init",
                     "%s has no optimizer state `%s`, which the recipe's optimizer needs", zb_show(path),
                     want->state[s]);
  if (found->nstates > want->nstates)
    return zb_fail(err, "keep the optimizer, or begin anew from its parameters: `zckpt weights`, --init",
                   "%s has optimizer state `%s`, for which the recipe's optimizer has no use", zb_show(path),
                   found->state[want->nstates]);
  for (uint32_t i = 0; i < want->nparams; i++) {
    uint32_t n = zx_nstates_of(want, i), have = zx_nstates_of(found, i), same = n == have;
    for (uint32_t k = 0; same && k < n; k++)
      same = found->tensors[found->first[i] + k].state == want->tensors[want->first[i] + k].state;
    bool like = true;
    for (uint32_t k = 0; same && k < n; k++)
      like &= found->tensors[found->first[i] + k].less == want->tensors[want->first[i] + k].less;
    if (!like)
      return zb_fail(err, "keep the optimizer, or begin anew from its parameters: `zckpt weights`, --init",
                     "%s has optimizer states of '%s' by other axes than the recipe's optimizer keeps",
                     zb_show(path), want->tensors[i].info.path);
    if (!same)
      return zb_fail(err, "keep what is frozen, or begin anew from its parameters: `zckpt weights`, --init",
                     "%s has %" PRIu32 " optimizer states of '%s', and the recipe keeps %" PRIu32,
                     zb_show(path), have, want->tensors[i].info.path, n);
  }
  return true;
}

/* ---- copies ---- */
static uint32_t param_named(const ZxContents *c, const char *name, size_t n) {
  for (uint32_t i = 0; i < c->nparams; i++) {
    const char *path = c->tensors[i].info.path;
    if (strlen(path) == n && !memcmp(path, name, n)) return i;
  }
  return ZB_NO_NAME;
}

/* Which parameter of the checkpoint one of the model begins as: that of its name, or the one that a copy says. */
static uint32_t source_of(const ZxContents *found, const char *name, const ZbTexts *copies) {
  uint32_t k = param_named(found, name, strlen(name));
  for (uint32_t i = 0; i < copies->n && k == ZB_NO_NAME; i++) {
    const char *is = strchr(copies->s[i], '=');
    if (is && strlen(name) == (size_t)(is - copies->s[i]) && !memcmp(name, copies->s[i], strlen(name)))
      k = param_named(found, is + 1, strlen(is + 1));
  }
  return k;
}

static bool copy_ok(ZxEngine *e, const char *path, const ZxContents *found, const ZxContents *want,
                    const char *copy, ZbErr *err) {
  const char *is = strchr(copy, '=');
  if (!is) return zb_fail(err, "write NEW=OLD", "--resume-copy %s: there is no `=`", zb_show(copy));
  if (param_named(want, copy, (size_t)(is - copy)) == ZB_NO_NAME)
    return zb_fail(err, "NEW is the model's, OLD the checkpoint's",
                   "--resume-copy %s: model %s has no parameter '%.*s'", zb_show(copy), e->p->graph->model,
                   (int)(is - copy), zb_show(copy));
  if (param_named(found, copy, (size_t)(is - copy)) != ZB_NO_NAME)
    return zb_fail(err, "leave it out", "--resume-copy %s: %s has that parameter itself", zb_show(copy),
                   zb_show(path));
  return param_named(found, is + 1, strlen(is + 1)) != ZB_NO_NAME || lacks(e, path, found, is + 1, err);
}

bool zx_resume_copies(ZxEngine *e, const char *path, ZxManifest *m, const ZbTexts *copies, ZbErr *err) {
  ZxContents want, *had = &m->c, now = m->c;
  if (!copies->n) return true;
  if (!zx_contents_of(e, had->most, &want, err)) return false;
  for (uint32_t i = 0; i < copies->n; i++)
    if (!copy_ok(e, path, had, &want, copies->s[i], err)) return false;
  bool *used = ZB_NEWN(e->a, bool, had->nparams + 1);
  now.tensors = NULL;
  now.first = ZB_NEWN(e->a, uint32_t, want.nparams + 1);
  now.nparams = want.nparams;
  now.ntensors = 0;
  for (int states = 0; states < 2; states++) /* parameters first */
    for (uint32_t i = 0; i < want.nparams; i++) {
      const char *name = want.tensors[i].info.path;
      uint32_t k = source_of(had, name, copies);
      if (k == ZB_NO_NAME) return lacks(e, path, had, name, err);
      used[k] = true;
      if (states) now.first[i] = now.ntensors;
      uint32_t from = states ? had->first[k] : k, to = states ? had->first[k + 1] : k + 1;
      for (; from < to; from++) {
        ZxCkptTensor t = had->tensors[from];
        t.param = i;
        if (!states) t.info.path = name;
        ZB_PUSH(e->a, now.tensors, now.ntensors, t);
      }
    }
  now.first[want.nparams] = now.ntensors;
  for (uint32_t i = 0; i < had->nparams; i++)
    if (!used[i])
      return zb_fail(err, "is it another model's?", "%s has a parameter '%s', which model %s has not",
                     zb_show(path), had->tensors[i].info.path, e->p->graph->model);
  m->c = now;
  return true;
}

/* ---- reading ---- */
typedef struct {
  const ZxManifest *m;
  const char *path;
  int states; /* how many of each parameter are read, too, */
  bool all;   /* and second moments of rows and columns */
  uint64_t *digest;
  uint64_t bytes;
  uint64_t from, to; /* of the running bucket: what this rank speaks for */
  int fd;
  uint32_t file;
  const char *name;
} Read;

static bool open_file(ZxWalk *w, uint32_t file) {
  Read *r = w->ctx;
  if (r->fd >= 0 && r->file == file) return true;
  if (r->fd >= 0) close(r->fd);
  uint64_t size;
  r->file = file;
  r->name = zb_printf(w->e->a, "%s/%s", r->path, r->m->c.files[file].name);
  r->fd = zb_open_file(r->name, false, &size, w->err);
  return r->fd >= 0;
}

static bool open_tensor(ZxWalk *w) {
  Read *r = w->ctx;
  w->tensor = zx_tensor_of(w->e, &r->m->c, w->s->param, w->iter, (uint32_t)w->state);
  if (!zx_spoken_part(w->e, w->held, &r->from, &r->to)) r->from = r->to = 0;
  return open_file(w, r->m->c.tensors[w->tensor].file);
}

/* Elements of the tensor that lie in a row there and here. */
typedef struct {
  const ZxWalk *w;
  uint64_t global, n;
  float *at;
  struct Part {
    bool ok;
    uint64_t digest;
    ZbErr err;
  } * part; /* of each thread */
} Stretch;

/* Reads elements from..to - 1 of a stretch, and digests what this rank speaks for while a cache has them. */
static bool read_range(const Stretch *x, uint64_t from, uint64_t to, struct Part *p) {
  enum { PIECE = 1 << 17 }; /* elements read at once */
  const ZxWalk *w = x->w;
  const Read *r = w->ctx;
  const ZxCkptTensor *t = &r->m->c.tensors[w->tensor];
  for (uint64_t n, i = from; i < to; i += n) {
    float *at = x->at + i;
    uint64_t global = x->global + i, local = w->s->at + w->first + (uint64_t)(at - w->base);
    n = to - i < PIECE ? to - i : PIECE;
    if (!zb_read_at(r->fd, r->name, at, zk_bytes(ZK_F32, n), t->at + zk_bytes(ZK_F32, global), &p->err))
      return false;
    uint64_t lo = r->from > local ? r->from : local, hi = r->to < local + n ? r->to : local + n;
    if (lo < hi) p->digest += zx_digest(at + (lo - local), global + (lo - local), hi - lo);
  }
  return true;
}

static void read_part(void *arg, int part, int parts) {
  const Stretch *x = arg;
  uint64_t each = x->n / (uint64_t)parts + 1, from = each * (uint64_t)part;
  uint64_t to = from + each < x->n ? from + each : x->n;
  x->part[part].ok = from >= to || read_range(x, from, to, &x->part[part]);
}

/* Reads n elements from `global` of the tensor to `at`, long ones by all threads. */
static bool read_stretch(void *walk, uint64_t global, uint64_t n, float *at) {
  enum { LONG = 1 << 19 };
  ZxWalk *w = walk;
  Read *r = w->ctx;
  ZkPool *pool = w->e->env->pool;
  int parts = n < LONG ? 1 : zk_pool_threads(pool);
  struct Part one = {0}, *part = parts > 1 ? calloc((size_t)parts, sizeof *part) : &one;
  if (!part) zb_out_of_memory((size_t)parts * sizeof *part);
  Stretch x = {w, global, n, at, part};
  if (parts > 1) zk_pool_run(pool, read_part, &x);
  else read_part(&x, 0, 1);
  bool ok = true;
  for (int i = 0; i < parts && ok; i++) {
    r->digest[w->tensor] += part[i].digest;
    if (!part[i].ok) *w->err = part[i].err, ok = false;
  }
  if (parts > 1) free(part);
  r->bytes += zk_bytes(ZK_F32, n);
  return ok;
}

/* A stretch of second moments of rows or columns. Every rank reads all of its group; the one that would write them digests
 * them. */
typedef struct {
  Read *r;
  uint32_t tensor;
  float *to;
  bool speaks;
  ZbErr *err;
} Moments;

static bool read_moments_run(void *ctx, uint64_t global, uint64_t local, uint64_t n) {
  Moments *m = ctx;
  float *at = m->to + local;
  if (!zb_read_at(m->r->fd, m->r->name, at, zk_bytes(ZK_F32, n),
                  m->r->m->c.tensors[m->tensor].at + zk_bytes(ZK_F32, global), m->err))
    return false;
  m->r->bytes += zk_bytes(ZK_F32, n);
  if (m->speaks) m->r->digest[m->tensor] += zx_digest(at, global, n);
  return true;
}

static bool read_moments(ZxEngine *e, const ZpStageBucket *h, Read *r, ZbErr *err) {
  ZxMoments *all;
  uint32_t n = zx_moments_of(e, h, e->a, &all);
  uint64_t count = zp_moments(e->p, &e->p->programs.buckets[h->bucket]);
  if (!count) return true;
  float *held = e->dev->pinned(e->env, 2 * count * sizeof *held, err), *listed = held + count;
  bool ok = held;
  for (uint32_t i = 0; ok && i < n; i++) {
    Moments m = {r, zx_moments_tensor(e, &r->m->c, h, &all[i]), listed, zx_speaks_of_moments(e, h), err};
    ZxWalk w = {.ctx = r, .err = err, .e = e};
    memset(listed, 0, all[i].n * sizeof *listed);
    ok = open_file(&w, r->m->c.tensors[m.tensor].file) &&
         zx_stretches(&e->p->layout.mesh, e->rank, &all[i].slice, 0, all[i].n, read_moments_run, &m);
    zx_order_moments(&all[i], held + all[i].at, listed, false);
  }
  if (ok) e->dev->upload(e->env, zx_moments(e, h), held, count * sizeof *held), ok = zx_finish(e, err);
  if (ok) zx_keep_own_moments(e, h);
  if (held) e->dev->unpin(e->env, held);
  return ok;
}

static bool read_own(ZxEngine *e, Read *r, ZbErr *err) {
  bool ok = zx_ckpt_look(r->m, r->path, err);
  for (int s = 0; ok && s <= r->states; s++)
    ok = zx_walk(e, &(ZxWalk){.open = open_tensor, .each = read_stretch, .state = s, .ctx = r, .err = err});
  for (uint32_t i = 0; ok && r->all && i < e->st->nheld; i++) ok = read_moments(e, &e->st->held[i], r, err);
  if (r->fd >= 0) close(r->fd);
  return ok;
}

/* ---- whether it is what was written ---- */
/* Returns, by tensor of a parameter, if the plan stores it: steps of generation do not store what they do not read. */
static bool *find_stored(const ZxEngine *e, uint32_t n) {
  bool *stored = ZB_NEWN(e->a, bool, n + 1);
  for (uint32_t i = 0, at = 0; i < e->p->graph->nparams; i++)
    for (uint32_t k = 0; k < zx_iterations(e, i); k++, at++) stored[at] = zp_has_param(e->p, i);
  return stored;
}

static bool check_digests(ZxEngine *e, const Read *r, ZxResumed *out, ZbErr *err) {
  uint32_t n = r->all ? r->m->c.ntensors : r->m->c.nparams; /* parameters come first */
  zx_add_digests(e->world, r->digest, n, ZB_NEWN(e->a, double, 2 * n + 1));
  zx_add_bytes(e->world, r->bytes, 0, &out->bytes, &out->most, NULL);
  const bool *stored = find_stored(e, r->m->c.nparams);
  for (uint32_t i = 0; i < n; i++)
    if (r->digest[i] != r->m->c.tensors[i].digest && (i >= r->m->c.nparams || stored[i]))
      return zx_ckpt_altered(r->m, r->path, i, r->digest[i], err);
  return true;
}

static bool read_checkpoint(ZxEngine *e, const char *path, const ZxManifest *m, int states, bool all,
                            ZxResumed *out, ZbErr *err) {
  Read r = {.m = m, .path = path, .states = states, .all = all, .fd = -1};
  r.digest = ZB_NEWN(e->a, uint64_t, m->c.ntensors + 1);
  return zx_agree(e->world, read_own(e, &r, err)) && check_digests(e, &r, out, err);
}

bool zx_resume_fits(ZxEngine *e, const char *path, const ZxManifest *m, bool states, ZbErr *err) {
  ZxContents want;
  return zx_contents_of(e, m->c.most, &want, err) && same_params(e, path, &m->c, &want, err) &&
         (!states || same_states(path, &m->c, &want, err));
}

bool zx_engine_resume(ZxEngine *e, const char *path, const ZxManifest *m, ZxResumed *out, ZbErr *err) {
  int states = 0;
  for (uint32_t i = 0; i < e->p->asked.noptimizers; i++)
    if (e->p->asked.optimizers[i].states > states) states = e->p->asked.optimizers[i].states;
  states += e->p->asked.average > 0;
  if (!read_checkpoint(e, path, m, states, true, out, err)) return false;
  zx_engine_goes_on(e, m->step, m->samples);
  if (!zx_agree(e->world, zx_trade_averages(e, err))) return false;
  return zx_publish_initial(e, err);
}

bool zx_engine_take_params(ZxEngine *e, const char *path, const ZxManifest *m, ZxResumed *out, ZbErr *err) {
  if (!read_checkpoint(e, path, m, 0, false, out, err)) return false;
  zx_begin_average(e);
  return zx_publish_initial(e, err);
}

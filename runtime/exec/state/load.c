/* Parameters from weights files, under their own names or others: every rank reads what it owns. Which of
 * them the files have is a matter of names, which all ranks know of all parameters: what is wrong with the
 * files they find alike, before anything is read. */
#include "graph/adapter.h"
#include "runtime/exec/hub/hub.h"
#include "runtime/exec/state/grow.h"
#include "runtime/exec/state/state.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- what the files have of the model ---- */
typedef struct {
  ZxEngine *e;
  ZxMap map;
  ZxShards files;
  uint32_t adapter;        /* tensors from here on are of an adapter's files */
  const ZxNewWords *words; /* NULL: there are none */
  int64_t *rows;           /* by parameter: rows of words that are there, of more; 0: all are */
  bool *used;              /* their tensors that are parameters of the model */
  ZbErr *err;
} Load;

/* What the files have in place of it is probably none of the other parameters. */
static bool lacks(const Load *l, const ZxLoaded *x, const char *first) {
  const char **names = NULL, *near, *list = "";
  uint32_t n = 0, told = 0;
  for (uint32_t i = 0; i < l->files.names.n; i++)
    if (!l->used[i]) ZB_PUSH(l->e->a, names, n, l->files.names.name[i]);
  while (told < 3 && (near = zb_nearest(first, names, n))) {
    list = zb_printf(l->e->a, "%s%s'%.48s'", list, told++ ? ", " : "", near);
    for (uint32_t i = 0; i < n; i++)
      if (names[i] == near) names[i] = names[--n];
  }
  zb_fail(l->err,
          zb_printf(
              l->e->a,
              "%s%s%s--init-partial draws from the seed what is not there; if it was saved without, compile "
              "the model without (-D)",
              told ? "the nearest names in it are " : "", list, told ? "; " : ""),
          "%s lacks '%s'", zb_show(l->files.path), first);
  if (strstr(first, ZG_ADAPTER_PREFIX) && l->adapter == l->files.names.n)
    snprintf(l->err->help, sizeof l->err->help,
             "--adapter DIR brings an adapter; --init-partial begins one that adds nothing yet");
  else if (strstr(first, ZG_ADAPTER_PREFIX))
    snprintf(l->err->help, sizeof l->err->help,
             "the folder of the adapter is not whole, or is another model's");
  if (x->drawn > 1) zb_fail_more(l->err, " and %" PRIu64 " more", x->drawn - 1);
  zb_fail_more(l->err, " of the %" PRIu64 " parameters of model %s", x->read + x->drawn,
               l->e->p->graph->model);
  return false;
}

static bool judge(const Load *l, const ZxLoaded *x, bool partial, const char *first) {
  const char *model = l->e->p->graph->model;
  if (!x->read) {
    zb_fail(l->err, "is it the file of another model?",
            "%s has none of the %" PRIu64 " parameters of model %s", zb_show(l->files.path), x->drawn, model);
    if (x->extra) zb_fail_more(l->err, "; its first tensor is '%s'", zb_show(x->first_extra));
    return false;
  }
  if (partial) return true;
  if (x->drawn) return lacks(l, x, first);
  return !x->extra ||
         zb_fail(l->err, "--init-partial leaves them out",
                 "%s holds %" PRIu64 " tensor%s that model %s has not; the first is '%s'",
                 zb_show(l->files.path), x->extra, x->extra == 1 ? "" : "s", model, zb_show(x->first_extra));
}

/* Whether all parts of a parameter are there; *missing: the first that is not. */
/* Refuses codes with zero points where the plan stores such without: they would be rounded once more. */
static void check_zeros(const Load *l, uint32_t param, uint32_t tensor, const char *name, ZbErr *err) {
  const ZpPacked *k = l->e->p->asked.packed ? &l->e->p->asked.packed[param] : NULL;
  const ZkElemInfo *to = k && k->elem != ZK_NONE ? &zk_elem_info[k->elem] : NULL;
  const char *is = zx_shards_uneven(&l->files, tensor);
  if (!is || !to || to->bits != 4 || to->codes != ZK_CODES_INTEGER || to->zero != ZK_ZERO_NONE) return;
  zb_fail(err, "store it as int4z, which keeps it as it is, or as int8",
          "%s: '%s' is %s, with zero points, and would be rounded once more to %s", zb_show(l->files.path),
          name, is, to->text);
}

static bool has(Load *l, uint32_t param, const ZxTensorInfo *own, uint32_t iter, const char **missing,
                ZbErr *misfit) {
  uint32_t parts = zx_map_parts(&l->map, param), found = 0;
  const char *there = NULL;
  *missing = parts ? NULL : own->path; /* the map is of others */
  for (uint32_t k = 0; k < parts; k++) {
    ZxPart p = zx_map_part(&l->map, l->e->a, param, iter, own, k);
    uint32_t at = zx_shards_find(&l->files, p.info.path);
    if (at == ZB_NO_NAME) {
      if (!*missing) *missing = p.info.path;
      continue;
    }
    if (l->words && (l->rows[param] = zx_rows_there(&l->files, at, l->e->p->graph, param, &p)))
      p.info.shape[0] = l->rows[param];
    if (!*misfit->text && !zx_shards_fits(&l->files, at, &p.info, misfit) && !l->words &&
        zx_rows_there(&l->files, at, l->e->p->graph, param, &p))
      snprintf(misfit->help, sizeof misfit->help, "--new-tokens mean lets the rows begin that are not there");
    if (!*misfit->text) check_zeros(l, param, at, p.info.path, misfit);
    l->used[at] = true;
    there = p.info.path;
    found++;
  }
  if (found && *missing && !*misfit->text)
    zb_fail(misfit, "copy the folder again", "%s has '%s' and lacks '%s'; both are of parameter '%s'",
            zb_show(l->files.path), there, *missing, own->path);
  return !*missing || found;
}

/* Names, shapes and types of all parameters, also of those that other ranks read. */
static bool look(Load *l, bool partial, ZxLoaded *x) {
  enum { NAMED = 6 };
  ZbArena *a = l->e->a;
  const char *first = NULL, *missing;
  ZbErr misfit = {0};
  x->names = "";
  for (uint32_t i = 0; i < l->e->p->graph->nparams; i++)
    for (uint32_t k = 0; k < zx_iterations(l->e, i); k++) {
      ZxTensorInfo t = zx_tensor_info(l->e, i, k);
      if (has(l, i, &t, k, &missing, &misfit)) {
        x->read++;
        continue;
      }
      if (!zp_has_param(l->e->p, i)) continue;
      if (!first) first = missing;
      if (x->drawn < NAMED) x->names = zb_printf(a, "%s%s%s", x->names, x->drawn ? ", " : "", t.path);
      if (x->drawn++ == NAMED) x->names = zb_printf(a, "%s, ...", x->names);
    }
  for (uint32_t i = 0; i < l->files.names.n; i++) {
    const char *name = l->files.names.name[i];
    if (!l->used[i] && i >= l->adapter)
      return zb_fail(l->err, "is it an adapter of this model?", "%s: '%s' has no place in model %s",
                     zb_show(l->files.path), zb_show(name), l->e->p->graph->model);
    if (l->used[i] || zx_map_ignores(&l->map, name)) continue;
    if (!x->extra || strcmp(name, x->first_extra) < 0) x->first_extra = zb_strdup(a, name);
    x->extra++;
  }
  if (x->extra && *misfit.text) return zb_fail(l->err, misfit.help, "%s", misfit.text);
  if (!judge(l, x, partial, first)) return false;
  return !*misfit.text || zb_fail(l->err, misfit.help, "%s", misfit.text);
}

/* ---- copies ---- */
/* Rows first..last-1 of two tensors of a shape: are they the same? A window at a time. */
static bool same_rows(const Load *l, uint32_t a, uint32_t b, int64_t cols, int64_t first, int64_t last,
                      bool *same) {
  enum { WINDOW = 1 << 20 };
  int64_t rows = cols < WINDOW ? WINDOW / cols : 1;
  size_t bytes = 2 * (size_t)(rows * cols) * sizeof(float);
  float *x = malloc(bytes), *y = x + rows * cols;
  if (!x) zb_out_of_memory(bytes);
  bool ok = true;
  *same = true;
  for (int64_t at = first, n; ok && *same && at < last; at += n) {
    n = last - at < rows ? last - at : rows;
    ZxBox box = {.naxes = 2, .count = {n, cols}, .from = at * cols, .stride = {cols, 1}, .step = {cols, 1}};
    uint64_t all = (uint64_t)(n * cols);
    ok = zx_box_read(&l->files, a, &box, x, all, l->err) && zx_box_read(&l->files, b, &box, y, all, l->err);
    *same = ok && !memcmp(x, y, all * sizeof *x);
  }
  free(x);
  return ok;
}

/* A tensor that the map leaves out as a copy of another, such as the head of a model that is tied, is one: else the
 * folder's model is not this one. Every rank compares its share. */
static bool check_copies(const Load *l) {
  ZxTensorInfo copy, of;
  const ZgGraph *g = l->e->p->graph;
  int64_t rank = l->e->rank, ranks = l->e->p->layout.mesh.nranks;
  for (uint32_t i = 0; i < g->nignored; i++) {
    if (!zx_map_copy(&l->map, i, &copy, &of)) continue;
    uint32_t a = zx_shards_find(&l->files, copy.path), b = zx_shards_find(&l->files, of.path);
    bool same;
    if (a == ZB_NO_NAME || b == ZB_NO_NAME) continue;
    if (l->words) copy.shape[0] = of.shape[0] = zx_shards_info(&l->files, b).shape[0];
    if (!zx_shards_fits(&l->files, a, &copy, l->err)) return false;
    int64_t cols = of.nshape ? of.shape[of.nshape - 1] : 1, n = 1;
    for (int k = 0; k < of.nshape - 1; k++) n *= of.shape[k];
    int64_t each = (n + ranks - 1) / ranks, first = rank * each < n ? rank * each : n;
    if (!same_rows(l, a, b, cols, first, n - first < each ? n : first + each, &same)) return false;
    if (!same)
      return zb_fail(l->err,
                     "if it is meant, compile a model that has it as a parameter of its own; else remove it "
                     "from the file",
                     "%s: '%s' differs from '%s', of which model %s takes it for a copy",
                     zb_show(l->files.path), copy.path, of.path, g->model);
  }
  return true;
}

/* ---- reading ---- */
/* A parameter that the files lack is drawn, by all threads. */
static bool open_slice(ZxWalk *w) {
  Load *l = w->ctx;
  ZxTensorInfo own = zx_tensor_info(w->e, w->s->param, w->iter);
  if (!zx_map_parts(&l->map, w->s->param)) return w->draws = true;
  ZxPart p = zx_map_part(&l->map, w->e->a, w->s->param, w->iter, &own, 0);
  w->draws = zx_shards_find(&l->files, p.info.path) == ZB_NO_NAME;
  return true;
}

/* The box of a slice's indices that local elements first..last-1 are in: what is not among them belongs to
 * nowhere in w->base. False if the part has nothing of it. */
static bool box_of(const ZxWalk *w, const ZxPart *p, ZxBox *b) {
  int64_t there = ((const Load *)w->ctx)->rows[w->s->param];
  const ZpSlice *s = w->s;
  ZpValue v = {.type.naxes = (uint8_t)s->naxes};
  memcpy(v.state, s->state, sizeof v.state);
  int64_t lo[ZG_MAX_AXES], hi[ZG_MAX_AXES], step = 1, from = (int64_t)w->first, to = (int64_t)w->last - 1;
  *b = (ZxBox){.naxes = s->naxes, .from = p->first, .to = -(int64_t)w->first};
  for (int a = s->naxes; a-- > 0; step *= s->size[a]) {
    lo[a] = from / step % s->size[a];
    hi[a] = to / step % s->size[a];
    b->step[a] = step;
    b->stride[a] = a == p->fixed ? 0 : p->stride[a];
  }
  for (int a = 0, whole = 0; a < s->naxes; a++) {
    int64_t start = zp_view_start(&w->e->p->layout.mesh, &v, w->e->rank, s->axis[a], s->size[a]), l = lo[a],
            h = hi[a];
    if (whole) l = 0, h = s->size[a] - 1;
    whole |= l != h;
    if (start + h >= s->valid[a]) h = s->valid[a] - 1 - start; /* the rest is padding */
    if (there && a == 0 && start + h >= there) h = there - 1 - start;
    if (a == p->fixed && (p->at < start + l || p->at > start + h)) return false;
    if (a == p->fixed) l = h = p->at - start;
    if (l > h) return false;
    b->count[a] = h - l + 1;
    b->from += (start + l) * b->stride[a];
    b->to += l * b->step[a];
  }
  return true;
}

static bool name_element(void *ctx, uint64_t global, uint64_t local, uint64_t n) {
  (void)local;
  (void)n;
  *(uint64_t *)ctx = global;
  return true;
}

/* Training goes on from finite values only: what else there is came out of a run that had failed, or out of
 * another program. */
static bool is_finite(const ZxWalk *w) {
  int64_t i = zb_not_finite(w->base, w->last - w->first);
  if (i < 0) return true;
  uint64_t local = w->first + (uint64_t)i, global = 0;
  zx_stretches(&w->e->p->layout.mesh, w->e->rank, w->s, local, local + 1, name_element, &global);
  return zb_fail(w->err, "take a file of an earlier state", "%s: %s is %g",
                 zb_show(((Load *)w->ctx)->files.path), zx_element(w, global),
                 zb_plain_nan((double)w->base[i]));
}

/* A box in parts, which threads take one after the other. */
typedef struct {
  ZxReading r;
  int parts;
  atomic_int next;
  struct Part {
    bool ok, finite;
    ZbErr err;
  } * part;
} Boxed;

static void read_parts(void *arg, int thread, int threads) {
  Boxed *x = arg;
  (void)thread;
  (void)threads;
  for (int i; (i = atomic_fetch_add(&x->next, 1)) < x->parts;) {
    struct Part *p = &x->part[i];
    p->finite = true;
    p->ok = zx_box_read_part(&x->r, i, x->parts, &p->finite, &p->err);
  }
}

/* Reads a box by all threads. Of what goes wrong the first part's is said. */
static bool read_box(const ZxWalk *w, const ZxReading *r, bool *finite) {
  enum { LEAST = 1 << 18 }; /* elements of a part */
  int64_t all = 1, most = 4 * (int64_t)zk_pool_threads(w->e->env->pool);
  for (int a = 0; a < r->box.naxes; a++) all *= r->box.count[a];
  if (most > all / LEAST + 1) most = all / LEAST + 1;
  Boxed x = {.r = *r, .parts = (int)most, .part = calloc((size_t)most, sizeof *x.part)};
  if (!x.part) zb_out_of_memory((size_t)most * sizeof *x.part);
  if (most > 1) zk_pool_run(w->e->env->pool, read_parts, &x);
  else read_parts(&x, 0, 1);
  bool ok = true;
  for (int i = 0; i < x.parts && ok; i++) {
    *finite &= x.part[i].finite;
    if (!x.part[i].ok) *w->err = x.part[i].err, ok = false;
  }
  free(x.part);
  return ok;
}

/* Says whether this rank has all of a parameter. */
static bool has_whole(const ZpSlice *s) {
  for (int i = 0; i < s->naxes; i++)
    if (s->size[i] < s->valid[i]) return false;
  return true;
}

static bool read_slice(ZxWalk *w) {
  const Load *l = w->ctx;
  ZxTensorInfo own = zx_tensor_info(w->e, w->s->param, w->iter);
  bool finite = true;
  for (uint32_t k = 0; k < zx_map_parts(&l->map, w->s->param); k++) {
    ZxPart p = zx_map_part(&l->map, w->e->a, w->s->param, w->iter, &own, k);
    ZxReading r = {.files = &l->files, .out = w->base, .n = w->last - w->first};
    if (!box_of(w, &p, &r.box)) continue;
    r.tensor = zx_shards_find(&l->files, p.info.path);
    /* What follows is read while this is rounded. */
    if (has_whole(w->s)) zx_shards_ahead(&l->files, r.tensor);
    if (!read_box(w, &r, &finite)) return false;
  }
  int64_t there = l->rows[w->s->param];
  if (there) {
    ZxPart p = zx_map_part(&l->map, w->e->a, w->s->param, w->iter, &own, 0);
    if (!zx_fill_rows(l->words, &l->files, zx_shards_find(&l->files, p.info.path), &p, there, w, w->err))
      return false;
  }
  return finite || is_finite(w);
}

static bool load_own(ZxEngine *e, const ZxFrom *from, ZxLoaded *x, ZbErr *err) {
  Load l = {.e = e, .words = from->words, .err = err};
  if (!zx_map_open(&l.map, e->a, e->p->graph, from->names, err) ||
      !zx_shards_open(&l.files, e->a, from->path, err))
    return false;
  l.adapter = l.files.names.n;
  for (uint32_t i = 0; i < from->adapters.n; i++)
    if (!zx_shards_add(&l.files, e->a, from->adapters.s[i], zg_adapter_mark(e->a, i), err)) return false;
  l.used = ZB_NEWN(e->a, bool, l.files.names.n);
  l.rows = ZB_NEWN(e->a, int64_t, e->p->graph->nparams + 1);
  ZxWalk read = {.open = open_slice, .slice = read_slice, .each = zx_draw_run, .ctx = &l, .err = err};
  bool ok = look(&l, from->partial, x) && check_copies(&l) && zx_walk(e, &read);
  ZbText coded = {0};
  zx_shards_tell(&l.files, &coded);
  x->coded = coded.s ? zb_strdup(e->a, coded.s) : NULL;
  zb_text_free(&coded);
  zx_shards_close(&l.files);
  return ok;
}

bool zx_engine_load(ZxEngine *e, const ZxFrom *from, ZxLoaded *out, ZbErr *err) {
  *out = (ZxLoaded){0};
  ZxWalk check = {.each = zx_check_run, .fetch = true, .err = err};
  if (!zx_agree(e->world, load_own(e, from, out, err))) return false;
  if (out->drawn && !zx_agree(e->world, zx_walk(e, &check))) return false;
  zx_begin_average(e);
  return zx_publish_initial(e, err);
}

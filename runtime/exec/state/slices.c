/* Where the values of a slice of a parameter are in the whole model. */
#include "runtime/exec/state/slices.h"

#include <string.h>

uint32_t zx_iterations(const ZxEngine *e, uint32_t param) {
  uint32_t s = e->p->graph->params[param].segment;
  return s == ZG_NONE ? 1 : e->p->graph->segments[s].trip;
}

ZxTensorInfo zx_tensor_info(ZxEngine *e, uint32_t param, uint32_t iter) {
  const ZgParam *q = &e->p->graph->params[param];
  ZxTensorInfo t = {.path = zx_path(e, param, iter), .nshape = q->type.naxes};
  for (int i = 0; i < q->type.naxes; i++) t.shape[i] = e->p->layout.axis_valid[q->type.axis[q->order[i]]];
  return t;
}

/* ---- stretches ---- */
/* Where local element `at` of a slice begins in the whole parameter, and how many follow it there before the
 * row ends: fewer than are left of the local row where that runs into padding, 0 in padding. */
static uint64_t place(const ZpSlice *s, const int64_t *start, uint64_t at, uint64_t *global) {
  int last = s->naxes - 1;
  uint64_t row = s->naxes ? (uint64_t)s->size[last] : 1, left = at / row, scale = 1;
  bool padding = false;
  *global = 0;
  for (int a = last; a >= 0; a--) {
    uint64_t i = a == last ? at % row : left % (uint64_t)s->size[a];
    if (a != last) left /= (uint64_t)s->size[a];
    uint64_t whole = (uint64_t)start[a] + i;
    padding |= whole >= (uint64_t)s->valid[a];
    *global += whole * scale;
    scale *= (uint64_t)s->valid[a];
  }
  if (padding) return 0;
  uint64_t n = row - at % row;
  if (last < 0) return n;
  uint64_t room = (uint64_t)s->valid[last] - ((uint64_t)start[last] + at % row);
  return n < room ? n : room;
}

bool zx_stretches(const ZpMesh *m, int64_t rank, const ZpSlice *s, uint64_t from, uint64_t to, ZxStretch each,
                  void *ctx) {
  ZpValue v = {.type.naxes = (uint8_t)s->naxes};
  memcpy(v.state, s->state, sizeof v.state);
  int64_t start[ZG_MAX_AXES];
  for (int a = 0; a < s->naxes; a++) start[a] = zp_view_start(m, &v, rank, s->axis[a], s->size[a]);
  uint64_t row = s->naxes ? (uint64_t)s->size[s->naxes - 1] : 1, global = 0, local = 0, n = 0;
  for (uint64_t at = from; at < to;) {
    uint64_t step = row - at % row, next, more = place(s, start, at, &next);
    if (step > to - at) step = to - at;
    if (more > step) more = step;
    if (n && (next != global + n || at != local + n)) { /* not what comes next, here and there */
      if (!each(ctx, global, local, n)) return false;
      n = 0;
    }
    if (!n) global = next, local = at;
    n += more;
    at += step;
  }
  return !n || each(ctx, global, local, n);
}

static bool call_each(void *ctx, uint64_t global, uint64_t local, uint64_t n) {
  ZxWalk *w = ctx;
  return w->each(w, global, n, w->base + (local - w->first));
}

static bool walk_slice(ZxWalk *w, uint64_t from, uint64_t to) {
  return zx_stretches(&w->e->p->layout.mesh, w->e->rank, w->s, from, to, call_each, w);
}

typedef struct {
  ZxWalk *w;
  uint64_t from, to;
} Parts;

static void walk_part(void *arg, int part, int parts) {
  const Parts *p = arg;
  uint64_t n = (p->to - p->from) / (uint64_t)parts + 1, lo = p->from + n * (uint64_t)part, hi = lo + n;
  if (lo < p->to) walk_slice(p->w, lo, hi < p->to ? hi : p->to);
}

bool zx_walk_slice(ZxEngine *e, const ZpStageBucket *h, const ZpSlice *s, uint64_t lo, uint64_t hi,
                   float *base, ZxWalk *w) {
  w->e = e;
  w->held = h;
  w->s = s;
  w->iter = h->iter;
  w->path = zx_path(e, s->param, h->iter);
  w->stream = zb_stream(w->path);
  w->base = base;
  w->first = lo - s->at;
  w->last = hi - s->at;
  if (w->open && !w->open(w)) return false;
  if (w->draws) return zk_pool_run(e->env->pool, walk_part, &(Parts){w, w->first, w->last}), true;
  return w->slice ? w->slice(w) : walk_slice(w, w->first, w->last);
}

static void clear_part(void *arg, int part, int parts) {
  const Parts *p = arg;
  uint64_t n = p->to / (uint64_t)parts + 1, lo = n * (uint64_t)part;
  if (lo < p->to) memset(p->w->values + lo, 0, (p->to - lo < n ? p->to - lo : n) * sizeof *p->w->values);
}

void zx_walk_clear(ZxEngine *e, ZxWalk *w, uint64_t n) {
  zk_pool_run(e->env->pool, clear_part, &(Parts){w, 0, n});
}

const char *zx_element(const ZxWalk *w, uint64_t global) {
  const char *text = "]";
  for (int a = w->s->naxes; a-- > 0; global /= (uint64_t)w->s->valid[a])
    text = zb_printf(w->e->a, "%s%llu%s", a ? ", " : "[",
                     (unsigned long long)(global % (uint64_t)w->s->valid[a]), text);
  return zb_printf(w->e->a, "%s%s", w->path, w->s->naxes ? text : "");
}

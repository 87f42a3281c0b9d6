/* Walks the values of parameters on this rank: the same for those that are drawn, read, written and looked
 * at. */
#include "runtime/exec/state/slices.h"

#include <string.h>

/* Path of iteration `iter`: the `*` becomes its number. */
const char *zx_path(ZxEngine *e, uint32_t param, uint32_t iter) {
  const char *t = e->p->graph->params[param].path, *star = strchr(t, '*');
  return star ? zb_printf(e->a, "%.*s%u%s", (int)(star - t), t, iter, star + 1) : t;
}

uint32_t zx_iterations(const ZxEngine *e, uint32_t param) {
  uint32_t s = e->p->graph->params[param].segment;
  return s == ZG_NONE ? 1 : e->p->graph->segments[s].trip;
}

/* Calls w->each for every stretch within local elements from..to of the slice. Padding is skipped (it holds
 * zeros). */
static bool walk_slice(ZxWalk *w, uint64_t from, uint64_t to) {
  const ZpSlice *s = w->s;
  ZpValue v = {.type.naxes = (uint8_t)s->naxes};
  memcpy(v.state, s->state, sizeof v.state);
  int last = s->naxes - 1;
  uint64_t row = s->naxes ? (uint64_t)s->size[last] : 1;
  int64_t start[ZG_MAX_AXES];
  for (int a = 0; a <= last; a++)
    start[a] = zp_view_start(&w->e->p->mesh, &v, w->e->rank, s->axis[a], s->size[a]);
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
    if (!padding && !w->each(w, global, keep, w->base + (at - w->first))) return false;
    at += n;
  }
  return true;
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

/* Stretches of the part [from, to) of held bucket h, whose f32 values start at `values`. */
static bool walk_held(ZxEngine *e, const ZpStageBucket *h, uint64_t from, uint64_t to, float *values,
                      ZxWalk *w) {
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
    if (w->open && !w->open(w)) return false;
    if (w->draws) zk_pool_run(e->env->pool, walk_part, &(Parts){w, w->first, hi - s->at});
    else if (!walk_slice(w, w->first, hi - s->at)) return false;
  }
  return true;
}

/* Walks the f32 values of the owned shard, on the host; those of another device are fetched before, or
 * brought there after. */
static bool walk_own(ZxEngine *e, const ZpStageBucket *h, ZxWalk *w) {
  uint64_t from, to;
  zx_owned_shard(e, h, &from, &to);
  float *own = w->grads ? zx_grads(e, h) : zx_master(e, h), *values = w->values ? w->values : own;
  size_t bytes = (to - from) * sizeof *own;
  if (w->values && w->fetch) {
    e->dev->download(e->env, values, own, bytes);
    if (!zx_finish(e, w->err)) return false;
  } else if (w->values) {
    memset(values, 0, bytes); /* padding */
  }
  if (!walk_held(e, h, from, to, values, w)) return false;
  if (!w->values || w->fetch) return true;
  e->dev->upload(e->env, own, values, bytes);
  return zx_finish(e, w->err);
}

bool zx_walk(ZxEngine *e, ZxWalk *w) {
  uint64_t most = 1;
  for (uint32_t i = 0; i < e->st->nheld; i++) {
    uint64_t from, to;
    zx_owned_shard(e, &e->st->held[i], &from, &to);
    if (to - from > most) most = to - from;
  }
  if (!e->dev->host && !(w->values = e->dev->pinned(e->env, most * sizeof(float), w->err))) return false;
  bool ok = true;
  for (uint32_t i = 0; ok && i < e->st->nheld; i++)
    if (!w->fetch || zx_is_norm_owner(e, &e->st->held[i])) ok = walk_own(e, &e->st->held[i], w);
  if (w->values) e->dev->unpin(e->env, w->values);
  return ok;
}

const char *zx_element(const ZxWalk *w, uint64_t global) {
  const char *text = "]";
  for (int a = w->s->naxes; a-- > 0; global /= (uint64_t)w->s->valid[a])
    text = zb_printf(w->e->a, "%s%llu%s", a ? ", " : "[",
                     (unsigned long long)(global % (uint64_t)w->s->valid[a]), text);
  return zb_printf(w->e->a, "%s%s", w->path, w->s->naxes ? text : "");
}

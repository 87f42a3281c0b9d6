/* Walks the values of parameters on this rank: the same for those that are drawn, read, written and looked
 * at. */
#include "runtime/exec/state/slices.h"

#include <string.h>

const char *zx_path(ZxEngine *e, uint32_t param, uint32_t iter) {
  const char *t = e->p->graph->params[param].path, *star = strchr(t, '*');
  return star ? zb_printf(e->a, "%.*s%u%s", (int)(star - t), t, iter, star + 1) : t;
}

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

/* Stretches of the part [from, to) of held bucket h, whose f32 values start at `values`. */
static bool walk_held(ZxEngine *e, const ZpStageBucket *h, uint64_t from, uint64_t to, float *values,
                      ZxWalk *w) {
  const ZpBucket *k = &e->p->programs.buckets[h->bucket];
  for (uint32_t i = 0; i < k->nslices; i++) {
    const ZpSlice *s = &k->slices[i];
    uint64_t lo = from > s->at ? from : s->at, hi = to < s->at + s->n ? to : s->at + s->n;
    if (lo >= hi) continue;
    w->e = e;
    w->held = h;
    w->s = s;
    w->iter = h->iter;
    w->path = zx_path(e, s->param, h->iter);
    w->stream = zb_stream(w->path);
    w->base = values + (lo - from);
    w->first = lo - s->at;
    w->last = hi - s->at;
    if (w->open && !w->open(w)) return false;
    if (w->draws) zk_pool_run(e->env->pool, walk_part, &(Parts){w, w->first, w->last});
    else if (!(w->slice ? w->slice(w) : walk_slice(w, w->first, w->last))) return false;
  }
  return true;
}

/* ---- formats ---- */
enum { PIECE = 1 << 20 }; /* elements on their way between the host and a device, whole blocks */

/* Moves elements first .. first + n, in a format other than f32, between a device and f32 values on its host,
 * piece by piece. Whole blocks travel. */
static bool move_pieces(ZxEngine *e, ZkFlat dev, uint64_t first, uint64_t n, float *x, bool fetch,
                        ZbErr *err) {
  uint64_t block = zk_elem_info[dev.elem].block;
  ZkFlat here = {dev.elem, e->dev->pinned(e->env, zk_bytes(dev.elem, PIECE), err)};
  bool ok = here.at;
  if (!ok) err->passing = true;
  for (uint64_t at = first, m; ok && at < first + n; at += m) {
    uint64_t lo = at / block * block;
    m = lo + PIECE - at < first + n - at ? lo + PIECE - at : first + n - at;
    char *there = zk_flat_from(dev, lo).at;
    uint64_t bytes = zk_bytes(dev.elem, at + m - lo);
    if (!fetch) zk_cpu_encode(e->env, (int64_t)m, x + (at - first), here);
    if (fetch) e->dev->download(e->env, here.at, there, bytes);
    else e->dev->upload(e->env, there, here.at, bytes);
    ok = zx_finish(e, err);
    if (ok && fetch) zk_cpu_decode(e->env, here, (int64_t)(at - lo), (int64_t)m, x + (at - first));
  }
  if (here.at) e->dev->unpin(e->env, here.at);
  return ok;
}

/* The same of f32 values that are there in halves. */
static bool move_halves(ZxEngine *e, ZkMaster dev, uint64_t first, uint64_t n, float *x, bool fetch,
                        ZbErr *err) {
  uint16_t *room = e->dev->pinned(e->env, 2 * PIECE * sizeof *room, err);
  ZkMaster here = {.high = room, .low = (int16_t *)room + PIECE};
  bool ok = room;
  if (!ok) err->passing = true;
  for (uint64_t at = 0, m; ok && at < n; at += m) {
    m = PIECE < n - at ? PIECE : n - at;
    ZkMaster there = zk_master_from(dev, first + at);
    if (!fetch) zk_cpu_split(e->env, (int64_t)m, x + at, here);
    for (int half = 0; half < 2; half++) {
      void *on_host = half ? (void *)here.low : here.high, *on_device = half ? (void *)there.low : there.high;
      if (fetch) e->dev->download(e->env, on_host, on_device, m * sizeof *room);
      else e->dev->upload(e->env, on_device, on_host, m * sizeof *room);
    }
    ok = zx_finish(e, err);
    if (ok && fetch) zk_cpu_join(e->env, here, (int64_t)m, x + at);
  }
  if (room) e->dev->unpin(e->env, room);
  return ok;
}

/* Returns a slice of packed weights, and how its values lie where they are f32: in declared order. */
static ZkView packed_view(const ZxEngine *e, const ZpSlice *s, ZkFlat bucket, ZkView *plain) {
  ZkView packed = zp_packed_view(e->p, s);
  int64_t stride = 1;
  packed.data = zk_flat_from(bucket, s->at).at;
  *plain = (ZkView){.elem = ZK_F32, .rank = (uint8_t)s->naxes};
  for (int i = s->naxes; i-- > 0; stride *= s->size[i])
    plain->axis[i] = s->axis[i], plain->size[i] = s->size[i], plain->stride[i] = stride;
  return packed;
}

static void unpack_values(ZxEngine *e, const ZpStageBucket *h, ZkFlat from, uint64_t first, uint64_t n,
                          float *x) {
  const ZpBucket *k = &e->p->programs.buckets[h->bucket];
  memset(x, 0, n * sizeof *x);
  for (uint32_t i = 0; i < k->nslices; i++) {
    const ZpSlice *s = &k->slices[i];
    uint64_t lo = first > s->at ? first : s->at, hi = first + n < s->at + s->n ? first + n : s->at + s->n;
    if (lo >= hi) continue;
    ZkView plain, packed = packed_view(e, s, from, &plain);
    zk_cpu_unpack(e->env, &packed, &plain, (int64_t)(lo - s->at), (int64_t)(hi - lo), x + (lo - first));
  }
}

static void pack_values(ZxEngine *e, const ZpStageBucket *h, ZkFlat to, const float *x) {
  const ZpBucket *k = &e->p->programs.buckets[h->bucket];
  memset(to.at, 0, zk_bytes(to.elem, k->elems));
  for (uint32_t i = 0; i < k->nslices; i++) {
    ZkView plain, packed = packed_view(e, &k->slices[i], to, &plain);
    plain.data = (void *)(x + k->slices[i].at);
    zk_cpu_pack(e->env, &plain, &packed);
  }
}

/* Packs a whole bucket, or unpacks elements first .. first + n of it: of a device with memory of its own, on its
 * host. */
static bool move_packed(ZxEngine *e, const ZpStageBucket *h, ZkFlat own, uint64_t first, uint64_t n, float *x,
                        bool fetch, ZbErr *err) {
  uint64_t bytes = zk_bytes(own.elem, e->p->programs.buckets[h->bucket].elems);
  ZkFlat here = own;
  if (!e->dev->host && !(here.at = e->dev->pinned(e->env, bytes, err))) return err->passing = true, false;
  bool ok = true, moves = here.at != own.at;
  if (moves && fetch) e->dev->download(e->env, here.at, own.at, bytes), ok = zx_finish(e, err);
  if (ok && fetch) unpack_values(e, h, here, first, n, x);
  if (!fetch) pack_values(e, h, here, x);
  if (moves && !fetch) e->dev->upload(e->env, own.at, here.at, bytes), ok = zx_finish(e, err);
  if (moves) e->dev->unpin(e->env, here.at);
  return ok;
}

/* Says whether these are the low halves of values, of which the high ones are the bucket's rounded values. */
static bool are_halves(ZkFlat x) { return x.elem == ZK_U16; }

bool zx_fetch_values(ZxEngine *e, const ZpStageBucket *h, ZkFlat from, uint64_t first, uint64_t n, float *x,
                     ZbErr *err) {
  if (zk_is_packed(from.elem)) return move_packed(e, h, from, first, n, x, true, err);
  if (from.elem == ZK_F32) return e->dev->download(e->env, x, (float *)from.at + first, n * sizeof *x), true;
  if (!e->dev->host && are_halves(from)) return move_halves(e, zx_master(e, h), first, n, x, true, err);
  if (!e->dev->host) return move_pieces(e, from, first, n, x, true, err);
  if (are_halves(from)) zk_cpu_join(e->env, zk_master_from(zx_master(e, h), first), (int64_t)n, x);
  else zk_cpu_decode(e->env, from, (int64_t)first, (int64_t)n, x);
  return true;
}

/* Writes values of a whole shard in its format; of f32 ones the copy is only begun. */
static bool put_values(ZxEngine *e, const ZpStageBucket *h, ZkFlat to, uint64_t n, float *x, ZbErr *err) {
  if (zk_is_packed(to.elem)) return move_packed(e, h, to, 0, n, x, false, err);
  if (to.elem == ZK_F32) return e->dev->upload(e->env, to.at, x, n * sizeof *x), true;
  if (!e->dev->host && are_halves(to)) return move_halves(e, zx_master(e, h), 0, n, x, false, err);
  if (!e->dev->host) return move_pieces(e, to, 0, n, x, false, err);
  if (are_halves(to)) zk_cpu_split(e->env, (int64_t)n, x, zx_master(e, h));
  else zk_cpu_encode(e->env, (int64_t)n, x, to);
  return true;
}

/* Whether there is nothing of what the walk is after: gradients and states of what is frozen. */
static bool lacks(const ZxEngine *e, const ZpStageBucket *h, const ZxWalk *w) {
  const ZpBucket *k = &e->p->programs.buckets[h->bucket];
  return w->grads ? k->frozen : w->state > zp_states(e->p, k);
}

static void clear_part(void *arg, int part, int parts) {
  const Parts *p = arg;
  uint64_t n = p->to / (uint64_t)parts + 1, lo = n * (uint64_t)part;
  if (lo < p->to) memset(p->w->values + lo, 0, (p->to - lo < n ? p->to - lo : n) * sizeof *p->w->values);
}

/* Walks the f32 values of the owned shard, on the host; those of another device are fetched before, or
 * brought there after. */
static bool walk_own(ZxEngine *e, const ZpStageBucket *h, ZxWalk *w) {
  uint64_t from, to;
  zx_owned_shard(e, h, &from, &to);
  if (lacks(e, h, w)) return true;
  int values_part = zx_lacks_master(e, h) ? ZP_PART_ROUNDED : ZP_PART_VALUES;
  ZkFlat own = w->grads ? (ZkFlat){ZK_F32, zx_grads(e, h)} : zx_part(e, h, w->state ? w->state : values_part);
  if (!w->values) return walk_held(e, h, from, to, own.at, w);
  if (w->fetch) {
    if (!zx_fetch_values(e, h, own, 0, to - from, w->values, w->err) || !zx_finish(e, w->err)) return false;
  } else {
    zk_pool_run(e->env->pool, clear_part, &(Parts){w, 0, to - from}); /* padding */
  }
  if (!walk_held(e, h, from, to, w->values, w)) return false;
  return w->fetch || (put_values(e, h, own, to - from, w->values, w->err) && zx_finish(e, w->err));
}

bool zx_walk(ZxEngine *e, ZxWalk *w) {
  uint64_t most = 1;
  bool through = !e->dev->host;
  for (uint32_t i = 0; i < e->st->nheld; i++) {
    const ZpBucket *k = &e->p->programs.buckets[e->st->held[i].bucket];
    uint64_t from, to;
    zx_owned_shard(e, &e->st->held[i], &from, &to);
    if (to - from > most) most = to - from;
    through |= k->elem != ZK_F32 || (w->state && zp_part_elem(e->p, k, w->state) != ZK_F32);
  }
  if (through && !(w->values = e->dev->pinned(e->env, most * sizeof *w->values, w->err)))
    return w->err->passing = true, false;
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

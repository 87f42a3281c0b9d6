/* Walks the values of parameters on this rank: the same for those that are drawn, read, written and looked at, in whatever
 * format they lie. */
#include "runtime/exec/state/slices.h"

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

/* Says whether these are the low halves of values, of which the high ones are the bucket's rounded values. */
static bool are_halves(ZkFlat x) { return x.elem == ZK_U16; }

bool zx_fetch_values(ZxEngine *e, const ZpStageBucket *h, ZkFlat from, uint64_t first, uint64_t n, float *x,
                     ZbErr *err) {
  if (zk_is_packed(from.elem)) return zx_fetch_packed(e, h, from, first, n, x, err);
  if (from.elem == ZK_F32) return e->dev->download(e->env, x, (float *)from.at + first, n * sizeof *x), true;
  if (!e->dev->host && are_halves(from)) return move_halves(e, zx_master(e, h), first, n, x, true, err);
  if (!e->dev->host) return move_pieces(e, from, first, n, x, true, err);
  if (are_halves(from)) zk_cpu_join(e->env, zk_master_from(zx_master(e, h), first), (int64_t)n, x);
  else zk_cpu_decode(e->env, from, (int64_t)first, (int64_t)n, x);
  return true;
}

/* Writes values of a whole shard in its format; of f32 ones the copy is only begun. */
static bool put_values(ZxEngine *e, const ZpStageBucket *h, ZkFlat to, uint64_t n, float *x, ZbErr *err) {
  if (to.elem == ZK_F32) return e->dev->upload(e->env, to.at, x, n * sizeof *x), true;
  if (!e->dev->host && are_halves(to)) return move_halves(e, zx_master(e, h), 0, n, x, false, err);
  if (!e->dev->host) return move_pieces(e, to, 0, n, x, false, err);
  if (are_halves(to)) zk_cpu_split(e->env, (int64_t)n, x, zx_master(e, h));
  else zk_cpu_encode(e->env, (int64_t)n, x, to);
  return true;
}

/* ---- walks ---- */
/* Walks the part [from, to) of held bucket h, whose f32 values start at `values`. */
static bool walk_held(ZxEngine *e, const ZpStageBucket *h, uint64_t from, uint64_t to, float *values,
                      ZxWalk *w) {
  const ZpBucket *k = &e->p->programs.buckets[h->bucket];
  for (uint32_t i = 0; i < k->nslices; i++) {
    const ZpSlice *s = &k->slices[i];
    uint64_t lo = from > s->at ? from : s->at, hi = to < s->at + s->n ? to : s->at + s->n;
    if (lo < hi && !zx_walk_slice(e, h, s, lo, hi, values + (lo - from), w)) return false;
  }
  return true;
}

/* Whether there is nothing of what the walk is after: gradients and states of what is frozen. */
static bool lacks(const ZxEngine *e, const ZpStageBucket *h, const ZxWalk *w) {
  const ZpBucket *k = &e->p->programs.buckets[h->bucket];
  return w->grads ? k->frozen : w->state > zp_states(e->p, k);
}

/* Walks the f32 values of the owned shard, on the host; those of another device are fetched before, or
 * brought there after. */
static bool walk_own(ZxEngine *e, const ZpStageBucket *h, ZxWalk *w) {
  uint64_t from, to;
  zx_owned_shard(e, h, &from, &to);
  if (lacks(e, h, w)) return true;
  int values_part = zx_lacks_master(e, h) ? ZP_PART_ROUNDED : ZP_PART_VALUES;
  ZkFlat own = w->grads ? zx_grads(e, h) : zx_part(e, h, w->state ? w->state : values_part);
  if (!w->fetch && zk_is_packed(own.elem)) return zx_walk_packed(e, h, own, w);
  if (!w->values) return walk_held(e, h, from, to, own.at, w);
  if (w->fetch) {
    if (!zx_fetch_values(e, h, own, 0, to - from, w->values, w->err) || !zx_finish(e, w->err)) return false;
  } else {
    zx_walk_clear(e, w, to - from); /* padding */
  }
  if (!walk_held(e, h, from, to, w->values, w)) return false;
  return w->fetch || (put_values(e, h, own, to - from, w->values, w->err) && zx_finish(e, w->err));
}

bool zx_walk(ZxEngine *e, ZxWalk *w) {
  uint64_t most = 1;
  bool through = !e->dev->host;
  for (uint32_t i = 0; i < e->st->nheld; i++) {
    const ZpBucket *k = &e->p->programs.buckets[e->st->held[i].bucket];
    uint64_t from, to, n;
    zx_owned_shard(e, &e->st->held[i], &from, &to);
    bool packs = !w->fetch && zk_is_packed((ZkElem)k->elem);
    n = packs ? zx_packed_room(e, &e->st->held[i]) : to - from;
    if (n > most) most = n;
    through |= w->grads ? k->grad != ZK_F32 : k->elem != ZK_F32;
    through |= w->state && zp_part_elem(e->p, k, w->state) != ZK_F32;
  }
  bool ok = !through || (w->values = e->dev->pinned(e->env, most * sizeof *w->values, w->err));
  if (!ok) w->err->passing = true;
  for (uint32_t i = 0; i < e->st->nheld; i++) { /* to the end, since others gather with this rank */
    if (w->fetch && !zx_is_norm_owner(e, &e->st->held[i])) continue;
    if (w->fetch && !w->grads && !w->state) zx_gather_packed(e, &e->st->held[i]);
    ok = ok && walk_own(e, &e->st->held[i], w);
  }
  if (w->values) e->dev->unpin(e->env, w->values);
  return ok;
}

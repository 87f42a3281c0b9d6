/* Values of packed weights (kernels/packed.h): rounded slice by slice as they arrive, unpacked when they are asked for.
 *
 * A shard of a bucket is a part of its bytes, wherever that cuts matrices: codes lie in one rank's, their scales
 * perhaps in another's. So ranks round all slices of which they own something, and keep their bytes; and before
 * values are read all shards come together, as for a step. */
#include "runtime/exec/state/slices.h"

#include <string.h>

static const ZpBucket *bucket_of(const ZxEngine *e, const ZpStageBucket *h) {
  return &e->p->programs.buckets[h->bucket];
}

/* Returns a slice of packed weights, and how its values lie where they are f32: in declared order. */
static ZkView packed_view(const ZxEngine *e, const ZpSlice *s, void *at, ZkView *plain) {
  ZkView packed = zp_packed_view(e->p, s);
  int64_t stride = 1;
  packed.data = at;
  *plain = (ZkView){.elem = ZK_F32, .rank = (uint8_t)s->naxes};
  for (int i = s->naxes; i-- > 0; stride *= s->size[i])
    plain->axis[i] = s->axis[i], plain->size[i] = s->size[i], plain->stride[i] = stride;
  return packed;
}

/* ---- into panels --------------------------------------------------------------------------------------- */
typedef struct {
  uint64_t at, lo,
      hi; /* bytes: where its first own one lies in the shard, and lo .. hi - 1 of the slice are own */
} Own;

/* Finds what of slice s is this rank's; lo == hi: nothing. */
static Own own_of(const ZxEngine *e, const ZpStageBucket *h, const ZpSlice *s) {
  uint64_t from, to, at = s->at, end = s->at + s->takes;
  ZkElem elem = (ZkElem)bucket_of(e, h)->elem;
  zx_owned_shard(e, h, &from, &to);
  if (from > at) at = from;
  if (to < end) end = to;
  if (at >= end) return (Own){0};
  return (Own){zk_bytes(elem, at - from), zk_bytes(elem, at - s->at), zk_bytes(elem, end - s->at)};
}

/* Returns how many elements the largest slice has of which this rank owns something. */
uint64_t zx_packed_room(const ZxEngine *e, const ZpStageBucket *h) {
  const ZpBucket *k = bucket_of(e, h);
  uint64_t most = 0;
  for (uint32_t i = 0; i < k->nslices; i++)
    if (k->slices[i].n > most && own_of(e, h, &k->slices[i]).hi) most = k->slices[i].n;
  return most;
}

static bool has_padding(const ZpSlice *s) {
  for (int i = 0; i < s->naxes; i++)
    if (s->valid[i] != s->whole[i]) return true;
  return false;
}

/* Rounds w->values, which are a slice's, to where it begins in this rank's bytes; or through memory of its own, where
 * only a part of them is, or the device has other memory. */
static bool put_slice(ZxEngine *e, const ZpSlice *s, const Own *own, ZkFlat shard, ZxWalk *w) {
  uint64_t bytes = zk_bytes(shard.elem, s->takes);
  char *there = (char *)shard.at + own->at, *here = there;
  bool through = !e->dev->host || own->hi - own->lo < bytes, ok = true;
  if (through && !(here = e->dev->pinned(e->env, bytes, w->err))) return w->err->passing = true, false;
  ZkView plain, packed = packed_view(e, s, here, &plain);
  plain.data = w->values;
  if (through) memset(here, 0, bytes);
  zk_cpu_pack(e->env, &plain, &packed);
  if (through) {
    e->dev->upload(e->env, there, here + own->lo, own->hi - own->lo);
    ok = zx_finish(e, w->err);
    e->dev->unpin(e->env, here);
  }
  return ok;
}

bool zx_walk_packed(ZxEngine *e, const ZpStageBucket *h, ZkFlat shard, ZxWalk *w) {
  const ZpBucket *k = bucket_of(e, h);
  uint64_t from, to;
  zx_owned_shard(e, h, &from, &to);
  e->dev->zero(e->env, shard.at, zk_bytes(shard.elem, to - from)); /* what fills panels and units */
  if (!zx_finish(e, w->err)) return false;
  for (uint32_t i = 0; i < k->nslices; i++) {
    const ZpSlice *s = &k->slices[i];
    Own own = own_of(e, h, s);
    if (!own.hi) continue;
    if (has_padding(s)) zx_walk_clear(e, w, s->n);
    if (!zx_walk_slice(e, h, s, s->at, s->at + s->n, w->values, w) || !put_slice(e, s, &own, shard, w))
      return false;
  }
  return true;
}

/* ---- and back ------------------------------------------------------------------------------------------ */
static bool is_cut(const ZpBucket *k) { return zk_is_packed((ZkElem)k->elem) && k->gathers; }

/* Returns the room that steps gather a bucket into, which is free between them. */
static char *gather_room(ZxEngine *e, const ZpStageBucket *h) {
  for (uint32_t i = 0; i < e->st->prog.nbufs; i++)
    if (e->st->prog.bufs[i].kind == ZP_B_GATHER && e->st->prog.bufs[i].pool == h->bucket)
      return zx_buf_at(e, &e->st->prog.bufs[i]);
  ZB_BUG("bucket %s is never gathered", bucket_of(e, h)->name);
}

void zx_gather_packed(ZxEngine *e, const ZpStageBucket *h) {
  const ZpBucket *k = bucket_of(e, h);
  uint64_t from, to;
  if (!is_cut(k)) return;
  zx_owned_shard(e, h, &from, &to);
  uint64_t bytes = zk_bytes((ZkElem)k->elem, to - from);
  zx_await(e, e->c->t->all_gather(e->c, e->group[k->shard], zx_stored(e, ZP_B_PARAM, h), bytes,
                                  gather_room(e, h)));
}

static void unpack_values(ZxEngine *e, const ZpStageBucket *h, ZkFlat from, uint64_t first, uint64_t n,
                          float *x) {
  const ZpBucket *k = bucket_of(e, h);
  memset(x, 0, n * sizeof *x);
  for (uint32_t i = 0; i < k->nslices; i++) {
    const ZpSlice *s = &k->slices[i];
    uint64_t lo = first > s->at ? first : s->at, hi = first + n < s->at + s->n ? first + n : s->at + s->n;
    if (lo >= hi) continue;
    ZkView plain, packed = packed_view(e, s, zk_flat_from(from, s->at).at, &plain);
    zk_cpu_unpack(e->env, &packed, &plain, (int64_t)(lo - s->at), (int64_t)(hi - lo), x + (lo - first));
  }
}

bool zx_fetch_packed(ZxEngine *e, const ZpStageBucket *h, ZkFlat own, uint64_t first, uint64_t n, float *x,
                     ZbErr *err) {
  const ZpBucket *k = bucket_of(e, h);
  uint64_t from, to, bytes = zk_bytes(own.elem, k->elems);
  zx_owned_shard(e, h, &from, &to);
  if (is_cut(k)) own.at = gather_room(e, h), first += from;
  if (e->dev->host) return zx_finish(e, err) && (unpack_values(e, h, own, first, n, x), true);
  ZkFlat here = {own.elem, e->dev->pinned(e->env, bytes, err)};
  if (!here.at) return err->passing = true, false;
  e->dev->download(e->env, here.at, own.at, bytes);
  bool ok = zx_finish(e, err);
  if (ok) unpack_values(e, h, here, first, n, x);
  e->dev->unpin(e->env, here.at);
  return ok;
}

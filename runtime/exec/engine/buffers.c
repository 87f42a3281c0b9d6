/* Where things lie in the arena: the buffers of an instruction, and of a bucket the shard that this rank
 * owns.
 *
 * A rank's *owned shard* of a bucket is what it updates: its part where optimizer states are cut, else all of
 * it. Where several ranks own the same (replicas, copies of a tied parameter on other stages) they compute
 * the same; exactly one of them counts it in the norm and writes it to files. */
#include "runtime/exec/engine/internal.h"

#include <string.h>

static char *address(const ZxEngine *e, const ZpBuf *b) {
  return (b->memory == ZP_HOST ? e->host : e->arena) + b->offset;
}

/* ---- buffers of an instruction ---- */
char *zx_buf_at(ZxEngine *e, const ZpBuf *b) {
  uint64_t end = b->offset + b->bytes;
  if (b->memory == ZP_DEVICE && b->kind != ZP_B_SCRATCH && end > e->high) e->high = end;
  return address(e, b);
}

const ZpAccess *zx_find_access(const ZxEngine *e, const ZpInstr *in, ZpBufKind kind, uint32_t pool) {
  for (uint32_t i = 0; i < in->naccess; i++) {
    const ZpBuf *b = &e->st->prog.bufs[in->access[i].buf];
    if (b->kind == kind && (pool == ZP_NONE || b->pool == pool)) return &in->access[i];
  }
  return NULL;
}

char *zx_find_buf(ZxEngine *e, const ZpInstr *in, ZpBufKind kind, uint32_t pool) {
  const ZpAccess *x = zx_find_access(e, in, kind, pool);
  return x ? zx_buf_at(e, &e->st->prog.bufs[x->buf]) : NULL;
}

char *zx_need_buf(ZxEngine *e, const ZpInstr *in, ZpBufKind kind, uint32_t pool) {
  char *p = zx_find_buf(e, in, kind, pool);
  if (!p) ZB_BUG("%s has no buffer of kind %d", zp_instr_info[in->op].text, kind);
  return p;
}

/* ---- what is stored of a bucket ---- */
void zx_find_stored(ZxEngine *e) {
  e->stored = ZB_NEWN(e->a, ZxStored, e->st->nheld);
  for (uint32_t i = 0; i < e->st->prog.nbufs; i++) {
    const ZpBuf *b = &e->st->prog.bufs[i];
    if (b->kind == ZP_B_CACHE) e->caches = b;
    if (zp_is_stored(b->kind)) e->stored[b->pool].of[b->kind - ZP_B_PARAM] = b;
  }
}

char *zx_caches(ZxEngine *e, uint32_t inst) {
  return e->caches ? zx_buf_at(e, e->caches) + e->st->cache_at[inst] : NULL;
}

char *zx_stored(const ZxEngine *e, ZpBufKind kind, const ZpStageBucket *h) {
  return address(e, e->stored[h - e->st->held].of[kind - ZP_B_PARAM]);
}

const char *zx_path(ZxEngine *e, uint32_t param, uint32_t iter) {
  const char *t = e->p->graph->params[param].path, *star = strchr(t, '*');
  return star ? zb_printf(e->a, "%.*s%u%s", (int)(star - t), t, iter, star + 1) : t;
}

/* ---- the owned shard of it ---- */
static const ZpBucket *bucket_of(const ZxEngine *e, const ZpStageBucket *h) {
  return &e->p->programs.buckets[h->bucket];
}

void zx_owned_shard(const ZxEngine *e, const ZpStageBucket *h, uint64_t *from, uint64_t *to) {
  const ZpBucket *k = bucket_of(e, h);
  uint64_t n = k->elems / (uint64_t)zp_group_size(&e->p->layout.mesh, k->shard);
  *from = (uint64_t)zp_group_index(&e->p->layout.mesh, e->rank, k->shard) * n;
  *to = *from + n;
}

bool zx_is_norm_owner(const ZxEngine *e, const ZpStageBucket *h) {
  const ZpBucket *k = bucket_of(e, h);
  return h->norm_owner && zp_group_index(&e->p->layout.mesh, e->rank, k->replicas & ~k->shard) == 0;
}

bool zx_spoken_part(const ZxEngine *e, const ZpStageBucket *h, uint64_t *from, uint64_t *to) {
  const ZpBucket *k = bucket_of(e, h);
  uint64_t end, n = zp_spoken_elems(e->p, h->bucket);
  zx_owned_shard(e, h, from, &end);
  *from += n * (uint64_t)zp_group_index(&e->p->layout.mesh, e->rank, k->replicas & ~k->shard);
  *to = *from + n < end ? *from + n : end;
  return h->norm_owner && *from < *to;
}

bool zx_is_frozen(const ZxEngine *e, const ZpStageBucket *h) { return bucket_of(e, h)->frozen; }

bool zx_lacks_master(const ZxEngine *e, const ZpStageBucket *h) {
  return zp_lacks_master(e->p, bucket_of(e, h));
}

/* Parameters lie in front, in the format that computes; if that is not f32, what is missing to f32 lies behind. */
static char *params_at(const ZxEngine *e, const ZpStageBucket *h, int part, uint64_t from) {
  const ZpBucket *k = bucket_of(e, h);
  char *at = zx_stored(e, ZP_B_PARAM, h);
  if (part == ZP_PART_VALUES && k->elem != ZK_F32) return at + zp_param_bytes(e->p, h->bucket);
  return at + (k->gathers ? 0 : zk_bytes((ZkElem)k->elem, from));
}

ZkFlat zx_part(const ZxEngine *e, const ZpStageBucket *h, int part) {
  const ZpBucket *k = bucket_of(e, h);
  uint64_t from, to;
  int first, end = zp_held_parts(e->p, k, &first);
  ZB_ASSERT(first <= part && part < end);
  zx_owned_shard(e, h, &from, &to);
  char *at = part > 0 ? zx_stored(e, ZP_B_STATE, h) : params_at(e, h, part, from);
  for (int i = 1; i < part; i++) at += zk_bytes(zp_part_elem(e->p, k, i), to - from);
  return (ZkFlat){zp_part_elem(e->p, k, part), at};
}

static float *f32(ZkFlat x) {
  ZB_ASSERT(x.elem == ZK_F32);
  return x.at;
}

ZkMaster zx_master(const ZxEngine *e, const ZpStageBucket *h) {
  ZkFlat own = zx_part(e, h, ZP_PART_VALUES);
  if (own.elem == ZK_F32) return (ZkMaster){.f32 = own.at};
  return (ZkMaster){.high = zx_rounded(e, h), .low = own.at};
}

uint16_t *zx_rounded(const ZxEngine *e, const ZpStageBucket *h) {
  return bucket_of(e, h)->elem == ZK_F32 ? NULL : zx_part(e, h, ZP_PART_ROUNDED).at;
}

ZkFlat zx_grads(const ZxEngine *e, const ZpStageBucket *h) {
  const ZpBucket *k = bucket_of(e, h);
  uint64_t from, to;
  zx_owned_shard(e, h, &from, &to);
  return zk_flat_from((ZkFlat){(ZkElem)k->grad, zx_stored(e, ZP_B_GRAD, h)}, zp_shards_grads(k) ? 0 : from);
}

float *zx_moments(const ZxEngine *e, const ZpStageBucket *h) {
  return (float *)(void *)(zx_stored(e, ZP_B_STATE, h) + zp_moments_at(e->p, h->bucket));
}

float *zx_state(const ZxEngine *e, const ZpStageBucket *h, int state) {
  return f32(zx_part(e, h, 1 + state));
}

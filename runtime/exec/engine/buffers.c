/* Where things lie in the arena: the buffers of an instruction, and of a bucket the shard that this rank
 * owns.
 *
 * A rank's *owned shard* of a bucket is what it updates: its part where optimizer states are cut, else all of
 * it. Where several ranks own the same (replicas, copies of a tied parameter on other stages) they compute
 * the same; exactly one of them counts it in the norm and writes it to files. */
#include "runtime/exec/engine/internal.h"

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
    if (zp_is_stored(b->kind)) e->stored[b->pool].of[b->kind - ZP_B_PARAM] = b;
  }
}

char *zx_stored(const ZxEngine *e, ZpBufKind kind, const ZpStageBucket *h) {
  return address(e, e->stored[h - e->st->held].of[kind - ZP_B_PARAM]);
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

/* The owned shard of elements that are stored `at`: all of them (`cut`), or inside. */
static void *shard_at(const ZxEngine *e, const ZpStageBucket *h, char *at, bool cut, size_t elem) {
  uint64_t from, to;
  zx_owned_shard(e, h, &from, &to);
  return at + (cut ? 0 : from * elem);
}

bool zx_is_frozen(const ZxEngine *e, const ZpStageBucket *h) { return bucket_of(e, h)->frozen; }

bool zx_only_rounded(const ZxEngine *e, const ZpStageBucket *h) {
  return e->p->asked.compute != ZK_F32 && (e->p->asked.forward_only || zx_is_frozen(e, h));
}

float *zx_master(const ZxEngine *e, const ZpStageBucket *h) {
  char *params = zx_stored(e, ZP_B_PARAM, h);
  if (e->p->asked.compute == ZK_F32) return shard_at(e, h, params, bucket_of(e, h)->gathers, sizeof(float));
  ZB_ASSERT(!zx_only_rounded(e, h));
  return (float *)(void *)(params + zp_param_bytes(e->p, h->bucket));
}

uint16_t *zx_rounded(const ZxEngine *e, const ZpStageBucket *h) {
  if (e->p->asked.compute == ZK_F32) return NULL;
  return shard_at(e, h, zx_stored(e, ZP_B_PARAM, h), bucket_of(e, h)->gathers, sizeof(uint16_t));
}

float *zx_grads(const ZxEngine *e, const ZpStageBucket *h) {
  return shard_at(e, h, zx_stored(e, ZP_B_GRAD, h), zp_stages_grads(bucket_of(e, h)), sizeof(float));
}

float *zx_state(const ZxEngine *e, const ZpStageBucket *h, int state) {
  uint64_t from, to;
  bool coded = zp_is_coded(e->p, bucket_of(e, h));
  ZB_ASSERT(state < zp_states(e->p, bucket_of(e, h)) && !(coded && state < 2));
  zx_owned_shard(e, h, &from, &to);
  uint64_t n = to - from;
  char *states = zx_stored(e, ZP_B_STATE, h);
  return (float *)(void *)(states + (coded ? 2 * zp_coded_bytes(n) + n * 4 * (uint64_t)(state - 2)
                                           : n * 4 * (uint64_t)state));
}

bool zx_codes(const ZxEngine *e, const ZpStageBucket *h, int state, ZkCodes *out) {
  uint64_t from, to;
  if (!zp_is_coded(e->p, bucket_of(e, h)) || state > 1) return false;
  zx_owned_shard(e, h, &from, &to);
  char *at = zx_stored(e, ZP_B_STATE, h) + (state ? zp_coded_bytes(to - from) : 0);
  *out = (ZkCodes){(uint8_t *)at, (float *)(void *)(at + (to - from))};
  return true;
}

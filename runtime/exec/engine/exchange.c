/* Instructions of the transfer and the collective queue: how each starts, and what is left to do when it is
 * complete. The instruction says which collective, over which dims, and how many bytes. */
#include "runtime/exec/engine/internal.h"

static uint64_t shard_elems(const ZxEngine *e, const ZpBucket *k) {
  return k->elems / (uint64_t)zp_group_size(&e->p->layout.mesh, k->shard);
}
static uint64_t shard_index(const ZxEngine *e, const ZpBucket *k) {
  return (uint64_t)zp_group_index(&e->p->layout.mesh, e->rank, k->shard);
}

/* ---- buckets ---- */
static ZxRequest gather(ZxEngine *e, const ZpInstr *in, const ZpBucket *k, const char *shard, char *all) {
  ZB_ASSERT(in->coll == ZG_OP_ALL_GATHER && in->bytes == zk_bytes((ZkElem)k->elem, k->elems));
  uint64_t members = (uint64_t)zp_group_size(&e->p->layout.mesh, in->dims);
  return e->c->t->all_gather(e->c, e->group[in->dims], shard, in->bytes / members, all);
}

/* What is summed over ranks, made narrow if it travels so. */
static ZkElem pack(ZxEngine *e, const ZpInstr *in, const ZpBucket *k, ZkFlat grads, uint64_t elems) {
  ZkElem elem = zx_travels_narrow(in, k) ? (ZkElem)k->reduce : grads.elem;
  ZB_ASSERT(in->bytes == (in->dims ? zk_bytes(elem, elems) : 0));
  if (elem != grads.elem) zx_narrow(e, grads.at, elems);
  return elem;
}

static ZxRequest reduce(ZxEngine *e, const ZpInstr *in, const ZpBucket *k, ZxGroup group, ZkFlat grads,
                        uint64_t elems) {
  ZB_ASSERT(in->coll == ZG_OP_ALL_REDUCE);
  return e->c->t->all_reduce(e->c, group, grads.at, elems, pack(e, in, k, grads, elems), ZX_SUM);
}

static ZxRequest scatter(ZxEngine *e, const ZpInstr *in, const ZpBucket *k, ZkFlat all) {
  if (!in->dims) return -1; /* complete on every rank already */
  if (in->coll == ZG_OP_ALL_REDUCE) return reduce(e, in, k, e->group[in->dims], all, k->elems);
  uint64_t n = shard_elems(e, k);
  ZB_ASSERT(in->coll == ZG_OP_REDUCE_SCATTER && in->dims == k->shard);
  ZkElem elem = pack(e, in, k, all, k->elems);
  char *own = (char *)all.at + zk_bytes(elem, shard_index(e, k) * n);
  return e->c->t->reduce_scatter(e->c, e->group[in->dims], all.at, n, elem, ZX_SUM, own);
}

/* Of Muon: a rank's part is block number so-and-so of the whole, `n` elements. */
static float *update_of(ZxEngine *e, const ZpInstr *in, uint64_t n, uint64_t *at) {
  *at = (uint64_t)zp_group_index(&e->p->layout.mesh, e->rank, in->dims) * n;
  ZB_ASSERT(in->bytes == n * (uint64_t)zp_group_size(&e->p->layout.mesh, in->dims) * sizeof(float));
  return (float *)(void *)zx_need_buf(e, in, ZP_B_UPDATE, ZP_NONE);
}

static ZxRequest gather_updates(ZxEngine *e, const ZpInstr *in, uint64_t n) {
  uint64_t at;
  float *all = update_of(e, in, n, &at);
  return e->c->t->all_gather(e->c, e->group[in->dims], all + at, n * sizeof *all, all);
}

static ZxRequest scatter_updates(ZxEngine *e, const ZpInstr *in, uint64_t n) {
  uint64_t at;
  float *all = update_of(e, in, n, &at);
  return e->c->t->reduce_scatter(e->c, e->group[in->dims], all, n, ZK_F32, ZX_SUM, all + at);
}

/* The whole gradient that a scatter is of: where it is accumulated, or a staged one. */
static ZkFlat scattered(ZxEngine *e, const ZpInstr *in, const ZpStageBucket *h) {
  if (!in->in_place) return (ZkFlat){ZK_F32, zx_need_buf(e, in, ZP_B_STAGING, h->bucket)};
  return (ZkFlat){(ZkElem)e->p->programs.buckets[h->bucket].grad, zx_stored(e, ZP_B_GRAD, h)};
}

static ZxRequest start_bucket_collective(ZxEngine *e, const ZpInstr *in) {
  const ZpStageBucket *h = &e->st->held[in->held];
  const ZpBucket *k = &e->p->programs.buckets[h->bucket];
  char *params = zx_stored(e, ZP_B_PARAM, h);
  uint64_t from, to;
  zx_owned_shard(e, h, &from, &to);
  switch (in->op) {
  case ZP_I_GATHER_PARAMS: return gather(e, in, k, params, zx_need_buf(e, in, ZP_B_GATHER, h->bucket));
  case ZP_I_PUBLISH_PARAMS: return gather(e, in, k, params + zk_bytes((ZkElem)k->elem, from), params);
  case ZP_I_SCATTER_GRADS: return scatter(e, in, k, scattered(e, in, h));
  case ZP_I_GATHER_UPDATES: return gather_updates(e, in, to - from);
  case ZP_I_SCATTER_UPDATES: return scatter_updates(e, in, to - from);
  case ZP_I_REDUCE_GRADS: return reduce(e, in, k, e->group[in->dims], zx_grads(e, h), to - from);
  case ZP_I_REDUCE_TIED: return reduce(e, in, k, e->tied[in->tied], zx_grads(e, h), to - from);
  default: ZB_BUG("%s in the collective queue", zp_instr_info[in->op].text);
  }
}

/* Loss sums and norm: each counted by exactly one rank of those that hold the same. */
static ZxRequest start_step_sums(ZxEngine *e, const ZpInstr *in) {
  const ZpMesh *m = &e->p->layout.mesh;
  ZpDims all = zp_all_dims(m);
  const ZxSums *s = &e->sums;
  bool first = zp_group_index(m, e->rank, all) == 0;
  for (uint32_t k = 0; k < e->nlosses; k++)
    if (zp_group_index(m, e->rank, all & ~e->p->layout.num_partial[k]))
      e->dev->zero(e->env, &s->loss[k], sizeof s->loss[k]);
  if (first) /* stages without a loss have counted nothing of it */
    e->dev->copy(e->env, s->denominator, e->count.denominator, e->nlosses * sizeof *s->denominator);
  else e->dev->zero(e->env, s->aux, sizeof *s->aux);
  ZB_ASSERT(in->bytes == (in->dims ? zp_step_sums(e->p) * sizeof(double) : 0));
  if (!in->dims) return -1; /* of one rank; or of a step of generation, which has no sums */
  return e->c->t->all_reduce(e->c, 0, s->loss, zp_step_sums(e->p), ZK_F64, ZX_SUM);
}

/* Of each denominator every part once; other losses may be split over more dims. */
static ZxRequest start_count(ZxEngine *e, const ZpInstr *in) {
  double *x = e->count.denominator;
  if (!in->dims) return -1;
  ZB_ASSERT(in->bytes == e->nlosses * sizeof *x);
  for (uint32_t k = 0; k < e->nlosses; k++)
    if (zp_group_index(&e->p->layout.mesh, e->rank, in->dims & ~e->p->layout.den_partial[k]))
      e->dev->zero(e->env, &x[k], sizeof x[k]);
  return e->c->t->all_reduce(e->c, e->group[in->dims], x, e->nlosses, ZK_F64, ZX_SUM);
}

static void invert_counts(ZxEngine *e) {
  for (uint32_t k = 0; k < e->nlosses; k++)
    e->dev->reciprocal(e->env, &e->count.denominator[k], &e->count.seed[zp_seed_index(false, k)]);
}

ZxRequest zx_start_exchange(ZxEngine *e, const ZpInstr *in) {
  const ZxCommTable *t = e->c->t;
  int peer = (int)zp_rank_of_stage(&e->p->layout.mesh, e->rank, in->peer);
  uint64_t act = zx_carried_bytes(e, in);
  switch (in->op) {
  case ZP_I_SEND_ACT:
    return t->send(e->c, zx_need_buf(e, in, ZP_B_SEND_ACT, ZP_NONE), act, peer, (int)in->pair);
  case ZP_I_RECV_ACT:
    return t->recv(e->c, zx_need_buf(e, in, ZP_B_RECV_ACT, ZP_NONE), act, peer, (int)in->pair);
  case ZP_I_SEND_GRAD:
    return t->send(e->c, zx_need_buf(e, in, ZP_B_SEND_GRAD, ZP_NONE), in->bytes, peer, (int)in->pair);
  case ZP_I_RECV_GRAD:
    return t->recv(e->c, zx_need_buf(e, in, ZP_B_RECV_GRAD, ZP_NONE), in->bytes, peer, (int)in->pair);
  case ZP_I_REDUCE_COUNT: return start_count(e, in);
  case ZP_I_REDUCE_STEP: return start_step_sums(e, in);
  default: return start_bucket_collective(e, in);
  }
}

/* This rank's part of a gradient that has been summed, in f32 where it lies; of one that is staged, then added to what
 * the rank accumulates. */
static void finish_scatter(ZxEngine *e, const ZpInstr *in) {
  const ZpStageBucket *h = &e->st->held[in->held];
  const ZpBucket *k = &e->p->programs.buckets[h->bucket];
  uint64_t n = shard_elems(e, k), at = shard_index(e, k) * n;
  float *all = scattered(e, in, h).at;
  if (zx_travels_narrow(in, k)) zx_widen(e, (const uint16_t *)(const void *)all + at, all + at, n);
  if (in->in_place) return;
  if (k->grad != ZK_F32) zx_accumulate(e, in, all);
  else e->dev->axpy(e->env, (int64_t)n, 1, all + at, zx_grads(e, h).at);
}

static void finish_reduction(ZxEngine *e, const ZpInstr *in) {
  const ZpStageBucket *h = &e->st->held[in->held];
  uint64_t from, to;
  zx_owned_shard(e, h, &from, &to);
  float *x = zx_grads(e, h).at;
  if (zx_travels_narrow(in, &e->p->programs.buckets[h->bucket]))
    zx_widen(e, (const uint16_t *)(const void *)x, x, to - from);
}

void zx_finish_exchange(ZxEngine *e, const ZpInstr *in) {
  switch (in->op) {
  case ZP_I_REDUCE_COUNT: invert_counts(e); break;
  case ZP_I_SCATTER_GRADS: finish_scatter(e, in); break;
  case ZP_I_REDUCE_GRADS:
  case ZP_I_REDUCE_TIED: finish_reduction(e, in); break;
  default: break;
  }
}

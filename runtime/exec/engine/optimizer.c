/* The end of a step on this rank's shards of the parameters: squared norm, clipping, updates, the rounded
 * copy. */
#include "runtime/exec/engine/internal.h"

/* Of states: what they have in place of gradients is no part of the norm. */
static bool is_updated(const ZxEngine *e, const ZpStageBucket *h) {
  return e->p->asked.optimizers[e->p->programs.buckets[h->bucket].optimizer].kind == ZP_UPDATE;
}

/* Sums of squares of parameters to whose size updates are relative: of the part of each that this rank owns. */
static void add_sizes(ZxEngine *e, const ZpStageBucket *h) {
  const ZpBucket *k = &e->p->programs.buckets[h->bucket];
  uint64_t own, end;
  zx_owned_shard(e, h, &own, &end);
  for (uint32_t i = 0; i < k->nslices; i++) {
    const ZpSlice *s = &k->slices[i];
    uint64_t from = s->at > own ? s->at : own, to = s->at + s->n < end ? s->at + s->n : end;
    if (from < to)
      e->dev->sumsq_params(e->env, (int64_t)(to - from), zk_master_from(zx_master(e, h), from - own),
                           zx_size_of(e, h, s->param));
  }
}

double *zx_size_of(const ZxEngine *e, const ZpStageBucket *h, uint32_t param) {
  return &e->sums.sizes[zp_size_index(e->p, param, h->iter)];
}

void zx_norm_local(ZxEngine *e) {
  for (uint32_t i = 0; i < e->st->nheld; i++) {
    const ZpStageBucket *h = &e->st->held[i];
    uint64_t from, to;
    if (zx_is_frozen(e, h) || !zx_is_norm_owner(e, h) || is_updated(e, h)) continue;
    zx_owned_shard(e, h, &from, &to);
    e->dev->sumsq(e->env, (int64_t)(to - from), zx_grads(e, h), e->sums.squares);
    if (e->p->asked.optimizers[e->p->programs.buckets[h->bucket].optimizer].relative) add_sizes(e, h);
  }
}

/* The update of a state, which no optimizer has a part in. */
static void update_state(ZxEngine *e, const ZgUpdate *from, int64_t n, const float *g, ZkMaster w) {
  ZkUpdate u = {.n = (int)from->n};
  for (uint32_t i = 0; i < from->n; i++) {
    const ZgUpdateStep *s = &from->steps[i];
    u.op[i] = (ZkPointwiseOp){.op = s->op, .a = s->a, .b = s->b, .c = s->c, .num = (float)s->num};
  }
  e->dev->update(e->env, &u, &e->clip, n, g, w);
}

ZkOptimizer zx_call_of(const ZxEngine *e, const ZpStageBucket *h, uint32_t group, uint64_t at) {
  const ZpOptimizer *o = &e->p->asked.optimizers[e->p->asked.groups[group].optimizer];
  ZkOptimizer x = {.kind = o->kind, .times = 1, .cautious = o->cautious, .group = group};
  int own = o->states - (o->every > 1);
  for (int k = 0; k < own; k++) x.state[k] = zk_flat_from(zx_part(e, h, 1 + k), at);
  if (o->every > 1) x.sum = zx_state(e, h, own) + at;
  x.s = zk_scalars_of(e->step_state, group);
  return x;
}

/* A call of a planned update, on n elements from `at` of the owned shard on. Of a matrix the gradient is what was made
 * of it, which is clipped already. */
static void play_call(ZxEngine *e, const ZpStageBucket *h, const ZpUpdateCall *c, uint64_t at, int64_t n,
                      const ZkFlat *update) {
  const ZpGroup *group = &e->p->asked.groups[c->group];
  ZkMaster w = zk_master_from(zx_master(e, h), at);
  ZkFlat g = zk_flat_from(update ? *update : zx_grads(e, h), at);
  if (group->update) {
    update_state(e, group->update, n, g.at, w); /* its measure is f32 */
  } else {
    ZkOptimizer x = zx_call_of(e, h, c->group, at);
    if (update) x.kind = ZK_BY_PLAIN, x.sum = NULL;
    x.times = (float)c->times;
    e->dev->optimize(e->env, &x, update ? &e->unclipped : &e->clip, n, g, w);
  }
  if (e->p->asked.average <= 0) return;
  int states = zp_states(e->p, &e->p->programs.buckets[h->bucket]);
  e->dev->average(e->env, &e->clip, n, (float)e->p->asked.average, w, zx_state(e, h, states - 1) + at);
}

void zx_optimize(ZxEngine *e, const ZpStageBucket *h, const ZkFlat *update) {
  const ZpBucket *k = &e->p->programs.buckets[h->bucket];
  uint64_t own, end;
  zx_owned_shard(e, h, &own, &end);
  for (uint32_t i = 0; i < k->ncalls && !e->look; i++) {
    const ZpUpdateCall *c = &k->calls[i];
    uint64_t from = c->from > own ? c->from : own, to = c->to < end ? c->to : end;
    if (from < to) play_call(e, h, c, from - own, (int64_t)(to - from), update);
  }
}

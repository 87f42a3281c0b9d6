/* The end of a step on this rank's shards of the parameters: squared norm, clipping, AdamW or SGD, the
 * rounded copy. */
#include "runtime/exec/engine/internal.h"

void zx_make_ranges(ZxEngine *e) {
  e->ranges = ZB_NEWN(e->a, ZxRange *, e->p->programs.nbuckets);
  e->nranges = ZB_NEWN(e->a, uint32_t, e->p->programs.nbuckets);
  for (uint32_t i = 0; i < e->p->programs.nbuckets; i++) {
    const ZpBucket *k = &e->p->programs.buckets[i];
    for (uint32_t j = 0; j < k->nslices; j++) {
      const ZpSlice *s = &k->slices[j];
      uint32_t n = e->nranges[i];
      bool state =
          e->p->graph->params[s->param].state && !k->frozen; /* whose update may make something of zeros */
      /* Gaps hold zeros and stay so. */
      uint64_t to = state ? s->at + s->n : j + 1 < k->nslices ? k->slices[j + 1].at : k->elems;
      if (n && e->ranges[i][n - 1].group == s->group && e->ranges[i][n - 1].to == s->at) {
        e->ranges[i][n - 1].to = to;
        continue;
      }
      ZxRange r = {s->at, to, s->group};
      ZB_PUSH(e->a, e->ranges[i], e->nranges[i], r);
    }
  }
}

/* Of states: what they have in place of gradients is no part of the norm. */
static bool is_updated(const ZxEngine *e, const ZpStageBucket *h) {
  return e->p->asked.optimizers[e->p->programs.buckets[h->bucket].optimizer].kind == ZP_UPDATE;
}

void zx_norm_local(ZxEngine *e) {
  for (uint32_t i = 0; i < e->st->nheld; i++) {
    const ZpStageBucket *h = &e->st->held[i];
    uint64_t from, to;
    if (zx_is_frozen(e, h) || !zx_is_norm_owner(e, h) || is_updated(e, h)) continue;
    zx_owned_shard(e, h, &from, &to);
    e->dev->sumsq(e->env, (int64_t)(to - from), zx_grads(e, h), e->sums.squares);
  }
}

/* Elements of a held bucket that are updated alike; `at`: of the owned shard. */
typedef struct {
  const ZpGroup *group;
  int64_t n;
  float *w, *g, *average; /* NULL: there is none */
  ZkFlat state[2];
  uint16_t *w16; /* NULL: none */
} Part;

static void update(ZxEngine *e, const Part *x) {
  uint32_t which = x->group->optimizer;
  const ZpOptimizer *o = &e->p->asked.optimizers[which];
  float times = (float)x->group->rate, lr = (float)e->lr[which] * times, decay = (float)x->group->decay;
  if (o->kind == ZP_UPDATE) {
    const ZgUpdate *from = x->group->update;
    ZkUpdate u = {.n = (int)from->n};
    for (uint32_t i = 0; i < from->n; i++) {
      const ZgUpdateStep *s = &from->steps[i];
      u.op[i] = (ZkPointwiseOp){.op = s->op, .a = s->a, .b = s->b, .c = s->c, .num = (float)s->num};
    }
    e->dev->update(e->env, &u, &e->clip, x->n, x->g, x->w, x->w16);
  } else if (o->kind == ZP_ADAMW) {
    ZkAdamW a = {.lr = lr,
                 .b1 = (float)o->b1,
                 .b2 = (float)o->b2,
                 .eps = (float)o->eps,
                 .decay = decay,
                 .step = e->step,
                 .times = times,
                 .which = (int)which};
    if (x->state[0].elem != ZK_F32)
      e->dev->adamw8(e->env, &a, &e->clip, x->n, x->g, x->w, x->state[0], x->state[1], x->w16);
    else e->dev->adamw(e->env, &a, &e->clip, x->n, x->g, x->w, x->state[0].at, x->state[1].at, x->w16);
  } else if (o->kind == ZP_LION) {
    ZkLion l = {.lr = lr,
                .b1 = (float)o->b1,
                .b2 = (float)o->b2,
                .decay = decay,
                .times = times,
                .which = (int)which};
    e->dev->lion(e->env, &l, &e->clip, x->n, x->g, x->w, x->state[0].at, x->w16);
  } else {
    ZkSgd s = {.lr = lr, .momentum = (float)o->momentum, .decay = decay, .times = times, .which = (int)which};
    e->dev->sgd(e->env, &s, &e->clip, x->n, x->g, x->w, x->state[0].at, x->w16);
  }
}

void zx_optimize(ZxEngine *e, const ZpStageBucket *h) {
  int states = zp_states(e->p, &e->p->programs.buckets[h->bucket]);
  uint64_t own, end;
  if (e->look) return;
  zx_owned_shard(e, h, &own, &end);
  for (uint32_t i = 0; i < e->nranges[h->bucket]; i++) {
    const ZxRange *r = &e->ranges[h->bucket][i];
    uint64_t from = r->from > own ? r->from : own, to = r->to < end ? r->to : end, at = from - own;
    if (from >= to) continue;
    Part x = {.group = &e->p->asked.groups[r->group], .n = (int64_t)(to - from)};
    x.w = zx_master(e, h) + at;
    x.g = zx_grads(e, h) + at;
    for (int k = 0; k < e->p->asked.optimizers[x.group->optimizer].states; k++)
      x.state[k] = zk_flat_from(zx_part(e, h, 1 + k), at);
    if (e->p->asked.average > 0) x.average = zx_state(e, h, states - 1) + at;
    uint16_t *rounded = zx_rounded(e, h);
    if (rounded) x.w16 = rounded + at;
    update(e, &x);
    if (x.average) e->dev->average(e->env, &e->clip, x.n, (float)e->p->asked.average, x.w, x.average);
  }
}

/* The end of a step on this rank's shards of the parameters: squared norm, clipping, AdamW or SGD, the
 * rounded copy; and learning rates. */
#include "runtime/exec/engine/internal.h"

#include <math.h>
#include <string.h>

void zx_make_ranges(ZxEngine *e) {
  e->ranges = ZB_NEWN(e->a, ZxRange *, e->p->nbuckets);
  e->nranges = ZB_NEWN(e->a, uint32_t, e->p->nbuckets);
  for (uint32_t i = 0; i < e->p->nbuckets; i++) {
    const ZpBucket *k = &e->p->buckets[i];
    for (uint32_t j = 0; j < k->nslices; j++) {
      const ZpSlice *s = &k->slices[j];
      uint32_t n = e->nranges[i];
      uint64_t to = j + 1 < k->nslices ? k->slices[j + 1].at : k->elems; /* gaps hold zeros and stay so */
      if (n && e->ranges[i][n - 1].decay == s->decay) {
        e->ranges[i][n - 1].to = to;
        continue;
      }
      ZxRange r = {s->at, to, s->decay};
      ZB_PUSH(e->a, e->ranges[i], e->nranges[i], r);
    }
  }
}

void zx_norm_local(ZxEngine *e) {
  for (uint32_t i = 0; i < e->st->nheld; i++) {
    const ZpStageBucket *h = &e->st->held[i];
    uint64_t from, to;
    if (zx_is_frozen(e, h) || !zx_is_norm_owner(e, h)) continue;
    zx_owned_shard(e, h, &from, &to);
    e->dev->sumsq(e->env, (int64_t)(to - from), zx_grads(e, h), e->sums.squares);
  }
}

void zx_optimize(ZxEngine *e, const ZpStageBucket *h) {
  const ZpOptimizer *o = &e->p->optimizer;
  uint64_t own, end;
  if (e->look) return;
  zx_owned_shard(e, h, &own, &end);
  float *w = zx_master(e, h), *g = zx_grads(e, h), *state[2] = {NULL, NULL};
  for (int i = 0; i < e->p->states; i++) state[i] = zx_state(e, h, i);
  uint16_t *w16 = zx_rounded(e, h);
  for (uint32_t i = 0; i < e->nranges[h->bucket]; i++) {
    const ZxRange *x = &e->ranges[h->bucket][i];
    uint64_t from = x->from > own ? x->from : own, to = x->to < end ? x->to : end;
    if (from >= to) continue;
    uint64_t at = from - own;
    int64_t n = (int64_t)(to - from);
    float decay = x->decay ? (float)o->decay : 0;
    if (o->kind == ZP_ADAMW) {
      ZkAdamW a = {.lr = (float)e->lr,
                   .b1 = (float)o->b1,
                   .b2 = (float)o->b2,
                   .eps = (float)o->eps,
                   .decay = decay,
                   .step = e->step};
      e->dev->adamw(e->env, &a, &e->clip, n, g + at, w + at, state[0] + at, state[1] + at,
                    w16 ? w16 + at : NULL);
    } else {
      ZkSgd s = {.lr = (float)e->lr, .momentum = (float)o->momentum, .decay = decay};
      e->dev->sgd(e->env, &s, &e->clip, n, g + at, w + at, state[0] ? state[0] + at : NULL,
                  w16 ? w16 + at : NULL);
    }
  }
}

/* ---- learning rates ---- */
double zx_rate(const ZxRate *r, int64_t step) {
  ZB_ASSERT(step >= 1);
  if (step <= r->warmup) return r->lr * (double)step / (double)r->warmup;
  if (r->anneal == ZX_CONSTANT) return r->lr;
  double part = step >= r->until ? 1 : (double)(step - r->warmup) / (double)(r->until - r->warmup);
  double rest = r->anneal == ZX_LINEAR ? 1 - part : 0.5 * (1 + cos(M_PI * part)); /* 1 falling to 0 */
  return r->lr * (r->final + (1 - r->final) * rest);
}

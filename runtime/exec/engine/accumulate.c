/* Staged gradients into accumulators in bf16: rounded at random, by draws that depend on the run's seed, the step, the
 * micro-batch, and the element's place in the model. Ranks that add up gradients of one element each for itself draw
 * each for itself; ranks that hold the same draw the same. */
#include "runtime/exec/engine/internal.h"

#include <string.h>

/* Where a slice's elements lie in the whole parameter. Axes that follow each other there as here are one. */
static void find_places(const ZxEngine *e, const ZpSlice *s, ZkDraws *d) {
  ZpValue v = {.type.naxes = (uint8_t)s->naxes};
  memcpy(v.state, s->state, sizeof v.state);
  int64_t scale = 1, size[ZK_DRAW_AXES], stride[ZK_DRAW_AXES];
  int n = 0; /* from the fastest on */
  for (int a = s->naxes; a-- > 0; scale *= s->valid[a]) {
    d->first += zp_view_start(&e->p->layout.mesh, &v, e->rank, s->axis[a], s->size[a]) * scale;
    if (n && stride[n - 1] * size[n - 1] == scale) {
      size[n - 1] *= s->size[a];
      continue;
    }
    size[n] = s->size[a];
    stride[n++] = scale;
  }
  d->naxes = n;
  for (int i = 0; i < n; i++) d->size[i] = size[n - 1 - i], d->stride[i] = stride[n - 1 - i];
}

void zx_make_draws(ZxEngine *e) {
  e->draws = ZB_NEWN(e->a, ZkDraws *, e->st->nheld);
  for (uint32_t i = 0; i < e->st->nheld; i++) {
    const ZpStageBucket *h = &e->st->held[i];
    const ZpBucket *k = &e->p->programs.buckets[h->bucket];
    if (k->grad == ZK_F32) continue;
    e->draws[i] = ZB_NEWN(e->a, ZkDraws, k->nslices);
    for (uint32_t j = 0; j < k->nslices; j++) {
      ZkDraws *d = &e->draws[i][j];
      d->key = zb_random_u64(e->o.seed, zb_stream(zx_path(e, k->slices[j].param, h->iter)), 0);
      find_places(e, &k->slices[j], d);
    }
  }
}

/* Returns the number of this rank's sum among those that are made of a micro-batch and added up later: of ranks with
 * other samples or tokens, and of stages that share a tied parameter. */
static uint64_t number_of(const ZxEngine *e, const ZpInstr *in, const ZpBucket *k) {
  const ZpMesh *m = &e->p->layout.mesh;
  ZpDims apart = k->partial & ~in->dims;
  uint64_t ranks = (uint64_t)zp_group_size(m, apart), n = (uint64_t)zp_group_index(m, e->rank, apart);
  if (e->st->held[in->held].tied != ZP_NONE) n += ranks * e->stage, ranks *= e->p->programs.nstages;
  return in->mb * ranks + n;
}

void zx_accumulate(ZxEngine *e, const ZpInstr *in, const float *all) {
  const ZpStageBucket *h = &e->st->held[in->held];
  const ZpBucket *k = &e->p->programs.buckets[h->bucket];
  uint64_t from = 0, to = k->elems, number = number_of(e, in, k);
  if (zp_shards_grads(k)) zx_owned_shard(e, h, &from, &to);
  uint16_t *sum = (uint16_t *)(void *)zx_stored(e, ZP_B_GRAD, h);
  for (uint32_t j = 0; j < k->nslices; j++) {
    const ZpSlice *s = &k->slices[j];
    uint64_t lo = from > s->at ? from : s->at, hi = to < s->at + s->n ? to : s->at + s->n;
    if (lo >= hi) continue;
    ZkDraws d = e->draws[in->held][j];
    d.key = zb_mix64(d.key + number);
    d.from = (int64_t)(lo - s->at);
    e->dev->add_bf16(e->env, &d, (int64_t)(hi - lo), all + lo, sum + (lo - from));
  }
}

/* Bytes of a stage as schedule/ledger.c will find them, from what its local programs need: without making
 * programs. */
#include "runtime/plan/search/internal.h"

static uint64_t part_of(const BucketNeeds *k, int64_t parts, ZkElem elem) {
  uint64_t whole = zb_round_up(k->elems, 16 * (uint64_t)parts);
  return zb_round_up(zk_bytes(elem, whole / (uint64_t)parts), 64);
}

static uint32_t held(const BucketNeeds *k, const uint32_t *count) {
  if (k->segment != ZP_NONE) return count[k->segment];
  for (uint32_t i = 0; i < k->nusers; i++)
    if (count[k->users[i]]) return 1;
  return 0;
}

/* Returns how many of n iterations are gathered at a time. */
static uint64_t at_once(const Space *x, uint64_t n) {
  uint64_t most = (uint64_t)x->base->prefetch + 1;
  return n < most ? n : most;
}

static uint64_t of_bucket(const Space *x, const Candidate *c, const BucketNeeds *k, uint32_t n) {
  uint64_t bytes = 0;
  int64_t shards = space_shards(x, c, k->alike);
  bool cut = shards > 1, gathers = cut && c->zero == 3, stages = cut && c->zero >= 2 && !k->frozen;
  if (k->frozen && c->zero < 3) cut = false;
  bytes += n * part_of(k, gathers ? shards : 1, k->elem);
  if (!k->frozen) {
    if (k->elem != ZK_F32) bytes += n * part_of(k, cut ? shards : 1, ZK_U16);
    bytes += n * part_of(k, stages ? shards : 1, k->grad);
    uint64_t parts = (uint64_t)(cut ? shards : 1);
    bytes += n * zb_round_up((uint64_t)(k->states * (double)(zb_round_up(k->elems, 16 * parts) / parts)), 64);
  }
  uint64_t whole = zb_round_up(k->elems, 16 * (uint64_t)shards);
  if (gathers) bytes += (c->keep ? n : at_once(x, n)) * zb_round_up(zk_bytes(k->elem, whole), 64);
  if (stages || (k->grad != ZK_F32 && n))
    bytes += (gathers ? at_once(x, n) : n < 2 || !stages ? 1 : 2) * zb_round_up(zk_bytes(ZK_F32, whole), 64);
  return bytes;
}

static uint64_t ring(double scale, uint64_t bytes, uint64_t n) {
  return n * (uint64_t)(scale * (double)zb_round_up(bytes, 64));
}

static uint64_t of_stage(const Space *x, const Candidate *c, const Layout *l, const Stages *s, uint32_t k,
                         double scale) {
  const SegmentNeeds *first = &l->segment[s->first[k]], *last = &l->segment[s->last[k]];
  const ZpRings *r = &rehearsal(x, c->size[DIM_PIPE], nmicro_of(x, c), first->saves_carry)->rings[k];
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < l->nbuckets; i++) {
    uint32_t n = held(&l->bucket[i], &s->count[k * l->nsegments]);
    if (n) bytes += of_bucket(x, c, &l->bucket[i], n);
  }
  bytes += ring(scale, s->slot[k], r->slots) + ring(scale, s->boundary[k], 2) + ring(scale, s->temp[k], 1);
  if (k) bytes += ring(scale, first->carry, r->recv_act) + ring(scale, first->dcarry, r->send_grad);
  if (k + 1 < c->size[DIM_PIPE])
    bytes += ring(scale, last->carry_out, r->send_act) + ring(scale, last->dcarry_out, r->recv_grad);
  return bytes;
}

uint64_t memory_of(const Space *x, const Candidate *c, const Layout *l, const Stages *s, double scale) {
  uint64_t most = 0;
  for (uint32_t k = 0; k < c->size[DIM_PIPE]; k++) {
    uint64_t bytes = of_stage(x, c, l, s, k, scale);
    if (bytes > most) most = bytes;
  }
  return most;
}

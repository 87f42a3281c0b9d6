/* Gradients start a step from nothing. A gradient whose first contribution makes all of it is written by
 * that, not cleared and added to: of 124M parameters this spares writing and reading 1 GB a step. The rest is
 * cleared: what begins with scattered rows, the gaps between slices (they must hold zeros, since norms and
 * reductions run over them), and accumulated shards.
 *
 * The first contribution of a step to a held bucket comes from the backward of its last user on the stage;
 * that is also the first of a micro-batch to its staged gradient, and the plan's operands say so: it writes,
 * others read and write. */
#include "runtime/exec/engine/internal.h"

#include <string.h>

static bool set_by(const ZpSegment *s, uint32_t bucket, const ZpSlice *slice) {
  uint64_t from = slice->at * sizeof(float);
  const ZpList *l = &s->list[ZP_BWD];
  for (uint32_t i = 0; i < l->n; i++)
    for (int k = 0; l->nodes[i].overwrites && k < l->nodes[i].call.nout; k++) {
      const ZpValue *v = &s->values[l->nodes[i].out[k]]; /* a gradient, or several in a row */
      bool covers = v->at.offset <= from && from < v->at.offset + v->bytes;
      if (v->at.space == ZP_AT_GRAD && v->at.index == bucket && covers) return true;
    }
  return false;
}

/* Ranges of bucket `index` of the segment that its backward does not set. */
static ZxClear unset(ZxEngine *e, const ZpSegment *s, uint32_t index) {
  const ZpBucket *k = &e->p->programs.buckets[s->buckets[index]];
  ZxClear c = {0};
  ZxRange gap = {0, 0};
  for (uint32_t j = 0; j <= k->nslices; j++) {
    const ZpSlice *slice = j < k->nslices ? &k->slices[j] : NULL;
    if (slice && !set_by(s, index, slice)) continue;
    gap.to = slice ? slice->at : k->elems;
    if (gap.from < gap.to) ZB_PUSH(e->a, c.range, c.n, gap);
    if (slice) gap.from = slice->at + slice->n;
  }
  return c;
}

void zx_make_clears(ZxEngine *e) {
  uint32_t nsegments = e->p->graph->nsegments;
  e->clear = ZB_NEWN(e->a, ZxClear *, nsegments);
  e->first_write = ZB_NEWN(e->a, bool, e->st->nheld);
  e->first_user = ZB_NEWN(e->a, const ZxClear *, e->st->nheld);
  for (uint32_t i = 0; i < nsegments; i++) {
    const ZpSegment *s = &e->p->programs.segments[i];
    e->clear[i] = ZB_NEWN(e->a, ZxClear, s->nbuckets);
    for (uint32_t j = 0; j < s->nbuckets; j++) e->clear[i][j] = unset(e, s, j);
  }
  for (uint32_t i = 0; i < e->st->ninsts; i++) { /* the last one stays */
    const ZpInst *x = &e->st->insts[i];
    for (uint32_t j = 0; j < x->nheld; j++) e->first_user[x->held[j]] = &e->clear[x->segment][j];
  }
}

static void clear(ZxEngine *e, char *grads, const ZxClear *c) {
  for (uint32_t i = 0; i < c->n; i++)
    e->dev->zero(e->env, grads + c->range[i].from * sizeof(float),
                 (c->range[i].to - c->range[i].from) * sizeof(float));
}

void zx_begin_grads(ZxEngine *e) {
  for (uint32_t i = 0; i < e->st->nheld; i++) {
    const ZpStageBucket *h = &e->st->held[i];
    const ZpBucket *k = &e->p->programs.buckets[h->bucket];
    if (k->frozen) continue;
    char *grads = zx_stored(e, ZP_B_GRAD, h);
    e->first_write[i] = !zp_stages_grads(k) && e->first_user[i] != NULL;
    uint64_t shards = zp_shards_grads(k) ? (uint64_t)zp_group_size(&e->p->layout.mesh, k->shard) : 1;
    if (e->first_write[i]) clear(e, grads, e->first_user[i]);
    else e->dev->zero(e->env, grads, zk_bytes((ZkElem)k->grad, k->elems / shards));
  }
}

bool zx_begin_backward(ZxEngine *e, uint32_t inst, uint32_t i, const ZpAccess *staged, char *grads) {
  const ZpInst *x = &e->st->insts[inst];
  bool fresh = staged ? !(staged->mode & ZP_READ) : e->first_write[x->held[i]];
  if (staged && fresh) clear(e, grads, &e->clear[x->segment][i]);
  e->first_write[x->held[i]] = false;
  return fresh;
}

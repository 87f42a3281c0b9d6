/* Says what ranks hold alike, bit for bit, between steps: the owned shard of a bucket and its states. Ranks
 * of a group along `replicas` without `shard` update them by the same numbers; so do, for a tied bucket, its
 * stages.
 *
 * The rest of what a rank stores is made of these: a step begins with publishing the shards of others under
 * ZeRO-1 and 2, and gathers parameters under ZeRO-3. */
#include "runtime/plan/plan.h"

static ZpAlike alike_of(const ZpPlan *p, const ZpStageBucket *h) {
  const ZpBucket *k = &p->programs.buckets[h->bucket];
  return (ZpAlike){k->replicas & ~k->shard, h->tied};
}

int64_t zp_alike_size(const ZpPlan *p, const ZpAlike *k) {
  return zp_group_size(&p->layout.mesh, k->dims) *
         (k->tied == ZP_NONE ? 1 : p->programs.tied[k->tied].nstages);
}

uint32_t zp_alike_which(const ZpPlan *p, const ZpAlike *list, uint32_t n, const ZpStageBucket *h) {
  ZpAlike k = alike_of(p, h);
  for (uint32_t i = 0; i < n; i++)
    if (list[i].dims == k.dims && list[i].tied == k.tied) return i;
  return ZP_NONE;
}

ZpAlike *zp_alike(const ZpPlan *p, ZbArena *a, uint32_t *n) {
  ZpAlike *list = NULL;
  *n = 0;
  for (uint32_t s = 0; s < p->programs.nstages; s++)
    for (uint32_t i = 0; i < p->programs.stages[s].nheld; i++) {
      const ZpStageBucket *h = &p->programs.stages[s].held[i];
      ZpAlike k = alike_of(p, h);
      if (zp_alike_size(p, &k) > 1 && zp_alike_which(p, list, *n, h) == ZP_NONE) ZB_PUSH(a, list, *n, k);
    }
  return list;
}

int64_t zp_alike_member(const ZpPlan *p, const ZpAlike *k, int64_t rank, int64_t i) {
  int64_t each = zp_group_size(&p->layout.mesh, k->dims);
  if (k->tied != ZP_NONE) {
    const ZpTied *t = &p->programs.tied[k->tied];
    bool in = false;
    for (uint32_t s = 0; s < t->nstages; s++)
      in |= zp_coord(&p->layout.mesh, rank, p->layout.mesh.pipe) == t->stages[s];
    if (!in) return -1;
    rank = zp_rank_of_stage(&p->layout.mesh, rank, t->stages[i / each]);
  }
  return zp_group_member(&p->layout.mesh, rank, k->dims, i % each);
}

/* Returns whether more than half of a group say the same, and what. */
static bool majority(const ZpPlan *p, const ZpAlike *k, int64_t rank, const uint64_t *said, uint32_t stride,
                     uint64_t *most) {
  int64_t n = zp_alike_size(p, k), count = 0;
  for (int64_t i = 0; i < n; i++) { /* by Boyer and Moore: whatever has a majority is left */
    uint64_t x = said[zp_alike_member(p, k, rank, i) * stride];
    if (count == 0) *most = x;
    count += x == *most ? 1 : -1;
  }
  count = 0;
  for (int64_t i = 0; i < n; i++) count += said[zp_alike_member(p, k, rank, i) * stride] == *most;
  return 2 * count > n;
}

bool zp_alike_odd(const ZpPlan *p, const ZpAlike *k, const uint64_t *said, uint32_t stride, ZpOdd *odd) {
  bool any = false;
  for (int64_t r = 0; r < p->layout.mesh.nranks; r++) {
    int64_t first = zp_alike_member(p, k, r, 0);
    any |= first >= 0 && said[r * stride] != said[first * stride];
  }
  for (int64_t r = 0; any && odd && r < p->layout.mesh.nranks; r++) {
    uint64_t most = 0;
    if (zp_alike_member(p, k, r, 0) != r) continue; /* once a group */
    bool known = majority(p, k, r, said, stride, &most);
    for (int64_t i = 0; i < zp_alike_size(p, k); i++) {
      int64_t m = zp_alike_member(p, k, r, i);
      ZpOdd x = !known ? ZP_ODD_OR_NOT : said[m * stride] != most ? ZP_ODD : ZP_EVEN;
      if (x > odd[m]) odd[m] = x;
    }
  }
  return any;
}

uint32_t zp_alike_items(const ZpPlan *p, uint32_t stage, const ZpAlike *list, uint32_t n, uint32_t which,
                        ZpAlikeItem *out) {
  const ZpStage *st = &p->programs.stages[stage];
  uint32_t items = 0;
  for (uint32_t i = 0; i < st->nheld; i++) {
    const ZpBucket *k = &p->programs.buckets[st->held[i].bucket];
    int first, end = zp_held_parts(p, k, &first);
    if (zp_alike_which(p, list, n, &st->held[i]) != which) continue;
    for (uint32_t s = 0; s < k->nslices; s++)
      for (int part = first; part < end; part++, items++)
        if (out) out[items] = (ZpAlikeItem){&st->held[i], &k->slices[s], part};
  }
  return items;
}

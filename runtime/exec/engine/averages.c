/* Parameters of which there are two: the point at which steps take gradients, and the average that all else is to be
 * of (a row that AVERAGES, lang/updates.def). While steps are made the first lies in the parameter's place and the other
 * in the last state's. For what is evaluated, or goes into files, the two change places: the same bits are back
 * afterwards. */
#include "runtime/exec/engine/internal.h"

static void trade(ZxEngine *e, const ZpStageBucket *h, int last) {
  uint64_t from, to;
  zx_owned_shard(e, h, &from, &to);
  e->dev->swap(e->env, (int64_t)(to - from), zx_master(e, h), zx_state(e, h, last));
}

bool zx_trade_averages(ZxEngine *e, ZbErr *err) {
  bool any = false;
  for (uint32_t i = 0; i < e->st->nheld; i++) {
    const ZpStageBucket *h = &e->st->held[i];
    int last = zp_averaged_state(e->p, &e->p->programs.buckets[h->bucket]);
    if (last >= 0) trade(e, h, last);
    any |= last >= 0;
  }
  return !any || zx_finish(e, err);
}

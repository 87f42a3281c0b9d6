/* An engine in the arena of another: of a plan that is beside the other's. It has a program, calls and data
 * of its own; parameters, the scalars, communicators, events and pinned memory are the other's. So evaluating
 * or generating while training costs no memory but what the plan says, and sets nothing up a second time.
 *
 * All of that is free between two steps of the other. Parameters that are updated by shards (ZeRO-1, 2) are
 * whole only within a step, which begins with that; so do evaluations and samples. What it uses is no more than the
 * other has made room for: forward is a part of a step. */
#include "runtime/exec/engine/internal.h"

#include <string.h>

/* Groups of ranks. Steps of generation may meet along dims along which a training step does not. */
static void share_groups(ZxEngine *x, const ZxEngine *e) {
  memcpy(x->group, e->group, sizeof x->group);
  memcpy(x->node_group, e->node_group, sizeof x->node_group);
  memcpy(x->ring_group, e->ring_group, sizeof x->ring_group);
  zx_make_groups(x);
}

static void share_memory(ZxEngine *x, const ZxEngine *e) {
  ZB_ASSERT(x->st->prog.ninstrs <= e->st->prog.ninstrs && x->st->ledger.total[ZP_DEVICE] <= e->arena_bytes);
  x->arena = e->arena;
  x->arena_bytes = e->arena_bytes;
  x->host = e->host;
  x->pinned_event = e->pinned_event;
  x->call_event = e->call_event;
  x->rows_event = e->rows_event;
  x->ring_event = e->ring_event;
  x->node_event = e->node_event;
}

ZxEngine *zx_engine_beside(ZxEngine *e, const ZpPlan *p, ZbArena *a, const ZxEngineOptions *o, ZbErr *err) {
  ZB_ASSERT(p->asked.eval_of == e->p);
  ZxEngineOptions own = e->o;
  own.data = o->data;
  own.order = o->order;
  own.times = false;
  own.trace_to = 0;
  ZxEngine *x = zx_engine_of(a, p, e->world, &own);
  x->beside = e;
  zx_open_inputs(x);
  if (!zx_agree(e->world, zx_prepare_calls(x, err) && zx_open_rows(x, err) && zx_open_outputs(x, err))) {
    zx_engine_free(x);
    return NULL;
  }
  zx_settle(x);
  share_memory(x, e);
  zx_engine_room(x);
  x->c = e->c;
  x->in_order = e->in_order;
  share_groups(x, e);
  for (uint32_t i = 0; i < ZX_CLASSES; i++) x->capture[i] = ZX_CAPTURE_NEVER;
  x->no_capture_reason = "it is played between steps of another plan";
  zx_open_sizes(x);
  return x;
}

bool zx_engine_publish(ZxEngine *x, ZbErr *err) {
  ZxEngine *e = x->beside;
  if (e && !zx_agree(e->world, zx_trade_averages(e, err))) return false;
  for (uint32_t i = 0; e && i < e->st->nheld; i++) {
    const ZpStageBucket *h = &e->st->held[i];
    const ZpBucket *k = &e->p->programs.buckets[h->bucket];
    uint64_t from, to;
    ZkElem elem = (ZkElem)k->elem;
    char *params = zx_stored(e, ZP_B_PARAM, h);
    if (!k->republishes) continue;
    zx_owned_shard(e, h, &from, &to);
    zx_await(e, e->c->t->all_gather(e->c, e->group[k->shard], params + zk_bytes(elem, from),
                                    zk_bytes(elem, to - from), params));
  }
  return !e || zx_agree(e->world, zx_finish(e, err));
}

/* Parts of others are whole again when the next step begins. */
bool zx_engine_restore(ZxEngine *x, ZbErr *err) {
  return !x->beside || zx_agree(x->beside->world, zx_trade_averages(x->beside, err));
}

/* What operations had to do, beside how long they took: FLOPs, bytes, and how long that takes at the device's
 * peaks. Counted only for zx_engine_times, and by nodes: of a pointwise call what goes in and comes out, of a
 * product each operand once.
 * What lies in a cache may be faster than that. */
#include "runtime/exec/engine/internal.h"
#include "runtime/plan/time/time.h"

#include <stdlib.h>
#include <string.h>

static void add(const ZxEngine *e, ZxWork *w, int op, double flops, double bytes, bool bounded) {
  w->flops += flops;
  w->bytes += bytes;
  if (!bounded || e->peak.flops <= 0 || e->peak.bytes <= 0) return;
  double bound = zp_bound(&e->peak, op, flops, bytes);
  w->bound += bound;
  if (bound > bytes / e->peak.bytes) w->bound_by_flops += bound;
}

/* ---- nodes ---- */
void zx_profile_open(ZxEngine *e) {
  if (!e->o.times) return;
  uint32_t nsegments = e->p->graph->nsegments;
  e->timed_at = ZB_NEWN(e->a, uint32_t, (size_t)nsegments * ZP_PHASES);
  for (uint32_t i = 0; i < nsegments * ZP_PHASES; i++) {
    e->timed_at[i] = e->ntimed;
    e->ntimed += e->p->programs.segments[i / ZP_PHASES].list[i % ZP_PHASES].n;
  }
  e->timed = ZB_NEWN(e->a, ZxCallTime, e->ntimed);
  if (!e->o.cluster) return;
  e->predicted = ZB_NEWN(e->a, double, e->ntimed);
  uint32_t stage = (uint32_t)(e->st - e->p->programs.stages);
  for (uint32_t i = 0; i < nsegments * ZP_PHASES; i++)
    zp_list_seconds(e->p, e->o.cluster, stage, i / ZP_PHASES, (ZpPhase)(i % ZP_PHASES),
                    e->predicted + e->timed_at[i]);
}

void zx_profile_node(ZxEngine *e, uint32_t segment, ZpPhase phase, uint32_t i, bool adds, bool again,
                     uint64_t sent, double seconds) {
  if (!e->o.times) return;
  const ZpSegment *s = &e->p->programs.segments[segment];
  const ZpNode *n = &s->list[phase].nodes[i];
  bool sends = zp_sends(n); /* its bound is not known here */
  double bytes = sends ? (double)sent : zp_moved_bytes(s, n, adds);
  uint32_t which = e->timed_at[segment * ZP_PHASES + phase] + i;
  ZxCallTime *c = &e->timed[which];
  c->op = n->call.op;
  c->fused = n->call.pointwise && n->call.op != ZG_OP_POINTWISE;
  c->loc = n->loc;
  c->phase = zp_phase_text[phase];
  c->type = &s->values[n->call.nout ? n->out[0] : n->in[0]].type;
  c->calls++;
  c->seconds += seconds;
  double flops = again ? 0 : n->flops; /* which are those of all rounds */
  add(e, &c->work, n->call.op, flops, bytes, !sends);
  add(e, &e->work[n->call.op], n->call.op, flops, bytes, !sends);
  if (!e->predicted || again) return;
  c->work.predicted += e->predicted[which];
  e->work[n->call.op].predicted += e->predicted[which];
}

static bool alike(const ZxCallTime *a, const ZxCallTime *b) {
  return a->op == b->op && a->fused == b->fused && a->loc == b->loc && a->phase == b->phase &&
         zg_type_eq(a->type, b->type);
}

static int longer_first(const void *a, const void *b) {
  double x = ((const ZxCallTime *)a)->seconds, y = ((const ZxCallTime *)b)->seconds;
  return (x < y) - (x > y);
}

uint32_t zx_engine_calls(const ZxEngine *e, ZxCallTime *out, uint32_t most) {
  ZbArena *tmp = zb_arena_new();
  ZxCallTime *all = ZB_NEWN(tmp, ZxCallTime, e->ntimed + 1);
  uint32_t n = 0;
  for (uint32_t i = 0; i < e->ntimed; i++) {
    const ZxCallTime *c = &e->timed[i];
    if (!c->calls) continue;
    uint32_t k = 0;
    while (k < n && !alike(&all[k], c)) k++;
    if (k == n) {
      all[n++] = *c;
      continue;
    }
    all[k].calls += c->calls;
    all[k].seconds += c->seconds;
    all[k].work.flops += c->work.flops;
    all[k].work.bytes += c->work.bytes;
    all[k].work.bound += c->work.bound;
    all[k].work.predicted += c->work.predicted;
    all[k].work.bound_by_flops += c->work.bound_by_flops;
  }
  qsort(all, n, sizeof *all, longer_first);
  memcpy(out, all, (n < most ? n : most) * sizeof *all);
  zb_arena_free(tmp);
  return n < most ? n : most;
}

/* ---- the optimizer ---- */
static double own_elems(const ZxEngine *e, const ZpStageBucket *h) {
  uint64_t from, to;
  zx_owned_shard(e, h, &from, &to);
  return (double)(to - from);
}

/* A pass that moves so many bytes. */
static void add_pass(ZxEngine *e, double bytes) {
  if (!e->o.times) return;
  add(e, &e->work[ZG_OP_COUNT], ZG_OP_COUNT, 0, bytes, true);
  if (e->o.cluster) e->work[ZG_OP_COUNT].predicted += zp_stream_seconds(e->o.cluster, bytes);
}

void zx_profile_norm(ZxEngine *e) {
  for (uint32_t i = 0; i < e->st->nheld; i++)
    if (!zx_is_frozen(e, &e->st->held[i]) && zx_is_norm_owner(e, &e->st->held[i]))
      add_pass(e, 4 * own_elems(e, &e->st->held[i]));
}

void zx_profile_update(ZxEngine *e, const ZpStageBucket *h) {
  add_pass(e, zp_optimizer_bytes(e->p, &e->p->programs.buckets[h->bucket], own_elems(e, h)));
}

/* Momentum is read and written, gradients read and updates written; then updates are read and written once
 * more. */
void zx_profile_muon(ZxEngine *e, const ZpInstr *in) {
  const ZpStageBucket *h = &e->st->held[in->held];
  const ZpBucket *k = &e->p->programs.buckets[h->bucket];
  bool products = in->op == ZP_I_ORTHOGONALIZE;
  double bytes = products ? 2 * (double)zp_update_bytes(e->p, k) : 16 * own_elems(e, h), flops = 0;
  uint32_t rank = (uint32_t)zp_group_index(&e->p->layout.mesh, e->rank, k->matrices);
  for (uint32_t i = 0; products && e->o.times && i < e->nmatrices[h->bucket]; i++)
    if (e->matrices[h->bucket][i].owner == rank)
      flops += zp_matrix_flops(&e->p->asked.optimizers[k->optimizer], &e->matrices[h->bucket][i]);
  if (e->o.times) add(e, &e->work[ZG_OP_COUNT], ZG_OP_COUNT, flops, bytes, true);
}

const double *zx_engine_times(const ZxEngine *e) { return e->times; }
const ZxWork *zx_engine_work(const ZxEngine *e) { return e->work; }

void zx_engine_count_anew(ZxEngine *e, const ZpPeaks *p) {
  memset(e->times, 0, sizeof e->times);
  memset(e->work, 0, sizeof e->work);
  if (e->timed) memset(e->timed, 0, e->ntimed * sizeof *e->timed);
  e->peak = *p;
}

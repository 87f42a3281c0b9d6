/* One instruction list per stage, from the schedule, the stage's virtual stages and its held buckets.
 *
 * Why these programs cannot deadlock: zp_timelines simulates all stages once and so puts everything that
 * happens at a time. A transfer gets its place in both queues from that one time (with one tie-break for
 * all), and so does what stages reduce together; collectives within a stage get the time of the computation
 * that sets them off. Whatever an instruction waits for has an earlier time. So every queue of every stage is
 * a part of one total order, and waits only point backward in it: in any state of a run, the earliest
 * instruction that has not completed can. Real times may differ from the simulated ones; that costs waiting,
 * never progress. zp_check proves it again for each plan.
 *
 * Two stages, two micro-batches, 1f1b, in the order of the simulated times:
 *   stage 0  F0 SEND_ACT0 F1 SEND_ACT1                        RECV_GRAD0 B0           RECV_GRAD1 B1
 *   stage 1     RECV_ACT0    RECV_ACT1 F0 B0 SEND_GRAD0 F1 B1               SEND_GRAD1 */
#include "runtime/plan/schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

/* ---- buffers ------------------------------------------------------------------------------------------- */
static const ZpVirtualStage *vstage(const ZpBuilder *g, uint32_t v) { return &g->p->programs.vstages[v]; }

static void add_ring(ZpBuilder *g, ZpBufKind kind, uint32_t index, Ring *r) {
  r->buf = zp_gen_bufs(g, kind, index, r->bytes ? r->n : 0, zb_round_up(r->bytes, 64));
}

/* Adds a virtual stage's rings; it has slots even if they are empty. */
static void add_rings(ZpBuilder *g, uint32_t v) {
  Lane *l = &g->lane[v];
  uint32_t index = vstage(g, v)->index;
  l->slot.buf = zp_gen_bufs(g, ZP_B_SLOT, index, l->slot.n, zb_round_up(l->slot.bytes, 64));
  add_ring(g, ZP_B_RECV_ACT, index, &l->recv[ACT]);
  add_ring(g, ZP_B_SEND_ACT, index, &l->send[ACT]);
  add_ring(g, ZP_B_RECV_GRAD, index, &l->recv[GRAD]);
  add_ring(g, ZP_B_SEND_GRAD, index, &l->send[GRAD]);
}

#define MOST_PINNED ((uint64_t)256 << 20) /* of inputs; one block there must be */

/* Adds the host's buffers for a device with memory of its own: the inputs of as many micro-batches as there
 * are slots, and scalars. */
static void add_pinned(ZpBuilder *g) {
  uint64_t bytes = zb_round_up(zp_input_bytes(g->p, g->st), 64), n = (uint64_t)g->p->asked.nmicro;
  if (!g->p->asked.pins) return;
  if (bytes && n > MOST_PINNED / bytes) n = bytes > MOST_PINNED ? 1 : MOST_PINNED / bytes;
  if (bytes) zp_gen_bufs(g, ZP_B_PINNED_INPUTS, 0, (uint32_t)n, bytes);
  zp_gen_bufs(g, ZP_B_PINNED_SCALARS, 0, 2, zp_scalars_bytes(g->p));
  g->npinned = bytes ? (uint32_t)n : 0;
}

static void add_buffers(ZpBuilder *g) {
  const ZpPlan *p = g->p;
  const ZpStage *st = g->st;
  for (uint32_t k = 0; k < st->nvstages; k++) add_rings(g, st->vstages[k]);
  g->param_buf = ZB_NEWN(g->a, uint32_t, st->nheld);
  g->grad_buf = ZB_NEWN(g->a, uint32_t, st->nheld);
  g->state_buf = ZB_NEWN(g->a, uint32_t, st->nheld);
  for (uint32_t h = 0; h < st->nheld; h++) {
    uint32_t b = st->held[h].bucket;
    g->param_buf[h] = zp_gen_bufs(g, ZP_B_PARAM, h, 1, zp_param_bytes(p, b) + zp_master_bytes(p, b));
    g->grad_buf[h] = g->state_buf[h] = ZP_NONE;
    if (p->asked.forward_only || p->programs.buckets[b].frozen) continue;
    g->grad_buf[h] = zp_gen_bufs(g, ZP_B_GRAD, h, 1, zp_grad_bytes(p, b));
    if (zp_state_bytes(p, b)) g->state_buf[h] = zp_gen_bufs(g, ZP_B_STATE, h, 1, zp_state_bytes(p, b));
  }
  zp_gen_update_bufs(g);
  g->boundary_buf =
      zp_gen_bufs(g, ZP_B_BOUNDARY, 0, st->boundary_bytes ? 2 : 0, zb_round_up(st->boundary_bytes, 64));
  g->scratch_buf = ZP_NONE;
  if (st->scratch_bytes)
    g->scratch_buf = zp_gen_bufs(g, ZP_B_SCRATCH, 0, 1, zb_round_up(st->scratch_bytes, 64));
  if (st->cache_bytes) zp_gen_bufs(g, ZP_B_CACHE, 0, 1, st->cache_bytes);
  g->scalars_buf = zp_gen_bufs(g, ZP_B_SCALARS, 0, 2, zp_scalars_bytes(p));
  add_pinned(g);
  if (p->asked.checkpoints) zp_gen_bufs(g, ZP_B_SNAPSHOT, 0, 1, zb_round_up(zp_snapshot_bytes(p, st), 64));
}

/* ---- the compute queue up to the last item ------------------------------------------------------------ */
static void add_load(ZpBuilder *g, uint32_t v, uint32_t mb, uint64_t *now) {
  if (!vstage(g, v)->input_bytes) return;
  ZpInstr *in = zp_gen_compute(g, ZP_I_LOAD, (*now)++, 1);
  in->mb = mb;
  in->vstage = v;
}

static void add_counts(ZpBuilder *g, uint32_t v, uint32_t mb, uint64_t *now) {
  const ZpVirtualStage *x = vstage(g, v);
  for (uint32_t i = x->first; i < x->first + x->ninsts; i++) {
    if (!zp_counts(g->p, g->st, i)) continue;
    ZpInstr *count = zp_gen_compute(g, ZP_I_COUNT, (*now)++, 1);
    count->mb = mb;
    count->vstage = v;
    count->inst = i;
    g->count_pos = g->ncomp - 1;
  }
}

/* Backward divides by the denominators of the whole step, and so does forward where it makes gradients of
 * logits: all of it is counted first. Forward alone need not load twice. */
static void add_prologue(ZpBuilder *g) {
  uint64_t now = 1;
  zp_gen_compute(g, g->p->asked.forward_only ? ZP_I_ZERO_SUMS : ZP_I_ZERO_GRADS, 0, 1);
  g->count_pos = ZP_NONE;
  for (uint32_t k = 0; k < g->st->nvstages && !g->p->asked.forward_only; k++) {
    uint32_t v = g->st->vstages[k];
    for (uint32_t m = 0; m < g->p->asked.nmicro && zp_count_insts(g->p, vstage(g, v)); m++) {
      add_load(g, v, m, &now);
      add_counts(g, v, m, &now);
    }
  }
}

/* Returns the instruction that does an item, instance by instance. */
static ZpInstrOp op_of(const ZpScheduleItem *x) {
  if (x->kind == ZP_FORWARD) return ZP_I_FWD;
  if (x->kind == ZP_BACKWARD) return ZP_I_BWD;
  ZB_BUG("no list of a segment is a half of backward");
}

static void add_work(ZpBuilder *g, const uint64_t *duration) {
  const ZpPlan *p = g->p;
  const ZpStage *st = g->st;
  add_prologue(g);
  g->item_pos = ZB_NEWN(g->a, uint32_t, g->order->n);
  for (uint32_t i = 0; i < g->order->n; i++) {
    const ZpScheduleItem *w = &g->order->item[i];
    const ZpVirtualStage *x = vstage(g, w->vstage);
    bool forward = w->kind == ZP_FORWARD;
    uint64_t now = g->order->start[i];
    if (forward) add_load(g, w->vstage, w->mb, &now);
    if (p->asked.forward_only) add_counts(g, w->vstage, w->mb, &now);
    g->item_pos[i] = g->ncomp;
    for (uint32_t k = 0; k < x->ninsts; k++) {
      uint32_t inst = x->first + (forward ? k : x->ninsts - 1 - k);
      uint64_t takes = duration[st->insts[inst].segment] * zp_item_info[w->kind].units;
      ZpInstr *in = zp_gen_compute(g, op_of(w), now, takes);
      in->mb = w->mb;
      in->vstage = w->vstage;
      in->inst = inst;
      now += takes;
    }
    ZB_ASSERT(now == g->order->end[i]);
  }
  g->last_work = g->ncomp - 1;
}

/* Return the position of the first, of the last instruction of an item. */
static uint32_t first_of(const ZpBuilder *g, uint32_t item) { return g->item_pos[item]; }
static uint32_t last_of(const ZpBuilder *g, uint32_t item) {
  return g->item_pos[item] + vstage(g, g->order->item[item].vstage)->ninsts - 1;
}

/* ---- transfers ----------------------------------------------------------------------------------------- */
/* Names the tuple into virtual stage v: after the instance that takes it in, forward. */
static uint64_t tag_before(const ZpBuilder *g, int kind, uint32_t v, uint32_t mb) {
  const ZpVirtualStage *x = vstage(g, v);
  const ZpInst *i = &g->p->programs.stages[x->stage].insts[x->first];
  return zp_tag(kind == ACT ? ZP_TAG_CARRY : ZP_TAG_DCARRY, i->segment, i->iter, mb);
}

static bool sends(const ZpBuilder *g, int kind, uint32_t from, uint32_t to) {
  return vstage(g, from)->stage != vstage(g, to)->stage && g->lane[to].recv[kind].bytes;
}

/* Adds the transfers of one kind between two virtual stages in which this stage takes part as receiver, or
 * sender. */
static void add_transfers(ZpBuilder *g, int kind, bool send, uint32_t from, uint32_t to, uint32_t pair) {
  static const ZpInstrOp op[2][2] = {{ZP_I_RECV_ACT, ZP_I_SEND_ACT}, {ZP_I_RECV_GRAD, ZP_I_SEND_GRAD}};
  const Lane *own = &g->lane[send ? from : to], *receiver = &g->lane[to];
  const Ring *r = send ? &own->send[kind] : &own->recv[kind];
  uint32_t M = (uint32_t)g->p->asked.nmicro, later = kind == ACT ? to : from,
           *moves = ZB_NEWN(g->a, uint32_t, M);
  g->moves[vstage(g, send ? from : to)->index][kind][send] = moves;
  for (uint32_t m = 0; m < M; m++) {
    uint32_t id = moves[m] =
        zp_gen_draft(g, op[kind][send], receiver->arrive[kind][m], BY_TRANSFER, pair + m);
    ZpDraft *d = &g->d[id];
    d->in.mb = m;
    d->in.vstage = later;
    d->in.peer = zp_owner(g->p, send ? to : from);
    d->in.pair = pair + m;
    d->in.bytes = r->bytes;
    d->in.naccess = 1;
    d->in.access = ZB_NEW(g->p->arena, ZpAccess);
    *d->in.access =
        (ZpAccess){r->buf + r->index[m], send ? ZP_READ : ZP_WRITE, tag_before(g, kind, later, m)};
    if (send) d->after_pos = last_of(g, own->item[kind][m]);
    else if (r->before[m] != ZP_NONE)
      d->after_pos = kind == ACT && own->keeps_act ? last_of(g, own->last[r->before[m]])
                                                   : first_of(g, own->item[kind][r->before[m]]);
  }
}

/* Adds all transfers of the plan; both ends of one have its pair number. Returns the next free one. */
static uint32_t add_all_transfers(ZpPlan *p, ZpBuilder *g) {
  uint32_t pair = 0;
  for (uint32_t v = 0, w; (w = zp_vstage_after(p, v)) != ZP_NONE; v = w)
    for (int kind = 0; kind < 2; kind++) {
      uint32_t from = kind == ACT ? v : w, to = kind == ACT ? w : v;
      ZpBuilder *sender = &g[zp_owner(p, from)], *receiver = &g[zp_owner(p, to)];
      if (!sends(sender, kind, from, to)) continue;
      add_transfers(sender, kind, true, from, to, pair);
      add_transfers(receiver, kind, false, from, to, pair);
      pair += (uint32_t)p->asked.nmicro;
    }
  return pair;
}

static void add_count(ZpBuilder *g) {
  g->count = ZP_NONE;
  if (g->count_pos == ZP_NONE) return;
  g->count = zp_gen_draft(g, ZP_I_REDUCE_COUNT, g->end[g->count_pos], BY_SCATTER, 0);
  ZpDraft *d = &g->d[g->count];
  d->in.dims = zp_count_dims(g->p);
  d->in.coll = ZG_OP_ALL_REDUCE;
  d->in.bytes = d->in.dims ? zg_losses(g->p->graph) * sizeof(double) : 0;
  d->after_pos = g->count_pos;
  d->in.naccess = 2;
  d->in.access = ZB_NEWN(g->p->arena, ZpAccess, 2);
  for (uint32_t k = 0; k < 2; k++)
    d->in.access[k] =
        (ZpAccess){g->scalars_buf + ZP_SCALARS_COUNT, k ? ZP_WRITE : ZP_READ, zp_tag(ZP_TAG_COUNT, 0, 0, k)};
}

/* ---- the end of the step ------------------------------------------------------------------------------- */
/* Adds the sum over all ranks: after this rank's norm, or without one after its last forward. */
static void add_sums(ZpBuilder *g, uint64_t norm, uint64_t step, uint32_t pair) {
  uint32_t last = g->last_work, before = 0; /* the phase of the sums that it reads */
  if (!g->p->asked.forward_only) {
    zp_gen_compute(g, ZP_I_NORM_LOCAL, norm, 1);
    last = g->ncomp - 1;
    before = 1;
  }
  g->step = zp_gen_draft(g, ZP_I_REDUCE_STEP, step, BY_STEP, pair);
  ZpDraft *d = &g->d[g->step];
  d->in.pair = pair;
  d->in.dims = g->p->stream ? 0 : (1u << g->p->layout.mesh.ndims) - 1; /* tokens have no losses */
  d->in.coll = ZG_OP_ALL_REDUCE;
  d->in.bytes = d->in.dims ? zp_step_sums(g->p) * sizeof(double) : 0;
  d->after_pos = last;
  if (g->p->asked.forward_only) d->after = g->count; /* else backward has waited for that */
  d->in.naccess = 3;
  d->in.access = ZB_NEWN(g->p->arena, ZpAccess, 3);
  uint32_t counted = g->count != ZP_NONE;
  d->in.access[0] =
      (ZpAccess){g->scalars_buf + ZP_SCALARS_COUNT, ZP_READ, zp_tag(ZP_TAG_COUNT, 0, 0, counted)};
  for (uint32_t k = 1; k < 3; k++)
    d->in.access[k] = (ZpAccess){g->scalars_buf + ZP_SCALARS_SUMS, k == 1 ? ZP_READ : ZP_WRITE,
                                 zp_tag(ZP_TAG_SUMS, 0, 0, k == 1 ? before : 2)};
}

static void add_step(ZpBuilder *g, uint64_t norm, uint64_t step, uint32_t pair) {
  add_sums(g, norm, step, pair);
  if (g->p->asked.forward_only) return;
  zp_gen_updates(g, step);
}

/* ---- operands and waits of the compute queue ----------------------------------------------------------- */
/* Parameters of instance and, for BWD, where their gradients go. */
static void touch_params(ZpBuilder *g, uint32_t pos, const ZpInstr *in) {
  const ZpInst *inst = &g->st->insts[in->inst];
  for (uint32_t k = 0; k < inst->nheld; k++) {
    const Use *u = &g->uses[g->use_at[pos] + k];
    uint32_t h = inst->held[k];
    if (!zp_gen_uses(g, in, k)) continue;
    zp_gen_touch(g, u->gather_buf == ZP_NONE ? g->param_buf[h] : u->gather_buf, ZP_READ,
                 zp_tag_held(g, ZP_TAG_PARAM, h, 0));
    zp_gen_await(g, pos, u->gather);
    if (in->op != ZP_I_BWD || g->grad_buf[h] == ZP_NONE) continue;
    if (u->staging_buf == ZP_NONE) {
      zp_gen_touch(g, g->grad_buf[h], ZP_READ | ZP_WRITE, zp_tag_held(g, ZP_TAG_GRAD, h, 0));
      continue;
    }
    zp_gen_touch(g, u->staging_buf, u->adds ? ZP_READ | ZP_WRITE : ZP_WRITE,
                 zp_tag_held(g, ZP_TAG_STAGED, h, in->mb));
    zp_gen_await(g, pos, u->staging);
  }
}

/* Reads what virtual stage v takes in from its ring, and waits for the transfer that brings it. */
static void touch_taken(ZpBuilder *g, uint32_t pos, int kind, uint32_t v, uint32_t mb, uint64_t tag) {
  const Ring *r = &g->lane[v].recv[kind];
  uint32_t *const *moves = g->moves[vstage(g, v)->index][kind];
  if (!r->bytes) return;
  zp_gen_touch(g, r->buf + r->index[mb], ZP_READ, tag);
  if (moves[false]) zp_gen_await(g, pos, moves[false][mb]);
}

/* Writes what virtual stage v hands on: into its ring, once the transfer of what was there is complete; or,
 * for a neighbour on the same stage, straight into that one's. */
static void touch_made(ZpBuilder *g, uint32_t pos, int kind, uint32_t v, uint32_t mb, uint64_t tag) {
  uint32_t to = zp_sink(g->p, kind, v);
  if (to == ZP_NONE) return;
  bool here = vstage(g, to)->stage == g->s;
  const Ring *r = here ? &g->lane[to].recv[kind] : &g->lane[v].send[kind];
  if (!r->bytes) return;
  zp_gen_touch(g, r->buf + r->index[mb], ZP_WRITE, tag);
  if (!here && r->before[mb] != ZP_NONE)
    zp_gen_await(g, pos, g->moves[vstage(g, v)->index][kind][true][r->before[mb]]);
}

/* Between instance i - 1 and i of a virtual stage: a boundary buffer, unless it is carried in the slot. */
static void touch_boundary(ZpBuilder *g, int kind, uint32_t i, uint32_t mode, uint32_t mb) {
  const ZpInst *inst = &g->st->insts[i];
  const ZpSegment *seg = &g->p->programs.segments[inst->segment];
  if (kind == ACT ? !seg->carry_bytes || seg->saves_carry : !seg->dcarry_bytes) return;
  zp_gen_touch(g, g->boundary_buf + i % 2, mode,
               zp_tag(kind == ACT ? ZP_TAG_CARRY : ZP_TAG_DCARRY, inst->segment, inst->iter, mb));
}

/* The denominators of losses, of all ranks. */
static void touch_count(ZpBuilder *g, uint32_t pos) {
  zp_gen_touch(g, g->scalars_buf + ZP_SCALARS_COUNT, ZP_READ, zp_tag(ZP_TAG_COUNT, 0, 0, 1));
  zp_gen_await(g, pos, g->count);
}

/* Touches a micro-batch's slot; while all are counted, before the first item, they take the first slot in
 * turn. */
static void touch_slot(ZpBuilder *g, uint32_t pos, const ZpInstr *in, uint32_t mode) {
  const Ring *r = &g->lane[in->vstage].slot;
  bool counts_all = g->count_pos != ZP_NONE && pos <= g->count_pos;
  zp_gen_touch(g, r->buf + (counts_all ? 0 : r->index[in->mb]), mode,
               zp_tag(ZP_TAG_SLOT, vstage(g, in->vstage)->index, 0, in->mb));
}

static void touch_fwd(ZpBuilder *g, uint32_t pos, const ZpInstr *in) {
  uint32_t i = in->inst, mb = in->mb, v = in->vstage, after = zp_vstage_after(g->p, v);
  const ZpVirtualStage *x = vstage(g, v);
  uint32_t fresh = i == x->first && !x->input_bytes; /* nothing in the slot yet */
  uint32_t mode = g->p->asked.forward_only ? ZP_READ : fresh ? ZP_WRITE : ZP_READ | ZP_WRITE;
  if (x->input_bytes || !g->p->asked.forward_only) touch_slot(g, pos, in, mode); /* else it stays empty */
  if (i > x->first) touch_boundary(g, ACT, i, ZP_READ, mb);
  else touch_taken(g, pos, ACT, v, mb, tag_before(g, ACT, v, mb));
  if (i + 1 < x->first + x->ninsts) touch_boundary(g, ACT, i + 1, ZP_WRITE, mb);
  else if (after != ZP_NONE) touch_made(g, pos, ACT, v, mb, tag_before(g, ACT, after, mb));
  touch_params(g, pos, in);
  zp_gen_touch(g, g->scalars_buf + ZP_SCALARS_SUMS, ZP_READ | ZP_WRITE, zp_tag(ZP_TAG_SUMS, 0, 0, 0));
  if (zp_divides_forward(g->p, g->st, i)) touch_count(g, pos);
}

static void touch_bwd(ZpBuilder *g, uint32_t pos, const ZpInstr *in) {
  uint32_t i = in->inst, mb = in->mb, v = in->vstage, after = zp_vstage_after(g->p, v);
  const ZpVirtualStage *x = vstage(g, v);
  bool first = i == x->first;
  touch_slot(g, pos, in, ZP_READ);
  if (first && g->lane[v].keeps_act) touch_taken(g, pos, ACT, v, mb, tag_before(g, ACT, v, mb));
  if (i + 1 < x->first + x->ninsts) touch_boundary(g, GRAD, i + 1, ZP_READ, mb);
  else if (after != ZP_NONE) touch_taken(g, pos, GRAD, v, mb, tag_before(g, GRAD, after, mb));
  if (!first) touch_boundary(g, GRAD, i, ZP_WRITE, mb);
  else touch_made(g, pos, GRAD, v, mb, tag_before(g, GRAD, v, mb));
  touch_params(g, pos, in);
  if (zp_counts(g->p, g->st, i)) touch_count(g, pos);
}

static void touch_compute(ZpBuilder *g, uint32_t pos, const ZpInstr *in) {
  uint32_t sums = g->scalars_buf + ZP_SCALARS_SUMS, count = g->scalars_buf + ZP_SCALARS_COUNT;
  switch ((ZpInstrOp)in->op) {
  case ZP_I_FWD: touch_fwd(g, pos, in); break;
  case ZP_I_BWD: touch_bwd(g, pos, in); break;
  case ZP_I_LOAD: touch_slot(g, pos, in, ZP_WRITE); break;
  case ZP_I_COUNT:
    if (vstage(g, in->vstage)->input_bytes) touch_slot(g, pos, in, ZP_READ);
    zp_gen_touch(g, count, ZP_READ | ZP_WRITE, zp_tag(ZP_TAG_COUNT, 0, 0, 0));
    break;
  case ZP_I_ZERO_SUMS:
  case ZP_I_ZERO_GRADS:
    for (uint32_t h = 0; h < g->st->nheld && in->op == ZP_I_ZERO_GRADS; h++)
      if (g->grad_buf[h] != ZP_NONE)
        zp_gen_touch(g, g->grad_buf[h], ZP_WRITE, zp_tag_held(g, ZP_TAG_GRAD, h, 0));
    zp_gen_touch(g, count, ZP_WRITE, zp_tag(ZP_TAG_COUNT, 0, 0, 0));
    zp_gen_touch(g, sums, ZP_WRITE, zp_tag(ZP_TAG_SUMS, 0, 0, 0));
    return;
  case ZP_I_NORM_LOCAL:
    for (uint32_t h = 0; h < g->st->nheld; h++) {
      if (g->grad_buf[h] == ZP_NONE) continue;
      zp_gen_touch(g, g->grad_buf[h], ZP_READ, zp_tag_held(g, ZP_TAG_GRAD, h, g->phase[h]));
      if (g->p->asked.optimizers[g->p->programs.buckets[g->st->held[h].bucket].optimizer].relative)
        zp_gen_touch(g, g->param_buf[h], ZP_READ, zp_tag_held(g, ZP_TAG_PARAM, h, 0));
      zp_gen_await(g, pos, g->reduced[h]);
    }
    zp_gen_touch(g, sums, ZP_READ, zp_tag(ZP_TAG_SUMS, 0, 0, 0));
    zp_gen_touch(g, sums, ZP_WRITE, zp_tag(ZP_TAG_SUMS, 0, 0, 1));
    return;
  case ZP_I_MOMENTUM: zp_gen_touch_muon(g, pos, in); return;
  case ZP_I_ORTHOGONALIZE: zp_gen_touch_muon(g, pos, in); break;
  case ZP_I_OPT_STEP:
    if (zp_updates_whole(g->p, &g->p->programs.buckets[g->st->held[in->held].bucket]))
      zp_gen_touch_muon(g, pos, in);
    else {
      zp_gen_touch(g, g->grad_buf[in->held], ZP_READ,
                   zp_tag_held(g, ZP_TAG_GRAD, in->held, g->phase[in->held]));
      if (g->state_buf[in->held] != ZP_NONE)
        zp_gen_touch(g, g->state_buf[in->held], ZP_READ | ZP_WRITE,
                     zp_tag_held(g, ZP_TAG_STATE, in->held, 0));
    }
    zp_gen_touch(g, g->param_buf[in->held], ZP_READ, zp_tag_held(g, ZP_TAG_PARAM, in->held, 0));
    zp_gen_touch(g, g->param_buf[in->held], ZP_WRITE, zp_tag_held(g, ZP_TAG_PARAM, in->held, 1));
    zp_gen_touch(g, sums, ZP_READ, zp_tag(ZP_TAG_SUMS, 0, 0, 2));
    zp_gen_await(g, pos, g->step);
    return;
  default: ZB_BUG("%s is not a compute instruction", zp_instr_info[in->op].text);
  }
  if (g->scratch_buf != ZP_NONE && in->op != ZP_I_LOAD)
    zp_gen_touch(g, g->scratch_buf, ZP_WRITE, zp_tag(ZP_TAG_TEMP, 0, 0, 0));
}

static void set_waits(ZpBuilder *g, ZpInstr *in, const uint32_t *wait, uint32_t n) {
  in->nwait = n;
  in->wait = ZB_NEWN(g->p->arena, uint32_t, n);
  if (n) memcpy(in->wait, wait, n * sizeof *wait);
}

static void operands(ZpBuilder *g) {
  for (uint32_t pos = 0; pos < g->ncomp; pos++) {
    ZpInstr *in = &g->d[g->comp[pos]].in;
    g->naccess = g->nwait = 0;
    touch_compute(g, pos, in);
    in->naccess = g->naccess;
    in->access = ZB_NEWN(g->p->arena, ZpAccess, g->naccess);
    memcpy(in->access, g->access, g->naccess * sizeof *g->access);
    set_waits(g, in, g->wait, g->nwait);
  }
  for (uint32_t i = 0; i < g->nd; i++) {
    ZpDraft *d = &g->d[i];
    if (d->in.queue == ZP_Q_COMPUTE) continue;
    uint32_t wait[2], n = 0;
    if (d->after_pos != ZP_NONE) wait[n++] = g->comp[d->after_pos];
    /* Dropped if the computation waited for has itself (or one before it) waited for that. */
    bool known = d->after != ZP_NONE && d->after_pos != ZP_NONE && g->d[d->after].pos <= d->after_pos;
    if (d->after != ZP_NONE && !known) wait[n++] = d->after;
    set_waits(g, &d->in, wait, n);
  }
}

/* ---- drafts to programs -------------------------------------------------------------------------------- */
typedef struct {
  uint64_t when;
  uint32_t rank, need, id;
} Key;

static int by_key(const void *x, const void *y) {
  const Key *a = x, *b = y;
  if (a->when != b->when) return a->when < b->when ? -1 : 1;
  if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
  if (a->need != b->need) return a->need < b->need ? -1 : 1;
  return a->id < b->id ? -1 : a->id > b->id;
}

static void finish(ZpBuilder *g) {
  ZpProgram *out = &g->st->prog;
  Key *keys = ZB_NEWN(g->a, Key, g->nd);
  uint32_t *place = ZB_NEWN(g->a, uint32_t, g->nd);
  *out = (ZpProgram){.bufs = g->bufs, .nbufs = g->nbufs, .ninstrs = g->nd, .npinned = g->npinned};
  for (uint32_t i = 0; i < g->nd; i++) {
    keys[i] = (Key){g->d[i].when, g->d[i].rank, g->d[i].need, i};
    out->nqueue[g->d[i].in.queue]++;
  }
  qsort(keys, g->nd, sizeof *keys, by_key);
  for (uint32_t i = 0; i < g->nd; i++) place[keys[i].id] = i;
  out->instrs = ZB_NEWN(g->p->arena, ZpInstr, g->nd);
  for (int q = 0; q < ZP_QUEUES; q++) {
    out->queue[q] = ZB_NEWN(g->p->arena, uint32_t, out->nqueue[q]);
    out->nqueue[q] = 0;
  }
  for (uint32_t i = 0; i < g->nd; i++) {
    ZpInstr *in = &out->instrs[i];
    *in = g->d[keys[i].id].in;
    for (uint32_t k = 0; k < in->nwait; k++) in->wait[k] = place[in->wait[k]];
    out->queue[in->queue][out->nqueue[in->queue]++] = i;
  }
  out->live = g->p->asked.forward_only ? 1 : zp_order_live(g->order);
  for (uint32_t k = 0; k < g->st->nvstages; k++) {
    const Lane *l = &g->lane[g->st->vstages[k]];
    out->nslots += l->slot.n;
    out->nrecv_act += l->recv[ACT].bytes ? l->recv[ACT].n : 0;
    out->nsend_act += l->send[ACT].bytes ? l->send[ACT].n : 0;
    out->nrecv_grad += l->recv[GRAD].bytes ? l->recv[GRAD].n : 0;
    out->nsend_grad += l->send[GRAD].bytes ? l->send[GRAD].n : 0;
  }
}

static uint32_t held_of(const ZpStage *st, uint32_t tied) {
  for (uint32_t h = 0; h < st->nheld; h++)
    if (st->held[h].tied == tied) return h;
  ZB_BUG("tied bucket %u is not held where it should be", tied);
}

/* Returns what stages reduce together happens when the last of them is ready. Returns the next free pair
 * number. */
static uint32_t add_tied(ZpPlan *p, ZpBuilder *g, uint32_t pair, uint64_t *norm) {
  for (uint32_t i = 0; i < p->programs.ntied; i++, pair++) {
    const ZpTied *tied = &p->programs.tied[i];
    uint64_t time = 0;
    if (p->programs.buckets[tied->bucket].frozen) continue; /* its copies stay alike by themselves */
    for (uint32_t k = 0; k < tied->nstages; k++) {
      const ZpBuilder *x = &g[tied->stages[k]];
      uint64_t ready = zp_gen_ready(x, held_of(x->st, i));
      if (ready > time) time = ready;
    }
    for (uint32_t k = 0; k < tied->nstages; k++) {
      uint32_t s = tied->stages[k];
      zp_gen_tied(&g[s], held_of(g[s].st, i), time, pair);
      if (time > norm[s]) norm[s] = time;
    }
  }
  return pair;
}

ZpDims zp_count_dims(const ZpPlan *p) {
  ZpDims d = 0;
  for (uint32_t k = 0; k < zg_losses(p->graph); k++) d |= p->layout.den_partial[k];
  return d;
}

uint32_t zp_step_sums(const ZpPlan *p) { return 2 * zg_losses(p->graph) + 2 + zp_sizes(p); }

/* Returns the bytes of the larger block: denominators, as many seeds and one more, and the step's own numbers
 * (ZkStepState). */
uint64_t zp_scalars_bytes(const ZpPlan *p) {
  uint64_t n = zg_losses(p->graph), count = 8 * n + 8 * ((n + 2) / 2) + zk_step_state_bytes(p->asked.ngroups);
  uint64_t sums = 8 * ((uint64_t)zp_step_sums(p) + 1);
  return zb_round_up(count > sums ? count : sums, 64);
}

void zp_program(ZpPlan *p) {
  ZB_ASSERT(p->asked.nmicro > 0 && p->asked.nmicro < 1 << 24 && p->programs.nbuckets < 1 << 16 &&
            p->graph->nsegments < 1 << 16);
  uint32_t P = p->programs.nstages;
  ZbArena *a = zb_arena_new();
  uint64_t *duration = zp_durations(p, a), *norm = ZB_NEWN(a, uint64_t, P), step = 0;
  Timeline t = zp_timelines(p, a, duration);
  ZpBuilder *g = ZB_NEWN(a, ZpBuilder, P);
  for (uint32_t s = 0; s < P; s++) {
    g[s] = (ZpBuilder){
        .p = p, .st = &p->programs.stages[s], .s = s, .a = a, .lane = t.lane, .order = &t.order[s]};
    g[s].moves = zb_alloc(a, zb_array_bytes(g[s].st->nvstages, sizeof *g->moves));
    add_buffers(&g[s]);
    add_work(&g[s], duration);
    add_count(&g[s]);
    zp_gen_params(&g[s]);
    norm[s] = g[s].end[g[s].last_work];
  }
  uint32_t pair = add_all_transfers(p, g);
  if (!p->asked.forward_only) pair = add_tied(p, g, pair, norm);
  for (uint32_t s = 0; s < P; s++)
    if (norm[s] + 1 > step) step = norm[s] + 1;
  for (uint32_t s = 0; s < P; s++) {
    add_step(&g[s], norm[s], step, pair);
    operands(&g[s]);
    finish(&g[s]);
  }
  zb_arena_free(a);
}

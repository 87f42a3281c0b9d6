/* Instructions of the compute queue: where the parts of one lie, and who does it. */
#include "runtime/exec/engine/internal.h"

/* ---- where its parts lie ---- */
static char *boundary(ZxEngine *e, const ZpInstr *in, uint32_t index) {
  for (uint32_t i = 0; i < in->naccess; i++) {
    const ZpBuf *b = &e->st->prog.bufs[in->access[i].buf];
    if (b->kind == ZP_B_BOUNDARY && b->index == (index & 1)) return zx_buf_at(e, b);
  }
  return NULL;
}

static const ZpVirtualStage *vstage(const ZxEngine *e, uint32_t v) {
  return v < e->p->programs.nvstages ? &e->p->programs.vstages[v] : NULL;
}

/* Finds the tuple that instance `inst` of the virtual stage takes in, forward. */
static char *carry_in(ZxEngine *e, const ZpInstr *in, uint32_t inst, char *slot) {
  const ZpSegment *s = &e->p->programs.segments[e->st->insts[inst].segment];
  const ZpVirtualStage *v = vstage(e, in->vstage);
  if (inst == v->first) return zx_find_buf(e, in, ZP_B_RECV_ACT, v->index);
  if (s->saves_carry) return slot + e->st->saved_at[inst] + s->saved_bytes;
  return boundary(e, in, inst);
}

/* Finds where a virtual stage's first or last instance puts what it hands on to `to`: where it is sent from, or, for
 * a virtual stage of this rank, where that receives. */
static char *handed_on(ZxEngine *e, const ZpInstr *in, const ZpVirtualStage *to, ZpBufKind send,
                       ZpBufKind take) {
  bool here = to && to->stage == e->stage;
  return zx_find_buf(e, in, here ? take : send, here ? to->index : vstage(e, in->vstage)->index);
}

static ZxFrame frame(ZxEngine *e, const ZpInstr *in) {
  const ZpInst *x = &e->st->insts[in->inst];
  const ZpVirtualStage *v = vstage(e, in->vstage), *before = vstage(e, zp_vstage_before(e->p, in->vstage)),
                       *after = vstage(e, zp_vstage_after(e->p, in->vstage));
  ZxFrame f = {.mb = in->mb, .iter = x->iter};
  char *slot = zx_find_buf(e, in, ZP_B_SLOT, ZP_NONE);
  bool first = in->inst == v->first, last = in->inst + 1 == v->first + v->ninsts;
  f.scratch = zx_find_buf(e, in, ZP_B_SCRATCH, ZP_NONE);
  f.inputs = slot;
  f.caches = zx_caches(e, in->inst);
  f.saved = slot ? slot + e->st->saved_at[in->inst] : NULL;
  f.carry_in = carry_in(e, in, in->inst, slot);
  if (in->op == ZP_I_FWD) {
    f.carry_out =
        last ? handed_on(e, in, after, ZP_B_SEND_ACT, ZP_B_RECV_ACT) : carry_in(e, in, in->inst + 1, slot);
  } else if (in->op == ZP_I_BWD) {
    f.dcarry_out = last ? zx_find_buf(e, in, ZP_B_RECV_GRAD, v->index) : boundary(e, in, in->inst + 1);
    f.dcarry_in =
        first ? handed_on(e, in, before, ZP_B_SEND_GRAD, ZP_B_RECV_GRAD) : boundary(e, in, in->inst);
  }
  f.held = e->held_at;
  for (uint32_t i = 0; i < x->nheld; i++) {
    const ZpStageBucket *h = &e->st->held[x->held[i]];
    const ZpBucket *k = &e->p->programs.buckets[h->bucket];
    ZxHeldAt *at = &e->held_at[i];
    *at = (ZxHeldAt){.param = k->gathers ? zx_find_buf(e, in, ZP_B_GATHER, h->bucket)
                                         : zx_stored(e, ZP_B_PARAM, h)};
    if (in->op != ZP_I_BWD || k->frozen) continue;
    const ZpAccess *staged = zx_find_access(e, in, ZP_B_STAGING, h->bucket);
    ZB_ASSERT(zp_stages_grads(k) == (staged != NULL));
    at->grad = staged ? zx_buf_at(e, &e->st->prog.bufs[staged->buf]) : zx_stored(e, ZP_B_GRAD, h);
    at->first_write = zx_begin_backward(e, in->inst, i, staged, at->grad);
  }
  return f;
}

/* ---- who does it ---- */
static void begin_step(ZxEngine *e) {
  if (!e->p->asked.forward_only) zx_begin_grads(e);
  e->dev->zero(e->env, e->sums.loss, e->sums.bytes);
  e->dev->zero(e->env, e->count.denominator, e->nlosses * sizeof *e->count.denominator);
}

static void run_segment(ZxEngine *e, const ZpInstr *in) {
  ZxFrame f = frame(e, in);
  zx_run_list(e, e->st->insts[in->inst].segment, zp_phase(in->op), &f);
}

void zx_compute(ZxEngine *e, const ZpInstr *in) {
  switch (in->op) {
  case ZP_I_ZERO_GRADS:
  case ZP_I_ZERO_SUMS: begin_step(e); break;
  case ZP_I_LOAD:
    if (!zx_feed(e, zx_need_buf(e, in, ZP_B_SLOT, ZP_NONE), in->mb)) e->failed = e->out.unfed = true;
    break;
  case ZP_I_COUNT:
  case ZP_I_FWD:
  case ZP_I_BWD: run_segment(e, in); break;
  case ZP_I_NORM_LOCAL: {
    double t = zb_now();
    zx_norm_local(e);
    zx_profile_norm(e);
    zx_finish_call(e);
    e->times[ZG_OP_COUNT] += zb_now() - t;
    break;
  }
  case ZP_I_MOMENTUM:
  case ZP_I_ORTHOGONALIZE: {
    double t = zb_now();
    (in->op == ZP_I_MOMENTUM ? zx_momentum : zx_orthogonalize)(e, in);
    zx_profile_muon(e, in);
    e->times[ZG_OP_COUNT] += zb_now() - t;
    break;
  }
  case ZP_I_OPT_STEP: {
    double t = zb_now();
    if (zp_updates_whole(e->p, &e->p->programs.buckets[e->st->held[in->held].bucket])) zx_muon(e, in);
    else zx_optimize(e, &e->st->held[in->held], NULL);
    zx_profile_update(e, &e->st->held[in->held]);
    zx_finish_call(e);
    e->times[ZG_OP_COUNT] += zb_now() - t;
    break;
  }
  default: ZB_BUG("%s in the compute queue", zp_instr_info[in->op].text);
  }
}

/* Derives the operands of each instruction from the plan alone. None may be missing, none added. */
#include "runtime/plan/check/check.h"

typedef struct {
  const Check *c;
  const ZpPlan *p;
  const ZpStage *st;
  uint32_t s, instr;
  uint32_t cursor, matched; /* where to look next among its accesses */
  bool ok;
} Wants;

/* `pool`: which of its kind; of scalars and boundaries, which the engine finds by it, the index. Returns the
 * buffer. */
static uint32_t want(Wants *w, ZpBufKind kind, uint32_t pool, uint32_t mode, uint64_t tag) {
  const ZpInstr *in = &w->st->prog.instrs[w->instr];
  for (uint32_t k = 0; k < in->naccess && w->ok; k++) { /* usually the first one looked at */
    const ZpAccess *x = &in->access[(w->cursor + k) % in->naccess];
    const ZpBuf *b = &w->st->prog.bufs[x->buf];
    if (b->kind != kind || x->mode != mode || x->tag != tag) continue;
    if (kind == ZP_B_SCALARS || kind == ZP_B_BOUNDARY ? b->index != pool : b->pool != pool) continue;
    w->cursor = (w->cursor + k + 1) % in->naccess;
    w->matched++;
    return x->buf;
  }
  if (!w->ok) return ZP_NONE;
  const char *verb = mode == ZP_READ ? "read" : mode == ZP_WRITE ? "write" : "update";
  w->ok = zp_fail_at(w->c, w->s, w->instr, "should %s %s (%s), but does not", verb, zp_say_tag(w->c, tag),
                     zp_buf_text[kind]);
  return ZP_NONE;
}

static uint64_t held_tag(const Wants *w, ZpTag kind, uint32_t held, uint32_t n) {
  return zp_tag(kind, w->st->held[held].bucket, w->st->held[held].iter, n);
}
static const ZpBucket *bucket_of(const Wants *w, uint32_t held) {
  return &w->p->programs.buckets[w->st->held[held].bucket];
}

/* Reductions of a held bucket's accumulator up to and including that of kind `op`; all for ZP_INSTRS. */
static uint32_t phase_after(const Wants *w, uint32_t held, ZpInstrOp op) {
  const ZpBucket *b = bucket_of(w, held);
  uint32_t n = b->scatters == ZP_SCATTER_AT_END;
  if (op == ZP_I_SCATTER_GRADS) return n;
  n += b->reduces != 0;
  if (op == ZP_I_REDUCE_GRADS) return n;
  return n + (w->st->held[held].tied != ZP_NONE);
}

/* Returns whether backward of a segment needs its bucket k: its gradient, or, of what is frozen, what it
 * reads. */
static bool used_back(const Wants *w, const ZpSegment *g, uint32_t k) {
  const ZpList *l = &g->list[ZP_BWD];
  bool used = !w->p->programs.buckets[g->buckets[k]].frozen;
  for (uint32_t i = 0; i < l->n && !used; i++)
    for (int j = 0; j < l->nodes[i].call.nin; j++) {
      ZpLoc at = g->values[l->nodes[i].in[j]].at;
      used |= at.space == ZP_AT_PARAM && at.index == k;
    }
  return used;
}

/* Returns whether forward of the segment reads what is made of denominators: those of all ranks must be
 * there. */
static bool forward_divides(const ZpSegment *g) {
  const ZpList *l = &g->list[ZP_FWD];
  bool found = false;
  for (uint32_t i = 0; i < l->n; i++)
    for (int j = 0; j < l->nodes[i].call.nin; j++) {
      ZpLoc at = g->values[l->nodes[i].in[j]].at;
      found |= at.space == ZP_AT_SEED && at.index != 1;
    }
  return found;
}

static const ZpVirtualStage *vstage(const Wants *w, uint32_t v) { return &w->p->programs.vstages[v]; }

static uint64_t slot_tag(const Wants *w, const ZpInstr *in) {
  return zp_tag(ZP_TAG_SLOT, vstage(w, in->vstage)->index, 0, in->mb);
}

/* Wants the tuple between instance i and the one before it, both of one virtual stage. */
static void want_within(Wants *w, bool backward, uint32_t i, uint32_t mode, uint32_t mb) {
  const ZpInst *x = &w->st->insts[i];
  const ZpSegment *g = &w->p->programs.segments[x->segment];
  if (!(backward ? g->dcarry_bytes : g->carry_bytes)) return;
  if (!backward && g->saves_carry) return; /* in the slot */
  want(w, ZP_B_BOUNDARY, i % 2, mode,
       zp_tag(backward ? ZP_TAG_DCARRY : ZP_TAG_CARRY, x->segment, x->iter, mb));
}

/* Wants the tuple that virtual stage v takes in, forward. Its maker writes it where it is sent from, or, for
 * a virtual stage of the same ranks, where that receives. */
static void want_between(Wants *w, bool backward, uint32_t v, uint32_t mode, uint32_t mb) {
  if (!v || v == w->p->programs.nvstages) return;
  const ZpVirtualStage *later = vstage(w, v), *earlier = vstage(w, v - 1);
  const ZpInst *x = &w->p->programs.stages[later->stage].insts[later->first];
  const ZpSegment *g = &w->p->programs.segments[x->segment];
  bool writes = mode == ZP_WRITE, here = later->stage == earlier->stage;
  uint32_t pool = (writes && !here) == backward ? later->index : earlier->index;
  ZpBufKind kind = writes && !here ? (backward ? ZP_B_SEND_GRAD : ZP_B_SEND_ACT)
                                   : (backward ? ZP_B_RECV_GRAD : ZP_B_RECV_ACT);
  if (!(backward ? g->dcarry_bytes : g->carry_bytes)) return;
  want(w, kind, pool, mode, zp_tag(backward ? ZP_TAG_DCARRY : ZP_TAG_CARRY, x->segment, x->iter, mb));
}

/* Returns whether this backward is the first of its virtual stage and micro-batch that adds to a held
 * bucket. */
static bool comes_first(const Wants *w, const ZpInstr *in, uint32_t held) {
  return w->c->last_user[w->s][vstage(w, in->vstage)->index * w->st->nheld + held] == in->inst;
}

static void want_work(Wants *w, const ZpInstr *in) {
  const ZpInst *x = &w->st->insts[in->inst];
  const ZpVirtualStage *v = vstage(w, in->vstage);
  bool back = in->op == ZP_I_BWD, first = in->inst == v->first, last = in->inst + 1 == v->first + v->ninsts;
  bool fresh = first && !v->input_bytes;
  uint32_t slot_mode = back ? ZP_READ : fresh ? ZP_WRITE : ZP_READ | ZP_WRITE;
  if (w->p->asked.forward_only) slot_mode = ZP_READ; /* nothing is saved */
  if (v->input_bytes || !w->p->asked.forward_only) want(w, ZP_B_SLOT, v->index, slot_mode, slot_tag(w, in));
  if (back && first && w->p->programs.segments[x->segment].saves_carry)
    want_between(w, false, in->vstage, ZP_READ, in->mb);
  for (int end = 0; end < 2; end++) { /* where it takes in, where it hands on */
    bool front = back == end, outside = front ? first : last;
    uint32_t mode = end ? ZP_WRITE : ZP_READ;
    if (outside) want_between(w, back, in->vstage + !front, mode, in->mb);
    else want_within(w, back, in->inst + !front, mode, in->mb);
  }
  for (uint32_t k = 0; k < x->nheld; k++) {
    uint32_t h = x->held[k], t = w->st->held[h].bucket;
    const ZpBucket *b = bucket_of(w, h);
    if (back && !used_back(w, &w->p->programs.segments[x->segment], k)) continue;
    want(w, b->gathers ? ZP_B_GATHER : ZP_B_PARAM, b->gathers ? t : h, ZP_READ,
         held_tag(w, ZP_TAG_PARAM, h, 0));
    if (!back || b->frozen) continue;
    if (zp_stages_grads(b))
      want(w, ZP_B_STAGING, t, comes_first(w, in, h) ? ZP_WRITE : ZP_READ | ZP_WRITE,
           held_tag(w, ZP_TAG_STAGED, h, in->mb));
    else want(w, ZP_B_GRAD, h, ZP_READ | ZP_WRITE, held_tag(w, ZP_TAG_GRAD, h, 0));
  }
  if (!back) want(w, ZP_B_SCALARS, ZP_SCALARS_SUMS, ZP_READ | ZP_WRITE, zp_tag(ZP_TAG_SUMS, 0, 0, 0));
  if (back ? zp_needs_denominator(w->p, x) : forward_divides(&w->p->programs.segments[x->segment]))
    want(w, ZP_B_SCALARS, ZP_SCALARS_COUNT, ZP_READ, zp_tag(ZP_TAG_COUNT, 0, 0, 1));
}

/* One contents into another, in one place. */
static void want_change(Wants *w, ZpBufKind kind, uint32_t pool, uint64_t before, uint64_t after) {
  uint32_t from = want(w, kind, pool, ZP_READ, before), to = want(w, kind, pool, ZP_WRITE, after);
  if (w->ok && from != to)
    w->ok = zp_fail_at(w->c, w->s, w->instr, "reads %s, but writes %s", zp_say_buf(w->c, w->s, from),
                       zp_say_buf(w->c, w->s, to));
}

static void want_of_bucket(Wants *w, const ZpInstr *in) {
  uint32_t h = in->held, t = w->st->held[h].bucket, phase = phase_after(w, h, (ZpInstrOp)in->op);
  uint64_t param = held_tag(w, ZP_TAG_PARAM, h, 0), stepped = held_tag(w, ZP_TAG_PARAM, h, 1);
  const ZpOptimizer *by;
  switch ((ZpInstrOp)in->op) {
  case ZP_I_GATHER_PARAMS:
    want(w, ZP_B_PARAM, h, ZP_READ, param);
    want(w, ZP_B_GATHER, t, ZP_WRITE, param);
    return;
  case ZP_I_SCATTER_GRADS:
    if (in->in_place) break;
    want_change(w, ZP_B_STAGING, t, held_tag(w, ZP_TAG_STAGED, h, in->mb), zp_tag(ZP_TAG_NOTHING, 0, 0, 0));
    want(w, ZP_B_GRAD, h, ZP_READ | ZP_WRITE, held_tag(w, ZP_TAG_GRAD, h, 0));
    return;
  case ZP_I_PUBLISH_PARAMS: want_change(w, ZP_B_PARAM, h, stepped, param); return;
  case ZP_I_MOMENTUM:
    want(w, ZP_B_GRAD, h, ZP_READ, held_tag(w, ZP_TAG_GRAD, h, phase_after(w, h, ZP_INSTRS)));
    want(w, ZP_B_STATE, h, ZP_READ | ZP_WRITE, held_tag(w, ZP_TAG_STATE, h, 0));
    want(w, ZP_B_SCALARS, ZP_SCALARS_SUMS, ZP_READ, zp_tag(ZP_TAG_SUMS, 0, 0, 2));
    want(w, ZP_B_UPDATE, 0, ZP_WRITE, held_tag(w, ZP_TAG_UPDATE, h, 0));
    return;
  case ZP_I_GATHER_UPDATES:
    want_change(w, ZP_B_UPDATE, 0, held_tag(w, ZP_TAG_UPDATE, h, 0), held_tag(w, ZP_TAG_UPDATE, h, 1));
    return;
  case ZP_I_ORTHOGONALIZE:
    want_change(w, ZP_B_UPDATE, 0, held_tag(w, ZP_TAG_UPDATE, h, bucket_of(w, h)->matrices != 0),
                held_tag(w, ZP_TAG_UPDATE, h, 2));
    by = &w->p->asked.optimizers[bucket_of(w, h)->optimizer];
    if (by->second) want(w, ZP_B_STATE, h, ZP_READ | ZP_WRITE, held_tag(w, ZP_TAG_STATE, h, 0));
    if (by->second || by->even || by->snapped)
      want(w, ZP_B_SCALARS, ZP_SCALARS_SUMS, ZP_READ, zp_tag(ZP_TAG_SUMS, 0, 0, 2));
    return;
  case ZP_I_SCATTER_UPDATES:
    want_change(w, ZP_B_UPDATE, 0, held_tag(w, ZP_TAG_UPDATE, h, 2), held_tag(w, ZP_TAG_UPDATE, h, 3));
    return;
  case ZP_I_OPT_STEP:
    want_change(w, ZP_B_PARAM, h, param, stepped);
    if (zp_takes_matrices(&w->p->asked.optimizers[bucket_of(w, h)->optimizer])) {
      want(w, ZP_B_UPDATE, 0, ZP_READ, held_tag(w, ZP_TAG_UPDATE, h, bucket_of(w, h)->matrices ? 3 : 2));
      if (w->p->asked.average > 0)
        want(w, ZP_B_STATE, h, ZP_READ | ZP_WRITE, held_tag(w, ZP_TAG_STATE, h, 0));
      want(w, ZP_B_SCALARS, ZP_SCALARS_SUMS, ZP_READ, zp_tag(ZP_TAG_SUMS, 0, 0, 2));
      return;
    }
    want(w, ZP_B_GRAD, h, ZP_READ, held_tag(w, ZP_TAG_GRAD, h, phase_after(w, h, ZP_INSTRS)));
    if (w->p->asked.optimizers[bucket_of(w, h)->optimizer].states || w->p->asked.average > 0)
      want(w, ZP_B_STATE, h, ZP_READ | ZP_WRITE, held_tag(w, ZP_TAG_STATE, h, 0));
    want(w, ZP_B_SCALARS, ZP_SCALARS_SUMS, ZP_READ, zp_tag(ZP_TAG_SUMS, 0, 0, 2));
    return;
  default: break;
  }
  want_change(w, ZP_B_GRAD, h, held_tag(w, ZP_TAG_GRAD, h, phase - 1), held_tag(w, ZP_TAG_GRAD, h, phase));
}

static void want_of_step(Wants *w, const ZpInstr *in) {
  bool counted = false;
  uint64_t count0 = zp_tag(ZP_TAG_COUNT, 0, 0, 0), sums0 = zp_tag(ZP_TAG_SUMS, 0, 0, 0);
  switch ((ZpInstrOp)in->op) {
  case ZP_I_ZERO_SUMS:
  case ZP_I_ZERO_GRADS:
    for (uint32_t h = 0; h < w->st->nheld && in->op == ZP_I_ZERO_GRADS; h++)
      if (!bucket_of(w, h)->frozen) want(w, ZP_B_GRAD, h, ZP_WRITE, held_tag(w, ZP_TAG_GRAD, h, 0));
    want(w, ZP_B_SCALARS, ZP_SCALARS_COUNT, ZP_WRITE, count0);
    want(w, ZP_B_SCALARS, ZP_SCALARS_SUMS, ZP_WRITE, sums0);
    return;
  case ZP_I_NORM_LOCAL:
    for (uint32_t h = 0; h < w->st->nheld; h++)
      if (!bucket_of(w, h)->frozen)
        want(w, ZP_B_GRAD, h, ZP_READ, held_tag(w, ZP_TAG_GRAD, h, phase_after(w, h, ZP_INSTRS)));
    for (uint32_t h = 0; h < w->st->nheld; h++)
      if (!bucket_of(w, h)->frozen && w->p->asked.optimizers[bucket_of(w, h)->optimizer].relative)
        want(w, ZP_B_PARAM, h, ZP_READ, held_tag(w, ZP_TAG_PARAM, h, 0));
    want_change(w, ZP_B_SCALARS, ZP_SCALARS_SUMS, sums0, zp_tag(ZP_TAG_SUMS, 0, 0, 1));
    return;
  case ZP_I_REDUCE_COUNT:
    want_change(w, ZP_B_SCALARS, ZP_SCALARS_COUNT, count0, zp_tag(ZP_TAG_COUNT, 0, 0, 1));
    return;
  default: break; /* REDUCE_STEP */
  }
  for (uint32_t i = 0; i < w->st->ninsts; i++) counted |= zp_needs_denominator(w->p, &w->st->insts[i]);
  want(w, ZP_B_SCALARS, ZP_SCALARS_COUNT, ZP_READ, zp_tag(ZP_TAG_COUNT, 0, 0, counted));
  want_change(w, ZP_B_SCALARS, ZP_SCALARS_SUMS, zp_tag(ZP_TAG_SUMS, 0, 0, w->p->asked.forward_only ? 0 : 1),
              zp_tag(ZP_TAG_SUMS, 0, 0, 2));
}

static void want_transfer(Wants *w, const ZpInstr *in) {
  static const ZpBufKind ring[] = {ZP_B_SEND_ACT, ZP_B_RECV_ACT, ZP_B_SEND_GRAD, ZP_B_RECV_GRAD};
  bool act = in->op == ZP_I_SEND_ACT || in->op == ZP_I_RECV_ACT;
  bool send = in->op == ZP_I_SEND_ACT || in->op == ZP_I_SEND_GRAD;
  const ZpVirtualStage *later = vstage(w, in->vstage), *own = act == send ? later - 1 : later;
  const ZpInst *x = &w->p->programs.stages[later->stage].insts[later->first];
  const ZpSegment *g = &w->p->programs.segments[x->segment];
  uint64_t bytes = act ? g->carry_bytes : g->dcarry_bytes;
  if (in->bytes != bytes)
    w->ok =
        zp_fail_at(w->c, w->s, w->instr, "moves %llu bytes, but %s has %llu", (unsigned long long)in->bytes,
                   act ? "what is carried" : "its cotangent", (unsigned long long)bytes);
  want(w, ring[in->op - ZP_I_SEND_ACT], own->index, send ? ZP_READ : ZP_WRITE,
       zp_tag(act ? ZP_TAG_CARRY : ZP_TAG_DCARRY, x->segment, x->iter, in->mb));
}

bool zp_check_operands(const Check *c, uint32_t s, uint32_t i) {
  const ZpStage *st = &c->p->programs.stages[s];
  const ZpInstr *in = &st->prog.instrs[i];
  Wants w = {c, c->p, st, s, i, 0, 0, true};
  const ZpVirtualStage *v = in->vstage < c->p->programs.nvstages ? vstage(&w, in->vstage) : NULL;
  bool temp =
      in->op == ZP_I_FWD || in->op == ZP_I_BWD || in->op == ZP_I_COUNT || in->op == ZP_I_ORTHOGONALIZE;
  if (in->queue == ZP_Q_P2P) want_transfer(&w, in);
  else if (in->op == ZP_I_FWD || in->op == ZP_I_BWD) want_work(&w, in);
  else if (in->op == ZP_I_LOAD) want(&w, ZP_B_SLOT, v->index, ZP_WRITE, slot_tag(&w, in));
  else if (in->op == ZP_I_COUNT) {
    if (v->input_bytes) want(&w, ZP_B_SLOT, v->index, ZP_READ, slot_tag(&w, in));
    want(&w, ZP_B_SCALARS, ZP_SCALARS_COUNT, ZP_READ | ZP_WRITE, zp_tag(ZP_TAG_COUNT, 0, 0, 0));
  } else if (in->op == ZP_I_ZERO_GRADS || in->op == ZP_I_ZERO_SUMS || in->op == ZP_I_NORM_LOCAL ||
             in->op == ZP_I_REDUCE_COUNT || in->op == ZP_I_REDUCE_STEP)
    want_of_step(&w, in);
  else want_of_bucket(&w, in);
  if (temp && st->scratch_bytes) want(&w, ZP_B_SCRATCH, 0, ZP_WRITE, zp_tag(ZP_TAG_TEMP, 0, 0, 0));
  if (w.ok && w.matched != in->naccess)
    return zp_fail_at(c, s, i, "has %u operands, but needs %u", in->naccess, w.matched);
  return w.ok;
}

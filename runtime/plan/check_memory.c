/* Operands, contents and the arena of one stage.
 *
 * What "before" means: an instruction is complete before another starts if the other waits for it, or starts after (in
 * its queue, or through waits) one that does; in the compute queue the next one also waits for the one before. Starting
 * in order says nothing about completing in order. So for every instruction e we want the first instruction of each
 * queue that starts after e is complete: `done`, three positions. All later ones of that queue do too. Computed from the
 * back of the list in one pass, with `begun`, the same for what starts after e has started:
 *   begun[e] = e itself, begun of the next in its queue, done[e]
 *   done[e]  = begun of all that wait for e; of the next one too if e computes */
#include "runtime/plan/check.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  uint32_t at[ZP_QUEUES];
} Clock;

typedef struct {
  uint32_t writer, writer_access; /* last; ZP_NONE: nobody yet */
  uint64_t tag;                   /* what it holds */
  bool read;                      /* since it was written */
  uint32_t readers;               /* since then: chain of accesses */
  uint32_t *overlap, noverlap;    /* buffers with common bytes */
} Cell;

typedef struct {
  const Check *c;
  const ZpPlan *p;
  const ZpStage *st;
  uint32_t s;
  Clock *done;
  Cell *cells;
  struct { uint32_t instr, next; } *reads; /* chains of readers */
  uint32_t nreads;
} Mem;

static bool fail(const Mem *m, uint32_t i, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static bool fail(const Mem *m, uint32_t i, const char *fmt, ...) {
  ZbErr text;
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text.text, sizeof text.text, fmt, ap);
  va_end(ap);
  return zb_fail(m->c->err, NULL, "%s %s", zp_say(m->c, m->s, i), text.text);
}

/* ---- in words ---- */
static const char *say_tag(const Mem *m, uint64_t tag) {
  uint32_t a = tag >> 40 & 0xffff, b = tag >> 24 & 0xffff, n = tag & 0xffffff;
  bool inst = a < m->p->graph->nsegments, bucket = a < m->p->nbuckets;
  ZbArena *t = m->c->a;
  switch ((ZpTag)(tag >> 56)) {
  case ZP_TAG_NOTHING: return "nothing of use";
  case ZP_TAG_SLOT: return zb_printf(t, "values of micro-batch %u", n);
  case ZP_TAG_CARRY: return inst ? zb_printf(t, "the tuple into %s, micro-batch %u", zp_say_inst(m->c, a, b), n) : "?";
  case ZP_TAG_DCARRY: return inst ? zb_printf(t, "the cotangents of %s, micro-batch %u", zp_say_inst(m->c, a, b), n) : "?";
  case ZP_TAG_PARAM:
    return bucket ? zb_printf(t, "%sparameters of %s", n == 0 ? "" : n == 1 ? "stepped " : "published ", zp_say_held(m->c, a, b)) : "?";
  case ZP_TAG_STAGED: return bucket ? zb_printf(t, "the gradient of %s, micro-batch %u", zp_say_held(m->c, a, b), n) : "?";
  case ZP_TAG_GRAD: return bucket ? zb_printf(t, "the accumulated gradient of %s after %u reductions", zp_say_held(m->c, a, b), n) : "?";
  case ZP_TAG_STATE: return bucket ? zb_printf(t, "the optimizer state of %s", zp_say_held(m->c, a, b)) : "?";
  case ZP_TAG_TEMP: return "temporaries";
  case ZP_TAG_COUNT: return n ? "the whole loss denominator" : "this rank's loss denominator";
  case ZP_TAG_SUMS: return n == 2 ? "the world's sums" : n ? "this rank's sums with the norm" : "this rank's loss sums";
  }
  return "?";
}

static const char *const kind_text[ZP_B_KINDS] = {
    [ZP_B_SLOT] = "slot", [ZP_B_RECV_ACT] = "activation receive buffer", [ZP_B_SEND_ACT] = "activation send buffer",
    [ZP_B_RECV_GRAD] = "gradient receive buffer", [ZP_B_SEND_GRAD] = "gradient send buffer", [ZP_B_GATHER] = "gather buffer",
    [ZP_B_STAGING] = "staging buffer", [ZP_B_PARAM] = "parameter store", [ZP_B_GRAD] = "gradient accumulator",
    [ZP_B_STATE] = "optimizer state", [ZP_B_BOUNDARY] = "boundary buffer", [ZP_B_SCRATCH] = "scratch", [ZP_B_SCALARS] = "scalars"};

static const char *say_buf(const Mem *m, uint32_t buf) {
  const ZpBuf *b = &m->st->prog.bufs[buf];
  ZbArena *t = m->c->a;
  switch ((ZpBufKind)b->kind) {
  case ZP_B_GATHER:
  case ZP_B_STAGING: return zb_printf(t, "%s %u of %s", kind_text[b->kind], b->index, m->p->buckets[b->pool].name);
  case ZP_B_PARAM:
  case ZP_B_GRAD:
  case ZP_B_STATE:
    return zb_printf(t, "%s of %s", kind_text[b->kind], zp_say_held(m->c, m->st->held[b->pool].bucket, m->st->held[b->pool].iter));
  default: return zb_printf(t, "%s %u", kind_text[b->kind], b->index);
  }
}

/* ---- operands: what an instruction must read and write, derived from the plan ---- */
typedef struct {
  Mem *m;
  uint32_t instr, cursor, matched; /* where to look next among its accesses */
  bool ok;
} Wants;

static void want(Wants *w, ZpBufKind kind, uint32_t pool, uint32_t mode, uint64_t tag) {
  const ZpInstr *in = &w->m->st->prog.instrs[w->instr];
  for (uint32_t k = 0; k < in->naccess && w->ok; k++) { /* usually the first one looked at */
    const ZpAccess *x = &in->access[(w->cursor + k) % in->naccess];
    const ZpBuf *b = &w->m->st->prog.bufs[x->buf];
    if (b->kind != kind || x->mode != mode || x->tag != tag) continue;
    if (kind == ZP_B_SCALARS ? b->index != pool : b->pool != pool) continue;
    w->cursor = (w->cursor + k + 1) % in->naccess;
    w->matched++;
    return;
  }
  if (!w->ok) return;
  const char *verb = mode == ZP_READ ? "read" : mode == ZP_WRITE ? "write" : "update";
  w->ok = fail(w->m, w->instr, "should %s %s (%s), but does not", verb, say_tag(w->m, tag), kind_text[kind]);
}

static uint64_t held_tag(const Mem *m, ZpTag kind, uint32_t held, uint32_t n) {
  return zp_tag(kind, m->st->held[held].bucket, m->st->held[held].iter, n);
}
static const ZpBucket *bucket_of(const Mem *m, uint32_t held) { return &m->p->buckets[m->st->held[held].bucket]; }

/* Reductions of a held bucket's accumulator up to and including that of kind `op`; all for ZP_I_COUNT_. */
static uint32_t phase_after(const Mem *m, uint32_t held, ZpInstrOp op) {
  const ZpBucket *b = bucket_of(m, held);
  uint32_t n = b->level == 1;
  if (op == ZP_I_SCATTER_GRADS) return n;
  n += (b->level ? b->partial & ~b->shard : b->partial) != 0;
  if (op == ZP_I_REDUCE_GRADS) return n;
  return n + (m->st->held[held].tied != ZP_NONE);
}

static void want_tuple(Wants *w, int backward, uint32_t i, uint32_t mode, ZpBufKind from_stage, uint32_t mb) {
  Mem *m = w->m;
  bool outside = i == 0 || i == m->st->ninsts; /* between stages */
  if (outside && (i ? m->s + 1 == m->p->nstages : m->s == 0)) return;
  const ZpInst *x = i < m->st->ninsts ? &m->st->insts[i] : &m->p->stages[m->s + 1].insts[0];
  const ZpSegment *g = &m->p->segments[x->segment];
  if (!(backward ? g->dcarry_bytes : g->carry_bytes)) return;
  if (!outside && !backward && g->saves_carry) return; /* in the slot */
  want(w, outside ? from_stage : ZP_B_BOUNDARY, 0, mode, zp_tag(backward ? ZP_TAG_DCARRY : ZP_TAG_CARRY, x->segment, x->iter, mb));
}

static void want_work(Wants *w, const ZpInstr *in) {
  Mem *m = w->m;
  const ZpInst *x = &m->st->insts[in->inst];
  bool back = in->op == ZP_I_BWD;
  bool fresh = in->inst == 0 && !m->st->input_bytes;
  want(w, ZP_B_SLOT, 0, back ? ZP_READ : fresh ? ZP_WRITE : ZP_READ | ZP_WRITE, zp_tag(ZP_TAG_SLOT, 0, 0, in->mb));
  if (!back) {
    want_tuple(w, 0, in->inst, ZP_READ, ZP_B_RECV_ACT, in->mb);
    want_tuple(w, 0, in->inst + 1, ZP_WRITE, ZP_B_SEND_ACT, in->mb);
  } else {
    if (!in->inst && m->p->segments[x->segment].saves_carry) want_tuple(w, 0, 0, ZP_READ, ZP_B_RECV_ACT, in->mb);
    want_tuple(w, 1, in->inst + 1, ZP_READ, ZP_B_RECV_GRAD, in->mb);
    want_tuple(w, 1, in->inst, ZP_WRITE, ZP_B_SEND_GRAD, in->mb);
  }
  for (uint32_t k = 0; k < x->nheld; k++) {
    uint32_t h = x->held[k], t = m->st->held[h].bucket;
    int level = m->p->buckets[t].level;
    want(w, level >= 3 ? ZP_B_GATHER : ZP_B_PARAM, level >= 3 ? t : h, ZP_READ, held_tag(m, ZP_TAG_PARAM, h, 0));
    if (back && level >= 2) want(w, ZP_B_STAGING, t, ZP_WRITE, held_tag(m, ZP_TAG_STAGED, h, in->mb));
    if (back && level < 2) want(w, ZP_B_GRAD, h, ZP_READ | ZP_WRITE, held_tag(m, ZP_TAG_GRAD, h, 0));
  }
  if (!back) want(w, ZP_B_SCALARS, ZP_SCALARS_SUMS, ZP_READ | ZP_WRITE, zp_tag(ZP_TAG_SUMS, 0, 0, 0));
  if (back && zp_counts(m->p, x)) want(w, ZP_B_SCALARS, ZP_SCALARS_COUNT, ZP_READ, zp_tag(ZP_TAG_COUNT, 0, 0, 1));
}

/* One contents into another. */
static void want_change(Wants *w, ZpBufKind kind, uint32_t pool, uint64_t before, uint64_t after) {
  want(w, kind, pool, ZP_READ, before);
  want(w, kind, pool, ZP_WRITE, after);
}

static void want_of_bucket(Wants *w, const ZpInstr *in) {
  Mem *m = w->m;
  uint32_t h = in->held, t = m->st->held[h].bucket, phase = phase_after(m, h, (ZpInstrOp)in->op);
  uint64_t param = held_tag(m, ZP_TAG_PARAM, h, 0), stepped = held_tag(m, ZP_TAG_PARAM, h, 1);
  switch ((ZpInstrOp)in->op) {
  case ZP_I_GATHER_PARAMS:
    want(w, ZP_B_PARAM, h, ZP_READ, param);
    want(w, ZP_B_GATHER, t, ZP_WRITE, param);
    return;
  case ZP_I_SCATTER_GRADS:
    if (in->in_place) break;
    want_change(w, ZP_B_STAGING, t, held_tag(m, ZP_TAG_STAGED, h, in->mb), zp_tag(ZP_TAG_NOTHING, 0, 0, 0));
    want(w, ZP_B_GRAD, h, ZP_READ | ZP_WRITE, held_tag(m, ZP_TAG_GRAD, h, 0));
    return;
  case ZP_I_PUBLISH_PARAMS: want_change(w, ZP_B_PARAM, h, stepped, held_tag(m, ZP_TAG_PARAM, h, 2)); return;
  case ZP_I_OPT_STEP:
    want(w, ZP_B_GRAD, h, ZP_READ, held_tag(m, ZP_TAG_GRAD, h, phase_after(m, h, ZP_I_COUNT_)));
    want_change(w, ZP_B_PARAM, h, param, stepped);
    if (m->p->states) want(w, ZP_B_STATE, h, ZP_READ | ZP_WRITE, held_tag(m, ZP_TAG_STATE, h, 0));
    want(w, ZP_B_SCALARS, ZP_SCALARS_SUMS, ZP_READ, zp_tag(ZP_TAG_SUMS, 0, 0, 2));
    return;
  default: break;
  }
  want_change(w, ZP_B_GRAD, h, held_tag(m, ZP_TAG_GRAD, h, phase - 1), held_tag(m, ZP_TAG_GRAD, h, phase));
}

static void want_of_step(Wants *w, const ZpInstr *in) {
  Mem *m = w->m;
  bool counted = false;
  uint64_t count0 = zp_tag(ZP_TAG_COUNT, 0, 0, 0), sums0 = zp_tag(ZP_TAG_SUMS, 0, 0, 0);
  switch ((ZpInstrOp)in->op) {
  case ZP_I_ZERO_GRADS:
    for (uint32_t h = 0; h < m->st->nheld; h++) want(w, ZP_B_GRAD, h, ZP_WRITE, held_tag(m, ZP_TAG_GRAD, h, 0));
    want(w, ZP_B_SCALARS, ZP_SCALARS_COUNT, ZP_WRITE, count0);
    want(w, ZP_B_SCALARS, ZP_SCALARS_SUMS, ZP_WRITE, sums0);
    return;
  case ZP_I_NORM_LOCAL:
    for (uint32_t h = 0; h < m->st->nheld; h++)
      want(w, ZP_B_GRAD, h, ZP_READ, held_tag(m, ZP_TAG_GRAD, h, phase_after(m, h, ZP_I_COUNT_)));
    want_change(w, ZP_B_SCALARS, ZP_SCALARS_SUMS, sums0, zp_tag(ZP_TAG_SUMS, 0, 0, 1));
    return;
  case ZP_I_REDUCE_COUNT: want_change(w, ZP_B_SCALARS, ZP_SCALARS_COUNT, count0, zp_tag(ZP_TAG_COUNT, 0, 0, 1)); return;
  default: break; /* REDUCE_STEP */
  }
  for (uint32_t i = 0; i < m->st->ninsts; i++) counted |= zp_counts(m->p, &m->st->insts[i]);
  want(w, ZP_B_SCALARS, ZP_SCALARS_COUNT, ZP_READ, zp_tag(ZP_TAG_COUNT, 0, 0, counted));
  want_change(w, ZP_B_SCALARS, ZP_SCALARS_SUMS, zp_tag(ZP_TAG_SUMS, 0, 0, 1), zp_tag(ZP_TAG_SUMS, 0, 0, 2));
}

static void want_transfer(Wants *w, const ZpInstr *in) {
  static const ZpBufKind ring[] = {ZP_B_SEND_ACT, ZP_B_RECV_ACT, ZP_B_SEND_GRAD, ZP_B_RECV_GRAD};
  bool act = in->op == ZP_I_SEND_ACT || in->op == ZP_I_RECV_ACT, send = in->op == ZP_I_SEND_ACT || in->op == ZP_I_SEND_GRAD;
  uint32_t later = act == send ? in->peer : w->m->s;
  const ZpInst *x = &w->m->p->stages[later].insts[0];
  const ZpSegment *g = &w->m->p->segments[x->segment];
  uint64_t bytes = act ? g->carry_bytes : g->dcarry_bytes;
  if (in->bytes != bytes)
    w->ok = fail(w->m, w->instr, "moves %llu bytes, but %s has %llu", (unsigned long long)in->bytes,
                 act ? "what is carried" : "its cotangent", (unsigned long long)bytes);
  want(w, ring[in->op - ZP_I_SEND_ACT], 0, send ? ZP_READ : ZP_WRITE,
       zp_tag(act ? ZP_TAG_CARRY : ZP_TAG_DCARRY, x->segment, x->iter, in->mb));
}

static bool operands(Mem *m, uint32_t i) {
  const ZpInstr *in = &m->st->prog.instrs[i];
  Wants w = {m, i, 0, 0, true};
  uint64_t slot = zp_tag(ZP_TAG_SLOT, 0, 0, in->mb);
  bool temp = in->op == ZP_I_FWD || in->op == ZP_I_BWD || in->op == ZP_I_COUNT;
  if (in->queue == ZP_Q_P2P) want_transfer(&w, in);
  else if (in->op == ZP_I_FWD || in->op == ZP_I_BWD) want_work(&w, in);
  else if (in->op == ZP_I_LOAD) want(&w, ZP_B_SLOT, 0, ZP_WRITE, slot);
  else if (in->op == ZP_I_COUNT) {
    if (m->st->input_bytes) want(&w, ZP_B_SLOT, 0, ZP_READ, slot);
    want(&w, ZP_B_SCALARS, ZP_SCALARS_COUNT, ZP_READ | ZP_WRITE, zp_tag(ZP_TAG_COUNT, 0, 0, 0));
  } else if (in->op == ZP_I_ZERO_GRADS || in->op == ZP_I_NORM_LOCAL || in->op == ZP_I_REDUCE_COUNT || in->op == ZP_I_REDUCE_STEP)
    want_of_step(&w, in);
  else want_of_bucket(&w, in);
  if (temp && m->st->scratch_bytes) want(&w, ZP_B_SCRATCH, 0, ZP_WRITE, zp_tag(ZP_TAG_TEMP, 0, 0, 0));
  if (w.ok && w.matched != in->naccess)
    return fail(m, i, "has %u operands, but needs %u", in->naccess, w.matched);
  return w.ok;
}

/* ---- before ---- */
static void earlier(Clock *c, const Clock *than) {
  for (int q = 0; q < ZP_QUEUES; q++)
    if (than->at[q] < c->at[q]) c->at[q] = than->at[q];
}

static void fill_clocks(Mem *m) {
  const ZpProgram *g = &m->st->prog;
  const uint32_t *pos = m->c->pos + m->c->base[m->s];
  const Clock never = {{ZP_NONE, ZP_NONE, ZP_NONE}};
  Clock next[ZP_QUEUES] = {never, never, never}; /* begun of the next in each queue */
  m->done = ZB_NEWN(m->c->a, Clock, g->ninstrs);
  for (uint32_t i = 0; i < g->ninstrs; i++) m->done[i] = never;
  for (uint32_t i = g->ninstrs; i-- > 0;) {
    const ZpInstr *in = &g->instrs[i];
    if (in->queue == ZP_Q_COMPUTE) earlier(&m->done[i], &next[ZP_Q_COMPUTE]);
    Clock *begun = &next[in->queue];
    earlier(begun, &m->done[i]);
    begun->at[in->queue] = pos[i];
    for (uint32_t k = 0; k < in->nwait; k++) earlier(&m->done[in->wait[k]], begun);
  }
}

/* Instruction `a` is complete before `b` starts, in every run. */
static bool before(const Mem *m, uint32_t a, uint32_t b) {
  return m->done[a].at[m->st->prog.instrs[b].queue] <= m->c->pos[m->c->base[m->s] + b];
}

static bool step_in_order(const Mem *m) {
  const ZpProgram *g = &m->st->prog;
  uint32_t norm = ZP_NONE, step = ZP_NONE;
  for (uint32_t i = 0; i < g->ninstrs; i++) {
    if (g->instrs[i].op == ZP_I_NORM_LOCAL) norm = i;
    if (g->instrs[i].op == ZP_I_REDUCE_STEP) step = i;
  }
  if (!before(m, norm, step)) return fail(m, step, "may run before NORM_LOCAL is complete");
  for (uint32_t i = 0; i < g->ninstrs; i++) {
    bool bwd = g->instrs[i].op == ZP_I_BWD, opt = g->instrs[i].op == ZP_I_OPT_STEP;
    if (bwd && !before(m, i, norm)) return fail(m, norm, "may run before %s is complete", zp_say(m->c, m->s, i));
    if (opt && !before(m, step, i)) return fail(m, i, "may run before REDUCE_STEP is complete");
  }
  return true;
}

/* ---- contents ---- */
static bool passing(const Mem *m, uint32_t buf) { /* what is written into such buffers is written for somebody */
  switch ((ZpBufKind)m->st->prog.bufs[buf].kind) {
  case ZP_B_PARAM:
  case ZP_B_GRAD:
  case ZP_B_STATE:
  case ZP_B_SCRATCH:
  case ZP_B_SCALARS: return false;
  default: return true;
  }
}

static bool unread(const Mem *m, uint32_t buf) {
  const Cell *x = &m->cells[buf];
  if (x->writer == ZP_NONE || x->read || x->tag >> 56 == ZP_TAG_NOTHING || !passing(m, buf)) return true;
  return fail(m, x->writer, "writes %s into %s, but nobody reads it", say_tag(m, x->tag), say_buf(m, buf));
}

static bool reads(Mem *m, uint32_t i, const ZpAccess *a) {
  Cell *x = &m->cells[a->buf];
  if (x->tag != a->tag)
    return x->writer == ZP_NONE
               ? fail(m, i, "reads %s from %s, where nobody has put it", say_tag(m, a->tag), say_buf(m, a->buf))
               : fail(m, i, "reads %s from %s, but %s has put %s there", say_tag(m, a->tag), say_buf(m, a->buf),
                      zp_say(m->c, m->s, x->writer), say_tag(m, x->tag));
  if (x->writer != ZP_NONE && x->writer != i && !before(m, x->writer, i))
    return fail(m, i, "may read %s before %s has written it", say_buf(m, a->buf), zp_say(m->c, m->s, x->writer));
  x->read = true;
  m->reads[m->nreads].instr = i;
  m->reads[m->nreads].next = x->readers;
  x->readers = m->nreads++;
  return true;
}

/* `buf` is overwritten by instruction i with `tag`. */
static bool writes(Mem *m, uint32_t i, uint32_t buf, uint64_t tag) {
  Cell *x = &m->cells[buf];
  for (uint32_t r = x->readers; r != ZP_NONE; r = m->reads[r].next)
    if (m->reads[r].instr != i && !before(m, m->reads[r].instr, i))
      return fail(m, i, "may overwrite %s before %s has read %s", say_buf(m, buf), zp_say(m->c, m->s, m->reads[r].instr), say_tag(m, x->tag));
  if (x->writer != ZP_NONE && x->writer != i && !before(m, x->writer, i))
    return fail(m, i, "may write %s while %s still does", say_buf(m, buf), zp_say(m->c, m->s, x->writer));
  if (!unread(m, buf)) return false;
  x->writer = i;
  x->tag = tag;
  x->read = false;
  x->readers = ZP_NONE;
  return true;
}

static bool access_one(Mem *m, uint32_t i, const ZpAccess *a) {
  if (a->mode & ZP_READ && !reads(m, i, a)) return false;
  if (!(a->mode & ZP_WRITE)) return true;
  const Cell *x = &m->cells[a->buf];
  for (uint32_t k = 0; k < x->noverlap; k++)
    if (!writes(m, i, x->overlap[k], zp_tag(ZP_TAG_NOTHING, 0, 0, 0))) return false;
  return writes(m, i, a->buf, a->tag);
}

/* Parameters are updated for the next step, in the state in which it starts: stored parts, or published. */
static bool contents_at_end(const Mem *m) {
  for (uint32_t b = 0; b < m->st->prog.nbufs; b++) {
    const ZpBuf *buf = &m->st->prog.bufs[b];
    if (!unread(m, b)) return false;
    if (buf->kind != ZP_B_PARAM) continue;
    int level = bucket_of(m, buf->pool)->level;
    uint64_t tag = held_tag(m, ZP_TAG_PARAM, buf->pool, level == 1 || level == 2 ? 2 : 1);
    if (m->cells[b].tag != tag)
      return zb_fail(m->c->err, NULL, "stage %u: at the end of the step %s holds %s instead of %s", m->s, say_buf(m, b),
                     say_tag(m, m->cells[b].tag), say_tag(m, tag));
  }
  return true;
}

typedef struct {
  uint64_t from, to;
  uint32_t buf;
} Span;
static int by_from(const void *x, const void *y) {
  const Span *a = x, *b = y;
  return a->from != b->from ? (a->from < b->from ? -1 : 1) : (a->buf > b->buf) - (a->buf < b->buf);
}

/* Buffers with common bytes. Those that live through the whole step may have none. */
static bool fill_overlaps(Mem *m) {
  const ZpProgram *g = &m->st->prog;
  Span *span = ZB_NEWN(m->c->a, Span, g->nbufs);
  uint32_t n = 0, *open = ZB_NEWN(m->c->a, uint32_t, g->nbufs), nopen = 0;
  for (uint32_t b = 0; b < g->nbufs; b++)
    if (g->bufs[b].bytes) span[n++] = (Span){g->bufs[b].offset, g->bufs[b].offset + g->bufs[b].bytes, b};
  qsort(span, n, sizeof *span, by_from);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t keep = 0;
    for (uint32_t k = 0; k < nopen; k++) {
      const Span *o = &span[open[k]];
      if (o->to <= span[i].from) continue;
      open[keep++] = open[k];
      if (!passing(m, o->buf) || !passing(m, span[i].buf))
        if (g->bufs[o->buf].kind != ZP_B_SCRATCH && g->bufs[span[i].buf].kind != ZP_B_SCRATCH)
          return zb_fail(m->c->err, NULL, "stage %u: %s and %s overlap in the arena", m->s, say_buf(m, o->buf), say_buf(m, span[i].buf));
      Cell *x = &m->cells[o->buf], *y = &m->cells[span[i].buf];
      ZB_PUSH(m->c->a, x->overlap, x->noverlap, span[i].buf);
      ZB_PUSH(m->c->a, y->overlap, y->noverlap, o->buf);
    }
    nopen = keep;
    open[nopen++] = i;
  }
  return true;
}

bool zp_check_memory(const Check *c, uint32_t s) {
  const ZpProgram *g = &c->p->stages[s].prog;
  Mem m = {.c = c, .p = c->p, .st = &c->p->stages[s], .s = s, .cells = ZB_NEWN(c->a, Cell, g->nbufs)};
  uint32_t n = 0;
  for (uint32_t i = 0; i < g->ninstrs; i++) {
    if (!operands(&m, i)) return false;
    n += g->instrs[i].naccess;
  }
  m.reads = zb_alloc(c->a, zb_array_bytes(n, sizeof *m.reads));
  for (uint32_t b = 0; b < g->nbufs; b++) {
    m.cells[b].writer = m.cells[b].readers = ZP_NONE;
    if (g->bufs[b].kind == ZP_B_PARAM) m.cells[b].tag = held_tag(&m, ZP_TAG_PARAM, g->bufs[b].pool, 0);
    if (g->bufs[b].kind == ZP_B_STATE) m.cells[b].tag = held_tag(&m, ZP_TAG_STATE, g->bufs[b].pool, 0);
  }
  fill_clocks(&m);
  if (!step_in_order(&m) || !fill_overlaps(&m)) return false;
  for (uint32_t i = 0; i < g->ninstrs; i++)
    for (uint32_t k = 0; k < g->instrs[i].naccess; k++)
      if (!access_one(&m, i, &g->instrs[i].access[k])) return false;
  return contents_at_end(&m);
}

/* ---- the arena ---- */
static uint64_t needed(const ZpPlan *p, const ZpStage *st, const ZpBuf *b) {
  const ZpBucket *k = NULL;
  uint32_t t = ZP_NONE;
  if (b->kind == ZP_B_GATHER || b->kind == ZP_B_STAGING) t = b->pool;
  if (b->kind == ZP_B_PARAM || b->kind == ZP_B_GRAD || b->kind == ZP_B_STATE) t = st->held[b->pool].bucket;
  if (t != ZP_NONE) k = &p->buckets[t];
  switch ((ZpBufKind)b->kind) {
  case ZP_B_SLOT: return st->slot_bytes;
  case ZP_B_RECV_ACT: return st->recv_bytes;
  case ZP_B_SEND_ACT: return st->send_bytes;
  case ZP_B_RECV_GRAD: return st->recv_grad_bytes;
  case ZP_B_SEND_GRAD: return st->send_grad_bytes;
  case ZP_B_GATHER: return k->elems * zk_elem_bytes(p->compute);
  case ZP_B_STAGING: return k->elems * 4;
  case ZP_B_PARAM: return zp_param_bytes(p, t) + zp_master_bytes(p, t);
  case ZP_B_GRAD: return zp_grad_bytes(p, t);
  case ZP_B_STATE: return zp_state_bytes(p, t);
  case ZP_B_BOUNDARY: return st->boundary_bytes;
  case ZP_B_SCRATCH: return st->scratch_bytes;
  default: return 8;
  }
}

/* What lies inside slots, scratch and boundaries fits and does not overlap. */
static bool blocks_fit(const Check *c, uint32_t s) {
  const ZpStage *st = &c->p->stages[s];
  uint64_t end = st->input_bytes;
  for (uint32_t i = 0; i < st->ninsts; i++) {
    const ZpInst *x = &st->insts[i];
    const ZpSegment *g = &c->p->segments[x->segment];
    uint64_t bytes = g->saved_bytes + (i && g->saves_carry ? g->carry_bytes : 0); /* the tuple it takes in, behind */
    bool fit = st->saved_at[i] >= end && st->saved_at[i] + bytes <= st->slot_bytes;
    end = st->saved_at[i] + bytes;
    fit &= g->fwd_temp <= st->scratch_bytes && g->bwd_temp <= st->scratch_bytes && g->count_temp <= st->scratch_bytes;
    if (i && !g->saves_carry) fit &= g->carry_bytes <= st->boundary_bytes;
    if (i) fit &= g->dcarry_bytes <= st->boundary_bytes;
    if (!fit)
      return zb_fail(c->err, NULL, "stage %u: the values of %s do not fit into slot, scratch or boundary", s,
                     zp_say_inst(c, x->segment, x->iter));
  }
  return true;
}

bool zp_check_arena(const Check *c, uint32_t s) {
  const ZpStage *st = &c->p->stages[s];
  Mem m = {.c = c, .p = c->p, .st = st, .s = s};
  uint64_t sum = 0;
  if (!blocks_fit(c, s)) return false;
  for (int l = 0; l < ZP_L_COUNT_; l++)
    if (!zb_add_u64(sum, st->ledger.bytes[l], &sum)) return zb_fail(c->err, NULL, "stage %u: the ledger overflows", s);
  if (sum != st->ledger.total)
    return zb_fail(c->err, NULL, "stage %u: the lines of the ledger add up to %llu bytes, its total is %llu", s,
                   (unsigned long long)sum, (unsigned long long)st->ledger.total);
  for (uint32_t b = 0; b < st->prog.nbufs; b++) {
    const ZpBuf *x = &st->prog.bufs[b];
    uint64_t end = UINT64_MAX;
    if (!zb_add_u64(x->offset, x->bytes, &end) || end > st->ledger.total)
      return zb_fail(c->err, NULL, "stage %u: %s ends at byte %llu of an arena of %llu", s, say_buf(&m, b),
                     (unsigned long long)end, (unsigned long long)st->ledger.total);
    if (x->bytes < needed(c->p, st, x))
      return zb_fail(c->err, NULL, "stage %u: %s has %llu bytes, but needs %llu", s, say_buf(&m, b), (unsigned long long)x->bytes,
                     (unsigned long long)needed(c->p, st, x));
    uint64_t held = x->kind == ZP_B_PARAM   ? st->held[x->pool].param_at
                    : x->kind == ZP_B_GRAD  ? st->held[x->pool].grad_at
                    : x->kind == ZP_B_STATE ? st->held[x->pool].state_at
                                            : x->offset;
    if (held != x->offset) return zb_fail(c->err, NULL, "stage %u: %s is not where its bucket says", s, say_buf(&m, b));
  }
  return true;
}

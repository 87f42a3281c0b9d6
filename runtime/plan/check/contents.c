/* Contents of the buffers of one stage.
 *
 * What "before" means: an instruction is complete before another starts if the other waits for it, or starts
 * after (in its queue, or through waits) one that does; in the compute queue the next one also waits for the
 * one before. Starting in order says nothing about completing in order. So for every instruction e we want
 * the first instruction of each queue that starts after e is complete: `done`, three positions. All later
 * ones of that queue do too. Computed from the back of the list in one pass, with `begun`, the same for what
 * starts after e has started:
 *   begun[e] = e itself, begun of the next in its queue, done[e]
 *   done[e]  = begun of all that wait for e; of the next one too if e computes */
#include "runtime/plan/check/check.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  uint32_t at[ZP_QUEUES];
} Clock;

typedef struct {
  uint32_t writer;             /* last; ZP_NONE: nobody yet */
  uint64_t tag;                /* what it holds */
  bool read;                   /* since it was written */
  uint32_t readers;            /* since then: chain of accesses */
  uint32_t *overlap, noverlap; /* buffers with common bytes */
} Cell;

typedef struct {
  const Check *c;
  const ZpPlan *p;
  const ZpStage *st;
  uint32_t s;
  Clock *done;
  Cell *cells;
  struct {
    uint32_t instr, next;
  } * reads; /* chains of readers */
  uint32_t nreads;
} Mem;

static uint64_t held_tag(const Mem *m, ZpTag kind, uint32_t held, uint32_t n) {
  return zp_tag(kind, m->st->held[held].bucket, m->st->held[held].iter, n);
}

/* ---- before -------------------------------------------------------------------------------------------- */
static void earlier(Clock *c, const Clock *than) {
  for (int q = 0; q < ZP_QUEUES; q++)
    if (than->at[q] < c->at[q]) c->at[q] = than->at[q];
}

static void fill_clocks(Mem *m) {
  const ZpProgram *g = &m->st->prog;
  const uint32_t *pos = m->c->pos + m->c->base[m->s];
  Clock never, next[ZP_QUEUES]; /* next: begun of the next in each queue */
  for (int q = 0; q < ZP_QUEUES; q++) never.at[q] = ZP_NONE;
  for (int q = 0; q < ZP_QUEUES; q++) next[q] = never;
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

/* The operands of REDUCE_STEP are enough in a plan that only goes forward. */
static bool step_in_order(const Mem *m) {
  const ZpProgram *g = &m->st->prog;
  uint32_t norm = ZP_NONE, step = ZP_NONE;
  if (m->p->asked.forward_only) return true;
  for (uint32_t i = 0; i < g->ninstrs; i++) {
    if (g->instrs[i].op == ZP_I_NORM_LOCAL) norm = i;
    if (g->instrs[i].op == ZP_I_REDUCE_STEP) step = i;
  }
  if (!before(m, norm, step)) return zp_fail_at(m->c, m->s, step, "may run before NORM_LOCAL is complete");
  for (uint32_t i = 0; i < g->ninstrs; i++) {
    bool bwd = g->instrs[i].op == ZP_I_BWD, opt = g->instrs[i].op == ZP_I_OPT_STEP;
    if (bwd && !before(m, i, norm))
      return zp_fail_at(m->c, m->s, norm, "may run before %s is complete", zp_say(m->c, m->s, i));
    if (opt && !before(m, step, i))
      return zp_fail_at(m->c, m->s, i, "may run before REDUCE_STEP is complete");
  }
  return true;
}

/* ---- contents ------------------------------------------------------------------------------------------ */
static bool passing(const Mem *m,
                    uint32_t buf) { /* what is written into such buffers is written for somebody */
  switch ((ZpBufKind)m->st->prog.bufs[buf].kind) {
  case ZP_B_PARAM:
  case ZP_B_GRAD:
  case ZP_B_STATE:
  case ZP_B_SCRATCH:
  case ZP_B_SCALARS:
  case ZP_B_PINNED_INPUTS:
  case ZP_B_PINNED_SCALARS:
  case ZP_B_CACHE:
  case ZP_B_SNAPSHOT: return false;
  default: return true;
  }
}

/* Checks that the contents of a buffer have been read before `by` overwrites it; ZP_NONE: before the step
 * ends. */
static bool used_up(const Mem *m, uint32_t buf, uint32_t by) {
  const Cell *x = &m->cells[buf];
  if (x->writer == ZP_NONE || x->read || x->tag >> 56 == ZP_TAG_NOTHING || !passing(m, buf)) return true;
  return zp_fail_at(m->c, m->s, x->writer, "writes %s into %s, but nobody reads it%s%s%s",
                    zp_say_tag(m->c, x->tag), zp_say_buf(m->c, m->s, buf), by == ZP_NONE ? "" : " before ",
                    by == ZP_NONE ? "" : zp_say(m->c, m->s, by), by == ZP_NONE ? "" : " overwrites it");
}

static bool reads(Mem *m, uint32_t i, const ZpAccess *a) {
  Cell *x = &m->cells[a->buf];
  if (x->tag != a->tag)
    return x->writer == ZP_NONE ? zp_fail_at(m->c, m->s, i, "reads %s from %s, where nobody has put it",
                                             zp_say_tag(m->c, a->tag), zp_say_buf(m->c, m->s, a->buf))
                                : zp_fail_at(m->c, m->s, i, "reads %s from %s, but %s has put %s there",
                                             zp_say_tag(m->c, a->tag), zp_say_buf(m->c, m->s, a->buf),
                                             zp_say(m->c, m->s, x->writer), zp_say_tag(m->c, x->tag));
  if (x->writer != ZP_NONE && x->writer != i && !before(m, x->writer, i))
    return zp_fail_at(m->c, m->s, i, "may read %s before %s has written it", zp_say_buf(m->c, m->s, a->buf),
                      zp_say(m->c, m->s, x->writer));
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
      return zp_fail_at(m->c, m->s, i, "may overwrite %s before %s has read %s", zp_say_buf(m->c, m->s, buf),
                        zp_say(m->c, m->s, m->reads[r].instr), zp_say_tag(m->c, x->tag));
  if (x->writer != ZP_NONE && x->writer != i && !before(m, x->writer, i))
    return zp_fail_at(m->c, m->s, i, "may write %s while %s still uses it", zp_say_buf(m->c, m->s, buf),
                      zp_say(m->c, m->s, x->writer));
  if (!used_up(m, buf, i)) return false;
  x->writer = i;
  x->tag = tag;
  x->read = false;
  x->readers = ZP_NONE;
  return true;
}

/* Writing into one buffer destroys what others hold in the same bytes; not even the writer
 * may be using them. */
static bool destroys(Mem *m, uint32_t i, uint32_t buf, uint32_t by) {
  const Cell *x = &m->cells[buf];
  bool uses = x->writer == i;
  for (uint32_t r = x->readers; r != ZP_NONE; r = m->reads[r].next) uses |= m->reads[r].instr == i;
  if (uses)
    return zp_fail_at(m->c, m->s, i, "uses %s and %s, which overlap in the arena",
                      zp_say_buf(m->c, m->s, buf), zp_say_buf(m->c, m->s, by));
  return writes(m, i, buf, zp_tag(ZP_TAG_NOTHING, 0, 0, 0));
}

static bool access_one(Mem *m, uint32_t i, const ZpAccess *a) {
  if (a->mode & ZP_READ && !reads(m, i, a)) return false;
  if (!(a->mode & ZP_WRITE)) return true;
  const Cell *x = &m->cells[a->buf];
  for (uint32_t k = 0; k < x->noverlap; k++)
    if (!destroys(m, i, x->overlap[k], a->buf)) return false;
  return writes(m, i, a->buf, a->tag);
}

/* Whole, or as the step before has left them. */
static uint64_t params_at_start(const Mem *m, uint32_t held) {
  const ZpBucket *k = &m->p->programs.buckets[m->st->held[held].bucket];
  return held_tag(m, ZP_TAG_PARAM, held, !m->p->asked.forward_only && k->republishes);
}

/* Parameters are updated for the next step, in the state in which it starts: what ranks own. What is frozen
 * stays as it is, and in a plan that only goes forward everything does. */
static bool contents_at_end(const Mem *m) {
  for (uint32_t b = 0; b < m->st->prog.nbufs; b++) {
    const ZpBuf *buf = &m->st->prog.bufs[b];
    if (!used_up(m, b, ZP_NONE)) return false;
    if (buf->kind != ZP_B_PARAM) continue;
    const ZpBucket *k = &m->p->programs.buckets[m->st->held[buf->pool].bucket];
    uint32_t state = m->p->asked.forward_only || k->frozen ? 0 : 1;
    uint64_t tag = held_tag(m, ZP_TAG_PARAM, buf->pool, state);
    if (m->cells[b].tag != tag)
      return zb_fail(m->c->err, NULL, "stage %u: at the end of the step %s holds %s instead of %s", m->s,
                     zp_say_buf(m->c, m->s, b), zp_say_tag(m->c, m->cells[b].tag), zp_say_tag(m->c, tag));
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

/* Buffers with common bytes of a memory. Those that live through the whole step may have none. */
static bool fill_overlaps(Mem *m, ZpMemory memory) {
  const ZpProgram *g = &m->st->prog;
  Span *span = ZB_NEWN(m->c->a, Span, g->nbufs);
  uint32_t n = 0, *open = ZB_NEWN(m->c->a, uint32_t, g->nbufs), nopen = 0;
  for (uint32_t b = 0; b < g->nbufs; b++)
    if (g->bufs[b].bytes && g->bufs[b].memory == memory)
      span[n++] = (Span){g->bufs[b].offset, g->bufs[b].offset + g->bufs[b].bytes, b};
  qsort(span, n, sizeof *span, by_from);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t keep = 0;
    for (uint32_t k = 0; k < nopen; k++) {
      const Span *o = &span[open[k]];
      if (o->to <= span[i].from) continue;
      open[keep++] = open[k];
      if (!passing(m, o->buf) || !passing(m, span[i].buf))
        if (g->bufs[o->buf].kind != ZP_B_SCRATCH && g->bufs[span[i].buf].kind != ZP_B_SCRATCH)
          return zb_fail(m->c->err, NULL, "stage %u: %s and %s overlap in the %s", m->s,
                         zp_say_buf(m->c, m->s, o->buf), zp_say_buf(m->c, m->s, span[i].buf),
                         memory == ZP_HOST ? "host's memory" : "arena");
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
  const ZpProgram *g = &c->p->programs.stages[s].prog;
  Mem m = {
      .c = c, .p = c->p, .st = &c->p->programs.stages[s], .s = s, .cells = ZB_NEWN(c->a, Cell, g->nbufs)};
  uint32_t n = 0;
  for (uint32_t i = 0; i < g->ninstrs; i++) {
    if (!zp_check_operands(c, s, i)) return false;
    n += g->instrs[i].naccess;
  }
  m.reads = zb_alloc(c->a, zb_array_bytes(n, sizeof *m.reads));
  for (uint32_t b = 0; b < g->nbufs; b++) {
    m.cells[b].writer = m.cells[b].readers = ZP_NONE;
    if (g->bufs[b].kind == ZP_B_PARAM) m.cells[b].tag = params_at_start(&m, g->bufs[b].pool);
    if (g->bufs[b].kind == ZP_B_STATE) m.cells[b].tag = held_tag(&m, ZP_TAG_STATE, g->bufs[b].pool, 0);
  }
  fill_clocks(&m);
  if (!step_in_order(&m) || !fill_overlaps(&m, ZP_DEVICE) || !fill_overlaps(&m, ZP_HOST)) return false;
  for (uint32_t i = 0; i < g->ninstrs; i++)
    for (uint32_t k = 0; k < g->instrs[i].naccess; k++)
      if (!access_one(&m, i, &g->instrs[i].access[k])) return false;
  return contents_at_end(&m);
}

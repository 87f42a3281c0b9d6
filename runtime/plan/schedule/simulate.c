/* When every item and transfer would happen if queues did not exist: computes run in the schedule's order, a
 * transfer happens when its data is made and a receive buffer is free, a send buffer is free again after its
 * transfer. All programs are cut from this one history (see zp_program), so its times only order things; they
 * are integers to be equal on every machine. */
#include "runtime/plan/schedule/schedule.h"

uint64_t *zp_durations(const ZpPlan *p, ZbArena *a) {
  double most = 0;
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    double cost = 0;
    for (uint32_t i = 0; i < p->programs.stages[s].ninsts; i++)
      cost += p->programs.segments[p->programs.stages[s].insts[i].segment].cost;
    if (cost > most) most = cost;
  }
  uint64_t *d = ZB_NEWN(a, uint64_t, p->graph->nsegments);
  for (uint32_t i = 0; i < p->graph->nsegments; i++)
    d[i] = 1 + (uint64_t)(most > 0 ? p->programs.segments[i].cost / most * 1000 : 0);
  return d;
}

bool zp_counts(const ZpPlan *p, const ZpStage *st, uint32_t inst) {
  const ZpSegment *g = &p->programs.segments[st->insts[inst].segment];
  return g->has_loss && g->list[ZP_COUNT].n;
}

uint32_t zp_count_insts(const ZpPlan *p, const ZpStage *st) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < st->ninsts; i++) n += zp_counts(p, st, i);
  return n;
}

bool zp_divides_forward(const ZpPlan *p, const ZpStage *st, uint32_t inst) {
  const ZpSegment *g = &p->programs.segments[st->insts[inst].segment];
  const ZpList *l = &g->list[ZP_FWD];
  for (uint32_t i = 0; i < l->n; i++)
    for (int k = 0; k < l->nodes[i].call.nin; k++) {
      const ZpLoc *at = &g->values[l->nodes[i].in[k]].at;
      if (at->space == ZP_AT_SEED && at->index != zp_seed_index(true, 0)) return true;
    }
  return false;
}

/* Rings whose buffers are held from forward to backward. `n` must cover all that are held at once. */
static Ring ring_held(ZbArena *a, const Timeline *t, uint32_t nmicro, uint32_t n, uint64_t bytes) {
  Ring r = {bytes, n, 0, ZB_NEWN(a, uint32_t, nmicro), ZB_NEWN(a, uint32_t, nmicro)};
  uint32_t *idle = ZB_NEWN(a, uint32_t, n),
           *had = ZB_NEWN(a, uint32_t, n); /* a queue of buffers; who had them */
  uint32_t head = 0, nidle = n;
  for (uint32_t i = 0; i < n; i++) idle[i] = i, had[i] = ZP_NONE;
  for (uint32_t i = 0; i < t->nwork; i++) {
    uint32_t mb = t->work[i].mb;
    if (t->work[i].backward) {
      idle[(head + nidle++) % n] = r.index[mb];
      continue;
    }
    ZB_ASSERT(nidle > 0);
    r.index[mb] = idle[head];
    head = (head + 1) % n, nidle--;
    r.before[mb] = had[r.index[mb]];
    had[r.index[mb]] = mb;
  }
  return r;
}

/* Rings whose buffers are held within one item: each in turn. */
static Ring ring_turns(ZbArena *a, const Timeline *t, uint32_t nmicro, bool backward, uint64_t bytes) {
  uint32_t n = nmicro > 1 ? 2 : 1;
  Ring r = {bytes, n, 0, ZB_NEWN(a, uint32_t, nmicro), ZB_NEWN(a, uint32_t, nmicro)};
  uint32_t had[2] = {ZP_NONE, ZP_NONE}, k = 0;
  for (uint32_t i = 0; i < t->nwork; i++) {
    if (t->work[i].backward != backward) continue;
    uint32_t mb = t->work[i].mb;
    r.index[mb] = k++ % n;
    r.before[mb] = had[r.index[mb]];
    had[r.index[mb]] = mb;
  }
  return r;
}

/* One buffer for all: for what begins and ends within one item of the compute queue, which is in order. */
static Ring ring_of_one(ZbArena *a, uint32_t nmicro, uint64_t bytes) {
  Ring r = {bytes, 1, 0, ZB_NEWN(a, uint32_t, nmicro), ZB_NEWN(a, uint32_t, nmicro)};
  for (uint32_t m = 0; m < nmicro; m++) r.before[m] = m ? m - 1 : ZP_NONE;
  return r;
}

/* What the first stage would receive and the last would send has no bytes. */
static void fill_rings(const ZpPlan *p, ZbArena *a, uint32_t s, Timeline *t) {
  const ZpStage *st = &p->programs.stages[s];
  uint32_t M = (uint32_t)p->asked.nmicro, live = p->asked.forward_only ? 1 : zp_order_live(t->work, t->nwork);
  const ZpSegment *first = &p->programs.segments[st->insts[0].segment];
  const ZpSegment *last = &p->programs.segments[st->insts[st->ninsts - 1].segment];
  t->slot =
      p->asked.forward_only ? ring_of_one(a, M, st->slot_bytes) : ring_held(a, t, M, live, st->slot_bytes);
  t->keeps_act = first->saves_carry;
  t->recv[ACT] = t->keeps_act ? ring_held(a, t, M, live < M ? live + 1 : M, first->carry_bytes)
                              : ring_turns(a, t, M, false, first->carry_bytes);
  t->send[ACT] = ring_turns(a, t, M, false, last->carry_out_bytes);
  t->recv[GRAD] = ring_turns(a, t, M, true, last->dcarry_out_bytes);
  t->send[GRAD] = ring_turns(a, t, M, true, first->dcarry_bytes);
}

static ZpWork *forwards(ZbArena *a, uint32_t nmicro) {
  ZpWork *w = ZB_NEWN(a, ZpWork, nmicro);
  for (uint32_t m = 0; m < nmicro; m++) w[m] = (ZpWork){false, m};
  return w;
}

static void fill_timeline(const ZpPlan *p, ZbArena *a, uint32_t s, Timeline *t) {
  uint32_t M = (uint32_t)p->asked.nmicro;
  t->work =
      p->asked.forward_only ? forwards(a, M) : zp_order(a, p->asked.schedule, p->programs.nstages, M, s);
  t->nwork = p->asked.forward_only ? M : 2 * M;
  t->start = ZB_NEWN(a, uint64_t, t->nwork);
  t->end = ZB_NEWN(a, uint64_t, t->nwork);
  for (int k = 0; k < 2; k++) {
    t->item[k] = ZB_NEWN(a, uint32_t, M);
    t->arrive[k] = ZB_NEWN(a, uint64_t, M);
    for (uint32_t m = 0; m < M; m++) t->arrive[k][m] = UNKNOWN;
  }
  for (uint32_t i = 0; i < t->nwork; i++) {
    t->item[t->work[i].backward][t->work[i].mb] = i;
    t->end[i] = UNKNOWN;
  }
  t->prologue = 1; /* ZERO_GRADS or ZERO_SUMS; before backwards, LOAD and COUNT of every micro-batch */
  uint32_t counts = zp_count_insts(p, &p->programs.stages[s]);
  if (counts && !p->asked.forward_only)
    t->prologue += (counts + (p->programs.stages[s].input_bytes ? 1 : 0)) * (uint64_t)M;
  fill_rings(p, a, s, t);
}

/* When the transfer of `mb` to stage s happens; UNKNOWN if that is not settled yet. */
static uint64_t arrival(Timeline *t, uint32_t s, int kind, uint32_t mb) {
  uint64_t *at = &t[s].arrive[kind][mb];
  if (*at != UNKNOWN) return *at;
  const Timeline *from = kind == ACT ? &t[s - 1] : &t[s + 1];
  uint64_t made = from->end[from->item[kind][mb]], idle = 0;
  uint32_t before = t[s].recv[kind].before[mb];
  if (before != ZP_NONE) idle = t[s].end[t[s].item[kind == GRAD || t[s].keeps_act][before]];
  if (made == UNKNOWN || idle == UNKNOWN) return UNKNOWN;
  return *at = made > idle ? made : idle;
}

/* When item i of stage s can start; UNKNOWN if that is not settled yet. */
static uint64_t startable(Timeline *t, uint32_t s, uint32_t i) {
  uint32_t mb = t[s].work[i].mb;
  int kind = t[s].work[i].backward ? GRAD : ACT;
  uint64_t at = i ? t[s].end[i - 1] : t[s].prologue;
  if (t[s].recv[kind].bytes) {
    uint64_t in = arrival(t, s, kind, mb);
    if (in > at) at = in; /* UNKNOWN is the largest */
  }
  uint32_t before = t[s].send[kind].before[mb];
  if (t[s].send[kind].bytes && before != ZP_NONE) {
    uint64_t sent = arrival(t, kind == ACT ? s + 1 : s - 1, kind, before);
    if (sent > at) at = sent;
  }
  return at;
}

Timeline *zp_timelines(const ZpPlan *p, ZbArena *a, const uint64_t *duration) {
  uint32_t P = p->programs.nstages, M = (uint32_t)p->asked.nmicro;
  Timeline *t = ZB_NEWN(a, Timeline, P);
  uint64_t *takes[2] = {ZB_NEWN(a, uint64_t, P), ZB_NEWN(a, uint64_t, P)};
  uint32_t *next = ZB_NEWN(a, uint32_t, P);
  for (uint32_t s = 0; s < P; s++) {
    const ZpStage *st = &p->programs.stages[s];
    ZB_ASSERT(st->ninsts > 0);
    fill_timeline(p, a, s, &t[s]);
    for (uint32_t i = 0; i < st->ninsts; i++) {
      takes[0][s] += duration[st->insts[i].segment];
      takes[1][s] += 2 * duration[st->insts[i].segment];
    }
    takes[0][s] += st->input_bytes ? 1 : 0;                           /* LOAD */
    takes[0][s] += p->asked.forward_only ? zp_count_insts(p, st) : 0; /* COUNT */
  }
  for (uint64_t left = (uint64_t)P * t[0].nwork, before = UNKNOWN; left;) {
    if (left == before) ZB_BUG("%u stages, %u micro-batches: the schedule cannot run with its buffers", P, M);
    before = left;
    for (uint32_t s = 0; s < P; s++) {
      for (; next[s] < t[s].nwork; next[s]++, left--) {
        uint64_t at = startable(t, s, next[s]);
        if (at == UNKNOWN) break;
        t[s].start[next[s]] = at;
        t[s].end[next[s]] = at + takes[t[s].work[next[s]].backward][s];
      }
    }
  }
  return t;
}

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

uint32_t zp_count_insts(const ZpPlan *p, const ZpVirtualStage *v) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < v->ninsts; i++) n += zp_counts(p, &p->programs.stages[v->stage], v->first + i);
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

uint32_t zp_source(const ZpPlan *p, int kind, uint32_t v) {
  return kind == ACT ? zp_vstage_before(p, v) : zp_vstage_after(p, v);
}
uint32_t zp_sink(const ZpPlan *p, int kind, uint32_t v) {
  return kind == ACT ? zp_vstage_after(p, v) : zp_vstage_before(p, v);
}

/* ---- rings --------------------------------------------------------------------------------------------- */
/* The items of some kinds of one virtual stage. */
typedef struct {
  uint32_t vstage;
  unsigned kinds;
} Items;
static bool among(const ZpScheduleItem *x, Items i) {
  return x->vstage == i.vstage && zp_item_is(x, i.kinds);
}

/* Counts the most micro-batches that have been taken and not given back. */
static uint32_t most_held(const ZpOrder *o, Items take, Items give) {
  uint32_t held = 0, most = 0;
  for (uint32_t i = 0; i < o->n; i++) {
    held += among(&o->item[i], take);
    if (held > most) most = held;
    held -= among(&o->item[i], give);
  }
  return most;
}

/* Makes a ring whose buffers are held from the item that takes one to the end of that which gives it back; it
 * has `more` buffers than are held at once. */
static Ring ring_held(ZbArena *a, const ZpOrder *o, uint32_t nmicro, Items take, Items give, uint32_t more,
                      uint64_t bytes) {
  uint32_t n = most_held(o, take, give) + more;
  if (n > nmicro) n = nmicro;
  Ring r = {bytes, n, 0, ZB_NEWN(a, uint32_t, nmicro), ZB_NEWN(a, uint32_t, nmicro)};
  uint32_t *idle = ZB_NEWN(a, uint32_t, n),
           *had = ZB_NEWN(a, uint32_t, n); /* a queue of buffers; who had them */
  uint32_t head = 0, nidle = n;
  for (uint32_t i = 0; i < n; i++) idle[i] = i, had[i] = ZP_NONE;
  for (uint32_t i = 0; i < o->n; i++) {
    uint32_t mb = o->item[i].mb;
    if (among(&o->item[i], give)) idle[(head + nidle++) % n] = r.index[mb];
    if (!among(&o->item[i], take)) continue;
    ZB_ASSERT(nidle > 0);
    r.index[mb] = idle[head];
    head = (head + 1) % n, nidle--;
    r.before[mb] = had[r.index[mb]];
    had[r.index[mb]] = mb;
  }
  return r;
}

/* Makes a ring whose buffers are held within one item: each in turn. */
static Ring ring_turns(ZbArena *a, const ZpOrder *o, uint32_t nmicro, Items users, uint64_t bytes) {
  uint32_t n = nmicro > 1 ? 2 : 1;
  Ring r = {bytes, n, 0, ZB_NEWN(a, uint32_t, nmicro), ZB_NEWN(a, uint32_t, nmicro)};
  uint32_t had[2] = {ZP_NONE, ZP_NONE}, k = 0;
  for (uint32_t i = 0; i < o->n; i++) {
    if (!among(&o->item[i], users)) continue;
    uint32_t mb = o->item[i].mb;
    r.index[mb] = k++ % n;
    r.before[mb] = had[r.index[mb]];
    had[r.index[mb]] = mb;
  }
  return r;
}

/* Makes a ring of one buffer: for what begins and ends within one item of the compute queue, which is in
 * order. */
static Ring ring_of_one(ZbArena *a, uint32_t nmicro, uint64_t bytes) {
  Ring r = {bytes, 1, 0, ZB_NEWN(a, uint32_t, nmicro), ZB_NEWN(a, uint32_t, nmicro)};
  for (uint32_t m = 0; m < nmicro; m++) r.before[m] = m ? m - 1 : ZP_NONE;
  return r;
}

static bool on_one_stage(const ZpPlan *p, uint32_t v, uint32_t w) { return zp_owner(p, v) == zp_owner(p, w); }

/* Makes a virtual stage's rings. The first would receive nothing, and the last would send nothing: these have
 * no bytes. A neighbour on the same stage writes what it hands on where it is received: that is held from
 * there on, and nothing is sent. */
static void fill_rings(const ZpPlan *p, ZbArena *a, uint32_t v, const ZpOrder *o, Lane *l) {
  static const unsigned takes[2] = {ZP_TAKE_ACT, ZP_TAKE_GRAD};
  const ZpVirtualStage *x = &p->programs.vstages[v];
  const ZpStage *st = &p->programs.stages[x->stage];
  const uint64_t in[2] = {x->carry_bytes, x->dcarry_out_bytes},
                 out[2] = {x->carry_out_bytes, x->dcarry_bytes};
  uint32_t M = (uint32_t)p->asked.nmicro;
  Items free_slot = {v, ZP_FREE_SLOT};
  l->slot = p->asked.forward_only ? ring_of_one(a, M, x->slot_bytes)
                                  : ring_held(a, o, M, (Items){v, ZP_TAKE_ACT}, free_slot, 0, x->slot_bytes);
  l->keeps_act = p->programs.segments[st->insts[x->first].segment].saves_carry;
  for (int kind = 0; kind < 2; kind++) {
    uint32_t source = zp_source(p, kind, v), sink = zp_sink(p, kind, v);
    bool here = on_one_stage(p, v, source), keeps = kind == ACT && l->keeps_act;
    Items user = {v, takes[kind]}, maker = {here ? source : v, takes[kind]};
    l->recv[kind] = here || keeps
                        ? ring_held(a, o, M, maker, keeps ? free_slot : user, here ? 0 : 1, in[kind])
                        : ring_turns(a, o, M, user, in[kind]);
    l->send[kind] = ring_turns(a, o, M, user, on_one_stage(p, v, sink) ? 0 : out[kind]);
  }
}

/* ---- orders -------------------------------------------------------------------------------------------- */
static void leave_forwards(ZpOrder *o) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < o->n; i++)
    if (o->item[i].kind == ZP_FORWARD) o->item[n++] = o->item[i];
  o->n = n;
}

/* Returns the time before the first item: ZERO_GRADS or ZERO_SUMS; before backwards, LOAD and COUNT of
 * all. */
static uint64_t prologue(const ZpPlan *p, const ZpStage *st) {
  uint64_t time = 1;
  for (uint32_t i = 0; i < st->nvstages && !p->asked.forward_only; i++) {
    const ZpVirtualStage *v = &p->programs.vstages[st->vstages[i]];
    uint32_t counts = zp_count_insts(p, v);
    if (counts) time += (counts + (v->input_bytes ? 1 : 0)) * (uint64_t)p->asked.nmicro;
  }
  return time;
}

static void fill_items(ZbArena *a, uint32_t nmicro, uint32_t v, const ZpOrder *o, Lane *l) {
  l->last = ZB_NEWN(a, uint32_t, nmicro);
  for (int kind = 0; kind < 2; kind++) {
    l->item[kind] = ZB_NEWN(a, uint32_t, nmicro);
    l->arrive[kind] = ZB_NEWN(a, uint64_t, nmicro);
    for (uint32_t m = 0; m < nmicro; m++) l->arrive[kind][m] = UNKNOWN;
  }
  for (uint32_t i = 0; i < o->n; i++) {
    const ZpScheduleItem *x = &o->item[i];
    if (x->vstage != v) continue;
    if (zp_item_is(x, ZP_TAKE_ACT)) l->item[ACT][x->mb] = i;
    if (zp_item_is(x, ZP_TAKE_GRAD)) l->item[GRAD][x->mb] = i;
    if (zp_item_is(x, ZP_FREE_SLOT)) l->last[x->mb] = i;
  }
}

/* ---- the clock ----------------------------------------------------------------------------------------- */
typedef uint64_t Takes[ZP_ITEM_KINDS];
typedef struct {
  const ZpPlan *p;
  Timeline t;
  const Takes *takes; /* per virtual stage */
} Clock;

static uint64_t end_of(const Clock *c, uint32_t v, uint32_t item) {
  return c->t.order[zp_owner(c->p, v)].end[item];
}

/* Says when the buffer for what virtual stage v takes in of `mb` is free; UNKNOWN: that is not settled
 * yet. */
static uint64_t idle(const Clock *c, uint32_t v, int kind, uint32_t mb) {
  const Lane *l = &c->t.lane[v];
  uint32_t before = l->recv[kind].before[mb];
  if (before == ZP_NONE) return 0;
  return end_of(c, v, kind == ACT && l->keeps_act ? l->last[before] : l->item[kind][before]);
}

/* Says when what virtual stage v takes in of `mb` is there; UNKNOWN: that is not settled yet. */
static uint64_t arrival(const Clock *c, uint32_t v, int kind, uint32_t mb) {
  uint64_t *at = &c->t.lane[v].arrive[kind][mb];
  if (*at != UNKNOWN) return *at;
  uint32_t from = zp_source(c->p, kind, v);
  uint64_t made = end_of(c, from, c->t.lane[from].item[kind][mb]);
  uint64_t free = on_one_stage(c->p, from, v) ? 0 : idle(c, v, kind, mb);
  if (made == UNKNOWN || free == UNKNOWN) return UNKNOWN;
  return *at = made > free ? made : free;
}

/* Says when there is a buffer for what virtual stage v hands on; UNKNOWN: that is not settled yet. */
static uint64_t room(const Clock *c, uint32_t v, int kind, uint32_t mb) {
  uint32_t to = zp_sink(c->p, kind, v);
  const Ring *send = &c->t.lane[v].send[kind];
  if (to == ZP_NONE || !c->t.lane[to].recv[kind].bytes) return 0;
  if (on_one_stage(c->p, v, to)) return idle(c, to, kind, mb);
  return send->bytes && send->before[mb] != ZP_NONE ? arrival(c, to, kind, send->before[mb]) : 0;
}

/* Says when item i of stage s can start; UNKNOWN, which is the largest: that is not settled yet. */
static uint64_t startable(const Clock *c, uint32_t s, uint32_t i) {
  const ZpOrder *o = &c->t.order[s];
  const ZpScheduleItem *x = &o->item[i];
  uint64_t at = i ? o->end[i - 1] : c->t.begin[s];
  for (int kind = 0; kind < 2; kind++) {
    if (!zp_item_is(x, kind == ACT ? ZP_TAKE_ACT : ZP_TAKE_GRAD)) continue;
    uint64_t in = c->t.lane[x->vstage].recv[kind].bytes ? arrival(c, x->vstage, kind, x->mb) : 0;
    uint64_t out = room(c, x->vstage, kind, x->mb);
    if (in > at) at = in;
    if (out > at) at = out;
  }
  return at;
}

/* Lets all stages go through their orders. Returns the end of the last item. */
static uint64_t run(const Clock *c, ZbArena *a) {
  uint32_t P = c->p->programs.nstages, *next = ZB_NEWN(a, uint32_t, P);
  uint64_t left = 0, span = 0;
  for (uint32_t s = 0; s < P; s++) left += c->t.order[s].n;
  for (uint32_t s = 0; s < P; s++)
    for (uint32_t i = 0; i < c->t.order[s].n; i++) c->t.order[s].end[i] = UNKNOWN;
  for (uint64_t before = UNKNOWN; left;) {
    if (left == before)
      ZB_BUG("%u stages, %lld micro-batches: the schedule cannot run with its buffers", P,
             (long long)c->p->asked.nmicro);
    before = left;
    for (uint32_t s = 0; s < P; s++) {
      ZpOrder *o = &c->t.order[s];
      for (; next[s] < o->n; next[s]++, left--) {
        const ZpScheduleItem *x = &o->item[next[s]];
        uint64_t at = startable(c, s, next[s]);
        if (at == UNKNOWN) break;
        o->start[next[s]] = at;
        o->end[next[s]] = at + c->takes[x->vstage][x->kind];
        if (o->end[next[s]] > span) span = o->end[next[s]];
      }
    }
  }
  return span;
}

Timeline zp_timelines(const ZpPlan *p, ZbArena *a, const uint64_t *duration) {
  uint32_t P = p->programs.nstages, V = p->programs.nvstages, M = (uint32_t)p->asked.nmicro;
  Timeline t = {ZB_NEWN(a, Lane, V), ZB_NEWN(a, ZpOrder, P), ZB_NEWN(a, uint64_t, P)};
  Takes *takes = ZB_NEWN(a, Takes, V);
  for (uint32_t s = 0; s < P; s++) {
    t.order[s] = zp_order(a, p->asked.schedule, P, M, s);
    if (p->asked.forward_only) leave_forwards(&t.order[s]);
    t.begin[s] = prologue(p, &p->programs.stages[s]);
  }
  for (uint32_t v = 0; v < V; v++) {
    const ZpVirtualStage *x = &p->programs.vstages[v];
    const ZpStage *st = &p->programs.stages[x->stage];
    ZB_ASSERT(x->ninsts > 0);
    fill_items(a, M, v, &t.order[x->stage], &t.lane[v]);
    fill_rings(p, a, v, &t.order[x->stage], &t.lane[v]);
    for (uint32_t i = 0; i < x->ninsts; i++)
      for (int kind = 0; kind < ZP_ITEM_KINDS; kind++)
        takes[v][kind] += zp_item_info[kind].units * duration[st->insts[x->first + i].segment];
    takes[v][ZP_FORWARD] += x->input_bytes ? 1 : 0;                           /* LOAD */
    takes[v][ZP_FORWARD] += p->asked.forward_only ? zp_count_insts(p, x) : 0; /* COUNT */
  }
  run(&(Clock){p, t, takes}, a);
  return t;
}

/* Makes a ring of as many buffers as there are micro-batches: none waits for one. */
static Ring unlimited(ZbArena *a, uint32_t nmicro, bool any) {
  Ring r = {any, nmicro, 0, ZB_NEWN(a, uint32_t, nmicro), ZB_NEWN(a, uint32_t, nmicro)};
  for (uint32_t m = 0; m < nmicro; m++) r.index[m] = m, r.before[m] = ZP_NONE;
  return r;
}

uint64_t zp_order_clock(const ZpPlan *p, ZbArena *a, ZpOrder *order) {
  uint32_t V = p->programs.nvstages, M = (uint32_t)p->asked.nmicro;
  Timeline t = {ZB_NEWN(a, Lane, V), order, ZB_NEWN(a, uint64_t, p->programs.nstages)};
  Takes *takes = ZB_NEWN(a, Takes, V);
  for (uint32_t v = 0; v < V; v++) {
    for (int kind = 0; kind < ZP_ITEM_KINDS; kind++) takes[v][kind] = zp_item_info[kind].units;
    fill_items(a, M, v, &order[zp_owner(p, v)], &t.lane[v]);
    for (int kind = 0; kind < 2; kind++)
      t.lane[v].recv[kind] = unlimited(a, M, zp_source(p, kind, v) != ZP_NONE);
  }
  return run(&(Clock){p, t, takes}, a);
}

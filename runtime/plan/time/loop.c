/* The event loop. One rank of each stage plays its program as the engine does (plan.h, ZpProgram): compute
 * runs to completion, transfers and collectives are started in order and may be under way together.
 * Collectives of its lists that go beside calls do so one after the other. Between two events everything
 * goes on at a steady rate: transfers that take the same links at the same time share them (what a rank
 * sends and what it receives are two directions), and computation is slower while a collective runs beside
 * it. */
#include "runtime/plan/text.h"
#include "runtime/plan/time/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DONE 1e-13 /* seconds, of steps of seconds: what is left is rounding */

typedef struct {
  const ZpStage *st;
  ZpStageTime *out;
  uint32_t at[ZP_QUEUES]; /* next of the queue to be started */
  bool *posted, *done;    /* per instruction */
  double *begin;
  Pieces *lists[ZP_PHASES]; /* per segment, once made */
  bool changed;             /* something of it ended: others may start */
  bool running;             /* the compute queue: */
  uint32_t instr, piece;
  Pieces now;
  double left, piece_begin;
  double since, rate; /* `left` is that of this moment; what it does a second */
  struct {
    uint32_t piece[ZP_MOST_ASYNC], n; /* of `now`, begun and not complete; the first moves */
    double begin, left, rate, ends;
  } beside;
  uint32_t sending[ZP_MOST_LEVELS], receiving[ZP_MOST_LEVELS]; /* under way; collectives are both, and */
  uint32_t heavy;                                              /* of any level */
} Stage;

/* An instruction of several stages: how many have come to it, and which. */
typedef struct {
  uint32_t posted, first; /* of the chain of Loop.next */
} Pair;

/* An exchange under way. */
typedef struct {
  Exchange x;
  double left, rate, since, ends; /* as of a stage */
  uint32_t member; /* the first of its instructions, chained by Loop.next; one of a pair sends */
} Moving;

typedef struct {
  Cost *x;
  ZbArena *a; /* the result's */
  double now;
  Stage *stage;
  double *ends; /* per stage: when its piece will, at the rate that it has; INFINITY: it computes nothing */
  bool *turned; /* per stage: its rate may have */
  bool links;   /* links were taken or given back: what moves may have another rate */
  uint32_t nstages;
  uint32_t *base; /* instructions have numbers over all stages: that of a stage's first */
  uint32_t *next, *stage_of;
  Pair *pair;
  Moving *moving;
  uint32_t nmoving, most;
} Loop;

static const ZpInstr *instr_of(const Loop *l, uint32_t id) {
  uint32_t s = l->stage_of[id];
  return &l->stage[s].st->prog.instrs[id - l->base[s]];
}

static bool crosses(const ZpInstr *in) {
  return in->queue == ZP_Q_P2P || in->op == ZP_I_REDUCE_TIED || in->op == ZP_I_REDUCE_STEP;
}

/* Returns whether this stage sends in an exchange; in a collective all do. */
static bool sends(const ZpInstr *in) {
  return in->queue == ZP_Q_COLL || in->op == ZP_I_SEND_ACT || in->op == ZP_I_SEND_GRAD;
}
static bool receives(const ZpInstr *in) {
  return in->queue == ZP_Q_COLL || in->op == ZP_I_RECV_ACT || in->op == ZP_I_RECV_GRAD;
}

static uint32_t members(const Loop *l, const ZpInstr *in) {
  return in->queue == ZP_Q_P2P        ? 2
         : in->op == ZP_I_REDUCE_TIED ? l->x->p->programs.tied[in->tied].nstages
                                      : l->nstages;
}

/* ---- links --------------------------------------------------------------------------------------------- */
static void account(const Loop *l, Stage *s, double dt);

/* Accounts for the time since something last happened to the stage. */
static void settle(Loop *l, Stage *s) {
  double dt = l->now - s->since;
  if (dt > 0) account(l, s, dt);
  if (dt > 0 && s->running) s->left -= dt * s->rate;
  if (dt > 0 && s->beside.n) s->beside.left -= dt * s->beside.rate;
  s->since = l->now;
  l->turned[s - l->stage] = true;
}

static void take(Stage *s, uint32_t level, bool sends, bool receives, int by) {
  s->sending[level] += (uint32_t)(sends ? by : 0);
  s->receiving[level] += (uint32_t)(receives ? by : 0);
}

/* Takes (by 1) or gives back (-1) the links of an exchange; what hardly moves anything takes none. */
static void take_links(Loop *l, const Moving *m, int by) {
  const ZpInstr *first = instr_of(l, m->member);
  for (uint32_t id = m->member; id != ZP_NONE; id = l->next[id]) settle(l, &l->stage[l->stage_of[id]]);
  if (m->x.seconds == 0 || (first->queue == ZP_Q_COLL && !m->x.heavy)) return;
  l->links = true;
  for (uint32_t id = m->member; id != ZP_NONE; id = l->next[id]) {
    const ZpInstr *in = instr_of(l, id);
    Stage *s = &l->stage[l->stage_of[id]];
    bool coll = in->queue == ZP_Q_COLL;
    take(s, m->x.level, sends(in), receives(in), by);
    s->heavy += (uint32_t)(coll ? by : 0);
  }
}

/* For a collective that goes beside calls. */
static bool waits(const Stage *s) { return s->running && s->now.piece[s->piece].kind == PIECE_WAITS; }

static double rate_of(const Loop *l, const Moving *m) {
  uint32_t most = 1;
  for (uint32_t id = m->member; id != ZP_NONE; id = l->next[id]) {
    const ZpInstr *in = instr_of(l, id);
    const Stage *s = &l->stage[l->stage_of[id]];
    if (in->queue == ZP_Q_COLL && !m->x.heavy) return 1;
    if (sends(in) && s->sending[m->x.level] > most) most = s->sending[m->x.level];
    if (receives(in) && s->receiving[m->x.level] > most) most = s->receiving[m->x.level];
  }
  return 1 / (double)most;
}

/* Returns the share that each transfer gets of a link that several use at a time. */
static double share_of(const Stage *s, uint32_t level) {
  return 1. / (s->sending[level] > s->receiving[level] ? s->sending[level] : s->receiving[level]);
}

static double compute_rate(const Loop *l, const Stage *s) {
  uint32_t level = s->now.piece[s->piece].level;
  if (level != ZP_NONE) return share_of(s, level);
  return 1 / (1 + (s->heavy ? l->x->c->steal : 0));
}

/* ---- starts and ends ----------------------------------------------------------------------------------- */
static uint64_t node_bytes(const Loop *l, const Stage *s, uint32_t instr, uint32_t node) {
  const ZpInstr *in = &s->st->prog.instrs[instr];
  const ZpSegment *g = &l->x->p->programs.segments[s->st->insts[in->inst].segment];
  return zp_run_bytes(l->x->p, g, &g->list[zp_phase(in->op)], node);
}

static void keep_span(Loop *l, Stage *s, uint32_t instr, uint32_t node, double begin) {
  if (!l->x->spans) return;
  ZpSpan span = {.step = 1, .instr = instr, .node = node, .begin = begin, .end = l->now};
  if (node != ZP_NONE) span.bytes = node_bytes(l, s, instr, node);
  ZB_PUSH(l->a, s->out->spans, s->out->nspans, span);
}

static void end_instr(Loop *l, uint32_t id) {
  Stage *s = &l->stage[l->stage_of[id]];
  uint32_t i = id - l->base[l->stage_of[id]];
  s->done[i] = s->changed = true;
  keep_span(l, s, i, ZP_NONE, s->begin[i]);
}

static bool waits_over(const Stage *s, const ZpInstr *in) {
  for (uint32_t k = 0; k < in->nwait; k++)
    if (!s->done[in->wait[k]]) return false;
  return true;
}

/* Returns the head of a queue, if all that it waits for is complete; else ZP_NONE. */
static uint32_t startable(const Stage *s, ZpQueue q) {
  const ZpProgram *g = &s->st->prog;
  if (s->at[q] == g->nqueue[q]) return ZP_NONE;
  uint32_t i = g->queue[q][s->at[q]];
  return waits_over(s, &g->instrs[i]) ? i : ZP_NONE;
}

static Pieces pieces_of(Loop *l, uint32_t stage, const ZpInstr *in) {
  Stage *s = &l->stage[stage];
  ZpPhase phase = zp_phase(in->op);
  if (phase == ZP_PHASES) return zp_compute_pieces(l->x, stage, in);
  uint32_t segment = s->st->insts[in->inst].segment;
  Pieces *made = &s->lists[phase][segment];
  if (!made->n) *made = zp_list_pieces(l->x, stage, segment, phase);
  return *made;
}

static void begin_piece(Loop *l, Stage *s) {
  const Piece *p = &s->now.piece[s->piece];
  s->left = p->seconds;
  s->piece_begin = s->since = l->now;
  l->turned[s - l->stage] = true;
  if (p->level == ZP_NONE) return;
  take(s, p->level, true, true, 1);
  l->links = true;
}

static void end_piece(Loop *l, Stage *s) {
  const Piece *p = &s->now.piece[s->piece];
  if (p->level == ZP_NONE) return;
  take(s, p->level, true, true, -1);
  l->links = true;
  keep_span(l, s, s->instr, p->node, s->piece_begin);
}

/* The first of those that go beside calls takes the links, or gives them back. */
static void take_beside(Loop *l, Stage *s, int by) {
  uint32_t level = s->now.piece[s->beside.piece[0]].level;
  take(s, level, true, true, by);
  s->heavy += (uint32_t)by;
  l->links = l->turned[s - l->stage] = true;
}

static void begin_beside(Loop *l, Stage *s) {
  const Piece *p = &s->now.piece[s->beside.piece[0]];
  s->beside.left = p->seconds;
  s->beside.begin = s->since = l->now;
  take_beside(l, s, 1);
}

static void end_beside(Loop *l, Stage *s) {
  take_beside(l, s, -1);
  keep_span(l, s, s->instr, s->now.piece[s->beside.piece[0]].node, s->beside.begin);
  memmove(s->beside.piece, s->beside.piece + 1, --s->beside.n * sizeof *s->beside.piece);
  if (s->beside.n) begin_beside(l, s);
}

static bool is_beside(const Stage *s, uint32_t piece) {
  for (uint32_t k = 0; k < s->beside.n; k++)
    if (s->beside.piece[k] == piece) return true;
  return false;
}

/* The next piece that takes time, or the end of the instruction. */
static void go_on(Loop *l, uint32_t stage) {
  Stage *s = &l->stage[stage];
  for (; s->piece < s->now.n; s->piece++) {
    const Piece *p = &s->now.piece[s->piece];
    if (p->kind == PIECE_BESIDE) {
      s->beside.piece[s->beside.n++] = s->piece;
      if (s->beside.n == 1) begin_beside(l, s);
    } else if (p->kind == PIECE_ALONE || is_beside(s, p->waits)) {
      begin_piece(l, s);
      return;
    }
  }
  ZB_ASSERT(!s->beside.n);
  s->running = false;
  s->out->recomputed += s->now.recomputed;
  end_instr(l, l->base[stage] + s->instr);
}

static void begin_compute(Loop *l, uint32_t stage, uint32_t i) {
  Stage *s = &l->stage[stage];
  settle(l, s);
  s->begin[i] = l->now;
  s->at[ZP_Q_COMPUTE]++;
  s->now = pieces_of(l, stage, &s->st->prog.instrs[i]);
  s->running = true;
  s->instr = i;
  s->piece = 0;
  go_on(l, stage); /* a part of the model that computes nothing has none */
}

static void move(Loop *l, uint32_t id) {
  uint32_t stage = l->stage_of[id];
  Moving m = {.x = zp_exchange(l->x, stage, instr_of(l, id)), .member = id};
  m.left = m.x.seconds;
  m.since = l->now;
  l->links = true;
  take_links(l, &m, 1);
  l->moving = zb_room(l->x->a, l->moving, l->nmoving, sizeof m, &l->most);
  l->moving[l->nmoving++] = m;
}

/* One side of an exchange is there; it begins with the last. */
static void post(Loop *l, uint32_t stage, uint32_t i) {
  Stage *s = &l->stage[stage];
  const ZpInstr *in = &s->st->prog.instrs[i];
  uint32_t id = l->base[stage] + i;
  settle(l, s);
  s->posted[i] = true;
  s->begin[i] = l->now;
  s->at[in->queue]++;
  if (!crosses(in)) {
    move(l, id);
    return;
  }
  Pair *p = &l->pair[in->pair];
  l->next[id] = p->posted ? p->first : ZP_NONE;
  p->first = id;
  if (p->posted + 1 < members(l, in)) {
    p->posted++;
    return;
  }
  /* Until now the others waited for this one. */
  for (uint32_t k = id; k != ZP_NONE; k = l->next[k]) settle(l, &l->stage[l->stage_of[k]]);
  p->posted++;
  move(l, id);
}

static void start_all(Loop *l) {
  for (uint32_t s = 0; s < l->nstages; s++) {
    uint32_t i;
    if (!l->stage[s].changed) continue;
    l->stage[s].changed = false;
    while (!l->stage[s].running && (i = startable(&l->stage[s], ZP_Q_COMPUTE)) != ZP_NONE)
      begin_compute(l, s, i);
    for (int q = ZP_Q_P2P; q < ZP_QUEUES; q++)
      while ((i = startable(&l->stage[s], (ZpQueue)q)) != ZP_NONE) post(l, s, i);
  }
}

static void end_all(Loop *l) {
  double now = l->now + DONE * fmax(1, l->now);
  for (uint32_t k = l->nmoving; k-- > 0;) {
    if (l->moving[k].ends > now) continue;
    Moving m = l->moving[k];
    take_links(l, &m, -1);
    for (uint32_t id = m.member; id != ZP_NONE; id = l->next[id]) end_instr(l, id);
    l->moving[k] = l->moving[--l->nmoving];
  }
  for (uint32_t i = 0; i < l->nstages; i++) {
    Stage *s = &l->stage[i];
    bool ends = l->ends[i] <= now;
    if (s->beside.n && s->beside.ends <= now) {
      settle(l, s);
      end_beside(l, s);
      if (waits(s)) go_on(l, i);
    }
    if (!ends) continue;
    settle(l, s);
    end_piece(l, s);
    s->piece++;
    go_on(l, i);
  }
}

/* ---- where time goes ----------------------------------------------------------------------------------- */
/* Returns why an instruction is not complete: other stages are late, or something moves within its own. */
static ZpTimePart blocked_by(const Loop *l, const Stage *s, uint32_t i) {
  const ZpInstr *in = &s->st->prog.instrs[i];
  if (in->queue == ZP_Q_P2P) return ZP_T_IDLE;
  if (s->posted[i]) return crosses(in) && l->pair[in->pair].posted < members(l, in) ? ZP_T_IDLE : ZP_T_DATA;
  for (uint32_t k = 0; k < in->nwait; k++)
    if (!s->done[in->wait[k]]) return blocked_by(l, s, in->wait[k]);
  return ZP_T_DATA; /* behind others in its queue */
}

/* Returns what the stage waits for while it does not compute. */
static ZpTimePart waits_for(const Loop *l, const Stage *s) {
  const ZpProgram *g = &s->st->prog;
  if (s->at[ZP_Q_COMPUTE] < g->nqueue[ZP_Q_COMPUTE]) {
    const ZpInstr *in = &g->instrs[g->queue[ZP_Q_COMPUTE][s->at[ZP_Q_COMPUTE]]];
    for (uint32_t k = 0; k < in->nwait; k++)
      if (!s->done[in->wait[k]]) return blocked_by(l, s, in->wait[k]);
  }
  for (uint32_t k = 0; k < g->nqueue[ZP_Q_COLL]; k++)
    if (!s->done[g->queue[ZP_Q_COLL][k]]) return blocked_by(l, s, g->queue[ZP_Q_COLL][k]);
  return ZP_T_IDLE;
}

static void account(const Loop *l, Stage *s, double dt) {
  if (!s->running) {
    s->out->part[waits_for(l, s)] += dt;
    return;
  }
  const Piece *p = &s->now.piece[s->piece];
  if (p->level != ZP_NONE || waits(s)) {
    s->out->part[ZP_T_TENSOR] += dt;
    return;
  }
  double rate = s->rate;
  for (int k = 0; k < ZP_T_PARTS && p->seconds > 0; k++)
    s->out->part[k] += dt * rate * p->part[k] / p->seconds;
  s->out->part[ZP_T_SLOWED] += dt * (1 - rate);
}

/* The rates from now on, of what may have another one. */
static void set_rates(Loop *l) {
  for (uint32_t k = 0; l->links && k < l->nmoving; k++) {
    Moving *m = &l->moving[k];
    double rate = rate_of(l, m);
    if (rate == m->rate) continue;
    m->left -= (l->now - m->since) * m->rate;
    m->since = l->now;
    m->rate = rate;
    m->ends = l->now + m->left / rate;
  }
  l->links = false;
  for (uint32_t i = 0; i < l->nstages; i++) {
    Stage *s = &l->stage[i];
    if (!l->turned[i]) continue;
    l->turned[i] = false;
    l->ends[i] = INFINITY;
    if (s->beside.n) {
      s->beside.rate = share_of(s, s->now.piece[s->beside.piece[0]].level);
      s->beside.ends = l->now + s->beside.left / s->beside.rate;
    }
    if (!s->running || waits(s)) continue;
    s->rate = compute_rate(l, s);
    l->ends[i] = l->now + s->left / s->rate;
  }
}

/* To the next moment at which anything ends. False: nothing is under way. */
static bool advance(Loop *l) {
  double next = INFINITY;
  set_rates(l);
  for (uint32_t k = 0; k < l->nmoving; k++) {
    double ends = l->moving[k].ends;
    next = ends < next ? ends : next;
  }
  for (uint32_t i = 0; i < l->nstages; i++) {
    const Stage *s = &l->stage[i];
    next = l->ends[i] < next ? l->ends[i] : next;
    if (s->beside.n && s->beside.ends < next) next = s->beside.ends;
  }
  if (next == INFINITY) return false;
  if (next > l->now) l->now = next;
  return true;
}

/* ---- all of it ----------------------------------------------------------------------------------------- */
static void fill_stage(Loop *l, uint32_t i, ZpStageTime *out) {
  ZbArena *a = l->x->a;
  const ZpPlan *p = l->x->p;
  Stage *s = &l->stage[i];
  uint32_t n = p->programs.stages[i].prog.ninstrs;
  *s = (Stage){.st = &p->programs.stages[i], .out = out, .changed = true};
  s->posted = ZB_NEWN(a, bool, n);
  s->done = ZB_NEWN(a, bool, n);
  s->begin = ZB_NEWN(a, double, n);
  for (int k = 0; k < ZP_PHASES; k++) s->lists[k] = ZB_NEWN(a, Pieces, p->graph->nsegments);
  for (uint32_t k = 0; k < n; k++) {
    l->stage_of[l->base[i] + k] = i;
    l->next[l->base[i] + k] = ZP_NONE;
  }
}

void zp_time_loop(Cost *x, ZbArena *a, ZpTime *t) {
  const ZpPlan *p = x->p;
  Loop l = {.x = x, .a = a, .nstages = p->programs.nstages};
  uint32_t n = 0;
  l.base = ZB_NEWN(x->a, uint32_t, p->programs.nstages);
  for (uint32_t s = 0; s < p->programs.nstages; s++) l.base[s] = n, n += p->programs.stages[s].prog.ninstrs;
  l.stage = ZB_NEWN(x->a, Stage, p->programs.nstages);
  l.ends = ZB_NEWN(x->a, double, p->programs.nstages);
  l.turned = ZB_NEWN(x->a, bool, p->programs.nstages);
  l.next = ZB_NEWN(x->a, uint32_t, n);
  l.stage_of = ZB_NEWN(x->a, uint32_t, n);
  l.pair = ZB_NEWN(x->a, Pair, n);
  for (uint32_t s = 0; s < p->programs.nstages; s++) fill_stage(&l, s, &t->stages[s]);
  for (uint32_t s = 0; s < p->programs.nstages; s++) l.ends[s] = INFINITY;
  for (start_all(&l); advance(&l); start_all(&l)) end_all(&l);
  for (uint32_t s = 0; s < p->programs.nstages; s++)
    for (uint32_t i = 0; i < p->programs.stages[s].prog.ninstrs; i++)
      if (!l.stage[s].done[i]) ZB_BUG("stage %u: instruction %u of a proven plan never ends", s, i);
  for (uint32_t s = 0; s < p->programs.nstages; s++) settle(&l, &l.stage[s]);
  t->seconds = l.now;
}

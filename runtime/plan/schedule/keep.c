/* What is kept for backward although it could be made again, since there is memory for it.
 *
 * Needs a plan with nothing kept. local/remat.c has listed what forward has in memory and backward would make
 * once more: a GELU, which the gradient of the weights behind it reads again; what a norm hands to products.
 * Each is tried by itself: segments are planned with it kept, which says what it takes of a slot and how much
 * less the calls read and write. Then, the one first that saves most for a byte kept, each is kept with which
 * every stage still fits, for as many micro-batches as it holds.
 *
 * Only a recipe with `limit memory` says what there is: without it nothing is kept. */
#include "runtime/plan/bind/bind.h"

#include <stdlib.h>

/* Bytes that one forward and one backward of an instance read and write. */
static uint64_t moved(const ZpSegment *s) {
  uint64_t bytes = 0;
  for (int phase = ZP_FWD; phase <= ZP_BWD; phase++)
    for (uint32_t i = 0; i < s->list[phase].n; i++) {
      const ZpNode *n = &s->list[phase].nodes[i];
      for (int k = 0; k < n->call.nin; k++) bytes += s->values[n->in[k]].bytes;
      for (int k = 0; k < n->call.nout; k++) bytes += s->values[n->out[k]].bytes;
    }
  return bytes;
}

static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/* What an instance has of a slot. The first of a stage finds what is carried in where it arrived. */
static uint64_t held(const ZpSegment *s, bool first) {
  return s->saved_bytes + (!first && s->saves_carry ? s->carry_bytes : 0);
}

/* Less of what a segment moves is worth no line of a plan: tables of a sequence's length, numbers a token. */
#define LEAST .001

/* What each would take and save by itself. Segments do not depend on each other: the first values of all are
 * tried together, then the second. */
static void measure(const ZpBuild *b, ZpMake *make) {
  ZbArena *a = zb_arena_new();
  ZpKeep *const all = b->keepable, *tried = ZB_NEWN(a, ZpKeep, b->nkeepable + 1);
  uint32_t *nth = ZB_NEWN(a, uint32_t, b->nkeepable + 1), last = 0;
  for (uint32_t i = 0; i < b->nkeepable; i++) {
    nth[i] = i && all[i - 1].segment == all[i].segment ? nth[i - 1] + 1 : 0;
    if (nth[i] > last) last = nth[i];
  }
  for (uint32_t turn = 0; turn <= last && b->nkeepable; turn++) {
    ZbArena *tmp = zb_arena_new();
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->nkeepable; i++)
      if (nth[i] == turn) tried[n++] = all[i];
    const ZpPlan *p = make(b, tmp, tried, n, ZP_TO_LOCAL);
    for (uint32_t i = 0; p && i < b->nkeepable; i++) {
      const ZpSegment *with = &p->programs.segments[all[i].segment],
                      *without = &b->p->programs.segments[all[i].segment];
      if (nth[i] != turn) continue;
      all[i].bytes = less(held(with, false), held(without, false));
      all[i].moves = less(moved(without), moved(with));
      if ((double)all[i].moves < LEAST * (double)moved(without)) all[i].moves = 0;
    }
    zb_arena_free(tmp);
  }
  zb_arena_free(a);
}

static double worth(const ZpKeep *k) { return (double)k->moves / (double)(k->bytes ? k->bytes : 1); }

static int best_first(const void *a, const void *b) {
  const ZpKeep *x = a, *y = b;
  double u = worth(x), v = worth(y);
  if (u != v) return u > v ? -1 : 1;
  if (x->segment != y->segment) return x->segment < y->segment ? -1 : 1;
  return x->value < y->value ? -1 : x->value > y->value;
}

static uint64_t lines(uint64_t bytes) { return zb_round_up(bytes, 64); }

/* Returns whether a virtual stage, when it goes back, finds what is carried in where it arrived. Then it waits there so
 * long, and more of them do. */
static bool keeps_arrival(const ZpPlan *p, uint32_t v) {
  const ZpVirtualStage *x = &p->programs.vstages[v];
  return p->programs.segments[p->programs.stages[x->stage].insts[x->first].segment].saves_carry;
}

/* Adds up the slots that program g has, if they are as large as those of plan p. */
static uint64_t slots_bytes(const ZpPlan *p, uint32_t s, const ZpProgram *g) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < g->nbufs; i++)
    if (g->bufs[i].kind == ZP_B_SLOT)
      bytes += lines(p->programs.vstages[p->programs.stages[s].vstages[g->bufs[i].pool]].slot_bytes);
  return bytes;
}

/* Of a stage only slots and scratch depend on what is saved, so no program need be made to say what its arena
 * would be. */
static bool fits(const ZpBuild *b, ZpMake *make, const ZpKeep *keep, uint32_t n) {
  ZbArena *a = zb_arena_new();
  const ZpPlan *p = b->p, *q = make(b, a, keep, n, ZP_TO_STAGES);
  bool fit = q != NULL, same = true;
  for (uint32_t s = 0; fit && s < p->programs.nstages; s++) {
    const ZpStage *was = &p->programs.stages[s], *now = &q->programs.stages[s];
    uint64_t arena = was->ledger.total[ZP_DEVICE];
    arena -= slots_bytes(p, s, &was->prog) + lines(was->scratch_bytes);
    arena += slots_bytes(q, s, &was->prog) + lines(now->scratch_bytes);
    fit &= arena <= zp_limit(b);
  }
  for (uint32_t v = 0; fit && v < p->programs.nvstages; v++)
    same &= keeps_arrival(p, v) == keeps_arrival(q, v);
  if (!same) fit = make(b, a, keep, n, ZP_TO_LEDGER) != NULL;
  zb_arena_free(a);
  return fit;
}

static void tell(const ZpPlan *without, ZpPlan *with, const ZpKeep *keep, uint32_t n) {
  with->programs.kept = keep;
  with->programs.nkept = n;
  with->notes.nleft = without->notes.nleft;
  with->notes.least = without->notes.least;
  for (uint32_t i = 0; i < with->graph->nsegments; i++) {
    ZpSegment *s = &with->programs.segments[i];
    s->kept_bytes = less(held(s, false), held(&without->programs.segments[i], false));
    s->kept_moves = less(moved(&without->programs.segments[i]), moved(s));
  }
}

ZpPlan *zp_keep(const ZpBuild *b, ZpMake *make) {
  ZpPlan *p = b->p;
  ZpKeep *keep = b->keepable;
  uint32_t most = 0, n = 0;
  p->notes.least = zp_fullest(p)->ledger.total[ZP_DEVICE];
  if (!b->limit || p->asked.forward_only) return p;
  measure(b, make);
  for (uint32_t i = 0; i < b->nkeepable; i++)
    if (keep[i].moves) keep[most++] = keep[i];
  if (!most) return p;
  qsort(keep, most, sizeof *keep, best_first);
  if (fits(b, make, keep, most)) n = most;
  for (uint32_t i = 0; n < most && i < most; i++) {
    keep[n] = keep[i];
    if (fits(b, make, keep, n + 1)) n++;
  }
  p->notes.nleft = most - n;
  if (!n) return p;
  ZpPlan *q = make(b, p->arena, keep, n, ZP_TO_LEDGER);
  if (!q) ZB_BUG("what is kept fitted, and does not");
  tell(p, q, keep, n);
  return q;
}

/* Chooses how segments are lowered: in how much scratch, with collectives awaited or not, what `recompute`
 * names recomputed or not, and which values are stashed for backward although it could recompute them, since
 * there is memory for it.
 *
 * Needs a plan whose segments are lowered with all the scratch that is useful, async collectives and nothing
 * stashed. Only that plan is bound; of a variant (ZpVariant) segments are lowered once more, each by itself,
 * and its slots and scratch are added up per stage.
 *
 * Stashing is selective recomputation in reverse. local/remat.c has listed what forward has in memory
 * and backward would recompute: a GELU, which the gradient of the weights behind it reads again; what a norm
 * hands to products. Each is tried by itself, which says what it takes of a slot and how much less the calls
 * read and write; values with the same surroundings are tried once. Then, the one first that saves most per
 * byte, each is stashed with which every stage still fits, for as many micro-batches as it holds.
 *
 * Only a recipe with `limit memory` says what there is: without it nothing is stashed. */
#include "runtime/plan/local/local.h"
#include "runtime/plan/schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

static uint64_t arena_of(const ZpPlan *p) { return zp_fullest(p)->ledger.total[ZP_DEVICE]; }

/* False with reports, or without if it does not fit. */
static bool schedule(ZpBuild *b) {
  if (!zp_stages(b)) return false;
  zp_program(b->p);
  return zp_ledger(b);
}

/* Lowers all segments of q, which is the plan or a copy of it, as the variant says. */
static bool lower(const ZpBuild *b, const ZpVariant *v, ZpPlan *q) {
  ZpSegment *to = ZB_NEWN(q->arena, ZpSegment, q->graph->nsegments);
  for (uint32_t i = 0; i < q->graph->nsegments; i++)
    if (!zp_lower_segment(b, i, v, q->arena, &to[i])) return false;
  q->programs.segments = to;
  q->layout.room = v->room;
  zp_place_inputs(q);
  return true;
}

/* Makes the plan once more from there on. False: it does not fit. */
static bool lower_and_schedule(ZpBuild *b, const ZpVariant *v) {
  if (!lower(b, v, b->p)) return false;
  b->variant = *v;
  return schedule(b);
}

/* ---- what does not fit, with less ---------------------------------------------------------------------- */
static bool any_async(const ZpPlan *p) {
  for (uint32_t s = 0; s < p->graph->nsegments; s++)
    for (int k = 0; k < ZP_PHASES; k++)
      for (uint32_t i = 0; i < p->programs.segments[s].list[k].n; i++)
        if (p->programs.segments[s].list[k].nodes[i].until > i + 1) return true;
  return false;
}

/* Returns whether some call makes do with less scratch than it has. */
static bool any_shrinks(const ZpPlan *p, uint64_t room) {
  for (uint32_t s = 0; p->asked.scratch && s < p->graph->nsegments; s++)
    for (int k = 0; k < ZP_PHASES; k++)
      for (uint32_t i = 0; i < p->programs.segments[s].list[k].n; i++) {
        const ZpNode *n = &p->programs.segments[s].list[k].nodes[i];
        ZkCall less = n->call;
        if (n->dims || n->scratch_bytes <= room) continue;
        less.room = room;
        if (zb_round_up(p->asked.scratch(&less, p->asked.threads), 64) < n->scratch_bytes) return true;
      }
  return false;
}

/* Less scratch first, which costs little time; then a collective keeps nothing while calls go on. */
bool zp_fit(ZpBuild *b) {
  static const uint64_t rooms[] = {(uint64_t)256 << 20, (uint64_t)64 << 20};
  bool fits = schedule(b);
  if (!fits && zl_errors(b->d)) return false;
  ZpVariant v = b->variant;
  b->cuts = b->p;
  for (int i = 0; i < 2 && !fits; i++) {
    if (!any_shrinks(b->p, rooms[i])) continue;
    v.room = rooms[i];
    fits = lower_and_schedule(b, &v);
  }
  if (!fits && any_async(b->p)) {
    b->p->notes.async_bytes = arena_of(b->p);
    v.awaits = true;
    fits = lower_and_schedule(b, &v);
  }
  b->p->notes.least = arena_of(b->p);
  if (!fits) zp_report_limit(b);
  return fits;
}

/* ---- recompute that costs memory ----------------------------------------------------------------------- */
/* Values that are saved in order to recompute a part may take more than what the part has. */
void zp_drop_recompute(ZpBuild *b) {
  const ZlRecipe *r = b->p->asked.recipe;
  ZpBuild c = *b;
  ZpPlan *p = ZB_NEW(b->p->arena, ZpPlan);
  char with[24], without[24];
  if (!r->nrecompute || b->p->asked.forward_only || b->o->lowers_as) return;
  *p = *b->p;
  c.p = p;
  c.d = zl_diags_new(p->arena, zl_sources_new(p->arena)); /* what there is to report has been reported */
  c.cuts = NULL;
  p->notes.async_bytes = 0;
  if (!lower_and_schedule(&c, &(ZpVariant){.saves_all = true})) return;
  p->notes.least = arena_of(p);
  if (b->p->notes.least <= p->notes.least) return;
  ZlDiag *e = zl_report(b->d, ZL_Z0809, r->recompute[0].span,
                        "`recompute` has no effect: with it a rank would need %s, without it needs %s",
                        zb_bytes(with, b->p->notes.least), zb_bytes(without, p->notes.least));
  zl_help(e, "name parts that have more inside than enters them, such as a whole layer");
  b->p = p;
  b->cuts = p;
  b->variant = c.variant;
}

/* ---- what is stashed ----------------------------------------------------------------------------------- */
/* Returns the bytes that one forward and one backward of an instance read and write. */
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

/* Returns what an instance has of a slot. The first of a stage finds what is carried in where it arrived. */
static uint64_t held(const ZpSegment *s, bool first) {
  return s->saved_bytes + (!first && s->saves_carry ? s->carry_bytes : 0);
}

/* Less of what a segment moves is worth no line of a plan: tables of a sequence's length, numbers a token. */
#define LEAST .001

static ZpVariant with(const ZpBuild *b, const ZpStash *stash, uint32_t n) {
  ZpVariant v = b->variant;
  v.stash = stash;
  v.nstash = n;
  return v;
}

/* Fills what a value would take and save by itself. */
static void measure(const ZpBuild *b, ZpStash *x) {
  const ZpSegment *without = &b->p->programs.segments[x->segment];
  const ZpVariant v = with(b, x, 1);
  ZbArena *a = zb_arena_new();
  ZpSegment s;
  if (zp_lower_segment(b, x->segment, &v, a, &s)) {
    x->bytes = less(held(&s, false), held(without, false));
    x->moves = less(moved(without), moved(&s));
    if ((double)x->moves < LEAST * (double)moved(without)) x->moves = 0;
  }
  zb_arena_free(a);
}

static double worth(const ZpStash *k) { return (double)k->moves / (double)(k->bytes ? k->bytes : 1); }

static int best_first(const void *a, const void *b) {
  const ZpStash *x = a, *y = b;
  double u = worth(x), v = worth(y);
  if (u != v) return u > v ? -1 : 1;
  if (x->segment != y->segment) return x->segment < y->segment ? -1 : 1;
  return x->value < y->value ? -1 : x->value > y->value;
}

/* Returns what is worth stashing, the best first. */
static ZpStash *find_candidates(const ZpBuild *b, uint32_t *n) {
  ZpStash *all = NULL;
  *n = 0;
  for (uint32_t i = 0; i < b->p->graph->nsegments; i++) {
    const ZpSegment *s = &b->p->programs.segments[i];
    for (uint32_t k = 0; k < s->nstashable; k++) {
      ZpStash *x = &s->stashable[k], *same = s->stashable;
      while (same->surroundings != x->surroundings) same++;
      if (same == x) measure(b, x);
      x->bytes = same->bytes, x->moves = same->moves;
      if (x->moves) ZB_PUSH(b->p->arena, all, *n, *x);
    }
  }
  if (*n) qsort(all, *n, sizeof *all, best_first);
  return all;
}

static uint64_t lines(uint64_t bytes) { return zb_round_up(bytes, 64); }

/* Returns whether backward of a virtual stage reads what is carried in where it arrived. Then that waits
 * there, and more of these do. */
static bool keeps_arrival(const ZpPlan *p, uint32_t v) {
  const ZpVirtualStage *x = &p->programs.vstages[v];
  return p->programs.segments[p->programs.stages[x->stage].insts[x->first].segment].saves_carry;
}

/* Adds up the activation slots of a program, as large as they are in plan p. */
static uint64_t slots_bytes(const ZpPlan *p, uint32_t s, const ZpProgram *g) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < g->nbufs; i++)
    if (g->bufs[i].kind == ZP_B_SLOT)
      bytes += lines(p->programs.vstages[p->programs.stages[s].vstages[g->bufs[i].pool]].slot_bytes);
  return bytes;
}

/* Returns whether every stage of a plan fits with the segments of `q`, a copy of it. Only slots and scratch
 * depend on what is stashed, so no program need be made to say what a stage's arena would be. */
static bool stages_fit(const ZpBuild *b, ZpPlan *q) {
  const ZpPlan *p = b->p;
  bool fit = true, same = true;
  q->programs.vstages = ZB_NEWN(q->arena, ZpVirtualStage, p->programs.nvstages);
  memcpy(q->programs.vstages, p->programs.vstages, p->programs.nvstages * sizeof *p->programs.vstages);
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    const ZpStage *was = &p->programs.stages[s];
    ZpStage now = *was;
    now.scratch_bytes = now.boundary_bytes = 0;
    now.cost = 0;
    zp_measure_stage(q, &now);
    uint64_t arena = was->ledger.total[ZP_DEVICE];
    arena -= slots_bytes(p, s, &was->prog) + lines(was->scratch_bytes);
    arena += slots_bytes(q, s, &was->prog) + lines(now.scratch_bytes);
    fit &= arena <= zp_limit(b);
  }
  for (uint32_t v = 0; v < p->programs.nvstages; v++) same &= keeps_arrival(p, v) == keeps_arrival(q, v);
  ZpBuild c = *b;
  c.p = q;
  return same || !fit ? fit : schedule(&c);
}

static bool fits(const ZpBuild *b, const ZpStash *stash, uint32_t n) {
  const ZpVariant v = with(b, stash, n);
  ZpPlan q = *b->p;
  q.arena = zb_arena_new();
  bool fit = lower(b, &v, &q) && stages_fit(b, &q);
  zb_arena_free(q.arena);
  return fit;
}

/* Chooses as many of the candidates as fit, one after the other; returns how many. They are tried in runs,
 * which double while they fit and halve when they do not. Where one does not fit, neither do those that look
 * the same. */
static uint32_t choose(const ZpBuild *b, const ZpStash *all, uint32_t most, ZpStash *chosen) {
  uint32_t n = 0, run = most;
  for (uint32_t i = 0; i < most;) {
    if (run > most - i) run = most - i;
    memcpy(&chosen[n], &all[i], run * sizeof *all);
    if (fits(b, chosen, n + run)) {
      n += run, i += run, run *= 2;
    } else if (run > 1) {
      run /= 2;
    } else {
      const ZpStash *x = &all[i++];
      while (i < most && all[i].segment == x->segment && all[i].surroundings == x->surroundings) i++;
    }
  }
  return n;
}

void zp_stash(ZpBuild *b) {
  ZpPlan *p = b->p;
  uint32_t most, n;
  if (!b->limit || p->asked.forward_only || b->o->lowers_as) return;
  const ZpStash *all = find_candidates(b, &most);
  ZpStash *chosen = ZB_NEWN(p->arena, ZpStash, most + 1);
  n = choose(b, all, most, chosen);
  p->notes.not_stashed = most - n;
  if (!n) return;
  const ZpSegment *without = p->programs.segments;
  const ZpVariant v = with(b, chosen, n);
  if (!lower_and_schedule(b, &v)) ZB_BUG("what is stashed fitted, and does not");
  p->programs.stashed = chosen;
  p->programs.nstashed = n;
  for (uint32_t i = 0; i < p->graph->nsegments; i++) {
    ZpSegment *s = &p->programs.segments[i];
    s->stashed_bytes = less(held(s, false), held(&without[i], false));
    s->stashed_moves = less(moved(&without[i]), moved(s));
  }
}

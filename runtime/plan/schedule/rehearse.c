/* A schedule by itself, whatever the model: stages that are all alike, and nothing but the pipeline takes
 * time. */
#include "runtime/plan/schedule/schedule.h"

enum { FORWARD = 1000 }; /* units of time; a backward takes twice that */

/* Returns a plan whose virtual stages have one instance each and hand a tuple to the next. */
static ZpPlan stages_alike(ZbArena *a, const char *schedule, uint32_t stages, uint32_t nmicro, bool keeps) {
  ZpPlan p = {.asked = {.nmicro = nmicro, .schedule = schedule}, .programs = {.nstages = stages}};
  p.programs.vstages = zp_place_vstages(a, schedule, stages, &p.programs.nvstages);
  p.programs.segments = ZB_NEWN(a, ZpSegment, p.programs.nvstages);
  p.programs.stages = ZB_NEWN(a, ZpStage, stages);
  for (uint32_t v = 0; v < p.programs.nvstages; v++) {
    ZpVirtualStage *x = &p.programs.vstages[v];
    ZpStage *st = &p.programs.stages[x->stage];
    uint64_t in = v > 0, out = v + 1 < p.programs.nvstages;
    x->carry_bytes = x->dcarry_bytes = in;
    x->carry_out_bytes = x->dcarry_out_bytes = out;
    x->first = st->ninsts;
    x->ninsts = 1;
    p.programs.segments[v].saves_carry = keeps;
    ZB_PUSH(a, st->vstages, st->nvstages, v);
    ZB_PUSH(a, st->insts, st->ninsts, (ZpInst){.segment = v});
  }
  return p;
}

/* Counts the transfers on the longest way through the timelines to item i of stage s, that with most of
 * them. */
static uint32_t transfers_before(const ZpPlan *p, const Timeline *t, uint32_t s, uint32_t i) {
  uint32_t n = 0;
  for (;;) {
    const ZpScheduleItem *x = &t->order[s].item[i];
    int kind = zp_item_is(x, ZP_TAKE_GRAD) ? GRAD : ACT;
    bool takes = kind == GRAD || zp_item_is(x, ZP_TAKE_ACT);
    uint32_t v = takes ? zp_source(p, kind, x->vstage) : ZP_NONE, from = zp_owner(p, v);
    uint32_t item = v == ZP_NONE ? 0 : t->lane[v].item[kind][x->mb];
    if (v != ZP_NONE && t->order[s].start[i] == t->order[from].end[item]) n += from != s, s = from, i = item;
    else if (i) i--;
    else return n;
  }
}

static ZpRehearsal play(ZbArena *a, const char *schedule, uint32_t stages, uint32_t nmicro, bool keeps) {
  ZbArena *scratch = zb_arena_new();
  const ZpPlan p = stages_alike(scratch, schedule, stages, nmicro, keeps);
  uint32_t n = p.programs.nvstages, last = 0;
  ZpRehearsal r = {.rings = ZB_NEWN(a, ZpRings, n), .nrings = n};
  uint64_t *duration = ZB_NEWN(scratch, uint64_t, n), end = 0;
  for (uint32_t v = 0; v < n; v++) duration[v] = FORWARD;
  const Timeline t = zp_timelines(&p, scratch, duration);
  for (uint32_t v = 0; v < n; v++) {
    const Lane *l = &t.lane[v];
    r.rings[v] = (ZpRings){l->slot.n, l->recv[ACT].n, l->send[ACT].n, l->recv[GRAD].n, l->send[GRAD].n};
  }
  for (uint32_t s = 0; s < stages; s++) {
    const ZpOrder *o = &t.order[s];
    if (o->end[o->n - 1] > end) end = o->end[o->n - 1], last = s;
  }
  r.bubble = (double)(end - t.order[0].start[0]) * stages / (3. * FORWARD * n) - nmicro;
  r.transfers = transfers_before(&p, &t, last, t.order[last].n - 1);
  zb_arena_free(scratch);
  return r;
}

static uint32_t on(uint32_t less, uint32_t more, uint32_t times) { return more + times * (more - less); }

/* Once the pipeline is full, micro-batches go through it like as many before: a multiple of the stages, at
 * most. */
ZpRehearsal zp_rehearse(ZbArena *a, const char *schedule, uint32_t stages, uint32_t nmicro, bool keeps) {
  uint32_t few = 2 * stages + nmicro % stages, more = few + stages, times = (nmicro - more) / stages;
  if (nmicro <= more) return play(a, schedule, stages, nmicro, keeps);
  ZpRehearsal r = play(a, schedule, stages, more, keeps), less = play(a, schedule, stages, few, keeps);
  r.bubble += times * (r.bubble - less.bubble);
  r.transfers += times * (r.transfers - less.transfers);
  for (uint32_t s = 0; s < r.nrings; s++) {
    ZpRings *m = &r.rings[s], *l = &less.rings[s];
    *m = (ZpRings){on(l->slots, m->slots, times), on(l->recv_act, m->recv_act, times),
                   on(l->send_act, m->send_act, times), on(l->recv_grad, m->recv_grad, times),
                   on(l->send_grad, m->send_grad, times)};
  }
  return r;
}

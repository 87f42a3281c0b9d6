/* A schedule by itself, whatever the model: stages that are all alike, and nothing but the pipeline takes time. */
#include "runtime/plan/schedule/schedule.h"

enum { FORWARD = 1000 }; /* units of time; a backward takes twice that */

/* A plan of stages with one instance each, of which each hands a tuple to the next. */
static ZpPlan stages_alike(ZbArena *a, const char *schedule, uint32_t stages, uint32_t nmicro, bool keeps) {
  ZpPlan p = {.asked = {.nmicro = nmicro, .schedule = schedule}, .programs = {.nstages = stages}};
  p.programs.segments = ZB_NEWN(a, ZpSegment, stages);
  p.programs.stages = ZB_NEWN(a, ZpStage, stages);
  ZpInst *inst = ZB_NEWN(a, ZpInst, stages);
  for (uint32_t s = 0; s < stages; s++) {
    uint64_t in = s > 0, out = s + 1 < stages;
    p.programs.segments[s] = (ZpSegment){.saves_carry = keeps,
                                         .carry_bytes = in,
                                         .dcarry_bytes = in,
                                         .carry_out_bytes = out,
                                         .dcarry_out_bytes = out};
    inst[s].segment = s;
    p.programs.stages[s] = (ZpStage){.insts = &inst[s], .ninsts = 1};
  }
  return p;
}

/* Counts the transfers on the longest way through the timelines to item i of stage s, that with most of them. */
static uint32_t transfers_before(const Timeline *t, uint32_t stages, uint32_t s, uint32_t i) {
  uint32_t n = 0;
  for (;;) {
    ZpWork w = t[s].work[i];
    bool first = w.backward ? s + 1 == stages : s == 0;
    uint32_t from = w.backward ? s + 1 : s - 1, item = first ? 0 : t[from].item[w.backward][w.mb];
    if (!first && t[s].start[i] == t[from].end[item]) s = from, i = item, n++;
    else if (i) i--;
    else return n;
  }
}

static ZpRehearsal play(ZbArena *a, const char *schedule, uint32_t stages, uint32_t nmicro, bool keeps) {
  ZpRehearsal r = {.rings = ZB_NEWN(a, ZpRings, stages)};
  ZbArena *scratch = zb_arena_new();
  const ZpPlan p = stages_alike(scratch, schedule, stages, nmicro, keeps);
  uint64_t *duration = ZB_NEWN(scratch, uint64_t, stages);
  for (uint32_t s = 0; s < stages; s++) duration[s] = FORWARD;
  const Timeline *t = zp_timelines(&p, scratch, duration);
  uint64_t end = 0, last = 0;
  for (uint32_t s = 0; s < stages; s++) {
    r.rings[s] =
        (ZpRings){t[s].slot.n, t[s].recv[ACT].n, t[s].send[ACT].n, t[s].recv[GRAD].n, t[s].send[GRAD].n};
    if (t[s].end[t[s].nwork - 1] > end) end = t[s].end[t[s].nwork - 1], last = s;
  }
  r.bubble = (double)(end - t[0].start[0]) / (3. * FORWARD) - nmicro;
  r.transfers = transfers_before(t, stages, (uint32_t)last, t[last].nwork - 1);
  zb_arena_free(scratch);
  return r;
}

static uint32_t on(uint32_t less, uint32_t more, uint32_t times) { return more + times * (more - less); }

/* Once the pipeline is full, micro-batches go through it like as many before: a multiple of the stages, at most. */
ZpRehearsal zp_rehearse(ZbArena *a, const char *schedule, uint32_t stages, uint32_t nmicro, bool keeps) {
  uint32_t few = 2 * stages + nmicro % stages, more = few + stages, times = (nmicro - more) / stages;
  if (nmicro <= more) return play(a, schedule, stages, nmicro, keeps);
  ZpRehearsal r = play(a, schedule, stages, more, keeps), less = play(a, schedule, stages, few, keeps);
  r.bubble += times * (r.bubble - less.bubble);
  r.transfers += times * (r.transfers - less.transfers);
  for (uint32_t s = 0; s < stages; s++) {
    ZpRings *m = &r.rings[s], *l = &less.rings[s];
    *m = (ZpRings){on(l->slots, m->slots, times), on(l->recv_act, m->recv_act, times),
                   on(l->send_act, m->send_act, times), on(l->recv_grad, m->recv_grad, times),
                   on(l->send_grad, m->send_grad, times)};
  }
  return r;
}

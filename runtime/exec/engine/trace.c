/* What this rank did, and when, in the steps that a trace is of. Room for it is taken before the first step:
 * each instruction of a step has one span, and each collective that its nodes start; those in rounds of
 * experts have as many as there are rounds, of which tokens may want the most. Where nothing is traced this
 * costs a branch.
 *
 * Times are the host's, so they say something where the host is what computes. */
#include "runtime/exec/engine/internal.h"
#include "runtime/plan/text.h"

#include <string.h>

static uint64_t sends_of(const ZxEngine *e, const ZpInstr *in) {
  ZpPhase phase = zp_phase(in->op);
  uint64_t n = 0;
  if (phase == ZP_PHASES) return 0;
  const ZpSegment *s = &e->p->programs.segments[e->st->insts[in->inst].segment];
  const ZpList *l = &s->list[phase];
  for (uint32_t i = 0; i < l->n; i++)
    if (zp_sends(&l->nodes[i])) n += zp_rounds(e->p, s, l, i).most;
  return n;
}

bool zx_trace_room(ZxEngine *e, ZbErr *err) {
  const ZpProgram *g = &e->st->prog;
  uint64_t each = g->ninstrs, steps = (uint64_t)(e->o.trace_to - e->o.trace_from + 1), all;
  if (!e->o.trace_to) return true;
  if (!e->dev->host)
    return zb_fail(err, "leave --trace out, or compute with --device cpu",
                   "--trace: on device %s instructions begin and end without the host, which cannot say when",
                   e->dev->name);
  for (uint32_t i = 0; i < g->ninstrs; i++) each += sends_of(e, &g->instrs[i]);
  if (!zb_mul_u64(each, steps, &all) || all > ZX_MOST_SPANS)
    return zb_fail(err, "trace fewer steps: --trace-steps 5-6, say",
                   "--trace: %llu steps of %llu instructions are too many", (unsigned long long)steps,
                   (unsigned long long)each);
  e->span = ZB_NEWN(e->a, ZpSpan, all);
  e->span_of = ZB_NEWN(e->a, uint32_t, g->ninstrs);
  e->spans_most = all;
  memset(e->span, 0xff, all * sizeof *e->span); /* touches it */
  return true;
}

void zx_trace_step(ZxEngine *e) {
  e->tracing = e->span && e->step >= e->o.trace_from && e->step <= e->o.trace_to;
}

static ZpSpan *add(ZxEngine *e, uint32_t instr, uint32_t node, double begin, double end) {
  ZB_ASSERT(e->nspans < e->spans_most);
  ZpSpan *s = &e->span[e->nspans++];
  *s = (ZpSpan){.step = e->step, .instr = instr, .node = node, .begin = begin, .end = end};
  return s;
}

void zx_trace_begin(ZxEngine *e, uint32_t instr) {
  if (!e->tracing) return;
  double now = zb_now();
  e->span_of[instr] = (uint32_t)(add(e, instr, ZP_NONE, now, now) - e->span);
}

void zx_trace_end(ZxEngine *e, uint32_t instr) {
  if (e->tracing) e->span[e->span_of[instr]].end = zb_now();
}

void zx_trace_node(ZxEngine *e, uint32_t node, uint64_t bytes, double begin, double end) {
  if (e->tracing) add(e, e->at, node, begin, end)->bytes = bytes;
}

const ZpSpan *zx_engine_spans(const ZxEngine *e, uint64_t *n) {
  *n = e->nspans;
  return e->span;
}

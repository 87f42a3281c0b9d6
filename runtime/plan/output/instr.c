/* Instructions in words. */
#include "runtime/plan/plan.h"

#include <string.h>

const ZpInstrInfo zp_instr_info[ZP_I_COUNT_] = {
#define I(NAME, text, queue) [ZP_I_##NAME] = {text, ZP_Q_##queue},
#include "runtime/plan/instr.def"
};

const char *const zp_phase_text[ZP_PHASES] = {"count", "forward", "backward"};

void zp_held_text(const ZpPlan *p, uint32_t bucket, uint32_t iter, ZbText *out) {
  const char *name = p->buckets[bucket].name, *star = strchr(name, '*');
  if (star) zb_text_add(out, "%.*s%u%s", (int)(star - name), name, iter, star + 1);
  else zb_text_add(out, "%s", name);
}

void zp_inst_text(const ZpPlan *p, uint32_t segment, uint32_t iter, ZbText *out) {
  const ZgSegment *g = &p->graph->segments[segment];
  if (!g->repeat) zb_text_add(out, "part %u", segment);
  else if (g->label && *g->label) zb_text_add(out, "%s.%u", g->label, iter);
  else zb_text_add(out, "part %u.%u", segment, iter);
}

void zp_instr_text(const ZpPlan *p, uint32_t stage, const ZpInstr *in, ZbText *out) {
  const ZpStage *st = &p->stages[stage];
  zb_text_add(out, "%s", zp_instr_info[in->op].text);
  switch ((ZpInstrOp)in->op) {
  case ZP_I_FWD:
  case ZP_I_BWD:
    zb_text_add(out, "(");
    zp_inst_text(p, st->insts[in->inst].segment, st->insts[in->inst].iter, out);
    zb_text_add(out, ", mb %u)", in->mb);
    break;
  case ZP_I_LOAD:
  case ZP_I_COUNT:
  case ZP_I_SEND_ACT:
  case ZP_I_RECV_ACT:
  case ZP_I_SEND_GRAD:
  case ZP_I_RECV_GRAD: zb_text_add(out, "(mb %u)", in->mb); break;
  case ZP_I_OPT_STEP:
  case ZP_I_GATHER_PARAMS:
  case ZP_I_SCATTER_GRADS:
  case ZP_I_REDUCE_GRADS:
  case ZP_I_REDUCE_TIED:
  case ZP_I_PUBLISH_PARAMS:
    zb_text_add(out, "(");
    zp_held_text(p, st->held[in->held].bucket, st->held[in->held].iter, out);
    if (in->op == ZP_I_SCATTER_GRADS && !in->in_place) zb_text_add(out, ", mb %u", in->mb);
    zb_text_add(out, ")");
    break;
  case ZP_I_ZERO_GRADS:
  case ZP_I_NORM_LOCAL:
  case ZP_I_REDUCE_COUNT:
  case ZP_I_REDUCE_STEP:
  case ZP_I_COUNT_: break;
  }
}

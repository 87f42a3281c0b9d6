/* The names of a plan's things in messages and tables, and the places in the recipe where the user wrote
 * them. */
#include "runtime/plan/text.h"

#include <string.h>

const ZpInstrInfo zp_instr_info[ZP_INSTRS] = {
#define I(NAME, text, queue) [ZP_I_##NAME] = {text, ZP_Q_##queue},
#include "runtime/plan/instr.def"
};

const ZpLedgerInfo zp_ledger_info[ZP_LEDGER_LINES] = {
#define L(NAME, text, memory) [ZP_L_##NAME] = {text, ZP_##memory},
#include "runtime/plan/ledger.def"
};

const char *const zp_queue_text[ZP_QUEUES] = {"compute", "p2p", "coll", "nodes"};
const char *zp_optimizer_text(ZkOptimizerKind kind) {
  return kind == ZP_UPDATE ? "update" : zk_optimizer_info[kind].word;
}

const char *const zp_phase_text[ZP_PHASES] = {"count", "forward", "backward"};

ZkElem zp_precision_elem(const char *word) {
  ZkElem e = word ? zk_elem_named(word) : ZK_F32;
  return e == ZK_NONE ? ZK_F32 : e;
}

void zp_held_text(const ZpPlan *p, uint32_t bucket, uint32_t iter, ZbText *out) {
  const char *name = p->programs.buckets[bucket].name, *star = strchr(name, '*');
  if (star) zb_text_add(out, "%.*s%u%s", (int)(star - name), name, iter, star + 1);
  else zb_text_add(out, "%s", name);
}

void zp_segment_text(const ZpPlan *p, uint32_t segment, ZbText *out) {
  const ZgSegment *g = &p->graph->segments[segment];
  if (g->repeat && g->label && *g->label) zb_text_add(out, "%s", g->label);
  else zb_text_add(out, "part %u", segment);
}

void zp_inst_text(const ZpPlan *p, uint32_t segment, uint32_t iter, ZbText *out) {
  zp_segment_text(p, segment, out);
  if (p->graph->segments[segment].repeat) zb_text_add(out, ".%u", iter);
}

void zp_instr_text(const ZpPlan *p, uint32_t stage, const ZpInstr *in, ZbText *out) {
  const ZpStage *st = &p->programs.stages[stage];
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
  case ZP_I_RECV_GRAD:
    zb_text_add(out, "(");
    if (p->programs.nvstages > p->programs.nstages) zb_text_add(out, "virtual stage %u, ", in->vstage);
    zb_text_add(out, "mb %u)", in->mb);
    break;
  case ZP_I_OPT_STEP:
  case ZP_I_MOMENTUM:
  case ZP_I_ORTHOGONALIZE:
  case ZP_I_GATHER_UPDATES:
  case ZP_I_SCATTER_UPDATES:
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
  case ZP_I_ZERO_SUMS:
  case ZP_I_NORM_LOCAL:
  case ZP_I_REDUCE_COUNT:
  case ZP_I_REDUCE_STEP:
  case ZP_INSTRS: break;
  }
}

int zp_zero_stage(const ZpBucket *k) {
  return k->gathers ? 3 : zp_shards_grads(k) ? 2 : k->scatters == ZP_SCATTER_AT_END;
}

const char *zp_loc_text(const ZpPlan *p, uint32_t loc) {
  const ZgLoc *l = &p->graph->locs[loc < p->graph->nlocs ? loc : 0];
  return l->line ? zb_printf(p->arena, "%s:%u", l->file, l->line) : "the model";
}

ZlSpan zp_bind_span(const ZlRecipe *r, const char *axis) {
  for (uint32_t i = 0; i < r->nbinds; i++)
    if (!strcmp(r->binds[i].axis.s, axis)) return r->binds[i].span;
  return r->span;
}

const ZlSplit *zp_split(const ZpPlan *p, uint32_t directive) {
  const ZlRecipe *r = p->asked.recipe;
  for (uint32_t i = r->nsplits; i-- > 0;)
    if (!strcmp(r->splits[i].dim.s, r->mesh[directive].name.s)) return &r->splits[i];
  return NULL;
}

const ZlAttention *zp_attention(const ZpPlan *p, const ZpDim *d) {
  const ZlRecipe *r = p->asked.recipe;
  const ZlAttention *of_all = NULL;
  for (uint32_t i = 0; i < r->nattention; i++) {
    if (!r->attention[i].dim.s) of_all = &r->attention[i];
    else if (!strcmp(r->attention[i].dim.s, r->mesh[d->directive].name.s)) return &r->attention[i];
  }
  return of_all;
}

ZlSpan zp_split_span(const ZpPlan *p, const ZpDim *d) {
  const ZlSplit *split = zp_split(p, d->directive);
  return split ? split->span : p->asked.recipe->mesh[d->directive].name.span;
}

/* The memories of a rank, byte by byte: what is stored, what programs share, the scratch. Every byte is on
 * one line of the ledger, and a memory's total is what the engine allocates there. */
#include "runtime/plan/schedule/schedule.h"

#include <string.h>

static uint64_t take(ZpLedger *l, ZpLedgerLine line, uint64_t bytes) {
  uint64_t *end = &l->total[zp_ledger_info[line].memory], at = *end, n = zb_round_up(bytes, 64);
  if (!zb_add_u64(at, n, end)) ZB_BUG("a memory of more than 2^64 bytes");
  l->bytes[line] += n;
  return at;
}

static const ZpLedgerLine line_of[ZP_B_KINDS] = {
    [ZP_B_SLOT] = ZP_L_ACTIVATIONS,     [ZP_B_RECV_ACT] = ZP_L_COMM,
    [ZP_B_SEND_ACT] = ZP_L_COMM,        [ZP_B_RECV_GRAD] = ZP_L_COMM,
    [ZP_B_SEND_GRAD] = ZP_L_COMM,       [ZP_B_GATHER] = ZP_L_GATHERED,
    [ZP_B_STAGING] = ZP_L_STAGING,      [ZP_B_UPDATE] = ZP_L_UPDATES,
    [ZP_B_PARAM] = ZP_L_PARAMS,         [ZP_B_GRAD] = ZP_L_GRADS,
    [ZP_B_STATE] = ZP_L_STATES,         [ZP_B_BOUNDARY] = ZP_L_SCRATCH,
    [ZP_B_SCRATCH] = ZP_L_SCRATCH,      [ZP_B_SCALARS] = ZP_L_OTHER,
    [ZP_B_PINNED_INPUTS] = ZP_L_PINNED, [ZP_B_PINNED_SCALARS] = ZP_L_PINNED,
    [ZP_B_SNAPSHOT] = ZP_L_SNAPSHOT,    [ZP_B_CACHE] = ZP_L_CACHE};

static void take_buf(const ZpPlan *p, ZpStage *st, ZpBuf *buf) {
  uint64_t master = buf->kind == ZP_B_PARAM ? zp_master_bytes(p, st->held[buf->pool].bucket) : 0;
  ZpLedgerLine line = line_of[buf->kind];
  buf->memory = (uint8_t)zp_ledger_info[line].memory;
  buf->offset = take(&st->ledger, line, buf->bytes - master);
  take(&st->ledger, ZP_L_MASTER, master);
}

static bool outlives_step(const ZpBuf *b) {
  return zp_is_stored(b->kind) || b->kind == ZP_B_SCALARS || b->kind == ZP_B_CACHE;
}

/* In another plan's arena: says whether a buffer is one of that plan's. Steps of generation have scalars of their own,
 * since they have no losses. */
static bool is_theirs(const ZpPlan *p, const ZpBuf *b) {
  return p->asked.eval_of && (zp_is_stored(b->kind) || (b->kind == ZP_B_SCALARS && !p->stream));
}

static const ZpBuf *same_of(const ZpProgram *g, const ZpBuf *x) {
  for (uint32_t i = 0; i < g->nbufs; i++)
    if (g->bufs[i].kind == x->kind && g->bufs[i].pool == x->pool && g->bufs[i].index == x->index)
      return &g->bufs[i];
  ZB_BUG("the plan beside this one holds other parameters");
}

/* In another plan's arena: what outlives a step is there already, this one's parameters and scalars among it.
 * The rest is free between its steps, but for a snapshot, which is written meanwhile. */
static void take_beside(const ZpPlan *p, ZpStage *st, const ZpStage *theirs) {
  ZpLedger *l = &st->ledger;
  uint64_t *end = &l->total[ZP_DEVICE];
  for (uint32_t i = 0; i < theirs->prog.nbufs; i++) {
    const ZpBuf *x = &theirs->prog.bufs[i];
    if (outlives_step(x) && x->offset + x->bytes > *end) *end = x->offset + x->bytes;
    if (p->stream && x->kind == ZP_B_SNAPSHOT)
      l->total[ZP_HOST] = l->bytes[ZP_L_SNAPSHOT] = zb_round_up(x->offset + x->bytes, 64);
  }
  l->bytes[ZP_L_TRAINING] = *end;
  for (uint32_t i = 0; i < st->prog.nbufs; i++) {
    ZpBuf *b = &st->prog.bufs[i];
    if (!is_theirs(p, b)) continue;
    b->memory = ZP_DEVICE;
    b->offset = same_of(&theirs->prog, b)->offset;
    l->bytes[line_of[b->kind]] += b->bytes;
    l->bytes[ZP_L_TRAINING] -= b->bytes;
  }
}

static bool fits(const ZpBuild *b, const ZpStage *st) {
  uint64_t limit = zp_limit(b);
  return !limit || st->ledger.total[ZP_DEVICE] <= limit;
}

void zp_report_limit(ZpBuild *b) {
  ZpPlan *p = b->p;
  uint64_t limit = zp_limit(b);
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    const ZpLedger *l = &p->programs.stages[s].ledger;
    uint64_t own = zp_admission_bytes(p), arena = l->total[ZP_DEVICE];
    if (fits(b, &p->programs.stages[s])) continue;
    char need[24], have[24], x[24];
    bool given = limit + own == b->limit; /* the cluster's devices may have less */
    ZlDiag *e = zl_report(b->d, ZL_Z0501, given ? p->asked.recipe->limit.memory_span : p->asked.recipe->span,
                          "rank class pipe=%u needs %s, %s %s", s, zb_bytes(need, arena + own),
                          given ? "limit is"
                                : zb_printf(p->arena, "a device of cluster `%s` has", b->o->cluster->name),
                          zb_bytes(have, limit + own));
    ZbText t = {0};
    for (int i = 0; i < ZP_LEDGER_LINES; i++)
      if (l->bytes[i] && zp_ledger_info[i].memory == ZP_DEVICE)
        zb_text_add(&t, "%s%s %s", t.len ? ", " : "", zp_ledger_info[i].text, zb_bytes(x, l->bytes[i]));
    if (own) zb_text_add(&t, ", admission %s", zb_bytes(x, own));
    zl_note(e, "%s (%u live micro-batch%s)", t.s ? t.s : "", p->programs.stages[s].prog.live,
            p->programs.stages[s].prog.live == 1 ? "" : "es");
    zb_text_free(&t);
    int groups = 1 + (p->programs.nstages > 1); /* of all ranks, and for transfers */
    for (int d = 0; d < p->layout.mesh.ndims; d++)
      groups += d != p->layout.mesh.pipe && p->layout.mesh.dim[d].size > 1;
    if (p->asked.pins && p->layout.mesh.nranks > 1)
      zl_note(e,
              "a limit should leave room beside the arena: 0.3 to 1.5 GB for each of at least %d "
              "communicators, and some 0.6 GB for libraries",
              groups);
    uint64_t acts = l->bytes[ZP_L_ACTIVATIONS], stored = arena - acts;
    uint64_t logits, live = p->programs.stages[s].prog.live;
    const char *classes = zp_chunk_proposal(p, &p->programs.stages[s], &logits);
    if (acts > stored && classes)
      zl_help(e, "`chunk %s = 8`: logits are %s of that; or a smaller `micro`", classes,
              zb_bytes(x, logits * live));
    else if (acts > stored) zl_help(e, "`recompute` a block of the layer, or a smaller `micro`");
    else if (p->asked.zero.what & ZL_SHARD_PARAMS)
      zl_help(e, "more ranks to shard over, or more `tensor` or pipeline ranks");
    else
      zl_help(e, "`shard params, grads, states over` a data dimension, or more `tensor` or pipeline ranks");
    return;
  }
}

bool zp_ledger(ZpBuild *b) {
  ZpPlan *p = b->p;
  bool fit = true;
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    ZpStage *st = &p->programs.stages[s];
    if (p->asked.eval_of) take_beside(p, st, &p->asked.eval_of->programs.stages[s]);
    for (int first = 1; first >= 0; first--) /* what outlives a step, then what comes and goes */
      for (uint32_t i = 0; i < st->prog.nbufs; i++) {
        ZpBuf *b = &st->prog.bufs[i];
        if (outlives_step(b) == first && !is_theirs(p, b)) take_buf(p, st, b);
      }
    fit &= fits(b, st);
  }
  return fit;
}

/* The arena of a rank, byte by byte: what is stored, what programs share, the scratch. Every byte is on one
 * line of the ledger, and the total is what the engine allocates. */
#include "runtime/plan/schedule/schedule.h"

#include <string.h>

typedef struct {
  uint64_t at;
  ZpLedger *l;
} Arena;

static uint64_t take(Arena *a, ZpLedgerLine line, uint64_t bytes) {
  uint64_t at = a->at, n = zb_round_up(bytes, 64);
  if (!zb_add_u64(a->at, n, &a->at)) ZB_BUG("an arena of more than 2^64 bytes");
  a->l->bytes[line] += n;
  return at;
}

static void take_held(ZpPlan *p, ZpStageBucket *h,
                      Arena *a) { /* the master lies right behind the parameters */
  uint64_t master = zp_master_bytes(p, h->bucket), state = zp_state_bytes(p, h->bucket);
  h->param_at = take(a, ZP_L_PARAMS, zp_param_bytes(p, h->bucket));
  h->master_at = master ? take(a, ZP_L_MASTER, master) : UINT64_MAX;
  h->grad_at = take(a, ZP_L_GRADS, zp_grad_bytes(p, h->bucket));
  h->state_at = state ? take(a, ZP_L_STATES, state) : UINT64_MAX;
}

static const ZpLedgerLine line_of[ZP_B_KINDS] = {
    [ZP_B_SLOT] = ZP_L_ACTIVATIONS, [ZP_B_RECV_ACT] = ZP_L_COMM,    [ZP_B_SEND_ACT] = ZP_L_COMM,
    [ZP_B_RECV_GRAD] = ZP_L_COMM,   [ZP_B_SEND_GRAD] = ZP_L_COMM,   [ZP_B_GATHER] = ZP_L_GATHERED,
    [ZP_B_STAGING] = ZP_L_STAGING,  [ZP_B_BOUNDARY] = ZP_L_SCRATCH, [ZP_B_SCRATCH] = ZP_L_SCRATCH,
    [ZP_B_SCALARS] = ZP_L_OTHER};

static void take_buf(ZpStage *st, ZpBuf *buf, Arena *a) {
  const ZpStageBucket *h = buf->pool < st->nheld ? &st->held[buf->pool] : NULL;
  switch (buf->kind) {
  case ZP_B_PARAM: buf->offset = h->param_at; break; /* parameters and master: the master follows */
  case ZP_B_GRAD: buf->offset = h->grad_at; break;
  case ZP_B_STATE: buf->offset = h->state_at; break;
  default: buf->offset = take(a, line_of[buf->kind], buf->bytes); break;
  }
}

static bool check_limit(ZpBuild *b) {
  ZpPlan *p = b->p;
  uint64_t limit = b->limit;
  const ZlCluster *c = b->o->cluster;
  if (c && c->device_memory && (!limit || c->device_memory < limit)) limit = c->device_memory;
  for (uint32_t s = 0; limit && s < p->nstages; s++) {
    const ZpLedger *l = &p->stages[s].ledger;
    if (l->total <= limit) continue;
    char need[24], have[24], x[24];
    ZlSpan at = b->limit ? p->recipe->limit.memory_span : p->recipe->span;
    ZlDiag *e = zl_report(b->d, ZL_Z0501, at, "rank class pipe=%u needs %s, limit is %s", s,
                          zb_bytes(need, l->total), zb_bytes(have, limit));
    ZbText t = {0};
    for (int i = 0; i < ZP_LEDGER_LINES; i++)
      if (l->bytes[i])
        zb_text_add(&t, "%s%s %s", t.len ? ", " : "", zp_ledger_text[i], zb_bytes(x, l->bytes[i]));
    zl_note(e, "%s (%u live micro-batch%s)", t.s ? t.s : "", p->stages[s].prog.live,
            p->stages[s].prog.live == 1 ? "" : "es");
    zb_text_free(&t);
    uint64_t acts = l->bytes[ZP_L_ACTIVATIONS], stored = l->total - acts;
    if (acts > stored) zl_help(e, "`recompute` a block of the layer, or a smaller `micro`");
    else
      zl_help(e, "`shard params, grads, states over` a data dimension, or more `tensor` or pipeline ranks");
    return false;
  }
  return true;
}

bool zp_ledger(ZpBuild *b) {
  ZpPlan *p = b->p;
  for (uint32_t s = 0; s < p->nstages; s++) {
    ZpStage *st = &p->stages[s];
    Arena a = {0, &st->ledger};
    for (uint32_t h = 0; h < st->nheld; h++) take_held(p, &st->held[h], &a);
    for (uint32_t i = 0; i < st->prog.nbufs; i++) take_buf(st, &st->prog.bufs[i], &a);
    st->ledger.total = a.at;
  }
  return check_limit(b);
}

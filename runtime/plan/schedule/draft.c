/* Buffers and instructions in the making. */
#include "runtime/plan/schedule/schedule.h"

uint32_t zp_gen_bufs(ZpBuilder *g, ZpBufKind kind, uint32_t pool, uint32_t n, uint64_t bytes) {
  uint32_t first = g->nbufs;
  for (uint32_t i = 0; i < n; i++) {
    ZpBuf b = {.kind = (uint8_t)kind, .index = i, .pool = pool, .bytes = bytes};
    ZB_PUSH(g->p->arena, g->bufs, g->nbufs, b);
  }
  return first;
}

uint32_t zp_gen_draft(ZpBuilder *g, ZpInstrOp op, uint64_t time, uint32_t rank, uint32_t need) {
  ZpDraft d = {
      .when = 2 * time, .rank = rank, .need = need, .pos = ZP_NONE, .after_pos = ZP_NONE, .after = ZP_NONE};
  d.in.op = (uint8_t)op;
  d.in.queue = (uint8_t)zp_instr_info[op].queue;
  d.in.pair = d.in.tied = d.in.inst = d.in.held = d.in.peer = d.in.vstage = ZP_NONE;
  ZB_PUSH(g->a, g->d, g->nd, d);
  return g->nd - 1;
}

ZpInstr *zp_gen_compute(ZpBuilder *g, ZpInstrOp op, uint64_t start, uint64_t duration) {
  uint32_t id = zp_gen_draft(g, op, start, 0, 0), n = g->ncomp, m = g->ncomp;
  g->d[id].when++;
  g->d[id].pos = g->ncomp;
  ZB_PUSH(g->a, g->start, n, start);
  ZB_PUSH(g->a, g->end, m, start + duration);
  ZB_PUSH(g->a, g->comp, g->ncomp, id);
  return &g->d[id].in;
}

uint64_t zp_tag_held(const ZpBuilder *g, ZpTag kind, uint32_t held, uint32_t n) {
  return zp_tag(kind, g->st->held[held].bucket, g->st->held[held].iter, n);
}

void zp_gen_touch(ZpBuilder *g, uint32_t buf, uint32_t mode, uint64_t tag) {
  ZpAccess x = {buf, mode, tag};
  ZB_PUSH(g->a, g->access, g->naccess, x);
}

/* Compute runs in order, so what one instruction has waited for is complete for all later ones. */
void zp_gen_await(ZpBuilder *g, uint32_t pos, uint32_t id) {
  if (id == ZP_NONE || g->d[id].pos != ZP_NONE) return;
  g->d[id].pos = pos;
  ZB_PUSH(g->a, g->wait, g->nwait, id);
}

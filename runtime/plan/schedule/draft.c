/* Buffers and instructions in the making. */
#include "runtime/plan/schedule/schedule.h"

uint32_t zp_gen_bufs(Gen *g, ZpBufKind kind, uint32_t pool, uint32_t n, uint64_t bytes) {
  uint32_t first = g->nbufs;
  for (uint32_t i = 0; i < n; i++) {
    ZpBuf b = {.kind = (uint8_t)kind, .index = i, .pool = pool, .bytes = bytes};
    ZB_PUSH(g->p->arena, g->bufs, g->nbufs, b);
  }
  return first;
}

uint32_t zp_gen_draft(Gen *g, ZpInstrOp op, uint64_t time, uint32_t rank, uint32_t need) {
  Draft d = {
      .when = 2 * time, .rank = rank, .need = need, .pos = ZP_NONE, .after_pos = ZP_NONE, .after = ZP_NONE};
  d.in.op = (uint8_t)op;
  d.in.queue = (uint8_t)zp_instr_info[op].queue;
  d.in.pair = d.in.tied = d.in.inst = d.in.held = d.in.peer = ZP_NONE;
  ZB_PUSH(g->a, g->d, g->nd, d);
  return g->nd - 1;
}

uint64_t zp_tag_held(const Gen *g, ZpTag kind, uint32_t held, uint32_t n) {
  return zp_tag(kind, g->st->held[held].bucket, g->st->held[held].iter, n);
}

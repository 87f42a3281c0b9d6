/* See broken.h. */
#include "tests/unit/plan/broken.h"

#include <criterion/criterion.h>
#include <string.h>

ZbArena *arena;
void arena_setup(void) { arena = zb_arena_new(); }
void arena_teardown(void) { zb_arena_free(arena); }

const Fake rich = {
    .stages = 3, .nmicro = 4, .layers = 7, .level = 3, .tied = true, .saves_carry = true, .counts = true};

ZpPlan *good(Fake f) {
  ZbErr err = {0};
  ZpPlan *p = fake_programs(arena, f);
  cr_assert(zp_check(p, &err), "%s", err.text);
  return p;
}

void rejects(const ZpPlan *p, const char *text) {
  ZbErr err = {0};
  cr_assert(!zp_check(p, &err), "accepted, but: %s", text);
  cr_assert(strstr(err.text, text), "says: %s\nnot: %s", err.text, text);
}

ZpInstr *find_instr(const ZpPlan *p, uint32_t s, ZpInstrOp op, uint32_t mb, uint32_t what) {
  return &p->programs.stages[s].prog.instrs[fake_find(p, s, op, mb, what)];
}

ZpBuf *find_buffer(const ZpPlan *p, uint32_t s, ZpBufKind kind, uint32_t pool, uint32_t index) {
  const ZpProgram *g = &p->programs.stages[s].prog;
  for (uint32_t b = 0; b < g->nbufs; b++)
    if (g->bufs[b].kind == kind && g->bufs[b].index == index && g->bufs[b].pool == pool) return &g->bufs[b];
  cr_assert_fail("no such buffer");
  return NULL;
}

void move_instr(ZpPlan *p, uint32_t s, uint32_t from, uint32_t to) {
  uint32_t n = p->programs.stages[s].prog.ninstrs, *now = ZB_NEWN(arena, uint32_t, n), k = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (k == to) now[k++] = from;
    if (i != from) now[k++] = i;
  }
  if (k == to) now[k++] = from;
  fake_reorder(p, s, now);
}

/* Compute orders for all numbers of stages and micro-batches up to eight. */
#include "lang/words.h"
#include "runtime/plan/plan.h"

#include <criterion/criterion.h>
#include <string.h>

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* Every micro-batch forward, then backward, once each. */
static void complete(const ZpWork *w, uint32_t M) {
  uint8_t seen[64] = {0};
  for (uint32_t i = 0; i < 2 * M; i++) {
    cr_assert_lt(w[i].mb, M);
    cr_assert_eq(seen[w[i].mb], w[i].backward ? 1 : 0);
    seen[w[i].mb]++;
  }
}

Test(order, complete_and_live) {
  ZbArena *a = zb_arena_new();
  for (uint32_t P = 1; P <= 8; P++) {
    for (uint32_t M = 1; M <= 8; M++) {
      for (uint32_t s = 0; s < P; s++) {
        const ZpWork *f = zp_order(a, "1f1b", P, M, s), *g = zp_order(a, "gpipe", P, M, s);
        complete(f, M);
        complete(g, M);
        cr_assert_eq(zp_order_live(f, 2 * M), min_u32(P - s, M), "1f1b P=%u M=%u stage %u", P, M, s);
        cr_assert_eq(zp_order_live(g, 2 * M), M);
      }
    }
  }
  zb_arena_free(a);
}

static const char *text(ZbText *t, const char *schedule, uint32_t P, uint32_t M, uint32_t s) {
  ZbArena *a = zb_arena_new();
  const ZpWork *w = zp_order(a, schedule, P, M, s);
  for (uint32_t i = 0; i < 2 * M; i++)
    zb_text_add(t, "%s%c%u", i ? " " : "", w[i].backward ? 'B' : 'F', w[i].mb);
  zb_arena_free(a);
  return t->s;
}

static void golden(const char *schedule, uint32_t P, uint32_t M, uint32_t s, const char *want) {
  ZbText t = {0};
  cr_assert_str_eq(text(&t, schedule, P, M, s), want);
  zb_text_free(&t);
}

Test(order, golden) {
  golden("1f1b", 3, 4, 0, "F0 F1 F2 B0 F3 B1 B2 B3");
  golden("1f1b", 3, 4, 1, "F0 F1 B0 F2 B1 F3 B2 B3");
  golden("1f1b", 3, 4, 2, "F0 B0 F1 B1 F2 B2 F3 B3");
  golden("1f1b", 4, 2, 0, "F0 F1 B0 B1");
  golden("gpipe", 3, 3, 1, "F0 F1 F2 B0 B1 B2");
}

Test(order, of_every_schedule) {
  ZbArena *a = zb_arena_new();
  for (const char *const *s = zl_schedules; *s; s++) {
    const ZpWork *w = zp_order(a, *s, 4, 8, 1);
    uint32_t seen[2] = {0};
    for (int i = 0; i < 16; i++) seen[w[i].backward] |= 1u << w[i].mb;
    cr_expect(seen[0] == 0xff && seen[1] == 0xff, "%s", *s);
  }
  zb_arena_free(a);
}

static double idle(const char *schedule, uint32_t P, uint32_t M) {
  ZbArena *a = zb_arena_new();
  ZpWork **w = ZB_NEWN(a, ZpWork *, P);
  uint64_t **start = ZB_NEWN(a, uint64_t *, P);
  for (uint32_t s = 0; s < P; s++) {
    w[s] = zp_order(a, schedule, P, M, s);
    start[s] = ZB_NEWN(a, uint64_t, 2 * (size_t)M);
  }
  uint64_t span = zp_order_times(a, w, P, M, start);
  /* The first forward goes from stage to stage. */
  for (uint32_t s = 0; s < P; s++) cr_assert_eq(start[s][0], s);
  zb_arena_free(a);
  return 1 - 3.0 * M / (double)span;
}

/* Both leave P - 1 gaps of one forward and one backward: (P - 1) / (M + P - 1). */
Test(order, idle) {
  for (uint32_t P = 1; P <= 8; P++) {
    for (uint32_t M = 1; M <= 8; M++) {
      double want = (double)(P - 1) / (M + P - 1);
      cr_assert_float_eq(idle("1f1b", P, M), want, 1e-12, "P=%u M=%u", P, M);
      cr_assert_float_eq(idle("gpipe", P, M), want, 1e-12, "P=%u M=%u", P, M);
    }
  }
  cr_assert_float_eq(idle("1f1b", 16, 128), 15.0 / 143, 1e-12);
}

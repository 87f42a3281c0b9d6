/* Compute orders for all numbers of stages and micro-batches up to eight. */
#include "lang/words.h"
#include "runtime/plan/plan.h"

#include <criterion/criterion.h>
#include <string.h>

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* Every micro-batch forward, then backward, once each. */
static void complete(const ZpOrder *o, uint32_t M, uint32_t vstage) {
  uint8_t seen[64] = {0};
  cr_assert_eq(o->n, 2 * M);
  for (uint32_t i = 0; i < 2 * M; i++) {
    const ZpScheduleItem *x = &o->item[i];
    cr_assert_lt(x->mb, M);
    cr_assert_eq(x->vstage, vstage);
    cr_assert_eq(x->kind, seen[x->mb] ? ZP_BACKWARD : ZP_FORWARD);
    seen[x->mb]++;
  }
}

Test(order, complete_and_live) {
  ZbArena *a = zb_arena_new();
  for (uint32_t P = 1; P <= 8; P++) {
    for (uint32_t M = 1; M <= 8; M++) {
      for (uint32_t s = 0; s < P; s++) {
        const ZpOrder f = zp_order(a, "1f1b", P, M, s), g = zp_order(a, "gpipe", P, M, s);
        complete(&f, M, s);
        complete(&g, M, s);
        cr_assert_eq(zp_order_live(&f), min_u32(P - s, M), "1f1b P=%u M=%u rank %u", P, M, s);
        cr_assert_eq(zp_order_live(&g), M);
      }
    }
  }
  zb_arena_free(a);
}

static const char *text(ZbText *t, const char *schedule, uint32_t P, uint32_t M, uint32_t s) {
  ZbArena *a = zb_arena_new();
  const ZpOrder o = zp_order(a, schedule, P, M, s);
  for (uint32_t i = 0; i < o.n; i++)
    zb_text_add(t, "%s%s%u", i ? " " : "", zp_item_info[o.item[i].kind].letter, o.item[i].mb);
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
  golden("interleaved", 2, 4, 0, "F0 F1 F0 F1 F2 B0 F3 B1 F2 B0 F3 B1 B2 B3 B2 B3");
  golden("interleaved", 2, 4, 1, "F0 F1 F0 B0 F1 B1 F2 B0 F3 B1 F2 B2 F3 B3 B2 B3");
  golden("interleaved", 2, 3, 0, "F0 F1 F0 F1 F2 B0 B1 F2 B0 B1 B2 B2");
}

/* Virtual stages are owned by one rank each, which does each micro-batch forward and backward, in this order, and
 * backward of all micro-batches one after the other. */
Test(order, of_every_schedule) {
  ZbArena *a = zb_arena_new();
  for (const char *const *s = zl_schedules; *s; s++) {
    uint32_t n, M = 8;
    const ZpVirtualStage *v = zp_place_vstages(a, *s, 4, &n);
    uint32_t *forward = ZB_NEWN(a, uint32_t, n), *back = ZB_NEWN(a, uint32_t, n), items = 0;
    for (uint32_t rank = 0; rank < 4; rank++) {
      const ZpOrder o = zp_order(a, *s, 4, M, rank);
      items += o.n;
      for (uint32_t i = 0; i < o.n; i++) {
        const ZpScheduleItem *x = &o.item[i];
        cr_assert(x->vstage < n && v[x->vstage].stage == rank, "%s", *s);
        if (x->kind == ZP_FORWARD) forward[x->vstage] |= 1u << x->mb;
        else cr_expect(back[x->vstage]++ == x->mb && forward[x->vstage] >> x->mb & 1, "%s", *s);
      }
    }
    for (uint32_t i = 0; i < n; i++) cr_expect(forward[i] == 0xff && back[i] == M, "%s", *s);
    cr_expect_eq(items, 2 * M * n);
  }
  zb_arena_free(a);
}

static double idle(const char *schedule, uint32_t P, uint32_t M) {
  ZbArena *a = zb_arena_new();
  ZpPlan *p = ZB_NEW(a, ZpPlan);
  p->asked.nmicro = M;
  p->programs.nstages = P;
  p->programs.vstages = zp_place_vstages(a, schedule, P, &p->programs.nvstages);
  ZpOrder *order = ZB_NEWN(a, ZpOrder, P);
  for (uint32_t s = 0; s < P; s++) order[s] = zp_order(a, schedule, P, M, s);
  uint64_t span = zp_order_clock(p, a, order);
  /* The first forward goes from rank to rank. */
  for (uint32_t s = 0; s < P; s++) cr_assert_eq(order[s].start[0], s);
  double busy = 3.0 * M * p->programs.nvstages / P;
  zb_arena_free(a);
  return 1 - busy / (double)span;
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
  /* With two virtual stages the gaps are half as long, where micro-batches are a multiple of the ranks. */
  for (uint32_t P = 1; P <= 8; P++)
    for (uint32_t M = P; M <= 4 * P; M += P)
      cr_assert_float_eq(idle("interleaved", P, M), (double)(P - 1) / (2 * M + P - 1), 1e-12, "P=%u M=%u", P,
                         M);
}

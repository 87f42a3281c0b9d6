/* Schedules by themselves, short steps and long ones that are extended from short ones. */
#include "runtime/plan/program.h"

#include <criterion/criterion.h>

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

static const uint32_t micro_batches[] = {1, 2, 3, 7, 8, 16, 23, 24, 25, 1000, 65535};
enum { N = sizeof micro_batches / sizeof *micro_batches };

/* 1F1B holds as many micro-batches as there are stages from here on, GPipe all; both leave the same bubble. */
Test(rehearse, buffers_and_bubbles) {
  ZbArena *a = zb_arena_new();
  for (uint32_t stages = 1; stages <= 8; stages++)
    for (int i = 0; i < N; i++)
      for (int gpipe = 0; gpipe < 2; gpipe++)
        for (int keeps = 0; keeps < 2; keeps++) {
          uint32_t m = micro_batches[i];
          ZpRehearsal r = zp_rehearse(a, gpipe ? "gpipe" : "1f1b", stages, m, keeps);
          cr_assert_float_eq(r.bubble, stages - 1, 1e-9, "%u stages, %u micro-batches", stages, m);
          for (uint32_t s = 0; s < stages; s++) {
            uint32_t held = gpipe ? m : min_u32(stages - s, m), turns = min_u32(m, 2);
            const ZpRings *is = &r.rings[s];
            cr_assert_eq(is->slots, held);
            cr_assert_eq(is->recv_act, keeps ? min_u32(held + 1, m) : turns);
            cr_assert(is->send_act == turns && is->recv_grad == turns && is->send_grad == turns);
          }
        }
  zb_arena_free(a);
}

/* GPipe waits for the first micro-batch to come to the last stage, and for the last gradient to come back. 1F1B lets
 * as many micro-batches go as there are stages, and waits until the first of them is back. */
Test(rehearse, transfers) {
  ZbArena *a = zb_arena_new();
  for (uint32_t stages = 1; stages <= 8; stages++)
    for (int i = 0; i < N; i++) {
      uint32_t m = micro_batches[i], there_and_back = 2 * (stages - 1);
      cr_expect_eq(zp_rehearse(a, "gpipe", stages, m, false).transfers, there_and_back);
      double is = zp_rehearse(a, "1f1b", stages, m, false).transfers;
      cr_expect_float_eq(is, there_and_back * ((double)m / stages + 1), 4, "%u stages, %u: %g", stages, m,
                         is);
    }
  zb_arena_free(a);
}

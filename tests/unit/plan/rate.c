/* Learning rates, step by step, to the formulas of the shapes. */
#include "runtime/plan/plan.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

Test(rate, warm_up_then_anneal) {
  ZpRate r = {.lr = 2, .warmup = 4, .until = 14, .anneal = ZP_LINEAR, .final = 0.1};
  cr_expect_float_eq(zp_rate(&r, 1), 0.5, 1e-12);
  cr_expect_float_eq(zp_rate(&r, 4), 2, 1e-12);
  cr_expect_float_eq(zp_rate(&r, 9), 1.1, 1e-12);
  cr_expect_float_eq(zp_rate(&r, 14), 0.2, 1e-12);
  cr_expect_float_eq(zp_rate(&r, 1000), 0.2, 1e-12);
  r.anneal = ZP_COSINE;
  cr_expect_float_eq(zp_rate(&r, 4), 2, 1e-12);
  cr_expect_float_eq(zp_rate(&r, 9), 1.1, 1e-12, "half way");
  cr_expect_float_eq(zp_rate(&r, 5), 0.2 + 1.8 * 0.5 * (1 + cos(M_PI / 10)), 1e-12);
  cr_expect_float_eq(zp_rate(&r, 14), 0.2, 1e-12);
  r.anneal = ZP_CONSTANT;
  cr_expect_float_eq(zp_rate(&r, 2), 1, 1e-12);
  cr_expect_float_eq(zp_rate(&r, 99), 2, 1e-12);
}

Test(rate, stable_then_down) {
  ZpRate r = {.lr = 2, .warmup = 4, .stable = 6, .until = 20, .anneal = ZP_LINEAR, .final = 0};
  cr_expect_float_eq(zp_rate(&r, 4), 2, 1e-12);
  cr_expect_float_eq(zp_rate(&r, 10), 2, 1e-12);
  cr_expect_float_eq(zp_rate(&r, 11), 1.8, 1e-12);
  cr_expect_float_eq(zp_rate(&r, 20), 0, 1e-12);
  r.anneal = ZP_SQRT;
  cr_expect_float_eq(zp_rate(&r, 10), 2, 1e-12);
  cr_expect_float_eq(zp_rate(&r, 11), 2 * (1 - sqrt(0.1)), 1e-12);
  cr_expect_float_eq(zp_rate(&r, 20), 0, 1e-12);
}

Test(rate, inverse_square_root) {
  ZpRate r = {.lr = 2, .warmup = 4, .anneal = ZP_RSQRT};
  cr_expect_float_eq(zp_rate(&r, 2), 1, 1e-12);
  cr_expect_float_eq(zp_rate(&r, 4), 2, 1e-12);
  cr_expect_float_eq(zp_rate(&r, 16), 1, 1e-12);
  cr_expect_float_eq(zp_rate(&r, 400), 0.2, 1e-12);
  r.stable = 5;
  cr_expect_float_eq(zp_rate(&r, 9), 2, 1e-12);
  cr_expect_float_eq(zp_rate(&r, 36), 1, 1e-12);
}

Test(rate, without_warm_up_or_time) {
  ZpRate r = {.lr = 2, .warmup = 0, .until = 0, .anneal = ZP_COSINE, .final = 0.5};
  cr_expect_float_eq(zp_rate(&r, 1), 1, 1e-12);
  r.until = 1;
  cr_expect_float_eq(zp_rate(&r, 1), 1, 1e-12);
}

/* A note has both numbers, and the rate at the end of the run; where all is well nothing is said. */
static void notes(ZpRate r, int64_t steps, const char *want) {
  ZbText t = {0};
  bool any = zp_rate_note(&r, steps, &t);
  cr_expect_eq(any, want != NULL, "%d steps: %s", (int)steps, t.s ? t.s : "nothing");
  if (any && want) {
    cr_expect(strstr(t.s, want), "%d steps: %s", (int)steps, t.s);
    char number[40];
    snprintf(number, sizeof number, "the run has %d steps, ", (int)steps);
    cr_expect(strstr(t.s, number), "%s", t.s);
  }
  zb_text_free(&t);
}

Test(rate, at_odds_with_the_run) {
  ZpRate r = {.lr = 2, .warmup = 4, .until = 14, .anneal = ZP_LINEAR, .final = 0.1};
  notes(r, 14, NULL);
  notes(r, 100, NULL); /* it stays at 0.1 of the rate, which may be wanted */
  notes(r, 13, "`until = 14`: it ends while the learning rate falls, at 3.80e-01 of 2.00e+00");
  notes(r, 4, "`until = 14`: it ends while the learning rate has not begun to fall, at 2.00e+00 of 2.00e+00");
  notes(r, 3, "`warmup = 4`: it ends while the learning rate grows, at 1.50e+00 of 2.00e+00");
  notes(r, 0, NULL);
  r.final = 0;
  notes(r, 14, NULL);
  notes(r, 15, "`until = 14`: from there on the learning rate is 0");
  r = (ZpRate){.lr = 2, .warmup = 4};
  notes(r, 4, NULL);
  notes(r, 3, "`warmup = 4`");
  r.anneal = ZP_RSQRT;
  notes(r, 4, NULL);
  notes(r, 1000, NULL);
  notes(r, 3, "`warmup = 4`");
  notes((ZpRate){.lr = 2}, 1, NULL);
}

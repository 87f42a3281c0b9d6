/* Learning rates, step by step, to the formulas of the shapes. */
#include "runtime/plan/plan.h"

#include <criterion/criterion.h>
#include <math.h>

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

/* Constants of links, found again in what exchanges take. */
#include "tests/unit/exec/calibrate/machine.h"

#include <criterion/criterion.h>
#include <math.h>

#define NEAR(x, y, share)                                                                                    \
  cr_expect_float_eq((x), (y), (share)*fabs((double)(y)), "%s: %.9g instead of %.9g", #x, (double)(x),       \
                     (double)(y))

static void measure(ZxLinkRates level[2]) {
  ZxTrials t;
  ZxMeasure m = machine_measure();
  ZkCall c = zx_product(ZK_F32, 64, 64, 64);
  ZbErr err = {0};
  cr_assert(zx_trials_open(&t, &m, &err));
  uint32_t product = zx_trial_call(&t, &c, false);
  cr_assert(zx_trials_ready(&t, &err));
  zx_measure_links(&t, product, level);
  zx_trials_close(&t);
  zb_arena_free(m.a);
}

static void expect_level(const ZxLinkRates *r, int i) {
  const ZlLevel *l = &machine.level[i];
  cr_expect_eq(r->size, l->size);
  NEAR(r->link, l->bandwidth, 1e-5);
  NEAR(r->sums, l->sums, 1e-5);
  NEAR(r->latency, l->latency, 1e-5);
  NEAR(r->start, l->start, 1e-5);
  NEAR(r->ramp, l->ramp, 1e-5);
  NEAR(r->burst, l->burst, 1e-5);
  NEAR(r->steal, l->steal, 1e-2);
  NEAR(r->beside, l->beside, 1e-2);
}

Test(links, node) {
  ZxLinkRates level[2];
  machine_ranks(0, 2, (int[]){0, 0});
  measure(level);
  expect_level(&level[0], 0);
  cr_expect_eq(level[1].size, 1);
}

Test(links, nodes) {
  ZxLinkRates level[2];
  machine_ranks(0, 4, (int[]){0, 1, 2, 3});
  measure(level);
  cr_expect_eq(level[0].size, 1);
  expect_level(&level[1], 1);
}

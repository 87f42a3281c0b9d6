/* Which ranks say something else than those that should say the same. */
#include "runtime/plan/plan.h"

#include <criterion/criterion.h>

/* Stages 0..2, data 0..2: rank = 3 * stage + data. The table is on the first and the last. */
static uint32_t ends[] = {0, 2};
static ZpTied tied = {.stages = ends, .nstages = 2};
static const ZpPlan plan = {
    .layout.mesh = {.dim = {{.size = 3}, {.size = 3}}, .ndims = 2, .pipe = 0, .nranks = 9},
    .programs.tied = &tied,
    .programs.ntied = 1,
    .programs.nstages = 3};
static const ZpAlike data = {2, ZP_NONE}, table = {2, 0}, both = {0, 0};

static bool odd(const ZpAlike *k, const uint64_t said[9], const char *want) {
  ZpOdd odd[9] = {0};
  char got[10] = "";
  bool any = zp_alike_odd(&plan, k, said, 1, odd);
  cr_expect_eq(any, zp_alike_odd(&plan, k, said, 1, NULL));
  for (int r = 0; r < 9; r++) got[r] = ".?x"[odd[r]];
  cr_expect_str_eq(got, want);
  return any;
}

Test(alike, members) {
  cr_expect(zp_alike_size(&plan, &data) == 3 && zp_alike_size(&plan, &table) == 6 &&
            zp_alike_size(&plan, &both) == 2);
  for (int64_t r = 0; r < 9; r++) {
    cr_expect_eq(zp_alike_member(&plan, &data, r, 2), r / 3 * 3 + 2);
    cr_expect_eq(zp_alike_member(&plan, &table, r, 4), r / 3 == 1 ? -1 : 7);
    cr_expect_eq(zp_alike_member(&plan, &both, r, 1), r / 3 == 1 ? -1 : 6 + r % 3);
  }
}

Test(alike, majorities) {
  cr_expect_not(odd(&data, (uint64_t[]){1, 1, 1, 2, 2, 2, 3, 3, 3}, "........."));
  cr_expect(odd(&data, (uint64_t[]){1, 1, 1, 2, 9, 2, 3, 3, 8}, "....x...x"));
  cr_expect(odd(&data, (uint64_t[]){7, 1, 1, 2, 2, 2, 3, 4, 5}, "x.....???"));
  cr_expect_not(odd(&table, (uint64_t[]){1, 1, 1, 7, 8, 9, 1, 1, 1}, "........."), "stage 1 has none of it");
  cr_expect(odd(&table, (uint64_t[]){1, 1, 2, 7, 8, 9, 1, 3, 1}, "..x....x."));
  cr_expect(odd(&table, (uint64_t[]){1, 1, 1, 7, 8, 9, 3, 3, 3}, "???...???"), "half is not most of them");
  cr_expect(odd(&both, (uint64_t[]){1, 2, 3, 7, 8, 9, 1, 2, 4}, "..?.....?"));
}

/* Numbers of several kinds lie beside each other. */
Test(alike, strides) {
  const uint64_t said[18] = {1, 1, 2, 1, 3, 1, 4, 1, 5, 1, 6, 1, 7, 1, 8, 2, 9, 1};
  ZpOdd odd[9] = {0};
  cr_expect(zp_alike_odd(&plan, &data, said + 1, 2, odd) && odd[7] == ZP_ODD && odd[6] == ZP_EVEN);
}

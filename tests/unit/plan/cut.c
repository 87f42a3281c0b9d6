/* Stage cuts against all cuts that there are, for owners of one stage, of a loop and of a vee. */
#include "runtime/plan/program.h"

#include <criterion/criterion.h>
#include <math.h>

enum { MOST = 16 };
typedef struct {
  ZpStageItem item[MOST];
  uint32_t n, stages, owner[MOST];
} Case;

static double busiest(const Case *c, const int64_t *counts) {
  double load[MOST] = {0}, most = 0;
  uint32_t at = 0;
  for (uint32_t k = 0; k < c->stages; k++)
    for (int64_t i = 0; i < counts[k]; i++) load[c->owner[k]] += c->item[at++].cost;
  cr_assert_eq(at, c->n, "every item is on a stage");
  for (uint32_t o = 0; o < c->stages; o++) most = fmax(most, load[o]);
  return most;
}

/* The least of all cuts whose stages from `stage` on have so many items together. */
static double least_of_all(const Case *c, int64_t *counts, uint32_t stage, uint32_t left) {
  double least = INFINITY;
  if (stage + 1 == c->stages) {
    counts[stage] = left;
    return busiest(c, counts);
  }
  for (uint32_t n = 1; n + (c->stages - stage - 1) <= left; n++) {
    counts[stage] = n;
    least = fmin(least, least_of_all(c, counts, stage + 1, left - n));
  }
  return least;
}

/* Costs of layers that differ little, with a first and a last that may be larger. */
static void fill(Case *c, uint32_t n, uint64_t seed) {
  c->n = n;
  for (uint32_t i = 0; i < n; i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    bool end = i == 0 || i + 1 == n;
    c->item[i].cost = 100 + (double)(seed >> 33) / 0x1p31 * (end ? 200 : 20);
  }
}

/* Returns by how much the busiest owner has more than it must. */
static double excess(const Case *c, bool first_least) {
  int64_t counts[MOST], other[MOST];
  double is = zp_cut_stages(c->item, c->n, c->stages, c->owner, first_least, counts);
  double best = least_of_all(c, other, 0, c->n);
  for (uint32_t k = 0; k < c->stages; k++) cr_assert_geq(counts[k], 1);
  cr_assert_float_eq(is, busiest(c, counts), 1e-9 * is);
  return is / best - 1;
}

Test(cut, an_owner_of_each_stage) {
  for (uint32_t n = 1; n <= 10; n++)
    for (uint32_t stages = 1; stages <= n; stages++)
      for (uint64_t seed = 0; seed < 8; seed++) {
        Case c = {.stages = stages};
        fill(&c, n, seed);
        for (uint32_t k = 0; k < stages; k++) c.owner[k] = k;
        cr_expect_lt(excess(&c, seed & 1), 1e-12, "%u items, %u stages", n, stages);
        int64_t own[MOST], none[MOST];
        zp_cut_stages(c.item, n, stages, c.owner, false, own);
        zp_cut_stages(c.item, n, stages, NULL, false, none);
        cr_expect_arr_eq(own, none, stages * sizeof *own);
      }
}

/* Ranks of two and three stages each: in a loop rank r has r, ranks + r, ...; in a vee it goes back and forth. Most cuts
 * are the best there are, and none is far from it. */
Test(cut, owners_of_several_stages) {
  double worst = 0;
  uint32_t cases = 0, best = 0;
  for (uint32_t ranks = 1; ranks <= 4; ranks++)
    for (uint32_t each = 2; each <= 3 && ranks * each <= 8; each++)
      for (uint32_t n = ranks * each; n <= 12; n++)
        for (uint64_t seed = 0; seed < 16; seed++) {
          Case c = {.stages = ranks * each};
          bool vee = seed & 1;
          fill(&c, n, seed);
          for (uint32_t k = 0; k < c.stages; k++)
            c.owner[k] = vee && k / ranks % 2 ? ranks - 1 - k % ranks : k % ranks;
          double more = excess(&c, seed & 2);
          worst = fmax(worst, more);
          best += more < 1e-12;
          cases++;
        }
  cr_expect_geq(best, cases * 3 / 4, "%u of %u", best, cases);
  cr_expect_lt(worst, .07);
}

/* Where cuts are as good, the last stages have few, or the first: those before them are full. */
Test(cut, equal_cuts) {
  static const int64_t last[] = {3, 3, 3, 1}, first[] = {1, 3, 3, 3}, nine[] = {3, 3, 2, 1};
  Case c = {.stages = 4, .n = 10};
  int64_t counts[MOST];
  for (uint32_t i = 0; i < c.n; i++) c.item[i].cost = .1;
  zp_cut_stages(c.item, 10, 4, NULL, false, counts);
  cr_expect_arr_eq(counts, last, sizeof last);
  zp_cut_stages(c.item, 10, 4, NULL, true, counts);
  cr_expect_arr_eq(counts, first, sizeof first);
  zp_cut_stages(c.item, 9, 4, NULL, false, counts);
  cr_expect_arr_eq(counts, nine, sizeof nine);
}

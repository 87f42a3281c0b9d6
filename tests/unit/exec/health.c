/* Losses that jump: told once, and neither noise nor a fall is. */
#include "runtime/exec/health.h"

#include <criterion/criterion.h>
#include <string.h>

/* Feeds steps from..to of a loss that falls with some noise. */
static int fed(ZxHealth *h, int64_t from, int64_t to) {
  int told = 0;
  for (int64_t step = from; step <= to; step++) {
    ZbText note = {0};
    double noise = zb_random_normal(1, 2, (uint64_t)step);
    zx_health_loss(h, step, 2 + 8.0 / (double)step + 0.1 * noise, &note);
    told += note.s != NULL;
    zb_text_free(&note);
  }
  return told;
}

static bool told(ZxHealth *h, int64_t step, double loss, const char *what) {
  ZbText note = {0};
  zx_health_loss(h, step, loss, &note);
  bool yes = note.s != NULL;
  if (yes && what) cr_assert(strstr(note.s, what), "%s", note.s);
  zb_text_free(&note);
  return yes;
}

Test(health, jumps_are_told) {
  ZxHealth h = {0};
  cr_assert_eq(fed(&h, 1, 200), 0);
  cr_assert(told(&h, 201, 7, "step 201: the loss is 7, far above the 2."));
  cr_assert_not(told(&h, 202, 7, NULL)); /* once for a while */
  cr_assert_eq(fed(&h, 203, 230), 0);    /* what comes after it is usual again */
  cr_assert(told(&h, 231, 5, "step 231"));
}

Test(health, what_is_no_jump) {
  ZxHealth h = {0};
  cr_assert_not(told(&h, 1, 5, NULL));
  cr_assert_not(told(&h, 2, 500, NULL)); /* nothing is usual yet */
  ZxHealth flat = {0};
  for (int64_t step = 1; step < 100; step++) cr_assert_not(told(&flat, step, 2, NULL));
  cr_assert_not(told(&flat, 100, 2.09, NULL)); /* less than a twentieth */
  cr_assert_not(told(&flat, 101, 0.1, NULL));
  cr_assert(told(&flat, 102, 2.3, NULL));
}

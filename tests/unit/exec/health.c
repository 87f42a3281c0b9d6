/* Losses that jump: told once, and neither noise nor a fall is. Steps without an update. */
#include "runtime/exec/health.h"

#include <criterion/criterion.h>
#include <math.h>
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

/* Of the first 50 the mean, and of how far each was from the mean before it; from then on a fiftieth is new. */
Test(health, what_is_usual) {
  ZxHealth h = {0};
  double sum = 0, off = 0;
  for (int n = 0; n < 50; n++) {
    double x = 2 + 0.1 * zb_random_normal(1, 2, (uint64_t)n);
    off += fabs(x - (n ? sum / n : x));
    sum += x;
    cr_assert_not(told(&h, n + 1, x, NULL));
    cr_assert_float_eq(h.mean, sum / (n + 1), 1e-12);
    cr_assert_float_eq(h.width, off / (n + 1), 1e-12);
  }
  ZxHealth before = h;
  cr_assert_not(told(&h, 51, before.mean - 0.5, NULL));
  cr_assert_float_eq(h.mean, before.mean - 0.01, 1e-12);
  cr_assert_float_eq(h.width, before.width + (0.5 - before.width) / 50, 1e-12);
}

/* What is far is so by 8 distances, or a twentieth of the mean if that is more; it counts as no more than
 * that. */
Test(health, what_is_far) {
  static const struct {
    double mean, width, far;
  } cases[] = {{2, 0.01, 0.1}, {2, 0.0125, 0.1}, {2, 0.1, 0.8}, {-2, 0.01, 0.1}, {0, 0, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    double mean = cases[i].mean, width = cases[i].width, far = cases[i].far;
    const ZxHealth usual = {.mean = mean, .width = width, .nloss = 60};
    ZxHealth h = usual;
    cr_expect_not(told(&h, 61, mean + far - 1e-9, NULL), "%zu", i);
    cr_expect_not(told(&h, 62, mean - far - 1e-3, NULL), "%zu: what falls", i);
    h = usual;
    cr_expect(told(&h, 61, mean + far + 1e-3, NULL), "%zu", i);
    cr_expect(h.told == 61 && h.nloss == 61);
    cr_expect_float_eq(h.mean, mean + far / 50, 1e-12);
    cr_expect_float_eq(h.width, width + (far - width) / 50, 1e-12);
    h = usual, h.nloss = 19;
    cr_expect_not(told(&h, 20, mean + 100, NULL), "%zu: too few are known", i);
    h = usual, h.nloss = 20;
    cr_expect(told(&h, 21, mean + 100, NULL), "%zu", i);
  }
}

Test(health, a_jump_is_told_again) {
  ZxHealth h = {.mean = 1, .nloss = 60, .told = 100};
  cr_expect_not(told(&h, 120, 9, NULL));
  cr_expect_eq(h.told, 100);
  cr_expect(told(&h, 121, 9, "step 121: the loss is 9, far above the 1"));
  cr_expect_eq(h.told, 121);
}

/* ---- steps without an update ---- */
/* What is said of a step that was skipped; NULL: the run ends, and `err` says why. */
static const char *skips(ZxHealth *h, const char *good, ZbErr *err) {
  static char said[200];
  ZbText note = {0};
  zb_fail(err, NULL, "step 7 is not finite");
  bool on = zx_health_goes_on(h, ZX_SKIPPED, 7, NAN, good, &note, err);
  snprintf(said, sizeof said, "%s", note.s ? note.s : "");
  zb_text_free(&note);
  cr_expect_eq(*said != 0, on);
  return on ? said : NULL;
}

static void sound(ZxHealth *h) {
  ZbText note = {0};
  cr_expect(zx_health_goes_on(h, ZX_SOUND, 8, 2, NULL, &note, NULL) && !note.s);
}

Test(health, three_skipped_in_a_row_are_enough) {
  ZxHealth h = {.on_nan = ZX_ON_NAN_FEW};
  ZbErr err;
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < 2; i++) cr_expect_str_eq(skips(&h, "ckpt/x", &err), "step 7 is not finite");
    sound(&h);
  }
  cr_expect_eq(h.nloss, 2, "what was skipped has no loss");
  for (int i = 0; i < 2; i++) cr_expect_not_null(skips(&h, NULL, &err));
  cr_expect_null(skips(&h, NULL, &err));
  cr_expect_str_eq(err.text, "step 7 is not finite; the run ends, since these are 3 steps in a row");
  cr_expect_null(skips(&h, "ckpt/a\n", &err));
  cr_expect_str_eq(err.text, "step 7 is not finite; the run ends, since these are 4 steps in a row; "
                             "the last good checkpoint is ckpt/a\\n");
}

Test(health, on_nan) {
  ZxHealth end = {.on_nan = ZX_ON_NAN_END}, skip = {.on_nan = ZX_ON_NAN_SKIP};
  ZbErr err;
  cr_expect_null(skips(&end, NULL, &err));
  cr_expect_str_eq(err.text, "step 7 is not finite; the run ends (--on-nan end)");
  for (int i = 0; i < 10; i++) cr_expect_not_null(skips(&skip, NULL, &err));
}

/* A run has as many such steps as its data, after every start. The notes about them grow slowly. */
Test(health, unknown) {
  ZxHealth h = {.on_nan = ZX_ON_NAN_FEW}, end = {.on_nan = ZX_ON_NAN_END};
  ZbErr err;
  int told = 0;
  zb_fail(&err, NULL, "step 7 knows nothing");
  for (int i = 1; i <= 1000; i++) {
    ZbText note = {0};
    cr_expect(zx_health_goes_on(&h, ZX_UNKNOWN, 7, NAN, NULL, &note, &err));
    told += note.s != NULL;
    if (i <= 3) cr_expect_str_eq(note.s, "step 7 knows nothing");
    if (i == 512) cr_expect_str_eq(note.s, "step 7 knows nothing; these are 512 such steps in a row");
    zb_text_free(&note);
  }
  cr_expect(told > 5 && told < 20, "%d notes", told);
  cr_expect(!h.nloss && !h.skipped, "neither has it a loss, nor is it one that is not finite");
  for (int i = 0; i < 2; i++) cr_expect_not_null(skips(&h, NULL, &err));
  ZbText note = {0};
  sound(&h);
  zb_fail(&err, NULL, "step 9");
  cr_expect(zx_health_goes_on(&h, ZX_UNKNOWN, 9, NAN, NULL, &note, &err));
  cr_expect_str_eq(note.s, "step 9", "a row that begins anew");
  cr_expect_not(zx_health_goes_on(&end, ZX_UNKNOWN, 9, NAN, "ckpt/x", &note, &err));
  cr_expect_str_eq(err.text, "step 9; the run ends (--on-nan end); the last good checkpoint is ckpt/x");
  zb_text_free(&note);
}

Test(health, what_is_broken_ends_the_run) {
  static const char *const want[] = {"the parameters are not finite",
                                     "the parameters are not finite; the last good checkpoint is ckpt/x"};
  for (int i = 0; i < 2; i++) {
    ZxHealth h = {.on_nan = ZX_ON_NAN_SKIP};
    ZbErr err;
    ZbText note = {0};
    zb_fail(&err, NULL, "the parameters are not finite");
    cr_expect_not(zx_health_goes_on(&h, ZX_BROKEN, 1, 2, i ? "ckpt/x" : NULL, &note, &err));
    cr_expect_str_eq(err.text, want[i]);
    cr_expect(!note.s && !h.nloss);
  }
}

/* Axes, smoothing, and points that are left out. */
#include "runtime/zlog/zlog.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static void ticks(double lo, double hi, bool log, const char *want) {
  ZvScale s = zv_scale(lo, hi, log, 6);
  ZbText t = {0};
  zb_text_add(&t, "%s", "");
  for (int i = 0; i < s.n; i++) zb_text_add(&t, "%s%s", i ? " " : "", s.text[i]);
  cr_expect_str_eq(t.s, want, "%g to %g: %s", lo, hi, t.s);
  zb_text_free(&t);
}

Test(scale, ticks_are_readable) {
  ticks(0, 10, false, "0 2 4 6 8 10");
  ticks(0.3, 0.9, false, "0.3 0.4 0.5 0.6 0.7 0.8 0.9");
  ticks(0, 2000, false, "0 500 1k 1.5k 2k");
  ticks(1, 60, false, "10 20 30 40 50 60");
  ticks(-1, 1, false, "-1.0 -0.5 0.0 0.5 1.0");
  ticks(0, 1.1e9, false, "0 200M 400M 600M 800M 1B");
  ticks(2e-5, 8e-5, false, "2e-05 3e-05 4e-05 5e-05 6e-05 7e-05 8e-05");
  ticks(2.001, 2.002, false, "2.0010 2.0012 2.0014 2.0016 2.0018 2.0020");
  ticks(1, 100, true, "1 2 5 10 20 50 100");
  ticks(1e-3, 1e6, true, "0.001 0.01 0.1 1 10 100 1k 10k 100k 1M");
}

Test(scale, no_range_is_too_odd, .timeout = 20) {
  const double odd[][2] = {{5, 5},          {0, 0},           {-3, -3},   {1e17, 1e17 + 16},
                           {-1e308, 1e308}, {1e-320, 1e-310}, {0, 5e-324}};
  for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
    ZvScale s = zv_scale(odd[i][0], odd[i][1], false, 6);
    cr_expect(s.lo < s.hi && s.n <= ZV_TICKS);
  }
  ZvScale s = zv_scale(1e-300, 1e300, true, 6);
  cr_expect(s.n > 3 && s.n <= ZV_TICKS);
}

Test(scale, places) {
  ZvScale s = zv_scale(10, 20, false, 5), l = zv_scale(1, 100, true, 5);
  s.at = 100, s.size = 50;
  l.at = 300, l.size = -200;
  cr_expect(zv_place(&s, 10) == 100 && zv_place(&s, 20) == 150 && zv_place(&s, 15) == 125);
  cr_expect_float_eq(zv_place(&l, 10), 200, 1e-9);
}

/* Weight 0.5: the first is itself; then (0.5 * 0.5 * 2 + 0.5 * 4) / 0.75. What is no number is passed over. */
Test(curves, smoothing_is_not_drawn_to_0) {
  ZbArena *a = zb_arena_new();
  ZvPoint p[] = {
      {.step = 1, .y = {2}}, {.step = 2, .y = {4}}, {.step = 3, .y = {NAN}}, {.step = 4, .y = {4}}};
  ZvRun r = {.name = "r", .step = p, .nstep = 4};
  ZvFigure f;
  ZbErr err;
  cr_assert(zv_figure(a, &r, 1, ZV_STEPS, "loss", 0.5, false, &f, &err));
  const ZvXY *s = f.curve[0].smooth;
  cr_expect(s[0].y == 2 && f.curve[0].raw[1].y == 4 && isnan(s[2].y));
  cr_expect_float_eq(s[1].y, 10. / 3, 1e-12);
  cr_expect_float_eq(s[3].y, (0.125 * 2 + 0.25 * 4 + 0.5 * 4) / 0.875, 1e-12);
  cr_assert(zv_figure(a, &r, 1, ZV_STEPS, "loss", 0, false, &f, &err));
  cr_expect(f.curve[0].smooth == f.curve[0].raw);
  zb_arena_free(a);
}

Test(curves, few_points_with_the_same_looks, .timeout = 20) {
  enum { N = 10000, COLUMNS = 50 };
  ZbArena *a = zb_arena_new();
  ZvXY *p = ZB_NEWN(a, ZvXY, N), *q;
  for (int i = 0; i < N; i++) p[i] = (ZvXY){i, sin(i * 0.7)};
  p[4321].y = 9; /* one that must not be lost */
  p[77].y = NAN;
  size_t n = zv_thin(a, p, N, COLUMNS, &q);
  bool peak = false;
  cr_expect(n <= 4 * (COLUMNS + 1) && q[0].x == 0 && q[n - 1].x == N - 1);
  for (size_t i = 0; i < n; i++) {
    peak |= q[i].y == 9;
    cr_expect(!i || q[i].x > q[i - 1].x);
  }
  cr_expect(peak);
  for (int i = 0; i < N; i++) p[i].x = 1; /* no width at all */
  cr_expect_leq(zv_thin(a, p, N, COLUMNS, &q), 4);
  cr_expect_eq(zv_thin(a, p, 4 * COLUMNS, COLUMNS, &q), 4 * COLUMNS);
  zb_arena_free(a);
}

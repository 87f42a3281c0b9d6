/* How long is too long: a watchdog's judgement, by a clock of the test's own. */
#include "runtime/exec/comm/watch.h"

#include <criterion/criterion.h>
#include <math.h>

/* Looks every tick from v->seen on, for so many seconds or until it is over; returns when that was, or
 * INFINITY. Others got something done until `others`. */
static double over(ZxVigil *v, ZxSigns s, double seconds, double others) {
  double from = v->seen, tick = zx_vigil_tick(v);
  for (uint64_t i = 1; (double)i * tick <= seconds; i++) {
    double now = from + (double)i * tick;
    if (now <= others) zx_vigil_hear(v, 0, now);
    if (zx_vigil_look(v, &s, now) == ZX_OVER) return now - from;
  }
  return INFINITY;
}

/* Within two ticks. */
static void is_over(ZxVigil *v, ZxSigns s, double seconds, double others, double want) {
  double at = over(v, s, seconds, others);
  if (isinf(want)) cr_expect(isinf(at), "over after %g s", at);
  else cr_expect(at >= want && at <= want + 2 * zx_vigil_tick(v), "over after %g s, not %g", at, want);
}

Test(vigil, limits) {
  static const struct {
    double limit, slow;
  } cases[] = {{5, 30}, {60, 360}, {100, 600}, {101, 600}, {600, 600}, {601, 601}, {7200, 7200}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ZxVigil v = zx_vigil_new(cases[i].limit, 0);
    cr_expect_eq(zx_vigil_limit(&v, false), cases[i].limit);
    cr_expect_eq(zx_vigil_limit(&v, true), cases[i].slow, "%g", cases[i].limit);
  }
}

Test(vigil, steps_and_slow_phases) {
  ZxVigil v = zx_vigil_new(5, 100);
  is_over(&v, (ZxSigns){.waits = true}, 60, 0, 5);
  v = zx_vigil_new(5, 100);
  is_over(&v, (ZxSigns){.waits = false}, 60, 0, 5);
  v = zx_vigil_new(5, 100);
  is_over(&v, (ZxSigns){.waits = true, .slow = true}, 60, 0, 30);
}

/* An hour and the limit, or longer where steps have longer. */
Test(vigil, work_in_slow_phases) {
  ZxVigil v = zx_vigil_new(5, 100);
  is_over(&v, (ZxSigns){.slow = true}, 3590, 0, INFINITY);
  is_over(&v, (ZxSigns){.slow = true}, 60, 0, 40);
  v = zx_vigil_new(7200, 100);
  is_over(&v, (ZxSigns){.slow = true}, 7100, 0, INFINITY);
  v = zx_vigil_new(5, 100); /* each piece of it */
  for (unsigned long moves = 1; moves < 5; moves++)
    is_over(&v, (ZxSigns){.slow = true, .moves = moves}, 3000, 0, INFINITY);
}

Test(vigil, what_moves_is_not_over) {
  ZxVigil v = zx_vigil_new(5, 0);
  for (unsigned long moves = 1; moves < 100; moves++) {
    cr_expect_eq(zx_vigil_look(&v, &(ZxSigns){.moves = moves, .waits = true}, 0.9 * (double)moves), ZX_FINE);
    cr_expect_eq(zx_vigil_since(&v), 0.9 * (double)moves);
  }
}

/* Others that get on are waited for; not those of which nothing is heard any more. */
Test(vigil, others) {
  for (int slow = 0; slow < 2; slow++) {
    ZxVigil v = zx_vigil_new(5, 0);
    is_over(&v, (ZxSigns){.waits = true, .slow = slow}, 2000, 1000, 1000 + (slow ? 30 : 5));
  }
  ZxVigil v = zx_vigil_new(5, 1000);
  zx_vigil_hear(&v, 4, 1003);
  cr_expect_eq(zx_vigil_since(&v), 1000, "they did before");
  zx_vigil_hear(&v, 1, 1003);
  zx_vigil_hear(&v, 2, 1003);
  zx_vigil_hear(&v, -1, 1003);
  zx_vigil_hear(&v, NAN, 1003);
  zx_vigil_hear(&v, INFINITY, 1003);
  cr_expect_eq(zx_vigil_since(&v), 1002, "the latest counts");
}

Test(vigil, late_before_over) {
  ZxVigil v = zx_vigil_new(10, 0);
  ZxSigns s = {.waits = true};
  for (int tenth = 1; tenth <= 105; tenth++) {
    ZxVerdict want = tenth <= 90 ? ZX_FINE : tenth <= 100 ? ZX_LATE : ZX_OVER;
    cr_expect_eq(zx_vigil_look(&v, &s, 0.1 * tenth - 0.05), want, "%d", tenth);
  }
}

/* A process that was stopped has not waited meanwhile; that short gaps count is what keeps a busy machine from
 * making a hang of nothing. */
Test(vigil, what_was_stopped_has_not_waited) {
  ZxVigil v = zx_vigil_new(10, 0);
  ZxSigns s = {.waits = true};
  cr_expect_eq(zx_vigil_look(&v, &s, 1), ZX_FINE);
  cr_expect_eq(zx_vigil_look(&v, &s, 1000), ZX_FINE);
  cr_expect_eq(zx_vigil_since(&v), 999);
  cr_expect_eq(zx_vigil_look(&v, &s, 1001), ZX_FINE);
  cr_expect_eq(zx_vigil_since(&v), 999);
}

/* The time of planning grows with the model: four times the parameters of one segment, about four times the work.
 * What is quadratic anywhere on the way takes 16 times as long. */
#include "tests/unit/plan/models/plan.h"

#include <criterion/criterion.h>
#include <time.h>

/* This thread's CPU time: a BLAS may have threads that spin. */
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Returns the seconds that a plan and its proofs take, of a model that has `piece` n times. */
static double seconds(const char *piece, uint32_t n, const char *recipe) {
  ZbText t = {0};
  zb_text_add(&t, "model M { axis batch, a = 4, b = 2 input x: real[batch, a] y = x\n");
  put_pieces(&t, piece, n);
  zb_text_add(&t, "loss y per samples() }");
  Model m = model_open(NULL, t.s, NULL);
  zb_text_free(&t);
  double before = now();
  Plan q = plan_of(m.g, recipe);
  double s = now() - before;
  plan_close(&q);
  model_close(&m);
  return s;
}

/* The best of a few, since others use the machine too. */
static void grows(const char *piece, uint32_t n, const char *recipe) {
  double few = 1e9, many = 1e9;
  for (int k = 0; k < 6 && (k == 0 || many > 8 * few + 0.005); k++) {
    double a = seconds(piece, n, recipe), b = seconds(piece, 4 * n, recipe);
    if (a < few) few = a;
    if (b < many) many = b;
  }
  cr_expect(many <= 8 * few + 0.005, "%s: %u take %.1f ms, %u take %.1f ms", piece, n, few * 1e3, 4 * n,
            many * 1e3);
}

#define ADDED "param w%u[a] = 0 y = y + w%u\n"
#define MULTIPLIED "param u%u[a, b] = 0 param v%u[b, a] = 0 y = dot[b](dot[a](y, u%u), v%u)\n"

Test(scale, time_grows_with_the_parameters) {
  grows(ADDED, 2000, "bind batch = 4");
  grows(MULTIPLIED, 500, "bind batch = 4");
}

/* With a limit, what is stashed is chosen of more values; layers that look alike are weighed once. */
#define CURVED "param u%u[a, b] = 0 param v%u[b, a] = 0 y = dot[b](exp(dot[a](y, u%u)), v%u)\n"
Test(scale, time_grows_with_what_may_be_stashed) { grows(CURVED, 50, "bind batch = 4 limit memory 1 GB"); }

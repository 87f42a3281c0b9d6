/* Gradients of what is selected by comparing it with where it came from. The largest of elementwise values is
 * found again in backward by being equal to them, which are made again there: within a function of other
 * steps they may round otherwise, and then a gradient is lost without a word. So its norm is held to the
 * formula, in f32 and bf16, wherever the values are made again. */
#include "tests/unit/exec/engine/job.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

TestSuite(peaks, .init = scratch_make, .fini = scratch_remove);

enum { V = 8, E = 6, F = 4, BATCH = 8 };
/* y of u: by a block, of which something may be taken outside. */
#define MODEL(type, z, y)                                                                                    \
  "block Top[v](u: real[.., v]) -> real[" type "] {\n  return " z "\n}\n"                                    \
  "model M {\n"                                                                                              \
  "  axis batch, e = 6, f = 4, v = 8\n"                                                                      \
  "  input x: real[batch, f]\n"                                                                              \
  "  param w[e, f] ~ normal(0.4)\n"                                                                          \
  "  param p[v] ~ normal(0.3)\n"                                                                             \
  "  u = spread[v](dot[f](x, w)) + p\n"                                                                      \
  "  y = " y "\n"                                                                                            \
  "  loss mean[e](y) per samples()\n"                                                                        \
  "}\n"

/* What is the largest of a sample and e, and dy/du there. */
typedef struct {
  const char *text;
  double (*key)(double), (*slope)(double);
  double tolerance; /* in bf16 */
} Peak;
static double as_is(double u) { return u; }
static double square(double u) { return u * u; }
static double twice(double u) { return 2 * u; }
static double one(double u) { return (void)u, 1; }
static double below(double u) { return 1 - tanh(u) * tanh(u); }
#define TOP "Top[v](u) as top"
static const Peak peaks[] = {
    {MODEL("..", "peak[v](1 + u * u)", TOP), square, twice, 0.01},
    {MODEL("..", "peak[v](u * u) + 1", TOP), square, twice, 0.01},
    {MODEL("..", "peak[v](tanh(u))", TOP), as_is, below, 0.01},
    {MODEL("..", "tanh(peak[v](u))", TOP), as_is, below, 0.01},
    {MODEL(".., v", "1 + u * u", "peak[v](Top[v](u) as top)"), square, twice, 0.01},
    {MODEL(".., v", "u + spread[v](peak[v](u) - peak[v](u))", "peak[v](Top[v](u) as top)"), as_is, one, 0.01},
    {MODEL("..", "sum[v](select(u >= peak[v](u), u, 0))", TOP), as_is, one, 0.01},
    /* A mask counts ties, of which there are some with the few bits that are left. */
    {MODEL("..", "sum[v](select(3 + u == peak[v](3 + u), u, 0))", TOP), as_is, one, 0.1}};

static double norm_of(const Peak *k) {
  double w[E][F], p[V], gw[E][F] = {{0}}, gp[V] = {0}, sum = 0;
  for (uint64_t i = 0; i < E * F; i++) w[i / F][i % F] = 0.4 * zb_random_normal(7, zb_stream("w"), i);
  for (uint64_t i = 0; i < V; i++) p[i] = 0.3 * zb_random_normal(7, zb_stream("p"), i);
  for (uint64_t s = 0; s < BATCH; s++)
    for (int e = 0; e < E; e++) {
      double d = 0;
      int best = 0;
      for (uint64_t f = 0; f < F; f++) d += w[e][f] * (double)job_real("x", s, f);
      for (int v = 1; v < V; v++)
        if (k->key(d + p[v]) > k->key(d + p[best])) best = v;
      double g = k->slope(d + p[best]) / (E * BATCH);
      gp[best] += g;
      for (uint64_t f = 0; f < F; f++) gw[e][f] += g * (double)job_real("x", s, f);
    }
  for (int i = 0; i < E * F; i++) sum += gw[i / F][i % F] * gw[i / F][i % F];
  for (int i = 0; i < V; i++) sum += gp[i] * gp[i];
  return sqrt(sum);
}

Test(peaks, by_formula) {
  static const char *const layouts[] = {"",
                                        "recompute top",
                                        "micro 2",
                                        "mesh d = 2 split batch over d micro 2",
                                        "mesh t = 2 split v over t",
                                        "mesh t = 2 split e over t",
                                        "mesh t = 2 split f over t",
                                        "mesh t = 2, d = 2 split v over t split f over d",
                                        "mesh t = 2 split f over t recompute top"};
  for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++) {
    Model m = job_model(NULL, peaks[i].text, NULL);
    double want = norm_of(&peaks[i]);
    for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++)
      for (int half = 0; half < 2; half++) {
        Job j = job_of(&m, "bind batch = 8 micro 4 optimizer sgd(lr = 0)",
                       zb_printf(m.c.a, "%s%s", layouts[k], half ? " precision compute bf16" : ""),
                       &zx_device_cpu, (ZpOptions){0});
        j.steps = 1;
        job_play(&j, job_train);
        double have = j.player[0].step[1].grad_norm;
        cr_expect(fabs(have - want) <= (half ? peaks[i].tolerance : 1e-6) * want, "%d: %s%s: %.9g, not %.9g",
                  (int)i, layouts[k], half ? " bf16" : "", have, want);
        job_close(&j);
      }
    model_close(&m);
  }
}

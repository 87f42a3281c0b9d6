/* Losses, norms and what optimizers make of gradients, held to their formulas: least squares on four
 * features, worked out in doubles. An error of one step, such as decay that goes through the momentum, adds
 * up over six. Tolerance: f32 parameters near 1 and some ten roundings a step, 2e-6. */
#include "runtime/exec/state/slices.h"
#include "tests/unit/exec/engine/job.h"
#include "tests/unit/kernels/update.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(optimizers, .init = scratch_make, .fini = scratch_remove);

static const char line[] = "model Line {\n"
                           "  axis batch, a = 4\n"
                           "  input x: real[batch, a]\n"
                           "  input y: real[batch]\n"
                           "  input t: index(a)[batch]\n"
                           "  param w[a] = 0.5\n"
                           "  param v[a] = 0.25 tag plain\n"
                           "  error = dot[a](x, w) + dot[a](x * x, v) - y\n"
                           "  loss error * error per known(t)\n"
                           "  aux 0.5 * mean[batch](error)\n"
                           "}\n";
enum { STEPS = 6, BATCH = 4, N = 8 };

typedef enum { SGD, ADAMW, LION } Kind;
typedef struct {
  Kind kind;
  double rate, momentum, decay;
  int warmup;
} Rule;
typedef struct {
  const char *body;
  Rule w, v;
  double clip, average;
} Formula;

static const Formula cases[] = {
    {"optimizer sgd(lr = 0.02)", {SGD, 0.02, 0, 0, 0}, {SGD, 0.02, 0, 0, 0}, 0, 0},
    {"optimizer sgd(lr = 0.02, momentum = 0.9, warmup = 3) decay 0.5 except plain clip 2",
     {SGD, 0.02, 0.9, 0.5, 3},
     {SGD, 0.02, 0.9, 0, 3},
     2,
     0},
    {"optimizer sgd(lr = 0.02, momentum = 0.9) decay 0.5 for w, rate 0.25 for plain average 0.75",
     {SGD, 0.02, 0.9, 0.5, 0},
     {SGD, 0.005, 0.9, 0, 0},
     0,
     0.75},
    {"optimizer adamw(lr = 0.02, b1 = 0.9, b2 = 0.95, eps = 1e-6, warmup = 3) decay 0.5 for w, rate 0.25 for "
     "plain "
     "average 0.5",
     {ADAMW, 0.02, 0, 0.5, 3},
     {ADAMW, 0.005, 0, 0, 3},
     0,
     0.5},
    {"optimizer adamw(lr = 0.02, b1 = 0.9, b2 = 0.95, eps = 1e-6, warmup = 3) decay 0.5 "
     "optimizer sgd(lr = 0.01, momentum = 0.9, warmup = 2) for v clip 1.5",
     {ADAMW, 0.02, 0, 0.5, 3},
     {SGD, 0.01, 0.9, 0, 2},
     1.5,
     0},
    {"optimizer lion(lr = 0.02, b1 = 0.9, b2 = 0.75, warmup = 3) decay 0.5 except plain clip 1",
     {LION, 0.02, 0, 0.5, 3},
     {LION, 0.02, 0, 0, 3},
     1,
     0},
    {"optimizer sgd(lr = 0.02, momentum = 0.9) freeze v", {SGD, 0.02, 0.9, 0, 0}, {SGD, 0, 0, 0, 0}, 0, 0}};

/* Of each four samples some are not known, which divides by fewer. */
static int32_t known(const char *name, uint64_t s, uint64_t i, int64_t limit) {
  (void)name, (void)i, (void)limit;
  return s % 4 == (s / 4) % 4 ? -1 : (int32_t)(s % 3);
}

typedef struct {
  double p[N], average[N], loss[STEPS + 1], aux[STEPS + 1], norm[STEPS + 1], sum[STEPS + 1],
      weight[STEPS + 1];
} Wanted;

static double x_of(int s, int i) { return (double)job_real("x", (uint64_t)s, (uint64_t)i); }
static double error_of(const double *p, int s) {
  double e = -(double)job_real("y", (uint64_t)s, 0);
  for (int i = 0; i < 4; i++) e += x_of(s, i) * p[i] + x_of(s, i) * x_of(s, i) * p[i + 4];
  return e;
}

static double update(const Rule *o, double g, double scale, int step, double *m, double *v) {
  g *= scale;
  if (o->kind == SGD) return *m = o->momentum * *m + g;
  if (o->kind == LION) {
    double c = 0.9 * *m + 0.1 * g;
    *m = 0.75 * *m + 0.25 * g;
    return (c > 0) - (c < 0);
  }
  *m = 0.9 * *m + 0.1 * g;
  *v = 0.95 * *v + 0.05 * g * g;
  return *m / (1 - pow(0.9, step)) / (sqrt(*v / (1 - pow(0.95, step))) + 1e-6);
}

static void work_out(const Formula *c, Wanted *x) {
  double m[N] = {0}, v[N] = {0};
  bool frozen = strstr(c->body, "freeze") != NULL;
  for (int i = 0; i < N; i++) x->p[i] = x->average[i] = i < 4 ? 0.5 : 0.25;
  for (int step = 1; step <= STEPS; step++) {
    double g[N] = {0}, sum = 0, aux = 0, weight = 0, norm = 0;
    int first = BATCH * (step - 1);
    for (int s = first; s < first + BATCH; s++) weight += known("t", (uint64_t)s, 0, 4) >= 0;
    for (int s = first; s < first + BATCH; s++) {
      double e = error_of(x->p, s);
      sum += e * e;
      aux += 0.5 * e / BATCH;
      for (int i = 0; i < N; i++) {
        double f = i < 4 ? x_of(s, i) : x_of(s, i - 4) * x_of(s, i - 4);
        g[i] += (2 * e / weight + 0.5 / BATCH) * f;
      }
    }
    for (int i = 0; i < (frozen ? 4 : N); i++) norm += g[i] * g[i];
    norm = sqrt(norm);
    x->sum[step] = sum, x->weight[step] = weight, x->aux[step] = aux, x->norm[step] = norm;
    x->loss[step] = sum / weight + aux;
    double scale = c->clip > 0 && norm > c->clip ? c->clip / (norm + 1e-6) : 1;
    for (int i = 0; i < N; i++) {
      const Rule *o = i < 4 ? &c->w : &c->v;
      double rate = step < o->warmup ? o->rate * step / o->warmup : o->rate;
      x->p[i] -= rate * (update(o, g[i], scale, step, &m[i], &v[i]) + o->decay * x->p[i]);
      x->average[i] = c->average * x->average[i] + (1 - c->average) * x->p[i];
    }
  }
}

static void expect_near(double have, double want, double by, const char *what, int step, const Formula *c) {
  cr_expect(fabs(have - want) <= by, "%s: %s of step %d is %.9g, not %.9g", c->body, what, step, have, want);
}

/* Averages, of elements of w and then of v, as they are on the ranks that own them. */
static bool take_average(void *walk, uint64_t global, uint64_t n, float *at) {
  const ZxWalk *w = walk;
  float *to = (float *)w->ctx + (*w->path == 'v' ? 4 : 0) + global;
  memcpy(to, at, n * sizeof *at);
  return true;
}

static void train(Player *p) {
  job_train(p);
  const ZpPlan *plan = p->job->p;
  ZxWalk w = {.each = take_average, .fetch = true, .ctx = p->job->ctx, .err = &p->err};
  w.state = plan->asked.optimizers[0].states + 1;
  if (plan->asked.average > 0) p->ok = p->ok && zx_walk(p->e, &w);
}

static void check(const Model *m, const Formula *c, const char *layout) {
  Job j = job_of(m, zb_printf(m->c.a, "bind batch = 4 micro 2 %s", c->body), layout, &zx_device_cpu,
                 (ZpOptions){0});
  char path[400];
  Wanted x = {0};
  uint64_t n;
  snprintf(path, sizeof path, "%s", scratch("line"));
  job_data(&j, known, job_real);
  j.save = path;
  j.steps = STEPS;
  float average[N];
  j.ctx = average;
  job_play(&j, train);
  work_out(c, &x);
  for (int r = 0; r < j.ranks; r++)
    for (int k = 1; k <= STEPS; k++) {
      const ZxStep *s = &j.player[r].step[k];
      expect_near(s->loss_sum[0], x.sum[k], 2e-6 * (1 + x.sum[k]), "the numerator", k, c);
      cr_expect_eq(s->weight[0], x.weight[k]);
      expect_near(s->aux, x.aux[k], 2e-6, "aux", k, c);
      expect_near(s->loss, x.loss[k], 2e-6 * (1 + fabs(x.loss[k])), "the loss", k, c);
      expect_near(s->grad_norm, x.norm[k], 2e-6 * (1 + x.norm[k]), "the norm", k, c);
      cr_expect(!s->lost && !s->unfed && s->wait_ms >= 0 && s->compute_ms >= 0);
    }
  float *p = job_saved("line", &n);
  cr_assert_eq(n, N);
  for (int i = 0; i < N; i++) {
    expect_near((double)p[i], x.p[i], 2e-6, i < 4 ? "w" : "v", i, c);
    if (c->average > 0) expect_near((double)average[i], x.average[i], 2e-6, "the average", i, c);
  }
  free(p);
  job_close(&j);
}

Test(optimizers, by_formula) {
  Model m = job_model(NULL, line, NULL);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    check(&m, &cases[i], "");
    check(&m, &cases[i], "micro 4");
    check(&m, &cases[i], "mesh data = 2 split batch over data micro 2 shard params, grads, states over data");
    check(&m, &cases[i], "mesh data = 2 split batch over data micro 1 shard states over data");
  }
  model_close(&m);
}

/* Neighbours that are updated alike are so by one call, with what pads them. */
static ZxDeviceTable counting;
static int calls;
static int64_t elements;
static void count(const ZkEnv *env, const ZkOptimizer *p, const ZxScalars *clip, int64_t n, ZkFlat g,
                  ZkMaster w) {
  calls++;
  elements += n;
  zx_device_cpu.optimize(env, p, clip, n, g, w);
}
static void expect_calls(const Model *m, const char *more, int want) {
  Job j = job_of(m, "bind batch = 4", zb_printf(m->c.a, "optimizer sgd(lr = 0.1) %s", more), &counting,
                 (ZpOptions){0});
  j.steps = 2;
  calls = 0;
  elements = 0;
  job_play(&j, job_train);
  cr_assert_eq(j.p->programs.nbuckets, 1);
  cr_expect_eq(calls, 2 * want, "%s: %d calls", more, calls);
  cr_expect_eq(elements, 2 * (int64_t)j.p->programs.buckets[0].elems);
  job_close(&j);
}
Test(optimizers, neighbours) {
  Model m = job_model(NULL,
                      "model M { axis batch, a = 3\n  input x: real[batch, a]\n  param p[a], q[a] = 1\n"
                      "  param r[a] = 1 tag plain\n  param s[a] = 1\n"
                      "  loss sum[a](x * p * q * r * s) per samples() }\n",
                      NULL);
  counting = zx_device_cpu;
  counting.optimize = count;
  expect_calls(&m, "", 1);
  expect_calls(&m, "decay 0.1 except plain", 3);
  expect_calls(&m, "rate 2 for p, q", 2);
  model_close(&m);
}

/* With moments of 8 bits an average lies behind their codes, and nothing else does. */
static void find_average(Player *p) {
  const ZxEngine *e = p->e;
  job_train(p);
  for (uint32_t i = 0; i < e->st->nheld; i++) {
    const ZpStageBucket *h = &e->st->held[i];
    uint64_t from, to;
    zx_owned_shard(e, h, &from, &to);
    ZkFlat m = zx_part(e, h, 1), v = zx_part(e, h, 2);
    cr_assert(m.elem == ZK_DYN8 && v.elem == ZK_UDYN8);
    const char *states = zx_stored(e, ZP_B_STATE, h), *average = (const char *)zx_state(e, h, 2);
    cr_expect_eq((const char *)m.at, states);
    cr_expect_eq((const char *)v.at, states + zk_bytes(ZK_DYN8, to - from));
    cr_expect_eq(average, states + 2 * zk_bytes(ZK_DYN8, to - from));
    cr_expect_leq(average + 4 * (to - from), states + zp_state_bytes(e->p, h->bucket));
    const float *w = zx_master(e, h).f32, *x = zx_state(e, h, 2);
    for (uint64_t k = 0; k < to - from; k++) /* after one step, from ones */
      cr_expect(fabs((double)x[k] - (0.5 + 0.5 * (double)w[k])) < 1e-6 || w[k] == 0);
  }
}
Test(optimizers, average_behind_codes) {
  static const char *const layouts[] = {
      "", "mesh d = 2 split batch over d shard states over d",
      "mesh d = 2 split batch over d shard params, grads, states over d unit layer"};
  Model m = job_model(NULL,
                      "model M { axis batch, a = 256\n  input x: real[batch, a]\n  y = x\n"
                      "  repeat 2 as layer { param p[a], q[a] = 1  y = y * p + q }\n"
                      "  loss dot[a](y, y) per samples() }\n",
                      NULL);
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    Job j = job_of(&m, "bind batch = 4 micro 2 optimizer adamw(lr = 0.01, bits = 8) average 0.5", layouts[i],
                   &zx_device_cpu, (ZpOptions){0});
    j.steps = 1;
    job_play(&j, find_average);
    job_close(&j);
  }
  model_close(&m);
}

/* With bf16 parameters these are the nearest of what each update made, of all ranges of a bucket. */
static void expect_rounded(Player *p) {
  const ZxEngine *e = p->e;
  p->ok = zx_engine_init(p->e, &p->err);
  for (int step = 1; step <= 2; step++) {
    job_steps(p, step, step);
    for (uint32_t i = 0; i < e->st->nheld; i++) {
      uint64_t from, to;
      const ZpStageBucket *h = &e->st->held[i];
      ZkMaster m = zx_master(e, h);
      zx_owned_shard(e, h, &from, &to);
      cr_assert_eq(m.high, zx_rounded(e, h));
      float *w = ZB_NEWN(p->a, float, to - from);
      zk_cpu_join(e->env, m, (int64_t)(to - from), w);
      for (uint64_t k = 0; k < to - from; k++)
        cr_expect_eq(m.high[k], high_half(w[k]), "step %d: element %d", step, (int)(from + k));
    }
  }
}
#define PLAIN " decay 0.1 except plain"
Test(optimizers, rounded_copies) {
  static const char *const by[] = {"sgd(lr = 0.1)" PLAIN, "adamw(lr = 0.1)" PLAIN, "lion(lr = 0.1)" PLAIN,
                                   "sgd(lr = 0.1) optimizer muon(lr = 0.1) for p, q"},
                           *const layouts[] = {
                               "", "mesh d = 2 split batch over d shard states over d",
                               "mesh d = 2 split batch over d shard params, grads, states over d"};
  Model m =
      job_model(NULL,
                "model M { axis batch, a = 24\n  input x: real[batch, a]\n  param p[a], q[a] ~ normal(1)\n"
                "  param r[a] ~ normal(1) tag plain\n  param s[a] ~ normal(1)\n"
                "  loss sum[a](x * p * q * r * s) per samples() }\n",
                NULL);
  Model o = job_model(NULL,
                      "model M { axis batch, a = 24, b = 4\n  input x: real[batch, a]\n"
                      "  param p[a, b], q[a, b] ~ normal(1)\n"
                      "  loss sum[b](dot[a](x, p) * dot[a](x, q)) per samples() }\n",
                      NULL);
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < 3; k++) {
      Job j = job_of(i < 3 ? &m : &o, "bind batch = 4 micro 2 precision compute bf16 ",
                     zb_printf(m.c.a, "optimizer %s %s", by[i], layouts[k]), &zx_device_cpu, (ZpOptions){0});
      job_play(&j, expect_rounded);
      job_close(&j);
    }
  model_close(&m);
  model_close(&o);
}

/* What devices read of a step from memory: its number, and the scalars of each group, in the order of
 * lang/updates.def. Group 0 is what comes first in the model, w. */
static void expect_step_state(Player *p) {
  p->ok = zx_engine_init(p->e, &p->err);
  for (int step = 1; step <= 5; step++) {
    const ZkStepState *now = p->e->step_state;
    job_steps(p, step, step);
    const float *w = zk_scalars_of(now, 0), *v = zk_scalars_of(now, 1);
    double adamw = 0.02 * fmin(1, step / 3.0), sgd = 0.5 * fmin(1, step / 2.0),
           decay = 0.5 + 0.25 * (step - 1) / 5;
    cr_expect_eq(now->step, (uint64_t)step);
    cr_expect_float_eq(w[ZK_KEEP], 1 - adamw * decay, 1e-6);
    cr_expect_float_eq(w[ZK_ACTS], step % 2 == 0, 0);
    int acting = (step + 1) / 2;
    double b1 = step < 4 ? 0.8 + 0.1 * (step - 1) / 3 : 0.9;
    cr_expect_float_eq(w[ZK_OWN_SCALARS], b1, 1e-6);
    cr_expect_float_eq(w[ZK_OWN_SCALARS + 3], adamw / (1 - pow(b1, acting)), 1e-6);
    cr_expect_float_eq(w[ZK_OWN_SCALARS + 4], 1 / sqrt(1 - pow(0.95, acting)), 1e-5);
    cr_expect_float_eq(v[ZK_KEEP], 1, 0);
    cr_expect_float_eq(v[ZK_OWN_SCALARS], sgd, 1e-7);
  }
}
Test(optimizers, what_a_step_reads) {
  Model m = job_model(NULL, line, NULL);
  Job j = job_of(&m, "bind batch = 4 micro 2 ",
                 "optimizer adamw(lr = 0.02, b1 = 0.8 to 0.9 over 3, b2 = 0.95, warmup = 3, every = 2) "
                 "decay 0.5 to 0.75 over 5 optimizer sgd(lr = 0.5, warmup = 2) for v",
                 &zx_device_cpu, (ZpOptions){0});
  job_play(&j, expect_step_state);
  job_close(&j);
  model_close(&m);
}

/* What states have in place of a gradient is not a part of its norm. */
#define WITH(state)                                                                                          \
  "model S { axis batch, a = 4\n  input x: real[batch, a]\n  param w[a] ~ normal(1)\n" state                 \
  "  loss dot[a](x, w) * dot[a](x, w) per samples() }\n"
Test(optimizers, norm_without_states) {
  double norm[2];
  for (int with = 0; with < 2; with++) {
    Model m = job_model(
        NULL, with ? WITH("  state s[a] = 1\n  update s = s + 3 * mean[batch](x)\n") : WITH(""), NULL);
    Job j = job_of(&m, "bind batch = 4 micro 2 optimizer sgd(lr = 0.01)", "", &zx_device_cpu, (ZpOptions){0});
    job_play(&j, job_train);
    norm[with] = j.player[0].step[1].grad_norm;
    job_close(&j);
    model_close(&m);
  }
  cr_expect(norm[0] > 0 && norm[0] == norm[1], "%g, %g", norm[0], norm[1]);
}

/* Moments of 8 bits of a bucket that is updated in several ranges are those of one that is in one. */
Test(optimizers, codes_of_ranges) {
  static const char *const bodies[] = {"", "decay 1e-30 for q", "rate 1.000001 for p, r",
                                       "decay 1e-30 for q mesh d = 2 split batch over d shard states over d"};
  Model m =
      job_model(NULL,
                "model M { axis batch, a = 512\n  input x: real[batch, a]\n  param p[a], q[a] ~ normal(1)\n"
                "  param r[a] ~ normal(1)\n  loss sum[a](x * p * q * r) per samples() }\n",
                NULL);
  Job one = {0};
  char path[2][400];
  for (int i = 0; i < 4; i++) {
    Job j = job_of(&m, "bind batch = 4 micro 2",
                   zb_printf(m.c.a, "optimizer adamw(lr = 0.01, bits = 8) %s", bodies[i]), &zx_device_cpu,
                   (ZpOptions){0});
    snprintf(path[i > 0], sizeof *path, "%s", scratch(i ? "other" : "one"));
    j.save = path[i > 0];
    j.steps = 4;
    job_play(&j, job_train);
    if (i) job_compare(&one, &j, i == 3 ? 1e-5 : 1e-6, bodies[i]), job_close(&j);
    else one = j;
  }
  job_close(&one);
  model_close(&m);
}

/* Muon by its formula: a tiny net whose gradients and orthogonalisations are worked out in doubles, as
 * tests/scenarios/muon.sh does. Tolerance 1e-5: f32, and steps of Newton and Schulz, which take a small singular
 * value to hundreds of times itself, with its rounding error. */
#include "tests/unit/exec/engine/job.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(muon, .init = scratch_make, .fini = scratch_remove);

static const char net[] = "model Net {\n"
                          "  axis h = 2, batch, a = 4, b = 5\n" /* split is what comes first */
                          "  input x: real[batch, a]\n"
                          "  input y: real[batch]\n"
                          "  param w[a, h, b] ~ normal(0.5)\n"
                          "  param u[h, b] ~ normal(0.5)\n"
                          "  error = dot[h, b](tanh(dot[a](x, w)), u) - y\n"
                          "  loss error * error per samples()\n"
                          "}\n";
enum { A = 4, H = 2, B = 5, O = H * B, N = A * O, BATCH = 8, STEPS = 4, LONGEST = 10 };
#define LR 0.02

typedef struct {
  const char *body;
  double momentum, decay, clip;
  bool nesterov, rms;
  int warmup, steps, rows; /* rows: of a matrix, of which there are O / rows */
} Setting;
static const Setting cases[] = {
    {"optimizer muon(lr = 0.02, momentum = 0.9, nesterov = off, warmup = 3) for w decay 0.5", 0.9, 0.5, 0,
     false, false, 3, 5, O},
    {"optimizer muon(lr = 0.02, momentum = 0.9) for w", 0.9, 0, 0, true, false, 0, 5, O},
    {"optimizer muon(lr = 0.02, scale = rms, steps = 3) for w", 0.95, 0, 0, true, true, 0, 3, O},
    {"optimizer muon(lr = 0.02, each = h) for w clip 0.5", 0.95, 0, 0.5, true, false, 0, 5, B},
    {"optimizer muon(lr = 0.02, each = h, each = b) for w clip 0.5", 0.95, 0, 0.5, true, false, 0, 5, 1}};

/* x, of rows and A columns, towards an orthogonal one. */
static void orthogonal(double x[LONGEST][A], int rows, int steps) {
  double size = 0;
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < A; c++) size += x[r][c] * x[r][c];
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < A; c++) x[r][c] /= sqrt(size) + 1e-7;
  for (int s = 0; s < steps; s++) {
    double g[LONGEST][LONGEST] = {{0}}, p[LONGEST][LONGEST], next[LONGEST][A];
    for (int i = 0; i < rows; i++)
      for (int k = 0; k < rows; k++)
        for (int c = 0; c < A; c++) g[i][k] += x[i][c] * x[k][c];
    for (int i = 0; i < rows; i++)
      for (int k = 0; k < rows; k++) {
        p[i][k] = -4.7750 * g[i][k];
        for (int l = 0; l < rows; l++) p[i][k] += 2.0315 * g[i][l] * g[l][k];
      }
    for (int i = 0; i < rows; i++)
      for (int c = 0; c < A; c++) {
        next[i][c] = 3.4445 * x[i][c];
        for (int k = 0; k < rows; k++) next[i][c] += p[i][k] * x[k][c];
      }
    memcpy(x, next, sizeof next);
  }
}

static void update(const Setting *c, double *w, const double *t, double rate) {
  double x[LONGEST][A], s = c->rms ? 0.2 * sqrt(fmax(c->rows, A)) : sqrt(fmax(1, (double)c->rows / A));
  for (int first = 0; first < O; first += c->rows) {
    for (int r = 0; r < c->rows; r++)
      for (int a = 0; a < A; a++) x[r][a] = t[a * O + first + r];
    orthogonal(x, c->rows, c->steps);
    for (int r = 0; r < c->rows; r++)
      for (int a = 0; a < A; a++)
        w[a * O + first + r] -= rate * (s * x[r][a] + c->decay * w[a * O + first + r]);
  }
}

static void work_out(const Setting *c, double *w) {
  double u[O], m[N] = {0}, t[N];
  for (uint64_t i = 0; i < N; i++) w[i] = 0.5 * zb_random_normal(7, zb_stream("w"), i);
  for (uint64_t i = 0; i < O; i++) u[i] = 0.5 * zb_random_normal(7, zb_stream("u"), i);
  for (int step = 1; step <= STEPS; step++) {
    double g[N + O] = {0}, norm = 0;
    for (uint64_t s = (uint64_t)(BATCH * (step - 1)); s < (uint64_t)(BATCH * step); s++) {
      double z[O] = {0}, e = -(double)job_real("y", s, 0);
      for (int o = 0; o < O; o++) {
        for (uint64_t a = 0; a < A; a++) z[o] += (double)job_real("x", s, a) * w[a * O + (uint64_t)o];
        z[o] = tanh(z[o]);
        e += z[o] * u[o];
      }
      for (int o = 0; o < O; o++) {
        g[N + o] += 2 * e * z[o] / BATCH;
        for (uint64_t a = 0; a < A; a++)
          g[a * O + (uint64_t)o] += 2 * e * u[o] * (1 - z[o] * z[o]) * (double)job_real("x", s, a) / BATCH;
      }
    }
    for (int i = 0; i < N + O; i++) norm += g[i] * g[i];
    norm = sqrt(norm);
    double scale = c->clip > 0 && norm > c->clip ? c->clip / (norm + 1e-6) : 1;
    for (int i = 0; i < N; i++) {
      m[i] = c->momentum * m[i] + scale * g[i];
      t[i] = c->nesterov ? scale * g[i] + c->momentum * m[i] : m[i];
    }
    update(c, w, t, step < c->warmup ? LR * step / c->warmup : LR);
  }
}

Test(muon, by_formula) {
  static const char *const layouts[] = {
      "",
      "mesh data = 2 split batch over data micro 2 shard params, grads, states over data",
      "mesh data = 4 split batch over data micro 2 shard states over data",
      "mesh tensor = 2 split h over tensor",
      "mesh tensor = 2 split a over tensor",
      "mesh data = 2, tensor = 2 split batch over data split b over tensor pad b to 6 micro 2 shard grads, "
      "states over data",
      "mesh data = 2, tensor = 2 split batch over data split h over tensor micro 2 shard grads, states over "
      "data"};
  Model m = job_model(NULL, net, NULL);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    double w[N];
    work_out(&cases[i], w);
    for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++) {
      Job j = job_of(&m, "bind batch = 8 micro 4 optimizer sgd(lr = 0) ",
                     zb_printf(m.c.a, "%s %s", cases[i].body, layouts[k]), &zx_device_cpu, (ZpOptions){0});
      uint64_t n;
      j.steps = STEPS;
      j.save = zb_strdup(j.q.a, scratch("w"));
      job_play(&j, job_train);
      float *p = job_saved("w", &n);
      cr_assert_eq(n, N + O);
      for (int e = 0; e < N; e++)
        cr_assert(fabs((double)p[e] - w[e]) < 1e-5, "%s, %s: w[%d] is %.9g, not %.9g", cases[i].body,
                  layouts[k], e, (double)p[e], w[e]);
      free(p);
      job_close(&j);
    }
  }
  model_close(&m);
}

/* One rank, and two that own halves. */
static const char *const owners[] = {"", "mesh d = 2 split batch over d micro 2 shard states over d"};

/* The rank that owns a matrix orthogonalises it, once. It has no more rows than columns. The matrix and the
 * room behind it lie at aligned places. */
static int64_t rows_of, cols_of;
static _Atomic int made;
static void look_at_matrix(const ZkEnv *env, int64_t rows, int64_t cols, int steps, ZkCoefficients which,
                           float *x, float *room) {
  cr_expect(rows == rows_of && cols == cols_of && steps == 5);
  cr_expect((uintptr_t)x % 64 == 0 && (uintptr_t)room % 64 == 0 && room - x >= rows * cols);
  made++;
  zx_device_cpu.orthogonalize(env, rows, cols, steps, which, x, room);
}
Test(muon, matrices) {
  static const struct {
    const char *body;
    int rows, cols, n;
  } shapes[] = {{"", 4, 10, 1}, {", each = h", 4, 5, 2}, {", each = h, each = b", 1, 4, 10}};
  Model m = job_model(NULL, net, NULL);
  ZxDeviceTable device = zx_device_cpu;
  device.orthogonalize = look_at_matrix;
  for (size_t i = 0; i < 2 * (sizeof shapes / sizeof *shapes); i++) {
    Job j =
        job_of(&m, "bind batch = 8 micro 4 optimizer sgd(lr = 0) ",
               zb_printf(m.c.a, "optimizer muon(lr = 0.02%s) for w %s", shapes[i / 2].body, owners[i % 2]),
               &device, (ZpOptions){0});
    rows_of = shapes[i / 2].rows, cols_of = shapes[i / 2].cols, made = 0;
    j.steps = 2;
    job_play(&j, job_train);
    cr_expect_eq(made, 2 * shapes[i / 2].n, "%d", made);
    job_close(&j);
  }
  model_close(&m);
}

/* What a large matrix takes beside it is planned, and used. */
static const char large[] = "model L { axis batch, a = 96, b = 64\n  input x: real[batch, a]\n"
                            "  param w[a, b] ~ normal(1)\n  y = dot[a](x, w)\n"
                            "  loss dot[b](y, y) per samples() }\n";
Test(muon, room) {
  Model m = job_model(NULL, large, NULL);
  for (int i = 0; i < 2; i++) {
    Job j = job_of(&m, "bind batch = 8 micro 4 optimizer sgd(lr = 0) optimizer muon(lr = 0.02) for w",
                   owners[i], &zx_device_cpu, (ZpOptions){0});
    j.steps = 1;
    job_play(&j, job_train);
    for (int r = 0; r < j.ranks; r++) cr_expect_eq(j.player[r].step[1].used_bytes, j.player[r].planned);
    job_close(&j);
  }
  model_close(&m);
}

/* A square matrix, which is neither wide nor tall: one step by the formula. */
static const char square[] = "model Q { axis batch, a = 4, b = 4\n  input x: real[batch, a]\n"
                             "  param w[a, b] ~ normal(0.5)\n  y = dot[a](x, w)\n"
                             "  loss dot[b](y, y) per samples() }\n";
Test(muon, square) {
  double w[A][A], g[LONGEST][A] = {{0}};
  for (uint64_t i = 0; i < A * A; i++) w[i / A][i % A] = 0.5 * zb_random_normal(7, zb_stream("w"), i);
  for (uint64_t s = 0; s < BATCH; s++)
    for (int b = 0; b < A; b++) {
      double y = 0;
      for (uint64_t a = 0; a < A; a++) y += (double)job_real("x", s, a) * w[a][b];
      for (uint64_t a = 0; a < A; a++) g[b][a] += 2 * (double)job_real("x", s, a) * y / BATCH;
    }
  orthogonal(g, A, 5);
  Model m = job_model(NULL, square, NULL);
  Job j = job_of(&m, "bind batch = 8 micro 4 optimizer sgd(lr = 0) optimizer muon(lr = 0.02) for w", "",
                 &zx_device_cpu, (ZpOptions){0});
  uint64_t n;
  j.steps = 1;
  j.save = zb_strdup(j.q.a, scratch("w"));
  job_play(&j, job_train);
  float *p = job_saved("w", &n);
  cr_assert_eq(n, A * A);
  for (int i = 0; i < A * A; i++)
    cr_expect_float_eq((double)p[i], w[i / A][i % A] - LR * g[i % A][i / A], 1e-5, "w[%d]", i);
  free(p);
  job_close(&j);
  model_close(&m);
}

/* The average begins as the parameters, and follows what Muon makes of them. */
static void expect_average(Player *p) {
  p->ok = zx_engine_init(p->e, &p->err);
  const ZpStageBucket *h = NULL;
  for (uint32_t i = 0; i < p->e->st->nheld; i++)
    if (zp_updates_whole(p->e->p, &p->e->p->programs.buckets[p->e->st->held[i].bucket]))
      h = &p->e->st->held[i];
  cr_assert(h);
  const float *w = zx_master(p->e, h).f32,
              *average = zx_state(p->e, h, zp_states(p->e->p, &p->e->p->programs.buckets[h->bucket]) - 1);
  float before[A * A];
  uint64_t from, to;
  zx_owned_shard(p->e, h, &from, &to);
  cr_assert_leq(to - from, A * A);
  memcpy(before, w, (to - from) * sizeof *w);
  job_steps(p, 1, 1);
  for (uint64_t i = 0; i < to - from; i++) {
    cr_expect(from + i >= A * A || w[i] != before[i]);
    cr_expect_float_eq((double)average[i], 0.75 * (double)before[i] + 0.25 * (double)w[i], 1e-6);
  }
}
Test(muon, average) {
  Model m = job_model(NULL, square, NULL);
  for (int i = 0; i < 2; i++) {
    Job j = job_of(
        &m, "bind batch = 8 micro 4 average 0.75 optimizer sgd(lr = 0) optimizer muon(lr = 0.02) for w",
        owners[i], &zx_device_cpu, (ZpOptions){0});
    job_play(&j, expect_average);
    job_close(&j);
  }
  model_close(&m);
}

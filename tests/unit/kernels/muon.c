/* Muon's kernels: momentum and update against plain loops, the orthogonalisation against one in doubles. */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "tests/unit/kernels/conform.h"
#include "tests/unit/kernels/update.h"

static ZkPool *pool[2];
static void start(void) {
  pool[0] = zk_pool_new(1);
  pool[1] = zk_pool_new(3);
}
static void stop(void) {
  zk_pool_free(pool[0]);
  zk_pool_free(pool[1]);
}
TestSuite(muon, .init = start, .fini = stop);

#define MARK 12345.0f
static float *normals(int64_t n, uint64_t stream) {
  float *x = malloc((size_t)(n + 1) * sizeof *x);
  for (int64_t i = 0; i < n; i++) x[i] = (float)zb_random_normal(4, stream, (uint64_t)i);
  x[n] = MARK;
  return x;
}

static const int64_t length[] = {0, 1, 17, 4097, 70001};

Test(muon, momentum) {
  for (int k = 0; k < 5 * 2 * 2; k++) {
    int64_t n = length[k / 4];
    float *g = normals(n, 1), *m = normals(n, 2), *was = normals(n, 2), *u = normals(n, 3);
    By p = {.momentum = 0.75f, .scale = 0.5f, .nesterov = (float)(k & 1)};
    cr_assert(
        cpu_by(&(ZkEnv){.pool = pool[k / 2 % 2]}, ZK_BY_MUON, &p, n, g, u, IN_F32(m), (ZkFlat){0}, NULL));
    for (int64_t i = 0; i < n; i++) {
      double gi = 0.5 * (double)g[i], mi = 0.75 * (double)was[i] + gi, ui = k & 1 ? gi + 0.75 * mi : mi;
      EACH_ASSERT(fabs((double)m[i] - mi) < 1e-6 && fabs((double)u[i] - ui) < 1e-6, "at %lld", (long long)i);
    }
    cr_assert(m[n] == MARK && u[n] == MARK);
    free(g), free(m), free(was), free(u);
  }
}

Test(muon, update) {
  for (int k = 0; k < 5 * 2 * 2; k++) {
    int64_t n = length[k / 4];
    float *u = normals(n, 1), *w = normals(n, 3), *was = normals(n, 3);
    uint16_t *w16 = malloc((size_t)(n + 1) * sizeof *w16);
    ZkEnv env = {.pool = pool[k / 2 % 2]};
    float scalars[ZK_MOST_SCALARS];
    ZkOptimizer p = call_by(ZK_BY_PLAIN, &(By){.lr = 0.5f, .decay = 0.25f, .scale = 1}, (ZkFlat){0},
                            (ZkFlat){0}, scalars);
    p.times = 2; /* the scale by the shape */
    cr_assert(cpu_call(&env, &p, n, u, w, k & 1 ? w16 : NULL));
    for (int64_t i = 0; i < n; i++) {
      double want = (1 - 0.125) * (double)was[i] - (double)u[i];
      EACH_ASSERT(fabs((double)w[i] - want) < 1e-6, "at %lld", (long long)i);
      EACH_ASSERT(!(k & 1) || fabs((double)zb_bf16_to_f32(w16[i]) - (double)w[i]) <= fabs((double)w[i]) / 256,
                  "bf16 copy at %lld", (long long)i);
    }
    cr_assert(w[n] == MARK);
    if (n) {
      u[n - 1] = NAN;
      cr_assert(!cpu_call(&env, &p, n, u, w, NULL));
    }
    free(u), free(w), free(was), free(w16);
  }
}

/* In doubles, by single elements. */
static void orthogonal(int64_t r, int64_t c, int steps, double *x) {
  double *g = calloc((size_t)(r * r), sizeof *g), *p = calloc((size_t)(r * r), sizeof *p),
         *y = calloc((size_t)(r * c), sizeof *y), size = 0;
  for (int64_t i = 0; i < r * c; i++) size += x[i] * x[i];
  for (int64_t i = 0; i < r * c; i++) x[i] /= sqrt(size) + 1e-7;
  for (int s = 0; s < steps; s++) {
    for (int64_t i = 0; i < r; i++)
      for (int64_t k = 0; k < r; k++) {
        g[i * r + k] = 0;
        for (int64_t j = 0; j < c; j++) g[i * r + k] += x[i * c + j] * x[k * c + j];
      }
    for (int64_t i = 0; i < r; i++)
      for (int64_t k = 0; k < r; k++) {
        p[i * r + k] = -4.7750 * g[i * r + k];
        for (int64_t j = 0; j < r; j++) p[i * r + k] += 2.0315 * g[i * r + j] * g[j * r + k];
      }
    for (int64_t i = 0; i < r; i++)
      for (int64_t j = 0; j < c; j++) {
        y[i * c + j] = 3.4445 * x[i * c + j];
        for (int64_t k = 0; k < r; k++) y[i * c + j] += p[i * r + k] * x[k * c + j];
      }
    for (int64_t i = 0; i < r * c; i++) x[i] = y[i];
  }
  free(g), free(p), free(y);
}

/* Tolerance 2e-4: five steps take the smallest singular values to 480 times themselves, with the rounding of
 * f32. What comes out is near orthogonal: rows have products of 0 with each other, and a length between 0.6
 * and 1.3 (of a square of 33 the smallest singular value is too near 0 to get there). */
Test(muon, orthogonalize) {
  static const int64_t shape[][2] = {{1, 1}, {1, 7}, {2, 2}, {3, 5}, {16, 16}, {17, 40}, {33, 33}, {30, 130}};
  for (size_t k = 0; k < 2 * sizeof shape / sizeof *shape; k++) {
    int64_t r = shape[k / 2][0], c = shape[k / 2][1];
    int64_t room = (int64_t)(zb_round_up((uint64_t)(r * c), 16) + 2 * zb_round_up((uint64_t)(r * r), 16));
    float *x = normals(r * c, 5), *scratch = aligned_alloc(64, (size_t)(room + 16) * sizeof *scratch);
    double *want = malloc((size_t)(r * c) * sizeof *want);
    for (int64_t i = 0; i < r * c; i++) want[i] = (double)x[i];
    scratch[room] = MARK;
    orthogonal(r, c, 5, want);
    zk_cpu_orthogonalize(&(ZkEnv){.pool = pool[k % 2]}, r, c, 5, ZK_JORDAN, x, scratch);
    for (int64_t i = 0; i < r * c; i++)
      EACH_ASSERT(fabs((double)x[i] - want[i]) < 2e-4, "%lld x %lld at %lld: %g instead of %g", (long long)r,
                  (long long)c, (long long)i, (double)x[i], want[i]);
    for (int64_t i = 0; i < r && c > 2 * r; i++) {
      double size = 0;
      for (int64_t j = 0; j < c; j++) size += want[i * c + j] * want[i * c + j];
      EACH_ASSERT(sqrt(size) > 0.6 && sqrt(size) < 1.3, "row %lld has length %g", (long long)i, sqrt(size));
    }
    cr_assert(x[r * c] == MARK && scratch[room] == MARK);
    free(x), free(scratch), free(want);
  }
}

/* Of zeros it makes zeros, not NaN. */
Test(muon, orthogonalize_nothing) {
  float x[6] = {0}, scratch[64];
  zk_cpu_orthogonalize(&(ZkEnv){.pool = pool[0]}, 2, 3, 5, ZK_JORDAN, x, scratch);
  for (int i = 0; i < 6; i++) cr_assert(x[i] == 0);
}

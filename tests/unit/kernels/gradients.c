/* Gradients that are added up in bf16: rounded at random, to what is right in the mean, by draws that are of
 * an element's place alone. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
TestSuite(gradients, .init = start, .fini = stop);

static ZkDraws row_of(uint64_t key, int64_t n) {
  return (ZkDraws){.key = key, .naxes = 1, .size = {n}, .stride = {1}};
}

/* What 65536 elements become of one sum, of which `part` of 65536 is cut off: one of two neighbours, the
 * farther with a probability of part / 65536. That many independent draws differ from it by less than 5 of
 * their deviation, sqrt(part (65536 - part)) / 256; of parts of 0 always the same. */
static void check_mean(float x, uint64_t key, uint64_t step) {
  enum { N = 65536 };
  static float xs[N];
  static uint16_t y[N];
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  ZkDraws d = row_of(key, N);
  for (int i = 0; i < N; i++) xs[i] = x, y[i] = 0;
  zk_cpu_add_bf16(&(ZkEnv){.pool = pool[1], .step = step}, &d, N, xs, y);
  int up = 0;
  double part = bits & 0xffff, allowed = 5 * sqrt(part * (65536 - part)) / 256;
  for (int i = 0; i < N; i++) {
    EACH_ASSERT(y[i] == bits >> 16 || y[i] == (bits >> 16) + 1, "%g became %04x", (double)x, y[i]);
    up += y[i] != bits >> 16;
  }
  cr_assert(fabs(up - part) <= allowed, "%g: %d of 65536 up, %g +- %g are right", (double)x, up, part,
            allowed);
}
Test(gradients, right_in_the_mean) {
  const float x[] = {1,           1.00001f, 1.0005f, 1.002f, 1.0039f, 1.00781f,
                     -3.1415927f, -0.5001f, 3e-5f,   1e-39f, 1e30f};
  for (size_t i = 0; i < sizeof x / sizeof *x; i++)
    for (uint64_t k = 0; k < 4; k++) check_mean(x[i], zb_mix64(i), k);
}

/* A thousand gradients of a thousandth: to nearest, the sum would stay where they are below half a unit, at
 * 0.25. Each of the thousand roundings errs by less than a unit, 2^-8, with a deviation of half of it at
 * most, so the sum by 0.06, and the mean of 4096 by 5 * 0.06 / 64. */
Test(gradients, small_ones_are_not_lost) {
  enum { N = 4096, TIMES = 1000 };
  static float x[N];
  static uint16_t y[N];
  double sum = 0;
  for (int i = 0; i < N; i++) x[i] = 1.0f / TIMES;
  for (uint64_t k = 0; k < TIMES; k++) {
    ZkDraws d = row_of(zb_mix64(k), N);
    zk_cpu_add_bf16(&(ZkEnv){.pool = pool[0], .step = 7}, &d, N, x, y);
  }
  for (int i = 0; i < N; i++) {
    sum += (double)zb_bf16_to_f32(y[i]);
    EACH_ASSERT(fabs((double)zb_bf16_to_f32(y[i]) - 1) < 6 * 0.06, "%g", (double)zb_bf16_to_f32(y[i]));
  }
  cr_assert(fabs(sum / N - 1) < 0.005, "%g in the mean", sum / N);
}

/* Of neighbours, of steps and of keys draws know nothing of each other: their correlation over 65536 is 0 but
 * for 5 / 256. */
Test(gradients, independent) {
  enum { N = 65536 };
  const struct {
    uint64_t key, step;
    int64_t at;
  } other[] = {{1, 1, 1}, {1, 1, 2}, {1, 1, 1 << 16},       {1, 1, (int64_t)1 << 32},
               {1, 2, 0}, {2, 1, 0}, {1ull << 32 | 1, 1, 0}};
  for (size_t k = 0; k < sizeof other / sizeof *other; k++) {
    double sum = 0;
    uint64_t a = zk_draw_key(1, 1), b = zk_draw_key(other[k].key, other[k].step);
    for (int64_t i = 0; i < N; i++)
      sum += (zk_draw(a, i) / 65536.0 - 0.5) * (zk_draw(b, i + other[k].at) / 65536.0 - 0.5) * 12;
    cr_assert(fabs(sum / N) < 5.0 / 256, "%zu: %g", k, sum / N);
  }
}

/* A parameter of 6 x 40, whole, and in parts: of rows, of columns, of runs that begin and end within a row,
 * by several threads: each element becomes what it is in the whole. */
Test(gradients, the_same_in_parts) {
  enum { R = 6, C = 40000 };
  float *x = malloc(R * C * sizeof *x), *part = malloc(R * C * sizeof *part);
  uint16_t *whole = malloc(R * C * sizeof *whole), *y = malloc(R * C * sizeof *y);
  for (int i = 0; i < R * C; i++) x[i] = (float)zb_random_normal(3, 1, (uint64_t)i), whole[i] = 0x3f80;
  ZkEnv env = {.pool = pool[0], .step = 3};
  ZkDraws d = row_of(99, R * C);
  zk_cpu_add_bf16(&env, &d, R * C, x, whole);
  env.pool = pool[1];
  for (int k = 0; k < 2; k++) { /* columns 10000.. of all rows, then rows 2.. of them */
    int r0 = k * 2, c0 = 10000, nr = R - r0, nc = 20000;
    ZkDraws of = {.key = 99, .first = r0 * C + c0, .naxes = 2, .size = {nr, nc}, .stride = {C, 1}};
    for (int i = 0; i < nr * nc; i++) part[i] = x[(r0 + i / nc) * C + c0 + i % nc], y[i] = 0x3f80;
    for (int from = 0, to = 7; from < nr * nc; from = to, to = 3 * to + 1 < nr * nc ? 3 * to + 1 : nr * nc) {
      of.from = from;
      zk_cpu_add_bf16(&env, &of, to - from, part + from, y + from);
    }
    for (int i = 0; i < nr * nc; i++)
      EACH_ASSERT(y[i] == whole[(r0 + i / nc) * C + c0 + i % nc], "element %d", i);
  }
  free(x), free(part), free(whole), free(y);
}

Test(gradients, what_is_not_finite) {
  const float x[] = {INFINITY, -INFINITY, NAN, 3.4028234e38f, 0, -0.0f};
  uint16_t y[6] = {0};
  ZkDraws d = row_of(5, 6);
  zk_cpu_add_bf16(&(ZkEnv){.pool = pool[0]}, &d, 6, x, y);
  cr_assert(y[0] == 0x7f80 && y[1] == 0xff80 && (y[2] & 0x7fff) > 0x7f80 &&
            (y[3] == 0x7f7f || y[3] == 0x7f80));
  cr_assert(y[4] == 0 && y[5] == 0);
}

/* The norm, and every optimizer's step, are those of the same gradients in f32. */
Test(gradients, read) {
  enum { N = 4096 + 512 };
  static float g[N], x[2][5][N];
  static uint16_t g16[N];
  for (int i = 0; i < N; i++) g16[i] = zb_f32_to_bf16((float)zb_random_normal(3, 2, (uint64_t)i));
  for (int i = 0; i < N; i++) g[i] = zb_bf16_to_f32(g16[i]);
  ZkEnv env = {.pool = pool[1]};
  double want = zk_cpu_sumsq(&env, N, g), got = zk_cpu_sumsq_bf16(&env, N, g16);
  cr_assert(fabs(got - want) < 1e-12 * want && got == zk_cpu_sumsq_bf16(&(ZkEnv){.pool = pool[0]}, N, g16));
  for (int kind = 0; kind < ZK_OPTIMIZERS; kind++) {
    memset(x, 0, sizeof x);
    for (int half = 0; half < 2; half++) {
      float s[ZK_MOST_SCALARS];
      By p = {0.01f, 0.9f, 0.95f, 1e-6f, 0.9f, 0.1f, 0.5f, 3, 1, 1, .third = x[half][4]};
      ZkOptimizer by = call_by((ZkOptimizerKind)kind, &p, IN_F32(x[half][1]), IN_F32(x[half][2]), s);
      by.sum = kind % 2 ? x[half][3] : NULL;
      for (int i = 0; i < N; i++) x[half][0][i] = 1;
      zk_cpu_optimize(&env, &by, N, half ? (ZkFlat){ZK_BF16, g16} : IN_F32(g), (ZkMaster){.f32 = x[half][0]});
    }
    cr_assert(!memcmp(x[0], x[1], sizeof x[0]) && x[0][0][N - 1] != 1, "%s", zk_optimizer_info[kind].word);
  }
}

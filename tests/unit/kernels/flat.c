/* Kernels on flat buffers against naive loops, with 1 and 3 threads and lengths around those of vectors and
 * blocks. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tests/unit/kernels/conform.h"
#include "tests/unit/kernels/update.h"

#define MOST 70001
static const int64_t length[] = {0, 1, 3, 15, 16, 17, 33, 1023, 4097, MOST};
#define EACH_LENGTH(n)                                                                                       \
  for (size_t l_ = 0; l_ < sizeof length / sizeof *length; l_++)                                             \
    for (int64_t n = length[l_], once_ = 1; once_; once_ = 0)

static ZkPool *pool[2];
static void start(void) {
  pool[0] = zk_pool_new(1);
  pool[1] = zk_pool_new(3);
}
static void stop(void) {
  zk_pool_free(pool[0]);
  zk_pool_free(pool[1]);
}
TestSuite(flat, .init = start, .fini = stop);

/* n normal numbers and one more element that nobody may touch. */
#define MARK 12345.0f
static float *normals(int64_t n, uint64_t stream, double scale) {
  float *x = malloc((size_t)(n + 1) * sizeof *x);
  for (int64_t i = 0; i < n; i++) x[i] = (float)(scale * zb_random_normal(3, stream, (uint64_t)i));
  x[n] = MARK;
  return x;
}

static float from_bits(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}
static uint32_t to_bits(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

/* The definition: of the two neighbours the nearer one, of equally near ones the even one. */
static uint16_t naive_bf16(float x) {
  uint32_t u = to_bits(x), low = u & 0xffff, high = u >> 16;
  if (low > 0x8000 || (low == 0x8000 && (high & 1))) high++;
  return (uint16_t)high;
}

/* Numbers half-way between two become the one away from 0. */
static uint16_t naive_high(float x) { return (uint16_t)((to_bits(x) >> 16) + (to_bits(x) >> 15 & 1)); }

Test(flat, bf16) {
  for (int p = 0; p < 2; p++) EACH_LENGTH(n) {
      ZkEnv env = {.pool = pool[p]};
      float *x = normals(n, 1, 1), *back = normals(n, 2, 1);
      uint16_t *y = malloc((size_t)(n + 1) * sizeof *y);
      y[n] = 77;
      zk_cpu_to_bf16(&env, n, x, y);
      zk_cpu_from_bf16(&env, n, y, back);
      for (int64_t i = 0; i < n; i++) {
        EACH_ASSERT(y[i] == naive_bf16(x[i]), "%.9g became %04x", (double)x[i], y[i]);
        EACH_ASSERT(to_bits(back[i]) == (uint32_t)y[i] << 16, "%04x became %.9g", y[i], (double)back[i]);
      }
      cr_assert(y[n] == 77 && back[n] == MARK);
      free(x), free(y), free(back);
    }
}

Test(flat, bf16_edges) {
  static const uint32_t bits[] = {0x00000000, 0x80000000, 0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff,
                                  0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x00000001, 0x00008000,
                                  0x00018000, 0x007fffff, 0x7f7f7fff, 0x4b7fffff};
  enum { N = sizeof bits / sizeof *bits };
  float x[N + 2];
  uint16_t y[N + 2];
  for (int i = 0; i < N; i++) x[i] = from_bits(bits[i]);
  x[N] = from_bits(0x7fffffff); /* NaNs whose rounding up would make a zero or an infinity */
  x[N + 1] = from_bits(0x7f800001);
  ZkEnv env = {.pool = pool[0]};
  zk_cpu_to_bf16(&env, N + 2, x, y);
  for (int i = 0; i < N; i++) cr_assert(y[i] == naive_bf16(x[i]), "%08x: %04x", bits[i], y[i]);
  for (int i = N; i < N + 2; i++)
    cr_assert((y[i] & 0x7f80) == 0x7f80 && (y[i] & 0x7f), "NaN became %04x", y[i]);
}

/* Halves of every pattern of 16 of the 32 bits, beside several of the others: they are the number; and the high one is
 * the nearest bf16, which is half a unit of its last place away at most. */
Test(flat, halves) {
  static const uint32_t others[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0x5a5a, 0x3f80, 0x4000};
  enum { N = 1 << 16, OTHERS = sizeof others / sizeof *others };
  float *x = malloc(N * sizeof *x), *back = malloc(N * sizeof *back);
  ZkMaster m = {.high = malloc(N * sizeof *m.high), .low = malloc(N * sizeof *m.low)};
  for (int k = 0; k < 2 * OTHERS; k++) { /* all that are high beside some low ones; and the other way round */
    for (uint32_t i = 0; i < N; i++)
      x[i] = from_bits(k < OTHERS ? i << 16 | others[k] : others[k - OTHERS] << 16 | i);
    zk_cpu_split(&(ZkEnv){.pool = pool[k & 1]}, N, x, m);
    zk_cpu_join(&(ZkEnv){.pool = pool[k & 1]}, m, N, back);
    for (int i = 0; i < N; i++) {
      float rounded = zb_bf16_to_f32(m.high[i]);
      if (isnan(x[i])) {
        EACH_ASSERT(isnan(back[i]) && isnan(rounded), "%08x became %04x", to_bits(x[i]), m.high[i]);
        continue;
      }
      EACH_ASSERT(to_bits(back[i]) == to_bits(x[i]), "%08x became %08x", to_bits(x[i]), to_bits(back[i]));
      int32_t far = (int32_t)(to_bits(x[i]) - to_bits(rounded)); /* the sign is in the other bits */
      EACH_ASSERT(-0x8000 <= far && far < 0x8000 && m.high[i] == naive_high(x[i]), "%08x rounds to %04x",
                  to_bits(x[i]), m.high[i]);
    }
  }
  free(x), free(back), free(m.high), free(m.low);
}

/* Every optimizer, for 20 steps: parameters in halves are those in f32, bit for bit. */
Test(flat, halves_train_alike) {
  enum { N = 5003 };
  for (int kind = 0; kind < ZK_OPTIMIZERS; kind++) {
    if (zk_optimizer_info[kind].matrices) continue; /* makes momenta */
    float *x[2][4], *g = normals(N, 6, 0.5);
    uint16_t *high = malloc(N * sizeof *high);
    for (int half = 0; half < 2; half++) {
      for (int i = 0; i < 4; i++) x[half][i] = normals(N, 7, i ? 0 : 1);
      By p = {.lr = 0.01f,
              .b1 = 0.9f,
              .b2 = 0.95f,
              .eps = 1e-6f,
              .momentum = 0.9f,
              .decay = 0.1f,
              .scale = 0.7f,
              .third = x[half][3]};
      for (p.step = 1; p.step <= 20; p.step++)
        cpu_by(&(ZkEnv){.pool = pool[half]}, (ZkOptimizerKind)kind, &p, N, g, x[half][0], IN_F32(x[half][1]),
               IN_F32(x[half][2]), half ? high : NULL);
    }
    cr_assert(!memcmp(x[0][0], x[1][0], N * sizeof(float)), "%s", zk_optimizer_info[kind].word);
    for (int i = 0; i < 8; i++) free(x[i / 4][i % 4]);
    free(g), free(high);
  }
}

/* f64 sums, so only the last digits may differ; and the same bits for any number of threads. */
Test(flat, sumsq) {
  EACH_LENGTH(n) {
    float *x = normals(n, 3, 2);
    double want = 0, got[2];
    for (int64_t i = 0; i < n; i++) want += (double)x[i] * (double)x[i];
    for (int p = 0; p < 2; p++) got[p] = zk_cpu_sumsq(&(ZkEnv){.pool = pool[p]}, n, x);
    cr_assert(fabs(got[0] - want) <= 1e-12 * want, "%.17g, not %.17g", got[0], want);
    cr_assert(got[0] == got[1], "1 thread %.17g, 3 threads %.17g", got[0], got[1]);
    free(x);
  }
}

/* Squares beyond f32's range: gradients that blew up must give a finite norm. */
Test(flat, sumsq_range) {
  float x[] = {1e30f, 1e30f, 1e-30f};
  double got = zk_cpu_sumsq(&(ZkEnv){.pool = pool[0]}, 3, x), want = 2 * (double)x[0] * (double)x[0];
  cr_assert(fabs(got - want) <= 1e-12 * want);
}

Test(flat, axpy) {
  for (int p = 0; p < 2; p++) EACH_LENGTH(n) {
      float *x = normals(n, 4, 1), *y = normals(n, 5, 1), *old = normals(n, 5, 1);
      zk_cpu_axpy(&(ZkEnv){.pool = pool[p]}, n, 0.3f, x, y);
      for (int64_t i = 0; i < n; i++) {
        double want = (double)old[i] + (double)0.3f * (double)x[i];
        EACH_ASSERT(fabs((double)y[i] - want) <= 1.2e-7 * (fabs((double)old[i]) + fabs((double)x[i])),
                    "%.9g, not %.9g", (double)y[i], want);
      }
      cr_assert(y[n] == MARK);
      free(x), free(y), free(old);
    }
}

/* w moves by about lr a step, from some ten operations: 1e-6 of that, and the rounding of w itself. */
static bool close_to(float got, double want, double step) {
  return fabs((double)got - want) <= 1.2e-7 * fabs(want) + 2e-6 * step;
}

static void check_adamw(ZkEnv *env, int64_t n, bool half) {
  float *g = normals(n, 6, 0.5), *w = normals(n, 7, 1), *m = normals(n, 8, 0.1), *v = normals(n, 9, 0.1);
  double *dw = malloc((size_t)(3 * n + 1) * sizeof *dw), *dm = dw + n, *dv = dm + n;
  uint16_t *w16 = malloc((size_t)(n + 1) * sizeof *w16);
  w16[n] = 77;
  for (int64_t i = 0; i < n; i++) {
    v[i] = v[i] * v[i];
    dw[i] = (double)w[i], dm[i] = (double)m[i], dv[i] = (double)v[i];
  }
  By p = {.lr = 0.01f, .b1 = 0.9f, .b2 = 0.95f, .eps = 1e-6f, .decay = 0.1f, .scale = 0.7f, .step = 3};
  for (int step = 0; step < 3; step++, p.step++) {
    by_adamw(env, &p, n, g, w, m, v, half ? w16 : NULL);
    double c1 = 1 - pow((double)p.b1, (double)p.step), c2 = 1 - pow((double)p.b2, (double)p.step);
    for (int64_t i = 0; i < n; i++) {
      double gi = (double)p.scale * (double)g[i];
      dm[i] = (double)p.b1 * dm[i] + (1 - (double)p.b1) * gi;
      dv[i] = (double)p.b2 * dv[i] + (1 - (double)p.b2) * gi * gi;
      dw[i] -= (double)p.lr * (dm[i] / c1 / (sqrt(dv[i] / c2) + (double)p.eps) + (double)p.decay * dw[i]);
    }
  }
  for (int64_t i = 0; i < n; i++) {
    EACH_ASSERT(close_to(w[i], dw[i], 0.3), "w[%lld] = %.9g, not %.9g", (long long)i, (double)w[i], dw[i]);
    EACH_ASSERT(close_to(m[i], dm[i], 0.5) && close_to(v[i], dv[i], 0.5), "moments at %lld", (long long)i);
    EACH_ASSERT(!half || w16[i] == naive_high(w[i]), "bf16 copy at %lld", (long long)i);
  }
  cr_assert(w[n] == MARK && m[n] == MARK && v[n] == MARK && w16[n] == 77);
  free(g), free(w), free(m), free(v), free(dw), free(w16);
}

Test(flat, adamw) {
  for (int p = 0; p < 2; p++) EACH_LENGTH(n) {
      check_adamw(&(ZkEnv){.pool = pool[p]}, n, false);
      check_adamw(&(ZkEnv){.pool = pool[p]}, n, true);
    }
}

/* The first step of a fresh state moves every element by lr, whatever the size of its gradient. */
Test(flat, adamw_first_step) {
  float g[] = {1e-12f, 3, -50, 0}, w[] = {1, 1, 1, 1}, m[4] = {0}, v[4] = {0};
  By p = {.lr = 0.01f, .b1 = 0.9f, .b2 = 0.95f, .eps = 0, .decay = 0, .scale = 1, .step = 1};
  by_adamw(&(ZkEnv){.pool = pool[0]}, &p, 3, g, w, m, v, NULL);
  cr_assert(fabsf(w[0] - 0.99f) < 1e-6f && fabsf(w[1] - 0.99f) < 1e-6f && fabsf(w[2] - 1.01f) < 1e-6f &&
            w[3] == 1);
}

Test(flat, sgd) {
  for (int p = 0; p < 2; p++) EACH_LENGTH(n) {
      for (int momentum = 0; momentum < 2; momentum++) {
        float *g = normals(n, 10, 1), *w = normals(n, 11, 1), *old = normals(n, 11, 1),
              *m = normals(n, 12, 1), *was = normals(n, 12, 1);
        uint16_t *w16 = malloc((size_t)(n + 1) * sizeof *w16);
        By s = {.lr = 0.1f, .momentum = momentum ? 0.9f : 0, .decay = 0.01f, .scale = 0.5f};
        by_sgd(&(ZkEnv){.pool = pool[p]}, &s, n, g, w, momentum ? m : NULL, w16);
        for (int64_t i = 0; i < n; i++) {
          double d = (double)s.scale * (double)g[i];
          if (momentum) d += (double)s.momentum * (double)was[i];
          double want = (double)old[i] - (double)s.lr * (d + (double)s.decay * (double)old[i]);
          EACH_ASSERT(close_to(w[i], want, 0.3), "w[%lld]", (long long)i);
          EACH_ASSERT(!momentum || close_to(m[i], d, 1), "m[%lld]", (long long)i);
          EACH_ASSERT(w16[i] == naive_high(w[i]), "bf16 copy at %lld", (long long)i);
        }
        cr_assert(w[n] == MARK && m[n] == MARK);
        free(g), free(w), free(old), free(m), free(was), free(w16);
      }
    }
}

Test(flat, lion) {
  for (int p = 0; p < 2; p++) EACH_LENGTH(n) {
      float *g = normals(n, 10, 1), *w = normals(n, 11, 1), *old = normals(n, 11, 1), *m = normals(n, 12, 1),
            *was = normals(n, 12, 1);
      uint16_t *w16 = malloc((size_t)(n + 1) * sizeof *w16);
      By l = {.lr = 0.1f, .b1 = 0.9f, .b2 = 0.75f, .decay = 0.01f, .scale = 0.5f};
      if (n) g[n / 2] = m[n / 2] = was[n / 2] = 0; /* has no sign */
      by_lion(&(ZkEnv){.pool = pool[p]}, &l, n, g, w, m, w16);
      for (int64_t i = 0; i < n; i++) {
        double d = (double)l.scale * (double)g[i], c = (double)l.b1 * (double)was[i] + (1 - (double)l.b1) * d;
        double sign = (c > 0) - (c < 0), keep = 1 - (double)l.lr * (double)l.decay;
        if (fabs(c) < 1e-7 && i != n / 2) continue; /* rounding decides */
        EACH_ASSERT(close_to(w[i], keep * (double)old[i] - (double)l.lr * sign, 0.3), "w[%lld]",
                    (long long)i);
        EACH_ASSERT(close_to(m[i], (double)l.b2 * (double)was[i] + (1 - (double)l.b2) * d, 1), "m[%lld]",
                    (long long)i);
        EACH_ASSERT(w16[i] == naive_high(w[i]), "bf16 copy at %lld", (long long)i);
      }
      cr_assert(w[n] == MARK && m[n] == MARK);
      free(g), free(w), free(old), free(m), free(was), free(w16);
    }
}

Test(flat, update) {
  for (int p = 0; p < 2; p++) EACH_LENGTH(n) {
      float *g = normals(n, 10, 1), *w = normals(n, 11, 1), *old = normals(n, 11, 1);
      uint16_t *w16 = malloc((size_t)(n + 1) * sizeof *w16);
      ZkMaster halves = in_halves(n, w, w16, malloc((size_t)(n + 1) * sizeof(int16_t)));
      cr_assert(zk_cpu_update_state(&(ZkEnv){.pool = pool[p]}, &mixed, n, g, halves));
      zk_cpu_join(&(ZkEnv){.pool = pool[p]}, halves, n, w);
      for (int64_t i = 0; i < n; i++) {
        double want = 0.75 * (double)old[i] + (g[i] > 1 ? 1 : g[i] < 1 ? -1 : 0);
        EACH_ASSERT(close_to(w[i], want, 0.3) && w16[i] == naive_high(w[i]), "w[%lld]", (long long)i);
      }
      cr_assert(w[n] == MARK);
      if (n) g[n / 2] = 0, w[n / 2] = INFINITY;
      cr_assert(zk_cpu_update_state(&(ZkEnv){.pool = pool[p]}, &mixed, n, g, (ZkMaster){.f32 = w}) == !n);
      free(g), free(w), free(old), free(w16), free(halves.low);
    }
}

Test(flat, average) {
  for (int p = 0; p < 2; p++) EACH_LENGTH(n) {
      float *w = normals(n, 11, 1), *a = normals(n, 12, 1), *was = normals(n, 12, 1);
      uint16_t *high = malloc((size_t)(n + 1) * sizeof *high);
      ZkMaster halves = in_halves(n, w, high, malloc((size_t)(n + 1) * sizeof(int16_t)));
      float *b = normals(n, 12, 1);
      zk_cpu_average_params(&(ZkEnv){.pool = pool[p]}, n, 0.7f, (ZkMaster){.f32 = w}, a);
      zk_cpu_average_params(&(ZkEnv){.pool = pool[p]}, n, 0.7f, halves, b);
      cr_assert(!memcmp(a, b, (size_t)(n + 1) * sizeof *a));
      free(b), free(high), free(halves.low);
      for (int64_t i = 0; i < n; i++) {
        double want = (double)0.7f * (double)was[i] + (1 - (double)0.7f) * (double)w[i];
        EACH_ASSERT(close_to(a[i], want, 1), "a[%lld]", (long long)i);
      }
      cr_assert(w[n] == MARK && a[n] == MARK);
      free(w), free(a), free(was);
    }
}

/* One value that does not stay finite: a gradient, its square, or what it makes of w. */
Test(flat, lost) {
  enum { N = 70001 };
  /* The square of 1e25 is not finite, 30 * 3e38 neither. */
  const float bad[] = {1, NAN, INFINITY, -INFINITY, 1e25f, 3e38f};
  for (int p = 0; p < 2; p++)
    for (int64_t at = 0; at < N; at += at_night() ? 14000 : 70000) /* 70000 is the last */
      for (int i = 0; i < 6; i++) {
        float *g = normals(N, 10, 1), *w = normals(N, 11, 1), *x = normals(N, 11, 1), *m = normals(N, 12, 0),
              *v = normals(N, 12, 0);
        By a = {.lr = 0.01f, .b1 = 0.9f, .b2 = 0.95f, .eps = 1e-6f, .scale = 1, .step = 1};
        ZkEnv env = {.pool = pool[p]};
        g[at] = bad[i];
        bool adamw = by_adamw(&env, &a, N, g, w, m, v, NULL),
             plain = by_sgd(&env, &(By){.lr = 30, .scale = 1}, N, g, x, NULL, NULL);
        cr_assert(adamw == (i == 0) && plain == (i == 0 || i == 4), "%g at %d: adamw %d, sgd %d",
                  (double)bad[i], (int)at, adamw, plain);
        memset(m, 0, N * sizeof *m);
        cr_assert(by_sgd(&env, &(By){.lr = 30, .scale = 1}, N, g, v, m, NULL) == false || i == 0 || i == 4);
        free(g), free(w), free(x), free(m), free(v);
      }
}

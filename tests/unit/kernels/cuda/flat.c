/* CUDA kernels on flat buffers: bit for bit as the CPU's where both only round once, else within the roundings
 * of f64 loops. Lengths around pieces of four and blocks; buffers at multiples of 16 bytes and not. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/cuda/optimize.h"
#include "tests/unit/kernels/conform.h"
#include "tests/unit/kernels/update.h"

static const int64_t length[] = {0, 1, 3, 4, 7, 1023, 4097, 20003};
#define EACH_LENGTH(n)                                                                                       \
  for (size_t l_ = 0; l_ < 2 * (sizeof length / sizeof *length); l_++)                                       \
    for (int64_t n = length[l_ / 2], shift = (int64_t)(l_ % 2), once_ = 1; once_; once_ = 0)

/* All memory that kernels see: both sides have it until the test ends. */
static ZkEnv env;
static void *kept[8192];
static int nkept;
static void *keep(size_t bytes) {
  cr_assert(nkept < (int)(sizeof kept / sizeof *kept));
  return kept[nkept++] = memory_new(bytes);
}
static void stop(void) {
  while (nkept) memory_free(kept[--nkept]);
}
TestSuite(flat, .fini = stop);

/* Makes the call, which is done then. */
#define DO(call)                                                                                             \
  do {                                                                                                       \
    backend.open(&env, 0);                                                                                   \
    call;                                                                                                    \
    backend.close(&env);                                                                                     \
  } while (0)

static double *numbers(int n, const double *x) {
  return memcpy(keep((size_t)n * sizeof *x), x, (size_t)n * sizeof *x);
}
static double *number(double x) { return numbers(1, &x); }

#define MARK 12345.0f
#define ALWAYS                                                                                               \
  (ZkIfSound) { NULL, 0, NULL, 0 }
/* Memory for n floats, `shift` elements after a multiple of 16 bytes, and one more that nobody may touch. */
typedef struct {
  float *x;
  uint16_t *h; /* the same memory */
} Mem;

static Mem take(int64_t n, int64_t shift) {
  float *block = keep((size_t)(n + 8) / 4 * 16);
  return (Mem){block + shift, (uint16_t *)block + shift};
}

static Mem normals(int64_t n, int64_t shift, uint64_t stream, double scale) {
  Mem m = take(n, shift);
  for (int64_t i = 0; i < n; i++) m.x[i] = (float)(scale * zb_random_normal(3, stream, (uint64_t)i));
  m.x[n] = MARK;
  return m;
}

static Mem halves(int64_t n, int64_t shift) {
  Mem m = take(n, shift);
  m.h[n] = 77;
  return m;
}

/* Parameters as what updates them has them: in f32, or, with room for the high ones, in halves. */
static ZkMaster master_of(int64_t n, int64_t shift, float *w, uint16_t *high) {
  return high ? in_halves(n, w, high, (int16_t *)halves(n, shift).h) : (ZkMaster){.f32 = w};
}
/* Within a DO: what a call on halves has made. */
static void join(ZkMaster m, int64_t n, float *w) {
  if (m.f32) return;
  backend.close(&env);
  zk_cpu_join(&(ZkEnv){0}, m, n, w);
  backend.open(&env, 0);
}

/* As the tests call them; of SGD without a momentum m is NULL. */
static void cuda_by(const ZkEnv *e, ZkOptimizerKind kind, const By *p, const double *squares, float most,
                    int64_t n, const float *g, float *w, float *m, float *v, uint16_t *w16, double *lost,
                    ZkIfSound sums) {
  static float s[ZK_MOST_SCALARS];
  ZkOptimizer x = call_by(kind, p, IN_F32(m), IN_F32(v), s);
  ZkMaster all = master_of(n, (uintptr_t)w16 % 16 != 0, w, w16);
  zk_cuda_optimize(e, &x, squares, most, n, IN_F32((void *)(uintptr_t)g), all, lost, sums);
  join(all, n, w);
}
static void cuda_adamw(const ZkEnv *e, const By *p, const double *squares, float most, int64_t n,
                       const float *g, float *w, float *m, float *v, uint16_t *w16, double *lost,
                       ZkIfSound sums) {
  cuda_by(e, ZK_BY_ADAMW, p, squares, most, n, g, w, m, v, w16, lost, sums);
}
static void cuda_sgd(const ZkEnv *e, const By *p, const double *squares, float most, int64_t n,
                     const float *g, float *w, float *m, uint16_t *w16, double *lost, ZkIfSound sums) {
  cuda_by(e, sgd_of(m), p, squares, most, n, g, w, m, NULL, w16, lost, sums);
}
static void cuda_lion(const ZkEnv *e, const By *p, const double *squares, float most, int64_t n,
                      const float *g, float *w, float *m, uint16_t *w16, double *lost, ZkIfSound sums) {
  cuda_by(e, ZK_BY_LION, p, squares, most, n, g, w, m, NULL, w16, lost, sums);
}

Test(flat, bf16) {
  EACH_LENGTH(n) {
    Mem x = normals(n, shift, 1, 1), back = normals(n, shift, 2, 1), y = halves(n, shift);
    DO(zk_cuda_to_bf16(&env, n, x.x, y.h));
    DO(zk_cuda_from_bf16(&env, n, y.h, back.x));
    for (int64_t i = 0; i < n; i++) {
      uint32_t bits;
      memcpy(&bits, &back.x[i], 4);
      EACH_ASSERT(y.h[i] == zb_f32_to_bf16(x.x[i]), "%.9g became %04x", (double)x.x[i], y.h[i]);
      EACH_ASSERT(bits == (uint32_t)y.h[i] << 16, "%04x became %.9g", y.h[i], (double)back.x[i]);
    }
    cr_assert(y.h[n] == 77 && back.x[n] == MARK);
  }
}

Test(flat, bf16_edges) {
  static const uint32_t bits[] = {0x00000000, 0x80000000, 0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff,
                                  0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x00000001, 0x00008000,
                                  0x00018000, 0x007fffff, 0x7fffffff, 0x7f800001};
  enum { N = sizeof bits / sizeof *bits };
  float *x = keep(sizeof bits);
  uint16_t *y = keep(N * sizeof *y);
  memcpy(x, bits, sizeof bits);
  DO(zk_cuda_to_bf16(&env, N, x, y));
  for (int i = 0; i < N - 2; i++) cr_assert(y[i] == zb_f32_to_bf16(x[i]), "%08x: %04x", bits[i], y[i]);
  for (int i = N - 2; i < N; i++)
    cr_assert((y[i] & 0x7f80) == 0x7f80 && (y[i] & 0x7f), "NaN became %04x", y[i]);
}

/* f64 sums: only the last digits may differ. Around 16 blocks' chunks, and many chunks. */
Test(flat, sumsq) {
  EACH_LENGTH(n) {
    Mem x = normals(n, shift, 3, 2);
    double want = 0, *sum = number(5), got;
    for (int64_t i = 0; i < n; i++) want += (double)x.x[i] * (double)x.x[i];
    DO(zk_cuda_sumsq(&env, n, x.x, sum, false));
    got = *sum;
    DO(zk_cuda_sumsq(&env, n, x.x, sum, true));
    cr_assert(fabs(got - want) <= 1e-12 * want, "%.17g, not %.17g", got, want);
    cr_assert(*sum == 2 * got);
  }
}

/* What clips a gradient of 1 to the norm `most`, seen in what SGD subtracts from 0. */
Test(flat, clip) {
  double *square = numbers(5, (double[]){0, 4, 100, 1e60, NAN});
  float got[5], *g = keep(sizeof *g), *w = keep(sizeof *w);
  By s = {.lr = 1, .scale = 1};
  for (int i = 0; i < 5; i++) {
    *g = 1, *w = 0;
    DO(cuda_sgd(&env, &s, &square[i], 2, 1, g, w, NULL, NULL, NULL, ALWAYS));
    got[i] = -*w;
  }
  cr_assert(got[0] == 1 && fabsf(got[1] - 1) < 1e-6f && fabsf(got[2] - 0.2f) < 1e-7f && got[3] > 0 &&
            got[3] < 1e-29f && isnan(got[4]));
  cr_assert(got[1] < 1); /* 2 / (2 + 1e-6) */
}

Test(flat, scalars) {
  double *sum = number(1), *x = numbers(3, (double[]){4, 0, -1});
  float *a = keep(sizeof *a), *y = keep(3 * sizeof *y);
  *a = 0.5f;
  DO(zk_cuda_add_scalar(&env, a, sum));
  for (int i = 0; i < 3; i++) DO(zk_cuda_reciprocal(&env, &x[i], &y[i]));
  cr_assert(*sum == 1.5 && y[0] == 0.25f && y[1] == 0 && y[2] == 0);
}

/* Every bit counts, wherever it is, and so does its place; how the memory is aligned does not. */
static uint64_t digest_of(const void *p, size_t bytes, uint64_t salt) {
  uint64_t *sum = keep(sizeof *sum);
  *sum = 5;
  DO(zk_cuda_digest(&env, p, bytes, salt, sum));
  return *sum - 5;
}
Test(flat, digest) {
  static const size_t sizes[] = {1, 2, 7, 8, 9, 64, 1001, 16384, 40002};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    size_t n = sizes[i];
    unsigned char *p = keep(n + 8), *shifted = keep(n + 8);
    for (size_t k = 0; k < n; k++) p[k] = shifted[k + 3] = (unsigned char)(k * k + 7 * k);
    uint64_t whole = digest_of(p, n, 1);
    cr_expect(whole == digest_of(shifted + 3, n, 1) && whole != digest_of(p, n, 2), "%zu bytes", n);
    for (size_t at = 0; at < n; at += n / 3 + 1) {
      p[at] ^= (unsigned char)(1 << at % 8);
      cr_expect_neq(whole, digest_of(p, n, 1), "%zu bytes: a bit of number %zu", n, at);
      p[at] ^= (unsigned char)(1 << at % 8);
    }
    p[n] = 77;
    cr_expect_eq(whole, digest_of(p, n, 1), "%zu bytes: what is behind them", n);
    if (n < 64) continue;
    memcpy(p + 8, shifted + 3, 8), memcpy(p, shifted + 3 + 8, 8);
    cr_expect_neq(whole, digest_of(p, n, 1), "%zu bytes: two words in each other's place", n);
  }
}

Test(flat, axpy_and_zero) {
  EACH_LENGTH(n) {
    Mem x = normals(n, shift, 4, 1), y = normals(n, shift, 5, 1), old = normals(n, 0, 5, 1);
    DO(zk_cuda_axpy(&env, n, 0.3f, x.x, y.x));
    for (int64_t i = 0; i < n; i++) {
      double want = (double)old.x[i] + (double)0.3f * (double)x.x[i];
      EACH_ASSERT(fabs((double)y.x[i] - want) <= 1.2e-7 * (fabs((double)old.x[i]) + fabs((double)x.x[i])),
                  "%.9g, not %.9g", (double)y.x[i], want);
    }
    DO(zk_cuda_zero(&env, x.x, (size_t)n * 4));
    for (int64_t i = 0; i < n; i++) EACH_ASSERT(x.x[i] == 0, "not zero");
    cr_assert(y.x[n] == MARK && x.x[n] == MARK);
  }
}

/* w moves by about lr a step, from some ten operations: 2e-6 of that, and the rounding of w itself. */
static bool close_to(float got, double want, double step) {
  return fabs((double)got - want) <= 1.2e-7 * fabs(want) + 2e-6 * step;
}

static void check_adamw(int64_t n, int64_t shift, bool half) {
  Mem g = normals(n, shift, 6, 0.5), w = normals(n, shift, 7, 1), m = normals(n, shift, 8, 0.1),
      v = normals(n, shift, 9, 0.1), g0 = normals(n, 0, 6, 0.5), w16 = halves(n, shift);
  double *dw = malloc((size_t)(3 * n + 1) * sizeof *dw), *dm = dw + n, *dv = dm + n;
  for (int64_t i = 0; i < n; i++) {
    v.x[i] = v.x[i] * v.x[i];
    dw[i] = (double)w.x[i], dm[i] = (double)m.x[i], dv[i] = (double)v.x[i];
  }
  By p = {.lr = 0.01f, .b1 = 0.9f, .b2 = 0.95f, .eps = 1e-6f, .decay = 0.1f, .scale = 0.7f, .step = 3};
  double *square = number(16), *lost = number(0); /* a norm of 4, clipped to 2 */
  DO(cuda_adamw(&env, &p, half ? square : NULL, 2, n, g.x, w.x, m.x, v.x, half ? w16.h : NULL, lost, ALWAYS));
  double c1 = 1 - pow((double)p.b1, (double)p.step), c2 = 1 - pow((double)p.b2, (double)p.step);
  for (int64_t i = 0; i < n; i++) {
    double gi = (double)p.scale * (half ? 2 / (4 + 1e-6) : 1) * (double)g0.x[i];
    dm[i] = (double)p.b1 * dm[i] + (1 - (double)p.b1) * gi;
    dv[i] = (double)p.b2 * dv[i] + (1 - (double)p.b2) * gi * gi;
    dw[i] -= (double)p.lr * (dm[i] / c1 / (sqrt(dv[i] / c2) + (double)p.eps) + (double)p.decay * dw[i]);
    EACH_ASSERT(close_to(w.x[i], dw[i], 0.1), "w[%lld] = %.9g, not %.9g", (long long)i, (double)w.x[i],
                dw[i]);
    EACH_ASSERT(close_to(m.x[i], dm[i], 0.5) && close_to(v.x[i], dv[i], 0.5), "moments at %lld",
                (long long)i);
    EACH_ASSERT(!half || w16.h[i] == high_half(w.x[i]), "bf16 copy at %lld", (long long)i);
    EACH_ASSERT(g.x[i] == g0.x[i], "gradient at %lld", (long long)i);
  }
  cr_assert(w.x[n] == MARK && m.x[n] == MARK && v.x[n] == MARK && g.x[n] == MARK && w16.h[n] == 77);
  cr_assert(*lost == 0);
  free(dw);
}

/* One value that does not stay finite, in the pieces of four or after them: a gradient, its square, or what
 * it makes of w. */
Test(flat, lost) {
  enum { N = 1003 };
  /* The square of 1e25 is not finite, 30 * 3e38 neither. */
  const float bad[] = {1, NAN, INFINITY, -INFINITY, 1e25f, 3e38f};
  for (int64_t at = 0; at < N; at += 167) /* 1002 is the last */
    for (int i = 0; i < 6; i++) {
      Mem g = normals(N, 0, 6, 0.5), w = normals(N, 0, 7, 1), m = normals(N, 0, 8, 0),
          v = normals(N, 0, 8, 0);
      double *adam = number(0), *sgd = number(0);
      By a = {.lr = 0.01f, .b1 = 0.9f, .b2 = 0.95f, .eps = 1e-6f, .scale = 1, .step = 1};
      g.x[at] = bad[i];
      DO(cuda_sgd(&env, &(By){.lr = 30, .scale = 1}, NULL, 0, N, g.x, w.x, NULL, NULL, sgd, ALWAYS));
      DO(cuda_adamw(&env, &a, NULL, 0, N, g.x, w.x, m.x, v.x, NULL, adam, ALWAYS));
      cr_assert(*sgd == (i != 0 && i != 4) && *adam == (i != 0), "%g at %d: sgd %g, adamw %g", (double)bad[i],
                (int)at, *sgd, *adam);
    }
}

static bool same(const Mem *a, const Mem *b, int64_t n) {
  return !memcmp(a->x, b->x, (size_t)(n + 1) * sizeof *a->x);
}

/* Whatever the gradients are: unless all sums are finite, every bit stays, of padding between fours too. */
Test(flat, no_update) {
  enum { N = 1003, SUMS = 4 };
  const float bad[] = {NAN, INFINITY, -INFINITY, 0};
  for (int at = 0; at < SUMS; at++)
    for (int i = 0; i < 4; i++) {
      Mem g = normals(N, at & 1, 6, 0.5), w = normals(N, at & 1, 7, 1), m = normals(N, at & 1, 8, 0.1),
          v = normals(N, at & 1, 8, 0), w0 = normals(N, 0, 7, 1), m0 = normals(N, 0, 8, 0.1),
          v0 = normals(N, 0, 8, 0), g0 = normals(N, 0, 6, 0.5), w16 = halves(N, 0);
      double *sum = numbers(SUMS, (double[]){3, 0, 1e300, 7}), *lost = number(0);
      sum[at] += (double)bad[i];
      ZkIfSound sums = {sum, SUMS, NULL, 0};
      By a = {.lr = 0.01f, .b1 = 0.9f, .b2 = 0.95f, .eps = 1e-6f, .scale = 1, .step = 1};
      DO(cuda_adamw(&env, &a, &sum[2], 1, N, g.x, w.x, m.x, v.x, w16.h, lost, sums));
      bool untouched = same(&w, &w0, N) && same(&m, &m0, N) && same(&v, &v0, N) && same(&g, &g0, N);
      for (int k = 0; k < N; k++) untouched &= w16.h[k] == high_half(w0.x[k]);
      cr_assert(untouched == (bad[i] != 0) && *lost == 0, "adamw, %g in sum %d", (double)bad[i], at);
      memcpy(w.x, w0.x, N * sizeof *w.x);
      memcpy(m.x, m0.x, N * sizeof *m.x);
      memcpy(g.x, g0.x, N * sizeof *g.x);
      DO(cuda_sgd(&env, &(By){.lr = 30, .momentum = 0.9f, .scale = 1}, NULL, 0, N, g.x, w.x, m.x, NULL, lost,
                  sums));
      untouched = same(&w, &w0, N) && same(&m, &m0, N) && same(&g, &g0, N);
      cr_assert(untouched == (bad[i] != 0) && *lost == 0, "sgd, %g in sum %d", (double)bad[i], at);
    }
}

/* Nor is anything done by what losses are divided by. */
Test(flat, divisors) {
  static const struct {
    double x[2];
    int n;
    bool updates;
  } cases[] = {
      {{0, 0}, 0, true}, {{0, 2}, 1, false}, {{0, 2}, 2, true}, {{0, 0}, 2, false}, {{2, -1}, 2, false}};
  enum { N = 5 };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ZkIfSound sums = {number(1), 1, numbers(2, cases[i].x), cases[i].n};
    By adam = {.lr = 0.01f, .b1 = 0.9f, .b2 = 0.95f, .eps = 1e-6f, .scale = 1, .step = 1};
    By sgd = {.lr = 30, .momentum = 0.9f, .scale = 1};
    By lion = {.lr = 0.1f, .b1 = 0.9f, .b2 = 0.75f, .scale = 1};
    for (int which = 0; which < 5; which++) {
      Mem g = normals(N, 0, 6, 0.5), w = normals(N, 0, 7, 1), m = normals(N, 0, 8, 0.1),
          v = normals(N, 0, 9, 0), w0 = normals(N, 0, 7, 1), m0 = normals(N, 0, 8, 0.1);
      switch (which) {
      case 0: DO(cuda_adamw(&env, &adam, NULL, 0, N, g.x, w.x, m.x, v.x, NULL, NULL, sums)); break;
      case 1: DO(cuda_sgd(&env, &sgd, NULL, 0, N, g.x, w.x, m.x, NULL, NULL, sums)); break;
      case 2: DO(cuda_lion(&env, &lion, NULL, 0, N, g.x, w.x, m.x, NULL, NULL, sums)); break;
      case 3: DO(zk_cuda_update_state(&env, &mixed, N, g.x, (ZkMaster){.f32 = w.x}, NULL, sums)); break;
      default: DO(zk_cuda_average_params(&env, N, 0.7f, (ZkMaster){.f32 = g.x}, w.x, sums));
      }
      cr_assert_eq(same(&w, &w0, N) && same(&m, &m0, N), !cases[i].updates, "%d, case %zu", which, i);
    }
  }
}

Test(flat, adamw) {
  EACH_LENGTH(n) {
    check_adamw(n, shift, false);
    check_adamw(n, shift, true);
  }
}

Test(flat, lion) {
  EACH_LENGTH(n) {
    for (int clip = 0; clip < 2; clip++) {
      Mem g = normals(n, shift, 10, 1), w = normals(n, shift, 11, 1), m = normals(n, shift, 12, 1),
          w16 = halves(n, shift), w0 = normals(n, 0, 11, 1), g0 = normals(n, 0, 10, 1),
          m0 = normals(n, 0, 12, 1);
      By l = {.lr = 0.1f, .b1 = 0.9f, .b2 = 0.75f, .decay = 0.01f, .scale = 0.5f};
      double *square = number(64), *lost = number(0); /* a norm of 8, clipped to 2 */
      DO(cuda_lion(&env, &l, clip ? square : NULL, 2, n, g.x, w.x, m.x, w16.h, lost, ALWAYS));
      cr_assert(*lost == 0);
      for (int64_t i = 0; i < n; i++) {
        double d = (clip ? 0.5 * 2 / (8 + 1e-6) : 0.5) * (double)g0.x[i];
        double c = (double)l.b1 * (double)m0.x[i] + (1 - (double)l.b1) * d, sign = (c > 0) - (c < 0);
        double want = (1 - (double)l.lr * (double)l.decay) * (double)w0.x[i] - (double)l.lr * sign;
        if (fabs(c) < 1e-7) continue; /* rounding decides */
        EACH_ASSERT(close_to(w.x[i], want, 0.3), "w[%lld]", (long long)i);
        EACH_ASSERT(close_to(m.x[i], (double)l.b2 * (double)m0.x[i] + (1 - (double)l.b2) * d, 1), "m[%lld]",
                    (long long)i);
        EACH_ASSERT(w16.h[i] == high_half(w.x[i]), "bf16 copy at %lld", (long long)i);
        EACH_ASSERT(g.x[i] == g0.x[i], "gradient at %lld", (long long)i);
      }
      cr_assert(w.x[n] == MARK && m.x[n] == MARK && g.x[n] == MARK && w16.h[n] == 77);
    }
  }
}

Test(flat, update) {
  EACH_LENGTH(n) {
    Mem g = normals(n, shift, 10, 1), w = normals(n, shift, 11, 1), w16 = halves(n, shift),
        w0 = normals(n, 0, 11, 1);
    double *lost = number(0), *sum = number(INFINITY);
    ZkMaster all = master_of(n, shift, w.x, w16.h);
    DO(zk_cuda_update_state(&env, &mixed, n, g.x, all, lost, (ZkIfSound){sum, 1, NULL, 0});
       join(all, n, w.x));
    cr_assert(!memcmp(w.x, w0.x, (size_t)n * sizeof *w.x), "an update of a step that has none");
    DO(zk_cuda_update_state(&env, &mixed, n, g.x, all, lost, ALWAYS); join(all, n, w.x));
    for (int64_t i = 0; i < n; i++) {
      double want = 0.75 * (double)w0.x[i] + (g.x[i] > 1 ? 1 : g.x[i] < 1 ? -1 : 0);
      EACH_ASSERT(close_to(w.x[i], want, 0.3) && w16.h[i] == high_half(w.x[i]), "w[%lld]", (long long)i);
    }
    cr_assert(*lost == 0 && w.x[n] == MARK && w16.h[n] == 77);
    if (n) w.x[n / 2] = INFINITY;
    DO(zk_cuda_update_state(&env, &mixed, n, g.x, (ZkMaster){.f32 = w.x}, lost, ALWAYS));
    cr_assert(*lost == (n > 0));
  }
}

Test(flat, average) {
  EACH_LENGTH(n) {
    Mem w = normals(n, shift, 11, 1), a = normals(n, shift, 12, 1), a0 = normals(n, 0, 12, 1);
    double *sum = number(INFINITY);
    ZkMaster all = {.f32 = w.x};
    DO(zk_cuda_average_params(&env, n, 0.7f, all, a.x, (ZkIfSound){sum, 1, NULL, 0}));
    cr_assert(!memcmp(a.x, a0.x, (size_t)n * sizeof *a.x), "an average without an update");
    DO(zk_cuda_average_params(&env, n, 0.7f, all, a.x, ALWAYS));
    Mem b = normals(n, shift, 12, 1), high = halves(n, shift);
    DO(zk_cuda_average_params(&env, n, 0.7f, master_of(n, shift, w.x, high.h), b.x, ALWAYS));
    cr_assert(same(&a, &b, n));
    for (int64_t i = 0; i < n; i++) {
      double want = (double)0.7f * (double)a0.x[i] + (1 - (double)0.7f) * (double)w.x[i];
      EACH_ASSERT(close_to(a.x[i], want, 1), "a[%lld]", (long long)i);
    }
    cr_assert(w.x[n] == MARK && a.x[n] == MARK);
  }
}

/* The scalars of a group, out of memory. */
Test(flat, scalars_of_a_step) {
  ZkStepState *now = keep(zk_step_state_bytes(3));
  float *g = keep(3 * sizeof *g), *w = keep(3 * sizeof *w), *state = keep(3 * sizeof *state);
  const ZkOptimizerKind kinds[] = {ZK_BY_PLAIN, ZK_BY_LION, ZK_BY_ADAMW};
  const double settings[][3] = {{0}, {0.5, 0.5}, {0, 0, 1}};
  for (uint32_t k = 0; k < 3; k++) {
    g[k] = 1, w[k] = state[k] = 0;
    zk_optimizer_scalars(kinds[k], settings[k], &(ZkStepOf){2, 0, 1, true, 1}, zk_scalars_of(now, k));
  }
  env.step_state = now;
  for (uint32_t k = 0; k < 3; k++) {
    ZkOptimizer p = {.kind = kinds[k], .scale = 1, .times = 1, .group = k};
    p.state[0] = IN_F32(&state[k]), p.state[1] = IN_F32(&state[2]);
    if (k == 2) p.state[0] = IN_F32(&state[0]);
    DO(zk_cuda_optimize(&env, &p, NULL, 0, 1, IN_F32(&g[k]), (ZkMaster){.f32 = &w[k]}, NULL, ALWAYS));
  }
  cr_assert(w[0] == -2 && w[1] == -2 && w[2] == -1, "%g %g %g", (double)w[0], (double)w[1], (double)w[2]);
}

/* Every optimizer of the list does in the emulator what it does on the CPU: with states of 8 bits and in f32, decay that
 * is cautious, and gradients that are summed; to a few roundings, of codes to every bit where the values are. */
Test(flat, every_optimizer) {
  enum { N = 3 * ZK_DYN8_BLOCK };
  for (int k = 0; k < ZK_OPTIMIZERS * 8; k++) {
    ZkOptimizerKind kind = (ZkOptimizerKind)(k / 8);
    bool cautious = k & 1, codes = (k & 2) && zk_optimizer_info[kind].nstates, sums = k & 4;
    Mem g = normals(N, 0, 10, 1), w = normals(N, 0, 11, 1), w2 = normals(N, 0, 11, 1),
        sum = normals(N, 0, 12, 0), sum2 = normals(N, 0, 12, 0);
    float s[ZK_MOST_SCALARS];
    ZkOptimizer by[2];
    for (int d = 0; d < 2; d++) {
      by[d] = call_by(kind, &(By){0.01f, 0.9f, 0.95f, 1e-6f, 0.9f, 0.1f, 0.5f, 3, 1, 1, NULL}, (ZkFlat){0},
                      (ZkFlat){0}, s);
      by[d].cautious = cautious;
      by[d].sum = sums ? (d ? sum2.x : sum.x) : NULL;
      for (int i = 0; i < zk_optimizer_info[kind].nstates; i++) {
        ZkElem e = codes ? zk_optimizer_info[kind].code[i] : ZK_F32;
        by[d].state[i] = (ZkFlat){e, keep(zk_bytes(e, N))};
      }
    }
    for (int step = 0; step < 4; step++) {
      s[ZK_ACTS] = !sums || step % 2;
      cr_assert(zk_cpu_optimize(&(ZkEnv){0}, &by[0], N, IN_F32(g.x), (ZkMaster){.f32 = w.x}));
      DO(zk_cuda_optimize(&env, &by[1], NULL, 0, N, IN_F32(g.x), (ZkMaster){.f32 = w2.x}, NULL, ALWAYS));
    }
    for (int i = 0; i < N;
         i++) /* a code that falls to the other side moves an element by a part of its step */
      EACH_ASSERT(fabs((double)w.x[i] - (double)w2.x[i]) < (codes ? 1e-3 : 2e-6), "%s %d at %d: %g, %g",
                  zk_optimizer_info[kind].word, k % 8, i, (double)w.x[i], (double)w2.x[i]);
  }
}

Test(flat, swap) {
  EACH_LENGTH(n) {
    Mem x = normals(n, shift, 1, 1), y = normals(n, shift, 2, 1), x0 = normals(n, 0, 1, 1),
        y0 = normals(n, 0, 2, 1);
    DO(zk_cuda_swap_params(&env, n, (ZkMaster){.f32 = x.x}, y.x));
    cr_assert(!memcmp(x.x, y0.x, (size_t)n * 4) && !memcmp(y.x, x0.x, (size_t)n * 4));
    cr_assert(x.x[n] == MARK && y.x[n] == MARK);
    ZkMaster w = in_halves(n, x.x, halves(n, shift).h, (int16_t *)halves(n, shift).h);
    DO(zk_cuda_swap_params(&env, n, w, y.x)); /* as they were, and w in halves */
    cr_assert(!memcmp(y.x, y0.x, (size_t)n * 4));
    zk_cpu_swap_params(&(ZkEnv){0}, n, w, y.x);
    cr_assert(!memcmp(y.x, x0.x, (size_t)n * 4));
    zk_cpu_swap_params(&(ZkEnv){0}, n, (ZkMaster){.f32 = x.x}, y.x);
    cr_assert(!memcmp(x.x, x0.x, (size_t)n * 4) && !memcmp(y.x, y0.x, (size_t)n * 4));
  }
}

/* Sums of squares of rows and columns against f64 loops, on the CPU too. */
Test(flat, side_squares) {
  static const int64_t sizes[][2] = {{1, 1}, {1, 700}, {3, 5}, {33, 31}, {40, 257}, {300, 2}};
  for (int k = 0; k < 6 * 2; k++) {
    int64_t rows = sizes[k / 2][0], cols = sizes[k / 2][1], n = k & 1 ? cols : rows;
    Mem x = normals(rows * cols, k & 1, 1, 1), cpu = take(n, 0), gpu = take(n, 0);
    gpu.x[n] = MARK;
    zk_cpu_side_squares(&(ZkEnv){0}, rows, cols, x.x, k & 1, cpu.x);
    DO(zk_cuda_side_squares(&env, rows, cols, x.x, k & 1, gpu.x));
    for (int64_t i = 0; i < n; i++) {
      double want = 0;
      for (int64_t j = 0; j < rows * cols / n; j++) {
        double y = (double)x.x[k & 1 ? j * cols + i : i * cols + j];
        want += y * y;
      }
      EACH_ASSERT(close_to(cpu.x[i], want, 1) && close_to(gpu.x[i], want, 1), "%lld of %d", (long long)i, k);
    }
    cr_assert(gpu.x[n] == MARK);
  }
}

/* What rows or columns are multiplied by: the emulator's as the CPU's, which tests/scenarios/racers.sh compares with the code of
 * the papers; nothing changes where a step does not act, or its sums are not finite. */
Test(flat, side_factors) {
  enum { N = 300, COLS = 8 };
  for (int k = 0; k <= ZK_CLIPPED; k++) {
    float s[ZK_MOST_SCALARS] = {[ZK_ACTS] = 1, [ZK_MOMENTS_DECAY] = 0.75f};
    double *size = number(50), *bad = number(NAN);
    bool keeps = k == ZK_NORMALIZED || k == ZK_FACTOR || k == ZK_PLAIN;
    ZkSides p = {.kind = (ZkFactorKind)k,
                 .n = N,
                 .count = N,
                 .length = COLS,
                 .norm = 1.5,
                 .eps = 1e-30,
                 .size = size,
                 .elements = N * COLS,
                 .least = 1e-3,
                 .s = s};
    Mem x = normals(N * COLS, 0, 1, 1), y = normals(N * COLS, 0, 1, 1), a = take(N, 0), b = take(N, 0),
        v = normals(N, 0, 3, 0), v2 = normals(N, 0, 3, 0);
    for (int step = 0; step < 4; step++) {
      s[ZK_ACTS] = step != 2;
      zk_cpu_side_squares(&(ZkEnv){0}, N, COLS, x.x, false, a.x);
      memcpy(b.x, a.x, N * sizeof *b.x);
      zk_cpu_side_factors(&p, step != 3, a.x, keeps ? v.x : NULL);
      DO(zk_cuda_side_factors(&env, &p, step == 3 ? (ZkIfSound){bad, 1, NULL, 0} : ALWAYS, b.x,
                              keeps ? v2.x : NULL));
      for (int i = 0; i < N; i++) {
        EACH_ASSERT(close_to(b.x[i], (double)a.x[i], 2) && (step < 2 ? a.x[i] > 0 : a.x[i] == 0),
                    "factor %d of kind %d in step %d: %g, %g", i, k, step, (double)a.x[i], (double)b.x[i]);
        EACH_ASSERT(close_to(v2.x[i], (double)v.x[i], 2) && (v.x[i] > 0) == keeps, "moment %d", i);
      }
      if (step) continue;
      zk_cpu_side_scale(&(ZkEnv){0}, N, COLS, x.x, false, a.x);
      DO(zk_cuda_side_scale(&env, N, COLS, y.x, false, a.x));
      cr_assert(!memcmp(x.x, y.x, N * COLS * sizeof *x.x));
    }
  }
}

/* Gradients in bf16: sums, which are rounded at random, the norm, and an update by them are the CPU's. */
Test(flat, bf16_gradients) {
  EACH_LENGTH(n) {
    Mem x = normals(n, shift, 10, 1), y = halves(n, shift), y2 = halves(n, shift),
        w = normals(n, shift, 11, 1), w2 = normals(n, shift, 11, 1);
    ZkDraws d = {.key = 7, .from = 5, .first = 11, .naxes = 2, .size = {n, 13}, .stride = {40, 1}};
    for (int64_t i = 0; i < n; i++) y.h[i] = y2.h[i] = 0x3f80;
    env.step = 3;
    DO(zk_cuda_add_bf16(&env, &d, n, x.x, y.h));
    zk_cpu_add_bf16(&(ZkEnv){.step = 3}, &d, n, x.x, y2.h);
    env.step = 0;
    cr_assert(!memcmp(y.h, y2.h, (size_t)(n + 1) * sizeof *y.h));
    double *sum = number(3), want = 3 + zk_cpu_sumsq_bf16(&(ZkEnv){0}, n, y.h);
    DO(zk_cuda_sumsq_bf16(&env, n, y.h, sum));
    cr_assert(fabs(*sum - want) <= 1e-12 * want, "%.17g, not %.17g", *sum, want);
    float s[ZK_MOST_SCALARS];
    ZkOptimizer by = call_by(ZK_BY_PLAIN, &(By){.lr = 0.5f, .scale = 1}, (ZkFlat){0}, (ZkFlat){0}, s);
    DO(zk_cuda_optimize(&env, &by, NULL, 0, n, (ZkFlat){ZK_BF16, y.h}, (ZkMaster){.f32 = w.x}, NULL, ALWAYS));
    zk_cpu_optimize(&(ZkEnv){0}, &by, n, (ZkFlat){ZK_BF16, y.h}, (ZkMaster){.f32 = w2.x});
    cr_assert(same(&w, &w2, n));
  }
}

Test(flat, sgd) {
  EACH_LENGTH(n) {
    for (int momentum = 0; momentum < 2; momentum++) {
      Mem g = normals(n, shift, 10, 1), w = normals(n, shift, 11, 1), m = normals(n, shift, 12, 1),
          w16 = halves(n, shift), w0 = normals(n, 0, 11, 1), g0 = normals(n, 0, 10, 1),
          m0 = normals(n, 0, 12, 1);
      By s = {.lr = 0.1f, .momentum = momentum ? 0.9f : 0, .decay = 0.01f, .scale = 0.5f};
      double *square = number(64), *lost = number(0); /* a norm of 8, clipped to 2 */
      DO(cuda_sgd(&env, &s, momentum ? square : NULL, 2, n, g.x, w.x, momentum ? m.x : NULL, w16.h, lost,
                  ALWAYS));
      cr_assert(*lost == 0);
      for (int64_t i = 0; i < n; i++) {
        double d = (momentum ? 1 / (8 + 1e-6) : 0.5) * (double)g0.x[i];
        if (momentum) d += (double)s.momentum * (double)m0.x[i];
        double want = (double)w0.x[i] - (double)s.lr * (d + (double)s.decay * (double)w0.x[i]);
        EACH_ASSERT(close_to(w.x[i], want, 0.3), "w[%lld]", (long long)i);
        EACH_ASSERT(m.x[i] == m0.x[i] || (momentum && close_to(m.x[i], d, 1)), "m[%lld]", (long long)i);
        EACH_ASSERT(w16.h[i] == high_half(w.x[i]), "bf16 copy at %lld", (long long)i);
        EACH_ASSERT(g.x[i] == g0.x[i], "gradient at %lld", (long long)i);
      }
      cr_assert(w.x[n] == MARK && m.x[n] == MARK && g.x[n] == MARK && w16.h[n] == 77);
    }
  }
}

/* Rows of 2 to 48 bytes, by the widest accesses that their places allow. */
Test(flat, gather_rows) {
  enum { N = 700, FROM = 90 };
  static const size_t bytes[] = {2, 6, 4, 12, 16, 48};
  int32_t *map = keep(N * sizeof *map);
  for (int i = 0; i < N; i++) map[i] = i % 7 == 3 ? -1 : i * 31 % FROM;
  for (size_t b = 0; b < 2 * (sizeof bytes / sizeof *bytes); b++) {
    size_t row = bytes[b / 2], shift = b % 2 && row % 16 ? 4 : 0;
    Mem from = normals(FROM * 12 + 4, 0, 1, 1), to = normals(N * 12 + 4, 0, 2, 1);
    const char *x = (const char *)from.x + shift;
    char *y = (char *)to.x + shift, zeros[48] = {0};
    float behind;
    memcpy(&behind, y + N * row, sizeof behind);
    DO(zk_cuda_gather_rows(&env, N, row, map, x, y));
    for (int i = 0; i < N; i++)
      EACH_ASSERT(!memcmp(y + (size_t)i * row, map[i] < 0 ? zeros : x + (size_t)map[i] * row, row),
                  "row %d of %zu bytes", i, row);
    cr_assert(!memcmp(&behind, y + N * row, sizeof behind));
  }
}

/* Muon: momentum, orthogonalisation, update. */
#include <math.h>

#include "kernels/cpu/cpu.h"

#define GRAIN 32768

typedef struct {
  const ZkMuon *p;
  const float *g, *u;
  float *m, *out, *w;
  uint16_t *w16;
  bool lost; /* something is not finite */
} Flat;

/* ---- momentum ---- */
ZK_SIMD static void momentum(int64_t n, const float *g, float *m, float *u, float scale, float keep,
                             float again, float fresh) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    float gi = g[i] * scale, mi = keep * m[i] + gi;
    m[i] = mi;
    u[i] = fresh * gi + again * mi;
  }
}

static void run_momentum(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Flat *f = arg;
  const ZkMuon *p = f->p;
  momentum(to - from, f->g + from, f->m + from, f->out + from, p->scale, p->momentum,
           p->nesterov ? p->momentum : 1, p->nesterov ? 1 : 0);
}

void zk_cpu_muon_momentum(const ZkEnv *env, const ZkMuon *p, int64_t n, const float *g, float *m, float *u) {
  Flat f = {.p = p, .g = g, .m = m, .out = u};
  zk_for(env, n, GRAIN, run_momentum, &f);
}

/* ---- orthogonalisation: the products are those of `dot`, by the BLAS ---- */
enum { ROW, COL, ROW2 }; /* axes; that of rows under two names */

static ZkView matrix(float *data, uint16_t slow, int64_t n, uint16_t fast, int64_t m) {
  return (ZkView){.data = data,
                  .elem = ZK_F32,
                  .rank = 2,
                  .axis = {slow, fast},
                  .size = {n, m},
                  .stride = {m, 1},
                  .whole = {n, m}};
}

/* out = x y, summed over `axis`, which both have. */
static void multiply(const ZkEnv *env, ZkView x, ZkView y, uint16_t axis, ZkView out) {
  ZkCall c = {.op = ZG_OP_DOT, .nin = 2, .nout = 1, .nax = 1, .ax = {axis}, .in = {x, y}, .out = {out}};
  ZB_ASSERT(zk_cpu_scratch(&c, zk_threads(env)) == 0); /* dense, so in place */
  zk_cpu_dot(env, &c);
}

typedef struct {
  float *y;
  const float *x;
  float a, b;
} Mix;

ZK_SIMD static void mix(int64_t n, float *y, const float *x, float a, float b) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] = a * x[i] + b * y[i];
}

static void run_mix(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Mix *m = arg;
  mix(to - from, m->y + from, m->x + from, m->a, m->b);
}

static float *behind(float *x, int64_t n) { return x + zb_round_up((uint64_t)n, 16); }

void zk_cpu_orthogonalize(const ZkEnv *env, int64_t rows, int64_t cols, int steps, float *x, float *scratch) {
  const float a = 3.4445f, b = -4.7750f, c = 2.0315f;
  float *y = scratch, *xx = behind(y, rows * cols), *p = behind(xx, rows * rows);
  double norm = sqrt(zk_cpu_sumsq(env, rows * cols, x));
  ZB_ASSERT(rows <= cols);
  Mix by_norm = {x, x, (float)(1 / (norm + 1e-7)), 0};
  zk_for(env, rows * cols, GRAIN, run_mix, &by_norm);
  for (int i = 0; i < steps; i++) {
    multiply(env, matrix(x, ROW, rows, COL, cols), matrix(x, ROW2, rows, COL, cols), COL,
             matrix(xx, ROW, rows, ROW2, rows));
    multiply(env, matrix(xx, ROW, rows, COL, rows), matrix(xx, COL, rows, ROW2, rows), COL,
             matrix(p, ROW, rows, ROW2, rows));
    Mix inner = {p, xx, b, c}, outer = {x, y, 1, a};
    zk_for(env, rows * rows, GRAIN, run_mix, &inner);
    multiply(env, matrix(p, ROW, rows, ROW2, rows), matrix(x, ROW2, rows, COL, cols), ROW2,
             matrix(y, ROW, rows, COL, cols));
    zk_for(env, rows * cols, GRAIN, run_mix, &outer);
  }
}

/* ---- update ---- */
ZK_SIMD static float update(int64_t n, const float *u, const float *m, float *w, float keep, float rate) {
  float zero = 0;
#pragma omp simd reduction(+ : zero)
  for (int64_t i = 0; i < n; i++) {
    float wi = keep * w[i] - rate * u[i];
    w[i] = wi;
    zero += 0 * wi + 0 * m[i];
  }
  return zero;
}

static void run_update(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  Flat *f = arg;
  const ZkMuon *p = f->p;
  for (int64_t i = from, n; i < to; i += n) { /* short pieces: w is still in cache when it is rounded */
    n = zk_min(4096, to - i);
    float zero = update(n, f->u + i, f->m + i, f->w + i, 1 - p->lr * p->decay, p->lr * p->shape);
    if (!(zero == 0)) __atomic_store_n(&f->lost, true, __ATOMIC_RELAXED);
    if (f->w16) zk_run_to_bf16(f->w16 + i, f->w + i, n);
  }
}

bool zk_cpu_muon(const ZkEnv *env, const ZkMuon *p, int64_t n, const float *u, const float *m, float *w,
                 uint16_t *w16) {
  Flat f = {.p = p, .u = u, .m = (float *)m, .w = w, .w16 = w16};
  zk_for(env, n, GRAIN, run_update, &f);
  return !f.lost;
}

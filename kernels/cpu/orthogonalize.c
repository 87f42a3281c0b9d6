/* Orthogonalisation of matrices: the products are those of `dot`, by the BLAS. */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/optimize.h"

#define GRAIN 32768

/* ---- out of blocks, and back ---- */
typedef struct {
  const ZkMatrix *m;
  ZkMatrixWay way;
  float *blocks, *x;
} Move;

/* How many elements from e on, which is at `place` of the blocks, lie one behind the other there: along the last axis, as far
 * as a rank has it, in one block. */
static int64_t run_at(const ZkMatrix *m, int64_t e, int64_t place) {
  int last = m->naxes - 1;
  if (last < 0 || m->fixed[last] >= 0) return 1;
  int64_t index = e % m->size[last];
  return zk_min(m->local[last] - index % m->local[last], m->own - place % m->own);
}

static void move(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Move *v = arg;
  int64_t step = v->m->naxes ? v->m->place[v->m->naxes - 1] : 1;
  for (int64_t e = from, n, at; e < to; e += n) {
    int64_t place = zk_matrix_place(v->m, e, &at);
    float *there = v->blocks + place, *x = v->x + at;
    n = zk_min(run_at(v->m, e, place), to - e);
    for (int64_t i = 0; i < n; i++) {
      if (v->way == ZK_MATRIX_TAKE) x[i * step] = there[i];
      else there[i] = v->way == ZK_MATRIX_PUT ? x[i * step] : 0;
    }
  }
}

void zk_cpu_matrix(const ZkEnv *env, const ZkMatrix *m, ZkMatrixWay way, float *blocks, float *x) {
  Move v = {m, way, blocks, x};
  zk_for(env, m->elements, GRAIN, move, &v);
}

/* ---- products ---- */
static void multiply(const ZkEnv *env, int which, int64_t rows, int64_t cols, float *x, float *y,
                     float *out) {
  ZkCall c = zk_orthogonal_product(which, rows, cols);
  c.in[0].data = x, c.in[1].data = y, c.out[0].data = out;
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

void zk_cpu_orthogonalize(const ZkEnv *env, int64_t rows, int64_t cols, int steps, ZkCoefficients which,
                          float *x, float *scratch) {
  float *y = scratch, *xx = behind(y, rows * cols), *p = behind(xx, rows * rows);
  double norm = sqrt(zk_cpu_sumsq(env, rows * cols, x)), factor, eps;
  ZB_ASSERT(rows <= cols);
  zk_orthogonal_divisor(which, &factor, &eps);
  Mix by_norm = {x, x, (float)(1 / (factor * norm + eps)), 0};
  zk_for(env, rows * cols, GRAIN, run_mix, &by_norm);
  for (int i = 0; i < steps; i++) {
    const float *of = zk_coefficients(which, i), a = of[0], b = of[1], c = of[2];
    multiply(env, 0, rows, cols, x, x, xx);
    multiply(env, 1, rows, cols, xx, xx, p);
    Mix inner = {p, xx, b, c}, outer = {x, y, 1, a};
    zk_for(env, rows * rows, GRAIN, run_mix, &inner);
    multiply(env, 2, rows, cols, p, x, y);
    zk_for(env, rows * cols, GRAIN, run_mix, &outer);
  }
}

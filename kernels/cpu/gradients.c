/* Gradients in bf16: their sums, rounded at random (kernels/gradients.h), and their norm. */
#include "kernels/cpu/math.h"
#include "kernels/optimize.h"

enum { GRAIN = 32768, PIECE = 4096, PARTS = 256 };

typedef struct {
  const ZkDraws *draws;
  uint64_t key;
  const float *x;
  uint16_t *y;
} Sum;

/* Elements that follow each other in the whole parameter, too. */
ZK_SIMD static void add_run(int64_t n, uint64_t key, int64_t place, int64_t stride, const float *x,
                            uint16_t *y) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    float sum = zk_from_bits((uint32_t)y[i] << 16) + x[i];
    y[i] = zk_round_by(zk_to_bits(sum), zk_draw(key, place + i * stride));
  }
}

static void add(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Sum *s = arg;
  const ZkDraws *d = s->draws;
  int last = d->naxes - 1;
  int64_t row = d->naxes ? d->size[last] : 1;
  for (int64_t i = from, n; i < to; i += n) {
    int64_t e = d->from + i;
    n = zk_min(row - e % row, to - i);
    add_run(n, s->key, zk_draw_place(d, e), d->naxes ? d->stride[last] : 0, s->x + i, s->y + i);
  }
}

void zk_cpu_add_bf16(const ZkEnv *env, const ZkDraws *d, int64_t n, const float *x, uint16_t *y) {
  uint64_t step = env->step_state ? env->step_state->step : env->step;
  Sum s = {d, zk_draw_key(d->key, step), x, y};
  zk_for(env, n, GRAIN, add, &s);
}

/* ---- norm ---- */
typedef struct {
  const uint16_t *x;
  int64_t n, chunk;
  double part[PARTS];
} Squares;

ZK_SIMD static double squares(int64_t n, const uint16_t *x) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; i++) {
    double f = (double)zk_from_bits((uint32_t)x[i] << 16);
    sum += f * f;
  }
  return sum;
}

static void run_squares(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  Squares *s = arg;
  for (int64_t i = from; i < to; i++)
    s->part[i] = squares(zk_min(s->chunk, s->n - i * s->chunk), s->x + i * s->chunk);
}

double zk_cpu_sumsq_bf16(const ZkEnv *env, int64_t n, const uint16_t *x) {
  Squares s = {.x = x, .n = n, .chunk = zk_max(16384, zk_ceil_div(n, PARTS))};
  int64_t parts = zk_ceil_div(n, s.chunk);
  double sum = 0;
  zk_for(env, parts, 2, run_squares, &s);
  for (int64_t i = 0; i < parts; i++) sum += s.part[i];
  return sum;
}

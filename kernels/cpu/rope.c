/* rope: rotary position embedding. A task is a range of positions: the sines and cosines of one position
 * serve all its rows (batch, heads). */
#include <math.h>

#include "kernels/cpu/math.h"

typedef struct {
  ZkView x, y;
  ZkNest rest; /* views: x, y */
  int64_t half, sx, sy, hx, hy, start;
  double base;
  bool inverse;
  char *scratch;
  size_t per_thread;
} Rope;

typedef struct {
  double *freq;
  float *cosine, *sine, *in, *out; /* in, out: a gathered row */
} Buffers;

static size_t buffer_bytes(int64_t half) { return zb_round_up((size_t)half * (8 + 6 * 4), 64); }

static Buffers buffers(const Rope *p, int part) {
  Buffers b = {.freq = (double *)(p->scratch + p->per_thread * (size_t)part)};
  b.cosine = (float *)(b.freq + p->half);
  b.sine = b.cosine + p->half;
  b.in = b.sine + p->half;
  b.out = b.in + 2 * p->half;
  return b;
}

ZK_SIMD static void angles(float *cosine, float *sine, const double *freq, double position, int64_t half) {
#pragma omp simd
  for (int64_t i = 0; i < half; i++) zk_sincos(position * freq[i], &sine[i], &cosine[i]);
}

ZK_SIMD static void rotate(float *y, const float *x, const float *c, const float *s, float sign,
                           int64_t half) {
#pragma omp simd
  for (int64_t i = 0; i < half; i++) {
    float a = x[i], b = x[half + i], si = sign * s[i];
    y[i] = a * c[i] - b * si;
    y[half + i] = b * c[i] + a * si;
  }
}

static void run_positions(void *arg, int64_t from, int64_t to, int part) {
  const Rope *p = arg;
  Buffers b = buffers(p, part);
  int64_t rows = zk_nest_count(&p->rest), n = 2 * p->half;
  for (int64_t i = 0; i < p->half; i++) b.freq[i] = pow(p->base, -(double)i / (double)p->half);
  for (int64_t at = from; at < to; at++) {
    angles(b.cosine, b.sine, b.freq, (double)(p->start + at), p->half);
    ZkWalk w;
    zk_walk_seek(&p->rest, &w, 0);
    for (int64_t r = 0; r < rows; r++, zk_walk_next(&p->rest, &w)) {
      int64_t xo = w.off[0] + at * p->sx, yo = w.off[1] + at * p->sy;
      const float *x = zk_row_in(&p->x, xo, p->hx, n, b.in);
      float *y = zk_row_out(&p->y, yo, p->hy, n, b.out);
      rotate(y, x, b.cosine, b.sine, p->inverse ? -1 : 1, p->half);
      zk_row_done(&p->y, yo, p->hy, n, y);
    }
  }
}

void zk_cpu_rope(const ZkEnv *env, const ZkCall *c) {
  Rope p = {
      .x = c->in[0], .y = c->out[0], .base = c->num[0], .inverse = c->opt[0] == 1, .scratch = c->scratch};
  uint16_t s = c->ax[0], h = c->ax[1];
  int64_t n = zk_axis_size(&p.x, h);
  ZB_ASSERT(n % 2 == 0);
  p.half = n / 2;
  p.per_thread = buffer_bytes(p.half);
  p.sx = zk_axis_stride(&p.x, s);
  p.sy = zk_axis_stride(&p.y, s);
  p.hx = zk_axis_stride(&p.x, h);
  p.hy = zk_axis_stride(&p.y, h);
  p.start = zk_axis_start(&p.x, s);
  const ZkView *views[] = {&p.x, &p.y};
  p.rest = zk_nest(views, 2, c->ax, 2, false);
  int64_t work = zk_max(1, zk_nest_count(&p.rest) * n);
  zk_for(env, zk_axis_size(&p.x, s), zk_max(1, 16384 / work), run_positions, &p);
}

size_t zk_scratch_rope(const ZkCall *c, int threads) {
  return (size_t)threads * buffer_bytes(zk_axis_size(&c->in[0], c->ax[1]) / 2);
}

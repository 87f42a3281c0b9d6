/* rope, rope_at and rotate: rotary position embedding. A task is a range of points that have a position of
 * their own: the sines and cosines of one position serve all its rows (batch, heads). */
#include <math.h>

#include "kernels/cpu/math.h"

typedef struct {
  ZkView x, y, at;                /* at: of rotate, rope_at */
  ZkNest points;                  /* that have positions; views: x, y, at */
  ZkNest rest;                    /* the rows of a point; views: x, y */
  int64_t n, half, hx, hy, start; /* half: pairs that turn */
  double base;                    /* of rope */
  const ZkView *speed;            /* of rotate; NULL: rope's */
  float sign, scale;
  bool beside, given; /* given: rope, at positions that `at` has */
  char *scratch;
  size_t per_thread;
} Rope;

typedef struct {
  double *freq;
  float *cosine, *sine, *in, *out; /* in, out: a gathered row */
} Buffers;

static size_t buffer_bytes(int64_t n) {
  return zb_round_up((size_t)(n / 2) * (8 + 2 * 4) + (size_t)n * 2 * 4, 64);
}

static Buffers buffers(const Rope *p, int part) {
  Buffers b = {.freq = (double *)(p->scratch + p->per_thread * (size_t)part)};
  b.cosine = (float *)(b.freq + p->half);
  b.sine = b.cosine + p->half;
  b.in = b.sine + p->half;
  b.out = b.in + p->n;
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

ZK_SIMD static void rotate_beside(float *y, const float *x, const float *c, const float *s, float sign,
                                  int64_t half) {
#pragma omp simd
  for (int64_t i = 0; i < half; i++) {
    float a = x[2 * i], b = x[2 * i + 1], si = sign * s[i];
    y[2 * i] = a * c[i] - b * si;
    y[2 * i + 1] = b * c[i] + a * si;
  }
}

static void turn(const Rope *p, const Buffers *b, float *y, const float *x) {
  if (p->beside) rotate_beside(y, x, b->cosine, b->sine, p->sign, p->half);
  else rotate(y, x, b->cosine, b->sine, p->sign, p->half);
  int64_t stay = p->n - 2 * p->half;
  if (stay) memcpy(y + 2 * p->half, x + 2 * p->half, (size_t)stay * sizeof *y);
}

static void run_positions(void *arg, int64_t from, int64_t to, int part) {
  const Rope *p = arg;
  Buffers b = buffers(p, part);
  int64_t rows = zk_nest_count(&p->rest), n = p->n;
  for (int64_t i = 0; i < p->half; i++)
    b.freq[i] =
        p->speed ? zk_get(p->speed, i * p->speed->stride[0]) : pow(p->base, -(double)i / (double)p->half);
  ZkWalk at;
  zk_walk_seek(&p->points, &at, from);
  for (int64_t t = from; t < to; t++, zk_walk_next(&p->points, &at)) {
    double position = p->given   ? ((const int32_t *)p->at.data)[at.off[2]]
                      : p->speed ? zk_get(&p->at, at.off[2])
                                 : (double)(p->start + t);
    angles(b.cosine, b.sine, b.freq, position, p->half);
    for (int64_t i = 0; p->scale != 1 && i < p->half; i++) b.cosine[i] *= p->scale, b.sine[i] *= p->scale;
    ZkWalk w;
    zk_walk_seek(&p->rest, &w, 0);
    for (int64_t r = 0; r < rows; r++, zk_walk_next(&p->rest, &w)) {
      int64_t xo = w.off[0] + at.off[0], yo = w.off[1] + at.off[1];
      const float *x = zk_row_in(&p->x, xo, p->hx, n, b.in);
      float *y = zk_row_out(&p->y, yo, p->hy, n, b.out);
      turn(p, &b, y, x);
      zk_row_done(&p->y, yo, p->hy, n, y);
    }
  }
}

/* Along axis h; the `nat` axes `at` of x have positions. */
static void run(const ZkEnv *env, const ZkCall *c, Rope *p, uint16_t h, const uint16_t *at, int nat) {
  uint16_t own[ZK_MAX_AXES + 1] = {h};
  for (int i = 0; i < nat; i++) own[i + 1] = at[i];
  p->x = c->in[0];
  p->y = c->out[0];
  p->n = zk_axis_size(&p->x, h);
  p->hx = zk_axis_stride(&p->x, h);
  p->hy = zk_axis_stride(&p->y, h);
  p->scratch = c->scratch;
  p->per_thread = buffer_bytes(p->n);
  const ZkView *views[] = {&p->x, &p->y, p->speed || p->given ? &p->at : &p->y};
  p->rest = zk_nest(views, 2, own, nat + 1, false);
  p->points = zk_nest(views, 3, at, nat, true);
  int64_t work = zk_max(1, zk_nest_count(&p->rest) * p->n);
  zk_for(env, zk_nest_count(&p->points), zk_max(1, 16384 / work), run_positions, p);
}

void zk_cpu_rope(const ZkEnv *env, const ZkCall *c) {
  uint16_t s = c->ax[0], h = c->ax[1];
  Rope p = {
      .base = c->num[0], .sign = c->opt[0] == 1 ? -1 : 1, .scale = 1, .start = zk_axis_start(&c->in[0], s)};
  p.half = zk_axis_size(&c->in[0], h) / 2;
  ZB_ASSERT(zk_axis_size(&c->in[0], h) % 2 == 0);
  run(env, c, &p, h, &s, 1);
}

void zk_cpu_rope_at(const ZkEnv *env, const ZkCall *c) {
  uint16_t token = c->ax[0], h = c->ax[1];
  Rope p = {.base = c->num[0], .sign = c->opt[0] == 1 ? -1 : 1, .scale = 1, .at = c->in[1], .given = true};
  p.half = zk_axis_size(&c->in[0], h) / 2;
  ZB_ASSERT(zk_axis_size(&c->in[0], h) % 2 == 0 && p.at.elem == ZK_I32);
  run(env, c, &p, h, &token, 1);
}

void zk_cpu_rotate(const ZkEnv *env, const ZkCall *c) {
  Rope p = {.at = c->in[1], .speed = &c->in[2], .scale = (float)c->num[0], .half = c->opt[1] / 2};
  p.sign = c->opt[0] & ZG_ROTATE_BACK ? -1 : 1;
  p.beside = c->opt[0] & ZG_ROTATE_BESIDE;
  run(env, c, &p, c->ax[0], p.at.axis, p.at.rank);
}

static size_t scratch_of(const ZkCall *c, uint16_t h, int threads) {
  return (size_t)threads * buffer_bytes(zk_axis_size(&c->in[0], h));
}
size_t zk_scratch_rope(const ZkCall *c, int threads) { return scratch_of(c, c->ax[1], threads); }
size_t zk_scratch_rotate(const ZkCall *c, int threads) { return scratch_of(c, c->ax[0], threads); }

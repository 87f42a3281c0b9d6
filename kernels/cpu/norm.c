/* normalize over one axis (RMS norm, layer norm without its affine part) and its gradient. */
#include "kernels/cpu/cpu.h"

typedef struct {
  ZkView in[3], out[2];
  ZkNest rest;
  int64_t n, s[3]; /* of the normalised axis in the views that have it */
  bool centre;
  float eps;
  float *scratch; /* three rows a thread */
} Norm;

/* Views of the nest: x, y, r. */
static void run_normalize(void *arg, int64_t from, int64_t to, int part) {
  const Norm *p = arg;
  int64_t n = p->n;
  float *buf = p->scratch + 3 * n * part;
  ZkWalk w;
  zk_walk_seek(&p->rest, &w, from);
  for (int64_t t = from; t < to; t++, zk_walk_next(&p->rest, &w)) {
    const float *x = zk_row_in(&p->in[0], w.off[0], p->s[0], n, buf);
    float *y = zk_row_out(&p->out[0], w.off[1], p->s[1], n, buf + n);
    float mean = p->centre ? zk_run_sum(x, n) / (float)n : 0;
    float r = 1 / __builtin_sqrtf(zk_run_sumsq_about(x, mean, n) / (float)n + p->eps);
    zk_run_affine(y, x, mean, r, n);
    zk_row_done(&p->out[0], w.off[1], p->s[1], n, y);
    zk_set(&p->out[1], w.off[2], r);
  }
}

ZK_SIMD static void grad_row(float *dx, const float *g, const float *y, float r, bool centre, int64_t n) {
  float sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
  for (int64_t i = 0; i < n; i++) {
    sum += g[i];
    dot += g[i] * y[i];
  }
  float mean = centre ? sum / (float)n : 0, slope = dot / (float)n;
#pragma omp simd
  for (int64_t i = 0; i < n; i++) dx[i] = r * (g[i] - mean - y[i] * slope);
}

/* Views of the nest: g, y, dx, r. */
static void run_grad(void *arg, int64_t from, int64_t to, int part) {
  const Norm *p = arg;
  int64_t n = p->n;
  float *buf = p->scratch + 3 * n * part;
  ZkWalk w;
  zk_walk_seek(&p->rest, &w, from);
  for (int64_t t = from; t < to; t++, zk_walk_next(&p->rest, &w)) {
    const float *g = zk_row_in(&p->in[0], w.off[0], p->s[0], n, buf);
    const float *y = zk_row_in(&p->in[1], w.off[1], p->s[1], n, buf + n);
    float *dx = zk_row_out(&p->out[0], w.off[2], p->s[2], n, buf + 2 * n);
    grad_row(dx, g, y, zk_get(&p->in[2], w.off[3]), p->centre, n);
    zk_row_done(&p->out[0], w.off[2], p->s[2], n, dx);
  }
}

static Norm analyse(const ZkCall *c) {
  Norm p = {.centre = c->opt[0] == 1, .eps = (float)c->num[0], .scratch = c->scratch};
  for (int i = 0; i < c->nin; i++) p.in[i] = c->in[i];
  for (int i = 0; i < c->nout; i++) p.out[i] = c->out[i];
  p.n = zk_axis_size(&p.in[0], c->ax[0]);
  return p;
}

void zk_cpu_normalize(const ZkEnv *env, const ZkCall *c) {
  Norm p = analyse(c);
  const ZkView *views[] = {&p.in[0], &p.out[0], &p.out[1]};
  p.rest = zk_nest(views, 3, c->ax, 1, false);
  for (int i = 0; i < 2; i++) p.s[i] = zk_axis_stride(views[i], c->ax[0]);
  zk_for(env, zk_nest_count(&p.rest), zk_max(1, 16384 / zk_max(p.n, 1)), run_normalize, &p);
}

void zk_cpu_normalize_grad(const ZkEnv *env, const ZkCall *c) {
  Norm p = analyse(c);
  const ZkView *views[] = {&p.in[0], &p.in[1], &p.out[0], &p.in[2]};
  p.rest = zk_nest(views, 4, c->ax, 1, false);
  for (int i = 0; i < 3; i++) p.s[i] = zk_axis_stride(views[i], c->ax[0]);
  zk_for(env, zk_nest_count(&p.rest), zk_max(1, 16384 / zk_max(p.n, 1)), run_grad, &p);
}

size_t zk_scratch_normalize(const ZkCall *c, int threads) {
  return (size_t)threads * 3 * (size_t)zk_axis_size(&c->in[0], c->ax[0]) * sizeof(float);
}

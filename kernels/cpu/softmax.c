/* softmax over one axis, and its gradient y (g - sum g y). A row is read where it lies if that is
 * contiguous f32, else gathered into scratch. */
#include "kernels/cpu/cpu.h"

typedef struct {
  ZkView a, b, out; /* softmax: x in a; gradient: g, y */
  bool grad;
  ZkNest rest;            /* views: a, out, b */
  int64_t n, valid, s[3]; /* valid: of the axis, without what is added to it */
  float *scratch;         /* three rows a thread */
} Softmax;

ZK_SIMD static void grad_row(float *dx, const float *g, const float *y, int64_t n) {
  float dot = zk_run_dot(g, y, n);
#pragma omp simd
  for (int64_t i = 0; i < n; i++) dx[i] = y[i] * (g[i] - dot);
}

static void run_rows(void *arg, int64_t from, int64_t to, int part) {
  const Softmax *p = arg;
  float *buf = p->scratch + 3 * p->n * part;
  ZkWalk w;
  zk_walk_seek(&p->rest, &w, from);
  for (int64_t t = from; t < to; t++, zk_walk_next(&p->rest, &w)) {
    const float *a = zk_row_in(&p->a, w.off[0], p->s[0], p->n, buf);
    float *y = zk_row_out(&p->out, w.off[1], p->s[1], p->n, buf + p->n);
    if (p->grad) {
      grad_row(y, a, zk_row_in(&p->b, w.off[2], p->s[2], p->n, buf + 2 * p->n), p->n);
    } else {
      float sum = zk_run_exp_sum(y, a, 1, zk_run_max(a, p->valid), p->valid);
      zk_run_scale(y, y, 1 / sum, p->valid);
      zk_run_fill(y + p->valid, 0, p->n - p->valid);
    }
    zk_row_done(&p->out, w.off[1], p->s[1], p->n, y);
  }
}

static void softmax(const ZkEnv *env, const ZkCall *c, bool grad) {
  Softmax p = {
      .a = c->in[0], .b = c->in[grad ? 1 : 0], .out = c->out[0], .grad = grad, .scratch = c->scratch};
  const ZkView *views[] = {&p.a, &p.out, &p.b};
  p.rest = zk_nest(views, 3, c->ax, 1, false);
  p.n = zk_axis_size(&p.a, c->ax[0]);
  p.valid = !grad && c->opt[1] > 0 ? c->opt[1] : p.n;
  for (int i = 0; i < 3; i++) p.s[i] = zk_axis_stride(views[i], c->ax[0]);
  zk_for(env, zk_nest_count(&p.rest), zk_max(1, 16384 / zk_max(p.n, 1)), run_rows, &p);
}

void zk_cpu_softmax(const ZkEnv *env, const ZkCall *c) { softmax(env, c, false); }
void zk_cpu_softmax_grad(const ZkEnv *env, const ZkCall *c) { softmax(env, c, true); }

size_t zk_scratch_softmax(const ZkCall *c, int threads) {
  return (size_t)threads * 3 * (size_t)zk_axis_size(&c->in[0], c->ax[0]) * sizeof(float);
}

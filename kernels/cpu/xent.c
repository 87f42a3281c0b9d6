/* The two passes over the logits that cross-entropy takes. Rows are read in segments, so that logits in
 * another layout or type need only a small buffer. */
#include "kernels/cpu/math.h"

#define SEGMENT 2048

typedef struct {
  ZkView z, m, t, a, b, dz; /* a, b: s, p of the sums; gs, gp of the gradient */
  ZkNest rest;              /* views: z, m, t, a, b, dz */
  int64_t n, valid, start;  /* entries here; those that count; global number of the first */
  int64_t zs, dzs;          /* strides along them */
} Xent;

enum { Z, M, T, SA, SB, DZ };

/* Where the row's target is here; -1 if it is unknown or elsewhere. */
static int64_t target(const Xent *x, const ZkWalk *w) {
  int64_t id = ((const int32_t *)x->t.data)[w->off[T]];
  return id >= 0 && id >= x->start && id < x->start + x->n ? id - x->start : -1;
}

static void run_sums(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Xent *x = arg;
  float buf[SEGMENT];
  ZkWalk w;
  zk_walk_seek(&x->rest, &w, from);
  for (int64_t r = from; r < to; r++, zk_walk_next(&x->rest, &w)) {
    float m = zk_get(&x->m, w.off[M]), sum = 0;
    for (int64_t i = 0; i < x->valid; i += SEGMENT) {
      int64_t n = zk_min(SEGMENT, x->valid - i);
      sum += zk_run_sum_exp(zk_row_in(&x->z, w.off[Z] + i * x->zs, x->zs, n, buf), m, n);
    }
    int64_t t = target(x, &w);
    zk_set(&x->a, w.off[SA], sum);
    zk_set(&x->b, w.off[SB], t >= 0 && t < x->valid ? zk_get(&x->z, w.off[Z] + t * x->zs) : 0);
  }
}

/* Entries [i, i + n) of the row's gradient, without the target's part. */
static void grad_segment(const Xent *x, const ZkWalk *w, float m, float gs, int64_t i, int64_t n) {
  float zbuf[SEGMENT], buf[SEGMENT];
  const float *z = zk_row_in(&x->z, w->off[Z] + i * x->zs, x->zs, n, zbuf);
  float *dz = zk_row_out(&x->dz, w->off[DZ] + i * x->dzs, x->dzs, n, buf);
  int64_t count = zk_max(0, zk_min(n, x->valid - i));
  zk_run_exp_scale(dz, z, m, gs, count);
  zk_run_fill(dz + count, 0, n - count);
  zk_row_done(&x->dz, w->off[DZ] + i * x->dzs, x->dzs, n, dz);
}

static void run_grad(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Xent *x = arg;
  ZkWalk w;
  zk_walk_seek(&x->rest, &w, from);
  for (int64_t r = from; r < to; r++, zk_walk_next(&x->rest, &w)) {
    float m = zk_get(&x->m, w.off[M]), gs = zk_get(&x->a, w.off[SA]), gp = zk_get(&x->b, w.off[SB]);
    int64_t t = target(x, &w);
    float zt = t >= 0 ? zk_get(&x->z, w.off[Z] + t * x->zs) : 0; /* before dz, which may lie in z's memory */
    for (int64_t i = 0; i < x->n; i += SEGMENT) grad_segment(x, &w, m, gs, i, zk_min(SEGMENT, x->n - i));
    if (t >= 0 && t < x->valid) zk_set(&x->dz, w.off[DZ] + t * x->dzs, zk_exp(zt - m) * gs + gp);
  }
}

static Xent analyse(const ZkCall *c, const ZkView *a, const ZkView *b, const ZkView *dz) {
  Xent x = {.z = c->in[0], .m = c->in[1], .t = c->in[2], .a = *a, .b = *b, .dz = *dz};
  uint16_t v = c->ax[0];
  ZB_ASSERT(x.t.elem == ZK_I32);
  x.n = zk_axis_size(&x.z, v);
  x.start = zk_axis_start(&x.z, v);
  x.valid = c->opt[1] > 0 ? zk_max(0, zk_min(x.n, c->opt[1] - x.start)) : x.n;
  x.zs = zk_axis_stride(&x.z, v);
  x.dzs = zk_axis_stride(&x.dz, v);
  const ZkView *views[] = {&x.z, &x.m, &x.t, &x.a, &x.b, &x.dz};
  x.rest = zk_nest(views, 6, c->ax, 1, false);
  return x;
}

void zk_cpu_xent_sums(const ZkEnv *env, const ZkCall *c) {
  Xent x = analyse(c, &c->out[0], &c->out[1], &c->in[0]);
  zk_for(env, zk_nest_count(&x.rest), zk_max(1, 8192 / zk_max(x.n, 1)), run_sums, &x);
}

void zk_cpu_xent_grad(const ZkEnv *env, const ZkCall *c) {
  Xent x = analyse(c, &c->in[3], &c->in[4], &c->out[0]);
  zk_for(env, zk_nest_count(&x.rest), zk_max(1, 8192 / zk_max(x.n, 1)), run_grad, &x);
}

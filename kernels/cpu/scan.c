/* scan: h = a h' + b along an axis, where h' is what came before. The carry is kept in f64: in bf16 it would
 * stand still where a step is small against it.
 *
 * Rows that lie contiguous are worked on one by one. Of others the elements at one position lie side by side,
 * so that as many rows as a bundle holds go on together. */
#include "kernels/cpu/cpu.h"

#define PIECE 256 /* elements of a row, or rows of a bundle, */
#define WIDE 2048 /* where there are enough bundles for all threads: memory likes long runs */

enum { B, H, A };
typedef struct {
  ZkView v[3];
  ZkNest rest;                    /* views as above; without `side` */
  ZkLoop side;                    /* rows that lie side by side; one if a row is contiguous */
  int64_t n, s[3], wide, bundles; /* strides along the axis; rows of a bundle, bundles of `side` */
  bool reverse, late;
} Scan;

static void scan_row(const Scan *p, const int64_t *off) {
  float a[PIECE], b[PIECE];
  double h = 0, before = 0;
  for (int64_t i = 0, m; i < p->n; i += m) {
    m = zk_min(PIECE, p->n - i);
    int64_t at = p->reverse ? p->n - i - m : i;
    zk_load(a, &p->v[A], off[A] + at * p->s[A], p->s[A], m);
    zk_load(b, &p->v[B], off[B] + at * p->s[B], p->s[B], m);
    for (int64_t q = 0; q < m; q++) {
      int64_t k = p->reverse ? m - 1 - q : q;
      h = (p->late ? before : a[k]) * h + b[k];
      before = a[k];
      b[k] = (float)h;
    }
    zk_store(&p->v[H], off[H] + at * p->s[H], p->s[H], m, b, false);
  }
}

ZK_SIMD static void step(double *h, const float *a, const float *b, float *y, int64_t m) {
#pragma omp simd
  for (int64_t k = 0; k < m; k++) y[k] = (float)(h[k] = a[k] * h[k] + b[k]);
}

static void scan_bundle(const Scan *p, const int64_t *off, int64_t m) {
  float abuf[2][WIDE], bbuf[WIDE], ybuf[WIDE];
  double h[WIDE] = {0};
  const float *before =
      memset(abuf[1], 0, (size_t)m * sizeof(float)); /* late: the factors of the element before */
  for (int64_t i = 0; i < p->n; i++) {
    int64_t at = p->reverse ? p->n - 1 - i : i, y = off[H] + at * p->s[H];
    const float *a = zk_row_in(&p->v[A], off[A] + at * p->s[A], p->side.s[A], m, abuf[i & 1]);
    const float *b = zk_row_in(&p->v[B], off[B] + at * p->s[B], p->side.s[B], m, bbuf);
    float *to = zk_row_out(&p->v[H], y, p->side.s[H], m, ybuf);
    step(h, p->late ? before : a, b, to, m);
    zk_row_done(&p->v[H], y, p->side.s[H], m, to);
    before = a;
  }
}

static void run_bundles(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Scan *p = arg;
  for (int64_t t = from; t < to; t++) {
    ZkWalk w;
    zk_walk_seek(&p->rest, &w, t / p->bundles);
    int64_t first = t % p->bundles * p->wide, m = zk_min(p->wide, p->side.n - first);
    for (int i = 0; i < 3; i++) w.off[i] += first * p->side.s[i];
    if (m == 1) scan_row(p, w.off);
    else scan_bundle(p, w.off, m);
  }
}

void zk_cpu_scan(const ZkEnv *env, const ZkCall *c) {
  Scan p = {.v = {c->in[1], c->out[0], c->in[0]}, .reverse = c->opt[0] == 1, .late = c->opt[1] == 1};
  const ZkView *views[] = {&p.v[B], &p.v[H], &p.v[A]};
  p.n = zk_axis_size(&p.v[B], c->ax[0]);
  for (int i = 0; i < 3; i++) p.s[i] = zk_axis_stride(&p.v[i], c->ax[0]);
  p.rest = zk_nest(views, 3, c->ax, 1, false);
  p.side = (ZkLoop){.n = 1};
  if (p.s[B] != 1) p.side = zk_nest_pop(&p.rest);
  int64_t rest = zk_nest_count(&p.rest);
  p.wide = rest * zk_ceil_div(p.side.n, WIDE) < zk_threads(env) ? PIECE : WIDE;
  p.bundles = zk_ceil_div(p.side.n, p.wide);
  int64_t work = zk_max(1, p.n * zk_min(p.side.n, p.wide));
  zk_for(env, rest * p.bundles, zk_max(1, 16384 / work), run_bundles, &p);
}

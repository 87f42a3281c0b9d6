/* cumsum: the running sum along an axis, from its first element on or from its last. Sums are kept in f64:
 * the error of a
 * long row's end would be that of all its roundings.
 *
 * Rows that lie contiguous are worked on one by one. Of others the elements at one position lie side by side,
 * so that as many rows as a bundle holds are summed at once. */
#include "kernels/cpu/cpu.h"

#define PIECE 256 /* elements of a row, or rows of a bundle */

typedef struct {
  ZkView x, y;
  ZkNest rest;                /* views: x, y; without `side` */
  ZkLoop side;                /* rows that lie side by side; one if a row is contiguous */
  int64_t n, sx, sy, bundles; /* bundles: of `side` */
  bool reverse;
} Cumsum;

static void sum_row(const Cumsum *p, int64_t x, int64_t y) {
  float t[PIECE];
  double sum = 0;
  for (int64_t i = 0, m; i < p->n; i += m) {
    m = zk_min(PIECE, p->n - i);
    int64_t at = p->reverse ? p->n - i - m : i;
    zk_load(t, &p->x, x + at * p->sx, p->sx, m);
    if (p->reverse)
      for (int64_t k = m; k-- > 0;) t[k] = (float)(sum += t[k]);
    else
      for (int64_t k = 0; k < m; k++) t[k] = (float)(sum += t[k]);
    zk_store(&p->y, y + at * p->sy, p->sy, m, t, false);
  }
}

ZK_SIMD static void add_to(double *sum, float *t, int64_t m) {
#pragma omp simd
  for (int64_t k = 0; k < m; k++) t[k] = (float)(sum[k] += t[k]);
}

static void sum_bundle(const Cumsum *p, int64_t x, int64_t y, int64_t m) {
  float t[PIECE];
  double sum[PIECE] = {0};
  for (int64_t i = 0; i < p->n; i++) {
    int64_t at = p->reverse ? p->n - 1 - i : i;
    zk_load(t, &p->x, x + at * p->sx, p->side.s[0], m);
    add_to(sum, t, m);
    zk_store(&p->y, y + at * p->sy, p->side.s[1], m, t, false);
  }
}

static void run_bundles(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Cumsum *p = arg;
  for (int64_t t = from; t < to; t++) {
    ZkWalk w;
    zk_walk_seek(&p->rest, &w, t / p->bundles);
    int64_t first = t % p->bundles * PIECE, m = zk_min(PIECE, p->side.n - first);
    int64_t x = w.off[0] + first * p->side.s[0], y = w.off[1] + first * p->side.s[1];
    if (m == 1) sum_row(p, x, y);
    else sum_bundle(p, x, y, m);
  }
}

void zk_cpu_cumsum(const ZkEnv *env, const ZkCall *c) {
  Cumsum p = {.x = c->in[0], .y = c->out[0], .reverse = c->opt[0] == 1};
  const ZkView *views[] = {&p.x, &p.y};
  p.n = zk_axis_size(&p.x, c->ax[0]);
  p.sx = zk_axis_stride(&p.x, c->ax[0]);
  p.sy = zk_axis_stride(&p.y, c->ax[0]);
  p.rest = zk_nest(views, 2, c->ax, 1, false);
  p.side = (ZkLoop){.n = 1};
  if (p.sx != 1) p.side = zk_nest_pop(&p.rest);
  p.bundles = zk_ceil_div(p.side.n, PIECE);
  int64_t work = zk_max(1, p.n * zk_min(p.side.n, PIECE));
  zk_for(env, zk_nest_count(&p.rest) * p.bundles, zk_max(1, 16384 / work), run_bundles, &p);
}

/* Products of rows that are sorted by expert, batch-invariant: the rows of one expert after the other go
 * through invariant.c, which sums in the order that it has for dot, too. */
#include "kernels/cpu/grouped.h"
#include "kernels/cpu/invariant.h"
#include "kernels/cpu/packed.h"

/* Rows of x and y must be numbered alike: by slot, or by expert and slot. */
static ZkBgemm product(const ZkCall *c) {
  ZkBgemm g = {.v = {c->in[0], c->in[1], c->out[0]}, .nbatch = 1};
  const ZkView *views[] = {&g.v[0], &g.v[1], &g.v[2]}, *w = &g.v[ZK_GB];
  ZB_ASSERT(zk_row_count(views[0], c) == zk_row_count(views[2], c));
  g.batch.nviews = g.m.nviews = g.n.nviews = g.k.nviews = 3;
  for (int i = 0; i < w->rank; i++) {
    if (w->axis[i] == c->ax[0]) continue;
    zk_nest_add(zk_has(c->ax, c->nax, w->axis[i]) ? &g.k : &g.n, views, 3, w->axis[i], w->size[i]);
  }
  for (int i = 0; i < 2; i++)
    if (zk_axis_find(&g.v[ZK_GA], c->ax[i]) >= 0)
      zk_nest_add(&g.m, views, 3, c->ax[i], zk_axis_size(&g.v[ZK_GA], c->ax[i]));
  for (int i = 0; i < g.m.nloops; i++) g.m.loop[i].s[ZK_GB] = 0; /* whose a row is, its number says */
  zk_nest_merge(&g.m);
  zk_nest_merge(&g.n);
  zk_nest_merge(&g.k);
  zk_nest_order(&g.k, ZK_GB);
  g.M = zk_nest_count(&g.m), g.N = zk_nest_count(&g.n), g.K = zk_nest_count(&g.k);
  return g;
}

/* The same by packed weights, of which an expert has whole panels. */
static ZkPackedProduct packed_product(const ZkCall *c, const ZkBgemm *g, int chunks) {
  ZkPackedProduct p = {.x = c->in[0], .y = c->out[0], .chunks = chunks, .expert = c->ax[0], .m = g->m};
  p.m.nviews = 2;
  for (int i = 0; i < g->m.nloops; i++) {
    p.m.loop[i].s[ZK_PACKED_Y] = g->m.loop[i].s[ZK_GC];
    p.m.loop[i].s[ZK_PACKED_X] = g->m.loop[i].s[ZK_GA];
  }
  zk_packed_product(&p, &c->in[1]);
  return p;
}

static void multiply_packed(const ZkEnv *env, const ZkCall *c, const ZkBgemm *g, int chunks, int64_t expert,
                            int64_t row, int64_t end) {
  ZkPackedProduct p = packed_product(c, g, chunks);
  p.first = row, p.M = end - row, p.panel = expert * p.N / ZK_COLUMNS;
  zk_packed_multiply(env, &p, c->scratch);
}

static bool by_integers(const ZkCall *c) { return zk_elem_info[c->in[1].elem].codes == ZK_CODES_INTEGER; }

typedef struct {
  ZkBgemm g;
  int64_t first;
} Zeros;

static void run_zeros(void *arg, int64_t from, int64_t to, int part) {
  const Zeros *z = arg;
  (void)part;
  for (int64_t i = from; i < to; i++) {
    ZkWalk m, n;
    zk_walk_seek(&z->g.m, &m, z->first + i);
    zk_walk_seek(&z->g.n, &n, 0);
    for (int64_t j = 0; j < z->g.N; j++, zk_walk_next(&z->g.n, &n))
      zk_set(&z->g.v[ZK_GC], m.off[ZK_GC] + n.off[ZK_GC], 0);
  }
}

void zk_grouped_invariant(const ZkEnv *env, const ZkCall *c) {
  Zeros z = {.g = product(c)};
  int chunks = zk_sum_chunks(&c->in[1], c->ax + 2, c->nax - 2);
  const ZkView *ends = &c->in[2];
  int64_t experts = zk_axis_size(&c->in[1], c->ax[0]), per_expert = zk_axis_stride(&c->in[1], c->ax[0]);
  ZB_ASSERT(ends->elem == ZK_I32);
  for (int64_t e = 0; e < experts; e++) {
    int64_t row = zk_first_row(ends, e), end = zk_first_row(ends, e + 1);
    ZB_ASSERT(row >= 0 && row <= end && end <= z.g.M);
    if (row < end && by_integers(c)) multiply_packed(env, c, &z.g, chunks, e, row, end);
    if (row == end || by_integers(c)) continue;
    ZkBgemm own = z.g;
    own.first_b = e * per_expert;
    zk_invariant_rows(env, &own, chunks, row, end - row, c->scratch);
  }
  z.first = zk_first_row(ends, experts);
  zk_for(env, z.g.M - z.first, zk_max(1, 4096 / zk_max(1, z.g.N)), run_zeros, &z);
}

size_t zk_grouped_invariant_scratch(const ZkCall *c, int threads) {
  ZkBgemm g = product(c);
  int chunks = zk_sum_chunks(&c->in[1], c->ax + 2, c->nax - 2);
  if (!by_integers(c)) return zk_invariant_scratch(&g, chunks, threads);
  ZkPackedProduct p = packed_product(c, &g, chunks);
  return zk_packed_multiply_scratch(&p, threads);
}

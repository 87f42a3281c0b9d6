/* The gradient of the weights of experts: of rows that are sorted by expert, the products of what went in
 * with the gradients of what came out.
 *
 * A task is one expert and a tile of its gradient, to which blocks of its rows are added in order. Sums in
 * f32 are made row by row (fgemm.h), so their bits do not depend on how many calls there are. */
#include "kernels/cpu/grouped.h"

#define TILE_K ZK_OUTER_K
#define TILE_N ZK_OUTER_N
#define DEPTH ZK_OUTER_DEPTH
_Static_assert(TILE_K <= ZK_PACK_COLUMNS && TILE_N <= ZK_PACK_COLUMNS, "as many columns are packed at once");

typedef ZkGroupedOuter Outer;

static int64_t tile_k(int64_t k) { return zk_min(TILE_K, zk_up(k, ZK_FSTRIP)); }
static int64_t tile_n(int64_t n) { return zk_min(TILE_N, zk_up(n, ZK_FPANEL)); }
/* Of a thread: the sum's tile, then what is packed. The same on every machine, since a plan counts them. */
static int64_t sums_of(int64_t k, int64_t n) { return tile_k(k) * tile_n(n); }
static size_t some_bytes(int64_t k, int64_t n) {
  size_t packed = (size_t)(DEPTH * (tile_k(k) + tile_n(n))) * sizeof(float), half = zk_outer_half_bytes(k, n);
  return zb_round_up((size_t)sums_of(k, n) * sizeof(float) + (packed > half ? packed : half), 64);
}
static size_t thread_bytes(int64_t k, int64_t n) { /* whichever of both is k */
  size_t one = some_bytes(k, n), other = some_bytes(n, k);
  return one > other ? one : other;
}

/* Rows of a multiple of 4 KB apart would fall into one set of the nearest cache. */
static bool reads_in_place(const ZkOuterSide *s, int64_t rows) {
  return s->view.elem == ZK_F32 && s->places.step[0] == 1 && zk_rows_are_even(&s->rows, rows) &&
         s->rows.per_slot % 1024 != 0;
}

/* Columns [at, at + n) of `rows` rows from `row` on, in panels of `unit`: where they are, a panel behind the
 * other, and rows `step` apart. */
static const float *bring(const ZkOuterSide *s, int unit, int64_t row, int64_t rows, int64_t at, int64_t n,
                          float *own, int64_t *step, int64_t *panel) {
  if (s->reads) {
    *step = s->rows.per_slot, *panel = unit;
    return (const float *)s->view.data + zk_row_at(&s->rows, row) + s->places.at[0][at];
  }
  for (int64_t i = 0; i < rows; i += ZK_PACK_ROWS) {
    int64_t base[ZK_PACK_ROWS], some = zk_min(ZK_PACK_ROWS, rows - i);
    for (int64_t j = 0; j < some; j++) base[j] = zk_row_at(&s->rows, row + i + j);
    zk_pack_rows(own + i * unit, rows * unit, unit, &s->view, base, some, &s->places, 0, at, n);
  }
  *step = unit, *panel = unit * rows;
  return own;
}

/* Adds the rows [row, end) to the tile. */
static void add_rows(const Outer *p, const ZkOuterTile *t, int64_t row, int64_t end, float *own) {
  ZkFblock b = {.m = t->m, .n = t->n, .c = t->c, .ldc = t->ldc, .add = t->add, .a_row = 1};
  for (; row < end; row += DEPTH, b.add = true) {
    b.k = zk_min(DEPTH, end - row);
    b.a = bring(&p->x, ZK_FSTRIP, row, b.k, t->k0, t->m, own, &b.a_step, &b.a_strip);
    b.b = bring(&p->g, ZK_FPANEL, row, b.k, t->n0, t->n, own + DEPTH * tile_k(p->x.places.n), &b.b_step,
                &b.b_panel);
    zk_fgemm_block(&b);
  }
}

/* The tile where it is summed: in its place, or what is there already, if anything, in scratch. */
static void begin_tile(const Outer *p, ZkOuterTile *t, int64_t base, float *sums) {
  if (p->sums_in_place) {
    t->c = (float *)p->w.data + base + p->x.places.at[1][t->k0] + p->g.places.at[1][t->n0];
    t->ldc = p->x.places.step[1];
    return;
  }
  t->c = sums;
  t->ldc = t->n;
  for (int64_t i = 0; p->add && i < t->m; i++)
    zk_places_load(sums + i * t->n, &p->w, base + p->x.places.at[1][t->k0 + i], &p->g.places, 1, t->n0, t->n);
}

static void run_outer(void *arg, int64_t from, int64_t to, int part) {
  const Outer *p = arg;
  float *sums = (float *)(p->scratch + p->per_thread * (size_t)part),
        *own = sums + sums_of(p->x.places.n, p->g.places.n);
  for (int64_t i = from; i < to; i++) {
    int64_t e = i / (p->ktiles * p->ntiles), base = e * p->per_expert;
    int64_t row = zk_first_row(&p->ends, e), end = zk_first_row(&p->ends, e + 1);
    ZkOuterTile t = {.k0 = i / p->ntiles % p->ktiles * TILE_K, .n0 = i % p->ntiles * TILE_N, .add = p->add};
    t.m = zk_min(TILE_K, p->x.places.n - t.k0), t.n = zk_min(TILE_N, p->g.places.n - t.n0);
    ZB_ASSERT(row >= 0 && row <= end && end <= p->rows);
    if (p->add && row == end) continue;
    begin_tile(p, &t, base, sums);
    for (int64_t j = 0; row == end && j < t.m; j++) zk_run_fill(t.c + j * t.ldc, 0, t.n);
    if (p->half) zk_outer_half_add(p, &t, row, end, (char *)own);
    else add_rows(p, &t, row, end, own);
    for (int64_t j = 0; !p->sums_in_place && j < t.m; j++)
      zk_places_store(&p->w, base + p->x.places.at[1][t.k0 + j], &p->g.places, 1, t.n0, t.n, sums + j * t.n);
  }
}

/* Where the gradient runs along the axes of x and not those of g, both have each other's part. */
static void turn(Outer *p) {
  ZkOuterSide x = p->x;
  p->x = p->g, p->g = x;
}

void zk_cpu_grouped_outer(const ZkEnv *env, const ZkCall *c) {
  Outer p = {.x.view = c->in[0], .g.view = c->in[1], .ends = c->in[2], .w = c->out[0], .add = c->accumulate};
  uint16_t rows[ZK_MAX_AXES], cols[ZK_MAX_AXES];
  int nrows = zk_axes_but(&p.x.view, c->ax, 2, rows), ncols = zk_axes_but(&p.g.view, c->ax, 2, cols);
  ZB_ASSERT(p.ends.elem == ZK_I32);
  int64_t *room = zk_places(&p.x.places, &p.x.view, &p.w, rows, nrows, c->scratch);
  zk_places(&p.g.places, &p.g.view, &p.w, cols, ncols, room);
  p.x.rows = zk_rows_of(&p.x.view, c), p.g.rows = zk_rows_of(&p.g.view, c);
  p.scratch = (char *)c->scratch + zk_places_bytes(p.x.places.n, p.g.places.n);
  p.per_thread = thread_bytes(p.x.places.n, p.g.places.n);
  if (p.g.places.step[1] != 1 && p.x.places.step[1] == 1) turn(&p);
  p.experts = zk_axis_size(&p.w, c->ax[0]), p.per_expert = zk_axis_stride(&p.w, c->ax[0]);
  p.rows = zk_row_count(&c->in[0], c);
  p.sums_in_place = p.w.elem == ZK_F32 && p.g.places.step[1] == 1 && p.x.places.step[1] > 0;
  p.half = zk_grouped_half_here(&p.x.view, &p.g.view);
  p.x.reads = reads_in_place(&p.x, p.rows), p.g.reads = reads_in_place(&p.g, p.rows);
  p.ktiles = zk_ceil_div(p.x.places.n, TILE_K), p.ntiles = zk_ceil_div(p.g.places.n, TILE_N);
  zk_for(env, p.experts * p.ktiles * p.ntiles, 1, run_outer, &p);
}

size_t zk_scratch_grouped_outer(const ZkCall *c, int threads) {
  int64_t k = 1, n = 1;
  const ZkView *w = &c->out[0];
  for (int i = 0; i < w->rank; i++)
    if (w->axis[i] != c->ax[0]) *(zk_axis_find(&c->in[0], w->axis[i]) >= 0 ? &k : &n) *= w->size[i];
  return zk_places_bytes(k, n) + (size_t)threads * thread_bytes(k, n);
}

/* Products of rows that are sorted by expert with the weight of each. Whose a row is, memory says when the
 * call runs.
 *
 * A task is one expert and some columns. Its weight is packed once, then all its rows go by. Sums are made in
 * order (fgemm.h), so the bits of a row do not depend on how many rows there are, nor on whose the others
 * are. */
#include "kernels/cpu/grouped.h"

#define COLUMNS ZK_GROUP_COLUMNS
#define TILE ZK_GROUP_ROWS
#define DEPTH 512 /* of k at once: a strip of rows stays in the nearest cache */

typedef ZkGroupedDot Product;

typedef struct {
  float *weight, *x, *y;
} Panels;

static int64_t columns(int64_t n) { return zk_min(COLUMNS, zk_up(n, ZK_FPANEL)); }
static size_t panel_bytes(int64_t k, int64_t n) {
  return (size_t)(k * columns(n) + TILE * zk_min(k, DEPTH) + TILE * columns(n)) * sizeof(float);
}
static char *own_scratch(const Product *p, int part) { return p->scratch + p->per_thread * (size_t)part; }
static Panels panels(const Product *p, int part) {
  Panels to = {.weight = (float *)own_scratch(p, part)};
  to.x = to.weight + p->k.n * columns(p->n.n);
  to.y = to.x + TILE * zk_min(p->k.n, DEPTH);
  return to;
}

/* Weights come from far away, and no CPU foresees steps across rows: each is asked for some rows before it is
 * packed. */
#define AHEAD (4 * ZK_PACK_ROWS)

/* Columns that run along k, into a panel: 16 of k of all columns at a time, which the nearest cache holds. */
static void pack_along(const ZkView *w, int64_t base, const int64_t *col, int64_t cols, int64_t k,
                       float *to) {
  float buf[ZK_PACK_ROWS];
  for (int64_t i = 0; i < k; i += ZK_PACK_ROWS, to += ZK_PACK_ROWS * ZK_FPANEL)
    for (int64_t j = 0; j < cols; j++) {
      int64_t n = zk_min(ZK_PACK_ROWS, k - i);
      const float *from = zk_row_in(w, base + col[j] + i, 1, n, buf);
      if (i + AHEAD < k && zk_is_plain((ZkElem)w->elem))
        __builtin_prefetch(zk_at(w, base + col[j] + i + AHEAD));
      for (int64_t l = 0; l < n; l++) to[l * ZK_FPANEL + j] = from[l];
    }
}

/* The weight of an expert, columns [n0, n0 + n), in panels; where there are no more columns, zeros. */
static void pack(const Product *p, int64_t base, int64_t n0, int64_t n, float *to) {
  int64_t k = p->k.n, panel = k * ZK_FPANEL;
  if (p->k.step[1] == 1 && p->n.step[1] != 1) {
    for (int64_t j = 0; j < n; j += ZK_FPANEL, to += panel) {
      if (n - j < ZK_FPANEL) zk_run_fill(to, 0, panel);
      pack_along(&p->w, base + p->k.at[1][0], p->n.at[1] + n0 + j, zk_min(ZK_FPANEL, n - j), k, to);
    }
    return;
  }
  for (int64_t i = 0; i < k; i += ZK_PACK_ROWS) {
    int64_t row[ZK_PACK_ROWS], rows = zk_min(ZK_PACK_ROWS, k - i);
    for (int64_t j = 0; j < rows; j++) row[j] = base + p->k.at[1][i + j];
    for (int64_t j = i + ZK_PACK_ROWS; j < zk_min(k, i + 2 * ZK_PACK_ROWS) && zk_is_plain((ZkElem)p->w.elem);
         j++)
      for (int64_t l = 0; l < n; l += 64 / (int64_t)sizeof(float))
        __builtin_prefetch(zk_at(&p->w, base + p->k.at[1][j] + p->n.at[1][n0 + l]));
    zk_pack_rows(to + i * ZK_FPANEL, panel, ZK_FPANEL, &p->w, row, rows, &p->n, 1, n0, n);
  }
}

/* m rows from `row` on by the packed weight. */
static void multiply(const Product *p, const Panels *to, int64_t row, int64_t m, int64_t n0, int64_t n) {
  ZkFblock b = {
      .c = to->y, .ldc = n, .a_step = 1, .b_step = ZK_FPANEL, .b_panel = p->k.n * ZK_FPANEL, .m = m, .n = n};
  int64_t y = zk_row_at(&p->yr, row);
  if (p->writes_y) b.c = (float *)p->y.data + y + p->n.at[0][n0], b.ldc = p->yr.per_slot;
  int64_t depth = zk_ceil_div(p->k.n, zk_ceil_div(p->k.n, DEPTH));
  for (int64_t k0 = 0; k0 < p->k.n; k0 += depth) {
    b.k = zk_min(depth, p->k.n - k0), b.b = to->weight + k0 * ZK_FPANEL, b.add = k0 > 0;
    b.a = to->x, b.a_row = b.k;
    if (p->reads_x)
      b.a = (const float *)p->x.data + zk_row_at(&p->xr, row) + p->k.at[0][k0], b.a_row = p->xr.per_slot;
    else
      for (int64_t i = 0; i < m; i++)
        zk_places_load(to->x + i * b.k, &p->x, zk_row_at(&p->xr, row + i), &p->k, 0, k0, b.k);
    b.a_strip = ZK_FSTRIP * b.a_row;
    zk_fgemm_block(&b);
  }
  for (int64_t i = 0; i < m && !p->writes_y; i++)
    zk_places_store(&p->y, zk_row_at(&p->yr, row + i), &p->n, 0, n0, n, to->y + i * n);
}

static void run_products(void *arg, int64_t from, int64_t to, int part) {
  const Product *p = arg;
  Panels own = panels(p, part);
  for (int64_t t = from; t < to; t++) {
    int64_t e = t / p->parts, n0 = t % p->parts * COLUMNS, n = zk_min(COLUMNS, p->n.n - n0);
    int64_t row = zk_first_row(&p->ends, e), end = zk_first_row(&p->ends, e + 1);
    ZB_ASSERT(row >= 0 && row <= end && end <= p->rows);
    if (row < end && p->half) zk_grouped_half_pack(p, e * p->per_expert, n0, n, own_scratch(p, part));
    else if (row < end) pack(p, e * p->per_expert, n0, n, own.weight);
    for (; row < end; row += TILE) {
      int64_t m = zk_min(TILE, end - row);
      if (p->half) zk_grouped_half_multiply(p, row, m, n0, n, own_scratch(p, part));
      else multiply(p, &own, row, m, n0, n);
    }
  }
}

static void run_zeros(void *arg, int64_t from, int64_t to, int part) {
  static const float zeros[COLUMNS];
  const Product *p = arg;
  (void)part;
  for (int64_t i = from; i < to; i++)
    for (int64_t n0 = 0; n0 < p->n.n; n0 += COLUMNS)
      zk_places_store(&p->y, zk_row_at(&p->yr, p->rows - 1 - i), &p->n, 0, n0, zk_min(COLUMNS, p->n.n - n0),
                      zeros);
}

static bool lies_there(const ZkView *v, const ZkRows *r, const ZkPlaces *along, int64_t rows) {
  return along->step[0] == 1 && zk_rows_are_even(r, rows) && (v->elem == ZK_F32 || v->elem == ZK_BF16);
}

/* How many elements lie along what the weight of one expert contracts, and along the rest. */
static void weight_size(const ZkCall *c, int64_t *k, int64_t *n) {
  const ZkView *w = &c->in[1];
  *k = *n = 1;
  for (int i = 0; i < w->rank; i++) {
    if (w->axis[i] == c->ax[0]) continue;
    *(zk_has(c->ax, c->nax, w->axis[i]) ? k : n) *= w->size[i];
  }
}
/* The same on every machine, since a plan counts them. */
static size_t thread_bytes(int64_t k, int64_t n) {
  size_t bytes = panel_bytes(k, n), half = zk_grouped_half_bytes(k, n);
  return zb_round_up(bytes > half ? bytes : half, 64);
}

void zk_cpu_grouped_dot(const ZkEnv *env, const ZkCall *c) {
  if (c->invariant) {
    zk_grouped_invariant(env, c);
    return;
  }
  Product p = {.x = c->in[0], .w = c->in[1], .ends = c->in[2], .y = c->out[0]};
  uint16_t cols[ZK_MAX_AXES];
  int ncols = zk_axes_but(&p.w, c->ax, c->nax, cols);
  ZB_ASSERT(p.ends.elem == ZK_I32);
  int64_t *room = zk_places(&p.k, &p.x, &p.w, c->ax + 2, c->nax - 2, c->scratch);
  zk_places(&p.n, &p.y, &p.w, cols, ncols, room);
  p.scratch = (char *)c->scratch + zk_places_bytes(p.k.n, p.n.n);
  p.per_thread = thread_bytes(p.k.n, p.n.n);
  p.xr = zk_rows_of(&p.x, c), p.yr = zk_rows_of(&p.y, c);
  p.experts = zk_axis_size(&p.w, c->ax[0]), p.per_expert = zk_axis_stride(&p.w, c->ax[0]);
  p.rows = zk_row_count(&p.y, c);
  p.half = zk_grouped_half_here(&p.x, &p.w);
  p.reads_x = p.half ? zk_grouped_half_reads(&p)
                     : p.x.elem == ZK_F32 && lies_there(&p.x, &p.xr, &p.k, zk_row_count(&p.x, c));
  p.writes_y = (p.half || p.y.elem == ZK_F32) && lies_there(&p.y, &p.yr, &p.n, p.rows);
  p.parts = zk_ceil_div(p.n.n, COLUMNS);
  if (p.k.n > 0) zk_for(env, p.experts * p.parts, 1, run_products, &p);
  int64_t left = p.k.n > 0 ? p.rows - zk_first_row(&p.ends, p.experts) : p.rows;
  zk_for(env, left, zk_max(1, 16384 / zk_max(1, p.n.n)), run_zeros, &p);
}

size_t zk_scratch_grouped_dot(const ZkCall *c, int threads) {
  if (c->invariant) return zk_grouped_invariant_scratch(c, threads);
  int64_t k, n;
  weight_size(c, &k, &n);
  return zk_places_bytes(k, n) + (size_t)threads * thread_bytes(k, n);
}

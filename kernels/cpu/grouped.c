/* Products of rows that are sorted by expert with the weight of each, and the gradient of those weights.
 * Whose a row is, memory says when the call runs.
 *
 * A task is one expert and some columns. Its weight is brought into a panel once, then all its rows go by,
 * ZK_GROUP_TILE at a time from the expert's first on; what a tile lacks are zeros. So every product has the
 * same shape, and the bits of a row do not depend on how many rows there are, nor on whose the others are. */
#include <limits.h>

#include "kernels/cpu/cpu.h"

#define T ZK_GROUP_TILE
#define COLUMNS 128 /* of a result at once */
#define OUTER 128   /* rows and columns of a gradient at once */

/* ---- places -------------------------------------------------------------------------------------------- */
/* The rows of a view: axis `slot`, or `expert` and `slot` as one. */
typedef struct {
  int64_t slots, per_expert, per_slot;
} Rows;
static Rows rows_of(const ZkView *v, const ZkCall *c) {
  return (Rows){zk_axis_size(v, c->ax[1]), zk_axis_stride(v, c->ax[0]), zk_axis_stride(v, c->ax[1])};
}
static int64_t row_at(const Rows *r, int64_t i) {
  return i / r->slots * r->per_expert + i % r->slots * r->per_slot;
}
static int64_t row_count(const ZkView *v, const ZkCall *c) {
  int64_t slots = zk_axis_size(v, c->ax[1]);
  return zk_axis_find(v, c->ax[0]) >= 0 ? slots * zk_axis_size(v, c->ax[0]) : slots;
}

/* Offsets in two views along the axes `ax`, in the order of the first. */
typedef struct {
  int64_t n, *at[2];
  int64_t step[2]; /* between neighbours, or 0 where that is not the same everywhere */
} Places;

static int64_t step_of(const int64_t *at, int64_t n) {
  int64_t step = n > 1 ? at[1] - at[0] : 1;
  for (int64_t i = 1; i < n; i++)
    if (at[i] - at[i - 1] != step) return 0;
  return step;
}

static int64_t *places(Places *p, const ZkView *a, const ZkView *b, const uint16_t *ax, int nax,
                       int64_t *room) {
  const ZkView *views[] = {a, b};
  ZkNest nest = zk_nest(views, 2, ax, nax, true);
  ZkWalk w;
  p->n = zk_nest_count(&nest);
  for (int v = 0; v < 2; v++) p->at[v] = room, room += p->n;
  zk_walk_seek(&nest, &w, 0);
  for (int64_t i = 0; i < p->n; i++, zk_walk_next(&nest, &w))
    for (int v = 0; v < 2; v++) p->at[v][i] = w.off[v];
  for (int v = 0; v < 2; v++) p->step[v] = step_of(p->at[v], p->n);
  return room;
}

/* n elements of places[from..], into `to`. */
static void load_places(float *to, const ZkView *v, int64_t base, const Places *p, int which, int64_t from,
                        int64_t n) {
  const int64_t *at = p->at[which] + from;
  if (p->step[which]) zk_load(to, v, base + at[0], p->step[which], n);
  else
    for (int64_t i = 0; i < n; i++) to[i] = zk_get(v, base + at[i]);
}
static void store_places(const ZkView *v, int64_t base, const Places *p, int which, int64_t from, int64_t n,
                         const float *x) {
  const int64_t *at = p->at[which] + from;
  if (p->step[which]) zk_store(v, base + at[0], p->step[which], n, x, false);
  else
    for (int64_t i = 0; i < n; i++) zk_set(v, base + at[i], x[i]);
}

/* Axes of `v` that are not among ax[0..nax). */
static int others(const ZkView *v, const uint16_t *ax, int nax, uint16_t *out) {
  int n = 0;
  for (int i = 0; i < v->rank; i++)
    if (!zk_has(ax, nax, v->axis[i])) out[n++] = v->axis[i];
  return n;
}

static int64_t first_row(const ZkView *ends, int64_t expert) {
  int64_t step = ends->rank ? ends->stride[0] : 1;
  return expert ? ((const int32_t *)ends->data)[(expert - 1) * step] : 0;
}

/* ---- rows times weights -------------------------------------------------------------------------------- */
typedef struct {
  ZkView x, w, ends, y;
  Rows xr, yr;
  Places k, n; /* in x and w; in y and w */
  int64_t experts, rows, per_expert, tiles;
  float *panels; /* of each thread: the weight's, the rows', the result's */
} Product;

static int64_t panel_size(int64_t k) { return k * COLUMNS + T * k + T * COLUMNS; }

/* The weight of an expert, k by n, or its transpose, where it lies or in a panel. */
static const float *weight(const Product *p, int64_t base, int64_t n0, int64_t n, float *panel, bool *trans,
                           int64_t *ld) {
  const Places *k = &p->k, *cols = &p->n;
  bool along_n = cols->step[1] == 1, along_k = !along_n && k->step[1] == 1;
  int64_t other = along_n ? k->step[1] : cols->step[1];
  *trans = along_k;
  if (p->w.elem == ZK_F32 && (along_n || along_k) && other >= (along_n ? n : k->n) && other <= INT_MAX) {
    *ld = other;
    return (const float *)p->w.data + base + k->at[1][0] + cols->at[1][n0];
  }
  *ld = along_k ? k->n : n;
  if (along_k)
    for (int64_t j = 0; j < n; j++)
      load_places(panel + j * k->n, &p->w, base + cols->at[1][n0 + j], k, 1, 0, k->n);
  else
    for (int64_t i = 0; i < k->n; i++) load_places(panel + i * n, &p->w, base + k->at[1][i], cols, 1, n0, n);
  return panel;
}

static void run_products(void *arg, int64_t from, int64_t to, int part) {
  const Product *p = arg;
  float *panel = p->panels + part * panel_size(p->k.n), *a = panel + p->k.n * COLUMNS, *c = a + T * p->k.n;
  for (int64_t t = from; t < to; t++) {
    int64_t e = t / p->tiles, n0 = t % p->tiles * COLUMNS, n = zk_min(COLUMNS, p->n.n - n0), ld;
    int64_t row = first_row(&p->ends, e), end = first_row(&p->ends, e + 1);
    ZB_ASSERT(row >= 0 && row <= end && end <= p->rows);
    bool trans = false;
    const float *b = row < end ? weight(p, e * p->per_expert, n0, n, panel, &trans, &ld) : panel;
    for (; row < end; row += T) {
      int64_t m = zk_min(T, end - row);
      for (int64_t i = 0; i < m; i++)
        load_places(a + i * p->k.n, &p->x, row_at(&p->xr, row + i), &p->k, 0, 0, p->k.n);
      zk_run_fill(a + m * p->k.n, 0, (T - m) * p->k.n);
      zk_sgemm(false, trans, T, n, p->k.n, 1, a, p->k.n, b, ld, 0, c, n);
      for (int64_t i = 0; i < m; i++)
        store_places(&p->y, row_at(&p->yr, row + i), &p->n, 0, n0, n, c + i * n);
    }
  }
}

static void run_zeros(void *arg, int64_t from, int64_t to, int part) {
  static const float zeros[COLUMNS];
  const Product *p = arg;
  (void)part;
  for (int64_t i = from; i < to; i++)
    for (int64_t n0 = 0; n0 < p->n.n; n0 += COLUMNS)
      store_places(&p->y, row_at(&p->yr, p->rows - 1 - i), &p->n, 0, n0, zk_min(COLUMNS, p->n.n - n0), zeros);
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

void zk_cpu_grouped_dot(const ZkEnv *env, const ZkCall *c) {
  Product p = {.x = c->in[0], .w = c->in[1], .ends = c->in[2], .y = c->out[0]};
  uint16_t cols[ZK_MAX_AXES];
  int ncols = others(&p.w, c->ax, c->nax, cols);
  ZB_ASSERT(p.ends.elem == ZK_I32);
  int64_t *room = places(&p.k, &p.x, &p.w, c->ax + 2, c->nax - 2, c->scratch);
  room = places(&p.n, &p.y, &p.w, cols, ncols, room);
  p.panels = (float *)room;
  p.xr = rows_of(&p.x, c), p.yr = rows_of(&p.y, c);
  p.experts = zk_axis_size(&p.w, c->ax[0]), p.per_expert = zk_axis_stride(&p.w, c->ax[0]);
  p.rows = row_count(&p.y, c);
  p.tiles = zk_ceil_div(p.n.n, COLUMNS);
  if (p.k.n > 0) zk_for(env, p.experts * p.tiles, 1, run_products, &p);
  int64_t left = p.k.n > 0 ? p.rows - first_row(&p.ends, p.experts) : p.rows;
  zk_for(env, left, zk_max(1, 16384 / zk_max(1, p.n.n)), run_zeros, &p);
}

size_t zk_scratch_grouped_dot(const ZkCall *c, int threads) {
  int64_t k, n;
  weight_size(c, &k, &n);
  return (size_t)(2 * (k + n)) * sizeof(int64_t) + (size_t)(threads * panel_size(k)) * sizeof(float);
}

/* ---- the gradient of weights --------------------------------------------------------------------------- */
/* A task is one expert and a tile of its gradient, which is summed in a panel: over tiles of rows, in order. */
typedef struct {
  ZkView x, g, ends, w;
  Rows xr, gr;
  Places k, n; /* in x and w; in g and w */
  int64_t experts, rows, per_expert, ktiles, ntiles;
  bool add;
  float *panels; /* of each thread: the rows' of x and g, the sum's */
} Outer;
enum { PANELS = 2 * T * OUTER + OUTER * OUTER };

static void run_outer(void *arg, int64_t from, int64_t to, int part) {
  const Outer *p = arg;
  float *a = p->panels + part * PANELS, *b = a + T * OUTER, *sum = b + T * OUTER;
  for (int64_t t = from; t < to; t++) {
    int64_t e = t / (p->ktiles * p->ntiles), k0 = t / p->ntiles % p->ktiles * OUTER,
            n0 = t % p->ntiles * OUTER;
    int64_t k = zk_min(OUTER, p->k.n - k0), n = zk_min(OUTER, p->n.n - n0), base = e * p->per_expert;
    int64_t row = first_row(&p->ends, e), end = first_row(&p->ends, e + 1);
    ZB_ASSERT(row >= 0 && row <= end && end <= p->rows);
    if (p->add && row == end) continue;
    zk_run_fill(sum, 0, k * n);
    for (int64_t i = 0; p->add && i < k; i++)
      load_places(sum + i * n, &p->w, base + p->k.at[1][k0 + i], &p->n, 1, n0, n);
    for (; row < end; row += T) {
      int64_t m = zk_min(T, end - row);
      for (int64_t i = 0; i < m; i++) {
        load_places(a + i * k, &p->x, row_at(&p->xr, row + i), &p->k, 0, k0, k);
        load_places(b + i * n, &p->g, row_at(&p->gr, row + i), &p->n, 0, n0, n);
      }
      zk_run_fill(a + m * k, 0, (T - m) * k);
      zk_run_fill(b + m * n, 0, (T - m) * n);
      zk_sgemm(true, false, k, n, T, 1, a, k, b, n, 1, sum, n);
    }
    for (int64_t i = 0; i < k; i++)
      store_places(&p->w, base + p->k.at[1][k0 + i], &p->n, 1, n0, n, sum + i * n);
  }
}

void zk_cpu_grouped_outer(const ZkEnv *env, const ZkCall *c) {
  Outer p = {.x = c->in[0], .g = c->in[1], .ends = c->in[2], .w = c->out[0], .add = c->accumulate};
  uint16_t rows[ZK_MAX_AXES], cols[ZK_MAX_AXES];
  int nrows = others(&p.x, c->ax, 2, rows), ncols = others(&p.g, c->ax, 2, cols);
  ZB_ASSERT(p.ends.elem == ZK_I32);
  int64_t *room = places(&p.k, &p.x, &p.w, rows, nrows, c->scratch);
  room = places(&p.n, &p.g, &p.w, cols, ncols, room);
  p.panels = (float *)room;
  p.xr = rows_of(&p.x, c), p.gr = rows_of(&p.g, c);
  p.experts = zk_axis_size(&p.w, c->ax[0]), p.per_expert = zk_axis_stride(&p.w, c->ax[0]);
  p.rows = row_count(&p.x, c);
  p.ktiles = zk_ceil_div(p.k.n, OUTER), p.ntiles = zk_ceil_div(p.n.n, OUTER);
  zk_for(env, p.experts * p.ktiles * p.ntiles, 1, run_outer, &p);
}

size_t zk_scratch_grouped_outer(const ZkCall *c, int threads) {
  int64_t k = 1, n = 1;
  const ZkView *w = &c->out[0];
  for (int i = 0; i < w->rank; i++)
    if (w->axis[i] != c->ax[0]) *(zk_axis_find(&c->in[0], w->axis[i]) >= 0 ? &k : &n) *= w->size[i];
  return (size_t)(2 * (k + n)) * sizeof(int64_t) + (size_t)threads * PANELS * sizeof(float);
}

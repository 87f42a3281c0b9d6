/* dot of rows by packed weights of INTEGER codes, as the reference says (ref/packed.c): rows are rounded to
 * codes of 8 bits, a group at a time, and panels of weights are read where they lie. The bits of a result
 * depend on its row and column alone, as invariant.h has it, where groups take the place of k: chunks are of
 * whole groups, so that ranks that share k have their chunks if each has whole groups.
 *
 * Threads take panels: each reads one run of memory. All rows go by a panel while it is in the nearest
 * cache. */
#include "kernels/cpu/invariant.h"
#include "kernels/cpu/packed.h"

typedef ZkPackedProduct Product;
enum { Y = ZK_PACKED_Y, X = ZK_PACKED_X };

static bool packed_operand(const ZkCall *c) { return zk_is_packed((ZkElem)c->in[1].elem); }

bool zk_is_packed_dot(const ZkCall *c) {
  const ZkView *w = &c->in[packed_operand(c)];
  if (!zk_is_packed((ZkElem)w->elem) || zk_elem_info[w->elem].codes != ZK_CODES_INTEGER) return false;
  for (int i = w->rank - w->summed; i < w->rank; i++)
    if (!zk_has(c->ax, c->nax, w->axis[i])) return false;
  return w->summed == c->nax;
}

void zk_packed_product(ZkPackedProduct *p, const ZkView *w) {
  const ZkView *y = &p->y, *x = &p->x;
  p->w = zk_packed_of(w);
  p->k.nviews = p->n.nviews = 1, p->batch.nviews = 2;
  for (int i = 0; i < w->rank; i++) {
    uint16_t axis = w->axis[i];
    const ZkView *both[] = {y, x};
    bool shared = zk_axis_find(x, axis) >= 0;
    if (i >= w->rank - w->summed) zk_nest_add(&p->k, &x, 1, axis, w->size[i]);
    else if (axis == p->expert) continue;
    else zk_nest_add(shared ? &p->batch : &p->n, both, shared ? 2 : 1, axis, w->size[i]);
  }
  zk_nest_merge(&p->batch), zk_nest_merge(&p->n), zk_nest_merge(&p->k);
  p->nbatch = zk_nest_count(&p->batch), p->M = zk_nest_count(&p->m), p->N = zk_nest_count(&p->n);
  p->groups = p->w.k / zk_packed_group(p->w.elem);
  ZB_ASSERT(p->w.columns == p->N || p->N % ZK_COLUMNS == 0);
}

static Product analyse(const ZkCall *c) {
  int which = packed_operand(c);
  const ZkView *w = &c->in[which];
  Product p = {.x = c->in[!which], .y = c->out[0], .add = c->accumulate, .expert = ZK_PACKED_NO_EXPERT};
  const ZkView *rows[] = {&p.y, &p.x};
  p.m = zk_nest(rows, 2, w->axis, w->rank, false);
  p.chunks = zk_sum_chunks(w, c->ax, c->nax);
  zk_packed_product(&p, w);
  return p;
}

static int64_t own_bytes(const Product *p) { return zk_up(p->w.k * ZK_COLUMNS, 64); }

/* ---- rows in 8 bits ------------------------------------------------------------------------------------ */
/* Returns the elements of a row in the order of k: where they lie, or in buf. */
static const float *row_of(const Product *p, int64_t off, float *buf) {
  ZkNest k = p->k;
  ZkLoop run = zk_nest_pop(&k);
  ZkWalk w;
  if (k.nloops == 0) return zk_row_in(&p->x, off, run.s[0], run.n, buf);
  zk_walk_seek(&k, &w, 0);
  for (int64_t i = 0; i < p->w.k; i += run.n, zk_walk_next(&k, &w))
    zk_load(buf + i, &p->x, off + w.off[0], run.s[0], run.n);
  return buf;
}

static void round_rows(void *arg, int64_t from, int64_t to, int part) {
  const Product *p = arg;
  int64_t k = p->w.k, g = p->groups;
  for (int64_t r = from; r < to; r++) {
    ZkWalk b, m;
    zk_walk_seek(&p->batch, &b, r / p->M);
    zk_walk_seek(&p->m, &m, p->first + r % p->M);
    float *own = (float *)(void *)(p->own + part * own_bytes(p));
    const float *x = row_of(p, b.off[X] + m.off[X], own);
    int32_t *sum = p->sum + r * g;
    zk_packed_round(x, k, zk_packed_group(p->w.elem), p->code + r * k, p->scale + r * g, sum);
    if (zk_elem_info[p->w.elem].zero == ZK_ZERO_POINT) continue;
    for (int64_t i = 0; i < g; i++) sum[i] *= zk_packed_zero(p->w.elem);
  }
}

/* ---- sums ---------------------------------------------------------------------------------------------- */
ZK_SIMD static void add(float *to, const float *x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) to[i] += x[i];
}

/* Adds sums of chunks c .. c + span, of m rows, as a tree. Returns the chunk whose place they take, or -1:
 * they are empty. */
static int sum_tree(const Product *p, int c, int span, int64_t m, ZkPackedSums sums) {
  if (span == 1) return p->bound[c] < p->bound[c + 1] ? c : -1;
  int left = sum_tree(p, c, span / 2, m, sums), right = sum_tree(p, c + span / 2, span / 2, m, sums);
  if (left >= 0 && right >= 0) add(sums[left][0], sums[right][0], m * ZK_COLUMNS);
  return left >= 0 ? left : right;
}

/* Stores n columns of rows m .. m + rows of a batch. */
static void put(const Product *p, int64_t batch, int64_t m, int64_t rows, int64_t column, int64_t n,
                float sums[][ZK_COLUMNS]) {
  ZkNest columns = p->n;
  ZkLoop run = zk_nest_pop(&columns);
  ZkWalk b = {0}, r, w = {0};
  if (p->batch.nloops) zk_walk_seek(&p->batch, &b, batch);
  zk_walk_seek(&p->m, &r, p->first + m);
  for (int64_t i = 0; i < rows; i++, zk_walk_next(&p->m, &r))
    for (int64_t j = 0, len; j < n; j += len) {
      int64_t at = columns.nloops ? (column + j) % run.n : column + j;
      if (columns.nloops) zk_walk_seek(&columns, &w, (column + j) / run.n);
      len = zk_min(n - j, run.n - at);
      zk_store(&p->y, b.off[Y] + r.off[Y] + w.off[Y] + at * run.s[Y], run.s[Y], len, sums[i] + j, p->add);
    }
}

/* Sums a panel by some rows. tiles: the panel in bytes, if AMX has so many rows; or NULL. */
static void multiply_panel(const Product *p, int64_t panel, const uint8_t *tiles, const ZkRoundedRows *x,
                           ZkPackedSums sums) {
  if (tiles) zk_packed_tiles(&p->w, panel, tiles, x, p->bound, p->chunks, sums);
  for (int c = 0; c < p->chunks && !tiles; c++)
    if (p->bound[c] < p->bound[c + 1]) zk_packed_rows(&p->w, panel, x, p->bound[c], p->bound[c + 1], sums[c]);
}

/* Panels of all batches: a panel by all rows of its batch. */
static void run_panels(void *arg, int64_t from, int64_t to, int part) {
  const Product *p = arg;
  int64_t k = p->w.k, g = p->groups;
  bool tiles = p->M >= ZK_TILE_ROWS && zk_packed_by_tiles();
  if (tiles) zk_packed_tiles_begin(p->w.elem);
  for (int64_t i = from; i < to; i++) {
    int64_t batch = i * ZK_COLUMNS / p->N, column = i * ZK_COLUMNS - batch * p->N, panel = p->panel + i;
    const uint8_t *bytes =
        tiles ? zk_packed_tiles_of(&p->w, panel, (uint8_t *)p->own + part * own_bytes(p)) : NULL;
    for (int64_t m = 0, rows; m < p->M; m += rows) {
      ZkPackedSums sums;
      int64_t r = batch * p->M + m, blocks = bytes ? zk_min(2, (p->M - m) / ZK_TILE_ROWS) : 0;
      rows = blocks ? blocks * ZK_TILE_ROWS : zk_min(ZK_PACKED_ROWS, p->M - m);
      ZkRoundedRows x = {p->code + r * k, p->scale + r * g, p->sum + r * g, rows, k, g};
      multiply_panel(p, panel, blocks ? bytes : NULL, &x, sums);
      int all = sum_tree(p, 0, p->chunks, rows, sums);
      if (all < 0) memset(sums[all = 0], 0, sizeof sums[0]);
      put(p, batch, m, rows, column, zk_min(ZK_COLUMNS, p->N - column), sums[all]);
    }
  }
  if (tiles) zk_packed_tiles_end();
}

/* ---- the op -------------------------------------------------------------------------------------------- */
typedef struct {
  size_t code, scale, sum, own, all;
} Room;

static Room room_of(const Product *p, int threads) {
  size_t rows = (size_t)(p->nbatch * p->M), k = (size_t)p->w.k, g = (size_t)p->groups;
  Room r = {.code = 0};
  r.scale = zb_round_up(rows * k, 64);
  r.sum = r.scale + zb_round_up(rows * g * sizeof(float), 64);
  r.own = r.sum + zb_round_up(rows * g * sizeof(int32_t), 64);
  r.all = r.own + (size_t)threads * (size_t)own_bytes(p);
  return r;
}

void zk_packed_multiply(const ZkEnv *env, ZkPackedProduct *p, void *scratch) {
  Room r = room_of(p, zk_threads(env));
  char *at = scratch;
  for (int c = 0; c <= p->chunks; c++) p->bound[c] = zk_sum_chunk(p->groups, c, p->chunks);
  p->code = (int8_t *)at + r.code, p->scale = (float *)(void *)(at + r.scale);
  p->sum = (int32_t *)(void *)(at + r.sum), p->own = at + r.own;
  zk_for(env, p->nbatch * p->M, zk_max(1, 8192 / zk_max(p->w.k, 1)), round_rows, p);
  int64_t work = zk_max(1, p->M * p->w.k * ZK_COLUMNS);
  if (p->M > 0) zk_for(env, p->nbatch * zk_packed_panels(p->N), zk_max(1, (1 << 17) / work), run_panels, p);
}

size_t zk_packed_multiply_scratch(const ZkPackedProduct *p, int threads) { return room_of(p, threads).all; }

void zk_packed_dot(const ZkEnv *env, const ZkCall *c) {
  Product p = analyse(c);
  zk_packed_multiply(env, &p, c->scratch);
}

size_t zk_packed_dot_scratch(const ZkCall *c, int threads) {
  Product p = analyse(c);
  return zk_packed_multiply_scratch(&p, threads);
}

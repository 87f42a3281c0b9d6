/* sum, peak, and the products whose every axis is batched or contracted: one reduction over a nest of axes.
 *
 * Two shapes. Rows: the fastest axis is reduced; a result is a sum over runs. Columns: the fastest axis is
 * kept; a block of columns is accumulated over rows. Where that gives too few tasks, the reduced range is cut
 * into chunks whose partial results lie in scratch and are added in order. All cuts depend on shapes only, so
 * the result does not depend on the number of threads. Batch-invariant calls have none of these, since their
 * number depends on how many results there are: a sum of theirs is the tree of chunks of invariant.h, of which a rank
 * that has a part of an axis makes a subtree. */
#include "kernels/cpu/invariant.h"

#define SEGMENT 1024 /* longest run summed at once in f32 */
#define COLUMNS 1024
#define ROWS 256 /* added in f32 before their sum is added to that of others */
#define TASKS 64 /* enough for the threads of a machine */

typedef enum { SUM, PEAK, DOT } Kind;
typedef struct {
  Kind kind;
  bool add, rows;
  int nin;
  ZkView in[2], out;
  ZkNest kept, red; /* views: in[0], out, in[1]; without their innermost loops below */
  ZkLoop inner, cols;
  int64_t units, pieces, npiece, range, chunks;
  int64_t npoints; /* results */
  int tree;        /* chunks of a batch-invariant sum; 0: it is another call */
  float *partial;
} Reduce;

/* Entries of ax[0] that count in a view that starts somewhere in the global axis. */
static void limit_valid(ZkView *v, uint16_t axis, int64_t valid) {
  int i = zk_axis_find(v, axis);
  if (valid > 0) v->size[i] = zk_max(0, zk_min(v->size[i], valid - v->start[i]));
}

static Reduce analyse(const ZkCall *c, Kind kind) {
  Reduce r = {.kind = kind, .add = c->accumulate, .nin = kind == DOT ? 2 : 1, .out = c->out[0]};
  r.in[0] = c->in[0];
  if (kind == DOT) r.in[1] = c->in[1];
  if (kind == PEAK && c->nax > 0) limit_valid(&r.in[0], c->ax[0], c->opt[1]);
  const ZkView *views[] = {&r.in[0], &r.out, &r.in[1]};
  int nviews = kind == DOT ? 3 : 2;
  r.kept = zk_nest(views, nviews, c->ax, c->nax, false);
  r.red = zk_nest(views, nviews, c->ax, c->nax, true);
  zk_nest_order(&r.kept, 0);
  zk_nest_order(&r.red, 0);
  r.npoints = zk_nest_count(&r.kept);
  int64_t kept_step = r.kept.nloops ? r.kept.loop[r.kept.nloops - 1].s[0] : INT64_MAX;
  r.rows = r.kept.nloops == 0 || (r.red.nloops > 0 && r.red.loop[r.red.nloops - 1].s[0] < kept_step);
  if (r.rows) {
    r.inner = zk_nest_pop(&r.red);
    r.cols = (ZkLoop){.n = 1};
    r.units = r.npoints;
    r.pieces = zk_max(1, zk_ceil_div(r.inner.n, SEGMENT));
    r.npiece = SEGMENT;
    r.range = zk_nest_count(&r.red) * r.pieces;
    r.chunks = zk_min(zk_ceil_div(TASKS, zk_max(r.units, 1)), zk_max(r.range / 4, 1));
  } else {
    r.inner = (ZkLoop){.n = 1};
    r.cols = zk_nest_pop(&r.kept);
    r.pieces = zk_ceil_div(r.cols.n, COLUMNS);
    r.npiece = COLUMNS;
    r.units = zk_nest_count(&r.kept) * r.pieces;
    r.range = zk_nest_count(&r.red);
    r.chunks = zk_min(zk_ceil_div(TASKS, zk_max(r.units, 1)), zk_max(r.range / 32, 1));
  }
  if (c->invariant) r.chunks = 1;
  if (c->invariant && kind != PEAK) r.tree = zk_sum_chunks(&c->in[0], c->ax, c->nax);
  return r;
}

static float run_rows(const Reduce *r, const ZkWalk *kept, int64_t from, int64_t to) {
  float buf[2][SEGMENT];
  double sum = 0;
  float peak = -__builtin_inff();
  ZkWalk w;
  zk_walk_seek(&r->red, &w, from / r->pieces);
  for (int64_t i = from, piece = from % r->pieces; i < to; i++) {
    int64_t at = piece * r->npiece, n = zk_min(r->npiece, r->inner.n - at);
    const float *x =
        zk_row_in(&r->in[0], kept->off[0] + w.off[0] + at * r->inner.s[0], r->inner.s[0], n, buf[0]);
    if (r->kind == SUM) {
      sum += zk_run_sum(x, n);
    } else if (r->kind == PEAK) {
      float p = zk_run_max(x, n);
      peak = p > peak ? p : peak;
    } else {
      const float *y =
          zk_row_in(&r->in[1], kept->off[2] + w.off[2] + at * r->inner.s[2], r->inner.s[2], n, buf[1]);
      sum += zk_run_dot(x, y, n);
    }
    if (++piece == r->pieces) {
      piece = 0;
      zk_walk_next(&r->red, &w);
    }
  }
  return r->kind == PEAK ? peak : (float)sum;
}

static void run_columns(const Reduce *r, const ZkWalk *kept, int64_t at, int64_t n, int64_t from, int64_t to,
                        float *total) {
  float buf[2][COLUMNS], acc[COLUMNS];
  float none = r->kind == PEAK ? -__builtin_inff() : 0;
  int64_t s = r->cols.s[0], s2 = r->cols.s[2];
  ZkWalk w;
  zk_walk_seek(&r->red, &w, from);
  zk_run_fill(total, none, n);
  for (int64_t i = from; i < to; i += ROWS) {
    zk_run_fill(acc, none, n);
    for (int64_t row = i; row < zk_min(i + ROWS, to); row++, zk_walk_next(&r->red, &w)) {
      const float *x = zk_row_in(&r->in[0], kept->off[0] + w.off[0] + at * s, s, n, buf[0]);
      if (r->kind == SUM) zk_run_add(acc, x, n);
      else if (r->kind == PEAK) zk_run_max_into(acc, x, n);
      else zk_run_fma(acc, x, zk_row_in(&r->in[1], kept->off[2] + w.off[2] + at * s2, s2, n, buf[1]), n);
    }
    if (r->kind == PEAK) zk_run_max_into(total, acc, n);
    else zk_run_add(total, acc, n);
  }
}

/* Sums elements [from, to) of what is reduced, of rows. */
static float run_elements(const Reduce *r, const ZkWalk *kept, int64_t from, int64_t to) {
  float buf[2][SEGMENT];
  double sum = 0;
  ZkWalk w;
  zk_walk_seek(&r->red, &w, from / r->inner.n);
  for (int64_t k = from, at = from % r->inner.n, n; k < to; k += n) {
    n = zk_min(zk_min(SEGMENT, r->inner.n - at), to - k);
    const float *x =
        zk_row_in(&r->in[0], kept->off[0] + w.off[0] + at * r->inner.s[0], r->inner.s[0], n, buf[0]);
    if (r->kind == SUM) sum += zk_run_sum(x, n);
    else
      sum += zk_run_dot(
          x, zk_row_in(&r->in[1], kept->off[2] + w.off[2] + at * r->inner.s[2], r->inner.s[2], n, buf[1]), n);
    at += n;
    if (at == r->inner.n) at = 0, zk_walk_next(&r->red, &w);
  }
  return (float)sum;
}

/* Sums k terms from `from` on as the tree of `chunks` chunks, for n columns from `at` on, or a row. False: there are
 * none. */
static bool sum_tree(const Reduce *r, const ZkWalk *kept, int64_t at, int64_t n, int64_t from, int64_t k,
                     int chunks, float *acc) {
  float other[COLUMNS];
  if (!k) return false;
  if (chunks == 1) {
    if (r->rows) acc[0] = run_elements(r, kept, from, from + k);
    else run_columns(r, kept, at, n, from, from + k, acc);
    return true;
  }
  int64_t half = k / 2; /* as zk_sum_chunk has it */
  bool left = sum_tree(r, kept, at, n, from, half, chunks / 2, acc);
  bool right = sum_tree(r, kept, at, n, from + half, k - half, chunks / 2, left ? other : acc);
  if (left && right) zk_run_add(acc, other, n);
  return left || right;
}

static void run_tree(const Reduce *r, const ZkWalk *kept, int64_t at, int64_t n, float *acc) {
  int64_t k = zk_nest_count(&r->red) * r->inner.n;
  if (!sum_tree(r, kept, at, n, 0, k, r->tree, acc)) zk_run_fill(acc, 0, n);
}

/* Tasks [from, to) of units * chunks. */
static void run_tasks(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Reduce *r = arg;
  float acc[COLUMNS];
  for (int64_t t = from; t < to; t++) {
    int64_t chunk = t % r->chunks, unit = t / r->chunks;
    int64_t r0 = r->range * chunk / r->chunks, r1 = r->range * (chunk + 1) / r->chunks;
    int64_t point, at = 0, n = 1;
    ZkWalk kept;
    if (r->rows) {
      zk_walk_seek(&r->kept, &kept, point = unit);
      if (r->tree) run_tree(r, &kept, 0, 1, acc);
      else acc[0] = run_rows(r, &kept, r0, r1);
    } else {
      zk_walk_seek(&r->kept, &kept, unit / r->pieces);
      at = unit % r->pieces * r->npiece;
      n = zk_min(r->npiece, r->cols.n - at);
      point = unit / r->pieces * r->cols.n + at;
      if (r->tree) run_tree(r, &kept, at, n, acc);
      else run_columns(r, &kept, at, n, r0, r1, acc);
    }
    if (r->chunks > 1) memcpy(r->partial + chunk * r->npoints + point, acc, (size_t)n * sizeof *acc);
    else zk_store(&r->out, kept.off[1] + at * r->cols.s[1], r->cols.s[1], n, acc, r->add);
  }
}

/* Combines the chunks' partial results of units [from, to). */
static void run_combine(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Reduce *r = arg;
  float acc[COLUMNS];
  for (int64_t unit = from; unit < to; unit++) {
    int64_t at = r->rows ? 0 : unit % r->pieces * r->npiece;
    int64_t n = r->rows ? 1 : zk_min(r->npiece, r->cols.n - at);
    int64_t outer = r->rows ? unit : unit / r->pieces;
    const float *p = r->partial + outer * r->cols.n + at;
    memcpy(acc, p, (size_t)n * sizeof *acc);
    for (int64_t chunk = 1; chunk < r->chunks; chunk++) {
      if (r->kind == PEAK) zk_run_max_into(acc, p + chunk * r->npoints, n);
      else zk_run_add(acc, p + chunk * r->npoints, n);
    }
    ZkWalk kept;
    zk_walk_seek(&r->kept, &kept, outer);
    zk_store(&r->out, kept.off[1] + at * r->cols.s[1], r->cols.s[1], n, acc, r->add);
  }
}

static void reduce(const ZkEnv *env, const ZkCall *c, Kind kind) {
  Reduce r = analyse(c, kind);
  r.partial = c->scratch;
  int64_t work = zk_max(1, r.npoints * r.range * r.inner.n / zk_max(1, r.units * r.chunks * r.pieces));
  zk_for(env, r.units * r.chunks, zk_max(1, 16384 / work), run_tasks, &r);
  if (r.chunks > 1) zk_for(env, r.units, zk_max(1, 4096 / r.chunks), run_combine, &r);
}

static size_t scratch(const ZkCall *c, Kind kind) {
  Reduce r = analyse(c, kind);
  return r.chunks > 1 ? (size_t)(r.chunks * r.npoints) * sizeof(float) : 0;
}

void zk_cpu_sum(const ZkEnv *env, const ZkCall *c) { reduce(env, c, SUM); }
void zk_cpu_peak(const ZkEnv *env, const ZkCall *c) { reduce(env, c, PEAK); }
void zk_reduce_dot(const ZkEnv *env, const ZkCall *c) { reduce(env, c, DOT); }
size_t zk_scratch_sum(const ZkCall *c, int threads) {
  (void)threads;
  return scratch(c, c->op == ZG_OP_PEAK ? PEAK : SUM);
}
size_t zk_reduce_dot_scratch(const ZkCall *c) { return scratch(c, DOT); }

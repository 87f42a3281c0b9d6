/* lookup of rows by id, and its gradient, which adds rows into a table. Tables may be a part of the
 * global one. */
#include "kernels/cpu/cpu.h"

#define PIECE 1024 /* elements of a row at once */

typedef struct {
  ZkView ids, table, rows;            /* rows: y of lookup, g of its gradient */
  ZkNest outer;                       /* the ids' axes; views: rows, ids, table */
  ZkNest rest;                        /* the rest; views: rows, table */
  ZkLoop run;                         /* fastest loop of the rest */
  int64_t count, size, stride, start; /* ids; the table's indexed axis */
} Lookup;

static Lookup analyse(const ZkCall *c, const ZkView *table, const ZkView *rows) {
  Lookup p = {.ids = c->in[1], .table = *table, .rows = *rows};
  uint16_t v = c->ax[0];
  const ZkView *outer[] = {rows, &p.ids, table}, *rest[] = {rows, table};
  ZB_ASSERT(p.ids.elem == ZK_I32);
  p.outer = zk_nest(outer, 3, p.ids.axis, p.ids.rank, true);
  p.rest = zk_nest(rest, 2, p.ids.axis, p.ids.rank, false);
  p.run = zk_nest_pop(&p.rest);
  p.count = zk_nest_count(&p.outer);
  p.size = zk_axis_size(table, v);
  p.stride = zk_axis_stride(table, v);
  p.start = zk_axis_start(table, v);
  return p;
}

/* The table's row for the id at offset `off`: its number here, or -1 if it has none. */
static int64_t row_of(const Lookup *p, int64_t off) {
  int64_t id = ((const int32_t *)p->ids.data)[off];
  return id >= 0 && id >= p->start && id < p->start + p->size ? id - p->start : -1;
}

static void copy_run(const Lookup *p, int64_t to, int64_t from) {
  float buf[PIECE];
  bool same = p->rows.elem == p->table.elem && p->run.s[0] == 1 && p->run.s[1] == 1;
  if (same) {
    memcpy(zk_at(&p->rows, to), zk_at(&p->table, from), zk_bytes((ZkElem)p->rows.elem, (uint64_t)p->run.n));
    return;
  }
  for (int64_t i = 0; i < p->run.n; i += PIECE) {
    int64_t n = zk_min(PIECE, p->run.n - i);
    zk_load(buf, &p->table, from + i * p->run.s[1], p->run.s[1], n);
    zk_store(&p->rows, to + i * p->run.s[0], p->run.s[0], n, buf, false);
  }
}

static void zero_run(const Lookup *p, int64_t to) {
  static const float zeros[PIECE];
  for (int64_t i = 0; i < p->run.n; i += PIECE)
    zk_store(&p->rows, to + i * p->run.s[0], p->run.s[0], zk_min(PIECE, p->run.n - i), zeros, false);
}

static void run_lookup(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Lookup *p = arg;
  int64_t rest = zk_nest_count(&p->rest);
  ZkWalk w, r;
  zk_walk_seek(&p->outer, &w, from);
  for (int64_t t = from; t < to; t++, zk_walk_next(&p->outer, &w)) {
    int64_t row = row_of(p, w.off[1]);
    zk_walk_seek(&p->rest, &r, 0);
    for (int64_t j = 0; j < rest; j++, zk_walk_next(&p->rest, &r)) {
      if (row < 0) zero_run(p, w.off[0] + r.off[0]);
      else copy_run(p, w.off[0] + r.off[0], w.off[2] + row * p->stride + r.off[1]);
    }
  }
}

void zk_cpu_lookup(const ZkEnv *env, const ZkCall *c) {
  Lookup p = analyse(c, &c->in[0], &c->out[0]);
  int64_t row = zk_max(1, zk_nest_count(&p.rest) * p.run.n);
  zk_for(env, p.count, zk_max(1, 16384 / row), run_lookup, &p);
}

/* ---- gradient -------------------------------------------------------------------------------- */

/* A task owns some columns of the table (a piece of the run at one place of the rest) and goes through
 * all ids in order: no two tasks meet, and the order of additions is that of the ids. */
typedef struct {
  Lookup l;
  bool add;
  int64_t piece, pieces; /* of the run */
  float *scratch;        /* if staged: an f32 copy of a task's columns for each thread */
} Grad;

/* Adding many rows into bf16 would lose them: such a table is accumulated in f32 first. */
static bool staged(const ZkView *dt) { return dt->elem != ZK_F32; }

#define STAGED_COLUMNS 16

static int64_t table_offset(const Grad *g, const ZkWalk *r, int64_t at, int64_t row) {
  return r->off[1] + row * g->l.stride + at * g->l.run.s[1];
}

static void add_rows(const Grad *g, const ZkWalk *r, int64_t at, int64_t n, float *stage) {
  const Lookup *p = &g->l;
  float buf[PIECE];
  ZkWalk w;
  zk_walk_seek(&p->outer, &w, 0);
  for (int64_t t = 0; t < p->count; t++, zk_walk_next(&p->outer, &w)) {
    int64_t row = row_of(p, w.off[1]);
    if (row < 0) continue;
    const float *x = zk_row_in(&p->rows, w.off[0] + r->off[0] + at * p->run.s[0], p->run.s[0], n, buf);
    if (stage) zk_run_add(stage + row * n, x, n);
    else zk_store(&p->table, table_offset(g, r, at, row) + w.off[2], p->run.s[1], n, x, true);
  }
}

static void run_grad(void *arg, int64_t from, int64_t to, int part) {
  static const float zeros[PIECE];
  const Grad *g = arg;
  const Lookup *p = &g->l;
  float *stage = staged(&p->table) ? g->scratch + part * p->size * STAGED_COLUMNS : NULL;
  for (int64_t t = from; t < to; t++) {
    ZkWalk r;
    zk_walk_seek(&p->rest, &r, t / g->pieces);
    int64_t at = t % g->pieces * g->piece, n = zk_min(g->piece, p->run.n - at);
    if (stage) zk_run_fill(stage, 0, p->size * n);
    else
      for (int64_t row = 0; row < p->size && !g->add; row++)
        zk_store(&p->table, table_offset(g, &r, at, row), p->run.s[1], n, zeros, false);
    add_rows(g, &r, at, n, stage);
    for (int64_t row = 0; row < p->size && stage; row++)
      zk_store(&p->table, table_offset(g, &r, at, row), p->run.s[1], n, stage + row * n, g->add);
  }
}

void zk_cpu_lookup_grad(const ZkEnv *env, const ZkCall *c) {
  Grad g = {.l = analyse(c, &c->out[0], &c->in[0]), .add = c->accumulate, .scratch = c->scratch};
  for (int i = 0; i < c->in[1].rank; i++) ZB_ASSERT(zk_axis_find(&c->out[0], c->in[1].axis[i]) < 0);
  int64_t n = g.l.run.n, places = zk_nest_count(&g.l.rest), parts = 4 * (int64_t)zk_threads(env);
  /* About four tasks a thread, of whole cache lines; the pieces do not change what is added in which
   * order. */
  g.piece = zk_ceil_div(zk_ceil_div(n, zk_ceil_div(parts, places)), 16) * 16;
  g.piece = staged(&c->out[0]) ? STAGED_COLUMNS : zk_min(g.piece, PIECE);
  if (zk_threads(env) == 1 && !staged(&c->out[0])) g.piece = PIECE;
  g.pieces = zk_ceil_div(n, g.piece);
  zk_for(env, places * g.pieces, 1, run_grad, &g);
}

size_t zk_scratch_lookup_grad(const ZkCall *c, int threads) {
  if (!staged(&c->out[0])) return 0;
  return (size_t)(threads * zk_axis_size(&c->out[0], c->ax[0]) * STAGED_COLUMNS) * sizeof(float);
}

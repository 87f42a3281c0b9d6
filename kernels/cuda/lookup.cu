/* lookup of rows by id, and its gradient, which adds rows into a table. Tables may be a part of the whole one.
 *
 * The gradient adds in the order of the ids, whatever the number of threads, without sorting: each id counts those
 * before it that are equal (its rank); ids that are equal get a stretch of a list, in which the rank is the place; then
 * a block adds up the rows of each stretch. With ids 7 3 7 7:
 *   rank 0 0 1 2;  counts of row 3: 1, of row 7: 3;  stretches begin at 0 and 1;  list: 1 | 0 2 3
 * Counting compares every pair of ids, n^2/2 integer comparisons: 32768 ids are 5e8, which a GPU does in some 50 us. */
#include "kernels/cuda/common.cuh"

#define THREADS 256
#define SCAN_THREADS 1024
#define ADD_THREADS 128

typedef struct {
  const int *ids;
  void *table, *rows; /* rows: y of lookup, g of its gradient */
  int telem, relem;
  ZkcNest outer;   /* [id]; views: rows, ids, table */
  ZkcNest rest;    /* views: rows, table */
  ZkcRun run;      /* fastest loop of the rest */
  ZkcUnits places; /* points of the rest for each id */
  ZkcUnits units;  /* eights or single elements of the run, for each of these */
  bool wide;
  long long size, stride, start; /* the table's indexed axis */
} Lookup;

/* The table's row for the id at this offset: its number here, or -1. */
ZK_DEVICE int row_of(const Lookup &p, long long off) {
  long long id = p.ids[off];
  return id >= 0 && id >= p.start && id < p.start + p.size ? (int)(id - p.start) : -1;
}

static __global__ void __launch_bounds__(THREADS) lookup(const __grid_constant__ Lookup p) {
  for (long long u = blockIdx.x * (long long)THREADS + threadIdx.x; u < p.units.total;
       u += gridDim.x * (long long)THREADS) {
    long long at, place, o[3], r[2];
    zkc_seek(p.outer, zkc_row(p.places, zkc_row(p.units, u, at), place), o);
    zkc_seek(p.rest, (unsigned)place, r);
    int row = row_of(p, o[1]);
    long long to = o[0] + r[0], from = o[2] + r[1] + row * p.stride;
    if (p.wide) {
      float x[8] = {0, 0, 0, 0, 0, 0, 0, 0};
      if (row >= 0) zk_load8(p.table, p.telem, from + 8 * at, x);
      zk_store8(p.rows, p.relem, to + 8 * at, x);
    } else {
      float x = row >= 0 ? zk_load(p.table, p.telem, from + at * p.run.stride[1]) : 0;
      zk_store(p.rows, p.relem, to + at * p.run.stride[0], x);
    }
  }
}

static Lookup analyse(const ZkCall *c, const ZkView *table, const ZkView *rows) {
  const ZkView *ids = &c->in[1], *outer[] = {rows, ids, table}, *rest[] = {rows, table};
  Lookup p = {};
  uint16_t v = c->ax[0];
  ZB_ASSERT(ids->elem == ZK_I32);
  p.ids = (const int *)ids->data, p.table = table->data, p.rows = rows->data;
  p.telem = table->elem, p.relem = rows->elem;
  p.outer = zkc_nest(outer, 3, ids->axis, ids->rank, true);
  p.rest = zkc_nest_run(rest, 2, ids->axis, ids->rank, false, &p.run);
  p.size = zkc_size(table, v), p.stride = zkc_stride(table, v), p.start = zkc_start(table, v);
  p.wide = zkc_wide(rows, &p.outer, 0, p.run.n, p.run.stride[0]) && zkc_aligned(rows, &p.rest, 0, 1) &&
           zkc_wide(table, &p.outer, 2, p.run.n, p.run.stride[1]) && zkc_aligned(table, &p.rest, 1, 1) &&
           p.stride * (int64_t)zk_elem_bytes((ZkElem)table->elem) % 16 == 0;
  p.places = zkc_units(p.outer.count, p.rest.count);
  p.units = zkc_units(p.places.total, p.wide ? p.run.n / 8 : p.run.n);
  return p;
}

extern "C" void zk_cuda_lookup(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  Lookup p = analyse(c, &c->in[0], &c->out[0]);
  ZB_ASSERT(p.places.total < (int64_t)1 << 32);
  ZK_LAUNCH(cu, c, lookup, zk_blocks(cu, zk_ceil_of(p.units.total, THREADS)), THREADS, 0, p);
}

/* ---- gradient ---- */
typedef struct {
  Lookup l;
  int n;                     /* ids */
  int *row, *rank, *list;    /* [n] */
  int *begin;                /* [size + 1]: counts, then where each row's stretch begins */
  long long pieces, threads; /* pieces of the run; elements that a block's threads take at once */
  bool add;
} Grad;

static __global__ void __launch_bounds__(THREADS) find_rows(const __grid_constant__ Grad g) {
  long long all = g.n > g.l.size ? g.n : g.l.size + 1;
  for (long long i = blockIdx.x * (long long)THREADS + threadIdx.x; i < all;
       i += gridDim.x * (long long)THREADS) {
    if (i <= g.l.size) g.begin[i] = 0;
    if (i >= g.n) continue;
    long long off[3];
    zkc_seek(g.l.outer, (unsigned)i, off);
    g.row[i] = row_of(g.l, off[1]);
  }
}

static __global__ void __launch_bounds__(THREADS) rank_rows(const __grid_constant__ Grad g) {
  ZK_SHARED(int, other, [THREADS]);
  for (int base = blockIdx.x * THREADS; base < g.n; base += gridDim.x * THREADS) {
    int me = base + (int)threadIdx.x, row = me < g.n ? g.row[me] : -1, rank = 0;
    for (int from = 0; from <= base; from += THREADS) {
      int i = from + (int)threadIdx.x;
      __syncthreads(); /* of the tile before */
      other[threadIdx.x] = i < g.n ? g.row[i] : -1;
      __syncthreads();
      int last = from < base ? THREADS : (int)threadIdx.x;
      for (int k = 0; k < last; k++) rank += other[k] == row;
    }
    if (row < 0) continue;
    g.rank[me] = rank;
    atomicAdd(&g.begin[row], 1); /* of integers: the same in any order */
  }
}

/* Counts to beginnings, by one block: each thread sums a stretch of counts, then all scan these sums. */
static __global__ void __launch_bounds__(SCAN_THREADS) scan_rows(const __grid_constant__ Grad g) {
  ZK_SHARED(int, sum, [SCAN_THREADS]);
  long long t = threadIdx.x, from = (g.l.size + 1) * t / SCAN_THREADS,
            to = (g.l.size + 1) * (t + 1) / SCAN_THREADS;
  int mine = 0;
  for (long long i = from; i < to; i++) mine += g.begin[i];
  sum[t] = mine;
  __syncthreads();
  for (int d = 1; d < SCAN_THREADS; d *= 2) {
    int x = t >= d ? sum[t - d] : 0;
    __syncthreads();
    sum[t] += x;
    __syncthreads();
  }
  int at = sum[t] - mine;
  for (long long i = from; i < to; i++) {
    int count = g.begin[i];
    g.begin[i] = at;
    at += count;
  }
}

static __global__ void __launch_bounds__(THREADS) list_rows(const __grid_constant__ Grad g) {
  for (int i = blockIdx.x * THREADS + threadIdx.x; i < g.n; i += gridDim.x * THREADS)
    if (g.row[i] >= 0) g.list[g.begin[g.row[i]] + g.rank[i]] = i;
}

/* A block takes one row of the table, at one place of the rest, and a piece of the run. */
static __global__ void __launch_bounds__(ADD_THREADS) add_rows(const __grid_constant__ Grad g) {
  const Lookup &p = g.l;
  long long parts = (long long)p.rest.count * g.pieces;
  for (long long task = blockIdx.x; task < p.size * parts; task += gridDim.x) {
    long long row = task / parts, part = task - row * parts, place = part / g.pieces, r[2], o[3];
    int from = g.begin[row], to = g.begin[row + 1];
    long long at = (part - place * g.pieces) * g.threads + threadIdx.x * (p.wide ? 8 : 1);
    if (at >= p.run.n || (from == to && g.add)) continue;
    zkc_seek(p.rest, (unsigned)place, r);
    long long here = r[1] + row * p.stride + at * p.run.stride[1];
    float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0}, x[8];
    if (p.wide) {
#pragma unroll 4
      for (int k = from; k < to; k++) {
        zkc_seek(p.outer, (unsigned)g.list[k], o);
        zk_load8(p.rows, p.relem, o[0] + r[0] + at, x);
#pragma unroll
        for (int j = 0; j < 8; j++) sum[j] += x[j];
      }
      if (g.add) {
        zk_load8(p.table, p.telem, here, x);
#pragma unroll
        for (int j = 0; j < 8; j++) sum[j] += x[j];
      }
      zk_store8(p.table, p.telem, here, sum);
    } else {
#pragma unroll 4
      for (int k = from; k < to; k++) {
        zkc_seek(p.outer, (unsigned)g.list[k], o);
        sum[0] += zk_load(p.rows, p.relem, o[0] + r[0] + at * p.run.stride[0]);
      }
      if (g.add) sum[0] += zk_load(p.table, p.telem, here);
      zk_store(p.table, p.telem, here, sum[0]);
    }
  }
}

extern "C" size_t zk_cuda_lookup_grad_scratch(const ZkCall *c) {
  int64_t n = zkc_count(&c->in[1]), size = zkc_size(&c->out[0], c->ax[0]);
  return (size_t)(3 * n + size + 1) * sizeof(int);
}

extern "C" void zk_cuda_lookup_grad(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  Grad g = {};
  g.l = analyse(c, &c->out[0], &c->in[0]);
  for (int i = 0; i < c->in[1].rank; i++) ZB_ASSERT(zkc_stride(&c->out[0], c->in[1].axis[i]) == 0);
  ZB_ASSERT(g.l.outer.count < 1u << 30);
  g.n = (int)g.l.outer.count;
  g.row = (int *)c->scratch, g.rank = g.row + g.n, g.list = g.rank + g.n, g.begin = g.list + g.n;
  g.add = c->accumulate;
  g.threads = ADD_THREADS * (g.l.wide ? 8 : 1);
  g.pieces = zk_ceil_of(g.l.run.n, g.threads);
  unsigned blocks = zk_blocks(cu, zk_ceil_of(g.n, THREADS));
  ZK_LAUNCH(cu, c, find_rows, zk_blocks(cu, zk_ceil_of(g.n > g.l.size ? g.n : g.l.size + 1, THREADS)),
            THREADS, 0, g);
  ZK_LAUNCH(cu, c, rank_rows, blocks, THREADS, 0, g);
  ZK_LAUNCH(cu, c, scan_rows, 1, SCAN_THREADS, 0, g);
  ZK_LAUNCH(cu, c, list_rows, blocks, THREADS, 0, g);
  ZK_LAUNCH(cu, c, add_rows, zk_blocks(cu, g.l.size * (int64_t)g.l.rest.count * g.pieces), ADD_THREADS, 0, g);
}

/* lookup of rows by id, and its gradient, which adds rows into a table. Tables may be a part of the whole
 * one.
 *
 * The gradient first sorts the ids' numbers by the table's row, in passes over DIGIT bits of it that keep the
 * order of what is equal: warps count the digits of a range each, then put everything in its place. A block
 * then adds up a stretch of the sorted list, whatever rows it has; what only begins or ends there is a
 * partial sum, and these are joined in order. So the work is the same for one id many times and for many once
 * each, and every sum has one order. Ids 7 3 7 7 5, stretches of 2:
 *   sorted  3: 1 | 5: 4 | 7: 0 2 3     stretches  3: 1, 5: 4 | 7: 0 2 | 7: 3     row 7 = (0 + 2) + 3 */
#include "kernels/cuda/packed.cuh"

#define THREADS 256
#define DIGIT 9 /* two passes for up to 2^18 rows */
#define BINS (1 << DIGIT)
#define AHEAD 8 /* loads that a thread has under way */
#define ADD_THREADS 128
#define ADD_AHEAD 4

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
  Packed packed;                 /* the table; codes NULL: it is not packed */
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
      float x = row < 0          ? 0
                : p.packed.codes ? packed_at(p.packed, from + at * p.run.stride[1])
                                 : zk_load(p.table, p.telem, from + at * p.run.stride[1]);
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
  bool packed = zk_is_packed((ZkElem)table->elem);
  if (packed) p.packed = packed_of(table);
  p.wide = !packed && zkc_wide(rows, &p.outer, 0, p.run.n, p.run.stride[0]) &&
           zkc_aligned(rows, &p.rest, 0, 1) && zkc_wide(table, &p.outer, 2, p.run.n, p.run.stride[1]) &&
           zkc_aligned(table, &p.rest, 1, 1) &&
           p.stride * (int64_t)zk_plain_bytes((ZkElem)table->elem) % 16 == 0;
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

/* ---- gradient: sorting --------------------------------------------------------------------------------- */
typedef struct {
  Lookup l;
  int n;               /* ids */
  int sorters, range;  /* warps that sort; ids of each */
  int *row[2], *id[2]; /* [n] of a pass: rows (`size`: none here) and numbers of ids, before it and after */
  int shift;           /* of its digit */
  int *count;          /* [sorter][digit]; then those of earlier sorters */
  int *first;          /* [digit]: where they go */
  int *begin;          /* [size + 1]: where each row begins in the sorted list, which is in row[0], id[0] */
  int stretch, stretches;
  /* [stretch][2][width]: of the row that goes on there, and of the one that will. */
  float *partial;
  long long width;           /* elements of a row */
  long long pieces, threads; /* pieces of the run; elements that a block's threads take at once */
  bool add;
} Grad;

static __global__ void __launch_bounds__(THREADS) find_rows(const __grid_constant__ Grad g) {
  for (int i = blockIdx.x * THREADS + threadIdx.x; i < g.n; i += gridDim.x * THREADS) {
    long long off[3];
    zkc_seek(g.l.outer, (unsigned)i, off);
    int row = row_of(g.l, off[1]);
    g.row[0][i] = row < 0 ? (int)g.l.size : row;
    g.id[0][i] = i;
  }
}

ZK_DEVICE int digit_of(const Grad &g, int row) { return row >> g.shift & (BINS - 1); }
/* The last of a sorter's ids, exclusive. */
ZK_DEVICE int end_of(const Grad &g) { return min((int)(blockIdx.x + 1) * g.range, g.n); }

static __global__ void __launch_bounds__(32) count_digits(const __grid_constant__ Grad g) {
  ZK_SHARED(int, count, [BINS]);
  int end = end_of(g);
  for (int b = threadIdx.x; b < BINS; b += 32) count[b] = 0;
  __syncwarp();
#pragma unroll 4
  for (int i = blockIdx.x * g.range + threadIdx.x; i < end; i += 32)
    atomicAdd(&count[digit_of(g, g.row[0][i])], 1); /* of integers: the same in any order */
  __syncwarp();
  for (int b = threadIdx.x; b < BINS; b += 32) g.count[blockIdx.x * BINS + b] = count[b];
}

/* By one block, a thread to a digit. */
static __global__ void __launch_bounds__(BINS) place_digits(const __grid_constant__ Grad g) {
  ZK_SHARED(int, sum, [BINS]);
  int t = threadIdx.x, mine = 0;
  for (int s = 0; s < g.sorters; s += AHEAD) {
    int c[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; i++) c[i] = s + i < g.sorters ? g.count[(s + i) * BINS + t] : 0;
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
      if (s + i < g.sorters) g.count[(s + i) * BINS + t] = mine;
      mine += c[i];
    }
  }
  sum[t] = mine;
  __syncthreads();
  for (int d = 1; d < BINS; d *= 2) {
    int x = t >= d ? sum[t - d] : 0;
    __syncthreads();
    sum[t] += x;
    __syncthreads();
  }
  g.first[t] = sum[t] - mine;
}

static __global__ void __launch_bounds__(32) move_digits(const __grid_constant__ Grad g) {
  ZK_SHARED(int, at, [BINS]); /* where the sorter's next one of each digit goes */
  int t = threadIdx.x, end = end_of(g);
  unsigned below = (1u << t) - 1;
  for (int b = t; b < BINS; b += 32) at[b] = g.first[b] + g.count[blockIdx.x * BINS + b];
  __syncwarp();
  for (int i = blockIdx.x * g.range + t; i - t < end; i += 32 * AHEAD) {
    int row[AHEAD], id[AHEAD];
#pragma unroll
    for (int k = 0; k < AHEAD; k++) {
      bool there = i + 32 * k < end;
      row[k] = there ? g.row[0][i + 32 * k] : -1;
      id[k] = there ? g.id[0][i + 32 * k] : 0;
    }
#pragma unroll 1
    for (int k = 0; k < AHEAD; k++) {
      bool there = row[0] >= 0;
      int d = there ? digit_of(g, row[0]) : 0, to = 0;
      unsigned alike = __ballot_sync(0xffffffffu, there); /* lanes with this digit */
#pragma unroll
      for (int bit = 0; bit < DIGIT; bit++) {
        unsigned set = __ballot_sync(0xffffffffu, d >> bit & 1);
        alike &= d >> bit & 1 ? set : ~set;
      }
      if (there) to = at[d] + __popc(alike & below);
      __syncwarp();
      if (there && !(alike & below)) at[d] += __popc(alike);
      __syncwarp();
      if (there) g.row[1][to] = row[0], g.id[1][to] = id[0];
#pragma unroll
      for (int j = 1; j < AHEAD; j++) row[j - 1] = row[j], id[j - 1] = id[j]; /* no index that is not known */
    }
  }
}

static __global__ void __launch_bounds__(THREADS) find_begins(const __grid_constant__ Grad g) {
  for (long long r = blockIdx.x * (long long)THREADS + threadIdx.x; r <= g.l.size;
       r += gridDim.x * (long long)THREADS) {
    int from = 0, to = g.n;
    while (from < to) {
      int middle = from + (to - from) / 2;
      if (g.row[0][middle] < (int)r) from = middle + 1;
      else to = middle;
    }
    g.begin[r] = from;
  }
}

/* ---- gradient: adding ---------------------------------------------------------------------------------- */
/* A place of the rest, and this thread's part of its run. */
typedef struct {
  long long at, in_rows, in_table, in_partial;
  bool there;
} Column;
ZK_DEVICE Column column_of(const Grad &g, long long part) {
  const Lookup &p = g.l;
  long long place = part / g.pieces, r[2];
  Column c;
  c.at = (part - place * g.pieces) * g.threads + threadIdx.x * (p.wide ? 8 : 1);
  c.there = c.at < p.run.n;
  zkc_seek(p.rest, (unsigned)place, r);
  c.in_rows = r[0] + c.at * p.run.stride[0];
  c.in_table = r[1] + c.at * p.run.stride[1];
  c.in_partial = place * p.run.n + c.at;
  return c;
}

/* E: the type of the rows, in eights; ANY: of any type, one element. */
enum { ANY = -1 };

template <int E> ZK_DEVICE void store_row(const Grad &g, const Column &c, long long row, float (&sum)[8]) {
  const Lookup &p = g.l;
  long long to = c.in_table + row * p.stride;
  if (E == ANY) {
    zk_store(p.table, p.telem, to, g.add ? sum[0] + zk_load(p.table, p.telem, to) : sum[0]);
    return;
  }
  float x[8];
  if (g.add) {
    zk_load8(p.table, p.telem, to, x);
#pragma unroll
    for (int j = 0; j < 8; j++) sum[j] += x[j];
  }
  zk_store8(p.table, p.telem, to, sum);
}

/* What a stretch has of a row: all of it, or the end (0) or the beginning (1). */
template <int E>
ZK_DEVICE void keep(const Grad &g, const Column &c, int stretch, int row, bool began, bool goes_on,
                    float (&sum)[8]) {
  if (!began && !goes_on) return store_row<E>(g, c, row, sum);
  float *to = g.partial + (2ll * stretch + !began) * g.width + c.in_partial;
  if (E == ANY) *to = sum[0];
  else zk_store8(to, ZK_F32, 0, sum);
}

template <int E>
static __global__ void __launch_bounds__(ADD_THREADS, 5) add_stretches(const __grid_constant__ Grad g) {
  ZK_SHARED(int, rows, [ADD_THREADS]);
  ZK_SHARED(long long, offs, [ADD_THREADS]);
  const Lookup &p = g.l;
  const int N = E == ANY ? 1 : 8;
  long long parts = (long long)p.rest.count * g.pieces;
  int all = g.begin[p.size];
  for (long long task = blockIdx.x; task < g.stretches * parts; task += gridDim.x) {
    int stretch = (int)(task / parts), from = stretch * g.stretch, to = min(from + g.stretch, all), row = -1;
    Column c = column_of(g, task - stretch * parts);
    bool began = false;
    float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (int base = from; base < to; base += ADD_THREADS) {
      int mine = base + (int)threadIdx.x, n = min(ADD_THREADS, to - base);
      __syncthreads(); /* of what was read before */
      if (mine < to) {
        long long o[3];
        zkc_seek(p.outer, (unsigned)g.id[0][mine], o);
        rows[threadIdx.x] = g.row[0][mine];
        offs[threadIdx.x] = o[0];
      }
      __syncthreads();
      for (int k = 0; c.there && k < n; k += ADD_AHEAD) {
        int next[ADD_AHEAD];
        float x[ADD_AHEAD][8];
#pragma unroll
        for (int i = 0; i < ADD_AHEAD; i++) {
          next[i] = k + i < n ? rows[k + i] : -1;
          if (next[i] < 0) continue;
          if (E == ANY) x[i][0] = zk_load(p.rows, p.relem, offs[k + i] + c.in_rows);
          else zk_load8(p.rows, E, offs[k + i] + c.in_rows, x[i]);
        }
#pragma unroll 1 /* or there would be code for the end of a row at each, and no registers for it */
        for (int i = 0; i < ADD_AHEAD && next[0] >= 0; i++) {
          bool other = next[0] != row;
          if (other && row >= 0) keep<E>(g, c, stretch, row, began, false, sum);
          if (other) began = row < 0 && from > 0 && g.row[0][from - 1] == next[0], row = next[0];
#pragma unroll
          for (int j = 0; j < N; j++) sum[j] = other ? x[0][j] : sum[j] + x[0][j];
#pragma unroll
          for (int m = 1; m < ADD_AHEAD; m++) {
            next[m - 1] = next[m];
#pragma unroll
            for (int j = 0; j < N; j++) x[m - 1][j] = x[m][j];
          }
        }
      }
    }
    if (row >= 0) keep<E>(g, c, stretch, row, began, to < all && g.row[0][to] == row, sum);
  }
}

/* Rows of several stretches, and those without an id. A block takes ROWS rows, one part after the other. */
#define ROWS 64
template <int E>
static __global__ void __launch_bounds__(ADD_THREADS, 8) join_stretches(const __grid_constant__ Grad g) {
  ZK_SHARED(int, begin, [ROWS + 1]);
  const Lookup &p = g.l;
  const int N = E == ANY ? 1 : 8;
  for (long long row0 = (long long)blockIdx.x * ROWS; row0 < p.size; row0 += (long long)gridDim.x * ROWS) {
    int nrows = (int)min((long long)ROWS, p.size - row0), t = threadIdx.x;
    __syncthreads();
    if (t <= nrows) begin[t] = g.begin[row0 + t];
    __syncthreads();
    for (long long part = 0; part < (long long)p.rest.count * g.pieces; part++) {
      Column c = column_of(g, part);
      for (int i = 0; c.there && i < nrows; i++) {
        int from = begin[i], to = begin[i + 1];
        if (from == to ? g.add : from / g.stretch == (to - 1) / g.stretch) continue;
        float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        int last = from == to ? -1 : (to - 1) / g.stretch;
#pragma unroll 2
        for (int s = from / g.stretch; s <= last; s++) {
          const float *x = g.partial + (2ll * s + (s == from / g.stretch)) * g.width + c.in_partial;
          float y[8];
          if (E == ANY) y[0] = *x;
          else zk_load8(x, ZK_F32, 0, y);
#pragma unroll
          for (int j = 0; j < N; j++) sum[j] += y[j];
        }
        store_row<E>(g, c, row0 + i, sum);
      }
    }
  }
}

/* ---- gradient: host ------------------------------------------------------------------------------------ */
/* Sizes, by shapes alone; places in the scratch, from its start. */
typedef struct {
  int64_t n, size, width, sorters, range, stretch, stretches, partial, bytes; /* partial: where, in bytes */
} Sizes;
static Sizes sizes_of(const ZkCall *c) {
  Sizes s = {};
  s.n = zkc_count(&c->in[1]), s.size = zkc_size(&c->out[0], c->ax[0]);
  s.width = s.size > 0 ? zkc_count(&c->out[0]) / s.size : 0;
  s.range = 32 * zk_ceil_of(s.n, 32 * 256); /* at most 256 sorters, none of less than 512 */
  if (s.range < 512) s.range = 512;
  s.sorters = zk_ceil_of(s.n, s.range);
  s.stretch = zk_ceil_of(s.n, 1024);
  if (s.stretch < 64) s.stretch = 64;
  s.stretches = zk_ceil_of(s.n, s.stretch);
  int64_t ints = 4 * s.n + (s.sorters + 1) * BINS + s.size + 1;
  s.partial = zk_ceil_of(ints * (int64_t)sizeof(int), 64) * 64;
  s.bytes = s.partial + 2 * s.stretches * s.width * (int64_t)sizeof(float);
  return s;
}

extern "C" size_t zk_cuda_lookup_grad_scratch(const ZkCall *c) { return (size_t)sizes_of(c).bytes; }

static Grad grad_of(const ZkCall *c) {
  Sizes s = sizes_of(c);
  Grad g = {};
  g.l = analyse(c, &c->out[0], &c->in[0]);
  for (int i = 0; i < c->in[1].rank; i++) ZB_ASSERT(zkc_stride(&c->out[0], c->in[1].axis[i]) == 0);
  ZB_ASSERT(s.n < 1 << 30 && s.size < 1 << 30);
  ZB_ASSERT(s.size == 0 || (int64_t)g.l.rest.count * g.l.run.n == s.width);
  g.l.wide = g.l.wide && (g.l.relem == ZK_BF16 || g.l.relem == ZK_F32);
  int *at = (int *)c->scratch;
  for (int i = 0; i < 2; i++, at += 2 * s.n) g.row[i] = at, g.id[i] = at + s.n;
  g.count = at, g.first = g.count + s.sorters * BINS, g.begin = g.first + BINS;
  g.partial = (float *)((char *)c->scratch + s.partial);
  g.n = (int)s.n, g.sorters = (int)s.sorters, g.range = (int)s.range;
  g.stretch = (int)s.stretch, g.stretches = (int)s.stretches;
  g.width = s.width;
  g.add = c->accumulate;
  g.threads = ADD_THREADS * (g.l.wide ? 8 : 1);
  g.pieces = zk_ceil_of(g.l.run.n, g.threads);
  return g;
}

static void sort(ZkCuda *cu, const ZkCall *c, Grad *g) {
  ZK_LAUNCH(cu, c, find_rows, zk_blocks(cu, zk_ceil_of(g->n, THREADS)), THREADS, 0, *g);
  for (g->shift = 0; g->l.size >> g->shift; g->shift += DIGIT) {
    ZK_LAUNCH(cu, c, count_digits, (unsigned)g->sorters, 32, 0, *g);
    ZK_LAUNCH(cu, c, place_digits, 1, BINS, 0, *g);
    ZK_LAUNCH(cu, c, move_digits, (unsigned)g->sorters, 32, 0, *g);
    int *row = g->row[0], *id = g->id[0];
    g->row[0] = g->row[1], g->id[0] = g->id[1];
    g->row[1] = row, g->id[1] = id;
  }
  ZK_LAUNCH(cu, c, find_begins, zk_blocks(cu, zk_ceil_of(g->l.size + 1, THREADS)), THREADS, 0, *g);
}

template <int E> static void add(ZkCuda *cu, const ZkCall *c, const Grad &g) {
  int64_t parts = (int64_t)g.l.rest.count * g.pieces;
  ZK_LAUNCH(cu, c, add_stretches<E>, zk_blocks(cu, g.stretches * parts), ADD_THREADS, 0, g);
  ZK_LAUNCH(cu, c, join_stretches<E>, zk_blocks(cu, zk_ceil_of(g.l.size, ROWS)), ADD_THREADS, 0, g);
}

extern "C" void zk_cuda_lookup_grad(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  Grad g = grad_of(c);
  sort(cu, c, &g);
  if (g.l.wide && g.l.relem == ZK_BF16) add<ZK_BF16>(cu, c, g);
  else if (g.l.wide && g.l.relem == ZK_F32) add<ZK_F32>(cu, c, g);
  else add<ANY>(cu, c, g);
}

/* sum and peak. As on the CPU there are two shapes. Rows: the fastest axis is reduced; T threads make one result.
 * Columns: the fastest axis is kept; a block makes 32 or 256 neighbouring results, its warps take every eighth row.
 * Where that gives too few blocks, the reduced range is cut into chunks whose partial results lie in scratch and are
 * joined in order. All cuts depend on shapes only. */
#include "kernels/cuda/common.cuh"

#define THREADS 256
#define WARPS (THREADS / 32)
#define TASKS 1024 /* enough blocks for a device */

typedef struct {
  const void *x;
  void *y;
  int xelem, yelem;
  bool peak, add, rows, wide, small; /* small: a warp makes a result, not a block */
  ZkcNest kept, red;                 /* views: x, y; without `run`, the fastest loop of x */
  ZkcRun run;                        /* of the reduced axes (rows) or of the kept ones (columns) */
  ZkcUnits units;                    /* rows: eights or single elements of the reduced range, along the run */
  ZkcUnits points;                   /* results, along the run (columns) */
  long long tiles, tasks, range;     /* columns: of 32 threads along the run. range: what chunks cut */
  int chunks;
  float *partial; /* [chunk][point], if there are several */
} Reduce;

ZK_DEVICE float none(const Reduce &r) { return r.peak ? -INFINITY : 0; }
ZK_DEVICE float join(const Reduce &r, float a, float b) { return !r.peak ? a + b : a > b ? a : b; }

/* Stores a chunk's result of a point, or the only one where it belongs. */
ZK_DEVICE void put(const Reduce &r, long long point, int chunk, long long off, float x) {
  if (r.chunks > 1) r.partial[chunk * r.points.total + point] = x;
  else zk_store(r.y, r.yelem, off, r.add ? x + zk_load(r.y, r.yelem, off) : x);
}

template <int T>
static __global__ void __launch_bounds__(THREADS) reduce_rows(const __grid_constant__ Reduce r) {
  ZK_SHARED(float, part, [WARPS]);
  int t = threadIdx.x % T;
  for (long long task = (blockIdx.x * (long long)THREADS + threadIdx.x) / T; task < r.tasks;
       task += gridDim.x * (long long)(THREADS / T)) {
    long long point = task / r.chunks, off[2];
    int chunk = (int)(task - point * r.chunks);
    long long from = r.range * chunk / r.chunks, to = r.range * (chunk + 1) / r.chunks;
    zkc_seek(r.kept, (unsigned)point, off);
    float acc[8];
#pragma unroll
    for (int j = 0; j < 8; j++) acc[j] = none(r);
    for (long long u = from + t; u < to; u += T) {
      long long at, o[1];
      zkc_seek(r.red, zkc_row(r.units, u, at), o);
      o[0] += off[0];
      if (r.wide) {
        float x[8];
        zk_load8(r.x, r.xelem, o[0] + 8 * at, x);
#pragma unroll
        for (int j = 0; j < 8; j++) acc[j] = join(r, acc[j], x[j]);
      } else {
        acc[0] = join(r, acc[0], zk_load(r.x, r.xelem, o[0] + at * r.run.stride[0]));
      }
    }
#pragma unroll
    for (int d = 4; d > 0; d /= 2)
#pragma unroll
      for (int j = 0; j < d; j++) acc[j] = join(r, acc[j], acc[j + d]);
    float all = r.peak ? zk_block<T>(acc[0], ZkMax(), part) : zk_block<T>(acc[0], ZkSum(), part);
    if (t == 0) put(r, point, chunk, off[1], all);
  }
}

static __global__ void __launch_bounds__(THREADS) reduce_columns(const __grid_constant__ Reduce r) {
  ZK_SHARED(float, part, [WARPS][256]);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, width = r.wide ? 8 : 1;
  for (long long task = blockIdx.x; task < r.tasks; task += gridDim.x) {
    long long unit = task / r.chunks, outer = unit / r.tiles, off[2];
    int chunk = (int)(task - unit * r.chunks);
    long long from = r.range * chunk / r.chunks, to = r.range * (chunk + 1) / r.chunks;
    long long tile = (unit - outer * r.tiles) * 32 * width, column = tile + lane * width;
    zkc_seek(r.kept, (unsigned)outer, off);
    float acc[8];
#pragma unroll
    for (int j = 0; j < 8; j++) acc[j] = none(r);
    for (long long row = from + warp; row < to && column < r.run.n; row += WARPS) {
      long long o[1];
      zkc_seek(r.red, (unsigned)row, o);
      o[0] += off[0] + column * r.run.stride[0];
      if (r.wide) {
        float x[8];
        zk_load8(r.x, r.xelem, o[0], x);
#pragma unroll
        for (int j = 0; j < 8; j++) acc[j] = join(r, acc[j], x[j]);
      } else {
        acc[0] = join(r, acc[0], zk_load(r.x, r.xelem, o[0]));
      }
    }
#pragma unroll
    for (int j = 0; j < 8; j++)
      if (j < width) part[warp][32 * j + lane] = acc[j];
    __syncthreads();
    int j = threadIdx.x / 32; /* this thread's column: number j of those of its lane */
    column = tile + lane * width + j;
    if (j < width && column < r.run.n) {
      float all = part[0][threadIdx.x];
      for (int w = 1; w < WARPS; w++) all = join(r, all, part[w][threadIdx.x]);
      put(r, outer * r.run.n + column, chunk, off[1] + column * r.run.stride[1], all);
    }
    __syncthreads();
  }
}

static __global__ void __launch_bounds__(THREADS) reduce_join(const __grid_constant__ Reduce r) {
  for (long long p = blockIdx.x * (long long)THREADS + threadIdx.x; p < r.points.total;
       p += gridDim.x * (long long)THREADS) {
    long long at, off[2];
    zkc_seek(r.kept, zkc_row(r.points, p, at), off);
    off[1] += r.rows ? 0 : at * r.run.stride[1];
    float all = r.partial[p];
    for (int c = 1; c < r.chunks; c++) all = join(r, all, r.partial[c * r.points.total + p]);
    zk_store(r.y, r.yelem, off[1], r.add ? all + zk_load(r.y, r.yelem, off[1]) : all);
  }
}

/* ---- host ---- */
static int64_t clamp(int64_t x, int64_t lo, int64_t hi) {
  return x > hi ? (hi > lo ? hi : lo) : x > lo ? x : lo;
}

/* Not by what pointers allow: scratch is asked for before there are any. */
static int chunks_of(int64_t units, int64_t most) {
  return (int)clamp(zk_ceil_of(TASKS, units > 0 ? units : 1), 1, most);
}

static Reduce analyse(const ZkCall *c) {
  ZkView x = c->in[0];
  Reduce r = {};
  r.x = x.data, r.y = c->out[0].data, r.xelem = x.elem, r.yelem = c->out[0].elem;
  r.peak = c->op == ZG_OP_PEAK, r.add = c->accumulate, r.partial = (float *)c->scratch;
  for (int a = 0; r.peak && c->nax > 0 && c->opt[1] > 0 && a < x.rank; a++)
    if (x.axis[a] == c->ax[0])
      x.size[a] = clamp(c->opt[1] - x.start[a], 0, x.size[a]); /* the rest is padding */
  const ZkView *views[2] = {&x, &c->out[0]};
  r.kept = zkc_nest(views, 2, c->ax, c->nax, false);
  r.red = zkc_nest(views, 2, c->ax, c->nax, true);
  int64_t last = r.kept.nloops ? r.kept.stride[r.kept.nloops - 1][0] : INT64_MAX;
  r.rows = r.kept.nloops == 0 || (r.red.nloops > 0 && r.red.stride[r.red.nloops - 1][0] < last);
  if (r.rows) {
    int64_t npoints = r.kept.count;
    r.red = zkc_nest_run(views, 2, c->ax, c->nax, true, &r.run);
    r.wide = zkc_wide(&x, &r.red, 0, r.run.n, r.run.stride[0]) && zkc_aligned(&x, &r.kept, 0, 1);
    r.units = zkc_units(r.red.count, r.wide ? r.run.n / 8 : r.run.n);
    r.range = r.units.total;
    r.points = zkc_units(npoints, 1);
    r.small = r.red.count * r.run.n <= 1024;
    r.chunks = chunks_of(npoints, r.red.count * r.run.n / (32 * THREADS));
    r.tasks = npoints * r.chunks;
  } else {
    r.kept = zkc_nest_run(views, 2, c->ax, c->nax, false, &r.run);
    r.wide = zkc_wide(&x, &r.kept, 0, r.run.n, r.run.stride[0]) && zkc_aligned(&x, &r.red, 0, 1);
    r.tiles = zk_ceil_of(r.run.n, r.wide ? 256 : 32);
    r.points = zkc_units(r.kept.count, r.run.n);
    r.range = r.red.count;
    int64_t units = r.kept.count * r.tiles;
    r.chunks = chunks_of(r.kept.count * zk_ceil_of(r.run.n, 256), r.range / (4 * WARPS));
    r.tasks = units * r.chunks;
  }
  return r;
}

extern "C" size_t zk_cuda_reduce_scratch(const ZkCall *c) {
  Reduce r = analyse(c);
  return r.chunks > 1 ? (size_t)r.chunks * (size_t)r.points.total * sizeof(float) : 0;
}

static void reduce(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  Reduce r = analyse(c);
  if (!r.rows) ZK_LAUNCH(cu, c, reduce_columns, zk_blocks(cu, r.tasks), THREADS, 0, r);
  else if (r.small)
    ZK_LAUNCH(cu, c, reduce_rows<32>, zk_blocks(cu, zk_ceil_of(r.tasks, WARPS)), THREADS, 0, r);
  else ZK_LAUNCH(cu, c, reduce_rows<THREADS>, zk_blocks(cu, r.tasks), THREADS, 0, r);
  if (r.chunks > 1)
    ZK_LAUNCH(cu, c, reduce_join, zk_blocks(cu, zk_ceil_of(r.points.total, THREADS)), THREADS, 0, r);
}

extern "C" void zk_cuda_sum(const ZkEnv *env, const ZkCall *c) { reduce(env, c); }
extern "C" void zk_cuda_peak(const ZkEnv *env, const ZkCall *c) { reduce(env, c); }

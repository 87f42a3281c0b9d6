/* sum and peak. As on the CPU there are two shapes. Rows: the fastest axis is reduced; T threads make one
 * result. Columns: the fastest axis is kept; a block makes 32 or 256 neighbouring results, its warps take
 * every eighth row. Where that gives too few blocks, the reduced range is cut into chunks whose partial
 * results lie in scratch and are joined in order. All cuts depend on shapes only. */
#include "kernels/cuda/common.cuh"

#define THREADS 256
#define WARPS (THREADS / 32)
#define TASKS 512  /* enough blocks for a device: four for each multiprocessor of the largest */
#define AHEAD 4    /* loads that a thread has under way */
#define RESIDENT 4 /* blocks of a multiprocessor that must have registers; rows need a few more */

typedef struct {
  const void *x;
  void *y;
  int xelem, yelem;
  bool add, rows, wide, small;   /* small: a warp makes a result, not a block */
  ZkcNest kept, red;             /* views: x, y; without `run`, the fastest loop of x */
  ZkcRun run;                    /* of the reduced axes (rows) or of the kept ones (columns) */
  ZkcUnits units;                /* rows: eights or single elements of the reduced range, along the run */
  ZkcUnits points;               /* results, along the run (columns) */
  long long tiles, tasks, range; /* columns: of 32 threads along the run. range: what chunks cut */
  int chunks;
  float *partial; /* [chunk][point], if there are several */
} Reduce;

/* E: the type of x, whose eights are read 16 bytes a time; ANY: of any type, element by element. */
enum { ANY = -1 };

template <bool PEAK> ZK_DEVICE float none() { return PEAK ? -INFINITY : 0; }
template <bool PEAK> ZK_DEVICE float join(float a, float b) { return !PEAK ? a + b : a > b ? a : b; }

/* AHEAD loads, all under way before the first is waited for, joined to `acc` in their order. */
template <int E, bool PEAK>
ZK_DEVICE void take(const Reduce &r, const bool (&there)[AHEAD], const long long (&off)[AHEAD],
                    float (&acc)[8]) {
  float x[AHEAD][8];
#pragma unroll
  for (int i = 0; i < AHEAD; i++) {
#pragma unroll
    for (int j = 0; j < 8; j++) x[i][j] = none<PEAK>();
    if (!there[i]) continue;
    if (E == ANY) x[i][0] = zk_load(r.x, r.xelem, off[i]);
    else zk_load8(r.x, E, off[i], x[i]);
  }
#pragma unroll
  for (int i = 0; i < AHEAD; i++)
#pragma unroll
    for (int j = 0; j < (E == ANY ? 1 : 8); j++) acc[j] = join<PEAK>(acc[j], x[i][j]);
}

/* Stores a chunk's result of a point, or the only one where it belongs. */
ZK_DEVICE void put(const Reduce &r, long long point, int chunk, long long off, float x) {
  if (r.chunks > 1) r.partial[chunk * r.points.total + point] = x;
  else zk_store(r.y, r.yelem, off, r.add ? x + zk_load(r.y, r.yelem, off) : x);
}

template <int T, int E, bool PEAK>
static __global__ void __launch_bounds__(THREADS, RESIDENT - 1)
    reduce_rows(const __grid_constant__ Reduce r) {
  ZK_SHARED(float, part, [WARPS]);
  const int width = E == ANY ? 1 : 8;
  int t = threadIdx.x % T;
  for (long long task = (blockIdx.x * (long long)THREADS + threadIdx.x) / T; task < r.tasks;
       task += gridDim.x * (long long)(THREADS / T)) {
    long long point = task / r.chunks, off[2];
    int chunk = (int)(task - point * r.chunks);
    long long from = r.range * chunk / r.chunks, to = r.range * (chunk + 1) / r.chunks;
    zkc_seek(r.kept, (unsigned)point, off);
    float acc[8];
#pragma unroll
    for (int j = 0; j < 8; j++) acc[j] = none<PEAK>();
    for (long long u = from + t; u < to; u += AHEAD * T) {
      bool there[AHEAD];
      long long at[AHEAD];
#pragma unroll
      for (int i = 0; i < AHEAD; i++) {
        long long o[1] = {0}, k = u + i * T;
        there[i] = k < to;
        if (r.red.nloops > 0) zkc_seek(r.red, zkc_row(r.units, k, k), o);
        at[i] = off[0] + o[0] + width * k * r.run.stride[0];
      }
      take<E, PEAK>(r, there, at, acc);
    }
#pragma unroll
    for (int d = 4; d > 0; d /= 2)
#pragma unroll
      for (int j = 0; j < d; j++) acc[j] = join<PEAK>(acc[j], acc[j + d]);
    float all = PEAK ? zk_block<T>(acc[0], ZkMax(), part) : zk_block<T>(acc[0], ZkSum(), part);
    if (t == 0) put(r, point, chunk, off[1], all);
  }
}

template <int E, bool PEAK>
static __global__ void __launch_bounds__(THREADS, RESIDENT) reduce_columns(const __grid_constant__ Reduce r) {
  ZK_SHARED(float, part, [WARPS][256]);
  const int width = E == ANY ? 1 : 8;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (long long task = blockIdx.x; task < r.tasks; task += gridDim.x) {
    long long unit = task / r.chunks, outer = unit / r.tiles, off[2];
    int chunk = (int)(task - unit * r.chunks);
    long long from = r.range * chunk / r.chunks, to = r.range * (chunk + 1) / r.chunks;
    long long tile = (unit - outer * r.tiles) * 32 * width, column = tile + lane * width;
    zkc_seek(r.kept, (unsigned)outer, off);
    float acc[8];
#pragma unroll
    for (int j = 0; j < 8; j++) acc[j] = none<PEAK>();
    for (long long row = from + warp; row < to && column < r.run.n; row += AHEAD * WARPS) {
      bool there[AHEAD];
      long long at[AHEAD];
#pragma unroll
      for (int i = 0; i < AHEAD; i++) {
        long long o[1];
        there[i] = row + i * WARPS < to;
        zkc_seek(r.red, (unsigned)(row + i * WARPS), o);
        at[i] = off[0] + o[0] + column * r.run.stride[0];
      }
      take<E, PEAK>(r, there, at, acc);
    }
#pragma unroll
    for (int j = 0; j < width; j++) part[warp][32 * j + lane] = acc[j];
    __syncthreads();
    int j = threadIdx.x / 32; /* this thread's column: number j of those of its lane */
    column = tile + lane * width + j;
    if (j < width && column < r.run.n) {
      float all = part[0][threadIdx.x];
      for (int w = 1; w < WARPS; w++) all = join<PEAK>(all, part[w][threadIdx.x]);
      put(r, outer * r.run.n + column, chunk, off[1] + column * r.run.stride[1], all);
    }
    __syncthreads();
  }
}

/* A block joins the chunks of 32 points: each warp every eighth of them, then one warp those of all. */
template <bool PEAK>
static __global__ void __launch_bounds__(THREADS) reduce_join(const __grid_constant__ Reduce r) {
  ZK_SHARED(float, part, [WARPS][32]);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (long long base = blockIdx.x * 32ll; base < r.points.total; base += gridDim.x * 32ll) {
    long long p = base + lane;
    bool there = p < r.points.total;
    float all = none<PEAK>();
#pragma unroll 8
    for (int c = warp; c < (there ? r.chunks : 0); c += WARPS)
      all = join<PEAK>(all, r.partial[c * r.points.total + p]);
    part[warp][lane] = all;
    __syncthreads();
    if (warp == 0 && there) {
      for (int w = 1; w < WARPS; w++) all = join<PEAK>(all, part[w][lane]);
      long long at, off[2];
      zkc_seek(r.kept, zkc_row(r.points, p, at), off);
      off[1] += r.rows ? 0 : at * r.run.stride[1];
      zk_store(r.y, r.yelem, off[1], r.add ? all + zk_load(r.y, r.yelem, off[1]) : all);
    }
    __syncthreads();
  }
}

/* ---- host ---------------------------------------------------------------------------------------------- */
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
  r.add = c->accumulate, r.partial = (float *)c->scratch;
  for (int a = 0; c->op == ZG_OP_PEAK && c->nax > 0 && c->opt[1] > 0 && a < x.rank; a++)
    if (x.axis[a] == c->ax[0])
      x.size[a] = clamp(c->opt[1] - x.start[a], 0, x.size[a]); /* the rest is padding */
  const ZkView *views[2] = {&x, &c->out[0]};
  bool real = x.elem == ZK_F32 || x.elem == ZK_BF16;
  r.kept = zkc_nest(views, 2, c->ax, c->nax, false);
  r.red = zkc_nest(views, 2, c->ax, c->nax, true);
  int64_t last = r.kept.nloops ? r.kept.stride[r.kept.nloops - 1][0] : INT64_MAX;
  r.rows = r.kept.nloops == 0 || (r.red.nloops > 0 && r.red.stride[r.red.nloops - 1][0] < last);
  if (r.rows) {
    int64_t npoints = r.kept.count;
    r.red = zkc_nest_run(views, 2, c->ax, c->nax, true, &r.run);
    r.wide = real && zkc_wide(&x, &r.red, 0, r.run.n, r.run.stride[0]) && zkc_aligned(&x, &r.kept, 0, 1);
    r.units = zkc_units(r.red.count, r.wide ? r.run.n / 8 : r.run.n);
    r.range = r.units.total;
    r.points = zkc_units(npoints, 1);
    r.small = r.red.count * r.run.n <= 1024;
    r.chunks = chunks_of(npoints, r.red.count * r.run.n / (32 * THREADS));
    r.tasks = npoints * r.chunks;
  } else {
    r.kept = zkc_nest_run(views, 2, c->ax, c->nax, false, &r.run);
    r.wide = real && zkc_wide(&x, &r.kept, 0, r.run.n, r.run.stride[0]) && zkc_aligned(&x, &r.red, 0, 1);
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

template <int E, bool PEAK> static void launch(ZkCuda *cu, const ZkCall *c, const Reduce &r) {
  unsigned blocks = zk_blocks(cu, r.tasks);
  if (!r.rows) ZK_LAUNCH(cu, c, (reduce_columns<E, PEAK>), blocks, THREADS, 0, r);
  else if (r.small)
    ZK_LAUNCH(cu, c, (reduce_rows<32, E, PEAK>), zk_blocks(cu, zk_ceil_of(r.tasks, WARPS)), THREADS, 0, r);
  else ZK_LAUNCH(cu, c, (reduce_rows<THREADS, E, PEAK>), blocks, THREADS, 0, r);
  if (r.chunks > 1)
    ZK_LAUNCH(cu, c, reduce_join<PEAK>, zk_blocks(cu, zk_ceil_of(r.points.total, 32)), THREADS, 0, r);
}

template <bool PEAK> static void reduce(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  Reduce r = analyse(c);
  if (r.wide && r.xelem == ZK_BF16) launch<ZK_BF16, PEAK>(cu, c, r);
  else if (r.wide && r.xelem == ZK_F32) launch<ZK_F32, PEAK>(cu, c, r);
  else launch<ANY, PEAK>(cu, c, r);
}

extern "C" void zk_cuda_sum(const ZkEnv *env, const ZkCall *c) { reduce<false>(env, c); }
extern "C" void zk_cuda_peak(const ZkEnv *env, const ZkCall *c) { reduce<true>(env, c); }

/* Ops along one axis that keep it: softmax, normalize and their gradients. T threads take a row: a warp for
 * short ones, a block for others. A row is read once per pass; the later passes find it in the nearest cache.
 * What of it has elementwise neighbours fused to it is in norm_fused.c. */
#include "kernels/cuda/common.cuh"

#define THREADS 256
#define SHORT 1024 /* longest row of a warp */
/* Blocks of a multiprocessor that must have registers: nvcc would rather spill than have fewer than six. */
#define RESIDENT 4

typedef struct {
  const void *p;
  int elem;
  long long stride; /* along the row */
} Line;
typedef struct {
  Line in[2], out; /* softmax, normalize: x; gradients: g, y */
  const void *r_in;
  void *r;
  ZkcNest rest;       /* [row]; views: in[0], out, in[1] or r */
  long long n, valid; /* valid: without what is added to the axis */
  bool wide, std;
  float eps;
} Norm;
enum { IN0, OUT, IN1, SCALE = IN1, SCALE_GRAD };

ZK_DEVICE void load(const Norm &p, const Line &l, long long off, long long first, int step, float none,
                    float (&x)[8]) {
  zkc_load_row(l.p, l.elem, off, l.stride, p.wide, first, step, p.n, none, x);
}
ZK_DEVICE void store(const Norm &p, long long off, long long first, int step, const float (&x)[8]) {
  zkc_store_row((void *)p.out.p, p.out.elem, off, p.out.stride, p.wide, first, step, p.n, x);
}

/* f(first, step) for each eight of the row that this thread takes. */
template <int T, class F> ZK_DEVICE void each(const Norm &p, F f) {
  for (long long k = 0; k < p.n; k += 8 * T) f(zkc_first(p.wide, k, threadIdx.x % T), zkc_step<T>(p.wide));
}
/* f(offsets) for each row. */
template <int T, int V, class F> ZK_DEVICE void rows(const Norm &p, F f) {
  for (long long row = (blockIdx.x * (long long)THREADS + threadIdx.x) / T; row < p.rest.count;
       row += gridDim.x * (long long)(THREADS / T)) {
    long long off[V];
    zkc_seek(p.rest, (unsigned)row, off);
    f(off);
  }
}

/* Of softmax: what is added to the axis counts as nothing. */
ZK_DEVICE void load_valid(const Norm &p, long long off, long long first, int step, float (&x)[8]) {
  load(p, p.in[0], off, first, step, -INFINITY, x);
  if (p.valid == p.n) return;
#pragma unroll
  for (int j = 0; j < 8; j++) x[j] = first + j * step < p.valid ? x[j] : -INFINITY;
}

template <int T>
static __global__ void __launch_bounds__(THREADS, RESIDENT) softmax(const __grid_constant__ Norm p) {
  ZK_SHARED(float, part, [THREADS / 32]);
  rows<T, 2>(p, [&](const long long *off) {
    float x[8], peak = -INFINITY, sum = 0;
    each<T>(p, [&](long long first, int step) {
      load_valid(p, off[IN0], first, step, x);
#pragma unroll
      for (int j = 0; j < 8; j++) peak = x[j] > peak ? x[j] : peak;
    });
    peak = zk_block<T>(peak, ZkMax(), part);
    each<T>(p, [&](long long first, int step) {
      load_valid(p, off[IN0], first, step, x);
#pragma unroll
      for (int j = 0; j < 8; j++) sum += zk_exp(x[j] - peak);
    });
    float scale = 1 / zk_block<T>(sum, ZkSum(), part);
    each<T>(p, [&](long long first, int step) {
      load_valid(p, off[IN0], first, step, x);
#pragma unroll
      for (int j = 0; j < 8; j++) x[j] = zk_exp(x[j] - peak) * scale;
      store(p, off[OUT], first, step, x);
    });
  });
}

/* dx = y (g - sum g y) */
template <int T>
static __global__ void __launch_bounds__(THREADS, RESIDENT) softmax_grad(const __grid_constant__ Norm p) {
  ZK_SHARED(float, part, [THREADS / 32]);
  rows<T, 3>(p, [&](const long long *off) {
    float g[8], y[8], dot = 0;
    each<T>(p, [&](long long first, int step) {
      load(p, p.in[0], off[IN0], first, step, 0, g);
      load(p, p.in[1], off[IN1], first, step, 0, y);
#pragma unroll
      for (int j = 0; j < 8; j++) dot += g[j] * y[j];
    });
    dot = zk_block<T>(dot, ZkSum(), part);
    each<T>(p, [&](long long first, int step) {
      load(p, p.in[0], off[IN0], first, step, 0, g);
      load(p, p.in[1], off[IN1], first, step, 0, y);
#pragma unroll
      for (int j = 0; j < 8; j++) g[j] = y[j] * (g[j] - dot);
      store(p, off[OUT], first, step, g);
    });
  });
}

template <int T>
static __global__ void __launch_bounds__(THREADS, RESIDENT) normalize(const __grid_constant__ Norm p) {
  ZK_SHARED(float, part, [THREADS / 32]);
  rows<T, 3>(p, [&](const long long *off) {
    float r = zk_normalize<T, 0>(
        p.n, p.wide, p.std, p.eps, part,
        [&](long long first, int step, float(&x)[1][8], bool) {
          load(p, p.in[0], off[IN0], first, step, 0, x[0]);
        },
        [&](long long first, int step, const float(&y)[8], float) { store(p, off[OUT], first, step, y); });
    if (threadIdx.x % T == 0) ((float *)p.r)[off[SCALE]] = r;
  });
}

template <int T>
static __global__ void __launch_bounds__(THREADS, RESIDENT) normalize_grad(const __grid_constant__ Norm p) {
  ZK_SHARED(float, part, [THREADS / 32]);
  rows<T, 4>(p, [&](const long long *off) {
    zk_normalize_grad<T, 0>(
        p.n, p.wide, p.std, ((const float *)p.r_in)[off[SCALE_GRAD]], part,
        [&](long long first, int step, float(&x)[2][8], bool) {
          load(p, p.in[0], off[IN0], first, step, 0, x[0]);
          load(p, p.in[1], off[IN1], first, step, 0, x[1]);
        },
        [&](long long first, int step, const float(&dx)[8]) { store(p, off[OUT], first, step, dx); });
  });
}

/* ---- sums of columns, of blocks' ----------------------------------------------------------------------- */
#define JOIN_WARPS 32

typedef struct {
  const float *partial; /* [block][sum][column] */
  float *to[ZK_MOST_SUMS];
  int blocks, sums, n;
  bool add;
} Join;

/* A block joins 32 columns of a sum: each warp those of every 32nd block, then one warp those of all. */
static __global__ void __launch_bounds__(32 * JOIN_WARPS) join_columns(const __grid_constant__ Join p) {
  ZK_SHARED(float, part, [JOIN_WARPS][32]);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, tiles = (p.n + 31) / 32;
  for (int tile = blockIdx.x; tile < tiles * p.sums; tile += gridDim.x) {
    const int sum = tile / tiles, column = tile % tiles * 32 + lane;
    const bool there = column < p.n;
    float all = 0;
#pragma unroll 8
    for (int b = warp; b < (there ? p.blocks : 0); b += JOIN_WARPS)
      all += p.partial[((long long)b * p.sums + sum) * p.n + column];
    part[warp][lane] = all;
    __syncthreads();
    if (warp == 0 && there) {
      for (int w = 1; w < JOIN_WARPS; w++) all += part[w][lane];
      float *to = (sum ? p.to[1] : p.to[0]) + column;
      *to = p.add ? all + *to : all;
    }
    __syncthreads();
  }
}

/* ---- host ---------------------------------------------------------------------------------------------- */
static Line line(const ZkView *v, uint16_t axis) { return Line{v->data, v->elem, zkc_stride(v, axis)}; }

/* `views` in the order of the nest; the first three are lines if `lines` says so. */
static Norm analyse(const ZkCall *c, const ZkView *const *views, int nviews, int lines) {
  Norm p = {};
  uint16_t axis = c->ax[0];
  p.n = zkc_size(views[0], axis);
  p.rest = zkc_nest(views, nviews, &axis, 1, false);
  p.in[0] = line(views[IN0], axis);
  p.out = line(views[OUT], axis);
  if (lines == 3) p.in[1] = line(views[IN1], axis);
  p.wide = true;
  for (int i = 0; i < lines; i++)
    p.wide = p.wide && zkc_wide(views[i], &p.rest, i, p.n, zkc_stride(views[i], axis));
  p.eps = (float)c->num[0];
  p.std = c->opt[0] == 1;
  return p;
}

/* By the length of the rows: a warp or a block for each. */
#define LAUNCH_ROWS(kernel)                                                                                  \
  do {                                                                                                       \
    ZkCuda *cu = zk_cu(env);                                                                                 \
    if (p.n <= SHORT)                                                                                        \
      ZK_LAUNCH(cu, c, kernel<32>, zk_blocks(cu, zk_ceil_of(p.rest.count, THREADS / 32)), THREADS, 0, p);    \
    else ZK_LAUNCH(cu, c, kernel<THREADS>, zk_blocks(cu, p.rest.count), THREADS, 0, p);                      \
  } while (0)

extern "C" void zk_cuda_softmax(const ZkEnv *env, const ZkCall *c) {
  const ZkView *views[] = {&c->in[0], &c->out[0]};
  Norm p = analyse(c, views, 2, 2);
  p.valid = c->opt[1] > 0 ? c->opt[1] : p.n;
  LAUNCH_ROWS(softmax);
}

extern "C" void zk_cuda_softmax_grad(const ZkEnv *env, const ZkCall *c) {
  const ZkView *views[] = {&c->in[0], &c->out[0], &c->in[1]};
  Norm p = analyse(c, views, 3, 3);
  LAUNCH_ROWS(softmax_grad);
}

extern "C" void zk_cuda_normalize(const ZkEnv *env, const ZkCall *c) {
  if (c->pointwise) return zk_cuda_norm_fused(env, c);
  const ZkView *views[] = {&c->in[0], &c->out[0], &c->out[1]};
  Norm p = analyse(c, views, 3, 2);
  ZB_ASSERT(c->out[1].elem == ZK_F32);
  p.r = c->out[1].data;
  LAUNCH_ROWS(normalize);
}

extern "C" void zk_cuda_normalize_grad(const ZkEnv *env, const ZkCall *c) {
  if (c->pointwise) return zk_cuda_norm_fused(env, c);
  const ZkView *views[] = {&c->in[0], &c->out[0], &c->in[1], &c->in[2]};
  Norm p = analyse(c, views, 4, 3);
  ZB_ASSERT(c->in[2].elem == ZK_F32);
  p.r_in = c->in[2].data;
  LAUNCH_ROWS(normalize_grad);
}

extern "C" void zk_cuda_norm_join(ZkCuda *cu, const ZkCall *c, int sums, unsigned blocks) {
  Join p = {};
  p.partial = (const float *)c->scratch;
  for (int i = 0; i < sums; i++) p.to[i] = (float *)c->out[c->nout - sums + i].data;
  p.blocks = (int)blocks, p.sums = sums, p.n = (int)c->out[c->nout - 1].size[0], p.add = c->accumulate;
  ZK_LAUNCH(cu, c, join_columns, zk_blocks(cu, zk_ceil_of(p.n, 32) * sums), 32 * JOIN_WARPS, 0, p);
}

/* Convolutions, as products whose operand A is gathered on the way (kernels/conv.h says what A, B and C are):
 * a block computes a tile of 64 x 64 of the result, 16 steps a time, from tiles in shared memory; sums in
 * f32. Where a step or a row is in A is an offset and a position along each spatial axis, added up and
 * compared with the edges at each load.
 *
 * In conv_grad the steps are all samples and positions: long sums of few results are cut into parts, which a
 * second kernel adds up. */
#include "kernels/cuda/common.cuh"
extern "C" {
#include "kernels/conv.h"
}

#define THREADS 256
#define SIDE 16 /* threads along each side of a tile; also steps */
#define R 4     /* results of a thread along each side */
#define TILE (SIDE * R)
#define DIMS ZG_CONV_DIMS

enum { A, B, C };

typedef struct {
  int nloops;
  ZkcDiv div[ZKC_LOOPS];
  long long stride[ZKC_LOOPS][3];
} Loops;

typedef struct { /* ZkConvDim, as far as a phase needs it */
  ZkcDiv n, windows;
  long long sa, sb, sc;
  int asize, step, first, jump, k, kstep, shift, kshift;
} Dim;

typedef struct {
  const void *a, *b; /* b: the other operand, B or C */
  void *out;
  int aelem, belem, oelem, dims;
  bool add;
  unsigned M, N, K, groups; /* M: samples and positions; K: windows and features */
  unsigned rtiles, ntiles, parts, piece, total;
  float *partial; /* [part][group][k][n], if parts > 1 */
  ZkcDiv sums;    /* features, in a step of K */
  Loops group, free, sum, cols;
  Dim dim[DIMS];
} Conv;

/* An element of M or of K: where in A, and in C or in B; a position, or what a window shifts it by. */
typedef struct {
  long long a, other;
  int p[DIMS];
} Point;

ZK_DEVICE Point point_m(const Conv &p, unsigned i) {
  Point t = {0, 0, {}};
  long long at[3];
#pragma unroll
  for (int d = DIMS - 1; d >= 0; d--) {
    if (d >= p.dims) continue;
    const Dim &q = p.dim[d];
    unsigned rest = zkc_div(i, q.n), k = i - rest * q.n.n;
    t.p[d] = (int)k * q.step;
    t.other += (q.first + (long long)k * q.jump) * q.sc;
    i = rest;
  }
  zkc_seek(p.free, i, at);
  t.a = at[A], t.other += at[C];
  return t;
}

ZK_DEVICE Point point_k(const Conv &p, unsigned i) {
  Point t = {0, 0, {}};
  long long at[3];
  unsigned w = zkc_div(i, p.sums);
  zkc_seek(p.sum, i - w * p.sums.n, at);
  t.a = at[A], t.other = at[B];
#pragma unroll
  for (int d = DIMS - 1; d >= 0; d--) {
    if (d >= p.dims) continue;
    const Dim &q = p.dim[d];
    unsigned rest = zkc_div(w, q.windows), j = w - rest * q.windows.n;
    t.p[d] = q.shift + (int)j * q.kshift;
    t.other += (q.k + (long long)j * q.kstep) * q.sb;
    w = rest;
  }
  return t;
}

ZK_DEVICE float load_a(const Conv &p, const Point &x, const Point &y, long long base) {
  long long at = base + x.a + y.a;
  bool inside = true;
#pragma unroll
  for (int d = 0; d < DIMS; d++) {
    if (d >= p.dims) continue;
    int i = x.p[d] + y.p[d];
    inside &= i >= 0 && i < p.dim[d].asize;
    at += i * p.dim[d].sa;
  }
  return inside ? zk_load(p.a, p.aelem, at) : 0;
}

/* GRAD: rows are K, steps are M, b is C and the result B; else rows are M, steps K, b is B and the result C. */
template <bool GRAD>
static __global__ void __launch_bounds__(THREADS) conv_tiles(const __grid_constant__ Conv p) {
  ZK_SHARED(float, a, [SIDE][TILE + 4]);
  ZK_SHARED(float, b, [SIDE][TILE + 4]);
  ZK_SHARED(Point, row, [TILE]);
  ZK_SHARED(Point, step, [SIDE]);
  ZK_SHARED(long long, col, [TILE]); /* in b */
  ZK_SHARED(long long, ocol, [TILE]);
  const int from = GRAD ? C : B, to = GRAD ? B : C;
  unsigned x = threadIdx.x % SIDE, y = threadIdx.x / SIDE, rows = GRAD ? p.K : p.M, steps = GRAD ? p.M : p.K;
  for (unsigned u = blockIdx.x; u < p.total; u += gridDim.x) {
    unsigned n0 = u % p.ntiles * TILE, rest = u / p.ntiles, r0 = rest % p.rtiles * TILE;
    unsigned part = rest / p.rtiles % p.parts, g = rest / p.rtiles / p.parts;
    unsigned nr = min((unsigned)TILE, rows - r0), nn = min((unsigned)TILE, p.N - n0);
    unsigned first = part * p.piece, last = min(steps, first + p.piece);
    long long group[3], at[3];
    zkc_seek(p.group, g, group);
    if (threadIdx.x < nr)
      row[threadIdx.x] = GRAD ? point_k(p, r0 + threadIdx.x) : point_m(p, r0 + threadIdx.x);
    if (threadIdx.x >= TILE && threadIdx.x < TILE + nn) {
      zkc_seek(p.cols, n0 + threadIdx.x - TILE, at);
      col[threadIdx.x - TILE] = group[from] + at[from];
      ocol[threadIdx.x - TILE] = group[to] + at[to];
    }
    float sum[R][R] = {};
    for (unsigned s0 = first; s0 < last; s0 += SIDE) {
      unsigned ns = min((unsigned)SIDE, last - s0);
      __syncthreads(); /* what was read of the tiles before is read */
      if (threadIdx.x < ns)
        step[threadIdx.x] = GRAD ? point_m(p, s0 + threadIdx.x) : point_k(p, s0 + threadIdx.x);
      __syncthreads();
      for (unsigned i = threadIdx.x; i < SIDE * TILE; i += THREADS) {
        unsigned k = i / TILE, e = i % TILE;
        a[k][e] = k < ns && e < nr ? load_a(p, row[e], step[k], group[A]) : 0;
        b[k][e] = k < ns && e < nn ? zk_load(p.b, p.belem, step[k].other + col[e]) : 0;
      }
      __syncthreads();
#pragma unroll 4
      for (int k = 0; k < SIDE; k++) {
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
          for (int j = 0; j < R; j++) sum[i][j] = fmaf(a[k][y + SIDE * i], b[k][x + SIDE * j], sum[i][j]);
      }
    }
    __syncthreads(); /* without steps rows and columns are not there yet */
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
      for (int j = 0; j < R; j++) {
        unsigned r = y + SIDE * i, s = x + SIDE * j;
        if (r >= nr || s >= nn) continue;
        if (p.parts > 1) {
          p.partial[(((size_t)part * p.groups + g) * rows + r0 + r) * p.N + n0 + s] = sum[i][j];
          continue;
        }
        long long o = row[r].other + ocol[s];
        zk_store(p.out, p.oelem, o, p.add ? zk_load(p.out, p.oelem, o) + sum[i][j] : sum[i][j]);
      }
    __syncthreads(); /* rows and columns are in use until here */
  }
}

static __global__ void __launch_bounds__(THREADS) conv_add_parts(const __grid_constant__ Conv p) {
  size_t each = (size_t)p.groups * p.K * p.N;
  for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < each; i += gridDim.x * (size_t)THREADS) {
    long long group[3], at[3];
    float sum = 0;
    for (unsigned part = 0; part < p.parts; part++) sum += p.partial[part * each + i];
    zkc_seek(p.group, (unsigned)(i / p.N / p.K), group);
    zkc_seek(p.cols, (unsigned)(i % p.N), at);
    long long o = group[B] + at[B] + point_k(p, (unsigned)(i / p.N % p.K)).other;
    zk_store(p.out, p.oelem, o, p.add ? zk_load(p.out, p.oelem, o) + sum : sum);
  }
}

/* ---- the host's side ----------------------------------------------------------------------------------- */
/* The axes that just these of A, B and C have, as view `by` has them. */
static Loops loops_of(const ZkCall *c, bool a, bool b, bool cc, int by, unsigned *count) {
  const ZkView *v[3] = {&c->in[0], zk_conv_b(c), zk_conv_c(c)}, *views[4] = {v[by], v[A], v[B], v[C]};
  uint16_t ax[ZK_MAX_AXES];
  int n = 0;
  for (int i = 0; i < v[by]->rank; i++) {
    uint16_t axis = v[by]->axis[i];
    bool named = false;
    for (int k = 0; k < c->nax; k++) named |= c->ax[k] == axis;
    if (!named && (zkc_find(v[A], axis) >= 0) == a && (zkc_find(v[B], axis) >= 0) == b &&
        (zkc_find(v[C], axis) >= 0) == cc)
      ax[n++] = axis;
  }
  ZkcNest nest = zkc_nest(views, 4, ax, n, true);
  Loops l = {nest.nloops, {}, {}};
  for (int i = 0; i < nest.nloops; i++) {
    l.div[i] = nest.div[i];
    for (int k = 0; k < 3; k++) l.stride[i][k] = nest.stride[i][1 + k];
  }
  *count = nest.count;
  return l;
}

static unsigned product(const ZkConvDim *dim, int dims, bool windows) {
  int64_t n = 1;
  for (int d = 0; d < dims; d++) n *= windows ? dim[d].windows : dim[d].n;
  return (unsigned)n;
}

static Conv conv_of(const ZkCall *c, ZkConvDim *dim) {
  Conv p = {};
  const ZkView *b = &c->in[1], *out = &c->out[0];
  p.a = c->in[0].data, p.b = b->data, p.out = out->data;
  p.aelem = c->in[0].elem, p.belem = b->elem, p.oelem = out->elem;
  p.add = c->accumulate;
  p.dims = zk_conv_dims(c, dim);
  p.group = loops_of(c, true, true, true, B, &p.groups);
  p.cols = loops_of(c, false, true, true, C, &p.N);
  p.partial = (float *)c->scratch;
  return p;
}

/* Sizes of the phase, tiles and parts. False: nothing to do. */
static bool set_phase(Conv *p, const ZkCall *c, ZkConvDim *dim, int64_t phase) {
  unsigned frees, sums;
  bool grad = c->op == ZG_OP_CONV_GRAD;
  zk_conv_phase(c, dim, phase);
  p->free = loops_of(c, true, false, true, C, &frees);
  p->sum = loops_of(c, true, true, false, A, &sums);
  p->M = frees * product(dim, p->dims, false);
  p->K = sums * product(dim, p->dims, true);
  p->sums = zkc_units(1, sums ? sums : 1).div;
  for (int d = 0; d < p->dims; d++) {
    const ZkConvDim *q = &dim[d];
    p->dim[d] = {zkc_units(1, q->n ? q->n : 1).div,
                 zkc_units(1, q->windows ? q->windows : 1).div,
                 q->sa,
                 q->sb,
                 q->sc,
                 (int)q->asize,
                 (int)q->step,
                 (int)q->first,
                 (int)q->jump,
                 (int)q->k,
                 (int)q->kstep,
                 (int)q->shift,
                 (int)q->kshift};
  }
  unsigned rows = grad ? p->K : p->M, steps = grad ? p->M : p->K;
  p->rtiles = (unsigned)zk_ceil_of(rows, TILE), p->ntiles = (unsigned)zk_ceil_of(p->N, TILE);
  int64_t tiles = (int64_t)p->groups * p->rtiles * p->ntiles;
  p->parts = 1;
  if (grad && tiles > 0 && tiles < 256 && steps >= 4096) {
    int64_t most = steps / 2048, fill = zk_ceil_of(256, tiles);
    p->parts = (unsigned)(most < fill ? most : fill);
  }
  p->piece = (unsigned)(zk_ceil_of(zk_ceil_of(steps, p->parts), SIDE) * SIDE);
  tiles *= p->parts;
  ZB_ASSERT(tiles < (int64_t)1 << 32);
  p->total = (unsigned)tiles;
  return tiles > 0;
}

extern "C" size_t zk_cuda_conv_scratch(const ZkCall *c) {
  ZkConvDim dim[DIMS] = {};
  Conv p = conv_of(c, dim);
  if (!set_phase(&p, c, dim, 0) || p.parts == 1) return 0;
  return (size_t)p.parts * p.groups * p.K * p.N * sizeof(float);
}

static void convolve(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  ZkConvDim dim[DIMS] = {};
  Conv p = conv_of(c, dim);
  int64_t phases = zk_conv_phases(c, dim);
  for (int64_t i = 0; i < phases; i++) {
    if (!set_phase(&p, c, dim, i)) continue;
    if (c->op != ZG_OP_CONV_GRAD) ZK_LAUNCH(cu, c, conv_tiles<false>, zk_blocks(cu, p.total), THREADS, 0, p);
    else ZK_LAUNCH(cu, c, conv_tiles<true>, zk_blocks(cu, p.total), THREADS, 0, p);
    if (p.parts == 1) continue;
    int64_t results = (int64_t)p.groups * p.K * p.N;
    ZK_LAUNCH(cu, c, conv_add_parts, zk_blocks(cu, zk_ceil_of(results, THREADS)), THREADS, 0, p);
  }
}

extern "C" void zk_cuda_conv(const ZkEnv *env, const ZkCall *c) { convolve(env, c); }
extern "C" void zk_cuda_conv_transpose(const ZkEnv *env, const ZkCall *c) { convolve(env, c); }
extern "C" void zk_cuda_conv_grad(const ZkEnv *env, const ZkCall *c) { convolve(env, c); }

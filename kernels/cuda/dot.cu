/* Products by our own kernels: any strides, f32 and bf16 operands, sums in f32.
 *
 * tiles   A block computes a square tile of C, 16 steps of k a time, from tiles of A and B in shared memory.
 *         Each element is the sum of its products in the order of k, whatever the tiles: the two sizes give
 *         the same bits.
 * inner   One result for each point of the batch: over rows, where threads go along k, or over columns, where
 *         they go along the batch. Long sums are cut into parts, which a second kernel adds up.
 *
 * The first is what builds without cuBLASLt have, and what it is checked against. */
#include "kernels/cuda/common.cuh"
extern "C" {
#include "kernels/cuda/dot.h"
}

#define THREADS 256
#define SIDE 16 /* threads along each side of a tile; also the steps of k */

/* A nest of few views: four of them fit into a kernel's parameters. */
typedef struct {
  int nloops;
  ZkcDiv div[ZKC_LOOPS];
  long long stride[ZKC_LOOPS][3];
} Loops;

/* The loops over `class`, ordered as view `from` has them; strides of A, B and C. */
static Loops loops(const ZkDot *d, const ZkDotAxes *axes, int from) {
  /* zkc_nest orders by the first view and asks only it for the axes. */
  const ZkView *views[4] = {&d->v[from], &d->v[ZKD_A], &d->v[ZKD_B], &d->v[ZKD_C]};
  ZkcNest nest = zkc_nest(views, 4, axes->ax, axes->n, true);
  Loops l = {nest.nloops, {}, {}};
  for (int i = 0; i < nest.nloops; i++) {
    l.div[i] = nest.div[i];
    for (int v = 0; v < 3; v++) l.stride[i][v] = nest.stride[i][1 + v];
  }
  return l;
}
static long long fastest(const Loops &l, int view) { return l.nloops ? l.stride[l.nloops - 1][view] : 1; }

/* ---- tiles --------------------------------------------------------------------------------------------- */
typedef struct {
  const void *a, *b;
  void *c;
  int aelem, belem, celem;
  bool add, a_along_k, b_along_k; /* threads load A, B along k rather than along m, n */
  unsigned M, N, K, mtiles, ntiles, total;
  Loops batch, m, n, k;
} Tiles;

/* Which R elements of a tile of k by R * 16 this thread loads: number i is at (k + i dk, e + i de). */
typedef struct {
  int k, dk, e, de;
} Walk;
template <int R> ZK_DEVICE Walk walk(bool along_k) {
  int t = threadIdx.x;
  if (along_k) return {t % SIDE, 0, t / SIDE, SIDE};
  return {t / (SIDE * R), THREADS / (SIDE * R), t % (SIDE * R), 0};
}

/* The steps that exist of `count` rows (columns), the others zero. Offsets of rows: off[], of steps:
 * koff[]. */
template <int R>
ZK_DEVICE void load_tile(const void *p, int elem, const Walk &w, const long long *off, unsigned count,
                         const long long *koff, unsigned steps, float (&x)[R]) {
#pragma unroll
  for (int i = 0; i < R; i++) {
    int k = w.k + i * w.dk, e = w.e + i * w.de;
    x[i] = (unsigned)k < steps && (unsigned)e < count ? zk_load(p, elem, off[e] + koff[k]) : 0;
  }
}

template <int R>
ZK_DEVICE void keep_tile(const Walk &w, const float (&x)[R], float (&tile)[SIDE][SIDE * R + 4]) {
#pragma unroll
  for (int i = 0; i < R; i++) tile[w.k + i * w.dk][w.e + i * w.de] = x[i];
}

/* Offsets of n rows from `first` on, in two views. */
ZK_DEVICE void seek_rows(const Loops &l, unsigned first, unsigned n, int view, long long base, long long *off,
                         long long *coff) {
  for (unsigned i = threadIdx.x; i < n; i += THREADS) {
    long long at[3];
    zkc_seek(l, first + i, at);
    off[i] = base + at[view];
    coff[i] = at[ZKD_C];
  }
}

/* Offsets in A and B of up to SIDE steps of k from `first` on; how many there are. */
ZK_DEVICE unsigned seek_steps(const Tiles &p, unsigned first, long long *ak, long long *bk) {
  unsigned n = first < p.K ? min((unsigned)SIDE, p.K - first) : 0;
  if (threadIdx.x < n) {
    long long at[3];
    zkc_seek(p.k, first + threadIdx.x, at);
    ak[threadIdx.x] = at[ZKD_A];
    bk[threadIdx.x] = at[ZKD_B];
  }
  return n;
}

/* Row r of the R * 16 that thread row y has: four neighbours a time, so that they load as one. */
ZK_DEVICE int row_of(int y, int r) { return r / 4 * (4 * SIDE) + 4 * y + r % 4; }
template <int R> ZK_DEVICE void get_rows(const float (&line)[SIDE * R + 4], int y, float (&x)[R]) {
#pragma unroll
  for (int r = 0; r < R; r += 4) {
    float4 f = *(const float4 *)&line[row_of(y, r)];
    x[r] = f.x, x[r + 1] = f.y, x[r + 2] = f.z, x[r + 3] = f.w;
  }
}

template <int R>
static __global__ void __launch_bounds__(THREADS, 8 / R) tiles(const __grid_constant__ Tiles p) {
  const unsigned T = SIDE * R;
  ZK_SHARED(float, a, [SIDE][SIDE * R + 4]);
  ZK_SHARED(float, b, [SIDE][SIDE * R + 4]);
  ZK_SHARED(long long, am, [SIDE * R]);
  ZK_SHARED(long long, bn, [SIDE * R]);
  ZK_SHARED(long long, cm, [SIDE * R]);
  ZK_SHARED(long long, cn, [SIDE * R]);
  ZK_SHARED(long long, ak, [SIDE]);
  ZK_SHARED(long long, bk, [SIDE]);
  int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
  const Walk wa = walk<R>(p.a_along_k), wb = walk<R>(p.b_along_k);
  for (unsigned u = blockIdx.x; u < p.total; u += gridDim.x) {
    unsigned n0 = u % p.ntiles * T, m0 = u / p.ntiles % p.mtiles * T;
    unsigned nm = min(T, p.M - m0), nn = min(T, p.N - n0);
    long long at[3];
    zkc_seek(p.batch, u / p.ntiles / p.mtiles, at);
    seek_rows(p.m, m0, nm, ZKD_A, at[ZKD_A], am, cm);
    seek_rows(p.n, n0, nn, ZKD_B, at[ZKD_B], bn, cn);
    unsigned steps = seek_steps(p, 0, ak, bk);
    __syncthreads();
    float sum[R][R] = {}, na[R], nb[R]; /* the tiles of k that come next */
    load_tile(p.a, p.aelem, wa, am, nm, ak, steps, na);
    load_tile(p.b, p.belem, wb, bn, nn, bk, steps, nb);
    __syncthreads();
    for (unsigned k0 = 0; k0 < p.K; k0 += SIDE) {
      keep_tile(wa, na, a);
      keep_tile(wb, nb, b);
      steps = seek_steps(p, k0 + SIDE, ak, bk);
      __syncthreads();
      load_tile(p.a, p.aelem, wa, am, nm, ak, steps, na);
      load_tile(p.b, p.belem, wb, bn, nn, bk, steps, nb);
#pragma unroll 4
      for (int k = 0; k < SIDE; k++) {
        float av[R], bv[R];
        get_rows<R>(a[k], y, av);
        get_rows<R>(b[k], x, bv);
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
          for (int j = 0; j < R; j++) sum[i][j] = fmaf(av[i], bv[j], sum[i][j]);
      }
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
      for (int j = 0; j < R; j++) {
        unsigned r = row_of(y, i), s = row_of(x, j);
        if (r >= nm || s >= nn) continue;
        long long to = at[ZKD_C] + cm[r] + cn[s];
        zk_store(p.c, p.celem, to, p.add ? zk_load(p.c, p.celem, to) + sum[i][j] : sum[i][j]);
      }
    __syncthreads(); /* the offsets are in use until here */
  }
}

static bool cut(Tiles *p, int64_t batch, unsigned side) {
  p->mtiles = (unsigned)zk_ceil_of(p->M, side);
  p->ntiles = (unsigned)zk_ceil_of(p->N, side);
  int64_t total = batch * p->mtiles * p->ntiles;
  p->total = (unsigned)total;
  return total < (int64_t)1 << 32;
}

/* Along the operand's fastest class; that is the one with the smaller stride. */
static bool along_k(const Loops &k, const Loops &other, int view) {
  return k.nloops > 0 && (other.nloops == 0 || fastest(k, view) < fastest(other, view));
}

extern "C" void zk_dot_tiles(ZkCuda *cu, const ZkCall *call, const ZkDot *given) {
  ZkDot d = *given;
  Loops m = loops(&d, &d.m, ZKD_C), n = loops(&d, &d.n, ZKD_C);
  if (m.nloops > 0 && (n.nloops == 0 || fastest(m, ZKD_C) < fastest(n, ZKD_C))) { /* threads x go along n */
    d.v[ZKD_A] = given->v[ZKD_B], d.v[ZKD_B] = given->v[ZKD_A];
    d.m = given->n, d.n = given->m;
    m = loops(&d, &d.m, ZKD_C), n = loops(&d, &d.n, ZKD_C);
  }
  Tiles p = {};
  p.a = d.v[ZKD_A].data, p.b = d.v[ZKD_B].data, p.c = d.v[ZKD_C].data;
  p.aelem = d.v[ZKD_A].elem, p.belem = d.v[ZKD_B].elem, p.celem = d.v[ZKD_C].elem;
  p.add = d.add;
  p.M = (unsigned)d.m.count, p.N = (unsigned)d.n.count, p.K = (unsigned)d.k.count;
  p.batch = loops(&d, &d.batch, ZKD_C);
  p.m = m, p.n = n, p.k = loops(&d, &d.k, ZKD_A);
  p.a_along_k = along_k(p.k, m, ZKD_A);
  p.b_along_k = along_k(p.k, n, ZKD_B);
  bool fits = cut(&p, d.batch.count, 8 * SIDE);
  if (fits && p.M >= 8 * SIDE && p.N >= 8 * SIDE && p.total >= (unsigned)cu->sms) {
    ZK_LAUNCH(cu, call, tiles<8>, zk_blocks(cu, p.total), THREADS, 0, p);
  } else {
    fits = cut(&p, d.batch.count, 4 * SIDE);
    ZB_ASSERT(fits);
    ZK_LAUNCH(cu, call, tiles<4>, zk_blocks(cu, p.total), THREADS, 0, p);
  }
}

/* ---- inner products ------------------------------------------------------------------------------------ */
typedef struct {
  const void *a, *b;
  void *c;
  int aelem, belem, celem;
  bool add;
  unsigned count, K, parts, piece; /* results; each part is the sum of `piece` steps of k */
  float *partial;                  /* [part][result], if parts > 1 */
  Loops batch, k;
} Inner;

ZK_DEVICE float step(const Inner &p, const long long (&base)[3], unsigned k) {
  long long at[3];
  zkc_seek(p.k, k, at);
  return zk_load(p.a, p.aelem, base[ZKD_A] + at[ZKD_A]) * zk_load(p.b, p.belem, base[ZKD_B] + at[ZKD_B]);
}

ZK_DEVICE void keep(const Inner &p, unsigned result, unsigned part, long long to, float x) {
  if (p.parts > 1) p.partial[(size_t)part * p.count + result] = x;
  else zk_store(p.c, p.celem, to, p.add ? zk_load(p.c, p.celem, to) + x : x);
}

/* T threads to a part of a result. */
template <int T>
static __global__ void __launch_bounds__(THREADS) inner_rows(const __grid_constant__ Inner p) {
  ZK_SHARED(float, warps, [THREADS / 32]);
  unsigned t = threadIdx.x % T, per = THREADS / T;
  for (unsigned u = blockIdx.x * per + threadIdx.x / T; u < p.count * p.parts; u += gridDim.x * per) {
    unsigned result = u / p.parts, part = u % p.parts, end = min(p.K, (part + 1) * p.piece);
    long long base[3];
    zkc_seek(p.batch, result, base);
    float sum = 0;
    for (unsigned k = part * p.piece + t; k < end; k += T) sum += step(p, base, k);
    sum = zk_block<T>(sum, ZkSum(), warps);
    if (t == 0) keep(p, result, part, base[ZKD_C], sum);
  }
}

static __global__ void __launch_bounds__(THREADS) inner_columns(const __grid_constant__ Inner p) {
  for (unsigned u = blockIdx.x * THREADS + threadIdx.x; u < p.count * p.parts; u += gridDim.x * THREADS) {
    unsigned result = u % p.count, part = u / p.count, end = min(p.K, (part + 1) * p.piece);
    long long base[3];
    zkc_seek(p.batch, result, base);
    float sum = 0;
    for (unsigned k = part * p.piece; k < end; k++) sum += step(p, base, k);
    keep(p, result, part, base[ZKD_C], sum);
  }
}

static __global__ void __launch_bounds__(THREADS) inner_parts(const __grid_constant__ Inner p) {
  for (unsigned result = blockIdx.x * THREADS + threadIdx.x; result < p.count;
       result += gridDim.x * THREADS) {
    long long base[3];
    float sum = 0;
    for (unsigned part = 0; part < p.parts; part++) sum += p.partial[(size_t)part * p.count + result];
    zkc_seek(p.batch, result, base);
    zk_store(p.c, p.celem, base[ZKD_C], p.add ? zk_load(p.c, p.celem, base[ZKD_C]) + sum : sum);
  }
}

/* Parts enough to fill a large device, none too short; out of shapes only. True if it goes over columns. */
static bool plan_inner(Inner *p, const ZkDot *d) {
  *p = Inner{};
  p->a = d->v[ZKD_A].data, p->b = d->v[ZKD_B].data, p->c = d->v[ZKD_C].data;
  p->aelem = d->v[ZKD_A].elem, p->belem = d->v[ZKD_B].elem, p->celem = d->v[ZKD_C].elem;
  p->add = d->add;
  p->count = (unsigned)d->batch.count, p->K = (unsigned)d->k.count;
  p->batch = loops(d, &d->batch, ZKD_A);
  p->k = loops(d, &d->k, ZKD_A);
  bool columns = p->batch.nloops > 0 && !along_k(p->k, p->batch, ZKD_A);
  int64_t most = columns ? 65536 : 1024, least = columns ? 64 : 2048;
  int64_t parts = zk_ceil_of(d->k.count, least), wanted = zk_ceil_of(most, d->batch.count);
  parts = parts < wanted ? parts : wanted;
  parts = parts < 1 ? 1 : parts > 256 ? 256 : parts;
  p->piece = (unsigned)zk_ceil_of(d->k.count, parts);
  p->parts = p->piece ? (unsigned)zk_ceil_of(d->k.count, p->piece) : 1; /* none is empty */
  return columns;
}

extern "C" size_t zk_dot_inner_scratch(const ZkDot *d) {
  Inner p;
  plan_inner(&p, d);
  return p.parts > 1 ? (size_t)p.parts * p.count * sizeof(float) : 0;
}

extern "C" void zk_dot_inner(ZkCuda *cu, const ZkCall *call, const ZkDot *d) {
  Inner p;
  bool columns = plan_inner(&p, d);
  p.partial = (float *)call->scratch;
  int64_t units = (int64_t)p.count * p.parts;
  if (columns) {
    ZK_LAUNCH(cu, call, inner_columns, zk_blocks(cu, zk_ceil_of(units, THREADS)), THREADS, 0, p);
  } else if (p.piece <= 1024) {
    ZK_LAUNCH(cu, call, inner_rows<32>, zk_blocks(cu, zk_ceil_of(units, THREADS / 32)), THREADS, 0, p);
  } else {
    ZK_LAUNCH(cu, call, inner_rows<THREADS>, zk_blocks(cu, units), THREADS, 0, p);
  }
  if (p.parts > 1)
    ZK_LAUNCH(cu, call, inner_parts, zk_blocks(cu, zk_ceil_of(p.count, THREADS)), THREADS, 0, p);
}

/* ---- for trials of algorithms -------------------------------------------------------------------------- */
static __global__ void __launch_bounds__(THREADS) noise(void *p, int elem, int64_t n, unsigned seed) {
  for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS) {
    unsigned h = ((unsigned)i ^ seed) * 0x9e3779b1u; /* the mixing of MurmurHash3 */
    h = (h ^ h >> 16) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    h ^= h >> 16;
    zk_store(p, elem, i, (float)(int)h * 0x1p-31f);
  }
}
static __global__ void __launch_bounds__(THREADS)
    compare(const unsigned char *x, const unsigned char *y, int64_t n, int *flag) {
  for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS)
    if (x[i] != y[i]) *flag = 1;
}

/* NaN is close to nothing. */
static __global__ void __launch_bounds__(THREADS)
    compare_close(const void *x, const void *y, int elem, int64_t n, float unit, float room, int *flag) {
  for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS) {
    float want = zk_load(y, elem, i);
    if (!(fabsf(zk_load(x, elem, i) - want) <= unit * (room + fabsf(want)))) *flag = 1;
  }
}

extern "C" void zk_dot_noise(ZkCuda *cu, void *p, int elem, int64_t n, unsigned seed) {
  ZK_LAUNCH(cu, NULL, noise, zk_blocks(cu, zk_ceil_of(n, THREADS)), THREADS, 0, p, elem, n, seed);
}
extern "C" void zk_dot_compare(ZkCuda *cu, const void *x, const void *y, int64_t n, int *flag) {
  ZK_LAUNCH(cu, NULL, compare, zk_blocks(cu, zk_ceil_of(n, THREADS)), THREADS, 0, (const unsigned char *)x,
            (const unsigned char *)y, n, flag);
}
extern "C" void zk_dot_close(ZkCuda *cu, const void *x, const void *y, int elem, int64_t n, float unit,
                             float room, int *flag) {
  ZK_LAUNCH(cu, NULL, compare_close, zk_blocks(cu, zk_ceil_of(n, THREADS)), THREADS, 0, x, y, elem, n, unit,
            room, flag);
}

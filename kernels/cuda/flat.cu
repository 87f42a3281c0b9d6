/* Kernels on flat buffers: updates of states, sums of squares, conversions. One pass each, 16 bytes a thread and
 * access where all pointers are multiples of 16, else one element. Updates of parameters: optimize.cu. */
#include "kernels/cuda/flat.cuh"
extern "C" {
#include "kernels/cuda/optimize.h"
}

/* ---- updates of states --------------------------------------------------------------------------------- */
ZK_DEVICE float apply(const ZkPointwiseOp &o, float a, float b, float c) {
  switch (o.op) {
    /* clang-format off */
#define FN(name) name##f
#define POINTWISE(NAME, formula) case ZG_OP_##NAME: return formula;
#include "graph/pointwise.def"
  /* clang-format on */
  default: return o.num; /* FILL */
  }
}

static __global__ void __launch_bounds__(THREADS)
    update(const __grid_constant__ ZkUpdate p, int64_t n, const float *g, ZkMaster w, double *lost,
           ZkIfSound sums) {
  float reg[2 + ZK_UPDATE_OPS];
  bool found = false;
  if (!is_sound(sums)) return;
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS) {
    reg[0] = load(w, i), reg[1] = g[i];
    for (int k = 0; k < p.n; k++) {
      const ZkPointwiseOp &o = p.op[k];
      reg[2 + k] = apply(o, reg[o.a], reg[o.b], reg[o.c]);
    }
    float x = reg[1 + p.n];
    store(w, i, x);
    found |= is_lost(x);
  }
  tell(lost, found);
}

extern "C" void zk_cuda_update_state(const ZkEnv *env, const ZkUpdate *p, int64_t n, const float *g,
                                     ZkMaster w, double *lost, ZkIfSound sums) {
  ZkCuda *cu = zk_cu(env);
  ZK_LAUNCH(cu, NULL, update, blocks_for(cu, n, 1), THREADS, 0, *p, n, g, w, lost, sums);
}

static __global__ void __launch_bounds__(THREADS)
    average(int64_t n, bool wide, float decay, ZkMaster w, float *a, ZkIfSound sums) {
  if (!is_sound(sums)) return;
  each<4>(
      n, wide,
      [&](int64_t i) {
        Four u = load4(w, i), v = load4(a + i);
#pragma unroll
        for (int j = 0; j < 4; j++) v.x[j] = decay * v.x[j] + (1 - decay) * u.x[j];
        store4(a + i, v);
      },
      [&](int64_t i) { a[i] = decay * a[i] + (1 - decay) * load(w, i); });
}

extern "C" void zk_cuda_average_params(const ZkEnv *env, int64_t n, float decay, ZkMaster w, float *a,
                                       ZkIfSound sums) {
  ZkCuda *cu = zk_cu(env);
  ZK_LAUNCH(cu, NULL, average, blocks_for(cu, n, 4), THREADS, 0, n, aligned({w.f32, w.high, w.low, a}), decay,
            w, a, sums);
}

static __global__ void __launch_bounds__(THREADS)
    swap(int64_t n, const __grid_constant__ ZkMaster w, float *y) {
  each<1>(
      n, false, [](int64_t) {},
      [&](int64_t i) {
        float was = load(w, i);
        store(w, i, y[i]);
        y[i] = was;
      });
}

extern "C" void zk_cuda_swap_params(const ZkEnv *env, int64_t n, ZkMaster w, float *y) {
  ZkCuda *cu = zk_cu(env);
  ZK_LAUNCH(cu, NULL, swap, blocks_for(cu, n, 1), THREADS, 0, n, w, y);
}

/* ---- norm ---------------------------------------------------------------------------------------------- */
/* Block b sums the b-th of gridDim.x equal chunks, which are whole fours; the blocks, and who adds what in
 * which order, depend on n only. */
#define AHEAD 4 /* fours that a thread has under way */
ZK_DEVICE Four load4(const uint16_t *x, int64_t i) { return load4_bf16(x + i); }
ZK_DEVICE float load(const uint16_t *x, int64_t i) { return zk_from_bf16(x[i]); }

template <class T>
static __global__ void __launch_bounds__(THREADS)
    sumsq_parts(const __grid_constant__ T x, int64_t n, int64_t chunk, bool wide, double *part) {
  ZK_SHARED(double, across, [THREADS / 32]);
  int64_t from = (int64_t)blockIdx.x * chunk, to = from + chunk < n ? from + chunk : n;
  double sum = 0;
  for (int64_t i = from + 4 * threadIdx.x; i < to; i += AHEAD * 4 * THREADS) {
    Four f[AHEAD];
#pragma unroll
    for (int k = 0; k < AHEAD; k++) {
      int64_t at = i + k * 4 * THREADS;
      f[k] = Four{{0, 0, 0, 0}};
      if (wide && at + 4 <= to) f[k] = load4(x, at);
      else
#pragma unroll
        for (int j = 0; j < 4; j++)
          if (at + j < to) f[k].x[j] = load(x, at + j);
    }
#pragma unroll
    for (int k = 0; k < AHEAD; k++)
#pragma unroll
      for (int j = 0; j < 4; j++) sum += (double)f[k].x[j] * (double)f[k].x[j];
  }
  sum = zk_block<THREADS>(sum, ZkSum(), across);
  if (threadIdx.x == 0) part[blockIdx.x] = sum;
}

static __global__ void __launch_bounds__(THREADS)
    sumsq_join(const double *part, int parts, double *out, bool add) {
  ZK_SHARED(double, across, [THREADS / 32]);
  double sum = 0;
  for (int i = threadIdx.x; i < parts; i += THREADS) sum += part[i];
  sum = zk_block<THREADS>(sum, ZkSum(), across);
  if (threadIdx.x == 0) *out = add ? *out + sum : sum;
}

template <class T> static void sumsq(const ZkEnv *env, int64_t n, T x, bool wide, double *sum, bool add) {
  ZkCuda *cu = zk_cu(env);
  int64_t chunk = 4 * zk_ceil_of(n, 4 * ZK_CUDA_PARTS);
  if (chunk < 16 * THREADS) chunk = 16 * THREADS;
  int parts = (int)zk_ceil_of(n, chunk);
  ZK_LAUNCH(cu, NULL, sumsq_parts<T>, (unsigned)parts, THREADS, 0, x, n, chunk, wide, cu->parts);
  ZK_LAUNCH(cu, NULL, sumsq_join, 1, THREADS, 0, cu->parts, parts, sum, add);
}

extern "C" void zk_cuda_sumsq_params(const ZkEnv *env, int64_t n, ZkMaster x, double *sum, bool add) {
  sumsq(env, n, x, aligned({x.f32, x.high, x.low}), sum, add);
}
extern "C" void zk_cuda_sumsq(const ZkEnv *env, int64_t n, const float *x, double *sum, bool add) {
  ZkMaster all = {};
  all.f32 = (float *)x;
  zk_cuda_sumsq_params(env, n, all, sum, add);
}
extern "C" void zk_cuda_sumsq_bf16(const ZkEnv *env, int64_t n, const uint16_t *x, double *sum) {
  sumsq(env, n, x, aligned({x}), sum, true);
}

/* ---- digest -------------------------------------------------------------------------------------------- */
/* Word i of eight bytes; behind the end are zeros. */
ZK_DEVICE uint64_t word_at(const unsigned char *p, int64_t bytes, bool wide, int64_t i) {
  if (wide && 8 * i + 8 <= bytes) return *(const uint64_t *)(const void *)(p + 8 * i);
  uint64_t x = 0;
  for (int k = 0; k < 8 && 8 * i + k < bytes; k++) x |= (uint64_t)p[8 * i + k] << 8 * k;
  return x;
}

/* Mixes each word with its place by a bijection, so that a sum in any order depends on every bit of it. */
static __global__ void __launch_bounds__(THREADS)
    digest_parts(const unsigned char *p, int64_t bytes, bool wide, uint64_t salt, uint64_t *part) {
  ZK_SHARED(uint64_t, across, [THREADS]);
  int64_t me = (int64_t)blockIdx.x * THREADS + threadIdx.x, all = (int64_t)gridDim.x * THREADS;
  uint64_t sum = 0;
#pragma unroll 4
  for (int64_t i = me; i < (bytes + 7) / 8; i += all) {
    uint64_t x = word_at(p, bytes, wide, i) + salt + (uint64_t)(i + 1) * 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    sum += x ^ x >> 31;
  }
  across[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x) return;
  for (int i = 1; i < THREADS; i++) sum += across[i];
  part[blockIdx.x] = sum;
}

static __global__ void digest_join(const uint64_t *part, int parts, uint64_t *sum) {
  uint64_t x = 0;
  for (int i = 0; i < parts; i++) x += part[i];
  *sum += x;
}

extern "C" void zk_cuda_digest(const ZkEnv *env, const void *p, size_t bytes, uint64_t salt, uint64_t *sum) {
  ZkCuda *cu = zk_cu(env);
  int64_t parts = zk_ceil_of((int64_t)bytes, 64 * THREADS);
  if (parts > ZK_CUDA_PARTS) parts = ZK_CUDA_PARTS;
  uint64_t *part = (uint64_t *)(void *)cu->parts;
  ZK_LAUNCH(cu, NULL, digest_parts, (unsigned)parts, THREADS, 0, (const unsigned char *)p, (int64_t)bytes,
            (uintptr_t)p % 8 == 0, salt, part);
  ZK_LAUNCH(cu, NULL, digest_join, 1, 1, 0, part, (int)parts, sum);
}

static __global__ void add_scalar(const float *x, double *sum) { *sum += (double)*x; }
static __global__ void reciprocal(const double *x, float *y) { *y = *x > 0 ? (float)(1 / *x) : 0; }

extern "C" void zk_cuda_add_scalar(const ZkEnv *env, const float *x, double *sum) {
  ZK_LAUNCH(zk_cu(env), NULL, add_scalar, 1, 1, 0, x, sum);
}
extern "C" void zk_cuda_reciprocal(const ZkEnv *env, const double *x, float *y) {
  ZK_LAUNCH(zk_cu(env), NULL, reciprocal, 1, 1, 0, x, y);
}

/* ---- the rest ------------------------------------------------------------------------------------------ */
static __global__ void __launch_bounds__(THREADS)
    axpy(int64_t n, bool wide, float a, const float *x, float *y) {
  each<4>(
      n, wide,
      [&](int64_t i) {
        Four u = load4(x + i), v = load4(y + i);
#pragma unroll
        for (int j = 0; j < 4; j++) v.x[j] += a * u.x[j];
        store4(y + i, v);
      },
      [&](int64_t i) { y[i] += a * x[i]; });
}

extern "C" void zk_cuda_axpy(const ZkEnv *env, int64_t n, float a, const float *x, float *y) {
  ZkCuda *cu = zk_cu(env);
  ZK_LAUNCH(cu, NULL, axpy, blocks_for(cu, n, 4), THREADS, 0, n, aligned({x, y}), a, x, y);
}

/* By eights: 16 bytes of bf16. */
static __global__ void __launch_bounds__(THREADS) to_bf16(int64_t n, bool wide, const float *x, uint16_t *y) {
  each<8>(
      n, wide,
      [&](int64_t i) {
        float f[8];
        zk_load8(x, ZK_F32, i, f);
        zk_store8(y, ZK_BF16, i, f);
      },
      [&](int64_t i) { y[i] = zk_to_bf16(x[i]); });
}

extern "C" void zk_cuda_to_bf16(const ZkEnv *env, int64_t n, const float *x, uint16_t *y) {
  ZkCuda *cu = zk_cu(env);
  ZK_LAUNCH(cu, NULL, to_bf16, blocks_for(cu, n, 8), THREADS, 0, n, aligned({x, y}), x, y);
}

static __global__ void __launch_bounds__(THREADS)
    from_bf16(int64_t n, bool wide, const uint16_t *x, float *y) {
  each<8>(
      n, wide,
      [&](int64_t i) {
        float f[8];
        zk_load8(x, ZK_BF16, i, f);
        zk_store8(y, ZK_F32, i, f);
      },
      [&](int64_t i) { y[i] = zk_from_bf16(x[i]); });
}

extern "C" void zk_cuda_from_bf16(const ZkEnv *env, int64_t n, const uint16_t *x, float *y) {
  ZkCuda *cu = zk_cu(env);
  ZK_LAUNCH(cu, NULL, from_bf16, blocks_for(cu, n, 8), THREADS, 0, n, aligned({x, y}), x, y);
}

static __global__ void __launch_bounds__(THREADS) zero(char *p, int64_t units, int64_t bytes) {
  int64_t me = (int64_t)blockIdx.x * THREADS + threadIdx.x, all = (int64_t)gridDim.x * THREADS;
  for (int64_t i = me; i < units; i += all) zk_store16(p + 16 * i, make_uint4(0, 0, 0, 0));
  for (int64_t i = 16 * units + me; i < bytes; i += all) p[i] = 0;
}

extern "C" void zk_cuda_zero(const ZkEnv *env, void *p, size_t bytes) {
  ZkCuda *cu = zk_cu(env);
  int64_t units = aligned({p}) ? (int64_t)(bytes / 16) : 0;
  ZK_LAUNCH(cu, NULL, zero, zk_blocks(cu, zk_ceil_of((int64_t)bytes, 16 * THREADS)), THREADS, 0, (char *)p,
            units, (int64_t)bytes);
}

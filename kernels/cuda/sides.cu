/* Rows and columns of matrices: as kernels/cpu/sides.c. */
#include "kernels/cuda/flat.cuh"
extern "C" {
#include "kernels/cuda/optimize.h"
}

/* A block of threads sums a row, or 32 columns by 8 lanes of rows each. */
enum { WIDE = 32, LANES = THREADS / WIDE };

/* The sum over the first `n` of a block's numbers, `step` apart; all threads call it. */
ZK_DEVICE double across(double *all, int n, int step) {
  double sum = 0;
  __syncthreads();
  for (int i = 0; i < n; i++) sum += all[i * step];
  __syncthreads();
  return sum;
}

static __global__ void __launch_bounds__(THREADS)
    sum_rows(int64_t rows, int64_t cols, const float *x, float *sums) {
  ZK_SHARED(double, part, [THREADS]);
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    double sum = 0;
    for (int64_t c = threadIdx.x; c < cols; c += THREADS) {
      double y = (double)x[r * cols + c];
      sum += y * y;
    }
    part[threadIdx.x] = sum;
    for (int half = THREADS / 2; half; half /= 2) {
      __syncthreads();
      if ((int)threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    __syncthreads();
    if (threadIdx.x == 0) sums[r] = (float)part[0];
    __syncthreads();
  }
}

static __global__ void __launch_bounds__(THREADS)
    sum_columns(int64_t rows, int64_t cols, const float *x, float *sums) {
  ZK_SHARED(double, part, [THREADS]);
  int64_t strips = (cols + WIDE - 1) / WIDE;
  for (int64_t s = blockIdx.x; s < strips; s += gridDim.x) {
    int64_t c = s * WIDE + threadIdx.x % WIDE;
    double sum = 0;
    for (int64_t r = threadIdx.x / WIDE; c < cols && r < rows; r += LANES) {
      double y = (double)x[r * cols + c];
      sum += y * y;
    }
    part[threadIdx.x] = sum;
    sum = across(part + threadIdx.x % WIDE, LANES, WIDE);
    if ((int)threadIdx.x < WIDE && c < cols) sums[c] = (float)sum;
  }
}

static __global__ void __launch_bounds__(THREADS)
    scale(int64_t rows, int64_t cols, float *x, bool columns, const float *by) {
  each<1>(
      rows * cols, false, [](int64_t) {}, [&](int64_t i) { x[i] *= by[columns ? i % cols : i / cols]; });
}

/* One block: sweeps over all numbers, with their sum in between. */
typedef struct {
  ZkSides p;
  const ZkStepState *step_state; /* NULL: scalars are the call's */
  float decay;
  bool acts;
  ZkIfSound sums;
} Call;

/* The sum of what a block's threads have, the same for all. */
ZK_DEVICE double sum_of(double *part, double mine) {
  part[threadIdx.x] = mine;
  return across(part, THREADS, 1);
}

static __global__ void __launch_bounds__(THREADS)
    factors(const __grid_constant__ Call c, float *squares, float *moments) {
  ZK_SHARED(double, part, [THREADS]);
  const ZkSides *p = &c.p;
  const float *own = (const float *)(const void *)(c.step_state + 1) + (size_t)p->group * ZK_MOST_SCALARS;
  bool acts = (c.step_state ? own[ZK_ACTS] != 0 : c.acts) && is_sound(c.sums);
  float decay = c.step_state ? own[ZK_MOMENTS_DECAY] : c.decay, none = 0;
  double total = 0, second = 0;
#define ALL(i) for (int64_t i = threadIdx.x; i < p->n; i += THREADS)
#define MOMENT(i) (moments ? &moments[i] : &none)
  if (!acts) {
    ALL(i) squares[i] = 0;
    return;
  }
  ALL(i) total += zk_side_first(p, decay, squares[i], MOMENT(i));
  total = sum_of(part, total);
  ALL(i) second += zk_side_second(p, decay, total, squares[i], MOMENT(i));
  second = sum_of(part, second);
  ALL(i) squares[i] = (float)zk_side_factor(p, total, second, squares[i], *MOMENT(i));
}

extern "C" void zk_cuda_side_squares(const ZkEnv *env, int64_t rows, int64_t cols, const float *x,
                                     bool columns, float *sums) {
  ZkCuda *cu = zk_cu(env);
  if (columns)
    ZK_LAUNCH(cu, NULL, sum_columns, zk_blocks(cu, zk_ceil_of(cols, WIDE)), THREADS, 0, rows, cols, x, sums);
  else ZK_LAUNCH(cu, NULL, sum_rows, zk_blocks(cu, rows), THREADS, 0, rows, cols, x, sums);
}

extern "C" void zk_cuda_side_scale(const ZkEnv *env, int64_t rows, int64_t cols, float *x, bool columns,
                                   const float *by) {
  ZkCuda *cu = zk_cu(env);
  ZK_LAUNCH(cu, NULL, scale, blocks_for(cu, rows * cols, 1), THREADS, 0, rows, cols, x, columns, by);
}

extern "C" void zk_cuda_side_factors(const ZkEnv *env, const ZkSides *p, ZkIfSound sums, float *squares,
                                     float *moments) {
  Call c = {};
  c.p = *p, c.step_state = env->step_state, c.sums = sums;
  if (!c.step_state) c.decay = p->s[ZK_MOMENTS_DECAY], c.acts = p->s[ZK_ACTS] != 0;
  ZK_LAUNCH(zk_cu(env), NULL, factors, 1, THREADS, 0, c, squares, moments);
}

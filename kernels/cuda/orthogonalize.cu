/* Orthogonalisation of matrices: the products are those of `dot`. */
#include "kernels/cuda/flat.cuh"
extern "C" {
#include "kernels/cuda/optimize.h"
}

/* ---- out of blocks, and back --------------------------------------------------------------------------- */
static __global__ void __launch_bounds__(THREADS)
    move(const __grid_constant__ ZkMatrix m, ZkMatrixWay way, float *blocks, float *x) {
  each<1>(
      m.elements, false, [](int64_t) {},
      [&](int64_t e) {
        int64_t at;
        float *there = blocks + zk_matrix_place(&m, e, &at);
        if (way == ZK_MATRIX_TAKE) x[at] = *there;
        else *there = way == ZK_MATRIX_PUT ? x[at] : 0;
      });
}

extern "C" void zk_cuda_matrix(const ZkEnv *env, const ZkMatrix *m, ZkMatrixWay way, float *blocks,
                               float *x) {
  ZkCuda *cu = zk_cu(env);
  ZK_LAUNCH(cu, NULL, move, blocks_for(cu, m->elements, 1), THREADS, 0, *m, way, blocks, x);
}

/* ---- products ------------------------------------------------------------------------------------------ */
/* y = a x + b y */
static __global__ void __launch_bounds__(THREADS) mix(int64_t n, float *y, const float *x, float a, float b) {
  each<1>(
      n, false, [](int64_t) {}, [&](int64_t i) { y[i] = a * x[i] + b * y[i]; });
}

/* Divides by the norm, of which there is the square. */
static __global__ void __launch_bounds__(THREADS)
    divide(int64_t n, float *x, const double *square, double factor, double eps) {
  float by = (float)(1 / (factor * sqrt(*square) + eps));
  each<1>(
      n, false, [](int64_t) {}, [&](int64_t i) { x[i] *= by; });
}

static void mix_all(ZkCuda *cu, int64_t n, float *y, const float *x, float a, float b) {
  ZK_LAUNCH(cu, NULL, mix, blocks_for(cu, n, 1), THREADS, 0, n, y, x, a, b);
}

static void multiply(const ZkEnv *env, int which, int64_t rows, int64_t cols, float *x, float *y, float *out,
                     float *scratch) {
  ZkCall c = zk_orthogonal_product(which, rows, cols);
  c.in[0].data = x, c.in[1].data = y, c.out[0].data = out, c.scratch = scratch;
  zk_cuda_kernel(ZG_OP_DOT)(env, &c);
}

static float *behind(float *x, int64_t n) { return x + zb_round_up((uint64_t)n, 16); }

extern "C" void zk_cuda_orthogonalize(const ZkEnv *env, int64_t rows, int64_t cols, int steps,
                                      ZkCoefficients which, float *x, float *scratch) {
  ZkCuda *cu = zk_cu(env);
  float *y = scratch, *xx = behind(y, rows * cols), *p = behind(xx, rows * rows),
        *rest = behind(p, rows * rows);
  double factor, eps, *square = (double *)(void *)p;
  zk_orthogonal_divisor(which, &factor, &eps);
  zk_cuda_sumsq(env, rows * cols, x, square, false);
  ZK_LAUNCH(cu, NULL, divide, blocks_for(cu, rows * cols, 1), THREADS, 0, rows * cols, x, square, factor,
            eps);
  for (int i = 0; i < steps; i++) {
    const float *of = zk_coefficients(which, i);
    multiply(env, 0, rows, cols, x, x, xx, rest);
    multiply(env, 1, rows, cols, xx, xx, p, rest);
    mix_all(cu, rows * rows, p, xx, of[1], of[2]);
    multiply(env, 2, rows, cols, p, x, y, rest);
    mix_all(cu, rows * cols, x, y, 1, of[0]);
  }
}

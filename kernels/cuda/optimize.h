/* What updates parameters on a GPU: as kernels/optimize.h has it. */
#ifndef ZUG_KERNELS_CUDA_OPTIMIZE_H
#define ZUG_KERNELS_CUDA_OPTIMIZE_H

#include "kernels/cuda/cuda.h"
#include "kernels/optimize.h"

/* As zk_cpu_optimize, in one pass. Unless `squares` is NULL, g is also scaled by
 * min(1, most / (sqrt(*squares) + 1e-6)): the norm lies on the device and the host need not wait for it.
 * Unless `lost` is NULL, *lost, on the device too, becomes 1 if something of what is written is not finite.
 * Nothing at all is done where one of n numbers, on the device, is not finite, where one of those that losses are
 * divided by is negative, or where all of these are 0; but what a kind that makes momenta writes is 0 then. */
void zk_cuda_optimize(const ZkEnv *env, const ZkOptimizer *p, const double *squares, float most, int64_t n,
                      ZkFlat g, ZkMaster w, double *lost, ZkIfSound sums);
/* As zk_cpu_update_state, and zk_cpu_average_params, unless the sums are not sound. */
void zk_cuda_update_state(const ZkEnv *env, const ZkUpdate *p, int64_t n, const float *g, ZkMaster w,
                          double *lost, ZkIfSound sums);
void zk_cuda_swap_params(const ZkEnv *env, int64_t n, ZkMaster w, float *y); /* as zk_cpu_swap_params */
/* As zk_cuda_sumsq. */
void zk_cuda_sumsq_params(const ZkEnv *env, int64_t n, ZkMaster w, double *sum, bool add);
void zk_cuda_average_params(const ZkEnv *env, int64_t n, float decay, ZkMaster w, float *a, ZkIfSound sums);
/* As zk_cpu_add_bf16; and onto *sum as zk_cuda_sumsq. */
void zk_cuda_add_bf16(const ZkEnv *env, const ZkDraws *d, int64_t n, const float *x, uint16_t *y);
void zk_cuda_sumsq_bf16(const ZkEnv *env, int64_t n, const uint16_t *x, double *sum);
/* As zk_cpu_matrix, and zk_cpu_orthogonalize; behind the latter's scratch begins that of its products. */
void zk_cuda_matrix(const ZkEnv *env, const ZkMatrix *m, ZkMatrixWay way, float *blocks, float *x);
void zk_cuda_orthogonalize(const ZkEnv *env, int64_t rows, int64_t cols, int steps, ZkCoefficients which,
                           float *x, float *scratch);
/* As zk_cpu_side_squares and the others; factors are 0 where an update is not made. */
void zk_cuda_side_squares(const ZkEnv *env, int64_t rows, int64_t cols, const float *x, bool columns,
                          float *sums);
void zk_cuda_side_factors(const ZkEnv *env, const ZkSides *p, ZkIfSound sums, float *squares, float *moments);
void zk_cuda_side_scale(const ZkEnv *env, int64_t rows, int64_t cols, float *x, bool columns,
                        const float *by);

#endif

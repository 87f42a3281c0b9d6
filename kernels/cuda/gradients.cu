/* Gradients in bf16: their sums, rounded at random (kernels/gradients.h). */
#include "kernels/cuda/flat.cuh"
extern "C" {
#include "kernels/cuda/optimize.h"
}

static __global__ void __launch_bounds__(THREADS)
    add_bf16(const __grid_constant__ ZkDraws d, const ZkStepState *now, uint64_t step, int64_t n, bool wide,
             const float *x, uint16_t *y) {
  uint64_t key = zk_draw_key(d.key, now ? now->step : step);
  auto sum = [&](int64_t i, float a, uint16_t b) {
    return zk_round_by(__float_as_uint(zk_from_bf16(b) + a), zk_draw(key, zk_draw_place(&d, d.from + i)));
  };
  each<4>(
      n, wide,
      [&](int64_t i) {
        Four f = load4(x + i);
        uint16_t h[4];
        load4(y + i, h);
#pragma unroll
        for (int j = 0; j < 4; j++) h[j] = sum(i + j, f.x[j], h[j]);
        store4(y + i, h);
      },
      [&](int64_t i) { y[i] = sum(i, x[i], y[i]); });
}

extern "C" void zk_cuda_add_bf16(const ZkEnv *env, const ZkDraws *d, int64_t n, const float *x, uint16_t *y) {
  ZkCuda *cu = zk_cu(env);
  ZK_LAUNCH(cu, NULL, add_bf16, blocks_for(cu, n, 4), THREADS, 0, *d, env->step_state, env->step, n,
            aligned({x, y}), x, y);
}

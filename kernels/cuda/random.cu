/* Values made from global indices alone: random and position. */
#include "kernels/cuda/common.cuh"

#define THREADS 256

typedef struct {
  void *y;
  int elem;
  ZkcNest nest; /* views: y, and the whole tensor with its axes in ascending number */
  ZkcRun run;
  ZkcUnits units;
  unsigned long long first;              /* global index of the view's first element */
  unsigned long long seed, step, number; /* the run's, the step's and the op's */
  const ZkStepState *step_state;         /* NULL: the step is as given */
  unsigned long long below;              /* 1 where the number's upper 53 bits are less */
} Random;

/* zb_mix64 of base.h, on the device; of zb_random_u64 the part that does not depend on the index, and all of
 * it. */
ZK_DEVICE unsigned long long mix(unsigned long long z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
ZK_DEVICE unsigned long long draw_from(unsigned long long seed, unsigned long long stream) {
  return mix(seed + 0x9e3779b97f4a7c15ull * (stream | 1)) ^ stream;
}
ZK_DEVICE unsigned long long draw(unsigned long long from, unsigned long long index) {
  return mix(mix(from + 0x9e3779b97f4a7c15ull * (index + 1)) + index);
}

/* zb_random_unit_f32 and zb_random_normal of base.h; the latter to a rounding. */
ZK_DEVICE float uniform(unsigned long long bits) {
  return ((float)(unsigned)(bits >> 41) + 0.5f) * (1.0f / 8388608);
}
ZK_DEVICE double unit(unsigned long long bits) {
  return ((double)(bits >> 11) + 0.5) * (1.0 / 9007199254740992);
}
ZK_DEVICE float normal(unsigned long long from, unsigned long long i) {
  double turn = 2 * unit(draw(from, 2 * i + 1));
#ifndef ZK_EMU
  double c = cospi(turn);
#else
  double c = cos(M_PI * turn);
#endif
  return (float)(sqrt(-2 * log(unit(draw(from, 2 * i)))) * c);
}

template <int KIND>
static __global__ void __launch_bounds__(THREADS) random_bits(const __grid_constant__ Random r) {
  unsigned long long step = r.step_state ? r.step_state->step : r.step;
  unsigned long long from = draw_from(r.seed, draw(draw_from(step, r.number), 0));
  for (long long u = blockIdx.x * (long long)THREADS + threadIdx.x; u < r.units.total;
       u += gridDim.x * (long long)THREADS) {
    long long at, off[2];
    zkc_seek(r.nest, zkc_row(r.units, u, at), off);
    unsigned long long i = r.first + off[1] + at * r.run.stride[1];
    float x = KIND == ZG_NORMAL                 ? normal(from, i)
              : KIND == ZG_UNIFORM              ? uniform(draw(from, i))
              : (draw(from, i) >> 11) < r.below ? 1.0f
                                                : 0.0f;
    zk_store(r.y, r.elem, off[0] + at * r.run.stride[0], x);
  }
}

extern "C" void zk_cuda_random(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  ZkView y = c->out[0], whole = y;
  const ZkView *views[] = {&y, &whole};
  Random r = {};
  r.y = y.data, r.elem = y.elem;
  for (int i = 0; i < y.rank; i++) {
    whole.stride[i] = 1;
    for (int j = 0; j < y.rank; j++)
      if (y.axis[j] > y.axis[i]) whole.stride[i] *= y.whole[j];
    r.first += (unsigned long long)(y.start[i] * whole.stride[i]);
  }
  r.seed = env->seed, r.step = env->step, r.number = (unsigned long long)c->opt[0];
  r.step_state = env->step_state;
  double bound = c->num[0] * 0x1p53; /* (bits + 0.5) / 2^53 < p, as zb_random_unit has it */
  r.below = bound <= 0 ? 0 : bound >= 0x1p53 ? 1ull << 53 : (unsigned long long)bound;
  if (bound > 0 && bound < 0x1p53 && bound - (double)r.below > 0.5) r.below++;
  r.nest = zkc_nest_run(views, 2, NULL, 0, false, &r.run);
  r.units = zkc_units(r.nest.count, r.run.n);
  unsigned blocks = zk_blocks(cu, zk_ceil_of(r.units.total, THREADS));
  if (c->opt[1] == ZG_NORMAL) ZK_LAUNCH(cu, c, random_bits<ZG_NORMAL>, blocks, THREADS, 0, r);
  else if (c->opt[1] == ZG_UNIFORM) ZK_LAUNCH(cu, c, random_bits<ZG_UNIFORM>, blocks, THREADS, 0, r);
  else ZK_LAUNCH(cu, c, random_bits<ZG_COIN>, blocks, THREADS, 0, r);
}

static __global__ void __launch_bounds__(THREADS)
    position(int *y, long long n, long long stride, long long start) {
  for (long long i = blockIdx.x * (long long)THREADS + threadIdx.x; i < n;
       i += gridDim.x * (long long)THREADS)
    y[i * stride] = (int)(start + i);
}

extern "C" void zk_cuda_position(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  const ZkView *y = &c->out[0];
  ZB_ASSERT(y->rank == 1 && y->axis[0] == c->ax[0] && y->elem == ZK_I32);
  ZK_LAUNCH(cu, c, position, zk_blocks(cu, zk_ceil_of(y->size[0], THREADS)), THREADS, 0, (int *)y->data,
            (long long)y->size[0], (long long)y->stride[0], (long long)y->start[0]);
}

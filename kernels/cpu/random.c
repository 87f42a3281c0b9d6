/* Values made from global indices alone: position and random. */
#include "kernels/cpu/cpu.h"

void zk_cpu_position(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *y = &c->out[0];
  int i = zk_axis_find(y, c->ax[0]);
  ZB_ASSERT(y->rank == 1 && i == 0 && y->elem == ZK_I32);
  int32_t *data = y->data;
  for (int64_t k = 0; k < y->size[0]; k++) data[k * y->stride[0]] = (int32_t)(y->start[0] + k);
}

typedef struct {
  ZkView out;
  ZkNest nest; /* views: out, and the global index as a dense view */
  ZkLoop run;
  int64_t first;                /* global index of the view's first element */
  uint64_t seed, stream, below; /* 1 where the number's upper 53 bits are less than `below` */
  int kind;                     /* ZgNoise */
} Random;

#define PIECE 1024

ZK_SIMD static void draw_uniform(float *y, uint64_t seed, uint64_t stream, uint64_t index, uint64_t step,
                                 int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    uint64_t bits = zb_random_u64(seed, stream, index + (uint64_t)i * step);
    y[i] = zb_random_unit_f32(bits);
  }
}

static void draw_normal(float *y, uint64_t seed, uint64_t stream, uint64_t index, uint64_t step, int64_t n) {
  double z[PIECE];
  if (step == 1) zb_random_normals(seed, stream, index, (size_t)n, z);
  else
    for (int64_t i = 0; i < n; i++) z[i] = zb_random_normal(seed, stream, index + (uint64_t)i * step);
  for (int64_t i = 0; i < n; i++) y[i] = (float)z[i];
}

ZK_SIMD static void draw_coin(float *y, uint64_t seed, uint64_t stream, uint64_t index, uint64_t step,
                              uint64_t below, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++)
    y[i] = (zb_random_u64(seed, stream, index + (uint64_t)i * step) >> 11) < below ? 1.0f : 0.0f;
}

static void run_random(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Random *r = arg;
  float row[PIECE];
  ZkWalk w;
  zk_walk_seek(&r->nest, &w, from);
  for (int64_t t = from; t < to; t++, zk_walk_next(&r->nest, &w))
    for (int64_t j = 0; j < r->run.n; j += PIECE) {
      int64_t n = zk_min(PIECE, r->run.n - j);
      uint64_t index = (uint64_t)(r->first + w.off[1] + j * r->run.s[1]), step = (uint64_t)r->run.s[1];
      if (r->kind == ZG_UNIFORM) draw_uniform(row, r->seed, r->stream, index, step, n);
      else if (r->kind == ZG_NORMAL) draw_normal(row, r->seed, r->stream, index, step, n);
      else draw_coin(row, r->seed, r->stream, index, step, r->below, n);
      zk_store(&r->out, w.off[0] + j * r->run.s[0], r->run.s[0], n, row, false);
    }
}

void zk_cpu_random(const ZkEnv *env, const ZkCall *c) {
  Random r = {.out = c->out[0], .seed = env->seed, .kind = (int)c->opt[1]};
  r.stream = zb_random_u64(env->step, (uint64_t)c->opt[0], 0);
  ZkView global =
      r.out; /* strides of the whole tensor, axes in ascending number, whatever the memory order */
  for (int i = 0; i < r.out.rank; i++) {
    global.stride[i] = 1;
    for (int j = 0; j < r.out.rank; j++)
      if (r.out.axis[j] > r.out.axis[i]) global.stride[i] *= r.out.whole[j];
    r.first += r.out.start[i] * global.stride[i];
  }
  /* (bits + 0.5) / 2^53 < p, as zb_random_unit has it */
  double bound = c->num[0] * 0x1p53;
  r.below = bound <= 0 ? 0 : bound >= 0x1p53 ? (uint64_t)1 << 53 : (uint64_t)bound;
  if (bound > 0 && bound < 0x1p53 && bound - (double)r.below > 0.5) r.below++;
  const ZkView *views[] = {&r.out, &global};
  r.nest = zk_nest(views, 2, NULL, 0, false);
  r.run = zk_nest_pop(&r.nest);
  zk_for(env, zk_nest_count(&r.nest), zk_max(1, 4096 / r.run.n), run_random, &r);
}

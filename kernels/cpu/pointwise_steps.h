/* The steps of pointwise functions for vectors of LANES floats: included by pointwise_steps.c once for each
 * instruction set, with NAME(x) a name of its own. */
typedef float NAME(Vector) __attribute__((vector_size(4 * LANES)));
typedef float NAME(Floats) __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef void NAME(Fn)(STEP_ARGS);

#define STEP(name, first, second, third, formula)                                                            \
  static void NAME(name)(STEP_ARGS) {                                                                        \
    float t[TILE] ALIGNED;                                                                                   \
    const float *p = (const float *)place[s->p], *q = (const float *)place[s->q], k = s->x, l = s->y;        \
    (void)p, (void)q, (void)k, (void)l;                                                                      \
    PUT(t)                                                                                                   \
    _Pragma("omp simd") for (int i = 0; i < TILE; i++) {                                                     \
      const float x = t[i], a = first, b = second, c = third;                                                \
      (void)x, (void)a, (void)b, (void)c;                                                                    \
      t[i] = formula;                                                                                        \
    }                                                                                                        \
    GET(t)                                                                                                   \
    NEXT;                                                                                                    \
  }
#include "kernels/cpu/pointwise_steps.def"
#undef STEP

/* Sines and cosines by vectors. Beyond 2^20 their reduction loses digits: such numbers take the C library's.
 * Others of their tile do not, so that an element's bits are its own. */
static bool NAME(moderate)(const float *t) {
  bool moderate = true;
  for (int i = 0; i < TILE; i++) moderate &= zk_fabs(t[i]) < 0x1p20f;
  return moderate;
}
static void NAME(FAST_SIN)(STEP_ARGS) {
  float t[TILE] ALIGNED, x[TILE] ALIGNED, other[TILE];
  PUT(x)
#pragma omp simd
  for (int i = 0; i < TILE; i++) zk_sincos(zk_fabs(x[i]) < 0x1p20f ? x[i] : 0, &t[i], &other[i]);
  if (!NAME(moderate)(x))
    for (int i = 0; i < TILE; i++) t[i] = zk_fabs(x[i]) < 0x1p20f ? t[i] : zk_sin(x[i]);
  GET(t)
  NEXT;
}
static void NAME(FAST_COS)(STEP_ARGS) {
  float t[TILE] ALIGNED, x[TILE] ALIGNED, other[TILE];
  PUT(x)
#pragma omp simd
  for (int i = 0; i < TILE; i++) zk_sincos(zk_fabs(x[i]) < 0x1p20f ? x[i] : 0, &other[i], &t[i]);
  if (!NAME(moderate)(x))
    for (int i = 0; i < TILE; i++) t[i] = zk_fabs(x[i]) < 0x1p20f ? t[i] : zk_cos(x[i]);
  GET(t)
  NEXT;
}

static void NAME(ST_M)(STEP_ARGS) {
  float *p = (float *)place[s->p];
  PUT(p)
  NEXT;
}
static void NAME(ST_H)(STEP_ARGS) {
  float t[TILE] ALIGNED;
  uint16_t *p = (uint16_t *)place[s->p];
  PUT(t)
#pragma omp simd
  for (int i = 0; i < TILE; i++) p[i] = zb_f32_to_bf16(t[i]);
  NEXT;
}
static void NAME(END)(STEP_ARGS) {
  (void)s, (void)place, (void)a0, (void)a1, (void)a2, (void)a3, (void)a4, (void)a5, (void)a6, (void)a7;
}

static void NAME(run)(const ZkStep *steps, char **place, const ZkMove *move, int nmoves, int64_t tiles) {
  const V z = {0};
  for (; tiles > 0; tiles--) {
    for (int k = 0; k < nmoves; k++)
      for (int l = AHEAD; l < AHEAD + move[k].bytes * TILE; l += 64)
        __builtin_prefetch(place[move[k].place] + l);
    ((NAME(Fn) *)steps->fn)(steps, place, z, z, z, z, z, z, z, z);
    for (int k = 0; k < nmoves; k++) place[move[k].place] += move[k].bytes * TILE;
  }
  LEAVE;
}

static ZkStepFn *const NAME(fn)[] = {
#define STEP(name, ...) (ZkStepFn *)NAME(name),
#include "kernels/cpu/pointwise_steps.def"
#undef STEP
    (ZkStepFn *)NAME(FAST_SIN), (ZkStepFn *)NAME(FAST_COS), (ZkStepFn *)NAME(ST_M),
    (ZkStepFn *)NAME(ST_H),     (ZkStepFn *)NAME(END),
};
_Static_assert(sizeof NAME(fn) / sizeof *NAME(fn) == ZK_STEP_COUNT, "a function for each step");
static const ZkPointwiseSet NAME(set) = {.name = SET, .tile = TILE, .fn = NAME(fn), .run = NAME(run)};

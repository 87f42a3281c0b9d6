/* A state's update that the tests of flat kernels share. */
#ifndef ZUG_TESTS_KERNELS_UPDATE_H
#define ZUG_TESTS_KERNELS_UPDATE_H

#include <stdlib.h>

#include "graph/ops.h"
#include "kernels/halves.h"
#include "kernels/optimize.h"

/* Settings of an optimizer as tests give them; of those that it has not nothing is taken. */
typedef struct {
  float lr, b1, b2, eps, momentum, decay, scale;
  int64_t step;
  float nesterov, rule;
  float *third; /* the state of an optimizer that has three, in f32 */
} By;

/* The call of an optimizer; m and v: its states, as many as it has; s: room for its scalars. */
static inline ZkOptimizer call_by(ZkOptimizerKind kind, const By *p, ZkFlat m, ZkFlat v,
                                  float s[ZK_MOST_SCALARS]) {
  static const char *const names[] = {"b1", "b2", "eps", "momentum", "nesterov", "rule"};
  const float values[] = {p->b1, p->b2, p->eps, p->momentum, p->nesterov, p->rule};
  double setting[ZK_MOST_SETTINGS] = {0};
  for (int i = 0; i < zk_optimizer_info[kind].nsettings; i++)
    for (int k = 0; k < 6; k++)
      if (!strcmp(zk_optimizer_info[kind].setting[i], names[k])) setting[i] = (double)values[k];
  zk_optimizer_scalars(kind, setting, &(ZkStepOf){(double)p->lr, (double)p->decay, p->step, true, 1}, s);
  return (ZkOptimizer){
      .kind = kind, .scale = p->scale, .times = 1, .state = {m, v, {ZK_F32, p->third}}, .s = s};
}

#define IN_F32(x) ((ZkFlat){ZK_F32, x})
/* Parameters w as what updates them has them: in f32, or, with room for the high ones, in halves. */
static inline ZkMaster in_halves(int64_t n, const float *w, uint16_t *high, int16_t *low) {
  ZkMaster m = {.high = high, .low = low};
  zk_cpu_split(&(ZkEnv){0}, n, w, m);
  return m;
}
static inline uint16_t high_half(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return zk_high_half(bits);
}

static inline bool cpu_call(const ZkEnv *env, const ZkOptimizer *x, int64_t n, const float *g, float *w,
                            uint16_t *high) {
  if (!high) return zk_cpu_optimize(env, x, n, IN_F32((void *)(uintptr_t)g), (ZkMaster){.f32 = w});
  ZkMaster m = in_halves(n, w, high, malloc((size_t)n * sizeof *m.low + 1));
  bool ok = zk_cpu_optimize(env, x, n, IN_F32((void *)(uintptr_t)g), m);
  zk_cpu_join(env, m, n, w);
  free(m.low);
  return ok;
}

static inline bool cpu_by(const ZkEnv *env, ZkOptimizerKind kind, const By *p, int64_t n, const float *g,
                          float *w, ZkFlat m, ZkFlat v, uint16_t *w16) {
  float s[ZK_MOST_SCALARS];
  ZkOptimizer x = call_by(kind, p, m, v, s);
  return cpu_call(env, &x, n, g, w, zk_optimizer_info[kind].matrices ? NULL : w16);
}
static inline bool by_adamw(const ZkEnv *env, const By *p, int64_t n, const float *g, float *w, float *m,
                            float *v, uint16_t *w16) {
  return cpu_by(env, ZK_BY_ADAMW, p, n, g, w, IN_F32(m), IN_F32(v), w16);
}
static inline bool by_adamw8(const ZkEnv *env, const By *p, int64_t n, const float *g, float *w, ZkFlat m,
                             ZkFlat v, uint16_t *w16) {
  return cpu_by(env, ZK_BY_ADAMW, p, n, g, w, m, v, w16);
}
static inline ZkOptimizerKind sgd_of(const float *m) { return m ? ZK_BY_SGD : ZK_BY_PLAIN; }
static inline bool by_sgd(const ZkEnv *env, const By *p, int64_t n, const float *g, float *w, float *m,
                          uint16_t *w16) {
  return cpu_by(env, sgd_of(m), p, n, g, w, IN_F32(m), (ZkFlat){0}, w16);
}
static inline bool by_lion(const ZkEnv *env, const By *p, int64_t n, const float *g, float *w, float *m,
                           uint16_t *w16) {
  return cpu_by(env, ZK_BY_LION, p, n, g, w, IN_F32(m), (ZkFlat){0}, w16);
}

/* w = (g - w != 0 ? 0.75 w : w) + sign(g - 1); registers from 2 on are the steps'. */
static const ZkUpdate mixed = {8,
                               {{ZG_OP_FILL, 0, 0, 0, 0, 0.75f},
                                {ZG_OP_MUL, 0, 2, 0, 0, 0},
                                {ZG_OP_FILL, 0, 0, 0, 0, 1},
                                {ZG_OP_SUB, 1, 4, 0, 0, 0},
                                {ZG_OP_SIGN, 5, 0, 0, 0, 0},
                                {ZG_OP_SUB, 1, 0, 0, 0, 0},
                                {ZG_OP_SELECT, 7, 3, 0, 0, 0},
                                {ZG_OP_ADD, 8, 6, 0, 0, 0}}};

#endif

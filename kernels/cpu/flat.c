/* Kernels on flat buffers: updates of states, sums of squares, conversions. One pass each, at the speed of
 * memory. Updates of parameters are in optimize.c. */
#include <math.h>

#include "kernels/cpu/math.h"

#define GRAIN 32768

ZK_SIMD static double sumsq(int64_t n, const float *x) {
  double s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; i++) s += (double)x[i] * (double)x[i];
  return s;
}

typedef struct {
  const ZkUpdate *update;
  const float *g, *x;
  float *w, *y;
  uint16_t *w16;
  const uint16_t *x16;
  float a;
  bool lost; /* something is not finite */
} Flat;

static void look(Flat *f, float zero) {
  if (!(zero == 0)) __atomic_store_n(&f->lost, true, __ATOMIC_RELAXED);
}

/* Few elements, so one by one. */
static void run_update(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  Flat *f = arg;
  const ZkUpdate *p = f->update;
  float reg[2 + ZK_UPDATE_OPS];
  for (int64_t i = from; i < to; i++) {
    reg[0] = f->w[i], reg[1] = f->g[i];
    for (int k = 0; k < p->n; k++) {
      const ZkPointwiseOp *o = &p->op[k];
      reg[2 + k] = o->op == ZG_OP_FILL ? o->num : (float)zg_pointwise(o->op, reg[o->a], reg[o->b], reg[o->c]);
    }
    f->w[i] = reg[1 + p->n];
    look(f, 0 * f->w[i]);
    if (f->w16) zk_run_to_bf16(f->w16 + i, f->w + i, 1);
  }
}

bool zk_cpu_update(const ZkEnv *env, const ZkUpdate *p, int64_t n, const float *g, float *w, uint16_t *w16) {
  ZB_ASSERT(p->n > 0 && p->n <= ZK_UPDATE_OPS);
  Flat f = {.update = p, .g = g, .w = w, .w16 = w16};
  zk_for(env, n, GRAIN, run_update, &f);
  return !f.lost;
}

#define SUMSQ_PARTS 256

typedef struct {
  const float *x;
  int64_t n, chunk;
  double part[SUMSQ_PARTS];
} SumSq;

static void run_sumsq(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  SumSq *s = arg;
  for (int64_t i = from; i < to; i++)
    s->part[i] = sumsq(zk_min(s->chunk, s->n - i * s->chunk), s->x + i * s->chunk);
}

double zk_cpu_sumsq(const ZkEnv *env, int64_t n, const float *x) {
  /* The pieces depend on n only: the sum does not depend on the threads. */
  SumSq s = {.x = x, .n = n, .chunk = zk_max(16384, zk_ceil_div(n, SUMSQ_PARTS))};
  int64_t parts = zk_ceil_div(n, s.chunk);
  zk_for(env, parts, 2, run_sumsq, &s);
  double sum = 0;
  for (int64_t i = 0; i < parts; i++) sum += s.part[i];
  return sum;
}

ZK_SIMD static void average(int64_t n, float decay, const float *w, float *a) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) a[i] = decay * a[i] + (1 - decay) * w[i];
}

static void run_average(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Flat *f = arg;
  average(to - from, f->a, f->x + from, f->y + from);
}

void zk_cpu_average(const ZkEnv *env, int64_t n, float decay, const float *w, float *a) {
  Flat f = {.a = decay, .x = w, .y = a};
  zk_for(env, n, GRAIN, run_average, &f);
}

static void run_axpy(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Flat *f = arg;
  zk_run_axpy(f->y + from, f->a, f->x + from, to - from);
}

void zk_cpu_axpy(const ZkEnv *env, int64_t n, float a, const float *x, float *y) {
  Flat f = {.a = a, .x = x, .y = y};
  zk_for(env, n, GRAIN, run_axpy, &f);
}

static void run_to_bf16(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Flat *f = arg;
  zk_run_to_bf16(f->w16 + from, f->x + from, to - from);
}

void zk_cpu_to_bf16(const ZkEnv *env, int64_t n, const float *x, uint16_t *y) {
  Flat f = {.x = x, .w16 = y};
  zk_for(env, n, GRAIN, run_to_bf16, &f);
}

static void run_from_bf16(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Flat *f = arg;
  zk_run_from_bf16(f->y + from, f->x16 + from, to - from);
}

void zk_cpu_from_bf16(const ZkEnv *env, int64_t n, const uint16_t *x, float *y) {
  Flat f = {.x16 = x, .y = y};
  zk_for(env, n, GRAIN, run_from_bf16, &f);
}

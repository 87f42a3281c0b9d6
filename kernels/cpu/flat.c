/* Kernels on flat buffers: sums of squares, conversions. One pass each, at the speed of memory. What is done to
 * parameters is in optimize.c and params.c. */
#include <math.h>

#include "kernels/cpu/math.h"
#include "kernels/optimize.h"

#define GRAIN 32768

ZK_SIMD static double sumsq(int64_t n, const float *x) {
  double s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; i++) s += (double)x[i] * (double)x[i];
  return s;
}

typedef struct {
  const float *x;
  float *y;
  uint16_t *y16;
  const uint16_t *x16;
  float a;
} Flat;

#define SUMSQ_PARTS 256

typedef struct {
  ZkMaster x;
  int64_t n, chunk;
  double part[SUMSQ_PARTS];
} SumSq;

/* Of what is in halves a piece at a time is joined. */
static double sumsq_of(ZkMaster x, int64_t n) {
  enum { PIECE = 4096 };
  float joined[PIECE];
  double sum = 0;
  if (x.f32) return sumsq(n, x.f32);
  for (int64_t i = 0, m; i < n; i += m) {
    m = zk_min(PIECE, n - i);
    zk_run_join(joined, x.high + i, x.low + i, m);
    sum += sumsq(m, joined);
  }
  return sum;
}

static void run_sumsq(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  SumSq *s = arg;
  for (int64_t i = from; i < to; i++)
    s->part[i] =
        sumsq_of(zk_master_from(s->x, (uint64_t)(i * s->chunk)), zk_min(s->chunk, s->n - i * s->chunk));
}

double zk_cpu_sumsq_params(const ZkEnv *env, int64_t n, ZkMaster x) {
  /* The pieces depend on n only: the sum does not depend on the threads. */
  SumSq s = {.x = x, .n = n, .chunk = zk_max(16384, zk_ceil_div(n, SUMSQ_PARTS))};
  int64_t parts = zk_ceil_div(n, s.chunk);
  zk_for(env, parts, 2, run_sumsq, &s);
  double sum = 0;
  for (int64_t i = 0; i < parts; i++) sum += s.part[i];
  return sum;
}

double zk_cpu_sumsq(const ZkEnv *env, int64_t n, const float *x) {
  return zk_cpu_sumsq_params(env, n, (ZkMaster){.f32 = (float *)(uintptr_t)x});
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
  zk_run_to_bf16(f->y16 + from, f->x + from, to - from);
}

void zk_cpu_to_bf16(const ZkEnv *env, int64_t n, const float *x, uint16_t *y) {
  Flat f = {.x = x, .y16 = y};
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

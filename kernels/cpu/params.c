/* Parameters in halves; and what is done to parameters beside optimizers' updates: those of states, and the average. One
 * pass each, at the speed of memory. */
#include <math.h>

#include "graph/ops.h"
#include "kernels/cpu/math.h"
#include "kernels/halves.h"
#include "kernels/optimize.h"

enum { GRAIN = 32768, PIECE = 4096 };

/* ---- halves ---- */
ZK_SIMD void zk_run_split(uint16_t *high, int16_t *low, const float *x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) high[i] = zk_high_half(zk_to_bits(x[i]));
  if (!low) return;
#pragma omp simd
  for (int64_t i = 0; i < n; i++) low[i] = zk_low_half(zk_to_bits(x[i]));
}

ZK_SIMD void zk_run_join(float *x, const uint16_t *high, const int16_t *low, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) x[i] = zk_from_bits(zk_join_halves(high[i], low[i]));
}

typedef struct {
  const ZkUpdate *update;
  const float *g, *x;
  float *y;
  ZkMaster w;
  float decay;
  bool lost; /* something is not finite */
} Params;

static void run_split(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Params *p = arg;
  zk_run_split(p->w.high + from, p->w.low ? p->w.low + from : NULL, p->x + from, to - from);
}

void zk_cpu_split(const ZkEnv *env, int64_t n, const float *x, ZkMaster to) {
  Params p = {.x = x, .w = to};
  zk_for(env, n, GRAIN, run_split, &p);
}

static void run_join(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Params *p = arg;
  zk_run_join(p->y + from, p->w.high + from, p->w.low + from, to - from);
}

void zk_cpu_join(const ZkEnv *env, ZkMaster from, int64_t n, float *x) {
  Params p = {.w = from, .y = x};
  zk_for(env, n, GRAIN, run_join, &p);
}

/* Returns parameters i .. i + n - 1: where they lie in f32, or joined in `room`. */
static const float *values_of(const ZkMaster *w, int64_t i, int64_t n, float *room) {
  if (w->f32) return w->f32 + i;
  zk_run_join(room, w->high + i, w->low + i, n);
  return room;
}

static void set_values(const ZkMaster *w, int64_t i, int64_t n, const float *x) {
  if (w->f32) memcpy(w->f32 + i, x, (size_t)n * sizeof *x);
  else zk_run_split(w->high + i, w->low + i, x, n);
}

/* ---- updates of states ---- */
static float updated(const ZkUpdate *p, float w, float g) {
  float reg[2 + ZK_UPDATE_OPS] = {w, g};
  for (int k = 0; k < p->n; k++) {
    const ZkPointwiseOp *o = &p->op[k];
    reg[2 + k] = o->op == ZG_OP_FILL ? o->num : (float)zg_pointwise(o->op, reg[o->a], reg[o->b], reg[o->c]);
  }
  return reg[1 + p->n];
}

/* Few elements, so one by one. */
static void run_update(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  Params *p = arg;
  for (int64_t i = from; i < to; i++) {
    float room, w = updated(p->update, *values_of(&p->w, i, 1, &room), p->g[i]);
    set_values(&p->w, i, 1, &w);
    if (!isfinite(w)) __atomic_store_n(&p->lost, true, __ATOMIC_RELAXED);
  }
}

bool zk_cpu_update_state(const ZkEnv *env, const ZkUpdate *u, int64_t n, const float *g, ZkMaster w) {
  ZB_ASSERT(u->n > 0 && u->n <= ZK_UPDATE_OPS);
  Params p = {.update = u, .g = g, .w = w};
  zk_for(env, n, GRAIN, run_update, &p);
  return !p.lost;
}

/* ---- the average ---- */
ZK_SIMD static void average(int64_t n, float decay, const float *w, float *a) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) a[i] = decay * a[i] + (1 - decay) * w[i];
}

static void run_average(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Params *p = arg;
  float joined[PIECE];
  for (int64_t i = from, n; i < to; i += n) {
    n = zk_min(PIECE, to - i);
    average(n, p->decay, values_of(&p->w, i, n, joined), p->y + i);
  }
}

void zk_cpu_average_params(const ZkEnv *env, int64_t n, float decay, ZkMaster w, float *a) {
  Params p = {.decay = decay, .w = w, .y = a};
  zk_for(env, n, GRAIN, run_average, &p);
}

/* ---- swaps ---- */
static void run_swap(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Params *p = arg;
  float was[PIECE];
  for (int64_t i = from, n; i < to; i += n) {
    n = zk_min(PIECE, to - i);
    const float *w = values_of(&p->w, i, n, was);
    if (w != was) memcpy(was, w, (size_t)n * sizeof *was);
    set_values(&p->w, i, n, p->y + i);
    memcpy(p->y + i, was, (size_t)n * sizeof *was);
  }
}

void zk_cpu_swap_params(const ZkEnv *env, int64_t n, ZkMaster w, float *y) {
  Params p = {.w = w, .y = y};
  zk_for(env, n, GRAIN, run_swap, &p);
}

/* Kernels in turn, round after round: what else the machine does meanwhile meets all of them alike, and the
 * median of the rounds is what a step finds. Operands are not those of the call before, as in a step: they go
 * through more memory than caches hold. */
#include "runtime/exec/calibrate/calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  AREA = 128 << 20 /* bytes, at scale 1: caches hold a part of less */,
  BLOCK = 4 << 20,
  CYCLE = 4096,
  ROUNDS = 15,
  LEAST = 3
};
#define SAMPLE 3e-3 /* seconds of a sample, at least */
#define ENOUGH 3    /* seconds, after which a busy machine is spared more rounds than LEAST */

void zx_await_device(const ZxMeasure *m) {
  ZbErr err = {0};
  if (!m->d->finish(m->env, &err) && !*m->err->text) *m->err = err;
}

double zx_measured(const ZxMeasure *m, double mine) {
  m->c->t->wait(m->c, m->c->t->all_reduce(m->c, 0, &mine, 1, ZK_F64, ZX_MAX));
  return mine;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}
double zx_median(double *x, int n) {
  qsort(x, (size_t)n, sizeof *x, ascending);
  return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

void zx_fit_row(ZxFit *f, double x, double y, double t) {
  x /= t, y /= t;
  f->xx += x * x, f->xy += x * y, f->yy += y * y, f->x += x, f->y += y;
}

void zx_fit(const ZxFit *f, double *a, double *b) {
  double det = f->xx * f->yy - f->xy * f->xy;
  *a = (f->x * f->yy - f->y * f->xy) / det;
  *b = (f->y * f->xx - f->x * f->xy) / det;
  if (!(*b > 0)) *a = f->x / f->xx, *b = 0;
  else if (!(*a > 0)) *a = 0, *b = f->y / f->yy;
}

/* ---- memory -------------------------------------------------------------------------------------------- */
/* Numbers about 1. */
static void make_block(char *block, ZkElem elem) {
  size_t cycle = zk_bytes(elem, CYCLE);
  for (size_t i = 0; i < CYCLE; i++) {
    float x = (float)zb_random_normal(1, 0, i);
    if (elem == ZK_BF16) ((uint16_t *)(void *)block)[i] = zb_f32_to_bf16(x);
    else ((float *)(void *)block)[i] = x;
  }
  for (size_t at = cycle; at < BLOCK; at += cycle) memcpy(block + at, block, cycle);
}

static bool fill_areas(ZxTrials *t) {
  const ZxMeasure *m = t->m;
  char *block = m->d->pinned(m->env, BLOCK, m->err);
  if (!block) return false;
  for (int i = 0; i < ZX_RESULTS; i++) {
    make_block(block, i == ZX_BF16_AREA ? ZK_BF16 : ZK_F32);
    double from = zb_now();
    for (size_t at = 0; at < t->bytes; at += BLOCK) m->d->upload(m->env, t->area[i] + at, block, BLOCK);
    zx_await_device(m);
    t->upload = (double)t->bytes / (zb_now() - from);
  }
  m->d->zero(m->env, t->area[ZX_RESULTS], t->bytes);
  zx_await_device(m);
  m->d->unpin(m->env, block);
  return true;
}

bool zx_trials_open(ZxTrials *t, const ZxMeasure *m, int scale) {
  *t = (ZxTrials){.m = m, .scale = scale, .bytes = (size_t)scale * AREA, .scratch_bytes = 64};
  for (int i = 0; i < ZX_AREAS; i++)
    if (!(t->area[i] = m->d->alloc(m->env, t->bytes, m->err))) return false;
  return fill_areas(t);
}

static void free_scratch(ZxTrials *t) {
  if (t->scratch) t->m->d->free(t->m->env, t->scratch, t->scratch_bytes);
  t->scratch = NULL;
}

void zx_trials_close(ZxTrials *t) {
  for (int i = 0; i < ZX_AREAS; i++)
    if (t->area[i]) t->m->d->free(t->m->env, t->area[i], t->bytes);
  free_scratch(t);
  *t = (ZxTrials){0};
}

static size_t bytes_of(const ZkView *v) {
  uint64_t n = 1;
  for (int i = 0; i < v->rank; i++) n *= (uint64_t)v->size[i];
  return zb_round_up(zk_bytes((ZkElem)v->elem, n), 256); /* as a plan places them */
}

/* ---- calls --------------------------------------------------------------------------------------------- */
uint32_t zx_trial_add(ZxTrials *t, const ZkCall *c) {
  ZB_PUSH(t->m->a, t->trial, t->n, ((ZxTrial){.call = *c}));
  return t->n - 1;
}

bool zx_trials_ready(ZxTrials *t) {
  const ZxMeasure *m = t->m;
  free_scratch(t);
  for (uint32_t i = 0; i < t->n; i++) {
    size_t scratch = m->d->scratch(&t->trial[i].call, zk_pool_threads(m->env->pool));
    if (scratch > t->scratch_bytes) t->scratch_bytes = scratch;
    if (m->d->prepare && !m->d->prepare(m->env, &t->trial[i].call, m->err)) return false;
  }
  t->scratch = m->d->alloc(m->env, t->scratch_bytes, m->err);
  return t->scratch != NULL;
}

static void place(ZxTrials *t, ZkView *v, int area) {
  size_t bytes = bytes_of(v);
  ZB_ASSERT(bytes <= t->bytes);
  if (t->at[area] + bytes > t->bytes) t->at[area] = 0;
  v->data = t->area[area] + t->at[area];
  t->at[area] += bytes;
}

void zx_trial_run(ZxTrials *t, uint32_t i) {
  ZkCall *c = &t->trial[i].call;
  for (int k = 0; k < c->nin; k++) place(t, &c->in[k], c->in[k].elem == ZK_BF16 ? ZX_BF16_AREA : ZX_F32_AREA);
  for (int k = 0; k < c->nout; k++) place(t, &c->out[k], ZX_RESULTS);
  c->scratch = t->scratch;
  t->m->d->run(t->m->env, c);
}

static double sample(ZxTrials *t, uint32_t i, int calls) {
  zx_await_device(t->m);
  double from = zb_now();
  for (int k = 0; k < calls; k++) zx_trial_run(t, i);
  zx_await_device(t->m);
  return (zb_now() - from) / calls;
}

double zx_trial_try(ZxTrials *t, uint32_t i) {
  sample(t, i, 1); /* touches memory, and makes what libraries keep */
  return fmax(1e-9, zx_measured(t->m, sample(t, i, 1)));
}

void zx_trials_run(ZxTrials *t) {
  ZxComm *c = t->m->c;
  double *samples = ZB_NEWN(t->m->a, double, (size_t)t->n *ROUNDS);
  for (uint32_t i = 0; i < t->n; i++) {
    double one = zx_trial_try(t, i);
    t->trial[i].calls = one > SAMPLE ? 1 : (int)(SAMPLE / one) + 1;
  }
  double began = zb_now();
  int rounds = 0;
  for (; rounds < ROUNDS && (rounds < LEAST || zx_measured(t->m, zb_now() - began) < ENOUGH); rounds++)
    for (uint32_t i = 0; i < t->n; i++) {
      c->t->barrier(c);
      samples[i * ROUNDS + (uint32_t)rounds] = sample(t, i, t->trial[i].calls);
    }
  for (uint32_t i = 0; i < t->n; i++)
    t->trial[i].seconds = zx_measured(t->m, zx_median(samples + (size_t)i * ROUNDS, rounds));
}

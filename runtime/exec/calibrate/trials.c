/* Kernels in turn, round after round: what else the machine does meanwhile meets all of them alike, and the
 * median of the rounds is what a step finds. Operands are not those of the call before, as in a step: they go
 * through a window of memory, or through more than caches hold. */
#include "runtime/exec/calibrate/calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IN_BYTES = 48 << 20, OUT_BYTES = 48 << 20, ROUNDS = 15, LEAST = 3, CYCLE = 4096 };
#define SAMPLE 3e-3 /* seconds of a sample, at least */
#define ENOUGH 10   /* seconds, after which a busy machine is spared more rounds than LEAST */

double zx_measured(const ZxMeasure *m, double mine) {
  m->c->t->wait(m->c, m->c->t->all_reduce(m->c, 0, &mine, 1, ZX_F64, ZX_MAX));
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
static void fill(void *p, size_t bytes, ZkElem elem) {
  size_t cycle = CYCLE * zk_elem_bytes(elem);
  for (size_t i = 0; i < CYCLE; i++) {
    float x = (float)zb_random_normal(1, 0, i);
    if (elem == ZK_BF16) ((uint16_t *)p)[i] = zb_f32_to_bf16(x);
    else ((float *)p)[i] = x;
  }
  for (size_t at = cycle; at < bytes; at += cycle) memcpy((char *)p + at, p, cycle);
}

bool zx_trials_open(ZxTrials *t, const ZxMeasure *m, ZbErr *err) {
  *t = (ZxTrials){.m = m, .scratch_bytes = 64}; /* more than nothing is asked for */
  const size_t bytes[] = {IN_BYTES, IN_BYTES, OUT_BYTES, OUT_BYTES};
  for (int i = 0; i < ZX_AREAS; i++)
    if (!(t->area[i] = m->d->alloc(m->env, t->bytes[i] = bytes[i], err))) return zx_trials_close(t), false;
  fill(t->area[0], IN_BYTES, ZK_F32);
  fill(t->area[1], IN_BYTES, ZK_BF16);
  memset(t->area[2], 0, OUT_BYTES);
  memset(t->area[3], 0, OUT_BYTES);
  return true;
}

void zx_trials_close(ZxTrials *t) {
  for (int i = 0; i < ZX_AREAS; i++)
    if (t->area[i]) t->m->d->free(t->m->env, t->area[i], t->bytes[i]);
  if (t->scratch) t->m->d->free(t->m->env, t->scratch, t->scratch_bytes);
  *t = (ZxTrials){0};
}

static size_t bytes_of(const ZkView *v) {
  size_t n = zk_elem_bytes((ZkElem)v->elem);
  for (int i = 0; i < v->rank; i++) n *= (size_t)v->size[i];
  return zb_round_up(n, 64);
}

/* ---- calls --------------------------------------------------------------------------------------------- */
static uint32_t add(ZxTrials *t, ZxTrial x) {
  ZB_PUSH(t->m->a, t->trial, t->n, x);
  return t->n - 1;
}

uint32_t zx_trial_call(ZxTrials *t, const ZkCall *c, bool stays) {
  ZkCall one = *c;
  one.repeatable = t->m->env->repeatable;
  size_t scratch = t->m->d->scratch(&one, zk_pool_threads(t->m->env->pool));
  if (scratch > t->scratch_bytes) t->scratch_bytes = scratch;
  return add(t, (ZxTrial){.call = one, .stays = stays, .before = stays});
}

uint32_t zx_trial_update(ZxTrials *t, int64_t elems) { return add(t, (ZxTrial){.updates = elems}); }

static void place(ZxTrials *t, ZxTrial *x) {
  ZkCall *c = &x->call;
  for (int i = 0; i < c->nin; i++) {
    int area = c->in[i].elem == ZK_BF16;
    size_t bytes = bytes_of(&c->in[i]);
    ZB_ASSERT(bytes <= IN_BYTES);
    if (t->at[area] + bytes > (x->window ? x->window : IN_BYTES)) t->at[area] = 0;
    c->in[i].data = t->area[area] + t->at[area];
    t->at[area] += bytes;
  }
  for (int i = 0; i < c->nout; i++) {
    size_t bytes = bytes_of(&c->out[i]);
    ZB_ASSERT(bytes <= OUT_BYTES);
    if (t->at[2] + bytes > (x->window ? x->window : OUT_BYTES)) t->at[2] = 0;
    c->out[i].data = t->area[2] + t->at[2];
    t->at[2] += bytes;
  }
  c->scratch = t->scratch;
}

static void update(ZxTrials *t, int64_t n) {
  static const double sums = 0;
  double lost = 0;
  ZxScalars clip = {.squares = &sums, .lost = &lost, .sums = &sums, .nsums = 1};
  ZkAdamW a = {.lr = 1e-3F, .b1 = .9F, .b2 = .99F, .eps = 1e-8F, .step = 1, .times = 1};
  float *w = (float *)(void *)t->area[3];
  ZB_ASSERT(3 * n * 4 <= OUT_BYTES);
  t->m->d->adamw(t->m->env, &a, &clip, n, (const float *)(const void *)t->area[0], w, w + n, w + 2 * n, NULL);
}

void zx_trial_run(ZxTrials *t, uint32_t i) {
  ZxTrial *x = &t->trial[i];
  if (x->updates) {
    update(t, x->updates);
    return;
  }
  if (!x->stays || !x->call.out[0].data) place(t, x);
  t->m->d->run(t->m->env, &x->call);
}

static double sample(ZxTrials *t, uint32_t i) {
  ZxTrial *x = &t->trial[i];
  for (int k = 0; k < x->before; k++) zx_trial_run(t, i);
  double from = zb_now();
  for (int k = 0; k < x->calls; k++) zx_trial_run(t, i);
  return (zb_now() - from) / x->calls;
}

bool zx_trials_ready(ZxTrials *t, ZbErr *err) {
  t->scratch = t->m->d->alloc(t->m->env, t->scratch_bytes, err);
  return t->scratch != NULL;
}

void zx_trials_run(ZxTrials *t) {
  ZxComm *c = t->m->c;
  double *samples = ZB_NEWN(t->m->a, double, (size_t)t->n *ROUNDS);
  for (uint32_t i = 0; i < t->n; i++) {
    t->trial[i].calls = 1;
    sample(t, i); /* touches memory, and makes what libraries keep */
    double one = fmax(1e-9, zx_measured(t->m, sample(t, i)));
    t->trial[i].calls = one > SAMPLE ? 1 : (int)(SAMPLE / one) + 1;
  }
  double began = zb_now();
  int rounds = 0;
  for (; rounds < ROUNDS && (rounds < LEAST || zx_measured(t->m, zb_now() - began) < ENOUGH); rounds++)
    for (uint32_t i = 0; i < t->n; i++) {
      c->t->barrier(c);
      samples[i * ROUNDS + (uint32_t)rounds] = sample(t, i);
    }
  for (uint32_t i = 0; i < t->n; i++)
    t->trial[i].seconds = zx_measured(t->m, zx_median(samples + (size_t)i * ROUNDS, rounds));
}

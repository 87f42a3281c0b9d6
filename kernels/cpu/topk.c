/* topk, the largest entries of a row in order, and onehot, which puts numbers back to where they were chosen.
 * A row is chosen from k times over: k is small, and each time is one pass over what the caches hold. */
#include <math.h>

#include "kernels/cpu/cpu.h"

#define MOST_GROUPS 64

/* ---- topk -------------------------------------------------------------------------------------------- */
typedef struct {
  ZkView p, by, w, e;
  ZkNest rest; /* views: p, by, w, e */
  int64_t n, k, groups, take;
  int64_t sp, sby, sw, se; /* strides of the chosen axis, and of the places */
  float *scratch;          /* a row a thread */
} TopK;

/* f32 of a thread's row: its numbers, and which are left. */
static int64_t row_size(int64_t n) { return n + zk_ceil_div(n, (int64_t)sizeof(float)); }

/* The first of the largest that is left; it is taken out. Every number left counts, so `left` says which, not
 * their values. */
static int64_t take_best(const float *s, bool *left, int64_t n) {
  int64_t best = -1;
  for (int64_t i = 0; i < n; i++)
    if (left[i] && (best < 0 || s[i] > s[best])) best = i;
  ZB_ASSERT(best >= 0);
  left[best] = false;
  return best;
}

static float best_two(const float *s, int64_t n) {
  float first = -INFINITY, second = -INFINITY;
  for (int64_t i = 0; i < n; i++) {
    if (s[i] > first) second = first, first = s[i];
    else if (s[i] > second) second = s[i];
  }
  float sum = n > 1 ? first + second : first;
  return isnan(sum) ? -INFINITY : sum;
}

/* Leaves the entries of the best groups. */
static void take_groups(const TopK *t, const float *s, bool *left) {
  float score[MOST_GROUPS];
  bool other[MOST_GROUPS];
  int64_t each = t->n / t->groups;
  for (int64_t g = 0; g < t->groups; g++) score[g] = best_two(s + g * each, each), other[g] = true;
  for (int64_t i = 0; i < t->n; i++) left[i] = false;
  for (int64_t k = 0; k < t->take; k++) {
    int64_t g = take_best(score, other, t->groups);
    for (int64_t i = g * each; i < (g + 1) * each; i++) left[i] = true;
  }
}

static void run_topk(void *arg, int64_t from, int64_t to, int part) {
  const TopK *t = arg;
  float *s = t->scratch + part * row_size(t->n);
  bool *left = (bool *)(s + t->n);
  ZkWalk w;
  zk_walk_seek(&t->rest, &w, from);
  for (int64_t r = from; r < to; r++, zk_walk_next(&t->rest, &w)) {
    zk_load(s, &t->by, w.off[1], t->sby, t->n);
    for (int64_t i = 0; i < t->n; i++) {
      if (isnan(s[i])) s[i] = -INFINITY;
      left[i] = true;
    }
    if (t->groups) take_groups(t, s, left);
    for (int64_t k = 0; k < t->k; k++) {
      int64_t e = take_best(s, left, t->n);
      ((int32_t *)t->e.data)[w.off[3] + k * t->se] = (int32_t)e;
      zk_set(&t->w, w.off[2] + k * t->sw, zk_get(&t->p, w.off[0] + e * t->sp));
    }
  }
}

void zk_cpu_topk(const ZkEnv *env, const ZkCall *c) {
  TopK t = {.p = c->in[0], .by = c->in[c->nin - 1], .w = c->out[0], .e = c->out[1], .scratch = c->scratch};
  const ZkView *views[] = {&t.p, &t.by, &t.w, &t.e};
  ZB_ASSERT(t.e.elem == ZK_I32);
  t.rest = zk_nest(views, 4, c->ax, 1, false);
  t.n = zk_axis_size(&t.p, c->ax[0]);
  t.k = zk_axis_size(&t.w, c->ax[1]);
  t.groups = c->opt[0], t.take = c->opt[1];
  t.sp = zk_axis_stride(&t.p, c->ax[0]), t.sby = zk_axis_stride(&t.by, c->ax[0]);
  t.sw = zk_axis_stride(&t.w, c->ax[1]), t.se = zk_axis_stride(&t.e, c->ax[1]);
  zk_for(env, zk_nest_count(&t.rest), zk_max(1, 16384 / zk_max(1, t.n * t.k)), run_topk, &t);
}

size_t zk_scratch_topk(const ZkCall *c, int threads) {
  return (size_t)(threads * row_size(zk_axis_size(&c->in[0], c->ax[0]))) * sizeof(float);
}

/* ---- onehot ------------------------------------------------------------------------------------------ */
typedef struct {
  ZkView ids, g, y;
  bool weighed;
  ZkNest rest;   /* views: ids, y, g */
  ZkNest summed; /* the same; without y */
  int64_t count, n, stride, start;
  float *scratch; /* a row a thread */
} OneHot;

static void run_onehot(void *arg, int64_t from, int64_t to, int part) {
  const OneHot *o = arg;
  float *row = o->scratch + part * o->n;
  ZkWalk w, k;
  zk_walk_seek(&o->rest, &w, from);
  for (int64_t r = from; r < to; r++, zk_walk_next(&o->rest, &w)) {
    zk_run_fill(row, 0, o->n);
    zk_walk_seek(&o->summed, &k, 0);
    for (int64_t i = 0; i < o->count; i++, zk_walk_next(&o->summed, &k)) {
      int64_t id = ((const int32_t *)o->ids.data)[w.off[0] + k.off[0]], at = id - o->start;
      if (id < 0 || at < 0 || at >= o->n) continue;
      row[at] += o->weighed ? zk_get(&o->g, w.off[2] + k.off[2]) : 1;
    }
    zk_store(&o->y, w.off[1], o->stride, o->n, row, false);
  }
}

void zk_cpu_onehot(const ZkEnv *env, const ZkCall *c) {
  OneHot o = {.ids = c->in[0], .g = c->in[c->nin - 1], .y = c->out[0], .weighed = c->nin > 1};
  const ZkView *views[] = {&o.ids, &o.y, &o.g};
  ZB_ASSERT(o.ids.elem == ZK_I32);
  o.rest = zk_nest(views, 3, c->ax, c->nax, false);
  o.summed = zk_nest(views, 3, c->ax + 1, c->nax - 1, true);
  o.count = zk_nest_count(&o.summed);
  o.n = zk_axis_size(&o.y, c->ax[0]);
  o.stride = zk_axis_stride(&o.y, c->ax[0]);
  o.start = zk_axis_start(&o.y, c->ax[0]);
  o.scratch = c->scratch;
  zk_for(env, zk_nest_count(&o.rest), zk_max(1, 16384 / zk_max(1, o.n + o.count)), run_onehot, &o);
}

size_t zk_scratch_onehot(const ZkCall *c, int threads) {
  return (size_t)(threads * zk_axis_size(&c->out[0], c->ax[0])) * sizeof(float);
}

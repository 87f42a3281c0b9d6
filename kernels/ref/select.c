/* Operations that select entries of an axis, or by id: lookup, topk and onehot, the pieces of cross-entropy.
 * Ids are positions on the whole axis; an id below 0 is unknown. */
#include <math.h>

#include "base/base.h"
#include "kernels/ref/ref.h"

/* y[ids.., rest of t] = t[v = ids]; 0 for unknown ids and for rows outside this part of the table */
void REF(lookup)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *t = &c->in[0], *ids = &c->in[1], *y = &c->out[0];
  uint16_t v = c->ax[0];
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, y, NULL, 0);
  REF_EACH(&i, all) {
    int64_t id = ref_id(ids, &i), row = id - ref_start(t, v);
    RefIndex j = ref_with(&i, v, row);
    bool here = id >= 0 && row >= 0 && row < ref_size(t, v);
    ref_put(y, &i, here ? ref_get(t, &j) : NUM_0);
  }
}

/* dt[v = ids] += g */
void REF(lookup_grad)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *g = &c->in[0], *ids = &c->in[1], *dt = &c->out[0];
  uint16_t v = c->ax[0];
  if (!c->accumulate) ref_zero(dt);
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, g, NULL, 0);
  REF_EACH(&i, all) {
    int64_t id = ref_id(ids, &i), row = id - ref_start(dt, v);
    RefIndex j = ref_with(&i, v, row);
    if (id >= 0 && row >= 0 && row < ref_size(dt, v)) ref_add(dt, &j, ref_get(g, &i));
  }
}

/* NaN is less than all numbers. */
static Num number(Num a) { return num_is_nan(a) ? num_of(-INFINITY) : a; }

/* Does a, at i, come before b, at j: is it larger, or equal and lower? */
static bool before(Num a, int64_t i, Num b, int64_t j) {
  a = number(a), b = number(b);
  return num_less(b, a) || (num_equal(a, b) && i < j);
}

/* How many of s[0..n) come before the i-th. */
static int64_t rank_of(const Num *s, int64_t n, int64_t i) {
  int64_t rank = 0;
  for (int64_t j = 0; j < n; j++) rank += before(s[j], j, s[i], i);
  return rank;
}

/* The sum of the two largest of s[0..n), in f32. */
static Num best_two(const Num *s, int64_t n) {
  Num sum = NUM_0;
  for (int64_t i = 0; i < n; i++)
    if (rank_of(s, n, i) < 2) sum = num_add(sum, number(s[i]));
  return num_round(sum, ZK_F32);
}

/* w[c] = p[e[c]], where e are the entries that come first in `by`; of the opt[1] best of opt[0] groups. */
void REF(topk)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *p = &c->in[0], *by = &c->in[c->nin - 1], *w = &c->out[0], *e = &c->out[1];
  int64_t n = ref_size(p, c->ax[0]), k = ref_size(w, c->ax[1]), groups = c->opt[0] ? c->opt[0] : 1;
  int64_t take = c->opt[0] ? c->opt[1] : 1, each = n / groups;
  ZbArena *a = zb_arena_new();
  Num *s = ZB_NEWN(a, Num, n + groups), *group = s + n;
  RefIndex i = {0};
  RefAxes rest = ref_axes(&i, p, c->ax, 1);
  REF_EACH(&i, rest) {
    for (int64_t j = 0; j < n; j++) {
      RefIndex at = ref_with(&i, c->ax[0], j);
      s[j] = ref_get(by, &at);
    }
    for (int64_t g = 0; g < groups; g++) group[g] = best_two(s + g * each, each);
    for (int64_t j = 0; j < n; j++) {
      int64_t rank = 0;
      bool in = rank_of(group, groups, j / each) < take;
      for (int64_t q = 0; q < n; q++)
        if (rank_of(group, groups, q / each) < take) rank += before(s[q], q, s[j], j);
      if (!in || rank >= k) continue;
      RefIndex from = ref_with(&i, c->ax[0], j), to = ref_with(&i, c->ax[1], rank);
      ref_put(w, &to, ref_get(p, &from));
      ref_put(e, &to, num_of_int(j));
    }
  }
  zb_arena_free(a);
}

/* y[v = j] = the sum of g over ax[1..] where ids = j; without g, of 1. */
void REF(onehot)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *ids = &c->in[0], *y = &c->out[0];
  uint16_t v = c->ax[0];
  ref_zero(y);
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, ids, NULL, 0);
  REF_EACH(&i, all) {
    int64_t id = ref_id(ids, &i), row = id - ref_start(y, v);
    RefIndex to = ref_with(&i, v, row);
    if (id >= 0 && row >= 0 && row < ref_size(y, v))
      ref_add(y, &to, c->nin > 1 ? ref_get(&c->in[1], &i) : NUM_1);
  }
}

/* Is the entry of v at `i` padding? */
static bool padding(const ZkCall *c, const RefIndex *i) {
  uint16_t v = c->ax[0];
  return c->opt[1] > 0 && ref_start(&c->in[0], v) + ref_at(i, v) >= c->opt[1];
}

/* Is the entry of v at `i` the target? */
static bool is_target(const ZkCall *c, const RefIndex *i) {
  uint16_t v = c->ax[0];
  return ref_id(&c->in[2], i) == ref_start(&c->in[0], v) + ref_at(i, v);
}

/* s = sum_v exp(z - m), p = z[v = t] */
void REF(xent_sums)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *z = &c->in[0], *m = &c->in[1], *s = &c->out[0], *p = &c->out[1];
  RefIndex i = {0};
  RefAxes rest = ref_axes(&i, z, c->ax, 1), v = ref_only(&i, z, c->ax, 1);
  REF_EACH(&i, rest) {
    Num sum = NUM_0, picked = NUM_0;
    REF_EACH(&i, v) {
      if (padding(c, &i)) continue;
      sum = num_add(sum, num_exp(num_sub(ref_get(z, &i), ref_get(m, &i))));
      if (is_target(c, &i)) picked = ref_get(z, &i);
    }
    ref_put(s, &i, sum);
    ref_put(p, &i, picked);
  }
}

/* dz = exp(z - m) gs + (v == t) gp */
void REF(xent_grad)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *z = &c->in[0], *m = &c->in[1], *gs = &c->in[3], *gp = &c->in[4], *dz = &c->out[0];
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, z, NULL, 0);
  REF_EACH(&i, all) {
    Num d = num_mul(num_exp(num_sub(ref_get(z, &i), ref_get(m, &i))), ref_get(gs, &i));
    if (is_target(c, &i)) d = num_add(d, ref_get(gp, &i));
    ref_put(dz, &i, padding(c, &i) ? NUM_0 : d);
  }
}

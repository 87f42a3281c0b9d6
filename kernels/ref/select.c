/* Operations that select entries of an axis by id: lookup and the pieces of cross-entropy. Ids are positions
 * on the whole axis; an id below 0 is unknown. */
#include <math.h>

#include "kernels/ref/ref.h"

/* y[ids.., rest of t] = t[v = ids]; 0 for unknown ids and for rows outside this part of the table */
void zk_ref_lookup(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *t = &c->in[0], *ids = &c->in[1], *y = &c->out[0];
  uint16_t v = c->ax[0];
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, y, NULL, 0);
  REF_EACH(&i, all) {
    int64_t id = (int64_t)ref_get(ids, &i), row = id - ref_start(t, v);
    RefIndex j = ref_with(&i, v, row);
    bool here = id >= 0 && row >= 0 && row < ref_size(t, v);
    ref_put(y, &i, here ? ref_get(t, &j) : 0);
  }
}

/* dt[v = ids] += g */
void zk_ref_lookup_grad(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *g = &c->in[0], *ids = &c->in[1], *dt = &c->out[0];
  uint16_t v = c->ax[0];
  if (!c->accumulate) ref_zero(dt);
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, g, NULL, 0);
  REF_EACH(&i, all) {
    int64_t id = (int64_t)ref_get(ids, &i), row = id - ref_start(dt, v);
    RefIndex j = ref_with(&i, v, row);
    if (id >= 0 && row >= 0 && row < ref_size(dt, v)) ref_add(dt, &j, ref_get(g, &i));
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
  return (int64_t)ref_get(&c->in[2], i) == ref_start(&c->in[0], v) + ref_at(i, v);
}

/* s = sum_v exp(z - m), p = z[v = t] */
void zk_ref_xent_sums(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *z = &c->in[0], *m = &c->in[1], *s = &c->out[0], *p = &c->out[1];
  RefIndex i = {0};
  RefAxes rest = ref_axes(&i, z, c->ax, 1), v = ref_only(&i, z, c->ax, 1);
  REF_EACH(&i, rest) {
    double sum = 0, picked = 0;
    REF_EACH(&i, v) {
      if (padding(c, &i)) continue;
      sum += exp(ref_get(z, &i) - ref_get(m, &i));
      if (is_target(c, &i)) picked = ref_get(z, &i);
    }
    ref_put(s, &i, sum);
    ref_put(p, &i, picked);
  }
}

/* dz = exp(z - m) gs + (v == t) gp */
void zk_ref_xent_grad(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *z = &c->in[0], *m = &c->in[1], *gs = &c->in[3], *gp = &c->in[4], *dz = &c->out[0];
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, z, NULL, 0);
  REF_EACH(&i, all) {
    double d = exp(ref_get(z, &i) - ref_get(m, &i)) * ref_get(gs, &i);
    if (is_target(c, &i)) d += ref_get(gp, &i);
    ref_put(dz, &i, padding(c, &i) ? 0 : d);
  }
}

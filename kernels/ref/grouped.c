/* Products of rows that are sorted by expert: ends[e] is where the rows of expert e end. Axes ax[0], if a
 * view of rows has it, and ax[1] are one axis of rows. */
#include "kernels/ref/ref.h"

static bool has(const ZkView *v, uint16_t axis) {
  for (int i = 0; i < v->rank; i++)
    if (v->axis[i] == axis) return true;
  return false;
}

/* Whose row the one at i is; -1: nobody's. */
static int64_t expert_of(const ZkCall *c, const ZkView *rows, const RefIndex *i) {
  const ZkView *ends = &c->in[2];
  int64_t row = ref_at(i, c->ax[1]);
  if (has(rows, c->ax[0])) row += ref_at(i, c->ax[0]) * ref_size(rows, c->ax[1]);
  RefIndex at = {0};
  for (int64_t e = 0; e < ends->size[0]; e++) {
    ref_move(&at, c->ax[0], e);
    if (row < (int64_t)ref_get(ends, &at)) return e;
  }
  return -1;
}

/* y = x . w[expert] */
void zk_ref_grouped_dot(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, y, NULL, 0), k = ref_only(&i, x, c->ax + 2, c->nax - 2);
  REF_EACH(&i, all) {
    int64_t e = expert_of(c, y, &i);
    double sum = 0;
    RefIndex of = ref_with(&i, c->ax[0], e); /* of w */
    if (e >= 0) REF_EACH(&i, k) {
        for (int n = 2; n < c->nax; n++) ref_move(&of, c->ax[n], ref_at(&i, c->ax[n]));
        sum += ref_get(x, &i) * ref_get(w, &of);
      }
    ref_put(y, &i, sum);
  }
}

/* w[expert] (+)= x g */
void zk_ref_grouped_outer(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *x = &c->in[0], *g = &c->in[1], *w = &c->out[0];
  if (!c->accumulate) ref_zero(w);
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, x, NULL, 0), n = ref_axes(&i, g, NULL, 0);
  REF_EACH(&i, all) {
    int64_t e = expert_of(c, x, &i);
    if (e >= 0) REF_EACH(&i, n) {
        RefIndex of = ref_with(&i, c->ax[0], e);
        ref_add(w, &of, ref_get(x, &i) * ref_get(g, &i));
      }
  }
}

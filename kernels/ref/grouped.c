/* Products of rows that are sorted by expert: ends[e] is where the rows of expert e end. Axes ax[0], if a
 * view of rows has it, and ax[1] are one axis of rows. */
#include "kernels/attend.h"
#include "kernels/ref/ref.h"

/* The axes of rows that a view has. */
static RefAxes rows_of(RefIndex *i, const ZkCall *c, const ZkView *rows) {
  bool both = zk_view_has(rows, c->ax[0]);
  return ref_only(i, rows, c->ax + !both, 1 + both);
}

/* Whose row the one at i is; -1: nobody's. */
static int64_t expert_of(const ZkCall *c, const ZkView *rows, const RefIndex *i) {
  const ZkView *ends = &c->in[2];
  int64_t row = ref_at(i, c->ax[1]);
  if (zk_view_has(rows, c->ax[0])) row += ref_at(i, c->ax[0]) * ref_size(rows, c->ax[1]);
  RefIndex at = {0};
  for (int64_t e = 0; e < ends->size[0]; e++) {
    ref_move(&at, c->ax[0], e);
    if (row < ref_id(ends, &at)) return e;
  }
  return -1;
}

/* y = x . w[expert] */
void REF(grouped_dot)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
  RefIndex i = {0};
  RefAxes rows = rows_of(&i, c, y), rest = ref_axes(&i, y, NULL, 0);
  RefAxes k = ref_only(&i, x, c->ax + 2, c->nax - 2);
  REF_EACH(&i, rows) {
    int64_t e = expert_of(c, y, &i);
    REF_EACH(&i, rest) {
      Num sum = NUM_0;
      RefIndex of = ref_with(&i, c->ax[0], e); /* of w */
      if (e >= 0) REF_EACH(&i, k) {
          for (int n = 2; n < c->nax; n++) ref_move(&of, c->ax[n], ref_at(&i, c->ax[n]));
          sum = num_add(sum, num_mul(ref_get(x, &i), ref_get(w, &of)));
        }
      ref_put(y, &i, sum);
    }
  }
}

/* w[expert] (+)= x g */
void REF(grouped_outer)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *x = &c->in[0], *g = &c->in[1], *w = &c->out[0];
  if (!c->accumulate) ref_zero(w);
  RefIndex i = {0};
  RefAxes rows = rows_of(&i, c, x), rest = ref_axes(&i, x, NULL, 0);
  ref_add_axes(&rest, &i, g, NULL, 0);
  REF_EACH(&i, rows) {
    int64_t e = expert_of(c, x, &i);
    if (e >= 0) REF_EACH(&i, rest) {
        RefIndex of = ref_with(&i, c->ax[0], e);
        ref_add(w, &of, num_mul(ref_get(x, &i), ref_get(g, &i)));
      }
  }
}

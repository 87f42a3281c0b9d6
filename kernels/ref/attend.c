/* Attention and its gradient. Axes s (sequence) and h (head dim); the axes of q that k and v lack are groups
 * of query heads that share one k and v. */
#include <math.h>

#include "kernels/ref/ref.h"

/* Row (a at i) times row (b at j) along h. */
static double row_dot(const ZkView *a, const RefIndex *i, const ZkView *b, const RefIndex *j, uint16_t h) {
  double sum = 0;
  for (int64_t e = 0; e < ref_size(a, h); e++) {
    RefIndex ie = ref_with(i, h, e), je = ref_with(j, h, e);
    sum += ref_get(a, &ie) * ref_get(b, &je);
  }
  return sum;
}

/* Does the query at `i` see key number `at`? */
static bool visible(const ZkCall *c, const ZkView *q, const ZkView *k, const RefIndex *i, int64_t at) {
  uint16_t s = c->ax[0];
  return c->opt[0] == 0 || ref_start(k, s) + at <= ref_start(q, s) + ref_at(i, s);
}

/* o_i = sum_j p_ij v_j, p_ij = exp(scale q_i.k_j - l_i), l_i = log sum_j exp(scale q_i.k_j) */
void zk_ref_attend(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *q = &c->in[0], *k = &c->in[1], *v = &c->in[2], *o = &c->out[0], *l = &c->out[1];
  uint16_t s = c->ax[0], h = c->ax[1];
  int64_t keys = ref_size(k, s);
  RefIndex i = {0};
  RefAxes rows = ref_axes(&i, q, &h, 1);
  RefAxes hd = ref_only(&i, q, &h, 1);
  REF_EACH(&i, rows) {
    double peak = -INFINITY, sum = 0;
    for (int64_t at = 0; at < keys; at++) {
      RefIndex j = ref_with(&i, s, at);
      if (visible(c, q, k, &i, at)) peak = fmax(peak, c->num[0] * row_dot(q, &i, k, &j, h));
    }
    REF_EACH(&i, hd) ref_put(o, &i, 0);
    for (int64_t at = 0; at < keys; at++) {
      if (!visible(c, q, k, &i, at)) continue;
      RefIndex j = ref_with(&i, s, at);
      double p = exp(c->num[0] * row_dot(q, &i, k, &j, h) - peak);
      sum += p;
      REF_EACH(&i, hd) {
        RefIndex jh = ref_with(&j, h, ref_at(&i, h));
        ref_add(o, &i, p * ref_get(v, &jh));
      }
    }
    REF_EACH(&i, hd) ref_put(o, &i, ref_get(o, &i) / sum);
    ref_put(l, &i, peak + log(sum));
  }
}

/* With dp_ij = g_i.v_j and ds_ij = p_ij (dp_ij - g_i.o_i):
 * dq_i = scale sum_j ds_ij k_j, dk_j = scale sum_i ds_ij q_i, dv_j = sum_i p_ij g_i, groups summed in dk, dv.
 * */
void zk_ref_attend_grad(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *g = &c->in[0], *o = &c->in[1], *l = &c->in[2];
  const ZkView *q = &c->in[3], *k = &c->in[4], *v = &c->in[5];
  const ZkView *dq = &c->out[0], *dk = &c->out[1], *dv = &c->out[2];
  uint16_t s = c->ax[0], h = c->ax[1];
  double scale = c->num[0];
  for (int n = 0; n < 3; n++) ref_zero(&c->out[n]);
  RefIndex i = {0};
  RefAxes rows = ref_axes(&i, q, &h, 1);
  RefAxes hd = ref_only(&i, q, &h, 1);
  REF_EACH(&i, rows) {
    double go = row_dot(g, &i, o, &i, h);
    for (int64_t at = 0; at < ref_size(k, s); at++) {
      if (!visible(c, q, k, &i, at)) continue;
      RefIndex j = ref_with(&i, s, at);
      double p = exp(scale * row_dot(q, &i, k, &j, h) - ref_get(l, &i));
      double ds = p * (row_dot(g, &i, v, &j, h) - go);
      REF_EACH(&i, hd) {
        RefIndex jh = ref_with(&j, h, ref_at(&i, h));
        ref_add(dq, &i, scale * ds * ref_get(k, &jh));
        ref_add(dk, &jh, scale * ds * ref_get(q, &i));
        ref_add(dv, &jh, p * ref_get(g, &i));
      }
    }
  }
}

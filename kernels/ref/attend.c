/* Attention and its gradients. The axes of q that k and v lack are groups of query heads that share one k and
 * v. */
#include "kernels/attend.h"
#include "kernels/ref/ref.h"

/* Row (a at i) times row (b at j) along h. */
static Num row_dot(const ZkView *a, const RefIndex *i, const ZkView *b, const RefIndex *j, uint16_t h) {
  Num sum = NUM_0;
  RefIndex ie = *i, je = *j;
  for (int64_t e = 0; e < ref_size(a, h); e++) {
    ref_move(&ie, h, e), ref_move(&je, h, e);
    sum = num_add(sum, num_mul(ref_get(a, &ie), ref_get(b, &je)));
  }
  return sum;
}

/* Does the query at i see key number `key`, whose index is j? */
static bool visible(const ZkAttention *a, const RefIndex *i, const RefIndex *j, int64_t key) {
  int64_t keys = ref_start(a->k, a->ax.k) + ref_size(a->k, a->ax.k);
  ZgMask mask = {a->causal, a->window, a->prefix ? ref_id(a->prefix, i) : 0};
  ZgSeen s = zg_attend_seen(mask, ref_start(a->q, a->ax.q) + ref_at(i, a->ax.q), keys);
  int64_t at = ref_start(a->k, a->ax.k) + key;
  if (at < s.from || at >= s.to) return false;
  if (!a->docs_k) return true;
  RefIndex of_key = ref_with(j, a->ax.k, ref_at(j, a->ax.k) + zk_view_skip(a->docs_k, a->ax.k, a->first));
  int64_t doc = ref_id(a->docs_k, &of_key);
  if (doc < 0 || !a->docs_q) return doc >= 0;
  int64_t skip = zk_view_skip(a->docs_q, a->ax.q, ref_start(a->q, a->ax.q));
  RefIndex of_query = ref_with(i, a->ax.q, ref_at(i, a->ax.q) + skip);
  return ref_id(a->docs_q, &of_query) == doc;
}

/* A query and a key: the score, and its derivative by q.k. */
typedef struct {
  bool seen;
  RefIndex j; /* where the key lies: the query's, but that the key's position is the key's own */
  Num score, slope;
} Pair;

static Pair pair_at(const ZkAttention *a, const RefIndex *i, int64_t key) {
  Pair p = {.j = ref_with(i, a->ax.k, key), .slope = num_of(a->scale)};
  p.seen = visible(a, i, &p.j, key);
  if (!p.seen) return p;
  p.score = num_mul(p.slope, row_dot(a->q, i, a->k, &p.j, a->ax.h));
  if (a->cap > 0) {
    Num cap = num_of(a->cap), t = num_tanh(num_div(p.score, cap));
    p.score = num_mul(cap, t);
    p.slope = num_mul(p.slope, num_sub(NUM_1, num_mul(t, t)));
  }
  if (a->bias) p.score = num_add(p.score, ref_get(a->bias, &p.j));
  return p;
}

/* o_i = sum_j p_ij v_j, p_ij = exp(s_ij - l_i), l_i = log (sum_j exp(s_ij) + exp(sink)) */
void REF(attend)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  ZkAttention a = zk_attention(c);
  const ZkView *o = &c->out[0], *l = &c->out[1];
  RefIndex i = {0};
  RefAxes rows = ref_axes(&i, a.q, &a.ax.h, 1);
  RefAxes wd = ref_only(&i, a.v, &a.ax.w, 1);
  bool sink = a.sink && !c->accumulate;
  REF_EACH(&i, rows) {
    Num before = c->accumulate ? ref_get(l, &i) : sink ? ref_get(a.sink, &i) : num_of(ZK_ATTEND_LOW);
    Num peak = before, sum = NUM_0;
    for (int64_t key = 0; key < ref_size(a.k, a.ax.k); key++) {
      Pair p = pair_at(&a, &i, key);
      if (p.seen) peak = num_max(peak, p.score);
    }
    if (sink || c->accumulate) sum = num_exp(num_sub(before, peak));
    REF_EACH(&i, wd) ref_put(o, &i, c->accumulate ? num_mul(ref_get(o, &i), sum) : NUM_0);
    for (int64_t key = 0; key < ref_size(a.k, a.ax.k); key++) {
      Pair p = pair_at(&a, &i, key);
      if (!p.seen) continue;
      Num weight = num_exp(num_sub(p.score, peak));
      sum = num_add(sum, weight);
      REF_EACH(&i, wd) {
        ref_move(&p.j, a.ax.w, ref_at(&i, a.ax.w));
        ref_add(o, &i, num_mul(weight, ref_get(a.v, &p.j)));
      }
    }
    if (num_equal(sum, NUM_0)) sum = NUM_1; /* a query that sees nothing */
    Num part = num_div(NUM_1, sum);
    REF_EACH(&i, wd) ref_put(o, &i, num_mul(ref_get(o, &i), part));
    ref_put(l, &i, num_add(peak, num_log(sum)));
  }
}

/* p and ds = p (dp - g.o) of a pair, dp = g.v. */
typedef struct {
  Num p, ds;
} Slopes;

static Slopes slopes_of(const ZkCall *c, const ZkAttention *a, const RefIndex *i, const Pair *p) {
  const ZkView *g = &c->in[0], *o = &c->in[1], *l = &c->in[2];
  Num weight = num_exp(num_sub(p->score, ref_get(l, i))), go = row_dot(g, i, o, i, a->ax.w);
  return (Slopes){weight, num_mul(weight, num_sub(row_dot(g, i, a->v, &p->j, a->ax.w), go))};
}

/* dq_i = sum_j dr_ij k_j, dk_j = sum_i dr_ij q_i, dv_j = sum_i p_ij g_i, with dr = ds times the slope of the
 * score; groups are summed in dk and dv. */
void REF(attend_grad)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  ZkAttention a = zk_attention(c);
  const ZkView *g = &c->in[0], *dq = &c->out[0], *dk = &c->out[1], *dv = &c->out[2];
  for (int n = 0; n < 3 && !c->accumulate; n++) ref_zero(&c->out[n]);
  RefIndex i = {0};
  RefAxes rows = ref_axes(&i, a.q, &a.ax.h, 1);
  RefAxes hd = ref_only(&i, a.q, &a.ax.h, 1), wd = hd;
  if (a.ax.w != a.ax.h) wd = ref_only(&i, a.v, &a.ax.w, 1);
  REF_EACH(&i, rows) {
    for (int64_t key = 0; key < ref_size(a.k, a.ax.k); key++) {
      Pair p = pair_at(&a, &i, key);
      if (!p.seen) continue;
      Slopes s = slopes_of(c, &a, &i, &p);
      Num dr = num_mul(s.ds, p.slope);
      REF_EACH(&i, hd) {
        ref_move(&p.j, a.ax.h, ref_at(&i, a.ax.h));
        ref_add(dq, &i, num_mul(dr, ref_get(a.k, &p.j)));
        ref_add(dk, &p.j, num_mul(dr, ref_get(a.q, &i)));
      }
      REF_EACH(&i, wd) {
        ref_move(&p.j, a.ax.w, ref_at(&i, a.ax.w));
        ref_add(dv, &p.j, num_mul(s.p, ref_get(g, &i)));
      }
    }
  }
}

/* db = ds, summed over the axes that the bias lacks. */
void REF(attend_bias_grad)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  ZkAttention a = zk_attention(c);
  if (!c->accumulate) ref_zero(&c->out[0]);
  RefIndex i = {0};
  RefAxes rows = ref_axes(&i, a.q, &a.ax.h, 1);
  REF_EACH(&i, rows) {
    for (int64_t key = 0; key < ref_size(a.k, a.ax.k); key++) {
      Pair p = pair_at(&a, &i, key);
      if (p.seen) ref_add(&c->out[0], &p.j, slopes_of(c, &a, &i, &p).ds);
    }
  }
}

/* Reductions: sum, running sum, maximum, and the product of two tensors. */
#include "kernels/ref/ref.h"

static void store(const ZkCall *c, const RefIndex *i, Num x) {
  if (c->accumulate) ref_add(&c->out[0], i, x);
  else ref_put(&c->out[0], i, x);
}

void REF(sum)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *x = &c->in[0];
  RefIndex i = {0};
  RefAxes rest = ref_axes(&i, x, c->ax, c->nax), reduced = ref_only(&i, x, c->ax, c->nax);
  REF_EACH(&i, rest) {
    Num sum = NUM_0;
    REF_EACH(&i, reduced) sum = num_add(sum, ref_get(x, &i));
    store(c, &i, sum);
  }
}

/* opt[0]: from the last element on. */
void REF(cumsum)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *x = &c->in[0], *y = &c->out[0];
  int64_t n = ref_size(x, c->ax[0]);
  RefIndex i = {0};
  RefAxes rest = ref_axes(&i, x, c->ax, 1);
  REF_EACH(&i, rest) {
    Num sum = NUM_0;
    for (int64_t k = 0; k < n; k++) {
      RefIndex at = ref_with(&i, c->ax[0], c->opt[0] ? n - 1 - k : k);
      sum = num_add(sum, ref_get(x, &at));
      ref_put(y, &at, sum);
    }
  }
}

/* h[i] = a[i] h[p] + b[i], p the element before i in the order; opt[1]: a[p] h[p]. Without a p it is b[i]. */
void REF(scan)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *a = &c->in[0], *b = &c->in[1], *h = &c->out[0];
  int64_t n = ref_size(b, c->ax[0]);
  RefIndex i = {0};
  RefAxes rest = ref_axes(&i, b, c->ax, 1);
  REF_EACH(&i, rest) {
    Num carry = NUM_0, before = NUM_0;
    for (int64_t k = 0; k < n; k++) {
      RefIndex at = ref_with(&i, c->ax[0], c->opt[0] ? n - 1 - k : k);
      Num now = ref_get(a, &at);
      carry = num_add(num_mul(c->opt[1] ? before : now, carry), ref_get(b, &at));
      before = now;
      ref_put(h, &at, carry);
    }
  }
}

/* opt[1] > 0: what lies at or after position opt[1] of the whole first reduced axis is padding. */
void REF(peak)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *x = &c->in[0], *y = &c->out[0];
  RefIndex i = {0};
  RefAxes rest = ref_axes(&i, x, c->ax, c->nax), reduced = ref_only(&i, x, c->ax, c->nax);
  REF_EACH(&i, rest) {
    Num peak = num_of(-INFINITY);
    REF_EACH(&i, reduced) {
      if (c->opt[1] > 0 && ref_start(x, c->ax[0]) + ref_at(&i, c->ax[0]) >= c->opt[1]) continue;
      peak = num_max(peak, ref_get(x, &i));
    }
    ref_put(y, &i, peak);
  }
}

void REF(dot)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, y, NULL, 0), contracted = ref_only(&i, a, c->ax, c->nax);
  REF_EACH(&i, all) {
    Num sum = NUM_0;
    REF_EACH(&i, contracted) sum = num_add(sum, num_mul(ref_get(a, &i), ref_get(b, &i)));
    store(c, &i, sum);
  }
}

/* Operations that work along one axis and keep it: softmax, normalize, rope, rotate. */
#include "kernels/ref/ref.h"

void REF(softmax)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *x = &c->in[0], *y = &c->out[0];
  RefIndex i = {0};
  RefAxes rest = ref_axes(&i, x, c->ax, 1), a = ref_only(&i, x, c->ax, 1);
  int64_t valid = c->opt[1] > 0 ? c->opt[1] : ref_size(x, c->ax[0]);
  REF_EACH(&i, rest) {
    Num peak = num_of(-INFINITY), sum = NUM_0;
    REF_EACH(&i, a) if (ref_at(&i, c->ax[0]) < valid) peak = num_max(peak, ref_get(x, &i));
    REF_EACH(&i, a) {
      Num e = ref_at(&i, c->ax[0]) < valid ? num_exp(num_sub(ref_get(x, &i), peak)) : NUM_0;
      sum = num_add(sum, e);
      ref_put(y, &i, e);
    }
    Num part = num_div(NUM_1, sum);
    REF_EACH(&i, a) ref_put(y, &i, num_mul(ref_get(y, &i), part));
  }
}

/* dx = y (g - sum g y) */
void REF(softmax_grad)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *g = &c->in[0], *y = &c->in[1], *dx = &c->out[0];
  RefIndex i = {0};
  RefAxes rest = ref_axes(&i, y, c->ax, 1), a = ref_only(&i, y, c->ax, 1);
  REF_EACH(&i, rest) {
    Num gy = NUM_0;
    REF_EACH(&i, a) gy = num_add(gy, num_mul(ref_get(g, &i), ref_get(y, &i)));
    REF_EACH(&i, a) ref_put(dx, &i, num_mul(ref_get(y, &i), num_sub(ref_get(g, &i), gy)));
  }
}

/* y = (x - mean) r, r = 1/sqrt(mean (x - mean)^2 + eps); with opt[0] = 0 (rms) the mean is taken as 0 */
void REF(normalize)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *x = &c->in[0], *y = &c->out[0], *r = &c->out[1];
  bool std = c->opt[0] == 1;
  Num n = num_of_int(ref_size(x, c->ax[0]));
  RefIndex i = {0};
  RefAxes rest = ref_axes(&i, x, c->ax, 1), e = ref_only(&i, x, c->ax, 1);
  REF_EACH(&i, rest) {
    Num sum = NUM_0, squares = NUM_0;
    if (std) REF_EACH(&i, e) sum = num_add(sum, ref_get(x, &i));
    Num mean = num_div(sum, n);
    REF_EACH(&i, e) {
      Num d = num_sub(ref_get(x, &i), mean);
      squares = num_add(squares, num_mul(d, d));
    }
    Num scale = num_rsqrt(num_add(num_div(squares, n), num_of(c->num[0])));
    REF_EACH(&i, e) ref_put(y, &i, num_mul(num_sub(ref_get(x, &i), mean), scale));
    ref_put(r, &i, scale);
  }
}

/* dx = r (g - [mean g] - y mean(g y)); the bracket only for std */
void REF(normalize_grad)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *g = &c->in[0], *y = &c->in[1], *r = &c->in[2], *dx = &c->out[0];
  bool std = c->opt[0] == 1;
  Num n = num_of_int(ref_size(y, c->ax[0]));
  RefIndex i = {0};
  RefAxes rest = ref_axes(&i, y, c->ax, 1), e = ref_only(&i, y, c->ax, 1);
  REF_EACH(&i, rest) {
    Num sum_g = NUM_0, sum_gy = NUM_0;
    if (std) REF_EACH(&i, e) sum_g = num_add(sum_g, ref_get(g, &i));
    REF_EACH(&i, e) sum_gy = num_add(sum_gy, num_mul(ref_get(g, &i), ref_get(y, &i)));
    Num mean_g = num_div(sum_g, n), mean_gy = num_div(sum_gy, n);
    REF_EACH(&i, e) {
      Num d = num_sub(num_sub(ref_get(g, &i), mean_g), num_mul(ref_get(y, &i), mean_gy));
      ref_put(dx, &i, num_mul(ref_get(r, &i), d));
    }
  }
}

/* The pair of features at lo and hi, turned by the angle (`back`: by its negative) and scaled. */
static void turn(const ZkView *x, const ZkView *y, const RefIndex *lo, const RefIndex *hi, Num angle,
                 bool back, Num scale) {
  Num u = ref_get(x, lo), v = ref_get(x, hi), cos = num_cos(angle), sin = num_sin(angle);
  if (back) sin = num_neg(sin);
  ref_put(y, lo, num_mul(scale, num_sub(num_mul(u, cos), num_mul(v, sin))));
  ref_put(y, hi, num_mul(scale, num_add(num_mul(v, cos), num_mul(u, sin))));
}

/* Rotates the pairs (p, p + H/2) of axis h by the angle s base^(-2p/H), s the position in the whole sequence;
 * opt[0] = 1 rotates back. */
static void rope(const ZkCall *c, const ZkView *position) {
  const ZkView *x = &c->in[0], *y = &c->out[0];
  uint16_t s = c->ax[0], h = c->ax[1];
  int64_t H = ref_size(x, h);
  RefIndex i = {0};
  RefAxes rest = ref_axes(&i, x, &h, 1);
  REF_EACH(&i, rest) {
    Num at = position ? ref_get(position, &i) : num_of_int(ref_start(x, s) + ref_at(&i, s));
    for (int64_t p = 0; p < H / 2; p++) {
      Num angle = num_mul(at, num_of(pow(c->num[0], -2.0 * (double)p / (double)H)));
      RefIndex lo = ref_with(&i, h, p), hi = ref_with(&i, h, p + H / 2);
      turn(x, y, &lo, &hi, angle, c->opt[0] == 1, NUM_1);
    }
  }
}

void REF(rope)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  rope(c, NULL);
}

void REF(rope_at)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  rope(c, &c->in[1]);
}

/* The pairs of the first opt[1] features of axis h turn by the angles at speed[pair], scaled by num[0];
 * the others stay. opt[0]: ZG_ROTATE_. */
void REF(rotate)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *x = &c->in[0], *at = &c->in[1], *speed = &c->in[2], *y = &c->out[0];
  uint16_t h = c->ax[0];
  int64_t pairs = c->opt[1] / 2;
  bool beside = c->opt[0] & ZG_ROTATE_BESIDE;
  RefIndex i = {0};
  RefAxes rest = ref_axes(&i, x, &h, 1);
  REF_EACH(&i, rest) {
    for (int64_t p = 0; p < pairs; p++) {
      RefIndex pair = ref_with(&i, h, p);
      Num angle = num_mul(ref_get(at, &i), ref_get(speed, &pair));
      RefIndex lo = ref_with(&i, h, beside ? 2 * p : p), hi = ref_with(&i, h, beside ? 2 * p + 1 : p + pairs);
      turn(x, y, &lo, &hi, angle, c->opt[0] & ZG_ROTATE_BACK, num_of(c->num[0]));
    }
    for (int64_t k = 2 * pairs; k < ref_size(x, h); k++) {
      RefIndex same = ref_with(&i, h, k);
      ref_put(y, &same, ref_get(x, &same));
    }
  }
}

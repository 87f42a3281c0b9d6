/* Operations that work along one axis and keep it: softmax, normalize, rope, rotate. */
#include <math.h>

#include "kernels/ref/ref.h"

void zk_ref_softmax(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *x = &c->in[0], *y = &c->out[0];
  RefIndex i = {0};
  RefAxes rest = ref_axes(&i, x, c->ax, 1), a = ref_only(&i, x, c->ax, 1);
  int64_t valid = c->opt[1] > 0 ? c->opt[1] : ref_size(x, c->ax[0]);
  REF_EACH(&i, rest) {
    double peak = -INFINITY, sum = 0;
    REF_EACH(&i, a) if (ref_at(&i, c->ax[0]) < valid) peak = fmax(peak, ref_get(x, &i));
    REF_EACH(&i, a) if (ref_at(&i, c->ax[0]) < valid) sum += exp(ref_get(x, &i) - peak);
    REF_EACH(&i, a)
    ref_put(y, &i, ref_at(&i, c->ax[0]) < valid ? exp(ref_get(x, &i) - peak) / sum : 0);
  }
}

/* dx = y (g - sum g y) */
void zk_ref_softmax_grad(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *g = &c->in[0], *y = &c->in[1], *dx = &c->out[0];
  RefIndex i = {0};
  RefAxes rest = ref_axes(&i, y, c->ax, 1), a = ref_only(&i, y, c->ax, 1);
  REF_EACH(&i, rest) {
    double gy = 0;
    REF_EACH(&i, a) gy += ref_get(g, &i) * ref_get(y, &i);
    REF_EACH(&i, a) ref_put(dx, &i, ref_get(y, &i) * (ref_get(g, &i) - gy));
  }
}

/* y = (x - mean) r, r = 1/sqrt(mean (x - mean)^2 + eps); with opt[0] = 0 (rms) the mean is taken as 0 */
void zk_ref_normalize(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *x = &c->in[0], *y = &c->out[0], *r = &c->out[1];
  bool std = c->opt[0] == 1;
  double n = (double)ref_size(x, c->ax[0]);
  RefIndex i = {0};
  RefAxes rest = ref_axes(&i, x, c->ax, 1), e = ref_only(&i, x, c->ax, 1);
  REF_EACH(&i, rest) {
    double mean = 0, square = 0;
    if (std) REF_EACH(&i, e) mean += ref_get(x, &i) / n;
    REF_EACH(&i, e) square += (ref_get(x, &i) - mean) * (ref_get(x, &i) - mean) / n;
    double scale = 1 / sqrt(square + c->num[0]);
    REF_EACH(&i, e) ref_put(y, &i, (ref_get(x, &i) - mean) * scale);
    ref_put(r, &i, scale);
  }
}

/* dx = r (g - [mean g] - y mean(g y)); the bracket only for std */
void zk_ref_normalize_grad(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *g = &c->in[0], *y = &c->in[1], *r = &c->in[2], *dx = &c->out[0];
  bool std = c->opt[0] == 1;
  double n = (double)ref_size(y, c->ax[0]);
  RefIndex i = {0};
  RefAxes rest = ref_axes(&i, y, c->ax, 1), e = ref_only(&i, y, c->ax, 1);
  REF_EACH(&i, rest) {
    double mean_g = 0, mean_gy = 0;
    if (std) REF_EACH(&i, e) mean_g += ref_get(g, &i) / n;
    REF_EACH(&i, e) mean_gy += ref_get(g, &i) * ref_get(y, &i) / n;
    REF_EACH(&i, e) {
      double d = ref_get(g, &i) - mean_g - ref_get(y, &i) * mean_gy;
      ref_put(dx, &i, ref_get(r, &i) * d);
    }
  }
}

/* Rotates the pairs (p, p + H/2) of axis h by the angle s base^(-2p/H), s the position in the whole sequence;
 * opt[0] = 1 rotates back. */
void zk_ref_rope(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *x = &c->in[0], *y = &c->out[0];
  uint16_t s = c->ax[0], h = c->ax[1];
  int64_t H = ref_size(x, h);
  RefIndex i = {0};
  RefAxes rest = ref_axes(&i, x, &h, 1);
  REF_EACH(&i, rest) {
    double at = (double)(ref_start(x, s) + ref_at(&i, s));
    for (int64_t p = 0; p < H / 2; p++) {
      double angle = at * pow(c->num[0], -2.0 * (double)p / (double)H);
      if (c->opt[0] == 1) angle = -angle;
      RefIndex lo = ref_with(&i, h, p), hi = ref_with(&i, h, p + H / 2);
      double u = ref_get(x, &lo), v = ref_get(x, &hi);
      ref_put(y, &lo, u * cos(angle) - v * sin(angle));
      ref_put(y, &hi, v * cos(angle) + u * sin(angle));
    }
  }
}

/* The pairs of the first opt[1] features of axis h turn by the angles at speed[pair], scaled by num[0];
 * the others stay. opt[0]: ZG_ROTATE_. */
void zk_ref_rotate(const ZkEnv *env, const ZkCall *c) {
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
      double angle = ref_get(at, &i) * ref_get(speed, &pair);
      if (c->opt[0] & ZG_ROTATE_BACK) angle = -angle;
      RefIndex lo = ref_with(&i, h, beside ? 2 * p : p), hi = ref_with(&i, h, beside ? 2 * p + 1 : p + pairs);
      double u = ref_get(x, &lo), v = ref_get(x, &hi);
      ref_put(y, &lo, c->num[0] * (u * cos(angle) - v * sin(angle)));
      ref_put(y, &hi, c->num[0] * (v * cos(angle) + u * sin(angle)));
    }
    for (int64_t k = 2 * pairs; k < ref_size(x, h); k++) {
      RefIndex same = ref_with(&i, h, k);
      ref_put(y, &same, ref_get(x, &same));
    }
  }
}

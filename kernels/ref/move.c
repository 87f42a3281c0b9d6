/* Operations that move elements and compute nothing. */
#include "base/base.h"
#include "kernels/ref/ref.h"

/* Same axes, perhaps another memory order or element type. */
void REF(copy)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *x = &c->in[0], *y = &c->out[0];
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, y, NULL, 0);
  REF_EACH(&i, all) ref_put(y, &i, ref_get(x, &i));
}

/* Axis from is called to. */
void REF(rename)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *x = &c->in[0], *y = &c->out[0];
  uint16_t from = c->ax[0], to = c->ax[1];
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, y, NULL, 0);
  REF_EACH(&i, all) {
    RefIndex j = ref_with(&i, from, ref_at(&i, to));
    ref_put(y, &i, ref_get(x, &j));
  }
}

/* y[to = p] = x[a = start + p] */
void REF(slice)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *x = &c->in[0], *y = &c->out[0];
  uint16_t a = c->ax[0], to = c->ax[1];
  ZB_ASSERT(ref_size(y, to) == c->opt[1]);
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, y, NULL, 0);
  REF_EACH(&i, all) {
    RefIndex j = ref_with(&i, a, c->opt[0] + ref_at(&i, to));
    ref_put(y, &i, ref_get(x, &j));
  }
}

/* y[to = start + p] = x[a = p], zero elsewhere */
void REF(pad)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *x = &c->in[0], *y = &c->out[0];
  uint16_t a = c->ax[0], to = c->ax[1];
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, y, NULL, 0);
  REF_EACH(&i, all) {
    int64_t p = ref_at(&i, to) - c->opt[0];
    RefIndex j = ref_with(&i, a, p);
    ref_put(y, &i, p >= 0 && p < ref_size(x, a) ? ref_get(x, &j) : NUM_0);
  }
}

/* y[a = p] = x[a = p - by], and the edge where there is none */
void REF(shift)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *x = &c->in[0], *y = &c->out[0];
  uint16_t a = c->ax[0];
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, y, NULL, 0);
  REF_EACH(&i, all) {
    int64_t p = ref_at(&i, a) - c->opt[0];
    RefIndex j = ref_with(&i, a, p);
    ref_put(y, &i, p >= 0 && p < ref_size(x, a) ? ref_get(x, &j) : num_of(c->num[0]));
  }
}

/* y[whole] = x[parts], or the other way round; of `n` parts the first is slowest. */
static void regroup(const ZkView *x, const ZkView *y, uint16_t whole, const uint16_t *part, int n,
                    bool merge) {
  const ZkView *parted = merge ? x : y;
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, parted, NULL, 0);
  REF_EACH(&i, all) {
    int64_t at = 0;
    for (int k = 0; k < n; k++) at = at * ref_size(parted, part[k]) + ref_at(&i, part[k]);
    RefIndex j = ref_with(&i, whole, at);
    if (merge) ref_put(y, &j, ref_get(x, &i));
    else ref_put(y, &i, ref_get(x, &j));
  }
}

void REF(merge)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  regroup(&c->in[0], &c->out[0], c->ax[0], c->ax + 1, c->nax - 1, true);
}

void REF(part)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  regroup(&c->in[0], &c->out[0], c->ax[c->nax - 1], c->ax, c->nax - 1, false);
}

/* The operands one after the other along `to`; ax[1 + k] is what operand k calls that axis. */
void REF(concat)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *y = &c->out[0];
  uint16_t to = c->ax[0];
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, y, NULL, 0);
  REF_EACH(&i, all) {
    int64_t p = ref_at(&i, to);
    int k = 0;
    while (p >= ref_size(&c->in[k], c->ax[1 + k])) {
      p -= ref_size(&c->in[k], c->ax[1 + k]);
      ZB_ASSERT(++k < c->nin);
    }
    RefIndex j = ref_with(&i, c->ax[1 + k], p);
    ref_put(y, &i, ref_get(&c->in[k], &j));
  }
}

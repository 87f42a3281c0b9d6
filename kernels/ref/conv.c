/* Convolutions: x, w and y of graph/conv.h, of which each operation makes one of the others. */
#include "graph/conv.h"
#include "kernels/ref/ref.h"

/* All points (position of y, window): adds to the result the product of the others there. */
static void ref_conv(const ZkCall *c) {
  const ZkView *t[3];
  int dims = c->nax / 3;
  for (int i = 0; i < 3; i++) t[zg_conv_tensor(c->op, i)] = i < 2 ? &c->in[i] : &c->out[0];
  const ZkView *x = t[ZG_CONV_X], *w = t[ZG_CONV_W], *y = t[ZG_CONV_Y];
  uint16_t of_x[ZG_CONV_DIMS];
  for (int d = 0; d < dims; d++) of_x[d] = zg_conv_axis(c->ax, d, ZG_CONV_X);
  if (!c->accumulate) ref_zero(&c->out[0]);
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, y, NULL, 0);
  ref_add_axes(&all, &i, w, NULL, 0);
  ref_add_axes(&all, &i, x, of_x, dims);
  REF_EACH(&i, all) {
    RefIndex at = i; /* in x; the axis of x may be that of y */
    bool inside = true;
    for (int d = 0; d < dims; d++) {
      int64_t k = ref_at(&i, zg_conv_axis(c->ax, d, ZG_CONV_W));
      int64_t before =
          zg_conv_before(c->opt[1], ref_size(w, zg_conv_axis(c->ax, d, ZG_CONV_W)), (int64_t)c->num[0]);
      int64_t r = ref_at(&i, zg_conv_axis(c->ax, d, ZG_CONV_Y)) * c->opt[0] + k * (int64_t)c->num[0] - before;
      inside &= r >= 0 && r < ref_size(x, of_x[d]);
      ref_move(&at, of_x[d], r);
    }
    if (!inside) continue;
    if (c->op == ZG_OP_CONV) ref_add(y, &i, num_mul(ref_get(x, &at), ref_get(w, &i)));
    if (c->op == ZG_OP_CONV_TRANSPOSE) ref_add(x, &at, num_mul(ref_get(y, &i), ref_get(w, &i)));
    if (c->op == ZG_OP_CONV_GRAD) ref_add(w, &i, num_mul(ref_get(x, &at), ref_get(y, &i)));
  }
}

void REF(conv)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  ref_conv(c);
}
void REF(conv_transpose)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  ref_conv(c);
}
void REF(conv_grad)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  ref_conv(c);
}

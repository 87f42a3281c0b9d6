/* Convolutions: x, w and y of graph/conv.h, of which each operation makes one of the others. */
#include "graph/conv.h"
#include "kernels/ref/ref.h"

/* Finds where a window's element lies in x, for the position of y and the element that i is at; false: in the zeros
 * around it. */
static bool find_in_x(const ZkCall *c, const ZkView *x, const ZkView *w, const RefIndex *i, RefIndex *at) {
  *at = *i;
  for (int d = 0; d < c->nax / 3; d++) {
    uint16_t of_x = zg_conv_axis(c->ax, d, ZG_CONV_X), window = zg_conv_axis(c->ax, d, ZG_CONV_W);
    int64_t dilate = (int64_t)c->num[0], before = zg_conv_before(c->opt[1], ref_size(w, window), dilate);
    int64_t r =
        ref_at(i, zg_conv_axis(c->ax, d, ZG_CONV_Y)) * c->opt[0] + ref_at(i, window) * dilate - before;
    if (r < 0 || r >= ref_size(x, of_x)) return false;
    ref_move(at, of_x, r);
  }
  return true;
}

/* A tensor at a place, and how far apart its elements are along the axes of a loop. */
typedef struct {
  Num *x;
  int64_t step[REF_MAX_AXES];
} Walk;

static Walk walk(const ZkView *v, const RefIndex *i, const RefAxes *axes) {
  Walk w = {.x = (Num *)v->data + ref_offset(v, i)};
  for (int k = 0; k < axes->n; k++) {
    int a = ref_find(v->axis, v->rank, axes->axis[k]);
    w.step[k] = a < 0 ? 0 : v->stride[a];
  }
  return w;
}

/* Adds the product of two tensors to a third at all points of the axes, of which this is the k-th. */
static void add_products(Walk to, Walk a, Walk b, const RefAxes *axes, int k) {
  if (k == axes->n) {
    *to.x = num_add(*to.x, num_mul(*a.x, *b.x));
    return;
  }
  bool last = k + 1 == axes->n;
  for (int32_t n = 0; n < axes->size[k]; n++) {
    if (last) *to.x = num_add(*to.x, num_mul(*a.x, *b.x));
    else add_products(to, a, b, axes, k + 1);
    to.x += to.step[k], a.x += a.step[k], b.x += b.step[k];
  }
}

/* Adds to the result, for all positions of y and elements of the window, the products of the others there. */
static void ref_conv(const ZkCall *c) {
  const ZkView *t[3];
  uint16_t of[3][ZG_CONV_DIMS];
  int dims = c->nax / 3;
  for (int i = 0; i < 3; i++) {
    t[zg_conv_tensor(c->op, i)] = i < 2 ? &c->in[i] : &c->out[0];
    for (int d = 0; d < dims; d++) of[i][d] = zg_conv_axis(c->ax, d, (ZgConvTensor)i);
  }
  const ZkView *x = t[ZG_CONV_X], *w = t[ZG_CONV_W], *y = t[ZG_CONV_Y];
  if (!c->accumulate) ref_zero(&c->out[0]);
  RefIndex i = {0}, at; /* at: in x, whose axis may be that of y */
  RefAxes place = ref_only(&i, y, of[ZG_CONV_Y], dims), window = ref_only(&i, w, of[ZG_CONV_W], dims);
  RefAxes rest = ref_axes(&i, y, NULL, 0);
  ref_add_axes(&rest, &i, w, NULL, 0);
  ref_add_axes(&rest, &i, x, of[ZG_CONV_X], dims);
  REF_EACH(&i, place) {
    REF_EACH(&i, window) {
      if (!ref_first(&i, &rest) || !find_in_x(c, x, w, &i, &at)) continue;
      Walk of_x = walk(x, &at, &rest), of_w = walk(w, &i, &rest), of_y = walk(y, &i, &rest);
      if (c->op == ZG_OP_CONV) add_products(of_y, of_x, of_w, &rest, 0);
      if (c->op == ZG_OP_CONV_TRANSPOSE) add_products(of_x, of_y, of_w, &rest, 0);
      if (c->op == ZG_OP_CONV_GRAD) add_products(of_w, of_x, of_y, &rest, 0);
    }
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

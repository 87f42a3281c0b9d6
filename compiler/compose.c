/* See compose.h. */
#include "compiler/compose.h"

#include <string.h>

#define NODE(op_, nin_)                                                                                      \
  (ZgNode) { .op = ZG_OP_##op_, .nin = (nin_) }

static Val one(Elab *e, ZlSpan at, ZgOp op, Val a) {
  return place_node(e, at, (ZgNode){.op = (uint16_t)op, .nin = 1}, &a, NULL);
}
static Val two(Elab *e, ZlSpan at, ZgOp op, Val a, Val b) {
  return place_node(e, at, (ZgNode){.op = (uint16_t)op, .nin = 2}, (Val[]){a, b}, NULL);
}
static Val choose(Elab *e, ZlSpan at, Val c, Val a, Val b) {
  return place_node(e, at, NODE(SELECT, 3), (Val[]){c, a, b}, NULL);
}
static Val number(Elab *e, ZlSpan at, double x, ZgElem elem) {
  return val_tensor(e, at, (Val){.kind = VAL_NUM, .num = num_double(x)}, elem);
}
static Val reduce(Elab *e, ZlSpan at, ZgOp op, Val v, const uint16_t *ax, int nax) {
  ZgNode n = {.op = (uint16_t)op, .nin = 1, .nax = (uint8_t)nax};
  memcpy(n.ax, ax, (size_t)nax * sizeof *ax);
  return place_node(e, at, n, &v, NULL);
}

/* ---- positions ----------------------------------------------------------------------------------------- */
Val compose_place(Elab *e, ZlSpan at, uint16_t axis) {
  Val at_int = place_node(e, at, (ZgNode){.op = ZG_OP_POSITION, .nax = 1, .ax = {axis}}, NULL, NULL);
  return val_cast(e, at, at_int, ZG_F32);
}

Val compose_spread(Elab *e, ZlSpan at, Val x, const uint16_t *ax, int nax) {
  if (x.kind != VAL_TENSOR || nax == 0) return x;
  ZgType more = zg_type((ZgElem)x.type.elem, ax, nax), t = zg_type_union(&x.type, &more);
  t.of = x.type.of;
  if (t.naxes <= ZG_MAX_AXES) return place_node(e, at, NODE(BROADCAST, 1), &x, &t);
  complain(e, ZL_Z0208, at, "a tensor has at most %d axes", ZG_MAX_AXES);
  return (Val){.kind = VAL_POISON};
}

static Val cast_index(Elab *e, ZlSpan at, Val x, uint16_t axis) {
  if (x.kind != VAL_TENSOR) return x;
  ZgType t = x.type;
  t.elem = ZG_INDEX;
  t.of = axis;
  return place_node(e, at, NODE(CAST, 1), &x, &t);
}

Val compose_index(Elab *e, ZlSpan at, Val x, uint16_t axis) {
  int64_t size = e->g->axes[axis].size;
  Val n = size ? number(e, at, (double)size, ZG_F32)
               : val_tensor(e, at, (Val){.kind = VAL_SIZE, .axis = axis}, ZG_F32);
  Val none = number(e, at, -1, ZG_F32);
  x = one(e, at, ZG_OP_FLOOR, val_cast(e, at, x, ZG_F32));
  Val below = choose(e, at, two(e, at, ZG_OP_LESS, x, n), x, none); /* what is no number is not less */
  Val in = choose(e, at, two(e, at, ZG_OP_LESS, below, number(e, at, 0, ZG_F32)), none, below);
  return cast_index(e, at, in, axis);
}

/* ---- reductions ---------------------------------------------------------------------------------------- */
Val compose_mean(Elab *e, ZlSpan at, Val v, const uint16_t *ax, int nax) {
  Num known = num_int(1);
  Val sum = reduce(e, at, ZG_OP_SUM, v, ax, nax), size = {0};
  if (sum.kind == VAL_POISON) return sum;
  ZgElem elem = (ZgElem)sum.type.elem;
  for (int i = 0; i < nax; i++) {
    if (e->g->axes[ax[i]].size) {
      known = num_mul(known, num_int(e->g->axes[ax[i]].size));
      continue;
    }
    Val n = val_tensor(e, at, (Val){.kind = VAL_SIZE, .axis = ax[i]}, ZG_F32);
    size = size.kind == VAL_TENSOR ? two(e, at, ZG_OP_MUL, size, n) : n;
  }
  if (known.v != 1) sum = two(e, at, ZG_OP_MUL, sum, number(e, at, 1 / known.v, elem));
  if (size.kind != VAL_TENSOR) return sum;
  return val_cast(e, at, two(e, at, ZG_OP_DIV, val_cast(e, at, sum, ZG_F32), size), elem);
}

/* m = stop(peak(z)) */
static Val peak_of(Elab *e, ZlSpan at, Val z, const uint16_t *ax, int nax) {
  return one(e, at, ZG_OP_STOP, reduce(e, at, ZG_OP_PEAK, z, ax, nax));
}

/* m = stop(peak(z)); s = sum exp(z - m); log(s) + m */
Val compose_lse(Elab *e, ZlSpan at, Val z, uint16_t v) {
  ZgType rest = zg_type_minus(&z.type, &v, 1);
  Val none = cast_index(e, at, number(e, at, -1, ZG_I32), v);
  Val t = compose_spread(e, at, none, rest.axis, rest.naxes), m = peak_of(e, at, z, &v, 1);
  ZgNode sums = {.op = ZG_OP_XENT_SUMS, .nin = 3, .nax = 1, .ax = {v}};
  Val s = place_node(e, at, sums, (Val[]){z, m, t}, NULL);
  return two(e, at, ZG_OP_ADD, one(e, at, ZG_OP_LOG, s), val_cast(e, at, m, ZG_F32));
}

Val compose_softmax(Elab *e, ZlSpan at, Val x, const uint16_t *ax, int nax) {
  ZgElem elem = (ZgElem)x.type.elem;
  x = val_cast(e, at, x, ZG_F32);
  Val y = one(e, at, ZG_OP_EXP, two(e, at, ZG_OP_SUB, x, peak_of(e, at, x, ax, nax)));
  return val_cast(e, at, two(e, at, ZG_OP_DIV, y, reduce(e, at, ZG_OP_SUM, y, ax, nax)), elem);
}

Val compose_normalize(Elab *e, ZlSpan at, Val x, const uint16_t *ax, int nax, bool centred, double eps) {
  ZgElem elem = (ZgElem)x.type.elem;
  x = val_cast(e, at, x, ZG_F32);
  if (centred) x = two(e, at, ZG_OP_SUB, x, compose_mean(e, at, x, ax, nax));
  Val square = compose_mean(e, at, two(e, at, ZG_OP_MUL, x, x), ax, nax);
  Val r = one(e, at, ZG_OP_RSQRT, two(e, at, ZG_OP_ADD, square, number(e, at, eps, ZG_F32)));
  return val_cast(e, at, two(e, at, ZG_OP_MUL, x, r), elem);
}

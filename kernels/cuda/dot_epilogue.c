/* What may follow a product in one call with it: what cuBLASLt's epilogues compute,
 *
 *   alpha product + beta full + bias,   GELU or ReLU of that (GELU: with that itself as another result),
 *   product times GELU'(full),
 *   product, and the second operand's column sums beside it (dot_bias_grad)
 *
 * where `full` is a tensor that lies as the result does, and `bias` one of the axes that are fastest there.
 * Sums are recognised by their coefficients; activations, which are written in many ways, by their values:
 * the function is computed at points from -12 to 12 in f64 and must be GELU (the tanh form; constants of
 * functions are f32) or ReLU up to TOLERANCE times 1 + |x|. The exact GELU, by erf, is 5e-4 away from it and
 * is none of these.
 *
 * How exactly cuBLASLt computes its tanh is not documented, so GELU is left to it with bf16 results only: f32
 * stays exact. */
#include "kernels/cuda/dot.h"

#include <math.h>
#include <string.h>

#define TOLERANCE 2e-6
#define REGS (ZK_MAX_IN + ZK_POINTWISE_MAX_OPS)

/* ---- the function in f64 ------------------------------------------------------------------------------ */
static double apply(const ZkPointwiseOp *o, double a, double b, double c) {
  switch (o->op) {
  case ZG_OP_FILL:
  case ZG_OP_AXSIZE: return o->num;
  case ZG_OP_CAST: return o->elem == ZK_F32 ? a : NAN; /* what rounds is nothing that we look for */
  default: return zg_pointwise(o->op, a, b, c);
  }
}

typedef struct {
  const ZkCall *call;
  int nin, nregs; /* registers: the product, the other inputs; all */
} Pointwise;

static Pointwise pointwise_of(const ZkCall *call) {
  Pointwise c = {call, call->nin - 1, call->nin - 1 + call->pointwise->nops};
  return c;
}

static const ZkPointwiseOp *op_of(const Pointwise *c, int reg) {
  return &c->call->pointwise->ops[reg - c->nin];
}

/* The value of register `of`, given those of the two registers x and y (-1: none): false if it depends on
 * others. */
static bool value_at(const Pointwise *c, int of, int x, double at_x, int y, double at_y, double *value) {
  double v[REGS];
  bool known[REGS];
  for (int i = 0; i <= of; i++) {
    const ZkPointwiseOp *o = i < c->nin ? NULL : op_of(c, i);
    known[i] = o != NULL;
    if (i == x || i == y) {
      known[i] = true, v[i] = i == x ? at_x : at_y;
      continue;
    }
    const uint16_t arg[3] = {o ? o->a : 0, o ? o->b : 0, o ? o->c : 0};
    double a[3] = {0, 0, 0};
    for (int k = 0; o && k < zg_op_info[o->op].min_in; k++)
      known[i] &= known[arg[k]], a[k] = known[i] ? v[arg[k]] : 0;
    if (known[i]) v[i] = apply(o, a[0], a[1], a[2]);
  }
  if (known[of]) *value = v[of];
  return known[of];
}

/* ---- sums --------------------------------------------------------------------------------------------- */
typedef struct {
  bool linear;
  double of[ZK_MAX_IN], one; /* coefficients of the product and the other inputs; a constant */
} Form;

static bool constant(const Form *f, int nin) {
  for (int k = 0; k < nin; k++)
    if (f->of[k] != 0) return false;
  return f->linear;
}

/* p a + q b */
static Form combine_forms(double p, const Form *a, double q, const Form *b) {
  Form f = {.linear = a->linear && b->linear, .one = p * a->one + q * b->one};
  for (int k = 0; k < ZK_MAX_IN; k++) f.of[k] = p * a->of[k] + q * b->of[k];
  return f;
}

static Form form_of_op(const Pointwise *c, const ZkPointwiseOp *o, const Form *f) {
  static const Form none;
  const Form *a = &f[o->a], *b = &f[o->b];
  bool all = true;
  int n = zg_op_info[o->op].min_in;
  for (int k = 0; k < n; k++) all &= constant(k == 0 ? a : k == 1 ? b : &f[o->c], c->nin);
  if (all) {
    double of_c = n > 2 ? f[o->c].one : 0;
    Form g = {.linear = true, .one = apply(o, n > 0 ? a->one : 0, n > 1 ? b->one : 0, of_c)};
    return g;
  }
  switch (o->op) {
  case ZG_OP_ADD: return combine_forms(1, a, 1, b);
  case ZG_OP_SUB: return combine_forms(1, a, -1, b);
  case ZG_OP_NEG: return combine_forms(-1, a, 0, a);
  case ZG_OP_MUL:
    return constant(b, c->nin)   ? combine_forms(b->one, a, 0, a)
           : constant(a, c->nin) ? combine_forms(a->one, b, 0, b)
                                 : none;
  case ZG_OP_DIV: return constant(b, c->nin) ? combine_forms(1 / b->one, a, 0, a) : none;
  case ZG_OP_CAST:
    if (o->elem != ZK_F32) return none;
    return *a;
  case ZG_OP_STOP:
  case ZG_OP_BROADCAST: return *a;
  default: return none;
  }
}

static void forms(const Pointwise *c, Form *f) {
  memset(f, 0, (size_t)c->nregs * sizeof *f);
  for (int i = 0; i < c->nregs; i++) {
    if (i < c->nin) f[i].linear = true, f[i].of[i] = 1;
    else f[i] = form_of_op(c, op_of(c, i), f);
  }
}

/* ---- operands by how they lie ------------------------------------------------------------------------- */
static bool lies_as(const ZkView *v, const ZkView *d) {
  if (v->elem != d->elem || v->rank != d->rank) return false;
  for (int i = 0; i < d->rank; i++)
    if (v->axis[i] != d->axis[i] || v->size[i] != d->size[i] ||
        (v->size[i] != 1 && v->stride[i] != d->stride[i]))
      return false;
  return true;
}

static bool in_class(const ZkDotAxes *class, uint16_t axis) {
  for (int i = 0; i < class->n; i++)
    if (class->ax[i] == axis) return true;
  return false;
}

static int last_axis(const ZkView *v, int rank) {
  while (rank > 0 && v->size[rank - 1] == 1) rank--;
  return rank;
}

/* Whether b is a dense vector along the fastest axes of d, all those of `class` and no others; of batched
 * products, one for each or one for all. */
static bool along(const ZkView *b, const ZkView *d, const ZkDotAxes *class, const ZkDotAxes *batch) {
  int i = last_axis(b, b->rank), j = last_axis(d, d->rank);
  int64_t n = 1;
  for (; n < class->count; i = last_axis(b, i - 1), j = last_axis(d, j - 1)) {
    if (i == 0 || j == 0 || b->axis[i - 1] != d->axis[j - 1] || !in_class(class, b->axis[i - 1]) ||
        b->stride[i - 1] != n || d->stride[j - 1] != n)
      return false;
    n *= b->size[i - 1];
  }
  bool each = i == 1 && batch->n == 1 && b->axis[0] == batch->ax[0] && b->stride[0] == n;
  return n > 1 && (i == 0 || each);
}

/* Sorts what the sum adds up into e. */
static bool place_sum(const Pointwise *c, const Form *f, ZkDotEpilogue *e) {
  const ZkCall *call = c->call;
  const ZkView *d = &call->out[e->out];
  ZkCall plain = *call;
  plain.out[0] = *d;
  ZkDot dot = zk_dot_of(&plain);
  e->alpha = (float)f->of[0], e->beta = 0;
  e->bias = e->full = -1;
  if (!f->linear || f->one != 0 || !(f->of[0] != 0) || !isfinite(f->of[0])) return false;
  for (int k = 1; k < c->nin; k++) {
    const ZkView *v = &call->in[k + 1];
    if (f->of[k] == 0) continue;
    if (e->full < 0 && lies_as(v, d)) {
      e->full = k + 1, e->beta = (float)f->of[k];
    } else if (e->bias < 0 && f->of[k] == 1 && v->elem == d->elem &&
               (along(v, d, &dot.n, &dot.batch) || along(v, d, &dot.m, &dot.batch))) {
      e->bias = k + 1, e->bias_along_m = !along(v, d, &dot.n, &dot.batch);
    } else {
      return false;
    }
  }
  return true;
}

/* ---- activations -------------------------------------------------------------------------------------- */
static double gelu(double x) { return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }
static double gelu_slope(double x) {
  double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}
static double relu(double x) { return x > 0 ? x : 0; }

static bool close_to(double got, double want, double x) {
  return fabs(got - want) <= TOLERANCE * (1 + fabs(x));
}

/* Whether register `of` is fn of register x, and of nothing else. */
static bool is_function(const Pointwise *c, int of, int x, double (*fn)(double)) {
  for (double t = -12; t <= 12; t += 0.09375) {
    double got;
    if (!value_at(c, of, x, t, -1, 0, &got) || !close_to(got, fn(t), t)) return false;
  }
  return true;
}

/* The register of which `of` is an activation: the last one that is a sum, since what it was computed from
 * are sums too. */
static bool find_activation(const Pointwise *c, const Form *f, int of, ZkDotEpilogue *e, int *sum) {
  for (int x = of - 1; x >= 0; x--) {
    if (!f[x].linear || constant(&f[x], c->nin)) continue;
    if (c->call->out[e->out].elem == ZK_BF16 && is_function(c, of, x, gelu)) e->kind = ZKD_GELU;
    else if (is_function(c, of, x, relu)) e->kind = ZKD_RELU;
    else continue;
    *sum = x;
    return true;
  }
  return false;
}

/* product * gelu'(full) */
static bool find_slope(const Pointwise *c, int of, ZkDotEpilogue *e) {
  const ZkView *d = &c->call->out[e->out];
  for (int y = 1; y < c->nin; y++) {
    bool is = d->elem == ZK_BF16 && lies_as(&c->call->in[y + 1], d);
    for (double t = -12; is && t <= 12; t += 0.09375) {
      double got;
      for (double g = -2; is && g <= 1; g += 3) /* -2, 1 */
        is = value_at(c, of, 0, g, y, t, &got) && close_to(got, g * gelu_slope(t), t);
    }
    if (!is) continue;
    *e = (ZkDotEpilogue){
        .kind = ZKD_GELU_SLOPE, .alpha = 1, .bias = -1, .full = -1, .aux = y + 1, .out = e->out};
    return true;
  }
  return false;
}

static bool same_form(const Form *a, const Form *b) {
  return a->linear && b->linear && a->one == b->one && memcmp(a->of, b->of, sizeof a->of) == 0;
}

/* Output `out` as the result of the product with its epilogue, and the other one, if there is, as what GELU
 * is of. */
static bool fits(const Pointwise *c, const Form *f, int out, ZkDotEpilogue *e) {
  const ZkCall *call = c->call;
  const ZkPointwise *pointwise = call->pointwise;
  int of = pointwise->out[out], other = pointwise->out[1 - out], sum;
  *e = (ZkDotEpilogue){.kind = ZKD_SUM, .out = out, .aux = -1};
  if (call->nout == 1 && place_sum(c, &f[of], e)) return true;
  if (find_activation(c, f, of, e, &sum) && place_sum(c, &f[sum], e)) {
    if (call->nout == 1) return true;
    e->aux = 1 - out;
    return e->kind == ZKD_GELU && same_form(&f[sum], &f[other]) &&
           lies_as(&call->out[1 - out], &call->out[out]);
  }
  return call->nout == 1 && find_slope(c, of, e);
}

bool zk_dot_epilogue(const ZkCall *call, ZkDotEpilogue *e) {
  *e = (ZkDotEpilogue){.kind = ZKD_SUM, .alpha = 1, .bias = -1, .full = -1, .aux = -1};
  if (!call->pointwise) {
    if (call->op == ZG_OP_DOT_BIAS_GRAD) e->kind = ZKD_COLUMN_SUMS;
    return true;
  }
  Pointwise c = pointwise_of(call);
  Form f[REGS];
  if (call->nout > 2 || call->accumulate) return false;
  for (int k = 0; k < call->nout; k++)
    if (call->out[k].elem != ZK_F32 && call->out[k].elem != ZK_BF16) return false;
  forms(&c, f);
  for (int k = 0; k < call->nout; k++)
    if (fits(&c, f, k, e)) return true;
  return false;
}

/* In f32 a product takes so long that a sum beside it is nothing. */
static bool worth_summing(const ZkCall *call, const ZkDot *d) {
  bool half = call->in[0].elem == ZK_BF16 && call->in[1].elem == ZK_BF16;
  return half && (d->batch.n == 0 || zk_dot_shares_operand(d));
}

/* No activations of batched products: a cuBLASLt of 12.2 takes the first bias for all. */
bool zk_cuda_dot_supports(const ZkCall *call) {
  ZkDotEpilogue e;
  ZkUnfused u;
  for (int i = 0; i < call->nin; i++)
    if (zk_is_packed((ZkElem)call->in[i].elem)) return false;
  if (!zk_dot_epilogue(call, &e)) return false;
  zk_unfuse(call, &u);
  ZkDot d = zk_dot_of(&u.call[0]);
  bool shared = zk_dot_shares_operand(&d);
  if (d.m.count * d.n.count == 1) return false;
  if (e.kind == ZKD_COLUMN_SUMS) return worth_summing(call, &d);
  return call->pointwise ? !shared || e.kind == ZKD_SUM : shared;
}

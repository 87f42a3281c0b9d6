/* The derivative of each operation, as nodes. A rule sees the forward node and the cotangents of its results
 * and gives each float operand its share; zc_grad_give drops shares that nobody wants and fits the rest to
 * the operand's type, so that rules need not think about broadcasting.
 *
 * Where a derivative is not unique: `max` and `min` give ties to the second operand (so max(x, 0) has slope 0
 * at 0, as relu has everywhere else); `peak` shares a tie equally. */
#include "compiler/grad.h"

#include <math.h>
#include <string.h>

typedef struct {
  ZcGrad *b;
  const ZgNode *n;
  uint32_t y, g; /* first result and its cotangent */
} Rule;

static uint32_t node1(Rule *r, ZgOp op, uint32_t x) {
  return zc_grad_node(r->b, (ZgNode){.op = op}, 1, &x, NULL);
}
static uint32_t node2(Rule *r, ZgOp op, uint32_t x, uint32_t y) {
  return zc_grad_node(r->b, (ZgNode){.op = op}, 2, (uint32_t[]){x, y}, NULL);
}
static uint32_t node3(Rule *r, ZgOp op, uint32_t x, uint32_t y, uint32_t z) {
  return zc_grad_node(r->b, (ZgNode){.op = op}, 3, (uint32_t[]){x, y, z}, NULL);
}
static const ZgType *type_of(const Rule *r, uint32_t v) { return &r->b->s->values[v].type; }

/* A scalar in the element type of `like`. */
static uint32_t number(Rule *r, double x, uint32_t like) {
  ZgType t = zg_type(type_of(r, like)->elem, NULL, 0);
  return zc_grad_fill(r->b, x, &t);
}
static uint32_t scaled(Rule *r, uint32_t v, double by) { return node2(r, ZG_OP_MUL, v, number(r, by, v)); }

static bool wanted(const Rule *r, int i) { return r->b->varied[r->n->in[i]]; }
static void give(Rule *r, int i, uint32_t v) { zc_grad_give(r->b, r->n->in[i], v); }

static bool no_derivative(Rule *r, const char *why, const char *help) {
  const ZgLoc *l = &r->b->g->locs[r->n->loc];
  return zb_fail(r->b->err, help, "%s:%u:%u: %s has no derivative%s", l->file, l->line, l->col,
                 zg_op_info[r->n->op].text, why);
}

/* ---- elementwise --------------------------------------------------------------------------------------- */
static void unary(Rule *r) {
  uint32_t x = r->n->in[0], y = r->y, g = r->g;
  switch (r->n->op) {
  case ZG_OP_NEG: give(r, 0, node1(r, ZG_OP_NEG, g)); break;
  case ZG_OP_EXP: give(r, 0, node2(r, ZG_OP_MUL, g, y)); break;
  case ZG_OP_LOG: give(r, 0, node2(r, ZG_OP_DIV, g, x)); break;
  case ZG_OP_SQRT: give(r, 0, node2(r, ZG_OP_DIV, scaled(r, g, 0.5), y)); break;
  case ZG_OP_RSQRT: { /* d x^-1/2 = -1/2 x^-3/2 */
    uint32_t cube = node2(r, ZG_OP_MUL, node2(r, ZG_OP_MUL, y, y), y);
    give(r, 0, node2(r, ZG_OP_MUL, scaled(r, g, -0.5), cube));
    break;
  }
  case ZG_OP_TANH: { /* g (1 - y y) */
    uint32_t slope = node2(r, ZG_OP_SUB, number(r, 1, y), node2(r, ZG_OP_MUL, y, y));
    give(r, 0, node2(r, ZG_OP_MUL, g, slope));
    break;
  }
  case ZG_OP_ERF: { /* 2/sqrt(pi) exp(-x x) */
    uint32_t bell = node1(r, ZG_OP_EXP, node1(r, ZG_OP_NEG, node2(r, ZG_OP_MUL, x, x)));
    give(r, 0, node2(r, ZG_OP_MUL, scaled(r, g, M_2_SQRTPI), bell));
    break;
  }
  case ZG_OP_ABS: give(r, 0, node2(r, ZG_OP_MUL, g, node1(r, ZG_OP_SIGN, x))); break;
  case ZG_OP_SIGMOID: { /* g y (1 - y) */
    uint32_t slope = node2(r, ZG_OP_MUL, y, node2(r, ZG_OP_SUB, number(r, 1, y), y));
    give(r, 0, node2(r, ZG_OP_MUL, g, slope));
    break;
  }
  case ZG_OP_LOG1P: give(r, 0, node2(r, ZG_OP_DIV, g, node2(r, ZG_OP_ADD, x, number(r, 1, x)))); break;
  case ZG_OP_SIN: give(r, 0, node2(r, ZG_OP_MUL, g, node1(r, ZG_OP_COS, x))); break;
  case ZG_OP_COS: give(r, 0, node1(r, ZG_OP_NEG, node2(r, ZG_OP_MUL, g, node1(r, ZG_OP_SIN, x)))); break;
  case ZG_OP_CAST:
  case ZG_OP_BROADCAST: give(r, 0, g); break;
  default: ZB_BUG("`%s` has no gradient rule", zg_op_info[r->n->op].text);
  }
}

/* The cotangent where `c` is `keep`, else 0. */
static uint32_t where(Rule *r, uint32_t c, bool keep) {
  uint32_t zero = number(r, 0, r->g);
  return node3(r, ZG_OP_SELECT, c, keep ? r->g : zero, keep ? zero : r->g);
}

static bool is_number_but_0(const Rule *r, uint32_t v) {
  const ZgNode *n = &r->b->s->nodes[r->b->s->values[v].node];
  return n->op == ZG_OP_FILL && n->num[0] != 0;
}

/* `v`, but 0 where `x` is 0. */
static uint32_t unless_0(Rule *r, uint32_t x, uint32_t v) {
  uint32_t is = node2(r, ZG_OP_EQUAL, x, number(r, 0, x));
  return node3(r, ZG_OP_SELECT, is, number(r, 0, v), v);
}

/* y = a^b: da = g b a^(b - 1), db = g y log(a). Where b or y is 0 so is the product's limit, and its other
 * factor may be infinite. */
static void power(Rule *r) {
  uint32_t a = r->n->in[0], b = r->n->in[1];
  if (wanted(r, 0)) {
    uint32_t less = node2(r, ZG_OP_POW, a, node2(r, ZG_OP_SUB, b, number(r, 1, b)));
    uint32_t slope = node2(r, ZG_OP_MUL, b, less);
    if (!is_number_but_0(r, b)) slope = unless_0(r, b, slope);
    give(r, 0, node2(r, ZG_OP_MUL, r->g, slope));
  }
  if (wanted(r, 1)) {
    uint32_t slope = node2(r, ZG_OP_MUL, r->y, node1(r, ZG_OP_LOG, a));
    give(r, 1, node2(r, ZG_OP_MUL, r->g, unless_0(r, r->y, slope)));
  }
}

static void binary(Rule *r) {
  uint32_t a = r->n->in[0], b = r->n->in[1], g = r->g;
  switch (r->n->op) {
  case ZG_OP_ADD:
    give(r, 0, g);
    give(r, 1, g);
    break;
  case ZG_OP_SUB:
    give(r, 0, g);
    if (wanted(r, 1)) give(r, 1, node1(r, ZG_OP_NEG, g));
    break;
  case ZG_OP_MUL:
    if (wanted(r, 0)) give(r, 0, node2(r, ZG_OP_MUL, g, b));
    if (wanted(r, 1)) give(r, 1, node2(r, ZG_OP_MUL, g, a));
    break;
  case ZG_OP_DIV: { /* da = g/b, db = -(g/b) y */
    uint32_t da = node2(r, ZG_OP_DIV, g, b);
    give(r, 0, da);
    if (wanted(r, 1)) give(r, 1, node1(r, ZG_OP_NEG, node2(r, ZG_OP_MUL, da, r->y)));
    break;
  }
  case ZG_OP_POW: power(r); break;
  case ZG_OP_MAX:
  case ZG_OP_MIN: { /* the first operand only if it wins outright */
    bool max = r->n->op == ZG_OP_MAX;
    uint32_t first = max ? node2(r, ZG_OP_LESS, b, a) : node2(r, ZG_OP_LESS, a, b);
    if (wanted(r, 0)) give(r, 0, where(r, first, true));
    if (wanted(r, 1)) give(r, 1, where(r, first, false));
    break;
  }
  default: ZB_BUG("`%s` has no gradient rule", zg_op_info[r->n->op].text);
  }
}

static void select_rule(Rule *r) {
  if (wanted(r, 1)) give(r, 1, where(r, r->n->in[0], true));
  if (wanted(r, 2)) give(r, 2, where(r, r->n->in[0], false));
}

/* ---- moving -------------------------------------------------------------------------------------------- */
static void move(Rule *r) {
  const ZgNode *n = r->n;
  ZgNode back = {.op = n->op, .nax = 2, .ax = {n->ax[1], n->ax[0]}};
  if (n->op == ZG_OP_SHIFT) back = (ZgNode){.op = n->op, .nax = 1, .ax = {n->ax[0]}, .opt = {-n->opt[0]}};
  if (n->op == ZG_OP_SLICE) {
    back.op = ZG_OP_PAD;
    back.opt[0] = n->opt[0];
  } else if (n->op == ZG_OP_PAD) {
    back.op = ZG_OP_SLICE;
    back.opt[0] = n->opt[0];
    back.opt[1] = r->b->g->axes[n->ax[0]].size;
  }
  give(r, 0, zc_grad_node(r->b, back, 1, &r->g, NULL));
}

/* Each is the other's inverse; both have the slowest part before the others. */
static void regroup(Rule *r) {
  const ZgNode *n = r->n;
  bool merge = n->op == ZG_OP_MERGE;
  int last = n->nax - 1;
  ZgNode back = {.op = merge ? ZG_OP_PART : ZG_OP_MERGE, .nax = n->nax};
  for (int i = 0; i < last; i++) back.ax[merge ? i : i + 1] = n->ax[merge ? i + 1 : i];
  back.ax[merge ? last : 0] = n->ax[merge ? 0 : last];
  give(r, 0, zc_grad_node(r->b, back, 1, &r->g, NULL));
}

static void concat(Rule *r) {
  int64_t start = 0;
  for (int i = 0; i < r->n->nin; i++) {
    int64_t count = r->b->g->axes[r->n->ax[i + 1]].size;
    ZgNode part = {.op = ZG_OP_SLICE, .nax = 2, .ax = {r->n->ax[0], r->n->ax[i + 1]}, .opt = {start, count}};
    if (wanted(r, i)) give(r, i, zc_grad_node(r->b, part, 1, &r->g, NULL));
    start += count;
  }
}

/* ---- reductions and products --------------------------------------------------------------------------- */
static bool peak(Rule *r) {
  const ZgNode *n = r->n;
  if (n->opt[1]) return no_derivative(r, " over a padded axis", NULL);
  uint32_t is = node2(r, ZG_OP_EQUAL, n->in[0], r->y), one = number(r, 1, r->g), zero = number(r, 0, r->g);
  ZgNode count = {.op = ZG_OP_SUM, .nax = n->nax};
  for (int i = 0; i < n->nax; i++) count.ax[i] = n->ax[i];
  uint32_t ties = node3(r, ZG_OP_SELECT, is, one, zero);
  uint32_t share = node2(r, ZG_OP_DIV, r->g, zc_grad_node(r->b, count, 1, &ties, NULL));
  give(r, 0, node3(r, ZG_OP_SELECT, is, share, zero));
  return true;
}

/* y = dot[C](a, b): the cotangent of a contracts what only b has; that of b what only a has. Batched axes
 * stay batched. With nothing to contract it is a product of elements. */
static uint32_t dot_side(Rule *r, int want) {
  const ZgType *mine = type_of(r, r->n->in[want]), *other = type_of(r, r->n->in[!want]);
  ZgNode n = {.op = ZG_OP_DOT};
  for (int i = 0; i < other->naxes; i++)
    if (zg_type_has(type_of(r, r->g), other->axis[i]) && !zg_type_has(mine, other->axis[i]))
      n.ax[n.nax++] = other->axis[i];
  uint32_t x = r->n->in[!want];
  if (n.nax) return zc_grad_node(r->b, n, 2, want ? (uint32_t[]){x, r->g} : (uint32_t[]){r->g, x}, NULL);
  ZgType full = zg_type_union(type_of(r, r->g), other);
  return node2(r, ZG_OP_MUL, zc_grad_fit(r->b, r->g, &full), x);
}

static void dot(Rule *r) {
  for (int i = 0; i < 2; i++)
    if (wanted(r, i)) give(r, i, dot_side(r, i));
}

/* Of x, w and y two make the third, and a cotangent of one is as it is: so the cotangent of each operand is
 * made of the result's and of the other operand. */
static uint32_t conv_side(Rule *r, int want) {
  static const ZgOp makes[] = {
      [ZG_CONV_X] = ZG_OP_CONV_TRANSPOSE, [ZG_CONV_W] = ZG_OP_CONV_GRAD, [ZG_CONV_Y] = ZG_OP_CONV};
  const ZgNode *n = r->n;
  uint32_t by[3];
  by[zg_conv_tensor(n->op, !want)] = n->in[!want];
  by[zg_conv_tensor(n->op, 2)] = r->g;
  ZgNode d = {.nax = n->nax, .num = {n->num[0]}, .opt = {n->opt[0], n->opt[1]}};
  memcpy(d.ax, n->ax, sizeof d.ax);
  d.op = (uint16_t)makes[zg_conv_tensor(n->op, want)];
  uint32_t in[] = {by[zg_conv_tensor(d.op, 0)], by[zg_conv_tensor(d.op, 1)]};
  return zc_grad_node(r->b, d, 2, in, type_of(r, n->in[want]));
}

static void conv(Rule *r) {
  for (int i = 0; i < 2; i++)
    if (wanted(r, i)) give(r, i, conv_side(r, i));
}

/* ---- attention ----------------------------------------------------------------------------------------- */
/* A sink is a key of value 0: ds = -exp(sink - l) g.o, of every query. */
static uint32_t sink_grad(Rule *r, uint32_t sink) {
  ZgAttendAxes ax = zg_attend_axes(r->n->ax, r->n->nax);
  ZgNode dot = {.op = ZG_OP_DOT, .nax = 1, .ax = {ax.w}};
  uint32_t go = zc_grad_node(r->b, dot, 2, (uint32_t[]){r->g, r->y}, NULL), l = r->n->out + 1;
  uint32_t share = node1(r, ZG_OP_EXP, node2(r, ZG_OP_SUB, sink, l));
  return node1(r, ZG_OP_NEG, node2(r, ZG_OP_MUL, share, go));
}

/* With attend_grad in `d`: q, k and v, then a bias and sinks, if there are any (graph/OPS.md). */
static void attend_grads(Rule *r, ZgNode *d) {
  const ZgNode *n = r->n;
  uint32_t in[ZG_MAX_IN] = {r->g, r->y, n->out + 1}, nin = 3;
  ZgAttendAxes ax = zg_attend_axes(n->ax, n->nax);
  int bias = -1, sink = -1;
  for (int i = 0; i < n->nin; i++) {
    const ZgType *t = type_of(r, n->in[i]);
    bool real = t->elem != ZG_I32 && t->elem != ZG_INDEX, more = i > 2 && real;
    if (more && zg_type_has(t, ax.k)) bias = i;
    else if (more) sink = i;
    if (i != sink) in[nin++] = n->in[i];
  }
  if (wanted(r, 0) || wanted(r, 1) || wanted(r, 2)) {
    uint32_t dq = zc_grad_node(r->b, *d, (int)nin, in, NULL);
    for (int i = 0; i < 3; i++) give(r, i, dq + (uint32_t)i);
  }
  d->op = ZG_OP_ATTEND_BIAS_GRAD;
  if (bias >= 0 && wanted(r, bias)) give(r, bias, zc_grad_node(r->b, *d, (int)nin, in, NULL));
  if (sink >= 0 && wanted(r, sink)) give(r, sink, sink_grad(r, n->in[sink]));
}

/* ---- recurrences ----------------------------------------------------------------------------------------- */
/* h_i = a_i h_p + b_i, p the element before i in the scan's order; late: a_p h_p. db is the scan of dh in the
 * other order, where late and not late change places; da_i = db_i h_p, late: db_n h_i, n the element after i. */
static void scan(Rule *r) {
  const ZgNode *n = r->n;
  bool reverse = n->opt[0], late = n->opt[1];
  ZgNode d = *n, beside = {.op = ZG_OP_SHIFT, .nax = 1, .ax = {n->ax[0]}};
  d.opt[0] = !reverse, d.opt[1] = !late;
  uint32_t db = zc_grad_node(r->b, d, 2, (uint32_t[]){n->in[0], r->g}, NULL), moved = late ? db : r->y;
  give(r, 1, db);
  if (!wanted(r, 0)) return;
  beside.opt[0] = reverse == late ? 1 : -1;
  moved = zc_grad_node(r->b, beside, 1, &moved, NULL);
  give(r, 0, late ? node2(r, ZG_OP_MUL, moved, r->y) : node2(r, ZG_OP_MUL, db, moved));
}

static void linear_attend(Rule *r) {
  const ZgNode *n = r->n;
  ZgNode d = *n;
  uint32_t in[ZG_MAX_IN] = {r->g};
  for (int i = 0; i < n->nin; i++) in[i + 1] = n->in[i];
  d.op = ZG_OP_LINEAR_ATTEND_GRAD;
  uint32_t first = zc_grad_node(r->b, d, n->nin + 1, in, NULL);
  for (int i = 0; i < n->nin; i++) give(r, i, first + (uint32_t)i);
}

/* ---- the ops with a kernel for their derivative -------------------------------------------------------- */
static bool with_kernel(Rule *r) {
  const ZgNode *n = r->n;
  ZgNode d = *n; /* same axis arguments and attributes */
  uint32_t y1 = n->out + 1;
  switch (n->op) {
  case ZG_OP_SOFTMAX:
    d.op = ZG_OP_SOFTMAX_GRAD;
    give(r, 0, zc_grad_node(r->b, d, 2, (uint32_t[]){r->g, r->y}, NULL));
    return true;
  case ZG_OP_CUMSUM: /* an element is in the sums of those after it */
    d.opt[0] = !n->opt[0];
    give(r, 0, zc_grad_node(r->b, d, 1, &r->g, NULL));
    return true;
  case ZG_OP_SCAN: scan(r); return true;
  case ZG_OP_LINEAR_ATTEND: linear_attend(r); return true;
  case ZG_OP_ROPE: /* a rotation: its transpose is its inverse */
    d.opt[0] = !n->opt[0];
    give(r, 0, zc_grad_node(r->b, d, 1, &r->g, NULL));
    return true;
  case ZG_OP_ROTATE:
    if (wanted(r, 1) || wanted(r, 2))
      return no_derivative(r, " of its positions and speeds",
                           "write `stop(...)` around what they are made of");
    d.opt[0] ^= ZG_ROTATE_BACK;
    give(r, 0, zc_grad_node(r->b, d, 3, (uint32_t[]){r->g, n->in[1], n->in[2]}, NULL));
    return true;
  case ZG_OP_NORMALIZE:
    if (r->b->cot[y1] != ZG_NONE) return no_derivative(r, " of its scale", NULL);
    d.op = ZG_OP_NORMALIZE_GRAD;
    give(r, 0, zc_grad_node(r->b, d, 3, (uint32_t[]){r->g, r->y, y1}, NULL));
    return true;
  case ZG_OP_ATTEND: {
    if (r->b->cot[y1] != ZG_NONE) return no_derivative(r, " of its log sum exp", NULL);
    d.op = ZG_OP_ATTEND_GRAD;
    attend_grads(r, &d);
    return true;
  }
  case ZG_OP_TOPK: /* to the chosen */
    d.op = ZG_OP_ONEHOT;
    memset(d.opt, 0, sizeof d.opt);
    give(r, 0, zc_grad_node(r->b, d, 2, (uint32_t[]){y1, r->g}, NULL));
    return true;
  case ZG_OP_LOOKUP:
    d.op = ZG_OP_LOOKUP_GRAD;
    give(r, 0, zc_grad_node(r->b, d, 2, (uint32_t[]){r->g, n->in[1]}, type_of(r, n->in[0])));
    return true;
  default: return no_derivative(r, "", NULL);
  }
}

/* Each is the other's transpose. What is summed over choices in one is repeated for each in the other. */
static void experts(Rule *r) {
  const ZgNode *n = r->n;
  const ZgType *x = type_of(r, n->in[0]);
  bool out = n->op == ZG_OP_DISPATCH;
  ZgNode back = {.op = out ? ZG_OP_COMBINE : ZG_OP_DISPATCH, .nax = 3, .ax = {n->ax[0], n->ax[1], n->ax[2]}};
  back.opt[0] = out && zg_type_has(x, n->ax[2]);
  ZgType t = *type_of(r, r->g);
  t.elem = x->elem; /* what combine gives in f32 travels as its rows did */
  uint32_t g = out ? r->g : zc_grad_fit(r->b, r->g, &t);
  give(r, 0, zc_grad_node(r->b, back, 2, (uint32_t[]){g, n->in[1]}, NULL));
}

/* s = sum exp(z - m), p = z[t]: dz by a kernel, dm = -gs s. */
static void xent_sums(Rule *r) {
  const ZgNode *n = r->n;
  uint32_t g[2];
  for (int i = 0; i < 2; i++) {
    uint32_t y = n->out + (uint32_t)i;
    g[i] = r->b->cot[y] != ZG_NONE ? r->b->cot[y] : zc_grad_fill(r->b, 0, type_of(r, y));
  }
  ZgNode d = *n;
  d.op = ZG_OP_XENT_GRAD;
  uint32_t in[] = {n->in[0], n->in[1], n->in[2], g[0], g[1]};
  if (wanted(r, 0)) give(r, 0, zc_grad_node(r->b, d, 5, in, NULL));
  if (wanted(r, 1)) give(r, 1, node1(r, ZG_OP_NEG, node2(r, ZG_OP_MUL, g[0], n->out)));
}

bool zc_grad_rule(ZcGrad *b, const ZgNode *n) {
  Rule r = {b, n, n->out, b->cot[n->out]};
  if (n->op == ZG_OP_XENT_SUMS) {
    xent_sums(&r);
    return true;
  }
  if (r.g == ZG_NONE) r.g = zc_grad_fill(b, 0, type_of(&r, n->out)); /* only the second result has one */
  if (zg_op_info[n->op].kind == ZG_EW) {
    if (n->nin == 1) unary(&r);
    else if (n->nin == 2) binary(&r);
    else select_rule(&r);
    return true;
  }
  switch (n->op) {
  case ZG_OP_RENAME:
  case ZG_OP_SLICE:
  case ZG_OP_PAD:
  case ZG_OP_SHIFT: move(&r); return true;
  case ZG_OP_CONCAT: concat(&r); return true;
  case ZG_OP_MERGE:
  case ZG_OP_PART: regroup(&r); return true;
  case ZG_OP_SUM: give(&r, 0, r.g); return true; /* repeated along the summed axes */
  case ZG_OP_PEAK: return peak(&r);
  case ZG_OP_DISPATCH:
  case ZG_OP_COMBINE: experts(&r); return true;
  case ZG_OP_DOT: dot(&r); return true;
  case ZG_OP_CONV:
  case ZG_OP_CONV_TRANSPOSE: conv(&r); return true;
  default: return with_kernel(&r);
  }
}

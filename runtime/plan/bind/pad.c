/* Decides whether padding an axis can change the result.
 *
 * * The entries that `pad` adds are zeros in parameters, and are never looked up or a target. The check
 * follows the padded entries through forward and backward: what does each value hold there? A sum over them
 * is right if they are zeros, and so is a parameter's gradient, whose added rows must stay zero for ever.
 *
 * * Example, ffn padded: h = dot[embed](x, up) is 0 there, silu(h) = h / (1 + exp(-h)) is 0 / (1 + 1) = 0, so
 * dot[ffn](silu(h), down) adds zeros. sigmoid(h) is 0.5: the sum would still be right since `down` has zeros
 * there, but not the gradient of `down`. */
#include "runtime/plan/bind/bind.h"
#include "runtime/plan/text.h"

#include <math.h>

/* KNOWN: all padded entries are x (all entries, of a value without the axis). ANY: finite numbers. BAD:
 * perhaps not even that. */
typedef enum { KNOWN, ANY, BAD } Kind;
typedef struct {
  Kind kind;
  double x;
} Held;

typedef struct {
  const ZpPlan *p;
  const ZgSegment *s;
  uint16_t axis;
  Held *held; /* per value of the segment */
  const ZgNode *n;
  bool size, sum; /* this node needs the true size; or sums up padding that is not zero */
} Pads;

static Held known(double x) { return isfinite(x) ? (Held){KNOWN, x} : (Held){.kind = BAD}; }
static bool is_zero(Held h) { return h.kind == KNOWN && h.x == 0; }
static bool has(const Pads *c, uint32_t v) { return zg_type_has(&c->s->values[v].type, c->axis); }
static Held in(const Pads *c, int i) { return c->held[c->n->in[i]]; }

static Held elementwise(const Pads *c) {
  const ZgNode *n = c->n;
  if (n->op == ZG_OP_FILL) return known(n->num[0]);
  if (n->nin == 0 || n->op == ZG_OP_KNOWN) return (Held){.kind = ANY};
  Held a = in(c, 0), b = n->nin > 1 ? in(c, 1) : a;
  if (n->op == ZG_OP_SELECT) {
    Held d = in(c, 2);
    if (a.kind == KNOWN) return a.x != 0 ? b : d;
    if (b.kind == KNOWN && d.kind == KNOWN && b.x == d.x) return b;
    return (Held){.kind = b.kind == BAD || d.kind == BAD ? BAD : ANY};
  }
  if (a.kind == BAD || b.kind == BAD) return (Held){.kind = BAD};
  if (n->op == ZG_OP_CAST) return a;
  if (a.kind == KNOWN && b.kind == KNOWN) return known(zg_pointwise(n->op, a.x, b.x, 0));
  if (n->op == ZG_OP_MUL && (is_zero(a) || is_zero(b))) return known(0);
  if (n->op ==
      ZG_OP_DIV) { /* what the model divides by elsewhere is taken to be right; what padding holds is not */
    if (b.kind == KNOWN ? b.x == 0 : has(c, n->in[1])) return (Held){.kind = BAD};
    return is_zero(a) ? a : (Held){.kind = ANY};
  }
  bool padded = has(c, n->in[0]) || (n->nin > 1 && has(c, n->in[1]));
  return (Held){.kind = zg_op_info[n->op].partial && padded ? BAD : ANY};
}

/* Operations that are linear in operand i give zeros for zeros. */
static Held linear(const Pads *c, int i) {
  for (int k = 0; k < c->n->nin; k++)
    if (in(c, k).kind == BAD) return (Held){.kind = BAD};
  return is_zero(in(c, i)) ? known(0) : (Held){.kind = ANY};
}

static Held dot(Pads *c, bool named) {
  bool zero = false;
  for (int i = 0; i < 2; i++) zero |= has(c, c->n->in[i]) && is_zero(in(c, i));
  if (in(c, 0).kind == BAD || in(c, 1).kind == BAD) zero = false;
  if (named) c->sum |= !zero;
  return zero && !named ? known(0) : linear(c, 0).kind == BAD ? (Held){.kind = BAD} : (Held){.kind = ANY};
}

/* Returns whether the convolution sums over the axis besides its windows: both operands have it, and the
 * result does not. */
static bool sums(const Pads *c) {
  const ZgNode *n = c->n;
  return zg_is_conv(n->op) && has(c, n->in[0]) && has(c, n->in[1]) && !has(c, n->out);
}

static Held conv(Pads *c, bool named) {
  bool spatial = named && !sums(c);
  c->size |= spatial;
  return spatial ? (Held){.kind = ANY} : dot(c, named);
}

/* All operands joined must hold the same. */
static Held joined(const Pads *c) {
  Held h = in(c, 0);
  for (int i = 1; i < c->n->nin; i++) {
    Held k = in(c, i);
    if (k.kind == BAD || h.kind == BAD) h.kind = BAD;
    else if (k.kind == ANY || h.x != k.x) h.kind = ANY;
  }
  return h;
}

/* Returns what the results of a node hold. `named`: the axis is one of the node's own. */
static Held held_by(Pads *c, bool named) {
  const ZgNode *n = c->n;
  switch (n->op) {
  case ZG_OP_PARAM: /* a state's added entries become what its update makes of zeros */
    if (c->p->graph->params[n->opt[0]].state) return (Held){.kind = ANY};
    return has(c, n->out) ? known(0) : (Held){.kind = ANY};
  case ZG_OP_CARRY:
  case ZG_OP_DCARRY: return has(c, n->out) ? known(0) : (Held){.kind = ANY};
  case ZG_OP_INPUT: c->size |= has(c, n->out); return (Held){.kind = ANY};
  case ZG_OP_POSITION:
    c->size |= n->ax[0] == c->axis && n->nax > 1; /* it may have as many as ax[1], no more */
    return (Held){.kind = ANY};                   /* ax[1] is only selected from */
  case ZG_OP_SUM: c->sum |= named && !is_zero(in(c, 0)); return linear(c, 0);
  case ZG_OP_CUMSUM: /* padding comes last; in reverse order it comes first, and must add nothing */
    c->sum |= named && n->opt[0] && !is_zero(in(c, 0));
    return named && !n->opt[0] && in(c, 0).kind != BAD ? (Held){.kind = ANY} : linear(c, 0);
  case ZG_OP_SCAN: /* likewise, of what is added */
    c->sum |= named && n->opt[0] && !is_zero(in(c, 1));
    return named && !n->opt[0] && linear(c, 1).kind != BAD ? (Held){.kind = ANY} : linear(c, 1);
  case ZG_OP_PEAK: c->size |= named && n->ax[0] != c->axis; return named ? (Held){.kind = ANY} : in(c, 0);
  case ZG_OP_DOT: return dot(c, named);
  case ZG_OP_DISPATCH:
  case ZG_OP_COMBINE: c->size |= named; return linear(c, 0);
  case ZG_OP_CONV:
  case ZG_OP_CONV_TRANSPOSE:
  case ZG_OP_CONV_GRAD: return conv(c, named);
  case ZG_OP_LOOKUP: return named ? (Held){.kind = ANY} : linear(c, 0);
  case ZG_OP_LOOKUP_GRAD: return named ? known(0) : linear(c, 0);
  case ZG_OP_TOPK: c->size |= named; return linear(c, 0);
  case ZG_OP_ONEHOT:
    if (n->ax[0] == c->axis) return known(0);
    c->sum |= named && (n->nin < 2 || !is_zero(in(c, 1)));
    return n->nin > 1 ? linear(c, 1) : (Held){.kind = ANY};
  case ZG_OP_XENT_SUMS: return (Held){.kind = ANY};
  case ZG_OP_XENT_GRAD: return named ? known(0) : (Held){.kind = ANY};
  case ZG_OP_SOFTMAX: return named ? known(0) : (Held){.kind = in(c, 0).kind == BAD ? BAD : ANY}; /* masked */
  case ZG_OP_SOFTMAX_GRAD: return named ? linear(c, 1) : linear(c, 0);
  case ZG_OP_NORMALIZE: c->size |= named; return linear(c, 0); /* rows of zeros stay so */
  case ZG_OP_RENAME:
  case ZG_OP_SLICE:
  case ZG_OP_CONCAT:
  case ZG_OP_MERGE:
  case ZG_OP_PART: c->size |= named; return joined(c);
  case ZG_OP_PAD:
  case ZG_OP_SHIFT: c->size |= named; return linear(c, 0);
  default: break;
  }
  const ZgOpInfo *o = &zg_op_info[n->op];
  c->size |= named;
  if (o->kind == ZG_EW) return elementwise(c);
  for (int i = 0; i < n->nin; i++)
    if (o->linear >> i & 1) return linear(c, i);
  return (Held){.kind = ANY};
}

/* Checks that padded entries are zero in values that leave a segment or become a gradient. */
static void check_sink(Pads *c) {
  uint16_t op = c->n->op;
  if (op == ZG_OP_PARAM_GRAD && c->p->graph->params[c->n->opt[0]].state) return;
  if (op == ZG_OP_PARAM_GRAD || op == ZG_OP_CARRY_OUT || op == ZG_OP_DCARRY_IN)
    c->sum |= has(c, c->n->in[0]) && !is_zero(in(c, 0));
}

static void visit(Pads *c) {
  const ZgNode *n = c->n;
  if (zg_op_info[n->op].kind == ZG_SINK) {
    check_sink(c);
    return;
  }
  bool named = sums(c), operand = false;
  for (int i = 0; i < n->nax; i++) named |= n->ax[i] == c->axis;
  for (int i = 0; i < n->nin; i++) operand |= has(c, n->in[i]);
  Held h = held_by(c, named);
  for (int i = 0; i < n->nout; i++) {
    uint32_t v = n->out + (uint32_t)i;
    bool gradients = n->op == ZG_OP_ATTEND_GRAD || n->op == ZG_OP_LINEAR_ATTEND_GRAD;
    bool second = i > 0 && !gradients; /* statistics of rows, which nothing says more about */
    c->held[v] = second ? (Held){.kind = h.kind == BAD ? BAD : ANY} : h;
    if (operand && !named && !has(c, v))
      c->sum |= !is_zero(h); /* summed without being named: grouped keys, rows of ids */
  }
}

bool zp_check_pad(ZpBuild *b, const ZlBind *pad, uint16_t axis) {
  Pads c = {.p = b->p, .axis = axis};
  for (uint32_t s = 0; s < b->p->graph->nsegments; s++) {
    c.s = &b->p->graph->segments[s];
    c.held = ZB_NEWN(b->p->arena, Held, c.s->nvalues + 1);
    for (uint32_t k = 0; k < c.s->nnodes; k++) {
      c.n = &c.s->nodes[k];
      visit(&c);
      if (!c.size && !c.sum) continue;
      bool gradient = c.n->op == ZG_OP_PARAM_GRAD;
      const char *what = gradient ? b->p->graph->params[c.n->opt[0]].path : zg_op_info[c.n->op].text;
      ZlDiag *e =
          zl_report(b->d, ZL_Z0308, pad->axis.span, "`%s` cannot be padded: %s`%s` at %s %s", pad->axis.s,
                    gradient ? "the gradient of " : "", what, zp_loc_text(b->p, c.n->loc),
                    c.size     ? "needs its true size"
                    : gradient ? "is not zero for the added entries"
                               : "would count added entries that are not zero");
      zl_note(e, "added entries must stay zeros until they are multiplied by zeros, looked up, or masked in "
                 "the cross-entropy, `softmax` along one axis or `lse`");
      zl_help(e, "leave out `pad %s` where it is not split, or give the model a size that divides",
              pad->axis.s);
      return false;
    }
  }
  return true;
}

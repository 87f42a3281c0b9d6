/* The axes that a call names are those of its operands, and its results have the axes that these leave: the
 * rule that holds of a graph's node (graph/infer.c) holds of the call too, whatever parts of them a rank has.
 * Rules for operations that only plans have are here. And what is the model's own goes along the axes along
 * which the model goes. Asked before anything that trusts a call's axes. */
#include "runtime/plan/check/layout.h"

#include <string.h>

static const ZgType *type_of(const Local *l, const ZpNode *n, int i) {
  return &l->s->values[i < n->call.nin ? n->in[i] : n->out[i - n->call.nin]].type;
}

/* Returns the type with its axes alone: precision decides which float it is. */
static ZgType axes_of(const ZgType *t) {
  ZgType x = *t;
  if (x.elem == ZG_REAL || x.elem == ZG_BF16 || x.elem == ZG_F16) x.elem = ZG_F32;
  return x;
}

static bool same_axes(const ZgType *a, const ZgType *b) {
  return a->naxes == b->naxes && zg_type_contains(a, b);
}

/* ---- operations that only plans have ------------------------------------------------------------------- */
/* Which operands have an axis, a bit each; results come behind operands. */
typedef struct {
  uint16_t op;
  int first, count; /* of the call's axes; count 0: all that there are from there on */
  unsigned have;
} Has;
#define IN(i) (1u << (i))
#define OUT(nin, j) (1u << ((nin) + (j)))
static const Has has[] = {
    {ZG_OP_GROUPED_DOT, 0, 1, IN(1) | IN(2)},
    {ZG_OP_GROUPED_DOT, 1, 1, IN(0) | OUT(3, 0)},
    {ZG_OP_GROUPED_DOT, 2, 0, IN(0) | IN(1)},
    {ZG_OP_GROUPED_OUTER, 0, 1, IN(2) | OUT(3, 0)},
    {ZG_OP_GROUPED_OUTER, 1, 1, IN(0) | IN(1)},
    {ZG_OP_DISPATCH, 0, 2, OUT(3, 0)},
    {ZG_OP_DISPATCH, 2, 1, IN(1)},
    {ZG_OP_COMBINE, 0, 2, IN(0)},
    {ZG_OP_COMBINE, 2, 1, IN(1)},
    {ZG_OP_SLOTS, 0, 1, OUT(1, 1)},
    {ZG_OP_SLOTS, 2, 1, IN(0) | OUT(1, 0)},
    {ZG_OP_ROUND, 0, 1, IN(0) | OUT(1, 0)},
};

static bool have_axes(const Local *l, const ZpNode *n, const Has *h) {
  int end = h->count ? h->first + h->count : n->call.nax;
  if (end > n->call.nax) return false;
  for (int k = h->first; k < end; k++)
    for (int i = 0; i < n->call.nin + n->call.nout; i++)
      if (h->have >> i & 1 && !zg_type_has(type_of(l, n, i), n->call.ax[k])) return false;
  return true;
}

/* Returns the operation of a graph whose axes it has; else itself. */
static ZgOp like(ZgOp op) {
  switch (op) {
  case ZG_OP_DOT_BIAS_GRAD: return ZG_OP_DOT;
  case ZG_OP_XENT_MAX_SUMS:
  case ZG_OP_XENT_SUMS_GRAD: return ZG_OP_PEAK;
  case ZG_OP_NORMALIZE_GRAD_SUMS: return ZG_OP_NORMALIZE_GRAD;
  default: return op;
  }
}

/* ---- those of the model -------------------------------------------------------------------------------- */
/* Returns the operation of the model that a call must be one of, and how many of its axes count; ZG_OP_COUNT:
 * passes make such calls too. */
static ZgOp of_model(const ZkCall *k, int *axes) {
  *axes = k->nax;
  switch (k->op) {
  case ZG_OP_XENT_MAX_SUMS:
  case ZG_OP_XENT_SUMS_GRAD: return ZG_OP_XENT_SUMS;
  case ZG_OP_NORMALIZE_GRAD_SUMS: return ZG_OP_NORMALIZE_GRAD;
  case ZG_OP_GROUPED_DOT:
  case ZG_OP_GROUPED_OUTER:
  case ZG_OP_ROUND: *axes = 2; return ZG_OP_DISPATCH;
  case ZG_OP_SLOTS: return ZG_OP_DISPATCH;
  case ZG_OP_NORMALIZE:
  case ZG_OP_NORMALIZE_GRAD:
  case ZG_OP_SOFTMAX:
  case ZG_OP_SOFTMAX_GRAD:
  case ZG_OP_ROPE:
  case ZG_OP_ROTATE:
  case ZG_OP_ATTEND:
  case ZG_OP_ATTEND_GRAD:
  case ZG_OP_ATTEND_BIAS_GRAD:
  case ZG_OP_LINEAR_ATTEND:
  case ZG_OP_LINEAR_ATTEND_GRAD:
  case ZG_OP_XENT_SUMS:
  case ZG_OP_XENT_GRAD:
  case ZG_OP_TOPK:
  case ZG_OP_POSITION:
  case ZG_OP_SHIFT:
  case ZG_OP_DISPATCH:
  case ZG_OP_COMBINE: return (ZgOp)k->op;
  default: return ZG_OP_COUNT;
  }
}

/* Rows that go there come back: each of the two knows their axes. */
static bool is_same(uint16_t op, ZgOp want) {
  bool rows = op == ZG_OP_DISPATCH || op == ZG_OP_COMBINE;
  return op == want || (rows && want == ZG_OP_DISPATCH);
}

static bool is_models(const Local *l, const ZkCall *k) {
  int axes;
  ZgOp want = of_model(k, &axes);
  if (want == ZG_OP_COUNT) return true;
  for (uint32_t i = 0; i < l->gs->nnodes; i++) {
    const ZgNode *m = &l->gs->nodes[i];
    if (is_same(m->op, want) && m->nax >= axes && !memcmp(m->ax, k->ax, (size_t)axes * sizeof *m->ax))
      return true;
  }
  return false;
}

/* Returns whether a call of a step's own operations is one of the step's graph, with all that it says. */
static bool is_steps(const Local *l, const ZkCall *k) {
  for (uint32_t i = 0; i < l->gs->nnodes; i++) {
    const ZgNode *m = &l->gs->nodes[i];
    if (m->op == k->op && m->nax == k->nax && !memcmp(m->ax, k->ax, k->nax * sizeof *k->ax) &&
        !memcmp(m->num, k->num, sizeof m->num) && !memcmp(m->opt, k->opt, sizeof m->opt))
      return true;
  }
  return false;
}

/* ---- those of a graph ---------------------------------------------------------------------------------- */
/* All points that a fused call goes over. */
static ZgType space_of(const Local *l, const ZpNode *n) {
  ZgType all = {.elem = ZG_F32};
  for (int j = 0; j < n->call.nout; j++) all = zg_type_union(&all, type_of(l, n, n->call.nin + j));
  all.elem = ZG_F32;
  return all;
}

/* Results of a fused call: each of the operation's but the first is stored, with its axes; others, and what a
 * function reads beside, are of the space. Sums are of their own (layout.c). */
static bool stores_all(const Local *l, const ZpNode *n, ZgOp op, const ZgType *made, const ZgType *space) {
  const ZkCall *k = &n->call;
  const ZkPointwise *f = k->pointwise;
  int results = zg_op_info[op].nout, own = zg_op_info[op].max_in - (f->prologue > 0);
  bool sums = k->op == ZG_OP_NORMALIZE_GRAD_SUMS, ok = true, first = false;
  if (f->nout != k->nout) return true; /* layout.c says that */
  for (int i = own; i < k->nin; i++) ok &= zg_type_contains(space, type_of(l, n, i));
  for (int q = 1; q < results; q++) {
    bool stored = false;
    for (int j = 0; ok && j < k->nout; j++) stored |= f->out[j] == q;
    ok &= stored;
  }
  for (int j = 0; ok && j < k->nout; j++) {
    const ZgType *t = type_of(l, n, k->nin + j);
    bool other = f->out[j] > 0 && f->out[j] < results;
    if (sums && t->naxes < space->naxes) continue;
    ok = same_axes(t, other ? &made[f->out[j]] : space);
    first |= !other;
  }
  return ok && first;
}

/* Results of an operation that does what several do, the first of which makes `made`. */
static bool makes_beside(const Local *l, const ZpNode *n, const ZgType *made) {
  const ZkCall *k = &n->call;
  ZgType beside = *made;
  bool dot = k->op == ZG_OP_DOT_BIAS_GRAD, ok = true;
  if (dot) beside = zg_type_minus(type_of(l, n, 1), k->ax, k->nax);
  for (int i = 1; i < k->nin && !dot; i++) ok &= zg_type_contains(made, type_of(l, n, i));
  if (dot) ok = same_axes(type_of(l, n, k->nin), made);
  if (k->op == ZG_OP_XENT_SUMS_GRAD) ok &= same_axes(type_of(l, n, k->nin), type_of(l, n, 0));
  for (int j = dot || k->op == ZG_OP_XENT_SUMS_GRAD; j < k->nout; j++)
    ok &= same_axes(type_of(l, n, k->nin + j), &beside);
  return ok;
}

static const char *inferred_wrong(const Local *l, const ZpNode *n) {
  const ZkCall *k = &n->call;
  ZgOp op = like((ZgOp)k->op);
  const ZgOpInfo *info = &zg_op_info[op];
  bool fused = k->pointwise, fed = fused && k->pointwise->prologue;
  ZgNode g = {
      .op = (uint16_t)op, .nax = k->nax, .num = {k->num[0], k->num[1]}, .opt = {k->opt[0], k->opt[1]}};
  ZgType in[ZG_MAX_IN], out[ZG_MAX_OUT], space = space_of(l, n), hint = *type_of(l, n, k->nin);
  if (k->nin) hint = axes_of(&hint); /* of what is made of nothing the rule looks at the element */
  memcpy(g.ax, k->ax, k->nax * sizeof *k->ax);
  if (op == ZG_OP_LINEAR_ATTEND || op == ZG_OP_LINEAR_ATTEND_GRAD) g.opt[1] = 0; /* the planner's chunk */
  if (fed) in[g.nin++] = space;
  for (int i = 0; i < k->nin && g.nin < info->max_in; i++) in[g.nin++] = axes_of(type_of(l, n, i));
  if (g.nin < info->min_in) return "has not the operands that its operation takes";
  if (!zg_infer(&l->c->bound, &g, in, fused ? &space : &hint, out, NULL))
    return "names axes that its operands have not, or that its operation does not take";
  bool ok = same_axes(&out[0], fused ? &space : &hint);
  if (fused) ok &= stores_all(l, n, op, out, &space);
  else if (op != (ZgOp)k->op) ok = makes_beside(l, n, &out[0]);
  for (int j = 1; ok && !fused && op == (ZgOp)k->op && j < k->nout; j++)
    ok = same_axes(&out[j], type_of(l, n, k->nin + j));
  return ok ? NULL : "has a result of other axes than its operation makes";
}

/* Returns whether a call has as many operands and results as its operation. Rows of experts go where a round
 * says, one operand more than the model's. Of others shapes, or their functions, say it. */
static bool has_form(const ZpNode *n) {
  const ZkCall *k = &n->call;
  const ZgOpInfo *info = &zg_op_info[k->op];
  int more = k->op == ZG_OP_DISPATCH || k->op == ZG_OP_COMBINE;
  if (n->dims && !zp_is_ring(n)) return true;
  if (k->op == ZG_OP_POINTWISE) return k->nout > 0 && k->nout <= ZK_POINTWISE_OUT;
  if (k->pointwise)
    return k->nout > 0 && (like((ZgOp)k->op) == (ZgOp)k->op || k->op == ZG_OP_NORMALIZE_GRAD_SUMS);
  return k->nin >= info->min_in + more && k->nin <= info->max_in + more && k->nout == zg_outs(k->op, k->opt);
}

/* Results that are made element by element, or moved as they are, have all axes of the operands. */
static const char *elementwise_wrong(const Local *l, const ZpNode *n) {
  const ZkCall *k = &n->call;
  const ZgType *space = type_of(l, n, k->nin);
  bool ok = true;
  for (int i = 0; i < k->nin; i++)
    ok &=
        k->op == ZG_OP_COPY ? same_axes(space, type_of(l, n, i)) : zg_type_contains(space, type_of(l, n, i));
  for (int j = 1; j < k->nout; j++) ok &= same_axes(space, type_of(l, n, k->nin + j));
  return ok ? NULL : "has an operand or a result with axes that its results have not";
}

const char *zp_axes_wrong(const Local *l, const ZpNode *n) {
  const ZkCall *k = &n->call;
  bool listed = false;
  if (k->nax > ZG_MAX_AXARG) return "names more axes than there are";
  for (int i = 0; i < k->nax; i++)
    if (k->ax[i] >= l->c->p->graph->naxes) return "names an axis that does not exist";
  for (size_t i = 0; i < sizeof has / sizeof *has; i++) {
    if (has[i].op != k->op) continue;
    listed = true;
    if (!have_axes(l, n, &has[i])) return "names an axis that its operands have not";
  }
  if (!is_models(l, k)) return "goes along other axes than the model";
  if (zg_op_info[k->op].steps && !is_steps(l, k)) return "is not a call of the step's graph";
  if (!has_form(n)) return "has not the operands and results of its operation";
  if (k->op == ZG_OP_COMBINE && k->nout == 1 && k->opt[0] != zg_type_has(type_of(l, n, k->nin), k->ax[2]))
    return "adds up the rows of a token, or keeps each, otherwise than its result says";
  if (k->op == ZG_OP_POINTWISE || k->op == ZG_OP_COPY) return elementwise_wrong(l, n);
  bool planned = like((ZgOp)k->op) == (ZgOp)k->op && zg_op_info[k->op].kind == ZG_PLANNED;
  return listed || planned ? NULL : inferred_wrong(l, n);
}

/* The one type rule: result types of every op from its operands' types, with reasons a user can read, and
 * the class of every axis of an op's iteration space. Used by the compiler while it builds and by the loader
 * on what it reads, so nothing here may trust its node. Semantics: OPS.md. */
#include "graph/infer.h"

#include <math.h>
#include <string.h>

static bool same_index(const ZgType *a, const ZgType *b) {
  return a->elem == ZG_INDEX && b->elem == ZG_INDEX && a->of == b->of;
}

/* The wider of two operands of an elementwise op, whose axes must contain the other's. */
static bool wider(ZgInfer *c, const ZgType *a, const ZgType *b, ZgType *out) {
  if (zg_type_contains(a, b)) *out = *a;
  else if (zg_type_contains(b, a)) *out = *b;
  else {
    Text ta = text_of(c, a), tb = text_of(c, b);
    uint16_t x = 0, y = 0;
    for (int i = 0; i < a->naxes; i++)
      if (!zg_type_has(b, a->axis[i])) x = a->axis[i];
    for (int i = 0; i < b->naxes; i++)
      if (!zg_type_has(a, b->axis[i])) y = b->axis[i];
    return FAIL(c, "%s: neither operand contains the axes of the other: %s lacks %s, and %s lacks %s",
                OPNAME(c), ta.s, axis_name(c, y), tb.s, axis_name(c, x));
  }
  out->of = 0;
  return true;
}

/* ---- sources and sinks --------------------------------------------------------------------------------- */
static bool infer_source(ZgInfer *c) {
  const ZgGraph *g = c->g;
  int64_t k = c->n->opt[0];
  ZgType t;
  switch (c->n->op) {
  case ZG_OP_PARAM:
    if (!want_opt(c, 0, 0, (int64_t)g->nparams - 1, "the parameter number")) return false;
    t = g->params[k].type;
    break;
  case ZG_OP_INPUT:
    if (!want_opt(c, 0, 0, (int64_t)g->ninputs - 1, "the input number")) return false;
    t = g->inputs[k].type;
    break;
  case ZG_OP_SEED:
    if (!want_opt(c, 0, 0, 1, "the kind of seed") ||
        !want_opt(c, 1, 0, k ? 0 : (int64_t)zg_losses(g) - 1, "the loss number"))
      return false;
    t = scalar(ZG_F32);
    break;
  default: /* CARRY, DCARRY: the segment says; zg_verify compares */
    if (!want_hint(c) || !want_opt(c, 0, 0, UINT32_MAX - 1, "the position")) return false;
    if (c->n->op == ZG_OP_DCARRY && !is_float(c->hint->elem))
      return FAIL(c, "only real values have cotangents, not %s", TYPE(c, c->hint));
    t = *c->hint;
  }
  c->out[0] = t;
  return true;
}

static bool infer_sink(ZgInfer *c) {
  const ZgGraph *g = c->g;
  int64_t k = c->n->opt[0];
  switch (c->n->op) {
  case ZG_OP_CARRY_OUT: return want_opt(c, 0, 0, UINT32_MAX - 1, "the position");
  case ZG_OP_DCARRY_IN: return want_opt(c, 0, 0, UINT32_MAX - 1, "the position") && want_float(c, 0);
  case ZG_OP_MEASURE:
    if (!want_opt(c, 0, 0, (int64_t)g->nparams - 1, "the parameter number") || !want_float(c, 0))
      return false;
    if (!want_opt(c, 1, 0, ZG_MEASURE_NONE, "the kind")) return false;
    if (zg_type_contains(&g->params[k].type, &c->in[0])) return true;
    return FAIL(c, "measure: %s has axes that the state lacks", TYPE(c, &c->in[0]));
  case ZG_OP_PARAM_GRAD:
    return want_opt(c, 0, 0, (int64_t)g->nparams - 1, "the parameter number") &&
           want_axes(c, 0, &g->params[k].type);
  case ZG_OP_OUTPUT:
    return want_opt(c, 0, 0, (int64_t)g->noutputs - 1, "the output number") &&
           want_same(c, 0, &g->outputs[k].type);
  default: /* LOSS_NUM, LOSS_DEN, AUX */
    if (!want_float(c, 0)) return false;
    if (c->n->op != ZG_OP_AUX && !want_opt(c, 0, 0, (int64_t)zg_losses(g) - 1, "the loss number"))
      return false;
    if (c->in[0].naxes == 0) return true;
    return FAIL(c, "%s takes a scalar, found %s", OPNAME(c), TYPE(c, &c->in[0]));
  }
}

/* ---- elementwise --------------------------------------------------------------------------------------- */
static bool infer_constant(ZgInfer *c) { /* FILL, AXSIZE: scalars, of the floating type hinted at */
  bool fill = c->n->op == ZG_OP_FILL;
  if (!want_nax(c, !fill, !fill)) return false;
  ZgElem e = c->hint ? (ZgElem)c->hint->elem : fill ? ZG_REAL : ZG_F32;
  if (!is_number(e) || (!fill && !is_float(e)))
    return FAIL(c, "%s cannot make %s", OPNAME(c), zg_elem_name[e]);
  if (c->hint && c->hint->naxes) return FAIL(c, "%s makes a scalar, not %s", OPNAME(c), TYPE(c, c->hint));
  c->out[0] = scalar(e);
  return true;
}

static bool infer_select(ZgInfer *c) {
  ZgType ab, all;
  ZgElem e = ZG_INDEX;
  bool ids = same_index(&c->in[1], &c->in[2]);
  if (c->in[0].elem != ZG_BOOL)
    return FAIL(c, "select takes a bool as its first operand, found %s", TYPE(c, &c->in[0]));
  if ((!ids && !join_elem(c, &c->in[1], &c->in[2], &e)) || !wider(c, &c->in[1], &c->in[2], &ab) ||
      !wider(c, &c->in[0], &ab, &all))
    return false;
  all.elem = (uint8_t)e;
  all.of = ids ? c->in[1].of : 0;
  c->out[0] = all;
  return true;
}

/* An index becomes a number, and a number an index; but not an index one along another axis. */
static bool infer_cast(ZgInfer *c) {
  if (!want_hint(c)) return false;
  ZgElem from = c->in[0].elem, to = c->hint->elem;
  if (to == ZG_BOOL || (to == ZG_INDEX && !is_number(from))) {
    Text t = text_of(c, &c->in[0]);
    return FAIL(c, "cast: %s cannot become %s", t.s, zg_elem_name[to]);
  }
  c->out[0] = c->in[0];
  c->out[0].elem = to;
  c->out[0].of = to == ZG_INDEX ? c->hint->of : 0;
  return zg_type_eq(&c->out[0], c->hint) || FAIL(c, "cast keeps the axes of %s", TYPE(c, &c->in[0]));
}

static bool infer_broadcast(ZgInfer *c) {
  if (!want_hint(c)) return false;
  if (!zg_type_contains(c->hint, &c->in[0]) || c->hint->elem != c->in[0].elem || c->hint->of != c->in[0].of) {
    Text from = text_of(c, &c->in[0]), to = text_of(c, c->hint);
    return FAIL(c, "broadcast adds axes and nothing else: %s cannot become %s", from.s, to.s);
  }
  c->out[0] = *c->hint;
  return true;
}

static bool infer_elementwise(ZgInfer *c) {
  const ZgNode *n = c->n;
  const ZgOpInfo *o = &zg_op_info[n->op];
  ZgElem e = ZG_F32;
  if (n->op == ZG_OP_FILL || n->op == ZG_OP_AXSIZE) return infer_constant(c);
  if (!want_nax(c, 0, 0)) return false;
  switch (n->op) {
  case ZG_OP_KNOWN:
    if (c->in[0].elem != ZG_INDEX) return FAIL(c, "known takes an index, found %s", TYPE(c, &c->in[0]));
    c->out[0] = zg_type(ZG_REAL, c->in[0].axis, c->in[0].naxes);
    return true;
  case ZG_OP_SELECT: return infer_select(c);
  case ZG_OP_CAST: return infer_cast(c);
  case ZG_OP_BROADCAST: return infer_broadcast(c);
  }
  if (n->nin == 1) {
    if (!(o->whole && c->in[0].elem == ZG_I32) && !want_float(c, 0)) return false;
    c->out[0] = c->in[0];
    return true;
  }
  if (o->truth && same_index(&c->in[0], &c->in[1])) e = ZG_I32;
  else if (!join_elem(c, &c->in[0], &c->in[1], &e)) return false;
  if (!wider(c, &c->in[0], &c->in[1], &c->out[0])) return false;
  if (!o->whole && e == ZG_I32) return FAIL(c, "%s takes real tensors; cast the i32 operands", OPNAME(c));
  c->out[0].elem = (uint8_t)(o->truth ? ZG_BOOL : e);
  return true;
}

/* ---- moving -------------------------------------------------------------------------------------------- */
static bool infer_move(ZgInfer *c) {
  const ZgNode *n = c->n;
  if (!want_nax(c, 2, 2) || !want_axis(c, 0, n->ax[0])) return false;
  uint16_t from = n->ax[0], to = n->ax[1];
  int64_t have = axis_size(c, from), get = axis_size(c, to), start = n->opt[0], count = n->opt[1];
  const ZgType *t = &c->in[0];
  if (from == to) return FAIL(c, "%s: the axis %s must get another name", OPNAME(c), axis_name(c, from));
  if (!want_no_axis(c, 0, to)) return false;
  if (n->op == ZG_OP_RENAME && have != get && (!have || !get))
    return FAIL(c, "rename: %s has %lld elements, and the size of %s is bound by the recipe",
                axis_name(c, have ? from : to), (long long)(have ? have : get),
                axis_name(c, have ? to : from));
  if (n->op == ZG_OP_RENAME && have != get)
    return FAIL(c, "rename: %s has %lld elements and %s has %lld", axis_name(c, from), (long long)have,
                axis_name(c, to), (long long)get);
  if (n->op != ZG_OP_RENAME && (have == 0 || get == 0))
    return FAIL(c, "%s: the size of %s must be a number in the model, not bound by the recipe", OPNAME(c),
                axis_name(c, have ? to : from));
  if (n->op == ZG_OP_SLICE && (count != get || start < 0 || start > have - count))
    return FAIL(c, "slice: %lld elements from %lld of %s (%lld) do not give %s (%lld)", (long long)count,
                (long long)start, axis_name(c, from), (long long)have, axis_name(c, to), (long long)get);
  if (n->op == ZG_OP_PAD && !want_float(c, 0)) return false;
  if (n->op == ZG_OP_PAD && (start < 0 || start > get - have))
    return FAIL(c, "pad: %s (%lld) at %lld does not fit into %s (%lld)", axis_name(c, from), (long long)have,
                (long long)start, axis_name(c, to), (long long)get);
  ZgType rest = zg_type_minus(t, &from, 1), add = zg_type(t->elem, &to, 1);
  c->out[0] = zg_type_union(&rest, &add);
  return true;
}

static bool infer_shift(ZgInfer *c) {
  if (!want_nax(c, 1, 1) || !want_axis(c, 0, c->n->ax[0])) return false;
  int edge = c->in[0].elem == ZG_INDEX ? -1 : 0;
  if (c->n->num[0] != edge) return FAIL(c, "shift: the edge is %g, must be %d", c->n->num[0], edge);
  c->out[0] = c->in[0];
  return want_opt(c, 0, -INT32_MAX, INT32_MAX, "the distance");
}

/* MERGE: axes ax[1..] of the operand, the first slowest, become ax[0]; PART: ax[last] becomes those before
 * it. */
static bool infer_merge(ZgInfer *c) {
  const ZgNode *n = c->n;
  bool merge = n->op == ZG_OP_MERGE;
  if (!want_nax(c, 3, ZG_MAX_AXARG)) return false;
  const uint16_t *part = merge ? n->ax + 1 : n->ax, whole = merge ? n->ax[0] : n->ax[n->nax - 1];
  int parts = n->nax - 1;
  int64_t product = 1;
  for (int i = 0; i < parts; i++) {
    int64_t size = axis_size(c, part[i]);
    if (size == 0 || axis_size(c, whole) == 0)
      return FAIL(c, "%s: the size of %s must be a number in the model, not bound by the recipe", OPNAME(c),
                  axis_name(c, size ? whole : part[i]));
    if (merge ? !want_axis(c, 0, part[i]) : !want_no_axis(c, 0, part[i])) return false;
    product = product > INT32_MAX ? product : product * size; /* beyond any axis */
  }
  if (merge ? !want_no_axis(c, 0, whole) : !want_axis(c, 0, whole)) return false;
  if (product != axis_size(c, whole))
    return FAIL(c, "%s: the parts have %lld elements together, but %s has %lld", OPNAME(c),
                (long long)product, axis_name(c, whole), (long long)axis_size(c, whole));
  ZgType rest = zg_type_minus(&c->in[0], merge ? part : &whole, merge ? parts : 1);
  ZgType add = zg_type((ZgElem)rest.elem, merge ? &whole : part, merge ? 1 : parts);
  c->out[0] = zg_type_union(&rest, &add);
  return true;
}

static bool infer_concat(ZgInfer *c) {
  const ZgNode *n = c->n;
  if (!want_nax(c, n->nin + 1, n->nin + 1)) return false;
  uint16_t to = n->ax[0];
  ZgType rest = {0};
  int64_t total = 0;
  for (int i = 0; i < n->nin; i++) {
    uint16_t a = n->ax[i + 1];
    if (!want_axis(c, i, a)) return false;
    if (axis_size(c, a) == 0 || axis_size(c, to) == 0)
      return FAIL(c, "concat: the size of %s must be a number in the model, not bound by the recipe",
                  axis_name(c, axis_size(c, to) ? a : to));
    ZgType r = zg_type_minus(&c->in[i], &a, 1);
    if (i == 0) rest = r;
    if (!zg_type_eq(&r, &rest)) {
      Text x = text_of(c, &r), y = text_of(c, &rest);
      return FAIL(c, "concat: besides the joined axis the operands differ: %s and %s", y.s, x.s);
    }
    if (zg_type_has(&r, to)) return want_no_axis(c, i, to);
    total += axis_size(c, a); /* of at most 8 axes of at most INT32_MAX */
  }
  if (total != axis_size(c, to))
    return FAIL(c, "concat: the joined axes have %lld elements together, but %s has %lld", (long long)total,
                axis_name(c, to), (long long)axis_size(c, to));
  ZgType add = zg_type(rest.elem, &to, 1);
  c->out[0] = zg_type_union(&rest, &add);
  return true;
}

/* ---- reductions and products --------------------------------------------------------------------------- */
static bool infer_reduce(ZgInfer *c) {
  const ZgNode *n = c->n;
  if (!want_float(c, 0) || !want_nax(c, 1, ZG_MAX_AXES)) return false;
  for (int i = 0; i < n->nax; i++)
    if (!want_axis(c, 0, n->ax[i])) return false;
  if (n->op == ZG_OP_PEAK && n->opt[1] != 0 && !want_opt(c, 1, 1, axis_size(c, n->ax[0]), "valid"))
    return false;
  c->out[0] = zg_type_minus(&c->in[0], n->ax, n->nax);
  return true;
}

static bool infer_dot(ZgInfer *c) {
  const ZgNode *n = c->n;
  ZgElem e = ZG_F32;
  if (!want_floats(c) || !want_nax(c, 0, ZG_MAX_AXES) || !join_elem(c, &c->in[0], &c->in[1], &e))
    return false;
  for (int i = 0; i < n->nax; i++)
    if (!want_axis(c, 0, n->ax[i]) || !want_axis(c, 1, n->ax[i])) return false;
  ZgType a = zg_type_minus(&c->in[0], n->ax, n->nax), b = zg_type_minus(&c->in[1], n->ax, n->nax);
  c->out[0] = zg_type_union(&a, &b);
  c->out[0].elem = (uint8_t)e;
  return true;
}

static bool infer_cumsum(ZgInfer *c) {
  if (!want_float(c, 0) || !want_nax(c, 1, 1) || !want_axis(c, 0, c->n->ax[0])) return false;
  c->out[0] = c->in[0];
  return want_opt(c, 0, 0, 1, "reverse");
}

/* The factors may lack axes of the terms, also the scanned one. */
static bool infer_scan(ZgInfer *c) {
  if (!want_floats(c) || !want_nax(c, 1, 1) || !want_axis(c, 1, c->n->ax[0])) return false;
  if (!zg_type_contains(&c->in[1], &c->in[0])) {
    Text a = text_of(c, &c->in[0]), b = text_of(c, &c->in[1]);
    return FAIL(c, "scan: the axes of the factors, %s, must be among those of the terms, %s", a.s, b.s);
  }
  c->out[0] = c->in[1];
  return want_opt(c, 0, 0, 1, "reverse") && want_opt(c, 1, 0, 1, "late");
}

static bool infer_softmax(ZgInfer *c) {
  const ZgNode *n = c->n;
  if (!want_floats(c) || !want_nax(c, 1, 1) || !want_axis(c, 0, n->ax[0])) return false;
  if (n->op == ZG_OP_SOFTMAX_GRAD && !want_same(c, 1, &c->in[0])) return false;
  if (n->op == ZG_OP_SOFTMAX && n->opt[1] != 0 && !want_opt(c, 1, 1, axis_size(c, n->ax[0]), "valid"))
    return false;
  c->out[0] = c->in[0];
  return true;
}

static bool infer_normalize(ZgInfer *c) {
  const ZgNode *n = c->n;
  if (!want_floats(c) || !want_nax(c, 1, 1) || !want_axis(c, 0, n->ax[0])) return false;
  if (!want_opt(c, 0, 0, 1, "the kind")) return false;
  if (!(n->num[0] >= 0)) return FAIL(c, "%s: eps is %g, must not be negative", OPNAME(c), n->num[0]);
  ZgType r = zg_type_minus(&c->in[0], n->ax, 1);
  r.elem = ZG_F32;
  if (n->op == ZG_OP_NORMALIZE_GRAD && (!want_same(c, 1, &c->in[0]) || !want_same(c, 2, &r))) return false;
  c->out[0] = c->in[0];
  if (n->op == ZG_OP_NORMALIZE) c->out[1] = r;
  return true;
}

/* ---- tables and cross-entropy -------------------------------------------------------------------------- */
static bool infer_lookup(ZgInfer *c) {
  const ZgNode *n = c->n;
  if (!want_float(c, 0) || !want_nax(c, 1, 1)) return false;
  uint16_t v = n->ax[0];
  const ZgType *t = &c->in[0], *ids = &c->in[1];
  if (!want_axis(c, 0, v) || !want_index(c, 1, v)) return false;
  for (int i = 0; i < ids->naxes; i++)
    if (zg_type_has(t, ids->axis[i]))
      return FAIL(c, "lookup: the table and the ids share the axis %s", axis_name(c, ids->axis[i]));
  ZgType rest = zg_type_minus(t, &v, 1);
  c->out[0] = zg_type_union(&rest, ids);
  return true;
}

static bool infer_lookup_grad(ZgInfer *c) {
  const ZgNode *n = c->n;
  if (!want_float(c, 0) || !want_nax(c, 1, 1) || !want_index(c, 1, n->ax[0])) return false;
  uint16_t v = n->ax[0];
  const ZgType *dy = &c->in[0], *ids = &c->in[1];
  if (!zg_type_contains(dy, ids) || zg_type_has(dy, v)) {
    Text a = text_of(c, dy), b = text_of(c, ids);
    return FAIL(c, "lookup_grad[%s]: %s is not a cotangent of rows chosen by %s", axis_name(c, v), a.s, b.s);
  }
  ZgType rest = zg_type_minus(dy, ids->axis, ids->naxes), add = zg_type(dy->elem, &v, 1);
  c->out[0] = zg_type_union(&rest, &add);
  if (c->hint && (c->hint->elem == ZG_F32 || c->hint->elem == dy->elem)) c->out[0].elem = c->hint->elem;
  return true;
}

/* TOPK: of the axis ax[0] so many as ax[1] has. */
static bool infer_topk(ZgInfer *c) {
  const ZgNode *n = c->n;
  if (!want_floats(c) || !want_nax(c, 2, 2) || !want_axis(c, 0, n->ax[0]) || !want_no_axis(c, 0, n->ax[1]))
    return false;
  if (n->nin > 1 && !want_axes(c, 1, &c->in[0])) return false;
  int64_t of = axis_size(c, n->ax[0]), k = axis_size(c, n->ax[1]), groups = n->opt[0], take = n->opt[1];
  if (of == 0 || k == 0)
    return FAIL(c, "topk: the size of %s must be a number in the model, not bound by the recipe",
                axis_name(c, n->ax[of == 0 ? 0 : 1]));
  if (groups && (!want_opt(c, 0, 1, 64, "the number of groups") || !want_opt(c, 1, 1, groups, "take")))
    return false;
  if (!groups && !want_opt(c, 1, 0, 0, "take without groups")) return false;
  if (groups && of % groups)
    return FAIL(c, "topk: %s has %lld entries, which are no %lld groups of equal size",
                axis_name(c, n->ax[0]), (long long)of, (long long)groups);
  int64_t from = groups ? of / groups * take : of;
  if (k > from)
    return FAIL(c, "topk: fewer entries to choose from (%lld) than places in %s (%lld)", (long long)from,
                axis_name(c, n->ax[1]), (long long)k);
  ZgType rest = zg_type_minus(&c->in[0], n->ax, 1), add = zg_type((ZgElem)rest.elem, n->ax + 1, 1);
  c->out[0] = c->out[1] = zg_type_union(&rest, &add);
  c->out[1].elem = ZG_INDEX;
  c->out[1].of = n->ax[0];
  return true;
}

static bool infer_onehot(ZgInfer *c) {
  const ZgNode *n = c->n;
  if (!want_nax(c, 1, ZG_MAX_AXARG) || !want_index(c, 0, n->ax[0]) || !want_no_axis(c, 0, n->ax[0]))
    return false;
  for (int i = 1; i < n->nax; i++)
    if (!want_axis(c, 0, n->ax[i])) return false;
  if (n->nin > 1 && !want_axes(c, 1, &c->in[0])) return false;
  ZgType rest = zg_type_minus(&c->in[0], n->ax + 1, n->nax - 1), add = zg_type(ZG_F32, n->ax, 1);
  c->out[0] = zg_type_union(&rest, &add);
  c->out[0].elem = n->nin > 1 ? c->in[1].elem : (uint8_t)ZG_F32;
  c->out[0].of = 0;
  return true;
}

static bool infer_xent(ZgInfer *c) {
  const ZgNode *n = c->n;
  if (!want_float(c, 0) || !want_nax(c, 1, 1)) return false;
  uint16_t v = n->ax[0];
  if (!want_axis(c, 0, v) || !want_index(c, 2, v)) return false;
  if (n->opt[1] != 0 && !want_opt(c, 1, 1, axis_size(c, v), "valid")) return false;
  ZgType rest = zg_type_minus(&c->in[0], &v, 1), ids = rest;
  ids.elem = ZG_INDEX;
  ids.of = v;
  if (!want_axes(c, 1, &rest) || !want_same(c, 2, &ids)) return false;
  if (n->op == ZG_OP_XENT_GRAD) {
    c->out[0] = c->in[0];
    return want_axes(c, 3, &rest) && want_axes(c, 4, &rest);
  }
  rest.elem = ZG_F32;
  c->out[0] = c->out[1] = rest;
  return true;
}

static bool infer_created(ZgInfer *c) { /* POSITION, RANDOM */
  const ZgNode *n = c->n;
  if (n->op == ZG_OP_RANDOM) {
    if (!want_hint(c) || !want_nax(c, 0, 0) || !want_opt(c, 1, 0, ZG_NOISES - 1, "the kind")) return false;
    ZgElem made = n->opt[1] == ZG_COIN ? ZG_REAL : ZG_F32;
    if (c->hint->elem != made)
      return FAIL(c, "random makes %s tensors, not %s", zg_elem_name[made], TYPE(c, c->hint));
    if (!(n->num[0] >= 0 && n->num[0] <= 1))
      return FAIL(c, "random: the probability is %g, must be 0 to 1", n->num[0]);
    c->out[0] = *c->hint;
    return true;
  }
  if (!want_nax(c, 1, 2)) return false;
  if (n->nax == 1) {
    c->out[0] = zg_type(ZG_I32, n->ax, 1);
    return true;
  }
  int64_t s = axis_size(c, n->ax[0]), p = axis_size(c, n->ax[1]);
  if (p && s > p)
    return FAIL(c, "position: %s has %lld elements, more than the %lld of %s", axis_name(c, n->ax[0]),
                (long long)s, (long long)p, axis_name(c, n->ax[1]));
  c->out[0] = zg_type(ZG_INDEX, n->ax, 1);
  c->out[0].of = n->ax[1];
  return true;
}

/* ---- the node ------------------------------------------------------------------------------------------ */
/* What is said of a node apart from its operands' types: nothing below reads outside of the tables. */
static bool well_formed(ZgInfer *c) {
  const ZgNode *n = c->n;
  if (n->op >= ZG_OP_COUNT) return FAIL(c, "there is no op number %u", n->op);
  const ZgOpInfo *o = &zg_op_info[n->op];
  if (o->kind == ZG_PLANNED) return FAIL(c, "%s is made by the planner, a model has none", o->text);
  if (n->nin < o->min_in || n->nin > o->max_in || n->nin > ZG_MAX_IN)
    return FAIL(c, "%s takes %d to %d operands, found %d", o->text, o->min_in, o->max_in, n->nin);
  if (n->nax > ZG_MAX_AXARG) return FAIL(c, "%s has %d axis arguments", o->text, n->nax);
  if ((o->kind == ZG_SOURCE || o->kind == ZG_SINK) && !want_nax(c, 0, 0)) return false;
  bool joined = n->op == ZG_OP_CONCAT || zg_is_attend(n->op) ||
                zg_is_conv(n->op); /* where operands may give the same axis */
  for (int i = 0; i < n->nax; i++) {
    if (n->ax[i] >= c->g->naxes) return FAIL(c, "%s: there is no axis number %u", o->text, n->ax[i]);
    for (int j = 0; j < i && !joined; j++)
      if (n->ax[i] == n->ax[j])
        return FAIL(c, "%s: the axis %s is named twice", o->text, axis_name(c, n->ax[i]));
  }
  for (int i = 0; i < 2; i++)
    if (!isfinite(n->num[i])) return FAIL(c, "%s: a number is not finite", o->text);
  return true;
}

static bool infer_results(ZgInfer *c) {
  switch (zg_op_info[c->n->op].kind) {
  case ZG_SOURCE: return infer_source(c);
  case ZG_SINK: return infer_sink(c);
  case ZG_EW: return infer_elementwise(c);
  case ZG_MOVE:
    if (c->n->op == ZG_OP_SHIFT) return infer_shift(c);
    if (c->n->op == ZG_OP_MERGE || c->n->op == ZG_OP_PART) return infer_merge(c);
    return c->n->op == ZG_OP_CONCAT ? infer_concat(c) : infer_move(c);
  default: break;
  }
  switch (c->n->op) {
  case ZG_OP_SUM:
  case ZG_OP_PEAK: return infer_reduce(c);
  case ZG_OP_DOT: return infer_dot(c);
  case ZG_OP_CONV:
  case ZG_OP_CONV_TRANSPOSE:
  case ZG_OP_CONV_GRAD: return zg_infer_conv(c);
  case ZG_OP_CUMSUM: return infer_cumsum(c);
  case ZG_OP_SCAN: return infer_scan(c);
  case ZG_OP_LINEAR_ATTEND:
  case ZG_OP_LINEAR_ATTEND_GRAD: return zg_infer_linear(c);
  case ZG_OP_SOFTMAX:
  case ZG_OP_SOFTMAX_GRAD: return infer_softmax(c);
  case ZG_OP_NORMALIZE:
  case ZG_OP_NORMALIZE_GRAD: return infer_normalize(c);
  case ZG_OP_ROPE: return zg_infer_rope(c);
  case ZG_OP_ROTATE: return zg_infer_rotate(c);
  case ZG_OP_ATTEND:
  case ZG_OP_ATTEND_GRAD:
  case ZG_OP_ATTEND_BIAS_GRAD: return zg_infer_attend(c);
  case ZG_OP_LOOKUP: return infer_lookup(c);
  case ZG_OP_LOOKUP_GRAD: return infer_lookup_grad(c);
  case ZG_OP_TOPK: return infer_topk(c);
  case ZG_OP_ONEHOT: return infer_onehot(c);
  case ZG_OP_DISPATCH:
  case ZG_OP_COMBINE: return zg_infer_experts(c);
  case ZG_OP_XENT_SUMS:
  case ZG_OP_XENT_GRAD: return infer_xent(c);
  case ZG_OP_POSITION:
  case ZG_OP_RANDOM: return infer_created(c);
  }
  ZB_BUG("op %s has no type rule", OPNAME(c));
}

bool zg_infer(const ZgGraph *g, const ZgNode *n, const ZgType *in, const ZgType *hint, ZgType *out,
              ZbErr *err) {
  ZgInfer c = {g, n, in, hint, out, err};
  if (!well_formed(&c) || !infer_results(&c)) return false;
  for (int i = 0; i < zg_outs(n->op, n->opt); i++) {
    if (out[i].naxes > ZG_MAX_AXES)
      return FAIL(&c, "%s: the result would have more than %d axes", OPNAME(&c), ZG_MAX_AXES);
    ZB_ASSERT((out[i].elem == ZG_INDEX) || out[i].of == 0);
  }
  return true;
}

/* ---- axis classes -------------------------------------------------------------------------------------- */
ZgAxisClass zg_axis_class(const ZgNode *n, const ZgType *in, const ZgType *out, uint16_t axis) {
  const ZgOpInfo *o = &zg_op_info[n->op];
  bool operand = false, result = false;
  for (int i = 0; i < n->nin; i++) operand |= zg_type_has(&in[i], axis);
  for (int i = 0; i < zg_outs(n->op, n->opt); i++) result |= zg_type_has(&out[i], axis);
  if (!operand && !result) return ZG_AXIS_ABSENT;
  for (int i = 0; i < n->nax; i++)
    if (o->pins >> i & 1 && n->ax[i] == axis) return ZG_AXIS_PIN;
  if (result || o->nout == 0) return ZG_AXIS_PAR;
  return n->op == ZG_OP_PEAK ? ZG_AXIS_MAX : ZG_AXIS_SUM;
}

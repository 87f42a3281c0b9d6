/* The one type rule: result types of every op from its operands' types, with reasons a user can read, and
 * the class of every axis of an op's iteration space. Used by the compiler while it builds and by the loader
 * on what it reads, so nothing here may trust its node. Semantics: OPS.md. */
#include "graph/graph.h"

#include <math.h>
#include <string.h>

typedef struct {
  const ZgGraph *g;
  const ZgNode *n;
  const ZgType *in, *hint;
  ZgType *out;
  ZbErr *err;
} Ctx;

#define OPNAME(c) zg_op_info[(c)->n->op].text
#define FAIL(c, ...) zb_fail((c)->err, NULL, __VA_ARGS__)

/* Short-lived text of a type for messages. */
typedef struct {
  char s[320];
} Text;
static Text text_of(const Ctx *c, const ZgType *t) {
  Text r;
  ZbText b = {0};
  zg_type_put(c->g, &b, t);
  snprintf(r.s, sizeof r.s, "%s", b.s);
  zb_text_free(&b);
  return r;
}
#define TYPE(c, t) text_of((c), (t)).s

static const char *axis_name(const Ctx *c, uint16_t a) { return c->g->axes[a].name; }
static int64_t axis_size(const Ctx *c, uint16_t a) { return c->g->axes[a].size; }
static bool is_float(ZgElem e) { return e == ZG_REAL || e == ZG_F32 || e == ZG_BF16 || e == ZG_F16; }
static bool is_number(ZgElem e) { return is_float(e) || e == ZG_I32; }

static const char *const ordinal[] = {"first", "second",  "third",  "fourth", "fifth",
                                      "sixth", "seventh", "eighth", "ninth",  "tenth"};

/* ---- small checks -------------------------------------------------------------------------------------- */
static bool want_float(Ctx *c, int i) {
  if (is_float(c->in[i].elem)) return true;
  return FAIL(c, "%s takes a real tensor, but its %s operand is %s", OPNAME(c), ordinal[i],
              TYPE(c, &c->in[i]));
}

static bool want_floats(Ctx *c) {
  for (int i = 0; i < c->n->nin; i++)
    if (!want_float(c, i)) return false;
  return true;
}

static bool want_index(Ctx *c, int i, uint16_t of) {
  const ZgType *t = &c->in[i];
  if (t->elem == ZG_INDEX && t->of == of) return true;
  return FAIL(c, "%s[%s] needs index(%s) as its %s operand, found %s", OPNAME(c), axis_name(c, of),
              axis_name(c, of), ordinal[i], TYPE(c, t));
}

static bool want_axis(Ctx *c, int i, uint16_t a) {
  if (zg_type_has(&c->in[i], a)) return true;
  return FAIL(c, "%s[%s]: the %s operand has no axis %s, it is %s", OPNAME(c), axis_name(c, a), ordinal[i],
              axis_name(c, a), TYPE(c, &c->in[i]));
}

static bool want_no_axis(Ctx *c, int i, uint16_t a) {
  if (!zg_type_has(&c->in[i], a)) return true;
  return FAIL(c, "%s: the %s operand has the axis %s already, it is %s", OPNAME(c), ordinal[i],
              axis_name(c, a), TYPE(c, &c->in[i]));
}

static bool want_same(Ctx *c, int i, const ZgType *t) {
  if (zg_type_eq(&c->in[i], t)) return true;
  Text found = text_of(c, &c->in[i]), want = text_of(c, t);
  return FAIL(c, "%s: the %s operand must be %s, found %s", OPNAME(c), ordinal[i], want.s, found.s);
}

/* Same axes, any floating element type. */
static bool want_axes(Ctx *c, int i, const ZgType *t) {
  if (!want_float(c, i)) return false;
  if (c->in[i].naxes == t->naxes && zg_type_contains(t, &c->in[i])) return true;
  Text found = text_of(c, &c->in[i]), want = text_of(c, t);
  return FAIL(c, "%s: the %s operand must have the axes of %s, found %s", OPNAME(c), ordinal[i], want.s,
              found.s);
}

static bool want_nax(Ctx *c, int lo, int hi) {
  if (c->n->nax >= lo && c->n->nax <= hi) return true;
  if (lo == hi)
    return FAIL(c, "%s takes %d axis name%s, found %d", OPNAME(c), lo, lo == 1 ? "" : "s", c->n->nax);
  return FAIL(c, "%s takes %d to %d axis names, found %d", OPNAME(c), lo, hi, c->n->nax);
}

static bool want_opt(Ctx *c, int i, int64_t lo, int64_t hi, const char *what) {
  if (c->n->opt[i] >= lo && c->n->opt[i] <= hi) return true;
  return FAIL(c, "%s: %s is %lld, must be %lld to %lld", OPNAME(c), what, (long long)c->n->opt[i],
              (long long)lo, (long long)hi);
}

static bool want_hint(Ctx *c) {
  if (c->hint) return true;
  return FAIL(c, "%s needs a result type", OPNAME(c));
}

static ZgType scalar(ZgElem e) { return zg_type(e, NULL, 0); }

/* Element type of arithmetic on a and b: equal ones stay; anything with f32 is f32; real with a smaller float
 * is real; bf16 with f16 is f32, which holds both. */
static bool join_elem(Ctx *c, const ZgType *a, const ZgType *b, ZgElem *out) {
  ZgElem x = a->elem, y = b->elem;
  if (x == y && is_number(x)) *out = x;
  else if (is_float(x) && is_float(y))
    *out = x == ZG_F32 || y == ZG_F32 ? ZG_F32 : x == ZG_REAL || y == ZG_REAL ? ZG_REAL : ZG_F32;
  else {
    Text ta = text_of(c, a), tb = text_of(c, b);
    return FAIL(c, "%s does not combine %s with %s", OPNAME(c), ta.s, tb.s);
  }
  return true;
}

static bool same_index(const ZgType *a, const ZgType *b) {
  return a->elem == ZG_INDEX && b->elem == ZG_INDEX && a->of == b->of;
}

/* The wider of two operands of an elementwise op, whose axes must contain the other's. */
static bool wider(Ctx *c, const ZgType *a, const ZgType *b, ZgType *out) {
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
static bool infer_source(Ctx *c) {
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

static bool infer_sink(Ctx *c) {
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
static bool infer_constant(Ctx *c) { /* FILL, AXSIZE: scalars, of the floating type hinted at */
  bool fill = c->n->op == ZG_OP_FILL;
  if (!want_nax(c, !fill, !fill)) return false;
  ZgElem e = c->hint ? (ZgElem)c->hint->elem : fill ? ZG_REAL : ZG_F32;
  if (!is_number(e) || (!fill && !is_float(e)))
    return FAIL(c, "%s cannot make %s", OPNAME(c), zg_elem_name[e]);
  if (c->hint && c->hint->naxes) return FAIL(c, "%s makes a scalar, not %s", OPNAME(c), TYPE(c, c->hint));
  c->out[0] = scalar(e);
  return true;
}

static bool infer_select(Ctx *c) {
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
static bool infer_cast(Ctx *c) {
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

static bool infer_broadcast(Ctx *c) {
  if (!want_hint(c)) return false;
  if (!zg_type_contains(c->hint, &c->in[0]) || c->hint->elem != c->in[0].elem || c->hint->of != c->in[0].of) {
    Text from = text_of(c, &c->in[0]), to = text_of(c, c->hint);
    return FAIL(c, "broadcast adds axes and nothing else: %s cannot become %s", from.s, to.s);
  }
  c->out[0] = *c->hint;
  return true;
}

static bool infer_elementwise(Ctx *c) {
  const ZgNode *n = c->n;
  const ZgOpInfo *o = &zg_op_info[n->op];
  ZgElem e;
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
static bool infer_move(Ctx *c) {
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

static bool infer_shift(Ctx *c) {
  if (!want_nax(c, 1, 1) || !want_axis(c, 0, c->n->ax[0])) return false;
  int edge = c->in[0].elem == ZG_INDEX ? -1 : 0;
  if (c->n->num[0] != edge) return FAIL(c, "shift: the edge is %g, must be %d", c->n->num[0], edge);
  c->out[0] = c->in[0];
  return want_opt(c, 0, -INT32_MAX, INT32_MAX, "the distance");
}

/* MERGE: axes ax[1..] of the operand, the first slowest, become ax[0]; PART: ax[last] becomes those before it. */
static bool infer_merge(Ctx *c) {
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

static bool infer_concat(Ctx *c) {
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
static bool infer_reduce(Ctx *c) {
  const ZgNode *n = c->n;
  if (!want_float(c, 0) || !want_nax(c, 1, ZG_MAX_AXES)) return false;
  for (int i = 0; i < n->nax; i++)
    if (!want_axis(c, 0, n->ax[i])) return false;
  if (n->op == ZG_OP_PEAK && n->opt[1] != 0 && !want_opt(c, 1, 1, axis_size(c, n->ax[0]), "valid"))
    return false;
  c->out[0] = zg_type_minus(&c->in[0], n->ax, n->nax);
  return true;
}

static bool infer_dot(Ctx *c) {
  const ZgNode *n = c->n;
  ZgElem e;
  if (!want_floats(c) || !want_nax(c, 0, ZG_MAX_AXES) || !join_elem(c, &c->in[0], &c->in[1], &e))
    return false;
  for (int i = 0; i < n->nax; i++)
    if (!want_axis(c, 0, n->ax[i]) || !want_axis(c, 1, n->ax[i])) return false;
  ZgType a = zg_type_minus(&c->in[0], n->ax, n->nax), b = zg_type_minus(&c->in[1], n->ax, n->nax);
  c->out[0] = zg_type_union(&a, &b);
  c->out[0].elem = (uint8_t)e;
  return true;
}

/* ---- convolutions -------------------------------------------------------------------------------------- */
/* What y would have instead of what it has. */
static bool conv_does_not_fit(Ctx *c, const uint16_t *a, const int64_t *size, int64_t gives) {
  const ZgNode *n = c->n;
  char how[96], pad[32], help[128];
  if (n->opt[1] >= 0) snprintf(pad, sizeof pad, "%lld", (long long)n->opt[1]);
  else snprintf(pad, sizeof pad, "%s", n->opt[1] == ZG_CONV_SAME ? "same" : "causal");
  snprintf(how, sizeof how, "windows of %lld, stride %lld, dilate %g, pad %s", (long long)size[ZG_CONV_W],
           (long long)n->opt[0], n->num[0], pad);
  if (!size[ZG_CONV_X])
    return FAIL(c, "%s: %s change the size of %s, which the recipe binds", OPNAME(c), how,
                axis_name(c, a[0]));
  if (!gives)
    return FAIL(c, "%s: %s do not fit into %s (%lld)", OPNAME(c), how, axis_name(c, a[0]),
                (long long)size[ZG_CONV_X]);
  if (n->op == ZG_OP_CONV_TRANSPOSE) {
    int64_t more = (size[ZG_CONV_W] - 1) * (int64_t)n->num[0], zeros = n->opt[1] >= 0 ? 2 * n->opt[1] : more;
    int64_t least = (size[ZG_CONV_Y] - 1) * n->opt[0] + more + 1 - zeros;
    snprintf(help, sizeof help, "give `%.60s` a size of %lld to %lld", axis_name(c, a[0]), (long long)least,
             (long long)(least + n->opt[0] - 1));
  } else if (a[0] != a[2]) {
    snprintf(help, sizeof help, "give `%.60s` the size %lld", axis_name(c, a[2]), (long long)gives);
  } else {
    snprintf(help, sizeof help, "name another axis, of the size %lld, for the result", (long long)gives);
  }
  return zb_fail(c->err, help, "%s: %s make %lld of %s (%lld), but %s has %lld", OPNAME(c), how,
                 (long long)gives, axis_name(c, a[0]), (long long)size[ZG_CONV_X], axis_name(c, a[2]),
                 (long long)size[ZG_CONV_Y]);
}

/* Spatial axis d: who has which of its names, and whether the sizes go together. */
static bool infer_conv_axis(Ctx *c, const ZgType *const t[3], int d) {
  static const char *const who[] = {"x", "w", "y"};
  const ZgNode *n = c->n;
  uint16_t a[3];
  int64_t size[3];
  for (int i = 0; i < 3; i++) a[i] = zg_conv_axis(n->ax, d, (ZgConvTensor)i), size[i] = axis_size(c, a[i]);
  for (int i = 0; i < 3; i++)
    for (int k = 0; k < 3; k++) {
      bool want = i == k || (a[0] == a[2] && i != ZG_CONV_W && k != ZG_CONV_W);
      if (zg_type_has(t[k], a[i]) != want)
        return FAIL(c, "%s: the axis %s of %s is %s in %s, %s", OPNAME(c), axis_name(c, a[i]), who[i],
                    want ? "not" : "also", who[k], TYPE(c, t[k]));
    }
  if (!size[ZG_CONV_W] || (a[0] != a[2] && (!size[ZG_CONV_X] || !size[ZG_CONV_Y])))
    return FAIL(c, "%s: the size of %s must be a number in the model, not bound by the recipe", OPNAME(c),
                axis_name(c, a[!size[ZG_CONV_W]   ? ZG_CONV_W
                               : !size[ZG_CONV_X] ? ZG_CONV_X
                                                  : ZG_CONV_Y]));
  int64_t x = size[ZG_CONV_X] ? size[ZG_CONV_X] : INT32_MAX, y = size[ZG_CONV_X] ? size[ZG_CONV_Y] : x;
  int64_t gives = zg_conv_size(x, size[ZG_CONV_W], n->opt[0], (int64_t)n->num[0], n->opt[1]);
  return gives == y || conv_does_not_fit(c, a, size, gives);
}

/* Axes that are not spatial are in two of x, w and y: features that are summed, made, or go by; or in all. */
static bool infer_conv(Ctx *c) {
  const ZgNode *n = c->n;
  const ZgType *t[3];
  ZgElem e;
  if (!want_floats(c) || !join_elem(c, &c->in[0], &c->in[1], &e) || !want_hint(c)) return false;
  if (!is_float(c->hint->elem)) return FAIL(c, "%s makes real tensors, not %s", OPNAME(c), TYPE(c, c->hint));
  if (n->nax == 0 || n->nax % 3)
    return FAIL(c, "%s takes three axis names for each spatial axis, found %d", OPNAME(c), n->nax);
  if (!want_opt(c, 0, 1, ZG_CONV_MOST, "the stride") ||
      !want_opt(c, 1, ZG_CONV_CAUSAL, ZG_CONV_MOST, "the padding"))
    return false;
  if (!(n->num[0] >= 1 && n->num[0] <= ZG_CONV_MOST) || n->num[0] != floor(n->num[0]))
    return FAIL(c, "%s: the dilation is %g, must be a whole number from 1 on", OPNAME(c), n->num[0]);
  for (int i = 0; i < 3; i++) t[zg_conv_tensor(n->op, i)] = i < 2 ? &c->in[i] : c->hint;
  for (int d = 0; d < n->nax / 3; d++)
    if (!infer_conv_axis(c, t, d)) return false;
  for (int i = 0; i < 3; i++)
    for (int k = 0; k < t[i]->naxes; k++) {
      uint16_t axis = t[i]->axis[k];
      bool spatial = false;
      for (int j = 0; j < n->nax; j++) spatial |= n->ax[j] == axis;
      if (spatial || zg_type_has(t[(i + 1) % 3], axis) || zg_type_has(t[(i + 2) % 3], axis)) continue;
      return FAIL(c, "%s: only one of x, w and y has the axis %s: %s", OPNAME(c), axis_name(c, axis),
                  TYPE(c, t[i]));
    }
  c->out[0] = *c->hint;
  c->out[0].elem = (uint8_t)e;
  return true;
}

static bool infer_cumsum(Ctx *c) {
  if (!want_float(c, 0) || !want_nax(c, 1, 1) || !want_axis(c, 0, c->n->ax[0])) return false;
  c->out[0] = c->in[0];
  return want_opt(c, 0, 0, 1, "reverse");
}

/* The factors may lack axes of the terms, also the scanned one. */
static bool infer_scan(Ctx *c) {
  if (!want_floats(c) || !want_nax(c, 1, 1) || !want_axis(c, 1, c->n->ax[0])) return false;
  if (!zg_type_contains(&c->in[1], &c->in[0])) {
    Text a = text_of(c, &c->in[0]), b = text_of(c, &c->in[1]);
    return FAIL(c, "scan: the axes of the factors, %s, must be among those of the terms, %s", a.s, b.s);
  }
  c->out[0] = c->in[1];
  return want_opt(c, 0, 0, 1, "reverse") && want_opt(c, 1, 0, 1, "late");
}

static bool infer_softmax(Ctx *c) {
  const ZgNode *n = c->n;
  if (!want_floats(c) || !want_nax(c, 1, 1) || !want_axis(c, 0, n->ax[0])) return false;
  if (n->op == ZG_OP_SOFTMAX_GRAD && !want_same(c, 1, &c->in[0])) return false;
  c->out[0] = c->in[0];
  return true;
}

static bool infer_normalize(Ctx *c) {
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

static bool infer_rope(Ctx *c) {
  const ZgNode *n = c->n;
  if (!want_float(c, 0) || !want_nax(c, 2, 2) || !want_axis(c, 0, n->ax[0]) || !want_axis(c, 0, n->ax[1]))
    return false;
  if (n->ax[0] == n->ax[1])
    return FAIL(c, "rope takes a position axis and a feature axis, found %s twice", axis_name(c, n->ax[0]));
  int64_t h = axis_size(c, n->ax[1]);
  if (h == 0 || h % 2)
    return FAIL(c, "rope rotates pairs: the size of %s must be an even number in the model, found %lld",
                axis_name(c, n->ax[1]), (long long)h);
  if (!(n->num[0] > 0)) return FAIL(c, "rope: base is %g, must be positive", n->num[0]);
  c->out[0] = c->in[0];
  return want_opt(c, 0, 0, 1, "inverse");
}

static bool infer_rotate(Ctx *c) {
  const ZgNode *n = c->n;
  uint16_t h = n->nax ? n->ax[0] : 0;
  if (!want_float(c, 0) || !want_nax(c, 1, 1) || !want_axis(c, 0, h)) return false;
  int64_t size = axis_size(c, h);
  if (size == 0)
    return FAIL(c, "rotate: the size of %s must be a number in the model, not bound by the recipe",
                axis_name(c, h));
  if (!want_opt(c, 0, 0, 3, "the form") || !want_opt(c, 1, 2, size, "the number of features")) return false;
  if (n->opt[1] % 2)
    return FAIL(c, "rotate turns pairs: %lld features of %s are no pairs", (long long)n->opt[1],
                axis_name(c, h));
  ZgType speed = zg_type(ZG_F32, &h, 1), rest = zg_type_minus(&c->in[0], &h, 1);
  const ZgType *at = &c->in[1];
  if (at->elem != ZG_F32 || !zg_type_contains(&rest, at)) {
    Text found = text_of(c, at), among = text_of(c, &rest);
    return FAIL(c, "rotate: the positions must be f32, with axes among those of %s; found %s", among.s,
                found.s);
  }
  c->out[0] = c->in[0];
  return want_same(c, 2, &speed);
}

/* ---- attention ----------------------------------------------------------------------------------------- */
/* The axes of `t` must be among those of `of`, of which `what` speaks. */
static bool want_among(Ctx *c, const char *who, const ZgType *t, const char *what, const ZgType *of) {
  if (zg_type_contains(of, t)) return true;
  Text a = text_of(c, t), b = text_of(c, of);
  return FAIL(c, "%s: the axes of %s, %s, must be among those of %s, %s", OPNAME(c), who, a.s, what, b.s);
}

/* Besides q, k and v, in this order and each once at most: a bias has the axis of the keys, documents are
 * ids, sinks have neither. */
static bool infer_attend_more(Ctx *c, const ZgAttendAxes *ax, const ZgType *q, const ZgType *k, int from) {
  enum { BIAS, DOC_Q, DOC_K, PREFIX, SINK };
  ZgType rows = zg_type_minus(q, &ax->h, 1), keys = zg_type_minus(k, &ax->h, 1);
  ZgType heads = zg_type_minus(&rows, &ax->q, 1), scores = zg_type_union(&rows, &keys);
  bool docs_q = false, prefix = false;
  for (int i = from, next = BIAS; i < c->n->nin; i++) {
    const ZgType *t = &c->in[i];
    bool id = t->elem == ZG_I32 || t->elem == ZG_INDEX, key = zg_type_has(t, ax->k);
    int what = key ? id ? DOC_K : BIAS : !id ? SINK : zg_type_has(t, ax->q) ? DOC_Q : PREFIX;
    if (!id && !want_float(c, i)) return false;
    if (what < next || (what == SINK && c->n->op != ZG_OP_ATTEND))
      return FAIL(c, "%s: the %s operand, %s, is out of order or there a second time", OPNAME(c), ordinal[i],
                  TYPE(c, t));
    next = what + 1;
    docs_q |= what == DOC_Q;
    prefix |= what == PREFIX;
    if (what == BIAS && !want_among(c, "the bias", t, "the scores", &scores)) return false;
    if (what == DOC_K && !want_among(c, "the keys' documents", t, "the keys", &keys)) return false;
    if (what == DOC_Q && !want_among(c, "the documents", t, "the queries", &rows)) return false;
    if (what == PREFIX && !want_among(c, "the prefix", t, "the heads", &heads)) return false;
    if (what == SINK && !want_among(c, "the sinks", t, "the heads", &heads)) return false;
    if (what == DOC_K) docs_q = false;
  }
  if (docs_q) return FAIL(c, "%s: queries have documents, and keys have none", OPNAME(c));
  if (prefix != (c->n->opt[0] == 2))
    return FAIL(c, "%s: %s", OPNAME(c),
                prefix ? "a prefix, and no mask that has one" : "the mask has no prefix");
  if (c->n->op != ZG_OP_ATTEND_BIAS_GRAD) return true;
  if (zg_type_has(&c->in[from], ax->k) && is_float(c->in[from].elem)) return true;
  return FAIL(c, "%s: the %s operand, %s, is no bias", OPNAME(c), ordinal[from], TYPE(c, &c->in[from]));
}

static bool infer_attend_mask(Ctx *c, const ZgAttendAxes *ax) {
  const ZgNode *n = c->n;
  if (!want_opt(c, 0, 0, 2, "the mask") || !want_opt(c, 1, 0, INT32_MAX, "the window")) return false;
  if (!(n->num[1] >= 0)) return FAIL(c, "%s: the cap is %g, must not be negative", OPNAME(c), n->num[1]);
  int64_t queries = axis_size(c, ax->q), keys = axis_size(c, ax->k);
  if (queries == keys || queries == 0 || keys == 0 || (!n->opt[0] && !n->opt[1])) return true;
  return FAIL(c, "%s: %s compares positions, but %s has %lld and %s %lld", OPNAME(c),
              n->opt[0] ? "the causal mask" : "the window", axis_name(c, ax->q), (long long)queries,
              axis_name(c, ax->k), (long long)keys);
}

static bool infer_attend(Ctx *c) {
  const ZgNode *n = c->n;
  int iq = zg_attend_first(n->op);
  const ZgType *q = &c->in[iq], *k = &c->in[iq + 1], *v = &c->in[iq + 2];
  for (int i = 0; i < iq + 3; i++)
    if (!want_float(c, i)) return false;
  if (n->nax != 4 && !want_nax(c, 2, 2)) return false;
  ZgAttendAxes ax = zg_attend_axes(n->ax, n->nax);
  if (ax.q == ax.h || ax.k == ax.w || ax.q == ax.w || ax.k == ax.h)
    return FAIL(c, "attend takes a position axis and a feature axis, found %s twice",
                axis_name(c, ax.q == ax.h || ax.q == ax.w ? ax.q : ax.k));
  if (!infer_attend_mask(c, &ax)) return false;
  if (!want_axis(c, iq, ax.q) || !want_axis(c, iq, ax.h) || !want_axis(c, iq + 1, ax.k) ||
      !want_axis(c, iq + 1, ax.h))
    return false;
  for (int i = 0; i < 2; i++) {
    if (ax.k != ax.q && !want_no_axis(c, iq + i, i ? ax.q : ax.k)) return false;
    if (ax.w != ax.h && !want_no_axis(c, iq + i, ax.w)) return false;
  }
  ZgType own = zg_type_minus(k, &ax.k, 1), width = zg_type(k->elem, &ax.w, 1);
  if (q->elem != k->elem || !zg_type_contains(q, &own)) {
    Text tq = text_of(c, q), tk = text_of(c, k);
    return FAIL(c, "%s: the axes of the keys, %s, must be among those of the queries, %s", OPNAME(c), tk.s,
                tq.s);
  }
  ZgType value = zg_type_minus(k, &ax.h, 1), row = zg_type_minus(q, &ax.h, 1), l = row;
  value = zg_type_union(&value, &width);
  row = zg_type_union(&row, &width); /* of q's element type */
  l.elem = ZG_F32;
  if (!want_same(c, iq + 2, &value) || !infer_attend_more(c, &ax, q, k, iq + 3)) return false;
  if (iq && (!want_same(c, 0, &row) || !want_same(c, 1, &row) || !want_same(c, 2, &l))) return false;
  switch (n->op) {
  case ZG_OP_ATTEND: c->out[0] = row, c->out[1] = l; break;
  case ZG_OP_ATTEND_GRAD: c->out[0] = *q, c->out[1] = *k, c->out[2] = *v; break;
  default: c->out[0] = c->in[iq + 3]; break;
  }
  return true;
}

/* ---- recurrences with a matrix as state ------------------------------------------------------------------ */
/* Operand i has the tokens and features `h`, or v where that is what it has; decays need none of them. */
static bool infer_linear_operand(Ctx *c, int i, uint16_t h, const ZgType *like) {
  uint16_t s = c->n->ax[0], k = c->n->ax[1], v = c->n->ax[2];
  if (!want_float(c, i)) return false;
  if (h != ZG_MAX_GRAPH_AXES) {
    if (!want_axis(c, i, s) || !want_axis(c, i, h) || !want_no_axis(c, i, h == k ? v : k)) return false;
    if (c->in[i].elem == like->elem) return true;
    Text a = text_of(c, &c->in[i]), b = text_of(c, like);
    return FAIL(c, "%s: queries, keys and values have one element type, found %s and %s", OPNAME(c), b.s,
                a.s);
  }
  return want_no_axis(c, i, v);
}

/* The axes of all operands but those of features are rows: each has a state of its own. */
static bool infer_linear(Ctx *c) {
  enum { FREE = ZG_MAX_GRAPH_AXES };
  const ZgNode *n = c->n;
  int from = n->op == ZG_OP_LINEAR_ATTEND_GRAD;
  if (!want_nax(c, 3, 3) || !want_opt(c, 0, 0, 7, "what there is more") || !want_opt(c, 1, 0, 0, "the chunk"))
    return false;
  if (n->nin != zg_linear_operands(n->opt[0]) + from)
    return FAIL(c, "%s: %d operands, with what there is more it takes %d", OPNAME(c), n->nin,
                zg_linear_operands(n->opt[0]) + from);
  uint16_t k = n->ax[1], v = n->ax[2], h[7] = {k, k, v};
  int count = 3;
  if (n->opt[0] & ZG_LINEAR_DECAY) h[count++] = FREE;
  if (n->opt[0] & ZG_LINEAR_FEED) h[count++] = k;
  if (n->opt[0] & ZG_LINEAR_PAIR) h[count++] = k, h[count++] = v;
  ZgType o = zg_type((ZgElem)c->in[from + 2].elem, NULL, 0);
  for (int i = 0; i < count; i++) {
    if (!infer_linear_operand(c, from + i, h[i], &c->in[from])) return false;
    ZgType rest = zg_type_minus(&c->in[from + i], &k, 1);
    o = zg_type_union(&o, &rest);
    if (o.naxes > ZG_MAX_AXES)
      return FAIL(c, "%s: the result would have more than %d axes", OPNAME(c), ZG_MAX_AXES);
  }
  if (!from) c->out[0] = o;
  for (int i = 0; from && i < count; i++) c->out[i] = c->in[1 + i];
  return !from || want_same(c, 0, &o);
}

/* ---- tables and cross-entropy -------------------------------------------------------------------------- */
static bool infer_lookup(Ctx *c) {
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

static bool infer_lookup_grad(Ctx *c) {
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
static bool infer_topk(Ctx *c) {
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

static bool infer_onehot(Ctx *c) {
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

/* DISPATCH, COMBINE: experts, slots, choices; e has the tokens' axes and choices. */
static bool infer_experts(Ctx *c) {
  const ZgNode *n = c->n;
  bool out = n->op == ZG_OP_DISPATCH;
  if (!want_float(c, 0) || !want_nax(c, 3, 3) || !want_index(c, 1, n->ax[0]) || !want_axis(c, 1, n->ax[2]))
    return false;
  for (int i = 0; i < 2; i++)
    if (!want_no_axis(c, 1, n->ax[i]) || !(out ? want_no_axis : want_axis)(c, 0, n->ax[i])) return false;
  if (axis_size(c, n->ax[0]) == 0 || axis_size(c, n->ax[1]) != 0)
    return FAIL(c, "%s: %s", OPNAME(c),
                axis_size(c, n->ax[0]) ? "the slots' axis has a size, which is the planner's to choose"
                                       : "the size of the experts' axis must be a number in the model");
  ZgType tokens = zg_type_minus(&c->in[1], &n->ax[2], 1), rest;
  for (int i = 0; i < tokens.naxes; i++)
    if (!(out ? want_axis : want_no_axis)(c, 0, tokens.axis[i])) return false;
  if (out) {
    ZgType rows = zg_type(c->in[0].elem, n->ax, 2);
    rest = zg_type_minus(&c->in[0], c->in[1].axis, c->in[1].naxes);
    c->out[0] = zg_type_union(&rest, &rows);
    return true;
  }
  if (!want_no_axis(c, 0, n->ax[2]) || !want_opt(c, 0, 0, 1, "keep")) return false;
  rest = zg_type_minus(&c->in[0], n->ax, 2);
  c->out[0] = zg_type_union(&rest, n->opt[0] ? &c->in[1] : &tokens);
  c->out[0].elem = ZG_F32;
  return true;
}

static bool infer_xent(Ctx *c) {
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

static bool infer_created(Ctx *c) { /* POSITION, RANDOM */
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
static bool well_formed(Ctx *c) {
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

static bool infer_results(Ctx *c) {
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
  case ZG_OP_CONV_GRAD: return infer_conv(c);
  case ZG_OP_CUMSUM: return infer_cumsum(c);
  case ZG_OP_SCAN: return infer_scan(c);
  case ZG_OP_LINEAR_ATTEND:
  case ZG_OP_LINEAR_ATTEND_GRAD: return infer_linear(c);
  case ZG_OP_SOFTMAX:
  case ZG_OP_SOFTMAX_GRAD: return infer_softmax(c);
  case ZG_OP_NORMALIZE:
  case ZG_OP_NORMALIZE_GRAD: return infer_normalize(c);
  case ZG_OP_ROPE: return infer_rope(c);
  case ZG_OP_ROTATE: return infer_rotate(c);
  case ZG_OP_ATTEND:
  case ZG_OP_ATTEND_GRAD:
  case ZG_OP_ATTEND_BIAS_GRAD: return infer_attend(c);
  case ZG_OP_LOOKUP: return infer_lookup(c);
  case ZG_OP_LOOKUP_GRAD: return infer_lookup_grad(c);
  case ZG_OP_TOPK: return infer_topk(c);
  case ZG_OP_ONEHOT: return infer_onehot(c);
  case ZG_OP_DISPATCH:
  case ZG_OP_COMBINE: return infer_experts(c);
  case ZG_OP_XENT_SUMS:
  case ZG_OP_XENT_GRAD: return infer_xent(c);
  case ZG_OP_POSITION:
  case ZG_OP_RANDOM: return infer_created(c);
  }
  ZB_BUG("op %s has no type rule", OPNAME(c));
}

bool zg_infer(const ZgGraph *g, const ZgNode *n, const ZgType *in, const ZgType *hint, ZgType *out,
              ZbErr *err) {
  Ctx c = {g, n, in, hint, out, err};
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

/* Result types of the operations that whole layers are: convolutions, positions, attention, recurrences,
 * experts. Semantics: OPS.md. */
#include "graph/infer.h"

#include <math.h>

/* ---- convolutions -------------------------------------------------------------------------------------- */
/* What y would have instead of what it has. */
static bool conv_does_not_fit(ZgInfer *c, const uint16_t *a, const int64_t *size, int64_t gives) {
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
static bool infer_conv_axis(ZgInfer *c, const ZgType *const t[3], int d) {
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
bool zg_infer_conv(ZgInfer *c) {
  const ZgNode *n = c->n;
  const ZgType *t[3];
  ZgElem e = ZG_F32;
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

/* ---- positions ------------------------------------------------------------------------------------------ */
bool zg_infer_rope(ZgInfer *c) {
  const ZgNode *n = c->n;
  if (!want_float(c, 0) || !want_nax(c, 2, 2) || !want_axis(c, 0, n->ax[0]) || !want_axis(c, 0, n->ax[1]))
    return false;
  int64_t h = axis_size(c, n->ax[1]);
  if (h == 0 || h % 2)
    return FAIL(c, "rope rotates pairs: the size of %s must be an even number in the model, found %lld",
                axis_name(c, n->ax[1]), (long long)h);
  if (!(n->num[0] > 0)) return FAIL(c, "rope: base is %g, must be positive", n->num[0]);
  c->out[0] = c->in[0];
  return want_opt(c, 0, 0, 1, "inverse");
}

bool zg_infer_rotate(ZgInfer *c) {
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
static bool want_among(ZgInfer *c, const char *who, const ZgType *t, const char *what, const ZgType *of) {
  if (zg_type_contains(of, t)) return true;
  Text a = text_of(c, t), b = text_of(c, of);
  return FAIL(c, "%s: the axes of %s, %s, must be among those of %s, %s", OPNAME(c), who, a.s, what, b.s);
}

/* Besides q, k and v, in this order and each once at most: a bias has the axis of the keys, documents are
 * ids, sinks have neither. */
static bool infer_attend_more(ZgInfer *c, const ZgAttendAxes *ax, const ZgType *q, const ZgType *k,
                              int from) {
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
  return FAIL(c, "%s: the %s operand, %s, is not a bias", OPNAME(c), ordinal[from], TYPE(c, &c->in[from]));
}

static bool infer_attend_mask(ZgInfer *c, const ZgAttendAxes *ax) {
  const ZgNode *n = c->n;
  if (!want_opt(c, 0, 0, 2, "the mask") || !want_opt(c, 1, 0, INT32_MAX, "the window")) return false;
  if (!(n->num[1] >= 0)) return FAIL(c, "%s: the cap is %g, must not be negative", OPNAME(c), n->num[1]);
  int64_t queries = axis_size(c, ax->q), keys = axis_size(c, ax->k);
  if (queries == keys || queries == 0 || keys == 0 || (!n->opt[0] && !n->opt[1])) return true;
  return FAIL(c, "%s: %s compares positions, but %s has %lld and %s %lld", OPNAME(c),
              n->opt[0] ? "the causal mask" : "the window", axis_name(c, ax->q), (long long)queries,
              axis_name(c, ax->k), (long long)keys);
}

bool zg_infer_attend(ZgInfer *c) {
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
static bool infer_linear_operand(ZgInfer *c, int i, uint16_t h, const ZgType *like) {
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
bool zg_infer_linear(ZgInfer *c) {
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

/* ---- experts -------------------------------------------------------------------------------------------- */
/* DISPATCH, COMBINE: experts, slots, choices; e has the tokens' axes and choices. */
bool zg_infer_experts(ZgInfer *c) {
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

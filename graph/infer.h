/* infer: what the files of the one type rule share: a node with its operands' types, and the small checks.
 *
 * infer.c         the rule, op by op, and axis classes
 * infer_layers.c  its longer cases: convolutions, positions, attention, recurrences, experts
 *
 * A check that fails says why in `err`, in words a user can read, and returns false. */
#ifndef ZUG_GRAPH_INFER_H
#define ZUG_GRAPH_INFER_H

#include "graph/graph.h"

#include <string.h>

typedef struct {
  const ZgGraph *g;
  const ZgNode *n;
  const ZgType *in, *hint;
  ZgType *out;
  ZbErr *err;
} ZgInfer;

#define OPNAME(c) zg_op_info[(c)->n->op].text
#define FAIL(c, ...) zb_fail((c)->err, NULL, __VA_ARGS__)

/* Short-lived text of a type for messages. */
typedef struct {
  char s[320];
} Text;
static inline Text text_of(const ZgInfer *c, const ZgType *t) {
  Text r;
  ZbText b = {0};
  zg_type_put(c->g, &b, t);
  snprintf(r.s, sizeof r.s, "%s", b.s);
  zb_text_free(&b);
  return r;
}
#define TYPE(c, t) text_of((c), (t)).s

static inline const char *axis_name(const ZgInfer *c, uint16_t a) { return c->g->axes[a].name; }
static inline int64_t axis_size(const ZgInfer *c, uint16_t a) { return c->g->axes[a].size; }
static inline bool is_float(ZgElem e) { return e == ZG_REAL || e == ZG_F32 || e == ZG_BF16 || e == ZG_F16; }
static inline bool is_number(ZgElem e) { return is_float(e) || e == ZG_I32; }

static const char *const ordinal[] = {"first", "second",  "third",  "fourth", "fifth",
                                      "sixth", "seventh", "eighth", "ninth",  "tenth"};

/* ---- small checks -------------------------------------------------------------------------------------- */
static inline bool want_float(ZgInfer *c, int i) {
  if (is_float(c->in[i].elem)) return true;
  return FAIL(c, "%s takes a real tensor, but its %s operand is %s", OPNAME(c), ordinal[i],
              TYPE(c, &c->in[i]));
}

static inline bool want_floats(ZgInfer *c) {
  for (int i = 0; i < c->n->nin; i++)
    if (!want_float(c, i)) return false;
  return true;
}

static inline bool want_index(ZgInfer *c, int i, uint16_t of) {
  const ZgType *t = &c->in[i];
  if (t->elem == ZG_INDEX && t->of == of) return true;
  return FAIL(c, "%s[%s] needs index(%s) as its %s operand, found %s", OPNAME(c), axis_name(c, of),
              axis_name(c, of), ordinal[i], TYPE(c, t));
}

static inline bool want_axis(ZgInfer *c, int i, uint16_t a) {
  if (zg_type_has(&c->in[i], a)) return true;
  return FAIL(c, "%s[%s]: the %s operand has no axis %s, it is %s", OPNAME(c), axis_name(c, a), ordinal[i],
              axis_name(c, a), TYPE(c, &c->in[i]));
}

static inline bool want_no_axis(ZgInfer *c, int i, uint16_t a) {
  if (!zg_type_has(&c->in[i], a)) return true;
  return FAIL(c, "%s: the %s operand has the axis %s already, it is %s", OPNAME(c), ordinal[i],
              axis_name(c, a), TYPE(c, &c->in[i]));
}

static inline bool want_same(ZgInfer *c, int i, const ZgType *t) {
  if (zg_type_eq(&c->in[i], t)) return true;
  Text found = text_of(c, &c->in[i]), want = text_of(c, t);
  return FAIL(c, "%s: the %s operand must be %s, found %s", OPNAME(c), ordinal[i], want.s, found.s);
}

/* Same axes, any floating element type. */
static inline bool want_axes(ZgInfer *c, int i, const ZgType *t) {
  if (!want_float(c, i)) return false;
  if (c->in[i].naxes == t->naxes && zg_type_contains(t, &c->in[i])) return true;
  Text found = text_of(c, &c->in[i]), want = text_of(c, t);
  return FAIL(c, "%s: the %s operand must have the axes of %s, found %s", OPNAME(c), ordinal[i], want.s,
              found.s);
}

static inline bool want_nax(ZgInfer *c, int lo, int hi) {
  if (c->n->nax >= lo && c->n->nax <= hi) return true;
  if (lo == hi)
    return FAIL(c, "%s takes %d axis name%s, found %d", OPNAME(c), lo, lo == 1 ? "" : "s", c->n->nax);
  return FAIL(c, "%s takes %d to %d axis names, found %d", OPNAME(c), lo, hi, c->n->nax);
}

static inline bool want_opt(ZgInfer *c, int i, int64_t lo, int64_t hi, const char *what) {
  if (c->n->opt[i] >= lo && c->n->opt[i] <= hi) return true;
  return FAIL(c, "%s: %s is %lld, must be %lld to %lld", OPNAME(c), what, (long long)c->n->opt[i],
              (long long)lo, (long long)hi);
}

static inline bool want_hint(ZgInfer *c) {
  if (c->hint) return true;
  return FAIL(c, "%s needs a result type", OPNAME(c));
}

static inline ZgType scalar(ZgElem e) { return zg_type(e, NULL, 0); }

/* Element type of arithmetic on a and b: equal ones stay; anything with f32 is f32; real with a smaller float
 * is real; bf16 with f16 is f32, which holds both. */
static inline bool join_elem(ZgInfer *c, const ZgType *a, const ZgType *b, ZgElem *out) {
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

/* ---- infer_layers.c ------------------------------------------------------------------------------------ */
bool zg_infer_conv(ZgInfer *c);
bool zg_infer_rope(ZgInfer *c);
bool zg_infer_rotate(ZgInfer *c);
bool zg_infer_attend(ZgInfer *c);
bool zg_infer_linear(ZgInfer *c);
bool zg_infer_experts(ZgInfer *c);

#endif

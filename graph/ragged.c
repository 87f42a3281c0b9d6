/* What may be done to rows of experts: see ragged.h. */
#include "graph/ragged.h"

#include <string.h>

bool zg_count_slots(const ZgGraph *g, uint16_t *experts, const ZgNode *n, ZbErr *err) {
  if (n->op != ZG_OP_DISPATCH && n->op != ZG_OP_COMBINE) return true;
  uint16_t expert = n->ax[0], slot = n->ax[1];
  if (experts[slot] == ZG_NO_AXIS) experts[slot] = expert;
  if (experts[slot] == expert) return true;
  return zb_fail(err, "declare an axis for the slots of each", "%s counts the slots of %s and of %s",
                 g->axes[slot].name, g->axes[expert].name, g->axes[experts[slot]].name);
}

uint16_t *zg_slot_axes(const ZgGraph *g, ZbArena *a, ZbErr *err) {
  uint16_t *of = ZB_NEWN(a, uint16_t, g->naxes + 1);
  memset(of, 0xff, (g->naxes + 1) * sizeof *of);
  for (uint32_t i = 0; i < g->nsegments; i++)
    for (uint32_t k = 0; k < g->segments[i].nnodes; k++) {
      const ZgNode *n = &g->segments[i].nodes[k];
      bool there = n->ax[0] < g->naxes && n->ax[1] < g->naxes; /* else verify.c will find it */
      if (there && !zg_count_slots(g, of, n, err)) return NULL;
    }
  return of;
}

uint16_t zg_slot_axis(const uint16_t *experts, const ZgType *t) {
  for (int i = 0; i < t->naxes; i++)
    if (experts[t->axis[i]] != ZG_NO_AXIS) return t->axis[i];
  return ZG_NO_AXIS;
}

const ZgNode *zg_dispatched_by(const ZgSegment *s, const uint16_t *experts, uint32_t v) {
  for (;;) {
    const ZgNode *n = &s->nodes[s->values[v].node];
    if (n->op == ZG_OP_DISPATCH) return n;
    int i = 0;
    while (i < n->nin && zg_slot_axis(experts, &s->values[n->in[i]].type) == ZG_NO_AXIS) i++;
    if (i == n->nin) return NULL;
    v = n->in[i];
  }
}

uint32_t zg_route(const ZgSegment *s, const uint16_t *experts, uint32_t v) {
  const ZgNode *n = zg_dispatched_by(s, experts, v);
  return n ? n->in[1] : ZG_NONE;
}

int zg_grouped(const uint16_t *experts, const ZgNode *n, const ZgType *in) {
  if (n->op != ZG_OP_DOT) return -1;
  bool a = zg_slot_axis(experts, &in[0]) != ZG_NO_AXIS, b = zg_slot_axis(experts, &in[1]) != ZG_NO_AXIS;
  return a == b ? -1 : b;
}

bool zg_sums_rows(const uint16_t *experts, const ZgNode *n) {
  return n->op == ZG_OP_DOT && n->nax == 1 && experts[n->ax[0]] != ZG_NO_AXIS;
}

/* ---- the rule ------------------------------------------------------------------------------------------ */
typedef struct {
  const ZgGraph *g;
  const ZgNode *n;
  ZgType in[ZG_MAX_IN];
  uint16_t slot, expert;
  ZbErr *err;
} Ctx;

#define FAIL(c, ...) zb_fail((c)->err, NULL, __VA_ARGS__)
static const char *name(const Ctx *c, uint16_t axis) { return c->g->axes[axis].name; }
static const char *opname(const Ctx *c) { return zg_op_info[c->n->op].text; }

static bool names(const Ctx *c, uint16_t axis) {
  for (int i = 0; i < c->n->nax; i++)
    if (c->n->ax[i] == axis) return true;
  return false;
}

/* The weight has the experts, what is summed, and nothing of the rows besides. With nothing to sum, each row
 * gets its expert's part of the weight: a bias is that of rows of 1. */
static bool weight_fits(const Ctx *c, int rows) {
  const ZgType *x = &c->in[rows], *w = &c->in[!rows];
  if (!zg_type_has(w, c->expert))
    return zb_fail(c->err, "give the weight the experts' axis, or multiply before `dispatch`",
                   "between dispatch and combine, dot takes a weight of each expert: the axis %s is missing",
                   name(c, c->expert));
  if (names(c, c->expert)) return FAIL(c, "dot: rows of experts are not summed over %s", name(c, c->expert));
  for (int i = 0; i < w->naxes; i++)
    if (w->axis[i] != c->expert && zg_type_has(x, w->axis[i]) && !names(c, w->axis[i]))
      return FAIL(c, "dot: rows of experts and their weight share the axis %s, which is not summed",
                  name(c, w->axis[i]));
  return true;
}

bool zg_is_number(const ZgSegment *s, uint32_t v) {
  const ZgNode *n = &s->nodes[s->values[v].node];
  if (s->values[v].type.naxes) return false;
  if (n->op == ZG_OP_FILL || n->op == ZG_OP_AXSIZE || n->op == ZG_OP_STOP) return true;
  bool all = zg_op_info[n->op].kind == ZG_EW;
  for (int i = 0; all && i < n->nin; i++) all = zg_is_number(s, n->in[i]);
  return all;
}

static bool rows_fit(const Ctx *c, const ZgSegment *s) {
  bool summed = names(c, c->slot) || names(c, c->expert);
  if (summed)
    return zb_fail(c->err, "sum after `combine`, where the tokens have their axes again",
                   "%s over %s: how many rows each expert has is known at run time only", opname(c),
                   name(c, names(c, c->slot) ? c->slot : c->expert));
  for (int i = 0; i < c->n->nin; i++) {
    const ZgType *t = &c->in[i];
    if (zg_type_has(t, c->slot) || zg_is_number(s, c->n->in[i])) continue;
    return zb_fail(c->err, "`f32` of it comes to the rows: each has the part of its expert",
                   "%s: rows of experts meet what is not real and lacks %s", opname(c), name(c, c->slot));
  }
  return true;
}

static bool takes_rows(const ZgNode *n) {
  switch (n->op) {
  case ZG_OP_DOT:
  case ZG_OP_SUM:
  case ZG_OP_PEAK:
  case ZG_OP_CUMSUM:
  case ZG_OP_SOFTMAX:
  case ZG_OP_SOFTMAX_GRAD:
  case ZG_OP_NORMALIZE:
  case ZG_OP_NORMALIZE_GRAD:
  case ZG_OP_COMBINE: return true;
  default: return zg_op_info[n->op].kind == ZG_EW || zg_op_info[n->op].kind == ZG_MOVE;
  }
}

static bool same_route(const Ctx *c, const ZgSegment *s, const uint16_t *experts) {
  uint32_t route = c->n->op == ZG_OP_COMBINE ? c->n->in[1] : ZG_NONE;
  for (int i = 0; i < c->n->nin; i++) {
    if (!zg_type_has(&c->in[i], c->slot)) continue;
    uint32_t mine = zg_route(s, experts, c->n->in[i]);
    if (route == ZG_NONE) route = mine;
    if (mine == ZG_NONE)
      return zb_fail(c->err, "write `dispatch` and `combine` into one `repeat`, or none",
                     "%s: rows of experts are not carried into a `repeat`, nor out of one", opname(c));
    if (mine != route)
      return zb_fail(c->err, "use the ids of the same `topk` in `dispatch` and `combine`",
                     "%s: rows were dispatched by other ids", opname(c));
  }
  return true;
}

bool zg_ragged_fits(const ZgGraph *g, const ZgSegment *s, const uint16_t *experts, const ZgNode *n,
                    const ZgType *out, bool backward, ZbErr *err) {
  Ctx c = {.g = g, .n = n, .slot = ZG_NO_AXIS, .err = err};
  bool row = false;
  for (int i = 0; i < n->nin; i++) {
    c.in[i] = s->values[n->in[i]].type;
    uint16_t slot = zg_slot_axis(experts, &c.in[i]);
    if (slot != ZG_NO_AXIS) row = true, c.slot = slot;
  }
  for (int i = 0; i < zg_outs(n->op, n->opt) && c.slot == ZG_NO_AXIS; i++)
    c.slot = zg_slot_axis(experts, &out[i]);
  if (c.slot == ZG_NO_AXIS) {
    for (int i = 0; i < n->nax; i++)
      if (experts[n->ax[i]] != ZG_NO_AXIS)
        return FAIL(&c, "%s: %s counts slots of experts, of which there are as many as the plan says",
                    opname(&c), name(&c, n->ax[i]));
    return true;
  }
  c.expert = experts[c.slot];
  if (n->op == ZG_OP_DISPATCH) return !row || FAIL(&c, "rows of experts are dispatched again");
  if (n->op == ZG_OP_BROADCAST && !row && zg_is_number(s, n->in[0])) return true; /* in every row */
  if (!row) return FAIL(&c, "only dispatch makes the axis %s", name(&c, c.slot));
  if (!takes_rows(n))
    return zb_fail(err, "do it before `dispatch`, or after `combine`", "%s does not take rows of experts",
                   opname(&c));
  if (!same_route(&c, s, experts)) return false;
  if (n->op == ZG_OP_COMBINE) return true;
  int rows = zg_grouped(experts, n, c.in);
  if (rows >= 0) return weight_fits(&c, rows);
  return (backward && zg_sums_rows(experts, n)) || rows_fit(&c, s);
}

/* Shapes of the calls that FWD, BWD and COUNT run, derived from the mesh and the axes' sizes: a kernel trusts that an axis
 * has one size in all of a call's operands and results, and a collective that its members' parts make up the whole. */
#include "runtime/plan/check.h"

typedef struct {
  const Check *c;
  const ZpSegment *s;
  uint32_t segment;
  const char *phase;
  const ZpNode *n;
  int64_t *size; /* per axis: its local size in this call; 0: not seen yet */
} Shapes;

static bool fails(const Shapes *x, const char *what) {
  return zb_fail(x->c->err, NULL, "%s of %s, %s (%s): %s", x->phase, zp_say_inst(x->c, x->segment, 0),
                 zg_op_info[x->n->call.op].text, zp_loc_text(x->c->p, x->n->loc), what);
}

static const char *axis_name(const Shapes *x, uint16_t axis) { return x->c->p->graph->axes[axis].name; }

/* A value is its part of the whole along each axis, and its bytes are those of that. */
static bool value_fits(const Shapes *x, uint32_t value) {
  const ZpPlan *p = x->c->p;
  if (value >= x->s->nvalues) return fails(x, "an operand that does not exist");
  const ZpValue *v = &x->s->values[value];
  uint64_t bytes = zk_elem_bytes((ZkElem)v->elem) * (v->nparts ? v->nparts : 1u);
  for (int i = 0; i < v->type.naxes; i++) {
    int64_t parts = 1;
    for (int d = 0; d < p->mesh.ndims; d++)
      if (v->state[d].kind == 'S' && v->state[d].axis == v->axis[i]) parts *= p->mesh.dim[d].size;
    if (v->axis[i] >= p->graph->naxes) return fails(x, "an axis that does not exist");
    if (v->size[i] * parts != p->axis_size[v->axis[i]])
      return fails(x, zb_printf(x->c->a, "%lld of %s on each of %lld ranks, but there are %lld",
                                (long long)v->size[i], axis_name(x, v->axis[i]), (long long)parts,
                                (long long)p->axis_size[v->axis[i]]));
    bytes *= (uint64_t)v->size[i];
  }
  if (bytes != v->bytes) return fails(x, "an operand that has other bytes than its shape");
  return true;
}

static int64_t size_along(const ZpValue *v, uint16_t axis) {
  for (int i = 0; i < v->type.naxes; i++)
    if (v->axis[i] == axis) return v->size[i];
  return 0;
}

/* ---- kernels ---- */
static const ZpValue *operand(const Shapes *x, int i) {
  const ZkCall *c = &x->n->call;
  return &x->s->values[i < c->nin ? x->n->in[i] : x->n->out[i - c->nin]];
}

static bool one_size(const Shapes *x) {
  int all = x->n->call.nin + x->n->call.nout;
  bool same = true;
  for (int i = 0; i < all && same; i++) {
    const ZpValue *v = operand(x, i);
    for (int k = 0; k < v->type.naxes && same; k++) {
      int64_t *size = &x->size[v->axis[k]];
      same = !*size || *size == v->size[k];
      if (!same)
        fails(x, zb_printf(x->c->a, "%s has %lld elements here and %lld there", axis_name(x, v->axis[k]),
                           (long long)*size, (long long)v->size[k]));
      *size = v->size[k];
    }
  }
  for (int i = 0; i < all; i++)
    for (int k = 0; k < operand(x, i)->type.naxes; k++) x->size[operand(x, i)->axis[k]] = 0;
  return same;
}

/* The same data under another axis. */
static bool renamed(const Shapes *x) {
  const uint16_t *ax = x->n->call.ax;
  int64_t from = size_along(operand(x, 0), ax[0]), to = size_along(operand(x, 1), ax[1]);
  if (from == to && from > 0) return true;
  return fails(x, zb_printf(x->c->a, "%s has %lld elements, %s has %lld", axis_name(x, ax[0]),
                            (long long)from, axis_name(x, ax[1]), (long long)to));
}

/* ---- collectives ---- */
/* How many times as large `axis` is after it: of m members each has m times as much, an m-th, or the same. */
static bool parts_fit(const Shapes *x) {
  const ZpValue *in = operand(x, 0), *out = operand(x, 1);
  int64_t m = zp_group_size(&x->c->p->mesh, x->n->dims);
  int op = x->n->call.op;
  bool grows = op == ZG_OP_ALL_GATHER || op == ZG_OP_ALL_TO_ALL;
  bool shrinks = op == ZG_OP_REDUCE_SCATTER || op == ZG_OP_LOCAL_SLICE;
  bool fit = in->type.naxes == out->type.naxes && in->elem == out->elem;
  for (int i = 0; i < in->type.naxes && fit; i++) {
    uint16_t axis = in->axis[i];
    int64_t before = in->size[i], after = size_along(out, axis);
    if (axis == x->n->axis && op != ZG_OP_ALL_REDUCE) {
      if (grows) before *= m;
      if (shrinks) after *= m;
    } else if (op == ZG_OP_ALL_TO_ALL && axis == x->n->axis2) {
      after *= m;
    }
    fit = before == after;
  }
  return fit || fails(x, "the members' parts do not make up the whole");
}

static bool list_fits(Shapes *x, const char *phase, const ZpNode *nodes, uint32_t n) {
  x->phase = phase;
  for (uint32_t i = 0; i < n; i++) {
    x->n = &nodes[i];
    const ZkCall *c = &nodes[i].call;
    for (int k = 0; k < c->nin; k++)
      if (!value_fits(x, nodes[i].in[k])) return false;
    for (int k = 0; k < c->nout; k++)
      if (!value_fits(x, nodes[i].out[k])) return false;
    if (nodes[i].dims ? !parts_fit(x) : !one_size(x)) return false;
    if (c->op == ZG_OP_RENAME && !renamed(x)) return false;
  }
  return true;
}

bool zp_check_shapes(const Check *c) {
  Shapes x = {.c = c, .size = ZB_NEWN(c->a, int64_t, c->p->graph->naxes + 1)};
  for (uint32_t i = 0; i < c->p->graph->nsegments; i++) {
    x.segment = i;
    const ZpSegment *s = x.s = &c->p->segments[i];
    if (!list_fits(&x, "count", s->count, s->ncount) || !list_fits(&x, "forward", s->fwd, s->nfwd) ||
        !list_fits(&x, "backward", s->bwd, s->nbwd))
      return false;
  }
  return true;
}

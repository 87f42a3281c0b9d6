/* Where the elements of a local value lie: pure functions of the mesh, a type and its states.
 *
 * A tensor's axes are cut by the dims that list them; what a rank has is dense, its axes in the type's order,
 * those of a parameter in the order of its declaration. Example: x[seq, embed] with seq split over 2 ranks is
 * S(seq), of 8 x 16 each rank has 4 x 16, and the view that a kernel gets has strides 16 and 1. */
#include "graph/ragged.h"
#include "runtime/plan/local/local.h"

static bool dim_lists(const ZpDim *d, const ZgType *t, uint16_t *axis) {
  for (uint32_t i = 0; i < d->naxes; i++)
    if (zg_type_has(t, d->axes[i])) return *axis = d->axes[i], true;
  return false;
}

void zp_layout(const ZpPlan *p, const ZgType *t, ZpState *state) {
  for (int d = 0; d < ZP_MAX_DIMS; d++) {
    state[d] = (ZpState){.kind = 'R'};
    uint16_t a;
    if (d < p->layout.mesh.ndims && d != p->layout.mesh.pipe && dim_lists(&p->layout.mesh.dim[d], t, &a))
      state[d] = (ZpState){.kind = 'S', .axis = a};
  }
}

int64_t zp_local_size(const ZpPlan *p, uint16_t axis, const ZpState *state) {
  int64_t n = p->layout.axis_size[axis];
  for (int d = 0; d < p->layout.mesh.ndims; d++)
    if (state[d].kind == 'S' && state[d].axis == axis) n /= p->layout.mesh.dim[d].size;
  return n;
}

/* Returns where rows are parted into chunks: before them, for them, behind them. */
static int side_of_rows(const ZpPlan *p, uint16_t axis) {
  return axis >= p->layout.chunk.up ? 1 : axis < p->layout.chunk.rows ? 0 : 2;
}

/* In a step the axes whose sizes differ from step to step come first, so that strides stay; positions within a page
 * lie before the last of the model's axes, so that those of a head are neighbours. */
static void order_of_step(const ZpPlan *p, const ZgType *t, uint16_t *axis) {
  const ZpStreamAxes *x = &p->stream->axis;
  uint16_t within = ZG_NO_AXIS;
  int n = 0;
  for (int first = 1; first >= 0; first--)
    for (int i = 0; i < t->naxes; i++) {
      uint16_t a = t->axis[i];
      bool page = false;
      for (uint32_t g = 0; g < p->stream->ngroups; g++) page |= a == p->stream->groups[g].page;
      bool leads = page || a == x->token || a == x->row || a == x->sequence;
      if (a == x->within) within = a;
      else if (leads == first) axis[n++] = a;
    }
  if (within == ZG_NO_AXIS) return;
  int at = n > 1 ? n - 1 : n;
  memmove(&axis[at + 1], &axis[at], (size_t)(n - at) * sizeof *axis);
  axis[at] = within;
}

void zp_memory_order(const ZpPlan *p, const ZgType *t, uint16_t *axis) {
  uint16_t slot = zg_slot_axis(p->layout.experts, t);
  bool chunk = zg_type_has(t, p->layout.chunk.up);
  if (p->stream && slot == ZG_NO_AXIS) {
    order_of_step(p, t, axis);
    return;
  }
  int n = 0;
  if (slot != ZG_NO_AXIS) axis[n++] = p->layout.experts[slot], axis[n++] = slot;
  for (int side = 0; side < (chunk ? 3 : 1); side++)
    for (int i = 0; i < t->naxes; i++) {
      bool before = slot != ZG_NO_AXIS && (t->axis[i] == slot || t->axis[i] == p->layout.experts[slot]);
      if (!before && (!chunk || side_of_rows(p, t->axis[i]) == side)) axis[n++] = t->axis[i];
    }
  for (int i = 1; p->layout.lies && slot == ZG_NO_AXIS && !chunk && i < n; i++) /* where their sequence is */
    for (int k = i; k > 0 && p->layout.lies[axis[k]] < p->layout.lies[axis[k - 1]]; k--) {
      uint16_t before = axis[k - 1];
      axis[k - 1] = axis[k], axis[k] = before;
    }
}

ZkElem zp_store_elem(const ZpPlan *p, const ZgType *t) {
  return zp_elem_as(t, zp_precision_elem(p->asked.recipe->precision.compute));
}

ZkElem zp_param_elem(const ZpPlan *p, uint32_t param) {
  if (zp_param_packed(p, param)) return (ZkElem)p->asked.packed[param].elem;
  return zp_store_elem(p, &p->graph->params[param].type);
}

void zp_give_elem(ZpValue *v, ZkElem elem) {
  v->bytes = zk_bytes(elem, zk_elems((ZkElem)v->elem, v->bytes));
  v->elem = (uint8_t)elem;
}

void zp_declared_order(const ZpPlan *p, uint32_t param, const ZpState *state, uint16_t *axis, int64_t *size) {
  const ZgParam *q = &p->graph->params[param];
  for (int i = 0; i < q->type.naxes; i++) {
    axis[i] = q->type.axis[q->order[i]];
    size[i] = zp_local_size(p, axis[i], state);
  }
}

/* Orders the axes of a packed parameter as they lie: those that number matrices, rows, columns. Returns how many are
 * columns' own. */
static uint8_t packed_order(const ZpPlan *p, uint32_t param, uint16_t *axis) {
  const ZpRole order[] = {ZP_EACH, ZP_ROWS, ZP_COLS};
  const ZgParam *q = &p->graph->params[param];
  uint8_t n = 0, summed = 0;
  for (int r = 0; r < 3; r++)
    for (int i = 0; i < q->type.naxes; i++) {
      if (p->asked.packed[param].role[i] != order[r]) continue;
      axis[n++] = q->type.axis[q->order[i]];
      summed += order[r] == ZP_COLS;
    }
  return summed;
}

void zp_pack_value(const ZpPlan *p, ZpValue *v) {
  int64_t columns = 1, sum = 1;
  v->summed = packed_order(p, v->param, v->axis);
  v->elem = p->asked.packed[v->param].elem;
  for (int i = 0; i < v->type.naxes; i++) {
    v->size[i] = zp_local_size(p, v->axis[i], v->state);
    *(i < v->type.naxes - v->summed ? &columns : &sum) *= v->size[i];
  }
  v->bytes = zk_bytes((ZkElem)v->elem, zk_packed_elems((ZkElem)v->elem, columns, sum));
}

ZkView zp_packed_view(const ZpPlan *p, const ZpSlice *s) {
  ZpValue v = {.type = p->graph->params[s->param].type, .param = s->param};
  memcpy(v.state, s->state, sizeof v.state);
  zp_pack_value(p, &v);
  return zp_view(p, &v);
}

ZkView zp_view(const ZpPlan *p, const ZpValue *v) {
  ZkView w = {.elem = v->elem, .rank = v->type.naxes, .summed = v->summed};
  int64_t stride = 1;
  for (int i = v->type.naxes; i-- > 0;) {
    w.axis[i] = v->axis[i];
    w.size[i] = v->size[i];
    w.whole[i] = p->layout.axis_size[v->axis[i]];
    w.stride[i] = stride;
    stride *= v->size[i];
  }
  return w;
}

void zp_views(const ZpPlan *p, const ZpSegment *s, ZpNode *n) {
  for (int i = 0; i < n->call.nin; i++) n->call.in[i] = zp_view(p, &s->values[n->in[i]]);
  for (int i = 0; i < n->call.nout; i++) n->call.out[i] = zp_view(p, &s->values[n->out[i]]);
}

/* Recurrences along a sequence that is split. Each rank has a chunk of it, goes over that as if it were all,
 * and all that ranks exchange is what chunks end with: a state, however long the chunk is.
 *
 * * Convolutions along a split axis take their neighbours' borders in the same way: cut_conv.c.
 *
 * * Needs a recipe bound to the graph. Provides a graph in which cumsum, scan and linear_attend (with their
 * gradients, which are such operations themselves) along a split axis are made of ones along a chunk, shifts
 * of what they end with, and elementwise operations; so sharding, memory, costs and proofs need not know of
 * it. Where it would be gathered all the same, the graph stays as it is.
 *
 * * The sequence s becomes two axes, chunks and elements of one; the first has as many as there are ranks
 * that share s, and is split over them. Both lie in memory where s lies, so that parting s moves nothing
 * apart.
 *
 * * Example: cumsum of 1 2 3 4 5 6 over 3 ranks. Each has the sums of its two: 1 3, 3 7, 5 11. They end with
 * 3 7 11, so the chunks begin with 0 3 10, which is added: 1 3, 6 10, 15 21. A scan h = a h' + b multiplies
 * what a chunk begins with by the product of its a so far.
 *
 * * What chunks begin with: of (e, p), what a chunk ends with and multiplies by, each rank takes those of the
 * rank before, then combines with those 1, 2, 4.. ranks before (Hillis and Steele 1986): e + p e', p p'. */
#include "runtime/plan/local/cut.h"

#include "graph/ragged.h"

#include <string.h>

/* ---- elementwise recurrences --------------------------------------------------------------------------- */
/* Returns the last element of each chunk, in the order of the recurrence. */
static uint32_t last_of(ZpCut *x, uint32_t v, bool reverse) {
  uint32_t last = zp_cut_slice(x, v, x->in, x->at, reverse ? 0 : x->own - 1, 1);
  return zp_cut_node(x, (ZgNode){.op = ZG_OP_SUM, .nax = 1, .ax = {x->at}}, 1, &last, NULL);
}

static void cut_cumsum(ZpCut *x) {
  const ZgNode *n = x->node;
  ZgNode sum = {.op = n->op, .nax = 1, .ax = {x->in}, .opt = {n->opt[0]}};
  uint32_t b = zp_cut_part(x, n->in[0]), h = zp_cut_node(x, sum, 1, &b, NULL);
  uint32_t start = zp_cut_start(x, last_of(x, h, n->opt[0]), (ZpFactor){.v = ZG_NONE}, n->opt[0]);
  h = zp_cut_two(x, ZG_OP_ADD, h, start);
  x->now[n->out] = zp_cut_merge(x, h, &x->from->values[n->out].type);
}

/* Returns 1 at the first element of a chunk in the order of the recurrence, and 0 behind it: where a shift of ones
 * brings nothing. */
static uint32_t first_of(ZpCut *x, uint8_t elem, bool reverse) {
  ZgType own = zg_type((ZgElem)elem, (uint16_t[]){x->chunk, x->in}, 2);
  ZgNode shift = {.op = ZG_OP_SHIFT, .nax = 1, .ax = {x->in}, .opt = {reverse ? -1 : 1}};
  uint32_t one = zp_cut_number(x, 1, elem), ones = zp_cut_fit(x, one, &own);
  return zp_cut_two(x, ZG_OP_SUB, one, zp_cut_node(x, shift, 1, &ones, NULL));
}

/* Returns the products of a of all elements of a chunk before each, in the order of the recurrence: 1 at the
 * first. It is the scan, late, of that 1 alone. */
static uint32_t products_before(ZpCut *x, uint32_t a, bool reverse) {
  const ZgType *t = zp_cut_type(x, a);
  uint8_t elem = t->elem;
  ZgType own = zg_type((ZgElem)elem, (uint16_t[]){x->chunk, x->in}, 2), all = zg_type_union(t, &own);
  uint32_t one = zp_cut_fit(x, first_of(x, elem, reverse), &all);
  ZgNode scan = {.op = ZG_OP_SCAN, .nax = 1, .ax = {x->in}, .opt = {reverse, 1}};
  return zp_cut_node(x, scan, 2, (uint32_t[]){a, one}, NULL);
}

/* Late, it is a h that one element hands to the next: so does one chunk. */
static void cut_scan(ZpCut *x) {
  const ZgNode *n = x->node;
  bool reverse = n->opt[0], late = n->opt[1];
  ZgNode scan = {.op = n->op, .nax = 1, .ax = {x->in}, .opt = {reverse, late}};
  uint32_t a = zp_cut_part(x, n->in[0]), b = zp_cut_part(x, n->in[1]);
  uint32_t h = zp_cut_node(x, scan, 2, (uint32_t[]){a, b}, NULL), before = products_before(x, a, reverse);
  uint32_t last = zg_type_has(zp_cut_type(x, a), x->in) ? last_of(x, a, reverse) : a;
  uint32_t factor = zp_cut_two(x, ZG_OP_MUL, last, last_of(x, before, reverse)), end = last_of(x, h, reverse);
  if (late) end = zp_cut_two(x, ZG_OP_MUL, last, end);
  uint32_t start = zp_cut_start(x, end, (ZpFactor){.v = factor}, reverse);
  uint32_t by = late ? before : zp_cut_two(x, ZG_OP_MUL, a, before);
  h = zp_cut_two(x, ZG_OP_ADD, h, zp_cut_two(x, ZG_OP_MUL, start, by));
  x->now[n->out] = zp_cut_merge(x, h, &x->from->values[n->out].type);
}

/* ---- the pass ------------------------------------------------------------------------------------------ */
/* Dims that would split node n along s, if it were not one that goes along s. */
static ZpDims split_along(const ZpPlan *p, const ZgSegment *g, const ZgNode *n, uint16_t s) {
  ZgType in[ZG_MAX_IN], out[ZG_MAX_OUT];
  ZpDims dims = 0;
  for (int i = 0; i < n->nin; i++) in[i] = g->values[n->in[i]].type;
  for (int i = 0; i < n->nout; i++) out[i] = g->values[n->out + (uint32_t)i].type;
  for (int d = 0; d < p->layout.mesh.ndims; d++) {
    const ZpDim *dim = &p->layout.mesh.dim[d];
    for (uint32_t i = 0; d != p->layout.mesh.pipe && dim->size > 1 && i < dim->naxes; i++) {
      ZgAxisClass c = zg_axis_class(n, in, out, dim->axes[i]);
      if (dim->axes[i] == s) dims |= 1u << d;
      if (dim->axes[i] == s || c == ZG_AXIS_PAR || c == ZG_AXIS_SUM || c == ZG_AXIS_MAX) break;
    }
  }
  return dims;
}

enum { MORE_AXES = 16 }; /* of one recurrence, at most */

static bool padded(const ZpPlan *p, uint16_t axis) {
  return p->layout.axis_size[axis] != p->layout.axis_valid[axis];
}

/* Finds the spatial axis of a convolution that is cut into chunks, as a place in ax. */
static ZpDims conv_in_chunks(const ZpPlan *p, const ZgSegment *g, const ZgNode *n, int *at) {
  for (int i = 0; i < n->nax; i += 3) {
    ZpDims dims = split_along(p, g, n, n->ax[i]);
    bool whole = n->ax[i] == p->asked.batch || padded(p, n->ax[i]) || padded(p, n->ax[i + 2]);
    if (!dims || whole || !zp_conv_in_chunks(p, n, i, dims)) continue;
    *at = i;
    return dims;
  }
  return 0;
}

/* Over which dims it is cut into chunks, along axis ax[*at]; 0: it is not. */
static ZpDims in_chunks(const ZpPlan *p, const ZgSegment *g, const ZgNode *n, int *at) {
  bool linear = zg_is_linear_attend(n->op), conv = zg_is_conv(n->op);
  *at = 0;
  if (n->op != ZG_OP_CUMSUM && n->op != ZG_OP_SCAN && !linear && !conv) return 0;
  if (p->graph->naxes + MORE_AXES > ZG_MAX_GRAPH_AXES) return 0;
  for (int i = 0; i < n->nin + n->nout; i++) {
    const ZgType *t = &g->values[i < n->nin ? n->in[i] : n->out + (uint32_t)(i - n->nin)].type;
    if (t->naxes == ZG_MAX_AXES || zg_slot_axis(p->layout.experts, t) != ZG_NO_AXIS) return 0;
  }
  if (conv) return conv_in_chunks(p, g, n, at);
  if (n->ax[0] == p->asked.batch || padded(p, n->ax[0])) return 0;
  ZpDims dims = split_along(p, g, n, n->ax[0]);
  return dims && (!linear || zp_linear_in_chunks(p, g, n, zp_group_size(&p->layout.mesh, dims))) ? dims : 0;
}

static void keep(ZpCut *x, const ZgNode *n) {
  ZgSegment *t = x->to;
  ZgNode m = *n;
  for (int i = 0; i < n->nin; i++) m.in[i] = x->now[n->in[i]];
  m.out = t->nvalues;
  for (int i = 0; i < n->nout; i++) {
    ZgValue v = {x->from->values[n->out + (uint32_t)i].type, t->nnodes};
    x->now[n->out + (uint32_t)i] = t->nvalues;
    ZB_PUSH(x->p->arena, t->values, t->nvalues, v);
  }
  ZB_PUSH(x->p->arena, t->nodes, t->nnodes, m);
  if (!t->backward) t->nforward = t->nnodes;
}

static void cut(ZpCut *x, const ZgNode *n, ZpDims dims, int at) {
  x->node = n;
  x->s = n->ax[at];
  x->ranks = zp_group_size(&x->p->layout.mesh, dims);
  x->own = x->p->layout.axis_size[x->s] / x->ranks;
  zp_cut_axes(x, dims);
  if (n->op == ZG_OP_CUMSUM) cut_cumsum(x);
  else if (n->op == ZG_OP_SCAN) cut_scan(x);
  else if (zg_is_conv(n->op)) zp_cut_conv(x, at);
  else zp_cut_linear(x);
}

static void cut_segment(ZpCut *x, uint32_t index) {
  const ZgSegment *g = &x->p->model->segments[index];
  ZgSegment *t = &x->g->segments[index];
  x->from = g;
  x->to = t;
  x->now = ZB_NEWN(x->p->arena, uint32_t, g->nvalues + 1);
  x->nstarts = 0;
  t->nodes = NULL, t->values = NULL;
  t->nnodes = t->nvalues = t->nforward = 0;
  for (uint32_t i = 0; i < g->nnodes; i++) {
    t->backward = i >= g->nforward;
    int at;
    ZpDims dims = in_chunks(x->p, g, &g->nodes[i], &at);
    if (dims) cut(x, &g->nodes[i], dims, at);
    else keep(x, &g->nodes[i]);
  }
  t->backward = g->backward;
}

void zp_cut_sequences(ZpBuild *b) {
  ZpCut x = {.b = b, .p = b->p};
  b->p->model = b->p->graph;
  if (b->o->pins) return; /* between GPUs nothing is sent to neighbours: what is split is gathered */
  for (uint32_t i = 0; i < b->p->model->nsegments; i++) {
    const ZgSegment *g = &b->p->model->segments[i];
    bool some = false;
    int at;
    for (uint32_t k = 0; k < g->nnodes && !some; k++) some = in_chunks(b->p, g, &g->nodes[k], &at) != 0;
    if (some && !x.g) zp_cut_begin(&x);
    if (some) cut_segment(&x, i);
  }
}

double zp_model_share(const ZpPlan *p, const ZpSegment *s, const ZpNode *n) {
  const uint16_t *ax = n->call.ax;
  uint16_t chunk = ZP_NO_AXIS;
  for (int i = 0; p->layout.lies && n->call.nin && i < s->values[n->in[0]].type.naxes; i++) {
    uint16_t a = s->values[n->in[0]].type.axis[i];
    for (int d = 0; d < p->layout.mesh.ndims; d++)
      if (a >= p->model->naxes && zp_dim_splits(&p->layout.mesh.dim[d], a)) chunk = a;
  }
  if (chunk == ZP_NO_AXIS) return 1;
  bool conv = zg_is_conv(n->call.op);
  if (!conv && (!zg_is_linear_attend(n->call.op) || ax[2] >= p->model->naxes))
    return 0; /* to know their ends */
  for (int i = 0; i < n->call.nax; i += conv ? 3 : n->call.nax)
    if (ax[i] >= p->model->naxes)
      return (double)(p->layout.axis_size[p->layout.lies[ax[i]]] / p->layout.axis_size[chunk]) /
             (double)p->layout.axis_size[ax[i]];
  return 1;
}

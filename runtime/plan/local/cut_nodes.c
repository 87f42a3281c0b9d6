/* Builds chunks of sequences: their axes, nodes in the place of a recurrence, and the values that go from
 * chunk to chunk. cut_sequences.c says why. */
#include "runtime/plan/local/cut.h"

#include "graph/ragged.h"

#include <string.h>

/* ---- axes ---------------------------------------------------------------------------------------------- */
void zp_cut_begin(ZpCut *x) {
  ZpPlan *p = x->p;
  ZbArena *a = p->arena;
  uint32_t n = p->graph->naxes;
  x->g = ZB_NEW(a, ZgGraph);
  *x->g = *p->graph;
  x->g->axes = ZB_NEWN(a, ZgAxis, ZG_MAX_GRAPH_AXES);
  x->g->segments = ZB_NEWN(a, ZgSegment, x->g->nsegments);
  x->sized = *p->graph;
  x->sized.arena = a;
  x->sized.axes = ZB_NEWN(a, ZgAxis, ZG_MAX_GRAPH_AXES);
  memcpy(x->g->axes, p->graph->axes, n * sizeof *x->g->axes);
  memcpy(x->g->segments, p->graph->segments, x->g->nsegments * sizeof *x->g->segments);
  int64_t *size = ZB_NEWN(a, int64_t, ZG_MAX_GRAPH_AXES), *valid = ZB_NEWN(a, int64_t, ZG_MAX_GRAPH_AXES);
  uint16_t *experts = ZB_NEWN(a, uint16_t, ZG_MAX_GRAPH_AXES);
  double *filled = ZB_NEWN(a, double, ZG_MAX_GRAPH_AXES);
  p->layout.lies = ZB_NEWN(a, uint16_t, ZG_MAX_GRAPH_AXES);
  for (uint32_t i = 0; i < n; i++) {
    x->sized.axes[i] = (ZgAxis){p->graph->axes[i].name, p->layout.axis_size[i]};
    size[i] = p->layout.axis_size[i], valid[i] = p->layout.axis_valid[i];
    experts[i] = p->layout.experts[i], filled[i] = p->layout.load[i];
    p->layout.lies[i] = (uint16_t)i;
  }
  p->layout.axis_size = size, p->layout.axis_valid = valid, p->layout.experts = experts,
  p->layout.load = filled;
  p->graph = x->g;
}

uint16_t zp_cut_axis(ZpCut *x, const char *name, int64_t size, uint16_t like) {
  ZpPlan *p = x->p;
  ZgGraph *g = x->g;
  for (uint32_t a = p->model->naxes; a < g->naxes; a++)
    if (!strcmp(g->axes[a].name, name)) return (uint16_t)a;
  uint32_t a = g->naxes++;
  ZB_ASSERT(a < ZG_MAX_GRAPH_AXES);
  g->axes[a] = x->sized.axes[a] = (ZgAxis){name, size};
  x->sized.naxes = g->naxes;
  p->layout.axis_size[a] = p->layout.axis_valid[a] = size;
  p->layout.experts[a] = ZG_NO_AXIS;
  p->layout.lies[a] = p->layout.lies[like];
  return (uint16_t)a;
}

/* Chunks come first in what the dims list: nothing that has them is split otherwise. */
void zp_cut_axes(ZpCut *x, ZpDims dims) {
  ZpPlan *p = x->p;
  const char *s = p->graph->axes[x->s].name, *over = zp_dims_text(&p->layout.mesh, p->arena, dims);
  uint32_t before = x->g->naxes;
  x->chunk = zp_cut_axis(x, zb_printf(p->arena, "%s.%s", s, over), x->ranks, x->s);
  x->in = zp_cut_axis(x, zb_printf(p->arena, "%s.in.%s", s, over), x->own, x->s);
  x->at = zp_cut_axis(x, zb_printf(p->arena, "%s.at", s), 1, x->s);
  for (int d = 0; d < p->layout.mesh.ndims && x->chunk == before; d++) {
    ZpDim *dim = &p->layout.mesh.dim[d];
    if (!(dims >> d & 1)) continue;
    uint16_t *axes = ZB_NEWN(p->arena, uint16_t, dim->naxes + 1);
    axes[0] = x->chunk;
    memcpy(axes + 1, dim->axes, dim->naxes * sizeof *axes);
    dim->axes = axes;
    dim->naxes++;
  }
}

/* ---- nodes --------------------------------------------------------------------------------------------- */
const ZgType *zp_cut_type(const ZpCut *x, uint32_t v) { return &x->to->values[v].type; }

uint32_t zp_cut_node(ZpCut *x, ZgNode n, int nin, const uint32_t *in, const ZgType *hint) {
  n.nin = (uint8_t)nin;
  n.region = x->node->region;
  n.loc = x->node->loc;
  if (nin) memcpy(n.in, in, (size_t)nin * sizeof *in);
  return zg_node_add(&x->sized, x->to, n, hint);
}

uint32_t zp_cut_one(ZpCut *x, uint16_t op, uint32_t a) {
  return zp_cut_node(x, (ZgNode){.op = op}, 1, &a, NULL);
}

uint32_t zp_cut_fit(ZpCut *x, uint32_t v, const ZgType *t) {
  ZgType all = zg_type_union(zp_cut_type(x, v), t);
  all.elem = zp_cut_type(x, v)->elem;
  if (all.naxes == zp_cut_type(x, v)->naxes) return v;
  return zp_cut_node(x, (ZgNode){.op = ZG_OP_BROADCAST}, 1, &v, &all);
}

uint32_t zp_cut_two(ZpCut *x, uint16_t op, uint32_t a, uint32_t b) {
  ZgType s = *zp_cut_type(x, a), t = *zp_cut_type(x, b);
  if (!zg_type_contains(&s, &t) && !zg_type_contains(&t, &s)) a = zp_cut_fit(x, a, &t);
  return zp_cut_node(x, (ZgNode){.op = op}, 2, (uint32_t[]){a, b}, NULL);
}

uint32_t zp_cut_number(ZpCut *x, double value, uint8_t elem) {
  ZgType t = zg_type((ZgElem)elem, NULL, 0);
  return zp_cut_node(x, (ZgNode){.op = ZG_OP_FILL, .num = {value}}, 0, NULL, &t);
}

uint32_t zp_cut_cast(ZpCut *x, uint32_t v, uint8_t elem) {
  ZgType t = *zp_cut_type(x, v);
  if (t.elem == elem) return v;
  t.elem = elem;
  return zp_cut_node(x, (ZgNode){.op = ZG_OP_CAST}, 1, &v, &t);
}

uint32_t zp_cut_sum(ZpCut *x, uint32_t v, const ZgType *t) {
  ZgNode n = {.op = ZG_OP_SUM};
  const ZgType *have = zp_cut_type(x, v);
  for (int i = 0; i < have->naxes; i++)
    if (!zg_type_has(t, have->axis[i])) n.ax[n.nax++] = have->axis[i];
  return n.nax ? zp_cut_node(x, n, 1, &v, NULL) : v;
}

uint32_t zp_cut_whole(ZpCut *x, uint32_t v, uint16_t axis, uint16_t in) {
  return zp_cut_node(x, (ZgNode){.op = ZG_OP_PART, .nax = 3, .ax = {x->chunk, in, axis}}, 1, &v, NULL);
}

uint32_t zp_cut_merged(ZpCut *x, uint32_t v, uint16_t axis, uint16_t in) {
  return zp_cut_node(x, (ZgNode){.op = ZG_OP_MERGE, .nax = 3, .ax = {axis, x->chunk, in}}, 1, &v, NULL);
}

/* States are f32, whatever the model computes in: they would forget in bf16. */
uint32_t zp_cut_part(ZpCut *x, uint32_t v) {
  uint8_t elem = x->from->values[v].type.elem;
  bool there = elem == ZG_F32 || (elem == ZG_REAL && zp_store_elem(x->p, &x->from->values[v].type) == ZK_F32);
  uint32_t w = x->now[v];
  if (zg_type_has(&x->from->values[v].type, x->s)) w = zp_cut_whole(x, w, x->s, x->in);
  return there ? w : zp_cut_cast(x, w, ZG_F32);
}

uint32_t zp_cut_merge(ZpCut *x, uint32_t v, const ZgType *t) {
  v = zp_cut_cast(x, v, t->elem);
  return zg_type_has(t, x->s) ? zp_cut_merged(x, v, x->s, x->in) : v;
}

uint32_t zp_cut_slice(ZpCut *x, uint32_t v, uint16_t axis, uint16_t to, int64_t start, int64_t count) {
  ZgNode n = {.op = ZG_OP_SLICE, .nax = 2, .ax = {axis, to}, .opt = {start, count}};
  return zp_cut_node(x, n, 1, &v, NULL);
}

uint32_t zp_cut_rename(ZpCut *x, uint32_t v, uint16_t axis, uint16_t to) {
  return zp_cut_node(x, (ZgNode){.op = ZG_OP_RENAME, .nax = 2, .ax = {axis, to}}, 1, &v, NULL);
}

/* ---- from chunk to chunk ------------------------------------------------------------------------------- */
uint32_t zp_cut_before(ZpCut *x, uint32_t v, int64_t by) {
  return zp_cut_node(x, (ZgNode){.op = ZG_OP_SHIFT, .nax = 1, .ax = {x->chunk}, .opt = {by}}, 1, &v, NULL);
}

static uint32_t product(ZpCut *x, uint16_t axis, uint32_t a, uint32_t b) {
  return zp_cut_node(x, (ZgNode){.op = ZG_OP_DOT, .nax = 1, .ax = {axis}}, 2, (uint32_t[]){a, b}, NULL);
}

static uint32_t times(ZpCut *x, ZpFactor by, uint32_t e) {
  if (by.v == ZG_NONE) return e;
  if (!by.matrix) return zp_cut_two(x, ZG_OP_MUL, e, by.v);
  return product(x, by.col, by.v, zp_cut_rename(x, e, by.row, by.col));
}

/* First `before`, then `by`. */
static uint32_t both(ZpCut *x, ZpFactor by, uint32_t before) {
  if (!by.matrix) return zp_cut_two(x, ZG_OP_MUL, by.v, before);
  uint32_t then = zp_cut_rename(x, by.v, by.col, by.between);
  return product(x, by.between, then, zp_cut_rename(x, before, by.row, by.between));
}

uint32_t zp_cut_start(ZpCut *x, uint32_t end, ZpFactor by, bool reverse) {
  int64_t back = reverse ? -1 : 1;
  uint32_t e = zp_cut_before(x, end, back);
  if (by.v != ZG_NONE && x->ranks > 2) by.v = zp_cut_before(x, by.v, back);
  for (int64_t far = 1; far < x->ranks - 1; far *= 2) {
    uint32_t more = times(x, by, zp_cut_before(x, e, back * far));
    if (by.v != ZG_NONE && 2 * far < x->ranks - 1) by.v = both(x, by, zp_cut_before(x, by.v, back * far));
    e = zp_cut_two(x, ZG_OP_ADD, e, more);
  }
  return e;
}

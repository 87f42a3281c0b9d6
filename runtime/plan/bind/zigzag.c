/* Decides which axis of positions is split zigzag (mesh/pieces.c), if the recipe leaves it open, and reports what is
 * in the way of one that it asks for. */
#include "runtime/plan/bind/bind.h"
#include "runtime/plan/text.h"

#include <string.h>

/* ---- whether it is used -------------------------------------------------------------------------------- */
uint32_t zp_attended_axis(const ZpPlan *p, const ZgNode *n, const ZgType *in, const ZgType *out, int d,
                          uint16_t query) {
  const ZpDim *dim = &p->layout.mesh.dim[d];
  for (uint32_t i = 0; d != p->layout.mesh.pipe && i < dim->naxes; i++) {
    ZgAxisClass c = zg_axis_class(n, in, out, dim->axes[i]);
    if (c == ZG_AXIS_PAR || c == ZG_AXIS_SUM || dim->axes[i] == query) return dim->axes[i];
  }
  return ZG_NONE;
}

/* Returns the axis of queries that dim d splits at some attend: one where a causal mask leaves all earlier
 * keys, if there is one (*causal). */
static uint16_t attended(const ZpPlan *p, int d, bool *causal) {
  const ZgGraph *g = p->graph;
  uint16_t any = ZP_NO_AXIS;
  *causal = false;
  for (uint32_t i = 0; i < g->nsegments; i++)
    for (uint32_t k = 0; k < g->segments[i].nforward; k++) {
      const ZgSegment *s = &g->segments[i];
      const ZgNode *n = &s->nodes[k];
      ZgType in[ZG_MAX_IN], out[ZG_MAX_OUT];
      if (n->op != ZG_OP_ATTEND) continue;
      for (int j = 0; j < n->nin; j++) in[j] = s->values[n->in[j]].type;
      for (int j = 0; j < n->nout; j++) out[j] = s->values[n->out + (uint32_t)j].type;
      uint16_t query = zg_attend_axes(n->ax, n->nax).q;
      if (zp_attended_axis(p, n, in, out, d, query) != query) continue;
      any = query;
      if (n->opt[0] && !n->opt[1]) return *causal = true, query;
    }
  return any;
}

/* Operations that are done along a part of an axis only if its positions follow each other, or that select by
 * position. */
static bool wants_order(const ZgNode *n, uint16_t axis) {
  bool has = false;
  for (int k = 0; k < n->nax; k++) has |= n->ax[k] == axis;
  switch (n->op) {
  case ZG_OP_CUMSUM:
  case ZG_OP_SCAN:
  case ZG_OP_LINEAR_ATTEND:
  case ZG_OP_SHIFT:
  case ZG_OP_CONV:
  case ZG_OP_CONV_TRANSPOSE:
  case ZG_OP_SLICE:
  case ZG_OP_PAD:
  case ZG_OP_CONCAT:
  case ZG_OP_MERGE:
  case ZG_OP_PART: return has;
  case ZG_OP_LOOKUP:
  case ZG_OP_XENT_SUMS:
  case ZG_OP_ONEHOT: return n->ax[0] == axis;
  default: return false;
  }
}

static const char *op_in_the_way(const ZpPlan *p, uint16_t axis) {
  const ZgGraph *g = p->graph;
  for (uint32_t i = 0; i < g->nsegments; i++)
    for (uint32_t k = 0; k < g->segments[i].nforward; k++) {
      const ZgNode *n = &g->segments[i].nodes[k];
      if (wants_order(n, axis))
        return zb_printf(p->arena, "%s (%s) needs its positions in order", zg_op_info[n->op].text,
                         zp_loc_text(p, n->loc));
    }
  for (uint32_t i = 0; i < g->nparams; i++)
    if (zg_type_has(&g->params[i].type, axis))
      return zb_printf(p->arena, "parameter %s has it", g->params[i].path);
  return NULL;
}

/* Returns why the dims of `set` cannot split `axis` zigzag; NULL: they can. */
static const char *in_the_way(const ZpBuild *b, ZpDims set, uint16_t axis) {
  const ZpPlan *p = b->p;
  int64_t ranks = zp_group_size(&p->layout.mesh, set);
  int fastest = 31 - __builtin_clz(set);
  if (b->o->pins) return "its attention is for CPUs only in this version";
  if (p->layout.axis_size[axis] % (2 * ranks))
    return zb_printf(p->arena, "%lld positions are not %lld chunks", (long long)p->layout.axis_size[axis],
                     (long long)(2 * ranks));
  int64_t cuts = zp_chunks_along(p, axis), length = p->layout.axis_size[axis] / (2 * ranks);
  if (length % cuts)
    return zb_printf(p->arena, "`chunk %s = %lld` does not cut its chunks of %lld positions without a rest",
                     p->asked.recipe->chunk.axis.s, (long long)cuts, (long long)length);
  for (int d = 0; d < fastest; d++)
    if (!(set >> d & 1) && p->layout.mesh.dim[d].size > 1 && d != p->layout.mesh.pipe &&
        zp_dim_splits(&p->layout.mesh.dim[d], axis))
      return zb_printf(p->arena, "`%s`, which splits it too, comes before `%s` in the mesh",
                       p->layout.mesh.dim[d].name, p->layout.mesh.dim[fastest].name);
  return op_in_the_way(p, axis);
}

static ZlOrder asked(const ZpPlan *p, int d) {
  const ZlSplit *s = zp_split(p, p->layout.mesh.dim[d].directive);
  return s ? s->order : ZL_ORDER_AUTO;
}

static void report_useless(ZpBuild *b, int d) {
  const ZpDim *dim = &b->p->layout.mesh.dim[d];
  zl_help(zl_report(b->d, ZL_Z0809, zp_split_span(b->p, dim),
                    "`zigzag` has no effect: `%s` splits no positions of an attend", dim->name),
          "leave `zigzag` out");
}

static void report_refused(ZpBuild *b, int d, uint16_t axis, const char *why) {
  const ZpDim *dim = &b->p->layout.mesh.dim[d];
  ZlDiag *e =
      zl_report(b->d, b->o->pins ? ZL_Z0808 : ZL_Z0302, zp_split_span(b->p, dim),
                "`%s` cannot be split zigzag over `%s`: %s", b->p->graph->axes[axis].name, dim->name, why);
  zl_help(e, "leave `zigzag` out, or write `contiguous`");
}

/* Splits one axis zigzag: the first of a causal attend, or the one that the recipe names. */
void zp_bind_zigzag(ZpBuild *b) {
  ZpPlan *p = b->p;
  uint16_t axis = ZP_NO_AXIS;
  ZpDims set = 0, said = 0;
  for (int d = 0; d < p->layout.mesh.ndims; d++) {
    bool causal;
    const ZlAttention *way = zp_attention(p, &p->layout.mesh.dim[d]);
    uint16_t a = d == p->layout.mesh.pipe ? ZP_NO_AXIS : attended(p, d, &causal);
    bool zigzag = asked(p, d) == ZL_ORDER_ZIGZAG;
    if (zigzag && a == ZP_NO_AXIS && p->layout.mesh.dim[d].size > 1) report_useless(b, d);
    if (a == ZP_NO_AXIS || asked(p, d) == ZL_ORDER_CONTIGUOUS) continue;
    if (!zigzag && (!causal || (way && way->way == ZL_ATTENTION_HEADS))) continue;
    if (axis != ZP_NO_AXIS && a != axis && zigzag) {
      report_refused(b, d, a, zb_printf(p->arena, "`%s` is", p->graph->axes[axis].name));
      return;
    }
    if (axis != ZP_NO_AXIS && a != axis) continue;
    axis = a;
    set |= 1u << d;
    if (zigzag) said |= 1u << d;
  }
  const char *why = set ? in_the_way(b, set, axis) : NULL;
  if (why && said) report_refused(b, __builtin_ctz(said), axis, why);
  for (int d = 0; !why && d < p->layout.mesh.ndims; d++)
    if (set >> d & 1) p->layout.mesh.dim[d].zigzag = axis;
  if (!set) return;
  const char *name = p->graph->axes[axis].name, *dims = zp_dims_text(&p->layout.mesh, p->arena, set);
  long long n = zp_group_size(&p->layout.mesh, set);
  p->notes.order =
      why ? zb_printf(p->arena, "`%s` is split contiguously over %s: %s", name, dims, why)
          : zb_printf(p->arena,
                      "`%s` is split zigzag over %s: of %lld chunks rank r has numbers r and %lld - r", name,
                      dims, 2 * n, 2 * n - 1);
}

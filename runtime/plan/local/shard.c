/* The one sharding rule, for forward and backward alike. PartIR and GSPMD are relatives; here the recipe's
 * ordered lists make the choice, not a search.
 *
 * * For each node and mesh dim d, X is the first axis of d's list that is in the node's iteration space and
 * not pinned. Operands that have X must be S(X), the others R. A result that has X is S(X); one that lacks it
 * is P. Without an X everything is R, and every rank along d computes the same. Values are converted when
 * first consumed, and conversions are kept.
 *
 * * Example, tensor dim with list (ffn | seq): x[seq, embed] is S(seq). dot[embed](x, w1[embed, ffn]): X =
 * ffn, so x must be R: all_gather along seq; h is S(ffn). dot[ffn](h, w2): X = ffn is summed, so y is P. x +
 * y: X = seq, so y becomes S(seq): reduce_scatter. That is Megatron's sequence parallelism, found rather than
 * written.
 *
 * * attend and its gradients compare all queries with all keys; attend.c chooses for them. A shift along a
 * split axis takes its neighbours' borders: halo.c.
 *
 * * A sum of partial values stays partial as long as it can: see keep_partial_sums. */
#include "runtime/plan/local/shard.h"
#include "runtime/plan/text.h"

#include <string.h>

static bool usable_dim(const ZpPlan *p, int d) { return d != p->layout.mesh.pipe; }

/* Finds the two axes of a merge or part, the operand's and the result's: splitting the slowest part splits
 * the whole, block by block. Returns false for other operations. */
static bool passes(const ZgNode *n, uint16_t *from, uint16_t *to) {
  bool merge = n->op == ZG_OP_MERGE;
  if (!merge && n->op != ZG_OP_PART) return false;
  *from = merge ? n->ax[1] : n->ax[n->nax - 1];
  *to = n->ax[0];
  return true;
}

/* Returns whether dim d may split both axes, given the dims before it that do. */
static bool passes_over(const ZpShard *h, const ZgNode *n, int d, uint32_t axis, const uint32_t *x) {
  const ZpPlan *p = h->p;
  uint16_t from, to;
  if (!passes(n, &from, &to) || (axis != from && axis != to)) return false;
  if (!zp_dim_splits(&p->layout.mesh.dim[d], from) || !zp_dim_splits(&p->layout.mesh.dim[d], to))
    return false;
  int64_t parts = p->layout.mesh.dim[d].size;
  for (int e = 0; e < d; e++)
    if (x[e] == from) parts *= p->layout.mesh.dim[e].size;
  return p->layout.axis_size[from] % parts == 0 && p->layout.axis_size[to] % parts == 0;
}

/* Finds X of every dim, an axis or ZG_NONE. Returns the dims over which keys go round a ring. */
static ZpDims choose(const ZpShard *h, const ZgNode *n, uint32_t *x) {
  const ZpPlan *p = h->p;
  if (zg_is_attend(n->op)) return zp_choose_attend(h, n, x);
  ZgType in[ZG_MAX_IN], out[ZG_MAX_OUT];
  for (int i = 0; i < n->nin; i++) in[i] = h->s->values[n->in[i]].type;
  for (int i = 0; i < n->nout; i++) out[i] = h->s->values[n->out + (uint32_t)i].type;
  for (int d = 0; d < p->layout.mesh.ndims; d++) {
    x[d] = ZG_NONE;
    const ZpDim *dim = &p->layout.mesh.dim[d];
    if (usable_dim(p, d) && zp_splits_rows(h, n, d, &x[d])) continue;
    for (uint32_t i = 0; usable_dim(p, d) && i < dim->naxes && x[d] == ZG_NONE; i++) {
      ZgAxisClass c = zg_axis_class(n, in, out, dim->axes[i]);
      if (c == ZG_AXIS_PAR || c == ZG_AXIS_SUM || c == ZG_AXIS_MAX) x[d] = dim->axes[i];
      if (zp_takes_halo(h, n, d, dim->axes[i])) x[d] = dim->axes[i];
      uint16_t from, to;
      if (passes_over(h, n, d, dim->axes[i], x) && passes(n, &from, &to)) x[d] = from;
    }
  }
  return 0;
}

static bool is_sum(const ZpValue *v, int d) { return v->state[d].kind == 'P' && !v->state[d].max; }

/* Returns whether a value can become one term of a sum along d without traffic: no other cut of its axis is
 * in the way. */
static bool can_pad(const ZpShard *h, const ZpValue *v, int d) {
  if (v->state[d].kind == 'P') return false;
  for (int e = 0; v->state[d].kind == 'S' && e < h->p->layout.mesh.ndims; e++)
    if (e != d && v->state[e].kind == 'S' && v->state[e].axis == v->state[d].axis) return false;
  return true;
}

/* Delays reductions: a sum of two partial values, and the ends of gradients (sums, scattered rows), are
 * linear, so one reduction after them replaces one or two before.
 *
 * * If one operand of a sum is partial along a dim along which the other is complete, the other is padded:
 * one reduction over all these dims later replaces one over some now and one over the rest later. If the sum
 * is complete along every other dim, nothing is gained, and the partial operand is reduced; others may need
 * it too. */
static void keep_partial_sums(const ZpShard *h, const ZgNode *n, const uint32_t *x, uint8_t *partial) {
  memset(partial, 0, ZP_MAX_DIMS * sizeof *partial);
  if (h->p->stream) return; /* the order of a sum is part of its bits */
  for (int d = 0; d < h->p->layout.mesh.ndims; d++)
    if (x[d] == ZG_NONE) partial[d] = zp_rows_stay_partial(h, n, d);
  bool tail = n->op == ZG_OP_SUM || n->op == ZG_OP_LOOKUP_GRAD, waits = false;
  if (n->op != ZG_OP_ADD && !tail) return;
  const ZpValue *a = &h->out->values[zp_base(h, n->in[0])],
                *b = tail ? a : &h->out->values[zp_base(h, n->in[1])];
  if (a->type.naxes != b->type.naxes) return;
  for (int d = 0; d < h->p->layout.mesh.ndims; d++) {
    bool both = is_sum(a, d) && is_sum(b, d) && (!tail || x[d] == ZG_NONE);
    partial[d] = both ? tail ? 1 : 3 : 0;
    waits |= both;
  }
  for (int d = 0; waits && d < h->p->layout.mesh.ndims; d++)
    if ((is_sum(a, d) && can_pad(h, b, d)) || (is_sum(b, d) && can_pad(h, a, d))) partial[d] = tail ? 1 : 3;
}

/* Returns the axis by which X splits operand or result i of a node. If X is the queries' axis, attend's keys
 * are not split. */
static uint32_t split_of(const ZgNode *n, bool result, int i, const ZgType *t, uint32_t x, bool ring) {
  bool queries = zg_is_attend(n->op) && x == zg_attend_axes(n->ax, n->nax).q;
  return queries && zp_attend_of_keys(n, result, i, t, ring) ? ZG_NONE : x;
}

static ZpState wanted(const ZgType *t, uint32_t x) {
  return x != ZG_NONE && zg_type_has(t, (uint16_t)x) ? (ZpState){.kind = 'S', .axis = (uint16_t)x}
                                                     : (ZpState){.kind = 'R'};
}

/* Returns whether x's axis only follows: a convolution goes over the positions of y, which may have another
 * name. */
static bool is_followed(const ZkCall *k, uint16_t axis) {
  if (!zg_is_conv(k->op)) return false;
  for (int i = 0; i < k->nax; i += 3)
    if (k->ax[i] == axis && k->ax[i + 2] != axis) return true;
  return false;
}

/* Returns the number of elements in a node's local iteration space: the product over the union of its
 * axes. */
static double space_size(const ZpShard *h, const ZpNode *n) {
  uint16_t seen[ZG_MAX_AXES * (ZG_MAX_IN + ZG_MAX_OUT)];
  int nseen = 0;
  double size = 1;
  for (int i = 0; i < n->call.nin + n->call.nout; i++) {
    const ZpValue *v = &h->out->values[i < n->call.nin ? n->in[i] : n->out[i - n->call.nin]];
    for (int k = 0; k < v->type.naxes; k++) {
      bool had = is_followed(&n->call, v->axis[k]);
      for (int q = 0; q < nseen; q++) had |= seen[q] == v->axis[k];
      if (had) continue;
      seen[nseen++] = v->axis[k];
      size *= (double)v->size[k];
    }
  }
  return size;
}

static void finish_source(ZpShard *h, const ZgNode *n, ZpNode *m, uint32_t value) {
  ZpValue *v = &h->out->values[value];
  m->out[0] = value;
  if (n->op != ZG_OP_PARAM) return;
  v->param = (uint32_t)n->opt[0];
  if (zp_param_packed(h->p, v->param)) {
    zp_pack_value(h->p, v);
    return;
  }
  zp_give_elem(v, zp_param_elem(h->p, v->param));
  zp_declared_order(h->p, v->param, v->state, v->axis, v->size);
}

static ZpNode *shell(ZpShard *h, const ZgNode *n) {
  ZpNode *m = zp_emit(h, n->op);
  m->call.nin = n->nin;
  m->call.nout = n->nout;
  m->call.nax = n->nax;
  memcpy(m->call.ax, n->ax, sizeof m->call.ax);
  memcpy(m->call.num, n->num, sizeof m->call.num);
  memcpy(m->call.opt, n->opt, sizeof m->call.opt);
  m->sink = (uint32_t)n->opt[0];
  return m;
}

static void shard_source(ZpShard *h, const ZgNode *n) {
  ZpState state[ZP_MAX_DIMS];
  const ZgType *t = &h->s->values[n->out].type;
  zp_layout(h->p, t, state);
  uint32_t value = zp_new_value(h, t, state);
  finish_source(h, n, shell(h, n), value);
  zp_version_add(h, n->out, value);
}

/* Gradients may stay partial until the end of the step where the parameter is replicated. */
static void shard_param_grad(ZpShard *h, const ZgNode *n, ZpDims *partial) {
  ZpState want[ZP_MAX_DIMS];
  const ZgParam *q = &h->p->graph->params[n->opt[0]];
  zp_layout(h->p, &q->type, want);
  const ZpValue *v = &h->out->values[zp_base(h, n->in[0])];
  ZpDims kept = 0;
  for (int d = 0; d < h->p->layout.mesh.ndims; d++)
    if (v->state[d].kind == 'P' && !v->state[d].max && want[d].kind == 'R' &&
        h->b->grad_partial[n->opt[0]] >> d & 1) {
      want[d] = v->state[d];
      kept |= 1u << d;
    }
  partial[n->opt[0]] &= kept;
  uint32_t value = zp_convert(h, n->in[0], want);
  shell(h, n)->in[0] = value;
}

/* Loss sums are scalars and may stay partial; aux terms differ from place to place and are completed. */
static void shard_scalar(ZpShard *h, const ZgNode *n) {
  ZpState want[ZP_MAX_DIMS];
  ZpDims *partial = n->op == ZG_OP_LOSS_NUM   ? &h->p->layout.num_partial[n->opt[0]]
                    : n->op == ZG_OP_LOSS_DEN ? &h->p->layout.den_partial[n->opt[0]]
                                              : NULL;
  const ZpValue *v = &h->out->values[zp_base(h, n->in[0])];
  ZpDims kept = 0;
  for (int d = 0; d < ZP_MAX_DIMS; d++) {
    want[d] = (ZpState){.kind = 'R'};
    if (partial && d < h->p->layout.mesh.ndims && v->state[d].kind == 'P' && !v->state[d].max)
      want[d] = v->state[d], kept |= 1u << d;
  }
  if (partial) *partial = kept;
  uint32_t value = zp_convert(h, n->in[0], want);
  if (n->op == ZG_OP_LOSS_NUM) h->out->has_loss = true;
  shell(h, n)->in[0] = value;
}

static void shard_sink(ZpShard *h, const ZgNode *n, ZpDims *partial) {
  switch (n->op) {
  case ZG_OP_PARAM_GRAD: shard_param_grad(h, n, partial); break;
  case ZG_OP_LOSS_NUM:
  case ZG_OP_LOSS_DEN:
  case ZG_OP_AUX: shard_scalar(h, n); break;
  case ZG_OP_OUTPUT:
  case ZG_OP_CARRY_OUT:
  case ZG_OP_DCARRY_IN: {
    ZpState want[ZP_MAX_DIMS];
    zp_layout(h->p, &h->s->values[n->in[0]].type, want);
    uint32_t value = zp_convert(h, n->in[0], want);
    shell(h, n)->in[0] = value;
    break;
  }
  default: ZB_BUG("sink `%s` in a training segment", zg_op_info[n->op].text);
  }
}

/* Returns the number of query rows, each of which is paired with keys: the local sizes of q's other axes. */
static double attend_rows(const ZpShard *h, const ZpNode *m, const ZgAttendAxes *ax) {
  const ZpValue *q = &h->out->values[m->in[zg_attend_first(m->call.op)]];
  double rows = 1;
  for (int i = 0; i < q->type.naxes; i++)
    if (q->axis[i] != ax->q && q->axis[i] != ax->h) rows *= (double)q->size[i];
  return rows;
}

/* Returns the largest share of the unmasked pairs that one rank has, with the queries cut into `parts`. */
static double busiest_share(const ZpPlan *p, const ZpNode *m, const ZpValue *q, int64_t parts) {
  uint16_t axis = m->call.ax[0];
  int64_t size = p->layout.axis_size[axis],
          keys = p->layout.axis_size[zg_attend_axes(m->call.ax, m->call.nax).k];
  ZpDims dims = 0;
  double most = 0;
  for (int d = 0; d < p->layout.mesh.ndims; d++)
    if (q->state[d].kind == 'S' && q->state[d].axis == axis) dims |= 1u << d;
  for (int64_t i = 0; i < parts; i++) {
    ZpPiece piece[ZP_PIECES];
    double pairs = 0;
    for (int k = zp_pieces(&p->layout.mesh, dims, axis, i, size / parts, piece); k-- > 0;)
      pairs += zg_attend_part(m->call.opt[0], m->call.opt[1], keys, piece[k].to, piece[k].to + piece[k].n);
    if (pairs > most) most = pairs;
  }
  return most / zg_attend_part(m->call.opt[0], m->call.opt[1], keys, 0, size);
}

/* Counts a multiplication and an addition at every point of a product. Attention's products are q.k and p.v
 * over the unmasked pairs; its gradient has twice as many. */
static void count_flops(ZpShard *h, ZpNode *m) {
  const ZgOpInfo *o = &zg_op_info[m->call.op];
  if (!o->products || zg_is_linear_attend(m->call.op)) return;
  if (!zg_is_attend(m->call.op)) {
    m->flops = 2 * o->products * space_size(h, m);
    return;
  }
  ZgAttendAxes ax = zg_attend_axes(m->call.ax, m->call.nax);
  const int64_t *size = h->p->layout.axis_size;
  const ZpValue *q = &h->out->values[m->in[zg_attend_first(m->call.op)]];
  int64_t parts = size[ax.q] / zp_local_size(h->p, ax.q, q->state);
  double all = o->products * (double)(size[ax.h] + size[ax.w]) * attend_rows(h, m, &ax) *
               zg_attend_pairs(m->call.opt[0], m->call.opt[1], size[ax.q], size[ax.k]);
  m->flops = m->busiest = all / (double)parts;
  if (parts > 1) m->busiest = all * busiest_share(h->p, m, q, parts);
}

/* Counts the rows of linear_attend, each with a state, and their tokens: rows are the local sizes of the
 * result's other axes. */
static void count_linear_flops(const ZpShard *h, ZpNode *m) {
  const ZkCall *k = &m->call;
  bool grad = k->op == ZG_OP_LINEAR_ATTEND_GRAD;
  const ZpValue *o = &h->out->values[grad ? m->in[0] : m->out[0]];
  double n = 1, values = 1;
  for (int i = 0; i < o->type.naxes; i++) *(o->axis[i] == k->ax[2] ? &values : &n) *= (double)o->size[i];
  double keys = (double)h->p->layout.axis_size[k->ax[1]];
  m->flops = zg_op_info[k->op].products * n * zg_linear_flops(k->opt[0], (double)k->opt[1], keys, values);
}

static void shard_whole(ZpShard *h, const ZgNode *n, ZpDims whole);

/* Makes the ancestors of v first, then v; what stays as it is gets gathered when it is read. */
static void make_again(ZpShard *h, uint32_t v, ZpDims dims, uint16_t axis) {
  const ZgNode *n = &h->s->nodes[h->s->values[v].node], *reader = h->node;
  if (!zp_made_of_less(h, v, dims, axis)) return;
  for (int i = 0; i < n->nin; i++) make_again(h, n->in[i], dims, axis);
  h->node = n;
  shard_whole(h, n, dims);
  h->node = reader;
  ZpList *l = &h->out->list[h->phase];
  l->nodes[l->n - 1].recomputed = true;
  h->narrow = true;
}

/* Keys and values that attend wants whole may be made of less than they are: narrow.c. */
static void gather_keys(ZpShard *h, const ZgNode *n, const uint32_t *x, bool ring) {
  ZgAttendAxes ax = zg_attend_axes(n->ax, n->nax);
  ZpDims dims = 0;
  for (int d = 0; d < h->p->layout.mesh.ndims; d++)
    if (x[d] == ax.q && h->p->layout.mesh.dim[d].size > 1) dims |= 1u << d;
  for (int i = 1; dims && !ring && ax.q == ax.k && i < 3; i++)
    make_again(h, n->in[zg_attend_first(n->op) + i], dims, ax.k);
}

/* Shards a node by the rule, except that it is whole along some dims: each of their ranks computes all of
 * it. */
static void shard_whole(ZpShard *h, const ZgNode *n, ZpDims whole) {
  const ZpPlan *p = h->p;
  uint32_t x[ZP_MAX_DIMS], in[ZG_MAX_IN];
  uint8_t partial[ZP_MAX_DIMS];
  ZpDims ring = choose(h, n, x);
  for (int d = 0; d < p->layout.mesh.ndims; d++)
    if (whole >> d & 1) x[d] = ZG_NONE;
  keep_partial_sums(h, n, x, partial);
  if (zg_is_attend(n->op)) gather_keys(h, n, x, ring);
  for (int i = 0; i < n->nin; i++) {
    ZpState want[ZP_MAX_DIMS] = {0};
    const ZgType *t = &h->s->values[n->in[i]].type;
    for (int d = 0; d < p->layout.mesh.ndims; d++)
      want[d] =
          partial[d] >> i & 1 ? (ZpState){.kind = 'P'} : wanted(t, split_of(n, false, i, t, x[d], ring));
    in[i] = zp_convert(h, n->in[i], want);
  }
  uint32_t first = h->out->nvalues;
  for (int i = 0; i < n->nout; i++) {
    const ZgType *t = &h->s->values[n->out + (uint32_t)i].type;
    ZpState state[ZP_MAX_DIMS];
    for (int d = 0; d < ZP_MAX_DIMS; d++) {
      state[d] = (ZpState){.kind = 'R'};
      if (d >= p->layout.mesh.ndims) continue;
      uint16_t from, to;
      uint32_t split = passes(n, &from, &to) && x[d] == from ? to : x[d];
      bool keys = split_of(n, true, i, t, split, ring) != split;
      state[d] = wanted(t, keys ? ZG_NONE : split);
      bool lacks = split != ZG_NONE && (keys || !zg_type_has(t, (uint16_t)split));
      if (partial[d] || lacks) state[d] = (ZpState){.kind = 'P', .max = n->op == ZG_OP_PEAK};
    }
    zp_version_add(h, n->out + (uint32_t)i, zp_new_value(h, t, state));
  }
  ZpNode *m = shell(h, n);
  memcpy(m->in, in, sizeof in);
  for (int i = 0; i < n->nout; i++) m->out[i] = first + (uint32_t)i;
  for (int d = 0; d < p->layout.mesh.ndims; d++)
    if (x[d] != ZG_NONE) m->split |= 1u << d;
  if (n->op == ZG_OP_RANDOM && n->opt[1] == ZG_COIN &&
      p->asked.forward_only) { /* the mean: without randomness, dropout changes nothing */
    m->call.op = ZG_OP_FILL;
    m->call.opt[0] = 0;
  }
  if (n->op == ZG_OP_AXSIZE) {
    m->call.op = ZG_OP_FILL;
    m->call.num[0] = (double)p->layout.axis_valid[n->ax[0]];
    m->call.nax = 0;
  }
  if ((n->op == ZG_OP_PEAK || n->op == ZG_OP_SOFTMAX || n->op == ZG_OP_XENT_SUMS ||
       n->op == ZG_OP_XENT_GRAD) &&
      p->layout.axis_valid[n->ax[0]] != p->layout.axis_size[n->ax[0]])
    m->call.opt[1] = p->layout.axis_valid[n->ax[0]];
  count_flops(h, m);
  zp_make_grouped(h, n, m);
  if (n->op == ZG_OP_SHIFT) zp_make_halo(h, n, m, x);
  if (zg_is_linear_attend(n->op)) {
    m->call.opt[1] = zg_linear_chunk(n->opt[0], p->layout.axis_size[n->ax[0]]);
    count_linear_flops(h, m);
  }
  if (!ring) return;
  m->dims = ring;
  m->axis = n->ax[0];
  m->cause =
      zb_printf(p->arena, "%s is split over %s; %s takes its keys by turns", p->graph->axes[n->ax[0]].name,
                zp_dims_text(&p->layout.mesh, p->arena, ring), zg_op_info[n->op].text);
  zp_ring_steps(h, m);
}

static void run(ZpShard *h, const ZgSegment *s, uint32_t from, uint32_t to, const bool *again,
                ZpDims *partial) {
  for (uint32_t i = from; i < to; i++) {
    const ZgNode *n = &s->nodes[i];
    h->node = n;
    ZpList *l = &h->out->list[h->phase];
    uint32_t before = l->n;
    switch (n->op == ZG_OP_KEPT ? ZG_SOURCE : zg_op_info[n->op].kind) {
    case ZG_SOURCE: shard_source(h, n); break;
    case ZG_SINK: shard_sink(h, n, partial); break;
    default:
      if (n->op == ZG_OP_DISPATCH || n->op == ZG_OP_COMBINE) zp_shard_experts(h, n);
      else shard_whole(h, n, 0);
      break;
    }
    for (uint32_t k = before; k < l->n; k++) l->nodes[k].recomputed |= again && again[i];
  }
}

/* Returns an operation's name in the language: `rope` becomes one of two operations. */
static const char *said(uint16_t op) { return op == ZG_OP_ROTATE ? "rope" : zg_op_info[op].text; }

/* Reports an operation over a `never_split` axis that a dim splits by name: it would be gathered at every
 * use. */
static bool check_pin(ZpBuild *b, const ZgSegment *s, const ZgNode *n, uint16_t axis) {
  ZpState state[ZP_MAX_DIMS];
  int i = 0;
  while (i + 1 < n->nin && !zg_type_has(&s->values[n->in[i]].type, axis)) i++;
  zp_layout(b->p, &s->values[n->in[i]].type, state);
  for (int d = 0; d < b->p->layout.mesh.ndims; d++) {
    if (state[d].kind != 'S' || state[d].axis != axis || b->p->layout.mesh.dim[d].size == 1) continue;
    ZlSpan span = zp_split_span(b->p, &b->p->layout.mesh.dim[d]);
    ZlDiag *e = zl_report(b->d, ZL_Z0302, span, "`%s` cannot be split: %s (%s) needs it whole",
                          b->p->graph->axes[axis].name, said(n->op), zp_loc_text(b->p, n->loc));
    zl_help(e, "split an axis of heads instead; it occurs in the same tensors");
    return false;
  }
  return true;
}

/* Reports two sequences whose positions are compared but whose lengths differ; for data axes only the recipe
 * gives lengths. */
static bool check_positions(ZpBuild *b, const ZgNode *n) {
  if (n->op != ZG_OP_ATTEND || (!n->opt[0] && !n->opt[1])) return true;
  const ZgAxis *axes = b->p->graph->axes;
  ZgAttendAxes ax = zg_attend_axes(n->ax, n->nax);
  int64_t queries = b->p->layout.axis_valid[ax.q], keys = b->p->layout.axis_valid[ax.k];
  if (queries == keys) return true;
  ZlDiag *e = zl_report(b->d, ZL_Z0309, b->p->asked.recipe->span,
                        "`attend` (%s) compares positions of two lengths: `%s` has %lld and `%s` %lld",
                        zp_loc_text(b->p, n->loc), axes[ax.q].name, (long long)queries, axes[ax.k].name,
                        (long long)keys);
  zl_help(e, "give both axes the same size, or write `mask = none` without a window");
  return false;
}

static bool check_pins(ZpBuild *b, const ZgSegment *s) {
  for (uint32_t i = 0; i < s->nforward; i++) {
    const ZgNode *n = &s->nodes[i];
    for (int k = 0; k < n->nax; k++)
      if (zg_op_info[n->op].never_split >> k & 1 && !check_pin(b, s, n, n->ax[k])) return false;
    if (!check_positions(b, n)) return false;
  }
  return true;
}

bool zp_shard_segment(ZpBuild *b, uint32_t index, const ZgSegment *s, const bool *again,
                      const ZgSegment *count, ZpDims *partial) {
  ZpPlan *p = b->p;
  ZpSegment *out = &p->programs.segments[index];
  *out = (ZpSegment){0};
  if (!check_pins(b, s)) return false;
  ZpShard h = {.b = b, .p = p, .s = count, .out = out, .phase = ZP_COUNT};
  h.versions = ZB_NEWN(p->arena, ZpVersion *, count->nvalues + 1);
  run(&h, count, 0, count->nnodes, NULL, partial);
  h.s = s;
  h.nroutes = 0;
  h.versions = ZB_NEWN(p->arena, ZpVersion *, s->nvalues + 1);
  h.phase = ZP_FWD;
  run(&h, s, 0, s->nforward, again, partial);
  h.phase = ZP_BWD;
  run(&h, s, s->nforward, s->nnodes, again, partial);
  zp_drop_idle(&h);
  return !zl_errors(b->d);
}

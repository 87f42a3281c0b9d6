/* `chunk vocab = 8`: what has the axis is computed a part of its rows after another, so that it never exists
 * whole. Logits are the largest tensor of a language model: 50,257 numbers a token where a layer has 768.
 *
 * Needs a bound recipe. Gives the plan a graph of its own in place of the model's, in which the rows' axis A is
 * parted into `up` and `low`, and all that touches a tensor with both A and the chunked axis is there once for
 * each index of `low`. No pass behind this one knows of chunks but remat.c, which never keeps logits, and
 * values.c, which lets `up` lie in memory where A did; the proofs see operations as any others.
 *
 *   z = dot(x, w); m = peak(z); s, p = xent_sums(z, m, t)     y = log(s) + m - p
 *
 * becomes, with x' and t' parted:
 *
 *   x0 = slice(x', 0); z0 = dot(x0, w); m0 = peak(z0); s0, p0 = xent_sums(z0, m0, t0)
 *   x1 = slice(x', 1); z1 = dot(x1, w); ..
 *   m = merge(concat(m0, m1, ..)); ..                         y = log(s) + m - p
 *
 * A chunk is the rows of one remainder, not neighbours: then a mesh dim that splits A splits `up` and each
 * rank cuts its own rows, with no traffic. What is split zigzag is so by `up` as by A: zigzag.c sees to it that
 * its chunks are whole rows of `up`. Gradients of weights are sums over rows: each chunk adds its own.
 * `low` is two axes of at most 8, as a concat has at most 8 operands. */
#include "graph/ragged.h"
#include "runtime/plan/bind/bind.h"
#include "runtime/plan/text.h"

#include <string.h>

enum { LEVELS = 2, WIDTH = 8 };

typedef struct {
  ZpBuild *b;
  ZbArena *tmp;
  ZgGraph *g; /* the plan's own */
  uint16_t classes, rows, up, low[LEVELS], one[LEVELS];
  int64_t n[LEVELS], chunks; /* in each level, and in all */
  int levels;
  /* the segment that is rewritten; per value or node: */
  const ZgSegment *s;
  ZgSegment *to;
  bool *inside, *behind, *ahead; /* nodes; values that depend on the inside, and of which it depends */
  uint32_t *whole;               /* value of `to` */
  uint32_t **part;               /* by chunk; made inside */
  uint32_t *parted, **slice;     /* of what is not: its rows in two axes; by chunk */
} Chunks;

/* ---- axes ---------------------------------------------------------------------------------------------- */
static bool has_both(const Chunks *c, const ZgType *t) {
  return zg_type_has(t, c->classes) && zg_type_has(t, c->rows);
}

/* Returns the axes that stand for A: `up`, and those that `more` lists. */
static ZgType in_place_of_rows(const Chunks *c, const ZgType *t, const uint16_t *more, int n) {
  uint16_t axis[ZG_MAX_AXES + 1 + 2 * LEVELS];
  int k = 0;
  for (int i = 0; i < t->naxes; i++)
    if (t->axis[i] != c->rows) axis[k++] = t->axis[i];
  axis[k++] = c->up;
  for (int i = 0; i < n; i++) axis[k++] = more[i];
  ZgType to = zg_type((ZgElem)t->elem, axis, k);
  to.of = t->of;
  return to;
}
static ZgType of_chunk(const Chunks *c, const ZgType *t) { return in_place_of_rows(c, t, c->one, c->levels); }

/* Finds, in a value that has both axes and the batch, the other axis with most elements per rank. */
static uint32_t find_rows(const ZpPlan *p, uint16_t classes, const ZgNode **at) {
  const ZgGraph *g = p->graph;
  uint32_t best = ZG_NONE;
  for (uint32_t s = 0; s < g->nsegments; s++)
    for (uint32_t v = 0; v < g->segments[s].nvalues; v++) {
      const ZgType *t = &g->segments[s].values[v].type;
      if (p->asked.batch == ZP_NONE || !zg_type_has(t, (uint16_t)p->asked.batch) || !zg_type_has(t, classes))
        continue;
      *at = &g->segments[s].nodes[g->segments[s].values[v].node];
      for (int i = 0; i < t->naxes; i++) {
        bool other = t->axis[i] != p->asked.batch && t->axis[i] != classes &&
                     p->layout.experts[t->axis[i]] == ZG_NO_AXIS;
        if (other && (best == ZG_NONE || p->layout.axis_size[t->axis[i]] > p->layout.axis_size[best]))
          best = t->axis[i];
      }
    }
  return best;
}

/* So many chunks as two numbers of at most 8, the first as large as it can be. */
static bool factor(Chunks *c, int64_t n) {
  for (int64_t k = WIDTH; k > 0; k--)
    if (n % k == 0 && n / k <= WIDTH) {
      c->n[0] = k, c->n[1] = n / k;
      c->levels = n / k > 1 ? 2 : 1;
      return true;
    }
  return false;
}

static uint16_t add_axis(Chunks *c, const char *suffix, int64_t size) {
  ZpPlan *p = c->b->p;
  ZgGraph *g = c->g;
  uint32_t at = g->naxes++;
  g->axes[at] = (ZgAxis){zb_printf(p->arena, "%s.%s", g->axes[c->rows].name, suffix), size};
  p->layout.axis_size[at] = p->layout.axis_valid[at] = size;
  p->layout.experts[at] = ZG_NO_AXIS;
  return (uint16_t)at;
}

/* `old`, n elements of `size` bytes, with room for those of the new axes. */
static void *with_room(Chunks *c, const void *old, size_t n, size_t size) {
  char *to = ZB_NEWN(c->b->p->arena, char, (n + 1 + 2 * LEVELS) * size);
  memcpy(to, old, n * size);
  return to;
}

/* Dims that split A split `up` as they do A, and prefer it to what they prefer A to. */
static void split_up(Chunks *c) {
  ZpPlan *p = c->b->p;
  for (int d = 0; d < p->layout.mesh.ndims; d++) {
    ZpDim *dim = &p->layout.mesh.dim[d];
    uint16_t *axes = ZB_NEWN(p->arena, uint16_t, dim->naxes + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < dim->naxes; i++) {
      axes[n++] = dim->axes[i];
      if (dim->axes[i] == c->rows) axes[n++] = c->up;
    }
    dim->axes = axes;
    dim->naxes = n;
    if (dim->zigzag == c->rows) dim->zigzag_up = c->up;
  }
}

static void add_axes(Chunks *c) {
  static const char *const low[] = {"chunk", "chunk2"}, *const one[] = {"one", "one2"};
  ZpPlan *p = c->b->p;
  uint32_t n = c->g->naxes;
  c->g->axes = with_room(c, p->graph->axes, n, sizeof *c->g->axes);
  p->layout.axis_size = with_room(c, p->layout.axis_size, n, sizeof *p->layout.axis_size);
  p->layout.axis_valid = with_room(c, p->layout.axis_valid, n, sizeof *p->layout.axis_valid);
  p->layout.experts = with_room(c, p->layout.experts, n, sizeof *p->layout.experts);
  p->layout.load = with_room(c, p->layout.load, n, sizeof *p->layout.load);
  c->up = add_axis(c, "rows", p->layout.axis_size[c->rows] / c->chunks);
  for (int l = 0; l < c->levels; l++) c->low[l] = add_axis(c, low[l], c->n[l]);
  for (int l = 0; l < c->levels; l++) c->one[l] = add_axis(c, one[l], 1);
  split_up(c);
}

/* ---- nodes --------------------------------------------------------------------------------------------- */
/* Adds a node to `to`, with results of these types. */
static uint32_t emit(Chunks *c, ZgNode n, const ZgType *types) {
  ZbArena *a = c->b->p->arena;
  n.out = c->to->nvalues;
  for (int k = 0; k < n.nout; k++) {
    ZgValue v = {types[k], c->to->nnodes};
    ZB_PUSH(a, c->to->values, c->to->nvalues, v);
  }
  ZB_PUSH(a, c->to->nodes, c->to->nnodes, n);
  return n.out;
}

static uint32_t emit_like(Chunks *c, const ZgNode *at, ZgNode n, ZgType type) {
  n.nout = 1;
  n.region = at->region;
  n.loc = at->loc;
  return emit(c, n, &type);
}

/* Row r of the table of what chunk k has of value v; made when first asked for. */
static uint32_t *row(Chunks *c, uint32_t **table, uint32_t v) {
  if (!table[v]) {
    table[v] = ZB_NEWN(c->tmp, uint32_t, c->chunks);
    memset(table[v], 0xff, (size_t)c->chunks * sizeof **table);
  }
  return table[v];
}

static uint32_t parted(Chunks *c, uint32_t v) {
  const ZgType *t = &c->s->values[v].type;
  ZgNode n = {.op = ZG_OP_PART, .nin = 1, .nax = (uint8_t)(c->levels + 2), .ax = {c->up}};
  if (c->parted[v] != ZG_NONE) return c->parted[v];
  for (int l = 0; l < c->levels; l++) n.ax[l + 1] = c->low[l];
  n.ax[c->levels + 1] = c->rows;
  n.in[0] = c->whole[v];
  c->parted[v] =
      emit_like(c, &c->s->nodes[c->s->values[v].node], n, in_place_of_rows(c, t, c->low, c->levels));
  return c->parted[v];
}

/* Returns the rows of chunk k of a value that is whole. */
static uint32_t sliced(Chunks *c, uint32_t v, int64_t k) {
  uint32_t *made = row(c, c->slice, v), from = parted(c, v);
  const int64_t index[LEVELS] = {k / c->n[1], k % c->n[1]};
  uint16_t axes[LEVELS];
  if (made[k] != ZG_NONE) return made[k];
  memcpy(axes, c->low, sizeof axes);
  for (int l = 0; l < c->levels; l++) {
    axes[l] = c->one[l];
    ZgNode n = {.op = ZG_OP_SLICE, .nin = 1, .nax = 2, .ax = {c->low[l], c->one[l]}, .opt = {index[l], 1}};
    n.in[0] = from;
    from = emit_like(c, &c->s->nodes[c->s->values[v].node], n,
                     in_place_of_rows(c, &c->s->values[v].type, axes, c->levels));
  }
  return made[k] = from;
}

/* Chunks of value v side by side in `low[level]`, from chunk `first` on. */
static uint32_t joined(Chunks *c, uint32_t v, int level, int64_t first) {
  if (level == c->levels) return c->part[v][first];
  int64_t step = level + 1 < c->levels ? c->n[1] : 1;
  uint16_t axes[LEVELS];
  memcpy(axes, c->one, sizeof axes);
  for (int l = level; l < c->levels; l++) axes[l] = c->low[l];
  ZgNode n = {.op = ZG_OP_CONCAT, .nin = (uint8_t)c->n[level], .nax = (uint8_t)(c->n[level] + 1)};
  n.ax[0] = c->low[level];
  for (int64_t i = 0; i < c->n[level]; i++) {
    n.ax[i + 1] = c->one[level];
    n.in[i] = joined(c, v, level + 1, first + i * step);
  }
  return emit_like(c, &c->s->nodes[c->s->values[v].node], n,
                   in_place_of_rows(c, &c->s->values[v].type, axes, c->levels));
}

/* All rows of what was made in chunks; of what has none of them, the sum of what chunks have. */
static uint32_t assembled(Chunks *c, uint32_t v) {
  const ZgNode *at = &c->s->nodes[c->s->values[v].node];
  const ZgType *t = &c->s->values[v].type;
  if (!zg_type_has(t, c->rows)) {
    uint32_t sum = c->part[v][0];
    for (int64_t k = 1; k < c->chunks; k++)
      sum = emit_like(c, at, (ZgNode){.op = ZG_OP_ADD, .nin = 2, .in = {sum, c->part[v][k]}}, *t);
    return sum;
  }
  ZgNode n = {.op = ZG_OP_MERGE, .nin = 1, .nax = (uint8_t)(c->levels + 2), .ax = {c->rows, c->up}};
  for (int l = 0; l < c->levels; l++) n.ax[l + 2] = c->low[l];
  n.in[0] = joined(c, v, 0, 0);
  return emit_like(c, at, n, *t);
}

/* ---- what is inside ------------------------------------------------------------------------------------ */
static bool touches(const Chunks *c, const ZgNode *n) {
  ZgOpKind kind = zg_op_info[n->op].kind;
  bool both = false;
  for (int i = 0; i < n->nin; i++) both |= has_both(c, &c->s->values[n->in[i]].type);
  for (int i = 0; i < n->nout; i++) both |= has_both(c, &c->s->values[n->out + (uint32_t)i].type);
  return both && kind != ZG_SOURCE && kind != ZG_SINK;
}

/* Nodes that touch what has both axes, and those on the way from one such node to another of the same
 * pass. */
static void find_inside(Chunks *c, uint32_t from, uint32_t to) {
  const ZgSegment *s = c->s;
  for (uint32_t i = from; i < to; i++) {
    const ZgNode *n = &s->nodes[i];
    c->inside[i] = touches(c, n);
    bool behind = c->inside[i];
    for (int k = 0; k < n->nin; k++) behind |= s->values[n->in[k]].node >= from && c->behind[n->in[k]];
    for (int k = 0; k < n->nout; k++) c->behind[n->out + (uint32_t)k] = behind;
  }
  for (uint32_t i = to; i-- > from;) {
    const ZgNode *n = &s->nodes[i];
    bool ahead = c->inside[i];
    for (int k = 0; k < n->nout; k++) ahead |= c->ahead[n->out + (uint32_t)k];
    if (n->nout && ahead && c->behind[n->out] && zg_op_info[n->op].kind != ZG_SOURCE) c->inside[i] = true;
    for (int k = 0; ahead && k < n->nin; k++) c->ahead[n->in[k]] = true;
  }
}

/* Returns why a node inside cannot be done chunk by chunk; NULL: it can. */
static const char *stays_whole(const Chunks *c, const ZgNode *n, bool backward) {
  ZgType in[ZG_MAX_IN], out[ZG_MAX_OUT];
  bool summed = false; /* an operand of which each chunk has a part, in this pass */
  for (int i = 0; i < n->nin; i++) {
    uint32_t from = c->s->values[n->in[i]].node;
    in[i] = c->s->values[n->in[i]].type;
    summed |= c->inside[from] && (from >= c->s->nforward) == backward && !zg_type_has(&in[i], c->rows);
  }
  for (int i = 0; i < n->nout; i++) out[i] = c->s->values[n->out + (uint32_t)i].type;
  ZgAxisClass class = zg_axis_class(n, in, out, c->rows);
  bool sums = n->op == ZG_OP_DOT || n->op == ZG_OP_SUM, named = false;
  for (int i = 0; i < n->nax; i++) named |= n->ax[i] == c->rows;
  if (!n->nin || zg_op_info[n->op].kind == ZG_MOVE || class == ZG_AXIS_PIN)
    return "needs all of them at once";
  if (summed || class == ZG_AXIS_ABSENT || class == ZG_AXIS_MAX)
    return "is made of what all of them have together";
  if (named && !sums) return "goes along them";
  if (n->nax + c->levels > ZG_MAX_AXARG) return "has too many axes";
  for (int i = 0; i < n->nin + n->nout; i++)
    if ((i < n->nin ? in[i] : out[i - n->nin]).naxes + c->levels > ZG_MAX_AXES) return "has too many axes";
  return NULL;
}

static bool check_inside(const Chunks *c) {
  const ZgGraph *g = c->g;
  for (uint32_t i = 0; i < c->s->nnodes; i++) {
    const ZgNode *n = &c->s->nodes[i];
    const char *why = c->inside[i] ? stays_whole(c, n, i >= c->s->nforward) : NULL;
    if (!why) continue;
    ZlDiag *e = zl_report(c->b->d, ZL_Z0302, c->b->p->asked.recipe->chunk.span,
                          "`%s` cannot be computed in chunks of `%s`: %s (%s) %s", g->axes[c->classes].name,
                          g->axes[c->rows].name, zg_op_info[n->op].text, zp_loc_text(c->b->p, n->loc), why);
    zl_help(e, "leave `chunk %s` out, or have a smaller `micro`", g->axes[c->classes].name);
    return false;
  }
  return true;
}

/* ---- rewriting ----------------------------------------------------------------------------------------- */
static void copy_node(Chunks *c, const ZgNode *n) {
  ZgNode m = *n;
  ZgType types[ZG_MAX_OUT];
  for (int k = 0; k < n->nin; k++) m.in[k] = c->whole[n->in[k]];
  for (int k = 0; k < n->nout; k++) types[k] = c->s->values[n->out + (uint32_t)k].type;
  uint32_t out = emit(c, m, types);
  for (int k = 0; k < n->nout; k++) c->whole[n->out + (uint32_t)k] = out + (uint32_t)k;
}

static uint32_t operand(Chunks *c, uint32_t v, int64_t k) {
  if (!zg_type_has(&c->s->values[v].type, c->rows)) return c->whole[v];
  return c->inside[c->s->values[v].node] ? c->part[v][k] : sliced(c, v, k);
}

static void copy_chunk(Chunks *c, const ZgNode *n, int64_t k) {
  ZgNode m = *n;
  ZgType types[ZG_MAX_OUT];
  m.nax = 0;
  for (int i = 0; i < n->nax; i++) {
    m.ax[m.nax++] = n->ax[i] == c->rows ? c->up : n->ax[i];
    for (int l = 0; n->ax[i] == c->rows && l < c->levels; l++) m.ax[m.nax++] = c->one[l];
  }
  for (int i = 0; i < n->nin; i++) m.in[i] = operand(c, n->in[i], k);
  for (int i = 0; i < n->nout; i++) {
    const ZgType *t = &c->s->values[n->out + (uint32_t)i].type;
    types[i] = zg_type_has(t, c->rows) ? of_chunk(c, t) : *t;
  }
  uint32_t out = emit(c, m, types);
  for (int i = 0; i < n->nout; i++) row(c, c->part, n->out + (uint32_t)i)[k] = out + (uint32_t)i;
}

/* Returns whether the gradient is summed inside: each chunk's own is added to the parameter's. */
static bool is_gradient_inside(const Chunks *c, const ZgNode *n) {
  if (n->op != ZG_OP_PARAM_GRAD) return false;
  return c->inside[c->s->values[n->in[0]].node] && !zg_type_has(&c->s->values[n->in[0]].type, c->rows);
}

static void copy_gradient(Chunks *c, const ZgNode *n, int64_t k) {
  ZgNode m = *n;
  m.in[0] = c->part[n->in[0]][k];
  emit(c, m, NULL);
}

/* One pass: what does not need the inside, the inside chunk by chunk, and what needs it. */
static void rewrite_pass(Chunks *c, uint32_t from, uint32_t to) {
  const ZgSegment *s = c->s;
  bool *late = ZB_NEWN(c->tmp, bool, to - from + 1), any = false;
  for (uint32_t i = from; i < to; i++) {
    const ZgNode *n = &s->nodes[i];
    any |= c->inside[i];
    late[i - from] = c->inside[i];
    for (int k = 0; k < n->nin; k++)
      late[i - from] |= s->values[n->in[k]].node >= from && c->behind[n->in[k]];
    if (!late[i - from]) copy_node(c, n);
  }
  for (int64_t k = 0; any && k < c->chunks; k++)
    for (uint32_t i = from; i < to; i++)
      if (c->inside[i]) copy_chunk(c, &s->nodes[i], k);
      else if (is_gradient_inside(c, &s->nodes[i])) copy_gradient(c, &s->nodes[i], k);
  for (uint32_t i = from; i < to; i++) {
    const ZgNode *n = &s->nodes[i];
    for (int k = 0; c->inside[i] && k < n->nout; k++)
      c->whole[n->out + (uint32_t)k] = assembled(c, n->out + (uint32_t)k);
  }
  for (uint32_t i = from; i < to; i++)
    if (late[i - from] && !c->inside[i] && !is_gradient_inside(c, &s->nodes[i])) copy_node(c, &s->nodes[i]);
}

static bool rewrite(Chunks *c, uint32_t index) {
  ZgSegment *s = &c->g->segments[index], *to = ZB_NEW(c->b->p->arena, ZgSegment);
  c->s = s;
  c->to = to;
  c->inside = ZB_NEWN(c->tmp, bool, s->nnodes + 1);
  c->behind = ZB_NEWN(c->tmp, bool, s->nvalues + 1);
  c->ahead = ZB_NEWN(c->tmp, bool, s->nvalues + 1);
  c->whole = ZB_NEWN(c->tmp, uint32_t, s->nvalues + 1);
  c->parted = ZB_NEWN(c->tmp, uint32_t, s->nvalues + 1);
  c->part = ZB_NEWN(c->tmp, uint32_t *, s->nvalues + 1);
  c->slice = ZB_NEWN(c->tmp, uint32_t *, s->nvalues + 1);
  memset(c->parted, 0xff, (s->nvalues + 1) * sizeof *c->parted);
  find_inside(c, 0, s->nforward);
  find_inside(c, s->nforward, s->nnodes);
  bool any = false;
  for (uint32_t i = 0; i < s->nnodes; i++) any |= c->inside[i];
  if (!any) return true;
  if (!check_inside(c)) return false;
  *to = *s;
  to->nodes = NULL, to->values = NULL;
  to->nnodes = to->nvalues = 0;
  rewrite_pass(c, 0, s->nforward);
  to->nforward = to->nnodes;
  rewrite_pass(c, s->nforward, s->nnodes);
  *s = *to;
  return true;
}

/* ---- the recipe ---------------------------------------------------------------------------------------- */
static bool refuse(ZpBuild *b, const char *why, const char *help) {
  zl_help(zl_report(b->d, ZL_Z0302, b->p->asked.recipe->chunk.span, "`chunk %s`: %s",
                    b->p->asked.recipe->chunk.axis.s, why),
          "%s", help);
  return false;
}

/* Returns the axis of rows, and whether every rank's part of it is cut without a rest. */
static bool choose_rows(Chunks *c) {
  ZpBuild *b = c->b;
  ZpPlan *p = b->p;
  const ZgNode *at = NULL;
  uint32_t rows = find_rows(p, c->classes, &at);
  if (!at)
    return refuse(b, "nothing that is computed of samples has this axis", "name the axis of the logits");
  if (rows == ZG_NONE)
    return refuse(b, "what has this axis has no other one beside the batch to be cut by",
                  "have a smaller `micro`");
  int64_t ranks = 1, n = p->asked.recipe->chunk.n;
  for (int d = 0; d < p->layout.mesh.ndims; d++)
    if (zp_dim_splits(&p->layout.mesh.dim[d], (uint16_t)rows)) ranks *= p->layout.mesh.dim[d].size;
  c->rows = (uint16_t)rows;
  if (p->layout.axis_size[rows] % (n * ranks) == 0 && factor(c, n)) return true;
  return refuse(b,
                zb_printf(p->arena, "`%s`, of which a rank has %lld, is not cut into %lld chunks of one size",
                          p->graph->axes[rows].name, (long long)(p->layout.axis_size[rows] / ranks),
                          (long long)n),
                "take a number that divides it and is a product of two of at most 8, such as 8 or 16");
}

int64_t zp_chunks_along(const ZpPlan *p, uint16_t axis) {
  const char *name = p->asked.recipe->chunk.axis.s;
  uint32_t classes = name ? zg_axis_find(p->graph, name) : ZG_NONE;
  const ZgNode *at;
  return classes != ZG_NONE && find_rows(p, (uint16_t)classes, &at) == axis ? p->asked.recipe->chunk.n : 1;
}

bool zp_bind_chunk(ZpBuild *b) {
  ZpPlan *p = b->p;
  if (!p->asked.recipe->chunk.axis.s) return true;
  uint32_t classes = zp_find_axis(b, p->asked.recipe->chunk.axis, ZP_AXIS_OF_MODEL);
  if (classes == ZG_NONE) return false;
  Chunks c = {.b = b, .classes = (uint16_t)classes, .chunks = p->asked.recipe->chunk.n};
  if (!choose_rows(&c)) return false;
  if (c.chunks == 1) return true;
  ZgGraph *g = ZB_NEW(p->arena, ZgGraph);
  *g = *p->graph;
  g->segments = ZB_NEWN(p->arena, ZgSegment, g->nsegments);
  memcpy(g->segments, p->graph->segments, g->nsegments * sizeof *g->segments);
  c.g = g;
  c.tmp = zb_arena_new();
  add_axes(&c);
  p->layout.chunk = (ZpChunk){c.classes, c.rows, c.up};
  p->graph = p->asked.eval_of ? p->asked.eval_of->model : g; /* the same one: of the same recipe */
  bool ok = true;
  for (uint32_t i = 0; ok && i < g->nsegments; i++) ok = rewrite(&c, i);
  zb_arena_free(c.tmp);
  return ok;
}

const char *zp_chunk_proposal(const ZpPlan *p, const ZpStage *st, uint64_t *bytes) {
  const char *axis = NULL;
  *bytes = 0;
  for (uint32_t i = 0; i < st->ninsts && p->layout.chunk.up == ZG_NO_AXIS; i++) {
    const ZpSegment *s = &p->programs.segments[st->insts[i].segment];
    const ZpList *l = &s->list[ZP_FWD];
    for (uint32_t k = 0; k < l->n; k++) {
      const ZpNode *n = &l->nodes[k];
      bool reads = n->call.op == ZG_OP_XENT_SUMS || n->call.op == ZG_OP_XENT_MAX_SUMS ||
                   n->call.op == ZG_OP_XENT_SUMS_GRAD;
      const ZpValue *v = reads ? &s->values[n->in[0]] : NULL;
      if (!v || v->at.space != ZP_AT_SAVED || v->bytes <= *bytes) continue;
      *bytes = v->bytes;
      axis = p->graph->axes[n->call.ax[0]].name;
    }
  }
  return 3 * st->prog.live * *bytes > st->ledger.bytes[ZP_L_ACTIVATIONS] ? axis : NULL;
}

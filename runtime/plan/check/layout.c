/* Values of a local program: sizes, types, blocks, views; shapes of collectives and other calls. */
#include "runtime/plan/check/layout.h"

#include <string.h>

static bool fail(const Local *l, uint32_t v, const char *text) {
  return zb_fail(l->c->err, NULL, "part %u: value %u %s", l->index, v, text);
}

static uint64_t lines(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

static uint64_t elements(const ZpValue *v) { return zk_elems((ZkElem)v->elem, v->bytes); }

static uint8_t elem_of(const ZpPlan *p, const ZgType *t) {
  return t->elem == ZG_REAL                         ? zp_precision_elem(p->asked.recipe->precision.compute)
         : t->elem == ZG_BF16                       ? ZK_BF16
         : t->elem == ZG_I32 || t->elem == ZG_INDEX ? ZK_I32
                                                    : ZK_F32;
}

/* ---- carried tuples ------------------------------------------------------------------------------------ */
uint32_t zp_listed_axis(const ZpPlan *p, const ZgType *t, int d) {
  for (uint32_t i = 0; d != p->layout.mesh.pipe && i < p->layout.mesh.dim[d].naxes; i++)
    for (int a = 0; a < t->naxes; a++)
      if (t->axis[a] == p->layout.mesh.dim[d].axes[i]) return t->axis[a];
  return ZP_NONE;
}

/* Returns the bytes of a rank's part of a carried value. */
static uint64_t part_bytes(const ZpPlan *p, const ZgType *t) {
  uint64_t n = 1;
  for (int a = 0; a < t->naxes; a++) n *= (uint64_t)p->layout.axis_size[t->axis[a]];
  for (int d = 0; d < p->layout.mesh.ndims; d++)
    n /= zp_listed_axis(p, t, d) == ZP_NONE ? 1 : (uint64_t)p->layout.mesh.dim[d].size;
  return zk_bytes((ZkElem)elem_of(p, t), n);
}

uint64_t zp_tuple_at(const Local *l, const ZgType *types, uint32_t k, const bool *has) {
  uint64_t at = 0;
  for (uint32_t i = 0; i < k; i++)
    if (!has || has[i]) at += lines(part_bytes(l->c->p, &types[i]));
  return at;
}

bool zp_tuples_fit(const Local *l) {
  const ZpSegment *s = l->s;
  const ZgSegment *g = l->gs;
  bool back = !l->c->p->asked.forward_only;
  if (s->carry_bytes == zp_tuple_at(l, g->carry_in, g->ncarry_in, NULL) &&
      s->dcarry_bytes == (back ? zp_tuple_at(l, g->carry_in, g->ncarry_in, l->cotangents->in) : 0) &&
      s->carry_out_bytes == zp_tuple_at(l, g->carry_out, g->ncarry_out, NULL) &&
      s->dcarry_out_bytes == (back ? zp_tuple_at(l, g->carry_out, g->ncarry_out, l->cotangents->out) : 0))
    return true;
  return zb_fail(l->c->err, NULL, "part %u: a carried tuple has not the bytes of its values", l->index);
}

/* ---- blocks -------------------------------------------------------------------------------------------- */
/* Returns axis `a`, slowest first, of a carried value: as in its type, but in a step tokens or rows come first. */
static uint16_t carried_axis(const ZpPlan *p, const ZgType *t, int a) {
  int lead = 0;
  while (p->stream && lead < t->naxes && t->axis[lead] != p->stream->axis.token &&
         t->axis[lead] != p->stream->axis.row)
    lead++;
  if (!p->stream || lead == t->naxes) return t->axis[a];
  return a == 0 ? t->axis[lead] : t->axis[a <= lead ? a - 1 : a];
}

static bool carried_fits(const Local *l, const ZpValue *v) {
  bool in = v->at.space == ZP_AT_CARRY_IN || v->at.space == ZP_AT_DCARRY_IN;
  bool back = v->at.space == ZP_AT_DCARRY_IN || v->at.space == ZP_AT_DCARRY_OUT;
  const ZgType *types = in ? l->gs->carry_in : l->gs->carry_out, *t = &types[v->at.index];
  const bool *has = !back ? NULL : in ? l->cotangents->in : l->cotangents->out;
  if (v->at.index >= (in ? l->gs->ncarry_in : l->gs->ncarry_out)) return false;
  bool same = v->elem == elem_of(l->c->p, t) && v->type.naxes == t->naxes && (!has || has[v->at.index]);
  for (int a = 0; same && a < t->naxes; a++) same = v->axis[a] == carried_axis(l->c->p, t, a);
  for (int d = 0; same && d < l->c->p->layout.mesh.ndims; d++) {
    uint32_t axis = zp_listed_axis(l->c->p, t, d);
    same = axis == ZP_NONE ? v->state[d].kind == 'R' : v->state[d].kind == 'S' && v->state[d].axis == axis;
  }
  return same && v->at.offset == zp_tuple_at(l, types, v->at.index, has);
}

const ZpSlice *zp_slice_at(const Local *l, const ZpValue *v) {
  if (v->at.index >= l->s->nbuckets) return NULL;
  const ZpBucket *k = &l->c->p->programs.buckets[l->s->buckets[v->at.index]];
  return zp_slice_in(k, v->at.space == ZP_AT_GRAD, v->at.offset);
}

static bool slice_fits(const Local *l, const ZpValue *v) {
  const ZpSlice *q = zp_slice_at(l, v);
  bool grad = v->at.space == ZP_AT_GRAD;
  if (!q || q->naxes != v->type.naxes || zk_bytes((ZkElem)v->elem, grad ? q->n : q->takes) != v->bytes ||
      (!grad && q->param != v->param))
    return false;
  const ZpBucket *k = &l->c->p->programs.buckets[l->s->buckets[v->at.index]];
  for (int a = 0; a < q->naxes && !zk_is_packed((ZkElem)v->elem); a++)
    if (q->axis[a] != v->axis[a] || q->size[a] != v->size[a]) return false;
  for (int d = 0; d < l->c->p->layout.mesh.ndims; d++)
    if (v->state[d].kind != (grad && k->partial >> d & 1 ? 'P' : q->state[d].kind)) return false;
  return true;
}

/* Checks that a cache is one of the segment's, with its type, and in memory that is no other's. */
static bool cache_fits(const Local *l, const ZpValue *v) {
  const ZpStream *s = l->c->p->stream;
  uint64_t end, other;
  if (!s || v->at.index >= s->ncaches || s->caches[v->at.index].segment != l->index) return false;
  if (!zg_type_eq(&v->type, &s->caches[v->at.index].type) || v->at.offset % 64) return false;
  if (!zb_add_u64(v->at.offset, v->bytes, &end) || end > l->s->cache_bytes) return false;
  for (uint32_t i = 0; i < l->s->nvalues; i++) {
    const ZpValue *x = &l->s->values[i];
    if (x->at.space != ZP_AT_CACHE || !zb_add_u64(x->at.offset, x->bytes, &other)) continue;
    bool same = x->at.index == v->at.index;
    if (same ? x->at.offset != v->at.offset : x->at.offset < end && v->at.offset < other) return false;
  }
  return true;
}

static bool block_fits(const Local *l, const ZpValue *v) {
  const ZpSegment *s = l->s;
  uint64_t end;
  if (!zb_add_u64(v->at.offset, v->bytes, &end)) return false;
  switch ((ZpSpace)v->at.space) {
  case ZP_AT_TEMP: return end <= l->temp && v->at.offset % 64 == 0;
  case ZP_AT_SAVED: return end <= s->saved_bytes && v->at.offset % 64 == 0;
  case ZP_AT_INPUT: return zp_input_fits(l, v);
  case ZP_AT_PARAM:
  case ZP_AT_GRAD: return slice_fits(l, v);
  case ZP_AT_CARRY_IN:
  case ZP_AT_CARRY_OUT:
  case ZP_AT_DCARRY_IN:
  case ZP_AT_DCARRY_OUT: return carried_fits(l, v);
  case ZP_AT_CACHE: return cache_fits(l, v);
  case ZP_AT_SEED:
    return v->at.index <= zg_losses(l->c->p->graph) && v->at.offset == 0 && v->elem == ZK_F32 &&
           v->bytes == 4;
  case ZP_AT_NOWHERE: break;
  }
  return false;
}

/* ---- values -------------------------------------------------------------------------------------------- */
/* Returns the format in which a value must be stored: a parameter has its bucket's (arena.c), a gradient f32,
 * all else that of its type. */
/* Returns whether a value is a part of a sum, which steps of generation keep in f32. */
static bool is_wide_part(const Local *l, const ZpValue *v) {
  bool part = false;
  for (int d = 0; l->c->p->stream && d < l->c->p->layout.mesh.ndims; d++)
    part |= v->state[d].kind == 'P' && !v->state[d].max;
  return part && elem_of(l->c->p, &v->type) == ZK_BF16;
}

static uint8_t stored_elem(const Local *l, const ZpValue *v) {
  if (is_wide_part(l, v)) return ZK_F32;
  if (v->at.space == ZP_AT_GRAD) return ZK_F32;
  bool param = v->at.space == ZP_AT_PARAM && v->at.index < l->s->nbuckets;
  return param ? l->c->p->programs.buckets[l->s->buckets[v->at.index]].elem : elem_of(l->c->p, &v->type);
}

bool zp_value_fits(const Local *l, uint32_t index) {
  const ZpPlan *p = l->c->p;
  if (index >= l->s->nvalues) return fail(l, index, "does not exist");
  const ZpValue *v = &l->s->values[index];
  uint64_t n = 1, cut = 0;
  if (v->elem != stored_elem(l, v)) return fail(l, index, "is not of its type's elements");
  for (int a = 0; a < v->type.naxes; a++) {
    int64_t parts = 1, found = 0;
    for (int i = 0; i < v->type.naxes; i++) found += v->type.axis[i] == v->axis[a];
    for (int i = 0; i < a; i++) found += v->axis[i] == v->axis[a];
    for (int d = 0; d < p->layout.mesh.ndims; d++)
      if (v->state[d].kind == 'S' && v->state[d].axis == v->axis[a])
        parts *= p->layout.mesh.dim[d].size, cut++;
    if (found != 1) return fail(l, index, "has not the axes of its type");
    if (v->size[a] * parts != p->layout.axis_size[v->axis[a]])
      return fail(l, index, "has not the sizes that the mesh leaves of its axes");
    n *= (uint64_t)v->size[a];
  }
  for (int d = 0; d < p->layout.mesh.ndims; d++) {
    if (d == p->layout.mesh.pipe && v->state[d].kind != 'R')
      return fail(l, index, "is not whole on its stage");
    if (v->state[d].kind == 'S' && cut-- == 0) return fail(l, index, "is cut along an axis that it lacks");
  }
  bool packed = zk_is_packed((ZkElem)v->elem);
  if (packed ? !zp_packed_fits(l, v) : v->summed || zk_bytes((ZkElem)v->elem, n) != v->bytes)
    return fail(l, index, "has not the bytes of its sizes");
  return block_fits(l, v) ||
         fail(l, index,
              "does not lie in the block in which it is said to lie, or not where others look for it");
}

static bool lie_alike(const ZpValue *x, const ZpValue *y) {
  bool same = x->elem == y->elem && x->type.naxes == y->type.naxes && x->bytes == y->bytes;
  for (int i = 0; same && i < x->type.naxes; i++) same = x->axis[i] == y->axis[i] && x->size[i] == y->size[i];
  return same;
}

bool zp_group_fits(const Local *l, uint32_t index) {
  const ZpValue *v = &l->s->values[index], *first = &l->s->values[v->member[0]];
  for (int i = 0; i < v->nmembers; i++) {
    const ZpValue *x = &l->s->values[v->member[i]];
    bool behind = x->at.space == v->at.space && x->at.index == v->at.index &&
                  x->at.offset == v->at.offset + (uint64_t)i * first->bytes;
    if (!behind || !lie_alike(first, x)) return fail(l, index, "is not contiguous in its members");
  }
  return v->bytes == v->nmembers * first->bytes || fail(l, index, "has not the bytes of its members");
}

/* Dense, in the order of memory; a group has its number as the slowest axis, which is no model's. */
bool zp_view_fits(const Local *l, uint32_t index, const ZkView *w) {
  const ZpPlan *p = l->c->p;
  const ZpValue *v = &l->s->values[index];
  int more = v->nmembers > 0;
  int64_t stride = 1;
  if (v->nmembers > ZP_MAX_GROUP || w->elem != v->elem || w->summed != v->summed ||
      w->rank != v->type.naxes + more)
    return false;
  for (int a = v->type.naxes; a-- > 0;) {
    int i = a + more;
    if (w->axis[i] != v->axis[a] || w->size[i] != v->size[a] || w->stride[i] != stride ||
        w->whole[i] != p->layout.axis_size[v->axis[a]])
      return false;
    stride *= v->size[a];
  }
  return !more || (w->axis[0] == p->graph->naxes && w->size[0] == v->nmembers && w->stride[0] == stride);
}

/* ---- calls --------------------------------------------------------------------------------------------- */
static const ZpValue *operand(const Local *l, const ZpNode *n, int i) {
  return &l->s->values[i < n->call.nin ? n->in[i] : n->out[i - n->call.nin]];
}

static int64_t size_along(const ZpValue *v, uint16_t axis) {
  for (int a = 0; a < v->type.naxes; a++)
    if (v->axis[a] == axis) return v->size[a];
  return 0;
}

static bool is_split(const ZpValue *v, int d, uint16_t axis) {
  return v->state[d].kind == 'S' && v->state[d].axis == axis;
}

/* Merged axes, and those an axis is parted into, have as many elements as the one. If that is split, so is
 * the slowest of them, over the same dims, and no other; zigzag both or none, in whole rows. */
static bool regroups_wrong(const Local *l, const ZpNode *n) {
  bool merge = n->call.op == ZG_OP_MERGE;
  if (!merge && n->call.op != ZG_OP_PART) return false;
  const ZpValue *parted = operand(l, n, !merge), *one = operand(l, n, merge);
  const uint16_t *part = n->call.ax + merge, whole = n->call.ax[merge ? 0 : n->call.nax - 1];
  int64_t product = 1, pairs = 1;
  bool wrong = false;
  for (int i = 0; i < n->call.nax - 1; i++) {
    product *= size_along(parted, part[i]);
    for (int d = 0; d < l->c->p->layout.mesh.ndims; d++) {
      const ZpDim *m = &l->c->p->layout.mesh.dim[d];
      bool split = is_split(parted, d, part[i]), zigzag = zp_dim_zigzags(m, part[i]);
      wrong |= split != (i == 0 && is_split(one, d, whole));
      wrong |= split && zigzag != zp_dim_zigzags(m, whole);
      if (split && zigzag) pairs *= m->size;
    }
  }
  wrong |= pairs > 1 && l->c->p->layout.axis_size[part[0]] % (2 * pairs);
  return wrong || product != size_along(one, whole);
}

/* Along spatial axes and their windows everything is there. */
static bool convolves_a_part(const Local *l, const ZpNode *n) {
  bool part = false;
  for (int i = 0; zg_is_conv(n->call.op) && i < 3; i++)
    for (int d = 0; d < l->c->p->layout.mesh.ndims; d++)
      for (int k = 0; k < n->call.nax; k++) part |= is_split(operand(l, n, i), d, n->call.ax[k]);
  return part;
}

/* Along the axis of a recurrence or a shift every element needs those before it, which are all there. */
static bool goes_along_a_part(const Local *l, const ZpNode *n) {
  uint16_t op = n->call.op;
  bool along = op == ZG_OP_SHIFT || op == ZG_OP_CUMSUM || op == ZG_OP_SCAN || zg_is_linear_attend(op),
       part = false;
  for (int i = 0; along && i < n->call.nin; i++)
    for (int d = 0; d < l->c->p->layout.mesh.ndims; d++)
      part |= l->c->p->layout.mesh.dim[d].size > 1 && is_split(operand(l, n, i), d, n->call.ax[0]);
  return part;
}

/* Returns whether operand or result i of attend or its gradient has all keys, if both sequences are one:
 * around a ring only documents have. */
static bool has_keys(const ZpNode *n, int i) {
  const ZkCall *c = &n->call;
  int first = zg_attend_first(c->op), result = i - c->nin;
  if (n->dims) return result < 0 && i > first + 2;
  if (c->op == ZG_OP_ATTEND) return result < 0 && i > first;
  return result < 0 ? i > first : c->op == ZG_OP_ATTEND_BIAS_GRAD || result > 0;
}

/* Attention over one sequence, whose queries may be split where keys are whole. What is made of keys then is
 * a part of a sum, and all else is of one size. */
static const char *attends_wrong(const Local *l, const ZpNode *n) {
  ZgAttendAxes ax = zg_attend_axes(n->call.ax, n->call.nax);
  if (!zg_is_attend(n->call.op)) return NULL;
  if (n->dims && (ax.q != ax.k || n->call.op == ZG_OP_ATTEND_BIAS_GRAD || n->axis != ax.q))
    return "cannot go round a ring";
  if (ax.q != ax.k) return NULL;
  const ZpValue *q = operand(l, n, zg_attend_first(n->call.op));
  for (int d = 0; d < l->c->p->layout.mesh.ndims; d++) {
    bool split = is_split(q, d, ax.q), one = l->c->p->layout.mesh.dim[d].size == 1;
    if (n->dims && !one && (n->dims >> d & 1) != split)
      return "goes round other ranks than those that share its sequence";
    for (int i = 0; i < n->call.nin + n->call.nout; i++) {
      const ZpValue *v = operand(l, n, i);
      if (!size_along(v, ax.q)) continue;
      char kind = !split || !has_keys(n, i) ? 0 : i < n->call.nin ? 'R' : 'P';
      if (kind ? v->state[d].kind != kind : is_split(v, d, ax.q) != split)
        return "attends to keys that are split otherwise than its queries let them";
    }
  }
  return NULL;
}

/* Checks the split of rows against the split of their tokens, or (`place`) of the tokens' numbers: along the
 * collective's dims tokens are split, but in a step of generation the same, and rows are by expert; along the others both are split alike, or
 * neither, or as slots are. */
static bool split_alike(const Local *l, const ZpNode *n, const ZpValue *tokens, const ZpValue *rows,
                        bool place) {
  const ZpPlan *p = l->c->p;
  for (int d = 0; d < p->layout.mesh.ndims; d++) {
    ZpState a = tokens->state[d], b = rows->state[d];
    bool over = n->dims >> d & 1, token = a.kind == 'S' && !size_along(rows, a.axis);
    bool same = a.kind == b.kind && (a.kind != 'S' || a.axis == b.axis);
    if (p->stream && over) token = a.kind == 'R';
    if (place)
      same = a.kind == 'R' && (b.kind != 'S' || (b.axis != n->call.ax[0] && b.axis != n->call.ax[1]));
    if (over ? !token || !is_split(rows, d, n->call.ax[0])
             : !same && !(token && is_split(rows, d, n->call.ax[1])))
      return false;
  }
  return true;
}

/* Rows of experts to their owners and back; and the round that they are of. */
static const char *rows_wrong(const Local *l, const ZpNode *n) {
  const ZpPlan *p = l->c->p;
  bool out = n->call.op == ZG_OP_DISPATCH, round = n->call.op == ZG_OP_ROUND;
  if (n->call.nin != (round ? 1 : 3) || n->call.nout != 1) return "is not a collective of rows";
  const ZpValue *now = operand(l, n, round ? 1 : 2);
  for (int d = 0; d < p->layout.mesh.ndims; d++)
    if (n->dims >> d & 1 ? !is_split(now, d, n->call.ax[0]) : now->state[d].kind != 'R')
      return "counts rows of other experts than the rank's";
  if (now->elem != ZK_I32 || now->type.naxes != 1)
    return "counts rows in what is not a number of each expert";
  if (round) {
    const ZpValue *ends = operand(l, n, 0);
    bool all =
        ends->elem == ZK_I32 && ends->type.naxes == 1 && ends->size[0] == p->layout.axis_size[n->call.ax[0]];
    if (!all) return "does not know how many rows of each expert there are";
    uint64_t counts =
        p->asked.pins && n->dims ? lines((uint64_t)zp_group_size(&p->layout.mesh, n->dims) * ends->bytes) : 0;
    return n->scratch_bytes < counts ? "has not the scratch for what ranks have of each expert" : NULL;
  }
  const ZpValue *tokens = operand(l, n, out ? 0 : 3), *rows = operand(l, n, out ? 3 : 0),
                *place = operand(l, n, 1);
  if (rows->type.naxes < 2 || rows->axis[0] != n->call.ax[0] || rows->axis[1] != n->call.ax[1])
    return "takes for rows what are none";
  if (!split_alike(l, n, tokens, rows, false) || !split_alike(l, n, place, rows, true))
    return "has tokens and rows that are split otherwise";
  for (int a = 0; a < tokens->type.naxes; a++) {
    int64_t row = size_along(rows, tokens->axis[a]), at = size_along(place, tokens->axis[a]);
    if ((row && row != tokens->size[a]) || (at && at != tokens->size[a]) || (!row && !at))
      return "has tokens and rows of different sizes";
  }
  uint64_t row = rows->bytes / (uint64_t)(rows->size[0] * rows->size[1]), own = place->bytes / 4;
  uint64_t slots = p->asked.pins ? lines(((uint64_t)(rows->size[0] * rows->size[1]) + 1) * 4) : 0;
  bool room = n->scratch_bytes >= lines(own * row) + lines(rows->bytes) + 2 * lines(place->bytes) + slots;
  return room || !n->dims ? NULL : "has not the scratch for rows that travel";
}

uint64_t zp_kernel_scratch(const Local *l, const ZkCall *call) {
  const ZpPlan *p = l->c->p;
  return p->asked.scratch ? lines(p->asked.scratch(call, p->asked.threads)) : 0;
}

/* Returns whether some query of chunk `q` sees a key of chunk `k`, of `length` positions: that of the nearest
 * pair. */
static bool chunk_sees(const ZpNode *n, int64_t length, int64_t q, int64_t k) {
  int64_t far = q - k, least = far > 0 ? (far - 1) * length + 1 : far < 0 ? (-far - 1) * length + 1 : 0;
  return !(n->call.opt[0] == 1 && far < 0) && (!n->call.opt[1] || least < n->call.opt[1]);
}

/* Returns whether the ring has chunk c of the rank t before at some step. */
static bool comes(const ZpNode *n, int64_t t, int c) {
  bool met = false;
  for (uint32_t i = 0; i < n->nsteps; i++) met |= n->steps[i] == t && n->chunks[i] >> c & 1;
  return met;
}

/* Returns whether any of the node's dims splits its axis zigzag. */
static bool is_zigzag(const Local *l, const ZpNode *n) {
  bool is = false;
  for (int d = 0; d < l->c->p->layout.mesh.ndims; d++)
    is |= n->dims >> d & 1 && zp_dim_zigzags(&l->c->p->layout.mesh.dim[d], n->axis);
  return is;
}

/* Returns whether the ring leaves out a step that has pairs. Ranks of a zigzag sequence have two chunks, one
 * from each end. */
static bool leaves_out(const Local *l, const ZpNode *n, int64_t ranks, int64_t length) {
  int own = is_zigzag(l, n) ? 2 : 1;
  for (int64_t q = 0; q < own * ranks; q++)
    for (int64_t k = 0; k < own * ranks; k++) {
      int64_t by = q < ranks ? q : 2 * ranks - 1 - q, of = k < ranks ? k : 2 * ranks - 1 - k;
      if (chunk_sees(n, length / own, q, k) && !comes(n, (by - of + ranks) % ranks, k >= ranks)) return true;
    }
  return n->chunks[0] != (own == 2 ? 3 : 1);
}

/* Every pair of chunks of which queries may see keys meets at one of the steps, and the scratch is enough:
 * for chunks and sums on their way, and for a kernel that makes f32. */
static const char *ring_wrong(const Local *l, const ZpNode *n) {
  const ZpValue *q = operand(l, n, zg_attend_first(n->call.op));
  int64_t whole = l->c->p->layout.axis_size[n->axis], length = size_along(q, n->axis), ranks = whole / length;
  for (uint32_t i = 0; i < n->nsteps; i++)
    if (i ? n->steps[i] <= n->steps[i - 1] || n->steps[i] >= ranks : n->steps[0])
      return "takes steps in no order";
  if (leaves_out(l, n, ranks, length)) return "leaves out a step at which some queries see keys";
  uint64_t need = 0;
  bool back = n->call.op == ZG_OP_ATTEND_GRAD;
  for (int i = 1; i < 3; i++) {
    const ZpValue *k = operand(l, n, zg_attend_first(n->call.op) + i);
    need += 2 * lines(k->bytes) + (back ? 2 * lines(zk_bytes(ZK_F32, elements(k))) : 0);
  }
  const ZpValue *made = operand(l, n, n->call.nin);
  if (made->elem != ZK_F32) need += lines(zk_bytes(ZK_F32, elements(made)));
  ZkCall one = n->call;
  for (int i = 0; i < (back ? one.nout : 1); i++) one.out[i].elem = ZK_F32;
  need += zp_kernel_scratch(l, &one);
  return n->scratch_bytes < need ? "has not the scratch to go round" : NULL;
}

/* Registers: results of the op that it is fused to, inputs, then one an instruction (kernels.h). */
static const char *pointwise_wrong(const ZkCall *k) {
  const ZkPointwise *c = k->pointwise;
  bool fused = k->op != ZG_OP_POINTWISE;
  if (!c) return fused ? NULL : "has no pointwise function";
  int results = fused ? zg_op_info[k->op].nout : 0,
      own = fused ? zg_op_info[k->op].max_in - (c->prologue > 0) : 0;
  int first = results + k->nin - own;
  if (own > k->nin || c->nout != k->nout || c->nops > ZK_POINTWISE_MAX_OPS || c->prologue > c->nops)
    return "has a pointwise function that does not fit the call";
  for (int i = 0; i < c->nops; i++) {
    const ZkPointwiseOp *o = &c->ops[i];
    const uint16_t arg[3] = {o->a, o->b, o->c};
    if (o->op >= ZG_OP_COUNT || zg_op_info[o->op].kind != ZG_EW)
      return "has a pointwise function of what is not element by element";
    for (int a = 0; a < zg_op_info[o->op].max_in; a++)
      if (arg[a] >= first + i || (i < c->prologue && arg[a] < results))
        return "has a pointwise function that reads what is not made yet";
  }
  for (int j = 0; j < c->nout; j++)
    if (c->out[j] >= first + c->nops) return "has a pointwise function that gives out what it does not make";
  bool fed = !c->prologue || (c->operand >= results && c->operand < first + c->prologue);
  return fed ? NULL : "is fed by what is not made yet";
}

/* Sums beside a norm's gradient are over all rows that the rank has, and are a part where ranks have others;
 * what is summed is there before the gradient is made. */
static const char *sums_wrong(const Local *l, const ZpNode *n) {
  const ZkCall *k = &n->call;
  if (k->op != ZG_OP_NORMALIZE_GRAD_SUMS) return NULL;
  const ZpValue *rows = operand(l, n, k->nin);
  int sums = 0;
  for (int j = k->nout; j-- > 0 && operand(l, n, k->nin + j)->type.naxes < rows->type.naxes;) sums++;
  if (!k->pointwise || !k->accumulate || !sums || sums > ZK_MOST_SUMS) return "adds no sums to gradients";
  int results = zg_op_info[k->op].nout, own = zg_op_info[k->op].max_in - (k->pointwise->prologue > 0);
  for (int j = k->nout - sums; j < k->nout; j++) {
    const ZpValue *v = operand(l, n, k->nin + j);
    int reg = k->pointwise->out[j];
    if (v->elem != ZK_F32 || v->type.naxes != 1 || v->axis[0] != k->ax[0])
      return "has a sum that is not over its rows";
    if (reg < results || reg >= results + k->nin - own + k->pointwise->prologue)
      return "sums what it has not before the gradient";
    for (int d = 0; d < l->c->p->layout.mesh.ndims; d++)
      if (rows->state[d].kind == 'S' && rows->state[d].axis != k->ax[0] && v->state[d].kind != 'P')
        return "takes the sum over a rank's rows for that over all";
  }
  return NULL;
}

/* Returns whether a rank would number choices that it does not have. */
static bool places_wrong(const Local *l, const ZpNode *n) {
  bool wrong = false;
  for (int d = 0; n->call.op == ZG_OP_SLOTS && d < l->c->p->layout.mesh.ndims; d++) {
    ZpState a = operand(l, n, 0)->state[d], b = operand(l, n, 1)->state[d];
    wrong |= a.kind != b.kind || (a.kind == 'S' && a.axis != b.axis);
  }
  return wrong;
}

static bool padded(const ZpPlan *p, uint16_t axis) {
  return p->layout.axis_size[axis] != p->layout.axis_valid[axis];
}

const char *zp_sizes_wrong(const Local *l, const ZpNode *n) {
  if (n->call.op == ZG_OP_DISPATCH || n->call.op == ZG_OP_COMBINE || n->call.op == ZG_OP_ROUND) {
    const char *wrong = rows_wrong(l, n); /* among ranks that have no rows of each other's */
    if (wrong) return wrong;
  }
  if (n->call.op == ZG_OP_ALL_REDUCE || n->call.op == ZG_OP_REDUCE_SCATTER ||
      n->call.op == ZG_OP_ALL_GATHER || n->call.op == ZG_OP_ALL_TO_ALL || n->call.op == ZG_OP_LOCAL_SLICE ||
      n->call.op == ZG_OP_LOCAL_PAD)
    return "goes over no ranks";
  ZgAttendAxes attend = zg_attend_axes(n->call.ax, n->call.nax);
  for (int i = 0; i < n->call.nin + n->call.nout; i++)
    for (int a = 0; a < operand(l, n, i)->type.naxes; a++)
      for (int k = 0; k < i; k++) {
        if (zg_is_attend(n->call.op) && attend.q == attend.k && operand(l, n, i)->axis[a] == attend.q &&
            has_keys(n, i) != has_keys(n, k))
          continue;
        int64_t size = size_along(operand(l, n, k), operand(l, n, i)->axis[a]);
        if (size && size != operand(l, n, i)->size[a]) return "has operands of which one axis has two sizes";
      }
  bool linear = n->call.op == ZG_OP_SUM || n->call.op == ZG_OP_LOOKUP_GRAD || n->call.op == ZG_OP_COMBINE ||
                n->call.op == ZG_OP_COPY;
  for (int i = 0; i < n->call.nin && !linear && !n->call.pointwise; i++)
    for (int d = 0; d < l->c->p->layout.mesh.ndims; d++)
      if (operand(l, n, i)->state[d].kind == 'P') return "reads a part of a sum as if it were all";
  const uint16_t *ax = n->call.ax;
  bool whole = n->call.op == ZG_OP_XENT_MAX_SUMS || n->call.op == ZG_OP_XENT_SUMS_GRAD;
  bool classes = whole || n->call.op == ZG_OP_PEAK || n->call.op == ZG_OP_SOFTMAX ||
                 n->call.op == ZG_OP_XENT_SUMS || n->call.op == ZG_OP_XENT_GRAD;
  if (classes && n->call.opt[1] != (padded(l->c->p, ax[0]) ? l->c->p->layout.axis_valid[ax[0]] : 0))
    return "takes padding for classes";
  for (int d = 0; whole && d < l->c->p->layout.mesh.ndims; d++)
    if (l->c->p->layout.mesh.dim[d].size > 1 && is_split(operand(l, n, 0), d, ax[0]))
      return "finds the maximum of some classes alone";
  if (n->call.op == ZG_OP_RENAME &&
      size_along(operand(l, n, 0), ax[0]) != size_along(operand(l, n, 1), ax[1]))
    return "renames an axis to one of another size";
  const char *attends = attends_wrong(l, n);
  if (attends) return attends;
  if (n->dims) return ring_wrong(l, n);
  if (regroups_wrong(l, n)) return "merges axes to one of another size, or split otherwise";
  if (convolves_a_part(l, n)) return "convolves along an axis that is split";
  if (goes_along_a_part(l, n)) return "goes along an axis that is split";
  if (places_wrong(l, n)) return "numbers choices that other ranks have";
  const char *wrong = pointwise_wrong(&n->call);
  return wrong ? wrong : sums_wrong(l, n);
}

/* Returns what is wrong with an output, or NULL: it is taken out in the layout of its type, and complete. */
static const char *output_wrong(const Local *l, const ZpNode *n) {
  const ZpPlan *p = l->c->p;
  if (!p->asked.outputs || n->sink >= p->graph->noutputs || n->call.nin != 1 || n->call.nout != 0 || n->dims)
    return "is nothing that is taken out";
  const ZpValue *v = operand(l, n, 0);
  if (!zg_type_eq(&v->type, &p->graph->outputs[n->sink].type)) return "is another output than the model's";
  for (int d = 0; d < p->layout.mesh.ndims; d++) {
    uint32_t axis = zp_listed_axis(p, &v->type, d);
    if (axis == ZP_NONE ? v->state[d].kind != 'R' : v->state[d].kind != 'S' || v->state[d].axis != axis)
      return "takes out what lies otherwise than its type";
  }
  return NULL;
}

/* Returns what is wrong with a sink, or NULL: it is one f32, partial exactly along the dims that are reduced
 * in the end. */
const char *zp_sink_wrong(const Local *l, const ZpNode *n) {
  const ZpPlan *p = l->c->p;
  if (n->call.op == ZG_OP_OUTPUT) return output_wrong(l, n);
  bool aux = n->call.op == ZG_OP_AUX, num = n->call.op == ZG_OP_LOSS_NUM;
  if ((!aux && !num && n->call.op != ZG_OP_LOSS_DEN) || n->call.nin != 1 || n->call.nout != 0 || n->dims)
    return "is nothing that is taken out";
  const ZpValue *v = operand(l, n, 0);
  if (v->type.naxes || v->elem != ZK_F32) return "takes out what is not a number in f32";
  if (!aux && n->sink >= zg_losses(p->graph)) return "is of no loss of the model";
  ZpDims partial = aux ? 0 : num ? p->layout.num_partial[n->sink] : p->layout.den_partial[n->sink];
  for (int d = 0; d < p->layout.mesh.ndims; d++)
    if (v->state[d].kind != (partial >> d & 1 ? 'P' : 'R'))
      return "takes out what is reduced over other dims";
  return NULL;
}

/* Returns whether a collective's blocks along `axis` lie one behind the other in the whole tensor, in the
 * order of the part's. */
static bool in_blocks(const ZpValue *whole, const ZpValue *part, uint16_t axis) {
  for (int a = 0; a < whole->type.naxes; a++)
    if (whole->axis[a] != part->axis[a]) return false;
  for (int a = 0; a < whole->type.naxes && whole->axis[a] != axis; a++)
    if (whole->size[a] != 1) return false;
  return true;
}

/* Blocks that do not lie so are put together, or taken apart, in scratch. */
static const char *packing_wrong(const Local *l, const ZpNode *n, const ZpValue *in, const ZpValue *out) {
  uint64_t need = 0;
  bool zigzag = is_zigzag(l, n), must = n->call.op == ZG_OP_ALL_TO_ALL;
  if (n->call.op == ZG_OP_ALL_GATHER) must = zigzag || !in_blocks(out, in, n->axis), need = out->bytes;
  bool rounds = in->elem != out->elem; /* a sum in f32 becomes what is computed in */
  if (n->call.op == ZG_OP_ALL_REDUCE) must = rounds, need = in->bytes;
  if (n->call.op == ZG_OP_REDUCE_SCATTER)
    must = rounds || zigzag || !in_blocks(in, out, n->axis), need = in->bytes;
  if (rounds && n->call.op == ZG_OP_REDUCE_SCATTER) need = lines(in->bytes) + 2 * lines(out->bytes);
  if (n->call.op == ZG_OP_ALL_TO_ALL) need = lines(in->bytes) + out->bytes;
  if (must && !n->packs) return "does not pack what does not lie in blocks";
  return n->packs && n->scratch_bytes < need ? "has not the scratch to pack" : NULL;
}

/* Returns what is wrong with a collective's states, or NULL: it changes those along its dims, and no
 * others. */
static const char *states_wrong(const ZpPlan *p, const ZpNode *n, const ZpState *in, const ZpState *out) {
  static const struct {
    uint16_t op;
    char from, to;
  } changes[] = {{ZG_OP_ALL_REDUCE, 'P', 'R'}, {ZG_OP_REDUCE_SCATTER, 'P', 'S'}, {ZG_OP_ALL_GATHER, 'S', 'R'},
                 {ZG_OP_ALL_TO_ALL, 'S', 'S'}, {ZG_OP_LOCAL_SLICE, 'R', 'S'},    {ZG_OP_LOCAL_PAD, 'S', 'P'}};
  size_t k = 0;
  while (changes[k].op != n->call.op) k++;
  char from = n->call.op == ZG_OP_LOCAL_PAD && n->axis == ZP_NO_AXIS ? 'R' : changes[k].from;
  uint16_t to = n->call.op == ZG_OP_ALL_TO_ALL ? n->axis2 : n->axis;
  for (int d = 0; d < p->layout.mesh.ndims; d++) {
    ZpState a = in[d], b = out[d];
    bool same = a.kind == b.kind && a.max == b.max && (a.kind != 'S' || a.axis == b.axis);
    bool does = a.kind == from && b.kind == changes[k].to;
    does &= (a.kind != 'S' || a.axis == n->axis) && (b.kind != 'S' || b.axis == to);
    if (a.kind == 'P') does &= a.max == (n->call.opt[0] != 0);
    if (b.kind == 'P' && n->dims >> d & 1) does &= !b.max;
    if (n->dims >> d & 1 ? !does : !same) return "does not make of its operand what its result is said to be";
  }
  return NULL;
}

/* Returns what is wrong with a halo, or NULL: all of its dims, and no others, split the axis, in order;
 * values move along this axis alone; a rank sends the elements that its neighbours want, at most all that it
 * has. */
static const char *halo_wrong(const Local *l, const ZpNode *n) {
  const ZpPlan *p = l->c->p;
  if (n->call.nin != 1 || n->call.nout != 1 || n->axis != n->call.ax[0]) return "is not a shift over ranks";
  const ZpValue *in = operand(l, n, 0), *out = operand(l, n, 1);
  int64_t own = size_along(in, n->axis);
  if (is_zigzag(l, n)) return "shifts positions that do not follow each other";
  if (!own || in->elem != out->elem || in->type.naxes != out->type.naxes)
    return "has a result of another kind than its operand";
  for (int d = 0; d < p->layout.mesh.ndims; d++) {
    ZpState a = in->state[d], b = out->state[d];
    bool over = n->dims >> d & 1, split = is_split(in, d, n->axis);
    if (a.kind != b.kind || a.kind == 'P' || (a.kind == 'S' && a.axis != b.axis) ||
        (p->layout.mesh.dim[d].size > 1 && over != split) || (over && !split))
      return "shifts over other ranks than those that share its axis";
  }
  for (int a = 0; a < in->type.naxes; a++)
    if (in->size[a] != size_along(out, in->axis[a])) return "has a result of other sizes than its operand";
  uint64_t row = in->bytes / (uint64_t)own, need = 0;
  for (int64_t t = 0; t < own; t++) { /* where each of a middle rank's elements goes */
    int64_t to = t + n->call.opt[0], hop = to / own - (to % own < 0);
    if (hop && hop * own < p->layout.axis_size[n->axis] && -hop * own < p->layout.axis_size[n->axis])
      need += row;
  }
  if (!n->packs && own > 1 && !in_blocks(in, out, n->axis))
    return "does not pack what does not lie in blocks";
  return n->packs && n->scratch_bytes < 2 * need ? "has not the scratch to pack" : NULL;
}

/* Sizes along an axis as the collective changes them; the rest stays. */
const char *zp_collective_wrong(const Local *l, const ZpNode *n) {
  const ZpPlan *p = l->c->p;
  if (n->call.op == ZG_OP_DISPATCH || n->call.op == ZG_OP_COMBINE || n->call.op == ZG_OP_ROUND)
    return rows_wrong(l, n);
  if (n->call.op == ZG_OP_SHIFT) return halo_wrong(l, n);
  int64_t members = 1;
  if (n->call.nin != 1 || n->call.nout != 1) return "is not a collective of one value";
  for (int d = 0; d < p->layout.mesh.ndims; d++)
    if (n->dims >> d & 1) members *= p->layout.mesh.dim[d].size;
  const ZpValue *in = operand(l, n, 0), *out = operand(l, n, 1);
  uint16_t op = n->call.op, to = op == ZG_OP_ALL_TO_ALL ? n->axis2 : n->axis;
  bool pads = op == ZG_OP_LOCAL_PAD, keeps = pads && n->axis == ZP_NO_AXIS;
  bool gathers = op == ZG_OP_ALL_GATHER || op == ZG_OP_ALL_TO_ALL || (pads && !keeps);
  bool cuts = op == ZG_OP_REDUCE_SCATTER || op == ZG_OP_LOCAL_SLICE || op == ZG_OP_ALL_TO_ALL;
  if (!gathers && !cuts && !keeps && op != ZG_OP_ALL_REDUCE)
    return "goes over ranks, but is not a collective";
  bool sums = op == ZG_OP_ALL_REDUCE || op == ZG_OP_REDUCE_SCATTER,
       rounds = sums && is_wide_part(l, in) && out->elem == elem_of(p, &out->type);
  if ((in->elem != out->elem && !rounds) || in->type.naxes != out->type.naxes ||
      (gathers && !size_along(in, n->axis)) || (cuts && !size_along(in, to)))
    return "has a result of another kind than its operand";
  for (int a = 0; a < in->type.naxes; a++) {
    uint16_t axis = in->axis[a];
    int64_t have = in->size[a] * (gathers && axis == n->axis ? members : 1), make = size_along(out, axis);
    if (have != make * (cuts && axis == to ? members : 1))
      return "has a result of other sizes than its ranks make";
  }
  const char *wrong = states_wrong(p, n, in->state, out->state);
  if (wrong) return wrong;
  if (sums && in->elem != ZK_F32 && in->elem != ZK_BF16) return "sums what is neither f32 nor bf16";
  if (op == ZG_OP_ALL_REDUCE && !in_blocks(in, out, in->axis[0])) return "has a result that lies otherwise";
  return packing_wrong(l, n, in, out);
}

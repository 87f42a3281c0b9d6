/* The sharding rule for rows of experts, and the operations that only they have.
 *
 * dispatch and combine relate tokens to rows, so a dim splits both sides or none, each along an axis of its
 * own: where it splits tokens (slots.c has added the slots' axis to it) each rank has the rows of its own;
 * where it also lists the experts, rows go to the ranks that have theirs, and come back. Other dims may split
 * what rows have beside, as they do for any operation. Along a dim that would split the tokens only so that
 * they take less memory (`else seq`) they are brought together: rows must be the same on all ranks that share
 * the experts' work.
 *
 * In a step of generation ranks that share the experts have the same tokens: each takes the rows of its own experts, and
 * all rows come to all, so that every rank adds up a token's choices in the order in which one rank would.
 *
 * Sums of rows, but in steps, stay partial through all that is linear until after combine, so no reduction is within rounds.
 * Example, ffn split over tensor: y = grouped_dot(h, down) is P, and so are y w and what combine adds up. */
#include "graph/ragged.h"
#include "runtime/plan/local/shard.h"

#include <string.h>

static uint32_t number_value(ZpShard *h, ZgType t, const ZpState *state) {
  t.elem = ZG_I32;
  t.of = 0;
  return zp_new_value(h, &t, state);
}

static void set_dims(const ZpShard *h, ZpNode *m, ZpDims owners, const char *why) {
  m->dims = zp_group_size(&h->p->layout.mesh, owners) > 1 ? owners : 0;
  m->cause = m->dims ? why : NULL;
}

/* Returns the slots of these ids, in this phase: found or made. */
static const ZpRoute *route_of(ZpShard *h, const ZgNode *n, uint32_t e, ZpDims owners) {
  for (uint32_t i = 0; i < h->nroutes; i++)
    if (h->routes[i].e == e && h->routes[i].phase == h->phase) return &h->routes[i];
  ZpState whole[ZP_MAX_DIMS];
  for (int d = 0; d < ZP_MAX_DIMS; d++) whole[d] = (ZpState){.kind = 'R'};
  ZpState own[ZP_MAX_DIMS];
  memcpy(own, h->out->values[e].state, sizeof own);
  ZpRoute r = {e, h->phase, 0, 0, 0};
  r.place = number_value(h, h->out->values[e].type, own);
  r.ends = number_value(h, zg_type(ZG_I32, n->ax, 1), whole);
  for (int d = 0; d < h->p->layout.mesh.ndims; d++)
    if (owners >> d & 1) whole[d] = (ZpState){.kind = 'S', .axis = n->ax[0]};
  r.now = number_value(h, zg_type(ZG_I32, n->ax, 1), whole);
  int64_t rows =
      h->p->layout.axis_size[n->ax[0]] * h->p->layout.axis_size[n->ax[1]]; /* of a round, of this rank */
  for (int d = 0; d < h->p->layout.mesh.ndims; d++)
    if (owners >> d & 1 || zp_dim_splits(&h->p->layout.mesh.dim[d], n->ax[1]))
      rows /= h->p->layout.mesh.dim[d].size;
  for (int round = 0; round < 2; round++) {
    ZpNode *m = zp_emit(h, round ? ZG_OP_ROUND : ZG_OP_SLOTS);
    m->call.nin = 1;
    m->call.nout = round ? 1 : 2;
    m->call.nax = round ? 2 : 3;
    memcpy(m->call.ax, n->ax, m->call.nax * sizeof *n->ax);
    m->in[0] = round ? r.ends : e;
    m->out[0] = round ? r.now : r.place;
    m->out[1] = round ? 0 : r.ends;
    if (!round) continue;
    m->call.opt[1] = rows;
    m->call.num[0] = (double)zp_group_size(&h->p->layout.mesh, owners);
    set_dims(h, m, owners,
             h->p->stream ? "each rank has the rows of its experts"
                          : "how many rows each rank has for each expert says which round has which");
  }
  ZB_PUSH(h->p->arena, h->routes, h->nroutes, r);
  return &h->routes[h->nroutes - 1];
}

/* Finds the axes along which dim d splits tokens, and rows; ZG_NONE: neither. */
static void split_by(const ZpShard *h, const ZgNode *n, int d, const ZgType *tokens, const ZgType *rows,
                     uint32_t *token, uint32_t *row) {
  const ZpDim *dim = &h->p->layout.mesh.dim[d];
  *token = *row = ZG_NONE;
  if (d == h->p->layout.mesh.pipe) return;
  const ZgType *ids = &h->s->values[n->in[1]].type;
  bool owners = zp_dim_splits(dim, n->ax[0]), own = owners || zp_dim_splits(dim, n->ax[1]);
  for (uint32_t i = 0; i < dim->naxes && *token == ZG_NONE; i++) {
    uint16_t a = dim->axes[i];
    if (a == n->ax[0] || a == n->ax[2]) continue;
    bool of_tokens = zg_type_has(ids, a), beside = zg_type_has(rows, a) && zg_type_has(tokens, a);
    if (own ? of_tokens : beside && !of_tokens) *token = a, *row = owners ? n->ax[0] : own ? n->ax[1] : a;
  }
  if (h->p->stream && owners && dim->size > 1) *token = ZG_NONE, *row = n->ax[0];
}

static ZpState along(uint32_t axis) {
  return axis == ZG_NONE ? (ZpState){.kind = 'R'} : (ZpState){.kind = 'S', .axis = (uint16_t)axis};
}

void zp_shard_experts(ZpShard *h, const ZgNode *n) {
  const ZpPlan *p = h->p;
  bool out = n->op == ZG_OP_DISPATCH;
  const ZgType *from = &h->s->values[n->in[0]].type, *to = &h->s->values[n->out].type;
  const ZgType *tokens = out ? from : to, *rows = out ? to : from, *ids = &h->s->values[n->in[1]].type;
  ZpState want[2][ZP_MAX_DIMS], made[ZP_MAX_DIMS];
  const ZpValue *x = &h->out->values[zp_base(h, n->in[0])];
  ZpDims split = 0, owners = 0;
  for (int d = 0; d < ZP_MAX_DIMS; d++) {
    uint32_t token = ZG_NONE, row = ZG_NONE;
    if (d < p->layout.mesh.ndims) split_by(h, n, d, tokens, rows, &token, &row);
    bool id = token != ZG_NONE && zg_type_has(ids, (uint16_t)token);
    want[0][d] = along(out ? token : row);
    want[1][d] = along(id ? token : ZG_NONE);
    made[d] = along(out ? row : token);
    if (row == n->ax[0]) owners |= 1u << d;
    if (token != ZG_NONE || (out && row != ZG_NONE)) split |= 1u << d;
    else if (!out && !p->stream && d < p->layout.mesh.ndims && x->state[d].kind == 'P' && !x->state[d].max)
      want[0][d] = made[d] = (ZpState){.kind = 'P'};
  }
  uint32_t a = zp_convert(h, n->in[0], want[0]), e = zp_convert(h, n->in[1], want[1]);
  ZpRoute r = *route_of(h, n, e, owners);
  uint32_t value = zp_new_value(h, to, made);
  ZpNode *m = zp_emit(h, n->op);
  m->call.nin = 3;
  m->call.nout = 1;
  m->call.nax = 3;
  memcpy(m->call.ax, n->ax, sizeof m->call.ax);
  m->call.opt[0] = n->opt[0];
  m->in[0] = a, m->in[1] = r.place, m->in[2] = r.now;
  m->out[0] = value;
  m->split = split;
  set_dims(h, m, owners,
           out            ? h->p->stream ? "each rank takes the rows of its experts"
                                         : "rows go to the ranks that have their experts"
           : h->p->stream ? "rows of all experts come to all ranks"
                          : "rows come back from them");
  zp_version_add(h, n->out, value);
}

/* By which ids the rows of a value were dispatched; in this phase they have been. */
static uint32_t now_of(const ZpShard *h, uint32_t v) {
  uint32_t e = zg_route(h->s, h->p->layout.experts, v);
  for (const ZpVersion *k = h->versions[e]; k; k = k->next)
    for (uint32_t i = 0; i < h->nroutes; i++)
      if (h->routes[i].e == k->value && h->routes[i].phase == h->phase) return h->routes[i].now;
  ZB_BUG("rows that were not dispatched");
}

void zp_make_grouped(ZpShard *h, const ZgNode *n, ZpNode *m) {
  const uint16_t *experts = h->p->layout.experts;
  ZgType in[2] = {h->s->values[n->in[0]].type, h->s->values[n->in[1]].type};
  int rows = zg_grouped(experts, n, in);
  bool outer = zg_sums_rows(experts, n);
  if (rows < 0 && !outer) return;
  uint16_t slot = zg_slot_axis(experts, &in[outer ? 0 : rows]);
  m->call.op = outer ? ZG_OP_GROUPED_OUTER : ZG_OP_GROUPED_DOT;
  if (rows == 1) {
    uint32_t x = m->in[0];
    m->in[0] = m->in[1];
    m->in[1] = x;
  }
  m->in[2] = now_of(h, n->in[outer ? 0 : rows]);
  m->call.nin = 3;
  m->call.ax[0] = experts[slot];
  m->call.ax[1] = slot;
  m->call.nax = 2;
  for (int i = 0; !outer && i < n->nax; i++) m->call.ax[m->call.nax++] = n->ax[i];
  m->flops *= h->p->layout.load[slot];
}

bool zp_splits_rows(const ZpShard *h, const ZgNode *n, int d, uint32_t *x) {
  const ZpDim *dim = &h->p->layout.mesh.dim[d];
  const uint16_t *experts = h->p->layout.experts;
  uint16_t slot = ZG_NO_AXIS;
  for (int i = 0; i < n->nin && slot == ZG_NO_AXIS; i++)
    slot = zg_slot_axis(experts, &h->s->values[n->in[i]].type);
  for (int i = 0; i < n->nout && slot == ZG_NO_AXIS; i++)
    slot = zg_slot_axis(experts, &h->s->values[n->out + (uint32_t)i].type);
  if (slot == ZG_NO_AXIS) return false;
  if (zp_dim_splits(dim, experts[slot]) || !zp_dim_splits(dim, slot)) return false;
  *x = slot;
  return true;
}

uint8_t zp_rows_stay_partial(const ZpShard *h, const ZgNode *n, int d) {
  if (n->op != ZG_OP_MUL && n->op != ZG_OP_CAST && n->op != ZG_OP_NEG) return 0;
  bool after = n->op == ZG_OP_CAST && h->s->nodes[h->s->values[n->in[0]].node].op == ZG_OP_COMBINE;
  if (!after && zg_slot_axis(h->p->layout.experts, &h->s->values[n->out].type) == ZG_NO_AXIS) return 0;
  uint8_t which = 0;
  for (int i = 0; i < n->nin; i++) {
    const ZpValue *v = &h->out->values[zp_base(h, n->in[i])];
    if (v->state[d].kind == 'P' && !v->state[d].max) which |= (uint8_t)(1 << i);
  }
  return which == 3 ? 0 : which;
}

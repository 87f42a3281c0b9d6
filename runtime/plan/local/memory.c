/* Where every local value lies, and the kernel call of every node.
 *
 * Needs sharded segments and buckets. Forward values that backward reads are saved; what is carried leaves straight into
 * its boundary; gradients accumulate where they are stored; the rest are temporaries, packed by lifetime into the
 * scratch of the running instruction (first fit over the intervals of one node list). */
#include "runtime/plan/local/batch_gemms.h"

#include <string.h>

#define ALIGN 64

typedef struct {
  ZpBuild *b;
  ZpPlan *p;
  const ZgSegment *gs;
  ZpSegment *s;
  uint32_t index;
  ZpGemmGroups groups;
} Place;

static uint64_t aligned(uint64_t n) { return zb_round_up(n, ALIGN); }

/* ---- tuples carried between instances ---- */
static uint64_t value_bytes(const ZpPlan *p, const ZgType *t) {
  ZpState state[ZP_MAX_DIMS];
  zp_layout(p, t, state);
  uint64_t n = zk_elem_bytes(zp_store_elem(p, t));
  for (int i = 0; i < t->naxes; i++) n *= (uint64_t)zp_local_size(p, t->axis[i], state);
  return n;
}

static bool differentiable(const ZgType *t) { return t->elem == ZG_REAL || t->elem == ZG_F32 || t->elem == ZG_BF16; }

/* Offset of position k in a carried tuple; of position n: its size. Cotangents: only of differentiable ones. */
static uint64_t tuple_at(const ZpPlan *p, const ZgType *types, uint32_t k, bool cotangents) {
  uint64_t at = 0;
  for (uint32_t i = 0; i < k; i++)
    if (!cotangents || differentiable(&types[i])) at += aligned(value_bytes(p, &types[i]));
  return at;
}

/* ---- gradients: where they accumulate ---- */
static ZpLoc bucket_loc(const Place *c, uint32_t param, ZpPlace place, uint64_t elem_bytes) {
  for (uint32_t i = 0; i < c->s->nbuckets; i++) {
    const ZpBucket *k = &c->p->buckets[c->s->buckets[i]];
    for (uint32_t j = 0; j < k->nslices; j++)
      if (k->slices[j].param == param) return (ZpLoc){(uint8_t)place, i, k->slices[j].at * elem_bytes};
  }
  ZB_BUG("parameter %s is in no bucket of segment %u", c->p->graph->params[param].path, c->index);
}

static void declared_order(const ZpPlan *p, ZpValue *v, uint32_t param) {
  const ZgParam *q = &p->graph->params[param];
  for (int i = 0; i < q->type.naxes; i++) {
    v->axis[i] = q->type.axis[q->order[i]];
    v->size[i] = zp_local_size(p, v->axis[i], v->state);
  }
}

static uint32_t count_uses(const ZpList *l, uint32_t value) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < l->n; i++)
    for (int k = 0; k < l->nodes[i].call.nin; k++) n += l->nodes[i].in[k] == value;
  return n;
}

/* param_grad sinks: the op that makes the gradient adds it in place where it can (products, sums, scattered rows);
 * otherwise the sum becomes an elementwise node, to be fused with what makes the gradient. */
static void lower_param_grads(Place *c) {
  ZpSegment *s = c->s;
  ZpList *l = &s->list[ZP_BWD];
  uint32_t *maker = ZB_NEWN(c->p->arena, uint32_t, s->nvalues + 1);
  uint32_t *sum = ZB_NEWN(c->p->arena, uint32_t, c->p->graph->nparams + 1); /* 1 + the latest sum's value */
  memset(maker, 0xff, (s->nvalues + 1) * sizeof *maker);
  for (uint32_t i = 0; i < l->n; i++)
    for (int k = 0; k < l->nodes[i].call.nout; k++) maker[l->nodes[i].out[k]] = i;
  uint32_t n = 0;
  for (uint32_t i = 0; i < l->n; i++) {
    ZpNode node = l->nodes[i];
    if (node.call.op != ZG_OP_PARAM_GRAD) {
      l->nodes[n++] = node;
      continue;
    }
    uint32_t v = node.in[0], m = maker[v];
    ZpLoc at = bucket_loc(c, node.sink, ZP_AT_GRAD, 4);
    uint16_t op = m == ZP_NONE ? 0 : l->nodes[m].call.op;
    if ((op == ZG_OP_DOT || op == ZG_OP_SUM || op == ZG_OP_LOOKUP_GRAD) && count_uses(l, v) == 1) {
      for (uint32_t j = 0; j < n; j++) /* nodes before i may have moved */
        if (l->nodes[j].out[0] == v && l->nodes[j].call.nout) l->nodes[j].call.accumulate = true;
      s->values[v].at = at;
      s->values[v].elem = ZK_F32;
      s->values[v].bytes = s->values[v].bytes / zk_elem_bytes(zp_store_elem(c->p, &s->values[v].type)) * 4;
      declared_order(c->p, &s->values[v], node.sink);
      continue;
    }
    ZpValue old = s->values[v];
    old.at = at;
    old.bytes = old.bytes / zk_elem_bytes(old.elem) * 4;
    old.elem = ZK_F32;
    old.type.elem = ZG_F32;
    declared_order(c->p, &old, node.sink);
    ZpNode add = {.call.op = ZG_OP_ADD, .call.nin = 2, .call.nout = 1, .loc = node.loc, .region = node.region};
    add.in[1] = v;
    if (!sum[node.sink]) { /* a second gradient of the same parameter adds to the first sum */
      ZB_PUSH(c->p->arena, s->values, s->nvalues, old);
      sum[node.sink] = s->nvalues;
    }
    add.in[0] = sum[node.sink] - 1;
    ZB_PUSH(c->p->arena, s->values, s->nvalues, old);
    sum[node.sink] = s->nvalues;
    add.out[0] = s->nvalues - 1;
    l->nodes[n++] = add;
  }
  l->n = n;
}

static bool adds_before(const ZpSegment *s, uint32_t before, ZpLoc at) {
  const ZpNode *nodes = s->list[ZP_BWD].nodes;
  for (uint32_t i = 0; i < before; i++)
    for (int k = 0; k < nodes[i].call.nout; k++) {
      ZpLoc l = s->values[nodes[i].out[k]].at;
      if (l.place == ZP_AT_GRAD && l.index == at.index && l.offset == at.offset) return true;
    }
  return false;
}

/* Products and sums make every element of a gradient, scattered rows may not. */
static void mark_setters(ZpSegment *s) {
  ZpList *l = &s->list[ZP_BWD];
  for (uint32_t i = 0; i < l->n; i++) {
    ZpNode *n = &l->nodes[i];
    if (!n->call.accumulate || (n->call.op != ZG_OP_DOT && n->call.op != ZG_OP_SUM)) continue;
    n->sets = true;
    for (int k = 0; k < n->call.nout; k++) n->sets &= !adds_before(s, i, s->values[n->out[k]].at);
  }
}

/* ---- sources and sinks ---- */
static uint64_t input_at(Place *c, uint32_t input, uint32_t value) {
  ZpPlan *p = c->p;
  const ZpValue *v = &c->s->values[value];
  uint64_t end = 0;
  for (uint32_t i = 0; i < p->ninputs; i++) {
    const ZpInputUse *u = &p->inputs[i];
    const ZpValue *w = &p->segments[u->value_segment].values[u->value];
    bool same = u->input == input;
    for (int d = 0; d < p->mesh.ndims; d++) same &= v->state[d].kind == w->state[d].kind && v->state[d].axis == w->state[d].axis;
    if (same) return u->at;
    end = u->at + aligned(w->bytes);
  }
  ZpInputUse u = {input, c->index, value, end};
  ZB_PUSH(p->arena, p->inputs, p->ninputs, u);
  return end;
}

static void place_source(Place *c, const ZpNode *n) {
  ZpValue *v = &c->s->values[n->out[0]];
  switch (n->call.op) {
  case ZG_OP_PARAM: v->at = bucket_loc(c, n->sink, ZP_AT_PARAM, zk_elem_bytes(c->p->compute)); break;
  case ZG_OP_INPUT: v->at = (ZpLoc){ZP_AT_INPUT, 0, input_at(c, (uint32_t)n->call.opt[0], n->out[0])}; break;
  case ZG_OP_CARRY: v->at = (ZpLoc){ZP_AT_CARRY_IN, n->sink, tuple_at(c->p, c->gs->carry_in, n->sink, false)}; break;
  case ZG_OP_DCARRY: v->at = (ZpLoc){ZP_AT_DCARRY_OUT, n->sink, tuple_at(c->p, c->gs->carry_out, n->sink, true)}; break;
  case ZG_OP_SEED: v->at = (ZpLoc){ZP_AT_SEED, n->sink, 0}; break;
  default: ZB_BUG("source `%s`", zg_op_info[n->call.op].text);
  }
}

static bool is_class(const ZpNode *n, ZgOpKind k) { return zg_op_info[n->call.op].kind == k; }

/* Drops sources that nothing reads and places the others. */
static void place_sources(Place *c, ZpList *l, const bool *read) {
  uint32_t m = 0;
  for (uint32_t i = 0; i < l->n; i++) {
    if (!is_class(&l->nodes[i], ZG_SOURCE)) {
      l->nodes[m++] = l->nodes[i];
      continue;
    }
    if (read[l->nodes[i].out[0]]) place_source(c, &l->nodes[i]);
  }
  l->n = m;
}

/* carry_out and dcarry_in: the value is made where it must end up, or copied there. */
static void place_carried(Place *c, ZpList *l, const bool *saved, const uint32_t *maker) {
  for (uint32_t i = 0; i < l->n; i++) {
    ZpNode *k = &l->nodes[i];
    if (k->call.op != ZG_OP_CARRY_OUT && k->call.op != ZG_OP_DCARRY_IN) continue;
    bool out = k->call.op == ZG_OP_CARRY_OUT;
    ZpLoc at = {out ? ZP_AT_CARRY_OUT : ZP_AT_DCARRY_IN, k->sink,
                tuple_at(c->p, out ? c->gs->carry_out : c->gs->carry_in, k->sink, !out)};
    ZpValue *v = &c->s->values[k->in[0]];
    if (v->at.place == ZP_AT_NOWHERE && !saved[k->in[0]] && maker[k->in[0]] != ZP_NONE) {
      v->at = at;
      k->call.nin = 0; /* done by the maker; the node goes below */
      continue;
    }
    ZpValue copy = *v;
    for (int a = 0; a < copy.type.naxes; a++) { /* boundaries are in axis order whatever the source */
      copy.axis[a] = copy.type.axis[a];
      copy.size[a] = zp_local_size(c->p, copy.axis[a], copy.state);
    }
    copy.elem = zp_store_elem(c->p, &copy.type);
    copy.at = at;
    k->call.op = ZG_OP_COPY;
    k->call.nin = k->call.nout = 1;
    k->out[0] = c->s->nvalues;
    ZB_PUSH(c->p->arena, c->s->values, c->s->nvalues, copy);
  }
}

static void drop_done(ZpList *l) {
  uint32_t m = 0;
  for (uint32_t i = 0; i < l->n; i++) {
    const ZpNode *k = &l->nodes[i];
    bool carries = k->call.op == ZG_OP_CARRY_OUT || k->call.op == ZG_OP_DCARRY_IN;
    if (!carries || k->call.nin) l->nodes[m++] = *k;
  }
  l->n = m;
}

/* ---- kernel calls ---- */
ZkView zp_view(const ZpPlan *p, const ZpValue *v) {
  ZkView w = {.elem = v->elem, .rank = v->type.naxes};
  int64_t stride = 1;
  for (int i = v->type.naxes; i-- > 0;) {
    w.axis[i] = v->axis[i];
    w.size[i] = v->size[i];
    w.whole[i] = p->axis_size[v->axis[i]];
    w.stride[i] = stride;
    stride *= v->size[i];
  }
  return w;
}

void zp_views(const ZpPlan *p, const ZpSegment *s, ZpNode *n) {
  for (int i = 0; i < n->call.nin; i++) n->call.in[i] = zp_view(p, &s->values[n->in[i]]);
  for (int i = 0; i < n->call.nout; i++) n->call.out[i] = zp_view(p, &s->values[n->out[i]]);
}

/* Whether the blocks along `axis` of a tensor lie one behind the other, in the order of the other one's. */
static bool in_blocks(const ZkView *whole, const ZkView *part, uint16_t axis) {
  if (memcmp(whole->axis, part->axis, whole->rank * sizeof *whole->axis) != 0) return false;
  for (int i = 0; whole->axis[i] != axis; i++)
    if (whole->size[i] != 1) return false;
  return true;
}

static bool packs(const ZpNode *n) {
  const ZkView *in = &n->call.in[0], *out = &n->call.out[0];
  switch (n->call.op) {
  case ZG_OP_REDUCE_SCATTER: return !in_blocks(in, out, n->axis);
  case ZG_OP_ALL_GATHER: return !in_blocks(out, in, n->axis);
  case ZG_OP_ALL_TO_ALL: return true;
  default: return false;
  }
}

/* Room to pack and unpack. */
static uint64_t collective_scratch(const Place *c, const ZpNode *n) {
  if (!n->packs) return 0;
  uint64_t in = aligned(c->s->values[n->in[0]].bytes), out = aligned(c->s->values[n->out[0]].bytes);
  return n->call.op == ZG_OP_ALL_TO_ALL ? in + out : n->call.op == ZG_OP_ALL_GATHER ? out : in;
}

static uint64_t kernel_scratch(const Place *c, const ZkCall *call) {
  return c->b->o->scratch ? aligned(c->b->o->scratch(call, c->b->o->threads)) : 0;
}

static void make_calls(Place *c, ZpList *l) {
  for (uint32_t i = 0; i < l->n; i++) {
    ZpNode *k = &l->nodes[i];
    zp_views(c->p, c->s, k);
    bool collective = k->dims != 0;
    k->packs = collective && packs(k);
    k->scratch_bytes = collective ? collective_scratch(c, k) : is_class(k, ZG_SINK) ? 0 : kernel_scratch(c, &k->call);
    uint32_t group = zp_group_of(&c->groups, k);
    if (!group) continue;
    ZkCall one = zp_batched_call(c->p, c->s, k, group);
    uint64_t together = kernel_scratch(c, &one);
    if (together > k->scratch_bytes) k->scratch_bytes = together;
  }
}

/* ---- temporaries ---- */
typedef struct { uint64_t from, to; uint32_t value; } Block; /* value ZP_NONE: a node's scratch */

static uint64_t first_fit(Block *live, uint32_t *nlive, uint64_t bytes, uint32_t value) {
  uint64_t at = 0;
  uint32_t i = 0;
  for (; i < *nlive && live[i].from < at + bytes; i++) /* live is sorted by place */
    if (live[i].to > at) at = live[i].to;
  for (i = 0; i < *nlive && live[i].from < at; i++) {}
  memmove(&live[i + 1], &live[i], (*nlive - i) * sizeof *live);
  live[i] = (Block){at, at + bytes, value};
  ++*nlive;
  return at;
}

static void release(Block *live, uint32_t *nlive, uint32_t value) {
  for (uint32_t i = 0; i < *nlive; i++)
    if (live[i].value == value) {
      memmove(&live[i], &live[i + 1], (*nlive - i - 1) * sizeof *live);
      --*nlive;
      return;
    }
}

/* Which operand's memory result j of node i can take, because nothing reads it any more: one of the same layout, where the
 * kernel works element by element. So the gradient of logits takes the place of the logits. -1: none. What an instance
 * saved is its own backward's: for everybody else a slot holds the same before and after. (A joined call takes none.) */
static int takes_place_of(const Place *c, const ZpNode *nodes, uint32_t i, int j, const uint32_t *last, bool backward) {
  const ZpNode *k = &nodes[i];
  const ZpValue *v = &c->s->values[k->out[j]];
  uint16_t op = k->call.op;
  if (op != ZG_OP_CHAIN && op != ZG_OP_ALL_REDUCE && op != ZG_OP_LOCAL_PAD && op != ZG_OP_XENT_GRAD) return -1;
  int n = op == ZG_OP_CHAIN ? k->call.nin : 1;
  for (int a = 0; a < n; a++) {
    const ZpValue *in = &c->s->values[k->in[a]];
    bool free = in->at.place == ZP_AT_TEMP || (backward && in->at.place == ZP_AT_SAVED), taken = false;
    for (int b = 0; b < j; b++) {
      const ZpLoc *at = &c->s->values[k->out[b]].at;
      taken |= at->place == in->at.place && at->offset == in->at.offset;
    }
    if (free && !taken && last[k->in[a]] == i && zp_same_layout(in, v)) return a;
  }
  return -1;
}

/* Nodes i..end-1 are one unit: all that they read is there until the last is done, and all that they make from the first
 * on. */
static uint32_t unit_end(const Place *c, const ZpNode *nodes, uint32_t i) {
  uint32_t group = zp_group_of(&c->groups, &nodes[i]);
  return i + (group ? group : 1);
}

typedef struct {
  Place *c;
  ZpNode *nodes;
  bool backward;
  uint32_t *last; /* of each value: the unit, by its first node, that uses it last */
  Block *live;
  uint32_t nlive;
  uint64_t peak;
} Pack;

static bool unplaced(const Pack *k, uint32_t v) { return k->c->s->values[v].at.place == ZP_AT_NOWHERE; }

/* Values that should be contiguous are, if none of them has a place. */
static void place_contiguous(Pack *k, const uint32_t *v, uint32_t n) {
  ZpValue *values = k->c->s->values;
  uint64_t all = 0;
  uint32_t q = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (!unplaced(k, v[i])) return;
    all += aligned(values[v[i]].bytes);
  }
  uint64_t at = first_fit(k->live, &k->nlive, all, v[0]);
  while (k->live[q].value != v[0]) q++;
  memmove(&k->live[q + n], &k->live[q + 1], (k->nlive - q - 1) * sizeof *k->live);
  k->nlive += n - 1;
  for (uint32_t i = 0; i < n; i++, q++) {
    uint64_t bytes = aligned(values[v[i]].bytes);
    values[v[i]].at = (ZpLoc){ZP_AT_TEMP, 0, at};
    k->live[q] = (Block){at, at + bytes, v[i]};
    at += bytes;
  }
}

static void place_groups(Pack *k, uint32_t i, uint32_t end) {
  const ZpNode *n = &k->nodes[i];
  uint32_t v[ZP_MAX_STACK];
  for (int j = 0; end - i > 1 && j < n->call.nout; j++) {
    for (uint32_t q = i; q < end; q++) v[q - i] = k->nodes[q].out[j];
    place_contiguous(k, v, end - i);
  }
  if (zp_wants_contiguous(&k->c->groups, n)) place_contiguous(k, n->out, n->call.nout);
}

static void place_result(Pack *k, uint32_t i, int j) {
  ZpNode *n = &k->nodes[i];
  ZpValue *values = k->c->s->values, *v = &values[n->out[j]];
  if (!unplaced(k, n->out[j])) return;
  int a = takes_place_of(k->c, k->nodes, i, j, k->last, k->backward);
  if (a < 0) {
    v->at = (ZpLoc){ZP_AT_TEMP, 0, first_fit(k->live, &k->nlive, aligned(v->bytes), n->out[j])};
    return;
  }
  v->at = values[n->in[a]].at;
  for (uint32_t q = 0; q < k->nlive; q++)
    if (k->live[q].value == n->in[a]) k->live[q].value = n->out[j];
}

/* The unit's nodes use the same scratch, one after the other. */
static void place_scratch(Pack *k, uint32_t i, uint32_t end) {
  uint64_t most = 0;
  for (uint32_t q = i; q < end; q++)
    if (k->nodes[q].scratch_bytes > most) most = k->nodes[q].scratch_bytes;
  uint64_t at = most ? first_fit(k->live, &k->nlive, most, ZP_NONE) : 0;
  for (uint32_t q = i; q < end; q++)
    if (k->nodes[q].scratch_bytes) k->nodes[q].scratch_at = at;
  for (uint32_t q = 0; q < k->nlive; q++)
    if (k->live[q].to > k->peak) k->peak = k->live[q].to;
  if (most) release(k->live, &k->nlive, ZP_NONE);
}

static uint64_t pack(Place *c, ZpNode *nodes, uint32_t n, bool backward) {
  ZpSegment *s = c->s;
  ZbArena *tmp = zb_arena_new();
  Pack k = {c, nodes, backward, ZB_NEWN(tmp, uint32_t, s->nvalues + 1), ZB_NEWN(tmp, Block, s->nvalues + 2), 0, 0};
  for (uint32_t i = 0; i < n; i = unit_end(c, nodes, i))
    for (uint32_t q = i; q < unit_end(c, nodes, i); q++) {
      for (int j = 0; j < nodes[q].call.nin; j++) k.last[nodes[q].in[j]] = i;
      for (int j = 0; j < nodes[q].call.nout; j++) k.last[nodes[q].out[j]] = i;
    }
  for (uint32_t i = 0, end; i < n; i = end) {
    end = unit_end(c, nodes, i);
    place_groups(&k, i, end);
    for (uint32_t q = i; q < end; q++)
      for (int j = 0; j < nodes[q].call.nout; j++) place_result(&k, q, j);
    place_scratch(&k, i, end);
    for (uint32_t q = i; q < end; q++) {
      for (int j = 0; j < nodes[q].call.nin; j++)
        if (k.last[nodes[q].in[j]] == i) release(k.live, &k.nlive, nodes[q].in[j]);
      for (int j = 0; j < nodes[q].call.nout; j++)
        if (k.last[nodes[q].out[j]] == i) release(k.live, &k.nlive, nodes[q].out[j]);
    }
  }
  uint64_t peak = k.peak;
  zb_arena_free(tmp);
  return peak;
}

/* ---- all of it ---- */
static void count_work(Place *c, const ZpList *l) {
  for (uint32_t i = 0; i < l->n; i++) {
    const ZpNode *k = &l->nodes[i];
    c->s->cost += k->flops;
    if (!k->again) c->s->model_flops += k->flops * (double)zp_group_size(&c->p->mesh, k->split);
    for (int j = 0; j < k->call.nout && k->flops == 0; j++) /* memory-bound work: about 20 FLOPs an element */
      c->s->cost += 20.0 * (double)c->s->values[k->out[j]].bytes / (double)zk_elem_bytes(c->s->values[k->out[j]].elem);
  }
}

static void mark_read(const ZpList *l, bool *read) {
  for (uint32_t i = 0; i < l->n; i++)
    for (int k = 0; k < l->nodes[i].call.nin; k++) read[l->nodes[i].in[k]] = true;
}

static void find_makers(const ZpList *l, uint32_t *maker) {
  for (uint32_t i = 0; i < l->n; i++)
    for (int k = 0; k < l->nodes[i].call.nout; k++)
      if (!is_class(&l->nodes[i], ZG_SOURCE)) maker[l->nodes[i].out[k]] = i;
}

/* What backward reads of the forward pass, in order of making. */
static void place_saved(ZpSegment *s, const bool *saved) {
  for (uint32_t i = 0; i < s->list[ZP_FWD].n; i++) {
    const ZpNode *n = &s->list[ZP_FWD].nodes[i];
    s->saves_carry |= n->call.op == ZG_OP_CARRY && saved[n->out[0]];
    for (int k = 0; k < n->call.nout && !is_class(n, ZG_SOURCE); k++) {
      ZpValue *v = &s->values[n->out[k]];
      if (!saved[n->out[k]] || v->at.place != ZP_AT_NOWHERE) continue;
      v->at = (ZpLoc){ZP_AT_SAVED, 0, s->saved_bytes};
      s->saved_bytes += aligned(v->bytes);
    }
  }
}

static void place_all_carried(Place *c, const bool *const later[ZP_PHASES]) {
  ZpSegment *s = c->s;
  uint32_t *maker = ZB_NEWN(c->p->arena, uint32_t, s->nvalues);
  memset(maker, 0xff, s->nvalues * sizeof *maker);
  for (int k = ZP_FWD; k < ZP_PHASES; k++) find_makers(&s->list[k], maker);
  for (int k = ZP_FWD; k < ZP_PHASES; k++) place_carried(c, &s->list[k], later[k], maker);
  for (int k = ZP_FWD; k < ZP_PHASES; k++) drop_done(&s->list[k]);
  const ZgSegment *g = c->gs;
  s->carry_bytes = tuple_at(c->p, g->carry_in, g->ncarry_in, false);
  s->dcarry_bytes = tuple_at(c->p, g->carry_in, g->ncarry_in, true);
  s->carry_out_bytes = tuple_at(c->p, g->carry_out, g->ncarry_out, false);
  s->dcarry_out_bytes = tuple_at(c->p, g->carry_out, g->ncarry_out, true);
}

/* One call does what several nodes did, as far as the device has such calls. */
static void fuse_list(Place *c, ZpPhase phase, const bool *needed_later) {
  ZpRewrite r;
  zp_rewrite_begin(&r, c->b, c->s, phase, needed_later);
  zp_fuse_pointwise(&r);
  if (c->b->o->joins) {
    zp_fuse_epilogue(&r);
    zp_fuse_prologue(&r);
    zp_fuse_xent_max(&r);
    if (phase == ZP_BWD) zp_fuse_bias_grad(&r);
    zp_group_gemms(&r, &c->groups);
  }
  zp_rewrite_end(&r);
}

static void batch_list(Place *c, ZpPhase phase) {
  ZpRewrite r;
  zp_rewrite_begin(&r, c->b, c->s, phase, NULL);
  zp_batch_gemms(&r, &c->groups);
  zp_rewrite_end(&r);
}

void zp_place(ZpBuild *b, uint32_t index) {
  ZpPlan *p = b->p;
  ZpSegment *s = &p->segments[index];
  Place c = {.b = b, .p = p, .gs = &p->graph->segments[index], .s = s, .index = index};
  lower_param_grads(&c);
  c.groups = zp_no_groups(p->arena, s);
  bool *none = ZB_NEWN(p->arena, bool, s->nvalues), *saved = ZB_NEWN(p->arena, bool, s->nvalues);
  bool *read = ZB_NEWN(p->arena, bool, s->nvalues);
  const bool *const later[ZP_PHASES] = {[ZP_COUNT] = none, [ZP_FWD] = saved, [ZP_BWD] = none};
  mark_read(&s->list[ZP_BWD], saved);
  for (int i = 0; i < ZP_PHASES; i++) {
    fuse_list(&c, (ZpPhase)i, later[i]);
    mark_read(&s->list[i], read);
  }
  place_saved(s, saved);
  for (int i = 0; i < ZP_PHASES; i++) place_sources(&c, &s->list[i], read);
  place_all_carried(&c, later);
  for (int i = 0; i < ZP_PHASES; i++) {
    ZpList *l = &s->list[i];
    make_calls(&c, l);
    l->temp = pack(&c, l->nodes, l->n, i == ZP_BWD);
    if (i != ZP_COUNT) count_work(&c, l); /* counting the denominator is nothing */
  }
  mark_setters(s);
  for (int i = 0; i < ZP_PHASES; i++) batch_list(&c, (ZpPhase)i);
}

/* The engine of play.h: memory of ranks, nodes, collectives, a step. */
#include "tests/unit/plan/random/player.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static void *zeros(Play *y, uint64_t bytes) { return zb_alloc(y->a, bytes + 64); }

/* ---- numbers that do not depend on the layout ---- */
/* Where element `at` of the `size` that a rank has of an axis is in all of it, by what cuts it: the parts
 * that ranks have, one by one, of twice as many chunks where dims cut it zigzag. */
static int64_t place_of(const ZpPlan *p, const ZpState *state, int64_t rank, uint16_t axis, int64_t size,
                        int64_t at) {
  int64_t pairs = 1, pair = 0, parts = 1, part = 0;
  for (int d = 0; d < p->layout.mesh.ndims; d++) {
    const ZpDim *m = &p->layout.mesh.dim[d];
    int64_t c = zp_coord(&p->layout.mesh, rank, d);
    if (state[d].kind != 'S' || state[d].axis != axis) continue;
    if (zp_dim_zigzags(m, axis)) pair = pair * m->size + c, pairs *= m->size;
    else part = part * m->size + c, parts *= m->size;
  }
  int64_t in = part * size + at, whole = parts * size, chunk = whole / 2;
  if (pairs == 1) return in;
  return in < chunk ? pair * chunk + in : (2 * pairs - 1 - pair) * chunk + in - chunk;
}

static void find_place(Walk *w, int i) {
  w->global[i] = w->state ? place_of(w->p, w->state, w->rank, w->axis[i], w->size[i], w->at[i]) : w->at[i];
}
bool walk_on(Walk *w) {
  for (int i = w->n; i-- > 0;) {
    bool in = ++w->at[i] < w->size[i];
    if (!in) w->at[i] = 0;
    find_place(w, i);
    if (in) return true;
  }
  return false;
}
Walk walk(const ZpPlan *p, const ZpState *state, int64_t rank, int n, const uint16_t *axis,
          const int64_t *size) {
  Walk w = {.p = p, .state = state, .rank = rank, .n = n, .axis = axis, .size = size};
  for (int i = 0; i < n; i++) find_place(&w, i);
  return w;
}

int64_t walk_element(const ZpPlan *p, const Walk *w) {
  int64_t e = 0;
  for (int i = 0; i < w->n; i++) {
    if (w->global[i] >= p->layout.axis_valid[w->axis[i]]) return -1;
    e = e * p->layout.axis_valid[w->axis[i]] + w->global[i];
  }
  return e;
}

static void fill_params(Play *y, Rank *r, uint32_t bucket, uint32_t iter) {
  const ZpBucket *k = &y->p->programs.buckets[bucket];
  for (uint32_t i = 0; i < k->nslices; i++) {
    const ZpSlice *s = &k->slices[i];
    Walk w = walk(y->p, s->state, r->id, s->naxes, s->axis, s->size);
    for (uint64_t e = 0; e < s->n; e++, walk_on(&w)) {
      int64_t n = walk_element(y->p, &w);
      r->param[bucket][iter][s->at + e] =
          n < 0 ? 0
                : (float)(0.3 * zb_random_normal(1000 + s->param + (y->data << 20), iter, (uint64_t)n) +
                          (s->naxes == 1 ? 0.5 : 0));
    }
  }
}

static void fill_inputs(Play *y, Rank *r, uint32_t mb) {
  const ZpPlan *p = y->p;
  for (uint32_t i = 0; i < p->programs.ninputs; i++) {
    const ZpInputUse *u = &p->programs.inputs[i];
    const ZpValue *v = &p->programs.segments[u->value_segment].values[u->value];
    Walk w = walk(p, v->state, r->id, v->type.naxes, v->axis, v->size);
    uint64_t n = v->bytes / 4;
    for (uint64_t e = 0; e < n; e++, walk_on(&w)) {
      uint64_t g = 0;
      for (int k = 0; k < w.n; k++) {
        int64_t at = w.global[k] +
                     (w.axis[k] == p->asked.batch ? (int64_t)mb * p->layout.axis_size[p->asked.batch] : 0);
        g = g * 4099 + (uint64_t)at;
      }
      double x = zb_random_unit(77 + y->data, u->input, g);
      if (v->elem == ZK_I32) {
        int64_t of = p->layout.axis_valid[v->type.of];
        ((int32_t *)(r->inputs + u->at))[e] =
            x < (y->data ? 0.5 : 0.1) ? -1 : (int32_t)(x * 7919 * (double)of) % (int32_t)of;
      } else {
        ((float *)(r->inputs + u->at))[e] = (float)(x + 0.5);
      }
    }
  }
}

/* ---- playing nodes ---- */
char *address(Play *y, Rank *r, uint32_t inst, const ZpValue *v) {
  const ZpSegment *s = &y->p->programs.segments[y->inst[inst].segment];
  if (v->at.space == ZP_AT_PARAM || v->at.space == ZP_AT_GRAD) {
    uint32_t b = s->buckets[v->at.index],
             iter = y->p->programs.buckets[b].segment == ZP_NONE ? 0 : y->inst[inst].iter;
    float *base = v->at.space == ZP_AT_PARAM ? r->param[b][iter] : r->grad[b][iter];
    return (char *)base + v->at.offset;
  }
  switch (v->at.space) {
  case ZP_AT_TEMP: return r->temp + v->at.offset;
  case ZP_AT_SAVED: return r->saved[inst] + v->at.offset;
  case ZP_AT_INPUT: return r->inputs + v->at.offset;
  case ZP_AT_CARRY_IN: return r->carry[inst] + v->at.offset;
  case ZP_AT_CARRY_OUT: return r->carry[inst + 1] + v->at.offset;
  case ZP_AT_DCARRY_IN: return r->dcarry[inst] + v->at.offset;
  case ZP_AT_DCARRY_OUT: return r->dcarry[inst + 1] + v->at.offset;
  case ZP_AT_SEED: return (char *)&y->seed[v->at.index];
  default: cr_assert_fail("place %u", v->at.space);
  }
  return NULL;
}

static int64_t offset_in(const ZkView *v, const uint16_t *axis, const int64_t *at, int n) {
  int64_t e = 0;
  for (int i = 0; i < v->rank; i++)
    for (int k = 0; k < n; k++)
      if (axis[k] == v->axis[i]) e += at[k] * v->stride[i];
  return e;
}

static int64_t size_along(const ZkView *v, uint16_t axis) {
  for (int i = 0; i < v->rank; i++)
    if (v->axis[i] == axis) return v->size[i];
  return 1;
}

/* How a group's parts, of `size` elements each, make an axis: which member has an element of it, as which of
 * its own; and which elements those of one rank are. */
typedef struct {
  int64_t member, own;
} Holder;
static void split_over(const ZpPlan *p, ZpDims dims, uint16_t axis, ZpState *state) {
  memset(state, 0, ZP_MAX_DIMS * sizeof *state);
  for (int d = 0; d < p->layout.mesh.ndims; d++)
    if (dims >> d & 1) state[d] = (ZpState){.kind = 'S', .axis = axis};
}
static const Holder *holders(ZbArena *a, const ZpPlan *p, ZpDims dims, uint16_t axis, int64_t size) {
  ZpState state[ZP_MAX_DIMS];
  int64_t members = zp_group_size(&p->layout.mesh, dims);
  Holder *h = ZB_NEWN(a, Holder, (uint64_t)(members * size));
  split_over(p, dims, axis, state);
  for (int64_t i = 0; i < members * size; i++) h[i].member = -1;
  for (int64_t i = 0; i < members * size; i++) {
    int64_t at =
        place_of(p, state, zp_group_member(&p->layout.mesh, 0, dims, i / size), axis, size, i % size);
    if (at < 0 || at >= members * size || h[at].member >= 0)
      cr_assert_fail("%lld is not one's", (long long)at);
    h[at] = (Holder){i / size, i % size};
  }
  return h;
}
const int64_t *held(ZbArena *a, const ZpPlan *p, ZpDims dims, int64_t rank, uint16_t axis, int64_t size) {
  ZpState state[ZP_MAX_DIMS];
  int64_t *at = ZB_NEWN(a, int64_t, (uint64_t)size);
  split_over(p, dims, axis, state);
  for (int64_t i = 0; i < size; i++) at[i] = place_of(p, state, rank, axis, size, i);
  return at;
}

/* What a shift puts where there is nothing. */
static const void *edge_of(const ZpNode *k) {
  static const int32_t none = -1;
  static const float zero = 0;
  return k->call.num[0] != 0 ? (const void *)&none : &zero;
}

/* A collective, and what one rank r makes of it. */
typedef struct {
  const ZpNode *k;
  int64_t lin;          /* what a rank has of the axis */
  const Holder *holder; /* of the parts that are operands */
  const int64_t *to[2]; /* of r's part of the result, along either axis: where it is in all of it */
  int64_t mine;         /* r's number in its group */
} Collective;

/* Whether an element of r's result, at `at` of it, is made of an element of another's operand, or of r's own
 * (`self`): `at` is where it is there. */
static bool comes_from(const Collective *c, int64_t member, bool self, int n, const uint16_t *axis,
                       int64_t *at) {
  const ZpNode *k = c->k;
  bool from = k->call.op != ZG_OP_LOCAL_PAD || k->axis != ZP_NO_AXIS || (self && c->mine == 0);
  for (int i = 0; i < n; i++) {
    bool first = axis[i] == k->axis, second = axis[i] == k->axis2;
    if (k->call.op == ZG_OP_REDUCE_SCATTER && first) at[i] = c->to[0][at[i]];
    if (k->call.op == ZG_OP_LOCAL_SLICE && first) at[i] = c->to[0][at[i]], from = self;
    if ((k->call.op == ZG_OP_ALL_GATHER || k->call.op == ZG_OP_ALL_TO_ALL) && first) {
      from = c->holder[at[i]].member == member;
      at[i] = c->holder[at[i]].own;
    }
    if (k->call.op == ZG_OP_ALL_TO_ALL && second) at[i] = c->to[1][at[i]];
    if (k->call.op == ZG_OP_SHIFT && first) {
      at[i] += c->mine * c->lin - k->call.opt[0];
      from = at[i] >= 0 && at[i] / c->lin == member, at[i] %= c->lin;
    }
    if (k->call.op == ZG_OP_LOCAL_PAD && first) {
      from = self && c->holder[at[i]].member == c->mine;
      at[i] = c->holder[at[i]].own;
    }
  }
  return from;
}

/* Adds to rank r's result what comes of rank q's operand. */
static void contribute(Play *y, const Collective *c, int r, int q, const char *operand, uint32_t *result,
                       uint64_t n) {
  const ZkCall *call = &c->k->call;
  const ZkView *in = &call->in[0], *out = &call->out[0];
  int64_t member = zp_group_index(&y->p->layout.mesh, y->rank[q].id, c->k->dims), at[ZG_MAX_AXES];
  bool reduces = call->op == ZG_OP_ALL_REDUCE || call->op == ZG_OP_REDUCE_SCATTER;
  Walk w = {.n = out->rank, .axis = out->axis, .size = out->size};
  for (uint64_t e = 0; e < n; e++, walk_on(&w)) {
    memcpy(at, w.at, sizeof at);
    if (!comes_from(c, member, q == r, w.n, w.axis, at)) continue;
    const char *from = operand + 4 * offset_in(in, w.axis, at, w.n);
    if (!reduces) {
      memcpy(&result[e], from, 4);
      continue;
    }
    float x, sum;
    memcpy(&x, from, 4);
    memcpy(&sum, &result[e], 4);
    sum = call->opt[0] ? fmaxf(sum, x) : sum + x;
    memcpy(&result[e], &sum, 4);
  }
}

/* One collective on all ranks: results first, then written, since some are in place. */
static void collective(Play *y, uint32_t inst, const ZpNode *k) {
  const ZpSegment *s = &y->p->programs.segments[y->inst[inst].segment];
  const ZpMesh *m = &y->p->layout.mesh;
  const ZkView *in = &k->call.in[0], *out = &k->call.out[0];
  uint64_t n = s->values[k->out[0]].bytes / 4;
  ZbArena *a = zb_arena_new();
  uint32_t *now = ZB_NEWN(a, uint32_t, n * (uint64_t)y->nranks);
  Collective c = {.k = k, .lin = size_along(in, k->axis)};
  c.holder = holders(a, y->p, k->dims, k->axis, c.lin);
  bool reduces = k->call.op == ZG_OP_ALL_REDUCE || k->call.op == ZG_OP_REDUCE_SCATTER;
  float none = reduces && k->call.opt[0] ? -INFINITY : 0;
  for (int r = 0; r < y->nranks; r++) {
    int64_t id = y->rank[r].id;
    c.mine = zp_group_index(m, id, k->dims);
    c.to[0] = held(a, y->p, k->dims, id, k->axis, size_along(out, k->axis));
    c.to[1] = held(a, y->p, k->dims, id, k->axis2, size_along(out, k->axis2));
    uint32_t *result = now + (uint64_t)r * n;
    for (uint64_t e = 0; e < n; e++) memcpy(&result[e], k->call.op == ZG_OP_SHIFT ? edge_of(k) : &none, 4);
    for (int q = 0; q < y->nranks; q++)
      if (zp_group_color(m, y->rank[q].id, k->dims) == zp_group_color(m, id, k->dims))
        contribute(y, &c, r, q, address(y, &y->rank[q], inst, &s->values[k->in[0]]), result, n);
  }
  for (int r = 0; r < y->nranks; r++)
    memcpy(address(y, &y->rank[r], inst, &s->values[k->out[0]]), now + (uint64_t)r * n, n * 4);
  zb_arena_free(a);
}

static bool knows_places(int op) {
  return op == ZG_OP_POSITION || op == ZG_OP_RANDOM || op == ZG_OP_ROPE || zg_is_attend(op);
}

/* Of what the rank has of some axis of the node, `size` elements, those before the first that does not
 * follow the one before it in all of the axis, which is at `to` there; false: all do. */
typedef struct {
  uint16_t axis;
  int64_t size, n, to;
} Gap;
static bool has_gap(const ZpPlan *p, const ZpSegment *s, const ZpNode *k, int64_t rank, Gap *gap) {
  for (int i = 0; knows_places(k->call.op) && i < k->call.nin + k->call.nout; i++) {
    const ZpValue *v = &s->values[i < k->call.nin ? k->in[i] : k->out[i - k->call.nin]];
    for (int a = 0; a < v->type.naxes; a++)
      for (int64_t n = 1, at; n < v->size[a]; n++) {
        at = place_of(p, v->state, rank, v->axis[a], v->size[a], n);
        *gap = (Gap){v->axis[a], v->size[a], n, at};
        if (at != place_of(p, v->state, rank, v->axis[a], v->size[a], n - 1) + 1) return true;
      }
  }
  return false;
}

static void take_piece(ZkView *w, const Gap *gap, bool behind) {
  for (int a = 0; a < w->rank; a++) {
    if (w->axis[a] != gap->axis || w->size[a] != gap->size) continue;
    w->size[a] = behind ? gap->size - gap->n : gap->n;
    if (!behind) continue;
    w->data = zk_at(w, gap->n * w->stride[a]);
    w->start[a] = gap->to;
  }
}

static void play_pieces(Play *y, const ZpSegment *s, const ZpNode *k, const ZkCall *c, const Gap *gap) {
  bool adds = c->op == ZG_OP_ATTEND_GRAD || c->op == ZG_OP_ATTEND_BIAS_GRAD;
  for (int i = 0; adds && i < c->nout; i++) memset(c->out[i].data, 0, s->values[k->out[i]].bytes);
  for (int behind = 0; behind < 2; behind++) {
    ZkCall one = *c;
    one.accumulate |= adds;
    for (int i = 0; i < one.nin + one.nout; i++)
      take_piece(i < one.nin ? &one.in[i] : &one.out[i - one.nin], gap, behind);
    zk_cpu_kernel(one.op)(&y->env, &one);
  }
}

const ZpSegment *segment_at(const At *n) { return &n->y->p->programs.segments[n->y->inst[n->inst].segment]; }

ZkCall call_of(const At *n, Rank *r) {
  const ZpPlan *p = n->y->p;
  const ZpNode *k = n->k;
  const ZpSegment *s = segment_at(n);
  ZkCall c = k->call;
  for (int i = 0; i < c.nin + c.nout; i++) {
    ZkView *w = i < c.nin ? &c.in[i] : &c.out[i - c.nin];
    const ZpValue *v = &s->values[i < c.nin ? k->in[i] : k->out[i - c.nin]];
    w->data = address(n->y, r, n->inst, v);
    for (int a = 0; a < w->rank; a++) {
      w->start[a] = place_of(p, v->state, r->id, w->axis[a], w->size[a], 0);
      if (c.op != ZG_OP_RANDOM) continue;
      bool batch = w->axis[a] == p->asked.batch; /* drawn by sample of the step, without padding */
      w->whole[a] = batch ? p->asked.global_batch : p->layout.axis_valid[w->axis[a]];
      if (batch) w->start[a] += (int64_t)n->mb * p->layout.axis_size[p->asked.batch];
    }
  }
  if (c.op == ZG_OP_RANDOM)
    c.opt[0] = (int64_t)zb_random_u64((uint64_t)c.opt[0], n->y->inst[n->inst].iter, 0);
  c.scratch = r->temp + k->scratch_at;
  return c;
}

void run_call(const At *n, const Rank *r, ZkCall *c) {
  Gap gap;
  if (has_gap(n->y->p, segment_at(n), n->k, r->id, &gap)) {
    play_pieces(n->y, segment_at(n), n->k, c, &gap);
    return;
  }
  ZkUnfused u;
  zk_unfuse(c, &u);
  for (int i = 0; i < u.n; i++) zk_cpu_kernel(u.call[i].op)(&n->y->env, &u.call[i]);
}

/* Outputs are kept; all else that is taken out is added up, of each part once. */
static void take_out(const At *n, int rank, const ZkCall *c) {
  Play *y = n->y;
  const ZpLayout *l = &y->p->layout;
  uint32_t sink = n->k->sink;
  if (c->op == ZG_OP_OUTPUT) {
    uint64_t bytes = segment_at(n)->values[n->k->in[0]].bytes;
    Output o = {sink,        n->mb, y->inst[n->inst].segment,
                n->k->in[0], rank,  memcpy(zeros(y, bytes), c->in[0].data, bytes)};
    ZB_PUSH(y->a, y->out, y->nout, o);
    return;
  }
  bool num = c->op == ZG_OP_LOSS_NUM, den = c->op == ZG_OP_LOSS_DEN;
  double *sum = num ? &y->num[sink] : den ? &y->den[sink] : &y->aux;
  ZpDims partial = num ? l->num_partial[sink] : den ? l->den_partial[sink] : 0;
  if (zp_group_index(&l->mesh, y->rank[rank].id, ~partial & ((1u << l->mesh.ndims) - 1)) == 0)
    *sum += *(const float *)c->in[0].data;
}

static void play_node(const At *n) {
  Play *y = n->y;
  if (zg_op_info[n->k->call.op].kind == ZG_SOURCE) return;
  if (zp_is_ring(n->k)) {
    play_ring(n);
    return;
  }
  if (n->k->dims) {
    collective(y, n->inst, n->k);
    return;
  }
  for (int r = 0; r < y->nranks; r++) {
    ZkCall c = call_of(n, &y->rank[r]);
    if (zg_op_info[c.op].kind == ZG_SINK) take_out(n, r, &c);
    else run_call(n, &y->rank[r], &c);
  }
}

/* What a collective packs with is written when it begins and when it ends. */
static void spoil_scratch(Play *y, const ZpNode *k) {
  for (int r = 0; r < y->nranks; r++)
    if (k->scratch_bytes) memset(y->rank[r].temp + k->scratch_at, 0xff, k->scratch_bytes);
}

/* Those that are to be complete before node i and did not begin with the one before it. */
static void end_beside(Play *y, uint32_t inst, const ZpNode *nodes, uint32_t i) {
  for (uint32_t k = 0; k + 1 < i; k++) {
    if (!zp_is_async(&nodes[k]) || nodes[k].until != i) continue;
    spoil_scratch(y, &nodes[k]);
    if (y->late) collective(y, inst, &nodes[k]);
  }
}

/* Plays the nodes of a region as often as there are rounds. Returns the first one behind. */
static uint32_t play_region(At n, const ZpNode *nodes, uint32_t first, uint32_t end) {
  n.k = &nodes[first];
  int64_t rounds = play_rounds(&n);
  uint32_t last = first;
  while (last < end && nodes[last].rounds == nodes[first].rounds) last++;
  for (int64_t round = 0; round < rounds; round++)
    for (n.k = &nodes[first]; n.k < &nodes[last]; n.k++) {
      bool rows = n.k->call.op == ZG_OP_ROUND || n.k->call.op == ZG_OP_DISPATCH ||
                  n.k->call.op == ZG_OP_COMBINE || n.k->call.op == ZG_OP_GROUPED_OUTER;
      if (rows) play_in_round(&n, &nodes[first], round);
      else play_node(&n);
    }
  return last;
}

static void play_phase(Play *y, uint32_t inst, uint32_t mb, ZpPhase phase) {
  const ZpList *l = &y->p->programs.segments[y->inst[inst].segment].list[phase];
  for (uint32_t i = 0; i <= l->n; i++) {
    At n = {y, inst, mb, &l->nodes[i]};
    while (i < l->n && l->nodes[i].rounds) i = play_region(n, l->nodes, i, l->n);
    end_beside(y, inst, l->nodes, i);
    if (i == l->n) break;
    n.k = &l->nodes[i];
    if (zp_is_async(n.k) && n.k->until > i + 1) {
      spoil_scratch(y, n.k);
      y->beside++;
      if (y->late) continue;
    }
    play_node(&n);
  }
}

/* ---- a step ---- */
static void new_rank(Play *y, Rank *r) {
  const ZpPlan *p = y->p;
  uint64_t inputs = 0, temp = 0;
  r->param = ZB_NEWN(y->a, float **, p->programs.nbuckets);
  r->grad = ZB_NEWN(y->a, float **, p->programs.nbuckets);
  for (uint32_t b = 0; b < p->programs.nbuckets; b++) {
    uint32_t trip = p->programs.buckets[b].segment == ZP_NONE
                        ? 1
                        : p->graph->segments[p->programs.buckets[b].segment].trip;
    r->param[b] = ZB_NEWN(y->a, float *, trip);
    r->grad[b] = ZB_NEWN(y->a, float *, trip);
    for (uint32_t i = 0; i < trip; i++) {
      r->param[b][i] = zeros(y, p->programs.buckets[b].elems * 4);
      r->grad[b][i] = zeros(y, p->programs.buckets[b].elems * 4);
      fill_params(y, r, b, i);
    }
  }
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    uint64_t bytes = zp_input_bytes(p, &p->programs.stages[s]);
    if (bytes > inputs) inputs = bytes;
    if (p->programs.stages[s].scratch_bytes > temp) temp = p->programs.stages[s].scratch_bytes;
  }
  r->inputs = zeros(y, inputs);
  r->temp = zeros(y, temp);
  r->saved = ZB_NEWN(y->a, char *, y->ninsts);
  r->carry = ZB_NEWN(y->a, char *, y->ninsts + 1);
  r->dcarry = ZB_NEWN(y->a, char *, y->ninsts + 1);
  for (uint32_t i = 0; i <= y->ninsts; i++) {
    const ZpSegment *s = i < y->ninsts ? &p->programs.segments[y->inst[i].segment] : NULL;
    if (s) r->saved[i] = zeros(y, s->saved_bytes);
    r->carry[i] = zeros(y, s ? s->carry_bytes : 0);
    r->dcarry[i] = zeros(y, s ? s->dcarry_bytes : 0);
  }
}

void play(Play *y, const ZpPlan *p, bool late) { play_with(y, p, late, 0); }

void play_with(Play *y, const ZpPlan *p, bool late, uint64_t data) {
  *y = (Play){.p = p,
              .late = late,
              .data = data,
              .a = zb_arena_new(),
              .env = {.pool = zk_pool_new(1), .seed = 5, .step = 3}};
  for (uint32_t s = 0; s < p->programs.nstages; s++)
    for (uint32_t i = 0; i < p->programs.stages[s].ninsts; i++)
      ZB_PUSH(y->a, y->inst, y->ninsts, p->programs.stages[s].insts[i]);
  y->rank = ZB_NEWN(y->a, Rank, p->layout.mesh.nranks);
  for (int64_t id = 0; id < p->layout.mesh.nranks; id++)
    if (p->layout.mesh.pipe < 0 || zp_coord(&p->layout.mesh, id, p->layout.mesh.pipe) == 0)
      y->rank[y->nranks++].id = id;
  for (int r = 0; r < y->nranks; r++) new_rank(y, &y->rank[r]);
  for (int pass = 0; pass < 2; pass++) {
    for (uint32_t mb = 0; mb < p->asked.nmicro; mb++) {
      for (int r = 0; r < y->nranks; r++) fill_inputs(y, &y->rank[r], mb);
      for (uint32_t i = 0; i < y->ninsts; i++) play_phase(y, i, mb, pass ? ZP_FWD : ZP_COUNT);
      for (uint32_t i = y->ninsts; pass && !p->asked.forward_only && i-- > 0;) play_phase(y, i, mb, ZP_BWD);
    }
    for (uint32_t k = 0; k < zg_losses(p->graph); k++)
      y->seed[zp_seed_index(false, k)] = (float)(1 / y->den[k]);
    y->seed[1] = (float)(1.0 / (double)p->asked.nmicro);
  }
}

void play_end(Play *y) {
  zk_pool_free(y->env.pool);
  zb_arena_free(y->a);
}

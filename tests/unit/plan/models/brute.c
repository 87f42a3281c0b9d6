/* What must hold of any plan, derived again from its node lists and nothing else: shapes, states, places, the
 * arena. Shares no code with the planner. */
#include "tests/unit/plan/models/plan.h"

#include <string.h>

typedef struct { /* bytes of one space that hold a value */
  uint8_t space;
  uint32_t index;
  uint64_t from, to;
  uint32_t value;
} Cell;

typedef struct {
  const ZpPlan *p;
  ZbArena *a;
  const ZpSegment *s;
  uint32_t segment, node;
  ZpPhase phase;
  Cell *cells;
  uint32_t ncells;
  const char *wrong;
} Brute;

#define FAIL(b, ...) ((b)->wrong = (b)->wrong ? (b)->wrong : where(b, zb_printf((b)->a, __VA_ARGS__)))
#define NEED(b, cond, ...) ((cond) ? (void)0 : (void)FAIL(b, __VA_ARGS__))

static const char *where(Brute *b, const char *text) {
  uint32_t n = 0;
  const ZpNode *k = b->s ? phase_nodes(b->s, b->phase, &n) : NULL;
  if (b->node >= n) return text;
  return zb_printf(b->a, "segment %u %s node %u (%s): %s", b->segment, zp_phase_text[b->phase], b->node,
                   zg_op_info[k[b->node].call.op].text, text);
}

static const ZpValue *value(const Brute *b, uint32_t v) { return &b->s->values[v]; }
static bool meet(uint64_t a, uint64_t b, uint64_t c, uint64_t d) { return a < d && c < b; }

/* ---- shapes ---- */
static void check_value(Brute *b, uint32_t v) {
  const ZpValue *x = value(b, v);
  uint64_t bytes = zk_plain_bytes(x->elem);
  for (int i = 0; i < x->type.naxes; i++) {
    int64_t parts = 1;
    for (int d = 0; d < b->p->layout.mesh.ndims; d++)
      if (x->state[d].kind == 'S' && x->state[d].axis == x->axis[i]) parts *= b->p->layout.mesh.dim[d].size;
    NEED(b, x->size[i] * parts == b->p->layout.axis_size[x->axis[i]], "value %u: local size of %s", v,
         b->p->graph->axes[x->axis[i]].name);
    NEED(b, zg_type_has(&x->type, x->axis[i]), "value %u has an axis that its type lacks", v);
    bytes *= (uint64_t)x->size[i];
  }
  NEED(b, bytes == x->bytes, "value %u has %llu bytes, not %llu", v, (unsigned long long)bytes,
       (unsigned long long)x->bytes);
  for (int d = 0; d < b->p->layout.mesh.ndims; d++) {
    const ZpState *s = &x->state[d];
    NEED(b, s->kind == 'R' || s->kind == 'P' || (s->kind == 'S' && zg_type_has(&x->type, s->axis)),
         "value %u: state", v);
    NEED(b, d != b->p->layout.mesh.pipe || s->kind == 'R', "value %u is split over stages", v);
  }
}

static bool moves_axes(int op) {
  return zg_is_conv(op) || op == ZG_OP_RENAME || op == ZG_OP_SLICE || op == ZG_OP_PAD || op == ZG_OP_CONCAT ||
         op == ZG_OP_MERGE || op == ZG_OP_PART;
}

/* merge and part: the whole counts as its slowest part, with which it is split. */
static bool regroups(int op) { return op == ZG_OP_MERGE || op == ZG_OP_PART; }
static uint32_t counts_as(const ZpNode *k, uint32_t axis) {
  bool merge = k->call.op == ZG_OP_MERGE;
  if (!regroups(k->call.op) || axis != k->call.ax[merge ? 0 : k->call.nax - 1]) return axis;
  return k->call.ax[merge];
}
static bool has_axis(const ZpNode *k, const ZpValue *v, uint32_t axis) {
  for (int i = 0; i < v->type.naxes; i++)
    if (counts_as(k, v->type.axis[i]) == axis) return true;
  return false;
}

/* Operand or result i (after the operands) of attention counts by keys: there its axis of positions is whole,
 * though that of queries is the same and may be split. */
static bool of_keys(const ZpNode *k, int i) {
  int op = k->call.op, first = op == ZG_OP_ATTEND ? 0 : 3, out = i - k->call.nin;
  if (!zg_is_attend(op)) return false;
  if (k->dims) return out < 0 && i > first + 2; /* around a ring: documents alone */
  return out < 0 ? i > first : op == ZG_OP_ATTEND_BIAS_GRAD || (op == ZG_OP_ATTEND_GRAD && out > 0);
}

/* Without data moving between axes, the same axis has the same local size in all operands and results. */
static void check_shapes(Brute *b, const ZpNode *k) {
  int64_t size[ZG_MAX_GRAPH_AXES];
  memset(size, 0, sizeof size);
  for (int i = 0; i < k->call.nin + k->call.nout; i++) {
    const ZpValue *x = value(b, i < k->call.nin ? k->in[i] : k->out[i - k->call.nin]);
    for (int j = 0; j < x->type.naxes; j++) {
      uint16_t a = x->axis[j];
      if (moves_axes(k->call.op)) {
        for (int q = 0; q < k->call.nax; q++)
          NEED(b,
               k->call.ax[q] != a ||
                   (regroups(k->call.op) && counts_as(k, a) == k->call.ax[k->call.op == ZG_OP_MERGE]) ||
                   x->size[j] == b->p->layout.axis_size[a],
               "%s is not whole", b->p->graph->axes[a].name);
      }
      if (of_keys(k, i) && a == k->call.ax[k->call.nax > 2 ? 2 : 0]) {
        NEED(b, x->size[j] == b->p->layout.axis_size[a], "keys are not whole");
        continue;
      }
      NEED(b, !size[a] || size[a] == x->size[j], "%s has two local sizes", b->p->graph->axes[a].name);
      size[a] = x->size[j];
    }
  }
  static const struct {
    int op, ax;
  } pinned[] = {{ZG_OP_CUMSUM, 0},
                {ZG_OP_SOFTMAX, 0},
                {ZG_OP_SOFTMAX_GRAD, 0},
                {ZG_OP_NORMALIZE, 0},
                {ZG_OP_NORMALIZE_GRAD, 0},
                {ZG_OP_NORMALIZE_GRAD_SUMS, 0},
                {ZG_OP_ROPE, 1},
                {ZG_OP_SHIFT, 0},
                {ZG_OP_ROTATE, 0},
                {ZG_OP_ATTEND, 1},
                {ZG_OP_ATTEND_GRAD, 1},
                {ZG_OP_TOPK, 0},
                {ZG_OP_TOPK, 1},
                {ZG_OP_SCAN, 0},
                {ZG_OP_LINEAR_ATTEND, 0},
                {ZG_OP_LINEAR_ATTEND, 1},
                {ZG_OP_LINEAR_ATTEND_GRAD, 0},
                {ZG_OP_LINEAR_ATTEND_GRAD, 1}};
  for (size_t i = 0; i < sizeof pinned / sizeof *pinned; i++) {
    uint16_t a = k->call.ax[pinned[i].ax];
    if (k->dims && k->call.op == ZG_OP_SHIFT) continue; /* its neighbours have the rest */
    NEED(b, k->call.op != pinned[i].op || size[a] == b->p->layout.axis_size[a], "%s is not whole",
         b->p->graph->axes[a].name);
  }
}

/* ---- states ---- */
static bool same_state(ZpState a, ZpState b) {
  return a.kind == b.kind && (a.kind != 'S' || a.axis == b.axis);
}

/* Blocks lie in mesh order, so only the fastest cuts of an axis can be made or undone. */
static void check_fastest(Brute *b, const ZpNode *k, const ZpState *s, uint16_t axis) {
  for (int d = 0; d < b->p->layout.mesh.ndims; d++)
    NEED(b, k->dims >> d & 1 || s[d].kind != 'S' || s[d].axis != axis || d < __builtin_ctz(k->dims),
         "cuts %s over dim %d under a faster cut", b->p->graph->axes[axis].name, d);
}

static void check_collective(Brute *b, const ZpNode *k) {
  static const struct {
    int op;
    char from, to;
  } kinds[] = {{ZG_OP_ALL_REDUCE, 'P', 'R'}, {ZG_OP_REDUCE_SCATTER, 'P', 'S'}, {ZG_OP_ALL_GATHER, 'S', 'R'},
               {ZG_OP_ALL_TO_ALL, 'S', 'S'}, {ZG_OP_LOCAL_SLICE, 'R', 'S'},    {ZG_OP_LOCAL_PAD, 'S', 'P'},
               {ZG_OP_LOCAL_PAD, 'R', 'P'}};
  const ZpState *in = value(b, k->in[0])->state, *out = value(b, k->out[0])->state;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (kinds[i].op != k->call.op) continue;
    if (k->call.op == ZG_OP_LOCAL_PAD && (kinds[i].from == 'R') != (k->axis == ZP_NO_AXIS)) continue;
    for (int d = 0; d < b->p->layout.mesh.ndims; d++) {
      if (!(k->dims >> d & 1)) {
        NEED(b, same_state(in[d], out[d]), "changes the state over another dim");
        continue;
      }
      NEED(b, in[d].kind == kinds[i].from && out[d].kind == kinds[i].to, "from %c to %c", in[d].kind,
           out[d].kind);
      NEED(b, in[d].kind != 'S' || in[d].axis == k->axis, "from another axis");
      NEED(b, out[d].kind != 'S' || out[d].axis == (in[d].kind == 'S' ? k->axis2 : k->axis),
           "to another axis");
      NEED(b, in[d].kind != 'P' || (in[d].max != 0) == (k->call.opt[0] != 0), "maximum or sum");
    }
    if (kinds[i].from == 'S') check_fastest(b, k, in, k->axis);
    if (kinds[i].to == 'S') check_fastest(b, k, out, kinds[i].from == 'S' ? k->axis2 : k->axis);
    return;
  }
  FAIL(b, "no collective has dims");
}

/* Over one dim, all that is split is split along one axis; a result is partial exactly if that axis is
 * summed, or if the op is linear and its operands are. */
static void check_rule(Brute *b, const ZpNode *k) {
  if (k->call.op == ZG_OP_OUTPUT) { /* of each element, whole */
    for (int d = 0; d < b->p->layout.mesh.ndims; d++)
      NEED(b, value(b, k->in[0])->state[d].kind != 'P', "a part of an output over dim %d", d);
    return;
  }
  if (zg_op_info[k->call.op].kind == ZG_SINK) {
    ZpDims partial = k->call.op == ZG_OP_LOSS_NUM   ? b->p->layout.num_partial[k->sink]
                     : k->call.op == ZG_OP_LOSS_DEN ? b->p->layout.den_partial[k->sink]
                                                    : 0;
    for (int d = 0; d < b->p->layout.mesh.ndims; d++)
      NEED(b, value(b, k->in[0])->state[d].kind == (partial >> d & 1 ? 'P' : 'R'),
           "a scalar's state over dim %d", d);
    return;
  }
  for (int d = 0; d < b->p->layout.mesh.ndims; d++) {
    uint32_t x = ZG_NONE;
    bool partial = false;
    for (int i = 0; i < k->call.nin + k->call.nout; i++) {
      ZpState s = value(b, i < k->call.nin ? k->in[i] : k->out[i - k->call.nin])->state[d];
      uint32_t axis = counts_as(k, s.axis);
      if (s.kind == 'S') NEED(b, x == ZG_NONE || x == axis, "two axes split over dim %d", d), x = axis;
      partial |= i < k->call.nin && s.kind == 'P' && value(b, k->in[i])->at.space != ZP_AT_GRAD;
    }
    if (k->call.pointwise) continue; /* what lies inside is gone */
    bool linear = k->call.op == ZG_OP_SUM || k->call.op == ZG_OP_LOOKUP_GRAD || k->call.op == ZG_OP_COPY;
    NEED(b, !partial || linear, "reads a partial value");
    for (int i = 0; i < k->call.nin; i++) {
      const ZpValue *v = value(b, k->in[i]);
      if (x != ZG_NONE && has_axis(k, v, x) && !(of_keys(k, i) && x == k->call.ax[0]))
        NEED(b, v->state[d].kind == 'S', "operand %d is whole", i);
    }
    for (int i = 0; i < k->call.nout; i++) {
      const ZpValue *v = value(b, k->out[i]);
      bool has = x != ZG_NONE && has_axis(k, v, x) && !(of_keys(k, k->call.nin + i) && x == k->call.ax[0]),
           lacks = x != ZG_NONE && !has;
      char want = has ? 'S' : lacks || partial ? 'P' : 'R';
      NEED(b, v->state[d].kind == want || zg_op_info[k->call.op].kind == ZG_SOURCE,
           "result %d is %c over dim %d, not %c", i, v->state[d].kind, d, want);
    }
  }
}

/* Around a ring go the keys of all ranks that share the sequence, and of no others; its chunks and sums have
 * room. */
static void check_ring(Brute *b, const ZpNode *k) {
  bool back = k->call.op == ZG_OP_ATTEND_GRAD;
  const ZpValue *q = value(b, k->in[back ? 3 : 0]);
  uint64_t room = 0;
  for (int d = 0; d < b->p->layout.mesh.ndims; d++) {
    bool split = q->state[d].kind == 'S' && q->state[d].axis == k->call.ax[0];
    NEED(b, split == (k->dims >> d & 1) || b->p->layout.mesh.dim[d].size == 1, "goes round dim %d", d);
  }
  for (int i = 1; i < 3; i++) {
    const ZpValue *x = value(b, k->in[(back ? 3 : 0) + i]);
    room += 2 * x->bytes + (back ? 2 * 4 * x->bytes / zk_plain_bytes((ZkElem)x->elem) : 0);
  }
  NEED(b, k->scratch_bytes >= room, "has %llu bytes to go round with", (unsigned long long)k->scratch_bytes);
  NEED(b, k->nsteps >= 1 && k->steps[0] == 0, "begins with others' keys");
}

/* A shift over ranks goes over all that share its axis, and no others; what they send each other has room. */
static void check_halo(Brute *b, const ZpNode *k) {
  const ZpValue *x = value(b, k->in[0]), *y = value(b, k->out[0]);
  int64_t by = k->call.opt[0] < 0 ? -k->call.opt[0] : k->call.opt[0], own = 0;
  for (int d = 0; d < b->p->layout.mesh.ndims; d++) {
    bool split = x->state[d].kind == 'S' && x->state[d].axis == k->call.ax[0];
    NEED(b, same_state(x->state[d], y->state[d]), "changes the state over dim %d", d);
    NEED(b, split == (k->dims >> d & 1) || b->p->layout.mesh.dim[d].size == 1, "goes over dim %d", d);
  }
  for (int i = 0; i < x->type.naxes; i++)
    if (x->axis[i] == k->call.ax[0]) own = x->size[i];
  uint64_t most = x->bytes / (uint64_t)own * (uint64_t)(by < own ? by : own);
  NEED(b, zp_node_bytes(b->s, k) == (by < b->p->layout.axis_size[k->call.ax[0]] ? most : 0) || by >= own,
       "sends %llu", (unsigned long long)zp_node_bytes(b->s, k));
  NEED(b, !k->packs || k->scratch_bytes >= 2 * zp_node_bytes(b->s, k), "has no room");
}

/* Ops that do what several do have the rules of these. */
static void check_rules(Brute *b, const ZpNode *k) {
  ZpNode one = *k, two = *k;
  if (k->call.op == ZG_OP_DOT_BIAS_GRAD) {
    one.call.op = ZG_OP_DOT, one.call.nout = 1;
    two.call.op = ZG_OP_SUM, two.call.nin = two.call.nout = 1, two.in[0] = k->in[1], two.out[0] = k->out[1];
  } else if (k->call.op == ZG_OP_XENT_MAX_SUMS) {
    one.call.op = ZG_OP_PEAK, one.call.nin = one.call.nout = 1, one.out[0] = k->out[2];
    two.call.op = ZG_OP_XENT_SUMS, two.call.nin = 3, two.call.nout = 2, two.in[1] = k->out[2],
    two.in[2] = k->in[1];
  } else if (k->call.op == ZG_OP_XENT_SUMS_GRAD) {
    ZpNode three = *k; /* its scales have the layout of what they are made of */
    three.call.op = ZG_OP_XENT_GRAD, three.call.nin = 5, three.call.nout = 1, three.in[1] = k->out[3],
    three.in[2] = k->in[1], three.in[3] = three.in[4] = k->in[2];
    check_rule(b, &three);
    one.call.op = ZG_OP_PEAK, one.call.nin = one.call.nout = 1, one.out[0] = k->out[3];
    two.call.op = ZG_OP_XENT_SUMS, two.call.nin = 3, two.call.nout = 2, two.in[1] = k->out[3],
    two.in[2] = k->in[1], two.out[0] = k->out[1], two.out[1] = k->out[2];
  } else {
    check_rule(b, k);
    return;
  }
  check_rule(b, &one);
  check_rule(b, &two);
}

/* ---- places ---- */
static uint64_t room(const Brute *b, uint8_t space) {
  switch (space) {
  case ZP_AT_TEMP: return b->s->list[b->phase].temp;
  case ZP_AT_SAVED: return b->s->saved_bytes;
  case ZP_AT_CARRY_IN: return b->s->carry_bytes;
  case ZP_AT_CARRY_OUT: return b->s->carry_out_bytes;
  case ZP_AT_DCARRY_IN: return b->s->dcarry_bytes;
  case ZP_AT_DCARRY_OUT: return b->s->dcarry_out_bytes;
  default: return UINT64_MAX;
  }
}

static void check_place(Brute *b, uint32_t v) {
  const ZpValue *x = value(b, v);
  NEED(b, x->at.space != ZP_AT_NOWHERE, "value %u is nowhere", v);
  NEED(b, x->at.offset + x->bytes <= room(b, x->at.space), "value %u is outside its space", v);
  if (x->at.space == ZP_AT_PARAM || x->at.space == ZP_AT_GRAD) {
    const ZpBucket *k = &b->p->programs.buckets[b->s->buckets[x->at.index]];
    uint64_t e = zk_plain_bytes(x->at.space == ZP_AT_GRAD ? ZK_F32 : (ZkElem)k->elem);
    for (uint32_t i = 0; i < k->nslices; i++) {
      const ZpSlice *q = &k->slices[i];
      if (q->at * e != x->at.offset) continue;
      NEED(b, q->n * e == x->bytes, "value %u is not the slice of %s", v, b->p->graph->params[q->param].path);
      for (int d = 0; d < b->p->layout.mesh.ndims; d++) {
        char want = x->at.space == ZP_AT_GRAD && k->partial >> d & 1 ? 'P' : (char)q->state[d].kind;
        NEED(b, x->state[d].kind == want, "value %u of %s is %c over dim %d, not %c", v,
             b->p->graph->params[q->param].path, x->state[d].kind, d, want);
      }
      for (int j = 0; j < q->naxes; j++)
        NEED(b, q->axis[j] == x->axis[j], "value %u is not in declared order", v);
      return;
    }
    FAIL(b, "value %u is no slice of its bucket", v);
  } else if (x->at.space != ZP_AT_SEED) {
    NEED(b, x->at.offset % 64 == 0, "value %u is not aligned", v);
  }
}

static bool written(uint8_t space) {
  return space == ZP_AT_TEMP || space == ZP_AT_SAVED || space == ZP_AT_CARRY_OUT || space == ZP_AT_DCARRY_IN;
}

static bool intact(const Brute *b, uint32_t v) {
  const ZpValue *x = value(b, v);
  for (uint32_t i = 0; i < b->ncells; i++)
    if (b->cells[i].value == v)
      return b->cells[i].space == x->at.space && b->cells[i].from == x->at.offset &&
             b->cells[i].to == x->at.offset + x->bytes;
  return false;
}

static void overwrite(Brute *b, uint8_t space, uint64_t from, uint64_t to) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < b->ncells; i++)
    if (b->cells[i].space != space || !meet(b->cells[i].from, b->cells[i].to, from, to))
      b->cells[n++] = b->cells[i];
  b->ncells = n;
}

static void check_reads(Brute *b, const ZpNode *k) {
  for (int i = 0; i < k->call.nin; i++) {
    uint32_t v = k->in[i];
    const ZpValue *x = value(b, v);
    check_place(b, v);
    NEED(b, !written(x->at.space) || intact(b, v), "operand %d (value %u) is not there any more", i, v);
    NEED(b, b->phase == ZP_FWD || x->at.space != ZP_AT_CARRY_IN || b->s->saves_carry,
         "reads what was carried in");
    NEED(b, b->phase != ZP_BWD || x->at.space != ZP_AT_CARRY_OUT, "reads what was carried out");
    NEED(b, b->phase == ZP_BWD || (x->at.space != ZP_AT_DCARRY_OUT && x->at.space != ZP_AT_GRAD),
         "reads what only backward has");
    NEED(b, x->at.space != ZP_AT_SEED || (b->phase != ZP_COUNT && !b->p->asked.forward_only),
         "divides by what is not counted yet");
    if (x->at.space == ZP_AT_GRAD) {
      bool adds = k->call.op == ZG_OP_POINTWISE;
      for (int j = 0, any = 0; adds && j <= k->call.nout; j++) {
        if (j == k->call.nout) NEED(b, any, "reads a gradient");
        else
          any |= value(b, k->out[j])->at.space == ZP_AT_GRAD &&
                 value(b, k->out[j])->at.index == x->at.index &&
                 value(b, k->out[j])->at.offset == x->at.offset;
      }
      NEED(b, adds, "reads a gradient");
    }
  }
}

/* Reads every element before it writes there. */
static bool elementwise(const ZpNode *k) {
  return k->call.op == ZG_OP_ALL_REDUCE || k->call.op == ZG_OP_LOCAL_PAD || k->call.op == ZG_OP_POINTWISE ||
         k->call.op == ZG_OP_XENT_GRAD || k->call.op == ZG_OP_XENT_SUMS_GRAD;
}

static bool same_layout(const ZpValue *x, const ZpValue *y) {
  bool same = x->elem == y->elem && x->type.naxes == y->type.naxes;
  for (int i = 0; same && i < x->type.naxes; i++) same = x->axis[i] == y->axis[i] && x->size[i] == y->size[i];
  return same;
}

/* A result with the axis that is normalized alone: the sum over all others. */
static bool is_norm_sum(const Brute *b, const ZpNode *k, int i) {
  const ZpValue *x = value(b, k->out[i]);
  return k->call.op == ZG_OP_NORMALIZE_GRAD_SUMS && i > 0 && x->type.naxes == 1 &&
         x->axis[0] == k->call.ax[0];
}

static void check_writes(Brute *b, const ZpNode *k) {
  for (int i = 0; i < k->call.nout; i++) {
    const ZpValue *x = value(b, k->out[i]);
    check_place(b, k->out[i]);
    uint64_t from = x->at.offset, to = from + x->bytes;
    NEED(b, written(x->at.space) || x->at.space == ZP_AT_GRAD, "writes to space %u", x->at.space);
    NEED(b,
         b->phase == ZP_BWD ? (x->at.space != ZP_AT_SAVED || elementwise(k)) && x->at.space != ZP_AT_CARRY_OUT
                            : x->at.space != ZP_AT_GRAD && x->at.space != ZP_AT_DCARRY_IN,
         "writes what belongs to another phase");
    for (int j = 0; j < k->call.nin; j++) {
      const ZpValue *y = value(b, k->in[j]);
      if (y->at.space != x->at.space || y->at.index != x->at.index) continue;
      bool in_place =
          (elementwise(k) || x->at.space == ZP_AT_GRAD) && y->at.offset == from && same_layout(x, y);
      NEED(b, in_place || !meet(y->at.offset, y->at.offset + y->bytes, from, to), "overwrites operand %d", j);
    }
    for (int j = 0; j < i; j++) {
      const ZpValue *y = value(b, k->out[j]);
      NEED(b,
           y->at.space != x->at.space || y->at.index != x->at.index ||
               !meet(y->at.offset, y->at.offset + y->bytes, from, to),
           "two results in one space");
    }
    if (x->at.space == ZP_AT_GRAD) {
      bool adds = k->call.accumulate && (i == 0 || k->call.op == ZG_OP_DOT_BIAS_GRAD || is_norm_sum(b, k, i));
      for (int j = 0; k->call.op == ZG_OP_POINTWISE && j < k->call.nin; j++)
        adds |= value(b, k->in[j])->at.space == ZP_AT_GRAD && value(b, k->in[j])->at.offset == from;
      NEED(b, adds, "overwrites a gradient");
    } else {
      bool rows = k->call.op == ZG_OP_NORMALIZE_GRAD_SUMS && !is_norm_sum(b, k, i);
      NEED(b, !k->call.accumulate || rows, "adds to what is not a gradient");
    }
    uint32_t index = x->at.index;
    overwrite(b, x->at.space, from, to);
    if (written(x->at.space))
      ZB_PUSH(b->a, b->cells, b->ncells, ((Cell){x->at.space, index, from, to, k->out[i]}));
  }
}

static void check_scratch(Brute *b, const ZpNode *k) {
  if (!k->scratch_bytes) return;
  uint64_t from = k->scratch_at, to = from + k->scratch_bytes;
  NEED(b, to <= room(b, ZP_AT_TEMP) && from % 64 == 0, "scratch is outside");
  for (int i = 0; i < k->call.nin + k->call.nout; i++) {
    const ZpValue *x = value(b, i < k->call.nin ? k->in[i] : k->out[i - k->call.nin]);
    NEED(b, x->at.space != ZP_AT_TEMP || !meet(x->at.offset, x->at.offset + x->bytes, from, to),
         "scratch over an operand");
  }
  overwrite(b, ZP_AT_TEMP, from, to);
}

/* ---- batched GEMMs ---- */
/* Several values, alike, one behind the other; the call's view has one axis more, over them. */
static void check_group(Brute *b, uint32_t v, const ZkView *w) {
  const ZpValue *x = value(b, v), *first = value(b, x->member[0]);
  int64_t count = 1;
  for (int a = 0; a < first->type.naxes; a++) count *= first->size[a];
  bool there =
      x->at.space == first->at.space && x->at.index == first->at.index && x->at.offset == first->at.offset;
  NEED(b, there && x->bytes == x->nmembers * first->bytes, "a group is elsewhere than its members");
  for (int i = 1; i < x->nmembers; i++) {
    const ZpValue *y = value(b, x->member[i]), *z = value(b, x->member[i - 1]);
    bool behind =
        y->at.space == z->at.space && y->at.index == z->at.index && y->at.offset == z->at.offset + z->bytes;
    NEED(b, behind && same_layout(first, y), "part %d does not lie behind the one before", i);
  }
  NEED(b,
       w->rank == first->type.naxes + 1 && w->size[0] == x->nmembers && w->stride[0] == count &&
           w->axis[0] == b->p->graph->naxes,
       "the view of a group");
}

/* One of the nodes that a batched one is. */
static ZpNode member(const Brute *b, const ZpNode *k, int i) {
  ZpNode m = *k;
  for (int j = 0; j < m.call.nin; j++)
    if (value(b, m.in[j])->nmembers) m.in[j] = value(b, m.in[j])->member[i];
  for (int j = 0; j < m.call.nout; j++) m.out[j] = value(b, m.out[j])->member[i];
  return m;
}

static void check_node(Brute *b, const ZpNode *k) {
  for (int i = 0; i < k->call.nin; i++) check_value(b, k->in[i]);
  for (int i = 0; i < k->call.nout; i++) check_value(b, k->out[i]);
  check_reads(b, k);
  bool ring = k->dims && (k->call.op == ZG_OP_ATTEND || k->call.op == ZG_OP_ATTEND_GRAD);
  if (ring) check_ring(b, k);
  bool halo = k->dims && k->call.op == ZG_OP_SHIFT;
  if (halo) check_halo(b, k);
  if (k->dims && !ring && !halo) check_collective(b, k);
  else check_shapes(b, k), check_rules(b, k);
  check_scratch(b, k);
}

/* All of them read before any of them writes. */
static void check_batched(Brute *b, const ZpNode *k) {
  int n = value(b, k->out[0])->nmembers;
  NEED(b, k->call.op == ZG_OP_DOT || k->call.op == ZG_OP_DOT_BIAS_GRAD, "a group of others than GEMMs");
  for (int i = 0; i < k->call.nin + k->call.nout; i++) {
    bool in = i < k->call.nin;
    uint32_t v = in ? k->in[i] : k->out[i - k->call.nin];
    NEED(b, value(b, v)->nmembers == n || (i < 2 && in && !value(b, v)->nmembers),
         "groups of different sizes");
    if (value(b, v)->nmembers) check_group(b, v, in ? &k->call.in[i] : &k->call.out[i - k->call.nin]);
  }
  if (b->wrong) return;
  for (int i = 0; i < n; i++) {
    ZpNode m = member(b, k, i);
    check_node(b, &m);
    for (int j = 0; j < n; j++) {
      ZpNode other = member(b, k, j);
      for (int x = 0; x < m.call.nin; x++)
        for (int y = 0; y < other.call.nout; y++) {
          const ZpValue *from = value(b, m.in[x]), *to = value(b, other.out[y]);
          bool same = from->at.space == to->at.space && from->at.index == to->at.index;
          NEED(b,
               !same || !meet(from->at.offset, from->at.offset + from->bytes, to->at.offset,
                              to->at.offset + to->bytes),
               "result %d overwrites an operand of another part", y);
        }
    }
  }
  for (int i = 0; i < n; i++) {
    ZpNode m = member(b, k, i);
    check_writes(b, &m);
  }
}

static void check_phase(Brute *b, ZpPhase phase) {
  uint32_t n, kept = 0;
  b->phase = phase;
  const ZpNode *nodes = phase_nodes(b->s, phase, &n);
  for (uint32_t i = 0; i < b->ncells; i++) /* temporaries and boundaries of another phase are gone */
    if (b->cells[i].space == ZP_AT_SAVED) b->cells[kept++] = b->cells[i];
  b->ncells = kept;
  for (b->node = 0; b->node < n; b->node++) {
    const ZpNode *k = &nodes[b->node];
    ZgOpKind class = zg_op_info[k->call.op].kind;
    NEED(b, class != ZG_EW, "an elementwise node outside a pointwise one");
    if (class == ZG_SOURCE) {
      check_place(b, k->out[0]);
      continue;
    }
    if (k->call.nout && value(b, k->out[0])->nmembers) {
      check_batched(b, k);
      continue;
    }
    check_node(b, k);
    check_writes(b, k);
  }
}

/* ---- stages and the arena ---- */
static void check_vstage(Brute *b, const ZpVirtualStage *x) {
  const ZpStage *st = &b->p->programs.stages[x->stage];
  uint64_t at = x->input_bytes;
  NEED(b, x->ninsts > 0, "an empty virtual stage");
  for (uint32_t i = x->first; i < x->first + x->ninsts; i++) {
    const ZpSegment *s = &b->p->programs.segments[st->insts[i].segment];
    bool first = i == x->first;
    NEED(b, st->saved_at[i] >= at && st->saved_at[i] % 64 == 0, "saved blocks overlap");
    at = st->saved_at[i] + s->saved_bytes + (!first && s->saves_carry ? s->carry_bytes : 0);
    for (int k = 0; k < ZP_PHASES; k++) NEED(b, st->scratch_bytes >= s->list[k].temp, "scratch");
    NEED(b, first || st->boundary_bytes >= s->carry_bytes, "boundary");
    NEED(b, first || st->boundary_bytes >= s->dcarry_bytes, "boundary of cotangents");
    for (uint32_t v = 0; v < s->nvalues; v++)
      NEED(b,
           s->values[v].at.space != ZP_AT_INPUT ||
               s->values[v].at.offset + s->values[v].bytes <= x->input_bytes,
           "inputs");
  }
  NEED(b, at <= x->slot_bytes, "slot");
}

static void check_stage(Brute *b, const ZpStage *st) {
  NEED(b, st->ninsts > 0, "an empty stage");
  for (uint32_t k = 0; k < st->nvstages; k++) check_vstage(b, &b->p->programs.vstages[st->vstages[k]]);
  uint64_t sum[ZP_MEMORIES] = {0}, stored[ZP_MEMORIES] = {0};
  for (int i = 0; i < ZP_LEDGER_LINES; i++) sum[zp_ledger_info[i].memory] += st->ledger.bytes[i];
  for (int m = 0; m < ZP_MEMORIES; m++) NEED(b, sum[m] == st->ledger.total[m], "the ledger does not add up");
  for (uint32_t i = 0; i < st->prog.nbufs; i++) {
    const ZpBuf *x = &st->prog.bufs[i];
    stored[x->memory] += zb_round_up(x->bytes, 64);
    NEED(b, x->offset % 64 == 0 && x->offset + x->bytes <= sum[x->memory], "buffer %u is outside the arena",
         i);
    for (uint32_t j = 0; j < i && st->prog.nbufs < 2000; j++) {
      const ZpBuf *y = &st->prog.bufs[j];
      NEED(b,
           x->memory != y->memory || !meet(x->offset, x->offset + x->bytes, y->offset, y->offset + y->bytes),
           "buffers %u and %u overlap", j, i);
    }
  }
  stored[ZP_DEVICE] += st->ledger.bytes[ZP_L_TRAINING]; /* another plan's buffers */
  for (int m = 0; m < ZP_MEMORIES; m++)
    NEED(b, stored[m] == sum[m], "%llu bytes of buffers, %llu in the ledger", (unsigned long long)stored[m],
         (unsigned long long)sum[m]);
}

static void check_inputs(Brute *b) {
  for (uint32_t i = 0; i < b->p->programs.ninputs; i++)
    for (uint32_t j = 0; j < i; j++) {
      const ZpInputUse *x = &b->p->programs.inputs[i], *y = &b->p->programs.inputs[j];
      NEED(b,
           !meet(x->at, x->at + b->p->programs.segments[x->value_segment].values[x->value].bytes, y->at,
                 y->at + b->p->programs.segments[y->value_segment].values[y->value].bytes),
           "inputs overlap");
    }
}

static void check_instances(Brute *b) {
  uint32_t segment = 0, iter = 0;
  for (uint32_t v = 0; v < b->p->programs.nvstages; v++) {
    const ZpVirtualStage *of = &b->p->programs.vstages[v];
    const ZpStage *st = &b->p->programs.stages[of->stage];
    for (uint32_t i = of->first; i < of->first + of->ninsts; i++) {
      const ZpInst *x = &st->insts[i];
      NEED(b, x->segment == segment && x->iter == iter, "instance %u.%u where %u.%u should be", x->segment,
           x->iter, segment, iter);
      const ZpSegment *g = &b->p->programs.segments[x->segment];
      NEED(b, x->nheld == g->nbuckets, "buckets of an instance");
      for (uint32_t k = 0; k < x->nheld; k++) {
        const ZpStageBucket *h = &st->held[x->held[k]];
        NEED(b, h->bucket == g->buckets[k], "another bucket");
        NEED(b, h->iter == (b->p->programs.buckets[h->bucket].segment == ZP_NONE ? 0 : iter),
             "another iteration's bucket");
      }
      if (++iter == b->p->graph->segments[segment].trip) segment++, iter = 0;
    }
  }
  NEED(b, segment == b->p->graph->nsegments, "instances are missing");
}

const char *plan_wrong(const ZpPlan *p, ZbArena *a) {
  Brute b = {.p = p, .a = a};
  for (b.segment = 0; b.segment < p->graph->nsegments; b.segment++) {
    b.s = &p->programs.segments[b.segment];
    b.ncells = 0;
    for (int k = 0; k < ZP_PHASES; k++) check_phase(&b, (ZpPhase)k);
  }
  b.s = NULL;
  b.node = UINT32_MAX;
  check_inputs(&b);
  check_instances(&b);
  for (uint32_t s = 0; s < p->programs.nstages; s++) check_stage(&b, &p->programs.stages[s]);
  return b.wrong ? b.wrong : "";
}

/* Bringing a value from one state to another: the six instructions of the sharding rule.
 *
 *   P -> R     all_reduce       S(a) -> R     all_gather along a   R -> S(a)     local slice, no traffic
 *   P -> S(a)  reduce_scatter   S(a) -> S(b)  all_to_all           R, S(a) -> P  local pad, no traffic
 *
 * A local pad makes a sum's part of what is no sum: of a whole value the first rank of a group keeps all and
 * the others have zeros, of a split one each rank has zeros around its part. Nothing is rounded.
 *
 * In a step of generation parts of sums are f32, whatever is computed in, and become that with the collective: the sum
 * of all parts is rounded once, as one rank would.
 *
 * An axis split by several dims is cut by the first (slowest) one into blocks, each block by the next, and so
 * on. A collective moves blocks as they lie, so a cut can only be made or undone while it is the fastest of
 * its axis: slower cuts are made first and undone last, and one that changes under a faster one needs that
 * undone. */
#include "runtime/plan/local/shard.h"
#include "runtime/plan/text.h"

#include <string.h>

bool zp_state_eq(const ZpShard *h, const ZpState *a, const ZpState *b) {
  for (int d = 0; d < h->p->layout.mesh.ndims; d++)
    if (a[d].kind != b[d].kind || (a[d].kind == 'S' && a[d].axis != b[d].axis)) return false;
  return true;
}

static bool has_sum(const ZpPlan *p, const ZpState *state) {
  for (int d = 0; d < p->layout.mesh.ndims; d++)
    if (state[d].kind == 'P' && !state[d].max) return true;
  return false;
}

uint32_t zp_new_value(ZpShard *h, const ZgType *t, const ZpState *state) {
  ZpValue v = {.type = *t, .elem = zp_store_elem(h->p, t), .param = ZP_NONE};
  memcpy(v.state, state, sizeof v.state);
  if (h->p->stream && has_sum(h->p, state) && v.elem == ZK_BF16)
    v.elem = ZK_F32; /* rounded once, when complete */
  uint64_t n = 1;
  zp_memory_order(h->p, t, v.axis);
  for (int i = 0; i < t->naxes; i++) {
    v.size[i] = zp_local_size(h->p, v.axis[i], state);
    n *= (uint64_t)v.size[i];
  }
  v.bytes = zk_bytes((ZkElem)v.elem, n);
  ZB_PUSH(h->p->arena, h->out->values, h->out->nvalues, v);
  return h->out->nvalues - 1;
}

ZpNode *zp_emit(ZpShard *h, uint16_t op) {
  ZpList *l = &h->out->list[h->phase];
  l->nodes = zb_grow(h->p->arena, l->nodes, l->n, sizeof *l->nodes);
  ZpNode *n = &l->nodes[l->n++]; /* written there: it is large to be copied */
  *n = (ZpNode){.call.op = op, .loc = h->node->loc, .region = h->node->region};
  return n;
}

void zp_version_add(ZpShard *h, uint32_t v, uint32_t value) {
  ZpVersion **at = &h->versions[v];
  while (*at) at = &(*at)->next;
  *at = ZB_NEW(h->p->arena, ZpVersion);
  **at = (ZpVersion){value, h->phase, NULL};
}

static bool is_partial(const ZpShard *h, uint32_t value) {
  for (int d = 0; d < h->p->layout.mesh.ndims; d++)
    if (h->out->values[value].state[d].kind == 'P') return true;
  return false;
}

uint32_t zp_base(const ZpShard *h, uint32_t v) {
  const ZpVersion *first = h->versions[v], *here = NULL;
  ZB_ASSERT(first);
  for (const ZpVersion *k = first; k; k = k->next) {
    if (k->phase != h->phase && k->phase != first->phase) continue;
    if (!is_partial(h, k->value)) return k->value; /* completed once is enough */
    if (!here) here = k;
  }
  return here->value;
}

/* ---- one step ------------------------------------------------------------------------------------------ */
typedef struct {
  ZpShard *h;
  const ZgNode *maker; /* of the graph value, for the cause */
  uint32_t at;         /* the value so far */
} Step;

static const char *op_text(const ZpShard *h, const ZgNode *n) {
  ZbArena *a = h->p->arena;
  const char *s = zg_op_info[n->op].text;
  for (int i = 0; i < n->nax; i++)
    s = zb_printf(a, "%s%s%s", s, i ? ", " : "[", h->p->graph->axes[n->ax[i]].name);
  return n->nax ? zb_printf(a, "%s]", s) : s;
}

/* Between two splits of one tensor all of it moves, in every micro-batch; usually a recipe that splits one
 * axis too few. */
static void warn_resplit(ZpShard *h, const ZpNode *n, ZpDims dims) {
  const ZpPlan *p = h->p;
  char bytes[24];
  const ZpDim *dim = &p->layout.mesh.dim[__builtin_ctz(dims)];
  ZlDiag *e = zl_report(h->b->d, ZL_Z0611, zp_split_span(p, dim),
                        "%s of a rank are re-split here in every micro-batch (all_to_all over `%s`)",
                        zb_bytes(bytes, h->out->values[n->in[0]].bytes),
                        p->asked.recipe->mesh[dim->directive].name.s);
  zl_note(e, "%s, at %s", n->cause, zp_loc_text(p, n->loc));
}

static void step(Step *t, uint16_t op, ZpDims dims, uint16_t axis, uint16_t axis2, ZpState to) {
  ZpShard *h = t->h;
  const ZpPlan *p = h->p;
  ZpState state[ZP_MAX_DIMS];
  memcpy(state, h->out->values[t->at].state, sizeof state);
  bool max = false;
  for (int d = 0; d < p->layout.mesh.ndims; d++)
    if (dims >> d & 1) max |= state[d].max, state[d] = to;
  ZgType type = h->out->values[t->at].type;
  uint32_t v = zp_new_value(h, &type, state);
  ZpNode *n = zp_emit(h, op);
  n->call.nin = n->call.nout = 1;
  n->call.opt[0] = max;
  n->in[0] = t->at;
  n->out[0] = v;
  n->dims = dims;
  n->axis = axis;
  n->axis2 = axis2;
  if (zp_sends(n)) {
    const char *over = zp_dims_text(&p->layout.mesh, p->arena, dims);
    const char *from = op_text(h, t->maker), *by = op_text(h, h->node);
    if (op == ZG_OP_ALL_REDUCE || op == ZG_OP_REDUCE_SCATTER)
      n->cause = zb_printf(p->arena, "%s leaves partial %s over %s; %s needs them complete", from,
                           max ? "maxima" : "sums", over, by);
    else if (op == ZG_OP_ALL_GATHER)
      n->cause = zb_printf(p->arena, "%s (of %s) is split over %s; %s needs it whole",
                           p->graph->axes[axis].name, from, over, by);
    else
      n->cause = zb_printf(p->arena, "%s is split over %s; %s needs %s split instead",
                           p->graph->axes[axis].name, over, by, p->graph->axes[axis2].name);
  }
  bool heads = zg_is_attend(h->node->op) || zg_is_attend(t->maker->op); /* they do so on purpose */
  if (op == ZG_OP_ALL_TO_ALL && !heads) warn_resplit(h, n, dims);
  t->at = v;
}

/* Dims whose current and wanted states are alike in kind and axis to those of d. */
static ZpDims alike(const Step *t, const ZpState *want, int d) {
  const ZpState *cur = t->h->out->values[t->at].state;
  ZpDims m = 0;
  for (int e = 0; e < t->h->p->layout.mesh.ndims; e++)
    if (cur[e].kind == cur[d].kind && want[e].kind == want[d].kind && cur[e].axis == cur[d].axis &&
        want[e].axis == want[d].axis && cur[e].max == cur[d].max)
      m |= 1u << e;
  return m;
}

static bool is_split(ZpState s, uint16_t axis) { return s.kind == 'S' && s.axis == axis; }
static bool differs(ZpState a, ZpState b) { return a.kind != b.kind || (a.kind == 'S' && a.axis != b.axis); }

/* Returns whether the cuts of `axis` by `dims` can go: no faster cut of it stands upon them. */
static bool may_leave(const Step *t, ZpDims dims, uint16_t axis) {
  const ZpState *cur = t->h->out->values[t->at].state;
  for (int e = 0; e < t->h->p->layout.mesh.ndims; e++)
    if (is_split(cur[e], axis) && !(dims >> e & 1) && e > __builtin_ctz(dims)) return false;
  return true;
}

/* Returns whether `dims` can cut `axis` now: every slower cut of it has been made and stays, no faster one
 * has been made. */
static bool may_enter(const Step *t, const ZpState *want, ZpDims dims, uint16_t axis) {
  const ZpState *cur = t->h->out->values[t->at].state;
  int slowest = __builtin_ctz(dims), fastest = 31 - __builtin_clz(dims);
  for (int e = 0; e < t->h->p->layout.mesh.ndims; e++) {
    if (dims >> e & 1) continue;
    if (is_split(cur[e], axis) ? e > slowest || differs(cur[e], want[e])
                               : is_split(want[e], axis) && e < fastest)
      return false;
  }
  return true;
}

/* Steps that make a tensor smaller come before those that move all of it. */
static const struct {
  uint8_t from, to;
  uint16_t op;
} steps[] = {{'P', 'S', ZG_OP_REDUCE_SCATTER}, {'P', 'R', ZG_OP_ALL_REDUCE},  {'S', 'R', ZG_OP_ALL_GATHER},
             {'S', 'S', ZG_OP_ALL_TO_ALL},     {'R', 'S', ZG_OP_LOCAL_SLICE}, {'S', 'P', ZG_OP_LOCAL_PAD},
             {'R', 'P', ZG_OP_LOCAL_PAD}};

/* Takes the first step that can be taken now, over as many dims at once as it can. */
static bool advance(Step *t, const ZpState *want) {
  for (size_t k = 0; k < sizeof steps / sizeof *steps; k++)
    for (int d = 0; d < t->h->p->layout.mesh.ndims; d++) {
      ZpState cur = t->h->out->values[t->at].state[d];
      if (cur.kind != steps[k].from || want[d].kind != steps[k].to || !differs(cur, want[d])) continue;
      ZpDims group[] = {alike(t, want, d), 1u << d};
      for (int g = 0; g < 2; g++)
        if ((cur.kind != 'S' || may_leave(t, group[g], cur.axis)) &&
            (want[d].kind != 'S' || may_enter(t, want, group[g], want[d].axis))) {
          uint16_t axis = cur.kind == 'S' ? cur.axis : want[d].kind == 'S' ? want[d].axis : ZP_NO_AXIS;
          step(t, steps[k].op, group[g], axis, want[d].axis, want[d]);
          return true;
        }
    }
  return false;
}

/* Undoes the fastest cut that stands in the way of a change of the same axis, with those that are to go
 * anyway. */
static void undo_fastest(Step *t, const ZpState *want) {
  const ZpState *cur = t->h->out->values[t->at].state;
  for (int e = t->h->p->layout.mesh.ndims; e-- > 0;)
    for (int d = 0; cur[e].kind == 'S' && d <= e; d++)
      if (differs(cur[d], want[d]) && (is_split(cur[d], cur[e].axis) || is_split(want[d], cur[e].axis))) {
        ZpDims all = alike(t, want, e);
        for (int f = 0; f < e; f++) all |= is_split(cur[f], cur[e].axis) && want[f].kind == 'R' ? 1u << f : 0;
        step(t, ZG_OP_ALL_GATHER, may_leave(t, all, cur[e].axis) ? all : 1u << e, cur[e].axis, 0,
             (ZpState){.kind = 'R'});
        return;
      }
  ZB_BUG("no way from one state to another");
}

/* Returns a version of this phase of which `want` is only a part: no traffic. */
static uint32_t whole_of(const ZpShard *h, uint32_t v, const ZpState *want) {
  for (const ZpVersion *k = h->versions[v]; k; k = k->next) {
    const ZpState *have = h->out->values[k->value].state;
    bool part = k->phase == h->phase;
    for (int d = 0; d < h->p->layout.mesh.ndims; d++) {
      part &= !differs(have[d], want[d]) || (have[d].kind == 'R' && want[d].kind == 'S');
      for (int e = d + 1; e < h->p->layout.mesh.ndims; e++)
        part &= !(differs(have[d], want[d]) && is_split(have[e], want[d].axis));
    }
    if (part) return k->value;
  }
  return ZP_NONE;
}

uint32_t zp_convert(ZpShard *h, uint32_t v, const ZpState *want) {
  for (const ZpVersion *k = h->versions[v]; k; k = k->next)
    if (k->phase == h->phase && zp_state_eq(h, h->out->values[k->value].state, want)) return k->value;
  uint32_t base = zp_base(h, v), whole = whole_of(h, v, want);
  if (zp_state_eq(h, h->out->values[base].state, want)) return base;
  const ZgNode *maker = &h->s->nodes[h->s->values[v].node];
  if (maker->op == ZG_OP_INPUT) { /* data can be read in any state: no traffic */
    ZgType type = h->out->values[base].type;
    uint32_t value = zp_new_value(h, &type, want);
    ZpNode *n = zp_emit(h, ZG_OP_INPUT);
    n->call.nout = 1;
    n->call.opt[0] = maker->opt[0];
    n->out[0] = value;
    zp_version_add(h, v, value);
    return value;
  }
  Step t = {h, maker, whole == ZP_NONE ? base : whole};
  while (!zp_state_eq(h, h->out->values[t.at].state, want)) {
    if (!advance(&t, want)) undo_fastest(&t, want);
    zp_version_add(h, v, t.at); /* what lies on the way may be wanted too */
  }
  return t.at;
}

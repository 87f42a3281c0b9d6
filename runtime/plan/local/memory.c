/* Where every local value lies.
 *
 * Needs fused lists. Forward values that backward reads are saved; what is carried leaves straight into its
 * boundary; parameters, gradients and inputs lie where they are stored; the rest are temporaries, packed by
 * lifetime into the scratch of the running instruction (first fit over the intervals of one node list). */
#include "graph/ragged.h"
#include "runtime/plan/local/lower.h"

#include <string.h>

/* ---- tuples carried between instances ------------------------------------------------------------------ */
static uint64_t value_bytes(const ZpPlan *p, const ZgType *t) {
  ZpState state[ZP_MAX_DIMS];
  zp_layout(p, t, state);
  uint64_t n = 1;
  for (int i = 0; i < t->naxes; i++) n *= (uint64_t)zp_local_size(p, t->axis[i], state);
  return zk_bytes(zp_store_elem(p, t), n);
}

/* Offset of position k in a carried tuple; of position n: its size. `has`: of the positions that it has;
 * NULL: all. */
static uint64_t tuple_at(const ZpPlan *p, const ZgType *types, uint32_t k, const bool *has) {
  uint64_t at = 0;
  for (uint32_t i = 0; i < k; i++)
    if (!has || has[i]) at += zp_lines(value_bytes(p, &types[i]));
  return at;
}

static const ZpCotangents *cotangents(const ZpLocal *c) { return &c->p->layout.cotangents[c->index]; }

/* ---- sources and sinks --------------------------------------------------------------------------------- */
static uint64_t input_at(ZpPlan *p, uint32_t segment, uint32_t value) {
  const ZpValue *v = &p->programs.segments[segment].values[value];
  uint32_t input = v->at.index;
  uint64_t end = 0;
  for (uint32_t i = 0; i < p->programs.ninputs; i++) {
    const ZpInputUse *u = &p->programs.inputs[i];
    const ZpValue *w = &p->programs.segments[u->value_segment].values[u->value];
    bool same = u->input == input;
    for (int d = 0; d < p->layout.mesh.ndims; d++)
      same &= v->state[d].kind == w->state[d].kind && v->state[d].axis == w->state[d].axis;
    if (same) return u->at;
    end = u->at + zp_lines(w->bytes);
  }
  ZpInputUse u = {input, segment, value, end};
  ZB_PUSH(p->arena, p->programs.inputs, p->programs.ninputs, u);
  return end;
}

void zp_place_inputs(ZpPlan *p) {
  p->programs.inputs = NULL;
  p->programs.ninputs = 0;
  for (uint32_t s = 0; s < p->graph->nsegments; s++)
    for (uint32_t v = 0; v < p->programs.segments[s].nvalues; v++) {
      ZpLoc *at = &p->programs.segments[s].values[v].at;
      if (at->space == ZP_AT_INPUT) at->offset = input_at(p, s, v);
    }
}

/* Says whether a node makes nothing: its result is there. */
static bool is_source(const ZpNode *n) { return zp_is_kind(n, ZG_SOURCE) || n->call.op == ZG_OP_KEPT; }

/* Adds a cache to those of the instance. */
static ZpLoc place_cache(ZpLocal *c, uint32_t cache, uint64_t bytes) {
  ZpLoc at = {ZP_AT_CACHE, cache, c->s->cache_bytes};
  c->s->cache_bytes += zp_lines(bytes);
  return at;
}

static void place_source(ZpLocal *c, const ZpNode *n) {
  ZpValue *v = &c->s->values[n->out[0]];
  switch (n->call.op) {
  case ZG_OP_PARAM: v->at = zp_bucket_loc(c->p, c->s, n->sink, ZP_AT_PARAM); break;
  case ZG_OP_INPUT: v->at = (ZpLoc){ZP_AT_INPUT, (uint32_t)n->call.opt[0], 0}; break; /* zp_place_inputs */
  case ZG_OP_CARRY:
    v->at = (ZpLoc){ZP_AT_CARRY_IN, n->sink, tuple_at(c->p, c->gs->carry_in, n->sink, NULL)};
    break;
  case ZG_OP_KEPT: v->at = place_cache(c, n->sink, v->bytes); break;
  case ZG_OP_DCARRY:
    v->at = (ZpLoc){ZP_AT_DCARRY_OUT, n->sink, tuple_at(c->p, c->gs->carry_out, n->sink, cotangents(c)->out)};
    break;
  case ZG_OP_SEED:
    v->at = (ZpLoc){ZP_AT_SEED, zp_seed_index(n->call.opt[0], (uint32_t)n->call.opt[1]), 0};
    break;
  default: ZB_BUG("source `%s`", zg_op_info[n->call.op].text);
  }
}

void zp_place_sources(ZpLocal *c, ZpPhase phase) {
  ZpList *l = &c->s->list[phase];
  uint32_t m = 0;
  for (uint32_t i = 0; i < l->n; i++) {
    if (!is_source(&l->nodes[i])) {
      l->nodes[m++] = l->nodes[i];
      continue;
    }
    if (c->read[l->nodes[i].out[0]]) place_source(c, &l->nodes[i]);
  }
  l->n = m;
}

/* carry_out and dcarry_in: the value is made where it must end up, or copied there. */
static void place_carried(ZpLocal *c, ZpPhase phase) {
  ZpList *l = &c->s->list[phase];
  for (uint32_t i = 0; i < l->n; i++) {
    ZpNode *k = &l->nodes[i];
    if (k->call.op != ZG_OP_CARRY_OUT && k->call.op != ZG_OP_DCARRY_IN) continue;
    bool out = k->call.op == ZG_OP_CARRY_OUT;
    ZpLoc at = {
        out ? ZP_AT_CARRY_OUT : ZP_AT_DCARRY_IN, k->sink,
        tuple_at(c->p, out ? c->gs->carry_out : c->gs->carry_in, k->sink, out ? NULL : cotangents(c)->in)};
    ZpValue *v = &c->s->values[k->in[0]];
    if (v->at.space == ZP_AT_NOWHERE && !c->later[phase][k->in[0]]) {
      v->at = at;
      k->call.nin = 0; /* done by the maker; the node goes below */
      continue;
    }
    ZpValue copy = *v;
    zp_memory_order(c->p, &copy.type, copy.axis); /* whatever the source's is */
    for (int a = 0; a < copy.type.naxes; a++) copy.size[a] = zp_local_size(c->p, copy.axis[a], copy.state);
    zp_give_elem(&copy, zp_store_elem(c->p, &copy.type));
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

/* Places what backward reads from the forward pass, in the order of its making. Logits are placed where
 * forward makes their gradient. */
void zp_place_saved(ZpLocal *c) {
  ZpSegment *s = c->s;
  const bool *saved = c->later[ZP_FWD];
  for (uint32_t i = 0; i < s->list[ZP_FWD].n; i++) {
    const ZpNode *n = &s->list[ZP_FWD].nodes[i];
    s->saves_carry |= n->call.op == ZG_OP_CARRY && saved[n->out[0]];
    for (int k = 0; k < n->call.nout && !zp_is_kind(n, ZG_SOURCE); k++) {
      ZpValue *v = &s->values[n->out[k]];
      if (!saved[n->out[k]] || v->at.space != ZP_AT_NOWHERE) continue;
      v->at = (ZpLoc){ZP_AT_SAVED, 0, s->saved_bytes};
      s->saved_bytes += zp_lines(v->bytes);
    }
    if (n->call.op == ZG_OP_XENT_SUMS_GRAD) s->values[n->in[0]].at = s->values[n->out[0]].at;
  }
}

void zp_place_carried(ZpLocal *c) {
  ZpSegment *s = c->s;
  for (int k = ZP_FWD; k < ZP_PHASES; k++) place_carried(c, (ZpPhase)k);
  for (int k = ZP_FWD; k < ZP_PHASES; k++) drop_done(&s->list[k]);
  const ZgSegment *g = c->gs;
  s->carry_bytes = tuple_at(c->p, g->carry_in, g->ncarry_in, NULL);
  s->carry_out_bytes = tuple_at(c->p, g->carry_out, g->ncarry_out, NULL);
  if (c->p->asked.forward_only) return;
  s->dcarry_bytes = tuple_at(c->p, g->carry_in, g->ncarry_in, cotangents(c)->in);
  s->dcarry_out_bytes = tuple_at(c->p, g->carry_out, g->ncarry_out, cotangents(c)->out);
}

/* ---- temporaries --------------------------------------------------------------------------------------- */
typedef struct {
  uint64_t from, to;
  uint32_t value;
} Block; /* or a unit's scratch: see scratch_of */

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

typedef struct {
  ZpLocal *c;
  ZpNode *nodes;
  uint32_t n;
  ZpPhase phase;
  bool backward;
  uint32_t *region; /* of each value: that of the node that makes it */
  uint32_t *last;   /* of each value: the unit, by its first node, that uses it last */
  /* per value: the node that waits for its collectives; 0: it has none */
  uint32_t *busy;
  struct {
    uint32_t node, join;
  } open[ZP_MOST_ASYNC]; /* collectives that go on behind their unit */
  uint32_t nopen;
  Block *live;
  uint32_t nlive;
  uint64_t peak;
} Pack;

/* Returns which operand's memory result j of node i can take, because nothing reads it any more: one of the
 * same layout, where the kernel works element by element. So the gradient of logits takes the place of the
 * logits. -1: none. What an instance saved is its own backward's: for everybody else a slot holds the same
 * before and after. (A fused call takes none.) */
static int takes_place_of(const Pack *p, uint32_t i, int j) {
  const ZpLocal *c = p->c;
  const ZpNode *k = &p->nodes[i];
  const ZpValue *v = &c->s->values[k->out[j]];
  uint16_t op = k->call.op;
  if (op != ZG_OP_POINTWISE && op != ZG_OP_ALL_REDUCE && op != ZG_OP_LOCAL_PAD && op != ZG_OP_XENT_GRAD &&
      op != ZG_OP_XENT_SUMS_GRAD)
    return -1;
  if (k->call.pointwise && op != ZG_OP_POINTWISE) return -1;
  int n = op == ZG_OP_POINTWISE ? k->call.nin : 1;
  for (int a = 0; a < n; a++) {
    const ZpValue *in = &c->s->values[k->in[a]];
    bool free = in->at.space == ZP_AT_TEMP || (p->backward && in->at.space == ZP_AT_SAVED), taken = false;
    if (p->region[k->in[a]] != k->rounds) continue; /* the next round reads it again */
    if (p->busy[k->in[a]] > i) continue;            /* it is still being sent */
    for (int b = 0; b < j; b++) {
      const ZpLoc *at = &c->s->values[k->out[b]].at;
      taken |= at->space == in->at.space && at->offset == in->at.offset;
    }
    if (free && !taken && p->last[k->in[a]] == i && zp_same_layout(in, v)) return a;
  }
  return -1;
}

static bool unplaced(const Pack *k, uint32_t v) { return k->c->s->values[v].at.space == ZP_AT_NOWHERE; }

/* Values that should be contiguous are, if none of them has a place. */
static void place_contiguous(Pack *k, const uint32_t *v, uint32_t n) {
  ZpValue *values = k->c->s->values;
  uint64_t all = 0;
  uint32_t q = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (!unplaced(k, v[i])) return;
    all += zp_lines(values[v[i]].bytes);
  }
  uint64_t at = first_fit(k->live, &k->nlive, all, v[0]);
  while (k->live[q].value != v[0]) q++;
  memmove(&k->live[q + n], &k->live[q + 1], (k->nlive - q - 1) * sizeof *k->live);
  k->nlive += n - 1;
  for (uint32_t i = 0; i < n; i++, q++) {
    uint64_t bytes = zp_lines(values[v[i]].bytes);
    values[v[i]].at = (ZpLoc){ZP_AT_TEMP, 0, at};
    k->live[q] = (Block){at, at + bytes, v[i]};
    at += bytes;
  }
}

static void place_groups(Pack *k, uint32_t i, uint32_t end) {
  const ZpNode *n = &k->nodes[i];
  uint32_t v[ZP_MAX_GROUP];
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
  if (n->call.op == ZG_OP_PUT_PAGES) { /* the cache itself */
    v->at = values[n->in[1]].at;
    return;
  }
  int a = takes_place_of(k, i, j);
  if (a < 0) {
    v->at = (ZpLoc){ZP_AT_TEMP, 0, first_fit(k->live, &k->nlive, zp_lines(v->bytes), n->out[j])};
    return;
  }
  v->at = values[n->in[a]].at;
  for (uint32_t q = 0; q < k->nlive; q++)
    if (k->live[q].value == n->in[a]) k->live[q].value = n->out[j];
}

/* ---- collectives that go on behind their unit: what they have stays until they are complete ---- */
static uint32_t scratch_of(const Pack *k, uint32_t i) { return k->c->s->nvalues + 1 + i; } /* beside values */

static void keep(Pack *k, uint32_t v, uint32_t join) {
  if (k->busy[v] < join) k->busy[v] = join;
}

static bool is_open(const Pack *k, uint32_t i, uint32_t end) {
  return zp_is_async(&k->nodes[i]) && zp_join(k->c, &k->c->s->list[k->phase], i) > end;
}

static void open_one(Pack *k, uint32_t i) {
  const ZpNode *n = &k->nodes[i];
  uint32_t join = zp_join(k->c, &k->c->s->list[k->phase], i);
  for (int j = 0; j < n->call.nin; j++) keep(k, n->in[j], join);
  for (int j = 0; j < n->call.nout; j++) keep(k, n->out[j], join);
  ZB_ASSERT(k->nopen < ZP_MOST_ASYNC);
  k->open[k->nopen].node = i;
  k->open[k->nopen++].join = join;
}

/* Its last use is over, by calls and by collectives. */
static void release_unused(Pack *k, uint32_t v, uint32_t end) {
  if (k->last[v] < end && k->busy[v] <= end) release(k->live, &k->nlive, v);
}

static void close_before(Pack *k, uint32_t end) {
  uint32_t left = 0;
  for (uint32_t q = 0; q < k->nopen; q++) {
    const ZpNode *n = &k->nodes[k->open[q].node];
    if (k->open[q].join > end) {
      k->open[left++] = k->open[q];
      continue;
    }
    release(k->live, &k->nlive, scratch_of(k, k->open[q].node));
    for (int j = 0; j < n->call.nin; j++) release_unused(k, n->in[j], end);
    for (int j = 0; j < n->call.nout; j++) release_unused(k, n->out[j], end);
  }
  k->nopen = left;
}

/* The unit's nodes use the same scratch, one after the other. */
static void place_scratch(Pack *k, uint32_t i, uint32_t end) {
  uint64_t most = 0;
  for (uint32_t q = i; q < end; q++)
    if (k->nodes[q].scratch_bytes > most) most = k->nodes[q].scratch_bytes;
  uint64_t at = most ? first_fit(k->live, &k->nlive, most, scratch_of(k, i)) : 0;
  for (uint32_t q = i; q < end; q++)
    if (k->nodes[q].scratch_bytes) k->nodes[q].scratch_at = at;
  for (uint32_t q = 0; q < k->nlive; q++)
    if (k->live[q].to > k->peak) k->peak = k->live[q].to;
  if (most && !is_open(k, i, end)) release(k->live, &k->nlive, scratch_of(k, i));
}

/* Returns the last node of a region that is played in rounds. It is played after the first again: values that
 * the region reads live until the last node, and values that it gives to others from the first on. */
static uint32_t region_end(const Pack *k, uint32_t i) {
  while (i + 1 < k->n && k->nodes[i + 1].rounds == k->nodes[i].rounds) i++;
  return i;
}

static bool is_given(const Pack *k, uint32_t v) {
  return k->region[v] && zg_slot_axis(k->c->p->layout.experts, &k->c->s->values[v].type) == ZG_NO_AXIS;
}

static void find_last_uses(Pack *k) {
  for (uint32_t i = 0; i < k->n; i++)
    for (int j = 0; j < k->nodes[i].call.nout; j++) k->region[k->nodes[i].out[j]] = k->nodes[i].rounds;
  for (uint32_t i = 0, end, unit; i < k->n; i = end) {
    end = zp_unit_end(k->c, k->nodes, i);
    for (uint32_t q = i; q < end; q++) {
      const ZpNode *n = &k->nodes[q];
      unit = n->rounds ? region_end(k, i) : i;
      for (int j = 0; j < n->call.nin; j++) k->last[n->in[j]] = k->region[n->in[j]] == n->rounds ? i : unit;
      for (int j = 0; j < n->call.nout; j++) k->last[n->out[j]] = is_given(k, n->out[j]) ? unit : i;
    }
  }
}

/* Before the first node of a region: places for what it gives. */
static void place_given(Pack *k, uint32_t i) {
  if (!k->nodes[i].rounds || (i && k->nodes[i - 1].rounds == k->nodes[i].rounds)) return;
  for (uint32_t q = i; q <= region_end(k, i); q++)
    for (int j = 0; j < k->nodes[q].call.nout; j++)
      if (is_given(k, k->nodes[q].out[j])) place_result(k, q, j);
}

/* Behind the last one, i: what they read of others and nobody reads any more. */
static void release_outside(Pack *k, uint32_t i) {
  for (uint32_t q = i;; q--) {
    for (int j = 0; j < k->nodes[q].call.nin; j++)
      if (k->last[k->nodes[q].in[j]] == i) release(k->live, &k->nlive, k->nodes[q].in[j]);
    for (int j = 0; j < k->nodes[q].call.nout; j++)
      if (k->last[k->nodes[q].out[j]] == i) release(k->live, &k->nlive, k->nodes[q].out[j]);
    if (!q || k->nodes[q - 1].rounds != k->nodes[i].rounds) return;
  }
}

void zp_place_temps(ZpLocal *c, ZpPhase phase) {
  ZpNode *nodes = c->s->list[phase].nodes;
  uint32_t n = c->s->list[phase].n;
  ZpSegment *s = c->s;
  ZbArena *tmp = zb_arena_new();
  Pack k = {.c = c,
            .nodes = nodes,
            .n = n,
            .phase = phase,
            .backward = phase == ZP_BWD,
            .region = ZB_NEWN(tmp, uint32_t, s->nvalues + 1),
            .last = ZB_NEWN(tmp, uint32_t, s->nvalues + 1),
            .busy = ZB_NEWN(tmp, uint32_t, s->nvalues + 1),
            .live = ZB_NEWN(tmp, Block, s->nvalues + ZP_MOST_ASYNC + 2)};
  find_last_uses(&k);
  for (uint32_t i = 0, end; i < n; i = end) {
    end = zp_unit_end(c, nodes, i);
    place_given(&k, i);
    place_groups(&k, i, end);
    for (uint32_t q = i; q < end; q++)
      for (int j = 0; j < nodes[q].call.nout; j++) place_result(&k, q, j);
    place_scratch(&k, i, end);
    if (is_open(&k, i, end)) open_one(&k, i);
    for (uint32_t q = i; q < end; q++) {
      for (int j = 0; j < nodes[q].call.nin; j++)
        if (k.last[nodes[q].in[j]] == i) release_unused(&k, nodes[q].in[j], end);
      for (int j = 0; j < nodes[q].call.nout; j++)
        if (k.last[nodes[q].out[j]] == i) release_unused(&k, nodes[q].out[j], end);
    }
    close_before(&k, end);
    if (nodes[i].rounds && region_end(&k, i) == i) release_outside(&k, i);
  }
  s->list[phase].temp = k.peak;
  zb_arena_free(tmp);
}

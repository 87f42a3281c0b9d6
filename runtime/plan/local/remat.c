/* Decides which forward values are saved for backward, and which are recomputed there.
 *
 * * Needs a differentiated segment. Provides one in which a backward node refers to a forward value only if
 * that value is worth saving: an elementwise value is recomputed when that costs no more memory than saving
 * it (its inputs are saved anyway, or one value stands in for it), so that a GELU written as ten small ops
 * saves one tensor; everything in a region named by `recompute` is recomputed from what enters that region
 * (Chen et al. 2016, "Training deep nets with sublinear memory cost"), one region at a time: what enters one
 * and is made in another is saved, and so is what is made of several. Copies stand just before their first
 * use. Dead nodes go.
 *
 * Of these values, what forward and backward both have in memory is listed: schedule/choose.c chooses which
 * of them are stashed all the same.
 *
 * Example: h = dot(x, w); y = gelu(h). Backward needs h, tanh(..h..), h*h, ...: only h is saved. */
#include "graph/ragged.h"
#include "runtime/plan/local/local.h"

#include <string.h>

enum { UNKNOWN, SAVE, RECOMPUTE };

typedef struct {
  const ZpBuild *b;
  ZbArena *arena;
  uint32_t index; /* of the segment */
  const ZgSegment *s;
  ZgSegment *t;
  uint8_t *decided;  /* per old forward value */
  uint32_t *forward; /* old value -> new value of the forward pass, or of the backward nodes */
  uint32_t *copied;  /* old forward value -> its copy in backward, or ZG_NONE */
  uint32_t *stamp, now;
  bool *needs, *pending; /* of narrowest */
  bool *follows;         /* per old value, a node's first: is recomputed with what it was selected from */
  bool *recomputed;
  uint32_t nrecomputed;
} Remat;

/* Returns whether backward recomputes what a region makes. */
static bool recomputes(const Remat *r, uint32_t region) {
  return r->b->recompute[region] && !r->b->variant.saves_all;
}

static const ZgNode *maker(const ZgSegment *s, uint32_t v) { return &s->nodes[s->values[v].node]; }
static bool is_forward(const ZgSegment *s, uint32_t v) { return s->values[v].node < s->nforward; }

/* Values that exist in backward without being saved: sources, and what needs no operand. */
static bool is_source(const ZgNode *n) { return zg_op_info[n->op].kind == ZG_SOURCE; }
/* Values that are there for a moment only: rows of experts for a round, and of what is computed in chunks
 * what has the axis for which it is, and the slices that it is made of. Backward recomputes them. */
static bool is_brief(const Remat *r, uint32_t v) {
  const ZgType *t = &r->s->values[v].type;
  const ZpChunk *c = &r->b->p->layout.chunk;
  uint16_t op = maker(r->s, v)->op;
  if (zg_slot_axis(r->b->p->layout.experts, t) != ZG_NO_AXIS) return true;
  return zg_type_has(t, c->up) && (zg_type_has(t, c->classes) || op == ZG_OP_PART || op == ZG_OP_SLICE);
}
/* Returns whether a shift stays on the rank: it reads once more what is saved anyway. Where its axis is
 * split, that would have to be gathered once more. */
static bool shifts_here(const Remat *r, const ZgNode *n) {
  ZpState state[ZP_MAX_DIMS];
  if (n->op != ZG_OP_SHIFT) return false;
  zp_layout(r->b->p, &r->s->values[n->out].type, state);
  for (int d = 0; d < r->b->p->layout.mesh.ndims; d++)
    if (state[d].kind == 'S' && state[d].axis == n->ax[0]) return false;
  return true;
}
static bool is_free(const Remat *r, const ZgNode *n) {
  if (n->nout && (is_brief(r, n->out) || r->follows[n->out])) return true;
  return zg_op_info[n->op].kind == ZG_EW || n->op == ZG_OP_POSITION || n->op == ZG_OP_RANDOM ||
         shifts_here(r, n) || recomputes(r, n->region);
}

/* ---- what is compared with what was selected from it ---- */
static bool selects(uint16_t op) {
  return op == ZG_OP_PEAK || op == ZG_OP_TOPK || op == ZG_OP_SLICE || op == ZG_OP_PART || op == ZG_OP_MERGE ||
         op == ZG_OP_RENAME || op == ZG_OP_BROADCAST || op == ZG_OP_STOP || op == ZG_OP_NEG ||
         op == ZG_OP_CAST;
}

/* If y is selected from x, marks y and every step between them. Elementwise steps need no mark: backward
 * recomputes those anyway. */
static void follow(Remat *r, uint32_t x, uint32_t y) {
  enum { FAR = 16 };
  uint32_t v = y, left = FAR;
  while (v != x && left-- && selects(maker(r->s, v)->op)) v = maker(r->s, v)->in[0];
  if (v != x) return;
  for (v = y; v != x; v = maker(r->s, v)->in[0])
    r->follows[maker(r->s, v)->out] = zg_op_info[maker(r->s, v)->op].kind != ZG_EW;
}

/* The gradient of peak finds the largest element of x by comparing x with the peak; masks do the same. A
 * recomputed x may differ in its last bits, since a fused function rounds otherwise than the one of forward,
 * and then no element is equal. So where backward recomputes x, it recomputes from that x what was selected
 * from x. */
static void find_followers(Remat *r) {
  const ZgSegment *s = r->s;
  for (uint32_t i = 0; i < s->nnodes; i++) {
    const ZgNode *n = &s->nodes[i];
    if (n->op != ZG_OP_EQUAL && n->op != ZG_OP_LESS) continue;
    follow(r, n->in[0], n->in[1]);
    follow(r, n->in[1], n->in[0]);
  }
  for (uint32_t v = 0; v < s->nvalues; v++) /* operands come first */
    r->follows[v] = r->follows[v] && is_free(r, maker(s, maker(s, v)->in[0]));
}

/* Counts the values that would have to be saved anew if v were recomputed; marks them with `mark`. */
static uint32_t new_leaves(Remat *r, uint32_t v, bool mark) {
  const ZgNode *n = maker(r->s, v);
  if (is_source(n) || r->stamp[v] == r->now) return 0;
  r->stamp[v] = r->now;
  if (r->decided[v] == SAVE) return 0;
  if (!is_free(r, n)) {
    if (mark) r->decided[v] = SAVE;
    return 1;
  }
  uint32_t leaves = 0;
  for (int i = 0; i < n->nin; i++) leaves += new_leaves(r, n->in[i], mark);
  return leaves;
}

/* Returns whether v cannot be recomputed without saving something anew; asked many times with one r->now. */
static bool needs_leaf(Remat *r, uint32_t v) {
  const ZgNode *n = maker(r->s, v);
  if (is_source(n) || r->decided[v] == SAVE) return false;
  if (r->stamp[v] == r->now) return r->needs[v];
  r->stamp[v] = r->now;
  r->needs[v] = !is_free(r, n);
  for (int i = 0; i < n->nin && !r->needs[v]; i++) r->needs[v] = needs_leaf(r, n->in[i]);
  return r->needs[v];
}

/* Returns what to save instead of v: the first elementwise value that all of v is made from. So a + b is
 * saved of silu(a + b), not the steps on the way there. Goes back from v; where one value alone is pending,
 * everything passes through it. */
static uint32_t narrowest(Remat *r, uint32_t v) {
  uint32_t best = v, npending = 1, u = v;
  r->now++;
  for (r->pending[v] = true; npending; u--) {
    if (!r->pending[u]) continue;
    const ZgNode *n = maker(r->s, u);
    if (!is_free(r, n)) break;
    if (npending == 1 && zg_op_info[n->op].kind == ZG_EW && !is_brief(r, u) && !recomputes(r, n->region) &&
        r->s->values[u].type.elem == r->s->values[v].type.elem)
      best = u;
    r->pending[u] = false;
    npending--;
    for (int i = 0; i < n->nin; i++)
      if (!r->pending[n->in[i]] && needs_leaf(r, n->in[i])) r->pending[n->in[i]] = true, npending++;
  }
  for (; npending; u--)
    if (r->pending[u]) r->pending[u] = false, npending--;
  return best;
}

/* ---- parts that `recompute` names --------------------------------------------------------------------- */
/* Returns the whole part that is recomputed with a region: the outermost around it that is; ZG_NONE: it is
 * not. */
static uint32_t part_of(const Remat *r, uint32_t region) {
  const ZgRegion *all = r->b->p->graph->regions;
  if (!recomputes(r, region)) return ZG_NONE;
  while (all[region].parent != ZG_NONE && recomputes(r, all[region].parent)) region = all[region].parent;
  return region;
}

/* Returns whether recomputing it runs a kernel of a part. Elementwise values are made on the way, whatever
 * part they are of. */
static bool is_run(const Remat *r, const ZgNode *n) {
  return recomputes(r, n->region) && zg_op_info[n->op].kind != ZG_EW;
}

/* Returns whether recomputing v runs kernels of more parts than one. *one: the part that was found so far. */
static bool runs_parts(Remat *r, uint32_t v, uint32_t *one) {
  const ZgNode *n = maker(r->s, v);
  if (is_source(n) || r->stamp[v] == r->now || r->decided[v] == SAVE || !is_free(r, n)) return false;
  r->stamp[v] = r->now;
  uint32_t part = is_run(r, n) ? part_of(r, n->region) : ZG_NONE;
  if (part != ZG_NONE && *one != ZG_NONE && part != *one) return true;
  if (part != ZG_NONE) *one = part;
  for (int i = 0; i < n->nin; i++)
    if (runs_parts(r, n->in[i], one)) return true;
  return false;
}

/* A sum of what several parts made, outside of all, is saved: else all of them are recomputed for it at
 * once. */
static bool sums_parts(Remat *r, uint32_t v) {
  uint32_t one = ZG_NONE;
  r->now++;
  return !recomputes(r, maker(r->s, v)->region) && !is_brief(r, v) && runs_parts(r, v, &one);
}

static void decide(Remat *r, uint32_t v) {
  const ZgNode *n = maker(r->s, v);
  if (r->decided[v] != UNKNOWN || is_source(n)) return;
  if (!is_free(r, n)) {
    r->decided[v] = SAVE;
    return;
  }
  if (r->follows[n->out]) {
    decide(r, n->in[0]);
    r->decided[v] = RECOMPUTE;
    return;
  }
  if (sums_parts(r, v)) {
    r->decided[v] = SAVE;
    return;
  }
  r->now++;
  bool recomputed = recomputes(r, n->region) || is_brief(r, v) || new_leaves(r, v, false) <= 1;
  if (!recomputed) {
    uint32_t saved = narrowest(r, v);
    r->decided[v] = RECOMPUTE;
    r->decided[saved] = SAVE;
    return;
  }
  r->decided[v] = UNKNOWN; /* so that the walk goes through it */
  r->now++;
  new_leaves(r, v, true);
  r->decided[v] = RECOMPUTE;
}

/* A device that computes h = product + bias in one does not store the product on the way. Where h is all
 * that a saved product is for, h is saved instead: the same memory, and backward need not add the bias once
 * more. Not where h only goes into another sum, of which h would be one more result. */
static void save_sums(Remat *r) {
  const ZgSegment *s = r->s;
  uint32_t *uses = ZB_NEWN(r->arena, uint32_t, s->nvalues + 1),
           *reader = ZB_NEWN(r->arena, uint32_t, s->nvalues + 1);
  for (uint32_t i = 0; i < s->nnodes; i++)
    for (int k = 0; k < s->nodes[i].nin; k++) uses[s->nodes[i].in[k]]++, reader[s->nodes[i].in[k]] = i;
  for (uint32_t v = 0; v < s->nvalues; v++) {
    if (r->decided[v] != SAVE || !is_forward(s, v) || maker(s, v)->op != ZG_OP_DOT || uses[v] != 1) continue;
    const ZgNode *n = &s->nodes[reader[v]];
    if (reader[v] >= s->nforward || n->op != ZG_OP_ADD || recomputes(r, n->region)) continue;
    const ZgNode *other = maker(s, n->in[n->in[0] == v]), *next = &s->nodes[reader[n->out]];
    bool sums_on = uses[n->out] == 1 && next->op == ZG_OP_ADD;
    const ZgType *t = &s->values[v].type, *u = &s->values[n->out].type;
    bool same = t->elem == u->elem && t->naxes == u->naxes; /* a sum has all axes of both */
    if (other->op != ZG_OP_PARAM || sums_on || !same) continue;
    r->decided[v] = UNKNOWN;
    r->decided[n->out] = SAVE;
  }
}

static double bytes_of(const Remat *r, uint32_t v) {
  const ZgType *t = &r->s->values[v].type;
  ZpState state[ZP_MAX_DIMS];
  zp_layout(r->b->p, t, state);
  double n = zk_mean_bytes(zp_store_elem(r->b->p, t));
  for (int i = 0; i < t->naxes; i++) n *= (double)zp_local_size(r->b->p, t->axis[i], state);
  return n;
}

/* Marks what enters a part, and would be recomputed for another part. Returns its bytes. */
static double find_entering(Remat *r, bool *enters) {
  const ZgSegment *s = r->s;
  bool *recomputed =
      ZB_NEWN(r->arena, bool, s->nvalues + 1); /* by value: making it runs a kernel of a part */
  double bytes = 0;
  for (uint32_t i = 0; i < s->nforward; i++) {
    const ZgNode *n = &s->nodes[i];
    uint32_t part = part_of(r, n->region);
    bool runs = is_run(r, n);
    for (int k = 0; k < n->nin; k++) {
      uint32_t v = n->in[k];
      bool other = part != ZG_NONE && part_of(r, maker(s, v)->region) != part;
      if (other && recomputed[v] && !is_brief(r, v) && !r->follows[maker(s, v)->out]) {
        enters[v] = true;
        recomputed[v] = false;
        bytes += bytes_of(r, v);
      }
      runs |= recomputed[v];
    }
    bool made = !is_source(n) && is_free(r, n) && runs;
    for (int k = 0; k < n->nout; k++)
      recomputed[n->out + (uint32_t)k] = made && r->decided[n->out + (uint32_t)k] != SAVE;
  }
  return bytes;
}

/* Returns the bytes of what all parts of the segment make with kernels of their own, but for the largest
 * part. */
static double bytes_of_others(Remat *r) {
  const ZgSegment *s = r->s;
  double *part = ZB_NEWN(r->arena, double, r->b->p->graph->nregions + 1), sum = 0, most = 0;
  for (uint32_t i = 0; i < s->nforward; i++) {
    const ZgNode *n = &s->nodes[i];
    uint32_t of = part_of(r, n->region);
    if (of == ZG_NONE || is_source(n) || zg_op_info[n->op].kind == ZG_EW) continue;
    for (int k = 0; k < n->nout; k++) {
      double bytes = bytes_of(r, n->out + (uint32_t)k);
      sum += bytes;
      if ((part[of] += bytes) > most) most = part[of];
    }
  }
  return sum - most;
}

/* Parts that follow one another in a segment: where what enters each is saved, backward recomputes them one
 * at a time, and else all at once, before it begins. It is saved in each iteration of a repeat, and all at
 * once is there but in one. */
static void save_entering(Remat *r) {
  bool *enters = ZB_NEWN(r->arena, bool, r->s->nvalues + 1);
  if (find_entering(r, enters) * r->s->trip > bytes_of_others(r)) return;
  for (uint32_t v = 0; v < r->s->nvalues; v++)
    if (enters[v]) r->decided[v] = SAVE;
}

static void decide_all(Remat *r) {
  const ZgSegment *s = r->s;
  const ZpVariant *v = &r->b->variant;
  for (uint32_t k = 0; k < v->nstash; k++)
    if (v->stash[k].segment == r->index) r->decided[v->stash[k].value] = SAVE;
  save_entering(r);
  for (uint32_t i = 0; i < s->nnodes; i++) { /* what cannot be recomputed is saved wherever it is used */
    const ZgNode *n = &s->nodes[i];
    for (int k = 0; i >= s->nforward && k < n->nin; k++)
      if (is_forward(s, n->in[k]) && !is_free(r, maker(s, n->in[k]))) decide(r, n->in[k]);
  }
  for (uint32_t i = s->nforward; i < s->nnodes; i++)
    for (int k = 0; k < s->nodes[i].nin; k++)
      if (is_forward(s, s->nodes[i].in[k])) decide(r, s->nodes[i].in[k]);
  if (r->b->o->supports) save_sums(r);
}

/* ---- values that are alike ----------------------------------------------------------------------------- */
static uint64_t mix(uint64_t h, uint64_t x) {
  h = (h ^ x) * 0x9e3779b97f4a7c15u;
  return h ^ h >> 29;
}

/* Returns a hash of what a node is, by itself: of parameters and random numbers not which. */
static uint64_t hash_node(const Remat *r, uint32_t i) {
  const ZgNode *n = &r->s->nodes[i];
  bool named = n->op == ZG_OP_PARAM || n->op == ZG_OP_PARAM_GRAD || n->op == ZG_OP_RANDOM;
  uint64_t h = mix(n->op, i < r->s->nforward ? 1 : 2);
  h = mix(mix(h, recomputes(r, n->region)), named ? 0 : (uint64_t)n->opt[0]);
  h = mix(h, named && n->op != ZG_OP_RANDOM ? 0 : (uint64_t)n->opt[1]);
  for (int k = 0; k < n->nax; k++) h = mix(h, n->ax[k]);
  for (int k = 0; k < 2; k++) {
    uint64_t bits;
    memcpy(&bits, &n->num[k], sizeof bits);
    h = mix(h, bits);
  }
  for (uint32_t v = n->out; v < n->out + n->nout; v++) {
    const ZgType *t = &r->s->values[v].type;
    h = mix(mix(h, t->elem), r->decided[v]);
    for (int k = 0; k < t->naxes; k++) h = mix(h, t->axis[k]);
  }
  return h;
}

/* Returns, by value, a hash of the nodes within STEPS of it, by operands and by readers. Layers of a segment
 * that are alike differ near its ends only. Two values with the same hash took and saved the same in all
 * examples; 5 steps are too few where a device fuses a norm and a sum (gemma3). If ever 8 are, what is stashed
 * fits, but is not best. */
static uint64_t *find_surroundings(const Remat *r) {
  enum { STEPS = 8 };
  const ZgSegment *s = r->s;
  uint64_t *node = ZB_NEWN(r->arena, uint64_t, s->nnodes + 1),
           *next = ZB_NEWN(r->arena, uint64_t, s->nnodes + 1),
           *value = ZB_NEWN(r->arena, uint64_t, s->nvalues + 1);
  for (uint32_t i = 0; i < s->nnodes; i++) node[i] = hash_node(r, i);
  for (int step = 0; step < STEPS; step++) {
    memcpy(next, node, s->nnodes * sizeof *next);
    for (uint32_t i = 0; i < s->nnodes; i++)
      for (int k = 0; k < s->nodes[i].nin; k++) {
        uint32_t v = s->nodes[i].in[k], from = s->values[v].node, which = v - s->nodes[from].out;
        next[i] += mix(mix(node[from], which), (uint64_t)k + 1);
        next[from] +=
            mix(mix(node[i], which), (uint64_t)k + 1 + ZG_MAX_IN); /* a sum: readers have no order */
      }
    for (uint32_t i = 0; i < s->nnodes; i++) node[i] = mix(next[i], 0);
  }
  for (uint32_t v = 0; v < s->nvalues; v++)
    value[v] = mix(node[s->values[v].node], v - s->nodes[s->values[v].node].out);
  return value;
}

/* Lists values that are recomputed, which nodes of forward and nodes of backward read from memory. What only
 * elementwise nodes read is made on the way. */
static void list_stashable(const Remat *r, ZpRemat *to) {
  bool *stored = ZB_NEWN(r->arena, bool, r->t->nvalues + 1);
  for (uint32_t i = 0; i < r->t->nnodes; i++) {
    const ZgNode *n = &r->t->nodes[i];
    for (int k = 0; k < n->nin && zg_op_info[n->op].kind != ZG_EW; k++) stored[n->in[k]] = true;
  }
  const uint64_t *around = find_surroundings(r);
  for (uint32_t v = 0; v < r->s->nvalues; v++) {
    const ZgNode *n = maker(r->s, v);
    if (r->copied[v] == ZG_NONE || !stored[r->copied[v]] || !stored[r->forward[v]]) continue;
    if (zg_op_info[n->op].kind != ZG_EW || recomputes(r, n->region) || is_brief(r, v)) continue;
    ZpStash stash = {.segment = r->index,
                     .value = v,
                     .type = r->s->values[v].type,
                     .loc = n->loc,
                     .surroundings = around[v]};
    ZB_PUSH(r->arena, to->stashable, to->nstashable, stash);
  }
}

static uint32_t append(Remat *r, const ZgNode *n, const uint32_t *in, bool recomputed) {
  ZgNode m = *n;
  memcpy(m.in, in, sizeof m.in);
  m.out = r->t->nvalues;
  for (int i = 0; i < n->nout; i++) {
    ZgValue v = {r->s->values[n->out + (uint32_t)i].type, r->t->nnodes};
    ZB_PUSH(r->arena, r->t->values, r->t->nvalues, v);
  }
  ZB_PUSH(r->arena, r->recomputed, r->nrecomputed, recomputed);
  ZB_PUSH(r->arena, r->t->nodes, r->t->nnodes, m);
  return m.out;
}

/* Returns the backward pass's version of forward value v. */
static uint32_t resolve(Remat *r, uint32_t v) {
  const ZgNode *n = maker(r->s, v);
  if (is_source(n) || r->decided[v] == SAVE) return r->forward[v];
  if (r->copied[v] != ZG_NONE) return r->copied[v];
  if (!is_free(r, n)) return r->forward[v];
  uint32_t in[ZG_MAX_IN] = {0};
  for (int i = 0; i < n->nin; i++) in[i] = resolve(r, n->in[i]);
  bool recomputed = recomputes(r, n->region) || is_brief(r, v) || r->follows[n->out];
  uint32_t out = append(r, n, in, recomputed && zg_op_info[n->op].kind != ZG_EW);
  for (int i = 0; i < n->nout; i++) r->copied[n->out + (uint32_t)i] = out + (uint32_t)i;
  return r->copied[v];
}

/* Which nodes of a segment are needed for themselves, and not for what is made of them. */
typedef struct {
  const ZpPlan *p;
  const ZpCotangents *c;
} Roots;

/* Removes nodes whose results nothing needs. `recomputed` is compacted along. */
static void sweep(ZbArena *a, ZgSegment *t, bool *recomputed, bool (*root)(const Roots *, const ZgNode *),
                  const Roots *of) {
  bool *live = ZB_NEWN(a, bool, t->nvalues + 1);
  bool *stay = ZB_NEWN(a, bool, t->nnodes);
  for (uint32_t i = t->nnodes; i-- > 0;) {
    const ZgNode *n = &t->nodes[i];
    bool need = zg_op_info[n->op].kind == ZG_SINK && root(of, n);
    for (int k = 0; k < n->nout; k++) need |= live[n->out + (uint32_t)k];
    stay[i] = need;
    for (int k = 0; need && k < n->nin; k++) live[n->in[k]] = true;
  }
  uint32_t *map = ZB_NEWN(a, uint32_t, t->nvalues + 1), nn = 0, nv = 0, nf = 0;
  for (uint32_t i = 0; i < t->nnodes; i++) {
    ZgNode n = t->nodes[i];
    if (i == t->nforward) nf = nn;
    if (!stay[i]) continue;
    for (int k = 0; k < n.nin; k++) n.in[k] = map[n.in[k]];
    for (int k = 0; k < n.nout; k++) {
      ZgValue v = t->values[n.out + (uint32_t)k];
      map[n.out + (uint32_t)k] = nv;
      v.node = nn;
      t->values[nv++] = v;
    }
    n.out = nv - n.nout;
    if (recomputed) recomputed[nn] = recomputed[i];
    t->nodes[nn++] = n;
  }
  if (t->nforward == t->nnodes) nf = nn;
  t->nnodes = nn;
  t->nforward = nf;
  t->nvalues = nv;
}

static bool wanted(const Roots *r, const ZgNode *n) {
  bool back = n->op == ZG_OP_PARAM_GRAD || n->op == ZG_OP_DCARRY_IN;
  return back ? zp_wants_gradient(r->p, r->c, n) : n->op != ZG_OP_OUTPUT || r->p->asked.outputs;
}
static bool run(const Roots *r, const ZgNode *n) { return n->op != ZG_OP_LOSS_DEN && wanted(r, n); }
static bool counted(const Roots *r, const ZgNode *n) {
  (void)r;
  return n->op == ZG_OP_LOSS_DEN;
}

static ZgSegment *copy_of(ZbArena *a, const ZgSegment *s) {
  ZgSegment *t = ZB_NEW(a, ZgSegment);
  *t = *s;
  t->nodes = ZB_NEWN(a, ZgNode, t->nnodes);
  t->values = ZB_NEWN(a, ZgValue, t->nvalues + 1);
  if (t->nnodes) memcpy(t->nodes, s->nodes, t->nnodes * sizeof *t->nodes);
  if (t->nvalues) memcpy(t->values, s->values, t->nvalues * sizeof *t->values);
  return t;
}

/* Removes what serves frozen parameters alone, before it is decided what to save. */
static const ZgSegment *without_frozen(const ZpBuild *b, const ZgSegment *s, const Roots *of) {
  if (!b->p->asked.frozen) return s;
  ZgSegment *t = copy_of(b->p->arena, s);
  sweep(b->p->arena, t, NULL, wanted, of);
  return t;
}

ZpRemat zp_remat(const ZpBuild *b, uint32_t index) {
  ZbArena *a = b->p->arena;
  const Roots roots = {b->p, &b->p->layout.cotangents[index]};
  const ZgSegment *s = without_frozen(b, &b->p->graph->segments[index], &roots);
  ZgSegment *t = ZB_NEW(a, ZgSegment);
  *t = *s;
  t->nodes = NULL;
  t->values = NULL;
  t->nnodes = t->nvalues = t->nforward = 0;
  Remat r = {.b = b, .arena = a, .index = index, .s = s, .t = t};
  r.decided = ZB_NEWN(a, uint8_t, s->nvalues + 1);
  r.forward = ZB_NEWN(a, uint32_t, s->nvalues + 1);
  r.copied = ZB_NEWN(a, uint32_t, s->nvalues + 1);
  r.stamp = ZB_NEWN(a, uint32_t, s->nvalues + 1);
  r.needs = ZB_NEWN(a, bool, s->nvalues + 1);
  r.pending = ZB_NEWN(a, bool, s->nvalues + 1);
  r.follows = ZB_NEWN(a, bool, s->nvalues + 1);
  memset(r.copied, 0xff, s->nvalues * sizeof *r.copied);

  find_followers(&r);
  decide_all(&r);

  for (uint32_t i = 0; i < s->nnodes; i++) {
    const ZgNode *n = &s->nodes[i];
    uint32_t in[ZG_MAX_IN] = {0};
    if (i == s->nforward) t->nforward = t->nnodes;
    for (int k = 0; k < n->nin; k++)
      in[k] = i >= s->nforward && is_forward(s, n->in[k]) ? resolve(&r, n->in[k]) : r.forward[n->in[k]];
    uint32_t out = append(&r, n, in, false);
    for (int k = 0; k < n->nout; k++) r.forward[n->out + (uint32_t)k] = out + (uint32_t)k;
  }
  if (s->nforward == s->nnodes) t->nforward = t->nnodes;
  ZpRemat to = {.s = t};
  list_stashable(&r, &to);
  sweep(a, t, r.recomputed, run, &roots);
  to.recomputed = r.recomputed;
  return to;
}

ZgSegment *zp_count_segment(const ZpBuild *b, const ZgSegment *s) {
  ZbArena *a = b->p->arena;
  ZgSegment *t = copy_of(a, s);
  t->nnodes = t->nforward;
  sweep(a, t, NULL, counted, NULL);
  return t;
}

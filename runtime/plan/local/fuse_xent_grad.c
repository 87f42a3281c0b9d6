/* Cross-entropy makes the gradient of its logits with its sums, where the device does all of it in one
 * call. What a logit's gradient is scaled by is known in forward: by then the denominators have been
 * counted. So a row of logits comes from memory once, and its gradient, which takes its place, goes
 * there once; backward finds that where it would have found the logits.
 *
 * Needs sharded lists, before anything is fused or placed, and provides the same: peak, xent_sums and
 * xent_grad become xent_sums_grad where the sums were, and the elementwise nodes of backward that make
 * the scale move in front of it. That is in forward; or in backward, where the logits are made again
 * there.
 *
 * Everything stays as it is where the vocabulary is split, so that ranks agree on the maximum and the
 * sum first; where somebody else reads the logits; and where the scale is no g of g / s and -g, or needs
 * what comes from a later segment.
 *
 * Example: m = peak[v](z); s, p = xent_sums[v](z, m, t), of forward,
 * and g = seed known(t); dz = xent_grad[v](z, m, t, g / s, -g), of backward,
 * become g = seed known(t); dz, s, p, m = xent_sums_grad[v](z, t, g), of forward. */
#include "runtime/plan/local/lower.h"

#include <string.h>

/* Where a value is made; node ZP_NONE: nowhere, or it is the count's. */
typedef struct {
  ZpPhase phase;
  uint32_t node;
} Place;

typedef struct {
  ZpLocal *c;
  ZpSegment *s;
  ZbArena *tmp;
  Place *made;     /* by value */
  uint32_t *reads; /* by value: how often nodes of both lists read it */
} Pass;

/* The nodes that are fused, as indices in their lists, and the scale. */
typedef struct {
  ZpPhase phase; /* of peak and sums; the others are backward's */
  uint32_t peak, sums, grad, divide, negate;
  uint32_t g;
} Match;

static ZpList *list(const Pass *x, ZpPhase phase) { return &x->s->list[phase]; }
static const ZpValue *value(const Pass *x, uint32_t v) { return &x->s->values[v]; }

static void find(Pass *x) {
  x->made = ZB_NEWN(x->tmp, Place, x->s->nvalues + 1);
  x->reads = ZB_NEWN(x->tmp, uint32_t, x->s->nvalues + 1);
  for (uint32_t v = 0; v < x->s->nvalues; v++) x->made[v].node = ZP_NONE;
  for (ZpPhase phase = ZP_FWD; phase <= ZP_BWD; phase++)
    for (uint32_t i = 0; i < list(x, phase)->n; i++) {
      const ZpNode *n = &list(x, phase)->nodes[i];
      for (int k = 0; k < n->call.nout; k++) x->made[n->out[k]] = (Place){phase, i};
      for (int k = 0; k < n->call.nin; k++) x->reads[n->in[k]]++;
    }
}

/* Returns the node that makes v, if it is one of that op, in that phase, on this rank alone and outside of
 * rounds. */
static const ZpNode *made_by(const Pass *x, uint32_t v, uint16_t op, ZpPhase phase) {
  Place at = x->made[v];
  if (at.node == ZP_NONE || at.phase != phase) return NULL;
  const ZpNode *n = &list(x, phase)->nodes[at.node];
  return n->call.op == op && !n->dims && !n->rounds ? n : NULL;
}

static bool along_same(const ZpNode *a, const ZpNode *b) {
  return a->call.nax == 1 && b->call.nax == 1 && a->call.ax[0] == b->call.ax[0] &&
         a->call.opt[1] == b->call.opt[1];
}

static bool read_between(const Pass *x, const Match *m, uint32_t v) {
  for (uint32_t i = m->peak + 1; i < m->sums; i++)
    if (zp_reads(&list(x, m->phase)->nodes[i], v)) return true;
  return false;
}

/* Finds the nodes that backward node i, a gradient of cross-entropy, can be fused with. Returns false if
 * there are none. */
static bool match(const Pass *x, uint32_t i, Match *m) {
  const ZpNode *k = &list(x, ZP_BWD)->nodes[i];
  if (k->call.op != ZG_OP_XENT_GRAD || !made_by(x, k->out[0], ZG_OP_XENT_GRAD, ZP_BWD)) return false;
  const ZpNode *divide = made_by(x, k->in[3], ZG_OP_DIV, ZP_BWD),
               *negate = made_by(x, k->in[4], ZG_OP_NEG, ZP_BWD);
  if (!divide || !negate || divide->in[0] != negate->in[0]) return false;
  uint32_t z = k->in[0], max = k->in[1], sum = divide->in[1];
  m->phase = x->made[max].phase;
  const ZpNode *peak = made_by(x, max, ZG_OP_PEAK, m->phase),
               *sums = made_by(x, sum, ZG_OP_XENT_SUMS, m->phase);
  if (!peak || !sums || peak->in[0] != z || sums->in[0] != z || sums->in[1] != max ||
      sums->in[2] != k->in[2] || sums->out[0] != sum || !along_same(sums, peak) || !along_same(sums, k))
    return false;
  m->peak = x->made[max].node, m->sums = x->made[sum].node, m->grad = i;
  m->divide = x->made[k->in[3]].node, m->negate = x->made[k->in[4]].node;
  m->g = divide->in[0];
  return !read_between(x, m, max);
}

/* Returns whether the three alone read the logits, whose place the gradient can take, and which are not
 * carried in; and all numbers are what the three would have made of them. */
static bool fits(const Pass *x, const Match *m) {
  const ZpNode *k = &list(x, ZP_BWD)->nodes[m->grad];
  const ZpValue *z = value(x, k->in[0]), *dz = value(x, k->out[0]), *g = value(x, m->g),
                *s = value(x, list(x, m->phase)->nodes[m->sums].out[0]);
  Place from = x->made[k->in[0]];
  if (x->reads[k->in[0]] != 3 || x->reads[k->in[3]] != 1 || x->reads[k->in[4]] != 1) return false;
  if (from.node == ZP_NONE || from.phase != m->phase ||
      zp_is_kind(&list(x, from.phase)->nodes[from.node], ZG_SOURCE))
    return false;
  bool free = z->at.space == ZP_AT_NOWHERE && dz->at.space == ZP_AT_NOWHERE;
  bool exact = value(x, k->in[1])->elem == z->elem && g->elem == ZK_F32 && s->elem == ZK_F32;
  bool alike = zp_same_layout(z, dz) && zp_same_space(g, s);
  for (int d = 0; d < x->c->p->layout.mesh.ndims; d++) {
    alike &= z->state[d].kind == dz->state[d].kind && z->state[d].axis == dz->state[d].axis;
    alike &= g->state[d].kind == s->state[d].kind && g->state[d].axis == s->state[d].axis;
    exact &= s->state[d].kind != 'P';
  }
  return free && exact && alike;
}

/* ---- the scale ----------------------------------------------------------------------------------------- */
/* Returns whether v is there before the sums, or can be: of elementwise nodes of backward, which are then
 * marked. What is taken in from the next segment is there in backward alone. */
static bool can_be_there(const Pass *x, const Match *m, uint32_t v, bool *moves) {
  Place at = x->made[v];
  if (at.node == ZP_NONE) return false;
  const ZpNode *n = &list(x, at.phase)->nodes[at.node];
  if (zp_is_kind(n, ZG_SOURCE)) return n->call.op != ZG_OP_DCARRY || m->phase == ZP_BWD;
  if (at.phase == ZP_FWD && m->phase == ZP_BWD) return true;
  if (at.phase == m->phase && at.node < m->sums) return true;
  if (at.phase != ZP_BWD || !zp_is_kind(n, ZG_EW) || n->dims || n->rounds || n->call.accumulate ||
      value(x, v)->at.space != ZP_AT_NOWHERE)
    return false;
  if (moves[at.node]) return true;
  for (int k = 0; k < n->call.nin; k++)
    if (!can_be_there(x, m, n->in[k], moves)) return false;
  return moves[at.node] = true;
}

/* Returns which of those backward still needs, for somebody else: they stay there, too. So nothing is saved
 * for backward that was not before. */
static bool *find_stays(const Pass *x, const Match *m, const bool *moves) {
  const ZpList *l = list(x, ZP_BWD);
  bool *stays = ZB_NEWN(x->tmp, bool, l->n);
  for (uint32_t q = l->n; m->phase == ZP_FWD && q-- > 0;)
    for (uint32_t i = q + 1; moves[q] && i < l->n; i++) {
      bool gone = i == m->grad || i == m->divide || i == m->negate || (moves[i] && !stays[i]);
      stays[q] |= !gone && zp_reads(&l->nodes[i], l->nodes[q].out[0]);
    }
  return stays;
}

/* ---- the pass ------------------------------------------------------------------------------------------ */
static ZpNode fused(const Pass *x, const Match *m, uint32_t g) {
  const ZpNode *sums = &list(x, m->phase)->nodes[m->sums], *grad = &list(x, ZP_BWD)->nodes[m->grad];
  ZpNode to = *sums;
  to.call.op = ZG_OP_XENT_SUMS_GRAD, to.call.nin = 3, to.call.nout = 4;
  to.in[0] = grad->in[0], to.in[1] = grad->in[2], to.in[2] = g;
  to.out[0] = grad->out[0], to.out[1] = sums->out[0], to.out[2] = sums->out[1], to.out[3] = grad->in[1];
  return to;
}

/* Returns the nodes that make the scale and, last, what all becomes. Of what stays in backward it is copies,
 * which make values of their own. */
static ZpNode *make(Pass *x, const Match *m, const bool *moves, const bool *stays, uint32_t *n) {
  const ZpList *l = list(x, ZP_BWD);
  uint32_t *now = ZB_NEWN(x->tmp, uint32_t, x->s->nvalues);
  ZpNode *to = ZB_NEWN(x->tmp, ZpNode, l->n + 1);
  *n = 0;
  for (uint32_t v = 0; v < x->s->nvalues; v++) now[v] = v;
  for (uint32_t q = 0; q < l->n; q++) {
    if (!moves[q]) continue;
    ZpNode *k = &to[(*n)++];
    *k = l->nodes[q];
    for (int j = 0; j < k->call.nin; j++) k->in[j] = now[k->in[j]];
    if (!stays[q]) continue;
    ZpValue copy = *value(x, k->out[0]);
    now[k->out[0]] = x->s->nvalues;
    k->out[0] = x->s->nvalues;
    ZB_PUSH(x->c->p->arena, x->s->values, x->s->nvalues, copy);
  }
  to[(*n)++] = fused(x, m, now[m->g]);
  return to;
}

/* The phase's list without what has become one, and with that. */
static void rewrite(const Pass *x, const Match *m, ZpPhase phase, const bool *gone, const ZpNode *made,
                    uint32_t nmade) {
  ZpList *l = list(x, phase);
  bool here = phase == m->phase;
  ZpNode *nodes = ZB_NEWN(x->c->p->arena, ZpNode, l->n + nmade);
  uint32_t n = 0;
  for (uint32_t i = 0; i < l->n; i++) {
    for (uint32_t q = 0; here && i == m->sums && q < nmade; q++) nodes[n++] = made[q];
    if ((here && (i == m->peak || i == m->sums)) || (phase == ZP_BWD && gone[i])) continue;
    nodes[n++] = l->nodes[i];
  }
  l->nodes = nodes, l->n = n;
}

static bool fuse(Pass *x, uint32_t i) {
  Match m;
  uint32_t n;
  if (!match(x, i, &m) || !fits(x, &m)) return false;
  bool *moves = ZB_NEWN(x->tmp, bool, list(x, ZP_BWD)->n);
  if (!can_be_there(x, &m, m.g, moves)) return false;
  ZpNode one = fused(x, &m, m.g);
  zp_views(x->c->p, x->s, &one);
  if (!x->c->b->o->supports(&one.call)) return false;
  const bool *stays = find_stays(x, &m, moves);
  const ZpNode *made = make(x, &m, moves, stays, &n);
  for (uint32_t q = 0; q < list(x, ZP_BWD)->n; q++) moves[q] &= !stays[q]; /* and is gone from there */
  moves[m.grad] = moves[m.divide] = moves[m.negate] = true;
  if (m.phase == ZP_FWD) rewrite(x, &m, ZP_FWD, moves, made, n);
  rewrite(x, &m, ZP_BWD, moves, made, n);
  return true;
}

void zp_fuse_xent_grad(ZpLocal *c) {
  Pass x = {.c = c, .s = c->s};
  if (!c->b->o->supports) return;
  x.tmp = zb_arena_new();
  find(&x);
  for (uint32_t i = 0; i < list(&x, ZP_BWD)->n; i++)
    if (fuse(&x, i)) find(&x), i = ZP_NONE; /* the list is another */
  zb_arena_free(x.tmp);
}

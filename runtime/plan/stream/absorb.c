/* Latent attention: what is cached is what keys and values are made of. Where k = W c and v = W2 c, position
 * by position,
 *
 *   q . (W c) = (W' q) . c          sum_j p_j (W2 c_j) = W2 (sum_j p_j c_j)
 *
 * so queries go through W, attention has one key for all heads, of which its values are a part, and its
 * result goes through W2. Keys may be joined of pieces, each made by a parameter that has the heads, or the same for
 * all. All of it is operations that a model could have, so that nothing behind this knows of it. Decode reads
 * the cache, so only where a token then takes a quarter or less. */
#include "runtime/plan/stream/derive.h"

#include <string.h>

enum { SMALLER = 4, PIECES = 8 };

/* A piece of keys: narrow, without heads, and what makes it wide. */
typedef struct {
  uint32_t narrow, weight; /* weight ZG_NONE: it is repeated */
  uint16_t axis;           /* of its numbers */
} Piece;

typedef struct {
  ZbArena *a;
  ZgGraph *g; /* rewritten */
  const ZgStream *along;
  ZgSegment *s;  /* of g: values are the model's, and new ones behind them */
  ZgNode *nodes; /* that it will have */
  uint32_t nnodes;
  ZgType heads; /* axes of the keys at hand but batch, time and features */
  bool fits;    /* all new nodes so far */
} Absorb;

static const ZgNode *maker(const Absorb *x, uint32_t v) { return &x->s->nodes[x->s->values[v].node]; }
static const ZgType *type_of(const Absorb *x, uint32_t v) { return &x->s->values[v].type; }

static bool has_heads(const Absorb *x, uint32_t v) {
  for (int i = 0; i < x->heads.naxes; i++)
    if (zg_type_has(type_of(x, v), x->heads.axis[i])) return true;
  return false;
}

/* Says whether v is a product, along one axis, of a parameter that has the heads with what has none. */
static bool is_widened(const Absorb *x, uint32_t v, Piece *to) {
  const ZgNode *n = maker(x, v);
  if (n->op != ZG_OP_DOT || n->nax != 1) return false;
  for (int i = 0; i < 2; i++) {
    if (maker(x, n->in[i])->op != ZG_OP_PARAM || has_heads(x, n->in[1 - i])) continue;
    *to = (Piece){n->in[1 - i], n->in[i], n->ax[0]};
    return true;
  }
  return false;
}

/* The values that v is joined of along h, and their axes; of others, itself. */
static int parts_of(const Absorb *x, uint32_t v, uint16_t h, uint32_t *part, uint16_t *axis) {
  const ZgNode *n = maker(x, v);
  bool joined = n->op == ZG_OP_CONCAT && n->ax[0] == h;
  for (int i = 0; i < n->nin && joined; i++) part[i] = n->in[i], axis[i] = n->ax[i + 1];
  if (!joined) part[0] = v, axis[0] = h;
  return joined ? n->nin : 1;
}

static bool find_pieces(const Absorb *x, int n, const uint32_t *part, const uint16_t *axis, Piece *to) {
  for (int i = 0; i < n; i++) {
    const ZgNode *m = maker(x, part[i]);
    bool same = m->op == ZG_OP_BROADCAST && !has_heads(x, m->in[0]);
    if (same) to[i] = (Piece){m->in[0], ZG_NONE, axis[i]};
    else if (!is_widened(x, part[i], &to[i])) return false;
  }
  return true;
}

/* ---- rewriting ----------------------------------------------------------------------------------------- */
static void push(Absorb *x, ZgNode n) { ZB_PUSH(x->a, x->nodes, x->nnodes, n); }

/* Adds a node beside `at`, whose results are new values; returns the first. */
static uint32_t add(Absorb *x, const ZgNode *at, ZgNode n, int nin, const uint32_t *in) {
  ZgType types[ZG_MAX_IN], out[ZG_MAX_OUT] = {0};
  n.nin = (uint8_t)nin, n.nout = zg_op_info[n.op].nout;
  n.region = at->region, n.loc = at->loc;
  n.out = x->s->nvalues;
  for (int i = 0; i < nin; i++) n.in[i] = in[i], types[i] = *type_of(x, in[i]);
  x->fits &= zg_infer(x->g, &n, types, NULL, out, NULL);
  for (int i = 0; i < n.nout; i++) {
    ZgValue v = {out[i], x->nnodes};
    ZB_PUSH(x->a, x->s->values, x->s->nvalues, v);
  }
  push(x, n);
  return n.out;
}

static uint32_t product(Absorb *x, const ZgNode *at, uint16_t axis, uint32_t v, uint32_t weight) {
  return add(x, at, (ZgNode){.op = ZG_OP_DOT, .nax = 1, .ax = {axis}}, 2, (uint32_t[]){v, weight});
}

static uint32_t join(Absorb *x, const ZgNode *at, uint16_t to, const Piece *p, int n, const uint32_t *in) {
  ZgNode c = {.op = ZG_OP_CONCAT, .nax = (uint8_t)(n + 1), .ax = {to}};
  for (int i = 0; i < n; i++) c.ax[i + 1] = p[i].axis;
  return n == 1 ? in[0] : add(x, at, c, n, in);
}

/* Latent attention, and what it is made of. */
typedef struct {
  int n;
  Piece piece[PIECES], value;
  uint32_t query[PIECES];
  uint16_t axis[PIECES]; /* of the queries' pieces */
  int64_t narrow;        /* numbers of a token */
} Latent;

static bool find_latent(Absorb *x, const ZgNode *n, Latent *l) {
  ZgAttendAxes ax = zg_attend_axes(n->ax, n->nax);
  uint16_t not_heads[] = {x->along->batch, ax.k, ax.h}, key_axis[PIECES];
  uint32_t key[PIECES];
  int64_t wide = x->g->axes[ax.h].size + x->g->axes[ax.w].size;
  bool part = false;
  if (n->nin > 3 || !x->along->names[ax.q] || ax.k != ax.q) return false;
  x->heads = zg_type_minus(type_of(x, n->in[1]), not_heads, 3);
  l->n = parts_of(x, n->in[1], ax.h, key, key_axis);
  if (!x->heads.naxes || parts_of(x, n->in[0], ax.h, l->query, l->axis) != l->n) return false;
  if (memcmp(key_axis, l->axis, (size_t)l->n * sizeof *key_axis)) return false;
  if (!find_pieces(x, l->n, key, key_axis, l->piece) || !is_widened(x, n->in[2], &l->value)) return false;
  for (int i = 0; i < x->heads.naxes; i++) wide *= x->g->axes[x->heads.axis[i]].size;
  l->narrow = 0;
  for (int i = 0; i < l->n; i++) {
    l->narrow += x->g->axes[l->piece[i].axis].size;
    part |= l->piece[i].narrow == l->value.narrow && l->piece[i].weight != ZG_NONE;
  }
  return part && wide >= SMALLER * l->narrow;
}

static bool is_used(const ZgSegment *s, uint32_t v) {
  for (uint32_t i = 0; i < s->nforward; i++)
    for (int j = 0; j < s->nodes[i].nin; j++)
      if (s->nodes[i].in[j] == v) return true;
  return false;
}

/* Puts what does the same as attend n behind the nodes so far; false, and nothing, if it is not latent. */
static bool absorb(Absorb *x, const ZgNode *n) {
  Latent l;
  uint32_t before = x->nnodes, values = x->s->nvalues, q[PIECES], k[PIECES];
  if (n->op != ZG_OP_ATTEND || is_used(x->s, n->out + 1) || !find_latent(x, n, &l)) return false;
  ZgAttendAxes ax = zg_attend_axes(n->ax, n->nax);
  uint16_t joined = l.piece[0].axis;
  if (l.n > 1) {
    const char *name = zb_printf(x->a, "step.latent.%lld", (long long)l.narrow);
    uint32_t found = zg_axis_find(x->g, name);
    joined = (uint16_t)(found != ZG_NONE ? found : zg_axis_add(x->g, name, l.narrow));
  }
  x->fits = true;
  for (int i = 0; i < l.n; i++) {
    const Piece *p = &l.piece[i];
    q[i] = p->weight == ZG_NONE ? l.query[i] : product(x, n, l.axis[i], l.query[i], p->weight);
    k[i] = p->narrow;
  }
  uint32_t qkv[] = {join(x, n, joined, l.piece, l.n, q), join(x, n, joined, l.piece, l.n, k), l.value.narrow};
  ZgNode a = {.op = ZG_OP_ATTEND, .nax = 4, .ax = {ax.q, joined, ax.k, l.value.axis}};
  memcpy(a.num, n->num, sizeof a.num);
  memcpy(a.opt, n->opt, sizeof a.opt);
  uint32_t o = add(x, n, a, 3, qkv), out = product(x, n, l.value.axis, o, l.value.weight);
  x->fits &= zg_type_eq(type_of(x, out), type_of(x, n->out));
  x->nodes[x->nnodes - 1].out = n->out; /* in the place of the attend's */
  if (!x->fits) x->nnodes = before, x->s->nvalues = values;
  return x->fits;
}

/* Rewrites segment k, if it has latent attention. */
static bool absorb_segment(Absorb *x, uint32_t k) {
  const ZgSegment model = x->g->segments[k], *from = &model;
  ZgSegment copy = model;
  bool any = false;
  x->s = &copy;
  x->nodes = NULL, x->nnodes = 0;
  copy.values = NULL, copy.nvalues = 0;
  for (uint32_t i = 0; i < from->nvalues; i++) ZB_PUSH(x->a, copy.values, copy.nvalues, from->values[i]);
  for (uint32_t i = 0; i < from->nforward; i++) {
    bool latent = absorb(x, &from->nodes[i]);
    any |= latent;
    if (!latent) push(x, from->nodes[i]);
  }
  if (!any) return false;
  copy.nodes = x->nodes, copy.nnodes = copy.nforward = x->nnodes;
  for (uint32_t i = 0; i < x->nnodes; i++)
    for (uint32_t j = 0; j < x->nodes[i].nout; j++) copy.values[x->nodes[i].out + j].node = i;
  x->g->segments[k] = copy;
  return true;
}

const ZgGraph *zp_absorb(const ZgGraph *model, ZbArena *a, const ZgStream *along) {
  Absorb x = {.a = a, .along = along};
  bool any = false;
  ZgGraph *g = x.g = ZB_NEW(a, ZgGraph);
  *g = *model;
  g->arena = a;
  g->axes = NULL, g->naxes = 0;
  for (uint32_t i = 0; i < model->naxes; i++) ZB_PUSH(a, g->axes, g->naxes, model->axes[i]);
  g->segments = ZB_NEWN(a, ZgSegment, model->nsegments);
  for (uint32_t k = 0; k < model->nsegments; k++) {
    g->segments[k] = model->segments[k];
    any |= absorb_segment(&x, k);
  }
  return any ? g : model;
}

/* Makes a graph smaller without changing what it computes: folds constants, removes operations that do
 * nothing, shares equal nodes, drops nodes and carried positions that reach no sink.
 *
 * Needs and keeps a graph that verifies; every node keeps its region and place (a shared node those
 * of the first). Only exact rewrites: x*1, x+0 and the like, never a reassociation, so that a loss
 * curve does not depend on what was recognised here. No rewrite takes an axis away from a node that
 * can be split along it. */
#include "compiler/compiler.h"

#include <math.h>
#include <string.h>

/* ---- folding and sharing: one walk over a segment, which is built anew --------------------------------- */
typedef struct {
  ZgGraph *g;
  const ZgSegment *old;
  ZgSegment *s;    /* the segment in the making */
  uint32_t *map;   /* old value -> new value */
  uint32_t *table; /* hash table of nodes of s, ZG_NONE where empty; a power of two */
  uint32_t table_size;
} Fold;

static const ZgNode *maker(const Fold *f, uint32_t v) { return &f->s->nodes[f->s->values[v].node]; }
static const ZgType *type_of(const Fold *f, uint32_t v) { return &f->s->values[v].type; }
static bool is_float(ZgElem e) { return e == ZG_REAL || e == ZG_F32 || e == ZG_BF16 || e == ZG_F16; }

static bool constant(const Fold *f, uint32_t v, double *x) {
  const ZgNode *n = maker(f, v);
  if (n->op != ZG_OP_FILL || !is_float(type_of(f, v)->elem)) return false;
  *x = n->num[0];
  return true;
}
static bool is_constant(const Fold *f, uint32_t v, double x) {
  double y;
  return constant(f, v, &y) && y == x;
}

/* The number that an elementwise operation makes of numbers; false if f32 cannot hold it. */
static bool evaluate(ZgOp op, double a, double b, double *y) {
  *y = op == ZG_OP_CAST ? a : zg_pointwise(op, a, b, 0);
  return isfinite(*y) && fabs(*y) <= 3.4028234e38;
}

/* Turns `n` into a fill if all that it depends on is known. */
static void fold_constants(const Fold *f, ZgNode *n, const ZgType *t) {
  double a = 0, b = 0, y;
  if (n->op == ZG_OP_AXSIZE) {
    y = (double)f->g->axes[n->ax[0]].size;
    if (y == 0) return;
  } else {
    if (zg_op_info[n->op].kind != ZG_EW) return;
    if (n->nin < 1 || n->nin > 2 || t->naxes || !is_float(t->elem) || !constant(f, n->in[0], &a)) return;
    if (n->nin == 2 && !constant(f, n->in[1], &b)) return;
    if (!evaluate(n->op, a, b, &y)) return;
  }
  *n = (ZgNode){.op = ZG_OP_FILL, .num = {y}, .region = n->region, .loc = n->loc};
}

/* The operand that `n` equals, or ZG_NONE. */
/* Whether one merges just what the other parts. */
static bool inverse(const ZgNode *n, const ZgNode *m) {
  if (m->op != (n->op == ZG_OP_MERGE ? ZG_OP_PART : ZG_OP_MERGE) || m->nax != n->nax) return false;
  const ZgNode *merge = n->op == ZG_OP_MERGE ? n : m, *part = merge == n ? m : n;
  return merge->ax[0] == part->ax[part->nax - 1] &&
         !memcmp(merge->ax + 1, part->ax, (size_t)(part->nax - 1) * sizeof *part->ax);
}

static uint32_t identity(const Fold *f, const ZgNode *n, const ZgType *t) {
  uint32_t a = n->in[0], b = n->in[1], keep = ZG_NONE;
  const ZgNode *m;
  switch (n->op) {
  case ZG_OP_ADD:
    if (is_constant(f, a, 0)) keep = b;
    if (is_constant(f, b, 0)) keep = a;
    break;
  case ZG_OP_MUL:
    if (is_constant(f, a, 1)) keep = b;
    if (is_constant(f, b, 1)) keep = a;
    break;
  case ZG_OP_SUB: keep = is_constant(f, b, 0) ? a : ZG_NONE; break;
  case ZG_OP_DIV: keep = is_constant(f, b, 1) ? a : ZG_NONE; break;
  case ZG_OP_CAST:
  case ZG_OP_BROADCAST: keep = a; break;
  case ZG_OP_STOP: keep = f->old->backward ? a : ZG_NONE; break; /* it has served once differentiated */
  case ZG_OP_NEG:
    m = maker(f, a);
    if (m->op == ZG_OP_NEG) keep = m->in[0];
    break;
  case ZG_OP_RENAME:
    m = maker(f, a);
    if (m->op == ZG_OP_RENAME && m->ax[0] == n->ax[1] && m->ax[1] == n->ax[0]) keep = m->in[0];
    break;
  case ZG_OP_MERGE:
  case ZG_OP_PART:
    m = maker(f, a);
    if (inverse(n, m)) keep = m->in[0];
    break;
  default: break;
  }
  return keep != ZG_NONE && zg_type_eq(type_of(f, keep), t) ? keep : ZG_NONE;
}

/* Elementwise operations broadcast by themselves: an operand need not be repeated along axes that another
 * operand has. */
static void skip_broadcasts(const Fold *f, ZgNode *n, const ZgType *t) {
  if (zg_op_info[n->op].kind != ZG_EW || n->nin < 2) return;
  for (int i = 0; i < n->nin; i++) {
    if (maker(f, n->in[i])->op != ZG_OP_BROADCAST) continue;
    ZgNode with = *n;
    ZgType in[ZG_MAX_IN], out[ZG_MAX_OUT];
    with.in[i] = maker(f, n->in[i])->in[0];
    for (int k = 0; k < n->nin; k++) in[k] = *type_of(f, with.in[k]);
    if (zg_infer(f->g, &with, in, t, out, NULL) && zg_type_eq(&out[0], t)) *n = with;
  }
}

/* What two equal nodes have in common, apart from their result type. */
typedef struct {
  uint32_t op, in[ZG_MAX_IN], ax[ZG_MAX_AXARG];
  uint32_t counts; /* how many of each */
  double num[2];
  int64_t opt[2];
} Key;

static Key key_of(const ZgNode *n) {
  Key k;
  memset(&k, 0, sizeof k); /* padding too: keys are compared as bytes */
  k.op = n->op;
  k.counts = (uint32_t)n->nin << 8 | n->nax;
  for (int i = 0; i < n->nin; i++) k.in[i] = n->in[i];
  for (int i = 0; i < n->nax; i++) k.ax[i] = n->ax[i];
  if (zg_op_info[n->op].commutes && k.in[0] > k.in[1]) {
    k.in[0] = n->in[1];
    k.in[1] = n->in[0];
  }
  memcpy(k.num, n->num, sizeof k.num);
  memcpy(k.opt, n->opt, sizeof k.opt);
  return k;
}

static uint32_t hash_of(const Key *k) {
  uint64_t h = 0, word;
  for (size_t i = 0; i + sizeof word <= sizeof *k; i += sizeof word) {
    memcpy(&word, (const char *)k + i, sizeof word);
    h = zb_mix64(h ^ word);
  }
  return (uint32_t)h;
}

/* The place in the table of a node equal to `n` with a first result of type `t`, or the empty place for
 * it. */
static uint32_t *find_equal(Fold *f, const ZgNode *n, const ZgType *t) {
  Key k = key_of(n);
  for (uint32_t i = hash_of(&k);; i++) {
    uint32_t *at = &f->table[i & (f->table_size - 1)];
    if (*at == ZG_NONE) return at;
    const ZgNode *m = &f->s->nodes[*at];
    Key other = key_of(m);
    if (!memcmp(&k, &other, sizeof k) && zg_type_eq(type_of(f, m->out), t)) return at;
  }
}

/* A sum over onehot without weights counts: over axes whose sizes the model says, the node itself does.
 * Numbers of choices are exact in any order. What is left to sum, if anything, is `n`; else it becomes the
 * node. */
static void count_choices(Fold *f, ZgNode *n) {
  if (n->op != ZG_OP_SUM) return;
  ZgNode count = *maker(f, n->in[0]), rest = *n;
  if (count.op != ZG_OP_ONEHOT || count.nin > 1) return;
  const ZgType *ids = type_of(f, count.in[0]);
  rest.nax = 0;
  for (int i = 0; i < n->nax; i++) {
    bool here = f->g->axes[n->ax[i]].size && zg_type_has(ids, n->ax[i]) && count.nax < ZG_MAX_AXARG;
    if (here) count.ax[count.nax++] = n->ax[i];
    else rest.ax[rest.nax++] = n->ax[i];
  }
  if (rest.nax == n->nax) return;
  for (int i = rest.nax; i < ZG_MAX_AXARG; i++) rest.ax[i] = 0;
  if (rest.nax) rest.in[0] = zg_node_add(f->g, f->s, count, NULL);
  *n = rest.nax ? rest : count;
}

static void rewrite_node(Fold *f, const ZgNode *from) {
  ZgNode n = *from;
  for (int i = 0; i < n.nin; i++) n.in[i] = f->map[n.in[i]];
  if (n.nout == 0) {
    zg_node_add(f->g, f->s, n, NULL);
    return;
  }
  ZgType t = f->old->values[from->out].type;
  skip_broadcasts(f, &n, &t);
  count_choices(f, &n);
  fold_constants(f, &n, &t);
  uint32_t v = identity(f, &n, &t);
  if (v == ZG_NONE) {
    uint32_t *at = find_equal(f, &n, &t);
    if (*at == ZG_NONE) {
      *at = f->s->nnodes;
      v = zg_node_add(f->g, f->s, n, &t);
    } else v = f->s->nodes[*at].out;
  }
  for (uint32_t i = 0; i < from->nout; i++) {
    f->map[from->out + i] = v + i;
    ZB_ASSERT(zg_type_eq(type_of(f, v + i), &f->old->values[from->out + i].type));
  }
}

static ZgSegment emptied(const ZgSegment *s) {
  ZgSegment e = *s;
  e.nodes = NULL;
  e.values = NULL;
  e.nnodes = e.nforward = e.nvalues = 0;
  e.backward = false;
  return e;
}

static void fold_segment(ZgGraph *g, ZgSegment *s, ZbArena *tmp) {
  ZgSegment fresh = emptied(s);
  Fold f = {g, s, &fresh, ZB_NEWN(tmp, uint32_t, s->nvalues + 1), NULL, 16};
  while (f.table_size < 2 * s->nnodes) f.table_size *= 2;
  f.table = ZB_NEWN(tmp, uint32_t, f.table_size);
  memset(f.table, 0xff, f.table_size * sizeof *f.table);
  for (uint32_t i = 0; i < s->nnodes; i++) {
    fresh.backward = i >= s->nforward;
    rewrite_node(&f, &s->nodes[i]);
  }
  fresh.backward = s->backward;
  *s = fresh;
}

/* ---- dropping: what reaches no sink, over all segments ------------------------------------------------- */
typedef struct {
  bool *node;         /* by node: reaches a sink that stays */
  bool *value;        /* by value: used by such a node */
  bool *need, *dneed; /* by position carried out: the value, its cotangent is needed by somebody */
} Live;

/* Must the sink or source stay because of what neighbours need? */
static bool kept(const Live *live, uint32_t si, bool backward, const ZgNode *n) {
  int64_t k = n->opt[0];
  switch (n->op) {
  case ZG_OP_CARRY_OUT: return live[si].need[k];
  case ZG_OP_DCARRY: return live[si].dneed[k];
  case ZG_OP_DCARRY_IN: return live[si - 1].dneed[k];
  case ZG_OP_MEASURE: return !backward; /* it has served, as stop */
  default: return zg_op_info[n->op].kind == ZG_SINK;
  }
}

static bool set_flag(bool *flag) {
  bool was = *flag;
  *flag = true;
  return !was;
}

/* Marks what is needed within segment `si` and says so to its neighbours; true if anything is new to them. */
static bool mark_segment(const ZgGraph *g, Live *live, uint32_t si) {
  const ZgSegment *s = &g->segments[si];
  Live *l = &live[si];
  bool news = false;
  for (uint32_t i = s->nnodes; i-- > 0;) {
    const ZgNode *n = &s->nodes[i];
    bool need = kept(live, si, s->backward, n);
    for (int k = 0; k < n->nout; k++) need |= l->value[n->out + k];
    if (!need) continue;
    l->node[i] = true;
    for (int k = 0; k < n->nin; k++) l->value[n->in[k]] = true;
    if (n->op == ZG_OP_CARRY) news |= set_flag(&live[si - 1].need[n->opt[0]]);
    if (n->op == ZG_OP_DCARRY) news |= set_flag(&l->dneed[n->opt[0]]);
  }
  /* a repeat carries out what it carries in, and has cotangents for the same positions on both sides */
  for (uint32_t k = 0; s->repeat && k < s->ncarry_in; k++) {
    if (l->need[k]) news |= set_flag(&live[si - 1].need[k]);
    if (live[si - 1].need[k]) news |= set_flag(&l->need[k]);
    if (l->dneed[k]) news |= set_flag(&live[si - 1].dneed[k]);
    if (live[si - 1].dneed[k]) news |= set_flag(&l->dneed[k]);
  }
  for (uint32_t k = 0; k < s->ncarry_out; k++)
    if (l->dneed[k]) news |= set_flag(&l->need[k]);
  return news;
}

/* Keeps the positions that are needed; returns their new number. */
static uint32_t keep_positions(ZbArena *a, const ZgType *types, uint32_t n, const bool *need, ZgType **out) {
  uint32_t m = 0;
  *out = ZB_NEWN(a, ZgType, n);
  for (uint32_t k = 0; k < n; k++)
    if (need[k]) (*out)[m++] = types[k];
  return m;
}

/* By old position the new one. */
static int64_t *positions_now(ZbArena *tmp, const bool *need, uint32_t n) {
  int64_t *now = ZB_NEWN(tmp, int64_t, n + 1), m = 0;
  for (uint32_t k = 0; k < n; k++) {
    now[k] = m;
    m += need[k];
  }
  return now;
}

static void drop_from_segment(ZgGraph *g, const Live *live, uint32_t si, ZbArena *tmp) {
  ZgSegment *s = &g->segments[si];
  const Live *l = &live[si];
  ZgSegment fresh = emptied(s);
  const bool *need_in = si ? live[si - 1].need : NULL;
  if (si) fresh.ncarry_in = keep_positions(g->arena, s->carry_in, s->ncarry_in, need_in, &fresh.carry_in);
  fresh.ncarry_out = keep_positions(g->arena, s->carry_out, s->ncarry_out, l->need, &fresh.carry_out);
  const int64_t *now_in = positions_now(tmp, need_in, s->ncarry_in),
                *now_out = positions_now(tmp, l->need, s->ncarry_out);
  uint32_t *map = ZB_NEWN(tmp, uint32_t, s->nvalues + 1);
  for (uint32_t i = 0; i < s->nnodes; i++) {
    fresh.backward = i >= s->nforward;
    if (!l->node[i]) continue;
    ZgNode n = s->nodes[i];
    for (int k = 0; k < n.nin; k++) n.in[k] = map[n.in[k]];
    if (n.op == ZG_OP_CARRY || n.op == ZG_OP_DCARRY_IN) n.opt[0] = now_in[n.opt[0]];
    if (n.op == ZG_OP_CARRY_OUT || n.op == ZG_OP_DCARRY) n.opt[0] = now_out[n.opt[0]];
    uint32_t v = zg_node_add(g, &fresh, n, n.nout ? &s->values[n.out].type : NULL);
    for (uint32_t k = 0; k < n.nout; k++) map[n.out + k] = v + k;
  }
  fresh.backward = s->backward;
  *s = fresh;
}

static void drop_dead(ZgGraph *g, ZbArena *tmp) {
  Live *live = ZB_NEWN(tmp, Live, g->nsegments);
  for (uint32_t i = 0; i < g->nsegments; i++) {
    const ZgSegment *s = &g->segments[i];
    live[i] = (Live){ZB_NEWN(tmp, bool, s->nnodes + 1), ZB_NEWN(tmp, bool, s->nvalues + 1),
                     ZB_NEWN(tmp, bool, s->ncarry_out + 1), ZB_NEWN(tmp, bool, s->ncarry_out + 1)};
  }
  for (bool news = true; news;) {
    news = false;
    for (uint32_t i = g->nsegments; i-- > 0;) news |= mark_segment(g, live, i);
    for (uint32_t i = 0; i < g->nsegments; i++) news |= mark_segment(g, live, i);
  }
  for (uint32_t i = 0; i < g->nsegments; i++) drop_from_segment(g, live, i, tmp);
}

void zc_simplify(ZgGraph *g) {
  ZbArena *tmp = zb_arena_new();
  for (uint32_t i = 0; i < g->nsegments; i++) fold_segment(g, &g->segments[i], tmp);
  drop_dead(g, tmp);
  zb_arena_free(tmp);
}

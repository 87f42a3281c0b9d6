/* A local program on residues: every value on every rank, node by node. */
#include <string.h>

#include "runtime/plan/meaning/meaning.h"

/* ---- parts --------------------------------------------------------------------------------------------- */
Part zp_part(const Eval *e, const ZpValue *v, int rank) {
  Part x = {.naxes = v->type.naxes, .axis = v->axis, .size = v->size, .elements = 1};
  for (int a = 0; a < x.naxes; a++) {
    ZpPiece piece[ZP_PIECES];
    x.to[a] = ZB_NEWN(e->a, int64_t, v->size[a] + 1);
    x.elements *= v->size[a];
    for (int k = zp_view_pieces(&e->w->mesh, v, rank, v->axis[a], v->size[a], piece); k-- > 0;)
      for (int64_t i = 0; i < piece[k].n; i++) x.to[a][piece[k].from + i] = piece[k].to + i;
  }
  return x;
}

int64_t zp_whole_place(const Eval *e, const Part *x, const ZgType *t, int64_t i) {
  int64_t at[ZG_MAX_AXES], place = 0;
  for (int a = x->naxes; a-- > 0; i /= x->size[a]) at[a] = x->to[a][i % x->size[a]];
  for (int k = 0; k < t->naxes; k++) {
    int a = 0;
    while (x->axis[a] != t->axis[k]) a++;
    if (at[a] >= e->w->whole[t->axis[k]]) return -1;
    place = place * e->w->whole[t->axis[k]] + at[a];
  }
  return place;
}

int64_t zp_local_elements(const Eval *e, uint32_t v) {
  int64_t n = 1;
  for (int a = 0; a < e->v[v].type.naxes; a++) n *= e->v[v].size[a];
  return n;
}

uint64_t zp_local_part(Eval *e, uint32_t v, int rank) {
  uint64_t *known = &e->part[v * (uint32_t)e->ranks + (uint32_t)rank], h = 1;
  const ZpValue *x = &e->v[v];
  if (*known) return *known;
  for (int a = 0; a < x->type.naxes; a++) {
    ZpPiece piece[ZP_PIECES] = {0};
    zp_view_pieces(&e->w->mesh, x, rank, x->axis[a], x->size[a], piece);
    for (int k = 0; k < ZP_PIECES; k++) h = zb_mix64(h + (uint64_t)piece[k].to);
  }
  return *known = h ? h : 1;
}

/* ---- leaves -------------------------------------------------------------------------------------------- */
/* Returns this rank's part of a whole tensor. zero: its padding is that, else anything. */
static void *cut(Eval *e, const void *whole, const ZgType *t, const ZpValue *v, int rank, bool zero) {
  Part x = zp_part(e, v, rank);
  size_t cell = zp_cell(t);
  char *to = zb_alloc(e->a, (size_t)x.elements * cell + 1);
  for (int64_t i = 0; i < x.elements; i++) {
    int64_t from = zp_whole_place(e, &x, t, i);
    if (from >= 0) memcpy(to + (size_t)i * cell, (const char *)whole + (size_t)from * cell, cell);
    else if (!zp_is_ints(t) && !zero)
      ((ZkResidue *)(void *)to)[i] = zk_residue_reduced(zb_random_u64(1, (uint64_t)rank, (uint64_t)i) >> 33);
  }
  return to;
}

uint32_t zp_slice_of(const Eval *e, const ZpLoc *at, const ZpSlice **slice) {
  const ZpBucket *k = &e->w->p->programs.buckets[e->s->buckets[at->index]];
  ZkElem elem = at->space == ZP_AT_GRAD ? ZK_F32 : (ZkElem)k->elem;
  for (uint32_t i = 0; i < k->nslices; i++)
    if (zk_bytes(elem, k->slices[i].at) == at->offset) return *slice = &k->slices[i], k->slices[i].param;
  ZB_BUG("nothing lies at byte %llu of bucket %s", (unsigned long long)at->offset, k->name);
}

static void *leaf(Eval *e, uint32_t v, int rank) {
  const ZpValue *x = &e->v[v];
  const ZpSlice *slice;
  uint32_t k = x->at.index;
  uint16_t op = 0;
  bool zero = true; /* as initialization and updates leave the padding of a parameter */
  const ZgType *t = NULL;
  switch ((ZpSpace)x->at.space) {
  case ZP_AT_SEED: {
    ZkResidue *seed = ZB_NEW(e->a, ZkResidue);
    *seed = zp_leaf_seed(e, k);
    return seed;
  }
  case ZP_AT_PARAM:
    op = ZG_OP_PARAM, k = zp_slice_of(e, &x->at, &slice), t = &e->w->p->graph->params[k].type;
    break;
  case ZP_AT_INPUT: op = ZG_OP_INPUT, t = &e->w->p->graph->inputs[k].type, zero = false; break;
  case ZP_AT_CARRY_IN:
    op = ZG_OP_CARRY, t = &e->g->carry_in[k], zero = !e->w->dirty_carry[e->index][k];
    break;
  case ZP_AT_DCARRY_OUT:
    op = ZG_OP_DCARRY, t = &e->g->carry_out[k], zero = !e->w->dirty_dcarry[e->index][k];
    break;
  default: return NULL;
  }
  return cut(e, zp_leaf(e, op, k, t), t, x, rank, zero);
}

/* ---- values -------------------------------------------------------------------------------------------- */
static void **slot(Eval *e, uint32_t v, int rank) {
  const ZpSlice *slice;
  const ZpLoc *at = &e->s->values[v].at;
  if (at->space != ZP_AT_GRAD) return &e->at[v * (uint32_t)e->ranks + (uint32_t)rank];
  return &e->grad[zp_slice_of(e, at, &slice) * (uint32_t)e->ranks + (uint32_t)rank];
}

void zp_local_put(Eval *e, uint32_t v, int rank, void *x) { *slot(e, v, rank) = x; }

void *zp_local_new(Eval *e, uint32_t v) {
  return zb_alloc(e->a, (size_t)zp_local_elements(e, v) * zp_cell(&e->v[v].type) + 1);
}

/* A gradient begins with something, to which all is added. */
static void *begun(Eval *e, uint32_t v) {
  const ZpSlice *slice;
  uint32_t k = zp_slice_of(e, &e->s->values[v].at, &slice);
  if (e->base[k]) return e->base[k];
  ZkResidue *x = e->base[k] = zp_local_new(e, v);
  for (int64_t i = zp_local_elements(e, v); i-- > 0;)
    x[i] = zk_residue_reduced(zb_random_u64(2, k, (uint64_t)i) >> 33);
  return x;
}

void *zp_local_at(Eval *e, uint32_t v, int rank) {
  void **x = slot(e, v, rank);
  if (*x) return *x;
  if (e->s->values[v].at.space == ZP_AT_GRAD) return *x = begun(e, v);
  for (int q = 0; q < rank && !*x; q++)
    if (*slot(e, v, q) && zp_local_part(e, v, q) == zp_local_part(e, v, rank)) *x = *slot(e, v, q);
  if (!*x) *x = leaf(e, v, rank);
  return *x;
}

ZkView zp_local_view(Eval *e, uint32_t v, int rank) {
  const ZpValue *x = &e->v[v];
  ZkView w = {.elem = zp_is_ints(&x->type) ? ZK_I32 : ZK_F64, .rank = x->type.naxes};
  int64_t stride = 1;
  for (int a = w.rank; a-- > 0; stride *= w.size[a]) {
    w.axis[a] = x->axis[a];
    w.size[a] = x->size[a];
    w.whole[a] = e->w->size[x->axis[a]];
    w.stride[a] = stride;
    w.start[a] = zp_view_start(&e->w->mesh, x, rank, x->axis[a], x->size[a]);
  }
  return w;
}

/* ---- groups -------------------------------------------------------------------------------------------- */
/* A view of all members of a batched call's operand or result, one behind the other. */
static ZkView group_view(Eval *e, uint32_t v, int rank) {
  const ZpValue *x = &e->v[v];
  ZkView one = zp_local_view(e, x->member[0], rank), w = one;
  w.rank++;
  w.axis[0] = (uint16_t)e->w->p->graph->naxes;
  w.size[0] = w.whole[0] = x->nmembers;
  w.stride[0] = zp_local_elements(e, x->member[0]);
  w.start[0] = 0;
  for (int a = 0; a < one.rank; a++) {
    w.axis[a + 1] = one.axis[a], w.size[a + 1] = one.size[a], w.whole[a + 1] = one.whole[a];
    w.stride[a + 1] = one.stride[a], w.start[a + 1] = one.start[a];
  }
  return w;
}

static void *gathered(Eval *e, uint32_t v, int rank, bool fill) {
  const ZpValue *x = &e->v[v];
  size_t bytes = (size_t)zp_local_elements(e, x->member[0]) * zp_cell(&x->type);
  char *to = zb_alloc(e->a, x->nmembers * bytes + 1);
  for (int k = 0; fill && k < x->nmembers; k++) {
    const void *from = zp_local_at(e, x->member[k], rank);
    if (!from) return NULL;
    memcpy(to + (size_t)k * bytes, from, bytes);
  }
  return to;
}

static void hand_out(Eval *e, uint32_t v, int rank, char *from) {
  const ZpValue *x = &e->v[v];
  size_t bytes = (size_t)zp_local_elements(e, x->member[0]) * zp_cell(&x->type);
  for (int k = 0; k < x->nmembers; k++) zp_local_put(e, x->member[k], rank, from + (size_t)k * bytes);
}

/* ---- calls --------------------------------------------------------------------------------------------- */
static const char not_made[] = "reads what nothing makes",
                  other_numbers[] = "has other numbers than the graph";

/* Kernels that know places by where a view begins are called once for each piece of a zigzag axis. */
static bool knows_places(int op) {
  return op == ZG_OP_POSITION || op == ZG_OP_RANDOM || op == ZG_OP_ROPE || zg_is_attend(op);
}

static bool find_pieces(Eval *e, const ZpNode *n, int rank, uint16_t *axis, int64_t *size, ZpPiece *piece) {
  for (int i = 0; knows_places(n->call.op) && i < n->call.nin + n->call.nout; i++) {
    const ZpValue *v = &e->v[i < n->call.nin ? n->in[i] : n->out[i - n->call.nin]];
    for (int a = 0; a < v->type.naxes; a++) {
      *axis = v->axis[a], *size = v->size[a];
      if (zp_view_pieces(&e->w->mesh, v, rank, *axis, *size, piece) == ZP_PIECES) return true;
    }
  }
  return false;
}

static void run_pieces(const ZkEnv *env, const ZkCall *c, uint16_t axis, int64_t size, const ZpPiece *piece) {
  bool adds = c->op == ZG_OP_ATTEND_GRAD || c->op == ZG_OP_ATTEND_BIAS_GRAD;
  for (int i = 0; i < ZP_PIECES; i++) {
    ZkCall one = *c;
    one.accumulate |= adds;
    for (int k = 0; k < one.nin + one.nout; k++) {
      ZkView *v = k < one.nin ? &one.in[k] : &one.out[k - one.nin];
      for (int a = 0; a < v->rank; a++) {
        if (v->axis[a] != axis || v->size[a] != size) continue;
        v->data = zk_at(v, piece[i].from * v->stride[a]);
        v->start[a] = piece[i].to, v->size[a] = piece[i].n;
      }
    }
    zk_residue_run(env, &one);
  }
}

const char *zp_eval_call(Eval *e, const ZpNode *n, int rank, ZkCall *c) {
  const ZkEnv env = {.seed = e->seed, .step = 1};
  uint16_t axis;
  int64_t size;
  ZpPiece piece[ZP_PIECES];
  if (!zp_small_numbers(e->w, c->op, c->ax, c->opt)) return other_numbers;
  for (int a = 0; c->op == ZG_OP_RANDOM && a < c->out[0].rank; a++)
    c->out[0].whole[a] = e->w->valid[c->out[0].axis[a]];
  if (find_pieces(e, n, rank, &axis, &size, piece)) run_pieces(&env, c, axis, size, piece);
  else zk_residue_run(&env, c);
  return NULL;
}

/* Returns whether a call on two ranks is the same. */
static bool alike(Eval *e, const ZpNode *n, int q, int r) {
  for (int i = 0; i < n->call.nin + n->call.nout; i++) {
    uint32_t v = i < n->call.nin ? n->in[i] : n->out[i - n->call.nin];
    bool reads = i < n->call.nin || e->v[v].at.space == ZP_AT_GRAD;
    if (e->v[v].nmembers) return false;
    if (reads && zp_local_at(e, v, q) != zp_local_at(e, v, r)) return false;
    if (zp_local_part(e, v, q) != zp_local_part(e, v, r)) return false;
  }
  return true;
}

/* Results that are added to are copies of what is there. */
static void *result(Eval *e, const ZkCall *c, uint32_t v, int rank) {
  if (e->v[v].nmembers) return gathered(e, v, rank, c->accumulate);
  void *x = zp_local_new(e, v), *old = c->accumulate ? zp_local_at(e, v, rank) : NULL;
  if (old) memcpy(x, old, (size_t)zp_local_elements(e, v) * zp_cell(&e->v[v].type));
  return x;
}

static const char *call(Eval *e, const ZpNode *n, const ZkCall *as, int rank) {
  ZkCall c = *as;
  for (int i = 0; i < c.nin; i++) {
    bool group = e->v[n->in[i]].nmembers;
    c.in[i] = group ? group_view(e, n->in[i], rank) : zp_local_view(e, n->in[i], rank);
    c.in[i].data = group ? gathered(e, n->in[i], rank, true) : zp_local_at(e, n->in[i], rank);
    if (!c.in[i].data) return not_made;
  }
  for (int i = 0; i < c.nout; i++) {
    bool group = e->v[n->out[i]].nmembers;
    c.out[i] = group ? group_view(e, n->out[i], rank) : zp_local_view(e, n->out[i], rank);
    c.out[i].data = result(e, &c, n->out[i], rank);
    if (!c.out[i].data) return not_made;
  }
  const char *wrong = zp_eval_call(e, n, rank, &c);
  for (int i = 0; !wrong && i < c.nout; i++) {
    if (e->v[n->out[i]].nmembers) hand_out(e, n->out[i], rank, c.out[i].data);
    else zp_local_put(e, n->out[i], rank, c.out[i].data);
  }
  return wrong;
}

static bool has_operands(Eval *e, const ZpNode *n) {
  for (int i = 0; i < n->call.nin; i++)
    for (int r = 0; r < e->ranks; r++)
      if (!e->v[n->in[i]].nmembers && !zp_local_at(e, n->in[i], r)) return false;
  return true;
}

/* The same call on all ranks; where nothing of it differs, once. Results of ranks are put down behind all calls:
 * those that add to a gradient begin with what was there before. */
static const char *compute(Eval *e, const ZpNode *n, const ZkCall *c) {
  const char *wrong = NULL;
  int same[64];
  ZB_ASSERT(e->ranks <= 64);
  for (int r = 0; r < e->ranks; r++) {
    same[r] = r;
    for (int q = 0; q < r && same[r] == r; q++)
      if (same[q] == q && alike(e, n, q, r)) same[r] = q;
  }
  for (int r = 0; r < e->ranks && !wrong; r++)
    if (same[r] == r) wrong = call(e, n, c, r);
  for (int r = 0; r < e->ranks && !wrong; r++)
    for (int i = 0; same[r] != r && i < n->call.nout; i++)
      zp_local_put(e, n->out[i], r, *slot(e, n->out[i], same[r]));
  return wrong;
}

/* ---- lists --------------------------------------------------------------------------------------------- */
static const char *node(Eval *e, const ZpNode *n, const Round *round) {
  ZkCall c = n->call;
  bool rows = c.op == ZG_OP_ROUND || c.op == ZG_OP_DISPATCH || c.op == ZG_OP_COMBINE;
  if (zg_op_info[c.op].kind == ZG_SOURCE || zg_op_info[c.op].kind == ZG_SINK) return NULL;
  if (!has_operands(e, n)) return not_made;
  if (n->dims && zp_is_ring(n)) return zp_eval_ring(e, n);
  if (n->dims && rows) return zp_eval_rows(e, n, round), NULL;
  if (n->dims) return zp_eval_collective(e, n), NULL;
  if (c.op == ZG_OP_ROUND) c.opt[0] = round->number, c.opt[1] = round->rows;
  if (c.op == ZG_OP_DISPATCH || c.op == ZG_OP_COMBINE) c.opt[1] = round->number * round->rows;
  if (c.op == ZG_OP_COMBINE || c.op == ZG_OP_GROUPED_OUTER) c.accumulate |= round && round->number > 0;
  return compute(e, n, &c);
}

/* The rows of a round of a region whose nodes are `l` from `first` on. */
static Round region(Eval *e, const ZpList *l, uint32_t first) {
  Round r = {.round = &l->nodes[first]};
  for (uint32_t i = first; i < l->n && l->nodes[i].rounds == r.round->rounds; i++) {
    const ZpNode *n = &l->nodes[i];
    bool out = n->call.op == ZG_OP_DISPATCH, home = n->call.op == ZG_OP_COMBINE;
    if (out || home) {
      const ZpValue *v = &e->v[out ? n->out[0] : n->in[0]];
      r.rows = v->size[0] * v->size[1];
    }
  }
  for (uint32_t i = 0; i < first; i++)
    if (l->nodes[i].call.op == ZG_OP_SLOTS && l->nodes[i].out[1] == r.round->in[0]) r.slots = &l->nodes[i];
  return r;
}

const char *zp_eval_list(Eval *e, ZpPhase phase, const ZpNode **where) {
  const ZpList *l = &e->s->list[phase];
  for (uint32_t i = 0, end; i < l->n; i = end) {
    const ZpNode *n = *where = &l->nodes[i];
    const char *wrong = NULL;
    end = i + 1;
    if (!n->rounds) {
      if ((wrong = node(e, n, NULL))) return wrong;
      continue;
    }
    while (end < l->n && l->nodes[end].rounds == n->rounds) end++;
    Round r = region(e, l, i);
    if (n->call.op != ZG_OP_ROUND || !r.slots || !r.rows) return "is of no round";
    if (!has_operands(e, n)) return not_made;
    for (int64_t rounds = zp_eval_rounds(e, &r); r.number < rounds; r.number++)
      for (*where = n; *where < &l->nodes[end]; ++*where)
        if ((wrong = node(e, *where, &r))) return wrong;
  }
  return NULL;
}

/* Values of a local program on residues: which part of the whole each rank has, what comes from outside, and
 * a call on one rank. */
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
  *slice = zp_slice_in(k, at->space == ZP_AT_GRAD, at->offset);
  if (!*slice) ZB_BUG("nothing lies at byte %llu of bucket %s", (unsigned long long)at->offset, k->name);
  return (*slice)->param;
}

/* Returns whether a value comes from outside: ranks that have the same part have the same elements. */
static bool is_leaf(const Eval *e, uint32_t v) {
  ZpSpace at = (ZpSpace)e->v[v].at.space;
  return at == ZP_AT_SEED || at == ZP_AT_PARAM || at == ZP_AT_INPUT || at == ZP_AT_CARRY_IN ||
         at == ZP_AT_DCARRY_OUT || at == ZP_AT_CACHE;
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
  case ZP_AT_CACHE: op = ZG_OP_KEPT, t = &e->w->p->stream->caches[k].type; break;
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
  for (int q = 0; q < rank && is_leaf(e, v) && !*x; q++)
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

/* ---- calls --------------------------------------------------------------------------------------------- */
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
  if (!zp_small_numbers(e->w, c->op, c->ax, c->opt)) return "has other numbers than the graph";
  for (int a = 0; c->op == ZG_OP_RANDOM && a < c->out[0].rank; a++)
    c->out[0].whole[a] = e->w->valid[c->out[0].axis[a]];
  if (find_pieces(e, n, rank, &axis, &size, piece)) run_pieces(&env, c, axis, size, piece);
  else zk_residue_run(&env, c);
  return NULL;
}

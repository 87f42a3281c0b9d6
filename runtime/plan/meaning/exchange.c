/* Collectives of local programs, and calls that reach over ranks: for each rank, of which member's element,
 * or of the sum of all members', each of its own is made. */
#include <string.h>

#include "runtime/plan/meaning/meaning.h"

/* ---- members ------------------------------------------------------------------------------------------- */
typedef struct {
  Eval *e;
  const ZpNode *n;
  int rank, members, mine;
  int *member; /* their ranks */
  void **from; /* their operands, */
  ZkView in;   /* which all look like this */
} Group;

static Group group_of(Eval *e, const ZpNode *n, uint32_t operand, int rank) {
  const ZpMesh *m = &e->w->mesh;
  Group g = {.e = e, .n = n, .rank = rank, .members = (int)zp_group_size(m, n->dims)};
  g.mine = (int)zp_group_index(m, rank, n->dims);
  g.member = ZB_NEWN(e->a, int, g.members);
  g.from = ZB_NEWN(e->a, void *, g.members);
  g.in = zp_local_view(e, operand, rank);
  for (int i = 0; i < g.members; i++) {
    g.member[i] = (int)zp_group_member(m, rank, n->dims, i);
    g.from[i] = zp_local_at(e, operand, g.member[i]);
  }
  return g;
}

/* Where elements of an axis, of which each member has `length`, are among those of all: the whole's element i
 * is member who[i]'s element own[i]; and mine[i] is where this rank's are. */
typedef struct {
  int *who;
  int64_t *own, *mine;
} Along;
static Along along(const Group *g, uint16_t axis, int64_t length) {
  Eval *e = g->e;
  Along x = {ZB_NEWN(e->a, int, g->members *length + 1), ZB_NEWN(e->a, int64_t, g->members * length + 1),
             ZB_NEWN(e->a, int64_t, length + 1)};
  for (int k = 0; k < g->members; k++) {
    ZpPiece piece[ZP_PIECES];
    for (int i = zp_pieces(&e->w->mesh, g->n->dims, axis, k, length, piece); i-- > 0;)
      for (int64_t j = 0; j < piece[i].n; j++) {
        x.who[piece[i].to + j] = k, x.own[piece[i].to + j] = piece[i].from + j;
        if (k == g->mine) x.mine[piece[i].from + j] = piece[i].to + j;
      }
  }
  return x;
}

/* ---- what moves ---------------------------------------------------------------------------------------- */
/* An element of a result: at these places of the operand, of this member; -1: of nobody. */
typedef struct {
  int member;
  int64_t at[ZK_MAX_AXES];
} From;

static int64_t offset(const ZkView *in, const ZkView *out, const int64_t *at) {
  int64_t i = 0;
  for (int a = 0; a < in->rank; a++) i += at[zp_axis_at(out, in->axis[a])] * in->stride[a];
  return i;
}

/* The result's element at `at` along its axes becomes the place that it is made of. */
static From source(const Group *g, const ZkView *out, const Along *x, const Along *y, const int64_t *at) {
  const ZpNode *n = g->n;
  From f = {.member = g->mine};
  int k = zp_axis_at(out, n->axis), k2 = zp_axis_at(out, n->axis2);
  memcpy(f.at, at, sizeof f.at);
  switch (n->call.op) {
  case ZG_OP_ALL_GATHER:
  case ZG_OP_ALL_TO_ALL:
    f.member = x->who[at[k]], f.at[k] = x->own[at[k]];
    if (n->call.op == ZG_OP_ALL_TO_ALL) f.at[k2] = y->mine[at[k2]];
    break;
  case ZG_OP_REDUCE_SCATTER:
  case ZG_OP_LOCAL_SLICE: f.at[k] = x->mine[at[k]]; break;
  case ZG_OP_LOCAL_PAD:
    if (n->axis == ZP_NO_AXIS) f.member = g->mine ? -1 : 0;
    else if (x->who[at[k]] != g->mine) f.member = -1;
    else f.at[k] = x->own[at[k]];
    break;
  case ZG_OP_SHIFT: {
    int64_t length = out->size[k], from = g->mine * length + at[k] - n->call.opt[0];
    f.member = from < 0 || from >= g->members * length ? -1 : (int)(from / length);
    f.at[k] = f.member < 0 ? 0 : from % length;
    break;
  }
  default: break;
  }
  return f;
}

static ZkResidue reduced(const Group *g, int64_t i) {
  ZkResidue sum = ((const ZkResidue *)g->from[0])[i];
  for (int k = 1; k < g->members; k++) {
    ZkResidue x = ((const ZkResidue *)g->from[k])[i];
    sum = g->n->call.opt[0] ? zk_residue_max(sum, x) : zk_residue_add(sum, x);
  }
  return sum;
}

static void *result(const Group *g) {
  Eval *e = g->e;
  const ZpNode *n = g->n;
  uint32_t v = n->out[0];
  ZkView out = zp_local_view(e, v, g->rank);
  int k = zp_axis_at(&out, n->axis), k2 = zp_axis_at(&out, n->axis2), ki = zp_axis_at(&g->in, n->axis);
  bool reduces = n->call.op == ZG_OP_ALL_REDUCE || n->call.op == ZG_OP_REDUCE_SCATTER;
  bool whole_in = n->call.op == ZG_OP_REDUCE_SCATTER || n->call.op == ZG_OP_LOCAL_SLICE;
  Along x = {0}, y = {0};
  if (k >= 0 && n->call.op != ZG_OP_SHIFT) x = along(g, n->axis, whole_in ? out.size[k] : g->in.size[ki]);
  if (k2 >= 0 && n->call.op == ZG_OP_ALL_TO_ALL) y = along(g, n->axis2, out.size[k2]);
  size_t cell = zp_cell(&e->v[v].type);
  char *to = zp_local_new(e, v);
  int64_t elements = zp_local_elements(e, v), at[ZK_MAX_AXES] = {0};
  for (int64_t i = 0; i < elements; i++) {
    int64_t rest = i;
    for (int a = out.rank; a-- > 0; rest /= out.size[a]) at[a] = rest % out.size[a];
    From f = source(g, &out, &x, &y, at);
    int64_t from = offset(&g->in, &out, f.at);
    if (reduces) ((ZkResidue *)(void *)to)[i] = reduced(g, from);
    else if (f.member >= 0)
      memcpy(to + (size_t)i * cell, (const char *)g->from[f.member] + (size_t)from * cell, cell);
    else if (n->call.op == ZG_OP_SHIFT && zp_is_ints(&e->v[v].type))
      ((int32_t *)(void *)to)[i] = (int32_t)n->call.num[0];
    else if (n->call.op == ZG_OP_SHIFT) ((ZkResidue *)(void *)to)[i] = zk_residue_of(n->call.num[0]);
  }
  return to;
}

/* Returns whether ranks q and r get the same of their groups: the same operands, in the same order, of which
 * both take the same. */
static bool alike(const Group *q, const Group *r) {
  uint16_t op = q->n->call.op;
  bool same = op == ZG_OP_ALL_REDUCE || op == ZG_OP_ALL_GATHER || q->mine == r->mine;
  for (int i = 0; same && i < q->members; i++) same = q->from[i] == r->from[i];
  return same;
}

void zp_eval_collective(Eval *e, const ZpNode *n) {
  Group *g = ZB_NEWN(e->a, Group, e->ranks);
  void **made = ZB_NEWN(e->a, void *, e->ranks);
  for (int r = 0; r < e->ranks; r++) {
    g[r] = group_of(e, n, n->in[0], r);
    for (int q = 0; q < r && !made[r]; q++)
      if (alike(&g[q], &g[r])) made[r] = made[q];
    if (!made[r]) made[r] = result(&g[r]);
  }
  for (int r = 0; r < e->ranks; r++) zp_local_put(e, n->out[0], r, made[r]);
}

/* ---- attend around a ring ------------------------------------------------------------------------------ */
/* A tensor of keys as all members of a group have it together. */
static ZkView joined(Eval *e, const ZpNode *n, uint32_t v, int rank, bool fill) {
  Group g = group_of(e, n, v, rank);
  ZkView all = g.in;
  int k = zp_axis_at(&all, n->axis);
  int64_t length = all.size[k], elements = 1, stride = 1;
  all.size[k] *= g.members;
  all.start[k] = 0;
  for (int a = all.rank; a-- > 0; stride *= all.size[a]) all.stride[a] = stride, elements *= all.size[a];
  ZkResidue *to = ZB_NEWN(e->a, ZkResidue, elements + 1);
  Along x = along(&g, n->axis, length);
  for (int64_t i = 0; fill && i < elements; i++) {
    int64_t from = 0, at, rest = i;
    int who = 0;
    for (int a = all.rank; a-- > 0; rest /= all.size[a]) {
      at = rest % all.size[a];
      if (a == k) who = x.who[at], at = x.own[at];
      from += at * g.in.stride[a];
    }
    to[i] = ((const ZkResidue *)g.from[who])[from];
  }
  all.data = to;
  return all;
}

/* Returns this rank's part of the sums that members have of all keys' gradients. */
static void *own_part(Eval *e, const ZpNode *n, uint32_t v, int rank, const ZkView *sums) {
  Group g = {.e = e, .n = n, .rank = rank, .members = (int)zp_group_size(&e->w->mesh, n->dims)};
  g.mine = (int)zp_group_index(&e->w->mesh, rank, n->dims);
  ZkView out = zp_local_view(e, v, rank);
  int k = zp_axis_at(&out, n->axis);
  Along x = along(&g, n->axis, out.size[k]);
  ZkResidue *to = zp_local_new(e, v);
  for (int64_t i = zp_local_elements(e, v); i-- > 0;) {
    int64_t from = 0, rest = i;
    for (int a = out.rank; a-- > 0; rest /= out.size[a]) {
      int64_t at = rest % out.size[a];
      from += (a == k ? x.mine[at] : at) * sums[0].stride[a];
    }
    for (int q = 0; q < g.members; q++) {
      int member = (int)zp_group_member(&e->w->mesh, rank, n->dims, q);
      to[i] = zk_residue_add(to[i], ((const ZkResidue *)sums[member].data)[from]);
    }
  }
  return to;
}

/* All keys come to each rank's queries, whatever the order in which ranks hand them on. */
const char *zp_eval_ring(Eval *e, const ZpNode *n) {
  bool back = n->call.op == ZG_OP_ATTEND_GRAD;
  int first = zg_attend_first(n->call.op);
  ZkView *dk = ZB_NEWN(e->a, ZkView, e->ranks), *dv = ZB_NEWN(e->a, ZkView, e->ranks);
  const char *wrong = NULL;
  for (int r = 0; r < e->ranks && !wrong; r++) {
    ZkCall c = n->call;
    for (int i = 0; i < c.nin; i++) {
      bool key = i == first + 1 || i == first + 2;
      c.in[i] = key ? joined(e, n, n->in[i], r, true) : zp_local_view(e, n->in[i], r);
      if (!key) c.in[i].data = zp_local_at(e, n->in[i], r);
    }
    for (int i = 0; i < c.nout; i++) {
      bool key = back && i;
      c.out[i] = key ? joined(e, n, n->out[i], r, false) : zp_local_view(e, n->out[i], r);
      if (!key) zp_local_put(e, n->out[i], r, c.out[i].data = zp_local_new(e, n->out[i]));
    }
    if (back) dk[r] = c.out[1], dv[r] = c.out[2];
    wrong = zp_eval_call(e, n, r, &c);
  }
  for (int r = 0; r < e->ranks && back && !wrong; r++) {
    zp_local_put(e, n->out[1], r, own_part(e, n, n->out[1], r, dk));
    zp_local_put(e, n->out[2], r, own_part(e, n, n->out[2], r, dv));
  }
  return wrong;
}

/* A local program on residues, node by node: what is one call on all ranks, and what happens once a round. */
#include <string.h>

#include "runtime/plan/meaning/meaning.h"

static const char not_made[] = "reads what nothing makes";

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

/* ---- one call on all ranks ----------------------------------------------------------------------------- */
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
  if (c->op == ZG_OP_PUT_PAGES) return c->in[1].data; /* the cache itself */
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

/* The same call on all ranks; where nothing of it differs, once. Results of ranks are put down behind all
 * calls: those that add to a gradient begin with what was there before. */
static const char *compute(Eval *e, const ZpNode *n, const ZkCall *c) {
  const char *wrong = NULL;
  int *same = ZB_NEWN(e->a, int, e->ranks);
  for (int r = 0; r < e->ranks; r++) {
    same[r] = r;
    for (int q = 0; q < r && same[r] == r; q++)
      if (same[q] == q && alike(e, n, q, r)) same[r] = q;
  }
  for (int r = 0; r < e->ranks && !wrong; r++)
    if (same[r] == r) wrong = call(e, n, c, r);
  for (int r = 0; r < e->ranks && !wrong; r++)
    for (int i = 0; same[r] != r && i < n->call.nout; i++)
      zp_local_put(e, n->out[i], r, zp_local_at(e, n->out[i], same[r]));
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

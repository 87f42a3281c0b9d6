/* Compares, segment by segment, everything that leaves an instance: what is carried out, and back; gradients
 * of parameters, summed over the dims along which their bucket is partial, each added once; losses,
 * denominators and terms beside; outputs. */
#include <string.h>

#include "runtime/plan/meaning/meaning.h"
#include "runtime/plan/text.h"

/* Once is not enough for what only sees integers, or one side of a comparison, of a few elements. */
enum { SEEDS = 2, MOST_SEEDS = 5, MANY_POINTS = 200000 };

typedef struct {
  Eval *e;
  ZpPhase phase;
  ZbErr *err;
  bool *again; /* segments must be evaluated with other padding */
} Proof;

static const char *begins(const Proof *x);
static bool fail(const Proof *x, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool fail(const Proof *x, const char *fmt, ...) {
  char text[256];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  const char *label = x->e->g->label;
  return zb_fail(x->err, NULL, "part %u%s%s%s, %s: %s%s", x->e->index, *label ? " (" : "", label,
                 *label ? ")" : "", zp_phase_text[x->phase], text, begins(x));
}

/* ---- equality ------------------------------------------------------------------------------------------ */
static bool same_cell(const ZgType *t, const void *x, int64_t i, const void *y, int64_t k) {
  return zp_is_ints(t) ? ((const int32_t *)x)[i] == ((const int32_t *)y)[k]
                       : ((const ZkResidue *)x)[i].r == ((const ZkResidue *)y)[k].r;
}

/* Compares a rank's elements of a value with those of the whole. zero: its padding must be that. */
static bool is_part(Eval *e, const ZpValue *v, int rank, const void *x, const void *whole, const ZgType *t,
                    bool zero) {
  static const ZkResidue nothing = {0};
  Part part = zp_part(e, v, rank);
  for (int64_t i = 0; i < part.elements; i++) {
    int64_t k = zp_whole_place(e, &part, t, i);
    if (k >= 0 ? !same_cell(t, x, i, whole, k) : zero && !same_cell(t, x, i, &nothing, 0)) return false;
  }
  return true;
}

/* Adds up, over the members of this rank's group along `dims`, what they have more than `less` (or NULL). */
static ZkResidue *summed(Eval *e, void **at, int rank, ZpDims dims, int64_t elements, const ZkResidue *less) {
  ZkResidue *sum = ZB_NEWN(e->a, ZkResidue, elements + 1);
  const ZpMesh *m = &e->w->mesh;
  for (int64_t q = 0; q < zp_group_size(m, dims); q++) {
    const ZkResidue *x = at[zp_group_member(m, rank, dims, q)];
    for (int64_t i = 0; x && i < elements; i++) {
      sum[i] = zk_residue_add(sum[i], x[i]);
      if (less) sum[i] = zk_residue_sub(sum[i], less[i]);
    }
  }
  return sum;
}

/* ---- where it begins ----------------------------------------------------------------------------------- */
/* Returns the first rank on which a local value is not the graph's value g; -1: it is that. */
static int differs(Eval *e, uint32_t v, uint32_t g) {
  const ZgType *t = &e->g->values[g].type, *mine = &e->v[v].type;
  ZpDims partial = 0;
  if (!e->whole[g] || zp_is_ints(t) != zp_is_ints(mine) || t->naxes != mine->naxes ||
      !zg_type_contains(t, mine))
    return 0;
  for (int d = 0; d < e->w->mesh.ndims; d++)
    if (e->v[v].state[d].kind == 'P') partial |= 1u << d;
  void **at = ZB_NEWN(e->a, void *, e->ranks);
  for (int r = 0; r < e->ranks; r++)
    if (!(at[r] = zp_local_at(e, v, r))) return r;
  for (int r = 0; r < e->ranks; r++) {
    const void *x = partial ? summed(e, at, r, partial, zp_local_elements(e, v), NULL) : at[r];
    if (!is_part(e, &e->v[v], r, x, e->whole[g], t, false)) return r;
  }
  return -1;
}

static bool is_known(Eval *e, uint32_t v) {
  if (e->v[v].nmembers || e->v[v].at.space == ZP_AT_GRAD) return true;
  for (uint32_t g = 0; g < e->g->nvalues; g++)
    if (differs(e, v, g) < 0) return true;
  return false;
}

/* Finds the graph's value that result v of a node should be: of the same place in the source, of the same
 * type, best of the same operation; ZP_NONE: none is like it. */
static uint32_t should_be(const Eval *e, const ZpNode *n, uint32_t v) {
  uint32_t found = ZP_NONE;
  for (uint32_t g = 0; g < e->g->nvalues; g++) {
    const ZgNode *m = &e->g->nodes[e->g->values[g].node];
    const ZgType *t = &e->g->values[g].type, *mine = &e->v[v].type;
    if (m->loc != n->loc || t->naxes != mine->naxes || !zg_type_contains(t, mine)) continue;
    if (found == ZP_NONE || m->op == n->call.op) found = g;
  }
  return found;
}

/* Says of node i of a list what its result v should have been. */
static const char *instead(Eval *e, ZpPhase phase, uint32_t i, uint32_t v) {
  const ZpNode *n = &e->s->list[phase].nodes[i];
  uint32_t g = should_be(e, n, v);
  const char *text =
      zb_printf(e->a, "; first, node %u of %s, %s (%s), makes of the graph's values what is none of them", i,
                zp_phase_text[phase], zg_op_info[n->call.op].text, zp_loc_text(e->w->p, n->loc));
  if (g == ZP_NONE) return text;
  return zb_printf(e->a, "%s: on rank %d it is not %%%u, %s", text, differs(e, v, g), g,
                   zg_op_info[e->g->nodes[e->g->values[g].node].op].text);
}

/* Names the first node, of the lists up to this one, that makes of values of the graph what is none. */
static const char *begins(const Proof *x) {
  Eval *e = x->e;
  for (int k = 0; k <= (int)x->phase; k++)
    for (uint32_t i = 0; i < e->s->list[k].n; i++) {
      const ZpNode *n = &e->s->list[k].nodes[i];
      bool in = zg_op_info[n->call.op].kind != ZG_SINK && !n->rounds;
      for (int j = 0; in && j < n->call.nin; j++) in = is_known(e, n->in[j]);
      for (int j = 0; in && j < n->call.nout; j++)
        if (!is_known(e, n->out[j])) return instead(e, (ZpPhase)k, i, n->out[j]);
    }
  return "";
}

/* ---- what is taken out --------------------------------------------------------------------------------- */
static ZkResidue graph_sum(const Eval *e, uint16_t op, uint32_t number) {
  ZkResidue sum = {0};
  for (uint32_t i = 0; i < e->g->nnodes; i++) {
    const ZgNode *n = &e->g->nodes[i];
    if (n->op == op && (op == ZG_OP_AUX || n->opt[0] == number))
      sum = zk_residue_add(sum, *(const ZkResidue *)e->whole[n->in[0]]);
  }
  return sum;
}

/* Scalars of one kind and number are added up by the engine: on each rank, then over dims where they are
 * parts. */
static bool scalars(const Proof *x, uint16_t op, uint32_t number, ZpDims partial) {
  Eval *e = x->e;
  const ZpList *l = &e->s->list[x->phase];
  ZkResidue want = graph_sum(e, op, number);
  void **at = ZB_NEWN(e->a, void *, e->ranks);
  bool any = false;
  for (uint32_t i = 0; i < l->n; i++) {
    const ZpNode *n = &l->nodes[i];
    if (n->call.op != op || (op != ZG_OP_AUX && n->sink != number)) continue;
    any = true;
    for (int r = 0; r < e->ranks; r++) {
      ZkResidue *sum = at[r] ? at[r] : ZB_NEW(e->a, ZkResidue), *more = zp_local_at(e, n->in[0], r);
      if (!more) return fail(x, "`%s` takes out what nothing makes", zg_op_info[op].text);
      *sum = zk_residue_add(*sum, *more);
      at[r] = sum;
    }
  }
  for (int r = 0; any && r < e->ranks; r++)
    if (summed(e, at, r, partial, 1, NULL)->r != want.r)
      return fail(x, "`%s` %u is not the graph's", zg_op_info[op].text, number);
  return true;
}

static bool outputs(const Proof *x) {
  Eval *e = x->e;
  const ZpList *l = &e->s->list[x->phase];
  for (uint32_t i = 0; i < l->n; i++) {
    const ZpNode *n = &l->nodes[i];
    if (n->call.op != ZG_OP_OUTPUT) continue;
    for (uint32_t k = 0; k < e->g->nnodes; k++) {
      const ZgNode *g = &e->g->nodes[k];
      for (int r = 0; g->op == ZG_OP_OUTPUT && g->opt[0] == n->sink && r < e->ranks; r++)
        if (!is_part(e, &e->v[n->in[0]], r, zp_local_at(e, n->in[0], r), e->whole[g->in[0]],
                     &e->g->values[g->in[0]].type, false))
          return fail(x, "output `%s` is not the graph's on rank %d", e->w->p->graph->outputs[n->sink].name,
                      r);
    }
  }
  return true;
}

static bool taken_out(const Proof *x) {
  const ZpLayout *l = &x->e->w->p->layout;
  for (uint32_t k = 0; k < zg_losses(x->e->w->p->graph); k++)
    if (!scalars(x, ZG_OP_LOSS_NUM, k, l->num_partial[k]) ||
        !scalars(x, ZG_OP_LOSS_DEN, k, l->den_partial[k]))
      return false;
  return scalars(x, ZG_OP_AUX, 0, 0) && outputs(x);
}

/* ---- what is carried ----------------------------------------------------------------------------------- */
static uint32_t last_at(const Eval *e, ZpPhase phase, ZpSpace space, uint32_t index) {
  const ZpList *l = &e->s->list[phase];
  for (uint32_t i = l->n; i-- > 0;)
    for (int k = 0; k < l->nodes[i].call.nout; k++) {
      const ZpLoc *at = &e->s->values[l->nodes[i].out[k]].at;
      if (at->space == space && at->index == index) return l->nodes[i].out[k];
    }
  return ZP_NONE;
}

/* Notes that what the segment hands on has more than zeros in padding: for the neighbour, and in a repeat for
 * itself. */
static void taint(const Proof *x, bool back, uint32_t k) {
  const Eval *e = x->e;
  bool **dirty = back ? e->w->dirty_dcarry : e->w->dirty_carry;
  bool has_next = back ? e->index > 0 : e->index + 1 < e->w->p->graph->nsegments;
  bool *next = has_next ? &dirty[back ? e->index - 1 : e->index + 1][k] : NULL,
       *own = e->g->repeat ? &dirty[e->index][k] : NULL;
  *x->again |= (next && !*next) || (own && !*own);
  if (next) *next = true;
  if (own) *own = true;
}

static bool carried(const Proof *x, bool back) {
  Eval *e = x->e;
  for (uint32_t i = 0; i < e->g->nnodes; i++) {
    const ZgNode *n = &e->g->nodes[i];
    if (n->op != (back ? ZG_OP_DCARRY_IN : ZG_OP_CARRY_OUT)) continue;
    uint32_t k = (uint32_t)n->opt[0], v = last_at(e, x->phase, back ? ZP_AT_DCARRY_IN : ZP_AT_CARRY_OUT, k);
    const ZgType *t = &e->g->values[n->in[0]].type;
    if (v == ZP_NONE) continue; /* not wanted: check/carried.c */
    for (int r = 0; r < e->ranks; r++) {
      const void *at = zp_local_at(e, v, r), *whole = e->whole[n->in[0]];
      if (is_part(e, &e->v[v], r, at, whole, t, true)) continue;
      if (!is_part(e, &e->v[v], r, at, whole, t, false))
        return fail(x, "%scarried value %u is not the graph's on rank %d (%s)",
                    back ? "the cotangent of " : "", k, r, zp_loc_text(e->w->p, n->loc));
      taint(x, back, k);
    }
  }
  return true;
}

/* ---- caches -------------------------------------------------------------------------------------------- */
/* Compares what caches hold after a step of generation. */
static bool cached(const Proof *x) {
  Eval *e = x->e;
  for (uint32_t i = 0; i < e->g->nnodes; i++) {
    const ZgNode *n = &e->g->nodes[i];
    if (n->op != ZG_OP_KEPT) continue;
    for (uint32_t v = 0; v < e->s->nvalues; v++) {
      if (e->v[v].at.space != ZP_AT_CACHE || e->v[v].at.index != (uint32_t)n->opt[0]) continue;
      for (int r = 0; r < e->ranks; r++)
        if (!is_part(e, &e->v[v], r, zp_local_at(e, v, r), e->whole[n->out], &e->g->values[n->out].type,
                     true))
          return fail(x, "cache %lld is not the graph's after a step on rank %d (%s)", (long long)n->opt[0],
                      r, zp_loc_text(e->w->p, n->loc));
    }
  }
  return true;
}

/* ---- gradients ----------------------------------------------------------------------------------------- */
/* Lists, by parameter, the graph's nodes that add to its gradient. */
static void list_gradients(Eval *e, uint32_t nparams) {
  e->first_grad = zb_alloc(e->a, (nparams + 1) * sizeof *e->first_grad);
  e->next_grad = zb_alloc(e->a, (e->g->nnodes + 1) * sizeof *e->next_grad);
  for (uint32_t i = 0; i < nparams; i++) e->first_grad[i] = ZP_NONE;
  for (uint32_t i = e->g->nnodes; i-- > e->g->nforward;) {
    const ZgNode *n = &e->g->nodes[i];
    if (n->op != ZG_OP_PARAM_GRAD) continue;
    e->next_grad[i] = e->first_grad[n->opt[0]];
    e->first_grad[n->opt[0]] = i;
  }
}

/* Returns the sum of all that the graph adds to a parameter's gradient; NULL: it adds nothing. */
static const ZkResidue *graph_gradient(const Eval *e, uint32_t param) {
  const ZgType *t = &e->w->p->graph->params[param].type;
  int64_t elements = zp_whole_elements(e->w, t);
  ZkResidue *sum = NULL;
  for (uint32_t i = e->first_grad[param]; i != ZP_NONE; i = e->next_grad[i]) {
    const void *added = e->whole[e->g->nodes[i].in[0]];
    if (!added) continue;
    if (!sum) sum = ZB_NEWN(e->a, ZkResidue, elements + 1);
    for (int64_t k = 0; k < elements; k++) sum[k] = zk_residue_add(sum[k], ((const ZkResidue *)added)[k]);
  }
  return sum;
}

static bool gradient(const Proof *x, const ZpBucket *k, const ZpSlice *slice) {
  Eval *e = x->e;
  const ZgParam *param = &e->w->p->graph->params[slice->param];
  ZpValue v = {.type = param->type};
  const ZkResidue *want = graph_gradient(e, slice->param);
  int64_t elements = 1;
  if (!want || !e->base[slice->param])
    return !want || k->frozen || fail(x, "makes no gradient of %s", param->path);
  memcpy(v.axis, slice->axis, sizeof v.axis);
  memcpy(v.state, slice->state, sizeof v.state);
  for (int a = 0; a < slice->naxes; a++) {
    v.size[a] = zp_small_size(e->w, v.state, v.axis[a]);
    elements *= v.size[a];
  }
  void **at = &e->grad[slice->param * (uint32_t)e->ranks];
  for (int r = 0; r < e->ranks; r++)
    if (!at[r]) at[r] = e->base[slice->param];
  for (int r = 0; r < e->ranks; r++)
    if (!is_part(e, &v, r, summed(e, at, r, k->partial, elements, e->base[slice->param]), want, &param->type,
                 !param->state))
      return fail(x, "the gradient of %s is not the graph's on rank %d", param->path, r);
  return true;
}

static bool gradients(const Proof *x) {
  const Eval *e = x->e;
  for (uint32_t b = 0; b < e->s->nbuckets; b++) {
    const ZpBucket *k = &e->w->p->programs.buckets[e->s->buckets[b]];
    for (uint32_t i = 0; i < k->nslices && !k->frozen; i++)
      if (!gradient(x, k, &k->slices[i])) return false;
  }
  return true;
}

/* ---- the plan's graph ---------------------------------------------------------------------------------- */
/* Returns whether a recurrence was cut whose decays are exponentials of sums, which a hash does not
 * multiply. */
static bool has_decays(const ZgSegment *g) {
  bool any = false;
  for (uint32_t i = 0; i < g->nnodes; i++)
    any |= zg_is_linear_attend(g->nodes[i].op) && g->nodes[i].opt[0] & ZG_LINEAR_DECAY;
  return any;
}

static bool same_tensor(const Small *w, const ZgType *t, const void *x, const void *y) {
  bool same = (x != NULL) == (y != NULL);
  for (int64_t i = zp_whole_elements(w, t); same && x && i-- > 0;) same = same_cell(t, x, i, y, i);
  return same;
}

static bool same_sink(const Eval *e, const Eval *given, const ZgNode *n) {
  const ZgType *t = &given->g->values[n->in[0]].type;
  switch (n->op) {
  case ZG_OP_PARAM_GRAD:
    return same_tensor(e->w, &e->w->p->given->params[n->opt[0]].type, graph_gradient(e, (uint32_t)n->opt[0]),
                       graph_gradient(given, (uint32_t)n->opt[0]));
  case ZG_OP_LOSS_NUM:
  case ZG_OP_LOSS_DEN:
  case ZG_OP_AUX:
    return graph_sum(e, n->op, (uint32_t)n->opt[0]).r == graph_sum(given, n->op, (uint32_t)n->opt[0]).r;
  case ZG_OP_CARRY_OUT:
  case ZG_OP_DCARRY_IN:
  case ZG_OP_OUTPUT:
    for (uint32_t i = 0; i < e->g->nnodes; i++)
      if (e->g->nodes[i].op == n->op && e->g->nodes[i].opt[0] == n->opt[0])
        return same_tensor(e->w, t, e->whole[e->g->nodes[i].in[0]], given->whole[n->in[0]]);
    return false;
  default: return true;
  }
}

/* Returns the sink in which the plan's own graph differs from the model's, evaluated in world w; NULL: in
 * none. */
static const ZgNode *differing_sink(const Proof *x, const Small *w) {
  const ZpPlan *p = w->p;
  Eval own = *x->e, given = *x->e;
  own.w = given.w = w;
  given.g = &p->given->segments[x->e->index];
  list_gradients(&given, p->given->nparams);
  if (w != x->e->w) { /* else it has been evaluated */
    own.whole = ZB_NEWN(x->e->a, void *, own.g->nvalues + 1);
    zp_eval_graph(&own, p->asked.forward_only ? own.g->nforward : own.g->nnodes);
  }
  given.whole = ZB_NEWN(x->e->a, void *, given.g->nvalues + 1);
  uint32_t nnodes = p->asked.forward_only ? given.g->nforward : given.g->nnodes;
  zp_eval_graph(&given, nnodes);
  for (uint32_t i = 0; i < nnodes; i++)
    if (zg_op_info[given.g->nodes[i].op].kind == ZG_SINK && !same_sink(&own, &given, &given.g->nodes[i]))
      return &given.g->nodes[i];
  return NULL;
}

/* Compares the plan's own graph, where it has one (chunks of logits, recurrences in chunks), with the
 * model's. It has numbers of its own, which small sizes may not suit: what differs is looked at again in real
 * ones. */
static bool given_graph(const Proof *x) {
  const ZpPlan *p = x->e->w->p;
  if (p->given == p->graph || p->stream || has_decays(&p->given->segments[x->e->index])) return true;
  const ZgNode *n = differing_sink(x, x->e->w);
  if (!n) return true;
  Small real = zp_small(p, x->e->a, true);
  if (zp_points(&real, x->e->index) > ZP_MOST_POINTS || !(n = differing_sink(x, &real))) return true;
  return zb_fail(x->err, NULL, "part %u: in the plan's own graph, `%s` %lld (%s) is not what the model says",
                 x->e->index, zg_op_info[n->op].text, (long long)n->opt[0], zp_loc_text(p, n->loc));
}

/* ---- a segment ----------------------------------------------------------------------------------------- */
/* The values of a segment with small sizes. */
static ZpValue *small_values(const Small *w, const ZpSegment *s, ZbArena *a) {
  ZpValue *v = ZB_NEWN(a, ZpValue, s->nvalues + 1);
  for (uint32_t i = 0; i < s->nvalues; i++) {
    v[i] = s->values[i];
    for (int k = 0; k < v[i].type.naxes; k++) v[i].size[k] = zp_small_size(w, v[i].state, v[i].axis[k]);
  }
  return v;
}

static bool phase(Proof *x, ZpPhase phase) {
  const ZpNode *where = NULL;
  x->phase = phase;
  const char *wrong = zp_eval_list(x->e, phase, &where);
  if (wrong)
    return fail(x, "%s (%s) %s", zg_op_info[where->call.op].text, zp_loc_text(x->e->w->p, where->loc), wrong);
  if (phase != ZP_COUNT && !carried(x, phase == ZP_BWD)) return false;
  if (phase == ZP_FWD && !cached(x)) return false;
  return taken_out(x);
}

/* Evaluates a segment with leaves of one seed. all: not the count of denominators alone. */
static bool segment(const Small *w, uint32_t index, uint64_t seed, bool all, bool *again, ZbErr *err) {
  const ZpPlan *p = w->p;
  ZbArena *a = zb_arena_new();
  const ZpSegment *s = &p->programs.segments[index];
  Eval e = {.w = w, .a = a, .index = index, .g = &p->graph->segments[index], .s = s, .seed = seed};
  e.ranks = (int)w->mesh.nranks;
  e.whole = ZB_NEWN(a, void *, e.g->nvalues + 1);
  e.v = small_values(w, s, a);
  e.at = ZB_NEWN(a, void *, (size_t)s->nvalues *(size_t)e.ranks + 1);
  e.part = ZB_NEWN(a, uint64_t, (size_t)s->nvalues * (size_t)e.ranks + 1);
  e.grad = ZB_NEWN(a, void *, (size_t)p->graph->nparams *(size_t)e.ranks + 1);
  e.base = ZB_NEWN(a, void *, p->graph->nparams + 1);
  list_gradients(&e, p->graph->nparams);
  Proof x = {&e, ZP_COUNT, err, again};
  bool back = !p->asked.forward_only;
  zp_eval_graph(&e, all && back ? e.g->nnodes : e.g->nforward);
  bool ok = (!all || given_graph(&x)) && phase(&x, ZP_COUNT);
  ok = ok && (!all || (phase(&x, ZP_FWD) && (!back || (phase(&x, ZP_BWD) && gradients(&x)))));
  zb_arena_free(a);
  return ok;
}

/* Returns how often a segment is evaluated: again where there are few points. */
static uint64_t seeds(const Small *w, uint32_t index) {
  double points = zp_points(w, index);
  if (points > ZP_MOST_POINTS) return 0;
  if (points > MANY_POINTS) return 1;
  return w->p->programs.segments[index].list[ZP_COUNT].n ? MOST_SEEDS : SEEDS;
}

static bool all_segments(const Small *w, bool *again, ZbErr *err) {
  bool ok = true;
  *again = false;
  for (uint32_t i = 0; ok && i < w->p->graph->nsegments; i++)
    for (uint64_t seed = 0, n = seeds(w, i); ok && seed < n; seed++)
      ok = segment(w, i, seed, seed < SEEDS, again, err);
  return ok;
}

/* Padding of carried values is taken to be zeros at first. Where a segment hands on others, all are evaluated
 * again with anything there. */
bool zp_check_meaning(const ZpPlan *p, ZbErr *err) {
  ZbArena *a = zb_arena_new();
  Small w = zp_small(p, a, false);
  bool again, ok;
  do ok = all_segments(&w, &again, err);
  while (ok && again);
  zb_arena_free(a);
  return ok;
}

uint32_t zp_parts_unproved(const ZpPlan *p) {
  ZbArena *a = zb_arena_new();
  Small w = zp_small(p, a, false);
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->graph->nsegments; i++) n += zp_points(&w, i) > ZP_MOST_POINTS;
  zb_arena_free(a);
  return n;
}

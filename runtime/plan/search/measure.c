/* Local programs depend on how tensors are split (over tensor, ep and context), on the samples of a micro-
 * batch and on what is recomputed; not on pipe, data and ZeRO. So each is made once, measured, and asked by
 * all recipes that share it. */
#include "runtime/plan/search/internal.h"

#include <string.h>

typedef struct {
  Candidate c; /* ranks of tensor, ep and context, way, micro, set and other of it */
  Layout *made;
} Entry;
enum { CHAINS = 1024 };
struct Layouts {
  const Space *x;
  struct {
    Entry *at;
    uint32_t n;
  } chain[CHAINS]; /* by what they are of */
};

Layouts *layouts_new(const Space *x) {
  Layouts *all = ZB_NEW(x->a, Layouts);
  all->x = x;
  return all;
}

/* ---- measuring ----------------------------------------------------------------------------------------- */
static bool reads_inputs(const ZpSegment *s) {
  for (uint32_t v = 0; v < s->nvalues; v++)
    if (s->values[v].at.space == ZP_AT_INPUT) return true;
  return false;
}

static SegmentNeeds needs_of(const Space *x, const ZpPlan *p, uint32_t index) {
  const ZpSegment *s = &p->programs.segments[index];
  SegmentNeeds n = {.count =
                        s->has_loss && s->list[ZP_COUNT].n ? zp_pass_seconds(p, x->c, index, ZP_COUNT) : 0,
                    .forward = zp_pass_seconds(p, x->c, index, ZP_FWD),
                    .backward = zp_pass_seconds(p, x->c, index, ZP_BWD),
                    .saved = s->saved_bytes,
                    .carry = s->carry_bytes,
                    .dcarry = s->dcarry_bytes,
                    .carry_out = s->carry_out_bytes,
                    .dcarry_out = s->dcarry_out_bytes,
                    .saves_carry = s->saves_carry,
                    .inputs = reads_inputs(s)};
  for (int k = 0; k < ZP_PHASES; k++)
    if (s->list[k].temp > n.temp) n.temp = s->list[k].temp;
  return n;
}

/* Dims of a mesh by what they do. There are no replicas in it, of which all is alike as of data. */
static unsigned kinds_of(const Space *x, const ZpMesh *m, ZpDims dims) {
  unsigned to = 0;
  for (int d = 0; d < m->ndims; d++)
    for (int k = 0; k < DIMS && dims >> d & 1; k++)
      if (x->name[k] && !strcmp(m->dim[d].name, x->name[k])) to |= 1u << k;
  return to & BIT(DATA) ? to | BIT(REPLICA) : to;
}

static BucketNeeds bucket_of(const Space *x, const ZpPlan *p, uint32_t index) {
  const ZpBucket *k = &p->programs.buckets[index];
  uint32_t *users = ZB_NEWN(x->a, uint32_t, k->nusers + 1);
  memcpy(users, k->users, k->nusers * sizeof *users);
  return (BucketNeeds){.elems = k->elems,
                       .elem = (ZkElem)k->elem,
                       .grad = (ZkElem)k->grad,
                       .reduce = (ZkElem)k->reduce,
                       .segment = k->segment,
                       .users = users,
                       .nusers = k->nusers,
                       .states = k->elems ? (double)zp_state_bytes(p, index) / (double)k->elems : 0,
                       .frozen = k->frozen,
                       .alike = kinds_of(x, &p->layout.mesh, k->replicas),
                       .partial = kinds_of(x, &p->layout.mesh, k->partial),
                       .update = zp_optimizer_bytes(p, k, 1)};
}

static void fill(const Space *x, const ZpPlan *p, Layout *l) {
  l->nsegments = p->graph->nsegments;
  l->nbuckets = p->programs.nbuckets;
  l->segment = ZB_NEWN(x->a, SegmentNeeds, l->nsegments);
  l->bucket = ZB_NEWN(x->a, BucketNeeds, l->nbuckets);
  l->stages = ZB_NEWN(x->a, Stages *, x->items + 1);
  l->clip = p->asked.clip;
  for (uint32_t i = 0; i < l->nsegments; i++) l->segment[i] = needs_of(x, p, i);
  for (uint32_t i = 0; i < l->nbuckets; i++) l->bucket[i] = bucket_of(x, p, i);
  if (!p->programs.ninputs) return;
  const ZpInputUse *u = &p->programs.inputs[p->programs.ninputs - 1];
  l->input_bytes = u->at + zb_round_up(p->programs.segments[u->value_segment].values[u->value].bytes, 64);
}

/* Returns the plan of one micro-batch. Two ranks of data, where there may be any: buckets are as with
 * more. */
static const ZpPlan *plan_of(const Space *x, const Candidate *like, ZbArena *a, ZlDiags *d) {
  Candidate c = *like;
  c.size[DIM_PIPE] = c.size[DIM_REPLICA] = 1;
  c.size[DIM_DATA] = x->batch && x->name[DIM_DATA] && x->given[DIM_DATA] != 1 ? 2 : 1;
  return zp_plan_local(a, x->g, space_probe(x, &c, a), d, x->plan);
}

bool layouts_begin(Layouts *all, int64_t ranks, ZlDiags *d) {
  const Space *x = all->x;
  ZbArena *a = zb_arena_new();
  Candidate c = ONE_RANK;
  for (int k = DIM_EP; k <= DIM_TENSOR; k++) c.size[k] = x->given[k] > 0 ? x->given[k] : 1;
  if (c.size[DIM_CONTEXT] > 1 && x->nways) c.way = x->way[0];
  const ZpPlan *p = plan_of(x, &c, a, d);
  bool ok = p && zp_cluster_suffices(p, ranks, x->c, d);
  zb_arena_free(a);
  return ok;
}

static Layout *make(const Space *x, const Candidate *c) {
  Layout *l = ZB_NEW(x->a, Layout);
  ZbArena *a = zb_arena_new();
  ZlDiags *d = zl_diags_new(a, zl_sources_new(a));
  const ZpPlan *p = plan_of(x, c, a, d);
  if (p) fill(x, p, l);
  else l->refused = zb_strdup(x->a, zl_first_error(d) ? zl_first_error(d) : "it cannot be planned");
  zb_arena_free(a);
  return l;
}

static bool alike(const Candidate *a, const Candidate *b) {
  bool same = a->micro == b->micro && a->set == b->set && a->other == b->other && a->way == b->way;
  for (int k = DIM_EP; same && k <= DIM_TENSOR; k++) same = a->size[k] == b->size[k];
  return same;
}

const Layout *layout_of(Layouts *all, const Candidate *c) {
  uint64_t h = (uint64_t)c->micro * 131 + c->set * 7 + c->other + c->way * 3u;
  for (int k = DIM_EP; k <= DIM_TENSOR; k++) h = h * 1009 + (uint64_t)c->size[k];
  h %= CHAINS;
  for (uint32_t i = 0; i < all->chain[h].n; i++)
    if (alike(&all->chain[h].at[i].c, c)) return all->chain[h].at[i].made;
  Entry e = {*c, make(all->x, c)};
  ZB_PUSH(all->x->a, all->chain[h].at, all->chain[h].n, e);
  return e.made;
}

/* ---- stages -------------------------------------------------------------------------------------------- */
static void fill_stage(const Layout *l, const uint32_t *segment_of, uint32_t first, uint32_t n, uint32_t s,
                       Stages *to) {
  bool inputs = false;
  to->first[s] = segment_of[first];
  to->last[s] = segment_of[first + n - 1];
  for (uint32_t i = 0; i < n; i++) {
    const SegmentNeeds *k = &l->segment[segment_of[first + i]];
    to->count[s * l->nsegments + segment_of[first + i]]++;
    to->slot[s] += k->saved + (i && k->saves_carry ? k->carry : 0);
    uint64_t most = k->carry > k->dcarry ? k->carry : k->dcarry;
    if (i && most > to->boundary[s]) to->boundary[s] = most;
    if (k->temp > to->temp[s]) to->temp[s] = k->temp;
    to->forward[s] += k->forward;
    to->backward[s] += k->backward;
    to->counting[s] += k->count;
    inputs |= k->inputs;
  }
  to->inputs[s] = inputs ? l->input_bytes : 0;
  to->slot[s] += to->inputs[s];
}

const Stages *layout_stages(const Space *x, const Layout *l, int64_t pipe) {
  if (l->stages[pipe]) return l->stages[pipe];
  uint32_t n = (uint32_t)pipe, ninst = 0;
  for (uint32_t s = 0; s < l->nsegments; s++) ninst += x->g->segments[s].trip;
  ZbArena *a = zb_arena_new();
  double *seconds = ZB_NEWN(a, double, l->nsegments);
  uint32_t *segment_of = ZB_NEWN(a, uint32_t, ninst);
  for (uint32_t s = 0, inst = 0; s < l->nsegments; s++) {
    seconds[s] = l->segment[s].forward + l->segment[s].backward;
    for (uint32_t i = 0; i < x->g->segments[s].trip; i++) segment_of[inst++] = s;
  }
  ZpStageItem *item;
  uint32_t nitems = zp_stage_items(x->g, a, seconds, &item);
  Stages *to = l->stages[pipe] = ZB_NEW(x->a, Stages);
  *to = (Stages){.count = ZB_NEWN(x->a, uint32_t, n * l->nsegments),
                 .first = ZB_NEWN(x->a, uint32_t, n),
                 .last = ZB_NEWN(x->a, uint32_t, n),
                 .items = ZB_NEWN(x->a, int64_t, n),
                 .slot = ZB_NEWN(x->a, uint64_t, n),
                 .boundary = ZB_NEWN(x->a, uint64_t, n),
                 .temp = ZB_NEWN(x->a, uint64_t, n),
                 .inputs = ZB_NEWN(x->a, uint64_t, n),
                 .forward = ZB_NEWN(x->a, double, n),
                 .backward = ZB_NEWN(x->a, double, n),
                 .counting = ZB_NEWN(x->a, double, n)};
  if (x->base->stages.n && !x->free_stages) memcpy(to->items, x->base->stages.counts, n * sizeof *to->items);
  else zp_cut_stages(item, nitems, n, NULL, true, to->items);
  uint32_t at = 0;
  for (uint32_t s = 0; s < n; s++) {
    uint32_t first = at < nitems ? item[at].first : ninst;
    at += (uint32_t)to->items[s];
    uint32_t end = s + 1 < n && at < nitems ? item[at].first : ninst;
    if (first < end) fill_stage(l, segment_of, first, end - first, s, to);
  }
  zb_arena_free(a);
  return to;
}

/* ---- schedules ----------------------------------------------------------------------------------------- */
const ZpRehearsal *rehearsal(const Space *x, int64_t pipe, int64_t nmicro, bool keeps) {
  Rehearsals *all = &x->rehearsed[pipe];
  for (uint32_t i = 0; i < all->n; i++)
    if (all->at[i].nmicro == nmicro) return &all->at[i].by[keeps];
  const char *schedule =
      zl_schedule(pipe > 1 ? x->base->schedule : (ZlName){0}); /* a single stage has none */
  Rehearsed r = {.nmicro = nmicro};
  for (int k = 0; k < 2; k++) r.by[k] = zp_rehearse(x->a, schedule, (uint32_t)pipe, (uint32_t)nmicro, k);
  ZB_PUSH(x->a, all->at, all->n, r);
  return &all->at[all->n - 1].by[keeps];
}

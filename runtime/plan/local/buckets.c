/* Parameters into flat buffers. Parameters of one unit that live and are reduced alike (same users, same
 * storage cut, same dims to reduce over) are one bucket: gathered by one all-gather, reduced by one
 * reduce-scatter, updated by one pass. The parameters of an iteration of a repeat form units of their own; a
 * parameter used by several segments (a tied table) has users of its own and so a bucket of its own. */
#include "runtime/plan/local/local.h"

#include <stdlib.h>
#include <string.h>

/* Returns the format of a state of a trained bucket's optimizer, or of the average behind them. */
static ZkElem state_elem(const ZpPlan *p, const ZpBucket *k, int state) {
  if (k->frozen || !p->asked.ngroups) return ZK_F32;
  const ZpOptimizer *o = &p->asked.optimizers[k->optimizer];
  return state < ZP_MOST_STATES ? (ZkElem)o->state_elem[state] : ZK_F32;
}

/* Slices and shards start at 64 bytes in f32, and with a block of every format. */
static uint64_t align_of(const ZpPlan *p, const ZpBucket *k) {
  if (zk_is_packed((ZkElem)k->elem)) return zk_packed_unit((ZkElem)k->elem);
  uint64_t align = 16;
  for (int i = -1; i < ZP_MOST_STATES; i++) {
    ZkElem e = i < 0 ? (ZkElem)k->elem : state_elem(p, k, i);
    if (zk_elem_info[e].block > align) align = zk_elem_info[e].block;
  }
  return align;
}

/* Segments that use a parameter, ascending. */
typedef struct {
  uint32_t *list, n;
} Users;

static void add_user(const ZpPlan *p, Users *u, uint32_t segment) {
  if (!u->n || u->list[u->n - 1] != segment) ZB_PUSH(p->arena, u->list, u->n, segment);
}

/* Finds the segments that use each parameter. */
static Users *find_users(const ZpPlan *p) {
  const ZgGraph *g = p->graph;
  Users *users = ZB_NEWN(p->arena, Users, g->nparams + 1);
  for (uint32_t s = 0; s < g->nsegments; s++)
    for (uint32_t i = 0; i < g->segments[s].nnodes; i++) {
      const ZgNode *k = &g->segments[s].nodes[i];
      if (k->op == ZG_OP_PARAM || k->op == ZG_OP_PARAM_GRAD) add_user(p, &users[k->opt[0]], s);
    }
  for (uint32_t i = 0; !zp_stores_read(p) && i < g->nparams; i++) /* unused, yet stored */
    if (!users[i].n) add_user(p, &users[i], g->params[i].segment == ZG_NONE ? 0 : g->params[i].segment);
  return users;
}

static ZpSlice slice_of(const ZpPlan *p, uint32_t param, uint64_t at) {
  const ZgParam *q = &p->graph->params[param];
  ZpSlice s = {.param = param, .at = at, .n = 1, .naxes = q->type.naxes, .group = p->asked.group[param]};
  zp_layout(p, &q->type, s.state);
  zp_declared_order(p, param, s.state, s.axis, s.size);
  for (int i = 0; i < s.naxes; i++) {
    s.whole[i] = p->layout.axis_size[s.axis[i]];
    s.valid[i] = p->layout.axis_valid[s.axis[i]];
    s.n *= (uint64_t)s.size[i];
    if (p->layout.roles) s.role[i] = p->layout.roles[param][i];
  }
  s.takes = s.n;
  if (!zp_param_packed(p, param)) return s;
  int64_t columns = 1, sum = 1;
  for (int i = 0; i < s.naxes; i++)
    *(p->asked.packed[param].role[i] == ZP_COLS ? &sum : &columns) *= s.size[i];
  s.takes = zk_packed_elems(zp_param_elem(p, param), columns, sum);
  return s;
}

/* Returns the format in which gradients are summed. Updates of states are summed in f32, whatever the recipe
 * says. */
static ZkElem reduce_elem(const ZpPlan *p, const ZpBucket *k) {
  bool state = p->asked.noptimizers && !k->frozen && p->asked.optimizers[k->optimizer].kind == ZP_UPDATE;
  return state ? ZK_F32 : zp_precision_elem(p->asked.recipe->precision.reduce);
}
/* Returns the same of the format in which they are added up over micro-batches. */
static ZkElem grad_elem(const ZpPlan *p, const ZpBucket *k) {
  bool state = p->asked.noptimizers && !k->frozen && p->asked.optimizers[k->optimizer].kind == ZP_UPDATE;
  return state || k->frozen ? ZK_F32 : zp_precision_elem(p->asked.recipe->precision.grads);
}

void zp_bucket_storage(const ZpPlan *p, ZpBucket *k) {
  bool fixed = k->frozen || zk_is_packed((ZkElem)k->elem);
  bool cut =
      !fixed || p->asked.zero.what & ZL_SHARD_PARAMS; /* of what is not trained there is nothing else */
  k->shard = cut ? p->asked.zero.over & k->replicas : 0;
  bool grads = k->shard && p->asked.zero.what & ZL_SHARD_GRADS;
  k->gathers = k->shard && p->asked.zero.what & ZL_SHARD_PARAMS;
  k->keeps = k->gathers && p->asked.zero.keep;
  k->scatters = grads ? ZP_SCATTER_EACH_MICROBATCH : k->shard ? ZP_SCATTER_AT_END : ZP_SCATTER_NEVER;
  k->republishes = k->shard && !k->gathers;
  k->reduces = k->partial & ~k->shard;
  if (k->frozen) k->scatters = ZP_SCATTER_NEVER;
}

/* Adds the dims that cut matrices which Muon updates; later slices may add more. */
static void cut_matrices(const ZpPlan *p, ZpBucket *k, const ZpSlice *s) {
  if (!zp_updates_whole(p, k)) return;
  k->matrices |= k->shard;
  for (int i = 0; i < s->naxes; i++)
    for (int d = 0; d < p->layout.mesh.ndims && s->role[i] != ZP_EACH; d++)
      if (s->state[d].kind == 'S' && s->state[d].axis == s->axis[i]) k->matrices |= 1u << d;
}

/* The calls that update a bucket: neighbours of a group are one, but for matrices, which are scaled by their shape. A
 * state's update may make something of zeros, so its call ends where it does. */
static void list_calls(ZpPlan *p, ZpBucket *k) {
  bool muon = zp_updates_whole(p, k);
  for (uint32_t j = 0; j < k->nslices && !k->frozen && p->asked.ngroups && !p->asked.forward_only; j++) {
    const ZpSlice *s = &k->slices[j];
    bool exact = muon || p->graph->params[s->param].state;
    ZpUpdateCall c = {s->at,
                      exact                ? s->at + s->n
                      : j + 1 < k->nslices ? k->slices[j + 1].at
                                           : k->elems,
                      s->group, 1};
    if (muon) c.times = zp_muon_scale(&p->asked.optimizers[k->optimizer], s);
    ZpUpdateCall *last = k->ncalls ? &k->calls[k->ncalls - 1] : NULL;
    if (last && !muon && last->group == c.group && last->to == c.from) last->to = c.to;
    else ZB_PUSH(p->arena, k->calls, k->ncalls, c);
  }
}

static ZpBucket *find_bucket(ZpPlan *p, const ZpBucket *like) {
  for (uint32_t i = 0; i < p->programs.nbuckets; i++) {
    ZpBucket *k = &p->programs.buckets[i];
    if (k->segment == like->segment && k->nusers == like->nusers && k->shard == like->shard &&
        k->partial == like->partial && k->replicas == like->replicas && k->frozen == like->frozen &&
        k->optimizer == like->optimizer && k->elem == like->elem && k->reduce == like->reduce &&
        k->grad == like->grad && !memcmp(k->users, like->users, k->nusers * sizeof *k->users))
      return k;
  }
  return NULL;
}

static const char *bucket_name(const ZpPlan *p, const ZpBucket *k) {
  if (k->nslices == 1) return p->graph->params[k->slices[0].param].path;
  if (k->segment != ZP_NONE) {
    const char *more = k->frozen      ? " (frozen)"
                       : k->optimizer ? zb_printf(p->arena, " (%u)", k->optimizer + 1)
                                      : "";
    return zb_printf(p->arena, "%s.*%s", p->graph->segments[k->segment].label, more);
  }
  return zb_printf(p->arena, "%s, ... (%u)", p->graph->params[k->slices[0].param].path, k->nslices);
}

static void count_params(ZpPlan *p) {
  for (uint32_t i = 0; i < p->programs.nbuckets; i++)
    for (uint32_t k = 0; k < p->programs.buckets[i].nslices; k++) {
      const ZpBucket *b = &p->programs.buckets[i];
      double n = b->segment == ZP_NONE ? 1 : p->graph->segments[b->segment].trip;
      for (int a = 0; a < b->slices[k].naxes; a++) n *= (double)b->slices[k].valid[a];
      p->notes.params += n;
      if (!b->frozen && !p->graph->params[b->slices[k].param].state) p->notes.trained += n;
    }
}

static void make_buckets(ZpBuild *b) {
  ZpPlan *p = b->p;
  const ZgGraph *g = p->graph;
  const Users *users = find_users(p);
  for (uint32_t i = 0; i < g->nparams; i++) {
    if (zp_stores_read(p) && !users[i].n)
      continue; /* a step makes the logits alone, and nothing of it reads this one */
    ZpSlice s = slice_of(p, i, 0);
    ZpBucket like = {.segment = g->params[i].segment, .frozen = p->asked.frozen && p->asked.frozen[i]};
    if (!like.frozen && p->asked.ngroups) like.optimizer = p->asked.groups[p->asked.group[i]].optimizer;
    like.users = users[i].list, like.nusers = users[i].n;
    like.elem = zp_param_elem(p, i), like.reduce = reduce_elem(p, &like), like.grad = grad_elem(p, &like);
    for (int d = 0; d < p->layout.mesh.ndims; d++)
      if (d != p->layout.mesh.pipe && s.state[d].kind == 'R') like.replicas |= 1u << d;
    like.partial = like.frozen ? 0 : b->grad_partial[i] & like.replicas;
    zp_bucket_storage(p, &like);
    ZpBucket *k = find_bucket(p, &like);
    if (!k) {
      ZB_PUSH(p->arena, p->programs.buckets, p->programs.nbuckets, like);
      k = &p->programs.buckets[p->programs.nbuckets - 1];
    }
    s.at = k->elems;
    cut_matrices(p, k, &s);
    ZB_PUSH(p->arena, k->slices, k->nslices, s);
    k->elems = zb_round_up(k->elems + s.takes, align_of(p, k));
  }
  for (uint32_t i = 0; i < p->programs.nbuckets; i++) {
    ZpBucket *k = &p->programs.buckets[i];
    k->elems = zb_round_up(k->elems, align_of(p, k) * (uint64_t)zp_group_size(&p->layout.mesh, k->shard));
    k->name = bucket_name(p, k);
    list_calls(p, k);
  }
}

static void list_users(ZpPlan *p) {
  for (uint32_t i = 0; i < p->programs.nbuckets; i++) {
    const ZpBucket *k = &p->programs.buckets[i];
    for (uint32_t u = 0; u < k->nusers; u++) {
      ZpSegment *s = &p->programs.segments[k->users[u]];
      ZB_PUSH(p->arena, s->buckets, s->nbuckets, i);
    }
  }
}

static bool lies_alike(const ZpPlan *p, const ZpSlice *x, const ZpSlice *y) {
  bool same = x->naxes == y->naxes && x->takes == y->takes;
  for (int i = 0; same && i < x->naxes; i++) same = x->axis[i] == y->axis[i] && x->size[i] == y->size[i];
  for (int d = 0; same && d < p->layout.mesh.ndims; d++)
    same = x->state[d].kind == y->state[d].kind && x->state[d].axis == y->state[d].axis;
  return same;
}

/* Takes the buckets of the plan that trains, in whose arena steps of generation are made: all of them lie there, also
 * those that steps do not read. False with a report where a step needs a parameter laid out otherwise: one with an
 * axis along time that ranks split. */
static bool take_buckets(ZpBuild *b) {
  ZpPlan *p = b->p;
  const ZpPrograms *theirs = &p->asked.eval_of->programs;
  for (uint32_t i = 0; i < theirs->nbuckets; i++) {
    ZpBucket k = theirs->buckets[i];
    k.slices = ZB_NEWN(p->arena, ZpSlice, k.nslices + 1);
    k.calls = NULL, k.ncalls = 0, k.matrices = 0;
    for (uint32_t j = 0; j < k.nslices; j++) {
      const ZpSlice *s = &theirs->buckets[i].slices[j];
      k.slices[j] = slice_of(p, s->param, s->at);
      if (lies_alike(p, &k.slices[j], s)) continue;
      ZlDiag *e = zl_report(b->d, ZL_Z0815, p->asked.recipe->span,
                            "parameter %s is split along positions, of which a step of generation has few",
                            p->graph->params[s->param].path);
      zl_help(e, "generate with a checkpoint instead, with a recipe that does not split it");
      return false;
    }
    ZB_PUSH(p->arena, p->programs.buckets, p->programs.nbuckets, k);
  }
  return true;
}

bool zp_buckets(ZpBuild *b) {
  ZpPlan *p = b->p;
  bool taken = p->stream && p->asked.eval_of;
  if (taken && !take_buckets(b)) return false;
  if (!taken) make_buckets(b);
  list_users(p);
  count_params(p);
  return true;
}

/* Slices are in the order of their parameters, and so of their places: both are found by halving. */
static int by_param(const void *param, const void *slice) {
  uint32_t a = *(const uint32_t *)param, b = ((const ZpSlice *)slice)->param;
  return (a > b) - (a < b);
}

/* Returns the bytes of n elements of a bucket's parameters or gradients. */
static uint64_t bytes_at(const ZpBucket *k, int place, uint64_t n) {
  return zk_bytes(place == ZP_AT_GRAD ? ZK_F32 : (ZkElem)k->elem, n);
}

bool zp_has_param(const ZpPlan *p, uint32_t param) {
  for (uint32_t i = 0; i < p->programs.nbuckets; i++) {
    const ZpBucket *k = &p->programs.buckets[i];
    if (bsearch(&param, k->slices, k->nslices, sizeof *k->slices, by_param)) return true;
  }
  return false;
}

ZpLoc zp_bucket_loc(const ZpPlan *p, const ZpSegment *s, uint32_t param, ZpSpace place) {
  for (uint32_t i = 0; i < s->nbuckets; i++) {
    const ZpBucket *k = &p->programs.buckets[s->buckets[i]];
    const ZpSlice *q = bsearch(&param, k->slices, k->nslices, sizeof *k->slices, by_param);
    if (q) return (ZpLoc){(uint8_t)place, i, bytes_at(k, place, q->at)};
  }
  ZB_BUG("parameter %s is in no bucket of its segment", p->graph->params[param].path);
}

uint32_t zp_param_at(const ZpPlan *p, const ZpSegment *s, ZpLoc loc) {
  const ZpBucket *k = &p->programs.buckets[s->buckets[loc.index]];
  uint32_t lo = 0, hi = k->nslices;
  while (lo < hi) {
    uint32_t mid = (lo + hi) / 2;
    if (bytes_at(k, loc.space, k->slices[mid].at) < loc.offset) lo = mid + 1;
    else hi = mid;
  }
  if (lo == k->nslices || bytes_at(k, loc.space, k->slices[lo].at) != loc.offset)
    ZB_BUG("what lies in bucket %s is of no parameter", k->name);
  return k->slices[lo].param;
}

bool zp_used_back(const ZpPlan *p, const ZpSegment *s, uint32_t k) {
  const ZpList *l = &s->list[ZP_BWD];
  if (!p->programs.buckets[s->buckets[k]].frozen) return true;
  for (uint32_t i = 0; i < l->n; i++)
    for (int j = 0; j < l->nodes[i].call.nin; j++) {
      const ZpLoc *at = &s->values[l->nodes[i].in[j]].at;
      if (at->space == ZP_AT_PARAM && at->index == k) return true;
    }
  return false;
}

/* ---- what a rank stores -------------------------------------------------------------------------------- */
int zp_held_parts(const ZpPlan *p, const ZpBucket *k, int *first) {
  *first = k->elem != ZK_F32 ? ZP_PART_ROUNDED : ZP_PART_VALUES;
  return zp_lacks_master(p, k) ? ZP_PART_VALUES : 1 + zp_states(p, k);
}

ZkElem zp_part_elem(const ZpPlan *p, const ZpBucket *k, int part) {
  if (part == ZP_PART_ROUNDED) return (ZkElem)k->elem;
  if (part == ZP_PART_VALUES) return k->elem == ZK_F32 ? ZK_F32 : ZK_U16;
  return state_elem(p, k, part - 1);
}

/* Returns the bytes of the whole bucket, or of this rank's shard of it, in a format. */
static uint64_t bucket_bytes(const ZpPlan *p, const ZpBucket *k, bool shard, ZkElem elem) {
  uint64_t parts = shard ? (uint64_t)zp_group_size(&p->layout.mesh, k->shard) : 1;
  return zb_round_up(zk_bytes(elem, k->elems / parts), 64);
}
uint64_t zp_param_bytes(const ZpPlan *p, uint32_t b) {
  return bucket_bytes(p, &p->programs.buckets[b], p->programs.buckets[b].gathers,
                      (ZkElem)p->programs.buckets[b].elem);
}
uint64_t zp_master_bytes(const ZpPlan *p, uint32_t b) {
  bool none = p->programs.buckets[b].elem == ZK_F32 || zp_lacks_master(p, &p->programs.buckets[b]);
  return none ? 0
              : bucket_bytes(p, &p->programs.buckets[b], true,
                             zp_part_elem(p, &p->programs.buckets[b], ZP_PART_VALUES));
}
int zp_states(const ZpPlan *p, const ZpBucket *k) {
  bool none = k->frozen || p->asked.forward_only || !p->asked.noptimizers;
  return none ? 0 : p->asked.optimizers[k->optimizer].states + (p->asked.average > 0);
}
int zp_averaged_state(const ZpPlan *p, const ZpBucket *k) {
  if (!zp_states(p, k) || p->asked.optimizers[k->optimizer].kind == ZP_UPDATE) return -1;
  const ZkOptimizerInfo *info = &zk_optimizer_info[p->asked.optimizers[k->optimizer].kind];
  return info->averages ? info->nstates - 1 : -1;
}
uint64_t zp_grad_bytes(const ZpPlan *p, uint32_t b) {
  const ZpBucket *k = &p->programs.buckets[b];
  bool none = p->asked.forward_only || k->frozen;
  return none ? 0 : bucket_bytes(p, k, zp_shards_grads(k), (ZkElem)k->grad);
}
uint64_t zp_moments_at(const ZpPlan *p, uint32_t b) {
  const ZpBucket *k = &p->programs.buckets[b];
  uint64_t bytes = 0, own = k->elems / (uint64_t)zp_group_size(&p->layout.mesh, k->shard);
  for (int i = 0; i < zp_states(p, k); i++) bytes += zk_bytes(state_elem(p, k, i), own);
  return zb_round_up(bytes, 64);
}
uint64_t zp_state_bytes(const ZpPlan *p, uint32_t b) {
  return zp_moments_at(p, b) + zb_round_up(zk_bytes(ZK_F32, zp_moments(p, &p->programs.buckets[b])), 64);
}

/* Each of the ranks that own the same elements saves one part of them, a multiple of 16. */
uint64_t zp_spoken_elems(const ZpPlan *p, uint32_t b) {
  const ZpBucket *k = &p->programs.buckets[b];
  uint64_t n = k->elems / (uint64_t)zp_group_size(&p->layout.mesh, k->shard);
  uint64_t same = (uint64_t)zp_group_size(&p->layout.mesh, k->replicas & ~k->shard);
  return zb_round_up((n + same - 1) / same, 16);
}
uint64_t zp_snapshot_bytes(const ZpPlan *p, const ZpStage *st) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < st->nheld; i++)
    if (st->held[i].norm_owner)
      bytes += (1 + (uint64_t)zp_states(p, &p->programs.buckets[st->held[i].bucket])) *
                   zk_bytes(ZK_F32, zp_spoken_elems(p, st->held[i].bucket)) +
               zk_bytes(ZK_F32, zp_moments(p, &p->programs.buckets[st->held[i].bucket]));
  return bytes;
}

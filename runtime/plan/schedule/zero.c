/* Parameters and gradients of one stage over a step: which bucket is gathered when and where, where its
 * gradients are staged, how they are reduced. Works on the stage's compute order alone.
 *
 * Four layers, ZeRO-3, two gather buffers (`prefetch 1`), one micro-batch; `A<2` gathers layer 2 into buffer A:
 *   F0 F1   F2   F3   B3 B2 B1   B0     F2 needs a buffer while F1 still runs in B: it takes A, where F0 is
 *   A0 B1  A<2  B<3   -  -  B<1  A<0    done; B3 and B2 find theirs still there; B1 and B0 do not */
#include "runtime/plan/schedule/schedule.h"

#include <string.h>

static uint64_t shards(const ZpPlan *p, uint32_t bucket) {
  return (uint64_t)zp_group_size(&p->layout.mesh, p->programs.buckets[bucket].shard);
}
static uint64_t param_bytes(const ZpBucket *k) { return zk_bytes((ZkElem)k->elem, k->elems); }

/* ---- who uses what ------------------------------------------------------------------------------------- */
typedef struct {
  uint32_t pos, use, held;
} Entry;

bool zp_gen_uses(const ZpBuilder *g, const ZpInstr *in, uint32_t k) {
  return in->op == ZP_I_FWD || g->back[g->st->insts[in->inst].segment][k];
}

/* Uses of the stage's buckets by position; list[at[t]..at[t+1]) are those of template t in order. */
static Entry *list_uses(ZpBuilder *g, uint32_t **at_out) {
  const ZpPlan *p = g->p;
  uint32_t *at = ZB_NEWN(g->a, uint32_t, p->programs.nbuckets + 2), n = 0;
  g->use_at = ZB_NEWN(g->a, uint32_t, g->ncomp + 1);
  for (uint32_t pos = 0; pos < g->ncomp; pos++) {
    const ZpInstr *in = &g->d[g->comp[pos]].in;
    g->use_at[pos] = n;
    if (in->op != ZP_I_FWD && in->op != ZP_I_BWD) continue;
    const ZpInst *inst = &g->st->insts[in->inst];
    n += inst->nheld;
    for (uint32_t k = 0; k < inst->nheld; k++)
      if (zp_gen_uses(g, in, k)) at[g->st->held[inst->held[k]].bucket + 2]++;
  }
  g->use_at[g->ncomp] = n;
  g->uses = ZB_NEWN(g->a, Use, n);
  Entry *list = ZB_NEWN(g->a, Entry, n);
  for (uint32_t t = 0; t < p->programs.nbuckets; t++) at[t + 2] += at[t + 1];
  for (uint32_t pos = 0; pos < g->ncomp; pos++) {
    for (uint32_t u = g->use_at[pos]; u < g->use_at[pos + 1]; u++) {
      const ZpInst *inst = &g->st->insts[g->d[g->comp[pos]].in.inst];
      uint32_t held = inst->held[u - g->use_at[pos]];
      g->uses[u] = (Use){ZP_NONE, ZP_NONE, ZP_NONE, ZP_NONE, false};
      if (!zp_gen_uses(g, &g->d[g->comp[pos]].in, u - g->use_at[pos])) continue;
      list[at[g->st->held[held].bucket + 1]++] = (Entry){pos, u, held};
    }
  }
  *at_out = at;
  return list;
}

/* ---- gathers ------------------------------------------------------------------------------------------- */
typedef struct {
  uint32_t held, last; /* contents; the entry that used it last */
  uint32_t gather;     /* who gathered it */
} Resident;

static uint32_t gather(ZpBuilder *g, uint32_t held, uint32_t after_pos, uint32_t need, uint32_t buf) {
  uint32_t t = g->st->held[held].bucket;
  uint32_t id =
      zp_gen_draft(g, ZP_I_GATHER_PARAMS, after_pos == ZP_NONE ? 0 : g->end[after_pos], BY_GATHER, need);
  ZpDraft *d = &g->d[id];
  d->in.held = held;
  d->in.dims = g->p->programs.buckets[t].shard;
  d->in.coll = ZG_OP_ALL_GATHER;
  d->in.bytes = param_bytes(&g->p->programs.buckets[t]);
  d->after_pos = after_pos;
  d->in.naccess = 2;
  d->in.access = ZB_NEWN(g->p->arena, ZpAccess, 2);
  d->in.access[0] = (ZpAccess){g->param_buf[held], ZP_READ, zp_tag_held(g, ZP_TAG_PARAM, held, 0)};
  d->in.access[1] = (ZpAccess){buf, ZP_WRITE, zp_tag_held(g, ZP_TAG_PARAM, held, 0)};
  return id;
}

/* Returns how many buffers iterations take in turn: that of the one in use, and those of as many ahead as the
 * recipe says. */
static uint32_t buffers_for(const ZpBuilder *g, uint32_t nheld) {
  return nheld <= g->p->asked.zero.ahead ? nheld : g->p->asked.zero.ahead + 1;
}

/* Returns the buffer that was used longest ago. */
static uint32_t oldest(const Resident *r, uint32_t n) {
  uint32_t k = 0;
  for (uint32_t i = 1; i < n; i++)
    if (r[i].last < r[k].last) k = i;
  return k;
}

/* list[0..n): uses of template t, of which the stage holds nheld. where: per held bucket, all ZP_NONE. Where
 * there are not buffers for all of them, one is gathered into that which was used longest ago: entries since
 * then may still be computing when we want to gather. */
static void plan_gathers(ZpBuilder *g, uint32_t t, const Entry *list, uint32_t n, uint32_t nheld,
                         uint32_t *where) {
  const ZpBucket *b = &g->p->programs.buckets[t];
  uint32_t nbufs = b->keeps ? nheld : buffers_for(g, nheld), full = 0;
  uint32_t buf = zp_gen_bufs(g, ZP_B_GATHER, t, nbufs, zb_round_up(param_bytes(b), 64));
  Resident *r = ZB_NEWN(g->a, Resident, nbufs);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t held = list[i].held, k = where[held], after = ZP_NONE; /* k: the buffer that had it last */
    if (k == ZP_NONE || r[k].held != held) {
      k = full < nbufs ? full : oldest(r, nbufs);
      if (full < nbufs) full++;
      else after = list[r[k].last].pos;
      r[k] = (Resident){held, i, gather(g, held, after, list[i].pos, buf + k)};
      where[held] = k;
    }
    r[k].last = i;
    g->uses[list[i].use].gather_buf = buf + k;
    g->uses[list[i].use].gather = r[k].gather;
  }
}

/* Full parameters that were updated by shards: at the beginning of a step what each rank has of them goes to
 * all, beside the forwards of what is used before. list as for plan_gathers. */
static void plan_publishing(ZpBuilder *g, const Entry *list, uint32_t n, uint32_t *where) {
  for (uint32_t i = 0; i < n; i++) {
    uint32_t held = list[i].held, buf = g->param_buf[held], t = g->st->held[held].bucket;
    if (where[held] == ZP_NONE) {
      where[held] = zp_gen_draft(g, ZP_I_PUBLISH_PARAMS, 0, BY_GATHER, list[i].pos);
      ZpInstr *in = &g->d[where[held]].in;
      in->held = held;
      in->dims = g->p->programs.buckets[t].shard;
      in->coll = ZG_OP_ALL_GATHER;
      in->bytes = param_bytes(&g->p->programs.buckets[t]);
      in->naccess = 2;
      in->access = ZB_NEWN(g->p->arena, ZpAccess, 2);
      in->access[0] = (ZpAccess){buf, ZP_READ, zp_tag_held(g, ZP_TAG_PARAM, held, 1)};
      in->access[1] = (ZpAccess){buf, ZP_WRITE, zp_tag_held(g, ZP_TAG_PARAM, held, 0)};
    }
    g->uses[list[i].use].gather = where[held];
  }
}

/* ---- gradients ----------------------------------------------------------------------------------------- */
static uint32_t reduction(ZpBuilder *g, ZpInstrOp op, uint32_t held, uint64_t time, uint32_t rank) {
  uint32_t id = zp_gen_draft(g, op, time, rank, 0);
  g->d[id].in.held = held;
  g->d[id].after = g->reduced[held];
  g->reduced[held] = id;
  return id;
}

/* A full gradient to its owners. Where it is partial along some of the shards' dims only, it is completed
 * along these, and every rank has its part; where it is partial along none, nothing moves. */
static void scatters(ZpBuilder *g, uint32_t id, const ZpBucket *b) {
  ZpInstr *in = &g->d[id].in;
  bool whole = !in->in_place && !zp_shards_grads(b); /* staged, and added where it is made */
  in->dims = whole ? 0 : b->shard & b->partial;
  in->coll = in->dims == b->shard ? ZG_OP_REDUCE_SCATTER : ZG_OP_ALL_REDUCE;
  in->bytes = in->dims ? zk_bytes(zp_travels_as(b, !in->in_place), b->elems) : 0;
}

/* Returns whether x and the next use y are backwards of one micro-batch and virtual stage that add to one
 * gradient. */
static bool one_gradient(const ZpBuilder *g, const Entry *x, const Entry *y) {
  const ZpInstr *a = &g->d[g->comp[x->pos]].in, *b = &g->d[g->comp[y->pos]].in;
  return a->op == ZP_I_BWD && b->op == ZP_I_BWD && a->mb == b->mb && a->vstage == b->vstage &&
         x->held == y->held;
}

/* Plans the staged gradients of template t: the buffers in turn, each emptied by a scatter into the bucket's
 * shard. Gradients of several backwards of a micro-batch and virtual stage for one bucket (a tied table's:
 * the head's comes first, the embedding's last) are added up in the buffer and scattered once. Two scatters
 * of one bucket add to the same shard, so the later waits for the earlier. */
static void plan_scatters(ZpBuilder *g, uint32_t t, const Entry *list, uint32_t n, uint32_t nheld) {
  const ZpBucket *b = &g->p->programs.buckets[t];
  uint32_t nbufs = g->p->asked.zero.what & ZL_SHARD_PARAMS ? buffers_for(g, nheld)
                   : nheld < 2 || !zp_shards_grads(b)      ? 1 /* nothing is on its way */
                                                           : 2,
           turn = 0;
  uint32_t *emptied = ZB_NEWN(g->a, uint32_t, nbufs);
  memset(emptied, 0xff, nbufs * sizeof *emptied);
  uint32_t buf = zp_gen_bufs(g, ZP_B_STAGING, t, nbufs, zb_round_up(zk_bytes(ZK_F32, b->elems), 64));
  for (uint32_t i = 0; i < n; i++) {
    uint32_t pos = list[i].pos, held = list[i].held;
    const ZpInstr *bwd = &g->d[g->comp[pos]].in;
    if (bwd->op != ZP_I_BWD) continue;
    uint32_t mb = bwd->mb;
    Use *use = &g->uses[list[i].use];
    use->staging_buf = buf + turn;
    use->adds = i && one_gradient(g, &list[i - 1], &list[i]);
    if (!use->adds) use->staging = emptied[turn];
    if (i + 1 < n && one_gradient(g, &list[i], &list[i + 1])) continue;
    uint32_t id = emptied[turn] = reduction(g, ZP_I_SCATTER_GRADS, held, g->end[pos], BY_SCATTER);
    ZpDraft *d = &g->d[id];
    d->in.mb = mb;
    d->after_pos = pos;
    scatters(g, id, b);
    d->in.naccess = 3;
    d->in.access = ZB_NEWN(g->p->arena, ZpAccess, 3);
    d->in.access[0] = (ZpAccess){buf + turn, ZP_READ, zp_tag_held(g, ZP_TAG_STAGED, held, mb)};
    d->in.access[1] = (ZpAccess){buf + turn, ZP_WRITE, zp_tag(ZP_TAG_NOTHING, 0, 0, 0)};
    d->in.access[2] = (ZpAccess){g->grad_buf[held], ZP_READ | ZP_WRITE, zp_tag_held(g, ZP_TAG_GRAD, held, 0)};
    turn = (turn + 1) % nbufs;
  }
}

/* The accumulator of a held bucket goes through one more reduction. */
static void reduces(ZpBuilder *g, uint32_t id, uint32_t held) {
  ZpDraft *d = &g->d[id];
  if (d->after == ZP_NONE) d->after_pos = g->last_bwd[held];
  d->in.naccess = 2;
  d->in.access = ZB_NEWN(g->p->arena, ZpAccess, 2);
  d->in.access[0] = (ZpAccess){g->grad_buf[held], ZP_READ, zp_tag_held(g, ZP_TAG_GRAD, held, g->phase[held])};
  g->phase[held]++;
  d->in.access[1] =
      (ZpAccess){g->grad_buf[held], ZP_WRITE, zp_tag_held(g, ZP_TAG_GRAD, held, g->phase[held])};
}

/* ... of what this rank has of it by then: its own part, if there are owners. */
static void reduces_own(ZpBuilder *g, uint32_t id, uint32_t held, ZpDims dims) {
  uint32_t t = g->st->held[held].bucket;
  ZpInstr *in = &g->d[id].in;
  in->dims = dims;
  in->coll = ZG_OP_ALL_REDUCE;
  in->bytes = zk_bytes(zp_travels_as(&g->p->programs.buckets[t], false),
                       g->p->programs.buckets[t].elems / shards(g->p, t));
  reduces(g, id, held);
}

/* After the last backward that touches it: what is partial beyond the shards, or all of it. A reduction that
 * follows a scatter is put one computation later, so that gathers and scatters triggered meanwhile are not
 * behind it. */
static void plan_reductions(ZpBuilder *g, uint32_t held) {
  const ZpBucket *b = &g->p->programs.buckets[g->st->held[held].bucket];
  uint32_t pos = g->last_bwd[held];
  if (b->scatters == ZP_SCATTER_AT_END) {
    uint32_t id = reduction(g, ZP_I_SCATTER_GRADS, held, g->end[pos], BY_SCATTER);
    g->d[id].in.in_place = true;
    scatters(g, id, b);
    reduces(g, id, held);
  }
  if (!b->reduces) return;
  if (g->reduced[held] != ZP_NONE && pos < g->last_work) pos++;
  uint32_t id = reduction(g, ZP_I_REDUCE_GRADS, held, g->end[pos], BY_REDUCE);
  reduces_own(g, id, held, b->reduces);
}

void zp_gen_tied(ZpBuilder *g, uint32_t held, uint64_t time, uint32_t pair) {
  uint32_t id = reduction(g, ZP_I_REDUCE_TIED, held, time, BY_TIED);
  g->d[id].need = pair;
  g->d[id].in.tied = g->st->held[held].tied;
  g->d[id].in.pair = pair;
  reduces_own(g, id, held, 1u << g->p->layout.mesh.pipe);
}

uint64_t zp_gen_ready(const ZpBuilder *g, uint32_t held) {
  uint32_t id = g->reduced[held];
  return id == ZP_NONE ? g->end[g->last_bwd[held]] : g->d[id].when / 2;
}

static void find_used_back(ZpBuilder *g) {
  const ZpPlan *p = g->p;
  g->back = ZB_NEWN(g->a, bool *, p->graph->nsegments);
  for (uint32_t i = 0; i < p->graph->nsegments; i++) {
    const ZpSegment *s = &p->programs.segments[i];
    g->back[i] = ZB_NEWN(g->a, bool, s->nbuckets + 1);
    for (uint32_t k = 0; k < s->nbuckets; k++) g->back[i][k] = zp_used_back(p, s, k);
  }
}

void zp_gen_params(ZpBuilder *g) {
  uint32_t *at, nheld = g->st->nheld;
  find_used_back(g);
  Entry *list = list_uses(g, &at);
  uint32_t *where = ZB_NEWN(g->a, uint32_t, nheld),
           *copies = ZB_NEWN(g->a, uint32_t, g->p->programs.nbuckets);
  g->last_bwd = ZB_NEWN(g->a, uint32_t, nheld);
  g->reduced = ZB_NEWN(g->a, uint32_t, nheld);
  g->phase = ZB_NEWN(g->a, uint32_t, nheld);
  for (uint32_t h = 0; h < nheld; h++) {
    where[h] = g->reduced[h] = g->last_bwd[h] = ZP_NONE;
    copies[g->st->held[h].bucket]++;
  }
  for (uint32_t i = 0; i < at[g->p->programs.nbuckets]; i++)
    if (g->d[g->comp[list[i].pos]].in.op == ZP_I_BWD) g->last_bwd[list[i].held] = list[i].pos;
  for (uint32_t t = 0; t < g->p->programs.nbuckets; t++) {
    uint32_t n = at[t + 1] - at[t];
    if (!n) continue;
    const ZpBucket *b = &g->p->programs.buckets[t];
    if (b->gathers) plan_gathers(g, t, list + at[t], n, copies[t], where);
    if (b->republishes && !g->p->asked.forward_only) plan_publishing(g, list + at[t], n, where);
    if (zp_stages_grads(b) && !g->p->asked.forward_only) plan_scatters(g, t, list + at[t], n, copies[t]);
  }
  for (uint32_t h = 0; h < nheld && !g->p->asked.forward_only; h++) {
    if (g->p->programs.buckets[g->st->held[h].bucket].frozen) continue;
    ZB_ASSERT(g->last_bwd[h] != ZP_NONE); /* a stage holds what its instances use */
    plan_reductions(g, h);
  }
}

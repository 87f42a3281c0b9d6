/* What a rank writes into a checkpoint. */
#include "runtime/exec/state/snapshot.h"
#include "runtime/exec/state/checkpoints.h"

#include <stdlib.h>
#include <string.h>

/* ---- contents ---- */
/* The name of state `state`, 0 on, that an optimizer keeps. */
static const char *name_of(const ZpOptimizer *o, int state) {
  bool sum = o->every > 1 && state == o->states - 1;
  return sum ? "grad_sum" : zk_optimizer_info[o->kind].state[state];
}

const char *zx_state_name(const ZpPlan *p, const ZpBucket *k, int state) {
  bool average = p->asked.average > 0 && state == zp_states(p, k);
  return average ? "average" : name_of(&p->asked.optimizers[k->optimizer], state - 1);
}

static uint32_t bit_of(const char *state, const char **name, uint32_t *n) {
  uint32_t k = 0;
  while (k < *n && strcmp(name[k], state)) k++;
  if (k == *n) name[(*n)++] = state;
  return 1u << k;
}

/* The states of what optimizer `which` updates, among all that the run has: a bit each, the average's last.
 * New ones are added to the list. */
static uint32_t states_of(const ZpPlan *p, uint32_t which, const char **name, uint32_t *n) {
  const ZpOptimizer *o = &p->asked.optimizers[which];
  uint32_t has = 0;
  for (int i = 0; i < o->states; i++) has |= bit_of(name_of(o, i), name, n);
  return has;
}

/* Adds the second moments of rows and columns to what a parameter has, and which of its axes each lacks. */
static uint32_t moments_of(ZxEngine *e, uint32_t param, const char **name, uint32_t *n, uint32_t *less) {
  uint32_t has = 0;
  ZxMoments *all;
  for (uint32_t b = 0; b < e->p->programs.nbuckets; b++) {
    const ZpBucket *k = &e->p->programs.buckets[b];
    const ZpStageBucket h = {.bucket = b};
    for (uint32_t i = 0, m = zx_moments_of(e, &h, e->a, &all); i < m; i++) {
      if (all[i].of->param != param) continue;
      uint32_t bit = bit_of(zx_moments_name(&e->p->asked.optimizers[k->optimizer], all[i].side), name, n);
      less[__builtin_ctz(bit)] = all[i].less;
      has |= bit;
    }
  }
  return has;
}

bool zx_contents_of(ZxEngine *e, uint64_t most, ZxContents *out, ZbErr *err) {
  ZxTensorInfo *t = NULL;
  const ZpPlan *p = e->p;
  const char *name[ZX_MAX_STATES] = {0};
  uint32_t n = 0, nhas = 0, *has = NULL, nstates = 0;
  uint32_t *of = ZB_NEWN(e->a, uint32_t, p->asked.noptimizers + 1);
  for (uint32_t i = 0; i < p->asked.noptimizers; i++) of[i] = states_of(p, i, name, &nstates);
  for (uint32_t i = 0; p->asked.average > 0 && i < p->asked.noptimizers; i++)
    of[i] |= bit_of("average", name, &nstates);
  uint32_t(*less)[ZX_MAX_STATES] = (void *)ZB_NEWN(e->a, uint32_t, p->graph->nparams * ZX_MAX_STATES + 1),
  *sides = ZB_NEWN(e->a, uint32_t, p->graph->nparams + 1), *lacks = NULL, nlacks = 0;
  for (uint32_t i = 0; i < p->graph->nparams; i++) sides[i] = moments_of(e, i, name, &nstates, less[i]);
  for (uint32_t i = 0; i < e->p->graph->nparams; i++)
    for (uint32_t k = 0; k < zx_iterations(e, i); k++) {
      ZxTensorInfo x = zx_tensor_info(e, i, k);
      bool none = !p->asked.ngroups || (p->asked.frozen && p->asked.frozen[i]);
      uint32_t states = none ? 0 : of[p->asked.groups[p->asked.group[i]].optimizer] | sides[i];
      ZB_PUSH(e->a, t, n, x);
      ZB_PUSH(e->a, has, nhas, states);
      for (uint32_t s = 0; s < nstates; s++) ZB_PUSH(e->a, lacks, nlacks, less[i][s]);
    }
  return zx_contents_make(e->a, t, n, name, nstates, has, lacks, most, out, err);
}

uint32_t zx_tensor_of(const ZxEngine *e, const ZxContents *c, uint32_t param, uint32_t iter, uint32_t state) {
  uint32_t at = iter;
  for (uint32_t i = 0; i < param; i++) at += zx_iterations(e, i);
  if (!state) return at;
  const ZpOptimizer *o = &e->p->asked.optimizers[e->p->asked.groups[e->p->asked.group[param]].optimizer];
  return zx_state_named(c, at, (int)state > o->states ? "average" : name_of(o, (int)state - 1));
}

uint32_t zx_moments_tensor(const ZxEngine *e, const ZxContents *c, const ZpStageBucket *h,
                           const ZxMoments *m) {
  const ZpOptimizer *o = &e->p->asked.optimizers[e->p->programs.buckets[h->bucket].optimizer];
  uint32_t t = zx_state_named(c, zx_tensor_of(e, c, m->of->param, h->iter, 0), zx_moments_name(o, m->side));
  ZB_ASSERT(t != ZB_NO_NAME);
  return t;
}

/* ---- the copy ---- */
static const ZpBuf *buffer_of(const ZxEngine *e) {
  for (uint32_t i = 0; i < e->st->prog.nbufs; i++)
    if (e->st->prog.bufs[i].kind == ZP_B_SNAPSHOT) return &e->st->prog.bufs[i];
  ZB_BUG("a plan without room for snapshots");
}

static int by_tensor(const void *a, const void *b) {
  const ZxPiece *x = a, *y = b;
  if (x->tensor != y->tensor) return x->tensor < y->tensor ? -1 : 1;
  return x->from < y->from ? -1 : x->from > y->from;
}

/* The pieces of one block of the copy: elements from..to of a held bucket, of one state. */
static void add_pieces(ZxEngine *e, const ZxContents *c, const ZpStageBucket *h, uint32_t state,
                       uint64_t from, uint64_t to, float *at, ZxSnapshot *out) {
  const ZpBucket *k = &e->p->programs.buckets[h->bucket];
  for (uint32_t i = 0; i < k->nslices; i++) {
    const ZpSlice *s = &k->slices[i];
    uint64_t lo = from > s->at ? from : s->at, hi = to < s->at + s->n ? to : s->at + s->n;
    if (lo >= hi) continue;
    uint32_t tensor = zx_tensor_of(e, c, s->param, h->iter, state);
    ZxPiece piece = {s, tensor, lo - s->at, hi - s->at, at + (lo - from)};
    ZB_PUSH(e->a, out->piece, out->npieces, piece);
  }
}

/* The pieces of second moments of rows and columns, listed one tensor after the other. Returns where the next begin. */
static float *add_moments(ZxEngine *e, const ZxContents *c, const ZpStageBucket *h, float *at,
                          ZxSnapshot *out) {
  ZxMoments *all;
  uint32_t n = zx_speaks_of_moments(e, h) ? zx_moments_of(e, h, e->a, &all) : 0;
  for (uint32_t i = 0; i < n; i++, at += all[i - 1].n) {
    ZxPiece piece = {&all[i].slice, zx_moments_tensor(e, c, h, &all[i]), 0, all[i].n, at};
    ZB_PUSH(e->a, out->piece, out->npieces, piece);
  }
  return at;
}

void zx_snapshot_open(ZxEngine *e, const ZxContents *c, ZxSnapshot *out) {
  const ZpBuf *buf = buffer_of(e);
  *out = (ZxSnapshot){.memory = (float *)(void *)zx_buf_at(e, buf)};
  float *at = out->memory;
  for (uint32_t i = 0; i < e->st->nheld; i++) {
    const ZpStageBucket *h = &e->st->held[i];
    uint64_t from, to;
    if (!zx_spoken_part(e, h, &from, &to)) continue;
    uint32_t states = (uint32_t)zp_states(e->p, &e->p->programs.buckets[h->bucket]);
    for (uint32_t s = 0; s <= states; s++, at += to - from) add_pieces(e, c, h, s, from, to, at, out);
  }
  for (uint32_t i = 0; i < e->st->nheld; i++) at = add_moments(e, c, &e->st->held[i], at, out);
  ZB_ASSERT((uint64_t)(at - out->memory) * sizeof *at <= buf->bytes);
  if (out->npieces) qsort(out->piece, out->npieces, sizeof *out->piece, by_tensor);
}

/* Copies the second moments of rows and columns, in declared order, to *at, behind which the next begin. All ranks take part,
 * `ok` or not. */
static bool take_moments(ZxEngine *e, const ZpStageBucket *h, float **at, bool ok, ZbErr *err) {
  ZxMoments *all;
  uint64_t count = zp_moments(e->p, &e->p->programs.buckets[h->bucket]);
  if (!count) return ok;
  zx_share_moments(e, h);
  if (ok && zx_speaks_of_moments(e, h)) {
    ZbArena *a = zb_arena_new();
    uint32_t n = zx_moments_of(e, h, a, &all);
    float *held = e->dev->pinned(e->env, count * sizeof *held, err);
    ok = held;
    if (ok) e->dev->download(e->env, held, zx_moments(e, h), count * sizeof *held), ok = zx_finish(e, err);
    for (uint32_t i = 0; ok && i < n; *at += all[i].n, i++)
      zx_order_moments(&all[i], held + all[i].at, *at, true);
    if (held) e->dev->unpin(e->env, held);
    zb_arena_free(a);
  }
  zx_keep_own_moments(e, h);
  return zx_finish(e, err) && ok;
}

/* Copies values and states of all buckets, as f32. Frozen ones are copied before the first checkpoint, and
 * stay there. */
static bool copy_all(ZxEngine *e, ZxSnapshot *s, ZbErr *err) {
  float *at = s->memory;
  for (uint32_t i = 0; i < e->st->nheld; i++) {
    const ZpStageBucket *h = &e->st->held[i];
    uint64_t from, to, own, end;
    bool there = zx_is_frozen(e, h) && s->has_frozen;
    if (!there) zx_gather_packed(e, h);
    if (!zx_spoken_part(e, h, &from, &to)) continue;
    zx_owned_shard(e, h, &own, &end);
    int states = zp_states(e->p, &e->p->programs.buckets[h->bucket]);
    for (int k = 0; k <= states; k++, at += to - from)
      if (!there && !zx_fetch_values(e, h, zx_part(e, h, k || !zx_lacks_master(e, h) ? k : ZP_PART_ROUNDED),
                                     from - own, to - from, at, err))
        return false;
  }
  s->has_frozen = true;
  bool ok = zx_finish(e, err);
  for (uint32_t i = 0; i < e->st->nheld; i++) ok = take_moments(e, &e->st->held[i], &at, ok, err);
  return ok;
}

bool zx_snapshot_take(ZxEngine *e, ZxSnapshot *s, ZbErr *err) {
  return zx_trade_averages(e, err) && copy_all(e, s, err) && zx_trade_averages(e, err);
}

/* ---- digests ---- */
/* Sums modulo 2^64 of halves that doubles hold exactly. */
void zx_add_digests(ZxComm *c, uint64_t *digest, uint32_t n, double *halves) {
  for (uint32_t i = 0; i < n; i++) {
    halves[2 * i] = (double)(digest[i] >> 32);
    halves[2 * i + 1] = (double)(digest[i] & UINT32_MAX);
  }
  c->t->wait(c, c->t->all_reduce(c, 0, halves, 2 * n, ZK_F64, ZX_SUM));
  for (uint32_t i = 0; i < n; i++) digest[i] = ((uint64_t)halves[2 * i] << 32) + (uint64_t)halves[2 * i + 1];
}

void zx_add_bytes(ZxComm *c, uint64_t own, double seconds, uint64_t *all, uint64_t *most, double *longest) {
  double sum = (double)own, top[2] = {(double)own, seconds};
  c->t->wait(c, c->t->all_reduce(c, 0, &sum, 1, ZK_F64, ZX_SUM));
  c->t->wait(c, c->t->all_reduce(c, 0, top, 2, ZK_F64, ZX_MAX));
  *all = (uint64_t)sum;
  *most = (uint64_t)top[0];
  if (longest) *longest = top[1];
}

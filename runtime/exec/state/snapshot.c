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

bool zx_contents_of(ZxEngine *e, uint64_t most, ZxContents *out, ZbErr *err) {
  ZxTensorInfo *t = NULL;
  const ZpPlan *p = e->p;
  const char *name[ZX_MAX_STATES] = {0};
  uint32_t n = 0, nhas = 0, *has = NULL, nstates = 0;
  uint32_t *of = ZB_NEWN(e->a, uint32_t, p->asked.noptimizers + 1);
  for (uint32_t i = 0; i < p->asked.noptimizers; i++) of[i] = states_of(p, i, name, &nstates);
  for (uint32_t i = 0; p->asked.average > 0 && i < p->asked.noptimizers; i++)
    of[i] |= bit_of("average", name, &nstates);
  for (uint32_t i = 0; i < e->p->graph->nparams; i++)
    for (uint32_t k = 0; k < zx_iterations(e, i); k++) {
      ZxTensorInfo x = zx_tensor_info(e, i, k);
      bool none = !p->asked.ngroups || (p->asked.frozen && p->asked.frozen[i]);
      uint32_t states = none ? 0 : of[p->asked.groups[p->asked.group[i]].optimizer];
      ZB_PUSH(e->a, t, n, x);
      ZB_PUSH(e->a, has, nhas, states);
    }
  return zx_contents_make(e->a, t, n, name, nstates, has, most, out, err);
}

uint32_t zx_tensor_of(const ZxEngine *e, const ZxContents *c, uint32_t param, uint32_t iter, uint32_t state) {
  uint32_t at = iter;
  for (uint32_t i = 0; i < param; i++) at += zx_iterations(e, i);
  if (!state) return at;
  const ZpOptimizer *o = &e->p->asked.optimizers[e->p->asked.groups[e->p->asked.group[param]].optimizer];
  return zx_state_named(c, at, (int)state > o->states ? "average" : name_of(o, (int)state - 1));
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
  ZB_ASSERT((uint64_t)(at - out->memory) * sizeof *at <= buf->bytes);
  if (out->npieces) qsort(out->piece, out->npieces, sizeof *out->piece, by_tensor);
}

/* Copies values and states of all buckets, as f32. Frozen ones are copied before the first checkpoint, and
 * stay there. */
bool zx_snapshot_take(ZxEngine *e, ZxSnapshot *s, ZbErr *err) {
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
  return zx_finish(e, err);
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

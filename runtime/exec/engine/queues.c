/* Plays the program of one rank: three queues, one thread. Compute runs in order; transfers and collectives start in
 * order as soon as what they wait for is complete, and go on while compute works. Where all that is done by a device's
 * streams, instructions are queued in the order of the program. Nothing is allocated in a step. */
#include "runtime/exec/engine/internal.h"

#include <math.h>
#include <sched.h>
#include <string.h>
#include <time.h>

void zx_await(ZxEngine *e, ZxRequest r) {
  double from = zb_now();
  ZxWait w = {0};
  while (!e->c->t->test(e->c, r))
    if (zx_poll(e)) zx_moved(e, &w);
    else zx_relax(e, &w, r);
  zx_moved(e, &w);
  e->times[ZG_OP_COUNT + 1] += zb_now() - from;
}

bool zx_finish(ZxEngine *e, ZbErr *err) {
  ZxWait w = {0};
  while (!e->dev->host && !e->dev->idle(e->env)) zx_relax(e, &w, ZX_FOR_DEVICE);
  zx_moved(e, &w);
  return e->dev->finish(e->env, err);
}

/* The end should be seen when it comes: no naps. */
void zx_finish_call(ZxEngine *e) {
  if (e->dev->host || !e->o.times) return;
  ZxWait w = {0};
  e->dev->record(e->env, e->call_event);
  for (int tries = 1; !e->dev->reached(e->env, e->call_event); tries++) {
    if (!zx_poll(e)) sched_yield();
    if (tries % 4096 == 0) zx_relax(e, &w, ZX_FOR_DEVICE);
  }
  zx_moved(e, &w);
}

/* ---- buffers of an instruction ---- */
char *zx_buf_at(ZxEngine *e, const ZpBuf *b) {
  uint64_t end = b->offset + b->bytes;
  if (b->kind != ZP_B_SCRATCH && end > e->high && b->offset != UINT64_MAX) e->high = end;
  return e->arena + b->offset;
}

static const ZpAccess *find_access(const ZxEngine *e, const ZpInstr *in, ZpBufKind kind, uint32_t pool) {
  for (uint32_t i = 0; i < in->naccess; i++) {
    const ZpBuf *b = &e->st->prog.bufs[in->access[i].buf];
    if (b->kind == kind && (pool == ZP_NONE || b->pool == pool)) return &in->access[i];
  }
  return NULL;
}

static char *find_buf(ZxEngine *e, const ZpInstr *in, ZpBufKind kind, uint32_t pool) {
  const ZpAccess *x = find_access(e, in, kind, pool);
  return x ? zx_buf_at(e, &e->st->prog.bufs[x->buf]) : NULL;
}

static char *need_buf(ZxEngine *e, const ZpInstr *in, ZpBufKind kind, uint32_t pool) {
  char *p = find_buf(e, in, kind, pool);
  if (!p) ZB_BUG("%s has no buffer of kind %d", zp_instr_info[in->op].text, kind);
  return p;
}

static char *boundary(ZxEngine *e, const ZpInstr *in, uint32_t index) {
  for (uint32_t i = 0; i < in->naccess; i++) {
    const ZpBuf *b = &e->st->prog.bufs[in->access[i].buf];
    if (b->kind == ZP_B_BOUNDARY && b->index == (index & 1)) return zx_buf_at(e, b);
  }
  return NULL;
}

static uint64_t shard_elems(const ZxEngine *e, const ZpBucket *k) {
  return k->elems / (uint64_t)zp_group_size(&e->p->mesh, k->shard);
}
static uint64_t shard_index(const ZxEngine *e, const ZpBucket *k) {
  return (uint64_t)zp_group_index(&e->p->mesh, e->rank, k->shard);
}

/* ---- compute ---- */
static char *carry_in(ZxEngine *e, const ZpInstr *in, uint32_t inst, char *slot) {
  const ZpSegment *s = &e->p->segments[e->st->insts[inst].segment];
  if (inst == 0) return find_buf(e, in, ZP_B_RECV_ACT, ZP_NONE);
  if (s->saves_carry) return slot + e->st->saved_at[inst] + s->saved_bytes;
  return boundary(e, in, inst);
}

static ZxFrame frame(ZxEngine *e, const ZpInstr *in) {
  const ZpInst *x = &e->st->insts[in->inst];
  ZxFrame f = {.mb = in->mb, .iter = x->iter};
  char *slot = find_buf(e, in, ZP_B_SLOT, ZP_NONE);
  bool last = in->inst + 1 == e->st->ninsts;
  f.scratch = find_buf(e, in, ZP_B_SCRATCH, ZP_NONE);
  f.inputs = slot;
  f.saved = slot ? slot + e->st->saved_at[in->inst] : NULL;
  f.carry_in = carry_in(e, in, in->inst, slot);
  if (in->op == ZP_I_FWD) {
    f.carry_out = last ? find_buf(e, in, ZP_B_SEND_ACT, ZP_NONE) : carry_in(e, in, in->inst + 1, slot);
  } else if (in->op == ZP_I_BWD) {
    f.dcarry_out = last ? find_buf(e, in, ZP_B_RECV_GRAD, ZP_NONE) : boundary(e, in, in->inst + 1);
    f.dcarry_in = in->inst == 0 ? find_buf(e, in, ZP_B_SEND_GRAD, ZP_NONE) : boundary(e, in, in->inst);
  }
  f.held = e->held_at;
  for (uint32_t i = 0; i < x->nheld; i++) {
    const ZpHeld *h = &e->st->held[x->held[i]];
    const ZpBucket *k = &e->p->buckets[h->bucket];
    ZxHeldAt *at = &e->held_at[i];
    *at = (ZxHeldAt){.param = k->level >= 3 ? find_buf(e, in, ZP_B_GATHER, h->bucket) : e->arena + h->param_at};
    if (in->op != ZP_I_BWD) continue;
    const ZpAccess *staged = find_access(e, in, ZP_B_STAGING, h->bucket);
    ZB_ASSERT((k->level >= 2) == (staged != NULL));
    at->grad = staged ? zx_buf_at(e, &e->st->prog.bufs[staged->buf]) : e->arena + h->grad_at;
    at->fresh = zx_begin_backward(e, in->inst, i, staged, at->grad);
  }
  return f;
}

static void begin_step(ZxEngine *e) {
  zx_begin_grads(e);
  e->dev->zero(e->env, e->sums, sizeof *e->sums);
  e->dev->zero(e->env, &e->count->denominator, sizeof e->count->denominator);
}

static void run_segment(ZxEngine *e, const ZpInstr *in) {
  const ZpSegment *s = &e->p->segments[e->st->insts[in->inst].segment];
  const ZpList *l = &s->list[zp_phase(in->op)];
  ZxFrame f = frame(e, in);
  zx_run_nodes(e, s, l->nodes, l->n, &f);
}

static void compute(ZxEngine *e, const ZpInstr *in) {
  switch (in->op) {
  case ZP_I_ZERO_GRADS: begin_step(e); break;
  case ZP_I_LOAD:
    if (!zx_feed(e, need_buf(e, in, ZP_B_SLOT, ZP_NONE), in->mb)) e->failed = true;
    break;
  case ZP_I_COUNT:
  case ZP_I_FWD:
  case ZP_I_BWD: run_segment(e, in); break;
  case ZP_I_NORM_LOCAL: {
    double t = zb_now();
    zx_norm_local(e);
    zx_count_norm(e);
    zx_finish_call(e);
    e->times[ZG_OP_COUNT] += zb_now() - t;
    break;
  }
  case ZP_I_OPT_STEP: {
    double t = zb_now();
    zx_optimize(e, &e->st->held[in->held]);
    zx_count_update(e, &e->st->held[in->held]);
    zx_finish_call(e);
    e->times[ZG_OP_COUNT] += zb_now() - t;
    break;
  }
  default: ZB_BUG("%s in the compute queue", zp_instr_info[in->op].text);
  }
}

/* ---- collectives: the instruction says which, over which dims, and how many bytes ---- */
static ZxRequest gather(ZxEngine *e, const ZpInstr *in, uint64_t elems, const char *shard, char *all) {
  ZB_ASSERT(in->coll == ZG_OP_ALL_GATHER && in->bytes == elems * zk_elem_bytes(e->p->compute));
  uint64_t members = (uint64_t)zp_group_size(&e->p->mesh, in->dims);
  return e->c->t->all_gather(e->c, e->group[in->dims], shard, in->bytes / members, all);
}

static ZxRequest reduce(ZxEngine *e, const ZpInstr *in, ZxGroup group, float *grads, uint64_t elems) {
  ZB_ASSERT(in->coll == ZG_OP_ALL_REDUCE && in->bytes == elems * sizeof *grads);
  return e->c->t->all_reduce(e->c, group, grads, elems, ZX_F32, ZX_SUM);
}

static ZxRequest scatter(ZxEngine *e, const ZpInstr *in, const ZpBucket *k, float *all) {
  if (!in->dims) return -1; /* complete on every rank already */
  if (in->coll == ZG_OP_ALL_REDUCE) return reduce(e, in, e->group[in->dims], all, k->elems);
  uint64_t n = shard_elems(e, k);
  ZB_ASSERT(in->coll == ZG_OP_REDUCE_SCATTER && in->dims == k->shard && in->bytes == k->elems * sizeof *all);
  return e->c->t->reduce_scatter(e->c, e->group[in->dims], all, n, ZX_F32, ZX_SUM, all + shard_index(e, k) * n);
}

static ZxRequest start_bucket(ZxEngine *e, const ZpInstr *in) {
  const ZpHeld *h = &e->st->held[in->held];
  const ZpBucket *k = &e->p->buckets[h->bucket];
  char *params = e->arena + h->param_at, *grads = e->arena + h->grad_at;
  uint64_t from, to;
  zx_own_range(e, h, &from, &to);
  switch (in->op) {
  case ZP_I_GATHER_PARAMS: return gather(e, in, k->elems, params, need_buf(e, in, ZP_B_GATHER, h->bucket));
  case ZP_I_PUBLISH_PARAMS: return gather(e, in, k->elems, params + from * zk_elem_bytes(e->p->compute), params);
  case ZP_I_SCATTER_GRADS:
    return scatter(e, in, k, (float *)(void *)(in->in_place ? grads : need_buf(e, in, ZP_B_STAGING, h->bucket)));
  case ZP_I_REDUCE_GRADS: return reduce(e, in, e->group[in->dims], zx_grads(e, h), to - from);
  case ZP_I_REDUCE_TIED: return reduce(e, in, e->tied[in->tied], zx_grads(e, h), to - from);
  default: ZB_BUG("%s in the collective queue", zp_instr_info[in->op].text);
  }
}

/* Loss sums and norm: each counted by exactly one rank of those that hold the same. */
static ZxRequest start_step_sums(ZxEngine *e, const ZpInstr *in) {
  const ZpMesh *m = &e->p->mesh;
  ZpDims all = zp_all_dims(m);
  ZxSums *s = e->sums;
  if (zp_group_index(m, e->rank, all & ~e->p->loss_partial[0])) e->dev->zero(e->env, &s->loss, sizeof s->loss);
  if (zp_group_index(m, e->rank, all)) e->dev->zero(e->env, &s->aux, sizeof s->aux);
  if (e->has_loss && zp_group_index(m, e->rank, all) == 0)
    e->dev->copy(e->env, &s->denominator, &e->count->denominator, sizeof s->denominator);
  ZB_ASSERT(in->bytes == (in->dims ? ZP_STEP_SUMS * sizeof(double) : 0));
  return e->c->t->all_reduce(e->c, 0, s, ZP_STEP_SUMS, ZX_F64, ZX_SUM);
}

static ZxRequest start(ZxEngine *e, const ZpInstr *in) {
  const ZxCommTable *t = e->c->t;
  int peer = (int)zp_rank_of_stage(&e->p->mesh, e->rank, in->peer);
  switch (in->op) {
  case ZP_I_SEND_ACT: return t->send(e->c, need_buf(e, in, ZP_B_SEND_ACT, ZP_NONE), in->bytes, peer, (int)in->pair);
  case ZP_I_RECV_ACT: return t->recv(e->c, need_buf(e, in, ZP_B_RECV_ACT, ZP_NONE), in->bytes, peer, (int)in->pair);
  case ZP_I_SEND_GRAD: return t->send(e->c, need_buf(e, in, ZP_B_SEND_GRAD, ZP_NONE), in->bytes, peer, (int)in->pair);
  case ZP_I_RECV_GRAD: return t->recv(e->c, need_buf(e, in, ZP_B_RECV_GRAD, ZP_NONE), in->bytes, peer, (int)in->pair);
  case ZP_I_REDUCE_COUNT:
    if (!in->dims) return -1;
    ZB_ASSERT(in->bytes == sizeof e->count->denominator);
    return t->all_reduce(e->c, e->group[in->dims], &e->count->denominator, 1, ZX_F64, ZX_SUM);
  case ZP_I_REDUCE_STEP: return start_step_sums(e, in);
  default: return start_bucket(e, in);
  }
}

static void finish(ZxEngine *e, const ZpInstr *in) {
  switch (in->op) {
  case ZP_I_REDUCE_COUNT: e->dev->reciprocal(e->env, &e->count->denominator, &e->count->seed[0]); break;
  case ZP_I_SCATTER_GRADS: {
    if (in->in_place) break;
    const ZpHeld *h = &e->st->held[in->held];
    const ZpBucket *k = &e->p->buckets[h->bucket];
    uint64_t n = shard_elems(e, k);
    const float *all = (const float *)(const void *)need_buf(e, in, ZP_B_STAGING, h->bucket);
    e->dev->axpy(e->env, (int64_t)n, 1, all + shard_index(e, k) * n, (float *)(void *)(e->arena + h->grad_at));
    break;
  }
  default: break;
  }
}

/* ---- queues ----
 * An instruction is *done* once what comes after it can be put in order: when it is complete, or, on a
 * device that is not the host, when it is in its stream and has an event. */
static bool ready(const ZxEngine *e, uint32_t i) {
  const ZpInstr *in = &e->st->prog.instrs[i];
  for (uint32_t k = 0; k < in->nwait; k++)
    if (!e->done[in->wait[k]]) return false;
  return true;
}

/* Makes the instruction's stream current and orders it after what it waits for in others. */
static void enter(ZxEngine *e, const ZpInstr *in) {
  if (e->dev->host) return;
  e->dev->stream(e->env, in->queue);
  for (uint32_t k = 0; k < in->nwait; k++)
    if (e->st->prog.instrs[in->wait[k]].queue != in->queue) e->dev->wait(e->env, in->wait[k]);
}

static void leave(ZxEngine *e, uint32_t i) {
  e->done[i] = true;
  if (!e->dev->host) e->dev->record(e->env, i);
}

static void complete(ZxEngine *e, uint32_t i) {
  const ZpInstr *in = &e->st->prog.instrs[i];
  if (!e->dev->host) e->dev->stream(e->env, in->queue);
  finish(e, in);
  leave(e, i);
}

static bool start_all(ZxEngine *e) {
  const ZpProgram *g = &e->st->prog;
  bool moved = false;
  for (int q = ZP_Q_P2P; q < ZP_QUEUES; q++)
    while (e->head[q] < g->nqueue[q] && ready(e, g->queue[q][e->head[q]])) {
      uint32_t i = g->queue[q][e->head[q]++];
      enter(e, &g->instrs[i]);
      e->request[i] = start(e, &g->instrs[i]);
      if (e->request[i] < 0) complete(e, i);
      else e->flight[e->nflight++] = i;
      moved = true;
    }
  return moved;
}

bool zx_poll(ZxEngine *e) {
  bool moved = false;
  if (!e->playing || e->polling) return false; /* finishing one instruction must not start on another's */
  e->polling = true;
  while (start_all(e)) moved = true;
  uint32_t left = 0;
  for (uint32_t k = 0; k < e->nflight; k++) {
    uint32_t i = e->flight[k];
    if (!e->c->t->test(e->c, e->request[i])) {
      e->flight[left++] = i;
      continue;
    }
    complete(e, i);
    moved = true;
  }
  e->nflight = left;
  e->polling = false;
  if (!e->dev->host) e->dev->stream(e->env, ZP_Q_COMPUTE);
  return moved;
}

static bool all_started(const ZxEngine *e) {
  const ZpProgram *g = &e->st->prog;
  return e->head[ZP_Q_P2P] == g->nqueue[ZP_Q_P2P] && e->head[ZP_Q_COLL] == g->nqueue[ZP_Q_COLL];
}

/* What the step's sums say, on the host. */
static void read_sums(ZxEngine *e) {
  const ZxSums *s = e->sums;
  if (!e->dev->host) {
    s = (const ZxSums *)(const void *)(e->pinned + e->pinned_sums);
    e->dev->download(e->env, e->pinned + e->pinned_sums, e->sums, sizeof *e->sums);
    if (!zx_finish(e, e->err)) e->failed = true;
  }
  e->out.tokens = s->denominator;
  e->out.aux = s->aux / (double)e->p->nmicro;
  e->out.loss = s->loss / s->denominator + e->out.aux;
  e->out.grad_norm = sqrt(s->squares);
  e->out.lost = s->lost > 0;
}

/* All instructions in the order of the program, which is a part of one order of all ranks' (plan/program.c): transfers and
 * collectives too, for which the host then waits never. comm/nccl.c says why it must be this one. */
static void play_in_order(ZxEngine *e) {
  const ZpProgram *g = &e->st->prog;
  for (uint32_t i = 0; i < g->ninstrs && !e->failed; i++) {
    const ZpInstr *in = &g->instrs[i];
    ZB_ASSERT(ready(e, i));
    enter(e, in);
    if (in->queue == ZP_Q_COMPUTE) {
      e->at = i;
      compute(e, in);
      leave(e, i);
      continue;
    }
    ZxRequest r = start(e, in);
    ZB_ASSERT(r < 0);
    complete(e, i);
  }
  e->at = ZP_NONE;
  e->dev->stream(e->env, ZP_Q_COMPUTE);
}

void zx_play(ZxEngine *e) {
  const ZpProgram *g = &e->st->prog;
  memset(e->done, 0, g->ninstrs * sizeof *e->done);
  if (e->in_order) {
    play_in_order(e);
    return;
  }
  memset(e->head, 0, sizeof e->head);
  ZxWait w = {0};
  e->nflight = 0;
  e->playing = true;
  for (uint32_t k = 0; k < g->nqueue[ZP_Q_COMPUTE] && !e->failed; k++) {
    uint32_t i = g->queue[ZP_Q_COMPUTE][k];
    double from = zb_now();
    e->at = i;
    while (!ready(e, i))
      if (zx_poll(e)) zx_moved(e, &w);
      else zx_relax(e, &w, ZX_FOR_QUEUES);
    zx_moved(e, &w);
    e->times[ZG_OP_COUNT + 1] += zb_now() - from;
    enter(e, &g->instrs[i]);
    compute(e, &g->instrs[i]);
    leave(e, i);
    zx_poll(e);
  }
  double from = zb_now();
  e->at = ZP_NONE;
  while (!e->failed && (e->nflight || !all_started(e)))
    if (zx_poll(e)) zx_moved(e, &w);
    else zx_relax(e, &w, ZX_FOR_QUEUES);
  zx_moved(e, &w);
  e->times[ZG_OP_COUNT + 1] += zb_now() - from;
  e->playing = false;
}

void zx_end_step(ZxEngine *e) {
  double from = zb_now();
  if (!e->failed && !zx_finish(e, e->err)) e->failed = true;
  e->times[ZG_OP_COUNT + 1] += zb_now() - from;
  if (!e->failed) read_sums(e);
}

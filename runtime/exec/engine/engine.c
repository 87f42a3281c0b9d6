/* The engine of one rank: its groups, its arena, its calls. */
#include "runtime/exec/comm/watch.h"
#include "runtime/exec/engine/internal.h"
#include "runtime/plan/text.h"

#include <string.h>

/* For the watchdog's thread: what it looks at does not change. */
static void instr_text(const void *engine, uint32_t i, ZbText *out) {
  const ZxEngine *e = engine;
  if (i < e->st->prog.ninstrs) zp_instr_text(e->p, e->stage, &e->st->prog.instrs[i], out);
}

bool zx_engine_step(ZxEngine *e, int64_t step, ZxStep *out, ZbErr *err) {
  double from = zb_now(), waited = e->times[ZG_OP_COUNT + 1];
  e->step = step;
  zx_watch_where(instr_text, e);
  zx_watch_step(step);
  e->env->step = (uint64_t)step;
  e->err = err;
  e->out = (ZxStep){0};
  zx_trace_step(e);
  zx_step(e);
  e->out.wait_ms = e->out.compute_ms = -1; /* what the host waits says nothing about another device */
  if (e->dev->host) {
    e->out.wait_ms = 1e3 * (e->times[ZG_OP_COUNT + 1] - waited);
    e->out.compute_ms = 1e3 * (zb_now() - from) - e->out.wait_ms;
  }
  e->out.used_bytes = zb_round_up(e->high, 64);
  *out = e->out;
  return !e->failed;
}

/* ---- set-up ---- */
static void make_group(ZxEngine *e, ZxGroup *group, ZpDims dims) {
  if (!dims || group[dims] >= 0) return;
  group[dims] = e->c->t->split(e->c, (int)zp_group_color(&e->p->layout.mesh, e->rank, dims));
}

static void groups_of(ZxEngine *e, const ZpList *l) {
  for (uint32_t i = 0; i < l->n; i++)
    if (zp_is_ring(&l->nodes[i]) && e->c->t->exchange) make_group(e, e->ring_group, l->nodes[i].dims);
    else if (zp_sends(&l->nodes[i])) make_group(e, e->node_group, l->nodes[i].dims);
}

void zx_make_groups(ZxEngine *e) {
  const ZpPlan *p = e->p;
  for (uint32_t i = 0; i < p->graph->nsegments; i++)
    for (int k = 0; k < ZP_PHASES; k++) groups_of(e, &p->programs.segments[i].list[k]);
  for (uint32_t s = 0; s < p->programs.nstages; s++)
    for (uint32_t i = 0; i < p->programs.stages[s].prog.ninstrs; i++) {
      const ZpInstr *in = &p->programs.stages[s].prog.instrs[i];
      if (in->queue == ZP_Q_COLL && in->op != ZP_I_REDUCE_TIED && in->op != ZP_I_REDUCE_STEP)
        make_group(e, e->group, in->dims);
    }
  for (uint32_t i = 0; i < p->programs.nbuckets; i++)
    make_group(e, e->group, p->programs.buckets[i].shard); /* zx_publish_initial */
}

static void make_tied_groups(ZxEngine *e) {
  const ZpPlan *p = e->p;
  e->tied = ZB_NEWN(e->a, ZxGroup, p->programs.ntied + 1);
  for (uint32_t i = 0; i < p->programs.ntied; i++) {
    bool in = false;
    for (uint32_t k = 0; k < p->programs.tied[i].nstages; k++)
      in |= p->programs.tied[i].stages[k] == e->stage;
    e->tied[i] = e->c->t->split(
        e->c, in ? (int)zp_group_color(&p->layout.mesh, e->rank, 1u << p->layout.mesh.pipe) : -1);
  }
}

/* The first buffer of a kind, which the others of that kind follow; NULL: there are none. */
static const ZpBuf *first_buf(const ZxEngine *e, ZpBufKind kind) {
  const ZpProgram *g = &e->st->prog;
  for (uint32_t i = 0; i < g->nbufs; i++)
    if (g->bufs[i].kind == kind) return &g->bufs[i];
  return NULL;
}

static void *scalars(ZxEngine *e, ZpBufKind kind, uint32_t index) {
  const ZpBuf *b = first_buf(e, kind);
  if (!b) ZB_BUG("a plan without scalars");
  ZB_ASSERT(zp_scalars_bytes(e->p) <= b[index].bytes);
  return zx_buf_at(e, &b[index]);
}

/* In the order in which REDUCE_STEP adds them up; `lost` is the rank's own. `all`: with those before it. */
static ZxSums sums_at(double *x, uint32_t n, uint32_t all) {
  return (ZxSums){x, x + n, x + n + 1, x + n + 2, x + 2 * n + 2, x + all, (all + 1) * sizeof *x};
}

static ZxCount count_at(double *x, uint32_t n) {
  double *seeds = x + n, *behind = seeds + (n + 2) / 2; /* two to a double */
  return (ZxCount){x, (float *)seeds, (ZkStepState *)(void *)behind};
}

/* Where the device's memory is the host's, what would pass through pinned memory is the engine's own. */
static void find_scalars(ZxEngine *e) {
  uint32_t n = e->nlosses = zg_losses(e->p->graph);
  uint64_t bytes = zp_scalars_bytes(e->p);
  uint32_t all = zp_step_sums(e->p);
  char *count = scalars(e, ZP_B_SCALARS, ZP_SCALARS_COUNT);
  e->sums = sums_at(scalars(e, ZP_B_SCALARS, ZP_SCALARS_SUMS), n, all);
  e->count = count_at((double *)(void *)count, n);
  ZB_ASSERT(e->sums.bytes <= bytes && (char *)e->count.step_state + zx_step_state_bytes(e) <= count + bytes);
  bool pins = e->p->asked.pins;
  e->step_state =
      pins ? scalars(e, ZP_B_PINNED_SCALARS, ZP_PINNED_STEP_STATE) : zb_alloc(e->a, zx_step_state_bytes(e));
  e->step_sums =
      sums_at(pins ? scalars(e, ZP_B_PINNED_SCALARS, ZP_PINNED_SUMS) : zb_alloc(e->a, e->sums.bytes), n, all);
  e->pinned_inputs = first_buf(e, ZP_B_PINNED_INPUTS);
}

/* The one seed that does not change from step to step; and where what does will be. */
static bool put_seed(ZxEngine *e, ZbErr *err) {
  float seed = (float)(1.0 / (double)e->p->asked.nmicro);
  e->env->step_state = e->count.step_state;
  memcpy(e->step_sums.loss, &seed, sizeof seed);
  e->dev->upload(e->env, &e->count.seed[zp_seed_index(true, 0)], e->step_sums.loss, sizeof seed);
  return e->dev->finish(e->env, err);
}

static void close_engine(ZxEngine *e) {
  zb_out_discard(e->save);
  zx_close_rows(e);
  if (e->output_room) e->dev->unpin(e->env, e->output_room);
  if (e->beside) return;
  zx_watch_where(NULL, NULL);
  e->env->step_state = NULL;
  zx_close_capture(e);
  if (e->c && e->c != e->world) e->c->t->free(e->c);
  if (e->host) e->dev->unpin(e->env, e->host);
  if (e->arena) e->dev->free(e->env, e->arena, e->arena_bytes);
}

static uint32_t most_held(const ZpStage *st) {
  uint32_t most = 0;
  for (uint32_t i = 0; i < st->ninsts; i++)
    if (st->insts[i].nheld > most) most = st->insts[i].nheld;
  return most;
}

ZxEngine *zx_engine_of(ZbArena *a, const ZpPlan *p, ZxComm *c, const ZxEngineOptions *o) {
  ZxEngine *e = ZB_NEW(a, ZxEngine);
  *e = (ZxEngine){.a = a,
                  .p = p,
                  .world = c,
                  .o = *o,
                  .dev = o->device,
                  .env = o->env,
                  .rank = c->t->rank(c),
                  .at = ZP_NONE};
  e->stage = p->layout.mesh.pipe < 0 ? 0 : (uint32_t)zp_coord(&p->layout.mesh, e->rank, p->layout.mesh.pipe);
  e->st = &p->programs.stages[e->stage];
  zx_make_calls(e);
  return e;
}

void zx_engine_room(ZxEngine *e) {
  const ZpProgram *g = &e->st->prog;
  find_scalars(e);
  zx_find_stored(e);
  e->clip = (ZxScalars){.squares = e->sums.squares,
                        .most = (float)e->p->asked.clip,
                        .lost = e->sums.lost,
                        .sums = e->sums.loss,
                        .nsums = (int)zp_step_sums(e->p),
                        .divisors = e->sums.denominator,
                        .ndivisors = (int)e->nlosses};
  e->unclipped = e->clip;
  e->unclipped.most = 0;
  e->held_at = ZB_NEWN(e->a, ZxHeldAt, most_held(e->st));
  e->done = ZB_NEWN(e->a, bool, g->ninstrs);
  e->request = ZB_NEWN(e->a, ZxRequest, g->ninstrs);
  e->flight = ZB_NEWN(e->a, uint32_t, g->ninstrs);
}

ZxEngine *zx_engine_new(ZbArena *a, const ZpPlan *p, ZxComm *c, const ZxEngineOptions *o, ZbErr *err) {
  ZxEngine *e = zx_engine_of(a, p, c, o);
  zx_open_inputs(e);
  bool ready = zx_agree(c, zx_trace_room(e, err) && zx_prepare(e, err));
  if (ready) zx_settle(e);
  if (!ready || !zx_agree(c, zx_open_memory(e, err) && zx_open_rows(e, err) && zx_open_events(e, err))) {
    close_engine(e);
    return NULL;
  }
  zx_engine_room(e);
  if (!zx_agree(c, put_seed(e, err))) {
    close_engine(e);
    return NULL;
  }
  zx_open_comm(e);
  for (int i = 0; i < 1 << ZP_MAX_DIMS; i++) e->group[i] = e->node_group[i] = e->ring_group[i] = -1;
  zx_make_groups(e);
  make_tied_groups(e);
  zx_connect(e);
  zx_open_sizes(e);
  zx_open_capture(e);
  zx_profile_open(e);
  zx_make_matrices(e);
  zx_make_draws(e);
  zx_make_clears(e);
  return e;
}

void zx_engine_free(ZxEngine *e) {
  if (e) close_engine(e);
}

void zx_engine_goes_on(ZxEngine *e, int64_t step, int64_t samples) {
  e->begin_step = step;
  e->begin_sample = samples;
}

int64_t zx_engine_samples(const ZxEngine *e, int64_t step) {
  return e->begin_sample + (step - e->begin_step) * e->p->asked.global_batch;
}

uint64_t zx_engine_bytes(const ZxEngine *e) { return e->st->ledger.total[ZP_DEVICE]; }

uint64_t zx_engine_untouched(const ZxEngine *e) {
  if (!e->dev->host) return 0;
  return e->arena_bytes + e->st->ledger.total[ZP_HOST] +
         (uint64_t)zk_pool_threads(e->env->pool) * ZK_CPU_ROOM;
}

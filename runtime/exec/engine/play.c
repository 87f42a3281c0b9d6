/* Plays the program of one rank: three queues, one thread. Compute runs in order; transfers and collectives
 * start in order as soon as what they wait for is complete, and go on while compute works. Where all that is
 * done by a device's streams, instructions are queued in the order of the program. */
#include "runtime/exec/comm/watch.h"
#include "runtime/exec/engine/internal.h"

#include <math.h>
#include <string.h>

static bool all_started(const ZxEngine *e) {
  const ZpProgram *g = &e->st->prog;
  return e->head[ZP_Q_P2P] == g->nqueue[ZP_Q_P2P] && e->head[ZP_Q_COLL] == g->nqueue[ZP_Q_COLL];
}

/* What the step's sums say, on the host. */
static void read_sums(ZxEngine *e) {
  const ZxSums *s = &e->step_sums;
  e->dev->download(e->env, s->loss, e->sums.loss, s->bytes);
  if (!zx_finish(e, e->err)) e->failed = true;
  memcpy(e->out.loss_sum, s->loss, e->nlosses * sizeof *s->loss);
  memcpy(e->out.weight, s->denominator, e->nlosses * sizeof *s->denominator);
  e->out.aux = *s->aux / (double)e->p->asked.nmicro;
  e->out.loss = zx_loss(e->nlosses, e->out.loss_sum, e->out.weight) + e->out.aux;
  e->out.grad_norm = sqrt(*s->squares);
  e->out.lost = *s->lost > 0;
}

double zx_loss_part(double sum, double weight) { return weight == 0 && isfinite(sum) ? NAN : sum / weight; }

bool zx_unknown(uint32_t n, const double *weight) {
  for (uint32_t k = 0; k < n; k++)
    if (weight[k] != 0) return false;
  return true;
}

double zx_loss(uint32_t n, const double *sum, const double *weight) {
  double loss = 0;
  for (uint32_t k = 0; k < n; k++)
    if (weight[k] != 0 || !isfinite(sum[k])) loss += zx_loss_part(sum[k], weight[k]);
  return zx_unknown(n, weight) ? NAN : loss;
}

/* All instructions in the order of the program, which is a part of one order of all ranks'
 * (plan/schedule/program.c): transfers and collectives too, for which the host then waits never.
 * device/nccl.c says why it must be this one. */
static void play_in_order(ZxEngine *e) {
  const ZpProgram *g = &e->st->prog;
  for (uint32_t i = 0; i < g->ninstrs && !e->failed; i++) {
    const ZpInstr *in = &g->instrs[i];
    ZB_ASSERT(zx_ready(e, i));
    zx_trace_begin(e, i);
    zx_enter(e, in);
    if (in->queue == ZP_Q_COMPUTE) {
      e->at = i;
      zx_watch_instr(i);
      zx_compute(e, in);
      zx_leave(e, i);
      continue;
    }
    ZxRequest r = zx_start_exchange(e, in);
    ZB_ASSERT(r < 0);
    zx_complete(e, i);
  }
  e->at = ZP_NONE;
  zx_watch_instr(ZP_NONE);
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
    zx_watch_instr(i);
    while (!zx_ready(e, i))
      if (zx_poll(e)) zx_moved(e, &w);
      else zx_relax(e, &w, ZX_FOR_QUEUES);
    zx_moved(e, &w);
    e->times[ZG_OP_COUNT + 1] += zb_now() - from;
    zx_trace_begin(e, i);
    zx_enter(e, &g->instrs[i]);
    zx_compute(e, &g->instrs[i]);
    zx_leave(e, i);
    zx_poll(e);
  }
  double from = zb_now();
  e->at = ZP_NONE;
  zx_watch_instr(ZP_NONE);
  while (!e->failed && (e->nflight || !all_started(e)))
    if (zx_poll(e)) zx_moved(e, &w);
    else zx_relax(e, &w, ZX_FOR_QUEUES);
  zx_moved(e, &w);
  e->times[ZG_OP_COUNT + 1] += zb_now() - from;
  e->playing = false;
}

/* What a step that fails has queued may still be at work, in memory that whoever gives up then gives back. Of
 * other ranks it may wait in vain: there the job ends. */
static void let_end(ZxEngine *e) {
  ZbErr none;
  if (e->world->t->size(e->world) == 1) (void)zx_finish(e, &none);
}

void zx_end_step(ZxEngine *e) {
  double from = zb_now();
  if (e->failed) let_end(e);
  else if (!zx_finish(e, e->err)) e->failed = true;
  e->times[ZG_OP_COUNT + 1] += zb_now() - from;
  if (!e->failed && !e->sizes) read_sums(e); /* a step of generation has no losses */
}

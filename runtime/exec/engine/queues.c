/* The transfer and the collective queue, which go on while compute works: their instructions start in order,
 * as soon as what they wait for is complete, and may be under way together. Waits for one request, or for the
 * device, keep them going.
 *
 * An instruction is *done* once what comes after it can be put in order: when it is in its stream and has an
 * event; one of a communicator that the host waits for, when it is complete. Nothing is allocated in a
 * step. */
#include "runtime/exec/engine/internal.h"

#include <sched.h>

/* ---- instructions ---- */
bool zx_ready(const ZxEngine *e, uint32_t i) {
  const ZpInstr *in = &e->st->prog.instrs[i];
  for (uint32_t k = 0; k < in->nwait; k++)
    if (!e->done[in->wait[k]]) return false;
  return true;
}

/* Makes the instruction's stream current and orders it after what it waits for in others. */
void zx_enter(ZxEngine *e, const ZpInstr *in) {
  e->dev->stream(e->env, in->queue);
  for (uint32_t k = 0; k < in->nwait; k++)
    if (e->st->prog.instrs[in->wait[k]].queue != in->queue) e->dev->wait(e->env, in->wait[k]);
}

void zx_leave(ZxEngine *e, uint32_t i) {
  zx_trace_end(e, i);
  e->done[i] = true;
  e->dev->record(e->env, i);
}

void zx_complete(ZxEngine *e, uint32_t i) {
  const ZpInstr *in = &e->st->prog.instrs[i];
  e->dev->stream(e->env, in->queue);
  zx_finish_exchange(e, in);
  zx_leave(e, i);
}

static bool start_all(ZxEngine *e) {
  const ZpProgram *g = &e->st->prog;
  bool moved = false;
  for (int q = ZP_Q_P2P; q < ZP_QUEUES; q++)
    while (e->head[q] < g->nqueue[q] && zx_ready(e, g->queue[q][e->head[q]])) {
      uint32_t i = g->queue[q][e->head[q]++];
      zx_trace_begin(e, i);
      zx_enter(e, &g->instrs[i]);
      e->request[i] = zx_start_exchange(e, &g->instrs[i]);
      if (e->request[i] < 0) zx_complete(e, i);
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
    zx_complete(e, i);
    moved = true;
  }
  e->nflight = left;
  e->polling = false;
  e->dev->stream(e->env, ZP_Q_COMPUTE);
  return moved;
}

/* ---- waits ---- */
void zx_await(ZxEngine *e, ZxRequest r) {
  double from = zb_now();
  ZxWait w = {0};
  while (!e->c->t->test(e->c, r))
    if (zx_poll(e)) zx_moved(e, &w);
    else zx_relax(e, &w, r);
  zx_moved(e, &w);
  e->times[ZG_OP_COUNT + 1] += zb_now() - from;
}

void zx_await_event(ZxEngine *e, uint32_t event) {
  ZxWait w = {0};
  while (!e->dev->reached(e->env, event))
    if (zx_poll(e)) zx_moved(e, &w);
    else zx_relax(e, &w, ZX_FOR_DEVICE);
  zx_moved(e, &w);
}

bool zx_finish(ZxEngine *e, ZbErr *err) {
  ZxWait w = {0};
  while (!e->dev->idle(e->env)) zx_relax(e, &w, ZX_FOR_DEVICE);
  zx_moved(e, &w);
  if (e->dev->finish(e->env, err)) return true;
  if (err) err->passing = true;
  return false;
}

/* The end should be seen when it comes: no naps. */
void zx_finish_call(ZxEngine *e) {
  if (!e->o.times) return;
  ZxWait w = {0};
  e->dev->record(e->env, e->call_event);
  for (int tries = 1; !e->dev->reached(e->env, e->call_event); tries++) {
    if (!zx_poll(e)) sched_yield();
    if (tries % 4096 == 0) zx_relax(e, &w, ZX_FOR_DEVICE);
  }
  zx_moved(e, &w);
}

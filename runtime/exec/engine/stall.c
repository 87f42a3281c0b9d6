/* What a rank waits for, when a wait in a step lasts: a rank that stands still, a dead link and a device that
 * hangs say nothing themselves. Said once in a wait by every rank that waits; the one that none of them waits
 * for in vain is at fault, or what lies between them. */
#include "runtime/exec/engine/internal.h"

#include "runtime/exec/comm/watch.h"
#include "runtime/plan/text.h"

static const char *instr_text(const ZxEngine *e, uint32_t i, ZbText *t) {
  t->len = 0;
  zp_instr_text(e->p, e->stage, &e->st->prog.instrs[i], t);
  return t->s;
}

static void add_request(const ZxEngine *e, ZxRequest r, ZbText *out) {
  if (e->c->t->explain) e->c->t->explain(e->c, r, out);
  else zb_text_add(out, "an operation of the communicator");
}

/* "RECV_GRAD(mb 3): receive of 1.2 MB from rank 3": what is under way, three of them at the most. */
static void add_flights(const ZxEngine *e, ZbText *out) {
  ZbText t = {0};
  for (uint32_t k = 0; k < e->nflight && k < 3; k++) {
    zb_text_add(out, "%s%s: ", k ? "; " : "", instr_text(e, e->flight[k], &t));
    add_request(e, e->request[e->flight[k]], out);
  }
  if (e->nflight > 3) zb_text_add(out, "; and %u more", e->nflight - 3);
  if (!e->nflight) zb_text_add(out, "nothing that is under way");
  zb_text_free(&t);
}

/* The first instruction that the device has not done. Of a captured step nobody can tell. */
static void add_device(const ZxEngine *e, ZbText *out) {
  ZbText t = {0};
  zb_text_add(out, "the device");
  if (e->capture[e->class] != ZX_CAPTURED && e->step)
    for (uint32_t i = 0; i < e->st->prog.ninstrs; i++) {
      if (e->done[i] && e->dev->reached(e->env, i)) continue;
      zb_text_add(out, ", which has not done %s", instr_text(e, i, &t));
      break;
    }
  if (e->c->t->stall_hint) zb_text_add(out, "; %s, or the ranks that say nothing", e->c->t->stall_hint);
  zb_text_free(&t);
}

/* Of an instruction it is a node that waits for a request. */
static void add_what(const ZxEngine *e, ZxRequest r, ZbText *out) {
  if (r == ZX_FOR_DEVICE) add_device(e, out);
  else if (r == ZX_FOR_QUEUES) add_flights(e, out);
  else {
    if (e->at != ZP_NONE)
      zb_text_add(out, "`%s` at %s: ", zg_op_info[e->node->call.op].text, zp_loc_text(e->p, e->node->loc));
    add_request(e, r, out);
  }
}

/* Before the first step there is none. */
static void add_step(const ZxEngine *e, ZbText *out) {
  if (e->step) zb_text_add(out, "step %lld: ", (long long)e->step);
}

static void stalled(ZxEngine *e, ZxRequest r) {
  ZbText where = {0}, what = {0}, t = {0};
  add_step(e, &where);
  if (e->at != ZP_NONE) zb_text_add(&where, "%s ", instr_text(e, e->at, &t));
  add_what(e, r, &what);
  zx_say((int)e->rank, "note: %shas waited %.0f s for %s", where.s ? where.s : "", zx_stall_after(), what.s);
  zb_text_add(&where, "for %s", what.s);
  zx_watch_waits(where.s);
  zb_text_free(&where);
  zb_text_free(&what);
  zb_text_free(&t);
}

static void goes_on(const ZxEngine *e) {
  ZbText t = {0};
  add_step(e, &t);
  zx_say((int)e->rank, "note: %sit goes on", t.s ? t.s : "");
  zb_text_free(&t);
}

void zx_relax(ZxEngine *e, ZxWait *w, ZxRequest r) {
  if (e->c->t->progress) e->c->t->progress(e->c);
  switch (zx_pause(w, e->c)) {
  case ZX_WAITS: break;
  case ZX_STALLS: stalled(e, r); break;
  case ZX_GOES_ON: goes_on(e); break;
  }
}

void zx_moved(ZxEngine *e, ZxWait *w) {
  if (w->told) goes_on(e);
  *w = (ZxWait){0};
  zx_watch_moved();
}

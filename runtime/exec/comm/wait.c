/* A wait that polls: gives the core away at first, then sleeps, and tells when it lasts. The clock is looked
 * at only between naps, now and then: what does not last costs nothing. */
#include "runtime/exec/comm/watch.h"

#include <sched.h>
#include <time.h>

enum { SPINS = 64, NAP_NS = 50000, LOOK = 256 }; /* a look every 13 ms at the most */

ZxWaited zx_pause(ZxWait *w, ZxComm *c) {
  zx_watch_pauses();
  if (++w->tries < SPINS) {
    sched_yield();
    return ZX_WAITS;
  }
  nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
  if (w->tries % LOOK) return ZX_WAITS;
  double now = zb_now();
  uint64_t moves = c && c->t->moves ? c->t->moves(c) : 0;
  bool moved = w->since > 0 && moves != w->moves, told = w->told;
  if (w->since <= 0 || moved) w->since = now, w->told = false;
  else if (now - w->seen > 1) w->since += now - w->seen; /* it was this process that stood still */
  if (moved) zx_watch_moved();
  w->moves = moves;
  w->seen = now;
  if (moved && told) return ZX_GOES_ON;
  if (w->told || now - w->since < zx_stall_after()) return ZX_WAITS;
  w->told = true;
  return ZX_STALLS;
}

static void say_stall(ZxComm *c, ZxRequest r) {
  ZbText t = {0};
  if (c->t->explain) c->t->explain(c, r, &t);
  else zb_text_add(&t, "an operation of the communicator");
  zx_say(c->t->rank(c), "note: has waited %.0f s for %s", zx_stall_after(), t.s);
  zx_watch_waits(t.s);
  zb_text_free(&t);
}

void zx_wait(ZxComm *c, ZxRequest r) {
  ZxWait w = {0};
  while (!c->t->test(c, r)) switch (zx_pause(&w, c)) {
    case ZX_WAITS: break;
    case ZX_STALLS: say_stall(c, r); break;
    case ZX_GOES_ON: zx_say(c->t->rank(c), "note: it goes on"); break;
    }
  zx_watch_moved();
  if (w.told) zx_say(c->t->rank(c), "note: it goes on");
}

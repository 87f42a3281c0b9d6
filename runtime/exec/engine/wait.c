/* A wait that polls: gives the core away at first, then sleeps, and tells when it lasts. The clock is looked at only
 * between naps, now and then: what does not last costs nothing. */
#include "runtime/exec/exec.h"

#include <sched.h>
#include <time.h>

enum { SPINS = 64, NAP_NS = 50000, LOOK = 256 }; /* a look every 13 ms at the most */

ZxWaited zx_pause(ZxWait *w, ZxComm *c) {
  if (++w->tries < SPINS) {
    sched_yield();
    return ZX_WAITS;
  }
  nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
  if (w->tries % LOOK) return ZX_WAITS;
  double now = zx_now();
  uint64_t moves = c && c->t->moves ? c->t->moves(c) : 0;
  bool moved = w->since > 0 && moves != w->moves, told = w->told;
  if (w->since <= 0 || moved) w->since = now, w->told = false;
  else if (now - w->seen > 1) w->since += now - w->seen; /* it was this process that stood still */
  w->moves = moves;
  w->seen = now;
  if (moved && told) return ZX_GOES_ON;
  if (w->told || now - w->since < zx_patience()) return ZX_WAITS;
  w->told = true;
  return ZX_STALLS;
}

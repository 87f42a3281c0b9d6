/* How long nothing has got done, and whether that is too long. Pure: times come from the caller. */
#include "runtime/exec/comm/watch.h"

#include <math.h>

/* Seconds. START: nothing that waits in a slow phase needs longer, however short the limit of steps is;
 * WORK: nor does a piece of work that a rank does alone there. */
enum { TIMES = 6, START = 600, WORK = 3600 };
#define EARLY 0.9 /* of the limit: rank 0 should have heard of those that are a bit later */

ZxVigil zx_vigil_new(double limit, double now) {
  return (ZxVigil){.limit = limit, .moved = now, .works = now, .others = -INFINITY, .seen = now};
}

double zx_vigil_limit(const ZxVigil *v, bool slow) {
  double more = TIMES * v->limit < START ? TIMES * v->limit : START;
  return slow && more > v->limit ? more : v->limit;
}

double zx_vigil_tick(const ZxVigil *v) { return v->limit / 20 < 0.5 ? v->limit / 20 : 0.5; }
double zx_vigil_since(const ZxVigil *v) { return v->works > v->others ? v->works : v->others; }

void zx_vigil_hear(ZxVigil *v, double age, double now) {
  if (age >= 0 && now - age > v->others) v->others = now - age;
}

/* This process was stopped, or had no core for long: it has not waited for others meanwhile. */
static void skip(ZxVigil *v, double gap) {
  v->moved += gap;
  v->works += gap;
  v->others += gap;
}

ZxVerdict zx_vigil_look(ZxVigil *v, const ZxSigns *s, double now) {
  double gap = now - v->seen, most = v->limit > WORK ? v->limit : WORK;
  if (gap > 2 * zx_vigil_tick(v) + 1) skip(v, gap);
  v->seen = now;
  if (s->moves != v->moves) v->moves = s->moves, v->moved = v->works = now;
  else if (s->slow && !s->waits && now - v->moved < most) v->works = now;
  double idle = now - zx_vigil_since(v), limit = zx_vigil_limit(v, s->slow);
  return idle > limit ? ZX_OVER : idle > EARLY * limit ? ZX_LATE : ZX_FINE;
}

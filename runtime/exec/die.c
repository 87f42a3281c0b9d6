/* The end of a job for a reason that one rank knows. Ranks that read the same data find the same mistake at the same time:
 * the first of a node to say it does, and ends the others while they wait for it. */
#include "runtime/exec/exec.h"

#include <time.h>

enum { LAST_S = 10 }; /* if the one that spoke cannot end the job, the next one does */

void zx_die(ZxComm *c, const char *fmt, ...) {
  ZbErr e = {0};
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(e.text, sizeof e.text, fmt, ap);
  va_end(ap);
  if (!c->t->claim || c->t->claim(c)) zx_say(c->t->rank(c), "error: %s", e.text);
  else nanosleep(&(struct timespec){.tv_sec = LAST_S}, NULL);
  c->t->abort(c, 1);
}

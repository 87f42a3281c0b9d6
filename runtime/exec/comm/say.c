/* What a single rank says, and the end of a job for a reason that one rank knows. */
#include "runtime/exec/comm/comm.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

void zx_say(int rank, const char *fmt, ...) {
  char text[2048];
  int n = snprintf(text, sizeof text, "[rank %d] ", rank);
  va_list ap;
  va_start(ap, fmt);
  int more = vsnprintf(text + n, sizeof text - (size_t)n, fmt, ap);
  va_end(ap);
  if (more > 0) n += more;
  if ((size_t)n > sizeof text - 1) n = sizeof text - 1; /* cut off: still one line in one write */
  text[n] = 0;
  zb_show_all(text, sizeof text - 1);
  n = (int)strlen(text);
  text[n++] = '\n';
  ssize_t written = write(STDERR_FILENO, text, (size_t)n);
  (void)written; /* there is nobody left to tell */
}

enum { LAST_S = 10 }; /* if the one that spoke cannot end the job, the next one does */

/* Ranks that read the same data find the same mistake at the same time: the first of a node to say it does,
 * and ends the others while they wait for it. */
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

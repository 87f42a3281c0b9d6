/* What a single rank says, and the end of a job for a reason that one rank knows. */
#include "runtime/exec/comm/comm.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

static bool over_line; /* what is said may come where a line was drawn, and takes its place */

void zx_say_over_line(bool over) { over_line = over; }

void zx_say(int rank, const char *fmt, ...) {
  static const char erase[] = "\r\033[K";
  char room[2048 + sizeof erase], *text = room + sizeof erase - 1;
  const size_t size = 2048;
  int n = snprintf(text, size, "[rank %d] ", rank);
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text + n, size - (size_t)n, fmt, ap); /* what is cut off is still one line in one write */
  va_end(ap);
  zb_show_all(text, size - 1);
  n = (int)strlen(text);
  text[n++] = '\n';
  size_t more_room = over_line ? sizeof erase - 1 : 0;
  memcpy(text - more_room, erase, more_room);
  ssize_t written = write(STDERR_FILENO, text - more_room, (size_t)n + more_room);
  (void)written; /* there is nobody left to tell */
}

enum { LAST_S = 10 }; /* if the one that spoke cannot end the job, the next one does */

/* Ranks that read the same data find the same mistake at the same time: the first of a node to say it does,
 * and ends the others while they wait for it. */
__attribute__((format(printf, 3, 0))) static _Noreturn void end_all(ZxComm *c, int code, const char *fmt,
                                                                    va_list ap) {
  ZbErr e = {0};
  vsnprintf(e.text, sizeof e.text, fmt, ap);
  if (!c->t->claim || c->t->claim(c)) zx_say(c->t->rank(c), "error: %s", e.text);
  else nanosleep(&(struct timespec){.tv_sec = LAST_S}, NULL);
  c->t->abort(c, code);
}

void zx_die(ZxComm *c, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  end_all(c, 1, fmt, ap);
}

void zx_die_of(ZxComm *c, int code, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  end_all(c, code, fmt, ap);
}

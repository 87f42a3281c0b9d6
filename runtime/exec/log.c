/* What a run says: a line a step for people, metrics.jsonl for programs, and messages of single ranks. */
#include "runtime/exec/exec.h"

#include <string.h>
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
  text[n++] = '\n';
  ssize_t written = write(STDERR_FILENO, text, (size_t)n);
  (void)written; /* there is nobody left to tell */
}

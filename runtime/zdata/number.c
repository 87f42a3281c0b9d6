/* Numbers that are given as options. */
#include "runtime/zdata/zdata.h"

#include <errno.h>
#include <stdlib.h>

bool zd_whole(const char *text, uint64_t least, uint64_t *out) {
  char *end;
  if (*text < '0' || *text > '9') return false; /* strtoull takes blanks, and signs behind them */
  errno = 0;
  unsigned long long v = strtoull(text, &end, 10);
  if (errno || *end || v < least) return false;
  *out = v;
  return true;
}

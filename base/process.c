/* What the system says of a process. See base.h. */
#include "base/base.h"

#include <unistd.h>

bool zb_process(long pid, ZbProcess *out) {
  char path[64], line[1024];
  unsigned long user, kernel;
  snprintf(path, sizeof path, "/proc/%ld/stat", pid);
  FILE *f = fopen(path, "re");
  if (!f) return false;
  line[fread(line, 1, sizeof line - 1, f)] = 0;
  fclose(f);
  const char *rest = strrchr(line, ')'); /* the name before it may hold anything */
  if (!rest || sscanf(rest, ") %c %ld %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &out->state, &out->parent,
                      &user, &kernel) != 4)
    return false;
  out->cpu = (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
  return true;
}

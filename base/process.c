/* What the system says of a process. See base.h. */
#define _GNU_SOURCE /* pthread_setattr_default_np */
#include "base/base.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
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

void zb_raise_stack(void) {
  enum { LEAST = 1 << 20, WANTED = 8 << 20 };
  struct rlimit now;
  if (getrlimit(RLIMIT_STACK, &now) < 0 || now.rlim_cur >= WANTED) return;
  struct rlimit all = {WANTED, now.rlim_max < WANTED ? WANTED : now.rlim_max},
                some = {now.rlim_max, now.rlim_max};
  if (setrlimit(RLIMIT_STACK, &all) < 0 && setrlimit(RLIMIT_STACK, &some) < 0) return;
  getrlimit(RLIMIT_STACK, &now);
  if (now.rlim_cur < LEAST) {
    fprintf(
        stderr,
        "error: the stack may have %llu KiB, and %d are needed\n  help: raise the limit: `ulimit -s %d`\n",
        (unsigned long long)now.rlim_cur >> 10, LEAST >> 10, WANTED >> 10);
    _Exit(1);
  }
  pthread_attr_t attr;
  if (pthread_attr_init(&attr)) return;
  if (!pthread_attr_setstacksize(&attr, now.rlim_cur)) pthread_setattr_default_np(&attr);
  pthread_attr_destroy(&attr);
}

/* What the system says of a process. See base.h. */
#define _GNU_SOURCE /* pthread_setattr_default_np, sched_getaffinity */
#include "base/base.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
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

ZbCpus zb_cpus(void) {
  enum { MOST = 1 << 20 };
  ZbCpus c = {1, 0};
  for (int most = 1024; most <= MOST; most *= 4) {
    size_t bytes = CPU_ALLOC_SIZE(most);
    cpu_set_t *set = CPU_ALLOC(most);
    if (!set) zb_out_of_memory(bytes);
    CPU_ZERO_S(bytes, set);
    bool ok = sched_getaffinity(0, bytes, set) == 0;
    if (ok) c.n = (uint32_t)CPU_COUNT_S(bytes, set);
    for (int i = 0; ok && i < most; i++)
      if (CPU_ISSET_S((size_t)i, bytes, set)) c.which = zb_random_u64(c.which, 0, (uint64_t)i);
    CPU_FREE(set);
    if (ok || errno != EINVAL) break; /* the kernel's sets are larger */
  }
  return c;
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

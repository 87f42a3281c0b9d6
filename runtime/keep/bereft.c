/* A launcher that waits for nothing: all that it started has ended, and it neither takes notice nor does
 * anything. Open MPI 4.1's mpirun does so at times, for ever, when a rank is killed while it registers: on
 * its way out it waits for a lock that it has. All is read from /proc, see proc(5). */
#include "runtime/keep/keep.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The state of a process, 'Z' if it has ended and nobody has waited for it; 0: there is none. */
static char state_of(int pid, double *cpu) {
  char path[64], line[1024], state;
  unsigned long user, kernel;
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE *f = fopen(path, "re");
  if (!f) return 0;
  line[fread(line, 1, sizeof line - 1, f)] = 0;
  fclose(f);
  const char *rest = strrchr(line, ')'); /* the name before it may hold anything */
  if (!rest ||
      sscanf(rest, ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &state, &user, &kernel) != 3)
    return 0;
  *cpu = (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
  return state;
}

/* Counts what one thread of a process has started, and what of that has not ended. */
static void count(int pid, const char *thread, int *started, int *alive) {
  char path[320];
  double cpu;
  int child;
  snprintf(path, sizeof path, "/proc/%d/task/%s/children", pid, thread);
  FILE *f = fopen(path, "re");
  for (; f && fscanf(f, "%d", &child) == 1; ++*started) {
    char state = state_of(child, &cpu);
    *alive += state && state != 'Z';
  }
  if (f) fclose(f);
}

static bool has_dead_only(int pid) {
  char path[64];
  int started = 0, alive = 0;
  snprintf(path, sizeof path, "/proc/%d/task", pid);
  DIR *d = opendir(path);
  for (struct dirent *e; d && (e = readdir(d));)
    if (*e->d_name != '.') count(pid, e->d_name, &started, &alive);
  if (d) closedir(d);
  return started && !alive;
}

bool keep_bereft(KeepBereft *b, int pid, double limit) {
  double now = zb_now(), cpu = 0;
  bool idle = has_dead_only(pid) && state_of(pid, &cpu) &&
              (b->since <= 0 || cpu - b->cpu < 0.01 * (now - b->since) + 0.05);
  if (!idle) *b = (KeepBereft){0};
  else if (b->since <= 0) *b = (KeepBereft){now, cpu};
  return b->since > 0 && now - b->since >= limit;
}

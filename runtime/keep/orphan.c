/* Detects an orphaned launcher: all processes that it started have ended, and it neither notices nor does anything.
 * Open MPI 4.1's mpirun sometimes hangs so when a rank is killed while it registers: at its end it waits for a lock
 * that it holds itself. Child processes are read from /proc, see proc(5). */
#include "runtime/keep/keep.h"

#include <dirent.h>
#include <string.h>

/* Counts the processes that a thread has started, and those that have not ended. */
static void count(int pid, const char *thread, int *started, int *alive) {
  char path[320];
  int child;
  snprintf(path, sizeof path, "/proc/%d/task/%s/children", pid, thread);
  FILE *f = fopen(path, "re");
  for (; f && fscanf(f, "%d", &child) == 1; ++*started) {
    ZbProcess p;
    *alive += zb_process(child, &p) && p.state != 'Z';
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

bool keep_orphaned(KeepOrphaned *b, int pid, double limit) {
  double now = zb_now();
  ZbProcess p = {0};
  bool idle = has_dead_only(pid) && zb_process(pid, &p) &&
              (b->since <= 0 || p.cpu - b->cpu < 0.01 * (now - b->since) + 0.05);
  if (!idle) *b = (KeepOrphaned){0};
  else if (b->since <= 0) *b = (KeepOrphaned){now, p.cpu};
  return b->since > 0 && now - b->since >= limit;
}

/* Ends what started this process, where it does not end by itself: with the network cut, mpirun waits for
 * ever for its daemons, and they for it. Linux only, as much else here; elsewhere nothing is reaped. */
#define _GNU_SOURCE
#include "runtime/exec/comm/watch.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Handles, unlike numbers of processes, never mean another one. */
static int handle_of(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }
static void kill_by(int handle) { syscall(SYS_pidfd_send_signal, handle, SIGKILL, NULL, 0); }
/* Whether it is gone within so many seconds. */
static bool gone(int handle, int s) {
  return poll(&(struct pollfd){.fd = handle, .events = POLLIN}, 1, 1000 * s) > 0;
}

/* The name of a process, and its parent; false if it cannot be looked at. */
static bool look_up(pid_t pid, char name[32], pid_t *parent) {
  char path[64], text[256];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  if (n <= 0) return false;
  text[n] = 0;
  char *from = strchr(text, '('), *to = strrchr(text, ')');
  int up;
  if (!from || !to || to - from > 31 || sscanf(to + 1, " %*c %d", &up) != 1) return false;
  snprintf(name, 32, "%.*s", (int)(to - from - 1), from + 1);
  *parent = up;
  return true;
}

/* A wrapper or a shell may be between. Daemons that serve several jobs (prted, slurmstepd) are left alone. */
ZxReaper zx_reaper_new(void) {
  static const char *const names[] = {"mpirun", "mpiexec", "orterun", "orted", "prterun"};
  enum { LEVELS = 4, NAMES = sizeof names / sizeof *names };
  ZxReaper r = {-1, handle_of(getpid()), 0};
  pid_t pid = getppid(), parent;
  char name[32];
  for (int i = 0; i < LEVELS && pid > 1 && look_up(pid, name, &parent); i++, pid = parent)
    for (int k = 0; k < NAMES; k++)
      if (!strcmp(name, names[k])) {
        r.pid = pid;
        r.launcher = handle_of(pid);
        return r;
      }
  return r;
}

/* ---- the process that is left behind: system calls only, since other threads held locks when it was made */
/* All that the launcher has started: "12 13 14 " in a file of /proc. */
static void kill_children(const char *path) {
  char text[4096];
  int fd = open(path, O_RDONLY);
  ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text);
  pid_t child = 0;
  for (ssize_t i = 0; i < n; i++)
    if (text[i] >= '0' && text[i] <= '9') child = 10 * child + (text[i] - '0');
    else if (child > 1) kill(child, SIGKILL), child = 0;
  if (fd >= 0) close(fd);
}

static _Noreturn void left_behind(const ZxReaper *r, int self_s, int all_s, const char *children) {
  setsid(); /* mpirun ends the group of processes that a rank is in */
  prctl(PR_SET_NAME, "zug-reaper");
  for (int fd = 0; fd < 1024; fd++)
    if (fd != r->launcher && fd != r->self) close(fd); /* mpirun waits for those who have its pipes */
  if (r->self >= 0 && !gone(r->self, self_s)) kill_by(r->self);
  if (r->launcher >= 0 && !gone(r->launcher, all_s - self_s)) {
    kill_children(children);
    kill_by(r->launcher);
  }
  _exit(0);
}

/* Not by fork(), which calls what libraries have registered for it: some of them wait for their threads. */
void zx_reap(const ZxReaper *r, int self_s, int all_s) {
  char children[64];
  snprintf(children, sizeof children, "/proc/%d/task/%d/children", r->pid, r->pid);
  if (syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L) == 0) left_behind(r, self_s, all_s, children);
}

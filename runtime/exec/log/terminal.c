/* Whether the standard output ends at a terminal, also by way of a launcher: Open MPI gives each rank a
 * terminal that it made, of no size, whatever its own output is. What counts is that of the first process
 * above us that has another. */
#include "runtime/exec/log/sinks.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LEVELS = 8 }; /* a launcher, and what starts programs for it */

int zx_terminal_columns(int fd) {
  struct winsize w;
  return ioctl(fd, TIOCGWINSZ, &w) == 0 ? w.ws_col : 0;
}

static long parent_of(long pid) {
  ZbProcess p;
  return zb_process(pid, &p) ? p.parent : 0;
}

/* A stream of a process, if that is a terminal, for writing; -1: it is none. */
static int open_terminal(long pid, int stream) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%ld/fd/%d", pid, stream);
  int fd = open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0 || isatty(fd)) return fd;
  close(fd);
  return -1;
}

ZxTerminal zx_terminal_find(void) {
  long pid = getpid();
  for (int level = 0; level < LEVELS && pid > 1; level++, pid = parent_of(pid)) {
    int fd = open_terminal(pid, STDOUT_FILENO);
    if (fd < 0) break;
    if (zx_terminal_columns(fd) > 0) {
      int errors = open_terminal(pid, STDERR_FILENO);
      if (errors >= 0) close(errors);
      return (ZxTerminal){.fd = fd, .errors = errors >= 0};
    }
    close(fd);
  }
  return (ZxTerminal){.fd = -1};
}

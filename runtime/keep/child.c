/* Starts, awaits and kills a command with all its processes. Signals are waited for, not handled: nothing happens in between. */
#define _GNU_SOURCE
#include "runtime/keep/keep.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static sigset_t awaited, before;

/* Signals that were ignored when zkeep was started (nohup, background jobs of a script) stay ignored. */
void keep_take_signals(void) {
  static const int ends[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
  struct sigaction old;
  signal(SIGCHLD, SIG_DFL); /* else waitpid would find no child */
  sigemptyset(&awaited);
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (sigaction(ends[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) sigaddset(&awaited, ends[i]);
  sigaddset(&awaited, SIGUSR1);
  sigaddset(&awaited, SIGCHLD);
  sigprocmask(SIG_BLOCK, &awaited, &before);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* Runs the command; errors of exec come back by a pipe that exec closes. */
static _Noreturn void run(char *const *command, int tell, pid_t keeper) {
  int nothing = open("/dev/null", O_RDONLY);
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM); /* zkeep is killed: mpirun ends its ranks */
  if (getppid() != keeper) _exit(1);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO); /* a terminal would stop it */
  if (nothing > STDIN_FILENO) close(nothing);
  sigprocmask(SIG_SETMASK, &before, NULL);
  execvp(command[0], command);
  int code = errno;
  ssize_t n = write(tell, &code, sizeof code);
  _exit(n > 0 ? 127 : 126);
}

int keep_start(char *const *command, ZbErr *err) {
  int pipe_of[2], code = 0;
  pid_t self = getpid(), pid = -1;
  if (pipe2(pipe_of, O_CLOEXEC) == 0) {
    if ((pid = fork()) == 0) run(command, pipe_of[1], self);
    code = errno;
    close(pipe_of[1]);
    if (pid > 0) {
      setpgid(pid, pid); /* whoever is first */
      if (read(pipe_of[0], &code, sizeof code) <= 0) code = 0;
    }
    close(pipe_of[0]);
  } else code = errno;
  if (pid > 0 && !code) return pid;
  if (pid > 0) waitpid(pid, NULL, 0);
  zb_fail(err, "give a command that can be run after --", "cannot start %s: %s", zb_show(command[0]),
          strerror(code));
  return -1;
}

/* Reaps processes that have ended: the command itself, and those that it left. Returns whether it has ended. */
static bool ended(int pid, int *code) {
  int status;
  bool it = false;
  for (pid_t p; (p = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (p != pid) continue;
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    it = true;
  }
  return it;
}

KeepEvent keep_wait(int pid, double seconds, int *code_or_signal) {
  double until = zb_now() + seconds;
  for (;;) {
    double left = seconds < 0 ? 3600 : until - zb_now();
    if (pid > 0 && ended(pid, code_or_signal)) return KEEP_ENDED;
    if (left <= 0) return KEEP_TIME;
    struct timespec t = {(time_t)left, (long)(1e9 * (left - (double)(time_t)left))};
    int sig = sigtimedwait(&awaited, NULL, &t);
    if (sig > 0 && sig != SIGCHLD) return *code_or_signal = sig, KEEP_SIGNAL;
  }
}

/* Orphans are zkeep's children now: also ranks, each in its own process group. */
void keep_sweep(int pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
  kill(-pid, SIGKILL);
  for (int round = 0; round < 50; round++) { /* a grandchild shows up once its parent is gone */
    int left = 0, child;
    FILE *f = fopen(path, "re");
    for (; f && fscanf(f, "%d", &child) == 1; left++) kill(child, SIGKILL);
    if (f) fclose(f);
    while (waitpid(-1, NULL, WNOHANG) > 0) continue;
    if (!left) break;
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  }
}

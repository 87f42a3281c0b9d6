/* Which process has started a rank, and the one that a rank leaves behind. That it ends a launcher which
 * stays is seen by tests/scenarios/hang.sh alone: numbers of processes are not for a test to be wrong about. */
#include "runtime/exec/comm/watch.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEEP = 5 };
/* Pipes. mine: whose end to write the rank alone has, under two numbers, and gives back. */
static int told[2], go[2], mine[2];

static void tell_reaper(void) {
  int before = open_files();
  ZxReaper r = zx_reaper_new();
  bool holds = open_files() - before == (r.self >= 0) + (r.launcher >= 0);
  _exit(holds && write(told[1], &r, sizeof r) == sizeof r ? 0 : 1);
}

/* Processes by these names, each the child of the one before it, and below them all one that plays the
 * rank. All end with the code of the rank, or 99 if it was killed. */
static pid_t start(const char *const *names, void (*play)(void)) {
  pid_t child = fork();
  int status;
  if (child) return child;
  if (!*names) play();
  prctl(PR_SET_NAME, *names);
  pid_t next = start(names + 1, play);
  if (mine[1]) close(mine[1]);
  _exit(waitpid(next, &status, 0) == next && WIFEXITED(status) ? WEXITSTATUS(status) : 99);
}

static int code_of(pid_t pid) {
  int status;
  cr_assert(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
  return WEXITSTATUS(status);
}

Test(reap, launchers_by_their_names) {
  static const struct {
    const char *names[DEEP + 1];
    int at; /* of the launcher among them; -1: there is none */
  } cases[] = {{{"mpirun"}, 0},
               {{"mpiexec"}, 0},
               {{"orterun"}, 0},
               {{"orted"}, 0},
               {{"prterun"}, 0},
               {{"prted"}, -1}, /* serves other jobs, too */
               {{"mpirun2"}, -1},
               {{"(mpirun)"}, -1},
               {{"mpirun", "a) b (c) 1"}, 0}, /* wrappers */
               {{"orted", "mpirun"}, 1},
               {{"mpirun", "sh", "sh", "sh"}, 0},
               {{"mpirun", "sh", "sh", "sh", "sh"}, -1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ZxReaper r;
    cr_assert_eq(pipe(told), 0);
    pid_t first = start(cases[i].names, tell_reaper);
    cr_assert(read(told[0], &r, sizeof r) == sizeof r);
    cr_expect_eq(code_of(first), 0);
    cr_expect_geq(r.self, 0);
    cr_expect_eq(r.launcher >= 0, cases[i].at >= 0, "%zu", i);
    if (cases[i].at < 0) cr_expect(r.launcher == -1 && r.pid == 0, "%zu", i);
    if (cases[i].at == 0) cr_expect_eq(r.pid, first, "%zu", i);
    if (cases[i].at > 0) cr_expect(r.pid > 0 && r.pid != first, "%zu", i);
    close(told[0]);
    close(told[1]);
  }
}

/* Where nobody else has started it. */
static void be_ended(void) {
  ZxReaper r = zx_reaper_new();
  zx_reap(&r, 0, 0);
  sleep(20);
  _exit(1);
}

Test(reap, a_rank_that_stays) {
  cr_expect_eq(code_of(start((const char *const[]){"sh", NULL}, be_ended)), 99);
}

/* Whether a process is called so and has a session of its own, before long. */
static bool becomes(pid_t pid, const char *want) {
  char path[64], name[32];
  snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
  for (int tries = 0; tries < 1000; tries++, usleep(5000)) {
    FILE *f = fopen(path, "r");
    bool read = f && fgets(name, sizeof name, f);
    if (f) fclose(f);
    if (read && !strncmp(name, want, strlen(want)) && getsid(pid) == pid) return true;
  }
  return false;
}

/* The first child of this process; 0: none; -1: the system does not say. */
static pid_t child_of_mine(void) {
  char path[64], text[64];
  snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
  FILE *f = fopen(path, "r");
  if (!f) return -1;
  pid_t child = fgets(text, sizeof text, f) ? (pid_t)strtol(text, NULL, 10) : 0;
  fclose(f);
  return child;
}

static void leave(void) {
  char c;
  ZxReaper r = zx_reaper_new();
  dup2(mine[1], STDIN_FILENO);
  zx_reap(&r, 10, 20);
  close(STDIN_FILENO);
  close(mine[1]);
  pid_t left = child_of_mine();
  _exit(write(told[1], &left, sizeof left) == sizeof left && read(go[0], &c, 1) == 1 ? 5 : 1);
}

/* It has time to end, and what it has left behind holds nothing of its own meanwhile. */
Test(reap, a_rank_that_goes) {
  pid_t left;
  cr_assert(pipe(told) == 0 && pipe(go) == 0 && pipe(mine) == 0);
  pid_t launcher = start((const char *const[]){"mpirun", "sh", NULL}, leave);
  close(mine[1]);
  cr_assert(read(told[0], &left, sizeof left) == sizeof left);
  cr_expect(left < 0 || (left > 0 && becomes(left, "zug-reaper")));
  struct pollfd end = {.fd = mine[0], .events = POLLIN};
  cr_expect(poll(&end, 1, 5000) == 1 && end.revents & POLLHUP, "what it has is not given back");
  struct pollfd over = {.fd = (int)syscall(SYS_pidfd_open, left, 0), .events = POLLIN};
  cr_assert_eq(write(go[1], "", 1), 1);
  cr_expect_eq(code_of(launcher), 5);
  cr_expect(left < 0 || poll(&over, 1, 5000) == 1, "it stays when there is nobody to be ended");
}

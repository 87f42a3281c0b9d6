/* When a run stops before its last step, and what is printed then. */
#define _GNU_SOURCE /* ptsname */
#include "runtime/exec/stop.h"

#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

SCRATCH_SUITE(stop);

static ZbErr err;

/* ---- time ---- */
Test(stop, time_that_is_left) {
  double now = zb_now();
  static const struct {
    double limit, left; /* seconds */
    bool saves;
    double step, save; /* below 0: none yet */
    bool stops;
  } cases[] = {
      {0, 0, false, 5, -1, false},      {100, 9, false, -1, -1, false},  {100, 1.5, false, -1, -1, true},
      {100, 2.5, false, -1, -1, false}, {10, 1.5, false, -1, -1, false}, {10, 0.5, false, -1, -1, true},
      {100, 6, false, 5, -1, true},     {100, 8, false, 5, -1, false},   {100, 11, true, -1, -1, true},
      {100, 13, true, -1, -1, false},   {1000, 61, true, -1, -1, true},  {1000, 63, true, -1, -1, false},
      {1000, 31, true, -1, 20, true},   {1000, 33, true, -1, 20, false}, {1000, 36, true, 5, 20, true},
      {1000, 38, true, 5, 20, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ZxStop s = zx_stop_new(now + cases[i].left - cases[i].limit, cases[i].limit, cases[i].saves);
    if (cases[i].step >= 0) zx_stop_step(&s, cases[i].step);
    if (cases[i].save >= 0) zx_stop_saved(&s, cases[i].save);
    cr_expect_eq(zx_stop_wanted(&s) != 0, cases[i].stops, "%zu", i);
    if (cases[i].stops) cr_expect_str_eq(zx_stop_why(zx_stop_wanted(&s)), "its time limit");
  }
}

/* The first step is forgotten; a longer one counts at once, and fades. */
Test(stop, usual_times) {
  ZxStop s = zx_stop_new(0, 0, true);
  static const double took[] = {100, 4, 1, 1, 6}, step[] = {100, 4, 3.8, 3.61, 6};
  for (int i = 0; i < 5; i++) {
    zx_stop_step(&s, took[i]);
    cr_expect_float_eq(s.step, step[i], 1e-12, "%d: %g", i, s.step);
  }
  static const double save[] = {10, 8, 6.4, 9};
  for (int i = 0; i < 4; i++) {
    zx_stop_saved(&s, i == 0 ? 10 : i == 3 ? 9 : 1);
    cr_expect_float_eq(s.save, save[i], 1e-12, "%d: %g", i, s.save);
  }
}

/* ---- signals ---- */
/* Where the stack pointer points to is no matter: some libraries' products have other things in it. */
static bool comes_on_its_own_stack(int sig) {
  struct sigaction act;
  stack_t st;
  return sigaction(sig, NULL, &act) == 0 && act.sa_flags & SA_ONSTACK && sigaltstack(NULL, &st) == 0 &&
         !(st.ss_flags & SS_DISABLE) && st.ss_size >= 32 << 10;
}

Test(stop, signals) {
  static const int those[] = {SIGTERM, SIGUSR1, SIGINT};
  static const char *const names[] = {"SIGTERM", "SIGUSR1", "SIGINT"};
  static const ZbKind kind = {"a text", NULL};
  for (int i = 0; i < 3; i++) {
    pid_t child = fork();
    if (child == 0) {
      ZxStop s = zx_stop_new(0, 0, false);
      zx_stop_on_signals();
      if (zx_stop_wanted(&s) || !zb_out_new(scratch("unfinished"), &kind, &err)) _exit(1);
      if (!comes_on_its_own_stack(those[i])) _exit(9);
      raise(those[i]);
      raise(SIGTERM); /* the first one counts */
      if (zx_stop_wanted(&s) != those[i] || strcmp(zx_stop_why(those[i]), names[i])) _exit(2);
      raise(SIGINT); /* another ends it */
      _exit(7);
    }
    int status;
    cr_assert(child > 0 && waitpid(child, &status, 0) == child);
    cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT, "%s: code %d", names[i],
              WEXITSTATUS(status));
    cr_expect_eq(scratch_files(), 0, "what is not complete is removed");
  }
}

/* ---- output ---- */
/* What a run that is asked to stop prints into `in`, read from `from`, when nobody reads: it is lost, and the
 * run does not wait. What has been printed before waits for its reader. A code for each thing that is not so. */
enum { LINES = 3000, LINE = 40 }; /* more than a pipe or a terminal holds */

static int prints_without_reader(int in, int from) {
  char room[1 << 10];
  if (dup2(in, STDOUT_FILENO) < 0) return 1;
  alarm(20); /* instead of waiting for ever */
  zx_stop_on_signals();
  printf("there is room\n");
  if (fflush(stdout) != 0) return 2;
  ssize_t n = read(from, room, sizeof room);
  if (n < 13 || memcmp(room, "there is room", 13) != 0) return 3;
  raise(SIGTERM);
  printf("there is, still\n");
  if (fflush(stdout) != 0) return 4;
  n = read(from, room, sizeof room);
  if (n < 15 || memcmp(room, "there is, still", 15) != 0) return 5;
  if (fcntl(in, F_GETFL) & O_NONBLOCK) return 6; /* whoever else has it waits */
  double began = zb_now();
  for (int i = 0; i < LINES; i++)
    if (printf("%-*d\n", LINE - 1, i) < 0 || fflush(stdout) != 0) return 7;
  if (zb_now() > began + 5) return 8; /* once it is lost, it is */
  int files = open_files();
  printf("more\n");
  if (fflush(stdout) != 0 || open_files() != files) return 9;
  return 0;
}

static void expect_nothing_waits(int in, int from) {
  int status;
  pid_t child = fork();
  if (child == 0) _exit(prints_without_reader(in, from));
  cr_assert(child > 0 && waitpid(child, &status, 0) == child);
  cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
}

Test(stop, no_reader_of_a_pipe) {
  int out[2];
  cr_assert(pipe(out) == 0);
  expect_nothing_waits(out[1], out[0]);
  close(out[0]);
  close(out[1]);
}

/* Open MPI gives ranks a terminal. */
Test(stop, no_reader_of_a_terminal) {
  int from = posix_openpt(O_RDWR | O_NOCTTY);
  cr_assert(from >= 0 && grantpt(from) == 0 && unlockpt(from) == 0);
  int in = open(ptsname(from), O_RDWR | O_NOCTTY);
  cr_assert(in >= 0);
  expect_nothing_waits(in, from);
  close(in);
  close(from);
}

/* As long as no stop is asked for, a reader that is slow gets all of it. */
Test(stop, a_slow_reader) {
  int out[2], status;
  static char got[LINES * LINE + 1];
  cr_assert(pipe(out) == 0);
  pid_t child = fork();
  if (child == 0) {
    close(out[0]);
    if (dup2(out[1], STDOUT_FILENO) < 0) _exit(1);
    zx_stop_on_signals();
    for (int i = 0; i < LINES; i++) printf("%-*d\n", LINE - 1, i);
    _exit(fflush(stdout) ? 2 : 0);
  }
  close(out[1]);
  usleep(500000);
  size_t n = 0;
  for (ssize_t more; (more = read(out[0], got + n, sizeof got - n)) > 0;) n += (size_t)more;
  cr_assert(child > 0 && waitpid(child, &status, 0) == child && status == 0, "status %x", (unsigned)status);
  cr_assert_eq(n, LINES * LINE);
  for (int i = 0; i < LINES; i++) cr_assert_eq(atoi(got + i * LINE), i);
  close(out[0]);
}

/* What cannot be written is an error, as before; a file goes on where it is. */
Test(stop, output_to_files) {
  pid_t child = fork();
  if (child == 0) {
    int file = open(scratch("out"), O_WRONLY | O_CREAT, 0666), full = open("/dev/full", O_WRONLY);
    if (file < 0 || full < 0 || write(file, "1\n", 2) != 2 || dup2(file, STDOUT_FILENO) < 0) _exit(1);
    zx_stop_on_signals();
    printf("2\n");
    if (fflush(stdout) != 0 || dup2(full, STDOUT_FILENO) < 0) _exit(2);
    printf("3\n");
    _exit(fflush(stdout) == EOF && errno == ENOSPC && ferror(stdout) ? 0 : 3);
  }
  int status;
  cr_assert(child > 0 && waitpid(child, &status, 0) == child);
  cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
  size_t n;
  char *text = scratch_read("out", &n);
  cr_expect(n == 4 && !memcmp(text, "1\n2\n", 4), "%.*s", (int)n, text);
  free(text);
}

/* A command and what it leaves behind. */
#include "runtime/keep/keep.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int children(void) {
  char path[64];
  int n = 0, child;
  snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
  FILE *f = fopen(path, "r");
  if (!f) cr_skip_test("this system does not list children");
  while (fscanf(f, "%d", &child) == 1) n++;
  fclose(f);
  return n;
}

static int start(const char *script) {
  char *command[] = {"sh", "-c", (char *)(uintptr_t)script, NULL};
  ZbErr err = {0};
  int pid = keep_start(command, &err);
  cr_assert(pid > 0, "%s", err.text);
  return pid;
}

Test(child, ends) {
  static const struct {
    const char *script;
    int code;
  } cases[] = {{"exit 0", 0}, {"exit 75", 75}, {"kill -9 $$", 128 + SIGKILL}, {"read x", 1}};
  keep_take_signals();
  int before = open_files();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int code = -1, pid = start(cases[i].script);
    cr_expect_eq(keep_wait(pid, -1, &code), KEEP_ENDED);
    cr_expect_eq(code, cases[i].code, "%s: %d", cases[i].script, code);
  }
  char *none[] = {"/no/such/command", NULL};
  ZbErr err = {0};
  cr_expect_eq(keep_start(none, &err), -1);
  cr_expect_str_eq(err.text, "cannot start /no/such/command: No such file or directory");
  cr_expect_eq(open_files(), before);
  cr_expect_eq(children(), 0);
}

Test(child, time_and_signals) {
  signal(SIGHUP, SIG_DFL); /* also under nohup, with which it is ignored, and left so */
  keep_take_signals();
  int code = -1, pid = start("exec sleep 1000");
  double from = zb_now();
  cr_expect_eq(keep_wait(pid, 0.05, &code), KEEP_TIME);
  cr_expect(zb_now() - from >= 0.05 && zb_now() - from < 20);
  kill(getpid(), SIGHUP);
  cr_expect(keep_wait(pid, 60, &code) == KEEP_SIGNAL && code == SIGHUP);
  kill(pid, SIGTERM); /* which it does not ignore, though zkeep waits for it */
  cr_expect(keep_wait(pid, 60, &code) == KEEP_ENDED && code == 128 + SIGTERM);
}

/* In groups of their own, and those of theirs; nothing else is lost by it. */
Test(child, leaves_others) {
  keep_take_signals();
  int before = open_files(), code = -1;
  int pid = start("trap '' TERM; setsid sleep 1000 & (sleep 1000 & setsid sh -c 'sleep 1000; sleep 1000') & "
                  "sleep 1000 & exit 3");
  cr_expect(keep_wait(pid, 60, &code) == KEEP_ENDED && code == 3);
  cr_expect_gt(children(), 0);
  keep_sweep(pid);
  cr_expect_eq(children(), 0);
  cr_expect_eq(open_files(), before);
}

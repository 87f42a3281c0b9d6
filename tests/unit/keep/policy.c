/* When a run is started again. */
#include "runtime/keep/keep.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const KeepLimits limits = {3, 5, 30};

Test(policy, what_need_not_be_tried_again) {
  KeepState s = {0, -1};
  double wait;
  cr_expect_eq(keep_judge(&limits, &s, 0, -1, &wait), KEEP_DONE);
  cr_expect_eq(keep_judge(&limits, &s, 2, 40, &wait), KEEP_MISTAKE);
  cr_expect_eq(keep_judge(&limits, &s, 126, 40, &wait), KEEP_MISTAKE);
  cr_expect_eq(keep_judge(&limits, &s, 127, 40, &wait), KEEP_MISTAKE);
  cr_expect_eq(keep_judge(&limits, &s, 128, 40, &wait), KEEP_RESTART);
}

/* Waits double and end at their limit; a new checkpoint begins all anew. */
Test(policy, starts_without_progress) {
  KeepState s = {0, -1};
  KeepLimits many = {6, 5, 30};
  double wait, want[] = {5, 10, 20, 30, 30, 30};
  for (int i = 0; i < 6; i++) {
    cr_expect_eq(keep_judge(&many, &s, 1, -1, &wait), KEEP_RESTART);
    cr_expect_eq(wait, want[i], "wait %d: %g", i, wait);
  }
  KeepState t = s;
  cr_expect_eq(keep_judge(&many, &s, 139, -1, &wait), KEEP_GIVE_UP);
  cr_expect_eq(keep_judge(&many, &t, 139, 0, &wait), KEEP_RESTART);
  cr_expect_eq(wait, 5);
  cr_expect_eq(keep_judge(&many, &t, 139, 0, &wait), KEEP_RESTART);
  cr_expect_eq(wait, 5); /* the first in vain after it */
  cr_expect_eq(keep_judge(&many, &t, 69, 0, &wait), KEEP_RESTART);
  cr_expect_eq(wait, 10);
}

/* The limit holds from the first wait on. */
Test(policy, long_waits) {
  KeepState s = {0, -1};
  KeepLimits long_first = {6, 40, 30};
  double wait;
  cr_expect_eq(keep_judge(&long_first, &s, 1, -1, &wait), KEEP_RESTART);
  cr_expect_eq(wait, 30);
}

/* A run that stops to be started again does not wait, as long as it gets on. */
Test(policy, come_again) {
  KeepState s = {0, 100};
  double wait;
  for (int64_t step = 200; step < 5000; step += 100) {
    cr_expect_eq(keep_judge(&limits, &s, 75, step, &wait), KEEP_RESTART);
    cr_expect_eq(wait, 0);
  }
  for (int i = 0; i < 3; i++) {
    cr_expect_eq(keep_judge(&limits, &s, 75, 4900, &wait), KEEP_RESTART);
    cr_expect(wait > 0);
  }
  cr_expect_eq(keep_judge(&limits, &s, 75, 4900, &wait), KEEP_GIVE_UP);
  KeepState none = {0, -1};
  KeepLimits no = {0, 5, 30};
  cr_expect_eq(keep_judge(&no, &none, 1, -1, &wait), KEEP_GIVE_UP);
}

Test(policy, checkpoints) {
  char dir[] = "/tmp/zug-keep-XXXXXX";
  static const char *const names[] = {"step-00000400", "step-00000020", "step-00000500.tmp-1f",    "step-",
                                      "step-x",        "other",         "step-1000000000000000000"};
  cr_assert(mkdtemp(dir));
  cr_expect_eq(keep_newest(dir), -1);
  cr_assert_eq(chdir(dir), 0);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) cr_assert_eq(mkdir(names[i], 0700), 0);
  cr_expect_eq(keep_newest(dir), 400);
  static const char *const first[] = {"step-00000000",
                                      "step-100000000000000000"}; /* the largest number, too */
  for (int i = 0; i < 2; i++) cr_assert_eq(mkdir(first[i], 0700), 0);
  cr_expect_eq(keep_newest(dir), 100000000000000000);
  rmdir(first[1]);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) rmdir(names[i]);
  cr_expect_eq(keep_newest(dir), 0);
  rmdir(first[0]);
  cr_expect_eq(keep_newest("/none/such"), -1);
  cr_expect_eq(keep_newest(NULL), -1);
  cr_assert_eq(chdir("/"), 0);
  rmdir(dir);
  char *const one[] = {"zrun", "--ckpt", "a", "--ckpt-every", "7", NULL},
              *const two[] = {"zrun", "--ckpt=b", NULL},
              *const none[] = {"zrun", "--ckpt-every", "7", "--ckpt", NULL}, *const empty[] = {NULL};
  cr_expect_str_eq(keep_checkpoints(one), "a");
  cr_expect_str_eq(keep_checkpoints(two), "b");
  cr_expect_null(keep_checkpoints(none));
  cr_expect_null(keep_checkpoints(empty));
}

/* Finds a server's address in its command, whoever starts it. */
Test(server, commands) {
  KeepServer s;
  cr_expect(keep_server((char *[]){"zrun", "serve", "DIR", NULL}, &s) && s.port == 8080 &&
            !strcmp(s.host, "127.0.0.1"));
  cr_expect(keep_server((char *[]){"mpirun", "-np", "2", "/opt/zrun", "serve", "DIR", "--port=99", "--host",
                                   "::1", NULL},
                        &s) &&
            s.port == 99 && !strcmp(s.host, "::1"));
  cr_expect_not(keep_server((char *[]){"zrun", "train", "serve", "--port", "8080", NULL}, &s));
  cr_expect_not(keep_answers(&(KeepServer){"127.0.0.1", 1}));
}

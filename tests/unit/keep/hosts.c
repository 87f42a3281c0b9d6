/* Host files, hosts that answer, and what mpirun is told. */
#include "runtime/keep/keep.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ZbArena *a;
static ZbErr err;
static void start(void) { a = zb_arena_new(); }
static void stop(void) { zb_arena_free(a); }
TestSuite(hosts, .init = start, .fini = stop);

static bool read_text(const char *text, KeepHosts *h) {
  char path[] = "/tmp/zug-hosts-XXXXXX";
  int fd = mkstemp(path);
  cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
  bool ok = keep_read_hosts(a, path, h, &err);
  close(fd);
  unlink(path);
  return ok;
}

Test(hosts, files) {
  KeepHosts h;
  cr_assert(
      read_text("# nodes\n\na slots=4  # the first\n b-2.net:8 \r\nc\nd slots=2 max_slots=4\n10.0.0.7:3", &h),
      "%s", err.text);
  static const struct {
    const char *name;
    int slots;
  } want[] = {{"a", 4}, {"b-2.net", 8}, {"c", 1}, {"d", 2}, {"10.0.0.7", 3}};
  cr_assert_eq(h.n, 5);
  for (int i = 0; i < 5; i++) {
    cr_expect_str_eq(h.host[i].name, want[i].name);
    cr_expect_eq(h.host[i].slots, want[i].slots);
  }
}

Test(hosts, files_that_are_none) {
  static const char *const bad[] = {
      "a;b",       "a slots=0",  "a slots=x", "a slots=2 b",         "a:",    "a:0",      "-a",
      "$(x)",      "",           "# no\n",    "a slots=99999999999", "`x`:2", "a slots=", "a slots=+2",
      "a:1048577", "a slots= 2", "\u00e9"};
  KeepHosts h;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) cr_expect(!read_text(bad[i], &h), "%s", bad[i]);
  char name[260];
  memset(name, 'x', sizeof name);
  for (int n = 255; n <= 256; n++) { /* of so many letters */
    name[n] = 0;
    cr_expect_eq(read_text(name, &h), n == 255, "%d", n);
    name[n] = 'x';
  }
  cr_expect(read_text("azAZ09._-:1048576", &h) && h.host->slots == 1048576 && h.n == 1);
  cr_expect(!read_text("a\nb c", &h));
  cr_expect(strstr(err.text, ":2: `b c` is not a host"), "%s", err.text);
  char large[] = "/tmp/zug-hosts-XXXXXX";
  int fd = mkstemp(large);
  cr_assert(fd >= 0 && write(fd, "a\n#", 3) == 3 && ftruncate(fd, (16 << 20) + 1) == 0);
  cr_expect(!keep_read_hosts(a, large, &h, &err));
  cr_expect(strstr(err.text, "16777217"), "%s", err.text);
  close(fd);
  unlink(large);
}

Test(hosts, ranks) {
  int *r;
  cr_assert(keep_read_ranks(a, "2,8,4", &r, &err));
  KeepHost host[] = {{"a", 4, true}, {"b", 4, true}, {"c", 4, true}};
  KeepHosts h = {host, 3};
  cr_expect_eq(keep_ranks(&h, r), 8);
  host[1].answers = false;
  cr_expect_eq(keep_ranks(&h, r), 8);
  host[0].answers = false;
  cr_expect_eq(keep_ranks(&h, r), 4);
  host[2].slots = 3;
  cr_expect_eq(keep_ranks(&h, r), 2);
  host[2].slots = 1;
  cr_expect_eq(keep_ranks(&h, r), 0);
  static const char *const bad[] = {"", "8,", ",8", "8,x", "0", "8 4", "-2"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    cr_expect(!keep_read_ranks(a, bad[i], &r, &err), "%s", bad[i]);
}

Test(hosts, command) {
  KeepHost host[] = {{"a", 4, true}, {"b", 4, false}, {"c", 2, true}};
  char *const command[] = {"mpirun", "--bind-to", "none", "zrun", NULL};
  char **got = keep_on_hosts(a, command, &(KeepHosts){host, 3}, 6);
  static const char *const want[] = {"mpirun", "-np", "6", "--host", "a:4,c:2", "--bind-to", "none", "zrun"};
  for (int i = 0; i < 8; i++) cr_expect_str_eq(got[i], want[i]);
  cr_expect_null(got[8]);
  char *const alone[] = {"mpirun", NULL};
  got = keep_on_hosts(a, alone, &(KeepHosts){host, 1}, 4);
  for (int i = 0; i < 4; i++) cr_expect_str_eq(got[i], i == 2 ? "4" : want[i]);
  cr_expect(!strcmp(got[4], "a:4") && !got[5]);
}

/* Some answer, one does not, one hangs, as do those it started; more than are asked at once. */
Test(hosts, probes) {
  KeepHost host[150] = {{"good", 1, false}, {"bad", 1, true}, {"hangs", 1, true}};
  for (int i = 3; i < 150; i++) host[i] = (KeepHost){"good", 1, false};
  double from = zb_now();
  keep_take_signals();
  keep_probe(a, &(KeepHosts){host, 150}, "case HOST in good) exit 0;; bad) exit 3;; hangs) sleep 100; esac",
             2);
  cr_expect(host[0].answers && !host[1].answers && !host[2].answers);
  for (int i = 3; i < 150; i++) cr_expect(host[i].answers, "%d", i);
  cr_expect(zb_now() - from < 30);
}

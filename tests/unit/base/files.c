/* Unit tests of base: files that are read, and files that are written so that nothing is lost. */
#define _GNU_SOURCE /* asprintf, memfd_create, setgroups */
#include "base/base.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Every test is in an empty folder of its own. */
static char folder[] = "/tmp/zug-files-XXXXXX";
static ZbErr err;

static void enter(void) {
  cr_assert(mkdtemp(folder) && chdir(folder) == 0);
  umask(022);
}
static int count(void) { /* of what is in the folder */
  int n = -2;
  DIR *d = opendir(folder);
  while (d && readdir(d)) n++;
  closedir(d);
  return n;
}
static int take_away(const char *path, const struct stat *st, int kind, struct FTW *w) {
  (void)st, (void)kind, (void)w;
  return remove(path);
}
static void leave(void) {
  cr_assert(chdir("/") == 0 && nftw(folder, take_away, 8, FTW_DEPTH | FTW_PHYS) == 0);
}
TestSuite(out, .init = enter, .fini = leave, .timeout = 60);
TestSuite(in, .init = enter, .fini = leave, .timeout = 60);

static void put(const char *path, const char *text, int mode) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) &&
            fchmod(fd, (mode_t)mode) == 0);
  close(fd);
}
static void has(const char *path, const char *want) {
  char text[256] = "";
  int fd = open(path, O_RDONLY);
  cr_assert(fd >= 0, "no %s", path);
  cr_assert(read(fd, text, sizeof text - 1) >= 0);
  close(fd);
  cr_expect_str_eq(text, want);
}
static unsigned mode(const char *path) {
  struct stat st;
  cr_assert(stat(path, &st) == 0);
  return st.st_mode & 07777;
}
static bool starts_ok(const uint8_t *head, size_t n) { return n >= 2 && n <= 16 && !memcmp(head, "ok", 2); }
static const ZbKind kind = {"an ok file", starts_ok};
static bool write_ok(const char *path, const char *text) {
  return zb_write_file(path, &kind, text, strlen(text), &err);
}
#define SAYS(words) cr_expect(strstr(err.text, words), "line %d: no '%s' in '%s'", __LINE__, words, err.text)

/* ---- reading ---- */
static void refused(const char *path, const char *words) {
  ZbArena *a = zb_arena_new();
  size_t n;
  uint64_t size;
  cr_expect(!zb_read_file(a, path, 100, &n, &err), "read %s", path);
  SAYS(words);
  cr_expect(zb_open_file(path, false, &size, &err) < 0);
  cr_expect(!zb_open_stream(path, &err));
  zb_arena_free(a);
}

Test(in, what_is_no_regular_file_is_not_waited_for) {
  cr_assert(mkfifo("pipe", 0600) == 0 && mkdir("dir", 0700) == 0 && symlink("/dev/zero", "zero") == 0);
  refused("pipe", "pipe is not a regular file but a pipe");
  refused("dir", "dir is not a regular file but a folder");
  refused("zero", "zero is not a regular file but a device");
  refused("/dev/null", "a device");
  refused("none", "cannot open none: No such file");
  refused("-", "cannot open -");
  cr_expect(strstr(err.help, "standard input"));
}

Test(in, streams_of_pipes_with_a_writer) {
  char text[64] = "";
  int p[2];
  cr_assert(pipe(p) == 0 && write(p[1], "hello", 5) == 5);
  char *path = NULL;
  cr_assert(asprintf(&path, "/proc/self/fd/%d", p[0]) > 0);
  FILE *f = zb_open_stream(path, &err);
  cr_assert(f, "%s", err.text);
  cr_assert(write(p[1], " there", 6) == 6 && close(p[1]) == 0);
  cr_expect_eq(fread(text, 1, sizeof text, f), 11);
  cr_expect_str_eq(text, "hello there");
  fclose(f);
  close(p[0]);
  free(path);
  /* A writer who has not yet written is waited for. */
  cr_assert(mkfifo("pipe", 0600) == 0);
  int both = open("pipe", O_RDWR);
  f = zb_open_stream("pipe", &err);
  cr_assert(both >= 0 && f, "%s", err.text);
  cr_assert(write(both, "late", 4) == 4 && close(both) == 0);
  cr_expect(fread(text, 1, sizeof text, f) == 4 && !memcmp(text, "late", 4));
  fclose(f);
}

/* More than is read at a time. Where the bytes go, the same 16 MiB of memory lie again and again. */
Test(in, more_than_a_gigabyte) {
  const size_t part = 16 << 20, parts = 64, more = 1 << 16;
  uint64_t size;
  int fd = open("large", O_RDWR | O_CREAT, 0600), memory = memfd_create("part", 0);
  cr_assert(fd >= 0 && memory >= 0 && ftruncate(memory, (off_t)part) == 0);
  cr_assert(pwrite(fd, "end", 3, (off_t)(parts * part + more - 3)) == 3 && close(fd) == 0);
  char *to = mmap(NULL, parts * part + more, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  cr_assert(to != MAP_FAILED);
  for (size_t i = 0; i < parts; i++)
    cr_assert(mmap(to + i * part, part, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, 0) !=
              MAP_FAILED);
  fd = zb_open_file("large", false, &size, &err);
  cr_assert(fd >= 0 && size == parts * part + more);
  cr_expect(zb_read_at(fd, "large", to, size, 0, &err), "%s", err.text);
  cr_expect(memcmp(to + size - 3, "end", 3) == 0);
  munmap(to, size), close(fd), close(memory);
}

Test(in, what_cannot_be_read_is_an_error) {
  char to[8];
  put("f", "four", 0600);
  uint64_t size;
  int fd = zb_open_file("f", false, &size, &err);
  cr_assert(fd >= 0 && size == 4);
  errno = EINTR; /* of something else */
  cr_expect(!zb_read_at(fd, "f", to, 5, 0, &err));
  SAYS("cannot read f: it shrank while it was read");
  close(fd);
  fd = open("f", O_WRONLY);
  cr_expect(!zb_read_at(fd, "f", to, 4, 0, &err));
  SAYS("cannot read f: Bad file descriptor");
  close(fd);
}

Test(in, one_file_of_many_names) {
  put("a", "x", 0600);
  put("b", "x", 0600);
  cr_assert(link("a", "hard") == 0 && symlink("a", "soft") == 0 && symlink("none", "dangling") == 0);
  cr_expect(zb_same_file("a", "./a") && zb_same_file("a", "hard") && zb_same_file("soft", "a"));
  cr_expect(!zb_same_file("a", "b") && !zb_same_file("a", "none") && !zb_same_file("none", "none") &&
            !zb_same_file("a", "dangling"));
}

Test(in, files_of_a_folder) {
  put("f", "x", 0600);
  cr_assert(mkdir("d", 0777) == 0 && mkdir("d/e", 0777) == 0 && symlink("d/new", "soft") == 0);
  cr_expect(zb_lies_in("f", ".") && zb_lies_in("d/new", "./d") && zb_lies_in("soft", "d") &&
            zb_lies_in("/new", "/"));
  cr_expect(!zb_lies_in("f", "d") && !zb_lies_in("d/e/f", "d") && !zb_lies_in("none/f", "none"));
}

Test(in, what_is_read_is_no_output) {
  put("f", "x", 0600);
  cr_assert(mkdir("d", 0777) == 0 && symlink("f", "soft") == 0);
  cr_expect(zb_spares("-o", "g", "f", &err) && zb_spares("-o", "f", "d", &err) &&
            zb_spares("-o", "d/g", "f", &err));
  cr_expect(!zb_spares("--to", "soft", "f", &err));
  SAYS("--to soft would overwrite f, from which it is made");
  cr_expect(!zb_spares("-o", "d/g", "d", &err));
  SAYS("-o d/g lies in d, from which it is made");
}

/* ---- writing ---- */
Test(out, whole_or_not_at_all) {
  ZbOut *o = zb_out_new("f", &kind, &err);
  cr_assert(o, "%s", err.text);
  cr_expect(access("f", F_OK) < 0 && access(zb_out_tmp(o), F_OK) == 0);
  cr_assert(write(zb_out_fd(o), "ok 1", 4) == 4 && zb_out_commit(o, &err), "%s", err.text);
  has("f", "ok 1");
  cr_expect_eq(mode("f"), 0644);
  o = zb_out_new("f", &kind, &err);
  cr_assert(o && write(zb_out_fd(o), "ok 2", 4) == 4);
  has("f", "ok 1");
  zb_out_discard(o);
  has("f", "ok 1");
  zb_out_discard(NULL);
  cr_expect_eq(count(), 1);
}

Test(out, two_writers_do_not_meet) {
  ZbOut *a = zb_out_new("f", &kind, &err), *b = zb_out_new("f", &kind, &err),
        *c = zb_out_new("f", &kind, &err);
  cr_assert(a && b && c, "%s", err.text);
  cr_assert(write(zb_out_fd(a), "ok a", 4) == 4 && write(zb_out_fd(b), "ok b", 4) == 4);
  cr_expect(zb_out_commit(a, &err));
  has("f", "ok a");
  zb_out_discard(c);
  cr_expect(zb_out_commit(b, &err), "%s", err.text);
  has("f", "ok b");
  cr_expect_eq(count(), 1);
}

/* Each of them looks for what was left while others make, lock, rename and remove theirs. */
Test(out, many_writers_at_once) {
  enum { WRITERS = 4, TIMES = 40 };
  for (int i = 0; i < WRITERS; i++)
    if (fork() == 0) {
      bool ok = true;
      for (int k = 0; ok && k < TIMES; k++) {
        ok = write_ok("f", "ok");
        ZbOut *o = ok ? zb_out_new("f", &kind, &err) : NULL;
        ok = o && access(zb_out_tmp(o), F_OK) == 0;
        zb_out_discard(o);
      }
      if (!ok) fprintf(stderr, "%s\n", err.text);
      _exit(ok ? 0 : 1);
    }
  for (int i = 0, status; i < WRITERS; i++) cr_expect(wait(&status) > 0 && status == 0);
  has("f", "ok");
  cr_expect_eq(count(), 1);
}

/* What stands where a temporary might be is neither written to nor removed, least of all through a link. */
Test(out, only_what_it_made_is_removed) {
  put("precious", "ok", 0600);
  put("f.tmp", "mine", 0600);
  put("f.0123abcd-0123abcd.tmp", "of another machine", 0600);
  cr_assert(symlink("precious", "f.link.tmp") == 0);
  cr_expect(write_ok("f", "ok"));
  zb_out_discard(zb_out_new("f", &kind, &err));
  has("precious", "ok");
  has("f.tmp", "mine");
  has("f.0123abcd-0123abcd.tmp", "of another machine");
  cr_expect_eq(count(), 5);
}

/* Names that differ from a temporary's in one place are no temporaries of this file and this machine. */
Test(out, names_that_are_nearly_a_temporarys) {
  ZbOut *o = zb_out_new("f", &kind, &err);
  char tmp[64], other[80];
  snprintf(tmp, sizeof tmp, "%s", zb_out_tmp(o));
  zb_out_discard(o);
  put(tmp, "left", 0600);
  cr_expect(write_ok("f", "ok") && count() == 1, "what was left of this machine's is removed");
  int n = 1, len = (int)strlen(tmp);
  for (int i = 0; i < len; i++) {
    snprintf(other, sizeof other, "%.*sx%s", i, tmp, tmp + i + 1);
    put(other, "another's", 0600), n++;
  }
  snprintf(other, sizeof other, "%sx", tmp);
  put(other, "another's", 0600), n++;
  snprintf(other, sizeof other, "%.*s%s", len - 5, tmp, tmp + len - 4); /* a digit less */
  put(other, "another's", 0600), n++;
  snprintf(other, sizeof other, "f%s", tmp);
  put(other, "another's", 0600), n++;
  cr_assert(mkfifo(tmp, 0600) == 0);
  n++;
  cr_expect(write_ok("f", "ok") && count() == n, "%d files, not %d", count(), n);
  cr_assert(unlink(tmp) == 0 && symlink("f", tmp) == 0);
  cr_expect(write_ok("f", "ok") && count() == n);
}

/* A child makes a temporary and ends in this way; the next writer removes what is left, if anything. */
static int left_by(void (*end)(void)) {
  pid_t child = fork();
  if (!child) {
    signal(SIGHUP, SIG_DFL); /* the tests may have been started by nohup */
    signal(SIGINT, SIG_DFL); /* or behind a shell's & */
    zb_begin();
    for (int i = 0; i < 20; i++) /* more than a handler of signals has room for at a time */
      if (!write_ok("f", "ok") || unlink("f") < 0) _exit(97);
    ZbOut *o = zb_out_new("f", &kind, &err), *same = o ? zb_out_share(zb_out_tmp(o)) : NULL;
    if (!same || write(zb_out_fd(o), "ok", 2) != 2 || !zb_out_new("g", &kind, &err)) _exit(99);
    end();
    _exit(98);
  }
  int status, left = 0;
  cr_assert(waitpid(child, &status, 0) == child && WIFSIGNALED(status), "status %x", status);
  left = count();
  zb_out_discard(zb_out_new("f", &kind, &err));
  zb_out_discard(zb_out_new("g", &kind, &err));
  cr_expect_eq(count(), 0);
  return left;
}
static void by_kill(void) { raise(SIGKILL); }
static void by_term(void) { raise(SIGTERM); }
static void by_int(void) { raise(SIGINT); }
static void by_hup(void) { raise(SIGHUP); }
static void by_bug(void) { ZB_BUG("a test's"); }

Test(out, what_a_dead_program_leaves_is_removed) {
  cr_expect_eq(left_by(by_kill), 2);
  cr_expect_eq(left_by(by_term), 0);
  cr_expect_eq(left_by(by_int), 0);
  cr_expect_eq(left_by(by_hup), 0);
  cr_expect_eq(left_by(by_bug), 0);
}

/* What has its name is no temporary any more, and stays when the program is ended. */
Test(out, what_is_done_is_forgotten) {
  char old[64];
  pid_t child = fork();
  if (!child) {
    signal(SIGTERM, SIG_DFL);
    zb_begin();
    ZbOut *o = zb_out_new("f", &kind, &err);
    snprintf(old, sizeof old, "%s", zb_out_tmp(o));
    if (!zb_out_commit(o, &err)) _exit(99);
    put(old, "another's", 0600);
    raise(SIGTERM);
  }
  int status;
  cr_assert(waitpid(child, &status, 0) == child && WIFSIGNALED(status), "status %x", status);
  cr_expect_eq(count(), 2);
}

/* What a killed writer of `path` leaves is removed when `again` is written, which is the same file. */
static void leaves(const char *path, const char *again) {
  pid_t child = fork();
  if (!child) {
    zb_out_new(path, &kind, &err);
    raise(SIGKILL);
  }
  cr_assert(waitpid(child, NULL, 0) == child && count() == 1);
  cr_expect(write_ok(again, "ok") && count() == 1, "%s: %d files", again, count());
}

/* What was left of another file stays until that one is written. */
Test(out, what_is_left_of_others_stays) {
  pid_t child = fork();
  if (!child) {
    zb_out_new("g", &kind, &err);
    raise(SIGKILL);
  }
  cr_assert(waitpid(child, NULL, 0) == child && count() == 1);
  cr_expect(write_ok("f", "ok") && count() == 2);
  cr_expect(write_ok("g", "ok") && count() == 2);
}

Test(out, what_is_left_in_another_folder_is_removed) {
  char path[128];
  snprintf(path, sizeof path, "%s/f", folder);
  cr_assert(chdir("/") == 0);
  leaves(path, path);
  cr_assert(chdir(folder) == 0);
}

Test(out, a_signal_that_was_ignored_stays_so) {
  pid_t child = fork();
  if (!child) {
    signal(SIGHUP, SIG_IGN); /* nohup */
    zb_begin();
    raise(SIGHUP);
    _exit(7);
  }
  int status;
  cr_expect(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

Test(out, permissions_stay) {
  put("f", "ok old", 0600);
  ZbOut *o = zb_out_new("f", &kind, &err);
  cr_expect_eq(mode(zb_out_tmp(o)) & 077, 0, "nobody may read what nobody may read");
  cr_expect(zb_out_commit(o, &err));
  cr_expect_eq(mode("f"), 0600);
  put("f", "ok old", 0664);
  cr_expect(write_ok("f", "ok new") && mode("f") == 0664);
  umask(077);
  cr_expect(write_ok("g", "ok") && mode("g") == 0600);
  struct stat st;
  if (geteuid() == 0 && chown("f", 12345, 54321) == 0) {
    cr_expect(write_ok("f", "ok newer") && stat("f", &st) == 0 && st.st_uid == 12345 && st.st_gid == 54321);
  }
}

/* A folder in which files may be made, and a file in it that may not be written. */
Test(out, what_may_not_be_written_is_not_replaced) {
  put("f", "ok old", 0444);
  put("g", "ok old", 0222); /* and one of which nobody can say what it is */
  cr_assert(chmod(".", 0777) == 0 &&
            (geteuid() != 0 || (chown("f", 65534, 65534) == 0 && chown("g", 65534, 65534) == 0)));
  pid_t child = fork();
  if (!child) {
    if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setgid(65534) < 0 || setuid(65534) < 0)) _exit(1);
    if (write_ok("f", "ok new") || !strstr(err.text, "cannot write f: Permission denied")) _exit(2);
    if (write_ok("g", "ok new") || !strstr(err.text, "g exists and is not an ok file")) _exit(3);
    _exit(7);
  }
  int status;
  cr_expect(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7, "%x",
            status);
  has("f", "ok old");
}

/* Somebody may write a file and not give another its group: then that other group may do no more than all. */
Test(out, a_group_that_cannot_be_given) {
  if (geteuid() != 0) cr_skip_test("only root can make such a file");
  put("f", "ok old", 0664);
  put("g", "ok old", 0660);
  put("h", "ok old", 0664); /* another owner's, of a group that can be given */
  cr_assert(chown("f", 65534, 54321) == 0 && chown("g", 65534, 54321) == 0 && chown("h", 12345, 65534) == 0);
  cr_assert(chmod(".", 0777) == 0);
  pid_t child = fork();
  if (!child) {
    bool ok = setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0;
    _exit(ok && write_ok("f", "ok new") && write_ok("g", "ok new") && write_ok("h", "ok new") ? 7 : 1);
  }
  int status;
  cr_expect(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
  has("f", "ok new");
  cr_expect(mode("f") == 0644 && mode("g") == 0600, "%o %o", mode("f"), mode("g"));
  cr_expect_eq(mode("h"), 0664);
}

Test(out, links_are_followed) {
  cr_assert(mkdir("d", 0700) == 0);
  put("d/real", "ok old", 0640);
  cr_assert(symlink("d/real", "one") == 0 && symlink("one", "two") == 0 && symlink("d/new", "dangling") == 0);
  cr_expect(write_ok("two", "ok new"));
  has("d/real", "ok new");
  cr_expect_eq(mode("d/real"), 0640);
  cr_expect(write_ok("dangling", "ok"), "%s", err.text);
  has("d/new", "ok");
  struct stat st;
  cr_expect(lstat("two", &st) == 0 && S_ISLNK(st.st_mode) && lstat("dangling", &st) == 0 &&
            S_ISLNK(st.st_mode));
  cr_assert(symlink("real", "d/near") == 0); /* from where it is */
  cr_expect(write_ok("d/near", "ok nearer"), "%s", err.text);
  has("d/real", "ok nearer");
  cr_assert(unlink("d/near") == 0 && symlink("round", "round") == 0);
  cr_expect(!write_ok("round", "ok"));
  SAYS("cannot write round: Too many levels");
  char link[16], to[16] = "d/real";
  for (int i = 1; i <= 40; i++) {
    snprintf(link, sizeof link, "link%d", i);
    cr_assert(symlink(to, link) == 0);
    strcpy(to, link);
  }
  cr_expect(write_ok("link39", "ok"), "%s", err.text);
  cr_expect(!write_ok("link40", "ok"));
  SAYS("cannot write link40: Too many levels");
  unlink("d/real"), unlink("d/new");
}

Test(out, what_something_else_made_is_not_replaced) {
  put("f", "letter", 0600);
  cr_expect(!write_ok("f", "ok"));
  SAYS("f exists and is not an ok file: it is not replaced");
  has("f", "letter");
  put("f", "", 0600);
  cr_expect(write_ok("f", "ok"), "an empty file has nothing to lose");
  put("f", "ok, and more than is looked at", 0600);
  cr_expect(write_ok("f", "ok"), "%s", err.text);
  cr_assert(mkdir("d", 0700) == 0);
  cr_expect(!write_ok("d", "ok"));
  SAYS("d exists and is not a file but a folder");
  cr_expect(!write_ok("none/f", "ok"));
  SAYS("cannot create none/f: No such file");
  cr_expect(!err.passing);
  cr_expect(!zb_may_write("none/f", &kind, &err) && !zb_may_write("d", &kind, &err) &&
            zb_may_write("f", &kind, &err));
  cr_expect(!write_ok("", "ok"));
  SAYS("without a name");
  cr_expect_eq(count(), 2);
}

Test(out, devices_and_pipes_are_written_to) {
  struct stat before, after;
  cr_assert(stat("/dev/null", &before) == 0);
  cr_expect(write_ok("/dev/null", "ok"), "%s", err.text);
  cr_expect(stat("/dev/null", &after) == 0 && S_ISCHR(after.st_mode) && after.st_ino == before.st_ino);
  cr_assert(symlink("/dev/full", "full") == 0);
  cr_expect(!write_ok("full", "ok"));
  SAYS("cannot write full: No space left");
  cr_expect(err.passing);
  cr_assert(stat("/dev/full", &after) == 0 && S_ISCHR(after.st_mode));
  cr_assert(mkfifo("pipe", 0600) == 0);
  cr_expect(!write_ok("pipe", "ok"));
  SAYS("cannot write pipe: nobody reads from it");
  int fd = open("pipe", O_RDONLY | O_NONBLOCK);
  char text[8] = "";
  cr_expect(write_ok("pipe", "ok"), "%s", err.text);
  cr_expect(read(fd, text, 7) == 2 && !strcmp(text, "ok"));
  close(fd);
  cr_expect(!zb_out_new("/dev/null", &kind, &err), "where there must be a file");
  SAYS("/dev/null exists and is not a file but a device");
  cr_expect_eq(count(), 2);
}

/* `-o /dev/stdout >>log`: behind what is there. */
Test(out, streams_by_name) {
  put("log", "before ", 0600);
  int fd = open("log", O_WRONLY | O_APPEND), kept = dup(STDOUT_FILENO);
  cr_assert(dup2(fd, STDOUT_FILENO) >= 0);
  bool done = write_ok("/dev/stdout", "ok");
  dup2(kept, STDOUT_FILENO);
  close(fd), close(kept);
  cr_expect(done, "%s", err.text);
  has("log", "before ok");
  for (const char *const *format = (const char *const[]){"/dev/fd/%d", "/proc/self/fd/%d", NULL}; *format;
       format++) {
    char name[64];
    fd = open("log", O_WRONLY | O_APPEND);
    snprintf(name, sizeof name, *format, fd);
    cr_expect(write_ok(name, "+"), "%s: %s", name, err.text);
    close(fd);
  }
  has("log", "before ok++");
}

/* In parts: more than a gigabyte is not written at once. */
Test(out, more_than_a_gigabyte_is_written) {
  size_t n = (1 << 30) + 5;
  char *p = mmap(NULL, n, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  cr_assert(p != MAP_FAILED);
  cr_expect(zb_write_file("/dev/null", &kind, p, n, &err), "%s", err.text);
  munmap(p, n);
}

Test(out, bytes_at_a_place_and_where_the_file_is) {
  int fd = open("x", O_RDWR | O_CREAT, 0666);
  char all[8] = "";
  cr_assert(fd >= 0);
  cr_expect(zb_write(fd, "x", "abc", 3, &err) && zb_write(fd, "x", "def", 3, &err), "%s", err.text);
  cr_expect(zb_write_at(fd, "x", "AB", 2, 0, &err) && zb_write_at(fd, "x", "E", 1, 4, &err), "%s", err.text);
  cr_expect_eq(lseek(fd, 0, SEEK_CUR), 6, "it stays where it is");
  cr_expect(pread(fd, all, sizeof all, 0) == 6 && !memcmp(all, "ABcdEf", 6), "%.8s", all);
  close(fd);
  cr_expect_not(zb_write(fd, "x", "abc", 3, &err));
  cr_expect(strstr(err.text, "x: Bad file descriptor"), "%s", err.text);
}

static void interrupt(int sig) { (void)sig; }

/* A pipe takes a part at a time, and signals come in between. */
Test(out, a_slow_reader_gets_all) {
  enum { N = 300000 };
  static unsigned char sent[N], got[N + 1];
  int p[2], status;
  char name[64];
  for (int i = 0; i < N; i++) sent[i] = (unsigned char)zb_mix64((uint64_t)i);
  cr_assert(pipe(p) == 0);
  pid_t child = fork();
  if (!child) {
    close(p[1]);
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    ssize_t n = 0;
    for (ssize_t k; n <= N && (k = read(p[0], got + n, (size_t)(N + 1 - n))) > 0;) n += k;
    _exit(n == N && !memcmp(got, sent, N) ? 7 : 1);
  }
  sigaction(SIGALRM, &(struct sigaction){.sa_handler = interrupt}, NULL);
  setitimer(ITIMER_REAL, &(struct itimerval){{0, 10000}, {0, 10000}}, NULL);
  snprintf(name, sizeof name, "/proc/self/fd/%d", p[1]);
  bool done = zb_write_file(name, &kind, sent, N, &err);
  setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
  cr_expect(done, "%s", err.text);
  close(p[0]), close(p[1]);
  cr_expect(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

/* What failed before the end, and of which nothing is known any more. */
Test(out, a_standard_output_that_lost_a_part) {
  pid_t child = fork();
  if (!child) {
    int full = open("/dev/full", O_WRONLY);
    if (dup2(full, STDOUT_FILENO) < 0) _exit(1);
    setvbuf(stdout, NULL, _IONBF, 0);
    printf("x");
    errno = EPERM; /* of something else */
    if (zb_close_stdout(&err) || !strstr(err.text, "standard output: a part of it is lost")) _exit(2);
    _exit(7);
  }
  int status;
  cr_expect(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7, "%x",
            status);
}

Test(out, names_as_long_as_they_may_be) {
  char name[256] = "";
  memset(name, 'n', 255);
  for (int i = 0; i < 2; i++) /* new, and replaced */
    cr_expect(write_ok(name, "ok"), "%s", err.text);
  ZbOut *o = zb_out_new(name, &kind, &err);
  cr_expect(o && strcmp(zb_out_tmp(o), name) != 0);
  zb_out_discard(o);
  has(name, "ok");
  cr_expect_eq(count(), 1);
  cr_assert(unlink(name) == 0);
  leaves(name, name);
}

Test(out, a_result_that_cannot_be_renamed_is_kept) {
  ZbOut *o = zb_out_new("f", &kind, &err);
  char *tmp = strdup(zb_out_tmp(o));
  cr_assert(write(zb_out_fd(o), "ok", 2) == 2 && mkdir("f", 0700) == 0);
  put("f/x", "", 0600);
  cr_expect(!zb_out_commit(o, &err));
  SAYS("cannot rename f.");
  cr_expect_str_eq(err.help, "it is whole: rename it yourself");
  has(tmp, "ok");
  unlink("f/x");
  free(tmp);
}

Test(out, a_file_over_the_limit_is_an_error) {
  zb_begin();
  cr_assert(setrlimit(RLIMIT_FSIZE, &(struct rlimit){3, 3}) == 0);
  cr_expect(!write_ok("f", "ok but long"));
  SAYS("cannot write f: File too large");
  cr_expect_eq(count(), 0);
}

static int descriptors(void) {
  int n = -1; /* the folder's own */
  DIR *d = opendir("/proc/self/fd");
  while (d && readdir(d)) n++;
  closedir(d);
  return n;
}

/* Whatever ends well or badly, no file stays open. */
Test(out, nothing_stays_open) {
  ZbArena *a = zb_arena_new();
  size_t n;
  put("letter", "letter", 0600);
  cr_assert(mkfifo("pipe", 0600) == 0 && mkdir("dir", 0700) == 0 && symlink("/dev/full", "full") == 0);
  int before = descriptors();
  cr_expect(write_ok("f", "ok") && write_ok("f", "ok") && write_ok("/dev/null", "ok"));
  cr_expect(!write_ok("letter", "ok") && !write_ok("dir", "ok") && !write_ok("full", "ok") &&
            !write_ok("pipe", "ok"));
  zb_out_discard(zb_out_new("f", &kind, &err));
  zb_out_discard(zb_out_share("f.tmp"));
  cr_expect(zb_out_commit(zb_out_share("f.tmp"), &err), "there is nothing to do for who did not make it");
  cr_expect(zb_read_file(a, "f", 100, &n, &err) && !zb_read_file(a, "f", 1, &n, &err));
  for (const char *const *p = (const char *const[]){"dir", "pipe", "full", "none", NULL}; *p; p++)
    cr_expect(!zb_read_file(a, *p, 100, &n, &err) && !zb_open_stream(*p, &err));
  cr_expect_eq(descriptors(), before);
  zb_arena_free(a);
}

/* A program that was started without standard input has a file of number 0 sooner or later. */
Test(out, descriptor_0_is_one_as_all_others) {
  pid_t child = fork();
  if (!child) {
    close(0);
    ZbArena *a = zb_arena_new();
    size_t n;
    err = (ZbErr){.text = ""};
    bool ok = write_ok("f", "ok") && write_ok("f", "ok") && write_ok("/dev/null", "ok") && !*err.text;
    ok = ok && zb_read_file(a, "f", 9, &n, &err) && n == 2 && !zb_read_file(a, "/", 9, &n, &err);
    FILE *f = zb_open_stream("f", &err);
    ok = ok && f && fileno(f) == 0 && fclose(f) == 0;
    _exit(ok && fcntl(0, F_GETFD) < 0 ? 7 : 1);
  }
  int status;
  cr_expect(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
  has("f", "ok");
}

/* A disk that does not take what was written, here a pipe in its place. */
Test(out, a_file_that_cannot_be_synced) {
  int p[2];
  ZbOut *o = zb_out_new("f", &kind, &err);
  cr_assert(o && pipe(p) == 0 && dup2(p[1], zb_out_fd(o)) >= 0);
  cr_expect(!zb_out_commit(o, &err));
  SAYS("cannot write f: Invalid argument");
  cr_expect_eq(count(), 0);
}

/* What was removed while its successor was made keeps its permissions. */
Test(out, permissions_of_what_was_removed_meanwhile) {
  put("f", "ok old", 0640);
  ZbOut *o = zb_out_new("f", &kind, &err);
  cr_assert(o && unlink("f") == 0);
  cr_expect(zb_out_commit(o, &err), "%s", err.text);
  cr_expect_eq(mode("f"), 0640);
}

/* With standard output closed, no file gets its number: what is printed would be written into it. */
Test(out, closed_streams) {
  pid_t child = fork();
  if (!child) {
    int next = open("f", O_RDWR | O_CREAT, 0600);
    close(next), close(0), close(1), close(2);
    zb_begin();
    int fd = open("f", O_RDWR);
    errno = 0;
    bool fails = write(1, "x", 1) < 0 && errno == EBADF;
    _exit(fd > 2 && fd == next && fails ? 7 : 1);
  }
  int status;
  cr_expect(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

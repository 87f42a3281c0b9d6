/* Reading files that a user names. Only regular files are read: their size is known and they have an end.
 * What else a path may name (a folder, a pipe that nobody writes to, /dev/zero) is refused at once, not
 * waited for. See base.h. */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *zb_file_kind(unsigned mode) {
  switch (mode & S_IFMT) {
  case S_IFREG: return "a regular file";
  case S_IFDIR: return "a folder";
  case S_IFIFO: return "a pipe";
  case S_IFSOCK: return "a socket";
  default: return "a device";
  }
}

/* Opens without waiting for whoever should be at a pipe's other end. */
static int open_any(const char *path, bool write, struct stat *st, ZbErr *err) {
  int fd = open(path, (write ? O_RDWR : O_RDONLY) | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd >= 0 && fstat(fd, st) == 0) return fd;
  zb_fail_errno(err, errno,
                strcmp(path, "-") ? "check the path and its permissions"
                                  : "the standard input is not read; write it into a file",
                "cannot open %s", zb_show(path));
  if (fd >= 0) close(fd);
  return -1;
}

static int refuse(int fd, const char *path, const struct stat *st, const char *help, ZbErr *err) {
  zb_fail(err, S_ISFIFO(st->st_mode) ? help : "give a regular file", "%s is not a regular file but %s",
          zb_show(path), zb_file_kind(st->st_mode));
  close(fd);
  return -1;
}

int zb_open_file(const char *path, bool write, uint64_t *size, ZbErr *err) {
  struct stat st;
  int fd = open_any(path, write, &st, err);
  if (fd < 0) return -1;
  if (!S_ISREG(st.st_mode)) return refuse(fd, path, &st, "write what comes from it into a file first", err);
  *size = (uint64_t)st.st_size;
  return fd;
}

bool zb_read_at(int fd, const char *path, void *p, uint64_t n, uint64_t at, ZbErr *err) {
  for (char *q = p; n;) {
    ssize_t got = pread(fd, q, n < (1u << 30) ? n : (1u << 30), (off_t)at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return zb_fail_errno(err, errno, NULL, "cannot read %s", zb_show(path));
    if (!got) {
      zb_fail(err, "leave it alone while it is used", "cannot read %s: it shrank while it was read",
              zb_show(path));
      if (err) err->passing = true;
      return false;
    }
    q += got;
    at += (uint64_t)got;
    n -= (uint64_t)got;
  }
  return true;
}

char *zb_read_file(ZbArena *a, const char *path, uint64_t limit, size_t *n, ZbErr *err) {
  uint64_t size;
  int fd = zb_open_file(path, false, &size, err);
  if (fd < 0) return NULL;
  char *text = NULL;
  if (size > limit) {
    zb_fail(err, NULL, "%s has %llu bytes; at most %llu are read", zb_show(path), (unsigned long long)size,
            (unsigned long long)limit);
  } else {
    text = zb_alloc(a, size + 1);
    *n = size;
    if (!zb_read_at(fd, path, text, size, 0, err)) text = NULL;
  }
  close(fd);
  return text;
}

/* A pipe that nobody has open for writing is at its end from the start; one whose writer has not yet written
 * is not. */
static FILE *open_pipe(int fd, const char *path, const struct stat *st, ZbErr *err) {
  char first;
  ssize_t got = read(fd, &first, 1);
  bool waits = got < 0 && errno == EAGAIN;
  if (got == 0) refuse(fd, path, st, "nobody writes to it: start the writer first", err);
  if (got == 0) return NULL;
  FILE *f = fcntl(fd, F_SETFL, 0) < 0 ? NULL : fdopen(fd, "r");
  if (f && got > 0) ungetc((unsigned char)first, f);
  if (f && (got > 0 || waits)) return f;
  zb_fail_errno(err, errno, NULL, "cannot read %s", zb_show(path));
  if (f) fclose(f);
  else close(fd);
  return NULL;
}

FILE *zb_open_stream(const char *path, ZbErr *err) {
  struct stat st;
  int fd = open_any(path, false, &st, err);
  if (fd < 0) return NULL;
  if (S_ISFIFO(st.st_mode)) return open_pipe(fd, path, &st, err);
  if (!S_ISREG(st.st_mode)) return refuse(fd, path, &st, NULL, err), NULL;
  FILE *f = fdopen(fd, "r");
  if (!f) zb_fail_errno(err, errno, NULL, "cannot read %s", zb_show(path)), close(fd);
  return f;
}

bool zb_same_file(const char *a, const char *b) {
  struct stat x, y;
  return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Writing files so that nothing is lost. See base.h.
 *
 * A file is written into a temporary beside it (tmp.c), which takes its name when it is whole. */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD = 16 };

struct ZbOut {
  char *path; /* links resolved */
  char *tmp;
  int fd;      /* holds the lock; -1: the temporary is another process's */
  bool old;    /* there is a file to be replaced, ... */
  mode_t mode; /* ... with these permissions */
};

/* ---- what is removed when the program ends before its time ---- */
enum { MAX_LIVE = 16 };
/* Of other threads a handler may see an entry half written: its first byte comes last. */
static char live[MAX_LIVE][PATH_MAX];

static void note_live(const char *tmp) {
  for (int i = 0; i < MAX_LIVE; i++) {
    if (*live[i] || strlen(tmp) >= PATH_MAX) continue;
    strcpy(live[i] + 1, tmp + 1);
    __atomic_store_n(&live[i][0], *tmp, __ATOMIC_RELEASE);
    return;
  }
}

static void forget_live(const char *tmp) {
  for (int i = 0; i < MAX_LIVE; i++)
    if (!strcmp(live[i], tmp)) __atomic_store_n(&live[i][0], 0, __ATOMIC_RELEASE);
}

void zb_out_discard_all(void) {
  for (int i = 0; i < MAX_LIVE; i++)
    if (__atomic_load_n(&live[i][0], __ATOMIC_ACQUIRE)) unlink(live[i]);
}

/* By SA_RESETHAND the second signal ends the program as if there were no handler. By SA_ONSTACK it comes on
 * the stack for signals, if a program has one. */
static void on_signal(int sig) {
  zb_out_discard_all();
  raise(sig);
}

void zb_begin(void) {
  zb_raise_stack();
  static const int ends[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGXCPU};
  for (int fd = 0; fd < 3; fd++) /* of the wrong kind, so that using it is an error as before */
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) != fd) return;
  signal(SIGXFSZ, SIG_IGN);
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    struct sigaction now = {.sa_handler = on_signal, .sa_flags = (int)(SA_RESETHAND | SA_ONSTACK)}, old;
    if (sigaction(ends[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL) sigaction(ends[i], &now, NULL);
  }
}

/* ---- paths ---- */
char *zb_resolve(const char *path, ZbErr *err) {
  char *at = strdup(path), to[PATH_MAX];
  if (!at) zb_out_of_memory(0);
  for (int links = 0; links < 40; links++) {
    ssize_t n = readlink(at, to, sizeof to - 1);
    if (n < 0) return at; /* no link, or not there */
    to[n] = 0;
    char *next = *to == '/' ? strdup(to) : zb_beside(at, to);
    if (!next) zb_out_of_memory(0);
    free(at);
    at = next;
  }
  free(at);
  zb_fail(err, "give another path", "cannot write %s: %s", zb_show(path), strerror(ELOOP));
  return NULL;
}

bool zb_lies_in(const char *path, const char *folder) {
  char *at = zb_resolve(path, NULL), *of = at ? zb_beside(at, ".") : NULL;
  bool in = of && zb_same_file(of, folder);
  free(at);
  free(of);
  return in;
}

bool zb_spares(const char *option, const char *out, const char *in, ZbErr *err) {
  static const char help[] = "choose another name";
  if (zb_same_file(out, in))
    return zb_fail(err, help, "%s %s would overwrite %s, from which it is made", option, zb_show(out),
                   zb_show(in));
  return !zb_lies_in(out, in) ||
         zb_fail(err, help, "%s %s lies in %s, from which it is made", option, zb_show(out), zb_show(in));
}

/* ---- making a file ---- */
static void out_free(ZbOut *o) {
  if (o->tmp) forget_live(o->tmp);
  if (o->fd >= 0) close(o->fd);
  free(o->path);
  free(o->tmp);
  free(o);
}

/* What is there already and was made by something else had better not be replaced. */
static bool may_replace(ZbOut *o, const ZbKind *kind, ZbErr *err) {
  static const char help[] = "remove it, or choose another name";
  struct stat st;
  if (stat(o->path, &st) < 0) return true; /* creating it will say what is wrong, if anything */
  if (!S_ISREG(st.st_mode))
    return zb_fail(err, help, "%s exists and is not a file but %s", zb_show(o->path),
                   zb_file_kind(st.st_mode));
  o->old = true;
  o->mode = st.st_mode & 0777;
  if (access(o->path, W_OK)) return zb_fail_errno(err, errno, help, "cannot write %s", zb_show(o->path));
  uint8_t head[HEAD];
  int fd = open(o->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, head, sizeof head);
  if (fd >= 0) close(fd);
  if (n == 0 || (n > 0 && kind->is(head, (size_t)n))) return true;
  return zb_fail(err, help, "%s exists and is not %s: it is not replaced", zb_show(o->path), kind->what);
}

ZbOut *zb_out_new(const char *path, const ZbKind *kind, ZbErr *err) {
  ZbOut *o = calloc(1, sizeof *o);
  if (!o) zb_out_of_memory(0);
  o->fd = -1;
  if (!*path) zb_fail(err, NULL, "a file without a name cannot be written");
  else o->path = zb_resolve(path, err);
  if (o->path && may_replace(o, kind, err)) {
    zb_tmp_remove_left(o->path, NULL);
    o->fd = zb_tmp_make(o->path, false, o->old ? 0600 : 0666, &o->tmp);
    if (o->fd < 0)
      zb_fail_errno(err, errno, "check the folder and its permissions", "cannot create %s", zb_show(o->path));
  }
  if (o->fd >= 0) note_live(o->tmp);
  else out_free(o), o = NULL;
  return o;
}

ZbOut *zb_out_share(const char *tmp) {
  ZbOut *o = calloc(1, sizeof *o);
  if (!o || !(o->tmp = strdup(tmp))) zb_out_of_memory(0);
  o->fd = -1;
  note_live(o->tmp);
  return o;
}

int zb_out_fd(const ZbOut *o) { return o->fd; }
const char *zb_out_tmp(const ZbOut *o) { return o->tmp; }

bool zb_out_failed(const char *path, int code, ZbErr *err) {
  return zb_fail_errno(err, code, "check the free space (df) and the limits (ulimit -f)", "cannot write %s",
                       zb_show(path));
}

/* The permissions and the owner of the file that is replaced. If its group cannot be given, another group may
 * do no more than everybody. */
static void take_after(const ZbOut *o) {
  struct stat st = {0};
  if (stat(o->path, &st) < 0 || !S_ISREG(st.st_mode)) {
    if (o->old) fchmod(o->fd, o->mode); /* it was there at the start */
    return;
  }
  mode_t mode = st.st_mode & 0777;
  if (fchown(o->fd, st.st_uid, st.st_gid) < 0 && fchown(o->fd, (uid_t)-1, st.st_gid) < 0)
    mode = (mode & ~(mode_t)070) | (mode & (mode << 3) & 070);
  fchmod(o->fd, mode);
}

/* A name is on the disk when its folder is. */
static void sync_folder(const char *path) {
  char *folder = zb_beside(path, ".");
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) fsync(fd), close(fd);
  free(folder);
}

bool zb_out_commit(ZbOut *o, ZbErr *err) {
  if (o->fd < 0) return out_free(o), true;
  if (fsync(o->fd) < 0) {
    zb_out_failed(o->path, errno, err);
    zb_out_discard(o);
    return false;
  }
  take_after(o);
  bool ok = rename(o->tmp, o->path) == 0;
  if (!ok)
    zb_fail(err, "it is whole: rename it yourself", "cannot rename %s to %s: %s", zb_show(o->tmp),
            zb_show(o->path), strerror(errno));
  else sync_folder(o->path);
  out_free(o);
  return ok;
}

void zb_out_discard(ZbOut *o) {
  if (!o) return;
  unlink(o->tmp);
  out_free(o);
}

/* ---- bytes ---- */
/* at < 0: where the file is, as pipes want it. */
static bool put_all(int fd, const char *path, const char *p, uint64_t n, off_t at, ZbErr *err) {
  while (n) {
    size_t most = n < (1u << 30) ? n : (1u << 30);
    ssize_t put = at < 0 ? write(fd, p, most) : pwrite(fd, p, most, at);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return zb_out_failed(path, put < 0 ? errno : ENOSPC, err);
    p += put;
    n -= (size_t)put;
    if (at >= 0) at += put;
  }
  return true;
}

bool zb_write_at(int fd, const char *path, const void *p, uint64_t n, uint64_t at, ZbErr *err) {
  return put_all(fd, path, p, n, (off_t)at, err);
}

bool zb_write(int fd, const char *path, const void *p, uint64_t n, ZbErr *err) {
  return put_all(fd, path, p, n, -1, err);
}

/* ---- a file at once ---- */

/* A stream of this process by its name: what it is connected to is written behind what is there. */
static bool is_stream(const char *path) {
  static const char *const names[] = {"/dev/stdout", "/dev/stderr"};
  for (size_t i = 0; i < 2; i++)
    if (!strcmp(path, names[i])) return true;
  return !strncmp(path, "/dev/fd/", 8) || !strncmp(path, "/proc/self/fd/", 14);
}

/* Devices and pipes have nothing that could be lost. */
static bool put_direct(const char *path, const void *bytes, size_t n, ZbErr *err) {
  int fd = open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0 || fcntl(fd, F_SETFL, O_APPEND) < 0) {
    zb_fail(err, errno == ENXIO ? "start the reader first" : "give another path", "cannot write %s: %s",
            zb_show(path), errno == ENXIO ? "nobody reads from it" : strerror(errno));
    if (fd >= 0) close(fd);
    return false;
  }
  bool ok = put_all(fd, path, bytes, n, -1, err);
  if (close(fd) < 0 && ok) ok = zb_out_failed(path, errno, err);
  return ok;
}

static bool is_direct(const char *path) {
  struct stat st;
  return is_stream(path) || (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode));
}

bool zb_may_write(const char *path, const ZbKind *kind, ZbErr *err) {
  if (is_direct(path)) return true;
  ZbOut *o = zb_out_new(path, kind, err);
  bool may = o;
  zb_out_discard(o);
  return may;
}

bool zb_write_file(const char *path, const ZbKind *kind, const void *bytes, size_t n, ZbErr *err) {
  if (is_direct(path)) return put_direct(path, bytes, n, err);
  ZbOut *o = zb_out_new(path, kind, err);
  if (!o) return false;
  if (put_all(o->fd, path, bytes, n, -1, err)) return zb_out_commit(o, err);
  zb_out_discard(o);
  return false;
}

bool zb_close_stdout(ZbErr *err) {
  bool bad = ferror(stdout);
  errno = 0;
  if (fclose(stdout) == 0 && !bad) return true;
  return zb_fail(err, NULL, "cannot write to the standard output: %s",
                 errno ? strerror(errno) : "a part of it is lost");
}

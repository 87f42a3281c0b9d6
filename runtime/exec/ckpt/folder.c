/* The folders of checkpoints. A complete one gets its name by one rename, and loses it by one; whatever
 * moment a process is killed at, what has such a name is whole. What is removed is only what this file would
 * have made. */
#include "runtime/exec/ckpt/ckpt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- names ---- */
const char *zx_ckpt_path(ZbArena *a, const char *dir, int64_t step) {
  return zb_printf(a, "%s/step-%08" PRId64, dir, step);
}

const char *zx_ckpt_tmp(ZbArena *a, const char *dir, int64_t step, const char *run) {
  return zb_printf(a, "%s/step-%08" PRId64 ".%s.tmp", dir, step, run);
}

/* "step-00000400" and 400; what comes behind the number. NULL: it is no such name. */
static const char *step_of(const char *name, int64_t *step) {
  const char *p = name;
  if (strncmp(p, "step-", 5)) return NULL;
  p += 5;
  size_t n = strspn(p, "0123456789");
  if (n < 8 || n > 18) return NULL;
  *step = strtoll(p, NULL, 10);
  return p + n;
}

int64_t zx_ckpt_step(const char *path) {
  const char *slash = strrchr(path, '/'), *rest;
  int64_t step;
  rest = step_of(slash ? slash + 1 : path, &step);
  return rest && !*rest ? step : -1;
}

/* "step-00000400.RUN.tmp" */
static bool is_tmp(const char *name) {
  int64_t step;
  const char *rest = step_of(name, &step);
  return rest && *rest == '.' && strlen(rest) > 5 && zb_ends(rest, ".tmp");
}

/* A file that a checkpoint's folder has. */
static bool is_ours(const char *name) {
  return !strcmp(name, "manifest.json") || !strcmp(name, "manifest.json.tmp") ||
         ((!strncmp(name, "model", 5) || !strncmp(name, "optimizer", 9)) &&
          (zb_ends(name, ".safetensors") || zb_ends(name, ".index.json")));
}

/* ---- which there are ---- */
static int by_serial(const void *a, const void *b) {
  const ZxCkptEntry *x = a, *y = b;
  if (x->serial != y->serial) return x->serial < y->serial ? -1 : 1;
  return x->step < y->step ? -1 : x->step > y->step;
}

uint32_t zx_ckpt_list(ZbArena *a, const char *dir, ZxCkptEntry **out, ZbErr *err) {
  DIR *d = opendir(dir);
  uint32_t n = 0;
  *out = NULL;
  if (!d && errno != ENOENT) zb_fail_errno(err, errno, NULL, "cannot read the folder %s", zb_show(dir));
  for (struct dirent *x; d && (x = readdir(d));) {
    ZxCkptEntry e = {0};
    const char *rest = step_of(x->d_name, &e.step);
    struct stat st;
    if (!rest || *rest) continue;
    e.path = zb_printf(a, "%s/%s", dir, x->d_name);
    if (stat(e.path, &st) < 0 || !S_ISDIR(st.st_mode)) continue;
    ZbArena *tmp = zb_arena_new();
    const ZxManifest *m = zx_manifest_read(tmp, e.path, NULL);
    if (m && m->step == e.step) e.serial = m->serial;
    zb_arena_free(tmp);
    ZB_PUSH(a, *out, n, e);
  }
  if (d) closedir(d);
  if (n) qsort(*out, n, sizeof **out, by_serial);
  return n;
}

/* ---- the lock ---- */
int zx_ckpt_lock(const char *dir, ZbErr *err) {
  static const char help[] = "give another folder with --ckpt, or make it writable";
  if (!zb_make_folders(dir, "checkpoint", help, err)) return -1;
  ZbText path = {0};
  zb_text_add(&path, "%s/lock", dir);
  int fd = open(path.s, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (fd < 0) zb_fail_errno(err, errno, help, "cannot write %s", zb_show(path.s));
  else if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
    zb_fail(err, "wait for its end, or give another folder with --ckpt",
            "another run writes its checkpoints to %s", zb_show(dir));
    if (err) err->passing = true;
    close(fd);
    fd = -1;
  } /* a file system without locks has none */
  zb_text_free(&path);
  return fd;
}

/* ---- removal ---- */
static bool empty(const char *path, ZbErr *err) { return zb_remove_folder(path, is_ours, err); }

uint32_t zx_ckpt_clean(const char *dir) {
  DIR *d = opendir(dir);
  uint32_t n = 0;
  for (struct dirent *x; d && (x = readdir(d));) {
    if (!is_tmp(x->d_name)) continue;
    ZbText path = {0};
    zb_text_add(&path, "%s/%s", dir, x->d_name);
    n += empty(path.s, NULL);
    zb_text_free(&path);
  }
  if (d) closedir(d);
  return n;
}

bool zx_ckpt_remove(const char *path, ZbErr *err) {
  if (zb_ends(path, ".tmp")) return empty(path, err);
  ZbText gone = {0};
  zb_text_add(&gone, "%s.old.tmp", path);
  bool ok = rename(path, gone.s) == 0 ||
            zb_fail_errno(err, errno, "remove it by hand", "cannot remove %s", zb_show(path));
  ok = ok && empty(gone.s, err);
  zb_text_free(&gone);
  return ok;
}

/* ---- a name ---- */
static bool sync_folder(const char *path, ZbErr *err) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  bool ok = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL || errno == EROFS); /* some file systems cannot */
  if (!ok) zb_out_failed(path, errno, err);
  if (fd >= 0) close(fd);
  return ok;
}

static bool sync_parent(const char *path, ZbErr *err) {
  const char *slash = strrchr(path, '/');
  ZB_ASSERT(slash);
  char *dir = strndup(path, slash == path ? 1 : (size_t)(slash - path));
  if (!dir) zb_out_of_memory(0);
  bool ok = sync_folder(dir, err);
  free(dir);
  return ok;
}

/* Both exist: they change names at once, or, where a file system cannot, the old one goes away first. */
static bool replace(const char *tmp, const char *path) {
  if (zb_exchange(tmp, path)) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  ZbText old = {0};
  zb_text_add(&old, "%s.old.tmp", path);
  bool ok = rename(path, old.s) == 0 && rename(tmp, path) == 0 && rename(old.s, tmp) == 0;
  zb_text_free(&old);
  return ok;
}

bool zx_ckpt_publish(const char *tmp, const char *path, ZbErr *err) {
  if (!sync_folder(tmp, err)) return false;
  bool old = false, ok = rename(tmp, path) == 0;
  if (!ok && (errno == EEXIST || errno == ENOTEMPTY)) ok = old = replace(tmp, path);
  if (!ok) return zb_fail_errno(err, errno, NULL, "cannot rename %s to %s", zb_show(tmp), zb_show(path));
  if (!sync_parent(path, err)) return false;
  return !old || zx_ckpt_remove(tmp, err);
}

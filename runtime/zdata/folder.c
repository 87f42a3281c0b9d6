/* A folder of files that is there when it is whole: it is filled as NAME.partial, which takes its name at the
 * end. What a killed program left of it is known by the missing lock, and made anew. */
#include "runtime/zdata/zdata.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct ZdFolder {
  ZbArena *a;
  const char *path, *partial;
  int lock;
};

static bool failed(const char *what, const char *path, ZbErr *err) {
  return zb_fail(err, "check the folder and its permissions", "cannot %s %s: %s", what, zb_show(path),
                 strerror(errno));
}

/* ---- what is in it ---- */
/* Only what such a folder may hold is removed; anything else stays, and so does the folder. */
static bool may_go(const char *name) { return zb_ends(name, ".bin") || zb_ends(name, ".tmp"); }

static void clear(ZbArena *a, const char *path) {
  static const char *const inner[] = {"train", "valid"};
  zb_clear_folder(path, may_go, NULL);
  for (int i = 0; i < 2; i++) zb_remove_folder(zb_printf(a, "%s/%s", path, inner[i]), may_go, NULL);
}

static bool is_empty(const char *path) {
  DIR *d = opendir(path);
  bool empty = d != NULL;
  for (struct dirent *e; d && (e = readdir(d));) empty &= !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..");
  if (d) closedir(d);
  return empty;
}

/* ---- the folder ---- */
static bool begin(ZdFolder *f, ZbErr *err) {
  struct stat st;
  if (!*f->path) return zb_fail(err, NULL, "a folder without a name cannot be written");
  if (lstat(f->path, &st) == 0 && !(S_ISDIR(st.st_mode) && is_empty(f->path)))
    return zb_fail(err, "remove it, or choose another name", "%s exists and is not an empty folder",
                   zb_show(f->path));
  if (mkdir(f->partial, 0777) < 0 && errno != EEXIST) return failed("create", f->partial, err);
  f->lock = open(f->partial, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (f->lock < 0) return failed("open", f->partial, err);
  if (flock(f->lock, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
    return close(f->lock), f->lock = -1,
                           zb_fail(err, "wait for it", "another zdata makes %s", zb_show(f->path));
  clear(f->a, f->partial);
  return is_empty(f->partial) || zb_fail(err, "look into it and remove it",
                                         "%s has files that zdata did not make", zb_show(f->partial));
}

static void folder_free(ZdFolder *f) {
  if (f->lock >= 0) close(f->lock);
  zb_arena_free(f->a);
  free(f);
}

ZdFolder *zd_folder_new(const char *path, ZbErr *err) {
  ZdFolder *f = calloc(1, sizeof *f);
  if (!f) zb_out_of_memory(0);
  f->a = zb_arena_new();
  f->lock = -1;
  f->path = zb_strdup(f->a, path);
  f->partial = zb_printf(f->a, "%s.partial", f->path);
  if (begin(f, err)) return f;
  folder_free(f);
  return NULL;
}

const char *zd_folder_path(const ZdFolder *f) { return f->partial; }

const char *zd_folder_add(ZdFolder *f, const char *name, ZbErr *err) {
  const char *path = zb_printf(f->a, "%s/%s", f->partial, name);
  return mkdir(path, 0777) == 0 || (failed("create", path, err), false) ? path : NULL;
}

bool zd_folder_commit(ZdFolder *f, ZbErr *err) {
  bool ok = rename(f->partial, f->path) == 0; /* over an empty one, too */
  if (ok) folder_free(f);
  else {
    zb_fail(err, "it is whole: rename it yourself", "cannot rename %s to %s: %s", zb_show(f->partial),
            zb_show(f->path), strerror(errno));
    folder_free(f);
  }
  return ok;
}

void zd_folder_discard(ZdFolder *f) {
  if (!f) return;
  clear(f->a, f->partial);
  rmdir(f->partial);
  folder_free(f);
}

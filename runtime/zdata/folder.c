/* A folder of files that is there when it is whole: it is filled as a temporary (base/tmp.c), which takes its name
 * at the end. */
#include "runtime/zdata/zdata.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct ZdFolder {
  ZbArena *a;
  const char *path;
  char *tmp;
  int lock;
};

static bool failed(const char *what, const char *path, ZbErr *err) {
  return zb_fail(err, "check the folder and its permissions", "cannot %s %s: %s", what, zb_show(path),
                 strerror(errno));
}

/* ---- what is in it ---- */
/* Only what such a folder may hold is removed; anything else stays, and so does the folder. */
static bool may_go(const char *name) { return zb_ends(name, ".bin") || zb_ends(name, ".tmp"); }

static void clear(const char *path) {
  static const char *const inner[] = {"train", "valid"};
  zb_clear_folder(path, may_go, NULL);
  for (int i = 0; i < 2; i++) {
    ZbText t = {0};
    zb_text_add(&t, "%s/%s", path, inner[i]);
    zb_remove_folder(t.s, may_go, NULL);
    zb_text_free(&t);
  }
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
  if (zb_tmp_remove_left(f->path, clear))
    return zb_fail(err, "wait for it", "another zdata makes %s", zb_show(f->path));
  f->lock = zb_tmp_make(f->path, true, 0777, &f->tmp);
  return f->lock >= 0 || failed("create", f->path, err);
}

static void folder_free(ZdFolder *f) {
  if (f->lock >= 0) close(f->lock);
  zb_arena_free(f->a);
  free(f->tmp);
  free(f);
}

ZdFolder *zd_folder_new(const char *path, ZbErr *err) {
  ZdFolder *f = calloc(1, sizeof *f);
  if (!f) zb_out_of_memory(0);
  f->a = zb_arena_new();
  f->lock = -1;
  f->path = zb_strdup(f->a, path);
  if (begin(f, err)) return f;
  folder_free(f);
  return NULL;
}

const char *zd_folder_path(const ZdFolder *f) { return f->tmp; }

const char *zd_folder_add(ZdFolder *f, const char *name, ZbErr *err) {
  const char *path = zb_printf(f->a, "%s/%s", f->tmp, name);
  return mkdir(path, 0777) == 0 || (failed("create", path, err), false) ? path : NULL;
}

bool zd_folder_commit(ZdFolder *f, ZbErr *err) {
  bool ok = rename(f->tmp, f->path) == 0; /* over an empty one, too */
  if (ok) folder_free(f);
  else {
    zb_fail(err, "it is whole: rename it yourself", "cannot rename %s to %s: %s", zb_show(f->tmp),
            zb_show(f->path), strerror(errno));
    folder_free(f);
  }
  return ok;
}

void zd_folder_discard(ZdFolder *f) {
  if (!f) return;
  clear(f->tmp);
  rmdir(f->tmp);
  folder_free(f);
}

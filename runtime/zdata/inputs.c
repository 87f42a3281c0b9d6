/* Which files a command reads: those that are named, and what folders hold. */
#include "runtime/zdata/zdata.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LOOK = 8 << 10 /* bytes looked at to tell text from the rest */ };

/* No NUL at the beginning is text, as git has it. */
static bool is_text(const char *path, bool *text, ZbErr *err) {
  char head[LOOK];
  size_t n;
  ZdBytes *b = zd_bytes_open(path, err);
  bool ok = b && zd_bytes_read(b, head, sizeof head, &n, err);
  zd_bytes_close(b);
  *text = ok && !memchr(head, 0, n);
  return ok;
}

static void take(ZdFiles *fs, const char *path, const struct stat *st) {
  ZB_PUSH(fs->a, fs->path, fs->n, path);
  if (S_ISREG(st->st_mode)) fs->bytes += (uint64_t)st->st_size;
}

static int not_hidden(const struct dirent *e) { return e->d_name[0] != '.'; }
static int by_name(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

static bool walk(ZdFiles *fs, const char *folder, ZbErr *err);

static bool take_path(ZdFiles *fs, const char *path, ZbErr *err) {
  struct stat st;
  bool text = false;
  if (lstat(path, &st) < 0)
    return zb_fail(err, NULL, "cannot look at %s: %s", zb_show(path), strerror(errno));
  if (S_ISDIR(st.st_mode)) return walk(fs, path, err);
  if (S_ISREG(st.st_mode) && !is_text(path, &text, err)) return false;
  if (text) take(fs, path, &st);
  else fs->skipped++;
  return true;
}

static bool walk(ZdFiles *fs, const char *folder, ZbErr *err) {
  struct dirent **list;
  int n = scandir(folder, &list, not_hidden, by_name);
  if (n < 0)
    return zb_fail(err, "check its permissions", "cannot open the folder %s: %s", zb_show(folder),
                   strerror(errno));
  bool ok = true;
  for (int i = 0; i < n; i++) {
    ok = ok && take_path(fs, zb_printf(fs->a, "%s/%s", folder, list[i]->d_name), err);
    free(list[i]);
  }
  free(list);
  return ok;
}

/* The named files, and what folders hold where `folders` is true. */
static bool collect_all(ZdFiles *fs, const ZdOptions *o, bool folders, ZbErr *err) {
  for (int i = 0; i < o->nfile; i++) {
    struct stat st;
    if (stat(o->file[i], &st) < 0)
      return zb_fail(err, "check the path", "cannot open %s: %s", zb_show(o->file[i]), strerror(errno));
    if (!S_ISDIR(st.st_mode) && !zd_content_fits(o->file[i], folders, o->chat, err)) return false;
    if (!S_ISDIR(st.st_mode)) take(fs, o->file[i], &st);
    else if (!folders) return zb_fail(err, "name the files", "%s is a folder", zb_show(o->file[i]));
    else if (!walk(fs, o->file[i], err)) return false;
  }
  return true;
}

bool zd_files(ZdFiles *fs, const ZdOptions *o, bool folders, ZbErr *err) {
  if (!collect_all(fs, o, folders, err)) return false;
  for (size_t i = 0; i < fs->n; i++)
    if (!zb_spares("-o", o->out, fs->path[i], err)) return false;
  return true;
}

/* Folders that are made, emptied of what was made in them, and change names. See base.h. */
#define _GNU_SOURCE /* renameat2 */
#include "base/base.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

bool zb_make_folders(const char *path, const char *what, const char *help, ZbErr *err) {
  if (!*path) return zb_fail(err, NULL, "the %s folder has no name", what);
  char *part = strdup(path);
  if (!part) zb_out_of_memory(0);
  bool ok = true;
  for (char *p = part + 1; ok; p++) {
    if (*p != '/' && *p) continue;
    char c = *p;
    *p = 0;
    if (mkdir(part, 0777) < 0 && errno != EEXIST)
      ok = zb_fail_errno(err, errno, help, "cannot make the %s folder %s", what, zb_show(part));
    *p = c;
    if (!c) break;
  }
  free(part);
  return ok;
}

static bool cannot_remove(const char *path, ZbErr *err) {
  return zb_fail_errno(err, errno, "remove it by hand", "cannot remove %s", zb_show(path));
}

bool zb_clear_folder(const char *path, bool (*ours)(const char *name), ZbErr *err) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), code = 0;
  DIR *d = fd < 0 ? NULL : fdopendir(fd);
  if (!d) code = errno;
  if (!d && fd >= 0) close(fd);
  for (struct dirent *x; d && (x = readdir(d));)
    if (ours(x->d_name) && unlinkat(dirfd(d), x->d_name, 0) < 0 && errno != ENOENT) code = errno;
  if (d) closedir(d);
  errno = code;
  return !code || cannot_remove(path, err);
}

bool zb_remove_folder(const char *path, bool (*ours)(const char *name), ZbErr *err) {
  if (!zb_clear_folder(path, ours, err)) return false;
  return rmdir(path) == 0 || errno == ENOTEMPTY || errno == EEXIST || cannot_remove(path, err);
}

bool zb_exchange(const char *a, const char *b) {
  return renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) == 0;
}

const char *zb_file_of(ZbArena *a, const char *path, const char *name) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? zb_printf(a, "%s/%s", path, name) : path;
}

const char *zb_folder_of(ZbArena *a, const char *path) {
  struct stat st;
  if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return path;
  const char *slash = strrchr(path, '/');
  return slash ? zb_strndup(a, path, (size_t)(slash - path) + !(slash - path)) : ".";
}

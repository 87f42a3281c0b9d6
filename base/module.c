/* Modules: parts of programs in files of their own, for what is large and seldom wanted. */
#include "base/installed.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

ZB_REPLACEABLE bool zb_installed(void) { return false; }

/* Beside the program in a build folder. For one that is installed: in lib/ beside its folder, wherever that was
 * moved to, or else where it was installed. */
bool zb_module_path(const char *file, char *path, size_t size) {
  ssize_t n = readlink("/proc/self/exe", path, size - 1);
  path[n > 0 ? n : 0] = 0;
  char *slash = strrchr(path, '/');
  size_t dir = slash ? (size_t)(slash + 1 - path) : 0;
  snprintf(path + dir, size - dir, "%s%s", zb_installed() ? "../lib/zug/" : "", file);
  if (zb_installed() && access(path, R_OK) != 0) snprintf(path, size, "%s/%s", ZUG_MODULES, file);
  return access(path, R_OK) == 0;
}

void *zb_module(const char *file, bool all, ZbErr *err) {
  char path[PATH_MAX];
  zb_module_path(file, path, sizeof path);
  void *module = dlopen(path, (all ? RTLD_NOW : RTLD_LAZY) | RTLD_LOCAL);
  if (!module)
    zb_fail(err, "configure --with-cuda=DIR, build and install again", "cannot load %s: %s", file, dlerror());
  return module;
}

void *zb_symbol(void *module, const char *name, ZbErr *err) {
  void *p = dlsym(module, name);
  if (!p) zb_fail(err, "build and install again", "a module of another version: it has no %s", name);
  return p;
}

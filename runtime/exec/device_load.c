/* Devices whose libraries are large are in modules of their own, loaded when such a device is there: ranks on CPUs start
 * without them (CUDA's take 80 ms and 250 MB of each). A module uses what the program has, and is loaded with all its
 * symbols bound. */
#include "runtime/exec/device_load.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

/* Beside the program, as in a build folder, or else where it was installed. */
static void find(const char *module, char *path, size_t size) {
  ssize_t n = readlink("/proc/self/exe", path, size - 1);
  path[n > 0 ? n : 0] = 0;
  char *slash = strrchr(path, '/');
  size_t dir = slash ? (size_t)(slash + 1 - path) : 0;
  snprintf(path + dir, size - dir, "%s", module);
  if (!dir || access(path, R_OK)) snprintf(path, size, "%s/%s", ZUG_MODULES, module);
}

bool zx_device_driver(const ZxDeviceTable *d, ZbErr *err) {
  if (dlopen(d->driver, RTLD_LAZY)) return true; /* and stays: the module wants it */
  return zb_fail(err, "install the GPU's driver, or use --device cpu", "there is no %s device here: its driver cannot be loaded: %s",
                 d->label, dlerror());
}

const ZxDeviceTable *zx_device_load(const ZxDeviceTable *d, ZbErr *err) {
  char path[PATH_MAX], symbol[64];
  find(d->module, path, sizeof path);
  snprintf(symbol, sizeof symbol, "zx_device_%s", d->name);
  void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const ZxDeviceTable *found = module ? dlsym(module, symbol) : NULL;
  if (!found) zb_fail(err, "build and install again, or use --device cpu", "cannot load the %s device: %s", d->label, dlerror());
  return found;
}

/* Devices whose libraries are large are in modules of their own, loaded when such a device is there: ranks on CPUs start
 * without them (CUDA's take 80 ms and 250 MB of each). A module uses what the program has, and is loaded with all its
 * symbols bound. */
#include "runtime/exec/device/load.h"

#include <dlfcn.h>

bool zx_device_driver(const ZxDeviceTable *d, ZbErr *err) {
  if (dlopen(d->driver, RTLD_LAZY)) return true; /* and stays: the module wants it */
  return zb_fail(err, "install the GPU's driver, or use --device cpu", "there is no %s device here: its driver cannot be loaded: %s",
                 d->label, dlerror());
}

const ZxDeviceTable *zx_device_load(const ZxDeviceTable *d, ZbErr *err) {
  char symbol[64];
  snprintf(symbol, sizeof symbol, "zx_device_%s", d->name);
  void *module = zb_module(d->module, true, err);
  return module ? zb_symbol(module, symbol, err) : NULL;
}

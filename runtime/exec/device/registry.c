/* The devices of zrun, and choosing one. Those whose libraries are large are in modules of their own, loaded
 * when such a device is there: ranks on CPUs start without them (CUDA's take 80 ms and 250 MB of each). A
 * module uses what the program has, and is loaded with all its symbols bound. */
#include "kernels/devices.h"
#include "runtime/exec/device/device.h"

#include <dlfcn.h>
#include <string.h>

#ifdef HAVE_CUDA
static const ZxDeviceTable cuda = {.name = "cuda"};
#endif

ZB_REPLACEABLE const ZxDeviceTable *const zx_devices[] = {
#ifdef HAVE_CUDA
    &cuda,
#endif
    &zx_device_cpu, NULL};

/* ---- devices in modules ---- */
static bool in_module(const ZxDeviceTable *d) { return !d->run; }

/* Whether the driver is on this machine; the module itself is not needed for that. */
static bool has_driver(const ZkDevice *d, ZbErr *err) {
  if (dlopen(d->driver, RTLD_LAZY)) return true; /* and stays: the module wants it */
  return zb_fail(err, "install the GPU's driver, or use --device cpu",
                 "there is no %s device here: its driver cannot be loaded: %s", d->label, dlerror());
}

/* The device itself, out of its module, which stays loaded. */
static const ZxDeviceTable *load_module(const ZkDevice *d, ZbErr *err) {
  char symbol[64];
  snprintf(symbol, sizeof symbol, "zx_device_%s", d->name);
  void *module = zb_module(d->module, true, err);
  return module ? zb_symbol(module, symbol, err) : NULL;
}

/* ---- choosing ---- */
static const ZxDeviceTable *open_table(const ZxDeviceTable *d, ZbErr *err) {
  if (in_module(d) && !(d = load_module(zk_device(d->name), err))) return NULL;
  return !d->available || d->available(err) ? d : NULL;
}

const ZxDeviceTable *zx_device_to_plan(const char *name, ZbErr *err) {
  for (int i = 0; zx_devices[i]; i++)
    if (!strcmp(name, zx_devices[i]->name))
      return in_module(zx_devices[i]) ? load_module(zk_device(name), err) : zx_devices[i];
  return zx_device(name, err); /* `auto`; or there is none */
}

const ZxDeviceTable *zx_device(const char *name, ZbErr *err) {
  bool any = !strcmp(name, "auto");
  for (int i = 0; zx_devices[i]; i++) {
    const ZxDeviceTable *d = zx_devices[i], *found = NULL;
    if (!any && strcmp(name, d->name)) continue;
    if (!in_module(d) || has_driver(zk_device(d->name), any ? NULL : err)) found = open_table(d, err);
    if (found || !any) return found;
  }
  char help[128];
  snprintf(help, sizeof help, "configure --with-%s=DIR, and build again; or --device cpu", name);
  const ZkDevice *d = any ? NULL : zk_device(name);
  if (d) zb_fail(err, help, "this build has no %s", d->label);
  return NULL;
}

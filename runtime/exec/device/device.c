/* Choosing a device. The list is in a file of its own, device/list.c, so that a test program can have another. */
#include "runtime/exec/device/load.h"

#include <string.h>

static const ZxDeviceTable *open_table(const ZxDeviceTable *d, ZbErr *err) {
  if (d->module && !(d = zx_device_load(d, err))) return NULL;
  return !d->there || d->there(err) ? d : NULL;
}

const ZxDeviceTable *zx_device(const char *name, ZbErr *err) {
  bool any = !strcmp(name, "auto");
  for (int i = 0; zx_devices[i]; i++) {
    const ZxDeviceTable *d = zx_devices[i], *found = NULL;
    if (!any && strcmp(name, d->name)) continue;
    if (!d->module || zx_device_driver(d, any ? NULL : err)) found = open_table(d, err);
    if (found || !any) return found;
  }
  if (!any && !strcmp(name, "cuda"))
    zb_fail(err, "configure --with-cuda=DIR, and build again; or --device cpu", "this build has no CUDA");
  return NULL;
}

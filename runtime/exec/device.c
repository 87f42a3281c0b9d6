/* Choosing a device. The list is in a file of its own, device_list.c, so that a test program can have another. */
#include "runtime/exec/exec.h"

#include <string.h>

const ZxDeviceTable *zx_device(const char *name, ZbErr *err) {
  bool any = !strcmp(name, "auto");
  for (int i = 0; zx_devices[i]; i++) {
    const ZxDeviceTable *d = zx_devices[i];
    if (!any && strcmp(name, d->name)) continue;
    if (!d->there || d->there(err)) return d;
    if (!any) return NULL;
  }
  if (!any && !strcmp(name, "cuda"))
    zb_fail(err, "configure --with-cuda=DIR, and build again; or --device cpu", "this build has no CUDA");
  return NULL;
}

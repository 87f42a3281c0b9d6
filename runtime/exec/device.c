/* Choosing a device. The list is in a file of its own, device_list.c, so that a test program can have another. */
#include "runtime/exec/exec.h"

#include <string.h>

const ZxDeviceTable *zx_device(const char *name) {
  if (!strcmp(name, "auto")) return zx_devices[0];
  for (int i = 0; zx_devices[i]; i++)
    if (!strcmp(name, zx_devices[i]->name)) return zx_devices[i];
  return NULL;
}

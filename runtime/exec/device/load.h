/* Devices in modules: private to runtime/exec. */
#ifndef ZUG_EXEC_DEVICE_LOAD_H
#define ZUG_EXEC_DEVICE_LOAD_H

#include "runtime/exec/exec.h"

/* Whether the driver of a device in a module is on this machine, for which the module itself is not needed. */
bool zx_device_driver(const ZxDeviceTable *d, ZbErr *err);
/* The device itself, out of its module; NULL with a message if that cannot be loaded. Stays loaded. */
const ZxDeviceTable *zx_device_load(const ZxDeviceTable *d, ZbErr *err);

#endif

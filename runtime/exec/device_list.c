/* The devices that zrun has, the one that `auto` means first. */
#include "runtime/exec/exec.h"

const ZxDeviceTable *const zx_devices[] = {&zx_device_cpu, NULL};

/* Devices of test programs that have CUDA's in themselves, not in a module. */
#include "runtime/exec/device/device.h"

const ZxDeviceTable *const zx_devices[] = {&zx_device_cuda, &zx_device_cpu, NULL};

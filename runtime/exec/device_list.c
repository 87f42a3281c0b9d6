/* The devices that zrun has, the best first: `auto` means the first one that is there. */
#include "runtime/exec/exec.h"

const ZxDeviceTable *const zx_devices[] = {
#ifdef HAVE_CUDA
    &zx_device_cuda,
#endif
    &zx_device_cpu, NULL};

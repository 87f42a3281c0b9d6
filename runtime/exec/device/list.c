/* The devices that zrun has, the best first: `auto` means the first one that is there. */
#include "runtime/exec/exec.h"

#ifdef HAVE_CUDA
static const ZxDeviceTable cuda = {.name = "cuda", .label = "CUDA", .module = "zug-cuda.so", .driver = "libcuda.so.1"};
#endif

const ZxDeviceTable *const zx_devices[] = {
#ifdef HAVE_CUDA
    &cuda,
#endif
    &zx_device_cpu, NULL};

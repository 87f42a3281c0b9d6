/* A libcuda.so.1 for machines without a driver: enough for cuDNN to make plans for a device that is described
 * to it (it compiles kernels, and wants to load them). Whatever needs a device says that there is none. */
enum { OK = 0, NO_DEVICE = 100 };

static int thing[16]; /* what handles point to */

#define SAYS(status, name)                                                                                   \
  int name(void);                                                                                            \
  int name(void) { return status; }
#define GIVES(name)                                                                                          \
  int name(void **to);                                                                                       \
  int name(void **to) { return *to = thing, OK; }

SAYS(OK, cuInit)
SAYS(OK, cuLibraryUnload)
SAYS(OK, cuKernelSetAttribute)
SAYS(OK, cuFuncSetAttribute)
GIVES(cuLibraryLoadData)
GIVES(cuLibraryGetKernel)
GIVES(cuKernelGetFunction)
GIVES(cuLibraryGetModule)
GIVES(cuModuleGetFunction)

SAYS(NO_DEVICE, cuCtxGetCurrent)
SAYS(NO_DEVICE, cuCtxGetDevice)
SAYS(NO_DEVICE, cuCtxGetLimit)
SAYS(NO_DEVICE, cuCtxPopCurrent)
SAYS(NO_DEVICE, cuCtxPushCurrent)
SAYS(NO_DEVICE, cuDeviceGet)
SAYS(NO_DEVICE, cuDeviceGetAttribute)
SAYS(NO_DEVICE, cuDevicePrimaryCtxRelease)
SAYS(NO_DEVICE, cuDevicePrimaryCtxReset)
SAYS(NO_DEVICE, cuDevicePrimaryCtxRetain)
SAYS(NO_DEVICE, cuGetExportTable)
SAYS(NO_DEVICE, cuLaunchCooperativeKernel)
SAYS(NO_DEVICE, cuLaunchKernel)
SAYS(NO_DEVICE, cuLaunchKernelEx)
SAYS(NO_DEVICE, cuLibraryLoadFromFile)
SAYS(NO_DEVICE, cuLinkAddData)
SAYS(NO_DEVICE, cuLinkAddData_v2)
SAYS(NO_DEVICE, cuLinkAddFile_v2)
SAYS(NO_DEVICE, cuLinkComplete)
SAYS(NO_DEVICE, cuLinkCreate)
SAYS(NO_DEVICE, cuLinkDestroy)
SAYS(NO_DEVICE, cuMemcpyDtoH_v2)
SAYS(NO_DEVICE, cuModuleGetGlobal_v2)
SAYS(NO_DEVICE, cuModuleLoadData)
SAYS(NO_DEVICE, cuModuleLoadDataEx)
SAYS(NO_DEVICE, cuModuleLoadFatBinary)
SAYS(NO_DEVICE, cuModuleUnload)
SAYS(NO_DEVICE, cuOccupancyMaxActiveBlocksPerMultiprocessor)
SAYS(NO_DEVICE, cuOccupancyMaxPotentialClusterSize)
SAYS(NO_DEVICE, cuStreamGetCtx)
SAYS(NO_DEVICE, cuStreamSynchronize)
SAYS(NO_DEVICE, cuTensorMapEncodeTiled)

int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version) { return *version = 13000, OK; }
int cuDeviceGetCount(int *n);
int cuDeviceGetCount(int *n) { return *n = 0, OK; }
int cuKernelGetAttribute(int *value);
int cuKernelGetAttribute(int *value) { return *value = 0, OK; }
int cuFuncGetAttribute(int *value);
int cuFuncGetAttribute(int *value) { return *value = 0, OK; }
int cuGetErrorName(int error, const char **text);
int cuGetErrorName(int error, const char **text) { return (void)error, *text = "NO_DEVICE", OK; }
int cuGetErrorString(int error, const char **text);
int cuGetErrorString(int error, const char **text) { return (void)error, *text = "there is no device", OK; }

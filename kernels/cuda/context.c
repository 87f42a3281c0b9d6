/* A GPU: its handles and workspaces. The emulator has its own context, in emu.cc. */
#include "kernels/cuda/pointwise.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>
#ifdef HAVE_CUBLASLT
#include <cublasLt.h>
#endif
#ifdef HAVE_CUDNN
#include <cudnn.h>
#endif

#define WORKSPACE ((size_t)32 << 20) /* what cuBLASLt's best kernels on Hopper ask for */

static const char *remedy(cudaError_t status) {
  switch (status) {
  case cudaErrorMemoryAllocation:
    return "its memory is taken by others (see nvidia-smi), or too many ranks share it";
  case cudaErrorDevicesUnavailable:
    return "another process has it for itself: let ranks share it (nvidia-smi -c DEFAULT, or MPS), or give "
           "each one of its own";
  case cudaErrorInsufficientDriver:
  case cudaErrorSystemDriverMismatch:
    return "install a driver for this CUDA, or build with the one that the driver has";
  default: return "";
  }
}

/* The first call that needs a context is the one that fails where a GPU cannot be had. */
static bool check_status(const ZkCuda *cu, cudaError_t status, const char *what, ZbErr *err) {
  if (status == cudaSuccess) return true;
  return zb_fail(err, remedy(status), "GPU %d (%s): %s: %s", cu->device, *cu->name ? cu->name : "unknown",
                 what, cudaGetErrorString(status));
}

/* FLOPs of a multiprocessor and cycle: in bf16 on tensor cores, and of its other units. At most: cards for
 * desktops may do half of the former. */
static void rates_of(ZkCuda *cu, double cycles, double bytes) {
  double bf16 = cu->arch < 86    ? 2048
                : cu->arch < 90  ? 1024
                : cu->arch < 100 ? 4096
                : cu->arch < 120 ? 8192
                                 : 1024;
  double f32 = cu->arch < 86 ? 128 : 256, all = cu->sms * cycles;
  cu->rates = (ZkRates){all * bf16, all * bf16 / 2, all * f32, bytes, 25e9 /* PCIe 4, 16 lanes */, cu->sms};
}

static void look_at_rates(ZkCuda *cu) {
  int clock = 0, memory = 0, width = 0, l2 = 0; /* kHz, kHz, bits */
  cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, cu->device);
  cudaDeviceGetAttribute(&memory, cudaDevAttrMemoryClockRate, cu->device);
  cudaDeviceGetAttribute(&width, cudaDevAttrGlobalMemoryBusWidth, cu->device);
  cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, cu->device);
  cu->l2 = l2 > 0 ? (size_t)l2 : 0;
  rates_of(cu, 1e3 * clock, 2e3 * memory * width / 8);
  (void)cudaGetLastError();
}

static bool look_at_device(ZkCuda *cu, ZbErr *err) {
  struct cudaDeviceProp p;
  int n = 0;
  cudaError_t status = cudaGetDeviceCount(&n);
  if (status != cudaSuccess || n == 0)
    return zb_fail(err, "use the CPU, or look at what `nvidia-smi` says", "there is no CUDA device: %s",
                   status == cudaSuccess ? "none found" : cudaGetErrorString(status));
  if (cu->device < 0 || cu->device >= n)
    return zb_fail(err, "", "there is no CUDA device %d: there are %d", cu->device, n);
  if (!check_status(cu, cudaGetDeviceProperties(&p, cu->device), "cudaGetDeviceProperties", err))
    return false;
  cu->sms = p.multiProcessorCount;
  cu->most_blocks = 16 * cu->sms;
  cu->arch = 10 * p.major + p.minor;
  look_at_rates(cu);
  snprintf(cu->name, sizeof cu->name, "%s", p.name);
  if (cu->arch < 80)
    return zb_fail(err, "", "%s is of generation %d.%d: 8.0 is the first with bf16", cu->name, p.major,
                   p.minor);
  return true;
}

static bool make_handles(ZkCuda *cu, ZbErr *err) {
  if (!check_status(cu, cudaSetDevice(cu->device), "cudaSetDevice", err) ||
      !check_status(cu, cudaStreamCreateWithFlags(&cu->own_stream, cudaStreamNonBlocking), "cudaStreamCreate",
                    err) ||
      !check_status(cu, cudaMalloc(&cu->workspace, WORKSPACE), "a workspace of 32 MiB", err) ||
      !check_status(cu, cudaMalloc((void **)&cu->parts, ZK_CUDA_PARTS * sizeof(double)), "a workspace",
                    err) ||
      !check_status(cu, cudaMalloc((void **)&cu->arrived, ZK_CUDA_ARRIVALS * sizeof(unsigned)), "a workspace",
                    err) ||
      !check_status(cu, cudaMemset(cu->arrived, 0, ZK_CUDA_ARRIVALS * sizeof(unsigned)), "a workspace", err))
    return false;
  cu->stream = cu->own_stream;
  cu->workspace_bytes = WORKSPACE;
#ifdef HAVE_CUBLASLT
  cublasStatus_t blas = cublasLtCreate(&cu->blas);
  if (blas != CUBLAS_STATUS_SUCCESS)
    return zb_fail(err, "", "cublasLtCreate: %s", cublasLtGetStatusString(blas));
#endif
#ifdef HAVE_CUDNN
  /* Its own libraries, which it opens now, may not be there or not fit. */
  cudnnStatus_t dnn = cudnnCreate(&cu->dnn);
  if (dnn != CUDNN_STATUS_SUCCESS) {
    cu->dnn = NULL;
    snprintf(cu->no_dnn, sizeof cu->no_dnn, "cuDNN cannot start: %s", cudnnGetErrorString(dnn));
    (void)cudaGetLastError();
  }
#endif
  return true;
}

ZkCuda *zk_cuda_new(int device, ZbErr *err) {
  ZkCuda *cu = calloc(1, sizeof *cu);
  if (!cu) {
    zb_fail(err, "", "no memory for a CUDA context");
    return NULL;
  }
  cu->device = device;
  if (look_at_device(cu, err) && make_handles(cu, err)) return cu;
  zk_cuda_free(cu);
  return NULL;
}

ZkCuda *zk_cuda_pretend(void) {
  ZkCuda *cu = calloc(1, sizeof *cu);
  if (!cu) return NULL;
  *cu = (ZkCuda){
      .pretend = true, .name = "an H100", .arch = 90, .sms = 132, .most_blocks = 16 * 132, .l2 = 50 << 20};
  rates_of(cu, 1.83e9, 3.35e12);
  cu->rates.link = 55e9;
  return cu;
}

void zk_cuda_free(ZkCuda *cu) {
  if (!cu) return;
  zk_cuda_forget(cu);
  zk_cuda_program_forget(cu);
#ifdef HAVE_CUDNN
  if (cu->dnn) cudnnDestroy(cu->dnn);
#endif
#ifdef HAVE_CUBLASLT
  if (cu->blas) cublasLtDestroy(cu->blas);
#endif
  cudaFree(cu->arrived);
  cudaFree(cu->parts);
  cudaFree(cu->workspace);
  if (cu->own_stream) cudaStreamDestroy(cu->own_stream);
  free(cu);
}

const char *zk_cuda_error(ZkCuda *cu) {
  cudaError_t status = cu->failed ? cudaSuccess : cudaPeekAtLastError();
  if (status != cudaSuccess) zk_cuda_fail(cu, NULL, "an earlier kernel", cudaGetErrorString(status));
  return cu->failed ? cu->error : NULL;
}

const char *zk_cuda_describe(ZkCuda *cu) {
  int n = snprintf(cu->text, sizeof cu->text, "%s, %d SMs, CUDA %d.%d", cu->name, cu->sms,
                   CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
#ifdef HAVE_CUDNN
  size_t v = cudnnGetVersion();
  if (cu->dnn)
    snprintf(cu->text + n, sizeof cu->text - (size_t)n, ", cuDNN %zu.%zu", v / 10000, v % 10000 / 100);
#endif
  (void)n;
  return cu->text;
}

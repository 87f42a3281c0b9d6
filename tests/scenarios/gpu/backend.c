/* The CUDA kernels as a back end, on the GPU. Both sides see pinned memory of the host's, at one address: managed
 * memory would have the driver move pages, which is slow in virtual machines, or not to be had. One context for all
 * calls of a test: every test is a process. */
#include <cuda_runtime_api.h>
#include <unistd.h>

#include "kernels/cuda/cuda.h"
#include "tests/scenarios/gpu/backend.h"
#include "tests/unit/kernels/conform.h"

static bool lacks(int op) { return zk_cuda_kernel(op) == NULL; }

ZkCuda *gpu_context(void) {
  static ZkCuda *cu;
  static pid_t owner; /* Criterion forks */
  if (cu && owner == getpid()) return cu;
  ZbErr err = {0};
  cu = zk_cuda_new(0, &err);
  cr_assert(cu != NULL, "%s", err.text);
  owner = getpid();
  return cu;
}

/* ---- memory: to pin some takes longer than a small kernel, so blocks are kept for others of their size. Of no other:
 * compute-sanitizer knows where each ends ---- */
static struct {
  void *p;
  size_t bytes;
  bool taken;
} block[4096];
#define BLOCKS ((int)(sizeof block / sizeof *block))
static int nblocks;

static void drop_unused(void) {
  int left = 0;
  for (int i = 0; i < nblocks; i++)
    if (block[i].taken) block[left++] = block[i];
    else cudaFreeHost(block[i].p);
  nblocks = left;
}

static void *pin(size_t bytes) {
  void *p = NULL, *seen = NULL;
  cudaError_t e = cudaHostAlloc(&p, bytes, cudaHostAllocMapped);
  if (e == cudaSuccess) e = cudaHostGetDevicePointer(&seen, p, 0);
  cr_assert(e == cudaSuccess, "%zu bytes of pinned memory: %s", bytes, cudaGetErrorString(e));
  cr_assert(
      seen == p,
      "this GPU sees the host's memory at other addresses (no unified addressing), and cases need the same");
  return p;
}

static void *get(size_t bytes) {
  for (int i = 0; i < nblocks; i++)
    if (!block[i].taken && block[i].bytes == bytes) return block[i].taken = true, block[i].p;
  gpu_context();
  if (nblocks == BLOCKS) drop_unused();
  cr_assert(nblocks < BLOCKS, "a test with more than %d buffers at once", BLOCKS);
  block[nblocks].p = pin(bytes), block[nblocks].bytes = bytes, block[nblocks].taken = true;
  return block[nblocks++].p;
}

static void give_back(void *p) {
  for (int i = 0; i < nblocks; i++)
    if (block[i].p == p) block[i].taken = false;
}

/* ---- calls ---- */
static int open_device(ZkEnv *env, int way) {
  (void)way;
  env->device = gpu_context();
  return 1;
}

static void close_device(ZkEnv *env) {
  ZkCuda *cu = env->device;
  cudaError_t e = cudaStreamSynchronize(cu->stream);
  const char *error = zk_cuda_error(cu);
  cr_assert(e == cudaSuccess && !error, "%s", error ? error : cudaGetErrorString(e));
}

const Backend backend = {.name = "cuda",
                         .kernel = zk_cuda_kernel,
                         .scratch = zk_cuda_scratch,
                         .lacks = lacks,
                         .ways = 1,
                         .open = open_device,
                         .close = close_device,
                         .get = get,
                         .give_back = give_back,
                         .prompts = true,
                         .odd = true};

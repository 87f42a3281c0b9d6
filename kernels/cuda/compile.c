/* A CUDA program's text to machine code, by NVRTC. Needs no device. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/chain.h"

#ifdef HAVE_NVRTC
#include <nvrtc.h>

static bool complain(nvrtcProgram p, nvrtcResult r, ZbErr *err) {
  char log[768] = "";
  size_t n = 0;
  char *all = NULL;
  if (p && nvrtcGetProgramLogSize(p, &n) == NVRTC_SUCCESS && n > 1 && (all = malloc(n)) &&
      nvrtcGetProgramLog(p, all) == NVRTC_SUCCESS)
    snprintf(log, sizeof log, ": %.700s", all);
  free(all);
  return zb_fail(err, "", "NVRTC: %s%s", nvrtcGetErrorString(r), log);
}

bool zk_cuda_compile(const char *text, int arch, void **cubin, size_t *bytes, ZbErr *err) {
  char target[40];
  const char *options[] = {target, "--std=c++17"};
  nvrtcProgram p = NULL;
  *cubin = NULL;
  snprintf(target, sizeof target, "--gpu-architecture=sm_%d", arch);
  nvrtcResult r = nvrtcCreateProgram(&p, text, ZK_CHAIN_NAME ".cu", 0, NULL, NULL);
  if (r == NVRTC_SUCCESS) r = nvrtcCompileProgram(p, (int)(sizeof options / sizeof *options), options);
  if (r == NVRTC_SUCCESS) r = nvrtcGetCUBINSize(p, bytes);
  if (r == NVRTC_SUCCESS && !(*cubin = malloc(*bytes))) r = NVRTC_ERROR_OUT_OF_MEMORY;
  if (r == NVRTC_SUCCESS) r = nvrtcGetCUBIN(p, *cubin);
  bool ok = r == NVRTC_SUCCESS || complain(p, r, err);
  if (!ok) free(*cubin);
  if (p) nvrtcDestroyProgram(&p);
  return ok;
}
#endif

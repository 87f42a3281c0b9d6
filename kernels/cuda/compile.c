/* A CUDA program's text to machine code, by NVRTC. Needs no device.
 *
 * For a generation that this NVRTC knows it is machine code, which drivers of the same major version load
 * whatever their minor one. A GPU that came later has a driver that came later: it gets PTX for the newest
 * generation below its own. */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/pointwise.h"

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

/* NVRTC opens its library of built-in functions by name, for which the path that we were linked with does not
 * count; one that is there already will do. It lies beside NVRTC. (nlesc-recruit/cudawrappers, pull request
 * 354.) */
static void open_builtins(void) {
  static bool tried;
  Dl_info nvrtc;
  char path[4096];
  int major, minor;
  if (tried || nvrtcVersion(&major, &minor) != NVRTC_SUCCESS ||
      !dladdr((void *)(uintptr_t)nvrtcVersion, &nvrtc))
    return;
  tried = true;
  const char *end = nvrtc.dli_fname ? strrchr(nvrtc.dli_fname, '/') : NULL;
  if (!end) return;
  snprintf(path, sizeof path, "%.*s/libnvrtc-builtins.so.%d.%d", (int)(end - nvrtc.dli_fname),
           nvrtc.dli_fname, major, minor);
  (void)dlopen(path, RTLD_NOW | RTLD_LOCAL); /* if it is not there either, NVRTC will say so */
}

/* The newest that NVRTC compiles for, up to `arch`; 0 if there is none. */
static int newest_known(int arch) {
  int known[64], n = 0, best = 0;
  if (nvrtcGetNumSupportedArchs(&n) != NVRTC_SUCCESS || n < 1 || n > 64 ||
      nvrtcGetSupportedArchs(known) != NVRTC_SUCCESS)
    return arch; /* it will say what is wrong */
  for (int i = 0; i < n; i++)
    if (known[i] <= arch && known[i] > best) best = known[i];
  return best;
}

static nvrtcResult take_code(nvrtcProgram p, bool ptx, void **code, size_t *bytes) {
  nvrtcResult r = ptx ? nvrtcGetPTXSize(p, bytes) : nvrtcGetCUBINSize(p, bytes);
  if (r == NVRTC_SUCCESS && !(*code = malloc(*bytes))) r = NVRTC_ERROR_OUT_OF_MEMORY;
  if (r == NVRTC_SUCCESS) r = ptx ? nvrtcGetPTX(p, *code) : nvrtcGetCUBIN(p, *code);
  return r;
}

bool zk_cuda_compile(const char *text, int arch, void **code, size_t *bytes, ZbErr *err) {
  char target[40];
  const char *options[] = {target, "--std=c++17"};
  nvrtcProgram p = NULL;
  open_builtins();
  int known = newest_known(arch);
  bool ptx = known != arch;
  *code = NULL;
  if (known == 0) return zb_fail(err, "", "NVRTC: it compiles for no generation up to %d", arch);
  snprintf(target, sizeof target, "--gpu-architecture=%s_%d", ptx ? "compute" : "sm", known);
  nvrtcResult r = nvrtcCreateProgram(&p, text, ZK_POINTWISE_NAME ".cu", 0, NULL, NULL);
  if (r == NVRTC_SUCCESS) r = nvrtcCompileProgram(p, (int)(sizeof options / sizeof *options), options);
  if (r == NVRTC_SUCCESS) r = take_code(p, ptx, code, bytes);
  bool ok = r == NVRTC_SUCCESS || complain(p, r, err);
  if (!ok) free(*code), *code = NULL;
  if (p) nvrtcDestroyProgram(&p);
  return ok;
}
#endif

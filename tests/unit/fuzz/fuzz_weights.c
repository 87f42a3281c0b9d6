/* Fuzz target: any bytes as a safetensors file. What opens must be found or refused by name, and read. */
#define _GNU_SOURCE
#include "runtime/exec/ckpt/weights.h"
#include "tests/unit/fuzz/mend.h"

#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
FUZZ_MENDED_BY(fuzz_mend_weights)

static void read_tensors(const ZxWeights *w) {
  static const ZxTensorInfo wanted[] = {
      {"a", 1, {3}}, {"b", 2, {2, 2}}, {"c", 0, {0}}, {"layer.0.w", 1, {1}}};
  ZbErr err;
  float out[4];
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    uint64_t n = 1;
    for (int k = 0; k < wanted[i].nshape; k++) n *= (uint64_t)wanted[i].shape[k];
    int64_t at = zx_weights_find(w, &wanted[i], &err);
    if (at < 0) continue;
    if (!zx_weights_read(w, at, 0, n, out, &err)) ZB_BUG("accepted, but: %s", err.text);
    zx_weights_read(w, at, n, 0, out, &err);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  int fd = memfd_create("fuzz", 0);
  if (fd < 0) return 0;
  if (write(fd, data, n) == (ssize_t)n) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ZbErr err;
    ZxWeights *w = zx_weights_open(path, false, &err);
    if (w) read_tensors(w);
    zx_weights_close(w, NULL);
  }
  close(fd);
  return 0;
}

/* Fuzz target: any bytes as an index of Megatron's, beside a file of 1000 bytes. All sequences must lie in
 * that. */
#define _GNU_SOURCE /* memfd_create */
#include "runtime/zdata/zdata.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { TOKENS = 1000 /* bytes */ };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  ZbErr err = {0};
  ZdSequence s;
  bool first = true;
  int fd = memfd_create("index", MFD_CLOEXEC);
  if (fd < 0 || write(fd, data, n) != (ssize_t)n) abort();
  ZdMegatron *m = zd_megatron_new(fd, "fuzz.idx", n, TOKENS, &err);
  if (!m) return 0;
  size_t size = zd_ids_bytes(zd_megatron_type(m));
  while (zd_megatron_next(m, &s, &err)) {
    if (s.at > TOKENS || s.n > (TOKENS - s.at) / size || (first && !s.begins)) abort();
    first = false;
  }
  zd_megatron_free(m);
  return 0;
}

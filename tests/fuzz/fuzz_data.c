/* Fuzz target: any bytes as a token file. What opens must answer reads within and beyond its samples. */
#define _GNU_SOURCE
#include "runtime/exec/exec.h"

#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void read_samples(const ZxData *d, int64_t seq) {
  static const char *const fields[] = {"tokens", "targets", "x", "y"};
  ZbErr err;
  int32_t out[16];
  uint64_t samples = zx_data_samples(d, seq);
  for (int f = 0; f < 4; f++) {
    for (int index = 0; index < 2; index++) {
      if (!zx_data_check_field(d, fields[f], index, seq, &err)) continue;
      for (ZxOrder order = ZX_ORDER_SHUFFLED; order <= ZX_ORDER_SEQUENTIAL; order++) {
        ZxSampler s = {d, order, 3, seq};
        int64_t part = seq < 16 ? seq : 16;
        if (!samples) continue;
        zx_data_read(&s, fields[f], 0, 0, part, index ? 256 : -1, out, &err);
        zx_data_read(&s, fields[f], samples - 1, seq - part, part, index ? 256 : -1, out, &err);
        zx_data_read(&s, fields[f], samples + 1, 0, part, index ? 256 : -1, out, &err);
      }
    }
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  int fd = memfd_create("fuzz", 0);
  if (fd < 0) return 0;
  if (write(fd, data, n) == (ssize_t)n) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ZbErr err;
    ZxData *d = zx_data_open(path, &err);
    if (d) {
      zx_data_tokens(d);
      read_samples(d, 1);
      read_samples(d, 16);
      zx_data_close(d);
    }
  }
  close(fd);
  return 0;
}

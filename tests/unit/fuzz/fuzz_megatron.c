/* Fuzz target: any bytes as an index of Megatron's, beside a file of 1000 bytes. All sequences must lie in
 * that. */
#define _GNU_SOURCE /* memfd_create */
#include "runtime/zdata/zdata.h"
#include "tests/unit/fuzz/mend.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { TOKENS = 1000 /* bytes */ };
enum { HEAD = 34, AT_SEQUENCES = 18, AT_DOCUMENTS = 26 };

/* As many sequences as the header counts, if they fit, and documents for the rest, which begin one behind
 * the other. */
static size_t mend(uint8_t *x, size_t n, size_t most) {
  uint64_t sequences, before = 0;
  if (n < HEAD + 8) return n;
  memcpy(&sequences, x + AT_SEQUENCES, 8);
  if (sequences > (n - HEAD - 8) / 12) sequences = (n - HEAD - 8) / 12;
  size_t starts = HEAD + 12 * sequences;
  uint64_t entries = (n - starts) / 8;
  n = fuzz_resize(x, starts + 8 * entries, starts + 8 * entries, most);
  memcpy(x, "MMIDIDX\0\0\1\0\0\0\0\0\0\0", 17);
  memcpy(x + AT_SEQUENCES, &sequences, 8);
  memcpy(x + AT_DOCUMENTS, &entries, 8);
  for (uint64_t i = 0; i < entries; i++) {
    uint64_t start;
    memcpy(&start, x + starts + 8 * i, 8);
    if (start < before || !i) start = before;
    if (start > sequences || i + 1 == entries) start = sequences;
    memcpy(x + starts + 8 * i, &start, 8);
    before = start;
  }
  return n;
}
FUZZ_MENDED_BY(mend)

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

/* Fuzz target: any bytes as an input of zdata pack. The first says how: plain, gzip or zstd, text or JSON
 * lines, bad lines skipped or not. What comes must be documents: each begins once, ends once, and has no
 * empty piece but its last. */
#include "runtime/zdata/zdata.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  if (n < 2) return 0;
  ZbErr err = {0};
  ZdFiles none = {0};
  ZdPiece p;
  bool within = false;
  uint64_t documents = 0, bytes = 0;
  FILE *f = fmemopen((void *)(uintptr_t)(data + 1), n - 1, "r");
  if (!f) return 0;
  ZdReader *r = zd_reader_new(&none, "text", false, *data & 16);
  zd_reader_take(r, zd_bytes_of(f, "fuzz", (ZdPacking)(*data % 3)), *data & 8);
  while (bytes < 8 << 20 && zd_reader_next(r, &p, &err)) { /* a few bytes may unpack to gigabytes */
    if (p.begins == within || p.n > ZD_PIECE || (!p.n && !(within && p.ends))) abort();
    for (size_t i = 0; i < p.n; i += 512) bytes += (uint8_t)p.text[i] < 128; /* it must be there */
    bytes += p.n;
    documents += p.begins;
    within = !p.ends;
  }
  if (zd_reader_counts(r)->documents != documents) abort();
  zd_reader_free(r);
  return 0;
}

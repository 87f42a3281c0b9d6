/* Fuzz target: any bytes as an input of zdata pack. The first says how: plain, gzip or zstd, text or JSON
 * lines, bad lines skipped or not; with 32 the target packs them, so that mutations get past checksums.
 * What comes must be documents: each begins once, ends once, and has no empty piece but its last. */
#include "runtime/zdata/zdata.h"

#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { PACKED = 1 << 17 /* bytes; of the 64 KiB of an input at most */ };

/* Returns how many bytes of `out` they are then. */
static size_t pack(int packing, const uint8_t *data, size_t n, uint8_t *out) {
  if (packing == ZD_ZSTD) {
    size_t packed = ZSTD_compress(out, PACKED, data, n, 1);
    return ZSTD_isError(packed) ? 0 : packed;
  }
  z_stream z = {
      .next_in = (Bytef *)(uintptr_t)data, .avail_in = (uInt)n, .next_out = out, .avail_out = PACKED};
  if (deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) return 0;
  int code = deflate(&z, Z_FINISH);
  deflateEnd(&z);
  return code == Z_STREAM_END ? z.total_out : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static uint8_t packed[PACKED];
  if (n < 2) return 0;
  uint8_t how = *data++;
  n--;
  if (how & 32 && how % 3 != ZD_PLAIN) {
    n = pack(how % 3, data, n, packed);
    data = packed;
    if (!n) return 0;
  }
  ZbErr err = {0};
  ZdFiles none = {0};
  ZdPiece p;
  bool within = false;
  uint64_t documents = 0, bytes = 0;
  FILE *f = fmemopen((void *)(uintptr_t)data, n, "r");
  if (!f) return 0;
  ZdReader *r = zd_reader_new(&none, "text", false, how & 16);
  zd_reader_take(r, zd_bytes_of(f, "fuzz", (ZdPacking)(how % 3)), how & 8);
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

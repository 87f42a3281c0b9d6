/* Fuzz target: any bytes as a token file, once as they are and once with the checksum that they should have,
 * so that mutations get past it. What opens must answer reads within and beyond its samples. */
#include "runtime/exec/data/data.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { VALUES = 4096 };

static void read_samples(const ZxData *d, const char *field, int64_t seq) {
  static int32_t out[VALUES];
  uint64_t samples = zx_data_samples(d, seq);
  int64_t part = seq < VALUES ? seq : VALUES;
  ZbErr err;
  for (int index = 0; index < 2; index++) {
    if (!zx_data_check_field(d, field, index, seq, &err)) continue;
    for (ZxOrder order = ZX_ORDER_SHUFFLED; order <= ZX_ORDER_SEQUENTIAL; order++) {
      ZxSampler s = {d, order, 3, seq};
      zx_data_read(&s, field, 0, 0, part, index ? 256 : -1, out, &err);
      zx_data_read(&s, field, samples - 1, seq - part, part, index ? 256 : -1, out, &err);
      zx_data_read(&s, field, samples + 1, 0, part, index ? 256 : -1, out, &err);
    }
  }
}

static void try(const uint8_t *bytes, size_t n) {
  ZbErr err;
  ZxData *d = zx_data_of_bytes(bytes, n, "fuzz", &err);
  if (!d) return;
  const ZxDataInfo *info = zx_data_info(d);
  zx_data_verify(d, &err);
  read_samples(d, "tokens", 1);
  read_samples(d, "targets", 16);
  for (uint32_t i = 0; i < info->nfield; i++)
    read_samples(d, info->field[i].name, (int64_t)info->field[i].values);
  zx_data_close(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  try(data, n);
  uint32_t nfield;
  if (n < ZX_DATA_HEAD) return 0;
  memcpy(&nfield, data + 12, 4);
  if (nfield > ZX_DATA_MAX_FIELDS || n < ZX_DATA_HEAD * (1 + (size_t)nfield)) return 0;
  uint8_t *mended = malloc(n);
  if (!mended) return 0;
  memcpy(mended, data, n);
  uint64_t sum = zx_data_head_sum(data, nfield);
  memcpy(mended + ZX_DATA_HEAD - sizeof sum, &sum, sizeof sum);
  try(mended, n);
  free(mended);
  return 0;
}

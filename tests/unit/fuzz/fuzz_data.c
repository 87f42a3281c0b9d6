/* Fuzz target: any bytes as a token file. What opens must answer reads within and beyond its samples, and
 * have its documents one behind the other. */
#include "runtime/exec/data/data.h"
#include "tests/unit/fuzz/mend.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
FUZZ_MENDED_BY(fuzz_mend_data)

enum { VALUES = 4096 };

static void read_samples(ZxData *d, const char *field, int64_t seq) {
  static int32_t out[VALUES];
  int64_t part = seq < VALUES ? seq : VALUES;
  ZbErr err = {0};
  bool fits = zx_data_arrange(d, seq, seq % 2, &err);
  if (!fits && !*err.text) ZB_BUG("no windows, and no message");
  uint64_t samples = zx_data_samples(d, seq);
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  ZbErr err = {0};
  ZxData *d = zx_data_of_bytes(data, n, "fuzz", &err);
  if (!d && !*err.text) ZB_BUG("no data, and no message");
  if (!d) return 0;
  const ZxDataInfo *info = zx_data_info(d);
  zx_data_verify(d, &err);
  read_samples(d, "tokens", 1);
  read_samples(d, "targets", 16);
  read_samples(d, "doc", 5);
  read_samples(d, "place", 5);
  for (uint32_t i = 0; i < info->nfield; i++)
    read_samples(d, info->field[i].name, (int64_t)info->field[i].values);
  uint64_t first, end, before = 0;
  for (uint64_t i = 0; i < info->documents; i++) {
    if (!zx_data_document(d, i, &first, &end, &err)) continue;
    if (first >= end || end > info->count || first < before) ZB_BUG("document %llu", (unsigned long long)i);
    before = first;
  }
  zx_data_close(d);
  return 0;
}

#include "tests/unit/plan/models/stream.h"

#include <criterion/criterion.h>

ZxMix *stream_of_tokens(ZbArena *a) {
  enum { N = 4096 };
  ZbErr err = {0};
  ZxDataField f = {.name = "tokens", .elem = ZX_DATA_U16, .values = 1, .limit = 12};
  ZxDataInfo info = {.stream = true, .count = N, .nfield = 1, .field = &f};
  cr_assert(zx_data_layout(&info, &err), "%s", err.text);
  uint8_t *bytes = zb_alloc(a, info.data_at + 2 * N);
  zx_data_encode(&info, bytes);
  for (uint32_t i = 0; i < N; i++)
    bytes[info.data_at + 2 * i] = (uint8_t)(i * i % 12), bytes[info.data_at + 2 * i + 1] = 0;
  ZxData *d = zx_data_of_bytes(bytes, info.data_at + 2 * N, "tokens", &err);
  cr_assert(d, "%s", err.text);
  return zx_mix_one(d);
}

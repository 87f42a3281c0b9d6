#include "tests/unit/exec/stream_file.h"

#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>

void stream_file(const char *name, ZxDataElem elem, const void *ids, size_t n, uint64_t limit) {
  ZbErr err = {0};
  ZxDataField f = {.name = "tokens", .elem = elem, .values = 1};
  ZxDataInfo info = {.stream = true, .nfield = 1, .field = &f};
  ZxDataWriter *w = zx_data_create(scratch(name), &info, &err);
  cr_assert(w, "%s", err.text);
  cr_assert(zx_data_put(w, ids, n * zx_data_elem_bytes(elem), &err));
  cr_assert(zx_data_finish(w, &limit, &err), "%s", err.text);
}

void documents_file(const char *name, const int *lengths) {
  ZbErr err = {0};
  ZxDataField f = {.name = "tokens", .values = 1};
  ZxDataInfo info = {.stream = true, .nfield = 1, .field = &f};
  ZxDataWriter *w = zx_data_create(scratch(name), &info, &err);
  cr_assert(w, "%s", err.text);
  for (uint8_t id = 0; *lengths; lengths++) {
    cr_assert(zx_data_begin_document(w, &err), "%s", err.text);
    for (int i = 0; i < *lengths; i++, id++) cr_assert(zx_data_put(w, &id, 1, &err));
  }
  cr_assert(zx_data_finish(w, (uint64_t[]){256}, &err), "%s", err.text);
}

bool read_tokens(const ZxData *d, int64_t seq, uint64_t sample, int64_t limit, void *out, ZbErr *err) {
  ZxSampler s = {d, ZX_ORDER_SEQUENTIAL, 1, seq};
  return zx_data_read(&s, "tokens", sample, 0, seq, limit, out, err);
}

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

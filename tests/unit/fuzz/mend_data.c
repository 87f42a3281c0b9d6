#include "runtime/exec/data/data.h"
#include "tests/unit/fuzz/mend.h"

#include <string.h>

/* Where the header has its numbers: DATA.md. */
enum { VERSION = 4, KIND = 8, NFIELD = 12, COUNT = 16, RECORD = 24, DATA = 32, DOCUMENTS = 48, SUM = 56 };
enum { FIELD_ELEM = 40, FIELD_VALUES = 48 };

/* The fields' sizes, as the header has them; false: they are impossible. */
static bool layout(const uint8_t *x, uint32_t nfield, bool stream, ZxDataInfo *info) {
  static ZxDataField field[16];
  memset(field, 0, sizeof field);
  *info = (ZxDataInfo){.stream = stream, .nfield = nfield, .field = field};
  for (uint32_t i = 0; i < nfield; i++) {
    const uint8_t *p = x + ZX_DATA_HEAD * (1 + (size_t)i);
    uint32_t elem;
    memcpy(field[i].name, p, ZX_DATA_NAME);
    memcpy(&elem, p + FIELD_ELEM, 4);
    memcpy(&field[i].values, p + FIELD_VALUES, 8);
    if (elem >= ZX_DATA_ELEMS) return false;
    field[i].elem = (ZxDataElem)elem;
  }
  return zx_data_layout(info, NULL);
}

/* As many records, and documents, as the file has room for. */
static size_t mend_sizes(uint8_t *x, size_t n, size_t most, const ZxDataInfo *info, uint32_t kind) {
  uint64_t count, documents = 0, fits = (n - info->data_at) / info->record_bytes;
  uint32_t version;
  memcpy(&count, x + COUNT, 8);
  memcpy(&version, x + VERSION, 4);
  if (count > fits) count = fits;
  if (version > 1) memcpy(&documents, x + DOCUMENTS, 8);
  if (!info->stream || documents > count) documents = info->stream ? count : 0;
  version = kind > 2 ? 3 : documents ? 2 : 1;
  uint64_t size = info->data_at + count * info->record_bytes;
  if (documents) size = zb_round_up(size, 8) + 8 * documents + 8;
  memcpy(x + VERSION, &version, 4);
  memcpy(x + COUNT, &count, 8);
  memcpy(x + RECORD, &info->record_bytes, 8);
  memcpy(x + DATA, &info->data_at, 8);
  memcpy(x + DOCUMENTS, &documents, 8);
  return fuzz_resize(x, n < size ? n : size, size, most);
}

size_t fuzz_mend_data(uint8_t *x, size_t n, size_t most) {
  uint32_t nfield, kind;
  ZxDataInfo info;
  if (n < 2 * ZX_DATA_HEAD) return n;
  memcpy(x, "ZTOK", 4);
  memcpy(&nfield, x + NFIELD, 4);
  memcpy(&kind, x + KIND, 4);
  if (nfield < 1 || nfield > 16 || n < ZX_DATA_HEAD * (1 + (size_t)nfield)) nfield = 1;
  memcpy(x + NFIELD, &nfield, 4);
  if (layout(x, nfield, kind != 2, &info)) n = mend_sizes(x, n, most, &info, kind);
  uint64_t sum = zx_data_head_sum(x, nfield);
  memcpy(x + SUM, &sum, 8);
  return n;
}

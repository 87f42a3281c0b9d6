/* zdata show: what a file holds, and how it begins. */
#include "runtime/zdata/zdata.h"

#include <inttypes.h>
#include <string.h>

static void show_text(const uint8_t *p, uint64_t n) {
  printf("  text    ");
  for (uint64_t i = 0; i < n; i++) {
    if (p[i] == '\n') printf("\\n");
    else if (p[i] < 32 || p[i] > 126) printf("\\x%02x", p[i]);
    else putchar(p[i]);
  }
  printf("\n");
}

static void show_values(const uint8_t *p, const ZxDataField *f, uint64_t n) {
  for (uint64_t i = 0; i < n; i++) {
    const uint8_t *q = p + i * zx_data_elem_bytes(f->elem);
    uint32_t w = 0;
    float x;
    memcpy(&w, q, zx_data_elem_bytes(f->elem));
    memcpy(&x, &w, 4);
    if (f->elem == ZX_DATA_F32) printf(" %g", (double)x);
    else if (f->elem == ZX_DATA_I32) printf(" %" PRId32, (int32_t)w);
    else if ((f->elem == ZX_DATA_U16 && w == UINT16_MAX) || (f->elem == ZX_DATA_U32 && w == UINT32_MAX))
      printf(" -1");
    else printf(" %" PRIu32, w);
  }
}

static bool show_data(const ZxData *d, const char *path, ZbErr *err) {
  enum { VALUES = 12, TEXT = 60 };
  const ZxDataInfo *info = zx_data_info(d);
  uint8_t begin[TEXT];
  char size[24];
  zb_bytes(size, zx_data_bytes(d));
  printf("%s: %" PRIu64 " %s, %s", zb_show(path), info->count, info->stream ? "tokens" : "records", size);
  if (info->documents) printf(", %" PRIu64 " documents", info->documents);
  printf("\n");
  if (info->windows) printf("  windows %s\n", zx_windows_text(info->windows));
  for (uint32_t i = 0; i < info->nfield; i++) {
    const ZxDataField *f = &info->field[i];
    printf("  %-7s %s", f->name, zx_data_elem_name(f->elem));
    if (!info->stream) printf(" x %" PRIu64, f->values);
    if (f->limit) printf(", ids below %" PRIu64, f->limit);
    uint64_t n = info->stream ? info->count : info->count ? f->values : 0, each = zx_data_elem_bytes(f->elem);
    if (n > VALUES) n = VALUES;
    for (uint64_t k = 0; info->stream && k < n; k++)
      if (!zx_data_get(d, k * info->record_bytes + f->at, each, begin + k * each, err)) return false;
    if (!info->stream && !zx_data_get(d, f->at, n * each, begin, err)) return false;
    if (n) printf(", begins");
    show_values(begin, f, n);
    printf("\n");
  }
  if (!info->stream || info->nfield > 1 || info->field[0].elem != ZX_DATA_U8) return true;
  uint64_t n = info->count < TEXT ? info->count : TEXT;
  if (!zx_data_get(d, 0, n, begin, err)) return false;
  show_text(begin, n);
  return true;
}

bool zd_show(const ZdOptions *o, ZbArena *a, ZbErr *err) {
  (void)a;
  ZxData *d = zx_data_open(o->file[0], err);
  bool ok = d && show_data(d, o->file[0], err);
  zx_data_close(d);
  return ok;
}

#include "graph/graph.h"
#include "graph/file.h"
#include "tests/unit/fuzz/mend.h"

#include <string.h>

static const uint32_t records[ZSG_ALL_KINDS + 1] = {
#define X(kind, name, record, most) [kind] = record,
    ZG_SECTIONS(X)
#undef X
};

/* Ends of strings: none before the one before it, the last at the end of their bytes. */
static void mend_strings(uint8_t *ends, uint64_t count, uint64_t bytes) {
  uint64_t before = 0;
  for (uint64_t i = 0; i < count; i++) {
    uint64_t end = zsg_get(ends + 4 * i, 4);
    if (end < before) end = before;
    if (end > bytes || i + 1 == count) end = bytes;
    zsg_set(ends + 4 * i, 4, end);
    before = end;
  }
}

/* Sections lie behind each other, each as long as the directory says, as far as the file goes. */
size_t fuzz_mend_zsg(uint8_t *x, size_t n, size_t most) {
  if (n < ZSG_HEADER + ZSG_ENTRY) return n;
  uint64_t sections = zsg_get(x + 12, 4), room = (n - ZSG_HEADER) / ZSG_ENTRY;
  if (sections > room || sections > ZSG_ALL_KINDS) sections = room < ZSG_KINDS ? room : ZSG_KINDS;
  uint64_t end = ZSG_HEADER + sections * ZSG_ENTRY;
  uint8_t *ends = NULL;
  uint64_t nends = 0;
  for (uint64_t i = 0; i < sections; i++) {
    uint8_t *e = x + ZSG_HEADER + i * ZSG_ENTRY;
    uint64_t kind = zsg_get(e, 4), record = kind <= ZSG_ALL_KINDS && records[kind] ? records[kind] : 1;
    uint64_t bytes = zsg_get(e + 16, 8), at = zb_round_up(end, 8);
    if (at > n) n = fuzz_resize(x, n, at, most);
    if (at > n) break;
    memset(x + end, 0, at - end);
    if (bytes > n - at) bytes = n - at;
    bytes -= bytes % record;
    zsg_set(e + 8, 8, at);
    zsg_set(e + 16, 8, bytes);
    zsg_set(e + 24, 8, bytes / record);
    if (kind == SEC_STRE) ends = x + at, nends = bytes / 4;
    if (kind == SEC_STRB && ends) mend_strings(ends, nends, bytes);
    end = at + bytes;
  }
  uint64_t size = zb_round_up(end, 8);
  n = fuzz_resize(x, n < size ? n : size, size, most);
  memset(x + (end < n ? end : n), 0, n > end ? n - end : 0);
  memcpy(x, ZSG_MAGIC, 4);
  zsg_set(x + 4, 2, ZSG_MAJOR);
  zsg_set(x + 8, 4, 0);
  zsg_set(x + 12, 4, sections);
  zsg_set(x + 16, 8, n);
  memset(x + 40, 0, 16);
  zg_seal(x, n);
  return n;
}

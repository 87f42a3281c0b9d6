/* Where tokens go, document by document. */
#include "runtime/zdata/zdata.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct ZdSink {
  ZxDataWriter *w;
  ZxDataElem elem;
  size_t size; /* bytes of a token */
  uint32_t end;
  bool some; /* the document has tokens */
  uint64_t tokens, documents;
};

ZdSink *zd_sink_new(const char *path, ZxDataElem elem, uint32_t end, ZbErr *err) {
  ZdSink *s = calloc(1, sizeof *s);
  if (!s) zb_out_of_memory(0);
  ZxDataField tokens = {.name = "tokens", .elem = elem, .values = 1};
  ZxDataInfo info = {.stream = true, .nfield = 1, .field = &tokens};
  s->elem = elem;
  s->size = zx_data_elem_bytes(elem);
  s->end = end;
  s->w = zx_data_create(path, &info, err);
  if (s->w) return s;
  free(s);
  return NULL;
}

void zd_sink_abandon(ZdSink *s) {
  if (!s) return;
  zx_data_abandon(s->w);
  free(s);
}

uint64_t zd_sink_tokens(const ZdSink *s) { return s->tokens; }
uint64_t zd_sink_documents(const ZdSink *s) { return s->documents; }

static bool put(ZdSink *s, const void *tokens, size_t n, ZbErr *err) {
  s->tokens += n;
  return zx_data_put(s->w, tokens, n * s->size, err);
}

bool zd_sink_put(ZdSink *s, const void *tokens, size_t n, bool begins, bool ends, ZbErr *err) {
  if (begins) s->some = false;
  if (n && !s->some) {
    s->documents++;
    s->some = true;
    if (!zx_data_begin_document(s->w, err)) return false;
  }
  if (!put(s, tokens, n, err)) return false;
  return !ends || !s->some || s->end == ZD_NO_END || put(s, &s->end, 1, err); /* little-endian */
}

bool zd_sink_finish(ZdSink *s, uint64_t limit, ZbErr *err) {
  bool ok = zx_data_finish(s->w, &limit, err);
  free(s);
  return ok;
}

/* Fuzz target: any bytes through the .zsg loader. What it accepts must verify, print, and be written back
 * as bytes that it accepts again with the same hash. */
#include "graph/graph.h"
#include "tests/unit/fuzz/mend.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
FUZZ_MENDED_BY(fuzz_mend_zsg)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  ZbArena *a = zb_arena_new();
  ZbErr err = {0};
  ZgGraph *g = zg_read(a, data, n, &err);
  if (g) {
    if (!zg_verify(g, &err)) ZB_BUG("accepted, but: %s", err.text);
    ZbText text = {0}, bytes = {0};
    zg_print(g, ZG_NONE, &text);
    ZB_ASSERT(zg_write(g, &bytes, NULL));
    ZgGraph *again = zg_read(a, bytes.s, bytes.len, &err);
    if (!again) ZB_BUG("written, but: %s", err.text);
    ZB_ASSERT(!memcmp(g->hash, again->hash, sizeof g->hash));
    zb_text_free(&text);
    zb_text_free(&bytes);
  } else {
    ZB_ASSERT(err.text[0]);
  }
  zb_arena_free(a);
  return 0;
}

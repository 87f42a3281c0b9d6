/* Any bytes through the formatter: messages, or a text that the formatter leaves as it is. That the tokens and the
 * comments are the same it looks after itself. */
#include "lang/lang.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static bool format(const char *text, size_t n, ZbText *out) {
  ZbArena *a = zb_arena_new();
  ZlSources *s = zl_sources_new(a);
  bool ok = zl_format(a, s, zl_diags_new(a, s), "fuzz.zug", text, n, out);
  zb_arena_free(a);
  return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  ZbText once = {0}, twice = {0};
  if (format((const char *)data, n, &once)) {
    ZB_ASSERT(format(once.s ? once.s : "", once.len, &twice));
    ZB_ASSERT(once.len == twice.len && (once.len == 0 || !memcmp(once.s, twice.s, once.len)));
  }
  zb_text_free(&once);
  zb_text_free(&twice);
  return 0;
}

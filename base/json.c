/* Text as JSON (RFC 8259) and UTF-8 (RFC 3629) have it. See base.h. */
#include "base/base.h"

void zb_text_json_n(ZbText *t, const char *s, size_t n) {
  for (const char *end = s + n; s < end; s++) {
    unsigned char c = (unsigned char)*s;
    if (c == '"' || c == '\\') zb_text_add(t, "\\%c", c);
    else if (c == '\n') zb_text_add(t, "\\n");
    else if (c < 32 || c == 127) zb_text_add(t, "\\u%04x", c);
    else zb_text_put(t, s, 1);
  }
}

void zb_text_json(ZbText *t, const char *s) {
  zb_text_put(t, "\"", 1);
  zb_text_json_n(t, s, strlen(s));
  zb_text_put(t, "\"", 1);
}

size_t zb_utf8(char out[4], uint32_t c) {
  int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  static const uint8_t first[] = {0, 0xc0, 0xe0, 0xf0};
  out[0] = (char)(first[more] | c >> 6 * more);
  for (int i = 1; i <= more; i++) out[i] = (char)(0x80 | (c >> 6 * (more - i) & 63));
  return (size_t)more + 1;
}

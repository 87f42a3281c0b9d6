/* UTF-8: what is valid, what is made of the rest, and characters of what is valid. */
#include "runtime/text/room.h"

/* Bytes of the character that s[0..n) begins with, n > 0; or, negative, of the longest part of one, which the
 * WHATWG's encoding standard makes one U+FFFD of: E2 82 is one, ED A0 80 (a surrogate) are three. */
static int character(const uint8_t *s, size_t n) {
  uint8_t lead = s[0], least = 0x80, most = 0xbf;
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return -1;
  int more = lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
  if (lead == 0xe0) least = 0xa0;
  if (lead == 0xed) most = 0x9f;
  if (lead == 0xf0) least = 0x90;
  if (lead == 0xf4) most = 0x8f;
  for (int i = 1; i <= more; i++) {
    if ((size_t)i >= n || s[i] < least || s[i] > most) return -i;
    least = 0x80;
    most = 0xbf;
  }
  return more + 1;
}

size_t zt_utf8_valid(const char *text, size_t n) {
  const uint8_t *s = (const uint8_t *)text;
  size_t at = 0;
  while (at < n) {
    uint64_t eight;
    while (n - at >= 8 && (memcpy(&eight, s + at, 8), !(eight & 0x8080808080808080ull))) at += 8;
    if (at == n) break;
    int bytes = character(s + at, n - at);
    if (bytes < 0) break;
    at += (size_t)bytes;
  }
  return at;
}

void zt_utf8_repair(const char *s, size_t n, ZbText *out) {
  while (n) {
    size_t good = zt_utf8_valid(s, n);
    zb_text_put(out, s, good);
    s += good;
    n -= good;
    if (!n) break;
    size_t bad = (size_t)-character((const uint8_t *)s, n);
    zb_text_put(out, "\xef\xbf\xbd", 3);
    s += bad;
    n -= bad;
  }
}

size_t zt_utf8_open(const char *s, size_t n) {
  for (size_t k = 1; k <= 3 && k <= n; k++) {
    uint8_t lead = (uint8_t)s[n - k];
    if (lead >= 0xc2 && lead <= 0xf4) return character((const uint8_t *)s + n - k, k) == -(int)k ? k : 0;
  }
  return 0;
}

uint32_t zt_char(const char *s, size_t *bytes) {
  const uint8_t *p = (const uint8_t *)s;
  *bytes = zt_char_bytes(p[0]);
  switch (*bytes) {
  case 1: return p[0];
  case 2: return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
  case 3: return (p[0] & 0xfu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
  default: return (p[0] & 7u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
  }
}

void zt_text_char(ZbText *t, uint32_t c) {
  char s[4];
  zb_text_put(t, s, zb_utf8(s, c));
}

size_t zt_char_before(const char *s, size_t at) {
  do at--;
  while (at && ((uint8_t)s[at] & 0xc0) == 0x80);
  return at;
}

bool zt_starts(const char *s, size_t n, const char *with, size_t with_n) {
  return n >= with_n && !memcmp(s, with, with_n);
}

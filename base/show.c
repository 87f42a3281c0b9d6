/* Text of others in our messages: names of files and tensors, options, cells of a table. It may hold
 * anything: escape codes that a terminal obeys, bytes that are no UTF-8, sixteen megabytes. See base.h. */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

/* The character at `p`, and its bytes; 0 if these are no UTF-8: overlong, a surrogate, or beyond U+10FFFF. */
static size_t decode(const unsigned char *p, size_t n, uint32_t *code) {
  static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
  uint32_t c = p[0], more = c < 0x80 ? 0 : c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
  if ((c >= 0x80 && c < 0xc2) || c > 0xf4 || more >= n) return 0;
  if (more) c &= 0x3fu >> more;
  for (uint32_t k = 1; k <= more; k++) {
    if ((p[k] & 0xc0) != 0x80) return 0;
    c = c << 6 | (p[k] & 0x3f);
  }
  if (c < least[more] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return 0;
  *code = c;
  return more + 1;
}

/* What ends a line, moves a cursor or turns the direction of writing. */
static bool controls(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

size_t zb_plain(const char *s, size_t n) {
  uint32_t c = 0;
  size_t bytes = n ? decode((const unsigned char *)s, n, &c) : 0;
  return controls(c) ? 0 : bytes;
}

/* The first character of s[0..n), n > 0, as it is shown; *used: its bytes. Returns how many are in `out`. */
static size_t unit(const char *s, size_t n, char out[12], size_t *used) {
  uint32_t c = 0;
  *used = decode((const unsigned char *)s, n, &c);
  if (*used && !controls(c)) return memcpy(out, s, *used), *used;
  if (*used > 1) return (size_t)snprintf(out, 12, "\\u%04x", c);
  *used = 1;
  if (*s == '\n' || *s == '\t' || *s == '\r')
    return (size_t)snprintf(out, 12, "\\%c", *s == '\n' ? 'n' : *s == '\t' ? 't' : 'r');
  return (size_t)snprintf(out, 12, "\\x%02x", (unsigned char)*s);
}

/* Writes what fits of s[0..n) into out[0..room), with a NUL behind it; *used: bytes of s. */
static size_t units(const char *s, size_t n, char *out, size_t room, size_t *used) {
  size_t at = 0;
  for (*used = 0; *used < n;) {
    char one[12];
    size_t bytes, len = unit(s + *used, n - *used, one, &bytes);
    if (at + len >= room) break;
    memcpy(out + at, one, len);
    at += len;
    *used += bytes;
  }
  out[at] = 0;
  return at;
}

const char *zb_show_n(const char *s, size_t n) {
  static _Thread_local char ring[8][ZB_SHOWN];
  static _Thread_local unsigned turn;
  char *out = ring[turn++ % 8];
  size_t used;
  units(s, n, out, ZB_SHOWN, &used);
  if (used == n) return out;
  /* Its beginning and its end: of a path the end says more. Few bytes may fill the room, since \xNN is four
   * characters; then the end begins where the beginning stopped. */
  enum { TAIL = ZB_SHOWN / 3, HEAD = ZB_SHOWN - TAIL - 3 };
  size_t at = units(s, n, out, HEAD + 1, &used);
  size_t from = n - used < TAIL ? used : n - (TAIL - 1);
  at += (size_t)snprintf(out + at, ZB_SHOWN - at, "...");
  /* What does not fit goes from its front; so does a part of a character, which is longer when written out. */
  for (size_t rest; units(s + from, n - from, out + at, TAIL, &rest), rest < n - from;) {
    char one[12];
    size_t bytes;
    unit(s + from, n - from, one, &bytes);
    from += bytes;
  }
  return out;
}

const char *zb_show(const char *s) { return zb_show_n(s, strlen(s)); }

void zb_show_all(char *s, size_t size) {
  size_t n = strlen(s), good = 0;
  for (size_t bytes; good < n && (bytes = zb_plain(s + good, n - good)); good += bytes) {}
  if (good == n) return;
  char *from = strdup(s + good);
  if (!from) zb_out_of_memory(0);
  size_t used;
  units(from, n - good, s + good, size - good, &used);
  free(from);
}

void zb_text_show(ZbText *t, const char *s, size_t n) {
  for (size_t at = 0, used; at < n; at += used) {
    char out[128];
    size_t len = units(s + at, n - at, out, sizeof out, &used);
    zb_text_put(t, out, len);
  }
}

/* JSON (RFC 8259) that is written, and UTF-8 (RFC 3629). See base.h. */
#include "base/base.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>

/* ---- strings ---- */
static void put_escaped(ZbText *t, const char *s, size_t n, bool script) {
  size_t from = 0;
  for (size_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)s[i];
    bool quoted = c == '"' || c == '\\', coded = c < 32 || c == 127 || (script && (c == '<' || c == '&'));
    if (!quoted && !coded) continue;
    zb_text_put(t, s + from, i - from);
    from = i + 1;
    if (quoted) zb_text_add(t, "\\%c", c);
    else zb_text_add(t, c == '\n' ? "\\n" : "\\u%04x", c);
  }
  zb_text_put(t, s + from, n - from);
}

static void put_string(ZbJson *j, const char *s, size_t n) {
  zb_text_put(j->text, "\"", 1);
  put_escaped(j->text, s, n, j->script);
  zb_text_put(j->text, "\"", 1);
}

/* ---- what stands between values ---- */
static bool in_list(const ZbJson *j) { return j->depth && j->lists >> (j->depth - 1) & 1; }

static void new_line(ZbJson *j, int depth) {
  zb_text_put(j->text, "\n", 1);
  for (int i = 0; i < depth; i++) zb_text_add(j->text, "%s", j->indent);
}

/* Puts what is due before a key, or before an item: a comma, a new line. */
static void separate(ZbJson *j) {
  if (j->more) zb_text_put(j->text, ",", 1);
  if (j->indent && j->depth && !in_list(j)) new_line(j, j->depth);
  else if (j->indent && j->more) zb_text_put(j->text, " ", 1);
  if (j->line) zb_text_add(j->text, "\n%*s", j->line - 1, "");
  j->line = 0;
  j->more = true;
}

static void put_key(ZbJson *j, const char *key, size_t n) {
  separate(j);
  put_string(j, key, n);
  zb_text_add(j->text, "%s", !j->indent ? ":" : *j->indent == '\t' ? ":\t" : ": ");
}

/* Puts what stands before a value. */
static void before_value(ZbJson *j, const char *key) {
  if (key) put_key(j, key, strlen(key));
  else if (!j->keyed) separate(j);
  j->keyed = false;
}

void zb_json_key(ZbJson *j, const char *fmt, ...) {
  ZbText key = {0};
  va_list ap;
  va_start(ap, fmt);
  zb_text_addv(&key, fmt, ap);
  va_end(ap);
  put_key(j, key.s, key.len);
  zb_text_free(&key);
  j->keyed = true;
}

void zb_json_line(ZbJson *j, int blanks) { j->line = blanks + 1; }

/* ---- values ---- */
static void begin(ZbJson *j, const char *key, bool list) {
  ZB_ASSERT(j->depth < 64);
  before_value(j, key);
  zb_text_put(j->text, list ? "[" : "{", 1);
  j->lists = (j->lists & ~(UINT64_C(1) << j->depth)) | (uint64_t)list << j->depth;
  j->depth++;
  j->more = false;
}

void zb_json_object(ZbJson *j, const char *key) { begin(j, key, false); }
void zb_json_list(ZbJson *j, const char *key) { begin(j, key, true); }

void zb_json_end(ZbJson *j) {
  ZB_ASSERT(j->depth && !j->keyed);
  bool list = in_list(j);
  j->depth--;
  if (j->indent && !list) new_line(j, j->depth);
  zb_text_put(j->text, list ? "]" : "}", 1);
  j->more = true;
}

void zb_json_string(ZbJson *j, const char *key, const char *s) {
  before_value(j, key);
  put_string(j, s, strlen(s));
}

void zb_json_string_n(ZbJson *j, const char *key, const char *s, size_t n) {
  before_value(j, key);
  put_string(j, s, n);
}

void zb_json_int(ZbJson *j, const char *key, int64_t n) { zb_json_raw(j, key, "%" PRId64, n); }
void zb_json_count(ZbJson *j, const char *key, uint64_t n) { zb_json_raw(j, key, "%" PRIu64, n); }
void zb_json_bool(ZbJson *j, const char *key, bool is) { zb_json_raw(j, key, is ? "true" : "false"); }
void zb_json_null(ZbJson *j, const char *key) { zb_json_raw(j, key, "null"); }

void zb_json_number(ZbJson *j, const char *key, double x) {
  before_value(j, key);
  if (isfinite(x)) zb_text_number(j->text, x);
  else zb_text_add(j->text, "null");
}

void zb_json_rounded(ZbJson *j, const char *key, int digits, double x) {
  if (isfinite(x)) zb_json_raw(j, key, "%.*g", digits, x);
  else zb_json_null(j, key);
}

void zb_json_raw(ZbJson *j, const char *key, const char *fmt, ...) {
  va_list ap;
  before_value(j, key);
  va_start(ap, fmt);
  zb_text_addv(j->text, fmt, ap);
  va_end(ap);
}

/* ---- UTF-8 ---- */
size_t zb_utf8(char out[4], uint32_t c) {
  int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  static const uint8_t first[] = {0, 0xc0, 0xe0, 0xf0};
  out[0] = (char)(first[more] | c >> 6 * more);
  for (int i = 1; i <= more; i++) out[i] = (char)(0x80 | (c >> 6 * (more - i) & 63));
  return (size_t)more + 1;
}

/* Text as JSON (RFC 8259) and UTF-8 (RFC 3629) have it. See base.h. */
#include "base/base.h"

#include <cjson/cJSON.h>

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

/* ---- numbers as they were written ---- */
/* Behind a string that begins at s. */
static const char *past_string(const char *s) {
  for (s++; *s && *s != '"'; s++)
    if (*s == '\\' && s[1]) s++;
  return *s ? s + 1 : s;
}

/* Returns where the text goes on behind the value. */
static const char *take_digits(cJSON *x, const char *s) {
  int kind = x->type & 0xff;
  if (kind == cJSON_Number) {
    while (*s && !strchr("-0123456789", *s)) s = *s == '"' ? past_string(s) : s + 1;
    size_t n = strspn(s, "+-.0123456789eE");
    x->valuestring = strndup(s, n);
    if (!x->valuestring) zb_out_of_memory(n);
    return s + n;
  }
  if (kind == cJSON_String) { /* its key was passed before */
    while (*s && *s != '"') s++;
    return past_string(s);
  }
  for (cJSON *k = x->child; k; k = k->next) {
    if (k->string) {
      while (*s && *s != '"') s++;
      s = past_string(s);
    }
    s = take_digits(k, s);
  }
  return s;
}

void zb_json_digits(cJSON *x, const char *text) { take_digits(x, text); }

const char *zb_json_not_finite(const char *text, size_t n, uint32_t *line) {
  static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
  const char *end = text + n;
  *line = 1;
  for (const char *s = text; s < end; s++) {
    if (*s == '\n') ++*line;
    if (*s == '"') {
      for (s++; s < end && *s != '"'; s++) {
        if (*s == '\n') ++*line;
        if (*s == '\\') s++;
      }
      continue;
    }
    for (int i = 0; i < 3; i++)
      if ((size_t)(end - s) >= strlen(words[i]) && !memcmp(s, words[i], strlen(words[i]))) return words[i];
  }
  return NULL;
}

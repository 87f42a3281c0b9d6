/* JSON from files that anybody may have written. See base.h. Only programs with cJSON link this file. */
#include "base/base.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *need(size_t bytes) {
  void *p = malloc(bytes);
  if (!p) zb_out_of_memory(bytes); /* cJSON's NULL for it is that for a text that is wrong */
  return p;
}

/* Returns at least the number of values in text[0..n). */
static size_t values_in(const char *text, size_t n) {
  size_t count = 1;
  bool inside = false; /* a string */
  for (size_t i = 0; i < n; i++) {
    char c = text[i];
    if (inside && c == '\\') i++;
    else if (c == '"') inside = !inside;
    else if (!inside) count += c == ',' || c == '[' || c == '{';
  }
  return count;
}

cJSON *zb_json_parse(const char *text, size_t n, size_t sparse, ZbErr *err) {
  enum { FREE = 4096 /* values of a short text */ };
  cJSON_Hooks hooks = {need, free};
  size_t values = values_in(text, n), most = n / sparse + FREE;
  const char *end = memchr(text, 0, n);
  if (values > most) {
    zb_fail(err, NULL, "it has %zu values in %zu bytes; at most %zu are read", values, n, most);
    return NULL;
  }
  cJSON *root = NULL;
  if (!end) {
    end = text;
    cJSON_InitHooks(&hooks);
    root = cJSON_ParseWithLengthOpts(text, n, &end, false);
  }
  while (root && end < text + n && strchr(" \t\r\n", *end)) end++;
  if (root && end == text + n) return root;
  cJSON_Delete(root);
  zb_fail(err, NULL, "it is not JSON (byte %zu)", (size_t)(end - text));
  return NULL;
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

bool zb_json_has_nul(const char *text, size_t n) {
  for (size_t i = 0; i + 6 <= n; i++) {
    if (text[i] != '\\') continue;
    if (!memcmp(text + i + 1, "u0000", 5)) return true;
    i++;
  }
  return false;
}

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

/* ---- files of a folder ---- */
bool zb_json_object_of(const char *text, size_t n, const char *path, cJSON **out, ZbErr *err) {
  static const char again[] = "take the file again from where it came";
  ZbErr why;
  *out = zb_json_parse(text, n, ZB_JSON_ANY, &why);
  if (!*out) return zb_fail(err, again, "%s: %s", zb_show(path), why.text);
  if (cJSON_IsObject(*out)) return true;
  cJSON_Delete(*out);
  *out = NULL;
  return zb_fail(err, again, "%s: it is not a JSON object", zb_show(path));
}

bool zb_json_file(ZbArena *a, const char *folder, const char *name, cJSON **out, ZbErr *err) {
  enum { MOST = 16 << 20 };
  size_t n;
  const char *path = zb_printf(a, "%s/%s", folder, name);
  *out = NULL;
  if (access(path, F_OK) != 0) return true;
  const char *text = zb_read_file(a, path, MOST, &n, err);
  return text && zb_json_object_of(text, n, path, out, err);
}

const cJSON *zb_json_member(const cJSON *o, const char *name) {
  return cJSON_IsObject(o) ? cJSON_GetObjectItemCaseSensitive(o, name) : NULL;
}

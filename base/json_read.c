/* JSON from files that anybody may have written. See base.h. Only programs with cJSON link this file. */
#include "base/base.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

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

/* Files of tests/data/text. */
#include "tests/unit/text/files.h"

#include <string.h>

const char *const text_names[6] = {"gpt2", "llama3", "qwen", "llama2", "t5", "bert"};

char *text_file(ZbArena *a, const char *name, size_t *n) {
  ZbErr err;
  char *s = zb_read_file(a, zb_printf(a, ZUG_SRC "/tests/data/text/%s", name), 1 << 24, n, &err);
  cr_assert(s, "%s", err.text);
  return s;
}

cJSON *text_json(ZbArena *a, const char *name) {
  size_t n;
  char *s = text_file(a, name, &n);
  cJSON *x = cJSON_ParseWithLength(s, n);
  cr_assert(x, "%s is not JSON", name);
  return x;
}

ZtTokenizer *text_tokenizer(const char *name) {
  ZbErr err;
  char path[512];
  snprintf(path, sizeof path, ZUG_SRC "/tests/data/text/%s/tokenizer.json", name);
  ZtTokenizer *t = zt_load(path, &err);
  cr_assert(t, "%s", err.text);
  return t;
}

uint32_t *text_ids(ZbArena *a, const cJSON *list, size_t *n) {
  uint32_t *id = NULL;
  *n = 0;
  const cJSON *x;
  cJSON_ArrayForEach(x, list) ZB_PUSH(a, id, *n, (uint32_t)x->valueint);
  return id;
}

void text_expect(ZtCoder *c, const char *text, size_t n, unsigned flags, const uint32_t *id, size_t nids,
                 const char *what) {
  ZtIds got = {0};
  ZbErr err;
  cr_assert(zt_encode(c, text, n, flags, &got, &err), "%s: %s", what, err.text);
  size_t same = 0;
  while (same < got.n && same < nids && got.id[same] == id[same]) same++;
  cr_expect(same == got.n && same == nids, "%s: %zu ids instead of %zu; number %zu is %d instead of %d", what,
            got.n, nids, same, same < got.n ? (int)got.id[same] : -1, same < nids ? (int)id[same] : -1);
  zt_ids_free(&got);
}

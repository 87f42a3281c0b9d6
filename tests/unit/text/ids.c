/* Six tokenizers give the ids and the texts that the library gives. */
#include "tests/unit/text/files.h"

#include <string.h>

static void whole(const char *name, const char *text, const char *ids) {
  ZbArena *a = zb_arena_new();
  ZtTokenizer *t = text_tokenizer(name);
  ZtCoder *c = zt_coder_new(t);
  size_t n, bytes;
  char *s = text_file(a, text, &n);
  const uint8_t *x = (const uint8_t *)text_file(a, zb_printf(a, "%s/%s", name, ids), &bytes);
  uint32_t *id = ZB_NEWN(a, uint32_t, bytes / 2 + 1);
  for (size_t i = 0; i < bytes / 2; i++) id[i] = x[2 * i] | (uint32_t)x[2 * i + 1] << 8;
  const char *what = zb_printf(a, "%s, %s", name, text);
  text_expect(c, s, n, 0, id, bytes / 2, what);
  text_expect(c, s, n, 0, id, bytes / 2, what); /* and again, with words that are remembered */
  zt_coder_free(c);
  zt_free(t);
  zb_arena_free(a);
}

Test(text, whole) {
  for (int i = 0; i < 6; i++) whole(text_names[i], "text.txt", "text.ids.bin");
}

Test(text, no_utf8) {
  for (int i = 0; i < 6; i++) whole(text_names[i], "broken.bin", "broken.ids.bin");
}

static void lines(const char *name) {
  ZbArena *a = zb_arena_new();
  ZtTokenizer *t = text_tokenizer(name);
  ZtCoder *c = zt_coder_new(t);
  size_t n, nids, number = 0;
  const char *line = text_file(a, "text.txt", &n);
  cJSON *list = text_json(a, zb_printf(a, "%s/lines.json", name)), *x;
  cJSON_ArrayForEach(x, list) {
    size_t bytes = strcspn(line, "\n");
    uint32_t *id = text_ids(a, cJSON_GetObjectItem(x, "ids"), &nids);
    const char *what = zb_printf(a, "%s, line %zu", name, ++number);
    text_expect(c, line, bytes, ZT_AROUND, id, nids, what);
    const cJSON *decoded = cJSON_GetObjectItem(x, "decoded");
    const char *want = decoded ? decoded->valuestring : zb_strndup(a, line, bytes);
    ZbText got = {0};
    ZbErr err;
    cr_assert(zt_decode(c, id, nids, ZT_SKIP_SPECIAL, &got, &err), "%s: %s", what, err.text);
    cr_expect(!strcmp(got.s, want), "%s: '%s' instead of '%s'", what, got.s, want);
    zb_text_free(&got);
    line += bytes + 1;
  }
  cr_expect(number == 300);
  cJSON_Delete(list);
  zt_coder_free(c);
  zt_free(t);
  zb_arena_free(a);
}

Test(text, lines_and_back) {
  for (int i = 0; i < 6; i++) lines(text_names[i]);
}

Test(text, tokens_by_name) {
  ZtTokenizer *t = text_tokenizer("llama3");
  size_t n;
  uint32_t id = zt_id(t, "<|begin_of_text|>");
  cr_expect(id == 2200);
  cr_expect(zt_special(t, id) && !zt_special(t, 5));
  cr_expect(zt_id(t, "no such token") == ZT_NONE);
  cr_expect(zt_size(t) > id && !zt_token(t, zt_size(t), &n));
  cr_expect(!strcmp(zt_token(t, id, &n), "<|begin_of_text|>") && n == 17);
  zt_free(t);
}

Test(text, too_long) {
  ZtTokenizer *t = text_tokenizer("gpt2");
  ZtCoder *c = zt_coder_new(t);
  ZtIds ids = {0};
  ZbErr err;
  cr_expect_not(zt_encode(c, "", (size_t)ZT_TEXT_LIMIT + 1, 0, &ids, &err));
  cr_expect(strstr(err.text, "a text of 1073741825 bytes; a tokenizer takes at most 1073741824 at once"),
            "%s", err.text);
  cr_expect_eq(ids.n, 0);
  zt_coder_free(c);
  zt_free(t);
}

Test(text, specials_as_text) {
  ZtTokenizer *t = text_tokenizer("gpt2");
  ZtCoder *c = zt_coder_new(t);
  ZtIds ids = {0};
  ZbErr err;
  static const char text[] = "a<|endoftext|>b";
  cr_assert(zt_encode(c, text, strlen(text), 0, &ids, &err));
  cr_expect(ids.n == 3 && ids.id[1] == 2200);
  ids.n = 0;
  cr_assert(zt_encode(c, text, strlen(text), ZT_SPECIAL_AS_TEXT, &ids, &err));
  for (size_t i = 0; i < ids.n; i++) cr_expect(ids.id[i] != 2200);
  ZbText back = {0};
  cr_assert(zt_decode(c, ids.id, ids.n, 0, &back, &err));
  cr_expect(!strcmp(back.s, text));
  zb_text_free(&back);
  zt_ids_free(&ids);
  zt_coder_free(c);
  zt_free(t);
}

/* Tokenizers that differ from the six in a part or two. */
#include "tests/unit/text/files.h"

#include <string.h>

static void replace(cJSON *o, const cJSON *with) {
  const cJSON *x;
  cJSON_ArrayForEach(x, with) {
    cJSON_DeleteItemFromObjectCaseSensitive(o, x->string);
    cJSON_AddItemToObject(o, x->string, cJSON_Duplicate(x, true));
  }
}

/* The variants' ids of added tokens are not to be believed, and the library does not; here they are refused. */
static void number(cJSON *file) {
  const cJSON *vocab = cJSON_GetObjectItem(cJSON_GetObjectItem(file, "model"), "vocab");
  int next = cJSON_GetArraySize(vocab);
  cJSON *x;
  cJSON_ArrayForEach(x, cJSON_GetObjectItem(file, "added_tokens")) {
    const char *content = cJSON_GetObjectItem(x, "content")->valuestring;
    const cJSON *known = cJSON_IsObject(vocab) ? cJSON_GetObjectItemCaseSensitive(vocab, content) : NULL;
    if (cJSON_IsObject(vocab))
      cJSON_SetIntValue(cJSON_GetObjectItem(x, "id"), known ? known->valueint : next++);
  }
}

static ZtTokenizer *varied(ZbArena *a, const cJSON *variant, const char *what) {
  cJSON *file =
      text_json(a, zb_printf(a, "%s/tokenizer.json", cJSON_GetObjectItem(variant, "base")->valuestring));
  cJSON *set = cJSON_Duplicate(cJSON_GetObjectItem(variant, "set"), true);
  cJSON *model = cJSON_DetachItemFromObject(set, "model");
  replace(file, set);
  replace(cJSON_GetObjectItem(file, "model"), model);
  number(file);
  char *json = cJSON_PrintUnformatted(file);
  ZbErr err;
  ZtTokenizer *t = zt_read(json, strlen(json), what, &err);
  cr_assert(t, "%s", err.text);
  cJSON_free(json);
  cJSON_Delete(model);
  cJSON_Delete(set);
  cJSON_Delete(file);
  return t;
}

Test(variants, all) {
  ZbArena *a = zb_arena_new();
  cJSON *list = text_json(a, "variants.json"), *variant, *x;
  int cases = 0, variants = 0;
  cJSON_ArrayForEach(variant, list) {
    const char *note =
        zb_printf(a, "variant %d, %s", variants++, cJSON_GetObjectItem(variant, "note")->valuestring);
    ZtTokenizer *t = varied(a, variant, note);
    ZtCoder *c = zt_coder_new(t);
    cJSON_ArrayForEach(x, cJSON_GetObjectItem(variant, "cases")) {
      const char *text = cJSON_GetArrayItem(x, 0)->valuestring,
                 *decoded = cJSON_GetArrayItem(x, 2)->valuestring;
      const char *what = zb_printf(a, "%s: '%s'", note, text);
      size_t n;
      uint32_t *id = text_ids(a, cJSON_GetArrayItem(x, 1), &n);
      text_expect(c, text, strlen(text), ZT_AROUND, id, n, what);
      ZbText got = {0};
      ZbErr err;
      cr_assert(zt_decode(c, id, n, ZT_SKIP_SPECIAL, &got, &err), "%s: %s", what, err.text);
      cr_expect(!strcmp(got.s, decoded), "%s: '%s' instead of '%s'", what, got.s, decoded);
      zb_text_free(&got);
      cases++;
    }
    zt_coder_free(c);
    zt_free(t);
  }
  cr_expect(variants == 36 && cases == 388, "%d variants, %d cases", variants, cases);
  cJSON_Delete(list);
  zb_arena_free(a);
}

/* The pre-tokenizer Whitespace: its word characters are not those of \w (the library gave these words). */
Test(variants, whitespace) {
  static const char json[] = "{\"pre_tokenizer\": {\"type\": \"Whitespace\"}, \"model\": {\"type\": "
                             "\"WordPiece\", \"unk_token\": \"?\", "
                             "\"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 9, "
                             "\"vocab\": {\"?\": 0, \"\u00b2\u00bd\": 1, "
                             "\"a\u200db\": 2, \"\u2167\u0663\": 3, \"x\": 4, \"\u00bd\": 5}}}";
  static const char text[] = "\u00b2\u00bd a\u200db \u2167\u0663 x\u00bd";
  ZbErr err;
  ZtTokenizer *t = zt_read(json, strlen(json), "whitespace", &err);
  cr_assert(t, "%s", err.text);
  ZtCoder *c = zt_coder_new(t);
  text_expect(c, text, strlen(text), 0, (const uint32_t[]){1, 2, 3, 4, 5}, 5, "Whitespace");
  zt_coder_free(c);
  zt_free(t);
}

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

/* The base's file with the variant's parts. */
static cJSON *varied_file(ZbArena *a, const cJSON *variant) {
  cJSON *file =
      text_json(a, zb_printf(a, "%s/tokenizer.json", cJSON_GetObjectItem(variant, "base")->valuestring));
  cJSON *set = cJSON_Duplicate(cJSON_GetObjectItem(variant, "set"), true);
  cJSON *model = cJSON_DetachItemFromObject(set, "model");
  replace(file, set);
  replace(cJSON_GetObjectItem(file, "model"), model);
  number(file);
  cJSON_Delete(model);
  cJSON_Delete(set);
  return file;
}

static ZtTokenizer *take(const cJSON *file, const char *what, ZbErr *err) {
  char *json = cJSON_PrintUnformatted(file);
  ZtTokenizer *t = zt_read(json, strlen(json), what, err);
  cJSON_free(json);
  return t;
}

static ZtTokenizer *varied(ZbArena *a, const cJSON *variant, const char *what) {
  cJSON *file = varied_file(a, variant);
  ZbErr err;
  ZtTokenizer *t = take(file, what, &err);
  cr_assert(t, "%s", err.text);
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

/* What is for what nobody asks of here: pairs of texts, and where in a text a token was. In a decoder and a
 * post_processor what a pre_tokenizer reads means nothing. */
static bool unread(const char *part, const char *name) {
  static const char *const never[] = {"pair", "trim_offsets", "type_id", "tokens"};
  static const char *const later[] = {"add_prefix_space", "use_regex", "split"};
  if (!strcmp(name, "vocab") || !strcmp(name, "merges")) return true; /* read, and long */
  for (size_t i = 0; i < sizeof never / sizeof *never; i++)
    if (!strcmp(name, never[i])) return true;
  for (size_t i = 0; i < sizeof later / sizeof *later; i++)
    if (!strcmp(name, later[i])) return !strcmp(part, "decoder") || !strcmp(part, "post_processor");
  return false;
}

/* Each value in `at`, one after the other, becomes one of another kind; the file is refused each time. */
static int break_each(const cJSON *file, cJSON *at, const char *part) {
  int n = 0;
  for (cJSON *x = at->child; x; x = x->next) {
    const char *name = x->string ? x->string : "";
    if (unread(part, name) || (!strcmp(name, "id") && cJSON_HasObjectItem(at, "ids"))) continue;
    n += break_each(file, x, part) + 1;
    const cJSON was = *x;
    x->child = NULL;
    x->type = (was.type & ~0xff) | (was.child ? cJSON_Number : cJSON_Object);
    ZbErr err = {{0}, {0}};
    ZtTokenizer *t = take(file, "x.json", &err);
    cr_expect(!t, "another kind of %s in %s of %s is taken", name, at->string ? at->string : "a list", part);
    zt_free(t);
    *x = was;
  }
  return n;
}

/* Of all parts of the six files, and of those in which a variant differs. */
Test(variants, of_another_kind) {
  ZbArena *a = zb_arena_new();
  cJSON *list = text_json(a, "variants.json"), *variant;
  const char *before = "";
  int n = 0;
  cJSON_ArrayForEach(variant, list) {
    const char *base = cJSON_GetObjectItem(variant, "base")->valuestring;
    cJSON *file = varied_file(a, variant), *part;
    cJSON_ArrayForEach(part, file) {
      static const char *const read = "model normalizer pre_tokenizer decoder post_processor added_tokens";
      if (!strstr(read, part->string)) continue;
      if (!strcmp(before, base) && !cJSON_GetObjectItem(cJSON_GetObjectItem(variant, "set"), part->string))
        continue;
      n += break_each(file, part, part->string);
    }
    before = base;
    cJSON_Delete(file);
  }
  cr_expect(n > 300, "%d values", n);
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

/* A WordPiece whose vocabulary has nothing that continues a word; and what its decoder cleans up more than
 * once in a word. */
Test(variants, words_alone) {
  static const char json[] =
      "{\"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}, \"decoder\": {\"type\": \"WordPiece\", "
      "\"prefix\": \"##\", \"cleanup\": true}, \"model\": {\"type\": \"WordPiece\", \"unk_token\": \"?\", "
      "\"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 9, "
      "\"vocab\": {\"?\": 0, \"a\": 1, \"b\": 2, \"x . y . z , .\": 3}}}";
  ZbErr err;
  ZtTokenizer *t = zt_read(json, strlen(json), "words", &err);
  cr_assert(t, "%s", err.text);
  ZtCoder *c = zt_coder_new(t);
  text_expect(c, "a ab b", 6, 0, (const uint32_t[]){1, 0, 2}, 3, "words");
  ZbText got = {0};
  cr_assert(zt_decode(c, (const uint32_t[]){1, 3}, 2, 0, &got, &err), "%s", err.text);
  cr_expect(!strcmp(got.s, "a x. y. z,."), "'%s'", got.s);
  zb_text_free(&got);
  zt_coder_free(c);
  zt_free(t);
}

/* Merges over a blank: words do not fall apart there, wherever among the merges it is. */
Test(variants, merges_over_a_blank) {
  static const char json[] =
      "{\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\u2581\"}, "
      "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"\u2581\": 2, \"ab\": 3, \"ba\": 4, "
      "\"a\u2581\": 5, \"b\u2581\": 6, \"b\u2581a\": 7}, "
      "\"merges\": [\"b \u2581\", \"b\u2581 a\", \"a \u2581\", \"a b\", \"b a\"]}}";
  ZbErr err;
  ZtTokenizer *t = zt_read(json, strlen(json), "blanks", &err);
  cr_assert(t, "%s", err.text);
  ZtCoder *c = zt_coder_new(t);
  text_expect(c, "ab ab a", 7, 0, (const uint32_t[]){0, 7, 7}, 3, "merges over a blank");
  text_expect(c, "a a  b", 6, 0, (const uint32_t[]){5, 5, 2, 1}, 4, "merges over a blank");
  zt_coder_free(c);
  zt_free(t);
}

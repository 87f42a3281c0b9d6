/* Tokenizers that differ from the six in a part or two. */
#include "tests/unit/breadth.h"
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
  cr_expect(variants == 44 && cases == 451, "%d variants, %d cases", variants, cases);
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
    ZbErr err = {0};
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
  int n = 0, parts = 0;
  cJSON_ArrayForEach(variant, list) {
    const char *base = cJSON_GetObjectItem(variant, "base")->valuestring;
    cJSON *file = varied_file(a, variant), *part;
    cJSON_ArrayForEach(part, file) {
      static const char *const read = "model normalizer pre_tokenizer decoder post_processor added_tokens";
      if (!strstr(read, part->string)) continue;
      if (!strcmp(before, base) && !cJSON_GetObjectItem(cJSON_GetObjectItem(variant, "set"), part->string))
        continue;
      if (breadth_tries((size_t)parts++, 3)) n += break_each(file, part, part->string);
    }
    before = base;
    cJSON_Delete(file);
  }
  cr_expect(n > (at_night() ? 300 : 60), "%d values", n);
  cJSON_Delete(list);
  zb_arena_free(a);
}

/* ---- tokenizers so small that their ids can be counted by hand ---------------------------------------- */
#define MODEL(type, rest) "\"model\": {\"type\": \"" type "\", " rest "}}"
#define WORDS                                                                                                \
  "{\"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}, \"decoder\": {\"type\": \"WordPiece\", "             \
  "\"prefix\": \"##\", \"cleanup\": true}, " MODEL(                                                          \
      "WordPiece", "\"unk_token\": \"?\", \"continuing_subword_prefix\": \"##\", "                           \
                   "\"max_input_chars_per_word\": 3, \"vocab\": {\"?\": 0, \"a\": 1, \"b\": 2, "             \
                   "\"x . y . z , .\": 3, \"##bc\": 4}")
#define BYTES(regex) "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": " regex "}"
#define UNKNOWN_BYTES(fuse)                                                                                  \
  "{\"pre_tokenizer\": " BYTES("false") ", " MODEL("BPE",                                                    \
                                                   "\"unk_token\": \"u\", \"fuse_unk\": " fuse               \
                                                   ", \"vocab\": {\"a\": 0, \"u\": 1}, \"merges\": []")
#define UNIGRAM(rest)                                                                                        \
  "{" MODEL("Unigram", "\"byte_fallback\": true, \"vocab\": [[\"u\", 0], [\"a\", -1], "                      \
                       "[\"<0xC3>\", -9], [\"<0xA9>\", -9], [\"ab\", -4], [\"b\", -2]]" rest)
/* An unknown character costs ten more than the least likely token: 30 here, and the rest of the word
 * nothing. */
#define UNKNOWN_COSTS(ab)                                                                                    \
  "{" MODEL("Unigram",                                                                                       \
            "\"unk_id\": 0, \"vocab\": [[\"u\", 0], [\"ab\", " ab "], [\"cde\", -20], [\"bcde\", 0]]")

/* A blank after other pre-tokenizers than Metaspace, to the first word of a text or to each. */
#define METASPACE(scheme)                                                                                    \
  "{\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\", "                 \
  "\"individual_digits\": true}, {\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": "     \
  "\"" scheme "\"}]}, " MODEL("BPE", "\"vocab\": {\"_\": 0, \"a\": 1, \"1\": 2}, \"merges\": []")

/* Without a type a model is what it has: merges, a list, or else. */
#define UNTYPED(rest) "{\"model\": {" rest "}}"

static const struct {
  const char *json, *text; /* NULL: ids are decoded only */
  int n;
  uint32_t id[12];
  const char *decoded; /* NULL: a text is encoded only */
} small[] = {
    /* Whitespace: its word characters are not those of \w (the library gave these words). */
    {"{\"pre_tokenizer\": {\"type\": \"Whitespace\"}, " MODEL(
         "WordPiece",
         "\"unk_token\": \"?\", \"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 9, "
         "\"vocab\": {\"?\": 0, \"\u00b2\u00bd\": 1, \"a\u200db\": 2, \"\u2167\u0663\": 3, \"x\": 4, "
         "\"\u00bd\": 5}"),
     "\u00b2\u00bd a\u200db \u2167\u0663 x\u00bd",
     5,
     {1, 2, 3, 4, 5},
     NULL},
    /* A vocabulary in which one token continues words; words of as many characters as may be, and one
     * more. */
    {WORDS, "a ab b", 3, {1, 0, 2}, NULL},
    {WORDS, "abc abcd", 3, {1, 4, 0}, "abc?"},
    /* What is cleaned up more than once in a word. */
    {WORDS, NULL, 2, {1, 3}, "a x. y. z,."},
/* Merges over a blank: words do not fall apart there, wherever among the merges it is. */
#define OVER_BLANKS                                                                                          \
  "{\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": "                 \
  "\"\u2581\"}, " MODEL(                                                                                     \
      "BPE", "\"vocab\": {\"a\": 0, \"b\": 1, \"\u2581\": 2, \"ab\": 3, \"ba\": 4, \"a\u2581\": 5, "         \
             "\"b\u2581\": 6, \"b\u2581a\": 7}, \"merges\": [\"b \u2581\", \"b\u2581 a\", \"a \u2581\", "    \
             "\"a b\", \"b a\"]")
    {OVER_BLANKS, "ab ab a", 3, {0, 7, 7}, NULL},
    {OVER_BLANKS, "a a  b", 4, {5, 5, 2, 1}, NULL},
/* Characters that go on with a word, and the last of it, are other tokens. */
#define PARTS_OF_WORDS                                                                                       \
  "{" MODEL("BPE", "\"continuing_subword_prefix\": \"##\", \"end_of_word_suffix\": \"$\", \"vocab\": "       \
                   "{\"a\": 0, \"##b\": 1, \"##a$\": 2, \"a$\": 3, \"ab\": 4, \"##\u00e9$\": 5, \"aba$\": "  \
                   "6}, \"merges\": [\"a ##b\"]")
    {PARTS_OF_WORDS, "aba", 2, {4, 2}, NULL},
    {PARTS_OF_WORDS, "a", 1, {3}, NULL},
    {PARTS_OF_WORDS, "ab\u00e9", 2, {4, 5}, NULL},
    {PARTS_OF_WORDS, "b", 0, {0}, NULL}, /* "b$" is none */
    {UNKNOWN_COSTS("-10.5"), "abcde", 2, {0, 3}, NULL},
    {UNKNOWN_COSTS("-9.5"), "abcde", 2, {1, 2}, NULL},
    /* Bytes that are no token. */
    {UNKNOWN_BYTES("false"), "a!!a", 4, {0, 1, 1, 0}, NULL},
    {UNKNOWN_BYTES("true"), "a!!a", 3, {0, 1, 0}, NULL},
/* Bytes as characters, of which another pre-tokenizer makes words: no merge over their ends. */
#define MAPPED(regex)                                                                                        \
  "{\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [" BYTES(                                 \
      regex) ", {\"type\": "                                                                                 \
             "\"Digits\", \"individual_digits\": true}]}, " MODEL(                                           \
                 "BPE", "\"vocab\": {\"a\": 0, \"\u0120\": 1, \"\u00c3\": 2, \"\u00a9\": 3, \"1\": 4, "      \
                        "\"a\u0120\": 5, "                                                                   \
                        "\"\u00a91\": 6, \"\u00c3\u00a9\": 7, \"11\": 8}, \"merges\": [\"a \u0120\", "       \
                        "\"\u00a9 1\", "                                                                     \
                        "\"\u00c3 \u00a9\", \"1 1\"]")
    {MAPPED("true"), "a \u00e911", 5, {0, 1, 7, 4, 4}, NULL},
    {MAPPED("false"), "a \u00e911", 4, {5, 7, 4, 4}, NULL},
    {MAPPED("true"), "", 0, {0}, NULL},
    {METASPACE("first"), "a1a", 4, {0, 1, 2, 1}, NULL},
    {METASPACE("always"), "a1a", 6, {0, 1, 0, 2, 0, 1}, NULL},
    {METASPACE("never"), "a1a", 3, {1, 2, 1}, NULL},
    /* The token for what is unknown stands in the text; what is unknown is in bytes; the better way of
     * two. */
    {UNIGRAM(", \"unk_id\": 0"), "u", 1, {0}, NULL},
    {UNIGRAM(", \"unk_id\": 0"), "a\u00e9", 3, {1, 2, 3}, NULL},
    {UNIGRAM(", \"unk_id\": 0"), "a\u00e8b", 3, {1, 0, 5}, NULL},
    {UNIGRAM(", \"unk_id\": 0"), "ab", 2, {1, 5}, NULL},
    {UNTYPED("\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]"), "abb", 2, {2, 1}, NULL},
    {UNTYPED("\"vocab\": [[\"a\", -1], [\"aa\", -1]], \"unk_id\": 0"), "aaa", 2, {0, 1}, NULL},
    {UNTYPED("\"unk_token\": \"a\", \"continuing_subword_prefix\": \"#\", \"max_input_chars_per_word\": 9, "
             "\"vocab\": {\"a\": 0, \"b\": 1, \"#c\": 2}"),
     "bc",
     2,
     {1, 2},
     NULL},
    {"{\"normalizer\": {\"type\": \"StripAccents\"}, " MODEL(
         "BPE", "\"vocab\": {\"e\": 0, \"\u00e9\": 1}, \"merges\": []"),
     "e\u0301\u00e9\u0308e",
     3,
     {0, 1, 0},
     NULL},
    {"{\"post_processor\": {\"type\": \"BertProcessing\", \"cls\": [\"c\", 2], \"sep\": [\"b\", 1]}, " MODEL(
         "BPE", "\"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2}, \"merges\": []"),
     "aa",
     4,
     {2, 0, 0, 1},
     NULL},
/* Decoders: a run of bytes that is not UTF-8, one by one; what is cut off at both ends, no more than is
 * said. */
#define DECODER(type, rest)                                                                                  \
  "{\"decoder\": {\"type\": \"" type "\"" rest                                                               \
  "}, " MODEL("BPE", "\"vocab\": {\"<0xC3>\": 0, \"<0xa9>\": 1, \"<0x4>\": 2, \"__a____\": 3, \"_\": 4}, "   \
                     "\"merges\": []")
    {DECODER("ByteFallback", ""), NULL, 5, {0, 1, 0, 0, 2}, "\ufffd\ufffd\ufffd\ufffd<0x4>"},
    {DECODER("ByteFallback", ""), NULL, 4, {2, 0, 1, 2}, "<0x4>\u00e9<0x4>"},
    {DECODER("Strip", ", \"content\": \"_\", \"start\": 1, \"stop\": 3"), NULL, 2, {3, 4}, "_a_"},
    {DECODER("Sequence", ", \"decoders\": [" BYTES("true") ", {\"type\": \"Strip\", \"content\": \"_\", "
                                                           "\"start\": 1, \"stop\": 0}]"),
     NULL,
     2,
     {3, 0},
     "_a____<0xC3>"},
    {DECODER("Strip", ", \"content\": \"_\", \"start\": 3, \"stop\": 0"), NULL, 1, {3}, "a____"},
};

Test(variants, small) {
  for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
    ZbErr err;
    const char *what = small[i].text ? small[i].text : small[i].decoded;
    ZtTokenizer *t = zt_read(small[i].json, strlen(small[i].json), what, &err);
    cr_assert(t, "%s", err.text);
    ZtCoder *c = zt_coder_new(t);
    if (small[i].text)
      text_expect(c, small[i].text, strlen(small[i].text), ZT_AROUND, small[i].id, (size_t)small[i].n, what);
    ZbText got = {0};
    if (small[i].decoded) {
      cr_assert(zt_decode(c, small[i].id, (size_t)small[i].n, 0, &got, &err), "%s: %s", what, err.text);
      cr_expect(!strcmp(got.s, small[i].decoded), "%s: '%s'", what, got.s);
    }
    zb_text_free(&got);
    zt_coder_free(c);
    zt_free(t);
  }
}

/* A model without a token for what is unknown does not pass over it. */
Test(variants, nothing_for_what_is_unknown) {
  static const char json[] = UNIGRAM("");
  ZbErr err;
  ZtTokenizer *t = zt_read(json, strlen(json), "x.json", &err);
  cr_assert(t, "%s", err.text);
  ZtCoder *c = zt_coder_new(t);
  ZtIds got = {0};
  text_expect(c, "ab", 2, 0, (const uint32_t[]){1, 5}, 2, "known");
  cr_expect(!zt_encode(c, "axyb", 4, 0, &got, &err));
  cr_expect(strstr(err.text, "the text has xy, and the tokenizer's model no unk_id"), "%s", err.text);
  zt_ids_free(&got);
  zt_coder_free(c);
  zt_free(t);
}

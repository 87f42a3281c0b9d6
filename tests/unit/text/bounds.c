/* What a tokenizer's file makes of a text is bounded, and so is the time that it takes: such files may be
 * anybody's. */
#include "tests/unit/text/files.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\" \":1},\"merges\":[]}"
#define SPLIT "{\"type\":\"Split\",\"pattern\":{\"Regex\":\".\"},\"behavior\":\"Isolated\",\"invert\":false}"
#define BYTES "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"
#define SPACE(s) "{\"type\":\"Metaspace\",\"replacement\":\"" s "\",\"prepend_scheme\":\"always\"}," SPLIT
#define AAAA "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aaaaaaaa\"}"
#define TIMES8(x) x "," x "," x "," x "," x "," x "," x "," x

static ZtTokenizer *taken(const char *json) {
  ZbErr err;
  ZtTokenizer *t = zt_read(json, strlen(json), "it", &err);
  cr_assert(t, "%s", err.text);
  return t;
}

static bool grows(const ZbErr *err) { return strstr(err->text, "grows beyond") && *err->help; }

/* Every part of a file that writes, chained. */
Test(bounds, growth) {
  static const char *const files[] = {
      "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[" TIMES8(AAAA) "]}," MODEL "}",
      "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" TIMES8(BYTES) "," TIMES8(
          BYTES) "," TIMES8(BYTES) "," SPLIT "]}," MODEL "}",
      "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" TIMES8(
          SPACE("x") "," SPACE("y")) "," TIMES8(SPACE("x") "," SPACE("y")) "]}," MODEL "}",
  };
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    ZtTokenizer *t = taken(files[i]);
    ZtCoder *c = zt_coder_new(t);
    ZtIds ids = {0};
    ZbErr err;
    cr_expect(!zt_encode(c, "a\303\251", 3, 0, &ids, &err) && grows(&err), "file %zu: %s", i, err.text);
    cr_expect(zt_encode(c, "", 0, 0, &ids, &err), "the next text: %s", err.text);
    zt_ids_free(&ids);
    zt_coder_free(c);
    zt_free(t);
  }
}

/* Of many pieces, each of which grows by little. */
Test(bounds, growth_by_pieces) {
  enum { N = 2000 };
  ZbText json = {0};
  zb_text_add(&json,
              "{\"added_tokens\":[{\"id\":2,\"content\":\"b\",\"single_word\":false,\"lstrip\":false,"
              "\"rstrip\":false,"
              "\"normalized\":false,\"special\":false}],\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"%"
              "01000d\"}," MODEL "}",
              0);
  ZtTokenizer *t = taken(json.s);
  ZtCoder *c = zt_coder_new(t);
  ZtIds ids = {0};
  ZbErr err;
  char text[2 * N];
  for (int i = 0; i < N; i++) memcpy(text + 2 * i, "ab", 2);
  cr_expect(zt_encode(c, text, 40, 0, &ids, &err), "%s", err.text);
  cr_expect(!zt_encode(c, text, sizeof text, 0, &ids, &err) && grows(&err), "%s", err.text);
  zb_text_free(&json);
  zt_ids_free(&ids);
  zt_coder_free(c);
  zt_free(t);
}

/* U+FDFA is what NFKC makes most of: 18 characters of 33 bytes, which ByteLevel doubles. */
Test(bounds, what_unicode_makes_is_taken) {
  enum { N = 100000 };
  ZtTokenizer *t = taken(
      "{\"normalizer\":{\"type\":\"NFKC\"},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" BYTES
      "," SPLIT "]}," MODEL "}");
  ZtCoder *c = zt_coder_new(t);
  ZtIds ids = {0};
  ZbErr err;
  char *text = malloc(3 * N);
  for (int i = 0; i < N; i++) memcpy(text + 3 * i, "\357\267\272", 3);
  cr_expect(zt_encode(c, text, 3 * N, 0, &ids, &err), "%s", err.text);
  free(text);
  zt_ids_free(&ids);
  zt_coder_free(c);
  zt_free(t);
}

Test(bounds, decoded) {
  ZtTokenizer *t = taken("{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[" TIMES8(AAAA) "]}," MODEL "}");
  ZtCoder *c = zt_coder_new(t);
  ZbText text = {0};
  ZbErr err;
  cr_expect(!zt_decode(c, (uint32_t[]){0}, 1, 0, &text, &err) && grows(&err), "%s", err.text);
  zb_text_free(&text);
  zt_coder_free(c);
  zt_free(t);
}

static void refused(const char *begin, const char *each, int n, const char *end, const char *says) {
  ZbText json = {0};
  ZbErr err;
  zb_text_add(&json, "%s", begin);
  for (int i = 0; i < n; i++) zb_text_add(&json, "%s%s", i ? "," : "", each);
  zb_text_add(&json, "%s", end);
  ZtTokenizer *t = zt_read(json.s, json.len, "it", &err);
  cr_expect(!t && strstr(err.text, says), "%s: %s", says, t ? "it is taken" : err.text);
  zt_free(t);
  zb_text_free(&json);
}

/* Each pre-tokenizer calls the next, and a template's tokens go around every text. */
Test(bounds, parts) {
  static const char unigram[] =
      "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"u\",0],[\"%0*d\",-1]]}}";
  refused("{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[", SPLIT, 300, "]}," MODEL "}",
          "pre_tokenizer: it has more than 256 parts");
  refused("{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[", "{\"type\":\"NFC\"}", 300,
          "]}," MODEL "}", "normalizer: it has more than 256 parts");
  refused("{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[",
          "{\"SpecialToken\":{\"id\":\"x\"}}", 300, "],\"special_tokens\":{\"x\":{\"ids\":[]}}}," MODEL "}",
          "`single` has more than 256 parts");
  refused("{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}},"
          "{\"SpecialToken\":{\"id\":\"x\"}}],\"special_tokens\":{\"x\":{\"ids\":[",
          "0", 300, "]}}}," MODEL "}", "more than 256 tokens go around a text");
  char json[2048];
  snprintf(json, sizeof json, unigram, 1025, 0);
  refused(json, "", 0, "", "the token with id 1 has 1025 bytes; one of Unigram has 1024 at most");
  snprintf(json, sizeof json, unigram, 1024, 0);
  zt_free(taken(json));
}

/* An added token that takes the white space behind it, in a text of nothing else: each was followed to the
 * end. */
Test(bounds, white_space_behind_added_tokens) {
  enum { N = 400000 };
  ZtTokenizer *t = taken(
      "{\"added_tokens\":[{\"id\":1,\"content\":\" \",\"single_word\":false,\"lstrip\":false,\"rstrip\":true,"
      "\"normalized\":false,\"special\":false}]," MODEL "}");
  ZtCoder *c = zt_coder_new(t);
  ZtIds ids = {0};
  ZbErr err;
  char *text = malloc(N);
  memset(text, ' ', N);
  clock_t begin = clock();
  cr_expect(zt_encode(c, text, N, 0, &ids, &err), "%s", err.text);
  cr_expect((double)(clock() - begin) / CLOCKS_PER_SEC < 20, "that took too long");
  cr_expect_eq(ids.n, N); /* as the library has it */
  free(text);
  zt_ids_free(&ids);
  zt_coder_free(c);
  zt_free(t);
}

/* A value takes some eighty bytes, so they are counted before. */
Test(bounds, values) {
  refused("{\"model\":{\"merges\":[", "1", 100000, "]}}", "values in 200022 bytes; at most");
}

/* A tokenizer.json that is broken, or has what is not supported, is refused with what it is. */
#include "tests/unit/text/files.h"

#include <stdlib.h>
#include <string.h>

#define BPE(rest)                                                                                            \
  "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]}" rest  \
  "}"
/* Seventeen Sequences, one in the other. */
#define IN "{\"type\": \"Sequence\", \"normalizers\": ["
#define OUT "]}"
#define TWICE(x) x x
#define FOUR(x) x x x x

static const struct {
  const char *json, *says;
} refused[] = {
    {"", "it is not JSON (byte 0)"},
    {"{\"model\": ", "it is not JSON"},
    {"{} x", "it is not JSON (byte 3)"},
    {"[]", "it is not a JSON object"},
    {"{}", "it has no `model`"},
    {"{\"model\": {\"type\": \"WordLevel\", \"vocab\": {}}}", "the model WordLevel is not supported"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": [], \"merges\": []}}", "model: `vocab` is not an object"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": -1}, \"merges\": []}}",
     "the id of the token a is not a whole"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 99999999}, \"merges\": []}}",
     "not a whole number below"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []}}",
     "the tokens a and b both have id 0"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"a\": 1}, \"merges\": []}}",
     "the token a is there twice"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a b\"]}}",
     "merge 0 has the token b"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a a\"]}}",
     "merge 0 makes the token aa"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a a a\"]}}",
     "merge 0 is not two tokens"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [[\"a\"]]}}",
     "merge 0 is not two tokens"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [], \"unk_token\": \"u\"}}",
     "the unk_token u is not in"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [], \"fuse_unk\": 1}}",
     "`fuse_unk` is neither true"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [], \"dropout\": 0.1}}",
     "`dropout` is not supported"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}}}", "model: `merges` is not a list"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"\xff\": 0}, \"merges\": []}}",
     "the token with id 0 is not UTF-8"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"\\u0000\": 0}, \"merges\": []}}", "the character U+0000"},
    {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\"]]}}",
     "entry 0 of `vocab` is not a token and its score"},
    {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\", -1]], \"unk_id\": 1}}",
     "`unk_id` is not a whole number from 0 to 0"},
    {"{\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"a\": 0}}}", "model: `unk_token` is missing"},
    {BPE(", \"normalizer\": {\"type\": \"Nmt\"}"), "the normalizer Nmt is not supported"},
    {BPE(", \"normalizer\": {}"), "normalizer: `type` is missing"},
    {BPE(", \"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"!!\"}"), "is not base64"},
    {BPE(", \"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"/////wAAAAA=\"}"),
     "a table of 4294967295 bytes in 8"},
    {BPE(", \"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"BAAAAA==\"}"),
     "is too short"},
    {BPE(", \"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"BAAAAAAAAAD/\"}"),
     "its replacements are no UTF-8"},
    {BPE(", \"normalizer\": {\"type\": 3}"), "normalizer: `type` is not text"},
    {BPE(", \"normalizer\": {\"type\": \"\xff\"}"), "normalizer: `type` is not UTF-8"},
    {BPE(", \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": 3}"),
     "normalizer Sequence: `normalizers` is not a list"},
    {BPE(", \"normalizer\": " TWICE(TWICE(TWICE(TWICE(IN)))) IN
         "{\"type\": \"NFC\"}" TWICE(TWICE(TWICE(TWICE(OUT)))) OUT),
     "normalizer: Sequences are nested too deeply"},
    {BPE(", \"normalizer\": {\"type\": \"Replace\", \"pattern\": {}, \"content\": \"\"}"),
     "`pattern` is neither {\"String\": ...} nor {\"Regex\": ...}"},
    {BPE(", \"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"Regex\": \"x*\"}, \"content\": \"\"}"),
     "normalizer Replace: the regular expression x* may match nothing"},
    {BPE(", \"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \"\"}, \"content\": \"\"}"),
     "a pattern of 0 bytes"},
    {BPE(", \"pre_tokenizer\": {\"type\": \"ByteLevel\"}"),
     "pre_tokenizer ByteLevel: `add_prefix_space` is missing"},
    {BPE(", \"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"ab\"}"),
     "pre_tokenizer Metaspace: `replacement` is not one character"},
    {BPE(", \"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"\"}"),
     "pre_tokenizer Metaspace: `replacement` is not one character"},
    {BPE(", \"pre_tokenizer\": {\"type\": \"UnicodeScripts\"}"),
     "the pre_tokenizer UnicodeScripts is not supported"},
    {BPE(", \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(a\"}, \"behavior\": "
         "\"Isolated\", \"invert\": false}"),
     "the regular expression (a: missing closing parenthesis"},
    {BPE(", \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"[a&&b]\"}, \"behavior\": "
         "\"Isolated\", \"invert\": false}"),
     "has && in a class, which is not supported (in the pattern of pre_tokenizer Split)"},
    {BPE(", \"pre_tokenizer\": {\"type\": \"Punctuation\", \"behavior\": \"Removes\"}"),
     "pre_tokenizer Punctuation: the behavior Removes is not supported"},
    {BPE(", \"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": "
         "\"last\"}"),
     "pre_tokenizer Metaspace: the prepend_scheme last is not supported"},
    {BPE(", \"decoder\": {\"type\": \"CTC\"}"), "the decoder CTC is not supported"},
    {BPE(", \"decoder\": {\"type\": \"Metaspace\", \"replacement\": \"\"}"),
     "decoder Metaspace: `replacement` is empty"},
    {BPE(", \"decoder\": {\"type\": \"Strip\", \"content\": \"\", \"start\": 0, \"stop\": 0}"),
     "decoder Strip: `content` is empty"},
    {BPE(", \"post_processor\": {\"type\": \"Template\"}"), "the post_processor Template is not supported"},
    {BPE(", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": 3}"),
     "`single` is not a list"},
    {BPE(", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [3]}"),
     "`single` has neither token nor text"},
    {BPE(", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": "
         "\"B\"}}]}"),
     "has not the text A, once"},
    {BPE(", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": "
         "\"A\"}}, "
         "{\"Sequence\": {\"id\": \"A\"}}]}"),
     "has not the text A, once"},
    {BPE(", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": "
         "\"x\"}}], \"special_tokens\": {\"x\": {\"ids\": [3]}}}"),
     "an id of x is none of the tokenizer's 3"},
    {BPE(", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": "
         "\"x\"}}]}"),
     "no ids for x in `special_tokens`"},
    {BPE(", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": []}"),
     "has not the text A, once"},
    {BPE(", \"post_processor\": {\"type\": \"BertProcessing\", \"cls\": [\"a\", 9], \"sep\": [\"a\", 0]}"),
     "`cls` is not a token and its id"},
    {BPE(", \"added_tokens\": {}"), "`added_tokens` is not a list"},
    {BPE(", \"added_tokens\": [{\"id\": 7, \"content\": \"<s>\", \"single_word\": false, \"lstrip\": false, "
         "\"rstrip\": false, \"normalized\": false, \"special\": true}]"),
     "<s> has id 7, but programs that read this file count it as 3"},
};

Test(broken, refused) {
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    ZbErr err = {0};
    ZtTokenizer *t = zt_read(refused[i].json, strlen(refused[i].json), "x.json", &err);
    cr_expect(!t, "%s is taken", refused[i].json);
    cr_expect(strstr(err.text, refused[i].says) && strstr(err.text, "x.json"), "%s: '%s'", refused[i].json,
              err.text);
    zt_free(t);
  }
}

/* Tokenizers of other programs are said to be that, with how to come to what is read. Files that only begin
 * alike are not taken for one. */
Test(broken, of_other_programs) {
  static const struct {
    const char *text, *says;
  } cases[] = {{"\n\016\n\005<unk>\025", "it is a SentencePiece model"},
               {"\n\205\001\n\174" FOUR(FOUR("abcdefg")) "abcdefghijkl\025", "it is a SentencePiece model"},
               {"IQ== 0\nIg== 1\n", "it is a list of tiktoken's ranks"},
               {"IQ== 0\r\nIg== 1\r\n", "it is a list of tiktoken's ranks"},
               {"{\"a\": 0, \"b\": 1}", "it has no `model`"},
               {"{\"model\": 3}", "it has no `model`"},
               {"\n\016\n\005<unk>\024", NULL},
               {"\n\016\n\177<unk>\025", NULL},
               {"\n\016\n", NULL},
               {"\n\377\377\377\377\377\377\377\377", NULL},
               {"IQ= 0\n", NULL},
               {"IQ== 1\n", NULL},
               {"IQ== 0", NULL},
               {" x 0\n", NULL}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ZbErr err = {0};
    size_t n = strlen(cases[i].text);
    char *text = malloc(n); /* of just as many bytes */
    cr_assert(text);
    memcpy(text, cases[i].text, n);
    cr_expect(!zt_read(text, n, "tokenizer.model", &err));
    cr_expect(strstr(err.text, cases[i].says ? cases[i].says : "it is not JSON"), "%zu: %s", i, err.text);
    cr_expect_eq(!cases[i].says, !strstr(err.help, "tokenizer.json"), "%zu: %s", i, err.help);
    free(text);
  }
}

/* A folder without one says so, too. */
Test(broken, no_file_in_a_folder) {
  ZbErr err = {0};
  cr_expect(!zt_load("/proc/self/fdinfo", &err));
  cr_expect(strstr(err.text, "fdinfo/tokenizer.json") && strstr(err.help, "transformers"), "%s; %s", err.text,
            err.help);
}

Test(broken, no_file) {
  ZbErr err;
  cr_expect(!zt_load("/nonexistent/tokenizer.json", &err));
  cr_expect(strstr(err.text, "/nonexistent/tokenizer.json"));
}

Test(broken, too_large) {
  ZbErr err;
  cr_expect(!zt_read("{}", (size_t)ZT_FILE_LIMIT + 1, "x.json", &err)); /* nothing of it is read */
  cr_expect(strstr(err.text, "x.json as a tokenizer: it has 67108865 bytes; at most 67108864 are read"), "%s",
            err.text);
}

Test(broken, begins_well) { /* what the refused ones are changes of */
  ZbErr err;
  ZtTokenizer *t = zt_read(BPE(""), strlen(BPE("")), "x.json", &err);
  cr_assert(t, "%s", err.text);
  ZtCoder *c = zt_coder_new(t);
  text_expect(c, "abba", 4, 0, (const uint32_t[]){2, 1, 0}, 3, "abba");
  zt_coder_free(c);
  zt_free(t);
}

Test(broken, no_merges) { /* is not broken: each character is a token */
  static const char json[] =
      "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": []}}";
  ZbErr err;
  ZtTokenizer *t = zt_read(json, strlen(json), "x.json", &err);
  cr_assert(t, "%s", err.text);
  ZtCoder *c = zt_coder_new(t);
  text_expect(c, "abba", 4, 0, (const uint32_t[]){0, 1, 1, 0}, 4, "abba");
  zt_coder_free(c);
  zt_free(t);
}

/* An added token has 1 to 1024 bytes. */
Test(broken, added_tokens_are_short) {
  for (int n = 1023; n <= 1025; n++) {
    char name[1100], json[2400];
    memset(name, 'x', sizeof name);
    name[n] = 0;
    snprintf(json, sizeof json,
             BPE(", \"added_tokens\": [{\"id\": 3, \"content\": \"%s\", \"single_word\": false, \"lstrip\": "
                 "false, \"rstrip\": false, \"normalized\": false, \"special\": true}]"),
             name);
    ZbErr err = {0};
    ZtTokenizer *t = zt_read(json, strlen(json), "x.json", &err);
    cr_expect_eq(t != NULL, n <= 1024, "%d bytes: '%s'", n, err.text);
    cr_expect(t || strstr(err.text, "the one with id 3 has 1025 bytes; it has 1 to 1024"), "%s", err.text);
    zt_free(t);
  }
}

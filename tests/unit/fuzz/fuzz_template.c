/* Fuzz target: any bytes as a chat template, and behind it, from a line of "=" on, a JSON object with `messages`, and
 * perhaps `tools` and `more`. What is rendered is UTF-8, its spans lie in it in their order, and its ids are its text. Some
 * of these ids are learned, or an error says why not. */
#include "runtime/text/template/template.h"

#include <cjson/cJSON.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Bytes from 32 to 126 and a line's end, and two special tokens. */
static ZtTokenizer *tokenizer(void) {
  ZbText t = {0};
  ZbErr err;
  zb_text_add(&t, "{\"added_tokens\": [");
  for (uint32_t i = 0; i < 2; i++)
    zb_text_add(
        &t,
        "%s{\"id\": %u, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
        "\"normalized\": %s, \"special\": true}",
        i ? ", " : "", 256 + i, i ? "[M]" : "<s>", i ? "true" : "false");
  zb_text_add(&t,
              "], \"normalizer\": {\"type\": \"NFC\"}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
              "\"add_prefix_space\": false, \"use_regex\": false}, \"decoder\": {\"type\": \"ByteLevel\"}, "
              "\"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {");
  for (uint32_t b = 0, others = 0; b < 256; b++) {
    bool seen = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    char c[4], key[5] = {0};
    memcpy(key, c, zb_utf8(c, seen ? b : 256 + others++));
    zb_text_add(&t, "%s\"%s%s\": %u", b ? ", " : "", b == '"' || b == '\\' ? "\\" : "", key, b);
  }
  zb_text_add(&t, "}}}");
  ZtTokenizer *x = zt_read(t.s, t.len, "t", &err);
  if (!x) ZB_BUG("%s", err.text);
  zb_text_free(&t);
  return x;
}

static void check_spans(const ZtSpan *span, size_t n, size_t length) {
  for (size_t i = 0, at = 0; i < n; i++) {
    if (span[i].begin < at || span[i].end <= span[i].begin || span[i].end > length) ZB_BUG("span %zu", i);
    at = span[i].end;
  }
}

/* No special token begins where a span has a byte of it. */
static void check_ids(const ZtTemplate *t, const ZtRendered *r) {
  static ZtTokenizer *z;
  if (!z) z = tokenizer();
  ZtCoder *c = zt_coder_new(z);
  ZtIds ids = {0};
  ZbErr err;
  if (zt_template_encode(t, c, r, NULL, &ids, &err)) {
    size_t special = 0, open = 0;
    for (size_t i = 0; i < ids.n; i++) special += ids.id[i] >= 256;
    for (size_t at = 0, k = 0; at + 3 <= r->text.len; at++) {
      while (k < r->ngiven && r->given[k].end <= at) k++;
      bool free = k == r->ngiven || r->given[k].begin >= at + 3;
      open += free && (!memcmp(r->text.s + at, "<s>", 3) || !memcmp(r->text.s + at, "[M]", 3));
    }
    if (special > open) ZB_BUG("%zu special tokens, of which the template wrote %zu", special, open);
  }
  zt_ids_free(&ids);
  zt_coder_free(c);
}

/* Learning gives a byte for each id, of which the first ones are those of the text; and one at least is learned. */
static void learn(const ZtTemplate *t, ZtChat chat) {
  static ZtTokenizer *z;
  if (!z) z = tokenizer();
  ZtCoder *c = zt_coder_new(z);
  chat.add_generation_prompt = chat.continue_final_message = false;
  for (ZtLearn what = ZT_LEARN_ASSISTANT; what <= ZT_LEARN_ALL; what++) {
    ZtIds ids = {0};
    ZbText learned = {0};
    ZbErr err = {0};
    bool ok = zt_template_learn(t, c, &chat, &(ZtLearning){what, 0}, &ids, &learned, &err);
    if (!ok && !*err.text) ZB_BUG("nothing is learned, and no message says why");
    if (ok && learned.len != ids.n) ZB_BUG("%zu ids, and %zu are learned or not", ids.n, learned.len);
    for (size_t i = 0; i < learned.len; i++)
      if ((uint8_t)learned.s[i] > 1) ZB_BUG("token %zu is learned %d times", i, learned.s[i]);
    zt_ids_free(&ids);
    zb_text_free(&learned);
  }
  zt_coder_free(c);
}

static void render(const ZtTemplate *t, const cJSON *o) {
  ZtChat chat = {.messages = cJSON_GetObjectItemCaseSensitive(o, "messages"),
                 .tools = cJSON_GetObjectItemCaseSensitive(o, "tools"),
                 .more = cJSON_GetObjectItemCaseSensitive(o, "more"),
                 .now = 1753000000};
  for (int i = 0; i < 2; i++) {
    ZtRendered r;
    ZbErr err;
    chat.add_generation_prompt = !i;
    chat.continue_final_message = i;
    if (zt_template_apply(t, &chat, &r, &err)) {
      if (zt_utf8_valid(r.text.s, r.text.len) < r.text.len) ZB_BUG("half a character is rendered");
      check_spans(r.given, r.ngiven, r.text.len);
      check_spans(r.generated, r.ngenerated, r.text.len);
      check_ids(t, &r);
    }
    zt_rendered_free(&r);
  }
  learn(t, chat);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static const char mark[] = "\n====\n",
                    usual[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a<s>[M]\"}]}";
  const char *source = (const char *)data, *text = usual;
  size_t source_n = n, text_n = strlen(usual);
  for (size_t i = 0; i + sizeof mark - 1 <= n; i++)
    if (!memcmp(source + i, mark, sizeof mark - 1)) {
      source_n = i;
      text = source + i + sizeof mark - 1;
      text_n = n - i - (sizeof mark - 1);
    }
  ZbErr err;
  ZtTemplate *t = zt_template_new(source, source_n, "t", &err);
  cJSON *o = t ? zb_json_parse(text, text_n, ZB_JSON_ANY, &err) : NULL;
  if (o) render(t, o);
  cJSON_Delete(o);
  zt_template_free(t);
  return 0;
}

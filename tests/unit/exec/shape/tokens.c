#include "tests/unit/exec/shape/tokens.h"

#include <criterion/criterion.h>

/* Writes bytes as byte-level tokenizers do: each as a character, itself where that can be seen. */
static void key(char *out, const char *s, size_t n) {
  for (size_t i = 0; i < n; i++) {
    uint32_t c = (uint8_t)s[i], others = 0;
    for (uint32_t b = 0; b < c; b++) others += !((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174);
    bool seen = (c >= 33 && c <= 126) || (c >= 161 && c <= 172) || c >= 174;
    out += zb_utf8(out, seen ? c : 256 + others);
  }
  *out = 0;
}

ZtTokenizer *tokens_new(const char *const *piece, uint32_t n, const char *without) {
  ZbText t = {0};
  ZbJson j = {.text = &t};
  ZbErr err = {0};
  char name[256];
  zb_json_object(&j, NULL);
  zb_json_list(&j, "added_tokens");
  zb_json_object(&j, NULL);
  zb_json_count(&j, "id", 256 + n);
  zb_json_string(&j, "content", "<|end|>");
  zb_json_bool(&j, "special", true);
  for (int i = 0; i < 4; i++)
    zb_json_bool(&j, (const char *const[]){"single_word", "lstrip", "rstrip", "normalized"}[i], false);
  zb_json_end(&j);
  zb_json_end(&j);
  for (int i = 0; i < 2; i++) {
    zb_json_object(&j, i ? "decoder" : "pre_tokenizer");
    zb_json_string(&j, "type", "ByteLevel");
    zb_json_bool(&j, "add_prefix_space", false);
    zb_json_bool(&j, "use_regex", false);
    zb_json_end(&j);
  }
  zb_json_object(&j, "model");
  zb_json_string(&j, "type", "BPE");
  zb_json_object(&j, "vocab");
  for (uint32_t id = 0; id < 256 + n; id++) {
    char byte = (char)id;
    bool gone = id < 256 && id && strchr(without, (int)id);
    if (gone) snprintf(name, sizeof name, "gone%u", id);
    else key(name, id < 256 ? &byte : piece[id - 256], id < 256 ? 1 : strlen(piece[id - 256]));
    zb_json_count(&j, name, id);
  }
  zb_json_end(&j);
  zb_json_list(&j, "merges");
  zb_json_end(&j);
  zb_json_end(&j);
  zb_json_end(&j);
  ZtTokenizer *x = zt_read(t.s, t.len, "pieces", &err);
  cr_assert(x, "%s", err.text);
  zb_text_free(&t);
  return x;
}

uint32_t tokens_end(const ZtTokenizer *t) { return zt_size(t) - 1; }

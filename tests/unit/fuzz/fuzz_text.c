/* Fuzz target: any bytes as a tokenizer.json, and behind it, from a line of "=" on, a text. What loads
 * encodes and decodes, with ids below its size; where nothing is lost, the text comes back, at once and token by
 * token. */
#include "runtime/text/text.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* The second half as an answer to the first: pieces, and all of them. */
static void in_pieces(const ZtTokenizer *t, ZtCoder *c, const ZtIds *ids, const ZbText *whole) {
  ZtDetokenizer *d = zt_detokenizer_new(t);
  const ZtWriting w = {.flags = ZT_ECHO};
  ZbText got = {0};
  ZbErr err;
  size_t from = ids->n / 2, n;
  bool good = zt_detokenize_begin(d, c, &w, ids->id, from, &err);
  for (size_t i = from; i <= ids->n && good; i++) {
    good = i < ids->n ? zt_detokenize(d, c, ids->id[i], &err) : zt_detokenize_end(d, c, &err);
    const char *s = zt_detokenized(d, &n);
    if (zt_utf8_valid(s, n) < n) ZB_BUG("half a character is sent");
    zb_text_put(&got, s, n);
  }
  if (good && (got.len != whole->len || memcmp(got.s, whole->s, got.len))) ZB_BUG("pieces are another text");
  zb_text_free(&got);
  zt_detokenizer_free(d);
}

static void both_ways(const ZtTokenizer *t, const char *text, size_t n, unsigned flags) {
  ZtCoder *c = zt_coder_new(t);
  ZtIds ids = {0}, again = {0};
  ZbText back = {0};
  ZbErr err;
  if (zt_encode(c, text, n, flags, &ids, &err)) {
    for (size_t i = 0; i < ids.n; i++)
      if (ids.id[i] >= zt_size(t)) ZB_BUG("id %u of %u", ids.id[i], zt_size(t));
    if (zt_decode(c, ids.id, ids.n, 0, &back, &err)) {
      if (zt_utf8_valid(back.s, back.len) < back.len) ZB_BUG("decoded text is not UTF-8");
      in_pieces(t, c, &ids, &back);
    }
    /* What is remembered gives the same. */
    if (!zt_encode(c, text, n, flags, &again, &err) || again.n != ids.n ||
        (ids.n && memcmp(again.id, ids.id, ids.n * sizeof *ids.id)))
      ZB_BUG("other ids the second time");
  }
  zb_text_free(&back);
  zt_ids_free(&ids);
  zt_ids_free(&again);
  zt_coder_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static const char mark[] = "\n====\n";
  const char *json = (const char *)data, *text = "some text, \xc3\xa9\xff 12";
  size_t json_n = n, text_n = strlen(text);
  for (size_t i = 0; i + sizeof mark - 1 <= n; i++)
    if (!memcmp(json + i, mark, sizeof mark - 1)) {
      json_n = i;
      text = json + i + sizeof mark - 1;
      text_n = n - i - (sizeof mark - 1);
      break;
    }
  ZbErr err;
  ZtTokenizer *t = zt_read(json, json_n, "fuzz", &err);
  if (!t) return 0;
  both_ways(t, text, text_n, 0);
  both_ways(t, text, text_n, ZT_AROUND | ZT_SPECIAL_AS_TEXT);
  zt_free(t);
  return 0;
}

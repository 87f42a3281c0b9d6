/* Fuzz target: a byte, and behind it any bytes as a JSON schema. What is taken leads from token to token, by masks, and
 * always to an end or on: the tokens that a mask has are followed, and no state is without one. */
#include "runtime/exec/shape/shape.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Makes a tokenizer of the ASCII characters and some pieces, the same at each call. */
static ZtTokenizer *tokenizer(void) {
  static const char *const piece[] = {"{\\\"", "\\\":", "\\\",", "]}",      "}]",    "00",
                                      "true",  "\\\"}", "[[",    "\\\\u00", "a\\\"", "-1."};
  ZbText t = {0};
  ZbErr err = {0};
  zb_text_add(
      &t,
      "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]},"
      "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"merges\":[],\"vocab\":{");
  for (int b = 0; b < 256; b++) zb_text_add(&t, "\"<0x%02X>\":%d,", b, b);
  for (int i = 0; i < 12; i++) zb_text_add(&t, "\"%s\":%d%s", piece[i], 256 + i, i < 11 ? "," : "}}}");
  ZtTokenizer *x = zt_read(t.s, t.len, "pieces", &err);
  if (!x) ZB_BUG("the tokenizer of this target: %s", err.text);
  zb_text_free(&t);
  return x;
}

static void walk(ZxShape *s, uint32_t ids, uint64_t seed) {
  enum { MOST = 200 };
  uint32_t id[MOST], n = 0;
  const uint32_t end = ids; /* the model has one id more */
  ZxShaped at = {0};
  for (; n < MOST; n++) {
    if (!zx_shape_follow(s, &at, id, n)) ZB_BUG("a mask has a token that does not fit");
    const uint64_t *bits = zx_shape_mask(s, &at, &end, 1);
    uint32_t some = 0, k = 0;
    for (uint32_t i = 0; i < ids; i++) some += bits[i / 64] >> i % 64 & 1;
    bool may_end = bits[end / 64] >> end % 64 & 1;
    if (zx_shape_whole(s, &at) != (may_end && !some))
      ZB_BUG("an end with tokens behind it, or none where there are none");
    if (!some && !may_end) ZB_BUG("no token may come");
    if (!some) return;
    for (uint64_t r = zb_random_u64(seed, 0, n) % some + 1; r; k++) r -= bits[k / 64] >> k % 64 & 1;
    id[n] = k - 1;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static ZtTokenizer *t;
  static ZxShapes *x;
  ZbErr err = {0};
  if (!n) return 0;
  if (!t) {
    t = tokenizer();
    x = zx_shapes_new(t, zt_size(t) + 1);
  }
  ZxShape *s = zx_shapes_get(x, (const char *)data + 1, n - 1, *data & 1, &err);
  if (!s && !*err.text) ZB_BUG("refused without a message");
  for (uint64_t seed = 0; s && seed < 3; seed++) walk(s, zt_size(t), seed);
  zx_shape_release(s);
  return 0;
}

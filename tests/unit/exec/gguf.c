/* GGUF files: blocks against what llama.cpp's own package says they are, heads as config.json and
 * tokenizer.json, and files that are broken. tests/data/gguf/make.py made them. */
#define _GNU_SOURCE /* memmem */
#include "runtime/exec/gguf/gguf.h"
#include "runtime/exec/hub/hub.h"
#include "runtime/text/text.h"
#include "tests/unit/exec/scratch.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static ZbErr err;
static ZbArena *a;

static void begin(void) {
  a = zb_arena_new();
  scratch_make();
}
static void end(void) {
  scratch_remove();
  zb_arena_free(a);
}
TestSuite(gguf, .init = begin, .fini = end);

static const char *data(const char *file) { return zb_printf(a, ZUG_SRC "/tests/data/gguf/%s", file); }

/* ---- blocks -------------------------------------------------------------------------------------------- */
/* Two f32 products and a difference may be rounded in another order: a few parts in 2^24 of the larger
 * one. */
static bool alike(float x, float y, float most) { return fabsf(x - y) <= 0x1p-21f * most; }

Test(gguf, blocks) {
  ZxShards s, want;
  cr_assert(zx_shards_open(&s, a, data("blocks.gguf"), &err), "%s", err.text);
  cr_assert(zx_shards_open(&want, a, data("blocks.safetensors"), &err), "%s", err.text);
  cr_assert_eq(s.names.n, 15);
  for (uint32_t i = 0; i < want.names.n; i++) {
    ZxTensorInfo t = zx_shards_info(&want, i);
    uint32_t k = zx_shards_find(&s, t.path);
    cr_assert(k != ZB_NO_NAME && zx_shards_fits(&s, k, &t, &err), "%s: %s", t.path, err.text);
    int64_t rows = t.shape[0], cols = t.shape[1];
    float *x = calloc((size_t)(rows * cols), sizeof *x), *y = calloc((size_t)(rows * cols), sizeof *y),
          most = 0;
    ZxBox all = {.naxes = 1, .count = {rows * cols}, .stride = {1}, .step = {1}},
          part = {.naxes = 2,
                  .count = {rows - 1, cols / 3},
                  .from = cols + 7,
                  .stride = {cols, 1},
                  .step = {1, rows - 1}};
    cr_assert(zx_box_read(&want, i, &all, y, (uint64_t)(rows * cols), &err));
    cr_assert(zx_box_read(&s, k, &all, x, (uint64_t)(rows * cols), &err), "%s", err.text);
    for (int64_t e = 0; e < rows * cols; e++) most = fmaxf(most, fabsf(y[e]));
    for (int64_t e = 0; e < rows * cols; e++)
      cr_assert(alike(x[e], y[e], most), "%s[%lld] is %g and not %g", t.path, (long long)e, (double)x[e],
                (double)y[e]);
    cr_assert(zx_box_read(&s, k, &part, x, (uint64_t)(rows * cols), &err), "%s", err.text);
    for (int64_t r = 0; r < rows - 1; r++)
      for (int64_t c = 0; c < cols / 3; c++)
        cr_assert(alike(x[c * (rows - 1) + r], y[(r + 1) * cols + 7 + c], most), "%s, a part", t.path);
    free(x);
    free(y);
  }
  zx_shards_close(&s);
  zx_shards_close(&want);
}

/* Rows of queries and keys, which lie in pairs, are those of the hub. */
Test(gguf, rows) {
  ZxShards s, want;
  cr_assert(zx_shards_open(&s, a, data("model.gguf"), &err), "%s", err.text);
  cr_assert(zx_shards_open(&want, a, ZUG_SRC "/tests/data/quantized_llama/plain", &err), "%s", err.text);
  cr_assert_eq(s.names.n, want.names.n);
  for (uint32_t i = 0; i < want.names.n; i++) {
    ZxTensorInfo t = zx_shards_info(&want, i);
    uint32_t k = zx_shards_find(&s, t.path);
    cr_assert(k != ZB_NO_NAME && zx_shards_fits(&s, k, &t, &err), "%s: %s", t.path, err.text);
    int64_t n = 1;
    for (int d = 0; d < t.nshape; d++) n *= t.shape[d];
    float *x = calloc((size_t)n, sizeof *x), *y = calloc((size_t)n, sizeof *y);
    ZxBox box = {.naxes = 1, .count = {n - 5}, .from = 3, .stride = {1}, .step = {1}};
    cr_assert(zx_box_read(&want, i, &box, y, (uint64_t)n, &err) &&
              zx_box_read(&s, k, &box, x, (uint64_t)n, &err));
    cr_expect(!memcmp(x, y, (size_t)n * sizeof *x), "%s", t.path);
    free(x);
    free(y);
  }
  zx_shards_close(&s);
  zx_shards_close(&want);
}

/* A tensor of all experts is a matrix for each. */
Test(gguf, experts) {
  static const struct {
    const char *name;
    int64_t rows, cols;
    float first;
  } of[] = {{"model.layers.0.mlp.gate.weight", 3, 4, 0},
            {"model.layers.0.mlp.experts.0.gate_proj.weight", 2, 4, 0},
            {"model.layers.0.mlp.experts.2.up_proj.weight", 2, 4, 116},
            {"model.layers.0.mlp.experts.1.down_proj.weight", 4, 2, 208}};
  ZxShards s;
  cr_assert(zx_shards_open(&s, a, data("heads/experts.gguf"), &err), "%s", err.text);
  cr_expect_eq(s.names.n, 2 + 9);
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    ZxTensorInfo want = {of[i].name, 2, {of[i].rows, of[i].cols}};
    ZxBox box = {.naxes = 1, .count = {7}, .from = 1, .stride = {1}, .step = {1}};
    uint32_t t = zx_shards_find(&s, of[i].name);
    float x[7];
    cr_assert(t != ZB_NO_NAME && zx_shards_fits(&s, t, &want, &err), "%s: %s", of[i].name, err.text);
    cr_assert(zx_box_read(&s, t, &box, x, 7, &err), "%s", err.text);
    for (int k = 0; k < 7 && i; k++) cr_expect_eq(x[k], of[i].first + (float)(k + 1), "%s", of[i].name);
  }
  zx_shards_close(&s);
}

/* ---- texts --------------------------------------------------------------------------------------------- */
Test(gguf, configs) {
  static const struct {
    const char *file, *says[8];
  } of[] = {
      {"heads/llama31.gguf",
       {"\"model_type\": \"llama\"", "\"rope_theta\": 5e+05", "\"rope_type\": \"llama3\"", "\"factor\": 32",
        "\"rms_norm_eps\": 1e-05", "\"tie_word_embeddings\": true", "\"num_key_value_heads\": 8",
        "\"max_position_embeddings\": 131072"}},
      {"heads/gemma2.gguf",
       {"\"model_type\": \"gemma2\"", "\"attn_logit_softcapping\": 5e+01",
        "\"final_logit_softcapping\": 3e+01", "\"sliding_window\": 4096", "\"head_dim\": 256",
        "\"query_pre_attn_scalar\": 256", "\"vocab_size\": 6"}},
      {"heads/experts.gguf",
       {"\"model_type\": \"qwen3_moe\"", "\"num_local_experts\": 3", "\"num_experts_per_tok\": 2",
        "\"moe_intermediate_size\": 2", "\"norm_topk_prob\": true"}},
      {"heads/qwen3.gguf",
       {"\"model_type\": \"qwen3\"", "\"head_dim\": 128", "\"tie_word_embeddings\": false",
        "\"hidden_size\": 1024"}},
  };
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    size_t n;
    const char *text = zx_gguf_text(a, data(of[i].file), "config.json", &n, &err);
    cr_assert(text, "%s", err.text);
    for (int k = 0; k < 8 && of[i].says[k]; k++)
      cr_expect(strstr(text, of[i].says[k]), "%s does not say %s: %s", of[i].file, of[i].says[k], text);
  }
}

static void expect_ids(const char *file, const char *text, bool around, const char *want) {
  size_t n;
  const char *json = zx_gguf_text(a, data(file), "tokenizer.json", &n, &err);
  cr_assert(json, "%s", err.text);
  ZtTokenizer *t = zt_read(json, n, file, &err);
  cr_assert(t, "%s", err.text);
  ZtCoder *c = zt_coder_new(t);
  ZtIds ids = {0};
  ZbText got = {0};
  cr_assert(zt_encode(c, text, strlen(text), around ? ZT_AROUND : 0, &ids, &err), "%s", err.text);
  for (size_t i = 0; i < ids.n; i++) zb_text_add(&got, "%s%u", i ? " " : "", ids.id[i]);
  cr_expect_str_eq(got.s ? got.s : "", want, "%s: '%s' is %s", file, text, got.s);
  zb_text_free(&got);
  zt_ids_free(&ids);
  zt_coder_free(c);
  zt_free(t);
}

/* Merges of pieces follow from scores: of ` abc` first bc, then ` a`, and nothing makes one of both,
 * though `abc` is a piece. A blank comes before a text, and the token that begins texts where it is asked
 * for. */
Test(gguf, tokenizers) {
  expect_ids("model.gguf", "the<|end|>", false, "116 256 257");
  expect_ids("model.gguf", "the", true, "116 256");
  expect_ids("heads/pieces.gguf", "ab", false, "266");
  expect_ids("heads/pieces.gguf", "ab", true, "1 266");
  expect_ids("heads/pieces.gguf", "c abc", false, "259 262 265 264");
  expect_ids("heads/pieces.gguf", "\xc3\xa9", false, "259 198 172");
}

/* ---- tokenizers of others ---- */
typedef struct {
  char *at;
  size_t n;
} Bytes;

static void put(Bytes *b, const void *p, size_t n) {
  b->at = realloc(b->at, b->n + n);
  memcpy(b->at + b->n, p, n);
  b->n += n;
}
static void put_text(Bytes *b, const char *s) {
  uint64_t n = strlen(s);
  put(b, &n, 8);
  put(b, s, n);
}
static void put_key(Bytes *b, const char *key, uint32_t type) {
  put_text(b, key);
  put(b, &type, 4);
}
static void put_pair(Bytes *b, const char *key, const char *s) {
  put_key(b, key, 8);
  put_text(b, s);
}
static void put_list(Bytes *b, const char *key, uint32_t type, uint64_t n) {
  put_key(b, key, 9);
  put(b, &type, 4);
  put(b, &n, 8);
}

/* Writes a byte-level tokenizer.json as a GGUF file has it. */
static void write_tokenizer(const char *json, size_t n, const char *pre) {
  cJSON *root = cJSON_ParseWithLength(json, n), *x;
  const cJSON *model = cJSON_GetObjectItem(root, "model"), *vocab = cJSON_GetObjectItem(model, "vocab"),
              *merges = cJSON_GetObjectItem(model, "merges"),
              *added = cJSON_GetObjectItem(root, "added_tokens");
  uint64_t words = 0, merged = (uint64_t)cJSON_GetArraySize(merges);
  cJSON_ArrayForEach(x, vocab) if (x->valueint >= (int)words) words = (uint64_t)x->valueint + 1;
  cJSON_ArrayForEach(x, added) {
    int id = cJSON_GetObjectItem(x, "id")->valueint;
    if (id >= (int)words) words = (uint64_t)id + 1;
  }
  const char **token = calloc(words, sizeof *token);
  int32_t *kind = calloc(words, sizeof *kind);
  cJSON_ArrayForEach(x, vocab) token[x->valueint] = x->string, kind[x->valueint] = 1;
  cJSON_ArrayForEach(x, added) {
    int id = cJSON_GetObjectItem(x, "id")->valueint;
    token[id] = cJSON_GetObjectItem(x, "content")->valuestring;
    kind[id] = cJSON_IsTrue(cJSON_GetObjectItem(x, "special")) ? 3 : 4;
  }
  Bytes b = {0};
  uint64_t head[] = {(uint64_t)3 << 32 | 0x46554747, 0, 6}; /* "GGUF", version 3; tensors; keys */
  put(&b, head, sizeof head);
  put_pair(&b, "general.architecture", "llama");
  put_pair(&b, "tokenizer.ggml.model", "gpt2");
  put_pair(&b, "tokenizer.ggml.pre", pre);
  put_list(&b, "tokenizer.ggml.tokens", 8, words);
  for (uint64_t i = 0; i < words; i++)
    put_text(&b, token[i] ? token[i] : zb_printf(a, "unused %llu", (unsigned long long)i));
  put_list(&b, "tokenizer.ggml.token_type", 5, words);
  put(&b, kind, words * sizeof *kind);
  put_list(&b, "tokenizer.ggml.merges", 8, merged);
  cJSON_ArrayForEach(x, merges) put_text(
      &b, cJSON_IsString(x) ? x->valuestring
                            : zb_printf(a, "%s %s", x->child->valuestring, x->child->next->valuestring));
  scratch_write("t.gguf", b.at, b.n);
  free(b.at);
  free(token);
  free(kind);
  cJSON_Delete(root);
}

/* The files of tests/data/text, of which only words and merges are kept and the name of a rule, give the
 * ids that the library gives by the whole files. */
Test(gguf, rules_of_words) {
  static const struct {
    const char *name, *pre;
  } of[] = {{"gpt2", "gpt-2"}, {"llama3", "llama-bpe"}, {"qwen", "qwen2"}};
  size_t n, size, bytes;
  const char *text = zb_read_file(a, ZUG_SRC "/tests/data/text/text.txt", 1 << 20, &size, &err);
  for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
    const char *folder = zb_printf(a, ZUG_SRC "/tests/data/text/%s", of[k].name);
    const char *json = zb_read_file(a, zb_printf(a, "%s/tokenizer.json", folder), 1 << 20, &n, &err);
    const uint16_t *want =
        (const void *)zb_read_file(a, zb_printf(a, "%s/text.ids.bin", folder), 1 << 20, &bytes, &err);
    cr_assert(json && want && text, "%s", err.text);
    write_tokenizer(json, n, of[k].pre);
    const char *made = zx_gguf_text(a, scratch("t.gguf"), "tokenizer.json", &n, &err);
    ZtTokenizer *t = made ? zt_read(made, n, of[k].name, &err) : NULL;
    cr_assert(t, "%s", err.text);
    ZtCoder *c = zt_coder_new(t);
    ZtIds ids = {0};
    cr_assert(zt_encode(c, text, size, 0, &ids, &err), "%s", err.text);
    cr_expect_eq(ids.n, bytes / 2, "%s", of[k].name);
    for (size_t i = 0; i < ids.n && i < bytes / 2; i++)
      cr_assert(ids.id[i] == want[i], "%s: id %zu is %u and not %u", of[k].name, i, ids.id[i], want[i]);
    zt_ids_free(&ids);
    zt_coder_free(c);
    zt_free(t);
  }
}

/* ---- what is refused ----------------------------------------------------------------------------------- */
static void change(char *text, size_t n, const char *from, const char *to) {
  char *at = memmem(text, n, from, strlen(from));
  cr_assert(at && strlen(from) == strlen(to), "%s and %s", from, to);
  memcpy(at, to, strlen(to));
}

static void expect_refused(const char *file, size_t n, const char *says) {
  ZxShards s;
  scratch_write("bad.gguf", file, n);
  bool open = zx_shards_open(&s, a, scratch("bad.gguf"), &err);
  if (open) zx_shards_close(&s);
  cr_expect(!open && strstr(err.text, says), "`%s` is not said: %s", says, open ? "it is read" : err.text);
}

Test(gguf, refused) {
  size_t n, small;
  char *file = zb_read_file(a, data("model.gguf"), 1 << 20, &n, &err), *own = zb_alloc(a, n);
#define FRESH (memcpy(own, file, n))
  FRESH, own[0] = 'X', expect_refused(own, n, "not a GGUF file");
  FRESH, own[4] = 1, expect_refused(own, n, "version 1");
  FRESH, own[4] = 0, own[7] = 3, expect_refused(own, n, "version");
  FRESH, own[14] = 1, expect_refused(own, n, "tensors"); /* 2^48 more */
  FRESH, own[8] = 99, expect_refused(own, n, "");        /* more of them than there are: bytes of weights */
  FRESH, change(own, n, "llama", "lambd"), expect_refused(own, n, "architecture `lambd`");
  FRESH, change(own, n, "blk.1.ffn_up", "blk.0.ffn_up"),
      expect_refused(own, n, "'blk.0.ffn_up.weight' twice");
  for (size_t k = 1; k < n; k += 401) expect_refused(file, n - k, "");
  /* A format that is not read, and rows that are not whole blocks of one. */
  char *at = memmem(file, n, "blk.0.ffn_up.weight", 19);
  cr_assert(at);
  small = (size_t)(at - file) + 19 + 4 + 16;
  FRESH, own[small] = 18, expect_refused(own, n, "IQ3_XXS");
  FRESH, own[small] = 12, expect_refused(own, n, "whole blocks of Q4_K");
  FRESH, own[small] = 99, expect_refused(own, n, "format 99");
  FRESH, own[small + 4] = 1, expect_refused(own, n, "lies outside"); /* not aligned */
#undef FRESH
}

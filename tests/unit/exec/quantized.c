/* Weights that others have quantized: numbers of tests/data/quantized, which make.py there computed from
 * codes before it packed them, as a whole and as ranks read them; and folders that are refused, by what is
 * wrong with them. */
#define _GNU_SOURCE /* memmem */
#include "runtime/exec/hub/hub.h"
#include "tests/unit/exec/scratch.h"

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
TestSuite(quantized, .init = begin, .fini = end);

static const char *data(const char *folder, const char *file) {
  return zb_printf(a, ZUG_SRC "/tests/data/quantized/%s%s%s", folder, *file ? "/" : "", file);
}

/* ---- numbers ------------------------------------------------------------------------------------------- */
/* Products of a code and a scale are rounded once or twice to f32: by at most 2^-23 of them. */
static bool alike(float x, float y) { return fabsf(x - y) <= 0x1p-22f * fabsf(y); }

static uint64_t state = 1;
static int64_t below(int64_t n) { return (int64_t)(zb_mix64(state++) % (uint64_t)n); }

/* A part of a tensor: of each axis some indices, an axis perhaps as two (9 = 3 x 3), in any order here. */
static ZxBox some_part(const ZxTensorInfo *t, bool whole, int64_t *n) {
  ZxBox b = {0};
  int64_t stride = 1, step = 1;
  for (int k = t->nshape; k-- > 0; stride *= t->shape[k]) {
    int64_t size = t->shape[k], inner = 2 + below(7), inner_n = 1;
    if (!whole && size % inner == 0 && size > inner) {
      inner_n = 1 + below(inner);
      b.count[b.naxes] = inner_n;
      b.from += below(inner - inner_n + 1) * stride;
      b.stride[b.naxes++] = stride;
    } else inner = 1;
    int64_t outer = size / inner, count = whole ? outer : 1 + below(outer);
    b.from += below(outer - count + 1) * inner * stride;
    b.count[b.naxes] = count;
    b.stride[b.naxes++] = inner * stride;
  }
  int order[8];
  for (int k = 0; k < b.naxes; k++) order[k] = k;
  for (int k = b.naxes; !whole && k-- > 1;) {
    int other = (int)below(k + 1), keep = order[k];
    order[k] = order[other];
    order[other] = keep;
  }
  for (int k = 0; k < b.naxes; k++) b.step[order[k]] = step, step *= b.count[order[k]];
  *n = step;
  return b;
}

static void expect_part(const char *folder, const ZxShards *s, uint32_t tensor, const ZxBox *b, int64_t n,
                        const float *all) {
  float *got = calloc((size_t)n, sizeof *got);
  int parts = 1 + (int)below(3);
  for (int p = 0; p < parts; p++) {
    bool finite = true;
    cr_assert(zx_box_read_part(&(ZxReading){s, tensor, *b, got, (uint64_t)n}, p, parts, &finite, &err), "%s",
              err.text);
    cr_expect(finite);
  }
  for (int64_t e = 0; e < n; e++) {
    int64_t rest = e, from = b->from, to = b->to;
    for (int k = 0; k < b->naxes; rest /= b->count[k++]) {
      from += rest % b->count[k] * b->stride[k];
      to += rest % b->count[k] * b->step[k];
    }
    cr_assert(alike(got[to], all[from]), "%s: element %lld is %g and not %g", folder, (long long)from,
              (double)got[to], (double)all[from]);
  }
  free(got);
}

static void expect_numbers(const char *folder, const char *kind) {
  ZxShards s, want;
  ZbText said = {0};
  cr_assert(zx_shards_open(&s, a, data(folder, ""), &err), "%s", err.text);
  cr_assert(zx_shards_open(&want, a, data(folder, "values.safetensors"), &err), "%s", err.text);
  cr_expect_eq(s.names.n, want.names.n, "%s has %u tensors", folder, s.names.n);
  for (uint32_t i = 0; i < want.names.n; i++) {
    ZxTensorInfo info = zx_shards_info(&want, i);
    uint32_t tensor = zx_shards_find(&s, want.names.name[i]);
    cr_assert(tensor != ZB_NO_NAME && zx_shards_fits(&s, tensor, &info, &err), "%s: %s", folder, err.text);
    int64_t n;
    ZxBox box = some_part(&info, true, &n);
    float *all = calloc((size_t)n, sizeof *all);
    cr_assert(zx_weights_read(want.file[0], want.at[i].tensor, 0, (uint64_t)n, all, &err));
    expect_part(folder, &s, tensor, &box, n, all);
    for (int k = 0; k < 60; k++) {
      box = some_part(&info, false, &n);
      expect_part(folder, &s, tensor, &box, n, all);
    }
    free(all);
  }
  zx_shards_tell(&s, &said);
  cr_expect(said.s && strstr(said.s, kind), "%s: said is %s", folder, said.s);
  zb_text_free(&said);
  zx_shards_close(&s);
  zx_shards_close(&want);
}

Test(quantized, numbers) {
  static const struct {
    const char *folder, *kind;
  } of[] = {
      {"awq", "int4 of AWQ in groups of 32"},
      {"gptq", "int4 of GPTQ in groups of 32"},
      {"gptq-even", "int4 of GPTQ in groups of 16"},
      {"gptq-v2", "int4 of GPTQ"},
      {"gptq-8", "int8 of GPTQ in groups of 32"},
      {"gptq-2", "int2 of GPTQ in groups of 16"},
      {"ct", "int4 of compressed-tensors in groups of 32"},
      {"ct-zeros", "int4 of compressed-tensors in groups of 16"},
      {"ct-8", "int8 of compressed-tensors"},
      {"ct-bytes", "int8 of compressed-tensors"},
      {"ct-f8", "f8 of compressed-tensors"},
      {"fp8-blocks", "f8 in blocks of 16 x 32"},
      {"fp8-tensor", "f8 with a scale of each tensor"},
      {"mxfp4", "MXFP4"},
      {"bnb-bytes", "int8 of bitsandbytes"},
      {"bnb-nf4", "nf4 of bitsandbytes in blocks of 64"},
      {"bnb-nf4-nested", "nf4 of bitsandbytes in blocks of 64"},
  };
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) expect_numbers(of[i].folder, of[i].kind);
}

/* ---- what is refused ----------------------------------------------------------------------------------- */
/* A folder as one of the data, with another text in its config or its file's header, or 4 bytes of a
 * tensor. */
typedef struct {
  const char *folder, *config, *config_new, *head, *head_new;
  const char *says[3]; /* all of it is in the message */
  const char *bytes;   /* of this tensor the last ones are others */
} Bad;

static void change(char *text, size_t n, const char *from, const char *to) {
  char *at = memmem(text, n, from, strlen(from));
  cr_assert(at && strlen(from) == strlen(to), "%s and %s", from, to);
  memcpy(at, to, strlen(to));
}

static void copy_changed(const Bad *b, const char *name) {
  size_t n;
  char *text = zb_read_file(a, data(b->folder, "config.json"), 1 << 20, &n, &err);
  if (b->config) {
    const char *at = strstr(text, b->config);
    cr_assert(at, "%s", b->config);
    text = zb_printf(a, "%.*s%s%s", (int)(at - text), text, b->config_new, at + strlen(b->config));
  }
  scratch_folder(name);
  scratch_write(zb_printf(a, "%s/config.json", name), text, strlen(text));
  char *file = zb_read_file(a, data(b->folder, "model.safetensors"), 1 << 20, &n, &err);
  uint64_t head;
  memcpy(&head, file, 8);
  if (b->head) change(file + 8, head, b->head, b->head_new);
  if (b->bytes) {
    const char *at = memmem(file + 8, head, b->bytes, strlen(b->bytes));
    at = at ? strstr(at, "data_offsets\":[") : NULL;
    cr_assert(at);
    long long last = atoll(strchr(at, ',') + 1);
    memset(file + 8 + head + last - 4, 0x21, 4);
  }
  scratch_write(zb_printf(a, "%s/model.safetensors", name), file, n);
}

static const Bad bad[] = {
    {"awq", "\"awq\"", "\"no_such_method\"", .says = {"no_such_method", "gptq, compressed-tensors"}},
    {"awq", "\"bits\": 4", "\"bits\": 3", .says = {"bits 3", "4 can be read"}},
    {"awq", "\"gemm\"", "\"gemv\"", .says = {"version gemv"}},
    {"awq", "\"group_size\": 32", "\"group_size\": 48", .says = {"w.scales", "[3, 24]", "[2, 24]"}},
    {"awq", "\"group_size\": 32", "\"group_size\": 0", .says = {"group_size 0"}},
    {"awq", "\"bits\": 4", "\"bits\": 4.5", .says = {"bits", "not a whole number"}},
    {"awq", "\"plain\"", "\"w\"", .says = {"modules_to_not_convert", "'w'"}},
    {"awq", .head = "w.qzeros", .head_new = "w.qzerox", .says = {"lacks 'w.qzeros'"}},
    {"awq", .head = "\"F16\"", .head_new = "\"I16\"", .says = {"w.scales", "I16"}},
    {"awq", .head = "\"plain.weight\":{", .head_new = "\"w.weight\":    {",
     .says = {"w.weight", "once more"}},
    {"gptq", "\"bits\": 4", "\"bits\": 3", .says = {"bits 3", "2, 4 and 8"}},
    {"gptq", "\"checkpoint_format\": \"gptq\"", "\"checkpoint_format\": \"marlin\"", .says = {"marlin"}},
    {"gptq", .bytes = "w.g_idx", .says = {"w.g_idx", "desc_act"}},
    {"gptq", "\"desc_act\": false", "\"desc_act\": true", .head = "w.g_idx", .head_new = "w.g_odd",
     .says = {"desc_act", "w.g_idx"}},
    {"gptq-even", .bytes = "w.qzeros", .says = {"w.qzeros", "7", "sym"}},
    {"gptq-even", "\"gptq\"\n", "\"gptq_v2\"\n", .says = {"w.qzeros", "8", "gptq_v2"}},
    {"gptq", "\"sym\": false", "\"sym\": false, \"dynamic\": {\"a\": {\"bits\": 8}}", .says = {"dynamic"}},
    {"ct", "\"num_bits\": 4", "\"num_bits\": 3", .says = {"num_bits 3"}},
    {"ct", "\"pack-quantized\"", "\"marlin-24\"", .says = {"format marlin-24"}},
    {"ct", "\"int\"", "\"nvfp\"", .says = {"type nvfp"}},
    {"ct", "\"group\"", "\"tensor_group\"", .says = {"strategy tensor_group"}},
    {"ct", "\"group_size\": 32", "\"group_size\": 64", .says = {"w.weight_scale", "[20, 3]", "[20, 2]"}},
    {"ct", "\"plain\"", "\"re:none\", \"w\"", .says = {"ignore", "'w'"}},
    {"ct", "\"symmetric\": true", "\"symmetric\": false", .says = {"lacks 'w.weight_zero_point'"}},
    {"ct-zeros", "\"symmetric\": false", "\"symmetric\": true", .says = {"w.weight_zero_point"}},
    {"ct-zeros", .bytes = "w.weight_shape", .says = {"w.weight_shape"}},
    {"ct", "\"weights\"", "\"input_activations\"", .says = {"no scheme"}},
    {"fp8-blocks", "16,", "8,", .says = {"w.weight_scale_inv", "[3, 2]", "[5, 2]"}},
    {"fp8-blocks", "16,", "0,", .says = {"weight_block_size"}},
    {"fp8-tensor", .head = "w.weight_scale", .head_new = "w.weight_scalf",
     .says = {"lacks 'w.weight_scale'"}},
    {"mxfp4", .head = "_scales", .head_new = "_scalex", .says = {"lacks 'x.down_proj_scales'"}},
    {"mxfp4", .head = "[2,6,3,16]", .head_new = "[2,6,6, 8]", .says = {"groups of 32"}},
    {"mxfp4", .head = "[2,6,3,16]", .head_new = "[2,3,6,16]", .says = {"x.down_proj_scales", "[2, 6, 3]"}},
    {"bnb-bytes", .head = "w.SCB", .head_new = "w.SCA", .says = {"lacks 'w.SCB'"}},
    {"bnb-nf4", .head = "bitsandbytes__nf4", .head_new = "bitsandbytes__nf5", .says = {"w.weight", "nf4"}},
    {"bnb-nf4", .bytes = "w.weight.quant_state", .says = {"quant_state"}},
    {"bnb-nf4-nested", .head = "w.weight.nested_quant_map", .head_new = "w.weight.nested_quant_max",
     .says = {"nested_quant_map"}},
};

Test(quantized, refused) {
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    const Bad *b = &bad[i];
    const char *name = zb_printf(a, "%zu", i);
    ZxShards s;
    copy_changed(b, name);
    err = (ZbErr){0};
    bool open = zx_shards_open(&s, a, scratch(name), &err);
    if (open) zx_shards_close(&s);
    cr_expect(!open && *err.text, "case %zu, of %s, is read", i, b->folder);
    for (int k = 0; k < 3 && b->says[k]; k++)
      cr_expect(strstr(err.text, b->says[k]) || strstr(err.help, b->says[k]),
                "case %zu does not say `%s`: %s; %s", i, b->says[k], err.text, err.help);
  }
}

/* A file that ends too early is refused, whatever it lacks. */
Test(quantized, truncated) {
  size_t n;
  const Bad none = {.folder = "ct-zeros"};
  ZxShards s;
  copy_changed(&none, "t");
  char *file = scratch_read("t/model.safetensors", &n);
  for (size_t k = 1; k < n; k += 97) {
    scratch_write("t/model.safetensors", file, n - k);
    cr_expect(!zx_shards_open(&s, a, scratch("t"), &err), "%zu bytes less", k);
  }
  free(file);
}

/* Without a config the tensors are what they are. */
Test(quantized, not_said) {
  const Bad none = {.folder = "awq", .config = "quantization_config", .config_new = "other"};
  static const ZxTensorInfo codes = {"w.qweight", 2, {96, 3}};
  ZxShards s;
  ZbText said = {0};
  copy_changed(&none, "t");
  cr_assert(zx_shards_open(&s, a, scratch("t"), &err), "%s", err.text);
  uint32_t tensor = zx_shards_find(&s, "w.qweight");
  cr_assert(tensor != ZB_NO_NAME);
  cr_expect(!zx_shards_fits(&s, tensor, &codes, &err) && strstr(err.help, "quantization_config"), "%s",
            err.help);
  zx_shards_tell(&s, &said);
  cr_expect(!said.s);
  zx_shards_close(&s);
}

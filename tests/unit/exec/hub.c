/* Weights by other names: files and folders of shards, boxes against element by element, exports that are
 * what they are made of, config.json. */
#include "runtime/exec/hub/hub.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

SCRATCH_SUITE(hub);

static ZbErr err;

/* ---- files ---- */
/* A safetensors file of one type; value i of all tensors is i, where that fits. With `odd` bytes of padding,
 * so that data are unaligned. */
static void write_tensors(const char *name, const ZxTensorInfo *t, size_t n, ZxAs as, int odd) {
  ZbText head = {0};
  uint64_t total, count;
  cr_assert(zx_weights_head_as(&head, t, n, as, 8, &total, &err), "%s", err.text);
  for (int i = 0; i < odd; i++) zb_text_put(&head, " ", 1);
  uint64_t len = head.len;
  count = (total + (uint64_t)odd - 8 - len) / zx_as_bytes(as);
  float *x = calloc(count + 1, sizeof *x);
  char *bytes = malloc(total + (uint64_t)odd + 8);
  uint32_t *values = calloc(count + 1, sizeof *values);
  for (uint64_t i = 0; i < count; i++) x[i] = as == ZX_AS_F16 ? (float)(i % 2048) : (float)i;
  memcpy(bytes, &len, 8);
  memcpy(bytes + 8, head.s, len);
  cr_assert_eq(zx_as(as, x, count, values), -1);
  memcpy(bytes + 8 + len, values, count * zx_as_bytes(as));
  scratch_write(name, bytes, total + (uint64_t)odd);
  free(x);
  free(bytes);
  free(values);
  zb_text_free(&head);
}

static void index_of(const char *text) {
  scratch_write("d/model.safetensors.index.json", text, strlen(text));
}

static const ZxTensorInfo two[] = {{"a", 2, {3, 4}}, {"b", 1, {5}}}, one[] = {{"c", 1, {2}}},
                          again[] = {{"b", 1, {5}}};

/* What there is to read, by the names within the scratch folder. */
static void lists(const char *path, const char *const want[], uint32_t n) {
  const char **files;
  uint32_t got;
  cr_assert(zx_shards_list(a, scratch(path), &files, &got, &err), "%s", err.text);
  cr_assert_eq(got, n);
  for (uint32_t i = 0; i < n; i++) cr_expect_str_eq(files[i], scratch(want[i]));
}

Test(hub, shards) {
  ZxShards s;
  int before = open_files();
  scratch_folder("d");
  write_tensors("d/x-1.safetensors", two, 2, ZX_AS_F32, 1);
  write_tensors("d/x-2.safetensors", one, 1, ZX_AS_BF16, 3);
  index_of(
      "{\"weight_map\":{\"c\":\"x-2.safetensors\",\"a\":\"x-1.safetensors\",\"b\":\"x-1.safetensors\"}}");
  lists("d", (const char *[]){"d/model.safetensors.index.json", "d/x-2.safetensors", "d/x-1.safetensors"}, 3);
  cr_assert(zx_shards_open(&s, a, scratch("d"), &err), "%s", err.text);
  cr_expect_eq(s.names.n, 3);
  cr_expect_eq(zx_shards_find(&s, "d"), ZB_NO_NAME);
  cr_expect(zx_shards_fits(&s, zx_shards_find(&s, "c"), &one[0], &err));
  cr_expect(!zx_shards_fits(&s, zx_shards_find(&s, "a"), &one[0], &err));
  says(err, "x-1.safetensors: tensor 'a' has shape [3, 4]; the model wants [2]");
  zx_shards_close(&s);
  /* A file that is whole is preferred, and may be named itself. */
  write_tensors("d/model.safetensors", one, 1, ZX_AS_F16, 0);
  for (int k = 0; k < 2; k++) { /* whether there is an index, too */
    lists("d", (const char *[]){"d/model.safetensors"}, 1);
    cr_assert(zx_shards_open(&s, a, scratch("d"), &err), "%s", err.text);
    cr_expect_eq(s.names.n, 1);
    zx_shards_close(&s);
    if (k == 0) cr_assert_eq(unlink(scratch("d/model.safetensors.index.json")), 0);
  }
  lists("d/x-1.safetensors", (const char *[]){"d/x-1.safetensors"}, 1);
  cr_assert(zx_shards_open(&s, a, scratch("d/x-1.safetensors"), &err), "%s", err.text);
  cr_expect_eq(s.names.n, 2);
  zx_shards_close(&s);
  zx_shards_close(&s);
  cr_expect_eq(open_files(), before);
}

/* By one who may do nothing else with them. */
Test(hub, shards_are_read_alone) {
  ZxShards s;
  write_tensors("one", one, 1, ZX_AS_F32, 0);
  cr_assert(!chmod(scratch(""), 0755) && !chmod(scratch("one"), 0444) && (geteuid() || !seteuid(65534)));
  cr_expect(zx_shards_open(&s, a, scratch("one"), &err), "%s", err.text);
  zx_shards_close(&s);
  cr_assert(getuid() || !seteuid(0));
}

Test(hub, shards_that_are_none) {
  static const struct {
    const char *index, *words;
  } cases[] = {
      {"{", "index.json is no JSON"},
      {"[]", "has no `weight_map`"},
      {"{\"weight_map\":{}}", "has no `weight_map`"},
      {"{\"weight_map\":{\"a\":\"../x-1.safetensors\"}}", "no safetensors file beside it"},
      {"{\"weight_map\":{\"a\":\".safetensors\"}}", "no safetensors file beside it"},
      {"{\"weight_map\":{\"a\":\"x-1.bin\"}}", "no safetensors file beside it"},
      {"{\"weight_map\":{\"a\":3}}", "no safetensors file beside it"},
      {"{\"weight_map\":{\"a\":\"d/x-1.safetensors\"}}", "no safetensors file beside it"},
      {"{\"weight_map\":{\"a\":\"x\\u001f.safetensors\"}}", "no safetensors file beside it"},
      {"{\"weight_map\":{\"a\":\"x\\u007f.safetensors\"}}", "no safetensors file beside it"},
      {"{\"weight_map\":{\"a\":\"x ~.safetensors\"}}", "x ~.safetensors: No such file"},
      {"{\"weight_map\":{\"a\":\"x-1.safetensors\",\"a\":\"x-2.safetensors\"}}", "names tensor 'a' twice"},
      {"{\"weight_map\":{\"a\":\"x-1.safetensors\",\"c\":\"x-1.safetensors\"}}",
       "tensor 'c' is said to be in x-1.safetensors, which does not have it"},
      {"{\"weight_map\":{\"a\":\"x-1.safetensors\",\"c\":\"x-2.safetensors\",\"d\":\"x-1.safetensors\"}}",
       "tensor 'd' is said to be in x-1.safetensors, which does not have it"},
      {"{\"weight_map\":{\"a\":\"x-2.safetensors\",\"c\":\"x-1.safetensors\"}}", "is said to be in"},
      {"{\"weight_map\":{\"a\":\"x-2.safetensors\",\"b\":\"x-1.safetensors\"}}",
       "tensor 'a' is said to be in x-2.safetensors, which does not have it"},
      {"{\"weight_map\":{\"a\":\"x-1.safetensors\",\"b\":\"x-3.safetensors\"}}", "tensor 'b' is in "},
      {"{\"weight_map\":{\"a\":\"x-9.safetensors\"}}", "x-9.safetensors"},
  };
  ZxShards s;
  int before = open_files();
  scratch_folder("d");
  for (int k = 0; k < 3; k++) { /* nothing, and folders of these names */
    cr_expect(!zx_shards_open(&s, a, scratch("d"), &err));
    says(err, "has neither model.safetensors nor model.safetensors.index.json");
    if (k < 2) scratch_folder(k ? "d/model.safetensors.index.json" : "d/model.safetensors");
  }
  cr_assert(!rmdir(scratch("d/model.safetensors.index.json")) && !rmdir(scratch("d/model.safetensors")));
  write_tensors("d/x-1.safetensors", two, 2, ZX_AS_F32, 0);
  write_tensors("d/x-2.safetensors", one, 1, ZX_AS_F32, 0);
  write_tensors("d/x-3.safetensors", again, 1, ZX_AS_F32, 0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    index_of(cases[i].index);
    cr_expect(!zx_shards_open(&s, a, scratch("d"), &err), "case %zu", i);
    says(err, cases[i].words);
  }
  for (int n = 188; n <= 189; n++) { /* a name of 200 bytes, and of one more */
    const char *name = zb_printf(a, "%0*d.safetensors", n, 0);
    index_of(zb_printf(a, "{\"weight_map\":{\"a\":\"%s\"}}", name));
    cr_expect(!zx_shards_open(&s, a, scratch("d"), &err));
    says(err, n == 188 ? "No such file" : "no safetensors file beside it");
  }
  for (int n = 512; n <= 513; n++) { /* all are open at once */
    ZbText t = {0};
    zb_text_add(&t, "{\"weight_map\":{");
    for (int i = 0; i < n; i++) zb_text_add(&t, "%s\"t%d\":\"y-%d.safetensors\"", i ? "," : "", i, i);
    zb_text_add(&t, "}}");
    index_of(t.s);
    cr_expect(!zx_shards_open(&s, a, scratch("d"), &err));
    says(err, n == 512 ? "y-0.safetensors: No such file" : "index.json names more than 512 files");
    zb_text_free(&t);
  }
  cr_assert_eq(truncate(scratch("d/model.safetensors.index.json"), (1 << 28) + 1), 0);
  cr_expect(!zx_shards_open(&s, a, scratch("d"), &err));
  says(err, "index.json has 268435457 bytes; at most 268435456 are read");
  cr_assert_eq(truncate(scratch("d/x-1.safetensors"), 100), 0);
  index_of("{\"weight_map\":{\"a\":\"x-1.safetensors\"}}");
  cr_expect(!zx_shards_open(&s, a, scratch("d"), &err));
  says(err, "x-1.safetensors");
  cr_expect_eq(open_files(), before);
}

/* ---- boxes ---- */
static const ZxBox boxes[] = {
    {.naxes = 0, .from = 7, .to = 12}, /* behind the end, which is at 12 in the first four */
    {.naxes = 0, .from = 7, .to = -1},
    {.naxes = 1, .count = {9}, .stride = {1}, .step = {2}, .to = 3}, /* ends behind */
    {.naxes = 1, .count = {9}, .stride = {1}, .step = {1}, .from = 2, .to = 4},
    {.naxes = 0, .from = 7, .to = 2},
    {.naxes = 1, .count = {5}, .stride = {1}, .step = {1}, .from = 3},
    {.naxes = 1, .count = {5}, .stride = {1}, .step = {1}, .from = 3, .to = -2}, /* begins before */
    {.naxes = 1, .count = {4}, .stride = {100000}, .step = {1}, .from = 5},
    {.naxes = 1, .count = {0}, .stride = {1}, .step = {1}},
    {.naxes = 2, .count = {30, 40}, .stride = {1, 30}, .step = {40, 1}, .from = 11}, /* transposed */
    {.naxes = 3, .count = {6, 1, 700}, .stride = {1, 9, 300}, .step = {700, 3, 1}, .from = 1},
    {.naxes = 3, .count = {2, 3, 4}, .stride = {6000, 90000, 4}, .step = {12, 4, 1}, .from = 8},
    {.naxes = 2, .count = {3, 450000}, .stride = {450000, 1}, .step = {1, 3}}, /* more than a piece */
    {.naxes = 2, .count = {450000, 3}, .stride = {3, 1}, .step = {1, 450000}, .from = 9, .to = -7},
    {.naxes = 2, .count = {4, 2}, .stride = {1, 100000}, .step = {1, 4}},
};

/* Element by element, and nothing else is touched. */
Test(hub, boxes) {
  enum { SIZE = 1400000 };
  static float got[SIZE], want[SIZE];
  static const ZxTensorInfo t[] = {{"odd", 1, {1}}, {"t", 1, {SIZE}}};
  write_tensors("t", t, 2, ZX_AS_F32, 1);
  ZxShards s;
  cr_assert(zx_shards_open(&s, a, scratch("t"), &err), "%s", err.text);
  uint32_t tensor = zx_shards_find(&s, "t");
  for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++) {
    const ZxBox *b = &boxes[i];
    int64_t n = i < 4 ? 12 : SIZE, all = 1;
    for (int64_t k = 0; k < SIZE; k++) got[k] = want[k] = -1;
    for (int k = 0; k < b->naxes; k++) all *= b->count[k];
    for (int64_t e = 0; e < all; e++) {
      int64_t rest = e, from = b->from, to = b->to;
      for (int k = b->naxes; k-- > 0; rest /= b->count[k]) {
        from += rest % b->count[k] * b->stride[k];
        to += rest % b->count[k] * b->step[k];
      }
      if (to >= 0 && to < n) want[to] = (float)(from + 1);
    }
    cr_expect(zx_box_read(&s, tensor, b, got, (uint64_t)n, &err), "%zu: %s", i, err.text);
    cr_expect(!memcmp(got, want, sizeof got), "box %zu", i);
  }
  cr_assert_eq(truncate(scratch("t"), 100), 0); /* whatever is read first, is not there */
  for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++) {
    bool nothing = boxes[i].naxes == 1 && !boxes[i].count[0];
    cr_expect_eq(zx_box_read(&s, tensor, &boxes[i], got, SIZE, &err), nothing, "box %zu", i);
  }
  zx_shards_close(&s);
}

/* How often this process has read, and how many bytes. */
static void reads(uint64_t *calls, uint64_t *bytes) {
  char text[512] = "", *at[2];
  int fd = open("/proc/thread-self/io", O_RDONLY);
  cr_assert(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && close(fd) == 0);
  cr_assert((at[0] = strstr(text, "syscr: ")) && (at[1] = strstr(text, "rchar: ")));
  *calls = strtoull(at[0] + 7, NULL, 10);
  *bytes = strtoull(at[1] + 7, NULL, 10);
}

/* What lies close together is read at once, up to a piece; what is far from it is not. */
Test(hub, boxes_are_read_in_pieces) {
  if (access("/proc/thread-self/io", R_OK) < 0) cr_skip_test("this system does not count what is read");
  static const struct {
    size_t box;
    uint64_t calls, elements;
  } want[] = {
      {4, 1, 1},        {5, 1, 5},  /* a single one, neighbours */
      {7, 4, 4},        {14, 2, 8}, /* far from each other */
      {9, 1, 30 * 40},  {10, 1, 699 * 300 + 6},
      {11, 6, 6 * 13},                    /* with what lies between them */
      {12, 2, 1350000}, {13, 2, 1350000}, /* more than a piece */
  };
  static float out[1400000];
  static const ZxTensorInfo t = {"t", 1, {1400000}};
  write_tensors("t", &t, 1, ZX_AS_F32, 0);
  ZxShards s;
  cr_assert(zx_shards_open(&s, a, scratch("t"), &err), "%s", err.text);
  uint64_t calls[3], bytes[3];
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    reads(&calls[0], &bytes[0]);
    reads(&calls[1], &bytes[1]); /* what it takes to ask */
    cr_assert(zx_box_read(&s, 0, &boxes[want[i].box], out, 1400000, &err), "%s", err.text);
    reads(&calls[2], &bytes[2]);
    uint64_t asked = bytes[1] - bytes[0];
    cr_expect_eq(calls[2] - calls[1] - (calls[1] - calls[0]), want[i].calls, "box %zu", want[i].box);
    cr_expect(bytes[2] - bytes[1] - asked - 4 * want[i].elements < 8, "box %zu: %llu bytes", want[i].box,
              (unsigned long long)(bytes[2] - bytes[1] - asked));
  }
  zx_shards_close(&s);
}

/* ---- types ---- */
/* Every value of 16 bits is what it was; halves go to even ones; what is too large is said. */
Test(hub, rounding) {
  static const ZxTensorInfo t = {"t", 1, {65536}};
  for (ZxAs as = ZX_AS_BF16; as <= ZX_AS_F16; as++) {
    static float x[65536];
    static uint16_t y[65536];
    write_tensors("t", &t, 1, as, 0);
    size_t n;
    char *bytes = scratch_read("t", &n);
    for (uint32_t i = 0; i < 65536; i++) y[i] = (uint16_t)i;
    memcpy(bytes + n - sizeof y, y, sizeof y);
    scratch_write("t", bytes, n);
    free(bytes);
    ZxWeights *w = zx_weights_open(scratch("t"), false, &err);
    cr_assert(w && zx_weights_read(w, 0, 0, 65536, x, &err), "%s", err.text);
    zx_weights_close(w, NULL);
    cr_expect_eq(zx_as(as, x, 65536, y), -1);
    uint32_t other = 0;
    for (uint32_t i = 0; i < 65536; i++) other += y[i] != i && !isnan(x[i]);
    cr_expect_eq(other, 0, "%u values of type %d", other, (int)as);
    for (uint32_t i = 0; i + 1 < (as == ZX_AS_BF16 ? 0x7f7fu : 0x7bffu);
         i++) { /* between two finite neighbours */
      float half = x[i] + (x[i + 1] - x[i]) / 2, more = nextafterf(half, INFINITY),
            less = nextafterf(half, 0);
      float three[] = {half, more, less};
      uint16_t r[3];
      zx_as(as, three, 3, r);
      cr_assert(r[0] == i + (i & 1) && r[1] == i + 1 && r[2] == i, "between %u and the next: %u %u %u", i,
                r[0], r[1], r[2]);
    }
  }
  float big[] = {1, 65519, -65520, 3.4e38f, -INFINITY, NAN};
  uint16_t y[6];
  cr_expect_eq(zx_as(ZX_AS_F16, big, 6, y), 2);
  cr_expect_eq(y[1], 0x7bff);
  cr_expect(y[4] == 0xfc00 && (y[5] & 0x7fff) > 0x7c00);
  cr_expect_eq(zx_as(ZX_AS_BF16, big, 6, y), 3);
}

/* ---- names ---- */
/* A graph with wq, wk, wv[embed 4, head 2, hd 3] in c_attn[embed, 3 (head hd)]; wo[head, hd, embed] in
 * o[embed, (head hd)]; in a repeat of 3 layer.*.e[head, embed] in an embed x 1 tensor for each head. */
static ZgGraph *graph(void) {
  ZgGraph *g = zg_graph_new(a, "M");
  uint16_t e = (uint16_t)zg_axis_add(g, "embed", 4), h = (uint16_t)zg_axis_add(g, "head", 2),
           d = (uint16_t)zg_axis_add(g, "hd", 3);
  zg_segment_add(g, "", 0, false, 1);
  zg_segment_add(g, "layer", 0, true, 3);
  uint16_t all[] = {e, h, d}, some[] = {e, h};
  static const char *const names[] = {"wq", "wk", "wv"};
  for (uint32_t i = 0; i < 3; i++) {
    zg_param_add(
        g, (ZgParam){
               .path = names[i], .type = zg_type(ZG_REAL, all, 3), .order = {0, 1, 2}, .segment = ZG_NONE});
    zg_foreign_add(g, (ZgForeign){"hf", i, "c_attn", 2, {4, 18}, 6 * i, {18, 3, 1}, -1, 0});
  }
  zg_param_add(
      g, (ZgParam){.path = "wo", .type = zg_type(ZG_REAL, all, 3), .order = {1, 2, 0}, .segment = ZG_NONE});
  zg_foreign_add(g, (ZgForeign){"hf", 3, "o", 2, {4, 6}, 0, {3, 1, 6}, -1, 0});
  zg_param_add(
      g, (ZgParam){.path = "layer.*.e", .type = zg_type(ZG_REAL, some, 2), .order = {1, 0}, .segment = 1});
  zg_foreign_add(g, (ZgForeign){"hf", 4, "h.*.e.0", 2, {4, 1}, 0, {0, 1}, 0, 0});
  zg_foreign_add(g, (ZgForeign){"hf", 4, "h.*.e.1", 2, {4, 1}, 0, {0, 1}, 0, 1});
  zg_ignored_add(g, "hf", "*.inv_freq");
  zg_ignored_add(g, "hf", "h.*.attn.bias");
  zg_config_add(g, "hf", "vocab_size", "300");
  zg_config_add(g, "hf", "rope.theta", "1e-05");
  zg_config_add(g, "hf", "architectures", "[\"A\", \"B\"]");
  cr_assert(zg_verify_foreign(g, &err), "%s", err.text);
  return g;
}

Test(hub, maps) {
  ZgGraph *g = graph();
  ZxMap m;
  cr_expect(!zx_map_open(&m, a, g, "gguf", &err));
  says(err, "model M has no names `gguf`");
  cr_expect_str_eq(err.help, "it has hf");
  cr_assert(zx_map_open(&m, a, g, "hf", &err));
  cr_expect_eq(zx_map_parts(&m, 0), 1);
  cr_expect_eq(zx_map_parts(&m, 4), 2);
  ZxTensorInfo own = zx_map_own(a, g, 4, 2);
  cr_expect_str_eq(own.path, "layer.2.e");
  cr_expect(own.nshape == 2 && own.shape[0] == 2 && own.shape[1] == 4);
  ZxPart p = zx_map_part(&m, a, 4, 2, &own, 1);
  cr_expect_str_eq(p.info.path, "h.2.e.1");
  cr_expect(p.fixed == 0 && p.at == 1 && p.info.shape[0] == 4);
  static const char *const yes[] = {"a.inv_freq", ".inv_freq", "h.3.attn.bias", "h.h.attn.bias.attn.bias"},
                           *const no[] = {"inv_freq", "a.inv_freq2", "h.3.attn.bia", "xh.3.attn.bias", ""};
  for (size_t i = 0; i < 4; i++) cr_expect(zx_map_ignores(&m, yes[i]), "%s", yes[i]);
  for (size_t i = 0; i < 5; i++) cr_expect(!zx_map_ignores(&m, no[i]), "%s", no[i]);
  cr_assert(zx_map_open(&m, a, g, NULL, &err)); /* their own */
  p = zx_map_part(&m, a, 4, 2, &own, 0);
  cr_expect(!strcmp(p.info.path, "layer.2.e") && p.fixed == -1 && p.stride[0] == 4 && p.stride[1] == 1);
  g->foreign[1].map = g->foreign[2].map = "gguf", g->foreign[3].map = "mlx";
  cr_expect(!zx_map_open(&m, a, g, "h", &err));
  cr_expect_str_eq(err.help, "it has hf, gguf, mlx");
  cr_expect(zx_map_open(&m, a, g, "mlx", &err) && zx_map_parts(&m, 0) == 0 && zx_map_parts(&m, 3) == 1);
  g->nforeign = 1;
  cr_expect(zx_map_open(&m, a, g, "hf", &err) && zx_map_parts(&m, 0) == 1 && zx_map_parts(&m, 1) == 0);
  g->nforeign = 0;
  cr_expect(!zx_map_open(&m, a, g, "hf", &err));
  cr_expect_str_eq(err.help, "say `weights hf for M { ... }` beside it");
  for (int i = 0; i < 6; i++) { /* each is said once, however many parameters it has */
    static const char *const names[] = {"hf", "gguf", "gguf", "keras", "hf", "gguf"};
    zg_foreign_add(g, (ZgForeign){.map = names[i], .name = "x"});
  }
  cr_expect(!zx_map_open(&m, a, g, "onnx", &err));
  cr_expect_str_eq(err.help, "it has hf, gguf, keras");
}

/* ---- exports ---- */
static const ZxTensorInfo params[] = {
    {"wq", 3, {4, 2, 3}},     {"wk", 3, {4, 2, 3}},     {"wv", 3, {4, 2, 3}},    {"wo", 3, {2, 3, 4}},
    {"layer.0.e", 2, {2, 4}}, {"layer.1.e", 2, {2, 4}}, {"layer.2.e", 2, {2, 4}}};

static float *tensor_of(const ZxShards *s, const char *name, uint64_t n) {
  uint32_t t = zx_shards_find(s, name);
  cr_assert(t != ZB_NO_NAME, "%s", name);
  float *x = ZB_NEWN(a, float, n);
  cr_assert(zx_weights_read(s->file[s->in[t]], s->at[t], 0, n, x, &err), "%s", err.text);
  return x;
}

static mode_t mode(const char *name) {
  struct stat st;
  cr_assert_eq(stat(scratch(name), &st), 0);
  return st.st_mode & 07777;
}

/* Value i of the source is i: what is where follows from the definition of the names above. */
static void check_export(const char *dir, uint32_t files) {
  ZxShards s;
  cr_assert(zx_shards_open(&s, a, scratch(dir), &err), "%s", err.text);
  cr_expect_eq(s.nfiles, files);
  cr_expect_eq(s.names.n, 8);
  const float *x = tensor_of(&s, "c_attn", 72);
  for (int e = 0; e < 4; e++)
    for (int k = 0; k < 3; k++)
      for (int i = 0; i < 6; i++) cr_expect_eq(x[18 * e + 6 * k + i], 24 * k + 6 * e + i);
  x = tensor_of(&s, "o", 24);
  for (int e = 0; e < 4; e++)
    for (int i = 0; i < 6; i++) cr_expect_eq(x[6 * e + i], 72 + 4 * i + e);
  for (int l = 0; l < 3; l++)
    for (int h = 0; h < 2; h++) {
      x = tensor_of(&s, zb_printf(a, "h.%d.e.%d", l, h), 4);
      for (int e = 0; e < 4; e++) cr_expect_eq(x[e], 96 + 8 * l + 4 * h + e);
    }
  zx_shards_close(&s);
}

static bool export(ZgGraph *g, const char *from, ZxExportOptions o, ZxExported *x) {
  ZxMap m;
  ZxShards s;
  cr_assert(zx_map_open(&m, a, g, "hf", &err) && zx_shards_open(&s, a, scratch(from), &err), "%s", err.text);
  bool ok = zx_export(a, &m, &s, &o, x, &err);
  zx_shards_close(&s);
  return ok;
}

Test(hub, exports) {
  ZgGraph *g = graph();
  ZxExported x;
  size_t n;
  int before = open_files();
  static char tokens[(1 << 20) + 3]; /* more than is copied at once */
  for (size_t i = 0; i < sizeof tokens; i++) tokens[i] = (char)(i % 251);
  umask(022);
  write_tensors("own", params, 7, ZX_AS_F32, 0);
  scratch_folder("like");
  scratch_write("like/config.json", "{\"b\":10000.0,\"vocab_size\":7}", 28);
  scratch_write("like/tokenizer.json", tokens, sizeof tokens);
  scratch_write("like/other", "other", 5);
  ZxExportOptions o = {.out = zb_strdup(a, scratch("out//")), .most = 1 << 20};
  cr_assert(export(g, "own", o, &x), "%s", err.text);
  cr_expect(x.tensors == 8 && x.files == 1 && x.bytes == 480 && x.config && !x.copied);
  check_export("out", 1);
  cr_expect(mode("out") == 0755 && mode("out/model.safetensors") == 0644);
  cr_expect(access(scratch("out/model.safetensors.index.json"), F_OK) < 0);
  uint64_t head;
  char *text = scratch_read("out/model.safetensors", &n);
  memcpy(&head, text, 8);
  cr_expect_eq(head % 8, 0, "values begin at %llu", 8 + (unsigned long long)head);
  free(text);
  for (uint64_t window = 1; window < 80; window += 3) { /* however little of a tensor is in memory at once */
    ZxExportOptions few = {.out = o.out, .most = 1 << 20, .force = true, .window = window};
    cr_assert(export(g, "own", few, &x), "%s", err.text);
    check_export("out", 1);
  }
  for (uint64_t most = 191; most <= 192; most++) { /* of 288 bytes, six times 16, and 96 */
    ZxExportOptions full = {.out = o.out, .most = most, .force = true};
    cr_assert(export(g, "own", full, &x), "%s", err.text);
    cr_expect_eq(x.files, most == 192 ? 2 : 3);
    check_export("out", x.files);
  }
  /* Not over what is there; then, over what an export has made alone. */
  cr_expect(!export(g, "own", o, &x));
  says(err, "is there already");
  o = (ZxExportOptions){.out = zb_strdup(a, scratch("out")),
                        .like = zb_strdup(a, scratch("like")),
                        .as = ZX_AS_BF16,
                        .most = 100,
                        .force = true};
  cr_assert(export(g, "own", o, &x), "%s", err.text);
  cr_expect(x.tensors == 8 && x.files == 2 && x.bytes == 240 && x.copied == 1);
  check_export("out", 2);
  text = scratch_read("out/config.json", &n);
  cr_expect_str_eq(text,
                   "{\n  \"architectures\": [\n    \"A\",\n    \"B\"\n  ],\n  \"b\": 10000.0,\n  \"dtype\": "
                   "\"bfloat16\",\n  \"rope\": {\n    \"theta\": 1e-05\n  },\n  \"torch_dtype\": "
                   "\"bfloat16\",\n  \"vocab_size\": 300\n}\n");
  free(text);
  text = scratch_read("out/model.safetensors.index.json", &n);
  cr_expect_str_eq(text, "{\n"
                         "  \"metadata\": {\n"
                         "    \"total_parameters\": 120,\n"
                         "    \"total_size\": 240\n"
                         "  },\n"
                         "  \"weight_map\": {\n"
                         "    \"c_attn\": \"model-00001-of-00002.safetensors\",\n"
                         "    \"h.0.e.0\": \"model-00002-of-00002.safetensors\",\n"
                         "    \"h.0.e.1\": \"model-00002-of-00002.safetensors\",\n"
                         "    \"h.1.e.0\": \"model-00002-of-00002.safetensors\",\n"
                         "    \"h.1.e.1\": \"model-00002-of-00002.safetensors\",\n"
                         "    \"h.2.e.0\": \"model-00002-of-00002.safetensors\",\n"
                         "    \"h.2.e.1\": \"model-00002-of-00002.safetensors\",\n"
                         "    \"o\": \"model-00002-of-00002.safetensors\"\n"
                         "  }\n"
                         "}\n");
  free(text);
  text = scratch_read("out/tokenizer.json", &n);
  cr_expect(n == sizeof tokens && !memcmp(text, tokens, n));
  free(text);
  cr_expect(access(scratch("out/other"), F_OK) < 0);
  cr_expect_eq(open_files(), before);
}

/* A model without a config.json of its own. */
Test(hub, exports_without_a_config) {
  ZgGraph *g = graph();
  ZxExported x;
  ZxExportOptions o = {.out = "o/", .most = 1 << 20}; /* the shortest name with something behind it */
  g->nconfig = 0;
  write_tensors("own", params, 7, ZX_AS_F32, 0);
  cr_assert_eq(chdir(scratch("")), 0);
  cr_assert(export(g, "own", o, &x), "%s", err.text);
  cr_expect(!x.config);
  cr_expect(access("o/model.safetensors", F_OK) == 0 && access("o/config.json", F_OK) < 0);
}

/* Over an export, and nothing else; what an export has written that was killed is gone. */
Test(hub, what_exports_replace) {
  static const char *const others[] = {"notes.txt", "model.txt", "own.safetensors", "vocab.json.bak"};
  ZgGraph *g = graph();
  ZxExported x;
  int before = open_files();
  write_tensors("own", params, 7, ZX_AS_F32, 0);
  scratch_folder("like");
  scratch_write("like/config.json", "{}", 2);
  scratch_write("like/tokenizer.json", "tok", 3);
  scratch_write("like/spiece.model", "tok", 3);
  ZxExportOptions o = {
      .out = zb_strdup(a, scratch("out")), .like = zb_strdup(a, scratch("like")), .most = 100, .force = true};
  for (int k = 0; k < 3; k++) {
    errno = (int[]){0, EWOULDBLOCK, EINVAL}[k]; /* of what was before */
    cr_assert(export(g, "own", o, &x), "%s", err.text);
    cr_expect(x.copied == 2 && x.files > 1);
    cr_expect(access(scratch("out.export.tmp"), F_OK) < 0);
  }
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    const char *name = zb_printf(a, "out/%s", others[i]);
    scratch_write(name, "mine", 4);
    cr_expect(!export(g, "own", o, &x));
    says(err, zb_printf(a, "holds %s, which no export writes", others[i]));
    cr_expect(access(scratch("out.export.tmp"), F_OK) < 0);
    cr_assert_eq(unlink(scratch(name)), 0);
  }
  scratch_folder("out.export.tmp");
  scratch_write("out.export.tmp/vocab.txt", "old", 3);
  scratch_write("out.export.tmp/config.json", "old", 3);
  cr_assert(export(g, "own", o, &x), "%s", err.text);
  cr_expect(access(scratch("out/vocab.txt"), F_OK) < 0);
  check_export("out", x.files);
  scratch_folder("out/vocab.json"); /* by a name of ours, too */
  cr_expect(!export(g, "own", o, &x));
  says(err, "cannot remove ");
  cr_assert_eq(rmdir(scratch("out.export.tmp/vocab.json")) + rmdir(scratch("out.export.tmp")), 0);
  const char *first = zb_printf(a, "out.export.tmp/model-00001-of-%05u.safetensors", x.files);
  scratch_folder("out.export.tmp");
  scratch_folder(first);
  cr_expect(!export(g, "own", o, &x));
  says(err, zb_printf(a, "%s: File exists", first));
  cr_assert_eq(rmdir(scratch(first)) + rmdir(scratch("out.export.tmp")), 0);
  /* Of one that goes on. */
  scratch_folder("out.export.tmp");
  scratch_write("out.export.tmp/vocab.txt", "new", 3);
  int fd = open(scratch("out.export.tmp"), O_RDONLY | O_CLOEXEC);
  cr_assert(fd >= 0 && flock(fd, LOCK_EX) == 0);
  cr_expect(!export(g, "own", o, &x));
  says(err, "another export writes to ");
  cr_expect(access(scratch("out.export.tmp/vocab.txt"), F_OK) == 0);
  close(fd);
  cr_expect_eq(open_files(), before);
}

/* A file that runs may be read, but not written. */
Test(hub, exports_copy_what_may_be_read) {
  ZxExported x;
  write_tensors("own", params, 7, ZX_AS_F32, 0);
  scratch_folder("like");
  scratch_write("like/config.json", "{}", 2);
  cr_assert_eq(symlink("/proc/self/exe", scratch("like/vocab.txt")), 0);
  ZxExportOptions o = {
      .out = zb_strdup(a, scratch("out")), .like = zb_strdup(a, scratch("like")), .most = 1 << 20};
  cr_expect(export(graph(), "own", o, &x), "%s", err.text);
  cr_expect_eq(x.copied, 1);
}

/* As many files are open as may be; and parameters that are not there any more. */
Test(hub, exports_that_cannot_look) {
  ZxMap m;
  ZxShards s;
  ZxExported x;
  write_tensors("own", params, 7, ZX_AS_F32, 0);
  scratch_folder("out");
  ZxExportOptions o = {.out = zb_strdup(a, scratch("out")), .most = 1 << 20, .force = true};
  cr_assert(zx_map_open(&m, a, graph(), "hf", &err) && zx_shards_open(&s, a, scratch("own"), &err));
  int next = dup(STDERR_FILENO);
  struct rlimit before;
  cr_assert(next >= 0 && close(next) == 0 && getrlimit(RLIMIT_NOFILE, &before) == 0);
  cr_assert_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)next, before.rlim_max}), 0);
  cr_expect(!zx_export(a, &m, &s, &o, &x, &err));
  says(err, "cannot read the folder ");
  o.out = zb_strdup(a, scratch("new"));
  cr_expect(!zx_export(a, &m, &s, &o, &x, &err));
  says(err, "/new.export.tmp: Too many open files");
  cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
  cr_assert_eq(truncate(scratch("own"), 600), 0); /* while it is read */
  cr_expect(!zx_export(a, &m, &s, &o, &x, &err));
  says(err, "it shrank while it was read");
  zx_shards_close(&s);
}

/* Where no export can be. */
Test(hub, where_exports_cannot_be) {
  ZgGraph *g = graph();
  ZxExported x;
  ZxExportOptions o = {.out = zb_strdup(a, scratch("file")), .most = 1 << 20, .force = true};
  int before = open_files();
  write_tensors("own", params, 7, ZX_AS_F32, 0);
  scratch_write("file", "mine", 4);
  cr_expect(!export(g, "own", o, &x));
  says(err, "is there already");
  o.out = "";
  cr_expect(!export(g, "own", o, &x));
  says(err, "a folder without a name cannot be written");
  o.out = "//", o.force = false;
  cr_expect(!export(g, "own", o, &x));
  says(err, "/ is there already");
  o.force = true;
  o.out = zb_strdup(a, scratch("new")); /* what is written first is a folder of its own */
  scratch_write("new.export.tmp", "mine", 4);
  cr_expect(!export(g, "own", o, &x));
  says(err, "/new.export.tmp: Not a directory");
  scratch_folder("like");
  cr_assert(unlink(scratch("new.export.tmp")) == 0 && symlink("like", scratch("new.export.tmp")) == 0);
  cr_expect(!export(g, "own", o, &x));
  says(err, "/new.export.tmp: ");
  scratch_folder("here"); /* of which nothing can take the place by this name */
  scratch_write("here/config.json", "{}", 2);
  o.out = zb_strdup(a, scratch("here/."));
  cr_expect(!export(g, "own", o, &x));
  says(err, "cannot rename ");
  cr_expect_eq(access(scratch("here/config.json"), F_OK), 0);
  o.out = zb_strdup(a, scratch("no/where"));
  cr_expect(!export(g, "own", o, &x));
  says(err, "no/where.export.tmp: No such file");
  o.out = "/sys/zug"; /* which says itself why not */
  cr_expect(!export(g, "own", o, &x));
  says(err, "/sys/zug.export.tmp: ");
  cr_expect(!strstr(err.text, "No such file"), "%s", err.text);
  cr_expect_eq(open_files(), before);
}

/* However little of a tensor is in memory at once, of what is read for it little is read again. */
Test(hub, exports_read_once) {
  if (access("/proc/thread-self/io", R_OK) < 0) cr_skip_test("this system does not count what is read");
  ZgGraph *g = graph();
  ZxExported x;
  uint64_t calls, bytes[3];
  write_tensors("own", params, 7, ZX_AS_F32, 0);
  ZxExportOptions o = {.out = zb_strdup(a, scratch("out")), .most = 1 << 20, .force = true, .window = 1000};
  reads(&calls, &bytes[0]);
  for (int i = 1; i < 3; i++) {
    cr_assert(export(g, "own", o, &x), "%s", err.text);
    reads(&calls, &bytes[i]);
    o.window = 4;
  }
  cr_expect_lt(bytes[2] - bytes[1], bytes[1] - bytes[0] + 2 * 480, "%d bytes, and %d",
               (int)(bytes[1] - bytes[0]), (int)(bytes[2] - bytes[1]));
}

/* Each file, and the folder before it has its name: some file systems cannot wait for a folder. */
Test(hub, exports_are_on_the_disk) {
  static const char *const files[] = {"config.json", "model-00001-of-00002.safetensors",
                                      "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                                      "out.export.tmp"};
  static const int codes[] = {EIO, EINVAL, EROFS};
  ZgGraph *g = graph();
  ZxExported x;
  ZxExportOptions o = {.out = zb_strdup(a, scratch("out")), .most = 192, .force = true};
  write_tensors("own", params, 7, ZX_AS_F32, 0);
  scratch_synced();
  cr_assert(export(g, "own", o, &x), "%s", err.text);
  cr_expect_eq(scratch_synced(), 5);
  for (int k = 0; k < 3; k++)
    for (int i = 0; i < 5; i++) {
      scratch_sync_fails(codes[k], i);
      bool ok = export(g, "own", o, &x);
      cr_expect_eq(ok, i == 4 && k > 0, "%s, code %d", files[i], codes[k]);
      if (ok) continue;
      says(err, files[i]);
      says(err, strerror(codes[k]));
    }
  scratch_sync_fails(0, 0);
}

Test(hub, exports_that_cannot_be) {
  ZgGraph *g = graph();
  ZxExported x;
  int before = open_files();
  ZxExportOptions o = {.out = zb_strdup(a, scratch("out")), .most = 1 << 20};
  write_tensors("few", params, 6, ZX_AS_F32, 0);
  cr_expect(!export(g, "few", o, &x));
  says(err, "has no parameter 'layer.2.e' of model M");
  ZxTensorInfo more[8];
  memcpy(more, params, sizeof params);
  more[7] = (ZxTensorInfo){"x", 1, {1}};
  write_tensors("more", more, 8, ZX_AS_F32, 0);
  cr_expect(!export(g, "more", o, &x));
  says(err, "has 8 tensors; model M has 7 parameters");
  more[6].shape[0] = 3;
  write_tensors("wide", more, 7, ZX_AS_F32, 0);
  cr_expect(!export(g, "wide", o, &x));
  says(err, "tensor 'layer.2.e' has shape [3, 4]; the model wants [2, 4]");
  /* A value of c_attn that f16 does not hold; the folder is not left behind. */
  write_tensors("own", params, 7, ZX_AS_F32, 0);
  size_t n;
  char *bytes = scratch_read("own", &n);
  o.as = ZX_AS_F16;
  for (size_t at = 120; at >= 119; at--) { /* the first, and the one behind it */
    float big = at == 120 ? 1e6f : 2e6f;
    memcpy(bytes + n - 4 * at, &big, 4);
    scratch_write("big", bytes, n);
    cr_expect(!export(g, "big", o, &x));
    says(err, at == 120 ? "tensor 'c_attn' has the value 1e+06, which is too large for f16"
                        : "tensor 'c_attn' has the value 2e+06, which is too large for f16");
    memset(bytes + n - 4 * at, 0, 4);
  }
  free(bytes);
  cr_expect(access(scratch("out.export.tmp"), F_OK) < 0 && access(scratch("out"), F_OK) < 0);
  /* Nothing to be like, or no JSON. */
  o.as = ZX_AS_F32;
  o.like = zb_strdup(a, scratch("none"));
  cr_expect(!export(g, "own", o, &x));
  says(err, "none/config.json");
  scratch_folder("none");
  scratch_write("none/config.json", "{", 1);
  cr_expect(!export(g, "own", o, &x));
  says(err, "none/config.json is no JSON object");
  cr_assert_eq(truncate(scratch("none/config.json"), (1 << 26) + 1), 0);
  cr_expect(!export(g, "own", o, &x));
  says(err, "none/config.json has 67108865 bytes; at most 67108864 are read");
  scratch_write("none/config.json", "{}", 2);
  scratch_folder("none/vocab.json");
  cr_expect(!export(g, "own", o, &x));
  says(err, "none/vocab.json");
  cr_expect(access(scratch("out.export.tmp"), F_OK) < 0 && access(scratch("out"), F_OK) < 0);
  o.like = NULL;
  /* A full disk. */
  o.as = ZX_AS_F32;
  scratch_full_at(600);
  cr_expect(!export(g, "own", o, &x));
  says(err, "out.export.tmp/model.safetensors");
  cr_expect(access(scratch("out.export.tmp"), F_OK) < 0);
  cr_expect_eq(open_files(), before);
}

Test(hub, configs) {
  ZgGraph *g = graph();
  char *text = zx_config(g, "hf", ZX_AS_F32,
                         "{\"z\":[1.0,{\"k\\\"1\":-2E5,\"n\":null}],\"rope\":3,\"a\":{},\"t\":true,\"e\":[]}",
                         "c", &err);
  cr_assert(text, "%s", err.text);
  cr_expect_str_eq(
      text, "{\n  \"a\": {},\n  \"architectures\": [\n    \"A\",\n    \"B\"\n  ],\n  \"dtype\": "
            "\"float32\",\n  \"e\": [],\n  \"rope\": {\n    \"theta\": 1e-05\n  },\n  \"t\": true,\n  "
            "\"torch_dtype\": \"float32\",\n  \"vocab_size\": 300,\n  \"z\": [\n    1.0,\n    {\n      "
            "\"k\\\"1\": -2E5,\n      \"n\": null\n    }\n  ]\n}\n");
  free(text);
  text = zx_config(g, "hf", ZX_AS_F16, "{\"rope\":{\"type\":\"x\",\"theta\":5},\"architectures\":[]}", "c",
                   &err);
  cr_expect_str_eq(text,
                   "{\n  \"architectures\": [\n    \"A\",\n    \"B\"\n  ],\n  \"dtype\": \"float16\",\n  "
                   "\"rope\": {\n    \"theta\": 1e-05,\n    \"type\": \"x\"\n  },\n  \"torch_dtype\": "
                   "\"float16\",\n  \"vocab_size\": 300\n}\n");
  free(text);
  g->nconfig = 1; /* numbers in keys and in texts are none */
  text = zx_config(g, "hf", ZX_AS_F32, "{\"a9\":\"7 6\",\"b\":1.50,\"c\":[\"-5\",2e0]}", "c", &err);
  cr_expect_str_eq(
      text, "{\n  \"a9\": \"7 6\",\n  \"b\": 1.50,\n  \"c\": [\n    \"-5\",\n    2e0\n  ],\n  \"dtype\": "
            "\"float32\",\n  \"torch_dtype\": \"float32\",\n  \"vocab_size\": 300\n}\n");
  free(text);
  err = (ZbErr){0};
  cr_expect(!zx_config(g, "hf", ZX_AS_F32, "[1]", "like/config.json", &err));
  says(err, "like/config.json is no JSON object");
  cr_expect(!zx_config(g, "hf", ZX_AS_F32, "{\"a\":NaN}", "like/config.json", &err));
  g->nconfig = 0;
  err = (ZbErr){0};
  cr_expect(!zx_config(g, "hf", ZX_AS_F32, NULL, NULL, &err) && !*err.text);
  g->nconfig = 3; /* the last of which is another map's, and no JSON */
  g->config[2].map = "gguf", g->config[2].value = "[";
  text = zx_config(g, "hf", ZX_AS_F32, NULL, NULL, &err);
  cr_expect(text && !strstr(text, "architectures"));
  free(text);
  cr_expect(!zx_config(g, "gguf", ZX_AS_F32, NULL, NULL, &err));
  says(err, "model M: the value of `architectures` in config.json is no JSON");
  cr_expect_str_eq(err.help, "compile the graph again");
  cr_expect(!zx_config(g, "mlx", ZX_AS_F32, NULL, NULL, &err));
}

/* Numbers stay as they are written, whatever keys and texts are around them. */
Test(hub, numbers_of_configs) {
  static const char *const numbers[] =
      {"0", "-0", "1.00", "10000.0", "-1.5E-07", "2e+3", "123456789012345678901234567890"},
                           *const around[] = {"{\"k\":%s}",
                                              "{ \"k\" : [ \"8\" , %s , 9.0 ] }",
                                              "{\"a\\\\\":\"\\\\\",\"k\":%s}",
                                              "{\"a\\\"7\":\"\\\"6\\\\\\\"5\",\"k\":[%s,\"4\",{\"3\":2}]}",
                                              "{\"a\":[],\"b\":{},\"c\":null,\"\":\"\",\"k\":{\"1\":%s}}",
                                              "{\"1\":[[7,[\"\\u00222\",-3.0]]],\"k\":[true,%s]}"};
  ZgGraph *g = graph();
  char in[200], want[64];
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    for (size_t k = 0; k < sizeof around / sizeof *around; k++) {
      snprintf(in, sizeof in, around[k], numbers[i]);
      char *text = zx_config(g, "hf", ZX_AS_F32, in, "c", &err);
      cr_assert(text, "%s: %s", in, err.text);
      snprintf(want, sizeof want, " %s", numbers[i]);
      const char *at = strstr(text, want);
      while (at && at[strlen(want)] != ',' && at[strlen(want)] != '\n') at = strstr(at + 1, want);
      cr_expect(at, "%s became %s", in, text);
      free(text);
    }
}

/* Weights by other names: files and folders of shards, boxes against element by element, types, names. */
#include "runtime/exec/hub/hub.h"
#include "tests/unit/exec/foreign_files.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

SCRATCH_SUITE(hub);

static ZbErr err;

/* ---- files ---- */
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
  foreign_tensors("d/x-1.safetensors", two, 2, ZK_F32, 1);
  foreign_tensors("d/x-2.safetensors", one, 1, ZK_BF16, 3);
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
  foreign_tensors("d/model.safetensors", one, 1, ZK_F16, 0);
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
  foreign_tensors("one", one, 1, ZK_F32, 0);
  cr_assert(!chmod(scratch(""), 0755) && !chmod(scratch("one"), 0444) && (geteuid() || !seteuid(65534)));
  cr_expect(zx_shards_open(&s, a, scratch("one"), &err), "%s", err.text);
  zx_shards_close(&s);
  cr_assert(getuid() || !seteuid(0));
}

Test(hub, shards_that_are_none) {
  static const struct {
    const char *index, *words;
  } cases[] = {
      {"{", "index.json: it is not JSON"},
      {"[]", "has no `weight_map`"},
      {"{\"weight_map\":{}}", "has no `weight_map`"},
      {"{\"weight_map\":{\"a\":\"../x-1.safetensors\"}}", "not a safetensors file beside it"},
      {"{\"weight_map\":{\"a\":\".safetensors\"}}", "not a safetensors file beside it"},
      {"{\"weight_map\":{\"a\":\"x-1.bin\"}}", "not a safetensors file beside it"},
      {"{\"weight_map\":{\"a\":3}}", "not a safetensors file beside it"},
      {"{\"weight_map\":{\"a\":\"d/x-1.safetensors\"}}", "not a safetensors file beside it"},
      {"{\"weight_map\":{\"a\":\"x\\u001f.safetensors\"}}", "not a safetensors file beside it"},
      {"{\"weight_map\":{\"a\":\"x\\u007f.safetensors\"}}", "not a safetensors file beside it"},
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
  foreign_tensors("d/x-1.safetensors", two, 2, ZK_F32, 0);
  foreign_tensors("d/x-2.safetensors", one, 1, ZK_F32, 0);
  foreign_tensors("d/x-3.safetensors", again, 1, ZK_F32, 0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    index_of(cases[i].index);
    cr_expect(!zx_shards_open(&s, a, scratch("d"), &err), "case %zu", i);
    says(err, cases[i].words);
  }
  for (int n = 188; n <= 189; n++) { /* a name of 200 bytes, and of one more */
    const char *name = zb_printf(a, "%0*d.safetensors", n, 0);
    index_of(zb_printf(a, "{\"weight_map\":{\"a\":\"%s\"}}", name));
    cr_expect(!zx_shards_open(&s, a, scratch("d"), &err));
    says(err, n == 188 ? "No such file" : "not a safetensors file beside it");
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
    {.naxes = 2,
     .count = {453, 611},
     .stride = {1, 500},
     .step = {611, 1},
     .from = 3,
     .to = -700}, /* turned */
    {.naxes = 3, .count = {5, 301, 611}, .stride = {200000, 1, 302}, .step = {200000, 620, 1}, .to = 3},
    {.naxes = 2,
     .count = {700, 600},
     .stride = {600, 1},
     .step = {600, 1},
     .from = 5,
     .to = 1230000}, /* one row */
};

/* Element by element, and nothing else is touched. */
Test(hub, boxes) {
  enum { SIZE = 1400000 };
  static float got[SIZE], want[SIZE];
  static const ZxTensorInfo t[] = {{"odd", 1, {1}}, {"t", 1, {SIZE}}};
  foreign_tensors("t", t, 2, ZK_F32, 1);
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
    for (int parts = 2; parts < 40; parts = 3 * parts + 1) {
      bool finite = true;
      for (int64_t k = 0; k < SIZE; k++) got[k] = -1;
      for (int k = parts; k-- > 0;)
        cr_expect(zx_box_read_part(&(ZxReading){&s, tensor, *b, got, (uint64_t)n}, k, parts, &finite, &err));
      cr_expect(finite && !memcmp(got, want, sizeof got), "box %zu in %d parts", i, parts);
    }
  }
  cr_assert_eq(truncate(scratch("t"), 100), 0); /* whatever is read first, is not there */
  for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++) {
    bool nothing = boxes[i].naxes == 1 && !boxes[i].count[0];
    cr_expect_eq(zx_box_read(&s, tensor, &boxes[i], got, SIZE, &err), nothing, "box %zu", i);
  }
  zx_shards_close(&s);
}

/* What lies close together is read at once, up to a piece; what is far from it is not. */
Test(hub, boxes_are_read_in_pieces) {
  if (access("/proc/thread-self/io", R_OK) < 0) cr_skip_test("this system does not count what is read");
  static const struct {
    size_t box;
    uint64_t calls, elements;
  } want[] = {
      {4, 1, 1},
      {5, 1, 5}, /* a single one, neighbours */
      {7, 4, 4},
      {14, 2, 8}, /* far from each other */
      {9, 1, 30 * 40},
      {11, 6, 6 * 13}, /* with what lies between them */
      {10, 2, 698 * 300 + 12},
      {12, 12, 1350000},
      {13, 11, 1350000}, /* more than a piece */
  };
  static float out[1400000];
  static const ZxTensorInfo t = {"t", 1, {1400000}};
  foreign_tensors("t", &t, 1, ZK_F32, 0);
  ZxShards s;
  cr_assert(zx_shards_open(&s, a, scratch("t"), &err), "%s", err.text);
  uint64_t calls[3], bytes[3];
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    count_reads(&calls[0], &bytes[0]);
    count_reads(&calls[1], &bytes[1]); /* what it takes to ask */
    cr_assert(zx_box_read(&s, 0, &boxes[want[i].box], out, 1400000, &err), "%s", err.text);
    count_reads(&calls[2], &bytes[2]);
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
  for (int k = 0; k < 2; k++) {
    const ZkElem as = k ? ZK_F16 : ZK_BF16;
    static float x[65536];
    static uint16_t y[65536];
    foreign_tensors("t", &t, 1, as, 0);
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
    for (uint32_t i = 0; i + 1 < (as == ZK_BF16 ? 0x7f7fu : 0x7bffu);
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
  cr_expect_eq(zx_as(ZK_F16, big, 6, y), 2);
  cr_expect_eq(y[1], 0x7bff);
  cr_expect(y[4] == 0xfc00 && (y[5] & 0x7fff) > 0x7c00);
  cr_expect_eq(zx_as(ZK_BF16, big, 6, y), 3);
}

/* ---- names ---- */
Test(hub, maps) {
  ZgGraph *g = foreign_graph(a);
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

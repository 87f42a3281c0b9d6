/* Exports: weights by other names, which are what they are made of. */
#include "runtime/exec/hub/hub.h"
#include "tests/unit/exec/foreign_files.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

SCRATCH_SUITE(exports);

static ZbErr err;

static const ZxTensorInfo params[] = {
    {"wq", 3, {4, 2, 3}},     {"wk", 3, {4, 2, 3}},     {"wv", 3, {4, 2, 3}},    {"wo", 3, {2, 3, 4}},
    {"layer.0.e", 2, {2, 4}}, {"layer.1.e", 2, {2, 4}}, {"layer.2.e", 2, {2, 4}}};

static float *tensor_of(const ZxShards *s, const char *name, uint64_t n) {
  uint32_t t = zx_shards_find(s, name);
  cr_assert(t != ZB_NO_NAME, "%s", name);
  float *x = ZB_NEWN(a, float, n);
  cr_assert(zx_weights_read(s->file[s->at[t].file], s->at[t].tensor, 0, n, x, &err), "%s", err.text);
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

/* Returns whether a temporary of that name is there. */
static bool left(const char *name) {
  glob_t g;
  bool any = glob(scratch(zb_printf(a, "%s.*.tmp", name)), 0, NULL, &g) == 0 && g.gl_pathc > 0;
  globfree(&g);
  return any;
}

Test(exports, values) {
  ZgGraph *g = foreign_graph(a);
  ZxExported x;
  size_t n;
  int before = open_files();
  static char tokens[(1 << 20) + 3]; /* more than is copied at once */
  for (size_t i = 0; i < sizeof tokens; i++) tokens[i] = (char)(i % 251);
  umask(022);
  foreign_tensors("own", params, 7, ZK_F32, 0);
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
                        .as = ZK_BF16,
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
Test(exports, without_a_config) {
  ZgGraph *g = foreign_graph(a);
  ZxExported x;
  ZxExportOptions o = {.out = "o/", .most = 1 << 20}; /* the shortest name with something behind it */
  g->nconfig = 0;
  foreign_tensors("own", params, 7, ZK_F32, 0);
  cr_assert_eq(chdir(scratch("")), 0);
  cr_assert(export(g, "own", o, &x), "%s", err.text);
  cr_expect(!x.config);
  cr_expect(access("o/model.safetensors", F_OK) == 0 && access("o/config.json", F_OK) < 0);
}

/* Over an export, and nothing else; what an export has written that was killed is gone. */
Test(exports, what_they_replace) {
  static const char *const others[] = {"notes.txt", "model.txt", "own.safetensors", "vocab.json.bak"};
  ZgGraph *g = foreign_graph(a);
  ZxExported x;
  int before = open_files();
  foreign_tensors("own", params, 7, ZK_F32, 0);
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
    cr_expect(!left("out"));
  }
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    const char *name = zb_printf(a, "out/%s", others[i]);
    scratch_write(name, "mine", 4);
    cr_expect(!export(g, "own", o, &x));
    says(err, zb_printf(a, "holds %s, which no export writes", others[i]));
    cr_expect(!left("out"));
    cr_assert_eq(unlink(scratch(name)), 0);
  }
  scratch_folder("out.export.tmp"); /* by a name that is somebody's */
  scratch_write("out.export.tmp/vocab.txt", "old", 3);
  cr_assert(export(g, "own", o, &x), "%s", err.text);
  cr_expect(access(scratch("out.export.tmp/vocab.txt"), F_OK) == 0);
  cr_assert(unlink(scratch("out.export.tmp/vocab.txt")) + rmdir(scratch("out.export.tmp")) == 0);
  check_export("out", x.files);
  scratch_folder("out/vocab.json"); /* by a name of ours, too */
  cr_expect(!export(g, "own", o, &x));
  says(err, "cannot remove ");
  cr_expect_eq(open_files(), before);
}

/* What a killed export left goes; that of one which goes on stays, and another waits for it. */
Test(exports, that_end_early) {
  ZgGraph *g = foreign_graph(a);
  ZxExported x;
  foreign_tensors("own", params, 7, ZK_F32, 0);
  ZxExportOptions o = {.out = zb_strdup(a, scratch("out")), .most = 100, .force = true};
  char *tmp;
  int fd = zb_tmp_make(o.out, true, 0777, &tmp);
  cr_assert(fd >= 0);
  FILE *f = fopen(zb_printf(a, "%s/vocab.txt", tmp), "w");
  cr_assert(f && fclose(f) == 0);
  cr_expect(!export(g, "own", o, &x));
  says(err, "another export writes ");
  cr_expect(left("out"));
  close(fd);
  cr_assert(export(g, "own", o, &x), "%s", err.text);
  cr_expect(!left("out") && access(scratch("out/vocab.txt"), F_OK) < 0);
  check_export("out", x.files);
  free(tmp);
}

/* A file that runs may be read, but not written. */
Test(exports, copy_what_may_be_read) {
  ZxExported x;
  foreign_tensors("own", params, 7, ZK_F32, 0);
  scratch_folder("like");
  scratch_write("like/config.json", "{}", 2);
  cr_assert_eq(symlink("/proc/self/exe", scratch("like/vocab.txt")), 0);
  ZxExportOptions o = {
      .out = zb_strdup(a, scratch("out")), .like = zb_strdup(a, scratch("like")), .most = 1 << 20};
  cr_expect(export(foreign_graph(a), "own", o, &x), "%s", err.text);
  cr_expect_eq(x.copied, 1);
}

/* As many files are open as may be; and parameters that are not there any more. */
Test(exports, that_cannot_look) {
  ZxMap m;
  ZxShards s;
  ZxExported x;
  foreign_tensors("own", params, 7, ZK_F32, 0);
  scratch_folder("out");
  ZxExportOptions o = {.out = zb_strdup(a, scratch("out")), .most = 1 << 20, .force = true};
  cr_assert(zx_map_open(&m, a, foreign_graph(a), "hf", &err) && zx_shards_open(&s, a, scratch("own"), &err));
  int next = dup(STDERR_FILENO);
  struct rlimit before;
  cr_assert(next >= 0 && close(next) == 0 && getrlimit(RLIMIT_NOFILE, &before) == 0);
  cr_assert_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)next, before.rlim_max}), 0);
  cr_expect(!zx_export(a, &m, &s, &o, &x, &err));
  says(err, "cannot read the folder ");
  o.out = zb_strdup(a, scratch("new"));
  cr_expect(!zx_export(a, &m, &s, &o, &x, &err));
  says(err, "/new: Too many open files");
  cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
  cr_assert_eq(truncate(scratch("own"), 600), 0); /* while it is read */
  cr_expect(!zx_export(a, &m, &s, &o, &x, &err));
  says(err, "it shrank while it was read");
  zx_shards_close(&s);
}

/* Where no export can be. */
Test(exports, where_they_cannot_be) {
  ZgGraph *g = foreign_graph(a);
  ZxExported x;
  ZxExportOptions o = {.out = zb_strdup(a, scratch("file")), .most = 1 << 20, .force = true};
  int before = open_files();
  foreign_tensors("own", params, 7, ZK_F32, 0);
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
  scratch_folder("here"); /* of which nothing can take the place by this name */
  scratch_write("here/config.json", "{}", 2);
  o.out = zb_strdup(a, scratch("here/."));
  cr_expect(!export(g, "own", o, &x));
  says(err, "cannot rename ");
  cr_expect_eq(access(scratch("here/config.json"), F_OK), 0);
  o.out = zb_strdup(a, scratch("no/where"));
  cr_expect(!export(g, "own", o, &x));
  says(err, "no/where: No such file");
  o.out = "/sys/zug"; /* which says itself why not */
  cr_expect(!export(g, "own", o, &x));
  says(err, "/sys/zug: ");
  cr_expect(!strstr(err.text, "No such file"), "%s", err.text);
  cr_expect_eq(open_files(), before);
}

/* However little of a tensor is in memory at once, of what is read for it little is read again. */
Test(exports, read_once) {
  if (access("/proc/thread-self/io", R_OK) < 0) cr_skip_test("this system does not count what is read");
  ZgGraph *g = foreign_graph(a);
  ZxExported x;
  uint64_t calls, bytes[3];
  foreign_tensors("own", params, 7, ZK_F32, 0);
  ZxExportOptions o = {.out = zb_strdup(a, scratch("out")), .most = 1 << 20, .force = true, .window = 1000};
  count_reads(&calls, &bytes[0]);
  for (int i = 1; i < 3; i++) {
    cr_assert(export(g, "own", o, &x), "%s", err.text);
    count_reads(&calls, &bytes[i]);
    o.window = 4;
  }
  cr_expect_lt(bytes[2] - bytes[1], bytes[1] - bytes[0] + 2 * 480, "%d bytes, and %d",
               (int)(bytes[1] - bytes[0]), (int)(bytes[2] - bytes[1]));
}

/* Each file, and the folder before it has its name: some file systems cannot wait for a folder. */
Test(exports, are_on_the_disk) {
  static const char *const files[] = {"config.json", "model-00001-of-00002.safetensors",
                                      "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                                      ".tmp"};
  static const int codes[] = {EIO, EINVAL, EROFS};
  ZgGraph *g = foreign_graph(a);
  ZxExported x;
  ZxExportOptions o = {.out = zb_strdup(a, scratch("out")), .most = 192, .force = true};
  foreign_tensors("own", params, 7, ZK_F32, 0);
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

Test(exports, that_cannot_be) {
  ZgGraph *g = foreign_graph(a);
  ZxExported x;
  int before = open_files();
  ZxExportOptions o = {.out = zb_strdup(a, scratch("out")), .most = 1 << 20};
  foreign_tensors("few", params, 6, ZK_F32, 0);
  cr_expect(!export(g, "few", o, &x));
  says(err, "has no parameter 'layer.2.e' of model M");
  ZxTensorInfo more[8];
  memcpy(more, params, sizeof params);
  more[7] = (ZxTensorInfo){"x", 1, {1}};
  foreign_tensors("more", more, 8, ZK_F32, 0);
  cr_expect(!export(g, "more", o, &x));
  says(err, "has 8 tensors; model M has 7 parameters");
  more[6].shape[0] = 3;
  foreign_tensors("wide", more, 7, ZK_F32, 0);
  cr_expect(!export(g, "wide", o, &x));
  says(err, "tensor 'layer.2.e' has shape [3, 4]; the model wants [2, 4]");
  /* A value of c_attn that f16 does not hold; the folder is not left behind. */
  foreign_tensors("own", params, 7, ZK_F32, 0);
  size_t n;
  char *bytes = scratch_read("own", &n);
  o.as = ZK_F16;
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
  cr_expect(!left("out") && access(scratch("out"), F_OK) < 0);
  /* Nothing to be like, or no JSON. */
  o.as = ZK_F32;
  o.like = zb_strdup(a, scratch("none"));
  cr_expect(!export(g, "own", o, &x));
  says(err, "none/config.json");
  scratch_folder("none");
  scratch_write("none/config.json", "{", 1);
  cr_expect(!export(g, "own", o, &x));
  says(err, "none/config.json as a config: it is not JSON");
  cr_assert_eq(truncate(scratch("none/config.json"), (1 << 26) + 1), 0);
  cr_expect(!export(g, "own", o, &x));
  says(err, "none/config.json has 67108865 bytes; at most 67108864 are read");
  scratch_write("none/config.json", "{}", 2);
  scratch_folder("none/vocab.json");
  cr_expect(!export(g, "own", o, &x));
  says(err, "none/vocab.json");
  cr_expect(!left("out") && access(scratch("out"), F_OK) < 0);
  o.like = NULL;
  /* A full disk. */
  o.as = ZK_F32;
  scratch_full_at(600);
  cr_expect(!export(g, "own", o, &x));
  says(err, ".tmp/model.safetensors");
  cr_expect(!left("out"));
  cr_expect_eq(open_files(), before);
}

/* What ranks compare of their files, to the letter, and who reads a file that several were given. */
#include "runtime/exec/facts.h"
#include "runtime/plan/text.h"
#include "tests/unit/exec/scratch.h"
#include "tests/unit/exec/stream_file.h"
#include "tests/unit/exec/threads.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <criterion/redirect.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

TestSuite(facts, .init = scratch_make, .fini = scratch_remove);

static const char *init[THREADS_MOST]; /* what each rank was given */
static bool good[THREADS_MOST];
static ZbText list[THREADS_MOST], notes[THREADS_MOST]; /* its facts: "name value" a line */
static ZbErr errs[THREADS_MOST];

static void add_list(const ZxFacts *f, ZxFactKind kind, ZbText *out) {
  for (uint32_t i = 0; i < f->n; i++) {
    cr_assert_eq(f->fact[i].kind, kind);
    zb_text_add(out, "%s %s\n", f->fact[i].name, f->fact[i].value);
  }
}

static void clear(void) {
  for (int k = 0; k < THREADS_MOST; k++) {
    zb_text_free(&list[k]);
    zb_text_free(&notes[k]);
    errs[k] = (ZbErr){0};
  }
}

static void *of_init(void *arg) {
  ThreadRank *r = arg;
  ZxFacts f = {.a = zb_arena_new()};
  good[r->rank] = zx_init_facts(&f, &r->base, init[r->rank], "", &notes[r->rank], &errs[r->rank]);
  add_list(&f, ZX_INIT, &list[r->rank]);
  zb_arena_free(f.a);
  return NULL;
}

static unsigned long long sum_of(const void *p, size_t n) { return XXH3_64bits(p, n); }

/* ---- initial weights ---- */
Test(facts, initial_weights) {
  char want[200];
  scratch_write("a", "abc", 3);
  scratch_write("b", "abc", 3);
  scratch_write("c", "abd", 3);
  for (int k = 0; k < 4; k++) init[k] = strdup(scratch(k < 2 ? "a" : k == 2 ? "b" : "c"));
  together(4, of_init);
  for (int k = 0; k < 4; k++) {
    snprintf(want, sizeof want, "number of files 1\nbytes 3\ncontent's checksum %016llx\n",
             sum_of(k < 3 ? "abc" : "abd", 3));
    cr_expect(good[k]);
    cr_expect_str_eq(list[k].s, want, "rank %d: %s", k, list[k].s);
    cr_expect_null(notes[k].s);
    free((char *)init[k]);
  }
  clear();
}

/* What one rank cannot read it says; the others go on to where all compare. */
Test(facts, a_file_that_one_rank_has_not) {
  scratch_write("a", "abc", 3);
  for (int k = 0; k < 3; k++) init[k] = strdup(scratch(k == 1 ? "none" : "a"));
  together(3, of_init);
  for (int k = 0; k < 3; k++) {
    cr_expect_eq(good[k], k != 1 && *errs[1].text && strstr(list[k].s ? list[k].s : "", "bytes 3") != NULL,
                 "rank %d", k);
    free((char *)init[k]);
  }
  says(errs[1], "none");
  clear();
}

/* The list of what is in which file is one of them; config.json counts, too: it says how weights are quantized. */
Test(facts, a_folder_of_shards) {
  static const char one[] = "{\"weight_map\":{\"a\":\"x.safetensors\",\"b\":\"y.safetensors\"}}";
  char want[480];
  scratch_write("model.safetensors.index.json", one, sizeof one - 1);
  scratch_write("x.safetensors", "xx", 2);
  scratch_write("y.safetensors", "yyy", 3);
  scratch_write("config.json", "{}", 2);
  init[0] = scratch(".");
  together(1, of_init);
  snprintf(want, sizeof want,
           "number of files 3\nfile 1's bytes %zu\nfile 1's content's checksum %016llx\n"
           "file 2's bytes 2\nfile 2's content's checksum %016llx\n"
           "file 3's bytes 3\nfile 3's content's checksum %016llx\nconfig.json's checksum %016llx\n",
           sizeof one - 1, sum_of(one, sizeof one - 1), sum_of("xx", 2), sum_of("yyy", 3), sum_of("{}", 2));
  cr_expect(good[0], "%s", errs[0].text);
  cr_expect_str_eq(list[0].s ? list[0].s : "", want, "%s", list[0].s);
  clear();
}

/* One of them needs no number; and how many there are is compared before anything is read. */
Test(facts, how_many_files_there_are) {
  static const char one[] = "{\"weight_map\":{\"a\":\"x.safetensors\"}}";
  ZbArena *a = zb_arena_new();
  cr_redirect_stderr();
  int before = open_files();
  scratch_folder("one");
  scratch_write("one/model.safetensors.index.json", one, sizeof one - 1);
  scratch_write("one/x.safetensors", "xx", 2);
  init[0] = zb_strdup(a, scratch("one"));
  together(1, of_init);
  cr_expect(good[0] && strstr(list[0].s, "\nfile 1's bytes ") && strstr(list[0].s, "\nfile 2's bytes 2\n"),
            "%s", list[0].s);
  clear();
  init[1] = zb_strdup(a, scratch("one/x.safetensors"));
  together(2, of_init);
  for (int k = 0; k < 2; k++) {
    cr_expect(!good[k] && !*errs[k].text);
    cr_expect_str_eq(list[k].s, k ? "number of files 1\n" : "number of files 2\n");
  }
  clear();
  cr_expect_eq(open_files(), before);
  zb_arena_free(a);
}

Test(facts, files_that_fail) {
  char *bytes = calloc(1 << 20, 1);
  scratch_write("x", bytes, 1 << 20);
  free(bytes);
  init[0] = strdup(scratch("x"));
  for (int after = 0; after < 4; after++) { /* of four pieces */
    scratch_reads_fail(after % 2 ? EIO : 0, after);
    together(1, of_init);
    cr_expect(!good[0]);
    says(errs[0], after % 2 ? "/x: Input/output error" : "/x: it shrank while it was read");
    clear();
  }
  scratch_reads_fail(-1, 0);
  free((char *)(uintptr_t)init[0]);
}

/* Bytes that this process has read so far. */
static uint64_t bytes_read(void) {
  unsigned long long n = 0;
  FILE *f = fopen("/proc/self/io", "r");
  cr_assert(f && fscanf(f, "rchar: %llu", &n) == 1);
  fclose(f);
  return n;
}

/* Of a file that ranks of a node share one reads it; of equal ones each its own. */
Test(facts, who_reads) {
  if (access("/proc/self/io", R_OK) < 0) cr_skip_test("this system does not count what is read");
  enum { N = 1 << 20 };
  char *bytes = calloc(N, 1);
  ZbArena *a = zb_arena_new();
  const char *x, *y;
  scratch_write("x", bytes, N);
  scratch_write("y", bytes, N);
  x = zb_strdup(a, scratch("x")), y = zb_strdup(a, scratch("y"));
  for (int times = 1; times <= 3; times++) {
    init[0] = init[2] = x;
    init[1] = times > 1 ? y : x;
    threads_node[2] = times > 2 ? 2 : 0;
    uint64_t before = bytes_read();
    together(3, of_init);
    uint64_t n = bytes_read() - before;
    cr_expect(n >= (uint64_t)times * N && n < (uint64_t)times * N + N / 2, "%d times: %llu", times,
              (unsigned long long)n);
    for (int k = 0; k < 3; k++) cr_expect(good[k] && !strcmp(list[k].s, list[0].s));
    clear();
  }
  free(bytes);
  zb_arena_free(a);
}

/* ---- large files ---- */
static void put(const char *path, uint64_t at, char byte) {
  int fd = open(path, O_WRONLY);
  cr_assert(fd >= 0 && pwrite(fd, &byte, 1, (off_t)at) == 1 && close(fd) == 0);
}

/* Of a file with holes: all of it up to 1 GiB; beyond, 16 MiB at the beginning and 64 pieces of 256 kiB, the
 * last of which is its end. */
Test(facts, large_files_are_read_in_pieces) {
  static const uint64_t head = 16 << 20, piece = 256 << 10, size = ZX_READ_WHOLE / 2 * 3 + 12345;
  const uint64_t step = (size - head - piece) / 64;
  const uint64_t unseen[] = {head, head + step - 1, head + step + piece, size - piece - 1},
                 seen[] = {0,
                           head - 1,
                           head + step,
                           head + step + piece - 1,
                           head + 17 * step + 5,
                           size - piece,
                           size - 1};
  ZbArena *a = zb_arena_new();
  char *path = zb_strdup(a, scratch("large")), *first;
  init[0] = path;
  scratch_write("large", "", 0);
  cr_assert(truncate(path, (off_t)size) == 0);
  together(1, of_init);
  first = zb_strdup(a, list[0].s);
  cr_expect_str_eq(
      notes[0].s,
      zb_printf(a, "note: %s has 1.6 GB, and more than 1.1 GB is compared by pieces only\n", path), "%s",
      notes[0].s);
  clear();
  for (int i = 0; i < 4; i++) put(path, unseen[i], 1);
  together(1, of_init);
  cr_expect_str_eq(list[0].s, first);
  clear();
  for (int i = 0; i < 7; i++) {
    put(path, seen[i], 1);
    together(1, of_init);
    cr_expect(good[0] && strcmp(list[0].s, first), "byte %llu", (unsigned long long)seen[i]);
    clear();
    put(path, seen[i], 0);
  }
  cr_assert(truncate(path, (off_t)ZX_READ_WHOLE) == 0);
  together(1, of_init);
  cr_expect_null(notes[0].s, "it is read whole");
  clear();
  zb_arena_free(a);
}

/* ---- data ---- */
static const char *data[THREADS_MOST];
static bool gone; /* files are removed when all ranks have opened theirs */
static void *of_data(void *arg) {
  ThreadRank *r = arg;
  ZxFacts f = {.a = zb_arena_new()};
  ZxMix *m = zx_mix_open(data[r->rank], &errs[r->rank]);
  cr_assert(m, "%s", errs[r->rank].text);
  if (gone) {
    r->base.t->barrier(&r->base);
    cr_assert(unlink(data[r->rank]) == 0);
  }
  good[r->rank] = zx_data_facts(&f, ZX_EVAL_DATA, &r->base, m, &notes[r->rank], &errs[r->rank]);
  add_list(&f, ZX_EVAL_DATA, &list[r->rank]);
  zx_mix_close(m);
  zb_arena_free(f.a);
  return NULL;
}

static void make_streams(void) {
  uint16_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  stream_file("a.bin", ZX_DATA_U16, ids, 9, 10);
  stream_file("b.bin", ZX_DATA_U16, ids, 4, 20);
}

/* Of each: what its header says, and its share. */
Test(facts, data) {
  ZbArena *a = zb_arena_new();
  ZbErr err;
  make_streams();
  data[0] = data[1] = zb_printf(a, "%s:0.25,%s:0.75", scratch("a.bin"), scratch("b.bin"));
  ZxMix *m = zx_mix_open(data[0], &err);
  cr_assert(m, "%s", err.text);
  const char *want = "number of files 2\n";
  for (uint32_t i = 0; i < 2; i++)
    want = zb_printf(a,
                     "%sfile %u's share %u/4\nfile %u's kind stream\nfile %u's tokens %d\n"
                     "file %u's field 0 tokens: 1 x u16 below %d\nfile %u's content's checksum %016llx\n",
                     want, i + 1, i ? 3 : 1, i + 1, i + 1, i ? 4 : 9, i + 1, i ? 20 : 10, i + 1,
                     (unsigned long long)zx_data_info(zx_mix_file(m, i))->data_sum);
  together(2, of_data);
  for (int k = 0; k < 2; k++) {
    cr_expect(good[k], "%s", errs[k].text);
    cr_expect_str_eq(list[k].s, want, "%s", list[k].s);
  }
  clear();
  zx_mix_close(m);
  zb_arena_free(a);
}

Test(facts, data_that_differs) {
  cr_redirect_stderr();
  ZbArena *a = zb_arena_new();
  make_streams();
  data[0] = zb_strdup(a, scratch("a.bin"));
  data[1] = zb_strdup(a, scratch("b.bin"));
  together(2, of_data);
  cr_expect(!good[0] && !good[1] && !*errs[0].text && !*errs[1].text);
  clear();
  zb_arena_free(a);
}

/* The rank that reads it finds that it is damaged; the other has the same file, and does not read it. */
Test(facts, data_that_is_damaged) {
  ZbArena *a = zb_arena_new();
  make_streams();
  uint64_t size;
  int fd = zb_open_file(scratch("a.bin"), false, &size, NULL);
  close(fd);
  put(scratch("a.bin"), size - 1, 1);
  data[0] = data[1] = zb_strdup(a, scratch("a.bin"));
  together(2, of_data);
  cr_expect(!good[0] && good[1]);
  says(errs[0], "a.bin is damaged");
  clear();
  threads_node[1] = 1; /* on another node it reads its own */
  together(2, of_data);
  cr_expect(!good[0] && !good[1]);
  clear();
  zb_arena_free(a);
}

/* What is no file any more each rank reads itself. */
Test(facts, data_that_is_removed_meanwhile) {
  ZbArena *a = zb_arena_new();
  size_t n;
  make_streams();
  char *bytes = scratch_read("a.bin", &n);
  bytes[n - 1] ^= 1;
  scratch_write("c.bin", bytes, n);
  data[0] = zb_strdup(a, scratch("a.bin")), data[1] = zb_strdup(a, scratch("c.bin"));
  gone = true;
  together(2, of_data);
  cr_expect(good[0] && !good[1]);
  says(errs[1], "c.bin is damaged");
  clear();
  free(bytes);
  zb_arena_free(a);
}

/* A folder of two, of which the second is large and has nothing but its header; of each its own facts are
 * compared. */
Test(facts, folders_of_data) {
  ZbArena *a = zb_arena_new();
  uint8_t head[2 * ZX_DATA_HEAD];
  ZxDataField f = {.name = "tokens", .elem = ZX_DATA_U16, .values = 1, .limit = 10};
  ZxDataInfo large = {.stream = true, .nfield = 1, .field = &f, .count = ZX_READ_WHOLE / 2};
  ZbErr err;
  make_streams();
  scratch_folder("f");
  cr_assert(rename(scratch("a.bin"), scratch("f/a.bin")) == 0 && zx_data_layout(&large, &err));
  zx_data_encode(&large, head);
  scratch_write("f/b.bin", head, sizeof head);
  cr_assert(truncate(scratch("f/b.bin"), (off_t)(sizeof head + ZX_READ_WHOLE)) == 0);
  data[0] = zb_strdup(a, scratch("f"));
  together(1, of_data);
  cr_expect(good[0], "%s", errs[0].text);
  cr_expect(strstr(list[0].s, "\nshards 2\nshard 2's pieces' checksum ") && !strstr(list[0].s, "shard 1"),
            "%s", list[0].s);
  cr_expect_str_eq(notes[0].s,
                   zb_printf(a,
                             "note: %s/b.bin has 1.1 GB, and more than 1.1 GB is compared by pieces only; "
                             "`zdata check` reads all\n",
                             data[0]));
  clear();
  data[0] = zb_strdup(a, scratch("f/b.bin")); /* alone it has no number */
  together(1, of_data);
  cr_expect(good[0] && strstr(list[0].s, "\npieces' checksum "), "%s", list[0].s);
  clear();
  zb_arena_free(a);
}

/* ---- programs, models, recipes, clusters ---- */
static void are(const ZxFacts *f, ZxFactKind kind, const char *want) {
  ZbText t = {0};
  add_list(f, kind, &t);
  cr_expect_str_eq(t.s ? t.s : "", want, "%s", t.s);
  zb_text_free(&t);
}

Test(facts, programs) {
  ZbArena *a = zb_arena_new();
  ZxFacts f = {.a = a}, none = {.a = a};
  ZbErr err;
  size_t n;
  char path[PATH_MAX], *program = zb_read_file(a, "/proc/self/exe", 1 << 30, &n, &err);
  cr_assert(program, "%s", err.text);
  zx_build_facts(&f);
  are(&f, ZX_BUILD,
      zb_printf(a, "version %s\nprogram's checksum %016llx\n", PACKAGE_VERSION, sum_of(program, n)));
  zx_module_facts(&none, &zx_device_cpu);
  zx_module_facts(&none, &(ZxDeviceTable){.name = "none"});
  cr_expect_eq(none.n, 0);
  zx_module_facts(&none, &(ZxDeviceTable){.name = "cuda"});
  cr_expect_eq(none.n, (uint32_t)zb_module_path("zug-cuda.so", path, sizeof path));
  zb_arena_free(a);
}

static void add_digest(void *ctx, const char *what, uint64_t digest) {
  zb_text_add(ctx, "%s %016llx\n", what, (unsigned long long)digest);
}

Test(facts, what_is_trained) {
  static const char text[] = "recipe r { mesh d = 2  bind batch = 4 }\n"
                             "cluster c { device memory 1 GB }\n";
  ZbArena *a = zb_arena_new();
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  ZlProgram *p = zl_load_text(a, s, d, "r.zug", text, sizeof text - 1, NULL);
  ZgGraph g = {.model = "M", .hash = {0x12, 0xff00000000000000}};
  ZxFacts of_graph = {.a = a}, of_recipe = {.a = a}, of_cluster = {.a = a}, of_plan = {.a = a};
  cr_assert(p && !zl_errors(d));
  zx_graph_facts(&of_graph, &g);
  are(&of_graph, ZX_GRAPH,
      zb_printf(a,
                "model M\nhash %s\nsource ff000000000000000000000000000012\noperations 0\niterations none\n",
                zg_hash_computed(a, &g)));
  zx_recipe_facts(&of_recipe, zl_recipe(p, d, "r"));
  are(&of_recipe, ZX_RECIPE,
      "name r\nmesh d = 2\nbind batch = 4\nprecision compute f32\nprecision params f32\n"
      "precision grads f32\n"
      "precision reduce f32\nprecision states f32\ndecay 0\n");
  zx_cluster_facts(&of_cluster, zl_cluster(p, d, "c"));
  are(&of_cluster, ZX_CLUSTER, "name c\ndevice memory 1000000000 B\n");
  const ZpPlan plan = {.graph = &g, .asked.recipe = zl_recipe(p, d, "r"), .arena = a};
  ZbText digests = {0};
  zp_digest(&plan, a, add_digest, &digests);
  zx_plan_facts(&of_plan, &plan);
  are(&of_plan, ZX_PLAN, digests.s);
  zb_text_free(&digests);
  zb_arena_free(a);
}

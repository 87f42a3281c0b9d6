/* What ranks compare of their files, to the letter, and who reads a file that several were given. */
#include "runtime/exec/facts.h"
#include "tests/unit/exec/scratch.h"
#include "tests/unit/exec/stream_file.h"
#include "tests/unit/exec/threads.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <fcntl.h>
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
  good[r->rank] = zx_init_facts(&f, &r->base, init[r->rank], &notes[r->rank], &errs[r->rank]);
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

/* The list of what is in which file is one of them. */
Test(facts, a_folder_of_shards) {
  static const char one[] = "{\"weight_map\":{\"a\":\"x.safetensors\",\"b\":\"y.safetensors\"}}";
  char want[400];
  scratch_write("model.safetensors.index.json", one, sizeof one - 1);
  scratch_write("x.safetensors", "xx", 2);
  scratch_write("y.safetensors", "yyy", 3);
  init[0] = scratch(".");
  together(1, of_init);
  snprintf(want, sizeof want,
           "number of files 3\nfile 1's bytes %zu\nfile 1's content's checksum %016llx\n"
           "file 2's bytes 2\nfile 2's content's checksum %016llx\n"
           "file 3's bytes 3\nfile 3's content's checksum %016llx\n",
           sizeof one - 1, sum_of(one, sizeof one - 1), sum_of("xx", 2), sum_of("yyy", 3));
  cr_expect(good[0], "%s", errs[0].text);
  cr_expect_str_eq(list[0].s ? list[0].s : "", want, "%s", list[0].s);
  clear();
}

/* ---- large files ---- */
static void put(const char *path, uint64_t at, char byte) {
  int fd = open(path, O_WRONLY);
  cr_assert(fd >= 0 && pwrite(fd, &byte, 1, (off_t)at) == 1 && close(fd) == 0);
}

/* Of a file with holes: all of it up to 1 GiB; beyond, 16 MiB at the beginning and 64 pieces of 256 kiB, the last of
 * which is its end. */
Test(facts, large_files_are_read_in_pieces) {
  static const uint64_t head = 16 << 20, piece = 256 << 10, size = ZX_READ_WHOLE + 12345;
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
      zb_printf(a, "note: %s has 1.1 GB, and more than 1.1 GB is compared by pieces only\n", path), "%s",
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
static void *of_data(void *arg) {
  ThreadRank *r = arg;
  ZxFacts f = {.a = zb_arena_new()};
  ZxMix *m = zx_mix_open(data[r->rank], &errs[r->rank]);
  cr_assert(m, "%s", errs[r->rank].text);
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

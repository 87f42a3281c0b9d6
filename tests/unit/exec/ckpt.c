/* Checkpoints as files: where tensors lie, digests that add up, folders that come and go. */
#include "runtime/exec/ckpt/ckpt.h"
#include "tests/unit/exec/manifest_file.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

TestSuite(ckpt, .init = scratch_make, .fini = scratch_remove);

static const ZxTensorInfo params[] = {{.path = "wte", .nshape = 2, .shape = {5, 4}},
                                      {.path = "layer.0.w", .nshape = 3, .shape = {2, 3, 4}},
                                      {.path = "scale"},
                                      {.path = "layer.1.w", .nshape = 3, .shape = {2, 3, 4}}};
static const char *const states[] = {"exp_avg", "exp_avg_sq"};

static ZxContents contents(ZbArena *a, uint64_t most) {
  ZxContents c;
  ZbErr err;
  cr_assert(zx_contents_make(a, params, 4, states, 2, NULL, NULL, most, &c, &err), "%s", err.text);
  return c;
}

/* ---- contents ---- */
/* Of 80, 96, 4 and 96 bytes, with states of the same: a file takes what fits its limit, and one at least. */
Test(ckpt, files) {
  static const struct {
    uint64_t most;
    const char *files; /* of each how many tensors */
  } cases[] = {
      {1000000, "4 8"}, {180, "3 1 2 1 3 1 1"}, {1, "1 1 1 1 1 1 1 1 1 1 1 1"}, {100, "1 2 1 1 1 1 2 2 1"}};
  ZbArena *a = zb_arena_new();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ZxContents c = contents(a, cases[i].most);
    ZbText t = {0};
    uint64_t bytes = 0;
    for (uint32_t f = 0; f < c.nfiles; f++) {
      zb_text_add(&t, "%s%u", f ? " " : "", c.files[f].n);
      bytes += c.files[f].bytes;
    }
    cr_expect_str_eq(t.s, cases[i].files, "limit %llu: %s", (unsigned long long)cases[i].most, t.s);
    cr_expect_eq(c.bytes, bytes);
    zb_text_free(&t);
  }
  ZxContents c = contents(a, 100);
  cr_expect_str_eq(c.files[0].name, "model-00001-of-00003.safetensors");
  cr_expect_str_eq(c.files[8].name, "optimizer-00006-of-00006.safetensors");
  cr_expect_str_eq(c.tensors[4].info.path, "wte.exp_avg");
  cr_expect_str_eq(c.tensors[11].info.path, "layer.1.w.exp_avg_sq");
  for (uint32_t i = 0; i < 4; i++) cr_expect(c.tensors[i].param == i && c.tensors[i].state == 0);
  for (uint32_t i = 4; i < 12; i++)
    cr_expect(c.tensors[i].param == (i - 4) / 2 && c.tensors[i].state == 1 + i % 2);
  cr_expect_eq(c.tensors[2].n, 1);
  zb_arena_free(a);
}

/* Parameters of which not all have states, and not the same. */
Test(ckpt, some_states) {
  ZbArena *a = zb_arena_new();
  ZxContents c;
  ZbErr err;
  static const uint32_t has[] = {3, 0, 2, 1};
  cr_assert(zx_contents_make(a, params, 4, states, 2, has, NULL, 1000, &c, &err), "%s", err.text);
  cr_assert_eq(c.ntensors, 8);
  static const char *const paths[] = {"wte.exp_avg", "wte.exp_avg_sq", "scale.exp_avg_sq",
                                      "layer.1.w.exp_avg"};
  static const uint32_t param[] = {0, 0, 2, 3};
  for (uint32_t i = 0; i < 4; i++) {
    cr_expect_str_eq(c.tensors[4 + i].info.path, paths[i]);
    cr_expect_eq(c.tensors[4 + i].param, param[i]);
  }
  cr_expect_eq(zx_nstates_of(&c, 1), 0);
  cr_expect_eq(zx_state_named(&c, 2, "exp_avg"), ZB_NO_NAME);
  cr_expect_eq(zx_state_named(&c, 2, "exp_avg_sq"), 6);
  zb_arena_free(a);
}

/* Tensors lie where another reader of the format finds them. */
Test(ckpt, places) {
  ZbArena *a = zb_arena_new();
  ZxContents c = contents(a, 180);
  for (uint32_t f = 0; f < c.nfiles; f++) {
    ZbErr err;
    const char *path = scratch("one.safetensors");
    cr_expect_eq(c.files[f].head_digest, XXH3_64bits(c.files[f].head, c.files[f].head_bytes));
    FILE *file = fopen(path, "wb");
    cr_assert_eq(fwrite(c.files[f].head, 1, c.files[f].head_bytes, file), c.files[f].head_bytes);
    for (uint32_t i = c.files[f].first; i < c.files[f].first + c.files[f].n; i++)
      for (uint64_t k = 0; k < c.tensors[i].n; k++) {
        float x = (float)(100 * i + k);
        cr_expect_eq((uint64_t)ftell(file), c.tensors[i].at + 4 * k);
        fwrite(&x, 4, 1, file);
      }
    cr_expect_eq((uint64_t)ftell(file), c.files[f].bytes);
    fclose(file);
    ZxWeights *w = zx_weights_open(path, false, &err);
    cr_assert(w, "%s", err.text);
    for (uint32_t i = c.files[f].first; i < c.files[f].first + c.files[f].n; i++) {
      float x;
      int64_t at = zx_weights_find(w, &c.tensors[i].info, &err);
      cr_assert_geq(at, 0, "%s", err.text);
      cr_expect(zx_weights_read(w, at, c.tensors[i].n - 1, 1, &x, &err));
      cr_expect_eq(x, (float)(100 * i + c.tensors[i].n - 1));
    }
    zx_weights_close(w, NULL);
  }
  zb_arena_free(a);
}

/* Of the same serial number those of earlier steps come first, in whatever order folders are listed. */
Test(ckpt, folders_without_manifests) {
  static const char *const names[] = {"7", "2", "5", "1", "3", "6", "4"};
  ZbArena *a = zb_arena_new();
  ZxCkptEntry *all;
  ZbErr err = {0};
  for (int i = 0; i < 7; i++) mkdir(scratch(zb_printf(a, "step-0000000%s", names[i])), 0777);
  scratch_write("step-00000008", "", 0);
  cr_assert_eq(zx_ckpt_list(a, scratch("."), &all, &err), 7);
  for (int i = 0; i < 7; i++) cr_expect_eq(all[i].step, i + 1);
  int before = open_files();
  cr_expect_eq(zx_ckpt_list(a, scratch("."), &all, &err), 7);
  cr_expect_eq(open_files(), before);
  cr_expect(zx_ckpt_list(a, scratch("none"), &all, &err) == 0 && !all && !*err.text);
  cr_expect_eq(zx_ckpt_list(a, scratch("step-00000008"), &all, &err), 0);
  cr_expect(strstr(err.text, "cannot read the folder"), "%s", err.text);
  zb_arena_free(a);
}

/* ---- digests ---- */
Test(ckpt, digests_add_up) {
  float x[1000];
  for (int i = 0; i < 1000; i++) x[i] = (float)i / 7;
  uint64_t whole = zx_digest(x, 5, 1000), parts = 0;
  for (int from = 0, n = 1; from < 1000; from += n, n = n * 2 + 1)
    parts += zx_digest(x + from, 5 + (uint64_t)from, (uint64_t)(n < 1000 - from ? n : 1000 - from));
  cr_expect_eq(whole, parts);
  cr_expect_eq(zx_digest(x, 5, 0), 0);
  cr_expect_eq(whole, 0xf6a70157bd3d8e8dull, "not those of checkpoints that are there: %#llx",
               (unsigned long long)whole);
  cr_expect_neq(whole, zx_digest(x, 6, 1000), "another place");
  for (int i = 0; i < 1000; i++)
    for (int bit = 0; bit < 32; bit++) {
      uint32_t w;
      memcpy(&w, &x[i], 4);
      w ^= 1u << bit;
      memcpy(&x[i], &w, 4);
      cr_expect_neq(whole, zx_digest(x, 5, 1000), "bit %d of value %d", bit, i);
      w ^= 1u << bit;
      memcpy(&x[i], &w, 4);
    }
  float swapped = x[3];
  x[3] = x[4], x[4] = swapped;
  cr_expect_neq(whole, zx_digest(x, 5, 1000), "exchanged");
}

/* ---- folders ---- */
static void add(ZbArena *a, const char *dir, int64_t step, int64_t serial) {
  ZbErr err;
  const char *tmp = zx_ckpt_tmp(a, dir, step, "00000000deadbeef"), *path = zx_ckpt_path(a, dir, step);
  manifest_file(a, tmp, step, serial);
  cr_assert(zx_ckpt_publish(tmp, path, &err), "%s", err.text);
}

static void expect_list(ZbArena *a, const char *dir, const char *steps) {
  ZxCkptEntry *all;
  ZbErr err = {0};
  ZbText t = {0};
  uint32_t n = zx_ckpt_list(a, dir, &all, &err);
  for (uint32_t i = 0; i < n; i++)
    zb_text_add(&t, "%s%lld:%lld", i ? " " : "", (long long)all[i].step, (long long)all[i].serial);
  cr_expect_str_eq(t.s ? t.s : "", steps);
  cr_expect_str_eq(err.text, "");
  zb_text_free(&t);
}

Test(ckpt, folders) {
  ZbArena *a = zb_arena_new();
  ZbErr err;
  const char *dir = zb_strdup(a, scratch("kept/here"));
  expect_list(a, dir, "");
  int lock = zx_ckpt_lock(dir, &err);
  cr_assert_geq(lock, 0, "%s", err.text);
  cr_expect_eq(zx_ckpt_lock(dir, &err), -1);
  cr_expect(strstr(err.text, "another run writes its checkpoints to"), "%s", err.text);
  add(a, dir, 100, 1);
  add(a, dir, 300, 2);
  add(a, dir, 200, 3); /* of a run that went back */
  expect_list(a, dir, "100:1 300:2 200:3");
  add(a, dir, 300, 4); /* replaces the other */
  expect_list(a, dir, "100:1 200:3 300:4");
  cr_expect_eq(zx_ckpt_clean(dir), 0, "nothing unfinished is left by that");
  mkdir(zx_ckpt_tmp(a, dir, 400, "0123456789abcdef"), 0777);
  mkdir(zb_printf(a, "%s/step-4.tmp", dir), 0777); /* none of ours */
  mkdir(zb_printf(a, "%s/mine.tmp", dir), 0777);
  mkdir(zb_printf(a, "%s/step-00000500", dir), 0777);
  expect_list(a, dir, "500:0 100:1 200:3 300:4");
  cr_expect_eq(zx_ckpt_clean(dir), 1);
  cr_expect_eq(access(zb_printf(a, "%s/mine.tmp", dir), F_OK), 0);
  rename(zx_ckpt_path(a, dir, 100), zx_ckpt_path(a, dir, 101));
  expect_list(a, dir, "101:0 500:0 200:3 300:4");
  cr_expect(zx_ckpt_remove(zx_ckpt_path(a, dir, 200), &err));
  expect_list(a, dir, "101:0 500:0 300:4");
  FILE *f = fopen(zb_printf(a, "%s/notes.txt", zx_ckpt_path(a, dir, 300)), "w");
  fclose(f);
  cr_expect(zx_ckpt_remove(zx_ckpt_path(a, dir, 300), &err));
  cr_expect_eq(access(zb_printf(a, "%s.old.tmp/notes.txt", zx_ckpt_path(a, dir, 300)), F_OK), 0);
  close(lock);
  lock = zx_ckpt_lock(dir, &err);
  cr_expect_geq(lock, 0);
  close(lock);
  zb_arena_free(a);
}

Test(ckpt, folders_that_do_not_work) {
  ZbArena *a = zb_arena_new();
  ZbErr err;
  int before = open_files();
  scratch_write("file", "", 0);
  cr_expect_eq(zx_ckpt_lock(scratch("file/kept"), &err), -1);
  says(err, "cannot make the checkpoint folder");
  scratch_folder("kept");
  scratch_folder("kept/lock");
  cr_expect_eq(zx_ckpt_lock(scratch("kept"), &err), -1);
  says(err, "kept/lock: Is a directory");
  cr_expect_str_eq(err.help, "give another folder with --ckpt, or make it writable");
  cr_expect(!err.passing);
  cr_assert(rmdir(scratch("kept/lock")) == 0);
  int lock = zx_ckpt_lock(scratch("kept"), &err);
  cr_expect(zx_ckpt_lock(scratch("kept"), &err) == -1 && err.passing && open_files() == before + 1);
  close(lock);
  cr_expect_eq(zx_ckpt_clean(scratch("kept")), 0);
  const char *tmp = zx_ckpt_tmp(a, zb_strdup(a, scratch("kept")), 1, "run"),
             *path = zx_ckpt_path(a, zb_strdup(a, scratch("kept")), 1);
  cr_expect(!zx_ckpt_publish(tmp, path, &err));
  says(err, "/step-00000001.run.tmp: No such file");
  manifest_file(a, tmp, 1, 1);
  cr_expect(!zx_ckpt_publish(tmp, zx_ckpt_path(a, zb_strdup(a, scratch("none")), 1), &err));
  says(err, "cannot rename ");
  says(err, "/none/step-00000001: No such file");
  cr_expect(zx_ckpt_publish(tmp, path, &err) && access(tmp, F_OK) < 0 && access(path, F_OK) == 0);
  cr_expect_eq(open_files(), before);
  zb_arena_free(a);
}

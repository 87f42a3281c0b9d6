/* What a checkpoint's manifest and indices say, to the letter, and what is not believed though its checksum is
 * right; files that are not what it says. */
#include "runtime/exec/ckpt/ckpt.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

SCRATCH_SUITE(manifest);

static ZbErr err;

/* Three parameters of which one has both states, one the second, one none. */
static ZxManifest manifest(uint64_t most) {
  static const ZxTensorInfo params[] = {{"w", 2, {2, 3}}, {"scale", 0, {0}}, {"b", 1, {4}}};
  static const char *const states[] = {"m", "v"};
  static const uint32_t has[] = {3, 0, 2};
  static ZxCkptFact facts[] = {
      {"model", "hash", "00ff"}, {"data", "tokens", "12"}, {"data", "\"", "\\ \x01"}};
  ZxManifest m = {.step = 400,
                  .samples = 12800,
                  .serial = 7,
                  .version = "0.1",
                  .model = "GPT2",
                  .command = "zrun train a\tb",
                  .recipe = "recipe one {\n}\n",
                  .facts = facts,
                  .nfacts = 3,
                  .best = {.data = "e.bin", .loss = 1.0 / 3, .step = 200}};
  cr_assert(zx_contents_make(a, params, 3, states, 2, has, NULL, most, &m.c, &err), "%s", err.text);
  for (uint32_t i = 0; i < m.c.ntensors; i++) m.c.tensors[i].digest = 0xfff0 + i;
  return m;
}

static void has_text(const char *name, const char *want) {
  size_t n;
  char *text = scratch_read(name, &n);
  cr_expect_str_eq(text, want, "%s has\n%s", name, text);
  free(text);
}

/* Digits of checksums, which other tests judge, become #. */
static void without_sums(const char *name) {
  size_t n;
  char *text = scratch_read(name, &n);
  for (char *at = text; (at = strstr(at, "checksum\":\"")); at += 16) memset(at += 11, '#', 16);
  scratch_write(name, text, n);
  free(text);
}

Test(manifest, to_the_letter) {
  ZxManifest m = manifest(40);
  cr_assert(zx_manifest_write(&m, scratch("."), &err), "%s", err.text);
  without_sums("manifest.json");
  has_text("manifest.json",
           "{\"format\":\"zug checkpoint\",\"version\":1,\"checksum\":\"################\",\n"
           "\"step\":400,\"samples\":12800,\"serial\":7,\n"
           "\"program\":\"0.1\",\n"
           "\"model\":\"GPT2\",\n"
           "\"command\":\"zrun train a\\u0009b\",\n"
           "\"recipe\":\"recipe one {\\n}\\n\",\n"
           "\"facts\":{\n"
           "  \"model\":{\n"
           "    \"hash\":\"00ff\"},\n"
           "  \"data\":{\n"
           "    \"tokens\":\"12\",\n"
           "    \"\\\"\":\"\\\\ \\u0001\"}},\n"
           "\"evaluation\":{\"data\":\"e.bin\",\"best_loss\":0.33333333333333331,\"best_step\":200},\n"
           "\"file_limit\":40,\n"
           "\"files\":[\n"
           "  "
           "{\"name\":\"model-00001-of-00002.safetensors\",\"bytes\":220,\"header_checksum\":\"##############"
           "##\"},\n"
           "  "
           "{\"name\":\"model-00002-of-00002.safetensors\",\"bytes\":144,\"header_checksum\":\"##############"
           "##\"},\n"
           "  "
           "{\"name\":\"optimizer-00001-of-00002.safetensors\",\"bytes\":152,\"header_checksum\":\"##########"
           "######\"},\n"
           "  "
           "{\"name\":\"optimizer-00002-of-00002.safetensors\",\"bytes\":232,\"header_checksum\":\"##########"
           "######\"}],\n"
           "\"states\":[\"m\",\"v\"],\n"
           "\"parameters\":[\n"
           "  "
           "{\"path\":\"w\",\"shape\":[2,3],\"checksums\":[\"000000000000fff0\",\"000000000000fff3\","
           "\"000000000000fff4\"]},\n"
           "  {\"path\":\"scale\",\"shape\":[],\"states\":[],\"checksums\":[\"000000000000fff1\"]},\n"
           "  "
           "{\"path\":\"b\",\"shape\":[4],\"states\":[\"v\"],\"checksums\":[\"000000000000fff2\","
           "\"000000000000fff5\"]}]}\n");
  has_text("model.safetensors.index.json", "{\"metadata\":{\"total_size\":44},\n"
                                           "\"weight_map\":{\n"
                                           "  \"w\":\"model-00001-of-00002.safetensors\",\n"
                                           "  \"scale\":\"model-00001-of-00002.safetensors\",\n"
                                           "  \"b\":\"model-00002-of-00002.safetensors\"}}\n");
  has_text("optimizer.safetensors.index.json", "{\"metadata\":{\"total_size\":64},\n"
                                               "\"weight_map\":{\n"
                                               "  \"w.m\":\"optimizer-00001-of-00002.safetensors\",\n"
                                               "  \"w.v\":\"optimizer-00002-of-00002.safetensors\",\n"
                                               "  \"b.v\":\"optimizer-00002-of-00002.safetensors\"}}\n");
  m.nfacts = m.c.nparams = m.c.nfiles = m.c.nstates = 0;
  m.best.data = NULL;
  m.c.first = &(uint32_t){0};
  cr_assert(unlink(scratch("optimizer.safetensors.index.json")) == 0);
  cr_assert(zx_manifest_write(&m, scratch("."), &err), "%s", err.text);
  without_sums("manifest.json");
  has_text("manifest.json",
           "{\"format\":\"zug checkpoint\",\"version\":1,\"checksum\":\"################\",\n"
           "\"step\":400,\"samples\":12800,\"serial\":7,\n"
           "\"program\":\"0.1\",\n"
           "\"model\":\"GPT2\",\n"
           "\"command\":\"zrun train a\\u0009b\",\n"
           "\"recipe\":\"recipe one {\\n}\\n\",\n"
           "\"facts\":{},\n"
           "\"file_limit\":40,\n"
           "\"files\":[],\n"
           "\"states\":[],\n"
           "\"parameters\":[]}\n");
  has_text("model.safetensors.index.json", "{\"metadata\":{\"total_size\":0},\n\"weight_map\":{}}\n");
  cr_expect(access(scratch("optimizer.safetensors.index.json"), F_OK) < 0);
}

/* ---- what is not believed ---- */
/* The manifest with `to` in place of `from`, and with the checksum that it then must have. */
static const ZxManifest *altered(const char *good, const char *from, const char *to) {
  const char *at = strstr(good, from);
  cr_assert(at, "no %s", from);
  ZbText t = {0};
  zb_text_put(&t, good, (size_t)(at - good));
  zb_text_add(&t, "%s%s", to, at + strlen(from));
  char *sum = strstr(t.s, "\"checksum\":\""), digits[17];
  if (sum) {
    memset(sum + 12, '0', 16);
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)XXH3_64bits(t.s, t.len));
    memcpy(sum + 12, digits, 16);
  }
  scratch_write("manifest.json", t.s, t.len);
  zb_text_free(&t);
  err = (ZbErr){0};
  return zx_manifest_read(a, scratch("."), &err);
}

#define AXES(n) "\"shape\":[1,1,1,1,1,1,1" n "]"
Test(manifest, what_is_not_believed) {
  static const struct {
    const char *from, *to, *words; /* NULL: it is believed */
  } cases[] = {
      {"{\"format\"", "{\"fromat\"", "it is not a manifest of a zug checkpoint"},
      {"\"version\":1", "\"version\":2", "version 2; this zug knows version 1"},
      {"\"version\":1", "\"version\":19", "version 19; this zug knows version 1"},
      {"\"version\":1", "\"version\":0", "version 0; this zug knows version 1"},
      {"\"checksum\":\"", "\"chekcsum\":\"", "it has no checksum"},
      {"}\n", "\n", "it is not JSON"},
      {"\"step\":400", "\"stop\":400", "its `step` is not a number"},
      {"\"step\":400", "\"step\":\"400\"", "its `step` is not a number"},
      {"\"step\":400", "\"step\":-1", "its `step` is not a number"},
      {"\"step\":400", "\"step\":0", NULL},
      {"\"step\":400", "\"step\":9007199254740992", NULL},
      {"\"step\":400", "\"step\":9007199254740994", "its `step` is not a number"},
      {"\"samples\":12800", "\"samples\":null", "its `samples` is not a number"},
      {"\"serial\":7", "\"serial\":true", "its `serial` is not a number"},
      {"\"program\":\"0.1\"", "\"program\":0.1", "its `program` is not text"},
      {"\"model\":\"GPT2\"", "\"model\":2", "its `model` is not text"},
      {"\"command\":", "\"comand\":", "its `command` is not text"},
      {"\"recipe\":", "\"recip\":", "its `recipe` is not text"},
      {"\"00ff\"", "255", "one of its facts is not a text"},
      {"\"facts\":", "\"facts\":[{\"a\":\"b\"}],\"others\":", "its `facts` is not an object"},
      {"\"facts\":", "\"facts\":{\"kind\":[\"b\"]},\"others\":", "one kind of its facts is not an object"},
      {"\"facts\":", "\"fact\":", NULL},
      {"\"evaluation\":", "\"valuation\":", NULL},
      {"\"best_loss\":0", "\"best_loss\":null,\"x\":0", "its `best_loss` is not a number"},
      {"\"best_loss\":0", "\"best_loss\":1e999,\"x\":0", "its `best_loss` is not a number"},
      {"\"best_loss\":0", "\"best_loss\":-0", NULL},
      {"\"data\":\"e.bin\"", "\"data\":7", "its `data` is not text"},
      {"\"best_step\":200", "\"best_step\":-2", "its `best_step` is not a number"},
      {"\"file_limit\":40", "\"file_limit\":\"40\"", "its `file_limit` is not a number"},
      {"[\"m\",\"v\"]", "[\"m\",7]", "its list of optimizer states is none"},
      {"[\"m\",\"v\"]", "[\"m\",\"\"]", "its list of optimizer states is none"},
      {"[\"m\",\"v\"]", "[\"m\",\"v\",\"w\",\"x\"]", "parameter 'w' lacks its shape or a checksum"},
      {"[\"m\",\"v\"]",
       "[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\","
       "\"h\"]",
       "its list of optimizer states is none"},
      {"\"states\":[\"v\"]", "\"states\":[\"u\"]", "a parameter's list of states is none"},
      {"\"states\":[\"v\"]", "\"states\":[\"v\",\"m\"]", "a parameter's list of states is none"},
      {"\"states\":[\"v\"]", "\"states\":[7]", "a parameter's list of states is none"},
      {"\"states\":[\"v\"]", "\"states\":\"v\"", "a parameter's list of states is none"},
      {"\"states\":[\"v\"]", "\"states\":[\"m\"]", NULL},
      {"\"path\":\"b\"", "\"path\":7", "its `path` is not text"},
      {"\"path\":\"b\"", "\"path\":\"\"", "a parameter's path has other than letters in it"},
      {"\"path\":\"b\"", "\"path\":\"b b\"", "a parameter's path has other than letters in it"},
      {"\"path\":\"b\"", "\"path\":\"b\x7f\"", "a parameter's path has other than letters in it"},
      {"\"path\":\"b\"", "\"path\":\"b\\\"\"", "a parameter's path has other than letters in it"},
      {"\"path\":\"b\"", "\"path\":\"b\\\\\"", "a parameter's path has other than letters in it"},
      {"\"path\":\"b\"", "\"path\":\"!~\"", NULL},
      {"\"shape\":[4]", "\"shape\":[0]", "parameter 'b' has an impossible shape"},
      {"\"shape\":[4]", "\"shape\":[\"4\"]", "parameter 'b' has an impossible shape"},
      {"\"shape\":[4]", "\"shape\":[9007199254740994]", "parameter 'b' has an impossible shape"},
      {"\"shape\":[4]", "\"shape\":[288230376151711744]", "parameter 'b' has an impossible shape"},
      {"\"shape\":[4]", "\"shape\":[4294967296,67108864]", "parameter 'b' has an impossible shape"},
      {"\"shape\":[4]", "\"shape\":[4294967296,4294967296]", "parameter 'b' has an impossible shape"},
      {"\"shape\":[4]", AXES(",4"), NULL},
      {"\"shape\":[4]", AXES(",1,4"), "parameter 'b' has an impossible shape"},
      {"\"shape\":[4]", "\"shape\":4", "parameter 'b' lacks its shape or a checksum"},
      {"\"shape\":[4]", "\"shap\":[4]", "parameter 'b' lacks its shape or a checksum"},
      {"\"checksums\":", "\"checksum\":", "parameter 'w' lacks its shape or a checksum"},
      {"000000000000fff0", "00000000000fff0", "parameter 'w' lacks its shape or a checksum"},
      {"000000000000fff0", "00000000000000fff0", "parameter 'w' lacks its shape or a checksum"},
      {"000000000000fff0", "000000000000ffg0", "parameter 'w' lacks its shape or a checksum"},
      {",\"000000000000fff4\"", "", "parameter 'w' lacks its shape or a checksum"},
      {"\"000000000000fff1\"", "1", "parameter 'scale' lacks its shape or a checksum"},
  };
  ZxManifest m = manifest(40);
  size_t n;
  cr_assert(zx_manifest_write(&m, scratch("."), &err), "%s", err.text);
  char *good = scratch_read("manifest.json", &n);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const ZxManifest *r = altered(good, cases[i].from, cases[i].to);
    cr_expect_eq(r == NULL, cases[i].words != NULL, "%s: %s", cases[i].to, err.text);
    if (cases[i].words) says(err, cases[i].words);
  }
  const ZxManifest *r = altered(good, "\"step\":400", "\"step\":400");
  cr_assert(r && r->best.step == 200 && r->best.loss == 1.0 / 3 && !strcmp(r->best.data, "e.bin"));
  cr_expect(r->c.most == 40 && r->c.nparams == 3 && r->c.ntensors == 6 && r->c.nfiles == m.c.nfiles);
  for (uint32_t i = 0; i < 6; i++) cr_expect_eq(r->c.tensors[i].digest, m.c.tensors[i].digest);
  char *end = strstr(good, "\"checksum\":\"") + 12 + 15; /* it ends within the checksum */
  scratch_write("manifest.json", good, (size_t)(end - good));
  cr_expect(!zx_manifest_read(a, scratch("."), &err));
  says(err, "it has no checksum");
  scratch_write("manifest.json", good, (size_t)(end - good) + 1); /* and behind it */
  cr_expect(!zx_manifest_read(a, scratch("."), &err));
  says(err, "its checksum is ");
  unlink(scratch("manifest.json"));
  cr_expect(!zx_manifest_read(a, scratch("."), &err));
  says(err, "is not a complete checkpoint: cannot open");
  free(good);
}

/* Of three states two, which are listed; they come back. */
Test(manifest, some_of_many_states) {
  static const ZxTensorInfo w = {"w", 1, {2}};
  static const char *const states[] = {"m", "v", "u"};
  ZxManifest m = {.version = "1", .model = "M", .command = "c", .recipe = "r"};
  size_t n;
  cr_assert(zx_contents_make(a, &w, 1, states, 3, &(uint32_t){6}, NULL, 100, &m.c, &err), "%s", err.text);
  cr_assert(zx_manifest_write(&m, scratch("."), &err), "%s", err.text);
  char *text = scratch_read("manifest.json", &n);
  cr_expect(strstr(text, "\"shape\":[2],\"states\":[\"v\",\"u\"],\"checksums\""), "%s", text);
  free(text);
  const ZxManifest *r = zx_manifest_read(a, scratch("."), &err);
  cr_assert(r && zx_nstates_of(&r->c, 0) == 2, "%s", err.text);
  cr_expect(zx_state_named(&r->c, 0, "m") == ZB_NO_NAME && zx_state_named(&r->c, 0, "v") == 1 &&
            zx_state_named(&r->c, 0, "u") == 2);
}

/* ---- what is written is read ---- */
Test(manifest, comes_back) {
  ZxManifest m = manifest(40);
  for (uint32_t i = 0; i < m.c.ntensors; i++) m.c.tensors[i].digest = UINT64_MAX - i;
  cr_assert(zx_manifest_write(&m, scratch("."), &err), "%s", err.text);
  const ZxManifest *r = zx_manifest_read(a, scratch("."), &err);
  cr_assert(r, "%s", err.text);
  cr_expect(r->step == 400 && r->samples == 12800 && r->serial == 7);
  cr_expect_str_eq(r->model, m.model);
  cr_expect_str_eq(r->command, m.command);
  cr_expect_str_eq(r->recipe, m.recipe);
  cr_expect_str_eq(r->version, m.version);
  cr_assert_eq(r->nfacts, 3);
  cr_expect_str_eq(zx_manifest_fact(r, "data", "\""), "\\ \x01");
  cr_expect_null(zx_manifest_fact(r, "model", "tokens"));
  cr_assert(r->c.ntensors == m.c.ntensors && r->c.nfiles == m.c.nfiles);
  for (uint32_t i = 0; i < m.c.ntensors; i++) {
    cr_expect_eq(r->c.tensors[i].digest, m.c.tensors[i].digest);
    cr_expect_eq(r->c.tensors[i].at, m.c.tensors[i].at);
    cr_expect_str_eq(r->c.tensors[i].info.path, m.c.tensors[i].info.path);
  }
  for (uint32_t i = 0; i < m.c.nfiles; i++) cr_expect_eq(r->c.files[i].head_digest, m.c.files[i].head_digest);
}

/* Whatever byte is another: the checksum tells, or it is not a manifest at all. */
Test(manifest, no_altered_one_is_believed) {
  ZxManifest m = manifest(40);
  size_t n;
  cr_assert(zx_manifest_write(&m, scratch("."), &err));
  char *text = scratch_read("manifest.json", &n);
  for (size_t at = 0; at < n; at += at < 200 ? 1 : 17) {
    text[at] ^= 1;
    scratch_write("manifest.json", text, n);
    text[at] ^= 1;
    cr_expect_null(zx_manifest_read(a, scratch("."), &err), "byte %zu", at);
  }
  for (size_t cut = 0; cut < n; cut += 101) {
    scratch_write("manifest.json", text, cut);
    cr_expect_null(zx_manifest_read(a, scratch("."), &err), "cut at %zu", cut);
  }
  free(text);
}

/* ---- files ---- */
/* As its contents have them; values are zeros. */
static void put_file(const ZxManifest *m, uint32_t file) {
  const ZxCkptFile *f = &m->c.files[file];
  char *bytes = calloc(1, f->bytes);
  memcpy(bytes, f->head, f->head_bytes);
  scratch_write(f->name, bytes, f->bytes);
  free(bytes);
}

static void looks(const ZxManifest *m, const char *words) {
  err = (ZbErr){0};
  cr_expect_eq(zx_ckpt_look(m, scratch("."), &err), words == NULL, "%s: %s", words, err.text);
  if (words) says(err, words);
}

Test(manifest, files_are_as_it_says) {
  ZxManifest m = manifest(40);
  int before = open_files();
  cr_assert_eq(m.c.nfiles, 4);
  for (uint32_t i = 0; i < m.c.nfiles; i++) put_file(&m, i);
  scratch_write("notes", "", 0);
  scratch_write("model.safetensors.old", "", 0);
  looks(&m, NULL);
  for (uint32_t i = 0; i < m.c.nfiles; i++) {
    const ZxCkptFile *f = &m.c.files[i];
    const char *path = zb_printf(a, "%s/%s", scratch("."), f->name);
    cr_assert(unlink(path) == 0);
    looks(&m, zb_printf(a, "cannot open %s: No such file", path));
    put_file(&m, i);
    cr_assert(truncate(path, (off_t)f->bytes - 1) == 0);
    looks(&m, zb_printf(a, "%s has %d bytes; its manifest says %d", path, (int)f->bytes - 1, (int)f->bytes));
    cr_assert(truncate(path, (off_t)f->bytes + 1) == 0);
    looks(&m, zb_printf(a, "%s has %d bytes; its manifest says %d", path, (int)f->bytes + 1, (int)f->bytes));
    for (int at = 0; at < 3; at++) { /* the first byte and the last of the header, the first behind it */
      put_file(&m, i);
      FILE *file = fopen(path, "r+");
      cr_assert(file &&
                fseek(file, (long[]){0, (long)f->head_bytes - 1, (long)f->head_bytes}[at], SEEK_SET) == 0);
      fputc('?', file);
      fclose(file);
      looks(&m, at < 2 ? zb_printf(a, "%s is altered: its header is another than the manifest says", path)
                       : NULL);
    }
  }
  scratch_write("more.safetensors", "", 0);
  looks(&m, "/more.safetensors is none of this checkpoint's files");
  cr_expect_eq(open_files(), before);
  cr_expect(!zx_ckpt_altered(&m, "dir", 3, 0xff, &err));
  cr_expect_str_eq(err.text,
                   "dir/optimizer-00001-of-00002.safetensors is altered: the checksum of tensor 'w.m' is "
                   "00000000000000ff, its manifest says 000000000000fff3");
}

/* ---- names ---- */
Test(manifest, names_of_folders) {
  static const struct {
    const char *path;
    int64_t step;
  } names[] = {{"step-00000400", 400},
               {"a/b/step-00000400", 400},
               {"step-123456789012345678", 123456789012345678},
               {"step-1234567890123456789", -1},
               {"step-0000400", -1},
               {"step-00000400.tmp", -1},
               {"step-00000400/", -1},
               {"stop-00000400", -1},
               {"steps-00000400", -1},
               {"step-", -1},
               {"", -1}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    cr_expect_eq(zx_ckpt_step(names[i].path), names[i].step, "%s", names[i].path);
  cr_expect_str_eq(zx_ckpt_path(a, "d", 7), "d/step-00000007");
  cr_expect_str_eq(zx_ckpt_tmp(a, "d", 7, "r"), "d/step-00000007.r.tmp");
  cr_expect_str_eq(zx_shape_text(a, &(ZxTensorInfo){"a", 0, {0}}), "[]");
  cr_expect_str_eq(zx_shape_text(a, &(ZxTensorInfo){"a", 3, {3, 0, 17}}), "[3, 0, 17]");
  cr_assert(symlink("elsewhere", scratch("lock")) == 0);
  cr_expect_eq(zx_ckpt_lock(scratch("."), &err), -1);
  says(err, "/lock: ");
}

/* Of the files in a folder only those that a checkpoint has are removed, and it only when it is empty. */
Test(manifest, what_is_removed) {
  static const char *const ours[] = {"manifest.json",
                                     "manifest.json.tmp",
                                     "model.safetensors.index.json",
                                     "model-1.safetensors",
                                     "optimizer-1.safetensors",
                                     "optimizer.index.json"},
                           *const others[] = {"manifest.jso",       "mode.safetensors",
                                              "model-1.safetensor", "optimize.index.json",
                                              "xmodel.safetensors", "notes.txt"};
  for (size_t i = 0; i < 6; i++)
    for (int own = 0; own < 2; own++) {
      const char *dir = zb_strdup(a, scratch("step-00000001.run.tmp")), *name = own ? ours[i] : others[i];
      cr_assert(mkdir(dir, 0777) == 0);
      scratch_write(zb_printf(a, "step-00000001.run.tmp/%s", name), "", 0);
      zx_ckpt_clean(scratch("."));
      cr_expect_eq(access(dir, F_OK) < 0, own, "%s", name);
      cr_assert(own || (unlink(zb_printf(a, "%s/%s", dir, name)) == 0 && rmdir(dir) == 0));
    }
  static const char *const tmp[] = {"step-00000001.r.tmp", "step-00000001..tmp", "step-00000001.tmp",
                                    "step-00000001xr.tmp", "step-00000001.r.tm", "step-0000001.r.tmp"};
  for (size_t i = 0; i < 6; i++) cr_assert(mkdir(scratch(tmp[i]), 0777) == 0);
  cr_expect_eq(zx_ckpt_clean(scratch(".")), 1);
  cr_expect_eq(zx_ckpt_clean(scratch("none")), 0);
  for (size_t i = 0; i < 6; i++) cr_expect_eq(access(scratch(tmp[i]), F_OK) < 0, i < 1, "%s", tmp[i]);
  cr_expect(zx_ckpt_remove(scratch("step-00000001.r.tm"), &err) && scratch_files() == 4);
  cr_expect(!zx_ckpt_remove(scratch("none"), &err));
  says(err, "cannot remove");
  cr_expect(zx_ckpt_remove(scratch("step-00000001.tmp"), &err) && scratch_files() == 3);
}

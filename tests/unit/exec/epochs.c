/* How often files have been gone through: by hand, of a file alone and of a mix. */
#include "runtime/exec/epochs.h"
#include "tests/unit/exec/scratch.h"
#include "tests/unit/exec/stream_file.h"

#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

TestSuite(epochs, .init = scratch_make, .fini = scratch_remove);

static ZbArena *a;
static ZxMix *mix;

/* Windows of 4: of `web` 10, of `code` 3. */
static ZxEpochs epochs(const char *text, int64_t batch) {
  static uint8_t ids[41];
  ZbErr err = {0};
  stream_file("web", ZX_DATA_U8, ids, 41, 256);
  stream_file("code", ZX_DATA_U8, ids, 13, 100);
  cr_assert(chdir(scratch(".")) == 0);
  mix = zx_mix_open(text, &err);
  cr_assert(mix, "%s", err.text);
  a = zb_arena_new();
  return zx_epochs_new(a, mix, 4, batch);
}

static void end(void) {
  zx_mix_close(mix);
  zb_arena_free(a);
}

static void note(const ZxEpochs *e, int64_t step, ZbText *t) {
  zx_epochs_note(e, step, (uint64_t)((step - 1) * e->batch), (uint64_t)(step * e->batch), t);
}

#define TEXT(call, want)                                                                                     \
  do {                                                                                                       \
    ZbText t = {0};                                                                                          \
    call;                                                                                                    \
    cr_expect_str_eq(t.s ? t.s : "", want, "%s: '%s', not '%s'", #call, t.s ? t.s : "", want);               \
    zb_text_free(&t);                                                                                        \
  } while (0)

Test(epochs, of_one_file) {
  ZxEpochs e = epochs("web", 4);
  cr_expect_eq(e.n, 1);
  cr_expect_eq(zx_epochs_so_far(&e, 12)[0], 1.2);
  TEXT(zx_epochs_begin(&e, 6, 6 * (uint64_t)e.batch, &t),
       "data: web: 10 samples, gone through 2.4 times by step 6\n");
  for (int64_t step = 1; step <= 5; step++) /* samples 8 to 11, and 16 to 19 */
    if (step != 3) TEXT(note(&e, step, &t), "");
  TEXT(note(&e, 3, &t), "note: epoch 2 of web began in step 3\n");
  TEXT(note(&e, 6, &t), "note: epoch 3 of web began in step 6\n");
  TEXT(zx_epochs_end(&e, 6 * (uint64_t)e.batch, &t), "epochs: web 2.4\n");
  end();
}

/* Turns of 2 and 1 are 0, 1, 0: in 6 samples 4 are of the first, 2 of the second. */
Test(epochs, of_a_mix) {
  ZxEpochs e = epochs("web:2,code:1", 6);
  const double *after = zx_epochs_so_far(&e, 24);
  cr_expect(after[0] == 1.6 && after[1] == 8 / 3.0);
  TEXT(zx_epochs_begin(&e, 4, 4 * (uint64_t)e.batch, &t),
       "data: web: 0.6667 of all samples (2 of 3); 10 samples, gone through 1.6 times by step 4\n"
       "data: code: 0.3333 of all samples (1 of 3); 3 samples, gone through 2.67 times by step 4\n"
       "note: ids of 'tokens' are below 256 in web, below 100 in code: are they of one vocabulary?\n");
  TEXT(note(&e, 1, &t), "");
  TEXT(note(&e, 2, &t), "note: epoch 2 of code began in step 2\n");
  TEXT(note(&e, 3, &t), "note: epoch 2 of web began in step 3\n");
  TEXT(note(&e, 4, &t), "note: epoch 3 of code began in step 4\n");
  TEXT(zx_epochs_end(&e, 4 * (uint64_t)e.batch, &t), "epochs: web 1.6, code 2.667\n");
  end();
}

/* Of two records, with a field that has the same limit in both, and one that has not. */
static void record_file(const char *name, uint64_t limit) {
  ZbErr err = {0};
  ZxDataField f[] = {{.name = "x", .elem = ZX_DATA_U8, .values = 1},
                     {.name = "y", .elem = ZX_DATA_U8, .values = 1}};
  ZxDataInfo info = {.nfield = 2, .field = f};
  ZxDataWriter *w = zx_data_create(scratch(name), &info, &err);
  cr_assert(w && zx_data_put(w, "1...2...3...4...", 16, &err), "%s", err.text);
  cr_assert(zx_data_finish(w, (uint64_t[]){64, limit}, &err), "%s", err.text);
}

Test(epochs, limits_of_several_files) {
  static const char want[] =
      "\nnote: ids of 'y' are below 70 in a, below 80 in c: are they of one vocabulary?\n";
  ZbErr err;
  ZbText t = {0};
  record_file("a", 70);
  record_file("b", 70);
  record_file("c", 80);
  cr_assert(chdir(scratch(".")) == 0);
  mix = zx_mix_open("a:1,b:1,c:2", &err);
  cr_assert(mix, "%s", err.text);
  a = zb_arena_new();
  ZxEpochs e = zx_epochs_new(a, mix, 1, 1);
  zx_epochs_begin(&e, 1, 1, &t);
  cr_expect(t.len > sizeof want && !strcmp(t.s + t.len - (sizeof want - 1), want), "%s", t.s);
  cr_expect(!strstr(t.s, "'x'"));
  zb_text_free(&t);
  end();
}

/* An epoch that begins with a step; the first does not begin anew. */
Test(epochs, that_end_with_a_step) {
  ZxEpochs e = epochs("web", 5);
  for (int64_t step = 1; step <= 2; step++) TEXT(note(&e, step, &t), "");
  TEXT(note(&e, 3, &t), "note: epoch 2 of web began in step 3\n");
  TEXT(note(&e, 4, &t), "");
  end();
}

Test(epochs, shorter_than_a_step) {
  ZxEpochs e = epochs("code", 3);
  TEXT(zx_epochs_begin(&e, 1, 1 * (uint64_t)e.batch, &t),
       "data: code: 3 samples, gone through 1 times by step 1; no more than a step takes\n");
  TEXT(note(&e, 2, &t), "");
  end();
}

Test(epochs, rounded_weights_and_no_data) {
  ZxEpochs e = epochs("web:65536,code:1", 3);
  ZbText t = {0};
  zx_epochs_begin(&e, 1, 1 * (uint64_t)e.batch, &t);
  cr_expect(strstr(t.s, "data: code: 1.526e-05 of all samples (1 of 65536); "), "%s", t.s);
  cr_expect(strstr(t.s, "\nnote: the weights of the files are rounded to 65536ths\n"), "%s", t.s);
  zb_text_free(&t);
  end();
  e = zx_epochs_new(a = zb_arena_new(), NULL, 4, 1);
  cr_expect_eq(e.n, 0);
  TEXT(zx_epochs_begin(&e, 1, 1 * (uint64_t)e.batch, &t), "");
  TEXT(zx_epochs_end(&e, 1 * (uint64_t)e.batch, &t), "");
  zb_arena_free(a);
}

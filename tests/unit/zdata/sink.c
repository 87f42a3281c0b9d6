/* Where tokens go: options, parts of a split, shards, and what is left when it ends otherwise. */
#include "runtime/zdata/zdata.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(sink, .init = scratch_make, .fini = scratch_remove);

static ZbErr err;

Test(sink, options) {
  ZdTarget to = {0};
  cr_assert(zd_target_options(&to, &(ZdOptions){ZD_NOT_GIVEN}, &err));
  cr_expect(!to.shard && !to.seed && to.split == 0);
  cr_assert(zd_target_options(&to, &(ZdOptions){.split = 0.5, .seed = 7, .shard_size = 1000}, &err));
  cr_expect(to.shard == 1000 && to.seed == 7 && to.split == 0.5);
  cr_expect(!zd_target_options(&to, &(ZdOptions){.seed = 7}, &err));
  says(err, "--seed is for --split");
}

/* Documents 0, 1, ... of 1 + i % 3 tokens, which are their numbers, in pieces of one; and an empty one. */
enum { DOCUMENTS = 40 };
static uint64_t fill(ZdSink *s) {
  uint64_t tokens = 0;
  for (uint16_t i = 0; i < DOCUMENTS; i++) {
    int n = 1 + i % 3;
    tokens += (uint64_t)n;
    for (int k = 0; k < n; k++) cr_assert(zd_sink_put(s, &i, 1, k == 0, k == n - 1, &err), "%s", err.text);
  }
  cr_assert(zd_sink_put(s, NULL, 0, true, true, &err));
  return tokens;
}

/* The tokens of a file, as "0 1 1 2 2 2 | 5", with a bar where documents begin. */
static const char *holds(const char *path, ZbText *t) {
  ZxData *d = zx_data_open(path, &err);
  cr_assert(d, "%s", err.text);
  const ZxDataInfo *info = zx_data_info(d);
  uint64_t document = 0, from = 0, to = 0;
  t->len = 0;
  zb_text_add(t, "%s", "");
  for (uint64_t i = 0; i < info->count; i++) {
    uint16_t id;
    cr_assert(zx_data_get(d, 2 * i, 2, &id, &err));
    if (document < info->documents && i == to) {
      cr_assert(zx_data_document(d, document++, &from, &to, &err));
      cr_assert_eq(from, i);
      if (i) zb_text_add(t, " |");
    }
    zb_text_add(t, "%s%u", i ? " " : "", id);
  }
  zx_data_close(d);
  return t->s;
}

static ZdTarget target(const char *name) {
  return (ZdTarget){.path = scratch(name), .elem = ZX_DATA_U16, .limit = 100, .end = ZD_NO_END};
}

/* Which documents are for validation depends on their numbers and the seed; all are in one of both, in
 * order. */
Test(sink, a_split) {
  cr_redirect_stdout();
  ZbText want[2] = {{0}}, got = {0};
  uint64_t documents[2] = {0}, tokens[2] = {0};
  ZdTarget to = target("x.y.bin");
  to.split = 0.7, to.seed = 5, to.end = 99;
  ZdSink *s = zd_sink_new(&to, &err);
  cr_assert(s, "%s", err.text);
  uint64_t all = fill(s);
  for (unsigned i = 0; i < DOCUMENTS; i++) {
    int part = zb_random_unit(5, zb_stream("split of documents"), i) >= 0.7;
    if (documents[part]++) zb_text_add(&want[part], " | ");
    for (unsigned k = 0; k < 1 + i % 3; k++) zb_text_add(&want[part], "%u ", i);
    zb_text_add(&want[part], "99");
    tokens[part] += 2 + i % 3;
  }
  cr_assert(documents[0] > 20 && documents[1] > 4);
  cr_expect_eq(zd_sink_tokens(s), all + DOCUMENTS);
  cr_expect_eq(zd_sink_documents(s), DOCUMENTS);
  cr_assert(zd_sink_finish(s, &err), "%s", err.text);
  zd_sink_abandon(s);
  fflush(stdout);
  cr_expect_str_eq(holds(scratch("x.y.train.bin"), &got), want[0].s, "%s", got.s);
  cr_expect_str_eq(holds(scratch("x.y.valid.bin"), &got), want[1].s, "%s", got.s);
  cr_expect_eq(scratch_files(), 2);
  char said[1200];
  snprintf(said, sizeof said, "%s: %d tokens of %d documents\n%s: %d tokens of %d documents",
           scratch("x.y.train.bin"), (int)tokens[0], (int)documents[0], scratch("x.y.valid.bin"),
           (int)tokens[1], (int)documents[1]);
  cr_expect_stdout_eq_str(said);
  zb_text_free(&want[0]);
  zb_text_free(&want[1]);
  zb_text_free(&got);
}

Test(sink, a_part_that_is_empty) {
  ZdTarget to = target("x");
  to.split = 0.999999;
  ZdSink *s = zd_sink_new(&to, &err);
  cr_assert(s, "%s", err.text);
  fill(s);
  cr_expect_not(zd_sink_finish(s, &err));
  cr_expect_str_eq(err.text, "all 40 documents are for training: none is left for validation");
  zd_sink_abandon(s);
  cr_expect_eq(scratch_files(), 0);
}

/* A shard that is full, of ten tokens here, ends where a document does; the slash behind the name is none of
 * it. */
Test(sink, shards) {
  cr_redirect_stdout();
  ZbText got = {0};
  ZdTarget to = target("x");
  char path[600];
  snprintf(path, sizeof path, "%s//", to.path);
  to.path = path, to.shard = 20;
  ZdSink *s = zd_sink_new(&to, &err);
  cr_assert(s, "%s", err.text);
  fill(s);
  cr_assert(zd_sink_finish(s, &err), "%s", err.text);
  zd_sink_abandon(s);
  fflush(stdout);
  cr_expect_str_eq(holds(scratch("x/00000.bin"), &got), "0 | 1 1 | 2 2 2 | 3 | 4 4 | 5 5 5", "%s", got.s);
  cr_expect_str_eq(holds(scratch("x/00001.bin"), &got), "6 | 7 7 | 8 8 8 | 9 | 10 10 | 11 11 11", "%s",
                   got.s);
  cr_expect_str_eq(holds(scratch("x/00006.bin"), &got), "36 | 37 37 | 38 38 38 | 39", "%s", got.s);
  cr_expect(access(scratch("x/00007.bin"), F_OK) < 0 && scratch_files() == 1);
  snprintf(path, sizeof path, "%s: 79 tokens of 40 documents in 7 shards", scratch("x"));
  cr_expect_stdout_eq_str(path);
  zb_text_free(&got);
}

/* A document that is as long as another shard is cut within, and one is not whose parts are no documents. */
Test(sink, a_document_over_shards) {
  cr_redirect_stdout();
  for (int unknown = 0; unknown < 2; unknown++) {
    ZbText got = {0};
    uint16_t ids[50];
    for (int i = 0; i < 50; i++) ids[i] = (uint16_t)i;
    ZdTarget to = target(unknown ? "u" : "x");
    to.shard = 20, to.unknown = unknown;
    ZdSink *s = zd_sink_new(&to, &err);
    cr_assert(s, "%s", err.text);
    for (int i = 0; i < 50; i += 5) cr_assert(zd_sink_put(s, ids + i, 5, i == 0, i == 45, &err));
    cr_assert(zd_sink_finish(s, &err), "%s", err.text);
    zd_sink_abandon(s);
    cr_expect_str_eq(holds(scratch(unknown ? "u/00000.bin" : "x/00000.bin"), &got),
                     unknown ? "0 1 2 3 4 5 6 7 8 9" : "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19",
                     "%s", got.s);
    zb_text_free(&got);
  }
}

/* Its name is taken by a folder: the document that would begin the next one is refused. */
Test(sink, a_shard_that_cannot_be_made) {
  ZdTarget to = target("x");
  to.shard = 20;
  ZdSink *s = zd_sink_new(&to, &err);
  cr_assert(s, "%s", err.text);
  glob_t tmp;
  cr_assert(glob(scratch("x.*.tmp"), 0, NULL, &tmp) == 0 && tmp.gl_pathc == 1);
  ZbText taken = {0};
  zb_text_add(&taken, "%s/00001.bin", tmp.gl_pathv[0]);
  globfree(&tmp);
  cr_assert(mkdir(taken.s, 0777) == 0);
  zb_text_free(&taken);
  uint16_t ids[10] = {0};
  cr_expect(zd_sink_put(s, ids, 10, true, true, &err), "%s", err.text);
  cr_expect_not(zd_sink_put(s, ids, 10, true, true, &err));
  says(err, "00001.bin");
  zd_sink_abandon(s);
}

Test(sink, is_abandoned) {
  for (int shards = 0; shards < 2; shards++) {
    ZdTarget to = target("x.bin");
    to.split = 0.5, to.shard = shards ? 20 : 0;
    ZdSink *s = zd_sink_new(&to, &err);
    cr_assert(s, "%s", err.text);
    fill(s);
    zd_sink_abandon(s);
    cr_expect_eq(scratch_files(), 0);
  }
  zd_sink_abandon(NULL);
  ZdTarget to = target("none/x.bin");
  cr_expect_null(zd_sink_new(&to, &err));
  says(err, "none/x.bin");
}

/* Where documents begin in token files and folders, and what samples say of them. */
#include "runtime/exec/data/data.h"
#include "tests/unit/exec/scratch.h"
#include "tests/unit/exec/stream_file.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(documents, .init = scratch_make, .fini = scratch_remove);

static ZbErr err;

/* Of equal tokens that are cut elsewhere the digests differ, in a file and in a folder. */
Test(documents, documents_are_part_of_a_digest) {
  static const char *const names[] = {"f/a.bin", "g/a.bin", "h/a.bin"};
  static const int lengths[][4] = {{3, 1, 7, 0}, {3, 2, 6, 0}, {3, 1, 7, 0}};
  uint64_t file[3], folder[3], digest[3];
  for (int i = 0; i < 3; i++) {
    scratch_folder((char[]){names[i][0], 0});
    documents_file(names[i], lengths[i]);
    ZxData *d = zx_data_open(scratch(names[i]), &err),
           *all = zx_data_open(scratch((char[]){names[i][0], 0}), &err);
    cr_assert(d && all, "%s", err.text);
    file[i] = zx_data_info(d)->begin_sum;
    folder[i] = zx_data_info(all)->begin_sum;
    ZxMix *m = zx_mix_one(d);
    digest[i] = zx_mix_digest(m);
    zx_mix_close(m);
    zx_data_close(all);
  }
  cr_expect(file[0] != file[1] && folder[0] != folder[1] && digest[0] != digest[1]);
  cr_expect(file[0] == file[2] && folder[0] == folder[2] && digest[0] == digest[2] && file[0] && folder[0]);
}

Test(documents, documents) {
  uint64_t first, end;
  int32_t out[4];
  documents_file("d", (int[]){3, 1, 7, 0});
  ZxData *d = zx_data_open(scratch("d"), &err);
  cr_assert(d, "%s", err.text);
  cr_expect_eq(zx_data_info(d)->documents, 3);
  const uint64_t starts[] = {0, 3, 4, 11};
  for (uint64_t i = 0; i < 3; i++) {
    cr_assert(zx_data_document(d, i, &first, &end, &err), "%s", err.text);
    cr_expect(first == starts[i] && end == starts[i + 1]);
  }
  cr_expect(zx_data_verify(d, &err), "%s", err.text);
  ZxSampler s = {d, ZX_ORDER_SEQUENTIAL, 0, 5}; /* samples do not look at them */
  cr_expect_eq(zx_data_samples(d, 5), 2);
  cr_expect(zx_data_read(&s, "targets", 1, 1, 4, 256, out, &err) && out[0] == 7 && out[3] == 10);
  zx_data_close(d);
  documents_file("one", (int[]){5, 0}); /* as a file that knows of none */
  size_t n;
  uint8_t *p = (uint8_t *)scratch_read("one", &n);
  cr_expect(n == 128 + 5 && p[4] == 1 && !p[48]);
  free(p);
}

Test(documents, many_documents) { /* more starts than are copied at a time */
  enum { N = 20000 };
  int *lengths = calloc(N + 1, sizeof *lengths);
  for (int i = 0; i < N; i++) lengths[i] = 1 + i % 3;
  documents_file("d", lengths);
  ZxData *d = zx_data_open(scratch("d"), &err);
  cr_assert(d && zx_data_info(d)->documents == N, "%s", err.text);
  uint64_t first, end, at = 0;
  for (uint64_t i = 0; i < N; at += (uint64_t)lengths[i++])
    cr_assert(zx_data_document(d, i, &first, &end, &err) && first == at && end == at + (uint64_t)lengths[i]);
  cr_expect(zx_data_verify(d, &err));
  zx_data_close(d);
  free(lengths);
}

Test(documents, folder_of_documents) {
  scratch_folder("f");
  documents_file("f/0.bin", (int[]){2, 3, 0});
  documents_file("f/1.bin", (int[]){4, 1, 1, 0});
  ZxData *d = zx_data_open(scratch("f/"), &err);
  cr_assert(d, "%s", err.text);
  cr_assert_eq(zx_data_info(d)->documents, 5);
  const uint64_t starts[] = {0, 2, 5, 9, 10, 11};
  uint64_t first, end;
  for (uint64_t i = 0; i < 5; i++) {
    cr_assert(zx_data_document(d, i, &first, &end, &err), "%s", err.text);
    cr_expect(first == starts[i] && end == starts[i + 1]);
  }
  zx_data_close(d);
  documents_file("f/2.bin", (int[]){5, 0}); /* knows of none */
  d = zx_data_open(scratch("f"), &err);
  cr_expect(d && !zx_data_info(d)->documents && !zx_data_info(d)->begin_sum && zx_data_tokens(d) == 16);
  zx_data_close(d);
}

/* zdata writes none with a single document, but others may: it is known where that begins. */
Test(documents, one_document) {
  scratch_folder("f");
  documents_file("f/0.bin", (int[]){4, 1, 1, 0});
  documents_file("d", (int[]){3, 1, 0});
  size_t n;
  uint8_t *p = (uint8_t *)scratch_read("d", &n);
  p[48] = 1;
  const uint64_t sum = zx_data_head_sum(p, 1);
  memcpy(p + 56, &sum, 8);
  scratch_write("f/1.bin", p, n - 8);
  free(p);
  ZxData *d = zx_data_open(scratch("f"), &err);
  cr_assert(d && zx_data_info(d)->documents == 4, "%s", err.text);
  uint64_t first, end;
  cr_expect(zx_data_document(d, 3, &first, &end, &err) && first == 6 && end == 10, "%s", err.text);
  zx_data_close(d);
}

/* Beginnings are counted in tokens, however many bytes a token has. */
Test(documents, documents_of_wide_tokens) {
  for (ZxDataElem elem = ZX_DATA_U8; elem <= ZX_DATA_U32; elem++) {
    static const uint32_t tokens[6];
    ZxDataField f = {.name = "tokens", .elem = elem, .values = 1};
    ZxDataInfo info = {.stream = true, .nfield = 1, .field = &f};
    ZxDataWriter *w = zx_data_create(scratch("d"), &info, &err);
    cr_assert(w && zx_data_begin_document(w, &err));
    cr_assert(zx_data_put(w, tokens, 2 * zx_data_elem_bytes(elem), &err) && zx_data_begin_document(w, &err));
    cr_assert(zx_data_put(w, tokens, 4 * zx_data_elem_bytes(elem), &err));
    cr_assert(zx_data_finish(w, (uint64_t[]){0}, &err), "%s", err.text);
    ZxData *d = zx_data_open(scratch("d"), &err);
    cr_assert(d && zx_data_verify(d, &err), "%s", err.text);
    uint64_t first, end;
    cr_expect(zx_data_document(d, 1, &first, &end, &err) && first == 2 && end == 6, "%s",
              zx_data_elem_name(elem));
    zx_data_close(d);
  }
}

/* Of every window and every part of one, against what the lengths say. */
static void expect_documents(const ZxData *d, const int *lengths, int seq) {
  int number[64], place[64], tokens = 0;
  for (int i = 0; lengths[i]; i++)
    for (int k = 0; k < lengths[i]; k++, tokens++) number[tokens] = i, place[tokens] = k;
  ZxSampler s = {d, ZX_ORDER_SEQUENTIAL, 0, seq};
  for (int g = 0; g < (int)zx_data_samples(d, seq); g++)
    for (int from = 0; from < seq; from++)
      for (int n = 1; n <= seq - from; n++) {
        int32_t doc[64], at[64];
        cr_assert(zx_data_read(&s, "doc", (uint64_t)g, from, n, ZX_ANY_I32, doc, &err), "%s", err.text);
        cr_assert(zx_data_read(&s, "place", (uint64_t)g, from, n, seq, at, &err), "%s", err.text);
        for (int k = 0; k < n; k++) {
          int t = g * seq + from + k;
          cr_expect_eq(doc[k], number[t] - number[g * seq]);
          cr_expect_eq(at[k], place[t] < from + k ? place[t] : from + k);
        }
      }
}

Test(documents, documents_of_windows) {
  const int lengths[] = {3, 1, 7, 1, 1, 2, 9, 4, 0};
  documents_file("d", lengths);
  ZxData *d = zx_data_open(scratch("d"), &err);
  cr_assert(d, "%s", err.text);
  for (int seq = 1; seq <= 28; seq++) expect_documents(d, lengths, seq);
  cr_expect(zx_data_check_field(d, "doc", true, 4, &err) && zx_data_check_field(d, "place", true, 4, &err));
  cr_expect(!zx_data_check_field(d, "place", false, 4, &err));
  says(err, "real numbers in 'place'");
  cr_expect(!zx_data_check_field(d, "document", true, 4, &err));
  says(err, "no field 'document': it is a stream, which gives 'tokens', 'targets', 'doc' and 'place'");
  int32_t out[8];
  ZxSampler s = {d, ZX_ORDER_SEQUENTIAL, 0, 8}; /* an axis for three documents */
  cr_expect(zx_data_read(&s, "doc", 0, 0, 8, 3, out, &err) && out[7] == 2);
  cr_expect(!zx_data_read(&s, "doc", 1, 0, 8, 3, out, &err));
  says(err, "token 13 has `doc` 3 in its sample; the model knows 0 to 2");
  cr_expect(!zx_data_read(&s, "place", 0, 0, 8, 3, out, &err));
  says(err, "token 7 has `place` 3 in its sample");
  zx_data_close(d);
}

/* A folder has no file of its own: what is open as 0 is another's. */
Test(documents, folders_close_their_own) {
  scratch_folder("f");
  documents_file("f/0.bin", (int[]){4, 0});
  int fd = open("/dev/null", O_RDONLY);
  cr_assert(fd >= 0 && (fd == 0 || dup2(fd, 0) == 0));
  ZxData *d = zx_data_open(scratch("f"), &err);
  cr_assert(d, "%s", err.text);
  zx_data_close(d);
  cr_expect(fcntl(0, F_GETFD) >= 0);
}

/* A folder's windows are of one file each; every file must know its documents. */
Test(documents, documents_of_folders) {
  scratch_folder("f");
  documents_file("f/0.bin", (int[]){2, 3, 0});
  documents_file("f/1.bin", (int[]){4, 1, 1, 0});
  ZxData *d = zx_data_open(scratch("f"), &err);
  cr_assert(d && zx_data_check_field(d, "doc", true, 2, &err), "%s", err.text);
  ZxSampler s = {d, ZX_ORDER_SEQUENTIAL, 0, 2};
  const int32_t docs[4][2] = {{0, 0}, {0, 0}, {0, 0}, {0, 0}},
                places[4][2] = {{0, 1}, {0, 1}, {0, 1}, {0, 1}};
  int32_t out[5];
  for (uint64_t g = 0; g < 4; g++) {
    cr_expect(zx_data_read(&s, "doc", g, 0, 2, ZX_ANY_I32, out, &err) && !memcmp(out, docs[g], 8));
    cr_expect(zx_data_read(&s, "place", g, 0, 2, ZX_ANY_I32, out, &err) && !memcmp(out, places[g], 8));
  }
  s.seq = 5; /* the first file has no window with a target for each */
  cr_expect(zx_data_read(&s, "doc", 0, 0, 5, ZX_ANY_I32, out, &err) && out[3] == 0 && out[4] == 1);
  zx_data_close(d);
  documents_file("f/2.bin", (int[]){5, 0});
  d = zx_data_open(scratch("f"), &err);
  cr_expect(d && !zx_data_check_field(d, "doc", true, 2, &err));
  says(err, "f/2.bin does not know where its documents begin, which 'doc' is made of");
  zx_data_close(d);
}

/* What a file had when it was opened may be gone: alone, and in a folder. */
Test(documents, of_a_file_that_shrinks) {
  enum { N = 20000 };
  int *lengths = calloc(N + 1, sizeof *lengths);
  uint64_t first, end;
  int32_t out[4];
  for (int i = 0; i < N; i++) lengths[i] = 2;
  scratch_folder("f");
  documents_file("f/0.bin", (int[]){2, 3, 0});
  documents_file("f/1.bin", lengths);
  ZxData *both[] = {zx_data_open(scratch("f/1.bin"), &err), zx_data_open(scratch("f"), &err)};
  cr_assert(both[0] && both[1], "%s", err.text);
  uint64_t starts = 2 * ZX_DATA_HEAD + 2 * N, half = starts + 8 * N / 2;
  cr_assert(truncate(scratch("f/1.bin"), (off_t)half) == 0);
  for (uint64_t k = 0; k < 2; k++) {
    const ZxSampler s = {both[k], ZX_ORDER_SEQUENTIAL, 0, 4};
    const uint64_t tokens = 5 * k, samples = k; /* of the other file */
    cr_expect(zx_data_document(both[k], 2 * k + 7, &first, &end, &err) && first == tokens + 14 &&
              end == tokens + 16);
    cr_expect(!zx_data_document(both[k], 2 * k + N / 2, &first, &end, &err));
    says(err, "/f/1.bin: it shrank while it was read");
    cr_expect(!zx_data_document(both[k], 2 * k + N / 2 - 1, &first, &end, &err),
              "it ends where the next begins");
    for (uint64_t g = samples; g < samples + N / 2 - 1; g += N / 2 - 2) {
      err = (ZbErr){0};
      cr_expect(!zx_data_read(&s, "doc", g, 0, 4, ZX_ANY_I32, out, &err),
                "what is looked for is in the middle");
      says(err, "shrank");
    }
    cr_expect(!zx_data_verify(both[k], &err));
    says(err, "shrank");
    zx_data_close(both[k]);
  }
  free(lengths);
}

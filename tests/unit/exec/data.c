/* Token and record files: what is read is what was written, every refusal, and the order of samples. */
#include "runtime/exec/data/data.h"
#include "tests/unit/exec/scratch.h"
#include "tests/unit/exec/stream_file.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(data, .init = scratch_make, .fini = scratch_remove);

static ZbErr err;

static ZxData *stream(const char *name, ZxDataElem elem, const void *ids, size_t n) {
  stream_file(name, elem, ids, n, 0);
  ZxData *d = zx_data_open(scratch(name), &err);
  cr_assert(d, "%s", err.text);
  return d;
}

Test(data, windows_of_a_stream) {
  uint8_t ids[23];
  for (int i = 0; i < 23; i++) ids[i] = (uint8_t)(100 + i);
  ZxData *d = stream("s", ZX_DATA_U8, ids, 23);
  cr_expect_eq(zx_data_tokens(d), 23);
  cr_expect_eq(zx_data_samples(d, 4), 5);
  cr_expect_eq(zx_data_samples(d, 11), 2);
  cr_expect_eq(zx_data_samples(d, 22), 1, "22 tokens and one more for the last target");
  cr_expect_eq(zx_data_samples(d, 23), 0);
  cr_expect_eq(zx_data_samples(d, 0), 0);
  cr_expect(zx_data_files(d) == 1 && zx_data_file(d, 0) == d);
  cr_expect(zx_data_check_field(d, "tokens", true, 4, &err));
  ZxSampler s = {d, ZX_ORDER_SEQUENTIAL, 0, 4};
  int32_t out[4];
  for (uint64_t g = 0; g < 12; g++) { /* more than two epochs */
    cr_assert(zx_data_read(&s, "tokens", g, 0, 4, 256, out, &err));
    for (int i = 0; i < 4; i++) cr_expect_eq(out[i], (int)(100 + g % 5 * 4) + i);
    cr_assert(
        zx_data_read(&s, "targets", g, 1, 3, 256, out, &err)); /* a part, as a rank of several takes it */
    for (int i = 0; i < 3; i++) cr_expect_eq(out[i], (int)(100 + g % 5 * 4) + 2 + i);
  }
  cr_expect(zx_data_verify(d, &err));
  zx_data_close(d);
}

Test(data, wide_ids_and_unknown) {
  uint16_t h[] = {0, 65534, 65535, 7, 1};
  uint32_t w[] = {0, 2000000000, UINT32_MAX, 7, 1};
  int32_t out[4];
  ZxData *d = stream("h", ZX_DATA_U16, h, 5);
  ZxSampler s = {d, ZX_ORDER_SEQUENTIAL, 0, 4};
  cr_assert(zx_data_read(&s, "targets", 0, 0, 4, 65536, out, &err));
  cr_expect(out[0] == 65534 && out[1] == -1 && out[2] == 7 && out[3] == 1);
  cr_expect(!zx_data_read(&s, "targets", 0, 0, 4, 65534, out, &err));
  says(err, "token 1 has the id 65534; the model knows 0 to 65533");
  zx_data_close(d);
  d = stream("w", ZX_DATA_U32, w, 5);
  s.data = d;
  cr_assert(zx_data_read(&s, "tokens", 0, 0, 4, INT32_MAX, out, &err));
  cr_expect(out[1] == 2000000000 && out[2] == -1);
  cr_expect(!zx_data_read(&s, "tokens", 0, 0, 4, 5, out, &err));
  zx_data_close(d);
}

Test(data, the_largest_whole_number) {
  uint32_t w[] = {INT32_MAX, (uint32_t)INT32_MAX + 1, 0};
  int32_t out[2];
  ZxData *d = stream("w", ZX_DATA_U32, w, 3);
  ZxSampler s = {d, ZX_ORDER_SEQUENTIAL, 0, 2};
  cr_expect(zx_data_read(&s, "tokens", 0, 0, 1, ZX_ANY_I32, out, &err) && out[0] == INT32_MAX);
  cr_expect(!zx_data_read(&s, "tokens", 0, 0, 2, ZX_ANY_I32, out, &err));
  says(err, "value 1 of 'tokens' is 2147483648; i32 ends at 2147483647");
  cr_expect_str_eq(err.help, "declare the input as real");
  zx_data_close(d);
  d = stream("none", ZX_DATA_U8, "", 0);
  cr_expect_eq(zx_data_samples(d, 1), 0);
  zx_data_close(d);
}

typedef struct {
  float x[3];
  uint8_t small[2], padding[2];
  int32_t y;
} Record;

static ZxData *records(const char *name, const Record *r, size_t n) {
  ZxDataField f[3] = {{.name = "x", .elem = ZX_DATA_F32, .values = 3},
                      {.name = "small", .elem = ZX_DATA_U8, .values = 2},
                      {.name = "label", .elem = ZX_DATA_I32, .values = 1}};
  ZxDataInfo info = {.nfield = 3, .field = f};
  ZxDataWriter *w = zx_data_create(scratch(name), &info, &err);
  cr_assert(w, "%s", err.text);
  cr_assert(zx_data_put(w, r, n * sizeof *r, &err));
  cr_assert(zx_data_finish(w, (uint64_t[]){0, 256, 10}, &err), "%s", err.text);
  ZxData *d = zx_data_open(scratch(name), &err);
  cr_assert(d, "%s", err.text);
  return d;
}

Test(data, fields_of_records) {
  Record r[] = {{{1, 2, 3}, {4, 5}, {0}, -1}, {{1.5f, NAN, -3}, {6, 255}, {0}, 9}};
  ZxData *d = records("r", r, 2);
  cr_expect_eq(zx_data_tokens(d), 0);
  cr_expect_eq(zx_data_samples(d, 3), 2);
  cr_expect(zx_data_check_field(d, "x", false, 3, &err));
  cr_expect(zx_data_check_field(d, "small", false, 2, &err));
  cr_expect(zx_data_check_field(d, "label", true, 1, &err));
  ZxSampler s = {d, ZX_ORDER_SEQUENTIAL, 0, 3};
  float x[3];
  int32_t id[2];
  cr_assert(zx_data_read(&s, "x", 1, 0, 3, -1, x, &err));
  cr_expect(x[0] == 1.5f && isnan(x[1]) && x[2] == -3);
  cr_assert(zx_data_read(&s, "x", 0, 1, 2, -1, x, &err));
  cr_expect(x[0] == 2 && x[1] == 3);
  s.seq = 2;
  cr_assert(zx_data_read(&s, "small", 1, 1, 1, -1, x, &err));
  cr_expect_eq(x[0], 255);
  cr_assert(zx_data_read(&s, "small", 1, 0, 2, 256, id, &err));
  cr_expect(id[0] == 6 && id[1] == 255);
  cr_assert(zx_data_read(&s, "small", 1, 0, 2, ZX_ANY_I32, id, &err));
  cr_expect(id[0] == 6 && id[1] == 255);
  s.seq = 1;
  cr_assert(zx_data_read(&s, "label", 0, 0, 1, 10, id, &err));
  cr_expect_eq(id[0], -1);
  cr_expect(!zx_data_read(&s, "label", 1, 0, 1, 9, id, &err));
  says(err, "record 1, 'label', value 0 is 9; the model knows 0 to 8, and -1 for unknown");
  zx_data_close(d);
  r[1].y = -2;
  s.data = d = records("r", r, 2);
  cr_expect(!zx_data_read(&s, "label", 1, 0, 1, 9, id, &err), "-2 is no id");
  cr_expect(zx_data_read(&s, "label", 1, 0, 1, ZX_ANY_I32, id, &err) && id[0] == -2, "and a whole number");
  zx_data_close(d);
}

/* Header and fields, byte by byte, as DATA.md has them; of the checksums only where they are. */
Test(data, what_a_header_is) {
  Record r[] = {{{1, 2, 3}, {4, 5}, {0}, -1}, {{1, 2, 3}, {4, 5}, {0}, 9}};
  static const struct {
    size_t at, n;
    uint64_t value;
  } want[] = {{4, 4, 1},     {8, 4, 2},   {12, 4, 3},  {16, 8, 2},  {24, 8, 20}, {32, 8, 256}, {48, 8, 0},
              {64, 8, 'x'},  {104, 8, 4}, {112, 8, 3}, {120, 8, 0}, {128, 5, 0}, {168, 8, 0},  {176, 8, 2},
              {184, 8, 256}, {192, 5, 0}, {232, 8, 3}, {240, 8, 1}, {248, 8, 10}};
  zx_data_close(records("r", r, 2));
  size_t n;
  char *p = scratch_read("r", &n), head[256] = "ZTOK";
  for (size_t i = 0; i < sizeof want / sizeof *want; i++)
    memcpy(head + want[i].at, &want[i].value, want[i].n);
  strcpy(head + 128, "small");
  strcpy(head + 192, "label");
  memcpy(head + 40, p + 40, 8);
  memcpy(head + 56, p + 56, 8);
  cr_expect(n == 256 + 2 * sizeof *r && !memcmp(p, head, 256) && !memcmp(p + 256, r, sizeof r));
  free(p);
}

Test(data, fields_that_do_not_fit) {
  Record r = {0};
  ZxData *d = records("r", &r, 1);
  cr_expect(!zx_data_check_field(d, "lable", true, 1, &err));
  says(err, "no field 'lable'; it has: x, small, label");
  cr_expect_str_eq(err.help, "did you mean 'label'?");
  cr_expect(!zx_data_check_field(d, "x", true, 3, &err));
  says(err, "wants indices in 'x', the file has real numbers");
  cr_expect(!zx_data_check_field(d, "x", false, 4, &err));
  says(err, "wants 4 values of 'x' per sample, the file has 3");
  zx_data_close(d);
  d = records("none", &r, 0);
  cr_expect(!zx_data_check_field(d, "x", false, 3, &err));
  says(err, "has no records");
  zx_data_close(d);
  d = stream("s", ZX_DATA_U8, "abcd", 4);
  cr_expect(!zx_data_check_field(d, "image", true, 2, &err));
  says(err, "no field 'image': it is a stream");
  cr_expect(!zx_data_check_field(d, "tokens", false, 2, &err));
  says(err, "wants real numbers in 'tokens', the file has tokens (u8)");
  cr_expect(zx_data_check_field(d, "targets", true, 3, &err));
  cr_expect(!zx_data_check_field(d, "targets", true, 4, &err));
  says(err, "has 4 tokens; one sample takes 4 and one more");
  zx_data_close(d);
}

/* ---- documents ---- */
/* Ids 0, 1, 2, ... of one byte, in documents of these lengths; ended by 0. */
static void documents_file(const char *name, const int *lengths) {
  ZxDataField f = {.name = "tokens", .values = 1};
  ZxDataInfo info = {.stream = true, .nfield = 1, .field = &f};
  ZxDataWriter *w = zx_data_create(scratch(name), &info, &err);
  cr_assert(w, "%s", err.text);
  for (uint8_t id = 0; *lengths; lengths++) {
    cr_assert(zx_data_begin_document(w, &err), "%s", err.text);
    for (int i = 0; i < *lengths; i++, id++) cr_assert(zx_data_put(w, &id, 1, &err));
  }
  cr_assert(zx_data_finish(w, (uint64_t[]){256}, &err), "%s", err.text);
}

/* Of equal tokens that are cut elsewhere the digests differ, in a file and in a folder. */
Test(data, documents_are_part_of_a_digest) {
  static const char *const names[] = {"f/a.bin", "g/a.bin", "h/a.bin"};
  static const int lengths[][4] = {{3, 1, 7, 0}, {3, 2, 6, 0}, {3, 1, 7, 0}};
  uint64_t file[3], folder[3], digest[3];
  cr_assert(mkdir(scratch("f"), 0777) == 0 && mkdir(scratch("g"), 0777) == 0 &&
            mkdir(scratch("h"), 0777) == 0);
  for (int i = 0; i < 3; i++) {
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

Test(data, documents) {
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

Test(data, many_documents) { /* more starts than are copied at a time */
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

/* ---- folders ---- */
static void folder_of(const char *name) { cr_assert_eq(mkdir(scratch(name), 0777), 0); }

Test(data, folder_of_streams) {
  uint8_t ids[40];
  int32_t out[4];
  for (int i = 0; i < 40; i++) ids[i] = (uint8_t)i;
  folder_of("f");
  stream_file("f/2.bin", ZX_DATA_U8, ids, 13, 20);      /* 3 samples of 4 */
  stream_file("f/10.bin", ZX_DATA_U8, ids + 13, 4, 30); /* none: it lacks the last target */
  stream_file("f/1.bin", ZX_DATA_U8, ids + 17, 9, 26);  /* 2 */
  stream_file("f/.3.bin", ZX_DATA_U8, ids, 9, 0);
  stream_file("f/4.bin.old", ZX_DATA_U8, ids, 9, 0);
  ZxData *d = zx_data_open(scratch("f"), &err);
  cr_assert(d, "%s", err.text);
  cr_expect_eq(zx_data_files(d), 3);
  cr_expect(zx_data_tokens(d) == 26 && zx_data_samples(d, 4) == 5 && zx_data_samples(d, 9) == 1);
  cr_expect(zx_data_info(d)->field[0].limit == 30 && !zx_data_info(d)->documents);
  cr_expect_eq(zx_data_bytes(d), 3 * 128 + 26);
  cr_expect(zx_data_check_field(d, "tokens", true, 4, &err) && zx_data_verify(d, &err));
  ZxSampler s = {d, ZX_ORDER_SEQUENTIAL, 0, 4};
  const int first[] = {17, 21, 0, 4, 8, 17}; /* in the order of names: 1, 10, 2 */
  for (uint64_t g = 0; g < 6; g++) {
    cr_assert(zx_data_read(&s, "targets", g, 1, 3, 256, out, &err), "%s", err.text);
    for (int i = 0; i < 3; i++) cr_expect_eq(out[i], first[g] + 2 + i);
  }
  uint8_t all[26];
  cr_assert(zx_data_get(d, 0, 26, all, &err));
  cr_expect(!memcmp(all, ids + 17, 9) && !memcmp(all + 9, ids + 13, 4) && !memcmp(all + 13, ids, 13));
  cr_expect(zx_data_get(d, 8, 6, all, &err) && all[0] == 25 && all[1] == 13 && all[4] == 16 && all[5] == 0);
  zx_data_close(d);
  stream_file("f/11.bin", ZX_DATA_U8, ids, 1, 0); /* of which nothing is known */
  d = zx_data_open(scratch("f"), &err);
  cr_expect(d && zx_data_files(d) == 4 && zx_data_info(d)->field[0].limit == 0);
  zx_data_close(d);
}

Test(data, folder_of_documents) {
  folder_of("f");
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
  cr_expect(d && !zx_data_info(d)->documents && zx_data_tokens(d) == 16);
  zx_data_close(d);
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

Test(data, documents_of_windows) {
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

/* A folder's windows are of one file each; every file must know its documents. */
/* A folder has no file of its own: what is open as 0 is another's. */
Test(data, folders_close_their_own) {
  folder_of("f");
  documents_file("f/0.bin", (int[]){4, 0});
  int fd = open("/dev/null", O_RDONLY);
  cr_assert(fd >= 0 && (fd == 0 || dup2(fd, 0) == 0));
  ZxData *d = zx_data_open(scratch("f"), &err);
  cr_assert(d, "%s", err.text);
  zx_data_close(d);
  cr_expect(fcntl(0, F_GETFD) >= 0);
}

Test(data, documents_of_folders) {
  folder_of("f");
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

Test(data, folders_that_do_not_open) {
  uint16_t ids[4] = {0};
  folder_of("f");
  cr_expect(!zx_data_open(scratch("f"), &err));
  says(err, "f is a folder without .bin files");
  stream_file("f/a.bin", ZX_DATA_U16, ids, 4, 0);
  stream_file("f/b.bin", ZX_DATA_U8, ids, 4, 0);
  cr_expect(!zx_data_open(scratch("f"), &err));
  says(err, "b.bin cannot be mixed with");
  scratch_write("f/b.bin", "text", 4);
  cr_expect(!zx_data_open(scratch("f"), &err));
  says(err, "b.bin is not a token file");
}

/* ---- damaged files ---- */
static void refused(const char *words, void *bytes, size_t n) {
  ZbErr e = {0};
  ZxData *d = zx_data_of_bytes(bytes, n, "F", &e);
  cr_expect(!d, "accepted, wanted: %s", words);
  zx_data_close(d);
  cr_expect(strstr(e.text, words), "no '%s' in '%s'", words, e.text);
}

static void put64(uint8_t *p, size_t at, uint64_t v) {
  memcpy(p + at, &v, 8);
  if (at >= 64 || at < 56) {
    uint64_t sum = zx_data_head_sum(p, p[12]);
    memcpy(p + 56, &sum, 8);
  }
}

Test(data, damaged_files) {
  stream_file("s", ZX_DATA_U16, "abcdefgh", 4, 0);
  size_t n;
  uint8_t *good = (uint8_t *)scratch_read("s", &n), *p = malloc(n + 1);
  cr_assert_eq(n, 64 + 64 + 8);
#define AGAIN memcpy(p, good, n)
  AGAIN;
  refused("is not a token file", p, 0);
  refused("is not a token file", p, 3);
  refused("ends within its header", p, 63);
  refused("ends within its list of fields", p, 64);
  refused("ends within its list of fields", p, 127);
  refused("is truncated: its header promises 4 tokens in 136 bytes, it has 135", p, n - 1);
  p[n] = 0;
  refused("is too long", p, n + 1);
  p[0] = 'z';
  refused("is not a token file", p, n);
  AGAIN, p[4] = 3;
  refused("has format version 3; this program reads 1 to 2", p, n);
  AGAIN, p[4] = 0;
  refused("has format version 0; this program reads 1 to 2", p, n);
  AGAIN, p[20] ^= 1;
  refused("the checksum differs", p, n);
  AGAIN, p[70] ^= 1; /* the field table is under the sum, too */
  refused("the checksum differs", p, n);
  AGAIN, p[12] = 0;
  refused("it counts 0 fields", p, n);
  AGAIN, p[14] = 1;
  refused("it counts 65537 fields", p, n);
  AGAIN, put64(p, 48, 1);
  refused("is damaged: 1 documents in 4 tokens", p, n);
  AGAIN, p[8] = 3, put64(p, 48, 0);
  refused("unknown kind 3", p, n);
  AGAIN, put64(p, 16, UINT64_MAX);
  refused("is damaged: 18446744073709551615 tokens of 2 bytes", p, n);
  AGAIN, put64(p, 16, 3);
  refused("too long", p, n);
  AGAIN, put64(p, 24, 4);
  refused("the sizes contradict its fields", p, n);
  AGAIN, put64(p, 32, 64);
  refused("the sizes contradict its fields", p, n);
  AGAIN, put64(p, 64 + 40, 9);
  refused("unknown element type 9", p, n);
  AGAIN, put64(p, 64 + 40, ZX_DATA_F32);
  refused("a stream must have one field", p, n);
  AGAIN, put64(p, 64 + 48, 2);
  refused("a stream must have one field", p, n);
  AGAIN, put64(p, 64 + 48, 0);
  refused("cannot have 0 values", p, n);
  AGAIN, put64(p, 64 + 48, UINT64_MAX / 2);
  refused("cannot have 9223372036854775807 values", p, n);
  AGAIN, put64(p, 64, 0);
  refused("field 0 has no proper name", p, n);
  AGAIN, memset(p + 64, 'a', 40), put64(p, 48, 0);
  refused("field 0 has no proper name", p, n);
  AGAIN, p[n - 1] ^= 1;
  ZxData *d = zx_data_of_bytes(p, n, "F", &err);
  cr_assert(d);
  cr_expect(!zx_data_verify(d, &err));
  says(err, "the checksum of its tokens differs");
  zx_data_close(d);
  free(good);
  free(p);
}

/* What is read of beginnings is believed only as far as it can be true. */
Test(data, damaged_beginnings) {
  documents_file("d", (int[]){3, 1, 7, 0});
  size_t n;
  uint8_t *p = (uint8_t *)scratch_read("d", &n);
  int32_t out[10];
  const uint64_t wrong[] = {0, 1, 3, 5, 10, 11, 12, UINT64_MAX};
  for (size_t at = 0; at < 3; at++)
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
      uint64_t kept;
      memcpy(&kept, p + 128 + 16 + 8 * at, 8);
      put64(p, 128 + 16 + 8 * at, wrong[i]);
      ZxData *d = zx_data_of_bytes(p, n, "d", &err);
      ZxSampler s = {d, ZX_ORDER_SEQUENTIAL, 0, 10};
      for (int64_t from = 0; from < 10; from++)
        if (!zx_data_read(&s, "place", 0, from, 10 - from, ZX_ANY_I32, out, &err)) says(err, "d is damaged");
        else cr_expect(out[0] >= 0 && out[0] < 10);
      zx_data_close(d);
      put64(p, 128 + 16 + 8 * at, kept);
    }
  free(p);
}

Test(data, damaged_documents) {
  documents_file("d", (int[]){3, 1, 7, 0});
  size_t n;
  uint8_t *good = (uint8_t *)scratch_read("d", &n), *p = malloc(n + 8);
  const size_t at = 128 + 16; /* 11 tokens, and 5 bytes up to a multiple of 8 */
  cr_assert_eq(n, at + 3 * 8 + 8);
  AGAIN;
  refused("promises 11 tokens in 176 bytes, it has 175", p, n - 1);
  refused("promises 11 tokens in 176 bytes, it has 184", p, n + 8);
  for (uint64_t wrong = 0; wrong < 4; wrong++) {
    AGAIN, put64(p, 48, (const uint64_t[]){0, 12, UINT64_MAX, UINT64_MAX / 8}[wrong]);
    refused("documents in 11 tokens", p, n);
  }
  AGAIN, put64(p, 48, 2);
  refused("is too long", p, n);
  AGAIN, p[4] = 1, put64(p, 48, 3);
  refused("3 documents in 11 tokens", p, n);
  AGAIN, put64(p, 16, UINT64_MAX - 200), put64(p, 48, UINT64_MAX / 8);
  refused("is damaged: 2305843009213693951 documents", p, n);
  AGAIN, p[8] = 2, put64(p, 24, 12); /* records, of bytes padded to 4 each */
  refused("is damaged", p, n);
  static const struct {
    size_t at;
    uint64_t value;
  } bad[] = {{0, 1}, {0, 4}, {8, 0}, {8, 4}, {8, 12}, {16, 11}, {16, 3}, {16, UINT64_MAX}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    AGAIN, memcpy(p + at + bad[i].at, &bad[i].value, 8);
    ZxData *d = zx_data_of_bytes(p, n, "F", &err);
    cr_assert(d);
    uint64_t first, end;
    bool ok = true;
    for (uint64_t k = 0; k < 3; k++) ok &= zx_data_document(d, k, &first, &end, &err);
    cr_expect(!ok, "%zu", i);
    says(err, "is damaged: document");
    cr_expect(!zx_data_verify(d, &err));
    says(err, "the checksum of its documents differs");
    zx_data_close(d);
  }
  free(good);
  free(p);
}

Test(data, files_that_do_not_open) {
  cr_expect(!zx_data_open(scratch("none"), &err));
  says(err, "No such file");
  cr_expect(!zx_data_open("/dev/null", &err));
  says(err, "is not a regular file");
  scratch_write("empty", "", 0);
  cr_expect(!zx_data_open(scratch("empty"), &err));
  says(err, "is empty");
  scratch_write("text", "hello", 5);
  cr_expect(!zx_data_open(scratch("text"), &err));
  says(err, "is not a token file");
}

static bool read_tokens(ZxData *d, int64_t seq, uint64_t sample, int64_t limit, void *out) {
  ZxSampler s = {d, ZX_ORDER_SEQUENTIAL, 1, seq};
  return zx_data_read(&s, "tokens", sample, 0, seq, limit, out, &err);
}

/* Of a mapping this would be a signal, and no file named. */
Test(data, a_file_that_shrinks_while_it_is_used) {
  enum { N = 100000 };
  static uint8_t bytes[N];
  static int32_t ids[N];
  for (int i = 0; i < N; i++) bytes[i] = (uint8_t)(i % 251);
  stream_file("s", ZX_DATA_U8, bytes, N, 0);
  ZxData *d = zx_data_open(scratch("s"), &err);
  cr_assert(d, "%s", err.text);
  cr_assert(truncate(scratch("s"), N / 2) == 0);
  cr_expect(read_tokens(d, 10, 1, 256, ids) && ids[0] == 10 && ids[9] == 19);
  cr_expect(!read_tokens(d, 10, N / 10 - 2, 256, ids));
  says(err, "/s: it shrank while it was read");
  cr_expect(!read_tokens(d, 10, N / 20, 256, ids), "of what is read at once the first bytes are there");
  cr_expect(!read_tokens(d, N / 2, 0, 256, ids), "a long run of values");
  says(err, "shrank");
  cr_expect(!zx_data_verify(d, &err));
  says(err, "shrank");
  cr_expect(read_tokens(d, 10, 1, 256, ids) && ids[0] == 10 && ids[9] == 19, "what is left can be read");
  zx_data_close(d);
}

/* Small pieces come out of what was read around others, long ones in several: all are the same values. */
Test(data, pieces_of_any_length) {
  enum { N = 60000 };
  static uint16_t v[N];
  static int32_t ids[N];
  static float real[N];
  for (int i = 0; i < N; i++) v[i] = (uint16_t)(i * 7919u % 65521u);
  stream_file("s", ZX_DATA_U16, v, N, 0);
  ZxData *d = zx_data_open(scratch("s"), &err);
  cr_assert(d, "%s", err.text);
  for (int64_t n = 1; n < N; n = n * 3 + 1)
    for (uint64_t k = 0; k < (uint64_t)((N - 1) / n) && k < 300; k++) {
      uint64_t at = k % 2 ? (uint64_t)((N - 1) / n) - 1 - k / 2 : k;
      cr_assert(read_tokens(d, n, at, 65536, ids), "%s", err.text);
      for (int64_t i = 0; i < n; i++) cr_assert_eq(ids[i], v[at * (uint64_t)n + (uint64_t)i]);
    }
  cr_assert(read_tokens(d, N - 1, 0, -1, real));
  for (int i = 0; i < N - 1; i++) cr_assert_eq(real[i], v[i]);
  zx_data_close(d);
}

Test(data, names_and_layouts) {
  ZxDataField f[2] = {{.name = "a", .elem = ZX_DATA_U8, .values = 3},
                      {.name = "a", .elem = ZX_DATA_F32, .values = 1}};
  ZxDataInfo info = {.nfield = 2, .field = f};
  cr_expect(!zx_data_layout(&info, &err));
  says(err, "two fields are named 'a'");
  strcpy(f[1].name, "2b");
  cr_expect(!zx_data_layout(&info, &err));
  says(err, "field 1 has no proper name");
  strcpy(f[1].name, "b2_");
  cr_expect(zx_data_layout(&info, &err));
  cr_expect(f[1].at == 4 && info.record_bytes == 8 && info.data_at == 192);
  for (int e = 0; e < ZX_DATA_ELEMS; e++)
    cr_expect_eq((int)zx_data_elem_of(zx_data_elem_name((ZxDataElem)e)), e);
  cr_expect_eq(zx_data_elem_of("u9"), ZX_DATA_ELEMS);
  info.nfield = 0;
  cr_expect(!zx_data_layout(&info, &err));
  says(err, "0 fields");
  /* The first and the last of letters and digits, and their neighbours. */
  info.nfield = 1;
  for (const char *const *n = (const char *const[]){"azAZ_09", "_", "A0", "z9", NULL}; *n; n++) {
    strcpy(f[0].name, *n);
    cr_expect(zx_data_layout(&info, &err), "%s", *n);
  }
  for (const char *const *n = (const char *const[]){"a`", "a{", "a@", "a[", "a/", "a:", "0", "", NULL}; *n;
       n++) {
    strcpy(f[0].name, *n);
    cr_expect(!zx_data_layout(&info, &err), "%s", *n);
  }
  memset(f[0].name, 'a', ZX_DATA_NAME - 1); /* with a NUL behind */
  f[0].name[ZX_DATA_NAME - 1] = 0;
  cr_expect(zx_data_layout(&info, &err));
  f[0].name[ZX_DATA_NAME - 1] = 'a';
  cr_expect(!zx_data_layout(&info, &err));
  strcpy(f[0].name, "a");
  f[0].values = (uint64_t)INT64_MAX / 2 + 1;
  cr_expect(!zx_data_layout(&info, &err));
  info.stream = true;
  cr_expect(!zx_data_layout(&info, &err));
  f[0].values--;
  cr_expect(zx_data_layout(&info, &err) && info.record_bytes == (uint64_t)INT64_MAX / 2);
  ZxDataField *many = calloc(ZX_DATA_MAX_FIELDS + 1, sizeof *many);
  for (int i = 0; i <= ZX_DATA_MAX_FIELDS; i++) {
    many[i] = (ZxDataField){.elem = ZX_DATA_U8, .values = 1};
    snprintf(many[i].name, sizeof many[i].name, "f%d", i);
  }
  info = (ZxDataInfo){.nfield = ZX_DATA_MAX_FIELDS, .field = many};
  cr_expect(zx_data_layout(&info, &err) && info.record_bytes == 4 * ZX_DATA_MAX_FIELDS);
  info.nfield++;
  cr_expect(!zx_data_layout(&info, &err));
  says(err, "1025 fields; there must be 1 to 1024");
  free(many);
}

/* More than is summed up at a time. */
Test(data, a_long_file_is_verified_to_its_end) {
  enum { N = (5 << 20) / 2 };
  static uint8_t bytes[N];
  for (int i = 0; i < N; i++) bytes[i] = (uint8_t)zb_mix64((uint64_t)i);
  stream_file("s", ZX_DATA_U8, bytes, N, 0);
  size_t n;
  char *p = scratch_read("s", &n);
  for (size_t at = n; at > 1 << 20; at -= 1 << 20) { /* one byte in each part */
    p[at - 1] ^= 1;
    scratch_write("altered", p, n);
    ZxData *d = zx_data_open(scratch("altered"), &err);
    cr_expect(d && !zx_data_verify(d, &err), "byte %zu", at - 1);
    zx_data_close(d);
    p[at - 1] ^= 1;
  }
  ZxData *d = zx_data_open(scratch("s"), &err);
  cr_expect(d && zx_data_verify(d, &err), "%s", err.text);
  zx_data_close(d);
  free(p);
}

/* ---- writing ---- */
Test(data, what_is_not_replaced) {
  ZxDataField f = {.name = "tokens", .values = 1};
  ZxDataInfo info = {.stream = true, .nfield = 1, .field = &f};
  scratch_write("text", "hello", 5);
  cr_expect(!zx_data_create(scratch("text"), &info, &err));
  says(err, "is not a token file: it is not replaced");
  cr_expect(!zx_data_create(scratch("."), &info, &err));
  says(err, "is not a file");
  cr_expect(!zx_data_create(scratch("none/x"), &info, &err));
  says(err, "cannot create");
  stream_file("s", ZX_DATA_U8, "abc", 3, 0);
  stream_file("s", ZX_DATA_U8, "abcd", 4, 0);
  ZxDataWriter *w = zx_data_create(scratch("s"), &info, &err); /* given up: the old one stays, nothing else */
  cr_assert(w);
  zx_data_abandon(w);
  ZxData *d = zx_data_open(scratch("s"), &err);
  cr_expect_eq(zx_data_tokens(d), 4);
  zx_data_close(d);
  cr_expect_eq(scratch_files(), 2);
}

/* Of a long list of files none stays open: written, given up, read, refused. */
Test(data, all_files_are_closed) {
  ZxDataField f = {.name = "tokens", .values = 1};
  ZxDataInfo info = {.stream = true, .nfield = 1, .field = &f};
  int before = open_files();
  folder_of("f");
  documents_file("f/0.bin", (int[]){2, 3, 0});
  documents_file("f/1.bin", (int[]){2, 3, 0});
  cr_expect_eq(open_files(), before, "written");
  ZxDataWriter *w = zx_data_create(scratch("f/0.bin"), &info, &err);
  cr_assert(w && zx_data_begin_document(w, &err));
  zx_data_abandon(w);
  cr_expect_eq(open_files(), before, "given up");
  ZxMix *m = zx_mix_open(scratch("f"), &err);
  cr_assert(m && zx_mix_check_field(m, "doc", true, 2, &err), "%s", err.text);
  zx_mix_close(m);
  cr_expect_eq(open_files(), before, "read");
  scratch_write("f/1.bin", "text", 4);
  scratch_write("f/2.bin", "", 0);
  cr_expect(!zx_data_open(scratch("f"), &err) && !zx_data_open(scratch("f/2.bin"), &err));
  cr_expect_eq(open_files(), before, "refused");
}

Test(data, a_folder_that_cannot_be_listed) {
  folder_of("f");
  struct rlimit was, none;
  cr_assert(getrlimit(RLIMIT_NOFILE, &was) == 0);
  none = was, none.rlim_cur = 0;
  cr_assert(setrlimit(RLIMIT_NOFILE, &none) == 0);
  ZxData *d = zx_data_open(scratch("f"), &err);
  cr_assert(setrlimit(RLIMIT_NOFILE, &was) == 0);
  cr_expect(!d);
  says(err, "cannot open the folder");
  says(err, ": Too many open files");
}

Test(data, a_full_disk) {
  ZxDataField f = {.name = "tokens", .values = 1};
  ZxDataInfo info = {.stream = true, .nfield = 1, .field = &f};
  char bytes[100] = "";
  scratch_full_at(100000);
  ZxDataWriter *w = zx_data_create(scratch("s"), &info, &err);
  cr_assert(w);
  bool ok = true;
  for (int i = 0; ok && i < 2000; i++) ok = zx_data_put(w, bytes, sizeof bytes, &err);
  cr_expect(!ok);
  says(err, "cannot write");
  zx_data_abandon(w);
  w = zx_data_create(scratch("s"), &info, &err); /* within buffers until the end */
  for (int i = 0; i < 999; i++) cr_assert(zx_data_put(w, bytes, sizeof bytes, &err));
  cr_expect(!zx_data_finish(w, (uint64_t[]){0}, &err));
  says(err, "cannot write");
  cr_expect_eq(scratch_files(), 0, "nothing is left");
}

/* ---- order ---- */
Test(data, permutations) {
  for (uint64_t n = 1; n < 700; n = n * 3 / 2 + 1) {
    uint8_t *seen = calloc(n, 1);
    uint64_t fixed = 0;
    for (uint64_t i = 0; i < n; i++) {
      uint64_t j = zx_data_permute(5, 1, n, i);
      cr_assert(j < n && !seen[j]);
      seen[j] = 1;
      fixed += i == j;
    }
    cr_expect(n < 20 || fixed < 12, "%llu of %llu stay in place", (unsigned long long)fixed,
              (unsigned long long)n);
    free(seen);
  }
  uint64_t same = 0;
  for (uint64_t i = 0; i < 1000; i++) {
    same += zx_data_permute(5, 1, 1000, i) == zx_data_permute(5, 2, 1000, i);
    same += zx_data_permute(5, 1, 1000, i) == zx_data_permute(6, 1, 1000, i);
    cr_expect(zx_data_permute(5, 1, (1ull << 60) + 7, i) < (1ull << 60) + 7);
  }
  cr_expect(same < 20, "epochs and seeds give other orders");
}

/* A run that is taken up again, and one on another machine, must see the samples in the same order. */
Test(data, permutations_never_change) {
  static const uint64_t sizes[] = {1, 2, 63, 64, 65, 128, 129, 1000, 4097, (1ull << 33) + 1, UINT64_MAX};
  uint64_t h = 0;
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
    for (uint64_t i = 0; i < 200 && i < sizes[k]; i++) h = zb_mix64(h ^ zx_data_permute(7, k, sizes[k], i));
  cr_expect_eq(h, 0xa8d956c3fbc0341full, "other orders: %#llx", (unsigned long long)h);
}

/* Where the first of 8 goes over many seeds: each place about as often. */
Test(data, permutations_are_even) {
  int count[8] = {0};
  for (uint64_t seed = 0; seed < 8000; seed++) count[zx_data_permute(seed, 0, 8, 0)]++;
  for (int i = 0; i < 8; i++) cr_expect(count[i] > 850 && count[i] < 1150, "place %d: %d", i, count[i]);
}

Test(data, shuffled_epochs_hold_every_window_once) {
  uint16_t ids[101];
  for (int i = 0; i < 101; i++) ids[i] = (uint16_t)i;
  ZxData *d = stream("s", ZX_DATA_U16, ids, 101);
  ZxSampler s = {d, ZX_ORDER_SHUFFLED, 11, 5};
  int32_t first[2][20], out[5];
  int moved = 0;
  for (int epoch = 0; epoch < 2; epoch++) {
    int seen[20] = {0};
    for (uint64_t i = 0; i < 20; i++) {
      cr_assert(zx_data_read(&s, "tokens", (uint64_t)epoch * 20 + i, 0, 5, 101, out, &err));
      cr_assert(out[0] % 5 == 0 && out[4] == out[0] + 4);
      seen[out[0] / 5]++;
      first[epoch][i] = out[0];
    }
    for (int i = 0; i < 20; i++) cr_expect_eq(seen[i], 1);
  }
  for (int i = 0; i < 20; i++) moved += first[0][i] != first[1][i];
  cr_expect(moved > 10);
  zx_data_close(d);
}

/* Token and record files that are not read: damaged, shrunk, no such files; and those that are not
 * written. */
#include "runtime/exec/data/data.h"
#include "tests/unit/exec/scratch.h"
#include "tests/unit/exec/stream_file.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

TestSuite(damaged, .init = scratch_make, .fini = scratch_remove);

static ZbErr err;

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

Test(damaged, damaged_files) {
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
  AGAIN, p[4] = 4;
  refused("has format version 4; this program reads 1 to 3", p, n);
  AGAIN, p[4] = 0;
  refused("has format version 0; this program reads 1 to 3", p, n);
  AGAIN, p[20] ^= 1;
  refused("the checksum differs", p, n);
  AGAIN, p[70] ^= 1; /* the field table is under the sum, too */
  refused("the checksum differs", p, n);
  AGAIN, p[12] = 0;
  refused("it counts 0 fields", p, n);
  AGAIN, p[12] = 1, p[13] = 4;
  refused("it counts 1025 fields", p, n);
  AGAIN, p[14] = 1;
  refused("it counts 65537 fields", p, n);
  AGAIN, put64(p, 48, 1);
  refused("is damaged: 1 documents in 4 tokens", p, n);
  AGAIN, p[8] = 7, put64(p, 48, 0);
  refused("unknown kind 7", p, n);
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

/* Every byte behind those that say what the file is, but for the sum itself; and the fields'. */
Test(damaged, every_byte_of_a_header) {
  documents_file("d", (int[]){3, 1, 7, 0});
  size_t n;
  uint8_t *p = (uint8_t *)scratch_read("d", &n);
  for (size_t at = 8; at < 2 * ZX_DATA_HEAD; at++) {
    if (at >= 12 && at < 16) continue; /* how many fields there are */
    p[at] ^= 1;
    refused("its header is damaged: the checksum differs", p, n);
    p[at] ^= 1;
  }
  zx_data_close(zx_data_of_bytes(p, n, "d", &err));
  free(p);
}

/* What is read of beginnings is believed only as far as it can be true. */
Test(damaged, damaged_beginnings) {
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

Test(damaged, damaged_documents) {
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

/* ---- files ---- */
Test(damaged, files_that_do_not_open) {
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

Test(damaged, folders_that_do_not_open) {
  uint16_t ids[4] = {0};
  scratch_folder("f");
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

/* The most files, the first of which is refused, and one more: all of them one file, which is made faster. */
Test(damaged, folders_of_too_many_files) {
  scratch_folder("f");
  scratch_write("f/0.bin", "", 0);
  for (int i = 1; i < ZX_DATA_SHARDS; i++) {
    char name[32];
    snprintf(name, sizeof name, "f/%d.bin", i);
    cr_assert_eq(link(scratch("f/0.bin"), scratch(name)), 0);
  }
  cr_expect(!zx_data_open(scratch("f"), &err));
  says(err, "f/0.bin is empty");
  cr_assert_eq(link(scratch("f/0.bin"), scratch("f/one_more.bin")), 0);
  cr_expect(!zx_data_open(scratch("f"), &err));
  says(err, "f has 1001 .bin files; 1000 are the most");
}

Test(damaged, a_folder_that_cannot_be_listed) {
  scratch_folder("f");
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

/* Of a mapping this would be a signal, and no file named. */
Test(damaged, a_file_that_shrinks_while_it_is_used) {
  enum { N = 100000 };
  static uint8_t bytes[N];
  static int32_t ids[N];
  for (int i = 0; i < N; i++) bytes[i] = (uint8_t)(i % 251);
  stream_file("s", ZX_DATA_U8, bytes, N, 0);
  ZxData *d = zx_data_open(scratch("s"), &err);
  cr_assert(d, "%s", err.text);
  cr_assert(truncate(scratch("s"), N / 2) == 0);
  cr_expect(read_tokens(d, 10, 1, 256, ids, &err) && ids[0] == 10 && ids[9] == 19);
  cr_expect(!read_tokens(d, 10, N / 10 - 2, 256, ids, &err));
  says(err, "/s: it shrank while it was read");
  cr_expect(!read_tokens(d, 10, N / 20, 256, ids, &err), "of what is read at once the first bytes are there");
  cr_expect(!read_tokens(d, N / 2, 0, 256, ids, &err), "a long run of values");
  says(err, "shrank");
  cr_expect(!zx_data_verify(d, &err));
  says(err, "shrank");
  cr_expect(read_tokens(d, 10, 1, 256, ids, &err) && ids[0] == 10 && ids[9] == 19,
            "what is left can be read");
  zx_data_close(d);
}

/* More than is summed up at a time. */
Test(damaged, a_long_file_is_verified_to_its_end) {
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
Test(damaged, what_is_not_replaced) {
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
Test(damaged, all_files_are_closed) {
  ZxDataField f = {.name = "tokens", .values = 1};
  ZxDataInfo info = {.stream = true, .nfield = 1, .field = &f};
  int before = open_files();
  scratch_folder("f");
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

Test(damaged, a_full_disk) {
  ZxDataField f = {.name = "tokens", .values = 1};
  ZxDataInfo info = {.stream = true, .nfield = 1, .field = &f};
  char bytes[100] = "";
  int before = open_files();
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
  static ZxDataField many[ZX_DATA_MAX_FIELDS]; /* a header that does not go into a buffer */
  for (int i = 0; i < ZX_DATA_MAX_FIELDS; i++) {
    many[i].values = 1;
    snprintf(many[i].name, sizeof many[i].name, "f%d", i);
  }
  info = (ZxDataInfo){.nfield = ZX_DATA_MAX_FIELDS, .field = many};
  scratch_full_at(1000);
  cr_expect(!zx_data_create(scratch("s"), &info, &err));
  says(err, "cannot write");
  cr_expect_eq(scratch_files(), 0, "nothing is left");
  cr_expect_eq(open_files(), before);
}

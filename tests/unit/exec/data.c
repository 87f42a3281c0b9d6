/* Token and record files: what is read is what was written, fields that are refused, and the order of
 * samples. */
#include "runtime/exec/data/data.h"
#include "tests/unit/exec/scratch.h"
#include "tests/unit/exec/stream_file.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

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
  cr_expect(!zx_data_read(&s, "tokens", 0, 0, 4, 0, out, &err), "a model that knows none");
  zx_data_close(d);
}

/* Before any step a model is asked for the largest id that is there, whatever vocabulary the file was
 * packed with; `unknown` is none. */
static void ids_fit(const ZxData *d, const char *field, int64_t limit, const char *refusal) {
  err = (ZbErr){0};
  bool ok = zx_data_check_ids(d, field, limit, &err);
  cr_expect_eq(ok, !refusal, "%s of a model of %d: %s", field, (int)limit, err.text);
  if (!ok && refusal) says(err, refusal);
}

Test(data, ids_that_a_model_lacks) {
  uint16_t h[] = {0, 299, 65535, 7, 1};
  uint8_t none[] = {0, 0, 0, 0, 0};
  stream_file("h", ZX_DATA_U16, h, 5, 1000);
  ZxData *d = zx_data_open(scratch("h"), &err);
  cr_assert(d, "%s", err.text);
  for (int i = 0; i < 2; i++) {
    const char *field = i ? "targets" : "tokens";
    ids_fit(d, field, 300, NULL);
    ids_fit(d, field, 1 << 20, NULL);
    ids_fit(d, field, 299, "is 299; the model knows 0 to 298");
    ids_fit(d, field, 1, "is 299; the model knows 0 to 0");
  }
  ids_fit(d, "nothing", 1, NULL); /* that it lacks the field is said before */
  zx_data_close(d);
  d = stream("z", ZX_DATA_U8, none, 5);
  ids_fit(d, "tokens", 1, NULL);
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

/* Header and fields, byte by byte, as DATA.md has them. */
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
  memcpy(head + 40, &(uint64_t){XXH3_64bits(r, sizeof r)}, 8);
  memcpy(head + 56, &(uint64_t){XXH3_64bits_withSeed(head + 64, 192, XXH3_64bits(head, 56))}, 8);
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
      cr_assert(read_tokens(d, n, at, 65536, ids, &err), "%s", err.text);
      for (int64_t i = 0; i < n; i++) cr_assert_eq(ids[i], v[at * (uint64_t)n + (uint64_t)i]);
    }
  cr_assert(read_tokens(d, N - 1, 0, -1, real, &err));
  for (int i = 0; i < N - 1; i++) cr_assert_eq(real[i], v[i]);
  zx_data_close(d);
}

Test(data, folder_of_streams) {
  uint8_t ids[40];
  int32_t out[4];
  for (int i = 0; i < 40; i++) ids[i] = (uint8_t)i;
  scratch_folder("f");
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

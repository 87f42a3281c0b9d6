/* safetensors: what owners write piecewise is what others read, in any pieces; every refusal. */
#include "runtime/exec/ckpt/weights.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(weights, .init = scratch_make, .fini = scratch_remove);

static ZbErr err;

static const ZxTensorInfo tensors[] = {
    {"wte", 2, {5, 3}}, {"layer.0.b", 1, {4}}, {"scale", 0, {0}}, {"none", 2, {0, 7}}};

Test(weights, written_in_pieces_and_read_in_others) {
  const char *path = scratch("w.safetensors");
  ZbOut *out = zx_weights_create(path, tensors, 4, &err);
  cr_assert(out, "%s", err.text);
  cr_expect(access(path, F_OK) < 0, "not there before it is committed");
  /* Two owners. */
  ZxWeights *a = zx_weights_open(zb_out_tmp(out), true, &err),
            *b = zx_weights_open(zb_out_tmp(out), true, &err);
  cr_assert(a && b, "%s", err.text);
  cr_expect_eq(zx_weights_count(a), 4);
  float x[15], y[15], z = 42;
  for (int i = 0; i < 15; i++) x[i] = (float)i + 0.5f;
  int64_t wte = zx_weights_find(a, &tensors[0], &err), bias = zx_weights_find(a, &tensors[1], &err);
  int64_t scale = zx_weights_find(b, &tensors[2], &err);
  cr_assert(wte >= 0 && bias >= 0 && scale >= 0 && zx_weights_find(b, &tensors[3], &err) >= 0);
  cr_expect(zx_weights_write(a, wte, 0, 7, x, &err) && zx_weights_write(b, wte, 7, 8, x + 7, &err));
  cr_expect(zx_weights_write(b, bias, 0, 4, x + 3, &err) && zx_weights_write(b, scale, 0, 1, &z, &err));
  cr_expect(zx_weights_close(a, &err) && zx_weights_close(b, &err) && zb_out_commit(out, &err));
  cr_expect_eq(scratch_files(), 1);
  size_t size;
  char *text = scratch_read("w.safetensors", &size);
  uint64_t len;
  memcpy(&len, text, 8);
  cr_expect((len + 8) % 64 == 0 && size == len + 8 + 80, "data are aligned, and end with the file");
  free(text);

  a = zx_weights_open(path, false, &err);
  cr_assert(a, "%s", err.text);
  memset(y, 0, sizeof y);
  cr_expect(zx_weights_read(a, wte, 4, 11, y + 4, &err) && zx_weights_read(a, wte, 0, 4, y, &err));
  cr_expect(!memcmp(x, y, sizeof x));
  cr_expect(zx_weights_read(a, bias, 1, 3, y, &err) && !memcmp(y, x + 4, 12));
  cr_expect(zx_weights_read(a, scale, 0, 1, y, &err) && y[0] == 42);
  cr_expect(zx_weights_close(a, &err));
}

Test(weights, what_does_not_fit) {
  const char *path = scratch("w");
  cr_assert(zb_out_commit(zx_weights_create(path, tensors, 4, &err), &err));
  ZxWeights *w = zx_weights_open(path, false, &err);
  cr_assert(w);
  cr_expect_eq(zx_weights_find(w, &(ZxTensorInfo){"wtee", 2, {5, 3}}, &err), -1);
  says(err, "no tensor 'wtee'; it has 4");
  cr_expect_str_eq(err.help, "the nearest name in it is 'wte'");
  cr_expect_eq(zx_weights_find(w, &(ZxTensorInfo){"something.else", 2, {5, 3}}, &err), -1);
  cr_expect_str_eq(err.help, "is it the file of another model?");
  cr_expect_eq(zx_weights_find(w, &(ZxTensorInfo){"wte", 2, {3, 5}}, &err), -1);
  says(err, "'wte' has shape [5, 3]; the model wants [3, 5]");
  cr_expect_eq(zx_weights_find(w, &(ZxTensorInfo){"wte", 1, {5}}, &err), -1);
  says(err, "the model wants [5]");
  zx_weights_close(w, NULL);
}

/* ---- files of others ----------------------------------------------------------------------------------- */
static ZxWeights *open_text(const char *header, const void *data, size_t n) {
  uint64_t len = strlen(header);
  char *p = malloc(8 + len + n);
  memcpy(p, &len, 8);
  memcpy(p + 8, header, len);
  if (n) memcpy(p + 8 + len, data, n);
  scratch_write("f", p, 8 + len + n);
  free(p);
  return zx_weights_open(scratch("f"), false, &err);
}

Test(weights, half_precision) {
  const char *head = "{\"h\":{\"dtype\":\"F16\",\"shape\":[9],\"data_offsets\":[0,18]},"
                     "\"b\":{\"data_offsets\":[18,24],\"shape\":[3],\"dtype\":\"BF16\"}}   ";
  uint16_t v[] = {0x3c00, 0xc000, 0x7bff, 0x0001, 0x03ff, 0x8000,
                  0x7c00, 0xfc00, 0x7e00, 0x3f80, 0xc040, 0x7f80};
  ZxWeights *w = open_text(head, v, sizeof v);
  cr_assert(w, "%s", err.text);
  float y[9];
  int64_t h = zx_weights_find(w, &(ZxTensorInfo){"h", 1, {9}}, &err),
          b = zx_weights_find(w, &(ZxTensorInfo){"b", 1, {3}}, &err);
  cr_assert(h >= 0 && b >= 0, "%s", err.text);
  cr_assert(zx_weights_read(w, h, 0, 9, y, &err));
  cr_expect(y[0] == 1 && y[1] == -2 && y[2] == 65504 && y[3] == 0x1p-24f && y[4] == 1023 * 0x1p-24f);
  cr_expect(y[5] == 0 && signbit(y[5]) && y[6] == INFINITY && y[7] == -INFINITY && isnan(y[8]));
  cr_assert(zx_weights_read(w, b, 0, 3, y, &err));
  cr_expect(y[0] == 1 && y[1] == -3 && y[2] == INFINITY);
  cr_assert(zx_weights_read(w, b, 1, 1, y, &err));
  cr_expect(y[0] == -3);
  zx_weights_close(w, NULL);
}

Test(weights, long_runs_of_half_precision) {
  enum { N = 40000 };
  char head[200];
  uint16_t *v = malloc(2 * N);
  float *y = malloc(4 * N);
  for (int i = 0; i < N; i++) v[i] = (uint16_t)(0x3f80 + i % 64);
  snprintf(head, sizeof head, "{\"b\":{\"dtype\":\"BF16\",\"shape\":[%d],\"data_offsets\":[0,%d]}}", N,
           2 * N);
  ZxWeights *w = open_text(head, v, 2 * N);
  cr_assert(w, "%s", err.text);
  cr_assert(zx_weights_read(w, 0, 1, N - 1, y, &err));
  for (int i = 0; i < N - 1; i++) cr_assert_eq(y[i], 1 + (float)((i + 1) % 64) / 128);
  cr_assert(truncate(scratch("f"), 2 * N) == 0);
  cr_expect(!zx_weights_read(w, 0, 0, N, y, &err));
  says(err, "it shrank while it was read");
  zx_weights_close(w, NULL);
  free(v);
  free(y);
}

Test(weights, other_dtypes_are_refused_only_when_wanted) {
  ZxWeights *w = open_text(
      "{\"__metadata__\":{\"a\":\"b\"},\"i\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}}",
      "12345678", 8);
  cr_assert(w, "%s", err.text);
  cr_expect_eq(zx_weights_count(w), 1);
  cr_expect_eq(zx_weights_find(w, &(ZxTensorInfo){"i", 0, {0}}, &err), -1);
  says(err, "'i' has dtype I64; F32, BF16 and F16 can be read");
  zx_weights_close(w, NULL);
}

/* Each takes as many bytes as it should, or the file would be refused. */
Test(weights, dtypes_of_others) {
  static const struct {
    const char *name;
    int bytes;
  } types[] = {{"F32", 4}, {"BF16", 2}, {"F16", 2},  {"F64", 8},     {"I64", 8},
               {"I32", 4}, {"I16", 2},  {"I8", 1},   {"U64", 8},     {"U32", 4},
               {"U16", 2}, {"U8", 1},   {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    char head[128];
    snprintf(head, sizeof head,
             "{\"a\":{\"dtype\":\"%s\",\"shape\":[1,1,1,1,1,1,1,2],\"data_offsets\":[0,%d]}}", types[i].name,
             2 * types[i].bytes);
    ZxWeights *w = open_text(head, "0123456789abcdef", 2 * (size_t)types[i].bytes);
    cr_assert(w, "%s", err.text);
    cr_expect_eq(zx_weights_find(w, &(ZxTensorInfo){"a", 8, {1, 1, 1, 1, 1, 1, 1, 2}}, &err) < 0, i > 2, "%s",
                 types[i].name);
    zx_weights_close(w, NULL);
  }
}

Test(weights, damaged_files) {
#define T(name, dtype, shape, offsets)                                                                       \
  "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
  static const struct {
    const char *head, *words;
  } bad[] = {
      {"", "header: it is not JSON"},
      {"[1]", "its header is not a JSON object"},
      {"{", "header: it is not JSON"},
      {"{} x", "header: it is not JSON"},
      {"{\"a\":3}", "an entry of its header is not a tensor"},
      {"{" T("a", "F99", "[2]", "[0,8]") "}", "'a' has no known dtype"},
      {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", "'a' has no known dtype"},
      {"{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}}", "'a' has no known dtype"},
      {"{" T("a", "F32", "2", "[0,8]") "}", "'a' has no shape"},
      {"{" T("a", "F32", "[-2]", "[0,8]") "}", "'a' has an impossible shape"},
      {"{" T("a", "F32", "[0.5]", "[0,8]") "}", "'a' has an impossible shape"},
      {"{" T("a", "F32", "[1e300]", "[0,8]") "}", "'a' has an impossible shape"},
      {"{" T("a", "F32", "[\"2\"]", "[0,8]") "}", "'a' has an impossible shape"},
      {"{" T("a", "F32", "[9007199254740992,9007199254740992]", "[0,8]") "}", "'a' has an impossible shape"},
      {"{" T("a", "F64", "[4294967296,1073741824]", "[0,8]") "}", "'a' has an impossible shape"},
      {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", "'a' has more than 8 axes"},
      {"{" T("a", "F32", "[2]", "[0]") "}", "'a' has no data_offsets"},
      {"{" T("a", "F32", "[2]", "[0,8,9]") "}", "'a' has no data_offsets"},
      {"{" T("a", "F32", "[2]", "[0,null]") "}", "'a' has no data_offsets"},
      {"{" T("a", "F32", "[2]", "{}") "}", "'a' has no data_offsets"},
      {"{" T("a", "F32", "[2]", "[8,0]") "}", "lies outside of the file: bytes 8 to 0 of 16"},
      {"{" T("a", "F32", "[2]", "[9,17]") "}", "lies outside of the file: bytes 9 to 17 of 16"},
      {"{" T("a", "F32", "[2]", "[0,9007199254740992]") "}", "lies outside of the file"},
      {"{" T("a", "F32", "[3]", "[0,8]") "}", "'a' has 8 bytes, its shape takes 12"},
      {"{" T("a", "F32", "[2]", "[0,8]") "," T("b", "F32", "[2]", "[4,12]") "}", "'a' and 'b' overlap"},
      {"{" T("a", "F32", "[2]", "[0,8]") "," T("a", "F32", "[2]", "[8,16]") "}", "'a' appears twice"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    ZxWeights *w = open_text(bad[i].head, "0123456789abcdef", 16);
    cr_expect(!w, "accepted: %s", bad[i].head);
    zx_weights_close(w, NULL);
    says(err, bad[i].words);
  }
  ZxWeights *w = open_text("{" T("b", "F32", "[2]", "[8,16]") "," T("n", "F32", "[0]", "[8,8]") "," T(
                               "a", "F32", "[2]", "[0,8]") "}",
                           "0123456789abcdef", 16);
  cr_expect(w, "any order is allowed: %s", err.text);
  zx_weights_close(w, NULL);
}

/* A byte too many somewhere is how data come to be shifted. */
Test(weights, data_that_are_no_tensors) {
  static const struct {
    const char *head;
    size_t bytes;
    const char *words;
  } bad[] = {
      {"{" T("a", "F32", "[2]", "[0,8]") "," T("b", "F32", "[2]", "[8,16]") "}", 17,
       "bytes 16 to 17 of its data are no tensor's"},
      {"{" T("a", "F32", "[2]", "[1,9]") "," T("b", "F32", "[2]", "[9,17]") "}", 17,
       "bytes 0 to 1 of its data are no tensor's"},
      {"{" T("b", "F32", "[2]", "[9,17]") "," T("a", "F32", "[2]", "[0,8]") "}", 17,
       "bytes 8 to 9 of its data are no tensor's"},
      {"{" T("a", "F32", "[2]", "[4,12]") "}", 12,
       "bytes 0 to 4 of its data are no tensor's; the data are 12 bytes"},
      {"{}", 1, "bytes 0 to 1 of its data are no tensor's"},
      {"{" T("a", "F32", "[2]", "[0,8]") "," T("n", "F32", "[0]", "[4,4]") "}", 8, "'a' and 'n' overlap"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    ZxWeights *w = open_text(bad[i].head, "0123456789abcdefg", bad[i].bytes);
    cr_expect(!w, "accepted: %s", bad[i].head);
    zx_weights_close(w, NULL);
    says(err, bad[i].words);
  }
}

Test(weights, names_of_others_in_messages) {
  char *head = malloc(3 << 20), *at = head + sprintf(head, "{\"\\u001b[2J\\u202e");
  memset(at, 'x', 2 << 20);
  strcpy(at + (2 << 20), "\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,7]}}");
  cr_expect(!open_text(head, "0123456789abcdef", 16));
  says(err, "tensor '\\x1b[2J\\u202exxx");
  says(err, "xxx' has 7 bytes, its shape takes 8");
  cr_expect(strlen(err.text) < 500);
  free(head);
}

Test(weights, files_that_are_none) {
  cr_expect(!zx_weights_open(scratch("none"), false, &err));
  says(err, "No such file");
  cr_expect(!zx_weights_open(scratch("none"), true, &err));
  says(err, "No such file");
  cr_expect(!zx_weights_open(scratch("."), false, &err));
  says(err, "is not a regular file");
  scratch_write("f", "1234567", 7);
  cr_expect(!zx_weights_open(scratch("f"), false, &err));
  says(err, "it has 7 bytes");
  scratch_write("f", "\0\0\0\0\0\0\0\0", 8);
  cr_expect(!zx_weights_open(scratch("f"), false, &err));
  says(err, "header: it is not JSON");
  scratch_write("f", "\5\0\0\0\0\0\0\0{}  ", 12);
  cr_expect(!zx_weights_open(scratch("f"), false, &err));
  says(err, "a header of 5 bytes in 12");
  scratch_write("f", "\377\377\377\377\377\377\377\377{}  ", 12);
  cr_expect(!zx_weights_open(scratch("f"), false, &err));
  says(err, "a header of 18446744073709551615 bytes in 12");
  scratch_write("f", "\4\0\0\0\0\0\0\0{}\0\0", 12);
  ZxWeights *w = zx_weights_open(scratch("f"), false, &err);
  cr_expect(w && zx_weights_count(w) == 0, "NULs are what some writers pad with");
  if (w) cr_expect_eq(zx_weights_find(w, &tensors[0], &err), -1);
  zx_weights_close(w, NULL);
}

Test(weights, a_file_that_shrinks) {
  const char *path = scratch("w");
  cr_assert(zb_out_commit(zx_weights_create(path, tensors, 4, &err), &err));
  ZxWeights *w = zx_weights_open(path, false, &err);
  float y[15];
  cr_assert(w && truncate(path, 20) == 0);
  cr_expect(!zx_weights_read(w, zx_weights_find(w, &tensors[0], &err), 0, 15, y, &err));
  says(err, "it shrank while it was read");
  zx_weights_close(w, NULL);
}

/* A disk that does not take what was written, here a pipe in its place. */
Test(weights, a_file_that_cannot_be_synced) {
  int before = dup(0), p[2];
  close(before);
  ZbOut *out = zx_weights_create(scratch("w"), tensors, 4, &err);
  ZxWeights *w = zx_weights_open(zb_out_tmp(out), true, &err);
  cr_assert(out && w && pipe(p) == 0);
  for (int fd = before; fd < p[0]; fd++)
    if (fd != zb_out_fd(out)) dup2(p[1], fd);
  cr_expect(!zx_weights_close(w, &err));
  says(err, "cannot write");
  says(err, "Invalid argument");
  zb_out_discard(out);
}

Test(weights, what_cannot_be_made) {
  cr_expect(!zx_weights_create(scratch("none/w"), tensors, 4, &err));
  says(err, "cannot create");
  cr_expect(!zx_weights_create(scratch("w"), &(ZxTensorInfo){"a", 2, {1ll << 40, 1ll << 40}}, 1, &err));
  says(err, "tensor 'a' is too large");
  scratch_write("text", "12345678 no weights", 19);
  cr_expect(!zx_weights_create(scratch("text"), tensors, 4, &err));
  says(err, "exists and is not a safetensors file: it is not replaced");
  cr_expect(!zx_weights_create(scratch("w"), &(ZxTensorInfo){"a", 1, {1ll << 60}}, 1, &err));
  says(err, "tensor 'a' is too large");
  cr_expect(!zx_weights_create(scratch("w"), &(ZxTensorInfo){"a", 1, {-1}}, 1, &err));
  says(err, "tensor 'a' is too large");
  static const char *const none[] = {"\5\0\0\0\0\0\0\0", "\5\0\0\0\0\0\0\0[1234", "\1\0\100\6\0\0\0\0{1234"};
  for (int i = 0; i < 3; i++) { /* too short; no object; a header of more than 100 MiB */
    scratch_write("text", none[i], i ? 13 : 8);
    cr_expect(!zx_weights_create(scratch("text"), tensors, 4, &err), "%d", i);
    says(err, "is not replaced");
  }
  cr_expect_eq(scratch_files(), 1);
  scratch_write("text", "\0\0\100\6\0\0\0\0{", 9);
  ZbOut *out = zx_weights_create(scratch("text"), tensors, 4, &err);
  cr_expect(out, "%s", err.text);
  zb_out_discard(out);
  scratch_full_at(1000);
  cr_expect(!zx_weights_create(scratch("w"), &(ZxTensorInfo){"a", 1, {1000}}, 1, &err));
  says(err, "cannot write");
  cr_expect_eq(scratch_files(), 1, "nothing is left");
}

Test(weights, many_tensors) {
  enum { N = 5000 };
  static ZxTensorInfo t[N];
  static char name[N][24];
  for (int i = 0; i < N; i++) {
    snprintf(name[i], sizeof *name, "layer.%d.w", i);
    t[i] = (ZxTensorInfo){name[i], 1, {2}};
  }
  const char *path = scratch("w");
  ZbOut *out = zx_weights_create(path, t, N, &err);
  ZxWeights *w = zx_weights_open(zb_out_tmp(out), true, &err);
  cr_assert(w, "%s", err.text);
  for (int i = 0; i < N; i++) {
    float x[2] = {(float)i, -(float)i};
    cr_assert(zx_weights_write(w, zx_weights_find(w, &t[i], &err), 0, 2, x, &err));
  }
  float y[2];
  cr_expect(zx_weights_read(w, zx_weights_find(w, &t[4711], &err), 0, 2, y, &err) && y[0] == 4711 &&
            y[1] == -4711);
  cr_expect(zx_weights_close(w, &err));
  zb_out_discard(out);
  cr_expect_eq(scratch_files(), 0);
}

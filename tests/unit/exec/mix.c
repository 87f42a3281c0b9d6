/* Several files by weights: whose turn it is, what the text says, what is refused, which samples come. */
#include "runtime/exec/data/mix.h"
#include "tests/unit/exec/scratch.h"
#include "tests/unit/exec/stream_file.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(mix, .init = scratch_make, .fini = scratch_remove);

static ZbErr err;

/* ---- turns ---- */
/* At every position of three periods: counts are what was had, and within one turn of what is due; turns and
 * counts invert each other. In whole numbers: |had * period - n * share| < period. */
static void check_turns(const uint32_t *share, uint32_t n) {
  ZbArena *a = zb_arena_new();
  uint32_t period = 0;
  uint64_t *had = ZB_NEWN(a, uint64_t, n), nth;
  for (uint32_t i = 0; i < n; i++) period += share[i];
  ZxTurns t = zx_turns(a, share, n, period);
  for (uint64_t g = 0; g < 3ull * period; g++) {
    uint32_t file = zx_turn(&t, g, &nth);
    cr_assert(file < n && nth == had[file], "position %llu", (unsigned long long)g);
    for (uint32_t i = 0; i < n; i++) {
      int64_t away = (int64_t)(had[i] * period) - (int64_t)(g * share[i]);
      cr_assert(away < period && -away < period, "file %u of %u at %llu", i, n, (unsigned long long)g);
      if (n < 9) cr_assert_eq(zx_turns_before(&t, i, g), had[i]);
    }
    had[file]++;
  }
  for (uint32_t i = 0; i < n; i++)
    cr_assert(had[i] == 3 * share[i] && zx_turns_before(&t, i, 3 * period) == had[i]);
  zb_arena_free(a);
}

Test(mix, nobody_is_a_whole_turn_away_from_his_due) {
  check_turns((uint32_t[]){1}, 1);
  check_turns((uint32_t[]){1, 1}, 2);
  check_turns((uint32_t[]){7, 3}, 2);
  check_turns((uint32_t[]){1, 999}, 2);
  check_turns((uint32_t[]){90, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
              11); /* divisor methods are too early or late here */
  check_turns((uint32_t[]){500, 1, 300, 199}, 4);
  for (uint64_t k = 0; k < 60; k++) {
    uint32_t share[40], n = 2 + (uint32_t)(zb_random_u64(1, k, 0) % 39);
    for (uint32_t i = 0; i < n; i++) share[i] = 1 + (uint32_t)(zb_random_u64(2, k, i) % (i % 3 ? 5 : 60));
    check_turns(share, n);
  }
}

Test(mix, the_most_files_and_the_longest_period) {
  static uint32_t share[ZX_MIX_FILES];
  uint32_t left = ZX_MIX_PERIOD;
  for (uint32_t i = 1; i < ZX_MIX_FILES; i++) left -= share[i] = 1 + (uint32_t)(zb_random_u64(3, 0, i) % 300);
  share[0] = left;
  check_turns(share, ZX_MIX_FILES);
}

Test(mix, turns_of_three_by_hand) {
  ZbArena *a = zb_arena_new();
  ZxTurns t = zx_turns(a, (uint32_t[]){2, 1, 1}, 3, 4);
  uint64_t nth;
  static const uint32_t want[] = {0, 1, 2, 0};
  for (uint64_t g = 0; g < 4; g++) cr_expect_eq(zx_turn(&t, g, &nth), want[g], "position %d", (int)g);
  uint64_t far = 4 * (1ull << 61) + 3; /* no walk from the start */
  cr_expect(zx_turn(&t, far, &nth) == 0 && nth == (1ull << 62) + 1);
  cr_expect_eq(zx_turns_before(&t, 1, far), (1ull << 61) + 1);
  zb_arena_free(a);
}

/* A run that is taken up again must have the same turns, at every position: also where another order would be
 * as near to what is due. */
Test(mix, turns_never_change) {
  uint64_t h = 0;
  for (uint64_t k = 0; k < 40; k++) {
    ZbArena *a = zb_arena_new();
    uint32_t share[20], n = 1 + (uint32_t)(k % 20), period = 0;
    for (uint32_t i = 0; i < n; i++)
      period += share[i] = 1 + (uint32_t)(zb_random_u64(4, k, i) % (i % 2 ? 7 : 50));
    ZxTurns t = zx_turns(a, share, n, period);
    for (uint32_t g = 0; g < period; g++) h = zb_mix64(h ^ t.file[g]);
    zb_arena_free(a);
  }
  cr_expect_eq(h, 0x2ddd72a721020a45ull, "other turns: %#llx", (unsigned long long)h);
}

/* ---- the text ---- */
/* "0.7 and B.bin" -> "A.bin 7, B.bin 3 of 10" */
static void shares(const char *text, const char *want) {
  ZbArena *a = zb_arena_new();
  ZbText t = {0};
  ZxShares *s = zx_shares(a, text, &err);
  cr_assert(s, "%s: %s", text, err.text);
  for (uint32_t i = 0; i < s->n; i++) zb_text_add(&t, "%s%s %u", i ? ", " : "", s->path[i], s->share[i]);
  zb_text_add(&t, " of %u%s", s->period, s->rounded ? ", rounded" : "");
  cr_expect_str_eq(t.s, want, "%s gives %s, not %s", text, t.s, want);
  zb_text_free(&t);
  zb_arena_free(a);
}

static void no_shares(const char *text, const char *words) {
  ZbArena *a = zb_arena_new();
  err = (ZbErr){0};
  cr_expect(!zx_shares(a, text, &err), "%s", text);
  says(err, words);
  cr_expect(*err.help, "%s", text);
  zb_arena_free(a);
}

Test(mix, weights_are_exact) {
  shares("A", "A 1 of 1");
  shares("A:0.7", "A 1 of 1");
  shares("A:0.7,B:0.3", "A 7, B 3 of 10");
  shares("A:.70,B:0.300", "A 7, B 3 of 10");
  shares("A:7.,B:3", "A 7, B 3 of 10");
  shares("A:1,B:1,C:2", "A 1, B 1, C 2 of 4");
  shares("A:100,B:0.5", "A 200, B 1 of 201");
  shares("A:60000,B:5536", "A 1875, B 173 of 2048");
  shares("A:65535,B:1", "A 65535, B 1 of 65536");
  shares("A:65536,B:1", "A 65535, B 1 of 65536, rounded");
  shares("A:0.333333333333,B:0.333333333333,C:0.333333333334", "A 21845, B 21845, C 21846 of 65536, rounded");
}

Test(mix, names_with_commas_and_colons) {
  shares("x:y.bin:2,C:\\z:1", "x:y.bin 2, C:\\z 1 of 3");
  shares("a\\,b:1,c\\\\d:1", "a,b 1, c\\d 1 of 2");
  shares("A:none", "A:none 1 of 1"); /* will be missed under this name */
  shares("A:-1", "A:-1 1 of 1");
  char was[4096];
  cr_assert(getcwd(was, sizeof was) && chdir(scratch(".")) == 0);
  scratch_write("A:0.7,B:0.3", "", 0);
  scratch_write("A:5", "", 0);
  scratch_write("A", "", 0);
  shares("A:0.7,B:0.3", "A:0.7,B:0.3 1 of 1");
  shares("A:5", "A:5 1 of 1");
  shares("A:6", "A 1 of 1");
  no_shares("A:none", "A: 'none' is not a weight");
  no_shares("A:-1", "A: '-1' is not a weight");
  cr_assert(chdir(was) == 0);
}

Test(mix, texts_that_are_refused) {
  no_shares("A:0.7,B", "'B' has no weight");
  no_shares("A,B", "'A' has no weight");
  no_shares("A:1,", "'' has no weight");
  no_shares("A:1,,B:1", "'' has no weight");
  no_shares(":1,B:1", "a file without a name: ':1'");
  no_shares("A:1,B:x", "B: 'x' is not a weight");
  no_shares("A:1,B:", "B: '' is not a weight");
  no_shares("A:1,B:.", "B: '.' is not a weight");
  no_shares("A:1,B:1e3", "B: '1e3' is not a weight");
  no_shares("A:1,B:1.2.3", "B: '1.2.3' is not a weight");
  no_shares("A:1,B:99999999999999999999", "is not a weight");
  no_shares("A:0,B:1", "A has the weight 0");
  no_shares("A:0.000,B:1", "A has the weight 0");
  no_shares("A:1,B:0.000001", "B: its weight comes to less than one sample in 65536");
  no_shares("A:1000000000000000000,B:0.001", "A: no room for its weight beside the others");
  no_shares("A:18446744073709551615,B:1", "B: no room for its weight");
  ZbText t = {0};
  for (int i = 0; i <= ZX_MIX_FILES; i++) zb_text_add(&t, "%sf%d:1", i ? "," : "", i);
  no_shares(t.s, "more than 256 files to mix");
  zb_text_free(&t);
}

/* ---- files ---- */
static ZxMix *open_mix(const char *fmt, ...) {
  char text[4096];
  va_list list;
  va_start(list, fmt);
  vsnprintf(text, sizeof text, fmt, list);
  va_end(list);
  err = (ZbErr){0};
  return zx_mix_open(text, &err);
}

/* n tokens from `first` up. */
static void count_up(const char *name, int first, int n) {
  uint16_t ids[1000];
  for (int i = 0; i < n; i++) ids[i] = (uint16_t)(first + i);
  stream_file(name, ZX_DATA_U16, ids, (size_t)n, 5000);
}

/* The first token of sample g, of windows of 4. */
static int32_t token(const ZxMix *m, ZxOrder order, uint64_t seed, uint64_t g) {
  uint64_t nth;
  int32_t out[4];
  ZxSampler s = zx_mix_sampler(m, order, seed, 4, g, &nth);
  cr_assert(zx_data_read(&s, "tokens", nth, 0, 4, 5000, out, &err), "%s", err.text);
  return out[0];
}

Test(mix, a_lone_file_is_as_it_was) {
  count_up("A", 0, 101);
  ZxMix *m = open_mix("%s", scratch("A"));
  cr_assert(m, "%s", err.text);
  ZxData *d = zx_data_open(scratch("A"), &err);
  ZxSampler s = {d, ZX_ORDER_SHUFFLED, 7, 4};
  for (uint64_t g = 0; g < 80; g++) {
    int32_t out[4];
    cr_assert(zx_data_read(&s, "tokens", g, 0, 4, 5000, out, &err));
    cr_expect_eq(out[0], token(m, ZX_ORDER_SHUFFLED, 7, g));
    cr_expect_eq((uint64_t)token(m, ZX_ORDER_SEQUENTIAL, 7, g), g % 25 * 4);
  }
  ZxMix *one = zx_mix_one(d);
  cr_expect_eq(zx_mix_digest(one), zx_mix_digest(m));
  cr_expect(zx_mix_files(one) == 1 && zx_mix_share(one, 0) == 1 && zx_mix_period(one) == 1 &&
            !zx_mix_rounded(one));
  cr_expect(zx_mix_file(one, 0) == d && !strcmp(zx_mix_path(one, 0), scratch("A")));
  cr_expect_eq(token(one, ZX_ORDER_SHUFFLED, 7, 3), token(m, ZX_ORDER_SHUFFLED, 7, 3));
  zx_mix_close(one);
  zx_mix_close(m);
}

/* Every epoch of each file holds each of its windows once, in other orders; the files' orders differ. */
Test(mix, each_file_is_gone_through_by_itself) {
  enum { N = 25 };
  count_up("A", 0, 4 * N + 1);
  count_up("B", 1000, 4 * N + 1);
  ZxMix *m = open_mix("%s:0.7,%s:0.3", scratch("A"), scratch("B"));
  cr_assert(m, "%s", err.text);
  int seen[2][3][N] = {{{0}}}, at[2] = {0}, order[2][3 * N], like = 0, moved = 0;
  for (uint64_t g = 0; g < 250; g++) {
    int32_t t = token(m, ZX_ORDER_SHUFFLED, 7, g);
    int file = t >= 1000, window = t % 1000 / 4;
    int n = at[file]++;
    cr_expect_eq(zx_mix_before(m, (uint32_t)file, g), (uint64_t)n);
    if (n >= 3 * N) continue;
    seen[file][n / N][window]++;
    order[file][n] = window;
  }
  cr_assert(at[0] == 175 && at[1] == 75);
  for (int i = 0; i < N; i++) {
    for (int e = 0; e < 3; e++) cr_expect(seen[0][e][i] == 1 && seen[1][e][i] == 1, "window %d", i);
    like += order[0][i] == order[1][i];
    moved += order[0][i] != order[0][N + i];
  }
  cr_expect(like < N / 3 && moved > N / 2);
  zx_mix_close(m);
}

Test(mix, digests_know_shares_and_content) {
  count_up("A", 0, 50);
  count_up("B", 1000, 50);
  count_up("C", 1001, 50);
  static const char *const text[] = {"A:1,B:1", "A:2,B:2", "A:2,B:1", "B:1,A:1", "A:1,C:1", "A"};
  uint64_t sum[6];
  char was[4096];
  cr_assert(getcwd(was, sizeof was) && chdir(scratch(".")) == 0);
  for (int i = 0; i < 6; i++) {
    ZxMix *m = open_mix("%s", text[i]);
    cr_assert(m, "%s", err.text);
    sum[i] = zx_mix_digest(m);
    zx_mix_close(m);
    for (int k = 0; k < i; k++)
      cr_expect_eq(sum[i] == sum[k], k == 0 && i == 1, "%s and %s", text[i], text[k]);
  }
  cr_assert(chdir(was) == 0);
}

/* Of two fields: `field`, and a second, of which NULL is none. */
static void records_file(const char *name, const char *field, ZxDataElem elem, uint64_t values,
                         const char *second) {
  ZxDataField f[2] = {{.elem = elem, .values = values}, {.elem = ZX_DATA_I32, .values = 1}};
  ZxDataInfo info = {.nfield = second ? 2 : 1, .field = f};
  strcpy(f[0].name, field);
  if (second) strcpy(f[1].name, second);
  ZxDataWriter *w = zx_data_create(scratch(name), &info, &err);
  cr_assert(w, "%s", err.text);
  cr_assert(zx_data_finish(w, (uint64_t[]){0, 0}, &err), "%s", err.text);
}

Test(mix, files_that_do_not_go_together) {
  count_up("A", 0, 50);
  stream_file("bytes", ZX_DATA_U8, "abcdefgh", 8, 0);
  records_file("r", "x", ZX_DATA_F32, 2, "y");
  records_file("r2", "z", ZX_DATA_F32, 2, "y");
  records_file("r3", "x", ZX_DATA_I32, 2, "y");
  records_file("r4", "x", ZX_DATA_F32, 3, "y");
  records_file("r5", "x", ZX_DATA_F32, 2, NULL);
  records_file("r6", "x", ZX_DATA_F32, 2, "w");
  static const char *const wrong[][3] = {
      {"A", "bytes", "bytes cannot be mixed with A: its tokens are u8, there they are u16"},
      {"A", "r", "r cannot be mixed with A: it is records, the other a stream of tokens"},
      {"r", "A", "A cannot be mixed with r: it is a stream of tokens, the other records"},
      {"r", "r2", "r2 cannot be mixed with r: its field 0 is z: 2 x f32, there it is x: 2 x f32"},
      {"r", "r3", "its field 0 is x: 2 x i32, there it is x: 2 x f32"},
      {"r", "r4", "its field 0 is x: 3 x f32, there it is x: 2 x f32"},
      {"r", "r5", "r5 cannot be mixed with r: it has 1 fields, the other 2"},
      {"r", "r6", "r6 cannot be mixed with r: its field 1 is w: 1 x i32, there it is y: 1 x i32"},
      {"A", "A", "A and A are one file"},
      {"A", "./A", "A and ./A are one file"},
      {"A", "none", "cannot open none"},
  };
  char was[4096];
  cr_assert(getcwd(was, sizeof was) && chdir(scratch(".")) == 0);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    cr_expect(!open_mix("%s:1,%s:2", wrong[i][0], wrong[i][1]));
    says(err, wrong[i][2]);
  }
  cr_expect(!open_mix("none:1,r:1,A:1,./A:1"), "what is wrong with the first is said of it later");
  says(err, "A and ./A are one file");
  cr_assert(chdir(was) == 0);
}

Test(mix, each_file_must_have_samples) {
  int before = open_files();
  count_up("A", 0, 50);
  count_up("B", 0, 10);
  ZxMix *m = open_mix("%s:1,%s:1", scratch("A"), scratch("B"));
  cr_assert(m, "%s", err.text);
  cr_expect(zx_mix_check_field(m, "tokens", true, 9, &err));
  cr_expect(!zx_mix_check_field(m, "tokens", true, 10, &err));
  says(err, "B has 10 tokens; one sample takes 10 and one more");
  zx_mix_close(m);
  m = open_mix("%s:1,%s:1", scratch("B"), scratch("A")); /* the first of them, too */
  cr_expect(m && !zx_mix_check_field(m, "tokens", true, 10, &err));
  says(err, "B has 10 tokens; one sample takes 10 and one more");
  zx_mix_close(m);
  zx_mix_close(NULL);
  cr_expect_eq(open_files(), before);
}

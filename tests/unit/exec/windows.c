/* Windows of whole documents: which share one, and what a window gives. */
#include "runtime/exec/data/data.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(windows, .init = scratch_make, .fini = scratch_remove);

static ZbErr err;

/* Token k of document i has the id 7 i + k, mod 250, and is learned if their sum is odd. */
static uint16_t id_of(int i, int k) { return (uint16_t)((7 * i + k) % 250); }
static bool is_learned(int i, int k) { return (i + k) % 2; }

static ZxData *file_of(ZxWindows windows, const int *lengths, int n) {
  ZxDataField f[] = {{.name = "tokens", .elem = ZX_DATA_U16, .values = 1},
                     {.name = "learned", .elem = ZX_DATA_U8, .values = 1}};
  ZxDataInfo info = {
      .stream = true, .windows = windows, .nfield = zx_windows_whole(windows) ? 2 : 1, .field = f};
  ZxDataWriter *w = zx_data_create(scratch("w"), &info, &err);
  cr_assert(w, "%s", err.text);
  for (int i = 0; i < n; i++) {
    cr_assert(zx_data_begin_document(w, &err));
    for (int k = 0; k < lengths[i]; k++) {
      uint16_t id = id_of(i, k);
      uint8_t put[3] = {(uint8_t)id, (uint8_t)(id >> 8), is_learned(i, k)};
      cr_assert(zx_data_put(w, put, info.nfield + 1, &err));
    }
  }
  cr_assert(zx_data_finish(w, (uint64_t[]){250, 0}, &err), "%s", err.text);
  ZxData *d = zx_data_open(scratch("w"), &err);
  cr_assert(d, "%s", err.text);
  cr_assert(zx_data_verify(d, &err), "%s", err.text);
  return d;
}

/* ---- how they are laid ---- */
typedef struct {
  int32_t tokens[64], targets[64], doc[64], place[64];
} Sample;

static void read_sample(const ZxData *d, int64_t seq, uint64_t w, Sample *x) {
  int32_t *const to[] = {x->tokens, x->targets, x->doc, x->place};
  static const char *const names[] = {"tokens", "targets", "doc", "place"};
  ZxSampler s = {d, ZX_ORDER_SEQUENTIAL, 0, seq};
  for (int f = 0; f < 4; f++) {
    int32_t part[64];
    cr_assert(zx_data_check_field(d, names[f], true, seq, &err), "%s", err.text);
    cr_assert(zx_data_read(&s, names[f], w, 0, seq, f < 2 ? 250 : ZX_ANY_I32, to[f], &err), "%s", err.text);
    for (int64_t from = 0; from < seq; from += 3) { /* as ranks read it that have a part of the sequence */
      int64_t n = seq - from < 3 ? seq - from : 3;
      cr_assert(zx_data_read(&s, names[f], w, from, n, f < 2 ? 250 : ZX_ANY_I32, part, &err));
      cr_assert(!memcmp(part, to[f] + from, (size_t)n * 4), "%s of window %d from %d", names[f], (int)w,
                (int)from);
    }
  }
}

/* Looks at all windows; each document must be in one, whole, with all that is said of it. */
static void expect_all(const ZxData *d, int64_t seq, const int *lengths, int n) {
  int *seen = calloc((size_t)n, sizeof *seen), last = -1;
  for (uint64_t w = 0; w < zx_data_samples(d, seq); w++) {
    Sample x;
    read_sample(d, seq, w, &x);
    int64_t at = 0;
    for (int32_t number = 0; at < seq && x.place[at] == 0 && x.targets[at] != -2; number++) {
      int i = 0;
      bool is = false;
      while (i < n && !is) { /* the first that is not seen yet and has these tokens */
        is = !seen[i] && at + lengths[i] <= seq;
        for (int k = 0; is && k < lengths[i]; k++)
          is = x.tokens[at + k] == id_of(i, k) && x.place[at + k] == k;
        is = is && (at + lengths[i] == seq || x.place[at + lengths[i]] == 0);
        i += !is;
      }
      if (!is) break; /* padding */
      cr_expect(number || i > last, "windows are not in the order of their first documents: %d behind %d", i,
                last);
      if (!number) last = i;
      seen[i] = 1;
      for (int k = 0; k < lengths[i]; k++, at++) {
        int32_t target = k + 1 < lengths[i] && is_learned(i, k + 1) ? id_of(i, k + 1) : -1;
        cr_expect(x.doc[at] == number && x.targets[at] == target, "document %d, token %d: %d of %d", i, k,
                  x.targets[at], x.doc[at]);
      }
    }
    for (int64_t k = at; k < seq; k++)
      cr_expect(x.tokens[k] == 0 && x.targets[k] == -1 && x.doc[k] != x.doc[0] && x.doc[k] == x.doc[at] &&
                x.place[k] == 0);
  }
  for (int i = 0; i < n; i++) cr_expect(seen[i] == 1, "document %d is in no window", i);
  free(seen);
}

Test(windows, as_the_example_says) { /* of windows.c */
  const int lengths[] = {3, 7, 2, 5};
  ZxData *d = file_of(ZX_WINDOWS_FIT, lengths, 4);
  cr_assert(zx_data_arrange(d, 8, true, &err), "%s", err.text);
  Sample x;
  cr_expect_eq(zx_data_samples(d, 8), 3);
  read_sample(d, 8, 0, &x);
  cr_expect(!memcmp(x.doc, (int32_t[]){0, 0, 0, 1, 1, 1, 1, 1}, 32) && x.tokens[3] == id_of(3, 0));
  read_sample(d, 8, 1, &x);
  cr_expect(!memcmp(x.doc, (int32_t[]){0, 0, 0, 0, 0, 0, 0, 1}, 32) && x.tokens[0] == id_of(1, 0));
  ZxFilled f = zx_data_filled(d);
  cr_expect(f.documents == 4 && f.windows == 3 && f.padding > 0.29 && f.padding < 0.2917);
  zx_data_close(d);
}

Test(windows, each_document_once) {
  int lengths[60];
  for (uint64_t round = 0; round < 40; round++) {
    int n = 1 + (int)(zb_random_u64(1, round, 0) % 60), seq = 1 + (int)(zb_random_u64(2, round, 0) % 64),
        all = 0;
    for (int i = 0; i < n; i++)
      all += lengths[i] = 1 + (int)(zb_random_u64(3, round, (uint64_t)i) % (uint64_t)seq);
    ZxData *d = file_of(round % 2 ? ZX_WINDOWS_FIT : ZX_WINDOWS_EACH, lengths, n);
    cr_assert(zx_data_arrange(d, seq, true, &err), "%s", err.text);
    expect_all(d, seq, lengths, n);
    uint64_t windows = zx_data_samples(d, seq), least = (uint64_t)((all + seq - 1) / seq);
    if (round % 2)
      cr_expect(9 * windows <= 11 * least * 9 / 6 + 9, "%d windows, at least %d", (int)windows, (int)least);
    else cr_expect_eq(windows, n);
    zx_data_close(d);
  }
}

Test(windows, one_each_without_doc) { /* a model that cannot keep them apart */
  const int lengths[] = {2, 2, 1};
  ZxData *d = file_of(ZX_WINDOWS_FIT, lengths, 3);
  cr_assert(zx_data_arrange(d, 5, false, &err));
  cr_expect_eq(zx_data_samples(d, 5), 3);
  expect_all(d, 5, lengths, 3);
  zx_data_close(d);
}

Test(windows, a_single_document) { /* which its file does not write down */
  const int lengths[] = {6};
  ZxData *d = file_of(ZX_WINDOWS_FIT, lengths, 1);
  cr_expect_eq(zx_data_info(d)->documents, 0);
  cr_assert(zx_data_arrange(d, 9, true, &err), "%s", err.text);
  expect_all(d, 9, lengths, 1);
  zx_data_close(d);
}

Test(windows, too_long) {
  const int lengths[] = {2, 9, 1};
  ZxData *d = file_of(ZX_WINDOWS_FIT, lengths, 3);
  cr_expect(!zx_data_arrange(d, 8, true, &err));
  says(err, "document 1 has 9 tokens, a window has 8");
  cr_expect(zx_data_arrange(d, 9, true, &err) && zx_data_samples(d, 9) == 2);
  zx_data_close(d);
}

Test(windows, pairs) { /* a half of the window for each side */
  const int lengths[] = {3, 2, 1, 4};
  ZxData *d = file_of(ZX_WINDOWS_PAIRS, lengths, 4);
  cr_assert(zx_data_arrange(d, 10, false, &err), "%s", err.text);
  cr_expect_eq(zx_data_samples(d, 10), 2);
  for (int w = 0; w < 2; w++) {
    Sample x;
    read_sample(d, 10, (uint64_t)w, &x);
    for (int side = 0; side < 2; side++)
      for (int k = 0, i = 2 * w + side, at = 5 * side; k < 5; k++, at++) {
        bool is = k < lengths[i], next = k + 1 < lengths[i];
        cr_expect(x.tokens[at] == (is ? id_of(i, k) : 0) && x.place[at] == (is ? k : 0) &&
                  x.doc[at] == (is ? side : 2));
        cr_expect_eq(x.targets[at], next && is_learned(i, k + 1) ? id_of(i, k + 1) : -1);
      }
  }
  zx_data_close(d);
  d = file_of(ZX_WINDOWS_PAIRS, lengths, 4);
  cr_expect(!zx_data_arrange(d, 9, false, &err));
  says(err, "has pairs, and the model wants 9 values per sample, which have no halves");
  cr_expect(!zx_data_arrange(d, 6, false, &err));
  says(err, "document 3 has 4 tokens, a window has 3");
  zx_data_close(d);
}

/* ---- documents that are apart in windows that are cut ---- */
Test(windows, apart) {
  const int lengths[] = {3, 1, 4, 2};
  ZxData *d = file_of(ZX_WINDOWS_APART, lengths, 4);
  int32_t out[9];
  ZxSampler s = {d, ZX_ORDER_SEQUENTIAL, 0, 9};
  cr_assert(zx_data_read(&s, "targets", 0, 0, 9, 250, out, &err), "%s", err.text);
  const int32_t want[] = {1, 2, -1, -1, 15, 16, 17, -1, 22};
  cr_expect(!memcmp(out, want, sizeof want));
  cr_assert(zx_data_read(&s, "targets", 0, 2, 3, 250, out, &err) && out[0] == -1 && out[1] == -1 &&
            out[2] == 15);
  zx_data_close(d);
}

/* ---- what is damaged ---- */
Test(windows, damaged) {
  const int lengths[] = {3, 2};
  zx_data_close(file_of(ZX_WINDOWS_FIT, lengths, 2));
  size_t n;
  uint8_t *p = (uint8_t *)scratch_read("w", &n);
  static const struct {
    size_t at;
    uint8_t value;
    const char *words;
  } of[] = {{8, 9, "unknown kind 9"},
            {8, 1, "a stream must have one field"},
            {8, 3, "a stream must have one field"},
            {4, 2, "damaged"},
            {168, 3, "what is learned of a stream must be one u8"}};
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    uint8_t was = p[of[i].at];
    p[of[i].at] = of[i].value;
    uint64_t sum = zx_data_head_sum(p, 2);
    memcpy(p + 56, &sum, 8);
    ZxData *d = zx_data_of_bytes(p, n, "w", &err);
    cr_expect(!d && strstr(err.text, of[i].words), "%d: %s, wanted %s", (int)i, d ? "nothing" : err.text,
              of[i].words);
    zx_data_close(d);
    p[of[i].at] = was;
  }
  uint64_t sum = zx_data_head_sum(p, 2), zero = 0;
  memcpy(p + 56, &sum, 8);
  memcpy(p + n - 16, &zero, 8); /* where the second document begins */
  cr_expect(!zx_data_of_bytes(p, n, "w", &err));
  says(err, "w is damaged: document");
  free(p);
}

/* A tokenizer that was trained here. */
#include "tests/unit/breadth.h"
#include "tests/unit/text/files.h"

#include <string.h>

static const char *const special[] = {"<|endoftext|>"};

static ZbText train(const char *text, size_t n, uint32_t vocab, uint32_t nspecial) {
  ZtTrainer *x = zt_trainer_new();
  ZbErr err;
  ZbText json = {0};
  cr_assert(zt_trainer_add(x, text, n, &err), "%s", err.text);
  cr_assert(zt_trainer_finish(x, vocab, special, nspecial, &json, &err), "%s", err.text);
  zt_trainer_free(x);
  return json;
}

/* l o w: 7 times, and e r twice; of pairs that are equally often there, that of the smaller ids first. */
Test(train, by_hand) {
  static const char text[] = "low low low low low lower lower";
  ZbText json = train(text, strlen(text), 256 + 5, 0);
  /* l o (7), o w was there as often and has the larger id; lo w (7); then " low" (6), e r and low e (2) */
  const char *merges = strstr(json.s, "\"merges\":");
  cr_assert(merges);
  cr_expect(!strcmp(merges,
                    "\"merges\":[[\"l\",\"o\"],\n[\"lo\",\"w\"],\n[\"\xc4\xa0\",\"low\"],\n[\"e\",\"r\"],\n"
                    "[\"\xc4\xa0low\",\"er\"]]}}\n"),
            "%s", merges);
  zb_text_free(&json);
}

/* What is not UTF-8 is learned as what encoding makes of it, U+FFFD. */
Test(train, on_what_is_no_utf8) {
  ZbText broken = train("\xff\xff\xff", 3, 256 + 3, 0), whole = train("\ufffd\ufffd\ufffd", 9, 256 + 3, 0);
  cr_expect(!strcmp(broken.s, whole.s));
  zb_text_free(&broken);
  zb_text_free(&whole);
}

Test(train, loads_and_is_good) {
  ZbArena *a = zb_arena_new();
  size_t n;
  char *text = text_file(a, "text.txt", &n);
  ZtTokenizer *other = text_tokenizer("gpt2"), *t;
  uint32_t size = zt_size(other);
  ZbText json = train(text, n, size, 1), again = train(text, n, size, 1);
  cr_expect(json.len == again.len && !memcmp(json.s, again.s, json.len), "another file the second time");
  ZbErr err;
  t = zt_read(json.s, json.len, "trained", &err);
  cr_assert(t, "%s", err.text);
  cr_expect(zt_size(t) == size && zt_id(t, "<|endoftext|>") == size - 1 && zt_special(t, size - 1));
  ZtIds ids[2] = {0};
  ZbText back = {0};
  for (int i = 0; i < 2; i++) {
    ZtCoder *c = zt_coder_new(i ? t : other);
    cr_assert(zt_encode(c, text, n, 0, &ids[i], &err));
    if (i) cr_assert(zt_decode(c, ids[i].id, ids[i].n, 0, &back, &err));
    zt_coder_free(c);
  }
  cr_expect(back.len == n && !memcmp(back.s, text, n));
  /* The library's trainer takes the same pairs, but for ties. */
  cr_expect(ids[1].n < ids[0].n * 1.005, "%zu tokens, and %zu with what the library trained", ids[1].n,
            ids[0].n);
  for (int i = 0; i < 2; i++) zt_ids_free(&ids[i]);
  zb_text_free(&back);
  zb_text_free(&json);
  zb_text_free(&again);
  zt_free(t);
  zt_free(other);
  zb_arena_free(a);
}

Test(train, refused) {
  ZtTrainer *x = zt_trainer_new();
  ZbErr err;
  ZbText json = {0};
  cr_expect(!zt_trainer_finish(x, 256, special, 1, &json, &err));
  cr_expect(strstr(err.text, "a vocabulary of 256 tokens; it has 256 bytes, 1 special tokens"), "%s",
            err.text);
  cr_expect(!zt_trainer_add(x, "", (size_t)ZT_TEXT_LIMIT + 1, &err));
  cr_expect(strstr(err.text, "a text of 1073741825 bytes; at most 1073741824 at once"), "%s", err.text);
  cr_assert(zt_trainer_add(x, "abab", 4, &err));
  cr_expect(!zt_trainer_finish(x, 300, special, 1, &json, &err));
  cr_expect(strstr(err.text, "the text is too short for 300 tokens: it has 258"), "%s", err.text);
  zt_trainer_free(x);
  static const char *const none[] = {"", "\xff"};
  for (int i = 0; i < 2; i++) {
    x = zt_trainer_new();
    cr_expect(!zt_trainer_finish(x, 300, &none[i], 1, &json, &err));
    cr_expect(strstr(err.text, "is empty, or no UTF-8"), "%s", err.text);
    zt_trainer_free(x);
  }
}

Test(train, long_runs) { /* one word of a megabyte, by day of a quarter */
  size_t n = at_night() ? 1 << 20 : 1 << 18;
  ZbArena *a = zb_arena_new();
  char *text = zb_alloc(a, n + 1);
  for (size_t i = 0; i < n; i++) text[i] = (char)('a' + zb_random_u64(1, 2, i) % 4);
  ZbText json = train(text, n, 2000, 1);
  ZbErr err;
  ZtTokenizer *t = zt_read(json.s, json.len, "trained", &err);
  cr_assert(t, "%s", err.text);
  zt_free(t);
  zb_text_free(&json);
  zb_arena_free(a);
}

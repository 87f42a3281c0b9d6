/* Text as tokens come: pieces are the whole, what was sent stays, and stop strings are never sent. */
#include "tests/unit/breadth.h"
#include "tests/unit/text/files.h"
#include "tests/unit/text/plain.h"

#include <stdlib.h>
#include <string.h>

enum { IDS = 24, PROMPT = 8 };

static uint64_t drawn;
static uint32_t draw(uint32_t n) { return (uint32_t)(zb_random_u64(41, 7, drawn++) % n); }

static bool begins(const char *s, size_t n, const char *with, size_t with_n) {
  return n >= with_n && !memcmp(s, with, with_n);
}

/* Bytes of the prompt's text that are not part of the answer: the characters with which both texts begin. */
static size_t shared(const ZbText *prompt, const ZbText *all) {
  size_t n = 0;
  while (n < prompt->len && n < all->len && prompt->s[n] == all->s[n]) n++;
  while (n < all->len && n && ((uint8_t)all->s[n] & 0xc0) == 0x80) n--;
  return n;
}

/* Returns where the answer ends: before the stop string that ends first, and is the longest of those. */
static size_t cut(const char *s, size_t n, const char *const *stop, uint32_t nstop, int *which) {
  *which = -1;
  for (size_t at = 1; at <= n; at++) {
    size_t longest = 0;
    for (uint32_t i = 0; i < nstop; i++) {
      size_t m = strlen(stop[i]);
      if (m > longest && m <= at && !memcmp(s + at - m, stop[i], m)) longest = m, *which = (int)i;
    }
    if (longest) return at - longest;
  }
  return n;
}

typedef struct {
  const ZtTokenizer *t;
  ZtCoder *c;
  ZtDetokenizer *d;
  ZbText prompt, all, other, pieces;
  const char *what;
} Case;

static void begin(Case *x, const ZtTokenizer *t, const char *what) {
  *x = (Case){.t = t, .c = zt_coder_new(t), .d = zt_detokenizer_new(t), .what = what};
}

static void finish(Case *x) {
  zb_text_free(&x->prompt);
  zb_text_free(&x->all);
  zb_text_free(&x->other);
  zb_text_free(&x->pieces);
  zt_detokenizer_free(x->d);
  zt_coder_free(x->c);
}

/* Checks that what was sent after `done` ids is what any other ids behind them leave. */
static void stays(Case *x, const uint32_t *id, size_t done, unsigned flags) {
  uint32_t other[IDS + 4];
  memcpy(other, id, done * sizeof *id);
  for (int tries = 0; tries < 3; tries++) {
    size_t more = tries ? 1 + draw(4) : 0, n;
    for (size_t i = 0; i < more; i++) other[done + i] = draw(zt_size(x->t));
    plain_decode(x->t, other, done + more, flags, &x->other);
    const char *sent = zt_detokenized_text(x->d, &n);
    cr_assert(begins(x->other.s, x->other.len, sent, n), "%s: '%.*s' was sent of '%s'", x->what, (int)n, sent,
              x->other.s);
  }
}

static void sent(Case *x, const char *want, size_t n) {
  size_t more;
  const char *s = zt_detokenized(x->d, &more);
  cr_assert(zt_utf8_valid(s, more) == more, "%s: half a character is sent", x->what);
  zb_text_put(&x->pieces, s, more);
  cr_assert(begins(want, n, x->pieces.s, x->pieces.len), "%s: '%.*s' is sent of '%.*s'", x->what,
            (int)x->pieces.len, x->pieces.s, (int)n, want);
}

/* The answer id[nprompt..n), token by token. */
static void writes(Case *x, const uint32_t *id, size_t nprompt, size_t n, const ZtWriting *w) {
  ZbErr err;
  plain_decode(x->t, id, nprompt, w->flags, &x->prompt);
  plain_decode(x->t, id, n, w->flags, &x->all);
  bool echo = w->flags & ZT_ECHO;
  size_t skip = shared(&x->prompt, &x->all), from = echo ? 0 : skip;
  int which;
  size_t want = skip + cut(x->all.s + skip, x->all.len - skip, w->stop, w->nstop, &which) - from;
  x->pieces.len = 0;
  zb_text_put(&x->pieces, "", 0);
  cr_assert(zt_detokenize_begin(x->d, x->c, w, id, nprompt, &err), "%s: %s", x->what, err.text);
  for (size_t i = nprompt; i < n && zt_detokenizer_stopped(x->d) < 0; i++) {
    if (echo && !w->nstop) stays(x, id, i, w->flags);
    sent(x, x->all.s + from, want);
    cr_assert(zt_detokenize(x->d, x->c, id[i], &err), "%s: %s", x->what, err.text);
  }
  cr_assert(zt_detokenize_end(x->d, x->c, &err), "%s: %s", x->what, err.text);
  sent(x, x->all.s + from, want);
  cr_assert(x->pieces.len == want, "%s: '%s' instead of '%.*s'", x->what, x->pieces.s, (int)want,
            x->all.s + from);
  cr_assert(zt_detokenizer_stopped(x->d) == which, "%s: stopped by %d instead of %d", x->what,
            zt_detokenizer_stopped(x->d), which);
}

/* Random ids: whole, then in pieces, with what stays, and with stop strings that are parts of the text. */
static void random_ids(const ZtTokenizer *t, const char *what, uint32_t rounds) {
  Case x;
  begin(&x, t, what);
  for (uint32_t round = 0; round < rounds; round++) {
    uint32_t id[IDS];
    size_t n = 1 + draw(IDS), nprompt = draw((uint32_t)(n < PROMPT ? n : PROMPT) + 1);
    for (size_t i = 0; i < n; i++)
      id[i] = draw(8) ? draw(zt_size(t)) : draw(3) ? id[i ? i - 1 : 0] % zt_size(t) : draw(UINT32_MAX);
    unsigned flags = draw(2) ? ZT_SKIP_SPECIAL : 0;
    ZbText got = {0};
    ZbErr err;
    cr_assert(zt_decode(x.c, id, n, flags, &got, &err), "%s: %s", what, err.text);
    plain_decode(t, id, n, flags, &x.all);
    cr_assert(got.len == x.all.len && !memcmp(got.s, x.all.s, got.len), "%s: '%s' instead of '%s'", what,
              got.s, x.all.s);
    writes(&x, id, nprompt, n, &(ZtWriting){.flags = flags | ZT_ECHO});
    writes(&x, id, nprompt, n, &(ZtWriting){.flags = flags});
    char stop[2][16];
    const char *stops[] = {stop[0], stop[1]};
    for (int i = 0; i < 2; i++) { /* some characters of the text */
      size_t at = draw((uint32_t)got.len + 1), bytes = 0;
      while (at < got.len && ((uint8_t)got.s[at] & 0xc0) == 0x80) at++;
      for (uint32_t chars = 1 + draw(3); chars && at < got.len && got.s[at] && bytes < 12; chars--) do
          stop[i][bytes++] = got.s[at++];
        while (at < got.len && ((uint8_t)got.s[at] & 0xc0) == 0x80);
      if (!bytes) stop[i][bytes++] = '~';
      stop[i][bytes] = 0;
    }
    ZtWriting w = {.flags = flags | (draw(2) ? ZT_ECHO : 0), .stop = stops, .nstop = 1 + draw(2)};
    writes(&x, id, nprompt, n, &w);
    zb_text_free(&got);
  }
  finish(&x);
}

Test(detokenize, six_tokenizers) {
  for (int i = 0; i < 6; i++) {
    ZtTokenizer *t = text_tokenizer(text_names[i]);
    random_ids(t, text_names[i], breadth_many(300));
    zt_free(t);
  }
}

/* ---- all decoders, alone and behind each other ---- */
#define DECODER(type, rest) "{\"type\": \"" type "\"" rest "}"
#define STRIP(s, start, stop)                                                                                \
  DECODER("Strip", ", \"content\": \"" s "\", \"start\": " start ", \"stop\": " stop)
#define REPLACE(kind, from, to)                                                                              \
  DECODER("Replace", ", \"pattern\": {\"" kind "\": \"" from "\"}, \"content\": \"" to "\"")
static const char *const decoders[] = {
    DECODER("ByteLevel", ", \"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": true"),
    DECODER("ByteFallback", ""),
    DECODER("Fuse", ""),
    DECODER("Fuse", ""),
    STRIP(" ", "1", "0"),
    STRIP("a", "2", "3"),
    STRIP("ab", "1", "2"),
    STRIP("aab", "0", "9"),
    STRIP("_", "0", "1"),
    REPLACE("String", "\u2581", " "),
    REPLACE("String", "a", "_a"),
    REPLACE("Regex", "[ab]+", "ab"),
    REPLACE("Regex", "(?<=a)b|_$", "."),
    DECODER("Metaspace", ", \"replacement\": \"\u2581\", \"prepend_scheme\": \"always\""),
    DECODER("Metaspace", ", \"replacement\": \"_\", \"prepend_scheme\": \"never\""),
    DECODER("WordPiece", ", \"prefix\": \"##\", \"cleanup\": true"),
    DECODER("WordPiece", ", \"prefix\": \"##\", \"cleanup\": false"),
};
/* Bytes of characters, alone and in the other way of writing them; ends and beginnings of what is
 * replaced. */
static const char *const words[] = {
    "<0xC3>", "<0xA9>", "<0xE2>", "<0x82>",  "<0xac>",  "<0xF0>", "<0x41>", "<0xZZ>", "<0x",     "\u00c3",
    "\u00a9", "\u00e2", "\u00f0", "\u0141",  "\u0120",  "a",      "b",      "ab",     "aa",      "aab",
    "_",      "__",     " ",      "\u2581a", "a\u2581", "##b",    "##",     " .",     " n't do", " not",
    "\u20ac", "'s '",   "~",      "\u2581",  "aabaab",  "",       "# #",    "\ufffd", "e\u0301", "0"};

static ZtTokenizer *tokenizer_of(const char *const *decoder, uint32_t n) {
  ZbText json = {0};
  zb_text_add(&json,
              "{\"added_tokens\": [{\"id\": %zu, \"content\": \"<s>\", \"single_word\": false, "
              "\"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true}], ",
              sizeof words / sizeof *words);
  if (n) zb_text_add(&json, "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [");
  for (uint32_t i = 0; i < n; i++) zb_text_add(&json, "%s%s", i ? ", " : "", decoder[i]);
  zb_text_add(&json, "%s\"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {", n ? "]}, " : "");
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    zb_text_add(&json, "%s\"%s\": %zu", i ? ", " : "", words[i], i);
  zb_text_add(&json, "}}}");
  ZbErr err;
  ZtTokenizer *t = zt_read(json.s, json.len, "it", &err);
  cr_assert(t, "%s\n%s", err.text, json.s);
  zb_text_free(&json);
  return t;
}

Test(detokenize, decoders_of_all_kinds) {
  enum { N = sizeof decoders / sizeof *decoders };
  const char *chosen[4];
  for (uint32_t i = 0; i < N + breadth_many(400); i++) {
    uint32_t n = i < N ? 1 : draw(5);
    ZbText what = {0};
    for (uint32_t k = 0; k < n; k++) {
      chosen[k] = decoders[i < N ? i : draw(N)];
      zb_text_add(&what, "%s ", chosen[k]);
    }
    ZtTokenizer *t = tokenizer_of(chosen, n);
    random_ids(t, n ? what.s : "no decoder", i < N ? 100 : 10);
    zb_text_free(&what);
    zt_free(t);
  }
}

/* ---- what is sent when, where it can be said ---- */
/* The pieces of words[id] for each id, with a bar behind each. */
static void expect(const char *const *decoder, uint32_t n, const ZtWriting *w, const uint32_t *prompt,
                   size_t nprompt, const uint32_t *id, size_t nid, const char *want) {
  ZtTokenizer *t = tokenizer_of(decoder, n);
  ZtCoder *c = zt_coder_new(t);
  ZtDetokenizer *d = zt_detokenizer_new(t);
  ZbText got = {0};
  ZbErr err;
  size_t bytes;
  cr_assert(zt_detokenize_begin(d, c, w, prompt, nprompt, &err), "%s", err.text);
  for (size_t i = 0; i <= nid; i++) {
    cr_assert(i < nid ? zt_detokenize(d, c, id[i], &err) : zt_detokenize_end(d, c, &err), "%s", err.text);
    const char *s = zt_detokenized(d, &bytes);
    zb_text_put(&got, s, bytes);
    zb_text_put(&got, "|", 1);
  }
  cr_expect(!strcmp(got.s, want), "'%s' instead of '%s'", got.s, want);
  zb_text_free(&got);
  zt_detokenizer_free(d);
  zt_coder_free(c);
  zt_free(t);
}

static uint32_t word(const char *s) {
  for (uint32_t i = 0; i < sizeof words / sizeof *words; i++)
    if (!strcmp(words[i], s)) return i;
  cr_assert(false, "%s is no word", s);
  return 0;
}
#define W(s) word(s)

/* Each text is sent as soon as its characters are whole, and no later. */
Test(detokenize, as_soon_as_it_is_sure) {
  const ZtWriting plain = {0};
  const uint32_t bytes[] = {W("\u00c3"), W("\u00a9"), W("a"), W("\u00e2"), W("b"), W("\u0120"), W("\u00c3")};
  expect(&decoders[0], 1, &plain, NULL, 0, bytes, 7, "|\u00e9|a||\ufffdb| ||\ufffd|");
  const char *const llama[] = {decoders[9], decoders[1], decoders[2], decoders[4]};
  const uint32_t run[] = {W("\u2581a"), W("\u2581a"), W("<0xE2>"), W("<0x82>"), W("<0xac>"), W("b"),
                          W("<0xC3>"),  W("a"),       W("<0xC3>"), W("<0x41>"), W("<0xA9>")};
  expect(llama, 4, &plain, NULL, 0, run, 11, "a| a||||\u20acb||\ufffda||\ufffd\ufffd|\ufffd||");
}

/* The answer keeps its blank, and a character that the prompt begins is the answer's. */
Test(detokenize, behind_a_prompt) {
  const ZtWriting plain = {0}, echo = {.flags = ZT_ECHO};
  const char *const llama[] = {decoders[9], decoders[1], decoders[2], decoders[4]};
  const uint32_t prompt[] = {W("\u2581a"), W("<0xC3>")}, whole[] = {W("<0xA9>"), W("\u2581a")};
  expect(llama, 4, &plain, prompt, 1, whole + 1, 1, " a||");
  expect(llama, 4, &plain, NULL, 0, whole + 1, 1, "a||");
  expect(llama, 4, &plain, prompt, 2, whole, 2, "|\u00e9 a||");
  expect(llama, 4, &echo, prompt, 2, whole, 2, "a|\u00e9 a||");
  expect(llama, 4, &plain, prompt, 2, whole + 1, 1, " a||");
  expect(llama, 4, &plain, prompt, 2, NULL, 0, "|");
  expect(llama, 4, &echo, prompt, 2, NULL, 0, "a\ufffd|");
}

Test(detokenize, stop_strings) {
  const char *const one[] = {"aab"}, *const several[] = {"baabb", "ab", "b"}, *const blank[] = {"a b"};
  const ZtWriting w = {.stop = one, .nstop = 1}, more = {.stop = several, .nstop = 3},
                  late = {.stop = one, .nstop = 1, .min_tokens = 2}, spaces = {.stop = blank, .nstop = 1};
  const char *const *fuse = &decoders[2];
  const uint32_t over[] = {W("0"), W("a"), W("aa"), W("b"), W("0")};
  expect(fuse, 1, &w, NULL, 0, over, 5, "0||a||||");
  const uint32_t not [] = {W("a"), W("a"), W("_"), W("aa")};
  expect(fuse, 1, &w, NULL, 0, not, 4, "||aa_||aa|");
  const uint32_t within[] = {W("aabaab"), W("0")};
  expect(fuse, 1, &w, NULL, 0, within, 2, "|||");
  const uint32_t first[] = {W("0"), W("aabaab")};
  expect(fuse, 1, &more, NULL, 0, first, 2, "0|a||");
  const uint32_t held[] = {W("aab"), W("aa"), W("b"), W("0")};
  expect(fuse, 1, &late, NULL, 0, held, 4, "aab|||||");
  expect(fuse, 1, &w, held, 3, over, 1, "0||");
  const uint32_t of_prompt[] = {W("b"), W("a")};
  expect(fuse, 1, &w, (const uint32_t[]){W("aa")}, 1, of_prompt, 2, "b||a|");
  const uint32_t with_blank[] = {W("a"), W(" "), W("0"), W("a"), W(" "), W("b")};
  expect(fuse, 1, &spaces, NULL, 0, with_blank, 6, "||a 0|||||");
}

Test(detokenize, refused_stop_strings) {
  ZtTokenizer *t = tokenizer_of(decoders, 1);
  ZtCoder *c = zt_coder_new(t);
  ZtDetokenizer *d = zt_detokenizer_new(t);
  char *far = malloc(ZT_STOP_LIMIT + 2);
  memset(far, 'a', ZT_STOP_LIMIT + 1);
  far[ZT_STOP_LIMIT + 1] = 0;
  const char *const bad[] = {"", "\xc3", far};
  static const char *const why[] = {"empty", "UTF-8", "4097 bytes"};
  ZbErr err;
  for (int i = 0; i < 3; i++) {
    ZtWriting w = {.stop = &bad[i], .nstop = 1};
    cr_expect(!zt_detokenize_begin(d, c, &w, NULL, 0, &err) && strstr(err.text, why[i]), "%s", err.text);
  }
  const char *many[ZT_STOPS + 1];
  for (int i = 0; i <= ZT_STOPS; i++) many[i] = "a";
  ZtWriting w = {.stop = many, .nstop = ZT_STOPS + 1};
  cr_expect(!zt_detokenize_begin(d, c, &w, NULL, 0, &err) && strstr(err.text, "17 stop strings"), "%s",
            err.text);
  w.nstop = ZT_STOPS;
  far[ZT_STOP_LIMIT] = 0;
  many[0] = far;
  cr_expect(zt_detokenize_begin(d, c, &w, NULL, 0, &err), "%s", err.text);
  free(far);
  zt_detokenizer_free(d);
  zt_coder_free(c);
  zt_free(t);
}

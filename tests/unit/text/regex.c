/* Patterns of the library's syntax match what they match there: the expectations are what its Regex gave. */
#include "runtime/text/room.h"
#include "tests/unit/breadth.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <time.h>

static const struct {
  const char *pattern, *text, *matches; /* with | between */
} cases[] = {
    {"\\p{N}{1,3}+", "a12345678 9", "12345678|9"},
    {"(ab|c){2}+", "ababababc c", "abababab"},
    {"a[bc]{2}+", "abcbcb abc", "abcbc|abc"},
    {"a{,2}b", "aaab b", "aab|b"},
    {"a{}", "aa{}", "a{}"},
    {"a{x}", "aa{x}", "a{x}"},
    {"\\h+", "xyzBEEFg09", "BEEF|09"},
    {"[\\h-]+", "g-1f_A", "-1f|A"},
    {"\\w+", "a\303\251_1\302\262\302\275x \314\201\342\205\247\342\200\215y",
     "a\303\251_1\302\262\302\275x|\314\201\342\205\247|y"},
    {"\\W+", "a \302\275\302\262-\303\251", " |-"},
    {"[^\\w\\s]+", "a!? \302\275 b", "!?|\302\275"},
    {"\\d+", "x12\331\243\357\274\224\360\226\253\200\302\262", "12\331\243\357\274\224\360\226\253\200"},
    {"[^\\d]+", "1a\331\243b2", "a|b"},
    {"\\s+", "a \341\240\216\302\240\343\200\200\011b", " |\302\240\343\200\200\011"},
    {"[\\s\\S]", "a\012", "a|\012"},
    {"[^\\S\\n]+", "a \012\341\240\216 b", " | "},
    {"\\S+", "a \341\240\216b", "a|\341\240\216b"},
    {"a.c", "a\012c abc", "abc"},
    {"(?m:a.c)", "a\012c abc", "a\012c|abc"},
    {"^b$", "a\012b\012c", "b"},
    {"\\u0041+", "xAAy", "AA"},
    {"\\p{L}+", "a\360\262\216\260\360\235\274\252z 1", "a|\360\235\274\252z"},
    {"\\P{L}+", "a 1\360\262\216\260!", " 1\360\262\216\260!"},
    {"\\p{^L}+", "a1b", "1"},
    {"\\pL+1", "ab1L1", "ab1|L1"},
    {"a\\Q\\E\\U", "aQEU", "aQEU"},
    {"[\\p{Lu}\\p{Lt}]+", "ABc\307\205\303\211", "AB|\307\205\303\211"},
    {"x*", "axxb", "|xx|"}, /* an empty match is one, but where the match before it ended */
    {"(?=(\\d{3})+(?!\\d))", "1234567a", "|"},
    {"\\ba", "a-ab\314\201a", "a|a"}, /* a mark is of the word */
    {"a\\B.", "ab a-", "ab"},
    {"[\\b]", "a\bb", "\b"},
    {"\\v", "a\nb\013", "\013"},
    {"\\x41\\x{42}", "AB", "AB"},
    {"(?i)k(?-i:S)", "KS ks kS", "KS|kS"},
    {"(?:(?i)a)a", "Aa AA", "Aa"},
    {"\\p{letter}+\\p{white space}", "ab 1 ", "ab "},
    {"[\\D]+", "1a\331\243b2", "a|b"},
    {"[^\\W_]+", "a_b!1", "a|b|1"},
    {"\\p{Han}+|[\\p{Hiragana}a]+", "\346\274\242\345\255\227\343\201\213a b",
     "\346\274\242\345\255\227|\343\201\213a"},
    {"\\P{Han}+", "a\346\274\242b", "a|b"},
    {"[[:alpha:]_]+", "\303\251_1b", "\303\251_|b"},
    {"[[:^alpha:]]+", "a1 b", "1 "},
    {"[[:punct:]]+", "a$\342\202\254-b", "$\342\202\254-"},
    {"(?i:'S|'t)+", "it'S't", "'S't"},
    {"[]a]+", "x]a[", "]a"},
    {"(?<=a)b+?", "abbb ab", "b|b"},
    {"a++b|a", "aab aa", "aab|a|a"},
    {"\\\303\251+", "a\303\251\303\251", "\303\251\303\251"},
};

Test(regex, matches) {
  ZtTokenizer t = {.arena = zb_arena_new()};
  ZtMatcher *m = zt_matcher_new();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ZbErr err;
    const ZtPattern *p = zt_pattern(&t, cases[i].pattern, false, &err);
    cr_assert(p, "%s", err.text);
    ZbText got = {0};
    zb_text_put(&got, "", 0);
    size_t n = strlen(cases[i].text), begin, end;
    for (size_t at = 0, last = ZT_FIRST_MATCH;
         zt_match(p, m, cases[i].text, n, at, last, &begin, &end, &err) > 0; at = last = end) {
      if (last != ZT_FIRST_MATCH) zb_text_put(&got, "|", 1);
      zb_text_put(&got, cases[i].text + begin, end - begin);
    }
    cr_expect(!strcmp(got.s, cases[i].matches), "%s: '%s' instead of '%s'", cases[i].pattern, got.s,
              cases[i].matches);
    zb_text_free(&got);
  }
  zt_matcher_free(m);
  zt_patterns_close(&t);
  zb_arena_free(t.arena);
}

Test(regex, refused) {
  static const char *const refused[] = {"[a&&b]", "[a[bc]]", "[\\P{L}]", "(*UTF)a", "a(", "\\p{}", "\\u12",
                                        "\\p{NoSuch}", "a\\", "\\p", "\\p{L",
                                        /* what the two read otherwise, and no table tells how */
                                        "\\p{script=Han}", "\\p{Coptic}", "\\p{Pd}", "\\p{Cn}",
                                        "[[:^alnum:]]", "[[:^punct:]]", "(?i:[[:upper:]])", "(?i:\\p{Greek})",
                                        "x\\X", "\\G", "\\K", "(a)\\1", "(?<n>a)\\k<n>", "\\o{7}", "\\cA",
                                        "\\xE3", "a{2}?", "(?x)a b", "(?~a)", "(?(1)a)", "(?P<n>a)", "(?R)",
                                        "(?i)stra\303\237e", "(?i)strasse", "(?i:Fi)", "(?i:\\p{Lu})"};
  ZtTokenizer t = {.arena = zb_arena_new()};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    ZbErr err = {0};
    cr_expect(!zt_pattern(&t, refused[i], false, &err), "%s is taken", refused[i]);
    cr_expect(strstr(err.text, "the regular expression"), "%s", err.text);
  }
  zt_patterns_close(&t);
  zb_arena_free(t.arena);
}

Test(regex, gives_up) { /* instead of going on for ever */
  ZtTokenizer t = {.arena = zb_arena_new()};
  ZtMatcher *m = zt_matcher_new();
  ZbErr err;
  const ZtPattern *p = zt_pattern(&t, "(?:a|a|aa)*[bc]$", false, &err);
  cr_assert(p, "%s", err.text);
  char text[65];
  memset(text, 'a', 64);
  size_t begin, end;
  cr_expect(zt_match(p, m, text, 64, 0, ZT_FIRST_MATCH, &begin, &end, &err) < 0);
  cr_expect(strstr(err.text, "gives up at byte 0 of 64"), "%s", err.text);
  zt_matcher_free(m);
  zt_patterns_close(&t);
  zb_arena_free(t.arena);
}

/* Each place is looked at to the end, which no limit of backtracking counts. */
Test(regex, too_slow) {
  enum { N = 200000 };
  char *text = malloc(N);
  memset(text, 'a', N);
  memcpy(text + N - 2, "-c", 2);
  ZtTokenizer t = {.arena = zb_arena_new()};
  ZtMatcher *m = zt_matcher_new();
  ZbErr err;
  size_t begin, end;
  const ZtPattern *p = zt_pattern(&t, "(?:a|b)+?c", false, &err);
  cr_assert(p, "%s", err.text);
  zt_matcher_begin(m, 0.01);
  clock_t from = clock();
  cr_expect(zt_match(p, m, text, N, 0, ZT_FIRST_MATCH, &begin, &end, &err) < 0);
  cr_expect(strstr(err.text, "(?:a|b)+?c is too slow for this text"), "%s", err.text);
  cr_expect((double)(clock() - from) / CLOCKS_PER_SEC < 20, "it took all the time");
  zt_matcher_free(m);
  zt_patterns_close(&t);
  zb_arena_free(t.arena);
  free(text);
}

/* Places are looked at by stretches: a match is found wherever it begins. */
Test(regex, far_away) {
  enum { N = 20000 };
  char *text = malloc(2 * N + 2);
  ZtTokenizer t = {.arena = zb_arena_new()};
  ZtMatcher *m = zt_matcher_new();
  ZbErr err;
  const ZtPattern *p = zt_pattern(&t, "(?<=\303\251)xy|\303\251$", false, &err);
  cr_assert(p, "%s", err.text);
  for (size_t i = 0; i < 2 * N; i += 2) memcpy(text + i, "\303\251", 2);
  for (size_t at = 2; at < 2 * N; at += at < 3000 ? 2 : 822) {
    size_t begin = 0, end = 0;
    memcpy(text + at, "xy", 2);
    int found = zt_match(p, m, text, 2 * N, 0, ZT_FIRST_MATCH, &begin, &end, &err);
    cr_assert(found == 1 && begin == at && end == at + 2, "at %zu: %d, %zu to %zu", at, found, begin, end);
    memcpy(text + at, "\303\251", 2);
  }
  zt_matcher_free(m);
  zt_patterns_close(&t);
  zb_arena_free(t.arena);
  free(text);
}

/* What needs more stack than the compiled program has is matched without it: a step back for each of many
 * pairs. */
Test(regex, deep) {
  enum { N = 400000 };
  char *text = malloc(2 * N + 1);
  ZtTokenizer t = {.arena = zb_arena_new()};
  ZbErr err;
  size_t begin, end;
  for (int i = 0; i < N; i++) memcpy(text + 2 * i, "ab", 2);
  text[2 * N] = 'c';
  const ZtPattern *p = zt_pattern(&t, "(?:(a)(b))*c", false, &err);
  cr_assert(p, "%s", err.text);
  ZtMatcher *m = zt_matcher_new();
  cr_expect_eq(zt_match(p, m, text, 2 * N + 1, 0, ZT_FIRST_MATCH, &begin, &end, &err), 1, "%s", err.text);
  cr_expect(begin == 0 && end == 2 * N + 1);
  zt_matcher_free(m);
  zt_patterns_close(&t);
  zb_arena_free(t.arena);
  free(text);
}

/* ---- all characters ---- */
/* The text of every character, in order. */
static char *every_character(size_t *n) {
  char *s = malloc(4 * 0x110000);
  *n = 0;
  for (uint32_t c = 0; c < 0x110000; c++)
    if (c < 0xd800 || c > 0xdfff) *n += zb_utf8(s + *n, c);
  return s;
}

/* A class takes the characters that the library takes it for: their number, the number of runs, and a sum of where runs begin and end. */
Test(regex, classes) {
  size_t n, size, begin, end;
  char *text = every_character(&n);
  ZbErr err;
  ZtTokenizer t = {.arena = zb_arena_new()};
  ZtMatcher *m = zt_matcher_new();
  char *lines = zb_read_file(t.arena, ZUG_SRC "/tests/data/text/classes.txt", 1 << 16, &size, &err),
       *rest = NULL;
  cr_assert(lines, "%s", err.text);
  int classes = 0;
  for (char *line = strtok_r(lines, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest), classes++) {
    char *numbers = strchr(line, ' ');
    *numbers++ = 0;
    if (!breadth_tries((size_t)classes, 5)) continue;
    const ZtPattern *p = zt_pattern(&t, zb_printf(t.arena, "(?:%s)+", line), false, &err);
    cr_assert(p, "%s", err.text);
    unsigned long long count = 0, runs = 0, sum = 0xcbf29ce484222325ull;
    for (size_t at = 0; zt_match(p, m, text, n, at, at ? at : ZT_FIRST_MATCH, &begin, &end, &err) > 0;
         at = end, runs++) {
      size_t bytes;
      char run[32];
      for (size_t k = begin; k < end; k++) count += (text[k] & 0xc0) != 0x80;
      uint32_t first = zt_char(text + begin, &bytes),
               last = zt_char(text + zt_char_before(text, end), &bytes);
      snprintf(run, sizeof run, "%X-%X,", first, last);
      for (const char *s = run; *s; s++) sum = (sum ^ (uint8_t)*s) * 0x100000001b3ull;
    }
    char got[80];
    snprintf(got, sizeof got, "%llu %llu %016llx", count, runs, sum);
    cr_expect(!strcmp(got, numbers), "%s: %s, the library has %s", line, got, numbers);
  }
  cr_expect(classes > 40);
  zt_matcher_free(m);
  zt_patterns_close(&t);
  zb_arena_free(t.arena);
  free(text);
}

/* Patterns of the library's syntax match what they match there: the expectations are what its Regex gave. */
#include "runtime/text/room.h"

#include <criterion/criterion.h>
#include <stdlib.h>

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
    {"[\\D]+", "1a\331\243b2", "a|b"},
    {"a\\Q\\E\\U", "aQEU", "aQEU"},
    {"[\\p{Lu}\\p{Lt}]+", "ABc\307\205\303\211", "AB|\307\205\303\211"},
    {"x*", "axxb", "xx"},
    {"(?i:'S|'t)+", "it'S't", "'S't"},
    {"[]a]+", "x]a[", "]a"},
    {"\\p{Han}+", "x\302\275\344\270\255\346\226\207\343\201\213\342\205\247", "\344\270\255\346\226\207"},
    {"(?<=a)b+?", "abbb ab", "b|b"},
    {"a++b|a", "aab aa", "aab|a|a"},
    {"[[:alpha:]]+", "ab1\303\251", "ab|\303\251"},
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
    for (size_t at = 0; zt_match(p, m, cases[i].text, n, at, &begin, &end, &err) > 0; at = end) {
      if (got.len) zb_text_put(&got, "|", 1);
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
  static const char *const refused[] = {"[a&&b]", "[a[bc]]",     "[\\W]", "(*UTF)a", "a(",   "\\p{}",
                                        "\\u12",  "\\p{NoSuch}", "a\\",   "\\p",     "\\p{L"};
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
  cr_expect(zt_match(p, m, text, 64, 0, &begin, &end, &err) < 0);
  cr_expect(strstr(err.text, "gives up at byte 0 of 64"), "%s", err.text);
  zt_matcher_free(m);
  zt_patterns_close(&t);
  zb_arena_free(t.arena);
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
  cr_expect_eq(zt_match(p, m, text, 2 * N + 1, 0, &begin, &end, &err), 1, "%s", err.text);
  cr_expect(begin == 0 && end == 2 * N + 1);
  zt_matcher_free(m);
  zt_patterns_close(&t);
  zb_arena_free(t.arena);
  free(text);
}

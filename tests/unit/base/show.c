/* Unit tests of base: what messages say for names that hold anything. */
#include "base/base.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void shows(const char *s, size_t n, const char *want) { cr_expect_str_eq(zb_show_n(s, n), want); }
#define SHOWS(literal, want) shows(literal, sizeof literal - 1, want)

Test(show, what_is_plain_stays) {
  SHOWS("", "");
  SHOWS("layer.3/attn wq.zug", "layer.3/attn wq.zug");
  SHOWS("Grüße 模型 \xf0\x9f\x90\x8c", "Grüße 模型 \xf0\x9f\x90\x8c");
  cr_expect_str_eq(zb_show("a\\b"), "a\\b");
  /* The first and the last character of so many bytes, and the neighbours of surrogates and of what
   * controls. */
  static const char *const edges[] = {" ",
                                      "~",
                                      "\xc2\xa0",
                                      "\xdf\xbf",
                                      "\xe0\xa0\x80",
                                      "\xed\x9f\xbf",
                                      "\xee\x80\x80",
                                      "\xef\xbf\xbf",
                                      "\xf0\x90\x80\x80",
                                      "\xf4\x8f\xbf\xbf",
                                      "\xd8\x9b",
                                      "\xd8\x9d",
                                      "\xe2\x80\x8d",
                                      "\xe2\x80\x90",
                                      "\xe2\x80\xa7",
                                      "\xe2\x80\xaf",
                                      "\xe2\x81\xa5",
                                      "\xe2\x81\xaa",
                                      "\xef\xbb\xbe",
                                      "\xef\xbc\x80"};
  for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) cr_expect_str_eq(zb_show(edges[i]), edges[i]);
}

Test(show, what_a_terminal_obeys_is_written_out) {
  SHOWS("a\033[31mb", "a\\x1b[31mb");
  SHOWS("a\nb\tc\rd\x7f", "a\\nb\\tc\\rd\\x7f");
  SHOWS("nul\0end", "nul\\x00end");
  SHOWS("\xc2\x9b"
        "31m",
        "\\u009b31m");                                           /* CSI, of one character */
  SHOWS("x\xe2\x80\xaeguz.\xe2\x80\xac", "x\\u202eguz.\\u202c"); /* written from right to left */
  SHOWS("\xe2\x80\xa8\xef\xbb\xbf\xe2\x81\xa6", "\\u2028\\ufeff\\u2066");
  SHOWS("\x1f\xc2\x80\xc2\x9f\xd8\x9c", "\\x1f\\u0080\\u009f\\u061c");
  SHOWS("\xe2\x80\x8e\xe2\x80\x8f\xe2\x80\xae\xe2\x81\xa9", "\\u200e\\u200f\\u202e\\u2069");
}

Test(show, what_is_no_utf8_is_written_out) {
  SHOWS("\xff\xfe", "\\xff\\xfe");
  SHOWS("caf\xe9", "caf\\xe9");    /* latin-1 */
  SHOWS("\xe2\x82", "\\xe2\\x82"); /* cut off */
  SHOWS("\xe2\x82x", "\\xe2\\x82x");
  SHOWS("\xc0\xaf\xe0\x80\xaf", "\\xc0\\xaf\\xe0\\x80\\xaf"); /* overlong */
  SHOWS("\xed\xa0\x80", "\\xed\\xa0\\x80");                   /* a surrogate */
  SHOWS("\xf4\x90\x80\x80\xf8", "\\xf4\\x90\\x80\\x80\\xf8");
}

Test(show, what_is_long_keeps_its_ends) {
  enum { N = 16 << 20 };
  char *s = malloc(N + 1);
  memset(s, 'x', N);
  memcpy(s, "begin", 5);
  memcpy(s + N - 3, "end", 3);
  s[N] = 0;
  const char *t = zb_show(s);
  size_t n = strlen(t);
  cr_expect_eq(n, ZB_SHOWN - 1, "of plain text, as much as there is room for");
  cr_expect(!strncmp(t, "begin", 5) && strstr(t, "x...x") && !strcmp(t + n - 3, "end"));
  for (size_t k = ZB_SHOWN - 1; k <= ZB_SHOWN; k++) {
    t = zb_show_n(s, k);
    cr_expect((strstr(t, "...") == NULL) == (k < ZB_SHOWN) && strlen(t) < ZB_SHOWN);
  }
  /* Never within a character, and what is written out counts as it is written. */
  static const char *const units[] = {"\xc3\xbc", "\xe6\xa8\xa1", "\xf0\x9f\x90\x8c",
                                      "\xff",     "\033",         "a\xe6\xa8\xa1"};
  for (size_t u = 0; u < sizeof units / sizeof *units; u++)
    for (size_t shift = 0; shift < 25; shift++) {
      size_t at = shift / 5, len = strlen(units[u]);
      memset(s, 'x', shift / 5);
      while (at < 1000) memcpy(s + at, units[u], len), at += len;
      memcpy(s + at, "end.", shift % 5), at += shift % 5;
      t = zb_show_n(s, at);
      n = strlen(t);
      cr_expect(n < ZB_SHOWN && n > ZB_SHOWN - 30 && strstr(t, "..."), "%zu bytes: %s", n, t);
      cr_expect(!strncmp(t + n - shift % 5, "end.", shift % 5), "not the end: %s", t);
      for (size_t i = 0, bytes; i < n; i += bytes)
        cr_assert((bytes = zb_plain(t + i, n - i)), "unit %zu shifted by %zu: %s", u, shift, t);
      if (u < 3) cr_expect(!strchr(t, '\\'), "cut within a character: %s", t);
    }
  free(s);
}

/* A page that nothing may be read before ends at the text's first byte. */
Test(show, nothing_is_read_before_the_text) {
  long page = sysconf(_SC_PAGESIZE);
  char *p = mmap(NULL, 2 * (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  cr_assert(p != MAP_FAILED && mprotect(p, (size_t)page, PROT_NONE) == 0);
  char *s = p + page;
  memset(s, 0xfe, 200);
  for (size_t n = 1; n <= 200; n++) {
    const char *t = zb_show_n(s, n);
    cr_expect(strlen(t) < ZB_SHOWN && (strstr(t, "...") == NULL) == (4 * n < ZB_SHOWN), "%zu bytes: %s", n,
              t);
  }
  munmap(p, 2 * (size_t)page);
}

Test(show, eight_at_a_time) {
  const char *t[8];
  char name[8][2] = {"a", "b", "c", "d", "e", "f", "g", "h"};
  for (int i = 0; i < 8; i++) t[i] = zb_show(name[i]);
  for (int i = 0; i < 8; i++) cr_expect_str_eq(t[i], name[i]);
}

Test(show, messages_whoever_writes_them) {
  ZbErr err;
  zb_fail(&err, "try \033[1m", "cannot open %s: %s", "bad\033[2J\xff", "No such file");
  cr_expect_str_eq(err.text, "cannot open bad\\x1b[2J\\xff: No such file");
  cr_expect_str_eq(err.help, "try \\x1b[1m");
  char text[12] = "ab\033\033\033", first[12] = "\033a";
  zb_show_all(text, sizeof text);
  cr_expect_str_eq(text, "ab\\x1b\\x1b", "what does not fit is cut off whole");
  zb_show_all(first, sizeof first);
  cr_expect_str_eq(first, "\\x1ba");
}

Test(show, added_to_a_text) {
  ZbText t = {0};
  zb_text_show(&t, "", 0);
  for (int i = 0; i < 100; i++) zb_text_show(&t, "a\nb\xff\xc3\xbc", 6);
  cr_assert_eq(t.len, 100 * strlen("a\\nb\\xff\xc3\xbc"));
  for (int i = 0; i < 100; i++) cr_assert(!memcmp(t.s + 10 * i, "a\\nb\\xff\xc3\xbc", 10));
  zb_text_free(&t);
}

Test(show, plain_characters) {
  cr_expect_eq(zb_plain("", 0), 0);
  cr_expect_eq(zb_plain("x", 1), 1);
  cr_expect_eq(zb_plain("\xc3\xbc", 2), 2);
  cr_expect_eq(zb_plain("\xc3\xbc", 1), 0);
  cr_expect_eq(zb_plain("\n", 1), 0);
}

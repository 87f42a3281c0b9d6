/* Whatever bytes a source, its name or an option holds, messages are text that a terminal and JSON can take,
 * and short. */
#include "lang/internal.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static void expect_plain(const ZbText *t) {
  cr_assert(t->s && t->len < 64 << 10, "%zu bytes", t->len);
  for (size_t i = 0, n; i < t->len; i += n) {
    n = t->s[i] == '\n' ? 1 : zb_plain(t->s + i, t->len - i);
    cr_assert(n, "byte %zu is 0x%02x: %s", i, (unsigned char)t->s[i], t->s);
  }
}

/* Loads it and asks for a model, a recipe and a block that are not there; all that is said, in both forms. */
static void messages(const char *name, const char *text, size_t n, ZbText out[2]) {
  ZbArena *a = zb_arena_new();
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  ZlProgram *p = zl_load_text(a, s, d, name, text, n, NULL);
  zl_model(p, d, name);
  zl_recipe(p, d, name);
  ZlDiag *g = zl_report(d, ZL_Z0102, (ZlSpan){0, 0, (uint32_t)n}, "all of %s", name);
  zl_label(g, "%s", name);
  zl_also(g, (ZlSpan){0, 0, 1}, "%s", name);
  zl_note(g, "%s", name);
  zl_help(g, "%s", name);
  zl_print_text(d, &out[0]);
  zl_print_json(d, &out[1]);
  zb_arena_free(a);
}

static void try(const char *name, const char *text, size_t n) {
  ZbText out[2] = {{0}};
  messages(name, text, n, out);
  for (int i = 0; i < 2; i++) expect_plain(&out[i]);
  for (char *save = NULL, *line = strtok_r(out[1].s, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
    cJSON *o = cJSON_Parse(line);
    cr_expect(o, "no JSON: %s", line);
    cJSON_Delete(o);
  }
  for (int i = 0; i < 2; i++) zb_text_free(&out[i]);
}
#define TRY(name, text) try(name, text, sizeof text - 1)

Test(bytes, messages_are_plain) {
  TRY("good.zug", "model M { axis batch }");
  TRY("esc\033[31m\xff\xe2\x80\xae.zug", "model M { axis batch \033]0;x\a y = \xff\xfe + \"\xe9 }");
  TRY("new\nline.zug",
      "model caf\xc3\xa9\xff { \xe2\x80\xae = \xed\xa0\x80 \xf4\x90\x80\x80\r\n\tx\0y = 3 \x7f}");
  TRY("bom.zug", "\xef\xbb\xbfmodel M { axis batch }");
  char all[256 * 3];
  for (int i = 0; i < 256; i++)
    all[3 * i] = 'a', all[3 * i + 1] = (char)i, all[3 * i + 2] = i % 3 ? ' ' : '\n';
  try("all.zug", all, sizeof all);
}

Test(bytes, what_is_long_is_cut) {
  enum { N = 1 << 20 };
  static const char *const heads[] = {"", "model M { y = ", "recipe ", "1", "\"", "\xff", "use a."};
  char *text = malloc(N), name[5000];
  memset(name, 'x', sizeof name);
  name[sizeof name - 1] = 0;
  for (size_t k = 0; k < sizeof heads / sizeof *heads; k++) {
    memset(text, 'x', N);
    memcpy(text, heads[k], strlen(heads[k]));
    try(name, text, N);
    text[N - 1] = 0;
    try(name, text, N - 1);
  }
  free(text);
}

/* Marks lie below what they mark: tabs take one column, what is not text one a byte, wide characters two. */
Test(bytes, carets_are_below) {
  static const struct {
    const char *text, *shown;
  } cases[] = {{"a\tb ; c", "1 | a b ; c\n  |     ^\n"},
               {"\xff\xfe ; c", "1 | ?? ; c\n  |    ^\n"},
               {"\xe6\xa8\xa1\xe5\x9e\x8b ; c", "1 | \xe6\xa8\xa1\xe5\x9e\x8b ; c\n  |      ^\n"},
               {"\xc3\xa9 e\xcc\x81 ; c", "1 | \xc3\xa9 e\xcc\x81 ; c\n  |     ^\n"},
               {"\xe2\x80\xae ; c", "1 | ??? ; c\n  |     ^\n"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ZbText out[2] = {{0}};
    messages("t.zug", cases[i].text, strlen(cases[i].text), out);
    cr_expect(strstr(out[0].s, cases[i].shown), "%s in:\n%s", cases[i].shown, out[0].s);
    for (int k = 0; k < 2; k++) zb_text_free(&out[k]);
  }
}

static size_t utf8(uint32_t c, char out[4]) {
  static const uint32_t end[] = {0x80, 0x800, 0x10000};
  size_t n = 1;
  while (n < 4 && c >= end[n - 1]) n++;
  for (size_t k = n; k-- > 1; c >>= 6) out[k] = (char)(0x80 | (c & 0x3f));
  out[0] = (char)(n == 1 ? c : (0xf00u >> n & 0xff) | c);
  return n;
}

/* Wide and zero-width characters by ranges: the first and the last of each, and those around it, which take
 * one column or, as they control a terminal, one `?` a byte. */
Test(bytes, columns_of_characters) {
  static const struct {
    uint32_t from, to, width, before, after;
  } ranges[] = {{0x21, 0x7e, 1, 1, 1},       {0xa0, 0x2ff, 1, 2, 0},      {0x300, 0x36f, 0, 1, 1},
                {0x1100, 0x115f, 2, 1, 1},   {0x200b, 0x200d, 0, 1, 3},   {0x20d0, 0x20ff, 0, 1, 1},
                {0x2e80, 0xa4cf, 2, 1, 1},   {0xac00, 0xd7a3, 2, 1, 1},   {0xf900, 0xfaff, 2, 1, 1},
                {0xfe00, 0xfe0f, 0, 1, 1},   {0xfe30, 0xfe6f, 2, 1, 1},   {0xff00, 0xff60, 2, 3, 1},
                {0xffe0, 0xffe6, 2, 1, 1},   {0x1f300, 0x1f64f, 2, 1, 1}, {0x1f900, 0x1f9ff, 2, 1, 1},
                {0x20000, 0x3fffd, 2, 1, 1}, {0x40000, 0x10ffff, 1, 1, 4}};
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
    const uint32_t of[][2] = {{ranges[i].from - 1, ranges[i].before},
                              {ranges[i].from, ranges[i].width},
                              {(ranges[i].from + ranges[i].to) / 2, ranges[i].width},
                              {ranges[i].to, ranges[i].width},
                              {ranges[i].to + 1, ranges[i].after}};
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
      char text[8] = "a"; /* a mark of the order of bytes is not a part of a text that begins with it */
      uint32_t n = 1 + (uint32_t)utf8(of[k][0], text + 1);
      text[n] = '!';
      ZbArena *a = zb_arena_new();
      ZlSources *s = zl_sources_new(a);
      ZlDiags *d = zl_diags_new(a, s);
      ZbText out = {0};
      zl_load_text(a, s, d, "t.zug", text, n + 1, NULL);
      d = zl_diags_new(a, s);
      zl_report(d, ZL_Z0102, (ZlSpan){0, n, n + 1}, "here");
      zl_print_text(d, &out);
      const char *want = zb_printf(a, "!\n  | %*s^\n", (int)of[k][1] + 1, "");
      cr_expect(strstr(out.s, want), "U+%04X takes %u columns: %s", of[k][0], of[k][1], out.s);
      zb_text_free(&out);
      zb_arena_free(a);
    }
  }
}

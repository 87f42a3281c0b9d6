/* Sources by line, programs by name, and messages with several places, as text and as JSON. */
#include "lang/internal.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

typedef struct {
  ZbArena *a;
  ZlSources *s;
  ZlDiags *d;
  int32_t file;
  ZbText out;
} Case;

static Case begin(const char *text) {
  Case c = {.a = zb_arena_new()};
  c.s = zl_sources_new(c.a);
  c.d = zl_diags_new(c.a, c.s);
  c.file = zl_source_add(c.s, "one.zug", text, strlen(text));
  return c;
}
static void done(Case *c) {
  zb_text_free(&c->out);
  zb_arena_free(c->a);
}
static const char *text_of(Case *c) {
  zb_text_free(&c->out);
  zl_print_text(c->d, &c->out);
  return c->out.s;
}
static ZlSpan span(uint32_t start, uint32_t end) { return (ZlSpan){0, start, end}; }

static void is_line(const Case *c, uint32_t line, const char *want) {
  uint32_t len = 77;
  const char *got = zl_source_line(c->s, c->file, line, &len);
  if (!want) cr_expect(!got && len == 77, "line %u", line);
  else
    cr_expect(got && len == strlen(want) && !memcmp(got, want, len), "line %u: '%.*s'", line, (int)len, got);
}

static void is_at(const Case *c, uint32_t at, uint32_t line, uint32_t col) {
  uint32_t l, k;
  zl_source_at(c->s, c->file, at, &l, &k);
  cr_expect(l == line && k == col, "byte %u: %u:%u", at, l, k);
}

Test(sources, lines) {
  Case c = begin("one\n\r\ntwo\r\n\nlast");
  is_line(&c, 0, NULL);
  is_line(&c, 1, "one");
  is_line(&c, 2, "");
  is_line(&c, 3, "two");
  is_line(&c, 4, "");
  is_line(&c, 5, "last");
  is_line(&c, 6, NULL);
  is_at(&c, 0, 1, 1);
  is_at(&c, 3, 1, 4);
  is_at(&c, 4, 2, 1);
  is_at(&c, 6, 3, 1);
  is_at(&c, 11, 4, 1);
  is_at(&c, 12, 5, 1);
  is_at(&c, 16, 5, 5);
  done(&c);
  c = begin("");
  is_line(&c, 1, "");
  is_line(&c, 2, NULL);
  done(&c);
}

/* Texts of one line hang below each other from right to left, with a stroke for each that is still
 * to come. */
Test(messages, three_places_of_a_line_and_others) {
  Case c = begin("abc def ghi jkl\n2\n3\n4\n5\n6\n7\n8\n9\nten\n");
  int32_t second = zl_source_add(c.s, "two.zug", "x\ny z\n", 6);
  ZlDiag *d = zl_report(c.d, ZL_Z0201, span(4, 7), "several");
  zl_label(d, "second");
  zl_also(d, span(8, 11), "third");
  zl_also(d, span(0, 3), "first");
  zl_also(d, span(12, 15), "fourth");
  zl_also(d, (ZlSpan){second, 4, 5}, "elsewhere");
  zl_also(d, (ZlSpan){second, 2, 3}, "%s", "");
  zl_also(d, span(34, 34), "end");
  zl_also(d, ZL_NOWHERE, "nowhere");
  zl_also(d, span(16, 17), "below");
  zl_note(d, "one");
  zl_note(d, "two");
  zl_help(d, "three");
  cr_expect_str_eq(text_of(&c), "error[Z0201]: several\n"
                                "  --> one.zug:1:5\n"
                                "   |\n"
                                " 1 | abc def ghi jkl\n"
                                "   | --- ^^^ --- --- fourth\n"
                                "   | |   |   third\n"
                                "   | |   second\n"
                                "   | first\n"
                                " 2 | 2\n"
                                "   | - below\n"
                                "...\n"
                                "10 | ten\n"
                                "   |   - end\n"
                                "  ::: two.zug:2:3\n"
                                "   |\n"
                                " 2 | y z\n"
                                "   | - - elsewhere\n"
                                "   = note: one\n"
                                "   = note: two\n"
                                "   = help: three\n\n");
  done(&c);
}

/* Where marks lie on top of each other the later one is seen; a text that cannot stand beside its mark is
 * below. */
Test(messages, marks_on_marks) {
  Case c = begin("abcdefgh\n");
  ZlDiag *d = zl_report(c.d, ZL_Z0201, span(0, 8), "outer");
  zl_label(d, "all");
  zl_also(d, span(2, 4), "inner");
  zl_also(d, span(2, 6), "longer");
  cr_expect_str_eq(text_of(&c), "error[Z0201]: outer\n"
                                " --> one.zug:1:1\n"
                                "  |\n"
                                "1 | abcdefgh\n"
                                "  | ^^----^^\n"
                                "  | | longer\n"
                                "  | | inner\n"
                                "  | all\n\n");
  done(&c);
}

/* Only part of a long line is shown, around the first mark; columns are counted in characters. */
Test(messages, long_lines_and_wide_characters) {
  ZbText line = {0};
  zb_text_add(&line, "\xc3\xa4\xc3\xb6\t\x01 b\n");
  for (int i = 0; i < 30; i++) zb_text_add(&line, "%09d,", i);
  Case c = begin(line.s);
  zl_label(zl_report(c.d, ZL_Z0201, span(2, 4), "wide"), "here");
  zl_label(zl_report(c.d, ZL_Z0201, span(7, 8), "after"), "b");
  zl_label(zl_report(c.d, ZL_Z0201, span(9 + 200, 9 + 203), "far"), "far");
  zl_label(zl_report(c.d, ZL_Z0201, span(9 + 80, 9 + 81), "near"), "near");
  zl_label(zl_report(c.d, ZL_Z0201, span(9 + 10, 9 + 190), "long"), "long");
  const char *text = text_of(&c);
  cr_expect(strstr(text, "1 | \xc3\xa4\xc3\xb6 ? b\n  |  ^ here\n"), "%s", text);
  cr_expect(strstr(text, "1 | \xc3\xa4\xc3\xb6 ? b\n  |      ^ b\n"), "%s", text);
  cr_expect(strstr(text, "2 | 000000012,000000013,"), "%s", text);
  char *near = zb_printf(c.a, "2 | %.160s\n  | %80s^ near\n", line.s + 9, "");
  cr_expect(strstr(text, near), "%s", text);
  char *far = zb_printf(c.a, "2 | %.160s\n  | %80s^^^ far\n", line.s + 9 + 120, "");
  cr_expect(strstr(text, far), "%s", text);
  cr_expect(strstr(text, zb_printf(c.a, "| %10s^", "")), "%s", text);
  for (const char *p = text; *p; p += strcspn(p, "\n") + 1) cr_expect(strcspn(p, "\n") < 180);
  zb_text_free(&line);
  done(&c);
}

/* A line and a mark far longer than what is shown: what is in sight of both is as it would be of shorter
 * ones. */
Test(messages, very_long_marks) {
  char line[6001];
  memset(line, 'a', sizeof line - 1);
  line[sizeof line - 1] = 0;
  Case c = begin(line);
  ZlDiag *d = zl_report(c.d, ZL_Z0201, span(1, 6000), "long");
  zl_label(d, "all");
  char marks[161] = " ";
  memset(marks + 1, '^', 159);
  const char *text = text_of(&c);
  cr_expect(strstr(text, zb_printf(c.a, "1 | %.160s\n  | %s", line, marks)), "%s", text);
  for (const char *p = text; *p; p += strcspn(p, "\n") + 1) cr_expect(strcspn(p, "\n") < 180);
  zl_report(c.d, ZL_Z0201, span(3000, 3003), "short");
  cr_expect(strstr(text_of(&c), zb_printf(c.a, "1 | %.160s\n  | %80s^^^\n", line, "")), "%s", c.out.s);
  done(&c);
}

/* A wide character of which one half would be out of sight is left out; a line's end is not marked. */
Test(messages, edges_of_lines) {
  ZbText line = {0};
  for (int i = 0; i < 159; i++) zb_text_put(&line, "a", 1);
  zb_text_add(&line, "%s", "\xe6\xa8\xa1\xe6\xa8\xa1\ntwo\r\n");
  Case c = begin(line.s);
  zl_report(c.d, ZL_Z0201, span(0, 1), "wide");
  cr_expect(strstr(text_of(&c), zb_printf(c.a, "1 | %.159s\n  | ^\n", line.s)), "%s", c.out.s);
  uint32_t two = (uint32_t)(strstr(line.s, "two") - line.s);
  zl_report(c.d, ZL_Z0201, span(two + 2, two + 4), "end");
  cr_expect(strstr(text_of(&c), "2 | two\n  |   ^\n"), "%s", c.out.s);
  zb_text_free(&line);
  done(&c);
}

/* What is shown begins 80 columns before the mark; of a wide character there only its second half is in
 * sight. */
Test(messages, half_a_character) {
  ZbText line = {0};
  zb_text_add(&line, "%20s\xe6\xa8\xa1%0200d", "", 0);
  Case c = begin(line.s);
  zl_report(c.d, ZL_Z0201, span(23 + 79, 23 + 80), "half");
  cr_expect(strstr(text_of(&c), zb_printf(c.a, "1 |  %0159d\n  | %80s^\n", 0, "")), "%s", c.out.s);
  zb_text_free(&line);
  done(&c);
}

/* Messages have 2000 bytes; the end of longer ones is left out, and their length told. */
Test(messages, of_any_length) {
  char text[2002];
  memset(text, 'x', sizeof text);
  Case c = begin("abc\n");
  zl_report(c.d, ZL_Z0201, ZL_NOWHERE, "%.2000s", text);
  cr_expect_str_eq(text_of(&c), zb_printf(c.a, "error[Z0201]: %.2000s\n\n", text));
  zl_report(c.d, ZL_Z0201, ZL_NOWHERE, "%.2001s", text);
  cr_expect(strstr(text_of(&c), zb_printf(c.a, "error[Z0201]: %.2000s... (2001 bytes)\n\n", text)), "%s",
            c.out.s);
  done(&c);
}

Test(messages, all_of_it_as_json) {
  Case c = begin("abc\ndef\n");
  ZlDiag *d = zl_report(c.d, ZL_Z0201, span(1, 5), "a \"b\"");
  zl_also(d, span(4, 5), "there");
  zl_also(d, span(0, 1), "and there");
  zl_note(d, "n1");
  zl_note(d, "n2");
  zl_help(d, "h1");
  zl_report(c.d, ZL_Z0112, ZL_NOWHERE, "no place");
  zl_print_json(c.d, &c.out);
  cr_expect_str_eq(
      c.out.s,
      "{\"severity\":\"error\",\"code\":\"Z0201\",\"message\":\"a "
      "\\\"b\\\"\",\"file\":\"one.zug\",\"line\":1,"
      "\"column\":2,\"end_line\":2,\"end_column\":2,\"also\":[{\"file\":\"one.zug\",\"line\":2,\"column\":1,"
      "\"end_line\":2,\"end_column\":2,\"label\":\"there\"},{\"file\":\"one.zug\",\"line\":1,\"column\":1,"
      "\"end_line\":1,\"end_column\":2,\"label\":\"and "
      "there\"}],\"notes\":[\"n1\",\"n2\"],\"help\":[\"h1\"]}\n"
      "{\"severity\":\"warning\",\"code\":\"Z0112\",\"message\":\"no "
      "place\",\"also\":[],\"notes\":[],\"help\":[]}\n");
  done(&c);
}

/* The first hundred reports are kept, and no more said of the others than how many. */
Test(messages, hundred_are_kept) {
  Case c = begin("abc\n");
  for (int i = 0; i < 100; i++) {
    cr_expect(!zl_full(c.d));
    zl_report(c.d, ZL_Z0201, ZL_NOWHERE, "report %d", i);
  }
  cr_expect(strstr(text_of(&c), "report 99\n\n") && !strstr(c.out.s, "more"));
  cr_expect(zl_full(c.d));
  zl_report(c.d, ZL_Z0112, ZL_NOWHERE, "report 100");
  cr_expect(zl_errors(c.d) == 100 && zl_warnings(c.d) == 1);
  cr_expect(strstr(text_of(&c), "report 99\n\n... and 1 more\n\n"));
  done(&c);
}

/* A report is said once: the same code, place and text. */
Test(messages, what_makes_a_report_the_same) {
  Case c = begin("abc\ndef\n");
  zl_source_add(c.s, "two.zug", "x\n", 2);
  for (int i = 0; i < 2; i++) {
    zl_report(c.d, ZL_Z0201, span(0, 1), "one");
    zl_report(c.d, ZL_Z0202, span(0, 1), "one");
    zl_report(c.d, ZL_Z0201, span(0, 2), "one");
    zl_report(c.d, ZL_Z0201, span(1, 2), "one");
    zl_report(c.d, ZL_Z0201, (ZlSpan){1, 0, 1}, "one");
    zl_report(c.d, ZL_Z0201, span(0, 1), "two");
    zl_report(c.d, ZL_Z0201, (ZlSpan){-1, i, i + 1}, "nowhere is one place");
  }
  cr_expect_eq(zl_errors(c.d), 7);
  done(&c);
}

/* "FILE" and "FILE:NAME": as tools are told what to take. */
Test(programs, loaded_with_a_name) {
  cr_assert(chdir(ZUG_SRC "/tests/data/lang") == 0);
  Case c = begin("");
  const char *name = "";
  ZlProgram *p = zl_load_named(c.a, c.s, c.d, "recipes.zug:second", NULL, &name);
  cr_assert(p);
  cr_expect_str_eq(name, "second");
  cr_expect_str_eq(p->files[0]->name, "recipes.zug");
  cr_expect(zl_load_named(c.a, c.s, c.d, "recipes.zug", NULL, &name) && !name);
  cr_expect(zl_load_named(c.a, c.s, c.d, "recipes.zug:", NULL, &name) && name && !*name);
  cr_expect_null(zl_load_named(c.a, c.s, c.d, "syntax.zug:a", NULL, &name));
  cr_expect(zl_errors(c.d) > 0);
  done(&c);
}

/* The first 24 names are listed, and the others counted. */
Test(programs, names_as_text) {
  Case c = begin("");
  for (uint32_t n = 0; n <= 26; n++) {
    ZlNames names = {0};
    ZbText want = {0};
    for (uint32_t i = 0; i < n; i++) {
      ZB_PUSH(c.a, names.at, names.n, ((ZlName){zb_printf(c.a, "n%u", i), ZL_NOWHERE}));
      if (i < 24) zb_text_add(&want, "%s`n%u`", i ? ", " : "", i);
    }
    if (n > 24) zb_text_add(&want, " and %u more", n - 24);
    cr_expect_str_eq(zl_names_text(c.a, names), want.s ? want.s : "");
    zb_text_free(&want);
  }
  done(&c);
}

static void nested_repeats(int depth, bool ok) {
  ZbText t = {0};
  zb_text_add(&t, "block f(x: real) -> real {");
  for (int i = 0; i < depth; i++) zb_text_add(&t, " y = x repeat 2 {");
  zb_text_add(&t, " y = x z = x");
  for (int i = 0; i < depth; i++) zb_text_add(&t, " } y = x");
  zb_text_add(&t, " return x }");
  Case c = {.a = zb_arena_new()};
  c.s = zl_sources_new(c.a);
  c.d = zl_diags_new(c.a, c.s);
  zl_load_text(c.a, c.s, c.d, "deep.zug", t.s, t.len, NULL);
  if (ok) cr_expect_eq(zl_errors(c.d), 0, "%s", text_of(&c));
  else cr_expect(strstr(text_of(&c), "`repeat` is nested more than 256 deep"), "%s", c.out.s);
  if (!ok) cr_expect_eq(zl_errors(c.d), 1, "%s", c.out.s); /* said once, however deep it goes on */
  zb_text_free(&t);
  done(&c);
}

Test(programs, repeats_in_repeats) {
  nested_repeats(ZL_MAX_NESTING, true);
  nested_repeats(ZL_MAX_NESTING + 1, false);
  nested_repeats(ZL_MAX_NESTING + 4, false);
}

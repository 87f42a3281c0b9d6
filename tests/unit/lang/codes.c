/* The list of codes, the error index and the tests keep up with each other. */
#include "tests/unit/golden.h"
#include "lang/internal.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <string.h>

static const struct {
  const char *code, *title;
} codes[] = {
#define E(code, severity, title) {#code, title},
#include "lang/errors.def"
};
#define NCODES (sizeof codes / sizeof *codes)

Test(codes, every_code_is_explained) {
  for (size_t i = 0; i < NCODES; i++) {
    const char *text = zl_explain(codes[i].code);
    cr_expect(text, "%s has no section in ERRORS.md", codes[i].code);
    if (!text) continue;
    char head[200];
    int n = snprintf(head, sizeof head, "## %s: %s\n", codes[i].code, codes[i].title);
    cr_expect(strncmp(text, head, (size_t)n) == 0, "the section of %s should begin with: %s", codes[i].code,
              head);
    cr_expect(strlen(text) > (size_t)n + 40, "the section of %s says nothing", codes[i].code);
    cr_expect(strstr(text, "\nRepair: "), "the section of %s names no repair", codes[i].code);
  }
}

Test(codes, every_section_has_its_code) {
  size_t n = 0;
  for (const char *const *e = zl_errors_md; *e; e += 2, n++) {
    bool known = false;
    for (size_t i = 0; i < NCODES; i++) known |= strcmp(codes[i].code, e[0]) == 0;
    cr_expect(known, "ERRORS.md has a section %s, errors.def no such code", e[0]);
  }
  cr_expect(n == NCODES, "%zu sections, %zu codes", n, NCODES);
}

Test(codes, rows_are_in_order) {
  for (size_t i = 1; i < NCODES; i++)
    cr_expect(strcmp(codes[i - 1].code, codes[i].code) < 0, "%s is out of order", codes[i].code);
}

Test(codes, unknown_codes_have_no_explanation) {
  cr_expect_null(zl_explain("Z9999"));
  cr_expect_null(zl_explain(""));
  cr_expect_null(zl_explain("z0001"));
}

/* Appends the texts of a folder's files whose names end so. */
static void read_all(ZbArena *a, const char *folder, const char *ending, ZbText *out) {
  DIR *dir = opendir(folder);
  cr_assert(dir, "%s", folder);
  for (struct dirent *e; (e = readdir(dir));) {
    size_t n = strlen(e->d_name), k = strlen(ending), bytes;
    if (n <= k || strcmp(e->d_name + n - k, ending) != 0) continue;
    const char *text = zb_read_file(a, zb_printf(a, "%s/%s", folder, e->d_name), 1 << 24, &bytes, NULL);
    cr_assert(text, "%s", e->d_name);
    zb_text_put(out, text, bytes);
  }
  closedir(dir);
}

Test(codes, every_code_that_lang_reports_is_provoked) {
  ZbArena *a = zb_arena_new();
  ZbText source = {0}, tests = {0};
  read_all(a, ZUG_SRC "/lang", ".c", &source);
  read_all(a, ZUG_SRC "/lang", ".l", &source);
  read_all(a, ZUG_SRC "/lang", ".y", &source);
  golden_read(ZUG_SRC "/tests/data/lang", &tests);
  read_all(a, ZUG_SRC "/tests/unit/lang", ".c", &tests);
  size_t reported = 0;
  for (size_t i = 0; i < NCODES; i++) {
    if (!strstr(source.s, zb_printf(a, "ZL_%s", codes[i].code))) continue;
    reported++;
    bool golden = strstr(tests.s, zb_printf(a, "[%s]: ", codes[i].code));
    bool unit = strstr(tests.s, zb_printf(a, "ZL_%s", codes[i].code));
    cr_expect(golden || unit, "no test provokes %s", codes[i].code);
  }
  cr_expect(reported > 20);
  zb_text_free(&source);
  zb_text_free(&tests);
  zb_arena_free(a);
}

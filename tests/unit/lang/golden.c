/* Every tests/lang/NAME.zug gives exactly the messages in NAME.expect, and the tree and the recipes of a file
 * without errors; every tests/lang/format/NAME.zug is laid out as NAME.expect. A new case is two new files; `make regenerate-lang` writes all .expect files anew: read the
 * difference before committing. */
#include "tests/unit/lang/render.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <string.h>
#include <unistd.h>

/* The first line that differs, for the report. */
static const char *difference(const char *want, const char *got, char line[300]) {
  uint32_t number = 1;
  while (*want && *got) {
    size_t a = strcspn(want, "\n"), b = strcspn(got, "\n");
    if (a != b || memcmp(want, got, a) != 0) break;
    want += a + (want[a] == '\n');
    got += b + (got[b] == '\n');
    number++;
  }
  snprintf(line, 300, "line %u: expected '%.*s', found '%.*s'", number, (int)strcspn(want, "\n"), want,
           (int)strcspn(got, "\n"), got);
  return line;
}

static void all_of(const char *folder, void render(const char *path, ZbText *out), int least) {
  cr_assert(chdir(folder) == 0);
  DIR *dir = opendir(".");
  cr_assert(dir);
  int cases = 0;
  for (struct dirent *e; (e = readdir(dir));) {
    size_t n = strlen(e->d_name);
    if (n < 5 || strcmp(e->d_name + n - 4, ".zug") != 0) continue;
    ZbArena *a = zb_arena_new();
    ZbErr err;
    size_t bytes;
    char line[300];
    const char *want =
        zb_read_file(a, zb_printf(a, "%.*s.expect", (int)n - 4, e->d_name), 1 << 20, &bytes, &err);
    ZbText got = {0};
    render(e->d_name, &got);
    if (!want) cr_expect(false, "%s", err.text);
    else cr_expect(strcmp(got.s, want) == 0, "%s: %s", e->d_name, difference(want, got.s, line));
    zb_text_free(&got);
    zb_arena_free(a);
    cases++;
  }
  closedir(dir);
  cr_expect(cases >= least);
}

Test(golden, messages) { all_of(ZUG_SRC "/tests/lang", render_file, 40); }
Test(golden, formats) { all_of(ZUG_SRC "/tests/lang/format", render_format, 6); }

/* Every case of tests/data/lang gives exactly the messages that are expected, and the tree and the recipes of a
 * file without errors; every case of tests/data/lang/format is laid out as expected. `make regenerate-lang`
 * writes what is expected anew: read the difference before you commit it. */
#include "tests/unit/golden.h"
#include "tests/unit/lang/render.h"

#include <criterion/criterion.h>

static void check(const char *file, void render(const char *path, ZbText *out)) {
  ZbText got = {0};
  render(file, &got);
  golden_expect(file, got.s);
  zb_text_free(&got);
}
static void check_messages(const char *file) { check(file, render_file); }
static void check_format(const char *file) { check(file, render_format); }

Test(golden, messages) { cr_expect_geq(golden_each(ZUG_SRC "/tests/data/lang", check_messages), 40); }
Test(golden, formats) { cr_expect_geq(golden_each(ZUG_SRC "/tests/data/lang/format", check_format), 6); }

/* Every case of tests/data/lang/types gives exactly the messages that are expected, and every message of the
 * compiler is among them. A first line `# zc: -D n=3` gives options. `make regenerate-types` writes what is
 * expected anew: read the difference before you commit it. */
#include "tests/unit/compiler/load.h"
#include "tests/unit/golden.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <string.h>

static void check_case(const char *file) {
  Case c = load_file(file);
  size_t n;
  const char *text = zb_read_file(c.a, file, 1 << 20, &n, NULL);
  cr_assert(text, "%s", file);
  if (!strncmp(text, "# zc: ", 6)) set_options(&c, zb_strndup(c.a, text + 6, strcspn(text + 6, "\n")));
  if (c.opt.lora || c.opt.nadapters) compile(&c); /* what is wrong with adapters is known of a graph */
  else if (c.p && !zl_errors(c.d)) zc_check(c.a, c.s, c.d, c.p, &c.opt);
  golden_expect(file, messages(&c));
  done(&c);
}

Test(messages, golden) {
  int cases = golden_each(ZUG_SRC "/tests/data/lang/types", check_case);
  cr_expect(cases > 15);
}

static void read_all(ZbArena *a, const char *folder, const char *ending, ZbText *out) {
  DIR *dir = opendir(folder);
  cr_assert(dir, "%s", folder);
  for (struct dirent *f; (f = readdir(dir));) {
    size_t n = strlen(f->d_name), k = strlen(ending), bytes;
    if (n <= k || strcmp(f->d_name + n - k, ending)) continue;
    const char *text = zb_read_file(a, zb_printf(a, "%s/%s", folder, f->d_name), 1 << 24, &bytes, NULL);
    zb_text_put(out, text, bytes);
  }
  closedir(dir);
}

Test(messages, every_code_is_provoked) {
  ZbArena *a = zb_arena_new();
  ZbText source = {0}, tests = {0};
  read_all(a, ZUG_SRC "/compiler", ".c", &source);
  golden_read(ZUG_SRC "/tests/data/lang/types", &tests);
  int reported = 0;
  for (int code = 0; code < ZL_CODE_COUNT; code++) {
    const char *name = zl_code_name((ZlCode)code);
    if (!strstr(source.s, zb_printf(a, "ZL_%s,", name))) continue;
    reported++;
    cr_expect(strstr(tests.s, zb_printf(a, "[%s]: ", name)), "no test provokes %s", name);
  }
  cr_expect(reported > 20);
  zb_text_free(&source);
  zb_text_free(&tests);
  zb_arena_free(a);
}

/* One cause, one report: what depends on a mistake says nothing. */
Test(messages, one_report_a_cause) {
  Case c = load_text("model M { axis batch, a = 2  input x: real[batch, a]\n"
                     "  y = x + nothing  z = exp(y) * y  repeat 3 as r { z = z * z }\n"
                     "  output o = sum[a](z)  aux mean[batch](z)  loss o per z }");
  cr_expect_null(compile(&c));
  cr_expect(zl_errors(c.d) == 1, "%s", messages(&c));
  done(&c);
}

/* A block whose body is wrong still has its declared type, so the next mistake is found in the same run. */
Test(messages, checking_goes_on_behind_a_wrong_block) {
  Case c = load_text("block bad[a](x: real[.., a]) -> real[..] { return nothing }\n"
                     "model M { axis batch, a = 2, b = 2  input x: real[batch, a]\n"
                     "  loss sum[b](bad[a](x)) per x }");
  cr_expect_null(compile(&c));
  const char *text = messages(&c);
  cr_expect(zl_errors(c.d) == 2 && strstr(text, "nothing") && strstr(text, "no axis `b`"), "%s", text);
  done(&c);
}

/* A call of the wrong number of results has no value: what is made of it says nothing. */
Test(messages, no_value_of_several_results) {
  Case c =
      load_text("block two(x: real[..]) -> real[..], real[..] { return x, x }\n"
                "model M { axis batch, a = 2  input x: real[batch, a]\n"
                "  k = 3 * 2  y = two(x) * 2  k = 3 + 2  z = sum[a](y) + sum[a](1 * two(x))  p, q = exp(x)\n"
                "  loss sum[a](p) * sum[a](q) per z }");
  cr_expect_null(compile(&c));
  cr_expect(zl_errors(c.d) == 3, "%s", messages(&c));
  done(&c);
}

/* What the language lets one write and no pass can differentiate: where, and the way out, which is one. */
Test(messages, no_derivative) {
  static const char *const given[] = {"at = %sf32(sum[f](x * p))%s", "speeds = %sf32(p)%s"};
  for (size_t i = 0; i < sizeof given / sizeof *given; i++)
    for (int stopped = 0; stopped < 2; stopped++) {
      ZbText text = {0};
      zb_text_add(&text, "model M { axis batch, s = 3, f = 4  input x: real[batch, s, f]  param p[f] = 1\n"
                         "  loss rope[s, f](x * p, ");
      zb_text_add(&text, given[i], stopped ? "stop(" : "", stopped ? ")" : "");
      zb_text_add(&text, ") per samples() }");
      Case c = load_text(text.s);
      cr_expect(!compile(&c) == !stopped, "%s: %s", text.s, messages(&c));
      cr_expect_str_eq(messages(&c), stopped ? ""
                                             : "error[Z0202]: test.zug:2:8: rotate has no derivative of its "
                                               "positions and speeds\n"
                                               "  = help: write `stop(...)` around what they are made "
                                               "of\n\n");
      zb_text_free(&text);
      done(&c);
    }
}

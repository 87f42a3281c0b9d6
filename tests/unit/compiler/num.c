/* Static numbers are exact where they can be. */
#include "compiler/elab.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static Num quotient(Num a, Num b) {
  Num q = {0};
  cr_assert(num_div(a, b, &q));
  return q;
}
static Num call(const char *f, Num a) {
  Num out = {0};
  cr_assert(num_call(f, &a, &out), "%s(%g)", f, a.v);
  return out;
}
#define IS_INT(x, want)                                                                                      \
  do {                                                                                                       \
    int64_t i_ = -12345;                                                                                     \
    cr_expect(num_is_int((x), &i_) && i_ == (want), "%s: %lld", #x, (long long)i_);                          \
  } while (0)

Test(num, fractions_are_exact) {
  Num third = quotient(num_int(1), num_int(3)), i;
  IS_INT(num_mul(third, num_int(6)), 2);
  IS_INT(num_add(num_add(third, third), third), 1);
  IS_INT(num_mul(num_double(0.1), num_int(30)), 3);
  IS_INT(num_mul(num_double(1e-5), num_int(100000)), 1);
  IS_INT(num_sub(num_double(2.5), num_double(0.5)), 2);
  IS_INT(num_neg(quotient(num_int(6), num_int(-3))), 2);
  IS_INT(num_mul(quotient(num_int(8), num_int(3)), num_int(768)), 2048);
  int64_t n;
  cr_expect(!num_is_int(quotient(num_int(768), num_int(10)), &n));
  cr_expect(!num_div(third, num_int(0), &i));
}

Test(num, functions) {
  IS_INT(call("sqrt", num_int(144)), 12);
  IS_INT(num_mul(call("sqrt", num_double(0.25)), num_int(2)), 1);
  IS_INT(call("floor", quotient(num_int(-7), num_int(2))), -4);
  IS_INT(call("ceil", quotient(num_int(-7), num_int(2))), -3);
  IS_INT(call("floor", num_int(5)), 5);
  int64_t n;
  cr_expect(!num_is_int(call("sqrt", num_int(2)), &n));
  Num out, minus = num_int(-1), zero = num_int(0);
  cr_expect(!num_call("sqrt", &minus, &out));
  cr_expect(!num_call("log", &zero, &out));
}

Test(num, too_large_is_a_double) {
  Num big = num_int(INT64_MAX), more = num_mul(big, big);
  cr_expect(!more.exact && more.v > 8e37);
  cr_expect(num_less(big, more) && !num_less(more, big) && num_equal(more, more));
  Num tiny = quotient(num_int(1), more);
  cr_expect(!tiny.exact && tiny.v > 0);
}

Test(num, order) {
  Num third = quotient(num_int(1), num_int(3)), half = num_double(0.5);
  cr_expect(num_less(third, half) && num_equal(half, quotient(num_int(2), num_int(4))));
}

Test(num, comparisons) {
  Num one = num_int(1), two = num_int(2), third = quotient(one, num_int(3)), root = call("sqrt", two);
  cr_expect(!num_equal(one, two) && !num_equal(two, one) && num_equal(two, two) && num_equal(root, root));
  cr_expect(!num_less(one, one) && num_less(one, root) && !num_less(root, one) && num_less(root, two));
  cr_expect(num_less(num_neg(one), third) && num_less(num_neg(two), num_neg(third)));
  Num pair[] = {one, two}, back[] = {two, one}, out;
  cr_assert(num_call("max", pair, &out));
  IS_INT(out, 2);
  cr_assert(num_call("max", back, &out));
  IS_INT(out, 2);
  cr_assert(num_call("min", pair, &out));
  IS_INT(out, 1);
  cr_assert(num_call("min", back, &out));
  IS_INT(out, 1);
}

Test(num, what_is_exact) {
  static const struct {
    double v;
    int64_t n, d;
  } cases[] = {{0, 0, 1},
               {-0.5, -1, 2},
               {0.1, 1, 10},
               {-2.5e-3, -1, 400},
               {1e-18, 1, 1000000000000000000},
               {123456789012345e-14, 24691357802469, 20000000000000},
               {3e15, 3000000000000000, 1},
               {0x1p61, 1ll << 61, 1},
               {-0x1p61, -(1ll << 61), 1},
               {5e18, 0, 0},
               {1e-19, 0, 0},
               {1e300, 0, 0},
               {1.0 / 3, 0, 0},
               {0.1234567890123456, 0, 0},
               {0x1p62, 0, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Num x = num_double(cases[i].v);
    cr_expect_eq(x.v, cases[i].v, "%g", cases[i].v);
    cr_expect_eq(x.exact, cases[i].d != 0, "%g", cases[i].v);
    if (x.exact)
      cr_expect(x.n == cases[i].n && x.d == cases[i].d, "%g is %lld / %lld", cases[i].v, (long long)x.n,
                (long long)x.d);
  }
  cr_expect(!num_double(__builtin_inf()).exact && !num_double(__builtin_nan("")).exact);
}

/* Beyond 64 bits a fraction is a double, on either side and in either part. */
Test(num, the_last_exact_ones) {
  Num most = num_int(INT64_MAX), least = num_int(-INT64_MAX), one = num_int(1), half = num_double(0.5);
  cr_expect(most.exact && least.exact && num_neg(most).exact && !num_int(INT64_MIN).exact);
  cr_expect(!num_add(most, one).exact && !num_sub(least, one).exact && num_sub(most, one).exact);
  Num tiny = quotient(one, most);
  cr_expect(tiny.exact && tiny.n == 1 && tiny.d == INT64_MAX && !num_mul(tiny, half).exact);
  cr_expect(num_add(quotient(one, num_int(6)), quotient(one, num_int(10))).d == 15);
  IS_INT(num_mul(quotient(num_int(-4), num_int(6)), quotient(num_int(9), num_int(-2))), 3);
  Num root = call("sqrt", num_int(2)), minus = num_neg(root);
  cr_expect(!minus.exact && minus.v == -root.v && num_add(root, minus).v == 0 && !num_add(root, one).exact);
  cr_expect(!num_mul(one, root).exact && num_mul(num_int(3), root).v == 3 * root.v &&
            quotient(one, root).v == 1 / root.v);
  IS_INT(call("sqrt", num_int(0)), 0);
  IS_INT(call("rsqrt", num_double(0.0625)), 4);
  cr_expect(!call("rsqrt", num_int(2)).exact);
  Num out, zero = num_int(0), big = num_int(1000);
  cr_expect(!num_call("rsqrt", &zero, &out) && !num_call("exp", &big, &out) && !num_div(one, zero, &out));
  IS_INT(call("sign", quotient(num_int(-7), num_int(2))), -1);
  IS_INT(call("sign", num_int(0)), 0);
  IS_INT(call("sign", call("exp", num_int(1))), 1);
  IS_INT(call("abs", num_int(-3)), 3);
  IS_INT(call("abs", num_int(4)), 4);
  Num two_and_half[] = {num_int(2), num_double(0.5)};
  cr_expect(num_call("pow", two_and_half, &out) && !out.exact && out.v == pow(2, 0.5));
  IS_INT(call("floor", num_int(-3)), -3);
  IS_INT(call("ceil", quotient(num_int(7), num_int(2))), 4);
  IS_INT(call("floor", quotient(num_int(7), num_int(2))), 3);
  IS_INT(call("ceil", call("exp", num_int(1))), 3);
}

Test(num, text_and_functions) {
  ZbArena *a = zb_arena_new();
  cr_expect_str_eq(num_text(a, num_int(-7)), "-7");
  cr_expect_str_eq(num_text(a, quotient(num_int(1), num_int(3))), "0.333333");
  cr_expect_str_eq(num_text(a, num_double(1e300)), "1e+300");
  const char *names[NUM_MAX_FUNCTIONS];
  uint32_t n = num_function_names(names);
  cr_expect_eq(n, 17u);
  for (uint32_t i = 0; i < n; i++)
    cr_expect_eq(num_function_args(names[i]), strstr("max min pow", names[i]) ? 2 : 1, "%s", names[i]);
  cr_expect_eq(num_function_args("cube"), -1);
  int64_t i = 5;
  cr_expect(!num_is_int(num_double(0.5), &i) && !num_is_int(num_double(1e300), &i) && i == 5);
  zb_arena_free(a);
}

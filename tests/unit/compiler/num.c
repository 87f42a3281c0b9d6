/* Static numbers are exact where they can be. */
#include "compiler/elab.h"

#include <criterion/criterion.h>

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

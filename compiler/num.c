/* Static numbers: exact fractions as long as they fit in 64 bits, doubles beyond that. So `width / heads`
 * divides or is known not to, and 0.1 * 30 is three. Knows nothing of the tree. */
#include "compiler/elab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t gcd(int64_t a, int64_t b) {
  while (b) {
    int64_t r = a % b;
    a = b;
    b = r;
  }
  return a < 0 ? -a : a;
}

static Num inexact(double v) { return (Num){.exact = false, .v = v}; }

/* n/d in lowest terms with d > 0; falls back to a double where the fraction does not fit. */
static Num fraction(__int128 n, __int128 d) {
  double v = (double)n / (double)d;
  if (d < 0) n = -n, d = -d;
  __int128 a = n < 0 ? -n : n, b = d;
  while (b) {
    __int128 r = a % b;
    a = b;
    b = r;
  }
  if (a > 1) n /= a, d /= a;
  if (n > INT64_MAX || n < -INT64_MAX || d > INT64_MAX) return inexact(v);
  return (Num){.exact = true, .n = (int64_t)n, .d = (int64_t)d, .v = v};
}

Num num_int(int64_t n) { return fraction(n, 1); }

/* The shortest decimal with at most 15 digits that reads back as v, as a fraction; so a literal means what is
 * written: 0.1 is 1/10. */
Num num_double(double v) {
  if (!isfinite(v)) return inexact(v);
  if (v == floor(v) && fabs(v) < 0x1p62) return fraction((__int128)v, 1);
  char buf[40];
  int digits = 1;
  for (; digits <= 15; digits++) {
    snprintf(buf, sizeof buf, "%.*e", digits - 1, v);
    if (strtod(buf, NULL) == v) break;
  }
  if (digits > 15) return inexact(v);
  char *e = strchr(buf, 'e');
  int exp10 = atoi(e + 1) - (digits - 1);
  __int128 n = 0, d = 1;
  for (char *p = buf; p < e; p++)
    if (*p >= '0' && *p <= '9') n = n * 10 + (*p - '0');
  if (buf[0] == '-') n = -n;
  if (exp10 < -18 || exp10 > 0) return inexact(v); /* above 0: beyond 2^62, with fewer digits */
  for (; exp10 < 0; exp10++) d *= 10;
  Num r = fraction(n, d);
  r.v = v;
  return r;
}

/* What is made of something assumed is assumed too. */
static Num from(Num a, Num b, Num made) {
  made.assumed = a.assumed || b.assumed;
  made.varies = a.varies || b.varies;
  return made;
}

Num num_neg(Num a) { return from(a, a, a.exact ? fraction(-(__int128)a.n, a.d) : inexact(-a.v)); }

Num num_add(Num a, Num b) {
  if (!a.exact || !b.exact) return from(a, b, inexact(a.v + b.v));
  int64_t g = gcd(a.d, b.d); /* keeps the intermediate below 2^127 */
  __int128 d = (__int128)a.d * (b.d / g);
  return from(a, b, fraction((__int128)a.n * (b.d / g) + (__int128)b.n * (a.d / g), d));
}

Num num_sub(Num a, Num b) { return num_add(a, num_neg(b)); }

Num num_mul(Num a, Num b) {
  if (!a.exact || !b.exact) return from(a, b, inexact(a.v * b.v));
  return from(a, b, fraction((__int128)a.n * b.n, (__int128)a.d * b.d));
}

bool num_div(Num a, Num b, Num *out) {
  *out = from(a, b, num_int(1)); /* if there is no value */
  if (b.v == 0) return false;
  if (!a.exact || !b.exact) *out = from(a, b, inexact(a.v / b.v));
  else *out = from(a, b, fraction((__int128)a.n * b.d, (__int128)a.d * b.n));
  return true;
}

static Num num_sqrt(Num a) {
  if (a.exact && a.n >= 0) { /* sqrt(16) is 4, and sqrt(0.25) is 0.5 */
    int64_t n = llround(sqrt((double)a.n)), d = llround(sqrt((double)a.d));
    if ((__int128)n * n == a.n && (__int128)d * d == a.d) return fraction(n, d);
  }
  return inexact(sqrt(a.v));
}

bool num_less(Num a, Num b) {
  if (a.exact && b.exact) return (__int128)a.n * b.d < (__int128)b.n * a.d;
  return a.v < b.v;
}

bool num_equal(Num a, Num b) { return !num_less(a, b) && !num_less(b, a); }

bool num_is_int(Num a, int64_t *out) {
  if (!a.exact || a.d != 1) return false;
  *out = a.n;
  return true;
}

static int64_t floor_div(int64_t n, int64_t d) { return n / d - (n % d < 0); }

/* The functions of statics: those of tensors that make numbers, and some that tensors lack. */
static const char *const more_functions[] = {"ceil"};
enum { NMORE = sizeof more_functions / sizeof *more_functions };

static bool is_function(uint16_t op) {
  const ZgOpInfo *o = &zg_op_info[op];
  return o->function && !o->truth && op != ZG_OP_STOP;
}

uint16_t num_function_op(const char *name) {
  uint16_t op = 0;
  while (op < ZG_OP_COUNT && !(is_function(op) && !strcmp(zg_op_info[op].text, name))) op++;
  return op;
}

int num_function_args(const char *name) {
  uint16_t op = num_function_op(name);
  if (op < ZG_OP_COUNT) return zg_op_info[op].max_in;
  for (int i = 0; i < NMORE; i++)
    if (!strcmp(more_functions[i], name)) return 1;
  return -1;
}

uint32_t num_function_names(const char *out[NUM_MAX_FUNCTIONS]) {
  uint32_t n = 0;
  for (uint16_t op = 0; op < ZG_OP_COUNT; op++)
    if (is_function(op)) out[n++] = zg_op_info[op].text;
  for (int i = 0; i < NMORE; i++) out[n++] = more_functions[i];
  ZB_ASSERT(n <= NUM_MAX_FUNCTIONS);
  return n;
}

bool num_call(const char *name, const Num *arg, Num *out) {
  Num a = arg[0];
  if (!strcmp(name, "max")) *out = num_less(a, arg[1]) ? arg[1] : a;
  else if (!strcmp(name, "min")) *out = num_less(arg[1], a) ? arg[1] : a;
  else if (!strcmp(name, "floor")) *out = a.exact ? fraction(floor_div(a.n, a.d), 1) : num_double(floor(a.v));
  else if (!strcmp(name, "sign")) *out = num_int(num_less(num_int(0), a) - num_less(a, num_int(0)));
  else if (!strcmp(name, "abs")) *out = num_less(a, num_int(0)) ? num_neg(a) : a;
  else if (!strcmp(name, "ceil")) *out = a.exact ? fraction(-floor_div(-a.n, a.d), 1) : num_double(ceil(a.v));
  else if (!strcmp(name, "sqrt")) *out = num_sqrt(a);
  else if (!strcmp(name, "rsqrt")) return a.v > 0 && num_div(num_int(1), num_sqrt(a), out);
  else
    *out = inexact(zg_pointwise(num_function_op(name), a.v, num_function_args(name) > 1 ? arg[1].v : 0, 0));
  *out = from(a, num_function_args(name) > 1 ? arg[1] : a, *out);
  return isfinite(out->v);
}

const char *num_text(ZbArena *a, Num v) {
  if (v.exact && v.d == 1) return zb_printf(a, "%lld", (long long)v.n);
  return zb_printf(a, "%.6g", v.v);
}

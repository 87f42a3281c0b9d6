/* Quantities of recipes and clusters: 76 GB, 450 GB/s, 989 TFLOPS, 8 us. */
#include "lang/internal.h"

#include <string.h>

static const char letters[] = "kKMGTP";
static const double thousands[] = {1e3, 1e3, 1e6, 1e9, 1e12, 1e15};
static const double binary[] = {0x1p10, 0x1p10, 0x1p20, 0x1p30, 0x1p40, 0x1p50};

bool zl_unit_parse(const char *text, size_t n, double *scale, ZlUnit *unit) {
  static const struct {
    const char *text;
    double scale;
    ZlUnit unit;
  } plain[] = {{"s", 1, ZL_U_SECONDS},     {"ms", 1e-3, ZL_U_SECONDS}, {"us", 1e-6, ZL_U_SECONDS},
               {"ns", 1e-9, ZL_U_SECONDS}, {"B", 1, ZL_U_BYTES},       {"B/s", 1, ZL_U_BYTES_S},
               {"FLOPS", 1, ZL_U_FLOPS}};
  for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
    if (strlen(plain[i].text) == n && memcmp(plain[i].text, text, n) == 0) {
      *scale = plain[i].scale;
      *unit = plain[i].unit;
      return true;
    }
  const char *at = n > 1 ? strchr(letters, text[0]) : NULL;
  if (!at) return false;
  double power;
  bool two = text[1] == 'i';
  if (!zl_unit_parse(text + 1 + two, n - 1 - two, &power, unit) || power != 1 || *unit == ZL_U_SECONDS)
    return false;
  *scale = two ? binary[at - letters] : thousands[at - letters];
  return true;
}

/* By ZlUnit. Less than a byte would be none, and of less than the least of the others times would have no end. */
static const struct {
  const char *text, *sign;
  double least;
} units[] = {{"given in bytes, such as 80 GB", " B", 1},
             {"given in bytes per second, such as 450 GB/s", " B/s", 1},
             {"given in operations per second, such as 989 TFLOPS", " FLOPS", 1},
             {"given in time, such as 8 us", " s", 1e-18},
             {"a plain number", "", 1e-18}};

bool zl_quantity_ok(ZlDiags *d, const ZlQuantity *q, ZlUnit unit, const char *what) {
  const char *sign = units[unit].sign;
  if (q->unit != unit) zl_report(d, ZL_Z0805, q->span, "%s is %s", what, units[unit].text);
  else if (!(q->value >= units[unit].least && q->value < 0x1p62))
    zl_report(d, ZL_Z0805, q->span, "%s must be at least %g%s and less than 2^62%s", what, units[unit].least,
              sign, sign);
  else return true;
  return false;
}

/* Numbers as text, and texts as numbers; numbers that are none. */
#include "base/base.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double zb_plain_nan(double x) { return isnan(x) ? (double)NAN : x; }

/* Returns whether x[0..n) has values that are not finite: times 0 they are NaN, and a sum of zeros keeps
 * that. */
static bool has_other(const float *x, uint64_t n) {
  enum { LANES = 16 };
  float zero[LANES] = {0}, sum = 0;
  uint64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int k = 0; k < LANES; k++) zero[k] += 0 * x[i + (uint64_t)k];
  for (; i < n; i++) sum += 0 * x[i];
  for (int k = 0; k < LANES; k++) sum += zero[k];
  return sum != 0;
}

int64_t zb_not_finite(const float *x, uint64_t n) {
  if (!has_other(x, n)) return -1;
  for (uint64_t i = 0; i < n; i++)
    if (!isfinite(x[i])) return (int64_t)i;
  return -1;
}

double zb_round_step(double range, int want) {
  double raw = range / want * (1 - 1e-9), power = pow(10, floor(log10(raw))), lead = raw / power;
  return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
}

bool zb_size(const char *text, int64_t *out) {
  static const char units[] = "kKMGT";
  char *end;
  double n = strtod(text, &end);
  const char *unit = *end ? strchr(units, *end) : NULL;
  if (end == text || (*end && !unit) || (unit && end[1])) return false;
  for (int64_t i = unit ? unit - units + (*unit == 'k') : 0; i > 0; i--) n *= 1000;
  if (!(n >= 1 && n < 0x1p53)) return false;
  *out = (int64_t)n;
  return true;
}

void zb_text_number(ZbText *t, double x) {
  char text[40];
  int digits = 15; /* as many as any decimal text keeps */
  do snprintf(text, sizeof text, "%.*g", digits, x);
  while (strtod(text, NULL) != x && digits++ < 17);
  zb_text_add(t, "%s", text);
}

void zb_text_ranges(ZbText *t, const int *x, int n) {
  for (int i = 0; i < n;) {
    int run = 1, by = i + 1 < n ? x[i + 1] - x[i] : 0;
    while (i + run < n && x[i + run] - x[i + run - 1] == by) run++;
    if (i) zb_text_add(t, ", ");
    if (by < 1 || run < 3 || (by > 1 && run < 4)) {
      zb_text_add(t, "%d", x[i++]);
      continue;
    }
    zb_text_add(t, "%d to %d", x[i], x[i + run - 1]);
    if (by > 1) zb_text_add(t, " by %d", by);
    i += run;
  }
}

uint16_t zb_f32_to_f16(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return sign | 0x7e00;
  if (bits >= 0x477ff000) return sign | 0x7c00; /* rounds to more than 65504 */
  if (bits < 0x38800000) {                      /* below the normal ones: multiples of 2^-24 */
    float steps;
    memcpy(&steps, &bits, sizeof steps);
    return sign | (uint16_t)lrintf(steps * 0x1p24f);
  }
  bits += 0xfff + (bits >> 13 & 1);
  return sign | (uint16_t)((bits >> 13) - ((127 - 15) << 10));
}

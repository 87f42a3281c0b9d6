/* Axes: ticks at 1, 2 or 5 times a power of ten, and numbers as people write them: 0.002, 3.25, 20k, 1.5M. */
#include "runtime/zlog/zlog.h"

#include <math.h>
#include <string.h>

/* Digits behind the point that ticks `step` apart need. */
static int digits(double step) {
  int d = 0;
  for (double s = fabs(step); d < 9 && fabs(s - round(s)) > 1e-6 * s; d++) s *= 10;
  return d;
}

static void write_number(char out[24], double x, double step) {
  static const struct {
    double size;
    const char *name;
  } units[] = {{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "k"}, {1, ""}};
  double big = fabs(x);
  if (fabs(x) < 1e-9 * fabs(step)) x = big = 0;
  if (big && (big < 1e-4 || big >= 1e15)) {
    snprintf(out, 24, "%.3g", x);
    return;
  }
  int u = 0;
  while (u < 4 && big < units[u].size) u++;
  if (u == 3 && big < 1e4 && digits(step / 1e3) > 1) u = 4; /* 1250, not 1.25k */
  if (!big) u = 4;
  int n = snprintf(out, 24, "%.*f", digits(step / units[u].size), x / units[u].size);
  if (u < 4 && strchr(out, '.')) /* 500, 1k, 1.5k */
    while (out[n - 1] == '0' || out[n - 1] == '.')
      if (out[--n] == '.') break;
  snprintf(out + n, 24 - (size_t)n, "%s", units[u].name);
}

static void add_tick(ZvScale *s, double x, double step) {
  if (s->n == ZV_TICKS) return;
  s->tick[s->n] = x;
  write_number(s->text[s->n++], x, step);
}

static void linear_ticks(ZvScale *s, int want) {
  double step = zb_round_step(s->hi - s->lo, want), first = ceil(s->lo / step - 1e-9);
  for (int i = 0; i < ZV_TICKS && (first + i) * step <= s->hi + 1e-9 * step; i++)
    add_tick(s, (first + i) * step, step);
}

/* Powers of ten; 2 and 5 of them where there are few; all where it is less than a decade. */
static void log_ticks(ZvScale *s, int want) {
  static const double lead[] = {1, 2, 5};
  double from = floor(log10(s->lo)), to = ceil(log10(s->hi)), decades = log10(s->hi) - log10(s->lo);
  if (decades < 1) {
    linear_ticks(s, 2 * want);
    return;
  }
  double by = ceil(decades / ZV_TICKS);
  for (double e = from; e <= to && s->n < ZV_TICKS; e += by)
    for (int k = 0; k < (decades < want / 2. ? 3 : 1); k++) {
      double x = lead[k] * pow(10, e);
      if (x >= s->lo * (1 - 1e-9) && x <= s->hi * (1 + 1e-9)) add_tick(s, x, x);
    }
}

ZvScale zv_scale(double lo, double hi, bool log, int want) {
  ZvScale s = {.lo = lo, .hi = hi, .log = log, .size = 1};
  if (!(hi > lo)) { /* one value: something around it */
    double some = lo ? fabs(lo) / 10 : 1;
    s.lo = lo - some;
    s.hi = hi + some;
  }
  if (log) log_ticks(&s, want);
  else linear_ticks(&s, want);
  return s;
}

double zv_place(const ZvScale *s, double x) {
  double share = s->log ? (log(x) - log(s->lo)) / (log(s->hi) - log(s->lo)) : (x - s->lo) / (s->hi - s->lo);
  return s->at + share * s->size;
}

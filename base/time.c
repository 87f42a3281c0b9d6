/* The clock that durations are measured by, and durations as people write them. */
#include "base/base.h"

#include <math.h>
#include <string.h>
#include <time.h>

double zb_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const struct {
  char name;
  double seconds;
} units[] = {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}};
enum { UNITS = sizeof units / sizeof *units };

bool zb_duration(const char *text, double *seconds) {
  double sum = 0;
  int unit = 0;
  if (!*text) return false;
  while (*text) {
    double n = 0;
    const char *digits = text;
    for (; *text >= '0' && *text <= '9'; text++) n = 10 * n + (*text - '0');
    if (text == digits || text - digits > 9) return false;
    while (unit < UNITS && units[unit].name != *text) unit++;
    if (unit == UNITS) return false;
    sum += n * units[unit++].seconds;
    text++;
  }
  *seconds = sum;
  return true;
}

const char *zb_seconds_text(char buf[24], double seconds) {
  double scale = seconds < 1e-3 ? 1e6 : seconds < 1 ? 1e3 : 1;
  snprintf(buf, 24, "%.4g %s", seconds * scale, seconds < 1e-3 ? "us" : seconds < 1 ? "ms" : "s");
  return buf;
}

const char *zb_duration_text(char buf[24], double seconds) {
  double left = seconds < 0 ? 0 : seconds < 1e9 ? floor(seconds + 0.5) : 1e9;
  size_t n = 0;
  for (int i = 0; i < UNITS; i++) {
    double count = floor(left / units[i].seconds);
    left -= count * units[i].seconds;
    if (count > 0 || (i == UNITS - 1 && !n))
      n += (size_t)snprintf(buf + n, 24 - n, "%.0f%c", count, units[i].name);
  }
  return buf;
}

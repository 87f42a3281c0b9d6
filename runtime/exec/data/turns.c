/* Whose turn it is: a period of turns is found once, and repeated. Tijdeman ("The chairman assignment
 * problem", 1980) has the rule: of the files that are behind by at least 1 / (2k - 2) of a turn, k files in
 * all, the one is next that would be too far behind the soonest. No file is ever more than 1 - 1 / (2k - 2)
 * turns away from its due, so at the end of a period none is. */
#include "runtime/exec/data/mix.h"

/* What is left of file i's time, by D * (2k - 2): negative or zero means that it must be next. */
typedef struct {
  int64_t left, share;
} Due;

static bool sooner(Due a, Due b) { return a.left * b.share < b.left * a.share; }

/* All numbers are below 2^57: see ZX_MIX_FILES and ZX_MIX_PERIOD. */
static uint32_t next_of(const ZxTurns *t, const uint32_t *had, uint32_t position) {
  int64_t period = t->period, parts = 2 * (int64_t)t->n - 2;
  uint32_t best = UINT32_MAX;
  Due least = {0, 1};
  for (uint32_t i = 0; i < t->n; i++) {
    int64_t behind = parts * ((int64_t)t->share[i] * (position + 1) - had[i] * period);
    Due due = {period * (parts - 1) - behind, t->share[i]};
    if (behind < period || (best != UINT32_MAX && !sooner(due, least))) continue;
    best = i;
    least = due;
  }
  ZB_ASSERT(best != UINT32_MAX); /* all together are one turn behind, so one is by 1 / k */
  return best;
}

ZxTurns zx_turns(ZbArena *a, const uint32_t *share, uint32_t n, uint32_t period) {
  ZxTurns t = {n,
               period,
               share,
               ZB_NEWN(a, uint8_t, period),
               ZB_NEWN(a, uint16_t, period),
               ZB_NEWN(a, uint16_t, period),
               ZB_NEWN(a, uint32_t, n)};
  uint32_t *had = ZB_NEWN(a, uint32_t, n);
  for (uint32_t i = 1; i < n; i++) t.first[i] = t.first[i - 1] + share[i - 1];
  for (uint32_t g = 0; g < period; g++) {
    uint32_t i = n > 1 ? next_of(&t, had, g) : 0;
    t.file[g] = (uint8_t)i;
    t.nth[g] = (uint16_t)had[i];
    t.at[t.first[i] + had[i]++] = (uint16_t)g;
  }
  for (uint32_t i = 0; i < n; i++) ZB_ASSERT(had[i] == share[i]);
  return t;
}

uint32_t zx_turn(const ZxTurns *t, uint64_t g, uint64_t *nth) {
  uint32_t file = t->file[g % t->period];
  *nth = g / t->period * t->share[file] + t->nth[g % t->period];
  return file;
}

uint64_t zx_turns_before(const ZxTurns *t, uint32_t file, uint64_t n) {
  const uint16_t *at = t->at + t->first[file];
  uint32_t lo = 0, hi = t->share[file], end = (uint32_t)(n % t->period);
  while (lo < hi) {
    uint32_t mid = (lo + hi) / 2;
    if (at[mid] < end) lo = mid + 1;
    else hi = mid;
  }
  return n / t->period * t->share[file] + lo;
}

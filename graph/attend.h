/* attend: what `attend` and its gradients say by their axis arguments and attributes, for every room, also
 * for those that know no graphs. OPS.md has the formulas. */
#ifndef ZUG_ATTEND_H
#define ZUG_ATTEND_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/ops.h"

/* Positions of queries and of keys, features of queries and keys, features of values and results. Two axis
 * arguments are (queries, features) of one sequence; four are (queries, features, keys, values), where the
 * third may be the first and the fourth the second. */
typedef struct {
  uint16_t q, h, k, w;
} ZgAttendAxes;
static inline ZgAttendAxes zg_attend_axes(const uint16_t *ax, int nax) {
  return (ZgAttendAxes){ax[0], ax[1], ax[nax > 2 ? 2 : 0], ax[nax > 2 ? 3 : 1]};
}

static inline bool zg_is_attend(int op) {
  return op == ZG_OP_ATTEND || op == ZG_OP_ATTEND_GRAD || op == ZG_OP_ATTEND_BIAS_GRAD;
}
/* Which operand is q; k and v follow. */
static inline int zg_attend_first(int op) { return op == ZG_OP_ATTEND ? 0 : 3; }

/* A causal mask hides later keys, but not those before `prefix`; a window of 0 is none. */
typedef struct {
  bool causal;
  int64_t window, prefix;
} ZgMask;
/* Keys [from, to) of `keys` that the mask and the window leave to the query at position q, which may lie
 * before the first key or behind the last: of a part of the keys, counted from its first one. */
typedef struct {
  int64_t from, to;
} ZgSeen;
static inline ZgSeen zg_attend_seen(ZgMask m, int64_t q, int64_t keys) {
  ZgSeen s = {0, !m.causal ? keys : q < m.prefix ? m.prefix : q + 1};
  if (m.window > 0 && q - m.window >= 0) s.from = q - m.window + 1;
  if (m.window > 0 && q + m.window < s.to) s.to = q + m.window;
  if (s.to > keys) s.to = keys;
  if (s.to < 0) s.to = 0;
  if (s.from > s.to) s.from = s.to;
  return s;
}
/* How many pairs of a query and a key these are, of queries before the one at `q`; of borders, half. */
static inline double zg_attend_before(bool causal, int64_t window, int64_t keys, int64_t q) {
  double at = (double)q, w = (double)(window > 0 && window < keys ? window : keys);
  double left = at < w ? at * at / 2 : at * w - w * w / 2; /* keys before them, */
  if (causal) return left;
  if (w >= (double)keys) return at * (double)keys;
  double rest = (double)(keys - q), all = (double)keys * w - w * w / 2; /* and behind */
  return left + all - (rest < w ? rest * rest / 2 : rest * w - w * w / 2);
}
/* Of queries [from, to). */
static inline double zg_attend_part(bool causal, int64_t window, int64_t keys, int64_t from, int64_t to) {
  return zg_attend_before(causal, window, keys, to) - zg_attend_before(causal, window, keys, from);
}
/* Of so many queries. */
static inline double zg_attend_pairs(bool causal, int64_t window, int64_t queries, int64_t keys) {
  double n = (double)queries, w = (double)(window > 0 && window < keys ? window : keys);
  if (causal) return n * w - w * w / 2;
  return window > 0 && window < keys ? 2 * n * w - w * w : n * (double)keys;
}

#endif

/* Rounds weights to codes (packed.h): a group of all columns of a panel at once, which lie beside each other as
 * lanes of a vector do. Plain C, the same bits on every machine: where a product is added to something it is
 * exact, so that an instruction for both rounds as two do. */
#include "kernels/packed.h"

#include <float.h>
#include <math.h>

enum { COLUMNS = ZK_COLUMNS, MOST_GROUP = 128 };

/* Doubles above 2^52 have no room for fractions: adding it, and taking it away, rounds to the nearest integer,
 * ties to even. */
#define WHOLE 0x1.8p52

typedef struct {
  const float *x; /* [n][COLUMNS] */
  int64_t n;
  ZkElem elem;
  const float *values; /* of codes; NULL: they are integers */
  bool point;          /* groups have zeros of their own */
  float far[COLUMNS];  /* the element farthest from 0, the first of several; NaN: something is not finite */
  float lo[COLUMNS], hi[COLUMNS];      /* with `point`: the least and the largest, or 0 */
  float scale[COLUMNS], zero[COLUMNS]; /* of each column, as they were found; scale 0: not yet */
} Group;

/* ---- what there is ------------------------------------------------------------------------------------- */
ZB_WIDE static void find_farthest(Group *g) {
  float most[COLUMNS] = {0}, far[COLUMNS] = {0};
  int odd[COLUMNS] = {0};
  for (const float *x = g->x, *end = x + g->n * COLUMNS; x < end; x += COLUMNS) {
#pragma omp simd
    for (int c = 0; c < COLUMNS; c++) {
      float a = fabsf(x[c]);
      odd[c] |= !(a <= FLT_MAX);
      far[c] = a > most[c] ? x[c] : far[c];
      most[c] = a > most[c] ? a : most[c];
    }
  }
  for (int c = 0; c < COLUMNS; c++) g->far[c] = odd[c] ? NAN : far[c];
}

ZB_WIDE static void find_ends(Group *g) {
  float lo[COLUMNS] = {0}, hi[COLUMNS] = {0};
  for (const float *x = g->x, *end = x + g->n * COLUMNS; x < end; x += COLUMNS) {
#pragma omp simd
    for (int c = 0; c < COLUMNS; c++) {
      lo[c] = x[c] < lo[c] ? x[c] : lo[c];
      hi[c] = x[c] > hi[c] ? x[c] : hi[c];
    }
  }
  memcpy(g->lo, lo, sizeof lo), memcpy(g->hi, hi, sizeof hi);
}

/* ---- scales that weights have already ------------------------------------------------------------------ */
/* Weights that somebody else has rounded keep their codes, and nothing is lost. */
#define NEAR 0x1p-12

/* Finds the columns of which elements from .. to are integers, but for roundings, when multiplied by `by`. Returns
 * whether there are any among those that are asked. */
ZB_WIDE static bool are_integers(const Group *g, int64_t from, int64_t to, const float *restrict by,
                                 int *restrict fits) {
  int any = 0;
  for (const float *x = g->x + from * COLUMNS, *end = g->x + to * COLUMNS; x < end; x += COLUMNS)
#pragma omp simd
    for (int c = 0; c < COLUMNS; c++) {
      double y = (double)x[c] * (double)by[c], rest = y - ((y + WHOLE) - WHOLE);
      fits[c] &= fabs(rest) <= NEAR;
    }
  for (int c = 0; c < COLUMNS; c++) any |= fits[c];
  return any;
}

/* Likewise, values of codes. */
ZB_WIDE static bool are_values(const Group *g, int64_t from, int64_t to, const float *restrict by,
                               int *restrict fits) {
  int any = 0;
  for (const float *x = g->x + from * COLUMNS, *end = g->x + to * COLUMNS; x < end; x += COLUMNS) {
    int is[COLUMNS] = {0};
    for (int q = 0; q < 16; q++) {
      double value = (double)g->values[q];
#pragma omp simd
      for (int c = 0; c < COLUMNS; c++) is[c] |= fabs((double)x[c] * (double)by[c] - value) <= NEAR;
    }
#pragma omp simd
    for (int c = 0; c < COLUMNS; c++) fits[c] &= is[c];
  }
  for (int c = 0; c < COLUMNS; c++) any |= fits[c];
  return any;
}

/* Takes scales of columns that have none yet: those at which the farthest element is this code, if all others are
 * codes, too. */
ZB_WIDE static void try_own(Group *g, float code, bool either_sign) {
  enum { FIRST = 2 }; /* rows that show it of almost all groups */
  bool (*fit)(const Group *, int64_t, int64_t, const float *, int *) = g->values ? are_values : are_integers;
  int fits[COLUMNS];
  float by[COLUMNS];
#pragma omp simd
  for (int c = 0; c < COLUMNS; c++) {
    by[c] = (either_sign ? fabsf(code) : code) / (either_sign ? fabsf(g->far[c]) : g->far[c]);
    fits[c] = (g->scale[c] == 0) & (fabsf(by[c]) <= FLT_MAX); /* far: neither 0 nor NaN */
  }
  if (!fit(g, 0, FIRST, by, fits) || !fit(g, FIRST, g->n, by, fits)) return;
  for (int c = 0; c < COLUMNS; c++) {
    if (!fits[c] || (g->point && (g->hi[c] - g->lo[c]) * by[c] > 15.5f)) continue;
    g->scale[c] = 1 / by[c];
    if (g->point) g->zero[c] = rintf(-g->lo[c] * by[c]);
  }
}

static void find_own(Group *g) {
  enum { MOST_OWN = 15 /* of codes of 4 bits less a zero point */ };
  int lowest = g->point ? 0 : -zk_packed_zero(g->elem);
  int most = g->point || zk_elem_info[g->elem].bits == 8 ? MOST_OWN : -lowest;
  for (int q = 0; g->values && q < 16; q++)
    if (g->values[q] != 0) try_own(g, g->values[q], false);
  for (int m = 1; m <= most && !g->values; m++)
    try_own(g, m == -lowest ? (float)lowest : (float)m, m != -lowest);
}

/* ---- scales that are searched -------------------------------------------------------------------------- */
/* For each of some first guesses it takes the scale that is best for the codes that the guess makes (least
 * squares). Of these the best has the least sum of squared errors. All sums are of integers that a float has:
 * shares of the farthest element, and codes. */
enum { SHARES = 1 << 11, VALUE_SHARES = 1 << 9, VALUES = 1 << 8 };
/* Of integer codes, to which a product of a share, of 11 bits, by an even number below 2^14 is rounded. */
#define CODE 0x1p20f

typedef struct {
  float share[MOST_GROUP * COLUMNS];
  float by[COLUMNS], least[COLUMNS], most[COLUMNS], zero[COLUMNS]; /* a guess of integers */
  float xc[COLUMNS], cc[COLUMNS]; /* sums of shares by codes, and of squared codes */
  float best[COLUMNS], best_xc[COLUMNS], best_cc[COLUMNS],
      best_zero[COLUMNS]; /* what the best gains, and has */
} Search;

/* Takes shares of the farthest element; with `point` of its absolute value. */
ZB_WIDE static void take_shares(const Group *g, float *restrict share, int shares) {
  float by[COLUMNS];
  for (int c = 0; c < COLUMNS; c++) by[c] = (float)shares / (g->point ? fabsf(g->far[c]) : g->far[c]);
  for (int c = 0; c < COLUMNS; c++) by[c] = isfinite(by[c]) ? by[c] : 0; /* less than any scale */
  for (int64_t k = 0; k < g->n; k++) {
#pragma omp simd
    for (int c = 0; c < COLUMNS; c++) {
      double y = (double)g->x[k * COLUMNS + c] * (double)by[c];
      share[k * COLUMNS + c] = (float)((y + WHOLE) - WHOLE);
    }
  }
}

ZB_WIDE static void guess_integers(const Group *g, Search *restrict s) {
  float xc[COLUMNS] = {0}, cc[COLUMNS] = {0}, by[COLUMNS], least[COLUMNS], most[COLUMNS];
  memcpy(by, s->by, sizeof by), memcpy(least, s->least, sizeof least), memcpy(most, s->most, sizeof most);
  for (const float *x = s->share, *end = x + g->n * COLUMNS; x < end; x += COLUMNS) {
#pragma omp simd
    for (int c = 0; c < COLUMNS; c++) {
      float code = x[c] * by[c] + 0x1.8p23f * CODE;
      code -= 0x1.8p23f * CODE;
      code = code > least[c] ? code : least[c];
      code = code < most[c] ? code : most[c];
      xc[c] += x[c] * code;
      cc[c] += code * code;
    }
  }
  memcpy(s->xc, xc, sizeof xc), memcpy(s->cc, cc, sizeof cc);
}

/* Puts the farthest element on a code from lo + 1.9 to lo - 0.35, of which there is one more on that side. */
static void guess_scale(Search *s, int zero, int t) {
  for (int c = 0; c < COLUMNS; c++) {
    s->by[c] = (float)(973 - 77 * t - 512 * zero);
    s->least[c] = (float)-zero * CODE, s->most[c] = (float)(zero - 1) * CODE;
  }
}

/* Spreads all elements over so many codes; of more than there are both ends lose as many. */
static void guess_zero(const Group *g, Search *s, double codes, int most) {
  for (int c = 0; c < COLUMNS; c++) {
    double far = fabs((double)g->far[c]), lo = rint(SHARES * ((double)g->lo[c] / far)),
           range = rint(SHARES * ((double)g->hi[c] / far)) - lo,
           by = 2 * rint(codes * ((double)CODE / 2) / range),
           zero = rint(-lo * by / (double)CODE - (codes - most) / 2);
    s->by[c] = (float)by;
    s->zero[c] = (float)(zero < 0 ? 0 : zero > most ? most : zero);
    s->least[c] = -s->zero[c] * CODE, s->most[c] = ((float)most - s->zero[c]) * CODE;
  }
}

/* Likewise, of values. */
ZB_WIDE static void guess_values(const Group *g, Search *restrict s, float by) {
  float xc[COLUMNS] = {0}, cc[COLUMNS] = {0};
  float step[16], middle[16], lowest = rintf(g->values[0] * VALUES);
  for (int q = 1; q < 16; q++) {
    middle[q] = (g->values[q] + g->values[q - 1]) / 2;
    step[q] = rintf(g->values[q] * VALUES) - rintf(g->values[q - 1] * VALUES);
  }
  for (const float *x = s->share, *end = x + g->n * COLUMNS; x < end; x += COLUMNS) {
    float code[COLUMNS];
    for (int c = 0; c < COLUMNS; c++) code[c] = lowest;
    for (int q = 1; q < 16; q++) {
      float above = middle[q], more = step[q];
#pragma omp simd
      for (int c = 0; c < COLUMNS; c++) code[c] += x[c] * by > above ? more : 0;
    }
#pragma omp simd
    for (int c = 0; c < COLUMNS; c++) {
      xc[c] += x[c] * code[c];
      cc[c] += code[c] * code[c];
    }
  }
  memcpy(s->xc, xc, sizeof xc), memcpy(s->cc, cc, sizeof cc);
}

ZB_WIDE static void keep_best(Search *s) {
#pragma omp simd
  for (int c = 0; c < COLUMNS; c++) {
    float gain = s->cc[c] > 0 ? s->xc[c] * s->xc[c] / s->cc[c] : 0;
    bool more = gain > s->best[c];
    s->best_xc[c] = more ? s->xc[c] : s->best_xc[c];
    s->best_cc[c] = more ? s->cc[c] : s->best_cc[c];
    s->best_zero[c] = more ? s->zero[c] : s->best_zero[c];
    s->best[c] = more ? gain : s->best[c];
  }
}

/* Finds scales, and zeros, of columns that have none yet. Values are guessed such that the farthest is 1 to 1.25 of
 * them, or as far below 0, where they are others. */
static void find_best(Group *g) {
  static const float value[] = {1, -1, 1 / .9f, -1 / .9f, 1 / .8f, -1 / .8f};
  static const double codes[] = {15, 14.5, 15.5, 16, 16.5, 17, 18};
  enum { SCALES = 16, VALUE_SCALES = sizeof value / sizeof *value, ZEROS = sizeof codes / sizeof *codes };
  int shares = g->values ? VALUE_SHARES : SHARES;
  Search s;
  take_shares(g, s.share, shares);
  for (int c = 0; c < COLUMNS; c++)
    s.best[c] = s.best_xc[c] = s.best_zero[c] = s.zero[c] = 0, s.best_cc[c] = 1;
  for (int t = 0; t < (g->values ? VALUE_SCALES : g->point ? ZEROS : SCALES); t++) {
    if (g->point) guess_zero(g, &s, codes[t], (1 << zk_elem_info[g->elem].bits) - 1);
    else if (!g->values) guess_scale(&s, zk_packed_zero(g->elem), t);
    if (g->values) guess_values(g, &s, value[t] / VALUE_SHARES);
    else guess_integers(g, &s);
    keep_best(&s);
  }
  float unit = (g->values ? VALUES : CODE) / (float)shares;
  for (int c = 0; c < COLUMNS; c++) {
    if (g->scale[c] != 0) continue;
    g->scale[c] = s.best_xc[c] / s.best_cc[c] * unit * (g->point ? fabsf(g->far[c]) : g->far[c]);
    g->zero[c] = s.best_zero[c];
  }
}

/* ---- scale and zero ------------------------------------------------------------------------------------ */
/* Rounds up, where that is not more than all; what is one to some last bits stays. */
static uint16_t f16_at_least(float x) {
  uint16_t h = zb_f32_to_f16(x);
  return zb_f16_to_f32(h) < x * (1 - 0x1p-20f) && h < 0x7bff ? (uint16_t)(h + 1) : h;
}

/* Chooses scales, and zeros. Codes of 8 bits lie so close that none are searched. */
static void choose(Group *g, uint16_t *scale, uint8_t *zero) {
  bool eight = zk_elem_info[g->elem].bits == 8, more = false;
  find_own(g);
  for (int c = 0; c < COLUMNS; c++) more |= g->scale[c] == 0 && isfinite(g->far[c]) && g->far[c] != 0;
  if (more && !eight) find_best(g);
  for (int c = 0; c < COLUMNS; c++) {
    float far = g->far[c];
    if (!isfinite(far)) scale[c] = 0x7e00;
    else if (far == 0) scale[c] = 0;
    else if (eight && g->scale[c] == 0) scale[c] = f16_at_least(fabsf(far) / 127);
    else scale[c] = zb_f32_to_f16(g->scale[c]);
    if (zero) zero[c] = (uint8_t)(isfinite(far) && far != 0 ? g->zero[c] : 0);
  }
}

/* ---- codes --------------------------------------------------------------------------------------------- */
/* by: 0 of columns with something that is not finite, whose codes may be any. */
ZB_WIDE static void to_integers(const Group *g, const float *restrict by, const float *restrict zero,
                                double least, double most, int32_t *restrict code) {
  for (int64_t k = 0; k < g->n; k++) {
#pragma omp simd
    for (int c = 0; c < COLUMNS; c++) {
      double y = (double)g->x[k * COLUMNS + c] * (double)by[c];
      y = ((y + WHOLE) - WHOLE) + (double)zero[c];
      y = y > least ? y : least;
      y = y < most ? y : most;
      code[k * COLUMNS + c] = (int32_t)y;
    }
  }
}

ZB_WIDE static void to_values(const Group *g, const float *restrict by, int32_t *restrict code) {
  float middle[16];
  for (int q = 1; q < 16; q++) middle[q] = (g->values[q] + g->values[q - 1]) / 2;
  for (int64_t k = 0; k < g->n; k++) {
    const float *x = g->x + k * COLUMNS;
    int32_t of[COLUMNS] = {0};
    for (int q = 1; q < 16; q++) {
      float above = middle[q];
#pragma omp simd
      for (int c = 0; c < COLUMNS; c++) of[c] += x[c] * by[c] > above;
    }
    memcpy(code + k * COLUMNS, of, sizeof of);
  }
}

/* Put the codes of a panel's group where they belong: a word of each column has 4 of them, or 8. */
ZB_WIDE static void put_bytes(const int32_t *restrict code, int64_t n, uint32_t *restrict to) {
  for (int64_t k = 0; k < n; k += 4, code += 4 * COLUMNS, to += COLUMNS) {
#pragma omp simd
    for (int c = 0; c < COLUMNS; c++) {
      const int32_t *x = code + c;
      to[c] = (uint32_t)(x[0] | x[COLUMNS] << 8 | x[2 * COLUMNS] << 16) | (uint32_t)x[3 * COLUMNS] << 24;
    }
  }
}
ZB_WIDE static void put_halves(const int32_t *restrict code, int64_t n, uint32_t *restrict to) {
  for (int64_t k = 0; k < n; k += 8, code += 8 * COLUMNS, to += COLUMNS) {
#pragma omp simd
    for (int c = 0; c < COLUMNS; c++) {
      const int32_t *x = code + c, *y = x + 4 * COLUMNS;
      uint32_t low = (uint32_t)(x[0] | x[COLUMNS] << 8 | x[2 * COLUMNS] << 16 | x[3 * COLUMNS] << 24),
               high = (uint32_t)(y[0] | y[COLUMNS] << 8 | y[2 * COLUMNS] << 16 | y[3 * COLUMNS] << 24);
      to[c] = low | high << 4;
    }
  }
}

void zk_packed_encode(const ZkPacked *p, int64_t panel, int64_t group, const float *x) {
  const ZkElemInfo *info = &zk_elem_info[p->elem];
  Group g = {.x = x,
             .n = info->block,
             .elem = p->elem,
             .values = zk_code_values(p->elem),
             .point = info->zero == ZK_ZERO_POINT};
  int32_t code[MOST_GROUP * COLUMNS];
  uint16_t *scale = zk_packed_scales(p, panel) + group * COLUMNS;
  uint8_t *codes = zk_packed_codes(p, panel) + group * g.n * COLUMNS * info->bits / 8;
  uint8_t *own = g.point ? zk_packed_zeros(p, panel) + group * COLUMNS : NULL;
  int most = (1 << info->bits) - 1;
  float by[COLUMNS], zero[COLUMNS];
  ZB_ASSERT(g.n <= MOST_GROUP);
  find_farthest(&g);
  if (g.point) find_ends(&g);
  choose(&g, scale, own);
  for (int c = 0; c < COLUMNS; c++) {
    float s = zb_f16_to_f32(scale[c]);
    by[c] = s != 0 && isfinite(s) ? 1 / s : 0;
    zero[c] = (float)(own ? own[c] : zk_packed_zero(p->elem));
  }
  if (g.values) to_values(&g, by, code);
  else to_integers(&g, by, zero, info->bits == 8 ? 1 : 0, most, code);
  (info->bits == 8 ? put_bytes : put_halves)(code, g.n, (uint32_t *)(void *)codes);
}

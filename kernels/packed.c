/* Packed weights one column at a time: rounding, and back. Plain C, the same bits on every machine. */
#include "kernels/packed.h"

#include <math.h>

const float zk_normal_quantile[16] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

/* Rounds up, where that is not more than all; what is one to some last bits stays. */
static uint16_t f16_at_least(float x) {
  uint16_t h = zb_f32_to_f16(x);
  return zb_f16_to_f32(h) < x * (1 - 0x1p-20f) && h < 0x7bff ? (uint16_t)(h + 1) : h;
}

/* ---- choosing scales ----------------------------------------------------------------------------------- */
enum { MOST_GROUP = 128, TRIES = 16, MOST_OWN = 15 /* of codes of 4 bits less a zero point */ };

static int32_t clamp(int32_t c, int32_t lo, int32_t hi) { return c < lo ? lo : c > hi ? hi : c; }

/* Rounds x * by to the nearest, ties to even: a number of 1.5 2^23 has no room for fractions. What is not
 * less than 2^22 becomes any number. */
static void round_all(const float *x, int64_t n, float by, int32_t *to) {
  for (int64_t i = 0; i < n; i++) {
    float share = x[i] * by + 0x1.8p23f;
    memcpy(&to[i], &share, sizeof share);
    to[i] -= 0x4b400000;
  }
}

/* Returns the element that is farthest from 0, the first of several; NaN if something is not finite. */
static float farthest(const float *x, int64_t n) {
  uint32_t most = 0, bits[MOST_GROUP];
  memcpy(bits, x, (size_t)n * sizeof *bits);
  for (int64_t i = 0; i < n; i++) {
    uint32_t b = bits[i] & 0x7fffffff;
    most = b > most ? b : most;
  }
  if (most >= 0x7f800000) return NAN;
  for (int64_t i = 0; i < n; i++)
    if ((bits[i] & 0x7fffffff) == most) return x[i];
  return 0;
}

/* Multiplies shares by codes that a first guess makes of them, in whole numbers: *xc = sum x c, *cc = sum c
 * c. A share is of 2^14, by / 2^10 the code of the farthest. */
ZB_WIDE static void correlate(const int32_t *share, int64_t n, int32_t by, int32_t lo, int32_t hi,
                              int32_t *xc, int32_t *cc) {
  int32_t x = 0, c2 = 0;
#pragma omp simd reduction(+ : x, c2)
  for (int64_t i = 0; i < n; i++) {
    int32_t c = (share[i] * by + (1 << 23)) >> 24;
    c = c < lo ? lo : c > hi ? hi : c;
    x += share[i] * c;
    c2 += c * c;
  }
  *xc = x, *cc = c2;
}

/* Searches the scale of codes lo .. hi, of which `lo` has one more on its side: for each of some first
 * guesses, which put the farthest element on a code from lo + 1.9 to lo - 0.35, it takes the scale that is
 * best for the codes that the guess makes (least squares). Of these the best has the least sum of squared
 * errors. In whole numbers, so that every CPU finds the same. */
static float searched(const float *x, int64_t n, float far, int lo, int hi) {
  int32_t share[MOST_GROUP];
  double best = -1, scale = 0;
  if (!isfinite(0x1p14f / far)) return 0; /* less than any scale */
  round_all(x, n, 0x1p14f / far, share);
  for (int t = 0; t < TRIES; t++) {
    int32_t xc, cc;
    int32_t by = lo * 1024 + 1946 - 154 * t;
    correlate(share, n, by, lo, hi, &xc, &cc);
    double gain = cc ? (double)xc * xc / cc : 0;
    if (gain > best) best = gain, scale = cc ? (double)xc / cc : 0;
  }
  return (float)(scale * 0x1p-14 * (double)far);
}

/* Returns the scale of a group whose elements are small integers of it, as weights are that somebody else has
 * rounded: they keep their codes, and nothing is lost. 0: they are not. least: -8, the lowest code. */
static float own_scale(const float *x, int64_t n, float far, int least, int most) {
  for (int m = 1; m <= most; m++) {
    float inverse = (m == -least ? least : far < 0 ? -m : m) / far; /* the farthest becomes m or -m */
    int64_t i = 0;
    while (i < n && fabsf(x[i] * inverse - rintf(x[i] * inverse)) <= 0x1p-12f) i++;
    if (i == n) return 1 / inverse;
  }
  return 0;
}

/* Returns the scale of a group of a format without zeros of its own, in f16. */
static uint16_t scale_of(ZkElem e, const float *x, int64_t n) {
  float far = farthest(x, n);
  if (!isfinite(far)) return 0x7e00;
  if (far == 0) return 0;
  if (zk_elem_info[e].codes == ZK_CODES_NORMAL) return f16_at_least(fabsf(far));
  bool eight = zk_elem_info[e].bits == 8;
  float own = own_scale(x, n, far, -zk_packed_zero(e), eight ? MOST_OWN : zk_packed_zero(e));
  if (own != 0) return zb_f32_to_f16(own);
  if (eight) return f16_at_least(fabsf(far) / 127);
  return zb_f32_to_f16(searched(x, n, far, -zk_packed_zero(e), zk_packed_zero(e) - 1));
}

/* ---- rounding ------------------------------------------------------------------------------------------ */
static void nearest_quantiles(const float *x, int64_t n, float by, int32_t *code) {
  for (int64_t i = 0; i < n; i++) code[i] = 0;
  for (int q = 1; q < 16; q++) {
    float middle = (zk_normal_quantile[q - 1] + zk_normal_quantile[q]) / 2;
    for (int64_t i = 0; i < n; i++) code[i] += x[i] * by > middle;
  }
}

/* Chooses scale and zero of a group of a format that has zeros of its own. */
static uint16_t scale_and_zero(const float *x, int64_t n, int most, uint8_t *zero) {
  float lo = 0, hi = 0;
  if (!isfinite(farthest(x, n))) return 0x7e00;
  for (int64_t i = 0; i < n; i++) lo = x[i] < lo ? x[i] : lo, hi = x[i] > hi ? x[i] : hi;
  uint16_t scale = f16_at_least((hi - lo) / (float)most);
  float s = zb_f16_to_f32(scale);
  *zero = (uint8_t)(s > 0 ? clamp((int32_t)lrintf(fminf(-lo / s, 256)), 0, most) : 0);
  return scale;
}

void zk_packed_encode(const ZkPacked *p, int64_t column, int64_t group, const float *x) {
  const ZkElemInfo *info = &zk_elem_info[p->elem];
  int64_t n = info->block;
  int32_t code[MOST_GROUP];
  uint8_t codes[MOST_GROUP], own = 0;
  int32_t zero = zk_packed_zero(p->elem), least = info->bits == 8 ? 1 : 0, most = (1 << info->bits) - 1;
  bool point = info->zero == ZK_ZERO_POINT, normal = info->codes == ZK_CODES_NORMAL;
  uint16_t scale = point ? scale_and_zero(x, n, most, &own) : scale_of(p->elem, x, n);
  float s = zb_f16_to_f32(scale), inverse = s != 0 && isfinite(s) ? 1 / s : 0;
  if (point) zero = own;
  if (normal) nearest_quantiles(x, n, inverse, code);
  else round_all(x, n, inverse, code);
  for (int64_t i = 0; i < n; i++)
    codes[i] = (uint8_t)(normal ? code[i] : clamp(zero + (inverse == 0 ? 0 : code[i]), least, most));
  zk_packed_put(p, column, group, codes, scale, own);
}

void zk_packed_put(const ZkPacked *p, int64_t column, int64_t group, const uint8_t *codes, uint16_t scale,
                   uint8_t zero) {
  int64_t n = zk_packed_group(p->elem), panel = column / ZK_COLUMNS, c = column % ZK_COLUMNS;
  uint8_t *to = zk_packed_codes(p, panel) + group * n * ZK_COLUMNS * zk_elem_info[p->elem].bits / 8 + 4 * c;
  if (zk_elem_info[p->elem].bits == 8)
    for (int64_t i = 0; i < n; i += 4, to += 4 * ZK_COLUMNS) memcpy(to, codes + i, 4);
  else
    for (int64_t i = 0; i < n; i += 8, to += 4 * ZK_COLUMNS)
      for (int64_t j = 0; j < 4; j++) to[j] = (uint8_t)(codes[i + j] | codes[i + j + 4] << 4);
  zk_packed_scales(p, panel)[group * ZK_COLUMNS + c] = scale;
  if (zk_elem_info[p->elem].zero == ZK_ZERO_POINT) zk_packed_zeros(p, panel)[group * ZK_COLUMNS + c] = zero;
}

void zk_packed_finish(const ZkPacked *p) {
  static const uint8_t none[MOST_GROUP];
  int64_t groups = p->k / zk_packed_group(p->elem);
  for (int64_t c = p->columns; c < zk_packed_panels(p->columns) * ZK_COLUMNS; c++)
    for (int64_t g = 0; g < groups; g++) zk_packed_put(p, c, g, none, 0, 0);
}

/* ---- back ---------------------------------------------------------------------------------------------- */
static float value_of(const ZkPacked *p, int64_t column, int64_t k) {
  int64_t at = k / zk_packed_group(p->elem) * ZK_COLUMNS + column % ZK_COLUMNS, panel = column / ZK_COLUMNS;
  float scale = zb_f16_to_f32(zk_packed_scales(p, panel)[at]);
  int code = zk_packed_code(p, column, k), zero = zk_packed_zero(p->elem);
  if (zk_elem_info[p->elem].codes == ZK_CODES_NORMAL) return zk_normal_quantile[code] * scale;
  if (zk_elem_info[p->elem].zero == ZK_ZERO_POINT) zero = zk_packed_zeros(p, panel)[at];
  return (float)(code - zero) * scale;
}

/* Fills the values of a group's codes. */
static void table_of(const ZkPacked *p, int64_t column, int64_t group, float *value) {
  int64_t at = group * ZK_COLUMNS + column % ZK_COLUMNS, panel = column / ZK_COLUMNS;
  float scale = zb_f16_to_f32(zk_packed_scales(p, panel)[at]);
  int zero = zk_packed_zero(p->elem), n = 1 << zk_elem_info[p->elem].bits;
  if (zk_elem_info[p->elem].zero == ZK_ZERO_POINT) zero = zk_packed_zeros(p, panel)[at];
  bool normal = zk_elem_info[p->elem].codes == ZK_CODES_NORMAL;
  for (int c = 0; c < n; c++) value[c] = (normal ? zk_normal_quantile[c] : (float)(c - zero)) * scale;
}

static void decode8(const ZkPacked *p, int64_t column, int64_t k, int64_t n, float *x) {
  const uint8_t *codes = zk_packed_codes(p, column / ZK_COLUMNS) + column % ZK_COLUMNS * 4;
  const uint16_t *scales = zk_packed_scales(p, column / ZK_COLUMNS) + column % ZK_COLUMNS;
  int64_t group = zk_packed_group(p->elem);
  for (int64_t i = k; i < k + n;) {
    int64_t g = i / group, end = (g + 1) * group < k + n ? (g + 1) * group : k + n;
    float scale = zb_f16_to_f32(scales[g * ZK_COLUMNS]);
    for (; i < end; i++) x[i - k] = (float)(codes[i / 4 * 4 * ZK_COLUMNS + i % 4] - 128) * scale;
  }
}

static void decode4(const ZkPacked *p, int64_t column, int64_t k, int64_t n, float *x) {
  const uint8_t *codes = zk_packed_codes(p, column / ZK_COLUMNS) + column % ZK_COLUMNS * 4;
  int64_t group = zk_packed_group(p->elem);
  float value[16];
  for (int64_t i = k; i < k + n;) {
    int64_t g = i / group, end = (g + 1) * group < k + n ? (g + 1) * group : k + n;
    table_of(p, column, g, value);
    for (; i < end; i++) {
      uint8_t two = codes[i / 8 * 4 * ZK_COLUMNS + i % 4];
      x[i - k] = value[i % 8 < 4 ? two & 15 : two >> 4];
    }
  }
}

void zk_packed_decode(const ZkPacked *p, int64_t column, int64_t k, int64_t n, float *x) {
  (zk_elem_info[p->elem].bits == 8 ? decode8 : decode4)(p, column, k, n, x);
}

void zk_packed_decode_row(const ZkPacked *p, int64_t k, int64_t column, int64_t n, float *x) {
  for (int64_t i = 0; i < n; i++) x[i] = value_of(p, column + i, k);
}

/* ---- rows in 8 bits ------------------------------------------------------------------------------------ */
static void round_group(const float *x, int64_t n, int8_t *code, float *scale, int32_t *sum) {
  int32_t c[MOST_GROUP], all = 0;
  float far = fabsf(farthest(x, n)), inverse = far > 0 ? 127 / far : 0;
  if (!isfinite(inverse)) inverse = 0; /* less than any sum would notice */
  if (isfinite(far)) round_all(x, n, inverse, c);
  for (int64_t i = 0; i < n; i++) {
    code[i] = (int8_t)(isfinite(far) ? c[i] : 0);
    all += code[i];
  }
  *scale = !isfinite(far) ? NAN : inverse == 0 ? 0 : far / 127;
  *sum = all;
}

void zk_round_row(const float *x, int64_t k, int64_t group, int8_t *code, float *scale, int32_t *sum) {
  ZB_ASSERT(group <= MOST_GROUP);
  for (int64_t g = 0; g < k / group; g++)
    round_group(x + g * group, group, code + g * group, &scale[g], &sum[g]);
}

/* Packed weights back, one column at a time, and rows in 8 bits. Plain C, the same bits on every machine. */
#include "kernels/packed.h"

#include <math.h>

static const float normal_quantile[16] = {
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

const float *zk_code_values(ZkElem e) {
  return zk_elem_info[e].codes == ZK_CODES_NORMAL ? normal_quantile : NULL;
}

enum { MOST_GROUP = 128 };

/* ---- back ---------------------------------------------------------------------------------------------- */
static float value_of(const ZkPacked *p, int64_t column, int64_t k) {
  int64_t at = k / zk_packed_group(p->elem) * ZK_COLUMNS + column % ZK_COLUMNS, panel = column / ZK_COLUMNS;
  float scale = zb_f16_to_f32(zk_packed_scales(p, panel)[at]);
  int code = zk_packed_code(p, column, k), zero = zk_packed_zero(p->elem);
  const float *values = zk_code_values(p->elem);
  if (values) return values[code] * scale;
  if (zk_elem_info[p->elem].zero == ZK_ZERO_POINT) zero = zk_packed_zeros(p, panel)[at];
  return (float)(code - zero) * scale;
}

/* Fills the values of a group's codes. */
static void table_of(const ZkPacked *p, int64_t column, int64_t group, float *value) {
  int64_t at = group * ZK_COLUMNS + column % ZK_COLUMNS, panel = column / ZK_COLUMNS;
  float scale = zb_f16_to_f32(zk_packed_scales(p, panel)[at]);
  int zero = zk_packed_zero(p->elem), n = 1 << zk_elem_info[p->elem].bits;
  if (zk_elem_info[p->elem].zero == ZK_ZERO_POINT) zero = zk_packed_zeros(p, panel)[at];
  const float *values = zk_code_values(p->elem);
  for (int c = 0; c < n; c++) value[c] = (values ? values[c] : (float)(c - zero)) * scale;
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
/* Rounds x * by to the nearest, ties to even: a number of 1.5 2^23 has no room for fractions. What is not
 * less than 2^22 becomes any number. */
static void round_all(const float *x, int64_t n, float by, int32_t *to) {
  for (int64_t i = 0; i < n; i++) {
    float share = x[i] * by + 0x1.8p23f;
    memcpy(&to[i], &share, sizeof share);
    to[i] -= 0x4b400000;
  }
}

/* Returns the largest element without its sign; NaN if something is not finite. */
static float largest(const float *x, int64_t n) {
  uint32_t most = 0, bits[MOST_GROUP];
  memcpy(bits, x, (size_t)n * sizeof *bits);
  for (int64_t i = 0; i < n; i++) {
    uint32_t b = bits[i] & 0x7fffffff;
    most = b > most ? b : most;
  }
  float far;
  memcpy(&far, &most, sizeof far);
  return most >= 0x7f800000 ? NAN : far;
}

static void round_group(const float *x, int64_t n, int8_t *code, float *scale, int32_t *sum) {
  int32_t c[MOST_GROUP], all = 0;
  float far = largest(x, n), inverse = far > 0 ? 127 / far : 0;
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

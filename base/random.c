/* Normal numbers, many at a time: initial values of a model are hundreds of millions of them.
 *
 * The loop is plain arithmetic, so that the compiler makes vectors of it, and it calls no mathematical
 * library: with division and root correctly rounded, and no products fused with sums (local.mk), every
 * machine draws the same bits. */
#include "base/base.h"

#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

INLINE double from_bits(uint64_t b) {
  double x;
  memcpy(&x, &b, sizeof x);
  return x;
}
INLINE uint64_t to_bits(double x) {
  uint64_t b;
  memcpy(&b, &x, sizeof b);
  return b;
}

/* k < 2^52 as a double; k < 2^53 likewise, in two parts. By additions, since not all vectors can convert
 * 64-bit integers. */
INLINE double small(uint64_t k) { return from_bits(k | 0x4330000000000000ull) - 0x1p52; }
INLINE double large(uint64_t k) { return small(k >> 26) * 0x1p26 + small(k & 0x3ffffff); }
/* zb_random_unit's last step. */
INLINE double unit(uint64_t bits) { return (large(bits >> 11) + 0.5) * 0x1p-53; }

/* ln x for normal x > 0: x = 2^e m, m from sqrt(1/2) to sqrt(2); ln m = 2 artanh s, s = (m - 1)/(m + 1), |s|
 * < 0.172: what its series to s^21 leaves is below 2^-55 of it. */
INLINE double ln(double x) {
  const uint64_t root = 0x3fe6a09e667f3bcdull; /* sqrt(1/2) */
  uint64_t t = to_bits(x) + (0x3ff0000000000000ull - root);
  double e = small(t >> 52) - 1023, m = from_bits((t & 0xfffffffffffffull) + root);
  double s = (m - 1) / (m + 1), z = s * s, p = 1.0 / 21;
  p = p * z + 1.0 / 19;
  p = p * z + 1.0 / 17;
  p = p * z + 1.0 / 15;
  p = p * z + 1.0 / 13;
  p = p * z + 1.0 / 11;
  p = p * z + 1.0 / 9;
  p = p * z + 1.0 / 7;
  p = p * z + 1.0 / 5;
  p = p * z + 1.0 / 3;
  const double high = 0x1.62e42feep-1, low = 0x1.a39ef35793c76p-33; /* of ln 2; e high is exact */
  return e * high + (2 * s + (2 * s * z * p + e * low));
}

/* cos(2 pi v) for v from 0 to 1: quarters of a turn, and Taylor's series of the rest, at most an eighth: what
 * they leave is below 2^-57. */
INLINE double cos_turns(double v) {
  const double round = 0x1.8p52;
  double shifted = 4 * v + round, x = (v - (shifted - round) * 0.25) * 6.283185307179586, z = x * x;
  double c = 1.0 / 6402373705728000, s = 1.0 / 355687428096000; /* 1/18!, 1/17! */
  c = 1.0 / 20922789888000 - z * c;
  c = 1.0 / 87178291200 - z * c;
  c = 1.0 / 479001600 - z * c;
  c = 1.0 / 3628800 - z * c;
  c = 1.0 / 40320 - z * c;
  c = 1.0 / 720 - z * c;
  c = 1.0 / 24 - z * c;
  c = 1.0 / 2 - z * c;
  c = 1 - z * c;
  s = 1.0 / 1307674368000 - z * s;
  s = 1.0 / 6227020800 - z * s;
  s = 1.0 / 39916800 - z * s;
  s = 1.0 / 362880 - z * s;
  s = 1.0 / 5040 - z * s;
  s = 1.0 / 120 - z * s;
  s = 1.0 / 6 - z * s;
  s = x * (1 - z * s);
  uint64_t quarter = to_bits(shifted), sign = (quarter + 1) << 62 & 1ull << 63; /* quarters 1 and 2 */
  return from_bits(to_bits(quarter & 1 ? s : c) ^ sign);
}

ZB_WIDE void zb_random_normals(uint64_t seed, uint64_t stream, uint64_t first, size_t n, double *out) {
  uint64_t h = zb_mix64(seed + 0x9e3779b97f4a7c15ull * (stream | 1)) ^ stream;
  for (size_t i = 0; i < n; i++) {
    uint64_t j = 2 * (first + i), k = j + 1;
    uint64_t a = zb_mix64(zb_mix64(h + 0x9e3779b97f4a7c15ull * (j + 1)) + j);
    uint64_t b = zb_mix64(zb_mix64(h + 0x9e3779b97f4a7c15ull * (k + 1)) + k);
    out[i] = __builtin_sqrt(-2 * ln(unit(a))) * cos_turns(unit(b));
  }
}

double zb_random_normal(uint64_t seed, uint64_t stream, uint64_t index) {
  double x;
  zb_random_normals(seed, stream, index, 1, &x);
  return x;
}

/* Branch-free f32 functions that a compiler turns into vector code when they stand in a loop. The
 * largest errors found against libm in f64 over every 31st float, in units in the last place, with FMA
 * and without: exp 0.86, 1.16; log 0.85, 1.07; log1p 2.44, 2.44; tanh 2.46, 2.58; erf 0.99, 1.18; sin
 * and cos up to 2^20 1.48, 1.48. Those that are the C library's, which are called element by element,
 * say so. */
#ifndef ZUG_KERNELS_MATH_H
#define ZUG_KERNELS_MATH_H

#include <math.h>

#include "kernels/cpu/cpu.h"

ZK_INLINE float zk_from_bits(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}
ZK_INLINE uint32_t zk_to_bits(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}
ZK_INLINE float zk_fabs(float x) { return zk_from_bits(zk_to_bits(x) & 0x7fffffff); }
ZK_INLINE float zk_with_sign(float x, float sign) {
  return zk_from_bits((zk_to_bits(x) & 0x7fffffff) | (zk_to_bits(sign) & 0x80000000));
}

ZK_INLINE float zk_sqrt(float x) { return __builtin_sqrtf(x); }
ZK_INLINE float zk_floor(float x) { return __builtin_floorf(x); }
ZK_INLINE float zk_rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }

/* 2^(x/ln 2): the integer part by adding 1.5 2^23, the rest by a polynomial on [-ln2/2, ln2/2]. The
 * sum's low bits, shifted, are what the integer part adds to the exponent. Results below the smallest
 * normal number are 0. */
ZK_INLINE float zk_exp(float x) {
  float t = x * 1.44269504f + 12582912.0f;
  float n = t - 12582912.0f;
  float r = x - n * 0.693359375f; /* 9 bits: exact for every n */
  r = r + n * 2.12194440e-4f;
  float p = 1.37805939e-3f;
  p = p * r + 8.37312452e-3f;
  p = p * r + 4.16695364e-2f;
  p = p * r + 1.66664720e-1f;
  p = p * r + 4.99999851e-1f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  float y = zk_from_bits(zk_to_bits(p) + (zk_to_bits(t) << 23));
  y = x < -87.3365f ? 0.0f : y;
  return x <= 88.7228394f ? y : x + __builtin_inff(); /* a NaN stays one */
}

/* The exponent by integer arithmetic such that the mantissa m is in [2/3, 4/3), log1p(m - 1) by a
 * polynomial. */
ZK_INLINE float zk_log(float x) {
  bool tiny = x < 1.17549435e-38f;
  float a = tiny ? x * 8388608.0f : x;
  uint32_t e = (zk_to_bits(a) - 0x3f2aaaabu) & 0xff800000u;
  float m = zk_from_bits(zk_to_bits(a) - e) - 1.0f;
  float i = (float)(int32_t)e * 1.19209290e-7f + (tiny ? -23.0f : 0.0f);
  float s = m * m;
  float r = -0.130310059f, t = 0.140869141f;
  r = r * s - 0.121483512f;
  t = t * s + 0.139814854f;
  r = r * s - 0.166846126f;
  t = t * s + 0.200120345f;
  r = r * s - 0.249996200f;
  r = t * m + r;
  r = r * m + 0.333331972f;
  r = r * m - 0.5f;
  r = r * s + m;
  r = i * 0.693147182f + r;
  r = x < __builtin_inff() ? r : x; /* infinity and NaN stay */
  r = x == 0.0f ? -__builtin_inff() : r;
  return x < 0.0f ? __builtin_nanf("") : r;
}

/* Of u = 1 + x, rounded: log(u) x / (u - 1) is right to a few roundings, since log(u) / (u - 1) changes
 * slowly (Kahan). */
ZK_INLINE float zk_log1p(float x) {
  float u = 1.0f + x, d = u - 1.0f;
  float y = zk_log(u);
  float r = y * (x / d);
  r = d == 0.0f ? x : r;
  return x > 16777216.0f ? y : r; /* x / d is no number for infinity */
}

/* u / (u + 1) for u = (e^2|x| - 1) / 2, which is small where tanh is and large where it is 1. e^2|x| is 2^n
 * e^2r with n as in zk_exp and |r| <= ln2 / 4, and e^2r - 1 a polynomial. From 9.1 on tanh is 1. */
ZK_INLINE float zk_tanh(float x) {
  float a = zk_fabs(x);
  a = a > 9.1f ? 9.1f : a;
  float t = a * 2.88539008f + 12583039.0f; /* 1.5 2^23, and 127: n becomes the exponent of 2^n */
  float n = t - 12583039.0f;
  float r = a - n * 0.34657359f;
  float s = zk_from_bits(zk_to_bits(t) << 23);
  float p = 4.44240496e-2f;
  p = p * r + 1.33864611e-1f;
  p = p * r + 3.33337605e-1f;
  p = p * r + 6.66661739e-1f;
  p = p * r + 9.99999940e-1f;
  p = r * r * p + r;
  float u = s * p + (s * 0.5f - 0.5f);
  return zk_with_sign(u / (u + 1.0f), x);
}

ZK_INLINE float zk_erf(float x) {
  float t = zk_fabs(x), s = x * x;
  t = t > 4.0f ? 4.0f : t; /* erf is 1 there; keeps the polynomial finite */
  float s1 = t * t;
  float r = -1.72853470e-5f * t + 3.83197126e-4f;
  float u = -3.88396438e-3f * t + 2.42546219e-2f;
  r = r * s1 + u;
  r = r * t - 1.06777877e-1f;
  r = r * t - 6.34846687e-1f;
  r = r * t - 1.28717512e-1f;
  r = r * t - t;
  float large = zk_with_sign(1.0f - zk_exp(r), x);
  float p = -5.96761703e-4f;
  p = p * s + 4.99119423e-3f;
  p = p * s - 2.67681349e-2f;
  p = p * s + 1.12819925e-1f;
  p = p * s - 3.76125336e-1f;
  p = p * s + 1.28379166e-1f;
  float small = p * x + x;
  return t > 0.927734375f ? large : small;
}

/* The C library's: of any size; zk_sincos is faster. */
ZK_INLINE float zk_sin(float x) { return sinf(x); }
ZK_INLINE float zk_cos(float x) { return cosf(x); }
ZK_INLINE float zk_pow(float x, float y) { return powf(x, y); }

/* Reduces by pi/2 in f64, in two steps (the product with the first is exact up to |x| = 2^20), then a
 * polynomial on [-pi/4, pi/4]. */
ZK_INLINE void zk_sincos(double x, float *sine, float *cosine) {
  double n = x * 0.63661977236758134308 + 6755399441055744.0;
  n -= 6755399441055744.0;
  float r = (float)(x - n * 1.5707963267341256 - n * 6.0771005065061922e-11);
  int32_t q = (int32_t)n;
  float s = r * r;
  float c = 2.44677067e-5f;
  c = c * s - 1.38877297e-3f;
  c = c * s + 4.16666567e-2f;
  c = c * s - 0.5f;
  c = c * s + 1.0f;
  float p = 2.86567956e-6f;
  p = p * s - 1.98559923e-4f;
  p = p * s + 8.33338592e-3f;
  p = p * s - 1.66666672e-1f;
  p = p * (s * r) + r;
  float sv = (q & 1) ? c : p, cv = (q & 1) ? p : c;
  *sine = zk_from_bits(zk_to_bits(sv) ^ ((uint32_t)(q & 2) << 30));
  *cosine = zk_from_bits(zk_to_bits(cv) ^ ((uint32_t)((q + 1) & 2) << 30));
}

#endif

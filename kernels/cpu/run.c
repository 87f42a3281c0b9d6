/* Vectorised passes over contiguous runs of f32. The order of a reduction depends on the instruction set
 * only. */
#include "kernels/cpu/math.h"

ZK_SIMD float zk_run_sum(const float *x, int64_t n) {
  float s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; i++) s += x[i];
  return s;
}

ZK_SIMD float zk_run_max(const float *x, int64_t n) {
  float m = -__builtin_inff();
#pragma omp simd reduction(max : m)
  for (int64_t i = 0; i < n; i++) m = x[i] > m ? x[i] : m;
  return m;
}

ZK_SIMD float zk_run_dot(const float *x, const float *y, int64_t n) {
  float s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; i++) s += x[i] * y[i];
  return s;
}

ZK_SIMD float zk_run_sumsq_about(const float *x, float mean, int64_t n) {
  float s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; i++) s += (x[i] - mean) * (x[i] - mean);
  return s;
}

ZK_SIMD void zk_run_add(float *y, const float *x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] += x[i];
}

ZK_SIMD void zk_run_max_into(float *y, const float *x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] = x[i] > y[i] ? x[i] : y[i];
}

ZK_SIMD void zk_run_fma(float *y, const float *a, const float *b, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] += a[i] * b[i];
}

ZK_SIMD void zk_run_axpy(float *y, float a, const float *x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] += a * x[i];
}

ZK_SIMD void zk_run_scale(float *y, const float *x, float a, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] = a * x[i];
}

ZK_SIMD void zk_run_affine(float *y, const float *x, float mean, float r, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * r;
}

ZK_SIMD float zk_run_exp_sum(float *y, const float *x, float scale, float shift, int64_t n) {
  float s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; i++) {
    float e = zk_exp(x[i] * scale - shift);
    y[i] = e;
    s += e;
  }
  return s;
}

ZK_SIMD float zk_run_sum_exp(const float *x, float shift, int64_t n) {
  float s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; i++) s += zk_exp(x[i] - shift);
  return s;
}

ZK_SIMD void zk_run_exp_scale(float *y, const float *x, float shift, float a, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] = a * zk_exp(x[i] - shift);
}

ZK_SIMD void zk_run_fill(float *y, float a, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] = a;
}

ZK_SIMD void zk_run_from_bf16(float *y, const uint16_t *x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] = zk_from_bits((uint32_t)x[i] << 16);
}

ZK_SIMD void zk_run_to_bf16(uint16_t *y, const float *x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] = zb_f32_to_bf16(x[i]);
}

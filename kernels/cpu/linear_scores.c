/* Scores of pairs of tokens in a chunk, and the triangular system of a feedback.
 *
 * One decay a token: a product, then a mask of exponents that are not positive. One for each feature: exp(G_t
 * - G_j) lies inside the sum over features; factored into exp(G_t) and exp(-G_j) it overflows. So tiles of 16
 * tokens are multiplied with those to their left by a reference between the two, where both factors are at
 * most 1, and on the diagonal feature by feature (secondary chunks: Yang et al. 2024, "Gated linear
 * attention", section 4.3). */
#include "kernels/cpu/linear.h"
#include "kernels/cpu/math.h"

#define TILE ZK_LINEAR_TILE

ZK_SIMD static void exp_between(float *e, const double *from, const double *to, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) e[i] = zk_exp((float)(to[i] - from[i]));
}
ZK_SIMD static void mul(float *y, const float *a, const float *b, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] = a[i] * b[i];
}
ZK_SIMD static float dot3(const float *a, const float *b, const float *c, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; i++) sum += a[i] * b[i] * c[i];
  return sum;
}
/* y += s a b */
ZK_SIMD static void mul_add(float *y, float s, const float *a, const float *b, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] += s * a[i] * b[i];
}

/* Zeroes what the mask hides; one decay a token decays the rest. */
static void cut(const ZkLinear *l, bool strict, float *A) {
  for (int64_t t = 0; t < l->m; t++) {
    int64_t seen = t + !strict;
    if (l->mask) mul(A + t * l->m, A + t * l->m, l->mask + t * l->m, seen);
    zk_run_fill(A + t * l->m + seen, 0, l->m - seen);
  }
}

/* x of tile [r, r + n), decayed since the reference before it, and y of [0, r), decayed up to there. */
static void around(ZkLinear *l, const float *x, const float *y, int64_t r, int64_t n, float *ex, float *ey) {
  const double *G = l->G, *ref = G + (r - 1) * l->K;
  for (int64_t t = 0; t < n; t++) {
    exp_between(ex + t * l->K, ref, G + (r + t) * l->K, l->K);
    mul(l->t1 + t * l->K, x + (r + t) * l->K, ex + t * l->K, l->K);
  }
  for (int64_t j = 0; j < r; j++) {
    exp_between(ey + j * l->K, G + j * l->K, ref, l->K);
    mul(l->t2 + j * l->K, y + j * l->K, ey + j * l->K, l->K);
  }
}

void zk_linear_scores(ZkLinear *l, const float *x, const float *y, bool strict, float *A) {
  int64_t m = l->m, K = l->K;
  if (l->D != K || K == 1) {
    zk_sgemm(false, true, m, m, K, 1, x, K, y, K, 0, A, m);
    cut(l, strict, A);
    return;
  }
  for (int64_t r = 0, n; r < m; r += n) {
    n = zk_min(TILE, m - r);
    if (r) {
      around(l, x, y, r, n, l->tile[0], l->tile[1]);
      zk_sgemm(false, true, n, r, K, 1, l->t1, K, l->t2, K, 0, A + r * m, m);
    }
    for (int64_t t = r; t < r + n; t++) {
      int64_t seen = t + !strict;
      for (int64_t j = r; j < seen; j++) {
        exp_between(l->tile[0], l->G + j * K, l->G + t * K, K);
        A[t * m + j] = dot3(x + t * K, y + j * K, l->tile[0], K);
      }
      zk_run_fill(A + t * m + seen, 0, m - seen);
    }
  }
}

void zk_linear_scores_grad(ZkLinear *l, const float *x, const float *y, bool strict, float *dA, float *dx,
                           float *dy) {
  int64_t m = l->m, K = l->K;
  if (l->D != K || K == 1) {
    cut(l, strict, dA);
    zk_sgemm(false, false, m, K, m, 1, dA, m, y, K, 1, dx, K);
    zk_sgemm(true, false, m, K, m, 1, dA, m, x, K, 1, dy, K);
    return;
  }
  float *ex = l->tile[0], *ey = l->tile[1], *part = l->tile[2];
  for (int64_t r = 0, n; r < m; r += n) {
    n = zk_min(TILE, m - r);
    for (int64_t t = r; t < r + n; t++)
      for (int64_t j = r; j < t + !strict; j++) {
        exp_between(ex, l->G + j * K, l->G + t * K, K);
        mul_add(dx + t * K, dA[t * m + j], ex, y + j * K, K);
        mul_add(dy + j * K, dA[t * m + j], ex, x + t * K, K);
      }
    if (!r) continue;
    around(l, x, y, r, n, ex, ey);
    zk_sgemm(false, false, n, K, r, 1, dA + r * m, m, l->t2, K, 0, part, K);
    mul_add(dx + r * K, 1, part, ex, n * K);
    zk_sgemm(true, false, r, K, n, 1, dA + r * m, m, l->t1, K, 0, part, K);
    mul_add(dy, 1, part, ey, r * K);
  }
}

/* Substitution, a block of tokens at a time: by powers of L the error grows without bound with equal keys. */
void zk_linear_solve(const ZkLinear *l, const float *L, float *U, bool back) {
  int64_t m = l->m, V = l->V, blocks = zk_ceil_div(m, TILE);
  for (int64_t b = 0; b < blocks; b++) {
    int64_t from = (back ? blocks - 1 - b : b) * TILE, to = zk_min(from + TILE, m), n = to - from;
    if (!back && from) zk_sgemm(false, false, n, V, from, 1, L + from * m, m, U, V, 1, U + from * V, V);
    if (back && to < m)
      zk_sgemm(true, false, n, V, m - to, 1, L + to * m + from, m, U + to * V, V, 1, U + from * V, V);
    for (int64_t i = 0; i < n; i++) {
      int64_t t = back ? to - 1 - i : from + i;
      for (int64_t j = back ? t + 1 : from; j < (back ? to : t); j++)
        zk_run_axpy(U + t * V, back ? L[j * m + t] : L[t * m + j], U + j * V, V);
    }
  }
}

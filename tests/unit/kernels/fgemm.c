/* Blocks of f32 products: right, and of the same bits however they are cut. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/fgemm.h"

enum { M = 40, N = 100, K = 150, LDC = N + 5 };
static float a[M * K], at[K * M], b[K * N], packed[(N + ZK_FPANEL) * K], c[M * LDC], d[M * LDC];

static void fill(void) {
  for (int i = 0; i < M; i++)
    for (int p = 0; p < K; p++)
      a[i * K + p] = at[p * M + i] = (float)zb_random_normal(1, 2, (uint64_t)(i * K + p));
  memset(packed, 0, sizeof packed);
  for (int p = 0; p < K; p++)
    for (int j = 0; j < N; j++) {
      b[p * N + j] = (float)zb_random_normal(1, 3, (uint64_t)(p * N + j));
      packed[j / ZK_FPANEL * K * ZK_FPANEL + p * ZK_FPANEL + j % ZK_FPANEL] = b[p * N + j];
    }
}

/* Of m, n, k at most 150, |terms| about 1: errors of f32 grow with k. */
#define TOL 2e-5

static void expect(int m, int n, int k, double was, const char *what) {
  for (int i = 0; i < m; i++)
    for (int j = 0; j < LDC; j++) {
      double sum = j < n ? was : -7;
      for (int p = 0; p < k && j < n; p++) sum += (double)a[i * K + p] * b[p * N + j];
      cr_assert(fabs(sum - c[i * LDC + j]) < TOL, "%s, %d x %d x %d at %d, %d: %g for %g", what, m, n, k, i,
                j, c[i * LDC + j], sum);
    }
}

static void clear(int m, int n, float was) {
  for (int i = 0; i < m; i++)
    for (int j = 0; j < LDC; j++) c[i * LDC + j] = j < n ? was : -7;
}

static void try(int m, int n, int k) {
  for (int add = 0; add < 2; add++) {
    clear(m, n, 3);
    zk_fgemm(false, m, n, k, a, K, b, N, add, c, LDC);
    expect(m, n, k, add ? 3 : 0, "plain");
    clear(m, n, 3);
    zk_fgemm(true, m, n, k, at, M, b, N, add, c, LDC);
    expect(m, n, k, add ? 3 : 0, "transposed");
    ZkFblock x = {.a = a,
                  .a_strip = ZK_FSTRIP * K,
                  .a_row = K,
                  .a_step = 1,
                  .b = packed,
                  .b_step = ZK_FPANEL,
                  .b_panel = K * ZK_FPANEL,
                  .c = c,
                  .ldc = LDC,
                  .m = m,
                  .n = n,
                  .k = k,
                  .add = add};
    clear(m, n, 3);
    zk_fgemm_block(&x);
    expect(m, n, k, add ? 3 : 0, "packed");
  }
}

Test(fgemm, sizes) {
  static const int size[][3] = {{1, 1, 1},    {4, 32, 7},    {12, 32, 150}, {13, 33, 65},  {7, 15, 64},
                                {40, 100, 1}, {25, 96, 128}, {40, 99, 129}, {11, 17, 150}, {6, 100, 0}};
  fill();
  for (int set = 0; set < 3; set++)
    for (size_t i = 0; zk_fgemm_use(set) && i < sizeof size / sizeof *size; i++)
      try(size[i][0], size[i][1], size[i][2]);
}

/* An element's bits are those that it has in a product of its own, and k may be cut anywhere. */
Test(fgemm, bits) {
  fill();
  for (int set = 0; set < 3; set++) {
    if (!zk_fgemm_use(set)) continue;
    zk_fgemm(false, M, N, K, a, K, b, N, false, c, LDC);
    for (int cut = 0; cut <= K; cut += 29) {
      zk_fgemm(false, M, N, cut, a, K, b, N, false, d, LDC);
      zk_fgemm(true, M, N, K - cut, at + cut * M, M, b + cut * N, N, true, d, LDC);
      for (int i = 0; i < M; i++)
        cr_assert(!memcmp(c + i * LDC, d + i * LDC, N * sizeof *c), "set %d, row %d, k cut at %d", set, i,
                  cut);
    }
    for (int i = 0; i < M; i += 3)
      for (int j = 0; j < N; j += 7) {
        float one;
        zk_fgemm(false, 1, 1, K, a + i * K, K, b + j, N, false, &one, 1);
        cr_assert(!memcmp(&one, &c[i * LDC + j], sizeof one), "set %d, element %d, %d", set, i, j);
      }
  }
}

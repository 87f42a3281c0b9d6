/* Codes of 8 bits: what they can say, that what they say has the same codes, and AdamW by way of them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tests/unit/kernels/conform.h"
#include "tests/unit/kernels/update.h"

enum { B = ZK_DYN8_BLOCK, BYTES = B + 4 };           /* of a block: its codes, and their scale */
static const ZkElem formats[] = {ZK_UDYN8, ZK_DYN8}; /* without sign, with it */
static const ZkEnv alone;

static ZkPool *pool[2];
static void start(void) {
  pool[0] = zk_pool_new(1);
  pool[1] = zk_pool_new(3);
}
static void stop(void) {
  zk_pool_free(pool[0]);
  zk_pool_free(pool[1]);
}
TestSuite(adamw8, .init = start, .fini = stop);

/* Block b: normal numbers of a size that falls from block to block, the last block zeros; each block has a
 * decade of small ones, and one that is by far the largest, negative in every second. */
static void fill(int64_t n, uint64_t stream, bool sign, float *x) {
  for (int64_t i = 0; i < n; i++) {
    double v = zb_random_normal(9, stream, (uint64_t)i) * pow(10, -(double)(i / B)) * (i % 8 ? 1 : 1e-4);
    if (i % B == 77) v = (i / B % 2 ? -10 : 10) * pow(10, -(double)(i / B));
    x[i] = i / B == n / B - 1 ? 0 : (float)(sign ? v : fabs(v));
  }
}

static float scale_of(const uint8_t *codes, int64_t block) {
  float scale;
  memcpy(&scale, codes + block * BYTES + B, sizeof scale);
  return scale;
}

Test(adamw8, codes) {
  enum { N = 8 * B };
  float x[N], y[N], again[N], some[300];
  uint8_t codes[8 * BYTES], codes2[8 * BYTES];
  for (int sign = 0; sign < 2; sign++) {
    fill(N, 1, sign, x);
    zk_cpu_encode(&alone, N, x, (ZkFlat){formats[sign], codes});
    zk_cpu_decode(&alone, (ZkFlat){formats[sign], codes}, 0, N, y);
    for (int i = 0; i < N; i++) {
      double most = fabs((double)scale_of(codes, i / B)), share = most > 0 ? fabs((double)x[i]) / most : 0;
      /* Half a part of the decade that it is in; the lowest has one part, or two. */
      double decade = ceil(log10(share > 1e-7 ? share : 1e-7)), parts = pow(2, decade + 6) * (sign ? 1 : 2);
      double step = decade < -5 ? 1e-6 : 0.9 * pow(10, decade) / parts;
      EACH_ASSERT(fabs((double)y[i] - (double)x[i]) <= most * step * 0.51, "%d: %g of %g is %g", i,
                  (double)x[i], most, (double)y[i]);
      EACH_ASSERT(sign || (x[i] > 0) == (y[i] > 0), "%d: %g is %g", i, (double)x[i], (double)y[i]);
    }
    for (int b = 0; b < 7; b++)
      cr_assert(scale_of(codes, b) == x[b * B + 77] && y[b * B + 77] == x[b * B + 77], "block %d", b);
    cr_assert(scale_of(codes, 7) == 0 && y[N - 1] == 0);
    zk_cpu_encode(&alone, N, y, (ZkFlat){formats[sign], codes2});
    zk_cpu_decode(&alone, (ZkFlat){formats[sign], codes2}, 0, N, again);
    cr_assert(!memcmp(codes, codes2, sizeof codes), "sign %d", sign);
    cr_assert(!memcmp(y, again, sizeof y));
    zk_cpu_decode(&alone, (ZkFlat){formats[sign], codes}, 200, 300, some);
    cr_assert(!memcmp(some, y + 200, sizeof some));
  }
}

/* All that a block of one scale can say has codes of its own: 256 values, but for zeros of no scale. */
Test(adamw8, each_code) {
  for (int sign = 0; sign < 2; sign++) {
    float scale = 3e-5f, x[B], y[B];
    uint8_t codes[BYTES], back[BYTES];
    for (int i = 0; i < B; i++) codes[i] = (uint8_t)i;
    memcpy(codes + B, &scale, sizeof scale);
    zk_cpu_decode(&alone, (ZkFlat){formats[sign], codes}, 0, B, x);
    for (int i = 1; i < B; i++) EACH_ASSERT(x[i] > x[i - 1], "code %d", i);
    zk_cpu_encode(&alone, B, x, (ZkFlat){formats[sign], back});
    zk_cpu_decode(&alone, (ZkFlat){formats[sign], back}, 0, B, y);
    cr_assert(!memcmp(codes, back, sizeof codes) && !memcmp(x, y, sizeof x));
  }
}

/* A step is that of AdamW from what the codes say, rounded to codes afterwards. */
Test(adamw8, step) {
  static const int64_t blocks[] = {0, 1, 2, 100};
  for (int k = 0; k < 8; k++) {
    int64_t n = blocks[k / 2] * B;
    ZkEnv env = {.pool = pool[k % 2]};
    size_t bytes = zk_bytes(ZK_DYN8, (uint64_t)n);
    float *x[5];
    uint8_t *codes[2], *want = malloc(bytes + 1);
    uint16_t *w16 = malloc((size_t)(n + 1) * sizeof *w16), *half = malloc((size_t)(n + 1) * sizeof *half);
    for (int i = 0; i < 5; i++) x[i] = malloc((size_t)(n + 1) * sizeof **x);
    for (int i = 0; i < 2; i++) codes[i] = malloc(bytes + 1);
    float *g = x[0], *w = x[1], *m = x[2], *v = x[3], *w2 = x[4];
    fill(n, 2, true, g), fill(n, 3, true, w), fill(n, 4, true, m), fill(n, 5, false, v);
    memcpy(w2, w, (size_t)n * sizeof *w);
    w2[n] = 7, w16[n] = 77, codes[0][bytes] = codes[1][bytes] = 3;
    ZkFlat mc = {ZK_DYN8, codes[0]}, vc = {ZK_UDYN8, codes[1]};
    zk_cpu_encode(&env, n, m, mc), zk_cpu_encode(&env, n, v, vc);
    zk_cpu_decode(&env, mc, 0, n, m), zk_cpu_decode(&env, vc, 0, n, v);
    By p = {.lr = 0.01f, .b1 = 0.9f, .b2 = 0.95f, .eps = 1e-6f, .decay = 0.1f, .scale = 0.5f, .step = 7};
    cr_assert(by_adamw(&env, &p, n, g, w, m, v, half));
    cr_assert(by_adamw8(&env, &p, n, g, w2, mc, vc, k & 2 ? w16 : NULL));
    cr_assert(!memcmp(w, w2, (size_t)n * sizeof *w));
    cr_assert(!(k & 2) || !memcmp(w16, half, (size_t)n * sizeof *half));
    for (int s = 0; s < 2; s++) { /* states as they are after it, in codes */
      zk_cpu_encode(&env, n, s ? v : m, (ZkFlat){formats[!s], want});
      cr_assert(!memcmp(want, codes[s], bytes));
    }
    cr_assert(w2[n] == 7 && w16[n] == 77 && codes[0][bytes] == 3 && codes[1][bytes] == 3);
    if (n) {
      g[n - 1] = NAN;
      cr_assert(!by_adamw8(&env, &p, n, g, w2, mc, vc, NULL));
    }
    for (int i = 0; i < 5; i++) free(x[i]);
    for (int i = 0; i < 2; i++) free(codes[i]);
    free(want), free(w16), free(half);
  }
}

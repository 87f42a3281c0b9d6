/* Products of experts' rows, and gradients of their weights, of bf16 operands: against the reference by every
 * path that this machine has. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/bgemm.h"
#include "tests/unit/kernels/bgemm.h"
#include "tests/unit/kernels/conform.h"

#define TOL 3e-6 /* f32 sums of at most 2100 products: as in reduce.c */

/* e: experts, s: rows, k: contracted, n: of the result. More rows, columns and k than a block has. */
static double some[] = {3, 3, 140, 141}, all[] = {0, 300, 300, 300};

static void by_path(const char *name) {
  double *ends[] = {some, all};
  use_path(name);
  for (int i = 0; i < 2; i++) {
    if (!breadth_tries((size_t)i + (*name == 'f'), 2)) continue;
    CONFORM(.op = ZG_OP_GROUPED_DOT, .dims = "e=4 s=300 k=64 n=40", .ax = "esk",
            .in = {{"sk"}, {"ekn"}, {"e", ID, 0, 0, ends[i]}}, .out = {{"sn"}}, .tol = TOL);
    CONFORM(.op = ZG_OP_GROUPED_DOT, .dims = "e=4 s=75 k=33 n=300", .ax = "esk",
            .in = {{"esk"}, {"enk"}, {"e", ID, 0, 0, ends[i]}}, .out = {{"esn"}}, .tol = TOL);
    CONFORM(.op = ZG_OP_GROUPED_OUTER, .dims = "e=4 s=300 k=33 n=70", .ax = "es", .accumulate = i,
            .in = {{"sk"}, {"sn"}, {"e", ID, 0, 0, ends[i]}}, .out = {{"ekn", EXACT}}, .tol = TOL);
    CONFORM(.op = ZG_OP_GROUPED_OUTER, .dims = "e=4 s=75 k=400 n=20", .ax = "es", .accumulate = i,
            .in = {{"esk"}, {"esn"}, {"e", ID, 0, 0, ends[i]}}, .out = {{"enk", EXACT}}, .tol = TOL);
  }
  static double few[] = {5, 9};
  CONFORM(.op = ZG_OP_GROUPED_DOT, .dims = "e=2 s=10 k=2100 n=40", .ax = "esk",
          .in = {{"sk"}, {"ekn"}, {"e", ID, 0, 0, few}}, .out = {{"sn"}}, .tol = TOL);
}

Test(grouped_half, avx512) { by_path("avx512"); }
Test(grouped_half, amx) { by_path("amx"); }
Test(grouped_half, f32) { by_path("f32"); }

/* A row's bits do not depend on how many rows there are. */
Test(grouped_half, bits) {
  enum { R = 150, K = 96, N = 70 };
  uint16_t *x = malloc(R * K * sizeof *x), *w = malloc(K * N * sizeof *w), *y = malloc(R * N * 2 * sizeof *y),
           *z = y + R * N;
  int32_t end = R;
  for (int i = 0; i < R * K; i++) x[i] = zb_f32_to_bf16((float)zb_random_normal(1, 2, (uint64_t)i));
  for (int i = 0; i < K * N; i++) w[i] = zb_f32_to_bf16((float)zb_random_normal(1, 3, (uint64_t)i));
  ZkCall c = {.op = ZG_OP_GROUPED_DOT, .nin = 3, .nout = 1, .nax = 3, .ax = {'e', 's', 'k'}};
  c.in[0] = (ZkView){x, ZK_BF16, 2, 0, {'s', 'k'}, {R, K}, {K, 1}, {0}, {R, K}};
  c.in[1] = (ZkView){w, ZK_BF16, 3, 0, {'e', 'k', 'n'}, {1, K, N}, {K * N, N, 1}, {0}, {1, K, N}};
  c.in[2] = (ZkView){&end, ZK_I32, 1, 0, {'e'}, {1}, {1}, {0}, {1}};
  c.out[0] = (ZkView){y, ZK_BF16, 2, 0, {'s', 'n'}, {R, N}, {N, 1}, {0}, {R, N}};
  c.scratch = aligned_alloc(64, zb_round_up(zk_cpu_scratch(&c, 1), 64));
  ZkEnv env = {0};
  zk_cpu_kernel(c.op)(&env, &c);
  for (int first = 0; first < R; first += 31)
    for (int n = 1; first + n <= R; n = 3 * n + 1) {
      end = n;
      c.in[0].data = x + first * K, c.in[0].size[0] = c.in[0].whole[0] = n;
      c.out[0].data = z, c.out[0].size[0] = c.out[0].whole[0] = n;
      zk_cpu_kernel(c.op)(&env, &c);
      cr_assert(!memcmp(z, y + first * N, (size_t)n * N * sizeof *z), "rows %d to %d", first, first + n);
    }
  free(c.scratch), free(x), free(w), free(y);
}

/* The host's side: division by multiplication, memos, errors. */
#include "graph/graph.h"

#define ZUG_KERNELS_CPU_H /* graph.h has the numbers of ops */
#include "kernels/cuda/host.h"

#include <string.h>

#include "tests/unit/kernels/cuda/emu.h"

unsigned emu_row(const ZkcUnits *units, long long u, long long *at); /* zkc_row */

/* Rows of sizes around powers of two, units around multiples of them and around 2^32, where the way
 * changes. */
Test(host, units) {
  static const int64_t sizes[] = {1,   2,    3,     5,     7,       8,          96,
                                  641, 1000, 65535, 65537, 1000003, 0x7fffffff, 0x100000001};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int large = 0; large < 2; large++) {
      int64_t n = sizes[i], rows = (large ? 0xfffffffff : 0xffffffff) / n;
      if (rows >= (int64_t)1 << 32) rows = ((int64_t)1 << 32) - 1;
      ZkcUnits units = zkc_units(rows, n);
      for (int k = 0; k < 3000; k++) {
        int64_t u = (int64_t)(zb_random_u64(1, (uint64_t)i, (uint64_t)k) % (uint64_t)(units.total + 1));
        if (k % 3) u = u / n * n + k % 3 - 1; /* the first of a row, the one after it */
        if (k < 20) u = units.total - 1 - k;
        if (u < 0 || u >= units.total) continue;
        long long at = -1;
        unsigned row = emu_row(&units, u, &at);
        EACH_ASSERT(row == u / n && at == u % n, "unit %lld of rows of %lld: %u, %lld", (long long)u,
                    (long long)n, row, at);
      }
    }
}

static int made, dropped;
static void make(ZkCuda *cu, const ZkCall *call, void *memo) {
  (void)cu;
  *(int64_t *)memo = call->in[0].size[0];
  made++;
}
static void drop(void *memo) {
  (void)memo;
  dropped++;
}

Test(host, memos) {
  static _Alignas(16) float x[8];
  ZkCuda *cu = zk_cuda_new(0, NULL);
  ZkCall call = {.op = ZG_OP_COPY, .nin = 1};
  call.in[0] = (ZkView){.data = x, .rank = 1, .axis = {1}, .stride = {1}};
  for (int round = 0; round < 2; round++)
    for (int64_t n = 0; n < 1000; n++) {
      call.in[0].size[0] = n;
      EACH_ASSERT(*(int64_t *)zk_cuda_memo(cu, &call, 8, make, drop) == n, "memo of %lld", (long long)n);
    }
  cr_assert(made == 1000);
  call.in[0].data = x + 4; /* elsewhere, but a multiple of 16 bytes as well */
  zk_cuda_memo(cu, &call, 8, make, drop);
  cr_assert(made == 1000);
  call.in[0].data = x + 1;
  zk_cuda_memo(cu, &call, 8, make, drop);
  cr_assert(made == 1001);
  call.num[0] = 1;
  zk_cuda_memo(cu, &call, 8, make, drop);
  cr_assert(made == 1002);
  for (int i = 0; i < 2; i++) { /* a scalar, wherever it is */
    call.in[0] = (ZkView){.data = x + i};
    zk_cuda_memo(cu, &call, 8, make, drop);
  }
  cr_assert(made == 1003);
  zk_cuda_free(cu);
  cr_assert(dropped == made);
}

/* Nothing can be made while a step is captured: the capture fails and says for which call, and the next step
 * makes it. */
Test(host, memos_while_captured) {
  ZkCuda *cu = zk_cuda_new(0, NULL);
  ZkCall call = {.op = ZG_OP_COPY, .nin = 1};
  call.in[0] = (ZkView){.rank = 1, .axis = {1}, .size = {3}, .stride = {1}};
  zk_cuda_memo(cu, &call, 8, make, drop);
  cu->capturing = true;
  cr_assert(*(int64_t *)zk_cuda_memo(cu, &call, 8, make, drop) == 3 && !zk_cuda_error(cu));
  call.in[0].size[0] = 4;
  cr_assert(*(int64_t *)zk_cuda_memo(cu, &call, 8, make, drop) == 0 && made == 1);
  cr_assert_str_eq(zk_cuda_error(cu),
                   "`copy` f32[4]: what it needs was not prepared: it cannot be made while a "
                   "step is captured");
  cu->capturing = cu->failed = false;
  cr_assert(*(int64_t *)zk_cuda_memo(cu, &call, 8, make, drop) == 4 && made == 2);
  zk_cuda_free(cu);
  cr_assert(dropped == made);
}

Test(host, errors) {
  ZkCuda *cu = zk_cuda_new(0, NULL);
  ZkEnv env = {.device = cu};
  float a = 1, b = 2;
  ZkCall call = {.op = ZG_OP_SUM, .nin = 1, .nout = 1};
  call.in[0] = (ZkView){.elem = ZK_BF16, .rank = 2, .size = {3, 40}};
  cr_assert(zk_cuda_error(cu) == NULL);
  zk_cuda_fail(cu, &call, "reduce_rows", "too many resources requested for launch");
  cr_assert_str_eq(zk_cuda_error(cu),
                   "`sum` bf16[3 40] -> f32[]: reduce_rows: too many resources requested for launch");
  zk_cuda_fail(cu, NULL, "another", "later");
  cr_assert(strncmp(zk_cuda_error(cu), "`sum`", 5) == 0, "the first error stays");
  zk_cuda_axpy(&env, 1, 1, &a, &b);
  cr_assert(b == 2, "nothing runs after an error");
  for (int i = 0; i < ZK_MAX_AXES; i++) call.in[0].size[i] = 1000000000000;
  call.in[0].rank = ZK_MAX_AXES;
  call.nin = 12;
  for (int k = 1; k < 12; k++) call.in[k] = call.in[0];
  cu->failed = false;
  zk_cuda_fail(cu, &call, "x", "y"); /* text that is too long ends early */
  cr_assert(strlen(cu->error) < sizeof cu->error);
  zk_cuda_free(cu);
}

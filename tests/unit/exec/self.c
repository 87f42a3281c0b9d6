/* The communicator of one rank, and the arithmetic of reductions. What several ranks do: tests/scenarios/tools/comm.c. */
#include "kernels/kernels.h"
#include "runtime/exec/comm/comm.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

Test(self, everything_is_complete_at_once) {
  ZxComm *c = zx_comm_self();
  const ZxCommTable *t = c->t;
  cr_expect(t->rank(c) == 0 && t->size(c) == 1 && t->node_rank(c) == 0 && t->nodes(c)[0] == 0);
  for (int color = 0; color < 4; color++) {
    ZxGroup g = t->split(c, color);
    cr_expect(g >= 0 && t->group_rank(c, g) == 0 && t->group_size(c, g) == 1);
  }
  cr_expect_eq(t->split(c, -1), -1);
  ZxGroup g = t->split(c, 3);
  float a[3] = {1, 2, 3}, b[3] = {0};
  cr_expect(t->all_reduce(c, g, a, 3, ZK_F32, ZX_SUM) == -1 && a[2] == 3);
  cr_expect(t->reduce_scatter(c, g, a, 2, ZK_F32, ZX_SUM, b) == -1 && b[0] == 1 && b[1] == 2 && b[2] == 0);
  cr_expect(t->all_gather(c, g, a, sizeof a, b) == -1 && b[2] == 3);
  cr_expect(t->all_gather(c, g, b, sizeof b, b) == -1 && b[2] == 3, "in place");
  cr_expect(t->all_to_all(c, g, b, 4, a + 2) == -1 && a[2] == 1);
  cr_expect(t->all_to_all(c, g, NULL, 0, a) == -1 && a[0] == 1, "nothing");
  cr_expect(t->broadcast(c, g, a, 4, 0) == -1 && t->test(c, -1));
  t->wait(c, -1);
  t->barrier(c);
  t->free(c);
}

Test(self, has_no_peers_to_send_to, .signal = SIGABRT) {
  ZxComm *c = zx_comm_self();
  c->t->send(c, "x", 1, 1, 0);
}

Test(self, has_no_peers_to_receive_from, .signal = SIGABRT) {
  ZxComm *c = zx_comm_self();
  char x;
  c->t->recv(c, &x, 1, 1, 0);
}

/* What was said is printed, and unfinished files go. */
Test(self, ends_with_its_code, .init = scratch_make, .fini = scratch_remove) {
  static const ZbKind kind = {"a text", NULL};
  pid_t child = fork();
  if (child == 0) {
    ZxComm *c = zx_comm_self();
    ZbErr err;
    if (!freopen(scratch("said"), "w", stderr) || setvbuf(stderr, NULL, _IOFBF, 4096)) _exit(1);
    fputs("why", stderr);
    if (!zb_out_new(scratch("unfinished"), &kind, &err)) _exit(2);
    c->t->abort(c, 5);
  }
  int status;
  size_t n;
  cr_assert(child > 0 && waitpid(child, &status, 0) == child);
  cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 5, "%d", status);
  char *said = scratch_read("said", &n);
  cr_expect_str_eq(said, "why");
  free(said);
  cr_expect_eq(scratch_files(), 1);
}

Test(combine, in_rank_order_and_in_place) {
  enum { N = 1300 }; /* several tiles and a rest */
  static float x[3][N], sum[N];
  static double y[2][N];
  for (int i = 0; i < N; i++) {
    x[0][i] = 1e8f;
    x[1][i] = (float)i;
    x[2][i] = -1e8f;
    sum[i] = (1e8f + (float)i) - 1e8f; /* another order gives i */
    y[0][i] = i;
    y[1][i] = N / 2 - i;
  }
  zx_combine(x[1], (const void *[]){x[0], x[1], x[2]}, 3, N, ZK_F32, ZX_SUM);
  for (int i = 0; i < N; i++) cr_assert_eq(x[1][i], sum[i]);
  zx_combine(y[0], (const void *[]){y[0], y[1]}, 2, N, ZK_F64, ZX_MAX);
  for (int i = 0; i < N; i++) cr_assert_eq(y[0][i], i > N / 2 - i ? i : N / 2 - i);
}

static double tree(const float *x, int n) {
  int left = 1;
  if (n == 1) return (double)x[0];
  while (2 * left < n) left *= 2;
  return (double)(float)(tree(x, left) + tree(x + left, n - left));
}

/* Any number of parts, as a rank whose part is a subtree expects it. */
Test(combine, as_a_binary_tree) {
  enum { N = 133, MOST = 9 };
  static float x[MOST][N], y[N];
  const void *part[MOST];
  int ordered = 0;
  for (int n = 1; n <= MOST; n++) {
    for (int k = 0; k < n; k++)
      for (int i = 0; i < N; i++) x[k][i] = (float)zb_random_normal(5, (uint64_t)k, (uint64_t)i);
    for (int k = 0; k < n; k++) part[k] = x[k];
    zx_combine(y, part, n, N, ZK_F32, ZX_SUM);
    for (int i = 0; i < N; i++) {
      float of[MOST], sum = 0;
      for (int k = 0; k < n; k++) of[k] = x[k][i], sum += of[k];
      cr_assert_eq(y[i], (float)tree(of, n), "%d parts, element %d", n, i);
      ordered += y[i] != sum;
    }
  }
  cr_expect_gt(ordered, 100, "in the order of parts sums are others");
}

/* bf16: the bits of a sum in f32 that is rounded once, infinities and numbers that are none among them. */
Test(combine, bf16_is_rounded_once) {
  enum { N = 1300, PARTS = 5 };
  static uint16_t x[PARTS][N], want[N];
  const void *part[PARTS];
  int twice = 0;
  for (int k = 0; k < PARTS; k++) part[k] = x[k];
  for (int i = 0; i < N; i++) {
    float all[PARTS], sum = 0, often = 0;
    for (int k = 0; k < PARTS; k++) {
      x[k][i] = (uint16_t)zb_random_u64(3, (uint64_t)k, (uint64_t)i);
      if (i % 7) x[k][i] = zb_f32_to_bf16((float)zb_random_normal(4, (uint64_t)k, (uint64_t)i));
      float y = zb_bf16_to_f32(x[k][i]);
      all[k] = y;
      often = zb_bf16_to_f32(zb_f32_to_bf16(k ? often + y : y));
    }
    sum = (float)tree(all, PARTS);
    want[i] = zb_f32_to_bf16(sum);
    twice += want[i] != zb_f32_to_bf16(often);
  }
  cr_expect_gt(twice, 100, "a sum that is rounded at each step is another one");
  zx_combine(x[2], part, PARTS, N, ZK_BF16, ZX_SUM);
  for (int i = 0; i < N; i++) {
    float a = zb_bf16_to_f32(x[2][i]), b = zb_bf16_to_f32(want[i]);
    cr_assert(isnan(b) ? isnan(a) : x[2][i] == want[i], "element %d is %a, not %a", i, (double)a, (double)b);
  }
}

Test(combine, bf16_maxima) {
  uint16_t a[] = {zb_f32_to_bf16(NAN), zb_f32_to_bf16(1), zb_f32_to_bf16(-INFINITY), zb_f32_to_bf16(-2)};
  uint16_t b[] = {zb_f32_to_bf16(1), zb_f32_to_bf16(NAN), zb_f32_to_bf16(3), zb_f32_to_bf16(-4)};
  zx_combine(b, (const void *[]){a, b}, 2, 4, ZK_BF16, ZX_MAX);
  cr_expect(isnan(zb_bf16_to_f32(b[0])) && isnan(zb_bf16_to_f32(b[1])));
  cr_expect(zb_bf16_to_f32(b[2]) == 3 && zb_bf16_to_f32(b[3]) == -2);
}

Test(combine, a_nan_stays) {
  float a[3] = {NAN, 1, -INFINITY}, b[3] = {1, NAN, 3};
  zx_combine(a, (const void *[]){a, b}, 2, 3, ZK_F32, ZX_MAX);
  cr_expect(isnan(a[0]) && isnan(a[1]) && a[2] == 3);
}

/* Fused calls taken apart: where what no output stores lies between two calls. */
#include <criterion/criterion.h>

#include "graph/graph.h"
#include "kernels/kernels.h"

/* A product whose result is stored as its negative alone, in both types: in between it is not rounded. */
Test(unfuse, keeps_most_bits) {
  static ZkPointwiseOp neg = {.op = ZG_OP_NEG, .a = 0};
  static const ZkPointwise function = {.nops = 1, .nout = 2, .out = {1, 1}, .ops = &neg};
  float f[4];
  uint16_t h[4];
  for (int wide = 0; wide < 2; wide++) {
    ZkCall c = {.op = ZG_OP_DOT, .nin = 2, .nout = 2, .pointwise = &function};
    c.out[wide] = (ZkView){.data = f, .elem = ZK_F32};
    c.out[!wide] = (ZkView){.data = h, .elem = ZK_BF16};
    ZkUnfused u;
    zk_unfuse(&c, &u);
    cr_assert_eq(u.n, 2);
    cr_expect(u.call[0].op == ZG_OP_DOT && u.call[0].nout == 1 && u.call[0].out[0].data == (void *)f);
    cr_expect(u.call[1].op == ZG_OP_POINTWISE && u.call[1].nin == 1 && u.call[1].in[0].data == (void *)f);
    cr_expect(u.call[1].nout == 2 && u.call[1].nax == 0);
  }
}

/* The gradient of a norm and a sum of it that is added up: the sum alone is, and nothing is wanted for it. */
Test(unfuse, sums_of_a_norm) {
  static const ZkPointwise function = {.nout = 2, .out = {0, 1}};
  ZkView wide = {.elem = ZK_F32, .rank = 2, .axis = {'t', 'e'}, .size = {3, 4}, .stride = {4, 1}};
  ZkView one = {.elem = ZK_F32, .rank = 1, .axis = {'e'}, .size = {4}, .stride = {1}};
  ZkCall c = {.op = ZG_OP_NORMALIZE_GRAD_SUMS, .nin = 4, .nout = 2, .nax = 1, .ax = {'e'}};
  for (int i = 0; i < 4; i++) c.in[i] = wide;
  c.out[0] = wide, c.out[1] = one;
  c.pointwise = &function, c.accumulate = true;
  ZkUnfused u = {.room = 1};
  zk_unfuse(&c, &u);
  cr_assert_eq(u.n, 2);
  cr_expect_eq(u.room, 0);
  const ZkCall *sum = &u.call[0], *rest = &u.call[1];
  cr_expect(sum->op == ZG_OP_SUM && sum->nin == 1 && sum->nout == 1 && sum->accumulate);
  cr_expect(sum->nax == 1 && sum->ax[0] == 't' && !sum->pointwise);
  cr_expect(rest->op == ZG_OP_NORMALIZE_GRAD && rest->nin == 3 && rest->nout == 1 && !rest->accumulate);
}

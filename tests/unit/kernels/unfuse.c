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

/* Element formats: what bytes and names follow from a row. */
#include <string.h>

#include "base/base.h"
#include "tests/unit/kernels/conform.h"

/* Every row is plain, or has blocks of whole bytes with scales in a plain format. */
Test(elem, rows) {
  for (int e = 0; e < ZK_ELEMS; e++) {
    const ZkElemInfo *x = &zk_elem_info[e];
    cr_expect(x->bits > 0 && zk_elem_named(x->text) == (ZkElem)e, "%s", x->text);
    if (x->block == 1) {
      cr_expect(zk_is_plain((ZkElem)e) && x->scale == ZK_NONE && x->zero == ZK_ZERO_NONE, "%s", x->text);
      cr_expect_eq(zk_bytes((ZkElem)e, 7), 7 * zk_plain_bytes((ZkElem)e));
      continue;
    }
    cr_expect(x->block >= 16 && x->block * x->bits % 8 == 0 && zk_is_plain((ZkElem)x->scale), "%s", x->text);
  }
  cr_expect_eq(zk_elem_named("tf32"), ZK_NONE);
}

/* A block has 256 codes and a scale; a block that is begun takes all of it. */
Test(elem, blocks) {
  for (int k = 0; k < 2; k++) {
    ZkElem e = k ? ZK_DYN8 : ZK_UDYN8;
    cr_expect_eq(zk_bytes(e, 0), 0);
    cr_expect_eq(zk_bytes(e, 1), 260);
    cr_expect_eq(zk_bytes(e, 256), 260);
    cr_expect_eq(zk_bytes(e, 257), 520);
    cr_expect_eq(zk_elems(e, 520), 512);
    cr_expect_eq(zk_mean_bytes(e), 260.0 / 256);
    char at[520];
    cr_expect(zk_flat_from((ZkFlat){e, at}, 256).at == at + 260);
  }
}

/* Values in bf16 and f32 are read and written as they lie there, from any element on. */
Test(elem, plain_values) {
  enum { N = 100 };
  const ZkEnv env = {0};
  float x[N], y[N];
  uint16_t half[N];
  for (int i = 0; i < N; i++) x[i] = (float)i / 8;
  for (int k = 0; k < 2; k++) {
    float copy[N];
    ZkFlat to = k ? (ZkFlat){ZK_BF16, half} : (ZkFlat){ZK_F32, copy};
    zk_cpu_encode(&env, N, x, to);
    zk_cpu_decode(&env, to, 3, N - 3, y);
    cr_expect_arr_eq(y, x + 3, (N - 3) * sizeof *y);
  }
}

/* Packed weights on a device: products by them, of plain calls and of rows of experts, and rows that are looked up, have
 * the bits of those by the same weights unpacked. */
#include "kernels/packed.h"

#include <string.h>

#include "base/base.h"
#include "tests/unit/kernels/conform.h"

enum { M = 5, K = 96, N = 48, E = 3 };

static ZkView view(void *data, ZkElem e, int rank, const char *axes, const int64_t *size) {
  ZkView v = {.data = data, .elem = (uint8_t)e, .rank = (uint8_t)rank};
  int64_t stride = 1;
  for (int i = rank; i-- > 0; stride *= size[i])
    v.axis[i] = (uint16_t)axes[i], v.size[i] = v.whole[i] = size[i], v.stride[i] = stride;
  return v;
}

static void fill(void *to, ZkElem e, int64_t n, uint64_t stream) {
  for (int64_t i = 0; i < n; i++) {
    float x = (float)zb_random_normal(1, stream, (uint64_t)i);
    if (e == ZK_BF16) ((uint16_t *)to)[i] = zb_f32_to_bf16(x);
    else ((float *)to)[i] = x;
  }
}

/* E matrices of K elements by N columns: packed, and as they are then in a type. */
typedef struct {
  ZkView packed, plain;
} Weights;
static Weights weights_of(ZkElem e, ZkElem as) {
  static const ZkEnv alone;
  static const int64_t size[] = {E, N, K};
  float *x = memory_new(E * N * K * sizeof *x);
  Weights w = {.plain = view(x, ZK_F32, 3, "enk", size)};
  w.packed = view(memory_new(zk_bytes(e, zk_packed_elems(e, E * N, K))), e, 3, "enk", size);
  w.packed.summed = 1;
  fill(x, ZK_F32, E * N * K, 3);
  zk_cpu_pack(&alone, &w.plain, &w.packed);
  zk_cpu_unpack(&alone, &w.packed, &w.plain, 0, E * N * K, x);
  if (as == ZK_BF16)
    for (int64_t i = 0; i < E * N * K; i++) ((uint16_t *)(void *)x)[i] = zb_f32_to_bf16(x[i]);
  w.plain.elem = (uint8_t)as;
  return w;
}

/* Runs a call whose operand `which` is packed, and the same by the weights unpacked. */
static void same(ZkCall *c, int which, const Weights *w, const char *what) {
  size_t bytes = (size_t)zk_bytes((ZkElem)c->out[0].elem, 1);
  for (int i = 0; i < c->out[0].rank; i++) bytes *= (size_t)c->out[0].size[i];
  void *got = memory_new(bytes), *must = memory_new(bytes);
  c->out[0].data = got, c->in[which] = w->packed;
  run_call(c, 0);
  c->out[0].data = must, c->in[which] = w->plain;
  run_call(c, 0);
  cr_expect(!memcmp(got, must, bytes), "%s by %s differ", what, zk_elem_info[w->packed.elem].text);
  memory_free(got), memory_free(must);
}

Test(packed, on_a_device) {
  static const ZkElem formats[] = {ZK_INT8_32, ZK_INT4_32, ZK_INT4Z_32, ZK_NF4_32};
  for (int f = 0; f < 8; f++) {
    ZkElem as = f % 2 ? ZK_BF16 : ZK_F32;
    Weights w = weights_of(formats[f / 2], as);
    char *x = memory_new(E * M * K * 4);
    int32_t *ids = memory_new(16 * sizeof *ids);
    fill(x, as, E * M * K, 2);
    for (int back = 0; back < 2; back++) {
      int64_t from = back ? N : K, to = back ? K : N;
      ZkCall dot = {.op = ZG_OP_DOT, .nin = 2, .nout = 1, .nax = 1, .ax = {back ? 'n' : 'k'}};
      dot.in[0] = view(x, as, 3, back ? "emn" : "emk", (int64_t[]){E, M, from});
      dot.out[0] = view(NULL, as, 3, back ? "emk" : "emn", (int64_t[]){E, M, to});
      same(&dot, 1, &w, back ? "products over columns" : "products");
    }
    ZkCall rows = {.op = ZG_OP_GROUPED_DOT, .nin = 3, .nout = 1, .nax = 3, .ax = {'e', 's', 'k'}};
    ids[0] = 2, ids[1] = 2, ids[2] = 5; /* where experts' rows end */
    rows.in[0] = view(x, as, 2, "sk", (int64_t[]){M, K});
    rows.in[2] = view(ids, ZK_I32, 1, "e", (int64_t[]){E});
    rows.out[0] = view(NULL, as, 2, "sn", (int64_t[]){M, N});
    same(&rows, 1, &w, "rows of experts");
    ZkCall lookup = {.op = ZG_OP_LOOKUP, .nin = 2, .nout = 1, .nax = 1, .ax = {'n'}};
    for (int i = 0; i < 4; i++) ids[i] = (int[]){47, 0, 16, -1}[i];
    lookup.in[1] = view(ids, ZK_I32, 1, "t", (int64_t[]){4});
    lookup.out[0] = view(NULL, as, 3, "tek", (int64_t[]){4, E, K});
    same(&lookup, 0, &w, "rows");
    memory_free(x), memory_free(ids), memory_free(w.packed.data), memory_free(w.plain.data);
  }
}

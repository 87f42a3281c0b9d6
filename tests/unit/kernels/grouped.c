/* Products of rows sorted by expert, and the gradient of their weights. */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/kernels/conform.h"

#define TOL 2e-6 /* sums of at most 300 products */

/* Experts with many rows, with one and with none; rows that are nobody's at the end, or none such. e:
 * experts, s: slots, k: contracted, n: of the result. */
static double some[] = {3, 3, 40, 41}, all[] = {0, 64, 64, 64}, none[] = {0, 0, 0, 0}, one[] = {7};

Test(grouped, dot) {
  double *ends[] = {some, all, none};
  for (int i = 0; i < 3; i++) {
    CONFORM(.op = ZG_OP_GROUPED_DOT, .dims = "e=4 s=16 k=33 n=17", .ax = "esk",
            .in = {{"esk"}, {"ekn"}, {"e", ID, 0, 0, ends[i]}}, .out = {{"esn"}}, .tol = TOL);
    CONFORM(.op = ZG_OP_GROUPED_DOT, .dims = "e=4 s=64 k=20 n=150", .ax = "esk",
            .in = {{"sk"}, {"enk"}, {"e", ID, 0, 0, ends[i]}}, .out = {{"sn"}}, .tol = TOL);
    CONFORM(.op = ZG_OP_GROUPED_DOT, .dims = "e=4 s=16 k=3 l=5 n=7 m=4", .ax = "eslk",
            .in = {{"eslk"}, {"elmkn"}, {"e", ID, 0, 0, ends[i]}}, .out = {{"esmn"}}, .tol = TOL);
  }
  CONFORM(.op = ZG_OP_GROUPED_DOT, .dims = "e=1 s=9 k=300 n=1", .ax = "esk",
          .in = {{"sk"}, {"ekn"}, {"e", ID, 0, 0, one}}, .out = {{"sn"}}, .tol = TOL);
}

/* With nothing contracted: each row gets its expert's part of a bias, and a bias the sum of its rows. */
Test(grouped, biases) {
  double *ends[] = {some, all, none};
  for (int i = 0; i < 3; i++) {
    CONFORM(.op = ZG_OP_GROUPED_DOT, .dims = "e=4 s=16 n=150", .ax = "es",
            .in = {{"es"}, {"en"}, {"e", ID, 0, 0, ends[i]}}, .out = {{"esn"}}, .tol = TOL);
    CONFORM(.op = ZG_OP_GROUPED_DOT, .dims = "e=4 s=64 m=3 n=7", .ax = "es",
            .in = {{"s"}, {"emn"}, {"e", ID, 0, 0, ends[i]}}, .out = {{"snm"}}, .tol = TOL);
    CONFORM(.op = ZG_OP_GROUPED_DOT, .dims = "e=4 s=16", .ax = "es",
            .in = {{"es"}, {"e"}, {"e", ID, 0, 0, ends[i]}}, .out = {{"es"}}, .tol = TOL);
    for (int add = 0; add < 2; add++) {
      CONFORM(.op = ZG_OP_GROUPED_OUTER, .dims = "e=4 s=16 n=150", .ax = "es", .accumulate = add,
              .in = {{"es"}, {"esn"}, {"e", ID, 0, 0, ends[i]}}, .out = {{"en", EXACT}}, .tol = TOL);
      CONFORM(.op = ZG_OP_GROUPED_OUTER, .dims = "e=4 s=64 m=3 n=7", .ax = "es", .accumulate = add,
              .in = {{"s"}, {"snm"}, {"e", ID, 0, 0, ends[i]}}, .out = {{"emn"}}, .tol = TOL);
      CONFORM(.op = ZG_OP_GROUPED_OUTER, .dims = "e=4 s=16", .ax = "es", .accumulate = add,
              .in = {{"es"}, {"es"}, {"e", ID, 0, 0, ends[i]}}, .out = {{"e"}}, .tol = TOL);
    }
  }
}

Test(grouped, outer) {
  double *ends[] = {some, all, none};
  for (int add = 0; add < 2; add++)
    for (int i = 0; i < 3; i++) {
      CONFORM(.op = ZG_OP_GROUPED_OUTER, .dims = "e=4 s=16 k=33 n=17", .ax = "es", .accumulate = add,
              .in = {{"esk"}, {"esn"}, {"e", ID, 0, 0, ends[i]}}, .out = {{"ekn", EXACT}}, .tol = TOL);
      CONFORM(.op = ZG_OP_GROUPED_OUTER, .dims = "e=4 s=64 k=150 n=130", .ax = "es", .accumulate = add,
              .in = {{"sk"}, {"sn"}, {"e", ID, 0, 0, ends[i]}}, .out = {{"enk", EXACT}}, .tol = TOL);
      CONFORM(.op = ZG_OP_GROUPED_OUTER, .dims = "e=4 s=64 k=3 l=5 n=7 m=4", .ax = "es", .accumulate = add,
              .in = {{"slk"}, {"smn"}, {"e", ID, 0, 0, ends[i]}}, .out = {{"elmkn"}}, .tol = TOL);
    }
}

/* ---- bits ---------------------------------------------------------------------------------------------- */
enum { E = 3, K = 70, N = 150, R = 260 };
static ZkView view(void *data, ZkElem elem, const char *axes, int64_t a, int64_t b, int64_t c) {
  ZkView v = {.data = data, .elem = elem, .rank = (uint8_t)strlen(axes)};
  int64_t size[] = {a, b, c}, stride = 1;
  for (int i = v.rank; i-- > 0; stride *= size[i])
    v.axis[i] = (uint16_t)axes[i], v.size[i] = v.whole[i] = size[i], v.stride[i] = stride;
  return v;
}

/* A row's bits do not depend on how many rows there are, where it lies, or whose the others are; a gradient's
 * not on how many calls it is added up in, if each but the last has whole tiles of an expert's rows. */
Test(grouped, bits_depend_on_no_count) {
  float *x = memory_new(R * K * sizeof *x), *w = memory_new(E * K * N * sizeof *w),
        *y = memory_new(R * N * sizeof *y), *z = memory_new(R * N * sizeof *z),
        *d = memory_new(E * K * N * sizeof *d);
  int32_t *ends = memory_new(E * sizeof *ends);
  for (int i = 0; i < R * K; i++) x[i] = (float)zb_random_normal(1, 2, (uint64_t)i);
  for (int i = 0; i < E * K * N; i++) w[i] = (float)zb_random_normal(1, 3, (uint64_t)i);
  ZkCall c = {.op = ZG_OP_GROUPED_DOT, .nin = 3, .nout = 1, .nax = 3, .ax = {'e', 's', 'k'}};
  c.in[1] = view(w, ZK_F32, "ekn", E, K, N), c.in[2] = view(ends, ZK_I32, "e", E, 0, 0);
  ends[0] = 0, ends[1] = ends[2] = R; /* all rows are of one expert */
  c.in[0] = view(x, ZK_F32, "sk", R, K, 0), c.out[0] = view(y, ZK_F32, "sn", R, N, 0);
  run_call(&c, 0);
  for (int first = 0; first < R; first += 37)
    for (int n = 1; first + n <= R; n = 3 * n + 1) {
      ends[0] = 0, ends[1] = ends[2] = n;
      c.in[0] = view(x + first * K, ZK_F32, "sk", n, K, 0), c.out[0] = view(z, ZK_F32, "sn", n, N, 0);
      run_call(&c, 0);
      cr_assert(!memcmp(z, y + first * N, (size_t)n * N * sizeof *z), "rows %d to %d", first, first + n);
    }
  ZkCall o = {.op = ZG_OP_GROUPED_OUTER, .nin = 3, .nout = 1, .nax = 2, .ax = {'e', 's'}};
  o.in[2] = c.in[2];
  for (int part = R; part >= ZK_GROUP_TILE; part = (part - 1) / (2 * ZK_GROUP_TILE) * ZK_GROUP_TILE) {
    o.out[0] = view(part == R ? w : d, ZK_F32, "ekn", E, K, N);
    for (int first = 0; first < R; first += part) {
      int n = R - first < part ? R - first : part;
      ends[0] = 0, ends[1] = ends[2] = n;
      o.in[0] = view(x + first * K, ZK_F32, "sk", n, K, 0),
      o.in[1] = view(y + first * N, ZK_F32, "sn", n, N, 0);
      o.accumulate = first > 0;
      run_call(&o, 0);
    }
    if (part < R) cr_assert(!memcmp(w, d, E * K * N * sizeof *d), "%d rows a call", part);
  }
  memory_free(x), memory_free(w), memory_free(y), memory_free(z), memory_free(d), memory_free(ends);
}

/* Products: what the CPU's cases do not reach. */
#include "tests/unit/kernels/cuda/products.h"

#include <string.h>

#include "base/base.h"

#define DOT_TOL 3e-6 /* as in reduce.c */

/* Tiles of 128; more tiles than blocks. */
Test(dot_cuda, tiles) {
  CONFORM(.op = ZG_OP_DOT, .dims = "m=130 n=140 k=19", .ax = "k", .in = {{"mk"}, {"kn"}}, .out = {{"mn"}},
          .tol = DOT_TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "b=2 m=140 n=129 k=3", .ax = "k", .in = {{"bmk"}, {"bkn"}},
          .out = {{"bmn", EXACT}}, .accumulate = true, .tol = DOT_TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "b=2 m=600 n=3 k=2", .ax = "k", .in = {{"bmk"}, {"bkn"}}, .out = {{"bmn"}},
          .tol = DOT_TOL);
}

/* Sums in parts, along rows and along columns. */
Test(dot_cuda, inner_parts) {
  CONFORM(.op = ZG_OP_DOT, .dims = "b=3 k=5003", .ax = "k", .in = {{"bk"}, {"bk"}}, .out = {{"b"}},
          .tol = 2e-5);
  CONFORM(.op = ZG_OP_DOT, .dims = "k=300 b=67", .ax = "k", .in = {{"kb"}, {"kb"}}, .out = {{"b", EXACT}},
          .accumulate = true, .tol = 2e-5);
}

Test(dot_cuda, nothing_to_add) {
  CONFORM(.op = ZG_OP_DOT, .dims = "m=3 n=5 k=0", .ax = "k", .in = {{"mk"}, {"kn"}}, .out = {{"mn"}});
  CONFORM(.op = ZG_OP_DOT, .dims = "b=3 k=0", .ax = "k", .in = {{"bk"}, {"bk"}}, .out = {{"b"}});
  CONFORM(.op = ZG_OP_DOT, .dims = "m=0 n=5 k=2", .ax = "k", .in = {{"mk"}, {"kn"}}, .out = {{"mn"}});
}

/* ---- any axes in any order ----------------------------------------------------------------------------- */
static uint64_t draw(uint64_t seed, uint64_t what, uint64_t below) {
  return zb_random_u64(5, seed, what) % below;
}

static void shuffle(char *axes, uint64_t seed) {
  for (size_t i = strlen(axes); i > 1; i--) {
    size_t j = draw(seed, i, i);
    char swap = axes[i - 1];
    axes[i - 1] = axes[j];
    axes[j] = swap;
  }
}

void random_product(uint64_t seed) {
  char dims[64] = "", ax[8] = "", a[8] = "", b[8] = "", c[8] = "";
  int naxes = 2 + (int)draw(seed, 20, 4);
  for (int i = 0; i < naxes; i++) {
    char axis[2] = {(char)('a' + i), 0};
    size_t n = strlen(dims);
    snprintf(dims + n, sizeof dims - n, "%s%c=%d", n ? " " : "", axis[0],
             1 + (int)draw(seed, 30 + (uint64_t)i, 5));
    int class = (int)draw(seed, 40 + (uint64_t)i, 4); /* batch, m, n, k */
    if (class != 2) strcat(a, axis);
    if (class != 1) strcat(b, axis);
    if (class != 3) strcat(c, axis);
    else strcat(ax, axis);
  }
  shuffle(a, 3 * seed);
  shuffle(b, 3 * seed + 1);
  shuffle(c, 3 * seed + 2);
  bool accumulate = draw(seed, 50, 2);
  CONFORM(.op = ZG_OP_DOT, .dims = dims, .ax = ax, .in = {{a}, {b}},
          .out = {{c, draw(seed, 51, 2) ? REAL : EXACT}}, .accumulate = accumulate, .tol = DOT_TOL,
          .floor = 1e-6);
}

Test(dot_cuda, random) {
  for (uint64_t seed = 1; seed <= 40; seed++) random_product(seed);
}

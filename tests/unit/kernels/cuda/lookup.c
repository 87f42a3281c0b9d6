/* The gradient of lookup sorts ids on a GPU: what only large tables and many ids make it do. */
#include "tests/unit/kernels/conform.h"

/* Two digits of rows and several sorters; the terms of a sum are few. Rows of one id many times have many
 * stretches, whose sums of 70000 terms reach some hundreds: the partial sums, up to a thousand of them, round
 * by 2^-24 of that each. */
Test(lookup, gradient_sorted) {
  CONFORM(.op = ZG_OP_LOOKUP_GRAD, .dims = "v=1500 e=8 s=2500", .ax = "v",
          .in = {{"se"}, {"s", ID, -1, 1499, NULL}}, .out = {{"ve"}}, .tol = 2e-6);
  CONFORM(.op = ZG_OP_LOOKUP_GRAD, .dims = "v=1024@1024/4096 e=3 s=1100", .ax = "v",
          .in = {{"se"}, {"s", ID, 900, 2200, NULL}}, .out = {{"ve"}}, .accumulate = true, .tol = 2e-6);
  CONFORM(.op = ZG_OP_LOOKUP_GRAD, .dims = "v=2 s=140000", .ax = "v", .in = {{"s"}, {"s", ID, 0, 1, NULL}},
          .out = {{"v"}}, .tol = 2e-5);
}

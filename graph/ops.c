/* What ops.def says, as a table, and the formulas of pointwise.def in f64. See ops.h. */
#include "graph/ops.h"

#include <math.h>

#include "base/base.h"

#define TOGETHER ZG_TOGETHER
#define IN(i) (1 << (i))
#define AX(i) (1 << (i))
#define OPT(i) (1 << (i))
#define ALL 0xffff
const ZgOpInfo zg_op_info[ZG_OP_COUNT] = {
/* clang-format off */
#define OP(NAME, name, kind_, lo, hi, outs, ...)                                                             \
  [ZG_OP_##NAME] = {.text = #name, .kind = ZG_##kind_, .min_in = lo, .max_in = hi, .nout = outs, __VA_ARGS__},
#include "graph/ops.def"
    /* clang-format on */
};

static double reciprocal_root(double x) { return 1 / sqrt(x); }

double zg_pointwise(int op, double a, double b, double c) {
  switch (op) {
    /* clang-format off */
#define rsqrt reciprocal_root
#define FN(name) name
#define POINTWISE(NAME, formula) case ZG_OP_##NAME: return formula;
#include "graph/pointwise.def"
#undef rsqrt
    /* clang-format on */
  }
  ZB_BUG("operation %d has no formula", op);
}

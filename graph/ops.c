/* What ops.def says, as a table, and the formulas of pointwise.def in f64. See ops.h. */
#include "graph/ops.h"

#include <math.h>

#include "base/base.h"

const ZgOpInfo zg_op_info[ZG_OP_COUNT] = {
#define OP(NAME, text, kind, lo, hi, outs) [ZG_OP_##NAME] = {text, ZG_##kind, lo, hi, outs},
#include "graph/ops.def"
};

static double reciprocal_root(double x) { return 1 / sqrt(x); }

double zg_pointwise(int op, double a, double b, double c) {
  switch (op) {
#define rsqrt reciprocal_root
#define FN(name) name
#define POINTWISE(NAME, formula)                                                                             \
  case ZG_OP_##NAME:                                                                                         \
    return formula;
#include "graph/pointwise.def"
#undef rsqrt
  }
  ZB_BUG("operation %d has no formula", op);
}

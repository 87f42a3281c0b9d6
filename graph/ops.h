/* ops: the operations by number, and what the row of each in ops.def says. For every room, also for those that
 * know no graphs. What the operations mean: OPS.md. */
#ifndef ZUG_OPS_H
#define ZUG_OPS_H

#include <stdint.h>

typedef enum {
#define OP(NAME, ...) ZG_OP_##NAME,
#include "graph/ops.def"
  ZG_OP_COUNT
} ZgOp;

typedef enum { ZG_SOURCE, ZG_SINK, ZG_EW, ZG_MOVE, ZG_COMPUTE, ZG_PLANNED } ZgOpKind;

typedef struct {
  const char *text;
  ZgOpKind kind;
  uint8_t min_in, max_in, nout;
} ZgOpInfo;
extern const ZgOpInfo zg_op_info[ZG_OP_COUNT];

/* The formula of an elementwise operation (pointwise.def) at operands a, b and c, of which it takes its first. Not
 * for CAST, FILL and AXSIZE, which have none. */
double zg_pointwise(int op, double a, double b, double c);

#endif

/* ops: the operations by number, and what the row of each in ops.def says. For every room, also for those
 * that know no graphs. What the operations mean: OPS.md. */
#ifndef ZUG_OPS_H
#define ZUG_OPS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum {
#define OP(NAME, ...) ZG_OP_##NAME,
#include "graph/ops.def"
  ZG_OP_COUNT
} ZgOp;

typedef enum { ZG_SOURCE, ZG_SINK, ZG_EW, ZG_MOVE, ZG_COMPUTE, ZG_PLANNED } ZgOpKind;

/* What RANDOM draws, its opt[1]: 1 with a probability and else 0; numbers of (0, 1); of the standard normal
 * distribution. */
typedef enum { ZG_COIN, ZG_UNIFORM, ZG_NORMAL, ZG_NOISES } ZgNoise;

/* The forms of ROTATE, bits of its opt[0]. */
#define ZG_ROTATE_BACK 1 /* by the negative angles: the transpose */
#define ZG_ROTATE_BESIDE                                                                                     \
  2 /* pairs are neighbours, (0, 1), (2, 3), ..; else halves, (0, n/2), (1, n/2 + 1), .. */

#define ZG_TOGETHER 0x80 /* ZgOpInfo.linear: in all operands at once */

typedef struct {
  const char *text;
  ZgOpKind kind;
  uint8_t min_in, max_in, nout; /* of some fewer results: zg_outs, linear.h */
  uint8_t linear;       /* bit i: linear in operand i while the others stay as they are; or ZG_TOGETHER */
  uint16_t pins;        /* bit i: axis argument i must be whole on each rank */
  uint16_t never_split; /* bit i: of these, what no recipe may split, since every use would gather it */
  bool steps;           /* of steps of generation alone */
  bool carries;         /* along an axis that it pins, it can go on where an earlier part ended: stream.h */
  uint8_t products;     /* matrix products: what counts as FLOPs (of attention, see graph/attend.h) */
  /* What num[0], opt[0] and opt[1] are called; NULL: it has none, and the field is 0. */
  const char *num, *opt[2];
  uint8_t plans; /* bit i: opt[i] is set in plans only, and 0 in every file */
  uint8_t late;  /* bit i: opt[i] came after version 1.1 of the file, which does not have it where it is 0 */
  const char *num1; /* num[1], which always did: left out where it is 0 */
  /* Of EW operations. */
  bool function; /* the language has it as a function of this name */
  bool whole;    /* takes i32, too; others take real operands only */
  bool truth;    /* makes a bool */
  bool commutes;
  bool partial; /* not defined everywhere: can make infinities or NaN of any finite numbers */
  bool flat;    /* no cotangent passes: its slope is zero, or is said to be */
} ZgOpInfo;
extern const ZgOpInfo zg_op_info[ZG_OP_COUNT];

/* The formula of an elementwise operation (pointwise.def) at operands a, b and c, of which it takes its
 * first. Not for CAST, FILL and AXSIZE, which have none. */
double zg_pointwise(int op, double a, double b, double c);

#endif

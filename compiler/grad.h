/* What grad.c (which values have cotangents, and the order of the backward nodes) and grad_rules.c (one rule
 * per operation) share. */
#ifndef ZUG_COMPILER_GRAD_H
#define ZUG_COMPILER_GRAD_H

#include "graph/graph.h"

/* The backward part of one segment in the making. */
typedef struct {
  ZgGraph *g;
  ZgSegment *s;
  const bool *varied;   /* by forward value: depends on a parameter, so its cotangent is wanted */
  uint32_t *cot;        /* by forward value: the cotangent so far; ZG_NONE if none reached it */
  uint32_t region, loc; /* of the forward node being differentiated: its backward nodes get the same */
  ZbErr *err;
} ZcGrad;

/* Appends backward nodes that turn node `n`'s result cotangents into cotangents of its operands. False with
 * a reason if `n` has no derivative. */
bool zc_grad_rule(ZcGrad *b, const ZgNode *n);

/* Adds `v` to the cotangent of forward value `of`, if that is wanted: summed over the axes that `of` lacks,
 * repeated along those that `v` lacks, in the element type of `of`. */
void zc_grad_give(ZcGrad *b, uint32_t of, uint32_t v);
/* A backward node; attributes and axis arguments are set in `n`, operands given by number. */
uint32_t zc_grad_node(ZcGrad *b, ZgNode n, int nin, const uint32_t *in, const ZgType *hint);
/* `v` in type `t`, as zc_grad_give does it. */
uint32_t zc_grad_fit(ZcGrad *b, uint32_t v, const ZgType *t);
/* A tensor of one number. */
uint32_t zc_grad_fill(ZcGrad *b, double num, const ZgType *t);

#endif

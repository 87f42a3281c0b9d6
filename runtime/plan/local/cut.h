/* Between cut_sequences.c, cut_linear.c, cut_conv.c and cut_nodes.c: a segment whose recurrences go over
 * chunks of their sequence, under construction. */
#ifndef ZUG_PLAN_LOCAL_CUT_H
#define ZUG_PLAN_LOCAL_CUT_H

#include "runtime/plan/local/local.h"

/* The state with which each chunk of a linear_attend begins, for its gradient. */
typedef struct {
  const ZgNode *node;
  uint32_t start; /* of the new segment's values */
} ZpStart;

typedef struct {
  const ZpBuild *b;
  ZpPlan *p;
  ZgGraph *g;            /* the plan's: a copy, which has the axes of chunks */
  ZgGraph sized;         /* the same with all sizes, by which types are inferred */
  const ZgSegment *from; /* as it was */
  ZgSegment *to;
  uint32_t *now; /* per value of `from`: that of `to` */
  ZpStart *starts;
  uint32_t nstarts;
  /* the recurrence that is cut: */
  const ZgNode *node;
  int64_t ranks, own;        /* chunks, elements of each */
  uint16_t s, chunk, in, at; /* the sequence; its two parts, for which it stands; an axis of one element */
} ZpCut;

/* ---- cut_nodes.c ------------------------------------------------------------------------------------- */
/* Room for all the axes that there may be, in what the plan has of each. */
void zp_cut_begin(ZpCut *x);
/* The axes of what is cut along x->s over these dims. */
void zp_cut_axes(ZpCut *x, ZpDims dims);
/* Returns an axis of the plan's that lies in memory where `like` does; the same again for the same name. */
uint16_t zp_cut_axis(ZpCut *x, const char *name, int64_t size, uint16_t like);
/* ---- nodes of the new segment, in the place of the one that is cut ---- */
const ZgType *zp_cut_type(const ZpCut *x, uint32_t v);
uint32_t zp_cut_node(ZpCut *x, ZgNode n, int nin, const uint32_t *in, const ZgType *hint);
/* Adds an elementwise node of one or two operands; two are repeated along the axes that they lack. */
uint32_t zp_cut_one(ZpCut *x, uint16_t op, uint32_t a);
uint32_t zp_cut_two(ZpCut *x, uint16_t op, uint32_t a, uint32_t b);
uint32_t zp_cut_number(ZpCut *x, double value, uint8_t elem);
uint32_t zp_cut_cast(ZpCut *x, uint32_t v, uint8_t elem);
/* Repeats v along the axes of t that it lacks. */
uint32_t zp_cut_fit(ZpCut *x, uint32_t v, const ZgType *t);
/* Sums v over the axes that t lacks. */
uint32_t zp_cut_sum(ZpCut *x, uint32_t v, const ZgType *t);
/* Parts an axis into chunks and their elements `in`; merges them back. */
uint32_t zp_cut_whole(ZpCut *x, uint32_t v, uint16_t axis, uint16_t in);
uint32_t zp_cut_merged(ZpCut *x, uint32_t v, uint16_t axis, uint16_t in);
/* Returns a value of the old segment with chunks in place of the sequence, if it has one, in f32; and back,
 * as a value of type t. */
uint32_t zp_cut_part(ZpCut *x, uint32_t v);
uint32_t zp_cut_merge(ZpCut *x, uint32_t v, const ZgType *t);
/* Takes elements start..start+count of an axis, and calls it `to`. */
uint32_t zp_cut_slice(ZpCut *x, uint32_t v, uint16_t axis, uint16_t to, int64_t start, int64_t count);
/* Returns the value of the chunk `by` before, or 0 for the first chunks. */
uint32_t zp_cut_before(ZpCut *x, uint32_t v, int64_t by);
uint32_t zp_cut_rename(ZpCut *x, uint32_t v, uint16_t axis, uint16_t to);
/* By what a chunk multiplies that with which it begins: elementwise; or, with rows, a matrix [row, col], of
 * `between` a third axis of their size. v ZG_NONE: 1. */
typedef struct {
  uint32_t v;
  bool matrix;
  uint16_t row, col, between;
} ZpFactor;
/* With what each chunk begins, of what each would end with if it began with 0, and its factor. reverse:
 * chunks in the other order. */
uint32_t zp_cut_start(ZpCut *x, uint32_t end, ZpFactor by, bool reverse);

/* ---- cut_linear.c ------------------------------------------------------------------------------------ */
/* Returns whether the states of a linear_attend of g, or of its gradient, are less to send than its
 * sequence. */
bool zp_linear_in_chunks(const ZpPlan *p, const ZgSegment *g, const ZgNode *n, int64_t ranks);
void zp_cut_linear(ZpCut *x);

/* ---- cut_conv.c -------------------------------------------------------------------------------------- */
/* Returns whether a convolution along its spatial axis ax[at], which these dims split, takes no more than a
 * neighbour's rows. */
bool zp_conv_in_chunks(const ZpPlan *p, const ZgNode *n, int at, ZpDims dims);
void zp_cut_conv(ZpCut *x, int at);

#endif

/* Between chunks.c, chunk_linear.c, chunk_conv.c and chunk_nodes.c: a segment whose recurrences go over chunks of their
 * sequence, under construction. */
#ifndef ZUG_PLAN_LOCAL_CHUNKS_H
#define ZUG_PLAN_LOCAL_CHUNKS_H

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
  /* Of the recurrence that is cut: */
  const ZgNode *node;
  int64_t ranks, own;        /* chunks, elements of each */
  uint16_t s, chunk, in, at; /* the sequence; its two parts, for which it stands; an axis of one element */
} ZpChunks;

/* ---- chunk_nodes.c ------------------------------------------------------------------------------------- */
/* Room for all the axes that there may be, in what the plan has of each. */
void zp_chunk_begin(ZpChunks *x);
/* The axes of what is cut along x->s over these dims. */
void zp_chunk_axes(ZpChunks *x, ZpDims dims);
/* An axis of the plan's that lies in memory where `like` does; the same again for the same name. */
uint16_t zp_chunk_axis(ZpChunks *x, const char *name, int64_t size, uint16_t like);
/* ---- nodes of the new segment, in the place of the one that is cut ---- */
const ZgType *zp_chunk_type(const ZpChunks *x, uint32_t v);
uint32_t zp_chunk_node(ZpChunks *x, ZgNode n, int nin, const uint32_t *in, const ZgType *hint);
/* Of one and of two operands, elementwise; those of two are repeated along the axes that they lack. */
uint32_t zp_chunk_one(ZpChunks *x, uint16_t op, uint32_t a);
uint32_t zp_chunk_two(ZpChunks *x, uint16_t op, uint32_t a, uint32_t b);
uint32_t zp_chunk_number(ZpChunks *x, double value, uint8_t elem);
uint32_t zp_chunk_cast(ZpChunks *x, uint32_t v, uint8_t elem);
/* Repeated along those axes of t that it lacks. */
uint32_t zp_chunk_fit(ZpChunks *x, uint32_t v, const ZgType *t);
/* Summed over those that t lacks. */
uint32_t zp_chunk_sum(ZpChunks *x, uint32_t v, const ZgType *t);
/* With an axis parted into chunks and their elements `in`, and back. */
uint32_t zp_chunk_whole(ZpChunks *x, uint32_t v, uint16_t axis, uint16_t in);
uint32_t zp_chunk_merged(ZpChunks *x, uint32_t v, uint16_t axis, uint16_t in);
/* A value of the old segment with chunks in place of the sequence, as far as it has one; in f32. And back, as
 * a value of type t. */
uint32_t zp_chunk_part(ZpChunks *x, uint32_t v);
uint32_t zp_chunk_merge(ZpChunks *x, uint32_t v, const ZgType *t);
/* Elements start..start+count of an axis, which then is called `to`. */
uint32_t zp_chunk_slice(ZpChunks *x, uint32_t v, uint16_t axis, uint16_t to, int64_t start, int64_t count);
/* Of the chunk `by` before; 0 where there is none. */
uint32_t zp_chunk_before(ZpChunks *x, uint32_t v, int64_t by);
uint32_t zp_chunk_rename(ZpChunks *x, uint32_t v, uint16_t axis, uint16_t to);
/* By what a chunk multiplies that with which it begins: elementwise; or, with rows, a matrix [row, col], of
 * `between` a third axis of their size. v ZG_NONE: 1. */
typedef struct {
  uint32_t v;
  bool matrix;
  uint16_t row, col, between;
} ZpFactor;
/* With what each chunk begins, of what each would end with if it began with 0, and its factor. reverse: chunks
 * in the other order. */
uint32_t zp_chunk_start(ZpChunks *x, uint32_t end, ZpFactor by, bool reverse);

/* ---- chunk_linear.c ------------------------------------------------------------------------------------ */
/* Whether the states of a linear_attend of g, or of its gradient, are less to send than its sequence. */
bool zp_linear_in_chunks(const ZpPlan *p, const ZgSegment *g, const ZgNode *n, int64_t ranks);
void zp_cut_linear(ZpChunks *x);

/* ---- chunk_conv.c -------------------------------------------------------------------------------------- */
/* Whether a convolution along its spatial axis ax[at], which these dims split, takes no more than a
 * neighbour's rows. */
bool zp_conv_in_chunks(const ZpPlan *p, const ZgNode *n, int at, ZpDims dims);
void zp_cut_conv(ZpChunks *x, int at);

#endif

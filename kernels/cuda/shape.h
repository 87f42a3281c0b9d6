/* How kernels are told about views: loops with a stride for each view. Plain C without includes, shared by
 * the host, by .cu files and by programs compiled at run time. */
#ifndef ZUG_KERNELS_CUDA_SHAPE_H
#define ZUG_KERNELS_CUDA_SHAPE_H

#define ZKC_LOOPS 8
#define ZKC_VIEWS 16

/* Division of any x < 2^32 by n in 1..2^31: q = (umulhi(x, mul) + x) >> shift, the sum in 64 bits (Granlund,
 * Montgomery 1994, figure 4.1). */
typedef struct {
  unsigned n, mul, shift;
} ZkcDiv;

/* Merged loops, slowest first. A stride (in elements) is 0 in a view that lacks the axis. */
typedef struct {
  int nloops;
  unsigned count; /* the product of all n, below 2^32 */
  ZkcDiv div[ZKC_LOOPS];
  long long stride[ZKC_LOOPS][ZKC_VIEWS];
} ZkcNest;

/* One loop apart from the others: the one that threads run along. */
typedef struct {
  long long n;
  long long stride[ZKC_VIEWS];
} ZkcRun;

/* Units of work in rows: unit u is number u % n of row u / n. */
typedef struct {
  long long n, total;
  ZkcDiv div; /* by n, where all numbers are below 2^32; else div.n is 0 */
} ZkcUnits;

/* A pointwise function's operands and results. Views of the nest and the run: results, then operands. */
#define ZKC_POINTWISE_IN 12
#define ZKC_POINTWISE_OUT 4
typedef struct {
  void *out[ZKC_POINTWISE_OUT];
  const void *in[ZKC_POINTWISE_IN];
  ZkcNest nest;
  ZkcRun run;
  ZkcUnits units; /* of `width` elements along the run */
} ZkcPointwise;

/* The same for an op along rows with a prologue or an epilogue. */
typedef struct {
  void *out[ZKC_POINTWISE_OUT];
  const void *in[ZKC_POINTWISE_IN];
  ZkcNest rest;                   /* [row] */
  long long n, stride[ZKC_VIEWS]; /* along a row */
  float eps;
  float *partial; /* [block][sum][column]: sums over each block's rows */
} ZkcRows;

#endif

/* What the files of `dot` share. dot.c sorts the axes of a product into classes and decides who computes it:
 * cuBLASLt (dot_lt.c) or our own kernels (dot.cu). dot_epilogue.c says what may follow a product in one call
 * with it. */
#ifndef ZUG_KERNELS_CUDA_DOT_H
#define ZUG_KERNELS_CUDA_DOT_H

#include "kernels/cuda/host.h"

enum { ZKD_A, ZKD_B, ZKD_C }; /* operands and result */

/* Axes of one class, in the order in which they are counted, slowest first. */
typedef struct {
  int n;
  uint16_t ax[ZK_MAX_AXES];
  int64_t count;
} ZkDotAxes;

/* C[batch, m, n] (+)= sum over k of A[batch, m, k] B[batch, k, n]: every axis is in one class. A or B may
 * lack the batch. */
typedef struct {
  ZkView v[3];
  ZkDotAxes batch, m, n, k;
  bool add;
} ZkDot;

/* ---- dot_epilogue.c ---- */
/* COLUMN_SUMS is that of dot_bias_grad: a second result, B summed over k. */
typedef enum { ZKD_SUM, ZKD_GELU, ZKD_RELU, ZKD_GELU_SLOPE, ZKD_COLUMN_SUMS } ZkDotEpilogueKind;
typedef struct {
  ZkDotEpilogueKind kind;
  float alpha, beta; /* of the product, of `full` */
  int bias, full;    /* operands of the call, or -1 */
  bool bias_along_m;
  int out; /* the result, an output */
  int aux; /* GELU: the output that stores its operand; GELU_SLOPE: the operand that GELU was of; -1: none */
} ZkDotEpilogue;
/* Of any call: of a plain product, nothing. False if its pointwise function is no epilogue that there is. */
bool zk_dot_epilogue(const ZkCall *call, ZkDotEpilogue *e);

/* ---- dot.cu ---- */
/* One result for each point of the batch: M = N = 1. */
size_t zk_dot_inner_scratch(const ZkDot *d);
void zk_dot_inner(ZkCuda *cu, const ZkCall *call, const ZkDot *d);
/* Any product, in f32 arithmetic, without scratch. */
void zk_dot_tiles(ZkCuda *cu, const ZkCall *call, const ZkDot *d);
/* ---- dot_few.cu ---- */
/* Says whether a call of a step of generation is a product of few rows, with or without something behind it, by weights
 * that can be read 16 bytes an access: those that are, are left to no library. */
bool zk_dot_is_few(const ZkCall *call);
void zk_dot_few(const ZkEnv *env, const ZkCall *call);
void zk_dot_few_prepare(const ZkEnv *env, const ZkCall *call);

/* ---- dot.cu, again ---- */
/* For dot_lt.c: n elements that look random, from -1 to 1; *flag = 1 if n bytes differ. */
void zk_dot_noise(ZkCuda *cu, void *p, int elem, int64_t n, unsigned seed);
void zk_dot_compare(ZkCuda *cu, const void *x, const void *y, int64_t n, int *flag);
/* ... or if one of n elements x is not within unit (room + |y|) of y. */
void zk_dot_close(ZkCuda *cu, const void *x, const void *y, int elem, int64_t n, float unit, float room,
                  int *flag);

/* ---- dot_lt.c ---- */
/* A product, with an epilogue, column sums or neither. False if there is no cuBLASLt, or if it has nothing
 * for this call: then nothing was done. */
bool zk_dot_lt(const ZkEnv *env, const ZkCall *call);
bool zk_dot_lt_prepare(ZkCuda *cu, const ZkCall *call); /* whether it will be done */
size_t zk_dot_lt_scratch(const ZkCall *call);
/* Why it is not done, of a call that was prepared; NULL: it is, or is better done otherwise. */
const char *zk_dot_lt_why(ZkCuda *cu, const ZkCall *call);
/* Why the algorithm by which it is done was not tried; NULL: it was, or there is one only. */
const char *zk_dot_lt_untried(ZkCuda *cu, const ZkCall *call);

/* ---- dot.c ---- */
ZkDot zk_dot_of(const ZkCall *call);
/* Whether a call has more to it than a product, and can also be done in parts. */
static inline bool zk_dot_more(const ZkCall *c) { return c->pointwise || c->op == ZG_OP_DOT_BIAS_GRAD; }
bool zk_dot_shares_operand(const ZkDot *d); /* an operand lacks the batch */
/* The axes by descending stride in v. */
ZkDotAxes zk_dot_in_order(const ZkDotAxes *axes, const ZkView *v);
/* Whether the axes, in their order, are one loop over v, and its stride; 1 for no loop, 0 along what v
 * lacks. */
bool zk_dot_one_loop(const ZkDotAxes *axes, const ZkView *v, int64_t *stride);

#endif

/* How a pointwise function runs, alone or after an op along rows: shared by pointwise.cu and norm_fused.c,
 * which launch it, pointwise_text.c and norm_text.c, which write programs for it, and compile.c and
 * program.c, which make them kernels. */
#ifndef ZUG_KERNELS_CUDA_POINTWISE_H
#define ZUG_KERNELS_CUDA_POINTWISE_H

#include "kernels/cuda/host.h"

#define ZK_POINTWISE_THREADS 256
#define ZK_POINTWISE_NAME "zk_pointwise" /* of the kernel in a program's text */
extern const char zk_cuda_elems[];       /* the first line of such a text: element formats as an enum */

/* An operand along the run: one value for all of it, neighbours that can be read 16 bytes at a time, or
 * neither. */
typedef enum { ZK_POINTWISE_SCALAR, ZK_POINTWISE_WIDE, ZK_POINTWISE_ANY } ZkPointwiseClass;
typedef struct {
  ZkcPointwise args; /* without the pointers */
  int width;         /* elements of a unit: 8 if all results are wide, else 1 */
  ZkPointwiseClass class_of[ZKC_POINTWISE_IN];
} ZkPointwiseShape;

ZkPointwiseShape zk_pointwise_shape(const ZkCall *call, bool wide_allowed);
/* Appends the program to `text`: CUDA C++ without includes, of one kernel that takes a ZkcPointwise. Sizes
 * and strides are not in it, so that functions that differ only in these share a program. */
void zk_pointwise_text(ZbText *text, const ZkCall *call, const ZkPointwiseShape *shape);

/* Parts of that: device functions for its ops, and a line for instruction `o` into register `to`. */
void zk_pointwise_put_ops(ZbText *text, const ZkPointwise *pointwise);
void zk_pointwise_put_op(ZbText *text, const ZkPointwiseOp *o, int to, int indent);

/* A fused call of normalize or its gradient, with or without sums. */
typedef struct {
  ZkcRows args;          /* without the pointers */
  int operands, results; /* of the op itself; its operands in call->in */
  int sums;              /* which are the call's last outputs */
  int threads;           /* of a row; those of a block unless it is a warp */
  int keep;              /* eights of a row that each keeps in registers; 0: rows are longer than that */
  bool wide;             /* threads take eight neighbours at a time */
  ZkPointwiseClass class_of[ZKC_VIEWS]; /* as in ZkcRows */
} ZkNormShape;
ZkNormShape zk_norm_shape(const ZkCall *call);
/* Whether so many sums of rows of n fit the shared memory of a block. */
bool zk_norm_sums_fit(int64_t n, int sums);
/* Whether there is a program for the call: else it is done in parts, or interpreted. */
bool zk_cuda_norm_joined(const ZkEnv *env, const ZkCall *call);
bool zk_cuda_pointwise_compiled(const ZkEnv *env, const ZkCall *call);
/* With sums blocks are small: those of a multiprocessor share its memory. */
#define ZK_SUMS_THREADS 128
#define ZK_SUMS_RESIDENT 4 /* ... of which a multiprocessor must have room for as many */
static inline int zk_norm_block(const ZkNormShape *s) {
  if (s->sums) return s->threads > ZK_SUMS_THREADS ? s->threads : ZK_SUMS_THREADS;
  return s->threads == 32 ? ZK_POINTWISE_THREADS : s->threads;
}
/* Blocks of that many threads; `most`: of ZK_POINTWISE_THREADS, that are enough. With sums by shapes alone, as
 * it is by blocks that rows are added up: enough for 128 multiprocessors, and no more than rows that share
 * what is written of them. */
static inline unsigned zk_norm_blocks(const ZkNormShape *s, int most) {
  int64_t rows = zk_norm_block(s) / s->threads * (s->sums ? 4 : 1);
  int64_t blocks = zk_ceil_of(s->args.rest.count, rows);
  int64_t enough = (int64_t)most * ZK_POINTWISE_THREADS / zk_norm_block(s);
  if (s->sums) enough = 128 * ZK_SUMS_RESIDENT * ZK_SUMS_THREADS / zk_norm_block(s);
  return (unsigned)(blocks < enough ? blocks : enough);
}
/* As zk_pointwise_text: a kernel that takes a ZkcRows. */
void zk_norm_text(ZbText *text, const ZkCall *call, const ZkNormShape *shape);

/* compile.c: a program for GPUs of generation `arch` (90) into `code`, from malloc: a cubin, or PTX for what
 * is newer than NVRTC. False with the compiler's complaint. */
bool zk_cuda_compile(const char *text, int arch, void **code, size_t *bytes, ZbErr *err);
/* program.c: the kernel of a program, compiled and loaded once for each text; NULL where that cannot be. */
struct CUfunc_st *zk_cuda_program(ZkCuda *cu, const ZkCall *call, const char *text);
void zk_cuda_program_launch(ZkCuda *cu, const ZkCall *call, struct CUfunc_st *kernel, unsigned blocks,
                            unsigned threads, void **args);
void zk_cuda_program_forget(ZkCuda *cu);

#endif

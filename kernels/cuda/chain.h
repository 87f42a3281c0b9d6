/* How a chain of elementwise ops runs: shared by chain.cu, which launches it, chain_text.c, which writes a program for
 * it, and compile.c and program.c, which make that a kernel. */
#ifndef ZUG_KERNELS_CUDA_CHAIN_H
#define ZUG_KERNELS_CUDA_CHAIN_H

#include "kernels/cuda/host.h"

#define ZK_CHAIN_THREADS 256
#define ZK_CHAIN_NAME "zk_chain" /* of the kernel in a program's text */

/* An operand along the run: one value for all of it, neighbours that can be read 16 bytes at a time, or neither. */
typedef enum { ZK_CHAIN_SCALAR, ZK_CHAIN_WIDE, ZK_CHAIN_ANY } ZkChainClass;
typedef struct {
  ZkcChain args; /* without the pointers */
  int width;     /* elements of a unit: 8 if all results are wide, else 1 */
  ZkChainClass class_of[ZKC_CHAIN_IN];
} ZkChainShape;

ZkChainShape zk_chain_shape(const ZkCall *call, bool wide_allowed);
/* Appends the program to `text`: CUDA C++ without includes, of one kernel that takes a ZkcChain. Sizes and strides
 * are not in it, so that chains that differ only in these share a program. */
void zk_chain_text(ZbText *text, const ZkCall *call, const ZkChainShape *shape);

/* compile.c: a program for GPUs of generation `arch` (90) into `cubin`, from malloc. False with the compiler's
 * complaint. */
bool zk_cuda_compile(const char *text, int arch, void **cubin, size_t *bytes, ZbErr *err);
/* program.c: the kernel of a program, compiled once for each text; NULL where programs cannot be compiled. */
struct CUkern_st *zk_cuda_program(ZkCuda *cu, const ZkCall *call, const char *text);
void zk_cuda_program_launch(ZkCuda *cu, const ZkCall *call, struct CUkern_st *kernel, unsigned blocks,
                            unsigned threads, void **args);
void zk_cuda_program_forget(ZkCuda *cu);

#endif

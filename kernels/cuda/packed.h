/* Products by packed weights (kernels/packed.h). Private to kernels/cuda.
 *
 *   packed_rows.cu   of up to ZK_CUDA_PACKED_MOST rows: codes are decoded in registers
 *   packed_dot.c     of more, and of gradients: some of a matrix at a time is unpacked into scratch
 *                    (packed.cu), and multiplied as any other */
#ifndef ZUG_KERNELS_CUDA_PACKED_H
#define ZUG_KERNELS_CUDA_PACKED_H

#include "kernels/cuda/host.h"
#include "kernels/packed.h"

/* ---- packed_dot.c ------------------------------------------------------------------------------------- */
/* Returns which operand of a product is packed; -1: none. */
static inline int zk_cuda_packed_operand(const ZkCall *c) {
  for (int i = 0; i < 2; i++)
    if (zk_is_packed((ZkElem)c->in[i].elem)) return i;
  return -1;
}
/* Returns whether the product sums over the weights' columns, and over nothing else. */
bool zk_cuda_packed_forward(const ZkCall *call);
ZkKernel zk_cuda_packed_dot, zk_cuda_packed_dot_prepare;
ZkCudaFallback zk_cuda_packed_dot_fallback;
ZkCudaScratch zk_cuda_packed_dot_scratch;

/* ---- packed.cu ----------------------------------------------------------------------------------------- */
#define ZK_CUDA_PACKED_ALIGN                                                                                 \
  16 /* columns and elements of a column that are unpacked begin at a multiple of so many */
/* Elements first[1] .. first[1] + n[1] of columns first[0] .. first[0] + n[0], into a dense matrix of
 * them. */
typedef struct {
  int64_t first[2], n[2];
} ZkCudaPackedPart;
void zk_cuda_packed_unpack(ZkCuda *cu, const ZkCall *call, const ZkView *packed, const ZkCudaPackedPart *part,
                           ZkElem elem, void *to);

/* ---- packed_rows.cu ------------------------------------------------------------------------------------ */
#define ZK_CUDA_PACKED_MOST 128 /* rows in bf16 */
#define ZK_CUDA_PACKED_MOST_F32 16
/* Returns whether a product has few enough rows. */
bool zk_cuda_packed_is_rows(const ZkCall *call);
ZkKernel zk_cuda_packed_rows;
ZkCudaScratch zk_cuda_packed_rows_scratch; /* not less for more rows */

#endif

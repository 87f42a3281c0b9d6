/* Unpacks a part of packed weights. A thread has four columns by eight elements; eight threads beside each
 * other write what lies together of a column. */
#include "kernels/cuda/packed.cuh"

#define THREADS 256

typedef struct {
  Packed from;
  void *to;
  int elem;
  long long column, k, columns, n; /* the first; how many */
  long long panels, eights;        /* of those */
} Unpack;

template <int BITS>
static __global__ void __launch_bounds__(THREADS) unpack(const __grid_constant__ Unpack p) {
  ZK_SHARED(float, value, [16]);
  load_values(p.from, value);
  for (long long u = blockIdx.x * (long long)THREADS + threadIdx.x; u < p.panels * p.eights * 4;
       u += gridDim.x * (long long)THREADS) {
    int q = (int)(u % 4);
    long long panel = u / 4 / p.eights, k = (u / 4 - panel * p.eights) * 8,
              first = panel * ZK_COLUMNS + 4 * q;
    Quad<BITS> codes = quad_at<BITS>(p.from, p.column / ZK_COLUMNS + panel, p.k + k, q);
    QuadGroup group = quad_group(p.from, p.column / ZK_COLUMNS + panel, p.k + k, q);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float x[8];
      decode<BITS>(p.from, value, codes, group, i, x);
      if (first + i < p.columns) zk_store8(p.to, p.elem, (first + i) * p.n + k, x);
    }
  }
}

extern "C" void zk_cuda_packed_unpack(ZkCuda *cu, const ZkCall *call, const ZkView *packed,
                                      const ZkCudaPackedPart *part, ZkElem elem, void *to) {
  Unpack p = {};
  p.from = packed_of(packed), p.to = to, p.elem = elem;
  p.column = part->first[0], p.k = part->first[1], p.columns = part->n[0], p.n = part->n[1];
  p.panels = zk_ceil_of(p.columns, ZK_COLUMNS), p.eights = p.n / 8;
  ZB_ASSERT(p.column % ZK_CUDA_PACKED_ALIGN == 0 && p.k % ZK_CUDA_PACKED_ALIGN == 0 &&
            p.n % ZK_CUDA_PACKED_ALIGN == 0);
  unsigned blocks = zk_blocks(cu, zk_ceil_of(p.panels * p.eights * 4, THREADS));
  if (p.from.bits == 8) ZK_LAUNCH(cu, call, unpack<8>, blocks, THREADS, 0, p);
  else ZK_LAUNCH(cu, call, unpack<4>, blocks, THREADS, 0, p);
}

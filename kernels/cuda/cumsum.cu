/* cumsum: the running sum along an axis, from its first element on or from its last. A row that lies
 * contiguous is a warp's: it takes 32 elements at a time, whose sums it finds in five steps (Hillis, Steele
 * 1986), and adds what came before. Of other rows, neighbours lie side by side, and each is a thread's, which
 * sums with compensation (Kahan). */
#include "kernels/cuda/common.cuh"

#define THREADS 256
#define WARPS (THREADS / 32)

typedef struct {
  const void *x;
  void *y;
  int xelem, yelem, reverse;
  ZkcNest rest; /* [row]; views: y, x */
  long long n, sx, sy;
} Cumsum;

static __global__ void __launch_bounds__(THREADS) cumsum_warps(const __grid_constant__ Cumsum p) {
  unsigned lane = threadIdx.x % 32;
  for (long long row = blockIdx.x * (long long)WARPS + threadIdx.x / 32; row < p.rest.count;
       row += gridDim.x * (long long)WARPS) {
    long long off[2];
    float before = 0;
    zkc_seek(p.rest, (unsigned)row, off);
    for (long long first = 0; first < p.n; first += 32) {
      long long i = first + lane, at = p.reverse ? p.n - 1 - i : i;
      float sum = i < p.n ? zk_load(p.x, p.xelem, off[1] + at * p.sx) : 0;
#pragma unroll
      for (unsigned d = 1; d < 32; d <<= 1) {
        float t = __shfl_up_sync(0xffffffffu, sum, d);
        if (lane >= d) sum += t;
      }
      sum += before;
      if (i < p.n) zk_store(p.y, p.yelem, off[0] + at * p.sy, sum);
      before = __shfl_sync(0xffffffffu, sum, 31);
    }
  }
}

static __global__ void __launch_bounds__(THREADS) cumsum_threads(const __grid_constant__ Cumsum p) {
  for (long long row = blockIdx.x * (long long)THREADS + threadIdx.x; row < p.rest.count;
       row += gridDim.x * (long long)THREADS) {
    long long off[2];
    float sum = 0, lost = 0;
    zkc_seek(p.rest, (unsigned)row, off);
    for (long long i = 0; i < p.n; i++) {
      long long at = p.reverse ? p.n - 1 - i : i;
      float add = zk_load(p.x, p.xelem, off[1] + at * p.sx) - lost, next = sum + add;
      lost = (next - sum) - add;
      sum = next;
      zk_store(p.y, p.yelem, off[0] + at * p.sy, sum);
    }
  }
}

extern "C" void zk_cuda_cumsum(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  const ZkView *x = &c->in[0], *y = &c->out[0], *views[] = {y, x};
  Cumsum p = {};
  p.x = x->data, p.y = y->data, p.xelem = x->elem, p.yelem = y->elem;
  p.reverse = c->opt[0] == 1;
  p.rest = zkc_nest(views, 2, c->ax, 1, false);
  p.n = zkc_size(x, c->ax[0]);
  p.sx = zkc_stride(x, c->ax[0]), p.sy = zkc_stride(y, c->ax[0]);
  bool contiguous = p.sx == 1 || p.sy == 1;
  unsigned blocks = zk_blocks(cu, zk_ceil_of(p.rest.count, contiguous ? WARPS : THREADS));
  if (contiguous) ZK_LAUNCH(cu, c, cumsum_warps, blocks, THREADS, 0, p);
  else ZK_LAUNCH(cu, c, cumsum_threads, blocks, THREADS, 0, p);
}

/* scan: h = a h' + b along an axis, where h' is what came before. A row that lies contiguous is a warp's: it
 * takes 32 elements at a time, whose maps h -> p h + e it composes in five steps (Hillis, Steele 1986;
 * Blelloch 1990), and applies them to what came before. Of other rows, neighbours lie side by side, and each
 * is a thread's. Carries are f32. */
#include "kernels/cuda/common.cuh"

#define THREADS 256
#define WARPS (THREADS / 32)

typedef struct {
  const void *a, *b;
  void *h;
  int aelem, belem, helem, reverse, late;
  ZkcNest rest; /* [row]; views: b, h, a */
  long long n, sa, sb, sh;
} Scan;

/* The factor of element i of a row. */
ZK_DEVICE float factor(const Scan &p, long long a, long long i) {
  long long of = i - p.late;
  return of < 0 ? 0 : zk_load(p.a, p.aelem, a + (p.reverse ? p.n - 1 - of : of) * p.sa);
}

static __global__ void __launch_bounds__(THREADS) scan_warps(const __grid_constant__ Scan p) {
  unsigned lane = threadIdx.x % 32;
  for (long long row = blockIdx.x * (long long)WARPS + threadIdx.x / 32; row < p.rest.count;
       row += gridDim.x * (long long)WARPS) {
    long long off[3];
    float carry = 0;
    zkc_seek(p.rest, (unsigned)row, off);
    for (long long first = 0; first < p.n; first += 32) {
      long long i = first + lane, at = p.reverse ? p.n - 1 - i : i;
      float f = i < p.n ? factor(p, off[2], i) : 1,
            e = i < p.n ? zk_load(p.b, p.belem, off[0] + at * p.sb) : 0;
#pragma unroll
      for (unsigned d = 1; d < 32; d <<= 1) {
        float f0 = __shfl_up_sync(0xffffffffu, f, d), e0 = __shfl_up_sync(0xffffffffu, e, d);
        if (lane >= d) {
          e = f * e0 + e;
          f *= f0;
        }
      }
      float h = f * carry + e;
      if (i < p.n) zk_store(p.h, p.helem, off[1] + at * p.sh, h);
      carry = __shfl_sync(0xffffffffu, h, 31);
    }
  }
}

static __global__ void __launch_bounds__(THREADS) scan_threads(const __grid_constant__ Scan p) {
  for (long long row = blockIdx.x * (long long)THREADS + threadIdx.x; row < p.rest.count;
       row += gridDim.x * (long long)THREADS) {
    long long off[3];
    float h = 0;
    zkc_seek(p.rest, (unsigned)row, off);
    for (long long i = 0; i < p.n; i++) {
      long long at = p.reverse ? p.n - 1 - i : i;
      h = factor(p, off[2], i) * h + zk_load(p.b, p.belem, off[0] + at * p.sb);
      zk_store(p.h, p.helem, off[1] + at * p.sh, h);
    }
  }
}

extern "C" void zk_cuda_scan(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  const ZkView *a = &c->in[0], *b = &c->in[1], *h = &c->out[0], *views[] = {b, h, a};
  Scan p = {};
  p.a = a->data, p.b = b->data, p.h = h->data;
  p.aelem = a->elem, p.belem = b->elem, p.helem = h->elem;
  p.reverse = c->opt[0] == 1, p.late = c->opt[1] == 1;
  p.rest = zkc_nest(views, 3, c->ax, 1, false);
  p.n = zkc_size(b, c->ax[0]);
  p.sa = zkc_stride(a, c->ax[0]), p.sb = zkc_stride(b, c->ax[0]), p.sh = zkc_stride(h, c->ax[0]);
  bool contiguous = p.sb == 1 || p.sh == 1;
  unsigned blocks = zk_blocks(cu, zk_ceil_of(p.rest.count, contiguous ? WARPS : THREADS));
  if (contiguous) ZK_LAUNCH(cu, c, scan_warps, blocks, THREADS, 0, p);
  else ZK_LAUNCH(cu, c, scan_threads, blocks, THREADS, 0, p);
}

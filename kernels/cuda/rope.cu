/* rope: rotary position embedding. A block takes one position and some of the rows (batch, heads) there: it
 * computes the position's sines and cosines once, in f64 (at position 4000 a f32 angle is off by 2e-4), and
 * rotates all its rows. */
#include "kernels/cuda/common.cuh"

#define THREADS 128
#define TASKS 1024

typedef struct {
  const void *x;
  void *y;
  int xelem, yelem;
  ZkcNest rest;   /* [row]; views: x, y */
  ZkcUnits pairs; /* eights of pairs, or pairs, of one row */
  long long positions, sx, sy, hx, hy, start;
  int half, width, chunks; /* chunks: of the rows */
  double octaves, sign;    /* octaves: log2 of the ratio of neighbours' frequencies */
} Rope;

/* Of pi times x. Unlike sin and cos, these need no table of 2 / pi in local memory for large x. */
ZK_DEVICE void sine_cosine(double x, double *s, double *c) {
#ifndef ZK_EMU
  sincospi(x, s, c);
#else
  x -= 2 * rint(x / 2);
  *s = sin(M_PI * x), *c = cos(M_PI * x);
#endif
}

/* E: the type of x and y, whose eights of pairs are read 16 bytes at a time; ANY: of any types, pair by pair.
 * */
enum { ANY = -1 };

template <int E> static __global__ void __launch_bounds__(THREADS) rope(const __grid_constant__ Rope p) {
  ZK_SHARED_DYNAMIC(float, cosine); /* [half], then as many sines */
  float *sine = cosine + p.half;
  for (long long task = blockIdx.x; task < p.positions * p.chunks; task += gridDim.x) {
    long long at = task / p.chunks, chunk = task - at * p.chunks;
    long long from = (long long)p.rest.count * chunk / p.chunks,
              to = (long long)p.rest.count * (chunk + 1) / p.chunks;
    for (int i = threadIdx.x; i < p.half; i += THREADS) {
      double s, c;
      sine_cosine((double)(p.start + at) * exp2(i * p.octaves) * (1 / M_PI), &s, &c);
      cosine[i] = (float)c;
      sine[i] = (float)(p.sign * s);
    }
    __syncthreads();
    for (long long u = from * p.pairs.n + threadIdx.x; u < to * p.pairs.n; u += THREADS) {
      long long i, off[2];
      zkc_seek(p.rest, zkc_row(p.pairs, u, i), off);
      off[0] += at * p.sx, off[1] += at * p.sy;
      if (E != ANY) {
        float a[8], b[8];
        zk_load8(p.x, E, off[0] + 8 * i, a);
        zk_load8(p.x, E, off[0] + 8 * i + p.half, b);
#pragma unroll
        for (int j = 0; j < 8; j++) {
          float u0 = a[j], c = cosine[8 * i + j], s = sine[8 * i + j];
          a[j] = u0 * c - b[j] * s;
          b[j] = b[j] * c + u0 * s;
        }
        zk_store8(p.y, E, off[1] + 8 * i, a);
        zk_store8(p.y, E, off[1] + 8 * i + p.half, b);
      } else {
        float a = zk_load(p.x, p.xelem, off[0] + i * p.hx),
              b = zk_load(p.x, p.xelem, off[0] + (i + p.half) * p.hx);
        zk_store(p.y, p.yelem, off[1] + i * p.hy, a * cosine[i] - b * sine[i]);
        zk_store(p.y, p.yelem, off[1] + (i + p.half) * p.hy, b * cosine[i] + a * sine[i]);
      }
    }
    __syncthreads(); /* before the next position's angles */
  }
}

extern "C" void zk_cuda_rope(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  const ZkView *x = &c->in[0], *y = &c->out[0], *views[] = {x, y};
  uint16_t s = c->ax[0], h = c->ax[1];
  int64_t n = zkc_size(x, h);
  Rope p = {};
  ZB_ASSERT(n % 2 == 0 && n <= 8192);
  p.x = x->data, p.y = y->data, p.xelem = x->elem, p.yelem = y->elem;
  p.half = (int)(n / 2);
  p.rest = zkc_nest(views, 2, c->ax, 2, false);
  p.positions = zkc_size(x, s);
  p.sx = zkc_stride(x, s), p.sy = zkc_stride(y, s), p.hx = zkc_stride(x, h), p.hy = zkc_stride(y, h);
  p.start = zkc_start(x, s);
  p.octaves = p.half ? -log2(c->num[0]) / p.half : 0, p.sign = c->opt[0] == 1 ? -1 : 1;
  bool alike = x->elem == y->elem && (x->elem == ZK_F32 || x->elem == ZK_BF16);
  bool wide = alike && p.half % 8 == 0 && zkc_aligned(x, &p.rest, 0, p.hx) &&
              zkc_aligned(y, &p.rest, 1, p.hy) && p.sx * (int64_t)zk_elem_bytes((ZkElem)x->elem) % 16 == 0 &&
              p.sy * (int64_t)zk_elem_bytes((ZkElem)y->elem) % 16 == 0;
  p.width = wide ? 8 : 1;
  p.pairs = zkc_units(p.rest.count, p.half / p.width);
  p.chunks = (int)zk_ceil_of(TASKS, p.positions > 0 ? p.positions : 1);
  if (p.chunks > (int64_t)p.rest.count) p.chunks = p.rest.count ? (int)p.rest.count : 1;
  unsigned blocks = p.half > 0 ? zk_blocks(cu, p.positions * p.chunks) : 0;
  size_t bytes = (size_t)n * sizeof(float);
  if (!wide) ZK_LAUNCH(cu, c, rope<ANY>, blocks, THREADS, bytes, p);
  else if (x->elem == ZK_BF16) ZK_LAUNCH(cu, c, rope<ZKC_BF16>, blocks, THREADS, bytes, p);
  else ZK_LAUNCH(cu, c, rope<ZKC_F32>, blocks, THREADS, bytes, p);
}

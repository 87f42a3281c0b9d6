/* rope, rope_at and rotate: rotary position embedding. A block takes one point that has a position and some of the
 * rows (batch, heads) there: it computes the position's sines and cosines once, in f64 (at position 4000 a
 * f32 angle is off by 2e-4), and rotates all its rows. */
#include "kernels/cuda/common.cuh"

#define THREADS 128
#define TASKS 1024

typedef struct {
  const void *x;
  void *y;
  int xelem, yelem;
  ZkcNest rest;                               /* [row]; views: x, y */
  ZkcNest points;                             /* [point]; views: x, y, at */
  ZkcUnits pairs;                             /* eights of pairs, or pairs, of one row */
  ZkcUnits stay;                              /* features of one row that do not turn */
  const float *at, *speed;                    /* of rotate, [point] and [pair]; NULL: rope's */
  const int *given;                           /* of rope_at, [point] */
  long long positions, hx, hy, speeds, start; /* speeds: the stride of `speed` */
  int half, width, chunks;                    /* chunks: of the rows */
  int beside;                                 /* pairs are neighbours */
  double octaves, sign, scale;                /* octaves: log2 of the ratio of neighbours' frequencies */
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

/* E: the type of x and y, whose eights of pairs are read 16 bytes at a time; ANY: of any
 * types, pair by pair. */
enum { ANY = -1 };

template <int E> static __global__ void __launch_bounds__(THREADS) rope(const __grid_constant__ Rope p) {
  ZK_SHARED_DYNAMIC(float, cosine); /* [half], then as many sines */
  float *sine = cosine + p.half;
  for (long long task = blockIdx.x; task < p.positions * p.chunks; task += gridDim.x) {
    long long at = task / p.chunks, chunk = task - at * p.chunks;
    long long from = (long long)p.rest.count * chunk / p.chunks,
              to = (long long)p.rest.count * (chunk + 1) / p.chunks;
    long long point[3];
    zkc_seek(p.points, (unsigned)at, point);
    for (int i = threadIdx.x; i < p.half; i += THREADS) {
      double s, c;
      double angle = p.at ? (double)p.at[point[2]] * (double)p.speed[i * p.speeds]
                          : (double)(p.given ? p.given[point[2]] : p.start + at) * exp2(i * p.octaves);
      sine_cosine(angle * (1 / M_PI), &s, &c);
      cosine[i] = (float)(p.scale * c);
      sine[i] = (float)(p.sign * p.scale * s);
    }
    __syncthreads();
    for (long long u = from * p.pairs.n + threadIdx.x; u < to * p.pairs.n; u += THREADS) {
      long long i, off[2];
      zkc_seek(p.rest, zkc_row(p.pairs, u, i), off);
      off[0] += point[0], off[1] += point[1];
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
        long long j = p.beside ? 2 * i : i, k = p.beside ? j + 1 : j + p.half;
        float a = zk_load(p.x, p.xelem, off[0] + j * p.hx), b = zk_load(p.x, p.xelem, off[0] + k * p.hx);
        zk_store(p.y, p.yelem, off[1] + j * p.hy, a * cosine[i] - b * sine[i]);
        zk_store(p.y, p.yelem, off[1] + k * p.hy, b * cosine[i] + a * sine[i]);
      }
    }
    for (long long u = from * p.stay.n + threadIdx.x; u < to * p.stay.n; u += THREADS) {
      long long i, off[2];
      zkc_seek(p.rest, zkc_row(p.stay, u, i), off);
      off[0] += point[0], off[1] += point[1];
      if (E != ANY) {
        float same[8];
        zk_load8(p.x, E, off[0] + 2 * p.half + 8 * i, same);
        zk_store8(p.y, E, off[1] + 2 * p.half + 8 * i, same);
      } else {
        i += 2 * p.half;
        zk_store(p.y, p.yelem, off[1] + i * p.hy, zk_load(p.x, p.xelem, off[0] + i * p.hx));
      }
    }
    __syncthreads(); /* before the next position's angles */
  }
}

static bool on_lines(const ZkView *v, const ZkcNest &points, int view) {
  for (int l = 0; l < points.nloops; l++)
    if (points.stride[l][view] * (int64_t)zk_plain_bytes((ZkElem)v->elem) % 16) return false;
  return true;
}

/* Along axis h; the `nat` axes `at` of x have positions. */
static void run(const ZkEnv *env, const ZkCall *c, Rope p, uint16_t h, const uint16_t *at, int nat) {
  ZkCuda *cu = zk_cu(env);
  const ZkView *x = &c->in[0], *y = &c->out[0], *views[] = {x, y, p.at || p.given ? &c->in[1] : y};
  uint16_t own[ZK_MAX_AXES + 1] = {h};
  for (int i = 0; i < nat; i++) own[i + 1] = at[i];
  int64_t n = zkc_size(x, h);
  ZB_ASSERT(n <= 8192);
  p.x = x->data, p.y = y->data, p.xelem = x->elem, p.yelem = y->elem;
  p.rest = zkc_nest(views, 2, own, nat + 1, false);
  p.points = zkc_nest(views, 3, at, nat, true);
  p.positions = p.points.count;
  p.hx = zkc_stride(x, h), p.hy = zkc_stride(y, h);
  bool alike = x->elem == y->elem && (x->elem == ZK_F32 || x->elem == ZK_BF16);
  bool wide = alike && !p.beside && p.half % 8 == 0 && n % 8 == 0 && zkc_aligned(x, &p.rest, 0, p.hx) &&
              zkc_aligned(y, &p.rest, 1, p.hy) && on_lines(x, p.points, 0) && on_lines(y, p.points, 1);
  p.width = wide ? 8 : 1;
  p.pairs = zkc_units(p.rest.count, p.half / p.width);
  p.stay = zkc_units(p.rest.count, (n - 2 * p.half) / p.width);
  p.chunks = (int)zk_ceil_of(TASKS, p.positions > 0 ? p.positions : 1);
  if (p.chunks > (int64_t)p.rest.count) p.chunks = p.rest.count ? (int)p.rest.count : 1;
  unsigned blocks = n > 0 ? zk_blocks(cu, p.positions * p.chunks) : 0;
  size_t bytes = (size_t)n * sizeof(float);
  if (!wide) ZK_LAUNCH(cu, c, rope<ANY>, blocks, THREADS, bytes, p);
  else if (x->elem == ZK_BF16) ZK_LAUNCH(cu, c, rope<ZK_BF16>, blocks, THREADS, bytes, p);
  else ZK_LAUNCH(cu, c, rope<ZK_F32>, blocks, THREADS, bytes, p);
}

extern "C" void zk_cuda_rope(const ZkEnv *env, const ZkCall *c) {
  uint16_t s = c->ax[0], h = c->ax[1];
  int64_t n = zkc_size(&c->in[0], h);
  Rope p = {};
  ZB_ASSERT(n % 2 == 0);
  p.half = (int)(n / 2);
  p.start = zkc_start(&c->in[0], s);
  p.octaves = p.half ? -log2(c->num[0]) / p.half : 0, p.sign = c->opt[0] == 1 ? -1 : 1, p.scale = 1;
  run(env, c, p, h, &s, 1);
}

extern "C" void zk_cuda_rope_at(const ZkEnv *env, const ZkCall *c) {
  uint16_t h = c->ax[1];
  int64_t n = zkc_size(&c->in[0], h);
  Rope p = {};
  ZB_ASSERT(n % 2 == 0 && c->in[1].elem == ZK_I32);
  p.half = (int)(n / 2), p.given = (const int *)c->in[1].data;
  p.octaves = p.half ? -log2(c->num[0]) / p.half : 0, p.sign = c->opt[0] == 1 ? -1 : 1, p.scale = 1;
  run(env, c, p, h, c->ax, 1);
}

extern "C" void zk_cuda_rotate(const ZkEnv *env, const ZkCall *c) {
  const ZkView *at = &c->in[1], *speed = &c->in[2];
  Rope p = {};
  ZB_ASSERT(at->elem == ZK_F32 && speed->elem == ZK_F32);
  p.at = (const float *)at->data, p.speed = (const float *)speed->data, p.speeds = speed->stride[0];
  p.half = (int)(c->opt[1] / 2), p.beside = (c->opt[0] & ZG_ROTATE_BESIDE) != 0;
  p.sign = c->opt[0] & ZG_ROTATE_BACK ? -1 : 1, p.scale = c->num[0];
  run(env, c, p, c->ax[0], at->axis, at->rank);
}

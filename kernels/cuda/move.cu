/* Ops that move data without arithmetic: copy, rename, slice, pad, shift, concat, merge, part. All are one copy between
 * two strided views, which converts the element type where it differs. Three kernels: 16 bytes a time
 * where both sides are contiguous alike; square tiles through shared memory where the fastest axes differ;
 * else element by element. */
#include "kernels/cuda/common.cuh"

enum { DST, SRC };
#define THREADS 256
#define SIDE 32 /* of a tile */
#define TILE_ROWS 8

typedef struct {
  void *dst;
  const void *src; /* NULL: `bits` everywhere */
  int delem, selem;
  ZkcNest nest;  /* [row] without `run` and `across`; views: dst, src */
  ZkcRun run;    /* fastest in dst */
  ZkcRun across; /* fastest in src */
  ZkcUnits units;
  unsigned bits;
} Copy;

/* An element as the bits that are to be stored. */
ZK_DEVICE unsigned get(const Copy &c, long long at) {
  if (!c.src) return c.bits;
  if (c.delem == c.selem)
    return c.selem == ZK_BF16 ? ((const unsigned short *)c.src)[at] : ((const unsigned *)c.src)[at];
  float x = zk_load(c.src, c.selem, at);
  return c.delem == ZK_BF16 ? zk_to_bf16(x) : c.delem == ZK_I32 ? (unsigned)(int)x : __float_as_uint(x);
}
ZK_DEVICE void put(const Copy &c, long long at, unsigned bits) {
  if (c.delem == ZK_BF16) ((unsigned short *)c.dst)[at] = (unsigned short)bits;
  else ((unsigned *)c.dst)[at] = bits;
}

static __global__ void __launch_bounds__(THREADS) copy_wide(const __grid_constant__ Copy c, int size) {
  for (long long u = blockIdx.x * (long long)THREADS + threadIdx.x; u < c.units.total;
       u += (long long)gridDim.x * THREADS) {
    long long off[2], at;
    zkc_seek(c.nest, zkc_row(c.units, u, at), off);
    uint4 x = make_uint4(c.bits, c.bits, c.bits, c.bits);
    if (c.src) x = zk_load16((const char *)c.src + off[SRC] * size + 16 * at);
    zk_store16((char *)c.dst + off[DST] * size + 16 * at, x);
  }
}

static __global__ void __launch_bounds__(THREADS) copy_each(const __grid_constant__ Copy c) {
  for (long long u = blockIdx.x * (long long)THREADS + threadIdx.x; u < c.units.total;
       u += (long long)gridDim.x * THREADS) {
    long long off[2], i;
    zkc_seek(c.nest, zkc_row(c.units, u, i), off);
    put(c, off[DST] + i * c.run.stride[DST], get(c, off[SRC] + i * c.run.stride[SRC]));
  }
}

/* A unit is a tile: units.n of them along `run` and `across` at each point of the nest. */
static __global__ void __launch_bounds__(SIDE *TILE_ROWS)
    copy_tiles(const __grid_constant__ Copy c, int along_run) {
  ZK_SHARED(unsigned, tile, [SIDE][SIDE + 1]);
  int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
  for (long long u = blockIdx.x; u < c.units.total; u += gridDim.x) {
    long long off[2], at;
    zkc_seek(c.nest, zkc_row(c.units, u, at), off);
    long long run0 = at % along_run * SIDE, across0 = at / along_run * SIDE;
    for (int k = y; k < SIDE; k += TILE_ROWS) {
      long long r = run0 + k, a = across0 + x; /* neighbours in src side by side */
      if (r < c.run.n && a < c.across.n)
        tile[k][x] = get(c, off[SRC] + r * c.run.stride[SRC] + a * c.across.stride[SRC]);
    }
    __syncthreads();
    for (int k = y; k < SIDE; k += TILE_ROWS) {
      long long r = run0 + x, a = across0 + k; /* and in dst */
      if (r < c.run.n && a < c.across.n)
        put(c, off[DST] + r * c.run.stride[DST] + a * c.across.stride[DST], tile[x][k]);
    }
    __syncthreads();
  }
}

/* The loop of the nest that is fastest in src, if `run` is not; -1 if there is none or a tile would be mostly
 * empty. */
static int fastest_in_src(const Copy &c) {
  if (c.run.stride[SRC] <= 1 || c.run.n < SIDE / 4) return -1;
  for (int l = 0; l < c.nest.nloops; l++)
    if (c.nest.stride[l][SRC] == 1 && c.nest.div[l].n >= SIDE / 4) return l;
  return -1;
}

/* dst = src over the axes of dst; an axis that src lacks is repeated. src NULL: an element of `bits`, which
 * is 0 for elements of 2 bytes. */
static void copy_view(const ZkEnv *env, const ZkCall *call, const ZkView *dst, const ZkView *src,
                      unsigned bits = 0) {
  ZkCuda *cu = zk_cu(env);
  const ZkView *views[2] = {dst, src};
  Copy c = {dst->data, src ? src->data : NULL, dst->elem, src ? src->elem : dst->elem, {}, {}, {}, {}, bits};
  c.nest = zkc_nest_run(views, src ? 2 : 1, NULL, 0, false, &c.run);
  int size = (int)zk_plain_bytes((ZkElem)dst->elem), n = 16 / size;
  bool wide = c.delem == c.selem && c.run.n % n == 0 && zkc_aligned(dst, &c.nest, DST, c.run.stride[DST]) &&
              (!src || zkc_aligned(src, &c.nest, SRC, c.run.stride[SRC]));
  int across = wide || !src ? -1 : fastest_in_src(c);
  if (wide) {
    c.units = zkc_units(c.nest.count, c.run.n / n);
    ZK_LAUNCH(cu, call, copy_wide, zk_blocks(cu, zk_ceil_of(c.units.total, THREADS)), THREADS, 0, c, size);
  } else if (across >= 0) {
    c.across = zkc_take(&c.nest, across);
    int along_run = (int)zk_ceil_of(c.run.n, SIDE);
    c.units = zkc_units(c.nest.count, along_run * zk_ceil_of(c.across.n, SIDE));
    ZK_LAUNCH(cu, call, copy_tiles, zk_blocks(cu, c.units.total), SIDE * TILE_ROWS, 0, c, along_run);
  } else {
    c.units = zkc_units(c.nest.count, c.run.n);
    ZK_LAUNCH(cu, call, copy_each, zk_blocks(cu, zk_ceil_of(c.units.total, THREADS)), THREADS, 0, c);
  }
}

/* The view of elements [start, start + count) of axis `axis`, which is called `to` there. */
static ZkView slice_view(const ZkView *v, uint16_t axis, uint16_t to, int64_t start, int64_t count) {
  ZkView p = *v;
  int i = 0;
  while (i < v->rank && v->axis[i] != axis) i++;
  ZB_ASSERT(i < v->rank && start >= 0 && count >= 0 && start + count <= v->size[i]);
  p.axis[i] = to;
  p.size[i] = count;
  p.data = zk_at(v, start * v->stride[i]);
  return p;
}

/* The view in which axis `whole` is the axes `part`, of the sizes that `other` has of them, the first slowest. */
static ZkView parted_view(const ZkView *v, uint16_t whole, const uint16_t *part, int n, const ZkView *other) {
  ZkView p = *v;
  int i = 0;
  while (i < v->rank && v->axis[i] != whole) i++;
  ZB_ASSERT(i < v->rank && v->rank + n - 1 <= ZK_MAX_AXES);
  int64_t stride = v->stride[i];
  for (int k = n; k-- > 0;) { /* the last takes the place of `whole` */
    int at = k == n - 1 ? i : p.rank++;
    p.axis[at] = part[k];
    p.size[at] = zkc_size(other, part[k]);
    p.stride[at] = stride;
    p.start[at] = 0;
    p.whole[at] = p.size[at];
    stride *= p.size[at];
  }
  return p;
}

extern "C" void zk_cuda_copy(const ZkEnv *env, const ZkCall *c) { copy_view(env, c, &c->out[0], &c->in[0]); }

extern "C" void zk_cuda_rename(const ZkEnv *env, const ZkCall *c) {
  ZkView in = slice_view(&c->in[0], c->ax[0], c->ax[1], 0, zkc_size(&c->in[0], c->ax[0]));
  copy_view(env, c, &c->out[0], &in);
}

extern "C" void zk_cuda_slice(const ZkEnv *env, const ZkCall *c) {
  ZkView in = slice_view(&c->in[0], c->ax[0], c->ax[1], c->opt[0], c->opt[1]);
  copy_view(env, c, &c->out[0], &in);
}

extern "C" void zk_cuda_pad(const ZkEnv *env, const ZkCall *c) {
  const ZkView *out = &c->out[0];
  int64_t n = zkc_size(&c->in[0], c->ax[0]), whole = zkc_size(out, c->ax[1]), start = c->opt[0];
  ZkView before = slice_view(out, c->ax[1], c->ax[1], 0, start);
  ZkView within = slice_view(out, c->ax[1], c->ax[0], start, n);
  ZkView after = slice_view(out, c->ax[1], c->ax[1], start + n, whole - start - n);
  copy_view(env, c, &before, NULL);
  copy_view(env, c, &within, &c->in[0]);
  copy_view(env, c, &after, NULL);
}

extern "C" void zk_cuda_shift(const ZkEnv *env, const ZkCall *c) {
  uint16_t a = c->ax[0];
  int64_t n = zkc_size(&c->in[0], a), by = c->opt[0] > n ? n : c->opt[0] < -n ? -n : c->opt[0];
  int64_t stay = n - (by < 0 ? -by : by);
  ZkView from = slice_view(&c->in[0], a, a, by < 0 ? -by : 0, stay);
  ZkView to = slice_view(&c->out[0], a, a, by < 0 ? 0 : by, stay);
  ZkView edge = slice_view(&c->out[0], a, a, by < 0 ? stay : 0, n - stay);
  copy_view(env, c, &to, &from);
  copy_view(env, c, &edge, NULL, (unsigned)(int)c->num[0]);
}

extern "C" void zk_cuda_concat(const ZkEnv *env, const ZkCall *c) {
  int64_t start = 0;
  for (int i = 0; i < c->nin; i++) {
    int64_t n = zkc_size(&c->in[i], c->ax[1 + i]);
    ZkView part = slice_view(&c->out[0], c->ax[0], c->ax[1 + i], start, n);
    copy_view(env, c, &part, &c->in[i]);
    start += n;
  }
}

extern "C" void zk_cuda_merge(const ZkEnv *env, const ZkCall *c) {
  ZkView out = parted_view(&c->out[0], c->ax[0], c->ax + 1, c->nax - 1, &c->in[0]);
  copy_view(env, c, &out, &c->in[0]);
}

extern "C" void zk_cuda_part(const ZkEnv *env, const ZkCall *c) {
  ZkView in = parted_view(&c->in[0], c->ax[c->nax - 1], c->ax, c->nax - 1, &c->out[0]);
  copy_view(env, c, &c->out[0], &in);
}

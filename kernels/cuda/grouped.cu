/* Products of rows that are sorted by expert with the weight of each, and the gradient of those weights. A
 * block computes square tiles of a result, 16 steps of the summed axis a time, from tiles in shared memory.
 * Whose rows a tile has, it finds in memory: tiles of rows are counted from the first row of each expert on.
 * An element is the sum of its products in their order, so its bits do not depend on how many rows there are. */
#include "kernels/cuda/packed.cuh"

#define THREADS 256
#define SIDE 64 /* of a tile */
#define STEP 16 /* of the summed axis */
#define EACH 4  /* elements of a tile's side that a thread has: number i lies at t + 16 i */

/* Rows of a view: axes expert, if it has that, and slot, as one. */
typedef struct {
  void *data;
  int elem;
  long long slots, per_expert, per_slot;
} Rows;
ZK_DEVICE long long row_at(const Rows &r, long long i) {
  long long e = r.slots > 0 ? i / r.slots : 0;
  return e * r.per_expert + (i - e * r.slots) * r.per_slot;
}

typedef struct {
  Rows x, y; /* y: g of the gradient */
  void *w;
  int welem;
  const int *ends;
  long long ends_step, per_expert, rows;
  ZkcNest k, n; /* views: x and w; y and w */
  int experts, ktiles, ntiles;
  bool add;
  Packed packed; /* w; codes NULL: it is not packed */
  bool quads;    /* it is, and k and n are its elements and columns in their order */
} Grouped;

ZK_DEVICE long long first_row(const Grouped &p, int expert) {
  return expert ? p.ends[(expert - 1) * p.ends_step] : 0;
}

/* Loads STEP steps from k0 on of SIDE of an expert's columns, from n0 on; zeros where there are none. */
ZK_DEVICE void load_weights(const Grouped &p, int expert, long long k0, long long n0, float (*b)[SIDE]) {
  for (int u = threadIdx.x; u < STEP * SIDE; u += THREADS) {
    int s = u / SIDE, j = u % SIDE;
    float x = 0;
    if (k0 + s < p.k.count && n0 + j < p.n.count) {
      long long in_k[2], off[2];
      zkc_seek(p.k, (unsigned)(k0 + s), in_k);
      zkc_seek(p.n, (unsigned)(n0 + j), off);
      long long at = expert * p.per_expert + in_k[1] + off[1];
      x = p.packed.codes ? packed_at(p.packed, at) : zk_load(p.w, p.welem, at);
    }
    b[s][j] = x;
  }
}

/* The same of packed weights: a thread has four columns by eight elements. */
template <int BITS>
ZK_DEVICE void load_quads(const Grouped &p, const float *value, int expert, long long k0, long long n0,
                          float (*b)[SIDE]) {
  for (int u = threadIdx.x; u < STEP / 8 * SIDE / 4; u += THREADS) {
    int s = u / (SIDE / 4) * 8, j = u % (SIDE / 4) * 4, q = j % ZK_COLUMNS / 4;
    bool there = k0 + s < p.k.count && n0 + j < p.n.count; /* whole panels, and groups */
    long long panel = (expert * (long long)p.n.count + n0 + j) / ZK_COLUMNS;
    Quad<BITS> codes = {};
    QuadGroup group = {};
    if (there)
      codes = quad_at<BITS>(p.packed, panel, k0 + s, q), group = quad_group(p.packed, panel, k0 + s, q);
#pragma unroll
    for (int c = 0; c < 4; c++) {
      float x[8];
      decode<BITS>(p.packed, value, codes, group, c, x); /* a scale of 0 makes zeros */
#pragma unroll
      for (int i = 0; i < 8; i++) b[s + i][j + c] = x[i];
    }
  }
}

/* acc[i][j] += a[i] b[j] over the steps in shared memory. */
ZK_DEVICE void add_steps(const float (*a)[SIDE], const float (*b)[SIDE], float (&acc)[EACH][EACH]) {
  int ti = threadIdx.x / STEP, tj = threadIdx.x % STEP;
#pragma unroll
  for (int s = 0; s < STEP; s++)
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
      for (int j = 0; j < EACH; j++) acc[i][j] += a[s][ti + STEP * i] * b[s][tj + STEP * j];
}

/* Which expert tile `tile` of rows is of, and its first row there; expert = experts: of rows that are
 * nobody's. False: there are not so many tiles. By all threads. */
ZK_DEVICE bool find_tile(const Grouped &p, long long tile, int *expert, long long *row, int *tiles) {
  long long before = 0;
  bool found = false;
  for (int e0 = 0; e0 <= p.experts && !found; e0 += THREADS) {
    int e = e0 + (int)threadIdx.x;
    __syncthreads();
    if (e <= p.experts) {
      long long end = e < p.experts ? first_row(p, e + 1) : p.rows;
      tiles[threadIdx.x] = (int)((end - first_row(p, e) + SIDE - 1) / SIDE);
    }
    __syncthreads();
    for (int i = 0; i < THREADS && e0 + i <= p.experts && !found; i++) {
      if (tile < before + tiles[i]) {
        *expert = e0 + i, *row = first_row(p, e0 + i) + (tile - before) * SIDE;
        found = true;
      }
      before += tiles[i];
    }
  }
  return found;
}

static __global__ void __launch_bounds__(THREADS)
    grouped_dot(const __grid_constant__ Grouped p, long long tasks) {
  ZK_SHARED(int, tiles, [THREADS]);
  ZK_SHARED(float, a, [STEP][SIDE]);
  ZK_SHARED(float, b, [STEP][SIDE]);
  ZK_SHARED(float, value, [16]);
  if (p.quads) load_values(p.packed, value);
  for (long long task = blockIdx.x; task < tasks; task += gridDim.x) {
    int e = 0, t = threadIdx.x;
    long long row = 0, n0 = task % p.ntiles * SIDE, off[2];
    if (!find_tile(p, task / p.ntiles, &e, &row, tiles)) break; /* nor is there one for later tasks */
    long long end = e < p.experts ? first_row(p, e + 1) : p.rows;
    float acc[EACH][EACH] = {};
    for (long long k0 = 0; k0 < p.k.count && e < p.experts; k0 += STEP) {
      __syncthreads();
      for (int u = t; u < STEP * SIDE; u += THREADS) {
        int s = u % STEP, i = u / STEP; /* along k first, as rows lie */
        float x = 0;
        if (k0 + s < p.k.count && row + i < end) {
          zkc_seek(p.k, (unsigned)(k0 + s), off);
          x = zk_load(p.x.data, p.x.elem, row_at(p.x, row + i) + off[0]);
        }
        a[s][i] = x;
      }
      if (!p.quads) load_weights(p, e, k0, n0, b);
      else if (p.packed.bits == 8) load_quads<8>(p, value, e, k0, n0, b);
      else load_quads<4>(p, value, e, k0, n0, b);
      __syncthreads();
      add_steps(a, b, acc);
    }
    for (int i = 0; i < EACH; i++)
      for (int j = 0; j < EACH; j++) {
        long long r = row + t / STEP + STEP * i, c = n0 + t % STEP + STEP * j;
        if (r >= end || c >= p.n.count) continue;
        zkc_seek(p.n, (unsigned)c, off);
        zk_store(p.y.data, p.y.elem, row_at(p.y, r) + off[0], acc[i][j]);
      }
  }
}

/* Where an element of an expert's gradient lies; -1: it has none there. */
ZK_DEVICE long long place_in(const Grouped &p, int expert, long long k, long long n) {
  long long at[2], off[2];
  if (k >= p.k.count || n >= p.n.count) return -1;
  zkc_seek(p.k, (unsigned)k, at);
  zkc_seek(p.n, (unsigned)n, off);
  return expert * p.per_expert + at[1] + off[1];
}

static __global__ void __launch_bounds__(THREADS) grouped_outer(const __grid_constant__ Grouped p) {
  ZK_SHARED(float, a, [STEP][SIDE]);
  ZK_SHARED(float, b, [STEP][SIDE]);
  long long per = (long long)p.ktiles * p.ntiles;
  for (long long task = blockIdx.x; task < p.experts * per; task += gridDim.x) {
    int e = (int)(task / per), t = threadIdx.x;
    long long k0 = task / p.ntiles % p.ktiles * SIDE, n0 = task % p.ntiles * SIDE, at[2], off[2];
    long long row = first_row(p, e), end = first_row(p, e + 1);
    float acc[EACH][EACH] = {};
    if (p.add) {
#pragma unroll
      for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) {
          long long to = place_in(p, e, k0 + t / STEP + STEP * i, n0 + t % STEP + STEP * j);
          if (to >= 0) acc[i][j] = zk_load(p.w, p.welem, to);
        }
    }
    for (; row < end; row += STEP) {
      __syncthreads();
      for (int u = t; u < STEP * SIDE; u += THREADS) {
        int s = u / SIDE, i = u % SIDE;
        bool there = row + s < end, ka = there && k0 + i < p.k.count, nb = there && n0 + i < p.n.count;
        zkc_seek(p.k, (unsigned)(ka ? k0 + i : 0), at);
        zkc_seek(p.n, (unsigned)(nb ? n0 + i : 0), off);
        a[s][i] = ka ? zk_load(p.x.data, p.x.elem, row_at(p.x, row + s) + at[0]) : 0;
        b[s][i] = nb ? zk_load(p.y.data, p.y.elem, row_at(p.y, row + s) + off[0]) : 0;
      }
      __syncthreads();
      add_steps(a, b, acc);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
      for (int j = 0; j < EACH; j++) {
        long long to = place_in(p, e, k0 + t / STEP + STEP * i, n0 + t % STEP + STEP * j);
        if (to >= 0) zk_store(p.w, p.welem, to, acc[i][j]);
      }
  }
}

/* ---- host ---------------------------------------------------------------------------------------------- */
static bool has(const uint16_t *axes, int n, uint16_t axis) {
  for (int i = 0; i < n; i++)
    if (axes[i] == axis) return true;
  return false;
}

static Rows rows_of(const ZkView *v, const ZkCall *c) {
  return {v->data, v->elem, zkc_size(v, c->ax[1]), zkc_stride(v, c->ax[0]), zkc_stride(v, c->ax[1])};
}

/* The nest over axes of v that are (among) or are not among ax[0..n); views: v, w. */
static ZkcNest nest_of(const ZkView *v, const ZkView *w, const uint16_t *ax, int n, bool among) {
  const ZkView *views[] = {v, w};
  uint16_t which[ZK_MAX_AXES];
  int count = 0;
  for (int i = 0; i < v->rank; i++)
    if (has(ax, n, v->axis[i]) == among) which[count++] = v->axis[i];
  return zkc_nest(views, 2, which, count, true);
}

static Grouped grouped_of(const ZkCall *c, const ZkView *w, const ZkView *y, bool outer) {
  const ZkView *x = &c->in[0], *ends = &c->in[2];
  Grouped p = {};
  ZB_ASSERT(ends->elem == ZK_I32);
  p.x = rows_of(x, c), p.y = rows_of(y, c);
  p.w = w->data, p.welem = w->elem;
  if (zk_is_packed((ZkElem)w->elem)) p.packed = packed_of(w);
  p.ends = (const int *)ends->data, p.ends_step = zkc_stride(ends, c->ax[0]);
  p.experts = (int)zkc_size(w, c->ax[0]), p.per_expert = zkc_stride(w, c->ax[0]);
  p.rows = zkc_size(y, c->ax[1]) * (has(y->axis, y->rank, c->ax[0]) ? zkc_size(y, c->ax[0]) : 1);
  p.k = outer ? nest_of(x, w, c->ax, 2, false) : nest_of(x, w, c->ax + 2, c->nax - 2, true);
  p.n = nest_of(y, w, c->ax, 2, false);
  p.quads = p.packed.codes && p.k.nloops == 1 && p.k.stride[0][1] == 1 && p.n.nloops == 1 &&
            p.n.stride[0][1] == p.packed.k && p.n.count % ZK_COLUMNS == 0 &&
            p.per_expert == p.n.count * p.packed.k;
  p.ktiles = zk_ceil_of(p.k.count, SIDE), p.ntiles = zk_ceil_of(p.n.count, SIDE);
  p.add = c->accumulate;
  return p;
}

extern "C" void zk_cuda_grouped_dot(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  Grouped p = grouped_of(c, &c->in[1], &c->out[0], false);
  long long tasks =
      (p.rows / SIDE + p.experts + 1) * p.ntiles; /* at most: every expert may have one cut short */
  ZK_LAUNCH(cu, c, grouped_dot, zk_blocks(cu, tasks), THREADS, 0, p, tasks);
}

extern "C" void zk_cuda_grouped_outer(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  Grouped p = grouped_of(c, &c->out[0], &c->in[1], true);
  ZK_LAUNCH(cu, c, grouped_outer, zk_blocks(cu, (int64_t)p.experts * p.ktiles * p.ntiles), THREADS, 0, p);
}

/* Attention and its gradient, for any layout and element types, in f32 arithmetic.
 *
 * The three kernels go over tiles of queries by keys and keep nothing of size S x S (Dao et al. 2022,
 * FlashAttention). With rows r that a block keeps and rows c that stream past it, all work on tiles s[r, c]:
 *   forward   r: queries, c: keys     s = q k'   o = sum_c exp(s - peak) v, rescaled when the peak rises
 *   dq        r: queries, c: keys     s = q k'   d = g v'   ds = exp(s - l) (d - D)   dq = ds k
 *   dk, dv    r: keys,    c: queries  s = k q'  d = v g'  ds = e (d - D)   dk = ds q, dv = e g
 * with D = sum_w g o of a query and e = exp(s - l). A kernel for queries and one for keys compute s and d
 * twice, and need no atomics: every sum has one order. Masks skip the tiles that they empty.
 *   bias      a tile of it, over all heads that share it: sum ds
 *
 * Gradients of bf16 with heads of up to 128 go to attend_mma.cu.
 *
 * MORE: scores have a cap, a bias or sinks, or are seen by a window or by documents.
 *
 * Heads of up to 256 are padded with zeros to one of four sizes. Larger ones take the kernels at the end. */
#include "kernels/cuda/attend.cuh"

#define THREADS 256
#define SIDE 16 /* threads along each side of a tile */

/* ---- tiles ------------------------------------------------------------------------------------------------
 * T rows of D elements in shared memory, 4 apart from the next so that neither of the two products below has
 * bank conflicts. Thread (x, y) has rows y + 16 i and columns x + 16 j of a tile [T, T]. */
template <int D> struct Row {
  enum { LD = D + 4 };
};
enum { PROBS_PAD = 4 };

/* Rows [from, from + T) of view v, zeros where there are none. */
template <int D, int T>
ZK_DEVICE void load_rows(const Attend &a, int v, long long off, int from, float *tile) {
  const int LD = Row<D>::LD;
  if (a.wide[v]) {
    for (int u = threadIdx.x; u < T * D / 8; u += THREADS) {
      int r = u / (D / 8), c = u % (D / 8) * 8;
      float x[8] = {};
      if (from + r < rows_of(a, v) && c < width_of(a, v))
        zk_load8(a.p[v], a.elem[v], off + (from + r) * a.ss[v] + c, x);
      *(float4 *)&tile[r * LD + c] = make_float4(x[0], x[1], x[2], x[3]);
      *(float4 *)&tile[r * LD + c + 4] = make_float4(x[4], x[5], x[6], x[7]);
    }
  } else {
    for (int u = threadIdx.x; u < T * D; u += THREADS) {
      int r = u / D, c = u % D;
      bool there = from + r < rows_of(a, v) && c < width_of(a, v);
      tile[r * LD + c] = there ? zk_load(a.p[v], a.elem[v], off + (from + r) * a.ss[v] + c * a.hs[v]) : 0;
    }
  }
}

/* s = rows of `a` times rows of `b` */
template <int D, int T>
ZK_DEVICE void scores(const float *a, const float *b, float (&s)[T / SIDE][T / SIDE]) {
  const int R = T / SIDE, LD = Row<D>::LD, x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
#pragma unroll
  for (int i = 0; i < R; i++)
#pragma unroll
    for (int j = 0; j < R; j++) s[i][j] = 0;
#pragma unroll 2
  for (int d = 0; d < D; d += 4) {
    float4 av[R], bv[R];
#pragma unroll
    for (int i = 0; i < R; i++) av[i] = *(const float4 *)&a[(y + SIDE * i) * LD + d];
#pragma unroll
    for (int j = 0; j < R; j++) bv[j] = *(const float4 *)&b[(x + SIDE * j) * LD + d];
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
      for (int j = 0; j < R; j++) {
        s[i][j] = fmaf(av[i].x, bv[j].x, s[i][j]);
        s[i][j] = fmaf(av[i].y, bv[j].y, s[i][j]);
        s[i][j] = fmaf(av[i].z, bv[j].z, s[i][j]);
        s[i][j] = fmaf(av[i].w, bv[j].w, s[i][j]);
      }
  }
}

/* Thread x has D / 16 columns of results of D: groups of W neighbours, so that they load and store
 * together. */
template <int D> struct Columns {
  enum { N = D / SIDE, W = N < 4 ? N : 4 };
  ZK_DEVICE int at(int n) { return n / W * (SIDE * W) + (int)(threadIdx.x % SIDE) * W + n % W; }
  ZK_DEVICE void load(const float *row, float (&x)[N]) {
#pragma unroll
    for (int n = 0; n < N; n += W) {
      if (W == 4) {
        float4 f = *(const float4 *)&row[at(n)];
        x[n] = f.x, x[n + 1] = f.y, x[n + W - 2] = f.z, x[n + W - 1] = f.w;
      } else {
        float2 f = *(const float2 *)&row[at(n)];
        x[n] = f.x, x[n + 1] = f.y;
      }
    }
  }
};

/* sum += p[T, T] b[T, D] */
template <int D, int T>
ZK_DEVICE void weigh(const float *p, const float *b, float (&sum)[T / SIDE][Columns<D>::N]) {
  const int R = T / SIDE, N = Columns<D>::N, LD = Row<D>::LD, y = threadIdx.x / SIDE;
#pragma unroll 1
  for (int c = 0; c < T; c += 4) {
    float w[R][4];
#pragma unroll
    for (int i = 0; i < R; i++) {
      float4 f = *(const float4 *)&p[(y + SIDE * i) * (T + PROBS_PAD) + c];
      w[i][0] = f.x, w[i][1] = f.y, w[i][2] = f.z, w[i][3] = f.w;
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
      float bv[N];
      Columns<D>::load(&b[(c + k) * LD], bv);
#pragma unroll
      for (int i = 0; i < R; i++)
#pragma unroll
        for (int n = 0; n < N; n++) sum[i][n] = fmaf(w[i][k], bv[n], sum[i][n]);
    }
  }
}

template <int T> ZK_DEVICE void keep_probs(const float (&s)[T / SIDE][T / SIDE], float *p) {
  const int R = T / SIDE, x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
#pragma unroll
  for (int i = 0; i < R; i++)
#pragma unroll
    for (int j = 0; j < R; j++) p[(y + SIDE * i) * (T + PROBS_PAD) + x + SIDE * j] = s[i][j];
}

/* Stores rows [from, from + T) of view v, each times its factor. */
template <int D, int T>
ZK_DEVICE void store_rows(const Attend &a, int v, long long off, int from,
                          const float (&sum)[T / SIDE][Columns<D>::N], const float (&factor)[T / SIDE]) {
#pragma unroll
  for (int i = 0; i < T / SIDE; i++) {
    int r = from + (int)threadIdx.x / SIDE + SIDE * i;
#pragma unroll
    for (int n = 0; n < Columns<D>::N; n++) {
      int c = Columns<D>::at(n);
      if (r < rows_of(a, v) && c < width_of(a, v))
        put_grad(a, v, off + r * a.ss[v] + c * a.hs[v], sum[i][n] * factor[i]);
    }
  }
}

/* Over the 16 threads that share rows. */
template <class F> ZK_DEVICE float across(float x, F f) {
  for (int d = SIDE / 2; d > 0; d >>= 1) x = f(x, __shfl_xor_sync(0xffffffffu, x, d));
  return x;
}

/* ---- forward ------------------------------------------------------------------------------------------- */
/* Scores in powers of two to weights about the new peak; what was summed about the old one is to be
 * scaled. */
template <int T, bool MORE> struct Softmax {
  float peak[T / SIDE], sum[T / SIDE], scale[T / SIDE];
  /* A sink is a key whose value is 0. Without one a query may see nothing, and has a finite peak all the
   * same. */
  ZK_DEVICE void begin(Softmax &me, const Attend &a, const long long (&off)[ZKA_VIEWS]) {
    float peak = MORE ? (float)ZK_ATTEND_LOW * LOG2E : -INFINITY, sum = 0;
    if (MORE && a.has[ZKA_SINKS]) {
      peak = zk_load(a.p[ZKA_SINKS], a.elem[ZKA_SINKS], off[ZKA_SINKS]) * LOG2E;
      sum = 1;
    }
#pragma unroll
    for (int i = 0; i < T / SIDE; i++) me.peak[i] = peak, me.sum[i] = sum;
  }
  ZK_DEVICE void next(Softmax &me, const Attend &a, const long long (&off)[ZKA_VIEWS], int q0, int k0,
                      float (&s)[T / SIDE][T / SIDE]) {
    const int R = T / SIDE, x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
    float slope;
#pragma unroll
    for (int i = 0; i < R; i++) {
      int q = q0 + y + SIDE * i;
      float most = me.peak[i], sum = 0;
#pragma unroll
      for (int j = 0; j < R; j++) {
        int k = k0 + x + SIDE * j;
        s[i][j] = visible<MORE>(a, off, q, k) ? score_of<MORE>(a, off, q, k, s[i][j], &slope) : -INFINITY;
        most = fmaxf(most, s[i][j]);
      }
      most = across(most, ZkMax()); /* finite: every query sees a key of the first tile, or MORE */
      me.scale[i] = zk_exp2(me.peak[i] - most);
      me.peak[i] = most;
#pragma unroll
      for (int j = 0; j < R; j++) sum += s[i][j] = zk_exp2(s[i][j] - most);
      me.sum[i] = me.sum[i] * me.scale[i] + across(sum, ZkSum());
    }
  }
};

template <int D, int T, bool MORE>
static __global__ void __launch_bounds__(THREADS, 2) forward(const __grid_constant__ Attend a) {
  const int R = T / SIDE, N = Columns<D>::N, TILE = T * Row<D>::LD;
  ZK_SHARED_DYNAMIC(float, q);
  float *kv = q + TILE, *p = kv + TILE;
  unsigned heads = a.heads.count * a.groups.count, head = blockIdx.x % heads;
  int q0 = (a.tiles - 1 - (int)(blockIdx.x / heads)) * T; /* a causal mask leaves the last ones most to do */
  long long off[ZKA_VIEWS];
  seek_head(a, head / a.groups.count, head % a.groups.count, off);
  Softmax<T, MORE> soft;
  Softmax<T, MORE>::begin(soft, a, off);
  float s[R][R], o[R][N] = {};
#pragma unroll
  for (int i = 0; MORE && a.on && i < R; i++) {
    int row = q0 + (int)threadIdx.x / SIDE + SIDE * i;
    if (row >= a.S) continue;
    soft.peak[i] = zk_load(a.p[ZKA_L], a.elem[ZKA_L], off[ZKA_L] + row * a.ss[ZKA_L]) * LOG2E;
    soft.sum[i] = 1;
#pragma unroll
    for (int n = 0; n < N; n++) {
      int w = Columns<D>::at(n);
      if (w < a.W)
        o[i][n] = zk_load(a.p[ZKA_O], a.elem[ZKA_O], off[ZKA_O] + row * a.ss[ZKA_O] + w * a.hs[ZKA_O]);
    }
  }
  __syncthreads(); /* what other threads of the row go on from has been read */
  load_rows<D, T>(a, ZKA_Q, off[ZKA_Q], q0, q);
  Span keys = keys_of<MORE>(a, off, q0, T);
  for (int k0 = keys.from; k0 < keys.to; k0 += T) {
    if (!share_documents<MORE>(a, off, q0, k0, T)) continue;
    load_rows<D, T>(a, ZKA_K, off[ZKA_K], k0, kv);
    __syncthreads();
    scores<D, T>(q, kv, s);
    Softmax<T, MORE>::next(soft, a, off, q0, k0, s);
    keep_probs<T>(s, p);
    __syncthreads();
    load_rows<D, T>(a, ZKA_V, off[ZKA_V], k0, kv);
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
      for (int n = 0; n < N; n++) o[i][n] *= soft.scale[i];
    __syncthreads();
    weigh<D, T>(p, kv, o);
    __syncthreads();
  }
  float factor[R];
#pragma unroll
  for (int i = 0; i < R; i++) {
    int row = q0 + (int)threadIdx.x / SIDE + SIDE * i;
    if (MORE && soft.sum[i] == 0) soft.sum[i] = 1; /* sees nothing */
    factor[i] = 1 / soft.sum[i];
    if (threadIdx.x % SIDE == 0 && row < a.S)
      zk_store(a.p[ZKA_L], a.elem[ZKA_L], off[ZKA_L] + row * a.ss[ZKA_L],
               soft.peak[i] * LN2 + logf(soft.sum[i]));
  }
  store_rows<D, T>(a, ZKA_O, off[ZKA_O], q0, o, factor);
}

/* ---- gradient ------------------------------------------------------------------------------------------ */
/* A warp to a row of q. */
static __global__ void __launch_bounds__(THREADS, 4)
    deltas(const __grid_constant__ Attend a, long long rows) {
  for (long long u = blockIdx.x * (THREADS / 32LL) + threadIdx.x / 32; u < rows;
       u += gridDim.x * (THREADS / 32LL)) {
    unsigned head = (unsigned)(u / a.S), s = (unsigned)(u % a.S);
    long long off[ZKA_VIEWS];
    float sum = 0;
    seek_head(a, head / a.groups.count, head % a.groups.count, off);
    for (int h = threadIdx.x % 32; h < a.W; h += 32)
      sum += zk_load(a.p[ZKA_G], a.elem[ZKA_G], off[ZKA_G] + s * a.ss[ZKA_G] + h * a.hs[ZKA_G]) *
             zk_load(a.p[ZKA_O], a.elem[ZKA_O], off[ZKA_O] + s * a.ss[ZKA_O] + h * a.hs[ZKA_O]);
    sum = zk_warp(sum, ZkSum());
    if (threadIdx.x % 32 == 0) a.delta[u] = sum;
  }
}

/* One tile of dq (KEYS false), or of dk and dv over all groups. */
template <int D, int T, bool KEYS, bool MORE>
static __global__ void __launch_bounds__(THREADS) gradient(const __grid_constant__ Attend a) {
  const int R = T / SIDE, N = Columns<D>::N, TILE = T * Row<D>::LD, x = threadIdx.x % SIDE,
            y = threadIdx.x / SIDE;
  ZK_SHARED_DYNAMIC(float, r0);
  float *r1 = r0 + TILE, *c0 = r1 + TILE, *c1 = c0 + TILE, *p = c1 + TILE;
  unsigned ngroups = a.groups.count, heads = a.heads.count * (KEYS ? 1 : ngroups), me = blockIdx.x % heads;
  int tile = (int)(blockIdx.x / heads), row0 = (KEYS ? tile : a.tiles - 1 - tile) * T;
  unsigned head = KEYS ? me : me / ngroups, first = KEYS ? 0 : me % ngroups,
           last = KEYS ? ngroups : first + 1;
  long long off[ZKA_VIEWS];
  float sum0[R][N] = {}, sum1[R][N] = {}, s[R][R], d[R][R];
  seek_head(a, head, first, off);
  load_rows<D, T>(a, KEYS ? ZKA_K : ZKA_Q, off[KEYS ? ZKA_K : ZKA_Q], row0, r0);
  load_rows<D, T>(a, KEYS ? ZKA_V : ZKA_G, off[KEYS ? ZKA_V : ZKA_G], row0, r1);
  for (unsigned group = first; group < last; group++) {
    seek_head(a, head, group, off);
    long long doff = delta_at(a, head, group);
    Span span = KEYS ? queries_of<MORE>(a, off, row0, T) : keys_of<MORE>(a, off, row0, T);
    for (int col0 = span.from; col0 < span.to; col0 += T) {
      if (!share_documents<MORE>(a, off, KEYS ? col0 : row0, KEYS ? row0 : col0, T)) continue;
      load_rows<D, T>(a, KEYS ? ZKA_Q : ZKA_K, off[KEYS ? ZKA_Q : ZKA_K], col0, c0);
      load_rows<D, T>(a, KEYS ? ZKA_G : ZKA_V, off[KEYS ? ZKA_G : ZKA_V], col0, c1);
      __syncthreads();
      scores<D, T>(r0, c0, s);
      scores<D, T>(r1, c1, d);
#pragma unroll
      for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < R; j++) {
          int r = row0 + y + SIDE * i, c = col0 + x + SIDE * j;
          float slope = score_grad<MORE>(a, off, KEYS ? c : r, KEYS ? r : c,
                                         query_at(a, off[ZKA_L], doff, KEYS ? c : r), s[i][j], d[i][j]);
          if (MORE) d[i][j] *= slope;
        }
      if (KEYS) {
        keep_probs<T>(s, p);
        __syncthreads();
        weigh<D, T>(p, c1, sum1);
        __syncthreads();
      }
      keep_probs<T>(d, p);
      __syncthreads();
      weigh<D, T>(p, c0, sum0);
      __syncthreads();
    }
  }
  float scale[R], one[R];
#pragma unroll
  for (int i = 0; i < R; i++) scale[i] = a.scale, one[i] = 1;
  store_rows<D, T>(a, KEYS ? ZKA_DK : ZKA_DQ, off[KEYS ? ZKA_DK : ZKA_DQ], row0, sum0, scale);
  if (KEYS) store_rows<D, T>(a, ZKA_DV, off[ZKA_DV], row0, sum1, one);
}

/* A tile of the bias's gradient [queries, keys], or of keys only: then it goes over all queries. */
template <int D, int T>
static __global__ void __launch_bounds__(THREADS)
    bias_gradient(const __grid_constant__ Attend a, const __grid_constant__ ZkcNest own,
                  const __grid_constant__ ZkcNest shared) {
  const int R = T / SIDE, TILE = T * Row<D>::LD, x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
  ZK_SHARED_DYNAMIC(float, r0);
  float *r1 = r0 + TILE, *c0 = r1 + TILE, *c1 = c0 + TILE, *p = c1 + TILE;
  bool by_query = a.ss[ZKA_DBIAS] != 0;
  unsigned ktiles = (a.K + T - 1) / T, at = blockIdx.x / own.count;
  int k0 = (int)(at % ktiles) * T, tile = (int)(at / ktiles) * T;
  long long part[ZKA_VIEWS], off[ZKA_VIEWS];
  float sum[R][R] = {}, s[R][R], d[R][R];
  zkc_seek(own, blockIdx.x % own.count, part);
  for (unsigned u = 0; u < shared.count; u++) {
    zkc_seek(shared, u, off);
#pragma unroll
    for (int v = 0; v < ZKA_VIEWS; v++) off[v] += part[v];
    for (int q0 = by_query ? tile : 0; q0 < (by_query ? min(a.S, tile + T) : a.S); q0 += T) {
      Span keys = keys_of<true>(a, off, q0, T);
      if (k0 >= keys.to || k0 + T <= keys.from || !share_documents<true>(a, off, q0, k0, T)) continue;
      load_rows<D, T>(a, ZKA_Q, off[ZKA_Q], q0, r0);
      load_rows<D, T>(a, ZKA_G, off[ZKA_G], q0, r1);
      load_rows<D, T>(a, ZKA_K, off[ZKA_K], k0, c0);
      load_rows<D, T>(a, ZKA_V, off[ZKA_V], k0, c1);
      __syncthreads();
      scores<D, T>(r0, c0, s);
      scores<D, T>(r1, c1, d);
#pragma unroll
      for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < R; j++) {
          int q = q0 + y + SIDE * i, k = k0 + x + SIDE * j;
          score_grad<true>(a, off, q, k, query_at(a, off[ZKA_L], off[ZKA_DELTA], q), s[i][j], d[i][j]);
          sum[by_query ? i : 0][j] += d[i][j];
        }
      __syncthreads();
    }
  }
  if (!by_query) { /* over the threads of a column, too */
#pragma unroll
    for (int j = 0; j < R; j++) p[y * (T + PROBS_PAD) + x + SIDE * j] = sum[0][j];
    __syncthreads();
    for (int j = 0; y == 0 && j < R; j++)
      for (int u = 1; u < SIDE; u++) sum[0][j] += p[u * (T + PROBS_PAD) + x + SIDE * j];
  }
  for (int i = 0; i < (by_query ? R : 1); i++)
    for (int j = 0; j < R; j++) {
      int q = by_query ? tile + y + SIDE * i : 0, k = k0 + x + SIDE * j;
      if (k < a.K && (by_query ? q < a.S : y == 0))
        zk_store(a.p[ZKA_DBIAS], a.elem[ZKA_DBIAS],
                 part[ZKA_DBIAS] + q * a.ss[ZKA_DBIAS] + k * a.hs[ZKA_DBIAS], sum[i][j]);
    }
}

/* ---- heads of any size ------------------------------------------------------------------------------------
 * A block to a row, a thread to one of T rows of the other side; scores are computed anew for every CHUNK
 * elements of the result. Slow, and only for heads that nobody trains with. */
#define ANY 128
#define CHUNK (4 * ANY)

ZK_DEVICE float row_dot(const Attend &a, int v, long long voff, int i, int w, long long woff, int j) {
  float sum = 0;
  for (int h = 0; h < width_of(a, v); h++)
    sum = fmaf(zk_load(a.p[v], a.elem[v], voff + i * a.ss[v] + h * a.hs[v]),
               zk_load(a.p[w], a.elem[w], woff + j * a.ss[w] + h * a.hs[w]), sum);
  return sum;
}

/* sum[n] += weight of each of the `count` rows of view v from `from` on, times its element h0 + thread + ANY
 * n */
ZK_DEVICE void weigh_any(const Attend &a, int v, long long off, int from, int count, int h0,
                         const float *weight, float (&sum)[4]) {
#pragma unroll
  for (int n = 0; n < 4; n++) {
    int h = h0 + threadIdx.x + ANY * n;
    for (int j = 0; h < width_of(a, v) && j < count; j++)
      sum[n] = fmaf(weight[j], zk_load(a.p[v], a.elem[v], off + (from + j) * a.ss[v] + h * a.hs[v]), sum[n]);
  }
}
ZK_DEVICE void store_any(const Attend &a, int v, long long off, int row, int h0, float factor,
                         const float (&sum)[4]) {
#pragma unroll
  for (int n = 0; n < 4; n++) {
    int h = h0 + threadIdx.x + ANY * n;
    if (h < width_of(a, v)) put_grad(a, v, off + row * a.ss[v] + h * a.hs[v], sum[n] * factor);
  }
}

/* The score of a pair, -INFINITY if it is not seen. */
ZK_DEVICE float score_any(const Attend &a, const long long (&off)[ZKA_VIEWS], int q, int k) {
  float slope;
  if (!visible<true>(a, off, q, k)) return -INFINITY;
  return LN2 * score_of<true>(a, off, q, k, row_dot(a, ZKA_Q, off[ZKA_Q], q, ZKA_K, off[ZKA_K], k), &slope);
}

static __global__ void __launch_bounds__(ANY) forward_any(const __grid_constant__ Attend a) {
  ZK_SHARED(float, part, [ANY / 32]);
  ZK_SHARED(float, weight, [ANY]);
  unsigned head = blockIdx.x / a.S;
  int q = (int)(blockIdx.x % a.S), t = threadIdx.x;
  long long off[ZKA_VIEWS];
  seek_head(a, head / a.groups.count, head % a.groups.count, off);
  Span keys = keys_of<true>(a, off, q, 1);
  float peak = (float)ZK_ATTEND_LOW, sum = 0;
  float before = (float)ZK_ATTEND_LOW;
  if (a.on) {
    peak = before = zk_load(a.p[ZKA_L], a.elem[ZKA_L], off[ZKA_L] + q * a.ss[ZKA_L]);
    sum = t == 0;
  } else if (a.has[ZKA_SINKS]) {
    peak = zk_load(a.p[ZKA_SINKS], a.elem[ZKA_SINKS], off[ZKA_SINKS]);
    sum = t == 0;
  }
  for (int k = keys.from + t; k < keys.to; k += ANY) {
    float s = score_any(a, off, q, k), most = fmaxf(peak, s);
    sum = sum * expf(peak - most) + expf(s - most);
    peak = most;
  }
  float most = zk_block<ANY>(peak, ZkMax(), part);
  float all = zk_block<ANY>(sum * expf(peak - most), ZkSum(), part), l = most + logf(all > 0 ? all : 1);
  if (t == 0) zk_store(a.p[ZKA_L], a.elem[ZKA_L], off[ZKA_L] + q * a.ss[ZKA_L], l);
  for (int w0 = 0; w0 < a.W; w0 += CHUNK) {
    float o[4] = {};
#pragma unroll
    for (int n = 0; a.on && n < 4; n++) {
      int w = w0 + t + ANY * n;
      if (w < a.W)
        o[n] = expf(before - l) *
               zk_load(a.p[ZKA_O], a.elem[ZKA_O], off[ZKA_O] + q * a.ss[ZKA_O] + w * a.hs[ZKA_O]);
    }
    for (int k0 = keys.from; k0 < keys.to; k0 += ANY) {
      if (k0 + t < keys.to) weight[t] = expf(score_any(a, off, q, k0 + t) - l);
      __syncthreads();
      weigh_any(a, ZKA_V, off[ZKA_V], k0, min(ANY, keys.to - k0), w0, weight, o);
      __syncthreads();
    }
    store_any(a, ZKA_O, off[ZKA_O], q, w0, 1, o);
  }
}

/* p and ds of a pair, and the slope of its score. */
ZK_DEVICE float pair_any(const Attend &a, const long long (&off)[ZKA_VIEWS], long long doff, int q, int k,
                         float &p, float &ds) {
  p = row_dot(a, ZKA_Q, off[ZKA_Q], q, ZKA_K, off[ZKA_K], k);
  ds = row_dot(a, ZKA_G, off[ZKA_G], q, ZKA_V, off[ZKA_V], k);
  return score_grad<true>(a, off, q, k, query_at(a, off[ZKA_L], doff, q), p, ds);
}

template <bool KEYS>
static __global__ void __launch_bounds__(ANY) gradient_any(const __grid_constant__ Attend a) {
  ZK_SHARED(float, probs, [ANY]);
  ZK_SHARED(float, grads, [ANY]);
  unsigned rows = KEYS ? a.K : a.S, ngroups = a.groups.count, me = blockIdx.x / rows,
           head = KEYS ? me : me / ngroups;
  unsigned first = KEYS ? 0 : me % ngroups, last = KEYS ? ngroups : first + 1;
  int row = (int)(blockIdx.x % rows), t = threadIdx.x;
  long long off[ZKA_VIEWS];
  for (int h0 = 0; h0 < max(a.H, a.W); h0 += CHUNK) {
    float sum0[4] = {}, sum1[4] = {};
    for (unsigned group = first; group < last; group++) {
      seek_head(a, head, group, off);
      Span span = KEYS ? queries_of<true>(a, off, row, 1) : keys_of<true>(a, off, row, 1);
      for (int c0 = span.from; c0 < span.to; c0 += ANY) {
        int q = KEYS ? c0 + t : row, k = KEYS ? row : c0 + t, n = min(ANY, span.to - c0);
        if (t < n) {
          float slope = pair_any(a, off, delta_at(a, head, group), q, k, probs[t], grads[t]);
          grads[t] *= slope;
        }
        __syncthreads();
        weigh_any(a, KEYS ? ZKA_Q : ZKA_K, off[KEYS ? ZKA_Q : ZKA_K], c0, n, h0, grads, sum0);
        if (KEYS) weigh_any(a, ZKA_G, off[ZKA_G], c0, n, h0, probs, sum1);
        __syncthreads();
      }
    }
    store_any(a, KEYS ? ZKA_DK : ZKA_DQ, off[KEYS ? ZKA_DK : ZKA_DQ], row, h0, a.scale, sum0);
    if (KEYS) store_any(a, ZKA_DV, off[ZKA_DV], row, h0, 1, sum1);
  }
}

/* A thread to an element of the bias's gradient. */
static __global__ void __launch_bounds__(ANY)
    bias_gradient_any(const __grid_constant__ Attend a, const __grid_constant__ ZkcNest own,
                      const __grid_constant__ ZkcNest shared) {
  bool by_query = a.ss[ZKA_DBIAS] != 0;
  unsigned rows = by_query ? a.S : 1;
  long long i = (long long)blockIdx.x * ANY + threadIdx.x, part[ZKA_VIEWS], off[ZKA_VIEWS];
  int k = (int)(i % a.K), row = (int)(i / a.K % rows);
  float sum = 0, p, ds;
  if (i / a.K / rows >= own.count) return;
  zkc_seek(own, (unsigned)(i / a.K / rows), part);
  for (unsigned u = 0; u < shared.count; u++) {
    zkc_seek(shared, u, off);
#pragma unroll
    for (int v = 0; v < ZKA_VIEWS; v++) off[v] += part[v];
    Span span = queries_of<true>(a, off, k, 1);
    if (by_query) span = {max(row, span.from), min(row + 1, span.to)};
    for (int q = span.from; q < span.to; q++) {
      pair_any(a, off, off[ZKA_DELTA], q, k, p, ds);
      sum += ds;
    }
  }
  zk_store(a.p[ZKA_DBIAS], a.elem[ZKA_DBIAS],
           part[ZKA_DBIAS] + (by_query ? row : 0) * a.ss[ZKA_DBIAS] + k * a.hs[ZKA_DBIAS], sum);
}

/* ---- launches ------------------------------------------------------------------------------------------ */
static Attend for_device(const ZkcAttend *from, void *scratch) {
  Attend a = {};
  for (int v = 0; v < ZKA_VIEWS; v++) {
    a.has[v] = from->v[v] != NULL;
    if (!a.has[v]) continue;
    a.p[v] = zk_at(from->v[v], from->skip[v]);
    a.elem[v] = from->v[v]->elem;
    a.wide[v] = v < ZKA_DELTA && v != ZKA_L && zkc_attend_wide(from, v);
    a.ss[v] = from->ss[v];
    a.hs[v] = from->hs[v];
  }
  ZB_ASSERT(from->S < 1 << 30 && from->K < 1 << 30 && from->H < 1 << 30 && from->W < 1 << 30);
  a.heads = from->heads, a.groups = from->groups;
  a.S = (int)from->S, a.K = (int)from->K, a.H = (int)from->H, a.W = (int)from->W;
  a.causal = from->causal, a.more = from->more;
  a.scale = from->scale, a.cap = from->cap;
  a.first = (int)from->first, a.ahead = (int)from->ahead, a.on = from->on;
  a.window = (int)(from->window < 1 << 30 ? from->window : 1 << 30);
  a.delta = (float *)scratch;
  return a;
}

static unsigned blocks(int64_t heads, int64_t each) {
  ZB_ASSERT(heads * each < (int64_t)1 << 31);
  return (unsigned)(heads * each);
}

/* With more than 48 KB of shared memory, which must be asked for. */
template <class K, class... A>
static void launch(ZkCuda *cu, const ZkCall *call, K kernel, unsigned grid, size_t bytes, const A &...args) {
#ifndef ZK_EMU
  cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  if (status != cudaSuccess) zk_cuda_fail(cu, call, "shared memory", cudaGetErrorString(status));
#endif
  ZK_LAUNCH(cu, call, kernel, grid, THREADS, bytes, args...);
}

/* F: T of the forward pass, B: of the gradient; for what 96 KB of shared memory hold, which every device
 * has. */
template <int D, int F, int B, bool MORE>
static void run_tiles(ZkCuda *cu, const ZkCall *call, const ZkcAttend *from, Attend a) {
  int64_t kv = from->heads.count, heads = kv * from->groups.count;
  if (!from->grad) {
    size_t bytes = sizeof(float) * (2 * F * Row<D>::LD + F * (F + PROBS_PAD));
    a.tiles = (int)zk_ceil_of(a.S, F);
    launch(cu, call, forward<D, F, MORE>, blocks(heads, a.tiles), bytes, a);
    return;
  }
  size_t bytes = sizeof(float) * (4 * B * Row<D>::LD + B * (B + PROBS_PAD));
  a.tiles = (int)zk_ceil_of(a.S, B);
  launch(cu, call, gradient<D, B, false, MORE>, blocks(heads, a.tiles), bytes, a);
  launch(cu, call, gradient<D, B, true, MORE>, blocks(kv, zk_ceil_of(a.K, B)), bytes, a);
}

template <int D, int F, int B>
static void run(ZkCuda *cu, const ZkCall *call, const ZkcAttend *from, const Attend &a) {
  if (from->bias_grad) {
    size_t bytes = sizeof(float) * (4 * B * Row<D>::LD + B * (B + PROBS_PAD));
    int64_t tiles = zk_ceil_of(a.K, B) * (from->ss[ZKA_DBIAS] ? zk_ceil_of(a.S, B) : 1);
    launch(cu, call, bias_gradient<D, B>, blocks(from->own.count, tiles), bytes, a, from->own, from->shared);
  } else if (from->more) {
    run_tiles<D, F, B, true>(cu, call, from, a);
  } else {
    run_tiles<D, F, B, false>(cu, call, from, a);
  }
}

static void run_any(ZkCuda *cu, const ZkCall *call, const ZkcAttend *from, const Attend &a) {
  int64_t kv = from->heads.count, heads = kv * from->groups.count;
  if (!from->grad) {
    ZK_LAUNCH(cu, call, forward_any, blocks(heads, a.S), ANY, 0, a);
  } else if (from->bias_grad) {
    int64_t n = from->own.count * (from->ss[ZKA_DBIAS] ? from->S : 1) * from->K;
    ZK_LAUNCH(cu, call, bias_gradient_any, blocks(zk_ceil_of(n, ANY), 1), ANY, 0, a, from->own, from->shared);
  } else {
    ZK_LAUNCH(cu, call, gradient_any<false>, blocks(heads, a.S), ANY, 0, a);
    ZK_LAUNCH(cu, call, gradient_any<true>, blocks(kv, a.K), ANY, 0, a);
  }
}

extern "C" void zk_attend_own(ZkCuda *cu, const ZkCall *call, const ZkcAttend *from) {
  Attend a = for_device(from, call->scratch);
  int64_t rows = zkc_attend_rows(from);
  int wide = a.H > a.W ? a.H : a.W;
  if (from->grad)
    ZK_LAUNCH(cu, call, deltas, zk_blocks(cu, zk_ceil_of(rows, THREADS / 32)), THREADS, 0, a, rows);
  if (from->grad && zk_attend_mma(cu, call, from, a)) return;
  if (wide <= 32) run<32, 64, 64>(cu, call, from, a);
  else if (wide <= 64) run<64, 64, 64>(cu, call, from, a);
  else if (wide <= 128) run<128, 64, 32>(cu, call, from, a);
  else if (wide <= 256) run<256, 32, 16>(cu, call, from, a);
  else run_any(cu, call, from, a);
}

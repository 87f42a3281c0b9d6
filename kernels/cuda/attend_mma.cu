/* The gradient of attention on tensor cores, for where cuDNN is not trusted with it or does not know it: bf16,
 * heads of up to 128 elements. What attend.cu says of the gradient holds here: the same two kernels over the
 * same tiles, one of which keeps queries and one keys, so that every sum has one order.
 *
 * A warp keeps 16 of a block's 64 rows. Its scores stay in registers: as they come out of one product, rounded
 * to bf16, they are what goes into the next (mma.cuh). So s, d and the two gradients are summed in f32, and
 * the weights e and ds are rounded between their products, as by cuDNN. */
#include "kernels/cuda/attend.cuh"
#include "kernels/cuda/attend_tiles.cuh"

/* Rows [from, from + T) of view v, zeros where there are none. */
template <int D, int T>
ZK_DEVICE void load_rows(const Attend &a, int v, long long off, int from, unsigned short *tile) {
  for (int u = threadIdx.x; u < T * D / 8; u += THREADS) {
    int r = u / (D / 8), c = u % (D / 8) * 8;
    uint4 x = make_uint4(0, 0, 0, 0);
    if (from + r < rows_of(a, v) && c < width_of(a, v))
      x = zk_load16((const unsigned short *)a.p[v] + off + (from + r) * a.ss[v] + c);
    *(uint4 *)&tile[r * Row<D>::LD + c] = x;
  }
}

template <int D>
ZK_DEVICE void store_rows(const Attend &a, int v, long long off, int from, const float (&sum)[D / 8][4],
                          float factor) {
#pragma unroll
  for (int n = 0; n < D / 8; n++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int r = from + row_at(e), c = n * 8 + column_at(e);
      if (r < rows_of(a, v) && c < width_of(a, v))
        put_grad(a, v, off + r * a.ss[v] + c * a.hs[v], sum[n][e] * factor);
    }
}

/* Scores of a tile to weights, d to ds. `about`: what is known of the queries, by columns where they stream
 * past (KEYS), else of the two rows. */
template <int C, bool KEYS, bool MORE>
ZK_DEVICE void to_weights(const Attend &a, const long long (&off)[ZKA_VIEWS], int row0, int col0,
                          const Query *about, float (&s)[C / 8][4], float (&d)[C / 8][4]) {
#pragma unroll
  for (int j = 0; j < C / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int r = row0 + row_at(e), c = col0 + j * 8 + column_at(e);
      const Query &q = KEYS ? about[j * 8 + column_at(e)] : about[e / 2];
      float slope = score_grad<MORE>(a, off, KEYS ? c : r, KEYS ? r : c, q, s[j][e], d[j][e]);
      if (MORE) d[j][e] *= slope;
    }
}

/* One tile of dq (KEYS false), or of dk and dv over all groups; C: rows of the other side at a time. */
template <int D, int C, bool KEYS, bool MORE>
static __global__ void __launch_bounds__(THREADS) mma_gradient(const __grid_constant__ Attend a) {
  ZK_SHARED_DYNAMIC(unsigned short, r0);
  ZK_SHARED(Query, queries, [C]);
  unsigned short *r1 = r0 + ROWS * Row<D>::LD, *c0 = r1 + ROWS * Row<D>::LD, *c1 = c0 + C * Row<D>::LD;
  unsigned ngroups = a.groups.count, heads = a.heads.count * (KEYS ? 1 : ngroups), me = blockIdx.x % heads;
  int tile = (int)(blockIdx.x / heads), row0 = (KEYS ? tile : a.tiles - 1 - tile) * ROWS;
  unsigned head = KEYS ? me : me / ngroups, first = KEYS ? 0 : me % ngroups,
           last = KEYS ? ngroups : first + 1;
  long long off[ZKA_VIEWS];
  float sum0[D / 8][4] = {}, sum1[KEYS ? D / 8 : 1][4] = {}, s[C / 8][4], d[C / 8][4];
  seek_head(a, head, first, off);
  load_rows<D, ROWS>(a, KEYS ? ZKA_K : ZKA_Q, off[KEYS ? ZKA_K : ZKA_Q], row0, r0);
  load_rows<D, ROWS>(a, KEYS ? ZKA_V : ZKA_G, off[KEYS ? ZKA_V : ZKA_G], row0, r1);
  Query rows[2];
#pragma unroll
  for (int i = 0; !KEYS && i < 2; i++)
    rows[i] = query_at(a, off[ZKA_L], delta_at(a, head, first), row0 + row_at(2 * i));
  for (unsigned group = first; group < last; group++) {
    seek_head(a, head, group, off);
    Span span = KEYS ? queries_of<MORE>(a, off, row0, ROWS) : keys_of<MORE>(a, off, row0, ROWS);
    for (int col0 = span.from; col0 < span.to; col0 += C) {
      if (!share_documents<MORE>(a, off, KEYS ? col0 : row0, KEYS ? row0 : col0, ROWS)) continue;
      load_rows<D, C>(a, KEYS ? ZKA_Q : ZKA_K, off[KEYS ? ZKA_Q : ZKA_K], col0, c0);
      load_rows<D, C>(a, KEYS ? ZKA_G : ZKA_V, off[KEYS ? ZKA_G : ZKA_V], col0, c1);
      if (KEYS && threadIdx.x < C)
        queries[threadIdx.x] = query_at(a, off[ZKA_L], delta_at(a, head, group), col0 + (int)threadIdx.x);
      __syncthreads();
      scores<D, C>(r0, c0, s);
      scores<D, C>(r1, c1, d);
      to_weights<C, KEYS, MORE>(a, off, row0, col0, KEYS ? queries : rows, s, d);
      if constexpr (KEYS) weigh<D, C>(s, c1, sum1);
      weigh<D, C>(d, c0, sum0);
      __syncthreads();
    }
  }
  store_rows<D>(a, KEYS ? ZKA_DK : ZKA_DQ, off[KEYS ? ZKA_DK : ZKA_DQ], row0, sum0, a.scale);
  if constexpr (KEYS) store_rows<D>(a, ZKA_DV, off[ZKA_DV], row0, sum1, 1);
}

/* ---- launches ------------------------------------------------------------------------------------------ */
template <class K>
static void launch(ZkCuda *cu, const ZkCall *call, K kernel, int64_t grid, size_t bytes, const Attend &a) {
  ZB_ASSERT(grid < (int64_t)1 << 31);
#ifndef ZK_EMU
  cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  if (status != cudaSuccess) zk_cuda_fail(cu, call, "shared memory", cudaGetErrorString(status));
#endif
  ZK_LAUNCH(cu, call, kernel, (unsigned)grid, THREADS, bytes, a);
}

template <int D, int C, bool MORE>
static void run(ZkCuda *cu, const ZkCall *call, const ZkcAttend *from, Attend a) {
  int64_t kv = from->heads.count, heads = kv * from->groups.count;
  size_t bytes = sizeof(unsigned short) * 2 * (ROWS + C) * Row<D>::LD;
  a.tiles = (int)zk_ceil_of(a.S, ROWS);
  auto queries = mma_gradient<D, C, false, MORE>;
  auto keys = mma_gradient<D, C, true, MORE>;
  launch(cu, call, queries, heads * a.tiles, bytes, a);
  launch(cu, call, keys, kv * zk_ceil_of(a.K, ROWS), bytes, a);
}

template <int D, int C>
static void run_of(ZkCuda *cu, const ZkCall *call, const ZkcAttend *from, const Attend &a) {
  if (from->more) run<D, C, true>(cu, call, from, a);
  else run<D, C, false>(cu, call, from, a);
}

bool zk_attend_mma(ZkCuda *cu, const ZkCall *call, const ZkcAttend *from, const Attend &a) {
  if (!zkc_attend_mma(from)) return false;
  if (a.H <= 64 && a.W <= 64) run_of<64, 64>(cu, call, from, a);
  else run_of<128, 32>(cu, call, from, a);
  return true;
}

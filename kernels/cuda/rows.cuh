/* Device code without includes: rows shared by threads, reductions over them, and the arithmetic of
 * normalize. For .cu files (through common.cuh) and for programs compiled at run time in which normalize has
 * neighbours. */
#ifndef ZUG_KERNELS_CUDA_ROWS_CUH
#define ZUG_KERNELS_CUDA_ROWS_CUH

/* ---- reductions -------------------------------------------------------------------------------------------
 * The result of f over T threads in a fixed order, given to all of them. T = 32: each warp by itself; T more:
 * the
 * block's T threads, which must all be here. `part` is shared memory for T/32 values; it may be used again
 * after the next barrier. */
struct ZkSum {
  template <class S> __device__ S operator()(S a, S b) const { return a + b; }
};
struct ZkMax {
  template <class S> __device__ S operator()(S a, S b) const { return a > b ? a : b; }
};
template <class F, class S> ZK_DEVICE S zk_warp(S x, F f) {
  for (int d = 16; d > 0; d >>= 1) x = f(x, __shfl_xor_sync(0xffffffffu, x, d));
  return x;
}
template <int T, class F, class S> ZK_DEVICE S zk_block(S x, F f, S *part) {
  x = zk_warp(x, f);
  if (T == 32) return x;
  __syncthreads(); /* of an earlier use of `part` */
  if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = x;
  __syncthreads();
  x = part[0];
  for (int i = 1; i < T / 32; i++) x = f(x, part[i]);
  return x;
}

/* ---- rows: one line of a view along an axis, shared by T threads ------------------------------------------
 * A thread takes eight elements a time: neighbours where the row is `wide` (contiguous, begins at a multiple
 * of 16 bytes, a multiple of 8 long), else every T-th, so that the threads' accesses lie side by side.
 * Element j of thread t's k-th eight is zkc_first(...) + j * zkc_step(...). */
ZK_DEVICE long long zkc_first(bool wide, long long k, int t) { return wide ? k + 8 * t : k + t; }
template <int T> ZK_DEVICE int zkc_step(bool wide) { return wide ? 1 : T; }

/* Loads those of the eight that exist; the others are `none`. */
ZK_DEVICE void zkc_load_row(const void *p, int elem, long long off, long long stride, bool wide,
                            long long first, int step, long long n, float none, float (&x)[8]) {
  if (wide) {
    if (first < n) zk_load8(p, elem, off + first, x);
    else {
#pragma unroll
      for (int j = 0; j < 8; j++) x[j] = none;
    }
  } else {
#pragma unroll
    for (int j = 0; j < 8; j++) {
      long long i = first + (long long)j * step;
      x[j] = i < n ? zk_load(p, elem, off + i * stride) : none;
    }
  }
}
ZK_DEVICE void zkc_store_row(void *p, int elem, long long off, long long stride, bool wide, long long first,
                             int step, long long n, const float (&x)[8]) {
  if (wide) {
    if (first < n) zk_store8(p, elem, off + first, x);
  } else {
#pragma unroll
    for (int j = 0; j < 8; j++) {
      long long i = first + (long long)j * step;
      if (i < n) zk_store(p, elem, off + i * stride, x[j]);
    }
  }
}

/* ---- normalize --------------------------------------------------------------------------------------------
 * Of a row of n elements that T threads share. K > 0: the row has at most K eights for each thread, which
 * keeps them in registers; K = 0: of any length, and loaded whenever it is looked at. What is summed, and in
 * what order, does not depend on K.
 *
 * load(first, step, x, again) brings V values for each of eight elements, 0 where there are none; `again`: it
 * has done so before. `part` is as for zk_block. */
ZK_DEVICE bool zkc_there(bool wide, long long first, int step, int j, long long n) {
  return wide ? first < n : first + (long long)j * step < n;
}

/* f(first, step, x) for each eight. */
template <int T, int K, int V, class Load, class F>
ZK_DEVICE void zkc_each(float (&kept)[K ? K : 1][V][8], long long n, bool wide, bool again, Load load, F f) {
  const int t = threadIdx.x % T, step = zkc_step<T>(wide);
  if (K == 0) {
    for (long long k = 0; k < n; k += 8 * T) {
      load(zkc_first(wide, k, t), step, kept[0], again);
      f(zkc_first(wide, k, t), step, kept[0]);
    }
  } else {
#pragma unroll
    for (int k = 0; k < K; k++)
      if (!again) load(zkc_first(wide, 8ll * T * k, t), step, kept[k], false);
#pragma unroll
    for (int k = 0; k < K; k++) f(zkc_first(wide, 8ll * T * k, t), step, kept[k]);
  }
}

/* y = (x - mean) r, r = 1/sqrt(mean (x - mean)^2 + eps), by store(first, step, y, r); rms, !std: the mean is
 * taken as 0. The squares are of differences from the mean: a mean of many deviations loses nothing. Returns
 * r. */
template <int T, int K, class Load, class Store>
ZK_DEVICE float zk_normalize(long long n, bool wide, bool std, float eps, float *part, Load load,
                             Store store) {
  float row[K ? K : 1][1][8];
  float mean = 0, square = 0;
  if (std) {
    zkc_each<T, K, 1>(row, n, wide, false, load, [&](long long, int, float(&x)[1][8]) {
#pragma unroll
      for (int j = 0; j < 8; j++) mean += x[0][j];
    });
    mean = zk_block<T>(mean, ZkSum(), part) / (float)n;
  }
  zkc_each<T, K, 1>(row, n, wide, std, load, [&](long long first, int step, float(&x)[1][8]) {
#pragma unroll
    for (int j = 0; j < 8; j++) {
      float d = zkc_there(wide, first, step, j, n) ? x[0][j] - mean : 0;
      square += d * d;
    }
  });
  square = zk_block<T>(square, ZkSum(), part) / (float)n;
  const float r = 1 / sqrtf(square + eps);
  zkc_each<T, K, 1>(row, n, wide, true, load, [&](long long first, int step, float(&x)[1][8]) {
#pragma unroll
    for (int j = 0; j < 8; j++) x[0][j] = (x[0][j] - mean) * r;
    store(first, step, x[0], r);
  });
  return r;
}

/* dx = r (g - [mean g] - y mean(g y)) by store(first, step, dx), of g and y; the bracket only for std. */
template <int T, int K, class Load, class Store>
ZK_DEVICE void zk_normalize_grad(long long n, bool wide, bool std, float r, float *part, Load load,
                                 Store store) {
  float row[K ? K : 1][2][8];
  float mean_g = 0, mean_gy = 0;
  zkc_each<T, K, 2>(row, n, wide, false, load, [&](long long, int, float(&x)[2][8]) {
#pragma unroll
    for (int j = 0; j < 8; j++) mean_g += x[0][j], mean_gy += x[0][j] * x[1][j];
  });
  mean_gy = zk_block<T>(mean_gy, ZkSum(), part) / (float)n;
  mean_g = std ? zk_block<T>(mean_g, ZkSum(), part) / (float)n : 0;
  zkc_each<T, K, 2>(row, n, wide, true, load, [&](long long first, int step, float(&x)[2][8]) {
#pragma unroll
    for (int j = 0; j < 8; j++) x[0][j] = r * (x[0][j] - mean_g - x[1][j] * mean_gy);
    store(first, step, x[0]);
  });
}

/* ---- sums of columns --------------------------------------------------------------------------------------
 * Over a block's rows. Each thread adds its eights of every row to sums of its own, in shared memory: of a row
 * that T threads share K eights each, whose halves lie beside those of the other threads. The T threads of a
 * row, of which a block has TEAMS times as many, are a team, which has sums of its own. */
template <int T, int K> ZK_DEVICE void zk_clear_columns(float4 (&sums)[2 * T * K]) {
#pragma unroll
  for (int i = 0; i < 2 * K; i++) sums[i * T + threadIdx.x % T] = make_float4(0, 0, 0, 0);
}

template <int T, int K>
ZK_DEVICE void zk_add_columns(float4 (&sums)[2 * T * K], long long first, const float (&x)[8]) {
  float4 *own = &sums[(int)first / (8 * T) * 2 * T + threadIdx.x % T];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    float4 s = own[i * T];
    s.x += x[4 * i], s.y += x[4 * i + 1], s.z += x[4 * i + 2], s.w += x[4 * i + 3];
    own[i * T] = s;
  }
}

/* What the teams have of each column, added in their order. After a barrier. */
template <int T, int K, int TEAMS>
ZK_DEVICE void zk_put_columns(const float4 (&sums)[TEAMS][2 * T * K], bool wide, int n, float *to) {
  for (int column = threadIdx.x; column < n; column += T * TEAMS) {
    int k = column / (8 * T), at = column % (8 * T), t = wide ? at / 8 : at % T, j = wide ? at % 8 : at / T;
    int place = 4 * ((2 * k + j / 4) * T + t) + j % 4;
    float all = ((const float *)sums[0])[place];
    for (int i = 1; i < TEAMS; i++) all += ((const float *)sums[i])[place];
    to[column] = all;
  }
}

#endif

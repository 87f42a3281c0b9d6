/* Device code: products of small matrices, one after another, by one block of threads. Tiles go through
 * shared memory, 16 steps of the summed axis a time; sums are f32, in the order of that axis. */
#ifndef ZUG_KERNELS_CUDA_PRODUCTS_CUH
#define ZUG_KERNELS_CUDA_PRODUCTS_CUH

#define ZKC_TEAM 256 /* threads of the block */
#define ZKC_STEP 16  /* of the summed axis; rows and columns of threads */
#define ZKC_SIDE 64  /* columns of a tile: 4 a thread */

typedef struct {
  float a[ZKC_STEP][ZKC_SIDE + 1], b[ZKC_STEP][ZKC_SIDE + 1]; /* one more: rows begin in other banks */
} ZkTiles;

/* put(i, j, init(i, j) + sum over s of a(i, s) b(s, j)) for all i < rows, j < cols; a(i, s) and b(s, j) are
 * read in any order. R: rows of a tile, in 16. ADOWN: neighbours in memory are a(i, s) and a(i + 1, s), else
 * a(i, s + 1); BALONG: b(s, j) and b(s, j + 1). By all threads of the block; what is put all of them see when
 * it is done. `put` may write where `init` reads the same element, and nowhere that a and b read. */
template <int R, bool ADOWN, bool BALONG, class A, class B, class Init, class Put>
ZK_DEVICE void zk_product(ZkTiles &tiles, int rows, int cols, int depth, A a, B b, Init init, Put put) {
  const int t = (int)threadIdx.x, ti = t / ZKC_STEP, tj = t % ZKC_STEP;
  for (int i0 = 0; i0 < rows; i0 += ZKC_STEP * R)
    for (int j0 = 0; j0 < cols; j0 += ZKC_SIDE) {
      float sum[R][4];
#pragma unroll
      for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
          int row = i0 + ti + ZKC_STEP * i, col = j0 + tj + ZKC_STEP * j;
          sum[i][j] = row < rows && col < cols ? init(row, col) : 0;
        }
      for (int s0 = 0; s0 < depth; s0 += ZKC_STEP) {
        __syncthreads();
        for (int u = t; u < ZKC_STEP * ZKC_STEP * R; u += ZKC_TEAM) {
          int s = ADOWN ? u / (ZKC_STEP * R) : u % ZKC_STEP, i = ADOWN ? u % (ZKC_STEP * R) : u / ZKC_STEP;
          tiles.a[s][i] = i0 + i < rows && s0 + s < depth ? a(i0 + i, s0 + s) : 0;
        }
        for (int u = t; u < ZKC_STEP * ZKC_SIDE; u += ZKC_TEAM) {
          int s = BALONG ? u / ZKC_SIDE : u % ZKC_STEP, j = BALONG ? u % ZKC_SIDE : u / ZKC_STEP;
          tiles.b[s][j] = j0 + j < cols && s0 + s < depth ? b(s0 + s, j0 + j) : 0;
        }
        __syncthreads();
#pragma unroll
        for (int s = 0; s < ZKC_STEP; s++)
#pragma unroll
          for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
              sum[i][j] += tiles.a[s][ti + ZKC_STEP * i] * tiles.b[s][tj + ZKC_STEP * j];
      }
#pragma unroll
      for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
          int row = i0 + ti + ZKC_STEP * i, col = j0 + tj + ZKC_STEP * j;
          if (row < rows && col < cols) put(row, col, sum[i][j]);
        }
    }
  __syncthreads();
}

#endif

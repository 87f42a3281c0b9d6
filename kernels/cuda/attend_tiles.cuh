/* Attention's products on tensor cores: tiles of bf16 in shared memory, by blocks of four warps, each of which has 16 of a
 * tile's 64 rows. Scores stay in registers: as they come out of one product, rounded to bf16, they are what goes into
 * the next (mma.cuh). */
#ifndef ZUG_KERNELS_CUDA_ATTEND_TILES_CUH
#define ZUG_KERNELS_CUDA_ATTEND_TILES_CUH

#include "kernels/cuda/mma.cuh"

enum { WARPS = 4, THREADS = 32 * WARPS, ROWS = 16 * WARPS };

/* Rows of D elements in shared memory, 8 apart from the next: eight rows then lie in different banks. */
template <int D> struct Row {
  enum { LD = D + 8 };
};

/* s = the warp's rows of `r` times rows of `c`, C of them */
template <int D, int C>
ZK_DEVICE void scores(const unsigned short *r, const unsigned short *c, float (&s)[C / 8][4]) {
  const int LD = Row<D>::LD, lane = threadIdx.x % 32;
  const unsigned short *mine = &r[(threadIdx.x / 32 * 16 + lane % 16) * LD + lane / 16 * 8];
  const unsigned short *other = &c[(lane / 16 * 8 + lane % 8) * LD + lane / 8 % 2 * 8];
#pragma unroll
  for (int j = 0; j < C / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) s[j][e] = 0;
#pragma unroll
  for (int k = 0; k < D; k += 16) {
    unsigned av[4], bv[4];
    zk_ldmatrix<false>(mine + k, av);
#pragma unroll
    for (int j = 0; j < C / 8; j += 2) {
      zk_ldmatrix<false>(other + j * 8 * LD + k, bv);
      zk_mma(s[j], av, bv[0], bv[1]);
      zk_mma(s[j + 1], av, bv[2], bv[3]);
    }
  }
}

/* sum += p[16, C] c[C, D] */
template <int D, int C>
ZK_DEVICE void weigh(const float (&p)[C / 8][4], const unsigned short *c, float (&sum)[D / 8][4]) {
  const int LD = Row<D>::LD, lane = threadIdx.x % 32;
  const unsigned short *other = &c[(lane / 8 % 2 * 8 + lane % 8) * LD + lane / 16 * 8];
#pragma unroll
  for (int j = 0; j < C / 8; j += 2) {
    const unsigned av[4] = {zk_to_bf16x2(p[j][0], p[j][1]), zk_to_bf16x2(p[j][2], p[j][3]),
                            zk_to_bf16x2(p[j + 1][0], p[j + 1][1]), zk_to_bf16x2(p[j + 1][2], p[j + 1][3])};
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
      unsigned bv[4];
      zk_ldmatrix<true>(other + j * 8 * LD + n * 8, bv);
      zk_mma(sum[n], av, bv[0], bv[1]);
      zk_mma(sum[n + 1], av, bv[2], bv[3]);
    }
  }
}

/* Element e of a C: its row, of the block's, and its column, of 8. */
ZK_DEVICE int row_at(int e) { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + e / 2 * 8; }
ZK_DEVICE int column_at(int e) { return threadIdx.x % 4 * 2 + e % 2; }

#endif

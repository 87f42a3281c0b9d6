/* Products of small matrices of bf16 by tensor cores (PTX: mma.sync, ldmatrix; sm_80 and later), for a whole
 * warp. With lane = 4 g + t:
 *
 *   A [16, 16]  a[0]: row g, columns 2t, 2t+1;  a[1]: row g+8;  a[2], a[3]: the same, columns 2t+8, 2t+9
 *   B [16, 8]   b[0]: rows 2t, 2t+1, column g;  b[1]: rows 2t+8, 2t+9
 *   C [16, 8]   c[0], c[1]: row g, columns 2t, 2t+1;  c[2], c[3]: row g+8
 *
 * so that two C of f32 beside each other, rounded, are an A. */
#ifndef ZUG_KERNELS_CUDA_MMA_CUH
#define ZUG_KERNELS_CUDA_MMA_CUH

#include "kernels/cuda/common.cuh"

#ifdef ZK_EMU
namespace zk_emu {
struct Mma {
  float c[4];
  unsigned a[4], b[2];
};
/* The order of additions inside of a product is the hardware's: here along k, in f32. */
static inline void mma(Mma *mine, Place at) {
  meet(
      0xffffffffu, mine,
      [](void *const lane[32]) {
        float a[16][16], b[16][8];
        for (int l = 0; l < 32; l++) {
          const Mma *m = (const Mma *)lane[l];
          int g = l / 4, t = l % 4;
          for (int i = 0; i < 4; i++)
            for (int h = 0; h < 2; h++)
              a[g + i % 2 * 8][2 * t + h + i / 2 * 8] = zk_from_bf16(m->a[i] >> 16 * h & 0xffff);
          for (int i = 0; i < 2; i++)
            for (int h = 0; h < 2; h++) b[2 * t + h + i * 8][g] = zk_from_bf16(m->b[i] >> 16 * h & 0xffff);
        }
        for (int l = 0; l < 32; l++)
          for (int i = 0; i < 4; i++) {
            float *c = &((Mma *)lane[l])->c[i];
            for (int k = 0; k < 16; k++) *c += a[l / 4 + i / 2 * 8][k] * b[k][2 * (l % 4) + i % 2];
          }
      },
      at);
}
struct Rows {
  const unsigned short *row;
  unsigned r[4];
  bool turned;
};
static inline void ldmatrix(Rows *mine, Place at) {
  if ((size_t)mine->row % 16) stop("ldmatrix at an address that is no multiple of 16", at);
  meet(
      0xffffffffu, mine,
      [](void *const lane[32]) {
        for (int l = 0; l < 32; l++)
          for (int m = 0; m < 4; m++) {
            Rows *to = (Rows *)lane[l];
            unsigned h[2];
            for (int i = 0; i < 2; i++) {
              int row = to->turned ? 2 * (l % 4) + i : l / 4, col = to->turned ? l / 4 : 2 * (l % 4) + i;
              h[i] = ((const Rows *)lane[8 * m + row])->row[col];
            }
            to->r[m] = h[0] | h[1] << 16;
          }
      },
      at);
}
} // namespace zk_emu
#endif

/* c += a b */
ZK_DEVICE void zk_mma(float (&c)[4], const unsigned (&a)[4], const unsigned b0, const unsigned b1) {
#ifndef ZK_EMU
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
               "{%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  zk_emu::Mma m = {{c[0], c[1], c[2], c[3]}, {a[0], a[1], a[2], a[3]}, {b0, b1}};
  zk_emu::mma(&m, ZK_HERE);
  for (int i = 0; i < 4; i++) c[i] = m.c[i];
#endif
}

/* Four matrices [8, 8] of shared memory: lane 8 m + i has the address of row i of matrix m, a multiple of 16
 * bytes. r[m]: of row g, columns 2t and 2t+1; TURNED: of column g, rows 2t and 2t+1. */
template <bool TURNED> ZK_DEVICE void zk_ldmatrix(const unsigned short *row, unsigned (&r)[4]) {
#ifndef ZK_EMU
  unsigned at = (unsigned)__cvta_generic_to_shared(row);
  if (TURNED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
#else
  zk_emu::Rows m = {row, {0, 0, 0, 0}, TURNED};
  zk_emu::ldmatrix(&m, ZK_HERE);
  for (int i = 0; i < 4; i++) r[i] = m.r[i];
#endif
}

#endif

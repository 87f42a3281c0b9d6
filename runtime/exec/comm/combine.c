/* The arithmetic of reductions, which all communicators share: sums of parts as a binary tree.
 *
 * Parts 0 .. n-1 are added as bits of their numbers say, ((0+1)+(2+3))+((4+5)+(6+7)); what is behind the last power of
 * two is a tree of its own, which is added to that: (0+1)+2. A rank whose part is the sum of neighbouring chunks has
 * made a subtree (kernels/cpu/invariant.h), so that 1, 2, 4 and 8 ranks get the same bits.
 *
 * A few vectors of the result at a time, which stay in registers, or in the nearest cache, while the parts are added to
 * them: each part goes through memory once, and nothing else does (2.5 times as fast as a running sum in a small
 * buffer). */
#include "kernels/kernels.h"
#include "runtime/exec/comm/comm.h"

typedef float F32 __attribute__((vector_size(64), aligned(4), may_alias));
typedef double F64 __attribute__((vector_size(64), aligned(8), may_alias));

enum { TREE = 32 }; /* subtrees that wait for others: of 2^31 parts */

/* !(x <= acc) is true for a NaN in x; a NaN in acc stays */
#define MAX_OF(acc, x) ((acc) != (acc) || (x) <= (acc) ? (acc) : (x))

/* Sums of `n` numbers or vectors of each part: `next` is of part k at element i. A sum that is whole waits in `tree`
 * for its neighbour; how many that are, the bits of k say. */
#define TREE_SUM(V, N, next, store)                                                                          \
  V tree[TREE][N], now[N];                                                                                   \
  int depth = 0;                                                                                             \
  for (int k = 0; k < count; k++) {                                                                          \
    next;                                                                                                    \
    for (int pairs = k; pairs & 1; pairs >>= 1) {                                                            \
      depth--;                                                                                               \
      for (int j = 0; j < N; j++) now[j] = tree[depth][j] + now[j];                                          \
    }                                                                                                        \
    for (int j = 0; j < N; j++) tree[depth][j] = now[j];                                                     \
    depth++;                                                                                                 \
  }                                                                                                          \
  for (; depth > 1; depth--)                                                                                 \
    for (int j = 0; j < N; j++) tree[depth - 2][j] = tree[depth - 2][j] + tree[depth - 1][j];                \
  store

#define COMBINE(NAME, T, V)                                                                                  \
  ZB_WIDE static void NAME(T *out, const void *const *part, int count, size_t n, ZxReduce op) {              \
    enum { STEP = 64 / sizeof(T) };                                                                          \
    size_t i = 0;                                                                                            \
    for (; op == ZX_SUM && count == 2 && i + 4 * STEP <= n; i += 4 * STEP) {                                 \
      const V *x = (const V *)((const T *)part[0] + i), *y = (const V *)((const T *)part[1] + i);            \
      V a = x[0] + y[0], b = x[1] + y[1], c = x[2] + y[2], d = x[3] + y[3], *to = (V *)(out + i);            \
      to[0] = a;                                                                                             \
      to[1] = b;                                                                                             \
      to[2] = c;                                                                                             \
      to[3] = d;                                                                                             \
    }                                                                                                        \
    for (; op == ZX_SUM && i + 4 * STEP <= n; i += 4 * STEP) {                                               \
      TREE_SUM(V, 4, for (int j = 0; j < 4; j++) now[j] = ((const V *)((const T *)part[k] + i))[j],          \
               for (int j = 0; j < 4; j++)((V *)(out + i))[j] = tree[0][j];);                                \
    }                                                                                                        \
    for (; op == ZX_SUM && i < n; i++) {                                                                     \
      TREE_SUM(T, 1, now[0] = ((const T *)part[k])[i], out[i] = tree[0][0];);                                \
    }                                                                                                        \
    for (; i < n; i++) {                                                                                     \
      T acc = ((const T *)part[0])[i];                                                                       \
      for (int k = 1; k < count; k++) {                                                                      \
        T x = ((const T *)part[k])[i];                                                                       \
        acc = MAX_OF(acc, x);                                                                                \
      }                                                                                                      \
      out[i] = acc;                                                                                          \
    }                                                                                                        \
  }
COMBINE(combine_f32, float, F32)
COMBINE(combine_f64, double, F64)

/* bf16 is added up in f32 and rounded once, to nearest even, at the end: zb_bf16_to_f32 and zb_f32_to_bf16 of
 * vectors. A word of 32 bits is two numbers. Each becomes an f32 where it lies, the lower one by a shift, so
 * nothing crosses lanes. Vectors are half as long as above: gcc 12 takes longer ones apart badly where the
 * machine has none. */
typedef uint32_t Words __attribute__((vector_size(32), aligned(2), may_alias));
typedef int32_t Ints __attribute__((vector_size(32), aligned(2), may_alias));
typedef float Floats __attribute__((vector_size(32), aligned(2), may_alias));
#define UPPER 0xffff0000u
#define LOW(w) ((Floats)((w) << 16))
#define HIGH(w) ((Floats)((w)&UPPER))
/* All ones for a NaN, whose bits without the sign are more than infinity's; gcc would compare number by
 * number. */
#define NANS(u) ((Words)((Ints)(0x7f800000 - ((u)&0x7fffffff)) >> 31))
#define ROUNDED(u) ((NANS(u) & ((u) | 0x400000)) | (~NANS(u) & ((u) + 0x7fff + ((u) >> 16 & 1))))
#define PAIR(low, high) (ROUNDED((Words)(low)) >> 16 | (ROUNDED((Words)(high)) & UPPER))

ZB_WIDE static void combine_bf16(uint16_t *out, const void *const *part, int count, size_t n, ZxReduce op) {
  enum { STEP = 16 };
  size_t i = 0;
  for (; op == ZX_SUM && i + 2 * STEP <= n; i += 2 * STEP) {
    Words *y = (Words *)(void *)(out + i);
    TREE_SUM(Floats, 4, const Words *x = (const Words *)(const void *)((const uint16_t *)part[k] + i);
             now[0] = LOW(x[0]); now[1] = HIGH(x[0]); now[2] = LOW(x[1]);
             now[3] = HIGH(x[1]), y[0] = PAIR(tree[0][0], tree[0][1]); y[1] = PAIR(tree[0][2], tree[0][3]););
  }
  for (; op == ZX_SUM && i < n; i++) {
    TREE_SUM(float, 1, now[0] = zb_bf16_to_f32(((const uint16_t *)part[k])[i]),
             out[i] = zb_f32_to_bf16(tree[0][0]););
  }
  for (; i < n; i++) {
    float acc = zb_bf16_to_f32(((const uint16_t *)part[0])[i]);
    for (int k = 1; k < count; k++) {
      float x = zb_bf16_to_f32(((const uint16_t *)part[k])[i]);
      acc = MAX_OF(acc, x);
    }
    out[i] = zb_f32_to_bf16(acc);
  }
}

void zx_combine(void *out, const void *const *part, int count, size_t n, ZkElem elem, ZxReduce op) {
  switch (elem) {
  case ZK_F32: combine_f32(out, part, count, n, op); return;
  case ZK_F64: combine_f64(out, part, count, n, op); return;
  case ZK_BF16: combine_bf16(out, part, count, n, op); return;
  default: break;
  }
  ZB_BUG("a reduction of bytes");
}

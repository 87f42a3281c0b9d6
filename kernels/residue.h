/* Residues modulo the prime 2^31 - 1, as numbers that programs are evaluated on to compare them exactly: sums
 * are equal in whatever order they are made, and a constant of a double is exact, since that is m 2^e. What
 * is not polynomial is a hash of its arguments (but see zk_residue_hashed): equal ones give equal results,
 * others different ones. Comparisons see the representatives between -p/2 and p/2. Nothing is rounded, so a
 * cast is the identity.
 *
 * zk_residue_run evaluates a call: it is kernels/ref, compiled for residues (libresidues.a). */
#ifndef ZUG_KERNELS_RESIDUE_H
#define ZUG_KERNELS_RESIDUE_H

#include <math.h>

#include "base/base.h"
#include "graph/ops.h"
#include "kernels/kernels.h"

#define ZK_RESIDUE_PRIME 0x7fffffff
typedef struct {
  uint64_t r; /* below the prime; as large as a double, in whose place it lies in views of type ZK_F64 */
} ZkResidue;

/* Runs any call that has a kernel, fused ones too. Views of real type are ZK_F64 and hold residues; those of
 * type ZK_I32 hold integers. Needs no scratch. */
void zk_residue_run(const ZkEnv *env, const ZkCall *call);

/* Returns x, below p^2, modulo p. */
static inline ZkResidue zk_residue_reduced(uint64_t x) {
  x = (x & ZK_RESIDUE_PRIME) + (x >> 31);
  return (ZkResidue){x >= ZK_RESIDUE_PRIME ? x - ZK_RESIDUE_PRIME : x};
}
static inline ZkResidue zk_residue_add(ZkResidue a, ZkResidue b) { return zk_residue_reduced(a.r + b.r); }
static inline ZkResidue zk_residue_neg(ZkResidue a) { return (ZkResidue){a.r ? ZK_RESIDUE_PRIME - a.r : 0}; }
static inline ZkResidue zk_residue_sub(ZkResidue a, ZkResidue b) {
  return zk_residue_reduced(a.r + ZK_RESIDUE_PRIME - b.r);
}
static inline ZkResidue zk_residue_mul(ZkResidue a, ZkResidue b) { return zk_residue_reduced(a.r * b.r); }

/* Returns 1/a = a^(p - 2), by Fermat: the exponent has 29 bits of 1, then 01. Of 0 it is a number like any
 * other, so that x / k and x k differ for a mask k of zeros and ones. */
static inline ZkResidue zk_residue_inverse(ZkResidue a) {
  ZkResidue x = a;
  if (!a.r) return (ZkResidue){0x2545f491};
  for (int bit = 1; bit < 29; bit++) x = zk_residue_mul(zk_residue_mul(x, x), a);
  x = zk_residue_mul(x, x);
  return zk_residue_mul(zk_residue_mul(x, x), a);
}
static inline ZkResidue zk_residue_div(ZkResidue a, ZkResidue b) {
  return zk_residue_mul(a, zk_residue_inverse(b));
}

static inline ZkResidue zk_residue_of_int(int64_t n) {
  int64_t r = n % ZK_RESIDUE_PRIME;
  return (ZkResidue){(uint64_t)(r < 0 ? r + ZK_RESIDUE_PRIME : r)};
}
/* Returns the representative between -p/2 and p/2: the integer that it stands for, if that is small. */
static inline int64_t zk_residue_int(ZkResidue a) {
  return (int64_t)a.r - (a.r > ZK_RESIDUE_PRIME / 2 ? ZK_RESIDUE_PRIME : 0);
}
static inline bool zk_residue_less(ZkResidue a, ZkResidue b) { return zk_residue_int(a) < zk_residue_int(b); }
static inline bool zk_residue_equal(ZkResidue a, ZkResidue b) { return a.r == b.r; }
static inline ZkResidue zk_residue_max(ZkResidue a, ZkResidue b) { return zk_residue_less(b, a) ? a : b; }

/* Returns the residue of a double, which is m 2^e with an integer m; 2^31 is 1. Infinities are the ends of
 * the order, and what is no number is 0. */
static inline ZkResidue zk_residue_of(double x) {
  int e;
  if (isnan(x)) return (ZkResidue){0};
  if (isinf(x)) return zk_residue_of_int(x < 0 ? -(ZK_RESIDUE_PRIME / 2) : ZK_RESIDUE_PRIME / 2);
  ZkResidue m = zk_residue_of_int((int64_t)ldexp(frexp(x, &e), 53));
  return zk_residue_mul(m, (ZkResidue){1ull << ((e - 53) % 31 + 31) % 31});
}

/* Finds the number that a residue stands for if that is a small multiple of a quarter. */
static inline bool zk_residue_small(ZkResidue a, double *x) {
  int64_t quarters = zk_residue_int(zk_residue_mul(a, (ZkResidue){4}));
  *x = (double)quarters / 4;
  return quarters >= -32 && quarters <= 32;
}
/* Returns a function at small operands, where it has its own value, so that what is 0 in padding stays 0; 0
 * and 1 to any power, which are that; elsewhere a hash. */
static inline ZkResidue zk_residue_hashed(int op, ZkResidue a, ZkResidue b, ZkResidue c) {
  double x, y, z;
  if (op == ZG_OP_POW && a.r <= 1) return a;
  if (zk_residue_small(a, &x) && zk_residue_small(b, &y) && zk_residue_small(c, &z)) {
    double exact = zg_pointwise(op, x, y, z);
    if (isfinite(exact)) return zk_residue_of(exact);
  }
  uint64_t h = zb_mix64(zb_mix64(a.r | b.r << 32) + ((uint64_t)op << 32 | c.r));
  return zk_residue_reduced(h >> 33);
}

/* Returns what an elementwise operation makes of its operands; those that it lacks are 0. */
static inline ZkResidue zk_residue_function(int op, ZkResidue a, ZkResidue b, ZkResidue c) {
  const ZkResidue zero = {0}, one = {1};
  switch (op) {
  case ZG_OP_STOP:
  case ZG_OP_BROADCAST: return a;
  case ZG_OP_NEG: return zk_residue_neg(a);
  case ZG_OP_ADD: return zk_residue_add(a, b);
  case ZG_OP_SUB: return zk_residue_sub(a, b);
  case ZG_OP_MUL: return zk_residue_mul(a, b);
  case ZG_OP_DIV: return zk_residue_div(a, b);
  case ZG_OP_KNOWN: return zk_residue_less(a, zero) ? zero : one;
  case ZG_OP_SIGN: return zk_residue_less(zero, a) ? one : zk_residue_less(a, zero) ? zk_residue_neg(one) : a;
  case ZG_OP_ABS: return zk_residue_less(a, zero) ? zk_residue_neg(a) : a;
  case ZG_OP_MAX: /* hashes, too, which see both operands: but for order, as those are */
  case ZG_OP_MIN:
    return zk_residue_less(a, b) ? zk_residue_hashed(op, b, a, c) : zk_residue_hashed(op, a, b, c);
  case ZG_OP_LESS: return zk_residue_less(a, b) ? one : zero;
  case ZG_OP_EQUAL: return zk_residue_equal(a, b) ? one : zero;
  case ZG_OP_SELECT: return zk_residue_equal(a, zero) ? c : b;
  default: return zk_residue_hashed(op, a, b, c); /* exp, log, .. */
  }
}

#endif

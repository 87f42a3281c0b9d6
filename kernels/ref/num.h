/* The numbers that the reference kernels calculate with. They are compiled twice: over doubles, where num_add
 * is +, and with ZUG_RESIDUES over residues (kernels/residue.h). REF(name) is what a kernel is called:
 * zk_ref_name or zk_residue_name. */
#ifndef ZUG_KERNELS_NUM_H
#define ZUG_KERNELS_NUM_H

#include <math.h>

#include "base/base.h"
#include "graph/ops.h"
#include "kernels/kernels.h"

#define NUM_0 ((Num){0})
#define NUM_1 ((Num){1})

#ifdef ZUG_RESIDUES
#include "kernels/residue.h"
typedef ZkResidue Num;
#define REF(name) zk_residue_##name
#define num_of zk_residue_of
#define num_of_int zk_residue_of_int
#define num_int zk_residue_int
#define num_add zk_residue_add
#define num_sub zk_residue_sub
#define num_mul zk_residue_mul
#define num_div zk_residue_div
#define num_neg zk_residue_neg
#define num_max zk_residue_max
#define num_less zk_residue_less
#define num_equal zk_residue_equal
#define num_pointwise zk_residue_function
/* Graphs have constants as doubles, pointwise functions as floats; nothing else rounds here. */
static inline Num num_constant(double x) { return num_of((float)x); }
static inline Num num_round(Num a, int elem) { return (void)elem, a; }
static inline bool num_is_nan(Num a) { return (void)a, false; }
#else
typedef double Num;
#define REF(name) zk_ref_##name
#define num_of(x) ((double)(x))
#define num_of_int(n) ((double)(n))
#define num_constant(x) (x)
#define num_int(a) ((int64_t)(a))
#define num_max fmax
#define num_is_nan isnan
#define num_pointwise zg_pointwise
static inline Num num_add(Num a, Num b) { return a + b; }
static inline Num num_sub(Num a, Num b) { return a - b; }
static inline Num num_mul(Num a, Num b) { return a * b; }
static inline Num num_div(Num a, Num b) { return a / b; }
static inline Num num_neg(Num a) { return -a; }
static inline bool num_less(Num a, Num b) { return a < b; }
static inline bool num_equal(Num a, Num b) { return a == b; }

/* Returns the nearest number of an element type. */
static inline Num num_round(Num x, int elem) {
  switch (elem) {
  case ZK_F64: return x;
  case ZK_F32: return (float)x;
  case ZK_I32: return trunc(x);
  case ZK_BF16: { /* 8 bits of significand, ties to even; the exponent range is f32's */
    if (!isfinite(x) || x == 0) return x;
    int e2;
    frexp(x, &e2);
    if (e2 < -125) e2 = -125; /* subnormal: a fixed grid */
    return (float)ldexp(nearbyint(ldexp(x, 8 - e2)), e2 - 8);
  }
  default: ZB_BUG("element format %d", elem);
  }
}
#endif

/* Functions are those of elementwise operations, so that an operation made of them is what they are. */
static inline Num num_exp(Num a) { return num_pointwise(ZG_OP_EXP, a, NUM_0, NUM_0); }
static inline Num num_log(Num a) { return num_pointwise(ZG_OP_LOG, a, NUM_0, NUM_0); }
static inline Num num_rsqrt(Num a) { return num_pointwise(ZG_OP_RSQRT, a, NUM_0, NUM_0); }
static inline Num num_tanh(Num a) { return num_pointwise(ZG_OP_TANH, a, NUM_0, NUM_0); }
static inline Num num_sin(Num a) { return num_pointwise(ZG_OP_SIN, a, NUM_0, NUM_0); }
static inline Num num_cos(Num a) { return num_pointwise(ZG_OP_COS, a, NUM_0, NUM_0); }

#endif

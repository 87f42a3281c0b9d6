/* kernels: arithmetic on pointers. A kernel sees views (pointer, element type, axes with sizes and
 * strides) and attributes; it knows nothing of graphs, plans or ranks. Kernels do not fail: they assert.
 *
 * elem.def    how numbers lie in memory: a row per format; elem.h
 * packed.h    weights of 8 and 4 bits in panels
 * table.c     from op to function        cpu/NAME.c  the fast CPU version of op NAME
 * unfuse.c    fused calls, as several
 * devices.c   the list of devices, see devices.h
 * debug.c     debug settings, see debug.def
 * cpu/pool.c  the threads of one rank    ref/NAME.c  the obvious version that defines it, in f64 and over
 *                                        residues, see residue.h
 * cuda/       the same on GPUs, see cuda/cuda.h */
#ifndef ZUG_KERNELS_H
#define ZUG_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/debug.h"
#include "kernels/elem.h"

#define ZK_MAX_AXES 8
#define ZK_MAX_IN 12
#define ZK_MAX_OUT 7
#define ZK_POINTWISE_OUT 4 /* results of a pointwise function */

/* A (local) tensor in memory. axis[i] names dimension i, slowest first; the same name in two views is
 * the same axis. Views are dense in their own order unless a kernel says that it takes more.
 *
 * Packed weights (packed.h) lie in panels. Offsets and strides are those that they would have if they lay one column behind
 * the other: the last `summed` axes are those of a column. zk_load takes them so; dot, grouped_dot and lookup
 * take such an operand. */
typedef struct {
  void *data;
  uint8_t elem; /* ZkElem; F64 only in reference kernels, BOOL is F32 */
  uint8_t rank;
  uint8_t summed; /* of packed weights: so many last axes are a column's; else 0 */
  uint16_t axis[ZK_MAX_AXES];
  int64_t size[ZK_MAX_AXES];
  int64_t stride[ZK_MAX_AXES]; /* in elements */
  int64_t start[ZK_MAX_AXES];  /* global index of the first element (a split axis starts at its part) */
  int64_t whole[ZK_MAX_AXES];  /* global size */
} ZkView;
/* Returns the address of the element at offset `at`, in elements. */
static inline char *zk_at(const ZkView *v, int64_t at) {
  return (char *)v->data + at * (int64_t)zk_plain_bytes((ZkElem)v->elem);
}

/* A pointwise function: elementwise ops on f32 registers, one value of each for every point of the iteration
 * space. The function of a call of op POINTWISE has these registers:
 *
 *   0 .. nin-1     the inputs, each broadcast along the axes that it lacks
 *   nin ..         one an instruction, in order; an instruction reads lower registers
 *
 * out[k] is the register that the call's output k stores. All outputs have the same axes, in any order: the
 * iteration space. An output may share memory with an input of the same layout and type. AXSIZE counts as
 * FILL: whoever makes the function puts the size into `num`. Functions of other ops are below, at ZkCall. */
typedef struct {
  uint16_t op;      /* ZG_OP_ADD, ...: the EW ops of graph/ops.def; CAST rounds to `elem` */
  uint16_t a, b, c; /* operand registers */
  uint16_t elem;    /* CAST: ZkElem to round to */
  float num;        /* FILL */
} ZkPointwiseOp;
typedef struct {
  uint16_t nops, nout;
  uint16_t out[ZK_POINTWISE_OUT]; /* register stored into each output */
  uint16_t prologue;              /* of fused calls: so many instructions come before the op; else 0 */
  uint16_t operand;               /* with a prologue: the register that is the op's operand 0 */
  ZkPointwiseOp *ops;
} ZkPointwise;
#define ZK_POINTWISE_MAX_OPS 64
#define ZK_MOST_SUMS 2 /* of a call of normalize_grad_sums: gradients of a scale and of a shift */

typedef struct ZkPool ZkPool;     /* a rank's threads; sleep while idle */
ZkPool *zk_pool_new(int threads); /* NULL: they cannot be started */
void zk_pool_free(ZkPool *p);
int zk_pool_threads(const ZkPool *p);
/* Runs fn(arg, part, parts) for part = 0..parts-1, parts = the pool's threads, and returns when all are
 * done. */
void zk_pool_run(ZkPool *p, void (*fn)(void *arg, int part, int parts), void *arg);

/* What changes from step to step, where a device can read it: work that was queued once and is done again in
 * every step must find it in memory. */
typedef struct {
  uint64_t step; /* as ZkEnv's; behind it what updates take of a step (optimize.h) */
} ZkStepState;
/* What does not change from call to call of one run. */
typedef struct {
  ZkPool *pool;
  uint64_t seed;
  uint64_t step; /* for `random` */
  /* In a device's memory: `step` and what optimizers take of a step are read there. NULL: not. */
  const ZkStepState *step_state;
  bool tf32;       /* operands of products in f32 may be rounded to 11 bits, where a device is faster so */
  bool repeatable; /* only what gives the same bits in every run, of what is chosen by time */
  ZkDebug debug;
  void *device; /* what a device that is not the CPU keeps of its own */
} ZkEnv;

/* A call. With a pointwise function, a call of another op than POINTWISE is *fused*: the op with a prologue,
 * an epilogue or both.
 *
 *     extra inputs -> prologue -> operand 0 -> the op -> results -> epilogue -> outputs
 *
 * Both are parts of one function, since an epilogue may read what the prologue made. Its registers:
 *
 *   0 .. r-1       the r results of the op, as f32 or rounded to the type of one of the outputs
 *   r .. r+e-1     the e extra inputs, in[nin-e .. nin). The inputs before those are the op's operands; with
 *                  a prologue all but operand 0, which is register `operand`
 *   r+e ..         one an instruction: `prologue` instructions that read no results, then the epilogue's
 *
 * Result 0 has the axes of the iteration space; so have operand 0 that a prologue makes, and every output but
 * those that store another result of the op. Each result but the first is stored; the first is if somebody
 * reads it. No output shares memory with an operand; nothing is accumulated. Only normalize and its gradient,
 * which can work in place, have prologues.
 *
 * Example: y[b n] = gelu(x[b k] . w[k n] + b[n]), of which h = x . w + b is kept for the gradient: op dot, in
 * x w b, out h y. Register 0 is the product, 1 is b, 2 = 0 + 1 is stored to h, and so on.
 *
 * A *batched* call is a dot, fused or not, or a dot_bias_grad, of which one operand lacks the slowest axis of
 * all other tensors: several GEMMs that share an operand. It means what its axes say.
 *
 * A call of normalize_grad_sums is a fused one of normalize_grad whose last results lack the axes of rows:
 * each is the sum over these of its register, which is an input or made by the prologue. `accumulate` is of
 * them alone.
 *
 * Planners ask a device which fused and batched calls it supports, and whether it has the ops dot_bias_grad,
 * xent_max_sums, xent_sums_grad and normalize_grad_sums, which do what several others do (graph/OPS.md). The
 * CPU supports none. */
typedef struct {
  uint16_t op;
  uint8_t nin, nout, nax;
  uint16_t ax[9];
  ZkView in[ZK_MAX_IN], out[ZK_MAX_OUT];
  double num[2];
  int64_t opt[2];
  const ZkPointwise *pointwise;
  /* out[0] += result instead of =; dot, conv_grad, sum and lookup_grad only. Of dot_bias_grad: both results;
   * of normalize_grad_sums: the sums. Of attend: its results are of
   * other keys and are continued by those of this call; of its gradients: all results are added to (of
   * attend_bias_grad on CPUs only). */
  bool accumulate;
  /* Every run gives the same bits: since that is wanted, or since other ranks make the same call and must get
   * the same. Else sums may be made in the order in which a device comes to their terms (attend_grad's dq). */
  bool repeatable;
  /* Batch-invariant: the bits of a token's results depend on that token's operands alone, not on which other
   * tokens are in the call or how many. Set in steps of generation (kernels/cpu/invariant.h says how sums are
   * ordered). */
  bool invariant;
  uint64_t room; /* with so many bytes of scratch an op that can make do should; 0: as is fastest */
  void *scratch; /* as many bytes as the op's scratch function asked for, 64-byte aligned */
} ZkCall;

typedef void ZkKernel(const ZkEnv *env, const ZkCall *call);

/* Rows of a grouped product that are worked on together. Gradients of weights have the same bits if they are
 * added up in several calls, of which all but the last have a multiple of so many rows of each expert. */
#define ZK_GROUP_TILE 32

/* What a fused call is in calls that are not, in order; of others, itself. They use the scratch of the whole,
 * one after the other, behind `room` bytes of it in which some leave what others take. (unfuse.c) */
typedef struct {
  int n;
  ZkCall call[3 + 2 * ZK_MOST_SUMS];
  ZkPointwise function[2 + ZK_MOST_SUMS]; /* of calls */
  size_t room;
} ZkUnfused;
void zk_unfuse(const ZkCall *call, ZkUnfused *to);
/* Of normalize_grad_sums: how many of its results are sums. */
static inline int zk_sums(const ZkCall *call) {
  int n = 0;
  while (n < call->nout && call->out[call->nout - 1 - n].rank < call->out[0].rank) n++;
  return n;
}

/* Kernel of an op of class COMPUTE, MOVE, or of POINTWISE and COPY; NULL for others. All semantics:
 * graph/OPS.md. */
ZkKernel *zk_cpu_kernel(int op);
/* Bytes of scratch that the kernel needs for this call's shapes (pointers are not looked at) with
 * `threads`. */
size_t zk_cpu_scratch(const ZkCall *call, int threads);
/* The reference in f64: every view of real type is ZK_F64. Runs any call that has a meaning, single EW ops and
 * fused calls, too; needs no scratch. Over other numbers: residue.h. */
void zk_ref_run(const ZkEnv *env, const ZkCall *call);

/* ---- kernels on flat buffers, outside graphs ----------------------------------------------------------- */
/* Reads elements first .. first + n as f32, and writes n values, whole blocks, in any format that parameters
 * and states are stored in: F32, BF16, DYN8, UDYN8. */
void zk_cpu_decode(const ZkEnv *env, ZkFlat from, int64_t first, int64_t n, float *x);
void zk_cpu_encode(const ZkEnv *env, int64_t n, const float *x, ZkFlat to);
/* Pack weights in f32, dense in any order of the packed view's axes; and unpack elements first .. first + n of
 * a dense view of the same axes, whose data is not looked at (packed.h). */
void zk_cpu_pack(const ZkEnv *env, const ZkView *plain, const ZkView *packed);
void zk_cpu_unpack(const ZkEnv *env, const ZkView *packed, const ZkView *plain, int64_t first, int64_t n,
                   float *x);
/* A state's update: what is made of registers 0, w, and 1, g; each op makes the next one, and the last is the result. */
#define ZK_UPDATE_OPS 32
typedef struct {
  int n;
  ZkPointwiseOp op[ZK_UPDATE_OPS];
} ZkUpdate;
/* Sum of squares in f64, in a fixed order that does not depend on the number of threads. */
double zk_cpu_sumsq(const ZkEnv *env, int64_t n, const float *x);
void zk_cpu_axpy(const ZkEnv *env, int64_t n, float a, const float *x, float *y); /* y += a x */
void zk_cpu_to_bf16(const ZkEnv *env, int64_t n, const float *x, uint16_t *y);    /* round to nearest even */
void zk_cpu_from_bf16(const ZkEnv *env, int64_t n, const uint16_t *x, float *y);
/* Takes what libraries keep for products of all the pool's threads, once and for all: later they would look
 * for it for ever. NULL, or what cannot be had. Products touch up to ZK_CPU_ROOM bytes of it in each
 * thread. */
#define ZK_CPU_ROOM ((uint64_t)8 << 20)
const char *zk_cpu_take(const ZkEnv *env);
/* Peak of matrix products of this type on this machine with the pool's threads, in FLOP/s, measured for about
 * `ms`. bf16 is made from f32 where the CPU has no instructions for it. */
double zk_cpu_measure_flops(const ZkEnv *env, ZkElem elem, int ms);
/* Which libraries and instruction sets are used, for logs: "OpenBLAS 0.3.21 SkylakeX, avx512f". */
const char *zk_cpu_describe(void);

#endif

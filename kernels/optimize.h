/* optimize: what updates parameters at the end of a step. Outside of kernels.h, so that a new optimizer
 * concerns nobody else.
 *
 * lang/updates.def  the optimizers, a row each          matrix.h              where matrices lie
 * updates.c         what is known of them, and the scalars that they take of a step
 * cpu/optimize.c    updates of flat buffers             cpu/orthogonalize.c   of matrices
 * cpu/gradients.c   gradients in bf16 (gradients.h)
 * cpu/params.c      parameters in halves, and what else is done to them       halves.h      what these are
 * cpu/sides.c       rows and columns of these           sides.h               their arithmetic
 * cuda/optimize.cu, cuda/orthogonalize.cu, cuda/sides.cu: the same on GPUs */
#ifndef ZUG_KERNELS_OPTIMIZE_H
#define ZUG_KERNELS_OPTIMIZE_H

#include "kernels/gradients.h"
#include "kernels/kernels.h"
#include "kernels/matrix.h"
#include "kernels/sides.h"

/* ---- rows ---------------------------------------------------------------------------------------------- */
#define ZK_MOST_STATES 3    /* of an optimizer's row */
#define ZK_MOST_SETTINGS 12 /* that its scalars are made of */
#define ZK_MOST_SCALARS 8   /* of a group of parameters in a step: */
enum {
  ZK_KEEP,        /* what a parameter is multiplied by: 1 - lr * decay; */
  ZK_ACTS,        /* 1: the step updates; 0: gradients are summed, for one that does; */
  ZK_OWN_SCALARS, /* and those of the row; of one that updates matrices the second is the decay of second moments */
  ZK_MOMENTS_DECAY
};
typedef enum {
#define UPDATE(NAME, ...) ZK_BY_##NAME,
#include "lang/updates.def"
  ZK_OPTIMIZERS
} ZkOptimizerKind;
typedef struct {
  const char *word;
  bool matrices; /* the formula makes a momentum, to be orthogonalised */
  bool averages; /* the last state is what the parameter is to all but the training steps */
  uint8_t nstates, nsettings;
  double flops; /* of an element */
  const char *state[ZK_MOST_STATES], *setting[ZK_MOST_SETTINGS];
  ZkElem code[ZK_MOST_STATES]; /* with `bits = 8` */
} ZkOptimizerInfo;
extern const ZkOptimizerInfo zk_optimizer_info[ZK_OPTIMIZERS];
/* A step of a group: its rate and decay; the number of the step that acts, from 1 on; its weight in an
 * average of all so far. */
typedef struct {
  double lr, decay;
  int64_t step;
  bool acts;
  double weight;
} ZkStepOf;
/* Fills in the scalars of a group in a step, from the settings of its optimizer too. */
void zk_optimizer_scalars(ZkOptimizerKind kind, const double *setting, const ZkStepOf *at, float *out);

/* ---- what a step has of them --------------------------------------------------------------------------- */
static inline float *zk_scalars_of(const ZkStepState *s, uint32_t group) {
  return (float *)(uintptr_t)(s + 1) + (size_t)group * ZK_MOST_SCALARS;
}
static inline uint64_t zk_step_state_bytes(uint32_t groups) {
  return sizeof(ZkStepState) + (uint64_t)groups * ZK_MOST_SCALARS * sizeof(float);
}

/* ---- parameters ---------------------------------------------------------------------------------------- */
/* Parameters that are updated: in f32, or in halves (halves.h), of which the high one is read, as bf16. */
typedef struct {
  float *f32; /* NULL: in halves */
  uint16_t *high;
  int16_t *low;
} ZkMaster;
static inline ZkMaster zk_master_from(ZkMaster m, uint64_t first) {
  ZkMaster from = {m.f32, m.high, m.low};
  if (m.f32) from.f32 += first;
  else from.high += first, from.low += first;
  return from;
}
/* The f32 values of what is in halves, and back; without `low` the high ones alone. */
void zk_cpu_join(const ZkEnv *env, ZkMaster from, int64_t n, float *x);
void zk_cpu_split(const ZkEnv *env, int64_t n, const float *x, ZkMaster to);
/* The same of a run. */
void zk_run_split(uint16_t *high, int16_t *low, const float *x, int64_t n);
void zk_run_join(float *x, const uint16_t *high, const int16_t *low, int64_t n);
/* A state's update: w becomes what `ops` make of registers 0, w, and 1, g; each op makes the next one, and
 * the last is the result. True if all of it is finite. */
bool zk_cpu_update_state(const ZkEnv *env, const ZkUpdate *p, int64_t n, const float *g, ZkMaster w);
/* The average of what w was over the steps: a = decay*a + (1-decay)*w. */
void zk_cpu_average_params(const ZkEnv *env, int64_t n, float decay, ZkMaster w, float *a);
void zk_cpu_swap_params(const ZkEnv *env, int64_t n, ZkMaster w, float *y); /* n values for each other */
double zk_cpu_sumsq_params(const ZkEnv *env, int64_t n, ZkMaster w);

/* ---- gradients in bf16 --------------------------------------------------------------------------------- */
/* Adds gradients of a micro-batch to their sums, y = y + x, rounded at random: in the mean what f32 has. */
void zk_cpu_add_bf16(const ZkEnv *env, const ZkDraws *d, int64_t n, const float *x, uint16_t *y);
/* As zk_cpu_sumsq. */
double zk_cpu_sumsq_bf16(const ZkEnv *env, int64_t n, const uint16_t *x);

/* ---- updates ------------------------------------------------------------------------------------------- */
/* An update of n elements by the formula of `kind`: g, in f32 or bf16, is scaled by `scale` first; then
 *
 *     w = keep * w - times * step
 *
 * Cautious: w is multiplied by `keep` only where step does not point away from 0, step * w >= 0 (Liang et al.
 * 2024, of the decay alone). With `sum` the gradients of steps that do not act are added up there, and used
 * in the one that does. Of a kind that makes momenta w, in f32, becomes `step` itself, or 0 in a step that
 * does not act. States are f32, or some are in a format with blocks (codes.c), then n is whole blocks.
 * Returns whether all that is written is finite. */
typedef struct {
  ZkOptimizerKind kind;
  float scale, times;
  bool cautious;
  ZkFlat state[ZK_MOST_STATES];
  float *sum;     /* NULL: every step acts */
  uint32_t group; /* whose scalars these are: a device with a ZkStepState takes them from there, */
  const float *s; /* else from here */
} ZkOptimizer;
/* Returns whether some state of it is in a format with blocks. */
static inline bool zk_has_codes(const ZkOptimizer *p) {
  bool any = false;
  for (int k = 0; k < zk_optimizer_info[p->kind].nstates; k++) any |= p->state[k].elem != ZK_F32;
  return any;
}
bool zk_cpu_optimize(const ZkEnv *env, const ZkOptimizer *p, int64_t n, ZkFlat g, ZkMaster w);
/* ---- matrices ------------------------------------------------------------------------------------------ */
/* Takes a matrix out of its blocks into x, puts it back, or clears it there. */
typedef enum { ZK_MATRIX_TAKE, ZK_MATRIX_PUT, ZK_MATRIX_CLEAR } ZkMatrixWay;
void zk_cpu_matrix(const ZkEnv *env, const ZkMatrix *m, ZkMatrixWay way, float *blocks, float *x);
/* The products by which a matrix is orthogonalised, without pointers: x x', its square, and that times x. */
enum { ZK_ORTHOGONAL_PRODUCTS = 3 };
ZkCall zk_orthogonal_product(int which, int64_t rows, int64_t cols);
/* Muon (Jordan et al. 2024): x[rows, cols] to what is near the U V' of its singular value decomposition, from
 * x by its Frobenius norm on, by `steps` of a x + b x x'x + c x x'x x'x. rows <= cols. Coefficients: those of
 * Jordan, 3.4445, -4.7750, 2.0315 in each step, which leave singular values between about 0.7 and 1.2; or of
 * Polar Express (Amsel et al. 2025), whose last steps are nearly exact. scratch: cols*rows and twice
 * rows*rows floats, each of these rounded up to 64 bytes. */
typedef enum { ZK_JORDAN, ZK_POLAR } ZkCoefficients;
const float *zk_coefficients(ZkCoefficients which, int step); /* of step 0, 1, ...: a, b, c */
/* What x, of this norm, is divided by at first: factor * norm + eps. */
void zk_orthogonal_divisor(ZkCoefficients which, double *factor, double *eps);
void zk_cpu_orthogonalize(const ZkEnv *env, int64_t rows, int64_t cols, int steps, ZkCoefficients which,
                          float *x, float *scratch);
/* Rows (or columns) of x[rows, cols]: their sums of squares; these to factors, in a step that acts, else to 0
 * (moments: NULL for a kind that has none); and x by a factor each. */
void zk_cpu_side_squares(const ZkEnv *env, int64_t rows, int64_t cols, const float *x, bool columns,
                         float *sums);
void zk_cpu_side_factors(const ZkSides *p, bool acts, float *squares, float *moments);
void zk_cpu_side_scale(const ZkEnv *env, int64_t rows, int64_t cols, float *x, bool columns, const float *by);

#endif

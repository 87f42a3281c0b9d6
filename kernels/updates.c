/* Optimizers as rows: what is known of each, and the scalars that their formulas take of a step. */
#include <math.h>

#include "graph/ops.h"
#include "kernels/optimize.h"

#define ALL(...) __VA_ARGS__
enum { FLAT, MATRICES, AVERAGES, HIDDEN }; /* `how` of a row */

/* ---- what rows say ---- */
#define SET(name, range, otherwise) #name,
#define FIXED(name, range, otherwise) #name,
#define UPDATE(NAME, word, how, flops, nstates, a, b, c, files, codes, settings, ...)                        \
  static const char *const settings_##NAME[] = {ALL settings NULL};
#include "lang/updates.def"

#define COUNT(list) (sizeof(list) / sizeof *(list)-1)
#define SET(name, range, otherwise) #name,
#define FIXED(name, range, otherwise) #name,
#define UPDATE(NAME, word, how, flops, nstates, a, b, c, files, codes, settings, ...)                        \
  {word,  how == MATRICES, how == AVERAGES,     nstates,    COUNT(settings_##NAME),                          \
   flops, {ALL files},     {ALL settings NULL}, {ALL codes}},
const ZkOptimizerInfo zk_optimizer_info[ZK_OPTIMIZERS] = {
#include "lang/updates.def"
};

/* ---- scalars of a step ---- */
/* In f64, from what f32 holds of a setting: the formula has the same. */
#define SET(name, range, otherwise)                                                                          \
  const double name = (double)(float)*setting++;                                                             \
  (void)name;
#define FIXED SET
#define S(name, value) *out++ = (float)(value);
#define UPDATE(NAME, word, how, flops, nstates, a, b, c, files, codes, settings, scalars, ...)               \
  static float *scalars_##NAME(const double *setting, const ZkStepOf *at, double lr, float *out) {           \
    const double decay = (double)(float)at->decay, t = (double)at->step, weight = at->weight;                \
    (void)setting, (void)decay, (void)t, (void)weight, (void)lr;                                             \
    ALL settings ALL scalars return out;                                                                     \
  }
#include "lang/updates.def"

void zk_optimizer_scalars(ZkOptimizerKind kind, const double *setting, const ZkStepOf *at, float *out) {
  static float *(*const of_row[])(const double *, const ZkStepOf *, double, float *) = {
#define UPDATE(NAME, ...) scalars_##NAME,
#include "lang/updates.def"
  };
  out[ZK_KEEP] = 1 - (float)at->lr * (float)at->decay;
  out[ZK_ACTS] = at->acts;
  float *end = of_row[kind](setting, at, (double)(float)at->lr, out + ZK_OWN_SCALARS);
  ZB_ASSERT(end - out <= ZK_MOST_SCALARS);
}

/* ---- polynomials that orthogonalise ---- */
void zk_orthogonal_divisor(ZkCoefficients which, double *factor, double *eps) {
  *factor = which == ZK_POLAR ? 1.02 : 1;
  *eps = which == ZK_POLAR ? 1e-6 : 1e-7;
}

static ZkView matrix(uint16_t slow, int64_t n, uint16_t fast, int64_t m) {
  return (ZkView){
      .elem = ZK_F32, .rank = 2, .axis = {slow, fast}, .size = {n, m}, .stride = {m, 1}, .whole = {n, m}};
}

ZkCall zk_orthogonal_product(int which, int64_t rows, int64_t cols) {
  enum { ROW, COL, ROW2 }; /* axes; that of rows under two names */
  ZkCall c = {.op = ZG_OP_DOT, .nin = 2, .nout = 1, .nax = 1};
  c.ax[0] = which == 2 ? ROW2 : COL;
  c.in[0] = which == 0 ? matrix(ROW, rows, COL, cols) : matrix(ROW, rows, which == 1 ? COL : ROW2, rows);
  c.in[1] = which == 0   ? matrix(ROW2, rows, COL, cols)
            : which == 1 ? matrix(COL, rows, ROW2, rows)
                         : matrix(ROW2, rows, COL, cols);
  c.out[0] = which == 2 ? matrix(ROW, rows, COL, cols) : matrix(ROW, rows, ROW2, rows);
  return c;
}

const float *zk_coefficients(ZkCoefficients which, int step) {
  static const float jordan[] = {3.4445f, -4.7750f, 2.0315f};
  /* For singular values from 1e-3 on, with a margin of 2 %, as modded-nanogpt and nanochat have them; what follows
   * converges quadratically. */
  static const float polar[][3] = {{8.156554524902461f, -22.48329292557795f, 15.878769915207462f},
                                   {4.042929935166739f, -2.808917465908714f, 0.5000178451051316f},
                                   {3.8916678022926607f, -2.772484153217685f, 0.5060648178503393f},
                                   {3.285753657755655f, -2.3681294933425376f, 0.46449024233003106f},
                                   {2.3465413258596377f, -1.7097828382687081f, 0.42323551169305323f},
                                   {1.875f, -1.25f, 0.375f}};
  if (which == ZK_JORDAN) return jordan;
  return polar[step < 5 ? step : 5];
}

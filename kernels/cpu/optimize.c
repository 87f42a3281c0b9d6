/* Updates of parameters on flat buffers, by the formulas of lang/updates.def: one pass each, at the speed of memory.
 * The loops also sum 0 * x of all that they write: 0, or NaN if something is not finite. What they wait for is memory,
 * so that is free. */
#include <math.h>

#include "kernels/cpu/math.h"
#include "kernels/optimize.h"

enum { FLAT, MATRICES, AVERAGES, HIDDEN }; /* `how` of a row */
enum { BLOCK = ZK_DYN8_BLOCK, PIECE = 4096, GRAIN = 32768 };

/* x: the states, f32; s: the group's scalars. */
typedef float Run(int64_t n, const float *gradient, float *weight, float *const *x, const float *s,
                  float scale, float times);

#define ALL(...) __VA_ARGS__
#define SQRT __builtin_sqrtf
#define S(name, value)                                                                                       \
  const float name = *own++;                                                                                 \
  (void)name;
/* What there is of a state beyond the last is the weight, and never used. */
#define RUN(NAME, CAUTIOUS, MAKES, N, A, B, C, SCALARS, ...)                                                 \
  ZK_SIMD static float NAME(int64_t n, const float *gradient, float *weight, float *const *x,                \
                            const float *s, float scale, float times) {                                      \
    const float keep = s[ZK_KEEP], *own = s + ZK_OWN_SCALARS;                                                \
    float *a_ = N > 0 ? x[0] : weight, *b_ = N > 1 ? x[1] : weight, *c_ = N > 2 ? x[2] : weight, zero = 0;   \
    (void)keep, (void)own;                                                                                   \
    ALL SCALARS _Pragma("omp simd reduction(+ : zero)") for (int64_t i = 0; i < n; i++) {                    \
      float g = gradient[i] * scale, w = MAKES ? 0 : weight[i], step;                                        \
      float A = N > 0 ? a_[i] : 0, B = N > 1 ? b_[i] : 0, C = N > 2 ? c_[i] : 0;                             \
      __VA_ARGS__;                                                                                           \
      (void)g, (void)A, (void)B, (void)C;                                                                    \
      float kept = CAUTIOUS && !(step * w >= 0) ? 1.0f : keep;                                               \
      float made = MAKES ? step : kept * w - times * step;                                                   \
      if (N > 0) a_[i] = A, zero += 0 * A;                                                                   \
      if (N > 1) b_[i] = B, zero += 0 * B;                                                                   \
      if (N > 2) c_[i] = C, zero += 0 * C;                                                                   \
      weight[i] = made;                                                                                      \
      zero += 0 * made;                                                                                      \
    }                                                                                                        \
    return zero;                                                                                             \
  }
#define UPDATE(NAME, word, how, flops, n, a, b, c, files, codes, settings, scalars, ...)                     \
  RUN(run_##NAME, 0, how == MATRICES, n, a, b, c, scalars, __VA_ARGS__)                                      \
  RUN(cautious_##NAME, 1, how == MATRICES, n, a, b, c, scalars, __VA_ARGS__)
#include "lang/updates.def"

static Run *const runs[ZK_OPTIMIZERS][2] = {
#define UPDATE(NAME, ...) {run_##NAME, cautious_##NAME},
#include "lang/updates.def"
};

/* ---- pieces ---- */
typedef struct {
  const ZkOptimizer *p;
  Run *run;
  int nstates;
  ZkFlat g;
  ZkMaster w;
  bool lost; /* something is not finite */
} Step;

/* Says whether the step updates anything. */
static bool acts(const Step *s) { return s->p->s[ZK_ACTS] != 0; }

static void look(Step *s, float zero) {
  if (!(zero == 0)) __atomic_store_n(&s->lost, true, __ATOMIC_RELAXED);
}

/* Elements i .. i + n, whose states are at x: one piece at most, so those of halves are in cache when they are split. */
static void update_piece(Step *s, int64_t i, int64_t n, float *const *x) {
  float joined[PIECE], wide[PIECE], *w = s->w.f32 ? s->w.f32 + i : joined;
  const float *g = s->g.elem == ZK_F32 ? (const float *)s->g.at + i : wide;
  float *sum = s->p->sum ? s->p->sum + i : NULL;
  if (g == wide) zk_run_from_bf16(wide, (const uint16_t *)s->g.at + i, n);
  if (sum) {
    zk_run_axpy(sum, s->p->scale, g, n);
    look(s, 0 * zk_run_sum(sum, n));
  }
  if (!acts(s)) {
    if (zk_optimizer_info[s->p->kind].matrices) memset(w, 0, (size_t)n * sizeof *w);
    return;
  }
  if (w == joined) zk_run_join(w, s->w.high + i, s->w.low + i, n);
  look(s, s->run(n, sum ? sum : g, w, x, s->p->s, sum ? 1 : s->p->scale, s->p->times));
  if (w == joined) zk_run_split(s->w.high + i, s->w.low + i, w, n);
  if (sum) memset(sum, 0, (size_t)n * sizeof *sum);
}

static void run_plain(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  Step *s = arg;
  float *x[ZK_MOST_STATES];
  for (int64_t i = from, n; i < to; i += n) {
    n = zk_min(PIECE, to - i);
    for (int k = 0; k < s->nstates; k++) x[k] = (float *)s->p->state[k].at + i;
    update_piece(s, i, n, x);
  }
}

/* Blocks of codes: a block is decoded, updated in f32, and encoded again; of states in f32 that is their place. */
static void run_blocks(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  Step *s = arg;
  float values[ZK_MOST_STATES][BLOCK], *x[ZK_MOST_STATES];
  for (int64_t i = from * BLOCK; i < to * BLOCK; i += BLOCK) {
    for (int k = 0; k < s->nstates; k++) {
      ZkFlat at = zk_flat_from(s->p->state[k], (uint64_t)i);
      x[k] = at.elem == ZK_F32 ? at.at : values[k];
      if (x[k] == values[k]) zk_decode_block(at, values[k]);
    }
    update_piece(s, i, BLOCK, x);
    for (int k = 0; k < s->nstates && acts(s); k++)
      if (x[k] == values[k]) zk_encode_block(values[k], zk_flat_from(s->p->state[k], (uint64_t)i));
  }
}

bool zk_cpu_optimize(const ZkEnv *env, const ZkOptimizer *p, int64_t n, ZkFlat g, ZkMaster w) {
  Step s = {p, runs[p->kind][p->cautious], zk_optimizer_info[p->kind].nstates, g, w, false};
  ZB_ASSERT(w.f32 || !zk_optimizer_info[p->kind].matrices);
  bool codes = zk_has_codes(p);
  for (int k = 0; k < s.nstates; k++) {
    ZkElem e = p->state[k].elem;
    ZB_ASSERT(e == ZK_F32 || (zk_elem_info[e].block == BLOCK && n % BLOCK == 0));
  }
  if (codes) zk_for(env, n / BLOCK, 32, run_blocks, &s);
  else zk_for(env, n, GRAIN, run_plain, &s);
  return !s.lost;
}

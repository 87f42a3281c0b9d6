/* Updates of parameters on flat buffers, by the formulas of lang/updates.def: one pass each, 16 bytes a thread and
 * access where all pointers are multiples of 16, else one element. States in blocks of codes: a block of threads
 * decodes one, an element each, updates it in f32 and encodes it again. */
#include "kernels/codes.h"
#include "kernels/cuda/flat.cuh"
extern "C" {
#include "kernels/cuda/optimize.h"
}

enum { FLAT, MATRICES, AVERAGES, HIDDEN }; /* `how` of a row */
#define BLOCK ZK_DYN8_BLOCK
static_assert(BLOCK == THREADS, "a thread has one element of a block of codes");

typedef struct {
  const float *g;
  const uint16_t *g16; /* in its place */
  ZkMaster w;
  float *sum, *state[ZK_MOST_STATES]; /* sum: NULL, every step acts; state: in f32, or NULL and in */
  void *codes[ZK_MOST_STATES];
  bool sign[ZK_MOST_STATES]; /* of codes */
  Scale scale;
  const ZkStepState *step_state; /* NULL: `s` is as given */
  uint32_t group;
  float s[ZK_MOST_SCALARS], times;
  double *lost;
  ZkIfSound sums;
} Call;

/* ---- rows ---------------------------------------------------------------------------------------------- */
#define ALL(...) __VA_ARGS__
#define SQRT sqrtf
#define S(name, value)                                                                                       \
  const float name = *own++;                                                                                 \
  (void)name;
#define UPDATE(NAME, word, how, flops, n, a, b, c, files, codes, settings, scalars, ...)                     \
  struct NAME {                                                                                              \
    enum { N = n, MAKES = how == MATRICES };                                                                 \
    ZK_DEVICE float of(const float *own, float g, float w, float &a, float &b, float &c) {                   \
      float step;                                                                                            \
      ALL scalars(void) w, (void)a, (void)b, (void)c, (void)own;                                             \
      __VA_ARGS__;                                                                                           \
      return step;                                                                                           \
    }                                                                                                        \
  };
#include "lang/updates.def"

/* An element by its scaled gradient; x: its states. True if something is not finite afterwards. */
template <class Row, bool CAUTIOUS>
ZK_DEVICE bool update_one(const float *s, float times, float g, float &w, float *x) {
  float step = Row::of(s + ZK_OWN_SCALARS, g, w, x[0], x[1], x[2]);
  float kept = CAUTIOUS && !(step * w >= 0) ? 1.0f : s[ZK_KEEP];
  w = Row::MAKES ? step : kept * w - times * step;
  bool lost = is_lost(w);
  for (int k = 0; k < Row::N; k++) lost |= is_lost(x[k]);
  return lost;
}

/* What the step has of the group: zk_scalars_of, or what the call has. */
ZK_DEVICE void scalars(const Call &p, float *s) {
  const float *own = (const float *)(const void *)(p.step_state + 1) + (size_t)p.group * ZK_MOST_SCALARS;
  const float *from = p.step_state ? own : p.s;
#pragma unroll
  for (int k = 0; k < ZK_MOST_SCALARS; k++) s[k] = from[k];
}

/* Returns the gradient of one element, with those of steps before, to which it is added if this step does not act. */
ZK_DEVICE float take(const Call &p, bool acts, float scale, int64_t i) {
  float g = (p.g ? p.g[i] : zk_from_bf16(p.g16[i])) * scale;
  if (!p.sum) return g;
  g += p.sum[i];
  p.sum[i] = acts ? 0 : g;
  return g;
}

/* ---- states in f32 ------------------------------------------------------------------------------------- */
template <class Row, bool CAUTIOUS>
static __global__ void __launch_bounds__(THREADS) flat(const __grid_constant__ Call p, int64_t n, bool wide) {
  if (!is_sound(p.sums)) {
    if (Row::MAKES)
      each<1>(
          n, false, [](int64_t) {}, [&](int64_t i) { p.w.f32[i] = 0; });
    return;
  }
  float s[ZK_MOST_SCALARS], scale = scale_of(p.scale);
  scalars(p, s);
  bool lost = false, acts = s[ZK_ACTS] != 0;
  if (!acts && !p.sum) return;
  each<4>(
      n, wide,
      [&](int64_t i) {
        Four g = p.g ? load4(p.g + i) : load4_bf16(p.g16 + i), w = {{0, 0, 0, 0}}, x[3];
        if (!Row::MAKES) w = load4(p.w, i);
#pragma unroll
        for (int k = 0; k < Row::N; k++) x[k] = load4(p.state[k] + i);
#pragma unroll
        for (int j = 0; j < 4; j++) {
          float state[3] = {0, 0, 0};
          for (int k = 0; k < Row::N; k++) state[k] = x[k].x[j];
          lost |= update_one<Row, CAUTIOUS>(s, p.times, g.x[j] * scale, w.x[j], state);
          for (int k = 0; k < Row::N; k++) x[k].x[j] = state[k];
        }
        store4(p.w, i, w);
#pragma unroll
        for (int k = 0; k < Row::N; k++) store4(p.state[k] + i, x[k]);
      },
      [&](int64_t i) {
        float g = take(p, acts, scale, i), w = Row::MAKES ? 0 : load(p.w, i), x[3] = {0, 0, 0};
        if (acts) {
          for (int k = 0; k < Row::N; k++) x[k] = p.state[k][i];
          lost |= update_one<Row, CAUTIOUS>(s, p.times, g, w, x);
          for (int k = 0; k < Row::N; k++) p.state[k][i] = x[k];
        } else lost |= is_lost(g);
        store(p.w, i, w);
      });
  tell(p.lost, lost);
}

/* ---- states in blocks of codes ------------------------------------------------------------------------- */
typedef struct {
  float value[256], middle[256];
} Map;

ZK_DEVICE void make_map(bool sign, Map *m) {
  int i = (int)threadIdx.x & 255;
  m->value[i] = zk_code_value(sign, i);
  __syncthreads();
  m->middle[i] = i < 255 ? (m->value[i] + m->value[i + 1]) / 2 : 0;
  __syncthreads();
}

/* The number of the code whose share is nearest, by bisection. */
ZK_DEVICE int nearest(const Map *m, float share) {
  int c = 0;
#pragma unroll
  for (int half = 128; half; half /= 2)
    if (share > m->middle[c + half - 1]) c += half;
  return c;
}

/* The block's codes and scale of one element a thread. The scale is the first of the largest elements. */
ZK_DEVICE void encode(const Map *m, bool sign, float x, unsigned char *to, unsigned long long *across) {
  int t = (int)threadIdx.x;
  across[t] = (unsigned long long)__float_as_uint(fabsf(x)) << 32 | (unsigned)(THREADS - t);
  for (int half = THREADS / 2; half; half /= 2) {
    __syncthreads();
    if (t < half && across[t + half] > across[t]) across[t] = across[t + half];
  }
  __syncthreads();
  int first = THREADS - (int)(unsigned)across[0];
  float most = __uint_as_float((unsigned)(across[0] >> 32));
  __syncthreads();
  bool some = most >= 1e-30f; /* a small share of less would not be a normal number */
  if (t == first) ((float *)(void *)across)[0] = some ? x : 0;
  __syncthreads();
  float scale = ((float *)(void *)across)[0], share = some ? x * (1 / scale) : 0;
  int c = nearest(m, share);
  to[t] = (unsigned char)(share > 0 && !sign && c < 1 ? 1 : c);
  if (t == 0) memcpy(to + BLOCK, &scale, sizeof scale);
  __syncthreads();
}

template <class Row, bool CAUTIOUS>
static __global__ void __launch_bounds__(THREADS) coded(const __grid_constant__ Call p, int64_t blocks) {
  ZK_SHARED(Map, map, [2]);
  ZK_SHARED(unsigned long long, across, [THREADS]);
  if (!is_sound(p.sums)) return;
  make_map(false, &map[0]);
  make_map(true, &map[1]);
  float s[ZK_MOST_SCALARS], scale = scale_of(p.scale);
  scalars(p, s);
  bool lost = false, acts = s[ZK_ACTS] != 0;
  const int64_t bytes = BLOCK + sizeof(float);
  if (!acts && !p.sum) return;
  for (int64_t b = blockIdx.x; b < blocks; b += gridDim.x) {
    int64_t i = b * BLOCK + threadIdx.x;
    float g = take(p, acts, scale, i), w = Row::MAKES ? 0 : load(p.w, i), x[3] = {0, 0, 0};
    if (acts) {
      for (int k = 0; k < Row::N; k++) {
        if (p.state[k]) {
          x[k] = p.state[k][i];
          continue;
        }
        const unsigned char *from = (const unsigned char *)p.codes[k] + b * bytes;
        float unit;
        memcpy(&unit, from + BLOCK, sizeof unit);
        x[k] = map[p.sign[k]].value[from[threadIdx.x]] * unit;
      }
      lost |= update_one<Row, CAUTIOUS>(s, p.times, g, w, x);
    } else lost |= is_lost(g);
    __syncthreads();
    for (int k = 0; k < Row::N && acts; k++) {
      if (p.state[k]) p.state[k][i] = x[k];
      else encode(&map[p.sign[k]], p.sign[k], x[k], (unsigned char *)p.codes[k] + b * bytes, across);
    }
    store(p.w, i, w);
  }
  tell(p.lost, lost);
}

/* ---- launching ----------------------------------------------------------------------------------------- */
template <class Row, bool CAUTIOUS> static void launch(ZkCuda *cu, const Call &p, int64_t n, bool codes) {
  bool wide = !p.sum && aligned({p.g, p.g16, p.w.f32, p.w.high, p.w.low, p.state[0], p.state[1], p.state[2]});
  if (codes) ZK_LAUNCH(cu, NULL, (coded<Row, CAUTIOUS>), zk_blocks(cu, n / BLOCK), THREADS, 0, p, n / BLOCK);
  else ZK_LAUNCH(cu, NULL, (flat<Row, CAUTIOUS>), blocks_for(cu, n, 4), THREADS, 0, p, n, wide);
}

extern "C" void zk_cuda_optimize(const ZkEnv *env, const ZkOptimizer *p, const double *squares, float most,
                                 int64_t n, ZkFlat g, ZkMaster w, double *lost, ZkIfSound sums) {
  Call c = {};
  if (g.elem == ZK_F32) c.g = (const float *)g.at;
  else c.g16 = (const uint16_t *)g.at;
  c.w = w, c.sum = p->sum;
  c.scale = Scale{squares, most, p->scale};
  c.step_state = env->step_state, c.group = p->group, c.times = p->times;
  c.lost = lost, c.sums = sums;
  if (!c.step_state) memcpy(c.s, p->s, sizeof c.s);
  bool codes = zk_has_codes(p);
  for (int k = 0; k < zk_optimizer_info[p->kind].nstates; k++) {
    if (p->state[k].elem != ZK_F32) c.codes[k] = p->state[k].at, c.sign[k] = p->state[k].elem == ZK_DYN8;
    else c.state[k] = (float *)p->state[k].at;
  }
  ZB_ASSERT(!codes || n % BLOCK == 0);
  ZkCuda *cu = zk_cu(env);
  switch (p->kind) {
#define UPDATE(NAME, ...)                                                                                    \
  case ZK_BY_##NAME:                                                                                         \
    if (p->cautious) launch<NAME, true>(cu, c, n, codes);                                                    \
    else launch<NAME, false>(cu, c, n, codes);                                                               \
    break;
#include "lang/updates.def"
  default: ZB_BUG("no such optimizer");
  }
}

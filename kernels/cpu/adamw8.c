/* AdamW with states of 8 bits: a block is decoded, updated in f32, and encoded again. */
#include <math.h>
#include <pthread.h>

#include "kernels/cpu/cpu.h"

/* ---- the codes ---- */
/* What the 256 codes stand for, ascending: the dynamic map of Dettmers et al. A decade of [0.1, 1], [0.01,
 * 0.1], ... is cut into equal parts, twice as many as the one below, and a code is the middle of its part;
 * the lowest of seven decades has one part, or two where there is no sign. 0 and 1 are codes of their own. */
typedef struct {
  float value[256], middle[255]; /* between a code and the next */
} Map;
static Map map[2]; /* of v; of m */

static void add_decades(Map *m, bool sign, int side, int *n) {
  for (int k = 0; k < 7; k++) {
    int decade = side < 0 ? 6 - k : k, parts = sign ? 1 << decade : 2 << decade;
    for (int i = 0; i < parts; i++) {
      int part = side < 0 ? parts - 1 - i : i;
      m->value[(*n)++] = (float)(side * (0.1 + 0.9 * (part + 0.5) / parts) * pow(10, decade - 6));
    }
  }
}

static void make_maps(void) {
  for (int sign = 0; sign < 2; sign++) {
    Map *m = &map[sign];
    int n = 0;
    if (sign) add_decades(m, true, -1, &n);
    m->value[n++] = 0;
    add_decades(m, sign, 1, &n);
    m->value[n++] = 1;
    ZB_ASSERT(n == 256);
    for (int i = 0; i < 255; i++) m->middle[i] = (m->value[i] + m->value[i + 1]) / 2;
  }
}

static const Map *the_map(bool sign) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_maps);
  return &map[sign];
}

ZK_SIMD static void decode(int64_t n, const Map *m, const uint8_t *code, float scale, float *x) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) x[i] = m->value[code[i]] * scale;
}

/* The nearest code of each share, by bisection. `least`: of what is more than 0. */
ZK_SIMD static void encode(const Map *m, const float *x, float inverse, int least, uint8_t *code) {
  const float *middle = m->middle;
#pragma omp simd
  for (int i = 0; i < ZK_BLOCK8; i++) {
    float share = x[i] * inverse;
    int c = 0;
    c += share > middle[c + 127] ? 128 : 0;
    c += share > middle[c + 63] ? 64 : 0;
    c += share > middle[c + 31] ? 32 : 0;
    c += share > middle[c + 15] ? 16 : 0;
    c += share > middle[c + 7] ? 8 : 0;
    c += share > middle[c + 3] ? 4 : 0;
    c += share > middle[c + 1] ? 2 : 0;
    c += share > middle[c] ? 1 : 0;
    code[i] = (uint8_t)(share > 0 && c < least ? least : c);
  }
}

#define TINY 1e-30f /* of less than that a small share would be no normal number */

static void encode_block(bool sign, const float *x, uint8_t *code, float *scale) {
  float most = 0, at = 0;
  for (int i = 0; i < ZK_BLOCK8; i++)
    if (fabsf(x[i]) > most) most = fabsf(x[i]), at = x[i];
  *scale = most >= TINY ? at : 0;
  encode(the_map(sign), x, most >= TINY ? 1 / at : 0, sign ? 0 : 1, code);
}

void zk_cpu_decode8(int64_t first, int64_t n, bool sign, ZkCodes from, float *x) {
  for (int64_t i = first, step; i < first + n; i += step) {
    step = zk_min(ZK_BLOCK8 - i % ZK_BLOCK8, first + n - i);
    decode(step, the_map(sign), from.code + i, from.scale[i / ZK_BLOCK8], x + (i - first));
  }
}

void zk_cpu_encode8(int64_t n, bool sign, const float *x, ZkCodes to) {
  ZB_ASSERT(n % ZK_BLOCK8 == 0);
  for (int64_t i = 0; i < n; i += ZK_BLOCK8) encode_block(sign, x + i, to.code + i, to.scale + i / ZK_BLOCK8);
}

/* ---- the step ---- */
typedef struct {
  const ZkAdamW *p;
  const float *g;
  float *w;
  ZkCodes m, v;
  uint16_t *w16;
  bool lost; /* something is not finite */
} Step;

static void run_blocks(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  Step *s = arg;
  for (int64_t b = from; b < to; b++) {
    float m[ZK_BLOCK8], v[ZK_BLOCK8];
    int64_t i = b * ZK_BLOCK8;
    decode(ZK_BLOCK8, the_map(true), s->m.code + i, s->m.scale[b], m);
    decode(ZK_BLOCK8, the_map(false), s->v.code + i, s->v.scale[b], v);
    float zero = zk_run_adamw(ZK_BLOCK8, s->g + i, s->w + i, m, v, s->p);
    if (!(zero == 0)) __atomic_store_n(&s->lost, true, __ATOMIC_RELAXED);
    encode_block(true, m, s->m.code + i, s->m.scale + b);
    encode_block(false, v, s->v.code + i, s->v.scale + b);
    if (s->w16) zk_run_to_bf16(s->w16 + i, s->w + i, ZK_BLOCK8);
  }
}

bool zk_cpu_adamw8(const ZkEnv *env, const ZkAdamW *p, int64_t n, const float *g, float *w, ZkCodes m,
                   ZkCodes v, uint16_t *w16) {
  Step s = {.p = p, .g = g, .w = w, .m = m, .v = v, .w16 = w16};
  ZB_ASSERT(n % ZK_BLOCK8 == 0);
  zk_for(env, n / ZK_BLOCK8, 32, run_blocks, &s);
  return !s.lost;
}

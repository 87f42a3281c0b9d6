/* Values in formats that they are stored in, and back: bf16, and codes of 8 bits that share a scale. */
#include <math.h>
#include <pthread.h>

#include "kernels/codes.h"
#include "kernels/cpu/cpu.h"
#include "kernels/optimize.h"

/* ---- the dynamic map ---- */
typedef struct {
  float value[256], middle[255]; /* between a code and the next */
} Map;
static Map map[2]; /* UDYN8; DYN8 */

static void make_maps(void) {
  for (int sign = 0; sign < 2; sign++) {
    Map *m = &map[sign];
    for (int i = 0; i < 256; i++) m->value[i] = zk_code_value(sign, i);
    for (int i = 0; i < 255; i++) m->middle[i] = (m->value[i] + m->value[i + 1]) / 2;
  }
}

static const Map *map_of(ZkElem e) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  ZB_ASSERT(e == ZK_DYN8 || e == ZK_UDYN8);
  pthread_once(&once, make_maps);
  return &map[e == ZK_DYN8];
}

/* ---- blocks ---- */
enum { BLOCK = ZK_DYN8_BLOCK }; /* and UDYN8's */

ZK_SIMD static void decode(int64_t n, const Map *m, const uint8_t *code, float scale, float *x) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) x[i] = m->value[code[i]] * scale;
}

/* Finds the nearest code of each share, by bisection. `least`: of what is more than 0. */
ZK_SIMD static void encode(const Map *m, const float *x, float inverse, int least, uint8_t *code) {
  const float *middle = m->middle;
#pragma omp simd
  for (int i = 0; i < BLOCK; i++) {
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

#define TINY 1e-30f /* a small share of less would not be a normal number */

void zk_encode_block(const float *x, ZkFlat to) {
  float most = 0, at = 0;
  for (int i = 0; i < BLOCK; i++)
    if (fabsf(x[i]) > most) most = fabsf(x[i]), at = x[i];
  float scale = most >= TINY ? at : 0;
  encode(map_of(to.elem), x, most >= TINY ? 1 / at : 0, to.elem == ZK_DYN8 ? 0 : 1, to.at);
  memcpy((uint8_t *)to.at + BLOCK, &scale, sizeof scale);
}

static void decode_some(ZkFlat from, int64_t first, int64_t n, float *x) {
  float scale;
  memcpy(&scale, (const uint8_t *)from.at + BLOCK, sizeof scale);
  decode(n, map_of(from.elem), (const uint8_t *)from.at + first, scale, x);
}

void zk_decode_block(ZkFlat from, float *x) { decode_some(from, 0, BLOCK, x); }

/* ---- any number of them ---- */
typedef struct {
  ZkFlat codes;
  int64_t first, n;
  const float *values;
  float *x;
} Run;

static void decode_blocks(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Run *r = arg;
  int64_t end = zk_min(to * BLOCK, r->first + r->n), i = from * BLOCK;
  if (i < r->first) i = r->first;
  for (int64_t step; i < end; i += step) {
    step = zk_min(BLOCK - i % BLOCK, end - i);
    decode_some(zk_flat_from(r->codes, (uint64_t)(i - i % BLOCK)), i % BLOCK, step, r->x + (i - r->first));
  }
}

static void encode_blocks(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Run *r = arg;
  for (int64_t i = from * BLOCK; i < to * BLOCK; i += BLOCK)
    zk_encode_block(r->values + i, zk_flat_from(r->codes, (uint64_t)i));
}

void zk_cpu_decode(const ZkEnv *env, ZkFlat from, int64_t first, int64_t n, float *x) {
  Run r = {.codes = from, .first = first, .n = n, .x = x};
  if (from.elem == ZK_F32) memcpy(x, (const float *)from.at + first, (size_t)n * sizeof *x);
  else if (from.elem == ZK_BF16) zk_cpu_from_bf16(env, n, (const uint16_t *)from.at + first, x);
  else zk_for(env, zk_ceil_div(first + n, BLOCK), 32, decode_blocks, &r);
}

void zk_cpu_encode(const ZkEnv *env, int64_t n, const float *x, ZkFlat to) {
  Run r = {.codes = to, .n = n, .values = x};
  ZB_ASSERT(n % zk_elem_info[to.elem].block == 0);
  if (to.elem == ZK_F32) memcpy(to.at, x, (size_t)n * sizeof *x);
  else if (to.elem == ZK_BF16) zk_cpu_split(env, n, x, (ZkMaster){.high = to.at});
  else zk_for(env, n / BLOCK, 32, encode_blocks, &r);
}

/* AdamW with states in formats of blocks: a block is decoded, updated in f32, and encoded again. */
#include "kernels/cpu/cpu.h"

typedef struct {
  const ZkAdamW *p;
  const float *g;
  float *w;
  ZkFlat m, v;
  uint16_t *w16;
  bool lost; /* something is not finite */
} Step;

enum { BLOCK = ZK_DYN8_BLOCK }; /* and UDYN8's */

static void run_blocks(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  Step *s = arg;
  for (int64_t i = from * BLOCK; i < to * BLOCK; i += BLOCK) {
    float m[BLOCK], v[BLOCK];
    ZkFlat mc = zk_flat_from(s->m, (uint64_t)i), vc = zk_flat_from(s->v, (uint64_t)i);
    zk_decode_block(mc, m);
    zk_decode_block(vc, v);
    float zero = zk_run_adamw(BLOCK, s->g + i, s->w + i, m, v, s->p);
    if (!(zero == 0)) __atomic_store_n(&s->lost, true, __ATOMIC_RELAXED);
    zk_encode_block(m, mc);
    zk_encode_block(v, vc);
    if (s->w16) zk_run_to_bf16(s->w16 + i, s->w + i, BLOCK);
  }
}

bool zk_cpu_adamw8(const ZkEnv *env, const ZkAdamW *p, int64_t n, const float *g, float *w, ZkFlat m,
                   ZkFlat v, uint16_t *w16) {
  Step s = {.p = p, .g = g, .w = w, .m = m, .v = v, .w16 = w16};
  ZB_ASSERT(zk_elem_info[m.elem].block == BLOCK && zk_elem_info[v.elem].block == BLOCK && n % BLOCK == 0);
  zk_for(env, n / BLOCK, 32, run_blocks, &s);
  return !s.lost;
}

/* Gradients that travel in bf16, in the room that they have in f32: made half as wide where they lie, and as
 * wide again when they have arrived.
 *
 * Element i is bytes 4i.. of the room in f32 and bytes 2i.. in bf16. So elements m to 2m may all be made narrow
 * at once when those before them are: they end where element m began. Wide the other way round, from the last
 * on. That is one call for each doubling, and no memory. */
#include "runtime/exec/engine/internal.h"

bool zx_travels_narrow(const ZpInstr *in, const ZpBucket *k) {
  bool sums = in->op == ZP_I_SCATTER_GRADS || in->op == ZP_I_REDUCE_GRADS || in->op == ZP_I_REDUCE_TIED;
  bool staged = in->op == ZP_I_SCATTER_GRADS && !in->in_place;
  return sums && in->dims && k->reduce == ZK_BF16 && (staged || k->grad == ZK_F32);
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

void zx_narrow(ZxEngine *e, float *x, uint64_t n) {
  uint16_t *half = (uint16_t *)(void *)x;
  for (uint64_t from = 0, to = 1; from < n; from = to, to = least(2 * from, n))
    e->dev->to_bf16(e->env, (int64_t)(to - from), x + from, half + from);
}

void zx_widen(ZxEngine *e, const uint16_t *half, float *x, uint64_t n) {
  if ((const void *)half != x) {
    ZB_ASSERT(n == 0 || (const char *)(half + n) <= (const char *)x);
    e->dev->from_bf16(e->env, (int64_t)n, half, x);
    return;
  }
  uint64_t from = 0; /* the largest power of two below n; of one element 0 */
  for (uint64_t k = 1; k < n; k *= 2) from = k;
  for (uint64_t to = n; to > 0; to = from, from /= 2)
    e->dev->from_bf16(e->env, (int64_t)(to - from), half + from, x + from);
}

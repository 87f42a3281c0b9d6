/* What of a list's operands a cache still has: what was touched not long before. A value is found again where
 * it lies, so what takes a dead value's place is found, too. Between two touches goes what the nodes between
 * them read and write; with the value itself it must fit, as in a cache that forgets the longest unused (the
 * stack distance of Mattson et al. 1970, of whole values). */
#include "runtime/plan/time/internal.h"

typedef struct {
  ZpLoc at;
  double end; /* bytes that had gone by after it */
} Touch;

static bool same_place(const ZpLoc *a, const ZpLoc *b) {
  return a->space == b->space && a->index == b->index && a->offset == b->offset;
}

static Touch *touch_of(Touch *t, uint32_t n, const ZpLoc *at) {
  for (uint32_t i = n; i-- > 0;)
    if (same_place(&t[i].at, at)) return &t[i];
  return NULL;
}

void zp_cached_bytes(const ZpSegment *s, const ZpList *l, double cache, double *bytes, ZbArena *a) {
  Touch *touch = NULL;
  uint32_t n = 0;
  double gone = 0;
  for (uint32_t i = 0; i < l->n; i++) {
    const ZpNode *node = &l->nodes[i];
    int nin = node->call.nin, all = nin + node->call.nout;
    double before = gone;
    bytes[i] = 0;
    for (int k = 0; k < all; k++) {
      const ZkView *v = k < nin ? &node->call.in[k] : &node->call.out[k - nin];
      const ZpLoc *at = &s->values[k < nin ? node->in[k] : node->out[k - nin]].at;
      double size = zp_view_bytes(v);
      const Touch *t = touch_of(touch, n, at);
      if (t && before - t->end + size <= cache) bytes[i] += size;
      gone += size;
    }
    for (int k = 0; k < all; k++) {
      const ZpLoc *at = &s->values[k < nin ? node->in[k] : node->out[k - nin]].at;
      Touch *t = touch_of(touch, n, at);
      if (t) t->end = gone;
      else if (at->space != ZP_AT_NOWHERE) ZB_PUSH(a, touch, n, ((Touch){*at, gone}));
    }
  }
}

/* Counts what the caches of a step take. */
#include "runtime/plan/stream/stream.h"

uint64_t zp_cache_bytes(const ZpStream *s, ZpCacheKind kind, uint32_t group, ZkElem real) {
  uint64_t total = 0, n;
  for (uint32_t i = 0; i < s->ncaches; i++) {
    const ZpCache *c = &s->caches[i];
    if (c->kind != kind || c->group != group || !zg_elements(s->step, &c->type, &n)) continue;
    /* Sequences, pages and positions, and lengths along other axes, have no size here. */
    total += zk_bytes(zp_elem_as(&c->type, real), n) * s->step->segments[c->segment].trip;
  }
  return total;
}

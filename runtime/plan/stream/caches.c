/* Counts what the caches of a step take. */
#include "runtime/plan/stream/stream.h"

uint64_t zp_cache_numbers(const ZpStream *s, ZpCacheKind kind, uint32_t group) {
  uint64_t total = 0, one;
  for (uint32_t i = 0; i < s->ncaches; i++) {
    const ZpCache *c = &s->caches[i];
    if (c->kind != kind || c->group != group || !zg_elements(s->step, &c->type, &one)) continue;
    total += one * s->step->segments[c->segment].trip; /* sequences, pages and positions have no size here */
  }
  return total;
}

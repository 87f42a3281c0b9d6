/* Counts what the caches of a step take: by the graph, and of a rank by the plan. */
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

/* Returns the bytes of the cache among those of an instance of a segment; 0: it has none that anybody uses. */
static uint64_t local_bytes(const ZpSegment *g, uint32_t cache) {
  for (uint32_t v = 0; v < g->nvalues; v++)
    if (g->values[v].at.space == ZP_AT_CACHE && g->values[v].at.index == cache) return g->values[v].bytes;
  return 0;
}

uint64_t zp_stage_cache_bytes(const ZpPlan *p, uint32_t stage, ZpCacheKind kind, uint32_t group) {
  const ZpStage *st = &p->programs.stages[stage];
  uint64_t total = 0;
  for (uint32_t i = 0; i < st->ninsts; i++)
    for (uint32_t c = 0; c < p->stream->ncaches; c++) {
      const ZpCache *x = &p->stream->caches[c];
      if (x->kind == kind && x->group == group && x->segment == st->insts[i].segment)
        total += local_bytes(&p->programs.segments[x->segment], c);
    }
  return total;
}

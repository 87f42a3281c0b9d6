/* A step of generation, and what is done to caches between steps. */
#include "runtime/exec/engine/internal.h"

/* Collective, where sizes are new. */
static bool begin(ZxEngine *e, const ZxTokens *now, ZbErr *err) {
  if (!zx_begin_tokens(e, now)) return true;
  if (!zx_agree(e->world, zx_prepare_calls(e, err))) return false;
  zx_settle(e);
  return true;
}

bool zx_engine_tokens(ZxEngine *e, const ZxTokens *now, ZxLogits *out, ZxStep *step, ZbErr *err) {
  if (!begin(e, now, err)) return false;
  if (!zx_engine_step(e, e->step + 1, step, err)) return false;
  *out = zx_logits(e);
  return true;
}

const ZpValue *zx_cache_of(const ZpSegment *g, uint32_t cache) {
  for (uint32_t v = 0; v < g->nvalues; v++)
    if (g->values[v].at.space == ZP_AT_CACHE && g->values[v].at.index == cache) return &g->values[v];
  return NULL;
}

void zx_engine_copy_page(ZxEngine *e, uint32_t group, uint32_t from, uint32_t to) {
  const ZpStream *s = e->p->stream;
  for (uint32_t i = 0; i < e->st->ninsts; i++) {
    uint32_t segment = e->st->insts[i].segment;
    for (uint32_t c = 0; c < s->ncaches; c++) {
      const ZpCache *of = &s->caches[c];
      if (of->kind != ZP_CACHE_PAGES || of->group != group || of->segment != segment) continue;
      const ZpValue *x = zx_cache_of(&e->p->programs.segments[segment], c);
      uint64_t bytes = x ? x->bytes / (uint64_t)x->size[0] : 0;
      if (x)
        e->dev->copy(e->env, zx_caches(e, i) + x->at.offset + to * bytes,
                     zx_caches(e, i) + x->at.offset + from * bytes, bytes);
    }
  }
}

void zx_engine_touch(ZxEngine *e) {
  enum { PAGE = 4096 };
  for (uint32_t i = 0; e->dev->host && i < e->st->prog.nbufs; i++) {
    const ZpBuf *b = &e->st->prog.bufs[i];
    if (b->memory != ZP_DEVICE || b->kind == ZP_B_CACHE || zp_is_stored(b->kind)) continue;
    for (uint64_t at = 0; at < b->bytes; at += PAGE) {
      volatile char *x = e->arena + b->offset + at;
      *x = *x;
    }
  }
}

/* Which lane wrote what texts begin with: perhaps it still has their pages. A guess, on which nothing but time depends.
 * Of a text the beginnings of 1, 2, 4, 8, .. whole pages are known, in a table of a fixed size: later ones take the
 * places of others. */
#include "runtime/exec/run/lanes.h"

enum { PLACES = 1 << 12 };
typedef struct {
  ZxPrefix is;
  uint32_t lane; /* from 1 on; 0: none */
} Place;
struct ZxRoutes {
  uint32_t page;
  Place place[PLACES];
};

ZxRoutes *zx_routes_new(ZbArena *a, uint32_t page) {
  ZxRoutes *x = ZB_NEW(a, ZxRoutes);
  *x = (ZxRoutes){.page = page};
  return x;
}

static uint32_t place_of(ZxPrefix p) { return (uint32_t)(p.low % PLACES); }

ZxRoute zx_route_of(const ZxRoutes *x, const ZxQuery *q) {
  ZxRoute r = {.n = 0};
  ZxPrefix p = {.low = q->adapter};
  uint32_t pages = q->ntokens ? (q->ntokens - 1) / x->page : 0, next = 1; /* the last token is made anew */
  for (uint32_t i = 0; i < pages && r.n < ZX_BEGINNINGS; i++) {
    p = zx_prefix(p, q->token + (size_t)i * x->page, x->page);
    if (i + 1 < next) continue;
    r.is[r.n++] = p;
    next *= 2;
  }
  return r;
}

int zx_routes_find(const ZxRoutes *x, const ZxRoute *r) {
  for (uint32_t i = r->n; i-- > 0;) {
    const Place *p = &x->place[place_of(r->is[i])];
    if (p->lane && p->is.low == r->is[i].low && p->is.high == r->is[i].high) return (int)p->lane - 1;
  }
  return -1;
}

void zx_routes_note(ZxRoutes *x, const ZxRoute *r, uint32_t lane) {
  for (uint32_t i = 0; i < r->n; i++) x->place[place_of(r->is[i])] = (Place){r->is[i], lane + 1};
}

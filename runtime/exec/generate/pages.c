/* Pages: which are free, and in which tables the others stand. The free ones are a stack, so that the page
 * that was given back last is the next to be taken: the same on all ranks, and likely to be in a cache. */
#include "runtime/exec/generate/generate.h"

typedef struct {
  ZxPageGroup is;
  uint32_t *free, nfree;
  uint32_t *count;       /* by page: in how many tables it stands */
  uint32_t *table;       /* [slots, most]: entries begin .. end - 1 are pages */
  uint32_t *begin, *end; /* by slot */
} Group;

struct ZxPages {
  Group *group;
  uint32_t ngroups, page, slots, tokens;
  uint32_t most;       /* entries of a table */
  uint32_t *from, *to; /* by slot: the positions that were taken last */
};

ZxPages *zx_pages_new(ZbArena *a, const ZxPaging *how) {
  ZB_ASSERT(how->page && how->tokens && how->length);
  ZxPages *p = ZB_NEW(a, ZxPages);
  *p = (ZxPages){.group = ZB_NEWN(a, Group, how->ngroups),
                 .ngroups = how->ngroups,
                 .page = how->page,
                 .slots = how->slots,
                 .tokens = how->tokens,
                 .most = (how->length - 1) / how->page + 1,
                 .from = ZB_NEWN(a, uint32_t, how->slots),
                 .to = ZB_NEWN(a, uint32_t, how->slots)};
  for (uint32_t g = 0; g < how->ngroups; g++) {
    Group *x = &p->group[g];
    uint32_t n = how->group[g].pages;
    *x = (Group){.is = how->group[g],
                 .free = ZB_NEWN(a, uint32_t, n),
                 .nfree = n,
                 .count = ZB_NEWN(a, uint32_t, n),
                 .table = ZB_NEWN(a, uint32_t, (size_t)how->slots * p->most),
                 .begin = ZB_NEWN(a, uint32_t, how->slots),
                 .end = ZB_NEWN(a, uint32_t, how->slots)};
    for (uint32_t i = 0; i < n; i++) x->free[i] = n - 1 - i;
    memset(x->table, 0xff, (size_t)how->slots * p->most * sizeof *x->table);
  }
  return p;
}

uint32_t zx_pages_free(const ZxPages *p, uint32_t group) { return p->group[group].nfree; }

/* Entries of a table that have positions 0 .. tokens - 1. */
static uint32_t entries(const ZxPages *p, uint32_t tokens) { return (tokens + p->page - 1) / p->page; }

/* The first entry that position `from` sees. */
static uint32_t first_seen(const ZxPages *p, const Group *x, uint32_t from) {
  uint32_t w = x->is.window;
  return w && from + 1 > w ? (from + 1 - w) / p->page : 0;
}

uint32_t zx_pages_most(const ZxPages *p, uint32_t group, uint32_t tokens) {
  const Group *x = &p->group[group];
  uint64_t all = entries(p, tokens), seen = (uint64_t)x->is.window + p->tokens - 1;
  uint64_t over = (seen + p->page - 2) / p->page + 1; /* so many that lie over page borders at both ends */
  return (uint32_t)(x->is.window && over < all ? over : all);
}

static uint32_t *table_of(const ZxPages *p, const Group *x, uint32_t slot) {
  return x->table + (size_t)slot * p->most;
}

static void put_back(Group *x, uint32_t page) {
  ZB_ASSERT(x->count[page]);
  if (!--x->count[page]) x->free[x->nfree++] = page;
}

static uint32_t get(Group *x) {
  uint32_t page = x->free[--x->nfree];
  x->count[page] = 1;
  return page;
}

/* Gives back a slot's entries before `first`. */
static void drop_before(ZxPages *p, Group *x, uint32_t slot, uint32_t first) {
  uint32_t *table = table_of(p, x, slot);
  for (; x->begin[slot] < first && x->begin[slot] < x->end[slot]; x->begin[slot]++) {
    put_back(x, table[x->begin[slot]]);
    table[x->begin[slot]] = ZX_NO_PAGE;
  }
}

bool zx_pages_take(ZxPages *p, uint32_t slot, uint32_t from, uint32_t to) {
  ZB_ASSERT(slot < p->slots && from < to && to - from <= p->tokens && entries(p, to) <= p->most);
  bool enough = true;
  for (uint32_t g = 0; g < p->ngroups; g++) {
    Group *x = &p->group[g];
    drop_before(p, x, slot, first_seen(p, x, from));
    uint32_t end = x->end[slot], want = entries(p, to);
    ZB_ASSERT(end >= entries(p, from)); /* what comes before is there */
    enough &= want <= end || want - end <= x->nfree;
  }
  for (uint32_t g = 0; g < p->ngroups && enough; g++) {
    Group *x = &p->group[g];
    uint32_t *table = table_of(p, x, slot);
    while (x->end[slot] < entries(p, to)) table[x->end[slot]++] = get(x);
  }
  p->from[slot] = from;
  p->to[slot] = enough ? to : from;
  return enough;
}

bool zx_pages_can_share(const ZxPages *p, uint32_t of, uint32_t tokens) {
  for (uint32_t g = 0; g < p->ngroups; g++) {
    const Group *x = &p->group[g];
    if (x->begin[of] > first_seen(p, x, tokens) || x->end[of] < entries(p, tokens)) return false;
  }
  return true;
}

bool zx_pages_share(ZxPages *p, uint32_t slot, uint32_t of, uint32_t tokens, ZxPageCopy *copy, uint32_t *n) {
  ZB_ASSERT(zx_pages_can_share(p, of, tokens) && tokens <= p->to[of]);
  bool part = tokens % p->page;
  for (uint32_t g = 0; g < p->ngroups; g++) {
    ZB_ASSERT(p->group[g].begin[slot] == p->group[g].end[slot]);
    if (part && !p->group[g].nfree) return false;
  }
  for (uint32_t g = 0; g < p->ngroups; g++) {
    Group *x = &p->group[g];
    uint32_t *table = table_of(p, x, slot);
    const uint32_t *other = table_of(p, x, of);
    uint32_t i = x->begin[slot] = first_seen(p, x, tokens), full = tokens / p->page;
    for (; i < full; i++) x->count[table[i] = other[i]]++;
    if (part) {
      table[i] = get(x);
      copy[(*n)++] = (ZxPageCopy){g, other[i], table[i]};
      i++;
    }
    x->end[slot] = i;
  }
  p->from[slot] = p->to[slot] = tokens;
  if (tokens > p->from[of]) p->from[of] = p->to[of]; /* what it took last is written */
  return true;
}

void zx_pages_give(ZxPages *p, uint32_t slot) {
  for (uint32_t g = 0; g < p->ngroups; g++) {
    Group *x = &p->group[g];
    drop_before(p, x, slot, x->end[slot]);
    x->begin[slot] = x->end[slot] = 0;
  }
  p->from[slot] = p->to[slot] = 0;
}

const uint32_t *zx_pages_table(const ZxPages *p, uint32_t group, uint32_t slot) {
  return table_of(p, &p->group[group], slot);
}

/* ---- what always holds ---- */
static bool check_slot(const ZxPages *p, uint32_t g, uint32_t slot, ZbErr *err) {
  const Group *x = &p->group[g];
  const uint32_t *table = table_of(p, x, slot);
  uint32_t begin = x->begin[slot], end = x->end[slot], from = p->from[slot], to = p->to[slot];
  for (uint32_t i = 0; i < p->most; i++)
    if ((i >= begin && i < end) != (table[i] != ZX_NO_PAGE))
      return zb_fail(err, NULL, "group %u, slot %u: entry %u is %u, and %u to %u are pages", g, slot, i,
                     table[i], begin, end);
  if (!to) return begin == end || zb_fail(err, NULL, "group %u, slot %u: an empty slot has pages", g, slot);
  if (first_seen(p, x, from) < begin || end != entries(p, to))
    return zb_fail(err, NULL, "group %u, slot %u: entries %u to %u, for positions %u to %u", g, slot, begin,
                   end, from, to);
  for (uint32_t i = from / p->page; from < to && i < end; i++)
    if (x->count[table[i]] != 1)
      return zb_fail(err, NULL, "group %u, slot %u: page %u is written to, and in %u tables", g, slot,
                     table[i], x->count[table[i]]);
  return true;
}

static bool check_group(const ZxPages *p, uint32_t g, ZbArena *a, ZbErr *err) {
  const Group *x = &p->group[g];
  uint32_t n = x->is.pages, *free = ZB_NEWN(a, uint32_t, n), *tables = ZB_NEWN(a, uint32_t, n);
  for (uint32_t i = 0; i < x->nfree; i++) free[x->free[i]]++;
  for (size_t i = 0; i < (size_t)p->slots * p->most; i++)
    if (x->table[i] != ZX_NO_PAGE) tables[x->table[i]]++;
  for (uint32_t i = 0; i < n; i++)
    if (tables[i] != x->count[i] || free[i] != !tables[i])
      return zb_fail(err, NULL, "group %u: page %u is in %u tables, counts %u, and is %u times free", g, i,
                     tables[i], x->count[i], free[i]);
  for (uint32_t slot = 0; slot < p->slots; slot++)
    if (!check_slot(p, g, slot, err)) return false;
  return true;
}

bool zx_pages_check(const ZxPages *p, ZbErr *err) {
  ZbArena *a = zb_arena_new();
  bool good = true;
  for (uint32_t g = 0; g < p->ngroups && good; g++) good = check_group(p, g, a, err);
  zb_arena_free(a);
  return good;
}

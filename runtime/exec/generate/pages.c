/* Pages: which are free, in which tables the others stand, and of which texts they are. Those that were never
 * known to be of a text are a stack, so that the page that was given back last is the next to be taken: the
 * same on all ranks, and likely to be in a cache. Known ones that stand in no table are kept, and given away
 * when no others are free, the longest unused first. */
#include "runtime/exec/generate/generate.h"

#include <xxhash.h>

typedef struct {
  ZxPageGroup is;
  uint32_t *free, nfree;
  uint32_t *count;       /* by page: in how many tables it stands */
  uint32_t *table;       /* [slots, most]: entries begin .. end - 1 are pages */
  uint32_t *begin, *end; /* by slot */
  /* known pages */
  bool *known;      /* by page */
  ZxPrefix *prefix; /* by known page: the text up to its end */
  uint32_t *text;   /* [pages, page]: its own ids */
  uint32_t *bucket; /* the first known page of a hash; `mask` + 1 of them */
  uint32_t *next;   /* by known page: another one of the bucket */
  uint32_t mask;
  uint32_t *older, *newer; /* a ring of kept pages, by when they were used; entry `pages` is its seam */
  uint32_t nkept;
} Group;

struct ZxPages {
  Group *group;
  uint32_t ngroups, page, slots, tokens;
  bool keeps;
  uint32_t most;       /* entries of a table */
  uint32_t *from, *to; /* by slot: the positions that were taken last */
};

static void open_known(ZbArena *a, Group *x, uint32_t page) {
  uint32_t n = x->is.pages, buckets = 1;
  while (buckets < n) buckets *= 2;
  x->known = ZB_NEWN(a, bool, n);
  x->prefix = ZB_NEWN(a, ZxPrefix, n);
  x->text = ZB_NEWN(a, uint32_t, (size_t)n * page);
  x->bucket = ZB_NEWN(a, uint32_t, buckets);
  x->next = ZB_NEWN(a, uint32_t, n);
  x->mask = buckets - 1;
  memset(x->bucket, 0xff, buckets * sizeof *x->bucket);
}

ZxPages *zx_pages_new(ZbArena *a, const ZxPaging *how) {
  ZB_ASSERT(how->page && how->tokens && how->length);
  ZxPages *p = ZB_NEW(a, ZxPages);
  *p = (ZxPages){.group = ZB_NEWN(a, Group, how->ngroups),
                 .ngroups = how->ngroups,
                 .page = how->page,
                 .slots = how->slots,
                 .tokens = how->tokens,
                 .keeps = how->keeps,
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
                 .end = ZB_NEWN(a, uint32_t, how->slots),
                 .older = ZB_NEWN(a, uint32_t, n + 1),
                 .newer = ZB_NEWN(a, uint32_t, n + 1)};
    x->older[n] = x->newer[n] = n;
    if (how->keeps) open_known(a, x, how->page);
    for (uint32_t i = 0; i < n; i++) x->free[i] = n - 1 - i;
    memset(x->table, 0xff, (size_t)how->slots * p->most * sizeof *x->table);
  }
  return p;
}

static uint32_t available(const Group *x) { return x->nfree + x->nkept; }
uint32_t zx_pages_free(const ZxPages *p, uint32_t group) { return available(&p->group[group]); }

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

/* ---- known pages ---- */
ZxPrefix zx_prefix(ZxPrefix before, const uint32_t *id, uint32_t n) {
  XXH128_hash_t h = XXH3_128bits_withSeed(id, n * sizeof *id, before.low);
  return (ZxPrefix){h.low64, zb_mix64(h.high64 + 0x9e3779b97f4a7c15ull * before.high + 1)};
}

/* Returns the known page of a prefix that ends with these ids; ZX_NO_PAGE: there is none. */
static uint32_t find(const ZxPages *p, const Group *x, ZxPrefix of, const uint32_t *id) {
  uint32_t page = x->bucket[of.low & x->mask];
  for (; page != ZX_NO_PAGE; page = x->next[page])
    if (x->prefix[page].low == of.low && x->prefix[page].high == of.high &&
        !memcmp(x->text + (size_t)page * p->page, id, p->page * sizeof *id))
      break;
  return page;
}

static void forget(Group *x, uint32_t page) {
  uint32_t *at = &x->bucket[x->prefix[page].low & x->mask];
  while (*at != page) at = &x->next[*at];
  *at = x->next[page];
  x->known[page] = false;
}

static void leave_ring(Group *x, uint32_t page) {
  x->newer[x->older[page]] = x->newer[page];
  x->older[x->newer[page]] = x->older[page];
  x->nkept--;
}

static void join_ring(Group *x, uint32_t page) {
  uint32_t seam = x->is.pages;
  x->older[page] = x->older[seam];
  x->newer[page] = seam;
  x->newer[x->older[seam]] = page;
  x->older[seam] = page;
  x->nkept++;
}

/* ---- pages of tables ---- */
static void put_back(Group *x, uint32_t page) {
  ZB_ASSERT(x->count[page]);
  if (--x->count[page]) return;
  if (x->known && x->known[page]) join_ring(x, page);
  else x->free[x->nfree++] = page;
}

static uint32_t get(Group *x) {
  uint32_t page;
  if (x->nfree) page = x->free[--x->nfree];
  else {
    page = x->newer[x->is.pages]; /* the oldest */
    leave_ring(x, page);
    forget(x, page);
  }
  x->count[page] = 1;
  return page;
}

static uint32_t share_page(Group *x, uint32_t page) {
  if (!x->count[page]++) leave_ring(x, page);
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

/* Gives back a slot's entries from `first` on. */
static void drop_from(ZxPages *p, Group *x, uint32_t slot, uint32_t first) {
  uint32_t *table = table_of(p, x, slot);
  while (x->end[slot] > first) {
    uint32_t i = --x->end[slot];
    put_back(x, table[i]);
    table[i] = ZX_NO_PAGE;
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
    enough &= want <= end || want - end <= available(x);
  }
  for (uint32_t g = 0; g < p->ngroups && enough; g++) {
    Group *x = &p->group[g];
    uint32_t *table = table_of(p, x, slot);
    while (x->end[slot] < entries(p, to)) table[x->end[slot]++] = get(x);
    drop_from(p, x, slot, entries(p, to)); /* that were for positions which did not come */
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
    if (part && !available(&p->group[g])) return false;
  }
  for (uint32_t g = 0; g < p->ngroups; g++) {
    Group *x = &p->group[g];
    uint32_t *table = table_of(p, x, slot);
    const uint32_t *other = table_of(p, x, of);
    uint32_t i = x->begin[slot] = first_seen(p, x, tokens), full = tokens / p->page;
    for (; i < full; i++) table[i] = share_page(x, other[i]);
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

/* From the last to the first: kept beginnings of texts outlive what follows on them. */
void zx_pages_give(ZxPages *p, uint32_t slot) {
  for (uint32_t g = 0; g < p->ngroups; g++) {
    Group *x = &p->group[g];
    drop_from(p, x, slot, x->begin[slot]);
    x->begin[slot] = x->end[slot] = 0;
  }
  p->from[slot] = p->to[slot] = 0;
}

/* ---- prefixes ---- */
void zx_pages_keep(ZxPages *p, uint32_t slot, uint32_t i, ZxPrefix of, const uint32_t *id) {
  uint32_t end = (i + 1) * p->page;
  ZB_ASSERT(p->keeps && end <= p->to[slot]);
  for (uint32_t g = 0; g < p->ngroups; g++) {
    Group *x = &p->group[g];
    uint32_t page = table_of(p, x, slot)[i], *bucket = &x->bucket[of.low & x->mask];
    if (page == ZX_NO_PAGE || x->known[page] || find(p, x, of, id) != ZX_NO_PAGE) continue;
    x->known[page] = true;
    x->prefix[page] = of;
    memcpy(x->text + (size_t)page * p->page, id, p->page * sizeof *id);
    x->next[page] = *bucket;
    *bucket = page;
  }
  if (end > p->from[slot]) p->from[slot] = end; /* it is written */
}

/* Returns the largest number of pages up to n of which a group has all that is seen behind them. */
static uint32_t kept_of(const ZxPages *p, const Group *x, const ZxPrefix *of, const uint32_t *id,
                        uint32_t n) {
  uint32_t i = x->is.window ? n : 0;
  if (!x->is.window) {
    while (i < n && find(p, x, of[i], id + (size_t)i * p->page) != ZX_NO_PAGE) i++;
    return i;
  }
  while (n && i > first_seen(p, x, n * p->page)) {
    i--;
    if (find(p, x, of[i], id + (size_t)i * p->page) == ZX_NO_PAGE) n = i;
  }
  return n;
}

uint32_t zx_pages_kept(const ZxPages *p, const ZxPrefix *of, const uint32_t *id, uint32_t n) {
  for (uint32_t before = n + 1; before != n;) {
    before = n;
    for (uint32_t g = 0; g < p->ngroups; g++) n = kept_of(p, &p->group[g], of, id, n);
  }
  return n;
}

void zx_pages_resume(ZxPages *p, uint32_t slot, const ZxPrefix *of, const uint32_t *id, uint32_t n) {
  for (uint32_t g = 0; g < p->ngroups; g++) {
    Group *x = &p->group[g];
    uint32_t *table = table_of(p, x, slot), i = first_seen(p, x, n * p->page);
    ZB_ASSERT(x->begin[slot] == x->end[slot]);
    x->begin[slot] = i;
    x->end[slot] = n;
    for (; i < n; i++) table[i] = share_page(x, find(p, x, of[i], id + (size_t)i * p->page));
  }
  p->from[slot] = p->to[slot] = n * p->page;
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
    if (x->count[table[i]] != 1 || (p->keeps && x->known[table[i]]))
      return zb_fail(err, NULL, "group %u, slot %u: page %u is written to, and in %u tables or known", g,
                     slot, table[i], x->count[table[i]]);
  return true;
}

/* Kept pages are known, and each known page is found. */
static bool check_known(const ZxPages *p, uint32_t g, uint32_t *free, ZbErr *err) {
  const Group *x = &p->group[g];
  uint32_t n = 0;
  for (uint32_t page = x->newer[x->is.pages]; page != x->is.pages; page = x->newer[page], n++) {
    free[page]++;
    if (n == x->nkept || !x->known[page] || x->older[x->newer[page]] != page)
      return zb_fail(err, NULL, "group %u: page %u is not one of %u that are kept", g, page, x->nkept);
  }
  if (n != x->nkept) return zb_fail(err, NULL, "group %u: %u pages are kept, not %u", g, n, x->nkept);
  for (uint32_t i = 0; p->keeps && i < x->is.pages; i++)
    if (x->known[i] && find(p, x, x->prefix[i], x->text + (size_t)i * p->page) != i)
      return zb_fail(err, NULL, "group %u: page %u is known, and not found", g, i);
  return true;
}

static bool check_group(const ZxPages *p, uint32_t g, ZbArena *a, ZbErr *err) {
  const Group *x = &p->group[g];
  uint32_t n = x->is.pages, *free = ZB_NEWN(a, uint32_t, n), *tables = ZB_NEWN(a, uint32_t, n);
  for (uint32_t i = 0; i < x->nfree; i++) free[x->free[i]]++;
  for (uint32_t i = 0; p->keeps && i < n; i++)
    if (free[i] && x->known[i]) return zb_fail(err, NULL, "group %u: page %u is known, and not kept", g, i);
  if (!check_known(p, g, free, err)) return false;
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

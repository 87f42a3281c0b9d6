/* Groups the nodes between dispatch and combine, which are played in rounds, into one run of the list: a
 * region.
 *
 * Rows of experts exist one round at a time. So a region must make all the rows that it reads itself, and
 * what it gives to others (what combine adds up, gradients of weights) is complete when its last round is
 * over. A region has a level: how many regions there are before it on the way from the list's beginning, each
 * of which must be over. Rows of one level that another level reads are recomputed there.
 *
 * Needs a sharded list. Provides one in which the nodes of each region are neighbours, beginning with its
 * `round`. Example, backward of a layer, all one region:
 *
 *   round; xe = dispatch(x); a = grouped_dot(xe, gate); ..; g = dispatch(dy); db = grouped_dot(g, down); ..;
 *   dgate += grouped_outer(xe, da); ..; dx = combine(dxe) */
#include "graph/ragged.h"
#include "runtime/plan/local/lower.h"

#include <string.h>

typedef struct {
  uint32_t root, level; /* root: the value `ends` of its slots */
} Region;

typedef struct {
  uint32_t from, level, to;
} Copy;

typedef struct {
  ZpLocal *c;
  ZpSegment *s;
  ZbArena *tmp;
  ZpNode *nodes;
  uint32_t n;
  /* By value. */
  uint32_t *level, *root, *maker, room;
  bool *row;
  Region *regions;
  uint32_t nregions;
  uint32_t *of;     /* by node: 1 + its region; 0: none */
  uint32_t *stands; /* by node of a region: the level that it was put on; NULL: that of what it reads */
  Copy *copy;       /* rows made again on another level */
  uint32_t ncopies;
} Rounds;

static bool is_row(const Rounds *r, uint32_t v) {
  return zg_slot_axis(r->c->p->layout.experts, &r->s->values[v].type) != ZG_NO_AXIS;
}

static bool in_region(const Rounds *r, const ZpNode *n) {
  bool row = n->call.op == ZG_OP_ROUND;
  for (int i = 0; i < n->call.nin; i++) row |= is_row(r, n->in[i]);
  for (int i = 0; i < n->call.nout; i++) row |= is_row(r, n->out[i]);
  return row;
}

static void make_room(Rounds *r) {
  uint32_t n = r->s->nvalues;
  if (n <= r->room) return;
  uint32_t room = 2 * n + 16;
#define GROW(x)                                                                                              \
  do {                                                                                                       \
    void *old_ = r->x;                                                                                       \
    r->x = zb_alloc(r->tmp, room * sizeof *r->x);                                                            \
    if (r->room) memcpy(r->x, old_, r->room * sizeof *r->x);                                                 \
  } while (0)
  GROW(level);
  GROW(root);
  GROW(maker);
  GROW(row);
  r->room = room;
}

/* Finds the level of each value that node i makes, and the region if it holds rows. */
static void look_at(Rounds *r, uint32_t i) {
  const ZpNode *n = &r->nodes[i];
  uint32_t level = 0, root = ZP_NONE;
  bool inside = in_region(r, n);
  for (int k = 0; k < n->call.nin; k++) {
    if (r->level[n->in[k]] > level) level = r->level[n->in[k]];
    if (r->row[n->in[k]]) root = r->root[n->in[k]];
  }
  if (n->call.op == ZG_OP_ROUND) root = n->in[0];
  if (inside && r->stands) level = r->stands[i];
  for (int k = 0; k < n->call.nout; k++) {
    uint32_t v = n->out[k];
    r->maker[v] = i;
    r->row[v] = inside && (n->call.op == ZG_OP_ROUND || is_row(r, v));
    r->root[v] = root;
    r->level[v] = level + (inside && !r->row[v]);
  }
  if (!inside) return;
  ZB_ASSERT(root != ZP_NONE);
  uint32_t k = 0;
  while (k < r->nregions && (r->regions[k].root != root || r->regions[k].level != level)) k++;
  if (k == r->nregions) ZB_PUSH(r->tmp, r->regions, r->nregions, ((Region){root, level}));
  r->of[i] = 1 + k;
}

/* ---- rows that two levels read ------------------------------------------------------------------------- */
typedef struct {
  ZpNode *nodes;
  uint32_t n, *stands, nstands;
} List;

static void append(Rounds *r, List *l, ZpNode node, uint32_t level) {
  ZB_PUSH(r->c->p->arena, l->nodes, l->n, node);
  ZB_PUSH(r->tmp, l->stands, l->nstands, level);
}

/* Returns the value v as that level has it; what it is made of goes to the list before. */
static uint32_t on_level(Rounds *r, uint32_t v, uint32_t level, List *l) {
  if (!r->row[v] || r->level[v] == level) return v;
  for (uint32_t k = 0; k < r->ncopies; k++)
    if (r->copy[k].from == v && r->copy[k].level == level) return r->copy[k].to;
  ZpNode made = r->nodes[r->maker[v]];
  for (int i = 0; i < made.call.nin; i++) made.in[i] = on_level(r, made.in[i], level, l);
  for (int i = 0; i < made.call.nout; i++) {
    uint32_t from = made.out[i];
    ZpValue value = r->s->values[from];
    ZB_PUSH(r->c->p->arena, r->s->values, r->s->nvalues, value);
    made.out[i] = r->s->nvalues - 1;
    make_room(r);
    r->level[made.out[i]] = level;
    r->row[made.out[i]] = true;
    ZB_PUSH(r->tmp, r->copy, r->ncopies, ((Copy){from, level, made.out[i]}));
  }
  made.recomputed = true;
  append(r, l, made, level);
  return on_level(r, v, level, l);
}

/* A `round` of a region is there where any node of it is. */
static void split_levels(Rounds *r) {
  List l = {0};
  for (uint32_t i = 0; i < r->n; i++) {
    ZpNode node = r->nodes[i];
    uint32_t level = r->of[i] ? r->regions[r->of[i] - 1].level : 0;
    for (int k = 0; r->of[i] && k < node.call.nin; k++) node.in[k] = on_level(r, node.in[k], level, &l);
    append(r, &l, node, level);
  }
  r->nodes = l.nodes;
  r->n = l.n;
  r->stands = l.stands;
}

/* Rows that no level reads any more go. */
static void drop_unread(Rounds *r) {
  bool *read = ZB_NEWN(r->tmp, bool, r->s->nvalues + 1), *stay = ZB_NEWN(r->tmp, bool, r->n + 1);
  for (uint32_t i = r->n; i-- > 0;) {
    const ZpNode *n = &r->nodes[i];
    bool rows = n->call.nout > 0;
    for (int k = 0; k < n->call.nout; k++) rows &= n->call.op == ZG_OP_ROUND || is_row(r, n->out[k]);
    stay[i] = !rows;
    for (int k = 0; k < n->call.nout; k++) stay[i] |= read[n->out[k]];
    for (int k = 0; stay[i] && k < n->call.nin; k++) read[n->in[k]] = true;
  }
  uint32_t m = 0;
  for (uint32_t i = 0; i < r->n; i++)
    if (stay[i]) r->stands[m] = r->stands[i], r->nodes[m++] = r->nodes[i];
  r->n = m;
}

static void find_regions(Rounds *r) {
  make_room(r);
  r->nregions = 0;
  memset(r->level, 0, r->room * sizeof *r->level);
  memset(r->row, 0, r->room * sizeof *r->row);
  r->of = ZB_NEWN(r->tmp, uint32_t, r->n + 1);
  for (uint32_t i = 0; i < r->n; i++) look_at(r, i);
}

/* ---- neighbours ---------------------------------------------------------------------------------------- */
/* Nodes of the region go where its last one is; what reads what it gives goes behind that. */
static void gather(Rounds *r, uint32_t region) {
  ZpNode *list = ZB_NEWN(r->c->p->arena, ZpNode, r->n + 1);
  bool *late = ZB_NEWN(r->tmp, bool, r->s->nvalues + 1);
  uint8_t *where = ZB_NEWN(r->tmp, uint8_t, r->n + 1); /* 0 before, 1 of it, 2 behind */
  uint32_t last = 0, n = 0;
  for (uint32_t i = 0; i < r->n; i++)
    if (r->of[i] == region) last = i;
  for (uint32_t i = 0; i < r->n; i++) {
    const ZpNode *k = &r->nodes[i];
    bool behind = i > last;
    for (int j = 0; j < k->call.nin; j++) behind |= late[k->in[j]];
    where[i] = r->of[i] == region ? 1 : behind ? 2 : 0;
    ZB_ASSERT(where[i] != 1 || !behind);
    for (int j = 0; where[i] == 2 && j < k->call.nout; j++) late[k->out[j]] = true;
    for (int j = 0; where[i] == 1 && j < k->call.nout; j++) late[k->out[j]] = !r->row[k->out[j]];
  }
  uint32_t *of = ZB_NEWN(r->tmp, uint32_t, r->n + 1);
  for (uint8_t w = 0; w < 3; w++)
    for (uint32_t i = 0; i < r->n; i++)
      if (where[i] == w) of[n] = r->of[i], list[n++] = r->nodes[i];
  r->nodes = list;
  r->of = of;
}

void zp_make_rounds(ZpLocal *c, ZpPhase phase) {
  ZpList *l = &c->s->list[phase];
  Rounds r = {.c = c, .s = c->s, .tmp = zb_arena_new(), .nodes = l->nodes, .n = l->n};
  bool any = false;
  for (uint32_t i = 0; i < l->n; i++) any |= l->nodes[i].call.op == ZG_OP_ROUND;
  if (any) {
    find_regions(&r);
    split_levels(&r);
    drop_unread(&r);
    find_regions(&r);
    for (uint32_t level = 0, done = 0; done < r.nregions; level++)
      for (uint32_t k = 0; k < r.nregions; k++)
        if (r.regions[k].level == level) gather(&r, 1 + k), done++;
    for (uint32_t i = 0; i < r.n; i++) r.nodes[i].rounds = r.of[i];
    l->nodes = r.nodes;
    l->n = r.n;
  }
  zb_arena_free(r.tmp);
}

/* The space of the search: axes of the model that can be split, blocks that are worth recomputing. A recipe's
 * own choices stay as they are; `?` is chosen here or by the search. */
#include "runtime/plan/search/internal.h"

#include <string.h>

static ZlName name_of(const char *s) { return (ZlName){s, ZL_NOWHERE}; }

/* ---- axes ---------------------------------------------------------------------------------------------- */
static bool has_param(const ZgParam *p, uint16_t axis) { return zg_type_has(&p->type, axis); }

static bool is_carried(const ZgGraph *g, uint16_t axis) {
  for (uint32_t s = 0; s < g->nsegments; s++)
    for (uint32_t i = 0; i < g->segments[s].ncarry_in; i++)
      if (zg_type_has(&g->segments[s].carry_in[i], axis)) return true;
  return false;
}

typedef struct {
  uint16_t axis;
  double flops, bytes; /* of a rank, with the axis split in two; what it sends */
  bool regroups;       /* some value would have to be gathered or exchanged whole */
} Trial;

static ZlSplit split_of(Space *x, const ZlName *axes, uint32_t n, const char *dim) {
  ZlSplit s = {.dim = name_of(dim), .span = x->base->span};
  for (uint32_t i = 0; i < n; i++) {
    ZlProd p = {0};
    ZB_PUSH(x->a, p.axis, p.n, axes[i]);
    ZB_PUSH(x->a, s.prods, s.nprods, p);
  }
  return s;
}

/* The plan of one sample, with what x->split says over so many ranks. */
static bool measure(Space *x, int64_t by, Trial *t) {
  ZbArena *a = zb_arena_new();
  Candidate c = ONE_RANK;
  c.size[DIM_TENSOR] = by;
  const ZpPlan *p =
      zp_plan_local(a, x->g, space_probe(x, &c, a), zl_diags_new(a, zl_sources_new(a)), x->plan);
  for (uint32_t s = 0; p && s < x->g->nsegments; s++)
    for (int k = 0; k < ZP_PHASES; k++)
      for (uint32_t i = 0; i < p->programs.segments[s].list[k].n; i++) {
        const ZpNode *n = &p->programs.segments[s].list[k].nodes[i];
        double trip = x->g->segments[s].trip;
        t->flops += n->flops * trip;
        if (!zp_sends(n)) continue;
        t->bytes +=
            (double)zp_run_bytes(p, &p->programs.segments[s], &p->programs.segments[s].list[k], i) * trip;
        t->regroups |= n->call.op != ZG_OP_ALL_REDUCE;
      }
  zb_arena_free(a);
  return p != NULL;
}

static bool try_axis(Space *x, uint16_t axis, Trial *t) {
  ZlName name = name_of(x->g->axes[axis].name);
  int64_t by = 2;
  while (by < 16 && x->g->axes[axis].size % by) by++;
  *t = (Trial){.axis = axis};
  x->split = split_of(x, &name, 1, x->name[DIM_TENSOR]);
  return x->g->axes[axis].size % by == 0 && measure(x, by, t);
}

static bool share_param(const ZgGraph *g, uint16_t a, uint16_t b) {
  for (uint32_t i = 0; i < g->nparams; i++)
    if (has_param(&g->params[i], a) && has_param(&g->params[i], b)) return true;
  return false;
}

/* Orders the axes that parameters share: first the one that sends least; another may follow it in a product.
 * Axes that save no arithmetic, or whose values would be gathered whole, are not split. */
static void choose_axes(Space *x) {
  const ZgGraph *g = x->g;
  Trial *t = ZB_NEWN(x->a, Trial, g->naxes + 1), whole = {0};
  uint32_t n = 0;
  ZlSplit plain = {0}, product = {0};
  measure(x, 1, &whole);
  for (uint16_t a = 0; a < g->naxes; a++) {
    bool param = false;
    for (uint32_t i = 0; i < g->nparams; i++) param |= has_param(&g->params[i], a);
    if (g->axes[a].size && param && !is_carried(g, a) && try_axis(x, a, &t[n])) n++;
  }
  uint16_t chosen[ZG_MAX_AXES * 4];
  double sent[ZG_MAX_AXES * 4];
  uint32_t nchosen = 0;
  for (uint32_t round = 0; round < n; round++) {
    Trial *best = NULL;
    for (uint32_t i = 0; i < n; i++)
      if (t[i].flops > 0 && (!best || t[i].bytes < best->bytes)) best = &t[i];
    if (!best) break;
    Trial now = *best;
    best->flops = 0;
    if (now.regroups || now.flops > (1 - 1e-6) * whole.flops || nchosen == ZG_MAX_AXES * 4) continue;
    uint32_t with = 0;
    while (with < nchosen && !share_param(g, chosen[with], now.axis)) with++;
    ZlName name = name_of(g->axes[now.axis].name);
    if (with < nchosen) {
      if (now.bytes <= 2 * sent[with] && product.prods[with].n == 1)
        ZB_PUSH(x->a, product.prods[with].axis, product.prods[with].n, name);
      continue;
    }
    chosen[nchosen] = now.axis;
    sent[nchosen++] = now.bytes;
    ZlProd one = {0}, two = {0};
    ZB_PUSH(x->a, one.axis, one.n, name);
    ZB_PUSH(x->a, two.axis, two.n, name);
    ZB_PUSH(x->a, plain.prods, plain.nprods, one);
    ZB_PUSH(x->a, product.prods, product.nprods, two);
  }
  plain.dim = product.dim = name_of(x->name[DIM_TENSOR]);
  plain.span = product.span = x->base->span;
  x->split = plain;
  x->split_product = product;
}

/* Axes of what is carried that few parameters have: not the width. */
static void choose_else(Space *x) {
  const ZgGraph *g = x->g;
  for (uint16_t a = 0; a < g->naxes; a++) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->nparams; i++) n += has_param(&g->params[i], a);
    if (!is_carried(g, a) || !strcmp(g->axes[a].name, "batch") || 4 * n > g->nparams) continue;
    ZB_PUSH(x->a, x->otherwise.at, x->otherwise.n, name_of(g->axes[a].name));
  }
}

static void find_axes(Space *x) {
  const ZlSplit *given = space_split(x->base, x->name[DIM_TENSOR]);
  if (!given) return;
  if (given->open) choose_axes(x);
  else x->split = x->split_product = *given;
  x->split.maybe = x->split_product.maybe = given->maybe;
  x->split.otherwise = x->split_product.otherwise = (ZlNames){0};
  x->otherwise = given->otherwise;
  if (given->open_else) choose_else(x);
  x->free_else = given->open_else;
}

static bool divides(const Space *x, const ZlProd *p, int64_t by) {
  int64_t size = 1;
  for (uint32_t i = 0; i < p->n; i++) {
    int64_t n = space_axis(x, p->axis[i].s);
    size *= n ? n : 1;
  }
  return size % by == 0;
}

/* A vocabulary, where its size does not divide. */
static bool may_stay_whole(const Space *x, const ZlProd *p) {
  uint32_t a = p->n == 1 ? zg_axis_find(x->g, p->axis[0].s) : ZG_NONE;
  return a != ZG_NONE && zg_axis_is_looked_up(x->g, a);
}

const char *space_indivisible(const Space *x, int64_t tensor) {
  const ZlSplit *given = space_split(x->base, x->name[DIM_TENSOR]);
  if (tensor == 1) return NULL;
  for (uint32_t i = 0; given->open && i < x->split_product.nprods; i++) {
    const ZlProd *p = &x->split_product.prods[i];
    if (divides(x, p, tensor) || may_stay_whole(x, p)) continue;
    const ZlName *last = &p->axis[p->n - 1];
    return zb_printf(x->a, "axis `%s%s%s` (%lld%s) does not divide over %lld ranks", p->axis[0].s,
                     p->n > 1 ? "*" : "", p->n > 1 ? last->s : "", (long long)space_axis(x, p->axis[0].s),
                     p->n > 1 ? zb_printf(x->a, " x %lld", (long long)space_axis(x, last->s)) : "",
                     (long long)tensor);
  }
  return x->split.nprods ? NULL : "the model has no axis that ranks could split without gathering it";
}

/* ---- blocks -------------------------------------------------------------------------------------------- */
static bool in_repeat(const ZgGraph *g, uint32_t region) {
  for (; region != ZG_NONE; region = g->regions[region].parent)
    if (g->regions[region].kind == ZG_REGION_REPEAT) return true;
  return false;
}
/* Returns the block around it, or ZG_NONE if that is the repeat, or the model. */
static uint32_t block_around(const ZgGraph *g, uint32_t region) {
  uint32_t r = g->regions[region].parent;
  return r != ZG_NONE && g->regions[r].kind == ZG_REGION_BLOCK ? r : ZG_NONE;
}

static const char *part_name(const ZgRegion *r, bool block) {
  return (block || !*r->label) && *r->block ? r->block : r->label;
}

static ZlPath path_of(Space *x, uint32_t region) {
  const ZgGraph *g = x->g;
  uint32_t around = block_around(g, region);
  ZlPath p = {.span = x->base->span};
  if (around != ZG_NONE) ZB_PUSH(x->a, p.part, p.n, name_of(part_name(&g->regions[around], true)));
  ZB_PUSH(x->a, p.part, p.n, name_of(part_name(&g->regions[region], around == ZG_NONE)));
  return p;
}

static bool same_path(const ZlPath *a, const ZlPath *b) {
  bool same = a->n == b->n;
  for (uint32_t i = 0; same && i < a->n; i++) same = !strcmp(a->part[i].s, b->part[i].s);
  return same;
}

typedef struct {
  ZlPath path;
  uint32_t region; /* the first of it */
  bool whole;      /* what a repeat repeats, not a part of that */
  double saves;    /* share of what is kept */
} Block;

/* Bytes kept for backward of one sample, if these are recomputed; 0: there is no such plan. */
static double kept(Space *x, const ZlPath *path, uint32_t n) {
  ZbArena *a = zb_arena_new();
  RecomputeSet set = {.path = (ZlPath *)path, .n = n}, *sets = x->sets;
  Candidate c = ONE_RANK;
  double bytes = 0;
  x->sets = &set;
  const ZpPlan *p =
      zp_plan_local(a, x->g, space_probe(x, &c, a), zl_diags_new(a, zl_sources_new(a)), x->plan);
  for (uint32_t s = 0; p && s < x->g->nsegments; s++)
    bytes += (double)(p->programs.segments[s].saved_bytes +
                      (p->programs.segments[s].saves_carry ? p->programs.segments[s].carry_bytes : 0)) *
             x->g->segments[s].trip;
  x->sets = sets;
  zb_arena_free(a);
  return bytes;
}

/* Those that keep 2 % or more, most first, at most MOST_BLOCKS. */
static uint32_t find_blocks(Space *x, Block *to) {
  const ZgGraph *g = x->g;
  Block *all = NULL;
  uint32_t n = 0, nto = 0;
  for (uint32_t r = 1; r < g->nregions && n < 32; r++) {
    if (g->regions[r].kind != ZG_REGION_BLOCK || !in_repeat(g, r)) continue;
    Block b = {.path = path_of(x, r), .region = r, .whole = block_around(g, r) == ZG_NONE};
    bool seen = false;
    for (uint32_t i = 0; i < n; i++) seen |= same_path(&all[i].path, &b.path);
    if (!seen && *b.path.part[b.path.n - 1].s) ZB_PUSH(x->a, all, n, b);
  }
  double without = kept(x, NULL, 0);
  for (uint32_t i = 0; i < n && without > 0; i++) all[i].saves = 1 - kept(x, &all[i].path, 1) / without;
  while (nto < MOST_BLOCKS) {
    Block *best = NULL;
    for (uint32_t i = 0; i < n; i++)
      if (all[i].saves >= .02 && (!best || all[i].saves > best->saves)) best = &all[i];
    if (!best) break;
    to[nto++] = *best;
    best->saves = 0; /* taken */
  }
  return nto;
}

static bool is_within(const ZgGraph *g, uint32_t region, uint32_t of) {
  while (region != ZG_NONE && region != of) region = g->regions[region].parent;
  return region == of;
}

/* most: the largest share of what is kept that a set of those before leaves out */
static void add_set(Space *x, const Block *b, uint32_t n, uint32_t bits, double *most) {
  double saves = 0;
  RecomputeSet set = {.blocks = bits};
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t k = 0; k < n; k++)
      if (i != k && bits >> i & bits >> k & 1 && is_within(x->g, b[i].region, b[k].region)) return;
  for (uint32_t i = 0; i < n; i++)
    if (bits >> i & 1) {
      ZB_PUSH(x->a, set.path, set.n, b[i].path);
      saves += b[i].saves;
    }
  if (x->nsets == MOST_SETS) return;
  if (saves > *most) *most = saves, x->smallest_set = x->nsets;
  ZB_PUSH(x->a, x->sets, x->nsets, set);
}

static void find_sets(Space *x) {
  const ZlRecipe *r = x->base;
  if (r->open.recompute.file < 0) {
    RecomputeSet set = {.path = r->recompute, .n = r->nrecompute};
    ZB_PUSH(x->a, x->sets, x->nsets, set);
    return;
  }
  Block b[MOST_BLOCKS];
  uint32_t n = find_blocks(x, b);
  x->free_sets = true;
  double most = 0;
  for (uint32_t bits = 0; bits < 1u << n; bits++) add_set(x, b, n, bits, &most);
}

int64_t *space_divisors(ZbArena *a, int64_t n, uint32_t *count) {
  int64_t *at = NULL, root = 1;
  *count = 0;
  for (; root * root <= n; root++)
    if (n % root == 0) ZB_PUSH(a, at, *count, root);
  for (uint32_t i = *count; i-- > 0;)
    if (at[i] * at[i] != n) ZB_PUSH(a, at, *count, n / at[i]);
  return at;
}

/* ---- all of it ----------------------------------------------------------------------------------------- */
static int64_t devices_of(const ZlCluster *c) {
  int64_t n = 1;
  for (uint32_t i = 0; i < c->nlevels; i++)
    if (__builtin_mul_overflow(n, c->levels[i].size, &n)) return INT64_MAX;
  return n;
}

static uint32_t items_of(const ZgGraph *g) {
  uint32_t n = 0;
  for (uint32_t s = 0; s < g->nsegments; s++) n += g->segments[s].repeat ? g->segments[s].trip : 0;
  return n ? n : 1;
}

static bool find_ranks(Space *x, const ZpSearchOptions *o, ZlDiags *d) {
  int64_t have = devices_of(x->c), given = 1;
  bool open = false;
  for (int k = 0; k < DIMS; k++) {
    open |= x->given[k] == 0;
    if (x->given[k] > 0) given *= x->given[k];
  }
  x->ranks = o->ranks ? o->ranks : open ? have : given;
  ZlSpan at = x->base->nmesh ? x->base->mesh[0].name.span : x->base->span;
  if (x->ranks > have || x->ranks > 1 << 24) {
    ZlDiag *e = zl_report(d, ZL_Z0310, at, "%lld ranks, but cluster %s has %lld devices", (long long)x->ranks,
                          x->c->name, (long long)have);
    zl_help(e, "search for fewer, or plan for a larger cluster");
  } else if (open ? x->ranks % given : x->ranks != given) {
    zl_report(d, ZL_Z0805, at, "%lld ranks are no multiple of the mesh that is given, of %lld",
              (long long)x->ranks, (long long)given);
  }
  return !zl_errors(d);
}

static bool find_limit(Space *x, ZlDiags *d) {
  uint64_t memory = x->c->device_memory;
  /* A 16th is left to drivers, libraries and their buffers. */
  x->limit = x->base->limit.memory ? x->base->limit.memory : memory - memory / 16;
  if (x->limit) return true;
  ZlDiag *e =
      zl_report(d, ZL_Z0813, x->c->span, "cluster `%s` does not say what recipes must fit into", x->c->name);
  zl_note(e, "it lacks `memory` of its device");
  zl_help(e, "add it, or `limit memory` to the recipe");
  return false;
}

bool space_make(Space *x, const ZpSearchOptions *o, ZlDiags *d) {
  const ZlRecipe *r = x->base;
  if (!space_dims(x, d) || !find_ranks(x, o, d) || !find_limit(x, d)) return false;
  for (uint32_t i = 0; i < r->nbinds; i++)
    if (!strcmp(r->binds[i].axis.s, "batch")) x->batch = r->binds[i].size;
  x->items = items_of(x->g);
  x->rehearsed = ZB_NEWN(x->a, Rehearsals, x->items + 1);
  x->free_micro = r->open.micro.file >= 0;
  x->free_stages = r->open.stages.file >= 0;
  for (uint32_t i = 0; i < r->nshards; i++) x->free_shard |= r->shards[i].open;
  find_axes(x);
  find_sets(x);
  return true;
}

/* ---- a candidate as a recipe --------------------------------------------------------------------------- */
static int64_t ranks_of(const Candidate *c, unsigned dims) {
  int64_t n = 1;
  for (int k = 0; k < DIMS; k++) n *= dims >> k & 1 ? c->size[k] : 1;
  return n;
}

int64_t space_shards(const Space *x, const Candidate *c, unsigned dims) {
  return c->zero ? ranks_of(c, x->zero & dims) : 1;
}

int64_t space_samples(const Candidate *c) { return ranks_of(c, BIT(REPLICA) | BIT(DATA) | BIT(EP)); }

/* Heads are split by the slower dims first, so that positions are exchanged for a part of these. */
void space_order(const Space *x, const Candidate *c, Dim order[DIMS]) {
  bool last = x->whole && c->way == ZL_ATTENTION_HEADS && c->size[DIM_CONTEXT] > 1;
  uint32_t n = 0;
  for (uint32_t i = 0; i < x->norder; i++)
    if (!last || x->order[i] != DIM_CONTEXT) order[n++] = x->order[i];
  if (last) order[n++] = DIM_CONTEXT;
}

static void add_splits(const Space *x, const Candidate *c, ZbArena *a, ZlRecipe *r) {
  static const Dim others[] = {DIM_REPLICA, DIM_DATA, DIM_EP, DIM_CONTEXT};
  for (int i = 0; i < 4; i++) {
    Dim k = others[i];
    if (c->size[k] > 1) ZB_PUSH(a, r->splits, r->nsplits, *space_split(x->base, x->name[k]));
  }
  int64_t t = c->size[DIM_TENSOR];
  if (t < 2) return;
  ZlSplit s = x->split;
  const ZlSplit *given = space_split(x->base, x->name[DIM_TENSOR]);
  if (given->open) {
    s.prods = NULL;
    s.nprods = 0;
    for (uint32_t i = 0; i < x->split.nprods; i++) {
      const ZlProd *plain = &x->split.prods[i];
      const ZlProd *p = divides(x, plain, t) || !x->split_product.nprods ? plain : &x->split_product.prods[i];
      if (divides(x, p, t)) ZB_PUSH(a, s.prods, s.nprods, *p);
    }
  }
  if (c->other || !given->open_else) s.otherwise = x->otherwise;
  ZB_PUSH(a, r->splits, r->nsplits, s);
}

static void add_shards(const Space *x, const Candidate *c, ZbArena *a, ZlRecipe *r) {
  static const unsigned what[] = {0, ZL_SHARD_STATES, ZL_SHARD_STATES | ZL_SHARD_GRADS, 7};
  for (uint32_t i = 0; i < x->norder; i++) {
    Dim k = x->order[i];
    if (!c->zero || c->size[k] < 2 || !(x->zero >> k & 1)) continue;
    ZlShard s = {.what = what[c->zero], .dim = name_of(x->name[k]), .keep = c->keep, .span = r->span};
    ZB_PUSH(a, r->shards, r->nshards, s);
  }
}

/* Adds the recipe's attention over dims that the mesh has; where it is open, the candidate's. */
static void add_attention(const Space *x, const Candidate *c, ZbArena *a, ZlRecipe *r) {
  for (uint32_t i = 0; i < x->base->nattention; i++) {
    ZlAttention w = x->base->attention[i];
    bool there = !w.dim.s;
    for (uint32_t k = 0; k < r->nmesh; k++) there |= w.dim.s && !strcmp(w.dim.s, r->mesh[k].name.s);
    bool idle = c->size[DIM_CONTEXT] < 2 && (w.open || (!w.dim.s && x->name[DIM_CONTEXT]));
    if (!there || idle) continue;
    if (w.open) w.way = (ZlAttentionWay)c->way;
    w.open = false;
    ZB_PUSH(a, r->attention, r->nattention, w);
  }
}

const ZlRecipe *space_recipe(const Space *x, const Candidate *c, const int64_t *stages, ZbArena *a) {
  ZlRecipe *r = ZB_NEW(a, ZlRecipe);
  Dim order[DIMS];
  space_order(x, c, order);
  *r = *x->base;
  r->mesh = NULL, r->nmesh = 0;
  r->splits = NULL, r->nsplits = 0;
  r->shards = NULL, r->nshards = 0;
  r->attention = NULL, r->nattention = 0;
  r->open.micro = r->open.stages = r->open.recompute = ZL_NOWHERE;
  r->prefetch_span = ZL_NOWHERE; /* whatever is sharded: no word about it */
  r->limit.memory = 0;
  for (uint32_t i = 0; i < x->norder; i++) {
    Dim k = order[i];
    ZlMeshDim m = {name_of(x->name[k]), c->size[k]};
    if (m.size > 1) ZB_PUSH(a, r->mesh, r->nmesh, m);
  }
  r->micro = x->batch ? c->micro : 0;
  add_splits(x, c, a, r);
  add_shards(x, c, a, r);
  add_attention(x, c, a, r);
  r->stages.span = r->stages.dim.span = ZL_NOWHERE;
  r->stages.dim.s = NULL;
  r->stages.n = 0;
  r->stages.counts = NULL;
  if (c->size[DIM_PIPE] > 1) {
    r->stages.dim = name_of(x->name[DIM_PIPE]);
    r->stages.span = r->span;
    r->stages.by_cost = stages == NULL;
    for (int64_t i = 0; stages && i < c->size[DIM_PIPE]; i++)
      ZB_PUSH(a, r->stages.counts, r->stages.n, stages[i]);
  } else {
    r->schedule.s = NULL;
  }
  r->recompute = x->sets ? x->sets[c->set].path : NULL;
  r->nrecompute = x->sets ? x->sets[c->set].n : 0;
  return r;
}

const ZlRecipe *space_probe(const Space *x, const Candidate *c, ZbArena *a) {
  ZlRecipe *r = ZB_NEW(a, ZlRecipe);
  *r = *space_recipe(x, c, NULL, a);
  ZlBind *binds = ZB_NEWN(a, ZlBind, r->nbinds + 1);
  for (uint32_t i = 0; i < r->nbinds; i++) {
    binds[i] = r->binds[i];
    if (!strcmp(binds[i].axis.s, "batch")) {
      binds[i].size = c->micro * space_samples(c);
      binds[i].number = (double)binds[i].size;
    }
  }
  r->binds = binds;
  return r;
}

/* Making graphs, and types as sorted sets of axes. Everything lives in the graph's arena. See graph.h. */
#include "graph/graph.h"
#include "graph/ops.h"

#include <string.h>

const char *const zg_elem_name[ZG_ELEMS] = {"real", "f32", "bf16", "f16", "i32", "bool", "index"};

/* ---- graphs ---- */
ZgGraph *zg_graph_new(ZbArena *arena, const char *model) {
  ZgGraph *g = ZB_NEW(arena, ZgGraph);
  g->arena = arena;
  g->model = zb_strdup(arena, model);
  zg_loc_add(g, "", 0, 0);
  zg_region_add(g, ZG_REGION_MODEL, ZG_NONE, "", "");
  return g;
}

uint32_t zg_axis_find(const ZgGraph *g, const char *name) {
  for (uint32_t i = 0; i < g->naxes; i++)
    if (!strcmp(g->axes[i].name, name)) return i;
  return ZG_NONE;
}

bool zg_axis_is_looked_up(const ZgGraph *g, uint32_t axis) {
  for (uint32_t s = 0; s < g->nsegments; s++)
    for (uint32_t k = 0; k < g->segments[s].nnodes; k++) {
      const ZgNode *n = &g->segments[s].nodes[k];
      if ((n->op == ZG_OP_LOOKUP || n->op == ZG_OP_XENT_SUMS) && n->ax[0] == axis) return true;
    }
  return false;
}

bool zg_has_aux(const ZgGraph *g) {
  for (uint32_t s = 0; s < g->nsegments; s++)
    for (uint32_t k = 0; k < g->segments[s].nforward; k++)
      if (g->segments[s].nodes[k].op == ZG_OP_AUX) return true;
  return false;
}

static bool is_nothing(const ZgSegment *s, uint32_t value) {
  const ZgNode *n = &s->nodes[s->values[value].node];
  while (n->op == ZG_OP_SUM || n->op == ZG_OP_BROADCAST) n = &s->nodes[s->values[n->in[0]].node];
  return n->op == ZG_OP_FILL && n->num[0] == 0;
}

bool zg_has_loss(const ZgGraph *g) {
  for (uint32_t i = 0; i < g->nsegments; i++)
    for (uint32_t k = 0; k < g->segments[i].nforward; k++) {
      const ZgNode *n = &g->segments[i].nodes[k];
      if (n->op == ZG_OP_LOSS_NUM && n->opt[0] == 0) return !is_nothing(&g->segments[i], n->in[0]);
    }
  return false;
}

uint32_t zg_axis_add(ZgGraph *g, const char *name, int64_t size) {
  ZB_ASSERT(zg_axis_find(g, name) == ZG_NONE && size >= 0 && g->naxes < ZG_MAX_GRAPH_AXES);
  ZgAxis a = {zb_strdup(g->arena, name), size};
  ZB_PUSH(g->arena, g->axes, g->naxes, a);
  return g->naxes - 1;
}

uint32_t zg_param_add(ZgGraph *g, ZgParam p) {
  p.path = zb_strdup(g->arena, p.path);
  ZB_PUSH(g->arena, g->params, g->nparams, p);
  return g->nparams - 1;
}

uint32_t zg_region_add(ZgGraph *g, ZgRegionKind kind, uint32_t parent, const char *label, const char *block) {
  ZB_ASSERT(kind == ZG_REGION_MODEL ? g->nregions == 0 : parent < g->nregions);
  ZgRegion r = {(uint8_t)kind, parent, zb_strdup(g->arena, label), zb_strdup(g->arena, block)};
  ZB_PUSH(g->arena, g->regions, g->nregions, r);
  return g->nregions - 1;
}

uint32_t zg_tag_add(ZgGraph *g, const char *tag) {
  for (uint32_t i = 0; i < g->ntags; i++)
    if (!strcmp(g->tags[i], tag)) return i;
  if (g->ntags == 32) return ZG_NONE;
  const char *copy = zb_strdup(g->arena, tag);
  ZB_PUSH(g->arena, g->tags, g->ntags, copy);
  return g->ntags - 1;
}

void zg_loss_add(ZgGraph *g, const char *name, uint32_t loc) {
  ZgLoss l = {zb_strdup(g->arena, name), loc};
  ZB_PUSH(g->arena, g->losses, g->nlosses, l);
}

/* Nodes arrive in source order, mostly: looking at the last few places finds nearly all repetitions. A place
 * that comes back later is stored again, which costs a few bytes and nothing else. */
uint32_t zg_loc_add(ZgGraph *g, const char *file, uint32_t line, uint32_t col) {
  for (uint32_t i = g->nlocs; i-- > 0 && i + 64 > g->nlocs;) {
    const ZgLoc *l = &g->locs[i];
    if (l->line == line && l->col == col && !strcmp(l->file, file)) return i;
  }
  const char *same = g->nlocs ? g->locs[g->nlocs - 1].file : "";
  ZgLoc l = {strcmp(same, file) ? zb_strdup(g->arena, file) : same, line, col};
  ZB_PUSH(g->arena, g->locs, g->nlocs, l);
  return g->nlocs - 1;
}

void zg_foreign_add(ZgGraph *g, ZgForeign f) {
  f.map = zb_strdup(g->arena, f.map);
  f.name = zb_strdup(g->arena, f.name);
  ZB_PUSH(g->arena, g->foreign, g->nforeign, f);
}

void zg_config_add(ZgGraph *g, const char *map, const char *key, const char *value) {
  ZgConfig c = {zb_strdup(g->arena, map), zb_strdup(g->arena, key), zb_strdup(g->arena, value)};
  ZB_PUSH(g->arena, g->config, g->nconfig, c);
}

void zg_ignored_add(ZgGraph *g, const char *map, const char *pattern, const char *of) {
  ZgIgnored i = {zb_strdup(g->arena, map), zb_strdup(g->arena, pattern), of ? zb_strdup(g->arena, of) : NULL};
  ZB_PUSH(g->arena, g->ignored, g->nignored, i);
}

ZgSegment *zg_segment_add(ZgGraph *g, const char *label, uint32_t region, bool repeat, uint32_t trip) {
  ZB_ASSERT(region < g->nregions && trip >= 1 && (repeat || trip == 1));
  ZgSegment s = {.label = zb_strdup(g->arena, label), .region = region, .trip = trip, .repeat = repeat};
  ZB_PUSH(g->arena, g->segments, g->nsegments, s);
  return &g->segments[g->nsegments - 1];
}

uint32_t zg_node_add(ZgGraph *g, ZgSegment *s, ZgNode n, const ZgType *hint) {
  ZB_ASSERT(n.op < ZG_OP_COUNT && n.nin <= ZG_MAX_IN && n.region < g->nregions && n.loc < g->nlocs);
  ZgType in[ZG_MAX_IN], out[ZG_MAX_OUT];
  for (int i = 0; i < n.nin; i++) {
    ZB_ASSERT(n.in[i] < s->nvalues);
    in[i] = s->values[n.in[i]].type;
  }
  if (!hint && n.op == ZG_OP_CARRY && n.opt[0] >= 0 && n.opt[0] < s->ncarry_in) hint = &s->carry_in[n.opt[0]];
  if (!hint && n.op == ZG_OP_DCARRY && n.opt[0] >= 0 && n.opt[0] < s->ncarry_out)
    hint = &s->carry_out[n.opt[0]];
  n.nout = (uint8_t)zg_outs(n.op, n.opt);
  n.out = s->nvalues;
  ZbErr err;
  if (!zg_infer(g, &n, in, hint, out, &err)) ZB_BUG("node that does not type: %s", err.text);
  for (int i = 0; i < n.nout; i++) {
    ZgValue v = {out[i], s->nnodes};
    ZB_PUSH(g->arena, s->values, s->nvalues, v);
  }
  ZB_PUSH(g->arena, s->nodes, s->nnodes, n);
  if (!s->backward) s->nforward = s->nnodes;
  return n.out;
}

uint64_t zg_param_count(const ZgGraph *g) {
  uint64_t total = 0;
  for (uint32_t i = 0; i < g->nparams; i++) {
    const ZgParam *p = &g->params[i];
    uint64_t n = p->segment == ZG_NONE ? 1 : g->segments[p->segment].trip;
    for (int a = 0; a < p->type.naxes; a++)
      if (!zb_mul_u64(n, (uint64_t)g->axes[p->type.axis[a]].size, &n)) return UINT64_MAX;
    if (!zb_add_u64(total, n, &total)) return UINT64_MAX;
  }
  return total;
}

/* ---- types ---- */
static void add_axis(ZgType *t, uint16_t axis) {
  if (t->naxes > ZG_MAX_AXES || zg_type_has(t, axis)) return;
  if (t->naxes == ZG_MAX_AXES) {
    t->naxes = ZG_MAX_AXES + 1; /* overflow: the set itself is meaningless now */
    return;
  }
  int i = t->naxes++;
  for (; i > 0 && t->axis[i - 1] > axis; i--) t->axis[i] = t->axis[i - 1];
  t->axis[i] = axis;
}

ZgType zg_type(ZgElem elem, const uint16_t *axes, int n) {
  ZgType t = {.elem = (uint8_t)elem};
  for (int i = 0; i < n; i++) add_axis(&t, axes[i]);
  return t;
}

bool zg_type_has(const ZgType *t, uint16_t axis) {
  for (int i = 0; i < t->naxes && i < ZG_MAX_AXES; i++)
    if (t->axis[i] == axis) return true;
  return false;
}

bool zg_type_eq(const ZgType *a, const ZgType *b) {
  return a->elem == b->elem && a->naxes == b->naxes && a->of == b->of && zg_type_contains(a, b);
}

bool zg_type_contains(const ZgType *a, const ZgType *b) {
  for (int i = 0; i < b->naxes && i < ZG_MAX_AXES; i++)
    if (!zg_type_has(a, b->axis[i])) return false;
  return true;
}

ZgType zg_type_union(const ZgType *a, const ZgType *b) {
  ZgType t = *a;
  for (int i = 0; i < b->naxes && i < ZG_MAX_AXES; i++) add_axis(&t, b->axis[i]);
  return t;
}

bool zg_elements(const ZgGraph *g, const ZgType *t, uint64_t *out) {
  uint64_t n = 1;
  for (int i = 0; i < t->naxes && i < ZG_MAX_AXES; i++) {
    uint64_t size = (uint64_t)g->axes[t->axis[i]].size;
    if (size && (!zb_mul_u64(n, size, &n) || n > ZG_MAX_ELEMENTS)) return false;
  }
  *out = n;
  return true;
}

ZgType zg_type_minus(const ZgType *a, const uint16_t *axes, int n) {
  ZgType t = {.elem = a->elem, .of = a->of};
  for (int i = 0; i < a->naxes; i++) {
    bool drop = false;
    for (int j = 0; j < n; j++) drop |= a->axis[i] == axes[j];
    if (!drop) t.axis[t.naxes++] = a->axis[i];
  }
  return t;
}

const char *zg_type_text(const ZgGraph *g, ZbArena *a, const ZgType *t) {
  ZbText b = {0};
  zg_type_put(g, &b, t);
  const char *s = zb_strndup(a, b.s, b.len);
  zb_text_free(&b);
  return s;
}

void zg_type_put(const ZgGraph *g, ZbText *b, const ZgType *t) { zg_io_put(g, b, &(ZgIo){.type = *t}); }

void zg_io_put(const ZgGraph *g, ZbText *b, const ZgIo *io) {
  const ZgType *t = &io->type;
  zb_text_add(b, "%s", zg_elem_name[t->elem]);
  if (t->elem == ZG_INDEX) zb_text_add(b, "(%s)", g->axes[t->of].name);
  for (int i = 0; i < t->naxes && i < ZG_MAX_AXES; i++)
    zb_text_add(b, "%s%s", i ? ", " : "[", g->axes[t->axis[zg_io_axis(io, i)]].name);
  if (t->naxes) zb_text_put(b, "]", 1);
}

double zg_initial(const ZgParam *p, const double *place, uint32_t iteration) {
  double reg[ZG_MAX_AXES + 1 + ZG_MAX_FORMULA], *step = reg + p->type.naxes + 1;
  for (int a = 0; a < p->type.naxes; a++) reg[a] = place[a];
  reg[p->type.naxes] = iteration;
  for (uint32_t i = 0; i < p->formula->n; i++) {
    const ZgUpdateStep *s = &p->formula->steps[i];
    step[i] = s->op == ZG_OP_FILL ? s->num : zg_pointwise(s->op, reg[s->a], reg[s->b], reg[s->c]);
  }
  return step[p->formula->n - 1];
}

/* A recipe against a graph: names are looked up, sizes bound, dims factored, directives checked, words
 * resolved. After this pass nothing of the recipe is consulted but, for messages, names and places. */
#include "graph/ragged.h"
#include "runtime/plan/bind/bind.h"
#include "runtime/plan/text.h"

#include <string.h>

/* Returns which mesh dimension of the recipe that is; zl_recipe has seen to it that there is one. */
static uint32_t find_mesh(ZpBuild *b, const char *name) {
  const ZlRecipe *r = b->p->asked.recipe;
  for (uint32_t i = 0; i < r->nmesh; i++)
    if (!strcmp(r->mesh[i].name.s, name)) return i;
  ZB_BUG("recipe %s has no mesh dimension %s", r->name, name);
}

/* ---- sizes --------------------------------------------------------------------------------------------- */
static void mark(bool *used, const ZgType *t) {
  for (int i = 0; i < t->naxes; i++) used[t->axis[i]] = true;
  if (t->elem == ZG_INDEX) used[t->of] = true;
}

/* By axis: whether some tensor has it, or some node names it. The compiler drops what no loss reads; an axis
 * that only such tensors had needs no size. `slot` of experts that nothing reads is one. */
static bool *used_axes(const ZpPlan *p) {
  const ZgGraph *g = p->graph;
  bool *used = ZB_NEWN(p->arena, bool, g->naxes + 1);
  for (uint32_t i = 0; i < g->nparams; i++) mark(used, &g->params[i].type);
  for (uint32_t i = 0; i < g->ninputs; i++) mark(used, &g->inputs[i].type);
  for (uint32_t i = 0; i < g->nsegments; i++) {
    const ZgSegment *s = &g->segments[i];
    for (uint32_t v = 0; v < s->nvalues; v++) mark(used, &s->values[v].type);
    for (uint32_t k = 0; k < s->nnodes; k++)
      for (int a = 0; a < s->nodes[k].nax; a++) used[s->nodes[k].ax[a]] = true;
  }
  return used;
}

static void bind_sizes(ZpBuild *b) {
  ZpPlan *p = b->p;
  const ZgGraph *g = p->graph;
  const ZlRecipe *r = p->asked.recipe;
  p->layout.axis_size = ZB_NEWN(p->arena, int64_t, g->naxes);
  p->layout.axis_valid = ZB_NEWN(p->arena, int64_t, g->naxes);
  p->layout.experts = zg_slot_axes(g, p->arena, NULL);
  ZB_ASSERT(p->layout.experts);
  p->layout.load = ZB_NEWN(p->arena, double, g->naxes);
  const bool *used = used_axes(p);
  for (uint32_t i = 0; i < g->naxes; i++) p->layout.axis_size[i] = g->axes[i].size;
  for (uint32_t i = 0; i < r->nbinds; i++) {
    if (r->binds[i].maybe && zg_axis_find(g, r->binds[i].axis.s) == ZG_NONE) continue;
    uint32_t a = zp_find_axis(b, r->binds[i].axis, ZP_AXIS_OF_DATA);
    if (a == ZG_NONE) continue;
    if (g->axes[a].size) {
      zl_help(zl_report(b->d, ZL_Z0805, r->binds[i].span, "`%s` is %lld by the model and cannot be bound",
                        g->axes[a].name, (long long)g->axes[a].size),
              "compile the model with another size, or leave the axis out of `bind`");
      continue;
    }
    p->layout.axis_size[a] = r->binds[i].size;
    if (p->layout.experts[a] != ZG_NO_AXIS || r->binds[i].size || !used[a]) continue;
    zl_report(b->d, ZL_Z0805, r->binds[i].span, "the size of `%s` must be a whole number from 1 to %d",
              g->axes[a].name, INT32_MAX);
  }
  p->asked.batch = zg_axis_find(g, "batch");
  if (p->stream && !zl_errors(b->d)) zp_bind_steps(b);
  for (uint32_t i = 0; i < g->naxes; i++)
    if (p->layout.experts[i] != ZG_NO_AXIS || (!p->layout.axis_size[i] && !used[i] && i != p->asked.batch))
      p->layout.axis_size[i] = 1; /* of experts: slots.c */
  if (p->asked.batch != ZG_NONE && g->axes[p->asked.batch].size) p->asked.batch = ZG_NONE;
  for (uint32_t i = 0; i < g->naxes; i++)
    if (!p->layout.axis_size[i] && !zl_errors(b->d))
      zl_help(zl_report(b->d, ZL_Z0307, r->span, "recipe %s does not give the size of the data axis `%s`",
                        r->name, g->axes[i].name),
              "add `bind %s = N`", g->axes[i].name);
  memcpy(p->layout.axis_valid, p->layout.axis_size, g->naxes * sizeof *p->layout.axis_size);
  for (uint32_t i = 0; i < r->npads; i++) {
    if (r->pads[i].maybe && zg_axis_find(g, r->pads[i].axis.s) == ZG_NONE) continue;
    uint32_t a = zp_find_axis(b, r->pads[i].axis, ZP_AXIS_OF_MODEL);
    if (a == ZG_NONE) continue;
    if (!g->axes[a].size)
      zl_report(b->d, ZL_Z0308, r->pads[i].span, "`%s` is a data axis; only axes of the model can be padded",
                g->axes[a].name);
    p->layout.axis_size[a] =
        (int64_t)zb_round_up((uint64_t)p->layout.axis_size[a], (uint64_t)r->pads[i].size);
  }
}

/* How to give the axes of node n as many elements: by `bind` of one of them, a data axis but not the
 * batch. */
static void help_size(ZpBuild *b, ZlDiag *e, const ZgNode *n) {
  const ZpPlan *p = b->p;
  int k = n->ax[0] == p->asked.batch;
  const ZgAxis *x = &p->graph->axes[n->ax[k]];
  if (!x->size) zl_help(e, "bind %s = %lld", x->name, (long long)p->layout.axis_valid[n->ax[!k]]);
  else zl_help(e, "a smaller `micro`");
}

/* Operations that relate two axes, of which the compiler did not know all sizes. What they see of the batch
 * is a micro-batch. */
static void check_bound_sizes(ZpBuild *b) {
  ZpPlan *p = b->p;
  const ZgGraph *g = p->graph;
  for (uint32_t s = 0; s < g->nsegments; s++)
    for (uint32_t k = 0; k < g->segments[s].nnodes; k++) {
      const ZgNode *n = &g->segments[s].nodes[k];
      if ((n->op != ZG_OP_POSITION || n->nax < 2) && n->op != ZG_OP_RENAME) continue;
      const char *what[2];
      for (int i = 0; i < 2; i++)
        what[i] = zb_printf(p->arena, "`%s` has %lld%s", g->axes[n->ax[i]].name,
                            (long long)p->layout.axis_valid[n->ax[i]],
                            n->ax[i] == p->asked.batch ? " samples in a micro-batch"
                            : i                        ? ""
                                                       : " elements");
      int64_t have = p->layout.axis_valid[n->ax[0]], room = p->layout.axis_valid[n->ax[1]];
      if (n->op == ZG_OP_POSITION ? have <= room : have == room) continue;
      ZlSpan at = zp_bind_span(p->asked.recipe, g->axes[n->ax[n->ax[0] == p->asked.batch]].name);
      ZlDiag *e = zl_report(b->d, ZL_Z0805, at, "%s, %s: %s at %s needs %s", what[0], what[1],
                            zg_op_info[n->op].text, zp_loc_text(p, n->loc),
                            n->op == ZG_OP_POSITION ? "at least as many there" : "as many there");
      help_size(b, e, n);
      return;
    }
}

static void check_pads(ZpBuild *b) {
  const ZlRecipe *r = b->p->asked.recipe;
  for (uint32_t i = 0; i < r->npads; i++) {
    uint32_t a = zg_axis_find(b->p->graph, r->pads[i].axis.s);
    if (a != ZG_NONE && b->p->layout.axis_size[a] != b->p->layout.axis_valid[a] &&
        !zp_check_pad(b, &r->pads[i], (uint16_t)a))
      return;
  }
}

/* ---- mesh ---------------------------------------------------------------------------------------------- */
/* Returns whether the model lacks the axis, as the recipe allows. */
static bool lacks(const ZpBuild *b, const ZlSplit *s, const ZlName *axis, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (zl_is_named(s->maybe, axis[i].s) && zg_axis_find(b->p->graph, axis[i].s) == ZG_NONE) return true;
  return false;
}

/* Returns the product of several axes that is split over a recipe's dim, without those of which the model may
 * lack some and does; NULL: none is. */
static const ZlProd *find_product(ZpBuild *b, const ZlMeshDim *md, const ZlSplit *split) {
  const ZlProd *found = NULL;
  for (uint32_t i = 0; split && i < split->nprods; i++) {
    const ZlProd *q = &split->prods[i];
    if (q->n == 1 || lacks(b, split, q->axis, q->n)) continue;
    if (found)
      zl_report(b->d, ZL_Z0302, q->axis[0].span, "only one product of axes can be split over `%s`",
                md->name.s);
    found = q;
  }
  return found;
}

static void add_axis(ZpBuild *b, ZpDim *d, ZlName name) {
  uint32_t axis = zp_find_axis(b, name, ZP_AXIS_ANY);
  if (axis != ZG_NONE && b->p->stream && !zp_in_step(b->p, (uint16_t)axis)) return;
  if (axis != ZG_NONE && d->size > 1) ZB_PUSH(b->p->arena, d->axes, d->naxes, (uint16_t)axis);
}

/* Adds the axes that a dim splits, those behind `else` last, without what the model may lack and lacks. Of a
 * product the dim has one factor. A dim of one rank splits nothing, whatever the recipe says. */
static void add_axes(ZpBuild *b, ZpDim *d, const ZlSplit *split, uint32_t factor) {
  for (uint32_t i = 0; i < split->nprods; i++) {
    const ZlProd *q = &split->prods[i];
    if (!lacks(b, split, q->axis, q->n)) add_axis(b, d, q->axis[q->n > 1 ? factor : 0]);
  }
  for (uint32_t i = 0; i < split->otherwise.n; i++)
    if (!lacks(b, split, &split->otherwise.at[i], 1)) add_axis(b, d, split->otherwise.at[i]);
}

/* Returns NULL, with a report, if there are too many. */
static ZpDim *add_dim(ZpBuild *b, uint32_t index, int64_t size) {
  ZpMesh *m = &b->p->layout.mesh;
  const ZlName *name = &b->p->asked.recipe->mesh[index].name;
  if (m->ndims == ZP_MAX_DIMS) {
    zl_report(b->d, ZL_Z0808, name->span, "a mesh has at most %d dimensions in this version", ZP_MAX_DIMS);
    return NULL;
  }
  ZpDim *d = &m->dim[m->ndims++];
  *d = (ZpDim){
      .size = size, .directive = index, .name = name->s, .zigzag = ZP_NO_AXIS, .zigzag_up = ZP_NO_AXIS};
  return d;
}

static int64_t common_divisor(int64_t x, int64_t y) {
  while (y) {
    int64_t rest = x % y;
    x = y;
    y = rest;
  }
  return x;
}

/* Adds the dims of one recipe dim: one, or for `split kv*grp` one per factor that is larger than 1. */
static void add_dims(ZpBuild *b, uint32_t index) {
  ZpPlan *p = b->p;
  const ZlMeshDim *md = &p->asked.recipe->mesh[index];
  const ZlSplit *split = zp_split(p, index);
  const ZlProd *prod = find_product(b, md, split);
  int first = p->layout.mesh.ndims;
  int64_t left = md->size;
  for (uint32_t f = 0, factors = prod ? prod->n : 1; f < factors; f++) {
    uint32_t axis = prod ? zp_find_axis(b, prod->axis[f], ZP_AXIS_ANY) : ZG_NONE;
    if (prod && axis == ZG_NONE) return;
    bool last = f + 1 == factors;
    int64_t size = last ? left : common_divisor(p->layout.axis_size[axis], left);
    left /= size;
    if (size == 1 && prod && !(last && p->layout.mesh.ndims == first)) continue;
    ZpDim *d = add_dim(b, index, size);
    if (!d) return;
    if (prod && size != md->size) d->name = zb_printf(p->arena, "%s.%s", md->name.s, prod->axis[f].s);
    if (split) add_axes(b, d, split, f);
  }
}

static bool bind_mesh(ZpBuild *b) {
  ZpPlan *p = b->p;
  const ZlRecipe *r = p->asked.recipe;
  p->layout.mesh.pipe = -1;
  p->layout.mesh.nranks = 1;
  for (uint32_t i = 0; i < r->nmesh; i++) {
    add_dims(b, i);
    if (__builtin_mul_overflow(p->layout.mesh.nranks, r->mesh[i].size, &p->layout.mesh.nranks) ||
        p->layout.mesh.nranks > 1 << 24) {
      zl_report(b->d, ZL_Z0805, r->mesh[i].name.span, "the mesh has more than %d ranks", 1 << 24);
      return false;
    }
  }
  if (r->stages.span.file >= 0) {
    uint32_t index = find_mesh(b, r->stages.dim.s);
    for (int d = 0; d < p->layout.mesh.ndims; d++)
      if (p->layout.mesh.dim[d].directive == index) p->layout.mesh.pipe = d;
  }
  return !zl_errors(b->d);
}

/* The mesh on a cluster: as many ranks as devices, and the traffic of model splits inside the fastest level.
 * The last dim varies fastest, so a dim's ranks lie within `stride * size` neighbours. */
static void check_cluster(ZpBuild *b) {
  const ZlCluster *c = b->o->cluster;
  ZpPlan *p = b->p;
  if (!c || !c->nlevels) return;
  int64_t devices = 1, stride = 1;
  for (uint32_t i = 0; i < c->nlevels; i++) devices *= c->levels[i].size;
  if (p->layout.mesh.nranks > devices)
    zl_report(b->d, ZL_Z0310,
              p->asked.recipe->nmesh ? p->asked.recipe->mesh[0].name.span : p->asked.recipe->span,
              "the mesh has %lld ranks, cluster %s has %lld devices", (long long)p->layout.mesh.nranks,
              c->name, (long long)devices);
  for (int d = p->layout.mesh.ndims; d-- > 0; stride *= p->layout.mesh.dim[d].size) {
    const ZpDim *dim = &p->layout.mesh.dim[d];
    /* Samples and positions, and experts beside them, are split over nodes as they are meant to be; what
     * splits weights within all ranks' tokens has traffic in every layer. */
    bool model = false, data = false;
    for (uint32_t i = 0; i < dim->naxes; i++) {
      data |= !i && !p->graph->axes[dim->axes[i]].size;
      data |= dim->axes[i] == p->asked.batch;
      model |= p->graph->axes[dim->axes[i]].size > 0;
    }
    if (!model || data || c->nlevels < 2 || stride * dim->size <= c->levels[0].size) continue;
    const ZlMeshDim *md = &p->asked.recipe->mesh[dim->directive];
    ZlDiag *e =
        zl_report(b->d, ZL_Z0311, md->name.span, "mesh dimension `%s` (%lld) spans more than one %s of %lld",
                  md->name.s, (long long)dim->size, c->levels[0].name.s, (long long)c->levels[0].size);
    zl_note(e, "its collectives run at %.3g GB/s instead of %.3g GB/s", c->levels[1].bandwidth / 1e9,
            c->levels[0].bandwidth / 1e9);
    zl_help(e, "make it at most %lld, and name it last in the mesh", (long long)c->levels[0].size);
  }
}

/* Axis a does not divide by the dims up to `last` that split it, `by` ranks together. */
static void report_indivisible(ZpBuild *b, uint32_t a, int last, int64_t by) {
  ZpPlan *p = b->p;
  const ZlRecipe *r = p->asked.recipe;
  const ZgAxis *axis = &p->graph->axes[a];
  const ZpDim *dim = &p->layout.mesh.dim[last];
  const char *dims = "", *mesh = r->mesh[dim->directive].name.s;
  for (int d = 0; d <= last; d++)
    if (zp_dim_splits(&p->layout.mesh.dim[d], a))
      dims = zb_printf(p->arena, "%s%s`%s`", dims, *dims ? " x " : "", p->layout.mesh.dim[d].name);
  long long size = p->layout.axis_size[a];
  bool small = size < by && axis->size;
  ZlDiag *e =
      zl_report(b->d, small ? ZL_Z0303 : ZL_Z0301, zp_split_span(p, dim),
                "axis `%s` (%lld) does not divide over %s (%lld)", axis->name, size, dims, (long long)by);
  if (!small && axis->size && zg_axis_is_looked_up(p->graph, a))
    zl_help(e, "`pad %s to %lld` makes it %lld", axis->name, (long long)by,
            (long long)zb_round_up((uint64_t)size, (uint64_t)by));
  else if (small && dim->size == r->mesh[dim->directive].size)
    zl_help(e, "use a smaller `%s`, or for query groups `split %s*GROUPS`", mesh, axis->name);
  else zl_help(e, "use a smaller `%s`, or sizes that divide", mesh);
}

/* Every axis must divide by all dims that may split it. */
static void check_divides(ZpBuild *b) {
  ZpPlan *p = b->p;
  for (uint32_t a = 0; a < p->graph->naxes; a++) {
    int64_t by = 1;
    if (a == p->asked.batch || p->layout.experts[a] != ZG_NO_AXIS) continue; /* batch.c, slots.c */
    for (int d = 0; d < p->layout.mesh.ndims; d++) {
      if (!zp_dim_splits(&p->layout.mesh.dim[d], a)) continue;
      by *= p->layout.mesh.dim[d].size;
      if (p->layout.axis_size[a] % by == 0) continue;
      report_indivisible(b, a, d, by);
      return;
    }
  }
}

/* ---- shard, recompute, precision ----------------------------------------------------------------------- */
static void bind_shards(ZpBuild *b) {
  ZpPlan *p = b->p;
  p->asked.zero.ahead = (uint32_t)p->asked.recipe->prefetch;
  if (p->stream && !p->asked.eval_of) return; /* each step would gather what it reads */
  for (uint32_t i = 0; i < p->asked.recipe->nshards; i++) {
    const ZlShard *s = &p->asked.recipe->shards[i];
    uint32_t index = find_mesh(b, s->dim.s);
    ZB_ASSERT(!i || (p->asked.zero.what == s->what && p->asked.zero.keep == s->keep));
    p->asked.zero.what = s->what;
    p->asked.zero.keep = s->keep;
    for (int d = 0; d < p->layout.mesh.ndims; d++) {
      if (p->layout.mesh.dim[d].directive != index) continue;
      ZB_ASSERT(d != p->layout.mesh.pipe);
      p->asked.zero.over |= 1u << d;
    }
    bool found = !s->nunit;
    for (uint32_t k = 0; s->nunit == 1 && k < p->graph->nsegments; k++)
      found |= p->graph->segments[k].repeat && !strcmp(p->graph->segments[k].label, s->unit[0].s);
    if (!found)
      zl_help(
          zl_report(b->d, ZL_Z0405, s->unit[0].span, "`unit` names no repeat of model %s", p->graph->model),
          "a unit is one iteration of a repeat in this version; name the repeat's label");
  }
}

/* A selector matches a region when its last part is the region's label or block name and each part before it
 * that of the parent, of its parent, ... */
static bool matches(const ZgGraph *g, uint32_t region, const ZlPath *path) {
  for (uint32_t i = path->n; i-- > 0;) {
    if (region == ZG_NONE) return false;
    const ZgRegion *r = &g->regions[region];
    if (strcmp(r->label, path->part[i].s) && strcmp(r->block, path->part[i].s)) return false;
    region = r->parent;
  }
  return true;
}

static void report_part(ZpBuild *b, const ZlPath *path) {
  const ZgGraph *g = b->p->graph;
  const char **names = ZB_NEWN(b->p->arena, const char *, 2 * g->nregions);
  ZbNames seen = {0};
  uint32_t n = 0;
  for (uint32_t r = 1; r < g->nregions; r++) {
    const char *both[] = {g->regions[r].block, g->regions[r].label};
    for (int k = 0; k < 2; k++) {
      if (!*both[k] || zb_names_find(&seen, both[k]) != ZB_NO_NAME) continue;
      zb_names_add(b->p->arena, &seen, both[k]);
      names[n++] = both[k];
    }
  }
  ZlDiag *e =
      zl_report(b->d, ZL_Z0405, path->span, "`recompute` names no block or label of model %s", g->model);
  zp_note_names(e, "blocks and labels", names, n);
  const char *near = zb_nearest(path->part[path->n - 1].s, names, n);
  if (near) zl_help(e, "did you mean `%s`?", near);
}

static void bind_recompute(ZpBuild *b) {
  ZpPlan *p = b->p;
  const ZgGraph *g = p->graph;
  b->recompute = ZB_NEWN(p->arena, bool, g->nregions);
  for (uint32_t i = 0; i < p->asked.recipe->nrecompute; i++) {
    bool found = false;
    for (uint32_t r = 1; r < g->nregions; r++)
      if (matches(g, r, &p->asked.recipe->recompute[i])) found = b->recompute[r] = true;
    if (found) continue;
    report_part(b, &p->asked.recipe->recompute[i]);
  }
  for (uint32_t r = 1; r < g->nregions; r++) { /* parents come first */
    if (g->regions[r].parent != ZG_NONE) b->recompute[r] |= b->recompute[g->regions[r].parent];
  }
}

/* A dim that nothing uses would make ranks do the same work twice. In another plan's arena it is that one's. */
static void check_used(ZpBuild *b) {
  ZpPlan *p = b->p;
  if (p->asked.eval_of) return;
  for (int d = 0; d < p->layout.mesh.ndims; d++) {
    const ZpDim *dim = &p->layout.mesh.dim[d];
    if (dim->size == 1 || dim->naxes || d == p->layout.mesh.pipe || zp_replicates(b, dim->directive))
      continue;
    const ZlName *n = &p->asked.recipe->mesh[dim->directive].name;
    ZlDiag *e = zl_report(b->d, ZL_Z0306, n->span,
                          "mesh dimension `%s` (%lld) splits nothing: its ranks would all do the same work",
                          n->s, (long long)dim->size);
    if (p->stream && zp_split(p, dim->directive))
      zl_help(e, "a step of generation has few tokens: split heads over `%s`, or `batch`", n->s);
    else if (zp_split(p, dim->directive))
      zl_help(e, "name an axis that model %s has in `split ... over %s`", p->graph->model, n->s);
    else zl_help(e, "add `split batch over %s`", n->s);
  }
}

static void check_prefetch(ZpBuild *b) {
  const ZlRecipe *r = b->p->asked.recipe;
  if (r->prefetch_span.file < 0 || r->prefetch == 1 || b->p->stream ||
      b->p->asked.zero.what & ZL_SHARD_PARAMS)
    return;
  zl_help(zl_report(b->d, ZL_Z0809, r->prefetch_span,
                    "`prefetch %lld` has no effect: no parameters are gathered", (long long)r->prefetch),
          "add `shard params, grads, states over` a data dimension, or leave it out");
}

uint64_t zp_limit(const ZpBuild *b) {
  const ZlCluster *c = b->o->cluster;
  bool less = c && c->device_memory && (!b->limit || c->device_memory < b->limit);
  uint64_t limit = less ? c->device_memory : b->limit, own = zp_admission_bytes(b->p);
  return limit > own ? limit - own : limit ? 1 : 0;
}

bool zp_bind(ZpBuild *b) {
  ZpPlan *p = b->p;
  const ZlRecipe *r = p->asked.recipe;
  if (r->model && strcmp(r->model, p->graph->model)) {
    zl_help(zl_report(b->d, ZL_Z0810, r->span, "recipe %s is for model %s; this stage graph is model %s",
                      r->name, r->model, p->graph->model),
            "choose a recipe for %s", p->graph->model);
    return false;
  }
  bind_sizes(b);
  if (zl_errors(b->d) || !bind_mesh(b)) return false;
  check_cluster(b);
  check_divides(b);
  zp_bind_batch(b);
  if (!zl_errors(b->d)) check_bound_sizes(b);
  if (!zl_errors(b->d)) zp_bind_zigzag(b);
  if (!zl_errors(b->d)) zp_bind_slots(b);
  check_pads(b);
  check_used(b);
  bind_shards(b);
  bind_recompute(b);
  p->asked.pins = b->o->pins;
  p->asked.scratch = b->o->scratch;
  p->asked.threads = b->o->threads;
  p->asked.checkpoints = b->o->checkpoints;
  p->asked.repeatable = b->o->repeatable;
  check_prefetch(b);
  zp_warn_wide(b);
  p->asked.tf32 = r->precision.compute && !strcmp(r->precision.compute, "tf32");
  zp_bind_groups(b);
  if (!zl_errors(b->d)) zp_bind_packed(b);
  p->asked.clip = r->clip;
  p->asked.average = p->asked.forward_only ? 0 : r->average;
  p->asked.schedule = zl_schedule(r->schedule);
  ZB_ASSERT(p->asked.schedule);
  if (p->layout.mesh.pipe >= 0 && !r->stages.by_cost) {
    ZB_ASSERT(r->stages.n ==
              p->layout.mesh.dim[p->layout.mesh.pipe].size * zl_schedule_info(p->asked.schedule)->vstages);
    b->stage_items = r->stages.counts;
  }
  b->limit = r->limit.memory;
  if (r->limit.host)
    zl_report(b->d, ZL_Z0809, r->limit.host_span,
              "`limit host` has no effect: nothing is offloaded in this version");
  if (!zl_errors(b->d) && !p->stream && !zp_bind_chunk(b)) return false;
  b->grad_partial = ZB_NEWN(p->arena, ZpDims, p->graph->nparams);
  for (uint32_t i = 0; i < p->graph->nparams; i++) b->grad_partial[i] = zp_all_dims(&p->layout.mesh);
  return !zl_errors(b->d);
}

/* Mesh dims by what a recipe does with them; and the recipe of those who have none: everything is open, with
 * the dims that the model has something to split over. */
#include "graph/ragged.h"
#include "runtime/plan/search/internal.h"

#include <string.h>

/* Fewer positions than these are not given to a rank, unless a recipe asks: other ways to use so many ranks
 * send less. */
enum { LEAST_CHUNK = 4096 };

/* ---- what the model has -------------------------------------------------------------------------------- */
/* Axes that number experts, to whom tokens are dispatched. */
static uint32_t experts_of(const ZgGraph *g, ZbArena *a, uint16_t *to) {
  ZbErr err;
  uint32_t n = 0;
  const uint16_t *experts = zg_slot_axes(g, a, &err);
  for (uint32_t s = 0; experts && s < g->naxes; s++) {
    bool seen = experts[s] == ZG_NO_AXIS;
    for (uint32_t i = 0; i < n; i++) seen |= to[i] == experts[s];
    if (!seen && n < ZG_MAX_AXES) to[n++] = experts[s];
  }
  return n;
}

/* Returns the positions that attend to each other, if the recipe says how many there are and they are of one
 * sequence: an axis of data. ZG_NO_AXIS: there is none. */
static uint16_t sequence_of(const ZgGraph *g) {
  uint16_t found = ZG_NO_AXIS;
  for (uint32_t s = 0; s < g->nsegments; s++)
    for (uint32_t i = 0; i < g->segments[s].nnodes; i++) {
      const ZgNode *n = &g->segments[s].nodes[i];
      if (!zg_is_attend(n->op)) continue;
      ZgAttendAxes ax = zg_attend_axes(n->ax, n->nax);
      if (ax.q != ax.k || g->axes[ax.q].size || (found != ZG_NO_AXIS && found != ax.q)) return ZG_NO_AXIS;
      found = ax.q;
    }
  return found;
}

/* ---- what a recipe does with its dims ------------------------------------------------------------------ */
static bool names_axis(const ZlSplit *s, const char *axis) {
  for (uint32_t i = 0; i < s->nprods; i++)
    if (s->prods[i].n == 1 && !strcmp(s->prods[i].axis[0].s, axis)) return true;
  return false;
}

static bool splits_experts(const Space *x, const ZlSplit *s) {
  uint16_t e[ZG_MAX_AXES];
  uint32_t n = experts_of(x->g, x->a, e);
  bool some = false;
  for (uint32_t i = 0; i < n; i++) some |= names_axis(s, x->g->axes[e[i]].name);
  return some && names_axis(s, "batch");
}

static bool splits_samples(const Space *x, const ZlSplit *s) {
  return names_axis(s, "batch") && !splits_experts(x, s);
}

/* First of all an axis of data that is not the samples. */
static bool splits_sequence(const Space *x, const ZlSplit *s) {
  if (s->open || !s->nprods || s->prods[0].n != 1 || names_axis(s, "batch")) return false;
  uint32_t a = zg_axis_find(x->g, s->prods[0].axis[0].s);
  return a != ZG_NONE && !x->g->axes[a].size;
}

const ZlSplit *space_split(const ZlRecipe *r, const char *dim) {
  for (uint32_t i = 0; dim && i < r->nsplits; i++)
    if (!strcmp(r->splits[i].dim.s, dim)) return &r->splits[i];
  return NULL;
}

static const ZlShard *shard_over(const ZlRecipe *r, const char *dim) {
  for (uint32_t i = 0; i < r->nshards; i++)
    if (!strcmp(r->shards[i].dim.s, dim)) return &r->shards[i];
  return NULL;
}

static Dim kind_of(const Space *x, const char *dim) {
  const ZlSplit *s = space_split(x->base, dim);
  if (x->base->stages.dim.s && !strcmp(x->base->stages.dim.s, dim)) return DIM_PIPE;
  if (s && splits_experts(x, s)) return DIM_EP;
  if (s && splits_sequence(x, s)) return DIM_CONTEXT;
  if (s && !splits_samples(x, s)) return DIM_TENSOR;
  if (shard_over(x->base, dim)) return DIM_DATA;
  /* The last of several dims that split the batch has the nearest ranks. */
  for (uint32_t i = x->base->nmesh; i-- > 0;) {
    const char *other = x->base->mesh[i].name.s;
    const ZlSplit *t = space_split(x->base, other);
    bool data = t && splits_samples(x, t);
    if (data && shard_over(x->base, other)) return DIM_REPLICA;
    if (data) return strcmp(other, dim) ? DIM_REPLICA : DIM_DATA;
  }
  return DIM_DATA;
}

/* Ways in which attention is tried over a sequence that is split: what the recipe says, or all if it is
 * open. */
static void find_ways(Space *x) {
  const ZlAttention *said = NULL;
  for (uint32_t i = 0; i < x->base->nattention; i++) {
    const ZlAttention *a = &x->base->attention[i];
    if (a->dim.s ? !strcmp(a->dim.s, x->name[DIM_CONTEXT]) : !said) said = a;
  }
  x->free_way = said && said->open;
  if (!x->free_way) {
    x->way[x->nways++] = said ? said->way : ZL_ATTENTION_AUTO;
    return;
  }
  x->way[x->nways++] = ZL_ATTENTION_GATHER;
  x->way[x->nways++] = ZL_ATTENTION_HEADS;
  if (!x->plan->pins) x->way[x->nways++] = ZL_ATTENTION_RING;
}

/* A dim that the recipe does nothing with: it would be refused when it is planned. */
static bool is_used(const Space *x, const ZlMeshDim *m, ZlDiags *d) {
  const char *pipe = x->base->stages.dim.s;
  if (m->size == 1 || space_split(x->base, m->name.s) || (pipe && !strcmp(pipe, m->name.s))) return true;
  zl_help(zl_report(d, ZL_Z0306, m->name.span,
                    "mesh dimension `%s` splits nothing: its ranks would all do the same work", m->name.s),
          "add `split batch over %s`", m->name.s);
  return false;
}

bool space_dims(Space *x, ZlDiags *d) {
  const ZlRecipe *r = x->base;
  for (int k = 0; k < DIMS; k++) x->given[k] = -1;
  for (uint32_t i = 0; i < r->nmesh; i++) {
    const ZlMeshDim *m = &r->mesh[i];
    if (!is_used(x, m, d)) return false;
    Dim k = kind_of(x, m->name.s);
    if (x->name[k]) {
      ZlDiag *e = zl_report(d, ZL_Z0808, m->name.span,
                            "`%s` and `%s` do the same: one dimension of a kind can be searched", x->name[k],
                            m->name.s);
      zl_help(e, "leave one of them out");
      return false;
    }
    x->name[k] = m->name.s;
    x->given[k] = m->size;
    x->order[x->norder++] = k;
    if (shard_over(r, m->name.s)) x->zero |= 1u << k;
  }
  if (r->stages.n && x->given[DIM_PIPE] == 0) x->given[DIM_PIPE] = r->stages.n;
  if (x->name[DIM_CONTEXT]) find_ways(x);
  return true;
}

int64_t space_axis(const Space *x, const char *name) {
  uint32_t a = zg_axis_find(x->g, name);
  if (a == ZG_NONE) return 0;
  for (uint32_t i = 0; i < x->base->nbinds; i++)
    if (!strcmp(x->base->binds[i].axis.s, name)) return x->base->binds[i].size;
  int64_t size = x->g->axes[a].size;
  for (uint32_t i = 0; i < x->base->npads; i++)
    if (!strcmp(x->base->pads[i].axis.s, name))
      size = (int64_t)zb_round_up((uint64_t)size, (uint64_t)x->base->pads[i].size);
  return size;
}

/* A size of DIM_EP or DIM_CONTEXT over which the model's axes divide. */
bool space_divides_over(const Space *x, Dim k, int64_t by) {
  const ZlSplit *s = space_split(x->base, x->name[k]);
  if (by == 1) return true;
  for (uint32_t i = 0; i < s->nprods; i++) {
    int64_t size = 1;
    for (uint32_t j = 0; j < s->prods[i].n; j++) {
      int64_t n = strcmp(s->prods[i].axis[j].s, "batch") ? space_axis(x, s->prods[i].axis[j].s) : 0;
      size *= n ? n : by;
    }
    if (size % by) return false;
    if (k == DIM_CONTEXT && i == 0 && x->whole && size / by < LEAST_CHUNK) return false;
  }
  return true;
}

/* ---- a recipe of nothing but `?` ------------------------------------------------------------------------- */
static int64_t given(const ZpSize *bind, uint32_t n, const char *axis) {
  for (uint32_t i = 0; i < n; i++)
    if (!strcmp(bind[i].axis, axis)) return bind[i].size;
  return 0;
}

const char *zp_search_lacks(const ZgGraph *g, const ZpSize *bind, uint32_t nbind) {
  ZbArena *a = zb_arena_new();
  ZbErr err;
  const char *lacks = NULL;
  const uint16_t *slots = zg_slot_axes(g, a, &err);
  for (uint32_t i = 0; i < g->naxes && !lacks; i++)
    if (!g->axes[i].size && !(slots && slots[i] != ZG_NO_AXIS) && !given(bind, nbind, g->axes[i].name))
      lacks = g->axes[i].name;
  zb_arena_free(a);
  return lacks;
}

/* Adds an open dim that splits `axis` and shards. */
static void add_dim(const char *axes, const char *dim, ZbText *t) {
  zb_text_add(t, "split %s over %s shard ? over %s ", axes, dim, dim);
}

void zp_search_open(const ZgGraph *g, const ZlCluster *c, const ZpSize *bind, uint32_t nbind, ZbText *t) {
  ZbArena *a = zb_arena_new();
  uint16_t expert[ZG_MAX_AXES], sequence = sequence_of(g);
  uint32_t n = experts_of(g, a, expert);
  bool samples = given(bind, nbind, "batch") > 0, ep = samples && n;
  const char *seq = sequence == ZG_NO_AXIS ? NULL : g->axes[sequence].name, *rows = "batch";
  bool context = seq && given(bind, nbind, seq) >= 2 * LEAST_CHUNK;
  for (uint32_t i = 0; i < n; i++) rows = zb_printf(a, "%s, %s", rows, g->axes[expert[i]].name);
  zb_text_add(t, "recipe search { mesh pipe = ?, %s%s%stensor = ? ", samples ? "replica = ?, data = ?, " : "",
              ep ? "ep = ?, " : "", context ? "context = ?, " : "");
  for (uint32_t i = 0; i < nbind; i++)
    zb_text_add(t, "bind %s = %lld ", bind[i].axis, (long long)bind[i].size);
  if (samples) zb_text_add(t, "micro ? split batch over replica, data shard ? over data ");
  if (ep) add_dim(rows, "ep", t);
  if (context) add_dim(seq, "context", t);
  if (context) zb_text_add(t, "attention ? over context ");
  zb_text_add(t, "split ? over tensor else ? stages over pipe = ? recompute ? ");
  zb_text_add(t, "precision compute %s ", c->flops_bf16 > c->flops_f32 ? "bf16" : "f32");
  zb_text_add(t, "optimizer adamw(lr = 3e-4) decay 0.1 except norm, bias clip 1.0 }");
  zb_arena_free(a);
}

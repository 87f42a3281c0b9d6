/* A checked record as a recipe of the language: what is read from it says the same. */
#include "lang/words.h"

#include <inttypes.h>
#include <string.h>

static void names(ZbText *t, const ZlName *at, uint32_t n, ZlNames maybe, const char *between) {
  for (uint32_t i = 0; i < n; i++)
    zb_text_add(t, "%s%s%s", i ? between : "", at[i].s, zl_is_named(maybe, at[i].s) ? "?" : "");
}

static void paths(ZbText *t, ZlPaths p) {
  for (uint32_t i = 0; i < p.n; i++) {
    if (i) zb_text_add(t, ", ");
    names(t, p.at[i].part, p.at[i].n, (ZlNames){0}, ".");
  }
}

static void mesh(ZbText *t, const ZlRecipe *r) {
  for (uint32_t i = 0; i < r->nmesh; i++)
    zb_text_add(t, "%s%s = %" PRId64, i ? ", " : "  mesh ", r->mesh[i].name.s, r->mesh[i].size);
  if (r->nmesh) zb_text_add(t, "\n");
  for (uint32_t i = 0; i < r->nbinds; i++) {
    const ZlBind *b = &r->binds[i];
    zb_text_add(t, "%s%s%s = ", i ? ", " : "  bind ", b->axis.s, b->maybe ? "?" : "");
    zb_text_number(t, b->size ? (double)b->size : b->number); /* the latter of slots */
  }
  if (r->nbinds) zb_text_add(t, "\n");
  if (r->micro) zb_text_add(t, "  micro %" PRId64 "\n", r->micro);
  for (uint32_t i = 0; i < r->npads; i++)
    zb_text_add(t, "  pad %s%s to %" PRId64 "\n", r->pads[i].axis.s, r->pads[i].maybe ? "?" : "",
                r->pads[i].size);
}

static void precision(ZbText *t, const ZlRecipe *r) {
  const char *const word[] = {"compute", "params", "reduce", "states"};
  const char *const is[] = {r->precision.compute, r->precision.params, r->precision.reduce,
                            r->precision.states};
  const char *between = "  precision ";
  for (int i = 0; i < 4; i++) {
    if (!is[i]) continue;
    zb_text_add(t, "%s%s %s", between, word[i], is[i]);
    between = ", ";
  }
  if (*between == ',') zb_text_add(t, "\n");
}

static void add_split(ZbText *t, const ZlSplit *s) {
  for (uint32_t k = 0; k < s->nprods; k++) {
    if (k) zb_text_add(t, ", ");
    names(t, s->prods[k].axis, s->prods[k].n, s->maybe, "*");
  }
}

static bool split_alike(const ZlSplit *a, const ZlSplit *b) {
  ZbText x = {0}, y = {0};
  add_split(&x, a);
  add_split(&y, b);
  bool same = !strcmp(x.s, y.s) && !a->otherwise.n && !b->otherwise.n && a->order == b->order;
  zb_text_free(&x);
  zb_text_free(&y);
  return same;
}

/* Dims that split the same are one directive. */
static void splits(ZbText *t, const ZlRecipe *r) {
  for (uint32_t i = 0; i < r->nsplits; i++) {
    const ZlSplit *s = &r->splits[i];
    if (i && split_alike(s - 1, s)) continue;
    zb_text_add(t, "  split ");
    add_split(t, s);
    zb_text_add(t, " over %s", s->dim.s);
    for (uint32_t k = i + 1; k < r->nsplits && split_alike(s, &r->splits[k]); k++)
      zb_text_add(t, ", %s", r->splits[k].dim.s);
    if (s->otherwise.n) zb_text_add(t, " else ");
    names(t, s->otherwise.at, s->otherwise.n, s->maybe, ", ");
    zb_text_add(t, "%s%s\n", s->order ? " " : "", zl_orders[s->order]);
  }
}

static void attention(ZbText *t, const ZlRecipe *r) {
  for (uint32_t i = 0; i < r->nattention; i++) {
    const ZlAttention *a = &r->attention[i];
    zb_text_add(t, "  attention %s", zl_attention_ways[a->way]);
    if (a->dim.s) zb_text_add(t, " over %s", a->dim.s);
    zb_text_add(t, "\n");
  }
}

static void stages(ZbText *t, const ZlRecipe *r) {
  if (r->stages.dim.s) {
    zb_text_add(t, "  stages over %s %s", r->stages.dim.s, r->stages.by_cost ? "by cost" : "= [");
    for (uint32_t i = 0; i < r->stages.n; i++)
      zb_text_add(t, "%s%" PRId64, i ? ", " : "", r->stages.counts[i]);
    zb_text_add(t, "%s\n", r->stages.by_cost ? "" : "]");
  }
  if (r->schedule.s) zb_text_add(t, "  schedule %s\n", r->schedule.s);
}

static void shards(ZbText *t, const ZlRecipe *r) {
  for (uint32_t i = 0; i < r->nshards; i++) {
    const ZlShard *s = &r->shards[i];
    zb_text_add(t, "  shard %s over %s",
                s->what & ZL_SHARD_PARAMS  ? "params, grads, states"
                : s->what & ZL_SHARD_GRADS ? "grads, states"
                                           : "states",
                s->dim.s);
    if (s->nunit) zb_text_add(t, " unit ");
    names(t, s->unit, s->nunit, (ZlNames){0}, ".");
    zb_text_add(t, "%s\n", s->keep ? " keep" : "");
  }
}

static void freezes(ZbText *t, const ZlRecipe *r) {
  if (!r->freeze.all && !r->freeze.of.n) return;
  zb_text_add(t, "  freeze %s", r->freeze.all ? "all" : "");
  paths(t, r->freeze.of);
  if (r->freeze.but.n) zb_text_add(t, " except ");
  paths(t, r->freeze.but);
  zb_text_add(t, "\n");
}

static void optimizer(ZbText *t, const ZlOptimizer *o) {
  if (!o->name.s) return;
  zb_text_add(t, "  optimizer %s(", o->name.s);
  const char *between = "";
  for (uint32_t i = 0; i < o->n; i++) {
    const ZlKw *k = &o->kws[i];
    /* What is so when not said; of some it would be refused. */
    static const char *const idle[] = {"warmup", "stable", "until", "final", "momentum"};
    bool zero = zl_word_index(k->key.s, idle, strcmp(o->name.s, "sgd") ? 4 : 5) >= 0;
    if (k->word ? !strcmp(k->word, "constant") : zero && k->num == 0) continue;
    zb_text_add(t, "%s%s = ", between, k->key.s);
    if (k->word) zb_text_add(t, "%s", k->word);
    else zb_text_number(t, k->num);
    between = ", ";
  }
  zb_text_add(t, ")");
  if (o->of.n) zb_text_add(t, " for ");
  paths(t, o->of);
  if (o->decay != 0) {
    zb_text_add(t, " decay ");
    zb_text_number(t, o->decay);
    if (o->except.n) zb_text_add(t, " except ");
    paths(t, o->except);
  }
  for (uint32_t i = 0; i < o->nshares; i++) {
    zb_text_add(t, ", %s ", o->shares[i].decay ? "decay" : "rate");
    zb_text_number(t, o->shares[i].num);
    zb_text_add(t, " for ");
    paths(t, o->shares[i].of);
  }
  zb_text_add(t, "\n");
}

void zl_recipe_write(const ZlRecipe *r, ZbText *t) {
  zb_text_add(t, "recipe %s", r->name);
  if (r->model) zb_text_add(t, " for %s", r->model);
  zb_text_add(t, " {\n");
  mesh(t, r);
  precision(t, r);
  splits(t, r);
  attention(t, r);
  stages(t, r);
  shards(t, r);
  if (r->nrecompute) {
    zb_text_add(t, "  recompute ");
    paths(t, (ZlPaths){r->recompute, r->nrecompute});
    zb_text_add(t, "\n");
  }
  if (r->prefetch != 1) zb_text_add(t, "  prefetch %" PRId64 "\n", r->prefetch);
  if (r->chunk.axis.s) zb_text_add(t, "  chunk %s = %" PRId64 "\n", r->chunk.axis.s, r->chunk.n);
  freezes(t, r);
  optimizer(t, &r->optimizer);
  for (uint32_t i = 0; i < r->nothers; i++) optimizer(t, &r->others[i]);
  if (r->clip > 0) {
    zb_text_add(t, "  clip ");
    zb_text_number(t, r->clip);
    zb_text_add(t, "\n");
  }
  if (r->average > 0) {
    zb_text_add(t, "  average ");
    zb_text_number(t, r->average);
    zb_text_add(t, "\n");
  }
  if (r->limit.memory) zb_text_add(t, "  limit memory %" PRIu64 " B\n", r->limit.memory);
  if (r->limit.host) zb_text_add(t, "  limit host %" PRIu64 " B\n", r->limit.host);
  zb_text_add(t, "}\n");
}

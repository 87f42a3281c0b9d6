/* What a checked recipe or cluster says, a directive at a time, as text. Two that give the same lists mean
 * the same: all that they hold is here, but for where it stands in a file. */
#include "lang/lang.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  ZlEach *each;
  void *ctx;
  ZbText text;
} List;

static void item(List *l, const char *what) {
  l->each(l->ctx, what, l->text.s ? l->text.s : "");
  l->text.len = 0;
  if (l->text.s) *l->text.s = 0;
}

/* The shortest text that reads as this very number. */
static void number(List *l, const char *what, double x) {
  zb_text_number(&l->text, x);
  item(l, what);
}

static void word(List *l, const char *what, const char *text) {
  zb_text_add(&l->text, "%s", text);
  item(l, what);
}

static void bytes(List *l, const char *what, uint64_t n) {
  if (!n) return;
  zb_text_add(&l->text, "%" PRIu64 " B", n);
  item(l, what);
}

/* "a, b", or with other separators */
static void add_names(ZbText *t, const ZlName *at, uint32_t n, const char *between) {
  for (uint32_t i = 0; i < n; i++) zb_text_add(t, "%s%s", i ? between : "", at[i].s);
}

static void sizes(List *l, const char *what, const ZlBind *b, uint32_t n) {
  if (!n) return;
  for (uint32_t i = 0; i < n; i++) {
    zb_text_add(&l->text, "%s%s%s = ", i ? ", " : "", b[i].axis.s, b[i].maybe ? "?" : "");
    zb_text_number(&l->text, b[i].number);
  }
  item(l, what);
}

/* An item a key: what may be given several times is one, as in "each: head, hd". */
static void settings(List *l, const ZlKw *kws, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    const char *key = kws[i].key.s;
    bool again = false;
    for (uint32_t k = 0; k < i; k++) again |= !strcmp(kws[k].key.s, key);
    if (again) continue;
    for (uint32_t k = i; k < n; k++) {
      if (strcmp(kws[k].key.s, key)) continue;
      if (l->text.len) zb_text_add(&l->text, ", ");
      if (kws[k].word) zb_text_add(&l->text, "%s", kws[k].word);
      else zb_text_number(&l->text, kws[k].num);
    }
    item(l, key);
  }
}

static void mesh(List *l, const ZlRecipe *r) {
  if (!r->nmesh) return;
  for (uint32_t i = 0; i < r->nmesh; i++)
    zb_text_add(&l->text, "%s%s = %" PRId64, i ? ", " : "", r->mesh[i].name.s, r->mesh[i].size);
  item(l, "mesh");
}

/* "head?, ffn" */
static void add_axes(ZbText *t, ZlNames names, ZlNames maybe, const char *between) {
  for (uint32_t i = 0; i < names.n; i++)
    zb_text_add(t, "%s%s%s", i ? between : "", names.at[i].s, zl_is_named(maybe, names.at[i].s) ? "?" : "");
}

static void splits(List *l, const ZlRecipe *r) {
  ZbText *t = &l->text;
  if (!r->nsplits) return;
  for (uint32_t i = 0; i < r->nsplits; i++) {
    const ZlSplit *s = &r->splits[i];
    if (i) zb_text_add(t, "; ");
    for (uint32_t k = 0; k < s->nprods; k++) {
      if (k) zb_text_add(t, ", ");
      add_axes(t, (ZlNames){s->prods[k].axis, s->prods[k].n}, s->maybe, "*");
    }
    zb_text_add(t, " over %s%s", s->dim.s, s->otherwise.n ? " else " : "");
    add_axes(t, s->otherwise, s->maybe, ", ");
    zb_text_add(t, "%s%s", s->order ? " " : "", zl_orders[s->order]);
  }
  item(l, "split");
}

static void shards(List *l, const ZlRecipe *r) {
  ZbText *t = &l->text;
  if (!r->nshards) return;
  for (uint32_t i = 0; i < r->nshards; i++) {
    const ZlShard *s = &r->shards[i];
    zb_text_add(t, "%s%s%sstates over %s", i ? "; " : "", s->what & ZL_SHARD_PARAMS ? "params " : "",
                s->what & ZL_SHARD_GRADS ? "grads " : "", s->dim.s);
    if (s->nunit) zb_text_add(t, " unit ");
    add_names(t, s->unit, s->nunit, ".");
    if (s->keep) zb_text_add(t, " keep");
  }
  item(l, "shard");
}

/* "ring; heads over context" */
static void ways(List *l, const ZlRecipe *r) {
  for (uint32_t i = 0; i < r->nattention; i++) {
    const ZlAttention *a = &r->attention[i];
    zb_text_add(&l->text, "%s%s", i ? "; " : "", zl_attention_ways[a->way]);
    if (a->dim.s) zb_text_add(&l->text, " over %s", a->dim.s);
  }
  if (r->nattention) item(l, "attention");
}

static void stages(List *l, const ZlRecipe *r) {
  if (r->stages.dim.s) {
    zb_text_add(&l->text, "over %s %s", r->stages.dim.s, r->stages.by_cost ? "by cost" : "as");
    for (uint32_t i = 0; i < r->stages.n; i++) zb_text_add(&l->text, " %" PRId64, r->stages.counts[i]);
    item(l, "stages");
  }
  if (r->schedule.s) word(l, "schedule", r->schedule.s);
}

/* "Layer.attn, Mlp" */
static void add_paths(ZbText *t, const ZlPath *at, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    if (i) zb_text_add(t, ", ");
    add_names(t, at[i].part, at[i].n, ".");
  }
}

static void recomputes(List *l, const ZlRecipe *r) {
  if (!r->nrecompute) return;
  add_paths(&l->text, r->recompute, r->nrecompute);
  item(l, "recompute");
}

static void freezes(List *l, const ZlRecipe *r) {
  if (!r->freeze.all && !r->freeze.of.n) return;
  if (r->freeze.all) zb_text_add(&l->text, "all");
  add_paths(&l->text, r->freeze.of.at, r->freeze.of.n);
  if (r->freeze.but.n) zb_text_add(&l->text, " except ");
  add_paths(&l->text, r->freeze.but.at, r->freeze.but.n);
  item(l, "freeze");
}

static void precisions(List *l, const ZlRecipe *r) {
  const char *const names[] = {"precision compute", "precision params", "precision reduce",
                               "precision states"};
  const char *const is[] = {r->precision.compute, r->precision.params, r->precision.reduce,
                            r->precision.states};
  for (int i = 0; i < 4; i++) word(l, names[i], is[i] ? is[i] : "f32");
}

/* "rate 0.1 for embed, decay 0 for norm, bias" */
static void add_shares(ZbText *t, const ZlOptimizer *o) {
  for (uint32_t i = 0; i < o->nshares; i++) {
    zb_text_add(t, "%s%s ", i ? ", " : "", o->shares[i].decay ? "decay" : "rate");
    zb_text_number(t, o->shares[i].num);
    zb_text_add(t, " for ");
    add_paths(t, o->shares[i].of.at, o->shares[i].of.n);
  }
}

/* "optimizer for embed": all of it */
static void other(List *l, const ZlOptimizer *o) {
  ZbText of = {0}, *t = &l->text;
  zb_text_add(&of, "optimizer for ");
  add_paths(&of, o->of.at, o->of.n);
  zb_text_add(t, "%s(", o->name.s);
  for (uint32_t i = 0; i < o->n; i++) {
    zb_text_add(t, "%s%s = ", i ? ", " : "", o->kws[i].key.s);
    if (o->kws[i].word) zb_text_add(t, "%s", o->kws[i].word);
    else zb_text_number(t, o->kws[i].num);
  }
  zb_text_add(t, ") decay ");
  zb_text_number(t, o->decay);
  if (o->except.n) zb_text_add(t, " except ");
  add_paths(t, o->except.at, o->except.n);
  if (o->nshares) zb_text_add(t, ", ");
  add_shares(t, o);
  item(l, of.s);
  zb_text_free(&of);
}

static void optimizer(List *l, const ZlRecipe *r) {
  if (r->optimizer.name.s) word(l, "optimizer", r->optimizer.name.s);
  settings(l, r->optimizer.kws, r->optimizer.n);
  number(l, "decay", r->optimizer.decay);
  add_paths(&l->text, r->optimizer.except.at, r->optimizer.except.n);
  if (r->optimizer.except.n) item(l, "except");
  add_shares(&l->text, &r->optimizer);
  if (r->optimizer.nshares) item(l, "shares");
  for (uint32_t i = 0; i < r->nothers; i++) other(l, &r->others[i]);
}

void zl_recipe_list(const ZlRecipe *r, ZlEach *each, void *ctx) {
  List l = {.each = each, .ctx = ctx};
  word(&l, "name", r->name);
  if (r->model) word(&l, "model", r->model);
  mesh(&l, r);
  sizes(&l, "bind", r->binds, r->nbinds);
  if (r->micro) number(&l, "micro", (double)r->micro);
  splits(&l, r);
  shards(&l, r);
  ways(&l, r);
  stages(&l, r);
  recomputes(&l, r);
  precisions(&l, r);
  freezes(&l, r);
  optimizer(&l, r);
  if (r->clip > 0) number(&l, "clip", r->clip);
  if (r->average > 0) number(&l, "average", r->average);
  if (r->prefetch != 1) number(&l, "prefetch", (double)r->prefetch);
  if (r->chunk.axis.s) {
    zb_text_add(&l.text, "%s = %lld", r->chunk.axis.s, (long long)r->chunk.n);
    item(&l, "chunk");
  }
  sizes(&l, "pad", r->pads, r->npads);
  bytes(&l, "limit memory", r->limit.memory);
  bytes(&l, "limit host", r->limit.host);
  zb_text_free(&l.text);
}

void zl_cluster_list(const ZlCluster *c, ZlEach *each, void *ctx) {
  List l = {.each = each, .ctx = ctx};
  word(&l, "name", c->name);
  bytes(&l, "device memory", c->device_memory);
  bytes(&l, "host memory", c->host_memory);
#define DEVICE(field, word, unit, meaning)                                                                   \
  if (c->field > 0) number(&l, "device " word, c->field);
#define HOST(field, word, unit, meaning)                                                                     \
  if (c->field > 0) number(&l, "host " word, c->field);
#include "lang/cluster.def"
  for (uint32_t i = 0; i < c->nlevels; i++) {
    zb_text_add(&l.text, "%" PRId64, c->levels[i].size);
#define LEVEL(field, word, unit, meaning)                                                                    \
  zb_text_add(&l.text, ", " word " ");                                                                       \
  zb_text_number(&l.text, c->levels[i].field);
#include "lang/cluster.def"
    item(&l, c->levels[i].name.s);
  }
  zb_text_free(&l.text);
}

/* Checked recipes and clusters as text. One walk visits a recipe in the order of directives.def and writes either
 * facts, a name and a text each, or a recipe of the language. Recipes with the same facts mean the same, and the
 * written recipe reads as the same record: everything is here except for places in a file. */
#include "lang/words.h"

#include <inttypes.h>
#include <string.h>

typedef struct {
  ZlEach *each; /* who takes the facts; NULL: a recipe is written */
  void *ctx;
  ZbText *text; /* of the fact that is begun, or of the recipe */
  ZbText name;  /* of the fact that is begun */
  int kind;     /* the directive that is begun; -1: none */
} Walk;

/* ---- where it goes: facts, or a recipe ---- */
static void end_fact(Walk *w) {
  if (w->name.len) w->each(w->ctx, w->name.s, w->text->s ? w->text->s : "");
  w->name.len = w->text->len = 0;
  if (w->text->s) *w->text->s = 0;
}

/* Begins the fact of that name, or goes on with it behind `joint`. */
static void begin_fact(Walk *w, const char *name, const char *joint) {
  if (w->name.len && joint && !strcmp(w->name.s, name)) {
    zb_text_add(w->text, "%s", joint);
    return;
  }
  end_fact(w);
  zb_text_add(&w->name, "%s", name);
}

/* Begins a directive or, where several are one, goes on with it; `part`: its first word, such as `memory` of limits. */
static void begin(Walk *w, ZlDirectiveKind kind, const char *part) {
  static const char *const joints[][2] = {
#define DIRECTIVE(NAME, word, layout, facts, text) {facts, text},
#define NUMBER(...) {NULL, NULL},
#define CHOICE NUMBER
#define LATER NUMBER
#include "lang/directives.def"
  };
  const char *word = zl_directive_words[kind], *blank = part ? " " : "";
  if (!part) part = "";
  if (w->each) {
    ZbText name = {0};
    zb_text_add(&name, "%s%s%s", word, blank, part);
    begin_fact(w, name.s, joints[kind][0]);
    zb_text_free(&name);
  } else {
    if (w->kind == (int)kind && joints[kind][1]) zb_text_add(w->text, "%s", joints[kind][1]);
    else zb_text_add(w->text, "\n  %s ", word);
    zb_text_add(w->text, "%s%s", part, blank);
  }
  w->kind = (int)kind;
}

bool zl_is_layout(const char *what) {
  static const char *const words[] = {
      "name",
      "model",
#define DIRECTIVE(NAME, word, layout, ...) layout ? #word : NULL,
#define NUMBER DIRECTIVE
#define CHOICE DIRECTIVE
#include "lang/directives.def"
  };
  size_t n = strcspn(what, " ");
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (words[i] && strlen(words[i]) == n && !memcmp(what, words[i], n)) return true;
  return false;
}

/* ---- parts of directives ---- */
/* "head?, ffn", or with other separators */
static void put_names(ZbText *t, const ZlName *at, uint32_t n, ZlNames maybe, const char *between) {
  for (uint32_t i = 0; i < n; i++)
    zb_text_add(t, "%s%s%s", i ? between : "", at[i].s, zl_is_named(maybe, at[i].s) ? "?" : "");
}

/* "Layer.attn, Mlp" */
static void put_paths(ZbText *t, const char *before, ZlPaths p) {
  for (uint32_t i = 0; i < p.n; i++) {
    zb_text_add(t, "%s", i ? ", " : before);
    put_names(t, p.at[i].part, p.at[i].n, (ZlNames){0}, ".");
  }
}

static void put_value(ZbText *t, const ZlKw *k) {
  if (k->word) zb_text_add(t, "%s", k->word);
  else zl_amount_put(t, &k->amount, true);
}

/* ---- directives ---- */
static void put_mesh(Walk *w, const ZlRecipe *r) {
  for (uint32_t i = 0; i < r->nmesh; i++) {
    begin(w, ZL_D_MESH, NULL);
    zb_text_add(w->text, "%s = %" PRId64, r->mesh[i].name.s, r->mesh[i].size);
  }
}

static void sizes(Walk *w, ZlDirectiveKind kind, const ZlBind *b, uint32_t n, const char *is) {
  for (uint32_t i = 0; i < n; i++) {
    begin(w, kind, NULL);
    zb_text_add(w->text, "%s%s %s ", b[i].axis.s, b[i].maybe ? "?" : "", is);
    zb_text_number(w->text, b[i].size ? (double)b[i].size : b[i].number); /* the latter of slots */
  }
}

static void put_bind(Walk *w, const ZlRecipe *r) { sizes(w, ZL_D_BIND, r->binds, r->nbinds, "="); }

static void put_pad(Walk *w, const ZlRecipe *r) {
  sizes(w, ZL_D_PAD, r->pads, r->npads, w->each ? "=" : "to");
}

static void put_micro(Walk *w, const ZlRecipe *r) {
  if (!r->micro) return;
  begin(w, ZL_D_MICRO, NULL);
  zb_text_add(w->text, "%" PRId64, r->micro);
}

static void put_precision(Walk *w, const ZlRecipe *r) {
  const char *const words[] = {"compute", "params", "grads", "reduce", "states"};
  const char *const is[] = {r->precision.compute, r->precision.params, r->precision.grads,
                            r->precision.reduce, r->precision.states};
  for (int i = 0; i < 5; i++) {
    if (!is[i] && !w->each) continue;
    begin(w, ZL_D_PRECISION, words[i]);
    zb_text_add(w->text, "%s", is[i] ? is[i] : "f32");
  }
  for (uint32_t i = 0; i < r->npacked; i++) {
    const ZlPacking *p = &r->packed[i];
    ZbText name = {0};
    zb_text_add(&name, "weights");
    if (w->each) put_paths(&name, " for ", p->of);
    begin(w, ZL_D_PRECISION, name.s);
    zb_text_add(w->text, "%s group %" PRId64, p->format, p->group);
    if (!w->each) put_paths(w->text, " for ", p->of);
    put_paths(w->text, " except ", p->but);
    zb_text_free(&name);
  }
}

static void put_prods(ZbText *t, const ZlSplit *s) {
  for (uint32_t k = 0; k < s->nprods; k++) {
    if (k) zb_text_add(t, ", ");
    put_names(t, s->prods[k].axis, s->prods[k].n, s->maybe, "*");
  }
}

static bool split_alike(const ZlSplit *a, const ZlSplit *b) {
  ZbText x = {0}, y = {0};
  put_prods(&x, a);
  put_prods(&y, b);
  bool same = !strcmp(x.s, y.s) && !a->otherwise.n && !b->otherwise.n && a->order == b->order;
  zb_text_free(&x);
  zb_text_free(&y);
  return same;
}

/* Writes dims that split the same as one directive, and as a fact each. */
static void put_split(Walk *w, const ZlRecipe *r) {
  for (uint32_t i = 0, n; i < r->nsplits; i += n) {
    const ZlSplit *s = &r->splits[i];
    begin(w, ZL_D_SPLIT, NULL);
    put_prods(w->text, s);
    zb_text_add(w->text, " over %s", s->dim.s);
    for (n = 1; !w->each && i + n < r->nsplits && split_alike(s, &s[n]); n++)
      zb_text_add(w->text, ", %s", s[n].dim.s);
    if (s->otherwise.n) zb_text_add(w->text, " else ");
    put_names(w->text, s->otherwise.at, s->otherwise.n, s->maybe, ", ");
    zb_text_add(w->text, "%s%s", s->order ? " " : "", zl_orders[s->order]);
  }
}

/* "ring", "heads over context" */
static void put_attention(Walk *w, const ZlRecipe *r) {
  for (uint32_t i = 0; i < r->nattention; i++) {
    const ZlAttention *a = &r->attention[i];
    begin(w, ZL_D_ATTENTION, NULL);
    zb_text_add(w->text, "%s", zl_attention_ways[a->way]);
    if (a->dim.s) zb_text_add(w->text, " over %s", a->dim.s);
  }
}

static void put_stages(Walk *w, const ZlRecipe *r) {
  if (!r->stages.dim.s) return;
  const char *as = w->each ? "as " : "= [", *end = w->each ? "" : "]", *between = w->each ? " " : ", ";
  begin(w, ZL_D_STAGES, NULL);
  zb_text_add(w->text, "over %s %s", r->stages.dim.s, r->stages.by_cost ? "by cost" : as);
  for (uint32_t i = 0; i < r->stages.n; i++)
    zb_text_add(w->text, "%s%" PRId64, i ? between : "", r->stages.counts[i]);
  if (!r->stages.by_cost) zb_text_add(w->text, "%s", end);
}

static void put_shard(Walk *w, const ZlRecipe *r) {
  const char *between = w->each ? " " : ", ";
  for (uint32_t i = 0; i < r->nshards; i++) {
    const ZlShard *s = &r->shards[i];
    begin(w, ZL_D_SHARD, NULL);
    if (s->what & ZL_SHARD_PARAMS) zb_text_add(w->text, "params%s", between);
    if (s->what & ZL_SHARD_GRADS) zb_text_add(w->text, "grads%s", between);
    zb_text_add(w->text, "states over %s%s", s->dim.s, s->nunit ? " unit " : "");
    put_names(w->text, s->unit, s->nunit, (ZlNames){0}, ".");
    if (s->keep) zb_text_add(w->text, " keep");
  }
}

static void put_recompute(Walk *w, const ZlRecipe *r) {
  if (!r->nrecompute) return;
  begin(w, ZL_D_RECOMPUTE, NULL);
  put_paths(w->text, "", (ZlPaths){r->recompute, r->nrecompute});
}

static void put_chunk(Walk *w, const ZlRecipe *r) {
  if (!r->chunk.axis.s) return;
  begin(w, ZL_D_CHUNK, NULL);
  zb_text_add(w->text, "%s = %" PRId64, r->chunk.axis.s, r->chunk.n);
}

static void put_freeze(Walk *w, const ZlRecipe *r) {
  if (!r->freeze.all && !r->freeze.of.n) return;
  begin(w, ZL_D_FREEZE, NULL);
  if (r->freeze.all) zb_text_add(w->text, "all");
  put_paths(w->text, "", r->freeze.of);
  put_paths(w->text, " except ", r->freeze.but);
}

/* "rate 0.1 for embed, decay 0 for norm, bias" */
static void put_shares(ZbText *t, const ZlOptimizer *o, const char *before) {
  for (uint32_t i = 0; i < o->nshares; i++) {
    zb_text_add(t, "%s%s ", i ? ", " : before, o->shares[i].decay ? "decay" : "rate");
    zl_amount_put(t, &o->shares[i].amount, false);
    put_paths(t, " for ", o->shares[i].of);
  }
}

/* Says whether a setting is as if it were not said; some would be refused if they were. */
static bool is_idle(const ZlKw *k) { return k->span.file < 0; }

/* "embed, head except head.b" */
static void put_for(ZbText *t, const char *before, const ZlOptimizer *o) {
  put_paths(t, before, o->of);
  put_paths(t, " except ", o->but);
}

/* "adamw(lr = 0.1) decay 0.01 except norm, rate 0.1 for embed" */
static void whole_optimizer(Walk *w, const ZlOptimizer *o) {
  ZbText *t = w->text, of = {0};
  put_for(&of, "for ", o);
  begin(w, ZL_D_OPTIMIZER, w->each ? of.s : NULL);
  zb_text_add(t, "%s(", o->name.s);
  for (uint32_t i = 0, n = 0; i < o->n; i++) {
    if (!w->each && is_idle(&o->kws[i])) continue;
    zb_text_add(t, "%s%s = ", n++ ? ", " : "", o->kws[i].key.s);
    put_value(t, &o->kws[i]);
  }
  zb_text_add(t, ")");
  if (!w->each) put_for(t, " for ", o);
  if (w->each || o->decay.num != 0 || o->decay.of || o->decay.nthen) {
    zb_text_add(t, " decay ");
    zl_amount_put(t, &o->decay, false);
    put_paths(t, " except ", o->except);
  }
  put_shares(t, o, ", ");
  zb_text_free(&of);
}

/* Makes a fact of each setting. */
static void optimizer_facts(Walk *w, const ZlOptimizer *o) {
  if (o->name.s) {
    begin(w, ZL_D_OPTIMIZER, NULL);
    zb_text_add(w->text, "%s", o->name.s);
  }
  for (uint32_t i = 0; i < o->n;
       i++) { /* what may be given several times is one fact, as in "each: head, hd" */
    begin_fact(w, o->kws[i].key.s, ", ");
    put_value(w->text, &o->kws[i]);
  }
  begin_fact(w, "decay", NULL);
  zl_amount_put(w->text, &o->decay, false);
  if (o->except.n) begin_fact(w, "except", NULL);
  put_paths(w->text, "", o->except);
  if (o->nshares) begin_fact(w, "shares", NULL);
  put_shares(w->text, o, "");
}

static void put_optimizer(Walk *w, const ZlRecipe *r) {
  if (w->each) optimizer_facts(w, &r->optimizer);
  else if (r->optimizer.name.s) whole_optimizer(w, &r->optimizer);
  for (uint32_t i = 0; i < r->nothers; i++) whole_optimizer(w, &r->others[i]);
}

static void put_limit(Walk *w, const ZlRecipe *r) {
  const char *const words[] = {"memory", "host"};
  const uint64_t is[] = {r->limit.memory, r->limit.host};
  for (int i = 0; i < 2; i++) {
    if (!is[i]) continue;
    begin(w, ZL_D_LIMIT, words[i]);
    zb_text_add(w->text, "%" PRIu64 " B", is[i]);
  }
}

static void put_number(Walk *w, ZlDirectiveKind kind, double is, double none) {
  if (is == none) return;
  begin(w, kind, NULL);
  zb_text_number(w->text, is);
}

static void put_choice(Walk *w, ZlDirectiveKind kind, const char *word) {
  if (!word) return;
  begin(w, kind, NULL);
  zb_text_add(w->text, "%s", word);
}

static void walk(Walk *w, const ZlRecipe *r) {
#define DIRECTIVE(NAME, word, ...) put_##word(w, r);
#define NUMBER(NAME, word, layout, type, none, ...) put_number(w, ZL_D_##NAME, (double)r->word, none);
#define CHOICE(NAME, word, ...) put_choice(w, ZL_D_##NAME, r->word.s);
#include "lang/directives.def"
}

/* ---- the whole ---- */
static void fact(Walk *w, const char *name, const char *text) {
  begin_fact(w, name, NULL);
  zb_text_add(w->text, "%s", text);
}

static void number_fact(Walk *w, const char *name, double x) {
  if (!(x > 0)) return;
  begin_fact(w, name, NULL);
  zb_text_number(w->text, x);
}

static void bytes_fact(Walk *w, const char *name, uint64_t n) {
  if (!n) return;
  begin_fact(w, name, NULL);
  zb_text_add(w->text, "%" PRIu64 " B", n);
}

void zl_recipe_list(const ZlRecipe *r, ZlEach *each, void *ctx) {
  ZbText text = {0};
  Walk w = {.each = each, .ctx = ctx, .text = &text, .kind = -1};
  fact(&w, "name", r->name);
  if (r->model) fact(&w, "model", r->model);
  walk(&w, r);
  end_fact(&w);
  zb_text_free(&w.name);
  zb_text_free(&text);
}

void zl_recipe_write(const ZlRecipe *r, ZbText *out) {
  Walk w = {.text = out, .kind = -1};
  zb_text_add(out, "recipe %s%s%s {", r->name, r->model ? " for " : "", r->model ? r->model : "");
  walk(&w, r);
  zb_text_add(out, "\n}\n");
}

void zl_cluster_list(const ZlCluster *c, ZlEach *each, void *ctx) {
  ZbText text = {0};
  Walk w = {.each = each, .ctx = ctx, .text = &text};
  fact(&w, "name", c->name);
  bytes_fact(&w, "device memory", c->device_memory);
  bytes_fact(&w, "host memory", c->host_memory);
#define DEVICE(field, word, unit, meaning) number_fact(&w, "device " word, c->field);
#define HOST(field, word, unit, meaning) number_fact(&w, "host " word, c->field);
#include "lang/cluster.def"
  for (uint32_t i = 0; i < c->nlevels; i++) {
    begin_fact(&w, c->levels[i].name.s, NULL);
    zb_text_add(&text, "%" PRId64, c->levels[i].size);
#define LEVEL(field, word, unit, meaning)                                                                    \
  zb_text_add(&text, ", " word " ");                                                                         \
  zb_text_number(&text, c->levels[i].field);
#include "lang/cluster.def"
  }
  end_fact(&w);
  zb_text_free(&w.name);
  zb_text_free(&text);
}

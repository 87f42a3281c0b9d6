#include "tests/unit/lang/records.h"

/* " @3:7-12": line and columns; nothing for nowhere. */
static void place(const ZlSources *s, ZlSpan span, ZbText *out) {
  uint32_t line, col;
  if (span.file < 0) return;
  zl_source_place(s, span, &line, &col);
  zb_text_add(out, " @%u:%u-%u", line, col, col + span.end - span.start);
}

static void name(const ZlSources *s, ZlName n, ZbText *out) {
  zb_text_add(out, " %s", n.s ? n.s : "-");
  place(s, n.span, out);
}

static void names(const ZlSources *s, const char *what, ZlNames n, ZbText *out) {
  if (n.n) zb_text_add(out, " %s", what);
  for (uint32_t i = 0; i < n.n; i++) name(s, n.at[i], out);
}

static void line(const ZlSources *s, ZlSpan span, ZbText *out) {
  if (span.file >= 0) zb_text_add(out, "  span");
  place(s, span, out);
  zb_text_add(out, "\n");
}

static void kws(const ZlSources *s, const ZlKw *kw, uint32_t n, ZbText *out) {
  for (uint32_t i = 0; i < n; i++) {
    zb_text_add(out, "\n    ");
    name(s, kw[i].key, out);
    if (kw[i].word) zb_text_add(out, " = %s", kw[i].word);
    else zb_text_add(out, " = %.9g", kw[i].num);
    place(s, kw[i].span, out);
  }
}

static void binds(const ZlSources *s, const char *what, const ZlBind *b, uint32_t n, ZbText *out) {
  for (uint32_t i = 0; i < n; i++) {
    zb_text_add(out, "  %s", what);
    name(s, b[i].axis, out);
    zb_text_add(out, "%s = %lld", b[i].maybe ? "?" : "", (long long)b[i].size);
    if (!b[i].size) zb_text_add(out, ", %.9g", b[i].number);
    line(s, b[i].span, out);
  }
}

static void put_split(const ZlSources *s, const ZlSplit *split, ZbText *out) {
  zb_text_add(out, "  split");
  for (uint32_t i = 0; i < split->nprods; i++) {
    zb_text_add(out, i ? " ," : "");
    for (uint32_t k = 0; k < split->prods[i].n; k++) name(s, split->prods[i].axis[k], out);
  }
  zb_text_add(out, " over");
  name(s, split->dim, out);
  names(s, "else", split->otherwise, out);
  names(s, "maybe", split->maybe, out);
  if (split->order) zb_text_add(out, " %s", zl_orders[split->order]);
  line(s, split->span, out);
}

static void put_shard(const ZlSources *s, const ZlShard *shard, ZbText *out) {
  zb_text_add(out, "  shard%s%s%s over", shard->what & ZL_SHARD_PARAMS ? " params" : "",
              shard->what & ZL_SHARD_GRADS ? " grads" : "", shard->what & ZL_SHARD_STATES ? " states" : "");
  name(s, shard->dim, out);
  names(s, "unit", (ZlNames){shard->unit, shard->nunit}, out);
  if (shard->keep) zb_text_add(out, " keep");
  line(s, shard->span, out);
}

static void paths(const ZlSources *s, const char *what, ZlPaths p, ZbText *out) {
  if (p.n) zb_text_add(out, " %s", what);
  for (uint32_t i = 0; i < p.n; i++)
    for (uint32_t k = 0; k < p.at[i].n; k++) {
      if (k) zb_text_add(out, " .");
      name(s, p.at[i].part[k], out);
    }
}

static void put_shares(const ZlSources *s, const ZlOptimizer *o, ZbText *out) {
  for (uint32_t i = 0; i < o->nshares; i++) {
    zb_text_add(out, "\n    %s %.9g", o->shares[i].decay ? "decay" : "rate", o->shares[i].amount.num);
    paths(s, "for", o->shares[i].of, out);
  }
}

static void put_attention(const ZlSources *s, const ZlAttention *a, ZbText *out) {
  zb_text_add(out, "  attention %s over", zl_attention_ways[a->way]);
  name(s, a->dim, out);
  line(s, a->span, out);
}

static void put_words(const ZlSources *s, const ZlRecipe *r, ZbText *out) {
  zb_text_add(out, "  schedule");
  name(s, r->schedule, out);
  zb_text_add(out, "\n");
  for (uint32_t i = 0; i < r->nrecompute; i++) {
    zb_text_add(out, "  recompute");
    names(s, "path", (ZlNames){r->recompute[i].part, r->recompute[i].n}, out);
    line(s, r->recompute[i].span, out);
  }
  const char *types[] = {r->precision.compute, r->precision.params, r->precision.reduce, r->precision.states};
  zb_text_add(out, "  precision");
  for (int i = 0; i < 4; i++) zb_text_add(out, " %s", types[i] ? types[i] : "-");
  line(s, r->precision.span, out);
  zb_text_add(out, "  optimizer");
  name(s, r->optimizer.name, out);
  kws(s, r->optimizer.kws, r->optimizer.n, out);
  zb_text_add(out, "\n    decay %.9g", r->optimizer.decay.num);
  paths(s, "except", r->optimizer.except, out);
  put_shares(s, &r->optimizer, out);
  line(s, r->optimizer.span, out);
  for (uint32_t i = 0; i < r->nothers; i++) {
    const ZlOptimizer *o = &r->others[i];
    zb_text_add(out, "  optimizer");
    name(s, o->name, out);
    kws(s, o->kws, o->n, out);
    paths(s, "for", o->of, out);
    zb_text_add(out, "\n    decay %.9g", o->decay.num);
    paths(s, "except", o->except, out);
    put_shares(s, o, out);
    line(s, o->span, out);
  }
  zb_text_add(out, "  clip %.9g", r->clip);
  line(s, r->clip_span, out);
  if (r->average != 0) zb_text_add(out, "  average %.9g\n", r->average);
  if (r->prefetch_span.file >= 0) {
    zb_text_add(out, "  prefetch %lld", (long long)r->prefetch);
    line(s, r->prefetch_span, out);
  }
  if (r->chunk.axis.s) {
    zb_text_add(out, "  chunk");
    name(s, r->chunk.axis, out);
    zb_text_add(out, " = %lld", (long long)r->chunk.n);
    line(s, r->chunk.span, out);
  }
  if (!r->freeze.all && !r->freeze.of.n) return;
  zb_text_add(out, "  freeze%s", r->freeze.all ? " all" : "");
  paths(s, "names", r->freeze.of, out);
  paths(s, "but", r->freeze.but, out);
  line(s, r->freeze.span, out);
}

void put_recipe(const ZlSources *s, const ZlRecipe *r, ZbText *out) {
  zb_text_add(out, "recipe %s for %s", r->name, r->model ? r->model : "any");
  line(s, r->span, out);
  for (uint32_t i = 0; i < r->nmesh; i++) {
    zb_text_add(out, "  mesh");
    name(s, r->mesh[i].name, out);
    zb_text_add(out, " = %lld\n", (long long)r->mesh[i].size);
  }
  binds(s, "bind", r->binds, r->nbinds, out);
  zb_text_add(out, "  micro %lld", (long long)r->micro);
  line(s, r->micro_span, out);
  for (uint32_t i = 0; i < r->nsplits; i++) put_split(s, &r->splits[i], out);
  for (uint32_t i = 0; i < r->nshards; i++) put_shard(s, &r->shards[i], out);
  for (uint32_t i = 0; i < r->nattention; i++) put_attention(s, &r->attention[i], out);
  zb_text_add(out, "  stages over");
  name(s, r->stages.dim, out);
  zb_text_add(out, r->stages.by_cost ? " by cost" : "");
  for (uint32_t i = 0; i < r->stages.n; i++) zb_text_add(out, " %lld", (long long)r->stages.counts[i]);
  line(s, r->stages.span, out);
  put_words(s, r, out);
  binds(s, "pad", r->pads, r->npads, out);
  zb_text_add(out, "  limit memory %llu", (unsigned long long)r->limit.memory);
  line(s, r->limit.memory_span, out);
  zb_text_add(out, "  limit host %llu", (unsigned long long)r->limit.host);
  line(s, r->limit.host_span, out);
}

static void said(const char *word, double value, ZbText *out) {
  if (value != 0) zb_text_add(out, ", %s %.9g", word, value);
}

void put_cluster(const ZlSources *s, const ZlCluster *c, ZbText *out) {
  zb_text_add(out, "cluster %s", c->name);
  line(s, c->span, out);
  zb_text_add(out, "  device memory %llu", (unsigned long long)c->device_memory);
#define DEVICE(field, word, unit, meaning) said(word, c->field, out);
#include "lang/cluster.def"
  zb_text_add(out, "\n  host memory %llu", (unsigned long long)c->host_memory);
#define HOST(field, word, unit, meaning) said(word, c->field, out);
#include "lang/cluster.def"
  zb_text_add(out, "\n");
  for (uint32_t i = 0; i < c->nlevels; i++) {
    zb_text_add(out, "  level");
    name(s, c->levels[i].name, out);
    zb_text_add(out, " %lld", (long long)c->levels[i].size);
#define LEVEL(field, word, unit, meaning) said(word, c->levels[i].field, out);
#include "lang/cluster.def"
    zb_text_add(out, "\n");
  }
}

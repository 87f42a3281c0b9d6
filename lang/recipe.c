/* Recipes: from directives as written to one checked record with everything it inherits.
 *
 * A recipe is its ancestors applied from the root down, then itself. A directive replaces the inherited one
 * of the same key: split and shard have one for each mesh dimension; attention has one for each, and one without;
 * optimizer for each list behind its `for`, one without, and one for `all`; bind and pad for each axis; precision
 * and limit for each of their words, precision's `weights` for each list behind its `for`, and one without; all
 * others have one. Within one body the same key twice is a mistake. Nothing is accepted
 * that has no meaning. */
#include "lang/words.h"

#include <math.h>
#include <string.h>

enum {
  MAX_CHAIN = 64,        /* recipes that inherit from each other */
  MAX_WORDS = 4096,      /* directives of one recipe with what it inherits, and what they list */
  MAX_CHECKED = 4 << 20, /* the same of all recipes of a file */
  MOST_CHUNKS = 64
};

/* The keys of one kind of directive that a body sets; "" if the directive has but one. */
typedef struct {
  ZbNames keys;
  ZlSpan *spans;
  uint32_t n;
} Seen;

typedef struct {
  ZlDiags *d;
  ZbArena *arena;
  ZlRecipe *r;
  bool bad;
  Seen seen[ZL_DIRECTIVES];                               /* of the body being applied */
  ZbNames bind_names, pad_names, split_names, mesh_names; /* by number in the recipe's arrays */
  uint32_t words;
  const ZlDirective **optimizers, *all; /* by what they are for; `optimizer all`, or NULL */
  uint32_t noptimizers;
} Build;

#define BAD(b, ...) ((b)->bad = true, zl_report((b)->d, __VA_ARGS__))

/* Notes that this body sets `key` of a directive; false and a report if it did before. */
static bool once(Build *b, ZlDirectiveKind kind, const char *key, ZlSpan span) {
  Seen *seen = &b->seen[kind];
  uint32_t i = zb_names_find(&seen->keys, key);
  if (i == ZB_NO_NAME) {
    zb_names_add(b->arena, &seen->keys, key);
    ZB_PUSH(b->arena, seen->spans, seen->n, span);
    return true;
  }
  ZlDiag *g = BAD(b, ZL_Z0803, span, "`%s%s%s` is given twice in one recipe", zl_directive_words[kind],
                  *key ? " " : "", key);
  zl_also(g, seen->spans[i], "first here");
  return false;
}

/* A whole number of at least 1, small enough to multiply a few of. */
static bool positive(Build *b, const char *what, const ZlQuantity *q) {
  if (q->integer && q->i >= 1 && q->i <= INT32_MAX) return true;
  BAD(b, ZL_Z0805, q->span, "%s must be a whole number from 1 to %d", what, INT32_MAX);
  return false;
}

/* `what` removes what was inherited, by a name; nothing was. */
static ZlDiag *removes_nothing(Build *b, ZlSpan span, const char *what) {
  return zl_report(b->d, ZL_Z0809, span, "`%s` has no effect: there is none to remove", what);
}

static uint32_t count(const char *const *words) {
  uint32_t n = 0;
  while (words[n]) n++;
  return n;
}

static int among(const char *const *words, const char *word) {
  return zl_word_index(word, words, (int)count(words));
}

/* Returns "`gpipe` and `1f1b`", the default last. */
static const char *words_text(ZbArena *a, const char *const *words) {
  uint32_t n = count(words);
  const char *text = "";
  for (uint32_t i = 0; i < n; i++)
    text = zb_printf(a, "%s%s`%s`", text, !i ? "" : i + 1 < n ? ", " : " and ", words[n - 1 - i]);
  return text;
}

/* ---- directives that name sizes ---- */
static void apply_mesh(Build *b, const ZlDirective *d) {
  ZlRecipe *r = b->r;
  if (!once(b, ZL_D_MESH, "", d->span)) return;
  r->mesh = NULL;
  r->nmesh = 0;
  b->mesh_names = (ZbNames){0};
  uint64_t ranks = 1;
  for (uint32_t i = 0; i < d->nq; i++) {
    const ZlQuantity *q = &d->q[i];
    if (!once(b, ZL_D_MESH, q->name.s, q->name.span)) continue;
    if (!q->open && !positive(b, "a mesh dimension", q)) continue;
    if ((!q->open && !zb_mul_u64(ranks, (uint64_t)q->i, &ranks)) || ranks > 1 << 24) {
      BAD(b, ZL_Z0805, d->span, "the mesh has more than %d ranks", 1 << 24);
      return;
    }
    ZB_PUSH(b->arena, r->mesh, r->nmesh, ((ZlMeshDim){q->name, q->i}));
    zb_names_add(b->arena, &b->mesh_names, q->name.s);
  }
}

/* bind and pad: one entry for each axis. */
static void sizes(Build *b, const ZlDirective *d, ZbNames *names, ZlBind **at, uint32_t *n) {
  for (uint32_t i = 0; i < d->nq; i++) {
    const ZlQuantity *q = &d->q[i];
    bool part = d->kind == ZL_D_BIND && !q->integer && q->value > 0 && isfinite(q->value);
    if (!once(b, d->kind, q->name.s, q->name.span) || !(part || positive(b, "the size of an axis", q)))
      continue;
    ZlBind v = {q->name, part ? 0 : q->i, q->value, q->span, zl_is_named(d->maybe, q->name.s)};
    uint32_t k = zb_names_find(names, q->name.s);
    if (k != ZB_NO_NAME) {
      (*at)[k] = v;
      continue;
    }
    zb_names_add(b->arena, names, q->name.s);
    ZB_PUSH(b->arena, *at, *n, v);
  }
}

static void apply_bind(Build *b, const ZlDirective *d) {
  sizes(b, d, &b->bind_names, &b->r->binds, &b->r->nbinds);
}

static void apply_pad(Build *b, const ZlDirective *d) {
  sizes(b, d, &b->pad_names, &b->r->pads, &b->r->npads);
}

static void apply_micro(Build *b, const ZlDirective *d) {
  ZlQuantity q = {.integer = d->num.integer, .i = d->num.i, .span = d->num.span};
  if (!once(b, ZL_D_MICRO, "", d->span) || (!d->open && !positive(b, "`micro`", &q))) return;
  b->r->micro = d->open ? 0 : q.i;
  b->r->micro_span = d->span;
  b->r->open.micro = d->open ? d->span : ZL_NOWHERE;
}

static void apply_limit(Build *b, const ZlDirective *d) {
  static const char *const words[] = {"memory", "host"};
  for (uint32_t i = 0; i < d->nq; i++) {
    const ZlQuantity *q = &d->q[i];
    bool host = strcmp(q->name.s, "host") == 0;
    if (!host && strcmp(q->name.s, "memory") != 0) {
      ZlDiag *g = BAD(b, ZL_Z0804, q->name.span, "no limit is called `%s`", q->name.s);
      zl_note(g, "there are `memory` and `host`");
      zl_help_nearest(g, q->name.s, words, 2);
    } else if (once(b, ZL_D_LIMIT, q->name.s, q->name.span)) {
      if (!zl_quantity_ok(b->d, q, ZL_U_BYTES, zb_printf(b->arena, "`limit %s`", q->name.s))) {
        b->bad = true;
        continue;
      }
      *(host ? &b->r->limit.host : &b->r->limit.memory) = (uint64_t)q->value;
      *(host ? &b->r->limit.host_span : &b->r->limit.memory_span) = q->span;
    }
  }
}

/* ---- directives over a mesh dimension ---- */
static void axis_once(Build *b, ZlName axis, Seen *seen) {
  uint32_t i = zb_names_find(&seen->keys, axis.s);
  if (i == ZB_NO_NAME) {
    zb_names_add(b->arena, &seen->keys, axis.s);
    ZB_PUSH(b->arena, seen->spans, seen->n, axis.span);
    return;
  }
  ZlDiag *g = BAD(b, ZL_Z0803, axis.span, "axis `%s` is listed twice", axis.s);
  zl_also(g, seen->spans[i], "first here");
}

static void apply_split(Build *b, const ZlDirective *d) {
  ZlRecipe *r = b->r;
  Seen axes = {0};
  for (uint32_t i = 0; i < d->nprods; i++)
    for (uint32_t k = 0; k < d->prods[i].n; k++) axis_once(b, d->prods[i].axis[k], &axes);
  for (uint32_t i = 0; i < d->others.n; i++) axis_once(b, d->others.at[i], &axes);
  for (uint32_t i = 0; i < d->names.n; i++) {
    ZlName dim = d->names.at[i];
    if (!once(b, ZL_D_SPLIT, zb_printf(b->arena, "over %s", dim.s), dim.span)) continue;
    ZlSplit s = {.prods = d->prods,
                 .nprods = d->nprods,
                 .dim = dim,
                 .otherwise = d->others,
                 .maybe = d->maybe,
                 .open = d->open,
                 .open_else = d->open_else,
                 .order = d->order,
                 .span = d->span};
    uint32_t k = zb_names_find(&b->split_names, dim.s);
    if (k != ZB_NO_NAME) {
      r->splits[k] = s;
      continue;
    }
    zb_names_add(b->arena, &b->split_names, dim.s);
    ZB_PUSH(b->arena, r->splits, r->nsplits, s);
  }
}

static unsigned shard_levels(Build *b, const ZlDirective *d) {
  static const char *const words[] = {"states", "grads", "params", "none"};
  unsigned what = 0;
  for (uint32_t i = 0; i < d->names.n; i++) {
    ZlName n = d->names.at[i];
    uint32_t k = 0;
    while (k < 3 && strcmp(words[k], n.s) != 0) k++;
    if (k == 3) {
      ZlDiag *g = BAD(b, ZL_Z0804, n.span, "`%s` cannot be sharded", n.s);
      zl_note(g, "there are `params`, `grads` and `states`, or `none` alone");
      zl_help_nearest(g, n.s, words, 3);
      return 0;
    }
    if (what & 1u << k) {
      BAD(b, ZL_Z0803, n.span, "`%s` is listed twice", n.s);
      return 0;
    }
    what |= 1u << k;
  }
  if (what == ZL_SHARD_STATES || what == (ZL_SHARD_STATES | ZL_SHARD_GRADS) || what == 7) return what;
  ZlSpan span = {d->span.file, d->names.at[0].span.start, d->names.at[d->names.n - 1].span.end};
  ZlDiag *g = BAD(b, ZL_Z0806, span, "these cannot be sharded without the others");
  zl_note(g, "the levels are `states`, `grads, states` and `params, grads, states`");
  zl_help(g, "write `shard %s over %s`", what & ZL_SHARD_PARAMS ? "params, grads, states" : "grads, states",
          d->word.s);
  return 0;
}

static void no_such_shard(Build *b, const ZlDirective *d) {
  const char **dims = NULL;
  uint32_t n = 0;
  for (uint32_t i = 0; i < b->r->nshards; i++) ZB_PUSH(b->arena, dims, n, b->r->shards[i].dim.s);
  ZlDiag *g = removes_nothing(b, d->span, zb_printf(b->arena, "shard none over %s", d->word.s));
  if (n) zl_also(g, b->r->shards[0].span, "this stays");
  if (zb_nearest(d->word.s, dims, n)) zl_help_nearest(g, d->word.s, dims, n);
  else zl_help(g, "leave it out");
}

static void apply_shard(Build *b, const ZlDirective *d) {
  ZlRecipe *r = b->r;
  if (!once(b, ZL_D_SHARD, zb_printf(b->arena, "over %s", d->word.s), d->word.span)) return;
  uint32_t k = 0;
  while (k < r->nshards && strcmp(r->shards[k].dim.s, d->word.s) != 0) k++;
  if (d->names.n == 1 && strcmp(d->names.at[0].s, "none") == 0) {
    if (d->unit.n || d->keep) BAD(b, ZL_Z0805, d->span, "`shard none` takes neither `unit` nor `keep`");
    if (k < r->nshards) r->shards[k] = r->shards[--r->nshards];
    else if (!b->bad) no_such_shard(b, d);
    return;
  }
  ZlShard s = {.dim = d->word,
               .unit = d->unit.part,
               .nunit = d->unit.n,
               .keep = d->keep,
               .open = d->open,
               .span = d->span};
  if (!d->open && !(s.what = shard_levels(b, d))) return;
  if (s.keep && !(s.what & ZL_SHARD_PARAMS)) {
    ZlDiag *g = BAD(b, ZL_Z0806, d->span, "`keep` needs `params` among what is sharded");
    zl_help(g, "it says that gathered params stay for the whole step; leave it out");
  }
  if (k < r->nshards) r->shards[k] = s;
  else ZB_PUSH(b->arena, r->shards, r->nshards, s);
}

static void apply_stages(Build *b, const ZlDirective *d) {
  ZlRecipe *r = b->r;
  if (!once(b, ZL_D_STAGES, "", d->span)) return;
  r->stages.dim = d->word;
  r->stages.span = d->span;
  r->stages.by_cost = d->by.s != NULL;
  r->open.stages = d->open ? d->span : ZL_NOWHERE;
  r->stages.counts = NULL;
  r->stages.n = 0;
  if (d->by.s && strcmp(d->by.s, "cost") != 0)
    zl_help(BAD(b, ZL_Z0804, d->by.span, "stages are not cut by `%s`", d->by.s),
            "write `by cost`, or give the layers of each stage: `= [2, 4, 4, 2]`");
  for (uint32_t i = 0; i < d->nq; i++) {
    const ZlQuantity *q = &d->q[i];
    if (!q->integer || q->i < 1 || q->i > INT32_MAX) {
      BAD(b, ZL_Z0805, q->span, "the layers of a stage must be a whole number of at least 1");
      continue;
    }
    ZB_PUSH(b->arena, r->stages.counts, r->stages.n, q->i);
  }
}

/* ---- directives of words ---- */
/* Takes one of `words`, or reports; `later` are those of the field that this version lacks. */
static void choice(Build *b, const ZlDirective *d, const char *const *words, const char *const *later,
                   ZlName *to) {
  const char *what = zl_directive_words[d->kind];
  if (!once(b, d->kind, "", d->span)) return;
  if (among(words, d->word.s) < 0) {
    bool known = among(later, d->word.s) >= 0;
    ZlDiag *g = known ? BAD(b, ZL_Z0808, d->word.span, "%s `%s` is not in this version", what, d->word.s)
                      : BAD(b, ZL_Z0804, d->word.span, "no %s is called `%s`", what, d->word.s);
    zl_note(g, "there are %s", words_text(b->arena, words));
    if (!known) zl_help_nearest(g, d->word.s, words, count(words));
    return;
  }
  if (d->nkws)
    zl_help(BAD(b, ZL_Z0804, d->kws[0].span, "%s `%s` takes no settings", what, d->word.s), "write `%s %s`",
            what, d->word.s);
  *to = d->word;
}

#define CHOICE(NAME, word, layout, words, later)                                                             \
  static void apply_##word(Build *b, const ZlDirective *d) { choice(b, d, words, later, &b->r->word); }
#include "lang/directives.def"

static void apply_recompute(Build *b, const ZlDirective *d) {
  if (!once(b, ZL_D_RECOMPUTE, "", d->span)) return;
  b->r->recompute = NULL;
  b->r->nrecompute = 0;
  b->r->open.recompute = d->open ? d->span : ZL_NOWHERE;
  if (d->npaths == 1 && d->paths[0].n == 1 && strcmp(d->paths[0].part[0].s, "none") == 0) return;
  for (uint32_t i = 0; i < d->npaths; i++)
    ZB_PUSH(b->arena, b->r->recompute, b->r->nrecompute,
            ((ZlPath){d->paths[i].part, d->paths[i].n, d->paths[i].span}));
}

/* `weights` has one for each list behind its `for`, and one without. */
static void apply_weights(Build *b, const ZlPrecision *p) {
  ZlRecipe *r = b->r;
  ZlPacking one;
  const char *of = zl_paths_text(b->arena, p->of);
  if (!once(b, ZL_D_PRECISION, zb_printf(b->arena, "weights%s%s", *of ? " for " : "", of), p->span)) return;
  if (!zl_packing(b->d, p, &one)) {
    b->bad = true;
    return;
  }
  uint32_t k = 0, n = r->npacked;
  while (k < n && strcmp(zl_paths_text(b->arena, r->packed[k].of), of) != 0) k++;
  if (one.format && k == n) ZB_PUSH(b->arena, r->packed, r->npacked, one);
  else if (one.format) r->packed[k] = one;
  else if (k < n) {
    memmove(&r->packed[k], &r->packed[k + 1], (n - 1 - k) * sizeof one);
    r->npacked--;
  } else {
    ZlDiag *g = removes_nothing(b, p->span, zb_printf(b->arena, "weights none%s%s", *of ? " for " : "", of));
    zl_help(g, n ? "name the same parameters in the same order" : "leave it out");
  }
}

static void apply_precision(Build *b, const ZlDirective *d) {
  const char **slot[] = {&b->r->precision.compute, &b->r->precision.params, &b->r->precision.grads,
                         &b->r->precision.reduce, &b->r->precision.states};
  for (uint32_t i = 0; i < d->nprecisions; i++) {
    const ZlPrecision *p = &d->precisions[i];
    int k;
    if (!strcmp(p->key.s, "weights")) {
      apply_weights(b, p);
      continue;
    }
    const char *word = zl_precision_word(b->d, p, &k);
    if (!word) b->bad = true;
    else if (once(b, ZL_D_PRECISION, p->key.s, p->key.span)) {
      *slot[k] = word;
      b->r->precision.span = d->span;
    }
  }
}

/* Kept as they are written, by what follows `for`, until all are known: settings of `optimizer all` are those of each
 * that does not say them. */
static void apply_optimizer(Build *b, const ZlDirective *d) {
  const char *of = zl_for_text(b->arena, d);
  bool all = strcmp(d->word.s, "all") == 0;
  if (!once(b, ZL_D_OPTIMIZER, all ? "all" : *of ? zb_printf(b->arena, "for %s", of) : "", d->span)) return;
  if (all) {
    if (zl_optimizer_all(b->d, d)) b->all = d;
    else b->bad = true;
    return;
  }
  uint32_t k = 0, n = b->noptimizers;
  while (k < n && strcmp(zl_for_text(b->arena, b->optimizers[k]), of) != 0) k++;
  if (strcmp(d->word.s, "none") != 0) {
    if (k == n) ZB_PUSH(b->arena, b->optimizers, b->noptimizers, d);
    else b->optimizers[k] = d;
    return;
  }
  ZlOptimizer none;
  if (!zl_optimizer(b->d, b->arena, d, NULL, &none)) b->bad = true;
  else if (k < n) {
    memmove(&b->optimizers[k], &b->optimizers[k + 1], (n - 1 - k) * sizeof *b->optimizers);
    b->noptimizers--;
  } else {
    ZlDiag *g = removes_nothing(b, d->span, zb_printf(b->arena, "optimizer none for %s", of));
    for (uint32_t i = 0; i < n; i++)
      if (b->optimizers[i]->nclauses) {
        zl_also(g, b->optimizers[i]->span, "this stays");
        break;
      }
    zl_help(g, n > 1 ? "name the same parameters in the same order" : "leave it out");
  }
}

static void finish_optimizers(Build *b) {
  for (uint32_t i = 0; i < b->noptimizers; i++) {
    ZlOptimizer o;
    if (!zl_optimizer(b->d, b->arena, b->optimizers[i], b->all, &o)) b->bad = true;
    else if (o.of.n) ZB_PUSH(b->arena, b->r->others, b->r->nothers, o);
    else b->r->optimizer = o;
  }
}

static bool is_word(const ZlPath *p, const char *word) { return p->n == 1 && !strcmp(p->part[0].s, word); }

static void apply_freeze(Build *b, const ZlDirective *d) {
  if (!once(b, ZL_D_FREEZE, "", d->span)) return;
  b->r->freeze.all = false;
  b->r->freeze.of = b->r->freeze.but = (ZlPaths){0};
  b->r->freeze.span = d->span;
  for (uint32_t i = 0; i < d->npaths; i++) {
    bool all = is_word(&d->paths[i], "all"), none = is_word(&d->paths[i], "none");
    if ((all || none) && (d->npaths > 1 || (none && d->nbut))) {
      BAD(b, ZL_Z0805, d->paths[i].span, "`freeze %s` stands %s", all ? "all" : "none",
          all ? "without other names, but for those after `except`" : "alone");
      return;
    }
    if (none) return;
    b->r->freeze.all = all;
    if (!all) ZB_PUSH(b->arena, b->r->freeze.of.at, b->r->freeze.of.n, d->paths[i]);
  }
  b->r->freeze.but = (ZlPaths){d->but, d->nbut};
}

static void apply_attention(Build *b, const ZlDirective *d) {
  ZlRecipe *r = b->r;
  int way = d->open ? ZL_ATTENTION_AUTO : among(zl_attention_ways, d->word.s);
  if (way < 0) {
    ZlDiag *g = BAD(b, ZL_Z0804, d->word.span, "no way of attention is called `%s`", d->word.s);
    zl_note(g, "there are `gather`, `heads`, `ring` and `auto`");
    zl_help_nearest(g, d->word.s, zl_attention_ways, count(zl_attention_ways));
    return;
  }
  const char *dim = d->by.s ? d->by.s : "";
  if (!once(b, ZL_D_ATTENTION, d->by.s ? zb_printf(b->arena, "over %s", dim) : "", d->span)) return;
  uint32_t k = 0;
  while (k < r->nattention && strcmp(r->attention[k].dim.s ? r->attention[k].dim.s : "", dim) != 0) k++;
  ZlAttention a = {(ZlAttentionWay)way, d->by, d->open, d->span};
  if (k < r->nattention) r->attention[k] = a;
  else ZB_PUSH(b->arena, r->attention, r->nattention, a);
}

static void apply_chunk(Build *b, const ZlDirective *d) {
  bool none = !strcmp(d->word.s, "none");
  if (!once(b, ZL_D_CHUNK, "", d->span)) return;
  b->r->chunk.axis = none ? (ZlName){0} : d->word;
  b->r->chunk.n = d->num.i;
  b->r->chunk.span = d->span;
  if (none && d->has_num) BAD(b, ZL_Z0805, d->span, "`chunk none` takes no number");
  if (none || (d->has_num && d->num.integer && d->num.i >= 1 && d->num.i <= MOST_CHUNKS)) return;
  ZlDiag *g = BAD(b, ZL_Z0805, d->has_num ? d->num.span : d->word.span,
                  "`chunk %s` needs a whole number of chunks from 1 to %d", d->word.s, MOST_CHUNKS);
  zl_help(g, "write `chunk %s = 8`", d->word.s);
}

/* ---- directives that are one number, and those of later versions ---- */
static void not_valid(Build *b, const ZlDirective *d, const char *must, const char *help) {
  ZlDiag *g = BAD(b, ZL_Z0805, d->num.span, "`%s` must be %s", zl_directive_words[d->kind], must);
  if (help) zl_help(g, "%s", help);
}

#define NUMBER(NAME, word, layout, type, none, valid, must, help)                                            \
  static void apply_##word(Build *b, const ZlDirective *d) {                                                 \
    const ZlNumber n = d->num;                                                                               \
    if (!once(b, d->kind, "", d->span)) return;                                                              \
    if (valid) b->r->word = (type)n.value, b->r->word##_span = n.value == none ? ZL_NOWHERE : d->span;       \
    else not_valid(b, d, must, help);                                                                        \
  }
#define LATER(NAME, word, help)                                                                              \
  static void apply_##word(Build *b, const ZlDirective *d) {                                                 \
    zl_help(BAD(b, ZL_Z0808, d->span, "`" #word "` is not in this version"), help);                          \
  }
#include "lang/directives.def"

static void apply(Build *b, const ZlDirective *d) {
  static void (*const by_kind[])(Build *, const ZlDirective *) = {
#define DIRECTIVE(NAME, word, ...) apply_##word,
#define NUMBER DIRECTIVE
#define CHOICE DIRECTIVE
#define LATER DIRECTIVE
#include "lang/directives.def"
  };
  by_kind[d->kind](b, d);
}

/* ---- the whole: mesh dimensions exist, and are used for one thing ---- */
static const ZlMeshDim *dim_named(const Build *b, const char *name) {
  uint32_t i = zb_names_find(&b->mesh_names, name);
  return i == ZB_NO_NAME ? NULL : &b->r->mesh[i];
}

static void check_dim(Build *b, ZlName dim) {
  if (dim_named(b, dim.s)) return;
  const char **names = NULL;
  uint32_t n = 0;
  for (uint32_t i = 0; i < b->r->nmesh; i++) ZB_PUSH(b->arena, names, n, b->r->mesh[i].name.s);
  ZlDiag *g = BAD(b, ZL_Z0807, dim.span, "the mesh of recipe `%s` has no dimension `%s`", b->r->name, dim.s);
  if (n) zl_also(g, b->r->mesh[0].name.span, "the mesh");
  if (zb_nearest(dim.s, names, n)) zl_help_nearest(g, dim.s, names, n);
  else zl_help(g, "add `%s = 1` to the mesh to keep the directive without effect", dim.s);
}

static void check_stages(Build *b) {
  const ZlRecipe *r = b->r;
  if (r->stages.span.file < 0) {
    if (r->schedule.s)
      zl_help(zl_report(b->d, ZL_Z0809, r->schedule.span, "schedule `%s` has no effect without `stages`",
                        r->schedule.s),
              "add `stages over DIM by cost`");
    return;
  }
  check_dim(b, r->stages.dim);
  const ZlMeshDim *m = dim_named(b, r->stages.dim.s);
  bool listed = !r->stages.by_cost && r->open.stages.file < 0;
  uint32_t each = zl_schedule_info(zl_schedule(r->schedule))->vstages;
  if (m && m->size && listed && r->stages.n != (uint64_t)m->size * each) {
    ZlDiag *g = BAD(b, ZL_Z0805, r->stages.span, "%u stages are listed, but mesh dimension `%s` has %lld%s",
                    r->stages.n, m->name.s, (long long)m->size,
                    each > 1 ? zb_printf(b->arena, ", with %u virtual stages each", each) : "");
    zl_also(g, m->name.span, "here");
  }
  for (uint32_t i = 0; i < r->nsplits + r->nshards; i++) {
    bool split = i < r->nsplits;
    ZlName dim = split ? r->splits[i].dim : r->shards[i - r->nsplits].dim;
    if (strcmp(dim.s, r->stages.dim.s) != 0) continue;
    ZlDiag *g =
        BAD(b, ZL_Z0805, dim.span, "mesh dimension `%s` holds the pipeline stages: nothing can be %s over it",
            dim.s, split ? "split" : "sharded");
    zl_also(g, r->stages.dim.span, "stages");
  }
}

static const char *shard_words(const ZlShard *s) {
  return s->what & ZL_SHARD_PARAMS  ? "params, grads, states"
         : s->what & ZL_SHARD_GRADS ? "grads, states"
                                    : "states";
}

/* Checks that all `shard` directives shard the same parts: they are sharded over all these dimensions. */
static void check_shards(Build *b) {
  for (uint32_t i = 1; i < b->r->nshards; i++) {
    const ZlShard *x = &b->r->shards[0], *y = &b->r->shards[i];
    ZlDiag *g = NULL;
    if (x->open != y->open) {
      g = BAD(b, ZL_Z0806, y->span, "`?` is sharded over `%s`, but not over `%s`", (x->open ? x : y)->dim.s,
              (x->open ? y : x)->dim.s);
      zl_help(g, "write `shard ?` in all `shard` directives of a recipe, or in none");
    } else if (x->what != y->what) {
      g = BAD(b, ZL_Z0806, y->span, "`%s` are sharded over `%s`, but `%s` over `%s`", shard_words(y),
              y->dim.s, shard_words(x), x->dim.s);
      zl_help(g, "name the same parts in all `shard` directives of a recipe");
    } else if (x->keep != y->keep) {
      g = BAD(b, ZL_Z0806, y->span, "gathered params stay for the step over `%s`, but not over `%s`",
              (x->keep ? x : y)->dim.s, (x->keep ? y : x)->dim.s);
      zl_help(g, "write `keep` in all `shard` directives of a recipe, or in none");
    }
    if (g) zl_also(g, x->span, "the other");
  }
}

static void check_whole(Build *b) {
  for (uint32_t i = 0; i < b->r->nsplits; i++) check_dim(b, b->r->splits[i].dim);
  for (uint32_t i = 0; i < b->r->nshards; i++) check_dim(b, b->r->shards[i].dim);
  for (uint32_t i = 0; i < b->r->nattention; i++)
    if (b->r->attention[i].dim.s) check_dim(b, b->r->attention[i].dim);
  check_shards(b);
  check_stages(b);
}

/* ---- finding and inheriting ---- */
ZlNames zl_recipe_names(const ZlProgram *p) {
  ZlNames names = {0};
  const ZlFile *f = p->files[0];
  for (uint32_t i = 0; i < f->nrecipes; i++) ZB_PUSH(p->arena, names.at, names.n, f->recipes[i]->name);
  return names;
}

static const ZlRecipeAst *recipe_named(const ZlFile *f, const char *name) {
  uint32_t i = f ? zb_names_find(&f->recipe_names, name) : ZB_NO_NAME;
  return i == ZB_NO_NAME ? NULL : f->recipes[i];
}

/* The recipe after `from`: of the same file, or `namespace.name`. */
static const ZlRecipeAst *parent_of(Build *b, const ZlRecipeAst *r) {
  const ZlPath *from = &r->from;
  const ZlFile *f = r->file;
  ZlName name = from->part[from->n - 1];
  if (from->n > 1) {
    const ZlUse *u = from->n == 2 ? zl_find_use(f, from->part[0].s) : NULL;
    if (!u) {
      ZlDiag *g = BAD(b, ZL_Z0104, from->span, "no namespace `%s`", from->part[0].s);
      zl_help(g, "add `use ... as %s` at the top of %s and write `from %s.%s`", from->part[0].s, f->name,
              from->part[0].s, name.s);
      return NULL;
    }
    f = u->file;
  }
  const ZlRecipeAst *parent = recipe_named(f, name.s);
  if (parent) return parent;
  ZlNames all = {0};
  for (uint32_t i = 0; f && i < f->nrecipes; i++) ZB_PUSH(b->arena, all.at, all.n, f->recipes[i]->name);
  zl_help_nearest_of(BAD(b, ZL_Z0801, from->span, "no recipe `%s`", zl_path_text(b->arena, from)), b->arena,
                     name.s, all);
  return NULL;
}

static void circle(Build *b, const ZlRecipeAst *const *chain, uint32_t n, const ZlRecipeAst *again) {
  ZlDiag *g = BAD(b, ZL_Z0802, chain[n - 1]->from.span, "recipe `%s` inherits from itself", again->name.s);
  for (uint32_t i = 0; i + 1 < n; i++)
    if (chain[i]->from.span.start != chain[n - 1]->from.span.start)
      zl_also(g, chain[i]->from.span, "by way of this");
  zl_help(g, "put what they share into a recipe of its own");
}

static bool count_words(Build *b, const ZlRecipeAst *ast, const ZlDirective *d) {
  b->words += 1 + d->nq + d->nprods + d->names.n + d->others.n + d->npaths + d->nbut + d->nkws;
  b->words += d->unit.n ? 1 + d->unit.n : 0;
  for (uint32_t i = 0; i < d->nprods; i++) b->words += d->prods[i].n;
  for (uint32_t i = 0; i < d->nprecisions; i++)
    b->words += 2 + d->precisions[i].of.n + d->precisions[i].but.n;
  for (uint32_t i = 0; i < d->npaths; i++) b->words += d->paths[i].n;
  for (uint32_t i = 0; i < d->nbut; i++) b->words += d->but[i].n;
  for (uint32_t i = 0; i < d->nclauses; i++) {
    b->words += 1 + d->clauses[i].nof + d->clauses[i].nbut;
    for (uint32_t k = 0; k < d->clauses[i].nof; k++) b->words += d->clauses[i].of[k].n;
    for (uint32_t k = 0; k < d->clauses[i].nbut; k++) b->words += d->clauses[i].but[k].n;
  }
  if (b->words <= MAX_WORDS) return true;
  ZlDiag *g = BAD(b, ZL_Z0812, d->span, "recipe `%s` has more than %d words, with what it inherits",
                  ast->name.s, MAX_WORDS);
  zl_help(g, "leave out what the model does not have");
  return false;
}

static void build(Build *b, const ZlRecipeAst *ast) {
  const ZlRecipeAst **chain = NULL;
  uint32_t n = 0;
  for (const ZlRecipeAst *r = ast; r; r = r->from.n ? parent_of(b, r) : NULL) {
    for (uint32_t i = 0; i < n; i++)
      if (chain[i] == r) {
        circle(b, chain + i, n - i, r);
        return;
      }
    if (n == MAX_CHAIN) {
      ZlDiag *g = BAD(b, ZL_Z0003, ast->from.span, "recipe `%s` inherits from more than %d others",
                      ast->name.s, MAX_CHAIN - 1);
      zl_help(g, "write some of them as one");
      return;
    }
    ZB_PUSH(b->arena, chain, n, r);
  }
  for (uint32_t i = n; i-- > 0;) {
    if (chain[i]->model.s) b->r->model = chain[i]->model.s;
    memset(b->seen, 0, sizeof b->seen);
    for (uint32_t k = 0; k < chain[i]->n; k++) {
      if (!count_words(b, ast, chain[i]->at[k])) return;
      apply(b, chain[i]->at[k]);
    }
  }
  finish_optimizers(b);
  if (!b->bad) check_whole(b);
}

/* The checked record, in `a`; NULL if something was reported. *words: how long it is. */
static const ZlRecipe *made(ZbArena *a, ZlDiags *d, const ZlRecipeAst *ast, uint32_t *words) {
  ZlRecipe *r = ZB_NEW(a, ZlRecipe);
  *r = (ZlRecipe){.name = ast->name.s,
                  .span = ast->span,
#define NUMBER(NAME, word, layout, type, none, ...) .word = none, .word##_span = ZL_NOWHERE,
#define CHOICE(NAME, word, ...) .word.span = ZL_NOWHERE,
#include "lang/directives.def"
                  .micro_span = ZL_NOWHERE};
  r->stages.span = r->precision.span = r->optimizer.span = ZL_NOWHERE;
  r->stages.dim.span = r->optimizer.name.span = ZL_NOWHERE;
  r->limit.memory_span = r->limit.host_span = r->freeze.span = r->chunk.span = ZL_NOWHERE;
  r->open.micro = r->open.stages = r->open.recompute = ZL_NOWHERE;
  Build b = {.d = d, .arena = a, .r = r};
  build(&b, ast);
  *words = b.words;
  return b.bad ? NULL : r;
}

const ZlRecipe *zl_recipe_open(ZlProgram *p, ZlDiags *d, const char *name) {
  const ZlFile *f = p->files[0];
  const ZlRecipeAst *ast = name ? recipe_named(f, name) : f->nrecipes == 1 ? f->recipes[0] : NULL;
  uint32_t words;
  if (ast) return made(p->arena, d, ast, &words);
  zl_report_no_such(d, p->arena, "recipe", f->name, name, zl_recipe_names(p));
  return NULL;
}

/* The first `?`; file < 0: there is none. */
static ZlSpan first_open(const ZlRecipe *r) {
  const ZlSpan one[] = {r->open.micro, r->open.stages, r->open.recompute};
  for (uint32_t i = 0; i < r->nmesh; i++)
    if (!r->mesh[i].size) return r->mesh[i].name.span;
  for (int i = 0; i < 3; i++)
    if (one[i].file >= 0) return one[i];
  for (uint32_t i = 0; i < r->nsplits; i++)
    if (r->splits[i].open || r->splits[i].open_else) return r->splits[i].span;
  for (uint32_t i = 0; i < r->nshards; i++)
    if (r->shards[i].open) return r->shards[i].span;
  for (uint32_t i = 0; i < r->nattention; i++)
    if (r->attention[i].open) return r->attention[i].span;
  return ZL_NOWHERE;
}

const ZlRecipe *zl_recipe(ZlProgram *p, ZlDiags *d, const char *name) {
  const ZlRecipe *r = zl_recipe_open(p, d, name);
  ZlSpan open = r ? first_open(r) : ZL_NOWHERE;
  if (open.file < 0) return r;
  ZlDiag *g = zl_report(d, ZL_Z0814, open, "recipe `%s` leaves open what `?` stands for", r->name);
  zl_help(g,
          "`zplan search GRAPH.zsg --recipe FILE:%s --cluster FILE:NAME -o NEW.zug` writes it with the best",
          r->name);
  return NULL;
}

void zl_check_recipes(ZlProgram *p, ZlDiags *d) {
  const ZlFile *f = p->files[0];
  uint32_t total = 0, words;
  for (uint32_t i = 0; i < f->nrecipes && total <= MAX_CHECKED; i++) {
    ZbArena *tmp = zb_arena_new();
    made(tmp, d, f->recipes[i], &words);
    zb_arena_free(tmp);
    total += words;
    if (total <= MAX_CHECKED) continue;
    ZlDiag *g = zl_report(d, ZL_Z0812, f->recipes[i]->span,
                          "the recipes of %s come to more than %d words up to here", f->name, MAX_CHECKED);
    zl_note(g, "what a recipe inherits counts again");
    zl_help(g, "spread them over several files");
  }
  for (uint32_t i = 0; i < f->nclusters; i++) zl_cluster(p, d, f->clusters[i]->name.s);
}

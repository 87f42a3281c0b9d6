/* Optimizers of recipes: their settings with ranges and defaults, and the clauses behind them. */
#include <math.h>
#include <string.h>

#include "lang/ast.h"
#include "lang/words.h"

typedef enum {
  REQUIRED, /* a number >= 0 that has no default */
  SHARE,    /* 0 <= x < 1 */
  RATIO,    /* 0 <= x <= 1 */
  POSITIVE, /* > 0 */
  STEPS,    /* a whole number >= 0 */
  TIMES,    /* a whole number from 1 to 64 */
  BITS,     /* 32 or 8 */
  ANNEAL,   /* one of `anneals` */
  SWITCH,   /* one of `switches` */
  SCALE,    /* one of `scales` */
  AXIS      /* the name of an axis; may be given several times, or not at all */
} Range;

typedef struct {
  const char *name;
  Range range;
  double otherwise;
} Setting;

static const char *const anneals[] = {"constant", "linear", "cosine", "sqrt", "rsqrt"};
static const char *const switches[] = {"on", "off"};
static const char *const scales[] = {"shape", "rms"};
enum { MOST_SETTINGS = 12 };

/* The words that a setting takes; the first is what it is otherwise. NULL: it takes none of a list. */
static const char *const *words_of(Range r, int *n) {
  *n = r == ANNEAL ? 5 : 2;
  return r == ANNEAL ? anneals : r == SWITCH ? switches : r == SCALE ? scales : NULL;
}

#define RATE_SETTINGS                                                                                        \
  {"warmup", STEPS, 0}, {"stable", STEPS, 0}, {"anneal", ANNEAL, 0}, {"until", STEPS, 0}, {                  \
    "final", RATIO, 0                                                                                        \
  }
static const struct {
  const char *name;
  Setting settings[MOST_SETTINGS];
} optimizers[] = {
    {"adamw",
     {{"lr", REQUIRED, 0},
      {"b1", SHARE, 0.9},
      {"b2", SHARE, 0.95},
      {"eps", POSITIVE, 1e-8},
      {"bits", BITS, 32},
      RATE_SETTINGS}},
    {"sgd", {{"lr", REQUIRED, 0}, {"momentum", SHARE, 0}, RATE_SETTINGS}},
    {"lion", {{"lr", REQUIRED, 0}, {"b1", SHARE, 0.9}, {"b2", SHARE, 0.99}, RATE_SETTINGS}},
    {"muon",
     {{"lr", REQUIRED, 0},
      {"momentum", SHARE, 0.95},
      {"nesterov", SWITCH, 0},
      {"steps", TIMES, 5},
      {"scale", SCALE, 0},
      {"each", AXIS, 0},
      RATE_SETTINGS}},
};
static const char *const optimizer_names[] = {"adamw", "sgd", "lion", "muon"};
enum { NOPTIMIZERS = sizeof optimizer_names / sizeof *optimizer_names };

static const char *range_text(Range r) {
  static const char *const text[] = {"a number of at least 0",
                                     "at least 0 and less than 1",
                                     "between 0 and 1",
                                     "greater than 0",
                                     "a whole number of steps",
                                     "a whole number from 1 to 64",
                                     "32 or 8",
                                     "`constant`, `linear`, `cosine`, `sqrt` or `rsqrt`",
                                     "`on` or `off`",
                                     "`shape` or `rms`",
                                     "the name of an axis"};
  return text[r];
}

static bool fits(const ZlKw *kw, Range r) {
  double x = kw->num;
  int n;
  const char *const *words = words_of(r, &n);
  if (words) return kw->word && zl_word_index(kw->word, words, n) >= 0;
  if (r == AXIS) return kw->word != NULL;
  if (kw->word || !isfinite(x)) return false;
  switch (r) {
  case REQUIRED: return x >= 0;
  case SHARE: return x >= 0 && x < 1;
  case RATIO: return x >= 0 && x <= 1;
  case POSITIVE: return x > 0;
  case BITS: return x == 32 || x == 8;
  case TIMES: return x >= 1 && x <= 64 && x == floor(x);
  default: return x >= 0 && x <= INT32_MAX && x == floor(x);
  }
}

static const ZlKw *given(const ZlDirective *o, const char *key) { return zl_kw(o->kws, o->nkws, key); }

const ZlKw *zl_kw(const ZlKw *kws, uint32_t n, const char *key) {
  for (uint32_t i = 0; i < n; i++)
    if (kws[i].key.s && strcmp(kws[i].key.s, key) == 0) return &kws[i];
  return NULL;
}

/* Every setting given is one of the optimizer's, once, and in range. */
static bool check_given(ZlDiags *d, ZbArena *a, const ZlDirective *o, const Setting *table,
                        const char *const *names, uint32_t n) {
  bool ok = true;
  for (uint32_t i = 0; i < o->nkws; i++) {
    const ZlKw *kw = &o->kws[i];
    if (!kw->key.s) {
      zl_help(zl_report(d, ZL_Z0804, kw->span, "settings of an optimizer have names"),
              "write, say, `lr = 3e-4`");
      ok = false;
      continue;
    }
    int k = zl_word_index(kw->key.s, names, (int)n);
    if (k < 0) {
      ZlDiag *g = zl_report(d, ZL_Z0804, kw->key.span, "`%s` has no setting `%s`", o->word.s, kw->key.s);
      ZlNames all = {0};
      for (uint32_t j = 0; j < n; j++) ZB_PUSH(a, all.at, all.n, ((ZlName){names[j], ZL_NOWHERE}));
      zl_note(g, "it has %s", zl_names_text(a, all));
      if (zl_said_elsewhere(kw->key.s)) zl_help(g, "write, say, `%s`", zl_said_elsewhere(kw->key.s));
      else zl_help_nearest(g, kw->key.s, names, n);
      ok = false;
    } else if (given(o, kw->key.s) != kw && table[k].range != AXIS) {
      zl_also(zl_report(d, ZL_Z0803, kw->key.span, "`%s` is given twice", kw->key.s),
              given(o, kw->key.s)->span, "first here");
      ok = false;
    } else if (!fits(kw, table[k].range)) {
      ZlDiag *g = zl_report(d, ZL_Z0805, kw->span, "`%s` must be %s", kw->key.s, range_text(table[k].range));
      int nwords;
      const char *const *words = words_of(table[k].range, &nwords);
      if (kw->word && words) zl_help_nearest(g, kw->word, words, (uint32_t)nwords);
      ok = false;
    }
  }
  return ok;
}

/* The settings of the rate agree: `constant` and `rsqrt` go on for ever, the others fall until a step. */
static bool check_rate(ZlDiags *d, const ZlDirective *o) {
  const ZlKw *anneal = given(o, "anneal"), *until = given(o, "until"), *final = given(o, "final");
  const ZlKw *warmup = given(o, "warmup"), *stable = given(o, "stable");
  bool constant = !anneal || strcmp(anneal->word, "constant") == 0;
  bool root = !constant && strcmp(anneal->word, "rsqrt") == 0;
  double begin = (warmup ? warmup->num : 0) + (stable ? stable->num : 0);
  const ZlKw *idle = until ? until : final ? final : constant ? stable : NULL;
  if (constant && idle) {
    zl_help(zl_report(d, ZL_Z0805, idle->span, "`%s` means nothing while the learning rate stays constant",
                      idle->key.s),
            "add `anneal = cosine`, or leave it out");
    return false;
  }
  if (root && idle) {
    zl_help(zl_report(d, ZL_Z0805, idle->span, "`%s` means nothing with `rsqrt`, which falls for ever",
                      idle->key.s),
            "leave it out");
    return false;
  }
  if (root && begin < 1) {
    zl_help(zl_report(d, ZL_Z0805, anneal->span,
                      "`rsqrt` falls from the end of the warm-up on, and there is none"),
            "add, say, `warmup = 1000`");
    return false;
  }
  if (!constant && !root && (!until || until->num <= begin)) {
    zl_help(zl_report(d, ZL_Z0805, until ? until->span : anneal->span,
                      "`until` must be the step at which `%s` ends, after the warm-up%s", anneal->word,
                      stable ? " and the stable steps" : ""),
            "add, say, `until = %.0f`", begin + 1000);
    return false;
  }
  return true;
}

/* The settings in the order of the optimizer's table, those not given with their defaults. */
static bool settings(ZlDiags *d, ZbArena *a, const ZlDirective *o, ZlKw **kws, uint32_t *n) {
  *kws = NULL;
  *n = 0;
  int which = zl_word_index(o->word.s, optimizer_names, NOPTIMIZERS);
  if (which < 0) {
    ZlDiag *g = zl_report(d, ZL_Z0804, o->word.span, "no optimizer is called `%s`", o->word.s);
    zl_note(g, "there are `adamw`, `sgd`, `lion` and `muon`");
    zl_help_nearest(g, o->word.s, optimizer_names, NOPTIMIZERS);
    return false;
  }
  const Setting *table = optimizers[which].settings;
  const char *names[MOST_SETTINGS];
  uint32_t count = 0;
  for (; table[count].name; count++) names[count] = table[count].name;
  if (!check_given(d, a, o, table, names, count)) return false;
  for (uint32_t i = 0; i < count; i++) {
    const ZlKw *kw = given(o, names[i]);
    if (table[i].range == AXIS) { /* as many as there are */
      for (uint32_t k = 0; k < o->nkws; k++)
        if (strcmp(o->kws[k].key.s, names[i]) == 0) ZB_PUSH(a, *kws, *n, o->kws[k]);
      continue;
    }
    if (!kw && table[i].range == REQUIRED) {
      zl_help(zl_report(d, ZL_Z0805, o->word.span, "optimizer `%s` needs `%s`", o->word.s, names[i]),
              "write, say, `%s(lr = 3e-4)`", o->word.s);
      return false;
    }
    ZlKw v = kw ? *kw : (ZlKw){.key = {names[i], ZL_NOWHERE}, .num = table[i].otherwise, .span = ZL_NOWHERE};
    int nwords;
    const char *const *words = words_of(table[i].range, &nwords);
    if (!kw && words) v.word = words[0];
    ZB_PUSH(a, *kws, *n, v);
  }
  return check_rate(d, o);
}

/* ---- clauses ---- */
void zl_clause_more(ZlDiags *d, ZbArena *a, ZlDirective *o, ZlPath name) {
  ZlClause *c = o->nclauses ? &o->clauses[o->nclauses - 1] : NULL;
  if (c && c->nof) {
    ZB_PUSH(a, c->of, c->nof, name);
    return;
  }
  zl_help(zl_report(d, ZL_Z0804, name.span, "`%s` follows no list of parameters", zl_path_text(a, &name)),
          "write, say, `rate 0.1 for %s`", zl_path_text(a, &name));
}

const char *zl_paths_text(ZbArena *a, ZlPaths p) {
  const char *text = "";
  for (uint32_t i = 0; i < p.n; i++)
    text = zb_printf(a, "%s%s%s", text, i ? ", " : "", zl_path_text(a, &p.at[i]));
  return text;
}

static bool clause(ZlDiags *d, ZbArena *a, const ZlClause *c, ZlOptimizer *o, const ZlClause **general) {
  ZlPaths of = {c->of, c->nof};
  double x = c->num.value;
  if (c->kind == ZL_CLAUSE_FOR) {
    o->of = of;
    return true;
  }
  if (c->kind == ZL_CLAUSE_RATE && strcmp(c->word.s, "rate") != 0) {
    static const char *const words[] = {"rate", "decay"};
    ZlDiag *g = zl_report(d, ZL_Z0804, c->word.span, "an optimizer has no `%s ... for`", c->word.s);
    zl_note(g, "there are `rate` and `decay`");
    zl_help_nearest(g, c->word.s, words, 2);
    return false;
  }
  bool decay = c->kind == ZL_CLAUSE_DECAY;
  if (decay ? !(x >= 0 && x < 1) : !(x > 0 && x <= 1e6)) {
    zl_report(d, ZL_Z0805, c->num.span,
              decay ? "`decay` must be at least 0 and less than 1"
                    : "`rate` must be greater than 0, and at most 1e6");
    return false;
  }
  if (decay && (c->except || !c->nof)) {
    if (*general) {
      ZlDiag *g = zl_report(d, ZL_Z0803, c->span, "an optimizer has two `decay` for all its parameters");
      zl_also(g, (*general)->span, "first here");
      zl_help(g, "write `decay %g for` and the names that this is for", x);
      return false;
    }
    *general = c;
    o->decay = x;
    o->except = of;
    return true;
  }
  ZlShare s = {decay, x, of, c->span};
  ZB_PUSH(a, o->shares, o->nshares, s);
  return true;
}

bool zl_optimizer(ZlDiags *d, ZbArena *a, const ZlDirective *o, ZlOptimizer *out) {
  const ZlClause *general = NULL;
  bool none = strcmp(o->word.s, "none") == 0;
  *out = (ZlOptimizer){.name = o->word, .span = o->span};
  bool ok = none || settings(d, a, o, &out->kws, &out->n);
  for (uint32_t i = 0; i < o->nclauses; i++) ok = clause(d, a, &o->clauses[i], out, &general) && ok;
  if (!none) return ok;
  if (!ok || !out->of.n || o->nkws || general || out->nshares) {
    zl_help(zl_report(d, ZL_Z0805, o->span,
                      "`optimizer none` takes `for` and the names after it, and nothing else"),
            "`optimizer none for embed` removes `optimizer ... for embed`");
    return false;
  }
  out->name.s = NULL;
  return true;
}

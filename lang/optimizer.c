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
  AXIS,     /* the name of an axis; may be given several times, or not at all */
  ANNEAL,   /* from here on one of the words */
  SWITCH,
  RULE,
  SCALE,
  COEFFICIENTS,
  SECOND,
  RANGES
} Range;

typedef struct {
  const char *name;
  Range range;
  double otherwise; /* the default; of words its position */
  bool varies;      /* may change from step to step */
} Setting;

enum { MOST_WORDS = 6, MOST_SETTINGS = 24 };
static const char *const words[RANGES][MOST_WORDS] = {
    [ANNEAL] = {"constant", "linear", "cosine", "sqrt", "rsqrt"},
    [SWITCH] = {"on", "off"},
    [RULE] = {"sum", "mean"},
    [SCALE] = {"shape", "rms"},
    [COEFFICIENTS] = {"jordan", "polar"},
    [SECOND] = {"off", "rows", "longer"},
};
static const char *const numbers[] = {
    "a number of at least 0",  "at least 0 and less than 1",  "between 0 and 1", "greater than 0",
    "a whole number of steps", "a whole number from 1 to 64", "32 or 8",         "the name of an axis"};

static int words_of(Range r) {
  int n = 0;
  while (n < MOST_WORDS && words[r][n]) n++;
  return n;
}

/* What every optimizer has, beside those of its row; those behind `lr` may be said once, by `optimizer all`. */
static const Setting general[] = {
    {"lr", REQUIRED, 0, false},   {"bits", BITS, 32, false},   {"cautious", SWITCH, 1, false},
    {"every", TIMES, 1, false},   {"warmup", STEPS, 0, false}, {"stable", STEPS, 0, false},
    {"anneal", ANNEAL, 0, false}, {"until", STEPS, 0, false},  {"final", RATIO, 0, false}};
enum { GENERAL = sizeof general / sizeof *general };

#define ALL(...) __VA_ARGS__
#define SET(name, range, otherwise) {#name, range, otherwise, true},
#define FIXED(name, range, otherwise) {#name, range, otherwise, false},
#define UPDATE(NAME, word, how, flops, nstates, a, b, c, files, codes, settings, ...)                        \
  {word, HOW_##how, {ALL settings{NULL, REQUIRED, 0, false}}},
typedef enum { HOW_FLAT, HOW_MATRICES, HOW_AVERAGES, HOW_HIDDEN } How;
static const struct {
  const char *name;
  How how;
  Setting settings[MOST_SETTINGS - GENERAL];
} optimizers[] = {
#include "lang/updates.def"
};
enum { OPTIMIZERS = sizeof optimizers / sizeof *optimizers };

/* The names of those that recipes may say. */
static uint32_t optimizer_names(const char *out[OPTIMIZERS]) {
  uint32_t n = 0;
  for (int i = 0; i < OPTIMIZERS; i++)
    if (optimizers[i].how != HOW_HIDDEN) out[n++] = optimizers[i].name;
  return n;
}

/* "`a`, `b` and `c`", `or` in place of `and` where one is meant. */
static const char *list_text(ZbArena *a, const char *const *names, uint32_t n, const char *last) {
  const char *text = "";
  for (uint32_t i = 0; i < n; i++)
    text = zb_printf(a, "%s%s`%s`", text, !i ? "" : i + 1 < n ? ", " : zb_printf(a, " %s ", last), names[i]);
  return text;
}

static bool number_fits(double x, Range r) {
  if (!isfinite(x)) return false;
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

static const ZlKwAst *given(const ZlDirective *o, const char *key) {
  for (uint32_t i = 0; o && i < o->nkws; i++)
    if (o->kws[i].key.s && strcmp(o->kws[i].key.s, key) == 0) return &o->kws[i];
  return NULL;
}

const ZlKw *zl_kw(const ZlKw *kws, uint32_t n, const char *key) {
  for (uint32_t i = 0; i < n; i++)
    if (kws[i].key.s && strcmp(kws[i].key.s, key) == 0) return &kws[i];
  return NULL;
}

/* ---- settings ---- */
/* The settings of optimizer `which` in their order: its own behind `lr`, then the general ones. */
static uint32_t table_of(int which, Setting out[MOST_SETTINGS]) {
  uint32_t n = 0;
  out[n++] = general[0];
  for (const Setting *s = optimizers[which].settings; s->name; s++) out[n++] = *s;
  for (int i = 1; i < GENERAL; i++) out[n++] = general[i];
  return n;
}

static bool check_word(ZlDiags *d, ZbArena *a, const ZlKw *kw, Range r) {
  int n = words_of(r);
  if (kw->word && (r == AXIS || zl_word_index(kw->word, words[r], n) >= 0)) return true;
  ZlDiag *g = zl_report(d, ZL_Z0805, kw->span, "`%s` must be %s", kw->key.s,
                        n ? list_text(a, words[r], (uint32_t)n, "or") : numbers[r]);
  if (kw->word && n) zl_help_nearest(g, kw->word, words[r], (uint32_t)n);
  return false;
}

static bool check_number(ZlDiags *d, const ZlKw *kw, const Setting *s) {
  const ZlAmount *x = &kw->amount;
  if (kw->word || (x->nthen && !s->varies)) {
    zl_report(d, ZL_Z0805, kw->span, kw->word ? "`%s` must be %s" : "`%s` stays as it is: it must be %s",
              kw->key.s, numbers[s->range]);
    return false;
  }
  bool ok = x->of || number_fits(x->num, s->range);
  for (uint32_t i = 0; i < x->nthen; i++) ok = ok && number_fits(x->then[i].to, s->range);
  if (!ok) zl_report(d, ZL_Z0805, kw->span, "`%s` must be %s", kw->key.s, numbers[s->range]);
  return ok;
}

static bool is_word(Range r) { return r == AXIS || words[r][0]; }

/* A setting as it was written, with its value; false and a report if that is not one of its kind. */
static bool read_setting(ZlDiags *d, ZbArena *a, const ZlKwAst *x, const Setting *s, ZlKw *out) {
  const ZlExpr *first = x->value.first;
  bool word = first->kind == ZL_E_NAME && !x->value.n; /* a size alone is no setting */
  *out = (ZlKw){.key = x->key, .span = x->span};
  if (word) out->word = first->name.s;
  else if (!zl_amount(d, a, &x->value, &out->amount)) return false;
  return is_word(s->range) ? check_word(d, a, out, s->range) : check_number(d, out, s);
}

/* What is wrong with the names of settings: each is one of the table, once. */
static bool check_keys(ZlDiags *d, ZbArena *a, const ZlDirective *o, const Setting *table, uint32_t n) {
  const char *names[MOST_SETTINGS];
  bool ok = true;
  for (uint32_t i = 0; i < n; i++) names[i] = table[i].name;
  for (uint32_t i = 0; i < o->nkws; i++) {
    const ZlKwAst *kw = &o->kws[i];
    int k = kw->key.s ? zl_word_index(kw->key.s, names, (int)n) : -1;
    if (!kw->key.s) {
      zl_help(zl_report(d, ZL_Z0804, kw->span, "settings of an optimizer have names"),
              "write, say, `lr = 3e-4`");
    } else if (k < 0) {
      ZlDiag *g = zl_report(d, ZL_Z0804, kw->key.span, "`%s` has no setting `%s`", o->word.s, kw->key.s);
      zl_note(g, "it has %s", list_text(a, names, n, "and"));
      if (zl_said_elsewhere(kw->key.s)) zl_help(g, "write, say, `%s`", zl_said_elsewhere(kw->key.s));
      else zl_help_nearest(g, kw->key.s, names, n);
    } else if (given(o, kw->key.s) != kw && table[k].range != AXIS) {
      zl_also(zl_report(d, ZL_Z0803, kw->key.span, "`%s` is given twice", kw->key.s),
              given(o, kw->key.s)->span, "first here");
    } else continue;
    ok = false;
  }
  return ok;
}

/* The settings of the rate agree: `constant` and `rsqrt` go on for ever, the others fall until a step. */
static bool check_rate(ZlDiags *d, const ZlOptimizer *o) {
  const ZlKw *anneal = zl_kw(o->kws, o->n, "anneal"), *until = zl_kw(o->kws, o->n, "until");
  const ZlKw *final = zl_kw(o->kws, o->n, "final"), *stable = zl_kw(o->kws, o->n, "stable");
  bool constant = strcmp(anneal->word, "constant") == 0, root = strcmp(anneal->word, "rsqrt") == 0;
  double begin = zl_kw(o->kws, o->n, "warmup")->num + stable->num;
  const ZlKw *const last[] = {until, final, constant ? stable : until};
  const ZlKw *idle = NULL;
  for (int i = 3; i-- > 0;)
    if (last[i]->span.file >= 0) idle = last[i];
  if ((constant || root) && idle) {
    ZlDiag *g = zl_report(d, ZL_Z0805, idle->span,
                          constant ? "`%s` means nothing while the learning rate stays constant"
                                   : "`%s` means nothing with `rsqrt`, which falls for ever",
                          idle->key.s);
    zl_help(g, constant ? "add `anneal = cosine`, or leave it out" : "leave it out");
    return false;
  }
  if (root && begin < 1) {
    zl_help(zl_report(d, ZL_Z0805, anneal->span,
                      "`rsqrt` falls from the end of the warm-up on, and there is none"),
            "add, say, `warmup = 1000`");
    return false;
  }
  if (!constant && !root && until->num <= begin) {
    zl_help(zl_report(d, ZL_Z0805, until->span.file >= 0 ? until->span : anneal->span,
                      "`until` must be the step at which `%s` ends, after the warm-up%s", anneal->word,
                      stable->num > 0 ? " and the stable steps" : ""),
            "add, say, `until = %.0f`", begin + 1000);
    return false;
  }
  return true;
}

/* A setting of optimizer `o`, or of `all` where that has it, or its default; those that may be there several times
 * one after the other. */
static bool add_setting(ZlDiags *d, ZbArena *a, const ZlDirective *o, const ZlDirective *all,
                        const Setting *s, ZlOptimizer *out) {
  const ZlKwAst *x = given(o, s->name) ? given(o, s->name) : given(all, s->name);
  ZlKw kw;
  for (uint32_t k = 0; k < o->nkws && s->range == AXIS; k++) {
    if (!o->kws[k].key.s || strcmp(o->kws[k].key.s, s->name)) continue;
    if (!read_setting(d, a, &o->kws[k], s, &kw)) return false;
    ZB_PUSH(a, out->kws, out->n, kw);
  }
  if (s->range == AXIS) return true;
  if (!x && s->range == REQUIRED) {
    zl_help(zl_report(d, ZL_Z0805, o->word.span, "optimizer `%s` needs `%s`", o->word.s, s->name),
            "write, say, `%s(lr = 3e-4)`", o->word.s);
    return false;
  }
  if (!x) {
    kw = (ZlKw){.key = {s->name, ZL_NOWHERE}, .span = ZL_NOWHERE};
    if (is_word(s->range)) kw.word = words[s->range][(int)s->otherwise];
    else kw.num = s->otherwise;
  } else if (!read_setting(d, a, x, s, &kw)) return false;
  ZB_PUSH(a, out->kws, out->n, kw);
  return true;
}

/* All settings of the optimizer's table, in its order. */
static bool settings(ZlDiags *d, ZbArena *a, const ZlDirective *o, const ZlDirective *all, ZlOptimizer *out) {
  const char *names[OPTIMIZERS];
  uint32_t known = optimizer_names(names);
  if (zl_word_index(o->word.s, names, (int)known) < 0) {
    ZlDiag *g = zl_report(d, ZL_Z0804, o->word.span, "no optimizer is called `%s`", o->word.s);
    zl_note(g, "there are %s", list_text(a, names, known, "and"));
    zl_help_nearest(g, o->word.s, names, known);
    return false;
  }
  int which = 0;
  while (strcmp(optimizers[which].name, o->word.s)) which++;
  Setting table[MOST_SETTINGS];
  uint32_t n = table_of(which, table);
  bool ok = check_keys(d, a, o, table, n);
  for (uint32_t i = 0; i < n; i++) ok = add_setting(d, a, o, all, &table[i], out) && ok;
  return ok && check_rate(d, out);
}

bool zl_optimizer_all(ZlDiags *d, const ZlDirective *o) {
  ZbArena *a = zb_arena_new();
  bool ok = !o->nclauses && check_keys(d, a, o, general + 1, GENERAL - 1);
  if (o->nclauses)
    zl_help(
        zl_report(d, ZL_Z0805, o->clauses[0].span, "`optimizer all` takes settings, and nothing behind them"),
        "write it behind each optimizer that it is for");
  zb_arena_free(a);
  return ok;
}

/* ---- clauses ---- */
void zl_clause_more(ZlDiags *d, ZbArena *a, ZlDirective *o, ZlPath name) {
  ZlClause *c = o->nclauses ? &o->clauses[o->nclauses - 1] : NULL;
  if (c && c->excepts) {
    ZB_PUSH(a, c->but, c->nbut, name);
    return;
  }
  if (c && c->nof) {
    ZB_PUSH(a, c->of, c->nof, name);
    return;
  }
  zl_help(zl_report(d, ZL_Z0804, name.span, "`%s` follows no list of parameters", zl_path_text(a, &name)),
          "write, say, `rate 0.1 for %s`", zl_path_text(a, &name));
}

void zl_clause_except(ZlDiags *d, ZlDirective *o, ZlPath name, ZbArena *a) {
  ZlClause *c = o->nclauses ? &o->clauses[o->nclauses - 1] : NULL;
  bool takes = c && !c->excepts && (c->kind == ZL_CLAUSE_FOR || (c->kind == ZL_CLAUSE_DECAY && !c->nof));
  if (takes) {
    c->excepts = true;
    zl_clause_more(d, a, o, name);
    return;
  }
  zl_help(zl_report(d, ZL_Z0804, name.span, "`except` follows nothing of which something could be left out"),
          "write, say, `for all except %s`, or `decay 0.1 except %s`", zl_path_text(a, &name),
          zl_path_text(a, &name));
}

const char *zl_paths_text(ZbArena *a, ZlPaths p) {
  const char *text = "";
  for (uint32_t i = 0; i < p.n; i++)
    text = zb_printf(a, "%s%s%s", text, i ? ", " : "", zl_path_text(a, &p.at[i]));
  return text;
}

const char *zl_for_text(ZbArena *a, const ZlDirective *o) {
  const ZlClause *c = o->nclauses && o->clauses[0].kind == ZL_CLAUSE_FOR ? &o->clauses[0] : NULL;
  if (!c) return "";
  const char *of = zl_paths_text(a, (ZlPaths){c->of, c->nof}),
             *but = zl_paths_text(a, (ZlPaths){c->but, c->nbut});
  return c->nbut ? zb_printf(a, "%s except %s", of, but) : of;
}

/* Says whether a share of decay, or a multiple of the rate, may be that. How large a decay may be depends on the
 * rate: bind/groups.c. */
static bool share_fits(ZlDiags *d, const ZlAmount *x, bool decay, ZlSpan at) {
  double least = zl_amount_least(x), most = zl_amount_most(x);
  if (x->of || (decay ? least >= 0 && most <= 1e6 : least > 0 && most <= 1e6)) return true;
  zl_report(d, ZL_Z0805, at,
            decay ? "`decay` must be at least 0" : "`rate` must be greater than 0, and at most 1e6");
  return false;
}

static bool clause(ZlDiags *d, ZbArena *a, const ZlClause *c, ZlOptimizer *o, const ZlClause **whole) {
  ZlPaths of = {c->of, c->nof}, but = {c->but, c->nbut};
  if (c->kind == ZL_CLAUSE_FOR) {
    o->of = of;
    o->but = but;
    return true;
  }
  if (c->kind == ZL_CLAUSE_RATE && strcmp(c->word.s, "rate") != 0) {
    static const char *const names[] = {"rate", "decay"};
    ZlDiag *g = zl_report(d, ZL_Z0804, c->word.span, "an optimizer has no `%s ... for`", c->word.s);
    zl_note(g, "there are `rate` and `decay`");
    zl_help_nearest(g, c->word.s, names, 2);
    return false;
  }
  bool decay = c->kind == ZL_CLAUSE_DECAY;
  ZlAmount x;
  if (!zl_amount(d, a, &c->amount, &x) || !share_fits(d, &x, decay, c->amount.first->span)) return false;
  if (decay && !c->nof) {
    if (*whole) {
      ZlDiag *g = zl_report(d, ZL_Z0803, c->span, "an optimizer has two `decay` for all its parameters");
      zl_also(g, (*whole)->span, "first here");
      zl_help(g, "write `decay %g for` and the names that this is for", x.num);
      return false;
    }
    *whole = c;
    o->decay = x;
    o->except = but;
    return true;
  }
  ZlShare s = {decay, x, of, c->span};
  ZB_PUSH(a, o->shares, o->nshares, s);
  return true;
}

bool zl_optimizer(ZlDiags *d, ZbArena *a, const ZlDirective *o, const ZlDirective *all, ZlOptimizer *out) {
  const ZlClause *whole = NULL;
  bool none = strcmp(o->word.s, "none") == 0;
  *out = (ZlOptimizer){.name = o->word, .span = o->span};
  bool ok = none || settings(d, a, o, all, out);
  for (uint32_t i = 0; i < o->nclauses; i++) ok = clause(d, a, &o->clauses[i], out, &whole) && ok;
  if (!none) return ok;
  if (!ok || !out->of.n || o->nkws || whole || out->nshares) {
    zl_help(zl_report(d, ZL_Z0805, o->span,
                      "`optimizer none` takes `for` and the names after it, and nothing else"),
            "`optimizer none for embed` removes `optimizer ... for embed`");
    return false;
  }
  out->name.s = NULL;
  return true;
}

/* ---- sizes ---- */
static bool known(const ZlSizes *s, ZlAmount *x) {
  bool ok = !x->of || zl_value(s, x->of, &x->num);
  x->of = NULL;
  return ok;
}

bool zl_optimizer_sizes(const ZlSizes *s, ZbArena *a, const ZlOptimizer *o, ZlOptimizer *out) {
  int which = 0;
  while (strcmp(optimizers[which].name, o->name.s)) which++;
  Setting table[MOST_SETTINGS];
  uint32_t n = table_of(which, table);
  *out = *o;
  out->kws = ZB_NEWN(a, ZlKw, o->n + 1);
  out->shares = ZB_NEWN(a, ZlShare, o->nshares + 1);
  for (uint32_t i = 0; i < o->n; i++) {
    ZlKw *kw = &out->kws[i];
    *kw = o->kws[i];
    if (kw->word || !kw->amount.of) continue;
    uint32_t k = 0;
    while (k + 1 < n && strcmp(table[k].name, kw->key.s)) k++;
    if (!known(s, &kw->amount) || !check_number(s->d, kw, &table[k])) return false;
  }
  for (uint32_t i = 0; i < o->nshares; i++) {
    ZlShare *x = &out->shares[i];
    *x = o->shares[i];
    if (!known(s, &x->amount) || !share_fits(s->d, &x->amount, x->decay, x->span)) return false;
  }
  return known(s, &out->decay) && share_fits(s->d, &out->decay, true, o->span);
}

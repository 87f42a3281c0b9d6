/* The tables of recipe words: schedules, optimizers with their settings and defaults. */
#include "lang/words.h"

#include <math.h>
#include <string.h>

const char *const zl_std_tags[] = {"norm", "bias", NULL};
const char *const zl_schedules[] = {"gpipe", "1f1b", NULL};
const char *const zl_schedules_later[] = {"interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe", NULL};

int zl_word_index(const char *word, const char *const *words, int n) {
  for (int i = 0; i < n; i++)
    if (strcmp(word, words[i]) == 0) return i;
  return -1;
}

void zl_report_no_such(ZlDiags *d, ZbArena *a, const char *what, const char *file, const char *name,
                       ZlNames all) {
  if (all.n == 0) {
    zl_report(d, ZL_Z0801, ZL_NOWHERE, "%s has no %s", file, what);
    return;
  }
  ZlDiag *g = name ? zl_report(d, ZL_Z0801, ZL_NOWHERE, "no %s `%s` in %s", what, name, file)
                   : zl_report(d, ZL_Z0801, ZL_NOWHERE, "%s has %u %ss: say which", file, all.n, what);
  zl_note(g, "it has %s", zl_names_text(a, all));
  if (name) zl_help_nearest_of(g, a, name, all);
}

/* ---- optimizers ---- */
typedef enum {
  REQUIRED, /* a number >= 0 that has no default */
  SHARE,    /* 0 <= x < 1 */
  RATIO,    /* 0 <= x <= 1 */
  POSITIVE, /* > 0 */
  STEPS,    /* a whole number >= 0 */
  ANNEAL    /* constant, linear, cosine */
} Range;

typedef struct {
  const char *name;
  Range range;
  double otherwise;
} Setting;

static const char *const anneals[] = {"constant", "linear", "cosine"};
#define RATE_SETTINGS                                                                                        \
  {"warmup", STEPS, 0}, {"anneal", ANNEAL, 0}, {"until", STEPS, 0}, { "final", RATIO, 0 }
static const struct {
  const char *name;
  Setting settings[10];
} optimizers[] = {
    {"adamw",
     {{"lr", REQUIRED, 0}, {"b1", SHARE, 0.9}, {"b2", SHARE, 0.95}, {"eps", POSITIVE, 1e-8}, RATE_SETTINGS}},
    {"sgd", {{"lr", REQUIRED, 0}, {"momentum", SHARE, 0}, RATE_SETTINGS}},
};
static const char *const optimizer_names[] = {"adamw", "sgd"};

static const char *range_text(Range r) {
  static const char *const text[] = {"a number of at least 0",  "at least 0 and less than 1",
                                     "between 0 and 1",         "greater than 0",
                                     "a whole number of steps", "`constant`, `linear` or `cosine`"};
  return text[r];
}

static bool fits(const ZlKw *kw, Range r) {
  double x = kw->num;
  if (r == ANNEAL) return kw->word && zl_word_index(kw->word, anneals, 3) >= 0;
  if (kw->word || !isfinite(x)) return false;
  switch (r) {
  case REQUIRED: return x >= 0;
  case SHARE: return x >= 0 && x < 1;
  case RATIO: return x >= 0 && x <= 1;
  case POSITIVE: return x > 0;
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
      zl_help_nearest(g, kw->key.s, names, n);
      ok = false;
    } else if (given(o, kw->key.s) != kw) {
      zl_also(zl_report(d, ZL_Z0803, kw->key.span, "`%s` is given twice", kw->key.s),
              given(o, kw->key.s)->span, "first here");
      ok = false;
    } else if (!fits(kw, table[k].range)) {
      ZlDiag *g = zl_report(d, ZL_Z0805, kw->span, "`%s` must be %s", kw->key.s, range_text(table[k].range));
      if (kw->word && table[k].range == ANNEAL) zl_help_nearest(g, kw->word, anneals, 3);
      ok = false;
    }
  }
  return ok;
}

/* warmup, anneal, until and final agree. */
static bool check_rate(ZlDiags *d, const ZlDirective *o) {
  const ZlKw *anneal = given(o, "anneal"), *until = given(o, "until"), *final = given(o, "final");
  const ZlKw *warmup = given(o, "warmup");
  bool falls = anneal && strcmp(anneal->word, "constant") != 0;
  const ZlKw *idle = until ? until : final;
  if (!falls && idle) {
    zl_help(zl_report(d, ZL_Z0805, idle->span, "`%s` means nothing while the learning rate stays constant",
                      idle->key.s),
            "add `anneal = cosine`, or leave it out");
    return false;
  }
  if (falls && (!until || until->num <= (warmup ? warmup->num : 0))) {
    zl_help(zl_report(d, ZL_Z0805, until ? until->span : anneal->span,
                      "`until` must be the step at which `%s` ends, "
                      "after the warm-up",
                      anneal->word),
            "add, say, `until = 1000`");
    return false;
  }
  return true;
}

bool zl_optimizer_words(ZlDiags *d, ZbArena *a, const ZlDirective *o, ZlKw **kws, uint32_t *n) {
  *kws = NULL;
  *n = 0;
  int which = zl_word_index(o->word.s, optimizer_names, 2);
  if (which < 0) {
    ZlDiag *g = zl_report(d, ZL_Z0804, o->word.span, "no optimizer is called `%s`", o->word.s);
    zl_note(g, "there are `adamw` and `sgd`");
    zl_help_nearest(g, o->word.s, optimizer_names, 2);
    return false;
  }
  const Setting *table = optimizers[which].settings;
  const char *names[10];
  uint32_t count = 0;
  for (; table[count].name; count++) names[count] = table[count].name;
  if (!check_given(d, a, o, table, names, count)) return false;
  for (uint32_t i = 0; i < count; i++) {
    const ZlKw *kw = given(o, names[i]);
    if (!kw && table[i].range == REQUIRED) {
      zl_help(zl_report(d, ZL_Z0805, o->word.span, "optimizer `%s` needs `%s`", o->word.s, names[i]),
              "write, say, `%s(lr = 3e-4)`", o->word.s);
      return false;
    }
    ZlKw v = kw ? *kw : (ZlKw){.key = {names[i], ZL_NOWHERE}, .num = table[i].otherwise, .span = ZL_NOWHERE};
    if (!kw && table[i].range == ANNEAL) v.word = anneals[0];
    ZB_PUSH(a, *kws, *n, v);
  }
  return check_rate(d, o);
}

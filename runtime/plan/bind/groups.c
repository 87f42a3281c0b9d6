/* How parameters are trained: not at all, or by which optimizer, at which multiple of its rate and with which
 * decay. Those of which all this is the same are a group. */
#include "runtime/plan/bind/bind.h"

#include <string.h>

static bool *marks(ZpBuild *b, ZlPaths of) {
  bool *chosen = ZB_NEWN(b->p->arena, bool, b->p->graph->nparams + 1);
  zp_select(b, of.at, of.n, chosen);
  return chosen;
}

static bool is_word(const ZlPath *p, const char *word) { return p->n == 1 && !strcmp(p->part[0].s, word); }

/* Returns whether all that the model does with a parameter are products of the same kind, in which it is a matrix. */
static bool is_matrix(const ZgGraph *g, uint32_t param) {
  ZpParamUses u;
  ZbArena *scratch = zb_arena_new();
  zp_param_uses(g, scratch, param, &u);
  zb_arena_free(scratch);
  return !u.table && zp_is_matrix(&g->params[param], &u);
}

/* Marks the parameters that an optimizer is `for`: names, `all`, or `matrices`, but for those after `except`. */
static bool *marks_for(ZpBuild *b, const ZlOptimizer *o) {
  const ZgGraph *g = b->p->graph;
  ZlPaths named = {0};
  bool all = false, matrices = false;
  for (uint32_t i = 0; i < o->of.n; i++) {
    if (is_word(&o->of.at[i], "all")) all = true;
    else if (is_word(&o->of.at[i], "matrices")) matrices = true;
    else ZB_PUSH(b->p->arena, named.at, named.n, o->of.at[i]);
  }
  bool *chosen = marks(b, named), *but = marks(b, o->but);
  for (uint32_t i = 0; i < g->nparams; i++) {
    if (!g->params[i].state) chosen[i] |= all || (matrices && is_matrix(g, i));
    chosen[i] &= !but[i];
  }
  return chosen;
}

/* ---- frozen -------------------------------------------------------------------------------------------- */
/* p->asked.frozen stays NULL if nothing is. States that nothing updates are, whatever the recipe says. */
static void bind_freeze(ZpBuild *b) {
  ZpPlan *p = b->p;
  const ZgGraph *g = p->graph;
  const ZlRecipe *r = p->asked.recipe;
  uint32_t n = 0, params = 0, trained = 0, named = 0, left = 0;
  bool *frozen = marks(b, r->freeze.of), *but = marks(b, r->freeze.but);
  for (uint32_t i = 0; i < g->nparams; i++) {
    bool is = frozen[i] || r->freeze.all;
    named += is;
    left += frozen[i] = is && !but[i];
    params += !g->params[i].state;
    trained += !g->params[i].state && !frozen[i];
    n += frozen[i] |= g->params[i].state && !g->params[i].update;
  }
  if (params && !trained && !p->asked.forward_only && (r->freeze.all || r->freeze.of.n))
    zl_help(zl_report(b->d, ZL_Z0805, r->freeze.span, "all %u parameters of model %s are frozen", params,
                      g->model),
            "leave out, by `except`, what is to be trained");
  if (named && !left)
    zl_help(zl_report(b->d, ZL_Z0809, r->freeze.span,
                      "`freeze` has no effect: `except` takes out all that it names"),
            "leave it out, or name less in `except`");
  if (n) p->asked.frozen = frozen;
}

static bool is_trained(const ZpPlan *p, uint32_t param) {
  return !p->asked.frozen || !p->asked.frozen[param];
}

/* ---- optimizers ---------------------------------------------------------------------------------------- */
static double number(const ZlOptimizer *o, const char *key) { return zl_kw(o->kws, o->n, key)->num; }

static ZpRate rate_of(const ZlOptimizer *o) {
  const char *anneal = zl_kw(o->kws, o->n, "anneal")->word;
  ZpRate r = {.lr = number(o, "lr"),
              .warmup = (int64_t)number(o, "warmup"),
              .stable = (int64_t)number(o, "stable"),
              .until = (int64_t)number(o, "until"),
              .final = number(o, "final")};
  while (strcmp(zp_anneal_text[r.anneal], anneal)) r.anneal++;
  return r;
}

static const char *word(const ZlOptimizer *o, const char *key) { return zl_kw(o->kws, o->n, key)->word; }

/* Returns what a setting is to the scalars of a row: a number, or of a word 1 for `on`, 0 for `off`, else its position. */
static ZlAmount setting_of(const ZlOptimizer *o, const char *key) {
  const ZlKw *kw = zl_kw(o->kws, o->n, key);
  if (!kw || !kw->word) return kw ? kw->amount : (ZlAmount){0};
  return (ZlAmount){.num = !strcmp(kw->word, "on") || !strcmp(kw->word, "mean")};
}

/* Formats are those of the plan that trains in one that evaluates, too: parameters lie at the same places. */
static void take_states(ZpOptimizer *x, bool codes, bool kept) {
  const ZkOptimizerInfo *info = &zk_optimizer_info[x->kind];
  for (int i = 0; i < info->nstates && codes; i++) x->state_elem[i] = (uint8_t)info->code[i];
  if (kept) x->states = info->nstates + (x->every > 1); /* sums of gradients, in f32 */
}

/* Refuses what goes against an optimizer that keeps the average of its parameters itself. */
static void check_averages(ZpBuild *b, const ZlOptimizer *o, const ZpOptimizer *x) {
  const ZlKw *cautious = zl_kw(o->kws, o->n, "cautious");
  if (!zk_optimizer_info[x->kind].averages) return;
  if (b->p->asked.recipe->average > 0 && !b->p->asked.forward_only)
    zl_help(zl_report(b->d, ZL_Z0805, o->span,
                      "`average` is of the parameters at which gradients are taken, and `%s` evaluates and "
                      "saves an average of its own",
                      o->name.s),
            "leave `average` out");
  if (x->cautious)
    zl_help(zl_report(b->d, ZL_Z0805, cautious->span.file >= 0 ? cautious->span : o->span,
                      "`cautious` decays where the step does not point away from 0, and `%s` makes two steps",
                      o->name.s),
            "leave `cautious` out of `%s`", o->name.s);
}

static ZpOptimizer optimizer_of(const ZpPlan *p, const ZlOptimizer *o) {
  ZpOptimizer x = {.rate = rate_of(o),
                   .cautious = !strcmp(word(o, "cautious"), "on"),
                   .every = (int64_t)number(o, "every")};
  while (strcmp(zk_optimizer_info[x.kind].word, o->name.s)) x.kind++;
  const ZkOptimizerInfo *info = &zk_optimizer_info[x.kind];
  for (int i = 0; i < info->nsettings; i++) x.set[i] = setting_of(o, info->setting[i]);
  if (x.kind == ZK_BY_SGD && zl_amount_most(&x.set[0]) == 0) x.kind = ZK_BY_PLAIN;
  if (x.kind == ZK_BY_ADAFACTOR) {
    x.second = ZP_SECOND_BOTH;
    x.most = number(o, "threshold");
    x.eps = number(o, "eps");
    x.relative = !strcmp(word(o, "relative"), "on");
    x.least = number(o, "least");
  }
  if (x.kind == ZK_BY_MUON) {
    const char *second = word(o, "second");
    x.even = !strcmp(word(o, "equilibrate"), "on");
    x.snapped = !strcmp(word(o, "exact"), "on");
    x.second = !strcmp(second, "rows")     ? ZP_SECOND_ROWS
               : !strcmp(second, "longer") ? ZP_SECOND_LONGER
                                           : ZP_SECOND_OFF;
    x.rms = !strcmp(word(o, "scale"), "rms");
    x.iterations = (int)number(o, "steps");
    x.coefficients = !strcmp(word(o, "coefficients"), "polar") ? ZK_POLAR : ZK_JORDAN;
  }
  take_states(&x, number(o, "bits") == 8, !p->asked.forward_only);
  return x;
}

/* ---- groups -------------------------------------------------------------------------------------------- */
typedef struct {
  const ZlOptimizer *o;
  bool *of, *except, **shares; /* what these name */
} Words;

static Words words_of(ZpBuild *b, const ZlOptimizer *o) {
  Words w = {o, marks_for(b, o), marks(b, o->except), ZB_NEWN(b->p->arena, bool *, o->nshares + 1)};
  for (uint32_t i = 0; i < o->nshares; i++) w.shares[i] = marks(b, o->shares[i].of);
  return w;
}

/* Two clauses that say different things of one parameter. */
static void report_both(ZpBuild *b, uint32_t param, ZlSpan first, ZlSpan second) {
  ZlDiag *e = zl_report(b->d, ZL_Z0803, second, "this and another clause both name parameter `%s`",
                        b->p->graph->params[param].path);
  zl_also(e, first, "the other");
  zl_help(e, "name each parameter once: by other tags, or by labels in its path");
}

/* Returns what the clauses of its optimizer say of a parameter. */
static ZpGroup group_of(ZpBuild *b, const Words *w, uint32_t optimizer, uint32_t param) {
  ZpGroup g = {.optimizer = optimizer, .rate = 1};
  if (!w->except[param]) g.decay = w->o->decay;
  const ZlShare *said[2] = {NULL, NULL};
  for (uint32_t i = 0; i < w->o->nshares; i++) {
    const ZlShare *s = &w->o->shares[i];
    if (!w->shares[i][param]) continue;
    if (said[s->decay]) report_both(b, param, said[s->decay]->span, s->span);
    said[s->decay] = s;
    if (s->decay) g.decay = s->amount;
    else g.rate = s->amount.num;
  }
  return g;
}

/* A step takes lr * decay of a parameter, and so not all of it. */
static void check_decay(ZpBuild *b, const Words *w, const ZpGroup *g, uint32_t param) {
  double lr = b->p->asked.optimizers[g->optimizer].rate.lr * g->rate, most = zl_amount_most(&g->decay);
  if (lr * most < 1) return;
  ZlDiag *e = zl_report(b->d, ZL_Z0805, w->o->span,
                        "a rate of %g times a decay of %g is %g, and must be below 1", lr, most, lr * most);
  zl_note(e, "a step takes rate * decay * w from each parameter; here of `%s`",
          b->p->graph->params[param].path);
  zl_help(e, "write a smaller `decay`");
}

static uint32_t find_group(ZpPlan *p, const ZpGroup *g) {
  for (uint32_t i = 0; i < p->asked.ngroups; i++)
    if (p->asked.groups[i].optimizer == g->optimizer && p->asked.groups[i].rate == g->rate &&
        zl_amount_same(&p->asked.groups[i].decay, &g->decay) && p->asked.groups[i].update == g->update)
      return i;
  ZB_PUSH(p->arena, p->asked.groups, p->asked.ngroups, *g);
  return p->asked.ngroups - 1;
}

/* Returns the optimizer of a parameter: one that names it, or the one that names none; ZP_NONE: there is
 * none. */
static uint32_t optimizer_for(ZpBuild *b, const Words *w, uint32_t n, uint32_t param) {
  uint32_t found = ZP_NONE, rest = ZP_NONE;
  for (uint32_t i = 0; i < n; i++) {
    if (!w[i].o->of.n) rest = i; /* of that `of` marks none */
    if (!w[i].of[param]) continue;
    if (found != ZP_NONE) report_both(b, param, w[found].o->span, w[i].o->span);
    found = i;
  }
  return found == ZP_NONE ? rest : found;
}

/* The size of an axis that a number of the recipe is said by. */
static bool size_of(const ZlSizes *s, ZlName axis, double *out) {
  ZpBuild *b = s->ctx;
  uint32_t k = zp_find_axis(b, axis, ZP_AXIS_ANY);
  if (k == ZG_NONE) return false;
  *out = (double)b->p->layout.axis_valid[k];
  return true;
}

/* The recipe's optimizers, with every number known; one that has a mistake is not among them. */
static uint32_t find_words(ZpBuild *b, Words *w) {
  const ZlRecipe *r = b->p->asked.recipe;
  const ZlSizes sizes = {b->d, size_of, b};
  uint32_t n = 0;
  for (uint32_t i = 0; i <= r->nothers; i++) {
    const ZlOptimizer *o = i ? &r->others[i - 1] : &r->optimizer;
    ZlOptimizer *known = ZB_NEW(b->p->arena, ZlOptimizer);
    if (o->name.s && zl_optimizer_sizes(&sizes, b->p->arena, o, known)) w[n++] = words_of(b, known);
  }
  return n;
}

static void report_none(ZpBuild *b, uint32_t param) {
  const ZlRecipe *r = b->p->asked.recipe;
  ZlDiag *e = r->nothers ? zl_report(b->d, ZL_Z0811, r->others[0].span, "recipe %s has no optimizer for `%s`",
                                     r->name, b->p->graph->params[param].path)
                         : zl_report(b->d, ZL_Z0811, r->span, "recipe %s has no optimizer", r->name);
  zl_help(e, "add `optimizer adamw(lr = 1e-3)`, or inherit from a recipe that has one");
}

/* States have an optimizer of their own, behind those of the recipe: that which does what their updates
 * say. */
static void bind_updates(ZpPlan *p) {
  uint32_t which = p->asked.noptimizers;
  for (uint32_t i = 0; i < p->graph->nparams; i++) {
    ZpGroup g = {.optimizer = which, .update = p->graph->params[i].update};
    if (!g.update || !is_trained(p, i)) continue;
    p->asked.optimizers[which].kind = ZP_UPDATE;
    p->asked.noptimizers = which + 1;
    p->asked.group[i] = find_group(p, &g);
  }
}

void zp_bind_groups(ZpBuild *b) {
  ZpPlan *p = b->p;
  const ZlRecipe *r = p->asked.recipe;
  bind_freeze(b);
  p->asked.group = ZB_NEWN(p->arena, uint32_t, p->graph->nparams + 1);
  Words *w = ZB_NEWN(p->arena, Words, r->nothers + 1);
  uint32_t n = find_words(b, w);
  p->asked.optimizers = ZB_NEWN(p->arena, ZpOptimizer, n + 1);
  for (; p->asked.noptimizers < n; p->asked.noptimizers++) {
    const ZlOptimizer *o = w[p->asked.noptimizers].o;
    p->asked.optimizers[p->asked.noptimizers] = optimizer_of(p, o);
    check_averages(b, o, &p->asked.optimizers[p->asked.noptimizers]);
  }
  if (n) bind_updates(p);
  for (uint32_t i = 0; i < p->graph->nparams; i++) {
    if (!is_trained(p, i) || p->graph->params[i].state) continue;
    uint32_t k = optimizer_for(b, w, n, i);
    if (k == ZP_NONE && p->asked.forward_only) continue;
    if (k == ZP_NONE) {
      report_none(b, i);
      return;
    }
    ZpGroup g = group_of(b, &w[k], k, i);
    if (!p->asked.forward_only) check_decay(b, &w[k], &g, i);
    p->asked.group[i] = find_group(p, &g);
  }
  const ZlOptimizer **o = ZB_NEWN(p->arena, const ZlOptimizer *, n + 1);
  for (uint32_t i = 0; i < n; i++) o[i] = w[i].o;
  if (p->asked.ngroups) zp_bind_matrices(b, o);
}

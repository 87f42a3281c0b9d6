/* How parameters are trained: not at all, or by which optimizer, at which multiple of its rate and with which
 * decay. Those of which all this is the same are a group. */
#include "runtime/plan/bind/bind.h"

#include <string.h>

static bool *marks(ZpBuild *b, ZlPaths of) {
  bool *chosen = ZB_NEWN(b->p->arena, bool, b->p->graph->nparams + 1);
  zp_select(b, of.at, of.n, chosen);
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

static ZpOptimizer optimizer_of(const ZpPlan *p, const ZlOptimizer *o) {
  ZpOptimizer x = {.rate = rate_of(o)};
  while (strcmp(zp_optimizer_text[x.kind], o->name.s)) x.kind++;
  if (x.kind == ZP_SGD || x.kind == ZP_MUON) x.momentum = number(o, "momentum");
  else x.b1 = number(o, "b1"), x.b2 = number(o, "b2");
  if (x.kind == ZP_ADAMW) x.eps = number(o, "eps");
  if (x.kind == ZP_ADAMW && number(o, "bits") == 8) x.state_elem[0] = ZK_DYN8, x.state_elem[1] = ZK_UDYN8;
  if (x.kind == ZP_MUON) {
    x.nesterov = !strcmp(zl_kw(o->kws, o->n, "nesterov")->word, "on");
    x.rms = !strcmp(zl_kw(o->kws, o->n, "scale")->word, "rms");
    x.iterations = (int)number(o, "steps");
  }
  if (!p->asked.forward_only)
    x.states = x.kind == ZP_ADAMW ? 2 : x.kind == ZP_LION || x.kind == ZP_MUON || x.momentum != 0;
  return x;
}

/* ---- groups -------------------------------------------------------------------------------------------- */
typedef struct {
  const ZlOptimizer *o;
  bool *of, *except, **shares; /* what these name */
} Words;

static Words words_of(ZpBuild *b, const ZlOptimizer *o) {
  Words w = {o, marks(b, o->of), marks(b, o->except), ZB_NEWN(b->p->arena, bool *, o->nshares + 1)};
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
  ZpGroup g = {optimizer, 1, w->except[param] ? 0 : w->o->decay, NULL};
  const ZlShare *said[2] = {NULL, NULL};
  for (uint32_t i = 0; i < w->o->nshares; i++) {
    const ZlShare *s = &w->o->shares[i];
    if (!w->shares[i][param]) continue;
    if (said[s->decay]) report_both(b, param, said[s->decay]->span, s->span);
    said[s->decay] = s;
    *(s->decay ? &g.decay : &g.rate) = s->num;
  }
  return g;
}

static uint32_t find_group(ZpPlan *p, const ZpGroup *g) {
  for (uint32_t i = 0; i < p->asked.ngroups; i++)
    if (p->asked.groups[i].optimizer == g->optimizer && p->asked.groups[i].rate == g->rate &&
        p->asked.groups[i].decay == g->decay && p->asked.groups[i].update == g->update)
      return i;
  ZB_PUSH(p->arena, p->asked.groups, p->asked.ngroups, *g);
  return p->asked.ngroups - 1;
}

/* Returns the optimizer of a parameter: one that names it, or the one that names none; ZP_NONE: there is
 * none. */
static uint32_t optimizer_for(ZpBuild *b, const Words *w, uint32_t n, uint32_t param) {
  uint32_t found = ZP_NONE, rest = ZP_NONE;
  for (uint32_t i = 0; i < n; i++) {
    if (!w[i].o->of.n) rest = i;
    if (!w[i].of[param]) continue;
    if (found != ZP_NONE) report_both(b, param, w[found].o->span, w[i].o->span);
    found = i;
  }
  return found == ZP_NONE ? rest : found;
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
  uint32_t n = 0;
  bind_freeze(b);
  p->asked.group = ZB_NEWN(p->arena, uint32_t, p->graph->nparams + 1);
  Words *w = ZB_NEWN(p->arena, Words, r->nothers + 1);
  if (r->optimizer.name.s) w[n++] = words_of(b, &r->optimizer);
  for (uint32_t i = 0; i < r->nothers; i++) w[n++] = words_of(b, &r->others[i]);
  if (n > ZK_MOST_OPTIMIZERS)
    zl_report(b->d, ZL_Z0808, r->others[r->nothers - 1].span,
              "recipe %s has %u optimizers; there are at most %d in this version", r->name, n,
              ZK_MOST_OPTIMIZERS);
  p->asked.optimizers = ZB_NEWN(p->arena, ZpOptimizer, n + 1);
  for (; p->asked.noptimizers < n; p->asked.noptimizers++)
    p->asked.optimizers[p->asked.noptimizers] = optimizer_of(p, w[p->asked.noptimizers].o);
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
    p->asked.group[i] = find_group(p, &g);
  }
  for (uint32_t i = 0; i < n && p->asked.pins; i++)
    if (p->asked.optimizers[i].state_elem[0] != ZK_F32) {
      ZlDiag *e =
          zl_report(b->d, ZL_Z0808, w[i].o->span, "states of 8 bits are not kept on GPUs in this version");
      zl_help(e, "leave `bits = 8` out, or train on `cpu`");
    }
  const ZlOptimizer **o = ZB_NEWN(p->arena, const ZlOptimizer *, n + 1);
  for (uint32_t i = 0; i < n; i++) o[i] = w[i].o;
  if (p->asked.ngroups) zp_bind_muon(b, o);
}

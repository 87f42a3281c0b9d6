/* The layout of a run that generates on several ranks and was given none: found by plan/search, said once, and kept
 * where that is wanted. All ranks look for it by the same cluster, and find the same. */
#include "runtime/exec/run/run.h"
#include "runtime/plan/search/search.h"

#include <math.h>
#include <string.h>

enum { SHOWN = 4 /* rows of the table */ };

/* ---- the cluster ------------------------------------------------------------------------------------------- */
/* Gives the constants of a machine that was only looked at: as ranks of a CPU have them that share its memory. They
 * are not measured, but what ranks of one machine gain by them, all of it in the same way, does not depend on that. */
static void assume(ZlCluster *c, int threads, int64_t ranks) {
  double copies = c->nlevels ? c->levels[0].bandwidth : 10e9, flops = 40e9 * threads;
  c->stream = 2 * copies / (double)ranks; /* a copy reads and writes */
  c->flops_f32 = flops, c->flops_bf16 = flops;
  c->products = 0.8, c->attention = 0.4, c->launch = 2e-6, c->steal = 0.5;
  for (uint32_t i = 0; i < c->nlevels; i++) {
    ZlLevel *l = &c->levels[i];
    bool outer = i && i + 1 == c->nlevels;
    l->latency = outer ? 20e-6 : 2e-6, l->start = outer ? 30e-6 : 5e-6, l->ramp = 1e-6;
  }
}

/* Returns the cluster that was given, or what is assumed of the machines at hand; NULL with reports. Collective. */
static const ZlCluster *cluster_of(ZxRun *r, bool *measured) {
  const char *name;
  ZlOptions lo = {r->o.include.s, r->o.include.n};
  *measured = r->o.cluster && !zx_auto_cluster(&r->o);
  if (*measured) {
    ZlProgram *p = zl_load_named(r->a, r->sources, r->diags, r->o.cluster, &lo, &name);
    return p && !zl_errors(r->diags) ? zl_cluster(p, r->diags, name) : NULL;
  }
  const ZlCluster *seen = zx_run_auto_cluster(r);
  if (!seen) return NULL;
  ZlCluster *c = ZB_NEW(r->a, ZlCluster);
  *c = *seen;
  c->levels = ZB_NEWN(r->a, ZlLevel, c->nlevels + 1);
  for (uint32_t i = 0; i < c->nlevels; i++) c->levels[i] = seen->levels[i];
  assume(c, r->o.threads, r->c->t->size(r->c));
  return c;
}

/* ---- what was found ---------------------------------------------------------------------------------------- */
static void show(const ZpStepsSearch *s, bool measured) {
  ZbText t = {0};
  zp_show_steps_search(s, &t);
  fprintf(stderr, "%s%s\n", t.s,
          measured
              ? ""
              : "note: by what CPUs usually do; `zrun calibrate` measures this machine, for --cluster\n");
  zb_text_free(&t);
}

/* Writes the recipe, with reasons; rank 0's. */
static bool keep(ZxRun *r, const ZpStepsSearch *s, ZbErr *err) {
  static const ZbKind kind = {"a recipe of a search", zp_is_searched};
  ZbText raw = {0}, text = {0};
  zp_steps_recipes(s, 1, &raw);
  ZlSources *sources = zl_sources_new(r->a);
  if (!zl_format(r->a, sources, zl_diags_new(r->a, sources), r->o.recipe_out, raw.s, raw.len, &text))
    ZB_BUG("the search wrote a recipe that does not parse:\n%s", raw.s);
  bool ok = zb_write_file(r->o.recipe_out, &kind, text.s, text.len, err);
  zb_text_free(&raw);
  zb_text_free(&text);
  return ok;
}

/* Says of the nearest why it will not do. */
static bool refuse(ZxRun *r, const ZpStepsSearch *s) {
  ZbErr err = {0};
  int n = r->c->t->size(r->c);
  const char *why = s->none ? s->none : zb_printf(r->a, "the nearest %s", s->lost[0].refused);
  zb_fail(&err, "start another number of ranks, or give a recipe with --recipe FILE:NAME",
          "no layout of model %s over %d rank%s will do: %s", r->graph->model, n, n == 1 ? "" : "s", why);
  return zx_run_refuse(r, &err);
}

bool zx_run_choose_layout(ZxRun *r, int64_t sequences, int64_t length, bool bf16, const char *weights) {
  ZbErr err = {0};
  bool measured;
  const ZxDeviceTable *d = r->o.device;
  const ZlCluster *c = cluster_of(r, &measured);
  if (!zx_run_agree_diags(r, c)) return false;
  ZpStepsAsked asked = {.cluster = c,
                        .ranks = r->c->t->size(r->c),
                        .keep = SHOWN,
                        .sequences = sequences,
                        .prompt = (length + 1) / 2,
                        .answer = length - (length + 1) / 2,
                        .step = r->generating.step,
                        .page = r->generating.page,
                        .bf16 = bf16,
                        .weights = &weights,
                        .nweights = weights ? 1 : 0};
  ZpOptions po = {.scratch = d->scratch, .threads = r->o.threads, .supports = d->supports, .pins = !d->host};
  const ZpStepsSearch *s = zp_search_steps(r->a, r->graph, &asked, &po, r->diags);
  if (!zx_run_agree_diags(r, s)) return false;
  if (!r->rank && !r->o.quiet) show(s, measured);
  if (!s->nbest) return refuse(r, s);
  ZlRecipe *found = ZB_NEW(r->a, ZlRecipe);
  *found = *s->best[0].recipe;
  found->name = "generate";
  found->model = r->graph->model;
  r->recipe = found;
  bool kept = r->rank || !r->o.recipe_out || keep(r, s, &err);
  return zx_run_accept(r, kept, &err);
}

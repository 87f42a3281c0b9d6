/* The list of passes, in order, each followed by a check of the graph; and zc_check, which stops at types. */
#include "compiler/adapt.h"
#include "compiler/elab.h"

#include <string.h>

/* A pass changes the graph in place; what it cannot do it says in err. */
static bool simplify(ZgGraph *g, ZbErr *err) {
  (void)err;
  zc_simplify(g);
  return true;
}

static const struct {
  const char *name;
  bool (*run)(ZgGraph *g, ZbErr *err);
} passes[] = {{"simpl", simplify}, {"grad", zc_differentiate}, {"final", simplify}};
enum { NPASSES = sizeof passes / sizeof *passes };

const char *const zc_pass_names[] = {"parse", "elab", "simpl", "grad", "final", NULL};

static void after(const ZcOptions *opt, const char *pass, const ZgGraph *g) {
  ZbErr err;
  if (!zg_verify(g, &err)) ZB_BUG("the graph is broken after %s: %s", pass, err.text);
  if (opt->after) opt->after(opt->arg, pass, g);
}

/* ---- names of operations --------------------------------------------------------------------------------- */
/* A block of an operation's name would compute something else wherever the operation was meant. */
static void hides_none(ZlDiags *d, ZlBlock *const *blocks, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    ZlName name = blocks[i]->name;
    if (!is_builtin(name.s)) continue;
    ZlDiag *g = zl_report(d, ZL_Z0114, name.span, "block `%s` hides the operation `%s`", name.s, name.s);
    zl_help(g, "give the block another name, `my_%s`", name.s);
  }
}

static void no_block_hides(const ZlProgram *p, ZlDiags *d) {
  for (uint32_t i = 0; i < p->nfiles; i++) {
    const ZlFile *f = p->files[i];
    hides_none(d, f->blocks, f->nblocks);
    for (uint32_t k = 0; k < f->nmodels; k++) hides_none(d, f->models[k]->blocks, f->models[k]->nblocks);
  }
}

/* ---- adapters -------------------------------------------------------------------------------------------- */
/* What the names of a map have lost of those of the map that it is made from. */
static const char *lost_by(void *model, const char *map) {
  const ZlFile *f = ((const ZlModel *)model)->file;
  for (uint32_t i = 0; i < f->nweights; i++) {
    const ZlWeights *w = f->weights[i];
    if (!strcmp(w->model.s, ((const ZlModel *)model)->name.s) && !strcmp(w->name.s, map))
      return w->base ? w->without.s : "";
  }
  return "";
}

static bool adapt(ZgGraph *g, ZlDiags *d, ZlProgram *p, const ZcOptions *opt) {
  ZbArena *tmp = zb_arena_new();
  const ZlModel *m = zl_model(p, d, opt->model);
  uint32_t n = opt->lora ? 1 : opt->nadapters;
  bool ok = true;
  for (uint32_t i = 0; i < n && ok; i++)
    ok = adapter_config(g, tmp, d, opt, i) && adapt_graph(g, tmp, d, opt, i, lost_by, (void *)m);
  zb_arena_free(tmp);
  return ok;
}

/* ---- all passes ------------------------------------------------------------------------------------------ */
ZgGraph *zc_compile(ZbArena *a, ZlSources *s, ZlDiags *d, ZlProgram *p, const ZcOptions *opt) {
  no_block_hides(p, d);
  ZgGraph *g = zc_elaborate(a, s, d, p, opt);
  if (!g || !adapt(g, d, p, opt)) return NULL;
  unused_names(d, a, p->files[0]);
  after(opt, "elab", g);
  for (int i = 0; i < NPASSES; i++) {
    ZbErr err = {0};
    if (!passes[i].run(g, &err)) {
      ZlDiag *why = zl_report(d, ZL_Z0202, ZL_NOWHERE, "%s", err.text);
      if (err.help[0]) zl_help(why, "%s", err.help);
      return NULL;
    }
    after(opt, passes[i].name, g);
  }
  return g;
}

/* ---- zc --check ------------------------------------------------------------------------------------------ */
static void check_alone(Elab *e, ZlBlock *const *blocks, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (!e->uses[blocks[i]->number].seen) call_block_alone(e, blocks[i]);
}

void zc_check(ZbArena *a, ZlSources *s, ZlDiags *d, ZlProgram *p, const ZcOptions *opt) {
  const ZlFile *f = p->files[0];
  no_block_hides(p, d);
  zl_check_recipes(p, d);
  Elab e;
  if (opt->model && !zl_model(p, d, opt->model)) return;
  BlockUse *uses = ZB_NEWN(a, BlockUse, p->nblocks + 1);
  for (uint32_t i = 0; i < f->nmodels; i++) {
    const ZlModel *m = f->models[i];
    if (opt->model && strcmp(opt->model, m->name.s)) continue;
    elab_init(&e, NULL, s, d, p, opt, uses, m->name.s);
    elab_model(&e, m);
    e.stopped = false;
    check_alone(&e, m->blocks, m->nblocks);
    elab_end(&e);
  }
  elab_init(&e, NULL, s, d, p, opt, uses, f->name);
  check_alone(&e, f->blocks, f->nblocks);
  elab_end(&e);
  if (!zl_errors(d)) unused_names(d, a, f);
}

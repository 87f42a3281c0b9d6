/* Names that are declared and that nothing mentions: axes, statics, inputs, values, blocks. (Parameters are the compiler's: it
 * knows which reach a result.) By the text alone, so that what only a branch that is not taken uses is used. A name that begins
 * with `_` is meant to be unused, and so is one of several results as long as another is not. */
#include "compiler/elab.h"

typedef struct {
  ZlDiags *d;
  ZbArena *a;
  ZbNames *said; /* the names that are mentioned in what is walked */
} Walk;

static void mention(Walk *w, const char *name) {
  if (name && zb_names_find(w->said, name) == ZB_NO_NAME) zb_names_add(w->a, w->said, name);
}
static void mention_all(Walk *w, ZlNames names) {
  for (uint32_t i = 0; i < names.n; i++) mention(w, names.at[i].s);
}
static void walk_type(Walk *w, const ZlTypeExpr *t) {
  mention_all(w, t->axes);
  mention(w, t->of.s);
}

static void walk_expr(Walk *w, const ZlExpr *x) {
  if (!x) return;
  switch (x->kind) {
  case ZL_E_NUM: return;
  case ZL_E_NAME: mention(w, x->name.s); return;
  case ZL_E_CAST: walk_expr(w, x->cast.a); return;
  case ZL_E_BIN: walk_expr(w, x->bin.b); /* and the other */ /* fall through */
  case ZL_E_NEG:
  case ZL_E_NOT: walk_expr(w, x->bin.a); return;
  case ZL_E_CALL:
    mention(w, x->call.path.part[0].s);
    mention_all(w, x->call.axes);
    for (uint32_t i = 0; i < x->call.nargs; i++) walk_expr(w, x->call.args[i].value);
  }
}

static void walk_body(Walk *w, ZlStmt *const *body, uint32_t n);

static void walk_axes(Walk *w, const ZlAxisDef *defs, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) walk_expr(w, defs[i].size);
}

static void walk_statement(Walk *w, const ZlStmt *s) {
  switch (s->kind) {
  case ZL_S_PARAM:
    for (uint32_t i = 0; i < s->param.ndefs; i++) mention_all(w, s->param.defs[i].axes);
    walk_expr(w, s->param.value);
    for (uint32_t i = 0; i < s->param.nargs; i++) walk_expr(w, s->param.args[i]);
    return;
  case ZL_S_LET: walk_expr(w, s->let.value); return;
  case ZL_S_REPEAT:
    walk_expr(w, s->repeat.count);
    walk_body(w, s->repeat.body, s->repeat.nbody);
    return;
  case ZL_S_IF:
    walk_expr(w, s->choice.cond);
    walk_body(w, s->choice.body, s->choice.nbody);
    walk_body(w, s->choice.otherwise, s->choice.nother);
    return;
  case ZL_S_AUX: walk_expr(w, s->aux); return;
  case ZL_S_RETURN:
    for (uint32_t i = 0; i < s->ret.n; i++) walk_expr(w, s->ret.values[i]);
    return;
  case ZL_S_UPDATE: walk_expr(w, s->update.value); return;
  case ZL_S_AXIS: walk_axes(w, s->axis.defs, s->axis.ndefs); return;
  case ZL_S_INPUT: walk_type(w, &s->input.type); return;
  case ZL_S_OUTPUT:
    if (s->output.typed) walk_type(w, &s->output.type);
    walk_expr(w, s->output.value);
    return;
  case ZL_S_LOSS: walk_expr(w, s->loss.num); walk_expr(w, s->loss.den);
  }
}

static void walk_body(Walk *w, ZlStmt *const *body, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) walk_statement(w, body[i]);
}

static void walk_block(Walk *w, const ZlBlock *b) {
  for (uint32_t i = 0; i < b->nformals; i++) {
    if (b->formals[i].is_static) walk_expr(w, b->formals[i].value);
    else walk_type(w, &b->formals[i].type);
  }
  for (uint32_t i = 0; i < b->nresults; i++) walk_type(w, &b->results[i]);
  walk_body(w, b->body, b->nbody);
}

/* ---- weights, which mention axes and statics of their model ---- */
static void walk_cond(Walk *w, const ZlCond *c) {
  for (; c; c = c->outer) walk_expr(w, c->expr);
}

static void walk_dim(Walk *w, const ZlDim *d) {
  mention(w, d->axis.s);
  for (uint32_t i = 0; i < d->n; i++) walk_dim(w, d->at[i]);
}

static void walk_value(Walk *w, const ZlConfigValue *v) {
  if (!v) return;
  walk_expr(w, v->expr);
  for (uint32_t i = 0; i < v->n; i++) walk_value(w, &v->at[i]);
}

static void walk_weights(Walk *w, const ZlWeights *m) {
  for (uint32_t i = 0; i < m->nrules; i++) {
    mention(w, m->rules[i].axis.s);
    for (uint32_t k = 0; k < m->rules[i].ndims; k++) walk_dim(w, m->rules[i].dims[k]);
    walk_cond(w, m->rules[i].cond);
  }
  for (uint32_t i = 0; i < m->nconfig; i++) {
    walk_cond(w, m->config[i].cond);
    walk_value(w, m->config[i].otherwise);
    mention(w, m->config[i].key.s);
    for (uint32_t k = 0; k < m->config[i].nvalues; k++) walk_value(w, &m->config[i].values[k]);
  }
}

/* ---- reports ---- */
static bool is_unused(const Walk *w, const char *name) {
  return name[0] != '_' && zb_names_find(w->said, name) == ZB_NO_NAME;
}

static void report(const Walk *w, const char *what, ZlName name) {
  if (!is_unused(w, name.s)) return;
  zl_help(zl_report(w->d, ZL_Z0115, name.span, "%s `%s` is never used", what, name.s), "use it or remove it");
}

static void report_values(const Walk *w, ZlStmt *const *body, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    const ZlStmt *s = body[i];
    bool all = true;
    for (uint32_t k = 0; s->kind == ZL_S_LET && k < s->let.names.n; k++)
      all &= is_unused(w, s->let.names.at[k].s);
    if (s->kind == ZL_S_LET && all) report(w, "value", s->let.names.at[0]);
    if (s->kind == ZL_S_INPUT) report(w, "input", s->input.name);
    if (s->kind == ZL_S_REPEAT) report_values(w, s->repeat.body, s->repeat.nbody);
    if (s->kind != ZL_S_IF) continue;
    report_values(w, s->choice.body, s->choice.nbody);
    report_values(w, s->choice.otherwise, s->choice.nother);
  }
}

static void report_axes(const Walk *w, ZlStmt *const *body, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t k = 0; body[i]->kind == ZL_S_AXIS && k < body[i]->axis.ndefs; k++)
      report(w, "axis", body[i]->axis.defs[k].name);
}

static void check_block(Walk *w, const ZlBlock *b) {
  ZbNames said = {0};
  Walk own = {w->d, w->a, &said};
  walk_block(&own, b);
  report_axes(&own, b->body, b->nbody);
  report_values(&own, b->body, b->nbody);
  for (uint32_t i = 0; i < b->nformals; i++)
    report(&own, b->formals[i].is_static ? "static" : "argument", b->formals[i].name);
}

static void check_model(Walk *w, const ZlModel *m) {
  ZbNames said = {0}, of_body = {0};
  Walk own = {w->d, w->a, &said}, body = {w->d, w->a, &of_body};
  walk_body(&body, m->body, m->nbody);
  walk_body(&own, m->body, m->nbody);
  for (uint32_t i = 0; i < m->nstatics; i++) walk_expr(&own, m->statics[i].value);
  for (uint32_t i = 0; i < m->naxes; i++) walk_expr(&own, m->axes[i].size), walk_cond(&own, m->axes[i].cond);
  for (uint32_t i = 0; i < m->nblocks; i++) walk_block(&own, m->blocks[i]);
  for (uint32_t i = 0; i < m->file->nweights; i++) walk_weights(&own, m->file->weights[i]);
  mention(&own, "batch"); /* every model has it */
  for (uint32_t i = 0; i < m->nstatics; i++) report(&own, "static", m->statics[i].name);
  for (uint32_t i = 0; i < m->naxes; i++) report(&own, "axis", m->axes[i].name);
  for (uint32_t i = 0; i < m->nblocks; i++)
    report(&own, "block", m->blocks[i]->name), check_block(w, m->blocks[i]);
  for (uint32_t i = 0; i < m->nbody; i++)
    if (m->body[i]->kind == ZL_S_INPUT)
      report(&own, "input", m->body[i]->input.name), mention(&body, m->body[i]->input.name.s);
  report_values(&body, m->body, m->nbody);
}

void unused_names(ZlDiags *d, ZbArena *a, const ZlFile *f) {
  ZbNames said = {0};
  Walk all = {d, a, &said};
  for (uint32_t i = 0; i < f->nmodels; i++) {
    walk_body(&all, f->models[i]->body, f->models[i]->nbody);
    for (uint32_t k = 0; k < f->models[i]->nblocks; k++) walk_block(&all, f->models[i]->blocks[k]);
    check_model(&all, f->models[i]);
  }
  for (uint32_t i = 0; i < f->nblocks; i++) walk_block(&all, f->blocks[i]);
  for (uint32_t i = 0; i < f->nblocks; i++) {
    if (f->nmodels) report(&all, "block", f->blocks[i]->name); /* else it is a library */
    check_block(&all, f->blocks[i]);
  }
}

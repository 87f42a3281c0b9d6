/* The promises of ast.h that need no other file: names unique, statements where they belong, nesting. Runs
 * only on files without syntax errors. */
#include "lang/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  ZlDiags *d;
  ZbArena *arena;
  bool in_block, in_repeat, in_if;
  bool loss; /* the model has one, or an aux term */
} Form;

void zl_twice(ZlDiags *d, const char *what, ZlName again, ZlSpan first) {
  ZlDiag *g = zl_report(d, ZL_Z0101, again.span, "%s `%s` is declared twice", what, again.s);
  zl_also(g, first, "first here");
}

static int by_name(const void *a, const void *b) {
  const ZlName *x = a, *y = b;
  int c = strcmp(x->s, y->s);
  return c ? c : (x->span.start > y->span.start) - (x->span.start < y->span.start);
}

static void unique(Form *f, const char *what, ZlNames names) {
  if (names.n < 2) return;
  ZlName *sorted = ZB_NEWN(f->arena, ZlName, names.n);
  memcpy(sorted, names.at, names.n * sizeof *sorted);
  qsort(sorted, names.n, sizeof *sorted, by_name);
  for (uint32_t i = 1, first = 0; i < names.n; i++)
    if (strcmp(sorted[i].s, sorted[first].s) != 0) first = i;
    else zl_twice(f->d, what, sorted[i], sorted[first].span);
}

/* ---- expressions ---- */
bool zl_too_deep(ZlDiags *d, const ZlExpr *e) {
  if (e->depth <= ZL_MAX_NESTING) return false;
  ZlDiag *g = zl_report(d, ZL_Z0003, e->span, "expression is nested more than %d deep", ZL_MAX_NESTING);
  zl_help(g, "give parts of it names");
  return true;
}

static void check_args(Form *f, const ZlExpr *e) {
  const ZlArg *named = NULL;
  for (uint32_t i = 0; i < e->call.nargs; i++) {
    const ZlArg *a = &e->call.args[i];
    if (a->name.s) {
      for (uint32_t j = 0; j < i; j++)
        if (e->call.args[j].name.s && strcmp(e->call.args[j].name.s, a->name.s) == 0) {
          zl_twice(f->d, "argument", a->name, e->call.args[j].name.span);
          break;
        }
      named = a;
    } else if (named) {
      ZlDiag *g = zl_report(f->d, ZL_Z0010, a->value->span, "positional argument after a named one");
      zl_also(g, named->name.span, "named");
      zl_help(g, "put the tensors first, then `%s = ...`", named->name.s);
    }
  }
}

static void check_expr(Form *f, const ZlExpr *e) {
  switch (e->kind) {
  case ZL_E_NUM:
  case ZL_E_NAME: break;
  case ZL_E_BIN:
    check_expr(f, e->bin.b); /* and then as the others */
    __attribute__((fallthrough));
  case ZL_E_NEG:
  case ZL_E_NOT: check_expr(f, e->bin.a); break;
  case ZL_E_CAST: check_expr(f, e->cast.a); break;
  case ZL_E_CALL:
    check_args(f, e);
    for (uint32_t i = 0; i < e->call.nargs; i++) check_expr(f, e->call.args[i].value);
    break;
  }
}

static void check_top(Form *f, const ZlExpr *e) {
  if (e && !zl_too_deep(f->d, e)) check_expr(f, e);
}

/* ---- statements ---- */
void zl_name_in_front(ZlDiags *d, ZlName name) {
  ZlDiag *g = zl_report(d, ZL_Z0001, name.span, "a loss has its name in front");
  zl_help(g, "write `loss %s = ... per ...`", name.s);
}

/* `loss a per f(b) as name`: the label of a call, as it was read. */
static void check_loss(Form *f, const ZlStmt *s) {
  const ZlExpr *last = s->loss.den;
  while (last->kind == ZL_E_BIN) last = last->bin.b;
  if (last->kind == ZL_E_CALL && last->call.label.s && last->call.label.span.end == s->span.end)
    zl_name_in_front(f->d, last->call.label);
  check_top(f, s->loss.num);
  check_top(f, s->loss.den);
}

static const char *statement_word(ZlStmtKind k) {
  static const char *const word[] = {"param",  "",     "repeat", "if",     "aux", "return",
                                     "update", "axis", "input",  "output", "loss"};
  return word[k];
}

/* Whether a statement may stand here: input, output and loss only in a model itself, loss also in an `if`;
 * axis anywhere but in a repeat. */
static bool allowed(Form *f, const ZlStmt *s) {
  bool of_model = s->kind >= ZL_S_AXIS;
  if (s->kind == ZL_S_AXIS && !f->in_repeat) return true;
  if (s->kind == ZL_S_LOSS && !f->in_block && !f->in_repeat) return true;
  if (!of_model || (!f->in_block && !f->in_repeat && !f->in_if)) return true;
  ZlDiag *g = zl_report(f->d, ZL_Z0008, s->span, "`%s` cannot stand in a %s", statement_word(s->kind),
                        f->in_if       ? "branch of an `if`"
                        : f->in_repeat ? "repeat"
                                       : "block");
  zl_help(g, "move it to the body of the model");
  return false;
}

static void check_return(Form *f, const ZlStmt *s, bool last) {
  if (f->in_block && !f->in_repeat && !f->in_if && last) return;
  ZlDiag *g = zl_report(f->d, ZL_Z0008, s->span, "`return` must be the last statement of a block");
  if (!f->in_block) zl_help(g, "a model has `output name = ...` and `loss ... per ...`");
}

static bool shallow(Form *f, const ZlStmt *s, uint32_t depth) {
  if (depth <= ZL_MAX_NESTING) return true;
  zl_report(f->d, ZL_Z0003, s->span, "`%s` is nested more than %d deep", statement_word(s->kind),
            ZL_MAX_NESTING);
  return false;
}

static void check_stmts(Form *f, ZlStmt *const *at, uint32_t n);

static void check_stmt(Form *f, const ZlStmt *s, bool last) {
  if (!allowed(f, s)) return;
  switch (s->kind) {
  case ZL_S_PARAM:
    for (uint32_t i = 0; i < s->param.ndefs; i++) unique(f, "axis", s->param.defs[i].axes);
    check_top(f, s->param.value);
    for (uint32_t i = 0; i < s->param.nargs; i++) check_top(f, s->param.args[i]);
    unique(f, "tag", s->param.tags);
    break;
  case ZL_S_LET:
    unique(f, "name", s->let.names);
    check_top(f, s->let.value);
    break;
  case ZL_S_IF: {
    if (!shallow(f, s, s->choice.depth)) break;
    bool outer = f->in_if;
    f->in_if = true;
    check_top(f, s->choice.cond);
    check_stmts(f, s->choice.body, s->choice.nbody);
    check_stmts(f, s->choice.otherwise, s->choice.nother);
    f->in_if = outer;
    break;
  }
  case ZL_S_REPEAT: {
    if (!shallow(f, s, s->repeat.depth)) break;
    bool outer = f->in_repeat;
    f->in_repeat = true;
    check_top(f, s->repeat.count);
    check_stmts(f, s->repeat.body, s->repeat.nbody);
    f->in_repeat = outer;
    break;
  }
  case ZL_S_AUX:
    f->loss = true;
    check_top(f, s->aux);
    break;
  case ZL_S_RETURN:
    check_return(f, s, last);
    for (uint32_t i = 0; i < s->ret.n; i++) check_top(f, s->ret.values[i]);
    break;
  case ZL_S_UPDATE: check_top(f, s->update.value); break;
  case ZL_S_AXIS:
    for (uint32_t i = 0; i < s->axis.ndefs; i++) check_top(f, s->axis.defs[i].size);
    break;
  case ZL_S_INPUT: unique(f, "axis", s->input.type.axes); break;
  case ZL_S_OUTPUT:
    unique(f, "axis", s->output.type.axes);
    check_top(f, s->output.value);
    break;
  case ZL_S_LOSS:
    f->loss = true;
    check_loss(f, s);
    break;
  }
}

static void check_stmts(Form *f, ZlStmt *const *at, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) check_stmt(f, at[i], i + 1 == n);
}

/* ---- blocks and models ---- */
static void check_block(ZlDiags *d, ZbArena *a, const ZlBlock *b) {
  Form form = {.d = d, .arena = a, .in_block = true};
  ZlNames names = {0};
  unique(&form, "axis parameter", b->axes);
  for (uint32_t i = 0; i < b->nformals; i++) {
    const ZlFormal *f = &b->formals[i];
    ZB_PUSH(a, names.at, names.n, f->name);
    if (f->is_static) check_top(&form, f->value);
    else unique(&form, "axis", f->type.axes);
  }
  unique(&form, "argument", names);
  for (uint32_t i = 0; i < b->nresults; i++) unique(&form, "axis", b->results[i].axes);

  check_stmts(&form, b->body, b->nbody);
  const ZlStmt *last = b->nbody ? b->body[b->nbody - 1] : NULL;
  if (!last || last->kind != ZL_S_RETURN) {
    ZlDiag *g = zl_report(d, ZL_Z0008, b->name.span, "block `%s` does not end in `return`", b->name.s);
    zl_help(g, "end its body with `return` and %u value%s", b->nresults, b->nresults == 1 ? "" : "s");
  } else if (last->ret.n != b->nresults) {
    ZlDiag *g = zl_report(d, ZL_Z0008, last->span, "`return` gives %u value%s, block `%s` declares %u",
                          last->ret.n, last->ret.n == 1 ? "" : "s", b->name.s, b->nresults);
    zl_also(g, b->span, "declared here");
  }
}

static void check_model(ZlDiags *d, ZbArena *a, const ZlModel *m) {
  Form form = {.d = d, .arena = a};
  ZlNames names = {0}, io = {0};
  for (uint32_t i = 0; i < m->nstatics; i++) {
    ZB_PUSH(a, names.at, names.n, m->statics[i].name);
    check_top(&form, m->statics[i].value);
  }
  for (uint32_t i = 0; i < m->naxes; i++) ZB_PUSH(a, names.at, names.n, m->axes[i].name);
  unique(&form, "size or axis", names);
  names = (ZlNames){0};
  for (uint32_t i = 0; i < m->nblocks; i++) {
    ZB_PUSH(a, names.at, names.n, m->blocks[i]->name);
    check_block(d, a, m->blocks[i]);
  }
  unique(&form, "block", names);

  check_stmts(&form, m->body, m->nbody);
  for (uint32_t i = 0; i < m->nbody; i++) {
    const ZlStmt *s = m->body[i];
    if (s->kind == ZL_S_INPUT) ZB_PUSH(a, io.at, io.n, s->input.name);
    if (s->kind == ZL_S_OUTPUT) ZB_PUSH(a, io.at, io.n, s->output.name);
  }
  unique(&form, "input or output", io);
  if (!form.loss) {
    ZlDiag *g = zl_report(d, ZL_Z0009, m->name.span, "model `%s` has no loss", m->name.s);
    zl_help(g, "add, for instance, `loss xent[vocab](logits, targets) per known(targets)`");
  }
}

void zl_check_form(ZlDiags *d, ZbArena *a, const ZlFile *f) {
  Form form = {.d = d, .arena = a};
  ZlNames uses = {0}, blocks = {0}, models = {0}, recipes = {0}, clusters = {0};
  for (uint32_t i = 0; i < f->nuses; i++) ZB_PUSH(a, uses.at, uses.n, f->uses[i].alias);
  for (uint32_t i = 0; i < f->nblocks; i++) {
    ZB_PUSH(a, blocks.at, blocks.n, f->blocks[i]->name);
    check_block(d, a, f->blocks[i]);
  }
  for (uint32_t i = 0; i < f->nmodels; i++) {
    ZB_PUSH(a, models.at, models.n, f->models[i]->name);
    check_model(d, a, f->models[i]);
  }
  for (uint32_t i = 0; i < f->nrecipes; i++) ZB_PUSH(a, recipes.at, recipes.n, f->recipes[i]->name);
  for (uint32_t i = 0; i < f->nclusters; i++) ZB_PUSH(a, clusters.at, clusters.n, f->clusters[i]->name);
  unique(&form, "namespace", uses);
  unique(&form, "block", blocks);
  unique(&form, "model", models);
  unique(&form, "recipe", recipes);
  unique(&form, "cluster", clusters);
  zl_check_weights(d, a, f);
}

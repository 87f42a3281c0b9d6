/* The syntax tree: making nodes, and printing it as canonical source. */
#include "lang/scan.h"

const char *zl_elem_text(ZlElem e) {
  static const char *const text[] = {"real", "f32", "bf16", "f16", "i32", "bool", "index"};
  return text[e];
}

/* ---- nodes ---- */
static ZlExpr *expr(ZbArena *a, ZlExprKind kind, ZlSpan span) {
  ZlExpr *e = ZB_NEW(a, ZlExpr);
  e->kind = kind;
  e->span = span;
  e->depth = 1;
  return e;
}

/* One past the limit is enough to know: form.c reports it. */
static void deepen(ZlExpr *e, const ZlExpr *child) {
  if (child->depth >= e->depth)
    e->depth = child->depth < ZL_MAX_NESTING ? child->depth + 1 : ZL_MAX_NESTING + 1;
}

ZlExpr *zl_binary(ZbArena *a, ZlSpan span, char op, ZlExpr *x, ZlExpr *y) {
  ZlExpr *e = expr(a, ZL_E_BIN, span);
  e->bin.op = op;
  e->bin.a = x;
  e->bin.b = y;
  deepen(e, x);
  deepen(e, y);
  return e;
}

ZlExpr *zl_unary(ZbArena *a, ZlSpan span, ZlExprKind kind, ZlExpr *x) {
  ZlExpr *e = expr(a, kind, span);
  e->bin.a = x;
  deepen(e, x);
  return e;
}

const char *zl_operator_text(char op) {
  switch (op) {
  case '+': return "+";
  case '-': return "-";
  case '*': return "*";
  case '/': return "/";
  case ZL_LESS: return "<";
  case ZL_MORE: return ">";
  case ZL_AT_MOST: return "<=";
  case ZL_AT_LEAST: return ">=";
  case ZL_EQUALS: return "==";
  case ZL_DIFFERS: return "!=";
  case ZL_AND: return "and";
  default: return "or";
  }
}

ZlExpr *zl_number(ZbArena *a, ZlNumber n) {
  ZlExpr *e = expr(a, ZL_E_NUM, n.span);
  e->num.value = n.value;
  e->num.integer = n.integer;
  e->num.i = n.i;
  return e;
}

ZlExpr *zl_named(ZbArena *a, ZlName n) {
  ZlExpr *e = expr(a, ZL_E_NAME, n.span);
  e->name = n;
  return e;
}

ZlExpr *zl_call(ZbArena *a, ZlSpan span, ZlPath path, ZlArgList args) {
  ZlExpr *e = expr(a, ZL_E_CALL, span);
  e->call.path = path;
  e->call.ax_span = ZL_NOWHERE;
  e->call.args = args.at;
  e->call.nargs = args.n;
  for (uint32_t i = 0; i < args.n; i++) deepen(e, args.at[i].value);
  return e;
}

ZlExpr *zl_cast(ZbArena *a, ZlSpan span, ZlElem elem, ZlExpr *x) {
  ZlExpr *e = expr(a, ZL_E_CAST, span);
  e->cast.elem = elem;
  e->cast.a = x;
  deepen(e, x);
  return e;
}

ZlStmt *zl_statement(ZbArena *a, ZlStmtKind kind, ZlSpan span) {
  ZlStmt *s = ZB_NEW(a, ZlStmt);
  s->kind = kind;
  s->span = span;
  return s;
}

void zl_add_statement(ZbArena *a, ZlStmtList *list, ZlStmt *s) {
  ZB_PUSH(a, list->at, list->n, s);
  uint32_t depth = s->kind == ZL_S_REPEAT ? s->repeat.depth : s->kind == ZL_S_IF ? s->choice.depth : 0;
  if (depth > list->depth) list->depth = depth;
}

const ZlCond *zl_cond(ZbArena *a, const ZlCond *outer, ZlExpr *expr, bool otherwise) {
  ZlCond *c = ZB_NEW(a, ZlCond);
  *c = (ZlCond){outer, expr, otherwise, outer ? outer->depth + 1 : 1};
  return c;
}

/* Nested deeper than is allowed, which form.c reports, they are not looked for. */
void zl_collect_axes(ZbArena *a, ZlModel *m, const ZlStmt *s, const ZlCond *cond) {
  for (uint32_t i = 0; s->kind == ZL_S_AXIS && i < s->axis.ndefs; i++) {
    ZlAxisDef d = s->axis.defs[i];
    d.cond = cond;
    ZB_PUSH(a, m->axes, m->naxes, d);
  }
  if (s->kind != ZL_S_IF || s->choice.depth > ZL_MAX_NESTING) return;
  const ZlCond *then = zl_cond(a, cond, s->choice.cond, false),
               *other = zl_cond(a, cond, s->choice.cond, true);
  for (uint32_t i = 0; i < s->choice.nbody; i++) zl_collect_axes(a, m, s->choice.body[i], then);
  for (uint32_t i = 0; i < s->choice.nother; i++) zl_collect_axes(a, m, s->choice.otherwise[i], other);
}

ZlDirective *zl_directive(ZbArena *a, ZlDirectiveKind kind) {
  ZlDirective *d = ZB_NEW(a, ZlDirective);
  d->kind = kind;
  return d;
}

ZlQuantity zl_number_quantity(ZlName name, ZlNumber n) {
  return (ZlQuantity){
      .name = name, .value = n.value, .unit = ZL_U_NONE, .integer = n.integer, .i = n.i, .span = n.span};
}

/* ---- printing ---- */
static void indent(ZbText *out, int depth) {
  while (depth--) zb_text_add(out, "  ");
}

static void put_names(ZbText *out, ZlNames names) {
  for (uint32_t i = 0; i < names.n; i++) zb_text_add(out, "%s%s", i ? ", " : "", names.at[i].s);
}

static void put_path(ZbText *out, const ZlPath *p) {
  for (uint32_t i = 0; i < p->n; i++) zb_text_add(out, "%s%s", i ? "." : "", p->part[i].s);
}

const char *zl_path_text(ZbArena *a, const ZlPath *path) {
  ZbText out = {0};
  put_path(&out, path);
  const char *s = zb_strdup(a, out.s ? out.s : "");
  zb_text_free(&out);
  return s;
}

/* "[.., seq]"; nothing without any. */
static void put_axes(ZbText *out, bool row, ZlNames axes) {
  if (!row && axes.n == 0) return;
  zb_text_add(out, "[%s", !row ? "" : axes.n ? ".., " : "..");
  put_names(out, axes);
  zb_text_add(out, "]");
}

static void put_type(ZbText *out, const ZlTypeExpr *t) {
  zb_text_add(out, "%s", zl_elem_text(t->elem));
  if (t->elem == ZL_INDEX) zb_text_add(out, "(%s)", t->of.s);
  put_axes(out, t->rest, t->axes);
}

static void put_expr(ZbText *out, const ZlExpr *e);

static void put_call(ZbText *out, const ZlExpr *e) {
  put_path(out, &e->call.path);
  put_axes(out, e->call.all_axes, e->call.axes);
  zb_text_add(out, "(");
  for (uint32_t i = 0; i < e->call.nargs; i++) {
    if (i) zb_text_add(out, ", ");
    if (e->call.args[i].name.s) zb_text_add(out, "%s = ", e->call.args[i].name.s);
    put_expr(out, e->call.args[i].value);
  }
  zb_text_add(out, ")");
  if (e->call.label.s) zb_text_add(out, " as %s", e->call.label.s);
}

static void put_expr(ZbText *out, const ZlExpr *e) {
  switch (e->kind) {
  case ZL_E_NUM:
    if (e->num.integer) zb_text_add(out, "%lld", (long long)e->num.i);
    else zb_text_add(out, "%.17g", e->num.value);
    break;
  case ZL_E_NAME: zb_text_add(out, "%s", e->name.s); break;
  case ZL_E_NEG:
    zb_text_add(out, "(-");
    put_expr(out, e->bin.a);
    zb_text_add(out, ")");
    break;
  case ZL_E_NOT:
    zb_text_add(out, "(not ");
    put_expr(out, e->bin.a);
    zb_text_add(out, ")");
    break;
  case ZL_E_BIN:
    zb_text_add(out, "(");
    put_expr(out, e->bin.a);
    zb_text_add(out, " %s ", zl_operator_text(e->bin.op));
    put_expr(out, e->bin.b);
    zb_text_add(out, ")");
    break;
  case ZL_E_CALL: put_call(out, e); break;
  case ZL_E_CAST:
    zb_text_add(out, "%s(", zl_elem_text(e->cast.elem));
    put_expr(out, e->cast.a);
    zb_text_add(out, ")");
    break;
  }
}

static void put_exprs(ZbText *out, ZlExpr *const *at, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    if (i) zb_text_add(out, ", ");
    put_expr(out, at[i]);
  }
}

static void put_param(ZbText *out, const ZlStmt *s) {
  zb_text_add(out, s->param.state ? "state " : "param ");
  for (uint32_t i = 0; i < s->param.ndefs; i++) {
    zb_text_add(out, "%s%s[", i ? ", " : "", s->param.defs[i].name.s);
    put_names(out, s->param.defs[i].axes);
    zb_text_add(out, "]");
  }
  if (s->param.value) {
    zb_text_add(out, " = ");
    put_expr(out, s->param.value);
  } else {
    zb_text_add(out, " ~ %s(", s->param.init.s);
    put_exprs(out, s->param.args, s->param.nargs);
    zb_text_add(out, ")");
  }
  if (s->param.tags.n) zb_text_add(out, " tag ");
  put_names(out, s->param.tags);
}

static void put_stmts(ZbText *out, ZlStmt *const *at, uint32_t n, int depth);

static void put_stmt(ZbText *out, const ZlStmt *s, int depth) {
  indent(out, depth);
  switch (s->kind) {
  case ZL_S_PARAM: put_param(out, s); break;
  case ZL_S_LET:
    put_names(out, s->let.names);
    zb_text_add(out, " = ");
    put_expr(out, s->let.value);
    break;
  case ZL_S_REPEAT:
    zb_text_add(out, "repeat ");
    put_expr(out, s->repeat.count);
    if (s->repeat.label.s) zb_text_add(out, " as %s", s->repeat.label.s);
    zb_text_add(out, " {\n");
    put_stmts(out, s->repeat.body, s->repeat.nbody, depth + 1);
    indent(out, depth);
    zb_text_add(out, "}");
    break;
  case ZL_S_IF:
    zb_text_add(out, "if ");
    put_expr(out, s->choice.cond);
    zb_text_add(out, " {\n");
    put_stmts(out, s->choice.body, s->choice.nbody, depth + 1);
    indent(out, depth);
    zb_text_add(out, "}");
    if (!s->choice.nother) break;
    zb_text_add(out, " else {\n");
    put_stmts(out, s->choice.otherwise, s->choice.nother, depth + 1);
    indent(out, depth);
    zb_text_add(out, "}");
    break;
  case ZL_S_AUX:
    zb_text_add(out, "aux ");
    put_expr(out, s->aux);
    break;
  case ZL_S_RETURN:
    zb_text_add(out, "return ");
    put_exprs(out, s->ret.values, s->ret.n);
    break;
  case ZL_S_UPDATE:
    zb_text_add(out, "update %s = ", s->update.name.s);
    put_expr(out, s->update.value);
    break;
  case ZL_S_AXIS:
    zb_text_add(out, "axis ");
    for (uint32_t i = 0; i < s->axis.ndefs; i++) {
      zb_text_add(out, "%s%s", i ? ", " : "", s->axis.defs[i].name.s);
      if (!s->axis.defs[i].size) continue;
      zb_text_add(out, " = ");
      put_expr(out, s->axis.defs[i].size);
    }
    break;
  case ZL_S_INPUT:
    zb_text_add(out, "input %s: ", s->input.name.s);
    put_type(out, &s->input.type);
    break;
  case ZL_S_OUTPUT:
    zb_text_add(out, "output %s", s->output.name.s);
    if (s->output.typed) zb_text_add(out, ": "), put_type(out, &s->output.type);
    zb_text_add(out, " = ");
    put_expr(out, s->output.value);
    break;
  case ZL_S_LOSS:
    zb_text_add(out, "loss ");
    if (s->loss.name.s) zb_text_add(out, "%s = ", s->loss.name.s);
    put_expr(out, s->loss.num);
    zb_text_add(out, " per ");
    put_expr(out, s->loss.den);
    break;
  }
  zb_text_add(out, "\n");
}

static void put_stmts(ZbText *out, ZlStmt *const *at, uint32_t n, int depth) {
  for (uint32_t i = 0; i < n; i++) put_stmt(out, at[i], depth);
}

static void put_block(ZbText *out, const ZlBlock *b, int depth) {
  indent(out, depth);
  zb_text_add(out, "block %s", b->name.s);
  put_axes(out, b->row, b->axes);
  zb_text_add(out, "(");
  for (uint32_t i = 0; i < b->nformals; i++) {
    const ZlFormal *f = &b->formals[i];
    zb_text_add(out, "%s%s%s", i ? ", " : "", f->name.s, f->is_static ? " = " : ": ");
    if (f->is_static) put_expr(out, f->value);
    else put_type(out, &f->type);
  }
  zb_text_add(out, ") -> ");
  for (uint32_t i = 0; i < b->nresults; i++) {
    zb_text_add(out, "%s", i ? ", " : "");
    put_type(out, &b->results[i]);
  }
  zb_text_add(out, " {\n");
  put_stmts(out, b->body, b->nbody, depth + 1);
  indent(out, depth);
  zb_text_add(out, "}\n");
}

static void put_model(ZbText *out, const ZlModel *m) {
  zb_text_add(out, "model %s", m->name.s);
  for (uint32_t i = 0; i < m->nstatics; i++) {
    zb_text_add(out, "%s%s = ", i ? ", " : "(", m->statics[i].name.s);
    put_expr(out, m->statics[i].value);
  }
  zb_text_add(out, "%s {\n", m->nstatics ? ")" : "");
  for (uint32_t i = 0; i < m->nblocks; i++) put_block(out, m->blocks[i], 1);
  put_stmts(out, m->body, m->nbody, 1);
  zb_text_add(out, "}\n");
}

void zl_put_expr(ZbText *out, const ZlExpr *e) { put_expr(out, e); }

void zl_dump(const ZlProgram *p, ZbText *out) {
  const ZlFile *f = p->files[0];
  for (uint32_t i = 0; i < f->nuses; i++) {
    zb_text_add(out, "use ");
    put_path(out, &f->uses[i].path);
    zb_text_add(out, " as %s\n", f->uses[i].alias.s);
  }
  for (uint32_t i = 0; i < f->nblocks; i++) put_block(out, f->blocks[i], 0);
  for (uint32_t i = 0; i < f->nmodels; i++) put_model(out, f->models[i]);
  for (uint32_t i = 0; i < f->nweights; i++) zl_put_weights(out, f->weights[i]);
}

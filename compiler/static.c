/* Static expressions, the model's statics with their overrides, and the sizes of its axes. A static may name
 * statics before it and, as its size, any axis that has one. */
#include "compiler/elab.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- showing where a number comes from ----------------------------------------------------------------- */
static int strength(const ZlExpr *x) {
  if (x->kind == ZL_E_NOT) return 2;
  if (x->kind != ZL_E_BIN) return 6;
  switch (x->bin.op) {
  case ZL_OR: return 0;
  case ZL_AND: return 1;
  case '+':
  case '-': return 4;
  case '*':
  case '/': return 5;
  default: return 3;
  }
}

/* Does operand o of x need parentheses: is it a weaker operator, or as strong and on the right? */
static bool needs_parens(const ZlExpr *x, const ZlExpr *o, bool right) {
  if (x->kind == ZL_E_NEG) return strength(o) < 6;
  return strength(o) < strength(x) || (strength(o) == strength(x) && (right || strength(x) == 3));
}

static void put_expr(Elab *e, const ZlExpr *x, bool values, ZbText *out);

static void put_operand(Elab *e, const ZlExpr *x, const ZlExpr *o, bool values, ZbText *out) {
  bool parens = needs_parens(x, o, x->kind == ZL_E_BIN && o == x->bin.b);
  if (parens) zb_text_add(out, "(");
  put_expr(e, o, values, out);
  if (parens) zb_text_add(out, ")");
}

static void put_expr(Elab *e, const ZlExpr *x, bool values, ZbText *out) {
  Num v;
  switch (x->kind) {
  case ZL_E_NUM:
    if (x->num.integer) zb_text_add(out, "%lld", (long long)x->num.i);
    else zb_text_add(out, "%g", x->num.value);
    break;
  case ZL_E_NAME:
    if (values && static_eval(e, x, &v)) zb_text_add(out, "%s", num_text(e->arena, v));
    else zb_text_add(out, "%s", x->name.s);
    break;
  case ZL_E_NEG:
    zb_text_add(out, "-");
    put_operand(e, x, x->bin.a, values, out);
    break;
  case ZL_E_NOT:
    zb_text_add(out, "not ");
    put_operand(e, x, x->bin.a, values, out);
    break;
  case ZL_E_BIN:
    put_operand(e, x, x->bin.a, values, out);
    zb_text_add(out, " %s ", zl_operator_text(x->bin.op));
    put_operand(e, x, x->bin.b, values, out);
    break;
  default:
    zb_text_add(out, "%s", x->call.path.part[0].s);
    for (uint32_t i = 0; i < x->call.axes.n; i++)
      zb_text_add(out, "%s%s", i ? ", " : "[", x->call.axes.at[i].s);
    zb_text_add(out, x->call.axes.n ? "](" : "(");
    for (uint32_t i = 0; i < x->call.nargs; i++) {
      if (i) zb_text_add(out, ", ");
      put_expr(e, x->call.args[i].value, values, out);
    }
    zb_text_add(out, ")");
  }
}

static const char *expr_text(Elab *e, const ZlExpr *x, bool values) {
  ZbText t = {0};
  put_expr(e, x, values, &t);
  const char *s = zb_strndup(e->arena, t.s, t.len);
  zb_text_free(&t);
  return s;
}

static const ZcDefine *override_of(const Elab *e, const char *name) {
  const ZcDefine *found = NULL; /* the last -D of a name wins */
  for (uint32_t i = 0; i < e->opt->ndefines; i++)
    if (!strcmp(e->opt->defines[i].name, name)) found = &e->opt->defines[i];
  return found;
}

bool static_overridden(const Elab *e, const char *name) { return override_of(e, name) != NULL; }

/* "width = 768 (gpt2.zug:2)", "heads = 10 (-D heads=10)" for each name in x, as notes. */
static void note_values(Elab *e, ZlDiag *d, const ZlExpr *x) {
  switch (x->kind) {
  case ZL_E_NAME: {
    Bind *b = name_find(e, x->name.s);
    if (!b || b->val.kind != VAL_NUM) return;
    const char *v = num_text(e->arena, b->val.num);
    bool of_model = e->model && b->shared;
    const char *config = of_model ? config_gives(e, x->name.s) : NULL;
    if (of_model && override_of(e, x->name.s)) {
      zl_note(d, "%s = %s, from the command line", x->name.s, v);
    } else if (config) {
      zl_note(d, "%s = %s, from %s", x->name.s, v, config);
    } else if (b->name.span.file >= 0) {
      uint32_t line, col;
      zl_source_place(e->src, b->name.span, &line, &col);
      zl_note(d, "%s = %s, from %s:%u", x->name.s, v, zl_source_name(e->src, b->name.span.file), line);
    }
    return;
  }
  case ZL_E_NEG:
  case ZL_E_NOT: note_values(e, d, x->bin.a); return;
  case ZL_E_BIN:
    note_values(e, d, x->bin.a);
    note_values(e, d, x->bin.b);
    return;
  case ZL_E_CALL:
    for (uint32_t i = 0; i < x->call.nargs; i++) note_values(e, d, x->call.args[i].value);
    return;
  default: return;
  }
}

/* ---- evaluation ---------------------------------------------------------------------------------------- */
static const char *nearest_static(Elab *e, const char *name) {
  if (zl_full(e->diags)) return NULL;
  const char **names = NULL;
  size_t n = 0;
  for (Frame *f = e->frame; f; f = f->model)
    for (uint32_t i = 0; i < f->nbinds; i++)
      if (f->binds[i].val.kind == VAL_NUM) ZB_PUSH(e->arena, names, n, f->binds[i].name.s);
  return zb_nearest(name, names, n);
}

Num static_size(const Elab *e, uint16_t axis) {
  Num n = num_int(e->g->axes[axis].size);
  n.assumed = axis >= e->assumed;
  return n;
}

bool static_fits(Elab *e, ZlSpan span, Num v) {
  if (fabs(v.v) <= 3.4028234663852886e38 || v.assumed) return true;
  ZlDiag *d = complain(e, ZL_Z0107, span, "%s is beyond the numbers of f32, which end at 3.4e38",
                       num_text(e->arena, v));
  zl_help(d, "write a smaller one; for a mask -1e30 is as good as minus infinity");
  return false;
}

bool static_assumed(Num *v) {
  if (!v->assumed) return false;
  *v = num_int(1);
  v->assumed = true;
  return true;
}

static bool eval_size(Elab *e, ZlName axis, Num *out) {
  uint16_t a;
  if (!axis_resolve(e, axis, &a)) return false;
  *out = static_size(e, a);
  if (e->g->axes[a].size) return true;
  ZlDiag *d = complain(e, ZL_Z0209, axis.span,
                       "axis `%s` gets its size from the recipe, so it is not known here", axis.s);
  zl_help(d, "write a static number in its place");
  return false;
}

/* The model's static of that name, which has no number yet. */
static const ZlStatic *later_static(const Elab *e, const char *name) {
  for (uint32_t i = 0; e->model && i < e->model->nstatics; i++)
    if (!strcmp(e->model->statics[i].name.s, name)) return &e->model->statics[i];
  return NULL;
}

void static_varies(Elab *e, ZlSpan span, const char *name) {
  ZlDiag *d = complain(e, ZL_Z0107, span, "`%s` is another number in each iteration of the repeat", name);
  zl_note(d, "the layers of a repeat are one program; what differs between them is in parameters");
  zl_help(d, "use it in initial values alone, `~ normal(0.02 / sqrt(%s + 1))`", name);
}

/* The number in the current iteration of what depends on that. */
static bool eval_varying(Elab *e, const Bind *b, Num *out) {
  Frame *here = e->frame;
  bool ok = true;
  if (b->of) {
    e->frame = b->in;
    ok = static_eval(e, b->of, out);
    e->frame = here;
  } else *out = num_int(e->iteration);
  out->varies = true;
  return ok;
}

static bool eval_name(Elab *e, const ZlExpr *x, Num *out) {
  Bind *b = name_find(e, x->name.s);
  uint16_t axis;
  if (b && b->val.kind == VAL_NUM && (b->label || b->val.num.varies)) {
    if (e->initial && b->val.num.varies) return eval_varying(e, b, out);
    *out = b->val.num;
    if (!e->initial) static_varies(e, x->span, x->name.s);
    return e->initial;
  }
  if (b && b->val.kind == VAL_NUM) {
    *out = b->val.num;
    return true;
  }
  if (b && b->val.kind == VAL_POISON) return false;
  if (b) {
    ZlDiag *d = complain(e, ZL_Z0107, x->span,
                         "`%s` is a tensor; a number known at compile time is needed here", x->name.s);
    zl_help(d, "write a number, a static of the model, or `size[a]()`");
    return false;
  }
  if (axis_find(e, x->name.s, &axis)) return eval_size(e, x->name, out);
  ZlDiag *d = complain(e, ZL_Z0102, x->span, "no static `%s`", x->name.s);
  const char *near = nearest_static(e, x->name.s);
  const ZlStatic *later = later_static(e, x->name.s);
  if (later) {
    zl_also(d, later->name.span, "no number yet");
    zl_help(d, "statics are made in their order: put `%s` before what uses it", x->name.s);
  } else if (near) {
    zl_help(d, "did you mean `%s`?", near);
  }
  return false;
}

static bool eval_call(Elab *e, const ZlExpr *x, Num *out) {
  const char *f = x->call.path.part[0].s;
  if (x->call.path.n == 1 && !strcmp(f, "size") && x->call.axes.n == 1 && !x->call.nargs)
    return eval_size(e, x->call.axes.at[0], out);
  int want = x->call.path.n == 1 ? num_function_args(f) : -1;
  if (want < 0 || x->call.axes.n || x->call.all_axes || x->call.label.s) {
    ZlDiag *d = complain(e, ZL_Z0107, x->span, "`%s` is not a function of statics",
                         zl_path_text(e->arena, &x->call.path));
    const char *names[NUM_MAX_FUNCTIONS];
    const char *near = zb_nearest(f, names, num_function_names(names));
    if (is_builtin(f) && want < 0) {
      zl_note(d, "`%s` makes a tensor, and a number that is known when the model is compiled is needed here",
              f);
      zl_help(d, "write a number, a static of the model, or `size[a]()`");
    } else if (near && want < 0) zl_help(d, "did you mean `%s`?", near);
    return false;
  }
  if ((int)x->call.nargs != want) {
    complain(e, ZL_Z0205, x->span, "`%s` takes %d argument%s, found %u", f, want, want == 1 ? "" : "s",
             x->call.nargs);
    return false;
  }
  Num arg[2];
  for (int i = 0; i < want; i++)
    if (!static_eval(e, x->call.args[i].value, &arg[i])) return false;
  if (num_call(f, arg, out) || static_assumed(out)) return true;
  note_values(e, complain(e, ZL_Z0107, x->span, "%s has no value", expr_text(e, x, true)), x);
  return false;
}

void static_not(Num *v) {
  bool assumed = v->assumed, varies = v->varies;
  *v = num_int(v->v == 0);
  v->assumed = assumed;
  v->varies = varies;
}

bool static_binary(Elab *e, const ZlExpr *x, Num a, Num b, Num *out) {
  bool ok = true;
  switch (x->bin.op) {
  case '+': *out = num_add(a, b); break;
  case '-': *out = num_sub(a, b); break;
  case '*': *out = num_mul(a, b); break;
  case '/': ok = num_div(a, b, out); break;
  case ZL_LESS: *out = num_int(num_less(a, b)); break;
  case ZL_MORE: *out = num_int(num_less(b, a)); break;
  case ZL_AT_MOST: *out = num_int(!num_less(b, a)); break;
  case ZL_AT_LEAST: *out = num_int(!num_less(a, b)); break;
  case ZL_EQUALS: *out = num_int(num_equal(a, b)); break;
  case ZL_DIFFERS: *out = num_int(!num_equal(a, b)); break;
  case ZL_AND: *out = num_int(a.v != 0 && b.v != 0); break;
  default: *out = num_int(a.v != 0 || b.v != 0);
  }
  out->assumed = a.assumed || b.assumed;
  out->varies = a.varies || b.varies;
  if ((ok && out->v - out->v == 0) || static_assumed(out)) return true;
  note_values(e, complain(e, ZL_Z0107, x->span, "%s", ok ? "the number is too large" : "division by zero"),
              x);
  return false;
}

bool static_eval(Elab *e, const ZlExpr *x, Num *out) {
  Num a, b;
  if (!elab_spend(e, ELAB_WORK, 1, x->span)) return false;
  switch (x->kind) {
  case ZL_E_NUM: *out = x->num.integer ? num_int(x->num.i) : num_double(x->num.value); return true;
  case ZL_E_NAME: return eval_name(e, x, out);
  case ZL_E_NEG:
    if (!static_eval(e, x->bin.a, &a)) return false;
    *out = num_neg(a);
    return true;
  case ZL_E_NOT:
    if (!static_eval(e, x->bin.a, &a)) return false;
    static_not(&a);
    *out = a;
    return true;
  case ZL_E_BIN: {
    bool left = static_eval(e, x->bin.a, &a); /* both sides: two mistakes are two messages */
    return static_eval(e, x->bin.b, &b) && left && static_binary(e, x, a, b, out);
  }
  case ZL_E_CALL: return eval_call(e, x, out);
  default: complain(e, ZL_Z0107, x->span, "a number known at compile time is needed here"); return false;
  }
}

bool static_initial(Elab *e, const ZlExpr *x, Num *out) {
  bool before = e->initial;
  e->initial = true;
  bool ok = static_eval(e, x, out);
  e->initial = before;
  return ok;
}

bool static_true(Elab *e, const ZlExpr *x) {
  Num v;
  return static_eval(e, x, &v) && v.v != 0;
}

bool cond_holds(Elab *e, const ZlCond *c) {
  for (; c; c = c->outer)
    if (static_true(e, c->expr) == c->otherwise) return false;
  return true;
}

bool static_int(Elab *e, const ZlExpr *x, int64_t least, int64_t most, const char *what, int64_t *out) {
  Num v;
  if (!static_eval(e, x, &v)) return false;
  if (num_is_int(v, out) && *out >= least && *out <= most) return true;
  if (v.assumed) {
    *out = least;
    return true;
  }
  ZlDiag *d;
  const char *text = expr_text(e, x, false), *values = expr_text(e, x, true);
  bool leaf = x->kind == ZL_E_NUM || x->kind == ZL_E_NEG;
  if (num_is_int(v, out))
    d = complain(e, ZL_Z0105, x->span, "%s%s%s is %lld, must be %lld to %lld", what, leaf ? "" : " = ",
                 leaf ? "" : text, (long long)*out, (long long)least, (long long)most);
  else
    d = complain(e, ZL_Z0105, x->span, "%s = %s is not an integer: %s", what, text,
                 strcmp(text, values) && x->kind == ZL_E_BIN ? values : num_text(e->arena, v));
  note_values(e, d, x);
  return false;
}

/* ---- the model's statics and axes ---------------------------------------------------------------------- */
static bool parse_number(const char *s, Num *out) {
  char *end;
  if (!isdigit((unsigned char)*s) && *s != '-' && *s != '.') return false;
  errno = 0;
  long long i = strtoll(s, &end, 10);
  if (!*end && !errno) {
    *out = num_int(i);
    return true;
  }
  double v = strtod(s, &end);
  *out = num_double(v);
  return !*end && v - v == 0;
}

static void check_overrides(Elab *e, const ZlModel *m) {
  const char **names = ZB_NEWN(e->arena, const char *, m->nstatics + 1);
  for (uint32_t i = 0; i < m->nstatics; i++) names[i] = m->statics[i].name.s;
  for (uint32_t i = 0; i < e->opt->ndefines; i++) {
    const char *name = e->opt->defines[i].name;
    bool known = false;
    for (uint32_t k = 0; k < m->nstatics; k++) known |= !strcmp(names[k], name);
    if (known) continue;
    ZlDiag *d = zl_report(e->diags, ZL_Z0108, ZL_NOWHERE, "-D %s=%s: model %s has no static `%s`", name,
                          e->opt->defines[i].value, m->name.s, name);
    const char *near = zb_nearest(name, names, m->nstatics);
    if (near) zl_help(d, "did you mean `%s`?", near);
  }
}

static void bind_statics(Elab *e, const ZlModel *m) {
  for (uint32_t i = 0; i < m->nstatics; i++) {
    const ZlStatic *s = &m->statics[i];
    const ZcDefine *o = override_of(e, s->name.s);
    Val v = {.kind = VAL_NUM};
    bool ok;
    if (o) {
      ok = parse_number(o->value, &v.num);
      if (!ok)
        zl_report(e->diags, ZL_Z0107, ZL_NOWHERE, "-D %s=%s: `%s` is not a number", o->name, o->value,
                  o->value);
    } else {
      ConfigSays says = config_static(e, s->name.s, &v.num);
      ok = says == CONFIG_SET || (says == CONFIG_SILENT && static_eval(e, s->value, &v.num));
    }
    if (!ok) v = (Val){.kind = VAL_POISON};
    name_add(e, e->frame, (Bind){.name = s->name, .val = v, .shared = true, .param = ZG_NONE});
  }
}

static void bind_axes(Elab *e, const ZlModel *m) {
  for (uint32_t i = 0; i < m->naxes; i++) {
    const ZlAxisDef *a = &m->axes[i];
    int64_t size = 0;
    if (!cond_holds(e, a->cond)) continue;
    if (e->g->naxes == ZG_MAX_GRAPH_AXES) {
      zl_help(complain(e, ZL_Z0111, a->name.span, "a model has at most %d axes", ZG_MAX_GRAPH_AXES),
              "remove axes that no tensor has");
      e->stopped = true;
      return;
    }
    /* An axis without a usable size still exists, so that its uses are not reported as well. */
    if (a->size && !static_int(e, a->size, 1, INT32_MAX, zb_printf(e->arena, "axis %s", a->name.s), &size))
      size = 1;
    axis_bind(e, e->frame, a->name.s, (uint16_t)zg_axis_add(e->g, a->name.s, size));
  }
}

void static_bind_model(Elab *e, const ZlModel *m) {
  check_overrides(e, m);
  bool open = config_open(e) && config_family(e);
  bind_statics(e, m);
  bind_axes(e, m);
  if (!open || e->stopped) return;
  config_values(e);
  config_check(e);
}

/* Expressions and names: what a name, a number, a sum or a call stands for in the frame at hand. */
#include "compiler/elab.h"

#include <string.h>

bool is_float(const ZgType *t) {
  return t->elem == ZG_REAL || t->elem == ZG_F32 || t->elem == ZG_BF16 || t->elem == ZG_F16;
}

const char *type_text(Elab *e, const ZgType *t) { return zg_type_text(e->g, e->arena, t); }

const char *axes_text(Elab *e, const ZgType *t) {
  if (!t->naxes) return "a scalar";
  const char *s = zb_printf(e->arena, "[%s", e->g->axes[t->axis[0]].name);
  for (int i = 1; i < t->naxes; i++) s = zb_printf(e->arena, "%s, %s", s, e->g->axes[t->axis[i]].name);
  return zb_printf(e->arena, "%s]", s);
}

/* ---- names ---- */
static Bind *find_in(Frame *f, const char *name, bool shared_only) {
  uint32_t i = zb_names_find(&f->names, name);
  return i != ZB_NO_NAME && (f->binds[i].shared || !shared_only) ? &f->binds[i] : NULL;
}

Bind *name_find(Elab *e, const char *name) {
  Bind *b = find_in(e->frame, name, false);
  if (!b && e->frame->model) b = find_in(e->frame->model, name, true);
  return b;
}

void name_bind(Elab *e, ZlName name, Val v) {
  Bind *b = find_in(e->frame, name.s, false), fresh = {.name = name, .val = v, .param = ZG_NONE};
  if (b) *b = fresh;
  else name_add(e, e->frame, fresh);
}

void name_add(Elab *e, Frame *f, Bind b) {
  f->binds = zb_room(e->arena, f->binds, f->nbinds, sizeof *f->binds, &f->room);
  f->binds[f->nbinds++] = b;
  zb_names_add(e->arena, &f->names, b.name.s);
}

void name_cut(Frame *f, uint32_t n) {
  f->nbinds = n;
  zb_names_cut(&f->names, n);
}

/* All names one could write here, for "did you mean". */
static const char *nearest_name(Elab *e, const char *name) {
  if (zl_full(e->diags)) return NULL;
  const char **names = NULL;
  size_t n = 0;
  for (Frame *f = e->frame; f; f = f->model)
    for (uint32_t i = 0; i < f->nbinds; i++)
      if (f == e->frame || f->binds[i].shared) ZB_PUSH(e->arena, names, n, f->binds[i].name.s);
  return zb_nearest(name, names, n);
}

/* ---- axes and types ---- */
void axis_bind(Elab *e, Frame *f, const char *name, uint16_t axis) {
  AxisBind b = {name, axis};
  ZB_PUSH(e->arena, f->axes, f->naxes, b);
  zb_names_add(e->arena, &f->axis_names, name);
}

bool axis_find(Elab *e, const char *name, uint16_t *out) {
  for (Frame *f = e->frame; f; f = f->model) {
    uint32_t i = zb_names_find(&f->axis_names, name);
    if (i == ZB_NO_NAME) continue;
    *out = f->axes[i].axis;
    return true;
  }
  return false;
}

/* The axis whose size is said to be just this static: `axis embed = width`. */
static const char *axis_sized_by(const Elab *e, const char *name) {
  for (uint32_t i = 0; e->model && i < e->model->naxes; i++) {
    const ZlExpr *x = e->model->axes[i].size;
    if (x && x->kind == ZL_E_NAME && !strcmp(x->name.s, name)) return e->model->axes[i].name.s;
  }
  return NULL;
}

bool axis_resolve(Elab *e, ZlName name, uint16_t *out) {
  if (axis_find(e, name.s, out)) return true;
  ZlDiag *d = complain(e, ZL_Z0102, name.span, "no axis `%s` here", name.s);
  if (zl_full(e->diags)) return false;
  Bind *b = name_find(e, name.s);
  const char *sized = axis_sized_by(e, name.s);
  if (b && b->val.kind == VAL_NUM && sized) {
    zl_help(d, "`%s` is a size parameter; the axis is named `%s`", name.s, sized);
    return false;
  }
  const char **names = NULL;
  size_t n = 0;
  for (Frame *f = e->frame; f; f = f->model)
    for (uint32_t i = 0; i < f->naxes; i++) ZB_PUSH(e->arena, names, n, f->axes[i].name);
  const char *near = zb_nearest(name.s, names, n);
  const char *size = near ? NULL : nearest_name(e, name.s);
  if (near) zl_help(d, "did you mean `%s`?", near);
  else if (size && axis_sized_by(e, size))
    zl_help(d, "`%s` is a size parameter; the axis is named `%s`", size, axis_sized_by(e, size));
  return false;
}

static bool add_axis(Elab *e, ZgType *t, uint16_t axis, ZlSpan span) {
  if (zg_type_has(t, axis)) {
    ZlDiag *d = complain(e, ZL_Z0208, span, "axis `%s` occurs twice in one tensor", e->g->axes[axis].name);
    zl_help(d, "give the second role an axis of its own, of the same size");
    return false;
  }
  if (t->naxes == ZG_MAX_AXES) {
    complain(e, ZL_Z0208, span, "a tensor has at most %d axes", ZG_MAX_AXES);
    return false;
  }
  ZgType one = zg_type(ZG_REAL, &axis, 1);
  *t = zg_type_union(t, &one);
  return true;
}

static bool elem_exists(Elab *e, ZlElem elem, ZlSpan span) {
  if (elem != ZL_F16) return true;
  ZlDiag *d = complain(e, ZL_Z0113, span, "`f16` is not in this version");
  zl_help(d, "`bf16` has half the bytes of `f32` too");
  return false;
}

bool type_resolve(Elab *e, const ZlTypeExpr *x, ZgType *out) {
  static const uint8_t elem[] = {
      [ZL_REAL] = ZG_REAL, [ZL_F32] = ZG_F32,   [ZL_BF16] = ZG_BF16,  [ZL_F16] = ZG_F16,
      [ZL_I32] = ZG_I32,   [ZL_BOOL] = ZG_BOOL, [ZL_INDEX] = ZG_INDEX};
  ZgType t = {.elem = elem[x->elem]};
  bool ok = elem_exists(e, x->elem, x->span) && (x->elem != ZL_INDEX || axis_resolve(e, x->of, &t.of));
  for (uint32_t i = 0; i < x->axes.n; i++) {
    uint16_t axis;
    ok = axis_resolve(e, x->axes.at[i], &axis) && add_axis(e, &t, axis, x->axes.at[i].span) && ok;
  }
  for (int i = 0; x->rest && ok && i < e->frame->nrow; i++) ok = add_axis(e, &t, e->frame->row[i], x->span);
  if (ok) *out = t;
  return ok;
}

/* ---- expressions ---- */
static Val poison(void) { return (Val){.kind = VAL_POISON}; }

static Val eval_name(Elab *e, const ZlExpr *x) {
  Bind *b = name_find(e, x->name.s);
  uint16_t axis;
  if (b) {
    if (b->param != ZG_NONE) e->param_used[b->param] = true;
    bool varies = b->val.kind == VAL_NUM && (b->label || b->val.num.varies);
    if (varies) static_varies(e, x->span, x->name.s);
    return varies ? poison() : b->val;
  }
  if (axis_find(e, x->name.s, &axis)) {
    ZlDiag *d = complain(e, ZL_Z0102, x->span, "`%s` is an axis, not a value", x->name.s);
    zl_help(d, "its size is `size[%s]()`", x->name.s);
    return poison();
  }
  ZlDiag *d = complain(e, ZL_Z0102, x->span, "unknown name `%s`", x->name.s);
  Bind *hidden = e->frame->model ? find_in(e->frame->model, x->name.s, false) : NULL;
  const char *near = nearest_name(e, x->name.s);
  if (hidden)
    zl_note(d, "`%s` is a value of the model; a block sees the model's statics, parameters and inputs only",
            x->name.s);
  if (hidden) zl_help(d, "pass it to the block as an argument");
  else if (near) zl_help(d, "did you mean `%s`?", near);
  return poison();
}

/* ---- truth values: bool, and 0 or 1 in f32 while they are computed with ---- */
/* Is it `wanted`? v: such a number. */
static Val truth_of(Elab *e, const ZlExpr *x, Val v, int wanted) {
  if (v.kind != VAL_TENSOR) return v;
  Val in[2] = {v, val_tensor(e, x->span, (Val){.kind = VAL_NUM, .num = num_int(wanted)}, ZG_F32)};
  return place_node(e, x->span, (ZgNode){.op = ZG_OP_EQUAL, .nin = 2}, in, NULL);
}

/* An operand of `x`, as such a number. */
static bool truth_wanted(Elab *e, const ZlExpr *operand, const ZlExpr *x, Val *v) {
  if (v->kind == VAL_POISON) return false;
  if (v->kind == VAL_TENSOR && v->type.elem == ZG_BOOL) {
    *v = val_cast(e, operand->span, *v, ZG_F32);
    return v->kind != VAL_POISON;
  }
  const char *op = x->kind == ZL_E_NOT ? "not" : zl_operator_text(x->bin.op);
  ZlDiag *d = complain(e, ZL_Z0202, operand->span, "`%s` takes bool, not %s", op,
                       v->kind == VAL_TENSOR ? type_text(e, &v->type) : "a number");
  zl_help(d, "compare it: `x != 0`");
  return false;
}

/* and, or: the smaller, the larger of two that are 0 or 1. */
static Val eval_logic(Elab *e, const ZlExpr *x, Val a, Val b) {
  bool both = truth_wanted(e, x->bin.a, x, &a);
  if (!truth_wanted(e, x->bin.b, x, &b) || !both) return poison();
  ZgOp op = x->bin.op == ZL_AND ? ZG_OP_MIN : ZG_OP_MAX;
  return truth_of(e, x, builtin_binary(e, x, op, a, b, x->bin.a->span, x->bin.b->span), 1);
}

static Val eval_not(Elab *e, const ZlExpr *x) {
  Val v = expr_eval(e, x->bin.a);
  if (v.kind == VAL_NUM) {
    static_not(&v.num);
    return v;
  }
  return truth_wanted(e, x->bin.a, x, &v) ? truth_of(e, x, v, 0) : poison();
}

/* Each by `less` or `equal`: a <= b is not b < a. */
static Val eval_comparison(Elab *e, const ZlExpr *x, Val a, Val b) {
  char op = x->bin.op;
  bool turned = op == ZL_MORE || op == ZL_AT_MOST,
       negated = op == ZL_AT_MOST || op == ZL_AT_LEAST || op == ZL_DIFFERS;
  ZgOp make = op == ZL_EQUALS || op == ZL_DIFFERS ? ZG_OP_EQUAL : ZG_OP_LESS;
  const ZlExpr *xa = turned ? x->bin.b : x->bin.a, *xb = turned ? x->bin.a : x->bin.b;
  Val v = builtin_binary(e, x, make, turned ? b : a, turned ? a : b, xa->span, xb->span);
  return negated && v.kind == VAL_TENSOR ? truth_of(e, x, val_cast(e, x->span, v, ZG_F32), 0) : v;
}

static Val eval_binary(Elab *e, const ZlExpr *x) {
  Val a = expr_eval(e, x->bin.a), b = expr_eval(e, x->bin.b);
  if (a.kind == VAL_POISON || b.kind == VAL_POISON) return poison();
  if (a.kind == VAL_NUM && b.kind == VAL_NUM) {
    Val v = {.kind = VAL_NUM};
    return static_binary(e, x, a.num, b.num, &v.num) ? v : poison();
  }
  if (x->bin.op == '/' && b.kind == VAL_NUM && b.num.v == 0 && !static_assumed(&b.num)) {
    complain(e, ZL_Z0107, x->bin.b->span, "division by zero");
    return poison();
  }
  ZgOp op = ZG_OP_DIV;
  switch (x->bin.op) {
  case '+': op = ZG_OP_ADD; break;
  case '-': op = ZG_OP_SUB; break;
  case '*': op = ZG_OP_MUL; break;
  case '/': break;
  case ZL_AND:
  case ZL_OR: return eval_logic(e, x, a, b);
  default: return eval_comparison(e, x, a, b);
  }
  return builtin_binary(e, x, op, a, b, x->bin.a->span, x->bin.b->span);
}

static Val eval_negative(Elab *e, const ZlExpr *x) {
  Val v = expr_eval(e, x->bin.a);
  if (v.kind == VAL_NUM) {
    v.num = num_neg(v.num);
    return v;
  }
  v = val_tensor(e, x->span, v, ZG_REAL);
  return place_node(e, x->span, (ZgNode){.op = ZG_OP_NEG, .nin = 1}, &v, NULL);
}

static Val eval_cast(Elab *e, const ZlExpr *x) {
  static const uint8_t elem[] = {[ZL_REAL] = ZG_REAL, [ZL_F32] = ZG_F32, [ZL_BF16] = ZG_BF16,
                                 [ZL_F16] = ZG_F16,   [ZL_I32] = ZG_I32, [ZL_BOOL] = ZG_BOOL};
  Val v = expr_eval(e, x->cast.a);
  if (!elem_exists(e, x->cast.elem, x->span)) return poison();
  return v.kind == VAL_POISON ? v : val_cast(e, x->span, v, elem[x->cast.elem]);
}

/* x.mean(...) */
static void no_methods(Elab *e, const ZlPath *path) {
  const char *value = path->part[0].s, *method = path->part[1].s, *torch = zl_torch_word(method);
  ZlDiag *d = complain(e, ZL_Z0104, path->span, "`%s` is a value, which has no methods", value);
  if (torch) zl_help(d, "%s", torch);
  else zl_help(d, "write `%s(%s)`, with axes in brackets before the parenthesis", method, value);
}

static void no_such_call(Elab *e, const ZlExpr *x) {
  if (x->call.path.n == 2 && name_find(e, x->call.path.part[0].s)) {
    no_methods(e, &x->call.path);
    return;
  }
  const char *names[80];
  uint32_t n = builtin_names(names, 80);
  zl_report_no_block(e->prog, e->diags, e->frame->scope, &x->call.path, names, n);
}

/* The operation that a call names, by itself or as one of a namespace that has no block of that name; or NULL. */
static const char *operation(const Elab *e, const ZlPath *path) {
  const char *name = path->part[path->n - 1].s;
  bool seen = path->n == 1 || (path->n == 2 && zl_find_use(e->frame->scope.file, path->part[0].s));
  return seen && is_builtin(name) ? name : NULL;
}

Val expr_eval(Elab *e, const ZlExpr *x) {
  Val v;
  return expr_eval_many(e, x, &v, 1) ? v : poison();
}

bool expr_eval_many(Elab *e, const ZlExpr *x, Val *out, uint32_t want) {
  uint32_t have = 1;
  if (!elab_spend(e, ELAB_WORK, 1, x->span)) return false;
  const ZlBlock *b = NULL;
  const char *op = NULL;
  if (x->kind == ZL_E_CALL) {
    b = zl_find_block(e->prog, e->frame->scope, &x->call.path);
    op = b ? NULL : operation(e, &x->call.path);
  }
  if (b) have = b->nresults;
  if (op) have = builtin_results(op);
  if (have != want) {
    complain(e, ZL_Z0205, x->span, "%u value%s wanted here, found %u", want, want == 1 ? " is" : "s are",
             have);
    return false;
  }
  switch (x->kind) {
  case ZL_E_NUM:
    *out = (Val){.kind = VAL_NUM, .num = x->num.integer ? num_int(x->num.i) : num_double(x->num.value)};
    return true;
  case ZL_E_NAME: *out = eval_name(e, x); return true;
  case ZL_E_NEG: *out = eval_negative(e, x); return true;
  case ZL_E_NOT: *out = eval_not(e, x); return true;
  case ZL_E_BIN: *out = eval_binary(e, x); return true;
  case ZL_E_CAST: *out = eval_cast(e, x); return true;
  case ZL_E_CALL: break;
  }
  if (b) {
    call_block(e, x, b, out);
  } else if (op) {
    *out = builtin_call(e, x, op);
    for (uint32_t i = 1; i < have; i++) out[i] = val_result(e, *out, (int)i);
  } else {
    no_such_call(e, x);
    return false;
  }
  return true;
}

/* Calls of blocks. A block is instantiated anew for every call, with the caller's axes for its axis parameters
 * and for `..`; so everything in it is as concrete as in the model itself. */
#include "compiler/elab.h"

#include <string.h>

#define MAX_CALLS 64 /* blocks calling blocks */

static ZlDiag *wrong_args(Elab *e, ZlSpan span, const ZlBlock *b, const char *what) {
  ZlDiag *d = complain(e, ZL_Z0205, span, "`%s` %s", b->name.s, what);
  zl_also(d, b->span, "declared here");
  return d;
}

/* ---- what the caller gives ---- */
static bool bind_axes(Elab *e, const ZlExpr *x, const ZlBlock *b, Frame *f) {
  if (x->call.all_axes) {
    wrong_args(e, x->call.ax_span, b, "takes axis names, not `..`, which comes with the arguments");
    return false;
  }
  if (x->call.axes.n != b->axes.n) {
    ZlSpan at = x->call.ax_span.file >= 0 ? x->call.ax_span : x->call.path.span;
    wrong_args(e, at, b,
               zb_printf(e->arena, "takes %u axis name%s, found %u", b->axes.n, b->axes.n == 1 ? "" : "s",
                         x->call.axes.n));
    return false;
  }
  for (uint32_t i = 0; i < b->axes.n; i++) {
    AxisBind a = {b->axes.at[i].s, 0};
    if (!axis_resolve(e, x->call.axes.at[i], &a.axis)) return false;
    for (uint32_t k = 0; k < f->naxes; k++) {
      if (f->axes[k].axis != a.axis) continue;
      ZlName again = x->call.axes.at[i];
      ZlDiag *d = complain(e, ZL_Z0208, again.span, "`%s` is two axes of `%s` at once", again.s, b->name.s);
      zl_help(d, "declare a second axis of the same size for one of them");
      return false;
    }
    ZB_PUSH(e->arena, f->axes, f->naxes, a);
  }
  return true;
}

static const ZlFormal *formal_named(const ZlBlock *b, const char *name) {
  for (uint32_t i = 0; i < b->nformals; i++)
    if (!strcmp(b->formals[i].name.s, name)) return &b->formals[i];
  return NULL;
}

static void unknown_keyword(Elab *e, const ZlBlock *b, ZlName name) {
  const char **names = NULL;
  size_t n = 0;
  for (uint32_t i = 0; i < b->nformals; i++)
    if (b->formals[i].is_static) ZB_PUSH(e->arena, names, n, b->formals[i].name.s);
  const char *near = zb_nearest(name.s, names, n);
  ZlDiag *d = wrong_args(e, name.span, b, zb_printf(e->arena, "has no static `%s`", name.s));
  if (near) zl_help(d, "did you mean `%s`?", near);
  else if (n == 1) zl_help(d, "its static is `%s`", names[0]);
}

/* Tensors by position, statics by name. Evaluated in the caller's frame; bound in the new one by bind_formals. */
typedef struct {
  Val *tensor; /* by formal */
  ZlSpan *span;
  Num *num;
  bool *given;
  bool ok;
} Args;

static Args eval_args(Elab *e, const ZlExpr *x, const ZlBlock *b) {
  uint32_t n = b->nformals + 1, at = 0;
  Args a = {ZB_NEWN(e->arena, Val, n), ZB_NEWN(e->arena, ZlSpan, n), ZB_NEWN(e->arena, Num, n),
            ZB_NEWN(e->arena, bool, n), true};
  uint32_t tensors = 0, given = 0;
  for (uint32_t i = 0; i < b->nformals; i++) tensors += !b->formals[i].is_static;
  for (uint32_t i = 0; i < x->call.nargs; i++) given += !x->call.args[i].name.s;
  for (uint32_t i = 0; i < x->call.nargs; i++) {
    const ZlArg *arg = &x->call.args[i];
    if (arg->name.s) {
      const ZlFormal *f = formal_named(b, arg->name.s);
      if (!f || !f->is_static) {
        unknown_keyword(e, b, arg->name);
        a.ok = false;
        continue;
      }
      a.given[f - b->formals] = true;
      a.ok = static_eval(e, arg->value, &a.num[f - b->formals]) && a.ok;
      continue;
    }
    Val v = expr_eval(e, arg->value); /* even one too many: its own mistakes are worth a report */
    while (at < b->nformals && b->formals[at].is_static) at++;
    if (at == b->nformals) continue;
    a.span[at] = arg->value->span;
    a.tensor[at++] = v;
  }
  if (given != tensors) {
    wrong_args(e, x->call.path.span, b,
               zb_printf(e->arena, "takes %u tensor%s, found %u", tensors, tensors == 1 ? "" : "s", given));
    a.ok = false;
  }
  return a;
}

/* ---- fitting them to the signature ---- */
/* `real` in a signature is any floating type: a block works in the precision it is given. */
static bool elem_fits(const ZgType *want, const ZgType *have) {
  if (want->elem == ZG_REAL) return is_float(have);
  return want->elem == have->elem && (want->elem != ZG_INDEX || want->of == have->of);
}

static bool bind_row(Elab *e, const ZlFormal *f, const ZgType *named, const ZgType *have, ZlSpan span) {
  Frame *fr = e->frame;
  ZgType row = zg_type_minus(have, named->axis, named->naxes);
  if (!fr->has_row) {
    fr->has_row = true;
    fr->nrow = row.naxes;
    memcpy(fr->row, row.axis, sizeof fr->row);
    return true;
  }
  ZgType before = zg_type((ZgElem)row.elem, fr->row, fr->nrow);
  if (row.naxes == before.naxes && zg_type_contains(&row, &before)) return true;
  ZlDiag *d = complain(e, ZL_Z0202, span, "`..` is %s for `%s`, but %s for the arguments before it",
                       axes_text(e, &row), f->name.s, axes_text(e, &before));
  zl_note(d, "in one signature all `..` stand for the same axes");
  return false;
}

static bool bind_tensor(Elab *e, const ZlFormal *f, Val v, ZlSpan span) {
  Frame *fr = e->frame;
  int nrow = fr->nrow;
  ZgType want;
  fr->nrow = 0;
  bool ok = type_resolve(e, &f->type, &want); /* the named axes alone */
  fr->nrow = nrow;
  if (!ok || v.kind == VAL_POISON) return false;
  v = val_tensor(e, span, v, is_float(&want) ? (ZgElem)want.elem : ZG_REAL);
  if (!elem_fits(&want, &v.type)) {
    ZgType elem = {.elem = want.elem, .of = want.of};
    ZlDiag *d = complain(e, ZL_Z0202, span, "`%s` must be %s, found %s", f->name.s, type_text(e, &elem),
                         type_text(e, &v.type));
    if (is_float(&want) && is_float(&v.type))
      zl_help(d, "write `%s(...)` around it", zg_elem_name[want.elem]);
    return false;
  }
  for (int i = 0; i < want.naxes; i++) {
    if (zg_type_has(&v.type, want.axis[i])) continue;
    ZlDiag *d = complain(e, ZL_Z0203, span, "`%s` needs the axis `%s`, found %s", f->name.s,
                         e->g->axes[want.axis[i]].name, type_text(e, &v.type));
    zl_also(d, f->span, "declared here");
    return false;
  }
  if (f->type.rest) {
    if (!bind_row(e, f, &want, &v.type, span)) return false;
  } else if (v.type.naxes != want.naxes) {
    ZlDiag *d = complain(e, ZL_Z0202, span, "`%s` must be %s%s, found %s", f->name.s,
                         want.naxes ? "" : "a scalar, ", type_text(e, &want), type_text(e, &v.type));
    zl_help(d, "`..` in the block's signature lets it take more axes");
    return false;
  }
  Bind b = {f->name, v, false, ZG_NONE};
  ZB_PUSH(e->arena, fr->binds, fr->nbinds, b);
  return true;
}

/* In the new frame. */
static bool bind_formals(Elab *e, const ZlBlock *b, const Args *a) {
  bool ok = true;
  for (uint32_t i = 0; i < b->nformals; i++) {
    const ZlFormal *f = &b->formals[i];
    if (!f->is_static) {
      ok = bind_tensor(e, f, a->tensor[i], a->span[i]) && ok;
      continue;
    }
    Val v = {.kind = VAL_NUM, .num = a->num[i]};
    if (!a->given[i] && !static_eval(e, f->value, &v.num)) v.kind = VAL_POISON;
    Bind s = {f->name, v, false, ZG_NONE};
    ZB_PUSH(e->arena, e->frame->binds, e->frame->nbinds, s);
  }
  return ok;
}

/* ---- what the block gives back ---- */
static Val fit_result(Elab *e, const ZlBlock *b, uint32_t i, Val v) {
  const ZlStmt *ret = b->body[b->nbody - 1];
  ZlSpan span = ret->ret.values[i]->span;
  ZgType want;
  if (b->results[i].rest && !e->frame->has_row) {
    complain(e, ZL_Z0207, b->results[i].span, "`..` is in the result of `%s`, but in none of its arguments",
             b->name.s);
    return (Val){.kind = VAL_POISON};
  }
  if (!type_resolve(e, &b->results[i], &want)) return (Val){.kind = VAL_POISON};
  v = val_tensor(e, span, v, is_float(&want) ? (ZgElem)want.elem : ZG_REAL);
  if (v.kind == VAL_POISON) return val_stand_in(e, want);
  ZgType axes = want;
  axes.elem = v.type.elem;
  axes.of = v.type.of;
  if (elem_fits(&want, &v.type) && zg_type_eq(&axes, &v.type)) return v;
  ZlDiag *d = complain(e, ZL_Z0207, span, "`%s` returns %s here, but is declared to return %s", b->name.s,
                       type_text(e, &v.type), type_text(e, &want));
  zl_also(d, b->results[i].span, "declared here");
  return val_stand_in(e, want);
}

/* ---- the call ---- */
static Frame *new_frame(Elab *e, const ZlBlock *b, ZlSpan call) {
  Frame *f = ZB_NEW(e->arena, Frame);
  f->caller = e->frame;
  for (Frame *m = e->frame; b->model && m; m = m->caller)
    if (!m->block) f->model = m;
  f->block = b;
  f->scope = zl_block_scope(b);
  f->call = call;
  f->path = e->frame->path;
  f->region = e->frame->region;
  return f;
}

static bool too_deep(Elab *e, const ZlExpr *x, const ZlBlock *b) {
  for (Frame *f = e->frame; f; f = f->caller) {
    if (f->block != b) continue;
    ZlDiag *d = complain(e, ZL_Z0110, x->span, "`%s` calls itself", b->name.s);
    zl_note(d, "a model is a finite graph; for depth there is `repeat`");
    return true;
  }
  if (e->depth < MAX_CALLS) return false;
  complain(e, ZL_Z0111, x->span, "blocks call each other more than %d deep", MAX_CALLS);
  return true;
}

/* Labels are names of places: each once in a scope. */
static void enter_region(Elab *e, Frame *f, ZlName label, const char *block) {
  if (label.s) {
    Frame *c = e->frame;
    const char *path = c->path;
    for (uint32_t i = 0; i < c->nlabels; i++) {
      if (c->labels[i].region != c->region || strcmp(c->labels[i].name.s, label.s)) continue;
      ZlDiag *d = complain(e, ZL_Z0101, label.span, "label `%s` is used twice", label.s);
      zl_also(d, c->labels[i].name.span, "first used here");
      path = zb_printf(e->arena, "%s'", path); /* so that its parameters are not reported too */
    }
    struct Label l = {c->region, label};
    ZB_PUSH(e->arena, c->labels, c->nlabels, l);
    f->path = zb_printf(e->arena, "%s%s.", path, label.s);
    f->labelled = true;
  }
  f->region = zg_region_add(e->g, ZG_REGION_BLOCK, f->region, label.s ? label.s : "", block);
}

static void run_block(Elab *e, const ZlBlock *b, Val *out) {
  Val *values = ZB_NEWN(e->arena, Val, b->nresults + 1);
  elab_body(e, b->body, b->nbody, values);
  for (uint32_t i = 0; i < b->nresults; i++) out[i] = fit_result(e, b, i, values[i]);
}

void call_block(Elab *e, const ZlExpr *x, const ZlBlock *b, Val *out) {
  for (uint32_t i = 0; i < b->nresults; i++) out[i] = (Val){.kind = VAL_POISON};
  if (too_deep(e, x, b)) return;
  Args a = eval_args(e, x, b);
  Frame *f = new_frame(e, b, x->span);
  bool ok = bind_axes(e, x, b, f);
  if (!ok || !a.ok) return;
  enter_region(e, f, x->call.label, b->name.s);
  Frame *caller = e->frame;
  e->frame = f;
  e->depth++;
  if (bind_formals(e, b, &a)) {
    ZB_PUSH(e->arena, e->seen, e->nseen, b);
    run_block(e, b, out);
  } else if (f->has_row) {
    for (uint32_t i = 0; i < b->nresults; i++) {
      ZgType t;
      if (type_resolve(e, &b->results[i], &t)) out[i] = val_stand_in(e, t);
    }
  }
  e->depth--;
  e->frame = caller;
}

/* ---- a block that nobody calls ---- */
static uint16_t own_axis(Elab *e, const char *name, int64_t size) {
  const char *unique = name;
  uint32_t known = zg_axis_find(e->g, name);
  if (known != ZG_NONE && (!e->model || !size)) return (uint16_t)known; /* of another such block */
  for (int i = 2; zg_axis_find(e->g, unique) != ZG_NONE; i++) unique = zb_printf(e->arena, "%s%d", name, i);
  return (uint16_t)zg_axis_add(e->g, unique, size);
}

void call_block_alone(Elab *e, const ZlBlock *b) {
  static const int64_t size = 64; /* any that halves and divides well */
  Frame *caller = e->frame, *f = new_frame(e, b, ZL_NOWHERE);
  f->path = zb_printf(e->arena, "(%s).", b->name.s);
  f->region = zg_region_add(e->g, ZG_REGION_BLOCK, 0, "", b->name.s);
  for (uint32_t i = 0; i < b->axes.n; i++) {
    AxisBind a = {b->axes.at[i].s, own_axis(e, b->axes.at[i].s, size)};
    ZB_PUSH(e->arena, f->axes, f->naxes, a);
  }
  e->frame = f;
  ZB_PUSH(e->arena, e->seen, e->nseen, b);
  for (uint32_t i = 0; i < b->nformals; i++)
    f->has_row |= !b->formals[i].is_static && b->formals[i].type.rest;
  if (f->has_row) f->row[f->nrow++] = own_axis(e, "..", 0);
  bool ok = true;
  for (uint32_t i = 0; i < b->nformals; i++) {
    const ZlFormal *p = &b->formals[i];
    Bind bind = {p->name, {.kind = VAL_NUM}, false, ZG_NONE};
    ZgType t;
    if (p->is_static) ok = static_eval(e, p->value, &bind.val.num) && ok;
    else if (type_resolve(e, &p->type, &t)) bind.val = val_stand_in(e, t);
    else bind.val.kind = VAL_POISON;
    ZB_PUSH(e->arena, f->binds, f->nbinds, bind);
  }
  Val *out = ZB_NEWN(e->arena, Val, b->nresults + 1);
  if (ok) run_block(e, b, out);
  e->frame = caller;
}

/* Calls of blocks. A block is instantiated anew for every call, with the caller's axes for its axis
 * parameters and for `..`; so everything in it is as concrete as in the model itself. */
#include "compiler/elab.h"

#include <string.h>

static ZlDiag *wrong_args(Elab *e, ZlSpan span, const ZlBlock *b, const char *what) {
  ZlDiag *d = complain(e, ZL_Z0205, span, "`%s` %s", b->name.s, what);
  zl_also(d, b->span, "declared here");
  return d;
}

/* ---- what the caller gives ----------------------------------------------------------------------------- */
/* The axes in the caller's brackets, what its `..` stands for first; of a block that takes a row the last are
 * its axis parameters, and those before them the row. */
typedef struct {
  uint16_t *axis;
  ZlName *name; /* s NULL: by `..` */
  uint32_t n;
} Given;

static bool given_axes(Elab *e, const ZlExpr *x, const ZlBlock *b, Given *g) {
  const Frame *f = e->frame; /* the caller's */
  if (x->call.all_axes && !b->row) {
    ZlDiag *d =
        wrong_args(e, x->call.ax_span, b, "takes axis names, not `..`, which comes with the arguments");
    zl_help(d, "a block that is declared with `[..]` takes it: `block %s[.., a](...)`", b->name.s);
    return false;
  }
  if (x->call.all_axes && !f->has_row) {
    ZlDiag *d = complain(e, ZL_Z0205, x->call.ax_span, "`..` stands for nothing here");
    zl_note(d, "it is the axes that the block's signature writes as `..`");
    return false;
  }
  uint32_t most = ZG_MAX_AXES + x->call.axes.n;
  g->axis = ZB_NEWN(e->arena, uint16_t, most);
  g->name = ZB_NEWN(e->arena, ZlName, most);
  for (int i = 0; x->call.all_axes && i < f->nrow; i++) g->axis[g->n++] = f->row[i];
  for (uint32_t i = 0; i < x->call.axes.n; i++) {
    g->name[g->n] = x->call.axes.at[i];
    if (!axis_resolve(e, x->call.axes.at[i], &g->axis[g->n++])) return false;
  }
  return true;
}

static bool bind_axes(Elab *e, const ZlExpr *x, const ZlBlock *b, Frame *f) {
  Given g = {0};
  if (!given_axes(e, x, b, &g)) return false;
  uint32_t row = b->row && g.n > b->axes.n ? g.n - b->axes.n : 0;
  if (g.n - row != b->axes.n || row > ZG_MAX_AXES) {
    ZlSpan at = x->call.ax_span.file >= 0 ? x->call.ax_span : x->call.path.span;
    wrong_args(e, at, b,
               zb_printf(e->arena, "takes %s%u axis name%s, found %u",
                         row      ? "at most 8 and "
                         : b->row ? "at least "
                                  : "",
                         b->axes.n, b->axes.n == 1 ? "" : "s", g.n));
    return false;
  }
  bool given[ZG_MAX_GRAPH_AXES] = {false};
  for (uint32_t i = 0; i < g.n; i++) {
    if (given[g.axis[i]]) {
      ZlName again = g.name[i];
      ZlDiag *d = complain(e, ZL_Z0208, again.span, "`%s` is two axes of `%s` at once", again.s, b->name.s);
      zl_help(d, "declare a second axis of the same size for one of them");
      return false;
    }
    given[g.axis[i]] = true;
    if (i >= row) axis_bind(e, f, b->axes.at[i - row].s, g.axis[i]);
    else f->row[f->nrow++] = g.axis[i];
  }
  bool found = false; /* `..` by the arguments, where the brackets are silent */
  for (uint32_t i = 0; i < b->nformals; i++) found |= !b->formals[i].is_static && b->formals[i].type.rest;
  f->has_row = b->row && (row || x->call.all_axes || !found);
  return true;
}

static const ZlFormal *formal_named(const ZlBlock *b, const char *name) {
  uint32_t i = zb_names_find(&b->formal_names, name);
  return i == ZB_NO_NAME ? NULL : &b->formals[i];
}

static void unknown_keyword(Elab *e, const ZlBlock *b, ZlName name) {
  const char **names = NULL;
  size_t n = 0;
  for (uint32_t i = 0; i < b->nformals; i++)
    if (b->formals[i].is_static) ZB_PUSH(e->arena, names, n, b->formals[i].name.s);
  const char *near = zl_full(e->diags) ? NULL : zb_nearest(name.s, names, n);
  ZlDiag *d = wrong_args(e, name.span, b, zb_printf(e->arena, "has no static `%s`", name.s));
  if (near) zl_help(d, "did you mean `%s`?", near);
  else if (n == 1) zl_help(d, "its static is `%s`", names[0]);
}

/* Tensors by position, statics by name. Evaluated in the caller's frame; bound in the new one by
 * bind_formals. */
typedef struct {
  Val *tensor; /* by formal */
  ZlSpan *span;
  Num *num;
  const ZlExpr **of; /* of `num`; NULL: it was not given */
  bool ok;
} Args;

static Args eval_args(Elab *e, const ZlExpr *x, const ZlBlock *b) {
  uint32_t n = b->nformals + 1, at = 0;
  Args a = {ZB_NEWN(e->arena, Val, n), ZB_NEWN(e->arena, ZlSpan, n), ZB_NEWN(e->arena, Num, n),
            ZB_NEWN(e->arena, const ZlExpr *, n), true};
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
      a.of[f - b->formals] = arg->value;
      a.ok = static_initial(e, arg->value, &a.num[f - b->formals]) && a.ok;
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

/* ---- fitting them to the signature --------------------------------------------------------------------- */
/* `real` in a signature is any floating type: a block works in the precision it is given. */
bool elem_fits(const ZgType *want, const ZgType *have) {
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
  ZlDiag *d =
      complain(e, ZL_Z0202, span, "`..` is %s for `%s`, but %s %s", axes_text(e, &row), f->name.s,
               axes_text(e, &before), fr->block->row ? "in the brackets" : "for the arguments before it");
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
  name_add(e, fr, (Bind){.name = f->name, .val = v, .param = ZG_NONE});
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
    bool given = a->of[i];
    Val v = {.kind = VAL_NUM, .num = a->num[i]};
    if (!given && !static_initial(e, f->value, &v.num)) v.kind = VAL_POISON;
    name_add(e, e->frame,
             (Bind){.name = f->name,
                    .val = v,
                    .param = ZG_NONE,
                    .of = given ? a->of[i] : f->value,
                    .in = given ? e->frame->caller : e->frame});
  }
  return ok;
}

/* ---- axes of a block's own ----------------------------------------------------------------------------- */
static bool is_local(const Elab *e, uint16_t axis) {
  for (uint32_t i = 0; i < e->nlocal; i++)
    if (e->local[i].axis == axis) return true;
  return false;
}

/* An axis of the graph that no other is named like. */
static bool own_axis(Elab *e, ZlName name, int64_t size, uint16_t *axis) {
  const char *unique = name.s;
  if (e->g->naxes == ZG_MAX_GRAPH_AXES) {
    zl_help(complain(e, ZL_Z0111, name.span, "a model has at most %d axes", ZG_MAX_GRAPH_AXES),
            "remove axes that no tensor has");
    return false;
  }
  for (int i = 2; zg_axis_find(e->g, unique) != ZG_NONE; i++) unique = zb_printf(e->arena, "%s%d", name.s, i);
  *axis = (uint16_t)zg_axis_add(e->g, unique, size);
  return true;
}

/* Calls in which it has the same size share it, so that what they make inside is alike. */
static bool local_axis(Elab *e, const ZlAxisDef *def, int64_t size, uint16_t *axis) {
  const ZlBlock *b = e->frame->block;
  for (uint32_t i = 0; i < e->nlocal; i++) {
    const LocalAxis *l = &e->local[i];
    *axis = l->axis;
    if (l->block == b && l->size == size && l->axis < e->g->naxes && !strcmp(l->name, def->name.s))
      return true;
  }
  if (!own_axis(e, def->name, size, axis)) return false;
  LocalAxis l = {b, def->name.s, size, *axis};
  ZB_PUSH(e->arena, e->local, e->nlocal, l);
  return true;
}

void call_axes(Elab *e, const ZlStmt *s) {
  Frame *f = e->frame;
  for (uint32_t i = 0; i < s->axis.ndefs; i++) {
    const ZlAxisDef *def = &s->axis.defs[i];
    int64_t size = 1;
    uint16_t axis;
    if (zb_names_find(&f->axis_names, def->name.s) != ZB_NO_NAME ||
        zb_names_find(&f->names, def->name.s) != ZB_NO_NAME) {
      zl_help(complain(e, ZL_Z0101, def->name.span, "`%s` is declared twice in this block", def->name.s),
              "give one of them another name");
      continue;
    }
    if (!def->size) {
      ZlDiag *d = complain(e, ZL_Z0209, def->name.span, "axis `%s` of a block needs a size", def->name.s);
      zl_note(d, "recipes give sizes to the data axes of models only");
      zl_help(d, "write `axis %s = 64`, say, or take it as a parameter of the block", def->name.s);
    } else {
      static_int(e, def->size, 1, INT32_MAX, zb_printf(e->arena, "axis %s", def->name.s), &size);
    }
    if (local_axis(e, def, size < 1 ? 1 : size, &axis)) axis_bind(e, f, def->name.s, axis);
    else e->stopped = true;
  }
}

/* ---- what the block gives back ------------------------------------------------------------------------- */
static void help_own(ZlDiag *d, const ZlBlock *b, const char *axis) {
  zl_note(d, "`%s` is an axis of the block alone", axis);
  zl_help(d, "take the axis as a parameter, `block %s[%s](...)`, so that the caller gives it", b->name.s,
          axis);
}

/* Says that a result has an axis of the block's own, which no caller could name. */
static bool is_own(Elab *e, const ZlBlock *b, ZlName name) {
  uint16_t axis;
  if (!name.s || !axis_find(e, name.s, &axis)) return false;
  for (uint32_t i = 0; i < e->nlocal; i++) {
    const LocalAxis *l = &e->local[i];
    if (l->block != b || l->axis != axis || strcmp(l->name, name.s)) continue;
    help_own(
        complain(e, ZL_Z0207, name.span, "`%s` is declared to return its own axis `%s`", b->name.s, name.s),
        b, name.s);
    return true;
  }
  return false;
}

static bool returns_own(Elab *e, const ZlBlock *b, const ZlTypeExpr *t) {
  for (uint32_t i = 0; i < t->axes.n; i++)
    if (is_own(e, b, t->axes.at[i])) return true;
  return is_own(e, b, t->of);
}

static Val fit_result(Elab *e, const ZlBlock *b, uint32_t i, Val v) {
  const ZlStmt *ret = b->body[b->nbody - 1];
  ZlSpan span = ret->ret.values[i]->span;
  ZgType want;
  if (b->results[i].rest && !e->frame->has_row) {
    complain(e, ZL_Z0207, b->results[i].span, "`..` is in the result of `%s`, but in none of its arguments",
             b->name.s);
    return (Val){.kind = VAL_POISON};
  }
  if (!type_resolve(e, &b->results[i], &want) || returns_own(e, b, &b->results[i]))
    return (Val){.kind = VAL_POISON};
  v = val_tensor(e, span, v, is_float(&want) ? (ZgElem)want.elem : ZG_REAL);
  if (v.kind == VAL_POISON) return val_stand_in(e, want);
  ZgType axes = want;
  axes.elem = v.type.elem;
  axes.of = v.type.of;
  if (elem_fits(&want, &v.type) && zg_type_eq(&axes, &v.type)) return v;
  ZlDiag *d = complain(e, ZL_Z0207, span, "`%s` returns %s here, but is declared to return %s", b->name.s,
                       type_text(e, &v.type), type_text(e, &want));
  zl_also(d, b->results[i].span, "declared here");
  for (int k = 0; k < v.type.naxes; k++) {
    if (!is_local(e, v.type.axis[k])) continue;
    help_own(d, b, e->g->axes[v.type.axis[k]].name);
    break;
  }
  return val_stand_in(e, want);
}

/* ---- the call ------------------------------------------------------------------------------------------ */
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
  return !elab_depth(e, x->span);
}

/* Labels are names of places: each once in a scope. */
static void enter_region(Elab *e, Frame *f, ZlName label, const char *block) {
  if (label.s) {
    Frame *c = e->frame;
    const char *path = c->path;
    const char *key = zb_printf(e->arena, "%u %s", c->region, label.s);
    uint32_t first = zb_names_find(&c->label_names, key);
    if (first != ZB_NO_NAME) {
      ZlDiag *d = complain(e, ZL_Z0101, label.span, "label `%s` is used twice", label.s);
      zl_also(d, c->labels[first], "first used here");
      /* So that its parameters are not reported too. */
      path = zb_printf(e->arena, "%s%zu'", path, zl_errors(e->diags));
    } else {
      zb_names_add(e->arena, &c->label_names, key);
      ZB_PUSH(e->arena, c->labels, c->nlabels, label.span);
    }
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

/* What is written anew for every call: its arguments, its results, and the path of what is labelled in it. */
static bool count_call(Elab *e, ZlSpan span, const ZlBlock *b) {
  BlockUse *use = &e->uses[b->number];
  if (use->calls++ == 0) ZB_PUSH(e->arena, e->called, e->ncalled, b);
  uint32_t copied = b->nformals + b->nresults + b->axes.n + (uint32_t)strlen(e->frame->path) / 32;
  return elab_spend(e, ELAB_CALLS, 1, span) && elab_spend(e, ELAB_WORK, copied, span);
}

void call_block(Elab *e, const ZlExpr *x, const ZlBlock *b, Val *out) {
  for (uint32_t i = 0; i < b->nresults; i++) out[i] = (Val){.kind = VAL_POISON};
  if (too_deep(e, x, b) || !count_call(e, x->span, b)) return;
  Args a = eval_args(e, x, b);
  Frame *f = new_frame(e, b, x->span);
  bool ok = bind_axes(e, x, b, f);
  if (!ok || !a.ok) return;
  enter_region(e, f, x->call.label, b->name.s);
  Frame *caller = e->frame;
  e->frame = f;
  if (bind_formals(e, b, &a)) {
    e->uses[b->number].seen = true;
    run_block(e, b, out);
  } else if (f->has_row) {
    for (uint32_t i = 0; i < b->nresults; i++) {
      ZgType t;
      if (type_resolve(e, &b->results[i], &t)) out[i] = val_stand_in(e, t);
    }
  }
  e->frame = caller;
}

/* ---- a block that nobody calls ------------------------------------------------------------------------- */
/* The frame of the block: axes of its own, tensors made of nothing, statics with their defaults. */
static bool bind_alone(Elab *e, const ZlBlock *b, Frame *f) {
  static const int64_t size = 64; /* assumed: any that halves and divides well */
  uint16_t axis;
  for (uint32_t i = 0; i < b->axes.n; i++) {
    if (!own_axis(e, b->axes.at[i], size, &axis)) return false;
    axis_bind(e, f, b->axes.at[i].s, axis);
  }
  f->has_row = b->row;
  for (uint32_t i = 0; i < b->nformals; i++)
    f->has_row |= !b->formals[i].is_static && b->formals[i].type.rest;
  if (f->has_row && !own_axis(e, (ZlName){"..", b->name.span}, 0, &f->row[f->nrow++])) return false;
  bool ok = true;
  for (uint32_t i = 0; i < b->nformals; i++) {
    const ZlFormal *p = &b->formals[i];
    Bind bind = {.name = p->name, .val = {.kind = VAL_NUM}, .param = ZG_NONE};
    ZgType t;
    if (p->is_static) ok = static_eval(e, p->value, &bind.val.num) && ok;
    else if (type_resolve(e, &p->type, &t)) bind.val = val_stand_in(e, t);
    else bind.val.kind = VAL_POISON;
    name_add(e, f, bind);
  }
  return ok;
}

/* What elaborating a block by itself adds to, and an arena for what it adds: both go when it is done. */
typedef struct {
  Elab e;
  ZgGraph g;
  ZgSegment s;
} Before;

static Before begin_alone(Elab *e) {
  Before b = {*e, *e->g, e->g->segments[e->seg]};
  e->arena = e->g->arena = zb_arena_new();
  e->imports = NULL, e->nimports = e->import_size = 0; /* the tables would keep what is gone */
  return b;
}

static void end_alone(Elab *e, const Before *b) {
  for (uint32_t i = b->e.ncalled; i < e->ncalled; i++) e->uses[e->called[i]->number].calls = 0;
  zb_names_back(&e->param_paths, b->e.param_paths);
  zb_arena_free(e->arena);
  *e->g = b->g;
  *e = b->e;
  e->g->segments[e->seg] = b->s;
}

void call_block_alone(Elab *e, const ZlBlock *b) {
  Before before = begin_alone(e);
  Frame *f = new_frame(e, b, ZL_NOWHERE);
  f->path = zb_printf(e->arena, "(%s).", b->name.s);
  f->region = zg_region_add(e->g, ZG_REGION_BLOCK, 0, "", b->name.s);
  e->frame = f;
  e->assumed = e->g->naxes;
  e->uses[b->number].seen = true;
  memset(e->spent, 0, sizeof e->spent);
  Val *out = ZB_NEWN(e->arena, Val, b->nresults + 1);
  if (bind_alone(e, b, f)) run_block(e, b, out);
  end_alone(e, &before);
}

/* Statements: instantiates a model from top to bottom. Every size but those of data axes is a number by then,
 * so there is nothing to infer but the types of results. Mistakes are reported and poison what depends on
 * them. */
#include "compiler/elab.h"

#include <string.h>

/* ---- messages ------------------------------------------------------------------------------------------ */
static bool main_file(const Elab *e, ZlSpan s) { return s.file < 0 || s.file == e->prog->files[0]->id; }

ZlDiag *complain(Elab *e, ZlCode code, ZlSpan span, const char *fmt, ...) {
  char text[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  /* A mistake in a block is one, whatever axes it is called with; in the library it is the call's. */
  bool own = e->frame && e->frame->block && span.file >= 0 && zl_source_name(e->src, span.file)[0] != '<';
  ZlDiag *again = own ? zl_report_again(e->diags, code, span) : NULL;
  if (again) return again;
  ZlDiag *d = zl_report(e->diags, code, span, "%s", text);
  if (main_file(e, span)) return d;
  for (const Frame *f = e->frame; f && f->block; f = f->caller) {
    if (f->call.file < 0 || !main_file(e, f->call)) continue;
    zl_also(d, f->call, "in this call of `%s`", f->block->name.s);
    break;
  }
  return d;
}

/* ---- parameters ---------------------------------------------------------------------------------------- */
/* The initialisers, with the numbers that they take; those that may be left out come last. */
static const struct {
  const char *name;
  ZgInit init;
  uint32_t least, most;
} inits[] = {{"normal", ZG_INIT_NORMAL, 1, 1},
             {"uniform", ZG_INIT_UNIFORM, 2, 2},
             {"trunc_normal", ZG_INIT_TRUNC_NORMAL, 1, 2}};
enum { INITS = sizeof inits / sizeof *inits };

/* Reports numbers that an initialiser cannot take. */
static bool check_numbers(Elab *e, const ZlStmt *s, ZgInit init, const double num[2]) {
  ZlSpan at = s->param.init.span;
  if (init == ZG_INIT_UNIFORM && num[0] > num[1]) {
    ZlDiag *d = complain(e, ZL_Z0107, at, "`uniform` goes from low to high, found %g and %g", num[0], num[1]);
    zl_help(d, "write `uniform(%g, %g)`", num[1], num[0]);
    return false;
  }
  if (init != ZG_INIT_UNIFORM && num[0] < 0) {
    complain(e, ZL_Z0107, s->param.args[0]->span, "a standard deviation cannot be negative: %g", num[0]);
    return false;
  }
  if (init == ZG_INIT_TRUNC_NORMAL && s->param.nargs > 1 && num[1] < ZG_LEAST_CUT) {
    zl_help(complain(e, ZL_Z0107, s->param.args[1]->span,
                     "values are cut at so many standard deviations, at least %g, found %g", ZG_LEAST_CUT,
                     num[1]),
            "`trunc_normal(0.02, 3)` draws again what is beyond 0.06");
    return false;
  }
  return true;
}

/* Evaluates the numbers of an initialiser in the current iteration. *varies: they are others in others. */
static bool init_numbers(Elab *e, const ZlStmt *s, ZgInit init, double num[2], bool *varies) {
  Num v = {0};
  const ZlExpr *one = s->param.value;
  uint32_t n = one ? 1 : s->param.nargs;
  for (uint32_t k = 0; k < n; k++) {
    const ZlExpr *x = one ? one : s->param.args[k];
    if (!static_initial(e, x, &v) || !static_fits(e, x->span, v)) return false;
    *varies |= v.varies;
    num[k] = v.assumed && !one ? 1 : v.v;
  }
  return one || check_numbers(e, s, init, num);
}

/* The numbers of all iterations of the repeat, where they differ. */
static void init_each(Elab *e, const ZlStmt *s, ZgParam *p) {
  uint32_t trip = e->g->segments[e->seg].trip;
  double(*each)[2] = (void *)ZB_NEWN(e->g->arena, double, 2 * (size_t)trip);
  bool varies = false, ok = true;
  for (uint32_t i = 0; i < trip && ok; i++) {
    e->iteration = i;
    ok = init_numbers(e, s, (ZgInit)p->init, each[i], &varies);
  }
  e->iteration = 0;
  if (ok) p->each = (const double(*)[2])each;
}

/* A wrong initialiser or tag still leaves a well-typed parameter, so both only report. */
static void init_of(Elab *e, const ZlStmt *s, ZgParam *p) {
  ZlName name = s->param.init;
  int i = 0;
  p->init = ZG_INIT_CONST;
  while (!s->param.value && i < INITS && strcmp(inits[i].name, name.s)) i++;
  if (!s->param.value && i == INITS) {
    const char *names[INITS];
    for (i = 0; i < INITS; i++) names[i] = inits[i].name;
    const char *near = zb_nearest(name.s, names, INITS);
    zl_help(complain(e, ZL_Z0102, name.span, "no initialiser `%s`", name.s), "did you mean `%s`?",
            near ? near : "normal");
    return;
  }
  if (!s->param.value && (s->param.nargs < inits[i].least || s->param.nargs > inits[i].most)) {
    complain(e, ZL_Z0205, name.span, "`%s` takes %u number%s%s, found %u", name.s, inits[i].least,
             inits[i].least == 1 ? "" : "s", inits[i].most > inits[i].least ? " or 2" : "", s->param.nargs);
    return;
  }
  double num[2] = {0};
  bool varies = false;
  if (s->param.value && formula_is(s->param.value))
    return; /* of each parameter by itself, which has the axes */
  if (!s->param.value) p->init = (uint8_t)inits[i].init;
  if (!init_numbers(e, s, (ZgInit)p->init, num, &varies)) return;
  memcpy(p->num, num, sizeof num);
  if (varies) init_each(e, s, p);
}

static void tags_of(Elab *e, const ZlStmt *s, ZgParam *p) {
  for (uint32_t i = 0; i < s->param.tags.n; i++) {
    uint32_t tag = zg_tag_add(e->g, s->param.tags.at[i].s);
    if (tag == ZG_NONE) {
      complain(e, ZL_Z0111, s->param.tags.at[i].span, "a model has at most 32 tags");
      return;
    }
    p->tags |= 1u << tag;
  }
}

/* Type and memory order; the size must be known and fit. */
static bool param_type(Elab *e, const ZlParamDef *def, ZgParam *p) {
  ZlTypeExpr x = {.elem = ZL_REAL, .axes = def->axes, .span = def->span};
  if (!type_resolve(e, &x, &p->type)) return false;
  for (uint32_t i = 0; i < def->axes.n; i++) {
    uint16_t axis = 0;
    axis_find(e, def->axes.at[i].s, &axis);
    int64_t size = e->g->axes[axis].size;
    if (!size) {
      ZlDiag *d = complain(e, ZL_Z0209, def->axes.at[i].span,
                           "parameter `%s` cannot have the data axis `%s`: its size is not the model's",
                           def->name.s, def->axes.at[i].s);
      zl_help(d, "give it an axis with a size, as in `axis pos = 1024`");
      return false;
    }
    for (int k = 0; k < p->type.naxes; k++)
      if (p->type.axis[k] == axis) p->order[i] = (uint8_t)k;
  }
  uint64_t elements;
  if (zg_elements(e->g, &p->type, &elements)) return true;
  complain(e, ZL_Z0111, def->span, "parameter `%s` has more than 2^48 elements", def->name.s);
  return false;
}

/* The call that would need a label for the paths in the current frame to differ: the innermost one
 * without. */
static ZlSpan unlabelled_call(const Elab *e, const char **block) {
  const Frame *f = e->frame;
  while (f->labelled) f = f->caller;
  *block = f->block ? f->block->name.s : NULL;
  return f->block ? f->call : ZL_NOWHERE;
}

static bool same_place(ZlSpan a, ZlSpan b) {
  return a.file == b.file && a.start == b.start && a.end == b.end;
}

static bool unique_path(Elab *e, const ZlParamDef *def, const char *path) {
  uint32_t i = zb_names_find(&e->param_paths, path);
  if (i == ZB_NO_NAME) return true;
  const char *block;
  ZlSpan call = unlabelled_call(e, &block), other = e->param_call[i];
  if (same_place(call, other)) {
    ZlDiag *d = complain(e, ZL_Z0109, def->name.span, "parameter `%s` is declared twice", def->name.s);
    zl_also(d, e->param_span[i], "first here");
    return false;
  }
  if (call.file < 0) call = def->name.span;
  ZlDiag *d = complain(e, ZL_Z0109, call, "parameters of this %s have the paths of others",
                       block ? zb_printf(e->arena, "call of `%s`", block) : "model");
  zl_also(d, other.file < 0 ? e->param_span[i] : other, "of this one");
  zl_note(d, "`%s`: a call without a label adds nothing to the paths of the parameters in it", path);
  zl_help(d, "label the calls: `as first`, `as second`");
  return false;
}

static Val declare_param(Elab *e, const ZlParamDef *def, const ZlExpr *value, ZgParam p) {
  Val poison = {.kind = VAL_POISON};
  if (!param_type(e, def, &p)) return poison;
  if (value && formula_is(value)) p.formula = formula_make(e, def, value);
  p.path = zb_printf(e->arena, "%s%s", e->frame->path, def->name.s);
  if (strlen(p.path) > 255) {
    complain(e, ZL_Z0111, def->span, "the path of parameter `%s` is longer than 255 bytes", def->name.s);
    return poison;
  }
  if (!unique_path(e, def, p.path)) return val_stand_in(e, p.type);
  p.segment = e->in_repeat ? e->seg : ZG_NONE;
  ZgNode n = {.op = ZG_OP_PARAM, .opt = {e->g->nparams}};
  const char *block;
  uint32_t k = zg_param_add(e->g, p), nused = k, nspan = k, ncall = k, nupdated = k;
  zb_names_add(e->arena, &e->param_paths, p.path);
  ZB_PUSH(e->arena, e->param_span, nspan, def->name.span);
  ZB_PUSH(e->arena, e->param_call, ncall, unlabelled_call(e, &block));
  ZB_PUSH(e->arena, e->param_used, nused, false);
  ZB_PUSH(e->arena, e->updated, nupdated, ZL_NOWHERE);
  Val v = place_node(e, def->span, n, NULL, NULL);
  const ZgSegment *seg = &e->g->segments[e->seg];
  if (v.kind == VAL_TENSOR) e->g->params[k].loc = seg->nodes[seg->values[v.id].node].loc;
  return v;
}

static void do_param(Elab *e, const ZlStmt *s) {
  ZgParam p = {.state = s->param.state};
  init_of(e, s, &p);
  tags_of(e, s, &p);
  for (uint32_t i = 0; i < s->param.ndefs; i++) {
    const ZlParamDef *def = &s->param.defs[i];
    uint32_t before = e->g->nparams;
    Val v = declare_param(e, def, s->param.value, p);
    name_bind(e, def->name, v);
    Bind *b = name_find(e, def->name.s);
    b->shared = !e->frame->block && !e->in_repeat;
    if (e->g->nparams > before) b->param = before;
  }
}

static void warn_unused(Elab *e) {
  for (uint32_t i = 0; i < e->g->nparams; i++)
    if (!e->param_used[i] && !e->g->params[i].state)
      zl_report(e->diags, ZL_Z0112, e->param_span[i], "parameter `%s` is never used, so it gets no gradient",
                e->g->params[i].path);
}

/* ---- names on the left --------------------------------------------------------------------------------- */
static void do_let(Elab *e, const ZlStmt *s) {
  uint32_t n = s->let.names.n;
  Val *v = ZB_NEWN(e->arena, Val, n);
  bool ok = expr_eval_many(e, s->let.value, v, n);
  for (uint32_t i = 0; i < n; i++) name_bind(e, s->let.names.at[i], ok ? v[i] : (Val){.kind = VAL_POISON});
}

/* ---- repeat -------------------------------------------------------------------------------------------- */
static void mark_name(Elab *e, const char *name, bool *rebound) {
  uint32_t bind = zb_names_find(&e->frame->names, name);
  if (bind != ZB_NO_NAME) rebound[bind] = true;
}

/* Marks in `rebound`, by number, which names of the frame the body binds again. */
static void mark_rebound(Elab *e, ZlStmt *const *body, uint32_t n, bool *rebound) {
  for (uint32_t i = 0; i < n; i++) {
    const ZlStmt *s = body[i];
    if (s->kind == ZL_S_IF) {
      bool taken = static_true(e, s->choice.cond);
      mark_rebound(e, taken ? s->choice.body : s->choice.otherwise,
                   taken ? s->choice.nbody : s->choice.nother, rebound);
    }
    if (s->kind == ZL_S_REPEAT) mark_rebound(e, s->repeat.body, s->repeat.nbody, rebound);
    for (uint32_t k = 0; s->kind == ZL_S_PARAM && k < s->param.ndefs; k++)
      mark_name(e, s->param.defs[k].name.s, rebound);
    for (uint32_t k = 0; s->kind == ZL_S_LET && k < s->let.names.n; k++)
      mark_name(e, s->let.names.at[k].s, rebound);
  }
}

/* A name that the body rebinds and that exists outside: carried from one iteration to the next. */
typedef struct {
  uint32_t bind; /* in the frame */
  uint32_t slot;
  Val before;
} Carried;

static Carried *carried_names(Elab *e, const ZlStmt *s, uint32_t *n) {
  Carried *c = NULL;
  *n = 0;
  bool *rebound = ZB_NEWN(e->arena, bool, e->frame->nbinds + 1);
  mark_rebound(e, s->repeat.body, s->repeat.nbody, rebound);
  for (uint32_t i = 0; i < e->frame->nbinds; i++) {
    Bind *b = &e->frame->binds[i];
    if (!rebound[i] || b->label) continue;
    if (b->param != ZG_NONE) e->param_used[b->param] = true;
    Carried one = {i, 0, val_tensor(e, s->span, b->val, ZG_REAL)};
    ZB_PUSH(e->arena, c, *n, one);
  }
  return c;
}

/* What a carried name is at the end of an iteration; it must be what it was at the start. */
static Val checked_carry(Elab *e, const ZlStmt *s, const Carried *c) {
  Bind *b = &e->frame->binds[c->bind];
  if (b->param != ZG_NONE) e->param_used[b->param] = true;
  Val v = val_tensor(e, b->name.span, b->val,
                     c->before.kind == VAL_TENSOR ? (ZgElem)c->before.type.elem : ZG_REAL);
  if (c->before.kind == VAL_POISON || v.kind == VAL_POISON) return (Val){.kind = VAL_POISON};
  if (zg_type_eq(&v.type, &c->before.type)) return v;
  ZlDiag *d =
      complain(e, ZL_Z0206, b->name.span, "`%s` is %s at the start of an iteration, but %s at its end",
               b->name.s, type_text(e, &c->before.type), type_text(e, &v.type));
  ZlSpan head = s->span;
  if (head.end > head.start + 6) head.end = head.start + 6; /* the word `repeat` */
  zl_also(d, head, "carried from one iteration to the next");
  if (is_float(&v.type) && is_float(&c->before.type) && v.type.elem != c->before.type.elem)
    zl_help(d, "write `%s(...)` around the new value", zg_elem_name[c->before.type.elem]);
  return (Val){.kind = VAL_POISON};
}

static void enter_repeat(Elab *e, const ZlStmt *s, const char *iteration, const char **path,
                         uint32_t *region) {
  Frame *f = e->frame;
  const char *label = s->repeat.label.s ? s->repeat.label.s : "";
  *path = f->path;
  *region = f->region;
  f->path = zb_printf(e->arena, "%s%s.%s.", f->path, *label ? label : "repeat", iteration);
  f->region = zg_region_add(e->g, ZG_REGION_REPEAT, f->region, label, "");
}

/* In the body the label is a number, the iteration's, where no name is called so: for initial values alone. */
static void bind_label(Elab *e, const ZlStmt *s, int64_t iteration, bool varies) {
  ZlName label = s->repeat.label;
  if (!label.s || name_find(e, label.s)) return;
  Val v = {.kind = VAL_NUM, .num = num_int(iteration)};
  v.num.varies = varies;
  name_add(e, e->frame, (Bind){.name = label, .val = v, .param = ZG_NONE, .label = true});
}

static void leave_repeat(Elab *e, uint32_t nbinds, const char *path, uint32_t region) {
  name_cut(e->frame, nbinds); /* names made inside stay inside */
  e->frame->path = path;
  e->frame->region = region;
}

/* Inside another repeat: as often as it says, one iteration after the other. */
static void unroll(Elab *e, const ZlStmt *s, int64_t count) {
  uint32_t n, nbinds = e->frame->nbinds, region;
  Carried *c = carried_names(e, s, &n);
  for (uint32_t k = 0; k < n; k++) e->frame->binds[c[k].bind].val = c[k].before;
  size_t errors = zl_errors(e->diags);
  double times = e->times;
  e->times *= (double)count;
  uint32_t copied = n + (uint32_t)strlen(e->frame->path) / 32; /* what each iteration has anew */
  for (int64_t i = 0; i < count && zl_errors(e->diags) == errors; i++) {
    const char *path;
    if (!elab_spend(e, ELAB_CALLS, 1, s->span) || !elab_spend(e, ELAB_WORK, copied, s->span)) break;
    enter_repeat(e, s, zb_printf(e->arena, "%lld", (long long)i), &path, &region);
    bind_label(e, s, i, false);
    elab_body(e, s->repeat.body, s->repeat.nbody, NULL);
    for (uint32_t k = 0; k < n; k++) e->frame->binds[c[k].bind].val = checked_carry(e, s, &c[k]);
    leave_repeat(e, nbinds, path, region);
  }
  e->times = times;
}

static void repeat_segment(Elab *e, const ZlStmt *s, int64_t count) {
  uint32_t n, nbinds = e->frame->nbinds, region;
  const char *path;
  Carried *c = carried_names(e, s, &n); /* numbers become tensors in the segment before */
  enter_repeat(e, s, "*", &path, &region);
  place_begin_repeat(e, s->repeat.label.s ? s->repeat.label.s : "", e->frame->region, (uint32_t)count);
  for (uint32_t k = 0; k < n; k++) {
    Bind *b = &e->frame->binds[c[k].bind];
    if (c[k].before.kind == VAL_TENSOR) b->val = place_carry_in(e, b->name.span, c[k].before, &c[k].slot);
    b->shared = false;
    b->param = ZG_NONE;
  }
  bind_label(e, s, 0, true);
  elab_body(e, s->repeat.body, s->repeat.nbody, NULL);
  for (uint32_t k = 0; k < n; k++) {
    Val v = checked_carry(e, s, &c[k]);
    if (v.kind == VAL_TENSOR) place_carry_back(e, v, c[k].slot);
    e->frame->binds[c[k].bind].val.kind = v.kind;
  }
  leave_repeat(e, nbinds, path, region);
  place_end_repeat(e);
  for (uint32_t k = 0; k < n; k++) {
    Bind *b = &e->frame->binds[c[k].bind];
    b->param = ZG_NONE; /* one of an iteration is carried out as its value */
    if (b->val.kind == VAL_TENSOR) b->val = place_carried(e, b->name.span, c[k].slot);
    else if (c[k].before.kind == VAL_TENSOR) b->val = val_stand_in(e, c[k].before.type);
  }
}

static void do_repeat(Elab *e, const ZlStmt *s) {
  int64_t count;
  if (!static_int(e, s->repeat.count, 1, ZG_MAX_TRIP, "repeat count", &count))
    count = 1; /* still look at the body */
  if (e->stopped || !elab_depth(e, s->span)) return;
  if (!e->in_repeat && e->g->nsegments + 2 > ZG_MAX_SEGMENTS) {
    zl_help(complain(e, ZL_Z0111, s->span, "the model has more than %d repeats one after the other",
                     ZG_MAX_SEGMENTS / 2 - 1),
            "write what is alike as one `repeat`, or the statements without");
    e->stopped = true;
    return;
  }
  if (e->in_repeat) unroll(e, s, count);
  else repeat_segment(e, s, count);
}

/* ---- if ------------------------------------------------------------------------------------------------ */
static void do_if(Elab *e, const ZlStmt *s) {
  if (static_true(e, s->choice.cond)) elab_body(e, s->choice.body, s->choice.nbody, NULL);
  else elab_body(e, s->choice.otherwise, s->choice.nother, NULL);
}

/* ---- the model's own statements ------------------------------------------------------------------------ */
static bool room_for_io(Elab *e, ZlSpan span) {
  if (e->g->ninputs + e->g->noutputs < ZG_MAX_IO) return true;
  zl_help(complain(e, ZL_Z0111, span, "the model has more than %d inputs and outputs", ZG_MAX_IO),
          "give one tensor an axis instead of many tensors");
  e->stopped = true;
  return false;
}

/* The order of the axes of `t` in which `type` writes them; NULL if that is the one of the type itself. */
static const uint8_t *written(Elab *e, const ZlTypeExpr *type, const ZgType *t) {
  uint8_t *order = ZB_NEWN(e->g->arena, uint8_t, ZG_MAX_AXES);
  bool other = false;
  for (uint32_t i = 0; i < type->axes.n && i < t->naxes; i++) {
    uint16_t axis = 0;
    axis_find(e, type->axes.at[i].s, &axis);
    while (t->axis[order[i]] != axis && order[i] + 1 < t->naxes) order[i]++;
    other |= order[i] != i;
  }
  return other ? order : NULL;
}

/* What is elementwise in an input is in files as that is; else NULL. */
static const uint8_t *input_order(const Elab *e, uint32_t v) {
  const ZgSegment *s = &e->g->segments[e->seg];
  for (;;) {
    const ZgNode *n = &s->nodes[s->values[v].node];
    if (n->op == ZG_OP_INPUT) return e->g->inputs[n->opt[0]].order;
    if (zg_op_info[n->op].kind != ZG_EW) return NULL;
    int k = 0;
    while (k < n->nin && s->values[n->in[k]].type.naxes < s->values[v].type.naxes) k++;
    if (k == n->nin) return NULL;
    v = n->in[k];
  }
}

static void do_input(Elab *e, const ZlStmt *s) {
  ZgIo io = {.name = zb_strdup(e->g->arena, s->input.name.s)};
  Val v = {.kind = VAL_POISON};
  if (room_for_io(e, s->span) && type_resolve(e, &s->input.type, &io.type)) {
    ZgNode n = {.op = ZG_OP_INPUT, .opt = {e->g->ninputs}};
    io.order = written(e, &s->input.type, &io.type);
    ZB_PUSH(e->g->arena, e->g->inputs, e->g->ninputs, io);
    v = place_node(e, s->input.name.span, n, NULL, NULL);
    const ZgSegment *seg = &e->g->segments[e->seg];
    e->g->inputs[e->g->ninputs - 1].loc = seg->nodes[seg->values[v.id].node].loc;
    uint16_t batch;
    if (axis_find(e, "batch", &batch) && !zg_type_has(&io.type, batch)) {
      ZlDiag *d = complain(e, ZL_Z0704, s->input.type.span, "input `%s` has no axis `batch`", io.name);
      zl_note(d, "data arrives in samples, which `batch` counts");
    }
  }
  name_bind(e, s->input.name, v);
  name_find(e, s->input.name.s)->shared = true;
  if (v.kind == VAL_TENSOR) apart_begin(e, s->input.name.span, io.name, &v.type);
}

/* Is an output as it is declared? */
static bool output_fits(Elab *e, const ZlStmt *s, const ZgType *have, ZgType *want) {
  if (!type_resolve(e, &s->output.type, want)) return false;
  ZgType axes = *want;
  axes.elem = have->elem;
  axes.of = have->of;
  if (elem_fits(want, have) && zg_type_eq(&axes, have)) return true;
  ZlDiag *d = complain(e, ZL_Z0207, s->output.value->span, "output `%s` is %s here, but is declared %s",
                       s->output.name.s, type_text(e, have), type_text(e, want));
  zl_also(d, s->output.type.span, "declared here");
  return false;
}

static void do_output(Elab *e, const ZlStmt *s) {
  Val v = expr_eval(e, s->output.value);
  ZgType want;
  v = val_tensor(e, s->output.value->span, v, ZG_REAL);
  name_bind(e, s->output.name, v);
  if (v.kind == VAL_POISON || !room_for_io(e, s->span)) return;
  if (s->output.typed && !output_fits(e, s, &v.type, &want)) return;
  ZgIo io = {.name = zb_strdup(e->g->arena, s->output.name.s), .type = v.type};
  ZgNode n = {.op = ZG_OP_OUTPUT, .nin = 1, .opt = {e->g->noutputs}};
  ZB_PUSH(e->g->arena, e->g->outputs, e->g->noutputs, io);
  place_node(e, s->output.name.span, n, &v, NULL);
  const ZgSegment *seg = &e->g->segments[e->seg];
  const ZgNode *sink = &seg->nodes[seg->nnodes - 1];
  ZgIo *out = &e->g->outputs[e->g->noutputs - 1];
  out->loc = sink->loc;
  out->order = s->output.typed ? written(e, &s->output.type, &v.type) : input_order(e, sink->in[0]);
}

static Val wanted_real(Elab *e, const ZlExpr *x, const char *what) {
  Val v = expr_eval(e, x);
  v = val_tensor(e, x->span, v, ZG_F32);
  if (v.kind == VAL_POISON || is_float(&v.type)) return v;
  complain(e, ZL_Z0202, x->span, "%s must be real, found %s", what, type_text(e, &v.type));
  return (Val){.kind = VAL_POISON};
}

static void do_aux(Elab *e, const ZlStmt *s) {
  Val v = wanted_real(e, s->aux, "an aux term");
  if (v.kind == VAL_POISON) return;
  if (v.type.naxes) {
    ZlDiag *d =
        complain(e, ZL_Z0202, s->aux->span, "an aux term is a scalar, found %s", type_text(e, &v.type));
    zl_help(d, "reduce it with `mean%s(...)`", axes_text(e, &v.type));
    return;
  }
  e->aux = true;
  v = val_cast(e, s->aux->span, v, ZG_F32);
  place_node(e, s->aux->span, (ZgNode){.op = ZG_OP_AUX, .nin = 1}, &v, NULL);
}

/* The sum of v over all its axes in f32, into a sink. */
static void sum_into(Elab *e, ZlSpan span, Val v, ZgOp sink, uint32_t loss) {
  v = val_cast(e, span, v, ZG_F32);
  if (v.kind == VAL_TENSOR && v.type.naxes) v = builtin_sum(e, span, v, v.type.axis, v.type.naxes);
  place_node(e, span, (ZgNode){.op = (uint16_t)sink, .nin = 1, .opt = {loss}}, &v, NULL);
}

/* Two losses of one name could not be told apart in what is reported of them. */
static bool loss_named(Elab *e, const ZlStmt *s) {
  const char *name = s->loss.name.s ? s->loss.name.s : ZG_LOSS_WITHOUT_NAME;
  for (uint32_t k = 0; k < e->nlosses; k++) {
    const char *other = e->loss[k].name.s ? e->loss[k].name.s : ZG_LOSS_WITHOUT_NAME;
    if (strcmp(name, other) != 0) continue;
    ZlDiag *d =
        complain(e, ZL_Z0009, s->loss.name.s ? s->loss.name.span : s->span, "a second loss `%s`", name);
    zl_also(d, e->loss[k].name.s ? e->loss[k].name.span : e->loss[k].num, "the first");
    if (!s->loss.name.s) zl_note(d, "a loss without a name is called `%s`", ZG_LOSS_WITHOUT_NAME);
    zl_help(d, "name it: `loss %s2 = ... per ...`", name);
    return false;
  }
  if (e->nlosses < ZG_MAX_LOSSES) return true;
  zl_help(complain(e, ZL_Z0111, s->span, "a model has at most %d losses", ZG_MAX_LOSSES),
          "add up those with one denominator");
  return false;
}

static void do_loss(Elab *e, const ZlStmt *s) {
  Val num = wanted_real(e, s->loss.num, "the loss"),
      den = wanted_real(e, s->loss.den, "the term after `per`");
  if (!loss_named(e, s)) return;
  uint32_t k = e->nlosses++;
  e->loss[k].num = s->loss.num->span;
  e->loss[k].den = s->loss.den->span;
  e->loss[k].name = s->loss.name;
  zg_loss_add(e->g, s->loss.name.s ? s->loss.name.s : ZG_LOSS_WITHOUT_NAME, place_at(e, s->loss.num->span));
  if (zl_errors(e->diags) != e->errors) return; /* stand-ins are of no use to it */
  sum_into(e, s->loss.num->span, num, ZG_OP_LOSS_NUM, k);
  ZlSpan culprit;
  if (place_remake(e, den, &den, &culprit)) {
    sum_into(e, s->loss.den->span, den, ZG_OP_LOSS_DEN, k);
    return;
  }
  ZlDiag *d = complain(e, ZL_Z0703, s->loss.den->span, "the term after `per` may depend on inputs only");
  zl_also(d, culprit, "it depends on this");
  zl_note(d, "it is counted before the step begins, so that every micro-batch is weighted alike");
  zl_help(d, "`per known(targets)`, for example");
}

/* Of a model with aux terms alone: 0 for each sample. */
static void no_loss(Elab *e, ZlSpan span, uint16_t batch) {
  ZgType t = zg_type(ZG_F32, &batch, 1);
  for (int den = 0; den < 2; den++) {
    Val v = val_tensor(e, span, (Val){.kind = VAL_NUM, .num = num_int(den)}, ZG_F32);
    v = place_node(e, span, (ZgNode){.op = ZG_OP_BROADCAST, .nin = 1}, &v, &t);
    sum_into(e, span, v, den ? ZG_OP_LOSS_DEN : ZG_OP_LOSS_NUM, 0);
  }
  e->loss[0].num = e->loss[0].den = span;
  e->nlosses = 1;
}

static void finish_losses(Elab *e, const ZlModel *m, uint16_t batch) {
  if (!e->nlosses && e->aux) no_loss(e, m->name.span, batch);
  if (!e->nlosses) {
    ZlDiag *d = complain(e, ZL_Z0009, m->name.span, "model `%s` has no loss", m->name.s);
    zl_note(d, "each `loss` is in a branch that is not taken");
    zl_help(d, "put one outside of the `if`");
  }
  if (e->nlosses == 1 && !e->loss[0].name.s) e->g->nlosses = 0; /* nothing to tell apart */
}

void elab_body(Elab *e, ZlStmt *const *body, uint32_t n, Val *out) {
  for (uint32_t i = 0; i < n && elab_spend(e, ELAB_WORK, 1, body[i]->span); i++) {
    const ZlStmt *s = body[i];
    switch (s->kind) {
    case ZL_S_PARAM: do_param(e, s); break;
    case ZL_S_LET: do_let(e, s); break;
    case ZL_S_REPEAT: do_repeat(e, s); break;
    case ZL_S_IF: do_if(e, s); break;
    case ZL_S_AUX: do_aux(e, s); break;
    case ZL_S_UPDATE: update_place(e, s); break;
    case ZL_S_RETURN:
      for (uint32_t k = 0; k < s->ret.n; k++) out[k] = expr_eval(e, s->ret.values[k]);
      break;
    case ZL_S_AXIS:
      if (e->frame->block) call_axes(e, s); /* else static_bind_model made them */
      break;
    case ZL_S_INPUT: do_input(e, s); break;
    case ZL_S_OUTPUT: do_output(e, s); break;
    case ZL_S_LOSS: do_loss(e, s); break;
    }
  }
}

/* ---- how large a model may be -------------------------------------------------------------------------- */
static void too_large(Elab *e, ElabBudget what, uint32_t most, ZlSpan span) {
  static const char *const units[] = {"operations", "calls of blocks and iterations of inner repeats",
                                      "evaluations of statements and expressions"};
  ZlDiag *d = complain(e, ZL_Z0111, span, "the model comes to more than %u %s", most, units[what]);
  const Frame *f = e->frame;
  while (f->block && f->caller->block) f = f->caller;
  if (f->block && f->call.file >= 0) zl_also(d, f->call, "in this call of `%s`", f->block->name.s);
  if (e->times > 1)
    zl_note(d, "the inner repeats here run %.0f times altogether: each iteration is written out", e->times);
  const ZlBlock *b = NULL; /* what is called most */
  for (uint32_t i = 0; i < e->ncalled; i++)
    if (!b || e->uses[e->called[i]->number].calls > e->uses[b->number].calls) b = e->called[i];
  uint32_t calls = b ? e->uses[b->number].calls : 0;
  if (calls > 1000) zl_note(d, "%u of the calls so far are of `%s`: each is written out", calls, b->name.s);
  if (e->times > 1) zl_help(d, "repeat less often, or make it the outermost `repeat`, which is stored once");
  else if (calls > 1000)
    zl_help(d, "where a block calls another twice for the same, call it once and use the result again");
  else zl_help(d, "put what is alike into a `repeat`, which is stored once");
}

bool elab_spend(Elab *e, ElabBudget what, uint32_t n, ZlSpan span) {
  static const uint32_t most[ELAB_BUDGETS] = {ELAB_MAX_NODES, ELAB_MAX_CALLS, ELAB_MAX_WORK};
  if (e->stopped) return false;
  if (n <= most[what] - e->spent[what]) {
    e->spent[what] += n;
    return true;
  }
  e->stopped = true;
  too_large(e, what, most[what], span);
  return false;
}

bool elab_depth(Elab *e, ZlSpan span) {
  uint32_t depth = 0;
  for (uint32_t r = e->frame->region; r; r = e->g->regions[r].parent) depth++;
  if (depth < ZG_MAX_DEPTH) return true;
  e->stopped = true;
  ZlDiag *d = complain(e, ZL_Z0111, span, "blocks and repeats are nested more than %d deep", ZG_MAX_DEPTH);
  zl_help(d, "write blocks that call each other as one, or repeats within repeats as one of more iterations");
  return false;
}

/* ---- all of it ----------------------------------------------------------------------------------------- */
/* A graph names files without their folders: the same source gives the same graph wherever it lies. */
static const char **file_names(const Elab *e) {
  const ZlProgram *p = e->prog;
  int32_t last = 0;
  for (uint32_t i = 0; i < p->nfiles; i++)
    if (p->files[i]->id > last) last = p->files[i]->id;
  const char **names = ZB_NEWN(e->arena, const char *, last + 1);
  for (uint32_t i = 0; i < p->nfiles; i++) {
    const char *path = zl_source_name(e->src, p->files[i]->id), *slash = strrchr(path, '/');
    names[p->files[i]->id] = zb_strdup(e->arena, zb_show(slash ? slash + 1 : path)); /* clean and short */
  }
  return names;
}

void elab_init(Elab *e, ZbArena *a, ZlSources *s, ZlDiags *d, const ZlProgram *p, const ZcOptions *opt,
               BlockUse *uses, const char *name) {
  *e = (Elab){.arena = zb_arena_new(),
              .src = s,
              .diags = d,
              .prog = p,
              .opt = opt,
              .errors = zl_errors(d),
              .uses = uses,
              .times = 1,
              .assumed = ZG_NONE};
  memset(e->experts, 0xff, sizeof e->experts);
  e->g = zg_graph_new(a ? a : e->arena, name);
  e->file = file_names(e);
  e->frame = ZB_NEW(e->arena, Frame);
  e->frame->call = ZL_NOWHERE;
  e->frame->path = "";
  zg_segment_add(e->g, "", 0, false, 1);
}

void elab_end(Elab *e) {
  for (uint32_t i = 0; i < e->ncalled; i++) e->uses[e->called[i]->number].calls = 0;
  config_close(e);
  zb_arena_free(e->arena);
}

void elab_model(Elab *e, const ZlModel *m) {
  e->model = m;
  e->frame->scope = zl_model_scope(m);
  static_bind_model(e, m);
  uint16_t batch;
  bool has_batch = axis_find(e, "batch", &batch);
  if (!has_batch || e->g->axes[batch].size) {
    ZlDiag *d = complain(e, ZL_Z0704, m->span, "model %s has no data axis `batch`", m->name.s);
    zl_note(d, "`batch` counts the samples: micro-batches and data parallelism cut along it");
    zl_help(d, "add `axis batch`%s", has_batch ? ", without a size" : "");
    has_batch = false;
  }
  elab_body(e, m->body, m->nbody, NULL);
  if (zl_errors(e->diags) == e->errors) finish_losses(e, m, batch);
  if (zl_errors(e->diags) != e->errors) return;
  if (zg_param_count(e->g) > ZG_MAX_ELEMENTS) {
    complain(e, ZL_Z0111, m->span, "the parameters of model %s have more than 2^48 elements together",
             m->name.s);
    return;
  }
  warn_unused(e);
  apart_end(e);
  weights_map(e);
  sep_check(e, batch);
}

ZgGraph *zc_elaborate(ZbArena *a, ZlSources *s, ZlDiags *d, ZlProgram *p, const ZcOptions *opt) {
  const ZlModel *m = zl_model(p, d, opt->model);
  if (!m) return NULL;
  Elab e;
  elab_init(&e, a, s, d, p, opt, ZB_NEWN(p->arena, BlockUse, p->nblocks + 1), m->name.s);
  elab_model(&e, m);
  ZgGraph *g = NULL;
  if (!zl_errors(d)) {
    place_settle(&e);
    g = e.g;
  }
  elab_end(&e);
  return g;
}

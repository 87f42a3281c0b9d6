/* The operations of the language: arity, axis names and keywords of each, and how it is lowered to nodes. */
#include "compiler/builtin.h"

#include <string.h>

/* ---- elementwise --------------------------------------------------------------------------------------- */
static Val unary(Call *c) {
  bool whole = zg_op_info[c->op->op].whole && c->arg[0].kind == VAL_TENSOR && c->arg[0].type.elem == ZG_I32;
  if (!whole && !want_float(c, 0)) return poison();
  return place_node(c->e, c->x->span, (ZgNode){.op = c->op->op, .nin = 1}, c->arg, NULL);
}

/* A name like the wrong operand's whose axes would fit: the usual slip is bo for bq. */
static const char *fitting_name(Elab *e, const ZlExpr *x, const ZgType *other) {
  if (x->kind != ZL_E_NAME) return NULL;
  const char **names = NULL;
  size_t n = 0;
  for (uint32_t i = 0; i < e->frame->nbinds; i++) {
    const Bind *b = &e->frame->binds[i];
    if (b->val.kind != VAL_TENSOR || !is_float(&b->val.type) || !b->val.type.naxes) continue;
    if (zg_type_contains(other, &b->val.type) || zg_type_contains(&b->val.type, other))
      ZB_PUSH(e->arena, names, n, b->name.s);
  }
  return zb_nearest(x->name.s, names, n);
}

/* How an outer product is written, and what is wanted more often. */
static void help_unrelated(Elab *e, ZlDiag *d, const char *op, const ZgType *a, const ZgType *b) {
  ZgType more = zg_type_minus(b, a->axis, a->naxes), all = zg_type_union(a, b);
  ZbText names = {0};
  for (int i = 0; i < more.naxes; i++)
    zb_text_add(&names, "%s%s", i ? ", " : "", e->g->axes[more.axis[i]].name);
  if (all.naxes <= ZG_MAX_AXES)
    zl_help(d, "`spread[%s](...)` around the left operand repeats it along what it lacks", names.s);
  zb_text_free(&names);
  ZgType own = zg_type_minus(a, b->axis, b->naxes), both = zg_type_minus(a, own.axis, own.naxes);
  if (!strcmp(op, "*") && both.naxes)
    zl_help(d, "if the product is to be summed over what both have, write `dot[%s](..., ...)`",
            e->g->axes[both.axis[0]].name);
}

static bool related(Elab *e, const char *op, const Val *a, const Val *b, ZlSpan sa, ZlSpan sb,
                    const ZlExpr *xa, const ZlExpr *xb) {
  if (zg_type_contains(&a->type, &b->type) || zg_type_contains(&b->type, &a->type)) return true;
  ZgType all = zg_type_union(&a->type, &b->type);
  ZlDiag *d = complain(e, ZL_Z0201, sa, "operands of `%s` have unrelated axes", op);
  zl_label(d, "%s", axes_text(e, &a->type));
  zl_also(d, sb, "%s", axes_text(e, &b->type));
  if (all.naxes <= ZG_MAX_AXES)
    zl_note(d, "one operand's axes must contain the other's; otherwise the result would grow to %d axes",
            all.naxes);
  else zl_note(d, "one operand's axes must contain the other's");
  const char *near = xb ? fitting_name(e, xb, &a->type) : NULL;
  if (!near && xa) near = fitting_name(e, xa, &b->type);
  if (near) zl_help(d, "did you mean `%s` %s?", near, axes_text(e, &name_find(e, near)->val.type));
  else help_unrelated(e, d, op, &a->type, &b->type);
  return false;
}

static void no_arithmetic(Elab *e, const char *op, ZlSpan span, const ZgType *t) {
  ZlDiag *d = complain(e, ZL_Z0202, span, "`%s` does not take %s", op, type_text(e, t));
  if (t->elem != ZG_INDEX) return;
  zl_note(d, "an index selects along its axis; there is no arithmetic on it");
  zl_help(d, "`f32(i)` and `i32(i)` are its position as a number");
}

/* A number takes the element type of the tensor it meets. */
static bool adapt(Elab *e, const char *op, Val *a, Val *b, ZlSpan sa, ZlSpan sb) {
  for (int swap = 0; swap < 2; swap++) {
    Val *n = swap ? b : a, *t = swap ? a : b;
    ZlSpan sn = swap ? sb : sa, st = swap ? sa : sb;
    if (n->kind == VAL_TENSOR || n->kind == VAL_POISON) continue;
    ZgElem elem = t->kind == VAL_TENSOR ? (ZgElem)t->type.elem : ZG_REAL;
    if (elem == ZG_INDEX || elem == ZG_BOOL) {
      no_arithmetic(e, op, st, &t->type);
      return false;
    }
    int64_t whole;
    if (elem == ZG_I32 && n->kind == VAL_NUM && !num_is_int(n->num, &whole)) {
      ZlDiag *d = complain(e, ZL_Z0202, sn, "`%s`: %s is not a whole number, which an i32 operand needs", op,
                           num_text(e->arena, n->num));
      zl_help(d, "write `f32(...)` around the operand");
      return false;
    }
    *n = val_tensor(e, sn, *n, elem);
  }
  return a->kind == VAL_TENSOR && b->kind == VAL_TENSOR;
}

/* Indices are compared with those of the same axis, and with numbers. */
static bool compared(Elab *e, const char *op, Val *a, Val *b, ZlSpan sa, ZlSpan sb) {
  bool ia = a->kind == VAL_TENSOR && a->type.elem == ZG_INDEX,
       ib = b->kind == VAL_TENSOR && b->type.elem == ZG_INDEX;
  if (ia && ib && a->type.of != b->type.of) {
    ZlDiag *d = complain(e, ZL_Z0204, sa, "`%s` compares positions along two axes", op);
    zl_label(d, "%s", type_text(e, &a->type));
    zl_also(d, sb, "%s", type_text(e, &b->type));
    return false;
  }
  if (ia && b->kind == VAL_NUM) *a = val_cast(e, sa, *a, ZG_I32);
  if (ib && a->kind == VAL_NUM) *b = val_cast(e, sb, *b, ZG_I32);
  return true;
}

Val builtin_binary(Elab *e, const ZlExpr *x, ZgOp op, Val a, Val b, ZlSpan sa, ZlSpan sb) {
  bool sign = x->kind == ZL_E_BIN;
  const char *name = sign ? zl_operator_text(x->bin.op) : zg_op_info[op].text;
  const ZlExpr *xa = sign ? x->bin.a : x->call.args[0].value, *xb = sign ? x->bin.b : x->call.args[1].value;
  bool truth = zg_op_info[op].truth;
  if (truth && !compared(e, name, &a, &b, sa, sb)) return poison();
  if (!adapt(e, name, &a, &b, sa, sb)) return poison();
  bool both = a.type.elem == ZG_INDEX && b.type.elem == ZG_INDEX;
  for (int i = 0; i < 2; i++) {
    const ZgType *t = i ? &b.type : &a.type;
    if ((t->elem != ZG_INDEX && t->elem != ZG_BOOL) || (truth && both)) continue;
    no_arithmetic(e, name, i ? sb : sa, t);
    return poison();
  }
  if (!related(e, name, &a, &b, sa, sb, xa, xb)) return poison();
  Val in[2] = {a, b};
  return place_node(e, x->span, (ZgNode){.op = (uint16_t)op, .nin = 2}, in, NULL);
}

static Val binary(Call *c) {
  return builtin_binary(c->e, c->x, (ZgOp)c->op->op, c->arg[0], c->arg[1], c->span[0], c->span[1]);
}

static Val select_op(Call *c) {
  Val *a = c->arg;
  if (a[0].kind != VAL_TENSOR || a[0].type.elem != ZG_BOOL) {
    ZlDiag *d = complain(c->e, ZL_Z0202, c->span[0], "`select`: the first operand must be bool");
    if (a[0].kind == VAL_TENSOR) zl_label(d, "%s", type_text(c->e, &a[0].type));
    zl_help(d, "comparisons are bool: `a < b`, `a == b`");
    return poison();
  }
  if (!adapt(c->e, "select", &a[1], &a[2], c->span[1], c->span[2])) return poison();
  if (!related(c->e, "select", &a[1], &a[2], c->span[1], c->span[2], NULL, NULL)) return poison();
  return place_node(c->e, c->x->span, (ZgNode){.op = ZG_OP_SELECT, .nin = 3}, a, NULL);
}

static Val known_op(Call *c) {
  if (!want_index(c, 0)) return poison();
  return place_node(c->e, c->x->span, (ZgNode){.op = ZG_OP_KNOWN, .nin = 1}, c->arg, NULL);
}

static Val static_only(Call *c) {
  complain(c->e, ZL_Z0202, c->span[0], "`%s` works on static numbers only", c->op->name);
  return poison();
}

/* ---- sources ------------------------------------------------------------------------------------------- */
static Val position_op(Call *c) {
  if (!axis_size(c, c->ax[1])) {
    ZlDiag *d = complain(
        c->e, ZL_Z0209, c->x->call.axes.at[1].span,
        "positions select from an axis of the model, and `%s` is a data axis, without a size in the model",
        axis_name(c, c->ax[1]));
    zl_note(d, "`position[s, p]()` is 0, 1, 2, ... along s, as places along p: of parameters, for example");
    zl_help(d, "declare an axis as long as `%s` can be: `axis place = 1024`, then `position[%s, place]()`",
            axis_name(c, c->ax[0]), axis_name(c, c->ax[0]));
    return poison();
  }
  Val own;
  if (apart_position(c, &own)) return own;
  return place_node(c->e, c->x->span, with_axes(c, ZG_OP_POSITION, 0), NULL, NULL);
}

static Val place_op(Call *c) {
  Val own;
  return apart_place(c, &own) ? own : compose_place(c->e, c->x->span, c->ax[0]);
}

static Val spread_op(Call *c) {
  Val x = val_tensor(c->e, c->span[0], c->arg[0], ZG_REAL);
  for (int i = 0; x.kind == VAL_TENSOR && i < c->nax; i++) {
    if (!zg_type_has(&x.type, c->ax[i])) continue;
    ZlDiag *d = complain(c->e, ZL_Z0208, c->span[0], "`%s`: the operand has the axis `%s` already", head(c),
                         axis_name(c, c->ax[i]));
    zl_label(d, "%s", type_text(c->e, &x.type));
    return poison();
  }
  return compose_spread(c->e, c->x->span, x, c->ax, c->nax);
}

static Val index_op(Call *c) {
  Val x = val_tensor(c->e, c->span[0], c->arg[0], ZG_F32);
  if (x.kind != VAL_TENSOR) return poison();
  if (!is_float(&x.type) && x.type.elem != ZG_I32) {
    ZlDiag *d = complain(c->e, ZL_Z0202, c->span[0], "`%s` takes numbers", head(c));
    zl_label(d, "%s", type_text(c->e, &x.type));
    if (x.type.elem == ZG_INDEX) zl_help(d, "`f32(i)` is the position as a number");
    return poison();
  }
  return compose_index(c->e, c->x->span, x, c->ax[0]);
}

/* Every call draws from a stream of its own. */
static int64_t next_stream(Call *c) {
  const char *stream = zb_printf(c->e->arena, "%srandom.%u", c->e->frame->path, c->e->nrandom++);
  return (int64_t)(zb_stream(stream) >> 1);
}

static Val noise_op(Call *c) {
  ZgType t = zg_type(ZG_F32, c->ax, c->nax);
  ZgNode n = {.op = ZG_OP_RANDOM, .opt = {next_stream(c), c->op->op}};
  return place_node(c->e, c->x->span, n, NULL, &t);
}

static Val random_op(Call *c) {
  if (c->arg[0].kind == VAL_NUM && c->arg[0].num.assumed) c->arg[0].num = num_int(1);
  if (c->arg[0].kind != VAL_NUM || !(c->arg[0].num.v >= 0 && c->arg[0].num.v <= 1)) {
    complain(c->e, ZL_Z0107, c->span[0], "the probability of `random` is a static number from 0 to 1");
    return poison();
  }
  ZgType t = zg_type(ZG_REAL, c->ax, c->nax);
  ZgNode n = {.op = ZG_OP_RANDOM, .num = {c->arg[0].num.v}, .opt = {next_stream(c), ZG_COIN}};
  return place_node(c->e, c->x->span, n, NULL, &t);
}

/* 1 for each sample. */
static Val samples_op(Call *c) {
  Elab *e = c->e;
  uint32_t found = zg_axis_find(e->g, "batch");
  if (found == ZG_NONE) return val_stand_in(e, zg_type(ZG_F32, NULL, 0)); /* reported; or a block by itself */
  uint16_t batch = (uint16_t)found;
  ZgType t = zg_type(ZG_F32, &batch, 1);
  Val one = val_tensor(e, c->x->span, (Val){.kind = VAL_NUM, .num = num_int(1)}, ZG_F32);
  return place_node(e, c->x->span, (ZgNode){.op = ZG_OP_BROADCAST, .nin = 1}, &one, &t);
}

static Val size_op(Call *c) {
  int64_t size = axis_size(c, c->ax[0]);
  if (size) return (Val){.kind = VAL_NUM, .num = static_size(c->e, c->ax[0])};
  return (Val){.kind = VAL_SIZE, .axis = c->ax[0]};
}

/* ---- moving -------------------------------------------------------------------------------------------- */
static Val rename_op(Call *c) {
  if (!want_axis(c, 0, c->ax[0])) return poison();
  return place_node(c->e, c->x->span, with_axes(c, ZG_OP_RENAME, 1), c->arg, NULL);
}

static Val slice_op(Call *c) {
  const ZlExpr *x = keyword(c, "start");
  ZgNode n = with_axes(c, ZG_OP_SLICE, 1);
  if (!want_axis(c, 0, c->ax[0])) return poison();
  if (x && !static_int(c->e, x, 0, INT32_MAX, "start", &n.opt[0])) return poison();
  n.opt[1] = axis_size(c, c->ax[1]);
  if (!axis_size(c, c->ax[0])) {
    const char *from = axis_name(c, c->ax[0]);
    ZlDiag *d = complain(
        c->e, ZL_Z0202, c->x->span,
        "`%s`: the recipe binds the size of `%s`, and a slice is of an axis whose size the model says",
        head(c), from);
    zl_help(d, "`lookup(x, index[%s](%lld))` takes one place of it", from, (long long)n.opt[0]);
    return poison();
  }
  return place_node(c->e, c->x->span, n, c->arg, NULL);
}

static Val shift_op(Call *c) {
  const ZlExpr *x = keyword(c, "by");
  ZgNode n = with_axes(c, ZG_OP_SHIFT, 1);
  n.opt[0] = 1;
  c->arg[0] = val_tensor(c->e, c->span[0], c->arg[0], ZG_REAL);
  if (c->arg[0].kind == VAL_POISON || !want_axis(c, 0, c->ax[0])) return poison();
  if (x && !static_int(c->e, x, -INT32_MAX, INT32_MAX, "by", &n.opt[0])) return poison();
  if (c->arg[0].type.elem == ZG_INDEX) n.num[0] = -1; /* none */
  return place_node(c->e, c->x->span, n, c->arg, NULL);
}

static Val concat_op(Call *c) {
  if (c->nax != c->nargs + 1) {
    ZlDiag *d = complain(c->e, ZL_Z0205, c->x->call.ax_span,
                         "`concat` takes the joined axis and one axis for each operand: %d, found %d",
                         c->nargs + 1, c->nax);
    zl_help(d, "`concat[ab, a, b](x, y)`");
    return poison();
  }
  for (int i = 0; i < c->nargs; i++) { /* of any element type; infer sees to it that all have the same */
    c->arg[i] = val_tensor(c->e, c->span[i], c->arg[i], ZG_REAL);
    if (c->arg[i].kind == VAL_POISON || !want_axis(c, i, c->ax[i + 1])) return poison();
  }
  return place_node(c->e, c->x->span, with_axes(c, ZG_OP_CONCAT, c->nargs), c->arg, NULL);
}

static Val merge_op(Call *c) {
  bool merge = c->op->op == ZG_OP_MERGE;
  c->arg[0] = val_tensor(c->e, c->span[0], c->arg[0], ZG_REAL);
  if (c->arg[0].kind == VAL_POISON) return poison();
  for (int i = merge ? 1 : c->nax - 1; i < c->nax; i++) /* what it takes */
    if (!want_axis(c, 0, c->ax[i])) return poison();
  return place_node(c->e, c->x->span, with_axes(c, (ZgOp)c->op->op, 1), c->arg, NULL);
}

/* ---- reductions and products --------------------------------------------------------------------------- */
Val builtin_sum(Elab *e, ZlSpan span, Val v, const uint16_t *ax, int nax) {
  ZgNode n = {.op = ZG_OP_SUM, .nin = 1, .nax = (uint8_t)nax};
  memcpy(n.ax, ax, (size_t)nax * sizeof *ax);
  return place_node(e, span, n, &v, NULL);
}

static Val reduce(Call *c) {
  if (!want_float(c, 0) || !want_axes(c, 0)) return poison();
  if (!c->nax) return c->arg[0]; /* `..` of a block that was given no further axes */
  return place_node(c->e, c->x->span, with_axes(c, (ZgOp)c->op->op, 1), c->arg, NULL);
}

static Val mean_op(Call *c) {
  if (!want_float(c, 0) || !want_axes(c, 0)) return poison();
  return c->nax ? compose_mean(c->e, c->x->span, c->arg[0], c->ax, c->nax) : c->arg[0];
}

static Val dot_op(Call *c) {
  bool a = want_float(c, 0), b = want_float(c, 1); /* both complain */
  if (!a || !b) return poison();
  a = want_axes(c, 0), b = want_axes(c, 1);
  return a && b ? place_node(c->e, c->x->span, with_axes(c, ZG_OP_DOT, 2), c->arg, NULL) : poison();
}

static Val cumsum_op(Call *c) {
  ZgNode n = with_axes(c, ZG_OP_CUMSUM, 1);
  if (keyword(c, "order") && !word_keyword(c, "order", "forward", "reverse", &n.opt[0])) return poison();
  if (!want_float(c, 0) || !want_axes(c, 0)) return poison();
  return place_node(c->e, c->x->span, n, c->arg, NULL);
}

static Val softmax_op(Call *c) {
  if (!want_float(c, 0) || !want_axes(c, 0)) return poison();
  if (c->nax > 1) return compose_softmax(c->e, c->x->span, c->arg[0], c->ax, c->nax);
  return place_node(c->e, c->x->span, with_axes(c, ZG_OP_SOFTMAX, 1), c->arg, NULL);
}

static Val lse_op(Call *c) {
  if (!want_float(c, 0) || !want_axes(c, 0)) return poison();
  return compose_lse(c->e, c->x->span, c->arg[0], c->ax[0]);
}

static Val normalize_op(Call *c) {
  ZgNode n = with_axes(c, ZG_OP_NORMALIZE, 1);
  bool ok = word_keyword(c, "mode", "rms", "std", &n.opt[0]);
  if (!want_float(c, 0) || !want_axes(c, 0) || !number_keyword(c, "eps", 1e-5, &n.num[0]) || !ok)
    return poison();
  if (c->nax > 1)
    return compose_normalize(c->e, c->x->span, c->arg[0], c->ax, c->nax, n.opt[0] == 1, n.num[0]);
  return place_node(c->e, c->x->span, n, c->arg, NULL);
}

/* ---- tables and cross-entropy -------------------------------------------------------------------------- */
static Val lookup_op(Call *c) {
  if (!want_float(c, 0) || !want_index(c, 1)) return poison();
  const ZgType *t = &c->arg[0].type;
  uint16_t v = c->arg[1].type.of;
  if (!zg_type_has(t, v)) {
    ZlDiag *d = complain(c->e, ZL_Z0204, c->span[1], "index(%s) cannot select from a table without axis `%s`",
                         axis_name(c, v), axis_name(c, v));
    zl_also(d, c->span[0], "%s", axes_text(c->e, t));
    also_declared(c, d, 0);
    const char *by = NULL; /* what would */
    for (int i = 0; i < t->naxes; i++)
      by = zb_printf(c->e->arena, "%s%sindex(%s)", by ? by : "", by ? " or " : "", axis_name(c, t->axis[i]));
    if (by) zl_note(d, "this table takes %s", by);
    return poison();
  }
  return place_node(c->e, c->x->span, (ZgNode){.op = ZG_OP_LOOKUP, .nin = 2, .nax = 1, .ax = {v}}, c->arg,
                    NULL);
}

/* ---- choice -------------------------------------------------------------------------------------------- */
static Val topk_op(Call *c) {
  ZgNode n = with_axes(c, ZG_OP_TOPK, 1);
  const ZlExpr *by = keyword(c, "by"), *groups = keyword(c, "groups"), *take = keyword(c, "take");
  if (!want_float(c, 0) || !want_axis(c, 0, c->ax[0])) return poison();
  if (!groups != !take) {
    ZlDiag *d = complain(c->e, ZL_Z0205, (groups ? groups : take)->span,
                         "`%s` needs `groups` and `take`, or neither", head(c));
    zl_help(d, "`groups = 8, take = 4` chooses from the best 4 of 8 groups");
    return poison();
  }
  if (groups && (!static_int(c->e, groups, 1, 64, "groups", &n.opt[0]) ||
                 !static_int(c->e, take, 1, n.opt[0], "take", &n.opt[1])))
    return poison();
  if (by) {
    Val v = expr_eval(c->e, by);
    c->name[1] = "by", c->span[1] = by->span, c->arg[1] = v;
    if (v.kind == VAL_POISON || !want_float(c, 1)) return poison();
    n.nin = 2;
  }
  return place_node(c->e, c->x->span, n, c->arg, NULL);
}

static Val onehot_op(Call *c) {
  if (!want_index(c, 0)) return poison();
  if (c->arg[0].type.of != c->ax[0]) {
    ZlDiag *d = complain(c->e, ZL_Z0204, c->span[0], "`%s`: the operand is index(%s), not index(%s)", head(c),
                         axis_name(c, c->arg[0].type.of), axis_name(c, c->ax[0]));
    also_declared(c, d, 0);
    return poison();
  }
  return place_node(c->e, c->x->span, with_axes(c, ZG_OP_ONEHOT, 1), c->arg, NULL);
}

/* m = stop(peak(z)); s, p = xent_sums(z, m, t); (log(s) + m - p) known(t), all in f32 but z and m. */
static Val xent_op(Call *c) {
  Elab *e = c->e;
  ZlSpan at = c->x->span;
  if (!want_float(c, 0) || !want_index(c, 1) || !want_axes(c, 0)) return poison();
  Val z = c->arg[0], t = c->arg[1];
  if (t.type.of != c->ax[0]) {
    ZlDiag *d = complain(e, ZL_Z0204, c->span[1], "`%s`: the targets are index(%s), not index(%s)", head(c),
                         axis_name(c, t.type.of), axis_name(c, c->ax[0]));
    also_declared(c, d, 1);
    return poison();
  }
  ZgType rest = zg_type_minus(&z.type, c->ax, 1);
  if (rest.naxes != t.type.naxes || !zg_type_contains(&rest, &t.type)) {
    ZlDiag *d = complain(e, ZL_Z0201, c->span[1], "`%s`: targets and scores have different axes", head(c));
    zl_label(d, "%s", axes_text(e, &t.type));
    zl_also(d, c->span[0], "%s without `%s`", axes_text(e, &z.type), axis_name(c, c->ax[0]));
    return poison();
  }
  Val m = place_node(e, at, with_axes(c, ZG_OP_PEAK, 1), &z, NULL);
  m = place_node(e, at, (ZgNode){.op = ZG_OP_STOP, .nin = 1}, &m, NULL);
  Val in[3] = {z, m, t};
  Val s = place_node(e, at, with_axes(c, ZG_OP_XENT_SUMS, 3), in, NULL), p = val_result(e, s, 1);
  Val log_s = place_node(e, at, (ZgNode){.op = ZG_OP_LOG, .nin = 1}, &s, NULL);
  Val sum[2] = {log_s, val_cast(e, at, m, ZG_F32)};
  Val lse = place_node(e, at, (ZgNode){.op = ZG_OP_ADD, .nin = 2}, sum, NULL), diff[2] = {lse, p};
  Val loss = place_node(e, at, (ZgNode){.op = ZG_OP_SUB, .nin = 2}, diff, NULL);
  Val known = place_node(e, at, (ZgNode){.op = ZG_OP_KNOWN, .nin = 1}, &t, NULL);
  Val masked[2] = {loss, val_cast(e, at, known, ZG_F32)};
  return place_node(e, at, (ZgNode){.op = ZG_OP_MUL, .nin = 2}, masked, NULL);
}

/* ---- the list ------------------------------------------------------------------------------------------ */
#define ANY 8
/* Those that are not found by other lists, see find_builtin: name, axis names from..to, takes [..], operands
 * from..to, keywords, lowering, op */
static const Builtin builtins[] = {
    {"select", 0, 0, false, 3, 3, NULL, select_op, 0},
    {"known", 0, 0, false, 1, 1, NULL, known_op, 0},
    {"position", 2, 2, false, 0, 0, NULL, position_op, 0},
    {"place", 1, 1, false, 0, 0, NULL, place_op, 0},
    {"index", 1, 1, false, 1, 1, NULL, index_op, 0},
    {"spread", 1, ANY, true, 1, 1, NULL, spread_op, 0},
    {"random", 1, ANY, true, 1, 1, NULL, random_op, 0},
    {"samples", 0, 0, false, 0, 0, NULL, samples_op, 0},
    {"uniform", 1, ANY, true, 0, 0, NULL, noise_op, ZG_UNIFORM},
    {"normal", 1, ANY, true, 0, 0, NULL, noise_op, ZG_NORMAL},
    {"size", 1, 1, false, 0, 0, NULL, size_op, 0},
    {"rename", 2, 2, false, 1, 1, NULL, rename_op, 0},
    {"slice", 2, 2, false, 1, 1, "start", slice_op, 0},
    {"shift", 1, 1, false, 1, 1, "by", shift_op, 0},
    {"concat", 3, ZG_MAX_AXARG, false, 2, ANY, NULL, concat_op, 0},
    {"merge", 3, ZG_MAX_AXARG, false, 1, 1, NULL, merge_op, ZG_OP_MERGE},
    {"part", 3, ZG_MAX_AXARG, false, 1, 1, NULL, merge_op, ZG_OP_PART},
    {"sum", 1, ANY, true, 1, 1, NULL, reduce, ZG_OP_SUM},
    {"mean", 1, ANY, true, 1, 1, NULL, mean_op, ZG_OP_SUM},
    {"peak", 1, ANY, true, 1, 1, NULL, reduce, ZG_OP_PEAK},
    {"dot", 1, ANY, false, 2, 2, NULL, dot_op, 0},
    {"conv", 2, ZG_MAX_AXARG, false, 2, 2, "stride,pad,dilate", conv_op, ZG_OP_CONV},
    {"conv_transpose", 2, ZG_MAX_AXARG, false, 2, 2, "stride,pad,dilate", conv_op, ZG_OP_CONV_TRANSPOSE},
    {"cumsum", 1, 1, false, 1, 1, "order", cumsum_op, 0},
    {"scan", 1, 1, false, 2, 2, "order", scan_op, 0},
    {"linear_attend", 3, 3, false, 3, 3, "decay,feed,keys,values", linear_attend_op, 0},
    {"softmax", 1, ANY, false, 1, 1, NULL, softmax_op, 0},
    {"lse", 1, 1, false, 1, 1, NULL, lse_op, 0},
    {"normalize", 1, ANY, false, 1, 1, "mode,eps", normalize_op, 0},
    {"rope", 2, 2, false, 1, 1, "base,rule,factor,context,low,high,attention,features,pairs,at,speeds",
     rope_op, 0},
    {"attend", 2, 3, false, 3, 3, "mask,prefix,window,cap,scale,bias,same,same_keys,sinks", attend_op, 0},
    {"lookup", 0, 0, false, 2, 2, NULL, lookup_op, 0},
    {"xent", 1, 1, false, 2, 2, NULL, xent_op, 0},
    {"onehot", 1, 1, false, 1, 1, NULL, onehot_op, 0},
    {"topk", 2, 2, false, 1, 1, "by,groups,take", topk_op, ZG_OP_TOPK},
    {"dispatch", 2, 2, false, 2, 2, NULL, dispatch_op, 0},
    {"combine", 3, 3, false, 3, 3, NULL, combine_op, 0},
};
enum { NBUILTINS = sizeof builtins / sizeof *builtins };

/* Elementwise functions are those of graph/ops.def; what else num.c has is of static numbers only. */
static bool find_builtin(const char *name, Builtin *out) {
  for (int i = 0; i < NBUILTINS; i++) {
    *out = builtins[i];
    if (!strcmp(name, out->name)) return true;
  }
  for (uint16_t op = 0; op < ZG_OP_COUNT; op++) {
    const ZgOpInfo *o = &zg_op_info[op];
    *out = (Builtin){.name = o->text, .min_in = o->min_in, .max_in = o->max_in, .op = op};
    out->make = o->min_in == 1 ? unary : binary;
    if (o->function && !strcmp(name, o->text)) return true;
  }
  int args = num_function_args(name);
  *out = (Builtin){.name = name, .min_in = (uint8_t)args, .max_in = (uint8_t)args, .make = static_only};
  return args > 0;
}

bool is_builtin(const char *name) {
  Builtin b;
  return find_builtin(name, &b);
}

uint32_t builtin_results(const char *name) {
  Builtin b;
  uint32_t n = find_builtin(name, &b) ? zg_op_info[b.op].nout : 1;
  return n > 1 ? n : 1;
}

uint32_t builtin_names(const char **out, uint32_t max) {
  uint32_t n = 0;
  for (uint16_t op = 0; op < ZG_OP_COUNT && n < max; op++)
    if (zg_op_info[op].function) out[n++] = zg_op_info[op].text;
  for (int i = 0; i < NBUILTINS && n < max; i++) out[n++] = builtins[i].name;
  const char *statics[NUM_MAX_FUNCTIONS];
  uint32_t nstatics = num_function_names(statics);
  for (uint32_t i = 0; i < nstatics && n < max; i++) {
    Builtin b;
    if (find_builtin(statics[i], &b) && b.make == static_only) out[n++] = statics[i];
  }
  return n;
}

/* ---- the call ------------------------------------------------------------------------------------------ */
static const char *range_text(ZbArena *a, int lo, int hi, const char *what) {
  if (lo == hi) return zb_printf(a, "%d %s%s", lo, what, lo == 1 ? "" : "s");
  return zb_printf(a, "%d to %d %ss", lo, hi, what);
}

static bool resolve_axes(Call *c) {
  Elab *e = c->e;
  const Builtin *o = c->op;
  const ZlNames *names = &c->x->call.axes;
  if (c->x->call.all_axes && o->rows) {
    if (!e->frame->has_row) {
      ZlDiag *d = complain(e, ZL_Z0205, c->x->call.ax_span, "`..` stands for nothing here");
      zl_note(d, "it is the axes that the block's signature writes as `..`");
      return false;
    }
    c->nax = e->frame->nrow;
    memcpy(c->ax, e->frame->row, sizeof e->frame->row);
  }
  bool row = c->x->call.all_axes && o->rows;
  if (row ? c->nax + (int)names->n > ZG_MAX_AXARG
          : c->x->call.all_axes || names->n < o->min_ax || names->n > o->max_ax) {
    ZlSpan at = c->x->call.ax_span.file >= 0 ? c->x->call.ax_span : c->x->call.path.span;
    const char *found = c->x->call.all_axes ? "`..`" : zb_printf(e->arena, "%u", names->n);
    ZlDiag *d = complain(e, ZL_Z0205, at, "`%s` takes %s, found %s", o->name,
                         range_text(e->arena, o->min_ax, o->max_ax, "axis name"), found);
    if (!c->x->call.all_axes && !names->n && o->min_ax == 1)
      zl_help(d, "axes stand in brackets: `%s[a](%s)`", o->name, o->min_in ? "..." : "");
    return false;
  }
  bool ok = true;
  int first = c->nax; /* that is named */
  for (uint32_t i = 0; i < names->n; i++) ok = axis_resolve(e, names->at[i], &c->ax[c->nax++]) && ok;
  bool twice = o->make == concat_op || o->make == conv_op; /* which say themselves what may be the same */
  for (int i = first ? first : 1; ok && i < c->nax && !twice; i++)
    for (int k = 0; k < i; k++) {
      ZlName again = names->at[i - first];
      if (c->ax[k] != c->ax[i]) continue;
      complain(e, ZL_Z0208, again.span, "`%s` names the axis `%s` twice", o->name, again.s);
      return false;
    }
  return ok;
}

static bool eval_args(Call *c) {
  bool ok = true;
  int found = 0;
  for (uint32_t i = 0; i < c->x->call.nargs; i++) {
    const ZlArg *a = &c->x->call.args[i];
    if (a->name.s) continue;
    Val v = expr_eval(c->e, a->value);
    if (found++ >= ZG_MAX_IN) continue;
    c->span[c->nargs] = a->value->span;
    c->arg[c->nargs++] = v;
    ok = ok && v.kind != VAL_POISON;
  }
  if (found >= c->op->min_in && found <= c->op->max_in) return ok;
  complain(c->e, ZL_Z0205, c->x->call.path.span, "`%s` takes %s, found %d", c->op->name,
           range_text(c->e->arena, c->op->min_in, c->op->max_in, "operand"), found);
  return false;
}

/* sqrt(2 * layers): numbers in, number out. */
static bool fold(Call *c, Val *out) {
  if (num_function_args(c->op->name) != c->nargs) return false;
  Num in[2];
  for (int i = 0; i < c->nargs; i++) {
    if (c->arg[i].kind != VAL_NUM) return false;
    in[i] = c->arg[i].num;
  }
  *out = (Val){.kind = VAL_NUM};
  if (num_call(c->op->name, in, &out->num) || static_assumed(&out->num)) return true;
  complain(c->e, ZL_Z0107, c->x->span, "%s of %s has no value", c->op->name, num_text(c->e->arena, in[0]));
  *out = poison();
  return true;
}

Val builtin_call(Elab *e, const ZlExpr *x, const char *name) {
  Builtin op;
  if (!find_builtin(name, &op)) ZB_BUG("`%s` is not an operation", name);
  Call c = {.e = e, .x = x, .op = &op};
  if (x->call.label.s)
    complain(e, ZL_Z0205, x->call.label.span, "`%s` takes no label: labels name calls of blocks", c.op->name);
  bool ok = resolve_axes(&c);
  ok = known_keywords(&c) && ok;
  ok = eval_args(&c) && ok;
  Val v;
  if (!ok || !apart_allows(&c)) return poison();
  return fold(&c, &v) ? v : c.op->make(&c);
}

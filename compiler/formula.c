/* Initial values by position: formulas of an element's place along the axes of its parameter, as steps on registers. What does
 * not depend on the place is a number, as in all static expressions. */
#include "compiler/elab.h"

#include <string.h>

static bool is_place(const ZlExpr *x) {
  return x->kind == ZL_E_CALL && x->call.path.n == 1 && !strcmp(x->call.path.part[0].s, "place") &&
         x->call.axes.n == 1 && !x->call.nargs && !x->call.label.s;
}

bool formula_is(const ZlExpr *x) {
  switch (x->kind) {
  case ZL_E_NEG:
  case ZL_E_NOT: return formula_is(x->bin.a);
  case ZL_E_BIN: return formula_is(x->bin.a) || formula_is(x->bin.b);
  case ZL_E_CALL: break;
  default: return false;
  }
  bool any = is_place(x);
  for (uint32_t i = 0; i < x->call.nargs && !any; i++) any = formula_is(x->call.args[i].value);
  return any;
}

/* A part of a formula: a number, or a register. */
typedef struct {
  bool known;
  Num num;
  uint16_t reg;
} Part;
typedef struct {
  Elab *e;
  const ZlParamDef *def;
  ZgUpdate *out;
  ZlSpan span; /* of the formula */
} Formula;

static bool step(Formula *f, ZgUpdateStep s, Part *out) {
  ZgUpdate *u = f->out;
  if (u->n == ZG_MAX_FORMULA) {
    complain(f->e, ZL_Z0111, f->span, "an initial value by position has at most %d operations",
             ZG_MAX_FORMULA);
    return false;
  }
  *out = (Part){.reg = (uint16_t)(f->def->axes.n + 1 + u->n)};
  u->steps[u->n++] = s;
  return true;
}

static bool in_register(Formula *f, Part *p) {
  if (!p->known) return true;
  return step(f, (ZgUpdateStep){.op = ZG_OP_FILL, .num = p->num.v}, p);
}

static bool apply(Formula *f, ZgOp op, Part a, Part b, Part *out) {
  bool two = zg_op_info[op].max_in > 1;
  return in_register(f, &a) && (!two || in_register(f, &b)) &&
         step(f, (ZgUpdateStep){.op = op, .a = a.reg, .b = two ? b.reg : 0}, out);
}

static const Part zero = {.known = true, .num = {.exact = true, .n = 0, .d = 1, .v = 0}};

/* 1 where it is 0, and 0 elsewhere. */
static bool negate(Formula *f, Part a, Part *out) { return apply(f, ZG_OP_EQUAL, a, zero, out); }
static bool truth(Formula *f, Part a, Part *out) { return negate(f, a, out) && negate(f, *out, out); }

static bool binary(Formula *f, const ZlExpr *x, Part a, Part b, Part *out) {
  switch (x->bin.op) {
  case '+': return apply(f, ZG_OP_ADD, a, b, out);
  case '-': return apply(f, ZG_OP_SUB, a, b, out);
  case '*': return apply(f, ZG_OP_MUL, a, b, out);
  case '/': return apply(f, ZG_OP_DIV, a, b, out);
  case ZL_LESS: return apply(f, ZG_OP_LESS, a, b, out);
  case ZL_MORE: return apply(f, ZG_OP_LESS, b, a, out);
  case ZL_AT_MOST: return apply(f, ZG_OP_LESS, b, a, out) && negate(f, *out, out);
  case ZL_AT_LEAST: return apply(f, ZG_OP_LESS, a, b, out) && negate(f, *out, out);
  case ZL_EQUALS: return apply(f, ZG_OP_EQUAL, a, b, out);
  case ZL_DIFFERS: return apply(f, ZG_OP_EQUAL, a, b, out) && negate(f, *out, out);
  case ZL_AND: return truth(f, a, &a) && truth(f, b, &b) && apply(f, ZG_OP_MUL, a, b, out);
  default: return truth(f, a, &a) && truth(f, b, &b) && apply(f, ZG_OP_MAX, a, b, out);
  }
}

static bool make(Formula *f, const ZlExpr *x, Part *out);

/* The register of a place: of one of the parameter's own axes. */
static bool place(Formula *f, const ZlExpr *x, Part *out) {
  uint16_t axis, own;
  if (!axis_resolve(f->e, x->call.axes.at[0], &axis)) return false;
  for (uint32_t i = 0; i < f->def->axes.n; i++)
    if (axis_find(f->e, f->def->axes.at[i].s, &own) && own == axis) {
      *out = (Part){.reg = (uint16_t)i};
      return true;
    }
  ZlDiag *d = complain(f->e, ZL_Z0107, x->span, "parameter `%s` has no axis `%s`", f->def->name.s,
                       x->call.axes.at[0].s);
  zl_help(d, "an initial value depends on the place along axes of its parameter");
  return false;
}

static bool function(Formula *f, const ZlExpr *x, Part *out) {
  const char *name = x->call.path.part[0].s;
  int n = x->call.path.n == 1 ? num_function_args(name) : -1;
  Part arg[2] = {{0}};
  Num none;
  if (n < 0 || x->call.axes.n || x->call.all_axes || x->call.label.s || (int)x->call.nargs != n)
    return static_initial(f->e, x, &none) && false; /* says what is wrong with it */
  for (int i = 0; i < n; i++)
    if (!make(f, x->call.args[i].value, &arg[i])) return false;
  if (strcmp(name, "ceil")) return apply(f, num_function_op(name), arg[0], arg[1], out);
  return apply(f, ZG_OP_NEG, arg[0], zero, out) && apply(f, ZG_OP_FLOOR, *out, zero, out) &&
         apply(f, ZG_OP_NEG, *out, zero, out);
}

/* What is another number in each iteration of the repeat: that of the iteration, or made of it. */
static bool varying(Formula *f, const ZlExpr *x, Part *out, bool *is) {
  Bind *b = x->kind == ZL_E_NAME ? name_find(f->e, x->name.s) : NULL;
  *is = b && b->val.kind == VAL_NUM && b->val.num.varies;
  if (!*is) return true;
  *out = (Part){.reg = (uint16_t)f->def->axes.n};
  if (!b->of) return true;
  Frame *here = f->e->frame;
  f->e->frame = b->in;
  bool ok = make(f, b->of, out);
  f->e->frame = here;
  return ok;
}

/* Returns whether a part is the same for all elements and in all iterations. */
static bool is_number(Elab *e, const ZlExpr *x) {
  Bind *b = x->kind == ZL_E_NAME ? name_find(e, x->name.s) : NULL;
  switch (x->kind) {
  case ZL_E_NAME: return !(b && b->val.kind == VAL_NUM && b->val.num.varies);
  case ZL_E_NEG:
  case ZL_E_NOT: return is_number(e, x->bin.a);
  case ZL_E_BIN: return is_number(e, x->bin.a) && is_number(e, x->bin.b);
  case ZL_E_CALL: break;
  default: return true;
  }
  bool all = !is_place(x);
  for (uint32_t i = 0; i < x->call.nargs && all; i++) all = is_number(e, x->call.args[i].value);
  return all;
}

static bool make(Formula *f, const ZlExpr *x, Part *out) {
  Part a, b;
  bool varies;
  if (!elab_spend(f->e, ELAB_WORK, 1, x->span)) return false;
  if (is_number(f->e, x)) {
    *out = (Part){.known = true};
    return static_initial(f->e, x, &out->num) && static_fits(f->e, x->span, out->num);
  }
  if (!varying(f, x, out, &varies)) return false;
  if (varies) return true;
  if (is_place(x)) return place(f, x, out);
  if (x->kind == ZL_E_CALL) return function(f, x, out);
  if (!make(f, x->bin.a, &a)) return false;
  if (x->kind == ZL_E_NEG) return apply(f, ZG_OP_NEG, a, zero, out);
  if (x->kind == ZL_E_NOT) return negate(f, a, out);
  return make(f, x->bin.b, &b) && binary(f, x, a, b, out);
}

const ZgUpdate *formula_make(Elab *e, const ZlParamDef *def, const ZlExpr *x) {
  Formula f = {e, def, ZB_NEW(e->g->arena, ZgUpdate), x->span};
  f.out->steps = ZB_NEWN(e->g->arena, ZgUpdateStep, ZG_MAX_FORMULA);
  Part last;
  if (!make(&f, x, &last)) return NULL;
  if (f.out->n) return f.out;
  Part is; /* a place alone is a step, too */
  return apply(&f, ZG_OP_ADD, last, zero, &is) ? f.out : NULL;
}

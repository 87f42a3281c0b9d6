/* Statements of a template are executed. */
#include "runtime/text/template/inside.h"

/* ---- what a run may use ---------------------------------------------------------------------- */
ZtValue zt_wrong(ZtRun *r, const char *fmt, ...) {
  char text[768];
  va_list ap;
  if (r->failed) return zt_undefined(NULL);
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  r->failed = true;
  zb_fail(r->err, NULL, "%s:%u: %s", zb_show(r->t->name), r->line, text);
  return zt_undefined(NULL);
}

bool zt_step(ZtRun *r, size_t bytes) {
  if (r->failed) return false;
  r->steps += 1 + bytes / 64;
  if (r->steps <= ZT_TEMPLATE_STEPS) return true;
  zt_wrong(r, "it takes more than %d steps", ZT_TEMPLATE_STEPS);
  return false;
}

bool zt_deeper(ZtRun *r) {
  if (r->failed) return false;
  if (r->depth < ZT_TEMPLATE_DEPTH) {
    r->depth++;
    return true;
  }
  zt_wrong(r, "more than %d levels in each other", ZT_TEMPLATE_DEPTH);
  return false;
}

void *zt_take(ZtRun *r, size_t n, size_t size) {
  uint64_t bytes;
  if (r->failed) return NULL;
  if (!zb_mul_u64(n, size, &bytes) || bytes > ZT_TEMPLATE_BYTES ||
      (r->bytes += bytes + 16) > ZT_TEMPLATE_BYTES) {
    zt_wrong(r, "it takes more than %d bytes of memory", ZT_TEMPLATE_BYTES);
    return NULL;
  }
  return zb_alloc(r->a, bytes ? bytes : 1);
}

/* ---- variables ------------------------------------------------------------------------------- */
void zt_assign(ZtRun *r, uint32_t name, ZtValue v) {
  if (r->failed) return;
  for (ZtVar *x = r->frame->var; x; x = x->next)
    if (x->name == name) {
      x->value = v;
      return;
    }
  ZtVar *x = zt_take(r, 1, sizeof *x);
  if (!x) return;
  *x = (ZtVar){name, v, r->frame->var};
  r->frame->var = x;
}

bool zt_lookup(const ZtRun *r, uint32_t name, ZtValue *out) {
  for (const ZtFrame *f = r->frame; f; f = f->up)
    for (const ZtVar *x = f->var; x; x = x->next)
      if (x->name == name) {
        *out = x->value;
        return true;
      }
  return false;
}

/* Enters a frame under `up`; NULL: too much memory. */
static ZtFrame *enter(ZtRun *r, ZtFrame *up) {
  ZtFrame *f = zt_take(r, 1, sizeof *f), *was = r->frame;
  if (!f) return NULL;
  f->up = up;
  r->frame = f;
  return was;
}

static uint32_t known(const ZtRun *r, const char *name) { return zb_names_find(&r->t->names, name); }

/* Assigns what templates may use without having said it, where this one does. */
static void provide(ZtRun *r, const char *name, ZtValue v) {
  uint32_t n = known(r, name);
  if (n != ZB_NO_NAME) zt_assign(r, n, v);
}

static void assign_to(ZtRun *r, const ZtNode *target, ZtValue v);

static void assign_attribute(ZtRun *r, const ZtNode *target, ZtValue v) {
  ZtValue of = zt_eval(r, target->a);
  if (r->failed) return;
  if (of.kind != ZT_NAMESPACE) {
    zt_wrong(r, "an attribute of %s is set; only namespaces change", zt_kind(of));
    return;
  }
  zt_dict_put(r, of.d, target->value, v);
}

static void assign_each(ZtRun *r, const ZtNode *target, ZtValue v) {
  ZtList l;
  if (!zt_items(r, v, &l)) return;
  if (l.n != target->n) {
    zt_wrong(r, "%zu values for %u names", l.n, target->n);
    return;
  }
  for (uint32_t i = 0; i < target->n; i++) assign_to(r, target->list[i], l.item[i]);
}

static void assign_to(ZtRun *r, const ZtNode *target, ZtValue v) {
  if (r->failed) return;
  if (target->kind == ZT_NAME) zt_assign(r, target->name, v);
  else if (target->kind == ZT_ATTRIBUTE) assign_attribute(r, target, v);
  else assign_each(r, target, v);
}

/* ---- statements ------------------------------------------------------------------------------ */
typedef enum { ON, BREAK, CONTINUE } Flow;
static Flow execute(ZtRun *r, const ZtNode *x);

/* Executes a block whose text is caught. */
static ZtValue catch (ZtRun *r, const ZtNode *block) {
  ZtMade m = {0}, *was = r->out;
  r->out = &m;
  execute(r, block);
  r->out = was;
  return zt_made(r, &m);
}

/* The same, in a frame of its own. */
static ZtValue catch_apart(ZtRun *r, const ZtNode *block) {
  ZtFrame *was = enter(r, r->frame);
  if (!was) return zt_undefined(NULL);
  ZtValue v = catch (r, block);
  r->frame = was;
  return v;
}

static void write_marked(ZtRun *r, ZtValue v) {
  size_t from = r->out->n;
  zt_put_str(r, r->out, v);
  if (!r->mark || r->failed || r->out->n == from) return;
  if (!r->out->mark && !(r->out->mark = zt_take(r, r->out->cap, 1))) return;
  for (size_t i = from; i < r->out->n; i++) r->out->mark[i] |= r->mark;
}

static Flow execute_if(ZtRun *r, const ZtNode *x) {
  for (uint32_t i = 0; i + 1 < x->n && !r->failed; i += 2)
    if (zt_truth(zt_eval(r, x->list[i]))) return r->failed ? ON : execute(r, x->list[i + 1]);
  return x->n % 2 && !r->failed ? execute(r, x->list[x->n - 1]) : ON;
}

/* The items for which the condition holds. */
static void pick(ZtRun *r, const ZtNode *x, ZtList *l) {
  ZtValue *item = zt_take(r, l->n, sizeof *item);
  size_t n = 0;
  for (size_t i = 0; item && i < l->n && !r->failed; i++) {
    ZtFrame *was = enter(r, r->frame);
    if (!was) return;
    assign_to(r, x->list[0], l->item[i]);
    if (zt_truth(zt_eval(r, x->list[4]))) item[n++] = l->item[i];
    r->frame = was;
  }
  *l = (ZtList){item, n};
}

static Flow execute_for(ZtRun *r, const ZtNode *x) {
  ZtList *l = zt_take(r, 1, sizeof *l);
  ZtLoop *loop = zt_take(r, 1, sizeof *loop);
  ZtValue in = zt_eval(r, x->list[1]);
  if (!l || !loop || !zt_items(r, in, l)) return ON;
  if (x->list[4]) pick(r, x, l);
  uint32_t name = known(r, "loop");
  *loop = (ZtLoop){.list = l, .changed = {.kind = ZT_ABSENT}};
  for (size_t i = 0; i < l->n && zt_step(r, 0); i++) {
    ZtFrame *was = enter(r, r->frame);
    if (!was) return ON;
    loop->at = i;
    if (name != ZB_NO_NAME) zt_assign(r, name, (ZtValue){.kind = ZT_LOOP, .loop = loop});
    assign_to(r, x->list[0], l->item[i]);
    Flow flow = execute(r, x->list[2]);
    r->frame = was;
    if (flow == BREAK) break;
  }
  if (l->n || !x->list[3] || r->failed) return ON;
  ZtFrame *was = enter(r, r->frame);
  if (!was) return ON;
  Flow flow = execute(r, x->list[3]);
  r->frame = was;
  return flow;
}

static void execute_catch(ZtRun *r, const ZtNode *x) {
  ZtValue v = catch_apart(r, x->b), was = r->caught;
  r->caught = v;
  if (x->c && !r->failed) v = zt_eval(r, x->c);
  r->caught = was;
  assign_to(r, x->a, v);
}

static void execute_filter(ZtRun *r, const ZtNode *x) {
  ZtValue v = catch_apart(r, x->b), was = r->caught;
  r->caught = v;
  if (!r->failed) write_marked(r, zt_eval(r, x->a));
  r->caught = was;
}

static ZtValue macro_of(ZtRun *r, const ZtNode *x) {
  ZtMacro *m = zt_take(r, 1, sizeof *m);
  if (!m) return zt_undefined(NULL);
  *m = (ZtMacro){x, r->frame};
  return (ZtValue){.kind = ZT_MACRO, .macro = m};
}

static void execute_call(ZtRun *r, const ZtNode *x) {
  ZtValue f = zt_eval(r, x->a->a);
  ZtGiven given = zt_eval_given(r, x->a);
  if (f.kind != ZT_MACRO && !r->failed) zt_wrong(r, "{%% call %%} of %s; expected a macro", zt_kind(f));
  write_marked(r, zt_call(r, f, &given, macro_of(r, x->b)));
}

static Flow execute_with(ZtRun *r, const ZtNode *x) {
  ZtValue *v = zt_take(r, x->n / 2, sizeof *v);
  for (uint32_t i = 0; v && i < x->n / 2; i++)
    v[i] = zt_eval(r, x->list[2 * i + 1]); /* in the frame around */
  ZtFrame *was = v ? enter(r, r->frame) : NULL;
  if (!was) return ON;
  for (uint32_t i = 0; i < x->n / 2; i++) assign_to(r, x->list[2 * i], v[i]);
  Flow flow = execute(r, x->a);
  r->frame = was;
  return flow;
}

static void execute_generation(ZtRun *r, const ZtNode *x) {
  uint8_t was = r->mark;
  ZtFrame *frame = enter(r, r->frame);
  if (!frame) return;
  r->mark = ZT_GENERATED;
  execute(r, x->a);
  r->mark = was;
  r->frame = frame;
}

static Flow block(ZtRun *r, const ZtNode *x) {
  for (uint32_t i = 0; i < x->n && !r->failed; i++) {
    Flow flow = execute(r, x->list[i]);
    if (flow != ON) return flow;
  }
  return ON;
}

static Flow any(ZtRun *r, const ZtNode *x) {
  switch (x->kind) {
  case ZT_DO_BLOCK: return block(r, x);
  case ZT_DO_TEXT: write_marked(r, x->value); return ON;
  case ZT_DO_PRINT: write_marked(r, zt_eval(r, x->a)); return ON;
  case ZT_DO_IF: return execute_if(r, x);
  case ZT_DO_FOR: return execute_for(r, x);
  case ZT_DO_SET: assign_to(r, x->a, zt_eval(r, x->b)); return ON;
  case ZT_DO_CATCH: execute_catch(r, x); return ON;
  case ZT_DO_MACRO: zt_assign(r, x->name, macro_of(r, x)); return ON;
  case ZT_DO_CALL: execute_call(r, x); return ON;
  case ZT_DO_FILTER: execute_filter(r, x); return ON;
  case ZT_DO_WITH: return execute_with(r, x);
  case ZT_DO_GENERATION: execute_generation(r, x); return ON;
  case ZT_DO_BREAK: return BREAK;
  case ZT_DO_CONTINUE: return CONTINUE;
  default: ZB_BUG("a statement of kind %d", x->kind);
  }
}

static Flow execute(ZtRun *r, const ZtNode *x) {
  if (!zt_step(r, 0) || !zt_deeper(r)) return ON;
  r->line = x->line;
  Flow flow = any(r, x);
  r->depth--;
  return flow;
}

void zt_execute(ZtRun *r) { execute(r, r->t->root); }

/* ---- macros ---------------------------------------------------------------------------------- */
/* The parameter that an argument is for; ZB_NO_NAME: none. */
static uint32_t parameter(const ZtNode *macro, const ZtGiven *given, uint32_t i) {
  if (given->names[i] == ZB_NO_NAME) return i < macro->n ? i : ZB_NO_NAME;
  for (uint32_t k = 0; k < macro->n; k++)
    if (macro->names[k] == given->names[i]) return k;
  return ZB_NO_NAME;
}

/* Assigns arguments to parameters, in the macro's own frame. */
static void bind(ZtRun *r, const ZtNode *macro, const ZtGiven *given) {
  bool has[ZT_ARGUMENTS] = {false};
  uint32_t varargs = known(r, "varargs"), nrest = 0;
  ZtValue *rest = zt_take(r, given->n, sizeof *rest);
  for (uint32_t i = 0; rest && i < given->n && !r->failed; i++) {
    uint32_t k = parameter(macro, given, i);
    if (k == ZB_NO_NAME && given->names[i] == ZB_NO_NAME && varargs != ZB_NO_NAME)
      rest[nrest++] = given->v[i];
    else if (k == ZB_NO_NAME) zt_wrong(r, "a macro is given an argument that it does not have");
    else if (has[k]) zt_wrong(r, "a macro is given an argument twice");
    else {
      has[k] = true;
      zt_assign(r, macro->names[k], given->v[i]);
    }
  }
  if (varargs != ZB_NO_NAME) zt_assign(r, varargs, zt_list(r, ZT_TUPLE, rest, nrest));
  for (uint32_t k = 0; k < macro->n && !r->failed; k++) {
    if (has[k]) continue;
    ZtValue v = zt_undefined(r->t->names.name[macro->names[k]]);
    zt_assign(r, macro->names[k], macro->list[k] ? zt_eval(r, macro->list[k]) : v);
  }
}

ZtValue zt_call_macro(ZtRun *r, const ZtMacro *m, const ZtGiven *given, ZtValue caller) {
  if (!zt_deeper(r)) return zt_undefined(NULL);
  ZtFrame *was = enter(r, m->frame);
  ZtValue v = zt_undefined(NULL);
  uint8_t mark = r->mark;
  uint32_t line = r->line;
  r->mark = 0; /* who prints what it returns, marks it */
  if (was) {
    bind(r, m->node, given);
    if (caller.kind == ZT_MACRO) provide(r, "caller", caller);
    v = catch (r, m->node->a);
    r->frame = was;
  }
  r->mark = mark;
  if (!r->failed) r->line = line;
  r->depth--;
  return v;
}

#include "tests/unit/plan/random/change.h"

#include "kernels/residue.h"

#include <stdio.h>
#include <string.h>

/* ---- dice ---------------------------------------------------------------------------------------------- */
static uint32_t roll(Change *c, uint32_t n) {
  return n ? (uint32_t)(zb_random_u64(c->seed, 3, c->at++) % n) : 0;
}
static bool often(Change *c) { return roll(c, 8) != 0; }

static void __attribute__((format(printf, 2, 3))) say(Change *c, const char *fmt, ...) {
  va_list ap;
  int n = snprintf(c->what, sizeof c->what, "part %u, %s, node %u, %s: ", c->segment,
                   zp_phase_text[c->l - c->s->list], (uint32_t)(c->n - c->l->nodes),
                   zg_op_info[c->n->call.op].text);
  va_start(ap, fmt);
  vsnprintf(c->what + n, sizeof c->what - (size_t)n, fmt, ap);
  va_end(ap);
}

/* ---- nodes --------------------------------------------------------------------------------------------- */
/* Takes a random node of those that it is about. */
static bool take(Change *c, bool (*is)(const Change *c, const ZpNode *n)) {
  uint32_t found = 0;
  for (int k = 0; k < ZP_PHASES; k++)
    for (uint32_t i = 0; i < c->s->list[k].n; i++) {
      ZpNode *n = &c->s->list[k].nodes[i];
      if (zg_op_info[n->call.op].kind == ZG_SOURCE || !is(c, n) || roll(c, ++found)) continue;
      c->l = &c->s->list[k], c->n = n;
    }
  return found;
}
#define IS(name, what)                                                                                       \
  static bool name(const Change *c, const ZpNode *n) {                                                       \
    (void)c, (void)n;                                                                                        \
    return what;                                                                                             \
  }
IS(any, true)
IS(has_operand, n->call.nin)
IS(has_operands, n->call.nin > 1)
IS(has_result, n->call.nout)
IS(has_results, n->call.nout > 1)
IS(is_call, n->call.nout && !n->dims)
IS(has_opt, is_call(c, n) && (zg_op_info[n->call.op].opt[0] || zg_op_info[n->call.op].opt[1]))
IS(has_num, is_call(c, n) && zg_op_info[n->call.op].num)
IS(has_function, n->call.pointwise && n->call.pointwise->nops)
IS(has_axis, n->call.nax)
IS(has_axes, n->call.nax > 1)
IS(is_attend, zg_is_attend(n->call.op))
IS(is_collective, n->dims)
IS(is_sink, zg_op_info[n->call.op].kind == ZG_SINK)
IS(is_recomputed, n->recomputed && n->call.nin)
IS(is_one_to_one, n->call.nin && n->call.nout == 1 && zg_op_info[n->call.op].kind != ZG_SINK)
IS(is_in_round, n->rounds)
IS(is_begun, n->call.accumulate || n->overwrites)
IS(reads_twice, n->call.nin && n->call.nout)

static ZpValue *value(Change *c, uint32_t v) { return &c->s->values[v]; }
static uint32_t *named(ZpNode *n, int i) { return i < n->call.nin ? &n->in[i] : &n->out[i - n->call.nin]; }

/* Lets the call see the value as it lies. */
static void see(Change *c, ZpNode *n, int i) {
  const ZpValue *v = value(c, *named(n, i));
  ZkView *w = i < n->call.nin ? &n->call.in[i] : &n->call.out[i - n->call.nin];
  int more = v->nmembers > 0;
  int64_t stride = 1;
  *w = (ZkView){.elem = v->elem, .rank = (uint8_t)(v->type.naxes + more)};
  for (int a = v->type.naxes; a-- > 0; stride *= v->size[a]) {
    w->axis[a + more] = v->axis[a];
    w->size[a + more] = v->size[a];
    w->stride[a + more] = stride;
    w->whole[a + more] = c->p->layout.axis_size[v->axis[a]];
  }
  if (!more) return;
  w->axis[0] = (uint16_t)c->p->graph->naxes;
  w->size[0] = w->whole[0] = v->nmembers;
  w->stride[0] = stride;
}

static bool lie_alike(const ZpValue *x, const ZpValue *y) {
  bool same = x->elem == y->elem && x->type.naxes == y->type.naxes && x->nmembers == y->nmembers;
  for (int a = 0; same && a < x->type.naxes; a++) same = x->axis[a] == y->axis[a] && x->size[a] == y->size[a];
  return same;
}
static bool same_kind(const ZpValue *x, const ZpValue *y) {
  return x->elem == y->elem && x->type.naxes == y->type.naxes && zg_type_contains(&x->type, &y->type);
}

/* Returns another value, which lies alike (2), has the same axes (1), or any (0); ZP_NONE: there is none. */
static uint32_t other_value(Change *c, uint32_t v, int how) {
  uint32_t found = 0, take = ZP_NONE;
  for (uint32_t i = 0; i < c->s->nvalues; i++) {
    const ZpValue *x = value(c, i), *y = value(c, v);
    if (i == v || x->at.space == ZP_AT_NOWHERE || (how == 1 && !same_kind(x, y)) ||
        (how == 2 && !lie_alike(x, y)))
      continue;
    if (!roll(c, ++found)) take = i;
  }
  return take;
}

/* Returns whether a softmax may not see what the value is: attend takes it for keys, whose bias adds the same
 * to all scores of a query, or cross-entropy takes it off all logits; perhaps from other ranks, rotated, or
 * under other names. */
static bool cancels(const Change *c, uint32_t v, int deep) {
  for (uint32_t i = 0; i < c->l->n; i++) {
    const ZpNode *n = &c->l->nodes[i];
    uint16_t op = n->call.op;
    bool attends = zg_is_attend(op), xent = op == ZG_OP_XENT_SUMS || op == ZG_OP_XENT_GRAD;
    bool moves = n->dims || zg_op_info[op].kind == ZG_MOVE || op == ZG_OP_ROPE;
    int at = attends ? zg_attend_first(op) + 1 : xent;
    if (at >= n->call.nin || n->in[at] != v) continue;
    if (attends || xent || (moves && deep && cancels(c, n->out[0], deep - 1))) return true;
  }
  return false;
}

static bool put(Change *c, int i, uint32_t v) {
  uint32_t was = *named(c->n, i);
  if (v == ZP_NONE || v == was) return false;
  *named(c->n, i) = v;
  if (often(c)) see(c, c->n, i);
  c->cancels = c->n->call.nout && cancels(c, c->n->out[0], 3);
  say(c, "%s %d is value %u instead of %u", i < c->n->call.nin ? "operand" : "result",
      i < c->n->call.nin ? i : i - c->n->call.nin, v, was);
  return true;
}

/* ---- operands, results --------------------------------------------------------------------------------- */
static bool operand(Change *c, int how) {
  int i = (int)roll(c, c->n->call.nin);
  return put(c, i, other_value(c, c->n->in[i], how));
}
static bool any_operand(Change *c) { return take(c, has_operand) && operand(c, 0); }
static bool operand_of_axes(Change *c) { return take(c, has_operand) && operand(c, 1); }
static bool operand_alike(Change *c) { return take(c, has_operand) && operand(c, 2); }
static bool recomputed_operand(Change *c) { return take(c, is_recomputed) && operand(c, 2); }

/* An operand that another node of the list reads at the same place of the same operation. */
static bool neighbours_operand(Change *c) {
  if (!take(c, has_operand)) return false;
  const ZpNode *other = NULL;
  uint32_t found = 0;
  for (uint32_t i = 0; i < c->l->n; i++) {
    const ZpNode *n = &c->l->nodes[i];
    if (n != c->n && n->call.op == c->n->call.op && n->call.nin == c->n->call.nin && !roll(c, ++found))
      other = n;
  }
  int i = (int)roll(c, c->n->call.nin);
  return other && put(c, i, other->in[i]);
}

static bool exchange(Change *c, bool in) {
  int n = in ? c->n->call.nin : c->n->call.nout, base = in ? 0 : c->n->call.nin;
  int i = base + (int)roll(c, (uint32_t)n), k = base + (int)roll(c, (uint32_t)n);
  uint32_t *x = named(c->n, i), *y = named(c->n, k), was = *x;
  if (*x == *y) return false;
  *x = *y, *y = was;
  if (often(c)) see(c, c->n, i), see(c, c->n, k);
  say(c, "%s %d and %d exchanged", in ? "operands" : "results", i - base, k - base);
  return true;
}
static bool operands_exchanged(Change *c) { return take(c, has_operands) && exchange(c, true); }
static bool results_exchanged(Change *c) { return take(c, has_results) && exchange(c, false); }

static bool result(Change *c) {
  if (!take(c, has_result)) return false;
  int i = (int)roll(c, c->n->call.nout);
  return put(c, c->n->call.nin + i, other_value(c, c->n->out[i], roll(c, 2) ? 2 : (int)roll(c, 2)));
}

/* ---- nodes in their list ------------------------------------------------------------------------------- */
/* A list of the same nodes, but one fewer or more at `at`; what is waited for stays the same. */
static void shift(Change *c, uint32_t at, int by) {
  ZpNode *nodes = ZB_NEWN(c->a, ZpNode, c->l->n + 1);
  uint32_t gone = by < 0;
  memcpy(nodes, c->l->nodes, at * sizeof *nodes);
  memcpy(nodes + at + (by > 0), c->l->nodes + at + gone, (c->l->n - at - gone) * sizeof *nodes);
  if (by > 0) nodes[at] = nodes[at + 1];
  c->l->n += (uint32_t)by;
  c->l->nodes = nodes;
  for (uint32_t i = 0; i < c->l->n; i++)
    if (nodes[i].until > at) nodes[i].until += (uint32_t)by;
}

static bool dropped(Change *c) {
  if (!take(c, any)) return false;
  say(c, "dropped");
  shift(c, (uint32_t)(c->n - c->l->nodes), -1);
  return true;
}

static bool twice(Change *c) {
  if (!take(c, any)) return false;
  uint32_t at = (uint32_t)(c->n - c->l->nodes);
  say(c, "twice");
  shift(c, at, 1);
  if (c->l->nodes[at].until) c->l->nodes[at].until = at + 1;
  return true;
}

static bool moved(Change *c, uint32_t from, uint32_t to) {
  if (from == to || to >= c->l->n) return false;
  ZpNode n = c->l->nodes[from], *at = c->l->nodes;
  say(c, "moved to %u", to);
  if (from < to) memmove(&at[from], &at[from + 1], (to - from) * sizeof n);
  else memmove(&at[to + 1], &at[to], (from - to) * sizeof n);
  at[to] = n;
  for (uint32_t i = 0; i < c->l->n; i++) /* each is awaited as far behind as may be */
    if (at[i].until && at[i].until <= i) at[i].until = i + 1;
  if (at[to].until) at[to].until = to + 1;
  return true;
}
static bool neighbours_exchanged(Change *c) {
  uint32_t at;
  return take(c, any) && (at = (uint32_t)(c->n - c->l->nodes), moved(c, at, at + 1));
}
static bool moved_far(Change *c) {
  return take(c, any) && moved(c, (uint32_t)(c->n - c->l->nodes), roll(c, c->l->n));
}

/* A node is left out, and whoever reads its result reads its operand. states: which is then said to be what
 * the result was, as by a pass that takes it for that. */
static bool left_out(Change *c, bool states) {
  uint32_t from = c->n->in[roll(c, c->n->call.nin)], to = c->n->out[0];
  if (!lie_alike(value(c, from), value(c, to))) return false;
  say(c, "left out; in the place of value %u its operand, value %u%s", to, from,
      states ? ", said to be it" : "");
  if (states) memcpy(value(c, from)->state, value(c, to)->state, sizeof value(c, to)->state);
  uint32_t at = (uint32_t)(c->n - c->l->nodes);
  shift(c, at, -1);
  for (int k = 0; k < ZP_PHASES; k++)
    for (uint32_t i = 0; i < c->s->list[k].n; i++) {
      ZpNode *n = &c->s->list[k].nodes[i];
      for (int j = 0; j < n->call.nin; j++)
        if (n->in[j] == to) n->in[j] = from, see(c, n, j);
    }
  c->cancels = cancels(c, from, 3);
  return true;
}
static bool call_left_out(Change *c) { return take(c, is_one_to_one) && left_out(c, roll(c, 2)); }
static bool collective_left_out(Change *c) {
  return take(c, is_collective) && c->n->call.nin == 1 && c->n->call.nout && left_out(c, often(c));
}

/* One of several that read a value reads another alike: a copy that was recomputed is another's. */
static bool result_read_by_one(Change *c) {
  if (!take(c, reads_twice)) return false;
  const ZpNode *maker = c->n;
  uint32_t v = maker->out[roll(c, maker->call.nout)], with = other_value(c, v, 2), found = 0;
  int operand = 0;
  for (int k = 0; k < ZP_PHASES; k++)
    for (uint32_t i = 0; i < c->s->list[k].n; i++) {
      ZpNode *n = &c->s->list[k].nodes[i];
      for (int j = 0; j < n->call.nin; j++)
        if (n->in[j] == v && !roll(c, ++found)) c->l = &c->s->list[k], c->n = n, operand = j;
    }
  return found && put(c, operand, with);
}

/* ---- calls --------------------------------------------------------------------------------------------- */
static bool is_called(uint16_t op) {
  ZgOpKind kind = zg_op_info[op].kind;
  return kind == ZG_MOVE || kind == ZG_COMPUTE || kind == ZG_PLANNED;
}

static bool new_op(Change *c, uint16_t op) {
  if (op == c->n->call.op) return false;
  say(c, "is %s", zg_op_info[op].text);
  c->n->call.op = op;
  return true;
}

/* An operation of as many operands and results. */
static bool op_alike(Change *c) {
  if (!take(c, is_call)) return false;
  uint32_t found = 0;
  uint16_t op = c->n->call.op;
  for (uint16_t k = 0; k < ZG_OP_COUNT; k++)
    if (is_called(k) && k != c->n->call.op && zg_op_info[k].min_in <= c->n->call.nin &&
        zg_op_info[k].max_in >= c->n->call.nin && !roll(c, ++found))
      op = k;
  return new_op(c, op);
}
static bool op_pair(Change *c) {
  static const uint16_t pairs[][2] = {
      {ZG_OP_SUM, ZG_OP_PEAK},          {ZG_OP_COPY, ZG_OP_SOFTMAX},
      {ZG_OP_ROPE, ZG_OP_COPY},         {ZG_OP_CUMSUM, ZG_OP_COPY},
      {ZG_OP_SHIFT, ZG_OP_COPY},        {ZG_OP_SOFTMAX, ZG_OP_CUMSUM},
      {ZG_OP_POSITION, ZG_OP_RANDOM},   {ZG_OP_XENT_GRAD, ZG_OP_XENT_SUMS_GRAD},
      {ZG_OP_LOOKUP, ZG_OP_ONEHOT},     {ZG_OP_CONV, ZG_OP_CONV_TRANSPOSE},
      {ZG_OP_NORMALIZE, ZG_OP_SOFTMAX}, {ZG_OP_DOT, ZG_OP_SCAN}};
  if (!take(c, is_call)) return false;
  for (size_t i = 0; i < 2 * sizeof pairs / sizeof *pairs; i++)
    if (pairs[i / 2][i % 2] == c->n->call.op && roll(c, 4)) return new_op(c, pairs[i / 2][1 - i % 2]);
  return false;
}
static bool op_any(Change *c) { return take(c, any) && new_op(c, (uint16_t)roll(c, ZG_OP_COUNT)); }

static bool axis(Change *c) {
  if (!take(c, has_axis)) return false;
  uint32_t k = roll(c, c->n->call.nax), v = *named(c->n, (int)roll(c, c->n->call.nin + c->n->call.nout));
  const ZgType *t = &value(c, v)->type;
  uint16_t was = c->n->call.ax[k];
  uint16_t to = t->naxes && often(c) ? t->axis[roll(c, t->naxes)] : (uint16_t)roll(c, c->p->graph->naxes);
  say(c, "axis %u is %s instead of %s", k, c->p->graph->axes[to].name, c->p->graph->axes[was].name);
  c->n->call.ax[k] = to;
  return to != was;
}
static bool axes_exchanged(Change *c) {
  if (!take(c, has_axes)) return false;
  uint32_t i = roll(c, c->n->call.nax), k = roll(c, c->n->call.nax);
  uint16_t was = c->n->call.ax[i];
  if (was == c->n->call.ax[k]) return false;
  c->n->call.ax[i] = c->n->call.ax[k], c->n->call.ax[k] = was;
  say(c, "axes %u and %u exchanged", i, k);
  return true;
}
static bool fewer_axes(Change *c) {
  if (!take(c, has_axis)) return false;
  int to = c->n->call.nax + (roll(c, 3) ? -1 : 1);
  if (to > (int)(sizeof c->n->call.ax / sizeof *c->n->call.ax)) return false;
  say(c, "has %d axes instead of %u", to, c->n->call.nax);
  c->n->call.nax = (uint8_t)to;
  return true;
}

static bool number(Change *c, int64_t *x, const char *what) {
  const int64_t was = *x, to[] = {was + 1, was - 1, 0, 1, 2 * was, -1, 2, 7};
  *x = to[roll(c, 8)];
  say(c, "%s %lld instead of %lld", what, (long long)*x, (long long)was);
  return *x != was;
}
/* Numbers that the operation has by its name; seldom others, which must not matter. */
static bool opt(Change *c) {
  if (!take(c, roll(c, 8) ? has_opt : is_call)) return false;
  const ZgOpInfo *info = &zg_op_info[c->n->call.op];
  uint32_t k = roll(c, 2);
  if (info->opt[1 - k] && !info->opt[k] && roll(c, 8)) k = 1 - k;
  return number(c, &c->n->call.opt[k], k ? "opt[1]" : "opt[0]");
}
/* By much: f32 must see it. */
static bool num(Change *c) {
  if (!take(c, roll(c, 8) ? has_num : is_call)) return false;
  uint32_t k = zg_op_info[c->n->call.op].num1 || !roll(c, 8) ? roll(c, 2) : 0;
  double was = c->n->call.num[k];
  c->n->call.num[k] = roll(c, 2) ? was / 2 : roll(c, 2) ? 2 * was + 1 : -was - 1;
  say(c, "num[%u] %g instead of %g", k, c->n->call.num[k], was);
  return c->n->call.num[k] != was;
}
static bool mask(Change *c) {
  if (!take(c, is_attend)) return false;
  uint32_t k = roll(c, 2);
  return number(c, &c->n->call.opt[k], k ? "window" : "causal");
}

/* ---- pointwise functions ------------------------------------------------------------------------------- */
/* Returns the node's own copy of the function. */
static ZkPointwise *function(Change *c) {
  if (!take(c, has_function)) return NULL;
  ZkPointwise *f = ZB_NEW(c->a, ZkPointwise);
  *f = *c->n->call.pointwise;
  f->ops = ZB_NEWN(c->a, ZkPointwiseOp, f->nops);
  memcpy(f->ops, c->n->call.pointwise->ops, f->nops * sizeof *f->ops);
  c->n->call.pointwise = f;
  return f;
}

static bool pointwise_op(Change *c) {
  ZkPointwise *f = function(c);
  if (!f) return false;
  ZkPointwiseOp *x = &f->ops[roll(c, f->nops)];
  uint16_t was = x->op;
  uint32_t found = 0;
  for (uint16_t k = 0; k < ZG_OP_COUNT; k++) {
    const ZgOpInfo *o = &zg_op_info[k];
    bool alike = o->kind == ZG_EW && o->max_in == zg_op_info[was].max_in && k != ZG_OP_AXSIZE && k != was;
    /* one that is not defined everywhere for a function alone: what is then multiplied by 0 is not a number */
    if (alike && (!o->partial || zg_op_info[was].function) && !roll(c, ++found)) x->op = k;
  }
  say(c, "%s instead of %s", zg_op_info[x->op].text, zg_op_info[was].text);
  return x->op != was;
}

static bool pointwise_argument(Change *c) {
  ZkPointwise *f = function(c);
  if (!f) return false;
  uint32_t k = roll(c, f->nops), registers = (uint32_t)c->n->call.nin + k;
  if (c->n->call.op != ZG_OP_POINTWISE) registers = f->ops[k].a > f->ops[k].b ? f->ops[k].a : f->ops[k].b;
  uint16_t *x = roll(c, 2) ? &f->ops[k].a : roll(c, 4) ? &f->ops[k].b : &f->ops[k].c, was = *x;
  if (!registers) return false;
  *x = (uint16_t)roll(c, registers);
  say(c, "%s (%u) of register %u instead of %u", zg_op_info[f->ops[k].op].text, k, *x, was);
  return *x != was;
}

static bool pointwise_number(Change *c) {
  ZkPointwise *f = function(c);
  if (!f) return false;
  ZkPointwiseOp *x = &f->ops[roll(c, f->nops)];
  float was = x->num;
  if (x->op != ZG_OP_FILL && roll(c, 16)) return false;
  x->num = roll(c, 2) ? was + 1 : -was - 1;
  say(c, "%s %g instead of %g", zg_op_info[x->op].text, (double)x->num, (double)was);
  return true;
}

static bool pointwise_result(Change *c) {
  ZkPointwise *f = function(c);
  if (!f || !f->nout) return false;
  uint32_t k = roll(c, f->nout);
  uint16_t *x = f->prologue && !roll(c, 4) ? &f->operand : &f->out[k], was = *x;
  *x = (uint16_t)roll(c, (uint32_t)was + 1);
  if (!roll(c, 3) && was + 1 < c->n->call.nin + f->nops) *x = (uint16_t)(was + 1);
  say(c, "stores register %u instead of %u", *x, was);
  return *x != was;
}

/* An instruction is left out: whoever reads its register reads its first operand. */
static bool pointwise_dropped(Change *c) {
  ZkPointwise *f = function(c);
  if (!f || c->n->call.op != ZG_OP_POINTWISE) return false;
  uint32_t k = roll(c, f->nops), gone = c->n->call.nin + k;
  if (zg_op_info[f->ops[k].op].max_in == 0) return false;
  uint16_t a = f->ops[k].a;
  say(c, "%s (%u) left out", zg_op_info[f->ops[k].op].text, k);
  for (uint32_t i = k + 1; i < f->nops; i++) {
    if (f->ops[i].a == gone) f->ops[i].a = a;
    if (f->ops[i].b == gone) f->ops[i].b = a;
    if (f->ops[i].c == gone) f->ops[i].c = a;
  }
  for (int i = 0; i < f->nout; i++)
    if (f->out[i] == gone) f->out[i] = a;
  return true;
}

/* ---- collectives --------------------------------------------------------------------------------------- */
static bool collective_op(Change *c) {
  static const uint16_t ops[] = {ZG_OP_ALL_REDUCE,  ZG_OP_REDUCE_SCATTER, ZG_OP_ALL_GATHER, ZG_OP_ALL_TO_ALL,
                                 ZG_OP_LOCAL_SLICE, ZG_OP_LOCAL_PAD,      ZG_OP_SHIFT,      ZG_OP_COPY};
  if (!take(c, is_collective) || !new_op(c, ops[roll(c, 8)])) return false;
  if (c->n->call.op == ZG_OP_COPY) c->n->dims = 0;
  return true;
}
/* ... and its operand is said to be what the other takes: a local slice of a sum that is not complete. */
static bool collective_taken_for(Change *c) {
  if (!take(c, is_collective) || c->n->call.nin != 1) return false;
  static const uint16_t to[][2] = {{ZG_OP_REDUCE_SCATTER, ZG_OP_LOCAL_SLICE},
                                   {ZG_OP_LOCAL_SLICE, ZG_OP_REDUCE_SCATTER}};
  for (int i = 0; i < 2; i++) {
    if (to[i][0] != c->n->call.op) continue;
    ZpState *state = value(c, c->n->in[0])->state;
    for (int d = 0; d < c->p->layout.mesh.ndims; d++)
      if (c->n->dims >> d & 1) state[d] = (ZpState){.kind = i ? 'P' : 'R'};
    return new_op(c, to[i][1]);
  }
  return false;
}
static bool collective_dims(Change *c) {
  if (!take(c, is_collective) || !c->p->layout.mesh.ndims) return false;
  c->n->dims ^= (ZpDims)1 << roll(c, (uint32_t)c->p->layout.mesh.ndims);
  say(c, "over other dims (%x)", (unsigned)c->n->dims);
  return true;
}
static bool collective_axis(Change *c) {
  if (!take(c, is_collective)) return false;
  const ZgType *t = &value(c, c->n->in[0])->type;
  uint16_t *x = roll(c, 3) ? &c->n->axis : &c->n->axis2, was = *x;
  *x = t->naxes && roll(c, 6) ? t->axis[roll(c, t->naxes)] : roll(c, 2) ? c->n->axis2 : ZP_NO_AXIS;
  say(c, "along axis %u instead of %u", *x, was);
  return *x != was;
}
static bool collective_max(Change *c) {
  if (!take(c, is_collective)) return false;
  c->n->call.opt[0] = !c->n->call.opt[0];
  say(c, "maximum: %d", (int)c->n->call.opt[0]);
  if (!roll(c, 2) || !c->n->call.nin) return true;
  for (int d = 0; d < c->p->layout.mesh.ndims; d++) {
    ZpState *state = &value(c, c->n->in[0])->state[d];
    if (state->kind == 'P') state->max = c->n->call.opt[0] != 0;
  }
  return true;
}

/* ---- flags --------------------------------------------------------------------------------------------- */
static bool accumulate(Change *c) {
  if (!take(c, roll(c, 2) ? is_begun : is_call)) return false;
  c->n->call.accumulate = !c->n->call.accumulate;
  if (c->n->overwrites) c->n->overwrites = roll(c, 2);
  say(c, "accumulates: %d", c->n->call.accumulate);
  return true;
}
static bool overwrites(Change *c) {
  if (!take(c, roll(c, 2) ? is_begun : is_call)) return false;
  c->n->overwrites = !c->n->overwrites;
  say(c, "overwrites: %d", c->n->overwrites);
  return true;
}
static bool sink(Change *c) {
  if (!take(c, is_sink)) return false;
  uint32_t was = c->n->sink;
  c->n->sink = roll(c, 2) ? was + 1 : roll(c, 3);
  say(c, "number %u instead of %u", c->n->sink, was);
  return c->n->sink != was;
}
static bool rounds(Change *c) {
  if (!take(c, roll(c, 2) ? is_in_round : any)) return false;
  uint32_t was = c->n->rounds;
  c->n->rounds = roll(c, 3);
  say(c, "rounds %u instead of %u", c->n->rounds, was);
  return c->n->rounds != was;
}

/* ---- values -------------------------------------------------------------------------------------------- */
static ZpValue *a_value(Change *c, uint32_t *v, bool (*is)(const ZpValue *)) {
  if (!take(c, any)) return NULL;
  for (int tries = 0; tries < 40; tries++) {
    *v = roll(c, c->s->nvalues);
    if (c->s->nvalues && is(value(c, *v))) return value(c, *v);
  }
  return NULL;
}
static bool lies(const ZpValue *v) { return v->at.space != ZP_AT_NOWHERE; }
static bool is_input(const ZpValue *v) { return v->at.space == ZP_AT_INPUT; }
static bool is_param(const ZpValue *v) { return v->at.space == ZP_AT_PARAM || v->at.space == ZP_AT_GRAD; }
static bool is_carried(const ZpValue *v) {
  return v->at.space >= ZP_AT_CARRY_IN && v->at.space <= ZP_AT_DCARRY_IN;
}
static bool is_seed(const ZpValue *v) { return v->at.space == ZP_AT_SEED; }
static bool is_group(const ZpValue *v) { return v->nmembers; }

static bool state(Change *c) {
  uint32_t v;
  ZpValue *x = a_value(c, &v, lies);
  if (!x || !c->p->layout.mesh.ndims) return false;
  ZpState *s = &x->state[roll(c, (uint32_t)c->p->layout.mesh.ndims)], was = *s;
  const char kinds[] = "RRPPS";
  s->kind = (uint8_t)kinds[roll(c, 5)];
  if (s->kind == 'S' && x->type.naxes) s->axis = x->type.axis[roll(c, x->type.naxes)];
  if (s->kind == 'P') s->max = !roll(c, 4);
  say(c, "value %u is %c instead of %c", v, s->kind, was.kind);
  return memcmp(s, &was, sizeof was) != 0;
}
static bool states_exchanged(Change *c) {
  uint32_t v, n = (uint32_t)c->p->layout.mesh.ndims;
  ZpValue *x = a_value(c, &v, lies);
  if (!x || n < 2) return false;
  ZpState *s = &x->state[roll(c, n)], *t = &x->state[roll(c, n)], was = *s;
  *s = *t, *t = was;
  say(c, "value %u has states exchanged", v);
  return memcmp(s, t, sizeof was) != 0;
}

static bool as_of(Change *c, bool (*is)(const ZpValue *)) {
  uint32_t v, w;
  ZpValue *x = a_value(c, &v, is), *y = a_value(c, &w, is);
  if (!x || !y || x->at.space != y->at.space || !memcmp(&x->at, &y->at, sizeof x->at)) return false;
  x->at = y->at;
  if (x->param != ZP_NONE) x->param = y->param;
  say(c, "value %u lies where value %u does", v, w);
  return true;
}
static bool place(Change *c) {
  uint32_t v, w;
  ZpValue *x = a_value(c, &v, lies), *y = a_value(c, &w, lies);
  if (!x || !y) return false;
  if (roll(c, 2)) {
    x->at.offset += roll(c, 2) ? 64 : (uint64_t)-64;
    say(c, "value %u lies 64 bytes elsewhere", v);
    return true;
  }
  if (!memcmp(&x->at, &y->at, sizeof x->at)) return false;
  x->at = y->at;
  say(c, "value %u lies where value %u does", v, w);
  return true;
}
static bool place_of_input(Change *c) { return as_of(c, is_input); }
static bool place_of_param(Change *c) { return as_of(c, is_param); }
static bool place_carried(Change *c) { return as_of(c, is_carried); }
static bool seed(Change *c) {
  uint32_t v, k;
  ZpValue *x = a_value(c, &v, is_seed);
  if (!x) return false;
  k = x->at.index;
  x->at.index = roll(c, 3);
  say(c, "value %u is seed %u instead of %u", v, x->at.index, k);
  return x->at.index != k;
}
static bool member(Change *c) {
  uint32_t v;
  ZpValue *x = a_value(c, &v, is_group);
  if (!x) return false;
  uint32_t *m = &x->member[roll(c, x->nmembers)], *k = &x->member[roll(c, x->nmembers)], was = *m;
  if (*m == *k) return false;
  *m = *k;
  if (roll(c, 2)) *k = was;
  say(c, "group %u has other members", v);
  return true;
}

const Kind change_kinds[] = {{"operand: any other value", any_operand, false},
                             {"operand: of the same axes", operand_of_axes, false},
                             {"operand: lies alike", operand_alike, false},
                             {"operand: that of a node like it", neighbours_operand, false},
                             {"operand of what is recomputed", recomputed_operand, false},
                             {"operand of one reader", result_read_by_one, false},
                             {"operands exchanged", operands_exchanged, false},
                             {"result: another value", result, false},
                             {"results exchanged", results_exchanged, false},
                             {"node dropped", dropped, false},
                             {"node twice", twice, false},
                             {"neighbours exchanged", neighbours_exchanged, false},
                             {"node moved", moved_far, false},
                             {"node left out", call_left_out, false},
                             {"op: of its arity", op_alike, true},
                             {"op: sum for peak, ..", op_pair, true},
                             {"op: any", op_any, true},
                             {"axis", axis, false},
                             {"axes exchanged", axes_exchanged, false},
                             {"number of axes", fewer_axes, false},
                             {"attribute opt", opt, true},
                             {"attribute num", num, true},
                             {"causal, window", mask, true},
                             {"pointwise: op", pointwise_op, true},
                             {"pointwise: argument", pointwise_argument, true},
                             {"pointwise: number", pointwise_number, true},
                             {"pointwise: result", pointwise_result, true},
                             {"pointwise: left out", pointwise_dropped, true},
                             {"collective: op", collective_op, false},
                             {"collective: taken for another", collective_taken_for, false},
                             {"collective: dims", collective_dims, false},
                             {"collective: axis", collective_axis, false},
                             {"collective: max", collective_max, true},
                             {"collective left out", collective_left_out, false},
                             {"accumulate", accumulate, false},
                             {"overwrites", overwrites, false},
                             {"sink's number", sink, false},
                             {"rounds", rounds, false},
                             {"state", state, false},
                             {"states exchanged", states_exchanged, false},
                             {"place", place, false},
                             {"place of an input", place_of_input, false},
                             {"place of a parameter", place_of_param, false},
                             {"place of what is carried", place_carried, false},
                             {"seed", seed, false},
                             {"member of a group", member, false}};
const int change_nkinds = sizeof change_kinds / sizeof *change_kinds;

/* ---- a change ------------------------------------------------------------------------------------------ */
void change_end(Change *c) {
  *c->s = c->was;
  zb_arena_free(c->a);
}

bool change_make(Change *c, ZpPlan *p, int kind, uint64_t seed) {
  *c = (Change){.p = p, .a = zb_arena_new(), .seed = seed};
  uint32_t total = 0;
  for (uint32_t i = 0; i < p->graph->nsegments; i++)
    for (int k = 0; k < ZP_PHASES; k++) total += p->programs.segments[i].list[k].n;
  uint32_t at = roll(c, total);
  for (c->segment = 0; c->segment + 1 < p->graph->nsegments; c->segment++) {
    uint32_t n = 0;
    for (int k = 0; k < ZP_PHASES; k++) n += p->programs.segments[c->segment].list[k].n;
    if (at < n) break;
    at -= n;
  }
  c->s = &p->programs.segments[c->segment];
  c->was = *c->s;
  c->s->values =
      memcpy(ZB_NEWN(c->a, ZpValue, c->s->nvalues + 1), c->was.values, c->s->nvalues * sizeof(ZpValue));
  for (int k = 0; k < ZP_PHASES; k++)
    if (c->was.list[k].n)
      c->s->list[k].nodes = memcpy(ZB_NEWN(c->a, ZpNode, c->was.list[k].n + 1), c->was.list[k].nodes,
                                   c->was.list[k].n * sizeof(ZpNode));
  if (change_kinds[kind].make(c)) return true;
  change_end(c);
  return false;
}

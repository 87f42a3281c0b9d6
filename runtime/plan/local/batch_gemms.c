/* Products that have an operand in common become one: q, k and v of one x, gate and up, the gradients of their weights.
 *
 * Such products must agree in everything but which tensors they read and make, and of those each kind must lie in a row,
 * one behind the other without gaps. Then they are one product with an axis more, which numbers them: a *stack*. Weights and
 * gradients lie in a row if they are declared so; the rest is asked of memory.c. So there are two passes:
 *
 * zp_line_up    before anything is placed, moves such products to the first of them, in the order of their parameters. Until
 *               the second pass they are a *run*: nodes that are done as one unit. Whoever makes what they read in order
 *               is told to lay it in a row. The device is shown the call and says whether it wants it.
 * zp_stack      when all is placed, makes one node of every run whose tensors do lie in rows; of the others nothing is left
 *               but the order. The node's values are stacks too: places of others (ZpValue: part).
 *
 * Example: q[b s h] = dot(x, wq), k = dot(x, wk), v = dot(x, wv) become qkv[3 b s h] = dot(x[b s e], w[3 e h]). */
#include "runtime/plan/impl.h"

#include <string.h>

typedef struct {
  const ZpBuild *b;
  ZpSegment *s;
  ZpNode *nodes;
  uint32_t n;
  const bool *later;
  uint32_t *maker; /* value -> node of this list, or ZP_NONE; also for sources */
} Stack;

static const ZpValue *value(const Stack *k, uint32_t v) { return &k->s->values[v]; }

/* ---- the call ---- */
static uint16_t stack_axis(const ZpPlan *p) { return (uint16_t)p->graph->naxes; } /* no model's */

static ZkView stacked_view(const ZpPlan *p, const ZpValue *v, uint32_t n) {
  ZkView one = zp_view(p, v), w = one;
  int64_t count = 1;
  for (int a = 0; a < one.rank; a++) {
    count *= one.size[a];
    w.axis[a + 1] = one.axis[a], w.size[a + 1] = one.size[a];
    w.stride[a + 1] = one.stride[a], w.whole[a + 1] = one.whole[a];
  }
  w.axis[0] = stack_axis(p);
  w.size[0] = w.whole[0] = n;
  w.stride[0] = count;
  w.rank++;
  return w;
}

/* Of products that have input i in common or not; they are alike in all of them. */
static bool common(const ZpNode *run, int i) { return run[0].in[i] == run[1].in[i]; }

ZkCall zp_stacked_call(const ZpPlan *p, const ZpSegment *s, const ZpNode *run, uint32_t n) {
  ZkCall c = run->call;
  for (int i = 0; i < c.nin; i++) {
    const ZpValue *v = &s->values[run->in[i]];
    c.in[i] = common(run, i) ? zp_view(p, v) : stacked_view(p, v, n);
  }
  for (int i = 0; i < c.nout; i++) c.out[i] = stacked_view(p, &s->values[run->out[i]], n);
  return c;
}

/* ---- which go together ---- */
static bool same_chain(const ZkChain *a, const ZkChain *b) {
  if (!a || !b) return !a && !b;
  bool same = a->nops == b->nops && a->nout == b->nout && !memcmp(a->out, b->out, a->nout * sizeof *a->out);
  for (int i = 0; same && i < a->nops; i++) {
    const ZkChainOp *x = &a->ops[i], *y = &b->ops[i];
    same = x->op == y->op && x->a == y->a && x->b == y->b && x->c == y->c && x->elem == y->elem && x->num == y->num;
  }
  return same;
}

/* Whether x and y may come to lie in one row: in one buffer, or where memory.c will put both. */
static bool may_neighbour(const Stack *k, uint32_t x, uint32_t y) {
  const ZpValue *v = value(k, x), *w = value(k, y);
  bool room = v->type.naxes < ZK_MAX_AXES; /* for one axis more */
  bool same = v->at.place == w->at.place && v->at.index == w->at.index && k->later[x] == k->later[y];
  return x != y && room && same && zp_same_layout(v, w);
}

static bool product(const ZpNode *n) { return n->call.op == ZG_OP_DOT && !n->dims && n->call.nin >= 2; }

/* Whether product m is like product i but for one operand, and what comes after it. Of a summed call, in[1] is the one. */
static bool alike(const Stack *k, const ZpNode *i, const ZpNode *m) {
  const ZkCall *a = &i->call, *b = &m->call;
  if (!product(i) || !product(m) || a->nin != b->nin || a->nout != b->nout || a->nax != b->nax) return false;
  if (a->accumulate != b->accumulate || memcmp(a->ax, b->ax, a->nax * sizeof *a->ax)) return false;
  if (!same_chain(a->chain, b->chain)) return false;
  bool first = i->in[0] == m->in[0], second = i->in[1] == m->in[1] && (a->chain || a->nout == 1);
  if (first == second) return false;
  for (int l = 0; l < a->nin; l++)
    if (l != !first && !may_neighbour(k, i->in[l], m->in[l])) return false;
  for (int l = 0; l < a->nout; l++)
    if (!may_neighbour(k, i->out[l], m->out[l])) return false;
  return true;
}

/* Whether all that node m reads exists before node i. */
static bool can_rise(const Stack *k, uint32_t m, uint32_t i) {
  for (int l = 0; l < k->nodes[m].call.nin; l++) {
    uint32_t from = k->maker[k->nodes[m].in[l]];
    if (from != ZP_NONE && from >= i && zg_op_info[k->nodes[from].call.op].kind != ZG_SOURCE) return false;
  }
  return true;
}

/* ---- lining up ---- */
/* The value at which their parameter, or its gradient, begins: in[] and then out[], by which they are ordered. */
static uint32_t numbered(const ZpNode *n, int l) { return l < n->call.nin ? n->in[l] : n->out[l - n->call.nin]; }
static int key_of(const Stack *k, const ZpNode *run) {
  for (int l = 0; l < run->call.nin + run->call.nout; l++) {
    uint8_t place = value(k, numbered(run, l))->at.place;
    if ((l >= run->call.nin || !common(run, l)) && (place == ZP_AT_PARAM || place == ZP_AT_GRAD)) return l;
  }
  return run->call.nin; /* results */
}

static void sort(const Stack *k, ZpNode *run, uint32_t n) {
  int key = key_of(k, run);
  for (uint32_t i = 1; i < n; i++)
    for (uint32_t j = i; j > 0; j--) {
      if (value(k, numbered(&run[j], key))->at.offset >= value(k, numbered(&run[j - 1], key))->at.offset) break;
      ZpNode swap = run[j];
      run[j] = run[j - 1], run[j - 1] = swap;
    }
}

/* The run stands where its first node does, the rest keeps its order. which[] ascends. */
static void gather(Stack *k, const uint32_t *which, const ZpNode *run, uint32_t n) {
  uint32_t at = which[n - 1] + 1, left = n;
  for (uint32_t i = at; i-- > which[0];) {
    if (left > 0 && which[left - 1] == i) left--;
    else k->nodes[--at] = k->nodes[i];
  }
  memcpy(&k->nodes[which[0]], run, n * sizeof *run);
}

static void find_makers(Stack *k) {
  memset(k->maker, 0xff, k->s->nvalues * sizeof *k->maker);
  for (uint32_t i = 0; i < k->n; i++)
    for (int j = 0; j < k->nodes[i].call.nout; j++) k->maker[k->nodes[i].out[j]] = i;
}

/* What the run reads and one node makes lies in a row there; chains have their own ideas (memory.c: in place). */
static void ask_for_rows(Stack *k, const ZpNode *run, uint32_t n) {
  for (int l = 0; l < run->call.nin; l++) {
    uint32_t m = k->maker[run->in[l]];
    bool row = m != ZP_NONE && !common(run, l) && k->nodes[m].call.op != ZG_OP_CHAIN;
    for (uint32_t i = 1; i < n; i++) row = row && k->maker[run[i].in[l]] == m;
    if (row && value(k, run->in[l])->at.place == ZP_AT_NOWHERE) k->nodes[m].row = true;
  }
}

/* The products that may be one with node i, itself the first, into which[]. */
static uint32_t find_alike(const Stack *k, uint32_t i, uint32_t *which) {
  uint32_t count = 1;
  which[0] = i;
  for (uint32_t m = i + 1; m < k->n && count < ZP_MAX_STACK; m++) {
    bool fits = can_rise(k, m, i);
    for (uint32_t j = 0; j < count; j++) fits = fits && alike(k, &k->nodes[which[j]], &k->nodes[m]);
    if (fits) which[count++] = m;
  }
  return count;
}

void zp_line_up(ZpBuild *b, ZpSegment *s, ZpNode *nodes, uint32_t n, const bool *needed_later) {
  if (!b->o->joins) return;
  ZbArena *tmp = zb_arena_new();
  Stack k = {b, s, nodes, n, needed_later, ZB_NEWN(tmp, uint32_t, s->nvalues + 1)};
  find_makers(&k);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t which[ZP_MAX_STACK], count = find_alike(&k, i, which);
    if (count == 1) continue;
    ZpNode run[ZP_MAX_STACK];
    for (uint32_t j = 0; j < count; j++) run[j] = nodes[which[j]];
    sort(&k, run, count);
    ZkCall c = zp_stacked_call(b->p, s, run, count);
    if (!b->o->joins(&c)) continue;
    run->run = (uint8_t)count;
    gather(&k, which, run, count);
    find_makers(&k);
    ask_for_rows(&k, run, count);
    i += count - 1;
  }
  zb_arena_free(tmp);
}

/* ---- stacking ---- */
/* Value l of each node of the run; whether they lie one behind the other. */
static bool in_a_row(const ZpSegment *s, const ZpNode *run, int l, uint32_t *part) {
  for (uint32_t i = 0; i < run->run; i++) {
    part[i] = numbered(&run[i], l);
    const ZpValue *x = &s->values[part[i ? i - 1 : 0]], *y = &s->values[part[i]];
    bool behind = y->at.place == x->at.place && y->at.index == x->at.index && y->at.offset == x->at.offset + x->bytes;
    if (i && !behind) return false;
  }
  return true;
}

static bool fits(const ZpSegment *s, const ZpNode *run) {
  uint32_t part[ZP_MAX_STACK];
  for (int l = 0; l < run->call.nin + run->call.nout; l++)
    if ((l >= run->call.nin || !common(run, l)) && !in_a_row(s, run, l, part)) return false;
  for (uint32_t i = 1; i < run->run; i++)
    if (run[i].sets != run->sets) return false;
  return true;
}

static ZpNode stack(ZpBuild *b, ZpSegment *s, const ZpNode *run) {
  ZpNode to = *run;
  to.call = zp_stacked_call(b->p, s, run, run->run);
  for (uint32_t i = 1; i < run->run; i++) to.flops += run[i].flops;
  for (int l = 0; l < run->call.nin + run->call.nout; l++) {
    bool in = l < run->call.nin;
    if (in && common(run, l)) continue;
    ZpValue w = s->values[numbered(run, l)];
    w.bytes *= run->run;
    w.nparts = run->run;
    in_a_row(s, run, l, w.part);
    ZB_PUSH(b->p->arena, s->values, s->nvalues, w);
    *(in ? &to.in[l] : &to.out[l - run->call.nin]) = s->nvalues - 1;
  }
  return to;
}

uint32_t zp_stack(ZpBuild *b, ZpSegment *s, ZpNode *nodes, uint32_t n) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < n; i++) {
    bool one = nodes[i].run && fits(s, &nodes[i]);
    ZpNode to = one ? stack(b, s, &nodes[i]) : nodes[i];
    i += one ? nodes[i].run - 1u : 0;
    to.run = 0;
    nodes[kept++] = to;
  }
  return kept;
}

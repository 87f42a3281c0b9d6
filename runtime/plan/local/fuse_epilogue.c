/* Chains join the node that makes one of their inputs, where the device does both in one call: so a bias, a residual or an
 * activation costs no pass over memory.
 *
 * Needs a node list with chains, nothing of it placed but gradients; provides one in which nodes of other ops may have
 * chains (kernels.h: joined calls) and stand where those stood: all that they read exists there. The device is shown every
 * such call and says which it wants; without a device that does, nothing changes.
 *
 * Example: h = dot(x, w); y = chain(h, b): add, two nodes, become y = dot(x, w, b) with the chain. If h is also saved, it
 * is one more output of the joined node; if a node between them reads it, the two stay apart.
 *
 * A chain that the device does not want may hold what does not need the op's result: that stays a chain of its own if the
 * device wants the rest. So of GELU made again and GELU's gradient, in one pass over what GELU was of, the second joins the
 * product that brings its cotangent. */
#include "runtime/plan/impl.h"

#include <string.h>

typedef struct {
  ZpBuild *b;
  ZpSegment *s;
  ZpNode *nodes;
  uint32_t n;
  const bool *later;
  uint32_t *maker; /* value -> node of this list, or ZP_NONE */
  bool *gone;      /* nodes that have joined another */
  ZpNode **rest;   /* what stays of a chain that has joined, behind the joined node; NULL: nothing */
} Attach;

static bool reads(const Attach *a, uint32_t node, uint32_t value) {
  return !a->gone[node] && (zp_reads(&a->nodes[node], value) || (a->rest[node] && zp_reads(a->rest[node], value)));
}

/* Whether node m may be done where node i stands: it adds to nothing, its results need not be somewhere, and nobody between
 * wants them. No collective is between them either: what can be computed before one is not left for after it. (Without
 * operands it makes numbers of where its result begins, which the engine tells it by its op.) */
static bool movable(const Attach *a, uint32_t m, uint32_t i) {
  const ZpNode *k = &a->nodes[m];
  if (zg_op_info[k->call.op].kind != ZG_COMPUTE || k->call.chain || k->call.accumulate || k->dims || !k->call.nin)
    return false;
  for (int r = 0; r < k->call.nout; r++)
    if (a->s->values[k->out[r]].at.place != ZP_AT_NOWHERE) return false;
  for (uint32_t j = m + 1; j < i; j++) {
    if (a->nodes[j].dims && !a->gone[j]) return false;
    for (int r = 0; r < k->call.nout; r++)
      if (reads(a, j, k->out[r])) return false;
  }
  return true;
}

/* Whether anybody but node i reads the value. */
static bool read_elsewhere(const Attach *a, uint32_t i, uint32_t value) {
  if (a->later[value]) return true;
  for (uint32_t j = i + 1; j < a->n; j++)
    if (reads(a, j, value)) return true;
  return false;
}

/* Chain c renumbered: reg[l] is the register of its input l, its ops' come from `base` on. */
static ZkChain *renumber(const Attach *a, const ZpNode *c, const uint16_t *reg, uint16_t base) {
  const ZkChain *from = c->call.chain;
  ZkChain *k = ZB_NEW(a->b->p->arena, ZkChain);
  *k = *from;
  k->ops = ZB_NEWN(a->b->p->arena, ZkChainOp, from->nops + 1u);
#define REG(x) ((x) < c->call.nin ? reg[x] : (uint16_t)((x)-c->call.nin + base))
  for (int i = 0; i < from->nops; i++) {
    k->ops[i] = from->ops[i];
    k->ops[i].a = REG(from->ops[i].a);
    k->ops[i].b = REG(from->ops[i].b);
    k->ops[i].c = REG(from->ops[i].c);
  }
  for (int i = 0; i < from->nout; i++) k->out[i] = REG(from->out[i]);
#undef REG
  return k;
}

/* Node m with chain c, which stands at i; false if a call cannot hold that. */
static bool combine(const Attach *a, uint32_t m, uint32_t i, const ZpNode *c, ZpNode *to) {
  const ZpNode *k = &a->nodes[m];
  uint16_t reg[ZK_MAX_IN], nres = k->call.nout, extra = 0;
  *to = *k;
  for (int l = 0; l < c->call.nin; l++) {
    int r = zp_output_of(k, c->in[l]);
    if (r < 0 && (k->call.nin + extra == ZK_MAX_IN || nres + extra == ZK_MAX_IN)) return false;
    if (r < 0) to->in[k->call.nin + extra] = c->in[l];
    reg[l] = r < 0 ? (uint16_t)(nres + extra++) : (uint16_t)r;
  }
  for (int j = 0; j < c->call.nout; j++) {
    const ZpValue *v = &a->s->values[c->out[j]];
    bool real = v->elem == ZK_F32 || v->elem == ZK_BF16;
    if (!real || v->at.place != ZP_AT_NOWHERE || !zp_same_space(&v->type, &a->s->values[k->out[0]].type)) return false;
  }
  ZkChain *chain = renumber(a, c, reg, (uint16_t)(nres + extra));
  memcpy(to->out, c->out, sizeof to->out);
  for (uint16_t r = 0; r < nres; r++) {
    if (r == 0 && !read_elsewhere(a, i, k->out[r])) continue;
    if (chain->nout == ZK_MAX_OUT) return false;
    to->out[chain->nout] = k->out[r];
    chain->out[chain->nout++] = r;
  }
  to->call.chain = chain;
  to->call.nin = (uint8_t)(k->call.nin + extra);
  to->call.nout = (uint8_t)chain->nout;
  zp_views(a->b->p, a->s, to);
  return true;
}

/* ---- parts of chains ---- */
#define REGS (ZK_MAX_IN + ZK_CHAIN_MAX_OPS)
static int operands(const ZkChainOp *o) { return zg_op_info[o->op].max_in; }

/* Which outputs of chain c need a result of node k. */
static void find_dependent(const ZpNode *k, const ZpNode *c, bool *out) {
  bool needs[REGS] = {false};
  const ZkChain *chain = c->call.chain;
  for (int l = 0; l < c->call.nin; l++) needs[l] = zp_output_of(k, c->in[l]) >= 0;
  for (int i = 0; i < chain->nops; i++) {
    const ZkChainOp *o = &chain->ops[i];
    const uint16_t arg[3] = {o->a, o->b, o->c};
    for (int j = 0; j < operands(o); j++) needs[c->call.nin + i] |= needs[arg[j]];
  }
  for (int j = 0; j < chain->nout; j++) out[j] = needs[chain->out[j]];
}

/* Chain c with those outputs alone for which wanted[j] is `which`, and what they are made from. */
static ZpNode part_of(const Attach *a, const ZpNode *c, const bool *wanted, bool which) {
  const ZkChain *from = c->call.chain;
  bool needed[REGS] = {false};
  uint16_t reg[REGS] = {0}, n = 0;
  ZpNode to = *c;
  ZkChain *k = ZB_NEW(a->b->p->arena, ZkChain);
  k->ops = ZB_NEWN(a->b->p->arena, ZkChainOp, from->nops + 1u);
  for (int j = 0; j < from->nout; j++) needed[from->out[j]] |= wanted[j] == which;
  for (int i = from->nops; i-- > 0;) {
    const ZkChainOp *o = &from->ops[i];
    const uint16_t arg[3] = {o->a, o->b, o->c};
    for (int j = 0; needed[c->call.nin + i] && j < operands(o); j++) needed[arg[j]] = true;
  }
  for (int l = 0; l < c->call.nin; l++)
    if (needed[l]) to.in[n] = c->in[l], reg[l] = n++;
  to.call.nin = (uint8_t)n;
  for (int i = 0; i < from->nops; i++) {
    if (!needed[c->call.nin + i]) continue;
    ZkChainOp o = from->ops[i];
    o.a = reg[o.a], o.b = reg[o.b], o.c = reg[o.c];
    k->ops[k->nops++] = o;
    reg[c->call.nin + i] = n++;
  }
  for (int j = 0; j < from->nout; j++) {
    if (wanted[j] != which) continue;
    to.out[k->nout] = c->out[j];
    k->out[k->nout++] = reg[from->out[j]];
  }
  to.call.nout = (uint8_t)k->nout;
  to.call.chain = k;
  return to;
}

/* Taking a chain apart saves the product's way to memory and back, and reads again what both parts read: worth it for one
 * tensor of that size. */
static bool worth_it(const Attach *a, const ZpNode *p, const ZpNode *q) {
  int both = 0;
  for (int l = 0; l < p->call.nin; l++)
    both += zp_reads(q, p->in[l]) && a->s->values[p->in[l]].type.naxes >= a->s->values[p->out[0]].type.naxes;
  return both <= 1;
}

/* Chain i taken apart: what needs a result of node m with it, the rest for itself. */
static bool join_part(const Attach *a, uint32_t m, uint32_t i, ZpNode *to, ZpNode *rest) {
  const ZpNode *c = &a->nodes[i];
  bool needs[ZK_MAX_OUT], some = false, all = true;
  find_dependent(&a->nodes[m], c, needs);
  for (int j = 0; j < c->call.nout; j++) some |= needs[j], all &= needs[j];
  if (!some || all) return false;
  ZpNode part = part_of(a, c, needs, true);
  *rest = part_of(a, c, needs, false);
  return worth_it(a, &part, rest) && combine(a, m, i, &part, to) && a->b->o->joins(&to->call);
}

/* ---- joining ---- */
/* The latest of the nodes before `before` that make an input of node i; ZP_NONE: no more. The later, the shorter its
 * operands are kept. */
static uint32_t candidate(const Attach *a, uint32_t i, uint32_t before) {
  uint32_t best = ZP_NONE;
  for (int l = 0; l < a->nodes[i].call.nin; l++) {
    uint32_t m = a->maker[a->nodes[i].in[l]];
    if (m != ZP_NONE && m < before && (best == ZP_NONE || m > best)) best = m;
  }
  return best;
}

static void join(Attach *a, uint32_t i) {
  ZpNode to, rest;
  for (uint32_t m = i; (m = candidate(a, i, m)) != ZP_NONE;) {
    if (!movable(a, m, i)) continue;
    bool whole = combine(a, m, i, &a->nodes[i], &to) && a->b->o->joins(&to.call);
    if (!whole && !join_part(a, m, i, &to, &rest)) continue;
    a->nodes[i] = to;
    a->gone[m] = true;
    for (int k = 0; k < to.call.nout; k++) a->maker[to.out[k]] = i;
    if (whole) return;
    a->rest[i] = ZB_NEW(a->b->p->arena, ZpNode);
    *a->rest[i] = rest;
    return;
  }
}

uint32_t zp_attach(ZpBuild *b, ZpSegment *s, ZpNode *nodes, uint32_t n, const bool *needed_later) {
  if (!b->o->joins) return n;
  ZbArena *tmp = zb_arena_new();
  Attach a = {b, s, nodes, n, needed_later, ZB_NEWN(tmp, uint32_t, s->nvalues + 1),
              ZB_NEWN(tmp, bool, n + 1), ZB_NEWN(tmp, ZpNode *, n + 1)};
  memset(a.maker, 0xff, s->nvalues * sizeof *a.maker);
  for (uint32_t i = 0; i < n; i++)
    for (int k = 0; k < nodes[i].call.nout; k++) a.maker[nodes[i].out[k]] = i;
  for (uint32_t i = 0; i < n; i++)
    if (nodes[i].call.op == ZG_OP_CHAIN) join(&a, i);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < n; i++) { /* what is left over never gets ahead of i: for each rest, a node before it is gone */
    if (!a.gone[i]) nodes[kept++] = nodes[i];
    if (a.rest[i]) nodes[kept++] = *a.rest[i];
  }
  zb_arena_free(tmp);
  return kept;
}

/* Chains join the node that makes one of their inputs, where the device does both in one call: so a bias, a residual or an
 * activation costs no pass over memory.
 *
 * Needs a node list with chains, nothing of it placed but gradients; provides one in which nodes of other ops may have
 * chains (kernels.h: joined calls) and stand where those stood: all that they read exists there. The device is shown every
 * such call and says which it wants; without a device that does, nothing changes.
 *
 * Example: h = dot(x, w); y = chain(h, b): add, two nodes, become y = dot(x, w, b) with the chain. If h is also saved, it
 * is one more output of the joined node; if a node between them reads it, the two stay apart. */
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
} Attach;

static int result_of(const ZpNode *k, uint32_t value) {
  for (int r = 0; r < k->call.nout; r++)
    if (k->out[r] == value) return r;
  return -1;
}

static bool reads(const ZpNode *k, uint32_t value) {
  for (int i = 0; i < k->call.nin; i++)
    if (k->in[i] == value) return true;
  return false;
}

static bool same_space(const ZgType *a, const ZgType *b) {
  return a->naxes == b->naxes && !memcmp(a->axis, b->axis, a->naxes * sizeof *a->axis);
}

/* Whether node m may be done where node i stands: it adds to nothing, its results need not be somewhere, and nobody between
 * wants them. No collective is between them either: what can be computed before one is not left for after it. (Without
 * operands it makes numbers of where its result begins, which the engine tells it by its op.) */
static bool movable(const Attach *a, uint32_t m, uint32_t i) {
  const ZpNode *k = &a->nodes[m];
  if (zg_op_info[k->call.op].class != ZG_COMPUTE || k->call.chain || k->call.accumulate || k->dims || !k->call.nin)
    return false;
  for (int r = 0; r < k->call.nout; r++)
    if (a->s->values[k->out[r]].at.place != ZP_AT_NOWHERE) return false;
  for (uint32_t j = m + 1; j < i; j++) {
    if (a->gone[j]) continue;
    if (a->nodes[j].dims) return false;
    for (int r = 0; r < k->call.nout; r++)
      if (reads(&a->nodes[j], k->out[r])) return false;
  }
  return true;
}

/* Whether anybody but node i reads the value. */
static bool read_elsewhere(const Attach *a, uint32_t i, uint32_t value) {
  if (a->later[value]) return true;
  for (uint32_t j = i + 1; j < a->n; j++)
    if (!a->gone[j] && reads(&a->nodes[j], value)) return true;
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

/* Node m with the chain of node i; false if a call cannot hold that. */
static bool combine(const Attach *a, uint32_t m, uint32_t i, ZpNode *to) {
  const ZpNode *k = &a->nodes[m], *c = &a->nodes[i];
  uint16_t reg[ZK_MAX_IN], nres = k->call.nout, extra = 0;
  *to = *k;
  for (int l = 0; l < c->call.nin; l++) {
    int r = result_of(k, c->in[l]);
    if (r < 0 && (k->call.nin + extra == ZK_MAX_IN || nres + extra == ZK_MAX_IN)) return false;
    if (r < 0) to->in[k->call.nin + extra] = c->in[l];
    reg[l] = r < 0 ? (uint16_t)(nres + extra++) : (uint16_t)r;
  }
  for (int j = 0; j < c->call.nout; j++) {
    const ZpValue *v = &a->s->values[c->out[j]];
    bool real = v->elem == ZK_F32 || v->elem == ZK_BF16;
    if (!real || v->at.place != ZP_AT_NOWHERE || !same_space(&v->type, &a->s->values[k->out[0]].type)) return false;
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
  for (int j = 0; j < to->call.nin; j++) to->call.in[j] = zp_view(a->b->p, &a->s->values[to->in[j]]);
  for (int j = 0; j < to->call.nout; j++) to->call.out[j] = zp_view(a->b->p, &a->s->values[to->out[j]]);
  return true;
}

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
  ZpNode to;
  for (uint32_t m = i; (m = candidate(a, i, m)) != ZP_NONE;) {
    if (!movable(a, m, i) || !combine(a, m, i, &to) || !a->b->o->joins(&to.call)) continue;
    a->nodes[i] = to;
    a->gone[m] = true;
    for (int k = 0; k < to.call.nout; k++) a->maker[to.out[k]] = i;
    return;
  }
}

uint32_t zp_attach(ZpBuild *b, ZpSegment *s, ZpNode *nodes, uint32_t n, const bool *needed_later) {
  if (!b->o->joins) return n;
  ZbArena *tmp = zb_arena_new();
  Attach a = {b, s, nodes, n, needed_later, ZB_NEWN(tmp, uint32_t, s->nvalues + 1), ZB_NEWN(tmp, bool, n + 1)};
  memset(a.maker, 0xff, s->nvalues * sizeof *a.maker);
  for (uint32_t i = 0; i < n; i++)
    for (int k = 0; k < nodes[i].call.nout; k++) a.maker[nodes[i].out[k]] = i;
  for (uint32_t i = 0; i < n; i++)
    if (nodes[i].call.op == ZG_OP_CHAIN) join(&a, i);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < n; i++)
    if (!a.gone[i]) nodes[kept++] = nodes[i];
  zb_arena_free(tmp);
  return kept;
}

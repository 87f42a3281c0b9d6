/* Chains join the op after them whose operand they make, where the device does both in one call: so what is normalized, or
 * the gradient of it, is never written only to be read again.
 *
 * Needs and provides the same as fuse_epilogue.c, which comes first: ops may have their chains already, and then stand amid one
 * (kernels.h). Such a node stands where the chain stood that makes its operand, because others read what else that makes;
 * so all that the op reads must exist there. No collective is between the two: it would start later.
 *
 * Example: g, p = chain(dz, scale, y): dz scale, dz y; dscale = sum(p); dx = normalize_grad(g, y, r) with dx + dres becomes
 * dx, p = normalize_grad(y, r, dz, scale, dres) with both chains; dscale = sum(p). */
#include "runtime/plan/impl.h"

#include <string.h>

typedef struct {
  ZpBuild *b;
  ZpSegment *s;
  ZpNode *nodes;
  uint32_t n;
  const bool *later;
  uint32_t *maker; /* value -> node of this list, or ZP_NONE; also for sources, which are nowhere */
  bool *gone;      /* nodes that have joined another */
} Before;

/* Ops that go along rows, and can be done in place. */
static bool row_op(const ZpNode *k) {
  bool one = k->call.op == ZG_OP_NORMALIZE || k->call.op == ZG_OP_NORMALIZE_GRAD;
  return one && !k->dims && !(k->call.chain && k->call.chain->before);
}
static int operands(const ZpNode *k) { return zg_op_info[k->call.op].max_in; }
static int results(const ZpNode *k) { return k->call.op == ZG_OP_NORMALIZE ? 2 : 1; }

/* Whether what node k makes may be made by another kind of call: it is of real numbers and need not be somewhere. */
static bool free_results(const Before *a, const ZpNode *k) {
  for (int j = 0; j < k->call.nout; j++) {
    const ZpValue *v = &a->s->values[k->out[j]];
    if ((v->elem != ZK_F32 && v->elem != ZK_BF16) || v->at.place != ZP_AT_NOWHERE) return false;
  }
  return true;
}

/* Whether node i may be done where chain m stands. */
static bool can_rise(const Before *a, uint32_t m, uint32_t i) {
  const ZpNode *c = &a->nodes[m], *k = &a->nodes[i];
  if (c->call.op != ZG_OP_CHAIN || c->call.nin == 0 || !free_results(a, c) || !free_results(a, k)) return false;
  if (!zp_same_space(&a->s->values[k->in[0]].type, &a->s->values[k->out[0]].type)) return false;
  for (int l = 1; l < k->call.nin; l++) {
    uint32_t from = a->maker[k->in[l]];
    bool source = from == ZP_NONE || zg_op_info[a->nodes[from].call.op].kind == ZG_SOURCE;
    if (!source && (l < operands(k) ? from >= m : from > m)) return false;
  }
  for (uint32_t j = m + 1; j < i; j++)
    if (!a->gone[j] && a->nodes[j].dims) return false;
  return true;
}

/* Whether anybody but node i reads the value that chain m makes. */
static bool read_elsewhere(const Before *a, uint32_t m, uint32_t i, uint32_t value) {
  if (a->later[value]) return true;
  for (uint32_t j = m + 1; j < a->n; j++)
    if (j != i && !a->gone[j] && zp_reads(&a->nodes[j], value)) return true;
  return false;
}

/* ---- one node of two ---- */
typedef struct {
  ZpNode *to;
  ZkChain *chain;
  uint16_t first, ninput; /* of the inputs that have registers: place in `to`, how many */
  uint16_t nres;
  bool fits;
} Join;

/* The register of an input of the call. */
static uint16_t input(Join *j, uint32_t value) {
  uint16_t l = 0;
  while (l < j->ninput && j->to->in[j->first + l] != value) l++;
  if (l == j->ninput) {
    j->fits &= j->first + l < ZK_MAX_IN && j->nres + l < ZK_MAX_IN;
    if (j->fits) j->to->in[j->first + j->ninput++] = value;
  }
  return (uint16_t)(j->nres + l);
}

static void add_output(Join *j, uint32_t value, uint16_t reg) {
  j->fits &= j->chain->nout < ZK_MAX_OUT;
  if (!j->fits) return;
  j->to->out[j->chain->nout] = value;
  j->chain->out[j->chain->nout++] = reg;
}

/* The chain's instructions, whose first `known` registers are now `reg`. */
static void add_ops(Join *j, const ZkChain *from, uint16_t *reg, int known) {
  for (int i = 0; i < from->nops; i++) {
    ZkChainOp o = from->ops[i];
    int n = zg_op_info[o.op].max_in;
    o.a = n > 0 ? reg[o.a] : 0, o.b = n > 1 ? reg[o.b] : 0, o.c = n > 2 ? reg[o.c] : 0;
    reg[known + i] = (uint16_t)(j->nres + j->ninput + j->chain->nops);
    j->chain->ops[j->chain->nops++] = o;
  }
}

/* Node i with chain m before it; false if a call cannot hold that. Results of what comes after the op are first. */
static bool combine(const Before *a, uint32_t m, uint32_t i, ZpNode *to) {
  static const ZkChain none;
  const ZpNode *c = &a->nodes[m], *k = &a->nodes[i];
  const ZkChain *before = c->call.chain, *after = k->call.chain ? k->call.chain : &none;
  ZkChain *chain = ZB_NEW(a->b->p->arena, ZkChain);
  Join j = {to, chain, (uint16_t)(operands(k) - 1), 0, (uint16_t)results(k), true};
  uint16_t reg[2][ZK_MAX_IN + ZK_CHAIN_MAX_OPS], known = j.nres;
  if (before->nops + after->nops > ZK_CHAIN_MAX_OPS) return false;
  chain->ops = ZB_NEWN(a->b->p->arena, ZkChainOp, before->nops + after->nops + 1u);
  *to = *k;
  memcpy(to->in, k->in + 1, j.first * sizeof *to->in);
  for (int l = 0; l < c->call.nin; l++) reg[0][l] = input(&j, c->in[l]);
  for (int l = operands(k); l < k->call.nin; l++)
    if (zp_output_of(c, k->in[l]) < 0) input(&j, k->in[l]);
  add_ops(&j, before, reg[0], c->call.nin);
  for (uint16_t r = 0; r < j.nres; r++) reg[1][r] = r;
  for (int l = operands(k); l < k->call.nin; l++) {
    int made = zp_output_of(c, k->in[l]);
    reg[1][known++] = made < 0 ? input(&j, k->in[l]) : reg[0][before->out[made]];
  }
  add_ops(&j, after, reg[1], known);
  for (int q = 0; q < k->call.nout; q++) add_output(&j, k->out[q], k->call.chain ? reg[1][after->out[q]] : (uint16_t)q);
  chain->before = before->nops;
  chain->feeds = reg[0][before->out[zp_output_of(c, k->in[0])]];
  for (int q = 0; q < c->call.nout; q++)
    if (c->out[q] != k->in[0] || read_elsewhere(a, m, i, c->out[q])) add_output(&j, c->out[q], reg[0][before->out[q]]);
  to->call.chain = chain;
  to->call.nin = (uint8_t)(j.first + j.ninput);
  to->call.nout = (uint8_t)chain->nout;
  return j.fits && chain->before > 0;
}

static void join(Before *a, uint32_t i) {
  ZpNode to;
  uint32_t m = a->maker[a->nodes[i].in[0]];
  if (m == ZP_NONE || !can_rise(a, m, i) || !combine(a, m, i, &to)) return;
  zp_views(a->b->p, a->s, &to);
  if (!a->b->o->joins(&to.call)) return;
  a->nodes[m] = to;
  a->gone[i] = true;
  for (int q = 0; q < to.call.nout; q++) a->maker[to.out[q]] = m;
}

uint32_t zp_attach_before(ZpBuild *b, ZpSegment *s, ZpNode *nodes, uint32_t n, const bool *needed_later) {
  if (!b->o->joins) return n;
  ZbArena *tmp = zb_arena_new();
  Before a = {b, s, nodes, n, needed_later, ZB_NEWN(tmp, uint32_t, s->nvalues + 1), ZB_NEWN(tmp, bool, n + 1)};
  memset(a.maker, 0xff, s->nvalues * sizeof *a.maker);
  for (uint32_t i = 0; i < n; i++)
    for (int k = 0; k < nodes[i].call.nout; k++) a.maker[nodes[i].out[k]] = i;
  for (uint32_t i = 0; i < n; i++)
    if (row_op(&nodes[i])) join(&a, i);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < n; i++)
    if (!a.gone[i]) nodes[kept++] = nodes[i];
  zb_arena_free(tmp);
  return kept;
}

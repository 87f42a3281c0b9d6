/* A pointwise node becomes the epilogue of the op that makes one of its inputs, where the device does both in
 * one call. A bias, a residual or an activation then costs no pass over memory.
 *
 * Needs a list in which pointwise nodes are fused. Provides one in which other ops may have epilogues
 * (kernels.h). The fused node stands where the pointwise node stood, since all that it reads exists there.
 *
 * Example: h = dot(x, w); y = pointwise(h, b): add, two nodes, become y = dot(x, w, b) with the epilogue. If
 * h is also saved, the fused node stores it as well. If a node between the two reads h, they stay apart.
 *
 * The device may want only a part of the pointwise node: what needs the op's result. The rest then stays a
 * node of its own. Example: backward recomputes GELU and multiplies a cotangent by GELU's gradient, both in
 * one pointwise node. Only the product by the gradient becomes an epilogue of the dot that makes the
 * cotangent. */
#include "runtime/plan/local/rewrite.h"

#include <string.h>

/* Returns whether node m may run where node i stands. Its results may be anywhere, which gradients that it
 * adds to may not, and nobody between reads them. It waits for no other rank, and no collective is between: a
 * rank computes before it waits, not after. An op without operands depends on where its result begins in the
 * whole tensor, which the engine only says to calls of that op. */
static bool may_sink(const ZpRewrite *r, uint32_t m, uint32_t i) {
  const ZkCall *k = &r->nodes[m].call;
  if (zg_op_info[k->op].kind != ZG_COMPUTE || k->pointwise || r->nodes[m].dims || !k->nin) return false;
  for (int j = 0; j < k->nout; j++) {
    uint32_t v = r->nodes[m].out[j];
    if (!zp_unplaced(r, v) || zp_read_between(r, m, i, v)) return false;
  }
  return !zp_collective_between(r, m, i);
}

/* Returns the function of pointwise node c with other register numbers: input l in reg[l], instructions from
 * `base` on. */
static ZkPointwise *renumber(const ZpRewrite *r, const ZpNode *c, const uint16_t *reg, uint16_t base) {
  const ZkPointwise *from = c->call.pointwise;
  ZkPointwise *k = ZB_NEW(r->b->p->arena, ZkPointwise);
  *k = *from;
  k->ops = ZB_NEWN(r->b->p->arena, ZkPointwiseOp, from->nops + 1u);
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

/* Returns whether c can be an epilogue of k by its results: their space is that of k's first result. */
static bool same_space(const ZpRewrite *r, const ZpNode *k, const ZpNode *c) {
  for (int j = 0; j < c->call.nout; j++)
    if (!zp_same_space(zp_value(r, c->out[j]), zp_value(r, k->out[0]))) return false;
  return zp_results_free(r, c);
}

/* Node m with epilogue c, which stands at i. False if a call cannot hold it. */
static bool fuse(const ZpRewrite *r, uint32_t m, uint32_t i, const ZpNode *c, ZpNode *to) {
  const ZpNode *k = &r->nodes[m];
  uint16_t reg[ZK_MAX_IN], nres = k->call.nout, extra = 0;
  *to = *k;
  for (int l = 0; l < c->call.nin; l++) {
    int q = zp_output_of(k, c->in[l]);
    if (q < 0 && (k->call.nin + extra == ZK_MAX_IN || nres + extra == ZK_MAX_IN)) return false;
    if (q < 0) to->in[k->call.nin + extra] = c->in[l];
    reg[l] = q < 0 ? (uint16_t)(nres + extra++) : (uint16_t)q;
  }
  if (!same_space(r, k, c)) return false;
  ZkPointwise *epilogue = renumber(r, c, reg, (uint16_t)(nres + extra));
  memcpy(to->out, c->out, sizeof to->out);
  for (uint16_t q = 0; q < nres; q++) { /* the op's own results, where somebody else reads them */
    if (q == 0 && !zp_read_elsewhere(r, i, i, k->out[q])) continue;
    if (epilogue->nout == ZK_POINTWISE_OUT) return false;
    to->out[epilogue->nout] = k->out[q];
    epilogue->out[epilogue->nout++] = q;
  }
  to->call.pointwise = epilogue;
  to->call.nin = (uint8_t)(k->call.nin + extra);
  to->call.nout = (uint8_t)epilogue->nout;
  return zp_supported(r, to);
}

/* ---- taking a pointwise node apart ---- */
#define REGS (ZK_MAX_IN + ZK_POINTWISE_MAX_OPS)
static int operands(const ZkPointwiseOp *o) { return zg_op_info[o->op].max_in; }

/* Which outputs of pointwise node c need a result of node k. */
static void find_dependent(const ZpNode *k, const ZpNode *c, bool *out) {
  bool needs[REGS] = {false};
  const ZkPointwise *function = c->call.pointwise;
  for (int l = 0; l < c->call.nin; l++) needs[l] = zp_output_of(k, c->in[l]) >= 0;
  for (int i = 0; i < function->nops; i++) {
    const ZkPointwiseOp *o = &function->ops[i];
    const uint16_t arg[3] = {o->a, o->b, o->c};
    for (int j = 0; j < operands(o); j++) needs[c->call.nin + i] |= needs[arg[j]];
  }
  for (int j = 0; j < function->nout; j++) out[j] = needs[function->out[j]];
}

/* Pointwise node c with those outputs j alone for which of[j] is `which`, and what they are computed from. */
static ZpNode node_with_outputs(const ZpRewrite *r, const ZpNode *c, const bool *of, bool which) {
  const ZkPointwise *from = c->call.pointwise;
  bool needed[REGS] = {false};
  uint16_t reg[REGS] = {0}, n = 0;
  ZpNode to = *c;
  ZkPointwise *k = ZB_NEW(r->b->p->arena, ZkPointwise);
  k->ops = ZB_NEWN(r->b->p->arena, ZkPointwiseOp, from->nops + 1u);
  for (int j = 0; j < from->nout; j++) needed[from->out[j]] |= of[j] == which;
  for (int i = from->nops; i-- > 0;) {
    const ZkPointwiseOp *o = &from->ops[i];
    const uint16_t arg[3] = {o->a, o->b, o->c};
    for (int j = 0; needed[c->call.nin + i] && j < operands(o); j++) needed[arg[j]] = true;
  }
  for (int l = 0; l < c->call.nin; l++)
    if (needed[l]) to.in[n] = c->in[l], reg[l] = n++;
  to.call.nin = (uint8_t)n;
  for (int i = 0; i < from->nops; i++) {
    if (!needed[c->call.nin + i]) continue;
    ZkPointwiseOp o = from->ops[i];
    o.a = reg[o.a], o.b = reg[o.b], o.c = reg[o.c];
    k->ops[k->nops++] = o;
    reg[c->call.nin + i] = n++;
  }
  for (int j = 0; j < from->nout; j++) {
    if (of[j] != which) continue;
    to.out[k->nout] = c->out[j];
    k->out[k->nout++] = reg[from->out[j]];
  }
  to.call.nout = (uint8_t)k->nout;
  to.call.pointwise = k;
  return to;
}

/* Taking a node apart saves writing and reading the op's result, and reads twice what both parts read: worth
 * it for at most one tensor of that size. */
static bool worth_it(const ZpRewrite *r, const ZpNode *p, const ZpNode *q) {
  int both = 0;
  for (int l = 0; l < p->call.nin; l++)
    both += zp_reads(q, p->in[l]) && zp_value(r, p->in[l])->type.naxes >= zp_value(r, p->out[0])->type.naxes;
  return both <= 1;
}

/* Splits pointwise node i into the part that needs a result of node m, as m's epilogue, and the rest. */
static bool fuse_part(const ZpRewrite *r, uint32_t m, uint32_t i, ZpNode *to, ZpNode *rest) {
  const ZpNode *c = &r->nodes[i];
  bool needs[ZK_POINTWISE_OUT], some = false, all = true;
  find_dependent(&r->nodes[m], c, needs);
  for (int j = 0; j < c->call.nout; j++) some |= needs[j], all &= needs[j];
  if (!some || all) return false;
  ZpNode part = node_with_outputs(r, c, needs, true);
  *rest = node_with_outputs(r, c, needs, false);
  return worth_it(r, &part, rest) && fuse(r, m, i, &part, to);
}

/* ---- the pass ---- */
/* Returns the latest node before `before` that makes an input of node i, or ZP_NONE. The later it is, the
 * shorter its operands are kept. */
static uint32_t candidate(const ZpRewrite *r, uint32_t i, uint32_t before) {
  uint32_t best = ZP_NONE;
  for (int l = 0; l < r->nodes[i].call.nin; l++) {
    uint32_t m = r->maker[r->nodes[i].in[l]];
    if (m != ZP_NONE && m < before && (best == ZP_NONE || m > best)) best = m;
  }
  return best;
}

static void find_op(ZpRewrite *r, uint32_t i) {
  ZpNode to, rest;
  for (uint32_t m = i; (m = candidate(r, i, m)) != ZP_NONE;) {
    if (!may_sink(r, m, i)) continue;
    bool whole = fuse(r, m, i, &r->nodes[i], &to);
    if (!whole && !fuse_part(r, m, i, &to, &rest)) continue;
    zp_replace(r, i, &to);
    zp_drop(r, m);
    if (!whole) zp_put_behind(r, i, &rest);
    return;
  }
}

void zp_fuse_epilogue(ZpRewrite *r) {
  for (uint32_t i = 0; i < r->n; i++)
    if (r->nodes[i].call.op == ZG_OP_POINTWISE) find_op(r, i);
  zp_compact(r);
}

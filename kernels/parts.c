/* Calls that are several in one, taken apart: for devices and kernels that do one thing a time. kernels.h says what such
 * calls are. */
#include "kernels/cpu/cpu.h"

static int output_of(const ZkCall *joined, int reg) {
  for (int k = 0; k < joined->nout; k++)
    if (joined->chain->out[k] == reg) return k;
  return -1;
}

/* The output that holds result 0 or, before that, operand 0 if it is not stored. */
static int place_of(const ZkCall *joined, int reg) {
  int nres = zg_op_info[joined->op].nout, at = output_of(joined, reg);
  if (at >= 0) return at;
  for (int k = joined->nout; k-- > 0;) {
    bool first = joined->chain->out[k] == 0 || joined->chain->out[k] >= nres; /* has the axes of result 0 */
    if (first && (at < 0 || joined->out[k].elem == ZK_F32)) at = k;
  }
  ZB_ASSERT(at >= 0);
  return at;
}

static int operands_in(const ZkCall *joined) {
  return zg_op_info[joined->op].min_in - (joined->chain->before > 0);
}

/* What must be done before the op, if it stands amid the chain: as much of the chain as makes its operand 0, which lies where
 * it is stored or where result 0 will. */
static bool unjoin_first(const ZkCall *joined, ZkCall *chain, ZkChain *first) {
  int nin = operands_in(joined), nres = zg_op_info[joined->op].nout;
  if (joined->chain->before == 0) return false;
  ZB_ASSERT(joined->nin > nin);
  *chain = *joined;
  *first = *joined->chain;
  first->nops = first->before, first->before = 0;
  first->nout = 1, first->out[0] = first->feeds;
  chain->op = ZG_OP_CHAIN, chain->nax = 0, chain->chain = first;
  chain->nin = chain->nout = 0;
  for (int r = 0; r < nres; r++)
    chain->in[chain->nin++] = joined->in[nin]; /* registers of results: not read */
  for (int k = nin; k < joined->nin; k++) chain->in[chain->nin++] = joined->in[k];
  chain->out[chain->nout++] = joined->out[place_of(joined, first->feeds)];
  return true;
}

/* The op, whose results go straight to the outputs that store them (or, result 0 without one, to the output with the most
 * bits, where the chain then finds it: in place), and what is left of the chain; chain->nout = 0 if nothing is. */
static void unjoin(const ZkCall *joined, ZkCall *op, ZkCall *chain, ZkChain *rest) {
  int nin = operands_in(joined), nres = zg_op_info[joined->op].nout, n = 0;
  *op = *chain = *joined;
  *rest = *joined->chain;
  rest->before = rest->feeds = 0;
  if (joined->chain->before) op->in[n++] = joined->out[place_of(joined, joined->chain->feeds)];
  for (int k = 0; k < nin; k++) op->in[n++] = joined->in[k];
  op->nin = (uint8_t)n, op->nout = (uint8_t)nres, op->chain = NULL;
  chain->op = ZG_OP_CHAIN, chain->nax = 0, chain->chain = rest;
  chain->nin = chain->nout = 0, rest->nout = 0;
  for (int r = 0; r < nres; r++) {
    ZB_ASSERT(r == 0 || output_of(joined, r) >= 0);
    op->out[r] = joined->out[place_of(joined, r)];
    chain->in[chain->nin++] = op->out[r];
  }
  for (int k = nin; k < joined->nin; k++) chain->in[chain->nin++] = joined->in[k];
  for (int k = 0; k < joined->nout; k++) {
    int reg = joined->chain->out[k];
    if (reg < nres && output_of(joined, reg) == k) continue; /* there already */
    rest->out[rest->nout++] = (uint16_t)reg;
    chain->out[chain->nout++] = joined->out[k];
  }
}

static void unsum(const ZkCall *summed, ZkCall *dot, ZkCall *sum) {
  *dot = *sum = *summed;
  dot->nout = 1;
  sum->op = ZG_OP_SUM;
  sum->nin = sum->nout = 1;
  sum->in[0] = summed->in[1], sum->out[0] = summed->out[1];
}

static void unpeak(const ZkCall *peaked, ZkCall *peak, ZkCall *sums) {
  *peak = *sums = *peaked;
  peak->op = ZG_OP_PEAK;
  peak->nin = peak->nout = 1;
  peak->out[0] = peaked->out[2];
  sums->nin = 3, sums->nout = 2;
  sums->in[1] = peaked->out[2], sums->in[2] = peaked->in[1];
}

void zk_parts(const ZkCall *call, ZkParts *to) {
  to->n = 1;
  to->call[0] = *call;
  if (call->chain && call->op != ZG_OP_CHAIN) {
    to->n = unjoin_first(call, &to->call[0], &to->chain[0]);
    unjoin(call, &to->call[to->n], &to->call[to->n + 1], &to->chain[1]);
    to->n += to->chain[1].nout ? 2 : 1;
  } else if (call->op == ZG_OP_DOT && call->nout == 2) {
    unsum(call, &to->call[0], &to->call[1]);
    to->n = 2;
  } else if (call->op == ZG_OP_XENT_SUMS && call->nin == 2) {
    unpeak(call, &to->call[0], &to->call[1]);
    to->n = 2;
  }
}

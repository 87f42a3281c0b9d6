/* From ops to CPU kernels and the scratch they need. */
#include "kernels/cpu/cpu.h"

typedef struct {
  ZkKernel *run;
  ZkScratch *scratch; /* NULL: none */
} Entry;

static const Entry table[ZG_OP_COUNT] = {
    [ZG_OP_POSITION] = {zk_cpu_position, NULL},
    [ZG_OP_RANDOM] = {zk_cpu_random, NULL},
    [ZG_OP_RENAME] = {zk_cpu_rename, NULL},
    [ZG_OP_SLICE] = {zk_cpu_slice, NULL},
    [ZG_OP_PAD] = {zk_cpu_pad, NULL},
    [ZG_OP_CONCAT] = {zk_cpu_concat, NULL},
    [ZG_OP_SUM] = {zk_cpu_sum, zk_scratch_sum},
    [ZG_OP_PEAK] = {zk_cpu_peak_op, zk_scratch_sum},
    [ZG_OP_DOT] = {zk_cpu_dot, zk_scratch_dot},
    [ZG_OP_SOFTMAX] = {zk_cpu_softmax, zk_scratch_softmax},
    [ZG_OP_SOFTMAX_GRAD] = {zk_cpu_softmax_grad, zk_scratch_softmax},
    [ZG_OP_NORMALIZE] = {zk_cpu_normalize, zk_scratch_normalize},
    [ZG_OP_NORMALIZE_GRAD] = {zk_cpu_normalize_grad, zk_scratch_normalize},
    [ZG_OP_ROPE] = {zk_cpu_rope, zk_scratch_rope},
    [ZG_OP_ATTEND] = {zk_cpu_attend, zk_scratch_attend},
    [ZG_OP_ATTEND_GRAD] = {zk_cpu_attend_grad, zk_scratch_attend_grad},
    [ZG_OP_LOOKUP] = {zk_cpu_lookup, NULL},
    [ZG_OP_LOOKUP_GRAD] = {zk_cpu_lookup_grad, zk_scratch_lookup_grad},
    [ZG_OP_XENT_SUMS] = {zk_cpu_xent_sums, NULL},
    [ZG_OP_XENT_GRAD] = {zk_cpu_xent_grad, NULL},
    [ZG_OP_CHAIN] = {zk_cpu_chain, NULL},
    [ZG_OP_COPY] = {zk_cpu_copy, NULL},
};

static const struct {
  uint8_t operands, results;
} arity[ZG_OP_COUNT] = {
#define OP(NAME, text, class, lo, hi, outs) [ZG_OP_##NAME] = {lo, outs},
#include "graph/ops.def"
};

static int output_of(const ZkCall *joined, int reg) {
  for (int k = 0; k < joined->nout; k++)
    if (joined->chain->out[k] == reg) return k;
  return -1;
}

/* The output that holds result 0 or, before that, operand 0 if it is not stored. */
static int place_of(const ZkCall *joined, int reg) {
  int nres = arity[joined->op].results, at = output_of(joined, reg);
  if (at >= 0) return at;
  for (int k = joined->nout; k-- > 0;) {
    bool first = joined->chain->out[k] == 0 || joined->chain->out[k] >= nres; /* has the axes of result 0 */
    if (first && (at < 0 || joined->out[k].elem == ZK_F32)) at = k;
  }
  ZB_ASSERT(at >= 0);
  return at;
}

static int operands_in(const ZkCall *joined) {
  return arity[joined->op].operands - (joined->chain->before > 0);
}

bool zk_unjoin_first(const ZkCall *joined, ZkCall *chain, ZkChain *first) {
  int nin = operands_in(joined), nres = arity[joined->op].results;
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

void zk_unjoin(const ZkCall *joined, ZkCall *op, ZkCall *chain, ZkChain *rest) {
  int nin = operands_in(joined), nres = arity[joined->op].results, n = 0;
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

void zk_unsum(const ZkCall *summed, ZkCall *dot, ZkCall *sum) {
  *dot = *sum = *summed;
  dot->nout = 1;
  sum->op = ZG_OP_SUM;
  sum->nin = sum->nout = 1;
  sum->in[0] = summed->in[1], sum->out[0] = summed->out[1];
}

ZkKernel *zk_cpu_kernel(int op) { return op >= 0 && op < ZG_OP_COUNT ? table[op].run : NULL; }

size_t zk_cpu_scratch(const ZkCall *call, int threads) {
  ZB_ASSERT(zk_cpu_kernel(call->op) != NULL);
  ZkScratch *scratch = table[call->op].scratch;
  return scratch ? scratch(call, threads) : 0;
}

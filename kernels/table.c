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

ZkKernel *zk_cpu_kernel(int op) { return op >= 0 && op < ZG_OP_COUNT ? table[op].run : NULL; }

size_t zk_cpu_scratch(const ZkCall *call, int threads) {
  ZB_ASSERT(zk_cpu_kernel(call->op) != NULL);
  ZkScratch *scratch = table[call->op].scratch;
  return scratch ? scratch(call, threads) : 0;
}

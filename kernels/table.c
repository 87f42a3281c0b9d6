/* From ops to CPU kernels and the scratch they need. */
#include "kernels/cpu/cpu.h"

static ZkKernel *const kernels[ZG_OP_COUNT] = {
#define KERNEL(NAME, name) [ZG_OP_##NAME] = zk_cpu_##name,
#include "kernels/kernels.def"
    [ZG_OP_POINTWISE] = zk_cpu_pointwise,
    [ZG_OP_COPY] = zk_cpu_copy,
    [ZG_OP_GROUPED_DOT] = zk_cpu_grouped_dot,
    [ZG_OP_GROUPED_OUTER] = zk_cpu_grouped_outer,
    [ZG_OP_SLOTS] = zk_cpu_slots,
    [ZG_OP_ROUND] = zk_cpu_round,
    [ZG_OP_PUT_PAGES] = zk_cpu_put_pages,
    [ZG_OP_ATTEND_PAGES] = zk_cpu_attend_pages,
    [ZG_OP_ATTEND_OWN] = zk_cpu_attend_own,
    [ZG_OP_RESUME_SCAN] = zk_cpu_resume_scan,
    [ZG_OP_RESUME_LINEAR] = zk_cpu_resume_linear,
    [ZG_OP_RECENT] = zk_cpu_recent,
    [ZG_OP_ROPE_AT] = zk_cpu_rope_at,
    [ZG_OP_ROWS] = zk_cpu_rows,
};

/* Of the others: none. */
static ZkScratch *const scratch[ZG_OP_COUNT] = {
    [ZG_OP_SUM] = zk_scratch_sum,
    [ZG_OP_PEAK] = zk_scratch_sum,
    [ZG_OP_DOT] = zk_scratch_dot,
    [ZG_OP_CONV] = zk_scratch_conv,
    [ZG_OP_CONV_TRANSPOSE] = zk_scratch_conv,
    [ZG_OP_CONV_GRAD] = zk_scratch_conv,
    [ZG_OP_SOFTMAX] = zk_scratch_softmax,
    [ZG_OP_SOFTMAX_GRAD] = zk_scratch_softmax,
    [ZG_OP_NORMALIZE] = zk_scratch_normalize,
    [ZG_OP_NORMALIZE_GRAD] = zk_scratch_normalize,
    [ZG_OP_ROPE] = zk_scratch_rope,
    [ZG_OP_ROTATE] = zk_scratch_rotate,
    [ZG_OP_ATTEND] = zk_scratch_attend,
    [ZG_OP_ATTEND_GRAD] = zk_scratch_attend_grad,
    [ZG_OP_ATTEND_BIAS_GRAD] = zk_scratch_attend_bias_grad,
    [ZG_OP_LINEAR_ATTEND] = zk_scratch_linear_attend,
    [ZG_OP_LINEAR_ATTEND_GRAD] = zk_scratch_linear_attend,
    [ZG_OP_LOOKUP_GRAD] = zk_scratch_lookup_grad,
    [ZG_OP_TOPK] = zk_scratch_topk,
    [ZG_OP_ONEHOT] = zk_scratch_onehot,
    [ZG_OP_GROUPED_DOT] = zk_scratch_grouped_dot,
    [ZG_OP_GROUPED_OUTER] = zk_scratch_grouped_outer,
    [ZG_OP_ATTEND_PAGES] = zk_scratch_attend_pages,
    [ZG_OP_ATTEND_OWN] = zk_scratch_attend_pages,
    [ZG_OP_RESUME_LINEAR] = zk_scratch_resume_linear,
    [ZG_OP_ROPE_AT] = zk_scratch_rope,
};

ZkKernel *zk_cpu_kernel(int op) { return op >= 0 && op < ZG_OP_COUNT ? kernels[op] : NULL; }

size_t zk_cpu_scratch(const ZkCall *call, int threads) {
  ZB_ASSERT(zk_cpu_kernel(call->op) != NULL);
  return scratch[call->op] ? scratch[call->op](call, threads) : 0;
}

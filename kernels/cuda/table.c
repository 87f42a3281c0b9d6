/* From ops to CUDA kernels, the scratch they need, and what to do when one fails. */
#include "kernels/cuda/host.h"

#include <string.h>

static ZkKernel *const kernels[ZG_OP_COUNT] = {
#define KERNEL(NAME, name) [ZG_OP_##NAME] = zk_cuda_##name,
#include "kernels/kernels.def"
    [ZG_OP_POINTWISE] = zk_cuda_pointwise,
    [ZG_OP_COPY] = zk_cuda_copy,
    [ZG_OP_SLOTS] = zk_cuda_slots,
    [ZG_OP_ROUND] = zk_cuda_round,
    [ZG_OP_GROUPED_DOT] = zk_cuda_grouped_dot,
    [ZG_OP_GROUPED_OUTER] = zk_cuda_grouped_outer,
    [ZG_OP_DOT_BIAS_GRAD] = zk_cuda_dot,
    [ZG_OP_XENT_MAX_SUMS] = zk_cuda_xent_max_sums,
    [ZG_OP_XENT_SUMS_GRAD] = zk_cuda_xent_sums_grad,
    [ZG_OP_NORMALIZE_GRAD_SUMS] = zk_cuda_norm_fused,
    [ZG_OP_PUT_PAGES] = zk_cuda_put_pages,
    [ZG_OP_ATTEND_PAGES] = zk_cuda_attend_pages,
    [ZG_OP_ATTEND_OWN] = zk_cuda_attend_pages,
    [ZG_OP_RESUME_SCAN] = zk_cuda_resume_scan,
    [ZG_OP_RESUME_LINEAR] = zk_cuda_resume_linear,
    [ZG_OP_RECENT] = zk_cuda_recent,
    [ZG_OP_ROPE_AT] = zk_cuda_rope_at,
    [ZG_OP_ROWS] = zk_cuda_rows,
};

/* Of the others: none. */
static ZkCudaScratch *const scratch[ZG_OP_COUNT] = {
    [ZG_OP_SUM] = zk_cuda_reduce_scratch,
    [ZG_OP_PEAK] = zk_cuda_reduce_scratch,
    [ZG_OP_DOT] = zk_cuda_dot_scratch,
    [ZG_OP_DOT_BIAS_GRAD] = zk_cuda_dot_scratch,
    [ZG_OP_CONV_GRAD] = zk_cuda_conv_scratch,
    [ZG_OP_NORMALIZE_GRAD_SUMS] = zk_cuda_norm_sums_scratch,
    [ZG_OP_ATTEND] = zk_cuda_attend_scratch,
    [ZG_OP_ATTEND_GRAD] = zk_cuda_attend_scratch,
    [ZG_OP_ATTEND_BIAS_GRAD] = zk_cuda_attend_scratch,
    [ZG_OP_LINEAR_ATTEND] = zk_cuda_linear_attend_scratch,
    [ZG_OP_LINEAR_ATTEND_GRAD] = zk_cuda_linear_attend_scratch,
    [ZG_OP_LOOKUP_GRAD] = zk_cuda_lookup_grad_scratch,
    [ZG_OP_ATTEND_PAGES] = zk_cuda_attend_pages_scratch,
    [ZG_OP_ATTEND_OWN] = zk_cuda_attend_pages_scratch,
};

/* Others need no preparation. */
static ZkKernel *const prepare[ZG_OP_COUNT] = {
    [ZG_OP_DOT] = zk_cuda_dot_prepare,
    [ZG_OP_DOT_BIAS_GRAD] = zk_cuda_dot_prepare,
    [ZG_OP_NORMALIZE] = zk_cuda_norm_prepare,
    [ZG_OP_NORMALIZE_GRAD] = zk_cuda_norm_prepare,
    [ZG_OP_NORMALIZE_GRAD_SUMS] = zk_cuda_norm_prepare,
    [ZG_OP_ATTEND] = zk_cuda_attend_prepare,
    [ZG_OP_ATTEND_GRAD] = zk_cuda_attend_prepare,
    [ZG_OP_POINTWISE] = zk_cuda_pointwise_prepare,
};

ZkKernel *zk_cuda_kernel(int op) { return op >= 0 && op < ZG_OP_COUNT ? kernels[op] : NULL; }

size_t zk_cuda_scratch(const ZkCall *call, int threads) {
  (void)threads;
  if (!zk_cuda_kernel(call->op)) return 0; /* that it is lacking is for prepare to say */
  return scratch[call->op] ? scratch[call->op](call) : 0;
}

bool zk_cuda_supports(const ZkCall *call) {
  switch (call->op) {
  case ZG_OP_DOT:
  case ZG_OP_DOT_BIAS_GRAD: return zk_cuda_dot_supports(call);
  case ZG_OP_NORMALIZE:
  case ZG_OP_NORMALIZE_GRAD: return zk_cuda_norm_supports(call);
  case ZG_OP_NORMALIZE_GRAD_SUMS: return zk_cuda_norm_sums_supports(call);
  case ZG_OP_XENT_MAX_SUMS:
  case ZG_OP_XENT_SUMS_GRAD: return true;
  default: return false;
  }
}

const ZkPlanning zk_planning_cuda = {zk_cuda_scratch, zk_cuda_supports, true, zk_cuda_tiles};

void zk_cuda_prepare(const ZkEnv *env, const ZkCall *call) {
  ZB_ASSERT(zk_cuda_kernel(call->op) != NULL);
  if (prepare[call->op]) prepare[call->op](env, call);
}

void zk_cuda_run_unfused(const ZkEnv *env, const ZkCall *call) {
  ZkUnfused u;
  zk_unfuse(call, &u);
  for (int i = 0; i < u.n; i++) zk_cuda_kernel(u.call[i].op)(env, &u.call[i]);
}

void zk_cuda_prepare_unfused(const ZkEnv *env, const ZkCall *call) {
  ZkUnfused u;
  zk_unfuse(call, &u);
  for (int i = 0; i < u.n; i++) zk_cuda_prepare(env, &u.call[i]);
}

/* ---- errors ------------------------------------------------------------------------------------------- */
static void add_view(char *text, size_t size, const ZkView *v, const char *between) {
  size_t n = strlen(text);
  n += (size_t)snprintf(text + n, size - n, "%s%s[", between,
                        v->elem < ZK_ELEMS ? zk_elem_info[v->elem].text : "?");
  for (int a = 0; a < v->rank && n < size; a++)
    n += (size_t)snprintf(text + n, size - n, "%s%lld", a ? " " : "", (long long)v->size[a]);
  if (n < size) snprintf(text + n, size - n, "]");
}

static void show_call(char *text, size_t size, const ZkCall *call) {
  *text = 0;
  if (!call) return;
  snprintf(text, size, "`%s` ", call->op < ZG_OP_COUNT ? zg_op_info[call->op].text : "?");
  for (int i = 0; i < call->nin; i++) add_view(text, size, &call->in[i], i ? ", " : "");
  for (int i = 0; i < call->nout; i++) add_view(text, size, &call->out[i], i ? ", " : " -> ");
  strcat(text, strlen(text) + 3 < size ? ": " : "");
}

void zk_cuda_fail(ZkCuda *cu, const ZkCall *call, const char *what, const char *why) {
  if (cu->failed) return;
  cu->failed = true;
  char sizes[384];
  show_call(sizes, sizeof sizes, call);
  snprintf(cu->error, sizeof cu->error, "%s%s: %s", sizes, what, why);
}

/* ---- news --------------------------------------------------------------------------------------------- */
bool zk_cuda_refused(ZkCuda *cu, const ZkCall *call, const char *library, const char *instead,
                     const char *why) {
  char text[384], what[96];
  if (cu->capturing) {
    snprintf(what, sizeof what, "%s refused it while the step was captured", library);
    zk_cuda_fail(cu, call, what, why);
  } else if (!cu->late) {
    cu->late = true;
    show_call(text, sizeof text, call);
    snprintf(cu->news, sizeof cu->news, "%s%s refused it in a step (%s), so it is done %s from now on", text,
             library, why, instead);
  }
  return cu->capturing;
}

const char *zk_cuda_late(ZkCuda *cu) {
  bool late = cu->late;
  cu->late = false;
  return late ? cu->news : NULL;
}
